//! [`AllocConf`]: the allocator's settings, and the size rules that follow from them.

use super::SizeClass;
use crate::units::MEBIBYTE;

/// Smallest block, and the granularity of block sizes.
const MIN_BLOCK: u64 = 512;
/// Rounded requests up to this are served by the small pool.
pub(crate) const SMALL_MAX: u64 = MEBIBYTE;
/// Segment size of the small pool.
pub(crate) const SMALL_SEGMENT: u64 = 2 * MEBIBYTE;
/// Rounded requests of at least this size get a segment of their own.
const LARGE_MIN: u64 = 10 * MEBIBYTE;
/// Sizes of such segments are rounded up to a multiple of this.
const LARGE_ROUND: u64 = 2 * MEBIBYTE;

/// The settings of `PYTORCH_CUDA_ALLOC_CONF` that decide where memory goes. Defaults are PyTorch's.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocConf {
    /// `max_split_size_mb` in bytes; `None` is unlimited.
    pub max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb` in bytes; `None` follows [`large_segment_size`](Self::large_segment_size).
    pub max_non_split_rounding: Option<u64>,
    /// `garbage_collection_threshold`; 0 is off.
    pub garbage_collection_threshold: f64,
    /// `expandable_segments`; false unless set.
    pub expandable_segments: bool,
    /// `roundup_power2_divisions`: one entry per power of two from 1 MiB to 32 GiB; 0 and 1 mean plain 512-byte rounding.
    pub roundup_power2_divisions: [u32; 16],
    /// `large_segment_size_mb` in bytes; 20 MiB unless set.
    pub large_segment_size: u64,
    /// `per_process_memory_fraction`; 1 means no limit.
    pub per_process_memory_fraction: f64,
    /// Settings as written that do not affect placement, or that this version does not know.
    pub other: Vec<(String, String)>,
}

impl Default for AllocConf {
    fn default() -> Self {
        AllocConf {
            max_split_size: None,
            max_non_split_rounding: None,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            roundup_power2_divisions: [0; 16],
            large_segment_size: 20 * MEBIBYTE,
            per_process_memory_fraction: 1.0,
            other: Vec::new(),
        }
    }
}

impl AllocConf {
    /// The block size that serves a request of `size` bytes.
    pub fn round_size(&self, size: u64) -> u64 {
        if size < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let log = 63 - size.leading_zeros();
        let divisions = u64::from(self.roundup_power2_divisions[Self::division_index(size)]);
        if divisions > 1 && size > MIN_BLOCK.saturating_mul(divisions) {
            if size.is_power_of_two() {
                return size;
            }
            let floor = 1u64 << log;
            let step = floor / divisions;
            return if step == 0 { floor.saturating_mul(2) } else { size.checked_next_multiple_of(step).unwrap_or(u64::MAX) };
        }
        size.checked_next_multiple_of(MIN_BLOCK).unwrap_or(u64::MAX)
    }

    /// Which entry of [`roundup_power2_divisions`](Self::roundup_power2_divisions) is for a size, not 0.
    pub(crate) fn division_index(size: u64) -> usize {
        size.max(1).ilog2().saturating_sub(20).min(15) as usize
    }

    /// Size of the segment that the allocator takes from the device for a rounded request.
    pub fn segment_size(&self, rounded: u64) -> u64 {
        if rounded <= SMALL_MAX {
            SMALL_SEGMENT
        } else if rounded < LARGE_MIN {
            self.large_segment_size
        } else {
            rounded.checked_next_multiple_of(LARGE_ROUND).unwrap_or(u64::MAX)
        }
    }

    /// The largest request whose own segment fits into `bytes`; 0 if even the smallest such segment does not fit.
    pub fn largest_with_segment(&self, bytes: u64) -> u64 {
        let own = bytes / LARGE_ROUND * LARGE_ROUND;
        if own >= LARGE_MIN { own } else { 0 }
    }

    /// Page size of an expandable segment in bytes. In PyTorch: `kSmallBuffer`, and `kLargeBuffer` or `large_segment_size_mb`.
    pub fn page_size(&self, class: SizeClass) -> u64 {
        match class {
            SizeClass::Small => SMALL_SEGMENT,
            SizeClass::Large => self.large_segment_size.max(1),
        }
    }

    /// The pool that serves a rounded request.
    pub fn size_class(rounded: u64) -> SizeClass {
        if rounded <= SMALL_MAX { SizeClass::Small } else { SizeClass::Large }
    }

    /// Whether the allocator splits a free block of `block` bytes to serve a rounded request of `rounded` bytes.
    pub fn should_split(&self, class: SizeClass, block: u64, rounded: u64) -> bool {
        self.splits_when(self.expandable_segments, class, block, rounded)
    }

    /// [`should_split`](Self::should_split) with `expandable_segments` given by the caller. On out of memory PyTorch
    /// falls back to a private pool, and there it decides as if expandable segments were off.
    pub(crate) fn splits_when(&self, expandable: bool, class: SizeClass, block: u64, rounded: u64) -> bool {
        let remaining = block.saturating_sub(rounded);
        if class == SizeClass::Small || expandable {
            remaining >= MIN_BLOCK
        } else {
            self.max_split_size.is_none_or(|max| rounded < max) && remaining > SMALL_MAX
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_as_pytorch_rounds_them() {
        let plain = AllocConf::default();
        assert_eq!(plain.round_size(1), 512);
        assert_eq!(plain.round_size(512), 512);
        assert_eq!(plain.round_size(513), 1024);
        assert_eq!(plain.segment_size(MEBIBYTE), 2 * MEBIBYTE);
        assert_eq!(plain.segment_size(MEBIBYTE + 512), 20 * MEBIBYTE);
        assert_eq!(plain.segment_size(11 * MEBIBYTE), 12 * MEBIBYTE);
        let by_four = AllocConf { roundup_power2_divisions: [4; 16], ..AllocConf::default() };
        assert_eq!(by_four.round_size(1200 * 1024), 1280 * 1024);
        assert_eq!(by_four.round_size(MEBIBYTE), MEBIBYTE);
        assert_eq!(by_four.round_size(1024), 1024);
    }

    #[test]
    fn remainders_split_by_pool() {
        let plain = AllocConf::default();
        assert!(plain.should_split(SizeClass::Small, 1024, 512));
        assert!(!plain.should_split(SizeClass::Large, 3 * MEBIBYTE, 2 * MEBIBYTE));
        assert!(plain.should_split(SizeClass::Large, 3 * MEBIBYTE + 512, 2 * MEBIBYTE));
        let capped = AllocConf { max_split_size: Some(64 * MEBIBYTE), ..AllocConf::default() };
        assert!(!capped.should_split(SizeClass::Large, 100 * MEBIBYTE, 64 * MEBIBYTE));
    }
}
