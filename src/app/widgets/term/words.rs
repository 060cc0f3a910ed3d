//! Each term's name and explanation, and the labels under which views show it.

use super::Term;
use vramscope_core::diagnose::accounting::Part;

impl Term {
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
            Term::WhatToFree => "What to free",
            Term::Alone => "Freeing one block",
            Term::IfFreed => "If freed",
            Term::Age => "Age",
            Term::Growth => "Growth a step",
            Term::Fit => "Fit of a line",
            Term::Served => "Replayed",
            Term::Occupancy => "Occupancy",
            Term::NotReserved => "Not reserved",
        }
    }

    pub fn sentence(self) -> &'static str {
        match self {
            Term::Reserved => {
                "What PyTorch's allocator took from the device, used or not: torch.cuda.memory_reserved(). nvidia-smi counts \
                 all of it."
            }
            Term::Active => {
                "Whole blocks that cannot be reused yet: those the program holds, and those it freed that another stream \
                 still guards."
            }
            Term::Allocated => "Whole blocks that the program holds: torch.cuda.memory_allocated().",
            Term::Requested => "The sum of what the program requested, before the allocator rounded each request up.",
            Term::Rounding => {
                "The allocator rounds a request up to 512 bytes, and leaves a remainder it may not split off with the block."
            }
            Term::Inactive => "Blocks of a segment that nobody holds: free for the next request of the same pool and stream.",
            Term::Hole => {
                "Free memory between live blocks of a segment. A request is served from one hole; it cannot be put together \
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
            Term::Request => "What the program requested when the allocator gave up.",
            Term::Blocker => "A live block with free memory beside it: while it lives, its neighbours cannot become one hole.",
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
            Term::WhatToFree => {
                "The fewest live bytes to free so that the request succeeds: they leave one hole, or return whole segments or pages to \
                 the device."
            }
            Term::Alone => {
                "Live blocks of which any single one, if freed, lets the request succeed. One block may hold more bytes than the \
                 cheapest set of several."
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

    /// The term for a label that views use: `largest hole`, `pending free`, `device free`.
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
            "blocker" | "blockers" | "wastes" | "between" => Term::Blocker,
            "what to free" => Term::WhatToFree,
            "freeing one block" | "freeing one" | "the smallest of them" => Term::Alone,
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
}
