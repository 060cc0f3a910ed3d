//! Pages that a tab shows instead of views: the welcome page, the probe, the ranks of a job, the choice among several snapshots,
//! and files that cannot be opened.

pub mod failed;
pub mod probe;
pub mod ranks;
pub mod snapshots;
pub mod welcome;
