//! The field for a query: shows errors with their position, and completions.

use egui::text::{CCursor, CCursorRange};
use egui::{Align2, Area, Id, Key, Modifiers, Order, Rect, Sense, Ui, pos2, vec2};

use super::query_help as help;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, Field, Icon, icon_button, label, pane, row, told_at};
use vramscope_core::query::{Completion, Example, Query, QueryError, Vocabulary, complete};

/// Height of the strip with the field.
pub const STRIP: f32 = 32.0;
/// Seconds without typing before an error is shown.
const PAUSE: f64 = 0.7;
/// Most completions that are visible at once.
const OFFERED: usize = 8;

#[derive(Default)]
pub struct QueryField {
    /// The query as typed, also when it does not parse.
    pub text: String,
    wrong: Option<QueryError>,
    typed_at: f64,
    /// The completion chosen with the arrow keys; none until an arrow is pressed.
    chosen: Option<usize>,
    /// The completions of the last frame, which the keys of this frame refer to.
    offered: Vec<Completion>,
    /// An arrow key asked for completions after a complete term.
    wants_more: bool,
    id: Option<Id>,
    /// Tab came in the same frame as letters.
    is_tab_waiting: bool,
    /// Height of the error message in the last frame. The completions go below it.
    told: f32,
}

impl QueryField {
    pub fn set(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.wrong = Query::parse(text).err();
    }

    /// Shows the strip. Returns the text when it changed and parses. `asked` is the field's accessible name, its hint, and the
    /// name of the button that clears it; `known` are words of the recording for completion; `examples` are example queries.
    /// `in_force` is the query that stays applied while the typed one does not parse: its terms without the wrong one.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        asked: (&str, &str, &str),
        known: Vocabulary<'_>,
        examples: Option<&[Example]>,
        in_force: Option<&str>,
    ) -> Option<String> {
        let t = Tokens::of(ui);
        let completed = self.take_keys(ui);
        let strip = row::line(ui, STRIP);
        let inner = strip.shrink2(vec2(12.0, 5.0));
        let mut child = pane::child_from_left(ui, inner, "query");
        let clear = if self.text.is_empty() { 0.0 } else { 28.0 };
        let field = Field::new(asked.0)
            .hint(asked.1)
            .icon(Icon::Search)
            .query()
            .mono()
            .width((inner.width() - clear - 28.0).max(40.0))
            .invalid(self.wrong.is_some());
        let response = field.show(&mut child, &mut self.text);
        self.id = Some(response.id);
        let is_cleared = clear > 0.0 && icon_button(&mut child, Icon::Close, asked.2).clicked();
        if is_cleared {
            self.text.clear();
        }
        let help = icon_button(&mut child, Icon::Help, "What can be asked, with examples from this recording");
        let asked = help::show(&help, examples);
        if let Some(text) = &asked {
            self.set(text);
        }
        let has_changed = asked.is_some() || response.changed() || is_cleared || completed;
        if has_changed {
            self.typed_at = ui.input(|i| i.time);
            self.chosen = None;
            self.wrong = Query::parse(&self.text).err();
        }
        if response.has_focus() {
            // Tab takes a completion and must not leave the field.
            let filter = egui::EventFilter { tab: true, horizontal_arrows: true, vertical_arrows: true, escape: false };
            let caret = egui::TextEdit::load_state(ui.ctx(), response.id).and_then(|s| s.cursor.char_range());
            let byte = caret.map_or(self.text.len(), |range| byte_of(&self.text, range.primary.index));
            // After a complete term, completions appear only on an arrow key, because the list would cover the rows.
            let is_between = !self.text.trim().is_empty()
                && self.text.get(..byte).is_none_or(|t| t.is_empty() || t.ends_with(' ') || is_whole(t));
            self.wants_more &= is_between;
            let asks = ui.input_mut(|i| is_between && !self.wants_more && i.consume_key(Modifiers::NONE, Key::ArrowDown));
            self.wants_more |= asks;
            self.offered = if is_between && !self.wants_more { Vec::new() } else { complete(&self.text, byte, known) };
            self.offered.truncate(OFFERED);
            if !self.offered.is_empty() {
                ui.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
            }
            if let Some(clicked) = self.completions_ui(ui, t, inner) {
                self.accept(ui, clicked);
                self.wrong = Query::parse(&self.text).err();
                return self.wrong.is_none().then(|| self.text.clone());
            }
        } else {
            self.offered.clear();
        }
        let rest = ui.input(|i| i.time) - self.typed_at;
        let top = ui.cursor().top();
        if let Some(error) = &self.wrong {
            if rest < PAUSE {
                ui.request_repaint_after(std::time::Duration::from_secs_f64(PAUSE - rest));
            } else {
                self.point_at(ui, t, inner, error);
                ui.horizontal(|ui| {
                    ui.add_space(12.0);
                    let still = match in_force {
                        Some(query) => format!(" Until then the rows are those of {query}."),
                        None => String::new(),
                    };
                    let stop = if error.sentence.ends_with('?') { "" } else { "." };
                    ui.add(egui::Label::new(Type::Body.text(format!("{}{stop}{still}", error.sentence)).color(t.text2)).wrap());
                });
                ui.add_space(6.0);
            }
        }
        self.told = ui.cursor().top() - top;
        if !has_changed {
            return None;
        }
        match &self.wrong {
            None => Some(self.text.clone()),
            Some(error) => without(&self.text, error).filter(|rest| in_force.unwrap_or("") != rest),
        }
    }

    /// Underlines the term that does not parse.
    fn point_at(&self, ui: &Ui, t: &Tokens, field: Rect, error: &QueryError) {
        let before = self.text.get(..error.at.start).unwrap_or("");
        let term = self.text.get(error.at.clone()).unwrap_or("");
        let left = field.left() + 24.0 + label::width(ui.painter(), before, Type::Mono);
        let right = (left + label::width(ui.painter(), term, Type::Mono)).min(field.right() - 6.0);
        if left < right {
            let y = field.bottom() - 4.0;
            ui.painter().hline(left..=right, y, egui::Stroke::new(1.5, t.amber));
        }
    }

    /// Arrows choose a completion, Tab takes it (or the first one), Enter takes a chosen one.
    fn take_keys(&mut self, ui: &Ui) -> bool {
        let Some(id) = self.id.filter(|&id| ui.memory(|m| m.has_focus(id))) else { return false };
        let n = self.offered.len();
        if n == 0 {
            return false;
        }
        let pressed = |key| ui.input_mut(|i| i.consume_key(Modifiers::NONE, key));
        if pressed(Key::ArrowDown) {
            self.chosen = Some(self.chosen.map_or(0, |c| (c + 1) % n));
        }
        if pressed(Key::ArrowUp) {
            self.chosen = Some(self.chosen.map_or(n - 1, |c| (c + n - 1) % n));
        }
        let is_tab = pressed(Key::Tab) || std::mem::take(&mut self.is_tab_waiting);
        // Letters typed before Tab in the same slow frame are not in the field yet.
        self.is_tab_waiting = is_tab && ui.input(|i| i.events.iter().any(|event| matches!(event, egui::Event::Text(_))));
        if self.is_tab_waiting {
            ui.memory_mut(|m| m.request_focus(id));
            ui.ctx().request_repaint();
            return false;
        }
        let taken = if is_tab {
            Some(self.chosen.unwrap_or(0))
        } else if self.chosen.is_some() && pressed(Key::Enter) {
            self.chosen
        } else {
            None
        };
        let Some(completion) = taken.and_then(|i| self.offered.get(i)).cloned() else { return false };
        ui.memory_mut(|m| m.request_focus(id));
        self.accept(ui, completion);
        true
    }

    fn accept(&mut self, ui: &Ui, completion: Completion) {
        // After a complete term, a space begins the next one.
        let is_whole = Query::parse(&completion.word).is_ok() && !completion.word.ends_with('@');
        let word = if is_whole { format!("{} ", completion.word) } else { completion.word };
        let start = completion.at.start.min(self.text.len());
        let end = completion.at.end.min(self.text.len()).max(start);
        if self.text.get(start..end).is_some() {
            self.text.replace_range(start..end, &word);
        }
        let caret = self.text.get(..start + word.len()).unwrap_or(&self.text).chars().count();
        if let Some(id) = self.id {
            let mut state = egui::TextEdit::load_state(ui.ctx(), id).unwrap_or_default();
            state.cursor.set_char_range(Some(CCursorRange::one(CCursor::new(caret))));
            egui::TextEdit::store_state(ui.ctx(), id, state);
            ui.memory_mut(|m| m.request_focus(id));
        }
        self.chosen = None;
    }

    /// Draws the list under the field. Returns the completion that was clicked.
    fn completions_ui(&self, ui: &Ui, t: &Tokens, field: Rect) -> Option<Completion> {
        if self.offered.is_empty() {
            return None;
        }
        const ROW: f32 = 20.0;
        let width = field.width().min(460.0);
        let mut clicked = None;
        Area::new(ui.scope_id().with("completions"))
            .order(Order::Foreground)
            .fixed_pos(pos2(field.left(), field.bottom() + 3.0 + self.told))
            .show(ui.ctx(), |ui| {
                let size = vec2(width, ROW * self.offered.len() as f32 + 8.0);
                let (rect, _) = ui.allocate_exact_size(size, Sense::hover());
                ui.painter().rect(rect, 4, t.s3, egui::Stroke::new(1.0, t.line2), egui::StrokeKind::Inside);
                for (i, offer) in self.offered.iter().enumerate() {
                    let row =
                        Rect::from_min_size(pos2(rect.left() + 1.0, rect.top() + 4.0 + i as f32 * ROW), vec2(width - 2.0, ROW));
                    let response = told_at(ui, row, ("offer", i), Sense::click(), egui::Role::ListItem, || &offer.word);
                    if self.chosen == Some(i) || response.hovered() {
                        ui.painter().rect_filled(row, 0, if self.chosen == Some(i) { t.accentbg } else { t.s4 });
                    }
                    let words = row.cell(8.0, 168.0);
                    label::text_in(ui.painter(), words, &offer.word, Type::Mono, t.text1);
                    let mut about = row.inset(176.0, 0.0, 8.0, 0.0);
                    if i == 0 && self.chosen.is_none() {
                        let key = label::text(
                            ui.painter(),
                            row.right_center() - vec2(8.0, 0.0),
                            Align2::RIGHT_CENTER,
                            "Tab",
                            Type::Key,
                            t.text3,
                        );
                        about.max.x = key.left() - 8.0;
                    }
                    label::text_in(ui.painter(), about, offer.about, Type::Caption, t.text2);
                    // Pressing takes the focus from the field, so the click is detected at the press.
                    if response.is_pointer_button_down_on() || response.clicked() {
                        clicked = Some(offer.clone());
                    }
                }
            });
        clicked
    }
}

/// True when the last term is complete: it ends in a number and parses, as `step=3`. More digits may follow, but the rows already
/// match this number, and the list would cover them.
fn is_whole(text: &str) -> bool {
    let term = text.rsplit(' ').next().unwrap_or(text);
    let value = term.rfind(['=', '<', '>']).and_then(|at| term.get(at + 1..)).unwrap_or("");
    value.starts_with(|c: char| c.is_ascii_digit()) && Query::parse(term).is_ok()
}

/// The query without the term that does not parse, which stays applied. `None` when the rest does not parse either.
fn without(text: &str, error: &QueryError) -> Option<String> {
    let (before, after) = (text.get(..error.at.start)?, text.get(error.at.end..)?);
    let rest = format!("{} {}", before.trim(), after.trim()).trim().to_owned();
    Query::parse(&rest).ok().map(|_| rest)
}

fn byte_of(text: &str, char_index: impl Into<usize>) -> usize {
    let at = char_index.into();
    text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_with_its_figure_is_whole() {
        for text in ["step=3", "alloc size>1MiB", "size>=4", "-step=12"] {
            assert!(is_whole(text), "{text}");
        }
        for text in ["step=", "ste", "stack~att", "live@", "size>", "step=3 li", "pool="] {
            assert!(!is_whole(text), "{text}");
        }
    }

    #[test]
    fn a_term_that_is_wrong_leaves_the_others_in_force() {
        let rest = |text: &str| without(text, &Query::parse(text).unwrap_err());
        assert_eq!(rest("alloc size>>1").as_deref(), Some("alloc"));
        assert_eq!(rest("size>> live@peak").as_deref(), Some("live@peak"));
        assert_eq!(rest("size>>").as_deref(), Some(""));
        assert_eq!(rest("size>> colour=red"), None, "two are wrong");
    }
}
