//! The glossary: one explanation of each term of the field, with the user's own numbers at the cursor.
//!
//! Every view that writes one of these terms shows its [`Term`] on hover, so that nobody has to look up what "inactive" means.

use std::sync::Arc;

use egui::{Context, Id, Rect, Response, Sense, Ui};

use crate::app::data::device::DeviceData;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::tables::State;

mod figures;
mod words;

pub use figures::Figures;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(strum::EnumIter))]
pub enum Term {
    /// Memory that PyTorch's allocator holds from the device.
    Reserved,
    /// Blocks that cannot be reused yet.
    Active,
    /// Blocks the program holds.
    Allocated,
    /// Bytes that the program requested.
    Requested,
    /// Block sizes beyond the requested bytes.
    Rounding,
    /// Free blocks: reserved, but held by nobody.
    Inactive,
    /// A free block inside a segment.
    Hole,
    LargestHole,
    /// Free memory that cannot be given back because live blocks share its segments.
    Pinned,
    /// Whole segments without a live block.
    Cached,
    /// Freed by the program, not yet reusable.
    PendingFree,
    /// Memory taken in one piece.
    Segment,
    /// A part of a segment.
    Block,
    /// A segment that grows.
    Expandable,
    /// The group of segments that serves one kind of request.
    Pool,
    /// A pool of a CUDA graph or a `MemPool`.
    PrivatePool,
    /// A queue of work on the device.
    Stream,
    /// The most that this process may reserve.
    Cap,
    /// All memory of the device.
    Capacity,
    DeviceFree,
    Request,
    /// A live block between holes.
    Blocker,
    /// Emptying the cache and trying again.
    Retry,
    /// One entry of the allocator's trace.
    Event,
    Stack,
    /// A named range in the trace.
    Annotation,
    /// Memory of this process outside PyTorch's allocator.
    Outside,
    /// Memory of other programs on the device.
    OtherProcesses,
    Driver,
    /// The smallest set of blocks to free so that the request fits.
    WhatToFree,
    /// Blocks that are each large enough: freeing one of them suffices.
    Alone,
    /// The hole that appears when a block is freed.
    IfFreed,
    /// How old a block is.
    Age,
    /// Growth from step to step.
    Growth,
    /// How close growth is to a straight line.
    Fit,
    /// The same requests, simulated under other settings.
    Served,
    /// The share of an address range that live blocks fill.
    Occupancy,
    /// Addresses that no segment holds.
    NotReserved,
}

#[derive(Clone)]
struct Instant {
    data: Arc<DeviceData>,
    state: Option<Arc<State>>,
}

fn instant_id() -> Id {
    Id::unique("the instant terms speak of")
}

/// Sets the instant that the terms drawn from here on refer to. Each pane sets the cursor's instant; a view of another instant
/// sets its own.
pub fn speak_of(ctx: &Context, data: &Arc<DeviceData>, state: Option<&Arc<State>>) {
    let instant = Instant { data: Arc::clone(data), state: state.map(Arc::clone) };
    ctx.data_mut(|d| d.insert_temp(instant_id(), instant));
}

/// Explains a term while `response` is hovered, with the figures of the instant that was set.
pub fn explain(response: &Response, term: Term) {
    if !response.hovered() {
        return;
    }
    let instant = response.ctx.data(|d| d.get_temp::<Instant>(instant_id()));
    if let Some(Instant { data, state: Some(state) }) = instant {
        term.tip(&Figures::of(&data, &state), Words::of(data.device())).show(response);
    }
}

/// Explains a label that is a term. True when it is one.
pub fn explain_label(response: &Response, label: &str) -> bool {
    let term = Term::of(label);
    if let Some(term) = term {
        explain(response, term);
    }
    term.is_some()
}

/// Explains a painted word that covers `rect`.
pub fn explain_at(ui: &Ui, rect: Rect, term: Term) {
    let response = ui.interact(rect, ui.scope_id().with(("term", term, rect.min.x as i32, rect.min.y as i32)), Sense::hover());
    explain(&response, term);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::diagnose::accounting::Part;

    #[test]
    fn every_term_has_a_sentence_and_says_its_figures() {
        for term in <Term as strum::IntoEnumIterator>::iter() {
            assert!(term.sentence().ends_with('.'), "{term:?}");
            assert!(!term.sentence().contains("  "), "{term:?}: a line break left two spaces");
        }
    }

    #[test]
    fn labels_of_the_views_find_their_terms() {
        let all = [
            ("largest of 52 holes", Some(Term::LargestHole)),
            ("device free", Some(Term::DeviceFree)),
            ("Reserved", Some(Term::Reserved)),
            ("pending free", Some(Term::PendingFree)),
            ("read in", None),
        ];
        for (label, term) in all {
            assert_eq!(Term::of(label), term, "{label}");
        }
        for part in [
            Part::Driver,
            Part::OtherProcesses,
            Part::OutsidePytorch,
            Part::CachedWhole,
            Part::CachedPinned,
            Part::PendingFree,
            Part::Rounding,
            Part::Requested,
            Part::DeviceFree,
        ] {
            assert!(Term::of(part.title()).is_some(), "{}", part.title());
        }
    }
}
