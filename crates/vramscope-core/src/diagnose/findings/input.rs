//! The input of the rules.

use std::sync::OnceLock;

use crate::anatomy::roles::Roles;
use crate::anatomy::steps::Steps;
use crate::anatomy::{Phase, Run};
use crate::changes::{Answer, Change, Recorded};
use crate::diagnose::counterfactual::Saving;
use crate::diagnose::leaks::Growth;
use crate::diagnose::oom::{Autopsy, closest};
use crate::diagnose::vendor::Words;
use crate::model::{DeviceRecording, Recording, StackId};
use crate::tables::{DeviceTables, LifetimeId, Quantity, StackNames, State};

/// One device, with everything that is computed before the rules run.
pub struct RuleInput<'a> {
    /// The recording with all its devices and stacks.
    pub recording: &'a Recording,
    /// The device to examine, one of the recording's.
    pub device: &'a DeviceRecording,
    /// Vendor-specific names, used in every sentence.
    pub words: &'static Words,
    /// Lifetimes, curves and states of the device.
    pub tables: &'a DeviceTables,
    /// Short names of stacks.
    pub names: &'a StackNames,
    /// The device's steps; empty if none were found.
    pub steps: Steps,
    /// The state at the peak of active memory.
    pub at_peak: State,
    /// The event of [`at_peak`](Self::at_peak).
    pub peak_event: u32,
    /// The examined out-of-memory events.
    pub ooms: Vec<Autopsy>,
    /// The role of each allocation.
    pub roles: Roles,
    /// Growing memory by stack, most bytes first.
    pub growth: Vec<Growth>,
    /// Marks of each stack.
    pub(super) marks: Vec<u16>,
    /// The requests, on which changes are tried; read on first use.
    pub(super) recorded: OnceLock<Recorded>,
}

impl RuleInput<'_> {
    /// The marks of a stack, see `rules/shared.rs`.
    pub(super) fn flags(&self, stack: StackId) -> u16 {
        self.marks.get(stack.0 as usize).copied().unwrap_or(0)
    }

    pub(super) fn flags_of(&self, id: LifetimeId) -> u16 {
        self.flags(self.tables.lifetimes.stack(self.device, id))
    }

    pub(super) fn stack_of(&self, id: LifetimeId) -> Option<StackId> {
        Some(self.tables.lifetimes.stack(self.device, id)).filter(|s| s.is_some())
    }

    /// The effect of a change on the peak, and the changed allocations, computed as in a plan. `None` if the change does nothing.
    pub(super) fn with_change(&self, change: Change) -> Option<(Saving, Answer)> {
        self.with_changes(&[change])
    }

    /// Like [`with_change`](Self::with_change), for several changes at once.
    pub(super) fn with_changes(&self, changes: &[Change]) -> Option<(Saving, Answer)> {
        let recorded = self.recorded.get_or_init(|| Recorded::of(self.device, self.tables, &self.roles));
        let answer = recorded.with(&self.recording.stacks, changes).ok()?;
        // Bytes that the source reports beyond its allocations stay unchanged.
        let peak = self.tables.curves.peak(Quantity::Active).0;
        Some((Saving { before: peak, after: peak.saturating_add(answer.after).saturating_sub(answer.before) }, answer))
    }

    /// Bytes that an allocation requested.
    pub(super) fn requested(&self, id: LifetimeId) -> u64 {
        self.tables.lifetimes.requested(self.device, id)
    }

    /// The program's passes, in order.
    pub(super) fn runs(&self) -> &[Run] {
        &self.roles.anatomy.phases.runs
    }

    /// True if a backward pass was recorded.
    pub(super) fn trains(&self) -> bool {
        self.runs().iter().any(|run| run.phase == Phase::Backward)
    }

    pub(super) fn last_event(&self) -> u32 {
        self.device.events.len().saturating_sub(1) as u32
    }

    /// True if memory was short: a request failed, or less than a tenth of the cap or the device was left at the peak.
    pub(super) fn is_short(&self) -> bool {
        if !self.ooms.is_empty() {
            return true;
        }
        let room = closest(self.device, self.tables).and_then(|c| Some((c.room?, c.reserved)));
        room.is_some_and(|(room, reserved)| room.bytes.saturating_mul(9) < reserved)
    }
}
