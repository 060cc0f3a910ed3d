//! Explaining the text of an out-of-memory error: paste it, read what it means. No file, no recording.

use egui::{Modal, ScrollArea, Sense, Stroke, Ui, vec2};

use super::theme::{Tokens, Type, text};
use super::widgets::bar::Bar;
use super::widgets::code::CodeWell;
use super::widgets::label;
use super::widgets::pane::section;
use super::{App, Overlay};
use crate::analysis::explain::{Explanation, explain};
use crate::formats::oom_message;
use crate::units::Bytes;

/// The text pasted so far, and what it means.
#[derive(Default)]
pub(super) struct Explainer {
    text: String,
    found: Vec<Explanation>,
}

/// Draws the dialog; puts itself back while it stays open.
pub(super) fn draw(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let Overlay::Explain(mut explainer) = std::mem::replace(&mut app.overlay, Overlay::None) else { return };
    let frame = egui::Frame::new()
        .fill(tokens.s1)
        .stroke(Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .inner_margin(0)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow });
    let modal = Modal::new(egui::Id::unique("explain")).frame(frame).show(ui, |ui| {
        ui.set_width(720.0f32.min(ui.ctx().content_rect().width() - 64.0));
        ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
        egui::Frame::NONE.inner_margin(16).show(ui, |ui| {
            let title = ui.label(text::title("Explain an out-of-memory message").color(tokens.text1));
            ui.add_space(8.0);
            let field = egui::TextEdit::multiline(&mut explainer.text)
                .hint_text("Paste the error, or a whole log: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …")
                .font(Type::Mono.font())
                .desired_rows(5)
                .desired_width(f32::INFINITY);
            let response =
                ScrollArea::vertical().id_salt("text").max_height(120.0).show(ui, |ui| ui.add(field).labelled_by(title.id)).inner;
            if explainer.text.is_empty() {
                response.request_focus();
            }
            if response.changed() {
                explainer.found = oom_message::find_all(&explainer.text).iter().map(explain).collect();
            }
        });
        if !explainer.text.trim().is_empty() {
            ScrollArea::vertical()
                .id_salt("answer")
                .min_scrolled_height(ui.ctx().content_rect().height() * 0.55)
                .max_height(ui.ctx().content_rect().height() * 0.6)
                .show(ui, |ui| answer(ui, tokens, &explainer));
        }
    });
    if !modal.should_close() {
        app.overlay = Overlay::Explain(explainer);
    }
}

fn answer(ui: &mut Ui, t: &Tokens, explainer: &Explainer) {
    let with_figures = explainer.found.iter().position(|e| !e.figures.is_empty()).unwrap_or(0);
    let Some(e) = explainer.found.get(with_figures) else {
        section(ui, "No out-of-memory message in this text", "", false);
        inset(ui, |ui| {
            label::paragraph(
                ui,
                "Messages of PyTorch 0.4 to 2.15 (CUDA, HIP, XPU, MPS, CPU), JAX and TensorFlow are read.",
                Type::Body,
                t.text2,
            );
            ui.add_space(16.0);
        });
        return;
    };
    let others = explainer.found.len() - 1;
    let more = if others > 0 { format!("{others} more in this text") } else { e.dialect.clone() };
    section(ui, "What it means", &more, false);
    inset(ui, |ui| {
        label::paragraph(ui, &e.sentence, Type::Lead, t.text1);
        ui.add_space(8.0);
    });
    if !e.parts.is_empty() {
        section(ui, "Its figures, to scale", "", false);
        let total: u64 = e.parts.iter().map(|p| p.bytes).sum();
        let greatest = e.parts.iter().map(|p| p.bytes).max().unwrap_or(total).max(1) as f64;
        for part in &e.parts {
            let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 22.0), Sense::hover());
            let inner = rect.shrink2(vec2(16.0, 0.0));
            let third = inner.width() * 0.34;
            label::text_in(
                ui.painter(),
                egui::Rect::from_min_size(inner.min, vec2(third - 8.0, 22.0)),
                part.name,
                Type::Body,
                t.text2,
            );
            label::text_in_right(ui.painter(), inner, &Bytes(part.bytes).to_string(), Type::Mono, t.text1);
            let bar = egui::Rect::from_min_max(
                egui::pos2(inner.left() + third, rect.top()),
                egui::pos2(inner.right() - 110.0, rect.bottom()),
            );
            let is_free = part.name.contains("free") || part.name.contains("unallocated") || part.name.contains("cached");
            let colour = if part.name.contains("request") {
                t.red
            } else if part.name.contains("PyTorch") || part.name.contains("allocated") {
                t.slot(0)
            } else {
                t.other
            };
            let bar_of = Bar::new(greatest);
            let bar_of = if is_free { bar_of.hatched(part.bytes as f64) } else { bar_of.part(part.bytes as f64, colour) };
            bar_of.paint(ui.painter(), t, bar);
        }
    }
    for (title, lines) in [("Known from this message", &e.known), ("Not to be known from it", &e.not_known)] {
        if !lines.is_empty() {
            section(ui, title, "", false);
            inset(ui, |ui| {
                for line in lines {
                    label::paragraph(ui, line, Type::Body, t.text2);
                    ui.add_space(4.0);
                }
            });
        }
    }
    if !e.remedies.is_empty() {
        section(ui, "What to do", "", false);
        inset(ui, |ui| {
            for remedy in &e.remedies {
                label::paragraph(ui, &remedy.sentence, Type::Body, t.text1);
                ui.add_space(4.0);
                if let Some(setting) = &remedy.setting {
                    CodeWell::new(setting).copy(true).show(ui);
                    ui.add_space(8.0);
                }
            }
        });
    }
    if !e.record.is_empty() {
        section(ui, "Record a snapshot, which tells the rest", "", false);
        inset(ui, |ui| {
            CodeWell::new(&e.record.join("\n")).python().copy(true).show(ui);
        });
    }
    ui.add_space(16.0);
}

fn inset(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 0)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        contents(ui);
    });
}
