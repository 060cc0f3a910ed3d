//! Memory that does not grow: what the window says about a healthy recording.

use crate::anatomy::steps::Steps;
use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, Quantity};
use crate::units::{Bytes, count};

/// As many steps as tell leaks: one that grows every few steps shows in them.
const ENOUGH: usize = 7;

/// That memory does not grow from step to step, `No growth: all 9 steps end with 1.15 GiB`; "so far" where the steps are too few to rule out
/// a leak; `None` where it grows, where there are fewer than three steps, or where a request failed. O(steps + log events).
#[must_use]
pub fn no_growth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Option<String> {
    if !device.events.ooms().is_empty() {
        return None;
    }
    let (bounds, is_cut) = ends(&steps.bounds, device.events.len() as u32);
    let at_ends = |of: Quantity| -> Vec<u64> {
        tables.curves.columns(device, &tables.lifetimes, of, &bounds).iter().map(|column| column.last).collect()
    };
    // The same tensors may lie in blocks of other sizes: what the allocator does not split off.
    said(&at_ends(Quantity::Requested), *at_ends(Quantity::Active).last()?, is_cut)
}

/// Where each step ends. A last step that ends with the recording may end before it, as the program gives back what it has when it ends;
/// one that is much shorter than the one before it is cut by the end of the recording, and is left out.
fn ends(bounds: &[u32], events: u32) -> (Vec<u32>, bool) {
    let mut bounds = bounds.to_vec();
    let mut is_cut = false;
    if let [.., before, from, to] = &mut bounds[..]
        && *to >= events
    {
        let usual = *from - *before;
        is_cut = u64::from(*to - *from) * 10 < u64::from(usual) * 9;
        *to = (*to).min(*from + usual);
    }
    if is_cut {
        bounds.pop();
    }
    (bounds, is_cut)
}

/// The sentence, from what tensors hold at the end of each whole step and what is `in_use` at the last end. `is_cut` where the recording ends within one more step.
fn said(ends: &[u64], in_use: u64, is_cut: bool) -> Option<String> {
    let steps = if is_cut { "whole steps" } else { "steps" };
    let steady = |ends: &[u64]| match (ends.iter().min(), ends.iter().max()) {
        // What a log or a counter keeps is less than a thousandth.
        (Some(&low), Some(&high)) => high - low <= high / 1000,
        _ => false,
    };
    let enough = |rest: &[u64]| rest.len() > 1 && ends.len() > 2;
    // The first steps of a run make what the others find there: optimizer state, workspaces, buckets.
    let first = (0..=ends.len() / 2).find(|&k| enough(&ends[k..]) && steady(&ends[k..]))?;
    let rest = &ends[first..];
    let end = Bytes(in_use);
    let number = count(rest.len() as u64);
    let finding = if rest.len() + first.min(1) < ENOUGH { "No growth so far" } else { "No growth" };
    Some(match first {
        0 => format!("{finding}: all {number} {steps} end with {end}"),
        1 => format!("{finding}: each of the {number} {steps} after the first ends with {end}"),
        _ => format!("{finding}: each of the last {number} {steps} ends with {end}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MEBIBYTE as M;

    #[test]
    fn the_last_step_ends_before_the_program_does() {
        assert_eq!(ends(&[10, 400, 700, 1200], 1200), (vec![10, 400, 700, 1000], false));
        assert_eq!(ends(&[10, 400, 700, 1200], 1300), (vec![10, 400, 700, 1200], false), "it ends before the recording does");
        assert_eq!(ends(&[10, 400, 700], 2000), (vec![10, 400, 700], false));
        assert_eq!(ends(&[10, 400, 700, 800], 900), (vec![10, 400, 700, 800], false), "short, and the recording goes on");
        assert_eq!(ends(&[10, 400, 700, 800], 800), (vec![10, 400, 700], true), "the recording ends in its middle");
        assert_eq!(ends(&[], 0), (Vec::new(), false));
    }

    #[test]
    fn steps_that_end_alike_do_not_grow() {
        let plain = |ends: &[u64]| Some(said(ends, *ends.last()?, false)?.replace('\u{a0}', " "));
        assert_eq!(plain(&[1178 * M, 1178 * M, 1178 * M]).as_deref(), Some("No growth so far: all 3 steps end with 1.15 GiB"));
        assert_eq!(
            plain(&[100 * M, 300 * M, 300 * M]).as_deref(),
            Some("No growth so far: each of the 2 steps after the first ends with 300 MiB")
        );
        assert_eq!(
            plain(&[100 * M, 290 * M, 300 * M, 300 * M, 300 * M]).as_deref(),
            Some("No growth so far: each of the last 3 steps ends with 300 MiB")
        );
        assert_eq!(plain(&[100 * M, 110 * M, 120 * M]), None);
        assert_eq!(plain(&[100 * M, 200 * M, 290 * M, 300 * M, 300 * M]), None, "it grew longer than it stayed");
        let cut = said(&[300 * M, 300 * M, 300 * M], 300 * M, true).map(|s| s.replace('\u{a0}', " "));
        assert_eq!(cut.as_deref(), Some("No growth so far: all 3 whole steps end with 300 MiB"));
        assert_eq!(plain(&[300 * M; 7]).as_deref(), Some("No growth: all 7 steps end with 300 MiB"));
        assert_eq!(plain(&[300 * M, 300 * M]), None, "two tell little");
        assert_eq!(plain(&[100 * M]), None);
        assert_eq!(plain(&[]), None);
    }
}
