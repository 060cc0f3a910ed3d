//! [`Card`]: a device for the allocator, and memory use on it [outside](Outside). Also the simulated card.

use rustc_hash::{FxHashMap, FxHashSet};

use vramscope_core::allocator::{DeviceError, DeviceMemory, Placement, SimulatedMemory};
use vramscope_core::model::Sample;
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE};

/// Facts about a card.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CardInfo {
    /// Product name as the driver gives it; `simulated card, …` for simulated memory.
    pub name: String,
    /// Device index in this process.
    pub index: i32,
    /// Total bytes of the card.
    pub total: u64,
    /// Free bytes when the run began, without those that the probe leaves alone.
    pub free: u64,
    /// Bytes the probe never takes.
    pub kept_free: u64,
    /// False for a real card.
    pub is_simulated: bool,
}

/// A card as scenarios need it: the allocator's device, and what programs do outside the allocator.
pub trait Card: DeviceMemory {
    /// Writes to allocated memory on the stream, so that it is physically backed.
    fn touch(&mut self, address: u64, size: u64, stream: u64);

    /// What the allocator has no part in.
    fn outside(&mut self) -> &mut dyn Outside;
}

/// A card outside PyTorch's allocator: figures, streams, raw allocations, pinned memory, the driver's pool, other processes.
pub trait Outside {
    /// Facts about the card.
    fn info(&self) -> CardInfo;

    /// The driver's figures now, without the allocator's. Fields are `None` where the driver cannot tell.
    fn sample(&mut self) -> Sample;

    /// Queues work on a stream that runs until [`release_stream`](Self::release_stream).
    fn hold_stream(&mut self, stream: u64) -> Result<(), DeviceError>;

    /// Ends the held work and waits for the stream.
    fn release_stream(&mut self, stream: u64);

    /// Allocates memory outside the allocator, as a library does.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when it does not fit.
    fn take_outside(&mut self, size: u64) -> Result<(), DeviceError>;

    /// Frees all memory of [`take_outside`](Self::take_outside).
    fn give_outside_back(&mut self);

    /// Pins host memory.
    fn pin(&mut self, size: u64) -> Result<u64, DeviceError>;

    /// Unpins memory at an address that [`pin`](Self::pin) returned.
    fn unpin(&mut self, address: u64, size: u64);

    /// Sets whether the driver's own pool keeps freed memory.
    ///
    /// # Errors
    /// When the driver has no pool.
    fn set_pool_keeps(&mut self, keeps: bool) -> Result<(), DeviceError>;

    /// Allocates from the driver's own pool.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when it does not fit.
    fn pool_alloc(&mut self, size: u64) -> Result<u64, DeviceError>;

    /// Frees into the driver's own pool.
    fn pool_free(&mut self, address: u64, size: u64);

    /// Bytes held by the driver's own pool.
    fn pool_reserved(&mut self) -> u64;

    /// Waits for all work on the device.
    fn synchronise(&mut self);

    /// Starts another process that takes memory of this card.
    ///
    /// # Errors
    /// When it cannot start or does not get the memory.
    fn add_neighbour(&mut self, size: u64) -> Result<(), DeviceError>;

    /// Frees everything outside the allocator and ends the other processes.
    fn clean_up(&mut self);

    /// Bytes used on the card as counted by NVML and by the driver; `None` when only one of them can tell.
    fn two_counts(&mut self) -> Option<(u64, u64)> {
        None
    }

    /// One sentence about the first failure of a call that returns no error.
    fn failure(&self) -> Option<String>;
}

/// Memory of the simulated card.
pub(super) const SIMULATED_TOTAL: u64 = 24 * GIBIBYTE;
/// Bytes taken by `cuInit`, the primary context and the first allocated byte, measured on an H200 with driver 580.
const INIT: u64 = 3_407_872;
const CONTEXT: u64 = 552_402_944;
const FIRST_BYTE: u64 = 554_500_096;
/// Addresses of simulated pinned memory and of the simulated driver's pool.
const HOST_BASE: u64 = 0x7e00_0000_0000;
const POOL_BASE: u64 = 0x3_0200_0000;

/// A card that only counts bytes: 24 GiB unless a replay needs more. Its context takes as much as on an H200.
#[derive(Debug)]
pub struct SimulatedCard {
    memory: SimulatedMemory,
    /// Bytes of this process outside the allocator: context, raw allocations, the driver's pool.
    context: u64,
    outside: u64,
    others: u64,
    held: FxHashSet<u64>,
    host_next: u64,
    /// The driver's pool: free pieces by size, bytes held, and whether it keeps them.
    pool_free: FxHashMap<u64, Vec<u64>>,
    pool_held: u64,
    pool_used: u64,
    pool_keeps: bool,
    pool_next: u64,
}

impl SimulatedCard {
    fn of(total: u64) -> Self {
        SimulatedCard {
            memory: SimulatedMemory::new(total, Placement::Driver),
            context: 0,
            outside: 0,
            others: 0,
            held: FxHashSet::default(),
            host_next: HOST_BASE,
            pool_free: FxHashMap::default(),
            pool_held: 0,
            pool_used: 0,
            pool_keeps: false,
            pool_next: POOL_BASE,
        }
    }

    /// Simulates the start of a CUDA program on a card of `total` bytes. `seen` is called with each stage and the sample after it.
    pub fn open_with(total: u64, seen: &mut dyn FnMut(&str, Sample)) -> Self {
        let mut card = SimulatedCard::of(total);
        let stages = [("before CUDA", 0), ("cuInit", INIT), ("primary context", CONTEXT), ("first byte", FIRST_BYTE)];
        for (stage, bytes) in stages {
            card.context = bytes;
            seen(stage, card.sample());
        }
        card
    }

    fn taken(&self) -> u64 {
        self.context + self.outside + self.others + self.pool_held
    }

    fn take(&mut self, size: u64) -> Result<(), DeviceError> {
        if size > self.available() { Err(DeviceError::OutOfMemory) } else { Ok(()) }
    }
}

impl DeviceMemory for SimulatedCard {
    fn total(&self) -> u64 {
        self.memory.total()
    }

    fn available(&self) -> u64 {
        self.memory.available().saturating_sub(self.taken())
    }

    fn malloc(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        self.take(size)?;
        self.memory.malloc(size, stream)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.memory.free(address, size);
    }

    fn reserve(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError> {
        self.memory.reserve(size, stream)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.memory.release(address, size);
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.take(size)?;
        self.memory.map(address, size, page)
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        self.memory.unmap(address, size, page);
    }

    fn record_event(&mut self, stream: u64) -> u64 {
        self.memory.record_event(stream)
    }

    fn is_event_done(&mut self, stream: u64, event: u64) -> bool {
        !self.held.contains(&stream) || self.memory.is_event_done(stream, event)
    }

    fn wait_event(&mut self, stream: u64, event: u64) {
        self.memory.wait_event(stream, event);
    }

    fn synchronize_stream(&mut self, stream: u64) {
        self.release_stream(stream);
    }
}

impl Card for SimulatedCard {
    fn touch(&mut self, _address: u64, _size: u64, _stream: u64) {}

    fn outside(&mut self) -> &mut dyn Outside {
        self
    }
}

impl Outside for SimulatedCard {
    fn info(&self) -> CardInfo {
        CardInfo {
            name: format!("simulated card, {}", Bytes(self.total())),
            index: 0,
            total: self.total(),
            free: self.available(),
            kept_free: 0,
            is_simulated: true,
        }
    }

    fn sample(&mut self) -> Sample {
        let own = self.memory.total() - self.memory.available();
        let process = own + self.context + self.outside + self.pool_held;
        Sample { used: Some(own + self.taken()), process: Some(process), others: Some(self.others), ..Sample::default() }
    }

    fn hold_stream(&mut self, stream: u64) -> Result<(), DeviceError> {
        self.held.insert(stream);
        Ok(())
    }

    fn release_stream(&mut self, stream: u64) {
        self.held.remove(&stream);
        self.memory.finish(stream);
    }

    fn take_outside(&mut self, size: u64) -> Result<(), DeviceError> {
        self.take(size)?;
        self.outside += size;
        Ok(())
    }

    fn give_outside_back(&mut self) {
        self.outside = 0;
    }

    fn pin(&mut self, size: u64) -> Result<u64, DeviceError> {
        let address = self.host_next;
        self.host_next += size.next_multiple_of(2 * MEBIBYTE);
        Ok(address)
    }

    fn unpin(&mut self, _address: u64, _size: u64) {}

    fn set_pool_keeps(&mut self, keeps: bool) -> Result<(), DeviceError> {
        self.pool_keeps = keeps;
        Ok(())
    }

    fn pool_alloc(&mut self, size: u64) -> Result<u64, DeviceError> {
        // The driver's pool grows in pieces of 32 MiB.
        let size = size.next_multiple_of(32 * MEBIBYTE);
        let address = match self.pool_free.get_mut(&size).and_then(Vec::pop) {
            Some(address) => address,
            None => {
                self.take(size)?;
                self.pool_held += size;
                let address = self.pool_next;
                self.pool_next += size;
                address
            }
        };
        self.pool_used += size;
        Ok(address)
    }

    fn pool_free(&mut self, address: u64, size: u64) {
        let size = size.next_multiple_of(32 * MEBIBYTE);
        self.pool_free.entry(size).or_default().push(address);
        self.pool_used = self.pool_used.saturating_sub(size);
    }

    fn pool_reserved(&mut self) -> u64 {
        self.pool_held
    }

    fn synchronise(&mut self) {
        if !self.pool_keeps {
            self.pool_held = self.pool_used;
            self.pool_free.clear();
        }
    }

    fn add_neighbour(&mut self, size: u64) -> Result<(), DeviceError> {
        let size = size.saturating_add(FIRST_BYTE);
        self.take(size)?;
        self.others += size;
        Ok(())
    }

    fn clean_up(&mut self) {
        self.outside = 0;
        self.others = 0;
        self.held.clear();
    }

    fn failure(&self) -> Option<String> {
        None
    }
}
