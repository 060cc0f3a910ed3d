//! The live blocks in the way, as a table with each block drawn between its holes.

use egui::{Rect, ScrollArea, Sense, Ui, vec2};

use super::case::Case;
use super::segments::mark_going;
use crate::app::state::action::Action;
use crate::app::state::selection::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::block_name::role_words;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::row::ListRow;
use crate::app::widgets::term::{self, Term};
use crate::app::widgets::{label, pane};
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::made_at;
use vramscope_core::diagnose::fragmentation::{Blocker, facts_of};
use vramscope_core::diagnose::oom::age;
use vramscope_core::model::{BlockState, DeviceRecording};
use vramscope_core::tables::LifetimeId;
use vramscope_core::units::{Address, Bytes, SizeColumn, count, counted};

/// A row of the table.
pub(super) struct Listed {
    pub(super) blocker: Blocker,
    /// Its place among the blockers; `None` for a block of the way out that touches no hole.
    rank: Option<usize>,
    /// It is of the way out.
    is_going: bool,
    /// Whose its segment is, where that cannot serve the request.
    whose: Option<String>,
}

/// The blocks of the way out first where they are few, then the blockers by the bytes they strand, then what else of the way out
/// touches no hole. O(blocks).
pub(super) fn listed(device: &DeviceRecording, case: &Case) -> Vec<Listed> {
    /// This many of the blocks to free come first. More would hide the ranking, in which they are marked as well.
    const FEW: usize = 4;
    let going = case.room_plan().map_or(&[][..], |plan| &plan.blocks);
    let is_going = |b: &Blocker| going.binary_search(&b.block).is_ok();
    let ranked = || case.blockers().iter().copied().enumerate().map(|(rank, b)| (Some(rank), b));
    let mut known: Vec<usize> = case.blockers().iter().filter(|b| is_going(b)).map(|b| b.block).collect();
    known.sort_unstable();
    let missing: Vec<usize> = going.iter().copied().filter(|block| known.binary_search(block).is_err()).collect();
    let mut beside = if missing.is_empty() { Vec::new() } else { facts_of(device, &case.state, case.servers(), &missing) };
    beside.sort_by_key(|b| (std::cmp::Reverse(b.size), b.block));
    let rows: Vec<(Option<usize>, Blocker)> = ranked().chain(beside.into_iter().map(|b| (None, b))).collect();
    let (first, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, b)| going.len() <= FEW && is_going(b));
    let rows = first.into_iter().chain(rest).map(|(rank, blocker)| Listed {
        rank,
        is_going: is_going(&blocker),
        whose: case.servers().whose(device, &case.state.segments[blocker.segment]),
        blocker,
    });
    rows.collect()
}

/// How many there are, in words.
pub(super) fn caption(case: &Case) -> String {
    let found = case.blockers();
    let n = found.len() as u64;
    let what = match found.iter().filter(|b| !b.serves).count() as u64 {
        0 => format!("{} a hole", counted(n, "live block touches", "live blocks touch")),
        _ => format!("{} a hole or a segment", counted(n, "live block keeps", "live blocks keep")),
    };
    // A block to free comes before one that strands more.
    let rank = |row: &Listed| row.rank.unwrap_or(usize::MAX);
    let is_first = case.listed.windows(2).any(|w| rank(&w[0]) > rank(&w[1]));
    if is_first { format!("{what} · what to free first") } else { what }
}

/// Live blocks by the bytes they strand.
pub(super) fn blockers(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let t = cx.tokens;
    let (state, found) = (&case.state, &case.listed);
    let width = ui.available_width();
    let (size, widths) = figures(case);
    let columns = Columns::of(width, widths);
    let (head, _) = ui.allocate_exact_size(vec2(width, 24.0), Sense::hover());
    let place = if cx.data.names.is_empty() { "block" } else { "allocated at" };
    let names = ["#", place, "size", "between", "wastes", "if freed", "age"];
    columns.paint(ui, head, names, Type::Caption, [t.text3; 7]);
    for (i, name) in names.into_iter().enumerate() {
        let term = if name == "allocated at" { Some(Term::Stack) } else { Term::of(name) };
        if let Some(term) = term.filter(|_| columns.at[i].1 > 0.0) {
            term::explain_at(ui, columns.rect(head, i), term);
        }
    }
    ui.painter().hline(head.x_range(), head.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
    if found.is_empty() {
        pane::empty_state(ui, "No live block touches a hole of this pool, so freeing one would not enlarge any.", None);
        return;
    }
    // To the scale of those that strand most; a block far larger than these, further down, is cut.
    let greatest = found.iter().take(FIRST).map(|row| row.blocker.hole_if_freed()).max().unwrap_or(1) as f32;
    ScrollArea::vertical().id_salt("blockers").auto_shrink(false).show_rows(ui, 24.0, found.len(), |ui, rows| {
        for i in rows {
            let Listed { blocker: b, rank, is_going, whose } = &found[i];
            let is_going = *is_going;
            let block = &state.blocks[b.block];
            let selected = cx.shared.selected() == Some(Item::Lifetime(block.lifetime));
            let (name, more) = named(cx, block.lifetime, Some(b.segment));
            let response = ListRow::new(&format!("{name}, {}", Bytes(b.size))).selected(selected).show_painted(ui);
            let rect = response.rect;
            let stack = cx.data.tables.lifetimes.stack(cx.data.device(), block.lifetime);
            let enough = case.request().is_some_and(|request| b.serves && b.hole_if_freed() >= request)
                || case.need().is_some_and(|need| need > 0 && b.returns >= need);
            let age = age(cx.data.device(), &cx.data.tables.lifetimes, block.lifetime, state.event);
            let texts = [
                rank.map_or(String::new(), |rank| count(rank as u64 + 1)),
                name.clone(),
                size.sized(b.size),
                String::new(),
                size.sized(b.strands()),
                size.sized(b.appears()),
                age.to_string(),
            ];
            let place = if cx.data.names.index(stack).is_some() { t.accent } else { t.text1 };
            let inks = [t.text3, place, t.text1, t.text1, t.text1, if enough { t.text1 } else { t.text2 }, t.text2];
            columns.paint(ui, rect, texts.each_ref().map(String::as_str), Type::Mono, inks);
            // Behind the place, what there is room for.
            let room = columns.rect(rect, 1);
            let mut left = room.left() + label::width(ui.painter(), &texts[1], Type::Mono) + 10.0;
            for more in whose.iter().chain(&more) {
                let right = left + label::width(ui.painter(), more, Type::Caption);
                if right <= room.right() {
                    label::text_in(ui.painter(), room.with_min_x(left), more, Type::Caption, t.text3);
                    left = right + 10.0;
                }
            }
            if i > 0 && found[i - 1].is_going && !is_going && found[..i].iter().all(|row| row.is_going) {
                // Where the way out ends and the ranking begins.
                ui.painter().hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line2));
            }
            if is_going {
                // The bar before the words about the blocks to free.
                ui.painter().rect_filled(
                    Rect::from_min_size(rect.min + vec2(3.0, 4.0), vec2(3.0, rect.height() - 8.0)),
                    0.0,
                    t.accent,
                );
            }
            let picture = columns.rect(rect, 3).shrink2(vec2(0.0, 7.0));
            let unit = picture.width() / greatest.max(1.0);
            let mut batch = Batch::new(ui.painter()).hatch_origin(rect.min);
            let mut x = picture.left();
            let pieces =
                if picture.width() > 0.0 { [(b.before, true), (b.size, false), (b.after, true)] } else { [(0, true); 3] };
            for (size, is_hole) in pieces {
                let whole = size as f32 * unit;
                let w = if is_hole { whole } else { whole.min(picture.width() - (b.before + b.after) as f32 * unit) };
                let r = picture.across(x, x + w);
                if is_hole && size > 0 {
                    batch.hole(r, t.s2, t.hatch, t.line2);
                } else if !is_hole {
                    batch.rect_at_least_a_pixel(r, cx.colours.of(cx.data, block.lifetime, state.event, t));
                    if is_going {
                        mark_going(&mut batch, t, r);
                    }
                    if w + 0.5 < whole {
                        let gap = Rect::from_center_size(r.center(), vec2(6.0, r.height() + 2.0));
                        batch.rect(gap, t.s1);
                        batch.vline(gap.left(), r.y_range().expand(2.0), 1.0, t.text3);
                        batch.vline(gap.right(), r.y_range().expand(2.0), 1.0, t.text3);
                    }
                }
                x += w;
            }
            batch.paint(ui.painter());
            let mut told = more;
            if cx.data.recording.addresses().is_known() {
                told.push(Address(block.address).to_string());
            }
            if is_going {
                told.push("One of the blocks to free.".to_owned());
            }
            if block.state == BlockState::PendingFree {
                told.push("The program has freed it; another stream still uses it.".to_owned());
            }
            if let Some(whose) = whose {
                told.push(format!(
                    "It lies in a segment {whose}, which cannot serve this request. Freeing it returns {} to the device.",
                    Bytes(b.returns)
                ));
            }
            if !told.is_empty() {
                response.clone().on_hover_text(told.join("\n"));
            }
            if response.hovered() {
                cx.actions.send(Action::Hover(Some(Item::Lifetime(block.lifetime))));
            }
            if response.clicked() {
                cx.actions.send(Action::Select(Some(Item::Lifetime(block.lifetime))));
            }
        }
    });
}

/// What a block is called: the user's own line that made it, else what it is for; and what else tells it: its role, and the line of a
/// library that the user's own called; without a stack its segment.
pub(super) fn named(cx: &ViewContext<'_>, id: LifetimeId, segment: Option<usize>) -> (String, Vec<String>) {
    let stack = cx.data.tables.lifetimes.stack(cx.data.device(), id);
    let role = cx.roles.map_or(Role::Unknown, |roles| roles.of(id));
    let words = role_words(cx.data, cx.roles.map(|roles| &**roles), id);
    let Some(own) = cx.data.names.index(stack).map(|i| cx.data.names.text(i).to_owned()) else {
        let place = segment.map(|segment| format!("in segment {}", count(segment as u64 + 1)));
        return (words.unwrap_or_else(|| role.text().to_owned()), place.into_iter().collect());
    };
    let library = Some(made_at(&cx.data.recording.stacks, &cx.data.names, stack, role)).filter(|line| *line != own);
    (own, words.into_iter().chain(library).collect())
}

/// How the figures are written, and how wide they are: what the longest of the first ones takes.
fn figures(case: &Case) -> (SizeColumn, [f32; 3]) {
    let first = || case.listed.iter().take(200).map(|row| &row.blocker);
    let size = SizeColumn::of(first().flat_map(|b| [b.size, b.strands(), b.appears()]));
    let longest = |of: fn(&Blocker) -> u64| {
        let lengths = first().map(|b| size.sized(of(b)).chars().count());
        (lengths.max().unwrap_or(0) as f32 * LETTER).max(52.0)
    };
    (size, [longest(|b| b.size), longest(Blocker::strands), longest(Blocker::appears)])
}

/// Positions of the columns of the blockers table.
struct Columns {
    /// Left edge and width of each, from the row's left; the width is 0 where there is no room for it.
    at: [(f32, f32); 7],
}

/// Widths of the age and, at least, of the place in the code, and the gap after each column.
const AGE: f32 = 74.0;
const PLACE: f32 = 112.0;
const GAP: f32 = 12.0;
/// The widest the picture of a block between its holes gets.
const PICTURE: f32 = 240.0;
/// Maximum width of the place, because figures are beside it.
const WIDEST: f32 = 280.0;
/// The rows whose pictures are never cut.
const FIRST: usize = 8;
/// Width of a letter of the figures.
const LETTER: f32 = 6.7;

/// What of the blockers a table of this width leaves out, in words; empty where all is there.
pub(super) fn left_out(width: f32, case: &Case) -> &'static str {
    if case.listed.is_empty() {
        return "";
    }
    let columns = Columns::of(width, figures(case).1);
    match (columns.at[3].1 > 0.0, columns.at[6].1 > 0.0) {
        (true, true) => "",
        (true, false) => " · age hidden",
        (false, _) => " · pictures hidden",
    }
}

impl Columns {
    fn of(width: f32, [size, strands, freed]: [f32; 3]) -> Self {
        // The number gives way first, then the age, then the picture.
        let (mut number, mut picture, mut tail) = (20.0, 60.0, [strands, freed, AGE]);
        let sum = |number: f32, picture: f32, tail: &[f32; 3]| {
            let columns = [number, PLACE, size, picture].into_iter().chain(*tail);
            columns.map(|w| if w > 0.0 { w + GAP } else { 0.0 }).sum::<f32>() + GAP
        };
        if sum(number, picture, &tail) > width {
            number = 0.0;
        }
        if sum(number, picture, &tail) > width {
            tail[2] = 0.0;
        }
        if sum(number, picture, &tail) > width {
            picture = 0.0;
        } else {
            // The picture is what tells; the place in the code has its share from then on.
            picture = (picture + width - sum(number, picture, &tail)).clamp(60.0, PICTURE);
        }
        // What is left over goes to the place in the code.
        let place = (PLACE + width - sum(number, picture, &tail)).clamp(40.0, WIDEST);
        let mut at = [(0.0, 0.0); 7];
        let mut x = GAP;
        let widths = [number, place, size, picture].into_iter().chain(tail);
        for (slot, w) in at.iter_mut().zip(widths) {
            *slot = (x, w);
            x += if w > 0.0 { w + GAP } else { 0.0 };
        }
        Columns { at }
    }

    fn rect(&self, row: Rect, column: usize) -> Rect {
        let (x, w) = self.at[column];
        row.across(row.left() + x, row.left() + x + w)
    }

    fn paint(&self, ui: &Ui, row: Rect, texts: [&str; 7], kind: Type, inks: [egui::Color32; 7]) {
        for (i, text) in texts.into_iter().enumerate() {
            let rect = self.rect(row, i);
            if rect.width() <= 0.0 {
                continue;
            }
            // Figures are right aligned under their captions, names left.
            if matches!(i, 2 | 4 | 5 | 6) {
                label::text_in_right(ui.painter(), rect, text, kind, inks[i]);
            } else {
                label::text_in(ui.painter(), rect, text, kind, inks[i]);
            }
        }
    }
}
