//! Saving the recording in front as a PyTorch snapshot, whatever made it: a probe's run, a simulation, a file of another format.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::document::Content;
use crate::app::window::App;
use vramscope_core::formats::export::snapshot;
use vramscope_core::model::Recording;
use vramscope_core::units::{Bytes, counted};

/// Recordings on their way into files.
#[derive(Default)]
pub(in crate::app) struct Saves {
    /// The recording whose path is being chosen: another tab may be in front by then.
    wanted: Option<Arc<Recording>>,
    answers: Vec<(PathBuf, Receiver<Result<String, String>>)>,
}

impl App {
    /// The recording that "Save" means now: the one in front, or what the probe's page in front has made.
    fn to_save(&self) -> Option<&Arc<Recording>> {
        let document = self.active_document()?;
        let recording = match &document.content {
            Content::Probe(page) => page.outcome.as_ref()?.as_ref().ok().map(|made| &made.recording),
            Content::Ready(_) => document.recording.as_ref(),
            _ => None,
        };
        recording.filter(|r| r.devices.iter().any(|d| !d.events.is_empty() || !d.segments.is_empty()))
    }

    /// True when there is something to save: a recording with a trace or segments, or a live watch, which saves its session.
    pub(in crate::app) fn can_save(&self) -> bool {
        self.to_save().is_some() || self.active_document().is_some_and(|d| d.feed.is_some())
    }

    /// Remembers what is to be saved while its path is chosen. False when there is nothing.
    pub(in crate::app) fn want_saved(&mut self) -> bool {
        self.saves.wanted = self.to_save().cloned();
        self.saves.wanted.is_some()
    }

    /// A name for the file of what is to be saved.
    pub(in crate::app) fn name_to_save(&self) -> String {
        file_name(self.saves.wanted.as_ref().map_or("recording", |r| r.source.name.as_str()))
    }

    /// Writes the recording that was to be saved.
    pub(in crate::app) fn save_recording(&mut self, path: PathBuf) {
        let Some(recording) = self.saves.wanted.take() else { return };
        let out = path.clone();
        let answer = self.jobs.spawn("save", move || save(&recording, &out));
        self.saves.answers.push((path, answer));
    }

    /// Says how saving went.
    pub(in crate::app) fn poll_saves(&mut self) {
        let mut said = Vec::new();
        self.saves.answers.retain(|(path, answer)| match answer.try_recv() {
            Ok(outcome) => {
                said.push(outcome);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => {
                said.push(Err(format!("{}: the recording was not saved; please try again.", path.display())));
                false
            }
        });
        for outcome in said {
            match outcome {
                Ok(sentence) => self.notices.say(sentence),
                Err(sentence) => self.notices.complain(sentence),
            }
        }
    }
}

fn save(recording: &Recording, path: &Path) -> Result<String, String> {
    // The dialog has asked whether an older file of this name may go.
    snapshot::save(recording, path, &[], true)?;
    let events = recording.devices.iter().map(|d| d.events.len() as u64).sum();
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    Ok(format!("Saved {}: {}, {}.", path.display(), counted(events, "event", "events"), Bytes(size)))
}

/// A name for a snapshot: what the recording is called in plain letters, without the endings of its file.
fn file_name(title: &str) -> String {
    let stem = title.split(".pickle").next().unwrap_or(title);
    let mut name = String::new();
    for c in stem.chars() {
        if c.is_alphanumeric() || matches!(c, '.' | '-') {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    let name = name.trim_matches(['_', '.']);
    format!("{}.pickle", if name.is_empty() { "recording" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::Progress;

    #[test]
    fn what_is_saved_opens_with_the_same_events_and_a_failure_leaves_nothing() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/two_gpus.pickle");
        let recording = vramscope_core::formats::open(Path::new(sample), &Progress::new()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("again.pickle");
        std::fs::write(&path, "what was there before").unwrap();
        let said = save(&recording, &path).unwrap().replace('\u{a0}', " ");
        assert!(said.contains("1,935 events"), "{said}");
        let again = vramscope_core::formats::open(&path, &Progress::new()).unwrap();
        for (a, b) in recording.devices.iter().zip(&again.devices) {
            assert_eq!((a.events.len(), &a.segments.len(), a.blocks.len()), (b.events.len(), &b.segments.len(), b.blocks.len()));
            assert_eq!((&a.events.address, &a.events.size), (&b.events.address, &b.events.size));
        }
        assert!(save(&recording, &folder.path().join("none/x.pickle")).unwrap_err().contains("there is no folder"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_are_plain_and_end_as_snapshots_do() {
        for (title, name) in [
            ("probe: leak, simulated", "probe_leak_simulated.pickle"),
            ("run-7.b.pickle.gz", "run-7.b.pickle"),
            ("What-if: expandable_segments:True, 4 GiB", "What-if_expandable_segments_True_4_GiB.pickle"),
            ("/..", "recording.pickle"),
        ] {
            assert_eq!(file_name(title), name);
        }
    }
}
