//! Passes with another batch size than training's, such as an evaluation. A larger training batch does not change them.
//!
//! The same layers make the same requests in both, so only the program's own line that calls the model differs. A line has its own
//! batch if it runs in few steps, and if most of its bytes are one exact multiple of what training requests at the same places.

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

use super::program::{Program, Row, is_installed};
use super::told::gcd;
use crate::anatomy::Role;
use crate::model::{FrameId, StackId};

/// A line trains if at least 1/n of its bytes is activations.
const TRAINS: u64 = 10;
/// Smaller requests are tables and counters.
const SMALL: u64 = 4096;

/// The rows of such passes, and the ratio of their batch to that of training.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Rows with a size of their own.
    pub(super) rows: FxHashSet<u32>,
    /// The lines that call the model, each with the ratio of its batch to that of training.
    pub(super) lines: Vec<(FrameId, [u64; 2])>,
}

/// Requests below one line of the program, by their place inside the call.
#[derive(Default)]
struct Calls {
    rows: Vec<u32>,
    bytes: u64,
    activations: u64,
    /// The recorded steps in which it runs.
    steps: FxHashSet<usize>,
    /// The size of the first request at each place.
    of_place: FxHashMap<u64, u64>,
}

/// Finds the passes of a training program whose batch differs from that of training.
pub(super) fn find(program: &Program) -> Elsewhere {
    let stacks = &program.recording.stacks;
    let mut split: FxHashMap<StackId, Option<(FrameId, u64)>> = FxHashMap::default();
    let mut of_stack = |stack: StackId| {
        *split.entry(stack).or_insert_with(|| {
            let frames = stacks.frames(stack);
            let is_own = |f: &FrameId| stacks.frame(*f).is_some_and(|frame| !is_installed(stacks.text(frame.file)));
            // From the outside in: first the program's own lines, then the call of the model.
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
    // A line that runs in every step is a part of training, such as a teacher.
    let is_rare = |calls: &Calls| calls.steps.len() * 2 <= training.steps.len();
    for (&line, calls) in lines.iter().filter(|(_, calls)| !trains(calls) && is_rare(calls)) {
        let Some([a, b]) = ratio(calls, training) else { continue };
        found.lines.push((line, [a, b]));
        found.rows.extend(&calls.rows);
        // Inputs of such a pass have the same ratio.
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

/// The ratio of a line's requests to those of training at the same places: a single ratio for most of the bytes, other than one.
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
