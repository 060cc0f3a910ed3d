//! [`Draft`]: a program's requests while changes are applied to them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::requests::{NEVER, Requests};
use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::inference::scripted::Ask;

/// A request of a draft: a request of the program, in full, in part, or repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// Index of the program's row that it is derived from.
    pub(crate) of: u32,
    /// Its size as a fraction (numerator, denominator) of that row's size.
    pub(crate) part: (u32, u32),
    pub(crate) role: Role,
    /// The phase in which it is requested.
    pub(crate) phase: Phase,
    /// The step, from 1; 0 before the first.
    pub(crate) step: u32,
    /// Index in [`Draft::asks`] of its request (`born`) and of its free (`freed`).
    pub(crate) born: u32,
    pub(crate) freed: u32,
}

impl Draw {
    /// Removes the request: its size becomes 0.
    pub(crate) fn drop_it(&mut self) {
        self.part.0 = 0;
    }

    /// True unless it was removed.
    pub(crate) fn is_there(&self) -> bool {
        self.part.0 > 0
    }

    /// True if it lives for fewer than 64 requests and frees.
    pub(crate) fn is_short(&self) -> bool {
        self.freed != NEVER && self.born != NEVER && self.freed - self.born < 64
    }
}

/// A forward pass with its backward pass: one per step, or several with gradient accumulation. Each pass is given by the
/// positions of its first and last request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    pub(crate) step: u32,
    pub(crate) forward: (u32, u32),
    pub(crate) backward: Option<(u32, u32)>,
}

/// A program's requests with changes applied.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) program: Requests<'a>,
    pub(crate) asks: Vec<Ask>,
    pub(crate) rows: Vec<Draw>,
    /// Bytes recomputed in a step, at the program's sizes.
    pub(crate) recomputed: u64,
    /// Number of requests repeated in a step.
    pub(crate) again: u64,
    /// Bytes moved to the host and back in a step.
    pub(crate) moved: u64,
    /// The largest recomputed block. The reserved peak may move by this much, depending on whether the block fits into a hole.
    pub(crate) open: u64,
    /// The fraction of its size that a row may be left with at least, for changes whose effect is known only as a range.
    pub(crate) low: FxHashMap<u32, (u32, u32)>,
    /// Positions of the first and last request of each step and phase.
    reaches: FxHashMap<(u32, Phase), (u32, u32)>,
    /// If true, blocks outside any graph are freed only at the end of the call that made them.
    pub(crate) is_late: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn of(program: Requests<'a>) -> Self {
        let mut rows: Vec<Draw> = program
            .rows
            .iter()
            .zip(0..)
            .map(|(r, of)| Draw { of, part: (1, 1), role: r.role, phase: r.phase, step: 0, born: r.born, freed: r.freed })
            .collect();
        for (step, stretch) in program.stretches.iter().enumerate() {
            rows[stretch.start as usize..stretch.end as usize].iter_mut().for_each(|r| r.step = step as u32);
        }
        let reaches = reaches(&rows);
        Draft {
            program,
            asks: program.asks.to_vec(),
            rows,
            recomputed: 0,
            again: 0,
            moved: 0,
            open: 0,
            low: FxHashMap::default(),
            reaches,
            is_late: false,
        }
    }

    /// Bytes of a row in the recording after the changes so far.
    pub(crate) fn size(&self, row: u32) -> u64 {
        let r = &self.rows[row as usize];
        scaled(self.program.rows[r.of as usize].size, r.part)
    }

    pub(crate) fn which(&self, test: impl Fn(&Draw) -> bool) -> Vec<u32> {
        (0..self.rows.len() as u32).filter(|&r| self.rows[r as usize].is_there() && test(&self.rows[r as usize])).collect()
    }

    /// The rows of a step that pass a test. O(rows of the step).
    pub(crate) fn of_step(&self, step: u32, test: impl Fn(&Draw) -> bool) -> Vec<u32> {
        let recorded = self.program.stretches.get(step as usize).cloned().unwrap_or_default();
        let added = self.program.rows.len() as u32..self.rows.len() as u32;
        let is_one = |r: &Draw| r.step == step && r.is_there() && test(r);
        recorded.chain(added).filter(|&r| is_one(&self.rows[r as usize])).collect()
    }

    /// Positions of the first and last request of a phase in a step.
    pub(crate) fn reach(&self, step: u32, phase: Phase) -> Option<(u32, u32)> {
        self.reaches.get(&(step, phase)).copied()
    }

    /// The passes of a step, in order. O(rows of the step).
    pub(crate) fn passes(&self, step: u32) -> Vec<Pass> {
        /// A stretch of the forward pass counts as a pass of its own if it has at least 1/n of the requests of the largest stretch.
        const SHARE: usize = 8;
        /// A step with more passes is no gradient accumulation. Also bounds the cost, as each pass scans its step's requests.
        const MOST: usize = 256;
        let is_of_pass = |r: &Draw| r.born != NEVER && matches!(r.phase, Phase::Forward | Phase::Backward);
        let mut rows: Vec<Draw> = self.of_step(step, is_of_pass).into_iter().map(|r| self.rows[r as usize]).collect();
        rows.sort_unstable_by_key(|r| r.born);
        let stretches: Vec<&[Draw]> = rows.chunk_by(|a, b| a.phase == b.phase).collect();
        let forward = stretches.iter().filter(|s| s[0].phase == Phase::Forward);
        let most = forward.map(|s| s.len()).max().unwrap_or(0);
        let mut passes: Vec<Pass> = Vec::new();
        for stretch in stretches {
            if passes.len() > MOST {
                break;
            }
            let reach = (stretch[0].born, stretch[stretch.len() - 1].born);
            match passes.last_mut() {
                Some(pass) if stretch[0].phase == Phase::Backward => {
                    pass.backward = Some((pass.backward.map_or(reach.0, |b| b.0), reach.1));
                }
                Some(pass) if pass.backward.is_none() => pass.forward.1 = reach.1,
                _ if stretch[0].phase == Phase::Forward && stretch.len() * SHARE >= most => {
                    passes.push(Pass { step, forward: reach, backward: None });
                }
                _ => {}
            }
        }
        passes.truncate(MOST);
        passes
    }

    /// Bytes per element of the weights: 2 if a cross-entropy uses logits cast to twice their size without autocast, else 4.
    pub(crate) fn bytes_of_element(&self) -> u64 {
        if self.rows.iter().any(|r| r.role == Role::AutocastCopies) {
            return 4;
        }
        let step = self.steps().min(self.program.steps as u32).max(1);
        let forward = self.which(|r| r.step == step && r.phase == Phase::Forward && r.born != NEVER);
        let most = forward.iter().map(|&r| self.size(r)).max().unwrap_or(0);
        let large: Vec<u64> = forward.iter().map(|&r| self.size(r)).filter(|s| *s * 5 >= most * 2).collect();
        // The last token of each sequence has no label, so the cast may cover slightly fewer tokens; blocks are rounded up.
        let of_loss =
            |size: u64| forward.iter().any(|&r| self.size(r) == size && is_of_loss(self.program, self.rows[r as usize].of));
        let is_twice = |a: u64, b: u64| b.abs_diff(2 * a) <= a / 10 && of_loss(b);
        if large.windows(2).any(|w| is_twice(w[0], w[1])) { 2 } else { 4 }
    }

    pub(crate) fn steps(&self) -> u32 {
        self.rows.iter().map(|r| r.step).max().unwrap_or(0)
    }

    /// Applies edits and updates the position of every row.
    pub(crate) fn apply(&mut self, edits: Edits) {
        let Edits { gone, before, rows, .. } = edits;
        self.rows.extend(rows);
        let mut asks = Vec::with_capacity(self.asks.len() + before.values().map(Vec::len).sum::<usize>());
        for (at, ask) in self.asks.iter().enumerate() {
            asks.extend(before.get(&(at as u32)).into_iter().flatten());
            if !gone.contains(&(at as u32)) {
                asks.push(*ask);
            }
        }
        asks.extend(before.get(&(self.asks.len() as u32)).into_iter().flatten());
        self.asks = asks;
        for row in &mut self.rows {
            (row.born, row.freed) = (NEVER, NEVER);
        }
        for (at, ask) in self.asks.iter().enumerate() {
            match *ask {
                Ask::Alloc(row) => self.rows[row as usize].born = at as u32,
                Ask::Free(row) | Ask::FreeLater(row) => {
                    if let Some(row) = self.rows.get_mut(row as usize) {
                        row.freed = at as u32;
                    }
                }
                _ => {}
            }
        }
        self.reaches = reaches(&self.rows);
    }
}

fn reaches(rows: &[Draw]) -> FxHashMap<(u32, Phase), (u32, u32)> {
    let mut reaches: FxHashMap<(u32, Phase), (u32, u32)> = FxHashMap::default();
    for r in rows.iter().filter(|r| r.born != NEVER) {
        let reach = reaches.entry((r.step, r.phase)).or_insert((r.born, r.born));
        *reach = (reach.0.min(r.born), reach.1.max(r.born));
    }
    reaches
}

/// True for a block that the loss function itself makes.
pub(crate) fn is_of_loss(program: Requests<'_>, row: u32) -> bool {
    let stacks = program.stacks;
    let name = |f| stacks.frame(f).map_or("", |f| stacks.text(f.name));
    let is_loss = |n: &str| n == "cross_entropy" || n == "nll_loss" || n == "log_softmax";
    stacks.frames(program.rows[row as usize].stack).iter().take(4).any(|&f| is_loss(name(f)))
}

/// A fraction of a size, rounded up.
pub(crate) fn scaled(bytes: u64, (times, over): (u32, u32)) -> u64 {
    if times == over { bytes } else { (u128::from(bytes) * u128::from(times)).div_ceil(u128::from(over.max(1))) as u64 }
}

/// Moves to make, at positions in the draft's requests before the edit.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    gone: FxHashSet<u32>,
    before: FxHashMap<u32, Vec<Ask>>,
    rows: Vec<Draw>,
    freed: FxHashSet<u32>,
}

impl Edits {
    /// Frees a row before this position instead of where it was freed. If called twice for a row, the first call counts.
    pub(crate) fn free_at(&mut self, draft: &Draft<'_>, row: u32, at: u32) {
        if !self.freed.insert(row) {
            return;
        }
        let freed = draft.rows[row as usize].freed;
        if freed != NEVER {
            self.gone.insert(freed);
        }
        self.before.entry(at).or_default().push(Ask::Free(row));
    }

    /// Repeats a row's request before this position; returns the number of the new row.
    pub(crate) fn make_again(&mut self, draft: &Draft<'_>, row: u32, at: u32) -> u32 {
        let new = (draft.rows.len() + self.rows.len()) as u32;
        self.rows.push(draft.rows[row as usize]);
        self.before.entry(at).or_default().push(Ask::Alloc(new));
        new
    }

    /// Repeats requests before this position, in order, and frees the new blocks as the originals were freed, except those that
    /// are kept. Returns the numbers of the new rows.
    pub(crate) fn run_again(&mut self, draft: &Draft<'_>, rows: &[u32], at: u32, is_kept: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut open: Vec<(u32, u32)> = Vec::new();
        let mut made = Vec::with_capacity(rows.len());
        for &row in rows {
            let r = draft.rows[row as usize];
            for (_, new) in open.extract_if(.., |(freed, _)| *freed < r.born) {
                self.free_again(new, at);
            }
            let new = self.make_again(draft, row, at);
            made.push(new);
            if !is_kept(row) {
                open.push((r.freed, new));
            }
        }
        open.into_iter().for_each(|(_, new)| self.free_again(new, at));
        made
    }

    pub(crate) fn make_half(&mut self, draft: &Draft<'_>, row: u32, at: u32) -> u32 {
        let new = self.make_again(draft, row, at);
        if let Some(half) = self.rows.last_mut() {
            half.part.1 = half.part.1.saturating_mul(2);
        }
        new
    }

    /// Frees a repeated row.
    pub(crate) fn free_again(&mut self, new: u32, at: u32) {
        self.before.entry(at).or_default().push(Ask::Free(new));
    }
}
