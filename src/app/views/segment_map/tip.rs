//! Tooltips of the segment map.

use super::Picture;
use super::layout::Row;
use crate::app::views::ViewContext;
use crate::app::views::block_name::{place_name, role_words};
use crate::app::widgets::Tip;
use vramscope_core::model::BlockState;
use vramscope_core::tables::BlockAt;
use vramscope_core::units::{Address, Bytes, count, counted};

pub fn block(cx: &ViewContext<'_>, picture: &Picture, row: &Row, block: &BlockAt) -> Tip {
    let mut tip = if block.lifetime.is_some() {
        let place = place_name(cx.data, cx.roles.map(AsRef::as_ref), block.lifetime);
        Tip::new(Bytes(block.size).to_string())
            .place(place)
            .swatch(cx.colours.of(cx.data, block.lifetime, picture.state.event, cx.tokens))
            .row_if("role", role_words(cx.data, cx.roles.map(AsRef::as_ref), block.lifetime))
            .row("address", Address(block.address))
            .row("requested", Bytes(block.requested))
    } else {
        Tip::new(format!("Hole of {}", Bytes(block.size))).row("address", Address(block.address))
    };
    if block.lifetime.is_some() && block.size > block.requested && block.requested > 0 {
        tip = tip.row("rounding", Bytes(block.size - block.requested));
    }
    if let Some(index) = picture.state.segment_at(block.address) {
        let segment = &picture.state.segments[index];
        tip = tip.row("segment", format!("{} of {}", count(index as u64 + 1), count(picture.state.segments.len() as u64)));
        tip = tip.row("offset", Bytes(block.address - segment.address));
    }
    if block.state == BlockState::PendingFree {
        tip = tip.note("Freed, but another stream may still use it: its memory is not reusable yet.");
    } else if row.units.len() > 1 {
        tip = tip.note(folded(row));
    }
    tip
}

pub fn unmapped(from: u64, size: u64) -> Tip {
    Tip::new(format!("Not mapped, {}", Bytes(size)))
        .row("address", Address(from))
        .note("Address space of an expandable segment with no memory behind it: it costs nothing, and the segment can grow here.")
}

/// Tooltip of a segment, given by index, in a row.
pub fn segment(cx: &ViewContext<'_>, picture: &Picture, row: &Row, at: usize) -> Tip {
    let state = &picture.state;
    let segment = &state.segments[at];
    let blocks = state.blocks_of(segment);
    let holes = blocks.iter().filter(|b| b.state == BlockState::Inactive);
    let (free, largest) = holes.clone().fold((0, 0), |(sum, max), b| (sum + b.size, b.size.max(max)));
    let holes = holes.count();
    let title = if segment.is_expandable { "Expandable segment" } else { "Segment" };
    let mut tip = Tip::new(format!("{title} of {}", Bytes(segment.size)))
        .row("address", Address(segment.address))
        .row("segment", format!("{} of {}", count(at as u64 + 1), count(state.segments.len() as u64)))
        .row("blocks", count((blocks.len() - holes) as u64))
        .row("free", format!("{} in {}", Bytes(free), counted(holes as u64, "hole", "holes")))
        .row("largest hole", Bytes(largest));
    // The bar shows the largest hole of the row, the other figures are about the segment.
    if picture.plan.is_wrapped && row.largest_hole != largest {
        tip = tip.row("largest in this row", Bytes(row.largest_hole));
    }
    if let Some(request) = super::oom_at(cx, picture.state.event) {
        tip = tip.red_row("the request", Bytes(request));
    }
    if row.units.len() > 1 {
        tip = tip.note(folded(row));
    } else if row.is_start && row.named.len() > 1 {
        let (first, last) = (count(u64::from(row.named.start) + 1), count(u64::from(row.named.end)));
        tip = tip.note(format!("{} mapped parts of it are in this row: segments {first} to {last}.", row.named.len()));
    }
    tip
}

fn folded(row: &Row) -> String {
    format!(
        "{} of this size are folded into this row; it shows what most of them have, and keeps the largest hole.",
        counted(row.units.len() as u64, "segment", "segments")
    )
}
