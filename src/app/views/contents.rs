//! Contents: what the recording holds: devices, figures at the cursor, settings, what was odd about the file.

use egui::{ScrollArea, Ui};

use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::app::action::Action;
use crate::app::theme::text;
use crate::units::{Bytes, Micros, count};

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Contents,
    title: "Contents",
    name: "contents",
    about: "What this recording holds, and the figures at the cursor.",
    legend: &[
        ("reserved", "what PyTorch took from the device, in segments"),
        ("active", "whole blocks that hold tensors or wait for another stream"),
        ("allocated", "whole blocks that hold tensors"),
        ("requested", "what programs asked for, before rounding"),
    ],
    create: || Box::new(Contents),
};

struct Contents;

impl View for Contents {
    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 0.0;
            ui.add_space(8.0);
            devices(ui, cx);
            if let Some(state) = cx.state {
                section(ui, cx, "At the cursor");
                row(ui, cx, "reserved", &Bytes(state.totals.reserved).to_string());
                row(ui, cx, "active", &Bytes(state.totals.active).to_string());
                row(ui, cx, "allocated", &Bytes(state.totals.allocated).to_string());
                row(ui, cx, "requested", &Bytes(state.totals.requested).to_string());
                let holes = state.holes().count() as u64;
                row(ui, cx, "segments", &count(state.segments.len() as u64));
                row(ui, cx, "live blocks", &count(state.blocks.len() as u64 - holes));
                row(ui, cx, "holes", &count(holes));
            }
            recorded(ui, cx);
            settings(ui, cx);
            warnings(ui, cx);
            ui.add_space(16.0);
        });
    }
}

fn devices(ui: &mut Ui, cx: &ViewContext<'_>) {
    section(ui, cx, "Devices");
    for (i, device) in cx.data.recording.devices.iter().enumerate() {
        let name = device.id.to_string();
        let figure = format!("{} events", count(device.events.len() as u64));
        let response = ui
            .horizontal(|ui| {
                ui.add_space(12.0);
                let colour = if i == cx.data.index { cx.tokens.text1 } else { cx.tokens.accent };
                let clicked = ui.add(egui::Label::new(text::strong(name).color(colour)).sense(egui::Sense::click())).clicked();
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    ui.add_space(12.0);
                    ui.label(text::mono(figure).color(cx.tokens.text1));
                });
                clicked
            })
            .inner;
        if response && i != cx.data.index {
            cx.actions.send(Action::SetDevice(i));
        }
    }
}

fn recorded(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    section(ui, cx, "Recorded");
    row(ui, cx, "file", &Bytes(cx.data.recording.source.bytes).to_string());
    row(ui, cx, "format", cx.data.recording.source.format.name());
    row(ui, cx, "events", &count(device.events.len() as u64));
    row(ui, cx, "allocations", &count(cx.data.tables.lifetimes.len() as u64));
    row(ui, cx, "live before", &count(cx.data.tables.lifetimes.initial_count() as u64));
    if let Some((first, last)) = device.events.time_range() {
        row(ui, cx, "time", &Micros(last - first).to_string());
    }
    row(ui, cx, "call stacks", &count(cx.data.recording.stacks.len() as u64));
    row(ui, cx, "streams", &count(device.streams.len() as u64));
    row(ui, cx, "pools", &count(device.pools.len() as u64));
    row(ui, cx, "annotations", &count(device.annotations.len() as u64));
    row(ui, cx, "read in", &format!("{:.2} s", cx.data.recording.report.seconds));
}

fn settings(ui: &mut Ui, cx: &ViewContext<'_>) {
    let settings = &cx.data.device().settings;
    section(ui, cx, "Allocator settings");
    if !settings.recorded {
        row(ui, cx, "not recorded", "PyTorch 2.3 and later do");
        return;
    }
    for (key, value) in &settings.raw {
        let shown = if value.is_empty() { "default" } else { value.as_str() };
        row(ui, cx, key, shown);
    }
}

fn warnings(ui: &mut Ui, cx: &ViewContext<'_>) {
    let report = &cx.data.recording.report;
    if report.warnings.is_empty() {
        return;
    }
    section(ui, cx, "Odd about this file");
    for warning in &report.warnings {
        ui.horizontal_top(|ui| {
            ui.add_space(12.0);
            ui.label(text::mono(format!("{} ×", count(warning.count))).color(cx.tokens.amber));
            ui.add(egui::Label::new(text::body(&warning.text).color(cx.tokens.text2)).wrap());
        });
        ui.add_space(4.0);
    }
}

fn section(ui: &mut Ui, cx: &ViewContext<'_>, title: &str) {
    ui.add_space(12.0);
    ui.horizontal(|ui| {
        ui.add_space(12.0);
        ui.label(text::caption(title).color(cx.tokens.text3));
    });
    ui.add_space(4.0);
}

fn row(ui: &mut Ui, cx: &ViewContext<'_>, label: &str, value: &str) {
    let (rect, response) = ui.allocate_exact_size(egui::vec2(ui.available_width(), 20.0), egui::Sense::hover());
    let painter = ui.painter_at(rect);
    let value_galley = {
        let mut job =
            egui::text::LayoutJob::simple_singleline(value.to_owned(), crate::app::theme::Type::Mono.font(), cx.tokens.text1);
        job.wrap = egui::text::TextWrapping::truncate_at_width(rect.width() * 0.6);
        painter.layout_job(job)
    };
    let mut job =
        egui::text::LayoutJob::simple_singleline(label.to_owned(), crate::app::theme::Type::Body.font(), cx.tokens.text2);
    job.wrap = egui::text::TextWrapping::truncate_at_width((rect.width() - value_galley.size().x - 32.0).max(20.0));
    let galley = painter.layout_job(job);
    painter.galley(egui::pos2(rect.left() + 12.0, rect.center().y - galley.size().y / 2.0), galley.clone(), cx.tokens.text2);
    painter.galley(
        egui::pos2(rect.right() - 12.0 - value_galley.size().x, rect.center().y - value_galley.size().y / 2.0),
        value_galley.clone(),
        cx.tokens.text1,
    );
    if galley.elided || value_galley.elided {
        response.on_hover_text(format!("{label}: {value}"));
    }
}
