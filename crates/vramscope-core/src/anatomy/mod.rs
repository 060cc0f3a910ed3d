//! The anatomy of a recording: what the program was doing. It is determined once and used by all later analyses.
//!
//! [`Phases`] are runs of allocations in one part of the program, recognised by the names in their call stacks. [`Steps`] are the
//! iterations of its own loop. [`Role`]s say what each block is for, including blocks older than the history; they follow from
//! phases, steps, sizes and lifetimes. A role inferred only from sizes and lifetimes is marked and shown with "probably".
//!
//! Sources of the rules: 210 published recordings, and programs that reported their tensors. `docs/FINDINGS.md` has the hit rates.

mod assign;
mod blind;
mod cache;
mod case;
mod composition;
mod copies;
mod forward;
mod frame;
mod loops;
pub mod modules;
mod older;
mod older_model;
mod over_time;
mod period;
mod phases;
mod places;
mod repeats;
mod requests;
mod role;
pub mod roles;
mod sense;
mod stepped;
pub mod steps;
#[cfg(test)]
mod tests;

pub use composition::{Composition, LineHeld, ModuleHeld, RoleHeld};
pub use over_time::RoleColumn;
pub use phases::{Phase, Phases, Run};
pub use places::{OwnBlocks, Which, function_of, line_of, made_at, made_in};
pub use repeats::Repeats;
pub(crate) use role::Because;
pub use role::Role;
pub use roles::Roles;
pub use sense::Part;

use crate::anatomy::steps::{StepSource, Steps, number};
use crate::model::{DeviceRecording, Recording, StackId};
use crate::tables::{DeviceTables, Quantity};

/// What a program was doing on one device.
#[derive(Debug, Default)]
pub struct Anatomy {
    /// Load, forward, backward and other phases of all allocations.
    pub phases: Phases,
    /// Training steps or iterations; empty when none were found.
    pub steps: Steps,
}

/// The role of each block, and why.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    of: Vec<(Role, Because)>,
}

impl Decisions {
    /// Takes inferred activations for temporaries, where the source itself names every activation.
    pub(super) fn without_activations(&mut self) {
        self.of.iter_mut().filter(|of| of.0 == Role::Activations).for_each(|of| of.0 = Role::Temporaries);
    }

    /// The role of a block and the reason; unknown for a row of another table.
    pub(super) fn of(&self, row: u32) -> (Role, Because) {
        self.of.get(row as usize).copied().unwrap_or_default()
    }
}

impl Anatomy {
    /// Reads the anatomy of a device. O(frames of all stacks + lifetimes + annotations).
    pub fn read(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Self {
        let phases = Phases::read(&recording.stacks, device, tables);
        let annotated = crate::anatomy::steps::annotated(recording, device, tables, phases.has_stacks);
        let by_stacks = || loops::find(&recording.stacks, device, tables, &phases);
        let mut steps = match annotated {
            // Two optimizers step twice per iteration, and their annotations do not distinguish them.
            Some(found) if found.source.is_optimizer() && phases.has_stacks => {
                let is_as_good = |s: &Steps| matches!(s.source, StepSource::Optimizer(_)) && s.len() * 3 >= found.len();
                match loops::optimizers(device, tables, &phases) {
                    0 | 1 => loops::by_passes(&recording.stacks, found, device, tables, &phases),
                    // If each optimizer steps once, all of them together make one step.
                    several if several == found.optimizer.len() => found.joined(),
                    _ => Some(by_stacks()).filter(is_as_good).unwrap_or(found),
                }
            }
            Some(found) if found.source.is_optimizer() => {
                let sizes = |&(from, to): &(u32, u32)| {
                    let made = phases.made_within(tables, from, to).filter(|&id| tables.lifetimes.gone(id) < to);
                    made.map(|id| tables.lifetimes.requested(device, id)).collect()
                };
                let made: Vec<Vec<u64>> = found.optimizer.iter().map(sizes).collect();
                found.in_turns(&made)
            }
            Some(found) => found,
            None => {
                let found = by_stacks();
                match steps::single(recording, device, tables) {
                    // Repeating requests within the only annotated optimizer step are those of its parameters.
                    Some(single) if found.is_inferred() => single,
                    Some(single) => Steps { optimizer: single.optimizer, ..found },
                    None => found,
                }
            }
        };
        steps.ends = steps::ends(device, tables, &phases, &steps.bounds);
        Anatomy { phases, steps }
    }

    /// Decides the role of every block. O(lifetimes).
    pub(super) fn decide(&self, device: &DeviceRecording, tables: &DeviceTables) -> Decisions {
        let case = case::Case { device, tables, phases: &self.phases, steps: &self.steps };
        Decisions { of: assign::decide(&case) }
    }

    /// The phase at an event, from its stacks or from an annotated optimizer step.
    pub fn phase_at(&self, event: u32) -> Option<Phase> {
        let is_marked = || self.steps.optimizer.iter().any(|&(from, to)| (from..to).contains(&event));
        self.phases.at(event).or_else(|| is_marked().then_some(Phase::Optimizer))
    }

    /// The phase at an event, in words to follow "at the peak, ": `in the backward pass of step 2`. Empty if unknown.
    pub fn words_at(&self, event: u32) -> String {
        let Some(phase) = self.phase_at(event).or_else(|| self.phases.right_behind(event)) else { return String::new() };
        let words = match self.phases.detail_at(event) {
            Some(detail) => format!("{} ({detail})", phase.in_words()),
            None if self.phase_at(event).is_none() => phase.in_words().replacen("in ", "right after ", 1),
            None => phase.in_words().to_owned(),
        };
        match self.steps.of(event) {
            Some(step) if self.steps.len() > 1 => match phase {
                Phase::Forward | Phase::Backward | Phase::Optimizer => {
                    format!("{words} of step {}", number(step))
                }
                Phase::Load | Phase::Evaluation | Phase::Generation | Phase::Capture | Phase::Between => {
                    format!("in step {}, {words}", number(step))
                }
            },
            _ => words,
        }
    }

    /// [`words_at`](Self::words_at) for the peak, plus the first step with an equally high peak: `in the backward pass of step 17
    /// (step 2 peaked as high)`. O(steps), reading a few cells of the curve for each.
    pub fn words_of_peak(&self, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> String {
        /// Peaks count as equal if they differ by less than 1/n, which a counter or a log may cause.
        const ODD: u64 = 1000;
        let words = self.words_at(event);
        let peak = |step: usize| {
            let bounds = self.steps.bounds.get(step..step + 2)?;
            Some(tables.curves.peak_in(device, &tables.lifetimes, Quantity::Active, bounds[0], bounds[1])?.0)
        };
        let Some((step, high)) = self.steps.of(event).and_then(|step| Some((step, peak(step)?))) else { return words };
        let is_as_high = |&step: &usize| peak(step).is_some_and(|bytes| bytes.abs_diff(high) <= high / ODD);
        let before = (0..step).find(is_as_high);
        match before.filter(|_| !words.is_empty()) {
            Some(first) => format!("{words} (step {} peaked as high)", number(first)),
            None => words,
        }
    }

    /// The frame that determined a stack's part, for use in reasons.
    pub(super) fn telling_frame(&self, stack: StackId) -> Option<crate::model::FrameId> {
        self.phases.sense(stack).frame
    }
}
