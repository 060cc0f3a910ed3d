//! Categories by name: in the profiler's notes, the user's metadata, and annotations.

use super::Category;
use crate::model::{DeviceRecording, NoteKind, Recording, StrId};

/// PyTorch's own category names, as its memory timeline writes them.
pub(super) fn profiler_category(text: &str) -> Option<Category> {
    Some(match text.to_lowercase().as_str() {
        "parameter" => Category::Weights,
        "optimizer_state" => Category::OptimizerState,
        "gradient" => Category::Gradients,
        "activation" => Category::Activations,
        // What the backward pass makes on the way to gradients.
        "temporary" | "autograd_detail" => Category::Temporaries,
        "input" => Category::Inputs,
        _ => return None,
    })
}

/// Words that name a category, in metadata and annotations. Longer ones first where one holds another.
const WORDS: [(&str, Category); 26] = [
    ("autocast_copies", Category::AutocastCopies),
    ("autocast copies", Category::AutocastCopies),
    ("optimizer_state", Category::OptimizerState),
    ("optimizer state", Category::OptimizerState),
    ("optim_state", Category::OptimizerState),
    ("kv_cache", Category::KvCache),
    ("kv cache", Category::KvCache),
    ("kvcache", Category::KvCache),
    ("gradient", Category::Gradients),
    ("grads", Category::Gradients),
    ("grad", Category::Gradients),
    ("parameters", Category::Weights),
    ("parameter", Category::Weights),
    ("params", Category::Weights),
    ("weights", Category::Weights),
    ("activations", Category::Activations),
    ("activation", Category::Activations),
    ("temporaries", Category::Temporaries),
    ("temporary", Category::Temporaries),
    ("workspaces", Category::Workspaces),
    ("workspace", Category::Workspaces),
    ("communication", Category::Buckets),
    ("buckets", Category::Buckets),
    ("inputs", Category::Inputs),
    ("batch", Category::Inputs),
    ("gradients", Category::Gradients),
];

/// The category a text names as a whole word: `kv_cache`, `my activations`. `no_grad` names none.
#[must_use]
pub fn category_named(text: &str) -> Option<Category> {
    let lower = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    WORDS.iter().find_map(|&(word, category)| {
        lower
            .match_indices(word)
            .any(|(at, _)| !lower[..at].ends_with(is_word) && !lower[at + word.len()..].starts_with(is_word))
            .then_some(category)
    })
}

/// What a note of an event says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    pub(super) event: u32,
    pub(super) category: Category,
    pub(super) text: StrId,
    /// From the profiler, and so above what the user's metadata say.
    pub(super) is_profiler: bool,
}

/// The notes that name a category, in event order.
pub(super) fn read_notes(recording: &Recording, device: &DeviceRecording) -> Vec<Noted> {
    let read = |note: &crate::model::Note| {
        let text = recording.stacks.text(note.text);
        let (category, is_profiler) = match note.kind {
            NoteKind::Category => (profiler_category(text)?, true),
            NoteKind::UserMetadata => (category_named(text)?, false),
            _ => return None,
        };
        Some(Noted { event: note.event, category, text: note.text, is_profiler })
    };
    device.events.notes.iter().filter_map(read).collect()
}

/// Ranges of events, ascending and apart, in each of which an annotation names a category.
pub(super) fn read_annotations(recording: &Recording, device: &DeviceRecording) -> Vec<(u32, u32, Category, StrId)> {
    let times = &device.events.time_us;
    if !device.events.has_time {
        return Vec::new();
    }
    let mut ranges: Vec<(u32, u32, u16, Category, StrId)> = device
        .annotations
        .iter()
        .filter_map(|a| {
            let category = category_named(recording.stacks.text(a.name))?;
            let end = a.end_us?;
            let from = times.partition_point(|&t| t < a.start_us) as u32;
            let to = times.partition_point(|&t| t <= end) as u32;
            (from < to).then_some((from, to, a.depth, category, a.name))
        })
        .collect();
    // Inner ranges are laid over outer ones: what an outer one has left on both sides stays its own.
    ranges.sort_by_key(|r| (r.2, r.0));
    let mut flat: Vec<(u32, u32, Category, StrId)> = Vec::new();
    for (from, to, _, category, name) in ranges {
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
        cut.push((from, to, category, name));
        flat = cut;
    }
    flat.sort_unstable_by_key(|r| r.0);
    flat
}
