//! Assigns a role to every allocation of a device, using phases, steps, sizes and lifetimes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::case::{Case, Decided, Sizes, is_cublas_size, is_workspace_size, moved_gradients};
use super::frame::{BUILDS_BUFFERS, BUILDS_STATE, CACHE, COLLECTIVE, REDUCES, TUNING, WORKSPACE};
use super::phases::Run;
use super::role::{Because, Role};
use super::sense::Part;
use super::{blind, cache, forward, older, older_model, stepped};
use crate::model::{Action, StackId, StreamId};
use crate::tables::{LifetimeId, NO_EVENT};

/// A program with fewer gradients than this is not assumed to have a hand-written optimizer.
const FEWEST_BY_HAND: u32 = 4;

/// The first 1/`START_SHARE` of the events counts as the start of a recording.
const START_SHARE: u32 = 10;
/// The role of every allocation, by row. O(lifetimes).
pub(super) fn decide(case: &Case<'_>) -> Vec<Decided> {
    let phases = case.phases;
    let mut of: Vec<Decided> = vec![Decided::default(); case.rows() as usize];
    let mut weights = loaded(case, &mut of);
    let (mut gradients, of_step) = gradients(case, &weights);
    // Without stacks no pass is known yet, and so no gradient: `blind` finds them.
    let has_older_gradients = phases.has_stacks && older_model::has_older_gradients(case, &of_step);
    if has_older_gradients {
        gradients.clear();
    } else {
        gradients = older_model::of_all_passes(case, gradients, of_step);
    }
    data(case, &gradients, &mut weights, &mut of);
    built_state(case, &gradients, &mut weights, &mut of);
    let mut older = older::decide(case, &gradients, &weights, has_older_gradients);
    // An optimizer needs gradients. If no backward pass was recorded, the gradients are older than the trace.
    let steps_alone = phases.has(Part::Optimizer) && !phases.has(Part::Backward);
    if steps_alone && !has_older_gradients && !older.iter().any(|(_, decided)| decided.0 == Role::Gradients) {
        older = older::decide(case, &gradients, &weights, true);
    }
    for (id, decided) in older {
        of[id.0 as usize] = decided;
        if decided.0 == Role::Weights {
            *weights.entry(case.size(id)).or_default() += 1;
        }
    }
    made_by_script(case, &gradients, &mut weights, &mut of);
    gradient_buffers(case, &mut of);
    cache::decide(case, &mut of);
    if !phases.has_stacks {
        blind::decide(case, &mut of);
        return of;
    }
    let workspaces = workspaces(case, &weights);
    let remade = remade_in_steps(case, &gradients, &weights);
    let masters = sizes_of(case, &of, (Role::OptimizerState, Because::TwiceAsLarge));
    for (at, run) in phases.runs.iter().enumerate() {
        // Data may be created before the model.
        let next = phases.runs[at + 1..].iter().find(|r| !matches!(r.part, Part::Unknown | Part::Load));
        // With a PyTorch optimizer present, this is the inner step of meta-learning, which makes the weights for the next pass.
        let follows_backward =
            run.part == Part::Unknown && at.checked_sub(1).is_some_and(|i| phases.runs[i].part == Part::Backward);
        let by_hand = follows_backward && !phases.has(Part::Optimizer) && makes_all(case, run, &gradients);
        let for_masters = follows_backward && makes_all(case, run, &masters);
        let copies = run.part == Part::Unknown && is_copy_of_weights(case, run, &weights);
        for id in run.ids() {
            if of[id.0 as usize].0 != Role::Unknown {
                continue;
            }
            of[id.0 as usize] = if workspaces.contains(&id) {
                (Role::Workspaces, Because::LibrarySize)
            } else if remade.contains(&id) {
                (Role::Weights, Because::CopiedWithAll)
            } else if for_masters && case.outlives(id, run) && masters.contains_key(&case.size(id)) {
                (Role::Gradients, Because::CopiedForOptimizer)
            } else if by_hand && case.sense(id).bits & (CACHE | WORKSPACE | COLLECTIVE | TUNING) == 0 {
                match case.outlives(id, run) {
                    true => (Role::OptimizerState, Because::StepsByHand),
                    false => (Role::Temporaries, Because::DiesInOptimizer),
                }
            } else if copies
                && case.outlives(id, run)
                && weights.contains_key(&case.size(id))
                && replaced(case, id, &of).is_none()
            {
                match case.dies_in_its_step(id) {
                    true => (Role::Temporaries, Because::DiesBetween),
                    false => (Role::Weights, Because::CopiedWithAll),
                }
            } else {
                in_run(case, id, run, next, &weights, &gradients, &of)
            };
        }
    }
    forward::decide(case, &weights, &gradients, &mut of);
    stepped::decide(case, &mut of);
    kept_results(case, &mut of);
    trials(case, &mut of);
    of
}

/// Marks memory that cuDNN requested to try an algorithm and freed at once.
fn trials(case: &Case<'_>, of: &mut [Decided]) {
    let trials: FxHashSet<u32> = case.device.events.granted_trials().into_iter().collect();
    if trials.is_empty() {
        return;
    }
    for id in (0..case.rows()).map(LifetimeId).filter(|&id| trials.contains(&case.born(id))) {
        if matches!(of[id.0 as usize].0, Role::Temporaries | Role::Activations | Role::Unknown) {
            of[id.0 as usize] = (Role::Workspaces, Because::Trial);
        }
    }
}

/// Marks results, such as predictions collected in a list: a program that does not train makes them right after a forward pass
/// and keeps them for long. The inputs of the next pass are made later and freed earlier.
fn kept_results(case: &Case<'_>, of: &mut [Decided]) {
    let runs = &case.phases.runs;
    if case.phases.has(Part::Backward) {
        return;
    }
    for (at, run) in runs.iter().enumerate().skip(1).filter(|(_, run)| run.part == Part::Unknown) {
        let mut later = runs[at..].iter().filter(|r| r.part == Part::Forward);
        let (Some(_), Some(second)) = (later.next(), later.next()) else { break };
        let is_kept = |id: LifetimeId| case.gone(id) > second.events.0;
        let mut inputs: Vec<LifetimeId> =
            run.ids().filter(|id| of[id.0 as usize] == (Role::Inputs, Because::LivesIntoForward)).collect();
        let own = inputs.iter().rposition(|&id| !is_kept(id)).unwrap_or(0);
        inputs.truncate(own);
        if runs[at - 1].part == Part::Forward {
            inputs
                .into_iter()
                .filter(|&id| is_kept(id))
                .for_each(|id| of[id.0 as usize] = (Role::Activations, Because::KeptResult));
        }
    }
}

/// The role that follows from a block's phase. Blocks of the forward pass are decided together later.
fn in_run(
    case: &Case<'_>,
    id: LifetimeId,
    run: &Run,
    next: Option<&Run>,
    weights: &Sizes,
    gradients: &Sizes,
    of: &[Decided],
) -> Decided {
    let sense = case.sense(id);
    let outlives = case.outlives(id, run);
    let trains = case.phases.has(Part::Backward);
    // When training, blocks kept for the backward pass may also be made inside a cache class.
    if sense.bits & CACHE != 0 && !(trains && run.part == Part::Forward) {
        return (Role::KvCache, Because::CacheFrame);
    }
    if sense.bits & WORKSPACE != 0 {
        return (Role::Workspaces, Because::LibraryFrame);
    }
    if sense.bits & COLLECTIVE != 0 {
        let reduced = outlives && run.part == Part::Backward && sense.bits & REDUCES != 0;
        return if reduced { (Role::Gradients, Because::OutlivesBackward) } else { (Role::Buckets, Because::CollectiveFrame) };
    }
    if sense.bits & BUILDS_STATE != 0 && outlives && weights.contains_key(&case.size(id)) {
        return (Role::OptimizerState, Because::BuiltByOptimizer);
    }
    if sense.bits & TUNING != 0 {
        return (Role::Temporaries, Because::TuningFrame);
    }
    match run.part {
        // An optimizer may give a parameter new memory, even repeatedly: `p.data = p.data - update`.
        Part::Optimizer if replaced(case, id, of) == Some(Role::Weights) => (Role::Weights, Because::TakesItsPlace),
        Part::Optimizer if outlives && !sense.clips => (Role::OptimizerState, Because::OutlivesOptimizer),
        Part::Optimizer => (Role::Temporaries, Because::DiesInOptimizer),
        Part::Backward => {
            let size = case.size(id);
            let is_late = case.gone(id) > case.last_birth(run) && case.is_one_of(gradients, size);
            if sense.is_recomputed {
                (Role::Activations, Because::Recomputed)
            } else if (outlives || is_late) && (weights.is_empty() || case.is_one_of(weights, size)) {
                (Role::Gradients, Because::OutlivesBackward)
            } else {
                (Role::Temporaries, Because::DiesInBackward)
            }
        }
        Part::Unknown => {
            if let Some(role) = replaced(case, id, of) {
                return (role, Because::TakesItsPlace);
            }
            let is_held = next.is_some_and(|r| case.gone(id) > r.events.0);
            let (born, gone) = (case.born(id), case.gone(id));
            if is_held && next.is_some_and(|r| r.part == Part::Forward) {
                (Role::Inputs, Because::LivesIntoForward)
            } else if !is_held && gone != NO_EVENT && u64::from(gone - born) <= short(case) {
                (Role::Temporaries, Because::DiesBetween)
            } else {
                Decided::default()
            }
        }
        // An average of the weights may be kept up to date in the forward pass: `average.data = average.data * 0.99 + …`.
        Part::Forward if replaced(case, id, of) == Some(Role::Weights) => (Role::Weights, Because::TakesItsPlace),
        Part::Forward | Part::Load => Decided::default(),
    }
}

/// The role of the block that this one replaces, if that is weights or optimizer state: the old block is older, of the same size,
/// freed within a few events of this one's birth, and before this one is freed.
fn replaced(case: &Case<'_>, id: LifetimeId, of: &[Decided]) -> Option<Role> {
    const SOON: u32 = 12;
    let (born, size) = (case.born(id), case.size(id));
    let end = born.saturating_add(1 + SOON).min(case.device.events.len() as u32);
    let mut freed = (born + 1..end).filter(|&e| case.device.events.action[e as usize] == Action::FreeRequested);
    let lifetimes = &case.tables.lifetimes;
    // If several blocks of that size were made before the free, the last one is the replacement.
    let has_later = |e: u32| {
        let later = (id.0 + 1..case.rows()).map(LifetimeId).take_while(|&later| case.born(later) < e);
        later.into_iter().any(|later| case.size(later) == size && lifetimes.free_requested(later) > e)
    };
    let is_one = |e: u32, old: LifetimeId| {
        old.is_some() && old.0 < id.0 && case.size(old) == size && e < lifetimes.free_requested(id) && !has_later(e)
    };
    freed.find_map(|e| {
        let old = case.tables.lifetimes.of_event(e);
        let role = if is_one(e, old) { of[old.0 as usize].0 } else { Role::Unknown };
        matches!(role, Role::Weights | Role::OptimizerState).then_some(role)
    })
}

/// The number of events that counts as a short time: a fiftieth of the recording.
fn short(case: &Case<'_>) -> u64 {
    (case.device.events.len() as u64 / 50).max(64)
}

/// Decides the blocks that loading made: weights if they stay. Returns the sizes of the weights.
fn loaded(case: &Case<'_>, of: &mut [Decided]) -> Sizes {
    let mut weights = Sizes::default();
    let works = |run: &&Run| matches!(run.part, Part::Forward | Part::Backward | Part::Optimizer);
    let start = case.device.events.len() as u32 / START_SHARE;
    let moved = moved_gradients(case);
    // Count also blocks that are not kept, as a model may be copied before its first pass, and what the user's constructors keep.
    let mut made: FxHashSet<u64> = FxHashSet::default();
    let mut last: FxHashMap<StackId, u32> = FxHashMap::default();
    for id in case.phases.runs.iter().filter(|r| r.part == Part::Load).flat_map(Run::ids) {
        last.insert(case.tables.lifetimes.stack(case.device, id), case.born(id));
    }
    for run in &case.phases.runs {
        for id in run.ids() {
            let sense = case.sense(id);
            // DDP makes its buckets where it wraps the model.
            let is_bucket = sense.bits & (COLLECTIVE | REDUCES) == COLLECTIVE | REDUCES;
            if !(run.part == Part::Load || sense.makes_weights) || sense.bits & CACHE != 0 || is_bucket {
                continue;
            }
            let (born, gone) = (case.born(id), case.gone(id));
            let at = case.phases.runs.partition_point(|r| r.events.0 <= born);
            let next = case.phases.runs[at..].iter().find(works);
            // A constructor that goes on allocating does not build a model.
            let stack = case.tables.lifetimes.stack(case.device, id);
            if !sense.makes_weights && next.is_none() && last.get(&stack).is_some_and(|&l| l >= start) {
                continue;
            }
            let is_kept = gone == NO_EVENT || next.is_some_and(|r| gone > r.events.0);
            let size = case.size(id);
            if sense.makes_weights {
                made.insert(size);
            }
            if is_kept && sense.makes_weights && sense.applies.is_some_and(|line| moved.contains(&line)) {
                of[id.0 as usize] = (Role::Gradients, Because::MovedWithWeight);
            } else if is_kept && !sense.makes_weights && sense.bits & BUILDS_STATE != 0 && made.contains(&size) {
                of[id.0 as usize] = (Role::OptimizerState, Because::BuiltByOptimizer);
            } else if is_kept {
                let because = if sense.makes_weights { Because::Loaded } else { Because::Built };
                of[id.0 as usize] = (Role::Weights, because);
                *weights.entry(size).or_default() += 1;
                made.insert(size);
            } else if is_moved_away(case, id) {
                // Do not use its size to recognise gradients: no pass uses the weight on this device.
                of[id.0 as usize] = (Role::Weights, Because::Loaded);
            } else {
                of[id.0 as usize] = (Role::Temporaries, Because::GoneAfterLoading);
            }
        }
    }
    weights
}

/// True for a weight made by `Module.to` that was freed without a replacement, as when a model waits in host memory for its turn.
fn is_moved_away(case: &Case<'_>, id: LifetimeId) -> bool {
    // An allocation this few events before the free replaced the weight.
    const JUST_BEFORE: u32 = 2;
    let (lifetimes, freed) = (&case.tables.lifetimes, case.tables.lifetimes.free_requested(id));
    case.sense(id).applies.is_some() && lifetimes.born_by(freed) == lifetimes.born_by(freed.saturating_sub(JUST_BEFORE))
}

/// Counts gradients by size: those that the backward pass with the most survivors leaves behind, and those of all passes in a
/// step. If weights are known, counts only their sizes.
fn gradients(case: &Case<'_>, weights: &Sizes) -> (Sizes, Sizes) {
    let (mut gradients, mut of_step, mut most) = (Sizes::default(), Sizes::default(), 0);
    let end = case.device.events.len() as u32;
    for run in case.phases.runs.iter().filter(|r| r.part == Part::Backward) {
        let (mut strict, mut late) = ((Sizes::default(), 0), (Sizes::default(), 0));
        for id in run.ids() {
            let (size, gone) = (case.size(id), case.gone(id));
            // If the trace ends in a backward pass, blocks held at the end are not necessarily gradients.
            let is_cut = gone == NO_EVENT && run.events.1 == end;
            if case.sense(id).is_recomputed
                || gone <= case.last_birth(run)
                || (is_cut && !weights.is_empty() && !case.is_one_of(weights, size))
            {
                continue;
            }
            *late.0.entry(size).or_default() += 1;
            late.1 += size;
            if case.outlives(id, run) {
                *strict.0.entry(size).or_default() += 1;
                strict.1 += size;
            }
        }
        // `zero_grad` may run before anything else is allocated.
        let (sizes, bytes) = if strict.1 * 2 >= late.1 { strict } else { late };
        for (&size, &n) in &sizes {
            *of_step.entry(size).or_default() += n;
        }
        if bytes > most {
            (gradients, most) = (sizes, bytes);
        }
    }
    let steps = case.steps.len().max(1) as u32;
    of_step.values_mut().for_each(|n| *n = (*n + steps / 2) / steps);
    (gradients, of_step)
}

/// Marks data that a constructor keeps beside the model, such as a replay buffer: larger than the gradient of any weight, if nearly
/// all weights have one.
fn data(case: &Case<'_>, gradients: &Sizes, weights: &mut Sizes, of: &mut [Decided]) {
    let (mut all, mut trained, mut largest) = (0, 0, 0);
    let ids = || (0..case.rows()).map(LifetimeId);
    for id in ids().filter(|id| of[id.0 as usize] == (Role::Weights, Because::Loaded)) {
        let size = case.size(id);
        all += size;
        if case.is_one_of(gradients, size) {
            trained += size;
            largest = largest.max(size);
        }
    }
    if trained == 0 || all > trained + trained / 10 {
        return;
    }
    for id in ids().filter(|&id| case.size(id) > largest && !case.is_one_of(gradients, case.size(id))) {
        if of[id.0 as usize] == (Role::Weights, Because::Built) {
            of[id.0 as usize] = (Role::Inputs, Because::HasNoGradient);
            weights.remove(&case.size(id));
        }
    }
}

/// Marks the state of a hand-written optimizer. The program's own code made two or three times as many blocks of each gradient's
/// size as there are gradients (Adam has two moments), and a module made the weights.
fn built_state(case: &Case<'_>, gradients: &Sizes, weights: &mut Sizes, of: &mut [Decided]) {
    let (built, loaded) =
        (sizes_of(case, of, (Role::Weights, Because::Built)), sizes_of(case, of, (Role::Weights, Because::Loaded)));
    let is_state =
        |times: u32| gradients.iter().all(|(size, &n)| loaded.contains_key(size) && built.get(size) == Some(&(n * times)));
    if gradients.values().sum::<u32>() < FEWEST_BY_HAND || !(2..=3).any(is_state) {
        return;
    }
    for id in (0..case.rows()).map(LifetimeId) {
        let size = case.size(id);
        if of[id.0 as usize] == (Role::Weights, Because::Built) && gradients.contains_key(&size) {
            of[id.0 as usize] = (Role::OptimizerState, Because::TwinsOfGradients);
            weights.entry(size).and_modify(|n| *n = n.saturating_sub(1));
        }
    }
}

/// Marks Megatron's gradient buffers. The same constructor may also make a buffer for the weights. The gradient buffer is made
/// after it and has as many elements, in the same or a wider type.
fn gradient_buffers(case: &Case<'_>, of: &mut [Decided]) {
    let stack = |id: LifetimeId| case.tables.lifetimes.stack(case.device, id);
    let buffers: Vec<LifetimeId> =
        (0..case.rows()).map(LifetimeId).filter(|&id| case.sense(id).bits & BUILDS_BUFFERS != 0).collect();
    let mut bytes: FxHashMap<StackId, (u64, LifetimeId)> = FxHashMap::default();
    for &id in &buffers {
        bytes.entry(stack(id)).or_insert((0, id)).0 += case.size(id);
    }
    let Some((&line, _)) = bytes.iter().max_by_key(|(_, of_line)| **of_line) else { return };
    for id in buffers.into_iter().filter(|&id| stack(id) == line) {
        of[id.0 as usize] = (Role::Gradients, Because::GradientBuffer);
    }
}

/// Decides blocks that the program's own code made before the first pass and keeps through the last, one per gradient. If they are
/// as large as the gradients, they are the weights of a program without modules; or, if modules made the weights and no library
/// steps them, the state of a hand-written optimizer. Twice as large ones are fp32 copies of half-precision weights.
fn made_by_script(case: &Case<'_>, gradients: &Sizes, weights: &mut Sizes, of: &mut [Decided]) {
    let is_pass = |r: &&Run| matches!(r.part, Part::Forward | Part::Backward);
    let first = case.phases.runs.iter().find(is_pass).map_or(u32::MAX, |r| r.rows.0);
    let runs = case.phases.runs.iter().filter(|r| r.part == Part::Unknown && r.rows.0 < first);
    // A training function frees its blocks when it returns, so require only that they live through the last pass.
    let last = case.phases.runs.iter().rfind(is_pass).map_or(0, |r| r.events.1);
    let made: Vec<LifetimeId> =
        runs.flat_map(Run::ids).filter(|&id| of[id.0 as usize].0 == Role::Unknown && case.gone(id) > last).collect();
    let mut of_line: FxHashMap<StackId, Sizes> = FxHashMap::default();
    for &id in &made {
        *of_line.entry(case.tables.lifetimes.stack(case.device, id)).or_default().entry(case.size(id)).or_default() += 1;
    }
    // Weights made by modules and trained. Small blocks are left out: rounding makes them equally large in both precisions.
    let trained: Vec<(u64, u32)> = weights
        .iter()
        .filter(|(size, _)| **size >= older_model::LEAST && gradients.contains_key(size))
        .map(|(&size, &n)| (size, n))
        .collect();
    let bytes = |of: &mut dyn Iterator<Item = &(u64, u32)>| of.map(|(size, n)| size * u64::from(*n)).sum::<u64>();
    let has_model = trained.iter().map(|t| t.1).sum::<u32>() >= FEWEST_BY_HAND;
    let is_for_each = |sizes: &Sizes, times: u64| {
        let has = |t: &&(u64, u32)| sizes.get(&(t.0 * times)).is_some_and(|made| *made >= t.1);
        bytes(&mut trained.iter().filter(has)).saturating_mul(10) >= bytes(&mut trained.iter()).saturating_mul(9)
    };
    let is_one = |times: u64| -> FxHashSet<StackId> {
        of_line.iter().filter(|(_, sizes)| has_model && is_for_each(sizes, times)).map(|(&line, _)| line).collect()
    };
    let (twins, twice) = (is_one(1), is_one(2));
    // Weights may be freed too, when the function returns. Data as large as a gradient either has no optimizer state, or modules
    // made the weights that the state belongs to.
    let stepped = kept_by_optimizer(case);
    let number = |of: &Sizes, size: u64| of.get(&size).copied().unwrap_or(0);
    let is_stepped = |size: u64, weights: &Sizes| number(weights, size) < number(gradients, size).min(number(&stepped, size));
    for id in made {
        let (size, line) = (case.size(id), case.tables.lifetimes.stack(case.device, id));
        of[id.0 as usize] = if twice.contains(&line) && (gradients.contains_key(&(size / 2)) || size < older_model::LEAST) {
            (Role::OptimizerState, Because::TwiceAsLarge)
        } else if gradients.contains_key(&size) && twins.contains(&line) && !case.phases.has(Part::Optimizer) {
            (Role::OptimizerState, Because::TwinsOfGradients)
        } else if !gradients.contains_key(&size)
            || (case.gone(id) != NO_EVENT || is_workspace_size(size)) && !is_stepped(size, weights)
        {
            continue;
        } else {
            *weights.entry(size).or_default() += 1;
            (Role::Weights, Because::AsLargeAsGradient)
        };
    }
}

/// The sizes of blocks that PyTorch optimizers make and keep.
fn kept_by_optimizer(case: &Case<'_>) -> Sizes {
    let mut sizes = Sizes::default();
    for run in case.phases.runs.iter().filter(|run| run.part == Part::Optimizer) {
        for id in run.ids().filter(|&id| case.outlives(id, run) && !case.sense(id).clips) {
            *sizes.entry(case.size(id)).or_default() += 1;
        }
    }
    sizes
}

/// True if a run makes at least as many blocks of these sizes as listed, and the list is long enough to matter.
fn makes_all(case: &Case<'_>, run: &Run, sizes: &Sizes) -> bool {
    let all: u32 = sizes.values().sum();
    all >= FEWEST_BY_HAND && run.ids().filter(|&id| sizes.contains_key(&case.size(id))).count() as u32 >= all
}

/// The sizes of all blocks with this role and reason.
fn sizes_of(case: &Case<'_>, of: &[Decided], decided: Decided) -> Sizes {
    let mut sizes = Sizes::default();
    for id in (0..case.rows()).map(LifetimeId).filter(|id| of[id.0 as usize] == decided) {
        *sizes.entry(case.size(id)).or_default() += 1;
    }
    sizes
}

/// True for a run outside the passes that mostly makes blocks of the weights' sizes, one per weight: a copy of the state dict.
fn is_copy_of_weights(case: &Case<'_>, run: &Run, weights: &Sizes) -> bool {
    let all: u32 = weights.values().sum();
    let (mut of_weights, mut bytes, mut others) = (0, 0, 0);
    for id in run.ids().filter(|&id| case.outlives(id, run)) {
        if weights.contains_key(&case.size(id)) {
            of_weights += 1;
            bytes += case.size(id);
        } else {
            others += case.size(id);
        }
    }
    all >= FEWEST_BY_HAND && of_weights * 5 >= all * 4 && bytes >= others
}

/// The weights of a model that a line makes anew in every step, as the average that MoCo and BYOL keep: beyond the end of the step it
/// leaves a block for nearly every weight that has a gradient, and no others.
fn remade_in_steps(case: &Case<'_>, gradients: &Sizes, weights: &Sizes) -> FxHashSet<LifetimeId> {
    let trained: Sizes = gradients.iter().filter(|(size, _)| weights.contains_key(size)).map(|(&size, &n)| (size, n)).collect();
    let bytes = |sizes: &Sizes| sizes.iter().map(|(size, n)| size * u64::from(*n)).sum::<u64>();
    let mut found = FxHashSet::default();
    if trained.values().sum::<u32>() < FEWEST_BY_HAND {
        return found;
    }
    let is_copy = |sizes: &Sizes| {
        sizes.iter().all(|(size, n)| trained.get(size).is_some_and(|of| n <= of))
            && bytes(sizes).saturating_mul(10) >= bytes(&trained).saturating_mul(9)
    };
    let is_of_pass = |run: &&Run| matches!(run.part, Part::Forward | Part::Unknown);
    for run in case.phases.runs.iter().filter(is_of_pass) {
        let bounds = &case.steps.bounds;
        let next = bounds.partition_point(|&b| b <= run.events.0);
        let Some(&end) = bounds.get(next) else { continue };
        // The next step replaces it. A list that keeps them all is a leak.
        let is_replaced = |id: LifetimeId| bounds.get(next + 1).is_none_or(|&over| case.gone(id) <= over);
        let mut of_line: FxHashMap<StackId, (Sizes, Vec<LifetimeId>)> = FxHashMap::default();
        for id in run.ids().filter(|&id| case.gone(id) > end) {
            let line = of_line.entry(case.tables.lifetimes.stack(case.device, id)).or_default();
            *line.0.entry(case.size(id)).or_default() += 1;
            line.1.push(id);
        }
        let copies = of_line.into_values().filter(|(sizes, ids)| is_copy(sizes) && ids.iter().all(|&id| is_replaced(id)));
        found.extend(copies.flat_map(|(_, ids)| ids));
    }
    found
}

/// The workspaces made during the trace, unless an older one of the same size exists. For each size these are the first block on
/// each stream in the forward pass, and in the backward pass, which has another thread.
fn workspaces(case: &Case<'_>, weights: &Sizes) -> FxHashSet<LifetimeId> {
    let older = (0..case.phases.first_row).map(LifetimeId).filter(|&id| case.stays(id)).map(|id| case.size(id));
    let older: FxHashSet<u64> = older.filter(|&s| is_workspace_size(s)).collect();
    let mut known: FxHashSet<(u64, Part, StreamId)> = FxHashSet::default();
    let mut found = FxHashSet::default();
    for run in &case.phases.runs {
        for id in run.ids() {
            let size = case.size(id);
            let is_one = is_cublas_size(size) || (is_workspace_size(size) && !weights.contains_key(&size));
            // Elsewhere, data may have the same size. A matmul makes its result there just before; profilers name workspaces.
            let stack = |id: LifetimeId| case.tables.lifetimes.stack(case.device, id);
            let is_own = run.part == Part::Unknown && !is_cublas_size(size) && !case.device.events.sizes_are_blocks;
            let is_one = is_one && (!is_own || (id.0 > run.rows.0 && stack(LifetimeId(id.0 - 1)) == stack(id)));
            let stream = || case.device.events.stream.get(case.born(id) as usize).copied().unwrap_or(StreamId(0));
            if is_one && case.stays(id) && !older.contains(&size) && known.insert((size, run.part, stream())) {
                found.insert(id);
            }
        }
    }
    found
}
