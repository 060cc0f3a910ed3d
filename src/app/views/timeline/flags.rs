//! What happened between the allocator and the device, as marks: the lane of device calls, and the pennants on the curves.

use egui::{Align2, Rangef, Rect, Shape, pos2, vec2};

use super::layout::Track;
use super::marks::{Marks, Why};
use super::paint::Canvas;
use super::picture::{Window, WindowPicture};
use crate::app::state::cursor;
use crate::app::state::cursor::Axis;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::{chip, label};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::DeviceRecording;
use vramscope_core::units::{Bytes, Micros, counted};

/// `3 device calls`; of pinned memory `3 host calls`.
pub(super) fn calls(device: &DeviceRecording, n: u32) -> String {
    let call = Words::of(device).call;
    counted(u64::from(n), call, &format!("{call}s"))
}

impl Canvas<'_> {
    /// What the lane of device calls is called: pinned memory comes from the host.
    pub fn calls_name(&self) -> &'static str {
        if self.data.device().id.kind == vramscope_core::model::DeviceKind::Host { "Host" } else { Track::Device.name() }
    }

    /// cudaMalloc and cudaFree.
    pub fn device_calls(&self, rect: Rect, picture: &WindowPicture) {
        let t = self.tokens;
        self.name(Rect::from_center_size(rect.center(), vec2(rect.width(), 16.0)), self.calls_name(), "");
        if picture.window.axis != self.window.axis {
            return;
        }
        let painter = self.within(rect);
        let have = picture.window;
        let step = (have.to - have.from) / have.columns.max(1) as f64;
        let at = |column: f32| self.x.at(have.from + f64::from(column) * step);
        let mut batch = Batch::new(&painter);
        let third = rect.width() / 3.0;
        let mut gaps = Vec::new();
        let mut free_from = rect.left();
        for (i, c) in picture.calls.iter().enumerate() {
            let (left, right) = (at(c.left), at(c.right));
            if left - free_from > third {
                gaps.push((free_from, left, i));
            }
            if c.count == 1 {
                let y = if c.first.takes { rect.y_range() } else { Rangef::new(rect.center().y, rect.bottom()) };
                batch.vline(left, y, 2.0, t.text2);
            } else {
                let bar = Rect::from_min_max(pos2(left - 1.0, rect.top()), pos2((right + 1.0).max(left + 2.0), rect.bottom()));
                batch.rect(bar, t.other);
                let next = picture.calls.get(i + 1).map_or(rect.right(), |n| at(n.left));
                let text = format!("{}", c.count);
                let width = label::width(&painter, &text, Type::Mono);
                if bar.width() > width + 6.0 {
                    label::text(&painter, bar.center(), Align2::CENTER_CENTER, &text, Type::Mono, t.text1);
                } else if next - right > 96.0 {
                    let text = calls(self.data.device(), c.count);
                    let place = pos2(right + 7.0, rect.center().y);
                    free_from = label::text(&painter, place, Align2::LEFT_CENTER, &text, Type::Caption, t.text3).right() + 6.0;
                    continue;
                }
            }
            free_from = right + 6.0;
        }
        if rect.right() - free_from > third {
            gaps.push((free_from, rect.right(), picture.calls.len()));
        }
        for (from, to, call) in gaps {
            let (from, to) = (from.max(rect.left()), to.min(rect.right()));
            let gap = picture.gap(self.data.device(), call);
            let span = gap_text(self.data.device(), &self.window, gap);
            let text = format!("{} for {span}", Words::of(self.data.device()).say("no cudaMalloc or cudaFree"));
            let middle = pos2(f32::midpoint(from, to), rect.center().y);
            let width = label::width(&painter, &text, Type::Caption);
            if width + 40.0 > to - from {
                continue;
            }
            label::text(&painter, middle, Align2::CENTER_CENTER, &text, Type::Caption, t.text3);
            let half = width / 2.0 + 8.0;
            batch.hline(Rangef::new(from + 4.0, middle.x - half), middle.y, 1.0, t.line2);
            batch.hline(Rangef::new(middle.x + half, to - 4.0), middle.y, 1.0, t.line2);
        }
        batch.paint(&painter);
    }

    /// Pennants of snapshots and of bursts of releases, at the top of the curves; their names where nothing is `taken`.
    pub fn pennants(&self, rect: Rect, marks: &Marks, taken: &mut Vec<Rect>) -> Pennants {
        let t = self.tokens;
        let device = self.data.device();
        let mut all: Vec<(f32, Pennant)> = Vec::new();
        let place = |e: u32| self.x.at(cursor::position(device, self.window.axis, e));
        let visible = |e: u32| rect.x_range().contains(place(e));
        let from = cursor::event_at(device, self.window.axis, self.window.from);
        let to = cursor::event_at(device, self.window.axis, self.window.to);
        let bursts =
            &marks.bursts[marks.bursts.partition_point(|b| b.last < from)..marks.bursts.partition_point(|b| b.first <= to)];
        let snapshots =
            &marks.snapshots[marks.snapshots.partition_point(|&s| s < from)..marks.snapshots.partition_point(|&s| s <= to)];
        // More than a pennant every few pixels says nothing; the device lane counts them.
        let every = (bursts.len() / 200).max(1);
        all.extend(bursts.iter().step_by(every).filter(|b| visible(b.last)).map(|b| (place(b.last), Pennant::Burst(*b))));
        let every = (snapshots.len() / 200).max(1);
        all.extend(snapshots.iter().step_by(every).filter(|&&s| visible(s)).map(|&s| (place(s), Pennant::Snapshot(s))));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Under the limit's line and its name.
        let top = rect.top() + if marks.cap.is_some() { 18.0 } else { 0.0 };
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        let mut shapes = Vec::new();
        let mut names = Vec::new();
        for (i, (x, pennant)) in all.iter().enumerate() {
            batch.vline(*x, rect.y_range(), 1.0, t.line2);
            let points = vec![pos2(*x, top), pos2(*x + 8.0, top + 4.0), pos2(*x, top + 8.0)];
            shapes.push(Shape::convex_polygon(points, t.text2, egui::Stroke::NONE));
            let next = all.get(i + 1).map_or(rect.right(), |n| n.0);
            let text = pennant.text();
            let place = chip::chip_rect(&painter, pos2(x + 10.0, top + 4.0), Align2::LEFT_CENTER, &text, Type::Caption);
            if next - x > place.width() + 14.0 && !taken.iter().any(|r| r.intersects(place)) {
                taken.push(place);
                names.push((place.left_center(), text));
            }
        }
        batch.paint(&painter);
        painter.extend(shapes);
        for (at, text) in names {
            chip::paint_chip_in(&painter, at, Align2::LEFT_CENTER, &text, Type::Caption, t.text2, Tokens::at(t.s1, 0.85));
        }
        Pennants { top, marks: all }
    }
}

/// The marks on the curves, left to right, and the upper edge of their heads.
#[derive(Clone, Debug, Default)]
pub(super) struct Pennants {
    pub top: f32,
    pub marks: Vec<(f32, Pennant)>,
}

/// A mark on the curves that is not an out-of-memory error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pennant {
    /// Segments given back one after the other.
    Burst(super::marks::Burst),
    /// The user took a snapshot.
    Snapshot(u32),
}

impl Pennant {
    /// What it is, in a few words.
    pub fn text(&self) -> String {
        match self {
            Pennant::Burst(b) => match b.why {
                Why::Retry => format!("retry: freed {}", Bytes(b.bytes)),
                Why::Collection => format!("collected {}", Bytes(b.bytes)),
                Why::Emptied => format!("cache freed {}", Bytes(b.bytes)),
            },
            Pennant::Snapshot(_) => "snapshot".to_owned(),
        }
    }
}

/// How long there is no device call, as far as the window shows it: what is beyond its edges is not what is pointed at.
pub(super) fn gap_text(device: &DeviceRecording, window: &Window, (first, last): (u32, u32)) -> String {
    let place = |e: u32| cursor::position(device, window.axis, e);
    if window.axis == Axis::Time {
        let (from, to) = (place(first).max(window.from), place(last).min(window.to));
        return Micros((to - from).max(0.0).round() as i64).to_string();
    }
    let (from, to) = (cursor::event_at(device, window.axis, window.from), cursor::event_at(device, window.axis, window.to));
    span_text(device, first.max(from), last.min(to).max(first.max(from)))
}

/// What lies between two events in words: time where times are known, else events.
pub(super) fn span_text(device: &DeviceRecording, first: u32, last: u32) -> String {
    let time = |e: u32| device.events.time_us.get(e as usize).copied().unwrap_or(0);
    if device.events.has_time {
        Micros(time(last) - time(first)).to_string()
    } else {
        counted(u64::from(last.saturating_sub(first)), "event", "events")
    }
}
