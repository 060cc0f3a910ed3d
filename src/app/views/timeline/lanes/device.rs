//! The lane of device calls: memory that the allocator took from the device and gave back.

use std::sync::Arc;

use egui::{Align2, Pos2, Rangef, Rect, vec2};

use super::lane::{Hit, Lane, Shared};
use crate::app::state::{Axis, Item, shared};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{Contents, Track};
use crate::app::views::timeline::marks::{Cluster, DeviceCall, Marks};
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::{Window, WindowPicture};
use crate::app::widgets::{Batch, Cut, Tip, label};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{DeviceKind, DeviceRecording};
use vramscope_core::units::{Bytes, Micros, count, counted};

#[derive(Default)]
pub(super) struct DeviceCalls {
    picture: Option<Arc<WindowPicture>>,
}

impl DeviceCalls {
    fn at(&self, canvas: &Canvas<'_>, at: Pos2) -> Option<Cluster<DeviceCall>> {
        let picture = self.picture.as_ref().filter(|p| p.window.axis == canvas.window.axis)?;
        let column = picture.window.place(canvas.x.value(at.x));
        let nearest = picture.calls.partition_point(|k| k.right + 3.0 < column);
        picture.calls.get(nearest).filter(|k| k.left - 3.0 <= column).copied()
    }
}

impl Lane for DeviceCalls {
    fn track(&self) -> Track {
        Track::Device
    }

    fn name(&self, canvas: &Canvas<'_>) -> &'static str {
        calls_name(canvas)
    }

    fn height(&mut self, _cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents) {
        contents.device_calls = marks.is_none_or(|m| !m.calls.is_empty());
    }

    fn prepare(&mut self, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, shared: &Shared) {
        self.picture = shared.picture.clone();
    }

    fn paint(&self, _cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        if let Some(picture) = &self.picture {
            canvas.device_calls(rect, picture);
        }
    }

    fn hit(&self, canvas: &Canvas<'_>, _rect: Rect, at: Pos2) -> Option<Hit> {
        let event = self.at(canvas, at)?.first.event;
        Some(Hit { item: Some(Item::Event(event)), event: Some(event), ..Hit::told(self.track()) })
    }

    fn tooltip(&self, canvas: &Canvas<'_>, _rect: Rect, at: Pos2) -> Option<Tip> {
        let device = canvas.data.device();
        let found = self.at(canvas, at)?;
        let (first, last) = (found.first.event, found.last.event);
        if found.count > 1 {
            let events = format!("{} to {}", count(u64::from(first)), count(u64::from(last)));
            return Some(Tip::new(calls(device, found.count)).row("events", events));
        }
        let i = first as usize;
        let tip = Tip::new(device.events.action.get(i).map_or("", |a| a.name()))
            .row("size", Bytes(device.events.size.get(i).copied().unwrap_or(0)).to_string())
            .row("event", count(u64::from(first)));
        Some(tip.row_if("time", canvas.data.since_start(first)))
    }
}

/// `3 device calls`, or `3 host calls` for pinned memory.
fn calls(device: &DeviceRecording, n: u32) -> String {
    let call = Words::of(device).call;
    counted(u64::from(n), call, &format!("{call}s"))
}

/// The name of the lane; pinned memory comes from the host.
fn calls_name(canvas: &Canvas<'_>) -> &'static str {
    if canvas.data.device().id.kind == DeviceKind::Host { "Host" } else { Track::Device.name() }
}

impl Canvas<'_> {
    fn device_calls(&self, rect: Rect, picture: &WindowPicture) {
        let t = self.tokens;
        self.name(Rect::from_center_size(rect.center(), vec2(rect.width(), 16.0)), calls_name(self), "");
        if picture.window.axis != self.window.axis {
            return;
        }
        let painter = self.within(rect);
        let have = picture.window;
        let at = |column: f32| self.x.at(have.at(column.into()));
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
                let bar = rect.across(left - 1.0, (right + 1.0).max(left + 2.0));
                batch.rect(bar, t.other);
                let next = picture.calls.get(i + 1).map_or(rect.right(), |n| at(n.left));
                let text = format!("{}", c.count);
                let width = label::width(&painter, &text, Type::Mono);
                if bar.width() > width + 6.0 {
                    label::text(&painter, bar.center(), Align2::CENTER_CENTER, &text, Type::Mono, t.text1);
                } else if next - right > 96.0 {
                    let text = calls(self.data.device(), c.count);
                    let place = rect.middle(right + 7.0);
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
            let middle = rect.middle(f32::midpoint(from, to));
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
}

/// How long there is no device call, limited to the window, because the user points at what is visible.
pub(in crate::app::views::timeline) fn gap_text(device: &DeviceRecording, window: &Window, (first, last): (u32, u32)) -> String {
    let place = |e: u32| shared::position(device, window.axis, e);
    if window.axis == Axis::Time {
        let (from, to) = (place(first).max(window.from), place(last).min(window.to));
        return Micros((to - from).max(0.0).round() as i64).to_string();
    }
    let (from, to) = (shared::event_at(device, window.axis, window.from), shared::event_at(device, window.axis, window.to));
    span_text(device, first.max(from), last.min(to).max(first.max(from)))
}

/// The distance of two events in words: time when times are known, otherwise events.
pub(in crate::app::views::timeline) fn span_text(device: &DeviceRecording, first: u32, last: u32) -> String {
    let time = |e: u32| device.events.time_us.get(e as usize).copied().unwrap_or(0);
    if device.events.has_time {
        Micros(time(last) - time(first)).to_string()
    } else {
        counted(u64::from(last.saturating_sub(first)), "event", "events")
    }
}
