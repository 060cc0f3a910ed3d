//! The visible range of a plot, the mapping from values to pixels, and one set of gestures for all plots.
//!
//! A view holds a [`PanZoom`] (or uses the shared time range), makes a [`Scale`] for its rectangle, reads a [`Gesture`] from its
//! response and handles the [`Intent`]. All arithmetic is f64; only final screen coordinates are f32.

use egui::{Context, Id, Modifiers, PointerButton, Pos2, Rangef, Rect, Response, Vec2};

/// Maps values linearly to one screen axis. Values are f64, which is exact for microseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Value at `pixels.0`.
    pub start: f64,
    /// Value at `pixels.1`.
    pub end: f64,
    /// Screen coordinates of `start` and `end` in points. `pixels.0` is the greater one on a vertical axis.
    pub pixels: (f32, f32),
}

impl Scale {
    /// Left to right over `x`.
    pub fn horizontal(start: f64, end: f64, x: Rangef) -> Self {
        Self { start, end, pixels: (x.min, x.max) }
    }

    /// Bottom to top over `y`: `start` at the bottom.
    pub fn vertical(start: f64, end: f64, y: Rangef) -> Self {
        Self { start, end, pixels: (y.max, y.min) }
    }

    pub fn at(&self, value: f64) -> f32 {
        let span = self.end - self.start;
        if span == 0.0 {
            return self.pixels.0;
        }
        let share = (value - self.start) / span;
        (f64::from(self.pixels.0) + share * f64::from(self.pixels.1 - self.pixels.0)) as f32
    }

    pub fn value(&self, pixel: f32) -> f64 {
        let length = f64::from(self.pixels.1 - self.pixels.0);
        if length == 0.0 {
            return self.start;
        }
        self.start + f64::from(pixel - self.pixels.0) / length * (self.end - self.start)
    }

    /// Values per point of screen, positive in either direction.
    pub fn per_point(&self) -> f64 {
        let length = f64::from(self.pixels.1 - self.pixels.0).abs();
        if length == 0.0 { 0.0 } else { (self.end - self.start) / length }
    }
}

/// A visible range within a domain. It can be zoomed about a value and panned; it is never empty and never leaves the domain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PanZoom {
    domain: (f64, f64),
    visible: (f64, f64),
    least: f64,
}

/// Shares of a whole, down to a millionth of it.
impl Default for PanZoom {
    fn default() -> Self {
        Self::new(0.0, 1.0).with_least(1e-6)
    }
}

impl PanZoom {
    /// Shows all of `start..end`. An empty or invalid domain becomes one unit wide.
    pub fn new(start: f64, end: f64) -> Self {
        let domain = sane(start, end);
        Self { domain, visible: domain, least: 1.0f64.min(domain.1 - domain.0) }
    }

    /// Sets the smallest visible span, at which zooming in stops. The default is 1 (a microsecond, an event, a byte).
    pub fn with_least(mut self, span: f64) -> Self {
        self.least = span.max(f64::MIN_POSITIVE).min(self.domain.1 - self.domain.0);
        self.show(self.visible.0, self.visible.1);
        self
    }

    pub fn domain(&self) -> (f64, f64) {
        self.domain
    }

    pub fn visible(&self) -> (f64, f64) {
        self.visible
    }

    pub fn is_fit(&self) -> bool {
        self.visible == self.domain
    }

    /// A scale of the visible range, left to right over `x`.
    pub fn horizontal(&self, x: Rangef) -> Scale {
        Scale::horizontal(self.visible.0, self.visible.1, x)
    }

    pub fn fit(&mut self) {
        self.visible = self.domain;
    }

    /// Shows `a..b` (in either order), widened to the smallest span and kept inside the domain.
    pub fn show(&mut self, a: f64, b: f64) {
        if !(a.is_finite() && b.is_finite()) {
            return;
        }
        let (a, b) = (a.min(b), a.max(b));
        let whole = self.domain.1 - self.domain.0;
        let span = (b - a).clamp(self.least, whole);
        let start = ((a + b - span) / 2.0).clamp(self.domain.0, self.domain.1 - span);
        self.visible = if span >= whole { self.domain } else { (start, start + span) };
    }

    /// Shows `a..b` with `margin` times its span on both sides.
    pub fn show_with_margin(&mut self, a: f64, b: f64, margin: f64) {
        let pad = (b - a).abs() * margin;
        self.show(a.min(b) - pad, a.max(b) + pad);
    }

    /// Zooms by `factor` (over 1 zooms in). `value` keeps its place on screen.
    pub fn zoom(&mut self, factor: f64, value: f64) {
        if !(factor.is_finite() && factor > 0.0 && value.is_finite()) {
            return;
        }
        let (a, b) = self.visible;
        let whole = self.domain.1 - self.domain.0;
        let span = ((b - a) / factor).clamp(self.least, whole);
        let share = ((value - a) / (b - a)).clamp(0.0, 1.0);
        let start = (value.clamp(a, b) - share * span).clamp(self.domain.0, self.domain.1 - span);
        self.visible = if span >= whole { self.domain } else { (start, start + span) };
    }

    /// Moves the visible range by `delta`, at most to the ends of the domain.
    pub fn pan(&mut self, delta: f64) {
        if !delta.is_finite() {
            return;
        }
        let (a, b) = self.visible;
        let delta = delta.clamp(self.domain.0 - a, self.domain.1 - b);
        self.visible = (a + delta, b + delta);
    }

    /// Replaces the domain, when a live recording grows or another document is shown. A range that showed everything still does.
    /// With `follow`, a range that ended at the domain's end keeps its span and moves along.
    pub fn set_domain(&mut self, start: f64, end: f64, follow: bool) {
        let (fit, at_end) = (self.is_fit(), self.visible.1 >= self.domain.1);
        self.domain = sane(start, end);
        self.least = self.least.min(self.domain.1 - self.domain.0);
        if fit {
            self.fit();
        } else {
            let shift = if follow && at_end { self.domain.1 - self.visible.1 } else { 0.0 };
            self.show(self.visible.0 + shift, self.visible.1 + shift);
        }
    }

    /// Handles a gesture along this axis. Returns whether the visible range changed.
    ///
    /// Horizontal scales handle `ZoomTime` and the x of `Pan`; vertical ones `ZoomBytes` and the y of `Pan`. A double click shows
    /// everything, and a finished range is shown. Views that give these gestures another meaning handle them first.
    pub fn apply(&mut self, intent: &Intent, scale: &Scale, vertical: bool) -> bool {
        let before = self.visible;
        match *intent {
            Intent::ZoomTime { factor, at } if !vertical => self.zoom(factor, scale.value(at.x)),
            Intent::ZoomBytes { factor, at } if vertical => self.zoom(factor, scale.value(at.y)),
            Intent::Pan(delta) => {
                let points = if vertical { delta.y } else { -delta.x };
                self.pan(f64::from(points) * scale.per_point());
            }
            Intent::DoubleClick(_) => self.fit(),
            Intent::Select { from, to, done: true } if !vertical && (from.x - to.x).abs() >= 3.0 => {
                self.show(scale.value(from.x), scale.value(to.x));
            }
            Intent::Box { from, to, done: true } => {
                let (a, b) = if vertical { (from.y, to.y) } else { (from.x, to.x) };
                if (a - b).abs() >= BOX_LEAST {
                    self.show(scale.value(a), scale.value(b));
                }
            }
            _ => {}
        }
        self.visible != before
    }
}

fn sane(start: f64, end: f64) -> (f64, f64) {
    if start.is_finite() && end.is_finite() && end > start {
        (start, end)
    } else if start.is_finite() {
        (start, start + 1.0)
    } else {
        (0.0, 1.0)
    }
}

/// What the user asks of a plot in this frame. Positions are screen points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Intent {
    /// Select what is here and set the cursor here.
    Click(Pos2),
    /// Ctrl (Cmd) + click: add to or remove from the chosen things.
    CtrlClick(Pos2),
    /// Zoom to the block's lifetime, the step or the segment here; on empty space to the whole recording.
    DoubleClick(Pos2),
    /// Open the context menu (use `response.context_menu` for the menu itself).
    Context(Pos2),
    ZoomTime {
        /// Over 1 zooms in.
        factor: f64,
        /// This point keeps its place.
        at: Pos2,
    },
    ZoomBytes {
        /// Over 1 zooms in.
        factor: f64,
        /// This point keeps its place.
        at: Pos2,
    },
    /// Move the contents by this many points.
    Pan(Vec2),
    /// Shift + drag: a range from `from` to `to`.
    Select {
        from: Pos2,
        to: Pos2,
        /// True in the frame in which the button is released.
        done: bool,
    },
    /// Right drag: zoom to the box between two corners. A side shorter than [`BOX_LEAST`] leaves its axis as it is.
    Box {
        from: Pos2,
        to: Pos2,
        /// True in the frame in which the button is released.
        done: bool,
    },
}

/// Shortest side of a zoom box in points. A shorter side means that the user wants to zoom only the other axis.
pub const BOX_LEAST: f32 = 10.0;

/// The part of a plot that a box between two corners zooms to, in points. A side that is too short is extended to all of `all`;
/// `None` when both are too short.
pub fn box_within(from: Pos2, to: Pos2, all: Rect) -> Option<Rect> {
    let drawn = Rect::from_two_pos(all.clamp(from), all.clamp(to));
    let side = |wanted: Rangef, all: Rangef| if wanted.span() >= BOX_LEAST { wanted } else { all };
    let is_box = drawn.width() >= BOX_LEAST || drawn.height() >= BOX_LEAST;
    is_box.then(|| Rect::from_x_y_ranges(side(drawn.x_range(), all.x_range()), side(drawn.y_range(), all.y_range())))
}

/// Escape cancels only the range or box that is being drawn. True when there was one; egui then ends the drag.
pub fn lets_go_of_drawing(ctx: &Context) -> bool {
    let is_drawn = ctx.data_mut(|d| d.remove_temp::<bool>(Id::unique(DRAWING))).is_some();
    is_drawn && ctx.input(|i| i.pointer.any_down())
}

/// Tells a wheel that zooms bytes from one that zooms time. egui smooths the wheel over several frames: when Ctrl is released
/// meanwhile, the remaining motion still zooms bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteWheel {
    /// When the bytes were last zoomed, in seconds of egui's clock.
    zoomed_at: f64,
}

impl ByteWheel {
    pub fn read(&mut self, intent: Intent, now: f64) -> Intent {
        match intent {
            Intent::ZoomBytes { .. } => self.zoomed_at = now,
            Intent::ZoomTime { factor, at } if now - self.zoomed_at < 0.25 => return Intent::ZoomBytes { factor, at },
            _ => {}
        }
        intent
    }
}

/// Key under which egui's memory keeps that a range or a box is being drawn.
const DRAWING: &str = "a range or a box is being drawn";

/// The pointer over a plot in one frame: where it hovers and what it asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gesture {
    /// Where the pointer is over the plot, also during a drag.
    pub hover: Option<Pos2>,
    /// At most one intent per frame: press and click win over the wheel.
    pub intent: Option<Intent>,
}

/// A drag that began in the plot; kept between frames under the response's id.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Drag {
    Pan,
    Select(Pos2),
    Box(Pos2),
}

impl Gesture {
    /// Reads the gesture from a response that senses [`egui::Sense::click_and_drag`].
    pub fn read(response: &Response) -> Self {
        Self::read_where(response, true)
    }

    /// Like [`read`](Self::read). With `pans` false the plot shows everything, so a drag chooses a range instead.
    pub fn read_where(response: &Response, pans: bool) -> Self {
        let ctx = &response.ctx;
        let (pointer, origin, modifiers, scroll, zoom) = ctx
            .input(|i| (i.pointer.latest_pos(), i.pointer.press_origin(), i.modifiers, i.smooth_scroll_delta(), i.zoom_delta()));
        // When a press and its first move come in one frame, egui gives the drag to what is under the pointer after the move.
        let began_elsewhere = origin.is_some_and(|at| !response.interact_rect.contains(at));
        if response.drag_started() && began_elsewhere {
            ctx.data_mut(|d| d.remove::<Drag>(response.id));
        } else if response.drag_started() {
            let start = origin.or(pointer).unwrap_or(response.rect.center());
            let drag = if (modifiers.shift || !pans) && response.dragged_by(PointerButton::Primary) {
                Drag::Select(start)
            } else if response.dragged_by(PointerButton::Secondary) {
                Drag::Box(start)
            } else {
                Drag::Pan
            };
            ctx.data_mut(|d| {
                d.insert_temp(response.id, drag);
                if drag != Drag::Pan {
                    d.insert_temp(Id::unique(DRAWING), true);
                }
            });
        }
        let drag = ctx.data(|d| d.get_temp::<Drag>(response.id));
        let dragging = drag.is_some() && (response.dragged() || response.drag_stopped());
        // Escape ended the drag while the button was down, so the drawn range is dropped.
        let is_taken_back = response.drag_stopped() && ctx.input(|i| i.pointer.any_down());
        if response.drag_stopped() {
            ctx.data_mut(|d| d.remove_temp::<bool>(Id::unique(DRAWING)));
        }
        let hover = pointer.filter(|_| response.contains_pointer() || dragging);
        let at = pointer.unwrap_or(response.rect.center());
        let intent = if response.double_clicked() {
            Some(Intent::DoubleClick(at))
        } else if response.clicked() {
            Some(if modifiers.command { Intent::CtrlClick(at) } else { Intent::Click(at) })
        } else if response.secondary_clicked() {
            Some(Intent::Context(at))
        } else if dragging {
            match drag {
                Some(Drag::Select(_) | Drag::Box(_)) if is_taken_back => None,
                Some(Drag::Select(from)) => Some(Intent::Select { from, to: at, done: response.drag_stopped() }),
                Some(Drag::Box(from)) => Some(Intent::Box { from, to: at, done: response.drag_stopped() }),
                _ => Some(response.drag_delta()).filter(|d| *d != Vec2::ZERO).map(Intent::Pan),
            }
        } else if response.contains_pointer() {
            wheel(scroll, zoom, modifiers, at)
        } else {
            None
        };
        Self { hover, intent }
    }
}

/// What the wheel or a pinch at `at` asks for. A notch of the wheel, 40 points, zooms by about a fifth.
fn wheel(scroll: Vec2, zoom: f32, modifiers: Modifiers, at: Pos2) -> Option<Intent> {
    if (zoom - 1.0).abs() > 1e-6 {
        let factor = f64::from(zoom);
        // egui reports Ctrl + wheel as a zoom, and a pinch on a touch pad too; a pinch zooms time.
        return Some(if modifiers.ctrl || modifiers.command {
            Intent::ZoomBytes { factor, at }
        } else {
            Intent::ZoomTime { factor, at }
        });
    }
    if modifiers.shift || scroll.x.abs() > scroll.y.abs() {
        let along = if scroll.x.abs() >= scroll.y.abs() { scroll.x } else { scroll.y };
        return (along != 0.0).then_some(Intent::Pan(Vec2::new(along, 0.0)));
    }
    (scroll.y != 0.0).then(|| Intent::ZoomTime { factor: (f64::from(scroll.y) / 200.0).exp(), at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::{pos2, vec2};

    #[test]
    fn zoom_keeps_the_value_under_the_pointer() {
        let mut p = PanZoom::new(1_795_225_622_000_000.0, 1_795_225_632_000_000.0);
        let x = Rangef::new(100.0, 980.0);
        let value = p.horizontal(x).value(340.0);
        for _ in 0..20 {
            p.zoom(1.3, value);
            assert!((p.horizontal(x).at(value) - 340.0).abs() < 0.05, "{}", p.horizontal(x).at(value));
        }
        for _ in 0..60 {
            p.zoom(0.5, value);
        }
        assert!(p.is_fit());
    }

    #[test]
    fn nothing_leaves_the_domain_or_gets_empty() {
        let mut p = PanZoom::new(0.0, 1000.0);
        p.zoom(1e12, 999.9);
        let (a, b) = p.visible();
        assert!(b <= 1000.0 && (b - a - 1.0).abs() < 1e-9);
        p.pan(1e9);
        assert_eq!(p.visible().1, 1000.0);
        p.pan(f64::NAN);
        p.zoom(f64::NAN, 0.0);
        p.zoom(-1.0, 0.0);
        p.show(f64::INFINITY, 0.0);
        assert_eq!(p.visible().1, 1000.0);
        p.show(300.0, 100.0);
        assert_eq!(p.visible(), (100.0, 300.0));
        p.pan(-1e9);
        assert_eq!(p.visible(), (0.0, 200.0));
        p.show_with_margin(100.0, 200.0, 0.5);
        assert_eq!(p.visible(), (50.0, 250.0));
        assert_eq!(PanZoom::new(5.0, 5.0).visible(), (5.0, 6.0));
        assert_eq!(PanZoom::new(f64::NAN, 5.0).visible(), (0.0, 1.0));
    }

    #[test]
    fn a_growing_domain_is_followed_only_from_its_end() {
        let mut p = PanZoom::new(0.0, 100.0);
        p.set_domain(0.0, 200.0, true);
        assert!(p.is_fit());
        p.show(150.0, 200.0);
        p.set_domain(0.0, 300.0, true);
        assert_eq!(p.visible(), (250.0, 300.0));
        p.show(100.0, 150.0);
        p.set_domain(0.0, 400.0, true);
        assert_eq!(p.visible(), (100.0, 150.0));
    }

    #[test]
    fn scales_invert() {
        let v = Scale::vertical(400.0, 1000.0, Rangef::new(50.0, 150.0));
        assert_eq!(v.at(400.0), 150.0);
        assert_eq!(v.at(1000.0), 50.0);
        assert_eq!(v.value(100.0), 700.0);
        assert_eq!(v.per_point(), 6.0);
        assert_eq!(Scale::horizontal(3.0, 3.0, Rangef::new(0.0, 10.0)).at(3.0), 0.0);
    }

    #[test]
    fn wheels_mean_what_the_gesture_table_says() {
        let at = pos2(5.0, 5.0);
        let up = vec2(0.0, 40.0);
        let (none, shift, ctrl) = (Modifiers::NONE, Modifiers::SHIFT, Modifiers::CTRL);
        assert!(matches!(wheel(up, 1.0, none, at), Some(Intent::ZoomTime { factor, .. }) if factor > 1.2));
        assert_eq!(wheel(vec2(40.0, 0.0), 1.0, shift, at), Some(Intent::Pan(vec2(40.0, 0.0))));
        assert!(matches!(wheel(Vec2::ZERO, 1.2, ctrl, at), Some(Intent::ZoomBytes { .. })));
        assert!(matches!(wheel(Vec2::ZERO, 1.2, none, at), Some(Intent::ZoomTime { .. })));
        assert_eq!(wheel(Vec2::ZERO, 1.0, none, at), None);
    }

    #[test]
    fn intents_move_the_axis_they_are_about() {
        let mut p = PanZoom::new(0.0, 1000.0);
        p.show(400.0, 600.0);
        let scale = p.horizontal(Rangef::new(0.0, 100.0));
        assert!(!p.apply(&Intent::ZoomBytes { factor: 2.0, at: pos2(50.0, 0.0) }, &scale, false));
        assert!(p.apply(&Intent::Pan(vec2(10.0, 3.0)), &scale, false));
        assert_eq!(p.visible(), (380.0, 580.0), "dragging right shows what was to the left");
        let select = Intent::Select { from: pos2(75.0, 0.0), to: pos2(25.0, 0.0), done: true };
        assert!(p.apply(&select, &p.horizontal(Rangef::new(0.0, 100.0)), false));
        assert_eq!(p.visible(), (430.0, 530.0));
        assert!(p.apply(&Intent::DoubleClick(pos2(0.0, 0.0)), &scale, false) && p.is_fit());
    }

    #[test]
    fn a_box_zooms_each_axis_by_its_side_when_that_is_long_enough() {
        let (from, to) = (pos2(20.0, 90.0), pos2(60.0, 85.0));
        let drawn = |done| Intent::Box { from, to, done };
        let mut p = PanZoom::new(0.0, 1000.0);
        let scale = p.horizontal(Rangef::new(0.0, 100.0));
        assert!(!p.apply(&drawn(false), &scale, false), "nothing moves before the button is let go");
        assert!(p.apply(&drawn(true), &scale, false));
        assert_eq!(p.visible(), (200.0, 600.0));
        let mut bytes = PanZoom::new(0.0, 1000.0);
        let y = Scale::vertical(0.0, 1000.0, Rangef::new(0.0, 100.0));
        assert!(!bytes.apply(&drawn(true), &y, true), "too low to mean bytes");
        assert!(bytes.apply(&Intent::Box { from, to: pos2(60.0, 40.0), done: true }, &y, true));
        assert_eq!(bytes.visible(), (100.0, 600.0));
        let all = Rect::from_min_max(pos2(0.0, 50.0), pos2(100.0, 100.0));
        assert_eq!(box_within(from, to, all), Some(Rect::from_min_max(pos2(20.0, 50.0), pos2(60.0, 100.0))));
        let beyond = box_within(from, pos2(140.0, 20.0), all);
        assert_eq!(beyond, Some(Rect::from_min_max(pos2(20.0, 50.0), pos2(100.0, 90.0))), "as far as the plot goes");
        assert_eq!(box_within(from, from + vec2(4.0, 9.0), all), None);
    }
}
