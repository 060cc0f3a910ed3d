//! [`Identity`]: which value a cached result was made from.

use std::any::Any;
use std::sync::{Arc, Weak};

/// Identifies a value behind an [`Arc`]. An address alone is not enough, because it may be reused once the value is gone. An
/// identity holds a weak reference, which keeps the allocation but drops the value as usual.
#[derive(Clone, Debug)]
pub struct Identity(Weak<dyn Any + Send + Sync>);

impl Identity {
    pub fn of<T: Any + Send + Sync>(value: &Arc<T>) -> Self {
        let weak = Arc::downgrade(value);
        Identity(weak)
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Identity {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_later_value_is_taken_for_one_that_is_gone() {
        let first = Arc::new([0u64; 5]);
        let (of_first, address) = (Identity::of(&first), Arc::as_ptr(&first));
        assert_eq!(of_first, Identity::of(&Arc::clone(&first)));
        drop(first);
        // Without the identity the allocator reuses the address at once.
        let later: Vec<_> = (0..1_000).map(|_| Arc::new([0u64; 5])).collect();
        assert!(later.iter().all(|l| Identity::of(l) != of_first && Arc::as_ptr(l) != address));
    }
}
