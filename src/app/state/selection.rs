//! What is selected, and the history of selections.

use vramscope_core::model::StackId;
use vramscope_core::tables::LifetimeId;

/// Something that can be selected or hovered. Every view understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// One allocation, from allocation to free.
    Lifetime(LifetimeId),
    /// A segment at the cursor, by address.
    Segment(u64),
    /// A hole at the cursor, by address.
    Hole(u64),
    /// Unmapped address space of an expandable segment at the cursor, by its first address.
    Unmapped(u64),
    Event(u32),
    /// Every allocation with one call stack.
    Stack(StackId),
    /// An annotation, by index.
    Annotation(u32),
}

/// The selection with its history, like a browser's.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    history: Vec<Item>,
    /// Index after the current item; 0 when nothing is selected.
    at: usize,
    is_cleared: bool,
}

const HISTORY: usize = 200;

impl Selection {
    pub fn current(&self) -> Option<Item> {
        if self.is_cleared { None } else { self.at.checked_sub(1).and_then(|i| self.history.get(i)).copied() }
    }

    /// Selects an item and drops the forward history.
    pub fn select(&mut self, item: Option<Item>) {
        let Some(item) = item else {
            self.is_cleared = true;
            return;
        };
        if self.current() == Some(item) {
            return;
        }
        self.is_cleared = false;
        self.history.truncate(self.at);
        self.history.push(item);
        if self.history.len() > HISTORY {
            self.history.remove(0);
        }
        self.at = self.history.len();
    }

    /// True when [`back`](Self::back) changes something.
    pub fn can_go_back(&self) -> bool {
        self.at > 1 || (self.is_cleared && self.at > 0)
    }

    /// True when [`forward`](Self::forward) changes something.
    pub fn can_go_forward(&self) -> bool {
        self.at < self.history.len()
    }

    pub fn back(&mut self) {
        if self.is_cleared {
            self.is_cleared = false;
        } else if self.at > 1 {
            self.at -= 1;
        }
    }

    pub fn forward(&mut self) {
        self.is_cleared = false;
        self.at = (self.at + 1).min(self.history.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_back_and_forward_and_forgets_the_branch_not_taken() {
        let mut s = Selection::default();
        assert_eq!(s.current(), None);
        assert!(!s.can_go_back());
        s.select(Some(Item::Event(1)));
        s.select(Some(Item::Event(2)));
        s.select(None);
        assert_eq!(s.current(), None);
        s.back();
        assert_eq!(s.current(), Some(Item::Event(2)));
        s.back();
        assert_eq!(s.current(), Some(Item::Event(1)));
        assert!(s.can_go_forward());
        s.select(Some(Item::Event(3)));
        assert!(!s.can_go_forward());
        s.back();
        assert_eq!(s.current(), Some(Item::Event(1)));
    }
}
