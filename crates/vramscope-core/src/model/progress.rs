//! [`Progress`]: how far a long computation is, and the request to stop it. The worker and the UI share it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The computation stopped because it was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// One point of the curves while a file is still loading: the maxima over a run of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreviewPoint {
    /// Index of the device in the file.
    pub device: u16,
    /// First event of the run.
    pub event: u32,
    /// Highest reserved bytes within the run, relative to the first event read.
    pub reserved: i64,
    /// Highest requested bytes within the run, relative to the first event read.
    pub requested: i64,
}

/// A step of opening a recording, in the order in which the steps run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum Stage {
    /// Parsing bytes into events.
    #[default]
    Reading,
    /// Instead of reading: replaying the requests of another recording.
    #[strum(serialize = "serving requests")]
    Replaying,
    /// Numbering call stacks and ordering events.
    #[strum(serialize = "ordering events")]
    Ordering,
    /// Finding which segments exist at each event.
    Segments,
    /// Building one row per allocation: allocated, freed, completed.
    Lifetimes,
    /// Computing memory over the events.
    Curves,
    /// Saving the snapshots of state from which any instant is computed.
    States,
    /// Naming call stacks: which frame of each a user sees first.
    #[strum(serialize = "names of stacks")]
    Names,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: &[Stage] = <Stage as strum::VariantArray>::VARIANTS;

    /// Name of the stage, as the user sees it.
    pub fn text(self) -> &'static str {
        self.into()
    }
}

/// Work done out of the total, a stop flag, and the preview of what was read so far. Cheap to poll each frame.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    stage: AtomicU8,
    stage_done: AtomicU64,
    stage_total: AtomicU64,
    cancelled: AtomicBool,
    preview: Mutex<Vec<PreviewPoint>>,
    whole: Option<Arc<Progress>>,
}

impl Progress {
    /// No work done yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Progress of a part of something larger. It counts its own work, and stops when the whole is cancelled.
    pub fn part_of(whole: &Arc<Progress>) -> Self {
        Progress { whole: Some(Arc::clone(whole)), ..Progress::default() }
    }

    /// Sets the total work, usually in bytes.
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Sets the work done.
    pub fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Adds to the work done.
    pub fn advance(&self, by: u64) {
        self.done.fetch_add(by, Ordering::Relaxed);
    }

    /// The total work; 0 while it is unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Done over total, 0 to 1; `None` while the total is unknown.
    pub fn fraction(&self) -> Option<f32> {
        let total = self.total.load(Ordering::Relaxed);
        (total > 0).then(|| (self.done.load(Ordering::Relaxed) as f32 / total as f32).min(1.0))
    }

    /// Begins a stage after [`Stage::Reading`] with its own work: `total` units, 0 if unknown.
    /// [`fraction`](Self::fraction) is not affected.
    pub fn begin(&self, stage: Stage, total: u64) {
        self.stage_done.store(0, Ordering::Relaxed);
        self.stage_total.store(total, Ordering::Relaxed);
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Adds to the work done in the current stage.
    pub fn advance_stage(&self, by: u64) {
        self.stage_done.fetch_add(by, Ordering::Relaxed);
    }

    /// The current stage and how much of it is done, 0 to 1, if known. For [`Stage::Reading`] that is [`fraction`](Self::fraction).
    pub fn stage(&self) -> (Stage, Option<f32>) {
        let stage = Stage::ALL.get(usize::from(self.stage.load(Ordering::Relaxed))).copied().unwrap_or_default();
        if stage == Stage::Reading {
            return (stage, self.fraction());
        }
        let total = self.stage_total.load(Ordering::Relaxed);
        let done = self.stage_done.load(Ordering::Relaxed);
        (stage, (total > 0).then(|| (done as f32 / total as f32).min(1.0)))
    }

    /// Asks the computation to stop soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// `Err` once cancelled. Long loops call this every few thousand iterations.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Cancelled);
        }
        self.whole.as_ref().map_or(Ok(()), |whole| whole.check())
    }

    /// Appends preview points, in event order.
    pub fn publish(&self, points: &[PreviewPoint]) {
        if let Ok(mut all) = self.preview.lock() {
            all.extend_from_slice(points);
        }
    }

    /// A copy of the preview points from `from` on.
    pub fn preview_since(&self, from: usize) -> Vec<PreviewPoint> {
        self.preview.lock().map(|all| all.get(from..).unwrap_or(&[]).to_vec()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_counts_for_itself() {
        let progress = Progress::new();
        progress.set_total(10);
        progress.set_done(5);
        assert_eq!(progress.stage(), (Stage::Reading, Some(0.5)));
        progress.begin(Stage::Curves, 4);
        progress.advance_stage(1);
        assert_eq!((progress.stage(), progress.fraction()), ((Stage::Curves, Some(0.25)), Some(0.5)));
        progress.begin(Stage::Names, 0);
        assert_eq!(progress.stage(), (Stage::Names, None));
        let whole = Arc::new(Progress::new());
        let part = Progress::part_of(&whole);
        assert_eq!(part.check(), Ok(()));
        whole.cancel();
        assert_eq!(part.check(), Err(Cancelled));
    }
}
