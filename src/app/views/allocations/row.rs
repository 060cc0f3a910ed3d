//! One row of the table.

use egui::{Painter, Rect};

use super::layout::Column;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::chip::paint_square;
use crate::app::widgets::label;
use crate::app::widgets::row::ground;
use crate::app::widgets::table::cell;
use vramscope_core::anatomy::steps::number;
use vramscope_core::model::SizeClass;
use vramscope_core::tables::{Lifetime, NO_EVENT};

use vramscope_core::units::{Address, Bytes, Micros, count};

/// What a row shows.
pub struct Cells<'a> {
    pub life: &'a Lifetime,
    /// How many tenants its address had before, once counted.
    pub generation: Option<u32>,
    /// The step it was born in.
    pub step: Option<usize>,
    pub is_selected: bool,
    /// The pointer is on it, here or in another view.
    pub is_hovered: bool,
}

impl Cells<'_> {
    /// Paints the row. What is not held at the cursor is quieter.
    pub fn paint(&self, painter: &Painter, cx: &ViewContext<'_>, rect: Rect, columns: &[(Column, f32, f32)]) {
        let t = cx.tokens;
        let life = self.life;
        let fill = if self.is_selected { Some(t.accentbg) } else { self.is_hovered.then_some(t.s3) };
        ground(painter, rect, fill, self.is_selected.then_some(t.accent));
        let is_live = cx.data.tables.lifetimes.is_live_at(life.id, cx.shared.cursor);
        let ink = if is_live { t.text1 } else { t.text2 };
        for &(column, left, right) in columns {
            let cell = cell(rect, left, right);
            let figure = |text: &str, ink| label::figure(painter, cell, text, ink);
            match column {
                Column::Address => {
                    let at = if life.born == NO_EVENT { 0 } else { life.born.max(cx.shared.cursor) };
                    let colour = cx.colours.of(cx.data, life.id, at, t);
                    paint_square(painter, cell, colour, is_live);
                    let name = cell.with_min_x(cell.left() + 14.0);
                    if !cx.data.recording.addresses().is_known() {
                        label::text_in(painter, name, "not recorded", Type::Body, t.text3);
                        continue;
                    }
                    let covered = label::text_in(painter, name, &Address(life.address).to_string(), Type::Mono, ink);
                    if let Some(generation) = self.generation {
                        let rest = cell.with_min_x(covered.right());
                        label::text_in(painter, rest, &format!("_{generation}"), Type::Mono, t.text3);
                    }
                }
                Column::Size => figure(&Bytes(life.requested).with_decimals(), ink),
                Column::Block => figure(&Bytes(life.block).with_decimals(), t.text2),
                Column::Born if life.born == NO_EVENT => figure("before", t.text3),
                Column::Born => figure(&count(u64::from(life.born)), t.text2),
                Column::Gone if life.gone == NO_EVENT => figure("kept", t.text3),
                Column::Gone => figure(&count(u64::from(life.gone)), t.text2),
                Column::Age => figure(&count(u64::from(events_lived(cx, life))), t.text2),
                Column::Lived => figure(&time_lived(cx, life), t.text2),
                Column::Role => {
                    if let Some(roles) = cx.roles {
                        let role = roles.of(life.id).words(roles.is_probable(cx.data.device(), &cx.data.tables, life.id));
                        label::text_in(painter, cell, &role, Type::Body, t.text2);
                    }
                }
                Column::Stack => {
                    let known = if life.stack.is_some() { t.text2 } else { t.text3 };
                    let place = cx.data.names.of_stack(life.stack);
                    let own = label::text_in(painter, cell, place, Type::Mono, known);
                    let rest = cell.with_min_x(own.right() + 10.0);
                    if rest.width() > 80.0 && life.stack.is_some() {
                        let inner = StackCells::of(&cx.data.recording.stacks, life.stack).allocated_in.beside(place);
                        label::text_in(painter, rest, &inner, Type::Body, t.text3);
                    }
                }
                Column::Stream => figure(&life.stream.0.to_string(), t.text3),
                Column::Pool => _ = label::text_in(painter, cell, &pool_text(cx, life), Type::Body, t.text3),
                Column::Step => {
                    if let Some(step) = self.step {
                        figure(&number(step), t.text3);
                    }
                }
            }
        }
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
