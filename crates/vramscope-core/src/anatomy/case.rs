//! [`Case`]: the data that all role decisions use, and questions that several of them ask.

use rustc_hash::{FxHashMap, FxHashSet};

use super::frame::{ADAM, CACHE, GENERATES, SGD, WORKSPACE};
use super::phases::{Phases, Run};
use super::role::{Because, Role};
use super::sense::{Part, Sense};
use crate::anatomy::steps::Steps;
use crate::model::{DeviceRecording, FrameId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};
use crate::units::MEBIBYTE;

/// Requested bytes of cuBLAS workspaces: `:4096:2:16:8` (8,320 KiB), 4 MiB, Hopper's 32 MiB, and cuBLASLt's 1 MiB.
const WORKSPACES: [u64; 4] = [CUBLAS_WORKSPACE, 4_194_304, 33_554_432, 1_048_576];
/// PyTorch's default workspace for cuBLAS. It is not a power of two, so no weight has this size.
const CUBLAS_WORKSPACE: u64 = 8_519_680;

/// Number of blocks of each requested size.
pub(super) type Sizes = FxHashMap<u64, u32>;

/// The role of one block, and the reason.
pub(super) type Decided = (Role, Because);

/// The data that all role decisions use.
pub(super) struct Case<'a> {
    pub(super) device: &'a DeviceRecording,
    pub(super) tables: &'a DeviceTables,
    pub(super) phases: &'a Phases,
    pub(super) steps: &'a Steps,
}

impl Case<'_> {
    pub(super) fn size(&self, id: LifetimeId) -> u64 {
        self.tables.lifetimes.requested(self.device, id)
    }

    /// True if the block's size is in `sizes`. If only block sizes are known, two tensors of one shape may differ by up to 1 MiB,
    /// because the allocator does not split off so small a remainder.
    pub(super) fn is_one_of(&self, sizes: &Sizes, size: u64) -> bool {
        let is_near = |&other: &u64| other.min(size) > MEBIBYTE && other.abs_diff(size) <= MEBIBYTE;
        sizes.contains_key(&size) || (self.device.events.sizes_are_blocks && sizes.keys().any(is_near))
    }

    pub(super) fn born(&self, id: LifetimeId) -> u32 {
        self.tables.lifetimes.born(id)
    }

    pub(super) fn gone(&self, id: LifetimeId) -> u32 {
        self.tables.lifetimes.gone(id)
    }

    pub(super) fn sense(&self, id: LifetimeId) -> &Sense {
        self.phases.sense(self.tables.lifetimes.stack(self.device, id))
    }

    /// The event of a run's last allocation.
    pub(super) fn last_birth(&self, run: &Run) -> u32 {
        self.born(LifetimeId(run.rows.1 - 1))
    }

    pub(super) fn rows(&self) -> u32 {
        self.tables.lifetimes.len() as u32
    }

    /// True if the block is still held when the run after `run` begins.
    pub(super) fn outlives(&self, id: LifetimeId, run: &Run) -> bool {
        self.gone(id) >= run.events.1
    }

    /// True if the block is freed before the end of the step that made it.
    pub(super) fn dies_in_its_step(&self, id: LifetimeId) -> bool {
        let bounds = &self.steps.bounds;
        !self.steps.is_inferred()
            && bounds.get(bounds.partition_point(|&b| b <= self.born(id))).is_some_and(|&end| self.gone(id) < end)
    }

    /// True if the block stays for most of the recording. Workspaces are allocated once, at their first use, and stay.
    pub(super) fn stays(&self, id: LifetimeId) -> bool {
        let (born, gone, all) = (self.born(id), self.gone(id), self.device.events.len() as u32);
        gone == NO_EVENT || u64::from(gone - if born == NO_EVENT { 0 } else { born }) * 2 > u64::from(all)
    }
}

pub(super) fn is_workspace_size(size: u64) -> bool {
    WORKSPACES.contains(&size)
}

/// True for the workspace size that only cuBLAS uses.
pub(super) fn is_cublas_size(size: u64) -> bool {
    size == CUBLAS_WORKSPACE
}

/// The lines of `Module._apply` that move gradients. For each parameter it moves the weight, then the gradient on a later line,
/// then buffers. So the gradient line makes blocks of the same sizes as the first line once more; buffers are few or small.
pub(super) fn moved_gradients(case: &Case<'_>) -> FxHashSet<FrameId> {
    let mut of: FxHashMap<FrameId, Sizes> = FxHashMap::default();
    for id in (0..case.rows()).map(LifetimeId) {
        let sense = case.sense(id);
        if let Some(line) = sense.applies.filter(|_| sense.makes_weights) {
            *of.entry(line).or_default().entry(case.size(id)).or_default() += 1;
        }
    }
    let mut lines: Vec<(u32, FrameId, Sizes)> =
        of.into_iter().map(|(frame, sizes)| (case.phases.line(frame), frame, sizes)).collect();
    lines.sort_by_key(|l| (l.0, l.1));
    let Some(((first, _, weights), later)) = lines.split_first() else { return FxHashSet::default() };
    let bytes = |sizes: &Sizes| sizes.iter().map(|(size, n)| size * u64::from(*n)).sum::<u64>();
    let again = |sizes: &Sizes| sizes.iter().all(|(size, n)| weights.get(size).is_some_and(|all| n <= all));
    let is_moved = |l: &&(u32, FrameId, Sizes)| l.0 > *first && again(&l.2) && bytes(&l.2).saturating_mul(2) >= bytes(weights);
    later.iter().filter(is_moved).map(|l| l.1).collect()
}

/// The role of a block from the stack in the end state, if its allocation is not recorded. `None` if the stack says too little.
pub(super) fn by_stack_alone(case: &Case<'_>, id: LifetimeId, weights: &Sizes) -> Option<Decided> {
    let sense = case.sense(id);
    let size = case.size(id);
    let fits = weights.is_empty() || weights.contains_key(&size);
    let has_phases = case.phases.has(Part::Forward) || case.phases.has(Part::Backward);
    Some(match sense.part {
        _ if sense.bits & CACHE != 0 => (Role::KvCache, Because::CacheFrame),
        _ if sense.bits & WORKSPACE != 0 => (Role::Workspaces, Because::LibraryFrame),
        _ if sense.makes_weights => (Role::Weights, Because::Loaded),
        Part::Load => (Role::Weights, Because::Built),
        Part::Optimizer => (Role::OptimizerState, Because::OutlivesOptimizer),
        Part::Backward if fits => (Role::Gradients, Because::OutlivesBackward),
        Part::Backward => (Role::Temporaries, Because::DiesInBackward),
        Part::Forward if has_phases && sense.bits & GENERATES == 0 => (Role::Activations, Because::LivesToBackward),
        Part::Forward | Part::Unknown => return None,
    })
}

/// True if the optimizer in the trace keeps two tensors per weight.
pub(super) fn has_adam(case: &Case<'_>) -> bool {
    optimizers(case).any(|run| run.bits & ADAM != 0)
}

/// True if every step in the trace is PyTorch's SGD, which keeps one tensor per weight at most.
pub(super) fn keeps_one(case: &Case<'_>) -> bool {
    optimizers(case).next().is_some() && optimizers(case).all(|run| run.bits & SGD != 0)
}

fn optimizers<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a Run> {
    case.phases.runs.iter().filter(|run| run.part == Part::Optimizer)
}
