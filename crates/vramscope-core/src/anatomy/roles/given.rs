//! [`Given`]: roles stated by the user's rules, the profiler, metadata and annotations.

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::Role;
use super::named::{Noted, read_annotations, read_notes};
use super::rules::{Rules, frame_text};
use crate::anatomy::Because;
use crate::model::{DeviceRecording, FrameId, Recording, StackId, StrId};
use crate::tables::{DeviceTables, LifetimeId, NO_EVENT};

/// What decided the role of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// The user's rule with this index matches this frame.
    Rule(u16, FrameId),
    /// The profiler states it.
    Profiler(StrId),
    /// The user's metadata state it.
    Metadata(StrId),
    /// It was made inside an annotation with this name.
    Annotation(StrId),
    /// The anatomy inferred it from stacks and lifetimes.
    Anatomy(Because),
}

/// Roles stated for single allocations, independent of the anatomy.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) rules: Rules,
    /// By stack: the user's first matching rule, and the frame that it matches.
    by_stack: Vec<Option<(u16, FrameId)>>,
    /// By lifetime, for the few that have one: the note.
    noted: FxHashMap<u32, Noted>,
    /// First event, end event (exclusive), role and name of each range.
    annotated: Vec<(u32, u32, Role, StrId)>,
}

impl Given {
    pub(super) fn read(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, rules: &Rules) -> Self {
        let mut noted: FxHashMap<u32, Noted> = FxHashMap::default();
        for note in read_notes(recording, device) {
            let id = tables.lifetimes.of_event(note.event);
            // A later note overrides an earlier one, and the profiler's note overrides the user's.
            if id.is_some() && (note.is_profiler || noted.get(&id.0).is_none_or(|n| !n.is_profiler)) {
                noted.insert(id.0, note);
            }
        }
        let by_stack = rules_by_stack(recording, rules);
        Given { rules: rules.clone(), by_stack, noted, annotated: read_annotations(recording, device) }
    }

    /// True if the profiler names activations, as it does in a memory timeline.
    pub(super) fn names_activations(&self) -> bool {
        self.noted.values().any(|note| note.is_profiler && note.role == Role::Activations)
    }

    /// The role that the user's rules give to an allocation.
    pub(super) fn by_rule(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> Option<(Role, Source)> {
        let stack = tables.lifetimes.stack(device, id);
        let (rule, frame) = self.by_stack.get(stack.0 as usize).copied().flatten()?;
        Some((self.rules.role(usize::from(rule)), Source::Rule(rule, frame)))
    }

    /// The role from all sources except the rules.
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

/// For each stack, the user's first rule that matches one of its frames.
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
