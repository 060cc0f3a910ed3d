//! Training steps: from annotations when the recording has them, else inferred from a call stack that repeats.

use rustc_hash::FxHashMap;

use super::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{DeviceRecording, Recording, StackId};

/// How steps were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StepSource {
    /// They were not: the recording is one stretch.
    #[default]
    None,
    /// Ranges of this name ended them: `ProfilerStep`, `Optimizer.step`.
    Annotation(String),
    /// This stack allocates once a step. Inferred, and to be shown as such.
    Stack(StackId),
}

/// The steps of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Step i holds events `bounds[i]..bounds[i + 1]`; empty when no steps were found.
    pub bounds: Vec<u32>,
    /// Where they come from.
    pub source: StepSource,
}

/// Fewest repetitions that make a pattern.
const FEWEST: usize = 4;

impl Steps {
    /// Finds the steps of a device. O(events + annotations).
    #[must_use]
    pub fn find(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Self {
        by_annotation(recording, device).or_else(|| by_stack(device, tables)).unwrap_or_default()
    }

    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// True when none were found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when no annotation says so.
    #[must_use]
    pub fn is_inferred(&self) -> bool {
        matches!(self.source, StepSource::Stack(_))
    }

    /// The step that holds an event.
    #[must_use]
    pub fn of(&self, event: u32) -> Option<usize> {
        let at = self.bounds.partition_point(|&b| b <= event).checked_sub(1)?;
        (at < self.len()).then_some(at)
    }
}

/// A step ends where its optimizer step ends, or where the profiler's step does.
fn by_annotation(recording: &Recording, device: &DeviceRecording) -> Option<Steps> {
    if !device.events.has_time {
        return None;
    }
    let times = &device.events.time_us;
    let mut ends: FxHashMap<&str, Vec<u32>> = FxHashMap::default();
    for a in &device.annotations {
        let name = recording.stacks.text(a.name);
        let key = name.split('#').next().unwrap_or(name).trim();
        if (key == "ProfilerStep" || key == "Optimizer.step")
            && let Some(end) = a.end_us
        {
            ends.entry(key).or_default().push(times.partition_point(|&t| t <= end) as u32);
        }
    }
    let key = ["ProfilerStep", "Optimizer.step"].into_iter().find(|k| ends.get(k).is_some_and(|e| e.len() >= 2))?;
    let mut bounds = ends.remove(key)?;
    bounds.push(0);
    bounds.sort_unstable();
    bounds.dedup();
    let n = device.events.len() as u32;
    // What follows the last optimizer step is a step of its own only when it is as long as one.
    let typical = n / bounds.len().max(1) as u32;
    if bounds.last().is_some_and(|&b| n.saturating_sub(b) > typical / 2) {
        bounds.push(n);
    }
    (bounds.len() > 2).then(|| Steps { bounds, source: StepSource::Annotation(key.to_owned()) })
}

/// The stack whose allocations come at the most even distances, and few enough to be steps.
fn by_stack(device: &DeviceRecording, tables: &DeviceTables) -> Option<Steps> {
    let n = device.events.len() as u32;
    let mut births: FxHashMap<StackId, Vec<u32>> = FxHashMap::default();
    for i in 0..tables.lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let stack = tables.lifetimes.stack(device, id);
        let born = tables.lifetimes.born(id);
        if stack.is_some() && born != NO_EVENT {
            let list = births.entry(stack).or_default();
            // More repetitions than this are inside a step.
            if list.len() < 20_000 {
                list.push(born);
            }
        }
    }
    let mut best: Option<(f64, usize, StackId)> = None;
    for (&stack, list) in &births {
        if list.len() < FEWEST || list.len() >= 20_000 {
            continue;
        }
        let span = list[list.len() - 1] - list[0];
        let mean = f64::from(span) / (list.len() - 1) as f64;
        // A step is more than a handful of events, and steps fill most of a recording.
        if mean < 6.0 || f64::from(span) < 0.5 * f64::from(n) {
            continue;
        }
        let variance = list.windows(2).map(|w| (f64::from(w[1] - w[0]) - mean).powi(2)).sum::<f64>() / (list.len() - 1) as f64;
        let unevenness = variance.sqrt() / mean;
        // Of equally even stacks the one with most steps: a stack that allocates every second step is as even as the step itself.
        let better = match best {
            None => true,
            Some((u, count, s)) => {
                let (a, b) = ((unevenness * 10.0) as u32, (u * 10.0) as u32);
                (a, std::cmp::Reverse(list.len()), stack) < (b, std::cmp::Reverse(count), s)
            }
        };
        if unevenness < 0.35 && better {
            best = Some((unevenness, list.len(), stack));
        }
    }
    let (_, _, stack) = best?;
    let mut bounds = births.remove(&stack)?;
    let last = bounds[bounds.len() - 1];
    let mean = (last - bounds[0]) / (bounds.len() as u32 - 1);
    bounds.push(last.saturating_add(mean).min(n));
    bounds.dedup();
    Some(Steps { bounds, source: StepSource::Stack(stack) })
}
