//! How memory is held: cache, pools, segments that cannot be released, host memory.

use super::copies::left_behind;
use super::kept::ends_with_graph;
use crate::anatomy::roles::Role;
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::{Action, BlockState, DeviceKind};
use crate::tables::{LifetimeId, NO_EVENT, Quantity, SegmentAt};
use crate::units::{Bytes, GIBIBYTE, MEBIBYTE, count, counted};

/// Free memory in private pools after an event. Graphs hold it, so rules about unused memory leave it out. O(blocks).
fn free_in_private_pools(p: &RuleInput<'_>, event: u32) -> u64 {
    if p.device.pools.iter().all(|&key| key == (0, 0)) {
        return 0;
    }
    let state = p.tables.states.at(p.device, &p.tables.lifetimes, event);
    let is_private = |s: &&SegmentAt| p.device.pool_key(s.pool).is_some_and(|key| key != (0, 0));
    let blocks = state.segments.iter().filter(is_private).flat_map(|s| state.blocks_of(s));
    blocks.filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum()
}

/// Reports that reserved memory is far above the most ever in use, because requests keep coming in new sizes.
pub(super) fn variable_sizes(p: &RuleInput<'_>) -> Option<Finding> {
    let found = NeverUsed::of(p).filter(|f| f.is_by_sizes(p) && left_behind(p).is_none())?;
    let sizes = &found.sizes;
    let (many, behind) = (counted(sizes.seen.len() as u64, "size", "sizes"), sizes.behind_most_segments());
    found.finding("variable_sizes", &format!("requests came in {many} over 1 MiB{behind}"))
}

/// The same with few sizes: freed memory left gaps that later requests did not fit into.
pub(super) fn unfilled_gaps(p: &RuleInput<'_>) -> Option<Finding> {
    let found = NeverUsed::of(p).filter(|f| !f.is_by_sizes(p))?;
    if found.unused < 2 * GIBIBYTE || slivers(p).is_some() {
        return None;
    }
    found.finding("unfilled_gaps", "the rest is gaps that later requests did not fit into")
}

/// Reserved memory at its peak, compared with the most ever in use.
pub(super) struct NeverUsed {
    reserved: u64,
    /// The event of the reserved peak.
    event: u32,
    active: u64,
    /// Bytes reserved during the recording and never in use.
    unused: u64,
    sizes: Sizes,
}

impl NeverUsed {
    /// `None` if it is little; if it was reserved before the recording and may have been in use then; or if captured graphs hold
    /// it, because they keep what they free, whatever the sizes.
    pub(super) fn of(p: &RuleInput<'_>) -> Option<Self> {
        let (reserved, event) = p.tables.curves.settled_peak(p.device, Quantity::Reserved);
        let active = p.tables.curves.peak(Quantity::Active).0;
        let unused = reserved.saturating_sub(active.max(p.tables.curves.start(Quantity::Reserved)));
        // From 8 GiB on, a smaller share is worth a finding.
        let share = |unused: u64| if unused >= 8 * GIBIBYTE { 15 } else { 20 };
        let is_much = |unused: u64| reserved >= 256 * MEBIBYTE && unused * 100 >= reserved * share(unused);
        let is_found = is_much(unused) && is_much(unused.saturating_sub(free_in_private_pools(p, event)));
        is_found.then(|| NeverUsed { reserved, event, active, unused, sizes: Sizes::of(p) })
    }

    fn is_by_sizes(&self, p: &RuleInput<'_>) -> bool {
        // Few sizes can cause it too, if each is larger than the last.
        let is_most = || self.unused >= GIBIBYTE && self.unused * 2 >= self.reserved && slivers(p).is_none();
        self.sizes.vary() || !self.sizes.seen.is_empty() && is_most()
    }

    /// Bytes that were reserved but never in use.
    pub(super) fn bytes(&self) -> u64 {
        self.reserved - self.active
    }

    /// A sentence without its full stop.
    pub(super) fn says(&self) -> String {
        let (reserved, active) = (Bytes(self.reserved), Bytes(self.active));
        format!("At most {reserved} was reserved, and at most {active} of it was ever in use")
    }

    fn finding(&self, rule: &'static str, why: &str) -> Option<Finding> {
        Finding::new(rule, Class::Structure, "Reserved and never used", self.bytes())
            .says(format!("{}: {why}.", self.says()))
            .bytes_of("peak reserved", self.reserved)
            .bytes_of("peak active", self.active)
            .shows("sizes over 1 MiB", count(self.sizes.seen.len() as u64))
            .shows("segments after the first third", count(self.sizes.late_segments))
            .shows("segments for a size not seen before", self.sizes.for_new())
            .at(Place { event: Some(self.event), ..Place::default() })
            .advice(super::settings::untried(rule))
            .check("Peak reserved comes down to peak active; segment_alloc events stop after warm-up.")
    }
}

/// The requested sizes above 1 MiB, and the segments allocated for them.
#[derive(Default)]
struct Sizes {
    seen: rustc_hash::FxHashSet<u64>,
    /// Number of sizes first requested in the second half of the recording.
    new_late: u64,
    segments: u64,
    /// Number of segments allocated after the first third of the recording.
    late_segments: u64,
    /// Number of segments whose first block has a size not requested before.
    segments_for_new: u64,
}

impl Sizes {
    fn of(p: &RuleInput<'_>) -> Self {
        let (events, n) = (&p.device.events, p.device.events.len());
        let mut sizes = Sizes::default();
        let mut is_fresh = false;
        for i in 0..n {
            match events.action[i] {
                Action::Alloc => {
                    let is_new = events.size[i] > MEBIBYTE && sizes.seen.insert(events.size[i]);
                    sizes.new_late += u64::from(is_new && i > n / 2);
                    sizes.segments_for_new += u64::from(is_new && is_fresh);
                    is_fresh = false;
                }
                Action::SegmentAlloc | Action::SegmentMap => {
                    sizes.late_segments += u64::from(i > n / 3);
                    sizes.segments += 1;
                    is_fresh = true;
                }
                _ => {}
            }
        }
        sizes
    }

    /// Fixed shapes repeat after the first steps; varying lengths keep bringing new sizes.
    fn vary(&self) -> bool {
        self.seen.len() >= 60 && self.new_late >= 10 && self.late_segments >= 3
    }

    fn for_new(&self) -> String {
        format!("{} of {}", count(self.segments_for_new), counted(self.segments, "segment", "segments"))
    }

    /// Says that new sizes caused the segments, but only if they caused most of them.
    fn behind_most_segments(&self) -> String {
        let is_cause = self.segments_for_new * 2 > self.segments;
        if is_cause { format!(", and {} were taken for a size that was new", self.for_new()) } else { String::new() }
    }
}

/// Reports segments that are nearly empty except for small long-lived blocks.
pub(super) fn slivers(p: &RuleInput<'_>) -> Option<Finding> {
    const FAILURES: usize = 8;
    let (_, at) = p.tables.curves.settled_peak(p.device, Quantity::Reserved);
    let end = p.device.events.len().saturating_sub(1) as u32;
    let mut best: Option<(u64, u64, usize, u32, Vec<LifetimeId>)> = None;
    let (mut at_peak, mut at_failure) = (0, 0);
    // The last failures; at one of them the memory may have been pinned.
    let failures: Vec<u32> = p.ooms.iter().rev().take(FAILURES).map(|a| a.event).collect();
    for event in [at, end, p.peak_event].into_iter().chain(failures.iter().copied()) {
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
        if event == p.peak_event {
            at_peak = pinned;
        }
        if failures.contains(&event) {
            at_failure = at_failure.max(pinned);
        }
        if best.as_ref().is_none_or(|b| pinned > b.0) {
            best = Some((pinned, live, segments, event, lifetimes));
        }
    }
    let (pinned, live, segments, event, lifetimes) = best?;
    let reserved = p.tables.curves.peak(Quantity::Reserved).0;
    // If the peak uses that room again, and failed requests found it in use, it costs nothing.
    let costs_nothing = at_peak * 4 < pinned && at_failure * 4 < pinned;
    if pinned < 128 * MEBIBYTE || pinned * 10 < reserved * 3 || costs_nothing {
        return None;
    }
    let stack = lifetimes.first().map(|&l| p.tables.lifetimes.stack(p.device, l)).filter(|s| s.is_some());
    Finding::new("pinned_segments", Class::Structure, "Small tensors keep large segments reserved", pinned)
        .says(format!(
            "At event {}, {} of live blocks keep {} of free memory from going back to the device: {} less than a fifth full.",
            count(u64::from(event)),
            Bytes(live),
            Bytes(pinned),
            counted(segments as u64, "segment is", "segments are"),
        ))
        .bytes_of("live in them", live)
        .bytes_of("free in them", pinned)
        .shows("segments", count(segments as u64))
        .shows("live blocks", count(lifetimes.len() as u64))
        .at(Place { event: Some(event), stack, lifetimes, ..Place::default() })
        .advice(super::settings::untried("pinned_segments"))
        .check("Free memory inside reserved memory falls at the same instant.")
}

/// Reports private pools: memory that only a CUDA graph or a MemPool can use.
pub(super) fn private_pools(p: &RuleInput<'_>) -> Option<Finding> {
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
    let number = pools.len() as u64;
    let is_idle = free >= 256 * MEBIBYTE && free * 5 >= reserved;
    let share = p.device.capacity.map_or(bytes * 5 >= reserved, |all| bytes * 20 >= all);
    let is_many = number >= MANY_POOLS && bytes >= 256 * MEBIBYTE && share;
    if !is_idle && !is_many {
        return None;
    }
    let held = format!(
        "{} {} {}, of which {} is free",
        counted(number, "private pool", "private pools"),
        if number == 1 { "holds" } else { "hold" },
        Bytes(bytes),
        Bytes(free),
    );
    let (title, sentence) = if is_idle {
        let whose = if number == 1 { "its own CUDA graphs" } else { "their own CUDA graphs" };
        ("Private pools hold free memory", format!("{held}; only {whose} can use it, and empty_cache does not give it back."))
    } else {
        let sentence =
            format!("{held}; each stays with the CUDA graphs captured into it. That is no leak: it ends with the last capture.");
        ("Private pools of captured graphs", sentence)
    };
    Finding::new("private_pools", Class::Structure, title, if is_idle { free } else { bytes })
        .says(sentence)
        .shows("private pools", count(number))
        .bytes_of("in private pools", bytes)
        .bytes_of("free in them", free)
        .at(Place { event: Some(state.event), ..Place::default() })
        .advice("Capture fewer sizes (cudagraph_capture_sizes in vLLM), let graphs share a pool, or use mode=\"default\" with torch.compile.")
        .check("Bytes in private pools fall.")
}

/// Number of private pools that is reported even if nothing in them is free, for example one graph per batch size.
const MANY_POOLS: u64 = 8;

/// Reports memory that the program has freed but another stream still uses.
pub(super) fn pending(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let n = p.device.events.len() as u32;
    // A free completes in the next event unless something delays it.
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
        return None;
    }
    Finding::new("pending_free", Class::Structure, "Freed, but waiting for a stream", waiting)
.says(format!(
            "{} had been freed by the program and could not be reused yet, because another stream might still read it (record_stream).",
            Bytes(waiting)
        ))
.bytes_of("waiting at most", waiting)
.bytes_of("peak active", peak)
.at(Place { event: Some(at), ..Place::default() })
.remedy(p.words.say("TORCH_NCCL_AVOID_RECORD_STREAMS=1"))
.advice("For FSDP1 also limit_all_gathers=True; FSDP2 does not need it.")
.check("Active and allocated memory stay together.")
}

/// Reports reserved but unused memory: the difference between nvidia-smi and `memory_allocated`.
pub(super) fn idle_cache(p: &RuleInput<'_>) -> Option<Finding> {
    let n = p.device.events.len() as u32;
    let (idle, reserved, used, range) = (match n {
        0 => idle_in_state(p),
        n if n >= 100 && p.ooms.is_empty() && !ends_with_graph(p) => idle_for_good(p, n),
        _ => None,
    })?;
    // Memory that was never in use at once is a matter of sizes, not of a cache that was needed before.
    let was_used = range.is_none() || p.tables.curves.peak(Quantity::Active).0.saturating_mul(2) > reserved;
    let is_much = idle.saturating_mul(2) >= reserved || (idle >= 2 * GIBIBYTE && idle.saturating_mul(4) >= reserved);
    if idle < GIBIBYTE || !is_much || !was_used {
        return None;
    }
    let (title, when) = match range {
        Some(_) => (
            "Reserved and not used any more",
            format!(
                "Over the last half of the recording PyTorch held at least {} and used at most {}",
                Bytes(reserved),
                Bytes(used)
            ),
        ),
        None => (
            "Reserved and not used when the file was written",
            format!("When the file was written PyTorch held {} and used {}", Bytes(reserved), Bytes(used)),
        ),
    };
    Finding::new("idle_cache", Class::Structure, title, idle)
        .says(format!("{when}. {} counts the first, memory_allocated the second; nothing is leaked.", p.words.tool))
        .bytes_of(if range.is_some() { "reserved at least" } else { "reserved" }, reserved)
        .bytes_of(if range.is_some() { "used at most" } else { "used" }, used)
        .at(Place { event: range.map(|r| r.1), range, ..Place::default() })
        .remedy(p.words.say("torch.cuda.empty_cache()"))
        .advice("Only to hand the memory to another process: PyTorch itself uses its cache again.")
        .check(p.words.say("Memory in nvidia-smi falls by the segments that are wholly free."))
}

/// Idle, reserved and used bytes, and the range of events (`None` for a state without history).
type Idle = (u64, u64, u64, Option<(u32, u32)>);

/// Memory idle over the whole second half, because between steps part of the cache is unused in every run. In training the range
/// begins at a step boundary: what only the first part of a step uses, the next step uses again.
fn idle_for_good(p: &RuleInput<'_>, n: u32) -> Option<Idle> {
    let trains = p.trains();
    let from = p.steps.of(n / 2).filter(|_| trains).map_or(n / 2, |step| p.steps.bounds[step].min(n / 2));
    let used = p.tables.curves.columns(p.device, &p.tables.lifetimes, Quantity::Active, &[from, n]);
    let reserved = p.tables.curves.columns(p.device, &p.tables.lifetimes, Quantity::Reserved, &[from, n]);
    let (used, reserved) = (used.first()?.max, reserved.first()?.min);
    // `empty_cache` does not release free memory in private pools.
    let idle = reserved.saturating_sub(used).saturating_sub(free_in_private_pools(p, n - 1));
    Some((idle, reserved, used, Some((from, n - 1))))
}

/// Wholly free segments, for a recording without history.
fn idle_in_state(p: &RuleInput<'_>) -> Option<Idle> {
    let state = crate::diagnose::oom::closest(p.device, p.tables)?;
    Some((state.releasable, state.reserved, state.active, None))
}

/// Reports a few huge equal blocks held from the start to the end: a key-value cache reserved by design.
pub(super) fn preallocated(p: &RuleInput<'_>) -> Option<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let n = p.device.events.len() as u32;
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let times = &p.device.events.time_us;
    let mut by_size: std::collections::BTreeMap<u64, Vec<LifetimeId>> = std::collections::BTreeMap::new();
    for block in p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && b.requested >= 64 * MEBIBYTE) {
        let gone = lifetimes.gone(block.lifetime);
        let born = lifetimes.born(block.lifetime);
        let held = if born == NO_EVENT { n } else { gone.min(n) - born };
        // Equal blocks that stay are usually weights; only the code of a cache identifies a cache.
        let is_cache = p.roles.of(block.lifetime) == Role::KvCache;
        if is_cache && gone == NO_EVENT && u64::from(held) * 10 >= u64::from(n) * 8 {
            by_size.entry(block.size).or_default().push(block.lifetime);
        }
    }
    let several = by_size.into_iter().filter(|(_, ids)| ids.len() >= 2);
    let (size, ids) = several.max_by_key(|(size, ids)| size * ids.len() as u64)?;
    let bytes = size * ids.len() as u64;
    let births: Vec<u32> = ids.iter().map(|&id| lifetimes.born(id)).filter(|&b| b != NO_EVENT).collect();
    let time = |e: u32| times.get(e as usize).copied().unwrap_or(0);
    let (first, last) = (births.iter().min().copied().unwrap_or(0), births.iter().max().copied().unwrap_or(0));
    let is_quick = !p.device.events.has_time || time(last) - time(first) <= 5_000_000;
    if bytes < 2 * GIBIBYTE || bytes * 10 < peak * 6 || ids.len() > 200 || !is_quick {
        return None;
    }
    let number = ids.len() as u64;
    Finding::new("preallocated_cache", Class::Structure, "Most of it is a KV cache, taken whole", bytes)
        .says(format!(
            "{} of {} each {}. That is how servers reserve their KV cache, by design.",
            counted(number, "block", "blocks"),
            Bytes(size),
            match n {
                0 => format!("are a KV cache: {} of the {} that were live", Bytes(bytes), Bytes(peak)),
                _ => format!("were taken at once and never freed: {} of the {} at the peak", Bytes(bytes), Bytes(peak)),
            }
        ))
        .shows("blocks", count(number))
        .bytes_of("each", size)
        .bytes_of("peak", peak)
        .at(Place { event: Some(last), stack: p.stack_of(ids[0]), lifetimes: ids, ..Place::default() })
        .advice("Set the share of the device that it takes: gpu_memory_utilization in vLLM, --mem-fraction-static in SGLang.")
        .check("Allocated memory is the chosen share.")
}

/// Reports pinned host memory rounded far above the requested size.
pub(super) fn pinned_host(p: &RuleInput<'_>) -> Option<Finding> {
    if p.device.id.kind != DeviceKind::Host {
        return None;
    }
    let in_use = p.tables.curves.peak(Quantity::Active);
    let reserved = p.tables.curves.settled_peak(p.device, Quantity::Reserved);
    let (held, at) = if reserved.0 > in_use.0 { reserved } else { in_use };
    let asked = p.tables.curves.peak(Quantity::Requested).0;
    let lost = held.saturating_sub(asked);
    if asked == 0 || lost < 256 * MEBIBYTE || held.saturating_mul(10) < asked.saturating_mul(13) {
        return None;
    }
    Finding::new("pinned_rounding", Class::Structure, "Pinned memory is rounded up", lost)
        .says(format!(
            "{} of pinned host memory is held for {} requested, {:.1} times as much: sizes are rounded up to powers of two and kept.",
            Bytes(held),
            Bytes(asked),
            held as f64 / asked as f64
        ))
        .bytes_of("held", held)
        .bytes_of("requested", asked)
        .at(Place { event: (at != NO_EVENT).then_some(at), ..Place::default() })
        .remedy("PYTORCH_ALLOC_CONF=pinned_use_cuda_host_register:True")
        .advice("Also a smaller prefetch_factor and fewer workers; newer releases have pinned_max_round_threshold_mb.")
        .check("What is held comes down to what is requested.")
}
