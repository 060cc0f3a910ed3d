//! The table of processes at the cursor, with figures of the driver and of PyTorch.

use egui::{Align, Align2, Layout, Rect, Ui, UiBuilder, pos2};

use super::LiveView;
use super::layout::Band;
use super::paint::colour;
use crate::app::state::action::Action;
use crate::app::state::live_status::LiveAction;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::button::Push;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::label;
use crate::app::widgets::pane::PaneHeader;
use crate::app::widgets::row;
use crate::app::widgets::row::ListRow;
use vramscope_core::model::{Bands, HelperState, LiveTrack, ProcessTrack};
use vramscope_core::units::{Bytes, SizeColumn, time_of_day};

/// Right edges of the number columns: NVML, allocated, cached, outside, peak allocated, peak, source.
struct Columns {
    pid: f32,
    command: f32,
    share: Option<(f32, f32)>,
    numbers: [f32; 7],
    /// There is room for allocated, cached and outside.
    has_split: bool,
    /// There is room for PyTorch's own peak.
    has_peak: bool,
    /// Unit of the byte columns.
    size: SizeColumn,
}

fn place(rect: Rect, bands: &Bands) -> Columns {
    let right = rect.right() - 16.0;
    let is_wide = rect.width() > 860.0;
    let has_peak = rect.width() > 1040.0;
    let steps: [f32; 6] = if is_wide { [0.0, 96.0, 100.0, 96.0, 92.0, 92.0] } else { [0.0, 84.0, 0.0, 0.0, 0.0, 88.0] };
    // From right to left: source, peak, PyTorch's peak, outside, cached, allocated, NVML.
    let source = right;
    let peak = source - steps[1];
    let torch_peak = peak - if has_peak { 100.0 } else { 0.0 };
    let outside = torch_peak - steps[2];
    let cached = outside - steps[3];
    let allocated = cached - steps[4];
    let nvml = allocated - steps[5];
    let command = rect.left() + 76.0;
    let share = is_wide.then(|| {
        let start = command + (nvml - 90.0 - command) * 0.55;
        (start, nvml - 90.0)
    });
    Columns {
        pid: rect.left() + 60.0,
        command,
        share,
        numbers: [nvml, allocated, cached, outside, torch_peak, peak, source],
        has_split: is_wide,
        has_peak,
        size: SizeColumn::of([bands.used(), bands.allocated, bands.outside]),
    }
}

impl LiveView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, track: &LiveTrack, bands: &Bands, time_us: i64) {
        let t = cx.tokens;
        let mut present: Vec<(usize, &ProcessTrack)> =
            track.processes.iter().enumerate().filter(|(_, p)| p.at(time_us).is_some()).collect();
        // Processes with PyTorch figures come first. The others are sorted by peak, because present sizes would reorder rows at
        // every sample.
        present.sort_by_key(|(_, p)| std::cmp::Reverse((p.at(time_us).is_some_and(|x| x.torch.is_some()), p.peak.map(|b| b.0))));
        let is_live = cx.shared.live.as_ref().is_some_and(|l| !l.is_over);
        let caption = match (cx.shared.instant_us, is_live) {
            (Some(_), _) => "at the cursor",
            (None, true) if crate::app::state::live_status::last_known(cx.shared.live.as_deref(), track, time_us).is_some() => {
                "last known"
            }
            (None, true) if cx.shared.live.as_ref().is_some_and(|l| l.is_paused) => "paused",
            (None, true) => "now",
            (None, false) => "at the end",
        };
        let caption = match track.unlisted_us.filter(|since| *since <= time_us) {
            Some(since) => {
                format!("{caption} · {} listed last; not listed since {} UTC", present.len(), time_of_day(since))
            }
            None => format!("{caption} · {} on this device", present.len()),
        };
        PaneHeader::new("Processes").caption(&caption).show(ui, |_| {});
        let head = row::line(ui, 24.0);
        let columns = place(head, bands);
        let p = ui.painter();
        let y = head.center().y;
        let name = |x: f32, text: &str, anchor: Align2| label::text(p, pos2(x, y), anchor, text, Type::Column, t.text3);
        name(columns.pid, "PID", Align2::RIGHT_CENTER);
        name(columns.command, "command", Align2::LEFT_CENTER);
        if let Some((x, _)) = columns.share {
            name(x, "share of used", Align2::LEFT_CENTER);
        }
        for (x, text) in columns.numbers.iter().zip([
            "NVML",
            "allocated",
            "cached",
            "outside PyTorch",
            "peak allocated",
            "peak NVML",
            "source",
        ]) {
            let has_room = if text == "peak allocated" { columns.has_peak } else { columns.has_split };
            if has_room || matches!(text, "NVML" | "peak NVML" | "source") {
                name(*x, text, Align2::RIGHT_CENTER);
            }
        }
        p.hline(head.x_range(), head.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
        egui::ScrollArea::vertical().id_salt("processes").auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 0.0;
            let can_attach = cx.shared.live.as_ref().is_some_and(|l| l.can_attach()) && track.trouble.is_none();
            for (i, process) in &present {
                self.process_row(ui, cx, *i, process, bands, (time_us, can_attach));
            }
            let untold = present.iter().filter(|(_, p)| p.at(time_us).is_some_and(|x| x.used.is_none())).count();
            let nobodys = match untold {
                0 => "used, less all above".to_owned(),
                n => format!("with {} listed without bytes", vramscope_core::units::counted(n as u64, "process", "processes")),
            };
            let peak = track.peak.map(|p| p.0);
            quiet_row(ui, t, "driver and firmware", bands.driver, bands, Some(Band::Driver), None, "NVML reserved");
            quiet_row(ui, t, "unattributed", bands.unattributed, bands, Some(Band::Unattributed), None, &nobodys);
            let rect = row::line(ui, 32.0);
            let columns = place(rect, bands);
            let p = ui.painter();
            p.hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line));
            let y = rect.center().y;
            label::text(p, pos2(columns.command, y), Align2::LEFT_CENTER, "device", Type::Strong, t.text1);
            let split = bands.outside + bands.allocated + bands.cached > 0;
            let figures = [
                Some(bands.used()),
                split.then_some(bands.allocated),
                split.then_some(bands.cached),
                split.then_some(bands.outside),
                None,
                peak,
            ];
            numbers(p, t, &columns, y, figures, true);
            label::text(p, pos2(columns.numbers[6], y), Align2::RIGHT_CENTER, "NVML used", Type::Body, t.text3);
        });
    }

    fn process_row(
        &mut self,
        ui: &mut Ui,
        cx: &ViewContext<'_>,
        index: usize,
        process: &ProcessTrack,
        bands: &Bands,
        (time_us, can_attach): (i64, bool),
    ) {
        let t = cx.tokens;
        let Some(point) = process.at(time_us) else { return };
        let is_selected = self.selected == Some((process.pid, process.started));
        let name = format!("Process {} {}", process.pid, process.command);
        let response = ListRow::new(&name).height(32.0).selected(is_selected).show_painted(ui);
        let rect = response.rect;
        let columns = place(rect, bands);
        let y = rect.center().y;
        let ink = if point.used == Some(0) { t.text3 } else { t.text1 };
        let p = ui.painter();
        label::text(p, pos2(columns.pid, y), Align2::RIGHT_CENTER, &process.pid.to_string(), Type::Mono, ink);
        let split = point.torch.map(|m| (m, point.used.unwrap_or(m.reserved).saturating_sub(m.reserved)));
        let right = columns.share.map_or(columns.numbers[0] - 90.0, |s| s.0) - 12.0;
        let room = rect.across(columns.command, right);
        let shown = match &process.container {
            Some(container) => format!("{}   {container}", process.command),
            None if process.command.is_empty() => process.name.clone(),
            None => process.command.clone(),
        };
        label::text_in(p, room, &shown, Type::Mono, ink);
        if let Some((left, right)) = columns.share {
            let mut bar = Bar::new(bands.used().max(1) as f64).thickness(9.0);
            let solid = |b: Band| colour(b, t).unwrap_or(t.other);
            match split {
                Some((m, outside)) => {
                    bar = bar.part(outside as f64, solid(Band::Outside)).part(m.allocated as f64, solid(Band::Allocated));
                    bar = bar.hatched(m.reserved.saturating_sub(m.allocated) as f64);
                }
                None => bar = bar.part(point.used.unwrap_or(0) as f64, t.other),
            }
            bar.paint(p, t, Rect::from_min_max(pos2(left, y - 5.0), pos2(right, y + 5.0)));
        }
        let m = split.map(|s| s.0);
        let figures = [
            point.used,
            m.map(|m| m.allocated),
            m.map(|m| m.reserved.saturating_sub(m.allocated)),
            split.map(|s| s.1),
            process.torch_peak.map(|p| p.0),
            process.peak.map(|p| p.0).max(process.lifetime_peak),
        ];
        numbers(p, t, &columns, y, figures, false);
        let helper = process.helper_at(time_us);
        if split.is_none() && columns.has_split {
            let text = match helper {
                HelperState::Silent if !process.has_torch() => "not split: torch is not imported there",
                HelperState::Silent => "not split: the helper tells nothing of this device",
                _ => "not split: no helper in this process",
            };
            label::text(p, pos2(columns.numbers[3], y), Align2::RIGHT_CENTER, text, Type::Body, t.text3);
        }
        if helper != HelperState::Absent {
            label::text(p, pos2(columns.numbers[6], y), Align2::RIGHT_CENTER, "helper", Type::Body, t.text2);
        } else if can_attach {
            let place = rect.across(columns.numbers[6] - 80.0, columns.numbers[6]);
            let mut child = ui.new_child(
                UiBuilder::new().id_salt(("attach", index)).max_rect(place).layout(Layout::right_to_left(Align::Center)),
            );
            if Push::outlined("Attach").small().show(&mut child).clicked() {
                self.selected = Some((process.pid, process.started));
                cx.actions.send(Action::Live(LiveAction::Attach(process.pid)));
            }
        } else {
            label::text(p, pos2(columns.numbers[6], y), Align2::RIGHT_CENTER, "NVML", Type::Body, t.text3);
        }
        let clicked = response.clicked();
        response.on_hover_ui(|ui| tip(ui, t, process));
        if clicked {
            self.selected = if is_selected { None } else { Some((process.pid, process.started)) };
            if !is_selected {
                cx.actions.send(Action::Live(LiveAction::Look(process.pid)));
            }
        }
    }
}

fn tip(ui: &mut Ui, t: &Tokens, process: &ProcessTrack) {
    ui.set_max_width(460.0);
    label::paragraph(ui, &process.command, Type::MonoStrong, t.text1);
    let mut line = |key: &str, value: &str| {
        if !value.is_empty() {
            ui.horizontal_wrapped(|ui| {
                ui.label(Type::Body.text(format!("{key}:")).color(t.text3));
                ui.label(Type::Body.text(value).color(t.text2));
            });
        }
    };
    line("user", &process.user);
    line("container", process.container.as_deref().unwrap_or(""));
    for (key, value) in process.facts.iter() {
        line(key, value);
    }
    let peak = process.peak.map(|(b, at)| format!("{} at {} UTC", Bytes(b), time_of_day(at)));
    line("peak while watched", peak.as_deref().unwrap_or(""));
    let lifetime = process.lifetime_peak.map(|b| format!("{}, by the driver's accounting", Bytes(b)));
    line("peak since it began", lifetime.as_deref().unwrap_or(""));
    let torch = process.torch_peak.map(|(a, r)| format!("allocated {}, reserved {}", Bytes(a), Bytes(r)));
    line("PyTorch's own peaks", torch.as_deref().unwrap_or(""));
    line("note", process.note.as_deref().unwrap_or(""));
}

fn numbers(p: &egui::Painter, t: &Tokens, columns: &Columns, y: f32, figures: [Option<u64>; 6], is_strong: bool) {
    for (i, figure) in figures.iter().enumerate() {
        if (!columns.has_split && (1..=3).contains(&i)) || (!columns.has_peak && i == 4) {
            continue;
        }
        let (text, ink) = match figure {
            Some(bytes) => (columns.size.sized(*bytes), if i >= 4 && !is_strong { t.text2 } else { t.text1 }),
            None if i == 0 => ("not recorded".to_owned(), t.text3),
            None => continue,
        };
        label::text(p, pos2(columns.numbers[i], y), Align2::RIGHT_CENTER, &text, Type::Mono, ink);
    }
}

fn quiet_row(
    ui: &mut Ui,
    t: &Tokens,
    name: &str,
    bytes: u64,
    bands: &Bands,
    band: Option<Band>,
    peak: Option<u64>,
    source: &str,
) {
    let rect = row::line(ui, 32.0);
    let columns = place(rect, bands);
    let p = ui.painter();
    let y = rect.center().y;
    label::text(p, pos2(columns.command, y), Align2::LEFT_CENTER, name, Type::Body, t.text2);
    if let (Some((left, right)), Some(colour)) = (columns.share, band.and_then(|b| colour(b, t))) {
        let bar = Bar::new(bands.used().max(1) as f64).thickness(9.0).part(bytes as f64, colour);
        bar.paint(p, t, Rect::from_min_max(pos2(left, y - 5.0), pos2(right, y + 5.0)));
    }
    numbers(p, t, &columns, y, [Some(bytes), None, None, None, None, peak], false);
    label::text(p, pos2(columns.numbers[6], y), Align2::RIGHT_CENTER, source, Type::Body, t.text3);
}
