//! The timeline: an overview of the whole recording, the curves, every live allocation stacked in order of allocation,
//! annotations and device calls, over events or time.
//!
//! Everything whose cost depends on the number of events is computed off the UI thread for a window and a number of pixel columns
//! (`picture`). Each frame paints the newest picture, stretched to the present window.

mod categories_alone;
mod clock;
mod controls;
mod flags;
mod gestures;
mod image;
mod lanes;
mod layout;
mod marks;
mod overlay;
mod paint;
mod picture;
mod place;
mod under;

use std::sync::Arc;

use egui::{Rect, Response, Role, Sense, Ui};

use super::block_legend::BlockLegend;
use super::live::alone::SamplesAlone;
use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::Focus;
use crate::app::data::compare::name_of;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Axis, ColourBy, Item, ViewKind, shared};
use crate::app::widgets::{ByteWheel, Icon, PixelTexture, Rest, Scale, Term, button, told_at};
use categories_alone::CategoriesAlone;
use flags::Pennants;
use image::StrataImage;
use lanes::{Lanes, Shared};
use layout::Track;
use marks::Marks;
use paint::Canvas;
use picture::{StrataPicture, Window, WindowPicture};
use place::{AxisMarks, ValueChip};
use under::{Scene, Under};
use vramscope_core::units::{count, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Timeline,
    legend: &[
        ("reserved", "bright line: what PyTorch took from the device"),
        ("active", "filled: whole blocks that hold tensors or wait for a stream"),
        ("requested", "thin line: what programs requested, before rounding"),
        ("accent line", "what the allocations of a query hold; everything else is dimmed"),
        ("hatched", "reserved and not in use: free inside PyTorch"),
        ("cap", "red dashes: the limit of this process, or of the device"),
        ("live blocks", "a block keeps its colour; a pixel shows what covers most of it, a column the instant of its peak"),
        ("thin blocks", "many that share a pixel have the colour of the largest; hover counts them"),
        ("pennant", "the cache was emptied, or a snapshot was taken"),
        (
            "operators",
            "from a profiler trace: threads by depth, launches, kernels by stream; click chooses the events within; drag the upper edge for more lines",
        ),
        ("categories", "from a memory timeline: bytes by what tensors are for"),
        (
            "whole card",
            "NVML and memory_stats samples of a watch, on the same clock: driver, other processes, this one outside and inside PyTorch",
        ),
        ("device", "cudaMalloc full height, cudaFree half; close ones are counted"),
        (
            "steps",
            "a box with teeth stands for several; hover counts them, zooming in tells them apart; click chooses its events",
        ),
        ("phases", "what the program did, as call stacks tell: forward, backward, optimizer; click chooses its events"),
        ("selected", "outlined, or a line where it is thin; a bar at the floor where it lives shorter than a pixel"),
        ("click", "select the block and set the cursor there"),
        ("drag", "pan, and where all is shown choose a range; on the axis or at the cursor: move the cursor"),
        ("wheel", "zoom at the pointer; Shift pans, Ctrl zooms bytes"),
        ("right drag", "draw a box: zooms to its time, on the live blocks to its bytes too; Esc cancels"),
        ("Shift + drag", "choose a range; Esc clears it"),
        ("double click", "fit the block's life or the step; elsewhere everything"),
        ("A and B", "Shift A and Shift B set them at the cursor; drag their flags; right click clears them"),
        ("track name", "click folds the track, click again opens it"),
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

#[derive(Clone, Debug, PartialEq)]
struct ImageKey {
    picture: Identity,
    colours: Identity,
    dark: bool,
    focus: Focus,
    rows: usize,
}

/// What a drag in the timeline moves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Grip {
    /// The visible window, or a new range, depending on the gesture.
    Plot,
    Cursor,
    Marker(usize),
    OverviewWindow,
    OverviewLeft,
    OverviewRight,
}

#[derive(Clone, Copy, Debug, Default)]
struct MenuTarget {
    item: Option<Item>,
    event: u32,
}

/// The window and the byte range before a zoom box was used.
#[derive(Clone, Copy, Debug)]
struct BeforeBox {
    window: (Axis, f64, f64),
    bytes: Option<(f64, f64)>,
    /// Another window was shown since.
    is_left: bool,
}

/// The curves of a window, keyed by whether its marks are known and by the identity of the query result too.
type Curves = Derived<(Window, bool, Option<Identity>), WindowPicture>;

#[derive(Default)]
struct Timeline {
    marks: Derived<(), Marks>,
    lanes: Lanes,
    alone: CategoriesAlone,
    samples_alone: SamplesAlone,
    overview: Curves,
    window: Curves,
    strata: Derived<StrataKey, StrataPicture>,
    image: Derived<ImageKey, StrataImage>,
    legend: BlockLegend,
    texture: PixelTexture,
    /// The byte range that the strata are zoomed to; `None` for all.
    bytes: Option<(f64, f64)>,
    /// States before each zoom box, oldest first. Going back to such a window restores its byte range too.
    before_boxes: Vec<BeforeBox>,
    wheel: ByteWheel,
    /// [`SharedViewState::fitted`](shared::SharedViewState::fitted) at the last frame.
    fitted: u32,
    grip: Option<Grip>,
    menu: MenuTarget,
    /// What the pointer is on, and since when.
    hovering: Rest<(Option<Item>, std::mem::Discriminant<Under>)>,
    /// This view set the shared hover, so it must clear it when the pointer leaves.
    said_hover: bool,
}

impl View for Timeline {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let device = cx.data.device();
        let all = device.events.len() as u64;
        if all == 0 && !device.bands.is_empty() {
            return format!("{} by category", counted(device.bands.len() as u64, "row", "rows"));
        }
        if all == 0 && !device.samples.is_empty() {
            return format!("{} of the whole card", counted(device.samples.len() as u64, "sample", "samples"));
        }
        let (first, last) = shared::domain(device, cx.shared.axis);
        let flags =
            if cx.shared.flags_shown().iter().any(Option::is_some) { " · drag A and B to compare other instants" } else { "" };
        if cx.shared.from <= first && cx.shared.to >= last {
            return format!("{}{flags}", counted(all, "event", "events"));
        }
        // The plot is not shaded when all of it is the range, so the header mentions the range.
        let range = match cx.shared.range.map(|(a, b)| (cx.shared.position(device, a), cx.shared.position(device, b))) {
            Some(_) if cx.shared.shows_range(device) => ", the chosen range · Esc lets it go",
            Some((a, b)) if a <= cx.shared.from && cx.shared.to <= b => " inside the chosen range · Esc lets it go",
            _ => "",
        };
        match cx.shared.events_shown(device) {
            0 => format!("no event here, {} in all{range}{flags}", count(all)),
            shown => format!("{} of {} events{range}{flags}", count(shown), count(all)),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if cx.data.device().events.is_empty() {
            return;
        }
        if let Some(by) = button::select(ui, "colour", &cx.shared.colour_by, ColourBy::ALL, |by| by.text()) {
            cx.actions.send(Action::SetColourBy(by));
        }
        if let Some(query) = &cx.shared.query {
            let text = if query.text.chars().count() > 28 {
                format!("{}…", query.text.chars().take(27).collect::<String>())
            } else {
                query.text.clone()
            };
            let clear = button::Push::outlined(&text).small().icon(Icon::Close).show(ui);
            if clear.on_hover_text("Only what this query holds for is bright. Click to see everything again.").clicked() {
                cx.actions.send(Action::SetQuery(String::new()));
            }
        }
        if cx.data.device().events.has_time {
            let mut axis = usize::from(cx.shared.axis == Axis::Time);
            if button::selector(ui, "x", &mut axis, &["events", "time"]) {
                cx.actions.send(Action::SetAxis(if axis == 1 { Axis::Time } else { Axis::Event }));
            }
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let pane_rect = ui.max_rect();
        let device = cx.data.device();
        if std::mem::replace(&mut self.fitted, cx.shared.fitted) != cx.shared.fitted {
            self.bytes = None;
            self.before_boxes.clear();
        }
        self.bytes_of_window((cx.shared.axis, cx.shared.from, cx.shared.to));
        if device.events.is_empty() && !device.bands.is_empty() {
            self.alone.ui(ui, cx, pane_rect, &device.bands);
            return;
        }
        if device.events.is_empty() && !device.samples.is_empty() {
            self.samples_alone.ui(ui, cx, pane_rect);
            return;
        }
        if device.events.is_empty() {
            return cx.without_history(
                ui,
                "This recording has no events, only the state at its end. Record the history to see memory over time:",
            );
        }
        let data = Arc::clone(cx.data);
        let marks = self.marks.get(cx.jobs, "marks", &(), move |_| Some(Marks::of(&data))).value;
        let mut contents = layout::Contents {
            folded: layout::folded_of(&cx.shared.tracks),
            two_line_axis: device.events.has_time && cx.shared.axis == Axis::Event,
            curves_height: cx.shared.tracks.curves_height,
            ..layout::Contents::default()
        };
        self.lanes.fill();
        self.lanes.heights(cx, marks.as_deref(), &mut contents);
        let tracks = layout::tracks(pane_rect, contents);
        let ppp = ui.ctx().pixels_per_point();
        let columns = ((tracks.x.span() * ppp).round() as usize).clamp(1, crate::app::widgets::texture::LARGEST_SIDE);
        let window = Window { axis: cx.shared.axis, from: cx.shared.from, to: cx.shared.to, columns };
        let response = told_at(ui, tracks.canvas(), "timeline canvas", Sense::click_and_drag(), Role::Canvas, || {
            format!("Timeline, {} events, cursor at {}", device.events.len(), cx.shared.cursor)
        });

        let picture = curves(&mut self.window, cx, "timeline curves", window, marks.clone());
        let cap = marks.as_ref().and_then(|m| m.cap);
        let cap_bytes = cap.map(|c| c.bytes);
        let painter = ui.painter_at(pane_rect);
        let mut canvas = Canvas {
            painter: &painter,
            tokens: cx.tokens,
            data: cx.data,
            pane: pane_rect,
            tracks,
            window,
            x: Scale::horizontal(window.from, window.to, tracks.x),
            pointer_y: None,
        };
        let pointer = response.hover_pos().filter(|_| response.contains_pointer());
        canvas.pointer_y = pointer.map(|p| p.y).filter(|&y| canvas.reads_bytes(y) && !canvas.is_at_name(y));
        if let Some(rect) = tracks.open(Track::Overview) {
            let (from, to) = shared::domain(device, window.axis);
            let overview = curves(&mut self.overview, cx, "timeline overview", Window { from, to, ..window }, None);
            canvas.overview(rect, overview.as_deref(), cap);
            self.overview_ui(ui, cx, rect);
        }
        canvas.rules();
        let on_axis = canvas.axis_marks(cx.shared);
        if let Some(rect) = tracks.axis {
            let mut taken = on_axis.taken();
            // The pointer's readout is drawn last, over everything else.
            if let (Some(p), Some(event)) = (pointer, cx.shared.hover_event)
                && let Some((readout, _)) =
                    canvas.ruler_mark(canvas.ruler_x(Some(event), Some(p)).unwrap_or(p.x), event, &on_axis)
            {
                taken.push(readout);
            }
            canvas.axis(rect, &taken);
        }
        let (low, high) = match &picture {
            Some(p) => {
                let (low, high) = layout::curves_range(&p.reserved, &p.active, &p.requested, cap_bytes);
                // Extends the range so that a query's whole curve is visible, however low it is.
                let least = p.matching.iter().flatten().map(|c| c.min).min();
                (least.map_or(low, |least| low.min(least as f64)), high)
            }
            None => (0.0, 1.0),
        };
        let curves_y = Scale::vertical(low, high, tracks.open(Track::Curves).unwrap_or(tracks.strata).y_range());
        let mut pennants = Pennants::default();
        let mut names = Vec::new();
        let values = if picture.is_some() { canvas.value_chips(cx.shared, &curves_y) } else { Vec::new() };
        if let Some(rect) = tracks.open(Track::Curves) {
            let edges = canvas.curves(rect, &curves_y, picture.as_deref(), cap);
            let mut taken: Vec<Rect> = values.iter().map(|v| v.rect).collect();
            let limit = cap.and_then(|cap| canvas.cap_label(rect, &curves_y, cap, &edges, &taken));
            taken.extend(limit);
            taken.extend(cx.matching.and_then(|m| canvas.matching_peak(rect, &curves_y, m.peak(), &taken)));
            if let Some(marks) = &marks {
                pennants = canvas.pennants(rect, marks, &mut taken);
            }
            names = canvas.curve_names(rect, &edges, &taken);
            let is_device = cap.is_some_and(|c| c.name == "capacity");
            names.extend(limit.map(|rect| (rect, if is_device { Term::Capacity } else { Term::Cap })));
        }
        let top = picture.as_ref().map_or(1.0, |p| layout::strata_top(&p.reserved, &p.active, cap_bytes));
        let (low, high) = self.bytes.unwrap_or((0.0, top));
        let strata_y = Scale::vertical(low, high, tracks.strata.y_range());
        canvas.strata_back(tracks.strata, &strata_y, picture.as_deref());
        let image = picture.as_ref().and_then(|_| self.strata_image(ui, cx, window, (low, high), tracks.strata));
        if let Some(image) = &image {
            self.paint_strata(&canvas, image, &strata_y);
        }
        canvas.strata_front(tracks.strata, &strata_y, picture.as_deref(), cap);
        self.lanes.paint(cx, &canvas, &Shared { marks: marks.clone(), picture: picture.clone() });
        let strata = image.as_ref().map(|i| Arc::clone(&i.picture));
        let lanes = std::mem::take(&mut self.lanes);
        let scene = Scene {
            canvas: &canvas,
            strata: strata.as_deref(),
            strata_y,
            pennants: &pennants,
            lanes: &lanes,
            names: &names,
            state: cx.state.map(Arc::as_ref),
            cap,
        };
        self.overlays(cx, &scene, &response, &curves_y, &on_axis, &values);
        self.gestures(ui, cx, &scene, &response, top);
        self.lanes = lanes;
        self.resize_curves(ui, cx, &canvas);
        self.range_ui(ui, cx, &canvas);
        self.bytes_ui(ui, &canvas);
        self.fold_ui(ui, cx, &canvas);
        controls::hidden_ui(ui, &canvas, &self.lanes, &tracks.hidden(&contents));
        self.lanes.ui(ui, cx, &canvas);
        if let Some(rect) = tracks.legend {
            self.legend.ui(ui, cx, rect, tracks.x.min - pane_rect.left());
        }
        self.menu_ui(cx, &response);
    }
}

fn curves(
    known: &mut Curves,
    cx: &ViewContext<'_>,
    name: &str,
    window: Window,
    marks: Option<Arc<Marks>>,
) -> Option<Arc<WindowPicture>> {
    let (data, matching) = (Arc::clone(cx.data), cx.matching.cloned());
    let key = (window, marks.is_some(), matching.as_ref().map(Identity::of));
    let job = move |_: &_| Some(WindowPicture::compute(&data, marks.as_deref(), matching.as_deref(), window));
    known.get(cx.jobs, name, &key, job).value
}

impl Timeline {
    /// The newest image of the strata, or one of an older window while it is computed.
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
        let focus = Focus::of(cx.shared, cx.matching);
        let key = ImageKey {
            picture: Identity::of(&picture),
            colours: Identity::of(cx.colours),
            dark: cx.tokens.dark,
            focus: focus.clone(),
            rows,
        };
        let (data, colours) = (Arc::clone(cx.data), Arc::clone(cx.colours));
        let tokens = crate::app::theme::Tokens::of(ui.ctx());
        let job = move |_: &_| Some(StrataImage::compute(&data, picture, colours, tokens, &focus, rows));
        let image = self.image.get(cx.jobs, "timeline pixels", &key, job).value?;
        self.texture.update(ui.ctx(), "strata", &image, image.size, |image| image.pixels.clone());
        Some(image)
    }

    /// Draws the image over the range of the axis and of the bytes that it was made for.
    fn paint_strata(&self, canvas: &Canvas<'_>, image: &StrataImage, y: &Scale) {
        let have = &image.picture;
        if have.window.axis != canvas.window.axis {
            return;
        }
        let painter = canvas.painter.with_clip_rect(canvas.tracks.strata.intersect(canvas.painter.clip_rect()));
        let rect =
            Rect::from_x_y_ranges(canvas.x.at(have.window.from)..=canvas.x.at(have.window.to), y.at(have.high)..=y.at(have.low));
        self.texture.paint(&painter, rect);
    }

    /// Draws range, selection, rulers, flags and cursor.
    fn overlays(
        &self,
        cx: &ViewContext<'_>,
        scene: &Scene<'_>,
        response: &Response,
        curves_y: &Scale,
        on_axis: &AxisMarks,
        values: &[ValueChip],
    ) {
        let canvas = scene.canvas;
        let t = cx.tokens;
        if let Some((first, last)) = cx.shared.range {
            canvas.range(canvas.at(first), canvas.at(last), &canvas.range_figures(first, last));
        }
        if let Some(picture) = scene.strata {
            if let Some(Item::Lifetime(id)) = cx.shared.selected() {
                canvas.outline(picture, &scene.strata_y, id, t.text1, true);
            }
            if let Some(Item::Lifetime(id)) = cx.shared.hovered
                && cx.shared.selected() != cx.shared.hovered
            {
                canvas.outline(picture, &scene.strata_y, id, crate::app::theme::Tokens::at(t.text1, 0.6), false);
            }
        }
        let pointer = response.hover_pos().filter(|_| response.contains_pointer());
        let ruler = pointer.map(|p| match canvas.tracks.open(Track::Curves) {
            Some(rect) if rect.contains(p) => (p, Some(curves_y)),
            _ if canvas.tracks.strata.contains(p) => (p, Some(&scene.strata_y)),
            _ => (p, None),
        });
        canvas.rulers(cx.shared.hover_event, ruler, on_axis);
        canvas.out_of_range(cx.shared);
        canvas.ooms(on_axis);
        let flags = cx.shared.flags_shown();
        let mut taken: Vec<Rect> = values.iter().map(|v| v.rect).collect();
        let named = scene.names.iter().map(|n| n.0);
        let between = canvas.markers(&flags, on_axis, &taken.iter().copied().chain(named).collect::<Vec<_>>());
        taken.extend(between);
        canvas.cursor(cx.shared, on_axis, values);
        if let [Some(a), Some(b)] = flags {
            let steps = cx.comparing.steps(&cx.here());
            canvas.marker_names([a, b], |event| name_of(steps.as_deref(), event), &taken, scene.names);
        }
    }
}
