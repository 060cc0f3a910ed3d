//! Memory that climbs over steps and drops at once.

use super::MARGIN;

/// Memory that climbs over several steps and drops at once, again and again: objects in reference cycles, which live until
/// Python's garbage collector runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SawTooth {
    /// For each tooth: the step it begins in, the step it drops in, and the bytes it drops by.
    pub teeth: Vec<(usize, usize, u64)>,
}

/// Finds a saw-tooth in the floors of successive steps: at least three teeth, each rising for three steps or more and then
/// falling within a step by more than a fifth of the range. Garbage collection is not in time with the steps; what every step
/// frees itself never shows in the floors. Source: rule 6 of the diagnoses. O(steps).
#[must_use]
pub fn saw_tooth(floors: &[u64], peak: u64) -> Option<SawTooth> {
    const LEAST_TEETH: usize = 3;
    const LEAST_RISE: usize = 3;
    let steady = floors.get(MARGIN..floors.len().saturating_sub(1))?;
    let (low, high) = (*steady.iter().min()?, *steady.iter().max()?);
    let range = high - low;
    // A ripple on a high plateau is nobody's trouble.
    if range.saturating_mul(20) < peak {
        return None;
    }
    let mut teeth = Vec::new();
    let mut begin = 0;
    for i in 1..steady.len() {
        if steady[i] >= steady[i - 1] {
            continue;
        }
        let (rise, drop) = (steady[i - 1] - steady[begin], steady[i - 1] - steady[i]);
        if i - 1 - begin >= LEAST_RISE && rise.saturating_mul(5) > range && drop.saturating_mul(5) > range {
            teeth.push((begin + MARGIN, i + MARGIN, drop));
        }
        begin = i;
    }
    (teeth.len() >= LEAST_TEETH).then_some(SawTooth { teeth })
}
