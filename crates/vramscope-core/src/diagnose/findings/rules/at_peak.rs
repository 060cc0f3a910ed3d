//! Helpers about the peak: the blocks of a rule, the lines that made them, and the peak without them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::anatomy::Repeats;
use crate::anatomy::roles::Role;
use crate::diagnose::counterfactual::{Saving, peak_after};
use crate::diagnose::findings::{Place, RuleInput};
use crate::model::{BlockState, StackId};
use crate::tables::{BlockAt, LifetimeId, NO_EVENT, Quantity};
use crate::units::MEBIBYTE;

/// Fewer bytes than this at the peak are not reported.
pub(super) const LEAST: u64 = 64 * MEBIBYTE;

/// The peak of active bytes.
pub(super) fn peak(p: &RuleInput<'_>) -> u64 {
    p.tables.curves.peak(Quantity::Active).0
}

/// The live blocks at the peak that pass a test, largest first, and their bytes.
pub(super) fn held<'a>(p: &'a RuleInput<'_>, is_one: impl Fn(&BlockAt) -> bool) -> (Vec<&'a BlockAt>, u64) {
    let mut blocks: Vec<&BlockAt> = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && is_one(b)).collect();
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.size), b.lifetime));
    let bytes = blocks.iter().map(|b| b.size).sum();
    (blocks, bytes)
}

/// Like [`held`], for the blocks of one role.
pub(super) fn of_role<'a>(p: &'a RuleInput<'_>, role: Role) -> (Vec<&'a BlockAt>, u64) {
    held(p, |b| p.roles.of(b.lifetime) == role)
}

/// The place for some blocks at the peak, with the stack of the first one.
pub(super) fn place(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> Place {
    Place {
        event: (p.peak_event != NO_EVENT).then_some(p.peak_event),
        stack: blocks.first().and_then(|b| p.stack_of(b.lifetime)),
        lifetimes: blocks.iter().take(1000).map(|b| b.lifetime).collect(),
        range: None,
    }
}

/// `probably ` if the role of most of these bytes is inferred only from sizes, counts and lifetimes.
pub(super) fn probably(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> &'static str {
    let is_probable = |b: &&&BlockAt| p.roles.is_probable(p.device, p.tables, b.lifetime);
    let (all, probable): (u64, u64) =
        (blocks.iter().map(|b| b.size).sum(), blocks.iter().filter(is_probable).map(|b| b.size).sum());
    if probable.saturating_mul(2) > all { "probably " } else { "" }
}

/// The line that made a block, named as in the Memory view.
pub(super) fn made_at(p: &RuleInput<'_>, id: LifetimeId) -> String {
    let stack = p.tables.lifetimes.stack(p.device, id);
    crate::anatomy::made_at(&p.recording.stacks, p.names, stack, p.roles.of(id))
}

/// The step that made a block; each step has its own graph. `None` if steps are only inferred, because they may be layers.
pub(super) fn step_of(p: &RuleInput<'_>, id: LifetimeId) -> Option<usize> {
    if p.steps.is_inferred() { None } else { p.steps.of(p.tables.lifetimes.born(id)) }
}

/// The lines that hold most of these blocks, at most three: `model.py:41, model.py:527 and model.py:105`.
pub(super) fn lines(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> String {
    let mut by_name: FxHashMap<String, u64> = FxHashMap::default();
    for b in blocks.iter().filter(|b| p.stack_of(b.lifetime).is_some()) {
        *by_name.entry(made_at(p, b.lifetime)).or_default() += b.size;
    }
    let mut names: Vec<(String, u64)> = by_name.into_iter().collect();
    names.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    // The fourth is named if it is the last.
    let named: Vec<&str> = names.iter().take(if names.len() == 4 { 4 } else { 3 }).map(|n| n.0.as_str()).collect();
    together(&named)
}

/// Joins names: `a, b and c`.
pub(super) fn together(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The peak if each allocation had the size that `keeps` returns for it. O(events).
pub(super) fn saving(p: &RuleInput<'_>, keeps: impl Fn(LifetimeId, u64) -> u64) -> Saving {
    Saving { before: peak(p), after: peak_after(p.device, p.tables, keeps) }
}

/// Similar layers of a model: each line of code runs once or a few times in each of them.
pub(super) struct Layers {
    /// Number of layers; `None` if the model has several kinds of layers, such as the stages of a ResNet.
    pub number: Option<u64>,
    /// For each stack that runs more than once: calls in one pass, and blocks at the peak.
    of: FxHashMap<StackId, (u64, u64)>,
}

impl Layers {
    /// Finds layers from the stacks of some blocks; `None` if no stack runs twice. A line may run several times in a layer. So
    /// the number of layers is the largest divisor of the calls of most stacks, weighted by their blocks.
    pub(super) fn of(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> Option<Self> {
        let passes = Repeats::of_pass(p.device, p.tables, &p.roles.anatomy, p.peak_event);
        let mut live: Vec<LifetimeId> = blocks.iter().map(|b| b.lifetime).collect();
        live.sort_unstable();
        let repeats = if passes.iter().next().is_some() { passes } else { Repeats::of(p.device, p.tables, live.into_iter()) };
        let mut of: FxHashMap<StackId, (u64, u64)> =
            repeats.iter().filter(|&(_, calls)| calls >= 2).map(|(stack, calls)| (stack, (calls, 0))).collect();
        for stack in blocks.iter().filter_map(|b| p.stack_of(b.lifetime)) {
            of.entry(stack).and_modify(|held| held.1 += 1);
        }
        of.retain(|_, held| held.1 > 0);
        let divided_by = |n: u64| of.values().filter(|held| held.0 % n == 0).map(|held| held.1).sum::<u64>();
        let all = divided_by(1);
        let numbers: FxHashSet<u64> = of.values().map(|held| held.0).collect();
        let number = numbers.into_iter().filter(|&n| divided_by(n).saturating_mul(5) >= all.saturating_mul(4)).max();
        (!of.is_empty()).then_some(Layers { number, of })
    }

    /// The stack of the layers' most likely inputs, which checkpointing keeps: one block per layer, of the most common size.
    pub(super) fn input(&self, p: &RuleInput<'_>, blocks: &[&BlockAt]) -> Option<StackId> {
        let mut sizes: FxHashMap<u64, u64> = FxHashMap::default();
        let stacked = || blocks.iter().filter_map(|b| Some((b, p.stack_of(b.lifetime)?)));
        let once_a_layer = || stacked().filter(|&(_, stack)| self.runs(stack) > 1 && self.in_each(stack) == 1);
        for (b, _) in once_a_layer() {
            *sizes.entry(b.size).or_default() += 1;
        }
        let (size, _) = sizes.into_iter().max_by_key(|&(size, n)| (n, size))?;
        once_a_layer().find(|(b, _)| b.size == size).map(|(_, stack)| stack)
    }

    /// Number of layers in which a stack runs: the model's, or the number of its calls if that is not a multiple; 1 outside layers.
    pub(super) fn runs(&self, stack: StackId) -> u64 {
        match (self.of.get(&stack), self.number) {
            (Some((calls, _)), Some(number)) if calls % number == 0 => number,
            (Some(&(calls, _)), _) => calls,
            (None, _) => 1,
        }
    }

    /// Number of a stack's blocks per layer.
    pub(super) fn in_each(&self, stack: StackId) -> u64 {
        self.of.get(&stack).map_or(1, |&(_, blocks)| blocks / self.runs(stack))
    }

    /// `With the 6 repeated layers checkpointed`.
    pub(super) fn checkpointed(&self) -> String {
        let number = self.number.map_or(String::new(), |n| format!("{n} "));
        format!("With the {number}repeated layers checkpointed")
    }
}
