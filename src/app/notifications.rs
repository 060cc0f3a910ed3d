//! Sentences shown once, at the bottom right, until they are read or dismissed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use egui::{Align2, Id, Sense, Ui};

use super::action::{Action, Actions};
use super::theme::Tokens;
use super::widgets::button::Push;
use super::widgets::icons::Icon;
use crate::units::counted;

struct Notice {
    text: String,
    /// Buttons and what they do.
    offers: Vec<(&'static str, Action)>,
    /// Recordings that appeared and were not opened yet: all of them in one notice.
    files: Vec<PathBuf>,
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
        self.push(text, Vec::new(), Vec::new());
    }

    fn push(&mut self, text: String, offers: Vec<(&'static str, Action)>, files: Vec<PathBuf>) {
        self.notices.push(Notice { text, offers, files, is_trouble: false, since: Instant::now() });
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
        self.push(text, vec![(button, action)], Vec::new());
    }

    /// Offers a recording that appeared, with those that were offered before and neither opened nor declined: a job of a hundred ranks is
    /// one offer.
    pub fn offer_recording(&mut self, path: PathBuf) {
        let before = self.notices.iter().position(|n| !n.files.is_empty()).map(|at| self.notices.remove(at).files);
        let mut files = before.unwrap_or_default();
        files.retain(|known| *known != path);
        files.push(path.clone());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let open = Action::Open(vec![path]);
        let (text, offers) = match files.len() as u64 {
            1 => (format!("New recording: {name}"), vec![("Open", open)]),
            n => {
                let text = format!("{}, the last {name}", counted(n, "new recording", "new recordings"));
                (text, vec![("Open side by side", Action::OpenRanks(files.clone())), ("Open the last", open)])
            }
        };
        self.push(text, offers, files);
    }

    /// A recording was opened: it is no longer offered.
    pub fn forget_recording(&mut self, path: &Path) {
        let Some(at) = self.notices.iter().position(|n| n.files.iter().any(|known| known == path)) else { return };
        for other in self.notices.remove(at).files.into_iter().filter(|other| other != path) {
            self.offer_recording(other);
        }
    }

    /// The sentences on screen.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.notices.iter().map(|n| n.text.as_str())
    }

    /// Draws them and drops the old ones.
    pub fn ui(&mut self, ui: &Ui, tokens: &Tokens, actions: &Actions) {
        self.notices.retain(|n| !n.offers.is_empty() || n.since.elapsed() < SHOWN_FOR);
        if self.notices.is_empty() {
            return;
        }
        ui.ctx().request_repaint_after(Duration::from_secs(1));
        let mut dismissed = None;
        let area = egui::Area::new(Id::unique("notices")).anchor(Align2::RIGHT_BOTTOM, [-16.0, -40.0]);
        // Without fading: after a picture was taken they are simply there again.
        area.fade_in(false).show(ui.ctx(), |ui| {
            for (i, notice) in self.notices.iter().enumerate() {
                let frame = egui::Frame::new()
                    .fill(tokens.s3)
                    .stroke(egui::Stroke::new(1.0, if notice.is_trouble { tokens.amber } else { tokens.line2 }))
                    .corner_radius(6)
                    .inner_margin(egui::Margin::symmetric(12, 8));
                let inner = frame.show(ui, |ui| {
                    ui.set_width(396.0);
                    ui.horizontal_top(|ui| {
                        if notice.is_trouble {
                            let (place, _) = ui.allocate_exact_size(egui::vec2(16.0, 16.0), Sense::hover());
                            Icon::Warning.paint(ui.painter(), place.center(), 16.0, tokens.amber);
                        }
                        ui.add(egui::Label::new(egui::RichText::new(&notice.text).color(tokens.text1)).wrap());
                    });
                    if notice.offers.is_empty() {
                        return;
                    }
                    ui.add_space(6.0);
                    ui.horizontal(|ui| {
                        for (at, (button, action)) in notice.offers.iter().enumerate() {
                            let push = if at == 0 { Push::primary(button) } else { Push::outlined(button) };
                            if push.show(ui).clicked() {
                                actions.send(action.clone());
                                dismissed = Some(i);
                            }
                        }
                        if Push::outlined("Not now").show(ui).clicked() {
                            dismissed = Some(i);
                        }
                    });
                });
                // Over an offer's buttons a click anywhere would take theirs.
                if notice.offers.is_empty() && inner.response.interact(Sense::click()).on_hover_text("Click to dismiss").clicked()
                {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_recordings_at_once_are_one_offer() {
        let mut notices = Notifications::default();
        notices.say("something else");
        for i in 0..100 {
            notices.offer_recording(PathBuf::from(format!("run/mem_rank{i}.pickle")));
        }
        notices.offer_recording(PathBuf::from("run/mem_rank3.pickle"));
        let texts: Vec<&str> = notices.texts().collect();
        assert_eq!(texts, ["something else", "100\u{a0}new recordings, the last mem_rank3.pickle"]);
        let last = notices.notices.last().unwrap();
        assert_eq!(last.offers.iter().map(|o| o.0).collect::<Vec<_>>(), ["Open side by side", "Open the last"]);
        for i in (0..100).filter(|&i| i != 7) {
            notices.forget_recording(Path::new(&format!("run/mem_rank{i}.pickle")));
        }
        assert_eq!(notices.texts().last(), Some("New recording: mem_rank7.pickle"));
        notices.forget_recording(Path::new("run/mem_rank7.pickle"));
        assert_eq!(notices.texts().count(), 1);
    }
}
