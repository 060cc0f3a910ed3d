//! The table of the ranks page: one row per rank, with its peaks as a bar when there is room.

use egui::Ui;

use super::layout::Column as By;
use super::page::{Wish, describe};
use super::{Ranks, pictures};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Bar, Cell, Column, Table, Width, label};
use vramscope_core::units::Bytes;

pub const HEADER: f32 = 24.0;
/// Height of a row with a bar.
pub const ROW: f32 = 26.0;

/// Shows the table in the available space. `with_bars` adds bars, for pages without a bar chart.
pub fn table(page: &Ranks, ui: &mut Ui, t: &Tokens, top: u64, with_bars: bool, wish: &mut Wish) {
    let rows = || 0..page.rows().len();
    let longest = rows().map(|i| file_of(page, i)).max_by_key(|name| name.chars().count()).unwrap_or_default();
    // A file name that tells rows apart keeps its room before figures do.
    let name = (label::width(ui.painter(), &longest, Type::Body).ceil() + 2.0).clamp(96.0, 220.0);
    let of = |i: usize| &page.rows()[i];
    let bytes = |c: &Cell<'_>, i: usize, n: u64, ink| {
        if !of(i).is_pending {
            c.figure(Bytes(n).to_string(), ink);
        }
    };
    let rank = |c: &Cell<'_>, &i: &usize| {
        let letter = page.chosen_as(of(i)).map_or("", |slot| if slot == 0 { "A " } else { "B " });
        let rank = match of(i).rank {
            _ if !page.are_ranks() => String::new(),
            Some(rank) => rank.to_string(),
            None => "?".to_owned(),
        };
        c.text(format!("{letter}{rank}"), Type::Mono, if letter.is_empty() { t.text1 } else { t.accent });
    };
    let mut columns: Vec<Column<'_, usize, By>> = vec![match page.are_ranks() {
        true => Column::text("rank", Width::Exact(44.0), rank).sorts(By::Rank),
        // For single recordings this column only shows A and B.
        false => Column::text("", Width::Exact(16.0), rank),
    }];
    // A file with two devices has two rows.
    let file = Column::text("file", Width::Share(1.0, name), |c, &i: &usize| _ = c.text(file_of(page, i), Type::Body, t.text2));
    columns.push(file.sorts(By::File));
    let device = Column::figure("device", 44.0, |c, &i: &usize| {
        if !of(i).is_pending {
            c.figure(of(i).device.to_string(), t.text2);
        }
    });
    columns.push(device.sorts(By::Device).descends(false).goes(2));
    if with_bars {
        let bar = |c: &Cell<'_>, &i: &usize| {
            let r = of(i);
            let active = r.peak_active.min(r.peak_reserved);
            let bar = Bar::new(top as f64).part(active as f64, pictures::ink(page, t, i));
            let bar = bar.hatched((r.peak_reserved - active) as f64);
            if !r.is_pending {
                c.bar(&page.median_shown().map_or(bar.clone(), |median| bar.tick(median as f64, t.text2)));
            }
        };
        columns.push(Column::text("", Width::Share(3.0, 160.0), bar).goes(1));
    }
    columns.extend([
        Column::figure("peak reserved", 84.0, |c, &i: &usize| bytes(c, i, of(i).peak_reserved, t.text1)).sorts(By::Peak),
        Column::figure("peak active", 84.0, |c, &i: &usize| bytes(c, i, of(i).peak_active, t.text2))
            .sorts(By::PeakActive)
            .goes(5),
        Column::figure("end reserved", 84.0, |c, &i: &usize| bytes(c, i, of(i).end_reserved, t.text2)).sorts(By::End).goes(3),
        Column::figure("end active", 84.0, |c, &i: &usize| bytes(c, i, of(i).end_active, t.text2)).sorts(By::EndActive).goes(4),
    ]);
    if rows().any(|i| !remark(page, i, t).0.is_empty()) {
        let column = Column::text("remark", Width::Exact(132.0), |c, &i: &usize| {
            let (words, ink) = remark(page, i, t);
            c.text(words, Type::Caption, ink);
        });
        columns.push(column.sorts(By::Remark).descends(true));
    }
    let selected = page.chosen_row(0).and_then(|a| page.order.iter().position(|&i| std::ptr::eq(of(i), a)));
    let mut sort = page.sort.clone();
    let table = Table::sorted("ranks", columns, &mut sort).selected(selected);
    let out = table.row_height(if with_bars { ROW } else { 22.0 }).show(
        ui,
        page.order.len(),
        |row| page.order.get(row).copied(),
        |_, &i| describe(page, i),
    );
    let position = |row: usize| page.order.get(row).copied();
    wish.sort = Some(sort).filter(|sort| (sort.by, sort.descending) != (page.sort.by, page.sort.descending));
    wish.choose = out.clicked.or(out.entered).and_then(position);
    wish.open = out.double_clicked.and_then(position);
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
