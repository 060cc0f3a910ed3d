//! Failed requests.

use crate::anatomy::Composition;
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::diagnose::oom::{Autopsy, Failure, Helped, Support, Verdict, advice, best_advice, free_at, what_to_make_smaller};
use crate::diagnose::source_limits::allocator_name;
use crate::model::{Action, DeviceId, DeviceRecording, Format, StackId};
use crate::tables::Quantity;
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Most further kinds of failures that get their own finding; others are only counted.
const OTHER_KINDS: usize = 2;

/// Where a failure came from. Without stacks, requests of one size count as one place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    Stack(StackId),
    Size(u64),
}

impl Site {
    fn of(stack: StackId, requested: u64) -> Self {
        if stack.is_some() { Site::Stack(stack) } else { Site::Size(requested) }
    }
}

/// Reports every failed request; failures of one kind from one place share a finding. The last failure comes first, because it
/// ended the program; it survived the earlier ones.
pub(super) fn out_of_memory(p: &RuleInput<'_>) -> Vec<Finding> {
    let mut kinds: Vec<(Verdict, Site, Vec<&Autopsy>)> = Vec::new();
    for a in p.ooms.iter().rev() {
        let site = Site::of(a.stack, a.requested);
        match kinds.iter_mut().find(|k| k.0 == a.verdict && k.1 == site) {
            Some(kind) => kind.2.push(a),
            None => kinds.push((a.verdict, site, vec![a])),
        }
    }
    let all = All { ooms: p.device.events.ooms(), last_alloc: p.device.events.action.iter().rposition(|&a| a == Action::Alloc) };
    let mut found: Vec<Finding> = kinds.iter().take(1 + OTHER_KINDS).filter_map(|kind| failure(&kind.2, &all)).collect();
    // For a full device, advise on what takes most of it instead of on blocks that are in the way.
    if let (Some(last), Some(a)) = (found.first_mut(), p.ooms.last().filter(|a| !a.holders().is_empty())) {
        let held = Composition::at(p.recording, p.device, p.tables, p.names, &p.roles, a.event, |_| true);
        let smaller = what_to_make_smaller(a, &held, &p.recording.stacks);
        last.sentence += &smaller.first().map_or(String::new(), |most| format!(" {}", most.sentence));
    }
    let evaluates = p.ooms.last().and_then(|autopsy| {
        Failure { recording: p.recording, device: p.device, tables: p.tables, roles: &p.roles, autopsy }.without_backward()
    });
    if let (Some(last), Some(advice)) = (found.first_mut(), evaluates) {
        last.sentence += &format!(" {}", advice.sentence);
        last.remedy = advice.setting;
        last.advice = format!("{IF_NONE_FOLLOWS}{}", last.advice);
    }
    if let Some(last) = found.first_mut() {
        last.sentence += &others_hold_less(p).unwrap_or_default();
    }
    let more = kinds.len().saturating_sub(1 + OTHER_KINDS);
    if let Some(last) = found.first_mut().filter(|_| more > 0) {
        let failed: usize = kinds[1 + OTHER_KINDS..].iter().map(|k| k.2.len()).sum();
        last.sentence += &format!(
            " {} of {} {} not listed here; the autopsy shows each.",
            counted(failed as u64, "earlier failure", "earlier failures"),
            counted(more as u64, "other size or place", "other sizes or places"),
            if failed == 1 { "is" } else { "are" },
        );
    }
    found.extend(unexamined(p));
    found
}

/// A sentence about what the recording's other devices reserve, if this one has at least twice as much as each: `DataParallel`
/// with uneven inputs, or a model that is divided unevenly.
fn others_hold_less(p: &RuleInput<'_>) -> Option<String> {
    /// Fewer bytes are about as much as a context.
    const LEAST: u64 = 256 * MEBIBYTE;
    let own = p.tables.curves.peak(Quantity::Reserved).0;
    let others = p.recording.devices.iter().filter(|d| d.id != p.device.id);
    let reserved = |d: &DeviceRecording| d.segments.iter().map(|s| s.size).sum::<u64>();
    let mut used: Vec<(u64, DeviceId)> = others.map(|d| (reserved(d), d.id)).filter(|(bytes, _)| *bytes >= LEAST).collect();
    used.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let (most, _) = *used.first()?;
    let list: Vec<String> = used.iter().map(|(bytes, id)| format!("{id} {}", Bytes(*bytes))).collect();
    (own >= most.saturating_mul(2)).then(|| {
        format!(
            " {} reserves {}, and the other devices of this program reserve less: {}. If they share the work (DataParallel, a device map), \
             divide it more evenly.",
            p.device.id,
            Bytes(own),
            list.join(", ")
        )
    })
}

/// Failures without figures of the device are listed but not judged. Grouped by place, as above.
fn unexamined(p: &RuleInput<'_>) -> Vec<Finding> {
    let events = &p.device.events;
    let mut places: Vec<(StackId, Vec<u32>)> = Vec::new();
    for event in events.ooms().into_iter().rev().filter(|&e| free_at(p.device, e).is_none()) {
        let stack = events.stack[event as usize];
        match places.iter_mut().find(|(known, _)| *known == stack) {
            Some((_, failed)) => failed.push(event),
            None => places.push((stack, vec![event])),
        }
    }
    let finding = |(stack, failed): (StackId, Vec<u32>)| {
        let event = failed[0];
        let requested = events.size[event as usize];
        let live = p.tables.curves.at(p.device, &p.tables.lifetimes, Quantity::Allocated, event);
        let who = allocator_name(p.recording);
        let more = match failed.len() as u64 - 1 {
            0 => String::new(),
            n => {
                let place = if stack.is_some() { " from there" } else { "" };
                format!(" {}{place} failed before it.", counted(n, "more request", "more requests"))
            }
        };
        let sentence = format!(
            "{who} could not give {} while {} were live. What was free on the device is not in this file, so it cannot say why.{more}",
            Bytes(requested),
            Bytes(live)
        );
        let advice = match p.recording.source.format {
            Format::RmmLog => {
                "See what was live at that instant in Allocations; a larger pool (maximum_pool_size) helps only if the device has room."
            }
            _ => "See what was live at that instant in Allocations; a memory snapshot of the same run tells why it failed.",
        };
        Finding::new("out_of_memory", Class::OutOfMemory, "Out of memory", requested)
            .says(sentence)
            .red("request", requested)
            .bytes_of("live then", live)
            .shows("free on the device", "not in this file".to_owned())
            .at(Place { event: Some(event), stack: stack.is_some().then_some(stack), ..Place::default() })
            .advice(advice)
            .check("Run to the same step: no out-of-memory event is recorded.")
    };
    places.into_iter().filter_map(finding).collect()
}

/// All failures of a device, and its last allocation.
struct All {
    ooms: Vec<u32>,
    last_alloc: Option<usize>,
}

impl All {
    /// Number of failures before the last one that the program survived.
    fn survived_before(&self) -> usize {
        let before = &self.ooms[..self.ooms.len().saturating_sub(1)];
        before.partition_point(|&e| self.last_alloc.is_some_and(|last| (e as usize) < last))
    }
}

/// The finding for failures of one kind, latest first.
fn failure(failures: &[&Autopsy], all: &All) -> Option<Finding> {
    let a = failures[0];
    let title = match a.verdict {
        Verdict::Fragmentation if a.is_full_in_pieces() && a.is_under_cap() => "Out of memory: the process's own cap is used up",
        Verdict::Fragmentation if a.is_full_in_pieces() => "Out of memory: the device is nearly full",
        Verdict::Fragmentation => "Out of memory: no hole fits",
        Verdict::Cap => "Out of memory: the process's own cap",
        Verdict::Capacity => "Out of memory: the device is full",
        Verdict::Contention => "Out of memory: others hold the device",
        Verdict::NonPytorch => "Out of memory: memory outside PyTorch",
        Verdict::TooLarge if a.capacity.is_some() => "Out of memory: too large for this device",
        Verdict::TooLarge => "Out of memory: more than this process could get",
        Verdict::Unknown => "Out of memory",
    };
    let bytes = if a.verdict == Verdict::Fragmentation && !a.is_full_in_pieces() { a.holes.bytes } else { a.requested };
    // Who reads "out of memory" looks for the end of the program. Later allocations may also be those of its error handler.
    let title = if a.survived { title.replace("Out of memory", "Out of memory, not at the end") } else { title.to_owned() };
    let mut finding = Finding::new("out_of_memory", Class::OutOfMemory, &title, bytes)
        .says(format!("{}{}", a.sentence, which(failures, all)))
        .red("request", a.requested);
    finding = match (a.holes.count, a.all_holes.count) {
        (0, 0) => finding.shows("holes", "none".to_owned()),
        // All holes are in other pools and cannot serve the request; the figure says so.
        (0, others) => {
            let elsewhere = format!("{} in {}", Bytes(a.all_holes.bytes), counted(others, "hole", "holes"));
            finding.shows("holes that could serve it", format!("none ({elsewhere} elsewhere)"))
        }
        (n, _) => finding.bytes_of(&format!("largest of {}", counted(n, "hole", "holes")), a.holes.largest),
    };
    finding = finding.bytes_of("reserved", a.reserved);
    let free = a.device_free_known().map_or("unknown".to_owned(), |free| Bytes(free).to_string());
    finding = finding.shows("free on the device", free);
    if let Some(cap) = a.limit {
        finding = finding.shows("cap of this process", cap.to_string());
    }
    if let Some(plan) = a.room_plan.as_ref().filter(|_| !a.is_simply_full()) {
        let text = format!("{} in {}", Bytes(plan.bytes), counted(plan.blocks.len() as u64, "block", "blocks"));
        finding = finding.shows(if plan.is_optimal { "smallest set to free" } else { "enough, if freed" }, text);
    }
    if a.alone.count > 0 && !a.is_simply_full() && a.room_plan.as_ref().is_none_or(|plan| plan.blocks.len() > 1) {
        finding = finding.shows("freeing one block", a.alone.to_string());
    }
    if failures.len() > 1 {
        finding = finding.shows("failures of this kind", count(failures.len() as u64));
    }
    let place = Place { event: Some(a.event), stack: a.stack.is_some().then_some(a.stack), ..Place::default() };
    let mut finding = finding.at(place).check("Run to the same step: no out-of-memory event is recorded.")?;
    prescribe(&mut finding, a, None);
    Some(finding)
}

/// Which of several failures a finding is about, and what became of the others; begins with a space.
fn which(failures: &[&Autopsy], all: &All) -> String {
    let a = failures[0];
    let event = count(u64::from(a.event));
    if all.ooms.len() < 2 {
        return String::new();
    }
    if all.ooms.last() != Some(&a.event) {
        let before = match failures.len() as u64 {
            1 => String::new(),
            n => format!(", the last of {} of this kind", count(n)),
        };
        let fate = if a.survived { "allocations went on after it" } else { "nothing was allocated after it" };
        return format!(" This is event {event}{before}; {fate}.");
    }
    let fate = if a.survived { "allocations went on after it too" } else { "nothing was allocated after it" };
    let survived = all.survived_before();
    let others = match all.ooms.len() - 1 {
        _ if survived == 0 => String::new(),
        1 => " The one before it was survived: allocations went on.".to_owned(),
        n if n == survived => format!(" The {} before it were survived: allocations went on.", count(n as u64)),
        n => format!(" Of the {} before it {} were survived: allocations went on.", count(n as u64), count(survived as u64)),
    };
    format!(" This is event {event}, the last of {} requests that failed; {fate}.{others}", count(all.ooms.len() as u64))
}

/// Reports refused requests whose calls continued with less. The program has not failed, even if it logs them or counts `num_ooms`.
pub(super) fn refused_trial(p: &RuleInput<'_>) -> Option<Finding> {
    let events = &p.device.events;
    let trials = events.refused_trials();
    let &last = trials.last()?;
    let largest = trials.iter().map(|&event| events.size[event as usize]).max().unwrap_or(0);
    let got = trials.iter().filter_map(|&event| events.got_instead(event)).map(|event| events.size[event as usize]).max();
    let (requests, were, calls) = match trials.len() as u64 {
        1 => (format!("A request of {}", Bytes(largest)), "was", "call that made it"),
        n => (format!("{} requests of up to {}", count(n), Bytes(largest)), "were", "calls that made them"),
    };
    let with = got.map_or("without it".to_owned(), |got| format!("with at most {}", Bytes(got)));
    let sentence = format!(
        "{requests} {were} refused, and the {calls} went on {with}. cuDNN tries several algorithms so, and takes one whose \
         workspace fits.{}",
        if p.ooms.is_empty() { " Nothing failed." } else { "" }
    );
    let stack = events.stack[last as usize];
    let place = Place { event: Some(last), stack: stack.is_some().then_some(stack), ..Place::default() };
    Finding::new("refused_trial", Class::Hygiene, "A larger workspace was tried and refused", largest)
        .says(sentence)
        .bytes_of("largest request", largest)
        .shows("requests", count(trials.len() as u64))
        .at(place)
        .advice("Nothing has to change. Where memory is short cuDNN may take a slower algorithm; a smaller batch leaves it more room, and with torch.backends.cudnn.benchmark = False it tries fewer.")
        .check("With more memory free fewer such requests are refused.")
}

/// Beginning of the advice on a pass that may need no graph.
const IF_NONE_FOLLOWS: &str = "Do this if no backward pass follows that pass. Otherwise: ";

/// Adds a remedy to a failure: a setting that was tried and passes, otherwise what the figures imply.
pub(in crate::diagnose::findings) fn prescribe(finding: &mut Finding, a: &Autopsy, helped: Option<&Helped>) {
    let all = advice(a, helped);
    let best = best_advice(a, &all);
    let advice = match best {
        Some(best) => best.sentence.clone(),
        None => "Hold less at that instant: the largest stacks are listed in the autopsy.".to_owned(),
    };
    // Running the pass without a graph stays the first advice.
    if finding.advice.starts_with(IF_NONE_FOLLOWS) {
        finding.advice = format!("{IF_NONE_FOLLOWS}{advice}");
    } else {
        finding.remedy = best.and_then(|x| x.setting.clone());
        finding.advice = advice;
    }
    // If no setting helps, the finding says so next to what does help.
    let none_helps = all.iter().find(|x| x.setting.is_none() && x.support == Support::Simulation);
    if let Some(none) = none_helps.filter(|none| best.is_some_and(|b| b != *none && b.setting.is_none())) {
        finding.advice = format!("{} {}", finding.advice, none.sentence);
    }
    if helped.is_none() && a.verdict == Verdict::Fragmentation && !a.is_full_in_pieces() {
        finding.advice = format!("What-if tries other settings on these very requests. {}", finding.advice);
    }
}
