//! The segment map: every segment and block at the cursor, to scale, to see holes and the blocks that separate them.

use std::sync::Arc;

use egui::{Rect, Role, Sense, Shape, Ui, WidgetInfo, pos2};

use super::block_legend;
use super::block_legend::BlockLegend;
use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::Focus;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Command, Item, ViewKind};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Gesture, Intent, PanZoom, Scale, UnitAt, byte_ticks, empty_state, label, menu_entry, most_across, term,
};
use vramscope_core::diagnose::source_limits::allocator_name;
use vramscope_core::model::Action as EventAction;
use vramscope_core::tables::{NO_EVENT, Quantity, State};
use vramscope_core::units::{Address, Bytes, count, counted};

mod header;
mod hit;
mod layout;
mod paint;
mod places;
mod runs;
mod tip;

use hit::{Hit, Scene, address_of};
use layout::{Choice, Order, Plan, Span};
use paint::Areas;
use places::Places;
use runs::{Runs, Window};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::SegmentMap,
    legend: &[
        ("colour", "a live block; the timeline's legend names the classes"),
        ("paler end of a block", "what rounding added to the request"),
        ("pale with an outline", "freed, but still waiting for another stream"),
        ("hatched", "a hole: reserved, and free for a request that fits"),
        ("thin line", "address space of an expandable segment with no memory behind it"),
        ("wrapped rows", "a long segment goes on in the next row; its header says how many bytes a row is"),
        ("numbers at the left", "segments by address; an expandable one has a number for each mapped part"),
        (
            "bar at the right",
            "the largest hole of the row; the red line is the request that failed, with an arrow when it is beyond the scale",
        ),
        ("wheel", "scroll; Ctrl + wheel zooms addresses, drag pans"),
        ("double click", "zoom to the block; on a hole or when zoomed, all addresses, as A does"),
    ],
    create: || Box::new(SegmentMap::default()),
};

/// Row heights including the gap; `None` is automatic.
const HEIGHTS: [Option<f32>; 6] = [None, Some(3.0), Some(6.0), Some(10.0), Some(16.0), Some(28.0)];

#[derive(Clone, PartialEq)]
struct Key {
    event: u32,
    colours: Identity,
    order: Order,
    span: Option<Span>,
    fold: bool,
    window: Window,
    focus: Focus,
}

struct Picture {
    key: Key,
    state: Arc<State>,
    plan: Plan,
    runs: Runs,
    span: Span,
    window: Window,
}

#[derive(Clone, PartialEq)]
struct MeshKey {
    picture: Key,
    pane: Rect,
    scroll: f32,
    pitch: f32,
    dark: bool,
    pixels_per_point: f32,
}

#[derive(Default)]
struct SegmentMap {
    order: Order,
    /// `None` uses the default for the recording.
    span: Option<Span>,
    height: usize,
    zoom: PanZoom,
    /// [`SharedViewState::fitted`](crate::app::state::shared::SharedViewState::fitted) at the last frame.
    fitted: u32,
    scroll: f32,
    picture: Derived<Key, Picture>,
    mesh: Option<(MeshKey, Shape)>,
    legend: BlockLegend,
    search: String,
    search_failed: Option<String>,
    /// The selection that the rows were last scrolled to.
    shown_selection: Option<Item>,
    wants_scroll: bool,
    is_hovering: bool,
    /// The target of the context menu.
    menu: Option<Item>,
}

impl View for SegmentMap {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let Some(state) = cx.state.filter(|_| !cx.data.has_only_sums()) else { return String::new() };
        subtitle(cx, state)
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.header(ui, cx);
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        // Showing the whole recording also resets the zoom of addresses.
        if std::mem::replace(&mut self.fitted, cx.shared.fitted) != cx.shared.fitted {
            self.zoom.fit();
        }
        let Some(state) = cx.state else { return };
        if !cx.data.recording.addresses().is_known() {
            let why = match cx.data.has_only_sums() {
                true => "This file has sums by category and no allocations.",
                false => cx.data.recording.addresses().why_not(),
            };
            if allocator_name(&cx.data.recording) != "PyTorch" {
                return empty_state(ui, &format!("{why} So there is no map to draw."), None);
            }
            let sentence = format!("{why} So there is no map to draw. A memory snapshot has addresses:");
            return empty_state(ui, &sentence, Some(&cx.snapshot_line()));
        }
        if state.blocks.is_empty() && state.segments.is_empty() {
            nothing(ui, cx);
            return;
        }
        let mut pane = ui.available_rect_before_wrap();
        // The timeline has a legend when there are events; otherwise it is here.
        if cx.data.device().events.is_empty() && pane.height() > 4.0 * block_legend::HEIGHT {
            let strip = pane.with_min_y(pane.bottom() - block_legend::HEIGHT);
            pane.max.y = strip.top();
            ui.painter().hline(strip.x_range(), strip.top() - 0.5, egui::Stroke::new(1.0, cx.tokens.line));
            self.legend.ui(ui, cx, strip, 0.0);
        }
        let areas = Areas::new(pane);
        let response = ui.allocate_rect(pane, Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, format!("Segment map, {}", subtitle(cx, state))));
        if !areas.rows.is_positive() {
            return;
        }
        let Some(picture) = self.compute(ui, cx, state, &areas) else { return };
        let room = areas.rows.height();
        let pitch = HEIGHTS[self.height].unwrap_or_else(|| Places::automatic_pitch(&picture.plan, room));
        let places = Places::new(&picture.plan, pitch);
        self.follow_selection(cx, &picture, &places, room);
        let gesture = Gesture::read(&response);
        let scene = Scene { cx, picture: &picture, places: &places, areas: &areas, scroll: self.scroll };
        self.act(ui, &scene, &gesture);
        self.scroll = self.scroll.clamp(0.0, (places.height - room).max(0.0)).round();

        let scene = Scene { scroll: self.scroll, ..scene };
        self.draw(ui, &scene);
        self.hover(ui, &scene, &gesture, &response);
        self.context_menu(cx, &response);
    }
}

impl SegmentMap {
    fn compute(&mut self, ui: &Ui, cx: &ViewContext<'_>, state: &Arc<State>, areas: &Areas) -> Option<Arc<Picture>> {
        let (order, span, fold) = (self.order, self.span, HEIGHTS[self.height].is_none());
        let (from, to) = self.zoom.visible();
        let pixels = (areas.rows.width() * ui.pixels_per_point()).floor().clamp(1.0, f32::from(u16::MAX - 1)) as u16;
        let window = Window { from, to, pixels };
        let colours = Arc::clone(cx.colours);
        let key = Key {
            event: state.event,
            colours: Identity::of(&colours),
            order,
            span,
            fold,
            window,
            focus: Focus::of(cx.shared, cx.matching),
        };
        let (data, state) = (Arc::clone(cx.data), Arc::clone(state));
        let wanted = key.clone();
        let shown = self.picture.get(cx.jobs, "segment map", &key, move |_| {
            let key = wanted;
            let span = span.unwrap_or_else(|| layout::natural_span(data.device(), &state));
            let plan = Plan::new(data.device(), &state, Choice { order, span, fold });
            let runs = Runs::new(&plan, &state, span, window, |id| {
                let class = colours.class_of(&data, id, state.event);
                if key.focus.dims_class(class) || key.focus.dims(&data, id) { class | paint::DIM } else { class }
            });
            Some(Picture { key, state, plan, runs, span, window })
        });
        if !shown.is_fresh {
            ui.request_repaint_after(std::time::Duration::from_millis(16));
        }
        shown.value
    }

    /// Scrolls to an item that another view selected.
    fn follow_selection(&mut self, cx: &ViewContext<'_>, picture: &Picture, places: &Places, room: f32) {
        let selected = cx.shared.selected();
        if selected == self.shown_selection && !self.wants_scroll {
            return;
        }
        self.shown_selection = selected;
        self.wants_scroll = false;
        let Some(row) = selected.and_then(|item| address_of(cx, item)).and_then(|a| picture.plan.row_of(a)) else { return };
        let top = places.tops[row];
        if top < self.scroll || top + places.pitch > self.scroll + room {
            self.scroll = top - (room - places.pitch) / 2.0;
        }
    }

    fn act(&mut self, ui: &Ui, scene: &Scene<'_>, gesture: &Gesture) {
        let Scene { cx, areas, .. } = *scene;
        let Some(intent) = gesture.intent else { return };
        let (from, to) = self.zoom.visible();
        let scale = Scale::horizontal(from, to, areas.rows.x_range());
        match intent {
            Intent::Click(at) | Intent::CtrlClick(at) => {
                let hit = scene.hit(at);
                self.shown_selection = hit.as_ref().map(|h| h.item);
                cx.actions.send(Action::Select(hit.map(|h| h.item)));
            }
            Intent::DoubleClick(at) => {
                if !self.zoom.is_fit() {
                    self.zoom.fit();
                } else if let Some(Hit { rect: Some(rect), .. }) = scene.hit(at) {
                    self.zoom.show_with_margin(scale.value(rect.left()), scale.value(rect.right()), 1.0);
                }
            }
            Intent::Context(at) => {
                let hit = scene.hit(at);
                self.menu = hit.map(|h| h.item);
                if self.menu.is_some() {
                    cx.actions.send(Action::Select(self.menu));
                    self.shown_selection = self.menu;
                }
            }
            Intent::ZoomBytes { factor, at } => self.zoom.zoom(factor, scale.value(at.x)),
            Intent::ZoomTime { .. } => self.scroll -= ui.input(|i| i.smooth_scroll_delta().y),
            Intent::Pan(by) => {
                self.zoom.pan(f64::from(-by.x) * scale.per_point());
                self.scroll -= by.y;
            }
            Intent::Select { from, to, done: true } | Intent::Box { from, to, done: true } if (from.x - to.x).abs() >= 3.0 => {
                self.zoom.show(scale.value(from.x), scale.value(to.x));
            }
            Intent::Select { .. } | Intent::Box { .. } => {}
        }
    }

    fn draw(&mut self, ui: &Ui, scene: &Scene<'_>) {
        let Scene { cx, picture, places, areas, .. } = *scene;
        let tokens = cx.tokens;
        let painter = ui.painter();
        axis(ui, scene);
        for (rect, term) in paint::around(painter, scene) {
            if rect.is_positive() {
                term::explain_at(ui, rect, term);
            }
        }

        let key = MeshKey {
            picture: picture.key.clone(),
            pane: areas.rows,
            scroll: self.scroll,
            pitch: places.pitch,
            dark: tokens.dark,
            pixels_per_point: ui.pixels_per_point(),
        };
        let body = painter.with_clip_rect(areas.rows);
        if self.mesh.as_ref().is_none_or(|(k, _)| *k != key) {
            self.mesh = Some((key, paint::rows(&body, scene)));
        }
        if let Some((_, shape)) = &self.mesh {
            body.add(shape.clone());
        }
        outlines(ui, scene);
        scroll_bar(painter, tokens, areas, self.scroll, places.height);
    }

    fn hover(&mut self, ui: &Ui, scene: &Scene<'_>, gesture: &Gesture, response: &egui::Response) {
        let pointer = gesture.hover.filter(|_| !response.dragged() && response.hovered() && !egui::Popup::is_any_open(ui));
        let hit = pointer.and_then(|at| scene.hit(at).map(|h| (at, h)));
        scene.cx.hover(&mut self.is_hovering, hit.as_ref().map(|(_, hit)| hit.item));
        let Some((at, hit)) = hit else { return };
        if ui.input(|i| i.pointer.time_since_last_movement()) > 0.12 {
            hit.tip.show_at(response, at);
        } else {
            ui.request_repaint_after(std::time::Duration::from_millis(120));
        }
    }

    fn context_menu(&self, cx: &ViewContext<'_>, response: &egui::Response) {
        let Some(item) = self.menu else { return };
        response.context_menu(|ui| {
            ui.set_width(200.0);
            let mut entry = |text: &str, action: Action| {
                if menu_entry(ui, text, true) {
                    cx.actions.send(action);
                }
            };
            if let Some(address) = address_of(cx, item) {
                entry("Copy address", Action::Copy(Address(address).to_string()));
            }
            if let Item::Lifetime(id) = item {
                entry("Copy stack", Action::Run(Command::CopyStack));
                entry("Zoom the timeline to its life", Action::Run(Command::FitSelection));
                let stack = cx.data.tables.lifetimes.stack(cx.data.device(), id);
                if stack.is_some() {
                    entry("Select all by this stack", Action::Select(Some(Item::Stack(stack))));
                    entry("List all by this stack", Action::Run(Command::QueryStack));
                }
                let born = cx.data.tables.lifetimes.born(id);
                if born != NO_EVENT {
                    entry("Go to its allocation", Action::GoTo(born));
                }
                let gone = cx.data.tables.lifetimes.gone(id);
                if gone != NO_EVENT {
                    entry("Go to its end", Action::GoTo(gone));
                }
            }
            entry("Set marker A at the cursor", Action::SetMarker(0, Some(cx.shared.cursor)));
            entry("Set marker B at the cursor", Action::SetMarker(1, Some(cx.shared.cursor)));
        });
    }
}

fn axis(ui: &Ui, scene: &Scene<'_>) {
    let Scene { cx, picture, areas, .. } = *scene;
    let tokens = cx.tokens;
    let painter = ui.painter();
    let whole = picture.plan.longest as f64;
    let (from, to) = (picture.window.from * whole, picture.window.to * whole);
    let most = most_across(areas.axis.width());
    let mut free_to = areas.gutter.right();
    if picture.span == Span::Normalised {
        let text = "each row: a whole segment";
        label::text_in(painter, areas.axis, text, Type::Caption, tokens.text3);
    } else {
        let scale = Scale::horizontal(from, to, areas.axis.x_range());
        let ticks = byte_ticks(from, to, most);
        if let Some((value, text)) = ticks.ticks.first() {
            free_to = free_to.min(scale.at(*value) - label::width(painter, text, Type::Mono) / 2.0 - 4.0);
        }
        // Ticks end where the labels over the bars begin.
        let end = if areas.bars.is_positive() { areas.bars.left() - 8.0 } else { painter.clip_rect().right() };
        let inside = painter.with_clip_rect(painter.clip_rect().with_max_x(end));
        ticks.paint_across(&inside, tokens, &scale, areas.axis, UnitAt::Last);
    }
    // Half of the first tick's label reaches into the gutter.
    let right = free_to.min(areas.gutter.right() - 8.0);
    if areas.gutter.width() >= paint::GUTTER && right - label::width(painter, "seg", Type::Caption) >= areas.gutter.left() + 2.0 {
        let at = pos2(right, areas.axis.center().y - 3.0);
        label::text(painter, at, egui::Align2::RIGHT_CENTER, "seg", Type::Caption, tokens.text3);
    }
}

/// Outlines the selected and the hovered block, and marks the selection's row.
fn outlines(ui: &Ui, scene: &Scene<'_>) {
    let Scene { cx, picture, places, areas, scroll } = *scene;
    let painter = ui.painter().with_clip_rect(areas.rows.expand2(egui::vec2(4.0, 0.0)));
    let mut batch = Batch::new(&painter);
    if let Some(item) = cx.shared.hovered.filter(|h| Some(*h) != cx.shared.selected()) {
        for (_, rect) in scene.rects_of(item) {
            let grow = ((3.0 - rect.height()) / 2.0).max(0.0);
            batch.outline(rect.expand2(egui::vec2(0.0, grow)), 1.0, Tokens::at(cx.tokens.text1, 0.6));
        }
    }
    let mut mark = None;
    if let Some(item) = cx.shared.selected() {
        for (row, rect) in scene.rects_of(item) {
            mark = mark.or(Some(row));
            batch.selection(rect, cx.tokens.text1, cx.tokens.s1);
        }
        // A block that is not live at the cursor is still marked by its address.
        mark = mark.or_else(|| address_of(cx, item).and_then(|a| picture.plan.row_of(a)));
    }
    batch.paint(&painter);
    if let Some(row) = mark {
        let strip = areas.row(places, row, scroll);
        let gutter = ui.painter().with_clip_rect(areas.gutter);
        paint::mark(&gutter, cx.tokens, areas, strip);
    }
}

/// `at the OOM · 54 segments of 20 MiB`.
fn subtitle(cx: &ViewContext<'_>, state: &State) -> String {
    let instant = if cx.data.device().events.is_empty() {
        "at the end".to_owned()
    } else if oom_at(cx, state.event).is_some() {
        "at the OOM".to_owned()
    } else if state.event == NO_EVENT {
        "before the first event".to_owned()
    } else {
        format!("at event {}", count(u64::from(state.event)))
    };
    if !cx.data.recording.addresses().is_known() {
        return format!("{instant} · no addresses in this file");
    }
    if state.segments.is_empty() && !cx.data.knows_reserved() {
        return format!("{instant} · {}, segments are not in this file", counted(state.blocks.len() as u64, "block", "blocks"));
    }
    let segments = counted(state.segments.len() as u64, "segment", "segments");
    let sizes = match state.segments.first() {
        Some(first) if state.segments.iter().all(|s| s.size == first.size) && state.segments.len() > 1 => {
            format!("{segments} of {}", Bytes(first.size))
        }
        _ => format!("{segments}, {}", Bytes(state.totals.reserved)),
    };
    format!("{instant} · {sizes}")
}

/// Bytes of the request that failed at an event.
fn oom_at(cx: &ViewContext<'_>, event: u32) -> Option<u64> {
    let events = &cx.data.device().events;
    (events.action.get(event as usize) == Some(&EventAction::Oom)).then(|| events.size[event as usize])
}

fn scroll_bar(painter: &egui::Painter, tokens: &Tokens, areas: &Areas, scroll: f32, height: f32) {
    let room = areas.rows.height();
    if height <= room + 0.5 {
        return;
    }
    let right = painter.clip_rect().right() - 3.0;
    let length = (room * room / height).max(24.0);
    let top = areas.rows.top() + (room - length) * scroll / (height - room);
    let bar = Rect::from_min_max(pos2(right - 4.0, top), pos2(right, top + length));
    painter.rect_filled(bar, 2, tokens.line2);
}

fn nothing(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    if device.has_final_state || !device.events.is_empty() {
        let nothing = if cx.data.tables.curves.peak(Quantity::Reserved).0 > 0 { "reserved" } else { "live" };
        empty_state(ui, &format!("Nothing is {nothing} at the cursor. Move it to an instant with allocations."), None);
    } else {
        let sentence = "This recording has no segments. A memory snapshot records them:";
        empty_state(ui, sentence, Some(&cx.snapshot_line()));
    }
}
