//! A message's figures by name: those it prints, and those derived from them.

use super::{device, unattributed};
use crate::formats::oom_message::{Figure, OomMessage, Platform};
use crate::units::{GIBIBYTE, MEBIBYTE};

/// A name, and how to get the value from a message.
pub(super) type Named<T> = (&'static str, fn(&OomMessage) -> Option<T>);

/// Every figure that JSON has; in sentences its name has no `_bytes`.
pub(super) const FIGURES: [Named<Figure>; 21] = [
    ("requested_bytes", |m| m.figures.requested),
    ("capacity_bytes", |m| m.figures.capacity),
    ("device_free_bytes", |m| m.figures.free.filter(|_| m.dialect.platform != Platform::Cpu)),
    ("machine_free_bytes", |m| m.figures.free.filter(|_| m.dialect.platform == Platform::Cpu)),
    ("limit_bytes", |m| m.figures.limit),
    ("allocated_bytes", |m| m.figures.allocated),
    ("private_pool_bytes", |m| m.figures.private_pools),
    ("live_bytes", OomMessage::live),
    ("reserved_bytes", OomMessage::reserved),
    ("unallocated_bytes", OomMessage::unallocated),
    ("process_bytes", OomMessage::this_process),
    ("outside_pytorch_bytes", OomMessage::outside_pytorch),
    ("other_processes_bytes", OomMessage::other_processes),
    ("other_allocations_bytes", |m| m.figures.other_allocations),
    ("largest_block_bytes", |m| m.figures.largest_block),
    ("unattributed_bytes", unattributed),
    ("weights_bytes", |m| m.figures.weights),
    ("activations_bytes", |m| m.figures.activations),
    ("short_bytes", |m| m.figures.short),
    ("peak_bytes", |m| m.figures.peak),
    ("room_under_limit_bytes", |m| m.figures.room),
];

/// Figures that only sentences have.
const DERIVED: &[Named<Figure>] = &[
    ("free", |m| m.figures.free),
    ("holes", |m| Some(m.unallocated().unwrap_or(Figure::exact(0)))),
    ("room", |m| m.figures.free.or_else(|| Some(m.figures.capacity?.minus(device::held(m)?)))),
    ("usual outside", |m| Some(device::usual_outside(m))),
    ("most others", |m| Some(device::most_of_others(m, m.figures.capacity?)?.0)),
    ("held", device::held),
    ("held and free", |m| beside_free(m, device::held(m))),
    ("listed and free", |m| beside_free(m, m.listed_processes())),
    // 2 % of the card, or 64 MiB.
    ("tolerance", |m| Some(Figure::exact(m.figures.capacity.map_or(0, |c| c.bytes / 50).max(64 * MEBIBYTE)))),
    // A tensor whose type the message does not tell, if it is float32.
    ("float tensor", |m| Some(Figure::exact(m.elements?.saturating_mul(4)))),
    ("total allocation", |m| statistic(m, "total allocation")),
    ("largest part", |m| program_parts(m).first().map(|(figure, _)| *figure)),
    ("left", device::left),
    ("own", |m| device::own(m, m.figures.free?)),
    ("used", |m| Some(m.figures.capacity?.minus(m.figures.free?))),
    ("rest", device::rest),
    ("much outside", device::much_outside),
    ("own outside", |m| m.outside_pytorch().filter(|o| o.bytes > GIBIBYTE)),
    ("deciding", device::outside_that_decides),
    ("at start", device::free_at_start),
    ("mostly other", |m| m.figures.other_allocations.filter(|o| m.figures.allocated.is_some_and(|own| o.bytes > own.bytes))),
];

/// A figure of XLA's report, if it is not 0.
fn statistic(m: &OomMessage, name: &str) -> Option<Figure> {
    m.extra.iter().find(|(known, _)| known == name).map(|(_, figure)| *figure).filter(|figure| figure.bytes > 0)
}

/// What XLA's report says that the program takes and for what, on a GPU and on a TPU, largest first.
pub(super) fn program_parts(m: &OomMessage) -> Vec<(Figure, &'static str)> {
    const TEMPORARIES: &str = "for temporaries (intermediate results)";
    const PARTS: [(&str, &str); 6] = [
        ("preallocated temp allocation", TEMPORARIES),
        ("HLO temp", TEMPORARIES),
        ("parameter allocation", "for its arguments"),
        ("arguments", "for its arguments"),
        ("maybe_live_out allocation", "for its results"),
        ("output", "for its results"),
    ];
    let mut parts: Vec<_> = PARTS.iter().filter_map(|&(name, what)| Some((statistic(m, name)?, what))).collect();
    parts.sort_by_key(|(figure, _)| std::cmp::Reverse(figure.bytes));
    parts
}

/// The sum of used and free bytes, if each alone fits on the card.
fn beside_free(m: &OomMessage, used: Option<Figure>) -> Option<Figure> {
    let (free, used, capacity) = (m.figures.free?, used?, m.figures.capacity?);
    (free.low().max(used.low()) <= capacity.high()).then(|| free.plus(used))
}

/// The figure of a name; `None` if the message does not have it or prints it as unlimited.
pub(super) fn figure(m: &OomMessage, name: &str) -> Option<Figure> {
    figures().find(|(known, _)| *known == name)?.1(m).filter(|figure| !figure.is_unlimited())
}

fn figures() -> impl Iterator<Item = Named<Figure>> {
    FIGURES.iter().chain(DERIVED).map(|&(name, of)| (name.strip_suffix("_bytes").unwrap_or(name), of))
}

#[cfg(test)]
pub(super) fn is_figure(name: &str) -> bool {
    figures().any(|(known, _)| known == name)
}
