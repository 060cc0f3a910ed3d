//! The table of dialects: how each program words that memory ran out. A new one is a row with its example; `engine` reads them all.

use super::row::Row;

mod devices;
mod host;
mod programs;
mod pytorch;
mod xla;

pub(super) use host::KILLED;
pub(super) use pytorch::NATIVE;

/// Of two rows that start with the same words the longer is tried first, then the earlier.
pub(super) const ROWS: [&[Row]; 5] = [pytorch::ROWS, xla::ROWS, programs::ROWS, devices::ROWS, host::ROWS];
