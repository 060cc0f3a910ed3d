//! What surrounds the views: menu bar, tab bar, panes with their headers, status bar.

use std::sync::Arc;

use egui::{Align, Align2, Frame, Layout, Margin, Panel, Rect, Sense, Stroke, Ui, UiBuilder, WidgetInfo, pos2, vec2};
use egui_tiles::{Behavior, SimplificationOptions, TileId, Tiles, UiResponse};

use super::action::Action;
use super::command::Command;
use super::document::{Content, DeviceView, Document};
use super::jobs::Jobs;
use super::theme::{Tokens, Type, text};
use super::views::{REGISTRY, ViewContext, ViewKind};
use super::widgets::button::icon_button;
use super::widgets::chip::paint_key_cap;
use super::widgets::icons::{Icon, paint_logo};
use super::widgets::pane::PaneHeader;
use super::workspace::Workspace;
use super::{App, overlays};
use crate::analysis::State;
use crate::units::{Bytes, count, time_of_day};

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
        draw_single(app, ui, tokens, only);
        return;
    }
    let bar = |fill| Frame::new().fill(fill).inner_margin(Margin::symmetric(12, 0));
    Panel::top("menu")
        .exact_size(MENU_BAR)
        .frame(bar(tokens.s2))
        .show_separator_line(false)
        .show(ui, |ui| menu_bar(app, ui, tokens));
    Panel::top("tabs")
        .exact_size(TAB_BAR)
        .frame(Frame::new().fill(tokens.s0))
        .show_separator_line(false)
        .show(ui, |ui| tab_bar(app, ui, tokens));
    Panel::bottom("status")
        .exact_size(STATUS_BAR)
        .frame(bar(tokens.s2))
        .show_separator_line(false)
        .show(ui, |ui| status_bar(app, ui, tokens));
    egui::CentralPanel::no_frame().frame(Frame::new().fill(tokens.s1)).show(ui, |ui| {
        line_above(ui, tokens);
        centre(app, ui, tokens);
    });
    drop_target(ui, tokens);
    overlays::draw(app, ui, tokens);
    app.notices.ui(ui, tokens);
}

fn line_above(ui: &Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.x_range(), rect.top() + 0.5, Stroke::new(1.0, tokens.line));
}

fn menu_bar(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let height = MENU_BAR;
    ui.horizontal_centered(|ui| {
        ui.set_height(height);
        let (logo, _) = ui.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
        paint_logo(ui.painter(), logo.min + vec2(0.0, 2.0), 16.0, tokens.accent, tokens.text1, tokens.text3);
        ui.add_space(-2.0);
        ui.label(text::title("vramscope").size(13.0).color(tokens.text1));
        ui.add_space(4.0);
        egui::MenuBar::new().ui(ui, |ui| menus(app, ui));
    });
    // The search field stands in the middle of the window whatever is left and right of it.
    let full = ui.max_rect();
    let width = 400.0f32.min(full.width() * 0.3);
    let rect = Rect::from_center_size(full.center(), vec2(width, 24.0));
    if full.width() > 900.0 {
        let response = ui.interact(rect, ui.scope_id().with("find"), Sense::click());
        response.widget_info(|| WidgetInfo::labeled(egui::Role::Button, true, "Find a block, a stack, a command"));
        let stroke = if response.hovered() { tokens.line2 } else { tokens.line };
        ui.painter().rect(rect, 4.0, tokens.s1, Stroke::new(1.0, stroke), egui::StrokeKind::Inside);
        Icon::Search.paint(ui.painter(), pos2(rect.left() + 14.0, rect.center().y), 14.0, tokens.text3);
        ui.painter().text(
            pos2(rect.left() + 27.0, rect.center().y),
            Align2::LEFT_CENTER,
            "Find a block, a stack, a command…",
            Type::Body.font(),
            tokens.text3,
        );
        paint_key_cap(ui.painter(), tokens, pos2(rect.right() - 6.0, rect.center().y), "Ctrl K");
        if response.clicked() {
            app.actions.run(Command::Palette);
        }
    }
    let mut right = ui.new_child(UiBuilder::new().max_rect(full).layout(Layout::right_to_left(Align::Center)));
    right.spacing_mut().item_spacing.x = 8.0;
    let (icon, label) = if tokens.dark { (Icon::Sun, "Light theme") } else { (Icon::Moon, "Dark theme") };
    if icon_button(&mut right, icon, label).clicked() {
        app.actions.run(Command::ToggleTheme);
    }
    device_chooser(app, &mut right, tokens);
}

fn menus(app: &mut App, ui: &mut Ui) {
    let recents: Vec<std::path::PathBuf> = app.settings.recents.iter().map(|r| r.path.clone()).collect();
    ui.menu_button("File", |ui| {
        entry(app, ui, Command::Open);
        entry(app, ui, Command::OpenPath);
        entry(app, ui, Command::Explain);
        ui.menu_button("Open recent", |ui| {
            if recents.is_empty() {
                ui.label("No file was opened yet.");
            }
            for path in recents {
                let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
                if ui.button(name).on_hover_text(path.display().to_string()).clicked() {
                    app.actions.send(Action::Open(vec![path]));
                }
            }
        });
        if !app.samples.is_empty() {
            let samples = app.samples.clone();
            ui.menu_button("Open a sample", |ui| {
                for (i, sample) in samples.iter().enumerate() {
                    if ui.button(sample.name).on_hover_text(sample.sentence).clicked() {
                        app.actions.send(Action::OpenSample(i));
                    }
                }
            });
        }
        ui.separator();
        entry(app, ui, Command::Settings);
        entry(app, ui, Command::Welcome);
        entry(app, ui, Command::Close);
        entry(app, ui, Command::Quit);
    });
    ui.menu_button("Edit", |ui| {
        for command in
            [Command::CopyAddress, Command::CopyStack, Command::SelectionBack, Command::SelectionForward, Command::Clear]
        {
            entry(app, ui, command);
        }
    });
    ui.menu_button("View", |ui| {
        for &workspace in Workspace::ALL {
            entry(app, ui, Command::Workspace(workspace));
        }
        ui.separator();
        ui.menu_button("Add a view", |ui| {
            for info in REGISTRY {
                let enabled = app.is_enabled(Command::Show(info.kind));
                if ui.add_enabled(enabled, egui::Button::new(info.title)).on_hover_text(info.about).clicked() {
                    app.actions.run(Command::Show(info.kind));
                }
            }
        });
        ui.menu_button("Colour by", |ui| {
            for by in super::colours::ColourBy::ALL {
                entry(app, ui, Command::Colour(by));
            }
        });
        ui.separator();
        for command in [Command::ZoomFit, Command::ZoomIn, Command::ZoomOut, Command::FitSelection, Command::ToggleAxis] {
            entry(app, ui, command);
        }
        ui.separator();
        entry(app, ui, Command::ResetLayout);
        entry(app, ui, Command::ToggleTheme);
    });
    ui.menu_button("Go", |ui| {
        for command in [
            Command::OutOfMemory,
            Command::Peak,
            Command::PreviousPeak,
            Command::NextPeak,
            Command::First,
            Command::Last,
            Command::EventBack,
            Command::EventForward,
            Command::PreviousSameStack,
            Command::NextSameStack,
            Command::SetMarker(0),
            Command::SetMarker(1),
            Command::ClearMarkers,
        ] {
            entry(app, ui, command);
        }
    });
    ui.menu_button("Help", |ui| {
        entry(app, ui, Command::Help);
        entry(app, ui, Command::Palette);
    });
}

/// One menu entry: its text, its shortcut, disabled when it makes no sense.
fn entry(app: &App, ui: &mut Ui, command: Command) {
    let mut button = egui::Button::new(command.text());
    if let Some(shortcut) = command.shortcuts().first() {
        button = button.shortcut_text(ui.format_shortcut(shortcut));
    }
    let mut response = ui.add_enabled(app.is_enabled(command), button);
    if !command.tooltip().is_empty() {
        response = response.on_hover_text(command.tooltip());
    }
    if response.clicked() {
        app.actions.run(command);
    }
}

fn device_chooser(app: &App, ui: &mut Ui, tokens: &Tokens) {
    let Some(document) = app.active_document() else { return };
    let (Some(recording), Some(view)) = (&document.recording, document.view()) else { return };
    let label = |i: usize| {
        let device = &recording.devices[i];
        match &device.name {
            Some(name) => format!("{} {name}", device.id),
            None => device.id.to_string(),
        }
    };
    if recording.devices.len() == 1 {
        ui.label(text::body(label(view.data.index)).color(tokens.text1));
        return;
    }
    let mut chosen = None;
    egui::ComboBox::from_id_salt("device")
        .selected_text(text::body(label(view.data.index)))
        .width(150.0)
        .show_ui(ui, |ui| {
            for i in 0..recording.devices.len() {
                let device = &recording.devices[i];
                let detail = format!(
                    "{}   {} events, {} segments",
                    label(i),
                    count(device.events.len() as u64),
                    count(device.segments.len() as u64)
                );
                if ui.selectable_label(i == view.data.index, detail).clicked() {
                    chosen = Some(i);
                }
            }
        })
        .response
        .on_hover_text("Which device of this recording to show");
    if let Some(i) = chosen {
        app.actions.send(Action::SetDevice(i));
    }
}

fn tab_bar(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, Stroke::new(1.0, tokens.line));
    let workspaces_width = if app.active_document().is_some_and(|d| d.view().is_some()) && Workspace::ALL.len() > 1 {
        workspace_switch(app, ui, tokens, rect)
    } else {
        0.0
    };
    let tabs_rect = Rect::from_min_max(rect.min, pos2(rect.right() - workspaces_width, rect.bottom()));
    let mut tabs = ui.new_child(UiBuilder::new().max_rect(tabs_rect).layout(Layout::left_to_right(Align::Min)));
    tabs.set_clip_rect(tabs_rect);
    tabs.spacing_mut().item_spacing.x = 0.0;
    egui::ScrollArea::horizontal()
        .id_salt("tabs")
        .scroll_bar_visibility(egui::scroll_area::ScrollBarVisibility::AlwaysHidden)
        .show(&mut tabs, |ui| {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 0.0;
                if app.documents.is_empty() || app.active.is_none() {
                    let response = tab(ui, tokens, "Welcome", true, false, Icon::File, None);
                    if response.close && !app.documents.is_empty() {
                        let id = app.documents[app.documents.len() - 1].id;
                        app.actions.send(Action::Activate(id));
                    }
                }
                for (i, document) in app.documents.iter().enumerate() {
                    let active = app.active == Some(i);
                    let tip = document.path.as_ref().map(|p| p.display().to_string());
                    let response = tab(ui, tokens, &document.title, active, document.has_oom(), Icon::File, tip);
                    if response.close {
                        app.actions.send(Action::Close(document.id));
                    } else if response.open {
                        app.actions.send(Action::Activate(document.id));
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

struct TabResponse {
    open: bool,
    close: bool,
}

fn tab(ui: &mut Ui, tokens: &Tokens, title: &str, active: bool, red_dot: bool, icon: Icon, tip: Option<String>) -> TabResponse {
    let colour = if active { tokens.text1 } else { tokens.text2 };
    let galley = ui.painter().layout_no_wrap(shorten(title, 40), Type::Body.font(), colour);
    let width = 12.0 + 14.0 + 6.0 + galley.size().x + if red_dot { 16.0 } else { 0.0 } + 28.0;
    let (rect, response) = ui.allocate_exact_size(vec2(width, TAB_BAR - 1.0), Sense::click());
    response.widget_info(|| WidgetInfo::selected(egui::Role::Tab, true, active, title));
    let fill = if active {
        tokens.s1
    } else if response.hovered() {
        tokens.s2
    } else {
        tokens.s0
    };
    ui.painter().rect_filled(rect, 0.0, fill);
    if active {
        ui.painter().rect_filled(Rect::from_min_max(rect.min, pos2(rect.right(), rect.top() + 2.0)), 0.0, tokens.accent);
        // The line under the bar opens below the tab in front.
        ui.painter().hline(rect.x_range(), rect.bottom() + 0.5, Stroke::new(1.0, tokens.s1));
    }
    ui.painter().vline(rect.right() - 0.5, rect.y_range(), Stroke::new(1.0, tokens.line));
    let y = rect.center().y;
    icon.paint(ui.painter(), pos2(rect.left() + 18.0, y), 14.0, tokens.text3);
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
    let open = response.clicked();
    if let Some(tip) = tip {
        response.on_hover_text(tip);
    }
    TabResponse { open, close: close_clicked }
}

/// A title that fits a tab: its start and its end, which tell files of one run apart.
fn shorten(title: &str, most: usize) -> String {
    let chars: Vec<char> = title.chars().collect();
    if chars.len() <= most {
        return title.to_owned();
    }
    let half = most / 2;
    chars[..half].iter().chain(['…'].iter()).chain(chars[chars.len() - half + 1..].iter()).collect()
}

fn workspace_switch(app: &App, ui: &mut Ui, tokens: &Tokens, bar: Rect) -> f32 {
    let Some(document) = app.active_document() else { return 0.0 };
    let galleys: Vec<_> = Workspace::ALL
        .iter()
        .map(|w| {
            let colour = if document.workspace == *w { tokens.text1 } else { tokens.text2 };
            ui.painter().layout_no_wrap(w.title().to_owned(), Type::Body.font(), colour)
        })
        .collect();
    let width: f32 = galleys.iter().map(|g| g.size().x + 20.0).sum();
    let outer = Rect::from_min_size(pos2(bar.right() - width - 8.0, bar.center().y - 11.0), vec2(width, 22.0));
    ui.painter().rect(outer, 4.0, tokens.s1, Stroke::new(1.0, tokens.line), egui::StrokeKind::Inside);
    let mut x = outer.left();
    for (i, (&workspace, galley)) in Workspace::ALL.iter().zip(galleys).enumerate() {
        let cell = Rect::from_min_size(pos2(x, outer.top()), vec2(galley.size().x + 20.0, outer.height()));
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

fn status_bar(app: &App, ui: &mut Ui, tokens: &Tokens) {
    let rect = ui.max_rect();
    ui.painter().hline(rect.expand2(vec2(12.0, 0.0)).x_range(), rect.top() + 0.5, Stroke::new(1.0, tokens.line));
    ui.horizontal_centered(|ui| {
        ui.spacing_mut().item_spacing.x = 0.0;
        let Some(document) = app.active_document() else {
            let open = app.documents.len();
            status_item(
                ui,
                tokens,
                &[(if open == 0 { "nothing open" } else { "recordings stay open in their tabs" }, false)],
                true,
            );
            status_item(ui, tokens, &[("drop files anywhere in this window", false)], false);
            return;
        };
        match &document.content {
            Content::Loading(loading) => {
                let percent = loading.progress.fraction().map(|f| format!("{:.0} %", f * 100.0)).unwrap_or_default();
                status_item(
                    ui,
                    tokens,
                    &[("reading ", false), (document.title.as_str(), true), (" ", false), (&percent, true)],
                    true,
                );
            }
            Content::Failed(_) => status_item(ui, tokens, &[("not opened", false)], true),
            Content::Ready(view) => cursor_status(ui, tokens, view),
        }
        if let Content::Ready(view) = &document.content {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| load_status(ui, tokens, view));
        }
    });
}

/// Pieces of text, the important ones in the strong colour, behind a divider unless it is the first.
fn status_item(ui: &mut Ui, tokens: &Tokens, pieces: &[(&str, bool)], first: bool) {
    if !first {
        let (rect, _) = ui.allocate_exact_size(vec2(21.0, 14.0), Sense::hover());
        ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, tokens.line2));
    }
    for (piece, strong) in pieces {
        ui.label(text::mono(*piece).color(if *strong { tokens.text1 } else { tokens.text2 }));
    }
}

fn cursor_status(ui: &mut Ui, tokens: &Tokens, view: &DeviceView) {
    let device = view.data.device();
    let n = device.events.len();
    let event = view.link.cursor;
    let mut first = true;
    if device.events.has_time
        && let Some(&t) = device.events.time_us.get(event as usize)
    {
        status_item(ui, tokens, &[(&time_of_day(t), true), (" UTC", false)], true);
        first = false;
    }
    if n == 0 {
        status_item(ui, tokens, &[("no events: only the state at the end was recorded", false)], first);
    } else {
        status_item(
            ui,
            tokens,
            &[("event ", false), (&count(u64::from(event)), true), (" of ", false), (&count(n as u64), false)],
            first,
        );
    }
    let Some(state) = view.state.latest() else { return };
    let (holes, free, largest) = hole_figures(state);
    let show = |n: u64| Bytes(n).to_string();
    status_item(ui, tokens, &[("reserved ", false), (&show(state.totals.reserved), true)], false);
    status_item(ui, tokens, &[("allocated ", false), (&show(state.totals.allocated), true)], false);
    if ui.available_width() > 420.0 {
        status_item(
            ui,
            tokens,
            &[("free inside ", false), (&show(free), true), (&format!(" in {} holes", count(holes)), false)],
            false,
        );
        status_item(ui, tokens, &[("largest hole ", false), (&show(largest), true)], false);
    }
}

/// Holes, their bytes, and the largest.
fn hole_figures(state: &State) -> (u64, u64, u64) {
    state.holes().fold((0, 0, 0), |(n, sum, max), hole| (n + 1, sum + hole.size, max.max(hole.size)))
}

fn load_status(ui: &mut Ui, tokens: &Tokens, view: &DeviceView) {
    let report = &view.data.recording.report;
    if report.warnings.is_empty() {
        ui.label(text::mono("no load warnings").color(tokens.text2));
    } else {
        let events: u64 = report.warnings.iter().map(|w| w.count).sum();
        let kinds = report.warnings.len() as u64;
        let label = format!("{} of warnings, {} times", crate::units::counted(kinds, "kind", "kinds"), count(events));
        let response = ui.add(egui::Label::new(text::mono(label).color(tokens.amber)).sense(Sense::click()));
        response.on_hover_ui(|ui| {
            ui.set_max_width(520.0);
            for w in &report.warnings {
                ui.label(text::body(format!("{} × {}", count(w.count), w.text)).color(tokens.text1));
            }
        });
    }
    let (rect, _) = ui.allocate_exact_size(vec2(21.0, 14.0), Sense::hover());
    ui.painter().vline(rect.center().x, rect.y_range(), Stroke::new(1.0, tokens.line2));
    let devices = view.data.recording.devices.len() as u64;
    ui.label(text::mono(crate::units::counted(devices, "device", "devices")).color(tokens.text2));
}

fn centre(app: &mut App, ui: &mut Ui, tokens: &'static Tokens) {
    let Some(at) = app.active else {
        overlays::welcome(app, ui);
        return;
    };
    let actions = app.actions.clone();
    let jobs = app.jobs.clone();
    let mut maximised = app.maximised;
    let Some(document) = app.documents.get_mut(at) else { return };
    match &mut document.content {
        Content::Loading(loading) => overlays::loading(ui, tokens, loading, &document.title, document.id, &actions),
        Content::Failed(sentence) => overlays::failed(ui, tokens, &document.title, sentence, document.id, &actions),
        Content::Ready(_) => {
            workspace_ui(document, ui, tokens, &actions, &jobs, &mut maximised);
            app.maximised = maximised;
        }
    }
}

fn draw_single(app: &mut App, ui: &mut Ui, tokens: &'static Tokens, only: ViewKind) {
    let (actions, jobs) = (app.actions.clone(), app.jobs.clone());
    let Some(document) = app.active_document_mut() else { return };
    egui::CentralPanel::no_frame().frame(Frame::new().fill(tokens.s1)).show(ui, |ui| {
        let mut maximised = Some(only);
        workspace_ui(document, ui, tokens, &actions, &jobs, &mut maximised);
    });
}

fn workspace_ui(
    document: &mut Document,
    ui: &mut Ui,
    tokens: &'static Tokens,
    actions: &super::Actions,
    jobs: &Jobs,
    maximised: &mut Option<ViewKind>,
) {
    let workspace = document.workspace;
    let Content::Ready(view) = &mut document.content else { return };
    let (state, colours, findings) = view.refresh(jobs);
    let data = Arc::clone(&view.data);
    let mut panes = Panes {
        views: &mut view.views,
        cx: ViewContext {
            data: &data,
            link: &view.link,
            state: state.as_ref(),
            findings: findings.as_ref(),
            colours: &colours,
            tokens,
            actions,
            jobs,
        },
        maximised,
        is_single: false,
    };
    if let Some(kind) = *panes.maximised {
        panes.is_single = true;
        let _ = panes.pane(ui, kind);
    } else {
        document.layouts.tree(workspace).ui(&mut panes, ui);
    }
}

/// Draws panes for the tile tree: a header to grab, then the view.
struct Panes<'a> {
    views: &'a mut std::collections::HashMap<ViewKind, Box<dyn super::views::View>>,
    cx: ViewContext<'a>,
    maximised: &'a mut Option<ViewKind>,
    is_single: bool,
}

impl Panes<'_> {
    fn pane(&mut self, ui: &mut Ui, kind: ViewKind) -> UiResponse {
        let tokens = self.cx.tokens;
        let rect = ui.max_rect();
        ui.painter().rect_filled(rect, 0.0, tokens.s1);
        let info = kind.info();
        let view = self.views.entry(kind).or_insert_with(|| (info.create)());
        let subtitle = view.subtitle(&self.cx);
        ui.spacing_mut().item_spacing.y = 0.0;
        let cx = &self.cx;
        let header = PaneHeader::new(info.title)
            .caption(&subtitle)
            .help(|ui| legend(ui, tokens, info))
            .show(ui, |ui| view.header_ui(ui, cx));
        // The header is drawn to be clicked; here it is also the handle by which a pane is docked elsewhere.
        let grip = header.interact(Sense::click_and_drag());
        if grip.double_clicked() {
            *self.maximised = if self.maximised.is_some() { None } else { Some(kind) };
        }
        let body = Rect::from_min_max(pos2(rect.left(), header.rect.bottom()), rect.max);
        if body.is_positive() {
            let mut child = ui.new_child(UiBuilder::new().max_rect(body).layout(Layout::top_down(Align::Min)).id_salt(kind));
            child.set_clip_rect(body.intersect(ui.clip_rect()));
            view.ui(&mut child, &self.cx);
        }
        if grip.drag_started() && !self.is_single { UiResponse::DragStarted } else { UiResponse::None }
    }
}

fn legend(ui: &mut Ui, tokens: &Tokens, info: &super::views::ViewInfo) {
    ui.set_max_width(360.0);
    ui.label(text::body(info.about).color(tokens.text1));
    ui.add_space(8.0);
    for (what, meaning) in info.legend.iter().chain(GESTURES) {
        ui.horizontal_top(|ui| {
            ui.spacing_mut().item_spacing.x = 8.0;
            let (rect, _) = ui.allocate_exact_size(vec2(96.0, 16.0), Sense::hover());
            ui.painter().text(rect.left_center(), Align2::LEFT_CENTER, *what, Type::Strong.font(), tokens.text2);
            ui.add(egui::Label::new(text::body(*meaning).color(tokens.text1)).wrap());
        });
        ui.add_space(2.0);
    }
}

/// What every pane understands, after the view's own.
const GESTURES: &[(&str, &str)] = &[
    ("drag header", "move the pane beside, above or onto another"),
    ("double click", "on the header: fill the window with this pane, and back"),
];

impl Behavior<ViewKind> for Panes<'_> {
    fn pane_ui(&mut self, ui: &mut Ui, _tile: TileId, kind: &mut ViewKind) -> UiResponse {
        self.pane(ui, *kind)
    }

    fn tab_title_for_pane(&mut self, kind: &ViewKind) -> egui::WidgetText {
        text::body(kind.title()).into()
    }

    fn is_tab_closable(&self, _tiles: &Tiles<ViewKind>, _tile: TileId) -> bool {
        true
    }

    fn gap_width(&self, _style: &egui::Style) -> f32 {
        1.0
    }

    fn min_size(&self) -> f32 {
        120.0
    }

    fn tab_bar_height(&self, _style: &egui::Style) -> f32 {
        PANE_HEADER
    }

    fn tab_bar_color(&self, _visuals: &egui::Visuals) -> egui::Color32 {
        self.cx.tokens.s0
    }

    fn resize_stroke(&self, _style: &egui::Style, state: egui_tiles::ResizeState) -> Stroke {
        match state {
            egui_tiles::ResizeState::Idle => Stroke::new(1.0, self.cx.tokens.line),
            egui_tiles::ResizeState::Hovering | egui_tiles::ResizeState::Dragging => Stroke::new(2.0, self.cx.tokens.accent),
        }
    }

    fn simplification_options(&self) -> SimplificationOptions {
        SimplificationOptions { all_panes_must_have_tabs: false, ..SimplificationOptions::default() }
    }
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
