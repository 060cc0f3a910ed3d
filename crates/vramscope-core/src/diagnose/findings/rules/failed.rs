//! What a failed attempt leaves behind: an exception keeps the frames of the failed call, and they keep their tensors.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::anatomy::line_of;
use crate::anatomy::roles::Role;
use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::{Action, BlockState, FrameId, StackId};
use crate::tables::{LifetimeId, NO_EVENT, Quantity};
use crate::units::{Bytes, MEBIBYTE, count};

/// What is still live when the program tries again, or seconds later.
pub(super) fn after_failure(p: &RuleInput<'_>) -> Vec<Finding> {
    let held = at_retry(p);
    if held.is_empty() { for_seconds(p) } else { held }
}

/// What a failed attempt made that is live when the program tries again.
struct Held {
    failed: u32,
    again: u32,
    blocks: FxHashSet<LifetimeId>,
}

impl Held {
    fn bytes_at(&self, p: &RuleInput<'_>, event: u32) -> u64 {
        let live = self.blocks.iter().filter(|id| p.tables.lifetimes.is_live_at(**id, event));
        live.map(|id| p.tables.lifetimes.block_size(*id)).sum()
    }
}

/// Less is not worth a finding.
const LEAST: u64 = 64 * MEBIBYTE;

/// The attempts that were held when the program tried again. O(blocks that are live at the examined failures).
fn at_retry(p: &RuleInput<'_>) -> Vec<Finding> {
    let mut held: Vec<Held> = Vec::new();
    for a in &p.ooms {
        if let Some(attempt) = attempt(p, a.event, &held) {
            held.push(attempt);
        }
    }
    let Some(last) = held.last() else { return Vec::new() };
    let bytes: u64 = held.iter().map(|attempt| attempt.bytes_at(p, last.again)).sum();
    let failed_by_id: FxHashMap<LifetimeId, u32> =
        held.iter().flat_map(|attempt| attempt.blocks.iter().map(|id| (*id, attempt.failed))).collect();
    let gone = |id: LifetimeId| {
        let gone = p.tables.lifetimes.gone(id);
        failed_by_id.get(&id).map_or(gone, |failed| gone.min(*failed))
    };
    let saving = Saving {
        before: p.tables.curves.peak(Quantity::Active).0,
        after: peak_if_freed(p.device, p.tables, |_, size| size, gone),
    };
    let (whose, number) = match held.len() {
        1 => ("the failed attempt".to_owned(), "the exception keeps"),
        n => (format!("{n} failed attempts"), "the exceptions keep"),
    };
    let says = format!(
        "After the request of event {} failed the program tried again, at event {}, while {} that {whose} had made {} still live: \
         {number} the frames of the failed call, and they keep their tensors.",
        count(u64::from(last.failed)),
        count(u64::from(last.again)),
        Bytes(bytes),
        if held.len() == 1 { "was" } else { "were" },
    );
    let stack = p.ooms.iter().find(|a| a.event == last.failed).map(|a| a.stack).filter(|stack| stack.is_some());
    let mut blocks: Vec<LifetimeId> = held.iter().flat_map(|attempt| attempt.blocks.iter().copied()).collect();
    blocks.sort_unstable_by_key(|id| std::cmp::Reverse(p.tables.lifetimes.block_size(*id)));
    blocks.truncate(1000);
    vec![
        Finding::new(super::HELD, Class::Leak, "A failed attempt was held while the next one ran", bytes)
            .says(says)
            .saves("Without it", saving)
            .red("held by failed attempts", bytes)
            .at(Place { event: Some(last.again), stack, lifetimes: blocks, ..Place::default() })
            .remedy(&p.words.say("except torch.cuda.OutOfMemoryError: failed = True  # and try again behind the except block"))
            .advice("Inside the except block, and as long as a variable or a list names the exception, the failed call's tensors stay. Leave the block before trying again, and keep str(e) instead of e. In a notebook sys.last_traceback keeps them: clear it, or run %reset -f.")
            .check("Allocated memory falls before the next attempt."),
    ]
}

/// The attempt that failed at an event, if nearly all that it made is live when the program begins again. That it does shows in the allocations
/// at the beginning of the attempt: the same lines make them again. Those of layers that repeat come again without a new attempt, and do not
/// count.
fn attempt(p: &RuleInput<'_>, failed: u32, before: &[Held]) -> Option<Held> {
    let (lifetimes, events) = (&p.tables.lifetimes, &p.device.events);
    let is_of_attempt = |id: LifetimeId| {
        let is_lasting = matches!(
            p.roles.of(id),
            Role::Weights
                | Role::Gradients
                | Role::OptimizerState
                | Role::Inputs
                | Role::Workspaces
                | Role::Buckets
                | Role::KvCache
        );
        !is_lasting && lifetimes.born(id) != NO_EVENT && !before.iter().any(|held| held.blocks.contains(&id))
    };
    let state = p.tables.states.at(p.device, lifetimes, failed);
    let live = state.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let all: u64 = live.clone().map(|b| b.size).sum();
    let mut made: Vec<(u32, u64, LifetimeId)> =
        live.filter(|b| is_of_attempt(b.lifetime)).map(|b| (lifetimes.born(b.lifetime), b.size, b.lifetime)).collect();
    made.sort_unstable_by_key(|block| block.0);
    let bytes: u64 = made.iter().map(|block| block.1).sum();
    if bytes < LEAST || bytes.saturating_mul(10) < all {
        return None;
    }
    // The next attempt may be called from another line, so the frames outside of the program's innermost line do not count.
    let stacks = &p.recording.stacks;
    let inner = |stack: StackId| {
        let (line, frames) = (line_of(stacks, stack)?, stacks.frames(stack));
        frames.get(..=frames.iter().position(|frame| *frame == line)?)
    };
    let inner_of = |block: &(u32, u64, LifetimeId)| inner(lifetimes.stack(p.device, block.2));
    let mut times: FxHashMap<&[FrameId], usize> = FxHashMap::default();
    made.iter().filter_map(inner_of).for_each(|frames| *times.entry(frames).or_default() += 1);
    let mut sum = 0u64;
    let beginning = made.iter().take_while(|block| {
        sum = sum.saturating_add(block.1);
        sum.saturating_mul(10) <= bytes
    });
    let begins: FxHashSet<&[FrameId]> = beginning.filter_map(inner_of).filter(|frames| times.get(frames) == Some(&1)).collect();
    let took = failed.saturating_sub(made.first()?.0);
    let until = (failed as usize).saturating_add((WAIT * took as usize).min(MOST)).min(events.len());
    let mut known: FxHashMap<StackId, bool> = FxHashMap::default();
    let mut is_begin = |stack| *known.entry(stack).or_insert_with(|| inner(stack).is_some_and(|f| begins.contains(f)));
    let again = (failed as usize + 1..until).find(|&e| events.action[e] == Action::Alloc && is_begin(events.stack[e]))? as u32;
    let held = Held { failed, again, blocks: made.iter().map(|block| block.2).collect() };
    (held.bytes_at(p, again).saturating_mul(10) >= bytes.saturating_mul(9)).then_some(held)
}

/// The next attempt begins within so many times the events of the failed one.
const WAIT: usize = 4;
/// And within so many events: a program may fail often.
const MOST: usize = 1 << 17;

/// Nothing is freed for seconds after a failure.
fn for_seconds(p: &RuleInput<'_>) -> Vec<Finding> {
    const WAIT_US: i64 = 5_000_000;
    let events = &p.device.events;
    if !events.has_time {
        return Vec::new();
    }
    let mut found = Vec::new();
    for a in &p.ooms {
        let at = a.event as usize;
        let Some(&then) = events.time_us.get(at) else { continue };
        let end = events.time_us.partition_point(|&t| t < then + WAIT_US);
        // The program must have continued for as long, and not by failing again.
        if end >= events.len() || p.ooms.iter().any(|b| b.event > a.event && (b.event as usize) <= end) {
            continue;
        }
        let columns = p.tables.curves.columns(p.device, &p.tables.lifetimes, Quantity::Allocated, &[a.event, end as u32 + 1]);
        let Some(least) = columns.first().map(|c| c.min) else { continue };
        if a.allocated < 64 * MEBIBYTE || least.saturating_mul(10) < a.allocated.saturating_mul(9) {
            continue;
        }
        found.push(
            Finding::new(super::HELD, Class::Leak, "Nothing was freed after the failure", least)
                .says(format!(
                    "For 5 s after the request of event {} failed, {} of the {} that were live stayed: the exception keeps the frames of the failed call, and they keep their tensors.",
                    count(u64::from(a.event)),
                    Bytes(least),
                    Bytes(a.allocated)
                ))
                .bytes_of("live at the failure", a.allocated)
                .red("still live 5 s later", least)
                .at(Place { event: Some(a.event), stack: a.stack.is_some().then_some(a.stack), ..Place::default() })
                .remedy(&p.words.say("del e; torch.cuda.empty_cache()"))
                .advice("Leave the except block before trying again. In a notebook clear sys.last_traceback, or run %reset -f.")
                .check("Allocated memory falls before the next attempt."),
        );
        break;
    }
    found
}
