//! Accounting: the whole card at the cursor, from its total down to the bytes tensors asked for.

use std::sync::Arc;

use egui::{Role, ScrollArea, Sense, Ui, WidgetInfo, vec2};

mod counters;

use super::live::told::{card_rows, has_only_samples, shown};
use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::Category;
use crate::analysis::accounting::{Part, account};
use crate::analysis::categories::ByCategory;
use crate::analysis::oom::has_segments;
use crate::app::colours::category_paint;
use crate::app::jobs::Derived;
use crate::app::theme::Type;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::pane::{padded, section};
use crate::app::widgets::{label, term};
use crate::units::{Bytes, counted};

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Accounting,
    title: "Accounting",
    name: "accounting",
    about: "Where every byte is at the cursor: why nvidia-smi and PyTorch disagree, and what empty_cache would give back.",
    legend: &[
        ("grey", "not PyTorch's: driver, other processes, context"),
        ("hatched", "free inside what PyTorch reserved"),
        ("not in this file", "an allocator snapshot does not hold it; nvidia-smi does"),
        ("counters", "what memory_stats() counted; amber where the snapshot tells otherwise"),
        ("by category", "what the live tensors are for; select one and the inspector says why it is counted there"),
    ],
    create: || Box::new(Accounting::default()),
};

#[derive(Default)]
struct Accounting {
    /// Keyed by the instant and where the categories lie in memory.
    live: Derived<(u32, usize), ByCategory>,
    counters: counters::Counters,
}

impl View for Accounting {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        if has_only_samples(cx.data.device()) {
            return shown(cx).map(|(_, when)| when).unwrap_or_default();
        }
        format!("at event {}", crate::units::count(u64::from(cx.link.cursor)))
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        if has_only_samples(cx.data.device()) {
            return by_samples(ui, cx);
        }
        let Some(state) = cx.state else { return };
        let waterfall = account(cx.data.device(), state, has_segments(&cx.data.tables));
        let most = waterfall.rows.iter().filter_map(|r| r.bytes).chain(waterfall.reserved).max();
        let greatest = most.unwrap_or(1).max(1) as f64;
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            // A figure far from its label can not be read across.
            ui.set_max_width(ui.available_width().min(720.0));
            ui.spacing_mut().item_spacing.y = 0.0;
            ui.add_space(8.0);
            let whole = waterfall.rows.iter().find(|r| r.part == Part::CachedWhole).and_then(|r| r.bytes).unwrap_or(0);
            egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 4)).show(ui, |ui| {
                ui.set_width(ui.available_width());
                let live = waterfall.rows.iter().find(|r| r.part == Part::Requested).and_then(|r| r.bytes).unwrap_or(0);
                let sentence = match waterfall.reserved {
                    Some(reserved) => format!(
                        "PyTorch reserves {}. torch.cuda.empty_cache() would give {} of it back now.",
                        Bytes(reserved),
                        Bytes(whole)
                    ),
                    None => format!(
                        "Live tensors asked for {}. Segments are not in this file, so it does not tell what PyTorch reserved for them, nor what torch.cuda.empty_cache() would give back.",
                        Bytes(live)
                    ),
                };
                label::paragraph(ui, &sentence, Type::Lead, t.text1);
            });
            ui.add_space(8.0);
            for row in waterfall.rows.iter().filter(|row| row.bytes.is_some()) {
                let height = if row.bytes.unwrap_or(0) > 0 { 44.0 } else { 24.0 };
                let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover());
                let inner = rect.shrink2(vec2(16.0, 0.0));
                let first = egui::Rect::from_min_size(inner.min, vec2(inner.width(), 22.0));
                let figure = Bytes(row.bytes.unwrap_or(0)).to_string();
                let value = label::text_in_right(ui.painter(), first, &figure, Type::Mono, t.text1);
                let room = egui::Rect::from_min_max(first.min, egui::pos2(value.left() - 8.0, first.bottom()));
                label::text_in(ui.painter(), room, row.part.title(), Type::Strong, t.text1);
                let bar = egui::Rect::from_min_max(
                    egui::pos2(inner.left(), first.bottom()),
                    egui::pos2(inner.right(), first.bottom() + 14.0),
                );
                if let Some(bytes) = row.bytes.filter(|&b| b > 0) {
                    let empty = Bar::new(greatest);
                    let drawn = match row.part {
                        Part::CachedWhole | Part::CachedPinned | Part::DeviceFree => empty.hatched(bytes as f64),
                        Part::Driver | Part::OtherProcesses => empty.part(bytes as f64, t.other),
                        Part::OutsidePytorch => empty.part(bytes as f64, t.slot(1)),
                        Part::PendingFree => empty.part(bytes as f64, t.slot(3)),
                        Part::Rounding => empty.part(bytes as f64, t.slot(5)),
                        Part::Requested => empty.part(bytes as f64, t.slot(0)),
                    };
                    drawn.paint(ui.painter(), t, bar);
                }
                if !term::explain_label(&response, row.part.title()) {
                    response.on_hover_text(row.part.about());
                }
            }
            if let Some(untold) = waterfall.untold() {
                ui.add_space(6.0);
                padded(ui, |ui| {
                    let text = format!("{untold} A watched process, or nvidia-smi beside it, tells them.");
                    label::paragraph(ui, &text, Type::Body, t.text3);
                });
            }
            self.by_category(ui, cx, state.event, greatest);
            self.counters.ui(ui, cx);
            ui.add_space(12.0);
        });
    }
}

/// A watch without events: the card by its samples.
fn by_samples(ui: &mut Ui, cx: &ViewContext<'_>) {
    let Some((sample, when)) = shown(cx) else { return };
    let capacity = cx.data.device().capacity.unwrap_or(0);
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.set_max_width(ui.available_width().min(720.0));
        ui.spacing_mut().item_spacing.y = 0.0;
        ui.add_space(8.0);
        egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 4)).show(ui, |ui| {
            ui.set_width(ui.available_width());
            let bands = sample.bands(capacity).unwrap_or_default();
            let split = match (sample.reserved, sample.process) {
                (Some(reserved), _) => {
                    format!(" PyTorch reserves {} and has {} of it in tensors.", Bytes(reserved), Bytes(bands.allocated))
                }
                (None, Some(process)) => format!(" The process watched holds {}.", Bytes(process)),
                (None, None) => String::new(),
            };
            let sentence = format!("{} of {} were in use {when}.{split}", Bytes(bands.used()), Bytes(capacity));
            label::paragraph(ui, &sentence, Type::Lead, cx.tokens.text1);
        });
        ui.add_space(8.0);
        card_rows(ui, cx, sample);
        ui.add_space(8.0);
        let note = "By NVML and PyTorch's own counters. Click in the timeline to account for another instant.";
        crate::app::widgets::pane::padded(ui, |ui| label::paragraph(ui, note, Type::Caption, cx.tokens.text3));
        ui.add_space(12.0);
    });
}

impl Accounting {
    /// What live tensors asked for, by category: adds up to the last row above it and what waits for a stream.
    fn by_category(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, event: u32, greatest: f64) {
        let t = cx.tokens;
        let Some(categories) = cx.categories.filter(|c| c.says_anything()) else { return };
        let (data, held) = (Arc::clone(cx.data), Arc::clone(categories));
        let key = (event, Arc::as_ptr(categories) as usize);
        let live = self.live.get(cx.jobs, "categories at the cursor", &key, move |_| {
            Some(held.live_by_category(data.device(), &data.tables, event))
        });
        let Some(live) = live.value else { return };
        section(ui, "Tensors by category", "requested, at the cursor", false);
        for category in Category::ALL.into_iter().filter(|c| live[c.index()].count > 0) {
            let tally = live[category.index()];
            let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 36.0), Sense::hover());
            let figure = Bytes(tally.bytes).to_string();
            let name = format!("{}: {figure} in {}", category.text(), counted(tally.count, "allocation", "allocations"));
            response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &name));
            let inner = rect.shrink2(vec2(16.0, 0.0));
            let first = egui::Rect::from_min_size(inner.min, vec2(inner.width(), 20.0));
            let value = label::text_in_right(ui.painter(), first, &figure, Type::Mono, t.text1);
            let room = egui::Rect::from_min_max(first.min, egui::pos2(value.left() - 8.0, first.bottom()));
            label::text_in(ui.painter(), room, category.text(), Type::Body, t.text1);
            let bar = egui::Rect::from_min_max(
                egui::pos2(inner.left(), first.bottom()),
                egui::pos2(inner.right(), first.bottom() + 10.0),
            );
            let ink = category_paint(category).colour(t);
            Bar::new(greatest).part(tally.bytes as f64, ink).paint(ui.painter(), t, bar);
            response.on_hover_text(format!("{name}. {}", category.about()));
        }
    }
}
