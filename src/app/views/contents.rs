//! Contents: the devices of the recording, figures at the cursor, settings, and oddities of the file.

use egui::{CursorIcon, ScrollArea, Stroke, Ui, vec2};

use super::live::figures::has_only_samples;
use super::{View, ViewContext, ViewInfo};
use crate::app::data::device::holds;
use crate::app::state::{Action, ViewKind};
use crate::app::theme::Type;
use crate::app::theme::visuals::{PAD_PANE, ROW_DENSE};
use crate::app::widgets::{Cut, ListRow, key_value, label, pane, section};
use vramscope_core::diagnose::source_limits::allocator_name;
use vramscope_core::units::{Bytes, Micros, count, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Contents,
    legend: &[
        ("reserved", "what PyTorch took from the device, in segments"),
        ("active", "whole blocks that hold tensors or wait for another stream"),
        ("allocated", "whole blocks that hold tensors"),
        ("requested", "what programs requested, before rounding"),
    ],
    create: || Box::new(Contents),
};

struct Contents;

impl View for Contents {
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            // Keeps figures close to their labels, so that a row can be read across.
            ui.set_max_width(ui.available_width().min(720.0));
            devices(ui, cx);
            if has_only_samples(cx.data.device()) {
                watched(ui, cx);
            } else if let Some(state) = cx.state.filter(|_| !cx.data.has_only_sums() && !cx.data.recording.has_only_counters()) {
                let knows_reserved = cx.data.knows_reserved();
                let known = |is_known, bytes| if is_known { Bytes(bytes).to_string() } else { "not in this file".to_owned() };
                let knows_requested = cx.data.device().can_show.requested.is_known();
                section(ui, "At the cursor", "", false);
                key_value(ui, "reserved", known(knows_reserved, state.totals.reserved));
                key_value(ui, "active", Bytes(state.totals.active));
                key_value(ui, "allocated", Bytes(state.totals.allocated));
                key_value(ui, "requested", known(knows_requested, state.totals.requested));
                if knows_reserved {
                    key_value(ui, "segments", count(state.segments.len() as u64));
                }
                let (live, pending) = state.live_and_pending();
                key_value(ui, "live blocks", count(live));
                if pending > 0 {
                    key_value(ui, "freed, waiting for a stream", counted(pending, "block", "blocks"));
                }
                if knows_reserved {
                    key_value(ui, "holes", count(state.holes().count() as u64));
                }
            }
            recorded(ui, cx);
            added(ui, cx);
            settings(ui, cx);
            warnings(ui, cx);
            ui.add_space(16.0);
        });
    }
}

/// The devices. The one in front is marked like a selected row; the others are links.
fn devices(ui: &mut Ui, cx: &ViewContext<'_>) {
    let t = cx.tokens;
    let all = &cx.data.recording.devices;
    section(ui, if all.len() == 1 { "Device" } else { "Devices" }, "", true);
    for (i, device) in all.iter().enumerate() {
        let is_shown = i == cx.data.index;
        let name = match &device.name {
            Some(name) => format!("{} {name}", device.id),
            None => device.id.to_string(),
        };
        let response = ListRow::new(&name).height(ROW_DENSE).selected(is_shown && all.len() > 1).show_painted(ui);
        let inner = response.rect.shrink2(vec2(PAD_PANE, 0.0));
        let figure = holds(&cx.data.recording, device);
        let figure = label::text_in_right(ui.painter(), inner, &figure, Type::Mono, t.text1);
        let room = inner.with_max_x(figure.left() - 8.0);
        let (kind, ink) = if is_shown { (Type::Strong, t.text1) } else { (Type::Body, t.accent) };
        let covered = label::text_in(ui.painter(), room, &name, kind, ink);
        let has_failed = cx.data.failed_devices().contains(&i);
        if has_failed && covered.right() + 12.0 < room.right() {
            ui.painter().circle_filled(covered.middle(covered.right() + 9.0), 3.0, t.red);
        }
        if is_shown {
            continue;
        }
        if response.hovered() {
            ui.painter().hline(covered.x_range(), covered.bottom() - 1.5, Stroke::new(1.0, t.accent));
        }
        let tip = if has_failed { "Ran out of memory. Show this device" } else { "Show this device" };
        if response.on_hover_cursor(CursorIcon::PointingHand).on_hover_text(tip).clicked() {
            cx.actions.send(Action::SetDevice(i));
        }
    }
}

/// What was sampled, for a watch, which has no figures of the allocator.
fn watched(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    section(ui, "Watched", "", false);
    key_value(ui, "samples", count(device.samples.len() as u64));
    if let (Some(first), Some(last)) = (device.samples.first(), device.samples.last()) {
        key_value(ui, "time", Micros(last.time_us - first.time_us));
    }
    let Some(track) = device.live.as_deref() else { return };
    key_value(ui, "processes", count(track.processes.len() as u64));
    let helpers = track.processes.iter().filter(|p| p.torch_peak.is_some()).count() as u64;
    key_value(ui, "with PyTorch's own figures", count(helpers));
    key_value(ui, "samples lost", count(track.lost));
    key_value(ui, "times without samples", count(track.gaps.len() as u64));
    key_value(ui, "marks", count(track.marks.len() as u64));
}

fn recorded(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    let never_ran = cx.data.recording.source.format.never_ran();
    section(ui, if never_ran { "Predicted, never ran" } else { "Recorded" }, "", false);
    if never_ran {
        let words = "This run was never made: its requests follow from recordings of the program, and its figures from a model of the allocator.";
        pane::note(ui, words, Type::Body, cx.tokens.amber);
    }
    // A watch that is still running has no file yet.
    if cx.data.recording.source.bytes > 0 {
        key_value(ui, "file", Bytes(cx.data.recording.source.bytes));
    }
    key_value(ui, "format", cx.data.recording.source.format.name());
    if !device.bands.is_empty() {
        key_value(ui, "rows by category", count(device.bands.len() as u64));
        // Rows whose bytes only change category do not change the sum, so they are not counted.
        key_value(ui, "sums that differ", count(device.samples.len() as u64));
    }
    if cx.data.recording.has_only_counters() {
        let counters: usize = cx.data.recording.stats.iter().map(|(_, stats)| stats.values.len()).sum();
        key_value(ui, "counters", count(counters as u64));
        return;
    }
    if has_only_samples(device) || cx.data.has_only_sums() {
        if cx.data.recording.report.seconds > 0.0 {
            key_value(ui, "read in", format!("{:.2} s", cx.data.recording.report.seconds));
        }
        return;
    }
    key_value(ui, "events", count(device.events.len() as u64));
    key_value(ui, "allocations", count(cx.data.tables.lifetimes.len() as u64));
    key_value(ui, "live before", count(cx.data.tables.lifetimes.initial_count() as u64));
    if let Some((first, last)) = device.events.time_range() {
        key_value(ui, "time", Micros(last - first));
    }
    key_value(ui, "call stacks", count(cx.data.recording.stacks.len() as u64));
    key_value(ui, "streams", count(device.streams.len() as u64));
    key_value(ui, "pools", count(device.pools.len() as u64));
    key_value(ui, "annotations", count(device.annotations.len() as u64));
    key_value(ui, "read in", format!("{:.2} s", cx.data.recording.report.seconds));
}

/// Files of the same run that were added to this one.
fn added(ui: &mut Ui, cx: &ViewContext<'_>) {
    let recording = &cx.data.recording;
    if recording.added.is_empty() && recording.stats.is_empty() {
        return;
    }
    section(ui, "Added", "", false);
    let counters = recording.stats.iter().map(|(name, stats)| format!("{name}: {} in Accounting.", stats.kind.name()));
    for sentence in recording.added.iter().map(|a| a.sentence.clone()).chain(counters) {
        pane::note(ui, &sentence, Type::Body, cx.tokens.text2);
        ui.add_space(4.0);
    }
}

fn settings(ui: &mut Ui, cx: &ViewContext<'_>) {
    if cx.data.recording.has_only_counters() {
        return;
    }
    // RMM and JAX have none of PyTorch's settings.
    let is_torch = allocator_name(&cx.data.recording) == "PyTorch";
    if has_only_samples(cx.data.device()) || !is_torch {
        return;
    }
    let settings = &cx.data.device().settings;
    section(ui, "Allocator settings", "", false);
    if !settings.recorded {
        key_value(ui, "not recorded", "PyTorch 2.3 and later do");
        return;
    }
    for (key, value) in &settings.raw {
        let shown = if value.is_empty() { "default" } else { value.as_str() };
        key_value(ui, key, shown);
    }
}

fn warnings(ui: &mut Ui, cx: &ViewContext<'_>) {
    let report = &cx.data.recording.report;
    let contradiction = cx.data.tables.disagreement.as_ref();
    if report.warnings.is_empty() && contradiction.is_none() {
        return;
    }
    section(ui, "Odd about this file", "", false);
    if let Some(contradiction) = contradiction {
        ui.horizontal_top(|ui| {
            ui.add_space(PAD_PANE);
            ui.add(egui::Label::new(Type::Body.text(contradiction).color(cx.tokens.amber)).wrap());
        });
        ui.add_space(4.0);
    }
    for warning in &report.warnings {
        ui.horizontal_top(|ui| {
            ui.add_space(PAD_PANE);
            ui.label(Type::Mono.text(format!("{} ×", count(warning.count))).color(cx.tokens.amber));
            ui.add(egui::Label::new(Type::Body.text(&warning.text).color(cx.tokens.text2)).wrap());
        });
        ui.add_space(4.0);
    }
}
