//! The path field with the list of a folder's files, for systems without a file dialog.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use egui::text::{CCursor, CCursorRange};
use egui::{Align, Event, Id, Key, Layout, Modifiers, Rect, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};

use super::listing::{Entry, EntryKind, Listing, age};
use crate::app::dialogs::Outcome;
use crate::app::dialogs::frame::dialog;
use crate::app::jobs::{Derived, Jobs};
use crate::app::platform::from_home;
use crate::app::state::{Choosing, Verdict};
use crate::app::theme::visuals::RADIUS_CONTROL;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::row::ground;
use crate::app::widgets::{Cut, Icon, Push, RowList, label};
use vramscope_core::units::{Bytes, counted, shown};

#[derive(Default)]
pub(in crate::app) struct Asking {
    pub purpose: Choosing,
    /// The typed text: relative to `at`, absolute, or starting with `~`.
    typed: String,
    /// The folder to which a typed relative path belongs.
    at: PathBuf,
    listing: Derived<PathBuf, Listing>,
    /// The rows that match the typed text, and the inputs they were made from.
    rows: (String, Option<Arc<Listing>>, Vec<Row>),
    verdict: Derived<PathBuf, Verdict>,
    /// The row selected with the arrow keys.
    chosen: Option<usize>,
    list: RowList,
    /// The selected row must be scrolled into view.
    is_moved: bool,
    /// Enter was pressed and waits for the disk.
    is_entered: bool,
    /// Tab was pressed in the same frame as letters. It waits for the next frame, when the letters are in the field.
    is_tab_waiting: bool,
    /// The entered path cannot be chosen.
    is_refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Up,
    Entry(u32),
}

const WIDTH: f32 = 640.0;
const ROW: f32 = 24.0;
const FIELD: f32 = 28.0;

impl Asking {
    /// Typed names belong to the folder `at`.
    pub(in crate::app) fn new(purpose: Choosing, typed: String, at: PathBuf) -> Self {
        Asking { purpose, typed, at, ..Asking::default() }
    }

    fn path(&self) -> PathBuf {
        self.at.join(from_home(self.typed.trim()))
    }

    /// The folder to list, and the beginning of a name in it.
    fn parts(&self) -> (PathBuf, String) {
        let typed = self.typed.trim();
        let tail = typed.rsplit(std::path::is_separator).next().unwrap_or_default();
        let head = typed.strip_suffix(tail).unwrap_or_default();
        (self.at.join(from_home(head)), tail.to_owned())
    }

    /// Replaces the name at the end of the typed path.
    fn set_tail(&mut self, tail: &str, name: &str) {
        let head = self.typed.trim().strip_suffix(tail).unwrap_or_default();
        self.typed = format!("{head}{name}");
        self.changed();
    }

    fn changed(&mut self) {
        self.chosen = None;
        self.is_refused = false;
        self.is_entered = false;
    }

    /// Goes to a folder. The name of a file to write is kept.
    fn go(&mut self, folder: PathBuf) {
        let (_, tail) = self.parts();
        self.at = folder;
        self.typed = if self.purpose.is_new() { tail } else { String::new() };
        self.list = RowList::default();
        self.changed();
    }

    /// The listing of the folder, and whether it is complete. Updates the matching rows.
    fn fill(&mut self, jobs: &Jobs) -> (Arc<Listing>, bool) {
        let (folder, tail) = self.parts();
        let (purpose, of) = (self.purpose, folder.clone());
        let shown = self.listing.get(jobs, "list folder", &folder, move |progress| Listing::of(&of, purpose, progress));
        let listing = shown.fresh();
        let is_old = |known: &Option<Arc<Listing>>| match (known, &listing) {
            (Some(a), Some(b)) => !Arc::ptr_eq(a, b),
            (a, b) => a.is_some() != b.is_some(),
        };
        if self.rows.0 != tail || is_old(&self.rows.1) {
            // A file to write has a name from the start, so folders stay listed as targets.
            let is_new = purpose.is_new();
            let up = ((tail.is_empty() || is_new) && folder.parent().is_some()).then_some(Row::Up);
            let entries = listing.iter().flat_map(|l| if is_new { l.fitting_with_folders(&tail) } else { l.fitting(&tail) });
            let entries = entries.map(Row::Entry);
            let rows = up.into_iter().chain(entries).collect();
            self.rows = (tail, listing.clone(), rows);
        }
        let is_fresh = listing.is_some();
        (listing.unwrap_or_else(|| Arc::new(Listing { folder, ..Listing::default() })), is_fresh)
    }

    /// What the disk says about the typed path; `None` while it is checked.
    fn verdict(&mut self, jobs: &Jobs) -> Option<Verdict> {
        // An empty field means the listed folder, which can be chosen only when a folder is wanted.
        if self.typed.trim().is_empty() && !self.purpose.is_folder() {
            return Some(Verdict::default());
        }
        let (path, purpose) = (self.path(), self.purpose);
        let of = path.clone();
        let shown = self.verdict.get(jobs, "look at path", &path, move |_| Some(purpose.judge(&of)));
        shown.fresh().map(|verdict| *verdict)
    }

    /// Takes a row: opens a folder, or returns the path of a file.
    fn take(&mut self, row: Row, listing: &Listing) -> Option<PathBuf> {
        match row {
            Row::Up => self.go(listing.folder.parent().unwrap_or(&listing.folder).to_path_buf()),
            Row::Entry(i) => {
                let entry = listing.entries.get(i as usize)?;
                let path = listing.folder.join(&entry.name);
                match entry.kind {
                    EntryKind::Folder => self.go(path),
                    _ if self.purpose.is_folder() => {}
                    _ if self.purpose.is_new() => {
                        let (_, tail) = self.parts();
                        self.set_tail(&tail, &entry.text);
                    }
                    _ => return Some(path),
                }
            }
        }
        None
    }

    /// Handles Enter: takes the selected row, or else the typed path, or else the first matching row.
    fn enter(&mut self, verdict: Verdict, listing: &Listing) -> Option<PathBuf> {
        self.is_entered = false;
        if let Some(&row) = self.chosen.and_then(|i| self.rows.2.get(i)) {
            return self.take(row, listing);
        }
        if verdict.accepts {
            return Some(self.path());
        }
        match self.rows.2.first() {
            Some(&row) if !self.purpose.is_new() && !self.parts().1.is_empty() => self.take(row, listing),
            _ => {
                self.is_refused = true;
                None
            }
        }
    }

    /// Handles keys of the list before the field gets them. True when the typed text changed.
    fn keys(&mut self, ui: &Ui, listing: &Listing) -> bool {
        let count = self.rows.2.len();
        let pressed = |key| ui.input_mut(|i| i.count_and_consume_key(Modifiers::NONE, key));
        for (key, step) in [(Key::ArrowDown, 1isize), (Key::ArrowUp, -1)] {
            for _ in 0..pressed(key) {
                self.is_moved = true;
                self.chosen = match self.chosen {
                    None if step > 0 && count > 0 => Some(0),
                    None => None,
                    Some(0) if step < 0 => None,
                    Some(at) => Some(at.saturating_add_signed(step).min(count.saturating_sub(1))),
                };
            }
        }
        let is_pressed = pressed(Key::Tab) > 0 || std::mem::take(&mut self.is_tab_waiting);
        // Letters typed before Tab in the same slow frame are not in the field yet.
        self.is_tab_waiting = is_pressed && ui.input(|i| i.events.iter().any(|event| matches!(event, Event::Text(_))));
        if self.is_tab_waiting {
            ui.ctx().request_repaint();
        }
        if !is_pressed || self.is_tab_waiting {
            return false;
        }
        let (_, tail) = self.parts();
        let chosen = self.chosen.and_then(|i| self.rows.2.get(i)).and_then(|row| match row {
            Row::Entry(i) => listing.entries.get(*i as usize),
            Row::Up => None,
        });
        let of_entry = |e: &Entry| {
            if e.kind == EntryKind::Folder { format!("{}{}", e.text, std::path::MAIN_SEPARATOR) } else { e.text.clone() }
        };
        match chosen.map(of_entry).or_else(|| listing.completed(&tail)) {
            Some(name) => {
                self.set_tail(&tail, &name);
                true
            }
            None => false,
        }
    }

    /// The line below the list: what Enter does, or why it does nothing.
    fn hint(&self, verdict: Option<Verdict>) -> String {
        match verdict {
            _ if self.is_refused => self.purpose.refusal().to_owned(),
            Some(verdict) if verdict.accepts && self.chosen.is_none() => self.purpose.offer(verdict).to_owned(),
            _ if self.typed.trim().is_empty() => self.purpose.hint().to_owned(),
            _ => "Tab completes a name. The arrow keys and Enter choose one.".to_owned(),
        }
    }
}

/// Draws the path field over the window. Returns the chosen path.
pub(in crate::app) fn draw(asking: &mut Asking, ui: &mut Ui, t: &Tokens, jobs: &Jobs) -> Outcome<PathBuf> {
    let mut path = None;
    let window = ui.ctx().content_rect().size();
    let width = WIDTH.min(window.x - 64.0);
    let ((), is_closed) = dialog(ui, t, "open path", (asking.purpose.title(), width), |ui, label| {
        ui.add_space(8.0);
        let (mut listing, mut is_listed) = asking.fill(jobs);
        let was_completed = asking.keys(ui, &listing);
        let id = Id::unique("path to open");
        if field(ui, t, id, &mut asking.typed, width, was_completed).labelled_by(label.id).changed() {
            asking.changed();
        }
        if was_completed || asking.parts().1 != asking.rows.0 {
            (listing, is_listed) = asking.fill(jobs);
        }
        ui.add_space(8.0);
        let height = (window.y - 240.0).clamp(3.0 * ROW, 12.0 * ROW);
        let (body, _) = ui.allocate_exact_size(vec2(width, height), Sense::hover());
        if let Some(row) = list(ui, t, asking, &listing, is_listed, body) {
            path = asking.take(row, &listing);
        }
        ui.add_space(10.0);
        let verdict = asking.verdict(jobs);
        let can_go = verdict.is_some_and(|v| v.accepts) && asking.chosen.is_none();
        let hint = asking.hint(verdict);
        let replaces = asking.purpose.is_new() && verdict.is_some_and(|v| v.exists);
        let verb = if replaces { "Replace" } else { asking.purpose.verb() };
        // The button first. The hint gets the remaining width and may wrap.
        ui.with_layout(Layout::right_to_left(Align::Min), |ui| {
            if Push::primary(verb).enabled(can_go).show(ui).clicked() && can_go {
                path = Some(asking.path());
            }
            ui.add_space(12.0);
            ui.with_layout(Layout::top_down(Align::Min), |ui| {
                label::paragraph(ui, &hint, Type::Caption, t.text3);
            });
        });
        asking.is_entered |= ui.input(|i| i.key_pressed(Key::Enter));
        // Waits until the newest text was checked and listed.
        if let (true, true, Some(verdict)) = (asking.is_entered && !asking.is_tab_waiting, is_listed, verdict) {
            path = asking.enter(verdict, &listing);
            ui.ctx().request_repaint();
        }
    });
    match path {
        Some(path) => Outcome::Done(path),
        None if is_closed => Outcome::Closed,
        None => Outcome::Stays,
    }
}

/// The text field. It keeps the focus, so that everything works by keyboard.
fn field(ui: &mut Ui, t: &Tokens, id: Id, typed: &mut String, width: f32, to_end: bool) -> egui::Response {
    let (rect, _) = ui.allocate_exact_size(vec2(width, FIELD), Sense::hover());
    ui.painter().rect(rect, RADIUS_CONTROL, t.s1, Stroke::new(1.0, t.accent), StrokeKind::Inside);
    let end = CCursor::new(typed.chars().count());
    let edit = egui::TextEdit::singleline(typed)
        .id(id)
        .font(Type::Mono.font())
        .frame(egui::Frame::NONE)
        .margin(egui::Margin::ZERO)
        .align(egui::Align2::LEFT_CENTER)
        .lock_focus(true)
        .text_color(t.text1)
        .hint_text(Type::Body.text("A name, a path, or ~/…").color(t.text3));
    if to_end && let Some(mut state) = egui::TextEdit::load_state(ui.ctx(), id) {
        state.cursor.set_char_range(Some(CCursorRange::one(end)));
        state.store(ui.ctx(), id);
    }
    let response = ui.put(rect.shrink2(vec2(8.0, 0.0)), edit);
    response.request_focus();
    response
}

/// The list below the field. Returns the row that was clicked.
fn list(ui: &mut Ui, t: &Tokens, asking: &mut Asking, listing: &Listing, is_listed: bool, body: Rect) -> Option<Row> {
    let frame = body;
    ui.painter().rect(frame, RADIUS_CONTROL, t.s1, Stroke::new(1.0, t.line), StrokeKind::Inside);
    let (head, body) = frame.shrink(1.0).split_top_bottom_at_y(frame.top() + ROW);
    let folder = label::without_middle(ui.painter(), &listing.folder.display().to_string(), Type::Mono, head.width() - 140.0);
    label::text_in(ui.painter(), head.shrink2(vec2(10.0, 0.0)), &folder, Type::Mono, t.text3);
    ui.painter().hline(head.x_range(), head.bottom(), Stroke::new(1.0, t.line));
    let count = asking.rows.2.iter().filter(|row| matches!(row, Row::Entry(_))).count();
    let told = if is_listed { counted(count as u64, "entry", "entries") } else { "listing…".to_owned() };
    label::text_in_right(ui.painter(), head.shrink2(vec2(10.0, 0.0)), &told, Type::Caption, t.text3);
    if let Some(trouble) = &listing.trouble {
        label::text_in(ui.painter(), row_of(body).shrink2(vec2(10.0, 0.0)), trouble, Type::Body, t.text2);
    } else if is_listed && count == 0 {
        let empty = if asking.rows.0.is_empty() { "This folder is empty." } else { "No name here has this in it." };
        let at = row_of(body).translate(vec2(0.0, ROW * asking.rows.2.len() as f32));
        label::text_in(ui.painter(), at.shrink2(vec2(10.0, 0.0)), empty, Type::Body, t.text3);
    }
    let rows = asking.rows.2.len();
    if let (Some(chosen), true) = (asking.chosen, std::mem::take(&mut asking.is_moved)) {
        asking.list.scroll.reveal(chosen, f64::from(body.height() / ROW));
    }
    asking.list.interact(ui, t, body, rows, ROW, "Files");
    let now = SystemTime::now();
    let mut clicked = None;
    for (at, rect) in asking.list.visible(body, rows, ROW) {
        let row = asking.rows.2[at];
        let entry = match row {
            Row::Up => None,
            Row::Entry(i) => listing.entries.get(i as usize),
        };
        let name = entry.map_or("..", |e| e.text.as_str());
        let response = ui.interact(rect.intersect(body), ui.scope_id().with(("file", at)), Sense::click());
        let is_chosen = asking.chosen == Some(at);
        response.widget_info(|| WidgetInfo::selected(Role::ListItem, true, is_chosen, name));
        let painter = ui.painter().with_clip_rect(body);
        let fill = if is_chosen { Some(t.accentbg) } else { response.hovered().then_some(t.s2) };
        ground(&painter, rect, fill, is_chosen.then_some(t.accent));
        paint_row(&painter, t, rect, entry, name, now);
        if response.clicked() {
            clicked = Some(row);
        }
    }
    clicked
}

fn row_of(body: Rect) -> Rect {
    body.lines(0.0, ROW)
}

fn paint_row(painter: &egui::Painter, t: &Tokens, rect: Rect, entry: Option<&Entry>, name: &str, now: SystemTime) {
    let (icon, icon_ink, ink) = match entry.map(|e| e.kind) {
        None => (Icon::ChevronUp, t.text3, t.text2),
        Some(EntryKind::Folder) => (Icon::Folder, t.text2, t.text1),
        Some(EntryKind::Wanted) => (Icon::File, t.accent, t.text1),
        Some(EntryKind::Other) => (Icon::File, t.text3, t.text3),
    };
    let y = rect.center().y;
    icon.paint(painter, pos2(rect.left() + 18.0, y), 14.0, icon_ink);
    let (age_width, size_width) = (104.0, 84.0);
    let mut right = rect.right() - 8.0;
    if let Some((size, modified)) = entry.and_then(|e| e.told) {
        let column = |right: f32, width: f32| rect.across(right - width, right);
        label::text_in_right(painter, column(right, age_width), &age(modified, now), Type::Caption, t.text3);
        label::figure(painter, column(right - age_width, size_width), &Bytes(size).to_string(), t.text2);
        right -= age_width + size_width;
    }
    let room = rect.across(rect.left() + 32.0, right - 8.0);
    // `shown` makes characters such as text direction marks visible, which would otherwise look like an empty row.
    let name = label::without_middle(painter, &shown(&name.replace(['\n', '\t'], " ")), Type::Body, room.width());
    label::text_in(painter, room, &name, Type::Body, ink);
}

/// The folder for typed relative paths: that of the recording in front, or else the current folder.
pub(in crate::app) fn start_folder(beside: Option<&Path>) -> PathBuf {
    beside
        .map(Path::to_path_buf)
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_else(|| PathBuf::from(std::path::MAIN_SEPARATOR_STR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        for name in ["leak.pickle", "train.log", "runs/a.pickle", "runs/b.pickle"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        folder
    }

    fn asking(folder: &tempfile::TempDir, purpose: Choosing, typed: &str) -> Asking {
        let mut asking = Asking::new(purpose, typed.to_owned(), folder.path().to_path_buf());
        asking.fill(&Jobs::synchronous());
        asking
    }

    fn entered(asking: &mut Asking) -> Option<PathBuf> {
        let jobs = Jobs::synchronous();
        let (listing, _) = asking.fill(&jobs);
        let verdict = asking.verdict(&jobs).unwrap();
        asking.enter(verdict, &listing)
    }

    #[test]
    fn enter_opens_what_is_typed_or_else_the_first_that_fits() {
        let folder = folder();
        let file = |name: &str| Some(folder.path().join(name));
        assert_eq!(entered(&mut asking(&folder, Choosing::Open, "leak.pickle")), file("leak.pickle"));
        assert_eq!(entered(&mut asking(&folder, Choosing::Open, "le")), file("leak.pickle"));
        assert_eq!(
            entered(&mut asking(&folder, Choosing::Open, &file("runs/b.pickle").unwrap().display().to_string())),
            file("runs/b.pickle")
        );
        assert_eq!(entered(&mut asking(&folder, Choosing::Open, "runs/a")), file("runs/a.pickle"));
        let mut unknown = asking(&folder, Choosing::Open, "nothing");
        assert!(!unknown.is_refused, "nothing is refused while one types");
        assert_eq!(entered(&mut unknown), None);
        assert!(unknown.is_refused);
        assert_eq!(unknown.hint(Some(Verdict::default())), "There is no such file.");
        assert_eq!(entered(&mut asking(&folder, Choosing::Open, "")), None, "nothing typed opens nothing");
    }

    #[test]
    fn a_folder_is_gone_into_and_chosen_where_folders_are_asked_for() {
        let folder = folder();
        let mut open = asking(&folder, Choosing::Open, "");
        open.chosen = open.rows.2.iter().position(|row| *row == Row::Entry(1));
        assert_eq!(entered(&mut open), None);
        open.fill(&Jobs::synchronous());
        assert_eq!((open.at.as_path(), open.typed.as_str(), open.rows.2.len()), (folder.path().join("runs").as_path(), "", 3));
        open.chosen = Some(0);
        assert_eq!(entered(&mut open), None, "up");
        assert_eq!(open.at, folder.path());
        assert_eq!(entered(&mut asking(&folder, Choosing::WatchFolder, "runs")), Some(folder.path().join("runs")));
        assert_eq!(entered(&mut asking(&folder, Choosing::WatchFolder, "")), Some(folder.path().join("")));
        let mut save = asking(&folder, Choosing::Save, "new.pickle");
        let (listing, _) = save.fill(&Jobs::synchronous());
        let is_folder = |row: &Row| matches!(row, Row::Entry(i) if listing.entries[*i as usize].text == "runs");
        assert!(save.rows.2.contains(&Row::Up) && save.rows.2.iter().any(is_folder), "a new name hides no folder");
        save.go(folder.path().join("runs"));
        assert_eq!(entered(&mut save), Some(folder.path().join("runs/new.pickle")), "the name goes along");
    }
}
