//! The tab bar: one tab per recording, and the workspaces at the right.

use egui::{Align, Layout, Popup, Rect, Sense, Stroke, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use super::heights::TAB_BAR;
use super::tab_names;
use crate::app::documents::document::{Content, Document};
use crate::app::state::{Action, Command, DocumentId, Workspace};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, Icon, icon_button, label, menu_item, selector_button};
use crate::app::window::App;

pub(super) fn tab_bar(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, tokens.line));
    // Width that the tabs want. When it is not available, the workspaces become a single menu button.
    let wanted = 32.0 + app.documents.len().max(1) as f32 * 150.0;
    let workspaces_width = if app.active_document().is_some_and(|d| d.view().is_some()) && Workspace::ALL.len() > 1 {
        workspace_switch(app, ui, tokens, rect, rect.width() - wanted)
    } else {
        0.0
    };
    let mut tabs_rect = rect.with_max_x(rect.right() - workspaces_width);
    let names = names(ui, app, tabs_rect.width());
    if tabs_width(ui, app, &names) > tabs_rect.width() {
        tabs_rect = tabs_rect.with_max_x(tabs_rect.right() - 28.0);
        all_tabs(app, ui, tabs_rect.right_top());
    }
    let mut tabs = ui.new_child(UiBuilder::new().max_rect(tabs_rect).layout(Layout::left_to_right(Align::Min)));
    tabs.set_clip_rect(tabs_rect);
    tabs.spacing_mut().item_spacing.x = 0.0;
    // A tab that comes to the front is scrolled into view once. Afterwards the user may scroll freely.
    let front = app.active_document().map(|d| d.id);
    let key = egui::Id::unique("tab in front");
    let seen: Option<Option<DocumentId>> = ui.data_mut(|d| d.get_temp(key));
    ui.data_mut(|d| d.insert_temp(key, front));
    let is_new = seen != Some(front);
    // Tabs scroll sideways, also with a vertical wheel.
    tabs.style_mut().always_scroll_the_only_direction = true;
    egui::ScrollArea::horizontal()
        .id_salt("tabs")
        .scroll_bar_visibility(egui::scroll_area::ScrollBarVisibility::AlwaysHidden)
        .show(&mut tabs, |ui| {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 0.0;
                if app.documents.is_empty() || app.documents.at_front().is_none() {
                    let id = egui::Id::unique("tab of the welcome page");
                    let response = tab(ui, tokens, id, "Welcome", "Welcome", true, false, Icon::File, None);
                    if response.close && !app.documents.is_empty() {
                        let id = app.documents[app.documents.len() - 1].id;
                        app.actions.send(Action::Activate(id));
                    }
                }
                let (mut middles, mut dragged) = (Vec::new(), None);
                for (i, document) in app.documents.iter().enumerate() {
                    let active = app.documents.at_front() == Some(i);
                    let tip = document.path.as_ref().map_or_else(|| document.title.clone(), |p| p.display().to_string());
                    let has_oom = document.has_oom();
                    let icon = document_icon(document);
                    let name = names.get(i).unwrap_or(&document.title);
                    // By its document, as its place changes while it is dragged.
                    let id = egui::Id::unique(("tab", document.id));
                    let response = tab(ui, tokens, id, &document.title, name, active, has_oom, icon, Some(tip));
                    middles.push(response.rect.center().x);
                    dragged = if response.dragged { Some((i, document.id)) } else { dragged };
                    if active && is_new {
                        ui.scroll_to_rect(response.rect, None);
                    }
                    if response.close {
                        app.actions.send(Action::Close(document.id));
                    } else if response.open {
                        app.actions.send(Action::Activate(document.id));
                    }
                }
                if let Some(((at, id), pointer)) = dragged.zip(ui.input(|i| i.pointer.interact_pos())) {
                    let to = place_under(&middles, at, pointer.x);
                    if to != at {
                        app.actions.send(Action::MoveTab(id, to));
                    }
                }
                let (plus, response) = ui.allocate_exact_size(vec2(TAB_BAR, TAB_BAR - 1.0), Sense::click());
                response.widget_info(|| WidgetInfo::labeled(egui::Role::Button, true, "Open a recording"));
                let colour = if response.hovered() { tokens.text1 } else { tokens.text3 };
                Icon::Plus.paint(ui.painter(), plus.center(), 14.0, colour);
                if response.on_hover_text("Welcome page: open another recording").clicked() {
                    app.actions.run(Command::Welcome);
                }
            });
        });
}

/// Where a dragged tab belongs: past a neighbour as soon as the pointer is past its middle.
fn place_under(middles: &[f32], at: usize, pointer: f32) -> usize {
    let before = middles[..at].iter().filter(|&&middle| middle < pointer).count();
    let after = middles.iter().skip(at + 1).filter(|&&middle| middle < pointer).count();
    before + after
}

/// The icon of a file, of a file that failed to open, or of a live watch.
fn document_icon(document: &Document) -> Icon {
    if matches!(document.content, Content::Failed(_)) && document.snapshots.is_empty() {
        return Icon::Warning;
    }
    if document.feed.as_ref().is_some_and(|f| !f.status.is_over) { Icon::Pulse } else { Icon::File }
}

/// The names of the tabs in the last frame, and their inputs.
#[derive(Clone, PartialEq)]
struct Named {
    titles: Vec<(String, Option<std::path::PathBuf>, bool)>,
    room: f32,
    names: Vec<String>,
}

/// The text of each tab, so that all fit: full names, or names without a shared ending, or shortened names of at least twelve
/// letters. Computed only when the tabs or their room change.
fn names(ui: &Ui, app: &App, room: f32) -> Vec<String> {
    let key = egui::Id::unique("names of tabs");
    let titles: Vec<_> = app.documents.iter().map(|d| (d.title.clone(), d.path.clone(), d.has_oom())).collect();
    if let Some(named) = ui.data(|d| d.get_temp::<Named>(key)).filter(|n| n.room == room && n.titles == titles) {
        return named.names;
    }
    let fits = |names: &Vec<String>| tabs_width(ui, app, names) <= room;
    let short = |of: &[String], most: usize| -> Vec<String> { (0..of.len()).map(|i| tab_names::shorten(of, i, most)).collect() };
    let texts: Vec<&str> = titles.iter().map(|t| t.0.as_str()).collect();
    let paths: Vec<_> = titles.iter().map(|t| t.1.as_deref()).collect();
    let full = tab_names::full(&texts, &paths);
    let bare = tab_names::without_shared_ending(&full);
    let names = [short(&full, 40), short(&bare, 40)]
        .into_iter()
        .find(fits)
        .or_else(|| (13..40).rev().map(|most| short(&bare, most)).find(fits))
        .unwrap_or_else(|| short(&bare, 12));
    ui.data_mut(|d| d.insert_temp(key, Named { titles, room, names: names.clone() }));
    names
}

/// The width of all tabs with these names, and of the button after them.
fn tabs_width(ui: &Ui, app: &App, names: &[String]) -> f32 {
    let dots = app.documents.iter().filter(|d| d.has_oom()).count() as f32 * 16.0;
    let text: f32 = names.iter().map(|n| TAB_AROUND + label::width(ui.painter(), n, Type::Body)).sum();
    text + dots + TAB_BAR
}

/// A button that lists all tabs, when they do not fit side by side.
fn all_tabs(app: &App, ui: &mut Ui, at: egui::Pos2) {
    let place = Rect::from_min_size(at, vec2(28.0, TAB_BAR - 1.0));
    let mut place =
        ui.new_child(UiBuilder::new().id_salt("all tabs").max_rect(place).layout(Layout::left_to_right(Align::Center)));
    let button = icon_button(&mut place, Icon::ChevronDown, "All open tabs");
    Popup::menu(&button).gap(4.0).show(|ui| {
        ui.set_width(320.0);
        for (i, document) in app.documents.iter().enumerate() {
            if menu_item(ui, &document.title, Some(app.documents.at_front() == Some(i)), None, true).clicked() {
                app.actions.send(Action::Activate(document.id));
                ui.close();
            }
        }
    });
}

/// Width of a tab besides its title: icon, close button, gaps.
const TAB_AROUND: f32 = 12.0 + 14.0 + 6.0 + 28.0;

struct TabResponse {
    rect: Rect,
    open: bool,
    close: bool,
    dragged: bool,
}

#[allow(clippy::too_many_arguments)]
fn tab(
    ui: &mut Ui,
    tokens: &Tokens,
    id: egui::Id,
    title: &str,
    shown: &str,
    active: bool,
    red_dot: bool,
    icon: Icon,
    tip: Option<String>,
) -> TabResponse {
    let has_failed = icon == Icon::Warning;
    let colour = match (active, has_failed) {
        (true, _) => tokens.text1,
        (false, false) => tokens.text2,
        (false, true) => tokens.text3,
    };
    let galley = ui.painter().layout_no_wrap(shown.to_owned(), Type::Body.font(), colour);
    let width = TAB_AROUND + galley.size().x + if red_dot { 16.0 } else { 0.0 };
    let (rect, _) = ui.allocate_exact_size(vec2(width, TAB_BAR - 1.0), Sense::hover());
    let response = ui.interact(rect, id, Sense::click_and_drag());
    response.widget_info(|| {
        let name = if has_failed { format!("{title}, not opened") } else { title.to_owned() };
        WidgetInfo::selected(egui::Role::Tab, true, active, name)
    });
    let fill = if active {
        tokens.s1
    } else if response.hovered() {
        tokens.s2
    } else {
        tokens.s0
    };
    ui.painter().rect_filled(rect, 0.0, fill);
    if active {
        ui.painter().rect_filled(rect.with_max_y(rect.top() + 2.0), 0.0, tokens.accent);
        // The line under the bar is interrupted below the tab in front.
        ui.painter().hline(rect.x_range(), rect.bottom() + 0.5, Stroke::new(1.0, tokens.s1));
    }
    ui.painter().vline(rect.right() - 0.5, rect.y_range(), Stroke::new(1.0, tokens.line));
    let y = rect.center().y;
    icon.paint(ui.painter(), pos2(rect.left() + 18.0, y), 14.0, if has_failed { tokens.amber } else { tokens.text3 });
    let text_at = pos2(rect.left() + 32.0, y - galley.size().y / 2.0);
    let text_end = text_at.x + galley.size().x;
    ui.painter().galley(text_at, galley, colour);
    if red_dot {
        ui.painter().circle_filled(pos2(text_end + 9.0, y), 3.0, tokens.red);
    }
    let cross = Rect::from_center_size(pos2(rect.right() - 16.0, y), vec2(16.0, 16.0));
    let close = ui.interact(cross, response.id.with("close"), Sense::click());
    close.widget_info(|| WidgetInfo::labeled(egui::Role::Button, true, format!("Close {title}")));
    let close_colour = if close.hovered() { tokens.text1 } else { tokens.text3 };
    Icon::Close.paint(ui.painter(), cross.center(), 12.0, close_colour);
    let close_clicked = close.clicked() || response.middle_clicked();
    let dragged = response.dragged_by(egui::PointerButton::Primary);
    // A tab that is dragged is looked at, as in other programs.
    let open = response.clicked() || (dragged && response.drag_started());
    if let Some(tip) = tip {
        response.on_hover_text(tip);
    }
    TabResponse { rect, open, close: close_clicked, dragged }
}

/// The workspaces side by side, or one menu button when they are wider than `room`. Returns the width used.
fn workspace_switch(app: &App, ui: &mut Ui, tokens: &Tokens, bar: Rect, room: f32) -> f32 {
    let Some(document) = app.active_document() else { return 0.0 };
    let galleys: Vec<_> = Workspace::ALL
        .iter()
        .map(|w| {
            let colour = if document.workspace == *w { tokens.text1 } else { tokens.text2 };
            ui.painter().layout_no_wrap(w.title().to_owned(), Type::Body.font(), colour)
        })
        .collect();
    let width: f32 = galleys.iter().map(|g| g.size().x + 20.0).sum();
    if width + 16.0 > room {
        return workspace_menu(app, ui, document.workspace, bar);
    }
    let outer = Rect::from_min_size(pos2(bar.right() - width - 8.0, bar.center().y - 11.0), vec2(width, 22.0));
    ui.painter().rect(outer, 4.0, tokens.s1, Stroke::new(1.0, tokens.line), egui::StrokeKind::Inside);
    let mut x = outer.left();
    for (i, (&workspace, galley)) in Workspace::ALL.iter().zip(galleys).enumerate() {
        let cell = outer.across(x, x + galley.size().x + 20.0);
        let response = ui.interact(cell, ui.scope_id().with(("workspace", i)), Sense::click());
        let chosen = document.workspace == workspace;
        response.widget_info(|| WidgetInfo::selected(egui::Role::Button, true, chosen, workspace.title()));
        if chosen {
            ui.painter().rect_filled(cell.shrink(1.0), 3.0, tokens.s4);
        } else if response.hovered() {
            ui.painter().rect_filled(cell.shrink(1.0), 3.0, tokens.s3);
        }
        if i > 0 {
            ui.painter().vline(cell.left(), cell.shrink(1.0).y_range(), Stroke::new(1.0, tokens.line));
        }
        ui.painter().galley(cell.center() - galley.size() / 2.0, galley, tokens.text1);
        if response.clicked() {
            app.actions.run(Command::Workspace(workspace));
        }
        x = cell.right();
    }
    width + 16.0
}

fn workspace_menu(app: &App, ui: &mut Ui, chosen: Workspace, bar: Rect) -> f32 {
    let place = bar.across(bar.right() - 200.0, bar.right() - 8.0);
    let mut right =
        ui.new_child(UiBuilder::new().id_salt("workspaces").max_rect(place).layout(Layout::right_to_left(Align::Center)));
    let button = selector_button(&mut right, "", chosen.title());
    Popup::menu(&button).gap(4.0).show(|ui| {
        ui.set_width(180.0);
        for &workspace in Workspace::ALL {
            let keys = Command::Workspace(workspace).keys();
            if menu_item(ui, workspace.title(), Some(workspace == chosen), Some(&keys), true).clicked() {
                app.actions.run(Command::Workspace(workspace));
                ui.close();
            }
        }
    });
    bar.right() - button.rect.left() + 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dragged_tab_stays_where_it_was_put() {
        // Widths 100, 60 and 140: the first is dragged.
        let middles = [50.0, 130.0, 230.0];
        let places = [10.0, 129.0, 131.0, 231.0].map(|pointer| place_under(&middles, 0, pointer));
        assert_eq!(places, [0, 0, 1, 2]);
        // Where it then lies under the pointer it does not go back.
        assert_eq!(place_under(&[30.0, 110.0, 230.0], 1, 131.0), 1);
        assert_eq!([100.0, 20.0].map(|pointer| place_under(&middles, 2, pointer)), [1, 0]);
    }
}
