//! Runs commands: what each [`Command`] does, and when it is enabled.

use egui::Context;

use super::{App, Overlay};
use crate::app::dialogs::guide::Page;
use crate::app::documents::document::{Content, DeviceView, Document, Left};
use crate::app::documents::moving::{fit_selection, go_to, pan, selected_stack, set_axis, set_marker, set_window, zoom};
use crate::app::settings::ThemeChoice;
use crate::app::state::shared::domain;
use crate::app::state::{Action, Axis, Choosing, Command, Item, LiveAction, Needs, ViewKind, Workspace, workspace};
use crate::app::widgets::{field, lets_go_of_drawing};
use vramscope_core::model::StackId;
use vramscope_core::units::Address;

impl App {
    pub(in crate::app) fn is_enabled(&self, command: Command) -> bool {
        let view = self.active_document().and_then(Document::view);
        match command.needs() {
            Needs::Nothing => true,
            // Clear also works without a recording: it closes dialogs, and unchooses rows on the ranks page.
            Needs::Recording => {
                let is_page = matches!(self.active_document().map(|d| &d.content), Some(Content::Ranks(_)));
                view.is_some() || (command == Command::Clear && (is_page || !matches!(self.overlay, Overlay::None)))
            }
            Needs::Saveable => self.can_save(),
            Needs::Selection => view.is_some_and(|v| v.shared.selected().is_some()),
            Needs::OutOfMemory => view.is_some_and(|v| !v.data.ooms.is_empty() || v.data.failed_elsewhere().is_some()),
        }
    }

    pub(in crate::app) fn run(&mut self, command: Command, ctx: &Context) {
        if !self.is_enabled(command) {
            let has_view = self.active_document().and_then(Document::view).is_some();
            match command.needs() {
                Needs::Selection if has_view => self.notices.mention("Nothing is selected: click a block first."),
                Needs::OutOfMemory if has_view => self.notices.mention("No request failed here."),
                _ => {}
            }
            return;
        }
        match command {
            Command::Open => self.open_dialog(Choosing::Open),
            Command::OpenRanks => self.open_dialog(Choosing::Ranks),
            Command::CompareFiles => self.ask_pair(),
            Command::Probe => self.open_probe(false),
            Command::Replay => self.open_probe(true),
            Command::WatchFolder => match self.watch.take() {
                Some(watch) => self.notices.say(format!("{} is no longer watched.", watch.folder.display())),
                None => self.open_dialog(Choosing::WatchFolder),
            },
            Command::SavePicture => self.actions.send(Action::AskPicture(None)),
            Command::SaveRecording if self.want_saved() => self.open_dialog(Choosing::Save),
            Command::SaveRecording => self.act_live(LiveAction::Save),
            Command::SaveReport if self.want_report() => self.overlay = Overlay::Report,
            Command::SaveReport => self.notices.say("Open a recording first: a report is of the recording in front."),
            Command::AddFile => self.open_dialog(Choosing::Add),
            Command::OpenPath => self.ask_path(Choosing::Open),
            Command::Explain => self.overlay = Overlay::Explain(Default::default()),
            Command::WatchMachine => self.watch_machine(ctx),
            Command::Welcome => {
                self.documents.show_none();
                self.welcomes += 1;
            }
            Command::Close => {
                if let Some(id) = self.documents.front().map(|d| d.id) {
                    self.close(id);
                }
            }
            Command::Reopen => match self.closed.pop() {
                Some(action) => self.apply(action, ctx),
                None => self.notices.mention("No closed tab can be opened again."),
            },
            Command::NextTab => self.documents.cycle(1),
            Command::PreviousTab => self.documents.cycle(-1),
            Command::Quit => ctx.send_viewport_cmd(egui::ViewportCommand::Close),
            Command::Palette => self.overlay = Overlay::Palette(Default::default()),
            Command::FindInView => field::ask_for_focus(ctx),
            Command::Help => self.overlay = Overlay::Help,
            Command::Tour => self.start_tour(),
            Command::HowToRecord => self.overlay = Overlay::Guide(Page::Record.into()),
            Command::Manual => self.overlay = Overlay::Guide(Page::Chapter(0).into()),
            Command::About => self.overlay = Overlay::Guide(Page::About.into()),
            Command::Settings => self.overlay = Overlay::Settings,
            Command::RoleRules => self.overlay = Overlay::Rules,
            Command::ToggleTheme => {
                let dark = ctx.global_style().visuals.dark_mode;
                self.settings.theme = if dark { ThemeChoice::Light } else { ThemeChoice::Dark };
                ctx.set_theme(self.settings.theme.preference());
            }
            Command::LargerInterface => egui::gui_zoom::zoom_in(ctx),
            Command::SmallerInterface => egui::gui_zoom::zoom_out(ctx),
            Command::UsualInterface => ctx.set_zoom_factor(1.0),
            Command::ZoomFit => self.with_shared(|shared, data| {
                let (from, to) = domain(data.device(), shared.axis);
                set_window(shared, data, from, to);
                shared.fitted = shared.fitted.wrapping_add(1);
            }),
            Command::ZoomIn => self.with_shared(|shared, data| zoom(shared, data, 0.5)),
            Command::ZoomOut => self.with_shared(|shared, data| zoom(shared, data, 2.0)),
            Command::PanLeft => self.with_shared(|shared, data| pan(shared, data, -0.25)),
            Command::PanRight => self.with_shared(|shared, data| pan(shared, data, 0.25)),
            Command::ToggleAxis => self.with_shared(|shared, data| {
                set_axis(shared, data, if shared.axis == Axis::Event { Axis::Time } else { Axis::Event });
            }),
            Command::EventBack => self.with_shared(|shared, data| go_to(shared, data, shared.cursor.saturating_sub(1))),
            Command::EventForward => self.with_shared(|shared, data| go_to(shared, data, shared.cursor.saturating_add(1))),
            Command::First => self.with_shared(|shared, data| go_to(shared, data, 0)),
            Command::Last => self.with_shared(|shared, data| go_to(shared, data, u32::MAX)),
            Command::Peak => self.with_shared(|shared, data| go_to(shared, data, data.tables.curves.peak_event())),
            Command::PreviousPeak | Command::NextPeak | Command::PreviousSameStack | Command::NextSameStack => self.seek(command),
            Command::OutOfMemory if self.show_failed_device() => {}
            Command::OutOfMemory => self.with_shared(|shared, data| {
                // The last failure, which ended the run, comes first. After it the failures follow in order, starting with the
                // first.
                let is_at_one =
                    data.ooms.binary_search(&shared.cursor).is_ok() && shared.selected() == Some(Item::Event(shared.cursor));
                let next = data.ooms.iter().copied().find(|&e| e > shared.cursor).or_else(|| data.ooms.first().copied());
                if let Some(e) = if is_at_one { next } else { data.last_oom() } {
                    go_to(shared, data, e);
                    shared.selection.select(Some(Item::Event(e)));
                }
            }),
            Command::SetMarker(which) => self.with_shared(|shared, _| set_marker(shared, which, Some(shared.cursor))),
            Command::ClearMarkers => self.with_shared(|shared, _| {
                set_marker(shared, 0, None);
                set_marker(shared, 1, None);
            }),
            Command::QueryStack => {
                let stack = self.active_document().and_then(Document::view).and_then(|v| selected_stack(&v.shared, &v.data));
                match stack {
                    Some(stack) if stack.is_some() => self.apply(Action::SetQuery(format!("stack={}", stack.0)), ctx),
                    Some(_) => self.apply(Action::SetQuery("stack=none".to_owned()), ctx),
                    None => return self.notices.mention("The selection has no stack."),
                }
                self.run(Command::Show(ViewKind::Allocations), ctx);
            }
            Command::FitSelection => self.with_shared(fit_selection),
            // A range or box that is being drawn is cleared first.
            Command::Clear if lets_go_of_drawing(ctx) => {}
            Command::Clear => self.clear(),
            // Undoes what changed last: the workspace, the zoom or the selection. When no zoom or selection is left, the
            // workspace.
            Command::SelectionBack if self.active_document_mut().is_some_and(|d| d.left.1 && d.go_back()) => {}
            Command::SelectionBack => {
                if !self.undo_seen()
                    && let Some(document) = self.active_document_mut()
                {
                    document.go_back();
                }
            }
            Command::Undo if self.active_document_mut().is_some_and(|d| d.left.1 && d.has_left_a_layout() && d.go_back()) => {}
            // What-if and Plan do not show zoom and selection, so these are not undone there.
            Command::Undo => {
                let shows_it =
                    self.active_document().is_some_and(|d| !matches!(d.workspace, Workspace::WhatIf | Workspace::Plan));
                if !(shows_it && self.undo_seen()) {
                    self.notices.mention("Nothing to undo here. Alt+Left goes back to the workspace before.");
                }
            }
            Command::SelectionForward => self.with_shared(|shared, _| shared.selection.forward()),
            Command::CopyAddress => {
                let text =
                    self.active_document().and_then(Document::view).filter(|v| v.data.recording.addresses().is_known()).and_then(
                        |v| match v.shared.selected()? {
                            Item::Lifetime(id) => {
                                v.data.tables.lifetimes.get(v.data.device(), id).map(|l| Address(l.address).to_string())
                            }
                            Item::Segment(a) | Item::Hole(a) | Item::Unmapped(a) => Some(Address(a).to_string()),
                            Item::Event(e) => v.data.device().events.address.get(e as usize).map(|&a| Address(a).to_string()),
                            Item::Stack(_) | Item::Annotation(_) => None,
                        },
                    );
                match text {
                    Some(text) => self.apply(Action::Copy(text), ctx),
                    None => self.notices.mention("The selection has no address."),
                }
            }
            Command::CopyStack => {
                let view = self.active_document().and_then(Document::view);
                let item = view.and_then(|v| v.shared.selected());
                let text = view.and_then(|v| {
                    let stack = selected_stack(&v.shared, &v.data).or_else(|| segment_stack(v, item?))?;
                    Some(vramscope_core::tables::stack_text(&v.data.recording.stacks, stack))
                });
                match text {
                    Some(text) if !text.is_empty() => self.apply(Action::Copy(text), ctx),
                    _ => self.notices.mention(without_stack(item)),
                }
            }
            Command::Colour(by) => self.apply(Action::SetColourBy(by), ctx),
            Command::Workspace(w) => {
                self.maximised = None;
                if let Some(document) = self.active_document_mut() {
                    document.go_to(w);
                }
            }
            Command::ResetLayout => {
                if let Some(document) = self.active_document_mut() {
                    let w = document.arrangement();
                    document.layouts.reset(w);
                    self.settings.layouts = document.lasting_layouts();
                }
            }
            Command::Show(view) => {
                // A view that has no room beside the others fills the workspace.
                self.maximised = self.hidden.contains(&view).then_some(view);
                self.shown = Some(view);
                if let Some(document) = self.active_document_mut() {
                    let w = document.arrangement();
                    let tree = document.layouts.tree(w);
                    if workspace::find(tree, view).is_none() {
                        document.visitors.push((w, view));
                    }
                    workspace::show(document.layouts.tree(w), w, view);
                }
            }
        }
    }

    /// Shows a view, or closes it when it is in front.
    pub(in crate::app) fn visit(&mut self, view: ViewKind, ctx: &Context) {
        let is_hidden = self.hidden.contains(&view);
        let Some(document) = self.active_document_mut() else { return };
        let w = document.arrangement();
        let tree = document.layouts.tree(w);
        let pane = workspace::find(tree, view);
        if !is_hidden && pane.is_some_and(|pane| tree.active_tiles().contains(&pane)) {
            let before = tree.clone();
            workspace::close(tree, w, view);
            document.remember(Left::Layout(w, Box::new(before)));
            return;
        }
        self.run(Command::Show(view), ctx);
    }

    /// Undoes the last zoom or selection; false when there is none.
    fn undo_seen(&mut self) -> bool {
        let mut went = false;
        self.with_shared(|shared, data| {
            went = shared.zoom_back(data.device());
            if !went && shared.selection.can_go_back() {
                shared.selection.back();
                went = true;
            }
        });
        went
    }

    /// When the device in front did not run out of memory, switches to one that did, at its failure.
    fn show_failed_device(&mut self) -> bool {
        let view = self.active_document().and_then(Document::view).filter(|v| v.data.ooms.is_empty());
        let Some(failed) = view.and_then(|v| v.data.failed_elsewhere()) else { return false };
        self.set_device(failed);
        // A device that was open before may have its cursor elsewhere.
        self.with_shared(|shared, data| {
            if let (Some(&first), false) = (data.ooms.first(), data.ooms.contains(&shared.cursor)) {
                go_to(shared, data, first);
                shared.selection.select(Some(Item::Event(first)));
            }
        });
        true
    }

    fn clear(&mut self) {
        if !matches!(self.overlay, Overlay::None) {
            self.wants_save |= matches!(self.overlay, Overlay::Rules);
            self.overlay = Overlay::None;
            return;
        }
        if self.maximised.take().is_some() {
            return;
        }
        if let Some(Content::Ranks(page)) = self.active_document_mut().map(|document| &mut document.content) {
            page.let_go();
            return;
        }
        self.with_shared(|shared, _| {
            shared.cleared = shared.cleared.wrapping_add(1);
            if shared.range.is_some() {
                shared.range = None;
            } else if !shared.focus_classes.is_empty() {
                shared.focus_classes.clear();
            } else if shared.query.is_some() {
                shared.query = None;
            } else if shared.selected().is_some() || shared.own.is_some() {
                // The visible window stays. A user who zoomed in and clears the selection does not want to lose the place.
                shared.selection.select(None);
                shared.own = None;
            } else {
                shared.fitted = shared.fitted.wrapping_add(1);
            }
        });
    }
}

/// The stack of the request for which a selected segment was reserved.
fn segment_stack(view: &DeviceView, item: Item) -> Option<StackId> {
    let Item::Segment(address) = item else { return None };
    let tables = &view.data.tables;
    let state = tables.states.at(view.data.device(), &tables.lifetimes, view.shared.cursor);
    Some(state.segments.get(state.segment_at(address)?)?.stack)
}

/// The message when there is no stack to copy.
fn without_stack(item: Option<Item>) -> &'static str {
    match item {
        Some(Item::Hole(_) | Item::Unmapped(_)) => "Free memory has no stack. Select a block or a segment.",
        Some(Item::Segment(_)) => "No stack was recorded where this segment was taken. Copy address copies where it lies.",
        _ => "The selection has no recorded stack.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_sample(ctx: &Context) -> App {
        let mut app = App::synchronous(ctx);
        app.open_paths([crate::app::data::samples::path("leak.pickle")]);
        app.logic(ctx);
        app
    }

    /// The workspace in front, and its selection.
    fn front(app: &App) -> Option<(Workspace, Option<Item>)> {
        app.active_document().map(|d| (d.workspace, d.view().and_then(|v| v.shared.selected())))
    }

    #[test]
    fn back_returns_from_a_workspace_and_before_that_from_what_was_selected_in_it() {
        let ctx = Context::default();
        let mut app = with_sample(&ctx);
        app.apply(Action::Select(Some(Item::Event(1))), &ctx);
        app.run(Command::Workspace(Workspace::Autopsy), &ctx);
        app.run(Command::SelectionBack, &ctx);
        assert_eq!(front(&app), Some((Workspace::Overview, Some(Item::Event(1)))), "the workspace changed last");
        app.run(Command::Workspace(Workspace::Flame), &ctx);
        app.apply(Action::Select(Some(Item::Event(2))), &ctx);
        app.run(Command::SelectionBack, &ctx);
        assert_eq!(front(&app), Some((Workspace::Flame, Some(Item::Event(1)))), "the selection changed last");
        app.run(Command::SelectionBack, &ctx);
        assert_eq!(front(&app), Some((Workspace::Overview, Some(Item::Event(1)))));
        app.run(Command::SelectionBack, &ctx);
        assert_eq!(front(&app).map(|f| f.0), Some(Workspace::Overview));
    }

    #[test]
    fn undo_stays_in_the_workspace() {
        let ctx = Context::default();
        let mut app = with_sample(&ctx);
        app.apply(Action::Select(Some(Item::Event(1))), &ctx);
        app.apply(Action::Select(Some(Item::Event(2))), &ctx);
        app.run(Command::Workspace(Workspace::Plan), &ctx);
        app.run(Command::Undo, &ctx);
        assert_eq!(front(&app), Some((Workspace::Plan, Some(Item::Event(2)))), "Plan shows no selection, so none is undone");
        assert!(app.notices.mentioned().is_some_and(|(said, _)| said.contains("Alt+Left")));
        app.run(Command::Workspace(Workspace::Flame), &ctx);
        app.run(Command::Undo, &ctx);
        assert_eq!(front(&app), Some((Workspace::Flame, Some(Item::Event(1)))));
    }

    #[test]
    fn a_closed_view_comes_back_with_undo() {
        let ctx = Context::default();
        let mut app = with_sample(&ctx);
        let shows = |app: &App| app.active_document().is_some_and(|d| d.layouts.shows(d.arrangement(), ViewKind::Leaks));
        app.visit(ViewKind::Leaks, &ctx);
        assert!(shows(&app));
        app.visit(ViewKind::Leaks, &ctx);
        assert!(!shows(&app));
        app.run(Command::Undo, &ctx);
        assert!(shows(&app));
    }

    #[test]
    fn a_closed_tab_is_opened_again() {
        let ctx = Context::default();
        let mut app = with_sample(&ctx);
        let path = app.active_document().and_then(|d| d.path.clone());
        assert!(path.is_some());
        app.run(Command::Close, &ctx);
        assert!(app.active_document().is_none());
        app.run(Command::Reopen, &ctx);
        assert_eq!(app.active_document().and_then(|d| d.path.clone()), path);
        app.run(Command::Reopen, &ctx);
        assert!(app.notices.mentioned().is_some(), "nothing else was closed");
    }

    #[test]
    fn a_segment_has_the_stack_of_the_request_that_took_it() {
        let ctx = Context::default();
        let mut app = App::synchronous(&ctx);
        app.open_paths([crate::app::data::samples::path("gpt_train.pickle")]);
        app.logic(&ctx);
        let view = app.active_document().and_then(Document::view).unwrap();
        let (device, tables) = (view.data.device(), &view.data.tables);
        let state = tables.states.at(device, &tables.lifetimes, view.shared.cursor);
        let taken = state.segments.iter().find(|s| s.stack.is_some()).unwrap();
        assert_eq!(segment_stack(view, Item::Segment(taken.address)), Some(taken.stack));
        assert_eq!(segment_stack(view, Item::Hole(taken.address)), None);
        assert!(without_stack(Some(Item::Hole(taken.address))).starts_with("Free memory"));
    }
}
