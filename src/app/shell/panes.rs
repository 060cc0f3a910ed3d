//! The panes of a workspace: the tile tree, and in each pane a header with a legend and the view.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Align, Align2, Frame, Layout, Rect, Sense, Stroke, Ui, UiBuilder, vec2};
use egui_tiles::{Behavior, Container, SimplificationOptions, Tile, TileId, Tiles, UiResponse};

use super::fitting::Fitted;
use super::heights::PANE_HEADER;
use super::welcome::welcome;
use crate::app::data::compare::Open;
use crate::app::documents::document::{Content, Document, Left};
use crate::app::documents::loading;
use crate::app::jobs::Jobs;
use crate::app::pages::failed::failed as failed_page;
use crate::app::pages::probe::page_ui as probe_ui;
use crate::app::pages::ranks::page_ui;
use crate::app::pages::snapshots;
use crate::app::settings::Settings;
use crate::app::state::workspace::{close, find};
use crate::app::state::{Action, Actions, Command, ViewKind, Workspace};
use crate::app::theme::{Tokens, Type};
use crate::app::views::live::figures::has_only_samples;
use crate::app::views::{View, ViewContext, ViewInfo};
use crate::app::widgets::{CodeWell, PaneHeader, Push, anchor, empty_state, empty_with, label, menu_item, term};
use crate::app::window::App;
use vramscope_core::model::{DeviceRecording, LiveTrack, Recording};

pub(super) fn centre(app: &mut App, ui: &mut Ui, tokens: &'static Tokens) {
    let Some(at) = app.documents.at_front() else {
        welcome(app, ui);
        return;
    };
    let actions = app.actions.clone();
    let jobs = app.jobs.clone();
    let settings = &app.settings;
    let mut maximised = app.maximised;
    app.hidden.clear();
    let open = app
        .documents
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != at)
        .filter_map(|(_, d)| Some(Open { id: d.id, title: d.title.clone(), data: Arc::clone(&d.view()?.data) }))
        .collect();
    let Some(document) = app.documents.get_mut(at) else { return };
    if let Some(view) = document.view() {
        view.comparing.set_open(open);
    }
    let mut drawn = Ok(());
    match &mut document.content {
        Content::Loading(file) => loading::page(ui, tokens, file, &document.title, document.id, &actions),
        Content::Failed(_) if !document.snapshots.is_empty() => {
            snapshots::page(ui, tokens, &document.title, document.path.as_deref(), &document.snapshots, &actions);
        }
        Content::Failed(sentence) => failed_page(ui, tokens, &document.title, sentence, document.id, &actions),
        Content::Ranks(page) => drawn = jobs.attempt(|| page_ui(page, ui, tokens, &actions)),
        Content::Probe(page) => drawn = jobs.attempt(|| probe_ui(page, ui, tokens, &jobs, &actions)),
        Content::Ready(view) => {
            view.settling = view.settling.take().filter(|s| !s.is_over());
            if let Some(settling) = &mut view.settling {
                if settling.is_seen {
                    let mut page = ui.new_child(UiBuilder::new().max_rect(ui.max_rect()).id_salt("settling"));
                    loading::page(&mut page, tokens, &mut settling.page, &document.title, document.id, &actions);
                }
                ui.ctx().request_repaint();
            }
            app.hidden = workspace_ui(document, ui, tokens, &actions, &jobs, settings, &mut maximised);
            app.maximised = maximised;
            // A requested view that has no room fills the workspace.
            if let Some(view) = app.shown.take().filter(|view| app.hidden.contains(view)) {
                app.maximised = Some(view);
                ui.ctx().request_repaint();
            }
            if let Some(view) = app.documents.get_mut(at).and_then(Document::view_mut) {
                view.settling = view.settling.take().and_then(|settling| settling.next(&jobs));
            }
        }
    }
    if let (Err(said), Some(document)) = (drawn, app.documents.get_mut(at)) {
        let sentence =
            "This page stopped: an error in vramscope. Close it and open it again. Please report it, with what it said";
        document.content = Content::Failed(format!("{sentence}: {said}"));
    }
}

pub(super) fn draw_single(app: &mut App, ui: &mut Ui, tokens: &'static Tokens, only: ViewKind) {
    let (actions, jobs, settings) = (app.actions.clone(), app.jobs.clone(), &app.settings);
    let Some(document) = app.documents.front_mut() else { return };
    egui::CentralPanel::no_frame().frame(Frame::new().fill(tokens.s1)).show(ui, |ui| {
        let mut maximised = Some(only);
        // A picture of one view is taken when it is complete, so there is no need to wait behind the loading page.
        if let Content::Ready(view) = &mut document.content {
            view.settling = None;
        }
        let _ = workspace_ui(document, ui, tokens, &actions, &jobs, settings, &mut maximised);
    });
}

/// Draws the panes. Returns the views without room.
fn workspace_ui(
    document: &mut Document,
    ui: &mut Ui,
    tokens: &'static Tokens,
    actions: &Actions,
    jobs: &Jobs,
    settings: &Settings,
    maximised: &mut Option<ViewKind>,
) -> Vec<ViewKind> {
    let workspace = document.arrangement();
    let Content::Ready(view) = &mut document.content else { return Vec::new() };
    let is_live = *maximised == Some(ViewKind::Live) || (maximised.is_none() && workspace == Workspace::Live);
    if view.data.recording.has_no_device() && !is_live {
        no_device(ui, view.data.device().live.as_deref(), actions);
        return Vec::new();
    }
    let tree = document.layouts.tree(workspace);
    let tabs = tree.tiles.iter().filter_map(|(_, tile)| match tile {
        Tile::Container(Container::Tabs(tabs)) => Some(&tabs.children),
        _ => None,
    });
    let tabbed = tabs.flatten().filter_map(|&id| tree.tiles.get_pane(&id)).copied().collect();
    let is_seen = |kind| match *maximised {
        Some(only) => only == kind,
        None => find(tree, kind).is_some_and(|id| tree.tiles.is_visible_in_layout(id)),
    };
    view.shared.shows_comparison = is_seen(ViewKind::Compare) || is_seen(ViewKind::Flame);
    if !is_seen(ViewKind::Memory) {
        // A view that is no longer drawn cannot report that the pointer left it.
        view.shared.hover_class = None;
        view.shared.hover_own = None;
    }
    // Drops failures of pages and dialogs, which do not concern the panes.
    drop(jobs.take_asked_in_vain());
    let fresh = view.refresh(jobs, &settings.category_rules);
    let in_vain = jobs.take_asked_in_vain();
    view.comparing.set_rules(&settings.category_rules);
    let data = Arc::clone(&view.data);
    let is_unseen = view.settling.is_some();
    if is_unseen {
        ui.set_invisible();
    }
    let mut panes = Panes {
        views: &mut view.views,
        broken: &mut view.broken,
        in_vain,
        cx: ViewContext {
            data: &data,
            shared: &view.shared,
            state: fresh.state.as_ref(),
            findings: fresh.findings.as_ref(),
            colours: &fresh.colours,
            roles: fresh.roles.as_ref(),
            matching: fresh.matching.as_ref(),
            comparing: &view.comparing,
            tokens,
            actions,
            jobs,
            source_folders: &settings.source_folders,
        },
        maximised,
        is_single: false,
        is_unseen,
        workspace,
        tabbed,
        closed: None,
        closed_tab: None,
    };
    if let Some(kind) = *panes.maximised {
        panes.is_single = true;
        let _ = panes.pane(ui, kind);
        Vec::new()
    } else {
        let tree = document.layouts.tree(workspace);
        let before = tree.dragged_id(ui.ctx()).map(|_| tree.clone());
        let fitted = Fitted::fit(tree, ui.available_size());
        tree.ui(&mut panes, ui);
        let hidden = fitted.undo(tree);
        // Only the left button moves panes. The other buttons pan and open menus.
        if ui.input(|i| i.pointer.any_down() && !i.pointer.primary_down()) && tree.dragged_id(ui.ctx()).is_some() {
            ui.ctx().stop_dragging();
        }
        if panes.closed.is_some() || panes.closed_tab.is_some() {
            let before = tree.clone();
            panes.closed.into_iter().for_each(|view| close(tree, workspace, view));
            if let Some(tab) = panes.closed_tab {
                tree.remove_recursively(tab);
            }
            document.remember(Left::Layout(workspace, Box::new(before)));
            return hidden;
        }
        let docked = before.filter(|before| before != tree);
        if let Some(before) = docked {
            // The arrangement is now the user's own, so its visited views stay.
            document.visitors.retain(|visitor| visitor.0 != workspace);
            document.remember(Left::Layout(workspace, Box::new(before)));
        }
        hidden
    }
}

/// While a watch has no device, only the Live view has something to show.
fn no_device(ui: &mut Ui, track: Option<&LiveTrack>, actions: &Actions) {
    let why = track.and_then(|t| t.trouble.as_deref()).unwrap_or("The first sample has not come yet.");
    empty_state(ui, &format!("No GPU is watched, so there is nothing to show here. {why}"), None);
    ui.add_space(16.0);
    ui.vertical_centered(|ui| {
        if Push::primary("Back to Live").show(ui).clicked() {
            actions.run(Command::Workspace(Workspace::Live));
        }
    });
}

/// Draws the panes of the tile tree: a header to drag, and the view below.
struct Panes<'a> {
    views: &'a mut HashMap<ViewKind, Box<dyn View>>,
    broken: &'a mut HashMap<ViewKind, String>,
    /// Names of shared values that could not be computed.
    in_vain: Vec<String>,
    cx: ViewContext<'a>,
    maximised: &'a mut Option<ViewKind>,
    is_single: bool,
    is_unseen: bool,
    workspace: Workspace,
    tabbed: Vec<ViewKind>,
    /// The pane that the user closed in this frame.
    closed: Option<ViewKind>,
    /// The same for a tab, which may hold several panes.
    closed_tab: Option<TileId>,
}

impl Panes<'_> {
    fn pane(&mut self, ui: &mut Ui, kind: ViewKind) -> UiResponse {
        let tokens = self.cx.tokens;
        let rect = ui.max_rect();
        if self.is_unseen {
            // The tree has its own painter for each pane.
            ui.set_invisible();
        }
        ui.painter().rect_filled(rect, 0.0, tokens.s1);
        anchor::mark(ui, kind.name(), rect);
        let info = kind.info();
        let jobs = self.cx.jobs;
        let view = self.views.entry(kind).or_insert_with(|| (info.create)());
        let without = without(self.cx.data.recording.as_ref(), self.cx.data.device(), kind);
        let is_without = without.is_some();
        let mut trouble = self.broken.get(&kind).cloned();
        let mut attempt = |draw: &mut dyn FnMut()| {
            if trouble.is_none() && !is_without {
                trouble = jobs.attempt(draw).err();
            }
        };
        let mut subtitle = String::new();
        attempt(&mut || subtitle = view.subtitle(&self.cx));
        let cx = &self.cx;
        let mut is_closed = false;
        let mut header = PaneHeader::new(kind.title()).caption(&subtitle).help(|ui| legend(ui, cx, info));
        // A pane that the user added has a close button. A pane in tabs is closed by its tab.
        if !self.is_single && !self.tabbed.contains(&kind) && !self.workspace.starts_with(kind) {
            header = header.closable(&mut is_closed);
        }
        let header = header.show(ui, |ui| attempt(&mut || view.header_ui(ui, cx)));
        // The header is the handle for docking the pane elsewhere. It takes no focus. It comes before its own buttons but lies
        // behind them, so Tab would otherwise never leave them.
        let grip = header.interact(Sense::CLICK | Sense::DRAG);
        // A quick drag may leave the header in the frame that saw the button go down. The header was pressed nevertheless.
        let left_at_once = ui.input(|i| {
            let began_here = i.pointer.press_origin().is_some_and(|at| header.rect.contains(at));
            i.pointer.primary_pressed() && began_here && i.pointer.latest_pos().is_some_and(|at| !header.rect.contains(at))
        });
        if grip.double_clicked() {
            *self.maximised = if self.maximised.is_some() { None } else { Some(kind) };
        }
        grip.context_menu(|ui| {
            if menu_item(ui, "Save a picture of this view…", None, None, true).clicked() {
                self.cx.actions.send(Action::AskPicture(Some((kind, rect))));
                ui.close();
            }
            let words = if self.maximised.is_some() { "Show all panes" } else { "Fill the window with it" };
            if menu_item(ui, words, None, None, true).clicked() {
                *self.maximised = if self.maximised.is_some() { None } else { Some(kind) };
                ui.close();
            }
            if !self.is_single && menu_item(ui, "Close this view", None, None, true).clicked() {
                is_closed = true;
                ui.close();
            }
        });
        if is_closed {
            self.closed = Some(kind);
        }
        let body = rect.with_min_y(header.rect.bottom());
        if body.is_positive() {
            // When the tree moves the pane, its scroll positions move with it.
            let id = egui::Id::unique(("pane", self.workspace.title(), kind));
            let mut child = ui.new_child(UiBuilder::new().max_rect(body).layout(Layout::top_down(Align::Min)).scope_id(id));
            child.set_clip_rect(body.intersect(ui.clip_rect()));
            term::speak_of(child.ctx(), self.cx.data, self.cx.state);
            if let Some((sentence, line)) = without {
                empty_state(&mut child, sentence, line.map(|line| self.cx.words().say(line)).as_deref());
            }
            attempt(&mut || view.ui(&mut child, cx));
            let in_vain = jobs.take_asked_in_vain();
            let missing = in_vain.into_iter().chain(self.in_vain.iter().filter(|name| needs(kind, name)).cloned()).next();
            if let Some(said) = trouble {
                // The view's state may be inconsistent after the panic.
                self.views.remove(&kind);
                let sentence = "This view stopped: an error in vramscope. The others go on. Please report it, with the recording if \
                                you can, and with what it said:";
                if failed(ui, tokens, body, kind, sentence, &said) {
                    self.broken.remove(&kind);
                } else {
                    self.broken.insert(kind, said);
                }
            } else if let Some(name) = missing {
                let sentence = "This view has nothing to draw: an error in vramscope while it was computed. It is tried again when what \
                                it shows changes. Please report it, with the recording if you can, and with what failed:";
                // Drops the cached failure, so that everything is computed again.
                if failed(ui, tokens, body, kind, sentence, &name) {
                    self.views.remove(&kind);
                }
            }
        }
        if (grip.drag_started() || left_at_once) && !self.is_single { UiResponse::DragStarted } else { UiResponse::None }
    }
}

/// True when a view cannot be drawn without the shared value of this name.
fn needs(kind: ViewKind, name: &str) -> bool {
    match name {
        "findings" => kind == ViewKind::Findings,
        "state" => matches!(kind, ViewKind::SegmentMap | ViewKind::Inspector | ViewKind::Accounting),
        "query" => kind == ViewKind::Allocations,
        _ => false,
    }
}

/// Shows in a view's place why it failed. True when the user wants to retry.
fn failed(ui: &mut Ui, tokens: &Tokens, body: Rect, kind: ViewKind, sentence: &str, said: &str) -> bool {
    let mut place = ui.new_child(UiBuilder::new().max_rect(body).layout(Layout::top_down(Align::Min)).id_salt((kind, "failed")));
    place.set_clip_rect(body.intersect(ui.clip_rect()));
    place.painter().rect_filled(body, 0.0, tokens.s1);
    empty_with(&mut place, sentence, 72.0, |ui| {
        ui.add_space(10.0);
        CodeWell::new(said).copy(true).show(ui);
    });
    place.add_space(10.0);
    place.vertical_centered(|ui| ui.button("Try again").clicked()).inner
}

/// Why a view cannot show this kind of recording, and the line of code that records what it needs.
fn without(recording: &Recording, device: &DeviceRecording, kind: ViewKind) -> Option<(&'static str, Option<&'static str>)> {
    use ViewKind as V;
    if recording.has_only_counters() {
        let sentence = "These are PyTorch's counters: totals, without events, segments or blocks. Accounting shows them. A memory snapshot has \
                        the rest:";
        let shows = matches!(kind, V::Accounting | V::Contents | V::Live);
        return (!shows).then_some((sentence, Some("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")")));
    }
    if device.live.is_some() && has_only_samples(device) {
        let sentence = "A watch knows how much memory is in use and whose it is, but no single allocation. A snapshot of the program has \
                        them: choose the program in Live, then Snapshot now. Or in the program:";
        let shows = matches!(
            kind,
            V::Live | V::Timeline | V::Memory | V::Findings | V::Contents | V::Accounting | V::Inspector | V::Compare
        );
        return (!shows).then_some((sentence, Some("torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")")));
    }
    None
}

/// False for legend entries that do not apply to the recording in front.
fn is_told(cx: &ViewContext<'_>, kind: ViewKind, what: &str) -> bool {
    let (data, device) = (cx.data, cx.data.device());
    if !matches!(kind, ViewKind::Timeline | ViewKind::Contents) || (device.events.is_empty() && device.segments.is_empty()) {
        return true;
    }
    match what {
        "requested" => device.can_show.requested.is_known(),
        "reserved" | "hatched" | "cap" | "device" | "pennant" => data.knows_reserved(),
        "operators" => !data.recording.ops.is_empty(),
        "categories" => !device.bands.is_empty(),
        "whole card" => device.samples.first().is_some_and(|s| s.used.is_some()),
        _ => true,
    }
}

fn legend(ui: &mut Ui, cx: &ViewContext<'_>, info: &ViewInfo) {
    let tokens = cx.tokens;
    let told = || info.legend.iter().filter(|(what, _)| is_told(cx, info.kind, what)).chain(GESTURES);
    let names = told().map(|(what, _)| label::width(ui.painter(), what, Type::Strong)).fold(96.0, f32::max).ceil();
    ui.set_max_width(264.0 + names);
    let words = cx.words();
    ui.label(Type::Body.text(words.say(info.kind.about())).color(tokens.text1));
    ui.add_space(8.0);
    for (what, meaning) in told() {
        ui.horizontal_top(|ui| {
            let (rect, _) = ui.allocate_exact_size(vec2(names, 16.0), Sense::hover());
            let is_host = *what == "device" && cx.data.device().id.kind == vramscope_core::model::DeviceKind::Host;
            let what = if is_host { "host" } else { what };
            ui.painter().text(rect.left_center(), Align2::LEFT_CENTER, what, Type::Strong.font(), tokens.text2);
            ui.add(egui::Label::new(Type::Body.text(words.say(meaning)).color(tokens.text1)).wrap());
        });
        ui.add_space(2.0);
    }
}

/// Gestures of all panes, listed after the view's own.
const GESTURES: &[(&str, &str)] = &[
    ("drag header", "move the pane beside, above or onto another"),
    ("double click", "on the header: fill the window with this pane, and back"),
];

impl Behavior<ViewKind> for Panes<'_> {
    fn pane_ui(&mut self, ui: &mut Ui, _tile: TileId, kind: &mut ViewKind) -> UiResponse {
        self.pane(ui, *kind)
    }

    fn tab_title_for_pane(&mut self, kind: &ViewKind) -> egui::WidgetText {
        Type::Body.text(kind.title()).into()
    }

    fn tab_title_for_tile(&mut self, tiles: &Tiles<ViewKind>, tile: TileId) -> egui::WidgetText {
        // A tab with several panes is named after the first one.
        let (mut at, mut is_several) = (tile, false);
        while let Some(Tile::Container(container)) = tiles.get(at) {
            let Some(first) = container.children().next() else { break };
            is_several |= container.num_children() > 1;
            at = *first;
        }
        let first = tiles.get_pane(&at).map(|kind| kind.title()).unwrap_or_default();
        Type::Body.text(&if is_several { format!("{first} and others") } else { first.to_string() }).into()
    }

    fn is_tab_closable(&self, _tiles: &Tiles<ViewKind>, _tile: TileId) -> bool {
        true
    }

    /// The tab is closed after the frame, so that the arrangement before can be kept for undo.
    fn on_tab_close(&mut self, _tiles: &mut Tiles<ViewKind>, tile: TileId) -> bool {
        self.closed_tab = Some(tile);
        false
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::app::data::samples;
    use crate::app::settings::Settings;

    /// A view that panics, either while drawing or while computing.
    #[derive(Default)]
    struct Broken {
        computes: bool,
        value: crate::app::jobs::Derived<u32, u32>,
    }

    impl View for Broken {
        fn ui(&mut self, _ui: &mut Ui, cx: &ViewContext<'_>) {
            if !self.computes {
                panic!("drawing went wrong");
            }
            let _ = self.value.get(cx.jobs, "what is broken", &1, |_| -> Option<u32> { panic!("computing went wrong") });
        }
    }

    /// Draws the window for a while with the broken view in place of the Inspector. Returns its texts and its notices.
    fn drawn(computes: bool) -> (Vec<String>, Vec<String>) {
        let ctx = egui::Context::default();
        let mut app = App::new(&ctx, Settings::default(), Jobs::new(ctx.clone()));
        app.open_recording("sample", samples::device("gpt_train.pickle"));
        let view = app.active_document_mut().and_then(Document::view_mut).unwrap();
        view.views.insert(ViewKind::Inspector, Box::new(Broken { computes, ..Broken::default() }));
        let start = Instant::now();
        let mut texts = Vec::new();
        let mut calm = 0;
        while start.elapsed() < Duration::from_secs(60) && calm < 5 {
            texts = crate::app::shell::texts_of_a_frame(&mut app, &ctx);
            calm = if app.jobs.running() == 0 { calm + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(app.jobs.running(), 0, "a panicking job is started again and again");
        (texts, app.notices().map(str::to_owned).collect())
    }

    fn says(texts: &[String], words: &str) -> bool {
        texts.iter().any(|text| text.contains(words))
    }

    #[test]
    fn a_view_that_panics_says_so_in_its_place_and_the_window_lives_on() {
        let (texts, _) = drawn(false);
        assert!(
            says(&texts, "This view stopped") && says(&texts, "drawing went wrong") && says(&texts, "Try again"),
            "{texts:?}"
        );
        assert!(says(&texts, "Segment map") && says(&texts, "Timeline"), "the others are drawn");
    }

    #[test]
    fn a_computation_that_panics_is_said_in_its_views_place() {
        let (texts, notices) = drawn(true);
        assert!(says(&texts, "This view has nothing to draw") && says(&texts, "what is broken"), "{texts:?}");
        assert!(says(&notices, "computing went wrong"), "{notices:?}");
    }
}
