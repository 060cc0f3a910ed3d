//! The left column: verdict, sentence, the tests in their order, figures, the stack, what to try first.

use egui::{ScrollArea, Ui, vec2};

use crate::analysis::oom::Autopsy;
use crate::app::action::Action;
use crate::app::theme::{Type, text};
use crate::app::views::ViewContext;
use crate::app::widgets::button::icon_button;
use crate::app::widgets::code::CodeWell;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::pane::{PaneHeader, section};
use crate::app::widgets::row::KeyValue;
use crate::units::{Bytes, count};

/// Draws the column; gives the index of another event when the user asked for it.
pub(super) fn ui(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, chosen: usize, total: usize) -> Option<usize> {
    let t = cx.tokens;
    let mut next = None;
    let caption = format!("{} of {}", chosen + 1, total);
    PaneHeader::new("Out of memory").caption(&caption).show(ui, |ui| {
        if total > 1 {
            if icon_button(ui, Icon::ChevronRight, "Next out-of-memory event").clicked() {
                next = Some((chosen + 1) % total);
            }
            if icon_button(ui, Icon::ChevronLeft, "Previous out-of-memory event").clicked() {
                next = Some((chosen + total - 1) % total);
            }
        }
    });
    ScrollArea::vertical().id_salt("verdict").auto_shrink(false).show(ui, |ui| {
        ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
        egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 16, top: 14, bottom: 4 }).show(ui, |ui| {
            ui.set_width(ui.available_width());
            ui.label(text::display(a.verdict.title()).color(t.red));
            ui.add_space(4.0);
            label::paragraph(ui, &a.sentence, Type::Lead, t.text1);
        });
        section(ui, "How we know", "", false);
        for test in &a.tests {
            let (icon, icon_colour) = match test.holds {
                Some(true) => (Icon::Check, t.text3),
                Some(false) => (Icon::Cross, if test.decides { t.red } else { t.text3 }),
                None => (Icon::Help, t.text3),
            };
            let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 24.0), egui::Sense::hover());
            icon.paint(ui.painter(), egui::pos2(rect.left() + 22.0, rect.center().y), 12.0, icon_colour);
            let room = egui::Rect::from_min_max(
                egui::pos2(rect.left() + 36.0, rect.top()),
                egui::pos2(rect.right() - 16.0, rect.bottom()),
            );
            let figure = if test.holds.is_none() { "no cap known".to_owned() } else { Bytes(test.bytes).to_string() };
            let ink = if test.decides { t.red } else { t.text1 };
            let value = label::text_in_right(ui.painter(), room, &figure, Type::Mono, ink);
            let room = egui::Rect::from_min_max(room.min, egui::pos2(value.left() - 8.0, room.bottom()));
            let face = if test.decides { Type::Strong } else { Type::Body };
            label::text_in(ui.painter(), room, test.what, face, if test.decides { t.text1 } else { t.text2 });
        }
        figures(ui, a);
        stack(ui, cx, a);
        remedy(ui, cx, a);
        ui.add_space(16.0);
    });
    next
}

fn figures(ui: &mut Ui, a: &Autopsy) {
    section(ui, "At this instant", "", false);
    if let Some((low, high)) = a.limit {
        let text = if low == high { Bytes(low).to_string() } else { format!("{} to {}", Bytes(low), Bytes(high)) };
        KeyValue::new("cap of this process", &text).show(ui);
    }
    let rounding = a.allocated.saturating_sub(a.live_requested);
    for (name, value) in [
        ("reserved", a.reserved),
        ("allocated", a.allocated),
        ("requested", a.live_requested),
        ("lost to rounding", rounding),
        ("free in all pools", a.all_holes.bytes),
    ] {
        KeyValue::new(name, &Bytes(value).to_string()).show(ui);
    }
    KeyValue::new("holes in this pool", &count(a.holes.count)).show(ui);
    KeyValue::new(
        "enough alone, if freed",
        &(if a.enough_alone == 0 { "no block".to_owned() } else { format!("any one of {}", count(a.enough_alone as u64)) }),
    )
    .show(ui);
}

fn stack(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    let t = cx.tokens;
    section(ui, "The request came from", "most recent first", false);
    let stacks = &cx.data.recording.stacks;
    let frames = stacks.frames(a.stack);
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 0)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        if frames.is_empty() {
            label::paragraph(ui, "Not recorded. Stacks are recorded with:", Type::Body, t.text2);
            ui.add_space(6.0);
            CodeWell::new("torch.cuda.memory._record_memory_history(stacks=\"python\")").copy(true).show(ui);
        }
        for (i, &id) in frames.iter().take(12).enumerate() {
            let Some(frame) = stacks.frame(id) else { continue };
            let own = !crate::analysis::is_framework(stacks, frame);
            let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 20.0), egui::Sense::click());
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Link, true, stacks.location(frame)));
            label::text_in(ui.painter(), rect, &i.to_string(), Type::Mono, t.text3);
            let place = if own { t.accent } else { t.text3 };
            let location = label::text_in_right(ui.painter(), rect, &stacks.location(frame), Type::Mono, place);
            let room = egui::Rect::from_min_max(
                egui::pos2(rect.left() + 20.0, rect.top()),
                egui::pos2(location.left() - 8.0, rect.bottom()),
            );
            label::text_in(ui.painter(), room, stacks.text(frame.name), Type::Mono, if own { t.text1 } else { t.text3 });
            if response.on_hover_text(stacks.text(frame.file)).clicked() {
                cx.actions.send(Action::OpenSource { file: stacks.text(frame.file).to_owned(), line: frame.line });
            }
        }
        if frames.len() > 12 {
            ui.label(text::caption(format!("{} more frames", frames.len() - 12)).color(t.text3));
        }
    });
}

fn remedy(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    let Some(finding) =
        cx.findings.and_then(|f| f.findings.iter().find(|f| f.rule == "out_of_memory" && f.place.event == Some(a.event)))
    else {
        return;
    };
    section(ui, "Try first", "", false);
    egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 0)).show(ui, |ui| {
        ui.set_width(ui.available_width());
        if let Some(text) = &finding.remedy {
            CodeWell::new(text).broken(true).copy(true).show(ui);
            ui.add_space(6.0);
        }
        label::paragraph(ui, &finding.advice, Type::Body, cx.tokens.text2);
    });
}
