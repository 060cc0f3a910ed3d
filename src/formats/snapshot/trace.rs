//! Trace entries: one dict an event, into the columns of an [`EventTable`].

use super::super::pickle::{Node, NodeId, Tree};
use super::stacks::{StackReader, unknown_key, wrong_type};
use crate::model::{Action, DeviceRecording, EventTable, LoadReport, Note, NoteKind, PoolId, PoolKey, StackId, WarningKind};

/// One event as the file has it, its handles not yet interned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) action: Action,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: u64,
    pub(crate) time_us: Option<i64>,
    pub(crate) pool: Option<PoolKey>,
    pub(crate) stack: StackId,
}

/// Appends an event; without a time it takes the one before it.
pub(crate) fn push(device: &mut DeviceRecording, entry: Entry) {
    let stream = device.intern_stream(entry.stream);
    let pool = entry.pool.map_or(PoolId::UNKNOWN, |key| device.intern_pool(key));
    let events = &mut device.events;
    events.has_time |= entry.time_us.is_some();
    let time = entry.time_us.or_else(|| events.time_us.last().copied()).unwrap_or(0);
    events.push(time, entry.action, entry.address, entry.size, stream, pool, entry.stack);
}

/// Reads a list of entries and appends them to `device`. Entries that are no dict, or have no action, are counted and left out.
pub(crate) fn read_list(
    tree: &Tree,
    list: NodeId,
    device: &mut DeviceRecording,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    truncated: bool,
) {
    let items = tree.items(list);
    if !matches!(tree.node(list), Node::List(_) | Node::Tuple(_) | Node::None) {
        wrong_type(tree, list, "a trace", "a list of entries", report);
    }
    device.events.reserve(items.len());
    for (i, &item) in items.iter().enumerate() {
        if device.events.len() >= u32::MAX as usize - 1 {
            report.warn_many(WarningKind::Skipped, (items.len() - i) as u64, Some(tree.offset(item)), || {
                "more events than can be numbered; the rest was left out".to_owned()
            });
            break;
        }
        let cut = truncated && i + 1 == items.len();
        read_entry(tree, item, device, stacks, report, cut);
    }
}

fn read_entry(
    tree: &Tree,
    id: NodeId,
    device: &mut DeviceRecording,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
) {
    let Node::Dict(pairs) = tree.node(id) else {
        // What a truncated file ends in may be anything.
        if !cut {
            wrong_type(tree, id, "a trace entry", "a dict", report);
        }
        return;
    };
    let event = device.events.len() as u32;
    let first_note = device.events.notes.len();
    let (mut action, mut address, mut size, mut device_free) = (None, None, None, None);
    let mut entry =
        Entry { action: Action::Unknown, address: 0, size: 0, stream: 0, time_us: None, pool: None, stack: StackId::NONE };
    let mut cpp = None;
    let note = |device: &mut DeviceRecording, kind, text| device.events.notes.push(Note { event, kind, text });
    for &(key, value) in pairs {
        let name = tree.bytes(key).unwrap_or(b"");
        match name {
            b"action" => {
                let text = tree.bytes(value).unwrap_or(b"");
                entry.action = Action::from_name(text);
                action = Some(value);
                if entry.action == Action::Unknown {
                    let text = stacks.text(tree, value, report);
                    note(device, NoteKind::Action, text);
                    report.warn(WarningKind::UnknownAction, Some(tree.offset(id)), || {
                        format!("the action '{}' is not known; its events are kept and otherwise ignored", tree.text_of(value))
                    });
                }
            }
            b"addr" | b"address" => address = number(tree, value, "addr", report),
            b"device_free" => device_free = number(tree, value, "device_free", report),
            b"size" => size = number(tree, value, "size", report),
            b"stream" => entry.stream = number(tree, value, "stream", report).unwrap_or(0),
            b"time_us" => {
                entry.time_us = tree.as_i64(value);
                if entry.time_us.is_none() {
                    wrong_type(tree, value, "time_us", "a whole number of microseconds", report);
                }
            }
            b"pool_id" | b"segment_pool_id" => entry.pool = pool_key(tree, value, report),
            b"frames" => entry.stack = stacks.stack(tree, value, report),
            b"cpp_frames" => cpp = Some(value),
            _ => {
                let Some((kind, default)) = note_kind(name) else {
                    unknown_key(tree, key, "a trace entry", report);
                    let text = format!("{}: {}", tree.text_of(key), tree.text_of(value));
                    let text = stacks.builder.string(&text);
                    note(device, NoteKind::Internal, text);
                    continue;
                };
                if let Some(text) = note_text(tree, value, default, stacks, report) {
                    note(device, kind, text);
                }
            }
        }
    }
    if let Some(text) = cpp.and_then(|value| tree.bytes(value)) {
        entry.stack = stacks.with_cpp(entry.stack, &String::from_utf8_lossy(text));
    }
    entry.size = size.unwrap_or(0);
    entry.address = match entry.action {
        Action::Oom => device_free.or(address).unwrap_or(0),
        _ => address.unwrap_or(0),
    };
    let complete =
        action.is_some() && (size.is_some() && (address.is_some() || device_free.is_some()) || entry.action == Action::Unknown);
    if !complete && (cut || action.is_none()) {
        device.events.notes.truncate(first_note);
        if !cut {
            report.warn(WarningKind::WrongType, Some(tree.offset(id)), || {
                "a trace entry without an action was left out".to_owned()
            });
        }
        return;
    }
    if !complete {
        report.warn(WarningKind::WrongType, Some(tree.offset(id)), || {
            format!("a trace entry '{}' without an address or size; zero was taken", entry.action.name())
        });
    }
    push(device, entry);
}

/// Which note a key becomes, and the value that says "none".
pub(crate) fn note_kind(key: &[u8]) -> Option<(NoteKind, &'static [u8])> {
    Some(match key {
        b"user_metadata" => (NoteKind::UserMetadata, b""),
        b"compile_context" => (NoteKind::CompileContext, b"N/A"),
        b"internal_metadata" => (NoteKind::Internal, b""),
        b"category" => (NoteKind::Category, b""),
        b"forward_frames" => (NoteKind::ForwardFrames, b""),
        _ => return None,
    })
}

/// The text of a note; `None` when it says nothing.
fn note_text(
    tree: &Tree,
    value: NodeId,
    default: &[u8],
    stacks: &mut StackReader,
    report: &mut LoadReport,
) -> Option<crate::model::StrId> {
    match tree.node(value) {
        Node::Str(text) if text.is_empty() || text.as_ref() == default => None,
        Node::Str(_) => Some(stacks.text(tree, value, report)),
        Node::None => None,
        // forward_frames: chunks of an already formatted traceback.
        Node::List(chunks) if chunks.iter().all(|&c| matches!(tree.node(c), Node::Str(_))) => {
            let joined: Vec<u8> = chunks.iter().flat_map(|&c| tree.bytes(c).unwrap_or(b"").iter().copied()).collect();
            (!joined.is_empty()).then(|| stacks.builder.string(&String::from_utf8_lossy(&joined)))
        }
        Node::List(_) | Node::Dict(_) | Node::Tuple(_) if tree.items(value).is_empty() && tree.pairs(value).is_empty() => None,
        _ => Some(stacks.builder.string(&tree.text_of(value))),
    }
}

/// A size, address or handle.
pub(crate) fn number(tree: &Tree, id: NodeId, what: &str, report: &mut LoadReport) -> Option<u64> {
    let value = tree.as_u64(id);
    if value.is_none() {
        wrong_type(tree, id, what, "a whole number of at most 64 bits", report);
    }
    value
}

/// A pool's two-part key.
pub(crate) fn pool_key(tree: &Tree, id: NodeId, report: &mut LoadReport) -> Option<PoolKey> {
    if let &[a, b] = tree.items(id)
        && let (Some(a), Some(b)) = (tree.as_u64(a), tree.as_u64(b))
    {
        return Some((a, b));
    }
    wrong_type(tree, id, "a pool id", "a pair of integers", report);
    None
}

/// Sorts events whose times go backwards, keeping the order of equal times. Returns how many stood after a later one.
pub(crate) fn sort_by_time(events: &mut EventTable) -> u64 {
    if !events.has_time {
        return 0;
    }
    let mut latest = i64::MIN;
    let mut late = 0;
    for &time in &events.time_us {
        late += u64::from(time < latest);
        latest = latest.max(time);
    }
    if late == 0 {
        return 0;
    }
    let mut order: Vec<u32> = (0..events.len() as u32).collect();
    order.sort_by_key(|&i| events.time_us[i as usize]);
    fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
        *column = order.iter().map(|&i| column[i as usize]).collect();
    }
    permute(&mut events.time_us, &order);
    permute(&mut events.action, &order);
    permute(&mut events.address, &order);
    permute(&mut events.size, &order);
    permute(&mut events.stream, &order);
    permute(&mut events.pool, &order);
    permute(&mut events.stack, &order);
    let mut place = vec![0u32; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old as usize] = new as u32;
    }
    for note in &mut events.notes {
        note.event = place.get(note.event as usize).copied().unwrap_or(note.event);
    }
    events.notes.sort_by_key(|note| note.event);
    late
}
