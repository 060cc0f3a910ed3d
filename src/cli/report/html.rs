//! A report as one HTML page. It loads nothing from elsewhere, and the policy in its head allows only its own script.

use std::path::Path;

use serde_json::json;

use super::page::Page;
use super::pictures::ROLE_COLOURS;
use super::{BLOCKERS, Hidden, Part, Report};
use crate::cli::oom::OomEntry;
use crate::cli::summary::doing::Held;
use vramscope_core::anatomy::Role;
use vramscope_core::diagnose::explain::Explanation;
use vramscope_core::diagnose::findings::{Class, Finding};
use vramscope_core::model::Beyond;
use vramscope_core::plan::Trust;
use vramscope_core::units::{Bytes, SizeColumn, count};

/// Rows of the tables of lines, modules and settings.
const ROWS: usize = 12;
/// Most findings shown in full.
const FINDINGS: usize = 40;
/// Rows of other devices, and of the environment.
const MORE_ROWS: usize = 64;

/// The report in HTML, with at most `columns` columns in all timelines and `cells` cells in all maps.
pub(super) fn of(hidden: &Hidden, report: &Report, columns: usize, cells: usize) -> String {
    let mut page = Page::new(hidden);
    let name = report.recording.source.name.as_str();
    let load = &report.summary.load;
    page.raw("<header><b>vramscope report</b> &middot; ").text(name).raw(" &middot; ");
    page.text(format!("{}, {}, {} events", report.summary.format, Bytes(load.bytes), count(load.events)));
    if hidden.is_on() {
        page.raw(" &middot; paths and names left out");
    }
    page.raw("</header>\n<main>\n");
    if let Some(caveat) = &load.caveat {
        page.raw("<p class=caveat>").text(super::sentence(caveat)).raw("</p>\n");
    }
    let is_one = report.parts.len() == 1;
    if report.parts.is_empty() {
        page.raw("<section class=lead>");
        for (i, said) in report.without_parts().into_iter().enumerate() {
            if i == 0 {
                page.raw("<h1>").text(said).raw("</h1>\n")
            } else {
                page.paragraph(said)
            };
        }
        page.raw("</section>\n");
        counters(&mut page, report);
    }
    if report.parts.len() > 1 {
        page.raw("<nav>");
        for part in &report.parts {
            let figures = report.figures(part);
            page.raw("<a href=\"#d").number(part.index).raw("\">").text(&figures.label).raw("</a>");
        }
        page.raw("</nav>\n");
    }
    let each = |all: usize| all / report.parts.len().max(1);
    for part in &report.parts {
        device(&mut page, report, part, is_one, each(columns).min(2_400), each(cells).min(6_000));
    }
    others(&mut page, report);
    environment(&mut page, report);
    page.raw("</main>\n<footer>Sizes are binary: 1 GiB is 1,073,741,824 bytes. Events count from 0. ");
    page.raw("This page loads nothing and sends nothing.</footer>\n");
    page.finish(&format!("{name}: memory report"))
}

fn counters(page: &mut Page<'_>, report: &Report) {
    for (d, counted) in report.summary.devices.iter().zip(&report.summary.counters) {
        page.raw("<h3>").text(&d.label).raw("<small>").text(counted.kind).raw("</small></h3>\n<div class=wide><table>\n");
        for (key, value) in counted.values.iter().take(4 * MORE_ROWS) {
            let value = if key.contains("bytes") { Bytes(*value).to_string() } else { count(*value) };
            page.raw("<tr>").cell(key).figure(value).raw("</tr>\n");
        }
        page.raw("</table></div>\n");
    }
}

fn device(page: &mut Page<'_>, report: &Report, part: &Part, is_one: bool, columns: usize, cells: usize) {
    let figures = report.figures(part);
    if !is_one {
        page.raw("<h2 id=d").number(part.index).raw(">").text(&figures.label).raw("<small>");
        page.text(figures.name.as_deref().unwrap_or_default()).raw("</small></h2>\n");
    }
    let (lead, more) = report.lead(part);
    page.raw(if is_one { "<section class=lead>\n" } else { "<section class=\"lead device\">\n" });
    if let Some(verdict) = report.verdict(part) {
        page.raw("<p class=verdict>").text(verdict).raw("</p>\n");
    }
    page.raw("<h1>").text(lead).raw("</h1>\n");
    for said in more {
        page.paragraph(said);
    }
    levels(page, report, part);
    page.raw("</section>\n");
    peak(page, report, part);
    page.title("Timeline");
    match report.timeline(part, columns) {
        Ok(timeline) => {
            let left_out = timeline.left_out.join(" ");
            let of = match timeline.axis {
                "event" => format!(
                    "{} columns for {} events; each column shows the instant at which most was held.",
                    count(timeline.at.len() as u64),
                    count(figures.events)
                ),
                _ => format!("{} instants, each the highest of its stretch.", count(timeline.at.len() as u64)),
            };
            page.picture(
                json!({ "timeline": timeline }),
                "Point to read an instant. Drag to zoom into a stretch, double click for the whole, Ctrl and the wheel to zoom.",
                "Memory over time",
            );
            page.note(format!("{of} {left_out}"));
        }
        Err(why) => {
            page.empty(why);
        }
    }
    if figures.events > 0 || figures.segments > 0 || figures.blocks > 0 {
        map(page, report, part, cells);
    }
    findings(page, report, part);
    plan(page, part);
}

/// The figures of `summary`, or of a watch of a GPU.
fn levels(page: &mut Page<'_>, report: &Report, part: &Part) {
    let d = report.figures(part);
    let mut facts: Vec<(String, String, bool)> = Vec::new();
    if let Some(o) = report.failure(part) {
        facts.push(("failed request".to_owned(), Bytes(o.requested_bytes).to_string(), true));
        if o.has_segments {
            facts.push(("largest hole".to_owned(), Bytes(o.largest_hole_bytes).to_string(), false));
            facts.push(("free in holes".to_owned(), Bytes(o.hole_bytes).to_string(), false));
        }
        let free = o.device_free_bytes.filter(|&b| b < vramscope_core::model::EventTable::FREE_UNBOUNDED);
        facts.push((
            "free on the device".to_owned(),
            free.map_or_else(|| "not recorded".to_owned(), |b| Bytes(b).to_string()),
            false,
        ));
    }
    if let Some(w) = &d.watched {
        facts.push(("used at most".to_owned(), Bytes(w.peak_used_bytes).to_string(), false));
        facts.push(("of".to_owned(), Bytes(w.total_bytes).to_string(), false));
    }
    if let Some(b) = d.bands.as_ref().filter(|_| d.events == 0) {
        facts.push(("tensors, peak".to_owned(), Bytes(b.peak_bytes).to_string(), false));
    } else if d.events > 0 || d.segments > 0 || d.blocks > 0 {
        let has_reserved = crate::cli::summary::text::knows_reserved(d);
        // A file without events has a single instant, so there is no peak.
        let when = if d.events > 0 { ", peak" } else { "" };
        let mut add = |name: &str, bytes: u64| facts.push((format!("{name}{when}"), Bytes(bytes).to_string(), false));
        if has_reserved {
            add("reserved", d.reserved_bytes.peak);
        }
        add("active", d.active_bytes.peak);
        add("allocated", d.allocated_bytes.peak);
        if let Some(requested) = &d.requested_bytes {
            add("requested", requested.peak);
        }
    }
    if let Some(bytes) = d.limit_bytes.or(d.capacity_bytes).filter(|_| d.watched.is_none()) {
        let label = if d.limit_bytes.is_some() { "limit" } else { "device memory" };
        facts.push((label.to_owned(), Bytes(bytes).limit(), false));
    }
    page.facts(facts.into_iter());
}

/// The CSS class for the colour of a role.
fn class_of(role: &str) -> &'static str {
    Role::from_name(role).map_or("other", |r| ROLE_COLOURS[r.index()])
}

fn role_text(name: &str) -> &str {
    Role::from_name(name).map_or(name, |r| r.text())
}

fn swatch(page: &mut Page<'_>, class: &'static str) {
    page.raw("<svg class=role><rect width=10 height=10 class=\"").raw(class).raw("\"/></svg>");
}

fn peak(page: &mut Page<'_>, report: &Report, part: &Part) {
    let Some(peak) = report.peak(part) else {
        bands(page, report, part);
        processes(page, report, part);
        return;
    };
    let when = match peak.event {
        Some(event) => format!("{} at event {}", Bytes(peak.bytes), count(u64::from(event))),
        None => format!("{} when the file was written", Bytes(peak.bytes)),
    };
    page.titled(report.instant(part), when);
    let mut roles: Vec<(&str, u64)> = peak.by_role.iter().map(|(name, bytes)| (*name, *bytes)).collect();
    roles.sort_by_key(|&(name, bytes)| (name == "unknown", std::cmp::Reverse(bytes)));
    page.raw("<svg class=\"bar rolebar\" role=img aria-label=\"bytes by role\">");
    let mut from = 0;
    for &(name, bytes) in &roles {
        page.raw("<rect height=\"100%\" class=\"").raw(class_of(name)).raw("\" x=\"").percent(from, peak.bytes);
        page.raw("\" width=\"").percent(bytes, peak.bytes).raw("\"/>");
        from += bytes;
    }
    page.raw("</svg>\n<div class=columns><div><h4>By role</h4><div class=wide><table>\n");
    let size = SizeColumn::of(roles.iter().map(|r| r.1));
    let longest = roles.iter().map(|r| r.1).max().unwrap_or(0);
    for &(name, bytes) in &roles {
        let class = class_of(name);
        page.raw("<tr><td class=name>");
        swatch(page, class);
        let probable = peak.probably.get(name).copied().unwrap_or(0);
        let how = match (probable, name) {
            (0, "unknown") => Beyond { before: peak.before_profiling, grew: peak.grew_during_profiling }.words(),
            (0, _) => String::new(),
            (p, _) if p == bytes => "inferred".to_owned(),
            (p, _) => format!("{} of it inferred", Bytes(p)),
        };
        page.text(role_text(name)).raw("</td>").figure(size.sized(bytes)).bar(class, bytes, longest).cell(how).raw("</tr>\n");
    }
    page.raw("</table></div>\n");
    if !peak.by_module.is_empty() {
        page.raw("<h4 class=next>By module or layer</h4>");
        held(page, &peak.by_module, false, peak.bytes);
    }
    page.raw("</div>\n<div><h4>By line</h4>");
    if peak.by_line.is_empty() {
        page.empty("No line is known.");
    } else {
        held(page, &peak.by_line, true, peak.bytes);
    }
    page.raw("</div>\n");
    page.raw("</div>\n");
}

/// A table of rows. Together with rows that are not shown they hold `all` bytes.
fn held(page: &mut Page<'_>, rows: &[Held], has_roles: bool, all: u64) {
    // Bars are relative to the largest row.
    let whole = rows.iter().map(|r| r.bytes).max().unwrap_or(0);
    let size = SizeColumn::of(rows.iter().take(ROWS).map(|r| r.bytes));
    page.raw("<div class=wide><table>\n");
    let row = |page: &mut Page<'_>, held: &Held, is_inner: bool| {
        let class = held.role.map_or("plain", class_of);
        page.raw(if is_inner { "<tr class=inner><td class=name>" } else { "<tr><td class=name>" });
        page.text(super::short(&held.name)).raw("</td>").figure(size.sized(held.bytes));
        let times = if held.count > 0 { format!("{} ×", count(held.count)) } else { String::new() };
        page.figure(times).bar(class, held.bytes, whole);
        if has_roles {
            page.cell(if held.role_text.is_empty() { held.role.map_or("", role_text) } else { &held.role_text });
        }
        page.raw("</tr>\n");
    };
    for held in rows.iter().take(ROWS) {
        row(page, held, false);
        for inner in held.parts.iter().take(3) {
            row(page, inner, true);
        }
    }
    page.raw("</table></div>\n");
    if let Some(note) = super::not_shown(rows, ROWS, all) {
        page.note(note);
    }
}

/// Bytes by category of a memory timeline.
fn bands(page: &mut Page<'_>, report: &Report, part: &Part) {
    let Some(bands) = &report.figures(part).bands else { return };
    page.titled("At the peak", Bytes(bands.peak_bytes).to_string()).raw("<div class=wide><table>\n");
    page.raw("<tr><th>category<th class=n>at the peak<th class=n>most<th class=n>at the end</tr>\n");
    let size = SizeColumn::of(bands.categories.iter().map(|c| c.most_bytes));
    for c in bands.categories.iter().filter(|c| c.most_bytes > 0) {
        page.raw("<tr><td class=name>").text(c.category.replace('_', " ")).raw("</td>");
        page.figure(size.sized(c.at_peak_bytes)).figure(size.sized(c.most_bytes)).figure(size.sized(c.end_bytes)).raw("</tr>\n");
    }
    page.raw("</table></div>\n");
    page.note("Lines and blocks are not in this recording: it has the sums of each category.");
}

/// The processes that held memory, for a watch of a GPU.
fn processes(page: &mut Page<'_>, report: &Report, part: &Part) {
    let Some(watched) = &report.figures(part).watched else { return };
    page.title("Who held the card");
    if watched.processes.is_empty() {
        page.empty("No process is in this recording.");
        return;
    }
    page.raw("<div class=wide><table>\n<tr><th class=n>PID<th class=n>peak<th class=n>grew by<th>command</tr>\n");
    let size = SizeColumn::of(watched.processes.iter().take(ROWS).filter_map(|p| p.peak_bytes));
    for p in watched.processes.iter().take(ROWS) {
        let peak = p.peak_bytes.map_or_else(|| "not recorded".to_owned(), |b| size.sized(b));
        page.raw("<tr>").figure(p.pid.to_string()).figure(peak).figure(size.sized(p.grown_bytes)).cell(&p.command).raw("</tr>\n");
    }
    page.raw("</table></div>\n");
    if watched.processes.len() > ROWS {
        page.note(format!("{ROWS} of {} shown.", watched.processes.len()));
    }
}

fn map(page: &mut Page<'_>, report: &Report, part: &Part, cells: usize) {
    let failure = report.failure(part);
    let when = match failure {
        Some(o) => format!("at the failure, event {}", count(u64::from(o.event))),
        None => report.instant(part).to_lowercase(),
    };
    page.titled("Segment map", when);
    match report.map(part, cells) {
        Ok(map) => {
            let left_out = map.left_out.join(" ");
            let segments = map.segments.len() as u64;
            let mut picture = json!({ "map": map });
            if let Some(o) = failure {
                picture["map"]["request"] = json!(o.requested_bytes);
            }
            page.picture(
                picture,
                "Point at a block. Double click, or Ctrl and the wheel, to zoom; drag to move. ",
                "Segments and the blocks in them",
            );
            let segments = vramscope_core::units::counted(segments, "segment", "segments");
            page.note(format!("{segments} end to end, by address. {left_out}"));
        }
        Err(why) => {
            page.empty(why);
        }
    }
}

fn findings(page: &mut Page<'_>, report: &Report, part: &Part) {
    page.title("Findings and what to change");
    let mut found = report.findings(part);
    if let Some(o) = report.failure(part) {
        let finding = report.finding_of(o, part);
        failed(page, o, finding);
        found.retain(|f| !finding.is_some_and(|of| std::ptr::eq(of, *f)));
    }
    for f in found.iter().take(FINDINGS) {
        let is_red = matches!(f.class, Class::OutOfMemory | Class::Leak);
        page.raw(if is_red { "<article class=\"finding red\"><h4>" } else { "<article class=finding><h4>" });
        page.text(&f.title).raw("<span>").text(Bytes(f.bytes).to_string()).raw("</span></h4>\n").paragraph(&f.sentence);
        if let Some(said) = report.as_planned(f, part) {
            page.paragraph(said);
        }
        evidence(page, f);
        page.paragraph(&f.advice);
        if let Some(remedy) = &f.remedy {
            page.code(remedy);
        }
        check(page, f);
        page.raw("</article>\n");
    }
    if found.len() > FINDINGS {
        page.note(format!("{FINDINGS} of {} findings shown.", found.len()));
    }
    match &report.found {
        None => {
            page.empty("The rules need single allocations, or samples of the card, and this recording has neither.");
        }
        Some(rules) => {
            let is_only = report.recording.devices.len() == 1;
            for note in rules.notes(&report.recording).iter().filter(|_| is_only) {
                page.empty(note);
            }
            if found.is_empty() && !is_only {
                page.empty("No rule found a problem on this device.");
            }
        }
    }
}

fn evidence(page: &mut Page<'_>, f: &Finding) {
    if !f.evidence.is_empty() {
        page.raw("<table class=evidence>");
        for e in f.evidence.iter().take(ROWS) {
            page.raw("<tr>").cell(&e.label).figure(&e.value).raw("</tr>");
        }
        page.raw("</table>\n");
    }
}

fn check(page: &mut Page<'_>, f: &Finding) {
    page.raw("<p class=note>Check: ").text(&f.verify);
    if let Some(event) = f.place.event {
        page.text(format!(" (event {})", count(u64::from(event))));
    }
    page.raw("</p>");
}

/// A failed request: the finding about it, what to do, and the blocks in the way.
fn failed(page: &mut Page<'_>, o: &OomEntry, finding: Option<&Finding>) {
    page.raw("<article class=\"finding red\"><h4>").text(finding.map_or("Out of memory", |f| f.title.as_str())).raw("<span>");
    page.text(o.size()).raw("</span></h4>\n").paragraph(&o.sentence);
    if let Some(f) = finding {
        evidence(page, f);
    }
    if let Some(at) = &o.requested_at {
        page.raw("<p>Requested at <code>").text(at).raw("</code>.</p>\n");
    }
    for said in [Some(&o.way_out_sentence), o.way_out_needs.as_ref(), o.alone_sentence.as_ref()].into_iter().flatten() {
        if !said.is_empty() && !o.is_simply_full {
            page.paragraph(said);
        }
    }
    if !o.remedies.is_empty() {
        page.list(o.remedies.iter().take(ROWS).map(|r| (r.sentence.as_str(), r.setting.as_deref())));
    }
    if !o.blockers.is_empty() {
        page.raw("<div class=wide><table><tr><th class=n>live block<th class=n>wastes beside it<th>role<th>made at</tr>\n");
        for b in o.blockers.iter().take(BLOCKERS) {
            page.raw("<tr>").figure(Bytes(b.block.bytes).to_string()).figure(Bytes(b.strands_bytes).to_string());
            page.cell(role_text(b.block.role)).cell(&b.block.place).raw("</tr>\n");
        }
        page.raw("</table></div>\n");
        page.note(format!(
            "{} of {} live blocks between the holes.",
            o.blockers.len().min(BLOCKERS),
            count(o.blockers_total as u64)
        ));
    }
    if let Some(f) = finding {
        check(page, f);
    }
    page.raw("</article>\n");
}

fn plan(page: &mut Page<'_>, part: &Part) {
    page.title("What would make it smaller");
    let plan = match &part.plan {
        Ok(plan) => plan,
        Err(why) => {
            page.empty(why);
            return;
        }
    };
    for said in plan.sentences() {
        page.paragraph(super::sentence(&said));
    }
    let helps = plan.changes();
    if helps.is_empty() {
        page.empty("None of the changes that vramscope knows lowers this peak.");
        return;
    }
    page.raw(
        "<div class=wide><table>\n<tr><th>change<th class=n>allocated peak falls by<th class=n>reserved after<th>costs</tr>\n",
    );
    for c in helps.iter().take(ROWS) {
        let about = if c.trust == Trust::Estimate { "about " } else { "" };
        page.raw("<tr><td class=name>").text(&c.title).raw("</td>").figure(Bytes(c.saves_bytes.unsigned_abs()).to_string());
        page.figure(format!("{about}{}", Bytes(c.peak_reserved_bytes))).cell(&c.cost).raw("</tr>\n");
    }
    page.raw("</table></div>\n");
    if let Some(best) = helps.first() {
        page.raw("<p class=note>").text(format!("For \"{}\":", best.title)).raw("</p>\n").code(&best.code.pytorch);
    }
}

fn others(page: &mut Page<'_>, report: &Report) {
    let others: Vec<_> = report.others().filter(|d| d.events > 0 || d.samples > 0 || d.segments > 0).collect();
    if others.is_empty() {
        return;
    }
    page.raw("<h2>Other devices of this recording</h2>\n<div class=wide><table>\n<tr><th>device<th class=n>reserved, peak<th class=n>active, peak<th class=n>events</tr>\n");
    for d in others.iter().take(MORE_ROWS) {
        page.raw("<tr>").cell(&d.label).figure(Bytes(d.reserved_bytes.peak).to_string());
        page.figure(Bytes(d.active_bytes.peak).to_string()).figure(count(d.events)).raw("</tr>\n");
    }
    page.raw("</table></div>\n");
    page.note("--device N writes a report of one of them.");
}

fn environment(page: &mut Page<'_>, report: &Report) {
    page.raw("<h2>Environment</h2>\n<div class=wide><table class=env>\n");
    for (label, value) in report.environment(page.hidden).iter().take(4 * MORE_ROWS) {
        page.raw("<tr>").cell(label).cell(value).raw("</tr>\n");
    }
    page.raw("</table></div>\n").title("What this recording lacks");
    let missing = report.missing();
    if missing.is_empty() {
        page.empty("Nothing that this report needs.");
        return;
    }
    page.list(missing.iter().take(MORE_ROWS).map(|(said, line)| (said.as_str(), line.as_deref())));
}

/// The report on a log with out-of-memory messages.
pub(super) fn of_log(hidden: &Hidden, path: &Path, (main, all): &(Explanation, Vec<Explanation>)) -> String {
    let mut page = Page::new(hidden);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    page.raw("<header><b>vramscope report</b> &middot; ")
        .text(&name)
        .raw(" &middot; ")
        .text(format!("message of {}, line {}", main.dialect, main.line));
    page.raw("</header>\n<main>\n<section class=lead>\n<p class=verdict>Out of memory</p>\n<h1>");
    page.text(super::sentence(&format!("{}{}", crate::cli::explain::named(main.cause), main.sentence))).raw("</h1>\n");
    if let Some(doubt) = main.doubt {
        page.paragraph(format!("Not certain: {doubt}."));
    }
    let label = |name: &str| name.trim_end_matches("_bytes").replace('_', " ");
    page.facts(main.figures.keys().map(|name| (label(name), main.printed(name).unwrap_or_default(), false)));
    page.raw("</section>\n");
    let mut list = |title: &'static str, items: &mut dyn Iterator<Item = &str>| {
        let items: Vec<&str> = items.take(MORE_ROWS).collect();
        if !items.is_empty() {
            page.title(title).list(items.iter().map(|item| (*item, None)));
        }
    };
    list("Figures that contradict each other", &mut main.contradictions.iter().map(String::as_str));
    list("What to do", &mut main.remedies.iter().map(|r| r.sentence.as_str()));
    list("Also known", &mut main.known.iter().map(String::as_str));
    list("Not in a message", &mut main.not_known.iter().map(String::as_str));
    if !main.record.is_empty() {
        page.title("To see the rest").paragraph("Record the next run, and make a report of that file:");
        page.code(main.record.join("\n"));
    }
    if all.len() > 1 {
        page.titled("All messages in the text", count(all.len() as u64)).raw("<ul>\n");
        for m in all.iter().take(MORE_ROWS) {
            let rank = m.rank.map_or(String::new(), |r| format!(", rank {r}"));
            page.raw("<li>").text(format!("line {}{rank}: {}", m.line, m.sentence)).raw("</li>\n");
        }
        page.raw("</ul>\n");
    }
    page.raw("</main>\n<footer>This page loads nothing and sends nothing.</footer>\n");
    page.finish(&format!("{name}: out of memory"))
}
