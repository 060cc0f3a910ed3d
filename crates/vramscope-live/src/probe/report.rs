//! [`Report`]: a run in figures.

use serde::Serialize;

use super::diagnosis::diagnosis;
use super::message::{End, Ending};
use super::record::Recorder;
use vramscope_core::formats::{self, export::snapshot};
use vramscope_core::model::{Progress, Recording};

/// What a run showed, under the names of the command-line contract. Bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario, or `replay`.
    pub scenario: String,
    /// The card's name.
    pub card: String,
    /// True on simulated memory.
    pub simulated: bool,
    /// The settings.
    pub conf: String,
    /// The limit.
    pub limit_bytes: Option<u64>,
    /// The parameters in words.
    pub parameters: String,
    /// What Findings says of the recording, by the name of the rule or verdict.
    pub diagnosis: String,
    /// The same as the title that the window shows; `None` when nothing is wrong.
    pub finding: Option<String>,
    /// Whether that is the scenario's name; always for a replay.
    pub as_expected: bool,
    /// Events recorded.
    pub events: u64,
    /// The run's figures.
    #[serde(flatten)]
    pub end: End,
}

impl Report {
    /// Closes a recorder and diagnoses its recording.
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
        // A scenario is called by what its file shows to whoever opens it. A replay may be long, and promises no name.
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

/// A recording as it is after it was written as a snapshot and read again. O(events).
fn read_back(recording: &Recording) -> Result<Recording, String> {
    let parts: Vec<_> = (0..recording.devices.len()).filter_map(|i| snapshot::DevicePart::whole(recording, i)).collect();
    let mut bytes = Vec::new();
    let failed = |e: &dyn std::fmt::Display| format!("the run's recording cannot be written and read again: {e}");
    snapshot::write(recording, &parts, false, &mut bytes).map_err(|e| failed(&e))?;
    formats::read(&bytes, "probe", &Progress::new()).map_err(|e| failed(&e))
}
