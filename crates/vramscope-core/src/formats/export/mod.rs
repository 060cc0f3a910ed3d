//! Exports: recordings as tables (CSV, Parquet, JSON lines), for other viewers (speedscope, Perfetto), and as PyTorch snapshots.
//!
//! A table has named columns and returns ranges of rows ([`ExportTable`]). It is read in batches, so that a recording of millions
//! of events needs bounded memory. Tables of events, blocks and stacks are defined here; tables of derived rows (lifetimes,
//! curves) are in `diagnose::export`.

pub mod csv;
mod error;
mod joined;
pub mod jsonl;
pub mod new_file;
mod of_file;
pub mod parquet;
pub mod perfetto;
pub mod redact;
mod rows;
pub mod snapshot;
pub mod speedscope;
mod tables;
pub mod unnamed;

use std::ops::Range;

pub use error::WriteError;
pub use joined::Joined;
pub use of_file::OfFile;
pub use rows::Rows;
pub use tables::{Names, blocks, categories, events, samples, stacks};

/// Type of the values of a column. Every column may have missing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Bytes, addresses, counts, ids.
    Unsigned,
    /// Times and ordinals, which can be negative.
    Signed,
    /// UTF-8 text.
    Text,
}

/// A column's name and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Lower case, words joined by underscores; ends with the unit if there is one.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ColumnKind,
}

impl Field {
    /// A column of bytes, addresses, counts or ids.
    pub const fn unsigned(name: &'static str) -> Self {
        Field { name, kind: ColumnKind::Unsigned }
    }

    /// A column of times or ordinals.
    pub const fn signed(name: &'static str) -> Self {
        Field { name, kind: ColumnKind::Signed }
    }

    /// A column of text.
    pub const fn text(name: &'static str) -> Self {
        Field { name, kind: ColumnKind::Text }
    }
}

/// A range of rows of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column<'a> {
    /// Values of [`ColumnKind::Unsigned`]; `None` where the row has no value.
    Unsigned(Vec<Option<u64>>),
    /// Values of [`ColumnKind::Signed`]; `None` where the row has no value.
    Signed(Vec<Option<i64>>),
    /// Values of [`ColumnKind::Text`]; `None` where the row has no value.
    Text(Vec<Option<&'a str>>),
}

/// A table that is written in batches of rows.
pub trait ExportTable {
    /// The table's name: `events`, `lifetimes`, `blocks`, `curves`, `samples`, `categories`, `stacks`.
    fn name(&self) -> &'static str;
    /// Its columns, in the order of [`batch`](Self::batch).
    fn fields(&self) -> &[Field];
    /// Its number of rows.
    fn len(&self) -> usize;
    /// True when the table has no rows; it still has columns.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The rows `rows` (within [`len`](Self::len)) of every column, in the order of [`fields`](Self::fields).
    fn batch(&self, rows: Range<usize>) -> Vec<Column<'_>>;
}

#[cfg(test)]
mod tests;
