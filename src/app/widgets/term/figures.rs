//! The user's own numbers for a glossary term, at the cursor.

use super::Term;
use crate::app::data::device::DeviceData;
use crate::app::widgets::tooltip::Tip;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{BlockState, SizeClass};
use vramscope_core::tables::State;
use vramscope_core::units::{Bytes, count, counted};

impl Term {
    /// The tooltip: the term, the user's figures, the explanation.
    pub fn tip(self, f: &Figures, words: &Words) -> Tip {
        let tip = Tip::new(self.name()).width(300.0).note(words.say(self.sentence()));
        let bytes = |n: u64| Bytes(n).to_string();
        let share = |part: u64, whole: u64| format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64);
        let all_free = f.hole_bytes;
        let tip = match self {
            Term::Reserved => {
                let tip = tip.row("reserved", bytes(f.reserved)).row("in segments", count(f.segments));
                tip.row_if("of it in use", (f.reserved > 0).then(|| share(f.active, f.reserved)))
            }
            Term::Active => {
                let tip = tip.row("active", bytes(f.active)).row("held by the program", bytes(f.allocated));
                tip.row("pending free", bytes(f.pending_bytes))
            }
            Term::Allocated => {
                tip.row("allocated", bytes(f.allocated)).row("in blocks", count(f.live)).row("reserved", bytes(f.reserved))
            }
            Term::Requested => {
                tip.row("requested", bytes(f.requested)).row("in whole blocks", bytes(f.active)).row("difference", f.rounded())
            }
            Term::Rounding => tip.row("lost", f.rounded()).row("of active", share(f.rounding, f.active)),
            Term::Inactive => {
                let tip = tip.row("inactive", bytes(all_free)).row("of reserved", share(all_free, f.reserved));
                tip.row("in holes", count(f.holes))
            }
            Term::Hole => {
                tip.row("holes", count(f.holes)).row("together", bytes(all_free)).row("the largest", bytes(f.largest_hole))
            }
            Term::LargestHole => {
                let tip = tip.row("largest hole", bytes(f.largest_hole)).row(format!("all {}", count(f.holes)), bytes(all_free));
                f.with_request(tip)
            }
            Term::Pinned => tip.row("pinned", bytes(f.pinned)).row("of all free", share(f.pinned, all_free)),
            Term::Cached => {
                let whole = counted(f.whole_segments, "whole segment", "whole segments");
                tip.row(whole, bytes(f.whole)).row("of reserved", share(f.whole, f.reserved))
            }
            Term::PendingFree => tip.row(counted(f.pending, "block", "blocks"), bytes(f.pending_bytes)),
            Term::Segment => {
                let tip = tip.row(counted(f.segments, "segment", "segments"), bytes(f.reserved));
                let tip = tip.row("small pool", count(f.small)).row("large pool", count(f.segments - f.small));
                tip.row_if("parts of expandable ones", (f.expandable > 0).then(|| count(f.expandable)))
            }
            Term::Block => tip.row("live", count(f.live)).row("pending free", count(f.pending)).row("holes", count(f.holes)),
            Term::Expandable => tip.row("mapped parts", count(f.expandable)).row("of segments", count(f.segments)),
            Term::Pool => {
                let tip = tip.row("small: segments", count(f.small)).row("large: segments", count(f.segments - f.small));
                tip.row_if("private: segments", (f.private > 0).then(|| count(f.private)))
            }
            Term::PrivatePool => tip.row(counted(f.private, "segment", "segments"), bytes(f.private_bytes)),
            Term::Stream => tip.row("in this recording", count(f.streams)),
            Term::Cap | Term::Capacity => {
                let tip = match f.limit {
                    Some(most) if f.limit_least.is_some() => {
                        let tip = tip.row("at least", bytes(f.limit_least.unwrap_or(0))).row("less than", bytes(most));
                        tip.row("reserved", bytes(f.reserved))
                    }
                    Some(limit) => {
                        let tip = tip.row("limit", bytes(limit)).row("reserved", bytes(f.reserved));
                        tip.row("room", bytes(limit.saturating_sub(f.reserved)))
                    }
                    None => tip.row("limit", "not recorded"),
                };
                f.with_request(tip)
            }
            Term::DeviceFree => {
                let figure = f.device_free.map_or_else(|| "not recorded here".to_owned(), bytes);
                f.with_request(tip.row("free", figure))
            }
            Term::Request | Term::Blocker | Term::IfFreed => f.with_request(tip.row("largest hole", bytes(f.largest_hole))),
            Term::Retry => tip.row("would give back now", bytes(f.whole)),
            Term::Event => tip.row("in this recording", count(f.events)),
            Term::Stack => tip.row("in this recording", count(f.stacks)),
            Term::Annotation => tip.row("in this recording", count(f.annotations)),
            Term::Outside | Term::OtherProcesses | Term::Driver => tip.row("reserved by PyTorch", bytes(f.reserved)),
            Term::WhatToFree | Term::Alone => {
                f.with_request(tip.row(counted(f.live, "live block", "live blocks"), bytes(f.allocated)))
            }
            Term::Age | Term::Served => tip.row("events recorded", count(f.events)),
            Term::Growth | Term::Fit => tip.row("live now", bytes(f.requested)),
            Term::Occupancy => tip.row("of reserved in use", share(f.active, f.reserved)),
            Term::NotReserved => tip.row("reserved", bytes(f.reserved)).row("in segments", count(f.segments)),
        };
        match f.event {
            Some(event) => tip.place(format!("at event {}", count(u64::from(event)))),
            None => tip,
        }
    }
}

/// The user's numbers at one instant. Computed in one pass over the blocks while a term is hovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The event; `None` before the first one.
    pub event: Option<u32>,
    pub reserved: u64,
    /// Bytes of blocks that cannot be reused yet.
    pub active: u64,
    /// Bytes of blocks that the program holds.
    pub allocated: u64,
    /// Bytes that the program requested.
    pub requested: u64,
    /// Bytes of active blocks beyond the requested size.
    pub rounding: u64,
    pub live: u64,
    /// Blocks that were freed but still wait for a stream.
    pub pending: u64,
    pub pending_bytes: u64,
    pub holes: u64,
    pub hole_bytes: u64,
    pub largest_hole: u64,
    /// Free bytes in segments that also hold a live block.
    pub pinned: u64,
    /// Bytes of segments without a live block.
    pub whole: u64,
    pub whole_segments: u64,
    pub segments: u64,
    pub small: u64,
    /// Number of mapped parts of expandable segments.
    pub expandable: u64,
    pub private: u64,
    pub private_bytes: u64,
    /// The limit on reserved bytes, when it is known.
    pub limit: Option<u64>,
    /// The smallest value the limit can have, when it is known only as a range.
    pub limit_least: Option<u64>,
    /// Free bytes of the device at an out-of-memory event.
    pub device_free: Option<u64>,
    /// Bytes of the failed request at an out-of-memory event.
    pub request: Option<u64>,
    pub events: u64,
    pub streams: u64,
    pub stacks: u64,
    pub annotations: u64,
}

impl Figures {
    /// Counts a state in O(blocks).
    pub fn of(data: &DeviceData, state: &State) -> Figures {
        let device = data.device();
        let totals = state.totals;
        let is_oom = data.ooms.binary_search(&state.event).is_ok();
        let mut f = Figures {
            event: ((state.event as usize) < device.events.len()).then_some(state.event),
            reserved: totals.reserved,
            active: totals.active,
            allocated: totals.allocated,
            requested: totals.requested,
            rounding: totals.active.saturating_sub(totals.requested),
            segments: state.segments.len() as u64,
            limit: device.limit.or(device.capacity),
            device_free: is_oom.then(|| device.events.device_free_known(state.event)).flatten(),
            request: is_oom.then(|| device.events.size.get(state.event as usize).copied()).flatten(),
            events: device.events.len() as u64,
            streams: device.streams.len() as u64,
            stacks: data.recording.stacks.len() as u64,
            annotations: device.annotations.len() as u64,
            ..Figures::default()
        };
        for block in &state.blocks {
            match block.state {
                BlockState::Active => f.live += 1,
                BlockState::PendingFree => {
                    f.pending += 1;
                    f.pending_bytes += block.size;
                }
                BlockState::Inactive => {
                    f.holes += 1;
                    f.hole_bytes += block.size;
                    f.largest_hole = f.largest_hole.max(block.size);
                }
            }
        }
        for segment in &state.segments {
            f.small += u64::from(segment.class == SizeClass::Small);
            f.expandable += u64::from(segment.is_expandable);
            if device.pool_key(segment.pool).is_some_and(|key| key != (0, 0)) {
                f.private += 1;
                f.private_bytes += segment.size;
            }
            let is_free = |b: &&vramscope_core::tables::BlockAt| b.state == BlockState::Inactive;
            let free: u64 = state.blocks_of(segment).iter().filter(is_free).map(|b| b.size).sum();
            if free == segment.size {
                f.whole += free;
                f.whole_segments += 1;
            } else {
                f.pinned += free;
            }
        }
        f
    }

    fn rounded(&self) -> String {
        Bytes(self.rounding).to_string()
    }

    /// Adds the failed request at an out-of-memory event.
    fn with_request(&self, tip: Tip) -> Tip {
        match self.request {
            Some(bytes) => tip.red_row("request", Bytes(bytes)),
            None => tip,
        }
    }
}
