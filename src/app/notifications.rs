//! Sentences shown once, at the bottom right, until they are read or dismissed.

use std::time::{Duration, Instant};

use egui::{Align2, Id, Sense, Ui};

use super::action::{Action, Actions};
use super::theme::Tokens;
use super::widgets::button::Push;
use super::widgets::icons::Icon;

struct Notice {
    text: String,
    /// A button and what it does.
    offer: Option<(&'static str, Action)>,
    /// Something did not work.
    is_trouble: bool,
    since: Instant,
}

/// Notices on screen.
#[derive(Default)]
pub struct Notifications {
    notices: Vec<Notice>,
}

/// Long enough to read a sentence twice.
const SHOWN_FOR: Duration = Duration::from_secs(12);

impl Notifications {
    /// Shows a sentence; the same sentence twice only starts its time again.
    pub fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.notices.retain(|n| n.text != text);
        self.notices.push(Notice { text, offer: None, is_trouble: false, since: Instant::now() });
    }

    /// Shows why something did not work, marked so that it is not taken for good news.
    pub fn complain(&mut self, text: impl Into<String>) {
        self.say(text);
        if let Some(notice) = self.notices.last_mut() {
            notice.is_trouble = true;
        }
    }

    /// Shows a sentence with a button. It stays until one of its buttons is clicked.
    pub fn offer(&mut self, text: impl Into<String>, button: &'static str, action: Action) {
        let text = text.into();
        self.notices.retain(|n| n.text != text);
        self.notices.push(Notice { text, offer: Some((button, action)), is_trouble: false, since: Instant::now() });
    }

    /// The sentences on screen.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.notices.iter().map(|n| n.text.as_str())
    }

    /// Draws them and drops the old ones.
    pub fn ui(&mut self, ui: &Ui, tokens: &Tokens, actions: &Actions) {
        self.notices.retain(|n| n.offer.is_some() || n.since.elapsed() < SHOWN_FOR);
        if self.notices.is_empty() {
            return;
        }
        ui.ctx().request_repaint_after(Duration::from_secs(1));
        let mut dismissed = None;
        egui::Area::new(Id::unique("notices")).anchor(Align2::RIGHT_BOTTOM, [-16.0, -40.0]).show(ui.ctx(), |ui| {
            for (i, notice) in self.notices.iter().enumerate() {
                let frame = egui::Frame::new()
                    .fill(tokens.s3)
                    .stroke(egui::Stroke::new(1.0, if notice.is_trouble { tokens.amber } else { tokens.line2 }))
                    .corner_radius(6)
                    .inner_margin(egui::Margin::symmetric(12, 8));
                let inner = frame.show(ui, |ui| {
                    ui.set_max_width(420.0);
                    ui.horizontal_top(|ui| {
                        if notice.is_trouble {
                            let (place, _) = ui.allocate_exact_size(egui::vec2(16.0, 16.0), Sense::hover());
                            Icon::Warning.paint(ui.painter(), place.center(), 16.0, tokens.amber);
                        }
                        ui.add(egui::Label::new(egui::RichText::new(&notice.text).color(tokens.text1)).wrap());
                    });
                    let Some((button, action)) = &notice.offer else { return };
                    ui.add_space(6.0);
                    ui.horizontal(|ui| {
                        let wanted = Push::primary(button).show(ui).clicked();
                        if wanted {
                            actions.send(action.clone());
                        }
                        if wanted || Push::outlined("Not now").show(ui).clicked() {
                            dismissed = Some(i);
                        }
                    });
                });
                // Over an offer's buttons a click anywhere would take theirs.
                if notice.offer.is_none() && inner.response.interact(Sense::click()).on_hover_text("Click to dismiss").clicked() {
                    dismissed = Some(i);
                }
                ui.add_space(8.0);
            }
        });
        if let Some(i) = dismissed {
            self.notices.remove(i);
        }
    }
}
