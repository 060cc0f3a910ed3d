//! [`EventTable`]: the allocator's trace in columns.

use super::{PoolId, StackId, StrId, StreamId};
use crate::units::MEBIBYTE;

/// Index of an event in its device's [`EventTable`].
pub type EventId = u32;

/// What the allocator did. Names are PyTorch's.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// The allocator handed out a block; the size is what the program requested, not the block's.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The block's memory became reusable.
    FreeCompleted,
    /// A segment was taken from the device (`cudaMalloc`); size is the segment's.
    SegmentAlloc,
    /// A segment was returned to the device (`cudaFree`).
    SegmentFree,
    /// Pages were mapped into an expandable segment; the address is that of the first new page.
    SegmentMap,
    /// Pages were unmapped from an expandable segment.
    SegmentUnmap,
    /// The user took a snapshot; size is the active bytes at that moment.
    Snapshot,
    /// A request failed; the size is the request rounded to 512 bytes, and the address column holds the device's free bytes.
    Oom,
    /// `_annotate_tensor`: a note on a live block.
    Annotate,
    /// An action of a later release or a fork; a [`NoteKind::Action`] note holds its name. Kept, but otherwise ignored.
    Unknown,
}

impl Action {
    /// The actions that have a name, in the order above.
    pub fn named() -> impl Iterator<Item = Action> {
        <Action as strum::VariantArray>::VARIANTS.iter().copied().filter(|action| *action != Action::Unknown)
    }

    /// The name in PyTorch's snapshots.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Parses PyTorch's name; any other name is [`Action::Unknown`].
    pub fn from_name(name: &[u8]) -> Self {
        match name {
            b"alloc" => Action::Alloc,
            b"free_requested" => Action::FreeRequested,
            b"free_completed" => Action::FreeCompleted,
            b"segment_alloc" => Action::SegmentAlloc,
            b"segment_free" => Action::SegmentFree,
            b"segment_map" => Action::SegmentMap,
            b"segment_unmap" => Action::SegmentUnmap,
            b"snapshot" => Action::Snapshot,
            b"oom" => Action::Oom,
            b"annotate" => Action::Annotate,
            _ => Action::Unknown,
        }
    }

    /// True if the event adds its size to reserved memory.
    pub fn grows_reserved(self) -> bool {
        matches!(self, Action::SegmentAlloc | Action::SegmentMap)
    }

    /// True if the event subtracts its size from reserved memory.
    pub fn shrinks_reserved(self) -> bool {
        matches!(self, Action::SegmentFree | Action::SegmentUnmap)
    }
}

/// Which text field of an event a [`Note`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoteKind {
    /// `user_metadata`, when not empty.
    UserMetadata,
    /// `compile_context`, when not `N/A`.
    CompileContext,
    /// The name of an [`Action::Unknown`].
    Action,
    /// `forward_frames`, joined into one text of lines.
    ForwardFrames,
    /// The operator that allocated the block (profiler traces).
    Operator,
    /// Shapes of that operator's inputs, as the profiler prints them.
    Shapes,
    /// The enclosing `nn.Module`, outermost first: `GPT_0.Block_3.Linear_1` (a trace joined to a snapshot).
    Module,
    /// `forward`, `backward`, `optimizer` (a trace joined to a snapshot).
    Phase,
    /// The category that PyTorch assigned (`parameter`, `activation`, …).
    Category,
    /// `internal_metadata` as text, whatever its type.
    Internal,
}

/// A rare text field of an event, stored apart from the columns because most events have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Index of the event.
    pub event: EventId,
    /// The field of the event that the text is from.
    pub kind: NoteKind,
    /// The text, in the recording's [`StackTable`](super::StackTable).
    pub text: StrId,
}

/// The trace of one device: parallel columns, one entry per event, oldest first. At most `u32::MAX - 1` events.
#[derive(Clone, Debug, Default)]
pub struct EventTable {
    /// Microseconds since the epoch; all zero when [`has_time`](Self::has_time) is false (PyTorch 2.0 and 2.1).
    pub time_us: Vec<i64>,
    /// What the allocator did; decides what address and size mean.
    pub action: Vec<Action>,
    /// Block or segment address; for [`Action::Oom`] the device's free bytes.
    pub address: Vec<u64>,
    /// Bytes; the meaning depends on the action.
    pub size: Vec<u64>,
    /// The block's or segment's stream, as an index into the device's streams.
    pub stream: Vec<StreamId>,
    /// The block's pool; [`PoolId::UNKNOWN`] before PyTorch 2.12, where only the segment's address identifies it.
    pub pool: Vec<PoolId>,
    /// Call stack; [`StackId::NONE`] when none was recorded.
    pub stack: Vec<StackId>,
    /// Rare text fields, ordered by event.
    pub notes: Vec<Note>,
    /// False when the source has no times.
    pub has_time: bool,
    /// True when allocation sizes are block sizes (profiler traces) rather than requests.
    pub sizes_are_blocks: bool,
}

impl EventTable {
    /// Number of events, which is the length of every column.
    pub fn len(&self) -> usize {
        self.action.len()
    }

    /// True when the trace is empty.
    pub fn is_empty(&self) -> bool {
        self.action.is_empty()
    }

    /// Reserves room for `additional` more events in every column.
    pub fn reserve(&mut self, additional: usize) {
        self.time_us.reserve(additional);
        self.action.reserve(additional);
        self.address.reserve(additional);
        self.size.reserve(additional);
        self.stream.reserve(additional);
        self.pool.reserve(additional);
        self.stack.reserve(additional);
    }

    /// Appends one event: one entry to each column.
    pub fn push(
        &mut self,
        time_us: i64,
        action: Action,
        address: u64,
        size: u64,
        stream: StreamId,
        pool: PoolId,
        stack: StackId,
    ) {
        self.time_us.push(time_us);
        self.action.push(action);
        self.address.push(address);
        self.size.push(size);
        self.stream.push(stream);
        self.pool.push(pool);
        self.stack.push(stack);
    }

    /// Address column of an [`Action::Oom`] event when the source lacks the device's free bytes (profiler traces).
    pub const FREE_UNKNOWN: u64 = u64::MAX;

    /// The device's free bytes at an [`Action::Oom`] event; `None` for other events and where the source lacks the figure.
    pub fn device_free(&self, event: EventId) -> Option<u64> {
        let i = event as usize;
        (self.action.get(i) == Some(&Action::Oom)).then(|| self.address[i]).filter(|&free| free != Self::FREE_UNKNOWN)
    }

    /// Free bytes of this size or more belong to no real device: a replay for a device of unknown size uses them as "unlimited".
    pub const FREE_UNBOUNDED: u64 = 1 << 43;

    /// [`device_free`](Self::device_free) as a figure to show: also `None` when it stands for a device of unknown size.
    pub fn device_free_known(&self, event: EventId) -> Option<u64> {
        self.device_free(event).filter(|&free| free < Self::FREE_UNBOUNDED)
    }

    /// True if a device with this much free memory surely has room for a segment of this size. A driver keeps the last few MiB to
    /// itself: on an H200 it refused a segment of 36 MiB with 37.1 MiB free.
    pub fn has_room(device_free: u64, segment: u64) -> bool {
        const KEPT_BY_DRIVER: u64 = 32 * MEBIBYTE;
        device_free >= segment.saturating_add(KEPT_BY_DRIVER)
    }

    /// The notes of one event.
    pub fn notes_of(&self, event: EventId) -> &[Note] {
        let from = self.notes.partition_point(|n| n.event < event);
        let to = self.notes.partition_point(|n| n.event <= event);
        &self.notes[from..to]
    }

    /// First and last time in microseconds since the epoch; `None` without events or times.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        if !self.has_time {
            return None;
        }
        Some((*self.time_us.first()?, *self.time_us.last()?))
    }

    pub(super) fn refused(&self) -> impl DoubleEndedIterator<Item = EventId> + '_ {
        (0..self.len()).filter(|&i| self.action[i] == Action::Oom).map(|i| i as EventId)
    }

    fn failures(&self) -> impl DoubleEndedIterator<Item = EventId> + '_ {
        self.refused().filter(|&event| !self.is_refused_trial(event))
    }

    /// True when some request failed. O(events), one byte each.
    pub fn has_oom(&self) -> bool {
        self.failures().next().is_some()
    }

    /// Every out-of-memory event, in order, except [refused trials](Self::refused_trials). O(events).
    pub fn ooms(&self) -> Vec<EventId> {
        self.failures().collect()
    }

    /// The last out-of-memory event, if nothing was allocated after it: the recording ends there. O(events).
    pub fn failure_at_end(&self) -> Option<EventId> {
        self.last_oom().filter(|&event| !self.allocates_after(event))
    }

    /// The last of [`ooms`](Self::ooms): the one that a crashed program printed. `None` where nothing failed. O(events).
    pub fn last_oom(&self) -> Option<EventId> {
        self.failures().next_back()
    }

    /// Whether the program allocated anything after an event. O(events).
    pub fn allocates_after(&self, event: EventId) -> bool {
        self.action.get(event as usize + 1..).is_some_and(|after| after.contains(&Action::Alloc))
    }
}
