//! Paints the segment map: rows as one mesh, and the overlays.

use egui::{Align2, Painter, Rangef, Rect, Shape, pos2, vec2};

use super::hit::Scene;
use super::layout::{Group, Row};
use super::places::Places;
use super::runs::{Run, RunKind};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cut, DASH_LIMIT, Term, label};
use vramscope_core::units::{Bytes, compared, count, counted};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Areas {
    /// Column of the row numbers.
    pub gutter: Rect,
    pub rows: Rect,
    pub axis: Rect,
    /// Bars of the largest holes; an empty rectangle when there is no room.
    pub bars: Rect,
}

pub const AXIS: f32 = 20.0;
pub const GUTTER: f32 = 36.0;

impl Areas {
    /// Divides a pane. A narrow pane drops first the bars and then the gutter.
    pub fn new(pane: Rect) -> Self {
        let gutter = if pane.width() >= 160.0 { GUTTER } else { 8.0 };
        let bars = if pane.width() >= 300.0 { (pane.width() * 0.17).clamp(60.0, 110.0) } else { 0.0 };
        let gap = if bars > 0.0 { 28.0 } else { 0.0 };
        let (axis, below) = (pane.lines(0.0, AXIS), pane.inset(0.0, AXIS, 0.0, 0.0));
        let left = pane.left() + gutter;
        let right = (pane.right() - 12.0 - bars - gap).max(left + 8.0);
        Areas {
            gutter: below.with_max_x(left),
            rows: below.across(left, right),
            axis: axis.across(left, right),
            bars: below.across(right + gap, right + gap + bars),
        }
    }

    pub fn row(&self, places: &Places, row: usize, scroll: f32) -> Rect {
        let top = self.rows.top() - scroll + places.tops.get(row).copied().unwrap_or(0.0);
        let gap = if places.pitch >= 3.0 { 1.0 } else { 0.0 };
        self.rows.down(top, top + places.pitch - gap)
    }
}

/// Flag on the class of a block outside the focus.
pub const DIM: u8 = 0x80;

/// The blocks of the visible rows as one mesh.
pub fn rows(painter: &Painter, scene: &Scene<'_>) -> Shape {
    let Scene { cx, picture, places, areas, scroll } = *scene;
    let (tokens, colours, plan) = (cx.tokens, cx.colours, &picture.plan);
    let mut batch = Batch::new(painter).hatch_origin(areas.rows.min);
    let px = batch.pixel();
    let ink = |class: u8| match colours.colour(class & !DIM, tokens) {
        colour if class & DIM == 0 => colour,
        colour => Tokens::over(colour, tokens.s1, 0.25),
    };
    for row in places.between(scroll, scroll + areas.rows.height()) {
        let strip = areas.row(places, row, scroll);
        let last = plan.rows.get(row).map_or(0, |r| r.units.len());
        for run in picture.runs.of(row) {
            let rect = run_rect(run, strip, px, last == 1);
            match run.kind {
                RunKind::Live(class) => batch.rect_at_least_a_pixel(rect, ink(class)),
                RunKind::Rounding(class) => batch.rect_at_least_a_pixel(rect, Tokens::over(ink(class), tokens.s1, 0.5)),
                RunKind::Pending(class) => {
                    batch.rect(rect, Tokens::over(ink(class), tokens.s1, 0.35));
                    if rect.width() >= 4.0 && rect.height() >= 4.0 {
                        batch.outline(rect, 1.0, ink(class));
                    }
                }
                RunKind::Hole => {
                    batch.rect(rect, tokens.s1);
                    if rect.height() >= 8.0 {
                        batch.hole(rect, tokens.s1, tokens.hatch, tokens.line2);
                    } else {
                        // Too narrow for an outline, so its end is marked; a free segment then still has an edge.
                        batch.hatch(rect, tokens.hatch);
                        batch.vline(rect.right() - 0.5, rect.y_range(), 1.0, tokens.hatch);
                    }
                }
                RunKind::Unmapped => batch.hline(rect.x_range(), rect.center().y, 1.0, tokens.line2),
            }
        }
    }
    batch.into_shape()
}

/// The rectangle of a run in its row, with a gap of one pixel after each block that is at least three pixels wide.
fn run_rect(run: &Run, strip: Rect, px: f32, gaps: bool) -> Rect {
    let left = strip.left() + f32::from(run.from) * px;
    let mut right = strip.left() + f32::from(run.to) * px;
    if gaps && run.ends && right - left >= 3.0 {
        right -= 1.0;
    }
    strip.across(left, right)
}

/// The scale of the bars of largest holes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BarScale {
    /// Bytes for the whole width.
    full: f64,
    /// The request is too large for this scale, so the bars are scaled to the holes.
    is_beyond: bool,
}

impl BarScale {
    /// A request this many times the largest hole would make the bars too short to compare.
    const BEYOND: u64 = 8;

    /// The request ends at 85 % of the width, or the largest hole if the request is beyond the scale.
    fn new(largest: u64, request: Option<u64>) -> Self {
        let is_beyond = largest > 0 && request.is_some_and(|size| size > largest.saturating_mul(Self::BEYOND));
        let full = match request {
            Some(_) if is_beyond => largest as f64 / 0.85,
            Some(size) => (size as f64 / 0.85).max(largest as f64),
            None => largest as f64,
        };
        BarScale { full: full.max(1.0), is_beyond }
    }

    fn share(self, bytes: u64) -> f32 {
        (bytes as f64 / self.full) as f32
    }
}

/// Paints row numbers, group headers, the bars of the largest holes and the failed request. Returns the labels that have a
/// glossary entry.
pub fn around(painter: &Painter, scene: &Scene<'_>) -> Vec<(Rect, Term)> {
    let Scene { cx, picture, places, areas, scroll } = *scene;
    let (tokens, plan) = (cx.tokens, &picture.plan);
    let request = super::oom_at(cx, picture.state.event);
    let served = super::layout::serves(cx.data.device(), plan, &picture.state);
    let mut terms = Vec::new();
    let visible = places.between(scroll, scroll + areas.rows.height());
    let body = painter.with_clip_rect(areas.rows.across(areas.gutter.left(), painter.clip_rect().right()));
    let mut batch = Batch::new(painter);
    let largest = plan.rows.iter().map(|r| r.largest_hole).max().unwrap_or(0);
    let scale = BarScale::new(largest, request);
    let bar_end = |bytes: u64| areas.bars.left() + scale.share(bytes) * areas.bars.width();
    let every = if places.pitch >= 15.0 { 1 } else { (64.0 / places.pitch).ceil() as usize };
    // When rows are sorted by address, the rows that pass a multiple of a round number are labelled, so that labels stay the same
    // while the cursor moves and segments come and go.
    let is_ascending = plan.rows.is_sorted_by_key(|r| (r.group, r.named.start));
    let step = round_step(plan.lines(), plan.rows.iter().map(|r| r.named.end).max().unwrap_or(0) as usize, places.pitch);
    let passes = |row: usize| {
        let before = row.checked_sub(1).and_then(|i| plan.rows.get(i)).map_or(0, |r| r.named.end as usize);
        plan.rows[row].named.end as usize / step > before / step
    };
    let mut last_label = f32::NEG_INFINITY;
    for row in visible.clone().filter(|&row| plan.rows[row].lead == 0) {
        let strip = areas.row(places, row, scroll);
        let line = plan.line(row);
        let rows = &plan.rows[line.clone()];
        // A segment that begins on the line gives it its label.
        let shown = rows.iter().find(|r| r.is_start).unwrap_or(&plan.rows[row]);
        let largest_hole = rows.iter().map(|r| r.largest_hole).max().unwrap_or(0);
        if areas.gutter.width() >= GUTTER {
            let first_of_group = row == 0 || plan.rows[row - 1].group != shown.group;
            let number = row - plan.rows.partition_point(|r| r.group < shown.group);
            // A wrapped segment is labelled where it begins, an expandable one at each mapped part.
            let is_due = match (is_ascending, plan.is_wrapped) {
                (true, _) => line.clone().any(|row| plan.rows[row].is_start && passes(row)),
                (false, true) => shown.is_start,
                (false, false) => number.is_multiple_of(every),
            };
            // Keeps the labels of the first and last row fully visible, and that of a low first row off the heading above it.
            let centre = if first_of_group { strip.center().y.max(strip.top() + 7.0) } else { strip.center().y };
            let y = centre.clamp(areas.rows.top() + 6.0, (areas.rows.bottom() - 6.0).max(areas.rows.top() + 6.0));
            // The label must not reach into the header below a group of few low rows.
            let end = plan.rows.partition_point(|r| r.group <= shown.group).saturating_sub(1);
            let has_room = end + 1 == plan.rows.len() || y + 4.0 <= areas.row(places, end, scroll).bottom();
            if (is_due || first_of_group) && has_room && y - last_label >= 12.0 {
                last_label = y;
                let at = pos2(areas.gutter.right() - 8.0, y);
                label::text(&body, at, Align2::RIGHT_CENTER, &row_label(shown), Type::Mono, tokens.text3);
            }
        }
        if areas.bars.is_positive() && largest_hole > 0 {
            let half = (strip.height() * 0.6).clamp(1.0, 8.0) / 2.0;
            let bar = areas.bars.with_max_x(bar_end(largest_hole).max(areas.bars.left() + 1.0));
            batch.rect(bar.intersect(bar.down(strip.center().y - half, strip.center().y + half)), tokens.text3);
        }
    }
    if let Some(size) = request
        && areas.bars.is_positive()
    {
        for row in visible {
            let strip = areas.row(places, row, scroll);
            if served.get(plan.rows[row].group as usize) == Some(&true) {
                let y = Rangef::new(strip.top().max(areas.rows.top()), (strip.top() + places.pitch).min(areas.rows.bottom()));
                // When the request is too large for the scale, a line behind the bars shows it, and an arrow points from its
                // figure to it.
                let x = if scale.is_beyond { areas.bars.right() + 5.0 } else { bar_end(size) };
                batch.dashed_vline(x, y, 1.0, DASH_LIMIT, tokens.red);
            }
        }
    }
    batch.paint(painter);
    if areas.bars.is_positive() {
        let strip = areas.bars.down(areas.axis.top(), areas.axis.bottom() - 6.0);
        match request {
            Some(size) => {
                let arrow = if scale.is_beyond { " →" } else { "" };
                let figure = format!("{}{arrow}", Bytes(size));
                let figure = label::text_in_right(painter, strip, &figure, Type::Mono, tokens.red);
                let rest = strip.with_max_x(figure.left() - 6.0);
                let names = if scale.is_beyond {
                    [format!("holes to {}", Bytes(largest)), format!("hole {}", Bytes(largest)), "hole".to_owned()]
                } else {
                    ["largest hole", "hole", ""].map(str::to_owned)
                };
                let text = names.iter().find(|n| label::width(painter, n, Type::Caption) <= rest.width()).unwrap_or(&names[2]);
                terms.push((label::text_in(painter, rest, text, Type::Caption, tokens.text3), Term::LargestHole));
                terms.push((figure, Term::Request));
            }
            None => {
                terms.push((label::text_in(painter, strip, "largest hole", Type::Caption, tokens.text3), Term::LargestHole));
            }
        }
    }
    let across = areas.rows.across(areas.gutter.left() + 12.0, areas.bars.right().max(areas.rows.right()));
    for &(top, index) in &places.headers {
        let rect = across.lines(top - scroll, top - scroll + super::layout::GROUP_HEIGHT);
        if !rect.y_range().intersects(areas.rows.y_range()) {
            continue;
        }
        let Some(group) = plan.groups.get(index as usize) else { continue };
        let name = label::text_in(&body, rect, &group.name, Type::Strong, tokens.text1);
        let is_private = group.name.contains("private");
        terms.push((name.intersect(body.clip_rect()), if is_private { Term::PrivatePool } else { Term::Pool }));
        let rest = rect.with_min_x(name.right() + 12.0);
        let is_longer = plan.is_wrapped && plan.rows.iter().filter(|r| r.group == index && r.lead == 0).count() > 1;
        let (scales, figures) = header_words(group, plan.longest, is_longer);
        let width = |text: &str, kind: Type| if text.is_empty() { 0.0 } else { label::width(&body, text, kind) + 12.0 };
        // The note on a different scale has priority over all figures but the shortest.
        let pairs = figures.iter().flat_map(|f| scales.iter().map(move |s| (s, f)));
        let fits = |(s, f): &(&String, &String)| width(s, Type::Caption) + width(f, Type::Mono) <= rest.width() + 12.0;
        let least = (scales.last(), figures.last());
        if let Some((scale, figure)) = pairs.into_iter().find(fits).or(least.0.zip(least.1)) {
            let right = label::text_in(&body, rest, scale, Type::Caption, tokens.text3).right();
            let left = if scale.is_empty() { rest.left() } else { right + 12.0 };
            if label::width(&body, figure, Type::Mono) <= rest.right() - left {
                label::figure(&body, rest.with_min_x(left), figure, tokens.text2);
            }
        }
    }
    terms
}

/// The header of a group: wordings about the scale of its rows, and of its figures, each from longest to shortest.
fn header_words(group: &Group, longest: u64, is_longer: bool) -> (Vec<String>, Vec<String>) {
    let scales = if group.across < longest {
        // These rows look as long as the axis but are not.
        vec![format!("on a scale of its own, {} across", Bytes(group.across)), format!("{} across", Bytes(group.across))]
    } else if is_longer {
        vec![format!("{} a row", Bytes(longest))]
    } else {
        vec![String::new()]
    };
    if !group.is_reserved {
        return (scales, vec![String::new()]);
    }
    let segments = counted(u64::from(group.segments), "segment", "segments");
    let free = format!("{} free", Bytes(group.free));
    let [reserved, of_it] = compared([group.reserved, group.free]);
    let middle = format!("{segments}, {of_it} of {reserved} free");
    let mut figures = if group.is_expandable { vec![format!("expandable, {middle}")] } else { Vec::new() };
    figures.extend([middle, format!("{segments}, {free}"), free]);
    (scales, figures)
}

/// How many segments to advance per label: a round number that keeps labels apart at this row height.
fn round_step(rows: usize, segments: usize, pitch: f32) -> usize {
    let apart: f64 = if pitch >= 15.0 { 15.0 } else { 40.0 };
    let wanted = apart * segments as f64 / (rows.max(1) as f64 * f64::from(pitch.max(0.1)));
    let steps = (0..9).flat_map(|power| [1, 2, 5].map(|n| n * 10usize.pow(power)));
    steps.into_iter().find(|&step| step as f64 >= wanted).unwrap_or(1)
}

/// The label of a row: its segment's number, counted from 1 by address over all pools. The inspector, the palette and all
/// tooltips use the same number, whatever the order of the rows.
fn row_label(row: &Row) -> String {
    let (first, last) = (u64::from(row.named.start) + 1, u64::from(row.named.end));
    match last {
        _ if row.named.is_empty() => String::new(),
        _ if row.units.len() > 1 || first == last => count(first),
        // The gutter has room for two figures and a dash.
        ..10 => format!("{first}–{last}"),
        _ => format!("{}…", count(first)),
    }
}

/// The 3 px mark of the selected row in the gutter.
pub fn mark(painter: &Painter, tokens: &Tokens, areas: &Areas, strip: Rect) {
    let grow = ((5.0 - strip.height()) / 2.0).max(0.0);
    let right = areas.gutter.right();
    painter.rect_filled(strip.across(right - 6.0, right - 3.0).expand2(vec2(0.0, grow)), 0, tokens.accent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_segments_stay_while_segments_come_and_go() {
        assert!((80..120).all(|n| round_step(n, n, 3.0) == 20), "40 points are 14 segments");
        assert_eq!(round_step(12, 12, 18.0), 1);
        assert_eq!(round_step(40, 400, 18.0), 10, "of a long tape each row holds ten");
        assert_eq!(round_step(0, 0, 0.0), 1);
    }

    #[test]
    fn bars_follow_the_request_until_it_is_out_of_scale() {
        let near = BarScale::new(16, Some(100));
        assert!(!near.is_beyond && (near.share(100) - 0.85).abs() < 1e-6);
        let far = BarScale::new(16, Some(900));
        assert!(far.is_beyond && (far.share(16) - 0.85).abs() < 1e-6, "the holes can be compared with each other");
        assert!((BarScale::new(200, Some(100)).share(200) - 1.0).abs() < 1e-6);
        assert!((BarScale::new(16, None).share(16) - 1.0).abs() < 1e-6);
        assert!(!BarScale::new(0, Some(900)).is_beyond, "no hole, no scale but the request's");
    }
}
