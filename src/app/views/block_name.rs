//! What a block is called: the place that made it, or what it is for. An address says nothing to who wrote the program.

use crate::analysis::anatomy::made_at;
use crate::analysis::{Categories, Category, LifetimeId};
use crate::app::document::DeviceData;

/// `model.py:41`; where no stack was recorded the role in words, as `gradients`; `None` where neither is known.
pub(super) fn block_name(data: &DeviceData, categories: Option<&Categories>, id: LifetimeId) -> Option<String> {
    let stack = data.tables.lifetimes.stack(data.device(), id);
    let role = categories.map_or(Category::Unknown, |c| c.of(id));
    if stack.is_some() {
        return Some(made_at(&data.recording.stacks, &data.names, stack, role));
    }
    (role != Category::Unknown).then(|| role.text().to_owned())
}
