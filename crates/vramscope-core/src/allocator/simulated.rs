//! [`SimulatedMemory`]: a device without real memory that counts bytes and chooses addresses as a driver would.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::memory::{DeviceError, DeviceMemory};
use crate::model::EventId;
use crate::units::MEBIBYTE;

/// One growth of reserved memory in a recording, with the address that the driver chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Growth {
    /// The event that recorded it.
    pub event: EventId,
    /// True for pages mapped into an expandable segment, false for a whole segment.
    pub is_map: bool,
    /// Address of the first byte.
    pub address: u64,
    /// Bytes by which reserved memory grew.
    pub size: u64,
    /// The stream whose request caused it.
    pub stream: u64,
}

/// Where simulated segments are placed. Only the choice between equal free blocks, up to PyTorch 2.12, depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// As measured on an H200 with driver 580: the lowest gap in a 32 MiB piece that is in use, else the highest run of released
    /// pieces, else below all others.
    Driver,
    /// Each segment above the one before.
    Ascending,
    /// Each segment below the one before.
    Descending,
    /// Alternates between two distant areas: above earlier segments in one, below earlier segments in the other.
    Alternating,
    /// Random addresses; the same seed gives the same addresses.
    Random(u64),
}

/// Addresses are handed out in pieces of this size.
const PIECE: u64 = 32 * MEBIBYTE;
/// Start of the address ranges of expandable segments, away from all segments.
const RANGES: u64 = 0x6000_0000_0000;
/// Distance between those ranges.
const RANGE_STEP: u64 = 1 << 38;
/// Start of the random addresses.
const RANDOM_BASE: u64 = 0x7100_0000_0000;

/// A simulated device: counts bytes and chooses addresses.
#[derive(Clone, Debug)]
pub struct SimulatedMemory {
    total: u64,
    used: u64,
    placement: Placement,
    /// The next address above (`up`) and below (`down`) everything placed so far.
    up: u64,
    down: u64,
    next_range: u64,
    calls: u64,
    random: u64,
    /// Per stream: the last event recorded, and the last one that is done.
    marks: FxHashMap<u64, (u64, u64)>,
    live: BTreeMap<u64, u64>,
    /// Pieces that ever held a segment, as runs (first piece, and the one after the last): one segment may span millions of pieces.
    touched: BTreeMap<u64, u64>,
    /// Growths of the recording that is being followed.
    recorded: Vec<Growth>,
    next_recorded: usize,
    is_following: bool,
}

impl SimulatedMemory {
    /// An empty device of `total` bytes.
    pub fn new(total: u64, placement: Placement) -> Self {
        SimulatedMemory {
            total,
            used: 0,
            placement,
            up: 0x7100_0000_0000,
            down: 0x7a00_0000_0000,
            next_range: RANGES,
            calls: 0,
            random: if let Placement::Random(seed) = placement { seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 } else { 1 },
            marks: FxHashMap::default(),
            live: BTreeMap::new(),
            touched: BTreeMap::new(),
            recorded: Vec::new(),
            next_recorded: 0,
            is_following: false,
        }
    }

    /// Marks everything queued on a stream as done.
    pub fn finish(&mut self, stream: u64) {
        let mark = self.marks.entry(stream).or_default();
        mark.1 = mark.0;
    }

    /// Uses the addresses of `growths` as long as the same growths are requested in the same order.
    pub fn follow(&mut self, growths: &[Growth]) {
        self.recorded = growths.to_vec();
        self.is_following = true;
        if let Some(first) = growths.iter().find(|g| !g.is_map) {
            self.up = first.address;
            self.down = first.address.next_multiple_of(PIECE);
        }
    }

    /// True while every growth matched the recording.
    pub(crate) fn is_following(&self) -> bool {
        self.is_following
    }

    /// Number of growths that matched the recording.
    pub(crate) fn followed(&self) -> usize {
        self.next_recorded
    }

    pub(crate) fn adopt(&mut self, address: u64, size: u64) {
        self.used += size;
        if self.live.is_empty() && !self.is_following {
            self.up = address;
            self.down = address;
        }
        self.note(address, size);
    }

    pub(crate) fn adopt_pages(&mut self, size: u64) {
        self.used += size;
    }

    fn note(&mut self, address: u64, size: u64) {
        self.live.insert(address, size);
        let alternates = self.placement == Placement::Alternating;
        if alternates && address == self.up {
            self.up += size;
        } else if alternates && address + size == self.down {
            self.down = address;
        } else {
            self.up = self.up.max(address + size);
            self.down = self.down.min(address);
        }
        self.touch(address / PIECE, (address + size).div_ceil(PIECE));
    }

    /// Marks the pieces up to `to` as touched, and merges them with adjacent runs.
    fn touch(&mut self, mut from: u64, mut to: u64) {
        while let Some((&start, &end)) = self.touched.range(..=to).next_back().filter(|(_, end)| **end >= from) {
            if start <= from && to <= end {
                return;
            }
            self.touched.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.touched.insert(from, to);
    }

    fn is_vacant(&self, address: u64, size: u64) -> bool {
        let before = self.live.range(..address + size).next_back();
        before.is_none_or(|(a, s)| a + s <= address)
    }

    fn place(&mut self, size: u64) -> u64 {
        let is_odd = self.calls % 2 == 1;
        match self.placement {
            Placement::Ascending => self.up,
            Placement::Alternating if !is_odd => self.up,
            Placement::Descending | Placement::Alternating => self.below(size, 1),
            Placement::Driver => self.place_like_driver(size),
            Placement::Random(_) => self.place_anywhere(size),
        }
    }

    /// A random free address; above everything else if free space is scarce, as in a planned run of terabytes.
    fn place_anywhere(&mut self, size: u64) -> u64 {
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            // xorshift: simple, and the same on every machine.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let address = RANDOM_BASE + (self.random % (1 << 22)) * 2 * MEBIBYTE;
            if self.is_vacant(address, size) {
                return address;
            }
        }
        self.up
    }

    fn place_like_driver(&self, size: u64) -> u64 {
        // Gaps in pieces that are partly in use, lowest first.
        let mut behind = 0;
        for (&address, &bytes) in &self.live {
            let piece_start = address / PIECE * PIECE;
            let gap_start = piece_start.max(behind);
            // In a damaged file, recorded segments may overlap.
            if address.saturating_sub(gap_start) >= size {
                return gap_start;
            }
            let end = address + bytes;
            let piece_end = end.next_multiple_of(PIECE);
            let next = self.live.range(end..).next().map_or(u64::MAX, |(&a, _)| a);
            if piece_end.min(next).saturating_sub(end) >= size {
                return end;
            }
            behind = behind.max(end);
        }
        // Runs of released pieces, from the highest down.
        let pieces = size.div_ceil(PIECE);
        for (&first, &behind) in self.touched.iter().rev() {
            let mut top = behind;
            while top >= first + pieces {
                // The highest live segment below `top`, and the free pieces above it.
                let below = self.live.range(..top * PIECE).next_back();
                let vacant = below.map_or(first, |(a, s)| (a + s).div_ceil(PIECE)).clamp(first, top);
                if top - vacant >= pieces {
                    return (top - pieces) * PIECE;
                }
                top = below.map_or(first, |(a, _)| a / PIECE).min(top - 1);
            }
        }
        self.below(size, PIECE)
    }

    /// An address below everything, at a multiple of `step`; above everything if a recording used the lowest addresses.
    fn below(&self, size: u64, step: u64) -> u64 {
        self.down.checked_sub(size).map_or(self.up, |address| address / step * step)
    }

    /// The recorded address for this growth, while the recording is followed.
    fn recorded_address(&mut self, is_map: bool, size: Option<u64>, stream: u64) -> Option<u64> {
        if !self.is_following {
            return None;
        }
        let next = self.recorded.get(self.next_recorded).copied();
        let fits = next.filter(|g| g.is_map == is_map && g.stream == stream && size.is_none_or(|s| s == g.size));
        let address = fits.map(|g| g.address);
        if address.is_none() {
            self.is_following = false;
        }
        address
    }
}

impl DeviceMemory for SimulatedMemory {
    fn total(&self) -> u64 {
        self.total
    }

    fn available(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    fn malloc(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        if size > self.available() {
            return Err(DeviceError::OutOfMemory);
        }
        let recorded = self.recorded_address(false, Some(size), stream);
        let address = match recorded.filter(|&a| self.is_vacant(a, size)) {
            Some(address) => {
                self.next_recorded += 1;
                address
            }
            None => {
                self.is_following = false;
                self.place(size)
            }
        };
        if address.checked_add(size).and_then(|end| end.checked_add(PIECE)).is_none() {
            return Err(DeviceError::OutOfMemory);
        }
        self.calls += 1;
        self.used += size;
        self.note(address, size);
        Ok(address)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.live.remove(&address);
        self.used = self.used.saturating_sub(size);
    }

    fn reserve(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        if let Some(address) = self.recorded_address(true, None, stream) {
            return Ok(address);
        }
        let address = self.next_range;
        self.next_range += size.checked_next_multiple_of(RANGE_STEP).unwrap_or(RANGE_STEP);
        Ok(address)
    }

    fn release(&mut self, _address: u64, _size: u64) {}

    fn map(&mut self, address: u64, size: u64, _page: u64) -> Result<(), DeviceError> {
        if size > self.available() {
            return Err(DeviceError::OutOfMemory);
        }
        if self.is_following {
            let next = self.recorded.get(self.next_recorded);
            if next.is_some_and(|g| g.is_map && g.address == address && g.size == size) {
                self.next_recorded += 1;
            } else {
                self.is_following = false;
            }
        }
        self.used += size;
        Ok(())
    }

    fn unmap(&mut self, _address: u64, size: u64, _page: u64) {
        self.used = self.used.saturating_sub(size);
    }

    fn record_event(&mut self, stream: u64) -> u64 {
        let mark = self.marks.entry(stream).or_default();
        mark.0 += 1;
        mark.0
    }

    fn is_event_done(&mut self, stream: u64, event: u64) -> bool {
        self.marks.get(&stream).is_none_or(|m| m.1 >= event)
    }

    fn wait_event(&mut self, stream: u64, event: u64) {
        let mark = self.marks.entry(stream).or_default();
        mark.1 = mark.1.max(event);
    }

    fn synchronize_stream(&mut self, stream: u64) {
        self.finish(stream);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Reference implementation: where the driver would place a segment, checked piece by piece.
    fn place_piece_by_piece(memory: &SimulatedMemory, touched: &BTreeSet<u64>, size: u64) -> Option<u64> {
        let pieces = size.div_ceil(PIECE);
        let (mut run, mut last) = (0, u64::MAX);
        for &piece in touched.iter().rev() {
            run = match memory.is_vacant(piece * PIECE, PIECE) {
                false => 0,
                true if run > 0 && last == piece + 1 => run + 1,
                true => 1,
            };
            last = piece;
            if run == pieces {
                return Some(piece * PIECE);
            }
        }
        None
    }

    /// A planned run of many terabytes needs more memory than there are random places.
    #[test]
    fn more_memory_than_random_places_is_still_placed() {
        let mut memory = SimulatedMemory::new(1 << 45, Placement::Random(1));
        let mut places: Vec<u64> = (0..16).map(|_| memory.malloc(1 << 40, 0).unwrap()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|w| w[0] + (1 << 40) <= w[1]), "{places:?}");
    }

    #[test]
    fn runs_of_pieces_are_found_as_single_pieces_are() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let mut memory = SimulatedMemory::new(1 << 50, Placement::Driver);
            let mut touched = BTreeSet::new();
            let mut held: Vec<(u64, u64)> = Vec::new();
            for _ in 0..60 {
                if random(3) == 0 && !held.is_empty() {
                    let (address, size) = held.swap_remove(random(held.len() as u64) as usize);
                    memory.free(address, size);
                    continue;
                }
                let size = (1 + random(90)) * 2 * MEBIBYTE;
                // Large segments never share a piece with others, so only released pieces matter.
                let expected = place_piece_by_piece(&memory, &touched, size);
                let address = memory.malloc(size, 0).unwrap();
                if size > PIECE
                    && let Some(expected) = expected
                    && memory.live.range(..address).next_back().is_none_or(|(a, s)| a + s != address)
                {
                    assert_eq!(address, expected);
                }
                touched.extend(address / PIECE..=(address + size - 1) / PIECE);
                held.push((address, size));
            }
            let whole: BTreeSet<u64> = memory.touched.iter().flat_map(|(&from, &to)| from..to).collect();
            assert_eq!(whole, touched);
        }
    }

    #[test]
    fn a_recording_at_the_end_of_the_addresses_leaves_room_or_is_full() {
        for placement in [Placement::Driver, Placement::Ascending, Placement::Descending, Placement::Alternating] {
            for base in [0, 2 * MEBIBYTE, PIECE, u64::MAX - (2 << 30)] {
                let mut memory = SimulatedMemory::new(1 << 50, placement);
                memory.adopt(base, 2 * MEBIBYTE);
                for _ in 0..4 {
                    if let Ok(address) = memory.malloc(1 << 30, 0) {
                        assert!(
                            address >= base + 2 * MEBIBYTE || address + (1 << 30) <= base,
                            "{placement:?}, {base:#x}: {address:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_segment_that_claims_more_than_any_device_has_costs_nothing() {
        let since = std::time::Instant::now();
        for _ in 0..100 {
            let mut memory = SimulatedMemory::new(1 << 50, Placement::Driver);
            memory.adopt(1 << 30, 1 << 47);
            memory.free(1 << 30, 1 << 47);
            assert!(memory.malloc(20 * MEBIBYTE, 0).is_ok());
        }
        assert!(since.elapsed().as_secs_f64() < 1.0, "{:?}", since.elapsed());
    }
}
