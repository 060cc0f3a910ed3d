//! Draws the open dialog over the window, and acts on its answer.

use egui::Ui;

use crate::app::dialogs::choosing::{field, pair};
use crate::app::dialogs::{Outcome, explain, guide, help, report, rules, settings, sources, tour};
use crate::app::documents::document::Document;
use crate::app::palette;
use crate::app::platform::editor::place::PathPrefix;
use crate::app::platform::editor::{ThisMachine, found};
use crate::app::state::{Action, Choosing, Command, Other};
use crate::app::theme::Tokens;
use crate::app::window::{App, Overlay};

/// Draws the open dialog. It stays unless the user closes it or it opens another one.
pub(super) fn draw(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let mut overlay = std::mem::replace(&mut app.overlay, Overlay::None);
    if stays(app, &mut overlay, ui, tokens) && matches!(app.overlay, Overlay::None) {
        app.overlay = overlay;
    }
}

/// Draws the card of the tour, unless a dialog is open.
pub(super) fn draw_tour(app: &mut App, ui: &Ui, tokens: &Tokens) {
    if matches!(app.overlay, Overlay::None)
        && !app.pictures.is_taking()
        && let Some(tour) = &mut app.tour
        && let Some(turn) = tour::draw(tour, ui.ctx(), tokens)
    {
        app.turn_tour(turn);
    }
}

fn stays(app: &mut App, overlay: &mut Overlay, ui: &mut Ui, t: &Tokens) -> bool {
    match overlay {
        Overlay::None => false,
        Overlay::Palette(open) => palette_stays(app, open, ui, t),
        Overlay::OpenPath(asking) => match field::draw(asking, ui, t, &app.jobs) {
            Outcome::Stays => true,
            Outcome::Closed => false,
            Outcome::Done(path) => {
                app.actions.send(asking.purpose.action(path));
                false
            }
        },
        Overlay::Explain(explainer) => !explain::draw(explainer, ui, t, &app.actions),
        Overlay::Pair => pair_stays(app, ui, t),
        Overlay::Help => !help::draw(ui, t),
        Overlay::Guide(reading) => !guide::draw(reading, ui, t),
        Overlay::Report => match report::draw(&mut app.report, ui, t) {
            Outcome::Stays => true,
            Outcome::Closed => false,
            Outcome::Done(()) => {
                app.open_dialog(Choosing::Report);
                false
            }
        },
        Overlay::Settings => {
            let editors = app.editors.get(&app.jobs, "editors", &(), |_| Some(found(&ThisMachine))).value;
            let is_closed = settings::draw(&mut app.settings, editors.as_deref(), ui, t);
            if is_closed {
                app.settings.source_folders.retain(|prefix| *prefix != PathPrefix::default());
                app.wants_save = true;
            }
            !is_closed
        }
        Overlay::Rules => {
            let view = app.active_document().and_then(Document::view);
            let tallies = view.and_then(|v| v.roles_by(&app.settings.category_rules)).map(|roles| roles.by_rule.clone());
            let is_closed = rules::draw(&mut app.settings.category_rules, tallies.as_deref(), ui, t);
            app.wants_save |= is_closed;
            !is_closed
        }
        Overlay::Source(question) => source_stays(app, question, ui, t),
    }
}

fn palette_stays(app: &mut App, open: &mut palette::Palette, ui: &mut Ui, t: &Tokens) -> bool {
    let asked = palette::Asking {
        front: app.active_document(),
        recents: &app.settings.recents,
        samples: &app.samples,
        is_enabled: &|command| app.is_enabled(command),
        jobs: &app.jobs,
    };
    match palette::draw(open, &asked, ui, t) {
        Outcome::Stays => true,
        Outcome::Closed => false,
        Outcome::Done(actions) => {
            for action in actions {
                app.actions.send(action);
            }
            false
        }
    }
}

fn pair_stays(app: &mut App, ui: &mut Ui, t: &Tokens) -> bool {
    let tabs = app.beside();
    let front = app.active_document().map(|d| d.title.clone()).unwrap_or_default();
    match pair::draw(&front, &tabs, ui, t) {
        Outcome::Stays => return true,
        Outcome::Closed => {}
        Outcome::Done(Some(id)) => {
            let ctx = ui.ctx().clone();
            app.compare_front(Other::Document(id), &ctx);
        }
        Outcome::Done(None) => app.open_dialog(Choosing::First),
    }
    false
}

fn source_stays(app: &mut App, question: &mut sources::Question, ui: &mut Ui, t: &Tokens) -> bool {
    match sources::draw(question, &app.sources, ui, t) {
        None => return true,
        Some(sources::Answer::Close) => {}
        Some(sources::Answer::Editor(command)) => {
            app.settings.editor = command.to_owned();
            app.open_asked();
        }
        Some(sources::Answer::OtherFolder) => app.open_dialog(Choosing::Sources),
        Some(sources::Answer::Prefix(prefix)) => {
            app.settings.source_folders.retain(|known| known.theirs != prefix.theirs);
            app.settings.source_folders.push(prefix);
            app.open_asked();
        }
        Some(sources::Answer::Copy) => app.actions.send(Action::Copy(app.sources.place())),
        Some(sources::Answer::Settings) => app.actions.run(Command::Settings),
    }
    false
}
