//! The lane of operators: boxes by thread and depth, kernels by stream, with names or counts.

use std::sync::Arc;

use egui::{Align2, CursorIcon, Pos2, Rect, Role, Sense, Ui, WidgetInfo, pos2};

use super::lane::{Choice, Hit, Lane, Shared};
use crate::app::jobs::Derived;
use crate::app::state::{Action, TrackLayout};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::timeline::clock::{place_of_ns, time_ns};
use crate::app::views::timeline::layout::{Contents, OP_LINE, OP_WORDS, Track};
use crate::app::views::timeline::marks::Marks;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::Window;
use crate::app::widgets::{Batch, Cut, Tip, label};
use vramscope_core::model::{DeviceRecording, OpKind, OpTable};
use vramscope_core::tables::op_lanes::{OpRows, OpSpan, RowKind};
use vramscope_core::units::{Micros, count, counted};

#[derive(Default)]
pub(super) struct Operators {
    sorting: Derived<(), OpRows>,
    /// The rows; `None` without operators, or until they are sorted.
    rows: Option<Arc<OpRows>>,
    folding: Derived<(Window, usize), OpsPicture>,
    picture: Option<Arc<OpsPicture>>,
}

impl Operators {
    fn at(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<OpBox> {
        let picture = self.picture.as_ref()?;
        picture.hit(((at.y - rect.top()) / OP_LINE) as usize, picture.window.place(canvas.x.value(at.x)))
    }

    fn drawn(&self) -> Option<(&OpRows, &OpsPicture)> {
        self.rows.as_deref().zip(self.picture.as_deref())
    }
}

impl Lane for Operators {
    fn track(&self) -> Track {
        Track::Ops
    }

    fn height(&mut self, cx: &ViewContext<'_>, _marks: Option<&Marks>, contents: &mut Contents) {
        if cx.data.recording.ops.is_empty() || !cx.data.device().events.has_time {
            return;
        }
        let data = Arc::clone(cx.data);
        self.rows = self.sorting.get(cx.jobs, "operators", &(), move |_| Some(OpRows::build(&data.recording.ops))).value;
        contents.op_lines = self.rows.as_ref().map_or(0, |r| r.rows.len());
        contents.ops_height = cx.shared.tracks.ops_height;
    }

    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, _shared: &Shared) {
        self.picture = self.rows.as_ref().and_then(|rows| {
            let (window, lines) = (canvas.window, canvas.tracks.op_lines());
            let (data, of) = (Arc::clone(cx.data), Arc::clone(rows));
            let job = move |_: &_| Some(OpsPicture::compute(data.device(), &data.recording.ops, &of, window, lines));
            self.folding.get(cx.jobs, "timeline operators", &(window, lines), job).value
        });
    }

    fn paint(&self, _cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        if let Some((rows, picture)) = self.drawn() {
            canvas.ops(rect, rows, picture);
        }
    }

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit> {
        let found = self.at(canvas, rect, at)?;
        // An operator is a span of time; a click makes its events the range that all views follow.
        let (first, last) = canvas.op_events(&found);
        let cursor = if first <= last { last } else { first };
        let chooses = Some(Choice { cursor, range: (first < last).then_some((first, last)) });
        Some(Hit { chooses, extent: Some(canvas.op_places(&found)), ..Hit::told(self.track()) })
    }

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip> {
        Some(canvas.op_tip(&self.at(canvas, rect, at)?, self.rows.as_deref()?))
    }

    fn ui(&self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        resize(ui, cx, canvas, rect);
        if let Some((rows, picture)) = self.drawn() {
            canvas.op_names_ui(ui, rect, rows, picture);
        }
    }
}

/// Lets the user drag the line above the operators.
fn resize(ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
    let edge = canvas.pane.down(rect.top() - 5.0, rect.top() + 1.0);
    let id = ui.scope_id().with("operators height");
    let response = ui.interact(edge, id, Sense::click_and_drag());
    response.widget_info(|| WidgetInfo::labeled(Role::Splitter, true, "Height of the operators"));
    let response = response.on_hover_cursor(CursorIcon::ResizeVertical);
    let resize = |ops_height| cx.actions.send(Action::SetTracks(TrackLayout { ops_height, ..cx.shared.tracks }));
    if response.dragged()
        && let Some(pointer) = response.interact_pointer_pos()
    {
        // The height is set in whole lines from the pointer's position; summing small motions would be lost to rounding.
        resize(Some((rect.bottom() - pointer.y).clamp(OP_WORDS, canvas.pane.height())));
    }
    if response.double_clicked() {
        resize(None);
    }
}

/// A box of the operator lane: position in columns and contents.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpBox {
    pub left: f32,
    pub right: f32,
    pub line: u16,
    pub span: OpSpan,
    /// When the box holds several operators, the longest one, if there is room for its name.
    pub longest: Option<u32>,
}

/// Least width in columns of a box of several operators that is named after the longest one.
const NAMED_FROM: f32 = 60.0;

struct OpsPicture {
    pub window: Window,
    /// Rows of [`OpRows`] that are shown, top down.
    pub lines: Vec<usize>,
    /// Boxes line by line, left to right.
    pub boxes: Vec<OpBox>,
    /// For each line, the index of its first box; ends with the number of boxes.
    pub starts: Vec<usize>,
    /// Operators, calls and kernels in the window that share a box with others.
    pub folded: u64,
    /// Operators in the window whose rows are not shown.
    pub hidden: u64,
}

impl OpsPicture {
    /// Computes at most `most` lines. O(lines × columns × log operators).
    pub fn compute(device: &DeviceRecording, ops: &OpTable, rows: &OpRows, window: Window, most: usize) -> Self {
        // Takes the most telling rows, then sorts them for reading: the levels of a thread together, streams last.
        let mut lines: Vec<usize> = (0..rows.rows.len().min(most)).collect();
        let first_of = |lane: u16| rows.rows.iter().position(|r| r.lane == lane);
        lines.sort_by_key(|&i| (rows.rows[i].kind, first_of(rows.rows[i].lane), rows.rows[i].depth));
        let bounds = window.times_ns(device);
        let (mut boxes, mut starts) = (Vec::new(), Vec::new());
        let place = |ns: i64| window.place(place_of_ns(device, window.axis, ns));
        for (line, &row) in lines.iter().enumerate() {
            starts.push(boxes.len());
            for span in rows.spans(ops, row, &bounds) {
                let (mut left, mut right) = (span.left as f32, span.right as f32);
                let at = span.first as usize;
                if let (1, Some(&start), Some(end)) = (span.count, ops.start_ns.get(at), ops.end_ns(at)) {
                    (left, right) = (place(start).max(-1.0), place(end).min(window.columns as f32 + 1.0));
                    right = right.max(left + 1.0);
                }
                let longest = (span.count > 1 && right - left >= NAMED_FROM).then(|| rows.longest(ops, row, &span)).flatten();
                boxes.push(OpBox { left, right, line: line as u16, span, longest });
            }
        }
        starts.push(boxes.len());
        let folded = boxes.iter().filter(|b| b.span.count > 1).map(|b| u64::from(b.span.count)).sum();
        let within = bounds.first().copied().unwrap_or(0)..=bounds.last().copied().unwrap_or(0);
        let hidden =
            (0..rows.rows.len()).filter(|row| !lines.contains(row)).map(|row| rows.count_within(ops, row, &within)).sum();
        OpsPicture { window, lines, boxes, starts, folded, hidden }
    }

    pub fn hit(&self, line: usize, column: f32) -> Option<OpBox> {
        let boxes = self.boxes.get(*self.starts.get(line)?..*self.starts.get(line + 1)?)?;
        let at = boxes.partition_point(|b| b.left <= column).checked_sub(1)?;
        boxes.get(at).filter(|b| column <= b.right).copied()
    }
}

impl Canvas<'_> {
    /// Draws the lane. The gutter names each thread and stream beside its first line.
    fn ops(&self, rect: Rect, rows: &OpRows, picture: &OpsPicture) {
        let t = self.tokens;
        if picture.window.axis != self.window.axis {
            return;
        }
        let recording = &self.data.recording;
        let ops = &recording.ops;
        for (i, (area, text, _)) in self.op_names(rect, rows, picture).into_iter().enumerate() {
            label::text_in(self.painter, area, &text, Type::Caption, if i == 0 { t.text2 } else { t.text3 });
        }
        let words = folded_words(rows, picture);
        let place = rect.with_min_y(rect.bottom() - OP_WORDS + 1.0);
        label::text_in(self.painter, place, &words, Type::Caption, t.text3);
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        let mut names = Vec::new();
        for b in &picture.boxes {
            let Some(area) = self.op_rect(rect, b, picture) else { continue };
            // A box of several operators is pale, so that single operators stand out.
            let fill = if b.span.count > 1 { Tokens::at(t.other, 0.22) } else { Tokens::at(t.other, 0.75) };
            batch.rect_at_least_a_pixel(area, fill);
            let seen = area.intersect(rect);
            if seen.width() >= 14.0 {
                let named = |op: u32| ops.name.get(op as usize).map_or("", |&n| recording.stacks.text(n));
                let text = match (b.span.count, b.longest) {
                    (1, _) => short(named(b.span.first)),
                    (_, Some(op)) => short(named(op)),
                    (_, None) => "",
                };
                names.push((seen.shrink2(egui::vec2(3.0, 0.0)), text, b.span));
            }
        }
        batch.paint(&painter);
        for (area, text, span) in names {
            if span.count == 1 {
                if area.width() >= 24.0 {
                    label::text_in(&painter, area, text, Type::Caption, t.text1);
                }
                continue;
            }
            // The number, and the longest operator when there is room.
            let number = count(u64::from(span.count));
            let width = label::width(&painter, &number, Type::Mono);
            if area.width() >= width + 40.0 && !text.is_empty() {
                label::text(&painter, area.left_center(), Align2::LEFT_CENTER, &number, Type::Mono, t.text2);
                label::text_in(&painter, area.with_min_x(area.left() + width + 6.0), text, Type::Caption, t.text3);
            } else if area.width() >= width {
                label::text(&painter, area.center(), Align2::CENTER_CENTER, &number, Type::Mono, t.text2);
            }
        }
    }

    /// The gutter's names of groups of lines: rectangle, short name, full name.
    fn op_names(&self, rect: Rect, rows: &OpRows, picture: &OpsPicture) -> Vec<(Rect, String, String)> {
        let lanes = &self.data.recording.ops.lanes;
        let mut before = None;
        let mut out = Vec::new();
        // The picture may still be that of another height.
        for (line, &row) in picture.lines.iter().take(self.tracks.op_lines()).enumerate() {
            let Some(row) = rows.rows.get(row) else { continue };
            if before.replace((row.lane, row.kind)) == Some((row.lane, row.kind)) {
                continue;
            }
            let name = lanes.get(usize::from(row.lane)).map_or("", |l| l.name.as_str());
            let (text, whole) = match row.kind {
                RowKind::Thread if line == 0 => ("Operators".to_owned(), format!("Operators of {name}")),
                RowKind::Thread => (name.split(" (").next().unwrap_or(name).to_owned(), format!("Operators of {name}")),
                RowKind::Launches => {
                    ("launches".to_owned(), "Calls of every thread into the runtime: launches, copies, cudaMalloc".to_owned())
                }
                RowKind::Stream => (
                    format!("stream {}", name.split_once(" stream").map_or(name, |(_, s)| s.trim())),
                    format!("Kernels and copies of {name}"),
                ),
            };
            let top = rect.top() + line as f32 * OP_LINE;
            let area = Rect::from_min_max(pos2(self.pane.left() + 12.0, top - 1.0), pos2(rect.left() - 6.0, top + OP_LINE));
            out.push((area, text, whole));
        }
        out
    }

    /// Shows names that were cut in full on hover.
    fn op_names_ui(&self, ui: &Ui, rect: Rect, rows: &OpRows, picture: &OpsPicture) {
        for (i, (area, _, whole)) in self.op_names(rect, rows, picture).into_iter().enumerate() {
            ui.interact(area, ui.scope_id().with(("op name", i)), Sense::hover()).on_hover_text(whole);
        }
    }

    /// The rectangle of a box; `None` outside the window.
    fn op_rect(&self, lane: Rect, b: &OpBox, picture: &OpsPicture) -> Option<Rect> {
        let have = &picture.window;
        let at = |column: f32| self.x.at(have.at(column.into()));
        let (left, right) = (at(b.left), at(b.right));
        let gap = if right - left > 3.0 { 1.0 } else { 0.0 };
        let top = lane.top() + f32::from(b.line) * OP_LINE;
        (right >= lane.left() && left <= lane.right())
            .then(|| Rect::from_min_max(pos2(left, top), pos2(right - gap, top + OP_LINE - 1.0)))
    }

    /// The tooltip of an operator, or of a box of several.
    fn op_tip(&self, b: &OpBox, rows: &OpRows) -> Tip {
        let recording = &self.data.recording;
        let ops = &recording.ops;
        let i = b.span.first as usize;
        let text = |id: Option<&vramscope_core::model::StrId>| id.map_or("", |&s| recording.stacks.text(s));
        let name = text(ops.name.get(i));
        let lane = ops.lane.get(i).and_then(|&l| ops.lanes.get(usize::from(l))).map_or("", |l| l.name.as_str());
        if b.span.count > 1 {
            let deeper = match rows.left_out {
                0 => String::new(),
                n => format!(" {} more of the recording lie deeper, or in threads and streams without a line.", count(n)),
            };
            let [one, several] = match ops.kind.get(i) {
                Some(OpKind::Runtime) => ["call", "calls"],
                Some(OpKind::Kernel | OpKind::Copy) => ["kernel or copy", "kernels and copies"],
                Some(OpKind::Operator) | None => ["operator", "operators"],
            };
            let mut tip = Tip::new(counted(u64::from(b.span.count), one, several)).row("first", name);
            if let Some(op) = b.longest {
                tip = tip.row("longest", text(ops.name.get(op as usize)));
            }
            return tip.row("on", lane).note(format!("Too narrow to be drawn one by one: zoom in to see them.{deeper}"));
        }
        let kind = match ops.kind.get(i) {
            Some(OpKind::Operator) | None => "operator",
            Some(OpKind::Runtime) => "call",
            Some(OpKind::Kernel) => "kernel",
            Some(OpKind::Copy) => "copy",
        };
        let duration = ops.duration_ns.get(i).copied().unwrap_or(0);
        let lasts = if duration < 10_000 {
            format!("{duration} ns")
        } else {
            Micros(i64::try_from(duration / 1_000).unwrap_or(i64::MAX)).to_string()
        };
        let mut tip = Tip::new(name).width(320.0).row(kind, lane).row("lasts", lasts);
        if let Some(&shapes) = ops.shapes.get(i).filter(|s| **s != vramscope_core::model::OpTable::NO_TEXT) {
            tip = tip.row("shapes", recording.stacks.text(shapes));
        }
        if let Some(&forward) = ops.forward.get(i).filter(|f| **f != vramscope_core::model::OpTable::NO_OP) {
            tip = tip.row("backward of", text(ops.name.get(forward as usize)));
        }
        let (first, last) = self.op_events(b);
        let inside = u64::from((last + 1).saturating_sub(first));
        tip.row("memory events", count(inside))
    }

    /// Start and end of a box on the axis.
    fn op_places(&self, b: &OpBox) -> (f64, f64) {
        let device = self.data.device();
        let ops = &self.data.recording.ops;
        let first = b.span.first as usize;
        let place = |ns: i64| place_of_ns(device, self.window.axis, ns);
        match (b.span.count, ops.start_ns.get(first), ops.end_ns(first)) {
            (1, Some(&start), Some(end)) => (place(start), place(end)),
            _ => (self.window.at(b.left.into()), self.window.at(b.right.into())),
        }
    }

    /// First and last event within the time of a box; `last` is before `first` when there are none.
    fn op_events(&self, b: &OpBox) -> (u32, u32) {
        let device = self.data.device();
        let ops = &self.data.recording.ops;
        let first = b.span.first as usize;
        let start = ops.start_ns.get(first).copied().unwrap_or(0);
        let end = if b.span.count == 1 {
            ops.end_ns(first).unwrap_or(start)
        } else {
            time_ns(device, self.window.axis, self.window.at(b.right.into()))
        };
        let times = &device.events.time_us;
        // The allocator's clock counts whole microseconds.
        let from = times.partition_point(|&t| t.saturating_mul(1_000) < start - 1_000) as u32;
        let to = times.partition_point(|&t| t.saturating_mul(1_000) <= end) as u32;
        (from, to.max(from).wrapping_sub(1))
    }
}

/// A short name: `mm` for `aten::mm`, and only the function for a kernel template.
fn short(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let plain = name.split(['<', '(']).next().filter(|n| !n.is_empty()).unwrap_or(name);
    plain.rsplit("::").next().filter(|n| !n.is_empty()).unwrap_or(plain)
}

/// How many operators have no box of their own, and how to see them.
fn folded_words(rows: &OpRows, picture: &OpsPicture) -> String {
    let mut parts = Vec::new();
    if picture.folded > 0 {
        parts.push(format!("{} folded, narrower than 3 pixels: zoom in", count(picture.folded)));
    }
    if picture.hidden > 0 {
        parts.push(format!("{} in more lines: drag the upper edge", count(picture.hidden)));
    }
    if rows.left_out > 0 {
        parts.push(format!("{} deeper or elsewhere", count(rows.left_out)));
    }
    if parts.is_empty() { "Every operator has a box of its own".to_owned() } else { parts.join(" · ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::shared::Axis;
    use crate::app::state::toys::device_at;
    use vramscope_core::model::{OpLane, StrId};

    #[test]
    fn an_operator_is_found_where_it_is_drawn() {
        let d = device_at(&[0, 1_000]);
        let mut ops = OpTable { lanes: vec![OpLane { name: "main".to_owned(), is_device: false }], ..OpTable::default() };
        for (start, length) in [(100_000, 400_000u64), (700_000, 100)] {
            ops.start_ns.push(start);
            ops.duration_ns.push(length);
            ops.depth.push(0);
            ops.name.push(StrId(0));
            ops.lane.push(0);
            ops.kind.push(OpKind::Operator);
            ops.shapes.push(OpTable::NO_TEXT);
            ops.forward.push(OpTable::NO_OP);
        }
        let rows = OpRows::build(&ops);
        let window = Window { axis: Axis::Time, from: 0.0, to: 1_000.0, columns: 100 };
        let p = OpsPicture::compute(&d, &ops, &rows, window, 5);
        assert_eq!(p.hit(0, 30.0).map(|b| b.span.first), Some(0));
        assert_eq!(p.hit(0, 60.0), None);
        assert_eq!(p.hit(0, 70.5).map(|b| b.span.first), Some(1));
        assert_eq!(p.hit(1, 30.0), None);
        assert_eq!((p.boxes[0].left, p.boxes[0].right), (10.0, 50.0));
    }
}
