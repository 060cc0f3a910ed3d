//! The tour of the window.

use egui::{Context, Key, Modifiers};

use super::{App, Overlay};
use crate::app::dialogs::tour::{SAMPLE, STEPS, Tour, Turn};
use crate::app::state::{Action, Command};
use crate::app::widgets::{keys, lets_go_of_drawing};

/// The offer disappears when a recording is opened. The Help menu has the tour too.
pub(super) const TOUR_OFFER: &str = "New here? Five steps on a sample show what the window tells.";

impl App {
    /// Offers the tour once. Later it is in the Help menu.
    pub(in crate::app) fn offer_tour(&mut self) {
        if !std::mem::replace(&mut self.settings.tour_was_offered, true) {
            self.wants_save = true;
            self.notices.offer(TOUR_OFFER, "Take the tour", Action::Run(Command::Tour));
        }
    }

    pub(in crate::app) fn start_tour(&mut self) {
        let Some(sample) = self.samples.iter().find(|s| s.name == SAMPLE).copied() else { return };
        self.settings.tour_was_offered = true;
        self.overlay = Overlay::None;
        self.open_sample(sample);
        if let Some(document) = self.documents.front() {
            self.tour = Some(Tour { document: document.id, step: 0, is_pointing: false, takes_keyboard: true });
            self.show_step();
        }
    }

    /// The current step, from 0, and whether its target is on screen.
    pub fn tour(&self) -> Option<(usize, bool)> {
        self.tour.as_ref().map(|tour| (tour.step, tour.is_pointing))
    }

    /// Shows the workspace and view of the current step.
    fn show_step(&mut self) {
        let Some(tour) = &mut self.tour else { return };
        tour.takes_keyboard = true;
        let Some(step) = STEPS.get(tour.step) else { return };
        self.actions.run(Command::Workspace(step.workspace));
        self.actions.run(Command::Show(step.view));
    }

    pub(in crate::app) fn turn_tour(&mut self, turn: Turn) {
        let Some(tour) = &mut self.tour else { return };
        match turn {
            Turn::Back if tour.step == 0 => return,
            Turn::Back => tour.step -= 1,
            Turn::Next if tour.step + 1 < STEPS.len() => tour.step += 1,
            Turn::Next | Turn::Close => {
                self.tour = None;
                return;
            }
        }
        self.show_step();
    }

    /// Ends the tour when its sample is left. Handles the tour's keys before views see them.
    pub(in crate::app) fn poll_tour(&mut self, ctx: &Context) {
        let Some(tour) = &self.tour else { return };
        if self.documents.front().is_none_or(|d| d.id != tour.document) {
            self.tour = None;
            return;
        }
        let is_typing = ctx.text_edit_focused() || keys::are_taken(ctx) || egui::Popup::is_any_open(ctx);
        if is_typing || !matches!(self.overlay, Overlay::None) {
            return;
        }
        let pressed = |key| ctx.input_mut(|i| i.consume_key(Modifiers::NONE, key));
        let has_focus = ctx.memory(|m| m.focused().is_some());
        if pressed(Key::ArrowRight) || (!has_focus && pressed(Key::Enter)) {
            self.turn_tour(Turn::Next);
        } else if pressed(Key::ArrowLeft) {
            self.turn_tour(Turn::Back);
        } else if pressed(Key::Escape) && !lets_go_of_drawing(ctx) {
            self.turn_tour(Turn::Close);
        }
    }
}
