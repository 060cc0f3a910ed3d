//! The contents of the inspector: a card of facts about one thing, computed off the UI thread from the recording.

use crate::app::data::device::DeviceData;
use crate::app::state::Item;
use vramscope_core::anatomy::{Role, made_at};
use vramscope_core::model::{Annotation, FrameId, PoolId, SizeClass, StackId, StreamId};
use vramscope_core::tables::{LifetimeId, NO_EVENT, State};
use vramscope_core::units::{Bytes, Micros, count};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Not recorded, or not there at the cursor.
    Quiet,
    /// Part of an out-of-memory error.
    Red,
}

/// The target of a click on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Moves the cursor to an event.
    Event(u32),
    Item(Item),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    pub label: &'static str,
    pub value: String,
    pub tone: Tone,
    /// Why the figure is missing, and how to record it.
    pub hint: Option<String>,
    pub lead: Option<Lead>,
}

impl Fact {
    pub fn new(label: &'static str, value: impl ToString) -> Self {
        Fact { label, value: value.to_string(), ..Fact::default() }
    }

    /// A figure that the file lacks; `hint` says how to record it.
    pub fn missing(label: &'static str, hint: &str) -> Self {
        Fact { label, value: "not recorded".to_owned(), tone: Tone::Quiet, hint: Some(hint.to_owned()), lead: None }
    }

    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    pub fn lead(mut self, lead: Lead) -> Self {
        self.lead = Some(lead);
        self
    }
}

/// A live block and its neighbours in the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    pub lifetime: LifetimeId,
    /// Bytes of the hole before it, or 0.
    pub before: u64,
    pub block: u64,
    /// Bytes of the hole after it, or 0.
    pub after: u64,
    /// The live blocks beyond the holes, drawn in their colours.
    pub neighbours: [Option<LifetimeId>; 2],
    /// Bytes of the request that failed at the cursor.
    pub request: Option<u64>,
}

impl Around {
    /// Size of the hole that freeing the block would make.
    pub fn if_freed(&self) -> u64 {
        self.before + self.block + self.after
    }
}

/// A line in a list of other things.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub item: Item,
    /// Where the thing was allocated, or its address.
    pub name: String,
    /// The tooltip: the address, when the name is something else.
    pub tip: String,
    pub note: String,
    /// The figure by which the list is sorted.
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    pub title: String,
    /// What the figures are, and how many lines are left out.
    pub trailing: String,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    pub step: usize,
    /// Number of steps of the device.
    pub of: u64,
    /// The phase of the peak; empty when unknown.
    pub phase: &'static str,
    pub bytes: u64,
    pub event: u32,
}

/// Live blocks with the same place in the code, role and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The first of these blocks.
    pub item: Item,
    /// Where they were allocated, or their role.
    pub name: String,
    /// The frame that allocated them.
    pub frame: Option<FrameId>,
    pub role: Role,
    /// The role is inferred.
    pub is_probable: bool,
    pub count: u64,
    /// Bytes of each block.
    pub each: u64,
    /// The address of the first block.
    pub tip: String,
}

/// Why some blocks have their role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    pub bytes: u64,
    pub count: u64,
    /// The role is inferred.
    pub is_probable: bool,
    /// The reason, as a sentence about one block.
    pub sentence: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// `Block`, `Segment`, `Event`.
    pub kind: String,
    /// The address, for copying.
    pub subject: Option<String>,
    /// The single large figure or name.
    pub title: String,
    /// A conclusion beside the title.
    pub claim: String,
    /// The title is about an out-of-memory error.
    pub is_red: bool,
    pub around: Option<Around>,
    pub facts: Vec<Fact>,
    /// Call stacks, each with the action it performed; [`StackId::NONE`] when none was recorded.
    pub stacks: Vec<(&'static str, StackId)>,
    /// Facts about all allocations with the same stack.
    pub same: Vec<Fact>,
    pub lists: Vec<List>,
    pub reasons: Vec<Why>,
    pub peaks: Vec<Peak>,
    /// The largest live blocks, grouped.
    pub held: Vec<Held>,
    /// How many blocks `held` covers, and how many there are.
    pub shown: (u64, u64),
    /// A final sentence that says what to do next.
    pub next: String,
}

pub use vramscope_core::diagnose::source_limits::NO_TIMES;

/// `216.283 ms, event 27,584`.
pub fn moment(data: &DeviceData, event: u32) -> String {
    let event_text = format!("event {}", count(u64::from(event)));
    data.since_start(event).map_or(event_text.clone(), |time| format!("{time}, {event_text}"))
}

/// The distance of two events: time when it was recorded, otherwise events.
pub fn between(data: &DeviceData, from: u32, to: u32) -> String {
    let events = vramscope_core::units::counted(u64::from(to.saturating_sub(from)), "event", "events");
    match (data.since_start(from), data.since_start(to)) {
        (Some(a), Some(b)) => format!("{}, {events}", Micros(b.0 - a.0)),
        _ => events,
    }
}

/// The segment that an address lies in, by its number.
pub fn in_segment(state: &State, index: usize, address: u64) -> Fact {
    let segment = state.segments[index].address;
    let (number, all) = (count(index as u64 + 1), count(state.segments.len() as u64));
    let text = format!("{number} of {all}, offset {}", Bytes(address - segment));
    Fact::new("segment", text).lead(Lead::Item(Item::Segment(segment)))
}

/// `large pool, default stream`.
pub fn pool_text(data: &DeviceData, pool: PoolId, class: SizeClass, stream: StreamId) -> String {
    let device = data.device();
    let pool = match device.pool_key(pool) {
        Some((0, 0)) => format!("{} pool", class.name()),
        Some((a, b)) => format!("private ({a}, {b}), {}", class.name()),
        None => format!("{}, pool not recorded", class.name()),
    };
    format!("{pool}, {}", stream_text(data, stream))
}

/// `default stream`, `stream 1 (0x55…)`.
pub fn stream_text(data: &DeviceData, stream: StreamId) -> String {
    match data.device().streams.get(usize::from(stream.0)).copied().unwrap_or(0) {
        0 => "default stream".to_owned(),
        handle => format!("stream {} ({handle:#x})", stream.0),
    }
}

/// The innermost annotation around an event. O(annotations).
pub fn annotation_around(data: &DeviceData, event: u32) -> Option<(usize, &Annotation)> {
    let device = data.device();
    if !device.events.has_time {
        return None;
    }
    let &t = device.events.time_us.get(event as usize)?;
    let until = device.annotations.partition_point(|a| a.start_us <= t);
    device.annotations[..until]
        .iter()
        .enumerate()
        .filter(|(_, a)| a.end_us.is_some_and(|end| t <= end))
        .max_by_key(|(i, a)| (a.depth, *i))
}

/// Bytes of the request that failed at the event of a state.
pub fn request_at(data: &DeviceData, state: &State) -> Option<u64> {
    let events = &data.device().events;
    let i = state.event as usize;
    (state.event != NO_EVENT && events.action.get(i) == Some(&vramscope_core::model::Action::Oom)).then(|| events.size[i])
}

/// The name of a stack in lists: that of its blocks.
pub fn stack_name(data: &DeviceData, stack: StackId) -> String {
    made_at(&data.recording.stacks, &data.names, stack, Role::Unknown)
}
