//! [`SimulatedMemory`]: a device that only counts, with a choice of where the driver would put segments.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::memory::{DeviceError, DeviceMemory};

/// Where simulated segments go. Sizes and offsets inside a segment never depend on it; up to PyTorch 2.12 the choice between
/// equal free blocks does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each segment above the one before.
    Ascending,
    /// Each segment below the one before.
    Descending,
    /// By turns below and above all others.
    Alternating,
}

/// A simulated device.
#[derive(Clone, Debug)]
pub struct SimulatedMemory {
    total: u64,
    used: u64,
    placement: Placement,
    up: u64,
    down: u64,
    next_range: u64,
    calls: u64,
    /// Marks set and passed, by stream.
    marks: FxHashMap<u64, (u64, u64)>,
    live: BTreeMap<u64, u64>,
}

/// Where address ranges of expandable segments begin: apart from every segment.
const RANGES: u64 = 0x6000_0000_0000;
/// Spacing of those ranges.
const RANGE_STEP: u64 = 1 << 38;

impl SimulatedMemory {
    /// An empty device of `total` bytes.
    #[must_use]
    pub fn new(total: u64, placement: Placement) -> Self {
        SimulatedMemory {
            total,
            used: 0,
            placement,
            up: 0x7100_0000_0000,
            down: 0x7a00_0000_0000,
            next_range: RANGES,
            calls: 0,
            marks: FxHashMap::default(),
            live: BTreeMap::new(),
        }
    }

    /// The device finishes everything queued on a stream.
    pub fn finish(&mut self, stream: u64) {
        let mark = self.marks.entry(stream).or_default();
        mark.1 = mark.0;
    }
}

impl DeviceMemory for SimulatedMemory {
    fn total(&self) -> u64 {
        self.total
    }

    fn available(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }

    fn malloc(&mut self, size: u64, _stream: u64) -> Result<u64, DeviceError> {
        if size > self.available() {
            return Err(DeviceError::OutOfMemory);
        }
        let is_odd = self.calls % 2 == 1;
        self.calls += 1;
        let goes_down = match self.placement {
            Placement::Ascending => false,
            Placement::Descending => true,
            Placement::Alternating => is_odd,
        };
        let address = if goes_down {
            self.down -= size;
            self.down
        } else {
            let at = self.up;
            self.up += size;
            at
        };
        self.used += size;
        self.live.insert(address, size);
        Ok(address)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.live.remove(&address);
        self.used = self.used.saturating_sub(size);
    }

    fn reserve(&mut self, size: u64, _stream: u64) -> Result<u64, DeviceError> {
        let address = self.next_range;
        self.next_range += size.checked_next_multiple_of(RANGE_STEP).unwrap_or(RANGE_STEP);
        Ok(address)
    }

    fn release(&mut self, _address: u64, _size: u64) {}

    fn map(&mut self, _address: u64, size: u64, _page: u64) -> Result<(), DeviceError> {
        if size > self.available() {
            return Err(DeviceError::OutOfMemory);
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
