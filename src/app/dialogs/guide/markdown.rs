//! Draws the manual's Markdown: headings, paragraphs, lists, tables and code. Supports only what the manual uses and loads
//! nothing.

use egui::Ui;

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{CodeWell, label};

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Heading(usize, String),
    Paragraph(String),
    Item(String),
    Code(&'a str, String),
    Table(Vec<String>, Vec<Vec<String>>),
}

/// Splits a page into parts. O(text).
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut lines = text.lines().peekable();
    let mut is_open = false;
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let was_open = std::mem::replace(&mut is_open, false);
        if let Some(kind) = trimmed.strip_prefix("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|l| l.trim() != "```").collect();
            parts.push(Part::Code(kind, code.join("\n")));
        } else if trimmed.is_empty() || trimmed.starts_with("![") {
        } else if let Some(heading) = trimmed.strip_prefix('#') {
            let level = 1 + heading.chars().take_while(|c| *c == '#').count();
            parts.push(Part::Heading(level, plain(heading.trim_start_matches('#').trim()).replace('`', "")));
        } else if trimmed.starts_with('|') {
            let mut rows = vec![cells(trimmed)];
            while let Some(row) = lines.next_if(|l| l.trim_start().starts_with('|')) {
                rows.push(cells(row.trim()));
            }
            let header = rows.remove(0);
            rows.retain(|row| !row.iter().all(|c| c.chars().all(|c| matches!(c, '-' | ':'))));
            parts.push(Part::Table(header, rows));
        } else if let Some(item) = trimmed.strip_prefix("- ").or_else(|| numbered(trimmed)) {
            parts.push(Part::Item(item.to_owned()));
            is_open = true;
        } else {
            is_open = true;
            match parts.last_mut().filter(|_| was_open) {
                Some(Part::Paragraph(text) | Part::Item(text)) => {
                    text.push(' ');
                    text.push_str(trimmed);
                }
                _ => parts.push(Part::Paragraph(trimmed.to_owned())),
            }
        }
    }
    for part in &mut parts {
        if let Part::Paragraph(text) | Part::Item(text) = part {
            *text = plain(text);
        }
    }
    parts
}

/// The text after a list number: `1. text`.
fn numbered(line: &str) -> Option<&str> {
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// The cells of a row. `\|` does not end a cell.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{0}");
    row.split('|').map(|c| plain(&c.trim().replace('\u{0}', "|"))).collect()
}

/// The text without markup for links and emphasis. Code keeps its backticks and is not changed.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 1 {
            out.push('`');
            out.push_str(part);
            out.push('`');
            continue;
        }
        out.push_str(&part.replace("**", "").replace('*', ""));
    }
    // Links; their text may contain code: [text](target).
    while let Some(middle) = out.find("](") {
        let (Some(start), Some(end)) = (out[..middle].rfind('['), out[middle..].find(')')) else { break };
        let text = out[start + 1..middle].to_owned();
        out.replace_range(start..middle + end + 1, &text);
    }
    out
}

pub(super) fn draw(ui: &mut Ui, t: &Tokens, text: &str) {
    for (i, part) in parts(text).into_iter().enumerate() {
        let above = match part {
            _ if i == 0 => 0.0,
            Part::Heading(..) => 20.0,
            Part::Item(_) => 4.0,
            _ => 10.0,
        };
        ui.add_space(above);
        match part {
            Part::Heading(level, text) => {
                let kind = if level == 1 { Type::Display } else { Type::LeadStrong };
                label::paragraph(ui, &text, kind, t.text1);
            }
            Part::Paragraph(text) => {
                label::rich_paragraph(ui, &text, Type::Body, t.text2, t.text1);
            }
            Part::Item(text) => indented(ui, |ui| {
                label::rich_paragraph(ui, &format!("• {text}"), Type::Body, t.text2, t.text1);
            }),
            Part::Code(kind, code) => {
                let well = CodeWell::new(&code).copy(true);
                if kind == "python" { well.python() } else { well }.show(ui);
            }
            Part::Table(header, rows) => table(ui, t, &header, &rows),
        }
    }
}

/// Draws each row as a few lines named by column, because columns of prose side by side would be too narrow.
fn table(ui: &mut Ui, t: &Tokens, header: &[String], rows: &[Vec<String>]) {
    for (i, row) in rows.iter().enumerate() {
        if i > 0 {
            ui.add_space(8.0);
        }
        let mut cells = header.iter().zip(row);
        if let Some((_, first)) = cells.next() {
            label::rich_paragraph(ui, first, Type::Strong, t.text1, t.text1);
        }
        let is_pair = header.len() == 2;
        for (name, cell) in cells.filter(|(_, cell)| !cell.is_empty()) {
            let text = if is_pair || name.is_empty() { cell.clone() } else { format!("{name}: {cell}") };
            indented(ui, |ui| {
                label::rich_paragraph(ui, &text, Type::Body, t.text2, t.text1);
            });
        }
    }
}

fn indented(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    ui.horizontal(|ui| {
        ui.add_space(12.0);
        ui.vertical(contents);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_split_into_its_parts() {
        let page = "# A `b`\n\nOne [*two*](x.md#y)\nthree `a*b|[c](d)`.\n\n- first\n  goes on\n2. second\n\n| a | b |\n|---|--:|\n| x \\| y | **z** |\n\n\
                    ```sh\nls *\n```\n![alt](p.png)\n";
        assert_eq!(
            parts(page),
            [
                Part::Heading(1, "A b".to_owned()),
                Part::Paragraph("One two three `a*b|c`.".to_owned()),
                Part::Item("first goes on".to_owned()),
                Part::Item("second".to_owned()),
                Part::Table(vec!["a".to_owned(), "b".to_owned()], vec![vec!["x | y".to_owned(), "z".to_owned()]]),
                Part::Code("sh", "ls *".to_owned()),
            ]
        );
    }

    #[test]
    fn every_chapter_is_text_without_marks() {
        for (name, text) in super::super::CHAPTERS {
            let parts = parts(text);
            assert!(parts.len() > 10 && matches!(parts[0], Part::Heading(1, _)), "{name}");
            for part in parts {
                if let Part::Paragraph(text) | Part::Item(text) | Part::Heading(_, text) = part {
                    let prose: String = text.split('`').step_by(2).collect();
                    assert!(!prose.contains("](") && !prose.contains("**"), "{name}: {text}");
                    // Pages are named as in the list beside them, not by file name.
                    let is_file = |word: &str| word.strip_suffix(".md").is_some_and(|stem| stem.len() > 1 && stem != "AGENTS");
                    let is_named = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').any(is_file);
                    assert!(!is_named, "{name}: {text}");
                }
            }
        }
    }
}
