//! Everything around the views: menu bar, tab bar, panes with their headers, status bar.

pub mod fitting;
mod heights;
mod menu;
mod overlays;
mod panes;
mod status;
mod tab_names;
mod tabs;
mod welcome;

use egui::{Frame, Margin, Panel, Stroke, Ui};

use heights::{MENU_BAR, STATUS_BAR, TAB_BAR};

use crate::app::theme::Tokens;
use crate::app::window::App;

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
    if !app.pictures.is_taking() {
        app.notices.ui(ui, tokens, &app.actions);
    }
    egui::CentralPanel::no_frame().frame(Frame::new().fill(tokens.s1)).show(ui, |ui| {
        line_above(ui, tokens);
        panes::centre(app, ui, tokens);
    });
    overlays::draw_tour(app, ui, tokens);
    overlays::draw(app, ui, tokens);
    app.hover.draw(ui, tokens);
}

#[cfg(test)]
pub(super) fn texts_of_a_frame(app: &mut App, ctx: &egui::Context) -> Vec<String> {
    fn texts(shape: &egui::Shape) -> Vec<String> {
        match shape {
            egui::Shape::Text(text) => vec![text.galley.text().to_owned()],
            egui::Shape::Vec(shapes) => shapes.iter().flat_map(texts).collect(),
            _ => Vec::new(),
        }
    }
    let screen = egui::Rect::from_min_size(egui::Pos2::ZERO, egui::vec2(1600.0, 1000.0));
    let input = egui::RawInput { screen_rect: Some(screen), ..Default::default() };
    let mut out = ctx.run_ui(input, |ui| {
        app.logic(ui.ctx());
        app.draw(ui);
    });
    out.textures_delta.clear();
    out.shapes.iter().flat_map(|s| texts(&s.shape)).collect()
}

fn line_above(ui: &Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.x_range(), rect.top() + 0.5, Stroke::new(1.0, tokens.line));
}
