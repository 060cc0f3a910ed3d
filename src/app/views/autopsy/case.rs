//! A failure or a peak, and what was found of it.

use std::sync::Arc;

use super::blockers::Listed;
use vramscope_core::diagnose::fragmentation::{Blocker, Holes, RoomPlan, Servers};
use vramscope_core::diagnose::oom::{Autopsy, Closest, LiveByStack};
use vramscope_core::tables::{LifetimeId, State};

/// What is looked at.
pub(super) enum CaseKind {
    Failure(Box<Autopsy>),
    /// The peak of a recording in which none did.
    Peak(Box<Closest>),
}

/// A failure or a peak, with the state it happened in.
pub(super) struct Case {
    pub kind: CaseKind,
    pub state: Arc<State>,
    /// Indices of the segments that serve such requests.
    pub serving: Vec<usize>,
    /// Those and the way out's, in the order they are drawn.
    pub drawn: Vec<usize>,
    /// The bytes that their rows are as wide as.
    pub widest: u64,
    /// The rows of the table of blockers.
    pub listed: Vec<Listed>,
    /// The largest live blocks, by their places in the state.
    pub largest: Vec<usize>,
    /// Their holes, largest first.
    pub hole_sizes: Vec<u64>,
    /// By stack of what was live: its name, with the caller that tells it from another of that name.
    pub live_names: Vec<String>,
    /// Likewise its largest block, whose role its bar is coloured by.
    pub live_largest: Vec<Option<LifetimeId>>,
}

impl Case {
    pub fn failure(&self) -> Option<&Autopsy> {
        match &self.kind {
            CaseKind::Failure(a) => Some(a),
            CaseKind::Peak(_) => None,
        }
    }

    /// The failure, where the device was full and no few blocks were in the way.
    pub fn simply_full(&self) -> Option<&Autopsy> {
        self.failure().filter(|a| a.is_simply_full())
    }

    pub fn servers(&self) -> &Servers {
        match &self.kind {
            CaseKind::Failure(a) => &a.servers,
            CaseKind::Peak(c) => &c.servers,
        }
    }

    pub fn blockers(&self) -> &[Blocker] {
        match &self.kind {
            CaseKind::Failure(a) => &a.blockers,
            CaseKind::Peak(c) => &c.blockers,
        }
    }

    /// The holes of the segments that serve such requests.
    pub fn holes(&self) -> &Holes {
        match &self.kind {
            CaseKind::Failure(a) => &a.holes,
            CaseKind::Peak(c) => &c.holes,
        }
    }

    pub fn top_live(&self) -> &[LiveByStack] {
        match &self.kind {
            CaseKind::Failure(a) => &a.top_live,
            CaseKind::Peak(c) => &c.top_live,
        }
    }

    pub fn has_segments(&self) -> bool {
        match &self.kind {
            CaseKind::Failure(a) => a.has_segments,
            CaseKind::Peak(c) => c.has_segments,
        }
    }

    /// What to free, where that is few enough blocks to be looked at.
    pub fn room_plan(&self) -> Option<&RoomPlan> {
        self.failure().filter(|a| a.one_instead().is_none())?.room_plan.as_ref()
    }

    /// What would have to return to the device for the request, in bytes.
    pub fn need(&self) -> Option<u64> {
        self.failure().map(|a| a.need)
    }

    /// What failed, in bytes.
    pub fn request(&self) -> Option<u64> {
        self.failure().map(|a| a.requested)
    }
}
