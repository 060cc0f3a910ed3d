//! Draws the ranks page: a sentence with the answer, the table, the bars, the curves.
//!
//! A few ranks get a bar in the table and a large curve each. Many get a bar chart over the whole width, and small curves beside
//! the table.

use egui::{Align, CursorIcon, Layout, Rect, Role, ScrollArea, Sense, Ui, UiBuilder, Vec2, WidgetInfo, pos2, vec2};

use super::layout::{Column, FEW, GAP, Listed, bar_at, grid, large_grid};
use super::overlay::overlay;
use super::rows::{HEADER, ROW, table};
use super::{Ranks, pictures};
use crate::app::state::{Action, Actions};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::row::definition;
use crate::app::widgets::{LegendEntry, Push, Sort, Swatch, button, explanation, label, legend_row, progress_line, row, rule};
use vramscope_core::compare::ranks::{Division, beside};
use vramscope_core::units::{Bytes, count, counted};

/// What gestures asked of the page in this frame; applied after drawing.
#[derive(Default)]
pub(super) struct Wish {
    pub choose: Option<usize>,
    pub open: Option<usize>,
    pub sort: Option<Sort<Column>>,
    pub job: Option<usize>,
    pub listed: Option<Listed>,
    /// The row whose curve was clicked.
    pub reveal: Option<usize>,
}

/// Draws the page over the whole of `ui`.
pub fn page_ui(page: &mut Ranks, ui: &mut Ui, t: &Tokens, actions: &Actions) {
    let rect = ui.max_rect();
    ui.painter().rect_filled(rect, 0.0, t.s1);
    let mut wish = Wish::default();
    let head = header(page, ui, t, rect, actions, &mut wish);
    if !page.is_done() {
        let share = (!page.files.is_empty()).then(|| page.answered as f32 / page.files.len() as f32);
        progress_line(ui, rect.with_min_y(head.bottom()), share);
    }
    let body = rect.with_min_y(head.bottom() + 2.0);
    if page.rows().len() <= FEW {
        few(page, ui, t, body, &mut wish);
    } else {
        many(page, ui, t, body, &mut wish);
    }
    if let Some(job) = wish.job {
        page.show_job(job);
    }
    if let Some(listed) = wish.listed {
        page.list(listed);
    }
    if let Some(sort) = wish.sort {
        page.sort(sort);
    }
    page.reveal = None;
    if let Some(row) = wish.choose {
        let had_room = page.chosen.iter().all(Option::is_none);
        page.choose(row);
        // The overlay of chosen curves takes the lower part, so scroll the clicked curve back into view.
        page.reveal = wish.reveal.filter(|_| had_room);
    }
    if let Some(row) = wish.open.and_then(|i| page.rows().get(i)) {
        actions.send(Action::Open(vec![row.path.clone()]));
    }
}

/// Draws the answer and the controls at the top of `rect`, as high as the sentence needs. Returns the covered rectangle.
fn header(page: &Ranks, ui: &mut Ui, t: &Tokens, rect: Rect, actions: &Actions, wish: &mut Wish) -> Rect {
    let inner = rect.shrink2(vec2(16.0, 0.0));
    let behind = ui.painter().add(egui::Shape::Noop);
    let used = ui.scope_builder(UiBuilder::new().max_rect(inner).layout(Layout::top_down(Align::Min)).id_salt("head"), |ui| {
        ui.add_space(12.0);
        // Files that are not read yet may change the answer, so there is no verdict before the end.
        let so_far = format!("So far, {} of {} files read: ", count(page.answered as u64), count(page.files.len() as u64));
        let sentence = match (page.answered == 0, page.is_done()) {
            (true, _) => "Reading the ranks…".to_owned(),
            (false, true) => page.overview().sentence.clone(),
            (false, false) => so_far + &page.overview().sentence.replacen("None of", "none of", 1),
        };
        // With several jobs the sentence is about the one on screen.
        let of = page.jobs.get(page.shown_job()).filter(|job| page.jobs.len() > 1 && job.is_one && page.answered > 0);
        let sentence = of.map_or(sentence.clone(), |job| format!("{}: {}", job.name, sentence.replacen("None of", "none of", 1)));
        label::paragraph(ui, &sentence, Type::Lead, t.text1);
        let beside = if page.is_done() { beside(&page.jobs, page.shown_job()) } else { String::new() };
        if !beside.is_empty() {
            ui.add_space(4.0);
            label::paragraph(ui, &beside, Type::Body, t.text2);
        }
        ui.add_space(8.0);
        ui.horizontal(|ui| {
            wish.job = job_chooser(page, ui);
            wish.listed = chooser_of_rows(page, ui);
            buttons(page, ui, actions);
            let read = if page.is_done() {
                format!("{} read", counted(page.answered as u64, "file", "files"))
            } else {
                format!("{} of {} files read", count(page.answered as u64), count(page.files.len() as u64))
            };
            ui.label(Type::Caption.text(read).color(t.text3));
            if !page.errors.is_empty() {
                let words = format!("{} could not be read", counted(page.errors.len() as u64, "file", "files"));
                let response = ui.add(egui::Label::new(Type::Caption.text(words).color(t.amber)).sense(Sense::click()));
                response.on_hover_ui(|ui| {
                    ui.set_max_width(560.0);
                    for sentence in page.errors.iter().take(12) {
                        ui.label(Type::Body.text(sentence).color(t.text1));
                    }
                    if page.errors.len() > 12 {
                        ui.label(Type::Caption.text(format!("and {} more", page.errors.len() - 12)).color(t.text3));
                    }
                });
            }
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| explanation(ui, "Ranks", 400.0, about));
        });
    });
    let head = rect.with_max_y(used.response.rect.bottom() + 12.0);
    ui.painter().set(behind, egui::Shape::rect_filled(head, 0.0, t.s2));
    head
}

/// A choice of rows to list, when there are many. Returns what the user chose in this frame.
fn chooser_of_rows(page: &Ranks, ui: &mut Ui) -> Option<Listed> {
    let choices = Listed::choices(page.rows().len(), page.overview());
    if choices.len() < 2 || page.rows().len() <= FEW {
        return None;
    }
    let words: Vec<String> = choices.iter().map(|(listed, many)| format!("{} {}", listed.text(), count(*many as u64))).collect();
    let mut at = choices.iter().position(|(listed, _)| *listed == page.listed).unwrap_or(0);
    let is_new = button::segmented(ui, "rows listed", &mut at, &words);
    choices.get(at).filter(|_| is_new).map(|(listed, _)| *listed)
}

fn about(ui: &mut Ui) {
    let words = "The recordings of one job side by side: who ran out of memory first, and whose peak is not like the others'.";
    // The layout of a menu would justify the lines.
    ui.vertical(|ui| label::paragraph(ui, words, Type::Body, Tokens::of(ui).text1));
    ui.add_space(6.0);
    for (what, meaning) in LEGEND {
        definition(ui, what, meaning, 104.0);
    }
}

const LEGEND: [(&str, &str); 12] = [
    ("bar", "highest reserved memory of a rank; the coloured part is its highest active memory, which may be of another instant"),
    ("hatched", "reserved, and not active at that height"),
    ("outlier", "a peak more than 10 % from the median; where the peaks are in groups, one that is like no group's"),
    ("median", "of the files that are whole: of one that breaks off the peak may be missing"),
    ("red", "ran out of memory"),
    ("curve", "active memory filled, reserved as a line, over the run's events; all to one scale"),
    ("job", "files in one folder, or in a folder a node, whose names differ in numbers alone and hold no rank twice"),
    ("click", "choose a rank, then another to compare the two; again lets it go"),
    ("arrows, Enter", "after a click in the table: go to the next row, choose it"),
    ("Esc", "let both go"),
    ("double click", "open the rank's recording in a tab"),
    ("header", "a click sorts by that column, another turns the order"),
];

/// A choice of the job on screen, when there are several. Returns what the user chose in this frame.
fn job_chooser(page: &Ranks, ui: &mut Ui) -> Option<usize> {
    if page.jobs.len() < 2 {
        return None;
    }
    let words: Vec<String> = page
        .jobs
        .iter()
        .map(|job| {
            let failed = if job.overview.failed > 0 { ", out of memory" } else { "" };
            format!("{} ({}{failed})", job.name, count(job.rows.len() as u64))
        })
        .collect();
    let mut at = page.shown_job();
    button::selector(ui, &counted(page.jobs.len() as u64, "job", "jobs"), &mut at, &words).then_some(at)
}

fn buttons(page: &Ranks, ui: &mut Ui, actions: &Actions) {
    let chosen = [page.chosen_row(0), page.chosen_row(1)];
    match chosen {
        [Some(a), Some(b)] => {
            let words = format!("Compare {} with {}", page.name_of(a), page.name_of(b));
            if Push::primary(&words).show(ui).on_hover_text("What only one of them holds at its peak, by stack.").clicked() {
                actions.send(Action::CompareFiles(a.path.clone(), b.path.clone()));
            }
            for row in [a, b] {
                if Push::plain(&format!("Open {}", page.name_of(row))).show(ui).clicked() {
                    actions.send(Action::Open(vec![row.path.clone()]));
                }
            }
        }
        [Some(one), None] | [None, Some(one)] => {
            if Push::primary(&format!("Open {}", page.name_of(one))).show(ui).clicked() {
                actions.send(Action::Open(vec![one.path.clone()]));
            }
            ui.label(Type::Caption.text("A click on another compares the two.").color(Tokens::of(ui).text3));
        }
        [None, None] => {
            if let Some(row) = page.overview().first_oom.and_then(|i| page.rows().get(i))
                && Push::primary(&format!("Open {}, which failed{}", page.name_of(row), first_of(page))).show(ui).clicked()
            {
                actions.send(Action::Open(vec![row.path.clone()]));
            }
            ui.label(Type::Caption.text("Click two to compare them; double click opens one.").color(Tokens::of(ui).text3));
        }
    }
}

/// ` first` when several ranks failed and their times tell which one was first.
fn first_of(page: &Ranks) -> &'static str {
    if page.overview().is_first_by_time && page.overview().failed > 1 { " first" } else { "" }
}

/// The accessible description of a row.
pub(super) fn describe(page: &Ranks, at: usize) -> String {
    let row = &page.rows()[at];
    if row.is_pending {
        return format!("{}, {}, not read yet", page.name_at(at), row.file);
    }
    let oom = if row.ooms > 0 { ", ran out of memory" } else { "" };
    format!("{}, {}, peak {}{oom}", page.name_at(at), row.file, Bytes(row.peak_reserved))
}

fn inside(ui: &mut Ui, rect: Rect, salt: &str, contents: impl FnOnce(&mut Ui)) {
    ui.scope_builder(UiBuilder::new().max_rect(rect).layout(Layout::top_down(Align::Min)).id_salt(salt), |ui| {
        ui.set_clip_rect(rect.intersect(ui.clip_rect()));
        contents(ui);
    });
}

/// Draws the overlay of the chosen ranks in the lower part of `room` and returns the rest. It is at the bottom so that what the
/// user clicks does not move away under the pointer.
fn with_overlay(page: &Ranks, ui: &mut Ui, t: &Tokens, room: Rect) -> Rect {
    if page.chosen.iter().all(Option::is_none) {
        return room;
    }
    let line = room.bottom() - (room.height() * 0.5).min(280.0);
    inside(ui, room.with_min_y(line), "overlay", |ui| {
        rule(ui);
        ui.add_space(8.0);
        overlay(page, ui, t, room.bottom() - line - 36.0);
    });
    room.with_max_y(line)
}

/// Few ranks: the table with bars over the whole width, and a large curve for each.
fn few(page: &Ranks, ui: &mut Ui, t: &Tokens, body: Rect, wish: &mut Wish) {
    let top = pictures::greatest(page.rows());
    let wanted = HEADER + page.rows().len() as f32 * ROW + 4.0;
    let line = body.top() + wanted.min((body.height() * 0.5).max(HEADER + 3.0 * ROW));
    inside(ui, body.with_max_y(line), "table", |ui| table(page, ui, t, top, true, wish));
    let room = with_overlay(page, ui, t, body.with_min_y(line));
    inside(ui, room, "curves", |ui| {
        rule(ui);
        legend(page, ui, t, "Memory over each run, first event to last");
        let left = ui.available_rect_before_wrap().shrink2(vec2(16.0, 0.0));
        let axis = pictures::AXIS;
        let (columns, cell) = large_grid(left.size() - vec2(axis, 16.0), page.rows().len());
        curves(page, ui, t, top, (columns, cell), axis, wish);
    });
}

/// Many ranks: the bar chart over the whole width, below it the table with small curves beside it.
fn many(page: &Ranks, ui: &mut Ui, t: &Tokens, body: Rect, wish: &mut Wish) {
    let top = pictures::greatest(page.rows());
    let line = body.top() + 24.0 + (body.height() * 0.26).clamp(120.0, 220.0);
    inside(ui, body.with_max_y(line), "bars", |ui| {
        legend(page, ui, t, if page.are_ranks() { "Peaks by rank" } else { "Peaks" });
        let (area, response) = ui.allocate_exact_size(ui.available_size(), Sense::click());
        response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "Peaks by rank"));
        let plot = pictures::plot_of(area);
        let pointed = response.hover_pos().and_then(|p| bar_at(plot, page.rows().len(), p.x));
        pictures::bars(ui.painter(), t, area, page, top, pointed);
        act(page, &response, pointed, wish);
        if let Some(i) = pointed {
            response.on_hover_ui_at_pointer(|ui| card(page, ui, t, i));
        }
    });
    let below = body.with_min_y(line);
    let split = below.left() + (below.width() * 0.5).clamp(420.0f32.min(below.width() * 0.6), 820.0);
    ui.painter().hline(below.x_range(), line, egui::Stroke::new(1.0, t.line));
    ui.painter().vline(split, below.y_range(), egui::Stroke::new(1.0, t.line));
    inside(ui, Rect::from_min_max(below.min + vec2(0.0, 1.0), pos2(split, below.bottom())), "table", |ui| {
        table(page, ui, t, top, false, wish);
    });
    let right = with_overlay(page, ui, t, Rect::from_min_max(pos2(split + 1.0, below.top() + 1.0), below.max));
    inside(ui, right, "curves", |ui| {
        ui.add_space(8.0);
        let shape = grid(ui.available_width() - 32.0 - 8.0, page.rows().len());
        curves(page, ui, t, top, shape, 0.0, wish);
    });
}

fn legend(page: &Ranks, ui: &mut Ui, t: &Tokens, title: &str) {
    let o = page.overview();
    let mut entries = vec![LegendEntry::new(Swatch::Fill(t.slot(0)), "active")];
    let groups = match &o.division {
        Some(Division::Groups(groups)) => groups.len().max(1),
        _ => 1,
    };
    if groups > 1 {
        entries = (0..groups)
            .map(|group| {
                let name = match group {
                    0 => "active, where the reserved peak is lowest".to_owned(),
                    _ if group + 1 == groups => "where it is highest".to_owned(),
                    _ => format!("in group {}", group + 1),
                };
                LegendEntry::new(Swatch::Fill(t.slot(group)), name)
            })
            .collect();
    }
    if !o.outliers.is_empty() {
        entries.push(LegendEntry::new(
            Swatch::Fill(t.slot(groups)),
            if groups > 1 { "like none of them" } else { "active, outlier" },
        ));
    }
    entries.push(LegendEntry::new(Swatch::Free, "reserved, not active"));
    if o.failed > 0 {
        entries.push(LegendEntry::new(Swatch::Fill(t.red), "ran out of memory"));
    }
    if page.median_shown().is_some() {
        entries.push(LegendEntry::new(Swatch::Dashed(t.text2), "median peak"));
    }
    let _ = legend_row(ui, title, 0.0, &entries, "");
}

/// The grid of curves. `axis` points at the left are reserved for the scale of bytes.
fn curves(page: &Ranks, ui: &mut Ui, t: &Tokens, top: u64, (columns, cell): (usize, Vec2), axis: f32, wish: &mut Wish) {
    let lines = page.order.len().div_ceil(columns);
    let height = cell.y + GAP;
    ScrollArea::vertical().id_salt("multiples").auto_shrink(false).show_rows(ui, height, lines, |ui, range| {
        if let Some(at) = page.reveal.and_then(|i| page.order.iter().position(|&row| row == i)) {
            let top = ui.max_rect().top() + ((at / columns) as f32 - range.start as f32) * height;
            ui.scroll_to_rect(Rect::from_min_size(pos2(ui.max_rect().left(), top), vec2(1.0, height)), None);
        }
        for line in range {
            let strip = row::line(ui, height);
            for (column, &i) in page.order.iter().skip(line * columns).take(columns).enumerate() {
                let corner = pos2(strip.left() + 16.0 + axis + column as f32 * (cell.x + GAP), strip.top());
                let place = Rect::from_min_size(corner, cell);
                if column == 0 && axis > 0.0 {
                    pictures::scale(ui.painter(), t, place, top);
                }
                let response =
                    ui.interact(place, ui.scope_id().with(("rank", i)), Sense::click()).on_hover_cursor(CursorIcon::PointingHand);
                response.widget_info(|| WidgetInfo::labeled(Role::Button, true, describe(page, i)));
                pictures::curve(ui.painter(), t, place, page, i, top, response.hovered());
                act(page, &response, Some(i), wish);
                if wish.choose == Some(i) && response.clicked() {
                    wish.reveal = Some(i);
                }
                response.on_hover_ui_at_pointer(|ui| card(page, ui, t, i));
            }
        }
    });
}

/// A click chooses the row, a double click opens it.
fn act(page: &Ranks, response: &egui::Response, at: Option<usize>, wish: &mut Wish) {
    let Some(at) = at.filter(|&i| i < page.rows().len()) else { return };
    if response.double_clicked() {
        wish.open = Some(at);
    } else if response.clicked() {
        wish.choose = Some(at);
    }
}

fn card(page: &Ranks, ui: &mut Ui, t: &Tokens, at: usize) {
    let row = &page.rows()[at];
    ui.set_max_width(340.0);
    ui.label(Type::Title.text(page.name_at(at)).color(t.text1));
    ui.label(Type::Mono.text(&row.file).color(t.text2));
    let mut line = |name: &str, value: String| {
        ui.horizontal(|ui| {
            ui.label(Type::Body.text(name).color(t.text2));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(Type::Mono.text(value).color(t.text1)));
        });
    };
    if row.is_pending {
        line("not read yet", String::new());
        return;
    }
    line("peak reserved", Bytes(row.peak_reserved).to_string());
    line("peak active", Bytes(row.peak_active).to_string());
    line("reserved at the end", Bytes(row.end_reserved).to_string());
    line("active at the end", Bytes(row.end_active).to_string());
    line("events", count(row.events as u64));
    line("device", row.device.to_string());
    if row.ooms > 0 {
        let bytes = Bytes(row.first_oom_bytes);
        line(
            "out of memory",
            match row.ooms {
                1 => format!("once, for {bytes}"),
                n => format!("{} times, first for {bytes}", count(n as u64)),
            },
        );
    }
}
