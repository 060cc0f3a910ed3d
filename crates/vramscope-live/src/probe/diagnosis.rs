//! [`diagnosis`]: the first finding about a recording.

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::diagnose;
use vramscope_core::model::{Cancelled, Progress, Recording};
use vramscope_core::tables::{DeviceTables, StackNames};

/// The first finding about a recording: the most important one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The verdict on an out-of-memory error, or else the name of the rule; `healthy` when nothing was found.
    pub name: String,
    /// The title of the finding, as in the window; `None` when nothing was found.
    pub title: Option<String>,
}

/// The first finding on the busiest device. O(events).
pub fn diagnosis(recording: &Recording, progress: &Progress) -> Result<Diagnosis, Cancelled> {
    let healthy = || Diagnosis { name: "healthy".to_owned(), title: None };
    let Some(device) = recording.busiest_device().map(|i| &recording.devices[i]) else { return Ok(healthy()) };
    let tables = DeviceTables::build(device, progress)?;
    let found = diagnose(recording, device, &tables, &StackNames::of(&recording.stacks), &Rules::default(), progress)?;
    let Some(first) = found.findings.first() else { return Ok(healthy()) };
    let verdict = found.ooms.last().filter(|_| first.rule == "out_of_memory").map(|oom| oom.verdict.name());
    Ok(Diagnosis { name: verdict.unwrap_or(first.rule).to_owned(), title: Some(first.title.clone()) })
}
