//! The card of an instant when nothing is selected: figures, the peak of each step, the largest live blocks.

use rustc_hash::FxHashMap;

use super::block::next_blockers;
use super::card::{Card, Fact, Held, Lead, Peak, Tone, Why, request_at};
use super::things::largest_blocks;
use crate::app::data::device::DeviceData;
use crate::app::state::Item;
use crate::app::views::block_name::block_name;
use vramscope_core::anatomy::made_in;
use vramscope_core::anatomy::roles::{Reason, Tally};
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::source_limits::{records_history, why_no_segments};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{BlockState, CATEGORIES, CategoryBands};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity, State};
use vramscope_core::units::{Address, Bytes, count, counted};

const GROUPS: usize = 14;
/// Most steps listed; with more steps the highest are.
const STEPS: usize = 8;

/// The instant of a state as words after "At": `the peak`, `the cursor`.
pub(super) fn when(data: &DeviceData, state: &State) -> &'static str {
    match request_at(data, state) {
        Some(_) => "the out-of-memory event",
        None if data.device().events.is_empty() => "the end",
        None if state.event == data.tables.curves.peak_event() => "the peak",
        None => "the cursor",
    }
}

/// The card of the cursor's instant. With `only`, it is limited to blocks of these roles.
pub(super) fn card(data: &DeviceData, state: &State, roles: Option<&Roles>, only: &[Role]) -> Card {
    let device = data.device();
    if device.events.is_empty()
        && let Some(card) = categories(&device.bands)
    {
        return card;
    }
    let totals = state.totals;
    let request = request_at(data, state);
    let kind = if device.events.is_empty() { "When it was written".to_owned() } else { format!("At {}", when(data, state)) };
    let has_segments = data.tables.curves.peak(Quantity::Reserved).0 > 0;
    // Blocks that wait for a stream count, because their memory is not free.
    let pending = totals.active.saturating_sub(totals.allocated);
    let pending = if pending > 0 { format!(", {} of it freed and pending", Bytes(pending)) } else { String::new() };
    let of = if has_segments { format!(" of {} reserved", Bytes(totals.reserved)) } else { String::new() };
    let claim = format!("in use{of}{pending}");
    let blockers = next_blockers(data, state, None).filter(|_| request.is_some());
    let waiting = state.blocks.iter().filter(|b| b.state == BlockState::PendingFree).collect();
    let asked = |id| only.is_empty() || roles.is_some_and(|roles| only.contains(&roles.of(id)));
    let (held, shown) = largest_held(data, state, roles, asked);
    let next = match only {
        [] if data.names.is_empty() => "Nothing is selected. Click a role, a size or a block to see more of it.".to_owned(),
        [] => "Nothing is selected. Click a role, a module or a block to see where it was made and how long it lives.".to_owned(),
        _ => String::new(),
    };
    Card {
        kind,
        title: Bytes(totals.active).to_string(),
        claim,
        facts: facts(data, state, roles, request),
        peaks: roles.map(|roles| peaks(data, roles)).unwrap_or_default(),
        reasons: roles.filter(|_| !only.is_empty()).map(|roles| reasons(data, state, roles, asked)).unwrap_or_default(),
        held,
        shown,
        lists: [blockers, largest_blocks(data, "Freed, waiting for a stream", waiting)].into_iter().flatten().collect(),
        next,
        ..Card::default()
    }
}

fn facts(data: &DeviceData, state: &State, roles: Option<&Roles>, request: Option<u64>) -> Vec<Fact> {
    let (device, totals) = (data.device(), state.totals);
    let mut facts = Vec::new();
    if let Some(request) = request {
        facts.push(Fact::new("request", Bytes(request)).tone(Tone::Red).lead(Lead::Item(Item::Event(state.event))));
        if let Some(free) = device.events.device_free_known(state.event) {
            facts.push(Fact::new("device free", Bytes(free)));
        }
    }
    if state.event != NO_EVENT && !device.events.is_empty() {
        let event = count(u64::from(state.event));
        let event = data.since_start(state.event).map_or(event.clone(), |time| format!("{event} at {time}"));
        facts.push(Fact::new("event", event).lead(Lead::Item(Item::Event(state.event))));
        let doing = roles.map(|roles| roles.anatomy.words_at(state.event)).unwrap_or_default();
        if !doing.is_empty() {
            let doing = doing.strip_prefix("in the ").or(doing.strip_prefix("in ")).unwrap_or(&doing);
            facts.push(Fact::new("phase", doing));
        }
    }
    if device.can_show.requested.is_known() {
        facts.push(Fact::new("requested", Bytes(totals.requested)));
        facts.push(Fact::new("rounding", Bytes(totals.active.saturating_sub(totals.requested))));
    } else {
        facts.push(Fact::missing("requested", data.device().can_show.requested.why_not()));
    }
    if !data.tables.curves.has_all_segments() {
        // Only the total is known, so free memory cannot be placed.
        facts.push(Fact::new("free inside", Bytes(totals.reserved.saturating_sub(totals.active))));
        facts.push(Fact::missing("segments", "A trace does not name those from before profiling."));
    } else if data.tables.curves.peak(Quantity::Reserved).0 > 0 || device.has_final_state {
        let (holes, free, largest) = state.hole_figures();
        facts.push(Fact::new("free inside", format!("{} in {}", Bytes(free), counted(holes, "hole", "holes"))));
        facts.push(Fact::new("largest hole", Bytes(largest)));
        facts.push(Fact::new("segments", count(state.segments.len() as u64)));
    } else {
        facts.push(Fact::missing("reserved", why_no_segments(data.device())));
    }
    let (live, pending) = state.live_and_pending();
    facts.push(Fact::new("live blocks", count(live)));
    if pending > 0 {
        let bytes = totals.active.saturating_sub(totals.allocated);
        facts.push(Fact::new("pending free", format!("{} in {}", Bytes(bytes), counted(pending, "block", "blocks"))));
    }
    if device.events.is_empty() {
        facts.push(Fact::missing("events", &Words::of(device).say(records_history(&data.recording))));
    }
    facts
}

/// The peak of each step; with many steps the highest ones, in order of time. Empty with fewer than two steps.
fn peaks(data: &DeviceData, roles: &Roles) -> Vec<Peak> {
    let (steps, curves) = (&roles.anatomy.steps, &data.tables.curves);
    if steps.len() < 2 {
        return Vec::new();
    }
    let of_step = |(i, ends): (usize, &[u32])| {
        let (from, to) = (*ends.first()?, *ends.last()?);
        let (bytes, event) = curves.peak_in(data.device(), &data.tables.lifetimes, Quantity::Active, from, to)?;
        let phase = roles.anatomy.phase_at(event).map_or("", |phase| phase.name());
        Some(Peak { step: i, of: steps.len() as u64, phase, bytes, event })
    };
    let mut peaks: Vec<Peak> = steps.bounds.windows(2).enumerate().filter_map(of_step).collect();
    peaks.sort_by_key(|p| (std::cmp::Reverse(p.bytes), p.step));
    peaks.truncate(STEPS);
    peaks.sort_by_key(|p| p.step);
    peaks
}

/// Most reasons shown. Further ones cover so few bytes that readers do not ask about them.
const REASONS: usize = 4;

/// Why live blocks have their roles, most bytes first.
pub(super) fn reasons(data: &DeviceData, state: &State, roles: &Roles, asked: impl Fn(LifetimeId) -> bool) -> Vec<Why> {
    let live = state.blocks.iter().filter(|b| b.state == BlockState::Active && asked(b.lifetime)).map(|b| b.lifetime);
    let found = roles.reasons(&data.recording, data.device(), &data.tables, live);
    let why = |(reason, of): (Reason, Tally)| {
        // Rephrases the sentence for several blocks.
        let sentence = match reason.sentence.strip_prefix("It ") {
            Some(rest) if of.count > 1 => format!("Each {rest}"),
            _ => reason.sentence,
        };
        Why { bytes: of.block_bytes, count: of.count, is_probable: reason.is_probable, sentence }
    };
    found.into_iter().take(REASONS).map(why).collect()
}

/// The blocks that the program holds, grouped by place, role and size, largest first; and how many of them the groups cover.
pub(super) fn largest_held(
    data: &DeviceData,
    state: &State,
    roles: Option<&Roles>,
    asked: impl Fn(LifetimeId) -> bool,
) -> (Vec<Held>, (u64, u64)) {
    let (device, lifetimes, stacks) = (data.device(), &data.tables.lifetimes, &data.recording.stacks);
    let role_of = |id: LifetimeId| roles.map_or(Role::Unknown, |roles| roles.of(id));
    let is_older = |id: LifetimeId| (id.0 as usize) < lifetimes.initial_count();
    let mut groups: FxHashMap<_, Vec<(u64, LifetimeId)>> = FxHashMap::default();
    let mut all = 0;
    for block in state.blocks.iter().filter(|b| b.state == BlockState::Active) {
        let (id, role) = (block.lifetime, role_of(block.lifetime));
        if !asked(id) {
            continue;
        }
        all += 1;
        let stack = lifetimes.stack(device, id);
        // Several stacks may share a frame and then form one group.
        let frame = made_in(stacks, &data.names, stack, role);
        let stack = if frame.is_some() { None } else { Some(stack) };
        groups.entry((block.size, role, frame, stack, is_older(id))).or_default().push((block.address, id));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((size, role, frame, stack, _), blocks)| {
        (std::cmp::Reverse(*size), std::cmp::Reverse(blocks.len()), *role, *frame, *stack)
    });
    groups.truncate(GROUPS);
    let has_history = !device.events.is_empty();
    let row = |((size, role, frame, _, is_older), mut blocks): (_, Vec<(u64, LifetimeId)>)| {
        blocks.sort_unstable();
        let (address, id) = blocks.first().copied()?;
        let name = block_name(data, roles, id);
        // For a state without stacks the blocks have no names here; the memory column lists their sizes.
        if name.is_none() && !has_history && data.names.is_empty() {
            return None;
        }
        let unnamed = || if is_older && has_history { "older than the history" } else { "no stack" }.to_owned();
        let name = name.unwrap_or_else(unnamed);
        let is_probable = roles.is_some_and(|roles| roles.is_probable(device, &data.tables, id));
        let tip = if data.recording.addresses().is_known() { Address(address).to_string() } else { String::new() };
        Some(Held { item: Item::Lifetime(id), name, frame, role, is_probable, count: blocks.len() as u64, each: size, tip })
    };
    let held: Vec<Held> = groups.into_iter().filter_map(row).collect();
    let shown = held.iter().map(|h| h.count).sum();
    (held, (shown, all))
}

/// The card of the peak of a memory timeline that has only sums by category.
fn categories(bands: &CategoryBands) -> Option<Card> {
    let (at, most) = bands.peak()?;
    let mut parts: Vec<(usize, u64)> = bands.bytes.get(at)?.iter().copied().enumerate().filter(|p| p.1 > 0).collect();
    parts.sort_by_key(|&(i, bytes)| (std::cmp::Reverse(bytes), i));
    let label = |i: usize| CATEGORIES.get(i).copied().unwrap_or_default();
    Some(Card {
        kind: "At the peak".to_owned(),
        title: Bytes(most).to_string(),
        claim: "of tensors".to_owned(),
        facts: parts.iter().map(|&(i, bytes)| Fact::new(category_label(label(i)), Bytes(bytes))).collect(),
        next: "The timeline has no allocations to select. Exported as .raw.json.gz it has them.".to_owned(),
        ..Card::default()
    })
}

fn category_label(name: &'static str) -> &'static str {
    match name {
        "optimizer_state" => "optimizer state",
        "autograd_detail" => "autograd detail",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;
    use vramscope_core::model::Progress;

    #[test]
    fn what_waits_for_a_stream_is_listed_apart_from_what_is_live() {
        let data = samples::device("fragment_oom.pickle");
        // Three blocks of 400 MiB are held; a fourth was freed and is pending.
        let state = data.tables.states.at(data.device(), &data.tables.lifetimes, 8);
        let told = card(&data, &state, None, &[]);
        let list = |title: &str| told.lists.iter().find(|l| l.title == title).unwrap();
        let held: Vec<_> = told.held.iter().map(|h| (h.count, h.each, h.name.as_str())).collect();
        assert_eq!((held, told.shown), (vec![(3, 400 << 20, "no stack")], (3, 3)));
        let pending = list("Freed, waiting for a stream");
        assert_eq!((pending.trailing.as_str(), pending.lines[0].note.as_str()), ("1 of 1", "pending"));
        let live = told.facts.iter().find(|f| f.label == "live blocks").unwrap();
        assert_eq!(live.value, "3");
    }
    #[test]
    fn blocks_of_one_place_role_and_size_are_one_row() {
        let data = samples::device("gpt_train.pickle");
        let (device, tables) = (data.device(), &data.tables);
        let roles =
            Roles::build(&data.recording, device, tables, &vramscope_core::anatomy::roles::Rules::default(), &Progress::new())
                .unwrap();
        let state = tables.states.at(device, &tables.lifetimes, tables.curves.peak_event());
        let told = card(&data, &state, Some(&roles), &[]);
        assert_eq!(told.kind, "At the peak");
        assert!(told.held.iter().all(|h| !h.name.contains("0x")), "no address for a name");
        assert!(told.held.is_sorted_by_key(|h| std::cmp::Reverse(h.each)));
        let mut seen = std::collections::HashSet::new();
        assert!(told.held.iter().all(|h| seen.insert((&h.name, h.role, h.each))), "each once");
        let (live, _) = state.live_and_pending();
        assert_eq!(told.shown, (told.held.iter().map(|h| h.count).sum(), live));
        assert!(told.held.iter().any(|h| h.count > 1), "layers");
        // The peaks of steps agree with the curve, and the highest one is the recording's peak.
        assert_eq!(told.peaks.iter().map(|p| p.bytes).max(), Some(tables.curves.peak(Quantity::Active).0));
        let activations = card(&data, &state, Some(&roles), &[Role::Activations]);
        assert!(!activations.held.is_empty() && activations.held.iter().all(|h| h.role == Role::Activations));
    }
}
