//! [`Given`]: what the user's rules, the profiler, metadata and annotations say of allocations.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::Role;
use super::named::{Noted, read_annotations, read_notes};
use super::rules::{Rules, frame_text};
use crate::anatomy::Because;
use crate::model::{DeviceRecording, FrameId, Recording, StackId, StrId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// What decided on one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// A user's rule, by its index, matches this frame.
    Rule(u16, FrameId),
    /// The profiler says so.
    Profiler(StrId),
    /// The user's metadata say so.
    Metadata(StrId),
    /// It was made inside an annotation of this name.
    Annotation(StrId),
    /// Stacks and lifetimes, as the anatomy reads them.
    Anatomy(Because),
}

/// What is said of single allocations, beside what the anatomy tells.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) rules: Rules,
    /// By stack: the first of the user's rules that matches, and the frame it matches.
    by_stack: Vec<Option<(u16, FrameId)>>,
    /// By lifetime, for the few that have one: what a note says.
    noted: FxHashMap<u32, Noted>,
    /// First event, the one after the last, and what a range names.
    annotated: Vec<(u32, u32, Role, StrId)>,
}

impl Given {
    pub(super) fn read(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, rules: &Rules) -> Self {
        let mut noted: FxHashMap<u32, Noted> = FxHashMap::default();
        for note in read_notes(recording, device) {
            let id = tables.lifetimes.of_event(note.event);
            // A later note overrides an earlier one, and the profiler's overrides the user's.
            if id.is_some() && (note.is_profiler || noted.get(&id.0).is_none_or(|n| !n.is_profiler)) {
                noted.insert(id.0, note);
            }
        }
        let by_stack = rules_by_stack(recording, rules);
        Given { rules: rules.clone(), by_stack, noted, annotated: read_annotations(recording, device) }
    }

    /// What the user's rules say of an allocation.
    pub(super) fn by_rule(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<(Role, Source)> {
        let stack = tables.lifetimes.stack(device, id);
        let (rule, frame) = self.by_stack.get(stack.0 as usize).copied().flatten()?;
        Some((self.rules.role(usize::from(rule)), Source::Rule(rule, frame)))
    }

    /// What everything but the rules says of it.
    pub(super) fn without_rules(&self, _: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<(Role, Source)> {
        if let Some(note) = self.noted.get(&id.0) {
            let source = if note.is_profiler { Source::Profiler(note.text) } else { Source::Metadata(note.text) };
            return Some((note.role, source));
        }
        let born = tables.lifetimes.born(id);
        if born == NO_EVENT {
            return None;
        }
        let at = self.annotated.partition_point(|r| r.0 <= born).checked_sub(1)?;
        let &(_, end, role, name) = self.annotated.get(at)?;
        (born < end).then_some((role, Source::Annotation(name)))
    }
}

/// For each stack the first of the user's rules that one of its frames matches.
fn rules_by_stack(recording: &Recording, rules: &Rules) -> Vec<Option<(u16, FrameId)>> {
    if rules.is_empty() {
        return Vec::new();
    }
    let stacks = &recording.stacks;
    let first: Vec<Option<u16>> = (0..stacks.frame_count())
        .into_par_iter()
        .map(|i| {
            let text = frame_text(stacks, stacks.frame(FrameId(i as u32))?);
            (0..rules.len()).find(|&r| rules.is_match(r, &text)).map(|r| r as u16)
        })
        .collect();
    (0..stacks.len())
        .map(|i| {
            let frames = stacks.frames(StackId(i as u32));
            let matches = frames.iter().filter_map(|&f| Some((first.get(f.0 as usize).copied().flatten()?, f)));
            matches.min_by_key(|m| m.0)
        })
        .collect()
}
