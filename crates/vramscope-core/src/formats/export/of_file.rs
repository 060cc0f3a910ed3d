//! Which recording a row is of: columns that every exported table ends with, so that the tables of many files can lie in one data set.

use std::ops::Range;

use super::{Column, ExportTable, Field};

/// A table with the file its rows are of, and the training step that the file's name tells.
pub struct OfFile<'a> {
    table: &'a dyn ExportTable,
    file: &'a str,
    step: Option<u64>,
    fields: Vec<Field>,
}

impl<'a> OfFile<'a> {
    /// `file` tells the recording apart from every other of the data set: its path below the folder that was exported.
    #[must_use]
    pub fn new(table: &'a dyn ExportTable, file: &'a str, step: Option<u64>) -> Self {
        // Frames have a `file` of their own.
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
