//! [`DeviceMemory`]: the device that an allocator takes memory from. Simulated for what-if, a real card for the probe.

/// Why a call to the device failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Not enough memory. The allocator then tries its next way to find memory.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// Any other failure; the request fails with this text.
    #[error("{0}")]
    Failed(String),
}

/// A device as PyTorch's allocator uses it: segments, address ranges with mapped pages, and stream events.
///
/// All sizes and addresses are bytes. Streams are raw handles, 0 the default stream.
pub trait DeviceMemory {
    /// Total memory, like `cudaDeviceProp.totalGlobalMem`.
    fn total(&self) -> u64;

    /// Free bytes, like `cudaMemGetInfo`.
    fn available(&self) -> u64;

    /// `cudaMalloc`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when it does not fit.
    fn malloc(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError>;

    /// `cudaFree` of memory that [`malloc`](Self::malloc) returned.
    fn free(&mut self, address: u64, size: u64);

    /// `cuMemAddressReserve`: addresses without memory behind them.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when no such range is left.
    fn reserve(&mut self, size: u64, stream: u64) -> Result<u64, DeviceError>;

    /// `cuMemAddressFree` of a whole reservation.
    fn release(&mut self, address: u64, size: u64);

    /// Maps `size` bytes at `address` of a reservation, in pages of `page` bytes: all of them or none.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when a page does not fit.
    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), DeviceError>;

    /// Unmaps pages that [`map`](Self::map) mapped.
    fn unmap(&mut self, address: u64, size: u64, page: u64);

    /// Records an event after the work queued on a stream so far; returns its number.
    fn record_event(&mut self, stream: u64) -> u64;

    /// True if all work before the event is done.
    fn is_event_done(&mut self, stream: u64, event: u64) -> bool;

    /// Waits for an event.
    fn wait_event(&mut self, stream: u64, event: u64);

    /// Waits for a stream.
    fn synchronize_stream(&mut self, stream: u64);
}
