//! [`DeviceTables`]: the tables that all views share, built together.

use super::agreement::disagreement;
use super::runs::RunTimeline;
use super::{Curves, Lifetimes, NO_EVENT, Quantity, StateIndex};
use crate::model::{Cancelled, DeviceRecording, Progress, Stage};

/// All tables of one device. Immutable; can be dropped and rebuilt at any time.
#[derive(Debug)]
pub struct DeviceTables {
    /// One row per allocation.
    pub lifetimes: Lifetimes,
    /// Segments and blocks at any event.
    pub states: StateIndex,
    /// The four memory curves.
    pub curves: Curves,
    /// One sentence without a full stop when the replayed trace contradicts the file's end state, so that figures are doubtful.
    pub disagreement: Option<String>,
}

impl DeviceTables {
    /// The bytes reserved before the first event, if reserved memory never exceeded them and some blocks are older than the
    /// trace; else 0. Up to that many bytes may have been allocated before the trace. O(1).
    pub fn reserved_before(&self) -> u64 {
        match self.curves.peak(Quantity::Reserved) {
            (reserved, NO_EVENT) if self.lifetimes.initial_count() > 0 => reserved,
            _ => 0,
        }
    }

    /// [`reserved_before`](Self::reserved_before), if it exceeds later use by over a quarter: the peak probably came before.
    pub fn before_earlier_peak(&self) -> Option<u64> {
        let (before, used) = (self.reserved_before(), self.curves.peak(Quantity::Active).0);
        (before > used.saturating_add(used / 4)).then_some(before)
    }

    /// Builds the tables of one device: one pass over the events for the lifetimes, then the curves, then the keyframes.
    pub fn build(dev: &DeviceRecording, progress: &Progress) -> Result<DeviceTables, Cancelled> {
        let since = std::time::Instant::now();
        progress.begin(Stage::Segments, 0);
        let runs = RunTimeline::build(dev);
        let lifetimes = Lifetimes::build(dev, &runs, progress)?;
        let (curves, states) = {
            let curves = Curves::build(dev, &lifetimes, &runs, progress)?;
            progress.begin(Stage::States, lifetimes.len() as u64);
            (curves, StateIndex::build(&lifetimes, runs, progress)?)
        };
        let (events, allocations) = (dev.events.len(), lifetimes.len());
        tracing::info!(events, allocations, seconds = since.elapsed().as_secs_f64(), "tables built");
        let disagreement = disagreement(dev, &curves);
        Ok(DeviceTables { lifetimes, states, curves, disagreement })
    }
}
