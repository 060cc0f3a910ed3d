//! Where each step is over: once `zero_grad` has freed its gradients, at the same point of every step.

use crate::anatomy::{Part, Phases};
use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, LifetimeId, Quantity};

/// Without a forward pass to go by, up to this many allocations into the next step are its inputs.
const INPUTS: u32 = 8;
/// Differences below 1/n are ignored; a log or a counter keeps less.
const ODD: u64 = 1000;

/// The event after which each step is over: the instant of least use between its last allocation and the first of the next forward
/// pass. The last step is left out if it has no such instant: it is cut short, or only the next step would free its gradients. If
/// memory at the step bounds is more even from step to step, uses those instead. O(steps + events between the passes).
pub(in crate::anatomy) fn find(device: &DeviceRecording, tables: &DeviceTables, phases: &Phases, bounds: &[u32]) -> Vec<u32> {
    let (lifetimes, events) = (&tables.lifetimes, device.events.len() as u32);
    let rows = |bound: u32| bound.checked_sub(1).map_or(lifetimes.initial_count() as u32, |event| lifetimes.born_by(event));
    let born = |row: u32| if (row as usize) < lifetimes.len() { lifetimes.born(LifetimeId(row)) } else { events };
    let at = |of: Quantity, end: u32| tables.curves.at(device, lifetimes, of, end.saturating_sub(1));
    // The first instant of least use.
    let least = |from: u32, to: u32| (from..to.max(from + 1)).min_by_key(|&end| at(Quantity::Active, end)).unwrap_or(from);
    // Compare requested bytes, because the same tensors may lie in blocks of other sizes.
    let tensors = |end: u32| at(Quantity::Requested, end);
    let is_alike = |a: u32, b: u32| tensors(a).abs_diff(tensors(b)) <= tensors(a) / ODD;
    let mut forwards = phases.runs.iter().filter(|run| run.part == Part::Forward).map(|run| run.rows.0).peekable();
    let (mut ends, mut is_next_needed, mut freed, mut usual) = (Vec::with_capacity(bounds.len()), false, (0, 0), 0);
    for w in bounds.windows(3) {
        let (first, next, last) = (rows(w[0]), rows(w[1]), rows(w[2]));
        if first == next {
            ends.push(w[1]);
            continue;
        }
        let from = born(next - 1) + 1;
        while forwards.next_if(|&row| row < next).is_some() {}
        let pass = forwards.peek().copied().filter(|&row| row < last).unwrap_or(last.min(next + INPUTS));
        // Meanwhile the next step may hold its own inputs. That is acceptable if waiting would not free much more.
        let (own, any) = (least(from, born(next) + 1), least(from, born(pass) + 1));
        is_next_needed = tensors(any) < tensors(own) - tensors(own) / ODD;
        ends.push(if is_next_needed { any } else { own });
        (freed, usual) = ((own - from, w[1].saturating_sub(from)), next - first);
    }
    let [.., from, to] = *bounds else { return ends };
    let steady = |ends: &[u32]| ends.windows(2).filter(|w| is_alike(w[0], w[1])).count();
    let bounds = &bounds[1..bounds.len() - 1];
    if steady(bounds) > steady(&ends) {
        (ends, is_next_needed, freed.0) = (bounds.to_vec(), false, freed.1);
    }
    let Some(&before) = ends.last() else { return vec![to] };
    let (first, next) = (rows(from), rows(to));
    // The last step may end with the recording and include what follows the loop.
    let is_open = to >= events;
    let last = if is_open { next.min(first + usual) } else { next };
    if last == first || (is_open && (last - first) * 10 < usual * 9) {
        return ends;
    }
    let own = born(last - 1) + 1;
    let stop = (own + freed.0).min(born(last));
    // When the program ends, it also frees older blocks.
    let gives_back = |event: u32| lifetimes.of_event(event).0 < first;
    let is_like = || !is_open && !is_next_needed && stop == own + freed.0 && !(own..stop).any(gives_back);
    if is_alike(before, stop) || is_like() {
        ends.push(stop);
    }
    ends
}
