//! Host memory of the watched process, below the card: pinned by PyTorch, and the rest.

use egui::{Align2, Rect, Ui, vec2};

use super::paint::Plot;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cut, label};
use vramscope_core::model::{HostPoint, LiveTrack, ProcessTrack};
use vramscope_core::units::Bytes;

/// Height of the strip with its caption.
pub(super) const HEIGHT: f32 = 64.0;

/// The process whose host memory is shown: one with PyTorch figures, or else the one with the most.
pub(super) fn watched(track: &LiveTrack) -> Option<&ProcessTrack> {
    let most = |p: &&ProcessTrack| (p.has_torch(), p.host.iter().filter_map(|h| h.resident).max());
    track.processes.iter().filter(|p| !p.host.is_empty()).max_by_key(most)
}

/// Pinned bytes, and the rest of the resident bytes. When the kernel does not report resident bytes, only pinned ones are shown.
fn parts(point: &HostPoint) -> (u64, u64) {
    let pinned = point.pinned.unwrap_or(0);
    (pinned, point.resident.unwrap_or(0).saturating_sub(pinned))
}

/// Draws the strip into `rect`, on the time axis of the plot above.
pub(super) fn strip(ui: &Ui, t: &Tokens, plot: &Plot, rect: Rect, process: &ProcessTrack, at_us: i64) {
    let p = ui.painter();
    let shown = process.host_at(at_us).map(parts).unwrap_or_default();
    let now = match process.host_at(at_us).and_then(|h| h.pinned) {
        Some(_) => format!("{} pinned, {} other", Bytes(shown.0), Bytes(shown.1)),
        None => format!("{}, pinned unknown without a helper", Bytes(shown.1)),
    };
    let caption = format!("Host memory of {} {}: {now}", process.name, process.pid);
    let line = rect.lines(0.0, 16.0).with_min_x(plot.area.left());
    label::text_in(p, line, &caption, Type::Caption, t.text3);
    let area = plot.area.down(rect.top() + 20.0, rect.bottom() - 8.0);
    let most = process.host.iter().map(|h| parts(h).0 + parts(h).1).max().unwrap_or(0);
    if area.height() < 8.0 || most == 0 {
        return;
    }
    let at = area.left_top() + vec2(-8.0, 4.0);
    label::text(p, at, Align2::RIGHT_CENTER, &Bytes(most).to_string(), Type::Mono, t.text3);
    let mut batch = Batch::new(p);
    let (pixel, height) = (batch.pixel(), area.height());
    let columns = batch.columns(area.width());
    let at = |i: usize| process.host_at(plot.time_at(area.left() + (i as f32 + 0.5) * pixel)).map(parts);
    let mut i = 0;
    while i < columns {
        let parts = at(i);
        // Equal neighbouring columns become one rectangle.
        let end = (i + 1..columns).find(|j| at(*j) != parts).unwrap_or(columns);
        if let Some((pinned, other)) = parts {
            let share = |bytes: u64| (bytes as f64 / most as f64) as f32 * height;
            let across = area.cell(i as f32 * pixel, end as f32 * pixel);
            let (low, high) = (area.bottom() - share(pinned), area.bottom() - share(pinned + other));
            batch.rect(across.with_min_y(low), t.slot(1));
            batch.rect(across.down(high, low), Tokens::over(t.text3, t.s1, 0.45));
        }
        i = end;
    }
    batch.hline(area.x_range(), area.bottom(), 1.0, t.line2);
    batch.paint(p);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_tells_of_pytorch_is_shown_and_its_parts_add_up() {
        let host = |resident, pinned| vec![HostPoint { time_us: 1, resident, pinned, pinned_used: None }];
        let plain = ProcessTrack { pid: 1, host: host(Some(900), None), ..ProcessTrack::default() };
        let torch = ProcessTrack { pid: 2, host: host(Some(100), Some(30)), torch_peak: Some((1, 1)), ..ProcessTrack::default() };
        let track = LiveTrack { processes: vec![plain, torch, ProcessTrack::default()], ..LiveTrack::default() };
        let shown = watched(&track).unwrap();
        assert_eq!((shown.pid, parts(&shown.host[0])), (2, (30, 70)));
        assert_eq!(parts(&HostPoint { pinned: Some(5), ..HostPoint::default() }), (5, 0));
        assert!(watched(&LiveTrack::default()).is_none());
    }
}
