//! The verdict: which of the possible reasons the figures of a failed request leave, and the sentence that says it.

use serde::Serialize;

use super::Autopsy;
use crate::diagnose::fragmentation::Holes;
use crate::model::EventTable;
use crate::units::{Bytes, MEBIBYTE, count};

/// Why memory ran out: of a failed request in a recording, or of an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough is free inside reserved memory, but in pieces that are each too small.
    Fragmentation,
    /// The device had room; a limit on this process kept PyTorch from taking it.
    Cap,
    /// The device is full of what this process needs.
    Capacity,
    /// Without the other processes it would have fitted.
    Contention,
    /// Without this process's memory outside PyTorch it would have fitted.
    NonPytorch,
    /// Larger than all this process could get: than the device where its size is known, else than what was free and reserved.
    TooLarge,
    /// A message does not always tell, nor does a recording without segments.
    Unknown,
}

impl Verdict {
    /// The stable name of the command-line contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Fragmentation => "fragmentation",
            Verdict::Cap => "cap",
            Verdict::Capacity => "capacity",
            Verdict::Contention => "contention",
            Verdict::NonPytorch => "non_pytorch",
            Verdict::TooLarge => "too_large",
            Verdict::Unknown => "unknown",
        }
    }

    /// One or two words for a title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Verdict::Fragmentation => "Fragmentation",
            Verdict::Cap => "The cap",
            Verdict::Capacity => "Device full",
            Verdict::Contention => "Other processes",
            Verdict::NonPytorch => "Outside PyTorch",
            Verdict::TooLarge => "Too large",
            Verdict::Unknown => "Reason unknown",
        }
    }
}

/// One test of the classifier, in the order they are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// What is tested: "free on the device".
    pub what: &'static str,
    /// Whether it holds; `None` when the recording cannot tell.
    pub holds: Option<bool>,
    /// The figure it was decided by, in bytes.
    pub bytes: u64,
    /// True for the test that decides the verdict.
    pub decides: bool,
}

/// What the classifier looks at. Bytes throughout.
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
}

/// Context, modules and libraries of one process reach this without anything being wrong (measured: 250 to 1,981 MiB).
const USUAL_OUTSIDE: u64 = 2048 * MEBIBYTE;

/// The classifier: tests in order, the first that fails in a telling way decides. Holes that sum to the request force
/// fragmentation, whatever else was short: at the failure the allocator had already given every wholly free segment back.
pub(super) fn classify(f: &Facts) -> (Verdict, Vec<Test>) {
    // Everything of this process given back, the device would have this much.
    let most = f.capacity.unwrap_or(f.device_free.saturating_add(f.reserved));
    let fits_device = f.requested <= most;
    let on_device = f.device_free >= f.segment;
    let in_holes = f.own.bytes >= f.requested;
    // Free memory in holes and on the device together, were it in one piece. What is left of the device and smaller than a
    // segment is of use only with them.
    let in_all = f.own.bytes > 0 && f.own.bytes.saturating_add(if f.is_limited { f.room } else { f.device_free }) >= f.segment;
    let one_hole = f.own.largest >= f.requested;
    let verdict = if !f.has_segments && fits_device {
        // What was free inside is not told, nor what a cap left.
        if on_device { Verdict::Unknown } else { Verdict::Capacity }
    } else if !fits_device {
        if f.others.is_some_and(|o| f.requested <= most.saturating_add(o)) && f.capacity.is_none() {
            Verdict::Contention
        } else {
            Verdict::TooLarge
        }
    } else if !one_hole && (in_holes || (!on_device && in_all)) {
        Verdict::Fragmentation
    } else if on_device && f.is_limited && f.room >= f.segment {
        // Room on the device and under the cap: neither is why, as far as the file tells.
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
        (
            if f.capacity.is_some() { "smaller than the device" } else { "smaller than free and reserved" },
            Some(fits_device),
            most,
        ),
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
        // What lies in segments is not tested where none are told of.
        .take(if f.has_segments { 5 } else { 2 })
        .map(|(i, (what, holds, bytes))| Test { what, holds, bytes, decides: i == decides })
        .collect();
    (verdict, tests)
}

pub(super) fn sentence(a: &Autopsy) -> String {
    let place = if a.is_host { "host" } else { "device" };
    let of = if a.is_private { " of a private pool" } else { "" };
    let request = format!("A request for {}{of}", Bytes(a.requested));
    let held = match a.reserved {
        0 => "it had reserved nothing".to_owned(),
        held => format!("it had reserved {}, with {} free inside", Bytes(held), Bytes(a.holes.bytes)),
    };
    match a.verdict {
        Verdict::Fragmentation => {
            let pieces = match a.holes.count {
                1 => "it is one piece, smaller than the request".to_owned(),
                n => format!("it is in {} pieces, and the largest is {}", count(n), Bytes(a.holes.largest)),
            };
            // Other pools, sizes and streams have holes that this request cannot use.
            let place = match a.all_holes.bytes.saturating_sub(a.holes.bytes) {
                0 => "inside reserved memory".to_owned(),
                _ => format!("inside the segments that could serve it ({} in all pools)", Bytes(a.all_holes.bytes)),
            };
            // Room on the device and none under the cap: with a higher cap the pieces would not matter.
            let cap = match a.limit {
                Some(cap) if a.device_free >= a.segment && cap.is_known() => format!(" This process may reserve at most {cap}."),
                Some(cap) if a.device_free >= a.segment && cap.least > 0 => {
                    format!(
                        " This process has a cap of {cap} (estimated from the failed requests), and had reserved {}.",
                        Bytes(a.reserved).limit()
                    )
                }
                _ => String::new(),
            };
            format!("{request} failed with {} free {place}: {pieces}.{cap}", Bytes(a.holes.bytes))
        }
        Verdict::Cap => {
            let cap = match a.limit {
                Some(cap) if cap.is_known() => format!("may reserve at most {cap}"),
                Some(cap) if cap.least == 0 => format!("has a cap {cap} (estimated from the failed requests)"),
                Some(cap) => format!("has a cap of {cap} (estimated from the failed requests)"),
                None => "may reserve no more".to_owned(),
            };
            let although = match a.device_free_told() {
                Some(free) => format!("although {} was free on the {place}", Bytes(free)),
                None => "because of its cap".to_owned(),
            };
            format!("{request} failed {although}: this process {cap}; {held}.")
        }
        Verdict::Capacity if !a.has_segments => format!(
            "{request} failed because the {place} is full: {} is free on it, and tensors hold {}. Segments are not in this file.",
            Bytes(a.device_free),
            Bytes(a.allocated),
        ),
        Verdict::Capacity => super::full::sentence(a, &request, place),
        Verdict::Contention => format!(
            "{request} failed because other processes hold the {place}: {} is free on it, and PyTorch reserved only {}.",
            Bytes(a.device_free),
            Bytes(a.reserved),
        ),
        Verdict::NonPytorch => format!(
            "{request} failed because this process holds much memory outside PyTorch: {} is free on the {place}, and PyTorch reserved only {}.",
            Bytes(a.device_free),
            Bytes(a.reserved),
        ),
        Verdict::TooLarge => match a.capacity {
            Some(all) => format!("{request} cannot fit on the {place}, which has {} in all.", Bytes(all)),
            None => format!(
                "{request} cannot fit: if this process freed everything, {} would be free on the {place}. The file does not record the size of the {place}, nor what other processes hold.",
                Bytes(a.most_free()),
            ),
        },
        Verdict::Unknown if a.has_segments => format!(
            "{request} failed although {} was free on the {place}, and the cap of this process{} left room for it. The reason is unknown; {held}.",
            a.device_free_told().map_or_else(|| "enough".to_owned(), |free| Bytes(free).to_string()),
            a.limit.map_or_else(String::new, |cap| format!(" ({cap})")),
        ),
        Verdict::Unknown => match a.device_free_told() {
            Some(free) => format!(
                "{request} failed with {} free on the {place}. Segments are not in this file, so the reason is unknown: a cap, or holes that are each too small.",
                Bytes(free)
            ),
            None => format!("{request} failed. Segments are not in this file, so the reason is unknown."),
        },
    }
}
