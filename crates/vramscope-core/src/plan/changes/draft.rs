//! [`Draft`]: a program's requests while changes are made to them.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::anatomy::Phase;
use crate::anatomy::Role;
use crate::inference::scripted::Ask;
use crate::plan::program::{NEVER, Program};

/// A request of a draft: one of the program, whole, in part or again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Index of the program's row that it stands for.
    pub(super) of: u32,
    /// Its bytes are those of the row times this over that.
    pub(super) part: (u32, u32),
    /// What it is for.
    pub(super) role: Role,
    /// Where in the program it is asked for.
    pub(super) phase: Phase,
    /// The step, from 1; 0 before the first.
    pub(super) step: u32,
    /// Where it is asked for and freed, in [`Draft::asks`].
    pub(super) born: u32,
    pub(super) freed: u32,
}

impl Draw {
    /// It is not asked for.
    pub(super) fn drop_it(&mut self) {
        self.part.0 = 0;
    }

    /// It is asked for.
    pub(super) fn is_there(&self) -> bool {
        self.part.0 > 0
    }

    /// It lives for a few steps of the program only.
    pub(super) fn is_short(&self) -> bool {
        self.freed != NEVER && self.born != NEVER && self.freed - self.born < 64
    }
}

/// A program's requests with changes.
#[derive(Clone, Debug)]
pub(super) struct Draft<'a> {
    pub(super) program: &'a Program,
    pub(super) asks: Vec<Ask>,
    pub(super) rows: Vec<Draw>,
    /// Bytes made again in a step, by the program's sizes.
    pub(super) recomputed: u64,
    /// Requests made again in a step.
    pub(super) again: u64,
    /// Bytes moved to the host and back in a step.
    pub(super) moved: u64,
    /// The least that rows may be in the answer, for changes whose effect is known as a span.
    pub(super) low: FxHashMap<u32, (u32, u32)>,
}

impl<'a> Draft<'a> {
    pub(super) fn of(program: &'a Program) -> Self {
        let mut rows: Vec<Draw> = program
            .rows
            .iter()
            .zip(0..)
            .map(|(r, of)| Draw { of, part: (1, 1), role: r.role, phase: r.phase, step: 0, born: r.born, freed: r.freed })
            .collect();
        for (step, stretch) in program.stretches.iter().enumerate() {
            rows[stretch.start as usize..stretch.end as usize].iter_mut().for_each(|r| r.step = step as u32);
        }
        Draft { program, asks: program.asks.clone(), rows, recomputed: 0, again: 0, moved: 0, low: FxHashMap::default() }
    }

    /// Bytes of a row in the recording, with the changes so far.
    pub(super) fn size(&self, row: u32) -> u64 {
        let r = &self.rows[row as usize];
        scaled(self.program.rows[r.of as usize].size, r.part)
    }

    pub(super) fn which(&self, test: impl Fn(&Draw) -> bool) -> Vec<u32> {
        (0..self.rows.len() as u32).filter(|&r| self.rows[r as usize].is_there() && test(&self.rows[r as usize])).collect()
    }

    /// The last place at which a phase of a step asks for anything, and the first.
    pub(super) fn reach(&self, step: u32, phase: Phase) -> Option<(u32, u32)> {
        let born = self.rows.iter().filter(|r| r.step == step && r.phase == phase && r.born != NEVER).map(|r| r.born);
        born.fold(None, |reach, at| Some(reach.map_or((at, at), |(a, b): (u32, u32)| (a.min(at), b.max(at)))))
    }

    /// Bytes of an element of weights: 2 where a cross-entropy is taken of logits that were cast to twice their size and autocast is not
    /// at work, else 4.
    pub(super) fn bytes_of_element(&self) -> u64 {
        if self.rows.iter().any(|r| r.role == Role::AutocastCopies) {
            return 4;
        }
        let step = self.steps().min(self.program.steps as u32).max(1);
        let forward = self.which(|r| r.step == step && r.phase == Phase::Forward && r.born != NEVER);
        let most = forward.iter().map(|&r| self.size(r)).max().unwrap_or(0);
        let large: Vec<u64> = forward.iter().map(|&r| self.size(r)).filter(|s| *s * 5 >= most * 2).collect();
        // The last token of each sequence has no label: the cast may be of a little less.
        let of_loss =
            |size: u64| forward.iter().any(|&r| self.size(r) == size && is_of_loss(self.program, self.rows[r as usize].of));
        let is_twice = |a: u64, b: u64| b > a + a * 9 / 10 && b <= 2 * a && of_loss(b);
        if large.windows(2).any(|w| is_twice(w[0], w[1])) { 2 } else { 4 }
    }

    /// The number of steps.
    pub(super) fn steps(&self) -> u32 {
        self.rows.iter().map(|r| r.step).max().unwrap_or(0)
    }

    /// Applies edits, and finds every row's place anew.
    pub(super) fn apply(&mut self, edits: Edits) {
        let Edits { gone, before, rows } = edits;
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
    }
}

/// True for what the loss function itself makes.
pub(super) fn is_of_loss(program: &Program, row: u32) -> bool {
    let stacks = &program.recording.stacks;
    let name = |f| stacks.frame(f).map_or("", |f| stacks.text(f.name));
    let is_loss = |n: &str| n == "cross_entropy" || n == "nll_loss" || n == "log_softmax";
    stacks.frames(program.rows[row as usize].stack).iter().take(4).any(|&f| is_loss(name(f)))
}

/// Bytes times a part, rounded up.
pub(super) fn scaled(bytes: u64, (times, over): (u32, u32)) -> u64 {
    if times == over { bytes } else { (u128::from(bytes) * u128::from(times)).div_ceil(u128::from(over.max(1))) as u64 }
}

/// What is to be moved, by places of the draft's asks before the edit.
#[derive(Debug, Default)]
pub(super) struct Edits {
    gone: FxHashSet<u32>,
    before: FxHashMap<u32, Vec<Ask>>,
    rows: Vec<Draw>,
}

impl Edits {
    /// Frees a row before a place instead of where it was.
    pub(super) fn free_at(&mut self, draft: &Draft<'_>, row: u32, at: u32) {
        let freed = draft.rows[row as usize].freed;
        if freed != NEVER {
            self.gone.insert(freed);
        }
        self.before.entry(at).or_default().push(Ask::Free(row));
    }

    /// Makes a row again before a place; the number of the new one.
    pub(super) fn make_again(&mut self, draft: &Draft<'_>, row: u32, at: u32) -> u32 {
        let new = (draft.rows.len() + self.rows.len()) as u32;
        self.rows.push(draft.rows[row as usize]);
        self.before.entry(at).or_default().push(Ask::Alloc(new));
        new
    }

    /// Makes half a row beside it.
    pub(super) fn make_half(&mut self, draft: &Draft<'_>, row: u32, at: u32) -> u32 {
        let new = self.make_again(draft, row, at);
        if let Some(half) = self.rows.last_mut() {
            half.part.1 = half.part.1.saturating_mul(2);
        }
        new
    }

    /// Frees a row that was made again.
    pub(super) fn free_again(&mut self, new: u32, at: u32) {
        self.before.entry(at).or_default().push(Ask::Free(new));
    }
}
