//! [`Rows`]: a table defined by its columns, each a name and a function of the row.

use std::ops::Range;

use super::{Column, ExportTable, Field};

/// A table of rows `R`. Rows are fetched in batches, once for all columns.
pub struct Rows<'a, R> {
    name: &'static str,
    len: usize,
    fetch: Box<dyn Fn(Range<usize>) -> Vec<R> + 'a>,
    fields: Vec<Field>,
    cells: Vec<Cells<'a, R>>,
}

/// The value of a row in a column; `None` is a missing value.
enum Cells<'a, R> {
    Unsigned(Box<dyn Fn(&R) -> Option<u64> + 'a>),
    Signed(Box<dyn Fn(&R) -> Option<i64> + 'a>),
    Text(Box<dyn Fn(&R) -> Option<&'a str> + 'a>),
}

impl<'a, R> Rows<'a, R> {
    /// A table of `len` rows and no columns.
    pub fn new(name: &'static str, len: usize, fetch: impl Fn(Range<usize>) -> Vec<R> + 'a) -> Self {
        Rows { name, len, fetch: Box::new(fetch), fields: Vec::new(), cells: Vec::new() }
    }

    /// Adds a column of bytes, addresses, counts or ids.
    pub fn unsigned(mut self, name: &'static str, cell: impl Fn(&R) -> Option<u64> + 'a) -> Self {
        self.fields.push(Field::unsigned(name));
        self.cells.push(Cells::Unsigned(Box::new(cell)));
        self
    }

    /// Adds a column of times or ordinals.
    pub fn signed(mut self, name: &'static str, cell: impl Fn(&R) -> Option<i64> + 'a) -> Self {
        self.fields.push(Field::signed(name));
        self.cells.push(Cells::Signed(Box::new(cell)));
        self
    }

    /// Adds a column of text.
    pub fn text(mut self, name: &'static str, cell: impl Fn(&R) -> Option<&'a str> + 'a) -> Self {
        self.fields.push(Field::text(name));
        self.cells.push(Cells::Text(Box::new(cell)));
        self
    }
}

impl<'a, R> Cells<'a, R> {
    fn of(&self, rows: &[R]) -> Column<'a> {
        match self {
            Cells::Unsigned(cell) => Column::Unsigned(rows.iter().map(cell).collect()),
            Cells::Signed(cell) => Column::Signed(rows.iter().map(cell).collect()),
            Cells::Text(cell) => Column::Text(rows.iter().map(cell).collect()),
        }
    }
}

impl<R> ExportTable for Rows<'_, R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let rows = (self.fetch)(rows);
        self.cells.iter().map(|cells| cells.of(&rows)).collect()
    }
}
