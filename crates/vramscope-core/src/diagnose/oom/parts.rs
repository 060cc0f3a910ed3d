//! A request that is larger than all there could be, in parts: how large each is, and whether one fits.

use super::autopsy::Autopsy;
use super::verdict::Verdict;
use crate::model::AllocConf;

/// Whether a request of a given size would have been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// It is more than this process could get.
    Never,
    /// With every other byte of this process given back.
    IfAllIsFreed,
    /// As memory lay: into a hole, or on the device.
    AsItWas,
}

/// One of the equal parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// How many there are.
    pub parts: u64,
    /// Bytes of each, rounded up to the block size.
    pub bytes: u64,
    /// Whether one part would have been served.
    pub fits: Fits,
}

/// Maximum number of rows.
const TOLD: usize = 8;
/// Splitting a request into more parts is not useful advice.
const MOST: u64 = 4096;

/// The request whole and in ever more parts, up to the first number of them with which one fits as memory was. The numbers at
/// which the outcome changes are always among them. Empty for requests that are not too large. O(1).
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
    // Fewer parts are larger ones, so each outcome begins at one number.
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
