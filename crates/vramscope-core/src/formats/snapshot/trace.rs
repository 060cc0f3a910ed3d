//! Trace entries: one dict per event, read into the columns of an [`EventTable`].

use super::super::pickle::{Node, NodeId, Tree};
use super::super::{MAX_BYTES, has_room};
use super::stacks::{StackReader, items_of, unknown_key, wrong_type};
use crate::model::{
    Action, DeviceRecording, EventTable, LoadReport, Note, NoteKind, PoolId, PoolKey, StackId, StrId, StreamId, WarningKind,
};

/// Marks an event without a time; replaced by the time of the event before it.
pub(crate) const UNTIMED: i64 = i64::MIN;

/// More notes than any release writes per event.
pub(crate) const MAX_NOTES: usize = 32;
/// Maximum bytes of a note that is joined from pieces.
const MAX_NOTE: usize = 1 << 20;

/// One event as in the file, with handles not yet interned.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) time_us: i64,
    pub(crate) action: Action,
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) stream: StreamId,
    pub(crate) pool: PoolId,
    pub(crate) stack: StackId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Action,
    Address,
    DeviceFree,
    Size,
    Stream,
    Time,
    Pool,
    Frames,
    /// `cpp_frames`: one text with a line per frame (2.0).
    Cpp,
    /// A text that becomes a note.
    Note(NoteKind),
    Other,
}

impl Key {
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b"action" => Key::Action,
            b"addr" | b"address" => Key::Address,
            b"device_free" => Key::DeviceFree,
            b"size" => Key::Size,
            b"stream" => Key::Stream,
            b"time_us" => Key::Time,
            b"pool_id" | b"segment_pool_id" => Key::Pool,
            b"frames" => Key::Frames,
            b"cpp_frames" => Key::Cpp,
            b"user_metadata" => Key::Note(NoteKind::UserMetadata),
            b"compile_context" => Key::Note(NoteKind::CompileContext),
            b"internal_metadata" => Key::Note(NoteKind::Internal),
            b"category" => Key::Note(NoteKind::Category),
            b"forward_frames" => Key::Note(NoteKind::ForwardFrames),
            _ => Key::Other,
        }
    }
}

/// Reads one entry and adds its texts to `notes`. `None` (counted) when it is not a dict or has no action. `cut`: it may be the
/// last entry of a truncated file, where missing fields are not counted.
pub(crate) fn read_entry(
    tree: &Tree,
    id: NodeId,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
    notes: &mut Vec<(NoteKind, StrId)>,
) -> Option<Entry> {
    let Node::Dict(pairs) = tree.node(id) else {
        if !cut {
            wrong_type(tree, id, "a trace entry", "a dict", report);
        }
        return None;
    };
    let first_note = notes.len();
    let (mut action, mut address, mut size, mut device_free) = (None, None, None, None);
    let mut entry =
        Entry { action: Action::Unknown, address: 0, size: 0, stream: 0, time_us: None, pool: None, stack: StackId::NONE };
    let mut cpp = None;
    for &(key, value) in pairs {
        match Key::of(tree.bytes(key).unwrap_or(b"")) {
            Key::Action => {
                entry.action = Action::from_name(tree.bytes(value).unwrap_or(b""));
                action = Some(value);
                if entry.action == Action::Unknown {
                    notes.push((NoteKind::Action, stacks.text(tree, value, report)));
                    report.warn(WarningKind::UnknownAction, tree.place(id), || {
                        format!("the action '{}' is not known; its events are kept and otherwise ignored", tree.text_of(value))
                    });
                }
            }
            Key::Address => address = number(tree, value, "addr", report),
            Key::DeviceFree => device_free = number(tree, value, "device_free", report),
            Key::Size => size = amount(tree, value, "size", report),
            Key::Stream => entry.stream = number(tree, value, "stream", report).unwrap_or(0),
            Key::Time => {
                entry.time_us = tree.as_i64(value);
                if entry.time_us.is_none() {
                    wrong_type(tree, value, "time_us", "a whole number of microseconds", report);
                }
            }
            Key::Pool => entry.pool = pool_key(tree, value, report),
            Key::Frames => entry.stack = stacks.stack(tree, value, report),
            Key::Cpp => cpp = Some(value),
            Key::Note(_) | Key::Other if notes.len() - first_note >= MAX_NOTES => {
                report.warn(WarningKind::Skipped, tree.place(key), || {
                    format!("trace entries that say more than {MAX_NOTES} things beside the event; the rest was left out")
                });
            }
            Key::Note(kind) => {
                if let Some(text) = note_text(tree, value, kind, stacks, report) {
                    notes.push((kind, text));
                }
            }
            Key::Other => {
                unknown_key(tree, key, "a trace entry", report);
                if says_nothing(tree, value) {
                    continue;
                }
                let text = format!("{}: {}", tree.text_of(key), tree.text_of(value));
                notes.push((NoteKind::Internal, stacks.builder.string(&text)));
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
    if !matches!(entry.action, Action::Oom | Action::Unknown) && !has_room(entry.address, entry.size) {
        report.warn(WarningKind::WrongType, tree.place(id), || {
            format!("{:#x} is no address of {} bytes; zero was taken", entry.address, entry.size)
        });
        entry.address = 0;
    }
    let is_whole = entry.action == Action::Unknown || size.is_some() && (address.is_some() || device_free.is_some());
    if action.is_none() || !is_whole && cut {
        notes.truncate(first_note);
        if !cut {
            report.warn(WarningKind::WrongType, tree.place(id), || "a trace entry without an action was left out".to_owned());
        }
        return None;
    }
    if !is_whole {
        report.warn(WarningKind::WrongType, tree.place(id), || {
            format!("a trace entry '{}' without an address or size; zero was taken", entry.action.name())
        });
    }
    Some(entry)
}

/// Reads a list of entries that could not be streamed (unusual pickles) from the tree and appends them to `device`.
pub(crate) fn read_list(
    tree: &Tree,
    list: NodeId,
    device: &mut DeviceRecording,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    truncated: bool,
) {
    let items = items_of(tree, list, "a trace", "a list of entries", report);
    let mut notes = Vec::new();
    for (i, &item) in items.iter().enumerate() {
        append(tree, item, device, stacks, report, truncated && i + 1 == items.len(), &mut notes);
    }
    finish_times(&mut device.events);
}

/// Reads one entry and appends it to `device`. Its time may be missing until [`finish_times`]. `notes` is a buffer to reuse.
pub(crate) fn append(
    tree: &Tree,
    item: NodeId,
    device: &mut DeviceRecording,
    stacks: &mut StackReader,
    report: &mut LoadReport,
    cut: bool,
    notes: &mut Vec<(NoteKind, StrId)>,
) {
    if device.events.len() >= u32::MAX as usize - 1 {
        report.warn(WarningKind::Skipped, tree.place(item), || {
            "more events than can be numbered; the rest was left out".to_owned()
        });
        return;
    }
    notes.clear();
    let Some(entry) = read_entry(tree, item, stacks, report, cut, notes) else { return };
    let event = device.events.len() as u32;
    device.events.notes.extend(notes.iter().map(|&(kind, text)| Note { event, kind, text }));
    let stream = device.intern_stream(entry.stream);
    let pool = entry.pool.map_or(PoolId::UNKNOWN, |key| device.intern_pool(key));
    let events = &mut device.events;
    events.has_time |= entry.time_us.is_some();
    let time = entry.time_us.unwrap_or(UNTIMED);
    events.push(time, entry.action, entry.address, entry.size, stream, pool, entry.stack);
}

/// Gives a time to entries without one, if there are any.
pub(crate) fn finish_times(events: &mut EventTable) {
    if events.time_us.contains(&UNTIMED) {
        fill_times(events);
    }
}

/// Gives events without a time that of the event before them, or the first time in the trace, or zero.
pub(crate) fn fill_times(events: &mut EventTable) {
    let first = events.time_us.iter().copied().find(|&time| time != UNTIMED).unwrap_or(0);
    let mut last = first;
    for time in &mut events.time_us {
        if *time == UNTIMED {
            *time = last;
        }
        last = *time;
    }
}

/// True of None and of what is empty.
fn says_nothing(tree: &Tree, value: NodeId) -> bool {
    match tree.node(value) {
        Node::None => true,
        Node::Str(text) => text.is_empty(),
        Node::List(_) | Node::Dict(_) | Node::Tuple(_) => tree.items(value).is_empty() && tree.pairs(value).is_empty(),
        _ => false,
    }
}

/// The text of a note; `None` when it is empty.
fn note_text(tree: &Tree, value: NodeId, kind: NoteKind, stacks: &mut StackReader, report: &mut LoadReport) -> Option<StrId> {
    match tree.node(value) {
        _ if says_nothing(tree, value) => None,
        Node::Str(text) if kind == NoteKind::CompileContext && text.as_ref() == b"N/A" => None,
        Node::Str(_) => Some(stacks.text(tree, value, report)),
        // `forward_frames`: pieces of a formatted traceback.
        Node::List(chunks) if chunks.iter().all(|&c| matches!(tree.node(c), Node::Str(_))) => {
            let pieces = chunks.iter().flat_map(|&c| tree.bytes(c).unwrap_or(b"").iter().copied());
            let joined: Vec<u8> = pieces.take(MAX_NOTE).collect();
            (!joined.is_empty()).then(|| stacks.builder.string(&String::from_utf8_lossy(&joined)))
        }
        _ => Some(stacks.builder.string(&tree.text_of(value))),
    }
}

/// Reads a size, address or handle.
pub(crate) fn number(tree: &Tree, id: NodeId, what: &str, report: &mut LoadReport) -> Option<u64> {
    let value = tree.as_u64(id);
    if value.is_none() {
        wrong_type(tree, id, what, "a whole number of at most 64 bits", report);
    }
    value
}

/// Reads a number of bytes; one beyond [`MAX_BYTES`] is treated as damage and counted.
pub(crate) fn amount(tree: &Tree, id: NodeId, what: &str, report: &mut LoadReport) -> Option<u64> {
    let value = number(tree, id, what, report)?;
    // Addresses may be written as negative numbers, sizes may not.
    if let Some(negative) = tree.as_i64(id).filter(|&v| v < 0) {
        report.warn(WarningKind::WrongType, tree.place(id), || {
            format!("{what} is {negative} bytes, which nothing can have; it was ignored")
        });
        return None;
    }
    if value > MAX_BYTES {
        report.warn(WarningKind::WrongType, tree.place(id), || {
            format!("{what} is {value} bytes, which no device has; it was ignored")
        });
        return None;
    }
    Some(value)
}

pub(crate) fn pool_key(tree: &Tree, id: NodeId, report: &mut LoadReport) -> Option<PoolKey> {
    if let &[a, b] = tree.items(id)
        && let (Some(a), Some(b)) = (tree.as_u64(a), tree.as_u64(b))
    {
        return Some((a, b));
    }
    wrong_type(tree, id, "a pool id", "a pair of integers", report);
    None
}
