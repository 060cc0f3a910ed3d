//! Ranks of one job on the same card: a message lists them as other processes.

use super::OomMessage;

/// Processes that one program starts have ids this close to each other.
const GAP: u32 = 4;
/// Messages that are compared with each other.
const MOST: usize = 64;

pub(super) fn recognise(found: &mut [OomMessage]) {
    let others: Vec<Vec<u32>> = found.iter().take(MOST).map(pids).collect();
    for (at, message) in found.iter_mut().enumerate().take(MOST) {
        let is_row = are_in_a_row(message);
        let is_listed = || others.iter().enumerate().any(|(o, list)| o != at && list_each_other(&others[at], list));
        message.seen.extend((is_row || is_listed()).then_some("peers"));
    }
}

fn pids(m: &OomMessage) -> Vec<u32> {
    m.processes.iter().filter(|p| !p.is_this).filter_map(|p| p.pid).collect()
}

/// True if each list has one process that the other lacks: two ranks of a job on one card.
fn list_each_other(a: &[u32], b: &[u32]) -> bool {
    let lacks = |of: &[u32], from: &[u32]| of.iter().filter(|pid| !from.contains(pid)).count();
    (lacks(a, b), lacks(b, a)) == (1, 1)
}

/// True if most of what other processes hold is of at least two whose ids follow each other.
fn are_in_a_row(m: &OomMessage) -> bool {
    let mut others: Vec<(u32, u64)> = m
        .processes
        .iter()
        .filter(|p| !p.is_this && !p.bytes.is_unlimited())
        .filter_map(|p| Some((p.pid?, p.bytes.bytes)))
        .collect();
    others.sort_unstable();
    let all = others.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
    let rows = others.chunk_by(|a, b| b.0 - a.0 <= GAP).filter(|row| row.len() > 1);
    rows.map(|row| row.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))).any(|held| held > all / 2)
}
