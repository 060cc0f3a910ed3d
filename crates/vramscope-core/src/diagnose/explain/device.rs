//! Who else holds much of a card, in words.

use super::unattributed;
use crate::formats::oom_message::{Figure, OomMessage, ProcessUse};

/// No bytes, for a figure that the message does not have.
const NONE: Figure = Figure { bytes: 0, slack: 0 };

/// What others than this process hold, and in words who they are: the processes that the message lists, or unlisted ones if those
/// hold more.
pub(super) fn most_of_others(m: &OomMessage, capacity: Figure) -> Option<(Figure, String)> {
    let largest = largest_other(m);
    // Where this process is not told apart a sum may count it.
    let is_known = m.this_process().is_some();
    let listed = if is_known { m.other_processes() } else { largest.map(|p| p.bytes) }.unwrap_or(NONE);
    if let Some(rest) = unattributed(m).filter(|rest| is_known && rest.bytes > listed.bytes) {
        let why = "belongs to no listed process: one of another container or user, or one that died";
        return Some((rest, format!("{rest} of the card's {capacity} {why}")));
    }
    let largest = largest?;
    let pid = largest.pid.map_or("one".to_owned(), |pid| format!("pid {pid}"));
    let who = if largest.bytes.bytes < listed.bytes {
        let who =
            if m.seen.contains("peers") { "Other processes, by their numbers ranks of the same job," } else { "Other processes" };
        format!("{who} hold {listed} of the card's {capacity} ({pid} with {} the most)", largest.bytes)
    } else {
        let who = largest.pid.map_or("Another process".to_owned(), |pid| format!("Process {pid}"));
        format!("{who} holds {} of the card's {capacity}", largest.bytes)
    };
    Some((listed, who))
}

fn largest_other(m: &OomMessage) -> Option<&ProcessUse> {
    m.processes.iter().filter(|p| !p.is_this && !p.bytes.is_unlimited()).max_by_key(|p| p.bytes.bytes)
}
