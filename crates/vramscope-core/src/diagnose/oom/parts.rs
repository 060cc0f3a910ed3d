//! Splits a request that is larger than all possible memory into parts: how large each is, and whether one fits.

use super::autopsy::Autopsy;
use super::verdict::Verdict;
use crate::model::AllocConf;

/// Whether a request of some size would have been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// No: it exceeds what this process could get.
    Never,
    /// Only if this process released all its other memory.
    IfAllIsFreed,
    /// Yes, with memory as it was: in a hole, or on the device.
    AsItWas,
}

/// One of the equal parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of parts.
    pub parts: u64,
    /// Bytes per part, rounded up to the block size.
    pub bytes: u64,
    /// Whether one part would have been served.
    pub fits: Fits,
}

/// Most rows to return.
const TOLD: usize = 8;
/// Splitting a request into more parts is not useful advice.
const MOST: u64 = 4096;

/// The request as a whole and in more and more parts, until one part fits into memory as it was. Always includes the numbers of
/// parts at which the outcome changes. Empty unless the request is too large. O(1).
pub(super) fn parts(a: &Autopsy, conf: &AllocConf) -> Vec<Part> {
    if a.verdict != Verdict::TooLarge || a.requested == 0 {
        return Vec::new();
    }
    let part = |parts: u64| {
        let bytes = conf.round_size(a.requested.div_ceil(parts));
        let segment = conf.segment_size(bytes);
        let now = a.device_free_known().is_some_and(|free| segment <= free) || bytes <= a.holes.largest;
        let fits = if now {
            Fits::AsItWas
        } else if segment <= a.most_free() {
            Fits::IfAllIsFreed
        } else {
            Fits::Never
        };
        Part { parts, bytes, fits }
    };
    // Fewer parts are larger, so each outcome starts at one number of parts.
    let first = |at_least: fn(Fits) -> bool| (1..=MOST).find(|&n| at_least(part(n).fits));
    let (Some(freed), now) = (first(|f| f != Fits::Never), first(|f| f == Fits::AsItWas)) else { return Vec::new() };
    let last = now.unwrap_or(freed);
    let mut told: Vec<u64> = (1..=last).collect();
    if told.len() > TOLD {
        told = (0..).map(|power| 1u64 << power).take_while(|&n| n < last).collect();
        told.extend([freed, last]);
        told.sort_unstable();
        told.dedup();
    }
    told.into_iter().map(part).collect()
}
