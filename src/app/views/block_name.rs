//! What a block is called: the place that made it, or what it is for. An address says nothing to who wrote the program.

use egui::{Color32, Painter, Rect};

use crate::app::data::device::DeviceData;
use crate::app::theme::Type;
use crate::app::widgets::label;
use vramscope_core::anatomy::made_at;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::tables::LifetimeId;

/// The name of a role where the whole one does not fit.
pub(super) fn short_role(role: Role) -> &'static str {
    match role {
        Role::OptimizerState => "optimizer",
        Role::AutocastCopies => "autocast",
        role => role.text(),
    }
}

/// The gap before [`guess_mark`].
const MARK_GAP: f32 = 6.0;

/// "probably" as long as it fits into `room` beside a name, and how much of the room it takes; nothing where the role is certain. A guess
/// must not read as a fact in a narrow pane, so the name is cut before the last question mark goes.
pub(super) fn guess_mark(p: &Painter, is_probable: bool, name: f32, room: f32) -> (&'static str, f32) {
    if !is_probable {
        return ("", 0.0);
    }
    let taken = |mark: &str| label::width(p, mark, Type::Caption) + MARK_GAP;
    let mark = ["probably", "prob."].into_iter().find(|mark| name + taken(mark) <= room).unwrap_or("?");
    (mark, taken(mark))
}

/// Writes [`guess_mark`] behind the name that ends at `right`.
pub(super) fn show_guess_mark(p: &Painter, mark: &str, right: f32, room: Rect, ink: Color32) {
    if !mark.is_empty() {
        label::text_in(p, room.with_min_x(right + MARK_GAP), mark, Type::Caption, ink);
    }
}

/// What a block is for, for a row of its tooltip: `probably weights`; `None` where nothing tells.
pub(super) fn role_words(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let roles = roles.filter(|roles| roles.of(id) != Role::Unknown)?;
    Some(roles.of(id).words(roles.is_probable(data.device(), &data.tables, id)))
}

/// `model.py:41`, or that there is no stack.
pub(super) fn place_name(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> String {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    made_at(&data.recording.stacks, &data.names, stack, roles.map_or(Role::Unknown, |roles| roles.of(id)))
}

/// `model.py:41`; where no stack tells a place the role in words, as `gradients`; `None` where neither is known.
pub(super) fn block_name(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    if data.names.index(stack).is_some() {
        return Some(place_name(data, roles, id));
    }
    let role = roles.map_or(Role::Unknown, |c| c.of(id));
    (role != Role::Unknown).then(|| role.text().to_owned())
}
