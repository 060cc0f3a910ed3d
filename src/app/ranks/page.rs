//! The ranks page on screen: the answer in a sentence, the table, the bars, the small multiples.

use egui::{Align, CursorIcon, Layout, Rect, Role, ScrollArea, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

use super::layout::{Column as Sort, bar_at, grid};
use super::overlay::overlay;
use super::{Ranks, pictures};
use crate::analysis::ranks::RankRow;
use crate::app::action::{Action, Actions};
use crate::app::theme::{Tokens, Type, text};
use crate::app::widgets::axis::{UnitAt, byte_ticks};
use crate::app::widgets::button::{self, Push};
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::label;
use crate::app::widgets::legend::{LegendEntry, legend_row};
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::pane::{progress_line, rule};
use crate::app::widgets::table::{Column, Table, Width};
use crate::app::widgets::viewport::Scale;
use crate::units::{Bytes, count, counted};

/// What a gesture asks of the page, applied after everything is drawn.
#[derive(Default)]
struct Wish {
    choose: Option<(usize, bool)>,
    open: Option<usize>,
    sort: Option<Sort>,
    job: Option<usize>,
}

/// Draws the page over the whole of `ui`.
pub fn page_ui(page: &mut Ranks, ui: &mut Ui, t: &Tokens, actions: &Actions) {
    let rect = ui.max_rect();
    ui.painter().rect_filled(rect, 0.0, t.s1);
    let mut wish = Wish::default();
    let head = Rect::from_min_size(rect.min, vec2(rect.width(), 78.0));
    header(page, ui, t, head, actions, &mut wish);
    if !page.is_done() {
        let share = (page.files > 0).then(|| page.answered as f32 / page.files as f32);
        progress_line(ui, Rect::from_min_max(pos2(rect.left(), head.bottom()), rect.max), share);
    }
    let body = Rect::from_min_max(pos2(rect.left(), head.bottom() + 2.0), rect.max);
    let split = body.left() + (body.width() * 0.44).clamp(420.0f32.min(body.width() * 0.6), 760.0);
    let left = Rect::from_min_max(body.min, pos2(split, body.bottom()));
    let mut right = Rect::from_min_max(pos2(split + 1.0, body.top()), body.max);
    // Below the grid, so that what is clicked does not move away under the pointer.
    if page.chosen.iter().any(Option::is_some) {
        let below = Rect::from_min_max(pos2(right.left(), right.bottom() - (right.height() * 0.4).min(214.0)), right.max);
        right.max.y = below.top();
        ui.scope_builder(UiBuilder::new().max_rect(below).layout(Layout::top_down(Align::Min)).id_salt("overlay"), |ui| {
            rule(ui);
            ui.add_space(8.0);
            overlay(page, ui, t, below.height() - 36.0);
        });
    }
    ui.painter().vline(split, body.y_range(), egui::Stroke::new(1.0, t.line));
    ui.scope_builder(UiBuilder::new().max_rect(left).layout(Layout::top_down(Align::Min)).id_salt("table"), |ui| {
        ui.set_clip_rect(left.intersect(ui.clip_rect()));
        table(page, ui, t, &mut wish);
    });
    ui.scope_builder(UiBuilder::new().max_rect(right).layout(Layout::top_down(Align::Min)).id_salt("pictures"), |ui| {
        ui.set_clip_rect(right.intersect(ui.clip_rect()));
        charts(page, ui, t, &mut wish);
    });
    if let Some(job) = wish.job {
        page.show_job(job);
    }
    if let Some(column) = wish.sort {
        page.sort_by(column);
    }
    if let Some((row, second)) = wish.choose {
        page.choose(row, second);
    }
    if let Some(row) = wish.open.and_then(|i| page.rows().get(i)) {
        actions.send(Action::Open(vec![row.path.clone()]));
    }
}

fn header(page: &Ranks, ui: &mut Ui, t: &Tokens, rect: Rect, actions: &Actions, wish: &mut Wish) {
    let inner = rect.shrink2(vec2(16.0, 0.0));
    ui.painter().rect_filled(rect, 0.0, t.s2);
    ui.scope_builder(UiBuilder::new().max_rect(inner).layout(Layout::top_down(Align::Min)).id_salt("head"), |ui| {
        ui.add_space(12.0);
        // What is not read yet may change the answer: it is no verdict before the end.
        let so_far = format!("So far, {} of {} files read: ", count(page.answered as u64), count(page.files as u64));
        let sentence = match (page.rows().is_empty(), page.is_done()) {
            (true, _) => "Reading the ranks…".to_owned(),
            (false, true) => page.overview().sentence.clone(),
            (false, false) => so_far + &page.overview().sentence.replacen("None of", "none of", 1),
        };
        label::paragraph(ui, &sentence, Type::Lead, t.text1);
        ui.add_space(8.0);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 8.0;
            wish.job = job_chooser(page, ui);
            buttons(page, ui, actions);
            let read = if page.is_done() {
                format!("{} read", counted(page.answered as u64, "file", "files"))
            } else {
                format!("{} of {} files read", count(page.answered as u64), count(page.files as u64))
            };
            ui.label(text::caption(read).color(t.text3));
            if !page.errors.is_empty() {
                let words = format!("{} could not be read", counted(page.errors.len() as u64, "file", "files"));
                let response = ui.add(egui::Label::new(text::caption(words).color(t.amber)).sense(Sense::click()));
                response.on_hover_ui(|ui| {
                    ui.set_max_width(560.0);
                    for sentence in page.errors.iter().take(12) {
                        ui.label(text::body(sentence).color(t.text1));
                    }
                    if page.errors.len() > 12 {
                        ui.label(text::caption(format!("and {} more", page.errors.len() - 12)).color(t.text3));
                    }
                });
            }
        });
    });
}

/// Which job is on screen, where there are several; the one that the user chose now.
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
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
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
        }
        [Some(one), None] | [None, Some(one)] => {
            if Push::primary(&format!("Open {}", page.name_of(one))).show(ui).clicked() {
                actions.send(Action::Open(vec![one.path.clone()]));
            }
            ui.label(text::caption("Ctrl click on another compares the two.").color(Tokens::of(ui).text3));
        }
        [None, None] => {
            if let Some(row) = page.overview().first_oom.and_then(|i| page.rows().get(i))
                && Push::primary(&format!("Open {}, which failed", page.name_of(row))).show(ui).clicked()
            {
                actions.send(Action::Open(vec![row.path.clone()]));
            }
            ui.label(text::caption("Click chooses a rank, double click opens it.").color(Tokens::of(ui).text3));
        }
    }
}

fn table(page: &Ranks, ui: &mut Ui, t: &Tokens, wish: &mut Wish) {
    let columns = [
        Column::text("rank", Width::Exact(44.0)).sorts(),
        Column::text("file", Width::Share(1.0, 80.0)).sorts(),
        Column::figure("peak reserved", 88.0).sorts(),
        Column::figure("end reserved", 88.0).sorts(),
        Column::figure("end active", 88.0).sorts(),
        Column::text("", Width::Exact(104.0)).sorts(),
    ];
    let at = Sort::ALL.iter().position(|&c| c == page.sort.0).unwrap_or(0);
    let selected = page.chosen_row(0).and_then(|a| page.order.iter().position(|&i| std::ptr::eq(&raw const page.rows()[i], a)));
    let table = Table::new("ranks", &columns).row_height(22.0).sorted(at, page.sort.1).selected(selected);
    let name = |row: usize| describe(page, &page.rows()[page.order[row]]);
    let second = ui.input(|i| i.modifiers.command || i.modifiers.shift);
    let out = table.show(ui, page.order.len(), name, |p, row, cells| {
        let i = page.order[row];
        let r = &page.rows()[i];
        let letter = page.chosen_as(r).map_or("", |slot| if slot == 0 { "A " } else { "B " });
        let rank = match r.rank {
            _ if !page.are_ranks() => String::new(),
            Some(rank) => rank.to_string(),
            None => "?".to_owned(),
        };
        label::text_in(p, cells[0], &format!("{letter}{rank}"), Type::Mono, if letter.is_empty() { t.text1 } else { t.accent });
        // A file of two devices stands here twice.
        let file = if page.are_ranks() { r.file.clone() } else { page.name_at(i) };
        label::text_in(p, cells[1], &file, Type::Body, t.text2);
        label::text_in_right(p, cells[2], &Bytes(r.peak_reserved).to_string(), Type::Mono, t.text1);
        label::text_in_right(p, cells[3], &Bytes(r.end_reserved).to_string(), Type::Mono, t.text2);
        label::text_in_right(p, cells[4], &Bytes(r.end_active).to_string(), Type::Mono, t.text2);
        let (words, ink) = remark(page, i, t);
        label::text_in(p, cells[5], words, Type::Caption, ink);
    });
    let position = |row: usize| page.order.get(row).copied();
    wish.sort = out.sort.map(|i| Sort::ALL[i.min(Sort::ALL.len() - 1)]);
    wish.choose = out.clicked.and_then(position).map(|i| (i, second));
    wish.open = out.double_clicked.and_then(position);
}

/// What is odd about a row, in as few words as there are, and its colour.
fn remark(page: &Ranks, at: usize, t: &Tokens) -> (&'static str, egui::Color32) {
    let (row, overview) = (&page.rows()[at], page.overview());
    if row.ooms > 0 {
        let first = overview.first_oom == Some(at) && overview.is_first_by_time && overview.failed > 1;
        return (if first { "first OOM" } else { "OOM" }, t.red);
    }
    if row.is_cut_short {
        return ("file breaks off", t.amber);
    }
    if overview.outliers.contains(&at) {
        let words = if row.peak_reserved > overview.median_peak { "above the rest" } else { "below the rest" };
        return (words, t.text2);
    }
    ("", t.text3)
}

fn describe(page: &Ranks, row: &RankRow) -> String {
    let oom = if row.ooms > 0 { ", ran out of memory" } else { "" };
    format!("{}, {}, peak {}{oom}", page.name_of(row), row.file, Bytes(row.peak_reserved))
}

fn charts(page: &Ranks, ui: &mut Ui, t: &Tokens, wish: &mut Wish) {
    ui.spacing_mut().item_spacing.y = 0.0;
    let mut entries = vec![
        LegendEntry::new(Swatch::Fill(t.slot(0)), "active"),
        LegendEntry::new(Swatch::Free, "reserved, not in use"),
        LegendEntry::new(Swatch::Fill(t.red), "ran out of memory"),
    ];
    if page.are_ranks() {
        entries.insert(1, LegendEntry::new(Swatch::Fill(t.slot(1)), "active, outlier"));
        entries.push(LegendEntry::new(Swatch::Dashed(t.text2), "median"));
    }
    let title = if page.are_ranks() { "Peaks by rank" } else { "Peaks" };
    let _ = legend_row(ui, title, 0.0, &entries, "");
    let (area, response) = ui.allocate_exact_size(vec2(ui.available_width(), 168.0), Sense::click());
    response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "Peaks by rank"));
    let plot = Rect::from_min_max(pos2(area.left() + 72.0, area.top() + 16.0), pos2(area.right() - 16.0, area.bottom() - 12.0));
    let pointed = response.hover_pos().and_then(|p| bar_at(plot, page.rows().len(), p.x));
    let top = pictures::greatest(page.rows()) as f64;
    let (scale, ticks) = (Scale::vertical(0.0, top, plot.y_range()), byte_ticks(0.0, top, 4));
    let mut grid_lines = Batch::new(ui.painter());
    ticks.grid_down(&mut grid_lines, t, &scale, plot);
    grid_lines.paint(ui.painter());
    ticks.paint_down(ui.painter(), t, &scale, plot.left() - 8.0, plot.y_range().expand(8.0), UnitAt::Last);
    pictures::bars(ui.painter(), t, plot, page, pointed);
    act(page, ui, &response, pointed, wish);
    if let Some(i) = pointed {
        response.on_hover_ui_at_pointer(|ui| card(page, ui, t, i));
    }
    rule(ui);
    let width = ui.available_width() - 32.0 - 8.0;
    let (columns, cell) = grid(width, page.rows().len());
    let lines = page.order.len().div_ceil(columns);
    let height = cell.y + 14.0;
    ScrollArea::vertical().id_salt("multiples").auto_shrink(false).show_rows(ui, height, lines, |ui, range| {
        for line in range {
            let (strip, _) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::hover());
            for (column, &i) in page.order.iter().skip(line * columns).take(columns).enumerate() {
                let corner = pos2(strip.left() + 16.0 + column as f32 * (cell.x + 12.0), strip.top() + 8.0);
                let place = Rect::from_min_size(corner, cell);
                let response =
                    ui.interact(place, ui.scope_id().with(("rank", i)), Sense::click()).on_hover_cursor(CursorIcon::PointingHand);
                response.widget_info(|| WidgetInfo::labeled(Role::Button, true, describe(page, &page.rows()[i])));
                pictures::small_multiple(ui.painter(), t, place, page, i, response.hovered());
                act(page, ui, &response, Some(i), wish);
                response.on_hover_ui_at_pointer(|ui| card(page, ui, t, i));
            }
        }
    });
}

/// Click chooses A, with Ctrl or Shift B; double click opens.
fn act(page: &Ranks, ui: &Ui, response: &egui::Response, at: Option<usize>, wish: &mut Wish) {
    let Some(at) = at.filter(|&i| i < page.rows().len()) else { return };
    if response.double_clicked() {
        wish.open = Some(at);
    } else if response.clicked() {
        wish.choose = Some((at, ui.input(|i| i.modifiers.command || i.modifiers.shift)));
    }
}

/// Everything known of a rank.
fn card(page: &Ranks, ui: &mut Ui, t: &Tokens, at: usize) {
    let row = &page.rows()[at];
    ui.set_max_width(340.0);
    ui.label(text::title(page.name_of(row)).color(t.text1));
    ui.label(text::mono(&row.file).color(t.text2));
    let mut line = |name: &str, value: String| {
        ui.horizontal(|ui| {
            ui.label(text::body(name).color(t.text2));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(text::mono(value).color(t.text1)));
        });
    };
    line("peak reserved", Bytes(row.peak_reserved).to_string());
    line("peak active", Bytes(row.peak_active).to_string());
    line("reserved at the end", Bytes(row.end_reserved).to_string());
    line("active at the end", Bytes(row.end_active).to_string());
    line("events", count(row.events as u64));
    line("device", row.device.to_string());
    if row.ooms > 0 {
        line("out of memory", format!("{} times, first for {}", count(row.ooms as u64), Bytes(row.first_oom_bytes)));
    }
}
