//! The pictures: the request against the holes, the segments they lie in, the blocks in the way.

use egui::{Align2, Rect, ScrollArea, Sense, Ui, pos2, vec2};

use crate::analysis::fragmentation::Way;
use crate::analysis::oom::Autopsy;
use crate::analysis::{LifetimeId, State};
use crate::app::action::Action;
use crate::app::selection::Item;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::row::ListRow;
use crate::app::widgets::viewport::Scale;
use crate::app::widgets::{axis, pane};
use crate::model::BlockState;
use crate::units::{Address, Bytes, counted};

/// Indices of the segments that could have served the request, those with most free bytes first.
pub(super) fn servers(a: &Autopsy, state: &State) -> Vec<usize> {
    let mut found: Vec<(u64, usize)> = state
        .segments
        .iter()
        .enumerate()
        .filter(|(_, s)| a.servers.take(s))
        .map(|(i, s)| (state.blocks_of(s).iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum(), i))
        .collect();
    found.sort_by_key(|&(free, i)| (std::cmp::Reverse(free), i));
    found.into_iter().map(|(_, i)| i).collect()
}

/// Four bars on one scale: the request, all holes end to end, the largest hole, the room for one more segment.
pub(super) fn request_against_holes(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, state: &State) {
    let t = cx.tokens;
    let rect = ui.available_rect_before_wrap();
    let painter = ui.painter_at(rect);
    let room = match a.limit {
        Some((low, _)) => low.saturating_sub(a.reserved),
        None => a.device_free,
    };
    let greatest = a.requested.max(a.holes.bytes).max(a.holes.largest) as f64 * 1.08;
    let plot = Rect::from_min_max(pos2(rect.left() + 168.0, rect.top() + 10.0), pos2(rect.right() - 130.0, rect.bottom() - 24.0));
    if plot.width() < 80.0 || plot.height() < 60.0 {
        return;
    }
    let scale = Scale::horizontal(0.0, greatest, plot.x_range());
    let pitch = plot.height() / 4.0;
    let bar_height = (pitch * 0.58).clamp(10.0, 34.0);
    let row = |i: usize, from: f64, to: f64| {
        let y = plot.top() + pitch * i as f32 + (pitch - bar_height) / 2.0;
        Rect::from_min_max(pos2(scale.at(from), y), pos2(scale.at(to.min(greatest)), y + bar_height))
    };
    let mut batch = Batch::new(&painter).hatch_origin(rect.min);
    let ticks = axis::byte_ticks(0.0, greatest, axis::most_across(plot.width()));
    ticks.grid_across(&mut batch, t, &scale, plot);
    batch.rect(row(0, 0.0, a.requested as f64), t.red);
    let mut holes: Vec<u64> = servers(a, state)
        .into_iter()
        .flat_map(|i| state.blocks_of(&state.segments[i]))
        .filter(|b| b.state == BlockState::Inactive)
        .map(|b| b.size)
        .collect();
    holes.sort_unstable_by(|x, y| y.cmp(x));
    // Slices under 3 px merge into one run.
    let mut at = 0u64;
    for (i, &hole) in holes.iter().enumerate() {
        let width = scale.at((at + hole) as f64) - scale.at(at as f64);
        if width < 5.0 {
            let rest: u64 = holes[i..].iter().sum();
            batch.hole(row(1, at as f64, (at + rest) as f64), t.s2, t.hatch, t.line2);
            break;
        }
        let mut slice = row(1, at as f64, (at + hole) as f64);
        slice.max.x -= 2.0;
        batch.hole(slice, t.s2, t.hatch, t.line2);
        at += hole;
    }
    if a.holes.largest > 0 {
        let largest = row(2, 0.0, a.holes.largest as f64);
        batch.hatch(largest, t.hatch);
        batch.outline(largest, 1.5, t.text1);
    }
    let room_bar = row(3, 0.0, (room as f64).min(greatest));
    batch.outline(room_bar, 1.0, t.text2);
    let x = scale.at(a.requested as f64);
    batch.dashed_vline(x, egui::Rangef::new(row(0, 0.0, 0.0).bottom(), plot.bottom()), 1.0, (4.0, 3.0), t.red);
    batch.paint(&painter);
    ticks.paint_across(
        &painter,
        t,
        &scale,
        Rect::from_min_max(plot.left_bottom() + vec2(0.0, 4.0), plot.right_bottom() + vec2(0.0, 20.0)),
        axis::UnitAt::Last,
    );

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
        (true, true) if a.limit.is_some_and(|(low, high)| low != high) => {
            format!("the cap was not recorded; a new {} segment passed it", Bytes(a.segment))
        }
        (true, true) => format!("a new {} segment would pass the cap by {}", Bytes(a.segment), Bytes(over)),
        (false, true) => format!("a new {} segment needs {} more than the device has", Bytes(a.segment), Bytes(over)),
        (_, false) => format!("a new segment needs {}", Bytes(a.segment)),
    };
    let room_name = if a.limit.is_some() { "Room under the cap" } else { "Free on the device" };
    let holes_text = format!("{}, end to end", counted(a.holes.count, "hole", "holes"));
    let rows: [(&str, &str, u64, &str, f32); 4] = [
        ("The request", "one block", a.requested, "", 0.0),
        ("All free memory", &holes_text, a.holes.bytes, &spare, row(1, 0.0, a.holes.bytes as f64).right()),
        (
            "The largest hole",
            "all that one block can use",
            a.holes.largest,
            &too_small,
            row(2, 0.0, a.holes.largest as f64).right(),
        ),
        (room_name, "for one more segment", room, &room_text, room_bar.right()),
    ];
    for (i, (name, detail, bytes, note, end)) in rows.into_iter().enumerate() {
        let y = row(i, 0.0, 0.0).center().y;
        label::text(&painter, pos2(plot.left() - 12.0, y - 8.0), Align2::RIGHT_CENTER, name, Type::Strong, t.text1);
        label::text(&painter, pos2(plot.left() - 12.0, y + 8.0), Align2::RIGHT_CENTER, detail, Type::Caption, t.text3);
        let ink = if i == 0 { t.red } else { t.text1 };
        label::text(
            &painter,
            pos2(rect.right() - 16.0, y),
            Align2::RIGHT_CENTER,
            &Bytes(bytes).to_string(),
            Type::MonoStrong,
            ink,
        );
        if !note.is_empty() {
            let width = label::width(&painter, note, Type::Body);
            // A note that would leave the plot stands inside its end instead.
            let at = if end + 10.0 + width < rect.right() - 120.0 {
                pos2(end + 10.0, y)
            } else {
                pos2(plot.right() - width - 4.0, y + bar_height / 2.0 + 9.0)
            };
            label::text(&painter, at, Align2::LEFT_CENTER, note, Type::Body, t.text2);
        }
    }
    ui.allocate_rect(rect, Sense::hover())
        .widget_info(|| egui::WidgetInfo::labeled(egui::Role::Canvas, true, "Request against holes"));
}

/// The segments that could have served the request, blocks to scale, the cheapest way out marked.
pub(super) fn where_the_holes_are(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, state: &State) {
    let t = cx.tokens;
    let order = servers(a, state);
    if order.is_empty() {
        pane::empty_state(ui, "No segment serves requests of this size on this stream.", None);
        return;
    }
    let full = ui.available_rect_before_wrap();
    let way_height = if a.way_out.is_some() { 26.0 } else { 4.0 };
    let list = Rect::from_min_max(full.min, pos2(full.right(), full.bottom() - way_height));
    let few = order.len() <= 5;
    let (row_height, gap) = if few { ((list.height() / order.len() as f32 - 8.0).clamp(12.0, 34.0), 8.0) } else { (8.0, 2.0) };
    let widest = order.iter().map(|&i| state.segments[i].size).max().unwrap_or(1) as f64;
    let marked: &[usize] = a.way_out.as_ref().map_or(&[], |w| &w.segments);
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
        let first = (view.min.y / pitch).floor().max(0.0) as usize;
        let last = ((view.max.y / pitch).ceil() as usize + 1).min(order.len());
        let pointer = response.hover_pos();
        let mut under = None;
        for (n, &i) in order.iter().enumerate().take(last).skip(first) {
            let segment = &state.segments[i];
            let top = plot.top() + pitch * n as f32;
            let mut live = (0u64, 0u64);
            for block in state.blocks_of(segment) {
                let from = (block.address - segment.address) as f64;
                let r = Rect::from_min_max(
                    pos2(scale.at(from), top),
                    pos2(scale.at(from + block.size as f64) - 1.0, top + row_height),
                );
                if block.state == BlockState::Inactive {
                    batch.hole(r, t.s2, t.hatch, t.line2);
                } else {
                    live = (live.0 + 1, live.1 + block.size);
                    let colour = cx.colours.of(cx.data, block.lifetime, state.event, t);
                    batch.rect_at_least_a_pixel(r, colour);
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
                let y = top + row_height / 2.0;
                label::text(
                    &painter,
                    pos2(plot.left() - 12.0, y - 7.0),
                    Align2::RIGHT_CENTER,
                    &format!("segment {i}"),
                    Type::Strong,
                    t.text1,
                );
                label::text(
                    &painter,
                    pos2(plot.left() - 12.0, y + 8.0),
                    Align2::RIGHT_CENTER,
                    &Address(segment.address).to_string(),
                    Type::Mono,
                    t.text3,
                );
                let pinned = counted(live.0, "block", "blocks");
                label::text(&painter, pos2(rect.right() - 16.0, y - 7.0), Align2::RIGHT_CENTER, &pinned, Type::Mono, t.text2);
                label::text(
                    &painter,
                    pos2(rect.right() - 16.0, y + 8.0),
                    Align2::RIGHT_CENTER,
                    &Bytes(live.1).to_string(),
                    Type::Mono,
                    t.text3,
                );
            } else if n % 5 == 0 {
                label::text(
                    &painter,
                    pos2(plot.left() - 12.0, top + row_height / 2.0),
                    Align2::RIGHT_CENTER,
                    &i.to_string(),
                    Type::Mono,
                    t.text3,
                );
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
    if let Some(way) = &a.way_out {
        let strip =
            Rect::from_min_max(pos2(full.left() + 168.0, full.bottom() - way_height), pos2(full.right() - 16.0, full.bottom()));
        ui.painter().rect_filled(
            Rect::from_min_size(pos2(strip.left() - 6.0, strip.center().y - 7.0), vec2(3.0, 14.0)),
            0.0,
            t.accent,
        );
        let how = match way.way {
            Way::Hole => "Cheapest way out, one hole: ",
            Way::Release => "Cheapest way out, whole segments: ",
        };
        label::text_in(ui.painter(), strip, &format!("{how}{}", way.sentence()), Type::Body, t.text1);
    }
    ui.advance_cursor_after_rect(full);
}

/// Live blocks by the bytes they strand.
pub(super) fn blockers(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, state: &State) {
    let t = cx.tokens;
    let width = ui.available_width();
    let columns = Columns::of(width);
    let (head, _) = ui.allocate_exact_size(vec2(width, 24.0), Sense::hover());
    columns.paint(
        ui,
        head,
        ["#", "block", "size", "between", "strands", "if freed", "allocated at"],
        Type::Caption,
        [t.text3; 7],
    );
    ui.painter().hline(head.x_range(), head.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
    if a.blockers.is_empty() {
        pane::empty_state(
            ui,
            "No live block touches a hole of this pool: there is nothing to free that would let one grow.",
            None,
        );
        return;
    }
    let greatest = a.blockers.iter().take(200).map(|b| b.hole_if_freed()).max().unwrap_or(1) as f32;
    ScrollArea::vertical().id_salt("blockers").auto_shrink(false).show_rows(ui, 24.0, a.blockers.len(), |ui, rows| {
        for i in rows {
            let b = &a.blockers[i];
            let block = &state.blocks[b.block];
            let selected = cx.link.selected() == Some(Item::Lifetime(block.lifetime));
            let address = Address(block.address).to_string();
            let response = ListRow::new(&address).selected(selected).show_painted(ui);
            let rect = response.rect;
            let stack = cx.data.tables.lifetimes.stack(cx.data.device(), block.lifetime);
            let enough = b.hole_if_freed() >= a.requested;
            let texts = [
                (i + 1).to_string(),
                address.clone(),
                Bytes(b.size).to_string(),
                String::new(),
                Bytes(b.strands()).to_string(),
                format!("{} hole", Bytes(b.hole_if_freed())),
                cx.data.names.of_stack(stack).to_owned(),
            ];
            let inks = [t.text3, t.text1, t.text1, t.text1, t.text1, if enough { t.text1 } else { t.text2 }, t.accent];
            columns.paint(ui, rect, texts.each_ref().map(String::as_str), Type::Mono, inks);
            let picture = columns.rect(rect, 3).shrink2(vec2(0.0, 7.0));
            let unit = picture.width() / greatest.max(1.0);
            let mut batch = Batch::new(ui.painter()).hatch_origin(rect.min);
            let mut x = picture.left();
            for (size, is_hole) in [(b.before, true), (b.size, false), (b.after, true)] {
                let w = size as f32 * unit;
                let r = Rect::from_min_max(pos2(x, picture.top()), pos2(x + w, picture.bottom()));
                if is_hole && size > 0 {
                    batch.hole(r, t.s2, t.hatch, t.line2);
                } else if !is_hole {
                    batch.rect_at_least_a_pixel(r, cx.colours.of(cx.data, block.lifetime, state.event, t));
                }
                x += w;
            }
            batch.paint(ui.painter());
            if response.hovered() {
                cx.actions.send(Action::Hover(Some(Item::Lifetime(block.lifetime))));
            }
            if response.clicked() {
                cx.actions.send(Action::Select(Some(Item::Lifetime(block.lifetime))));
            }
        }
    });
}

/// Where the columns of the blockers table stand.
struct Columns {
    /// Left edge and width of each, from the row's left.
    at: [(f32, f32); 7],
}

impl Columns {
    fn of(width: f32) -> Self {
        let fixed = [(16.0, 30.0), (50.0, 124.0), (178.0, 84.0)];
        let right = [96.0, 110.0, 170.0];
        let picture_left = 282.0;
        let picture = (width - picture_left - right.iter().sum::<f32>() - 48.0).clamp(60.0, 320.0);
        let mut x = picture_left + picture + 16.0;
        let mut tail = [(0.0, 0.0); 3];
        for (slot, w) in tail.iter_mut().zip(right) {
            *slot = (x, w);
            x += w + 8.0;
        }
        Columns { at: [fixed[0], fixed[1], fixed[2], (picture_left, picture), tail[0], tail[1], tail[2]] }
    }

    fn rect(&self, row: Rect, column: usize) -> Rect {
        let (x, w) = self.at[column];
        Rect::from_min_size(pos2(row.left() + x, row.top()), vec2(w, row.height()))
    }

    fn paint(&self, ui: &Ui, row: Rect, texts: [&str; 7], kind: Type, inks: [egui::Color32; 7]) {
        for (i, text) in texts.into_iter().enumerate() {
            let rect = self.rect(row, i);
            // Figures stand right aligned under their captions, names left.
            if matches!(i, 2 | 4 | 5) {
                label::text_in_right(ui.painter(), rect, text, kind, inks[i]);
            } else {
                label::text_in(ui.painter(), rect, text, kind, inks[i]);
            }
        }
    }
}
