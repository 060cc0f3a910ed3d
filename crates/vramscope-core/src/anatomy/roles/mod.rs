//! The role of each allocation. Statements of the user and the profiler take precedence over the [anatomy](crate::anatomy).
//!
//! Sources by priority: the user's own rules, the profiler's categories, the user's metadata, annotations that name a role, the
//! anatomy (stacks, sizes, lifetimes). [`Roles`] stores two bytes per lifetime; [`Roles::why`] builds the reason on demand.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::anatomy::{Anatomy, Because, Decisions};
use crate::model::{Cancelled, DeviceRecording, Format, Progress, Recording};
use crate::tables::{DeviceTables, LifetimeId};
use crate::units::{Bytes, counted};

mod file;
mod given;
mod named;
mod reason;
mod rules;
#[cfg(test)]
mod tests;

pub use crate::anatomy::Role;
pub use file::{RulesTextError, rules_from_text, rules_path, rules_to_text};
use given::{Given, Source};
pub use named::role_named;
pub use reason::{Reason, Trust};
pub use rules::{Rule, RuleError, Rules};

/// A number of allocations and their requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of allocations.
    pub count: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Bytes of the whole blocks.
    pub block_bytes: u64,
    /// The part of `bytes` whose role is inferred; always 0 unless the tally covers what is live at an instant.
    pub probable: u64,
}

impl Tally {
    /// A sentence about what the user's own rules changed; `None` if they changed nothing.
    pub fn rules_sentence(&self) -> Option<String> {
        let is = if self.count == 1 { "is" } else { "are" };
        (self.count > 0).then(|| {
            format!(
                "{} ({}) {is} in another role because of your own rules.",
                counted(self.count, "allocation", "allocations"),
                Bytes(self.bytes)
            )
        })
    }

    /// The role in words, with "probably" if it is inferred for more than half of the bytes.
    pub fn words(&self, role: Role) -> String {
        role.words(self.probable * 2 > self.bytes)
    }

    fn add(&mut self, other: Tally) {
        self.count += other.count;
        self.probable = self.probable.saturating_add(other.probable);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.block_bytes = self.block_bytes.saturating_add(other.block_bytes);
    }
}

/// One tally per role, in the order of [`Role::ALL`].
pub type ByRole = [Tally; Role::ALL.len()];

/// The role of every allocation of a device.
#[derive(Debug)]
pub struct Roles {
    of: Vec<Role>,
    given: Given,
    decisions: Decisions,
    /// What the program was doing.
    pub anatomy: Anatomy,
    /// All allocations of the recording by role. These are bytes allocated over time, not bytes held at once.
    pub handed_out: ByRole,
    /// The allocations that each of the user's rules decided, in the order of the rules.
    pub by_rule: Vec<Tally>,
    /// Allocations whose role differs because of those rules.
    pub changed: Tally,
}

impl Roles {
    /// Decides the role of every allocation. O(frames + lifetimes), about 100 ns per lifetime.
    ///
    /// # Errors
    /// [`Cancelled`] when `progress` was asked to stop.
    pub fn build(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        rules: &Rules,
        progress: &Progress,
    ) -> Result<Self, Cancelled> {
        progress.check()?;
        let anatomy = Anatomy::read(recording, device, tables);
        progress.check()?;
        // The anatomy applies only to PyTorch programs; in JAX, names and sizes have other meanings.
        let is_jax = recording.source.format == Format::JaxMemoryProfile;
        let mut decisions = if is_jax { Decisions::default() } else { anatomy.decide(device, tables) };
        progress.check()?;
        let given = Given::read(recording, device, tables, rules);
        if given.names_activations() {
            decisions.without_activations();
        }
        let mut of = vec![Role::default(); tables.lifetimes.len()];
        let mut whole = Roles {
            of: Vec::new(),
            given,
            decisions,
            anatomy,
            handed_out: ByRole::default(),
            by_rule: vec![Tally::default(); rules.len()],
            changed: Tally::default(),
        };
        of.par_iter_mut().with_min_len(1 << 14).enumerate().for_each(|(i, of)| {
            *of = whole.decide(device, tables, LifetimeId(i as u32)).0;
        });
        progress.check()?;
        for (i, &role) in of.iter().enumerate() {
            let id = LifetimeId(i as u32);
            let tally = tally(device, tables, id);
            whole.handed_out[role.index()].add(tally);
            if !rules.is_empty()
                && let (_, Source::Rule(rule, _)) = whole.decide(device, tables, id)
            {
                if let Some(sum) = whole.by_rule.get_mut(usize::from(rule)) {
                    sum.add(tally);
                }
                if whole.given.without_rules(device, tables, id).map_or(whole.decisions.of(id.0).0, |g| g.0) != role {
                    whole.changed.add(tally);
                }
            }
        }
        whole.of = of;
        Ok(whole)
    }

    fn decide(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> (Role, Source) {
        let given = self.given.by_rule(device, tables, id).or_else(|| self.given.without_rules(device, tables, id));
        given.unwrap_or_else(|| {
            let (role, because) = self.decisions.of(id.0);
            (role, Source::Anatomy(because))
        })
    }

    /// The role of an allocation; [`Role::Unknown`] for an id of another table. O(1).
    #[inline]
    pub fn of(&self, id: LifetimeId) -> Role {
        self.of.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Why an allocation has its role. Repeats the decision for this one.
    pub fn why(&self, recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Reason {
        let (role, source) = self.decide(device, tables, id);
        let told = self.anatomy.telling_frame(tables.lifetimes.stack(device, id));
        self.given.reason(recording, role, source, told)
    }

    /// Why some allocations have their roles: each reason with what it decided, most bytes first. Repeats the decision for these.
    pub fn reasons(
        &self,
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        ids: impl Iterator<Item = LifetimeId>,
    ) -> Vec<(Reason, Tally)> {
        let mut by_source: FxHashMap<(Role, Source), Tally> = FxHashMap::default();
        for id in ids {
            by_source.entry(self.decide(device, tables, id)).or_default().add(tally(device, tables, id));
        }
        let reason = |((role, source), tally)| (self.given.reason(recording, role, source, None), tally);
        let mut found: Vec<(Reason, Tally)> = by_source.into_iter().map(reason).collect();
        found.sort_by(|(a, of_a), (b, of_b)| (of_b.block_bytes, &a.sentence).cmp(&(of_a.block_bytes, &b.sentence)));
        found
    }

    /// True if the role of an allocation is inferred only from its size, number or lifetime. O(1).
    pub fn is_probable(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> bool {
        matches!(self.decide(device, tables, id).1, Source::Anatomy(because) if because.is_probable())
    }

    /// True if a forward pass keeps it in a graph that no backward pass uses. O(1).
    pub fn is_kept_by_graph(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0).1 == Because::KeptByGraph
    }

    /// True if a forward pass keeps it until the backward pass that follows. O(1).
    pub fn lives_to_backward(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0).1 == Because::LivesToBackward
    }

    /// True for an fp32 copy of a half-precision weight, which the optimizer updates. O(1).
    pub fn is_master_copy(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0) == (Role::OptimizerState, Because::TwiceAsLarge)
    }

    /// True for a gradient that `Module.to` moved with its weight. O(1).
    pub fn is_moved_gradient(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0) == (Role::Gradients, Because::MovedWithWeight)
    }

    /// True if the backward pass computed it again, as with checkpointing. O(1).
    pub fn is_recomputed(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0) == (Role::Activations, Because::Recomputed)
    }

    /// True for a leftover of such a graph from a pass before the history. O(1).
    pub fn is_of_older_graph(&self, id: LifetimeId) -> bool {
        self.decisions.of(id.0) == (Role::Activations, Because::OlderLeftover)
    }

    /// Memory held after `event` ([`NO_EVENT`](crate::tables::NO_EVENT): before the first) by role. O(live blocks).
    pub fn live_by_role(&self, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> ByRole {
        let mut sums = ByRole::default();
        for id in tables.states.live_at(&tables.lifetimes, event) {
            let mut tally = tally(device, tables, id);
            tally.probable = if self.is_probable(device, tables, id) { tally.bytes } else { 0 };
            sums[self.of(id).index()].add(tally);
        }
        sums
    }

    /// True if any allocation has a role other than [`Role::Unknown`].
    pub fn says_anything(&self) -> bool {
        self.handed_out.iter().zip(Role::ALL).any(|(t, c)| c != Role::Unknown && t.count > 0)
    }
}

fn tally(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Tally {
    Tally { count: 1, bytes: tables.lifetimes.requested(device, id), block_bytes: tables.lifetimes.block_size(id), probable: 0 }
}
