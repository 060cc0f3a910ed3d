//! The right column: how to attach to the selected process, memory outside PyTorch, terms, cost of watching, alarms.

use egui::{Sense, Ui, vec2};

use super::table::{may_be_python, only_split};
use super::{LiveView, attachable, running};
use crate::app::state::{Action, LiveAction};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::row::definition;
use crate::app::widgets::{CodeWell, Cut, Field, PaneHeader, Push, key_value, label, pane, row};
use vramscope_core::model::{Bands, LiveTrack, ProcessTrack};
use vramscope_core::units::{Bytes, NBSP, count, time_of_day};
use vramscope_live::live::agent::Request;
use vramscope_live::live::alarm::AlarmRules;
use vramscope_live::live::attach::{Rung, Survey, ladder};

/// Terms of the view, in the order of the bands.
const WORDS: [(&str, &str); 5] = [
    ("driver", "kept by driver and firmware, never yours"),
    ("unattributed", "used, but in no process whose bytes NVML tells"),
    ("outside PyTorch", "context, kernels, cuBLAS, NCCL, raw cudaMalloc"),
    ("cached", "reserved by PyTorch, free for its next tensor"),
    ("allocated", "in live tensors"),
];

/// Events that "Record history" keeps. Dumping this many takes well under a second.
const HISTORY: u32 = 100_000;

impl LiveView {
    pub(super) fn side(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, track: &LiveTrack, bands: &Bands, at_us: i64) {
        let t = cx.tokens;
        // Prefer a process that may be PyTorch to a larger one that cannot be attached to.
        let worth = |p: &&ProcessTrack| {
            let point = p.at(at_us);
            let tells = p.has_helper || point.is_some_and(|x| x.torch.is_some());
            (tells, may_be_python(p), point.and_then(|x| x.used))
        };
        let selected = track.processes.iter().find(|p| self.selected == Some((p.pid, p.started)));
        let present = || track.processes.iter().filter(|p| p.at(at_us).is_some());
        let chosen = selected.or_else(|| present().max_by_key(worth));
        let can_attach = attachable(cx).is_some();
        let verb = |p: &ProcessTrack| match (p.has_helper, can_attach && track.trouble.is_none()) {
            (_, false) => "Process",
            (false, true) if !may_be_python(p) => "Process",
            (true, true) => "Attached to",
            (false, true) => "Attach to",
        };
        let title = chosen.map_or("No process".to_owned(), |p| format!("{} {}", verb(p), p.pid));
        let caption = chosen.map_or("", |p| p.command.as_str());
        PaneHeader::new(&title).caption(caption).show(ui, |_| {});
        egui::ScrollArea::vertical().id_salt("live side").auto_shrink(false).show(ui, |ui| {
            if let Some(process) = chosen {
                match &track.trouble {
                    Some(_) if can_attach => pane::padded(ui, |ui| {
                        ui.add_space(12.0);
                        let sentence = "The device does not answer. Whether this process still runs on it is not known, and it \
                            can be attached to when the device is back.";
                        label::paragraph(ui, sentence, Type::Body, t.text2);
                    }),
                    _ => self.ways_in(ui, cx, process),
                }
                let when = match (cx.shared.instant_us, running(cx)) {
                    (Some(_), _) => "at the cursor",
                    (None, Some(_)) => "now",
                    (None, None) => "at the end",
                };
                let shown = only_split(track, bands, at_us).then_some(bands.outside);
                outside(ui, when, process, shown, at_us, cx.tokens.text2);
            }
            pane::section(ui, "Device", "", false);
            gauges(ui, track, at_us, t.text2);
            if !track.limits.is_empty() {
                pane::section(ui, "What is unknown here", "", false);
                pane::padded(ui, |ui| {
                    for sentence in &track.limits {
                        label::paragraph(ui, sentence, Type::Body, t.text2);
                        ui.add_space(4.0);
                    }
                });
            }
            pane::section(ui, "Words on this page", "", false);
            pane::padded(ui, |ui| {
                for (term, meaning) in WORDS {
                    definition(ui, term, meaning, 112.0);
                }
            });
            if !track.costs.is_empty() {
                pane::section(ui, "What watching costs", "", false);
                for cost in &track.costs {
                    let slowed = if cost.is_slowed { ", slowed" } else { "" };
                    let rate = if cost.hz > 0.0 && cost.hz < 0.95 {
                        format!("every {:.0}{NBSP}s", 1.0 / cost.hz)
                    } else {
                        format!("{:.1} a second", cost.hz)
                    };
                    let value = format!("{:.0}{NBSP}µs, {rate}{slowed}", cost.mean_us);
                    key_value(ui, &cost.call, value);
                }
                if let Some(cpu) = track.sampler_cpu {
                    key_value(ui, "sampling thread", format!("{:.2}{NBSP}% of a core", cpu * 100.0));
                }
            }
            ui.add_space(16.0);
        });
    }

    fn ways_in(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, process: &ProcessTrack) {
        let t = cx.tokens;
        let Some(live) = attachable(cx) else {
            ui.add_space(12.0);
            let sentence = if process.has_helper || process.points.iter().any(|p| p.torch.is_some()) {
                "Recorded with the helper: allocated and cached are PyTorch's own figures."
            } else {
                "Recorded from NVML alone: bytes of the whole process."
            };
            pane::note(ui, sentence, Type::Body, t.text2);
            return;
        };
        let waits_for_torch = process.has_helper && !process.has_torch();
        if process.has_helper && !waits_for_torch {
            pane::padded(ui, |ui| {
                ui.add_space(12.0);
                ui.horizontal_wrapped(|ui| {
                    ui.spacing_mut().item_spacing = vec2(8.0, 8.0);
                    let pid = process.pid;
                    let is_on = live.helpers.contains(&(pid, true));
                    let history = if is_on { "Stop history" } else { "Record history" };
                    for (button, about, request) in [
                        (Push::primary("Snapshot now"), "Dumps the allocator's state and opens it here", Request::Snapshot),
                        (
                            Push::outlined("Update blocks"),
                            "Segments and blocks for the segment map, without traces",
                            Request::Blocks,
                        ),
                        (
                            Push::outlined(history),
                            "Allocations with Python stacks, the newest 100,000 events: about 2 µs each",
                            Request::History { on: !is_on, max_entries: HISTORY },
                        ),
                        (
                            Push::outlined("Snapshot at OOM"),
                            "Writes a snapshot the next time a request fails, once, and opens it",
                            Request::SnapshotAtOom(true),
                        ),
                    ] {
                        if button.show(ui).on_hover_text(about).clicked() {
                            cx.actions.send(Action::Live(LiveAction::Ask(pid, request)));
                        }
                    }
                });
                ui.add_space(4.0);
            });
        }
        let survey = live.survey.as_ref().filter(|s| s.pid == process.pid).cloned();
        if survey.is_none() && !process.has_helper {
            // The watching thread reads a few small files; the answer arrives within a frame or two.
            if live.surveying != Some(process.pid) {
                cx.actions.send(Action::Live(LiveAction::Look(process.pid)));
            }
            return;
        }
        let survey = survey.unwrap_or_else(|| Survey { pid: process.pid, ..Survey::default() });
        // Only Python programs get lines of Python. When the process cannot be examined from here, all ways to attach are shown
        // with their obstacles.
        let is_unseen = survey.command.is_empty() && survey.obstacle.is_some();
        let rungs = if process.has_helper || is_unseen || survey.is_python() { 3 } else { 1 };
        let mut ladder = ladder(&survey, process.has_helper);
        if waits_for_torch {
            ladder[1].state = "waits for torch".to_owned();
            ladder[1].text =
                "The helper answers, and torch is not imported there: nothing to split, and no snapshot to take, until it \
                is and uses this device."
                    .to_owned();
        }
        for (i, rung) in ladder.iter().take(rungs).enumerate() {
            if i > 0 {
                ui.add_space(10.0);
                pane::rule(ui);
            }
            ui.add_space(12.0);
            rung_ui(ui, cx, process.pid, rung);
        }
        if rungs == 1 {
            ui.add_space(8.0);
            pane::note(ui, "This process is no Python: there is no PyTorch in it to ask.", Type::Body, t.text2);
        }
        if let Some(busy) = &live.busy {
            ui.add_space(8.0);
            pane::note(ui, busy, Type::Body, t.text3);
        }
    }

    pub(super) fn alarms_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        ui.set_min_width(300.0);
        pane::padded(ui, |ui| {
            ui.add_space(8.0);
            label::paragraph(ui, "Tell me when", Type::Title, t.text1);
            ui.add_space(8.0);
            let mut takes_keyboard = std::mem::take(&mut self.takes_keyboard);
            let mut row = |ui: &mut Ui, before: &str, name: &str, hint: &str, text: &mut String| {
                ui.horizontal(|ui| {
                    let (rect, _) = ui.allocate_exact_size(vec2(150.0, 22.0), Sense::hover());
                    label::text_in(ui.painter(), rect, before, Type::Body, t.text2);
                    let response = Field::new(name).hint(hint).mono().width(110.0).show(ui, text);
                    if std::mem::take(&mut takes_keyboard) {
                        response.request_focus();
                    }
                });
                ui.add_space(6.0);
            };
            row(ui, "less is free than", "Free below", "2 GiB", &mut self.alarm_free);
            row(ui, "use grows by more than", "Growth", "1 GiB", &mut self.alarm_growth);
            row(ui, "over so many minutes", "Minutes", "10", &mut self.alarm_minutes);
            if let Some(error) = &self.alarm_error {
                label::paragraph(ui, error, Type::Body, t.amber);
                ui.add_space(6.0);
            }
            ui.horizontal(|ui| {
                if Push::primary("Watch").show(ui).clicked() {
                    match self.rules() {
                        Ok(rules) => {
                            self.alarm_error = None;
                            cx.actions.send(Action::Live(LiveAction::Alarms(rules)));
                            ui.close();
                        }
                        Err(sentence) => self.alarm_error = Some(sentence),
                    }
                }
                if Push::plain("Off").show(ui).clicked() {
                    cx.actions.send(Action::Live(LiveAction::Alarms(AlarmRules::default())));
                    ui.close();
                }
            });
            ui.add_space(8.0);
        });
    }

    /// The alarm rules as typed; an empty field means no rule.
    fn rules(&self) -> Result<AlarmRules, String> {
        let bytes = |text: &str| match text.trim() {
            "" => Ok(None),
            text => Bytes::parse(text).map(|b| Some(b.0)).map_err(|e| e.to_string()),
        };
        let minutes = match self.alarm_minutes.trim() {
            "" => 10,
            text => text.parse().ok().filter(|m| (1..=1440).contains(m)).ok_or("Minutes go from 1 to 1440.")?,
        };
        Ok(AlarmRules { free_below: bytes(&self.alarm_free)?, growth: bytes(&self.alarm_growth)?, growth_minutes: minutes })
    }
}

fn rung_ui(ui: &mut Ui, cx: &ViewContext<'_>, pid: u32, rung: &Rung) {
    let t = cx.tokens;
    pane::padded(ui, |ui| {
        let rect = row::line(ui, 18.0);
        let p = ui.painter();
        let is_active = rung.state == "active";
        let centre = rect.middle(rect.left() + 7.0);
        p.circle_stroke(centre, 6.5, egui::Stroke::new(1.0, if is_active { t.accent } else { t.line2 }));
        if is_active {
            p.circle_filled(centre, 3.0, t.accent);
        }
        let inner = rect.with_min_x(rect.left() + 22.0);
        label::text_in(p, inner, rung.title, Type::Strong, t.text1);
        label::text_in_right(p, inner, &rung.state, Type::Caption, t.text3);
        ui.horizontal(|ui| {
            ui.add_space(14.0);
            ui.vertical(|ui| {
                ui.spacing_mut().item_spacing.y = 4.0;
                ui.add_space(4.0);
                label::paragraph(ui, &rung.text, Type::Body, t.text2);
                for (before, line) in &rung.lines {
                    if !before.is_empty() {
                        label::paragraph(ui, before, Type::Body, t.text2);
                    }
                    CodeWell::new(line).copy(true).show(ui);
                }
                if rung.is_ready && Push::primary("Attach").show(ui).clicked() {
                    cx.actions.send(Action::Live(LiveAction::Attach(pid)));
                }
            });
        });
    });
}

/// Draws how much the process holds outside PyTorch, and the largest jump of it.
fn outside(ui: &mut Ui, when: &str, process: &ProcessTrack, shown: Option<u64>, at_us: i64, ink: egui::Color32) {
    let figure = |p: &vramscope_core::model::ProcessPoint| Some(p.used?.saturating_sub(p.torch?.reserved));
    let Some(now) = process.at(at_us).and_then(figure) else { return };
    pane::section(ui, &format!("Outside PyTorch, process {}", process.pid), "", false);
    key_value(ui, when, Bytes(shown.unwrap_or(now)));
    // Examines a limited number of samples, because the screen shows the last minutes.
    let points = &process.points[..process.points.partition_point(|p| p.time_us <= at_us)];
    let recent = &points[points.len().saturating_sub(4000)..];
    let series: Vec<u64> = recent.iter().filter_map(figure).collect();
    // The driver and PyTorch are not read at the same instant. A jump that is gone in the next sample is ignored.
    let step = series.windows(3).map(|w| (w[1].min(w[2]).saturating_sub(w[0]), w[0])).max().filter(|s| s.0 >= 32 << 20);
    if let Some((grown, before)) = step {
        key_value(ui, "before its largest step", Bytes(before));
        key_value(ui, "grew in one step by", Bytes(grown));
    }
    if let Some((peak, at)) = process.peak {
        key_value(ui, "peak, NVML", format!("{} at {}", Bytes(peak), time_of_day(at)));
    }
    if let Some(torch) = process.at(at_us).and_then(|p| p.torch) {
        let peak = process.torch_peak.map_or(torch.allocated_peak, |peaks| peaks.0);
        key_value(ui, "peak allocated", Bytes(peak));
        key_value(ui, "retries, out of memory", format!("{}, {}", count(torch.retries), count(torch.ooms)));
    }
    pane::padded(ui, |ui| {
        ui.add_space(6.0);
        let sentence = "PyTorch did not request this. A context takes about 500 MiB on a large GPU, and kernels some more. \
            Anything beyond that comes from another library in the same process.";
        label::paragraph(ui, sentence, Type::Body, ink);
    });
}

fn gauges(ui: &mut Ui, track: &LiveTrack, at_us: i64, ink: egui::Color32) {
    let at = track.gauges.partition_point(|g| g.time_us <= at_us);
    let gauge = at.checked_sub(1).and_then(|i| track.gauges.get(i)).copied().unwrap_or_default();
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            key_value(ui, name, value);
        }
    };
    row("busy", gauge.busy.map(|v| format!("{v}{NBSP}%")));
    row("memory bandwidth in use", gauge.bandwidth.map(|v| format!("{v}{NBSP}% of the time")));
    row("temperature", gauge.temperature.map(|v| format!("{v}{NBSP}°C")));
    let watts = |mw: u32| format!("{:.0}{NBSP}W", f64::from(mw) / 1000.0);
    let power = gauge.power_mw.map(|p| match gauge.power_limit_mw {
        Some(limit) => format!("{} of {}", watts(p), watts(limit)),
        None => watts(p),
    });
    row("power", power);
    row("clock", gauge.clock_mhz.map(|v| format!("{v}{NBSP}MHz")));
    row("clocks held back", gauge.throttle.and_then(vramscope_live::live::source::throttle_text).map(str::to_owned));
    row("peak used", track.peak.map(|(b, t)| format!("{} at {}", Bytes(b), time_of_day(t))));
    for (key, value) in track.facts.iter().filter(|f| f.0 != "UUID") {
        row(key, Some(value.clone()));
    }
    if track.skewed > 0 {
        row("samples with skew", Some(count(track.skewed)));
    }
    // The value is longer than the column, so it gets its own line.
    for (_, value) in track.facts.iter().filter(|f| f.0 == "UUID") {
        pane::note(ui, value, Type::Mono, ink);
    }
}
