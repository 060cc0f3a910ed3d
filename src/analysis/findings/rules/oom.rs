//! A request failed.

use crate::analysis::Quantity;
use crate::analysis::findings::{Class, Finding, Patient, Place};
use crate::analysis::oom::{Autopsy, Helped, Support, Verdict, advice, best_advice, free_at};
use crate::analysis::told::allocator_name;
use crate::model::{Format, StackId};
use crate::units::{Bytes, count, counted};

/// Every failed request; failures of one kind from one place are one finding.
pub(super) fn out_of_memory(p: &Patient<'_>) -> Vec<Finding> {
    let mut kinds: Vec<(Verdict, StackId, Vec<&Autopsy>)> = Vec::new();
    for a in &p.ooms {
        match kinds.iter_mut().find(|k| k.0 == a.verdict && k.1 == a.stack) {
            Some(kind) => kind.2.push(a),
            None => kinds.push((a.verdict, a.stack, vec![a])),
        }
    }
    kinds.into_iter().map(|(_, _, failures)| failure(&failures)).chain(unexamined(p)).collect()
}

/// Failures of which the source tells the request and nothing of the device: they are said, and not judged. By place, as above.
fn unexamined(p: &Patient<'_>) -> Vec<Finding> {
    let events = &p.device.events;
    let mut places: Vec<(StackId, Vec<u32>)> = Vec::new();
    for event in events.ooms().into_iter().filter(|&e| free_at(p.device, e).is_none()) {
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
            n => format!(" {} from there failed after it.", counted(n, "more request", "more requests")),
        };
        let sentence = format!(
            "{who} could not give {} while {} were live. What was free on the device is not in this file, so it can not say why.{more}",
            Bytes(requested),
            Bytes(live)
        );
        let advice = match p.recording.source.format {
            Format::RmmLog => {
                "See what was live at that instant in Allocations; a larger pool (maximum_pool_size) helps only if the device has room."
            }
            _ => "See what was live at that instant in Allocations; a memory snapshot of the same run tells why it failed.",
        };
        let mut finding = Finding::new("out_of_memory", Class::OutOfMemory, "Out of memory", requested)
            .says(sentence)
            .red("request", requested)
            .bytes_of("live then", live)
            .shows("free on the device", "not in this file".to_owned())
            .at(Place { event: Some(event), stack: stack.is_some().then_some(stack), ..Place::default() })
            .check("Run to the same step: no out-of-memory event is recorded.");
        finding.advice = advice.to_owned();
        finding
    };
    places.into_iter().map(finding).collect()
}

fn failure(failures: &[&Autopsy]) -> Finding {
    let a = failures[0];
    let title = match a.verdict {
        Verdict::Fragmentation => "Out of memory: no hole fits",
        Verdict::Cap => "Out of memory: the process's own cap",
        Verdict::Capacity => "Out of memory: the device is full",
        Verdict::Contention => "Out of memory: others hold the device",
        Verdict::NonPytorch => "Out of memory: memory outside PyTorch",
        Verdict::TooLarge if a.capacity.is_some() => "Out of memory: too large for this device",
        Verdict::TooLarge => "Out of memory: more than this process could get",
        Verdict::Unknown => "Out of memory",
    };
    let bytes = if a.verdict == Verdict::Fragmentation { a.holes.bytes } else { a.requested };
    let mut finding = Finding::new("out_of_memory", Class::OutOfMemory, title, bytes)
        .says(match failures.len() {
            1 => a.sentence.clone(),
            n => format!("{} {} more of this kind failed after it.", a.sentence, counted(n as u64 - 1, "request", "requests")),
        })
        .red("request", a.requested)
        .bytes_of(&format!("largest of {}", counted(a.holes.count, "hole", "holes")), a.holes.largest)
        .bytes_of("reserved", a.reserved);
    let free = a.device_free_told().map_or("unknown".to_owned(), |free| Bytes(free).to_string());
    finding = finding.shows("free on the device", free);
    if let Some(cap) = a.limit {
        finding = finding.shows("cap of this process", cap.to_string());
    }
    if let Some(way) = &a.way_out {
        let text = format!("{} in {}", Bytes(way.bytes), counted(way.blocks.len() as u64, "block", "blocks"));
        finding = finding.shows("cheapest way out", text);
    }
    if a.alone_sentence().is_some() {
        finding = finding.shows("enough alone, if freed", a.alone.to_string());
    }
    if failures.len() > 1 {
        finding = finding.shows("failures of this kind", count(failures.len() as u64));
    }
    let place = Place { event: Some(a.event), stack: a.stack.is_some().then_some(a.stack), ..Place::default() };
    let mut finding = finding.at(place).check("Run to the same step: no out-of-memory event is recorded.");
    prescribe(&mut finding, a, None);
    finding
}

/// Gives a failure its remedy: a setting that was tried and passes, else what the figures force.
pub(in crate::analysis::findings) fn prescribe(finding: &mut Finding, a: &Autopsy, helped: Option<&Helped>) {
    let all = advice(a, helped);
    let best = best_advice(&all);
    finding.remedy = best.and_then(|x| x.setting.clone());
    finding.advice = match best {
        Some(best) => best.sentence.clone(),
        None => "Hold less at that instant: the largest stacks are listed in the autopsy.".to_owned(),
    };
    // That no setting helps is told beside what does.
    let none_helps = all.iter().find(|x| x.setting.is_none() && x.support == Support::Simulation);
    if let Some(none) = none_helps.filter(|none| best.is_some_and(|b| b != *none && b.setting.is_none())) {
        finding.advice = format!("{} {}", finding.advice, none.sentence);
    }
    if helped.is_none() && a.verdict == Verdict::Fragmentation {
        finding.advice = format!("What-if tries other settings on these very requests. {}", finding.advice);
    }
}
