//! The two instants that Compare suggests first.

use super::StepTable;
use vramscope_core::anatomy::steps::number;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    pub a: u32,
    /// B, later than A.
    pub b: u32,
    /// Why this pair, as part of a sentence: `the peaks of …`.
    pub why: String,
}

/// Compare suggests a step's peak when it is this many times the peak of the step before.
const JUMP: f64 = 1.25;

fn is_level(a: u64, b: u64) -> bool {
    a.abs_diff(b).saturating_mul(100) <= a
}

/// The pair that Compare starts with. The first rule that applies decides:
///
/// 1. With an out-of-memory event: the peak of the step before, and that event.
/// 2. When a step peaks far above the one before it: the peaks of both.
/// 3. When steps return to the same level: the highest step just before it begins, and at its peak.
/// 4. Otherwise the ends of the first and the last whole step.
/// 5. With too few steps: the end or the start of the first step (without steps, the event halfway), and the peak.
///
/// `None` when there are too few events. O(steps).
pub fn suggest(table: &StepTable, events: u32, oom: Option<u32>, peak: u32) -> Option<Suggestion> {
    let last = events.checked_sub(1)?;
    let f = &table.figures;
    let pair = |a: u32, b: u32, why: String| (a < b).then_some(Suggestion { a, b, why });
    // With too few steps, A is the end or the start of step 1. The start of the recording would not do: nothing is allocated yet,
    // so all memory would count as new.
    let ends = f.first().map(|s| (s.end.saturating_sub(1), "the end of step 1"));
    let begins = f.first().and_then(|s| Some((s.first.checked_sub(1)?, "what step 1 found")));
    let without = |b: u32, then: &str| {
        let of_step = ends.into_iter().chain(begins).find(|&(a, _)| a < b);
        let (a, what) = of_step.unwrap_or((b / 2, "half of the way there"));
        let nothing = if f.is_empty() { "no steps to go by" } else { "too few steps to go by" };
        pair(a, b, format!("{nothing}: {what}, and {then}"))
    };
    if let Some(oom) = oom {
        let before = table.steps.of(oom).and_then(|s| s.checked_sub(1)).and_then(|s| Some((s, f.get(s)?)));
        let with_step = before.and_then(|(s, f)| {
            pair(f.peak_event, oom, format!("the peak of step {}, the one before, and the out-of-memory event", number(s)))
        });
        return with_step.or_else(|| without(oom, "the out-of-memory event"));
    }
    // The first step includes set-up, so the others are not measured against it.
    let jump = (2..f.len()).max_by_key(|&i| (f[i].peak, std::cmp::Reverse(i)));
    if let Some(step) = jump.filter(|&i| f[i].peak as f64 >= JUMP * f[i - 1].peak.max(1) as f64) {
        let why = format!(
            "step {} peaks at {:.1} × the step before: their peaks",
            number(step),
            f[step].peak as f64 / f[step - 1].peak.max(1) as f64
        );
        return pair(f[step - 1].peak_event, f[step].peak_event, why);
    }
    let mut lengths: Vec<u32> = f.iter().map(|s| s.end - s.first).collect();
    lengths.sort_unstable();
    let typical = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    // A recording may stop in the middle of a step, so short steps are left out.
    let whole = |i: &usize| u64::from(f[*i].end - f[*i].first) * 10 >= u64::from(typical) * 9;
    let first = (1..f.len()).find(whole);
    // A step at the end of the recording may include the program's exit, which is another phase.
    let goes_on = |i: &usize| f[*i].end < events;
    let end = (2..f.len()).rev().find(|i| whole(i) && goes_on(i)).or_else(|| (1..f.len()).rev().find(whole));
    if let (Some(first), Some(end)) = (first, end)
        && end > first
    {
        // When every step ends at the level it started from, step ends would show no change. What the highest step adds at its
        // peak is more useful.
        if is_level(f[first].after, f[end].after) {
            let highest = table.steps.of(peak).filter(|&step| step > 0 && step < f.len()).unwrap_or(end);
            let step = &f[highest];
            let why =
                format!("each step ends with what it began with: what step {} had before it, and its peak", number(highest));
            if let Some(found) = step.first.checked_sub(1).and_then(|before| pair(before, step.peak_event, why)) {
                return Some(found);
            }
        }
        // The sentence names the rule by which the last step was chosen.
        let last = match (end + 1 < f.len(), goes_on(&end)) {
            (true, _) => "the last whole one before the end",
            (false, true) => "the last",
            (false, false) => "the last whole one",
        };
        let why = format!(
            "the same phase of two steps far apart: the ends of step {}, the first whole one after step 1, and step {}, {last}",
            number(first),
            number(end)
        );
        return pair(f[first].end - 1, f[end].end - 1, why);
    }
    // Event 0 as the peak leaves nothing before it to compare with.
    if peak <= last && peak > 0 {
        return without(peak, "the peak");
    }
    without(last, "the end")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::compare::name_of;
    use vramscope_core::anatomy::steps::{StepFigures, Steps};

    /// Steps of ten events, each with its peak in the middle.
    fn table(peaks: &[u64], last: u32) -> StepTable {
        let mut bounds: Vec<u32> = (0..=peaks.len() as u32).map(|i| i * 10).collect();
        if let Some(end) = bounds.last_mut() {
            *end -= last;
        }
        let of = |(i, &peak): (usize, &u64)| StepFigures {
            first: bounds[i],
            end: bounds[i + 1],
            peak,
            peak_event: bounds[i] + 5,
            after: peak,
            ..StepFigures::default()
        };
        let figures = peaks.iter().enumerate().map(of).collect();
        StepTable { steps: Steps { bounds, ..Steps::default() }, figures }
    }

    fn pair(t: &StepTable, events: u32, oom: Option<u32>) -> Option<(u32, u32)> {
        suggest(t, events, oom, 300).map(|s| (s.a, s.b))
    }

    #[test]
    fn steps_that_grow_slowly_are_compared_far_apart_in_the_same_phase() {
        let growing = table(&[90, 10, 11, 12, 13, 14], 0);
        assert_eq!(pair(&growing, 60, None), Some((19, 49)), "the ends of step 2 and of step 5: step 6 ends with the recording");
        assert!(suggest(&growing, 60, None, 0).is_some_and(|s| s.why.contains("step 2,") && s.why.contains("step 5,")));
        assert_eq!(pair(&growing, 80, None), Some((19, 59)), "what follows the last step is no part of it");
        let why = |t: &StepTable, events| suggest(t, events, None, 0).map(|s| s.why).unwrap_or_default();
        assert!(why(&growing, 60).ends_with("step 5, the last whole one before the end"));
        assert!(why(&growing, 80).ends_with("step 6, the last"), "no step follows");
        assert!(why(&table(&[90, 10, 11], 0), 30).ends_with("step 3, the last whole one"), "it ends the recording");
        assert_eq!(pair(&table(&[90, 10, 11, 12, 13, 14], 6), 80, None), Some((19, 49)), "the last one is cut short");
    }

    #[test]
    fn a_step_that_comes_back_is_compared_with_its_own_beginning() {
        let mut level = table(&[90, 10, 10, 10, 10, 10], 0);
        level.figures.iter_mut().for_each(|f| (f.before, f.after) = (4, 4));
        assert_eq!(pair(&level, 60, None), Some((39, 45)), "before step 5, and its peak");
        assert_eq!(
            suggest(&level, 60, None, 25).map(|s| (s.a, s.b)),
            Some((19, 25)),
            "before step 3, which has the recording's peak"
        );
        assert!(suggest(&level, 60, None, 0).is_some_and(|s| s.why.contains("what step 5 had before it")));
    }

    #[test]
    fn a_step_that_jumps_is_held_against_the_one_before() {
        let jumps = table(&[90, 10, 11, 40, 13, 14], 0);
        assert_eq!(pair(&jumps, 60, None), Some((25, 35)));
        assert!(suggest(&jumps, 60, None, 0).is_some_and(|s| s.why.contains("3.6 × the step before")));
        assert_eq!(pair(&jumps, 60, Some(52)), Some((45, 52)), "what ran out of memory comes first");
    }

    #[test]
    fn with_too_few_steps_an_instant_that_holds_something_and_the_peak() {
        let none = table(&[], 0);
        assert_eq!(pair(&none, 400, None), Some((150, 300)), "half of the way");
        assert_eq!(pair(&none, 400, Some(200)), Some((100, 200)));
        assert_eq!(pair(&none, 200, None), Some((99, 199)), "no peak: the end");
        assert_eq!(pair(&table(&[9, 9], 0), 400, None), Some((9, 300)), "the end of step 1");
        let mut later = table(&[9], 0);
        later.figures[0].first = 4;
        assert_eq!(suggest(&later, 400, None, 8).map(|s| (s.a, s.b)), Some((3, 8)), "before step 1, which has the peak");
        assert!(suggest(&none, 400, None, 300).is_some_and(|s| s.why.starts_with("no steps")));
        assert!(suggest(&table(&[9, 9], 0), 400, None, 300).is_some_and(|s| s.why.starts_with("too few steps")));
        assert_eq!((pair(&none, 1, None), pair(&none, 0, None)), (None, None));
    }

    #[test]
    fn instants_are_called_after_their_step() {
        let t = table(&[10, 10, 10], 0);
        assert_eq!(name_of(Some(&t), 15), "step 2 peak");
        assert_eq!(name_of(Some(&t), 29), "step 3 end");
        assert_eq!(name_of(Some(&t), 12), "event 12, step 2");
        assert_eq!(name_of(None, 1200), "event 1,200");
    }
}
