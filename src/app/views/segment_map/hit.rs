//! Maps points to things and things to rectangles of the picture.

use egui::{Pos2, Rect};

use super::layout::Row;
use super::paint::Areas;
use super::places::Places;
use super::runs::RowScale;
use super::{Picture, tip};
use crate::app::state::Item;
use crate::app::views::ViewContext;
use crate::app::widgets::{Cut, Tip};
use vramscope_core::model::BlockState;
use vramscope_core::tables::{LifetimeId, State};

/// A thing under the pointer.
pub struct Hit {
    pub item: Item,
    pub tip: Tip,
    pub rect: Option<Rect>,
}

pub fn address_of(cx: &ViewContext<'_>, item: Item) -> Option<u64> {
    match item {
        Item::Lifetime(id) => cx.data.tables.lifetimes.get(cx.data.device(), id).map(|l| l.address),
        Item::Segment(address) | Item::Hole(address) | Item::Unmapped(address) => Some(address),
        Item::Event(event) => {
            let id = cx.data.tables.lifetimes.of_event(event);
            cx.data.tables.lifetimes.get(cx.data.device(), id).map(|l| l.address)
        }
        Item::Stack(_) | Item::Annotation(_) => None,
    }
}

#[derive(Clone, Copy)]
pub struct Scene<'a> {
    pub cx: &'a ViewContext<'a>,
    pub picture: &'a Picture,
    pub places: &'a Places,
    pub areas: &'a Areas,
    pub scroll: f32,
}

impl Scene<'_> {
    /// The rectangles of an item in the picture, one per row that it touches.
    pub fn rects_of(&self, item: Item) -> Vec<(usize, Rect)> {
        let Scene { cx, picture, .. } = *self;
        let state = &picture.state;
        let address = address_of(cx, item);
        let block = || address.and_then(|a| state.block_at(a)).map(|i| state.blocks[i]);
        let of_block = |id: LifetimeId| block().filter(|b| b.lifetime == id).map(|b| (b.address, b.size));
        let extent = match item {
            Item::Lifetime(id) => of_block(id),
            Item::Event(event) => of_block(cx.data.tables.lifetimes.of_event(event)),
            Item::Hole(_) => block().filter(|b| b.state == BlockState::Inactive).map(|b| (b.address, b.size)),
            Item::Unmapped(address) => state.unmapped_at(cx.data.device(), address),
            Item::Segment(address) => {
                state.segment_at(address).map(|i| &state.segments[i]).map(|segment| (segment.address, segment.size))
            }
            Item::Stack(_) | Item::Annotation(_) => None,
        };
        let Some((from, size)) = extent else { return Vec::new() };
        let rows = self.rows_with(from, from + size);
        rows.filter_map(|(row, from, to)| Some((row, self.part_rect(row, from, to)?))).collect()
    }

    /// The rows that show a part of an address range, each with that part as offsets in its unit.
    fn rows_with(&self, from: u64, to: u64) -> impl Iterator<Item = (usize, u64, u64)> {
        let picture = self.picture;
        picture.plan.rows.iter().enumerate().filter_map(move |(i, row)| {
            picture.plan.units_of(row).find_map(|unit| {
                let a = from.max(unit.address + row.from);
                let b = to.min(unit.address + row.to);
                (a < b).then(|| (i, a - unit.address, b - unit.address))
            })
        })
    }

    /// The rectangle of a part of a row; `None` outside the visible area.
    fn part_rect(&self, row: usize, from: u64, to: u64) -> Option<Rect> {
        let Scene { picture, places, areas, scroll, .. } = *self;
        let strip = areas.row(places, row, scroll);
        let scale = RowScale::new(&picture.plan, picture.plan.rows.get(row)?, picture.span, picture.window);
        let points = f64::from(areas.rows.width()) / f64::from(picture.window.pixels.max(1));
        let (a, b) = (scale.pixel(from), scale.pixel(to));
        if (b <= 0.0 || a >= f64::from(picture.window.pixels)) || !strip.intersects(areas.rows) {
            return None;
        }
        let left = strip.left() + (a.round() * points) as f32;
        let right = strip.left() + (b.round().max(a.round() + 1.0) * points) as f32;
        Some(strip.across(left, right))
    }

    /// What is at a point: the block or hole in a row, or the segment in the gutter or at the bars.
    pub fn hit(&self, at: Pos2) -> Option<Hit> {
        let Scene { cx, picture, places, areas, scroll } = *self;
        if !areas.rows.y_range().contains(at.y) {
            return None;
        }
        let line = picture.plan.line(places.at(at.y - areas.rows.top() + scroll)?);
        let pixel = f64::from(at.x - areas.rows.left()) * f64::from(picture.window.pixels) / f64::from(areas.rows.width());
        let rows = || line.clone().filter_map(|i| Some((i, picture.plan.rows.get(i)?)));
        let begins = |row: &Row| RowScale::new(&picture.plan, row, picture.span, picture.window).offset(pixel).is_some();
        // In the gutter it is the first row of the line, at the bars the one with the largest hole.
        let (index, row) = match at.x {
            x if x > areas.rows.right() => rows().rev().max_by_key(|(_, row)| row.largest_hole)?,
            x if x < areas.rows.left() => rows().next()?,
            _ => rows().rfind(|(_, row)| begins(row))?,
        };
        let unit = picture.plan.unit(row)?;
        let state = &picture.state;
        if !areas.rows.x_range().contains(at.x) {
            let Some(at) = beside(state, row, at.x > areas.rows.right()) else {
                // Nothing is mapped in this row.
                return self.unmapped(unit.address + row.from);
            };
            let tip = tip::segment(cx, picture, row, at);
            return Some(Hit { item: Item::Segment(state.segments[at].address), tip, rect: None });
        }
        let scale = RowScale::new(&picture.plan, row, picture.span, picture.window);
        let offset = scale.offset(pixel)?.min(row.to.checked_sub(1)?).max(row.from);
        if scale.offset(pixel - 1.0).unwrap_or(0) >= row.to {
            return None;
        }
        // A block thinner than a pixel can still be hit: the first one in this pixel.
        let address = unit.address + offset;
        let Some(at) = state.block_at(address) else {
            return self.unmapped(address);
        };
        let block = state.blocks[nearest_live(state, at, scale.per_pixel(), address)];
        let item = if block.lifetime.is_some() { Item::Lifetime(block.lifetime) } else { Item::Hole(block.address) };
        let from = block.address.max(unit.address + row.from) - unit.address;
        let to = (block.address + block.size).min(unit.address + row.to).saturating_sub(unit.address);
        let rect = self.part_rect(index, from, to);
        Some(Hit { item, tip: tip::block(cx, picture, row, &block), rect })
    }

    /// The unmapped part of an expandable segment around an address.
    fn unmapped(&self, address: u64) -> Option<Hit> {
        let Scene { cx, picture, .. } = *self;
        let (from, size) = picture.state.unmapped_at(cx.data.device(), address)?;
        let item = Item::Unmapped(from);
        let row = picture.plan.row_of(address);
        let rect = self.rects_of(item).into_iter().find(|(at, _)| Some(*at) == row);
        Some(Hit { item, tip: tip::unmapped(from, size), rect: rect.map(|(_, rect)| rect) })
    }
}

/// Index of the segment that a point beside a row refers to: at the bar the segment with the row's largest hole, in the gutter
/// the first segment that begins in the row or continues in it.
fn beside(state: &State, row: &Row, is_bar: bool) -> Option<usize> {
    let holds_hole = || state.segment_at(row.largest_at).filter(|_| row.largest_hole > 0);
    let named = (!row.named.is_empty()).then_some(row.named.start as usize).filter(|&i| i < state.segments.len());
    if is_bar { holds_hole().or(named) } else { named }
}

/// When the pixel shows a live block thinner than itself, returns that block instead of the hole beside it.
fn nearest_live(state: &State, at: usize, per_pixel: f64, address: u64) -> usize {
    let is_near = |i: usize| {
        let b = &state.blocks[i];
        let distance = if b.address > address { b.address - address } else { address.saturating_sub(b.address + b.size) };
        b.lifetime.is_some() && (b.size as f64) < per_pixel && (distance as f64) < per_pixel
    };
    if state.blocks[at].lifetime.is_some() {
        return at;
    }
    [at.checked_sub(1), Some(at + 1)]
        .into_iter()
        .flatten()
        .filter(|&i| i < state.blocks.len())
        .find(|&i| is_near(i))
        .unwrap_or(at)
}
