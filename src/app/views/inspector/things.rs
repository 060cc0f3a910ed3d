//! Cards of everything but blocks: segments, holes, events, stacks, annotations, instants.

use super::block::{LINES, action_text, next_blockers, same_stack};
use super::card::{Card, Fact, Lead, Line, List, NO_TIMES, Tone, in_segment, moment, pool_text, stack_name, stream_text};
use crate::app::data::device::DeviceData;
use crate::app::state::Item;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::fragmentation::Servers;
use vramscope_core::diagnose::oom::has_segments;
use vramscope_core::diagnose::source_limits::{clock_time, why_no_segments};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{Action, BlockState, Clock, NoteKind, PoolId, StackId};
use vramscope_core::tables::{BlockAt, LifetimeId, NO_EVENT, Quantity, State};
use vramscope_core::units::{Address, Bytes, Micros, count, counted};

/// The card of an item at an instant, or of the instant itself when nothing is selected. With `only`, the latter is limited to
/// these roles.
pub fn card(data: &DeviceData, state: &State, item: Option<Item>, roles: Option<&Roles>, only: &[Role]) -> Card {
    let card = match item {
        Some(Item::Lifetime(id)) => super::block::card(data, state, id),
        Some(Item::Segment(address)) => segment(data, state, address),
        Some(Item::Hole(address)) => hole(data, state, address),
        Some(Item::Unmapped(address)) => unmapped(data, state, address),
        Some(Item::Event(e)) => event(data, state, e),
        Some(Item::Stack(s)) => Some(stack(data, state, s)),
        Some(Item::Annotation(i)) => annotation(data, i),
        None => None,
    };
    match (card, item) {
        (Some(card), _) => card,
        (None, Some(Item::Segment(address))) => gone("Segment", address),
        (None, Some(Item::Hole(address))) => gone("Hole", address),
        (None, Some(Item::Unmapped(address))) => gone("Unmapped range", address),
        (None, _) => super::overall::card(data, state, roles, only),
    }
}

fn gone(kind: &str, address: u64) -> Card {
    Card {
        kind: kind.to_owned(),
        subject: Some(Address(address).to_string()),
        title: "Not there".to_owned(),
        claim: "at the cursor".to_owned(),
        next: format!("At the cursor no {} begins at this address. Move the cursor back to where it was.", kind.to_lowercase()),
        ..Card::default()
    }
}

fn segment(data: &DeviceData, state: &State, address: u64) -> Option<Card> {
    let index = state.segment_at(address)?;
    let segment = &state.segments[index];
    let blocks = state.blocks_of(segment);
    let sum = |state: BlockState| {
        blocks.iter().filter(|b| b.state == state).fold((0u64, 0u64), |(n, bytes), b| (n + 1, bytes + b.size))
    };
    let (live, live_bytes) = sum(BlockState::Active);
    let (pending, pending_bytes) = sum(BlockState::PendingFree);
    let (holes, free) = sum(BlockState::Inactive);
    let largest = blocks.iter().filter(|b| b.state == BlockState::Inactive).max_by_key(|b| b.size);
    let requested: u64 = blocks.iter().map(|b| b.requested).sum();
    let mut facts = vec![
        Fact::new("number", format!("{} of {}", count(index as u64 + 1), count(state.segments.len() as u64))),
        Fact::new("pool", pool_text(data, segment.pool, segment.class, segment.stream)),
        Fact::new(
            "kind",
            if segment.is_expandable { "mapped part of an expandable segment" } else { Words::of(data.device()).malloc },
        ),
        Fact::new("live", format!("{}, {}", counted(live, "block", "blocks"), Bytes(live_bytes))),
    ];
    if pending > 0 {
        facts.push(Fact::new("pending free", format!("{}, {}", counted(pending, "block", "blocks"), Bytes(pending_bytes))));
    }
    facts.push(Fact::new("free", format!("{} in {}", Bytes(free), counted(holes, "hole", "holes"))));
    if let Some(hole) = largest {
        facts.push(Fact::new("largest hole", Bytes(hole.size)).lead(Lead::Item(Item::Hole(hole.address))));
    }
    facts.push(Fact::new("rounding", Bytes((live_bytes + pending_bytes).saturating_sub(requested))));
    facts.push(if segment.born == NO_EVENT {
        Fact::new("taken", "before the first event").tone(Tone::Quiet)
    } else {
        Fact::new("taken", moment(data, segment.born)).lead(Lead::Event(segment.born))
    });
    let claim = if free == segment.size { "all of it free".to_owned() } else { format!("{} free", Bytes(free)) };
    Some(Card {
        kind: "Segment".to_owned(),
        subject: Some(Address(segment.address).to_string()),
        title: Bytes(segment.size).to_string(),
        claim,
        facts,
        stacks: vec![("taken", segment.stack)],
        lists: largest_blocks(data, "Its blocks", blocks.iter().filter(|b| b.lifetime.is_some()).collect()).into_iter().collect(),
        ..Card::default()
    })
}

fn hole(data: &DeviceData, state: &State, address: u64) -> Option<Card> {
    let at = state.block_at(address).filter(|&i| state.blocks[i].state == BlockState::Inactive)?;
    let hole = state.blocks[at];
    let index = state.segment_at(address)?;
    let segment = &state.segments[index];
    let mut facts = vec![
        in_segment(state, index, hole.address),
        Fact::new("pool", pool_text(data, segment.pool, segment.class, segment.stream)),
    ];
    let beside = |i: Option<usize>, label: &'static str, end: &str| {
        let block = i.filter(|i| segment.blocks.contains(&(*i as u32))).and_then(|i| state.blocks.get(i));
        match block {
            Some(b) if b.lifetime.is_some() => {
                let stack = data.tables.lifetimes.stack(data.device(), b.lifetime);
                Fact::new(label, format!("{} {}", Bytes(b.size), stack_name(data, stack)))
                    .lead(Lead::Item(Item::Lifetime(b.lifetime)))
            }
            _ => Fact::new(label, end).tone(Tone::Quiet),
        }
    };
    facts.push(beside(at.checked_sub(1), "before it", "the segment's start"));
    facts.push(beside(Some(at + 1), "after it", "the segment's end"));
    let mut claim = "free for a request that fits".to_owned();
    if let Some((servers, request)) = Servers::of_oom(data.device(), state.event) {
        facts.push(Fact::new("the request", Bytes(request)).tone(Tone::Red));
        claim = if !servers.take(segment) {
            "in a pool that could not serve the request".to_owned()
        } else if hole.size < request {
            format!("{} too small for the request", Bytes(request - hole.size))
        } else {
            "large enough for the request".to_owned()
        };
    }
    Some(Card {
        kind: "Hole".to_owned(),
        subject: Some(Address(hole.address).to_string()),
        title: Bytes(hole.size).to_string(),
        claim,
        facts,
        lists: next_blockers(data, state, None).into_iter().collect(),
        ..Card::default()
    })
}

/// Card of unmapped address space in an expandable segment.
fn unmapped(data: &DeviceData, state: &State, address: u64) -> Option<Card> {
    let (from, size) = state.unmapped_at(data.device(), address)?;
    let all = count(state.segments.len() as u64);
    let beside = |label: &'static str, at: usize| {
        let segment = &state.segments[at];
        Fact::new(label, format!("{}, segment {} of {all}", Bytes(segment.size), count(at as u64 + 1)))
            .lead(Lead::Item(Item::Segment(segment.address)))
    };
    let before = state.segments.partition_point(|s| s.address < from).checked_sub(1)?;
    let segment = &state.segments[before];
    Some(Card {
        kind: "Not mapped".to_owned(),
        subject: Some(Address(from).to_string()),
        title: Bytes(size).to_string(),
        claim: "of address space, no memory".to_owned(),
        facts: vec![
            Fact::new("pool", pool_text(data, segment.pool, segment.class, segment.stream)),
            beside("before it", before),
            beside("after it", before + 1),
        ],
        next: "An expandable segment can map memory here when the device has some to give, and join what lies on both sides."
            .to_owned(),
        ..Card::default()
    })
}

fn event(data: &DeviceData, state: &State, e: u32) -> Option<Card> {
    let device = data.device();
    let events = &device.events;
    let i = e as usize;
    let action = *events.action.get(i)?;
    let (address, size) = (events.address[i], events.size[i]);
    let is_oom = action == Action::Oom;
    let mut facts = vec![Fact::new("number", format!("{} of {}", count(u64::from(e)), count(events.len() as u64)))];
    match data.since_start(e) {
        Some(time) => {
            facts.push(Fact::new("time", format!("{time} after the first")));
            facts.push(match data.recording.clock() {
                Clock::Start => Fact::missing("clock", "This file names no clock time: its times count from its start."),
                clock => {
                    let (time, zone) = clock_time(clock, events.time_us[i]);
                    Fact::new("clock", format!("{time}{zone}"))
                }
            });
        }
        None => facts.push(Fact::missing("time", NO_TIMES)),
    }
    if is_oom {
        facts.push(Fact::new("requested", Bytes(size)).tone(Tone::Red));
        facts.push(match events.device_free_known(e) {
            Some(free) => Fact::new("device free", Bytes(free)),
            None => Fact::missing("device free", "What was free on the device is not in this file."),
        });
        let at = |q| Bytes(data.tables.curves.at(device, &data.tables.lifetimes, q, e)).to_string();
        facts.push(if has_segments(&data.tables) {
            Fact::new("reserved", at(Quantity::Reserved))
        } else {
            Fact::missing("reserved", why_no_segments(data.device()))
        });
        facts.push(Fact::new("allocated", at(Quantity::Allocated)));
        // Free memory and its place explain more than the event itself.
        if state.event == e && has_segments(&data.tables) {
            let (number, free, largest) = state.hole_figures();
            facts.push(Fact::new("free inside", format!("{} in {}", Bytes(free), counted(number, "hole", "holes"))));
            facts.push(Fact::new("largest hole", Bytes(largest)));
        }
    } else {
        facts.push(Fact::new("size", format!("{} ({} bytes)", Bytes(size), count(size))));
        if !data.recording.addresses().is_known() {
            facts.push(Fact::missing("address", data.recording.addresses().why_not()));
        } else if address != 0 || action != Action::Snapshot {
            facts.push(Fact::new("address", Address(address)));
        }
    }
    facts.push(Fact::new("stream", stream_text(data, events.stream[i])));
    match device.pool_key(events.pool[i]) {
        Some((0, 0)) => facts.push(Fact::new("pool", "default")),
        Some((a, b)) => facts.push(Fact::new("pool", format!("private ({a}, {b})"))),
        // The pool does not matter for a failure.
        None if events.pool[i] == PoolId::UNKNOWN && !is_oom => {
            facts.push(Fact::missing("pool", "PyTorch 2.12 and later write the pool of each event."));
        }
        None => {}
    }
    let id = data.tables.lifetimes.of_event(e);
    if id.is_some() {
        let bytes = Bytes(data.tables.lifetimes.block_size(id));
        let text =
            if data.recording.addresses().is_known() { format!("{bytes} at {}", Address(address)) } else { bytes.to_string() };
        facts.push(Fact::new("block", text).lead(Lead::Item(Item::Lifetime(id))));
    }
    let stacks = &data.recording.stacks;
    for note in events.notes_of(e) {
        facts.push(Fact::new(note_label(note.kind), stacks.text(note.text)));
    }
    Some(Card {
        kind: "Event".to_owned(),
        title: if is_oom { "Out of memory".to_owned() } else { action_text(action) },
        claim: if is_oom { format!("a request for {} failed", Bytes(size)) } else { Bytes(size).to_string() },
        is_red: is_oom,
        facts,
        stacks: vec![("recorded", events.stack[i])],
        ..Card::default()
    })
}

pub(super) fn note_label(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::UserMetadata => "user metadata",
        NoteKind::CompileContext => "compile context",
        NoteKind::Action => "action",
        NoteKind::ForwardFrames => "forward frames",
        NoteKind::Operator => "operator",
        NoteKind::Shapes => "shapes",
        NoteKind::Module => "module",
        NoteKind::Phase => "phase",
        NoteKind::Category => "role",
        NoteKind::Internal => "internal",
    }
}

fn stack(data: &DeviceData, state: &State, stack: StackId) -> Card {
    let device = data.device();
    let mine: Vec<&BlockAt> = state
        .blocks
        .iter()
        .filter(|b| b.lifetime.is_some() && data.tables.lifetimes.stack(device, b.lifetime) == stack)
        .collect();
    let bytes: u64 = mine.iter().filter(|b| b.state == BlockState::Active).map(|b| b.size).sum();
    Card {
        kind: "Stack".to_owned(),
        title: stack_name(data, stack),
        claim: format!("{} live", Bytes(bytes)),
        facts: same_stack(data, state, stack),
        stacks: vec![("allocated", stack)],
        lists: largest_blocks(data, "Its blocks now", mine).into_iter().collect(),
        ..Card::default()
    }
}

pub(super) fn largest_blocks(data: &DeviceData, title: &str, mut blocks: Vec<&BlockAt>) -> Option<List> {
    if blocks.is_empty() {
        return None;
    }
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.size), b.address));
    let all = blocks.len();
    let lines: Vec<Line> = blocks
        .iter()
        .take(LINES)
        .map(|b| Line {
            item: Item::Lifetime(b.lifetime),
            name: block_name(data, b.address, b.lifetime),
            tip: String::new(),
            note: if b.state == BlockState::PendingFree { "pending".to_owned() } else { String::new() },
            bytes: b.size,
        })
        .collect();
    Some(List { title: title.to_owned(), trailing: format!("{} of {}", lines.len(), count(all as u64)), lines })
}

/// A block's address, or the stack that allocated it when the file has no addresses.
fn block_name(data: &DeviceData, address: u64, lifetime: LifetimeId) -> String {
    if data.recording.addresses().is_known() {
        return Address(address).to_string();
    }
    match data.tables.lifetimes.born(lifetime) {
        NO_EVENT => "from before".to_owned(),
        born => format!("of event {}", count(u64::from(born))),
    }
}

fn annotation(data: &DeviceData, index: u32) -> Option<Card> {
    let device = data.device();
    let a = device.annotations.get(index as usize)?;
    let events = &device.events;
    let name = data.recording.stacks.text(a.name).to_owned();
    let mut facts = Vec::new();
    let duration = a.end_us.map(|end| Micros(end - a.start_us).to_string());
    facts.push(match &duration {
        Some(d) => Fact::new("duration", d.clone()),
        None => Fact::new("duration", "its end was not recorded").tone(Tone::Quiet),
    });
    if events.has_time {
        let from = events.time_us.partition_point(|&t| t < a.start_us) as u32;
        let to = a.end_us.map_or(events.len(), |end| events.time_us.partition_point(|&t| t <= end)) as u32;
        facts.push(Fact::new("events", count(u64::from(to.saturating_sub(from)))));
        if from < events.len() as u32 {
            facts.push(Fact::new("first event", moment(data, from)).lead(Lead::Event(from)));
        }
        for (label, q) in [("reserved", Quantity::Reserved), ("allocated", Quantity::Allocated)] {
            let at = |event: Option<u32>| match event {
                Some(event) => data.tables.curves.at(device, &data.tables.lifetimes, q, event),
                None => data.tables.curves.start(q),
            };
            facts.push(Fact::new(label, change(at(from.checked_sub(1)), at(to.checked_sub(1)))));
        }
        if let Some((peak, event)) = data.tables.curves.peak_in(device, &data.tables.lifetimes, Quantity::Allocated, from, to) {
            facts.push(Fact::new("peak inside", Bytes(peak)).lead(Lead::Event(event)));
        }
    } else {
        facts.push(Fact::missing("events", NO_TIMES));
    }
    Some(Card { kind: "Annotation".to_owned(), title: name, claim: duration.unwrap_or_default(), facts, ..Card::default() })
}

/// `+14.00 MiB, to 1,080 MiB`.
fn change(before: u64, after: u64) -> String {
    match after.cmp(&before) {
        std::cmp::Ordering::Equal => format!("unchanged at {}", Bytes(after)),
        std::cmp::Ordering::Greater => format!("+{}, to {}", Bytes(after - before), Bytes(after)),
        std::cmp::Ordering::Less => format!("-{}, to {}", Bytes(before - after), Bytes(after)),
    }
}
