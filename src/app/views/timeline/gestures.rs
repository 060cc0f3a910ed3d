//! Pointer gestures of the timeline.

use egui::{CursorIcon, Pos2, Rect, Response, Role, Sense, Ui, pos2, vec2};

use super::lanes::Hit;
use super::layout::Track;
use super::paint::Canvas;
use super::under::{Scene, Under};
use super::{BeforeBox, Grip, MenuTarget, Timeline};
use crate::app::state::{Action, Axis, Command, Item, TrackLayout, shared};
use crate::app::views::ViewContext;
use crate::app::widgets::{BOX_LEAST, Cut, Gesture, Intent, PanZoom, Scale, box_within, paint_zoom_box, told_at};

impl Timeline {
    pub(super) fn gestures(&mut self, ui: &Ui, cx: &ViewContext<'_>, scene: &Scene<'_>, response: &Response, top: f64) {
        let canvas = scene.canvas;
        let device = cx.data.device();
        let gesture = Gesture::read_where(response, !cx.shared.shows_all(device) || self.bytes.is_some());
        let cursor_x = canvas.at(cx.shared.cursor);
        let on_cursor = |p: Pos2| canvas.tracks.axis.is_some_and(|a| a.contains(p)) || (p.x - cursor_x).abs() <= 4.0;
        // A flag can be grabbed where it is drawn, its line only where the cursor's line does not cover it.
        let on_marker = |p: Pos2| {
            let flag = canvas.tracks.axis.is_some_and(|a| (a.bottom() - 15.0..=a.bottom() + 4.0).contains(&p.y));
            (0..2).find(|&i| {
                let Some(event) = cx.shared.flags_shown()[i] else { return false };
                let away = (p.x - canvas.at(event)).abs();
                away <= if flag { 9.0 } else { 3.0 } && (flag || (p.x - cursor_x).abs() > 4.0)
            })
        };
        if response.drag_started()
            && let Some(start) = ui.input(|i| i.pointer.press_origin())
        {
            // Only the primary button moves things on the axis. The secondary button draws a zoom box anywhere.
            let is_plain = !ui.input(|i| i.modifiers.shift) && !response.dragged_by(egui::PointerButton::Secondary);
            self.grip = Some(match on_marker(start) {
                Some(which) if is_plain => Grip::Marker(which),
                _ if on_cursor(start) && is_plain => Grip::Cursor,
                _ => Grip::Plot,
            });
        }
        let event_at = |p: Pos2| cx.shared.event_at(device, canvas.x.value(p.x.clamp(canvas.tracks.x.min, canvas.tracks.x.max)));
        let under = gesture.hover.filter(|_| !response.dragged()).and_then(|p| scene.at(p));
        cx.say_hover(&mut self.said_hover, gesture.hover.map(event_at), under.as_ref().and_then(Under::item));
        if let Some(p) = gesture.hover {
            let icon = match self.grip {
                Some(Grip::Plot) if !matches!(gesture.intent, Some(Intent::Select { .. } | Intent::Box { .. })) => {
                    CursorIcon::Grabbing
                }
                Some(Grip::Plot) => CursorIcon::Crosshair,
                Some(_) => CursorIcon::ResizeHorizontal,
                None if on_cursor(p) || on_marker(p).is_some() => CursorIcon::ResizeHorizontal,
                None if under.as_ref().is_some_and(Under::is_clickable) => CursorIcon::PointingHand,
                None => CursorIcon::Crosshair,
            };
            ui.set_cursor_icon(icon);
        }
        self.tooltip(ui, cx, scene, response, under.as_ref(), gesture.hover, event_at);
        match (self.grip, gesture.hover) {
            (Some(Grip::Cursor), Some(p)) => cx.actions.send(Action::SetCursor(event_at(p))),
            (Some(Grip::Marker(which)), Some(p)) => cx.actions.send(Action::SetMarker(which, Some(event_at(p)))),
            _ => {
                if let Some(intent) = gesture.intent {
                    let read = self.wheel.read(intent, ui.input(|i| i.time));
                    // A wheel that goes on zooming bytes does so only while they are zoomed.
                    let intent = if self.bytes.is_some() { read } else { intent };
                    self.act(cx, scene, intent, event_at, top);
                }
            }
        }
        if response.drag_stopped() {
            self.grip = None;
        }
    }

    pub(super) fn act(
        &mut self,
        cx: &ViewContext<'_>,
        scene: &Scene<'_>,
        intent: Intent,
        event_at: impl Fn(Pos2) -> u32,
        top: f64,
    ) {
        let canvas = scene.canvas;
        match intent {
            Intent::Click(p) | Intent::CtrlClick(p) => {
                let under = scene.at(p);
                if let Some(Under::Lane(Hit { chooses: Some(choice), .. })) = under {
                    cx.actions.send(Action::SetCursor(choice.cursor));
                    cx.actions.send(Action::SetRange(choice.range));
                    return;
                }
                let event = under.as_ref().and_then(Under::event).unwrap_or_else(|| event_at(p));
                cx.actions.send(Action::SetCursor(event));
                cx.actions.send(Action::Select(under.as_ref().and_then(Under::item)));
            }
            Intent::DoubleClick(p) => {
                let under = scene.at(p);
                match (&under, under.as_ref().and_then(Under::item)) {
                    (_, Some(item @ (Item::Lifetime(_) | Item::Annotation(_)))) => {
                        cx.actions.send(Action::Select(Some(item)));
                        cx.actions.run(Command::FitSelection);
                    }
                    (Some(Under::Lane(Hit { extent: Some((from, to)), .. })), _) => {
                        let margin = (to - from) * 0.05;
                        cx.actions.send(Action::SetWindow(from - margin, to + margin));
                    }
                    _ => cx.actions.run(Command::ZoomFit),
                }
            }
            Intent::Context(p) => {
                let under = scene.at(p);
                let event = under.as_ref().and_then(Under::event).unwrap_or_else(|| event_at(p));
                self.menu = MenuTarget { item: under.as_ref().and_then(Under::item), event };
            }
            Intent::Select { from, to, done } => {
                let (a, b) = (event_at(from), event_at(to));
                if !done {
                    let (left, right) = (from.x.min(to.x), from.x.max(to.x));
                    canvas.range(left, right, &canvas.range_figures(a.min(b), a.max(b)));
                } else if (from.x - to.x).abs() >= 3.0 {
                    cx.actions.send(Action::SetRange(Some((a.min(b), a.max(b)))));
                }
            }
            Intent::Box { from, to, done } => {
                let Some(area) = box_of(canvas, from, to) else { return };
                let (is_time, is_bytes) = (area.width() < canvas.tracks.x.span(), area.height() < canvas.tracks.strata.height());
                let time = is_time.then(|| (canvas.x.value(area.left()), canvas.x.value(area.right())));
                let bytes = is_bytes.then(|| (scene.strata_y.value(area.bottom()), scene.strata_y.value(area.top())));
                if !done {
                    canvas.zoom_box(area, time, bytes);
                    return;
                }
                if let Some((from, to)) = time {
                    let window = (cx.shared.axis, cx.shared.from, cx.shared.to);
                    self.before_boxes.push(BeforeBox { window, bytes: self.bytes, is_left: false });
                    cx.actions.send(Action::SetWindow(from, to));
                }
                if let Some((low, high)) = bytes {
                    let mut bytes = PanZoom::new(0.0, top).with_least(512.0);
                    bytes.show(low, high);
                    self.bytes = (!bytes.is_fit()).then_some(bytes.visible());
                }
            }
            Intent::ZoomTime { .. } | Intent::Pan(_) | Intent::ZoomBytes { .. } => {
                cx.move_window(&intent, &canvas.x);
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

    /// When the user goes back to a window in which a box was drawn, its bytes are restored too.
    pub(super) fn bytes_of_window(&mut self, shown: (Axis, f64, f64)) {
        let Some(before) = self.before_boxes.last_mut() else { return };
        before.is_left |= before.window != shown;
        if let Some(before) = self.before_boxes.pop_if(|before| before.is_left && before.window == shown) {
            self.bytes = before.bytes;
        }
    }

    /// Shows a tooltip when the pointer has rested on a thing.
    pub(super) fn tooltip(
        &mut self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        scene: &Scene<'_>,
        response: &Response,
        under: Option<&Under>,
        at: Option<Pos2>,
        event_at: impl Fn(Pos2) -> u32,
    ) {
        let under = under.filter(|_| at.is_some());
        let is_long = self.hovering.is_long(ui, under.map(|under| (under.item(), std::mem::discriminant(under))));
        if let (Some(under), Some(at), true) = (under, at, is_long && !egui::Popup::is_any_open(ui)) {
            let tip = scene.tip(under, event_at(at), at, cx.colours, cx.roles.map(AsRef::as_ref));
            // Tooltips keep the legend below the plots readable.
            let floor = scene.canvas.tracks.legend.map_or(f32::INFINITY, |l| l.top());
            tip.show_above(response, at, floor);
        }
    }

    /// Gestures of the overview: drag the window or its edges, click to move it, wheel to zoom.
    pub(super) fn overview_ui(&mut self, ui: &Ui, cx: &ViewContext<'_>, rect: Rect) {
        let (first, last) = shared::domain(cx.data.device(), cx.shared.axis);
        let x = Scale::horizontal(first, last, rect.x_range());
        let (left, right) = (x.at(cx.shared.from), x.at(cx.shared.to));
        let response = told_at(
            ui,
            rect.expand2(vec2(4.0, 0.0)),
            "timeline overview",
            Sense::click_and_drag(),
            Role::Canvas,
            || "Overview of the whole recording",
        );
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
        let span = cx.shared.to - cx.shared.from;
        let show = |from: f64, to: f64| cx.actions.send(Action::SetWindow(from, to));
        match gesture.intent {
            Some(Intent::Pan(delta)) => {
                let by = f64::from(delta.x) * x.per_point();
                match self.grip {
                    Some(Grip::OverviewLeft) => show((cx.shared.from + by).clamp(first, cx.shared.to), cx.shared.to),
                    Some(Grip::OverviewRight) => show(cx.shared.from, (cx.shared.to + by).clamp(cx.shared.from, last)),
                    // A drag moves the window with the pointer; a pan with the wheel (below) moves it the other way.
                    Some(Grip::OverviewWindow) => {
                        let from = (cx.shared.from + by).clamp(first, (last - span).max(first));
                        show(from, from + span);
                    }
                    _ => show(cx.shared.from - by, cx.shared.to - by),
                }
            }
            Some(Intent::Click(p) | Intent::CtrlClick(p)) => {
                let middle = x.value(p.x);
                let from = (middle - span / 2.0).clamp(first, (last - span).max(first));
                show(from, from + span);
            }
            Some(Intent::Select { from, to, done } | Intent::Box { from, to, done }) => {
                let (left, right) = (from.x.min(to.x).max(rect.left()), from.x.max(to.x).min(rect.right()));
                if right - left >= BOX_LEAST && done {
                    show(x.value(left), x.value(right));
                } else if right - left >= BOX_LEAST {
                    let drawn = Rect::from_x_y_ranges(egui::Rangef::new(left, right), rect.y_range());
                    paint_zoom_box(&ui.painter_at(rect), cx.tokens, drawn);
                }
            }
            Some(Intent::DoubleClick(_)) => cx.actions.run(Command::ZoomFit),
            Some(Intent::ZoomTime { factor, at }) => {
                let middle = x.value(at.x).clamp(cx.shared.from, cx.shared.to);
                show(middle - (middle - cx.shared.from) / factor, middle + (cx.shared.to - middle) / factor);
            }
            _ => {}
        }
        if response.drag_stopped() {
            self.grip = None;
        }
    }

    /// Lets the user drag the line below the curves.
    pub(super) fn resize_curves(&self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        let Some(rect) = canvas.tracks.open(Track::Curves) else { return };
        let edge = canvas.pane.down(rect.bottom() + 2.0, rect.bottom() + 8.0);
        let response = told_at(ui, edge, "curves height", Sense::click_and_drag(), Role::Splitter, || "Height of the curves");
        let response = response.on_hover_cursor(CursorIcon::ResizeVertical);
        let resize = |curves_height| cx.actions.send(Action::SetTracks(TrackLayout { curves_height, ..cx.shared.tracks }));
        if response.dragged() {
            resize(Some(rect.height() + response.drag_delta().y));
        }
        if response.double_clicked() {
            resize(None);
        }
    }
}

/// The part that a zoom box covers: bytes and time on the strata, time elsewhere.
fn box_of(canvas: &Canvas<'_>, from: Pos2, to: Pos2) -> Option<Rect> {
    let strata = canvas.tracks.strata;
    if strata.contains(from) {
        box_within(from, to, strata)
    } else {
        box_within(from, pos2(to.x, from.y), canvas.tracks.canvas())
    }
}
