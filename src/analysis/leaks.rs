//! Leaks: what survives its step, by call stack, and how steadily it grows.

use rustc_hash::FxHashMap;

use super::steps::Steps;
use super::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{DeviceRecording, StackId};

/// Growth of one call stack over the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The stack.
    pub stack: StackId,
    /// Requested bytes alive at the end that were born in a step before the last two.
    pub bytes: u64,
    /// Their number.
    pub count: u64,
    /// Bytes a step adds: slope of the least-squares line through the survivors' cumulative sum.
    pub bytes_per_step: f64,
    /// Coefficient of determination of that line, 0 to 1.
    pub confidence: f64,
    /// Steps that left something behind.
    pub steps_adding: usize,
    /// Steps looked at.
    pub steps: usize,
    /// Some of the surviving allocations, oldest first.
    pub examples: Vec<LifetimeId>,
}

impl Growth {
    /// Steady growth: at least five steps, four in five of them add, and the line explains nine tenths of it.
    #[must_use]
    pub fn is_leak(&self) -> bool {
        self.steps >= 5 && self.steps_adding * 5 >= self.steps * 4 && self.confidence > 0.9 && self.bytes_per_step >= 512.0
    }
}

/// Steps at the start that may build caches, optimizer states and workspaces.
const WARM_UP: usize = 2;
/// Steps at the end whose survivors may simply not be done yet.
const UNFINISHED: usize = 2;

/// Growth by stack, most bytes first. Without steps the recording is cut into twelve equal stretches. O(lifetimes).
#[must_use]
pub fn growth(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Vec<Growth> {
    let n = device.events.len() as u64;
    let owned;
    let bounds: &[u32] = if steps.len() > WARM_UP + UNFINISHED {
        &steps.bounds
    } else {
        owned = (0..=12).map(|i| (n * i / 12) as u32).collect::<Vec<u32>>();
        &owned
    };
    let count = bounds.len().saturating_sub(1);
    if count <= WARM_UP + UNFINISHED {
        return Vec::new();
    }
    let steady = WARM_UP..count - UNFINISHED;
    let mut per_stack: FxHashMap<StackId, (Vec<u64>, u64, Vec<LifetimeId>)> = FxHashMap::default();
    let lifetimes = &tables.lifetimes;
    for i in 0..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let born = lifetimes.born(id);
        if born == NO_EVENT || lifetimes.gone(id) != NO_EVENT || lifetimes.free_requested(id) != NO_EVENT {
            continue;
        }
        let step = bounds.partition_point(|&b| b <= born).saturating_sub(1);
        if born < bounds[0] || !steady.contains(&step) {
            continue;
        }
        let entry = per_stack.entry(lifetimes.stack(device, id)).or_insert_with(|| (vec![0; steady.len()], 0, Vec::new()));
        entry.0[step - steady.start] += lifetimes.requested(device, id);
        entry.1 += 1;
        if entry.2.len() < 100 {
            entry.2.push(id);
        }
    }
    let mut found: Vec<Growth> = per_stack
        .into_iter()
        .map(|(stack, (by_step, number, examples))| {
            let (slope, confidence) = line(&by_step);
            Growth {
                stack,
                bytes: by_step.iter().sum(),
                count: number,
                bytes_per_step: slope,
                confidence,
                steps_adding: by_step.iter().filter(|&&b| b > 0).count(),
                steps: by_step.len(),
                examples,
            }
        })
        .collect();
    found.sort_by_key(|g| (std::cmp::Reverse(g.bytes), g.stack));
    found
}

/// Slope and coefficient of determination of the least-squares line through the cumulative sum.
fn line(by_step: &[u64]) -> (f64, f64) {
    let n = by_step.len() as f64;
    let mut sum = 0.0;
    let ys: Vec<f64> = by_step
        .iter()
        .map(|&b| {
            sum += b as f64;
            sum
        })
        .collect();
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = ys.iter().sum::<f64>() / n;
    let (mut sxy, mut sxx, mut syy) = (0.0, 0.0, 0.0);
    for (i, y) in ys.iter().enumerate() {
        let (dx, dy) = (i as f64 - mean_x, y - mean_y);
        sxy += dx * dy;
        sxx += dx * dx;
        syy += dy * dy;
    }
    if sxx == 0.0 || syy == 0.0 { (0.0, 0.0) } else { (sxy / sxx, sxy * sxy / (sxx * syy)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_climb_is_certain_and_a_single_jump_is_not() {
        let (slope, sure) = line(&[10, 10, 10, 10, 10, 10, 10, 10]);
        assert!((slope - 10.0).abs() < 1e-9 && sure > 0.999);
        let (_, unsure) = line(&[0, 0, 0, 0, 0, 0, 0, 80]);
        assert!(unsure < 0.5, "{unsure}");
        assert_eq!(line(&[0, 0, 0]), (0.0, 0.0));
    }
}
