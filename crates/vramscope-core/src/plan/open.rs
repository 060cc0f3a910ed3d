//! Sentences on what recordings leave open besides likely growth: squares of the batch, other batches, and a cache from before.

use rustc_hash::FxHashSet;

use super::fit::Model;
use super::law::is_square;
use super::program::Row;
use super::told::times;
use crate::model::FrameId;
use crate::units::{Bytes, count};

/// Less than 1/n of the peak is not mentioned.
const SHARE: u64 = 100;

/// Rows that do not grow in proportion.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// Rows that may grow with the square of a quantity.
    pub(super) squares: Vec<u32>,
    /// Lines that call the model with another batch than training's, each with the ratio of the two.
    pub(super) lines: Vec<(FrameId, [u64; 2])>,
}

pub(super) fn notes(model: &Model) -> Vec<String> {
    squares(model).into_iter().chain(elsewhere(model)).chain(cached(model)).collect()
}

/// A note that some requests may grow with the square of a quantity; `None` if they are insignificant.
fn squares(model: &Model) -> Option<String> {
    let program = &model.program;
    let squares: FxHashSet<usize> = model.told.squares.iter().map(|&row| row as usize).collect();
    let sizes: Vec<u64> = program.rows.iter().map(|row| row.size).collect();
    let bytes = program.most_live(&sizes, |row| squares.contains(&row));
    if bytes < program.peaks[1] / SHARE || bytes == 0 {
        return None;
    }
    let rows = || model.told.squares.iter().filter_map(|&row| program.rows.get(row as usize));
    let largest = rows().max_by_key(|row| row.size)?.size;
    let (name, value) = program.at.iter().find(|&(_, v)| is_square(v, largest))?;
    let is_told = |row: &&Row| row.size == largest && row.stack.is_some();
    let place = rows().find(is_told).map_or(String::new(), |row| format!(" (the first at {})", program.place(row)));
    let n = count(value);
    Some(format!(
        "{} at once are blocks of the size of a matrix of {n} \u{d7} {n}{place}: they may grow with the square of {name}, to four times at \
         twice the {name}, and the range reaches that far.",
        Bytes(bytes)
    ))
}

/// A note that an evaluation has its own batch size.
fn elsewhere(model: &Model) -> Option<String> {
    let stacks = &model.program.recording.stacks;
    let &(line, [a, b]) = model.told.lines.first()?;
    let place = stacks.frame(line).map(|frame| stacks.location(frame))?;
    let name = model.names.first()?;
    Some(format!(
        "{place} calls the model with {} times the {name} of training. That is taken to stay as it is; the range reaches to where it \
         grows with the {name}.",
        times(a, b)
    ))
}

/// A note that the recording begins with cached memory; `None` if it is insignificant.
fn cached(model: &Model) -> Option<String> {
    let bytes = model.program.cached_before;
    (bytes > 0 && bytes >= model.program.peaks[0] / SHARE).then(|| {
        format!(
            "The recording begins with {} that PyTorch had cached before. At another size it would be another amount, and the range \
             allows for that; recorded from the start of the program there is none.",
            Bytes(bytes)
        )
    })
}
