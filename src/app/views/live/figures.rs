//! Summaries of recordings that have samples but no events: the card at an instant, who grew, which alarms were raised. Findings,
//! Accounting and the inspector show them.

use egui::{Ui, vec2};

use super::layout::{Band, sample_at};
use super::paint::colour;
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Cut, ListRow, key_value, label, padded, row, section};
use vramscope_core::diagnose::watched::{Grower, Watched};
use vramscope_core::model::{DeviceRecording, MarkKind, Sample};
use vramscope_core::units::{Bytes, NBSP, count, counted, time_of_day};

/// Most processes and alarms listed; the rest is counted.
const MOST: usize = 6;
/// Smaller growth is noise, because the lists are not read at the same moment.
const NOISE: u64 = 16 << 20;

/// True when the recording only has samples of a card. A profiler's samples do not count, because they only cover its own
/// tensors.
pub(in crate::app) fn has_only_samples(device: &DeviceRecording) -> bool {
    let is_of_card = device.live.is_some() || knows_card(device.samples.first()) || knows_card(device.samples.last());
    !device.samples.is_empty() && is_of_card && device.events.is_empty() && device.segments.is_empty()
}

/// True for a sample that knows how much of the card was in use.
pub(in crate::app::views) fn knows_card(sample: Option<&Sample>) -> bool {
    sample.is_some_and(|s| s.used.is_some())
}

/// The sample to show, and a name for its instant.
pub(in crate::app::views) fn shown<'a>(cx: &ViewContext<'a>) -> Option<(&'a Sample, String)> {
    let samples = &cx.data.device().samples;
    match cx.shared.instant_us {
        Some(us) => sample_at(samples, us).map(|i| (&samples[i], format!("{} UTC", time_of_day(us)))),
        None => {
            let when = if super::running(cx).is_some() { "now" } else { "at the end" };
            samples.last().map(|s| (s, when.to_owned()))
        }
    }
}

/// Draws a row with a bar for each band of the card at an instant. The rows add up to the card.
pub(in crate::app::views) fn card_rows(ui: &mut Ui, cx: &ViewContext<'_>, sample: &Sample) {
    let t = cx.tokens;
    let capacity = cx.data.device().capacity.unwrap_or(0);
    let Some(bands) = sample.bands(capacity) else { return };
    let greatest = bands.used().max(1) as f64;
    for band in Band::ALL.into_iter().filter(|b| b.bytes(&bands) > 0) {
        let bytes = band.bytes(&bands);
        let response = key_value(ui, band.name(), Bytes(bytes));
        let rect = row::line(ui, 12.0);
        let inner = rect.inset(16.0, 0.0, 16.0, 4.0);
        let bar = match colour(band, t) {
            Some(c) => Bar::new(greatest).part(bytes as f64, c),
            None => Bar::new(greatest).hatched(bytes as f64),
        };
        bar.paint(ui.painter(), t, inner);
        response.on_hover_text(about(band));
    }
    key_value(ui, "free on the device", Bytes(bands.free));
    if bands.skew > 0 {
        key_value(ui, "counted twice (read a moment apart)", Bytes(bands.skew));
    }
}

fn about(band: Band) -> &'static str {
    match band {
        Band::Driver => "Kept by driver and firmware; nobody can use it.",
        Band::Others => "Processes that were not watched.",
        Band::Unattributed => "In use, but by no process that NVML lists.",
        Band::Unsplit => "The process, whole: no helper told how much of it is PyTorch's.",
        Band::Outside => "Context, kernels, cuBLAS, NCCL, raw cudaMalloc: nvidia-smi counts it, memory_reserved does not.",
        Band::Allocated => "In live tensors.",
        Band::Cached => "Reserved by PyTorch and free for its next tensor.",
    }
}

/// Draws a summary of the watch: its fullest instant, who grew, which alarms were raised. Clicks show the instant in all views.
pub(in crate::app::views) fn summary(ui: &mut Ui, cx: &ViewContext<'_>, watched: &Watched) {
    let t = cx.tokens;
    let capacity = cx.data.device().capacity.unwrap_or(0);
    let go = |us: i64| cx.actions.send(Action::SetInstant(Some(us)));
    let used = watched.fullest.used.unwrap_or(0);
    let free = capacity.saturating_sub(used);
    ui.add_space(8.0);
    padded(ui, |ui| {
        let of = if capacity > 0 { format!(" of {}", Bytes(capacity)) } else { String::new() };
        let sentence = format!("At its fullest the card held {}{of}.", Bytes(used));
        label::paragraph(ui, &sentence, Type::Title, t.text1);
        ui.add_space(4.0);
        let seconds = (watched.times_us.1 - watched.times_us.0) as f64 / 1e6;
        let least = if capacity > 0 { format!("Least was free then: {}. ", Bytes(free)) } else { String::new() };
        let sentence = format!("{least}Watched for {seconds:.0}{NBSP}s.");
        label::paragraph(ui, &sentence, Type::Body, t.text2);
    });
    ui.add_space(4.0);
    let row = |ui: &mut Ui, left: &str, right: &str, us: i64, ink: egui::Color32| {
        let response = ListRow::new(&format!("{left} {right}")).show_painted(ui);
        let inner = response.rect.shrink2(vec2(16.0, 0.0));
        label::pair(ui.painter(), inner, (left, Type::Body, ink), (right, Type::Mono, t.text1));
        let hint = format!("{left}. Show {} UTC", time_of_day(us));
        if response.on_hover_text(hint).clicked() {
            go(us);
        }
    };
    row(ui, "fullest", &time_of_day(watched.fullest.time_us), watched.fullest.time_us, t.text2);
    section(ui, "Where the bytes were then", "", false);
    card_rows(ui, cx, &watched.fullest);
    let grown: Vec<&Grower> = watched.processes.iter().filter(|p| p.grown() >= NOISE).collect();
    section(ui, "Who grew", if grown.is_empty() { "nobody" } else { "first to last" }, false);
    for p in grown.iter().take(MOST) {
        let text = format!("+{}", Bytes(p.grown()));
        row(ui, &format!("{} {}", p.pid, p.command), &text, p.peak_us, t.text1);
    }
    more(ui, grown.len());
    let peaks: Vec<&Grower> = watched.processes.iter().filter(|p| p.torch_peak.is_some()).collect();
    if !peaks.is_empty() {
        section(ui, "PyTorch's own peaks", "allocated, reserved", false);
        for p in peaks.iter().take(MOST) {
            let (allocated, reserved) = p.torch_peak.unwrap_or_default();
            let text = format!("{}, {}", Bytes(allocated), Bytes(reserved));
            row(ui, &format!("{} {}", p.pid, p.command), &text, p.peak_us, t.text1);
        }
        more(ui, peaks.len());
    }
    let caption = if watched.alarms.is_empty() { "none".to_owned() } else { count(watched.alarms.len() as u64) };
    section(ui, "Alarms and failures", &caption, false);
    for mark in watched.alarms.iter().take(MOST) {
        let ink = if mark.kind == MarkKind::OutOfMemory { t.red } else { t.amber };
        row(ui, &mark.text, &time_of_day(mark.time_us), mark.time_us, ink);
    }
    more(ui, watched.alarms.len());
    ui.add_space(12.0);
}

fn more(ui: &mut Ui, all: usize) {
    if all > MOST {
        key_value(ui, &format!("and {} more", count((all - MOST) as u64)), "");
    }
}

/// The inspector for a recording of samples only: the card and its processes at the instant.
pub(in crate::app::views) fn instant(ui: &mut Ui, cx: &ViewContext<'_>) {
    let t = cx.tokens;
    let Some((sample, when)) = shown(cx) else { return };
    padded(ui, |ui| {
        ui.add_space(12.0);
        label::paragraph(ui, &format!("The card {when}"), Type::Caption, t.text3);
        ui.add_space(4.0);
        label::paragraph(ui, &format!("{} used", Bytes(sample.used.unwrap_or(0))), Type::Lead, t.text1);
        ui.add_space(8.0);
    });
    card_rows(ui, cx, sample);
    let track = cx.data.device().live.as_deref();
    let present: Vec<_> = track.into_iter().flat_map(|l| &l.processes).filter(|p| p.at(sample.time_us).is_some()).collect();
    section(ui, "Processes", &counted(present.len() as u64, "process", "processes"), false);
    for p in present.iter().take(MOST) {
        let used = p.at(sample.time_us).and_then(|point| point.used);
        let text = used.map_or_else(|| "not recorded".to_owned(), |b| Bytes(b).to_string());
        let name = if p.command.is_empty() { &p.name } else { &p.command };
        key_value(ui, &format!("{} {name}", p.pid), text).on_hover_text(name);
    }
    more(ui, present.len());
    ui.add_space(16.0);
}
