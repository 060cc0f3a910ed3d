use std::sync::Arc;

use super::blockers::Listed;
use vramscope_core::diagnose::fragmentation::{Blocker, Holes, RoomPlan, Servers};
use vramscope_core::diagnose::oom::{Autopsy, Closest, LiveByStack};
use vramscope_core::tables::{LifetimeId, State};

pub(super) enum CaseKind {
    Failure(Box<Autopsy>),
    /// The peak of a recording without a failure.
    Peak(Box<Closest>),
}

/// A failure or a peak, with the state it happened in.
pub(super) struct Case {
    pub kind: CaseKind,
    pub state: Arc<State>,
    /// Indices of the segments that could serve the request.
    pub serving: Vec<usize>,
    /// Indices of the drawn segments, in drawing order: the serving ones and those of the blocks to free.
    pub drawn: Vec<usize>,
    /// Bytes that fill the width of a row.
    pub widest: u64,
    pub listed: Vec<Listed>,
    /// Indices of the largest live blocks in the state.
    pub largest: Vec<usize>,
    /// Sizes of the holes, largest first.
    pub hole_sizes: Vec<u64>,
    /// Names of the live memory by stack. Equal names get the caller that tells them apart.
    pub live_names: Vec<String>,
    /// The largest block of each stack. Its role colours the bar.
    pub live_largest: Vec<Option<LifetimeId>>,
}

/// A figure that failures and peaks have.
macro_rules! in_both {
    ($case:ident, $figure:ident) => {
        match &$case.kind {
            CaseKind::Failure(a) => &a.$figure,
            CaseKind::Peak(c) => &c.$figure,
        }
    };
}

impl Case {
    pub fn failure(&self) -> Option<&Autopsy> {
        match &self.kind {
            CaseKind::Failure(a) => Some(a),
            CaseKind::Peak(_) => None,
        }
    }

    /// The failure, when the device was full and freeing a few blocks would not have helped.
    pub fn simply_full(&self) -> Option<&Autopsy> {
        self.failure().filter(|a| a.is_simply_full())
    }

    pub fn servers(&self) -> &Servers {
        in_both!(self, servers)
    }

    pub fn blockers(&self) -> &[Blocker] {
        in_both!(self, blockers)
    }

    /// The holes in the segments that could serve the request.
    pub fn holes(&self) -> &Holes {
        in_both!(self, holes)
    }

    pub fn top_live(&self) -> &[LiveByStack] {
        in_both!(self, top_live)
    }

    pub fn has_segments(&self) -> bool {
        *in_both!(self, has_segments)
    }

    /// The blocks to free, when they are few enough to look at.
    pub fn room_plan(&self) -> Option<&RoomPlan> {
        self.failure().filter(|a| a.one_instead().is_none())?.room_plan.as_ref()
    }

    /// How many bytes the device would need free for the request.
    pub fn need(&self) -> Option<u64> {
        self.failure().map(|a| a.need)
    }

    pub fn request(&self) -> Option<u64> {
        self.failure().map(|a| a.requested)
    }
}
