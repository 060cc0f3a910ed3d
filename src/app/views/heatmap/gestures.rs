//! Pointer gestures and tooltips of the fragmentation view.

use std::sync::Arc;

use egui::{CursorIcon, Pos2, Response, Role, Sense, Ui, pos2, vec2};

use super::picture::{Map, Mode, Picture, event_of};
use super::{HeatmapView, MenuTarget, Place, Under, paint};
use crate::app::data::device::DeviceData;
use crate::app::state::{Action, Command, Item, ViewKind};
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::{Cut, Gesture, Intent, PanZoom, Tip, box_within, menu_entry, paint_zoom_box, told_at};
use vramscope_core::diagnose::heatmap::Heatmap;
use vramscope_core::tables::NO_EVENT;
use vramscope_core::units::{Address, Bytes, Micros, count, counted};

/// Smallest address range to zoom to, in bytes.
const LEAST_BYTES: f64 = 8192.0;

impl HeatmapView {
    /// Handles gestures. `is_on_word` is true while the pointer is on a glossary term.
    pub(super) fn gestures(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        canvas: &paint::Canvas<'_>,
        response: &Response,
        is_on_word: bool,
    ) {
        let device = cx.data.device();
        let gesture = Gesture::read_where(response, !cx.shared.shows_all(device) || self.addresses.is_some());
        let place = gesture.hover.filter(|_| !egui::Popup::is_any_open(ui)).and_then(|p| canvas.place(p));
        let under = self.item_under(cx, canvas.picture, place.as_ref().filter(|_| !response.dragged()));
        let item = under.map(|u| u.item);
        cx.say_hover(&mut self.said_hover, place.as_ref().map(|p| p.event), item);
        if gesture.hover.is_some() {
            let icon = match (response.dragged(), item) {
                (true, _) => CursorIcon::Grabbing,
                (false, Some(_)) => CursorIcon::PointingHand,
                (false, None) => CursorIcon::Crosshair,
            };
            ui.set_cursor_icon(icon);
        }
        self.tooltip(ui, cx, canvas, response, gesture.hover.filter(|_| !is_on_word), place.as_ref().map(|p| (p, under)));
        let event_at = |p: Pos2| cx.shared.event_at(device, canvas.x.value(p.x.clamp(canvas.areas.x.min, canvas.areas.x.max)));
        let item_at = |p: Pos2| canvas.place(p).and_then(|p| item_at(cx.data, canvas.picture, &p));
        let now = ui.input(|i| i.time);
        match gesture.intent.map(|intent| self.wheel.read(intent, now)) {
            Some(Intent::Click(p) | Intent::CtrlClick(p)) => {
                let event = canvas.place(p).map_or_else(|| event_at(p), |p| p.event);
                cx.actions.send(Action::SetCursor(event));
                cx.actions.send(Action::Select(item_at(p)));
            }
            Some(Intent::DoubleClick(p)) => match item_at(p) {
                Some(item @ Item::Lifetime(_)) => {
                    cx.actions.send(Action::Select(Some(item)));
                    cx.actions.run(Command::FitSelection);
                }
                _ => {
                    self.addresses = None;
                    cx.actions.run(Command::ZoomFit);
                }
            },
            Some(Intent::Context(p)) => {
                self.menu = canvas.place(p).and_then(|place| {
                    let address = address_of(canvas.picture, &place)?;
                    Some(MenuTarget { event: place.event, address, item: item_at(p) })
                });
            }
            Some(Intent::Select { from, to, done }) => {
                let (a, b) = (event_at(from), event_at(to));
                if !done {
                    let all = canvas.areas.canvas();
                    canvas.choosing(all, all.across(from.x.min(to.x), from.x.max(to.x)));
                } else if (from.x - to.x).abs() >= 3.0 {
                    cx.actions.send(Action::SetRange(Some((a.min(b), a.max(b)))));
                }
            }
            Some(Intent::Box { from, to, done }) => self.zoom_box(cx, canvas, (from, to), done),
            Some(intent @ (Intent::ZoomTime { .. } | Intent::ZoomBytes { .. } | Intent::Pan(_))) => {
                self.zoom_addresses(canvas, intent);
                cx.move_window(&intent, &canvas.x);
            }
            None => {}
        }
    }

    /// Handles a zoom box: time and addresses on the map, otherwise time alone.
    fn zoom_box(&mut self, cx: &ViewContext<'_>, canvas: &paint::Canvas<'_>, (from, to): (Pos2, Pos2), done: bool) {
        let map = canvas.areas.map;
        let has_addresses = matches!(canvas.picture.map, Map::Addresses(_)) && map.contains(from);
        let all = if has_addresses { map } else { canvas.areas.canvas() };
        let Some(area) = box_within(from, if has_addresses { to } else { pos2(to.x, from.y) }, all) else { return };
        if !done {
            return paint_zoom_box(&canvas.painter.with_clip_rect(canvas.areas.canvas()), cx.tokens, area);
        }
        if area.width() < all.width() {
            cx.actions.send(Action::SetWindow(canvas.x.value(area.left()), canvas.x.value(area.right())));
        }
        if has_addresses && area.height() < map.height() {
            self.show_between(canvas, area.top(), area.bottom());
        }
    }

    /// Zooms and pans the addresses. The range is stored as addresses, so that it stays valid when other segments come into the
    /// window of time.
    fn zoom_addresses(&mut self, canvas: &paint::Canvas<'_>, intent: Intent) {
        let Map::Addresses(map) = &canvas.picture.map else { return };
        let mut bytes = PanZoom::new(0.0, map.total as f64).with_least(LEAST_BYTES);
        bytes.show(canvas.y.start, canvas.y.end);
        // Low addresses are at the top, so dragging down shows lower ones.
        let intent = match intent {
            Intent::Pan(delta) if self.addresses.is_some() => Intent::Pan(vec2(delta.x, -delta.y)),
            Intent::Pan(_) => return,
            other => other,
        };
        if bytes.apply(&intent, &canvas.y, true) {
            self.show_offsets(map, &bytes);
        }
    }

    /// Zooms to the addresses between two heights on the screen.
    fn show_between(&mut self, canvas: &paint::Canvas<'_>, top: f32, bottom: f32) {
        let Map::Addresses(map) = &canvas.picture.map else { return };
        let mut bytes = PanZoom::new(0.0, map.total as f64).with_least(LEAST_BYTES);
        bytes.show(canvas.y.value(top), canvas.y.value(bottom));
        self.show_offsets(map, &bytes);
    }

    fn show_offsets(&mut self, map: &Heatmap, offsets: &PanZoom) {
        let (from, to) = offsets.visible();
        let range = map.address_at(from.max(0.0) as u64).zip(map.address_at(to.max(0.0) as u64));
        self.addresses = range.filter(|_| !offsets.is_fit());
    }

    /// Gestures on the address labels: a drag zooms to its span, a double click shows all.
    pub(super) fn address_axis(&mut self, ui: &Ui, canvas: &paint::Canvas<'_>) {
        if !matches!(canvas.picture.map, Map::Addresses(_)) {
            return;
        }
        let area = canvas.areas.map;
        let labels = area.across(canvas.painter.clip_rect().left(), area.left());
        let response = told_at(ui, labels, "heatmap addresses", Sense::click_and_drag(), Role::Slider, || "Addresses shown");
        if response.drag_started() {
            self.choosing = ui.input(|i| i.pointer.press_origin()).map(|p| p.y);
        }
        if let (Some(from), Some(to)) = (self.choosing, ui.input(|i| i.pointer.latest_pos()).map(|p| p.y)) {
            let to = to.clamp(area.top(), area.bottom());
            if response.drag_stopped() {
                self.choosing = None;
                if (from - to).abs() >= 3.0 {
                    self.show_between(canvas, from, to);
                }
            } else {
                canvas.choosing(area, area.down(from.min(to), from.max(to)));
            }
        }
        if response.double_clicked() {
            self.addresses = None;
        }
        response
            .on_hover_cursor(CursorIcon::ResizeVertical)
            .on_hover_text("Drag to zoom to these addresses; double click shows all.");
    }

    pub(super) fn menu_ui(&mut self, cx: &ViewContext<'_>, canvas: &paint::Canvas<'_>, response: &Response) {
        let Some(MenuTarget { event, address, item }) = self.menu else { return };
        egui::Popup::context_menu(response).show(|ui| {
            ui.set_width(210.0);
            let mut chosen = None;
            let mut entry = |text: &str, enabled: bool| menu_entry(ui, text, enabled);
            let start = match item {
                Some(Item::Lifetime(id)) => cx.data.tables.lifetimes.address(cx.data.device(), id),
                Some(Item::Hole(start)) => start,
                _ => address,
            };
            if entry("Copy address", true) {
                cx.actions.send(Action::Copy(Address(start).to_string()));
            }
            if entry("Show in the segment map", item.is_some()) {
                cx.actions.send(Action::SetCursor(event));
                cx.actions.send(Action::Select(item));
                cx.actions.run(Command::Show(ViewKind::SegmentMap));
            }
            if entry(&format!("Go to event {}", count(u64::from(event))), true) {
                cx.actions.send(Action::GoTo(event));
            }
            let is_block = matches!(item, Some(Item::Lifetime(_)));
            if entry("Zoom to the block's life", is_block) {
                cx.actions.send(Action::Select(item));
                cx.actions.run(Command::FitSelection);
            }
            if entry("Zoom to the segment's life", true) {
                chosen = Some(true);
            }
            if entry("Zoom to the segment's addresses", true) {
                chosen = Some(false);
            }
            if entry("Show all addresses", self.addresses.is_some()) {
                self.addresses = None;
            }
            if entry("Set A here", true) {
                cx.actions.send(Action::SetMarker(0, Some(event)));
            }
            if entry("Set B here", true) {
                cx.actions.send(Action::SetMarker(1, Some(event)));
            }
            let Some(by_time) = chosen else { return };
            match cx.data.tables.states.segment_life(cx.data.device(), address, event) {
                None => cx.actions.send(Action::Notify("No segment holds this address at this event.".to_owned())),
                Some(segment) if by_time => {
                    cx.actions.send(Action::SetCursor(event));
                    cx.actions.send(Action::Select(Some(Item::Segment(segment.address))));
                    cx.actions.run(Command::FitSelection);
                }
                Some(segment) => {
                    if let Map::Addresses(map) = &canvas.picture.map {
                        let (from, to) = map.range_of(segment.address, segment.address + segment.size);
                        self.addresses = map.address_at(from).zip(map.address_at(to));
                    }
                }
            }
        });
    }

    /// The block or hole under the pointer; it may lag by a frame or two.
    fn item_under(&mut self, cx: &ViewContext<'_>, picture: &Picture, place: Option<&Place>) -> Option<Under> {
        let place = place?;
        let key = (place.event, address_of(picture, place)?);
        let event = picture.strip.get(place.column).map_or(NO_EVENT, |c| c.event);
        let data = Arc::clone(cx.data);
        let shown = self.under.get(cx.jobs, "under the pointer", &key, move |_| Some(block_at(&data, event, key.1)));
        shown.fresh().and_then(|under| *under)
    }

    fn tooltip(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        canvas: &paint::Canvas<'_>,
        response: &Response,
        at: Option<Pos2>,
        place: Option<(&Place, Option<Under>)>,
    ) {
        let is_free = !response.dragged() && !egui::Popup::is_any_open(ui);
        let place = place.filter(|_| is_free && at.is_some());
        let row = |place: &Place| place.offset.unwrap_or_else(|| place.share.map_or(0, |s| (s * 1e4) as u64));
        let is_long = self.hovering.is_long(ui, place.map(|(place, _)| (place.event, row(place))));
        if let (Some(at), Some((place, under)), true) = (at, place, is_long) {
            // Keeps the tooltip off the legend and off neighbouring panes.
            let mut area = canvas.painter.clip_rect();
            area.max.y = canvas.areas.legend.map_or(area.bottom(), |l| l.top());
            let card = tip(cx, canvas.picture, place, under).width((area.width() - 26.0).clamp(180.0, 280.0));
            card.show_within(response, at, area);
        }
    }
}

fn tip(cx: &ViewContext<'_>, picture: &Picture, place: &Place, under: Option<Under>) -> Tip {
    let events = &cx.data.device().events;
    let in_map = match &picture.map {
        Map::Addresses(_) => place.offset.map(|o| o as f64),
        Map::Sizes(_) => place.share,
    };
    let whole = match (&picture.map, in_map) {
        (Map::Addresses(map), Some(offset)) => {
            let row = map.row_at(offset as u64);
            let value = map.cell(row, place.column);
            let title = match (picture.key.mode, value) {
                (_, None) => "not reserved".to_owned(),
                (Mode::Age, Some(0.0)) | (Mode::Block, Some(0.0)) => "empty".to_owned(),
                (Mode::Hole, Some(0.0)) => "full".to_owned(),
                (Mode::Age, Some(v)) if events.has_time => format!("oldest block {} old", Micros(v as i64)),
                (Mode::Age, Some(v)) => format!("oldest block {} events old", count(v as u64)),
                (Mode::Block, Some(v)) => format!("largest block {}", Bytes(v as u64)),
                (Mode::Hole, Some(v)) => format!("largest hole {}", Bytes(v as u64)),
                (_, Some(v)) => format!("{:.0} % in use", v * 100.0),
            };
            let mut tip = Tip::new(title).width(280.0);
            if let Some((from, to)) = map.addresses_of(row) {
                // Blocks are aligned to 512 bytes, so the addresses of a pixel's edges are rounded to that.
                let to = to.checked_next_multiple_of(512).unwrap_or(to);
                tip = tip.row("from", Address(from / 512 * 512)).row("to", Address(to));
            }
            match under {
                Some(under) => of_block(cx, tip, under),
                None => tip,
            }
        }
        (Map::Sizes(sizes), Some(share)) => {
            let classes = sizes.classes.len();
            let class = classes.saturating_sub(1).saturating_sub((share * classes as f64) as usize);
            let low = sizes.classes.get(class).copied().unwrap_or(0);
            let at = class * sizes.columns.len() + place.column;
            let (bytes, number) = (sizes.bytes.get(at).copied().unwrap_or(0), sizes.counts.get(at).copied().unwrap_or(0));
            Tip::new(format!("holes of {} to {}", Bytes(low), Bytes(low.saturating_mul(2))))
                .width(280.0)
                .row("holes", count(u64::from(number)))
                .row("free in them", Bytes(bytes))
        }
        _ => Tip::new(format!("Event {}", count(u64::from(place.event)))).width(280.0),
    };
    let Some(column) = picture.strip.get(place.column) else { return whole };
    let mut tip = whole.row("largest hole then", Bytes(column.largest_hole));
    let holes = counted(u64::from(column.holes), "hole", "holes");
    tip = tip.row("free then", format!("{} in {holes}", Bytes(column.free)));
    if let Some(request) = picture.request {
        tip = tip.red_row("failed request", Bytes(request));
    }
    tip.row("event", count(u64::from(place.event))).row_if("time", cx.data.since_start(place.event))
}

/// Adds the block or hole under the pointer to a tooltip.
fn of_block(cx: &ViewContext<'_>, tip: Tip, under: Under) -> Tip {
    let size = Bytes(under.size).to_string();
    let tip = match under.item {
        Item::Lifetime(id) => {
            let stack = cx.data.tables.lifetimes.stack(cx.data.device(), id);
            tip.row("here, a block of", size).row("of", StackCells::of(&cx.data.recording.stacks, stack).allocated_in.line())
        }
        _ => tip.row("here, free", size),
    };
    tip.row("which begins at", Address(under.address))
}

fn address_of(picture: &Picture, place: &Place) -> Option<u64> {
    let Map::Addresses(map) = &picture.map else { return None };
    map.address_at(place.offset?)
}

/// The block or hole at a place. Computes the state at its event, so it is for clicks only.
fn item_at(data: &DeviceData, picture: &Picture, place: &Place) -> Option<Item> {
    let address = address_of(picture, place)?;
    let event = picture.strip.get(place.column).map_or(NO_EVENT, event_of);
    Some(block_at(data, event, address)?.item)
}

fn block_at(data: &DeviceData, event: u32, address: u64) -> Option<Under> {
    let state = data.tables.states.at(data.device(), &data.tables.lifetimes, event);
    let block = &state.blocks[state.block_at(address)?];
    let item = if block.lifetime.is_some() { Item::Lifetime(block.lifetime) } else { Item::Hole(block.address) };
    Some(Under { item, address: block.address, size: block.size })
}
