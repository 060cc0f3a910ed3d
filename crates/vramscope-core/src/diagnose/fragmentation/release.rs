//! Memory that can return to the device (whole segments, and pages of expandable segments), and the cheapest choice of it.
//!
//! A page returns when no live block touches it. A block may span many pages and hold all of them, and a page may be held by
//! several blocks. Pages held by the same block, or covered by the same hole, form one piece, so that a segment of a hundred
//! terabytes is only a handful of pieces. Pieces are in address order. The cost of a piece depends only on the piece before it,
//! so the choice is a knapsack over a chain.

use std::ops::{Range, RangeInclusive};

use super::room_plan::{RoomKind, RoomPlan, pending_of};
use super::servers::can_go;

use crate::model::{BlockState, DeviceRecording};
use crate::tables::State;

/// Bytes and number of live blocks to free; fewer bytes are better, then fewer blocks.
type Cost = (u64, u32);

const NEVER: Cost = (u64::MAX, 0);

fn plus(a: Cost, b: Cost) -> Cost {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

/// A unit that returns as a whole: a segment, or pages of an expandable segment.
pub(super) struct Piece {
    /// Index into [`State::segments`].
    segment: usize,
    /// The blocks that touch it, as a range of [`State::blocks`].
    blocks: Range<usize>,
    size: u64,
    /// Number of pages; 0 for a segment.
    pages: u64,
    /// What must be freed to release it.
    all: Cost,
    /// What must be freed in addition, if the piece before it is released too.
    new: Cost,
}

impl Piece {
    /// Its live blocks, as indices into [`State::blocks`].
    fn live<'a>(&self, state: &'a State) -> impl Iterator<Item = usize> + use<'a> {
        self.blocks.clone().filter(|&i| state.blocks[i].state != BlockState::Inactive)
    }

    fn live_count(&self) -> u32 {
        self.all.1
    }
}

/// Everything that can be released, in address order within each segment. O(blocks).
fn pieces(device: &DeviceRecording, state: &State) -> Vec<Piece> {
    let mut found = Vec::new();
    for (at, segment) in state.segments.iter().enumerate().filter(|(_, s)| can_go(device, s)) {
        let all = segment.blocks.start as usize..segment.blocks.end as usize;
        let cost = |blocks: Range<usize>, from: u64| {
            let live = state.blocks[blocks].iter().filter(|b| b.state != BlockState::Inactive && b.address >= from);
            live.fold((0, 0), |sum, b| plus(sum, (b.size, 1)))
        };
        if !segment.is_expandable {
            let cost = cost(all.clone(), 0);
            found.push(Piece { segment: at, blocks: all, size: segment.size, pages: 0, all: cost, new: cost });
            continue;
        }
        let page = device.settings.conf.page_size(segment.class);
        let mut first = all.start;
        // Mapped memory consists of whole pages. Leaves out a last page that is not whole: a truncated trace may know only a part.
        let mut n = 0;
        while n < segment.size / page {
            let (from, to) = (segment.address + n * page, segment.address + (n + 1) * page);
            while first < all.end && state.blocks[first].address + state.blocks[first].size <= from {
                first += 1;
            }
            let end = first + state.blocks[first..all.end].iter().take_while(|b| b.address < to).count();
            let blocks = first..end;
            let whole = cost(blocks.clone(), 0);
            let new = if n == 0 { whole } else { cost(blocks.clone(), from) };
            let only = state.blocks[blocks.clone()].first().filter(|_| blocks.len() == 1);
            // The pages up to the end of the only block that covers this one.
            let last = only.map_or(0, |b| (b.address + b.size).min(segment.address + segment.size) - segment.address) / page;
            let pages = last.saturating_sub(n).max(1);
            found.push(Piece { segment: at, blocks, size: pages * page, pages, all: whole, new });
            n += pages;
        }
    }
    found
}

/// Memory that a single live block keeps from returning to the device.
pub(super) struct HeldAlone {
    /// Bytes of segments and pages that would return without it, by index in [`State::blocks`].
    pub(super) by_block: Vec<u64>,
    /// Bytes that no block holds. At a failure they have already returned.
    pub(super) spare: u64,
}

/// Assigns segments and pages to the single live block that holds them. O(blocks).
pub(super) fn held_alone(device: &DeviceRecording, state: &State) -> HeldAlone {
    let mut held = HeldAlone { by_block: vec![0; state.blocks.len()], spare: 0 };
    for piece in pieces(device, state) {
        match (piece.live_count(), piece.live(state).next()) {
            (0, _) => held.spare += piece.size,
            (1, Some(block)) => held.by_block[block] += piece.size,
            _ => {}
        }
    }
    held
}

/// Most cells of the table for the exact choice. Beyond it, the choice is made by price.
const TABLE: usize = 40_000_000;

/// The cheapest segments and pages to release so that `need` bytes return to the device: a knapsack in address order, exact in
/// steps of the common divisor of all sizes. `None` if nothing has to return, or if releasing everything is not enough. O(pieces
/// · need / step) up to a bound; beyond it O(pieces) and not exact.
pub fn cheapest_release(device: &DeviceRecording, state: &State, need: u64) -> Option<RoomPlan> {
    release_most(device, state, need, need)
}

/// Like [`cheapest_release`]; among equally cheap choices, takes the one that returns most, up to `most` bytes.
pub(super) fn release_most(device: &DeviceRecording, state: &State, need: u64, most: u64) -> Option<RoomPlan> {
    let pieces = pieces(device, state);
    if need == 0 || pieces.iter().map(|p| p.size).sum::<u64>() < need {
        return None;
    }
    let step = pieces.iter().map(|p| p.size).fold(0, greatest_common_divisor).max(1);
    let steps = usize::try_from(need.div_ceil(step)).unwrap_or(usize::MAX);
    let most = usize::try_from(most.div_ceil(step)).unwrap_or(usize::MAX).max(steps);
    let fits = |steps: usize| steps.saturating_add(1).saturating_mul(pieces.len()) <= TABLE;
    let is_exact = fits(steps);
    let chosen = if is_exact {
        choose_exactly(&pieces, steps..=if fits(most) { most } else { steps }, step)
    } else {
        choose_by_price(&pieces, need)
    };
    Some(plan_of(state, &pieces, &chosen, is_exact))
}

/// The choice by price, even if there are few choices.
#[cfg(test)]
pub(super) fn by_price(device: &DeviceRecording, state: &State, need: u64) -> RoomPlan {
    let pieces = pieces(device, state);
    plan_of(state, &pieces, &choose_by_price(&pieces, need), false)
}

/// The plan that releases the chosen pieces. Freeing a block may empty further pages, which then return too.
fn plan_of(state: &State, pieces: &[Piece], chosen: &[bool], is_optimal: bool) -> RoomPlan {
    let mut blocks: Vec<usize> = Vec::new();
    for (piece, _) in pieces.iter().zip(chosen).filter(|(_, chosen)| **chosen) {
        let known = blocks.last().copied();
        blocks.extend(piece.live(state).filter(|&i| known.is_none_or(|known| i > known)));
    }
    let goes = |p: &Piece| p.live_count() > 0 && p.live(state).all(|i| blocks.binary_search(&i).is_ok());
    let (mut segments, mut room, mut pages, mut whole) = (Vec::new(), 0, 0, 0);
    for (piece, _) in pieces.iter().zip(chosen).filter(|(p, chosen)| **chosen || goes(p)) {
        room += piece.size;
        pages += piece.pages as usize;
        whole += usize::from(piece.pages == 0);
        if segments.last() != Some(&piece.segment) {
            segments.push(piece.segment);
        }
    }
    let bytes = blocks.iter().map(|&i| state.blocks[i].size).sum();
    let has_pages = pieces.iter().any(|p| p.pages > 0);
    RoomPlan {
        kind: RoomKind::Release,
        segments,
        whole,
        pages,
        pending: pending_of(state, &blocks),
        blocks,
        bytes,
        room,
        is_optimal,
        has_pages,
        least_cap: None,
        with_more: None,
    }
}

/// The cheapest pieces that give at least the first number of `wanted` steps, and as many more steps as the same cost gives.
/// Returns one flag per piece.
fn choose_exactly(pieces: &[Piece], wanted: RangeInclusive<usize>, step: u64) -> Vec<bool> {
    // kept[j], gone[j]: the lowest cost to free at least j steps if the last piece stays, or is released. Bits of a cell of
    // `from`: 1 if the piece before it was released in the case where this one stays, 2 in the case where this one is released.
    let (steps, width) = (*wanted.start(), wanted.end() + 1);
    let (mut kept, mut gone) = (vec![NEVER; width], vec![NEVER; width]);
    kept[0] = (0, 0);
    let mut from = vec![0u8; pieces.len() * width];
    let gain = |p: &Piece| usize::try_from(p.size / step).unwrap_or(width);
    for (piece, from) in pieces.iter().zip(from.chunks_exact_mut(width)) {
        let gain = gain(piece);
        // Go from the most steps down, so that cells are read before they are overwritten.
        for j in (0..width).rev() {
            let before = j.saturating_sub(gain);
            let (alone, joined) = (plus(kept[before], piece.all), plus(gone[before], piece.new));
            let stays = kept[j].min(gone[j]);
            from[j] = u8::from(gone[j] < kept[j]) | (u8::from(joined < alone) << 1);
            (kept[j], gone[j]) = (stays, alone.min(joined));
        }
    }
    let mut chosen = vec![false; pieces.len()];
    let cost = |j: usize| kept[j].min(gone[j]);
    let mut j = wanted.rev().find(|&j| cost(j) == cost(steps)).unwrap_or(steps);
    let mut goes = gone[j] < kept[j];
    for (k, piece) in pieces.iter().enumerate().rev() {
        let bits = from[k * width + j];
        chosen[k] = goes;
        if goes {
            j = j.saturating_sub(gain(piece));
            goes = bits & 2 != 0;
        } else {
            goes = bits & 1 != 0;
        }
    }
    chosen
}

/// Chooses the pieces that are worth a price per byte, at the lowest price that gives enough (Lagrangian relaxation). If that
/// gives too much, the most expensive pieces are dropped.
fn choose_by_price(pieces: &[Piece], need: u64) -> Vec<bool> {
    let size = |chosen: &[bool]| pieces.iter().zip(chosen).filter(|(_, c)| **c).map(|(p, _)| p.size).sum::<u64>();
    let (mut low, mut high) = (0.0, 1.0 + pieces.iter().map(|p| p.all.0 as f64).sum::<f64>());
    for _ in 0..64 {
        let price = (low + high) / 2.0;
        if size(&worth(pieces, price)) >= need { high = price } else { low = price }
    }
    let mut chosen = worth(pieces, high);
    let mut over = size(&chosen).saturating_sub(need);
    let mut order: Vec<usize> = (0..pieces.len()).filter(|&i| chosen[i]).collect();
    order.sort_by(|&a, &b| {
        let share = |i: usize| pieces[i].all.0 as f64 / pieces[i].size.max(1) as f64;
        share(b).total_cmp(&share(a))
    });
    for i in order.into_iter().filter(|&i| pieces[i].all.0 > 0) {
        if pieces[i].size <= over {
            over -= pieces[i].size;
            chosen[i] = false;
        }
    }
    chosen
}

/// The cheapest set of pieces if each byte that returns is worth `price`.
fn worth(pieces: &[Piece], price: f64) -> Vec<bool> {
    let (mut kept, mut gone) = (0.0f64, f64::INFINITY);
    let mut from = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let gain = price * piece.size as f64;
        let (alone, joined) = (kept + piece.all.0 as f64 - gain, gone + piece.new.0 as f64 - gain);
        from.push((gone < kept, joined < alone));
        (kept, gone) = (kept.min(gone), alone.min(joined));
    }
    let mut goes = gone < kept;
    let mut chosen = vec![false; pieces.len()];
    for (k, &(stays, joins)) in from.iter().enumerate().rev() {
        chosen[k] = goes;
        goes = if goes { joins } else { stays };
    }
    chosen
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
