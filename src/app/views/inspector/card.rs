//! What the inspector says of a thing: a card of facts, made off the UI thread from the recording alone.

use crate::app::data::device::DeviceData;
use crate::app::state::selection::Item;
use vramscope_core::anatomy::Role;
use vramscope_core::model::{Annotation, FrameId, PoolId, SizeClass, StackId, StreamId};
use vramscope_core::tables::{LifetimeId, NO_EVENT, State};
use vramscope_core::units::{Micros, count};

/// How a figure is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Not recorded, or not there now.
    Quiet,
    /// Part of an out-of-memory error.
    Red,
}

/// Where a figure leads when it is clicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// To an event: the cursor goes there.
    Event(u32),
    /// To another thing: it is selected.
    Item(Item),
}

/// One line: what it is, and how much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    pub label: &'static str,
    /// The figure with its unit.
    pub value: String,
    pub tone: Tone,
    /// Why it is missing, and what records it.
    pub hint: Option<String>,
    /// Where a click leads.
    pub lead: Option<Lead>,
}

impl Fact {
    pub fn new(label: &'static str, value: impl Into<String>) -> Self {
        Fact { label, value: value.into(), ..Fact::default() }
    }

    /// A figure the file does not have, with what would record it.
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

/// A live block and what lies beside it in its segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    pub lifetime: LifetimeId,
    /// Bytes of the hole before it; 0 when there is none.
    pub before: u64,
    /// Bytes of the block.
    pub block: u64,
    /// Bytes of the hole after it; 0 when there is none.
    pub after: u64,
    /// The live blocks beyond the holes, for their colours.
    pub neighbours: [Option<LifetimeId>; 2],
    /// The request that failed at the cursor.
    pub request: Option<u64>,
}

impl Around {
    /// The one hole there would be without the block.
    pub fn if_freed(&self) -> u64 {
        self.before + self.block + self.after
    }
}

/// A line of a list of other things.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub item: Item,
    /// Its name: where it was made, or an address.
    pub name: String,
    /// What its tooltip says: the address, where the name is another.
    pub tip: String,
    /// A figure beside the name.
    pub note: String,
    /// The figure the list is ordered by.
    pub bytes: u64,
}

/// A list of other things worth a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    pub title: String,
    /// What the figures are; tells how many are left out.
    pub trailing: String,
    /// Its lines, largest first.
    pub lines: Vec<Line>,
}

/// The peak of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Which step it is.
    pub step: usize,
    /// How many steps there are.
    pub of: u64,
    /// The phase the peak is in; empty where none is known.
    pub phase: &'static str,
    pub bytes: u64,
    pub event: u32,
}

/// Live blocks of one place, role and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The first of them.
    pub item: Item,
    /// Where they were made, or what they are for.
    pub name: String,
    /// The line that made them.
    pub frame: Option<FrameId>,
    /// What they are for.
    pub role: Role,
    /// That is inferred.
    pub is_probable: bool,
    pub count: u64,
    /// Bytes of each.
    pub each: u64,
    /// The address of the first.
    pub tip: String,
}

/// Why blocks are taken for what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Bytes of those blocks.
    pub bytes: u64,
    pub count: u64,
    /// That is inferred.
    pub is_probable: bool,
    /// The reason, as a sentence about one of them.
    pub sentence: String,
}

/// Everything the inspector says of one thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Card {
    /// `Block`, `Segment`, `Event`.
    pub kind: String,
    /// An address, to be copied.
    pub subject: Option<String>,
    /// The one big figure or name.
    pub title: String,
    /// What follows from it, beside it.
    pub claim: String,
    /// The title is about an out-of-memory error.
    pub is_red: bool,
    pub around: Option<Around>,
    /// Facts in the order they are read.
    pub facts: Vec<Fact>,
    /// Call stacks with what they did; [`StackId::NONE`] where none was recorded.
    pub stacks: Vec<(&'static str, StackId)>,
    /// Facts about all allocations by the same stack.
    pub same: Vec<Fact>,
    /// Other things, by figures.
    pub lists: Vec<List>,
    /// Why the blocks are taken for what they are.
    pub reasons: Vec<Why>,
    /// The peak of each step.
    pub peaks: Vec<Peak>,
    /// The largest live blocks, in groups.
    pub held: Vec<Held>,
    /// How many blocks those are, and of how many.
    pub shown: (u64, u64),
    /// A sentence at the end: what to do next.
    pub next: String,
}

pub use vramscope_core::diagnose::source_limits::NO_TIMES;

/// Time since the first event.
pub fn since_start(data: &DeviceData, event: u32) -> Option<i64> {
    let events = &data.device().events;
    let (first, _) = events.time_range()?;
    events.time_us.get(event as usize).map(|t| t - first)
}

/// `216.283 ms, event 27,584`.
pub fn moment(data: &DeviceData, event: u32) -> String {
    match since_start(data, event) {
        Some(us) => format!("{}, event {}", Micros(us), count(u64::from(event))),
        None => format!("event {}", count(u64::from(event))),
    }
}

/// A span between two events: time where it was recorded, else events.
pub fn between(data: &DeviceData, from: u32, to: u32) -> String {
    let events = vramscope_core::units::counted(u64::from(to.saturating_sub(from)), "event", "events");
    match (since_start(data, from), since_start(data, to)) {
        (Some(a), Some(b)) => format!("{}, {events}", Micros(b - a)),
        _ => events,
    }
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

/// The request that failed at the instant of a state.
pub fn request_at(data: &DeviceData, state: &State) -> Option<u64> {
    let events = &data.device().events;
    let i = state.event as usize;
    (state.event != NO_EVENT && events.action.get(i) == Some(&vramscope_core::model::Action::Oom)).then(|| events.size[i])
}

/// The name of a stack as lists show it.
pub fn stack_name(data: &DeviceData, stack: StackId) -> String {
    data.names.of_stack(stack).to_owned()
}
