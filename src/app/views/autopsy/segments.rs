//! The segments that could have served the request and those with blocks to free, drawn to scale, with their legend and the text
//! about what to free.

use egui::{Align2, Rect, ScrollArea, Sense, Ui, pos2, vec2};

use super::case::Case;
use crate::app::state::{Action, Item};
use crate::app::theme::visuals::PAD_PANE;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::block_name::block_name;
use crate::app::views::stack_cells::shorten_place;
use crate::app::widgets::{Batch, Cut, Scale, Swatch, label, pane, row, told_at};
use vramscope_core::model::BlockState;
use vramscope_core::tables::{LifetimeId, SegmentAt};
use vramscope_core::units::{Address, Bytes, SizeColumn, count, counted};

/// The bytes that fill a row: those of the widest segment with a hole. A full segment says nothing about holes, and is cut.
pub(super) fn widest(case: &Case) -> u64 {
    let segments = || case.drawn.iter().map(|&i| &case.state.segments[i]);
    let has_hole = |s: &&SegmentAt| case.state.blocks_of(s).iter().any(|b| b.state == BlockState::Inactive);
    let of_holes = segments().filter(|s| case.drawn.len() > FEW && has_hole(s)).map(|s| s.size).max();
    of_holes.or_else(|| segments().map(|s| s.size).max()).unwrap_or(1)
}

/// Room above the sentence on what to free.
const ABOVE: f32 = 8.0;
/// Room between that sentence and its edge line.
const BESIDE: f32 = 8.0;

/// Indices of the segments that serve such requests, by address.
pub(super) fn servers(case: &Case) -> Vec<usize> {
    (0..case.state.segments.len()).filter(|&i| case.servers().take(&case.state.segments[i])).collect()
}

/// Indices of the drawn segments: those that could serve the request, those with blocks to free, and others in which one block pins
/// more memory than the largest hole has. In order of address when all fit. Otherwise those with blocks to free come first, then
/// those with most free bytes.
pub(super) fn drawn(case: &Case, serving: &[usize]) -> Vec<usize> {
    let state = &case.state;
    let plan = case.room_plan().map_or(&[][..], |w| &w.segments);
    /// Most segments of other streams and pools that are drawn because one block pins them.
    const PINNED: usize = 3;
    let hole = case.holes().largest;
    let pinned = case.blockers().iter().filter(|b| !b.serves && b.returns > hole).map(|b| b.segment);
    let mut found: Vec<usize> = serving.iter().chain(plan).copied().chain(pinned.take(PINNED)).collect();
    found.sort_unstable();
    found.dedup();
    if found.len() > FEW {
        let free = |i: usize| {
            let blocks = state.blocks_of(&state.segments[i]).iter();
            blocks.filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum::<u64>()
        };
        found.sort_by_cached_key(|&i| (!plan.contains(&i), std::cmp::Reverse(free(i)), i));
    }
    found
}

pub(super) fn caption(case: &Case) -> String {
    let pool = case.servers().class.name();
    let (serving, drawn) = (case.serving.len(), case.drawn.len());
    let own = match serving {
        0 => format!("no segment of the {pool} pool on this stream"),
        n => format!("{} of the {pool} pool", counted(n as u64, "segment", "segments")),
    };
    let others = match drawn.saturating_sub(serving) {
        0 => String::new(),
        n => format!(" and {} elsewhere", count(n as u64)),
    };
    let order = match drawn {
        0 | 1 => "",
        n if n <= FEW => ", by address",
        _ if case.room_plan().is_some_and(|w| !w.segments.is_empty()) => ", what to free first, then most free memory",
        _ => ", most free memory first",
    };
    let unit = if (1..=FEW).contains(&drawn) { format!(", sizes in {}", sizes(case).unit()) } else { String::new() };
    format!("{own}{others}{order}{unit}")
}

/// The unit of the block sizes in the picture.
fn sizes(case: &Case) -> SizeColumn {
    SizeColumn::of(case.drawn.iter().map(|&i| case.state.segments[i].size))
}

/// Up to this many segments get rows with their own labels.
pub(super) const FEW: usize = 6;

/// The colour classes in the drawn segments, those with most bytes first. Reads all their blocks.
pub(super) fn classes(cx: &ViewContext<'_>, case: &Case) -> Vec<u8> {
    let mut bytes = [0u64; 256];
    for block in case.drawn.iter().flat_map(|&i| case.state.blocks_of(&case.state.segments[i])) {
        if block.lifetime.is_some() {
            bytes[usize::from(cx.colours.class_of(cx.data, block.lifetime, case.state.event))] += block.size;
        }
    }
    let mut classes: Vec<u8> = (0..=255).filter(|&class: &u8| bytes[usize::from(class)] > 0).collect();
    classes.sort_by_key(|&class| std::cmp::Reverse(bytes[usize::from(class)]));
    classes
}

/// The legend, from right to left: free memory, then every class in these segments, those with most bytes first. When the names
/// do not fit, all are shortened together. When that is not enough, the last ones are only counted; the tooltip lists them.
pub(super) fn colours(ui: &mut Ui, cx: &ViewContext<'_>, classes: &[u8]) {
    /// Width that is kept for the title and its caption.
    const TITLE: f32 = 330.0;
    if classes.is_empty() {
        return;
    }
    let t = cx.tokens;
    let mut entries: Vec<(Swatch, String)> = vec![(Swatch::Free, "free".to_owned())];
    entries.extend(classes.iter().filter_map(|&class| {
        let name = cx.colours.classes.get(usize::from(class))?.name.clone();
        Some((Swatch::Fill(cx.colours.colour(class, t)), name))
    }));
    // The least useful width of a name: the end of a location is enough, but a range of sizes is useless when cut.
    let least = if entries.iter().any(|e| e.1.contains(".py:")) { 60.0 } else { 100.0 };
    let gap = ui.spacing().item_spacing.x + 8.0;
    let around = |(swatch, _): &(Swatch, String)| swatch.size().x + 6.0 + gap;
    let text = |ui: &Ui, name: &str| label::width(ui.painter(), name, Type::Caption) + 1.0;
    let room = ui.available_width() - TITLE;
    let names: Vec<f32> = entries.iter().map(|e| text(ui, &e.1)).collect();
    // The total width when no name is wider than `most`.
    let sum = |most: f32, n: usize| (0..n).map(|i| around(&entries[i]) + names[i].min(most)).sum::<f32>();
    let mut shown = entries.len();
    let more = |n: usize| format!("{n} more");
    while shown > 1 && sum(least, shown) + if shown < entries.len() { text(ui, &more(9)) + gap } else { 0.0 } > room {
        shown -= 1;
    }
    let left_out = entries.len() - shown;
    let kept = if left_out > 0 { text(ui, &more(left_out)) + gap } else { 0.0 };
    let (mut low, mut high) = (least, names.iter().copied().fold(least, f32::max));
    for _ in 0..12 {
        let middle = f32::midpoint(low, high);
        if sum(middle, shown) + kept > room { high = middle } else { low = middle }
    }
    let most = if sum(high, shown) + kept > room { low } else { high };
    let all = entries.iter().map(|e| e.1.as_str()).collect::<Vec<_>>().join("\n");
    // The header is laid out from its right end: free memory first, then the classes. The largest class is at the left.
    let write = |ui: &mut Ui, width: f32, swatch: Option<Swatch>, name: &str, whole: &str| {
        let (rect, response) = ui.allocate_exact_size(vec2(width, 16.0), Sense::hover());
        let left = swatch.map_or(rect.left(), |swatch| swatch.paint(ui.painter(), t, rect.left_center()).right() + 6.0);
        label::text_in(ui.painter(), rect.with_min_x(left), name, Type::Caption, t.text2);
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, whole));
        response.on_hover_text(whole);
    };
    let entry = |ui: &mut Ui, i: usize| {
        let width = around(&entries[i]) - gap + names[i].min(most) + 8.0;
        // The line number distinguishes locations in one file, so it is kept.
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

/// The text about what to free, laid out for the available width.
pub(super) struct PlanText {
    galley: std::sync::Arc<egui::Galley>,
    text: String,
    search: String,
    /// Left edge of the text, from the left edge of the pane.
    left: f32,
}

impl PlanText {
    /// Includes the space around the text.
    pub fn height(&self) -> f32 {
        self.galley.size().y + ABOVE + 10.0
    }
}

/// What to free, or why freeing does not help; `None` at a peak.
pub(super) fn room_plan(ui: &Ui, cx: &ViewContext<'_>, case: &Case, width: f32) -> Option<PlanText> {
    let a = case.failure()?;
    let (text, search) = match case.room_plan() {
        Some(plan) => {
            let alone = a.alone_sentence().map_or(String::new(), |alone| format!(" {alone}"));
            let search = if alone.is_empty() { "" } else { " For a single block, every live block was tried by itself." };
            let needs = cx.roles.as_ref().and_then(|roles| a.room_plan_needs(&case.state, |id| roles.of(id)));
            let needs = needs.map_or(String::new(), |needs| format!(" {needs}"));
            let these = format!("{}{needs}", plan.sentence(a.words));
            // One large block is easier to avoid than a long list of small ones.
            let text = match a.is_simply_full() && !alone.is_empty() {
                true => format!("What to free:{} {these}", alone.replacen(" instead is also enough", " is enough", 1)),
                false => format!("What to free: {these}{alone}"),
            };
            (text, format!("{} {}{search}", plan.why(), plan.search()))
        }
        None => (format!("What to free: {}", a.room_plan_sentence(&case.state)), String::new()),
    };
    // Under the segments it explains, where its lines do not get too short there.
    let left = if width >= 900.0 { 168.0 } else { PAD_PANE + BESIDE };
    let mut job = egui::text::LayoutJob::default();
    job.append(&text, 0.0, label::format(Type::Body, cx.tokens.text1));
    job.wrap.max_width = (width - left - 16.0).max(120.0);
    Some(PlanText { galley: ui.painter().layout_job(job), text, search, left })
}

/// Marks a block to free with an outline in the colour of the text about it, or with a line below when the block is too narrow.
pub(super) fn mark_going(batch: &mut Batch, t: &Tokens, block: Rect) {
    if block.width() >= 5.0 {
        batch.outline(block.shrink(0.5), 1.0, t.s1);
        batch.outline(block.expand(1.0), 1.5, t.accent);
    } else {
        batch.rect(block.with_min_y(block.bottom() - 3.0), t.accent);
    }
}

/// The segments with their blocks to scale; blocks to free are marked.
pub(super) fn where_the_holes_are(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case, room_plan: Option<PlanText>) {
    let t = cx.tokens;
    let state = &case.state;
    let order = &case.drawn;
    let full = ui.available_rect_before_wrap();
    let plan_height = room_plan.as_ref().map_or(4.0, PlanText::height);
    let list = full.with_max_y(full.bottom() - plan_height);
    if order.is_empty() {
        let line = Rect::from_min_max(full.min + vec2(16.0, 8.0), pos2(full.right() - 16.0, full.top() + 28.0));
        label::text_in(ui.painter(), line, "Nothing was reserved yet that such a request is served from.", Type::Body, t.text2);
    }
    let (few, labelled) = (order.len() <= FEW, sizes(case));
    let (row_height, gap) = if few {
        ((list.height() / order.len().max(1) as f32 - 8.0).clamp(12.0, 34.0), 8.0)
    } else {
        (((list.height() - 8.0) / order.len() as f32 - 2.0).floor().clamp(14.0, 20.0), 2.0)
    };
    // Shows whole rows only, because a cut row looks like a row of another height.
    let list = if few || list.height() < 3.0 * (row_height + gap) {
        list
    } else {
        let whole = ((list.height() - 6.0) / (row_height + gap)).floor() * (row_height + gap);
        list.with_max_y(list.top() + 6.0 + whole)
    };
    let (marked, going): (&[usize], &[usize]) = case.room_plan().map_or((&[], &[]), |w| (&w.segments, &w.blocks));
    let mut child = pane::child(ui, list, "segments");
    ScrollArea::vertical().id_salt("holes").auto_shrink(false).show_viewport(&mut child, |ui, view| {
        let pitch = row_height + gap;
        let height = pitch * order.len() as f32 + 8.0;
        let (rect, response) = row::clicked(ui, height, egui::Role::Canvas, || "Segments with their holes");
        let plot = rect.inset(168.0, 6.0, 130.0, 0.0);
        let scale = Scale::horizontal(0.0, case.widest.max(1) as f64, plot.x_range());
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
            let whose = case.servers().whose(cx.data.device(), segment);
            let (mut live, mut free) = ((0u64, 0u64), 0u64);
            for (at, block) in (segment.blocks.start as usize..).zip(state.blocks_of(segment)) {
                let from = (block.address - segment.address) as f64;
                let end = (scale.at(from + block.size as f64) - 1.0).min(plot.right());
                let r = Rect::from_x_y_ranges(scale.at(from).min(end)..=end, top..=top + row_height);
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
                    if cx.shared.selected() == Some(Item::Lifetime(block.lifetime)) {
                        batch.selection(r, t.text1, t.s1);
                    }
                }
                if few && r.width() > 26.0 {
                    let ink = if block.state == BlockState::Inactive {
                        t.text1
                    } else {
                        Tokens::ink_on(cx.colours.of(cx.data, block.lifetime, state.event, t))
                    };
                    labels.push((r.center(), labelled.figure(block.size), ink, r.width()));
                }
                if pointer.is_some_and(|p| r.expand2(vec2(0.5, 0.0)).contains(p)) {
                    under = Some((*block, r, whose.clone()));
                }
            }
            if marked.contains(&i) {
                batch.rect(Rect::from_min_size(pos2(plot.left() - 6.0, top), vec2(3.0, row_height)), t.accent);
            }
            if few {
                // Two lines each, when rows are high enough.
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
                    // Who owns the segment, when that is why it cannot serve the request.
                    match &whose {
                        Some(whose) => write(left, second, whose, Type::Body, t.text2),
                        None => write(left, second, &Address(segment.address).to_string(), Type::Mono, t.text3),
                    }
                    write(right, second, &Bytes(live.1).to_string(), Type::Mono, t.text3);
                }
            } else if n % every == 0 {
                // Labels as many rows as there is room for: the segment and its free bytes.
                let y = top + row_height / 2.0;
                let write =
                    |x: f32, text: &str| label::text(&painter, pos2(x, y), Align2::RIGHT_CENTER, text, Type::Mono, t.text3);
                let whose = whose.map(|whose| format!(", {}", whose.trim_start_matches("of ").trim_start_matches("the ")));
                write(plot.left() - 12.0, &format!("segment {}{}", i + 1, whose.unwrap_or_default()));
                // The scale is that of segments with holes: a full one may be longer than its row.
                write(
                    rect.right() - 16.0,
                    &if free > 0 { format!("{} free", Bytes(free)) } else { format!("{}, full", Bytes(segment.size)) },
                );
            }
        }
        if let Some((_, r, _)) = &under {
            batch.outline(r.expand(1.0), 1.0, t.text1);
        }
        batch.paint(&painter);
        for (at, text, ink, width) in labels {
            if label::width(&painter, &text, Type::Mono) + 6.0 < width {
                label::text(&painter, at, Align2::CENTER_CENTER, &text, Type::Mono, ink);
            }
        }
        if let Some((block, _, whose)) = under {
            let item =
                if block.lifetime == LifetimeId::NONE { Item::Hole(block.address) } else { Item::Lifetime(block.lifetime) };
            if response.clicked() {
                cx.actions.send(Action::Select(Some(item)));
            }
            let what = match block.state {
                BlockState::Inactive => "hole".to_owned(),
                _ => {
                    block_name(cx.data, cx.roles.map(AsRef::as_ref), block.lifetime).unwrap_or_else(|| "role unknown".to_owned())
                }
            };
            let whose = whose.map_or(String::new(), |whose| format!("\nIn a segment {whose}: it cannot serve this request."));
            response.on_hover_text_at_pointer(format!("{}  {}\n{what}{whose}", Bytes(block.size), Address(block.address)));
        }
    });
    if let Some(PlanText { galley, text, search, left }) = room_plan {
        let strip =
            Rect::from_x_y_ranges(full.left() + left..=full.right() - 16.0, full.bottom() - plan_height + ABOVE..=full.bottom());
        let bar = Rect::from_min_size(pos2(strip.left() - BESIDE, strip.top()), vec2(3.0, galley.size().y));
        ui.painter().rect_filled(bar, 0.0, t.accent);
        ui.painter().galley(strip.min, galley, t.text1);
        let response = told_at(ui, strip, "way out", Sense::hover(), egui::Role::Label, || &text);
        if !search.is_empty() {
            response.on_hover_text(search);
        }
    }
    ui.advance_cursor_after_rect(full);
}
