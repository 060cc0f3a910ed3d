//! Memory that was in use before the recording began and was freed without an event.
//!
//! PyTorch 2.0 records the free of a block only if it recorded its allocation, and later releases record no frees while recording
//! is off. Such a block leaves signs: an allocation after it does not begin at the start of the free space, or a request takes a
//! new segment although an old one seemed to have room. This module adds the block to the state before the trace, and frees it at
//! the last moment that fits the recording.

use std::collections::BTreeMap;

use super::agree::{Difference, Happening};
use super::requests::{Requests, Untraced};
use crate::allocator::{StartBlock, StartSegment};
use crate::model::conf::SMALL_MAX;
use crate::model::{Action, BlockState, EventId, SizeClass};

impl Untraced {
    fn overlaps(&self, address: u64, size: u64) -> bool {
        self.address < address.saturating_add(size) && address < self.address + self.size
    }
}

/// Changes the start state of `requests` so that `difference` disappears, if a block that no event names can explain it. `false`
/// if not. One pass over the events before the difference.
pub(crate) fn explain(requests: &mut Requests<'_>, difference: &Difference) -> bool {
    match difference.recorded {
        None if difference.modelled.is_none() => let_go_at_end(requests),
        None => false,
        Some(recorded) => let_go(requests, recorded, difference.event) || hold(requests, difference, recorded),
    }
}

/// Frees those parts of the blocks that the recorded event needs.
fn let_go(requests: &mut Requests<'_>, recorded: Happening, event: EventId) -> bool {
    let size = match recorded.action {
        Action::Alloc => requests.device.settings.conf.round_size(recorded.size),
        Action::SegmentFree | Action::SegmentUnmap => recorded.size,
        _ => return false,
    };
    let end = recorded.address.saturating_add(size);
    let mut is_any = false;
    let mut at = 0;
    while at < requests.untraced_blocks.len() {
        let block = requests.untraced_blocks[at];
        at += 1;
        if block.gone.is_some() || !block.overlaps(recorded.address, size) {
            continue;
        }
        // The memory before and after this range may have belonged to other blocks, which stay.
        let from = block.address.max(recorded.address);
        let to = (block.address + block.size).min(end);
        is_any = true;
        cut(requests, at - 1, from);
        let middle = if from > block.address { requests.untraced_blocks.len() - 1 } else { at - 1 };
        cut(requests, middle, to);
        requests.untraced_blocks[middle].gone = Some(event);
        let slot = requests.untraced_blocks[middle].slot;
        requests.untraced.entry(event).or_default().push(slot);
    }
    is_any
}

/// Splits a block into two at an address inside it; the second part becomes the last of the list.
fn cut(requests: &mut Requests<'_>, at: usize, address: u64) {
    let block = requests.untraced_blocks[at];
    let end = block.address + block.size;
    if address <= block.address || address >= end {
        return;
    }
    let slot = requests.slots;
    let Some(segment) = segment_of(&mut requests.start, block.address) else { return };
    let Some(place) = segment.blocks.iter().position(|b| b.address == block.address) else { return };
    let first = &mut segment.blocks[place];
    first.size = address - block.address;
    first.requested = first.size;
    let second = StartBlock { address, size: end - address, requested: end - address, slot, ..first.clone() };
    segment.blocks.insert(place + 1, second);
    requests.slots += 1;
    requests.untraced_blocks[at].size = address - block.address;
    requests.untraced_blocks.push(Untraced { address, size: end - address, slot, gone: None });
}

/// Frees the blocks at the end of the trace that are not in the file's final state.
fn let_go_at_end(requests: &mut Requests<'_>) -> bool {
    let device = requests.device;
    let end = device.events.len() as u32;
    let is_held = |address| device.blocks.iter().any(|b| b.address == address && b.state != BlockState::Inactive);
    let mut gone = Vec::new();
    for block in requests.untraced_blocks.iter_mut().filter(|b| b.gone.is_none() && !is_held(b.address)) {
        block.gone = Some(end);
        gone.push(block.slot);
    }
    let is_any = !gone.is_empty();
    if is_any {
        requests.untraced.entry(end).or_default().extend(gone);
    }
    is_any
}

/// Adds the block that was in the way: before the recorded allocation, or at the address that the model chose.
fn hold(requests: &mut Requests<'_>, difference: &Difference, recorded: Happening) -> bool {
    let place = match (recorded.action, difference.modelled) {
        (Action::Alloc, modelled) => gap_before(requests, recorded.address, difference.event)
            .or_else(|| hole_at(requests, modelled.filter(|m| m.action == Action::Alloc)?.address)),
        (_, Some(m)) if m.action == Action::Alloc => hole_at(requests, m.address),
        _ => None,
    };
    let Some((address, size)) = place else { return false };
    let slot = requests.slots;
    let Some(segment) = segment_of(&mut requests.start, address) else { return false };
    let Some(at) = segment.blocks.iter().position(|b| covers(b, address, size)) else { return false };
    let hole = segment.blocks[at].clone();
    let part = |address: u64, end: u64| StartBlock { address, size: end - address, ..hole.clone() };
    let block = StartBlock { requested: size, is_allocated: true, size_is_a_guess: true, slot, ..part(address, address + size) };
    let parts = [part(hole.address, address), block, part(address + size, hole.address + hole.size)];
    segment.blocks.splice(at..=at, parts.into_iter().filter(|p| p.size > 0));
    requests.slots += 1;
    requests.untraced_blocks.push(Untraced { address, size, slot, gone: None });
    true
}

fn covers(block: &StartBlock, address: u64, size: u64) -> bool {
    !block.is_in_use() && block.address <= address && address + size <= block.address + block.size
}

fn segment_of(start: &mut [StartSegment], address: u64) -> Option<&mut StartSegment> {
    start.iter_mut().find(|s| s.address <= address && address - s.address < s.size)
}

/// The free range of the start state that begins at `address`, with its size.
fn hole_at(requests: &Requests<'_>, address: u64) -> Option<(u64, u64)> {
    let blocks = requests.start.iter().flat_map(|s| &s.blocks);
    blocks.filter(|b| !b.is_in_use() && b.address == address).map(|b| (b.address, b.size)).next()
}

/// The space between this event's allocation and the block in use before it, if no block of the trace was ever there.
fn gap_before(requests: &Requests<'_>, address: u64, event: EventId) -> Option<(u64, u64)> {
    let segment = requests.start.iter().find(|s| s.address <= address && address - s.address < s.size)?;
    let hole = segment.blocks.iter().find(|b| !b.is_in_use() && b.address <= address && address < b.address + b.size)?;
    let events = &requests.device.events;
    let conf = &requests.device.settings.conf;
    let mut in_use: BTreeMap<u64, u64> = BTreeMap::new();
    let mut ever = hole.address;
    for i in 0..event as usize {
        let at = events.address[i];
        if at < hole.address || at >= address {
            continue;
        }
        match events.action[i] {
            Action::Alloc => {
                let end = at + conf.round_size(events.size[i]);
                in_use.insert(at, end);
                ever = ever.max(end);
            }
            Action::FreeCompleted => {
                in_use.remove(&at);
            }
            _ => {}
        }
    }
    let from = in_use.last_key_value().map_or(hole.address, |(_, &end)| end);
    // A rest of up to 1 MiB belongs to the large block before it.
    let is_rest = !in_use.is_empty() && segment.class == SizeClass::Large && address.saturating_sub(from) <= SMALL_MAX;
    (from < address && ever <= from && !is_rest).then(|| (from, address - from))
}
