//! Comma-separated values: a header, then rows. Text with commas, quotes or line ends is quoted. A missing value is empty.
//!
//! Spreadsheets run a cell that begins like a formula, and names come from files, so such text gets an apostrophe in front. The
//! same goes for text after a semicolon, a tab or a line end, where a spreadsheet may split cells. Terminals interpret escape
//! sequences and direction marks, so these are written as `\u001b`.

use std::io::{self, Write};

use super::{Column, ExportTable};

const BATCH: usize = 1 << 16;
/// First characters of a formula for spreadsheets, including their full-width East Asian forms, and leading white space.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\t', '\r', '\n'];
/// Characters at which a spreadsheet may split a text into cells, besides the comma, which is quoted.
const SPLITS: [char; 4] = [';', '\t', '\r', '\n'];

/// Writes a table.
pub fn write(table: &dyn ExportTable, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<&str> = table.fields().iter().map(|f| f.name).collect();
    writeln!(out, "{}", names.join(","))?;
    let mut line = String::new();
    for from in (0..table.len()).step_by(BATCH) {
        let to = (from + BATCH).min(table.len());
        let columns = table.batch(from..to);
        for row in 0..to - from {
            line.clear();
            for (i, column) in columns.iter().enumerate() {
                if i > 0 {
                    line.push(',');
                }
                push_cell(column, row, &mut line);
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
    }
    out.flush()
}

fn push_cell(column: &Column<'_>, row: usize, line: &mut String) {
    use std::fmt::Write as _;
    // Writing to a String cannot fail.
    match column {
        Column::Unsigned(values) => {
            if let Some(Some(v)) = values.get(row) {
                let _ = write!(line, "{v}");
            }
        }
        Column::Signed(values) => {
            if let Some(Some(v)) = values.get(row) {
                let _ = write!(line, "{v}");
            }
        }
        Column::Text(values) => {
            let Some(Some(text)) = values.get(row) else { return };
            let text = &crate::units::shown(text);
            let text = kept(text);
            if text.contains(['"', ',', '\n', '\r']) {
                let _ = write!(line, "\"{}\"", text.replace('"', "\"\""));
            } else {
                line.push_str(&text);
            }
        }
    }
}

/// The text with an apostrophe before each part that a spreadsheet would read as a formula.
fn kept(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    let mut begins = true;
    for c in text.chars() {
        if begins && FORMULA.contains(&c) {
            out.push('\'');
        }
        out.push(c);
        begins = SPLITS.contains(&c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn no_part_of_a_text_begins_like_a_formula() {
        assert_eq!(kept("=1+1"), "'=1+1");
        assert_eq!(kept("a-b = c; d"), "a-b = c; d");
        assert_eq!(kept("a;=cmd\t@x\n-1\r+2"), "a;'=cmd\t'@x\n'-1\r'+2");
        assert_eq!(kept("\u{ff1d}1 ;\u{ff20}"), "'\u{ff1d}1 ;'\u{ff20}");
        assert_eq!(kept("\t=1"), "'\t'=1");
    }
}
