//! The diagnosis rules: what is wrong with a recording, each with its numbers, its place, its remedy and how to check it.
//!
//! A rule fires on numbers alone; a healthy recording triggers none. Classes rank findings, bytes rank within a class.

mod beside;
mod rules;

use std::sync::Arc;

use super::oom::{Autopsy, examine};
use super::steps::Steps;
use super::{DeviceTables, LifetimeId, Quantity, StackNames, State};
use crate::model::{Cancelled, DeviceRecording, Progress, Recording, StackId};
use crate::units::Bytes;

/// How much a finding matters; the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A request failed.
    OutOfMemory,
    /// Memory grows with every step.
    Leak,
    /// How memory is held: fragmentation, cache, pools.
    Structure,
    /// What makes the peak.
    Peak,
    /// Small losses, and things to know.
    Hygiene,
}

/// Where a finding points: a click takes every view there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The instant.
    pub event: Option<u32>,
    /// The stretch, first and last event.
    pub range: Option<(u32, u32)>,
    /// The stack.
    pub stack: Option<StackId>,
    /// The allocations.
    pub lifetimes: Vec<LifetimeId>,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What.
    pub label: String,
    /// Its figure, with unit.
    pub value: String,
    /// True for the figure that failed.
    pub is_red: bool,
}

/// One diagnosis.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// Rank.
    pub class: Class,
    /// A few words.
    pub title: String,
    /// Bytes at stake.
    pub bytes: u64,
    /// One or two sentences with numbers.
    pub sentence: String,
    /// The numbers behind it.
    pub evidence: Vec<Evidence>,
    /// Where to look.
    pub place: Place,
    /// What to do: a setting or a line of code to copy, when there is one.
    pub remedy: Option<String>,
    /// How the remedy is applied, in words.
    pub advice: String,
    /// How to check that it helped.
    pub verify: String,
}

/// What the rules look at.
pub struct Patient<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// The device.
    pub device: &'a DeviceRecording,
    /// Its tables.
    pub tables: &'a DeviceTables,
    /// Short names of stacks.
    pub names: &'a StackNames,
    /// Its steps.
    pub steps: Steps,
    /// The state at the peak of active memory.
    pub at_peak: State,
    /// That instant.
    pub peak_event: u32,
    /// The autopsies of its out-of-memory events.
    pub ooms: Vec<Autopsy>,
}

/// The result of the rules, with what they worked out on the way.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Ranked.
    pub findings: Vec<Finding>,
    /// One an out-of-memory event.
    pub ooms: Vec<Arc<Autopsy>>,
    /// The steps the rules used.
    pub steps: Steps,
}

/// Runs every rule. O(lifetimes).
///
/// # Errors
/// When cancelled.
pub fn diagnose(
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    names: &StackNames,
    progress: &Progress,
) -> Result<Findings, Cancelled> {
    let peak_event = tables.curves.peak(Quantity::Active).1;
    let at_peak = tables.states.at(device, &tables.lifetimes, peak_event);
    let steps = Steps::find(recording, device, tables);
    progress.check()?;
    let ooms: Vec<Autopsy> = device
        .events
        .ooms()
        .into_iter()
        .take(64)
        .filter_map(|event| examine(device, tables, event, &tables.states.at(device, &tables.lifetimes, event)))
        .collect();
    progress.check()?;
    let patient = Patient { recording, device, tables, names, steps, at_peak, peak_event, ooms };
    let mut findings = Vec::new();
    for rule in rules::ALL {
        progress.check()?;
        findings.extend(rule(&patient));
    }
    findings.sort_by(|a, b| (a.class, std::cmp::Reverse(a.bytes), a.rule).cmp(&(b.class, std::cmp::Reverse(b.bytes), b.rule)));
    Ok(Findings { findings, ooms: patient.ooms.into_iter().map(Arc::new).collect(), steps: patient.steps })
}

impl Evidence {
    fn bytes(label: &str, bytes: u64) -> Self {
        Evidence { label: label.to_owned(), value: Bytes(bytes).to_string(), is_red: false }
    }

    fn text(label: &str, value: impl Into<String>) -> Self {
        Evidence { label: label.to_owned(), value: value.into(), is_red: false }
    }

    fn red(mut self) -> Self {
        self.is_red = true;
        self
    }
}
