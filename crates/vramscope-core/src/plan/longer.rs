//! Extends a recording to more steps: repeats its last step, or its largest if steps differ.
//!
//! A run's peak is often in its second step, when the optimizer's state exists, and reserved memory may grow for another step. If
//! batches differ in length, the longest may occur again when the state exists. Blocks that the step makes anew are made again in
//! each repetition. Blocks that live on into the next step are freed where the last step freed the corresponding block of the
//! step before it. Blocks made only once, such as the optimizer's state, are not made again.

use std::ops::Range;

use super::align::align_steps;
use super::evenness;
use super::program::{NEVER, Program, Row};
use crate::anatomy::{Phase, Role};
use crate::inference::scripted::Ask;

/// Most requests of an extended program.
const MOST: usize = 4_000_000;

/// What happens to a row of the last step in the following step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is allocated again and freed in its own step.
    Ends,
    /// It is allocated again and freed in the next step, before this request of that step.
    Carried(u32),
    /// It is allocated again and stays.
    Stays,
    /// It is allocated only once.
    Once,
}

/// Extends the program to at least `steps` steps by repeating the last one, if it ends with a whole step. If steps differ and the
/// first is the largest, that one is repeated once before, because the optimizer's state did not exist yet. Later large steps,
/// such as one with an evaluation, show their own peak. A step with a failed request is incomplete and is not repeated.
pub(super) fn lengthened(program: Program, steps: usize) -> Program {
    let last = program.steps;
    let is_cut = program.horizon.is_some_and(|horizon| !horizon.is_caught || !program.is_complete(last));
    if last == 0 || is_cut {
        return program;
    }
    let largest = evenness::largest(&program).filter(|&step| step == 1 && step < last);
    let program = match largest {
        Some(step) => repeated(program, step, 1),
        None => program,
    };
    let more = steps.saturating_sub(program.steps);
    let last = program.steps;
    repeated(program, last, more)
}

/// The program with `step` repeated `times` times after its last step.
fn repeated(program: Program, step: usize, times: usize) -> Program {
    let last = program.steps;
    let Some(last_rows) = program.stretches.get(last).filter(|r| !r.is_empty()).cloned() else { return program };
    let Some(rows) = program.stretches.get(step).filter(|r| !r.is_empty()).cloned() else { return program };
    let (asks, last_asks) = (asks_of(&program, &rows), asks_of(&program, &last_rows));
    let last_fates = fates(&program, &last_rows, &last_asks);
    let fates = if step == last { last_fates.clone() } else { earlier_fates(&program, &rows, &asks, step) };
    let made: Vec<u32> = rows.clone().filter(|r| fates[(r - rows.start) as usize] != Fate::Once).collect();
    let room = MOST.saturating_sub(program.asks.len()) / asks.len().max(1);
    let laps = times.min(room);
    if laps == 0 || made.is_empty() {
        return program;
    }
    let last = Step { rows: last_rows, asks: last_asks, fates: last_fates };
    Writer { program: &program, step: Step { rows, asks, fates }, last, made, laps }.write()
}

/// The requests and frees of a stretch: from its first request to before that of the next stretch.
fn asks_of(program: &Program, rows: &Range<u32>) -> Range<usize> {
    let born = |row: u32| program.rows.get(row as usize).map_or(program.asks.len(), |r| r.born as usize);
    born(rows.start)..born(rows.end)
}

fn fates(program: &Program, rows: &Range<u32>, asks: &Range<usize>) -> Vec<Fate> {
    let before = (program.steps > 1).then(|| program.stretches[program.steps - 1].clone());
    let pairs = before.as_ref().map(|before| align_steps(program, before.clone(), rows.clone()));
    // For each row of the last step, the corresponding row of the step before.
    let mut of_before = vec![NEVER; rows.len()];
    for (earlier, &row) in before.into_iter().flatten().zip(pairs.iter().flatten()) {
        if let Some(slot) = row.checked_sub(rows.start).and_then(|at| of_before.get_mut(at as usize)) {
            *slot = earlier;
        }
    }
    let within = |at: u32| at != NEVER && asks.contains(&(at as usize));
    rows.clone()
        .zip(&of_before)
        .map(|(row, &earlier)| {
            let row = &program.rows[row as usize];
            match program.rows.get(earlier as usize) {
                Some(earlier) if within(earlier.freed) => Fate::Carried(earlier.freed - asks.start as u32),
                _ if within(row.freed) => Fate::Ends,
                Some(earlier) if earlier.freed == NEVER || earlier.freed as usize >= asks.end => Fate::Stays,
                // It outlives its step for the first time: a buffer that is kept from now on.
                Some(_) => Fate::Once,
                None => alone(program, row, asks),
            }
        })
        .collect()
}

/// What happens to a row if there is only one step.
fn alone(program: &Program, row: &Row, asks: &Range<usize>) -> Fate {
    match row.role {
        // Freed by `zero_grad` at the beginning of the loop.
        Role::Gradients => Fate::Carried(0),
        // A variable of the loop holds it until it gets the next value.
        Role::Activations | Role::Inputs | Role::Temporaries if row.phase != Phase::Optimizer && program.steps == 1 => {
            Fate::Carried(row.born + 1 - asks.start as u32)
        }
        _ => Fate::Once,
    }
}

/// What happens to rows of a step that is not the last.
fn earlier_fates(program: &Program, rows: &Range<u32>, asks: &Range<usize>, step: usize) -> Vec<Fate> {
    let next = program.stretches.get(step + 1).map_or(asks.end..asks.end, |rows| asks_of(program, rows));
    let fate = |row: u32| {
        let freed = program.rows[row as usize].freed;
        match freed {
            NEVER => Fate::Once,
            at if asks.contains(&(at as usize)) => Fate::Ends,
            at if next.contains(&(at as usize)) => Fate::Carried(at - next.start as u32),
            _ => Fate::Once,
        }
    };
    rows.clone().map(fate).collect()
}

/// Rows and requests of a step, and what happens to each row.
struct Step {
    rows: Range<u32>,
    asks: Range<usize>,
    fates: Vec<Fate>,
}

impl Step {
    fn fate(&self, row: u32) -> Option<Fate> {
        self.fates.get(row.checked_sub(self.rows.start)? as usize).copied()
    }

    /// Rows that are freed in the next step, with the position of the free, if that step has `next` requests and frees.
    fn carried(&self, next: usize) -> Vec<(u32, u32)> {
        let scaled = |at: u32| (u64::from(at) * next as u64 / self.asks.len().max(1) as u64) as u32;
        let of = |row: u32| match self.fate(row) {
            Some(Fate::Carried(at)) => Some((scaled(at), row)),
            _ => None,
        };
        let mut all: Vec<(u32, u32)> = self.rows.clone().filter_map(of).collect();
        all.sort_unstable();
        all
    }
}

struct Writer<'a> {
    program: &'a Program,
    /// The repeated step.
    step: Step,
    last: Step,
    /// Rows that are made again, in order.
    made: Vec<u32>,
    laps: usize,
}

impl Writer<'_> {
    fn repeats_last(&self) -> bool {
        self.step.rows == self.last.rows
    }

    /// The row that represents a row of the repeated step in a repetition (lap).
    fn of_lap(&self, row: u32, lap: usize) -> u32 {
        match self.made.binary_search(&row) {
            Ok(at) if lap > 0 => self.last.rows.end + ((lap - 1) * self.made.len() + at) as u32,
            _ => row,
        }
    }

    /// The row that replaces `row` after the repetitions, which move later rows. `None` for a row that was freed in a repetition.
    fn at_the_end(&self, row: u32) -> Option<u32> {
        if self.last.rows.contains(&row) {
            return match self.last.fate(row) {
                _ if self.repeats_last() => Some(self.of_lap(row, self.laps)),
                Some(Fate::Carried(_)) => None,
                _ => Some(row),
            };
        }
        let is_behind = row != NEVER && row >= self.last.rows.end;
        Some(if is_behind { row + (self.laps * self.made.len()) as u32 } else { row })
    }

    fn write(self) -> Program {
        let p = self.program;
        let end = self.last.rows.end as usize;
        let before = p.rows[..end].iter().map(|r| r.lap).max().unwrap_or(0);
        let mut rows: Vec<Row> = p.rows[..end].to_vec();
        for lap in 1..=self.laps as u32 {
            rows.extend(self.made.iter().map(|&row| Row { lap: before + lap, ..p.rows[row as usize] }));
        }
        rows.extend(p.rows[end..].iter().map(|row| Row { lap: before + self.laps as u32, ..*row }));
        let mut asks = p.asks[..self.last.asks.start].to_vec();
        let mut later = Vec::new();
        self.last_step(&mut asks, &mut later);
        for lap in 1..=self.laps {
            self.lap(lap, &mut asks);
        }
        // Blocks freed at the program's end are freed only once.
        for ask in later.iter().chain(&p.asks[self.last.asks.end..]) {
            asks.extend(renamed(*ask, |row| self.at_the_end(row)));
        }
        place(&mut rows, &asks);
        let each = self.made.len() as u32;
        let more = self.laps as u32 * each;
        let mut stretches = p.stretches[..=p.steps].to_vec();
        stretches.extend((0..self.laps as u32).map(|lap| end as u32 + lap * each..end as u32 + (lap + 1) * each));
        stretches.extend(p.stretches[p.steps + 1..].iter().map(|r| r.start + more..r.end + more));
        let lap_us = if p.lap_us > 0 { p.lap_us } else { self.microseconds() };
        Program { rows, asks, stretches, steps: p.steps + self.laps, lap_us, ..p.clone() }
    }

    /// The last step unchanged, except for rows that are freed later because more steps follow.
    fn last_step(&self, out: &mut Vec<Ask>, later: &mut Vec<Ask>) {
        let p = self.program;
        let last_request = p.rows[self.last.rows.end as usize - 1].born as usize;
        let before = if p.steps > 1 { p.stretches[p.steps - 1].clone() } else { 0..0 };
        for at in self.last.asks.clone() {
            let ask = p.asks[at];
            let is_later = match ask {
                Ask::Free(row) | Ask::FreeLater(row) | Ask::Complete(row) => match self.last.fate(row) {
                    Some(fate) => fate != Fate::Ends,
                    None => at > last_request && !before.contains(&row),
                },
                Ask::Alloc(_) | Ask::EmptyCache => false,
            };
            if is_later { later.push(ask) } else { out.push(ask) }
        }
    }

    /// One repetition of the step.
    fn lap(&self, lap: usize, out: &mut Vec<Ask>) {
        let from = if lap == 1 { &self.last } else { &self.step };
        let name = |row: u32| if lap == 1 { row } else { self.of_lap(row, lap - 1) };
        let mut carried = from.carried(self.step.asks.len()).into_iter().map(|(at, row)| (at, name(row))).peekable();
        for at in self.step.asks.clone() {
            while let Some((_, row)) = carried.next_if(|c| c.0 as usize <= at - self.step.asks.start) {
                out.push(Ask::Free(row));
            }
            let ask = self.program.asks[at];
            let is_there = match ask {
                Ask::Alloc(row) => self.step.fate(row).is_some_and(|fate| fate != Fate::Once),
                Ask::Free(row) | Ask::FreeLater(row) | Ask::Complete(row) => self.step.fate(row) == Some(Fate::Ends),
                Ask::EmptyCache => true,
            };
            if is_there {
                out.extend(renamed(ask, |row| Some(self.of_lap(row, lap))));
            }
        }
        out.extend(carried.map(|(_, row)| Ask::Free(row)));
    }

    /// Duration of the repeated step in microseconds.
    fn microseconds(&self) -> i64 {
        let device = &self.program.recording.devices[self.program.device];
        let time = |row: u32| {
            let event = self.program.rows.get(row as usize)?.event;
            device.events.time_us.get(event as usize).copied()
        };
        let end = time(self.step.rows.end).or_else(|| device.events.time_us.last().copied());
        time(self.step.rows.start).zip(end).map_or(0, |(from, to)| to - from)
    }
}

/// The request or free with another row; `None` if it has none.
fn renamed(ask: Ask, of: impl Fn(u32) -> Option<u32>) -> Option<Ask> {
    Some(match ask {
        Ask::Alloc(row) => Ask::Alloc(of(row)?),
        Ask::Free(row) => Ask::Free(of(row)?),
        Ask::FreeLater(row) => Ask::FreeLater(of(row)?),
        Ask::Complete(row) => Ask::Complete(of(row)?),
        Ask::EmptyCache => Ask::EmptyCache,
    })
}

/// Updates where each row is requested and freed.
fn place(rows: &mut [Row], asks: &[Ask]) {
    for row in rows.iter_mut() {
        (row.born, row.freed) = (NEVER, NEVER);
    }
    for (ask, at) in asks.iter().zip(0u32..) {
        match *ask {
            Ask::Alloc(row) => rows[row as usize].born = at,
            Ask::Free(row) | Ask::FreeLater(row) => {
                if let Some(row) = rows.get_mut(row as usize).filter(|r| r.freed == NEVER) {
                    row.freed = at;
                }
            }
            _ => {}
        }
    }
}
