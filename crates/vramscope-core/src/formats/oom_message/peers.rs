//! Ranks of one job on the same card: a message lists them as other processes.

use super::{OomMessage, ProcessUse};

/// Processes that one program starts have ids this close to each other.
const GAP: u32 = 4;
/// Messages that are compared with each other.
const MOST: usize = 64;

pub(super) fn recognise(found: &mut [OomMessage]) {
    let others: Vec<Vec<(u32, u64)>> = found.iter().take(MOST).map(others).collect();
    for (at, (message, own)) in found.iter_mut().zip(&others).enumerate() {
        let is_listed = |(o, list): (usize, &Vec<_>)| o != at && list_each_other(own, list);
        let has_peers = are_in_a_row(own) || others.iter().enumerate().any(is_listed);
        message.seen.extend(has_peers.then_some("peers"));
    }
}

/// Ids and bytes of the other processes, in the order of the ids.
fn others(m: &OomMessage) -> Vec<(u32, u64)> {
    let listed = m.processes.iter().filter(|p| !p.is_this);
    let bytes = |p: &ProcessUse| if p.bytes.is_unlimited() { 0 } else { p.bytes.bytes };
    let mut others: Vec<(u32, u64)> = listed.filter_map(|p| Some((p.pid?, bytes(p)))).collect();
    others.sort_unstable();
    others
}

/// True if each list has one process that the other lacks: two ranks of a job on one card.
fn list_each_other(a: &[(u32, u64)], b: &[(u32, u64)]) -> bool {
    let lacks =
        |of: &[(u32, u64)], from: &[(u32, u64)]| of.iter().filter(|(pid, _)| from.iter().all(|other| other.0 != *pid)).count();
    (lacks(a, b), lacks(b, a)) == (1, 1)
}

/// True if most of what other processes hold is of at least two whose ids follow each other.
fn are_in_a_row(others: &[(u32, u64)]) -> bool {
    let held = |of: &[(u32, u64)]| of.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    let rows = others.chunk_by(|a, b| b.0 - a.0 <= GAP).filter(|row| row.len() > 1);
    rows.map(held).any(|row| row > held(others) / 2)
}
