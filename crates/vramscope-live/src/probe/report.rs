//! [`Report`]: the figures of a run.

use serde::Serialize;

use super::diagnosis::diagnosis;
use super::message::{End, Ending};
use super::record::Recorder;
use vramscope_core::formats::{self, export::snapshot};
use vramscope_core::model::{Progress, Recording};

/// The result of a run, with the field names of the command line's JSON. In bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario, or `replay`.
    pub scenario: String,
    /// Product name of the card; `simulated card, …` for simulated memory.
    pub card: String,
    /// True for simulated memory.
    pub simulated: bool,
    /// The allocator's settings string; empty for PyTorch's defaults.
    pub conf: String,
    /// Most bytes that the allocator could reserve; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// The parameters as text.
    pub parameters: String,
    /// The first finding: the name of the rule or verdict.
    pub diagnosis: String,
    /// Its title as the window shows it; `None` when nothing was found.
    pub finding: Option<String>,
    /// True when the finding has the scenario's name; always true for a replay.
    pub as_expected: bool,
    /// Number of events in the recording, those of host memory included.
    pub events: u64,
    /// Totals of the run, beside the other fields in JSON.
    #[serde(flatten)]
    pub end: End,
}

impl Report {
    /// Finishes a recorder and diagnoses its recording.
    ///
    /// # Errors
    /// One sentence when the run failed or was killed.
    pub fn of(recorder: Recorder) -> Result<(Report, Recording), String> {
        let Some(end) = recorder.end().cloned() else {
            return Err("the run was killed before it ended".to_owned());
        };
        if let Ending::Failed(sentence) = &end.ending {
            return Err(sentence.clone());
        }
        let hello = recorder.hello().clone();
        let recording = recorder.finish();
        let is_replay = hello.scenario == "replay";
        // A scenario is diagnosed from its file, as a user opens it. A replay may be long and expects no name: it is not written.
        let read = if is_replay { None } else { Some(read_back(&recording)?) };
        let found = diagnosis(read.as_ref().unwrap_or(&recording), &Progress::new()).map_err(|e| e.to_string())?;
        let report = Report {
            as_expected: is_replay || found.name == hello.scenario,
            scenario: hello.scenario,
            card: hello.card.name,
            simulated: hello.card.is_simulated,
            conf: hello.conf,
            limit_bytes: hello.limit,
            parameters: hello.parameters,
            diagnosis: found.name,
            finding: found.title,
            events: recording.devices.iter().map(|d| d.events.len() as u64).sum(),
            end,
        };
        Ok((report, recording))
    }
}

/// Writes a recording as a snapshot and reads it again. O(events).
fn read_back(recording: &Recording) -> Result<Recording, String> {
    let parts: Vec<_> = (0..recording.devices.len()).filter_map(|i| snapshot::DevicePart::whole(recording, i)).collect();
    let mut bytes = Vec::new();
    let failed = |e: &dyn std::fmt::Display| format!("the run's recording cannot be written and read again: {e}");
    snapshot::write(recording, &parts, false, &mut bytes).map_err(|e| failed(&e))?;
    formats::read(&bytes, "probe", &Progress::new()).map_err(|e| failed(&e))
}
