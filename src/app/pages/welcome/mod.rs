//! The welcome page: ways to start, recent files, samples, how to record, the words used everywhere.
//!
//! It shows a [`WelcomeModel`] and returns a [`WelcomeIntent`]. It opens nothing itself.

pub mod layout;
pub mod record;

use egui::{Rect, Response, Role, ScrollArea, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use crate::app::platform::machine::MachineState;
use crate::app::state::Command;
use crate::app::theme::visuals::RADIUS_CONTROL;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, Field, Push, Sparkline, label, paint_key_cap, paint_logo, row};
use layout::{Part, Span};
use vramscope_core::units::{Bytes, counted};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WelcomeIntent {
    Run(Command),
    /// Open the file at this path, as typed.
    OpenPath(String),
    /// Open a bundled sample by its index in the model.
    OpenSample(usize),
    /// Open a recent file by its index in the model.
    OpenRecent(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartEntry {
    pub title: String,
    pub text: String,
    /// Shown as a key cap; may be empty.
    pub shortcut: String,
    pub command: Command,
}

/// A file that can be opened with one click.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileRow {
    pub name: String,
    /// Where it is, shown on hover; empty for samples.
    pub path: String,
    /// What its top finding says.
    pub sentence: String,
    /// The peak of reserved bytes. For a watch of a GPU: the peak of the used bytes.
    pub peak_reserved: u64,
    pub is_watch: bool,
    /// When this and the peak are 0, as for a sample that was not read yet, no figures are shown.
    pub events: u64,
    /// The recording as a sparkline. A red end means out of memory.
    pub sparkline: Sparkline,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct WelcomeModel {
    /// Ways to start, the most common one first.
    pub starts: Vec<StartEntry>,
    /// Files opened before, newest first.
    pub recents: Vec<FileRow>,
    pub samples: Vec<FileRow>,
    pub machine: MachineState,
    /// The watched folder; empty for none.
    pub watched: String,
}

/// What the page remembers between frames.
#[derive(Clone, Debug, Default)]
struct Remembered {
    path: String,
    recipe: usize,
}

pub fn welcome_ui(ui: &mut Ui, model: &WelcomeModel) -> Option<WelcomeIntent> {
    let id = ui.scope_id().with("welcome");
    let mut remembered = ui.data(|d| d.get_temp::<Remembered>(id)).unwrap_or_default();
    let page = layout::layout(ui.available_width(), ui.available_height());
    let mut intent = None;
    ScrollArea::vertical().id_salt("welcome").auto_shrink(false).show(ui, |ui| {
        let origin = ui.cursor().min;
        let mut bottom = origin.y;
        for (i, (Span { x, width }, parts)) in page.columns.iter().enumerate() {
            let place = Rect::from_min_size(origin + vec2(*x, page.top), vec2(*width, f32::INFINITY));
            let mut column = ui.new_child(UiBuilder::new().id_salt(i).max_rect(place));
            for (j, part) in parts.iter().enumerate() {
                if j > 0 {
                    column.add_space(32.0);
                }
                let asked = match part {
                    Part::Start => start_ui(&mut column, model, &mut remembered.path),
                    Part::Files => files_ui(&mut column, model),
                    Part::Record => {
                        let asks_more = record::record_ui(&mut column, &mut remembered.recipe);
                        column.add_space(30.0);
                        record::words_ui(&mut column);
                        asks_more.then_some(WelcomeIntent::Run(Command::HowToRecord))
                    }
                };
                intent = intent.take().or(asked);
            }
            bottom = bottom.max(column.min_rect().bottom());
        }
        let all = Rect::from_min_max(origin, pos2(origin.x + ui.available_width(), bottom + 24.0));
        ui.advance_cursor_after_rect(all);
    });
    ui.data_mut(|d| d.insert_temp(id, remembered));
    intent
}

fn caption(ui: &mut Ui, text: &str) {
    let t = Tokens::of(ui);
    let (rect, _) = row::told(ui, 16.0, Role::Heading, || text);
    label::text_in(ui.painter(), rect, text, Type::Caption, t.text3);
}

fn start_ui(ui: &mut Ui, model: &WelcomeModel, path: &mut String) -> Option<WelcomeIntent> {
    let t = Tokens::of(ui);
    let mut intent = None;
    let (rect, _) = row::told(ui, 32.0, Role::Heading, || "vramscope");
    paint_logo(ui.painter(), rect.min + vec2(2.0, 6.0), 28.0, t.accent, t.text2, t.text3);
    let name = rect.lines(2.0, 30.0).with_min_x(rect.left() + 44.0);
    label::text_in(ui.painter(), name, "vramscope", Type::Display, t.text1);
    ui.add_space(10.0);
    label::paragraph(ui, "See where GPU memory went, and why it ran out.", Type::Lead, t.text2);
    if !model.watched.is_empty() {
        ui.add_space(12.0);
        let sentence = format!("Watching {}: each new recording is opened or offered here.", model.watched);
        label::paragraph(ui, &sentence, Type::Body, t.text1);
    }
    ui.add_space(26.0);
    caption(ui, "Start");
    ui.add_space(6.0);
    for (i, entry) in model.starts.iter().enumerate() {
        if start_row(ui, entry, i == 0).clicked() {
            intent = Some(WelcomeIntent::Run(entry.command));
        }
    }
    ui.add_space(10.0);
    ui.horizontal(|ui| {
        let ready = !path.trim().is_empty();
        let button = Push::outlined("Open").enabled(ready);
        let width = ui.available_width() - button.width(ui) - 8.0;
        let field = Field::new("Path of a recording").hint("or type the path of a recording").mono();
        let response = field.height(24.0).width(width).show(ui, path);
        let entered = response.lost_focus() && ui.input(|i| i.key_pressed(egui::Key::Enter));
        let pressed = button.show(ui).clicked();
        if ready && (entered || pressed) {
            intent = Some(WelcomeIntent::OpenPath(path.trim().to_owned()));
        }
    });
    machine_ui(ui, &model.machine);
    intent
}

fn start_row(ui: &mut Ui, entry: &StartEntry, first: bool) -> Response {
    let t = Tokens::of(ui);
    let text = {
        let mut job = egui::text::LayoutJob::default();
        job.append(&entry.text, 0.0, label::format(Type::Body, t.text2));
        job.wrap.max_width = ui.available_width();
        ui.painter().layout_job(job)
    };
    let size = vec2(ui.available_width(), 41.0 + text.size().y);
    let (rect, response) = ui.allocate_exact_size(size, Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Button, ui.is_enabled(), &entry.title));
    let p = ui.painter();
    let wide = rect.expand2(vec2(12.0, 0.0));
    match (first, response.hovered()) {
        (true, hovered) => {
            let fill = if hovered { Tokens::over(t.accent, t.accentbg, 0.12) } else { t.accentbg };
            p.rect_filled(wide, RADIUS_CONTROL, fill);
        }
        (false, true) => {
            p.rect_filled(wide, RADIUS_CONTROL, t.s2);
        }
        (false, false) => {}
    }
    let mut line = rect.lines(10.0, 30.0);
    if !entry.shortcut.is_empty() {
        line.max.x = paint_key_cap(p, t, line.right_center() - vec2(0.0, 1.0), &entry.shortcut).left() - 8.0;
    }
    label::text_in(p, line, &entry.title, Type::LeadStrong, if first { t.accent } else { t.text1 });
    p.galley(rect.min + vec2(0.0, 31.0), text, t.text2);
    response.on_hover_cursor(egui::CursorIcon::PointingHand)
}

fn machine_ui(ui: &mut Ui, machine: &MachineState) {
    let t = Tokens::of(ui);
    match machine {
        MachineState::Unknown => {}
        MachineState::NoDriver(sentence) => {
            ui.add_space(28.0);
            caption(ui, "This machine");
            ui.add_space(8.0);
            label::paragraph(ui, sentence, Type::Body, t.text2);
        }
        MachineState::Devices(devices) => {
            ui.add_space(28.0);
            caption(ui, "This machine");
            for device in devices {
                ui.add_space(8.0);
                let figure = format!("{} of {}", Bytes(device.used), Bytes(device.total));
                let (rect, _) = row::told(ui, 22.0, Role::Label, || format!("{}: {figure}", device.name));
                label::pair(ui.painter(), rect, (&device.name, Type::Strong, t.text1), (&figure, Type::Mono, t.text2));
                ui.add_space(4.0);
                let bar = row::line(ui, 12.0);
                ui.painter().rect_filled(bar, 0, t.s3);
                let share = device.used as f32 / device.total.max(1) as f32;
                let used = vec2((bar.width() * share.clamp(0.0, 1.0)).max(2.0), bar.height());
                ui.painter().rect_filled(Rect::from_min_size(bar.min, used), 0, t.text3);
                if !device.sentence.is_empty() {
                    ui.add_space(6.0);
                    label::paragraph(ui, &device.sentence, Type::Body, t.text2);
                }
            }
        }
    }
}

fn files_ui(ui: &mut Ui, model: &WelcomeModel) -> Option<WelcomeIntent> {
    let t = Tokens::of(ui);
    let mut intent = None;
    let mut any = false;
    for (title, rows, make) in [
        ("Recent", &model.recents, WelcomeIntent::OpenRecent as fn(usize) -> WelcomeIntent),
        ("Samples, recorded on a real card", &model.samples, WelcomeIntent::OpenSample),
    ] {
        if rows.is_empty() {
            continue;
        }
        if any {
            ui.add_space(24.0);
        }
        any = true;
        let has_watch = rows.iter().any(|row| row.is_watch);
        record::heading(ui, title, if has_watch { "peak reserved, or used on the card" } else { "peak reserved" });
        for (i, file) in rows.iter().enumerate() {
            let response = ui.push_id((title, i), |ui| file_row(ui, file)).inner;
            if response.clicked() {
                intent = Some(make(i));
            }
        }
    }
    if !model.samples.is_empty() {
        ui.add_space(9.0);
        label::paragraph(ui, "The samples open without a GPU and without Python.", Type::Body, t.text3);
    }
    if !any {
        record::heading(ui, "Recent", "");
        ui.add_space(12.0);
        label::paragraph(
            ui,
            "What you open stands here the next time. Drop a file anywhere in this window.",
            Type::Body,
            t.text2,
        );
    }
    intent
}

/// Width that a long file name leaves for its folder.
const LEAST_FOLDER: f32 = 96.0;

fn file_row(ui: &mut Ui, file: &FileRow) -> Response {
    let t = Tokens::of(ui);
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 52.0), Sense::click());
    let known = file.peak_reserved > 0 || file.events > 0;
    response.widget_info(|| {
        let of = if file.is_watch { "used at most" } else { "peak reserved" };
        let figure = if known { format!(", {of} {}", Bytes(file.peak_reserved)) } else { String::new() };
        WidgetInfo::labeled(Role::Button, ui.is_enabled(), format!("{}: {}{figure}", file.name, file.sentence))
    });
    let p = ui.painter();
    if response.hovered() {
        p.rect_filled(rect.expand2(vec2(12.0, 0.0)), RADIUS_CONTROL, t.s2);
    }
    let spark = Rect::from_min_size(pos2(rect.left(), rect.top() + 10.0), Sparkline::SIZE);
    file.sparkline.paint(p, t, spark);
    let line =
        |y: f32, left: f32, right: f32| Rect::from_min_max(pos2(left, rect.top() + y - 8.0), pos2(right, rect.top() + y + 8.0));
    let (left, right) = (spark.right() + 14.0, rect.right());
    let (peak, events) = if known {
        let events = match (file.is_watch, file.events) {
            (true, _) => "used, watched live".to_owned(),
            (false, 0) => "no history".to_owned(),
            (false, n) => counted(n, "event", "events"),
        };
        (Bytes(file.peak_reserved).to_string(), events)
    } else {
        Default::default()
    };
    let peak = label::text_in_right(p, line(18.0, left, right), &peak, Type::Mono, t.text1);
    let events = label::text_in_right(p, line(35.0, left, right), &events, Type::Mono, t.text3);
    // The folder distinguishes files of the same name, so a long name leaves room for it.
    let folder = std::path::Path::new(&file.path).parent().map(|f| f.display().to_string()).unwrap_or_default();
    let end = peak.left() - 12.0;
    let dot_room = if file.sparkline.oom { 18.0 } else { 0.0 };
    let folder_room = if folder.is_empty() { 0.0 } else { (label::width(p, &folder, Type::Caption) + 10.0).min(LEAST_FOLDER) };
    let name = label::text_in(p, line(17.0, left, end - dot_room - folder_room), &file.name, Type::Strong, t.text1);
    let mut next = name.right();
    if file.sparkline.oom {
        p.circle_filled(pos2(next + 12.0, rect.top() + 17.5), 3.0, t.red);
        next += dot_room;
        // When the folder needs the room, the red dot alone says it.
        let words = label::width(p, "out of memory", Type::Caption) + 6.0;
        if next + words + folder_room.max(label::width(p, &folder, Type::Caption).min(2.0 * LEAST_FOLDER)) <= end {
            label::text_in(p, line(17.0, next + 4.0, end), "out of memory", Type::Caption, t.red);
            next += words;
        }
    }
    if !folder.is_empty() && end - next > 40.0 {
        let folder = label::without_middle(p, &folder, Type::Caption, end - next - 10.0);
        label::text_in(p, line(17.0, next + 10.0, end + 2.0), &folder, Type::Caption, t.text3);
    }
    let room = line(34.0, left, events.left() - 12.0);
    let sentence = whole_parts(&file.sentence, |part| label::width(p, part, Type::Body) <= room.width());
    label::text_in(p, room, sentence, Type::Body, t.text2);
    p.hline(rect.x_range(), rect.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
    let response = response.on_hover_cursor(egui::CursorIcon::PointingHand);
    if file.path.is_empty() { response } else { response.on_hover_text(&file.path) }
}

/// As many of the parts between commas as fit, but at least the first.
fn whole_parts(sentence: &str, fits: impl Fn(&str) -> bool) -> &str {
    let mut shown = sentence;
    while !fits(shown)
        && let Some((shorter, _)) = shown.rsplit_once(", ")
    {
        shown = shorter;
    }
    shown
}

pub fn open_entry(shortcut: &str) -> StartEntry {
    StartEntry {
        title: "Open a recording…".into(),
        text: "Allocator snapshot, profiler trace, memory timeline or a saved memory_viz page. Compressed files too.".into(),
        shortcut: shortcut.into(),
        command: Command::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_where_it_has_no_room() {
        let told = "3,036 MiB of tensors at the peak, 954,306 allocations";
        assert_eq!(whole_parts(told, |part| part.len() <= 80), told);
        assert_eq!(whole_parts(told, |part| part.len() <= 40), "3,036 MiB of tensors at the peak");
        assert_eq!(whole_parts(told, |_| false), "3,036 MiB of tensors at the peak", "figures keep their commas");
    }
}
