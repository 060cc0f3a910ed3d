//! Rules about memory outside the caching allocator, and about memory that waits for the garbage collector.

use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::diagnose::leaks;
use crate::model::{Action, BlockState, DeviceKind, EventTable};
use crate::tables::{DeviceTables, Quantity};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Live memory that repeatedly grows over several steps and then falls: objects in reference cycles, freed by Python's collector.
pub(super) fn saw_tooth(p: &RuleInput<'_>) -> Option<Finding> {
    let saw = leaks::saw_tooth(p.device, p.tables, &p.steps)?;
    let (number, height) = (saw.teeth.len(), saw.highest());
    let (Some(&(from, to, _)), Some(&(_, last, _))) = (saw.teeth.first(), saw.teeth.last()) else { return None };
    let per_tooth = (last - to) / (number - 1).max(1);
    let event = |step: usize| p.steps.bounds.get(step).copied().unwrap_or_default();
    Finding::new("saw_tooth", Class::Peak, "Memory grows for steps and falls at once", height)
.says(format!(
            "{} is given back at once, {}, about every {}: objects in reference cycles live until Python's collector runs.",
            Bytes(height),
            counted(number as u64, "time", "times"),
            counted(per_tooth as u64, "step", "steps"),
        ))
.bytes_of("height of a tooth", height)
.shows("falls", count(number as u64))
.shows("steps a tooth", count(per_tooth as u64))
.at(Place { event: Some(event(to)), range: Some((event(from), event(to))), ..Place::default() })
.remedy("from torch.utils.viz._cycles import warn_tensor_cycles; warn_tensor_cycles()")
.advice("Find the cycle and break it: an exception that is kept, a closure that holds its own tensors, a module that points to its parent.")
.check("Memory after each step is the same, also with gc.disable().")
}

/// The driver's own pool (`backend:cudaMallocAsync`) holds unused memory.
pub(super) fn pool_retention(p: &RuleInput<'_>) -> Option<Finding> {
    if p.device.settings.conf.other("backend") != Some("cudaMallocAsync") {
        return None;
    }
    let held = p.device.final_reserved();
    let used: u64 = p.device.blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
    let kept = held.saturating_sub(used);
    if kept < 256 * MEBIBYTE || kept * 2 < held {
        return None;
    }
    Finding::new("pool_retention", Class::Structure, "The driver's pool keeps what was freed", kept)
.says(format!(
            "{} of the {} in the driver's pool is free at the end; other processes cannot use it until it is trimmed.",
            Bytes(kept),
            Bytes(held)
        ))
.bytes_of("in the pool", held)
.bytes_of("in use", used)
.at(Place { event: Some(p.device.events.len().saturating_sub(1) as u32), ..Place::default() })
.remedy(p.words.say("torch.cuda.empty_cache()"))
.advice("PyTorch sets the pool's release threshold so that it keeps everything; empty_cache trims it. Call it before memory is handed to another process, not in a loop.")
.check(p.words.say("What nvidia-smi shows falls after the call."))
}

/// More pinned host memory than the card has in total; it is never released, and rounded to powers of two.
pub(super) fn pinned_host(p: &RuleInput<'_>) -> Option<Finding> {
    if p.device.id.kind != DeviceKind::Cuda {
        return None;
    }
    let host = p.recording.devices.iter().find(|d| d.id.kind == DeviceKind::Host)?;
    let held = peak_of_segments(&host.events).max(host.final_reserved());
    let on_card = p.tables.curves.peak(Quantity::Reserved).0;
    if held < 1024 * MEBIBYTE || held < on_card {
        return None;
    }
    // A device's tables are cheap compared with the rules, and the requested bytes at the peak need lifetimes.
    let progress = crate::model::Progress::new();
    let asked = DeviceTables::build(host, &progress).map_or(held, |t| t.curves.peak(Quantity::Requested).0);
    Finding::new("pinned_host", Class::Structure, "Pinned host memory", held)
.says(format!(
            "{} of host memory is pinned for at most {} in use: requests are rounded up to powers of two, and what is freed stays pinned.",
            Bytes(held),
            Bytes(asked)
        ))
.bytes_of("pinned", held)
.bytes_of("in use at most", asked)
.bytes_of("reserved on the card", on_card)
.remedy(p.words.say("PYTORCH_CUDA_ALLOC_CONF=pinned_use_cuda_host_register:True"))
.advice("Let batches be a little below a power of two, prefetch fewer (prefetch_factor), or pin in fewer loaders.")
.check("The host's free memory no longer falls while the card stays flat.")
}

/// The highest sum of segments; pinned memory is never released.
fn peak_of_segments(events: &EventTable) -> u64 {
    let (mut now, mut peak) = (0u64, 0u64);
    for i in 0..events.len() {
        match events.action[i] {
            Action::SegmentAlloc | Action::SegmentMap => now += events.size[i],
            Action::SegmentFree | Action::SegmentUnmap => now = now.saturating_sub(events.size[i]),
            _ => {}
        }
        peak = peak.max(now);
    }
    peak
}

/// Bytes that contexts with their modules and libraries normally take (measured: 250 to 1,981 MiB). More is something else.
const CONTEXT: std::ops::RangeInclusive<u64> = 128 * MEBIBYTE..=2048 * MEBIBYTE;

/// Most of this process's memory on the card is outside PyTorch, usually its context.
pub(super) fn context(p: &RuleInput<'_>) -> Option<Finding> {
    let outside = |s: &crate::model::Sample| Some(s.process?.saturating_sub(s.reserved.unwrap_or(0)));
    let bytes = p.device.samples.last().and_then(outside)?;
    // Live data have samples but no events.
    let sampled = p.device.samples.iter().filter_map(|s| s.reserved).max().unwrap_or(0);
    let reserved = p.tables.curves.peak(Quantity::Reserved).0.max(sampled);
    if !CONTEXT.contains(&bytes) || bytes < reserved.saturating_mul(2) {
        return None;
    }
    Finding::new("context", Class::Hygiene, "The context is larger than the tensors", bytes)
.says(format!(
            "This process takes {} of the card outside PyTorch, and PyTorch never reserved more than {}: {} shows the sum.",
            Bytes(bytes),
            Bytes(reserved),
            p.words.tool
        ))
.bytes_of("outside PyTorch", bytes)
.bytes_of("peak reserved", reserved)
.remedy("CUDA_MODULE_LOADING=LAZY")
.advice(p.words.say("Each process pays for a context of its own: share one process between small jobs, and create no context where none is needed (CUDA_VISIBLE_DEVICES)."))
.check(p.words.say("nvidia-smi lists fewer processes, or smaller ones."))
}
