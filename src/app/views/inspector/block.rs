//! The card of one allocation.

use super::card::{
    Around, Card, Fact, Lead, Line, List, NO_TIMES, Tone, annotation_around, between, in_segment, moment, pool_text, request_at,
    stack_name,
};
use crate::app::data::device::DeviceData;
use crate::app::state::Item;
use vramscope_core::anatomy::modules::{module_of, phase};
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::fragmentation::{Servers, blockers};
use vramscope_core::model::{Action, BlockState, NoteKind, StackId};
use vramscope_core::tables::{Lifetime, LifetimeId, NO_EVENT, NO_STACK, State};
use vramscope_core::units::{Address, Bytes, count, counted};

/// Most lines in a list.
pub const LINES: usize = 8;

/// The card of an allocation at an instant. O(allocations), because it counts those with the same stack.
pub fn card(data: &DeviceData, state: &State, id: LifetimeId) -> Option<Card> {
    let device = data.device();
    let l = data.tables.lifetimes.get(device, id)?;
    let at = state.block_at(l.address).filter(|&i| state.blocks[i].lifetime == id);
    let around = at.and_then(|i| around(data, state, i));
    let stranded = around.as_ref().map_or(0, |a| a.before + a.after);
    let claim =
        if stranded > 0 { format!("wastes {} of free memory beside it", Bytes(stranded)) } else { stack_name(data, l.stack) };
    let mut card = Card {
        kind: "Block".to_owned(),
        subject: data.recording.addresses().is_known().then(|| Address(l.address).to_string()),
        title: Bytes(l.block).to_string(),
        claim,
        around,
        facts: sizes(data, &l),
        stacks: vec![("allocated", l.stack)],
        ..Card::default()
    };
    card.facts.extend(place(data, state, &l, at));
    card.facts.extend(life(data, state, &l, at.is_some()));
    if l.free_stack.is_some() {
        card.stacks.push(("freed", l.free_stack));
    }
    // Allocations without a stack have nothing in common.
    if l.stack.is_some() {
        card.same = same_stack(data, state, l.stack);
    }
    card.lists.extend(next_blockers(data, state, Some(id)));
    Some(card)
}

fn sizes(data: &DeviceData, l: &Lifetime) -> Vec<Fact> {
    let mut facts = vec![Fact::new("requested", Bytes(l.requested))];
    if !data.device().can_show.requested.is_known() {
        return vec![Fact::missing("requested", data.device().can_show.requested.why_not()), Fact::new("block", Bytes(l.block))];
    }
    facts.push(Fact::new("block", Bytes(l.block)));
    let lost = l.block.saturating_sub(l.requested);
    let exact = if data.tables.lifetimes.blocks_exact { "" } else { ", by the allocator's rules" };
    facts.push(Fact::new("rounding", format!("{}{exact}", Bytes(lost))));
    facts
}

/// Adds the role of the allocation and the reason for it, below its sizes.
pub fn say_role(data: &DeviceData, roles: &Roles, id: LifetimeId, card: &mut Card) {
    let why = roles.why(&data.recording, data.device(), &data.tables, id);
    let mut fact = Fact::new("role", why.role.words(why.is_probable));
    fact.hint = Some(why.sentence);
    if why.role == Role::Unknown {
        fact = fact.tone(Tone::Quiet);
    }
    // Without a stack, the role names the block.
    if why.role != Role::Unknown && card.claim == NO_STACK {
        card.claim = why.role.words(why.is_probable);
    }
    let at = card.facts.iter().position(|f| f.label == "segment" || f.label == "pool").unwrap_or(card.facts.len());
    card.facts.insert(at, fact);
}

fn place(data: &DeviceData, state: &State, l: &Lifetime, at: Option<usize>) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let (Some(_), Some(index)) = (at, state.segment_at(l.address)) {
        facts.push(in_segment(state, index, l.address));
    }
    facts.push(Fact::new("pool", pool_text(data, l.pool, l.class, l.stream)));
    if !data.recording.addresses().is_known() {
        facts.push(Fact::missing("address", data.recording.addresses().why_not()));
        return facts;
    }
    let earlier = data.tables.lifetimes.generation(data.device(), l.id);
    let tenant = if earlier == 0 {
        "first at this address".to_owned()
    } else {
        format!("{} at this address", ordinal(u64::from(earlier) + 1))
    };
    facts.push(Fact::new("generation", tenant));
    facts
}

fn life(data: &DeviceData, state: &State, l: &Lifetime, is_held: bool) -> Vec<Fact> {
    let device = data.device();
    let mut facts = Vec::new();
    let last = device.events.len().saturating_sub(1) as u32;
    if l.born == NO_EVENT {
        facts.push(Fact::new("allocated", "before the first event").tone(Tone::Quiet));
    } else {
        facts.push(Fact::new("allocated", moment(data, l.born)).lead(Lead::Event(l.born)));
        facts.extend(step_and_annotation(data, l.born));
        facts.extend(program(data, l.born));
    }
    let at_oom = request_at(data, state).is_some();
    if l.free_requested == NO_EVENT && l.gone == NO_EVENT {
        let end = if at_oom { "not before the OOM" } else { "not before the recording ends" };
        facts.push(Fact::new("freed", end));
    } else {
        let event = if l.free_requested == NO_EVENT { l.gone } else { l.free_requested };
        let text = moment(data, event);
        let when = if at_oom && event > state.event { format!("not before the OOM; {text}") } else { text };
        let is_told_twice = l.gone != event;
        facts.push(Fact::new(if is_told_twice { "free request" } else { "freed" }, when).lead(Lead::Event(event)));
        facts.extend(step_and_annotation(data, event));
        if l.gone == NO_EVENT {
            facts.push(Fact::new("completed", "not before the recording ends"));
        } else if is_told_twice {
            facts.push(Fact::new("completed", moment(data, l.gone)).lead(Lead::Event(l.gone)));
        }
        // When a free completes at once it is the next event. A longer distance means that it waited for another stream.
        if l.gone != NO_EVENT && l.gone > event + 1 {
            facts.push(Fact::new("pending", between(data, event, l.gone)));
        }
    }
    let start = if l.born == NO_EVENT { 0 } else { l.born };
    if is_held && state.event != NO_EVENT {
        facts.push(Fact::new("age", between(data, start, state.event)));
        if data.tables.lifetimes.is_requested_free_at(l.id, state.event) {
            facts.push(Fact::new("now", "pending: its free was requested and has not completed"));
        }
    } else {
        let now = if l.born != NO_EVENT && (state.event == NO_EVENT || state.event < l.born) {
            "not yet allocated at the cursor"
        } else {
            "gone at the cursor"
        };
        let lived = between(data, start, l.gone.min(last));
        let to = if l.gone == NO_EVENT {
            " to the recording's end"
        } else if l.free_requested != NO_EVENT && l.free_requested != l.gone {
            " to the completed free"
        } else {
            ""
        };
        facts.push(Fact::new("lived", format!("{lived}{to}")));
        facts.push(Fact::new("now", now).tone(Tone::Quiet));
    }
    if !device.events.has_time && !device.events.is_empty() {
        facts.push(Fact::missing("times", NO_TIMES));
    }
    facts
}

/// The training step and the annotation of an event, where known.
fn step_and_annotation(data: &DeviceData, event: u32) -> Vec<Fact> {
    let step = data.steps().words_at(event).map(|words| Fact::new("in step", words));
    let during = annotation_around(data, event).map(|(i, a)| {
        let name = data.recording.stacks.text(a.name).to_owned();
        Fact::new("during", name).lead(Lead::Item(Item::Annotation(i as u32)))
    });
    step.into_iter().chain(during).collect()
}

/// What a profiler trace says about the program at an allocation: operator, shapes, module, phase. Roles are shown elsewhere with
/// their reasons.
fn program(data: &DeviceData, born: u32) -> Vec<Fact> {
    let (device, stacks) = (data.device(), &data.recording.stacks);
    let notes = device.events.notes_of(born);
    let noted = |kind| notes.iter().find(|n| n.kind == kind).map(|n| stacks.text(n.text).to_owned());
    let stack = device.events.stack.get(born as usize).copied().unwrap_or(StackId::NONE);
    let phase = || noted(NoteKind::Phase).or_else(|| phase(stacks, stack).map(|p| p.name().to_owned()));
    [
        ("operator", noted(NoteKind::Operator)),
        ("shapes", noted(NoteKind::Shapes)),
        ("module", module_of(stacks, device, born)),
        ("phase", phase()),
    ]
    .into_iter()
    .filter_map(|(label, value)| Some(Fact::new(label, value?)))
    .collect()
}

/// `2nd`, `3rd`, `11th`.
fn ordinal(n: u64) -> String {
    let end = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{}{end}", count(n))
}

/// The holes and live blocks beside a live block.
fn around(data: &DeviceData, state: &State, at: usize) -> Option<Around> {
    let block = &state.blocks[at];
    let segment = &state.segments[state.segment_at(block.address)?];
    let blocks = state.blocks_of(segment);
    let i = at.checked_sub(segment.blocks.start as usize)?;
    let hole = |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| b.state == BlockState::Inactive).map_or(0, |b| b.size);
    let live = |i: Option<usize>| i.and_then(|i| blocks.get(i)).filter(|b| b.lifetime.is_some()).map(|b| b.lifetime);
    let before = hole(i.checked_sub(1));
    let after = hole(Some(i + 1));
    let left = live(i.checked_sub(1)).or_else(|| live(i.checked_sub(2)));
    let right = live(Some(i + 1)).or_else(|| live(Some(i + 2)));
    Some(Around {
        lifetime: block.lifetime,
        before,
        block: block.size,
        after,
        neighbours: [left, right],
        request: request_at(data, state),
    })
}

/// What all allocations with one stack hold now and held over the run. All figures are whole blocks.
pub fn same_stack(data: &DeviceData, state: &State, stack: StackId) -> Vec<Fact> {
    let device = data.device();
    let lifetimes = &data.tables.lifetimes;
    let is_same = |id: LifetimeId| lifetimes.stack(device, id) == stack;
    let (mut live, mut of, mut bytes) = (0u64, 0u64, 0u64);
    let (mut pending, mut pending_bytes) = (0u64, 0u64);
    for block in state.blocks.iter().filter(|b| b.lifetime.is_some()) {
        // The program freed these blocks, so they are not live, although the memory cannot be reused yet.
        if block.state == BlockState::PendingFree {
            if is_same(block.lifetime) {
                pending += 1;
                pending_bytes += block.size;
            }
            continue;
        }
        of += 1;
        if is_same(block.lifetime) {
            live += 1;
            bytes += block.size;
        }
    }
    let (mut all, mut total) = (0u64, 0u64);
    for i in 0..lifetimes.len() as u32 {
        if is_same(LifetimeId(i)) {
            all += 1;
            total += lifetimes.block_size(LifetimeId(i));
        }
    }
    let mut facts = vec![
        Fact::new("live", format!("{} of {}, {}", count(live), counted(of, "live block", "live blocks"), Bytes(bytes))),
        Fact::new("over the run", format!("{}, {}", counted(all, "block", "blocks"), Bytes(total))),
    ];
    if pending > 0 {
        let text = format!("{}, {}", counted(pending, "block", "blocks"), Bytes(pending_bytes));
        facts.insert(1, Fact::new("pending free", text));
    }
    let served = Servers::of_oom(data.device(), state.event);
    let beside = blockers(state, served.as_ref().map(|(s, _)| s));
    let mine: Vec<_> = beside.iter().filter(|b| is_same(state.blocks[b.block].lifetime)).collect();
    if !mine.is_empty() {
        facts.push(Fact::new("beside a hole", counted(mine.len() as u64, "block", "blocks")));
    }
    if let Some((_, request)) = served {
        let enough = mine.iter().filter(|b| b.hole_if_freed() >= request).count();
        if enough > 0 {
            facts.push(Fact::new("freeing one", format!("enough: any of {}", count(enough as u64))));
        }
    }
    facts
}

/// The live blocks that strand the most free memory.
pub fn next_blockers(data: &DeviceData, state: &State, but: Option<LifetimeId>) -> Option<List> {
    let served = Servers::of_oom(data.device(), state.event);
    let all = blockers(state, served.as_ref().map(|(s, _)| s));
    let others: Vec<_> = all.iter().filter(|b| Some(state.blocks[b.block].lifetime) != but).collect();
    if others.is_empty() {
        return None;
    }
    let lines: Vec<Line> = others
        .iter()
        .take(LINES)
        .map(|b| Line {
            item: Item::Lifetime(state.blocks[b.block].lifetime),
            name: Address(state.blocks[b.block].address).to_string(),
            tip: String::new(),
            note: Bytes(b.size).to_string(),
            bytes: b.strands(),
        })
        .collect();
    Some(List {
        title: if but.is_some() { "Next blockers" } else { "Blockers" }.to_owned(),
        trailing: format!("waste beside it · {} of {}", lines.len(), count(others.len() as u64)),
        lines,
    })
}

/// The action of an event as text: `alloc`, `free requested`.
pub fn action_text(action: Action) -> String {
    action.name().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;

    #[test]
    fn same_stack_tells_whole_blocks_now_and_over_the_run() {
        let data = samples::device("gpt_train.pickle");
        let (device, lifetimes) = (data.device(), &data.tables.lifetimes);
        let all: Vec<LifetimeId> = (0..lifetimes.len() as u32).map(LifetimeId).collect();
        let rounded = all.iter().find(|&&id| lifetimes.requested(device, id) < lifetimes.block_size(id)).unwrap();
        let stack = lifetimes.stack(device, *rounded);
        let blocks: u64 =
            all.iter().filter(|&&id| lifetimes.stack(device, id) == stack).map(|&id| lifetimes.block_size(id)).sum();
        let facts = same_stack(&data, &data.tables.states.at(device, lifetimes, 2_000), stack);
        let run = facts.iter().find(|f| f.label == "over the run").unwrap();
        assert!(run.value.ends_with(&Bytes(blocks).to_string()), "{} for {blocks}", run.value);
    }

    #[test]
    fn a_free_is_told_in_its_two_halves_and_what_is_pending_is_not_live() {
        let data = samples::device("fragment_oom.pickle");
        let lifetimes = &data.tables.lifetimes;
        // The fourth block of 400 MiB: allocated at event 7, free requested at 8 and completed at 9.
        let id = lifetimes.of_event(8);
        assert_eq!((lifetimes.born(id), lifetimes.free_requested(id), lifetimes.gone(id)), (7, 8, 9));
        let at = |event| data.tables.states.at(data.device(), lifetimes, event);
        let state = at(8);
        let told = card(&data, &state, id).unwrap();
        // Figures and units are joined by a no-break space.
        let plain = |f: &Fact| f.value.replace('\u{a0}', " ");
        let fact = |facts: &[Fact], label: &str| facts.iter().find(|f| f.label == label).map(plain);
        let ends_with = |label: &str, end: &str| fact(&told.facts, label).is_some_and(|v| v.ends_with(end));
        assert!(ends_with("allocated", "event 7") && ends_with("free request", "event 8") && ends_with("completed", "event 9"));
        assert!(fact(&told.facts, "now").is_some_and(|now| now.starts_with("pending")), "{:?}", told.facts);
        // A block that the program freed counts as pending and not as allocated.
        let same = same_stack(&data, &state, lifetimes.stack(data.device(), id));
        assert_eq!(fact(&same, "live").as_deref(), Some("3 of 3 live blocks, 1.17 GiB"));
        assert_eq!(fact(&same, "pending free").as_deref(), Some("1 block, 400 MiB"));
        assert!(told.same.is_empty(), "no stacks were recorded here, so none is the same");
        assert_eq!(state.totals.allocated, 1200 << 20);
        let later = card(&data, &at(20), id).unwrap();
        assert!(fact(&later.facts, "lived").is_some_and(|v| v.contains("2 events to the completed free")), "{:?}", later.facts);
    }

    #[test]
    fn birth_and_free_tell_their_steps() {
        let data = samples::device("gpt_train.pickle");
        let (lifetimes, steps) = (&data.tables.lifetimes, data.steps());
        let ends = |id| (lifetimes.born(id), lifetimes.free_requested(id));
        let is_told = |id: &LifetimeId| {
            let (born, freed) = ends(*id);
            born != NO_EVENT && freed != NO_EVENT && steps.of(born).is_some() && steps.words_at(born) != steps.words_at(freed)
        };
        let id = (0..lifetimes.len() as u32).map(LifetimeId).find(is_told).unwrap();
        let (born, freed) = ends(id);
        let told = card(&data, &data.tables.states.at(data.device(), lifetimes, born), id).unwrap();
        let said: Vec<&str> = told.facts.iter().filter(|f| f.label == "in step").map(|f| f.value.as_str()).collect();
        let step = |event| steps.words_at(event).unwrap();
        assert_eq!(said, [step(born), step(freed)]);
    }
}
