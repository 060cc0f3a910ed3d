//! What surrounds the views: menu bar, tab bar, panes with their headers, status bar.

mod menu;
mod panes;
mod status;
mod tabs;

use egui::{Align2, Frame, Margin, Panel, Stroke, Ui};

use super::theme::{Tokens, Type};
use super::{App, overlays};

const MENU_BAR: f32 = 32.0;
const TAB_BAR: f32 = 32.0;
const STATUS_BAR: f32 = 24.0;
const PANE_HEADER: f32 = 28.0;

/// Draws the whole window.
pub(super) fn draw(app: &mut App, ui: &mut Ui) {
    let tokens = Tokens::of(ui.ctx());
    if let Some(only) = app.only
        && let Some(document) = app.active_document_mut()
        && document.view().is_some()
    {
        panes::draw_single(app, ui, tokens, only);
        return;
    }
    let bar = |fill| Frame::new().fill(fill).inner_margin(Margin::symmetric(12, 0));
    Panel::top("menu")
        .exact_size(MENU_BAR)
        .frame(bar(tokens.s2))
        .show_separator_line(false)
        .show(ui, |ui| menu::menu_bar(app, ui, tokens));
    Panel::top("tabs")
        .exact_size(TAB_BAR)
        .frame(Frame::new().fill(tokens.s0))
        .show_separator_line(false)
        .show(ui, |ui| tabs::tab_bar(app, ui, tokens));
    Panel::bottom("status")
        .exact_size(STATUS_BAR)
        .frame(bar(tokens.s2))
        .show_separator_line(false)
        .show(ui, |ui| status::status_bar(app, ui, tokens));
    egui::CentralPanel::no_frame().frame(Frame::new().fill(tokens.s1)).show(ui, |ui| {
        line_above(ui, tokens);
        panes::centre(app, ui, tokens);
    });
    drop_target(ui, tokens);
    overlays::draw(app, ui, tokens);
    if !app.pictures.is_taking() {
        app.notices.ui(ui, tokens, &app.actions);
    }
}

fn line_above(ui: &Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.x_range(), rect.top() + 0.5, Stroke::new(1.0, tokens.line));
}

/// While files hover over the window: outline it and say what a drop does.
fn drop_target(ui: &Ui, tokens: &Tokens) {
    let names: Vec<String> = ui.input(|i| {
        i.raw
            .hovered_files
            .iter()
            .map(|f| {
                f.path
                    .as_ref()
                    .and_then(|p| p.file_name())
                    .map_or_else(|| "a file".to_owned(), |n| n.to_string_lossy().into_owned())
            })
            .collect()
    });
    if names.is_empty() {
        return;
    }
    let painter = ui.ctx().layer_painter(egui::LayerId::new(egui::Order::Foreground, egui::Id::unique("drop")));
    let rect = ui.ctx().content_rect();
    painter.rect_filled(rect, 0.0, Tokens::at(tokens.s1, 0.8));
    painter.rect_stroke(rect.shrink(2.0), 0.0, Stroke::new(2.0, tokens.accent), egui::StrokeKind::Inside);
    let shown = names.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 4 { format!(" and {} more", names.len() - 4) } else { String::new() };
    painter.text(rect.center(), Align2::CENTER_CENTER, format!("Open {shown}{more}"), Type::Display.font(), tokens.text1);
}
