//! Accounting: all memory of the card at the cursor, from its total down to the requested bytes of tensors.

use std::sync::Arc;

use egui::{ScrollArea, Sense, Ui, WidgetInfo, vec2};

mod counters;
mod layout;

use super::live::figures::{card_rows, has_only_samples, shown};
use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::role_paint;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::ViewKind;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, CodeWell, Cut, label, padded, pane, section, term};
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::ByRole;
use vramscope_core::diagnose::accounting::{Part, Waterfall, account};
use vramscope_core::diagnose::counted::{account_counters, counted_sentence};
use vramscope_core::diagnose::oom::has_segments;
use vramscope_core::diagnose::source_limits::allocator_name;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{MemoryStats, StackId, StatsKind};
use vramscope_core::units::{Bytes, SizeColumn, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Accounting,
    legend: &[
        ("bars", "from the whole card down: each begins where the one above it ends"),
        ("cut bar", "longer than all the others together, and so not to scale"),
        ("grey", "not PyTorch's: driver, other processes, context"),
        ("hatched", "free inside what PyTorch reserved"),
        ("not in this file", "an allocator snapshot does not hold it; nvidia-smi does"),
        ("counters", "what memory_stats() counted; amber where the snapshot disagrees"),
        ("by role", "what the live tensors are for; select one and the inspector says why it is counted there"),
    ],
    create: || Box::new(Accounting::default()),
};

/// From this width on, a bar is beside its figure.
const WIDE: f32 = 560.0;
const NAMES: f32 = 310.0;

#[derive(Default)]
struct Accounting {
    /// Keyed by the event and the roles.
    live: Derived<(u32, Identity), ByRole>,
    counters: counters::Counters,
}

impl View for Accounting {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        if has_only_samples(cx.data.device()) {
            return shown(cx).map(|(_, when)| when).unwrap_or_default();
        }
        if let Some((_, stats)) = alone(cx) {
            return format!("{} of {}", stats.kind.name(), cx.data.device().id);
        }
        if cx.data.device().events.is_empty() {
            return "at the end".to_owned();
        }
        format!("at event {}", vramscope_core::units::count(u64::from(cx.shared.cursor)))
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        if has_only_samples(cx.data.device()) {
            return by_samples(ui, cx);
        }
        if let Some((name, stats)) = alone(cx) {
            return by_counters(ui, cx, name, stats);
        }
        let Some(state) = cx.state else { return };
        let waterfall = account(cx.data.device(), state, has_segments(&cx.data.tables));
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.add_space(8.0);
            lead(ui, &in_short(cx, &waterfall));
            ui.add_space(8.0);
            let roomy = row_height(ui, waterfall.rows.len());
            let sizes = bars(ui, cx.words(), &waterfall, roomy);
            self.by_role(ui, cx, state.event, &waterfall, sizes, roomy);
            if let Some(missing) = waterfall.not_in_file() {
                ui.add_space(6.0);
                let text = format!("{missing} A watched process, or {} beside it, shows them.", cx.words().tool);
                pane::note(ui, &text, Type::Body, t.text3);
            }
            self.counters.ui(ui, cx);
            ui.add_space(12.0);
        });
    }
}

/// What PyTorch reserves, and how much of it `empty_cache` would give back.
fn in_short(cx: &ViewContext<'_>, waterfall: &Waterfall) -> String {
    let of = |part: Part| waterfall.rows.iter().find(|r| r.part == part).and_then(|r| r.bytes);
    let empty_cache = format!("torch.{}.empty_cache()", cx.words().module);
    let allocator = allocator_name(&cx.data.recording);
    let Some(reserved) = waterfall.reserved.map(Bytes) else {
        let take = if cx.data.device().can_show.requested.is_known() { "requested" } else { "take" };
        let live = Bytes(of(Part::Requested).unwrap_or(0));
        let nor = if allocator == "PyTorch" { format!(", nor what {empty_cache} would give back") } else { String::new() };
        return format!(
            "Live tensors {take} {live}. Segments are not in this file, so what {allocator} reserved for them is unknown{nor}."
        );
    };
    // A trace may give the sum of all segments without listing any of them.
    let unknown = format!("Not all segments are in this file, so what {empty_cache} would give back is unknown.");
    match (of(Part::Cached), of(Part::CachedWhole).unwrap_or(0)) {
        (Some(0), _) => format!("PyTorch reserves {reserved}, all of it in use. {unknown}"),
        (Some(cached), _) => format!("PyTorch reserves {reserved}, and {} of it is not in use. {unknown}", Bytes(cached)),
        (None, 0) => format!("PyTorch reserves {reserved}. {empty_cache} would give none of it back now."),
        (None, whole) => format!("PyTorch reserves {reserved}. {empty_cache} would give {} of it back now.", Bytes(whole)),
    }
}

/// The height of a row. Rows get higher when the pane has room for them and for about as many roles.
fn row_height(ui: &Ui, rows: usize) -> f32 {
    ((ui.available_height() - 220.0) / (rows + 8) as f32).floor().clamp(24.0, 36.0)
}

/// The vertical extent of a bar: the middle of its room.
fn half_of(bar: egui::Rect) -> egui::Rangef {
    let half = (bar.height() * 0.22).max(5.0).round();
    egui::Rangef::new(bar.center().y - half, bar.center().y + half)
}

/// Draws the parts as bars, each beginning where the one above it ends. Returns how their sizes are written.
fn bars(ui: &mut Ui, words: &Words, waterfall: &Waterfall, height: f32) -> SizeColumn {
    let t = &Tokens::of(ui);
    let stairs = layout::stairs(waterfall);
    let sizes = SizeColumn::of(stairs.iter().map(|step| step.bytes));
    for step in stairs {
        let figure = sizes.sized(step.bytes);
        let response = line(ui, step.part.title(), &figure, Type::Strong, height, |p, bar| {
            let (low, high) = (step.from * f64::from(bar.width()), step.to * f64::from(bar.width()));
            let (left, right) = (bar.left() + low as f32, bar.left() + high as f32);
            let y = half_of(bar);
            let mut batch = Batch::new(p).hatch_origin(bar.min);
            let place = egui::Rect::from_x_y_ranges(left..=right, y);
            match part_ink(t, step.part) {
                None if step.bytes > 0 => batch.hole(place, egui::Color32::TRANSPARENT, t.hatch, t.line2),
                Some(ink) if step.bytes > 0 => batch.rect_at_least_a_pixel(place, ink),
                _ => {}
            }
            batch.dashed_vline(right, egui::Rangef::new(y.max, bar.bottom() + 7.0), 1.0, (2.0, 2.0), t.line2);
            if step.is_broken {
                let middle = (left + right) / 2.0;
                let gap = egui::Rect::from_x_y_ranges(middle - 3.0..=middle + 3.0, y.expand(1.0));
                batch.rect(gap, t.s1);
                batch.vline(gap.left(), y.expand(3.0), 1.0, t.text3);
                batch.vline(gap.right(), y.expand(3.0), 1.0, t.text3);
            }
            batch.paint(p);
        });
        if !term::explain_label(&response, step.part.title()) {
            let cut = if step.is_broken { " Its bar is cut: it is longer than all the others together." } else { "" };
            let about = words.say(step.part.about());
            response.on_hover_text(format!("{about}{cut}"));
        }
    }
    sizes
}

/// The counters of the device in front, when the recording holds nothing else.
fn alone<'a>(cx: &'a ViewContext<'_>) -> Option<&'a (String, MemoryStats)> {
    let recording = &cx.data.recording;
    recording.stats.get(cx.data.index).filter(|_| recording.has_only_counters())
}

/// One row: a name, its figure, and what `draw` paints to their right, or below them in a narrow pane.
fn line(
    ui: &mut Ui,
    name: &str,
    figure: &str,
    kind: Type,
    height: f32,
    draw: impl FnOnce(&egui::Painter, egui::Rect),
) -> egui::Response {
    let t = &Tokens::of(ui);
    let wide = ui.available_width() >= WIDE;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), if wide { height } else { 40.0 }), Sense::hover());
    let inner = rect.shrink2(vec2(16.0, 0.0));
    let names = if wide { NAMES } else { inner.width() };
    let first = egui::Rect::from_min_size(inner.min, vec2(names, if wide { height } else { 22.0 }));
    label::pair(ui.painter(), first, (name, kind, t.text1), (figure, Type::Mono, t.text1));
    let bar = if wide { inner.with_min_x(first.right() + 16.0) } else { inner.down(first.bottom(), first.bottom() + 14.0) };
    draw(ui.painter(), bar);
    response
}

/// The colour of a part; `None` for free memory, which is hatched.
fn part_ink(t: &Tokens, part: Part) -> Option<egui::Color32> {
    match part {
        Part::CachedWhole | Part::CachedPinned | Part::Cached | Part::DeviceFree => None,
        Part::Driver | Part::OtherProcesses => Some(t.other),
        Part::Before => Some(t.beyond(StackId::BEFORE)),
        Part::Grew => Some(t.beyond(StackId::GREW)),
        Part::OutsidePytorch => Some(t.slot(1)),
        Part::PendingFree => Some(t.slot(3)),
        // Not red, and not the colour of a role.
        Part::Rounding => Some(t.text2),
        Part::Requested => Some(t.slot(0)),
    }
}

fn lead(ui: &mut Ui, sentence: &str) {
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 4)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        let ink = Tokens::of(ui).text1;
        label::paragraph(ui, sentence, Type::Lead, ink);
    });
}

/// Draws the memory of a card from its samples, for a watch without events.
fn by_samples(ui: &mut Ui, cx: &ViewContext<'_>) {
    let Some((sample, when)) = shown(cx) else { return };
    let capacity = cx.data.device().capacity.unwrap_or(0);
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.set_max_width(ui.available_width().min(720.0));
        ui.add_space(8.0);
        let bands = sample.bands(capacity).unwrap_or_default();
        let split = match (sample.reserved, sample.process) {
            (Some(reserved), _) => {
                format!(" PyTorch reserves {} and has {} of it in tensors.", Bytes(reserved), Bytes(bands.allocated))
            }
            (None, Some(process)) => format!(" The process watched holds {}.", Bytes(process)),
            (None, None) => String::new(),
        };
        let sentence = format!("{} of {} were in use {when}.{split}", Bytes(bands.used()), Bytes(capacity));
        lead(ui, &sentence);
        ui.add_space(8.0);
        card_rows(ui, cx, sample);
        ui.add_space(8.0);
        let note = "By NVML and PyTorch's own counters. Click in the timeline to account for another instant.";
        pane::note(ui, note, Type::Caption, cx.tokens.text3);
        ui.add_space(12.0);
    });
}

/// Draws PyTorch's counters when there is no snapshot.
fn by_counters(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, stats: &MemoryStats) {
    let t = cx.tokens;
    ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        ui.set_max_width(ui.available_width().min(960.0));
        ui.add_space(8.0);
        lead(ui, &counted_sentence(stats));
        ui.add_space(8.0);
        if stats.kind != StatsKind::Host {
            bars(ui, cx.words(), &account_counters(stats), 24.0);
            ui.add_space(6.0);
        }
        counters::alone(ui, cx, name, stats);
        ui.add_space(8.0);
        padded(ui, |ui| {
            let note = "Totals are all that counters have. A memory snapshot of the same run shows every block and who owns it; opened \
                together with it these figures are compared with it.";
            label::paragraph(ui, note, Type::Body, t.text3);
            ui.add_space(6.0);
            CodeWell::new(&cx.snapshot_line()).python().copy(true).show(ui);
        });
        ui.add_space(12.0);
    });
}

impl Accounting {
    /// Live memory by role, on the same scale as the bars above. Each bar begins where the previous one ends. Counts whole
    /// blocks, with their rounding and with blocks that still wait for a stream.
    fn by_role(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, event: u32, waterfall: &Waterfall, sizes: SizeColumn, height: f32) {
        let t = cx.tokens;
        let Some(roles) = cx.roles.filter(|c| c.says_anything()) else { return };
        let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
        let key = (event, Identity::of(roles));
        let live = self
            .live
            .get(cx.jobs, "roles at the cursor", &key, move |_| Some(held.live_by_role(data.device(), &data.tables, event)));
        let Some(live) = live.value else { return };
        ui.add_space(10.0);
        section(ui, "Tensors by role", "whole blocks, with their rounding", false);
        let whole: u64 = live.iter().map(|tally| tally.block_bytes).sum();
        let a_byte = layout::share_of_a_byte(waterfall);
        let mut at = (1.0 - whole as f64 * a_byte).max(0.0);
        for role in Role::ALL.into_iter().filter(|c| live[c.index()].count > 0) {
            let tally = live[role.index()];
            let figure = sizes.sized(tally.block_bytes);
            let words = tally.words(role);
            let name = format!("{words}: {figure} in {}", counted(tally.count, "allocation", "allocations"));
            let ink = role_paint(role).colour(t);
            let (from, to) = (at, (at + tally.block_bytes as f64 * a_byte).min(1.0));
            at = to;
            let response = line(ui, &words, &figure, Type::Body, height, |p, bar| {
                let x = |share: f64| bar.left() + (share * f64::from(bar.width())) as f32;
                let mut batch = Batch::new(p);
                let y = half_of(bar);
                batch.rect_at_least_a_pixel(egui::Rect::from_x_y_ranges(x(from)..=x(to), y), ink);
                batch.dashed_vline(x(to), egui::Rangef::new(y.max, bar.bottom() + 7.0), 1.0, (2.0, 2.0), t.line2);
                batch.paint(p);
            });
            response.widget_info(|| WidgetInfo::labeled(egui::Role::Label, true, &name));
            response.on_hover_text(format!("{name}. {}", role.about()));
        }
    }
}
