//! User ranges over time: optimizer steps, `record_function`, profiler steps.

use super::StrId;

/// A named range, or an instant when `end_us` is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Index into the recording's string table.
    pub name: StrId,
    /// Start, microseconds since the epoch.
    pub start_us: i64,
    /// End, microseconds since the epoch; `None` when the end was not recorded.
    pub end_us: Option<i64>,
    /// Nesting depth, 0 outermost.
    pub depth: u16,
}

/// Ranges by start time; nested ones follow the range that holds them.
pub type Annotations = Vec<Annotation>;
