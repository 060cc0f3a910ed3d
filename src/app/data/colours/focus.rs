//! What stays bright while the rest of the picture is dimmed.

use std::sync::Arc;

use crate::app::data::device::DeviceData;
use crate::app::state::{Item, SharedViewState};
use vramscope_core::anatomy::OwnBlocks;
use vramscope_core::model::StackId;
use vramscope_core::query::matching::Matching;

use vramscope_core::tables::LifetimeId;

/// What stays bright while the rest is dimmed. An empty focus keeps everything bright.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    /// Bit mask of legend classes; 0 means all.
    classes: u64,
    /// Only allocations with this call stack.
    stack: Option<StackId>,
    /// Only allocations that match a query.
    matching: Option<Arc<Matching>>,
    /// Only the blocks of one memory row.
    own: Option<Arc<OwnBlocks>>,
}

impl PartialEq for Focus {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.matching, &other.matching) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        is_same && (self.classes, self.stack, &self.own) == (other.classes, other.stack, &other.own)
    }
}

impl Focus {
    /// The focus that a document's legend, selection and query ask for.
    pub fn of(shared: &SharedViewState, matching: Option<&Arc<Matching>>) -> Self {
        let own = shared.hover_own.as_ref().or(shared.own.as_ref());
        let stack = match shared.selected() {
            // A row may hold more stacks than the selected one, so the row decides.
            Some(Item::Stack(stack)) if own.is_none() => Some(stack),
            _ => None,
        };
        let classes = shared.hover_class.as_ref().map_or(shared.focus_classes.as_slice(), std::slice::from_ref);
        Focus { stack, matching: matching.cloned(), own: own.cloned(), ..Focus::classes(classes) }
    }

    pub fn classes(classes: &[u8]) -> Self {
        let classes = classes.iter().fold(0, |mask, &c| mask | 1u64.checked_shl(u32::from(c)).unwrap_or(0));
        Focus { classes, ..Focus::default() }
    }

    pub fn stack(stack: StackId) -> Self {
        Focus { stack: Some(stack), ..Focus::default() }
    }

    pub fn matching(matching: Arc<Matching>) -> Self {
        Focus { matching: Some(matching), ..Focus::default() }
    }

    pub fn is_all(&self) -> bool {
        self.classes == 0 && !self.picks_allocations()
    }

    /// True when single allocations are picked by a stack, a query or a row. Folded pictures then cannot show them.
    pub fn picks_allocations(&self) -> bool {
        self.stack.is_some() || self.matching.is_some() || self.own.is_some()
    }

    pub fn dims_class(&self, class: u8) -> bool {
        self.classes != 0 && self.classes & 1u64.checked_shl(u32::from(class)).unwrap_or(0) == 0
    }

    /// True when an allocation is dimmed because of its stack, the query or the row.
    pub fn dims(&self, data: &DeviceData, id: LifetimeId) -> bool {
        self.stack.is_some_and(|s| data.tables.lifetimes.stack(data.device(), id) != s)
            || self.matching.as_ref().is_some_and(|m| !m.contains(id))
            || self.own.as_ref().is_some_and(|own| !own.contains(data.device(), &data.tables, id))
    }
}
