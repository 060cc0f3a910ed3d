//! The glossary: what each word of the field means, said once, with the user's own numbers at the cursor.
//!
//! Every view that writes one of these words shows its [`Term`] on hover, so that nobody has to look up what "inactive" is.

use std::sync::Arc;

use egui::{Context, Id, Rect, Response, Sense, Ui};

use super::tooltip::Tip;
use crate::analysis::State;
use crate::analysis::accounting::Part;
use crate::app::document::DeviceData;
use crate::model::{BlockState, SizeClass};
use crate::units::{Bytes, count, counted};

/// A word of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// What PyTorch took from the device.
    Reserved,
    /// Blocks that can not be reused yet.
    Active,
    /// Blocks the program holds.
    Allocated,
    /// What the program asked for.
    Requested,
    /// Block sizes beyond what was asked for.
    Rounding,
    /// Blocks nobody holds.
    Inactive,
    /// A free block inside a segment.
    Hole,
    /// The largest of them.
    LargestHole,
    /// Free memory that live blocks keep from being given back.
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
    /// Where requests of one kind are served from.
    Pool,
    /// A pool of a CUDA graph or a `MemPool`.
    PrivatePool,
    /// A queue of work on the device.
    Stream,
    /// The most this process may reserve.
    Cap,
    /// All memory of the device.
    Capacity,
    /// What the device has left.
    DeviceFree,
    /// A request that failed.
    Request,
    /// A live block between holes.
    Blocker,
    /// Emptying the cache to try again.
    Retry,
    /// One line of the allocator's trace.
    Event,
    /// Where in the code.
    Stack,
    /// A named range.
    Annotation,
    /// This process outside PyTorch's allocator.
    Outside,
    /// Other programs on the device.
    OtherProcesses,
    /// The driver's own.
    Driver,
    /// The least that would have to go.
    WayOut,
    /// Blocks of which any one would do.
    Alone,
    /// The hole a block keeps from being.
    IfFreed,
    /// How old a block is.
    Age,
    /// Growth from step to step.
    Growth,
    /// How straight growth is.
    Fit,
    /// The requests run again under other settings.
    Served,
    /// Share of a place that live blocks fill.
    Occupancy,
    /// Addresses that no segment holds.
    NotReserved,
}

impl Term {
    /// Every term, in the order of a glossary.
    pub const ALL: [Term; 38] = [
        Term::Reserved,
        Term::Active,
        Term::Allocated,
        Term::Requested,
        Term::Rounding,
        Term::Inactive,
        Term::Hole,
        Term::LargestHole,
        Term::Pinned,
        Term::Cached,
        Term::PendingFree,
        Term::Segment,
        Term::Block,
        Term::Expandable,
        Term::Pool,
        Term::PrivatePool,
        Term::Stream,
        Term::Cap,
        Term::Capacity,
        Term::DeviceFree,
        Term::Request,
        Term::Blocker,
        Term::Retry,
        Term::Event,
        Term::Stack,
        Term::Annotation,
        Term::Outside,
        Term::OtherProcesses,
        Term::Driver,
        Term::WayOut,
        Term::Alone,
        Term::IfFreed,
        Term::Age,
        Term::Growth,
        Term::Fit,
        Term::Served,
        Term::Occupancy,
        Term::NotReserved,
    ];

    /// The word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Term::Reserved => "Reserved",
            Term::Active => "Active",
            Term::Allocated => "Allocated",
            Term::Requested => "Requested",
            Term::Rounding => "Lost to rounding",
            Term::Inactive => "Inactive",
            Term::Hole => "Hole",
            Term::LargestHole => "Largest hole",
            Term::Pinned => "Pinned",
            Term::Cached => "Cached",
            Term::PendingFree => "Pending free",
            Term::Segment => "Segment",
            Term::Block => "Block",
            Term::Expandable => "Expandable segment",
            Term::Pool => "Pool",
            Term::PrivatePool => "Private pool",
            Term::Stream => "Stream",
            Term::Cap => "Cap",
            Term::Capacity => "Capacity",
            Term::DeviceFree => "Free on the device",
            Term::Request => "Request",
            Term::Blocker => "Blocker",
            Term::Retry => "Retry",
            Term::Event => "Event",
            Term::Stack => "Stack",
            Term::Annotation => "Annotation",
            Term::Outside => "Outside PyTorch",
            Term::OtherProcesses => "Other processes",
            Term::Driver => "Driver",
            Term::WayOut => "Cheapest way out",
            Term::Alone => "Enough alone",
            Term::IfFreed => "If freed",
            Term::Age => "Age",
            Term::Growth => "Growth a step",
            Term::Fit => "Fit of a line",
            Term::Served => "Served again",
            Term::Occupancy => "Occupancy",
            Term::NotReserved => "Not reserved",
        }
    }

    /// What it means.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Term::Reserved => {
                "What PyTorch's allocator took from the device, used or not: torch.cuda.memory_reserved(). nvidia-smi counts \
                 all of it."
            }
            Term::Active => {
                "Whole blocks that can not be reused yet: those the program holds, and those it freed that another stream \
                 still guards."
            }
            Term::Allocated => "Whole blocks that the program holds: torch.cuda.memory_allocated().",
            Term::Requested => "The sum of what the program asked for, before the allocator rounded each request up.",
            Term::Rounding => {
                "The allocator rounds a request up to 512 bytes, and leaves a remainder it may not split off with the block."
            }
            Term::Inactive => "Blocks of a segment that nobody holds: free for the next request of the same pool and stream.",
            Term::Hole => {
                "Free memory between live blocks of a segment. A request is served from one hole; it can not be put together \
                 from several."
            }
            Term::LargestHole => {
                "The largest request that the memory already reserved can serve. A larger one needs a new segment, or fails."
            }
            Term::Pinned => Part::CachedPinned.about(),
            Term::Cached => Part::CachedWhole.about(),
            Term::PendingFree => {
                "The program freed it, but a stream named by record_stream may still use it. The block is reusable once that \
                 stream's work is done."
            }
            Term::Segment => {
                "Memory taken from the device in one piece (cudaMalloc). Blocks are cut out of it; it goes back only when no \
                 block of it is live."
            }
            Term::Block => "A part of a segment: one allocation, or one hole.",
            Term::Expandable => {
                "A segment that reserves addresses and maps memory as it grows, so that holes can merge \
                 (expandable_segments:True)."
            }
            Term::Pool => {
                "Requests up to 1 MiB are served from the small pool, larger ones from the large pool. A hole of one pool \
                 serves no request of another."
            }
            Term::PrivatePool => {
                "A pool of its own for a CUDA graph or a torch.cuda.MemPool. Nobody else can use what is free in it."
            }
            Term::Stream => "A queue of work on the device. A free block serves only requests of the stream it was taken for.",
            Term::Cap => {
                "The most this process may reserve: set_per_process_memory_fraction, or what the failed request left room for."
            }
            Term::Capacity => "All the memory of the device.",
            Term::DeviceFree => "What cudaMemGetInfo said was left on the whole device, for every process.",
            Term::Request => "What the program asked for when the allocator gave up.",
            Term::Blocker => "A live block with free memory beside it: while it lives, its neighbours can not become one hole.",
            Term::Retry => {
                "A new segment did not fit, so the allocator gave back its cached segments and asked the device again. Each \
                 one stalls the device."
            }
            Term::Event => "One line of the allocator's trace: an allocation, a free, a segment taken or given back.",
            Term::Stack => "The calls that led to an allocation; named after the innermost line that is not PyTorch's own.",
            Term::Annotation => "A named range: an optimizer step, a profiler step, or a record_function of the program.",
            Term::Outside => Part::OutsidePytorch.about(),
            Term::OtherProcesses => Part::OtherProcesses.about(),
            Term::Driver => Part::Driver.about(),
            Term::WayOut => {
                "The fewest live bytes whose going would let the request succeed: in one hole, or by whole segments that go back \
                 to the device so that a new one fits."
            }
            Term::Alone => {
                "Live blocks each of which, gone by itself, would let the request succeed. One block may hold more bytes than \
                 the cheapest set of several."
            }
            Term::IfFreed => "The one hole there would be without this block: its own bytes, and the holes before and behind it.",
            Term::Age => "How long before this instant the block was allocated.",
            Term::Growth => {
                "What is still live at the end, by the step it was allocated in: the slope of the line through its running sum. \
                 The first two steps warm up and the last two may not be done, so they are left out."
            }
            Term::Fit => {
                "How much of the growth a straight line explains, 0 to 1 (coefficient of determination). Above 0.9 it is steady."
            }
            Term::Served => {
                "The recorded requests run again through a model of PyTorch's allocator, under another setting and the same cap."
            }
            Term::Occupancy => "The share of a stretch of addresses that live blocks fill. Dark is empty, bright is full.",
            Term::NotReserved => "No segment was at these addresses then: PyTorch had not taken them, or had given them back.",
        }
    }

    /// The term behind a label as the views write it: `largest hole`, `pending free`, `device free`.
    #[must_use]
    pub fn of(label: &str) -> Option<Term> {
        Some(match label.to_ascii_lowercase().as_str() {
            "reserved" | "peak reserved" | "reserved by pytorch" | "reserved at the end" | "as recorded" => Term::Reserved,
            "active" | "peak active" | "peak" => Term::Active,
            "allocated" | "in use" | "in blocks" | "live at the failure" | "still live 5 s later" => Term::Allocated,
            "requested" | "tensors" | "asked for" => Term::Requested,
            "rounding" | "lost to rounding" | "rounded up" => Term::Rounding,
            "inactive"
            | "free"
            | "free inside"
            | "free inside reserved"
            | "free in all pools"
            | "free in this pool"
            | "free in them" => Term::Inactive,
            "hole" | "holes" | "all holes" | "holes in this pool" | "all free memory" => Term::Hole,
            "largest hole" | "the largest hole" | "one hole of that size" | "largest that fits" => Term::LargestHole,
            "pinned" | "cached, pinned by live blocks" => Term::Pinned,
            "cached" | "cached, whole segments" | "whole free segments" => Term::Cached,
            "pending free" | "pending" | "freed, waiting for a stream" => Term::PendingFree,
            "segment" | "segments" | "new segment" | "a new segment" => Term::Segment,
            "block" | "blocks" | "live blocks" | "live" => Term::Block,
            "expandable" | "expandable segment" => Term::Expandable,
            "pool" | "pools" => Term::Pool,
            "private pool" => Term::PrivatePool,
            "stream" | "streams" => Term::Stream,
            "cap" | "the cap" | "limit" | "cap of this process" | "room under the cap" => Term::Cap,
            "capacity" | "the device" | "smaller than the device" => Term::Capacity,
            "free on the device" | "device free" => Term::DeviceFree,
            "request" | "the request" => Term::Request,
            "blocker" | "blockers" | "strands" | "between" => Term::Blocker,
            "cheapest way out" => Term::WayOut,
            "enough alone, if freed" | "the smallest of them" => Term::Alone,
            "age" => Term::Age,
            "if freed" => Term::IfFreed,
            "a step adds" | "a stretch of the recording adds" | "steps that add" | "kept from evaluation" => Term::Growth,
            "fit of a line" => Term::Fit,
            "outcome" | "setting" => Term::Served,
            "not reserved" => Term::NotReserved,
            "retry" | "retries" | "allocation retries" => Term::Retry,
            "event" | "events" => Term::Event,
            "stack" | "call stacks" => Term::Stack,
            "annotation" | "annotations" => Term::Annotation,
            "outside pytorch" => Term::Outside,
            "other processes" => Term::OtherProcesses,
            "driver" => Term::Driver,
            other if other.starts_with("largest of ") && other.ends_with("holes") => Term::LargestHole,
            _ => return None,
        })
    }

    /// The tooltip: the word, the user's figures, the sentence.
    #[must_use]
    pub fn tip(self, f: &Figures) -> Tip {
        let tip = Tip::new(self.name()).width(300.0).note(self.sentence());
        let bytes = |n: u64| Bytes(n).to_string();
        let share = |part: u64, whole: u64| format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64);
        let all_free = f.hole_bytes;
        let tip = match self {
            Term::Reserved => {
                let tip = tip.row("reserved", bytes(f.reserved)).row("in segments", count(f.segments));
                if f.reserved > 0 { tip.row("of it in use", share(f.active, f.reserved)) } else { tip }
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
                if f.expandable > 0 { tip.row("parts of expandable ones", count(f.expandable)) } else { tip }
            }
            Term::Block => tip.row("live", count(f.live)).row("pending free", count(f.pending)).row("holes", count(f.holes)),
            Term::Expandable => tip.row("mapped parts", count(f.expandable)).row("of segments", count(f.segments)),
            Term::Pool => {
                let tip = tip.row("small: segments", count(f.small)).row("large: segments", count(f.segments - f.small));
                if f.private > 0 { tip.row("private: segments", count(f.private)) } else { tip }
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
            Term::WayOut | Term::Alone => {
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

/// The user's numbers at an instant. Built while a word is hovered: one pass over the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The instant; `None` before the first event.
    pub event: Option<u32>,
    /// Bytes of all segments.
    pub reserved: u64,
    /// Bytes of blocks that are not reusable.
    pub active: u64,
    /// Bytes of blocks the program holds.
    pub allocated: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of active blocks beyond what was asked for.
    pub rounding: u64,
    /// Live blocks.
    pub live: u64,
    /// Blocks that wait for a stream.
    pub pending: u64,
    /// Their bytes.
    pub pending_bytes: u64,
    /// Inactive blocks.
    pub holes: u64,
    /// Their bytes.
    pub hole_bytes: u64,
    /// The largest of them.
    pub largest_hole: u64,
    /// Free bytes in segments that hold a live block.
    pub pinned: u64,
    /// Bytes of segments without one.
    pub whole: u64,
    /// Segments without one.
    pub whole_segments: u64,
    /// Segments.
    pub segments: u64,
    /// Segments of the small pool.
    pub small: u64,
    /// Mapped parts of expandable segments.
    pub expandable: u64,
    /// Segments of private pools.
    pub private: u64,
    /// Their bytes.
    pub private_bytes: u64,
    /// The limit on reserved memory, where one is known.
    pub limit: Option<u64>,
    /// The least the limit can be, where it is known only as a range.
    pub limit_least: Option<u64>,
    /// What the device had left, at an out-of-memory event.
    pub device_free: Option<u64>,
    /// What was asked for in vain, at an out-of-memory event.
    pub request: Option<u64>,
    /// Events of the device.
    pub events: u64,
    /// Streams of the device.
    pub streams: u64,
    /// Call stacks of the recording.
    pub stacks: u64,
    /// Annotations of the device.
    pub annotations: u64,
}

impl Figures {
    /// Counts a state. O(blocks).
    #[must_use]
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
            device_free: is_oom.then(|| device.events.device_free_told(state.event)).flatten(),
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
            let is_free = |b: &&crate::analysis::BlockAt| b.state == BlockState::Inactive;
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

    /// With the request that failed, at an out-of-memory event.
    fn with_request(&self, tip: Tip) -> Tip {
        match self.request {
            Some(bytes) => tip.red_row("request", Bytes(bytes).to_string()),
            None => tip,
        }
    }
}

/// The instant whose figures the terms of a pane show.
#[derive(Clone)]
struct Instant {
    data: Arc<DeviceData>,
    state: Option<Arc<State>>,
}

fn instant_id() -> Id {
    Id::unique("the instant terms speak of")
}

/// Says which instant the terms drawn from here on speak of, until another is named: each pane names the cursor's, a view of
/// another instant its own.
pub fn speak_of(ctx: &Context, data: &Arc<DeviceData>, state: Option<&Arc<State>>) {
    let instant = Instant { data: Arc::clone(data), state: state.map(Arc::clone) };
    ctx.data_mut(|d| d.insert_temp(instant_id(), instant));
}

/// Explains a term while something that names it is hovered, with the figures of the instant in force.
pub fn explain(response: &Response, term: Term) {
    if !response.hovered() {
        return;
    }
    let instant = response.ctx.data(|d| d.get_temp::<Instant>(instant_id()));
    if let Some(Instant { data, state: Some(state) }) = instant {
        term.tip(&Figures::of(&data, &state)).show(response);
    }
}

/// Explains a label that is a term; true when it is one.
pub fn explain_label(response: &Response, label: &str) -> bool {
    let term = Term::of(label);
    if let Some(term) = term {
        explain(response, term);
    }
    term.is_some()
}

/// Explains a painted word: `rect` is what it covers.
pub fn explain_at(ui: &Ui, rect: Rect, term: Term) {
    let response = ui.interact(rect, ui.scope_id().with(("term", term, rect.min.x as i32, rect.min.y as i32)), Sense::hover());
    explain(&response, term);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_has_a_sentence_and_says_its_figures() {
        for (i, term) in Term::ALL.into_iter().enumerate() {
            assert!(term.sentence().ends_with('.'), "{term:?}");
            assert!(!term.sentence().contains("  "), "{term:?}: a line break left two spaces");
            assert!(!Term::ALL[..i].contains(&term), "{term:?} twice");
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
