//! The table of live blocks between holes, each drawn with the holes beside it.

use egui::{Rect, Ui, vec2};

use super::case::Case;
use super::segments::mark_going;
use crate::app::state::{Action, Item};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::block_name::{place_name, role_words};
use crate::app::widgets::{Batch, Cell, Column, Cut, Table, Term, Width, label, pane};
use vramscope_core::anatomy::Role;
use vramscope_core::diagnose::fragmentation::{Blocker, facts_of};
use vramscope_core::diagnose::oom::age;
use vramscope_core::model::{BlockState, DeviceRecording};
use vramscope_core::tables::{LifetimeId, State};
use vramscope_core::units::{Address, Bytes, SizeColumn, count, counted};

pub(super) struct Listed {
    pub(super) blocker: Blocker,
    /// Its rank among the blockers; `None` for a block to free that touches no hole.
    rank: Option<usize>,
    /// It is one of the blocks to free.
    is_going: bool,
    /// Who owns its segment, when that segment cannot serve the request.
    whose: Option<String>,
}

/// The rows: the blocks to free if they are few, then the blockers by the bytes they strand, then blocks to free that touch no
/// hole. O(blocks).
pub(super) fn listed(device: &DeviceRecording, case: &Case) -> Vec<Listed> {
    /// With more blocks to free than this, they are not moved to the top, because they would hide the ranking. They are marked
    /// there instead.
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

/// The table's caption: how many blockers there are.
pub(super) fn caption(case: &Case) -> String {
    let found = case.blockers();
    let n = found.len() as u64;
    let what = match found.iter().filter(|b| !b.serves).count() as u64 {
        0 => format!("{} a hole", counted(n, "live block touches", "live blocks touch")),
        _ => format!("{} a hole or a segment", counted(n, "live block keeps", "live blocks keep")),
    };
    // True when a block to free is above one that strands more bytes.
    let rank = |row: &Listed| row.rank.unwrap_or(usize::MAX);
    let is_first = case.listed.windows(2).any(|w| rank(&w[0]) > rank(&w[1]));
    if is_first { format!("{what} · what to free first") } else { what }
}

/// The blockers, sorted by the bytes they strand.
pub(super) fn blockers(ui: &mut Ui, cx: &ViewContext<'_>, case: &Case) {
    let t = cx.tokens;
    let (state, found) = (&case.state, &case.listed);
    if found.is_empty() {
        return pane::empty_state(ui, "No live block touches a hole of this pool, so freeing one would not enlarge any.", None);
    }
    let first = || found.iter().take(200).map(|row| &row.blocker);
    let size = SizeColumn::of(first().flat_map(|b| [b.size, b.strands(), b.appears()]));
    let wide = |of: fn(&Blocker) -> u64| {
        let letters = first().map(|b| size.sized(of(b)).chars().count()).max().unwrap_or(0);
        (letters as f32 * LETTER).max(52.0)
    };
    // The scale fits the first rows. A much larger block further down is cut.
    let greatest = found.iter().take(FIRST).map(|row| row.blocker.hole_if_freed()).max().unwrap_or(1) as f32;
    let lifetimes = &cx.data.tables.lifetimes;
    let place = if cx.data.names.is_empty() { "block" } else { "allocated at" };
    let columns: Vec<Column<'_, Line<'_>>> = vec![
        Column::text("#", Width::Exact(20.0), |c, l: &Line<'_>| {
            c.text(l.listed.rank.map_or(String::new(), |rank| count(rank as u64 + 1)), Type::Mono, t.text3);
        })
        .goes(1),
        Column::text(place, Width::Share(1.0, PLACE), |c, l: &Line<'_>| {
            let is_own = cx.data.names.index(lifetimes.stack(cx.data.device(), l.id)).is_some();
            let ink = if is_own { t.accent } else { t.text1 };
            let mut left = label::name_in(c.p, c.rect, &l.name, Type::Mono, ink).right() + 10.0;
            // After the location, whatever fits.
            for more in l.listed.whose.iter().chain(&l.more) {
                if left + label::width(c.p, more, Type::Caption) <= c.rect.right() {
                    left = c.from(left).text(more, Type::Caption, t.text3).right() + 10.0;
                }
            }
        })
        .term((place != "block").then_some(Term::Stack)),
        Column::figure("size", wide(|b| b.size), |c, l: &Line<'_>| c.figure(size.sized(l.listed.blocker.size), t.text1))
            .term(Term::of("size")),
        Column::text("between", Width::Share(1.4, 60.0), |c, l: &Line<'_>| {
            let colour = cx.colours.of(cx.data, l.id, state.event, t);
            picture(c, l.listed, colour, greatest);
        })
        .goes(3)
        .term(Term::of("between")),
        Column::figure("wastes", wide(Blocker::strands), |c, l: &Line<'_>| {
            c.figure(size.sized(l.listed.blocker.strands()), t.text1);
        })
        .term(Term::of("wastes")),
        Column::figure("if freed", wide(Blocker::appears), |c, l: &Line<'_>| {
            let b = &l.listed.blocker;
            let enough = case.request().is_some_and(|request| b.serves && b.hole_if_freed() >= request)
                || case.need().is_some_and(|need| need > 0 && b.returns >= need);
            c.figure(size.sized(b.appears()), if enough { t.text1 } else { t.text2 });
        })
        .term(Term::of("if freed")),
        Column::figure("age", 74.0, |c, l: &Line<'_>| {
            c.figure(age(cx.data.device(), lifetimes, l.id, state.event).to_string(), t.text2);
        })
        .goes(2)
        .term(Term::of("age")),
    ];
    let id = |i: usize| state.blocks[found[i].blocker.block].lifetime;
    let line = |i: usize| {
        let (name, more) = named(cx, id(i), Some(found[i].blocker.segment));
        Some(Line { listed: &found[i], id: id(i), name, more })
    };
    let selected = cx.shared.selected();
    let selected = (0..found.len()).find(|&i| selected == Some(Item::Lifetime(id(i))));
    let table = Table::plain("blockers", columns).captions().spaced(12.0, 12.0, 12.0).selected(selected);
    let out = table.show(ui, found.len(), line, |_, l| format!("{}, {}", l.name, Bytes(l.listed.blocker.size)));
    if let Some(i) = out.hovered {
        cx.actions.send(Action::Hover(Some(Item::Lifetime(id(i)))));
    }
    if let Some(i) = out.chosen() {
        cx.actions.send(Action::Select(Some(Item::Lifetime(id(i)))));
    }
    for (i, response) in out.seen {
        let p = ui.painter().with_clip_rect(response.interact_rect);
        let (row, rect) = (&found[i], response.rect);
        if i > 0 && found[..i].iter().all(|row| row.is_going) && found[i..].iter().all(|row| !row.is_going) {
            // The line between the blocks to free and the ranking.
            p.hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line2));
        }
        if row.is_going {
            // The same bar as before the text about the blocks to free.
            p.rect_filled(rect.cell(3.0, 6.0).shrink2(vec2(0.0, 4.0)), 0.0, t.accent);
        }
        let told = told(cx, state, row, named(cx, id(i), Some(row.blocker.segment)).1);
        if !told.is_empty() {
            response.on_hover_text(told.join("\n"));
        }
    }
}

/// A row: its block, the block's name, and what distinguishes it from others.
struct Line<'a> {
    listed: &'a Listed,
    id: LifetimeId,
    name: String,
    more: Vec<String>,
}

/// The block between its holes, to scale.
fn picture(c: &Cell<'_>, Listed { blocker: b, is_going, .. }: &Listed, colour: egui::Color32, greatest: f32) {
    let t = c.t;
    let place = c.rect.shrink2(vec2(0.0, 7.0));
    let unit = place.width() / greatest.max(1.0);
    let mut batch = Batch::new(c.p).hatch_origin(place.min);
    let mut x = place.left();
    for (size, is_hole) in [(b.before, true), (b.size, false), (b.after, true)] {
        let whole = size as f32 * unit;
        let w = if is_hole { whole } else { whole.min(place.width() - (b.before + b.after) as f32 * unit) };
        let r = place.across(x, x + w);
        if is_hole && size > 0 {
            batch.hole(r, t.s2, t.hatch, t.line2);
        } else if !is_hole {
            batch.rect_at_least_a_pixel(r, colour);
            if *is_going {
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
    batch.paint(c.p);
}

fn told(cx: &ViewContext<'_>, state: &State, row: &Listed, mut told: Vec<String>) -> Vec<String> {
    let block = &state.blocks[row.blocker.block];
    if cx.data.recording.addresses().is_known() {
        told.push(Address(block.address).to_string());
    }
    if row.is_going {
        told.push("One of the blocks to free.".to_owned());
    }
    if block.state == BlockState::PendingFree {
        told.push("The program has freed it; another stream still uses it.".to_owned());
    }
    if let Some(whose) = &row.whose {
        told.push(format!(
            "It lies in a segment {whose}, which cannot serve this request. Freeing it returns {} to the device.",
            Bytes(row.blocker.returns)
        ));
    }
    told
}

/// A block's name as in all views (the line that allocated it, or else its role), followed by what distinguishes it: its role,
/// the user's line that called a library, or, without a stack, its segment.
pub(super) fn named(cx: &ViewContext<'_>, id: LifetimeId, segment: Option<usize>) -> (String, Vec<String>) {
    let roles = cx.roles.map(|roles| &**roles);
    let words = role_words(cx.data, roles, id);
    let Some(own) = cx.data.names.index(cx.data.tables.lifetimes.stack(cx.data.device(), id)) else {
        let place = segment.map(|segment| format!("in segment {}", count(segment as u64 + 1)));
        let name = words.or_else(|| {
            let at = cx.data.tables.lifetimes.address(cx.data.device(), id);
            cx.data.recording.addresses().is_known().then(|| Address(at).to_string())
        });
        return (name.unwrap_or_else(|| Role::Unknown.text().to_owned()), place.into_iter().collect());
    };
    let made = place_name(cx.data, roles, id);
    let own = Some(cx.data.names.text(own)).filter(|own| !own.contains(&made));
    (made, words.into_iter().chain(own.map(|own| format!("from {own}"))).collect())
}

/// Least width of the location.
const PLACE: f32 = 112.0;
/// The pictures of the first rows are never cut.
const FIRST: usize = 8;
/// Width of a letter of the figures.
const LETTER: f32 = 6.7;
