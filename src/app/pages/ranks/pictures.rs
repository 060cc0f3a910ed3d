//! Pictures of the ranks page: peaks as bars, small and large curves.

use egui::{Align2, Color32, Painter, Rangef, Rect, Stroke, StrokeKind, pos2};

use super::Ranks;
use super::layout::{bar, callouts, label_step, mark};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cut, DASH_LIMIT, PixelColumn, Scale, UnitAt, byte_ticks, label, most_down};
use vramscope_core::compare::ranks::{Division, RankRow};
use vramscope_core::units::Bytes;

/// The value at the top of all pictures: the highest peak, or the size of the card if it is known and not much larger.
pub fn greatest(rows: &[RankRow]) -> u64 {
    let peak = rows.iter().map(|r| r.peak_reserved).max().unwrap_or(0).max(1);
    let card = rows.iter().filter_map(|r| r.capacity).max().unwrap_or(0);
    if card > peak && card < peak.saturating_mul(2) { card } else { peak + peak / 12 }
}

/// Width of the scale of bytes at the left of a picture.
pub const AXIS: f32 = 72.0;

/// From this many bars on, the bar of a failed rank is red as a whole with a line up to its name, because a foot alone would be
/// too small to see.
const MANY_NARROW: usize = 64;

const NAME: f32 = 18.0;

/// The colour of a rank's active memory. Each group of peaks has its own colour, and outliers have the next.
pub fn ink(page: &Ranks, t: &Tokens, at: usize) -> Color32 {
    let o = page.overview();
    let has = |rows: &Vec<usize>| rows.binary_search(&at).is_ok();
    match &o.division {
        Some(Division::Groups(groups)) => match groups.iter().position(has) {
            Some(group) => t.slot(group),
            None if has(&o.outliers) => t.slot(groups.len()),
            // A file that is cut short belongs to no group.
            None => t.other,
        },
        _ => t.slot(usize::from(has(&o.outliers))),
    }
}

/// The rectangle of the bars in their chart: names above, ranks below, bytes at the left.
pub fn plot_of(area: Rect) -> Rect {
    Rect::from_min_max(pos2(area.left() + AXIS + 8.0, area.top() + 18.0), pos2(area.right() - 16.0, area.bottom() - 24.0))
}

/// One bar per rank with a scale: active bytes at the peak in colour, the rest of reserved memory hatched, and a red foot if the
/// rank ran out of memory. A line marks the median. The first failed rank and the highest one are named above their bars.
pub fn bars(painter: &Painter, t: &Tokens, area: Rect, page: &Ranks, top: u64, hovered: Option<usize>) {
    let plot = plot_of(area);
    let rows = page.rows();
    let n = rows.len();
    let share = |bytes: u64| bytes as f64 / top.max(1) as f64;
    let (axis, ticks) = (Scale::vertical(0.0, top as f64, plot.y_range()), byte_ticks(0.0, top as f64, most_down(plot.height())));
    let mut batch = Batch::new(painter).hatch_origin(plot.min);
    ticks.grid_down(&mut batch, t, &axis, plot);
    for (i, row) in rows.iter().enumerate() {
        let reserved = bar(plot, i, n, share(row.peak_reserved));
        if hovered == Some(i) || page.chosen_as(row).is_some() {
            let column = reserved.down(plot.top(), plot.bottom());
            batch.rect_at_least_a_pixel(column, t.s3);
        }
        if row.is_pending {
            continue;
        }
        let active = bar(plot, i, n, share(row.peak_active.min(row.peak_reserved)));
        batch.rect_at_least_a_pixel(reserved, t.s4);
        batch.hatch(reserved.with_max_y(active.top()), t.hatch);
        batch.rect_at_least_a_pixel(active, ink(page, t, i));
    }
    // Marks are drawn after all bars, so that no bar covers a neighbour's mark where marks are wider than bars.
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.ooms > 0) {
        let whole = bar(plot, i, n, share(row.peak_reserved));
        let foot = mark(plot, whole);
        batch.rect(foot, t.red);
        if n > MANY_NARROW {
            let column = |top, bottom| foot.down(top, bottom);
            batch.rect(column(whole.top(), plot.bottom()), t.red);
            // A thin line, because a wide column would look like a higher bar.
            let middle = foot.center().x;
            let line = Rect::from_min_max(pos2(middle - 0.5, plot.top()), pos2(middle + 0.5, whole.top()));
            batch.rect_at_least_a_pixel(line, Tokens::at(t.red, 0.6));
        }
    }
    if let Some(median) = page.median_shown() {
        let median = plot.bottom() - plot.height() * share(median) as f32;
        batch.dashed_hline(plot.x_range(), median, 1.0, DASH_LIMIT, t.text2);
    }
    batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
    batch.paint(painter);
    ticks.paint_down(painter, t, &axis, plot.left() - 8.0, plot.y_range().expand(8.0), UnitAt::Last);
    ranks_below(painter, t, plot, page);
    names_above(painter, t, plot, page);
}

/// Always labels A and B under their bars, and as many other ranks as fit.
fn ranks_below(painter: &Painter, t: &Tokens, plot: Rect, page: &Ranks) {
    let rows = page.rows();
    let middle = |i: usize| bar(plot, i, rows.len(), 1.0).center().x;
    let y = plot.bottom() + 6.0;
    let rank = |i: usize| rows[i].rank.filter(|_| page.are_ranks());
    let chosen = |(slot, letter)| Some((rows.iter().position(|r| page.chosen_as(r) == Some(slot))?, letter));
    let mut letters: Vec<(usize, &str)> = ["A", "B"].into_iter().enumerate().filter_map(chosen).collect();
    letters.sort_unstable();
    let mut taken: Vec<Rangef> = Vec::new();
    for (i, letter) in letters {
        let words = rank(i).map_or_else(|| letter.to_owned(), |rank| format!("{letter} {rank}"));
        let width = label::width(painter, &words, Type::Strong);
        let least = taken.last().map_or(plot.left(), |before| before.max + 6.0);
        let left = (middle(i) - width / 2.0).min(plot.right() - width).max(least);
        label::text(painter, pos2(left, y), Align2::LEFT_TOP, &words, Type::Strong, t.accent);
        taken.push(Rangef::new(left, left + width));
    }
    let step = label_step(plot.width(), rows.len(), 36.0);
    for i in (0..rows.len()).step_by(step) {
        let Some(words) = rank(i).map(|rank| rank.to_string()) else { continue };
        let half = label::width(painter, &words, Type::Mono) / 2.0;
        let place = Rangef::new(middle(i) - half, middle(i) + half);
        if taken.iter().all(|t| !t.expand(4.0).intersects(place)) {
            label::text(painter, pos2(middle(i), y), Align2::CENTER_TOP, &words, Type::Mono, t.text3);
        }
    }
}

/// Most failed ranks, besides the first, that get a name above their bar.
const FAILED_NAMED: usize = 12;

/// Names above bars, by priority: the first failed rank, other failed ranks, outliers.
fn names_above(painter: &Painter, t: &Tokens, plot: Rect, page: &Ranks) {
    let rows = page.rows();
    let mut names: Vec<(usize, String, Type, Color32)> = Vec::new();
    let o = page.overview();
    if let Some(at) = o.first_oom {
        let first = if o.failed > 1 && o.is_first_by_time { " first" } else { "" };
        names.push((at, format!("{} out of memory{first}", page.name_at(at)), Type::Strong, t.red));
    }
    // The other failed ranks, as many as fit.
    for at in (0..rows.len()).filter(|&i| rows[i].ooms > 0 && o.first_oom != Some(i)).take(FAILED_NAMED) {
        names.push((at, page.name_at(at), Type::Caption, t.red));
    }
    // The highest outlier; when the peaks form groups, every rank outside them, most distant first.
    let highest = o.highest.filter(|at| o.outliers.binary_search(at).is_ok());
    let mut outliers: Vec<usize> = if o.division.is_some() { o.outliers.clone() } else { highest.into_iter().collect() };
    outliers.sort_by_key(|&i| std::cmp::Reverse(rows[i].peak_reserved.abs_diff(o.median_peak)));
    for at in outliers.into_iter().filter(|&at| rows[at].ooms == 0).take(FAILED_NAMED) {
        names.push((at, format!("{} {}", page.name_at(at), Bytes(rows[at].peak_reserved)), Type::Caption, t.text2));
    }
    let wanted: Vec<(f32, f32)> = names
        .iter()
        .map(|(at, words, kind, _)| (bar(plot, *at, rows.len(), 1.0).center().x, label::width(painter, words, *kind)))
        .collect();
    let top = greatest(rows) as f64;
    for ((at, words, kind, ink), left) in names.iter().zip(callouts(plot.x_range(), &wanted)) {
        if let Some(left) = left {
            let bar = bar(plot, *at, rows.len(), rows[*at].peak_reserved as f64 / top);
            painter.vline(bar.center().x, Rangef::new(plot.top(), bar.top()), Stroke::new(1.0, Tokens::at(*ink, 0.6)));
            label::text(painter, pos2(left, plot.top() - 1.0), Align2::LEFT_BOTTOM, words, *kind, *ink);
        }
    }
}

/// The scale of bytes left of a large curve.
pub fn scale(painter: &Painter, t: &Tokens, cell: Rect, top: u64) {
    let y = Rangef::new(cell.top() + NAME, cell.bottom());
    let ticks = byte_ticks(0.0, top as f64, most_down(y.span()));
    ticks.paint_down(painter, t, &Scale::vertical(0.0, top as f64, y), cell.left() - 8.0, y.expand(8.0), UnitAt::Last);
}

/// Draws a rank in a cell: name, peak, reserved as a line over active. All cells share the scale of `top` bytes.
pub fn curve(painter: &Painter, t: &Tokens, cell: Rect, page: &Ranks, at: usize, top: u64, is_hovered: bool) {
    let row = &page.rows()[at];
    let head = cell.lines(0.0, NAME);
    let plot = cell.with_min_y(head.bottom());
    let name_ink = if row.ooms > 0 { t.red } else { t.text1 };
    let peak = if row.is_pending { "not read yet".to_owned() } else { Bytes(row.peak_reserved).to_string() };
    let peak = label::text_in_right(painter, head, &peak, Type::Mono, if row.is_pending { t.text3 } else { t.text2 });
    let mut room = head;
    room.max.x = peak.left() - 6.0;
    let letter = page.chosen_as(row).map_or("", |slot| if slot == 0 { "A  " } else { "B  " });
    label::text_in(painter, room, &format!("{letter}{}", page.name_at(at)), Type::Strong, name_ink);
    let mut batch = Batch::new(painter).hatch_origin(plot.min);
    batch.rect(plot, if is_hovered { t.s3 } else { t.s2 });
    let height_of = |bytes: u64| plot.bottom() - (bytes as f64 / top.max(1) as f64) as f32 * plot.height();
    if plot.height() > 60.0 {
        let ticks = byte_ticks(0.0, top as f64, most_down(plot.height()));
        ticks.grid_down(&mut batch, t, &Scale::vertical(0.0, top as f64, plot.y_range()), plot);
    }
    let columns = batch.columns(plot.width());
    let heights = |values: &[u64]| -> Vec<Option<f32>> {
        (0..columns)
            .map(|x| {
                let from = x * values.len() / columns;
                let to = ((x + 1) * values.len()).div_ceil(columns).clamp(from, values.len());
                values.get(from..to)?.iter().max().map(|&most| height_of(most))
            })
            .collect()
    };
    let (active, reserved) = (heights(&row.active), heights(&row.reserved));
    let cells =
        |heights: &[Option<f32>]| -> Vec<Option<PixelColumn>> { heights.iter().map(|y| y.map(PixelColumn::level)).collect() };
    batch.fill_under(&cells(&active), plot.left(), plot.bottom(), Tokens::over(ink(page, t, at), t.s2, 0.75));
    let between: Vec<(f32, f32)> =
        reserved.iter().zip(&active).map(|(r, a)| (r.unwrap_or(plot.bottom()), a.unwrap_or(plot.bottom()))).collect();
    batch.hatch_between(&between, plot.left(), t.hatch);
    batch.curve(&cells(&reserved), plot.left(), 1.0, t.text1);
    if let Some(median) = page.median_shown().filter(|_| plot.height() > 60.0) {
        batch.dashed_hline(plot.x_range(), height_of(median), 1.0, DASH_LIMIT, t.text2);
    }
    if row.ooms > 0 {
        batch.rect(plot.with_min_x(plot.right() - 2.0), t.red);
    }
    batch.paint(painter);
    if page.chosen_as(row).is_some() {
        painter.rect_stroke(plot, 0.0, Stroke::new(1.0, t.accent), StrokeKind::Inside);
    }
}
