//! The live view: every byte of the card over time, by owner. Draws a running session or a saved one.

pub(in crate::app::views) mod alone;
pub(in crate::app) mod figures;
mod host;
pub(in crate::app::views) mod layout;
pub(in crate::app::views) mod paint;
mod side;
mod table;

use egui::{Align, Layout, Rect, Role, Sense, Ui, UiBuilder, WidgetInfo, vec2};

use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::platform::machine::{MachineState, look};
use crate::app::state::{Action, Command, LiveAction, LiveStatus, ViewKind, last_known};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, Icon, PaneHeader, Push, Tip, label, legend_row, pane, row, selector};
use layout::{Peaks, areas, nearest, sample_at};
use paint::Plot;
use vramscope_core::diagnose::source_limits::NOT_WATCHED;
use vramscope_core::model::{Bands, DeviceRecording, LiveTrack};
use vramscope_core::units::{Bytes, capital, time_of_day};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Live,
    legend: &[
        ("driver", "kept by driver and firmware, never yours"),
        ("grey", "not yours: other processes, and what no listed process owns"),
        ("outside PyTorch", "context, kernels, cuBLAS, NCCL, raw cudaMalloc of the watched program"),
        ("allocated", "in live tensors"),
        ("hatched", "reserved by PyTorch and free: empty_cache would give whole segments of it back"),
        ("steps", "each sample holds until the next; a blank is a time without samples"),
        ("short peaks", "a poll misses what is shorter than its period; only the trace of a snapshot has all"),
        ("click", "stand the cursor there; the table follows"),
        ("drag", "look back; Now follows again"),
        ("wheel", "zoom time at the pointer"),
    ],
    create: || Box::new(LiveView::default()),
};

/// A watch shows everything up to this length (µs), and later only this much of the newest time.
const FOLLOWED_US: f64 = 120e6;
/// Shortest visible window, µs.
const LEAST_US: f64 = 0.2e6;
/// Sampling rates to choose from, per second.
const RATES: [f64; 5] = [50.0, 20.0, 10.0, 5.0, 1.0];
const RATE_NAMES: [&str; 5] = ["20 ms", "50 ms", "100 ms", "200 ms", "1 s"];

#[derive(Default)]
struct LiveView {
    /// The visible window relative to the first sample, µs; `None` follows the newest sample.
    window: Option<(f64, f64)>,
    /// The length of the window while following; `None` until the user zooms.
    span: Option<f64>,
    /// The selected process by PID and start time; the side shows how to attach to it.
    selected: Option<(u32, u64)>,
    peaks: Peaks,
    alarm_free: String,
    alarm_growth: String,
    alarm_minutes: String,
    alarm_error: Option<String>,
    /// A menu was just opened, so its first field takes the focus.
    takes_keyboard: bool,
    mark_text: String,
    rate: usize,
    /// The value of `fitted` when the whole watch was shown last.
    fitted: u32,
    /// The GPUs that can be watched on this machine.
    machine: Derived<(), MachineState>,
}

impl View for LiveView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let device = cx.data.device();
        let name = device.name.as_deref().unwrap_or("");
        match device.capacity {
            Some(total) => {
                let peak = device.live.as_deref().and_then(|l| l.peak);
                let peak = peak.map(|(b, at)| format!(" · peak {} at {} UTC", Bytes(b), time_of_day(at))).unwrap_or_default();
                format!("{}, {name} · whole device, {}{peak}", device.id, Bytes(total))
            }
            None => name.to_owned(),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let Some(live) = &cx.shared.live else { return };
        if cx.data.device().samples.is_empty() {
            return;
        }
        let send = |action| cx.actions.send(Action::Live(action));
        if Push::primary("Save recording").small().show(ui).clicked() {
            send(LiveAction::Save);
        }
        if live.is_over {
            return;
        }
        if Push::plain("Stop").icon(Icon::Stop).small().show(ui).on_hover_text("End the watch; what was seen stays").clicked() {
            send(LiveAction::Stop);
        }
        if !live.is_remote {
            let (text, icon) = if live.is_paused { ("Go on", Icon::Play) } else { ("Pause", Icon::Stop) };
            let pause = Push::plain(text);
            let pause = if live.is_paused { pause.icon(icon) } else { pause };
            if pause.small().show(ui).on_hover_text("Ask the driver nothing meanwhile").clicked() {
                send(LiveAction::Pause(!live.is_paused));
            }
            let mark = Push::plain("Mark").small().show(ui).on_hover_text("A line at this instant, with a few words");
            self.takes_keyboard |= mark.clicked();
            pane::open_below(&mark, |ui| self.mark_ui(ui, cx));
            let alarms = Push::plain(if live.rules == Default::default() { "Alarms" } else { "Alarms on" }).small().show(ui);
            self.takes_keyboard |= alarms.clicked();
            pane::open_below(&alarms, |ui| self.alarms_ui(ui, cx));
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let device = cx.data.device();
        let Some(track) = device.live.as_deref() else {
            let (sentence, line) = NOT_WATCHED;
            let machine = self.machine.get(cx.jobs, "machine", &(), |_| Some(look())).value;
            let is_bare = machine.as_deref().is_none_or(|machine| !matches!(machine, MachineState::Devices(_)));
            let sentence = match machine.as_deref() {
                Some(MachineState::NoDriver(why)) => &format!(
                    "This is the memory of one program. {why} Watch the machine elsewhere, and open that file with this one:"
                ),
                _ => sentence,
            };
            pane::empty_offering(ui, sentence, Some(line), 120.0, |ui| {
                if !is_bare {
                    ui.add_space(16.0);
                    if Push::primary("Watch this machine's GPUs").show(ui).clicked() {
                        cx.actions.run(Command::WatchMachine);
                    }
                }
                see_sample(ui, cx, is_bare);
            });
            return;
        };
        if device.samples.is_empty() {
            let waiting = "Waiting for the first sample.";
            let sentence = track.trouble.as_deref().unwrap_or(waiting);
            let line = track.trouble.as_ref().map(|_| "ssh HOST vramscope record - | vramscope -");
            let sentence = if line.is_some() {
                format!("{sentence} To watch a GPU of another machine from here:")
            } else {
                sentence.to_owned()
            };
            pane::empty_offering(ui, &sentence, line, 80.0, |ui| {
                if line.is_some() {
                    see_sample(ui, cx, true);
                }
            });
            return;
        }
        self.peaks.update(&device.samples);
        let now_us = device.samples.last().map_or(0, |s| s.time_us);
        let at_us = cx.shared.instant_us.unwrap_or(now_us);
        let bands = sample_at(&device.samples, at_us).and_then(|i| device.samples[i].bands(device.capacity.unwrap_or(0)));
        let bands = bands.unwrap_or_default();
        let rows = track.processes.iter().filter(|p| p.at(at_us).is_some()).count() + 3;
        let areas = areas(ui.max_rect(), rows);
        inside(ui, areas.bar, "card", |ui| card(ui, cx, device, track, &bands));
        inside(ui, areas.chart, "bands", |ui| self.bands(ui, cx, device, track, at_us, now_us));
        ui.painter().hline(areas.table.x_range(), areas.table.top() - 0.5, egui::Stroke::new(1.0, cx.tokens.line));
        inside(ui, areas.table, "processes", |ui| self.table(ui, cx, track, &bands, at_us));
        if let Some(rect) = areas.side {
            ui.painter().vline(rect.left() - 0.5, rect.y_range(), egui::Stroke::new(1.0, cx.tokens.line));
            inside(ui, rect, "side", |ui| self.side(ui, cx, track, &bands, at_us));
        }
        if running(cx).is_some_and(|live| !live.is_paused) {
            // Samples arrive without any input event.
            ui.ctx().request_repaint_after(std::time::Duration::from_millis(100));
        }
    }
}

/// The watch that still adds samples to this tab.
fn running<'a>(cx: &ViewContext<'a>) -> Option<&'a LiveStatus> {
    cx.shared.live.as_deref().filter(|live| !live.is_over)
}

/// The watch, while processes can be attached to through it.
fn attachable<'a>(cx: &ViewContext<'a>) -> Option<&'a LiveStatus> {
    cx.shared.live.as_deref().filter(|live| live.can_attach())
}

/// What the newest sample is called.
fn newest(cx: &ViewContext<'_>, track: &LiveTrack, now_us: i64) -> &'static str {
    match running(cx) {
        _ if last_known(cx.shared.live.as_deref(), track, now_us).is_some() => "last known",
        Some(live) if live.is_paused => "paused",
        Some(_) => "now",
        None => "at the end",
    }
}

fn inside(ui: &mut Ui, rect: Rect, name: &str, draw: impl FnOnce(&mut Ui)) {
    let mut child = ui.new_child(UiBuilder::new().id_salt(name).max_rect(rect).layout(Layout::top_down(Align::Min)));
    child.set_clip_rect(rect.intersect(ui.clip_rect()));
    draw(&mut child);
}

/// Offers a bundled sample on a machine without a GPU. With `is_main` it is the main action.
fn see_sample(ui: &mut Ui, cx: &ViewContext<'_>, is_main: bool) {
    ui.add_space(20.0);
    let sentence = "To see what a watch shows, open one that comes with vramscope. It needs no GPU.";
    label::paragraph(ui, sentence, Type::Body, cx.tokens.text2);
    ui.add_space(8.0);
    let words = "Open the bundled watch";
    if (if is_main { Push::primary(words) } else { Push::outlined(words) }).show(ui).clicked() {
        cx.actions.send(Action::OpenWatchSample);
    }
}

/// Draws the bar of the card and its legend.
fn card(ui: &mut Ui, cx: &ViewContext<'_>, device: &DeviceRecording, track: &LiveTrack, bands: &Bands) {
    let t = cx.tokens;
    let capacity = device.capacity.unwrap_or(0);
    let last_us = device.samples.last().map_or(0, |s| s.time_us);
    let age = last_known(cx.shared.live.as_deref(), track, last_us);
    let trouble = age.map(|age| {
        let why = track.trouble.as_deref().unwrap_or("The driver does not answer.");
        format!("{}. {why}", capital(&age))
    });
    if let Some(trouble) = &trouble {
        let rect = ui.max_rect();
        let line = rect.lines(4.0, 20.0).shrink2(vec2(16.0, 0.0));
        crate::app::widgets::label::text_in(ui.painter(), line, trouble, Type::Body, t.amber);
    }
    ui.add_space(if trouble.is_some() { 24.0 } else { 16.0 });
    let (row, _) = row::told(ui, 28.0, Role::Label, || paint::spoken(bands, capacity));
    paint::device_bar(ui, t, row.shrink2(vec2(16.0, 0.0)), bands, capacity, track.peak.map(|p| p.0));
    ui.add_space(8.0);
    let sum = format!("sums to the {} that NVML reports", Bytes(bands.used()));
    let sum = if bands.skew > 0 { format!("{sum}, {} of skew", Bytes(bands.skew)) } else { sum };
    let sum = if ui.available_width() > 900.0 { sum } else { String::new() };
    let _ = legend_row(ui, "", 16.0, &alone::entries(t, bands), &sum);
}

impl LiveView {
    fn visible(&self, first_us: i64, now_us: i64, follows: bool) -> (f64, f64) {
        let whole = ((now_us - first_us) as f64).max(1e6);
        match self.window {
            Some(window) => window,
            None => {
                let span = self.span.unwrap_or(if follows { FOLLOWED_US.min(whole.max(10e6)) } else { whole });
                let start = (whole - span).max(0.0);
                (start, start + span)
            }
        }
    }

    /// Shows the whole watch, of this length in µs.
    fn show_all(&mut self, whole: f64) {
        (self.window, self.span) = (Some((0.0, whole.max(1e6))), None);
    }

    fn bands(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, device: &DeviceRecording, track: &LiveTrack, at_us: i64, now_us: i64) {
        let t = cx.tokens;
        let first_us = device.samples.first().map_or(0, |s| s.time_us);
        if std::mem::replace(&mut self.fitted, cx.shared.fitted) != cx.shared.fitted {
            self.show_all((now_us - first_us) as f64);
        }
        let window = self.visible(first_us, now_us, running(cx).is_some());
        let inner = ui.max_rect();
        let has_ends = inner.width() > 700.0;
        // In a small pane host memory is left out, so that the plot keeps its height.
        let host = host::watched(track).filter(|_| inner.height() > 260.0);
        let below = if host.is_some() { host::HEIGHT } else { 0.0 };
        let plot_rect = inner.inset(64.0, 28.0 + 48.0, if has_ends { 172.0 } else { 20.0 }, 28.0 + below);
        if plot_rect.width() < 40.0 || plot_rect.height() < 30.0 {
            return;
        }
        let capacity = device.capacity.unwrap_or(0);
        let plot = Plot::of(plot_rect, window, device, &self.peaks);
        let shown = (window.1 - window.0) / 1e6;
        let caption = if self.window.is_none() { format!("last {shown:.0} s") } else { format!("{shown:.1} s") };
        let range = format!("y: used, 0 to {}", Bytes(plot.y.end as u64));
        PaneHeader::new("Where the bytes are").caption(&caption).show(ui, |ui| {
            if let Some(live) = running(cx).filter(|live| !live.is_remote) {
                self.rate = RATES.iter().position(|r| (*r - live.rate).abs() < 0.01).unwrap_or(2);
                if selector(ui, "rate", &mut self.rate, &RATE_NAMES) {
                    cx.actions.send(Action::Live(LiveAction::Rate(RATES[self.rate.min(RATES.len() - 1)])));
                }
            }
            ui.label(Type::Caption.text(&range).color(t.text3));
            let (back, about) = match running(cx).is_some() {
                true => ("Now", "Follow the newest sample again"),
                false => ("End", "All of the watch, at its end"),
            };
            if (self.window.is_some() || cx.shared.instant_us.is_some())
                && Push::plain(back).small().show(ui).on_hover_text(about).clicked()
            {
                self.window = None;
                cx.actions.send(Action::SetInstant(None));
            }
        });
        let response = ui.interact(plot_rect, ui.scope_id().with("live plot"), Sense::click_and_drag());
        let bands = sample_at(&device.samples, at_us).and_then(|i| device.samples[i].bands(capacity));
        let spoken = bands.map_or_else(String::new, |b| paint::spoken(&b, capacity));
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, format!("Memory over time. {spoken}")));
        self.gestures(ui, cx, &response, &plot, (now_us - first_us) as f64);
        let names = paint::chart(ui, t, &plot, device, track, &self.peaks);
        if let Some(limit) = cx.shared.live.as_ref().and_then(|l| l.rules.free_below) {
            paint::alarm_line(ui, t, &plot, capacity, limit);
        }
        let right = if has_ends { inner.right() - 16.0 } else { plot_rect.right() };
        let named = paint::marks(ui, t, &plot, track, right);
        if let Some(process) = host {
            let strip = inner.with_min_y(inner.bottom() - below);
            host::strip(ui, t, &plot, strip, process, at_us);
        }
        let is_hovered = response.hovered() && !response.dragged();
        if let Some(at) = response.hover_pos().filter(|_| is_hovered) {
            let mut batch = crate::app::widgets::mesh::Batch::new(ui.painter());
            batch.vline(at.x, plot_rect.y_range(), 1.0, Tokens::at(t.text1, 0.4));
            batch.paint(ui.painter());
            // The name of the mark under the pointer, also when its label had no room.
            if let Some(mark) = nearest(&named, at.x).and_then(|mark| track.marks.get(mark)) {
                Tip::new(mark.text.to_string()).row("time", format!("{} UTC", time_of_day(mark.time_us))).show(&response);
            }
        }
        let chips = match cx.shared.instant_us {
            Some(_) => paint::cursor(ui, t, &plot, at_us, bands),
            None => Vec::new(),
        };
        paint::names(ui, &names, &chips);
        // The sample at the right edge of what is visible.
        let edge_us = plot.time_at(plot_rect.right());
        let is_past = edge_us < now_us && self.window.is_some();
        let end = if is_past { sample_at(&device.samples, edge_us) } else { device.samples.len().checked_sub(1) };
        let is_in_gap = is_past && track.gaps.iter().any(|gap| gap.from_us < edge_us && edge_us < gap.to_us);
        if has_ends
            && !is_in_gap
            && let Some(last) = end.and_then(|i| device.samples[i].bands(capacity))
        {
            let caption = if is_past { "at this edge" } else { newest(cx, track, now_us) };
            paint::ends(ui, t, &plot, inner.right() - 16.0, caption, &last);
        }
    }

    fn gestures(&mut self, ui: &Ui, cx: &ViewContext<'_>, response: &egui::Response, plot: &Plot, whole: f64) {
        let (from, to) = (plot.x.start, plot.x.end);
        let span = to - from;
        // The window may extend past either end by half its length.
        let clamp = |from: f64, span: f64| {
            let from = from.clamp(-span * 0.5, (whole - span * 0.5).max(-span * 0.5));
            (from, from + span)
        };
        if response.clicked()
            && let Some(at) = response.interact_pointer_pos()
        {
            cx.actions.send(Action::SetInstant(Some(plot.time_at(at.x))));
        }
        if response.double_clicked() {
            self.show_all(whole);
        }
        if response.dragged() {
            let by = -f64::from(response.drag_delta().x) * plot.x.per_point();
            self.window = Some(clamp(from + by, span));
        }
        if response.hovered() {
            let (scroll, zoom) = ui.input(|i| (i.smooth_scroll_delta(), i.zoom_delta()));
            let is_sideways = scroll.x.abs() > scroll.y.abs();
            if is_sideways {
                self.window = Some(clamp(from - f64::from(scroll.x) * plot.x.per_point(), span));
            } else if scroll.y != 0.0 || (zoom - 1.0).abs() > 1e-3 {
                let factor = (-f64::from(scroll.y) / 240.0).exp2() / f64::from(zoom.max(0.01));
                let new = (span * factor).clamp(LEAST_US, (whole * 2.0).max(20e6));
                let at = response.hover_pos().map_or(to, |p| plot.x.value(p.x));
                if self.window.is_none() && at > to - span * 0.1 {
                    // Zooming at the right edge keeps following the newest sample.
                    self.span = Some(new);
                } else {
                    self.window = Some(clamp(at - (at - from) * new / span, new));
                }
            }
        }
        if ui.input(|i| i.key_pressed(egui::Key::End)) && response.hovered() {
            self.window = None;
            cx.actions.send(Action::SetInstant(None));
        }
    }

    fn mark_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        ui.set_min_width(260.0);
        pane::padded(ui, |ui| {
            ui.add_space(8.0);
            let field = crate::app::widgets::field::Field::new("What happens now").hint("epoch 2 starts").width(228.0);
            let response = field.show(ui, &mut self.mark_text);
            if std::mem::take(&mut self.takes_keyboard) {
                response.request_focus();
            }
            ui.add_space(8.0);
            let entered = response.lost_focus() && ui.input(|i| i.key_pressed(egui::Key::Enter));
            if Push::primary("Mark this instant").show(ui).clicked() || entered {
                let text = if self.mark_text.trim().is_empty() { "mark".to_owned() } else { self.mark_text.trim().to_owned() };
                cx.actions.send(Action::Live(LiveAction::Mark(text)));
                self.mark_text.clear();
                ui.close();
            }
            ui.add_space(8.0);
        });
    }
}
