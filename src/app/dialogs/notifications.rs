//! Notices above the status bar, shown until they are read or dismissed. At most three are visible, newest last; older ones are
//! counted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use egui::{Align, Align2, Area, Id, Layout, Order, Sense, Ui, vec2};

use crate::app::state::{Action, Actions};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label::without_middle_letters;
use crate::app::widgets::{Icon, Push, icon_button};
use vramscope_core::compare::ranks::rank_of_name;
use vramscope_core::units::counted;

struct Notice {
    text: String,
    offers: Vec<(String, Action)>,
    /// The names and paths of new recordings that were not opened yet. One notice offers all of them.
    files: Vec<(String, PathBuf)>,
    /// The notice needs an answer and does not disappear by itself.
    stays: bool,
    is_trouble: bool,
    /// When it became visible. While a notice waits, its time does not run.
    since: Option<Instant>,
}

impl Notice {
    fn is_over(&self) -> bool {
        let shown_for = if self.is_trouble { TROUBLE_FOR } else { SHOWN_FOR };
        !self.stays && self.since.is_some_and(|since| since.elapsed() >= shown_for)
    }
}

#[derive(Default)]
pub struct Notifications {
    notices: Vec<Notice>,
    /// A short text in the status bar, and until when. Used as the answer to a key, because it covers nothing.
    brief: Option<(String, Instant)>,
}

/// Enough to read a sentence. Failures are shown longer.
const SHOWN_FOR: Duration = Duration::from_secs(6);
const TROUBLE_FOR: Duration = Duration::from_secs(10);
const BRIEF_FOR: Duration = Duration::from_secs(4);

/// Most notices visible at once, because they cover the foot of the views.
const MOST: usize = 3;

/// Most new recordings that each get a button.
const NAMED: usize = 3;

impl Notifications {
    /// Shows a sentence. Repeating a sentence restarts its time.
    pub fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.notices.retain(|n| n.text != text);
        self.push(text, Vec::new(), Vec::new());
    }

    /// Shows a short text in the status bar: what a key did or why it did nothing.
    pub fn mention(&mut self, text: impl Into<String>) {
        self.brief = Some((text.into(), Instant::now() + BRIEF_FOR));
    }

    /// The short text in the status bar and its remaining time.
    pub fn mentioned(&self) -> Option<(&str, Duration)> {
        let (text, until) = self.brief.as_ref()?;
        let left = until.checked_duration_since(Instant::now())?;
        Some((text, left))
    }

    fn push(&mut self, text: String, offers: Vec<(String, Action)>, files: Vec<(String, PathBuf)>) {
        let stays = !offers.is_empty();
        self.notices.push(Notice { text, offers, files, stays, is_trouble: false, since: None });
    }

    /// Reports a failure, marked as such.
    pub fn complain(&mut self, text: impl Into<String>) {
        self.say(text);
        if let Some(notice) = self.notices.last_mut() {
            notice.is_trouble = true;
        }
    }

    /// Shows a sentence with a button. It stays until the button is clicked or the notice is closed.
    pub fn offer(&mut self, text: impl Into<String>, button: &str, action: Action) {
        self.offer_one_of(text, [(button, action)]);
    }

    /// The same with several buttons, the first the one that most people want.
    pub fn offer_one_of<const N: usize>(&mut self, text: impl Into<String>, offers: [(&str, Action); N]) {
        let text = text.into();
        self.notices.retain(|n| n.text != text);
        self.push(text, offers.map(|(button, action)| (button.to_owned(), action)).into(), Vec::new());
    }

    /// Like [`offer`](Self::offer), for less important things: the notice disappears by itself.
    pub fn suggest(&mut self, text: impl Into<String>, button: &str, action: Action) {
        self.offer(text, button, action);
        if let Some(notice) = self.notices.last_mut() {
            notice.stays = false;
        }
    }

    /// Offers a new recording, together with all earlier ones that were neither opened nor declined, so that a job of a hundred
    /// ranks is one notice. `name` distinguishes it from the others.
    pub fn offer_recording(&mut self, name: &str, path: PathBuf) {
        let before = self.notices.iter().position(|n| !n.files.is_empty()).map(|at| self.notices.remove(at).files);
        let mut files = before.unwrap_or_default();
        files.retain(|(_, known)| *known != path);
        files.push((name.to_owned(), path.clone()));
        let open = Action::Open(vec![path]);
        let (text, offers) = match files.len() as u64 {
            1 => (format!("New recording: {name}"), vec![("Open".to_owned(), open)]),
            n => {
                let text = format!("{}, the last {name}", counted(n, "new recording", "new recordings"));
                let all = files.iter().map(|(_, path)| path.clone()).collect();
                let beside = ("Open side by side".to_owned(), Action::OpenRanks(all));
                let one = |(name, path): &(String, PathBuf)| {
                    (format!("Open {}", without_middle_letters(name, 16, 17)), Action::Open(vec![path.clone()]))
                };
                // A snapshot and a timeline of one run are not ranks, so each gets its own button.
                let are_ranks = files.iter().all(|(name, _)| rank_of_name(name).is_some());
                let mut offers = match n as usize {
                    ..=NAMED => files.iter().map(one).collect(),
                    _ => vec![("Open the last".to_owned(), open)],
                };
                let at = if are_ranks || files.len() > NAMED { 0 } else { offers.len() };
                offers.insert(at, beside);
                (text, offers)
            }
        };
        self.push(text, offers, files);
    }

    /// Removes a notice that is outdated.
    pub fn forget(&mut self, text: &str) {
        self.notices.retain(|n| n.text != text);
    }

    pub fn forget_recording(&mut self, path: &Path) {
        let Some(at) = self.notices.iter().position(|n| n.files.iter().any(|(_, known)| known == path)) else { return };
        for (name, other) in self.notices.remove(at).files.into_iter().filter(|(_, other)| other != path) {
            self.offer_recording(&name, other);
        }
    }

    /// The visible notices, the waiting ones, and the short text in the status bar.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.notices.iter().map(|n| n.text.as_str()).chain(self.mentioned().map(|m| m.0))
    }

    /// Index of the first visible notice; those before it wait.
    fn first_shown(&self) -> usize {
        self.notices.len().saturating_sub(MOST)
    }

    /// Draws the notices over the foot of the views, so that these do not move, and removes expired ones.
    pub fn ui(&mut self, ui: &mut Ui, tokens: &Tokens, actions: &Actions) {
        self.notices.retain(|n| !n.is_over());
        if self.notices.is_empty() {
            return;
        }
        ui.request_repaint_after(Duration::from_secs(1));
        let first = self.first_shown();
        let (mut closed, mut all_closed) = (None, false);
        let frame = egui::Frame::new().fill(tokens.s3).inner_margin(egui::Margin::symmetric(12, 4));
        let room = ui.available_rect_before_wrap();
        let area = Area::new(Id::unique("notices")).pivot(Align2::LEFT_BOTTOM).fixed_pos(room.left_bottom()).fade_in(false);
        let shown = area.order(Order::Middle).constrain(false).show(ui.ctx(), |ui| {
            frame.show(ui, |ui| {
                ui.set_width(room.width() - 24.0);
                if first > 0 {
                    line(ui, |ui| {
                        all_closed = Push::plain("Close all").small().show(ui).clicked();
                        ui.label(Type::Caption.text(counted(first as u64, "more", "more")).color(tokens.text2));
                    });
                }
                for (i, notice) in self.notices.iter_mut().enumerate().skip(first) {
                    notice.since.get_or_insert_with(Instant::now);
                    if ui.push_id(i, |ui| notice.ui(ui, tokens, actions)).inner {
                        closed = Some(i);
                    }
                }
            });
        });
        let drawn = shown.response.rect;
        let above = ui.ctx().layer_painter(shown.response.layer_id);
        above.hline(drawn.x_range(), drawn.top() + 0.5, egui::Stroke::new(1.0, tokens.line2));
        // While the pointer is on the notices, their time does not run.
        if ui.pointer_hover_pos().is_some_and(|at| drawn.contains(at)) {
            self.notices.iter_mut().filter(|n| n.since.is_some()).for_each(|n| n.since = Some(Instant::now()));
        }
        if all_closed {
            self.notices.clear();
        } else if let Some(i) = closed {
            self.notices.remove(i);
        }
    }
}

/// One line of a notice, laid out from its right end.
fn line(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    ui.horizontal(|ui| {
        ui.with_layout(Layout::right_to_left(Align::Center), contents);
    });
}

impl Notice {
    /// True when it was closed or one of its buttons was clicked.
    fn ui(&self, ui: &mut Ui, tokens: &Tokens, actions: &Actions) -> bool {
        let mut is_done = false;
        line(ui, |ui| {
            is_done = icon_button(ui, Icon::Close, "Close this notice").clicked();
            for (at, (button, action)) in self.offers.iter().enumerate().rev() {
                let push = if at == 0 { Push::primary(button) } else { Push::outlined(button) };
                if push.small().show(ui).clicked() {
                    actions.send(action.clone());
                    is_done = true;
                }
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                if self.is_trouble {
                    let (place, _) = ui.allocate_exact_size(vec2(16.0, 20.0), Sense::hover());
                    Icon::Warning.paint(ui.painter(), place.center(), 16.0, tokens.amber);
                }
                ui.add(egui::Label::new(Type::Body.text(&self.text).color(tokens.text1)).wrap());
            });
        });
        is_done
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
            notices.offer_recording(&format!("mem_rank{i}.pickle"), PathBuf::from(format!("run/mem_rank{i}.pickle")));
        }
        notices.offer_recording("mem_rank3.pickle", PathBuf::from("run/mem_rank3.pickle"));
        let texts: Vec<&str> = notices.texts().collect();
        assert_eq!(texts, ["something else", "100\u{a0}new recordings, the last mem_rank3.pickle"]);
        let last = notices.notices.last().unwrap();
        assert_eq!(last.offers.iter().map(|o| o.0.as_str()).collect::<Vec<_>>(), ["Open side by side", "Open the last"]);
        for i in (0..100).filter(|&i| i != 7) {
            notices.forget_recording(Path::new(&format!("run/mem_rank{i}.pickle")));
        }
        assert_eq!(notices.texts().last(), Some("New recording: mem_rank7.pickle"));
        notices.forget_recording(Path::new("run/mem_rank7.pickle"));
        assert_eq!(notices.texts().count(), 1);
    }

    #[test]
    fn a_few_recordings_are_offered_by_name() {
        let offered = |names: &[&str]| {
            let mut notices = Notifications::default();
            names.iter().for_each(|name| notices.offer_recording(name, PathBuf::from(name)));
            notices.notices.last().unwrap().offers.iter().map(|o| o.0.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            offered(&["snap.pickle", "run.memory_timeline.json"]),
            ["Open snap.pickle", "Open run.memory_timeline.json", "Open side by side"]
        );
        assert_eq!(offered(&["m_rank0.pickle", "m_rank1.pickle"])[0], "Open side by side");
        assert_eq!(without_middle_letters("a_very_long_name_of_a_snapshot_of_step_100.pickle", 16, 17).chars().count(), 34);
    }

    #[test]
    fn three_are_on_screen_and_the_others_keep_their_time() {
        let mut notices = Notifications::default();
        let sentences = ["one", "two", "three", "four", "five"];
        sentences.iter().for_each(|sentence| notices.say(*sentence));
        let ctx = egui::Context::default();
        crate::app::theme::install(&ctx);
        let mut drawn = Vec::new();
        let mut output = ctx.run_ui(egui::RawInput::default(), |ui| {
            notices.ui(ui, Tokens::of(ui.ctx()), &Actions::channel().0);
            drawn = notices.notices.iter().map(|n| n.since.is_some()).collect();
        });
        // Nothing is painted in this test.
        output.textures_delta.clear();
        assert_eq!(drawn, [false, false, true, true, true], "the newest are shown, the newest last");
        notices.notices.drain(2..);
        assert_eq!((notices.first_shown(), notices.texts().count()), (0, 2), "then those that waited");
        assert!(!notices.notices[0].is_over());
    }
}
