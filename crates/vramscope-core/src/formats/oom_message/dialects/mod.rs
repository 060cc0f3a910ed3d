//! The table of dialects: each program's wording for "out of memory". A new one is a row with its example; `engine` reads all
//! rows.

use super::row::Row;

mod devices;
mod host;
mod programs;
mod pytorch;
mod xla;

pub(super) use host::{KILLED, RAY_LOST};
pub(super) use pytorch::NATIVE;

/// Of two rows whose anchors match at the same place, the longer anchor is tried first, then the earlier row.
pub(super) const ROWS: [&[Row]; 5] = [pytorch::ROWS, xla::ROWS, programs::ROWS, devices::ROWS, host::ROWS];
