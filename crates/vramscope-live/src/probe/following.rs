//! [`FollowingCard`]: a card that gives segments the addresses they had in a recording.
//!
//! Up to PyTorch 2.12 the allocator prefers the lower address among equal free blocks, and the driver chooses addresses. So a
//! replay equals the recorded run only if the allocator sees the recorded addresses while it requests the same segments in the
//! same order. Afterwards it sees plausible driver addresses. The real memory is the card's.

use std::collections::BTreeMap;

use super::card::{Card, Outside};
use vramscope_core::allocator::{DeviceError, DeviceMemory, SimulatedMemory};

#[derive(Debug)]
pub(super) struct FollowingCard<C> {
    card: C,
    /// Chooses the addresses that the allocator sees. It never runs out of memory.
    plan: SimulatedMemory,
    /// For each address that the allocator sees, the address on the card and the bytes of the segment or reservation.
    behind: BTreeMap<u64, (u64, u64)>,
}

impl<C: Card> FollowingCard<C> {
    pub(super) fn new(card: C, plan: SimulatedMemory) -> Self {
        FollowingCard { card, plan, behind: BTreeMap::new() }
    }

    /// The card's address for an address that the allocator sees.
    fn real(&self, address: u64) -> u64 {
        match self.behind.range(..=address).next_back() {
            Some((&seen, &(real, size))) if address - seen < size => real + (address - seen),
            _ => address,
        }
    }
}

impl<C: Card> DeviceMemory for FollowingCard<C> {
    fn total(&self) -> u64 {
        self.card.total()
    }

    fn available(&self) -> u64 {
        self.card.available()
    }

    fn malloc(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        let real = self.card.malloc(size, stream)?;
        let seen = self.plan.malloc(size, stream)?;
        self.behind.insert(seen, (real, size));
        Ok(seen)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.card.free(self.real(address), size);
        self.plan.free(address, size);
        self.behind.remove(&address);
    }

    fn reserve(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        let real = self.card.reserve(size, stream)?;
        let seen = self.plan.reserve(size, stream)?;
        self.behind.insert(seen, (real, size));
        Ok(seen)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.card.release(self.real(address), size);
        self.plan.release(address, size);
        self.behind.remove(&address);
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.card.map(self.real(address), size, page)?;
        self.plan.map(address, size, page)
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        self.card.unmap(self.real(address), size, page);
        self.plan.unmap(address, size, page);
    }

    fn record_event(&mut self, stream: u64) -> u64 {
        self.card.record_event(stream)
    }

    fn is_event_done(&mut self, stream: u64, event: u64) -> bool {
        self.card.is_event_done(stream, event)
    }

    fn wait_event(&mut self, stream: u64, event: u64) {
        self.card.wait_event(stream, event);
    }

    fn synchronize_stream(&mut self, stream: u64) {
        self.card.synchronize_stream(stream);
    }
}

impl<C: Card> Card for FollowingCard<C> {
    fn touch(&mut self, address: u64, size: u64, stream: u64) {
        self.card.touch(self.real(address), size, stream);
    }

    fn outside(&mut self) -> &mut dyn Outside {
        self.card.outside()
    }
}
