//! The pictures: the request against the holes, and the segments they lie in.

use egui::{Align2, Rect, ScrollArea, Sense, Ui, pos2, vec2};

use super::{Case, Kind};
use crate::analysis::LifetimeId;
use crate::analysis::fragmentation::Holes;
use crate::analysis::oom::{Autopsy, Closest, RoomFrom};
use crate::app::action::Action;
use crate::app::selection::Item;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::shorten_place;
use crate::app::widgets::axis;
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::term::{self, Term};
use crate::app::widgets::viewport::Scale;
use crate::model::BlockState;
use crate::units::{Address, Bytes, counted};

/// Indices of the segments that serve such requests: by address when all can be seen at once, else those with most free bytes
/// first.
pub(super) fn servers(case: &Case) -> Vec<usize> {
    let state = &case.state;
    let serving = state.segments.iter().enumerate().filter(|(_, s)| case.servers().take(s));
    let mut found: Vec<(u64, usize)> = serving
        .map(|(i, s)| (state.blocks_of(s).iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum(), i))
        .collect();
    if found.len() > FEW {
        found.sort_by_key(|&(free, i)| (std::cmp::Reverse(free), i));
    }
    found.into_iter().map(|(_, i)| i).collect()
}

/// Segments that get rows with labels of their own.
pub(super) const FEW: usize = 5;

/// How a bar is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    /// The request.
    Request,
    /// Every hole, end to end.
    Holes,
    /// Hatched with a strong outline: one hole.
    Hole,
    /// An outline: what could still be taken.
    Room,
    /// A dashed outline: it ends somewhere between so many bytes and the row's.
    RoomFrom(u64),
}

/// One bar of the picture on one scale.
struct BarRow {
    name: &'static str,
    detail: String,
    /// Drawn.
    bytes: u64,
    /// Told at the right end.
    figure: String,
    note: String,
    fill: Fill,
}

/// Bars on one scale: the request, all holes end to end, the largest hole, the room for one more segment; without a failure
/// the largest request that would have been served.
pub(super) fn request_against_holes(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let rows = match &case.kind {
        Kind::Failure(a) => failure_rows(a),
        Kind::Peak(c) => peak_rows(c),
    };
    let mark = case.request();
    bars(ui, cx, case, &rows, mark);
}

fn failure_rows(a: &Autopsy) -> Vec<BarRow> {
    let is_span = a.limit.is_some_and(|cap| !cap.is_known());
    let room = match a.limit {
        Some(cap) => cap.least.saturating_sub(a.reserved),
        None => a.device_free,
    };
    let too_small = if a.holes.largest > 0 {
        let times = a.requested as f64 / a.holes.largest as f64;
        if times < 1.0 {
            "large enough, but not for this pool and stream".to_owned()
        } else if times < 1.1 {
            format!("{} too small", Bytes(a.requested - a.holes.largest))
        } else {
            format!("{times:.1} times too small")
        }
    } else {
        "there is no hole".to_owned()
    };
    let spare = if a.holes.bytes >= a.requested {
        format!("enough in total, {} to spare", Bytes(a.holes.bytes - a.requested))
    } else {
        format!("too little in total, by {}", Bytes(a.requested - a.holes.bytes))
    };
    let over = a.segment.saturating_sub(room);
    let room_text = match (a.limit.is_some(), over > 0) {
        (true, true) if is_span => format!("the cap is not in the file; a new segment of {} passed it", Bytes(a.segment)),
        (true, true) => format!("a new {} segment would pass the cap by {}", Bytes(a.segment), Bytes(over)),
        (false, true) => format!("a new {} segment needs {} more than the device has", Bytes(a.segment), Bytes(over)),
        (_, false) => format!("a new segment needs {}", Bytes(a.segment)),
    };
    vec![
        BarRow {
            name: "The request",
            detail: "one block".to_owned(),
            bytes: a.requested,
            figure: Bytes(a.requested).to_string(),
            note: String::new(),
            fill: Fill::Request,
        },
        holes_row(&a.holes, spare),
        BarRow {
            name: "The largest hole",
            detail: "all that one block can use".to_owned(),
            bytes: a.holes.largest,
            figure: Bytes(a.holes.largest).to_string(),
            note: too_small,
            fill: Fill::Hole,
        },
        if a.limit.is_none() && a.device_free_told().is_none() {
            device_row(a)
        } else {
            BarRow {
                name: if a.limit.is_some() { "Room under the cap" } else { "Free on the device" },
                detail: "for one more segment".to_owned(),
                bytes: if is_span { a.room_below() } else { room },
                figure: if is_span { format!("under {}", Bytes(a.room_below())) } else { Bytes(room).to_string() },
                note: room_text,
                fill: if is_span { Fill::RoomFrom(room) } else { Fill::Room },
            }
        },
    ]
}

/// All the device has, where the source does not tell what of it was free.
fn device_row(a: &Autopsy) -> BarRow {
    BarRow {
        name: if a.capacity.is_some() { "The whole device" } else { "Free on the device" },
        detail: "what was free is not told".to_owned(),
        bytes: a.capacity.unwrap_or(0),
        figure: a.capacity.map_or("not told".to_owned(), |all| Bytes(all).to_string()),
        note: String::new(),
        fill: Fill::Room,
    }
}

fn holes_row(holes: &Holes, note: String) -> BarRow {
    BarRow {
        name: "All free memory",
        detail: format!("{}, end to end", counted(holes.count, "hole", "holes")),
        bytes: holes.bytes,
        figure: Bytes(holes.bytes).to_string(),
        note,
        fill: Fill::Holes,
    }
}

fn peak_rows(c: &Closest) -> Vec<BarRow> {
    let served = match (c.room.is_some(), c.is_exact) {
        (true, true) => "a larger one would have failed",
        (true, false) => "at most: what others held is not recorded",
        (false, _) => "a larger one needed more from the device",
    };
    let mut rows = vec![
        BarRow {
            name: "Largest that fits",
            detail: "as one request".to_owned(),
            bytes: c.largest_served,
            figure: Bytes(c.largest_served).to_string(),
            note: served.to_owned(),
            fill: Fill::Room,
        },
        holes_row(&c.holes, String::new()),
        BarRow {
            name: "The largest hole",
            detail: "all that one block can use".to_owned(),
            bytes: c.holes.largest,
            figure: Bytes(c.holes.largest).to_string(),
            note: String::new(),
            fill: Fill::Hole,
        },
    ];
    rows.push(match c.room {
        Some(room) => BarRow {
            name: if room.from == RoomFrom::Cap { "Room under the cap" } else { "Free on the device" },
            detail: "for more segments".to_owned(),
            bytes: room.bytes,
            figure: Bytes(room.bytes).to_string(),
            note: String::new(),
            fill: Fill::Room,
        },
        None => BarRow {
            name: "Free on the device",
            detail: "for more segments".to_owned(),
            bytes: 0,
            figure: "not recorded".to_owned(),
            note: "neither the cap nor the size of the device is in the file".to_owned(),
            fill: Fill::Room,
        },
    });
    rows
}

fn bars(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, rows: &[BarRow], mark: Option<u64>) {
    let t = cx.tokens;
    let rect = ui.available_rect_before_wrap();
    let painter = ui.painter_at(rect);
    // Room far beyond the rest would leave nothing of it to see: its bar is cut, its figure is not.
    let rest = rows.iter().filter(|r| !matches!(r.fill, Fill::Room | Fill::RoomFrom(_))).map(|r| r.bytes).max().unwrap_or(0);
    let all = rows.iter().map(|r| r.bytes).max().unwrap_or(0);
    let greatest = (if rest == 0 { all } else { all.min(rest.saturating_mul(2)).max(rest) }).max(1) as f64 * 1.08;
    let plot = Rect::from_min_max(pos2(rect.left() + 168.0, rect.top() + 10.0), pos2(rect.right() - 130.0, rect.bottom() - 24.0));
    if plot.width() < 80.0 || plot.height() < 60.0 {
        return;
    }
    let scale = Scale::horizontal(0.0, greatest, plot.x_range());
    let pitch = plot.height() / rows.len() as f32;
    let bar_height = (pitch * 0.58).clamp(10.0, 34.0);
    let place = |i: usize, from: f64, to: f64| {
        let y = plot.top() + pitch * i as f32 + (pitch - bar_height) / 2.0;
        Rect::from_min_max(pos2(scale.at(from.min(greatest)), y), pos2(scale.at(to.min(greatest)), y + bar_height))
    };
    let mut batch = Batch::new(&painter).hatch_origin(rect.min);
    let ticks = axis::byte_ticks(0.0, greatest, axis::most_across(plot.width()));
    ticks.grid_across(&mut batch, t, &scale, plot);
    for (i, row) in rows.iter().enumerate() {
        let bar = place(i, 0.0, row.bytes as f64);
        match row.fill {
            Fill::Request => batch.rect(bar, t.red),
            Fill::Hole if row.bytes > 0 => {
                batch.hatch(bar, t.hatch);
                batch.outline(bar, 1.5, t.text1);
            }
            Fill::Room if row.bytes > 0 => batch.outline(bar, 1.0, t.text2),
            Fill::RoomFrom(least) if row.bytes > 0 => {
                // So much there surely was; where it ended is not told.
                batch.outline(place(i, 0.0, least as f64), 1.0, t.text2);
                let (sides, dash) = (egui::Rangef::new(bar.left(), bar.right()), (4.0, 3.0));
                batch.dashed_hline(sides, bar.top(), 1.0, dash, t.text2);
                batch.dashed_hline(sides, bar.bottom(), 1.0, dash, t.text2);
                batch.dashed_vline(bar.right(), bar.y_range(), 1.0, dash, t.text2);
            }
            Fill::Holes => slices(&mut batch, cx, case, |from, to| place(i, from, to), &scale),
            Fill::Hole | Fill::Room | Fill::RoomFrom(_) => {}
        }
    }
    if let Some(mark) = mark {
        let from = place(0, 0.0, 0.0).bottom();
        batch.dashed_vline(scale.at(mark as f64), egui::Rangef::new(from, plot.bottom()), 1.0, (4.0, 3.0), t.red);
    }
    batch.paint(&painter);
    ticks.paint_across(
        &painter,
        t,
        &scale,
        Rect::from_min_max(plot.left_bottom() + vec2(0.0, 4.0), plot.right_bottom() + vec2(0.0, 20.0)),
        axis::UnitAt::Last,
    );
    for (i, row) in rows.iter().enumerate() {
        let y = place(i, 0.0, 0.0).center().y;
        // Rows too low for two lines keep the name.
        let has_detail = pitch >= 34.0;
        let at = pos2(plot.left() - 12.0, if has_detail { y - 8.0 } else { y });
        let name = label::text(&painter, at, Align2::RIGHT_CENTER, row.name, Type::Strong, t.text1);
        if let Some(term) = Term::of(row.name) {
            term::explain_at(ui, name, term);
        }
        if has_detail {
            label::text(&painter, pos2(plot.left() - 12.0, y + 8.0), Align2::RIGHT_CENTER, &row.detail, Type::Caption, t.text3);
        }
        let ink = if row.fill == Fill::Request { t.red } else { t.text1 };
        label::text(&painter, pos2(rect.right() - 16.0, y), Align2::RIGHT_CENTER, &row.figure, Type::MonoStrong, ink);
        if row.note.is_empty() {
            continue;
        }
        // A note stands after its bar, past the request's line; where it fits nowhere beside, over or under the bar.
        let bar = place(i, 0.0, row.bytes as f64);
        let width = label::width(&painter, &row.note, Type::Body);
        let figure = rect.right() - 16.0 - label::width(&painter, &row.figure, Type::MonoStrong) - 12.0;
        let line = mark.map_or(bar.right(), |mark| scale.at(mark as f64));
        let beside = [bar.right(), bar.right().max(line)].map(|x| x + 10.0);
        let fits = |x: f32| x + width < figure;
        let crosses = (beside[0]..beside[0] + width).contains(&line);
        let last = i + 1 == rows.len();
        // Off the bar's own line: before the request's line where it fits there, else behind it.
        let off = y + pitch / 2.0 * if last { -1.0 } else { 1.0 };
        let before = line - 8.0 - width;
        let at = if fits(beside[0]) && !crosses {
            pos2(beside[0], y)
        } else if fits(beside[1]) {
            pos2(beside[1], y)
        } else if before >= plot.left() {
            pos2(before, off)
        } else if fits(line + 8.0) {
            pos2(line + 8.0, off)
        } else {
            pos2((figure - width).max(plot.left()), off)
        };
        // On a ground of its own, where it fits on no side of the line: that does not run through the words.
        let ground = Rect::from_min_size(at - vec2(3.0, 7.0), vec2(width + 6.0, 14.0));
        if ground.x_range().contains(line) {
            painter.rect_filled(ground, 0.0, t.s1);
        }
        label::text(&painter, at, Align2::LEFT_CENTER, &row.note, Type::Body, t.text2);
    }
    ui.allocate_rect(rect, Sense::hover())
        .widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Request against holes"));
}

/// The holes end to end, largest first; slices under 5 px merge into one run.
fn slices(batch: &mut Batch, cx: &ViewContext<'_>, case: &Case, place: impl Fn(f64, f64) -> Rect, scale: &Scale) {
    let t = cx.tokens;
    let mut at = 0u64;
    for (i, &hole) in case.hole_sizes.iter().enumerate() {
        if scale.at((at + hole) as f64) - scale.at(at as f64) < 5.0 {
            let rest: u64 = case.hole_sizes[i..].iter().sum();
            batch.hole(place(at as f64, (at + rest) as f64), t.s2, t.hatch, t.line2);
            return;
        }
        let mut slice = place(at as f64, (at + hole) as f64);
        slice.max.x -= 2.0;
        batch.hole(slice, t.s2, t.hatch, t.line2);
        at += hole;
    }
}

/// The classes of colour in the segments drawn, those with most bytes first. Reads all their blocks.
pub(super) fn classes(cx: &ViewContext<'_>, case: &Case) -> Vec<u8> {
    let mut bytes = [0u64; 256];
    for block in case.serving.iter().flat_map(|&i| case.state.blocks_of(&case.state.segments[i])) {
        if block.lifetime.is_some() {
            bytes[usize::from(cx.colours.class_of(cx.data, block.lifetime, case.state.event))] += block.size;
        }
    }
    let mut classes: Vec<u8> = (0..=255).filter(|&class: &u8| bytes[usize::from(class)] > 0).collect();
    classes.sort_by_key(|&class| std::cmp::Reverse(bytes[usize::from(class)]));
    classes
}

/// What the colours of the blocks mean, right to left: free memory, then every class in these segments, those with most bytes
/// first. Where their names do not fit they get shorter together; where even that is too little the last are counted, and the
/// hover names them.
pub(super) fn colours(ui: &mut Ui, cx: &ViewContext<'_>, classes: &[u8]) {
    /// What the title and its caption keep.
    const TITLE: f32 = 330.0;
    /// The least room a name is worth having in.
    const LEAST: f32 = 44.0;
    if classes.is_empty() {
        return;
    }
    let t = cx.tokens;
    let mut entries: Vec<(Swatch, String)> = vec![(Swatch::Free, "free".to_owned())];
    entries.extend(classes.iter().filter_map(|&class| {
        let name = cx.colours.classes.get(usize::from(class))?.name.clone();
        Some((Swatch::Fill(cx.colours.colour(class, t)), name))
    }));
    let gap = ui.spacing().item_spacing.x + 8.0;
    let around = |(swatch, _): &(Swatch, String)| swatch.size().x + 6.0 + gap;
    let text = |ui: &Ui, name: &str| label::width(ui.painter(), name, Type::Caption) + 1.0;
    let room = ui.available_width() - TITLE;
    let names: Vec<f32> = entries.iter().map(|e| text(ui, &e.1)).collect();
    // The widest that a name may be, so that all fit.
    let sum = |most: f32, n: usize| (0..n).map(|i| around(&entries[i]) + names[i].min(most)).sum::<f32>();
    let mut shown = entries.len();
    let more = |n: usize| format!("{n} more");
    while shown > 1 && sum(LEAST, shown) + if shown < entries.len() { text(ui, &more(9)) + gap } else { 0.0 } > room {
        shown -= 1;
    }
    let left_out = entries.len() - shown;
    let kept = if left_out > 0 { text(ui, &more(left_out)) + gap } else { 0.0 };
    let (mut low, mut high) = (LEAST, names.iter().copied().fold(LEAST, f32::max));
    for _ in 0..12 {
        let middle = f32::midpoint(low, high);
        if sum(middle, shown) + kept > room { high = middle } else { low = middle }
    }
    let most = if sum(high, shown) + kept > room { low } else { high };
    let all = entries.iter().map(|e| e.1.as_str()).collect::<Vec<_>>().join("\n");
    // The header is laid out from its right end, and free memory stands there; the classes follow with the largest at the left.
    let write = |ui: &mut Ui, width: f32, swatch: Option<Swatch>, name: &str, whole: &str| {
        let (rect, response) = ui.allocate_exact_size(vec2(width, 16.0), Sense::hover());
        let left = swatch.map_or(rect.left(), |swatch| swatch.paint(ui.painter(), t, rect.left_center()).right() + 6.0);
        label::text_in(ui.painter(), Rect::from_min_max(pos2(left, rect.top()), rect.max), name, Type::Caption, t.text2);
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, whole));
        response.on_hover_text(whole);
    };
    let entry = |ui: &mut Ui, i: usize| {
        let width = around(&entries[i]) - gap + names[i].min(most) + 8.0;
        // The line of a place is what tells it from another of the same file.
        let whole = &entries[i].1;
        let fits = (6..whole.chars().count()).rev().map(|n| shorten_place(whole, n)).find(|cut| text(ui, cut) <= most);
        let name = if names[i] > most { fits } else { None };
        write(ui, width, Some(entries[i].0), name.as_deref().unwrap_or(whole), whole);
    };
    entry(ui, 0);
    if left_out > 0 {
        let name = more(left_out);
        let width = text(ui, &name) + 8.0;
        write(ui, width, None, &name, &all);
    }
    for i in (1..shown).rev() {
        entry(ui, i);
    }
}

/// The words about the cheapest way out, set for the width there is.
pub(super) struct WayText {
    galley: std::sync::Arc<egui::Galley>,
    text: String,
    /// How it was searched.
    search: String,
    /// Where its words begin, from the left edge of the pane.
    left: f32,
}

impl WayText {
    /// With the room around it.
    pub fn height(&self) -> f32 {
        self.galley.size().y + 14.0
    }
}

/// What the cheapest way out is, or why there is none; nothing at a peak.
pub(super) fn way_out(ui: &Ui, cx: &ViewContext<'_>, case: &Case, width: f32) -> Option<WayText> {
    let Kind::Failure(a) = &case.kind else { return None };
    let (text, search) = match case.way_out() {
        Some(way) => {
            let how = format!("{}, {}: ", way.name(), way.by());
            let alone = a.alone_sentence().map_or(String::new(), |alone| format!(" {alone}"));
            let search = if alone.is_empty() { "" } else { " For a single block: every live block was tried by itself." };
            (format!("{how}{}{alone}", a.way_out_sentence(&case.state)), format!("{}{search}", way.search()))
        }
        None => (format!("Cheapest way out: {}", a.way_out_sentence(&case.state)), String::new()),
    };
    // Under the segments it explains, where its lines do not get too short there.
    let left = if width >= 900.0 { 168.0 } else { 22.0 };
    let mut job = egui::text::LayoutJob::default();
    job.append(&text, 0.0, label::format(Type::Body, cx.tokens.text1));
    job.wrap.max_width = (width - left - 16.0).max(120.0);
    Some(WayText { galley: ui.painter().layout_job(job), text, search, left })
}

/// Marks a block of the way out: an outline in the colour of the words about it, a line under what is too narrow for one.
pub(super) fn mark_going(batch: &mut Batch, t: &Tokens, block: Rect) {
    if block.width() >= 5.0 {
        batch.outline(block.shrink(0.5), 1.0, t.s1);
        batch.outline(block.expand(1.0), 1.5, t.accent);
    } else {
        batch.rect(Rect::from_min_max(pos2(block.left(), block.bottom() - 3.0), block.max), t.accent);
    }
}

/// The segments that could have served the request, blocks to scale, the cheapest way out marked.
pub(super) fn where_the_holes_are(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, way_out: Option<WayText>) {
    let t = cx.tokens;
    let state = &case.state;
    let order = &case.serving;
    let full = ui.available_rect_before_wrap();
    let way_height = way_out.as_ref().map_or(4.0, WayText::height);
    let list = Rect::from_min_max(full.min, pos2(full.right(), full.bottom() - way_height));
    if order.is_empty() {
        let line = Rect::from_min_max(full.min + vec2(16.0, 8.0), pos2(full.right() - 16.0, full.top() + 28.0));
        label::text_in(ui.painter(), line, "Nothing was reserved yet that such a request is served from.", Type::Body, t.text2);
    }
    let few = order.len() <= FEW;
    let (row_height, gap) = if few {
        ((list.height() / order.len().max(1) as f32 - 8.0).clamp(12.0, 34.0), 8.0)
    } else {
        (((list.height() - 8.0) / order.len() as f32 - 2.0).floor().clamp(8.0, 20.0), 2.0)
    };
    // A row cut in half reads as a row of another height.
    let list = if few || list.height() < 3.0 * (row_height + gap) {
        list
    } else {
        let whole = ((list.height() - 6.0) / (row_height + gap)).floor() * (row_height + gap);
        list.with_max_y(list.top() + 6.0 + whole)
    };
    let widest = order.iter().map(|&i| state.segments[i].size).max().unwrap_or(1) as f64;
    let (marked, going): (&[usize], &[usize]) = case.way_out().map_or((&[], &[]), |w| (&w.segments, &w.blocks));
    let mut child = ui.new_child(egui::UiBuilder::new().max_rect(list).id_salt("segments"));
    ScrollArea::vertical().id_salt("holes").auto_shrink(false).show_viewport(&mut child, |ui, view| {
        let pitch = row_height + gap;
        let height = pitch * order.len() as f32 + 8.0;
        let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height), Sense::click());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Segments with their holes"));
        let plot = Rect::from_min_max(pos2(rect.left() + 168.0, rect.top() + 6.0), pos2(rect.right() - 130.0, rect.bottom()));
        let scale = Scale::horizontal(0.0, widest, plot.x_range());
        let painter = ui.painter().clone();
        let mut batch = Batch::new(&painter).hatch_origin(rect.min);
        let mut labels = Vec::new();
        let every = ((16.0 / pitch).ceil() as usize).max(1);
        let first = (view.min.y / pitch).floor().max(0.0) as usize;
        let last = ((view.max.y / pitch).ceil() as usize + 1).min(order.len());
        let pointer = response.hover_pos();
        let mut under = None;
        for (n, &i) in order.iter().enumerate().take(last).skip(first) {
            let segment = &state.segments[i];
            let top = plot.top() + pitch * n as f32;
            let (mut live, mut free) = ((0u64, 0u64), 0u64);
            for (at, block) in (segment.blocks.start as usize..).zip(state.blocks_of(segment)) {
                let from = (block.address - segment.address) as f64;
                let r = Rect::from_min_max(
                    pos2(scale.at(from), top),
                    pos2(scale.at(from + block.size as f64) - 1.0, top + row_height),
                );
                if block.state == BlockState::Inactive {
                    free += block.size;
                    batch.hole(r, t.s2, t.hatch, t.line2);
                } else {
                    live = (live.0 + 1, live.1 + block.size);
                    let colour = cx.colours.of(cx.data, block.lifetime, state.event, t);
                    batch.rect_at_least_a_pixel(r, colour);
                    if going.binary_search(&at).is_ok() {
                        mark_going(&mut batch, t, r);
                    }
                    if cx.link.selected() == Some(Item::Lifetime(block.lifetime)) {
                        batch.selection(r, t.text1, t.s1);
                    }
                }
                if few && r.width() > 26.0 {
                    let ink = if block.state == BlockState::Inactive {
                        t.text1
                    } else {
                        Tokens::ink_on(cx.colours.of(cx.data, block.lifetime, state.event, t))
                    };
                    labels.push((r.center(), Bytes(block.size).mebibytes(), ink, r.width()));
                }
                if pointer.is_some_and(|p| r.expand2(vec2(0.5, 0.0)).contains(p)) {
                    under = Some((*block, r));
                }
            }
            if marked.contains(&i) {
                batch.rect(Rect::from_min_size(pos2(plot.left() - 6.0, top), vec2(3.0, row_height)), t.accent);
            }
            if few {
                // Two lines each, where the rows are high enough for them.
                let y = top + row_height / 2.0;
                let two = pitch >= 34.0;
                let (first, second) = if two { (y - 7.0, y + 8.0) } else { (y, y) };
                let write = |x: f32, y: f32, text: &str, face: Type, ink: egui::Color32| {
                    label::text(&painter, pos2(x, y), Align2::RIGHT_CENTER, text, face, ink);
                };
                let (left, right) = (plot.left() - 12.0, rect.right() - 16.0);
                write(left, first, &format!("segment {}", i + 1), Type::Strong, t.text1);
                write(right, first, &counted(live.0, "block", "blocks"), Type::Mono, t.text2);
                if two {
                    write(left, second, &Address(segment.address).to_string(), Type::Mono, t.text3);
                    write(right, second, &Bytes(live.1).to_string(), Type::Mono, t.text3);
                }
            } else if n % every == 0 {
                // As many rows as their letters leave room for: which segment it is, and what of it is free.
                let y = top + row_height / 2.0;
                let write =
                    |x: f32, text: &str| label::text(&painter, pos2(x, y), Align2::RIGHT_CENTER, text, Type::Mono, t.text3);
                write(plot.left() - 12.0, &format!("segment {}", i + 1));
                write(rect.right() - 16.0, &format!("{} free", Bytes(free)));
            }
        }
        if let Some((_, r)) = under {
            batch.outline(r.expand(1.0), 1.0, t.text1);
        }
        batch.paint(&painter);
        for (at, text, ink, width) in labels {
            if label::width(&painter, &text, Type::Mono) + 6.0 < width {
                label::text(&painter, at, Align2::CENTER_CENTER, &text, Type::Mono, ink);
            }
        }
        if let Some((block, _)) = under {
            let item =
                if block.lifetime == LifetimeId::NONE { Item::Hole(block.address) } else { Item::Lifetime(block.lifetime) };
            if response.clicked() {
                cx.actions.send(Action::Select(Some(item)));
            }
            let what = if block.state == BlockState::Inactive {
                "hole"
            } else {
                cx.data.names.of_stack(cx.data.tables.lifetimes.stack(cx.data.device(), block.lifetime))
            };
            response.on_hover_text_at_pointer(format!("{}  {}\n{what}", Bytes(block.size), Address(block.address)));
        }
    });
    if let Some(WayText { galley, text, search, left }) = way_out {
        let strip = Rect::from_min_max(
            pos2(full.left() + left, full.bottom() - way_height + 4.0),
            pos2(full.right() - 16.0, full.bottom()),
        );
        let bar = Rect::from_min_size(pos2(strip.left() - 6.0, strip.top()), vec2(3.0, galley.size().y));
        ui.painter().rect_filled(bar, 0.0, t.accent);
        ui.painter().galley(strip.min, galley, t.text1);
        let response = ui.interact(strip, ui.scope_id().with("way out"), Sense::hover());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &text));
        if !search.is_empty() {
            response.on_hover_text(search);
        }
    }
    ui.advance_cursor_after_rect(full);
}
