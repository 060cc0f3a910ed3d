//! [`diagnosis`]: what Findings says of a recording first.

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::diagnose;
use vramscope_core::model::{Cancelled, Progress, Recording};
use vramscope_core::tables::{DeviceTables, StackNames};

/// What Findings says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The verdict of an out-of-memory error, else the name of the rule; `healthy` when nothing is wrong.
    pub name: String,
    /// The finding's title, as the window shows it; `None` when nothing is wrong.
    pub title: Option<String>,
}

/// The first finding on the busiest device. O(events).
///
/// # Errors
/// [`Cancelled`] when asked to stop.
pub fn diagnosis(recording: &Recording, progress: &Progress) -> Result<Diagnosis, Cancelled> {
    let healthy = || Diagnosis { name: "healthy".to_owned(), title: None };
    let Some(device) = recording.busiest_device().map(|i| &recording.devices[i]) else { return Ok(healthy()) };
    let tables = DeviceTables::build(device, progress)?;
    let found = diagnose(recording, device, &tables, &StackNames::of(&recording.stacks), &Rules::default(), progress)?;
    let Some(first) = found.findings.first() else { return Ok(healthy()) };
    let verdict = found.ooms.last().filter(|_| first.rule == "out_of_memory").map(|oom| oom.verdict.name());
    Ok(Diagnosis { name: verdict.unwrap_or(first.rule).to_owned(), title: Some(first.title.clone()) })
}
