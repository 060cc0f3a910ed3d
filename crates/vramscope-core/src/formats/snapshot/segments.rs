//! Segments and blocks: the end state of the recording.

use super::super::has_room;
use super::super::pickle::{Node, NodeId, Tree};
use super::stacks::{StackReader, unknown_key, wrong_type};
use super::trace::{amount, number, pool_key};
use crate::model::{Block, BlockState, DeviceRecording, Known, LoadReport, PoolKey, Segment, SizeClass, StackId, WarningKind};

/// A segment with its blocks, not yet assigned to a device.
#[derive(Default)]
pub(crate) struct RawSegment {
    pub(crate) device: i64,
    address: u64,
    size: Option<u64>,
    stream: u64,
    pool: PoolKey,
    class: SizeClass,
    is_expandable: bool,
    stack: StackId,
    blocks: Vec<Block>,
    /// True if some block has its requested size besides its own size.
    tells_requested: bool,
    offset: Option<u64>,
}

/// Reads one segment dict; `None` (counted) when it is not a dict or has no address.
pub(crate) fn read(tree: &Tree, id: NodeId, stacks: &mut StackReader, report: &mut LoadReport, cut: bool) -> Option<RawSegment> {
    let Node::Dict(pairs) = tree.node(id) else {
        if !cut {
            wrong_type(tree, id, "a segment", "a dict", report);
        }
        return None;
    };
    let mut segment = RawSegment { offset: tree.place(id), ..RawSegment::default() };
    let (mut address, mut blocks) = (None, None);
    for &(key, value) in pairs {
        match tree.bytes(key).unwrap_or(b"") {
            b"device" => match tree.as_i64(value) {
                Some(device) => segment.device = device,
                None => wrong_type(tree, value, "device", "an ordinal", report),
            },
            b"address" | b"addr" => address = number(tree, value, "address", report),
            b"total_size" => segment.size = amount(tree, value, "total_size", report),
            b"stream" => segment.stream = number(tree, value, "stream", report).unwrap_or(0),
            b"segment_type" => match tree.bytes(value) {
                Some(b"small") => segment.class = SizeClass::Small,
                Some(b"large") => segment.class = SizeClass::Large,
                _ => wrong_type(tree, value, "segment_type", "'small' or 'large'", report),
            },
            b"segment_pool_id" | b"pool_id" => segment.pool = pool_key(tree, value, report).unwrap_or((0, 0)),
            b"is_expandable" => segment.is_expandable = tree.as_bool(value).unwrap_or(false),
            b"frames" => segment.stack = stacks.stack(tree, value, report),
            b"blocks" => blocks = Some(value),
            // Sums over the blocks, which are read anyway.
            b"allocated_size" | b"active_size" | b"requested_size" => {}
            b"forward_frames" => count_forward_frames(tree, value, report),
            b"registration_counter" => {}
            _ => unknown_key(tree, key, "a segment", report),
        }
    }
    let Some(address) = address.filter(|&address| has_room(address, segment.size.unwrap_or(0))) else {
        if !cut {
            report.warn(WarningKind::Skipped, segment.offset, || "a segment without an address was left out".to_owned());
        }
        return None;
    };
    segment.address = address;
    if let Some(list) = blocks {
        if !matches!(tree.node(list), Node::List(_) | Node::Tuple(_)) {
            wrong_type(tree, list, "blocks", "a list", report);
        }
        let items = tree.items(list);
        segment.blocks.reserve(items.len());
        let mut next = address;
        for &item in items {
            if let Some((block, tells_requested)) = read_block(tree, item, next, stacks, report, cut) {
                segment.tells_requested |= tells_requested;
                next = block.address.saturating_add(block.size);
                segment.blocks.push(block);
            }
        }
    }
    Some(segment)
}

/// Reads one block, and whether it has a requested size. Before PyTorch 2.1 a block has no address and follows the one before it.
fn read_block(
    tree: &Tree,
    id: NodeId,
    next: u64,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
) -> Option<(Block, bool)> {
    let Node::Dict(pairs) = tree.node(id) else {
        if !cut {
            wrong_type(tree, id, "a block", "a dict", report);
        }
        return None;
    };
    let mut block = Block { address: next, size: 0, requested: 0, state: BlockState::Inactive, stack: StackId::NONE };
    let (mut size, mut requested, mut history, mut frames) = (None, None, None, None);
    for &(key, value) in pairs {
        match tree.bytes(key).unwrap_or(b"") {
            b"address" | b"addr" => block.address = number(tree, value, "address", report).unwrap_or(next),
            b"size" => size = amount(tree, value, "size", report),
            b"requested_size" => requested = amount(tree, value, "requested_size", report),
            b"state" => match tree.bytes(value) {
                Some(b"active_allocated") => block.state = BlockState::Active,
                Some(b"active_pending_free" | b"active_awaiting_free") => block.state = BlockState::PendingFree,
                Some(b"inactive") => block.state = BlockState::Inactive,
                _ => wrong_type(tree, value, "state", "a block state PyTorch writes", report),
            },
            b"frames" => frames = Some(value),
            b"history" => history = tree.items(value).first().copied(),
            b"forward_frames" => count_forward_frames(tree, value, report),
            b"user_metadata" | b"compile_context" | b"category" => {}
            _ => unknown_key(tree, key, "a block", report),
        }
    }
    let Some(size) = size else {
        if !cut {
            report.warn(WarningKind::Skipped, tree.place(id), || "a block without a size was left out".to_owned());
        }
        return None;
    };
    block.size = size;
    let past = history.and_then(|entry| tree.get(entry, "real_size")).and_then(|id| amount(tree, id, "real_size", report));
    let told = requested.or(past);
    block.requested = told.unwrap_or(size);
    if let Some(list) = frames {
        block.stack = stacks.stack(tree, list, report);
    }
    if let (false, Some(entry)) = (block.stack.is_some(), history) {
        if let Some(list) = tree.get(entry, "frames") {
            block.stack = stacks.stack(tree, list, report);
        }
        if let Some(text) = tree.get(entry, "cpp_frames").and_then(|id| tree.bytes(id)) {
            block.stack = stacks.with_cpp(block.stack, &String::from_utf8_lossy(text));
        }
    }
    Some((block, told.is_some()))
}

/// A block keeps one stack here; frames of the forward pass are kept only for events.
fn count_forward_frames(tree: &Tree, value: NodeId, report: &mut LoadReport) {
    if !tree.items(value).is_empty() {
        report.warn(WarningKind::Skipped, tree.place(value), || {
            "blocks or segments that also name the frames of their forward pass; those of events were kept, these were not"
                .to_owned()
        });
    }
}

/// Adds segments to their device, by address, and fills each one's blocks up to a cover without gaps.
pub(crate) fn place(device: &mut DeviceRecording, mut segments: Vec<RawSegment>, report: &mut LoadReport) {
    segments.sort_by_key(|segment| segment.address);
    let tells_requested = segments.iter().any(|segment| segment.tells_requested);
    for mut raw in segments {
        let covered = cover(&mut raw);
        let size = raw.blocks.iter().map(|block| block.size).fold(0, u64::saturating_add);
        if !covered {
            report.warn(WarningKind::StateMismatch, raw.offset, || {
                format!(
                    "the blocks of segment {:#x} do not cover it exactly; gaps were taken as inactive and its size as {} bytes",
                    raw.address,
                    crate::units::count(size)
                )
            });
        }
        if !has_room(raw.address, size) || !raw.blocks.iter().all(|block| has_room(block.address, block.size)) {
            report.warn(WarningKind::Skipped, raw.offset, || {
                format!(
                    "a segment of {} bytes at {:#x}, which no device has, was left out",
                    crate::units::count(size),
                    raw.address
                )
            });
            continue;
        }
        let from = device.blocks.len() as u32;
        device.blocks.append(&mut raw.blocks);
        let segment = Segment {
            address: raw.address,
            size,
            stream: device.intern_stream(raw.stream),
            pool: device.intern_pool(raw.pool),
            class: raw.class,
            is_expandable: raw.is_expandable,
            stack: raw.stack,
            blocks: from..device.blocks.len() as u32,
        };
        device.segments.push(segment);
    }
    // PyTorch 1.11 and earlier write only block sizes, and there is no trace with more.
    let holds = device.blocks.iter().any(|block| block.state != BlockState::Inactive);
    if holds && !tells_requested && device.events.is_empty() {
        device.events.sizes_are_blocks = true;
        device.can_show.requested =
            Known::No("This list of segments has whole blocks only, as PyTorch 1.11 wrote them. A newer one has both sizes.");
    }
}

/// Fills gaps between blocks with inactive ones. False when the file's blocks did not cover the segment exactly.
fn cover(raw: &mut RawSegment) -> bool {
    let mut exact = true;
    let end = raw.address.saturating_add(raw.size.unwrap_or(0));
    let mut next = raw.address;
    if !raw.blocks.is_sorted_by_key(|block| block.address) {
        exact = false;
        raw.blocks.sort_by_key(|block| block.address);
    }
    let whole =
        raw.size.is_none() || raw.blocks.iter().map(|b| u128::from(b.size)).sum::<u128>() == u128::from(raw.size.unwrap_or(0));
    let contiguous = raw.blocks.iter().all(|block| {
        let fits = block.address == next;
        next = block.address.saturating_add(block.size);
        fits
    });
    if exact && whole && contiguous {
        return true;
    }
    let hole = |address, size| Block { address, size, requested: 0, state: BlockState::Inactive, stack: StackId::NONE };
    let mut filled = Vec::with_capacity(raw.blocks.len() + 2);
    next = raw.address;
    for mut block in raw.blocks.drain(..) {
        if block.address > next {
            filled.push(hole(next, block.address - next));
        }
        // An overlap: the block keeps its size and moves up, so that no byte is counted twice or lost.
        block.address = block.address.max(next);
        next = block.address.saturating_add(block.size);
        filled.push(block);
    }
    if next < end {
        filled.push(hole(next, end - next));
    }
    raw.blocks = filled;
    false
}
