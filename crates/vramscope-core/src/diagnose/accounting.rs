//! Accounts for the whole card at one instant, from its total memory down to the bytes that tensors requested.

use crate::model::{Beyond, BlockState, DeviceRecording, Sample};
use crate::tables::State;

/// A part of the card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Kept by the driver.
    Driver,
    /// Held by other processes.
    OtherProcesses,
    /// This process outside PyTorch's allocator: context, kernels, libraries.
    OutsidePytorch,
    /// Whole free segments, which `empty_cache` releases.
    CachedWhole,
    /// Free memory in segments that hold live blocks, which `empty_cache` cannot release.
    CachedPinned,
    /// Free memory in PyTorch's segments, if the source does not say how much of it is in whole segments.
    Cached,
    /// Freed by the program, but still used by another stream.
    PendingFree,
    /// Bytes by which blocks are larger than the requests.
    Rounding,
    /// Allocated before profiling began; the source has only the sum.
    Before,
    /// Growth of the source's total without an event.
    Grew,
    /// Bytes that tensors requested.
    Requested,
    /// Free on the device.
    DeviceFree,
}

impl Part {
    /// Its name in a table.
    pub fn title(self) -> &'static str {
        match self {
            Part::Driver => "driver",
            Part::OtherProcesses => "other processes",
            Part::OutsidePytorch => "outside PyTorch",
            Part::CachedWhole => "cached, whole segments",
            Part::CachedPinned => "cached, pinned by live blocks",
            Part::Cached => "cached",
            Part::PendingFree => "freed, waiting for a stream",
            Part::Rounding => "lost to rounding",
            Part::Before => Beyond::BEFORE,
            Part::Grew => Beyond::GREW,
            Part::Requested => "tensors",
            Part::DeviceFree => "free on the device",
        }
    }

    /// Its meaning for the user.
    pub fn about(self) -> &'static str {
        match self {
            Part::Driver => "Reserved by the NVIDIA driver; nobody can use it.",
            Part::OtherProcesses => "Used by other programs on this device.",
            Part::OutsidePytorch => {
                "CUDA context, kernels, cuBLAS, cuDNN and NCCL: nvidia-smi counts it, memory_allocated and memory_reserved do not."
            }
            Part::CachedWhole => {
                "PyTorch keeps whole free segments for reuse. torch.cuda.empty_cache() gives exactly these back."
            }
            Part::CachedPinned => "Holes between live blocks. PyTorch can reuse them; empty_cache() cannot give them back.",
            Part::Cached => {
                "Reserved and not in use. The file does not tell how much of it lies in whole free segments, which is what empty_cache gives back."
            }
            Part::PendingFree => "Freed by the program, but another stream may still use it (record_stream).",
            Part::Rounding => "The difference between blocks and what was requested.",
            Part::Before => {
                "Allocated before profiling began. The trace's totals count it, but it has no blocks and no stacks for it."
            }
            Part::Grew => {
                "PyTorch's total rose by this much while the trace ran, but no event of the trace says what was allocated."
            }
            Part::Requested => "What live tensors requested; their whole blocks where the file has no requested sizes.",
            Part::DeviceFree => "Nobody uses it.",
        }
    }
}

impl Waterfall {
    /// A sentence that lists the rows the source does not have; `None` if it has all.
    pub fn not_in_file(&self) -> Option<String> {
        let names: Vec<&str> = self.rows.iter().filter(|r| r.bytes.is_none()).map(|r| r.part.title()).collect();
        let (last, rest) = names.split_last()?;
        // Some names contain a comma.
        let between = if names.iter().any(|name| name.contains(',')) { "; " } else { ", " };
        let list = if rest.is_empty() { (*last).to_owned() } else { format!("{} and {last}", rest.join(between)) };
        Some(format!("Not in this file: {list}."))
    }
}

/// One row of the waterfall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The part of the card or of PyTorch's memory that it shows.
    pub part: Part,
    /// Bytes; `None` if the source does not have the figure.
    pub bytes: Option<u64>,
}

/// The waterfall of one instant. The known parts of PyTorch's memory add up to `reserved` exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waterfall {
    /// The card's total in bytes, if known.
    pub total: Option<u64>,
    /// Bytes that PyTorch reserved; `None` if the file has no segments.
    pub reserved: Option<u64>,
    /// The rows, from the card down to the tensors.
    pub rows: Vec<Row>,
}

/// Accounts for a state. Memory outside PyTorch comes from the sample nearest in time. `has_segments` is the result of
/// [`has_segments`](super::oom::has_segments): if false, reserved memory is at most known as a sum from the source's totals.
pub fn account(device: &DeviceRecording, state: &State, has_segments: bool) -> Waterfall {
    let mut whole = 0;
    let mut pinned = 0;
    let (mut pending, mut live, mut requested) = (0, 0, 0);
    for segment in &state.segments {
        let blocks = state.blocks_of(segment);
        let free: u64 = blocks.iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum();
        if free == segment.size {
            whole += free;
        } else {
            pinned += free;
        }
    }
    for block in &state.blocks {
        match block.state {
            BlockState::PendingFree => pending += block.size,
            BlockState::Active => {
                live += block.size;
                requested += block.requested.min(block.size);
            }
            BlockState::Inactive => {}
        }
    }
    let sample = nearest_sample(device, state.event);
    let reserved = Some(state.totals.reserved).filter(|_| has_segments || device.source_totals.reserved.is_known());
    let beyond = device.source_totals.beyond_parts(state.event, live);
    let cached = reserved.filter(|_| !has_segments).map(|r| r.saturating_sub(beyond.all() + live + pending));
    let outside = sample.and_then(|s| s.process).zip(reserved).map(|(p, reserved)| p.saturating_sub(reserved));
    // A profiler trace has whole blocks, and only the moment at which their memory becomes reusable.
    let tells_requested = has_segments && device.can_show.requested.is_known();
    let tells_pending = has_segments && !device.events.sizes_are_blocks;
    let total = device.capacity;
    let used = sample.and_then(|s| s.used);
    // If no sample has it, a failed request shows the free memory of the device.
    let free = total.zip(used).map(|(t, u)| t.saturating_sub(u)).or_else(|| device.events.device_free_known(state.event));
    let row = |part, bytes| Row { part, bytes };
    Waterfall {
        total,
        reserved,
        rows: [
            row(Part::DeviceFree, free),
            row(Part::Driver, sample.and_then(|s| s.driver)),
            row(Part::OtherProcesses, sample.and_then(|s| s.others)),
            row(Part::OutsidePytorch, outside),
        ]
        .into_iter()
        .chain(match cached {
            Some(cached) => vec![row(Part::Cached, Some(cached))],
            None => vec![
                row(Part::CachedWhole, has_segments.then_some(whole)),
                row(Part::CachedPinned, has_segments.then_some(pinned)),
            ],
        })
        .chain([
            row(Part::PendingFree, (tells_pending || pending > 0).then_some(pending)),
            row(Part::Rounding, tells_requested.then_some(live - requested)),
        ])
        .chain((beyond.before > 0).then(|| row(Part::Before, Some(beyond.before))))
        .chain((beyond.grew > 0).then(|| row(Part::Grew, Some(beyond.grew))))
        .chain([row(Part::Requested, Some(requested))])
        .collect(),
    }
}

/// A sample further away than this (µs) says nothing about an instant.
const FAR_US: u64 = 30_000_000;

fn nearest_sample(device: &DeviceRecording, event: u32) -> Option<&Sample> {
    let samples = &device.samples;
    let Some(&time) = device.events.time_us.get(event as usize) else { return samples.last() };
    let after = samples.partition_point(|s| s.time_us < time);
    let nearest = match (after.checked_sub(1).map(|i| &samples[i]), samples.get(after)) {
        (Some(a), Some(b)) => Some(if time - a.time_us <= b.time_us - time { a } else { b }),
        (a, b) => a.or(b),
    };
    // The samples may cover only a part of the recording.
    nearest.filter(|s| s.time_us.abs_diff(time) <= FAR_US)
}
