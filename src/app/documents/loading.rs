//! The page shown while a file is read: progress, and curves of the part that was read. The curves can be panned, zoomed and
//! clicked; the views then open at the same range and event.

use egui::{Align2, Rect, Sense, Stroke, Ui, pos2, vec2};

use super::loader::Loading;
use crate::app::state::{Action, Actions, Axis, DocumentId, SharedViewState};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Batch, Cut, Gesture, Intent, PanZoom, PixelColumn, Scale, UnitAt, byte_ticks, event_ticks, label, most_across, most_down,
};
use vramscope_core::model::{PreviewPoint, Stage};
use vramscope_core::units::{Bytes, count};

/// The visible range and the cursor on the loading page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// The visible range of events; `None` until the user zooms or pans.
    window: Option<PanZoom>,
    cursor: Option<u32>,
}

impl Look {
    /// Gives the range and the event of this page to the views, when they show the same device. In a file that is not in time
    /// order, reading may reorder events later, so the place can be off.
    pub fn carry_over(&self, curves_of: Option<u16>, device: usize, events: usize, shared: &mut SharedViewState) {
        if curves_of.map(usize::from) != Some(device) || shared.axis != Axis::Event || events == 0 {
            return;
        }
        if let Some(window) = self.window.filter(|w| !w.is_fit()) {
            let mut all = PanZoom::new(0.0, events as f64);
            let (from, to) = window.visible();
            all.show(from, to);
            (shared.from, shared.to) = all.visible();
        }
        if let Some(event) = self.cursor {
            shared.cursor = event.min(events as u32 - 1);
        }
    }
}

/// Draws progress, stages and the curves so far.
pub(in crate::app) fn page(ui: &mut Ui, tokens: &Tokens, loading: &mut Loading, title: &str, id: DocumentId, actions: &Actions) {
    let rect = ui.max_rect();
    ui.ctx().request_repaint_after(std::time::Duration::from_millis(33));
    if loading.is_young() {
        return;
    }
    let (stage, of_stage) = loading.progress.stage();
    // The curves show the part of the file that was read.
    let fraction = if stage == Stage::Reading { of_stage.unwrap_or(0.0) } else { 1.0 };
    let line = Rect::from_min_size(rect.min, vec2(rect.width() * of_stage.unwrap_or(0.0), 2.0));
    ui.painter().rect_filled(line, 0.0, tokens.accent);

    let side = if rect.width() > 900.0 { 100.0 } else { 64.0 };
    let plot = Rect::from_x_y_ranges(
        rect.left() + side..=rect.right() - 40.0f32.min(side),
        rect.top() + 92.0..=rect.top() + (rect.height() * 0.66).max(92.0),
    );
    let cancel = Rect::from_center_size(pos2(plot.right() - 40.0, rect.top() + 32.0), vec2(80.0, 24.0));
    if ui.put(cancel, egui::Button::new("Cancel")).clicked() {
        actions.send(Action::Close(id));
    }
    let words = match (stage, of_stage) {
        (Stage::Reading, Some(f)) => format!("Reading {title}, {:.0} %", f * 100.0),
        (Stage::Reading, None) => format!("Reading {title}"),
        _ => format!("Preparing {title}: {}", loading.now()),
    };
    let room = rect.lines(20.0, 44.0).across(plot.left(), cancel.left() - 12.0);
    label::text_in(ui.painter(), room, &words, Type::Lead, tokens.text1);
    stages(ui, tokens, loading, plot.down(rect.top() + 52.0, rect.top() + 72.0));
    provisional(ui, tokens, loading, fraction, plot);
}

/// Draws the curves of the part that was read. Their base amount is known only at the end of the file, so they are drawn relative
/// to their minimum.
fn provisional(ui: &mut Ui, tokens: &Tokens, loading: &mut Loading, fraction: f32, plot: Rect) {
    let Loading { preview, look, .. } = loading;
    let device = preview.first().map_or(0, |f| f.device);
    let points = &preview[..preview.iter().position(|p| p.device != device).unwrap_or(preview.len())];
    let (Some(last), true) = (points.last(), points.len() >= 2 && plot.height() > 40.0) else { return };
    // The curves take as much of the width as was read of the file.
    let events = (f64::from(last.event) / f64::from(fraction.max(0.02))).max(1.0);
    let window = look.window.get_or_insert_with(|| PanZoom::new(0.0, events));
    window.set_domain(0.0, events, false);
    let response = ui.interact(plot, ui.scope_id().with("curves so far"), Sense::click_and_drag());
    let gesture = Gesture::read(&response);
    let x = window.horizontal(plot.x_range());
    match gesture.intent {
        // Nothing can be selected beyond the part that was read.
        Some(Intent::Click(at)) => look.cursor = Some((x.value(at.x).max(0.0) as u32).min(last.event)),
        Some(intent) => _ = window.apply(&intent, &x, false),
        None => {}
    }
    let x = window.horizontal(plot.x_range());

    let lowest = |of: fn(&PreviewPoint) -> i64| points.iter().map(of).min().unwrap_or(0).min(0);
    let from = (lowest(|p| p.reserved), lowest(|p| p.requested));
    let above = |p: &PreviewPoint| (p.reserved.saturating_sub(from.0), p.requested.saturating_sub(from.1));
    // Includes one point on each side, so that the lines reach the edges of the plot.
    let (left, right) = window.visible();
    let begin = points.partition_point(|p| f64::from(p.event) < left).saturating_sub(1);
    let end = (points.partition_point(|p| f64::from(p.event) <= right) + 1).min(points.len());
    let seen = &points[begin.min(end)..end];
    let high = seen.iter().map(above).map(|(r, q)| r.max(q)).max().unwrap_or(0).max(1) as f64;
    let y = Scale::vertical(0.0, high * 1.08, plot.y_range());
    let bytes = byte_ticks(0.0, high * 1.08, most_down(plot.height()));
    let mut grid = Batch::new(ui.painter());
    bytes.grid_down(&mut grid, tokens, &y, plot);
    grid.paint(ui.painter());
    // One column per pixel, because a polyline would draw spikes at its joints.
    let pixel = 1.0 / ui.ctx().pixels_per_point();
    let read_to = f64::from(last.event);
    let (mut at, mut here) = (0, seen.first().map(above).unwrap_or_default());
    let columns: Vec<_> = (0..(plot.width() / pixel) as usize)
        .map(|i| {
            let (start, end) = (x.value(plot.left() + i as f32 * pixel), x.value(plot.left() + (i + 1) as f32 * pixel));
            let mut most = None;
            while let Some(point) = seen.get(at).filter(|p| f64::from(p.event) < end) {
                here = above(point);
                let (r, q) = most.unwrap_or(here);
                most = Some((here.0.max(r), here.1.max(q)));
                at += 1;
            }
            (start <= read_to).then(|| most.unwrap_or(here))
        })
        .collect();
    let curve = |of: fn((i64, i64)) -> i64| -> Vec<Option<PixelColumn>> {
        columns.iter().map(|c| c.map(|c| PixelColumn::level(y.at(of(c) as f64)))).collect()
    };
    let (reserved, requested) = (curve(|c| c.0), curve(|c| c.1));
    let mut lines = Batch::new(ui.painter());
    lines.fill_under(&requested, plot.left(), plot.bottom(), Tokens::at(tokens.slot(0), 0.30));
    lines.curve(&requested, plot.left(), 1.0, tokens.slot(0));
    lines.curve(&reserved, plot.left(), 1.5, tokens.text1);
    let inside = ui.painter().with_clip_rect(plot.expand(1.0));
    lines.paint(&inside);
    if let Some(cursor) = look.cursor {
        inside.vline(x.at(f64::from(cursor)), plot.y_range(), Stroke::new(1.0, tokens.accent));
    }
    ui.painter().hline(plot.x_range(), plot.bottom(), Stroke::new(1.0, tokens.line2));
    bytes.paint_down(ui.painter(), tokens, &y, plot.left() - 8.0, plot.y_range(), UnitAt::Last);
    let below = plot.down(plot.bottom() + 2.0, plot.bottom() + 22.0);
    // Only the part that was read is numbered, because the rest is an estimate.
    let read = f64::from(last.event).min(right);
    let width = x.at(read) - plot.left();
    if read > left {
        event_ticks(left, read, most_across(width)).paint_across(ui.painter(), tokens, &x, below, UnitAt::Nowhere);
    }
    // A legend, followed by what the curves do not show yet.
    let line = below.bottom() + 18.0;
    let mut at = plot.left();
    for (name, ink) in [("reserved", tokens.text1), ("requested", tokens.slot(0))] {
        ui.painter().hline(at..=at + 16.0, line, Stroke::new(2.0, ink));
        let place = pos2(at + 22.0, line);
        at = label::text(ui.painter(), place, Align2::LEFT_CENTER, name, Type::Body, tokens.text2).right() + 20.0;
    }
    let rest = Rect::from_min_max(pos2(at, line - 10.0), pos2(plot.right(), line + 10.0));
    let pointed = gesture.hover.map(|at| x.value(at.x)).filter(|e| *e >= 0.0 && *e <= f64::from(last.event));
    let words =
        match pointed.and_then(|event| points.get(points.partition_point(|p| f64::from(p.event) <= event).checked_sub(1)?)) {
            Some(point) => {
                if let Some(at) = gesture.hover {
                    inside.vline(at.x, plot.y_range(), Stroke::new(1.0, tokens.line2));
                }
                let (reserved, requested) = above(point);
                let (reserved, requested) = (Bytes(reserved.unsigned_abs()), Bytes(requested.unsigned_abs()));
                let event = count(u64::from(point.event));
                format!("at event {event}: reserved {reserved}, requested {requested} above the lowest so far")
            }
            None => "so far, over events: from the lowest that was read; what was there before the first event is not known yet"
                .to_owned(),
        };
    label::text_in(ui.painter(), rest, &words, Type::Caption, tokens.text3);
}

/// The stages in a row: done, running with its progress, still to do.
fn stages(ui: &Ui, tokens: &Tokens, loading: &Loading, room: Rect) {
    let (now, fraction) = loading.progress.stage();
    let mut x = room.left();
    for stage in loading.stages() {
        let name = stage.text();
        let width = label::width(ui.painter(), name, Type::Body).max(36.0);
        if x + width > room.right() {
            break;
        }
        let share = match stage.cmp(&now) {
            std::cmp::Ordering::Less => 1.0,
            std::cmp::Ordering::Equal => fraction.unwrap_or(0.0),
            std::cmp::Ordering::Greater => 0.0,
        };
        let track = Rect::from_min_size(pos2(x, room.bottom() - 2.0), vec2(width, 2.0));
        ui.painter().rect_filled(track, 0.0, tokens.line2);
        ui.painter().rect_filled(track.with_max_x(x + width * share), 0.0, tokens.accent);
        let ink = if stage == now {
            tokens.text1
        } else if stage < now {
            tokens.text2
        } else {
            tokens.text3
        };
        let place = Rect::from_min_max(pos2(x, room.top()), pos2(x + width + 1.0, room.bottom() - 2.0));
        label::text_in(ui.painter(), place, name, Type::Body, ink);
        x += width + 18.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::DeviceRecording;

    fn looked() -> Look {
        let mut window = PanZoom::new(0.0, 2000.0);
        window.show(200.0, 400.0);
        Look { window: Some(window), cursor: Some(300) }
    }

    #[test]
    fn the_views_open_where_one_looked() {
        let mut shared = SharedViewState::new(&DeviceRecording::default());
        looked().carry_over(Some(1), 1, 1000, &mut shared);
        assert_eq!((shared.from, shared.to, shared.cursor), (200.0, 400.0, 300));
    }

    #[test]
    fn another_device_or_axis_keeps_its_own_place() {
        let mut shared = SharedViewState::new(&DeviceRecording::default());
        let before = (shared.from, shared.to, shared.cursor);
        looked().carry_over(Some(0), 1, 1000, &mut shared);
        looked().carry_over(None, 0, 1000, &mut shared);
        shared.axis = Axis::Time;
        looked().carry_over(Some(1), 1, 1000, &mut shared);
        assert_eq!((shared.from, shared.to, shared.cursor), before);
    }

    #[test]
    fn a_place_past_the_end_is_the_end() {
        let mut shared = SharedViewState::new(&DeviceRecording::default());
        looked().carry_over(Some(0), 0, 250, &mut shared);
        assert_eq!(shared.cursor, 249);
        assert!(shared.to <= 250.0 && shared.from < shared.to, "{} {}", shared.from, shared.to);
    }
}
