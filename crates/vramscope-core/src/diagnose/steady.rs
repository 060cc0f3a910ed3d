//! Detects memory that does not grow, for the window's summary of a healthy recording.

use crate::anatomy::steps::Steps;
use crate::diagnose::leaks::fewest;
use crate::model::DeviceRecording;
use crate::tables::{DeviceTables, Quantity};
use crate::units::{Bytes, count};

/// A sentence that memory does not grow from step to step: `No growth: all 9 steps end with 1.15 GiB`, or "come back to". Adds
/// "so far" if there are too few steps to exclude a leak. `None` if the steps end at different levels, if there are fewer than
/// three, or if a request failed. O(steps + log events).
pub fn no_growth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Option<String> {
    if !device.events.ooms().is_empty() {
        return None;
    }
    let over: Vec<u32> = (0..steps.len()).map_while(|step| steps.over(step)).collect();
    // If not, steps continue after that point: with the optimizer, while the gradients still exist.
    let is_end = over.iter().zip(steps.bounds.iter().skip(1)).all(|(over, end)| over == end);
    let ends: Vec<u32> = over.iter().map(|end| end.saturating_sub(1)).collect();
    let in_use = |of: Quantity, event: u32| tables.curves.at(device, &tables.lifetimes, of, event);
    // Compare requested bytes: the same tensors may lie in blocks of other sizes, as the allocator does not split off small rests.
    let tensors: Vec<u64> = ends.iter().map(|&event| in_use(Quantity::Requested, event)).collect();
    let held = in_use(Quantity::Active, *ends.last()?);
    let verbs = if is_end { ("end with", "ends with") } else { ("come back to", "comes back to") };
    said(&tensors, held, ends.len() < steps.len(), fewest(steps), verbs)
}

/// The sentence. `ends`: bytes of tensors when each step is over; `in_use`: memory in use when the last of them is. `leaves_last`:
/// the last step is not among them. From `fewest` steps on, a leak would show. `verbs` are for several steps and for each step.
fn said(ends: &[u64], in_use: u64, leaves_last: bool, fewest: usize, verbs: (&str, &str)) -> Option<String> {
    let all = ends.len() + usize::from(leaves_last);
    let steady = |ends: &[u64]| match (ends.iter().min(), ends.iter().max()) {
        // A log or a counter keeps less than a thousandth.
        (Some(&low), Some(&high)) => high - low <= high / 1000,
        _ => false,
    };
    let enough = |rest: &[u64]| rest.len() > 1 && all > 2;
    // The first steps make what later steps reuse: optimizer state, workspaces, buckets.
    let first = (0..=ends.len() / 2).find(|&k| enough(&ends[k..]) && steady(&ends[k..]))?;
    let rest = &ends[first..];
    let number = count(rest.len() as u64);
    let is_few = all - first + first.min(1) < fewest;
    let finding = if is_few { "No growth so far" } else { "No growth" };
    // A trace without totals does not show other memory in use.
    let (they, each) = match in_use {
        0 => ("free all they allocate".to_owned(), "frees all it allocates".to_owned()),
        bytes => (format!("{} {}", verbs.0, Bytes(bytes)), format!("{} {}", verbs.1, Bytes(bytes))),
    };
    Some(match (first, leaves_last) {
        (0, false) => format!("{finding}: all {number} steps {they}"),
        (0, true) if rest.len() == 2 => format!("{finding}: both steps before the last {they}"),
        (0, true) => format!("{finding}: all {number} steps before the last {they}"),
        (1, false) => format!("{finding}: each of the {number} steps after the first {each}"),
        (_, false) => format!("{finding}: each of the last {number} steps {each}"),
        (_, true) => format!("{finding}: each of the {number} steps before the last {each}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MEBIBYTE as M;

    const ENDS: (&str, &str) = ("end with", "ends with");

    #[test]
    fn steps_that_end_alike_do_not_grow() {
        let plain = |ends: &[u64]| Some(said(ends, *ends.last()?, false, 7, ENDS)?.replace('\u{a0}', " "));
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
        let cut = |ends: &[u64]| Some(said(ends, *ends.last()?, true, 7, ENDS)?.replace('\u{a0}', " "));
        assert_eq!(cut(&[300 * M; 3]).as_deref(), Some("No growth so far: all 3 steps before the last end with 300 MiB"));
        assert_eq!(cut(&[300 * M; 2]).as_deref(), Some("No growth so far: both steps before the last end with 300 MiB"));
        assert_eq!(cut(&[300 * M; 6]).as_deref(), Some("No growth: all 6 steps before the last end with 300 MiB"));
        assert_eq!(
            cut(&[100 * M, 300 * M, 300 * M]).as_deref(),
            Some("No growth so far: each of the 2 steps before the last ends with 300 MiB")
        );
        assert_eq!(plain(&[300 * M; 7]).as_deref(), Some("No growth: all 7 steps end with 300 MiB"));
        assert_eq!(plain(&[0; 3]).as_deref(), Some("No growth so far: all 3 steps free all they allocate"));
        assert_eq!(plain(&[300 * M, 300 * M]), None, "two tell little");
        assert_eq!(plain(&[100 * M]), None);
        assert_eq!(plain(&[]), None);
    }
}
