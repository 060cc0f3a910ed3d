//! Comma-separated values: a header, then a row a line; text with commas, quotes or line ends is quoted. A gap is empty.
//!
//! A spreadsheet runs a cell that begins like a formula, and names come from files: such text gets an apostrophe before it. A terminal
//! obeys escapes and marks of direction: they are written as `\u001b`.

use std::io::{self, Write};

use super::{Column, ExportTable};

/// Rows asked for at once.
const BATCH: usize = 1 << 16;
/// What text begins with that a spreadsheet takes for a formula, or for white space before one.
const FORMULA: [char; 7] = ['=', '+', '-', '@', '\t', '\r', '\n'];

/// Writes a table.
///
/// # Errors
/// What the writer says.
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
            let kept = if text.starts_with(FORMULA) { "'" } else { "" };
            if text.contains(['"', ',', '\n', '\r']) {
                let _ = write!(line, "\"{kept}{}\"", text.replace('"', "\"\""));
            } else {
                let _ = write!(line, "{kept}{text}");
            }
        }
    }
}
