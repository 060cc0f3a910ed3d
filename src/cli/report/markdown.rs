//! A report as Markdown, short enough for an issue. Names from a file are written as code. All other characters with a meaning in
//! Markdown or on GitHub (links, mentions, references) are escaped.

use std::path::Path;

use super::{BLOCKERS, Hidden, MOST_MARKDOWN, Part, Report};
use crate::cli::markdown;
use crate::cli::oom::OomEntry;
use crate::cli::summary::doing::Held;
use vramscope_core::anatomy::Role;
use vramscope_core::diagnose::explain::Explanation;
use vramscope_core::plan::Trust;
use vramscope_core::units::{Bytes, count};

/// Most rows of a table, most findings and most changes.
const ROWS: usize = 10;
/// Longest text or name, in characters.
const LONGEST: usize = 700;
/// Space reserved for the last line, which says what was cut.
const RESERVE: usize = 400;

/// A text with all Markdown escaped.
fn plain(text: &str) -> String {
    /// A zero-width space. It prevents GitHub's mentions, references and addresses, which a backslash does not.
    const APART: char = '\u{200b}';
    let text: Vec<char> = text.trim().chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut out = String::with_capacity(text.len());
    for (i, &c) in text.iter().enumerate() {
        let is_first = text[..i].iter().all(|c| c.is_ascii_digit() || *c == ' ');
        let (before, after) = (i.checked_sub(1).map(|i| text[i]), text.get(i + 1));
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => out.extend(['\\', c]),
            // At the start of a line these characters make lists, headings and rules.
            '-' | '+' | '=' | '#' if is_first => out.extend(['\\', c]),
            '.' | ')' if is_first && after.is_none_or(|c| *c == ' ') => out.extend(['\\', c]),
            '@' => out.extend([c, APART]),
            '#' if after.is_some_and(char::is_ascii_digit) => out.extend([c, APART]),
            ':' if after == Some(&'/') => out.extend([c, APART]),
            '.' if before.is_some_and(|c| c.eq_ignore_ascii_case(&'w')) => out.extend([c, APART]),
            c => out.push(c),
        }
    }
    out
}

/// A name as code, safe inside a table.
fn code(text: &str) -> String {
    let text: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = text.trim();
    if text.is_empty() {
        return String::new();
    }
    // In a table, a bar ends a cell even inside code, unless it is escaped.
    markdown::code(&text.replace('|', "\\|"))
}

fn block(text: &str) -> String {
    let fence = markdown::fence(text);
    let ticks = if fence.len() < 3 { "```" } else { &fence };
    format!("{ticks}\n{}\n{ticks}\n", text.trim_end())
}

/// Sections, as many as fit.
struct Text<'a> {
    out: String,
    hidden: &'a Hidden,
    left_out: usize,
}

impl Text<'_> {
    fn plain(&self, text: &str) -> String {
        plain(&self.hidden.say(text))
    }

    fn code(&self, text: &str) -> String {
        code(&self.hidden.say(text))
    }

    fn block(&self, text: &str) -> String {
        block(&self.hidden.say(text))
    }

    /// Adds a section as a whole, or not at all.
    fn add(&mut self, section: &str) {
        if section.is_empty() {
            return;
        }
        let is_room = self.out.chars().count() + section.chars().count() + RESERVE <= MOST_MARKDOWN;
        if is_room && self.left_out == 0 {
            self.out += section;
            self.out.push('\n');
        } else {
            self.left_out += 1;
        }
    }

    fn finish(mut self) -> String {
        if self.left_out > 0 {
            self.out += &format!(
                "\n*{} left out: this text is kept under {} characters, which an issue takes. The HTML report has the rest.*\n",
                vramscope_core::units::counted(self.left_out as u64, "section was", "sections were"),
                count(MOST_MARKDOWN as u64)
            );
        }
        self.out += &format!("\n<sub>vramscope {} · events count from 0 · sizes are binary</sub>\n", env!("CARGO_PKG_VERSION"));
        self.out
    }
}

pub(super) fn of(hidden: &Hidden, report: &Report) -> String {
    let mut text = Text { out: String::new(), hidden, left_out: 0 };
    let is_one = report.parts.len() == 1;
    if let Some(caveat) = &report.summary.load.caveat {
        text.add(&format!("> {}\n", text.plain(&super::sentence(caveat))));
    }
    if report.parts.is_empty() {
        let told: Vec<String> = report.without_parts().iter().map(|s| text.plain(s)).collect();
        text.add(&format!("**{}**\n", told.join(" ")));
    }
    for part in &report.parts {
        let figures = report.figures(part);
        if !is_one {
            text.add(&format!("## {}\n", text.plain(&figures.label)));
        }
        lead(&mut text, report, part);
        peak(&mut text, report, part);
        findings(&mut text, report, part);
        plan(&mut text, part);
    }
    let others = report.others().filter(|d| d.events > 0).count();
    if others > 0 {
        text.add(&format!("{} more devices; `--device N` reports one.\n", count(others as u64)));
    }
    let rows = report.environment(hidden);
    let rows: Vec<String> =
        rows.iter().take(60).map(|(label, value)| format!("| {} | {} |", text.plain(label), text.code(value))).collect();
    text.add(&format!("### Environment\n\n| | |\n|---|---|\n{}\n", rows.join("\n")));
    let missing = report.missing();
    let missing: Vec<String> = missing
        .iter()
        .take(20)
        .map(|(said, line)| {
            let line = line.as_ref().map(|l| format!(" {}", text.code(l))).unwrap_or_default();
            format!("- {}{line}", text.plain(said))
        })
        .collect();
    if !missing.is_empty() {
        text.add(&format!("### What this recording lacks\n\n{}\n", missing.join("\n")));
    }
    text.finish()
}

fn lead(text: &mut Text<'_>, report: &Report, part: &Part) {
    let (lead, more) = report.lead(part);
    let verdict = report.verdict(part).map(|v| format!("{}. ", text.plain(&v))).unwrap_or_default();
    let mut out = format!("**{verdict}{}**\n", text.plain(&lead));
    for said in more {
        out += &format!("\n{}\n", text.plain(&said));
    }
    text.add(&out);
}

fn peak(text: &mut Text<'_>, report: &Report, part: &Part) {
    let Some(peak) = report.peak(part) else {
        bands(text, report, part);
        processes(text, report, part);
        return;
    };
    let when = match peak.event {
        Some(event) => format!("at event {}", count(u64::from(event))),
        None => String::new(),
    };
    let mut roles: Vec<(&str, u64)> = peak.by_role.iter().map(|(name, bytes)| (*name, *bytes)).collect();
    roles.sort_by_key(|r| std::cmp::Reverse(r.1));
    let mut out =
        format!("### {}: {} {when}\n\n| role | bytes | share |\n|---|---:|---:|\n", report.instant(part), Bytes(peak.bytes));
    for (name, bytes) in roles {
        let share = bytes as f64 / peak.bytes.max(1) as f64 * 100.0;
        let probable = peak.probably.get(name).is_some_and(|&p| p * 2 > bytes);
        let words = Role::from_name(name).map_or(name.into(), |role| role.words(probable));
        out += &format!("| {words} | {} | {share:.1} % |\n", Bytes(bytes));
    }
    text.add(&out);
    let table = |text: &mut Text<'_>, title: &str, rows: &[Held]| {
        let (head, rule) = if rows.iter().any(|row| row.role.is_some()) { (" role |", "---|") } else { ("", "") };
        let mut out = format!("| {title} | bytes | blocks |{head}\n|---|---:|---:|{rule}\n");
        for held in rows.iter().take(ROWS) {
            let role = held.role.map_or("", |r| Role::from_name(r).map_or(r, Role::text));
            let role = if held.role_text.is_empty() { role } else { &held.role_text };
            let role = if head.is_empty() { String::new() } else { format!(" {role} |") };
            out += &format!("| {} | {} | {} |{role}\n", text.code(&held.name), Bytes(held.bytes), count(held.count));
        }
        if let Some(note) = super::not_shown(rows, ROWS, peak.bytes) {
            out += &format!("\n{note}\n");
        }
        if !rows.is_empty() {
            text.add(&out);
        }
    };
    table(text, "line", &peak.by_line);
    table(text, "module or layer", &peak.by_module);
}

/// Bytes by category of a memory timeline.
fn bands(text: &mut Text<'_>, report: &Report, part: &Part) {
    let Some(bands) = &report.figures(part).bands else { return };
    let mut out = format!(
        "### At the peak: {}\n\n| category | at the peak | most | at the end |\n|---|---:|---:|---:|\n",
        Bytes(bands.peak_bytes)
    );
    for c in bands.categories.iter().filter(|c| c.most_bytes > 0) {
        let [peak, most, end] = [c.at_peak_bytes, c.most_bytes, c.end_bytes].map(Bytes);
        out += &format!("| {} | {peak} | {most} | {end} |\n", c.category.replace('_', " "));
    }
    text.add(&out);
}

/// The processes that held memory, for a watch of a GPU.
fn processes(text: &mut Text<'_>, report: &Report, part: &Part) {
    let Some(watched) = &report.figures(part).watched else { return };
    let mut out = "### Who held the card\n\n".to_owned();
    if watched.processes.is_empty() {
        out += "No process is in this recording.\n";
    } else {
        out += "| PID | peak | grew by | command |\n|---:|---:|---:|---|\n";
    }
    for p in watched.processes.iter().take(ROWS) {
        let peak = p.peak_bytes.map_or_else(|| "not recorded".to_owned(), |bytes| Bytes(bytes).to_string());
        out += &format!("| {} | {peak} | {} | {} |\n", p.pid, Bytes(p.grown_bytes), text.code(&p.command));
    }
    if watched.processes.len() > ROWS {
        out += &format!("\n{ROWS} of {} shown.\n", watched.processes.len());
    }
    text.add(&out);
}

fn findings(text: &mut Text<'_>, report: &Report, part: &Part) {
    let mut found = report.findings(part);
    let mut title = "### Findings and what to change\n\n";
    if let Some(o) = report.failure(part) {
        let finding = report.finding_of(o, part);
        found.retain(|f| !finding.is_some_and(|of| std::ptr::eq(of, *f)));
        let name = finding.map_or("Out of memory", |f| f.title.as_str());
        let mut out = format!("{title}**{}** ({}, event {})\n\n", text.plain(name), o.size(), count(u64::from(o.event)));
        if let Some(at) = &o.requested_at {
            out += &format!("Requested at {}. ", text.code(at));
        }
        out += &format!("{}\n\n", text.plain(&o.way_out_sentence));
        for r in o.remedies.iter().take(ROWS) {
            let setting = r.setting.as_ref().map(|s| format!(" {}", text.code(s))).unwrap_or_default();
            out += &format!("- {}{setting}\n", text.plain(&r.sentence));
        }
        text.add(&out);
        in_the_way(text, o);
        title = "";
    }
    for f in found.iter().take(ROWS) {
        let event = f.place.event.map_or_else(String::new, |e| format!(", event {}", count(u64::from(e))));
        let mut out = format!("{title}**{}** ({}{event})\n\n", text.plain(&f.title), Bytes(f.bytes));
        let planned = report.as_planned(f, part).map_or(String::new(), |said| format!(" {}", text.plain(&said)));
        out += &format!("{}{planned}\n\n{}\n", text.plain(&f.sentence), text.plain(&f.advice));
        if let Some(remedy) = &f.remedy {
            out += &format!("\n{}", text.block(remedy));
        }
        text.add(&out);
        title = "";
    }
    if found.len() > ROWS {
        text.add(&format!("{ROWS} of {} findings shown.\n", found.len()));
    }
    if found.is_empty() {
        let is_only = report.recording.devices.len() == 1;
        let notes = report.found.as_ref().filter(|_| is_only).map(|f| f.notes(&report.recording)).unwrap_or_default();
        let notes: Vec<String> = notes.iter().map(|n| text.plain(n)).collect();
        text.add(&if notes.is_empty() { String::new() } else { format!("{title}{}\n", notes.join("\n\n")) });
    }
}

/// The live blocks between the holes.
fn in_the_way(text: &mut Text<'_>, o: &OomEntry) {
    if o.blockers.is_empty() {
        return;
    }
    let mut out = "| live block | wastes beside it | role | made at |\n|---:|---:|---|---|\n".to_owned();
    for b in o.blockers.iter().take(BLOCKERS) {
        let role = Role::from_name(b.block.role).map_or(b.block.role, Role::text);
        out += &format!("| {} | {} | {role} | {} |\n", Bytes(b.block.bytes), Bytes(b.strands_bytes), text.code(&b.block.place));
    }
    out +=
        &format!("\n{} of {} live blocks between the holes.\n", o.blockers.len().min(BLOCKERS), count(o.blockers_total as u64));
    text.add(&out);
}

fn plan(text: &mut Text<'_>, part: &Part) {
    let Ok(plan) = &part.plan else { return };
    let helps = plan.changes();
    if helps.is_empty() && plan.at.is_none() {
        return;
    }
    let mut out = "### What would make it smaller\n\n".to_owned();
    if plan.at.is_some() {
        for said in plan.sentences() {
            out += &format!("{}\n\n", text.plain(&super::sentence(&said)));
        }
    }
    if helps.is_empty() {
        text.add(&out);
        return;
    }
    out += "| change | allocated peak falls by | reserved after | costs |\n|---|---:|---:|---|\n";
    for c in helps.iter().take(ROWS) {
        let about = if c.trust == Trust::Estimate { "about " } else { "" };
        let (saves, after) = (Bytes(c.saves_bytes.unsigned_abs()), Bytes(c.peak_reserved_bytes));
        out += &format!("| {} | {saves} | {about}{after} | {} |\n", text.plain(&c.title), text.plain(&c.cost));
    }
    text.add(&out);
}

pub(super) fn of_log(hidden: &Hidden, path: &Path, (main, all): &(Explanation, Vec<Explanation>)) -> String {
    let mut text = Text { out: String::new(), hidden, left_out: 0 };
    let cause = crate::cli::explain::named(main.cause);
    text.add(&format!("**Out of memory. {}**\n", text.plain(&format!("{cause}{}", main.sentence))));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let of = format!("Message of {}, line {} of ", main.writer, main.line);
    let mut figures = format!("{} {}\n\n| figure | |\n|---|---:|\n", text.plain(&of), text.code(&name));
    for name in main.figures.keys() {
        let label = name.trim_end_matches("_bytes").replace('_', " ");
        figures += &format!("| {} | {} |\n", text.plain(&label), text.plain(&main.printed(name).unwrap_or_default()));
    }
    text.add(&figures);
    let list = |text: &mut Text<'_>, title: &str, items: &mut dyn Iterator<Item = &str>| {
        let items: Vec<String> = items.take(20).map(|i| format!("- {}", text.plain(i))).collect();
        if !items.is_empty() {
            text.add(&format!("### {title}\n\n{}\n", items.join("\n")));
        }
    };
    list(&mut text, "What to do", &mut main.remedies.iter().map(|r| r.sentence.as_str()));
    list(&mut text, "Also known", &mut main.known.iter().map(String::as_str));
    list(&mut text, "Not in a message", &mut main.not_known.iter().map(String::as_str));
    if !main.record.is_empty() {
        text.add(&format!("Record the next run to see the rest:\n\n{}", text.block(&main.record.join("\n"))));
    }
    if all.len() > 1 {
        text.add(&format!("{} messages in the text.\n", count(all.len() as u64)));
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_means_anything_to_markdown() {
        assert_eq!(plain("a_b *c* [x](y) <b> | 1"), "a\\_b \\*c\\* \\[x\\](y) &lt;b&gt; \\| 1");
        assert_eq!(plain("see @alice and #12"), "see @\u{200b}alice and #\u{200b}12");
        assert_eq!(plain("http://evil.example www.evil.example"), "http:\u{200b}//evil.example www.\u{200b}evil.example");
        assert_eq!(plain("one\n# two\r\n- three"), "one # two  - three");
        assert_eq!((plain("# a").as_str(), plain("- a").as_str(), plain("12. a").as_str()), ("\\# a", "\\- a", "12\\. a"));
        assert_eq!(plain("340.30 MiB: 2 (of 3)"), "340.30 MiB: 2 (of 3)");
    }

    #[test]
    fn no_name_ends_its_code() {
        assert_eq!(code("train.py:12"), "`train.py:12`");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`x"), "`` `x ``");
        assert_eq!(code("a|b\nc"), "`a\\|b c`");
        assert_eq!(block("a\n```\nb"), "````\na\n```\nb\n````\n");
    }
}
