//! Explains the pasted text of an out-of-memory error. Needs no file and no recording.

use egui::{Align2, Modal, Rect, Role, ScrollArea, Sense, Stroke, Ui, WidgetInfo, pos2, vec2};

use super::frame::dialog_title;
use crate::app::state::{Action, Actions, Excerpt};
use crate::app::theme::visuals::{RADIUS_CONTROL, ROW_DENSE};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, CodeWell, Cut, ListRow, Push, Swatch, label, row, section};
use vramscope_core::diagnose::explain::{Explanation, explain_all};
use vramscope_core::formats::oom_message;

#[derive(Default)]
pub(in crate::app) struct Explainer {
    text: String,
    found: Vec<Explanation>,
    shown: usize,
    pub(in crate::app) refusal: Option<String>,
}

impl Explainer {
    /// Opens the dialog with a text and shows the first message that has figures. Line numbers are those of the whole log.
    pub(in crate::app) fn of(log: impl Into<Excerpt>) -> Self {
        let Excerpt { text, first_line } = log.into();
        let messages = oom_message::find_all(&text);
        let mut found = explain_all(&messages);
        for explanation in &mut found {
            explanation.line += first_line - 1;
        }
        let shown = oom_message::main_message(&messages);
        Explainer { text, found, shown, refusal: None }
    }

    /// An empty dialog with the reason why there is nothing to explain.
    pub(in crate::app) fn refusing(why: String) -> Self {
        Explainer { refusal: Some(why), ..Explainer::default() }
    }
}

/// Most messages visible at once; the rest scrolls.
const LISTED: f32 = 5.0;

/// Draws the dialog. True when it should close.
pub(in crate::app) fn draw(explainer: &mut Explainer, ui: &mut Ui, tokens: &Tokens, actions: &Actions) -> bool {
    let frame = egui::Frame::new()
        .fill(tokens.s1)
        .stroke(Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .inner_margin(0)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow });
    let modal = Modal::new(egui::Id::unique("explain")).frame(frame).show(ui, |ui| {
        ui.set_width(720.0f32.min(ui.ctx().content_rect().width() - 64.0));
        ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
        let head = egui::Frame::NONE.inner_margin(16).show(ui, |ui| {
            let (title, is_closed) = dialog_title(ui, tokens, "Explain an out-of-memory message");
            ui.add_space(8.0);
            let field = egui::TextEdit::multiline(&mut explainer.text)
                .hint_text("Paste the error, or a whole log: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …")
                .font(Type::Mono.font())
                .desired_rows(5)
                .desired_width(f32::INFINITY)
                .frame(egui::Frame::NONE);
            // The frame is outside the scroll area. A frame inside would scroll out of view with a long text.
            let around = egui::Frame::new().fill(tokens.s0).stroke(Stroke::new(1.0, tokens.line2)).corner_radius(RADIUS_CONTROL);
            let response = around
                .inner_margin(egui::Margin::symmetric(8, 6))
                .show(ui, |ui| {
                    let scroll = ScrollArea::vertical().id_salt("text").max_height(110.0);
                    scroll.show(ui, |ui| ui.add(field).labelled_by(title.id)).inner
                })
                .inner;
            if explainer.text.is_empty() {
                response.request_focus();
            }
            if response.changed() {
                *explainer = Explainer::of(std::mem::take(&mut explainer.text));
            }
            ui.add_space(8.0);
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 12.0;
                if Push::outlined("Open a log…").small().show(ui).clicked() {
                    actions.send(Action::AskLog);
                }
                ui.label(Type::Body.text("or drop one on the window").color(tokens.text3));
            });
            if let Some(why) = &explainer.refusal {
                ui.add_space(8.0);
                label::paragraph(ui, why, Type::Body, tokens.amber);
            }
            is_closed
        });
        if !explainer.text.trim().is_empty() {
            ScrollArea::vertical()
                .id_salt("answer")
                .min_scrolled_height(ui.ctx().content_rect().height() * 0.62)
                .max_height(ui.ctx().content_rect().height() * 0.68)
                .show(ui, |ui| answer(ui, tokens, explainer));
        }
        head.inner
    });
    modal.inner || modal.should_close()
}

/// The messages found in the text, one row each: line, program, verdict. A click explains another message.
fn messages(ui: &mut Ui, t: &Tokens, explainer: &mut Explainer) {
    let count = explainer.found.len();
    section(ui, &format!("{count} messages in this text"), "the chosen one is explained", false);
    let mut chosen = explainer.shown;
    let rows = ScrollArea::vertical().id_salt("messages").max_height(LISTED * ROW_DENSE).auto_shrink([false, true]);
    rows.show_rows(ui, ROW_DENSE, count, |ui, range| {
        for i in range {
            let e = &explainer.found[i];
            let whose = e.rank.map_or(String::new(), |rank| format!(", rank {rank}"));
            let name = format!("line {}{whose}: {}", e.line, e.cause.replace('_', " "));
            let response = ListRow::new(&name).height(ROW_DENSE).selected(i == explainer.shown).show_painted(ui);
            let inner = response.rect.shrink2(vec2(16.0, 0.0));
            let asked = e.printed("requested_bytes").map_or("no figures".to_owned(), |q| format!("{q} requested"));
            label::pair(ui.painter(), inner, (&name, Type::Body, t.text1), (&asked, Type::Mono, t.text2));
            if response.on_hover_text(&e.sentence).clicked() {
                chosen = i;
            }
        }
    });
    explainer.shown = chosen;
}

fn answer(ui: &mut Ui, t: &Tokens, explainer: &mut Explainer) {
    if explainer.found.len() > 1 {
        messages(ui, t, explainer);
    }
    let Some(e) = explainer.found.get(explainer.shown) else {
        section(ui, "No out-of-memory message in this text", "", false);
        inset(ui, |ui| {
            label::paragraph(
                ui,
                "Messages of PyTorch 0.4 to 2.15 are read, of JAX, TensorFlow, vLLM, SGLang, ComfyUI, llama.cpp, Ollama, RAPIDS and others, of drivers, and of what kills a program for the machine's memory.",
                Type::Body,
                t.text2,
            );
            ui.add_space(16.0);
        });
        return;
    };
    section(ui, "What it means", &e.writer, false);
    inset(ui, |ui| {
        let ink = if e.cause == "unknown" || e.cause == "no_failure" { t.text1 } else { t.red };
        label::paragraph(ui, e.title(), Type::Display, ink);
        ui.add_space(4.0);
        label::paragraph(ui, &e.sentence, Type::Lead, t.text1);
        if let Some(why) = e.doubt.filter(|_| e.contradictions.is_empty()) {
            ui.add_space(4.0);
            label::paragraph(ui, &format!("Not certain: {why}."), Type::Body, t.amber);
        }
        ui.add_space(8.0);
    });
    // A single contradiction is already in the sentence above.
    if e.contradictions.len() > 1 {
        section(ui, "Figures that contradict each other", "", false);
        inset(ui, |ui| {
            for line in &e.contradictions {
                label::paragraph(ui, line, Type::Body, t.amber);
                ui.add_space(4.0);
            }
        });
    }
    if !e.parts.is_empty() || !e.limit_parts.is_empty() {
        figures(ui, t, e);
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
    ui.add_space(16.0);
}

/// The name of a part of the card and how it is drawn. Free memory is hatched, without a colour.
fn part_of(t: &Tokens, name: &str) -> (&'static str, Swatch) {
    match name {
        "live" => ("live tensors", Swatch::Fill(t.slot(0))),
        "private_pool_cache" => ("free in private pools", Swatch::Kept),
        "holes" => ("free inside PyTorch", Swatch::Free),
        "this_process" => ("this process, PyTorch's share unknown", Swatch::Fill(t.slot(1))),
        "outside_pytorch" => ("this process, outside PyTorch", Swatch::Fill(t.slot(1))),
        "other_processes" => ("other processes", Swatch::Fill(t.other)),
        "unattributed" => ("in use, owner unknown", Swatch::Fill(t.line2)),
        "room_under_limit" => ("room under the limit", Swatch::Outline(t.line2)),
        _ => ("free on the card", Swatch::Outline(t.line2)),
    }
}

/// Draws the memory that decided (under the limit if that refused the request, otherwise on the card) as one bar, the request on
/// the same scale below it, and the figures.
fn figures(ui: &mut Ui, t: &Tokens, e: &Explanation) {
    let is_limit = !e.limit_parts.is_empty();
    let parts = if is_limit { &e.limit_parts } else { &e.parts };
    let total = parts.iter().fold(0u64, |sum, p| sum.saturating_add(p.bytes)).max(1);
    let whole = if is_limit { "the limit of this process" } else { "the card" };
    section(ui, "Its figures, to scale", &format!("{whole}: {}", e.words(total)), false);
    let request = e.figures.get("requested_bytes").copied();
    // The request starts where held memory ends, and not where the room below the limit ends.
    let begins = if is_limit { parts.iter().filter(|p| p.name != "room_under_limit").map(|p| p.bytes).sum::<u64>() } else { 0 };
    // A request that exceeds the bar sets the scale.
    let scale = total.max(request.unwrap_or(0).saturating_add(begins)) as f64;
    let (rect, response) =
        ui.allocate_exact_size(vec2(ui.available_width(), if request.is_some() { 58.0 } else { 32.0 }), Sense::hover());
    let told: Vec<String> = parts.iter().map(|p| format!("{} {}", part_of(t, p.name).0, e.words(p.bytes))).collect();
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, told.join(", ")));
    let inner = rect.shrink2(vec2(16.0, 0.0));
    let bar = inner.lines(0.0, 26.0);
    let width = |bytes: u64| (bytes as f64 / scale) as f32 * bar.width();
    let mut batch = Batch::new(ui.painter()).hatch_origin(bar.min);
    let mut x = bar.left();
    for part in parts {
        let piece = bar.across(x, x + width(part.bytes));
        x = piece.right();
        match part_of(t, part.name).1 {
            Swatch::Fill(colour) => batch.rect_at_least_a_pixel(piece, colour),
            Swatch::Free if piece.width() >= 1.0 => batch.hole(piece, t.s1, t.hatch, t.line2),
            Swatch::Kept if piece.width() >= 1.0 => batch.hole(piece, Tokens::at(t.other, 0.55), t.hatch, t.line2),
            _ => batch.outline(piece, 1.0, t.line2),
        }
    }
    batch.outline(bar.with_max_x(x).expand(1.0), 1.0, t.line2);
    let low = request.map(|request| {
        let from = bar.left() + width(begins);
        let low = Rect::from_min_size(pos2(from, bar.bottom() + 8.0), vec2(width(request).max(2.0), 14.0));
        batch.rect_at_least_a_pixel(low, t.red);
        low
    });
    if is_limit {
        // A limit is a red line, as in all pictures.
        batch.vline(x, egui::Rangef::new(bar.top() - 3.0, bar.bottom() + if low.is_some() { 25.0 } else { 3.0 }), 1.0, t.red);
    }
    batch.paint(ui.painter());
    if let Some((low, request)) = low.zip(e.printed("requested_bytes")) {
        let text = format!("the request, {request}");
        let wide = label::width(ui.painter(), &text, Type::Body) + 8.0;
        let (y, painter) = (low.center().y, ui.painter());
        // The text goes after its bar, before it, or inside when the bar fills the line.
        if low.right() + wide < inner.right() {
            label::text(painter, pos2(low.right() + 8.0, y), Align2::LEFT_CENTER, &text, Type::Body, t.red);
        } else if low.left() - wide > inner.left() {
            label::text(painter, pos2(low.left() - 8.0, y), Align2::RIGHT_CENTER, &text, Type::Body, t.red);
        } else {
            label::text(painter, low.left_center() + vec2(6.0, 0.0), Align2::LEFT_CENTER, &text, Type::Body, t.s1);
        }
    }
    ui.add_space(6.0);
    for part in parts {
        let (name, swatch) = part_of(t, part.name);
        figure_row(ui, t, name, Some(swatch), &e.words(part.bytes));
    }
    // Figures that the bar does not show.
    let mut told = Vec::new();
    if is_limit {
        told.push(("this process's limit", e.printed("limit_bytes"), Some(Swatch::Line(t.red))));
        told.push(("free on the card", e.printed("device_free_bytes"), None));
        told.push(("the whole card", e.printed("capacity_bytes"), None));
        told.push(("other processes", e.printed("other_processes_bytes"), None));
    } else {
        told.push(("this process's limit", e.printed("limit_bytes"), None));
    }
    for (name, figure, swatch) in told {
        if let Some(figure) = figure {
            figure_row(ui, t, name, swatch, &figure);
        }
    }
    ui.add_space(6.0);
}

fn figure_row(ui: &mut Ui, t: &Tokens, name: &str, swatch: Option<Swatch>, figure: &str) {
    let rect = row::line(ui, 20.0);
    let inner = rect.shrink2(vec2(16.0, 0.0));
    if let Some(swatch) = swatch {
        swatch.paint(ui.painter(), t, inner.left_center());
    }
    let figure = label::text_in_right(ui.painter(), inner, figure, Type::Mono, t.text1);
    let room = inner.across(inner.left() + 20.0, figure.left() - 8.0);
    label::text_in(ui.painter(), room, name, Type::Body, t.text2);
}

fn inset(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 0)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        contents(ui);
    });
}
