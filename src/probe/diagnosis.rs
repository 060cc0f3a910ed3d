//! [`diagnosis`]: what Findings says of a recording, in one word.

use crate::analysis::categories::Rules;
use crate::analysis::findings::diagnose;
use crate::analysis::{DeviceTables, StackNames};
use crate::model::{Cancelled, Progress, Recording};

/// The first finding on the busiest device: the verdict of an out-of-memory error, else the name of the rule, `healthy` when
/// nothing is wrong. O(events).
///
/// # Errors
/// [`Cancelled`] when asked to stop.
pub fn diagnosis(recording: &Recording, progress: &Progress) -> Result<String, Cancelled> {
    let Some(device) = recording.busiest_device().map(|i| &recording.devices[i]) else { return Ok("healthy".to_owned()) };
    let tables = DeviceTables::build(device, progress)?;
    let found = diagnose(recording, device, &tables, &StackNames::of(&recording.stacks), &Rules::default(), progress)?;
    Ok(match (found.findings.first(), found.ooms.first()) {
        (Some(f), Some(oom)) if f.rule == "out_of_memory" => oom.verdict.name().to_owned(),
        (Some(f), _) => f.rule.to_owned(),
        (None, _) => "healthy".to_owned(),
    })
}
