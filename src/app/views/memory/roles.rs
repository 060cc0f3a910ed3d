//! The bar and the table by role.

use egui::{Color32, Rect, Sense, Ui};

use super::ViewContext;
use super::layout;
use super::layout::BAR;
use super::layout::RoleRow;
use super::tables::{Columns, square};
use crate::app::data::colours::role_paint;
use crate::app::state::{Action, ColourBy};
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW, ROW_DENSE};
use crate::app::theme::{Tokens, Type};
use crate::app::views::block_name::{paint_role, role_width};
use crate::app::widgets::{Batch, Cut, ListRow, Tip, label, row};
use vramscope_core::anatomy::{Composition, Role, Which};
use vramscope_core::tables::NO_EVENT;
use vramscope_core::units::{Bytes, count, counted};

/// Draws bar and table. Returns the role under the pointer.
pub(super) fn roles(ui: &mut Ui, cx: &ViewContext<'_>, held: &Composition, rows: &[RoleRow]) -> Option<Role> {
    let t = cx.tokens;

    let bar = row::told(ui, BAR, egui::Role::Image, || "Memory by role").0.inset(PAD_PANE, 0.0, PAD_ROW, 0.0);
    let spans = layout::bar(&rows.iter().map(|r| r.bytes).collect::<Vec<_>>(), bar.width());
    let by_role = cx.shared.colour_by == ColourBy::Role;
    let focus = if by_role { cx.shared.focus_classes.as_slice() } else { &[] };
    let mut hovered = None;
    ui.add_space(8.0);
    let columns = Columns::of(row::line(ui, 18.0));
    label::text_in(ui.painter(), columns.inner, "Role", Type::Column, t.text3);
    let unit = layout::unit(held.bytes);
    columns.captions(ui, &[unit, "share, %"]);
    for (row, span) in rows.iter().zip(&spans) {
        let class = row.role.index() as u8;
        let is_chosen = focus == [class];
        let mut part = None;
        if let Some((from, to)) = *span {
            let place = bar.cell(from, to);
            let response = ui.interact(place, ui.scope_id().with(("role of the bar", row.name)), Sense::click());
            part = Some((place, response));
        }
        let name = format!("{}: {} {unit}, {} %", row.name, row.figure, row.share);
        let response = ListRow::new(&name).height(ROW_DENSE).selected(is_chosen).show_painted(ui);
        let is_over = response.hovered() || part.as_ref().is_some_and(|(_, r)| r.hovered());
        if is_over {
            hovered = Some(row.role);
        }
        let is_dim = hovered_or(cx, by_role).map_or(!focus.is_empty() && !focus.contains(&class), |over| over != row.role);
        let ink = role_paint(row.role).colour(t);
        let ink = if row.bytes == 0 || is_dim { Tokens::at(ink, if row.bytes == 0 { 0.4 } else { 0.25 }) } else { ink };
        if let Some((place, _)) = &part {
            let mut batch = Batch::new(ui.painter());
            batch.rect(place.with_max_x(place.right() - 1.0), ink);
            batch.paint(ui.painter());
        }
        role_row(ui, response.rect, row, ink);
        let tip = Tip::new(row.name)
            .swatch(role_paint(row.role).colour(t))
            .row("bytes", Bytes(row.bytes))
            .row("share", format!("{} %", row.share))
            .row("blocks", count(row.count))
            .note(about(row));
        tip.show(&response);
        let mut is_clicked = response.clicked();
        if let Some((_, part)) = part {
            tip.show(&part);
            is_clicked |= part.clicked();
        }
        if is_clicked {
            if !by_role {
                cx.actions.send(Action::SetColourBy(ColourBy::Role));
            }
            if !is_chosen {
                // The inspector then lists the blocks of the role instead of a single one.
                cx.actions.send(Action::Select(None));
            }
            cx.actions.send(Action::SetFocusClasses(if is_chosen { Vec::new() } else { vec![class] }));
            // The other views go to the instant of the table, as they do for its lines.
            if !is_chosen && held.event != NO_EVENT {
                cx.actions.send(Action::SetCursor(held.event));
            }
        }
    }
    let (last, _) = row::told(ui, 22.0, egui::Role::Label, || format!("{} {unit} in all", layout::whole(held)));
    let columns = Columns::of(last);
    ui.painter().hline(columns.inner.x_range(), last.top() + 0.5, egui::Stroke::new(1.0, t.line));
    let share = label::text_in_right(ui.painter(), columns.at(1), "100.0", Type::Mono, t.text3);
    let room = columns.inner.with_max_x(share.left() - 4.0);
    let mut counts = vec![counted(held.count, "live block", "live blocks"), counted(held.count, "block", "blocks")];
    if held.beyond.all() > 0 {
        // A trace's total may be more than the blocks of its events.
        counts.splice(0..0, [format!("{} and memory without blocks", counts[0]), format!("{} and more", counts[1])]);
    }
    let fits = |text: &&String| label::width(ui.painter(), text, Type::Body) <= room.width();
    label::text_in(ui.painter(), room, counts.iter().find(fits).unwrap_or(&counts[counts.len() - 1]), Type::Body, t.text2);
    label::figure(ui.painter(), columns.at(0), &layout::whole(held), t.text1);
    hovered
}

/// The role under the pointer in any view.
fn hovered_or(cx: &ViewContext<'_>, by_role: bool) -> Option<Role> {
    match cx.shared.hover_own.as_ref().map(|own| &own.which) {
        Some(Which::Role(role)) => Some(*role),
        _ => cx.shared.hover_class.filter(|_| by_role).and_then(|class| Role::ALL.get(usize::from(class)).copied()),
    }
}

/// What a role is, and whether it is inferred.
fn about(row: &RoleRow) -> String {
    let sure = if row.is_probable { " Most of it is inferred from sizes, counts and lives." } else { "" };
    format!("{}{sure} Click shows this role alone.", row.role.about())
}

fn role_row(ui: &Ui, rect: Rect, row: &RoleRow, ink: Color32) {
    let t = Tokens::of(ui);
    let columns = Columns::of(rect);
    let p = ui.painter();
    square(p, rect.middle(columns.inner.left() + 5.0), ink);
    let is_absent = row.bytes == 0;
    let (name, figure) = if is_absent { (t.text3, t.text3) } else { (t.text1, t.text1) };
    let shown = label::text_in_right(p, columns.at(0), &row.figure, Type::Mono, figure);
    let mut room = rect.across(columns.inner.left() + 16.0, shown.left() - 8.0);
    // In a narrow pane the name has priority over the share.
    let beside = columns.at(1).right() - label::width(p, &row.share, Type::Mono) - 4.0;
    let is_beyond = row.name != row.role.text();
    let needs = if is_beyond { label::width(p, row.name, Type::Body) } else { role_width(p, row.role, row.is_probable) };
    if needs <= beside - room.left() {
        label::text_in_right(p, columns.at(1), &row.share, Type::Mono, t.text3);
        room.max.x = beside;
    }
    if is_beyond {
        label::text_in(p, room, row.name, Type::Body, name);
    } else {
        paint_role(p, t, row.role, row.is_probable, room, name);
    }
}
