//! The rules. Each looks at one thing, and says nothing when its numbers are small.

use rustc_hash::FxHashMap;

use super::{Class, Evidence, Finding, Patient, Place, beside};
use crate::analysis::leaks::growth;
use crate::analysis::oom::Verdict;
use crate::analysis::{LifetimeId, NO_EVENT, Quantity, own_frame};
use crate::model::{Action, BlockState, StackId};
use crate::units::{Bytes, MEBIBYTE, count, counted};

type Rule = fn(&Patient<'_>) -> Vec<Finding>;

/// Every rule, in no particular order: findings are ranked by class and bytes.
pub(super) const ALL: &[Rule] = &[
    out_of_memory,
    leak,
    variable_sizes,
    slivers,
    copies,
    private_pools,
    pending,
    retries,
    rounding,
    spike,
    beside::saw_tooth,
    beside::pool_retention,
    beside::pinned_host,
    beside::context,
    no_history,
];

/// A request failed.
fn out_of_memory(p: &Patient<'_>) -> Vec<Finding> {
    p.ooms
        .iter()
        .map(|a| {
            let (title, advice, remedy) = match a.verdict {
                Verdict::Fragmentation => (
                    "Out of memory: no hole fits",
                    "Expandable segments let free memory grow together instead of lying in pieces. Check with What-if that they help here: \
                     when they do not, max_split_size_mb keeps small blocks out of large segments.",
                    Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned()),
                ),
                Verdict::Cap => (
                    "Out of memory: the process's own cap",
                    "set_per_process_memory_fraction, or per_process_memory_fraction in the settings, stops this process long before the device is full. Raise it.",
                    Some("torch.cuda.set_per_process_memory_fraction(1.0)".to_owned()),
                ),
                Verdict::Capacity => (
                    "Out of memory: the device is full",
                    "Hold less at that instant: a smaller batch with accumulation, activation checkpointing, or sharding. The largest stacks are listed.",
                    None,
                ),
                Verdict::Contention => ("Out of memory: others hold the device", "Stop the other processes, or choose another device.", None),
                Verdict::NonPytorch => (
                    "Out of memory: memory outside PyTorch",
                    "Look for NCCL communicators, captured graphs and libraries that call cudaMalloc themselves.",
                    None,
                ),
                Verdict::TooLarge => ("Out of memory: too large for this device", "This one request is larger than the device. Split it.", None),
                Verdict::Unknown => ("Out of memory", "Look at what was live at that instant.", None),
            };
            let mut evidence = vec![
                Evidence::bytes("request", a.requested).red(),
                Evidence::bytes(&format!("largest of {}", counted(a.holes.count, "hole", "holes")), a.holes.largest),
                Evidence::bytes("free on the device", a.device_free),
                Evidence::bytes("reserved", a.reserved),
            ];
            if let Some(way) = &a.way_out {
                evidence.push(Evidence::text("cheapest way out", format!("{} in {}", Bytes(way.bytes), counted(way.blocks.len() as u64, "block", "blocks"))));
            }
            Finding {
                rule: "out_of_memory",
                class: Class::OutOfMemory,
                title: title.to_owned(),
                bytes: if a.verdict == Verdict::Fragmentation { a.holes.bytes } else { a.requested },
                sentence: a.sentence.clone(),
                evidence,
                place: Place { event: Some(a.event), stack: a.stack.is_some().then_some(a.stack), ..Place::default() },
                remedy,
                advice: advice.to_owned(),
                verify: "Run to the same step: no out-of-memory event is recorded.".to_owned(),
            }
        })
        .collect()
}

/// Memory that survives its step, step after step.
fn leak(p: &Patient<'_>) -> Vec<Finding> {
    let grown: Vec<_> = growth(p.device, p.tables, &p.steps).into_iter().filter(|g| g.is_leak()).collect();
    let bytes: u64 = grown.iter().map(|g| g.bytes).sum();
    let peak = p.tables.curves.peak(Quantity::Requested).0;
    // Growth that would take thousands of steps to matter is not worth a line.
    if grown.is_empty() || bytes < MEBIBYTE || bytes * 50 < peak {
        return Vec::new();
    }
    let first = &grown[0];
    let slope: f64 = grown.iter().map(|g| g.bytes_per_step).sum();
    let what = if p.steps.is_empty() { "stretch of the recording" } else { "step" };
    vec![Finding {
        rule: "leak",
        class: Class::Leak,
        title: "Memory grows with every step".to_owned(),
        bytes,
        sentence: format!(
            "{} allocated at {} {} still live at the end: each {what} adds {}. Something keeps them, most often a list of losses or outputs with their graphs.",
            counted(grown.iter().map(|g| g.count).sum(), "block", "blocks"),
            p.names.of_stack(first.stack),
            if first.count == 1 { "is" } else { "are" },
            Bytes(slope as u64),
        ),
        evidence: vec![
            Evidence::bytes(&format!("a {what} adds"), slope as u64).red(),
            Evidence::text("steps that add", format!("{} of {}", first.steps_adding, first.steps)),
            Evidence::text("fit of a line", format!("{:.3}", first.confidence)),
            Evidence::text("call stacks", count(grown.len() as u64)),
        ],
        place: Place {
            event: Some(p.device.events.len().saturating_sub(1) as u32),
            range: None,
            stack: Some(first.stack),
            lifetimes: first.examples.clone(),
        },
        remedy: Some("total_loss += loss.item()".to_owned()),
        advice: "Keep numbers, not tensors: loss.item() or loss.detach(); drop lists of outputs before the next step.".to_owned(),
        verify: "The slope is zero: memory after each step is the same.".to_owned(),
    }]
}

/// Reserved memory far above what was ever used, built up by requests of ever new sizes.
fn variable_sizes(p: &Patient<'_>) -> Vec<Finding> {
    let (reserved, at) = p.tables.curves.peak(Quantity::Reserved);
    let active = p.tables.curves.peak(Quantity::Active).0;
    let unused = reserved.saturating_sub(active);
    if reserved < 256 * MEBIBYTE || unused * 100 < reserved * 20 {
        return Vec::new();
    }
    let mut sizes = rustc_hash::FxHashSet::default();
    let (mut late, mut new_late) = (0u64, 0u64);
    let n = p.device.events.len();
    for i in 0..n {
        match p.device.events.action[i] {
            Action::Alloc if p.device.events.size[i] > MEBIBYTE => {
                if sizes.insert(p.device.events.size[i]) && i > n / 2 {
                    new_late += 1;
                }
            }
            Action::SegmentAlloc | Action::SegmentMap if i > n / 3 => late += 1,
            _ => {}
        }
    }
    // Fixed shapes repeat after the first steps; lengths that vary keep bringing new sizes.
    if sizes.len() < 60 || new_late < 10 || late < 3 {
        return Vec::new();
    }
    vec![Finding {
        rule: "variable_sizes",
        class: Class::Structure,
        title: "Reserved and never used".to_owned(),
        bytes: unused,
        sentence: format!(
            "{} is reserved at the peak and at most {} was ever in use: requests came in {} sizes over 1 MiB, and each new largest one took new segments.",
            Bytes(reserved),
            Bytes(active),
            count(sizes.len() as u64),
        ),
        evidence: vec![
            Evidence::bytes("peak reserved", reserved),
            Evidence::bytes("peak active", active),
            Evidence::text("sizes over 1 MiB", count(sizes.len() as u64)),
            Evidence::text("segments after the first third", count(late)),
        ],
        place: Place { event: Some(at), ..Place::default() },
        remedy: Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned()),
        advice: "Also: pad or bucket lengths to a multiple of 64 or 128, and warm up with the longest batch first.".to_owned(),
        verify: "Peak reserved comes down to peak active; segment_alloc events stop after warm-up.".to_owned(),
    }]
}

/// Segments that are nearly empty but for small long-lived blocks.
fn slivers(p: &Patient<'_>) -> Vec<Finding> {
    let (_, at) = p.tables.curves.peak(Quantity::Reserved);
    let end = p.device.events.len().saturating_sub(1) as u32;
    let mut best: Option<(u64, u64, usize, u32, Vec<LifetimeId>)> = None;
    for event in [at, end] {
        let state = p.tables.states.at(p.device, &p.tables.lifetimes, event);
        let (mut pinned, mut live, mut segments, mut lifetimes) = (0u64, 0u64, 0usize, Vec::new());
        for s in state.segments.iter().filter(|s| !s.is_expandable && s.size >= 20 * MEBIBYTE) {
            let blocks = state.blocks_of(s);
            let used: u64 = blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.size).sum();
            if used > 0 && used * 5 <= s.size {
                pinned += s.size - used;
                live += used;
                segments += 1;
                lifetimes.extend(blocks.iter().filter(|b| b.state != BlockState::Inactive).map(|b| b.lifetime));
            }
        }
        if best.as_ref().is_none_or(|b| pinned > b.0) {
            best = Some((pinned, live, segments, event, lifetimes));
        }
    }
    let Some((pinned, live, segments, event, lifetimes)) = best else { return Vec::new() };
    let reserved = p.tables.curves.peak(Quantity::Reserved).0;
    if pinned < 128 * MEBIBYTE || pinned * 10 < reserved * 3 {
        return Vec::new();
    }
    let stack = lifetimes.first().map(|&l| p.tables.lifetimes.stack(p.device, l)).filter(|s| s.is_some());
    vec![Finding {
        rule: "pinned_segments",
        class: Class::Structure,
        title: "Slivers pin large segments".to_owned(),
        bytes: pinned,
        sentence: format!(
            "{} of live blocks keep {} from being given back: {} are less than a fifth full.",
            Bytes(live),
            Bytes(pinned),
            counted(segments as u64, "segment", "segments"),
        ),
        evidence: vec![
            Evidence::bytes("live in them", live),
            Evidence::bytes("free in them", pinned),
            Evidence::text("segments", count(segments as u64)),
            Evidence::text("live blocks", count(lifetimes.len() as u64)),
        ],
        place: Place { event: Some(event), stack, lifetimes, ..Place::default() },
        remedy: Some("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128".to_owned()),
        advice: "Allocate what lives long before the large short-lived buffers, or try expandable_segments:True.".to_owned(),
        verify: "Free memory inside reserved memory falls at the same instant.".to_owned(),
    }]
}

/// One place that allocates again and again in growing sizes: a buffer that is copied to grow.
fn copies(p: &Patient<'_>) -> Vec<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let total = lifetimes.len() - lifetimes.initial_count();
    if total < 500 {
        return Vec::new();
    }
    struct Place2 {
        number: u64,
        bytes: u64,
        sizes: rustc_hash::FxHashSet<u64>,
        stack: StackId,
    }
    let mut places: FxHashMap<Option<crate::model::FrameId>, Place2> = FxHashMap::default();
    let mut all = 0u64;
    for i in lifetimes.initial_count() as u32..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let stack = lifetimes.stack(p.device, id);
        let size = lifetimes.requested(p.device, id);
        all += size;
        let place = places.entry(own_frame(&p.recording.stacks, stack)).or_insert_with(|| Place2 {
            number: 0,
            bytes: 0,
            sizes: rustc_hash::FxHashSet::default(),
            stack,
        });
        place.number += 1;
        place.bytes += size;
        if place.sizes.len() < 10_000 {
            place.sizes.insert(size);
        }
    }
    let peak = p.tables.curves.peak(Quantity::Requested).0;
    let Some((Some(_), top)) = places.into_iter().max_by_key(|(_, x)| x.bytes) else { return Vec::new() };
    let dominates = top.bytes * 10 >= all * 8 && top.number * 10 >= total as u64 * 8;
    if !dominates || top.sizes.len() < 50 || top.bytes < peak.saturating_mul(8) {
        return Vec::new();
    }
    vec![Finding {
        rule: "grows_by_copy",
        class: Class::Peak,
        title: "Every step copies to grow".to_owned(),
        bytes: top.bytes,
        sentence: format!(
            "{} made {} of {} allocations in {} sizes, {} in all for a peak of {}. Preallocate the buffer and write into it.",
            p.names.of_stack(top.stack),
            count(top.number),
            count(total as u64),
            count(top.sizes.len() as u64),
            Bytes(top.bytes),
            Bytes(peak),
        ),
        evidence: vec![
            Evidence::text("allocations", count(top.number)),
            Evidence::text("sizes", count(top.sizes.len() as u64)),
            Evidence::bytes("allocated in all", top.bytes),
            Evidence::bytes("peak", peak),
        ],
        place: Place { event: Some(p.peak_event), stack: Some(top.stack), ..Place::default() },
        remedy: None,
        advice: "torch.cat of a growing cache holds the old and the new copy at once and leaves a hole of a new size behind each time.".to_owned(),
        verify: "The number of sizes falls to a few.".to_owned(),
    }]
}

/// Private pools: memory that only a CUDA graph or a MemPool can use.
fn private_pools(p: &Patient<'_>) -> Vec<Finding> {
    let state = p.tables.states.at(p.device, &p.tables.lifetimes, p.device.events.len().saturating_sub(1) as u32);
    let mut bytes = 0u64;
    let mut free = 0u64;
    let mut pools = std::collections::BTreeSet::new();
    for s in &state.segments {
        if let Some(key) = p.device.pool_key(s.pool).filter(|&k| k != (0, 0)) {
            bytes += s.size;
            pools.insert(key);
            free += state.blocks_of(s).iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>();
        }
    }
    let reserved = state.totals.reserved;
    if free < 256 * MEBIBYTE || free * 5 < reserved {
        return Vec::new();
    }
    vec![Finding {
        rule: "private_pools",
        class: Class::Structure,
        title: "Private pools hold free memory".to_owned(),
        bytes: free,
        sentence: format!(
            "{} hold {}, of which {} is free; only their own CUDA graphs can use it, and empty_cache does not give it back.",
            counted(pools.len() as u64, "private pool", "private pools"),
            Bytes(bytes),
            Bytes(free),
        ),
        evidence: vec![Evidence::bytes("in private pools", bytes), Evidence::bytes("free in them", free)],
        place: Place { event: Some(state.event), ..Place::default() },
        remedy: None,
        advice: "Capture fewer sizes, let graphs share a pool, or use mode=\"default\" with torch.compile.".to_owned(),
        verify: "Bytes in private pools fall.".to_owned(),
    }]
}

/// Freed by the program and still waiting for another stream.
fn pending(p: &Patient<'_>) -> Vec<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let n = p.device.events.len() as u32;
    // A free completes in the next event unless something holds it back.
    let mut changes: Vec<(u32, bool, u64)> = Vec::new();
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let (asked, gone) = (lifetimes.free_requested(id), lifetimes.gone(id));
        if asked != NO_EVENT && gone.saturating_sub(asked) > 8 {
            changes.push((asked, true, lifetimes.block_size(id)));
            changes.push((gone.min(n), false, lifetimes.block_size(id)));
        }
    }
    changes.sort_unstable();
    let (mut now, mut waiting, mut at) = (0u64, 0u64, 0u32);
    for (event, starts, size) in changes {
        now = if starts { now + size } else { now.saturating_sub(size) };
        if now > waiting {
            (waiting, at) = (now, event);
        }
    }
    let peak = p.tables.curves.peak(Quantity::Active).0;
    if waiting < 64 * MEBIBYTE || waiting * 20 < peak {
        return Vec::new();
    }
    vec![Finding {
        rule: "pending_free",
        class: Class::Structure,
        title: "Freed, but waiting for a stream".to_owned(),
        bytes: waiting,
        sentence: format!(
            "{} had been freed by the program and could not be reused yet, because another stream might still read it (record_stream).",
            Bytes(waiting)
        ),
        evidence: vec![Evidence::bytes("waiting at most", waiting), Evidence::bytes("peak active", peak)],
        place: Place { event: Some(at), ..Place::default() },
        remedy: Some("TORCH_NCCL_AVOID_RECORD_STREAMS=1".to_owned()),
        advice: "For FSDP1 also limit_all_gathers=True; FSDP2 does not need it.".to_owned(),
        verify: "Active and allocated memory stay together.".to_owned(),
    }]
}

/// The cache thrown away and built again, over and over.
fn retries(p: &Patient<'_>) -> Vec<Finding> {
    let events = &p.device.events;
    let (mut bursts, mut bytes, mut last, mut first_event) = (0u64, 0u64, None::<usize>, 0u32);
    for i in 0..events.len() {
        if events.action[i].shrinks_reserved() {
            bytes += events.size[i];
            if last.is_none_or(|l| i - l > 8) {
                bursts += 1;
                if bursts == 1 {
                    first_event = i as u32;
                }
            }
            last = Some(i);
        }
    }
    let steps = p.steps.len() as u64;
    if bursts < 5 || (steps > 0 && bursts * 2 < steps) {
        return Vec::new();
    }
    vec![Finding {
        rule: "cache_flushes",
        class: Class::Structure,
        title: "The cache is emptied again and again".to_owned(),
        bytes,
        sentence: format!(
            "Segments went back to the device in {} bursts, {} in all, and were taken again: each one stops the GPU.",
            count(bursts),
            Bytes(bytes)
        ),
        evidence: vec![Evidence::text("bursts", count(bursts)), Evidence::bytes("given back in all", bytes)],
        place: Place { event: Some(first_event), ..Place::default() },
        remedy: None,
        advice: "Leave a tenth of the device free (a smaller batch), and remove calls of torch.cuda.empty_cache() from the loop."
            .to_owned(),
        verify: "No segment_free after warm-up; steps are faster.".to_owned(),
    }]
}

/// Blocks larger than what was asked for.
fn rounding(p: &Patient<'_>) -> Vec<Finding> {
    let (mut block, mut asked, mut number) = (0u64, 0u64, 0u64);
    for b in p.at_peak.blocks.iter().filter(|b| b.state == BlockState::Active) {
        block += b.size;
        asked += b.requested.min(b.size);
        number += 1;
    }
    let lost = block - asked;
    let share = lost as f64 / block.max(1) as f64;
    let failed = !p.ooms.is_empty();
    let matters = if failed { lost > 16 * MEBIBYTE && share > 0.02 } else { lost > 512 * MEBIBYTE && share > 0.1 };
    if !matters || p.device.events.sizes_are_blocks {
        return Vec::new();
    }
    vec![Finding {
        rule: "rounding",
        class: Class::Hygiene,
        title: "Rounded up, never used".to_owned(),
        bytes: lost,
        sentence: format!(
            "{} hold {:.1} % more than was asked for. Remainders up to 1 MiB are not split off large blocks.",
            counted(number, "live block", "live blocks"),
            share * 100.0
        ),
        evidence: vec![Evidence::bytes("in blocks", block), Evidence::bytes("asked for", asked)],
        place: Place { event: Some(p.peak_event), ..Place::default() },
        remedy: None,
        advice: "Fewer, larger tensors; drop roundup_power2_divisions if it is set; expandable segments split to 512 bytes."
            .to_owned(),
        verify: "Allocated and requested memory come together.".to_owned(),
    }]
}

/// One short-lived block that makes the peak.
fn spike(p: &Patient<'_>) -> Vec<Finding> {
    let (peak, at) = p.tables.curves.peak(Quantity::Active);
    let Some(block) = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive).max_by_key(|b| b.size) else {
        return Vec::new();
    };
    let life = p.tables.lifetimes.get(p.device, block.lifetime);
    let Some(life) = life.filter(|l| l.born != NO_EVENT && l.gone != NO_EVENT) else { return Vec::new() };
    let lived = life.gone - life.born;
    let n = p.device.events.len() as u32;
    let typical = if p.steps.is_empty() { n } else { n / p.steps.len() as u32 };
    if block.size < 256 * MEBIBYTE || block.size * 3 < peak || lived * 10 > typical {
        return Vec::new();
    }
    vec![Finding {
        rule: "spike",
        class: Class::Peak,
        title: "One block makes the peak".to_owned(),
        bytes: block.size,
        sentence: format!(
            "{} of the {} at the peak is one block from {}, live for {} only.",
            Bytes(block.size),
            Bytes(peak),
            p.names.of_stack(life.stack),
            counted(u64::from(lived), "event", "events")
        ),
        evidence: vec![Evidence::bytes("the block", block.size), Evidence::bytes("peak active", peak)],
        place: Place {
            event: Some(at),
            stack: life.stack.is_some().then_some(life.stack),
            lifetimes: vec![life.id],
            range: None,
        },
        remedy: None,
        advice: "Compute it in chunks. For logits over a large vocabulary use a fused linear cross entropy.".to_owned(),
        verify: "The peak falls by about the block's size.".to_owned(),
    }]
}

/// A snapshot without its history.
fn no_history(p: &Patient<'_>) -> Vec<Finding> {
    if !p.device.events.is_empty() || p.device.segments.is_empty() || p.recording.devices.iter().any(|d| !d.events.is_empty()) {
        return Vec::new();
    }
    vec![Finding {
        rule: "no_history",
        class: Class::Hygiene,
        title: "No history was recorded".to_owned(),
        bytes: p.device.final_reserved(),
        sentence: "The file holds the state at the end and no events, so nothing can be said about how it came about.".to_owned(),
        evidence: vec![Evidence::bytes("reserved at the end", p.device.final_reserved())],
        place: Place::default(),
        remedy: Some("torch.cuda.memory._record_memory_history(max_entries=100_000)".to_owned()),
        advice: "Call it before the model is built, and dump before recording is switched off.".to_owned(),
        verify: "The number of events is not zero.".to_owned(),
    }]
}
