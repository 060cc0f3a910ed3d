//! The verdict: the cause of a failed request that its figures leave.

use serde::Serialize;

use crate::diagnose::fragmentation::Holes;
use crate::model::EventTable;
use crate::units::MEBIBYTE;

/// Why memory ran out, for a failed request in a recording or for an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// Enough memory is free inside reserved memory, but in pieces that are each too small.
    Fragmentation,
    /// The device had room, but a limit on this process kept PyTorch from taking it.
    Cap,
    /// The device is full, and this process needs the memory it holds.
    Capacity,
    /// The request would have fitted without the other processes.
    Contention,
    /// The request would have fitted without this process's memory outside PyTorch.
    NonPytorch,
    /// Larger than this process could ever get: than the device if its size is known, otherwise than free plus reserved memory.
    TooLarge,
    /// Unknown: a message, or a recording without segments, does not always show the cause.
    Unknown,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 7] = [
        Verdict::Fragmentation,
        Verdict::Cap,
        Verdict::Capacity,
        Verdict::Contention,
        Verdict::NonPytorch,
        Verdict::TooLarge,
        Verdict::Unknown,
    ];

    /// Its stable name, part of the command-line contract.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One or two words for a title.
    pub fn title(self) -> &'static str {
        match self {
            Verdict::Fragmentation => "Fragmentation",
            Verdict::Cap => "Cap reached",
            Verdict::Capacity => "Device full",
            Verdict::Contention => "Other processes",
            Verdict::NonPytorch => "Outside PyTorch",
            Verdict::TooLarge => "Too large",
            Verdict::Unknown => "Reason unknown",
        }
    }
}

/// One test of the classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The subject: "free on the device".
    pub what: &'static str,
    /// The result; `None` if the recording does not show it.
    pub holds: Option<bool>,
    /// The figure that decided it, in bytes.
    pub bytes: u64,
    /// True for the test that decides the verdict.
    pub decides: bool,
}

/// The classifier's input. All sizes are in bytes.
pub(super) struct Facts {
    pub(super) has_segments: bool,
    pub(super) requested: u64,
    pub(super) segment: u64,
    pub(super) device_free: u64,
    pub(super) reserved: u64,
    pub(super) own: Holes,
    pub(super) capacity: Option<u64>,
    pub(super) is_limited: bool,
    pub(super) room: u64,
    pub(super) others: Option<u64>,
    pub(super) outside: Option<u64>,
    /// True if tensors hold nearly all memory, and the rest would not serve one more request like this (many are live).
    pub(super) is_used_up: bool,
}

/// Context, modules and libraries of one process use up to this much normally (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2048 * MEBIBYTE;

/// Runs tests in order; the first conclusive failure decides. If the holes add up to the request, the verdict is fragmentation,
/// whatever else was short: at the failure the allocator had already released every wholly free segment.
pub(super) fn classify(f: &Facts) -> (Verdict, Vec<Test>) {
    // What the device would have if this process released everything.
    let most = f.capacity.unwrap_or(f.device_free.saturating_add(f.reserved));
    let fits_device = f.requested <= most;
    let on_device = EventTable::has_room(f.device_free, f.segment) || (f.is_limited && f.device_free >= f.segment);
    let in_holes = f.own.bytes >= f.requested;
    // The free memory in holes and on the device together. Free device memory smaller than a segment helps only with holes.
    let in_all = f.own.bytes > 0 && f.own.bytes.saturating_add(if f.is_limited { f.room } else { f.device_free }) >= f.segment;
    let one_hole = f.own.largest >= f.requested;
    let verdict = if !f.has_segments && fits_device {
        // The file shows neither the free memory inside segments nor what a cap left.
        if on_device { Verdict::Unknown } else { Verdict::Capacity }
    } else if !fits_device {
        if f.others.is_some_and(|o| f.requested <= most.saturating_add(o)) && f.capacity.is_none() {
            Verdict::Contention
        } else {
            Verdict::TooLarge
        }
    } else if !one_hole && (in_holes || (!on_device && in_all)) && (on_device || !f.is_used_up) {
        Verdict::Fragmentation
    } else if on_device && f.is_limited && f.room >= f.segment {
        // There was room on the device and under the cap, so the file does not show the cause.
        Verdict::Unknown
    } else if on_device {
        Verdict::Cap
    } else if f.others.is_some_and(|o| f.segment <= f.device_free.saturating_add(f.own.bytes).saturating_add(o) && o > 0) {
        Verdict::Contention
    } else if f
        .outside
        .is_some_and(|o| o > USUAL_OUTSIDE && f.segment <= f.device_free.saturating_add(f.own.bytes).saturating_add(o))
    {
        Verdict::NonPytorch
    } else {
        Verdict::Capacity
    };
    let decides = match verdict {
        Verdict::TooLarge => 0,
        Verdict::Capacity | Verdict::Contention | Verdict::NonPytorch => 1,
        Verdict::Cap => 2,
        Verdict::Fragmentation => 4,
        Verdict::Unknown => usize::MAX,
    };
    let tests = [
        (if f.capacity.is_some() { "smaller than the device" } else { "fits if everything is freed" }, Some(fits_device), most),
        ("free on the device", (f.device_free < EventTable::FREE_UNBOUNDED).then_some(on_device), f.device_free),
        (
            "room under the cap",
            if f.is_limited { Some(f.room >= f.segment) } else { None },
            if f.is_limited { f.room } else { 0 },
        ),
        ("free inside reserved", Some(in_holes), f.own.bytes),
        ("one hole of that size", Some(one_hole), f.own.largest),
    ];
    let tests = tests
        .into_iter()
        .enumerate()
        // Without segments, leave out the tests about them.
        .take(if f.has_segments { 5 } else { 2 })
        .map(|(i, (what, holds, bytes))| Test { what, holds, bytes, decides: i == decides })
        .collect();
    (verdict, tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_used_up_is_full_and_not_in_pieces() {
        let holes = Holes { bytes: 800, largest: 750, count: 51, ..Holes::default() };
        let facts = |is_used_up: bool, device_free: u64| Facts {
            has_segments: true,
            requested: 1500,
            segment: 1500,
            device_free,
            reserved: 77_000,
            own: holes,
            capacity: None,
            is_limited: false,
            room: device_free,
            others: None,
            outside: None,
            is_used_up,
        };
        assert_eq!(classify(&facts(true, 1300)).0, Verdict::Capacity);
        // If there is room for more than this request, a setting is a remedy.
        assert_eq!(classify(&facts(false, 1300)).0, Verdict::Fragmentation);
    }
}
