//! The cause of a failed request, in one sentence with its figures.

use super::autopsy::Autopsy;
use super::full;
use super::verdict::Verdict;
use crate::units::{Bytes, count};

pub(super) fn sentence(a: &Autopsy) -> String {
    let place = if a.is_host { "host" } else { "device" };
    let of = if a.is_private { " of a private pool" } else { "" };
    let request = format!("A request for {}{of}", Bytes(a.requested));
    let held = match a.reserved {
        0 => "it had reserved nothing".to_owned(),
        held => format!("it had reserved {}, with {} free inside", Bytes(held), Bytes(a.holes.bytes)),
    };
    match a.verdict {
        Verdict::Fragmentation if a.is_full_in_pieces() => full::in_pieces(a, &request, place),
        Verdict::Fragmentation => {
            let pieces = match a.holes.count {
                1 => "it is one piece, smaller than the request".to_owned(),
                n if Bytes(a.holes.largest).to_string() == Bytes(a.requested).to_string() => {
                    let short = Bytes(a.requested.saturating_sub(a.holes.largest));
                    format!("it is in {} pieces, and the largest is {short} too small", count(n))
                }
                n => format!("it is in {} pieces, and the largest is {}", count(n), Bytes(a.holes.largest)),
            };
            // Other pools, sizes and streams have holes that this request cannot use.
            let place = match a.all_holes.bytes.saturating_sub(a.holes.bytes) {
                0 => "inside reserved memory".to_owned(),
                _ => format!("inside the segments that could serve it ({} in all pools)", Bytes(a.all_holes.bytes)),
            };
            // The device has room but the cap does not: under a higher cap, fragmentation would not matter.
            let cap = match a.limit {
                Some(cap) if a.device_free >= a.segment && cap.is_known() => format!(" This process may reserve at most {cap}."),
                Some(cap) if a.device_free >= a.segment && cap.least > 0 => {
                    format!(" This process has a cap of {}, and had reserved {}.", cap.estimate(), Bytes(a.reserved))
                }
                _ => String::new(),
            };
            let full = match a.is_nearly_full() {
                true => format!(
                    " Tensors hold {} of the {} that PyTorch reserved, so little is left.",
                    Bytes(a.allocated),
                    Bytes(a.reserved)
                ),
                false => String::new(),
            };
            format!("{request} failed with {} free {place}: {pieces}.{cap}{full}", Bytes(a.holes.bytes))
        }
        Verdict::Cap => {
            let cap = match a.limit {
                Some(cap) if cap.is_known() => format!("may reserve at most {cap}"),
                Some(cap) if cap.least == 0 => format!("has a cap {}", cap.estimate()),
                Some(cap) => format!("has a cap of {}", cap.estimate()),
                None => "may reserve no more".to_owned(),
            };
            let although = match a.device_free_known() {
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
        Verdict::Capacity => full::sentence(a, &request, place),
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
            a.device_free_known().map_or_else(|| "enough".to_owned(), |free| Bytes(free).to_string()),
            a.limit.map_or_else(String::new, |cap| format!(" ({cap})")),
        ),
        Verdict::Unknown => match a.device_free_known() {
            Some(free) => format!(
                "{request} failed with {} free on the {place}. Segments are not in this file, so the reason is unknown: a cap, or holes that are each too small.",
                Bytes(free)
            ),
            None => format!("{request} failed. Segments are not in this file, so the reason is unknown."),
        },
    }
}
