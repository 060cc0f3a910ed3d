//! What a tab shows in place of a recording's views: the welcome page, the probe, the ranks of a job, which snapshot of a page to open, what could not
//! be opened.

pub mod failed;
pub mod probe;
pub mod ranks;
pub mod snapshots;
pub mod welcome;
