//! The table of processes at the cursor, with figures of the driver and of PyTorch.

use egui::{Color32, Ui};

use super::LiveView;
use super::layout::Band;
use super::paint::colour;
use super::{attachable, newest, running};
use crate::app::state::{Action, LiveAction};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Cell, Column, PaneHeader, Push, Table, Width, label, pane};
use vramscope_core::model::{Bands, HelperState, LiveTrack, ProcessTrack};
use vramscope_core::units::{Bytes, SizeColumn, time_of_day};
use vramscope_live::live::attach::looks_like_python;

/// A row: a process, the driver's memory, or the whole device.
struct Line<'a> {
    /// The process and its index among all processes.
    process: Option<(usize, &'a ProcessTrack)>,
    name: (String, Type, Color32),
    bar: Option<Bar>,
    /// Used, allocated, cached, outside PyTorch, and the peaks of allocated and used.
    figures: [Option<u64>; 6],
    /// Why the figures of this process are missing.
    not_split: &'static str,
    /// Where the figures come from; `None` when a helper can be attached.
    source: Option<(String, Color32)>,
}

/// Index of the column with the source.
const SOURCE: usize = 9;

/// Narrower tables show only used memory and the source.
const WIDE: f32 = 860.0;

fn columns<'a>(t: &'a Tokens, size: SizeColumn, is_wide: bool) -> Vec<Column<'a, &'a Line<'a>>> {
    let figure = move |title: &'static str, i: usize, width: f32| {
        Column::figure(title, width, move |c: &Cell<'_>, l: &&Line<'a>| match l.figures[i] {
            Some(bytes) => c.figure(size.sized(bytes), if i >= 4 && l.name.1 != Type::Strong { t.text2 } else { t.text1 }),
            None if i == 0 => c.figure("not recorded", t.text3),
            None if i == 3 => _ = c.from(c.rect.left() - 260.0).right(l.not_split, Type::Body, t.text3),
            None => {}
        })
    };
    vec![
        Column::figure("PID", 44.0, |c, l: &&Line<'_>| {
            if let Some((_, process)) = l.process {
                c.figure(process.pid.to_string(), l.name.2);
            }
        }),
        Column::text("command", Width::Share(0.55, 80.0), |c, l: &&Line<'_>| _ = c.text(&l.name.0, l.name.1, l.name.2)),
        Column::text("share of used", Width::Share(0.45, 60.0), |c, l: &&Line<'_>| {
            if let Some(bar) = &l.bar {
                c.bar(bar);
            }
        })
        .from(WIDE),
        figure("NVML", 0, 80.0),
        figure("allocated", 1, 80.0).from(WIDE),
        figure("cached", 2, 80.0).from(WIDE),
        figure("outside PyTorch", 3, 86.0).from(WIDE),
        figure("peak allocated", 4, 86.0).from(1040.0),
        figure("peak NVML", 5, 80.0).from(WIDE),
        Column::figure("source", if is_wide { 80.0 } else { 124.0 }, move |c, l: &&Line<'_>| {
            if let Some((text, ink)) = &l.source {
                // The text may extend into empty columns beside it.
                c.from(c.rect.left() - if is_wide && l.process.is_none() { 180.0 } else { 0.0 }).right(text, Type::Body, *ink);
            }
        }),
    ]
}

impl LiveView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, track: &LiveTrack, bands: &Bands, time_us: i64) {
        let t = cx.tokens;
        let mut present: Vec<(usize, &ProcessTrack)> =
            track.processes.iter().enumerate().filter(|(_, p)| p.at(time_us).is_some()).collect();
        // Processes with PyTorch figures come first. The others are sorted by peak, because present sizes would reorder rows at
        // every sample.
        present.sort_by_key(|(_, p)| std::cmp::Reverse((p.at(time_us).is_some_and(|x| x.torch.is_some()), p.peak.map(|b| b.0))));
        let caption = match (cx.shared.instant_us, running(cx)) {
            (Some(_), _) => "at the cursor",
            (None, Some(_)) => newest(cx, track, time_us),
            (None, None) => "at the end",
        };
        let caption = match track.unlisted_us.filter(|since| *since <= time_us) {
            Some(since) => {
                format!("{caption} · {} listed last; not listed since {} UTC", present.len(), time_of_day(since))
            }
            None => format!("{caption} · {} on this device", present.len()),
        };
        PaneHeader::new("Processes").caption(&caption).show(ui, |_| {});
        let can_attach = attachable(cx).is_some() && track.trouble.is_none();
        let mut lines: Vec<Line<'_>> = present
            .iter()
            .filter_map(|(i, p)| process_line(t, (*i, p), bands, only_split(track, bands, time_us), time_us, can_attach))
            .collect();
        let untold = present.iter().filter(|(_, p)| p.at(time_us).is_some_and(|x| x.used.is_none())).count();
        let nobodys = match untold {
            0 => "used, less all above".to_owned(),
            n => format!("with {} listed without bytes", vramscope_core::units::counted(n as u64, "process", "processes")),
        };
        let quiet = |name: &str, bytes: u64, band: Band, source: String| Line {
            name: (name.to_owned(), Type::Body, t.text2),
            bar: colour(band, t).map(|colour| Bar::new(bands.used().max(1) as f64).part(bytes as f64, colour)),
            figures: [Some(bytes), None, None, None, None, None],
            source: Some((source, t.text3)),
            process: None,
            not_split: "",
        };
        lines.push(quiet("driver and firmware", bands.driver, Band::Driver, "NVML reserved".to_owned()));
        lines.push(quiet("unattributed", bands.unattributed, Band::Unattributed, nobodys));
        let split = |bytes: u64| (bands.outside + bands.allocated + bands.cached > 0).then_some(bytes);
        lines.push(Line {
            name: ("device".to_owned(), Type::Strong, t.text1),
            bar: None,
            figures: [
                Some(bands.used()),
                split(bands.allocated),
                split(bands.cached),
                split(bands.outside),
                None,
                track.peak.map(|p| p.0),
            ],
            ..quiet("", 0, Band::Driver, "NVML used".to_owned())
        });
        let size = SizeColumn::of([bands.used(), bands.allocated, bands.outside, track.peak.map_or(0, |p| p.0)]);
        let name_of = |l: &Line<'_>| match l.process {
            Some((_, p)) => format!("Process {} {}", p.pid, p.command),
            None => l.name.0.clone(),
        };
        let of = |line: &Line<'_>| line.process.map(|(_, p)| (p.pid, p.started));
        let selected = lines.iter().position(|line| of(line).is_some() && of(line) == self.selected);
        let table = Table::plain("processes", columns(t, size, ui.available_width() >= WIDE)).row_height(32.0).selected(selected);
        let out = table.show(ui, lines.len(), |i| lines.get(i), |_, l| name_of(l));
        for (i, response) in &out.seen {
            let (line, rect) = (&lines[*i], response.rect);
            if i + 1 == lines.len() {
                let p = ui.painter().with_clip_rect(response.interact_rect);
                p.hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line));
            }
            let Some((index, process)) = line.process else { continue };
            if let Some(place) = out.cell(rect, SOURCE).filter(|_| line.source.is_none()) {
                let mut child = pane::child_from_right(ui, place, ("attach", index));
                if Push::outlined("Attach").small().show(&mut child).clicked() {
                    self.selected = of(line);
                    cx.actions.send(Action::Live(LiveAction::Attach(process.pid)));
                }
            }
            response.clone().on_hover_ui(|ui| tip(ui, t, process));
        }
        if let Some((line, (_, process))) = out.chosen().and_then(|i| Some((&lines[i], lines[i].process?))) {
            let is_selected = self.selected == of(line);
            self.selected = if is_selected { None } else { of(line) };
            if !is_selected {
                cx.actions.send(Action::Live(LiveAction::Look(process.pid)));
            }
        }
    }
}

/// True when exactly one process has PyTorch figures. Its row then shows the parts of the chart, which are all of one instant;
/// the process's own last figures may be slightly older.
pub(super) fn only_split(track: &LiveTrack, bands: &Bands, time_us: i64) -> bool {
    let is_known = bands.unsplit == 0 && bands.outside + bands.allocated + bands.cached > 0;
    is_known && track.processes.iter().filter(|p| p.at(time_us).is_some_and(|x| x.torch.is_some())).count() == 1
}

fn process_line<'a>(
    t: &Tokens,
    (index, process): (usize, &'a ProcessTrack),
    bands: &Bands,
    is_only: bool,
    time_us: i64,
    can_attach: bool,
) -> Option<Line<'a>> {
    let point = process.at(time_us)?;
    // Split into PyTorch's memory and the rest.
    let split = point.torch.map(|m| match is_only {
        true => (bands.allocated, bands.cached, bands.outside),
        false => {
            (m.allocated, m.reserved.saturating_sub(m.allocated), point.used.unwrap_or(m.reserved).saturating_sub(m.reserved))
        }
    });
    let used = split.filter(|_| is_only && point.used.is_some()).map(|(a, c, o)| a + c + o).or(point.used);
    let name = match &process.container {
        Some(container) => format!("{}   {container}", process.command),
        None if process.command.is_empty() => process.name.clone(),
        None => process.command.clone(),
    };
    let solid = |b: Band| colour(b, t).unwrap_or(t.other);
    let bar = Bar::new(bands.used().max(1) as f64);
    let bar = match split {
        Some((allocated, cached, outside)) => {
            bar.part(outside as f64, solid(Band::Outside)).part(allocated as f64, solid(Band::Allocated)).hatched(cached as f64)
        }
        None => bar.part(point.used.unwrap_or(0) as f64, t.other),
    };
    let helper = process.helper_at(time_us);
    Some(Line {
        process: Some((index, process)),
        name: (name, Type::Mono, if point.used == Some(0) { t.text3 } else { t.text1 }),
        bar: Some(bar),
        figures: [
            used,
            split.map(|s| s.0),
            split.map(|s| s.1),
            split.map(|s| s.2),
            process.torch_peak.map(|p| p.0),
            process.peak.map(|p| p.0).max(process.lifetime_peak),
        ],
        not_split: match helper {
            HelperState::Silent if !process.has_torch() => "not split: torch is not imported there",
            HelperState::Silent => "not split: the helper tells nothing of this device",
            _ => "not split: no helper in this process",
        },
        source: match helper {
            HelperState::Absent if can_attach && may_be_python(process) => None,
            HelperState::Absent => Some(("NVML".to_owned(), t.text3)),
            _ => Some(("helper".to_owned(), t.text2)),
        },
    })
}

/// False for a program whose command line is known and is no Python's. The side column still examines it when it is selected.
pub(super) fn may_be_python(process: &ProcessTrack) -> bool {
    process.command.is_empty() || looks_like_python(process.command.split_whitespace())
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
