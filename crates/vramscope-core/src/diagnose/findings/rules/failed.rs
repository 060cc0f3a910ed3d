//! Memory that a failed attempt leaves behind: the exception keeps the failed call's frames, and these keep their tensors.

use rustc_hash::FxHashMap;

use crate::diagnose::counterfactual::{Saving, peak_if_freed};
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::diagnose::oom::{LEAVE, LET_GO, held_attempts};
use crate::tables::{LifetimeId, Quantity};
use crate::units::{Bytes, MEBIBYTE, count};

/// Reports memory that is still live when the program tries again, or seconds later.
pub(super) fn after_failure(p: &RuleInput<'_>) -> Option<Finding> {
    at_retry(p).or_else(|| for_seconds(p))
}

/// Attempts that were still held when the program tried again. O(blocks live at the examined failures).
fn at_retry(p: &RuleInput<'_>) -> Option<Finding> {
    let failures: Vec<u32> = p.ooms.iter().map(|a| a.event).collect();
    let held = held_attempts(p.recording, p.device, p.tables, &p.roles, &failures);
    let last = held.last()?;
    let bytes: u64 = held.iter().map(|attempt| attempt.bytes_at(p.tables, last.again)).sum();
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
    let (whose, number, was) = match held.len() {
        1 => ("the failed attempt".to_owned(), "the exception keeps", "was"),
        n => (format!("{n} failed attempts"), "the exceptions keep", "were"),
    };
    let says = format!(
        "After the request of event {} failed the program tried again, at event {}, while {} that {whose} had made {was} still live: \
         {number} the frames of the failed call, and they keep their tensors.",
        count(u64::from(last.failed)),
        count(u64::from(last.again)),
        Bytes(bytes),
    );
    let stack = p.ooms.iter().find(|a| a.event == last.failed).map(|a| a.stack).filter(|stack| stack.is_some());
    let mut blocks: Vec<LifetimeId> = failed_by_id.into_keys().collect();
    blocks.sort_unstable_by_key(|&id| (std::cmp::Reverse(p.tables.lifetimes.block_size(id)), id));
    blocks.truncate(1000);
    Finding::new(super::HELD, Class::Leak, "A failed attempt was still held", bytes)
        .says(says)
        .saves("Without it", saving)
        .red("held by failed attempts", bytes)
        .at(Place { event: Some(last.again), stack, lifetimes: blocks, ..Place::default() })
        .remedy(p.words.say(LET_GO))
        .advice(format!("{LEAVE} A notebook and the interactive interpreter keep the last error too: sys.last_exc = sys.last_value = sys.last_traceback = None, or %reset -f."))
        .check("Allocated memory falls before the next attempt.")
}

/// Reports that nothing is freed for seconds after a failure.
fn for_seconds(p: &RuleInput<'_>) -> Option<Finding> {
    const WAIT_US: i64 = 5_000_000;
    let events = &p.device.events;
    if !events.has_time {
        return None;
    }
    for a in &p.ooms {
        let at = a.event as usize;
        let Some(&then) = events.time_us.get(at) else { continue };
        let end = events.time_us.partition_point(|&t| t < then + WAIT_US);
        // The program must have continued for that long, without failing again.
        if end >= events.len() || p.ooms.iter().any(|b| b.event > a.event && (b.event as usize) <= end) {
            continue;
        }
        let columns = p.tables.curves.columns(p.device, &p.tables.lifetimes, Quantity::Allocated, &[a.event, end as u32 + 1]);
        let Some(least) = columns.first().map(|c| c.min) else { continue };
        if a.allocated < 64 * MEBIBYTE || least.saturating_mul(10) < a.allocated.saturating_mul(9) {
            continue;
        }
        return Finding::new(super::HELD, Class::Leak, "Nothing was freed after the failure", least)
            .says(format!(
                "For 5 s after the request of event {} failed, {} of the {} that were live stayed: the exception keeps the frames of the failed call, and they keep their tensors.",
                count(u64::from(a.event)),
                Bytes(least),
                Bytes(a.allocated)
            ))
            .bytes_of("live at the failure", a.allocated)
            .red("still live 5 s later", least)
            .at(Place { event: Some(a.event), stack: a.stack.is_some().then_some(a.stack), ..Place::default() })
            .remedy(p.words.say("del e; torch.cuda.empty_cache()"))
            .advice("Leave the except block before trying again. In a notebook clear sys.last_traceback, or run %reset -f.")
            .check("Allocated memory falls before the next attempt.");
    }
    None
}
