//! A message's figures by name: those it prints, and those derived from them.

use super::condition::sum;
use super::{rules, unattributed};
use crate::formats::oom_message::{Figure, OomMessage, Platform, ProcessUse};

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

/// Figures that only sentences and conditions have, besides the rows `figure NAME` of `facts.txt`.
const DERIVED: &[Named<Figure>] = &[
    ("free", |m| m.figures.free),
    ("listed", OomMessage::listed_processes),
    ("largest other", |m| others_by_size(m).first().map(|p| p.bytes)),
    // A tensor whose type the message does not tell, if it is float32.
    ("float tensor", |m| Some(Figure::exact(m.elements?.saturating_mul(4)))),
    ("total allocation", |m| statistic(m, "total allocation")),
    ("largest part", |m| program_parts(m).first().map(|(figure, _)| *figure)),
];

/// The other processes whose use is told, largest first.
pub(super) fn others_by_size(m: &OomMessage) -> Vec<&ProcessUse> {
    let mut others: Vec<_> = m.processes.iter().filter(|p| !p.is_this && !p.bytes.is_unlimited()).collect();
    others.sort_by_key(|p| std::cmp::Reverse(p.bytes.bytes));
    others
}

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

/// The figure of a name; `None` if the message does not have it or prints it as unlimited.
pub(super) fn figure(m: &OomMessage, name: &str) -> Option<Figure> {
    let found = match figures().find(|(known, _)| *known == name) {
        Some((_, of)) => of(m),
        None => rules::named(m, "figure", name).iter().find_map(|(_, formula)| sum(m, formula)),
    };
    found.filter(|figure| !figure.is_unlimited())
}

fn figures() -> impl Iterator<Item = Named<Figure>> {
    FIGURES.iter().chain(DERIVED).map(|&(name, of)| (name.strip_suffix("_bytes").unwrap_or(name), of))
}

#[cfg(test)]
pub(super) fn is_figure(name: &str) -> bool {
    figures().any(|(known, _)| known == name) || !rules::table(&format!("figure {name}")).is_empty()
}
