//! More steps than a recording has: its last step again.
//!
//! A run's peak is often that of its second step, where the optimizer's state is there already, and reserved memory may grow for another
//! one. What the last step makes anew is made again in each further one. What lives on into the next step goes where the last step freed
//! that of the step before it; what is made once, as the optimizer's state is, is not made again.

use std::ops::Range;

use super::align::align_steps;
use super::program::{NEVER, Program, Row};
use crate::anatomy::{Phase, Role};
use crate::inference::scripted::Ask;

/// Requests that a plan may be lengthened to.
const MOST: usize = 4_000_000;

/// What becomes of a row of the last step in the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is made again, and goes in its own step.
    Ends,
    /// It is made again, and goes in the next step: before this place of the step, counted in asks.
    Carried(u32),
    /// It is made again, and stays.
    Stays,
    /// It is made once.
    Once,
}

/// The program with so many steps, where it has fewer and ends with a whole one.
pub(super) fn lengthened(program: Program, steps: usize) -> Program {
    let last = program.steps;
    if last == 0 || last >= steps || program.ends_at_failure {
        return program;
    }
    let Some(rows) = program.stretches.get(last).filter(|r| !r.is_empty()).cloned() else { return program };
    let asks = asks_of(&program, &rows);
    let fates = fates(&program, &rows, &asks);
    let made: Vec<u32> = rows.clone().filter(|r| fates[(r - rows.start) as usize] != Fate::Once).collect();
    let room = MOST.saturating_sub(program.asks.len()) / asks.len().max(1);
    let laps = (steps - last).min(room);
    if laps == 0 || made.is_empty() {
        return program;
    }
    Writer { program: &program, rows, asks, fates, made, laps }.write()
}

/// The asks of a stretch of rows: from its first request to before the next stretch's.
fn asks_of(program: &Program, rows: &Range<u32>) -> Range<usize> {
    let born = |row: u32| program.rows.get(row as usize).map_or(program.asks.len(), |r| r.born as usize);
    born(rows.start)..born(rows.end)
}

fn fates(program: &Program, rows: &Range<u32>, asks: &Range<usize>) -> Vec<Fate> {
    let before = (program.steps > 1).then(|| program.stretches[program.steps - 1].clone());
    let pairs = before.as_ref().map(|before| align_steps(program, before.clone(), rows.clone()));
    // The row of the step before for each of the last.
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
                // It outlives the step for the first time: a buffer that is kept from here on.
                Some(_) => Fate::Once,
                None => alone(program, row, asks),
            }
        })
        .collect()
}

/// What lives on from the only step that there is.
fn alone(program: &Program, row: &Row, asks: &Range<usize>) -> Fate {
    match row.role {
        // `zero_grad` at the beginning of a loop.
        Role::Gradients => Fate::Carried(0),
        // A name of the loop holds it until it is given the next one.
        Role::Activations | Role::Inputs | Role::Temporaries if row.phase != Phase::Optimizer && program.steps == 1 => {
            Fate::Carried(row.born + 1 - asks.start as u32)
        }
        _ => Fate::Once,
    }
}

struct Writer<'a> {
    program: &'a Program,
    /// Rows and asks of the last step.
    rows: Range<u32>,
    asks: Range<usize>,
    fates: Vec<Fate>,
    /// Rows that are made again, in order.
    made: Vec<u32>,
    laps: usize,
}

impl Writer<'_> {
    fn fate(&self, row: u32) -> Option<Fate> {
        self.fates.get(row.checked_sub(self.rows.start)? as usize).copied()
    }

    /// The row that stands for one of the last step in a lap; 0 is the step itself.
    fn of_lap(&self, row: u32, lap: usize) -> u32 {
        match self.made.binary_search(&row) {
            Ok(at) if lap > 0 => self.rows.end + ((lap - 1) * self.made.len() + at) as u32,
            _ => row,
        }
    }

    /// A row by its new number: of the last step it is that of the last lap, and what comes behind it is moved.
    fn at_the_end(&self, row: u32) -> u32 {
        if self.rows.contains(&row) {
            return self.of_lap(row, self.laps);
        }
        let is_behind = row != NEVER && row >= self.rows.end;
        if is_behind { row + (self.laps * self.made.len()) as u32 } else { row }
    }

    fn write(self) -> Program {
        let p = self.program;
        let mut rows: Vec<Row> = p.rows[..self.rows.end as usize].to_vec();
        for lap in 1..=self.laps as u32 {
            rows.extend(self.made.iter().map(|&row| Row { lap, ..p.rows[row as usize] }));
        }
        rows.extend(p.rows[self.rows.end as usize..].iter().map(|row| Row { lap: self.laps as u32, ..*row }));
        let mut asks = p.asks[..self.asks.start].to_vec();
        for lap in 0..=self.laps {
            self.step(lap, &mut asks);
        }
        asks.extend(p.asks[self.asks.end..].iter().map(|ask| renamed(*ask, |row| self.at_the_end(row))));
        place(&mut rows, &asks);
        let more = (self.laps * self.made.len()) as u32;
        let mut stretches = p.stretches[..=p.steps].to_vec();
        let each = self.made.len() as u32;
        stretches.extend((0..self.laps as u32).map(|lap| self.rows.end + lap * each..self.rows.end + (lap + 1) * each));
        stretches.extend(p.stretches[p.steps + 1..].iter().map(|r| r.start + more..r.end + more));
        let lap_us = self.microseconds();
        Program { rows, asks, stretches, steps: p.steps + self.laps, lap_us, ..p.clone() }
    }

    /// The last step, or a lap of it.
    fn step(&self, lap: usize, out: &mut Vec<Ask>) {
        let p = self.program;
        let last_request = p.rows[self.rows.end as usize - 1].born as usize;
        let mut carried: Vec<(u32, u32)> = Vec::new();
        if lap > 0 {
            let of = |row: u32| match self.fate(row) {
                Some(Fate::Carried(at)) => Some((at, self.of_lap(row, lap - 1))),
                _ => None,
            };
            carried.extend(self.rows.clone().filter_map(of));
            carried.sort_unstable();
        }
        let mut carried = carried.into_iter().peekable();
        for at in self.asks.clone() {
            while let Some((_, row)) = carried.next_if(|c| c.0 as usize <= at - self.asks.start) {
                out.push(Ask::Free(row));
            }
            let ask = p.asks[at];
            let is_last = lap == self.laps;
            match ask {
                Ask::Alloc(row) => match self.fate(row) {
                    Some(Fate::Once) if lap > 0 => {}
                    _ => out.push(Ask::Alloc(self.of_lap(row, lap))),
                },
                Ask::Free(row) | Ask::FreeLater(row) | Ask::Complete(row) => match self.fate(row) {
                    Some(Fate::Ends) => out.push(renamed(ask, |row| self.of_lap(row, lap))),
                    // What the end of the program frees, it frees once.
                    Some(Fate::Carried(_) | Fate::Stays | Fate::Once) if is_last => {
                        out.push(renamed(ask, |row| self.of_lap(row, lap)));
                    }
                    Some(_) => {}
                    // Older than the step: freed once, where it was, or at the end of the program.
                    None if at < last_request && lap == 0 => out.push(ask),
                    None if at < last_request => {}
                    None if self.is_of_step_before(row) && lap == 0 => out.push(ask),
                    None if self.is_of_step_before(row) => {}
                    None if is_last => out.push(ask),
                    None => {}
                },
                Ask::EmptyCache => out.push(ask),
            }
        }
        out.extend(carried.map(|(_, row)| Ask::Free(row)));
    }

    fn is_of_step_before(&self, row: u32) -> bool {
        self.program.steps > 1 && self.program.stretches[self.program.steps - 1].contains(&row)
    }

    /// How long the last step took.
    fn microseconds(&self) -> i64 {
        let device = &self.program.recording.devices[self.program.device];
        let time = |row: u32| {
            let event = self.program.rows.get(row as usize)?.event;
            device.events.time_us.get(event as usize).copied()
        };
        let end = time(self.rows.end).or_else(|| device.events.time_us.last().copied());
        time(self.rows.start).zip(end).map_or(0, |(from, to)| to - from)
    }
}

fn renamed(ask: Ask, of: impl Fn(u32) -> u32) -> Ask {
    match ask {
        Ask::Alloc(row) => Ask::Alloc(of(row)),
        Ask::Free(row) => Ask::Free(of(row)),
        Ask::FreeLater(row) => Ask::FreeLater(of(row)),
        Ask::Complete(row) => Ask::Complete(of(row)),
        Ask::EmptyCache => Ask::EmptyCache,
    }
}

/// Finds anew where each row is asked for and freed.
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
