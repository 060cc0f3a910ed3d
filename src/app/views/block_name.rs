//! What a block is called: the place that made it, or what it is for. An address says nothing to who wrote the program.

use crate::app::data::device::DeviceData;
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

/// What a block is for, for a row of its tooltip: `probably weights`; `None` where nothing tells.
pub(super) fn role_words(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let roles = roles.filter(|roles| roles.of(id) != Role::Unknown)?;
    Some(roles.of(id).words(roles.is_probable(data.device(), &data.tables, id)))
}

/// `model.py:41`; where no stack tells a place the role in words, as `gradients`; `None` where neither is known.
pub(super) fn block_name(data: &DeviceData, roles: Option<&Roles>, id: LifetimeId) -> Option<String> {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    let role = roles.map_or(Role::Unknown, |c| c.of(id));
    if data.names.index(stack).is_some() {
        return Some(made_at(&data.recording.stacks, &data.names, stack, role));
    }
    (role != Role::Unknown).then(|| role.text().to_owned())
}
