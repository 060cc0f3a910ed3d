//! [`Facts`]: what is known of a recording before single allocations are looked at, and the decision for one.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Category;
use super::frames::{Code, StackCode, read_stacks};
use super::named::{Noted, optimizer_steps, read_annotations, read_notes};
use super::rules::{Rules, frame_text};
use crate::analysis::{DeviceTables, LifetimeId, NO_EVENT};
use crate::model::{Action, Cancelled, DeviceRecording, FrameId, Progress, Recording, StackId, StrId};

/// Why an allocation is what it is, small enough to make for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// A rule of the user's, by its index, matches a frame.
    User(u16, FrameId),
    /// The profiler says so.
    Profiler(StrId),
    /// The user's metadata say so.
    Metadata(StrId),
    /// It was made inside an annotation of this name.
    Annotation(StrId),
    /// A frame answers to a built-in rule; its fate decides the rest, where there is one.
    Frame(FrameId, u8, Option<Fate>),
    /// Without a telling stack: what became of it.
    Fate(Fate),
    /// Nothing is known.
    Nothing,
}

/// What became of an allocation, beside the optimizer's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Made in an optimizer's step and kept after it.
    OutlivesOptimizer,
    /// Made and gone in an optimizer's step.
    DiesInOptimizer,
    /// Without a Python stack, so made by autograd; alive when the optimizer steps.
    AutogradAliveAtStep,
    /// The same, as large as a parameter, and no optimizer step to be seen.
    AutogradSizeOfParameter,
    /// Without a Python stack, gone before the optimizer steps.
    AutogradGoneBeforeStep,
    /// Alive when the optimizer steps, and as large as a parameter.
    AliveAtStep,
    /// Gone before the optimizer steps.
    GoneBeforeStep,
    /// As large as a library's workspace, and never freed.
    LibrarySize,
    /// Older than the first optimizer step, and outlives them all.
    OutlivesAll,
    /// Made and gone between two optimizer steps, in a recording without stacks.
    WithinStep,
    /// Made where each block takes the place of a smaller one that was copied into it.
    GrowsByCopy,
    /// Copied into such a block, and freed right after.
    CopiedIntoCache,
    /// Made at the start, with all that its stack ever made, and never freed; no optimizer to be seen.
    MadeAtStart,
}

/// What was decided for one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) category: Category,
    pub(super) because: Because,
}

impl Decided {
    pub(super) fn user_rule(self) -> Option<usize> {
        match self.because {
            Because::User(rule, _) => Some(usize::from(rule)),
            _ => None,
        }
    }
}

/// What is known of a recording before single allocations are looked at.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) rules: Rules,
    /// By stack: the first of the user's rules that matches, and the frame.
    user: Vec<Option<(u16, FrameId)>>,
    /// By stack: what built-in rules say.
    codes: Vec<StackCode>,
    /// By lifetime, for the few that have one: what a note says.
    noted: FxHashMap<u32, Noted>,
    annotated: Vec<(u32, u32, Category, StrId)>,
    /// The optimizer's steps, ascending: first event and the one after the last.
    steps: Vec<(u32, u32)>,
    /// Requested sizes of parameters.
    parameter_sizes: FxHashSet<u64>,
    /// How many allocations of a workspace's size are never freed, by size.
    kept_of_size: FxHashMap<u64, u32>,
    /// Functions named after a cache whose blocks grow by copies.
    growing_caches: FxHashSet<FrameId>,
    /// Lifetimes whose contents were copied into such a block.
    copied_into_cache: FxHashSet<u32>,
    /// Stacks of the user's constructors and loaders that allocate only at the start of a recording without an optimizer.
    built_at_start: FxHashSet<StackId>,
    has_stacks: bool,
    has_oom: bool,
}

/// Requested bytes of cuBLAS workspaces: `:4096:2:16:8` (8,320 KiB), 4 MiB, Hopper's 32 MiB, and cuBLASLt's 1 MiB.
const WORKSPACES: [u64; 4] = [8_519_680, 4_194_304, 33_554_432, 1_048_576];
/// More than this many of one size are no workspaces: there is one a thread and stream.
const MOST_WORKSPACES: u32 = 4;

impl Facts {
    pub(super) fn gather(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        rules: &Rules,
        progress: &Progress,
    ) -> Result<Self, Cancelled> {
        let lifetimes = &tables.lifetimes;
        let codes = read_stacks(&recording.stacks);
        let mut noted: FxHashMap<u32, Noted> = FxHashMap::default();
        for note in read_notes(recording, device) {
            let id = lifetimes.of_event(note.event);
            // A later note stands above an earlier one, the profiler's above the user's.
            if id.is_some() && (note.is_profiler || noted.get(&id.0).is_none_or(|n| !n.is_profiler)) {
                noted.insert(id.0, note);
            }
        }
        let mut facts = Facts {
            user: user_stacks(recording, rules),
            rules: rules.clone(),
            codes,
            noted,
            annotated: read_annotations(recording, device),
            steps: optimizer_steps(recording, device),
            parameter_sizes: FxHashSet::default(),
            kept_of_size: FxHashMap::default(),
            growing_caches: FxHashSet::default(),
            copied_into_cache: FxHashSet::default(),
            built_at_start: FxHashSet::default(),
            has_stacks: !recording.stacks.is_empty(),
            has_oom: !device.events.ooms().is_empty(),
        };
        progress.check()?;
        if facts.steps.is_empty() {
            facts.steps = facts.steps_by_stack(device, tables);
        }
        progress.check()?;
        facts.sizes(device, tables);
        progress.check()?;
        facts.caches_and_builders(device, tables);
        Ok(facts)
    }

    fn code(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> (StackId, StackCode) {
        let stack = tables.lifetimes.stack(device, id);
        (stack, self.codes.get(stack.0 as usize).copied().unwrap_or_default())
    }

    /// Optimizer steps as their stacks tell: from the first allocation of one to the next of the forward or backward pass.
    fn steps_by_stack(&self, device: &DeviceRecording, tables: &DeviceTables) -> Vec<(u32, u32)> {
        if !self.codes.iter().any(|c| c.code == Code::Optimizer) {
            return Vec::new();
        }
        let mut steps: Vec<(u32, u32)> = Vec::new();
        let mut is_open = false;
        for i in tables.lifetimes.initial_count() as u32..tables.lifetimes.len() as u32 {
            let id = LifetimeId(i);
            let (stack, found) = self.code(device, tables, id);
            match found.code {
                Code::Optimizer if !is_open => {
                    steps.push((tables.lifetimes.born(id), u32::MAX));
                    is_open = true;
                }
                Code::Forward | Code::Backward => is_open = close(&mut steps, is_open, tables.lifetimes.born(id)),
                Code::Unknown if !stack.is_some() => is_open = close(&mut steps, is_open, tables.lifetimes.born(id)),
                _ => {}
            }
        }
        close(&mut steps, is_open, device.events.len() as u32);
        steps
    }

    /// Sizes of parameters, and how often a workspace's size is kept for good.
    fn sizes(&mut self, device: &DeviceRecording, tables: &DeviceTables) {
        let lifetimes = &tables.lifetimes;
        let n = lifetimes.len() as u32;
        let facts = &*self;
        let (sizes, kept) = (0..n)
            .into_par_iter()
            .with_min_len(1 << 16)
            .fold(
                || (FxHashSet::<u64>::default(), FxHashMap::<u64, u32>::default()),
                |(mut sizes, mut kept), i| {
                    let id = LifetimeId(i);
                    let is_kept = lifetimes.gone(id) == NO_EVENT;
                    let (_, found) = facts.code(device, tables, id);
                    let is_parameter =
                        found.code == Code::Parameters || (found.code == Code::Unknown && facts.outlives_all(tables, id));
                    if is_parameter {
                        sizes.insert(lifetimes.requested(device, id));
                    }
                    if is_kept && found.code != Code::Parameters {
                        let size = lifetimes.requested(device, id);
                        if WORKSPACES.contains(&size) {
                            *kept.entry(size).or_default() += 1;
                        }
                    }
                    (sizes, kept)
                },
            )
            .reduce(Default::default, |(mut sizes, mut kept), (more, too)| {
                sizes.extend(more);
                for (size, count) in too {
                    *kept.entry(size).or_default() += count;
                }
                (sizes, kept)
            });
        self.parameter_sizes = sizes;
        self.kept_of_size = kept;
    }

    /// Which functions named after a cache let their blocks grow by copies, and which constructors allocate at the start only.
    /// O(allocations), where the recording has such functions at all.
    fn caches_and_builders(&mut self, device: &DeviceRecording, tables: &DeviceTables) {
        let has_builders = self.steps.is_empty() && self.codes.iter().any(|c| c.builder.is_some());
        if !has_builders && self.codes.iter().all(|c| c.cache.is_none()) {
            return;
        }
        let lifetimes = &tables.lifetimes;
        let mut caches: FxHashMap<FrameId, NamedCache> = FxHashMap::default();
        let mut last_birth: FxHashMap<StackId, u32> = FxHashMap::default();
        for id in (lifetimes.initial_count() as u32..lifetimes.len() as u32).map(LifetimeId) {
            let (stack, found) = self.code(device, tables, id);
            if let Some((frame, _)) = found.cache {
                let cache = caches.entry(frame).or_default();
                cache.made += 1;
                cache.sources.extend(copied_from(device, tables, id));
            }
            if has_builders && found.builder.is_some() {
                last_birth.insert(stack, lifetimes.born(id));
            }
        }
        for (frame, cache) in caches {
            // The first of each has nothing to be copied from, or something made elsewhere.
            if cache.made >= LEAST_COPIES && cache.sources.len() as u64 * 5 >= cache.made * 4 {
                self.growing_caches.insert(frame);
                self.copied_into_cache.extend(cache.sources.iter().map(|id| id.0));
            }
        }
        let start = device.events.len() as u32 / START_SHARE;
        self.built_at_start = last_birth.into_iter().filter(|&(_, last)| last < start).map(|(stack, _)| stack).collect();
    }

    /// What the user's own names and the lifetime tell together: of a cache that grows, and of a model that is only served.
    fn by_own_names(&self, tables: &DeviceTables, id: LifetimeId, stack: StackId, found: StackCode) -> Option<Decided> {
        if let Some((frame, rule)) = found.cache.filter(|(frame, _)| self.growing_caches.contains(frame)) {
            return Some(Decided { category: Category::KvCache, because: Because::Frame(frame, rule, Some(Fate::GrowsByCopy)) });
        }
        if found.code != Code::Unknown {
            return None;
        }
        if self.copied_into_cache.contains(&id.0) {
            return Some(Decided { category: Category::KvCache, because: Because::Fate(Fate::CopiedIntoCache) });
        }
        let (frame, rule) = found.builder.filter(|_| found.cache.is_none() && self.built_at_start.contains(&stack))?;
        (tables.lifetimes.gone(id) == NO_EVENT)
            .then_some(Decided { category: Category::Parameters, because: Because::Frame(frame, rule, Some(Fate::MadeAtStart)) })
    }

    pub(super) fn decide(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Decided {
        let (stack, found) = self.code(device, tables, id);
        let because = |category, because| Decided { category, because };
        if let Some((rule, frame)) = self.user.get(stack.0 as usize).copied().flatten() {
            return because(self.rules.category(usize::from(rule)), Because::User(rule, frame));
        }
        self.decide_without_user(device, tables, id, stack, found)
    }

    /// What an allocation would be without the user's rules.
    pub(super) fn without_user(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Category {
        let (stack, found) = self.code(device, tables, id);
        self.decide_without_user(device, tables, id, stack, found).category
    }

    fn decide_without_user(
        &self,
        device: &DeviceRecording,
        tables: &DeviceTables,
        id: LifetimeId,
        stack: StackId,
        found: StackCode,
    ) -> Decided {
        let because = |category, because| Decided { category, because };
        if let Some(note) = self.noted.get(&id.0) {
            let source = if note.is_profiler { Because::Profiler(note.text) } else { Because::Metadata(note.text) };
            return because(note.category, source);
        }
        let born = tables.lifetimes.born(id);
        if born != NO_EVENT {
            let at = self.annotated.partition_point(|r| r.0 <= born);
            if let Some(&(_, _, category, name)) = at.checked_sub(1).map(|i| &self.annotated[i]).filter(|r| born < r.1) {
                return because(category, Because::Annotation(name));
            }
        }
        if let Some(decided) = self.by_own_names(tables, id, stack, found) {
            return decided;
        }
        let (category, fate) = self.by_fate(device, tables, id, found.code, stack);
        match (found.code, fate) {
            (Code::Unknown, Some(fate)) => because(category, Because::Fate(fate)),
            (Code::Unknown, None) => because(Category::Other, Because::Nothing),
            // A library's workspace is known by its size, whatever code was the first to need it.
            (_, Some(Fate::LibrarySize)) => because(category, Because::Fate(Fate::LibrarySize)),
            (_, fate) => because(category, Because::Frame(found.frame, found.rule, fate)),
        }
    }

    /// The category that code and lifetime give together.
    fn by_fate(
        &self,
        device: &DeviceRecording,
        tables: &DeviceTables,
        id: LifetimeId,
        code: Code,
        stack: StackId,
    ) -> (Category, Option<Fate>) {
        let lifetimes = &tables.lifetimes;
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        let requested = lifetimes.requested(device, id);
        let has_workspace_size =
            || gone == NO_EVENT && self.kept_of_size.get(&requested).is_some_and(|&n| (1..=MOST_WORKSPACES).contains(&n));
        match code {
            Code::Parameters => (Category::Parameters, None),
            Code::Workspace => (Category::Workspaces, None),
            Code::Communication => (Category::Communication, None),
            Code::KvCache => (Category::KvCache, None),
            Code::Tuning => (Category::Temporaries, None),
            Code::Optimizer => self.in_optimizer(born, gone),
            Code::Reduction if self.is_alive_at_step(born, gone) => (Category::Gradients, Some(Fate::AliveAtStep)),
            Code::Reduction => (Category::Communication, None),
            Code::Forward | Code::Compiled if has_workspace_size() => (Category::Workspaces, Some(Fate::LibrarySize)),
            Code::Forward | Code::Compiled => (Category::Activations, None),
            Code::Backward if has_workspace_size() => (Category::Workspaces, Some(Fate::LibrarySize)),
            Code::Backward if self.is_alive_at_step(born, gone) => (Category::Gradients, Some(Fate::AliveAtStep)),
            Code::Backward => (Category::Temporaries, Some(Fate::GoneBeforeStep)),
            // These two never stand for a whole stack.
            Code::Unknown | Code::NamedCache | Code::Builder => {
                if has_workspace_size() {
                    return (Category::Workspaces, Some(Fate::LibrarySize));
                }
                if self.outlives_all(tables, id) && (born == NO_EVENT || stack.is_some() || !self.has_stacks) {
                    return (Category::Parameters, Some(Fate::OutlivesAll));
                }
                if stack.is_some() || born == NO_EVENT {
                    return (Category::Other, None);
                }
                if self.has_stacks { self.by_autograd(born, gone, requested) } else { self.without_stacks(born, gone, requested) }
            }
        }
    }

    fn in_optimizer(&self, born: u32, gone: u32) -> (Category, Option<Fate>) {
        let at = self.steps.partition_point(|s| s.0 <= born);
        let end = at.checked_sub(1).map_or(born, |i| self.steps[i].1);
        // A step that ran out of memory never let go of what it was using.
        let is_cut_short = self.has_oom && at == self.steps.len() && gone == NO_EVENT && self.steps.len() > 1;
        if gone > end && !is_cut_short {
            (Category::OptimizerState, Some(Fate::OutlivesOptimizer))
        } else {
            (Category::Temporaries, Some(Fate::DiesInOptimizer))
        }
    }

    /// Made by a thread without Python, in a recording that has stacks: autograd's.
    fn by_autograd(&self, born: u32, gone: u32, requested: u64) -> (Category, Option<Fate>) {
        if self.is_alive_at_step(born, gone) {
            return (Category::Gradients, Some(Fate::AutogradAliveAtStep));
        }
        // The trace ends before the step that would tell.
        if gone == NO_EVENT && self.parameter_sizes.contains(&requested) {
            return (Category::Gradients, Some(Fate::AutogradSizeOfParameter));
        }
        (Category::Temporaries, Some(Fate::AutogradGoneBeforeStep))
    }

    /// All that is known are lifetimes and the optimizer's steps.
    fn without_stacks(&self, born: u32, gone: u32, requested: u64) -> (Category, Option<Fate>) {
        if self.steps.is_empty() {
            return (Category::Other, None);
        }
        let at = self.steps.partition_point(|s| s.0 <= born);
        if at.checked_sub(1).is_some_and(|i| born < self.steps[i].1) {
            return self.in_optimizer(born, gone);
        }
        if !self.is_alive_at_step(born, gone) {
            return (Category::Activations, Some(Fate::WithinStep));
        }
        if self.parameter_sizes.contains(&requested) {
            return (Category::Gradients, Some(Fate::AliveAtStep));
        }
        (Category::Other, None)
    }

    /// True when it is held at the first event of an optimizer step after its birth.
    fn is_alive_at_step(&self, born: u32, gone: u32) -> bool {
        let at = if born == NO_EVENT { 0 } else { self.steps.partition_point(|s| s.0 <= born) };
        self.steps.get(at).is_some_and(|s| gone > s.0)
    }

    /// Older than the first optimizer step, and there after the last.
    fn outlives_all(&self, tables: &DeviceTables, id: LifetimeId) -> bool {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return false };
        let (born, gone) = (tables.lifetimes.born(id), tables.lifetimes.gone(id));
        (born == NO_EVENT || born < first.0) && gone > last.1 && self.steps.len() > 1
    }
}

/// The allocations of a function named after a cache.
#[derive(Default)]
struct NamedCache {
    made: u64,
    /// What was copied into one of them.
    sources: Vec<LifetimeId>,
}

/// Fewer copies than this are no habit.
const LEAST_COPIES: u64 = 8;
/// The start of a recording: one part in so many of its events.
const START_SHARE: u32 = 10;

/// The block that an allocation took the place of: freed within a few events of its birth, smaller, and at least half as large.
fn copied_from(device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<LifetimeId> {
    const SOON: u32 = 8;
    let lifetimes = &tables.lifetimes;
    let (born, size) = (lifetimes.born(id), lifetimes.requested(device, id));
    let end = born.saturating_add(1 + SOON).min(device.events.len() as u32);
    let freed = (born.saturating_add(1)..end).filter(|&e| device.events.action[e as usize] == Action::FreeRequested);
    freed.map(|e| lifetimes.of_event(e)).find(|&old| {
        let bytes = if old.is_some() && old != id { lifetimes.requested(device, old) } else { 0 };
        bytes < size && bytes.saturating_mul(2) >= size
    })
}

fn close(steps: &mut [(u32, u32)], is_open: bool, event: u32) -> bool {
    if let Some(last) = steps.last_mut().filter(|_| is_open) {
        last.1 = event;
    }
    false
}

/// For each stack the first of the user's rules that one of its frames matches.
fn user_stacks(recording: &Recording, rules: &Rules) -> Vec<Option<(u16, FrameId)>> {
    if rules.is_empty() {
        return Vec::new();
    }
    let stacks = &recording.stacks;
    let first: Vec<Option<u16>> = (0..stacks.frame_count())
        .into_par_iter()
        .map(|i| {
            let text = frame_text(stacks, stacks.frame(FrameId(i as u32))?);
            (0..rules.len()).find(|&r| rules.is_match(r, &text)).map(|r| r as u16)
        })
        .collect();
    (0..stacks.len())
        .map(|i| {
            let frames = stacks.frames(StackId(i as u32));
            let matches = frames.iter().filter_map(|&f| Some((first.get(f.0 as usize).copied().flatten()?, f)));
            matches.min_by_key(|m| m.0)
        })
        .collect()
}
