//! The table of processes at the cursor, with figures of the driver and of PyTorch.

use egui::{Align, Align2, Color32, Layout, Painter, Rect, Ui, UiBuilder, vec2};

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
use crate::app::widgets::row::{self, ListRow};
use vramscope_core::model::{Bands, HelperState, LiveTrack, ProcessTrack};
use vramscope_core::units::{Bytes, SizeColumn, time_of_day};

/// The columns of figures, from left to right.
const TITLES: [&str; 7] = ["NVML", "allocated", "cached", "outside PyTorch", "peak allocated", "peak NVML", "source"];
/// Where it is told who gave the figures.
const SOURCE: usize = 6;

struct Columns {
    row: Rect,
    command: f32,
    share: Option<(f32, f32)>,
    /// Right edge of each of [`TITLES`]; `None` where there is no room for it.
    ends: [Option<f32>; 7],
    /// Unit of the byte columns.
    size: SizeColumn,
}

impl Columns {
    fn of(row: Rect, bands: &Bands) -> Self {
        let (is_wide, has_peak) = (row.width() > 860.0, row.width() > 1040.0);
        let peak = if has_peak { 100.0 } else { 0.0 };
        let widths = if is_wide { [92.0, 92.0, 96.0, 100.0, peak, 96.0, 0.0] } else { [88.0, 0.0, 0.0, 0.0, 0.0, 84.0, 0.0] };
        let mut end = row.right() - 16.0;
        let mut ends = [None; 7];
        for i in (0..ends.len()).rev() {
            end -= widths[i];
            ends[i] = (widths[i] > 0.0 || i == SOURCE).then_some(end);
        }
        let command = row.left() + 76.0;
        let shares = end - 90.0;
        let share = is_wide.then(|| (command + (shares - command) * 0.55, shares));
        let size = SizeColumn::of([bands.used(), bands.allocated, bands.outside]);
        Columns { row, command, share, ends, size }
    }

    fn write(&self, p: &Painter, column: usize, text: &str, kind: Type, ink: Color32) {
        if let Some(end) = self.ends[column] {
            label::text(p, self.row.middle(end), Align2::RIGHT_CENTER, text, kind, ink);
        }
    }

    /// The text at the left of the figures.
    fn name(&self, p: &Painter, text: &str, kind: Type, ink: Color32) {
        label::text(p, self.row.middle(self.command), Align2::LEFT_CENTER, text, kind, ink);
    }

    fn pid(&self, p: &Painter, text: &str, kind: Type, ink: Color32) {
        label::text(p, self.row.middle(self.row.left() + 60.0), Align2::RIGHT_CENTER, text, kind, ink);
    }

    fn bar(&self, p: &Painter, t: &Tokens, bands: &Bands, fill: impl FnOnce(Bar) -> Bar) {
        if let Some((left, right)) = self.share {
            let place = self.row.shrink2(vec2(0.0, 11.0)).across(left, right);
            fill(Bar::new(bands.used().max(1) as f64)).paint(p, t, place);
        }
    }

    fn figures(&self, p: &Painter, t: &Tokens, figures: [Option<u64>; 6], is_strong: bool) {
        for (i, figure) in figures.iter().enumerate() {
            let ink = if i >= 4 && !is_strong { t.text2 } else { t.text1 };
            match figure {
                Some(bytes) => self.write(p, i, &self.size.sized(*bytes), Type::Mono, ink),
                None if i == 0 => self.write(p, i, "not recorded", Type::Mono, t.text3),
                None => {}
            }
        }
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
        let columns = Columns::of(head, bands);
        let p = ui.painter();
        columns.pid(p, "PID", Type::Column, t.text3);
        columns.name(p, "command", Type::Column, t.text3);
        if let Some((x, _)) = columns.share {
            label::text(p, head.middle(x), Align2::LEFT_CENTER, "share of used", Type::Column, t.text3);
        }
        for (i, title) in TITLES.into_iter().enumerate() {
            columns.write(p, i, title, Type::Column, t.text3);
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
            quiet_row(ui, t, "driver and firmware", bands.driver, bands, Band::Driver, "NVML reserved");
            quiet_row(ui, t, "unattributed", bands.unattributed, bands, Band::Unattributed, &nobodys);
            let rect = row::line(ui, 32.0);
            let columns = Columns::of(rect, bands);
            let p = ui.painter();
            p.hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line));
            columns.name(p, "device", Type::Strong, t.text1);
            let split = bands.outside + bands.allocated + bands.cached > 0;
            let figures = [
                Some(bands.used()),
                split.then_some(bands.allocated),
                split.then_some(bands.cached),
                split.then_some(bands.outside),
                None,
                peak,
            ];
            columns.figures(p, t, figures, true);
            columns.write(p, SOURCE, "NVML used", Type::Body, t.text3);
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
        let columns = Columns::of(rect, bands);
        let ink = if point.used == Some(0) { t.text3 } else { t.text1 };
        let p = ui.painter();
        columns.pid(p, &process.pid.to_string(), Type::Mono, ink);
        let split = point.torch.map(|m| (m, point.used.unwrap_or(m.reserved).saturating_sub(m.reserved)));
        let right = columns.share.map_or(columns.ends[0].unwrap_or(rect.right()) - 90.0, |s| s.0) - 12.0;
        let room = rect.across(columns.command, right);
        let shown = match &process.container {
            Some(container) => format!("{}   {container}", process.command),
            None if process.command.is_empty() => process.name.clone(),
            None => process.command.clone(),
        };
        label::text_in(p, room, &shown, Type::Mono, ink);
        let solid = |b: Band| colour(b, t).unwrap_or(t.other);
        columns.bar(p, t, bands, |bar| match split {
            Some((m, outside)) => bar
                .part(outside as f64, solid(Band::Outside))
                .part(m.allocated as f64, solid(Band::Allocated))
                .hatched(m.reserved.saturating_sub(m.allocated) as f64),
            None => bar.part(point.used.unwrap_or(0) as f64, t.other),
        });
        let m = split.map(|s| s.0);
        let figures = [
            point.used,
            m.map(|m| m.allocated),
            m.map(|m| m.reserved.saturating_sub(m.allocated)),
            split.map(|s| s.1),
            process.torch_peak.map(|p| p.0),
            process.peak.map(|p| p.0).max(process.lifetime_peak),
        ];
        columns.figures(p, t, figures, false);
        let helper = process.helper_at(time_us);
        if split.is_none() {
            let text = match helper {
                HelperState::Silent if !process.has_torch() => "not split: torch is not imported there",
                HelperState::Silent => "not split: the helper tells nothing of this device",
                _ => "not split: no helper in this process",
            };
            columns.write(p, 3, text, Type::Body, t.text3);
        }
        if helper != HelperState::Absent {
            columns.write(p, SOURCE, "helper", Type::Body, t.text2);
        } else if can_attach {
            let place = rect.across(rect.right() - 96.0, rect.right() - 16.0);
            let mut child = ui.new_child(
                UiBuilder::new().id_salt(("attach", index)).max_rect(place).layout(Layout::right_to_left(Align::Center)),
            );
            if Push::outlined("Attach").small().show(&mut child).clicked() {
                self.selected = Some((process.pid, process.started));
                cx.actions.send(Action::Live(LiveAction::Attach(process.pid)));
            }
        } else {
            columns.write(p, SOURCE, "NVML", Type::Body, t.text3);
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

fn quiet_row(ui: &mut Ui, t: &Tokens, name: &str, bytes: u64, bands: &Bands, band: Band, source: &str) {
    let columns = Columns::of(row::line(ui, 32.0), bands);
    let p = ui.painter();
    columns.name(p, name, Type::Body, t.text2);
    if let Some(colour) = colour(band, t) {
        columns.bar(p, t, bands, |bar| bar.part(bytes as f64, colour));
    }
    columns.figures(p, t, [Some(bytes), None, None, None, None, None], false);
    columns.write(p, SOURCE, source, Type::Body, t.text3);
}
