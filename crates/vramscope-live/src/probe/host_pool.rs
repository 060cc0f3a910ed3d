//! Pools that hand out whole segments: PyTorch's pinned host memory and the driver's own pool.

use super::message::RawEvent;
use vramscope_core::allocator::{HeldBlock, HeldSegment};
use vramscope_core::model::{Action, BlockState, SizeClass};

/// A segment, which is a single block.
#[derive(Clone, Copy, Debug)]
struct Piece {
    address: u64,
    size: u64,
    requested: u64,
    is_live: bool,
}

/// Segments that are allocated and kept whole, and the events of doing so.
#[derive(Debug, Default)]
pub(super) struct WholePool {
    pieces: Vec<Piece>,
    is_host: bool,
}

/// The size that `CachingHostAllocator` requests from the system: the next power of two.
pub(super) fn host_size(size: u64) -> u64 {
    size.max(512).checked_next_power_of_two().unwrap_or(u64::MAX)
}

impl WholePool {
    pub(super) fn new(is_host: bool) -> Self {
        WholePool { pieces: Vec::new(), is_host }
    }

    pub(super) fn reserved(&self) -> u64 {
        self.pieces.iter().map(|p| p.size).sum()
    }

    /// Bytes of live segments.
    pub(super) fn live(&self) -> u64 {
        self.pieces.iter().filter(|p| p.is_live).map(|p| p.size).sum()
    }

    fn event(&self, action: Action, address: u64, size: u64, site: u32) -> RawEvent {
        RawEvent { time_us: 0, action, is_host: self.is_host, site, address, size, stream: 0, pool: (0, 0) }
    }

    /// Reuses a free segment of exactly this size for a request. Returns its address.
    pub(super) fn reuse(&mut self, size: u64, requested: u64, site: u32, out: &mut Vec<RawEvent>) -> Option<u64> {
        let piece = self.pieces.iter_mut().find(|p| !p.is_live && p.size == size)?;
        (piece.is_live, piece.requested) = (true, requested);
        let address = piece.address;
        out.push(self.event(Action::Alloc, address, requested, site));
        Some(address)
    }

    /// Adds a segment that the system or the driver allocated.
    pub(super) fn add(&mut self, address: u64, size: u64, requested: u64, site: u32, out: &mut Vec<RawEvent>) {
        self.pieces.push(Piece { address, size, requested, is_live: true });
        out.push(self.event(Action::SegmentAlloc, address, size, site));
        out.push(self.event(Action::Alloc, address, requested, site));
    }

    /// Records an address that the driver returned. True when it is one of the free segments.
    pub(super) fn was_reused(&mut self, address: u64, requested: u64, site: u32, out: &mut Vec<RawEvent>) -> bool {
        let Some(piece) = self.pieces.iter_mut().find(|p| p.address == address && !p.is_live) else { return false };
        (piece.is_live, piece.requested) = (true, requested);
        out.push(self.event(Action::Alloc, address, requested, site));
        true
    }

    /// Records that the program freed an address. The segment stays.
    pub(super) fn free(&mut self, address: u64, site: u32, out: &mut Vec<RawEvent>) -> u64 {
        let Some(piece) = self.pieces.iter_mut().find(|p| p.address == address && p.is_live) else { return 0 };
        piece.is_live = false;
        let (size, requested) = (piece.size, piece.requested);
        out.push(self.event(Action::FreeRequested, address, requested, site));
        out.push(self.event(Action::FreeCompleted, address, requested, site));
        size
    }

    /// Removes free segments until `left` bytes remain, because the driver released them.
    pub(super) fn shrink(&mut self, left: u64, out: &mut Vec<RawEvent>) {
        let mut over = self.reserved().saturating_sub(left);
        let mut at = 0;
        while at < self.pieces.len() {
            let piece = self.pieces[at];
            if !piece.is_live && piece.size <= over {
                over -= piece.size;
                self.pieces.remove(at);
                out.push(self.event(Action::SegmentFree, piece.address, piece.size, u32::MAX));
            } else {
                at += 1;
            }
        }
    }

    /// All segments, each with its block.
    pub(super) fn segments(&self) -> Vec<HeldSegment> {
        let mut out: Vec<HeldSegment> = self
            .pieces
            .iter()
            .map(|p| HeldSegment {
                address: p.address,
                size: p.size,
                stream: 0,
                pool: (0, 0),
                class: SizeClass::Large,
                is_expandable: false,
                blocks: vec![HeldBlock {
                    address: p.address,
                    size: p.size,
                    requested: p.requested,
                    state: if p.is_live { BlockState::Active } else { BlockState::Inactive },
                }],
            })
            .collect();
        out.sort_by_key(|s| s.address);
        out
    }

    /// Addresses and sizes of all segments, to free them.
    pub(super) fn all(&self) -> Vec<(u64, u64)> {
        self.pieces.iter().map(|p| (p.address, p.size)).collect()
    }
}
