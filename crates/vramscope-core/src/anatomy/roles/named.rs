//! Roles by name: in the profiler's notes, the user's metadata, and annotations.

use super::Role;
use crate::model::{DeviceRecording, NoteKind, Recording, StrId};

/// PyTorch's own category names, as its memory timeline writes them.
pub(super) fn profiler_category(text: &str) -> Option<Role> {
    Some(match text.to_lowercase().as_str() {
        "parameter" => Role::Weights,
        "optimizer_state" => Role::OptimizerState,
        "gradient" => Role::Gradients,
        "activation" => Role::Activations,
        // Intermediate results of the backward pass.
        "temporary" | "autograd_detail" => Role::Temporaries,
        "input" => Role::Inputs,
        _ => return None,
    })
}

/// Words that name a role in metadata and annotations. A word that contains another one comes before it.
const WORDS: [(&str, Role); 26] = [
    ("autocast_copies", Role::AutocastCopies),
    ("autocast copies", Role::AutocastCopies),
    ("optimizer_state", Role::OptimizerState),
    ("optimizer state", Role::OptimizerState),
    ("optim_state", Role::OptimizerState),
    ("kv_cache", Role::KvCache),
    ("kv cache", Role::KvCache),
    ("kvcache", Role::KvCache),
    ("gradient", Role::Gradients),
    ("grads", Role::Gradients),
    ("grad", Role::Gradients),
    ("parameters", Role::Weights),
    ("parameter", Role::Weights),
    ("params", Role::Weights),
    ("weights", Role::Weights),
    ("activations", Role::Activations),
    ("activation", Role::Activations),
    ("temporaries", Role::Temporaries),
    ("temporary", Role::Temporaries),
    ("workspaces", Role::Workspaces),
    ("workspace", Role::Workspaces),
    ("communication", Role::Buckets),
    ("buckets", Role::Buckets),
    ("inputs", Role::Inputs),
    ("batch", Role::Inputs),
    ("gradients", Role::Gradients),
];

/// The role that a text names as a whole word: `kv_cache`, `my activations`. `no_grad` names none.
pub fn role_named(text: &str) -> Option<Role> {
    let lower = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    WORDS.iter().find_map(|&(word, role)| {
        lower
            .match_indices(word)
            .any(|(at, _)| !lower[..at].ends_with(is_word) && !lower[at + word.len()..].starts_with(is_word))
            .then_some(role)
    })
}

/// The content of an event's note.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) event: u32,
    pub(super) role: Role,
    pub(super) text: StrId,
    /// True for the profiler's note, which overrides the user's metadata.
    pub(super) is_profiler: bool,
}

/// The notes that name a role, in event order.
pub(super) fn read_notes(recording: &Recording, device: &DeviceRecording) -> Vec<Noted> {
    let read = |note: &crate::model::Note| {
        let text = recording.stacks.text(note.text);
        let (role, is_profiler) = match note.kind {
            NoteKind::Category => (profiler_category(text)?, true),
            NoteKind::UserMetadata => (role_named(text)?, false),
            _ => return None,
        };
        Some(Noted { event: note.event, role, text: note.text, is_profiler })
    };
    device.events.notes.iter().filter_map(read).collect()
}

/// Ascending, disjoint ranges of events, in each of which an annotation names a role.
pub(super) fn read_annotations(recording: &Recording, device: &DeviceRecording) -> Vec<(u32, u32, Role, StrId)> {
    let times = &device.events.time_us;
    if !device.events.has_time {
        return Vec::new();
    }
    let mut ranges: Vec<(u32, u32, u16, Role, StrId)> = device
        .annotations
        .iter()
        .filter_map(|a| {
            let role = role_named(recording.stacks.text(a.name))?;
            let end = a.end_us?;
            let from = times.partition_point(|&t| t < a.start_us) as u32;
            let to = times.partition_point(|&t| t <= end) as u32;
            (from < to).then_some((from, to, a.depth, role, a.name))
        })
        .collect();
    // Inner ranges override outer ones; what remains of an outer range on both sides keeps its role.
    ranges.sort_by_key(|r| (r.2, r.0));
    let mut flat: Vec<(u32, u32, Role, StrId)> = Vec::new();
    for (from, to, _, role, name) in ranges {
        let mut cut = Vec::with_capacity(flat.len() + 2);
        for r in flat {
            if r.1 <= from || r.0 >= to {
                cut.push(r);
                continue;
            }
            if r.0 < from {
                cut.push((r.0, from, r.2, r.3));
            }
            if r.1 > to {
                cut.push((to, r.1, r.2, r.3));
            }
        }
        cut.push((from, to, role, name));
        flat = cut;
    }
    flat.sort_unstable_by_key(|r| r.0);
    flat
}
