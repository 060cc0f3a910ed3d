//! [`FollowingCard`]: a card that gives segments the addresses they had in a recording.
//!
//! Up to PyTorch 2.12 the allocator prefers the lower address among equal free blocks, and the driver chooses addresses. For a
//! replay to be the recorded run, the allocator must see the recorded addresses while it requests the same segments in the same
//! order, and plausible driver addresses afterwards. The real memory is the card's.

use std::collections::BTreeMap;

use super::card::{Card, CardInfo};
use vramscope_core::allocator::{DeviceError, DeviceMemory, SimulatedMemory};
use vramscope_core::model::Sample;

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
    fn info(&self) -> CardInfo {
        self.card.info()
    }

    fn sample(&mut self) -> Sample {
        self.card.sample()
    }

    fn touch(&mut self, address: u64, size: u64, stream: u64) {
        self.card.touch(self.real(address), size, stream);
    }

    fn hold_stream(&mut self, stream: u64) -> Result<(), DeviceError> {
        self.card.hold_stream(stream)
    }

    fn release_stream(&mut self, stream: u64) {
        self.card.release_stream(stream);
    }

    fn take_outside(&mut self, size: u64) -> Result<(), DeviceError> {
        self.card.take_outside(size)
    }

    fn give_outside_back(&mut self) {
        self.card.give_outside_back();
    }

    fn pin(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.card.pin(size)
    }

    fn unpin(&mut self, address: u64, size: u64) {
        self.card.unpin(address, size);
    }

    fn set_pool_keeps(&mut self, keeps: bool) -> Result<(), DeviceError> {
        self.card.set_pool_keeps(keeps)
    }

    fn pool_alloc(&mut self, size: u64) -> Result<u64, DeviceError> {
        self.card.pool_alloc(size)
    }

    fn pool_free(&mut self, address: u64, size: u64) {
        self.card.pool_free(address, size);
    }

    fn pool_reserved(&mut self) -> u64 {
        self.card.pool_reserved()
    }

    fn synchronise(&mut self) {
        self.card.synchronise();
    }

    fn add_neighbour(&mut self, size: u64) -> Result<(), DeviceError> {
        self.card.add_neighbour(size)
    }

    fn clean_up(&mut self) {
        self.card.clean_up();
    }

    fn two_counts(&mut self) -> Option<(u64, u64)> {
        self.card.two_counts()
    }

    fn failure(&self) -> Option<String> {
        self.card.failure()
    }
}
