//! The timeline: the whole recording small, the curves, every live allocation stacked in order of allocation, annotations
//! and device calls, over events or wall clock.
//!
//! Everything that depends on the number of events is computed off the UI thread for a window and a number of pixel columns
//! ([`picture`]); a frame paints what there is, stretched to its own range until the new picture arrives.

mod layout;
mod marks;
mod overlay;
mod paint;
mod picture;
mod under;

use std::sync::Arc;

use egui::{CursorIcon, Pos2, Rect, Response, Role, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use self::marks::Marks;
use self::paint::{Canvas, Cap};
use self::picture::{ClassCounts, Focus, StrataImage, StrataPicture, Window, WindowPicture};
use self::under::{Scene, Under};
use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::{State, stack_text};
use crate::app::action::Action;
use crate::app::colours::{ColourBy, Colours, Paint};
use crate::app::command::Command;
use crate::app::cursor::{self, Axis};
use crate::app::jobs::Derived;
use crate::app::selection::Item;
use crate::app::widgets::button::{self, Push};
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::legend::{LegendEntry, legend_row};
use crate::app::widgets::pane;
use crate::app::widgets::texture::PixelTexture;
use crate::app::widgets::viewport::{Gesture, Intent, PanZoom, Scale};
use crate::units::{Address, Bytes, count};

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Timeline,
    title: "Timeline",
    name: "timeline",
    about: "Memory over the recording: the curves above, every live block below, stacked in order of allocation.",
    legend: &[
        ("reserved", "bright line: what PyTorch took from the device"),
        ("active", "filled: whole blocks that hold tensors or wait for a stream"),
        ("requested", "thin line: what programs asked for, before rounding"),
        ("hatched", "reserved and not in use: free inside PyTorch"),
        ("cap", "red dashes: the limit of this process, or of the device"),
        ("live blocks", "a block keeps its colour; a pixel shows what covers most of it, a column the instant of its peak"),
        ("grey block", "many blocks far thinner than a pixel; hover counts them"),
        ("pennant", "the cache was emptied, or a snapshot was taken"),
        ("device", "cudaMalloc full height, cudaFree half; close ones are counted"),
        ("click", "select the block and set the cursor there"),
        ("drag", "pan; on the axis or at the cursor: move the cursor"),
        ("wheel", "zoom at the pointer; Shift pans, Ctrl zooms bytes"),
        ("Shift + drag", "choose a range; Esc clears it"),
        ("double click", "fit the block's life or the step; elsewhere everything"),
        ("right click", "copy, zoom to life, set A and B, open source"),
    ],
    create: || Box::new(Timeline::default()),
};

#[derive(Clone, Debug, PartialEq)]
struct StrataKey {
    window: Window,
    low: f64,
    high: f64,
    rows: usize,
}

/// What an image was made of. The addresses can not be reused while the image lives, because it holds on to both.
#[derive(Clone, Debug, PartialEq)]
struct ImageKey {
    picture: usize,
    colours: usize,
    dark: bool,
    focus: Focus,
    rows: usize,
}

/// What a drag that began in the timeline moves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grip {
    /// The visible window, or a range: as the gesture says.
    Plot,
    /// The cursor.
    Cursor,
    /// The window in the overview.
    OverviewWindow,
    /// Its left edge.
    OverviewLeft,
    /// Its right edge.
    OverviewRight,
}

/// What the right-click menu is about.
#[derive(Clone, Copy, Debug, Default)]
struct MenuTarget {
    item: Option<Item>,
    event: u32,
}

#[derive(Default)]
struct Timeline {
    marks: Derived<(), Marks>,
    overview: Derived<Window, WindowPicture>,
    window: Derived<(Window, bool), WindowPicture>,
    strata: Derived<StrataKey, StrataPicture>,
    image: Derived<ImageKey, StrataImage>,
    counts: Derived<(usize, usize), (ClassCounts, Arc<State>, Arc<Colours>)>,
    /// The image that is in the texture.
    shown: Option<Arc<StrataImage>>,
    texture: PixelTexture,
    uploads: u64,
    /// Bytes the strata are zoomed to; all of them when `None`.
    bytes: Option<(f64, f64)>,
    curves_height: Option<f32>,
    grip: Option<Grip>,
    menu: MenuTarget,
    /// What the pointer has been on, and since when.
    hovering: Option<(Under, f64)>,
    /// This view said what is hovered, so it takes it back when the pointer leaves.
    said_hover: bool,
}

impl View for Timeline {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let device = cx.data.device();
        let all = device.events.len() as u64;
        let (first, last) = cursor::domain(device, cx.link.axis);
        if cx.link.from <= first && cx.link.to >= last {
            return format!("{} events", count(all));
        }
        let shown = cx.link.event_at(device, cx.link.to).saturating_sub(cx.link.event_at(device, cx.link.from));
        format!("{} of {} events", count(u64::from(shown).max(1)), count(all))
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let mut by = ColourBy::ALL.iter().position(|b| *b == cx.link.colour_by).unwrap_or(0);
        let names = ColourBy::ALL.map(ColourBy::text);
        if button::selector(ui, "colour", &mut by, &names) {
            cx.actions.send(Action::SetColourBy(ColourBy::ALL[by]));
        }
        if cx.data.device().events.has_time {
            let mut axis = usize::from(cx.link.axis == Axis::Time);
            if button::selector(ui, "x", &mut axis, &["events", "time"]) {
                cx.actions.send(Action::SetAxis(if axis == 1 { Axis::Time } else { Axis::Event }));
            }
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let pane_rect = ui.max_rect();
        let device = cx.data.device();
        if device.events.is_empty() {
            pane::empty_state(
                ui,
                "This recording has no events, only the state at its end. Record the history to see memory over time:",
                Some("torch.cuda.memory._record_memory_history()"),
            );
            return;
        }
        let data = Arc::clone(cx.data);
        let marks = self.marks.get(cx.jobs, "marks", &(), move |_| Some(Marks::of(data.device()))).value;
        let contents = layout::Contents {
            two_line_axis: device.events.has_time && cx.link.axis == Axis::Event,
            step_levels: marks.as_ref().map_or(usize::from(!device.annotations.is_empty()), |m| m.levels),
            device_calls: marks.as_ref().is_none_or(|m| !m.calls.is_empty()),
            curves_height: self.curves_height,
        };
        let tracks = layout::tracks(pane_rect, contents);
        let ppp = ui.ctx().pixels_per_point();
        let columns = ((tracks.x.span() * ppp).round() as usize).clamp(1, crate::app::widgets::texture::LARGEST_SIDE);
        let window = Window { axis: cx.link.axis, from: cx.link.from, to: cx.link.to, columns };
        let response = ui.interact(tracks.canvas(), ui.scope_id().with("timeline canvas"), Sense::click_and_drag());
        response.widget_info(|| {
            WidgetInfo::labeled(
                Role::Canvas,
                true,
                format!("Timeline, {} events, cursor at {}", device.events.len(), cx.link.cursor),
            )
        });

        let picture = self.window_picture(cx, window, marks.clone());
        let cap = Cap::of(cx.data);
        let cap_bytes = cap.map(|c| c.bytes);
        let painter = ui.painter_at(pane_rect);
        let canvas = Canvas {
            painter: &painter,
            tokens: cx.tokens,
            data: cx.data,
            pane: pane_rect,
            tracks,
            window,
            x: Scale::horizontal(window.from, window.to, tracks.x),
        };
        if let Some(rect) = tracks.overview {
            let overview = self.overview_picture(cx, window);
            canvas.overview(rect, overview.as_deref(), cap);
            self.overview_ui(ui, cx, rect);
        }
        canvas.rules();
        if let Some(rect) = tracks.axis {
            canvas.axis(rect);
        }
        let (low, high) = match &picture {
            Some(p) => layout::curves_range(&p.reserved, &p.active, &p.requested, cap_bytes),
            None => (0.0, 1.0),
        };
        let curves_y = Scale::vertical(low, high, tracks.curves.unwrap_or(tracks.strata).y_range());
        let mut pennants = Vec::new();
        if let Some(rect) = tracks.curves {
            canvas.curves(rect, &curves_y, picture.as_deref(), cap);
            if let Some(marks) = &marks {
                pennants = canvas.pennants(rect, marks);
            }
        }
        let top = picture.as_ref().map_or(1.0, |p| layout::strata_top(&p.reserved, &p.active, cap_bytes));
        let (low, high) = self.bytes.unwrap_or((0.0, top));
        let strata_y = Scale::vertical(low, high, tracks.strata.y_range());
        canvas.strata_back(tracks.strata, &strata_y);
        let image = picture.as_ref().and_then(|_| self.strata_image(ui, cx, window, (low, high), tracks.strata));
        if let Some(image) = &image {
            self.paint_strata(&canvas, image, &strata_y);
        }
        canvas.strata_front(tracks.strata, &strata_y, picture.as_deref(), cap);
        let lit = match cx.link.selected() {
            Some(Item::Annotation(i)) => Some(i),
            _ => None,
        };
        if let Some(p) = &picture {
            if let Some(rect) = tracks.steps {
                canvas.steps(rect, &p.steps, &p.window, lit);
            }
            if let Some(rect) = tracks.device {
                canvas.device_calls(rect, p);
            }
        }
        let strata = image.as_ref().map(|i| Arc::clone(&i.picture));
        let scene =
            Scene { canvas: &canvas, window: picture.as_deref(), strata: strata.as_deref(), strata_y, pennants: &pennants };
        self.overlays(cx, &scene, &response, &curves_y);
        self.gestures(ui, cx, &scene, &response, top);
        self.resize_curves(ui, &canvas);
        self.range_ui(ui, cx, &canvas);
        if let Some(rect) = tracks.legend {
            self.legend_ui(ui, cx, rect, tracks.x.min - pane_rect.left());
        }
        self.menu_ui(cx, &response);
    }
}

impl Timeline {
    fn window_picture(&mut self, cx: &ViewContext<'_>, window: Window, marks: Option<Arc<Marks>>) -> Option<Arc<WindowPicture>> {
        let data = Arc::clone(cx.data);
        let key = (window, marks.is_some());
        let job = move |_: &_| Some(WindowPicture::compute(&data, marks.as_deref(), window));
        self.window.get(cx.jobs, "timeline curves", &key, job).value
    }

    fn overview_picture(&mut self, cx: &ViewContext<'_>, window: Window) -> Option<Arc<WindowPicture>> {
        let (from, to) = cursor::domain(cx.data.device(), window.axis);
        let whole = Window { from, to, ..window };
        let data = Arc::clone(cx.data);
        self.overview.get(cx.jobs, "timeline overview", &whole, move |_| Some(WindowPicture::compute(&data, None, whole))).value
    }

    /// The newest image of the strata; while a newer one is computed, an older one of another window.
    fn strata_image(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        window: Window,
        (low, high): (f64, f64),
        rect: Rect,
    ) -> Option<Arc<StrataImage>> {
        let rows = PixelTexture::size_for(ui.ctx(), rect)[1].max(1);
        let data = Arc::clone(cx.data);
        let key = StrataKey { window, low, high, rows };
        let job = move |p: &_| StrataPicture::compute(&data, window, low, high, rows, p);
        let picture = self.strata.get(cx.jobs, "timeline strata", &key, job).value?;
        let focus = Focus {
            classes: cx.link.focus_classes.clone(),
            stack: match cx.link.selected() {
                Some(Item::Stack(s)) => Some(s),
                _ => None,
            },
        };
        let key = ImageKey {
            picture: Arc::as_ptr(&picture) as usize,
            colours: Arc::as_ptr(cx.colours) as usize,
            dark: cx.tokens.dark,
            focus: focus.clone(),
            rows,
        };
        let (data, colours) = (Arc::clone(cx.data), Arc::clone(cx.colours));
        let tokens = crate::app::theme::Tokens::of(ui.ctx());
        let job = move |_: &_| Some(StrataImage::compute(&data, picture, colours, tokens, &focus, rows));
        let image = self.image.get(cx.jobs, "timeline pixels", &key, job).value?;
        if self.shown.as_ref().is_none_or(|s| !Arc::ptr_eq(s, &image)) {
            self.uploads += 1;
            self.shown = Some(Arc::clone(&image));
            self.texture.update(ui.ctx(), "strata", self.uploads, image.size, || image.pixels.clone());
        }
        Some(image)
    }

    /// Draws the image over the part of the axis and of the bytes that it shows.
    fn paint_strata(&self, canvas: &Canvas<'_>, image: &StrataImage, y: &Scale) {
        let have = &image.picture;
        if have.window.axis != canvas.window.axis {
            return;
        }
        let painter = canvas.painter.with_clip_rect(canvas.tracks.strata.intersect(canvas.painter.clip_rect()));
        let rect = Rect::from_min_max(
            pos2(canvas.x.at(have.window.from), y.at(have.high)),
            pos2(canvas.x.at(have.window.to), y.at(have.low)),
        );
        self.texture.paint(&painter, rect);
    }

    /// Range, selection, rulers, flags, cursor.
    fn overlays(&self, cx: &ViewContext<'_>, scene: &Scene<'_>, response: &Response, curves_y: &Scale) {
        let canvas = scene.canvas;
        let t = cx.tokens;
        let device = cx.data.device();
        if let Some((first, last)) = cx.link.range {
            let at = |e| canvas.x.at(cursor::position(device, cx.link.axis, e));
            canvas.range(at(first), at(last), &canvas.between(first, last));
        }
        if let Some(picture) = scene.strata {
            if let Some(Item::Lifetime(id)) = cx.link.selected() {
                canvas.outline(picture, &scene.strata_y, id, t.text1, true);
            }
            if let Some(Item::Lifetime(id)) = cx.link.hovered
                && cx.link.selected() != cx.link.hovered
            {
                canvas.outline(picture, &scene.strata_y, id, crate::app::theme::Tokens::at(t.text1, 0.6), false);
            }
        }
        let pointer = response.hover_pos().filter(|_| response.contains_pointer());
        let ruler = pointer.and_then(|p| match canvas.tracks.curves {
            Some(rect) if rect.contains(p) => Some((p.y, curves_y)),
            _ if canvas.tracks.strata.contains(p) => Some((p.y, &scene.strata_y)),
            _ => None,
        });
        canvas.rulers(cx.link.hover_event, ruler);
        canvas.markers(&cx.link.markers);
        canvas.ooms();
        canvas.cursor(cx.link, curves_y);
    }

    fn gestures(&mut self, ui: &Ui, cx: &ViewContext<'_>, scene: &Scene<'_>, response: &Response, top: f64) {
        let canvas = scene.canvas;
        let device = cx.data.device();
        let gesture = Gesture::read(response);
        let cursor_x = canvas.x.at(cursor::position(device, cx.link.axis, cx.link.cursor));
        let on_cursor = |p: Pos2| canvas.tracks.axis.is_some_and(|a| a.contains(p)) || (p.x - cursor_x).abs() <= 4.0;
        if response.drag_started()
            && let Some(start) = ui.input(|i| i.pointer.press_origin())
        {
            let is_plain = !ui.input(|i| i.modifiers.shift);
            self.grip = Some(if on_cursor(start) && is_plain { Grip::Cursor } else { Grip::Plot });
        }
        let event_at = |p: Pos2| cx.link.event_at(device, canvas.x.value(p.x.clamp(canvas.tracks.x.min, canvas.tracks.x.max)));
        let under = gesture.hover.filter(|_| !response.dragged()).and_then(|p| scene.at(p));
        self.say_hover(cx, gesture.hover.map(event_at), under.as_ref().and_then(Under::item));
        if let Some(p) = gesture.hover {
            let icon = match self.grip {
                Some(Grip::Plot) => CursorIcon::Grabbing,
                Some(_) => CursorIcon::ResizeHorizontal,
                None if on_cursor(p) => CursorIcon::ResizeHorizontal,
                None if under.as_ref().and_then(Under::item).is_some() => CursorIcon::PointingHand,
                None => CursorIcon::Crosshair,
            };
            ui.set_cursor_icon(icon);
        }
        self.tooltip(ui, cx, scene, response, under.as_ref(), gesture.hover, event_at);
        let is_done = response.drag_stopped();
        let intent = gesture.intent;
        match (self.grip, gesture.hover) {
            (Some(Grip::Cursor), Some(p)) => cx.actions.send(Action::SetCursor(event_at(p))),
            _ => {
                if let Some(intent) = intent {
                    self.act(cx, scene, intent, event_at, top);
                }
            }
        }
        if is_done {
            self.grip = None;
        }
    }

    fn act(&mut self, cx: &ViewContext<'_>, scene: &Scene<'_>, intent: Intent, event_at: impl Fn(Pos2) -> u32, top: f64) {
        let canvas = scene.canvas;
        match intent {
            Intent::Click(p) | Intent::CtrlClick(p) => {
                let under = scene.at(p);
                let event = under.as_ref().and_then(Under::event).unwrap_or_else(|| event_at(p));
                cx.actions.send(Action::SetCursor(event));
                cx.actions.send(Action::Select(under.as_ref().and_then(Under::item)));
            }
            Intent::DoubleClick(p) => match scene.at(p).as_ref().and_then(Under::item) {
                Some(item @ (Item::Lifetime(_) | Item::Annotation(_))) => {
                    cx.actions.send(Action::Select(Some(item)));
                    cx.actions.run(Command::FitSelection);
                }
                _ => {
                    self.bytes = None;
                    cx.actions.run(Command::ZoomFit);
                }
            },
            Intent::Context(p) => {
                let under = scene.at(p);
                let event = under.as_ref().and_then(Under::event).unwrap_or_else(|| event_at(p));
                self.menu = MenuTarget { item: under.as_ref().and_then(Under::item), event };
            }
            Intent::Select { from, to, done } => {
                let (a, b) = (event_at(from), event_at(to));
                if !done {
                    let (left, right) = (from.x.min(to.x), from.x.max(to.x));
                    canvas.range(left, right, &canvas.between(a.min(b), a.max(b)));
                } else if (from.x - to.x).abs() >= 3.0 {
                    cx.actions.send(Action::SetRange(Some((a.min(b), a.max(b)))));
                }
            }
            Intent::ZoomTime { .. } | Intent::Pan(_) | Intent::ZoomBytes { .. } => {
                let (first, last) = cursor::domain(cx.data.device(), cx.link.axis);
                let least = if cx.link.axis == Axis::Event { 8.0 } else { 20.0 };
                let mut time = PanZoom::new(first, last).with_least(least);
                time.show(cx.link.from, cx.link.to);
                if time.apply(&intent, &canvas.x, false) {
                    let (from, to) = time.visible();
                    cx.actions.send(Action::SetWindow(from, to));
                }
                let is_over_strata = match intent {
                    Intent::ZoomBytes { at, .. } => canvas.tracks.strata.contains(at),
                    _ => self.bytes.is_some(),
                };
                if is_over_strata {
                    let mut bytes = PanZoom::new(0.0, top).with_least(512.0);
                    if let Some((low, high)) = self.bytes {
                        bytes.show(low, high);
                    }
                    if bytes.apply(&intent, &scene.strata_y, true) {
                        self.bytes = (!bytes.is_fit()).then_some(bytes.visible());
                    }
                }
            }
        }
    }

    /// Tells the other views what is under the pointer, once for each change.
    fn say_hover(&mut self, cx: &ViewContext<'_>, event: Option<u32>, item: Option<Item>) {
        if event.is_none() && !self.said_hover {
            return;
        }
        if cx.link.hover_event != event {
            cx.actions.send(Action::HoverEvent(event));
        }
        if cx.link.hovered != item {
            cx.actions.send(Action::Hover(item));
        }
        self.said_hover = event.is_some();
    }

    /// A tooltip once the pointer has been on a thing for 120 ms.
    fn tooltip(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        scene: &Scene<'_>,
        response: &Response,
        under: Option<&Under>,
        at: Option<Pos2>,
        event_at: impl Fn(Pos2) -> u32,
    ) {
        const DELAY: f64 = 0.12;
        let now = ui.input(|i| i.time);
        let (Some(under), Some(at)) = (under, at) else {
            self.hovering = None;
            return;
        };
        let since = match &self.hovering {
            Some((before, since))
                if before.item() == under.item() && std::mem::discriminant(before) == std::mem::discriminant(under) =>
            {
                *since
            }
            _ => now,
        };
        self.hovering = Some((*under, since));
        if now - since < DELAY {
            ui.request_repaint_after(std::time::Duration::from_millis(130));
        } else if !response.context_menu_opened() {
            let tip = scene.tip(under, event_at(at), cx.colours);
            tip.show_at(response, response.id.with("tip"), at);
        }
    }

    /// The overview: drag the window or its edges, click to bring it elsewhere, wheel to zoom.
    fn overview_ui(&mut self, ui: &Ui, cx: &ViewContext<'_>, rect: Rect) {
        let (first, last) = cursor::domain(cx.data.device(), cx.link.axis);
        let x = Scale::horizontal(first, last, rect.x_range());
        let (left, right) = (x.at(cx.link.from), x.at(cx.link.to));
        let response =
            ui.interact(rect.expand2(vec2(4.0, 0.0)), ui.scope_id().with("timeline overview"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "Overview of the whole recording"));
        let grip_at = |p: Pos2| {
            if (p.x - left).abs() <= 6.0 {
                Grip::OverviewLeft
            } else if (p.x - right).abs() <= 6.0 {
                Grip::OverviewRight
            } else {
                Grip::OverviewWindow
            }
        };
        if response.drag_started()
            && let Some(start) = ui.input(|i| i.pointer.press_origin())
        {
            self.grip = Some(grip_at(start));
        }
        let gesture = Gesture::read(&response);
        if let Some(p) = gesture.hover {
            let icon = match self.grip.unwrap_or_else(|| grip_at(p)) {
                Grip::OverviewLeft | Grip::OverviewRight => CursorIcon::ResizeHorizontal,
                _ if self.grip.is_some() => CursorIcon::Grabbing,
                _ => CursorIcon::Grab,
            };
            ui.set_cursor_icon(icon);
        }
        let span = cx.link.to - cx.link.from;
        let show = |from: f64, to: f64| cx.actions.send(Action::SetWindow(from, to));
        match gesture.intent {
            Some(Intent::Pan(delta)) => {
                let by = f64::from(delta.x) * x.per_point();
                match self.grip {
                    Some(Grip::OverviewLeft) => show((cx.link.from + by).clamp(first, cx.link.to), cx.link.to),
                    Some(Grip::OverviewRight) => show(cx.link.from, (cx.link.to + by).clamp(cx.link.from, last)),
                    // A wheel that pans moves the other way than a hand.
                    Some(Grip::OverviewWindow) => {
                        let from = (cx.link.from + by).clamp(first, (last - span).max(first));
                        show(from, from + span);
                    }
                    _ => show(cx.link.from - by, cx.link.to - by),
                }
            }
            Some(Intent::Click(p) | Intent::CtrlClick(p)) => {
                let middle = x.value(p.x);
                let from = (middle - span / 2.0).clamp(first, (last - span).max(first));
                show(from, from + span);
            }
            Some(Intent::Select { from, to, done: true }) => show(x.value(from.x.min(to.x)), x.value(from.x.max(to.x))),
            Some(Intent::DoubleClick(_)) => cx.actions.run(Command::ZoomFit),
            Some(Intent::ZoomTime { factor, at }) => {
                let middle = x.value(at.x).clamp(cx.link.from, cx.link.to);
                show(middle - (middle - cx.link.from) / factor, middle + (cx.link.to - middle) / factor);
            }
            _ => {}
        }
        if response.drag_stopped() {
            self.grip = None;
        }
    }

    /// The line under the curves can be dragged.
    fn resize_curves(&mut self, ui: &Ui, canvas: &Canvas<'_>) {
        let Some(rect) = canvas.tracks.curves else { return };
        let edge =
            Rect::from_min_max(pos2(canvas.pane.left(), rect.bottom() + 2.0), pos2(canvas.pane.right(), rect.bottom() + 8.0));
        let response = ui.interact(edge, ui.scope_id().with("curves height"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Splitter, true, "Height of the curves"));
        let response = response.on_hover_cursor(CursorIcon::ResizeVertical);
        if response.dragged() {
            self.curves_height = Some(rect.height() + response.drag_delta().y);
        }
        if response.double_clicked() {
            self.curves_height = None;
        }
    }

    /// A chosen range offers to be zoomed to.
    fn range_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        let Some((first, last)) = cx.link.range else { return };
        let device = cx.data.device();
        let at = |e| cursor::position(device, cx.link.axis, e);
        let (from, to) = (at(first), at(last));
        let (left, right) = (canvas.x.at(from), canvas.x.at(to));
        let is_filling = right - left > canvas.tracks.x.span() * 0.85;
        if is_filling || right < canvas.tracks.x.min || left > canvas.tracks.x.max {
            return;
        }
        let middle = f32::midpoint(left.max(canvas.tracks.x.min), right.min(canvas.tracks.x.max));
        let top = canvas.tracks.strata.top() + 6.0;
        let area = Rect::from_center_size(pos2(middle, top + 10.0), vec2(180.0, 22.0));
        let x = area.left().clamp(canvas.pane.left(), (canvas.pane.right() - area.width()).max(canvas.pane.left()));
        let area = Rect::from_min_size(pos2(x, area.top()), area.size());
        let layout = egui::Layout::left_to_right(egui::Align::Center).with_main_align(egui::Align::Center);
        ui.scope_builder(UiBuilder::new().max_rect(area).layout(layout).id_salt("range"), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            if Push::primary("Zoom to range").small().show(ui).clicked() {
                cx.actions.send(Action::SetWindow(from, to));
            }
            if Push::plain("Clear").small().show(ui).clicked() {
                cx.actions.send(Action::SetRange(None));
            }
        });
    }

    fn legend_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rect: Rect, start: f32) {
        let counts = cx.state.and_then(|state| {
            let (data, state, colours) = (Arc::clone(cx.data), Arc::clone(state), Arc::clone(cx.colours));
            let key = (Arc::as_ptr(&state) as usize, Arc::as_ptr(&colours) as usize);
            let job = move |_: &_| Some((ClassCounts::of(&data, &state, &colours), state, colours));
            self.counts.get(cx.jobs, "class counts", &key, job).value
        });
        let counts = counts.as_ref().map(|c| &c.0).filter(|c| c.blocks.len() == cx.colours.classes.len());
        let focus = &cx.link.focus_classes;
        let mut entries: Vec<LegendEntry> = cx
            .colours
            .classes
            .iter()
            .enumerate()
            .map(|(i, class)| {
                let is_dim = !focus.is_empty() && !focus.contains(&(i as u8));
                let value = counts.map(|c| count(c.blocks[i])).unwrap_or_default();
                let entry = LegendEntry::new(Swatch::Fill(class.paint.colour(cx.tokens)), class.name.clone()).dimmed(is_dim);
                let entry = if class.paint == Paint::Other { entry } else { entry.mono() };
                entry.value(value)
            })
            .collect();
        let free = counts.map(|c| Bytes(c.free).to_string()).unwrap_or_default();
        entries.push(LegendEntry::new(Swatch::Free, "free").value(free));
        let name = match cx.link.colour_by {
            ColourBy::Stack => "Stack",
            ColourBy::SizeClass => "Block size",
            ColourBy::Age => "Age",
            ColourBy::Stream => "Stream",
            ColourBy::Pool => "Pool",
            ColourBy::Segment => "Segment",
        };
        let mut row = ui.new_child(UiBuilder::new().max_rect(rect).id_salt("legend"));
        let trailing = if rect.width() > 620.0 { "counts at the cursor" } else { "" };
        if let Some(click) = legend_row(&mut row, name, start, &entries, trailing)
            && click.entry < cx.colours.classes.len()
        {
            cx.actions.send(Action::SetFocusClasses(toggled(focus, click.entry as u8, click.several)));
        }
    }

    fn menu_ui(&mut self, cx: &ViewContext<'_>, response: &Response) {
        let MenuTarget { item, event } = self.menu;
        egui::Popup::context_menu(response).show(|ui| {
            ui.set_min_width(190.0);
            let device = cx.data.device();
            let life = match item {
                Some(Item::Lifetime(id)) => cx.data.tables.lifetimes.get(device, id),
                _ => None,
            };
            let stack = life.map(|l| l.stack).filter(|s| s.is_some());
            let mut entry = |text: &str, enabled: bool, actions: &dyn Fn()| {
                if button::menu_item(ui, text, None, None, enabled).clicked() && enabled {
                    actions();
                    ui.close();
                }
            };
            entry("Copy address", life.is_some(), &|| {
                if let Some(l) = life {
                    cx.actions.send(Action::Copy(Address(l.address).to_string()));
                }
            });
            entry("Copy stack", stack.is_some(), &|| {
                if let Some(s) = stack {
                    cx.actions.send(Action::Copy(stack_text(&cx.data.recording.stacks, s)));
                }
            });
            entry("Open source", stack.is_some(), &|| {
                let stacks = &cx.data.recording.stacks;
                let frame = stack.and_then(|s| cx.data.names.index(s)).and_then(|i| cx.data.names.frame(i));
                if let Some(f) = frame.and_then(|f| stacks.frame(f)) {
                    cx.actions.send(Action::OpenSource { file: stacks.text(f.file).to_owned(), line: f.line });
                }
            });
            entry("Zoom to life", item.is_some(), &|| {
                cx.actions.send(Action::Select(item));
                cx.actions.run(Command::FitSelection);
            });
            entry("Select same stack", stack.is_some(), &|| {
                cx.actions.send(Action::Select(stack.map(Item::Stack)));
            });
            entry("Set A here", true, &|| cx.actions.send(Action::SetMarker(0, Some(event))));
            entry("Set B here", true, &|| cx.actions.send(Action::SetMarker(1, Some(event))));
            let has_markers = cx.link.markers.iter().any(Option::is_some);
            entry("Clear A and B", has_markers, &|| {
                cx.actions.send(Action::SetMarker(0, None));
                cx.actions.send(Action::SetMarker(1, None));
            });
            entry("Show everything", true, &|| cx.actions.run(Command::ZoomFit));
        });
    }
}

/// The classes in focus after a click on one: it alone, or all again; with several, it more or it less.
fn toggled(focus: &[u8], class: u8, several: bool) -> Vec<u8> {
    if several {
        let mut next: Vec<u8> = focus.iter().copied().filter(|&c| c != class).collect();
        if next.len() == focus.len() {
            next.push(class);
        }
        return next;
    }
    if focus == [class] { Vec::new() } else { vec![class] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_on_the_legend_choose_one_or_several_classes() {
        assert_eq!(toggled(&[], 2, false), vec![2]);
        assert_eq!(toggled(&[2], 2, false), Vec::<u8>::new());
        assert_eq!(toggled(&[2], 3, false), vec![3]);
        assert_eq!(toggled(&[2], 3, true), vec![2, 3]);
        assert_eq!(toggled(&[2, 3], 2, true), vec![3]);
    }
}
