//! Rules about memory outside the caching allocator, and about memory that waits for the garbage collector.

use crate::diagnose::findings::{Class, Evidence, Finding, Place, RuleInput};
use crate::diagnose::leaks;
use crate::model::{Action, BlockState, DeviceKind, EventTable};
use crate::tables::{DeviceTables, Quantity};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Live memory that repeatedly grows over several steps and then falls: objects in reference cycles, freed by Python's collector.
pub(super) fn saw_tooth(p: &RuleInput<'_>) -> Vec<Finding> {
    let Some(saw) = leaks::saw_tooth(p.device, p.tables, &p.steps) else { return Vec::new() };
    let (number, height) = (saw.teeth.len(), saw.highest());
    let (Some(&(from, to, _)), Some(&(_, last, _))) = (saw.teeth.first(), saw.teeth.last()) else { return Vec::new() };
    let per_tooth = (last - to) / (number - 1).max(1);
    let event = |step: usize| p.steps.bounds.get(step).copied().unwrap_or_default();
    vec![Finding {
        rule: "saw_tooth",
        class: Class::Peak,
        title: "Memory grows for steps and falls at once".to_owned(),
        bytes: height,
        saving: None,
        sentence: format!(
            "{} is given back at once, {}, about every {}: objects in reference cycles live until Python's collector runs.",
            Bytes(height),
            counted(number as u64, "time", "times"),
            counted(per_tooth as u64, "step", "steps"),
        ),
        evidence: vec![
            Evidence::bytes("height of a tooth", height),
            Evidence::text("falls", count(number as u64)),
            Evidence::text("steps a tooth", count(per_tooth as u64)),
        ],
        place: Place { event: Some(event(to)), range: Some((event(from), event(to))), ..Place::default() },
        remedy: Some("from torch.utils.viz._cycles import warn_tensor_cycles; warn_tensor_cycles()".to_owned()),
        advice: "Find the cycle and break it: an exception that is kept, a closure that holds its own tensors, a module that points to its parent."
            .to_owned(),
        verify: "Memory after each step is the same, also with gc.disable().".to_owned(),
    }]
}

/// The driver's own pool (`backend:cudaMallocAsync`) holds unused memory.
pub(super) fn pool_retention(p: &RuleInput<'_>) -> Vec<Finding> {
    if p.device.settings.conf.other("backend") != Some("cudaMallocAsync") {
        return Vec::new();
    }
    let held = p.device.final_reserved();
    let used: u64 = p.device.blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
    let kept = held.saturating_sub(used);
    if kept < 256 * MEBIBYTE || kept * 2 < held {
        return Vec::new();
    }
    vec![Finding {
        rule: "pool_retention",
        class: Class::Structure,
        title: "The driver's pool keeps what was freed".to_owned(),
        bytes: kept,
        saving: None,
        sentence: format!(
            "{} of the {} in the driver's pool is free at the end; other processes cannot use it until it is trimmed.",
            Bytes(kept),
            Bytes(held)
        ),
        evidence: vec![Evidence::bytes("in the pool", held), Evidence::bytes("in use", used)],
        place: Place { event: Some(p.device.events.len().saturating_sub(1) as u32), ..Place::default() },
        remedy: Some(p.words.say("torch.cuda.empty_cache()").into_owned()),
        advice: "PyTorch sets the pool's release threshold so that it keeps everything; empty_cache trims it. Call it before memory is handed to another process, not in a loop."
            .to_owned(),
        verify: p.words.say("What nvidia-smi shows falls after the call.").into_owned(),
    }]
}

/// More pinned host memory than the card has in total; it is never released, and rounded to powers of two.
pub(super) fn pinned_host(p: &RuleInput<'_>) -> Vec<Finding> {
    if p.device.id.kind != DeviceKind::Cuda {
        return Vec::new();
    }
    let Some(host) = p.recording.devices.iter().find(|d| d.id.kind == DeviceKind::Host) else { return Vec::new() };
    let held = peak_of_segments(&host.events).max(host.final_reserved());
    let on_card = p.tables.curves.peak(Quantity::Reserved).0;
    if held < 1024 * MEBIBYTE || held < on_card {
        return Vec::new();
    }
    // A device's tables are cheap compared with the rules, and the requested bytes at the peak need lifetimes.
    let progress = crate::model::Progress::new();
    let asked = DeviceTables::build(host, &progress).map_or(held, |t| t.curves.peak(Quantity::Requested).0);
    vec![Finding {
        rule: "pinned_host",
        class: Class::Structure,
        title: "Pinned host memory".to_owned(),
        bytes: held,
        saving: None,
        sentence: format!(
            "{} of host memory is pinned for at most {} in use: requests are rounded up to powers of two, and what is freed stays pinned.",
            Bytes(held),
            Bytes(asked)
        ),
        evidence: vec![
            Evidence::bytes("pinned", held),
            Evidence::bytes("in use at most", asked),
            Evidence::bytes("reserved on the card", on_card),
        ],
        place: Place::default(),
        remedy: Some(p.words.say("PYTORCH_CUDA_ALLOC_CONF=pinned_use_cuda_host_register:True").into_owned()),
        advice: "Let batches be a little below a power of two, prefetch fewer (prefetch_factor), or pin in fewer loaders."
            .to_owned(),
        verify: "The host's free memory no longer falls while the card stays flat.".to_owned(),
    }]
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
pub(super) fn context(p: &RuleInput<'_>) -> Vec<Finding> {
    let outside = |s: &crate::model::Sample| Some(s.process?.saturating_sub(s.reserved.unwrap_or(0)));
    let Some(bytes) = p.device.samples.last().and_then(outside) else { return Vec::new() };
    // Live data have samples but no events.
    let sampled = p.device.samples.iter().filter_map(|s| s.reserved).max().unwrap_or(0);
    let reserved = p.tables.curves.peak(Quantity::Reserved).0.max(sampled);
    if !CONTEXT.contains(&bytes) || bytes < reserved.saturating_mul(2) {
        return Vec::new();
    }
    vec![Finding {
        rule: "context",
        class: Class::Hygiene,
        title: "The context is larger than the tensors".to_owned(),
        bytes,
        saving: None,
        sentence: format!(
            "This process takes {} of the card outside PyTorch, and PyTorch never reserved more than {}: {} shows the sum.",
            Bytes(bytes),
            Bytes(reserved),
            p.words.tool
        ),
        evidence: vec![Evidence::bytes("outside PyTorch", bytes), Evidence::bytes("peak reserved", reserved)],
        place: Place::default(),
        remedy: Some("CUDA_MODULE_LOADING=LAZY".to_owned()),
        advice: p.words.say("Each process pays for a context of its own: share one process between small jobs, and create no context where none is needed (CUDA_VISIBLE_DEVICES).")
            .into_owned(),
        verify: p.words.say("nvidia-smi lists fewer processes, or smaller ones.").into_owned(),
    }]
}
