//! Sentences above and below the tables, and the links at the bottom.

use egui::{Rect, Sense, Ui, pos2, vec2};

use super::found::{Found, Whole};
use super::layout::{LINKED, LINKS};
use super::{ViewContext, ViewKind};
use crate::app::state::{Action, Command};
use crate::app::theme::Type;
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW};
use crate::app::views::plan_link::plan_link;
use crate::app::widgets::{Cut, Icon, anchor, label, link_with, padded, pane, record_links, recorded_by, row, rule, told_at};
use vramscope_core::diagnose::findings::Finding;
use vramscope_core::diagnose::limits::{NO_GPU_MEMORY, RECORD};
use vramscope_core::units::{Bytes, NBSP};

pub(super) const FINDINGS_LINK: f32 = 22.0;

/// The summary: how much memory, when, and what most of it is. It begins with what the recording lacks when that limits the
/// answer. `top` is where the answer begins, with the failure that may be told above. `below` is the finding that needs scrolling to.
/// True when the link to it was clicked.
pub(super) fn sentence(ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, when: &str, top: f32, below: Option<&Finding>) -> bool {
    let t = cx.tokens;
    let mut is_clicked = false;
    padded(ui, |ui| {
        if cx.data.recording.source.format.never_ran() {
            ui.label(Type::Caption.text("predicted, never ran").color(t.amber));
        }
        let is_first = found.limit.as_ref().is_some_and(|limit| limit.sentence == NO_GPU_MEMORY);
        if is_first {
            limits(ui, cx, found);
        }
        let mut job = egui::text::LayoutJob::default();
        job.wrap.max_width = ui.available_width();
        let amount = Bytes(found.held.bytes).to_string();
        let wide = |text: &str, kind| label::width(ui.painter(), text, kind);
        // Reserved memory is closer to what nvidia-smi shows. The word stays with its figure.
        let reserved = found.reserved.map(|reserved| format!("; {}{NBSP}reserved", Bytes(reserved))).unwrap_or_default();
        let one_line = format!("{when}, {}{reserved}", found.doing);
        let fits = wide(&amount, Type::Display) + 9.0 + wide(&one_line, Type::Body) <= ui.available_width();
        // A line of its own for what it was doing, unless when it was takes more than one already.
        let is_short = wide(&amount, Type::Display) + 9.0 + wide(&format!("{when},"), Type::Body) <= ui.available_width();
        let said = match found.doing.is_empty() {
            true => format!("{when}{reserved}"),
            false if fits || !is_short => one_line,
            false => format!("{when},\n{}{reserved}", found.doing),
        };
        let format = egui::TextFormat { valign: egui::Align::Max, ..label::format(Type::Body, t.text2) };
        job.append(&amount, 0.0, label::format(Type::Display, t.text1));
        // Screen readers need the space between the words.
        job.append(&format!(" {said}"), 5.0, format);
        ui.add(egui::Label::new(job).wrap());
        if let Some(caveat) = cx.data.recording.report.caveat() {
            ui.add_space(4.0);
            label::paragraph(ui, &format!("{}.", vramscope_core::units::capital(&caveat)), Type::Body, t.amber);
        }
        if !is_first {
            limits(ui, cx, found);
        }
        label::paragraph(ui, &found.lead(), Type::Lead, t.text1);
        if let Some(finding) = below {
            let link = row::line(ui, FINDINGS_LINK).inset(0.0, 4.0, 0.0, 0.0);
            let mut link = pane::child(ui, link, "first finding");
            let saves = finding.saving.filter(|s| !s.is_nothing()).map(|s| format!(", \u{2212}{}", s.texts()[2]));
            let saves = saves.unwrap_or_default();
            let title = &finding.title;
            let text = format!("{title}{saves}");
            // The figure stays where the title has no room.
            let room = link.available_width() - label::width(ui.painter(), &saves, Type::Body) - 24.0;
            let shown = format!("{}{saves}", label::first_words(ui.painter(), title, Type::Body, room));
            is_clicked = link_with(&mut link, &shown, Type::Body, Some(Icon::ChevronDown)).on_hover_text(&text).clicked();
        }
        plan_link(ui, cx);
    });
    ui.add_space(8.0);
    let bottom = pos2(ui.max_rect().right(), ui.cursor().top() - 2.0);
    anchor::mark(ui, "sentence", Rect::from_min_max(pos2(ui.max_rect().left(), top), bottom));
    is_clicked
}

/// What the recording lacks when that limits the answer, with links to the line that records it.
fn limits(ui: &mut Ui, cx: &ViewContext<'_>, found: &Found) {
    let Some(limit) = &found.limit else { return };
    ui.add_space(4.0);
    let said = limit.sentence.replace("This records", "One line records").replace("This line tells", "One line tells");
    let said = said.strip_suffix(':').map_or(said.clone(), |said| format!("{said}."));
    label::paragraph(ui, &said, Type::Body, cx.tokens.amber);
    if let Some(line) = limit.line {
        ui.add_space(2.0);
        record_links(ui, &cx.words().say(line));
        ui.add_space(6.0);
    }
}

/// Says that memory does not grow, when that is so.
pub(super) fn health(ui: &mut Ui, cx: &ViewContext<'_>, whole: &Whole) {
    use vramscope_core::diagnose::findings::Class;
    let leaks = cx.findings.is_none_or(|f| f.findings.iter().any(|f| f.class == Class::Leak));
    let Some(said) = whole.health.as_ref().filter(|_| !leaks) else { return };
    let t = cx.tokens;
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 12, top: 7, bottom: 8 }).show(ui, |ui| {
        ui.horizontal_top(|ui| {
            let (rect, _) = ui.allocate_exact_size(vec2(20.0, 16.0), Sense::hover());
            Icon::Check.paint(ui.painter(), rect.left_center() + vec2(6.0, 0.0), 12.0, t.text2);
            label::paragraph(ui, said, Type::Body, t.text2);
        });
    });
    rule(ui);
}

/// What the recording lacks, and how to record it.
pub(super) fn recording(ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, whole: &Whole) {
    let t = cx.tokens;
    let is_state = cx.data.device().events.is_empty() && found.limit.is_none();
    let said: Vec<String> = [whole.complete(found), whole.without_stacks(found)].into_iter().flatten().collect();
    if said.is_empty() && !is_state {
        return;
    }
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 12, top: 7, bottom: 8 }).show(ui, |ui| {
        let head = row::line(ui, 16.0);
        label::text_in(ui.painter(), head, "Recording", Type::Caption, t.text3);
        let mut beside = pane::child_from_right(ui, head, "contents");
        if link_with(&mut beside, "Contents", Type::Caption, None).clicked() {
            cx.actions.run(Command::Show(ViewKind::Contents));
        }
        ui.add_space(2.0);
        for sentence in said {
            label::paragraph(ui, &sentence, Type::Caption, t.text2);
        }
        if is_state {
            ui.add_space(4.0);
            recorded_by(ui, &cx.words().say(RECORD));
        }
    });
}

/// The links in one row, or in two when they do not fit.
pub(super) fn links(ui: &Ui, width: f32) -> Vec<&'static [ViewKind]> {
    let needs: f32 = LINKED.iter().map(|kind| label::width(ui.painter(), kind.title(), Type::Caption) + 8.0).sum();
    match needs <= width - PAD_PANE - PAD_ROW + 8.0 {
        true => vec![&LINKED],
        false => vec![&LINKED[..3], &LINKED[3..]],
    }
}

pub(super) fn draw_links(ui: &mut Ui, cx: &ViewContext<'_>, foot: Rect, rows: &[&[ViewKind]]) {
    let t = cx.tokens;
    ui.painter().rect_filled(foot, 0, t.s2);
    ui.painter().hline(foot.x_range(), foot.top() + 0.5, egui::Stroke::new(1.0, t.line));
    let inner = foot.inset(PAD_PANE, 0.0, PAD_ROW, 0.0);
    for (i, kinds) in rows.iter().enumerate() {
        let widths: Vec<f32> = kinds.iter().map(|kind| label::width(ui.painter(), kind.title(), Type::Caption)).collect();
        let free = inner.width() - widths.iter().sum::<f32>();
        let gap = (free / (kinds.len().saturating_sub(1).max(1)) as f32).clamp(8.0, 24.0);
        let mut x = inner.left();
        for (kind, width) in kinds.iter().zip(widths) {
            let place = Rect::from_min_size(pos2(x, foot.top() + LINKS * i as f32), vec2(width, LINKS));
            let response = told_at(ui, place, ("open", kind), Sense::click(), egui::Role::Link, || kind.title());
            let covered = label::text_in(ui.painter(), place.expand2(vec2(1.0, 0.0)), kind.title(), Type::Caption, t.accent);
            if response.hovered() {
                ui.painter().hline(covered.x_range(), covered.bottom() - 1.0, egui::Stroke::new(1.0, t.accent));
            }
            if response.on_hover_cursor(egui::CursorIcon::PointingHand).on_hover_text(kind.about()).clicked() {
                cx.actions.send(Action::Visit(*kind));
            }
            x += width + gap;
        }
    }
}
