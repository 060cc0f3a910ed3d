//! [`Progress`]: how far a long computation is, and the request to stop it. Shared between the thread that works and the one that shows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A long computation gave up because it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// One point of the curves while a file is still loading: the extremes of a run of events.
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

/// Work done of work known, a stop flag, and the preview of what was read so far. Cheap to poll each frame.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    preview: Mutex<Vec<PreviewPoint>>,
}

impl Progress {
    /// Nothing done yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the work known, usually bytes.
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

    /// Done over total, 0 to 1; `None` while the total is unknown.
    #[must_use]
    pub fn fraction(&self) -> Option<f32> {
        let total = self.total.load(Ordering::Relaxed);
        (total > 0).then(|| (self.done.load(Ordering::Relaxed) as f32 / total as f32).min(1.0))
    }

    /// Asks the computation to stop soon.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// `Err` once cancelled; long loops call this every few thousand turns.
    ///
    /// # Errors
    /// [`Cancelled`] when [`cancel`](Self::cancel) was called.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.cancelled.load(Ordering::Relaxed) { Err(Cancelled) } else { Ok(()) }
    }

    /// Appends preview points, in event order.
    pub fn publish(&self, points: &[PreviewPoint]) {
        if let Ok(mut all) = self.preview.lock() {
            all.extend_from_slice(points);
        }
    }

    /// A copy of the preview points from `from` on.
    #[must_use]
    pub fn preview_since(&self, from: usize) -> Vec<PreviewPoint> {
        self.preview.lock().map(|all| all.get(from..).unwrap_or(&[]).to_vec()).unwrap_or_default()
    }
}
