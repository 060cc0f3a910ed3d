//! Adds the columns that identify the recording to every exported table, so that tables of many files can form one data set.

use std::ops::Range;

use super::{Column, ExportTable, Field};

/// A table with its source file, and the training step in the file's name.
pub struct OfFile<'a> {
    table: &'a dyn ExportTable,
    file: &'a str,
    step: Option<u64>,
    fields: Vec<Field>,
}

impl<'a> OfFile<'a> {
    /// `file` identifies the recording in the data set: its path below the exported folder.
    pub fn new(table: &'a dyn ExportTable, file: &'a str, step: Option<u64>) -> Self {
        // Named `recording`, because frames already have a column `file`.
        let fields = [table.fields(), &[Field::text("recording"), Field::unsigned("step")]].concat();
        OfFile { table, file, step, fields }
    }
}

impl ExportTable for OfFile<'_> {
    fn name(&self) -> &'static str {
        self.table.name()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let many = rows.len();
        let mut columns = self.table.batch(rows);
        columns.push(Column::Text(vec![Some(self.file); many]));
        columns.push(Column::Unsigned(vec![self.step; many]));
        columns
    }
}
