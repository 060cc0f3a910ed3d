//! What a block is called: the code that allocated it, or its role. An address would mean nothing to the author of a program.

use egui::{Color32, Painter, Rect};

use crate::app::data::device::DeviceData;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;
use vramscope_core::anatomy::made_at;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::tables::LifetimeId;

/// A shorter name of a role, for narrow places.
pub(super) fn short_role(role: Role) -> &'static str {
    match role {
        Role::OptimizerState => "optimizer",
        Role::AutocastCopies => "autocast",
        role => role.text(),
    }
}

/// The least width that a role's name needs.
pub(super) fn role_width(p: &Painter, role: Role, is_probable: bool) -> f32 {
    let before = if is_probable { label::width(p, "probably", Type::Caption) + 4.0 } else { 0.0 };
    before + label::width(p, short_role(role), Type::Body)
}

/// Writes a role's name, with "probably" before it when it is inferred. In a narrow pane the name is cut rather than "probably",
/// because a guess must not look like a fact.
pub(super) fn paint_role(p: &Painter, t: &Tokens, role: Role, is_probable: bool, room: Rect, ink: Color32) {
    let mut room = room;
    if is_probable {
        room.min.x = label::text_in(p, room, "probably", Type::Caption, t.text3).right() + 4.0;
    }
    let fits = label::width(p, role.text(), Type::Body) <= room.width();
    label::text_in(p, room, if fits { role.text() } else { short_role(role) }, Type::Body, ink);
}

/// The role of a block for its tooltip: `probably weights`. `None` when it is unknown.
pub(super) fn role_words(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let roles = roles.filter(|roles| roles.of(id) != Role::Unknown)?;
    Some(roles.of(id).words(roles.is_probable(data.device(), &data.tables, id)))
}

/// `model.py:41`, or a note that there is no stack.
pub(super) fn place_name(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> String {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    made_at(&data.recording.stacks, &data.names, stack, roles.map_or(Role::Unknown, |roles| roles.of(id)))
}

/// `model.py:41`. Without a stack it is the role, as `gradients`; `None` when neither is known.
pub(super) fn block_name(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    if data.names.index(stack).is_some() {
        return Some(place_name(data, roles, id));
    }
    let role = roles.map_or(Role::Unknown, |c| c.of(id));
    (role != Role::Unknown).then(|| role.text().to_owned())
}
