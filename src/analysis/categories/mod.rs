//! What each allocation is for: parameters, gradients, optimizer state, activations and so on, each with its reason.
//!
//! The sources, in the order they are believed: the user's own rules, the profiler's categories, the user's metadata,
//! annotations that name a category, call stacks (innermost frame first), and last the allocation's lifetime beside the
//! optimizer's steps. [`Categories`] holds one byte a lifetime; why is found again when asked ([`Categories::why`]).

use rayon::prelude::*;

use super::{DeviceTables, LifetimeId};
use crate::model::{Cancelled, DeviceRecording, Progress, Recording};
use crate::units::{Bytes, counted};

mod facts;
mod file;
mod frames;
mod named;
mod reason;
mod rules;
#[cfg(test)]
mod tests;

use facts::Facts;
pub use file::{rules_from_text, rules_path, rules_to_text};
pub use named::category_named;
pub use reason::{Reason, Trust};
pub use rules::{Rule, RuleError, Rules};

/// What an allocation is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Category {
    /// Weights and buffers of the model.
    Parameters,
    /// Gradients of parameters: made in the backward pass, alive when the optimizer steps.
    Gradients,
    /// What the optimizer keeps between steps.
    OptimizerState,
    /// Outputs of the forward pass.
    Activations,
    /// Made and gone within a backward pass, an optimizer's step or a benchmark.
    Temporaries,
    /// Scratch memory of cuBLAS, cuDNN and other libraries.
    Workspaces,
    /// Buffers of collectives: buckets, gathered parameters.
    Communication,
    /// Key-value caches of inference.
    KvCache,
    /// No rule applies.
    #[default]
    Other,
}

impl Category {
    /// Every category, in the order of legends and tables.
    pub const ALL: [Category; 9] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::Temporaries,
        Category::Workspaces,
        Category::Communication,
        Category::KvCache,
        Category::Other,
    ];

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name inside a sentence and in a legend.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activations => "activations",
            Category::Temporaries => "temporaries",
            Category::Workspaces => "workspaces",
            Category::Communication => "communication",
            Category::KvCache => "KV cache",
            Category::Other => "other",
        }
    }

    /// Its stable name: JSON, queries (`category=optimizer_state`), settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Category::OptimizerState => "optimizer_state",
            Category::KvCache => "kv_cache",
            other => other.text(),
        }
    }

    /// One sentence for hover.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Category::Parameters => "Weights and buffers of the model.",
            Category::Gradients => "Gradients of parameters: made in the backward pass, alive when the optimizer steps.",
            Category::OptimizerState => "What the optimizer keeps between steps, such as Adam's two moments.",
            Category::Activations => "Outputs of the forward pass; training keeps them for the backward pass.",
            Category::Temporaries => "Made and gone within a backward pass, an optimizer's step or a benchmark.",
            Category::Workspaces => "Scratch memory of cuBLAS, cuDNN and other libraries.",
            Category::Communication => "Buffers of collectives: buckets, gathered parameters.",
            Category::KvCache => "Key-value caches of inference.",
            Category::Other => "No rule applies. Your own rules can name it.",
        }
    }
}

/// A number of allocations and their requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Allocations.
    pub count: u64,
    /// Bytes the program asked for.
    pub bytes: u64,
    /// Bytes of their whole blocks.
    pub block_bytes: u64,
}

impl Tally {
    /// Said of what the user's own rules changed; `None` when that is nothing.
    #[must_use]
    pub fn rules_sentence(&self) -> Option<String> {
        let is = if self.count == 1 { "is" } else { "are" };
        (self.count > 0).then(|| {
            format!(
                "{} ({}) {is} in another category because of your own rules.",
                counted(self.count, "allocation", "allocations"),
                Bytes(self.bytes)
            )
        })
    }

    fn add(&mut self, other: Tally) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.block_bytes = self.block_bytes.saturating_add(other.block_bytes);
    }
}

/// A tally for each of [`Category::ALL`], in that order.
pub type ByCategory = [Tally; Category::ALL.len()];

/// The category of every allocation of a device: one byte each.
#[derive(Debug)]
pub struct Categories {
    of: Vec<Category>,
    facts: Facts,
    /// Every allocation of the recording, by category: bytes handed out, not bytes held at once.
    pub handed_out: ByCategory,
    /// What each of the user's rules decided, in the order of the rules given.
    pub by_rule: Vec<Tally>,
    /// Allocations that are in another category because of those rules.
    pub changed: Tally,
}

impl Categories {
    /// Sorts every allocation of a device. O(frames and lifetimes), on all cores: about 50 ns a lifetime.
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
        const CHUNK: usize = 1 << 16;
        let facts = Facts::gather(recording, device, tables, rules, progress)?;
        let mut of = vec![Category::Other; tables.lifetimes.len()];
        let parts: Vec<(ByCategory, Vec<Tally>, Tally)> = of
            .par_chunks_mut(CHUNK)
            .enumerate()
            .map(|(chunk, of)| {
                progress.check()?;
                let mut handed_out = ByCategory::default();
                let mut by_rule = vec![Tally::default(); rules.len()];
                let mut changed = Tally::default();
                for (i, category) in of.iter_mut().enumerate() {
                    let id = LifetimeId((chunk * CHUNK + i) as u32);
                    let decided = facts.decide(device, tables, id);
                    *category = decided.category;
                    let tally = tally(device, tables, id);
                    handed_out[decided.category.index()].add(tally);
                    if let Some(rule) = decided.user_rule().and_then(|r| by_rule.get_mut(r)) {
                        rule.add(tally);
                        if facts.without_user(device, tables, id) != decided.category {
                            changed.add(tally);
                        }
                    }
                }
                Ok((handed_out, by_rule, changed))
            })
            .collect::<Result<_, Cancelled>>()?;
        let mut whole = Categories {
            of,
            facts,
            handed_out: ByCategory::default(),
            by_rule: vec![Tally::default(); rules.len()],
            changed: Tally::default(),
        };
        for (handed_out, by_rule, changed) in parts {
            whole.changed.add(changed);
            whole.handed_out.iter_mut().zip(handed_out).for_each(|(sum, part)| sum.add(part));
            whole.by_rule.iter_mut().zip(by_rule).for_each(|(sum, part)| sum.add(part));
        }
        Ok(whole)
    }

    /// The category of an allocation; [`Category::Other`] for an id of another table. O(1).
    #[must_use]
    #[inline]
    pub fn of(&self, id: LifetimeId) -> Category {
        self.of.get(id.0 as usize).copied().unwrap_or_default()
    }

    /// Why an allocation is in its category. Decides again, for this one.
    #[must_use]
    pub fn why(&self, recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Reason {
        self.facts.reason(recording, self.facts.decide(device, tables, id))
    }

    /// What is held after `event` ([`NO_EVENT`](super::NO_EVENT): before the first), by category; pending frees are among it.
    /// Cost: the live set.
    #[must_use]
    pub fn live_by_category(&self, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> ByCategory {
        let mut sums = ByCategory::default();
        for id in tables.states.live_at(&tables.lifetimes, event) {
            sums[self.of(id).index()].add(tally(device, tables, id));
        }
        sums
    }

    /// True when some allocation is in a category other than [`Category::Other`].
    #[must_use]
    pub fn says_anything(&self) -> bool {
        self.handed_out.iter().zip(Category::ALL).any(|(t, c)| c != Category::Other && t.count > 0)
    }
}

fn tally(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Tally {
    Tally { count: 1, bytes: tables.lifetimes.requested(device, id), block_bytes: tables.lifetimes.block_size(id) }
}
