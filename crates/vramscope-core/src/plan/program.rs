//! [`Program`]: a recording as the requests of a program, divided into stretches to compare with those of another.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};

use super::Size;
use crate::anatomy::Roles;
use crate::anatomy::roles::Rules;
use crate::anatomy::steps::{Steps, number};
use crate::anatomy::{Phase, Role};
pub(super) use crate::changes::{NEVER, Row};
use crate::changes::{Requests, unneeded};
use crate::inference::scripted::{Ask, Start};
use crate::inference::{Horizon, ReplayStep, WhatIf};
use crate::model::{AllocConf, Cancelled, DeviceRecording, FrameId, Progress, Recording, StackId, StackTable, TorchVersion};
use crate::tables::naming::is_generated;
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};
use crate::units::Bytes;

/// The requests of one device of one recording.
#[derive(Clone, Debug)]
pub struct Program {
    /// The recording that it was read from.
    pub recording: Arc<Recording>,
    /// Index of the device in the recording.
    pub device: usize,
    /// The sizes of the run.
    pub at: Size,
    /// Every request in order; blocks older than the recording come first.
    pub rows: Vec<Row>,
    /// Number of rows older than the recording.
    pub older: usize,
    /// Every request and free, in order.
    pub asks: Vec<Ask>,
    /// Ranges of rows: before the first step, of each step, and after the last. A single range if no steps were found.
    pub stretches: Vec<Range<u32>>,
    /// Number of steps. Their ranges in `stretches` begin at index 1.
    pub steps: usize,
    /// Number of recorded steps; further ones repeat the last of these.
    pub recorded_steps: usize,
    /// Recorded peaks of reserved and of allocated bytes.
    pub peaks: [u64; 2],
    /// Bytes reserved but free when the recording began: the cache of the earlier part of the run.
    pub cached_before: u64,
    /// Duration of a repeated step, in microseconds.
    pub lap_us: i64,
    /// The state at the beginning.
    pub start: Start,
    /// The settings of the run.
    pub conf: AllocConf,
    /// The release whose rules reproduce the recording.
    pub version: TorchVersion,
    /// What a failed request leaves open: requests never made. `None` if nothing failed, or if that code went on with less.
    pub horizon: Option<Horizon>,
    /// Rows of the requests that failed.
    pub failed: Vec<u32>,
    /// Among recorded steps without a failed request, the one with the highest allocated peak: its number and that peak.
    pub largest_complete: Option<(usize, u64)>,
    /// The most bytes that could be reserved when it ran out of memory; `None` if it did not, or if unknown.
    pub failed_under: Option<u64>,
    /// An attempt that the plan leaves out, together with everything after it.
    pub(super) odd: Option<OddAttempt>,
    /// True if `torch.compile` generated some of its code; it may generate other code for other sizes.
    pub is_compiled: bool,
    /// Roles that are inferred for most of their bytes at the recording's peak.
    pub probable: Vec<Role>,
}

/// A failed attempt that the program caught and that needed far more than earlier steps, so its size is not the stated one.
#[derive(Clone, Copy, Debug)]
pub(super) struct OddAttempt {
    pub(super) step: usize,
    /// The first event of the step.
    begins: u32,
    /// The bytes that it needed, including the failed request.
    pub(super) needed: u64,
    /// The most bytes that a step before it needed.
    pub(super) others: u64,
}

impl OddAttempt {
    /// The attempt of the first failure, if two steps ended before it and the program went on with others. O(steps).
    fn of(device: &DeviceRecording, tables: &DeviceTables, steps: &Steps) -> Option<Self> {
        let failure = *device.events.ooms().first()?;
        let step = steps.of(failure).filter(|step| *step >= 2 && step + 2 < steps.bounds.len())?;
        let cells = tables.curves.columns(device, &tables.lifetimes, Quantity::Allocated, &steps.bounds);
        let needed = cells.get(step)?.max.saturating_add(device.events.size[failure as usize]);
        let others = cells.get(..step)?.iter().map(|cell| cell.max).max()?;
        let odd = OddAttempt { step, begins: *steps.bounds.get(step)?, needed, others };
        (needed.saturating_mul(2) >= others.saturating_mul(3)).then_some(odd)
    }

    pub(super) fn note(&self) -> String {
        let (needed, others) = (Bytes(self.needed), Bytes(self.others));
        format!(
            "Step {} failed: it needed {needed}, and the steps before it at most {others}. The program went on. This plan leaves out that step and \
             what came after it.",
            number(self.step)
        )
    }
}

impl Program {
    /// The product of its sizes.
    pub(super) fn weight(&self) -> u128 {
        self.at.iter().fold(1u128, |all, (_, v)| all.saturating_mul(u128::from(v)))
    }

    /// True if the recording contains every step of the plan, so that its peaks are those of the run.
    pub(super) fn is_whole(&self) -> bool {
        self.recorded_steps >= self.steps && self.horizon.is_none() && self.lap_us == 0
    }

    /// True for a step in which no request failed.
    pub(super) fn is_complete(&self, step: usize) -> bool {
        self.stretches.get(step).is_some_and(|rows| !self.failed.iter().any(|row| rows.contains(row)))
    }

    /// The requests that changes apply to.
    pub(super) fn requests(&self) -> Requests<'_> {
        Requests {
            rows: &self.rows,
            asks: &self.asks,
            stretches: &self.stretches,
            steps: self.steps,
            stacks: &self.recording.stacks,
        }
    }

    /// Reads a program. About 1 µs per event. `leaves_out_odd` leaves out a failed attempt at what must be another size.
    ///
    /// # Errors
    /// [`Cancelled`] if cancelled.
    pub fn read(
        recording: Arc<Recording>,
        device_at: usize,
        tables: &DeviceTables,
        at: Size,
        leaves_out_odd: bool,
        progress: &Progress,
    ) -> Result<Self, Cancelled> {
        let device = &recording.devices[device_at];
        let whatif = WhatIf::new(device, None, progress)?;
        let roles = Roles::build(&recording, device, tables, &Rules::default(), progress)?;
        let requests = whatif.requests();
        let lifetimes = &tables.lifetimes;
        let mut keys = Keys { stacks: &recording.stacks, of: FxHashMap::default() };
        let (mut rows, mut asks) = (Vec::new(), Vec::with_capacity(device.events.len()));
        let mut row_of_slot = vec![NEVER; requests.slots() as usize];
        let mut start = FxHashMap::default();
        let older_role: FxHashMap<u64, (Role, bool, StackId)> = (0..lifetimes.initial_count() as u32)
            .map(LifetimeId)
            .map(|id| (lifetimes.address(device, id), (roles.of(id), roles.is_master_copy(id), lifetimes.stack(device, id))))
            .collect();
        for (slot, address, size, stream) in requests.blocks_before_at() {
            let (role, is_master, stack) = older_role.get(&address).copied().unwrap_or((Role::Unknown, false, StackId::NONE));
            start.insert(slot, rows.len() as u32);
            row_of_slot[slot as usize] = rows.len() as u32;
            rows.push(Row { size, stream, stack, role, is_master, ..Row::OLDER });
        }
        let older = rows.len();
        let mut failed = Vec::new();
        let unneeded = unneeded(device, lifetimes, &roles);
        let odd = OddAttempt::of(device, tables, &roles.anatomy.steps).filter(|_| leaves_out_odd);
        let last = odd.map_or(device.events.len(), |odd| odd.begins as usize);
        for event in 0..last {
            let at = asks.len() as u32;
            if requests.begins_capture(event) {
                asks.push(Ask::EmptyCache);
            }
            let end = |slot: u32, rows: &mut Vec<Row>| {
                let row = row_of_slot.get(slot as usize).copied().unwrap_or(NEVER);
                if let Some(row) = rows.get_mut(row as usize).filter(|r| r.freed == NEVER) {
                    row.freed = at;
                }
                row
            };
            let step = requests.step(event);
            match step {
                // cuDNN continues with less if a trial is refused.
                ReplayStep::Failing if device.events.is_refused_trial(event as u32) => {}
                ReplayStep::Skip => {}
                ReplayStep::Alloc { .. } | ReplayStep::Failing => {
                    let row = rows.len() as u32;
                    let id = lifetimes.of_event(event as u32);
                    let stack = device.events.stack[event];
                    let (key, loose) = keys.of(stack);
                    asks.push(Ask::Alloc(row));
                    // A failed request has no block; its role follows from the phase.
                    let is_failing = step == ReplayStep::Failing;
                    let phase = match is_failing {
                        true => roles.anatomy.phase_at(event as u32),
                        false => roles.anatomy.phases.of(id),
                    };
                    let role = if is_failing { role_of_failed(phase) } else { roles.of(id) };
                    rows.push(Row {
                        size: device.events.size[event].max(1),
                        born: at,
                        stream: requests.stream(event),
                        pool: requests.pool(event),
                        stack,
                        key,
                        loose,
                        role,
                        is_master: !is_failing && roles.is_master_copy(id),
                        is_unneeded: !is_failing && unneeded.contains(&id),
                        phase: phase.unwrap_or(Phase::Between),
                        event: event as u32,
                        ..Row::OLDER
                    });
                    match step {
                        ReplayStep::Alloc { slot } => row_of_slot[slot as usize] = row,
                        // The program continued without this block.
                        _ => {
                            failed.push(row);
                            rows[row as usize].freed = asks.len() as u32;
                            asks.push(Ask::Free(row));
                        }
                    }
                }
                ReplayStep::Free { slot } => asks.push(Ask::Free(end(slot, &mut rows))),
                ReplayStep::FreeLater { slot } => asks.push(Ask::FreeLater(end(slot, &mut rows))),
                ReplayStep::Complete { slot } => {
                    asks.push(Ask::Complete(row_of_slot.get(slot as usize).copied().unwrap_or(NEVER)));
                }
                ReplayStep::EmptyCache => asks.push(Ask::EmptyCache),
            }
            for slot in requests.completed_after(event) {
                asks.push(Ask::Complete(row_of_slot.get(slot as usize).copied().unwrap_or(NEVER)));
            }
        }
        let bounds = &roles.anatomy.steps.bounds;
        let bounds = odd.map_or(&bounds[..], |odd| &bounds[..=odd.step]);
        let row_at = |event: u32| rows[older..].partition_point(|r| r.event < event) as u32 + older as u32;
        let mut edges: Vec<u32> = vec![older as u32];
        edges.extend(bounds.iter().map(|&b| row_at(b)));
        edges.push(rows.len() as u32);
        let stretches = edges.windows(2).map(|w| w[0]..w[1]).collect();
        let own = whatif.own();
        let (conf, version) = (own.replay.conf.clone(), own.replay.version);
        let in_steps = tables.curves.columns(device, lifetimes, Quantity::Allocated, bounds);
        let has_failure = |step: usize| failed.iter().any(|&row| (edges[step]..edges[step + 1]).contains(&row));
        let peaks_of_steps = (1usize..).zip(&in_steps).map(|(step, cell)| (step, cell.max));
        let largest_complete = peaks_of_steps.filter(|(step, _)| !has_failure(*step)).max_by_key(|(_, bytes)| *bytes);
        let failed_under = device.events.last_oom().filter(|_| odd.is_none()).and(own.replay.limit);
        let peak = |q: Quantity| match odd {
            Some(odd) => tables.curves.columns(device, lifetimes, q, &[0, odd.begins]).first().map_or(0, |cell| cell.max),
            None => tables.curves.peak(q).0,
        };
        let start = Start::of(&whatif.prepared(), start);
        let before = |q: Quantity| tables.curves.at(device, lifetimes, q, NO_EVENT);
        let steps = bounds.len().saturating_sub(1);
        let probable = probable_roles(device, tables, &roles);
        drop(roles);
        let mut frames = (0..recording.stacks.frame_count() as u32).filter_map(|f| recording.stacks.frame(FrameId(f)));
        let is_compiled = frames.any(|f| is_generated(recording.stacks.text(f.file)));
        Ok(Program {
            device: device_at,
            at,
            rows,
            older,
            asks,
            stretches,
            steps,
            recorded_steps: steps,
            lap_us: 0,
            start,
            conf,
            version,
            horizon: own.horizon.filter(|_| odd.is_none()),
            odd,
            failed,
            largest_complete,
            peaks: [Quantity::Reserved, Quantity::Allocated].map(peak),
            cached_before: before(Quantity::Reserved).saturating_sub(before(Quantity::Allocated)),
            failed_under,
            is_compiled,
            probable,
            recording: Arc::clone(&recording),
        })
    }

    /// The innermost lines of a row's stack, for sentences: `modeling_gpt2.py:240`.
    pub fn place(&self, row: &Row) -> String {
        place_of(&self.recording.stacks, row.stack)
    }

    /// The most bytes that the rows selected by `which` hold at once.
    pub(super) fn most_live(&self, sizes: &[u64], which: impl Fn(usize) -> bool) -> u64 {
        let mut live: u64 = (0..self.older).filter(|&r| which(r)).map(|r| sizes[r]).sum();
        let mut most = live;
        for ask in &self.asks {
            match *ask {
                Ask::Alloc(row) if which(row as usize) => live += sizes[row as usize],
                Ask::Free(row) | Ask::FreeLater(row) if (row as usize) < sizes.len() && which(row as usize) => {
                    live = live.saturating_sub(sizes[row as usize]);
                }
                _ => {}
            }
            most = most.max(live);
        }
        most
    }
}

fn role_of_failed(phase: Option<Phase>) -> Role {
    match phase {
        Some(Phase::Forward) => Role::Activations,
        Some(Phase::Backward | Phase::Optimizer | Phase::Evaluation | Phase::Generation) => Role::Temporaries,
        Some(Phase::Load) => Role::Weights,
        Some(Phase::Capture | Phase::Between) | None => Role::Unknown,
    }
}

/// The roles that are inferred for most of their bytes at the peak.
fn probable_roles(device: &DeviceRecording, tables: &DeviceTables, roles: &Roles) -> Vec<Role> {
    let peak = tables.curves.peak(Quantity::Active).1;
    let mut held: FxHashMap<Role, [u64; 2]> = FxHashMap::default();
    for id in tables.states.live_at(&tables.lifetimes, peak) {
        let bytes = tables.lifetimes.block_size(id);
        let of_role = held.entry(roles.of(id)).or_default();
        of_role[0] += bytes;
        of_role[1] += if roles.is_probable(device, tables, id) { bytes } else { 0 };
    }
    held.into_iter().filter(|(_, [all, probable])| probable.saturating_mul(2) > *all).map(|(role, _)| role).collect()
}

/// The innermost Python line outside torch, otherwise the innermost line; "no stack" without one.
pub(super) fn place_of(stacks: &StackTable, stack: StackId) -> String {
    let line = crate::anatomy::line_of(stacks, stack).or_else(|| stacks.frames(stack).first().copied());
    match line.and_then(|f| stacks.frame(f)) {
        Some(frame) => stacks.location(frame),
        None => "the backward pass, which has no stack".to_owned(),
    }
}

/// True for a file of an installed package, which is the same in all runs.
pub(super) fn is_installed(file: &str) -> bool {
    file.contains("-packages") || file.contains("torch/")
}

/// Hashes of stacks that are comparable between recordings.
struct Keys<'a> {
    stacks: &'a StackTable,
    of: FxHashMap<StackId, (u64, u64)>,
}

impl Keys<'_> {
    fn of(&mut self, stack: StackId) -> (u64, u64) {
        let stacks = self.stacks;
        *self.of.entry(stack).or_insert_with(|| {
            let frames = stacks.frames(stack);
            if frames.is_empty() {
                return (0, 0);
            }
            let (mut exact, mut loose) = (FxHasher::default(), FxHasher::default());
            let frames = || frames.iter().filter_map(|&f| stacks.frame(f));
            let is_compiled = frames().any(|frame| is_generated(stacks.text(frame.file)));
            for frame in frames() {
                // The same program may be in different folders on two machines.
                let file = stacks.text(frame.file);
                // The name of generated code is a hash of its content, which contains the sizes.
                let file = if is_generated(file) { "" } else { file };
                let short = file.rmatch_indices(['/', '\\']).nth(1).map_or(file, |(at, _)| &file[at + 1..]);
                let name = stacks.text(frame.name);
                (short, name, frame.line).hash(&mut exact);
                let own = short.rsplit(['/', '\\']).next().unwrap_or(short);
                match is_installed(file) {
                    // The contents of a fused kernel, and the lines it comes from, change with the sizes.
                    _ if is_compiled && (is_installed(file) || !file.ends_with(".py")) => {}
                    true => (short, name, frame.line).hash(&mut loose),
                    false => (own, name).hash(&mut loose),
                }
            }
            (exact.finish() | 1, loose.finish() | 1)
        })
    }
}
