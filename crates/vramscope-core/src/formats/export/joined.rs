//! [`Joined`]: the tables of several devices as one.

use std::ops::Range;

use super::{Column, ExportTable, Field};

/// Tables with the same columns, one after the other.
pub struct Joined<'a> {
    tables: Vec<Box<dyn ExportTable + 'a>>,
}

impl<'a> Joined<'a> {
    /// `None` without a table.
    pub fn new(tables: Vec<Box<dyn ExportTable + 'a>>) -> Option<Self> {
        (!tables.is_empty()).then_some(Joined { tables })
    }
}

fn append<'a>(column: &mut Column<'a>, more: Column<'a>) {
    match (column, more) {
        (Column::Unsigned(all), Column::Unsigned(more)) => all.extend(more),
        (Column::Signed(all), Column::Signed(more)) => all.extend(more),
        (Column::Text(all), Column::Text(more)) => all.extend(more),
        // The tables have the same columns.
        _ => {}
    }
}

impl ExportTable for Joined<'_> {
    fn name(&self) -> &'static str {
        self.tables.first().map_or("", |table| table.name())
    }

    fn fields(&self) -> &[Field] {
        self.tables.first().map_or(&[], |table| table.fields())
    }

    fn len(&self) -> usize {
        self.tables.iter().map(|table| table.len()).sum()
    }

    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>> {
        let mut columns: Option<Vec<Column<'_>>> = None;
        let mut begin = 0;
        for table in &self.tables {
            let end = begin + table.len();
            let part = rows.start.clamp(begin, end) - begin..rows.end.clamp(begin, end) - begin;
            begin = end;
            if part.is_empty() && columns.is_some() {
                continue;
            }
            let more = table.batch(part);
            match &mut columns {
                None => columns = Some(more),
                Some(columns) => columns.iter_mut().zip(more).for_each(|(column, more)| append(column, more)),
            }
        }
        columns.unwrap_or_default()
    }
}
