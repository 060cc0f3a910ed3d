//! Passes that run at another batch than training does: an evaluation has a batch of its own, which a larger one of training leaves as it is.
//!
//! The same layers make the same requests in both, and only the program's own line that calls the model differs. Where a line runs in few
//! steps, and most of its bytes are one exact multiple of what training asks for at the same place, it has a batch of its own.

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

use super::program::{Program, Row, is_installed};
use super::told::gcd;
use crate::anatomy::Role;
use crate::model::{FrameId, StackId};

/// At least one part in this many of a line's bytes is activations where it trains.
const TRAINS: u64 = 10;
/// Smaller requests are tables and counters.
const SMALL: u64 = 4096;

/// The rows of such passes, and what they are, as the ratio of the batches.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Rows that have a size of their own.
    pub(super) rows: FxHashSet<u32>,
    /// The line that calls the model, and the ratio of its batch to that of training.
    pub(super) lines: Vec<(FrameId, [u64; 2])>,
}

/// What one line of the program calls: what it requests, by the place inside of the call.
#[derive(Default)]
struct Calls {
    rows: Vec<u32>,
    bytes: u64,
    activations: u64,
    /// The steps that it runs in, of those that were recorded.
    steps: FxHashSet<usize>,
    /// The size of the first request of each place.
    of_place: FxHashMap<u64, u64>,
}

/// The passes of a program that trains whose batch is not that of training.
pub(super) fn find(program: &Program) -> Elsewhere {
    let stacks = &program.recording.stacks;
    let mut split: FxHashMap<StackId, Option<(FrameId, u64)>> = FxHashMap::default();
    let mut of_stack = |stack: StackId| {
        *split.entry(stack).or_insert_with(|| {
            let frames = stacks.frames(stack);
            let is_own = |f: &FrameId| stacks.frame(*f).is_some_and(|frame| !is_installed(stacks.text(frame.file)));
            // From the outside in: the program's own lines, and then the call of the model.
            let own = frames.iter().rev().take_while(|f| is_own(f)).count();
            let (inside, line) = (&frames[..frames.len() - own], frames.get(frames.len() - own)?);
            let mut place = FxHasher::default();
            inside.hash(&mut place);
            (!inside.is_empty()).then(|| (*line, place.finish()))
        })
    };
    let mut lines: FxHashMap<FrameId, Calls> = FxHashMap::default();
    let mut outside: Vec<u32> = Vec::new();
    for (row, number) in program.rows.iter().zip(0u32..).filter(|(row, _)| is_of_pass(row)) {
        let Some((line, place)) = of_stack(row.stack) else {
            outside.push(number);
            continue;
        };
        let calls = lines.entry(line).or_default();
        calls.rows.push(number);
        calls.bytes += row.size;
        calls.activations += if row.role == Role::Activations { row.size } else { 0 };
        calls.steps.insert(program.stretches.partition_point(|rows| rows.end <= number));
        calls.of_place.entry(place).or_insert(row.size);
    }
    let trains = |calls: &Calls| calls.activations >= calls.bytes / TRAINS && calls.activations > 0;
    let Some(training) = lines.values().filter(|calls| trains(calls)).max_by_key(|calls| calls.activations) else {
        return Elsewhere::default();
    };
    let inputs: FxHashSet<u64> = program.rows.iter().filter(|row| row.role == Role::Inputs).map(|row| row.size).collect();
    let mut found = Elsewhere::default();
    // What runs in every step is a part of training, such as a teacher.
    let is_rare = |calls: &Calls| calls.steps.len() * 2 <= training.steps.len();
    for (&line, calls) in lines.iter().filter(|(_, calls)| !trains(calls) && is_rare(calls)) {
        let Some([a, b]) = ratio(calls, training) else { continue };
        found.lines.push((line, [a, b]));
        found.rows.extend(&calls.rows);
        // What it is given is as much larger.
        let is_input = |number: &&u32| {
            let bytes = program.rows[**number as usize].size;
            inputs.iter().any(|&size| u128::from(size) * u128::from(a) == u128::from(bytes) * u128::from(b))
        };
        found.rows.extend(outside.iter().filter(is_input));
    }
    found.lines.sort_by_key(|(line, _)| *line);
    found
}

fn is_of_pass(row: &Row) -> bool {
    matches!(row.role, Role::Activations | Role::Temporaries | Role::Inputs | Role::Unknown)
        && row.size > SMALL
        && row.stack.is_some()
}

/// By how much a line asks for more than training does at the same places: one ratio of most of the bytes, other than one.
fn ratio(calls: &Calls, training: &Calls) -> Option<[u64; 2]> {
    let mut by_ratio: FxHashMap<[u64; 2], u64> = FxHashMap::default();
    let mut all = 0;
    for (place, &size) in &calls.of_place {
        let Some(&other) = training.of_place.get(place) else { continue };
        let common = gcd(size, other);
        *by_ratio.entry([size / common, other / common]).or_default() += size;
        all += size;
    }
    let (&ratio, &bytes) = by_ratio.iter().max_by_key(|(ratio, bytes)| (**bytes, **ratio))?;
    (bytes > all / 2 && ratio[0] != ratio[1]).then_some(ratio)
}
