use egui::Color32;

use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::block_name::place_name;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::{Cell, Column, Width, paint_square};
use vramscope_core::anatomy::steps::{Steps, number};
use vramscope_core::model::SizeClass;
use vramscope_core::query::ordering::Order;
use vramscope_core::tables::{Lifetime, NO_EVENT};
use vramscope_core::units::{Address, Bytes, Micros, count};

pub struct Line {
    pub life: Lifetime,
    /// How often its address was used before; `None` until counted.
    pub generation: Option<u32>,
    /// The allocation is live at the cursor. Others are drawn paler.
    pub is_live: bool,
    pub ink: Color32,
}

/// The columns that make sense for the recording. In a narrow pane the least useful ones are hidden first; the stack takes the
/// remaining width.
pub fn columns<'a>(cx: &'a ViewContext<'_>, steps: Option<&'a Steps>) -> Vec<Column<'a, Line, Order>> {
    let t = cx.tokens;
    let device = cx.data.device();
    let events = device.events.len();
    let number_width = (count(events as u64).len() as f32 * 6.7).max(44.0).ceil() + 2.0;
    // The number of previous uses that follows an address has more digits in a long recording.
    let address_width = 138.0 + (events / 2).to_string().len().saturating_sub(3) as f32 * 6.7;
    let sorts = |column: Column<'a, Line, Order>, by: Order| column.sorts(by).descends(by.begins_descending());
    let mut columns = vec![
        sorts(Column::text("allocation", Width::Exact(address_width), |c, l: &Line| name(cx, c, l)), Order::Address),
        sorts(Column::figure("size", 76.0, |c, l: &Line| c.figure(Bytes(l.life.requested).with_decimals(), l.ink)), Order::Size),
        sorts(Column::figure("block", 76.0, |c, l: &Line| c.figure(Bytes(l.life.block).with_decimals(), t.text2)), Order::Block)
            .goes(4),
        sorts(
            Column::text("role", Width::Exact(122.0), |c, l: &Line| {
                if let Some(roles) = cx.roles {
                    let is_probable = roles.is_probable(cx.data.device(), &cx.data.tables, l.life.id);
                    c.text(roles.of(l.life.id).words(is_probable), Type::Body, t.text2);
                }
            }),
            Order::Role,
        )
        .goes(8),
        sorts(Column::text("allocated at", Width::Share(1.0, 120.0), |c, l: &Line| stack(cx, c, l)), Order::Stack).goes(10),
    ];
    // Without events there are no birth events and no ages in events.
    if events > 0 {
        columns.extend([
            sorts(Column::figure("born", number_width, |c, l: &Line| at(c, l.life.born, "before")), Order::Born).goes(9),
            sorts(Column::figure("gone", number_width, |c, l: &Line| at(c, l.life.gone, "kept")), Order::Gone).goes(7),
            sorts(
                Column::figure("age, events", number_width.max(74.0), |c, l: &Line| {
                    c.figure(count(u64::from(events_lived(cx, &l.life))), t.text2);
                }),
                Order::Age,
            )
            .goes(3),
        ]);
    }
    if device.events.has_time {
        // Not sortable, because ages in events have another order.
        columns.push(Column::figure("age", 66.0, |c, l: &Line| c.figure(time_lived(cx, &l.life), t.text2)).goes(6));
    }
    if let Some(steps) = steps {
        let step = Column::figure("step", 36.0, |c, l: &Line| {
            if let Some(step) = steps.of(l.life.born) {
                c.figure(number(step), t.text3);
            }
        });
        // Steps are in the same order as birth events.
        columns.push(sorts(step, Order::Born).goes(5));
    }
    if device.can_show.addresses.is_known() {
        let pool =
            Column::text("pool", Width::Exact(66.0), |c, l: &Line| _ = c.text(pool_text(cx, &l.life), Type::Body, t.text3));
        columns.push(sorts(pool, Order::Pool).goes(2));
    }
    if device.streams.len() > 1 {
        let stream = Column::figure("stream", 42.0, |c, l: &Line| c.figure(l.life.stream.0.to_string(), t.text3));
        columns.push(sorts(stream, Order::Stream).goes(1));
    }
    columns
}

/// The address and how often it was used before: `0x7f1dca2b7000_3`.
fn name(cx: &ViewContext<'_>, c: &Cell<'_>, l: &Line) {
    let born = if l.life.born == NO_EVENT { 0 } else { l.life.born.max(cx.shared.cursor) };
    paint_square(c.p, c.rect, cx.colours.of(cx.data, l.life.id, born, c.t), l.is_live);
    let name = c.from(c.rect.left() + 14.0);
    if !cx.data.recording.addresses().is_known() {
        // Without addresses, the allocation's number identifies it.
        name.text(vramscope_core::units::count(u64::from(l.life.id.0) + 1), Type::Mono, l.ink);
        return;
    }
    let covered = name.text(Address(l.life.address).to_string(), Type::Mono, l.ink);
    if let Some(generation) = l.generation {
        c.from(covered.right()).text(format!("_{generation}"), Type::Mono, c.t.text3);
    }
}

/// The code that allocated, named as in all views. A wide column also has the calling line of the user's code, or its location.
fn stack(cx: &ViewContext<'_>, c: &Cell<'_>, l: &Line) {
    let known = if l.life.stack.is_some() { c.t.text2 } else { c.t.text3 };
    let place = place_name(cx.data, cx.roles.map(|roles| &**roles), l.life.id);
    let rest = c.from(c.text(&place, Type::Mono, known).right() + 10.0);
    if rest.rect.width() > 80.0 && l.life.stack.is_some() {
        let own = cx.data.names.of_stack(l.life.stack);
        let more = match own.contains(&place) {
            true => StackCells::of(&cx.data.recording.stacks, l.life.stack).allocated_in.beside(&place),
            false => format!("from {own}"),
        };
        rest.text(more, Type::Body, c.t.text3);
    }
}

/// An event number, or `none` when there is no event.
fn at(c: &Cell<'_>, event: u32, none: &str) {
    match event {
        NO_EVENT => c.figure(none, c.t.text3),
        event => c.figure(count(u64::from(event)), c.t.text2),
    }
}

fn events_lived(cx: &ViewContext<'_>, life: &Lifetime) -> u32 {
    let born = if life.born == NO_EVENT { 0 } else { life.born };
    life.gone.min(cx.data.device().events.len() as u32).saturating_sub(born)
}

fn time_lived(cx: &ViewContext<'_>, life: &Lifetime) -> String {
    let times = &cx.data.device().events.time_us;
    let at = |event: u32| times.get(event as usize).or(times.last()).copied().unwrap_or(0);
    let born = if life.born == NO_EVENT { 0 } else { life.born };
    Micros(at(life.gone) - at(born)).to_string()
}

fn pool_text(cx: &ViewContext<'_>, life: &Lifetime) -> String {
    match cx.data.device().pool_key(life.pool) {
        Some((a, b)) if (a, b) != (0, 0) => format!("({a}, {b})"),
        _ if life.class == SizeClass::Small => "small".to_owned(),
        _ => "large".to_owned(),
    }
}
