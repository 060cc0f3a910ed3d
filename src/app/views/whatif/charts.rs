//! Reserved memory over the recording for each plotted setting, without and with the limit.

use egui::{Align2, Color32, Rangef, Rect, Role, Sense, Ui, pos2};

use super::ViewContext;
use super::layout::{StepBox, resample, step_lane};
use super::model::{WhatIfView, outcome};
use crate::app::state::Action;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, DASH_LIMIT, PaneHeader, PixelColumn, Scale, byte_scale, event_ticks, label, most_across, paint_chip_in,
    paint_flag, spread, told_at,
};
use vramscope_core::anatomy::steps::number;
use vramscope_core::inference::whatif::Answer;
use vramscope_core::tables::Quantity;
use vramscope_core::units::{SizeColumn, count};

struct Line {
    answer: std::sync::Arc<Answer>,
    points: Vec<(u32, u64)>,
    name: String,
    colour: Color32,
    width: f32,
}

impl WhatIfView {
    pub(super) fn charts(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        PaneHeader::new("Reserved memory, as recorded and replayed").caption("by event of the recording").show(ui, |_| {});
        let rect = ui.available_rect_before_wrap();
        let ends = if rect.width() > 620.0 { (rect.width() * 0.36).clamp(270.0, 450.0) } else { 16.0 };
        let x = Rangef::new(rect.left() + 100.0, rect.right() - ends);
        let axis = rect.down(rect.bottom() - 26.0, rect.bottom() - 6.0);
        let steps = cx.findings.map(|f| f.steps.bounds.as_slice()).filter(|b| b.len() > 1);
        let lane = if steps.is_some() { 22.0 } else { 0.0 };
        let axis = axis.translate(egui::vec2(0.0, -lane));
        let height = axis.top() - rect.top() - 18.0 - 22.0;
        let upper = Rect::from_x_y_ranges(x, rect.top() + 18.0..=rect.top() + 18.0 + height * 0.52);
        let lower = Rect::from_x_y_ranges(x, upper.bottom() + 22.0..=axis.top());
        let canvas = upper.union(lower);
        let response = told_at(
            ui,
            canvas,
            "what-if charts",
            Sense::click_and_drag(),
            Role::Canvas,
            || "Reserved memory of the plotted settings",
        );
        let events = cx.data.device().events.len() as f64;
        let scale = Scale::horizontal(0.0, events.max(1.0), x);
        self.chart(ui, cx, upper, &scale, None);
        if let Some(limit) = self.limit() {
            self.chart(ui, cx, lower, &scale, Some(limit));
        }
        let t = cx.tokens;
        let p = ui.painter();
        let name = axis.across(rect.left() + 12.0, x.min);
        label::text_in(p, name, "Event", Type::Body, t.text2);
        event_ticks(0.0, events, most_across(x.span())).label_across(p, t, &scale, axis.across(x.min - 20.0, x.max + 60.0));
        if let Some(bounds) = steps {
            let room = Rect::from_x_y_ranges(x, axis.bottom()..=axis.bottom() + 16.0);
            self.steps(ui, cx, room, &scale, bounds);
            let name = room.across(rect.left() + 12.0, x.min);
            label::text_in(p, name, "Steps", Type::Body, t.text2);
        }
        let through = Rangef::new(upper.top(), lower.bottom());
        let mut batch = Batch::new(p);
        let at_event = |e: u32| scale.at(f64::from(e) + 0.5);
        if let Some(e) = cx.shared.hover_event {
            batch.vline(at_event(e), through, 1.0, Tokens::at(t.text1, 0.4));
        }
        batch.vline(at_event(cx.shared.cursor), through, 1.0, t.text1);
        batch.paint(p);
        if (response.clicked() || response.dragged())
            && let Some(at) = response.interact_pointer_pos()
        {
            let event = scale.value(at.x).clamp(0.0, (events - 1.0).max(0.0)) as u32;
            cx.actions.send(Action::SetCursor(event));
        }
        if response.hovered()
            && let Some(at) = response.hover_pos()
        {
            let event = scale.value(at.x).clamp(0.0, (events - 1.0).max(0.0)) as u32;
            if cx.shared.hover_event != Some(event) {
                cx.actions.send(Action::HoverEvent(Some(event)));
            }
        }
    }

    fn steps(&self, ui: &Ui, cx: &ViewContext<'_>, room: Rect, x: &Scale, bounds: &[u32]) {
        let t = cx.tokens;
        let p = ui.painter();
        let lane = step_lane(bounds, |e| x.at(e));
        let mut batch = Batch::new(p);
        for b in &lane {
            let right = (b.range.max - 1.0).max(b.range.min + 1.0);
            let at = Rect::from_x_y_ranges(Rangef::new(b.range.min, right), room.y_range());
            let is_here = (b.range.min..b.range.max).contains(&x.at(f64::from(cx.shared.cursor) + 0.5));
            let still = if b.count > 1 { t.other } else { t.s3 };
            batch.rect(at, if is_here { t.s4 } else { still });
        }
        batch.paint(p);
        for b in lane.iter().filter(|b| b.is_told) {
            let at = room.middle(b.range.center());
            label::text(p, at, Align2::CENTER_CENTER, &number(b.first), Type::Key, t.text2);
        }
        // Boxes of several steps are too narrow for a number, so one label counts all of them.
        let folded = |b: &&StepBox| b.count > 1;
        let (first, last) = (lane.iter().find(folded), lane.iter().rev().find(folded));
        if let (Some(first), Some(last)) = (first, last) {
            let most = lane.iter().map(|b| b.count).max().unwrap_or(1);
            let total: usize = lane.iter().map(|b| b.count).sum();
            let text = format!("{} steps, up to {} a box", count(total as u64), count(most as u64));
            let width = label::width(p, &text, Type::Caption) + 12.0;
            let run = Rangef::new(first.range.min, last.range.max);
            if width < run.span() {
                paint_chip_in(p, room.middle(run.center()), Align2::CENTER_CENTER, &text, Type::Caption, t.text1, t.s1);
            }
        }
    }

    /// The plotted curves, with the selected one last.
    fn lines(&self, cx: &ViewContext<'_>, limit: Option<u64>) -> Vec<Line> {
        let mut order: Vec<usize> =
            (0..self.settings.len()).filter(|&i| self.settings[i].is_plotted || i == self.selected).collect();
        order.sort_by_key(|&i| (i == self.selected, i == 0, std::cmp::Reverse(i)));
        let recorded_peak = cx.data.tables.curves.peak(Quantity::Reserved).0;
        order
            .into_iter()
            .filter_map(|i| {
                let answer = self.answer(i, limit)?;
                let points = answer.curve.event.iter().copied().zip(answer.curve.reserved.iter().copied()).collect();
                let name = match i {
                    0 if limit.is_none() && answer.row.peak_reserved_bytes == recorded_peak => "as recorded".to_owned(),
                    0 => "recorded setting".to_owned(),
                    _ => self.settings[i].title.clone(),
                };
                let colour = self.colour(i, cx.tokens);
                let width = if i == 0 || i == self.selected { 2.0 } else { 1.25 };
                Some(Line { answer, points, name, colour, width })
            })
            .collect()
    }

    fn chart(&self, ui: &Ui, cx: &ViewContext<'_>, rect: Rect, x: &Scale, limit: Option<u64>) {
        let t = cx.tokens;
        let p = ui.painter();
        let lines = self.lines(cx, limit);
        let own = self.answer(0, None);
        let recorded_peak = cx.data.tables.curves.peak(Quantity::Reserved).0;
        let top = lines.iter().map(|l| l.answer.row.peak_reserved_bytes).max().unwrap_or(0);
        let top = if limit.is_none() { top.max(recorded_peak) } else { top };
        // Allocated memory is drawn as recorded, also where the limit is below it.
        let top = own.as_ref().map_or(top, |own| top.max(own.row.peak_allocated_bytes));
        let cap = self.limit().filter(|&l| limit.is_some() || l <= top.saturating_add(top / 2));
        let top = top.max(cap.unwrap_or(0)).max(1) as f64 * 1.06;
        let y = Scale::vertical(0.0, top, rect.y_range());
        let title = if limit.is_some() { "With the limit" } else { "No limit" };
        byte_scale(p, t, rect, &y, rect.left() - 88.0, title);
        let mut batch = Batch::new(p);
        let columns = batch.columns(rect.width());
        let (from, to) = (x.value(rect.left()), x.value(rect.right()));
        let level = |v: u64| PixelColumn::level(y.at(v as f64));
        let curve = |points: &[(u32, u64)]| -> Vec<Option<PixelColumn>> {
            resample(points, from, to, columns).into_iter().map(|v| v.map(level)).collect()
        };
        if let Some(own) = &own {
            let points: Vec<(u32, u64)> = own.curve.event.iter().copied().zip(own.curve.allocated.iter().copied()).collect();
            let fill = Tokens::over(t.other, t.s1, if t.dark { 0.3 } else { 0.24 });
            batch.fill_under(&curve(&points), rect.left(), rect.bottom(), fill);
        }
        for line in &lines {
            batch.curve(&curve(&line.points), rect.left(), line.width, line.colour);
        }
        let mut recorded_end = 0;
        if limit.is_none() {
            // The recorded curve. It matches the curve of the recorded setting up to the first failed request.
            let bounds: Vec<u32> =
                (0..=columns).map(|i| (from + (to - from) * i as f64 / columns as f64).round() as u32).collect();
            let cells = cx.data.tables.curves.columns(cx.data.device(), &cx.data.tables.lifetimes, Quantity::Reserved, &bounds);
            let recorded: Vec<Option<PixelColumn>> = cells.iter().map(|c| Some(level(c.max))).collect();
            batch.curve(&recorded, rect.left(), 1.5, t.text1);
            recorded_end = cells.last().map_or(0, |c| c.last);
        }
        // Drawn over the curves, so that it stays visible where a curve runs along it.
        if let Some(cap) = cap {
            batch.dashed_hline(rect.x_range(), y.at(cap as f64), 1.0, DASH_LIMIT, t.red);
        }
        batch.paint(p);
        self.flags(ui, cx, rect, x, &lines);
        let mut named: Vec<End> = Vec::new();
        for line in lines.iter().filter(|l| !l.answer.row.oom) {
            let (event, bytes) = line.points.last().copied().unwrap_or_default();
            let kind = if line.width > 1.5 { Type::Strong } else { Type::Body };
            let peak = line.answer.row.peak_reserved_bytes;
            named.push(End { x: x.at(f64::from(event)), bytes, name: line.name.clone(), peak, colour: line.colour, kind });
        }
        let own_peak = own.as_ref().map(|o| o.row.peak_reserved_bytes);
        if limit.is_none() && own_peak.is_some_and(|own| own != recorded_peak) {
            let (x, name, peak) = (rect.right(), "the recording".to_owned(), recorded_peak);
            named.push(End { x, bytes: recorded_end, name, peak, colour: t.text1, kind: Type::Strong });
        }
        if let Some(cap) = cap {
            let (x, name) = (rect.right(), "limit".to_owned());
            named.push(End { x, bytes: cap, name, peak: cap, colour: t.red, kind: Type::Body });
        }
        ends(ui, cx, rect, &y, &named, self.sizes());
    }

    /// Draws a flag where a run fails.
    fn flags(&self, ui: &Ui, cx: &ViewContext<'_>, rect: Rect, x: &Scale, lines: &[Line]) {
        let mut failures: Vec<(u32, &Line)> =
            lines.iter().filter(|l| l.answer.row.oom).map(|l| (l.answer.curve.event.last().copied().unwrap_or(0), l)).collect();
        failures.sort_by_key(|f| f.0);
        let mut last: Option<f32> = None;
        for (event, _) in &failures {
            let at = x.at(f64::from(*event)).clamp(rect.left() + 16.0, rect.right() - 16.0);
            if last.is_none_or(|l| at - l > 44.0) {
                paint_flag(ui.painter(), cx.tokens, pos2(at, rect.top() + 4.0), "OOM");
                last = Some(at);
            }
        }
        if let (Some((_, first)), Some(last)) = (failures.first(), last) {
            let text = if failures.len() == 1 {
                format!("{} {}", first.name, outcome(&first.answer).0)
            } else {
                format!("{} of {} plotted settings fail", count(failures.len() as u64), count(lines.len() as u64))
            };
            let is_left = last > rect.center().x;
            let (at, anchor) = if is_left { (last - 24.0, Align2::RIGHT_CENTER) } else { (last + 24.0, Align2::LEFT_CENTER) };
            // The label must not cover the axis, so a long setting loses its middle, as at the end of its curve.
            let room = if is_left { at - rect.left() } else { rect.right() - at } - 8.0;
            let told = format!(" {}", outcome(&first.answer).0);
            let text = if failures.len() > 1 || label::width(ui.painter(), &text, Type::Caption) <= room {
                text
            } else {
                let room = room - label::width(ui.painter(), &told, Type::Caption);
                label::without_middle(ui.painter(), &first.name, Type::Caption, room) + &told
            };
            paint_chip_in(ui.painter(), pos2(at, rect.top() - 3.0), anchor, &text, Type::Caption, cx.tokens.text2, cx.tokens.s1);
        }
    }
}

/// A label at the right end of a chart.
struct End {
    /// Where its curve ends, in screen points.
    x: f32,
    bytes: u64,
    name: String,
    peak: u64,
    colour: Color32,
    kind: Type,
}

/// The names and peaks of the curves, and the limit, right of the chart so that nothing covers the curves.
fn ends(ui: &Ui, cx: &ViewContext<'_>, rect: Rect, y: &Scale, named: &[End], sizes: SizeColumn) {
    let right = ui.max_rect().right();
    if right - rect.right() < 100.0 {
        return;
    }
    let t = cx.tokens;
    let p = ui.painter();
    let wanted: Vec<f32> = named.iter().map(|e| y.at(e.bytes as f64)).collect();
    // Many names move closer together, so that they do not reach into the header.
    let gap = (rect.height() / named.len().saturating_sub(1).max(1) as f32).clamp(13.0, 16.0);
    let places = spread(&wanted, gap, rect.y_range());
    for ((end, from), to) in named.iter().zip(&wanted).zip(&places) {
        let start = rect.right().min(end.x).max(rect.right() - 1.0);
        p.line_segment([pos2(start + 1.0, *from), pos2(rect.right() + 9.0, *to)], egui::Stroke::new(1.0, end.colour));
        let place = Rect::from_min_max(pos2(rect.right() + 14.0, to - 8.0), pos2(right - 12.0, to + 8.0));
        let (ink, figure_ink) = if end.colour == t.red { (t.red, t.red) } else { (t.text2, t.text1) };
        let value = label::text_in_right(p, place, &sizes.sized(end.peak), Type::Mono, figure_ink);
        let room = place.with_max_x(value.left() - 6.0);
        let name = label::without_middle(p, &end.name, end.kind, room.width());
        label::text_in(p, room, &name, end.kind, ink);
    }
}
