//! `external_annotations`: start and end events of user ranges, matched by name.

use rustc_hash::FxHashMap;

use super::super::pickle::{NodeId, Tree};
use super::stacks::{StackReader, items_of, unknown_key, wrong_type};
use crate::model::{Annotation, Annotations, LoadReport, StrId, WarningKind};

/// The ranges of one device, the number of open ones, and the open ones by name.
#[derive(Default)]
struct Ranges {
    annotations: Annotations,
    open: u64,
    by_name: FxHashMap<StrId, Vec<usize>>,
}

/// Reads the list. Returns annotations per device, each device's ordered by start.
pub(crate) fn read(tree: &Tree, list: NodeId, stacks: &mut StackReader, report: &mut LoadReport) -> Vec<(i64, Annotations)> {
    let mut devices: Vec<(i64, Ranges)> = Vec::new();
    for &item in items_of(tree, list, "external_annotations", "a list", report) {
        let (mut start, mut name, mut device, mut time) = (None, None, 0, None);
        for &(key, value) in tree.pairs(item) {
            match tree.bytes(key).unwrap_or(b"") {
                b"stage" => {
                    start = match tree.bytes(value) {
                        Some(b"START") => Some(true),
                        Some(b"END") => Some(false),
                        _ => None,
                    }
                }
                b"name" => name = Some(stacks.text(tree, value, report)),
                b"device" => device = tree.as_i64(value).unwrap_or(0),
                b"time_us" => time = tree.as_i64(value),
                _ => unknown_key(tree, key, "an annotation", report),
            }
        }
        let (Some(start), Some(name), Some(time)) = (start, name, time) else {
            wrong_type(tree, item, "an annotation", "a dict of stage, name and time", report);
            continue;
        };
        let at = devices.iter().position(|(d, _)| *d == device).unwrap_or_else(|| {
            devices.push((device, Ranges::default()));
            devices.len() - 1
        });
        let ranges = &mut devices[at].1;
        if start {
            ranges.start(name, time);
        } else if !ranges.end(name, time) {
            report.warn(WarningKind::OpenAnnotation, tree.place(item), || {
                "annotations that end but never began, before recording started; they were left out".to_owned()
            });
        }
    }
    for (_, ranges) in &mut devices {
        report.warn_many(WarningKind::OpenAnnotation, ranges.open, None, || {
            "annotations that began but had not ended when the snapshot was taken; they have no end".to_owned()
        });
        // A stable sort, so that nested ranges that begin in the same microsecond keep their order, the outer one first.
        ranges.annotations.sort_by_key(|annotation| annotation.start_us);
    }
    devices.into_iter().map(|(device, ranges)| (device, ranges.annotations)).collect()
}

impl Ranges {
    fn start(&mut self, name: StrId, time: i64) {
        let at = self.annotations.len();
        let depth = u16::try_from(self.open).unwrap_or(u16::MAX);
        self.annotations.push(Annotation { name, start_us: time, end_us: None, depth });
        self.open += 1;
        self.by_name.entry(name).or_default().push(at);
    }

    /// Ends the latest open range of this name; false when there is none.
    fn end(&mut self, name: StrId, time: i64) -> bool {
        let Some(at) = self.by_name.get_mut(&name).and_then(Vec::pop) else { return false };
        self.annotations[at].end_us = Some(time);
        self.open = self.open.saturating_sub(1);
        true
    }
}
