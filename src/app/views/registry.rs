//! The list of all views. A new view needs a line here and its name in [`ViewKind`].

use super::ViewInfo;
use super::{
    accounting, allocations, autopsy, compare, contents, events, findings, flame, heatmap, inspector, leaks, live, memory, plan,
    segment_map, steps, timeline, whatif,
};
use crate::app::state::ViewKind;

pub const REGISTRY: &[ViewInfo] = &[
    memory::INFO,
    findings::INFO,
    timeline::INFO,
    segment_map::INFO,
    heatmap::INFO,
    inspector::INFO,
    allocations::INFO,
    events::INFO,
    contents::INFO,
    autopsy::INFO,
    flame::INFO,
    compare::INFO,
    leaks::INFO,
    steps::INFO,
    accounting::INFO,
    whatif::INFO,
    plan::INFO,
    live::INFO,
];

impl ViewKind {
    pub fn info(self) -> &'static ViewInfo {
        // Every kind is registered; a test checks it.
        REGISTRY.iter().find(|i| i.kind == self).unwrap_or(&REGISTRY[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_is_registered_and_explains_itself() {
        for kind in ViewKind::all() {
            assert_eq!(kind.info().kind, kind);
            assert!(!kind.info().legend.is_empty(), "{} has no legend", kind.name());
        }
    }
}
