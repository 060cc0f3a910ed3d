//! Opens files off the UI thread: reads them, then builds the tables of the device that is shown first. Each stage can be
//! cancelled.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::loading::Look;
use super::logs::messages_of;
use crate::app::data::device::DeviceData;
use crate::app::data::device::prepare;
use crate::app::jobs::{Jobs, answered};
use crate::app::state::{Excerpt, PlannedRun};
use vramscope_core::compare::join::{SnapshotProcess, lay_under};
use vramscope_core::diagnose::source_limits::why_no_memory;
use vramscope_core::formats::folder::is_pattern;
use vramscope_core::formats::{self, FormatError, PageSnapshot};
use vramscope_core::inference::Question;
use vramscope_core::model::{Added, PreviewPoint, Progress, Recording, Stage};
use vramscope_core::plan::Change;

pub type Loaded = Result<(Arc<Recording>, Arc<DeviceData>), String>;

/// What a path is when it holds no recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// A folder, or a pattern that no shell expanded.
    Folder,
    Gone,
    /// A saved page with several snapshots.
    Several(Vec<PageSnapshot>),
}

pub struct Loading {
    /// Progress; cancelled when this is dropped.
    pub progress: Arc<Progress>,
    /// Curve points of the part that was read so far, for the loading page.
    pub preview: Vec<PreviewPoint>,
    /// The visible range and the cursor on the loading page.
    pub look: Look,
    /// The first stage; later stages follow in order.
    first: Stage,
    since: Instant,
    /// The text around an out-of-memory error, when the file is such a text and no recording.
    message: Arc<OnceLock<Excerpt>>,
    instead: Arc<OnceLock<Instead>>,
    answer: Receiver<Loaded>,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.progress.cancel();
    }
}

impl Loading {
    /// Reads a file and prepares its busiest device.
    pub fn file(jobs: &Jobs, path: PathBuf) -> Self {
        let message = Arc::new(OnceLock::new());
        let found = Arc::clone(&message);
        let instead = Arc::new(OnceLock::new());
        let is = Arc::clone(&instead);
        let mut loading = Self::start(jobs, "load", Stage::Reading, move |progress| {
            if path.is_dir() || is_pattern(&path) {
                let _ = is.set(Instead::Folder);
                return Err(format!("{} is no file", path.display()));
            }
            let recording = formats::open(&path, progress).map_err(|e| {
                if let (FormatError::Elsewhere { .. }, Some(log)) = (&e, messages_of(&path)) {
                    // This closure runs once, so the cell is still empty.
                    let _ = found.set(log);
                }
                match &e {
                    FormatError::Several { snapshots, .. } => _ = is.set(Instead::Several(snapshots.clone())),
                    _ if !formats::chosen(&path).0.exists() => _ = is.set(Instead::Gone),
                    _ => {}
                }
                e.to_string()
            })?;
            first_device(recording, &path.display().to_string(), progress)
        });
        loading.message = message;
        loading.instead = instead;
        loading
    }

    /// What the path is, when it holds no recording.
    pub fn instead(&self) -> Option<&Instead> {
        self.instead.get()
    }

    /// The out-of-memory error in a file that is not a recording.
    pub fn message(&self) -> Option<&Excerpt> {
        self.message.get()
    }

    /// Reads a snapshot and adds the samples of a watch on the same clock.
    pub fn snapshot(jobs: &Jobs, path: PathBuf, under: Option<(Arc<Recording>, SnapshotProcess)>) -> Self {
        Self::start(jobs, "load", Stage::Reading, move |progress| {
            let mut recording = formats::open(&path, progress).map_err(|e| e.to_string())?;
            if let Some((watch, whose)) = under
                && let Ok(laid) = lay_under(&mut recording, &watch, &whose)
            {
                let name = watch.source.name.clone();
                recording.added.push(Added { sentence: laid.sentence(&name), name });
            }
            first_device(recording, &path.display().to_string(), progress)
        })
    }

    /// Reads a recording bundled with the program.
    pub fn bytes(jobs: &Jobs, name: String, bytes: &'static [u8]) -> Self {
        Self::start(jobs, "load", Stage::Reading, move |progress| {
            let recording = formats::read(bytes, &name, progress).map_err(|e| e.to_string())?;
            first_device(recording, &name, progress)
        })
    }

    /// Prepares another device of a loaded recording.
    pub fn device(jobs: &Jobs, recording: Arc<Recording>, index: usize) -> Self {
        Self::start(jobs, "device", Stage::Segments, move |progress| {
            let data = prepare(&recording, index, progress)?;
            Ok((recording, data))
        })
    }

    /// Simulates the requests of a device under other settings, as a recording.
    pub fn simulation(jobs: &Jobs, data: Arc<DeviceData>, question: Question) -> Self {
        Self::start(jobs, "simulation", Stage::Replaying, move |progress| {
            let whatif = data.what_if(progress).map_err(|e| e.to_string())?;
            let simulated = whatif.simulate(&data.recording, &question, progress).map_err(|e| e.to_string())?;
            first_device(simulated, "the simulation", progress)
        })
    }

    pub fn planned(jobs: &Jobs, run: PlannedRun) -> Self {
        Self::start(jobs, "simulation", Stage::Replaying, move |progress| {
            let changes = if run.changes.is_empty() { Vec::new() } else { Change::parse(&run.changes)? };
            let planned = run.plan.recording(&run.size, &run.setting, &changes);
            first_device(planned.ok_or("this run cannot be planned")?, &run.title, progress)
        })
    }

    fn start(jobs: &Jobs, name: &str, first: Stage, work: impl FnOnce(&Progress) -> Loaded + Send + 'static) -> Self {
        let progress = Arc::new(Progress::new());
        if first != Stage::Reading {
            progress.begin(first, 0);
        }
        let shared = Arc::clone(&progress);
        let answer = jobs.spawn(name, move || work(&shared));
        Loading {
            message: Arc::default(),
            instead: Arc::default(),
            progress,
            preview: Vec::new(),
            look: Look::default(),
            first,
            since: Instant::now(),
            answer,
        }
    }

    /// The stages of this load, in order.
    pub fn stages(&self) -> impl Iterator<Item = Stage> {
        let first = self.first;
        Stage::ALL.iter().copied().filter(move |&stage| match stage {
            Stage::Reading | Stage::Replaying => stage == first,
            Stage::Ordering => first == Stage::Reading,
            _ => true,
        })
    }

    /// True for the first moments, when nothing is shown yet: a page that vanishes at once would flicker.
    pub fn is_young(&self) -> bool {
        self.since.elapsed() < Duration::from_millis(200)
    }

    /// The current stage in a few words: `lifetimes, 43 %`.
    pub fn now(&self) -> String {
        let (stage, fraction) = self.progress.stage();
        match fraction {
            Some(fraction) => format!("{}, {:.0} %", stage.text(), fraction * 100.0),
            None => stage.text().to_owned(),
        }
    }

    pub fn poll(&mut self) -> Option<Loaded> {
        let new = self.progress.preview_since(self.preview.len());
        self.preview.extend(new);
        answered(&self.answer, || Err("the loading thread ended without an answer; please report this file".to_owned()))
    }
}

fn first_device(recording: Recording, name: &str, progress: &Progress) -> Loaded {
    let recording = Arc::new(recording);
    let index = recording.busiest_device().ok_or_else(|| format!("{name} {}", why_no_memory(&recording)))?;
    let data = prepare(&recording, index, progress)?;
    Ok((recording, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_without_memory_asks_for_the_option_that_records_it() {
        const TRACE: &[u8] =
            br#"{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}"#;
        let mut loading = Loading::bytes(&Jobs::synchronous(), "run.pt.trace.json".to_owned(), TRACE);
        let sentence = match loading.poll() {
            Some(Err(sentence)) => sentence,
            other => panic!("{}", other.is_some()),
        };
        assert!(sentence.starts_with("run.pt.trace.json ") && sentence.contains("profile_memory=True"), "{sentence}");
    }
}
