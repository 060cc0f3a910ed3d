//! Fragmentation: addresses over time, shaded by what they hold, with the largest hole above against the request that failed.

use std::sync::Arc;

use egui::{CursorIcon, Pos2, Rect, Response, Role, Sense, Ui, WidgetInfo, pos2};

use self::layout::Areas;
use self::picture::{Key, Map, Mode, Picture, event_of};
use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::NO_EVENT;
use crate::app::action::Action;
use crate::app::command::Command;
use crate::app::cursor::{self, Axis};
use crate::app::jobs::Derived;
use crate::app::selection::Item;
use crate::app::widgets::button;
use crate::app::widgets::pane;
use crate::app::widgets::texture::{LARGEST_SIDE, PixelTexture};
use crate::app::widgets::tooltip::Tip;
use crate::app::widgets::viewport::{Gesture, Intent, PanZoom, Scale};
use crate::units::{Address, Bytes, Micros, count};

mod layout;
mod paint;
mod picture;

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Heatmap,
    title: "Fragmentation",
    name: "heatmap",
    about: "Reserved memory by address over time: what was in use, what was free, and where the largest hole was.",
    legend: &[
        ("top", "the largest hole over time; what is higher than the axis is cut off and marked"),
        ("red dashes", "the request that failed; holes are those of the segments that could serve it"),
        ("shade", "how full a place is; choose age, sizes of blocks or of holes above"),
        ("blank", "free, or not reserved at that time"),
        ("bright mark", "where the largest hole was, at least 2 px high"),
        ("address", "segments stand end to end, lowest address above"),
        ("a column", "the state at the instant of its peak, as in the timeline"),
        ("click", "set the cursor there and select the block or hole"),
    ],
    create: || Box::new(HeatmapView::default()),
};

#[derive(Default)]
struct HeatmapView {
    mode: Mode,
    picture: Derived<Key, Picture>,
    shown: Option<Arc<Picture>>,
    texture: PixelTexture,
    uploads: u64,
    /// Since when the pointer has been still on a place.
    hovering: Option<((u32, usize), f64)>,
    said_hover: bool,
}

/// A place in the view: its picture's column and, in the map, the share of the height.
struct Place {
    event: u32,
    column: usize,
    share: Option<f64>,
}

impl View for HeatmapView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        if cx.data.device().events.is_empty() { String::new() } else { "same time range".to_owned() }
    }

    fn header_ui(&mut self, ui: &mut Ui, _: &ViewContext<'_>) {
        let mut at = Mode::ALL.iter().position(|m| *m == self.mode).unwrap_or(0);
        if ui.available_width() > 220.0 && button::selector(ui, "shade", &mut at, &Mode::NAMES) {
            self.mode = Mode::ALL[at];
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let pane_rect = ui.max_rect();
        let device = cx.data.device();
        if device.events.is_empty() {
            pane::empty_state(
                ui,
                "This recording has no events, only the state at its end. Record the history to see fragmentation over time:",
                Some("torch.cuda.memory._record_memory_history()"),
            );
            return;
        }
        let areas = layout::areas(pane_rect, 48.0);
        let response = ui.interact(areas.canvas(), ui.scope_id().with("heatmap canvas"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, format!("Fragmentation, {}", self.mode_name())));
        let Some(picture) = self.picture(ui, cx, &areas) else {
            pane::progress_line(ui, pane_rect, None);
            return;
        };
        if picture.is_empty() {
            let sentence =
                "No segment was reserved in this part of the recording. Profiler traces never tell segments; a snapshot does:";
            pane::empty_state(ui, sentence, Some("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")"));
            return;
        }
        let painter = ui.painter_at(pane_rect);
        let canvas = paint::Canvas {
            painter: &painter,
            tokens: cx.tokens,
            data: cx.data,
            picture: &picture,
            areas,
            axis: cx.link.axis,
            x: Scale::horizontal(cx.link.from, cx.link.to, areas.x),
        };
        canvas.back();
        if picture.key.axis == cx.link.axis {
            let at = |v: f64| canvas.x.at(v);
            let rect =
                Rect::from_min_max(pos2(at(picture.key.from), areas.map.top()), pos2(at(picture.key.to), areas.map.bottom()));
            self.texture.paint(&painter.with_clip_rect(areas.map), rect);
        }
        canvas.labels();
        canvas.strip();
        canvas.overlays(cx.link);
        self.gestures(ui, cx, &canvas, &response);
    }
}

impl HeatmapView {
    fn mode_name(&self) -> &'static str {
        Mode::ALL.iter().position(|m| *m == self.mode).map_or("", |i| Mode::NAMES[i])
    }

    /// The newest picture there is; an older one is stretched meanwhile.
    fn picture(&mut self, ui: &Ui, cx: &ViewContext<'_>, areas: &Areas) -> Option<Arc<Picture>> {
        let [width, height] = PixelTexture::size_for(ui.ctx(), areas.map);
        let at_cursor = cx.data.ooms.binary_search(&cx.link.cursor).is_ok();
        let key = Key {
            axis: cx.link.axis,
            from: cx.link.from,
            to: cx.link.to,
            size: [width.clamp(1, LARGEST_SIDE), height.clamp(1, LARGEST_SIDE)],
            mode: self.mode,
            dark: cx.tokens.dark,
            oom: if at_cursor { Some(cx.link.cursor) } else { cx.data.ooms.first().copied() },
        };
        let data = Arc::clone(cx.data);
        let job = move |p: &_| Picture::compute(&data, key, p);
        let picture = self.picture.get(cx.jobs, "fragmentation", &key, job).value?;
        if self.shown.as_ref().is_none_or(|s| !Arc::ptr_eq(s, &picture)) {
            self.uploads += 1;
            self.shown = Some(Arc::clone(&picture));
            self.texture.update(ui.ctx(), "fragmentation", self.uploads, picture.key.size, || picture.pixels.clone());
        }
        Some(picture)
    }

    fn gestures(&mut self, ui: &Ui, cx: &ViewContext<'_>, canvas: &paint::Canvas<'_>, response: &Response) {
        let device = cx.data.device();
        let gesture = Gesture::read(response);
        let place = gesture.hover.and_then(|p| canvas.place(p));
        self.say_hover(cx, place.as_ref().map(|p| p.event));
        if gesture.hover.is_some() {
            ui.set_cursor_icon(if response.dragged() { CursorIcon::Grabbing } else { CursorIcon::Crosshair });
        }
        self.tooltip(ui, cx, canvas, response, gesture.hover, place.as_ref());
        let event_at = |p: Pos2| cx.link.event_at(device, canvas.x.value(p.x.clamp(canvas.areas.x.min, canvas.areas.x.max)));
        match gesture.intent {
            Some(Intent::Click(p) | Intent::CtrlClick(p)) => {
                let place = canvas.place(p);
                let event = place.as_ref().map_or_else(|| event_at(p), |p| p.event);
                cx.actions.send(Action::SetCursor(event));
                cx.actions.send(Action::Select(place.and_then(|p| item_at(cx, canvas.picture, &p))));
            }
            Some(Intent::DoubleClick(p)) => {
                let item = canvas.place(p).and_then(|p| item_at(cx, canvas.picture, &p));
                match item {
                    Some(Item::Lifetime(_)) => {
                        cx.actions.send(Action::Select(item));
                        cx.actions.run(Command::FitSelection);
                    }
                    _ => cx.actions.run(Command::ZoomFit),
                }
            }
            Some(Intent::Select { from, to, done }) => {
                let (a, b) = (event_at(from), event_at(to));
                if !done {
                    canvas.choosing(from.x, to.x);
                } else if (from.x - to.x).abs() >= 3.0 {
                    cx.actions.send(Action::SetRange(Some((a.min(b), a.max(b)))));
                }
            }
            Some(intent @ (Intent::ZoomTime { .. } | Intent::Pan(_))) => {
                let (first, last) = cursor::domain(device, cx.link.axis);
                let least = if cx.link.axis == Axis::Event { 8.0 } else { 20.0 };
                let mut time = PanZoom::new(first, last).with_least(least);
                time.show(cx.link.from, cx.link.to);
                if time.apply(&intent, &canvas.x, false) {
                    let (from, to) = time.visible();
                    cx.actions.send(Action::SetWindow(from, to));
                }
            }
            _ => {}
        }
    }

    /// Tells the other views which instant is under the pointer, once for each change.
    fn say_hover(&mut self, cx: &ViewContext<'_>, event: Option<u32>) {
        if event.is_none() && !self.said_hover {
            return;
        }
        if cx.link.hover_event != event {
            cx.actions.send(Action::HoverEvent(event));
        }
        self.said_hover = event.is_some();
    }

    fn tooltip(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        canvas: &paint::Canvas<'_>,
        response: &Response,
        at: Option<Pos2>,
        place: Option<&Place>,
    ) {
        const DELAY: f64 = 0.12;
        let (Some(at), Some(place)) = (at.filter(|_| !response.dragged()), place) else {
            self.hovering = None;
            return;
        };
        let row = place.share.map_or(0, |s| (s * 1e4) as usize);
        let now = ui.input(|i| i.time);
        let since = match self.hovering {
            Some((was, since)) if was == (place.event, row) => since,
            _ => now,
        };
        self.hovering = Some(((place.event, row), since));
        if now - since < DELAY {
            ui.request_repaint_after(std::time::Duration::from_millis(130));
        } else {
            tip(cx, canvas.picture, place).show_at(response, response.id.with("tip"), at);
        }
    }
}

/// What a tooltip says of a place.
fn tip(cx: &ViewContext<'_>, picture: &Picture, place: &Place) -> Tip {
    let events = &cx.data.device().events;
    let whole = match (&picture.map, place.share) {
        (Map::Addresses(map), Some(share)) => {
            let row = ((share * map.rows as f64) as usize).min(map.rows.saturating_sub(1));
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
                tip = tip.row("from", Address(from).to_string()).row("to", Address(to).to_string());
            }
            tip
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
                .row("free in them", Bytes(bytes).to_string())
        }
        _ => Tip::new(format!("Event {}", count(u64::from(place.event)))).width(280.0),
    };
    let Some(column) = picture.strip.get(place.column) else { return whole };
    let mut tip = whole.row("largest hole then", Bytes(column.largest_hole).to_string());
    tip = tip.row("free then", format!("{} in {} holes", Bytes(column.free), count(u64::from(column.holes))));
    if let Some(request) = picture.request {
        tip = tip.red_row("failed request", Bytes(request).to_string());
    }
    let event = count(u64::from(place.event));
    match (events.time_range(), events.time_us.get(place.event as usize)) {
        (Some((first, _)), Some(&t)) => tip.row("event", event).row("time", Micros(t - first).to_string()),
        _ => tip.row("event", event),
    }
}

/// The block or hole at a place: the state of its instant is looked up, so only for clicks.
fn item_at(cx: &ViewContext<'_>, picture: &Picture, place: &Place) -> Option<Item> {
    let (Map::Addresses(map), Some(share)) = (&picture.map, place.share) else { return None };
    let offset = ((share * map.total as f64) as u64).min(map.total.saturating_sub(1));
    let extent = map.extents.get(map.extents.partition_point(|e| e.offset <= offset).checked_sub(1)?)?;
    let address = extent.address + (offset - extent.offset);
    let event = picture.strip.get(place.column).map_or(NO_EVENT, event_of);
    let state = cx.data.tables.states.at(cx.data.device(), &cx.data.tables.lifetimes, event);
    let block = &state.blocks[state.block_at(address)?];
    Some(if block.lifetime.is_some() { Item::Lifetime(block.lifetime) } else { Item::Hole(block.address) })
}
