//! Adding other files of the same run to a recording: a trace, a memory timeline, PyTorch's counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::app::data::device::{DeviceData, prepare};
use crate::app::state::DocumentId;
use vramscope_core::compare::join::{can_join, join};
use vramscope_core::compare::ranks::ranks_of_names;
use vramscope_core::diagnose::stats_check::judge_stats;
use vramscope_core::formats::{self, stats};
use vramscope_core::model::{Format, MemoryStats, Progress, Recording, Source};
use vramscope_core::units::{count, counted};

pub(in crate::app) enum Extra {
    /// A file of any kind.
    File(PathBuf),
    Open(Arc<Recording>),
}

/// A recording after the addition, and the device to show.
pub(in crate::app) struct Added {
    pub(in crate::app) to: DocumentId,
    pub(in crate::app) recording: Arc<Recording>,
    pub(in crate::app) data: Arc<DeviceData>,
    pub(in crate::app) sentence: String,
    /// The added file does not agree with the recording it was added to.
    pub(in crate::app) is_trouble: bool,
}

pub(in crate::app) struct Adding {
    /// The tab of the added recording, closed when the addition succeeds.
    pub(in crate::app) from: Option<DocumentId>,
    /// Added automatically. When it belongs to another run, the user is not told.
    pub(in crate::app) is_quiet: bool,
    pub(in crate::app) progress: Arc<Progress>,
    pub(in crate::app) answer: Receiver<Result<Added, String>>,
}

impl Drop for Adding {
    fn drop(&mut self) {
        self.progress.cancel();
    }
}

/// Additions in progress, and the files that were opened together.
#[derive(Default)]
pub(in crate::app) struct Additions {
    pub(in crate::app) running: Vec<Adding>,
    pub(in crate::app) together: Vec<Vec<DocumentId>>,
}

impl Additions {
    pub(in crate::app) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

/// True when `extra` can be added to `base`: it can be joined on one clock, or it holds the counters of the run.
pub(in crate::app) fn belongs_to(base: &Recording, extra: &Recording) -> bool {
    if extra.has_only_counters() { !base.has_only_counters() } else { can_join(base, extra) }
}

/// Up to this many files opened at once get a tab each when their names look like ranks of one job.
const MOST_TABS_OF_RANKS: usize = 8;
/// The limit for all other files. More are shown side by side, because that many tabs are hard to use.
const MOST_TABS: usize = 32;

/// Whether files opened at once are shown side by side as ranks of a job. Otherwise each gets a tab.
pub(in crate::app) fn are_ranks(paths: &[PathBuf]) -> bool {
    let named = || ranks_of_names(paths).iter().filter(|rank| rank.is_some()).count();
    paths.len() > MOST_TABS || (paths.len() > MOST_TABS_OF_RANKS && named() * 2 > paths.len())
}

/// Adds to the first recording that accepts the extra.
pub(in crate::app) fn add_to_first(
    to: Vec<(DocumentId, Arc<Recording>, usize)>,
    extra: Extra,
    progress: &Progress,
) -> Result<Added, String> {
    let extra = match extra {
        Extra::Open(recording) => recording,
        // A log may hold counters as well as an error, and does not open as a recording then.
        Extra::File(path) => Arc::new(match stats::open(&path) {
            Ok(counters) => counters_alone(file_name(&path), counters),
            Err(_) => formats::open(&path, progress).map_err(|e| e.to_string())?,
        }),
    };
    if let (true, Some((id, recording, index))) = (extra.has_only_counters(), to.first()) {
        if recording.has_only_counters() {
            return Err("counters are compared with a snapshot of the same run; open that, and add them to it".to_owned());
        }
        let mut recording = Recording::clone(recording);
        let name = extra.source.name.clone();
        let verdicts: Vec<_> = extra.stats.iter().map(|(_, stats)| judge_stats(&recording, &name, stats)).collect();
        let is_trouble = verdicts.iter().any(|v| v.failed > 0);
        let verdicts: Vec<String> = verdicts.into_iter().map(|v| v.sentence).collect();
        recording.stats.retain(|(known, _)| *known != name);
        recording.stats.extend(extra.stats.iter().cloned());
        let sentence = format!("{name}: {}. Accounting lists them.", verdicts.join("; "));
        return Ok(Added { is_trouble, ..finish(*id, recording, *index, sentence, progress)? });
    }
    let mut refusal = String::new();
    for (id, recording, index) in to {
        match join(Recording::clone(&recording), &extra, progress) {
            Ok((joined, found)) => {
                let gained = found.gained();
                let brought = if gained.is_empty() { "nothing new".to_owned() } else { gained.join(", ") };
                // The Contents view explains how the clocks were aligned.
                let sentence = match &found.laid {
                    Some(_) => format!("Added {}: {brought}. The Timeline and Accounting show them.", found.name),
                    None => format!(
                        "Added {}, {} of {}: {brought}.",
                        found.name,
                        count(found.matched),
                        counted(found.expected, "memory event", "memory events")
                    ),
                };
                return finish(id, joined, index, sentence, progress);
            }
            Err(error) if refusal.is_empty() => refusal = error.to_string(),
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn counters_alone(name: String, counters: MemoryStats) -> Recording {
    let source = Source { name: name.clone(), format: Format::Counters, ..Source::default() };
    Recording { source, stats: vec![(name, counters)], ..Recording::default() }
}

fn finish(to: DocumentId, recording: Recording, index: usize, sentence: String, progress: &Progress) -> Result<Added, String> {
    let recording = Arc::new(recording);
    let data = prepare(&recording, index, progress)?;
    Ok(Added { to, recording, data, sentence, is_trouble: false })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_are_a_job_when_their_names_tell_ranks() {
        let ranks: Vec<PathBuf> = (0..9).map(|i| format!("/run/rank{i}.pickle").into()).collect();
        let others: Vec<PathBuf> = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(PathBuf::from).into();
        assert!(are_ranks(&ranks) && !are_ranks(&ranks[..8]) && !are_ranks(&others));
        let crowd: Vec<PathBuf> = (0..33).map(|i| format!("/x{i}/y.pickle").into()).collect();
        assert!(are_ranks(&crowd) && !are_ranks(&crowd[..32]));
    }
}
