//! JSON lines: one object a row. Unlike CSV it tells a number from a text and a missing value (`null`) from an empty text.

use std::io::{self, Write};

use super::{Column, ExportTable};

const BATCH: usize = 1 << 16;

/// Writes a table.
pub fn write(table: &dyn ExportTable, out: &mut dyn Write) -> io::Result<()> {
    for from in (0..table.len()).step_by(BATCH) {
        let to = (from + BATCH).min(table.len());
        let columns = table.batch(from..to);
        for row in 0..to - from {
            for (i, (field, column)) in table.fields().iter().zip(&columns).enumerate() {
                out.write_all(if i == 0 { b"{\"" } else { b",\"" })?;
                out.write_all(field.name.as_bytes())?;
                out.write_all(b"\":")?;
                match column {
                    Column::Unsigned(values) => serde_json::to_writer(&mut *out, &values.get(row).copied().flatten())?,
                    Column::Signed(values) => serde_json::to_writer(&mut *out, &values.get(row).copied().flatten())?,
                    Column::Text(values) => serde_json::to_writer(&mut *out, &values.get(row).copied().flatten())?,
                }
            }
            out.write_all(b"}\n")?;
        }
    }
    out.flush()
}
