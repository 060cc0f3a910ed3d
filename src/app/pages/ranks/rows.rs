//! The table of the ranks page: one row per rank, with its peaks as a bar when there is room.

use egui::Ui;

use super::layout::{Column as Sort, Shown};
use super::page::{Wish, describe};
use super::{Ranks, pictures};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::bar::Bar;
use crate::app::widgets::label;
use crate::app::widgets::table::{Column, Table, Width};
use vramscope_core::units::Bytes;

/// Height of the header.
pub const HEADER: f32 = 24.0;
/// Height of a row with a bar.
pub const ROW: f32 = 26.0;

/// Shows the table in the available space. `with_bars` adds bars, for pages without a bar chart.
pub fn table(page: &Ranks, ui: &mut Ui, t: &Tokens, top: u64, with_bars: bool, wish: &mut Wish) {
    let longest = (0..page.rows().len()).map(|i| file_of(page, i)).max_by_key(|name| name.chars().count()).unwrap_or_default();
    let shown = Shown {
        bar: with_bars,
        remarks: (0..page.rows().len()).any(|i| !remark(page, i, t).0.is_empty()),
        name: label::width(ui.painter(), &longest, Type::Body).ceil() + 2.0,
    };
    let fitting = Sort::fitting(ui.available_width(), shown);
    let columns: Vec<Column<'_>> = fitting
        .iter()
        .map(|&(column, points)| match column {
            // For single recordings this column only shows A and B.
            Sort::Rank if !page.are_ranks() => Column::text("", Width::Exact(points.min(16.0))),
            Sort::Rank => Column::text("rank", Width::Exact(points)).sorts(),
            Sort::File => Column::text("file", Width::Share(1.0, points)).sorts(),
            Sort::Device => Column::figure("device", points).sorts(),
            Sort::Bar => Column::text("", Width::Share(3.0, points)),
            Sort::Peak => Column::figure("peak reserved", points).sorts(),
            Sort::PeakActive => Column::figure("peak active", points).sorts(),
            Sort::End => Column::figure("end reserved", points).sorts(),
            Sort::EndActive => Column::figure("end active", points).sorts(),
            Sort::Remark => Column::text("remark", Width::Exact(points)).sorts(),
        })
        .collect();
    let selected = page.chosen_row(0).and_then(|a| page.order.iter().position(|&i| std::ptr::eq(&raw const page.rows()[i], a)));
    let mut table =
        Table::new("ranks", &columns).row_height(if with_bars { ROW } else { 22.0 }).selected(selected).keys(page.focus);
    let is_shown = |column: Sort| column == page.sort.0 && (column != Sort::Rank || page.are_ranks());
    if let Some(at) = fitting.iter().position(|c| is_shown(c.0)) {
        table = table.sorted(at, page.sort.1);
    }
    let name = |row: usize| describe(page, page.order[row]);
    let out = table.show(ui, page.order.len(), name, |p, row, cells| {
        let i = page.order[row];
        let r = &page.rows()[i];
        for &(at, cell) in cells {
            let column = fitting[at].0;
            let bytes = |n: u64, ink| {
                if !r.is_pending {
                    label::figure(p, cell, &Bytes(n).to_string(), ink);
                }
            };
            match column {
                Sort::Rank => {
                    let letter = page.chosen_as(r).map_or("", |slot| if slot == 0 { "A " } else { "B " });
                    let rank = match r.rank {
                        _ if !page.are_ranks() => String::new(),
                        Some(rank) => rank.to_string(),
                        None => "?".to_owned(),
                    };
                    let ink = if letter.is_empty() { t.text1 } else { t.accent };
                    label::text_in(p, cell, &format!("{letter}{rank}"), Type::Mono, ink);
                }
                // A file with two devices has two rows.
                Sort::File => _ = label::text_in(p, cell, &file_of(page, i), Type::Body, t.text2),
                Sort::Device if r.is_pending => {}
                Sort::Device => _ = label::text_in_right(p, cell, &r.device.to_string(), Type::Mono, t.text2),
                Sort::Bar if r.is_pending => {}
                Sort::Bar => {
                    let active = r.peak_active.min(r.peak_reserved);
                    let mut bar = Bar::new(top as f64)
                        .part(active as f64, pictures::ink(page, t, i))
                        .hatched((r.peak_reserved - active) as f64);
                    if let Some(median) = page.median_shown() {
                        bar = bar.tick(median as f64, t.text2);
                    }
                    bar.paint(p, t, cell);
                }
                Sort::Peak => bytes(r.peak_reserved, t.text1),
                Sort::PeakActive => bytes(r.peak_active, t.text2),
                Sort::End => bytes(r.end_reserved, t.text2),
                Sort::EndActive => bytes(r.end_active, t.text2),
                Sort::Remark => {
                    let (words, ink) = remark(page, i, t);
                    label::text_in(p, cell, &words, Type::Caption, ink);
                }
            }
        }
    });
    let position = |row: usize| page.order.get(row).copied();
    wish.sort = out.sort.and_then(|at| fitting.get(at)).map(|c| c.0);
    wish.choose = out.clicked.and_then(position);
    wish.open = out.double_clicked.and_then(position);
    (wish.focus, wish.focused) = (out.moved, out.focused);
}

/// The file name of a row, or the row's name for single recordings.
fn file_of(page: &Ranks, at: usize) -> String {
    if page.are_ranks() { page.rows()[at].file.clone() } else { page.name_at(at) }
}

/// A short remark on a row, and its colour.
fn remark(page: &Ranks, at: usize, t: &Tokens) -> (String, egui::Color32) {
    let (row, overview) = (&page.rows()[at], page.overview());
    if row.is_pending {
        return ("not read yet".to_owned(), t.text3);
    }
    let mut words = Vec::new();
    let mut ink = t.text2;
    words.extend(row.counters_text().or_else(|| row.is_counters.then(|| "counters alone".to_owned())));
    if row.is_cut_short {
        words.push("file breaks off".to_owned());
        ink = t.amber;
    }
    if row.ooms > 0 {
        let is_first = overview.first_oom == Some(at) && overview.is_first_by_time && overview.failed > 1;
        words.insert(0, if is_first { "first out of memory" } else { "out of memory" }.to_owned());
        ink = t.red;
    }
    if overview.outliers.binary_search(&at).is_ok() && !words.is_empty() {
        words.push("outlier".to_owned());
    } else if overview.outliers.binary_search(&at).is_ok() {
        let away = row.peak_reserved.abs_diff(overview.median_peak) as f64 / overview.median_peak.max(1) as f64 * 100.0;
        let side = if row.peak_reserved > overview.median_peak { "above" } else { "below" };
        // When the peaks form groups, a distance from the median says nothing.
        words.push(match overview.division {
            Some(_) => "outlier".to_owned(),
            None => format!("{away:.0}\u{a0}% {side} median"),
        });
    }
    (words.join(", "), ink)
}
