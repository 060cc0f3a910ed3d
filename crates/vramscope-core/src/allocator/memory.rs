//! [`DeviceMemory`]: where the allocator's memory comes from. Simulated for what-if, a real card for the probe.

/// Why the device did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Not enough memory left; the allocator then tries its next way to find some.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// Anything else: the request fails with this text.
    #[error("{0}")]
    Failed(String),
}

/// A device as PyTorch's allocator sees it: segments, address ranges with pages, and the events that guard frees.
///
/// All sizes and addresses are bytes. Streams are raw handles, 0 the default stream.
pub trait DeviceMemory {
    /// Total memory, as `cudaDeviceProp.totalGlobalMem`.
    fn total(&self) -> u64;

    /// Bytes still free, as `cudaMemGetInfo`.
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

    /// Puts memory behind `size` bytes at `address` of a reservation, in pages of `page` bytes: all of them or none.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when a page does not fit.
    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), DeviceError>;

    /// Takes the pages away again.
    fn unmap(&mut self, address: u64, size: u64, page: u64);

    /// Marks the end of the work queued on a stream so far; the number names the mark.
    fn record_event(&mut self, stream: u64) -> u64;

    /// Whether all work before a mark is done.
    fn is_event_done(&mut self, stream: u64, event: u64) -> bool;

    /// Waits for a mark.
    fn wait_event(&mut self, stream: u64, event: u64);

    /// Waits for a stream.
    fn synchronize_stream(&mut self, stream: u64);
}
