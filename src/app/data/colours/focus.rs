//! What stays bright while the rest of the picture is dimmed.

use std::sync::Arc;

use crate::app::data::device::DeviceData;
use crate::app::state::selection::Item;
use crate::app::state::shared::SharedViewState;
use vramscope_core::anatomy::OwnBlocks;
use vramscope_core::model::StackId;
use vramscope_core::query::matching::Matching;

use vramscope_core::tables::LifetimeId;

/// What stays bright while the rest is dimmed. Nothing named means everything.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    /// Classes of the legend, a bit each; 0 is all.
    classes: u64,
    /// Allocations by one call stack.
    stack: Option<StackId>,
    /// Allocations that a query holds for.
    matching: Option<Arc<Matching>>,
    /// The blocks of one row of the memory column.
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
    /// What the legend, the selection and the query of a document ask for.
    pub fn of(shared: &SharedViewState, matching: Option<&Arc<Matching>>) -> Self {
        let own = shared.hover_own.as_ref().or(shared.own.as_ref());
        let stack = match shared.selected() {
            // A row may hold more than the one stack that stands for it.
            Some(Item::Stack(stack)) if own.is_none() => Some(stack),
            _ => None,
        };
        let classes = shared.hover_class.as_ref().map_or(shared.focus_classes.as_slice(), std::slice::from_ref);
        Focus { stack, matching: matching.cloned(), own: own.cloned(), ..Focus::classes(classes) }
    }

    /// These classes of the legend.
    pub fn classes(classes: &[u8]) -> Self {
        let classes = classes.iter().fold(0, |mask, &c| mask | 1u64.checked_shl(u32::from(c)).unwrap_or(0));
        Focus { classes, ..Focus::default() }
    }

    /// Allocations by this call stack.
    pub fn stack(stack: StackId) -> Self {
        Focus { stack: Some(stack), ..Focus::default() }
    }

    /// Allocations that a query holds for.
    pub fn matching(matching: Arc<Matching>) -> Self {
        Focus { matching: Some(matching), ..Focus::default() }
    }

    pub fn is_all(&self) -> bool {
        self.classes == 0 && !self.picks_allocations()
    }

    /// Single allocations are picked, by a call stack, a query or a row: what is folded cannot be told.
    pub fn picks_allocations(&self) -> bool {
        self.stack.is_some() || self.matching.is_some() || self.own.is_some()
    }

    /// A class of the legend is dimmed.
    pub fn dims_class(&self, class: u8) -> bool {
        self.classes != 0 && self.classes & 1u64.checked_shl(u32::from(class)).unwrap_or(0) == 0
    }

    /// An allocation is dimmed for its call stack, because the query does not hold for it, or as one of another row.
    pub fn dims(&self, data: &DeviceData, id: LifetimeId) -> bool {
        self.stack.is_some_and(|s| data.tables.lifetimes.stack(data.device(), id) != s)
            || self.matching.as_ref().is_some_and(|m| !m.contains(id))
            || self.own.as_ref().is_some_and(|own| !own.contains(data.device(), &data.tables, id))
    }
}
