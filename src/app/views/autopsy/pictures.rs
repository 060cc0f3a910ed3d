//! The request compared with the holes, as bars on one scale.

use egui::{Align2, Rect, Sense, Ui, pos2, vec2};

use super::case::{Case, CaseKind};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Batch, Cut, Scale, Term, axis, label, term};
use vramscope_core::diagnose::fragmentation::Holes;
use vramscope_core::diagnose::oom::{Autopsy, Closest, RoomFrom};
use vramscope_core::units::{Bytes, counted};

#[derive(Clone, Copy, PartialEq)]
enum Fill {
    Request,
    Holes,
    /// Hatched with a strong outline: one hole.
    Hole,
    /// Hatched: holes that serve other requests.
    Others,
    /// An outline: memory that could still be reserved.
    Room,
    /// A dashed outline: the bar ends somewhere between these bytes and the row's bytes.
    RoomFrom(u64),
}

/// One bar of the picture on one scale.
struct BarRow {
    name: &'static str,
    detail: String,
    bytes: u64,
    /// Text at the right end.
    figure: String,
    note: String,
    fill: Fill,
}

/// The part of the free memory that a single block can use.
const LARGEST: &str = "all that one block can use";

impl BarRow {
    /// A row with its bytes at the right end.
    fn new(name: &'static str, detail: impl Into<String>, bytes: u64, fill: Fill) -> Self {
        Self { name, detail: detail.into(), bytes, figure: Bytes(bytes).to_string(), note: String::new(), fill }
    }

    fn figure(self, figure: impl Into<String>) -> Self {
        Self { figure: figure.into(), ..self }
    }

    fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// The bars: the request, all holes end to end, the largest hole, the room for one more segment. Without a failure, the first bar
/// is the largest request that would have succeeded.
pub(super) fn request_against_holes(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let rows = match &case.kind {
        CaseKind::Failure(a) => failure_rows(a),
        CaseKind::Peak(c) => peak_rows(c),
    };
    let mark = case.request();
    bars(ui, cx, case, &rows, mark);
}

fn failure_rows(a: &Autopsy) -> Vec<BarRow> {
    let is_span = a.limit.is_some_and(|cap| !cap.is_known());
    let room = match a.limit {
        Some(cap) => cap.least.saturating_sub(a.reserved),
        None => a.device_free,
    };
    let too_small = if a.holes.largest > 0 {
        let times = a.requested as f64 / a.holes.largest as f64;
        if times < 1.0 {
            "large enough, but not for this pool and stream".to_owned()
        } else if times < 1.1 {
            format!("{} too small", Bytes(a.requested - a.holes.largest))
        } else {
            let digits = usize::from(times < 10.0);
            format!("{times:.digits$} times too small")
        }
    } else {
        "there is no hole".to_owned()
    };
    let spare = if a.holes.bytes >= a.requested {
        format!("enough in total, {} to spare", Bytes(a.holes.bytes - a.requested))
    } else {
        format!("too little in total, by {}", Bytes(a.requested - a.holes.bytes))
    };
    let over = a.segment.saturating_sub(room);
    let room_text = match (a.limit.is_some(), over > 0) {
        (true, true) if is_span => format!("a new {} segment would exceed it", Bytes(a.segment)),
        (true, true) => format!("a new {} segment would exceed the cap by {}", Bytes(a.segment), Bytes(over)),
        (false, true) => format!("a new {} segment needs {} more than the device has", Bytes(a.segment), Bytes(over)),
        (_, false) => format!("a new segment needs {}", Bytes(a.segment)),
    };
    let elsewhere = elsewhere_row(
        a.all_holes.bytes.saturating_sub(a.holes.bytes),
        &a.holes,
        "only for requests of other streams, sizes or pools",
    );
    let name = if a.limit.is_some() { "Room under the cap" } else { "Free on the device" };
    let detail = if is_span && room > 0 { "the solid part is certain" } else { "for one more segment" };
    // For a full device the bar above already says this.
    let note = if a.is_simply_full() { String::new() } else { room_text };
    let room_row = if a.limit.is_none() && a.device_free_known().is_none() {
        device_row(a)
    } else if is_span {
        let most = a.room_below();
        BarRow::new(name, detail, most, Fill::RoomFrom(room)).figure(format!("under {}", Bytes(most))).note(note)
    } else {
        BarRow::new(name, detail, room, Fill::Room).note(note)
    };
    let mut rows = vec![
        BarRow::new("The request", "one block", a.requested, Fill::Request),
        holes_row(&a.holes, spare),
        BarRow::new("The largest hole", LARGEST, a.holes.largest, Fill::Hole).note(too_small),
        room_row,
    ];
    with_elsewhere(&mut rows, elsewhere);
    rows
}

/// Adds the holes of other pools below those of this pool, which is then renamed because it is not all free memory.
fn with_elsewhere(rows: &mut Vec<BarRow>, elsewhere: Option<BarRow>) {
    if elsewhere.is_some() {
        rows[1].name = "Free in this pool";
    }
    rows.splice(3..3, elsewhere);
}

/// Free memory in other pools, which cannot serve the request. Shown when it is more than the free memory that can.
fn elsewhere_row(bytes: u64, own: &Holes, note: &str) -> Option<BarRow> {
    (bytes > own.bytes).then(|| BarRow::new("Free in other pools", "of no use to it", bytes, Fill::Others).note(note))
}

/// The whole device, when the source does not record how much of it was free.
fn device_row(a: &Autopsy) -> BarRow {
    let name = if a.capacity.is_some() { "The whole device" } else { "Free on the device" };
    let row = BarRow::new(name, "what was free is unknown", a.capacity.unwrap_or(0), Fill::Room);
    if a.capacity.is_some() { row } else { row.figure("not recorded") }
}

fn holes_row(holes: &Holes, note: String) -> BarRow {
    let detail = format!("{}, end to end", counted(holes.count, "hole", "holes"));
    BarRow::new("All free memory", detail, holes.bytes, Fill::Holes).note(note)
}

fn peak_rows(c: &Closest) -> Vec<BarRow> {
    let served = match (c.room.is_some(), c.is_exact) {
        (true, true) => "a larger one would have failed",
        (true, false) => "at most: what others held is not recorded",
        (false, _) => "a larger one needed more from the device",
    };
    let elsewhere = match &c.stream {
        Some(s) if s.others.bytes > 0 => format!("{} of it on other streams than {}", Bytes(s.others.bytes), s.name),
        _ => "requests of other sizes or pools are served from it".to_owned(),
    };
    let left = |name, bytes| BarRow::new(name, "for more segments", bytes, Fill::Room);
    let mut rows = vec![
        BarRow::new("Largest that fits", "as one request", c.largest_served, Fill::Room).note(served),
        holes_row(&c.holes, String::new()),
        BarRow::new("The largest hole", LARGEST, c.holes.largest, Fill::Hole),
        match c.room {
            Some(room) if room.from == RoomFrom::Cap => left("Room under the cap", room.bytes),
            Some(room) => left("Free on the device", room.bytes),
            None => left("Free on the device", 0)
                .figure("not recorded")
                .note("neither the cap nor the size of the device is in the file"),
        },
    ];
    with_elsewhere(&mut rows, elsewhere_row(c.all_holes.bytes.saturating_sub(c.holes.bytes), &c.holes, &elsewhere));
    rows
}

fn bars(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, rows: &[BarRow], mark: Option<u64>) {
    let t = cx.tokens;
    let rect = ui.available_rect_before_wrap();
    let painter = ui.painter_at(rect);
    // A bar that is much longer than the others is cut, so that the others stay visible. Its figure is not cut.
    let rest = rows.iter().filter(|r| !matches!(r.fill, Fill::Room | Fill::RoomFrom(_))).map(|r| r.bytes).max().unwrap_or(0);
    let all = rows.iter().map(|r| r.bytes).max().unwrap_or(0);
    let greatest = (if rest == 0 { all } else { all.min(rest.saturating_mul(2)).max(rest) }).max(1) as f64 * 1.08;
    let plot = rect.inset(168.0, 10.0, 130.0, 24.0);
    if plot.width() < 80.0 || plot.height() < 60.0 {
        return;
    }
    let scale = Scale::horizontal(0.0, greatest, plot.x_range());
    let pitch = plot.height() / rows.len() as f32;
    // Leaves room for a line of text between two bars.
    let bar_height = (pitch * 0.58).min(pitch - 16.0).clamp(10.0, 34.0);
    let place = |i: usize, from: f64, to: f64| {
        let y = plot.top() + pitch * i as f32 + (pitch - bar_height) / 2.0;
        Rect::from_x_y_ranges(scale.at(from.min(greatest))..=scale.at(to.min(greatest)), y..=y + bar_height)
    };
    let mut batch = Batch::new(&painter).hatch_origin(rect.min);
    let ticks = axis::byte_ticks(0.0, greatest, axis::most_across(plot.width()));
    ticks.grid_across(&mut batch, t, &scale, plot);
    for (i, row) in rows.iter().enumerate() {
        let bar = place(i, 0.0, row.bytes as f64);
        match row.fill {
            Fill::Request => batch.rect(bar, t.red),
            Fill::Hole if row.bytes > 0 => {
                batch.hatch(bar, t.hatch);
                batch.outline(bar, 1.5, t.text1);
            }
            Fill::Room if row.bytes > 0 => batch.outline(bar, 1.0, t.text2),
            Fill::RoomFrom(least) if row.bytes > 0 => {
                // The certain part gets a solid outline. The dashed part is unknown.
                batch.outline(place(i, 0.0, least as f64), 1.0, t.text2);
                let (sides, dash) = (egui::Rangef::new(bar.left(), bar.right()), (4.0, 3.0));
                batch.dashed_hline(sides, bar.top(), 1.0, dash, t.text2);
                batch.dashed_hline(sides, bar.bottom(), 1.0, dash, t.text2);
                batch.vline(bar.left(), bar.y_range(), 1.0, t.text2);
                batch.dashed_vline(bar.right(), bar.y_range(), 1.0, dash, t.text2);
            }
            Fill::Holes => slices(&mut batch, cx, case, |from, to| place(i, from, to), &scale),
            Fill::Others => batch.hole(bar, t.s2, t.hatch, t.line2),
            Fill::Hole | Fill::Room | Fill::RoomFrom(_) => {}
        }
    }
    if let Some(mark) = mark {
        let from = place(0, 0.0, 0.0).bottom();
        batch.dashed_vline(scale.at(mark as f64), egui::Rangef::new(from, plot.bottom()), 1.0, (4.0, 3.0), t.red);
    }
    batch.paint(&painter);
    let strip = plot.down(plot.bottom() + 4.0, plot.bottom() + 20.0);
    ticks.paint_across(&painter, t, &scale, strip, axis::UnitAt::Last);
    for (i, row) in rows.iter().enumerate() {
        let y = place(i, 0.0, 0.0).center().y;
        // Low rows show only the name.
        let has_detail = pitch >= 34.0;
        let at = pos2(plot.left() - 12.0, if has_detail { y - 8.0 } else { y });
        let name = label::text(&painter, at, Align2::RIGHT_CENTER, row.name, Type::Strong, t.text1);
        if let Some(term) = Term::of(row.name) {
            term::explain_at(ui, name, term);
        }
        if has_detail {
            label::text(&painter, pos2(plot.left() - 12.0, y + 8.0), Align2::RIGHT_CENTER, &row.detail, Type::Caption, t.text3);
        }
        let ink = if row.fill == Fill::Request { t.red } else { t.text1 };
        label::text(&painter, pos2(rect.right() - 16.0, y), Align2::RIGHT_CENTER, &row.figure, Type::MonoStrong, ink);
        if row.note.is_empty() {
            continue;
        }
        // The note goes after its bar, beyond the request's line. Without room there it goes above or below the bar.
        let bar = place(i, 0.0, row.bytes as f64);
        let width = label::width(&painter, &row.note, Type::Body);
        let figure = rect.right() - 16.0 - label::width(&painter, &row.figure, Type::MonoStrong) - 12.0;
        let line = mark.map_or(bar.right(), |mark| scale.at(mark as f64));
        let beside = [bar.right(), bar.right().max(line)].map(|x| x + 10.0);
        let fits = |x: f32| x + width < figure;
        let crosses = (beside[0]..beside[0] + width).contains(&line);
        let last = i + 1 == rows.len();
        // Off the bar's row: before the request's line if it fits there, otherwise after it.
        let off = y + pitch / 2.0 * if last { -1.0 } else { 1.0 };
        let before = line - 8.0 - width;
        // The open part of a dashed outline has room for text.
        let inside = match row.fill {
            Fill::RoomFrom(least) => {
                Some(place(i, 0.0, least as f64).right() + 6.0).filter(|x| x + width < bar.right().min(line) - 4.0)
            }
            _ => None,
        };
        // Between two bars a note could be read as belonging to the other bar, so a long bar has its note on itself.
        let after = if line + width + 20.0 < bar.right() { line } else { bar.left() };
        let on_bar = bar.width() > width + 20.0 && !fits(beside[1]) && (crosses || !fits(beside[0]));
        let at = if on_bar {
            pos2(after + 10.0, y)
        } else if let Some(x) = inside {
            pos2(x, y)
        } else if fits(beside[0]) && !crosses {
            pos2(beside[0], y)
        } else if fits(beside[1]) {
            pos2(beside[1], y)
        } else if before >= plot.left() {
            pos2(before, off)
        } else if fits(line + 8.0) {
            pos2(line + 8.0, off)
        } else if fits(beside[0]) {
            pos2(beside[0], y)
        } else {
            pos2((figure - width).max(plot.left()), off)
        };
        // When the note fits on neither side of the line, it gets a background, so that the line does not run through it.
        let ground = Rect::from_min_size(at - vec2(3.0, 7.0), vec2(width + 6.0, 14.0));
        if on_bar || ground.x_range().contains(line) {
            painter.rect_filled(ground, 0.0, t.s1);
        }
        label::text(&painter, at, Align2::LEFT_CENTER, &row.note, Type::Body, t.text2);
    }
    ui.allocate_rect(rect, Sense::hover())
        .widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Request against holes"));
}

/// The holes end to end, largest first. Slices under 5 px are merged.
fn slices(batch: &mut Batch, cx: &ViewContext<'_>, case: &Case, place: impl Fn(f64, f64) -> Rect, scale: &Scale) {
    let t = cx.tokens;
    let mut at = 0u64;
    for (i, &hole) in case.hole_sizes.iter().enumerate() {
        if scale.at((at + hole) as f64) - scale.at(at as f64) < 5.0 {
            let rest: u64 = case.hole_sizes[i..].iter().sum();
            batch.hole(place(at as f64, (at + rest) as f64), t.s2, t.hatch, t.line2);
            return;
        }
        let mut slice = place(at as f64, (at + hole) as f64);
        slice.max.x -= 2.0;
        batch.hole(slice, t.s2, t.hatch, t.line2);
        at += hole;
    }
}
