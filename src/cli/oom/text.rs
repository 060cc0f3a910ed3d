//! The text output of `oom`. The answer comes first.

use std::fmt::Write as _;

use super::{BlockEntry, BlockerEntry, HolderEntry, OomEntry, OomReport, PeakEntry, WhatIfEntry};
use crate::cli::Table;
use crate::cli::summary::doing::role_beside;
use vramscope_core::anatomy::Composition;
use vramscope_core::anatomy::Role;
use vramscope_core::diagnose::oom::{NOT_REPRODUCED, Support};
use vramscope_core::inference::CapRange;
use vramscope_core::model::{Beyond, EventTable, Format, Recording};
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

/// Most kinds of earlier failures that get a line; the rest is counted.
const KINDS: usize = 10;

/// The report as text. With `in_full` every failure is described in full and not only the last. Writing to a String cannot fail,
/// so results are ignored throughout.
pub(super) fn text(report: &OomReport, recording: &Recording, in_full: bool) -> String {
    let mut out = String::new();
    if report.ooms.is_empty() {
        // A history of a single event, PyTorch 2.0's default, has lost everything before it.
        let most = recording.devices.iter().map(|d| d.events.len()).max().unwrap_or(0);
        let _ = if report.ooms_without_figures == 0 && most <= 1 {
            let name = &recording.source.name;
            let what = if most == 0 { "no history was recorded" } else { "the history keeps one event" };
            writeln!(out, "{name}: {what}, so whether a request failed is unknown; this is the state alone.")
        } else if report.ooms_without_figures == 0 {
            let trials: usize = recording.devices.iter().map(|d| d.events.refused_trials().len()).sum();
            let trials = match trials as u64 {
                0 => String::new(),
                n => format!(
                    " {} refused while cuDNN tried workspaces; its calls went on with less.",
                    counted(n, "request was", "requests were")
                ),
            };
            writeln!(out, "{}: no request failed.{trials}", recording.source.name)
        } else {
            writeln!(
                out,
                "{}: {} failed, and the file does not record what was free, so the reason is unknown{}.",
                recording.source.name,
                counted(report.ooms_without_figures as u64, "request", "requests"),
                if recording.source.format == Format::RmmLog { "" } else { "; a snapshot does" }
            )
        };
    } else if report.ooms_without_figures > 0 {
        let more = counted(report.ooms_without_figures as u64, "more failure is", "more failures are");
        let _ = writeln!(out, "{more} left out: the file does not record what was free.");
    }
    if report.ooms_left_out > 0 {
        let earlier = counted(report.ooms_left_out as u64, "earlier failure was", "earlier failures were");
        let _ = writeln!(out, "{earlier} not examined.");
    }
    // For each device the last failure comes first, because the program's own message is about it.
    let mut rest: &[OomEntry] = &report.ooms;
    while let Some(first) = rest.first() {
        let of_device = rest.iter().take_while(|o| o.device == first.device).count();
        let (failures, others) = rest.split_at(of_device);
        rest = others;
        let Some((last, before)) = failures.split_last() else { break };
        failure(&mut out, last, failures);
        if in_full {
            before.iter().rev().for_each(|o| failure(&mut out, o, failures));
        } else {
            earlier(&mut out, before);
        }
    }
    for p in &report.peaks {
        peak(&mut out, p, recording.devices.len() > 1);
    }
    for w in &report.whatif {
        let is_said = |text: &str| {
            report.ooms.iter().any(|o| o.sentence.contains(text) || o.remedies.iter().any(|r| r.sentence.contains(text)))
        };
        tried(&mut out, w, report.whatif.len() > 1, in_full, is_said);
    }
    for sentence in &report.rules_sentences {
        let _ = writeln!(out, "  {sentence}");
    }
    if let Some(why) = &report.whatif_left_out {
        let _ = writeln!(out, "  {why}");
    }
    out
}

fn failure(out: &mut String, o: &OomEntry, of: &[OomEntry]) {
    let number = of.iter().position(|x| x.event == o.event).map_or(1, |i| i + 1);
    let _ = writeln!(
        out,
        "Out of memory {number} of {}: {}, event {}: {}",
        of.len(),
        named(o.device),
        count(u64::from(o.event)),
        o.why()
    );
    if of.len() > 1 {
        let last = if o.is_last { "The last failure" } else { "An earlier failure" };
        let fate = if o.survived { "survived: allocations went on after it" } else { "nothing was allocated after it" };
        let _ = writeln!(out, "  {last}; {fate}.");
    }
    let _ = writeln!(out, "  {}", o.sentence);
    if let Some(place) = &o.requested_at {
        let _ = writeln!(out, "  Requested at {place}");
    }
    holders(out, &o.holders);
    if !o.is_simply_full {
        way_out(out, o);
    }
    for (label, value, is_told) in [
        ("request", o.requested_bytes, true),
        ("in PyTorch's message", o.tried_bytes, Bytes(o.tried_bytes).to_string() != Bytes(o.requested_bytes).to_string()),
        ("largest hole", o.largest_hole_bytes, o.has_segments),
        ("free in holes", o.hole_bytes, o.has_segments),
        ("free in other pools", o.other_hole_bytes, o.has_segments && o.other_hole_bytes > 0),
        ("free on the device", o.device_free_bytes.unwrap_or(EventTable::FREE_UNBOUNDED), true),
        ("reserved", o.reserved_bytes, o.has_segments),
        ("allocated", o.allocated_bytes, true),
    ] {
        if !is_told {
            continue;
        }
        if value >= EventTable::FREE_UNBOUNDED {
            let _ = writeln!(out, "    {label:<20}{:>14}", "unknown");
        } else {
            figure(out, label, value);
        }
    }
    if !o.remedies.is_empty() {
        let _ = writeln!(out, "  what to do");
        // The blocks to free are listed above.
        let is_above = |r: &&vramscope_core::diagnose::oom::Advice| r.sentence.starts_with("Hold less at that instant");
        for r in o.remedies.iter().filter(|r| !is_above(r)) {
            let from = match r.support {
                Support::Simulation => "simulated",
                Support::Formula => "computed",
            };
            let _ = writeln!(out, "    {} [{from}]", r.sentence);
            if let Some(setting) = &r.setting {
                let _ = writeln!(out, "      {setting}");
            }
        }
    }
    // A single line is the place of the request, which is already shown above.
    if o.shown_stack.len() > usize::from(o.requested_at.is_some()) {
        let _ = writeln!(out, "  the request came from (--json has every frame)");
        for frame in &o.shown_stack {
            let _ = writeln!(out, "    {frame}");
        }
    }
    if !o.is_simply_full {
        blockers(out, &o.blockers, o.blockers_total);
    }
    held(out, &o.held);
}

/// Which blocks to free so that the request fits.
fn way_out(out: &mut String, o: &OomEntry) {
    let _ = writeln!(out, "  {}", o.way_out_sentence);
    let plan = o.way_out.as_ref().filter(|plan| !plan.is_too_long);
    if let Some(plan) = plan {
        to_free(out, &plan.blocks_to_free);
    }
    if let Some(needs) = &o.way_out_needs {
        let _ = writeln!(out, "  {needs}");
    }
    if let Some(alone) = &o.alone_sentence {
        let _ = writeln!(out, "  {alone}");
    }
    if let Some(plan) = plan {
        let _ = writeln!(out, "  Why: {}", plan.why);
    }
}

fn holders(out: &mut String, held: &[HolderEntry]) {
    if held.is_empty() {
        return;
    }
    let _ = writeln!(out, "  who holds the device");
    let size = SizeColumn::of(held.iter().filter_map(|h| h.bytes));
    for h in held {
        let bytes = h.bytes.map_or_else(|| "not recorded".to_owned(), |bytes| size.sized(bytes));
        let _ = writeln!(out, "    {bytes:>14}  {}", h.name);
    }
}

/// A line for each kind of earlier failure: the same verdict and the same place, or the same size when no stack is recorded.
fn earlier(out: &mut String, before: &[OomEntry]) {
    if before.is_empty() {
        return;
    }
    let mut kinds: Vec<Vec<&OomEntry>> = Vec::new();
    for o in before.iter().rev() {
        let is_same = |k: &OomEntry| {
            let is_place = if o.stack.is_empty() { k.requested_bytes == o.requested_bytes } else { true };
            k.headline == o.headline && k.stack == o.stack && is_place
        };
        match kinds.iter_mut().find(|kind| kind.first().is_some_and(|k| is_same(k))) {
            Some(kind) => kind.push(o),
            None => kinds.push(vec![o]),
        }
    }
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.len()));
    let survived = before.iter().filter(|o| o.survived).count();
    let fate = if survived == before.len() {
        let was = if before.len() == 1 {
            "was survived: allocations went on after it"
        } else {
            "were survived: allocations went on after each"
        };
        format!("and {was}")
    } else {
        format!("({} were survived: allocations went on)", count(survived as u64))
    };
    let failures = counted(before.len() as u64, "request failed", "requests failed");
    let _ = writeln!(out, "Before that {failures} {fate} (--all shows each in full):");
    let mut table = Table::new("rrlrl");
    table.row(["", "request", "why", "event", "requested at"]);
    for kind in kinds.iter().take(KINDS) {
        let sizes = kind.iter().map(|o| o.requested_bytes);
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        let size = if least == most { Bytes(most).to_string() } else { format!("{} to {}", Bytes(least), Bytes(most)) };
        let events = kind.iter().map(|o| u64::from(o.event));
        let (first, last) = (events.clone().min().unwrap_or(0), events.max().unwrap_or(0));
        let event = if first == last { count(last) } else { format!("{} to {}", count(first), count(last)) };
        let at = kind.first().and_then(|o| o.requested_at.as_deref()).unwrap_or("no stack recorded");
        let why = kind.first().map_or(String::new(), |o| o.why());
        table.row([format!("  {} ×", count(kind.len() as u64)), size, why, event, at.to_owned()]);
    }
    let _ = write!(out, "{table}");
    if kinds.len() > KINDS {
        let failed: usize = kinds[KINDS..].iter().map(Vec::len).sum();
        let more = counted(failed as u64, "more failure", "more failures");
        let _ = writeln!(out, "  {more} of {}: --all", counted((kinds.len() - KINDS) as u64, "other kind", "other kinds"));
    }
}

/// The name of a device by its index. Pinned host memory has the index -1.
pub(super) fn named(device: i32) -> String {
    if device < 0 { "pinned host memory".to_owned() } else { format!("GPU {device}") }
}

fn figure(out: &mut String, label: &str, value: u64) {
    let _ = writeln!(out, "    {label:<20}{:>14}", Bytes(value).to_string());
}

fn peak(out: &mut String, p: &PeakEntry, name_device: bool) {
    let device = if name_device { format!("{}: ", p.label) } else { String::new() };
    let _ = writeln!(out, "  {device}{}", p.sentence);
    for (label, value, is_told) in [
        ("reserved", p.reserved_bytes, p.has_segments),
        ("active", p.active_bytes, true),
        ("requested", p.requested_bytes.unwrap_or(0), p.requested_bytes.is_some()),
        ("free in holes", p.hole_bytes, p.has_segments),
        ("free in other pools", p.other_hole_bytes, p.has_segments && p.other_hole_bytes > 0),
        ("largest hole", p.largest_hole_bytes, p.has_segments),
        ("largest that fits", p.largest_served_bytes, p.has_segments),
    ] {
        if is_told {
            figure(out, label, value);
        }
    }
    held(out, &p.held);
}

/// The live blocks beside the holes, those that strand most first.
fn blockers(out: &mut String, listed: &[BlockerEntry], total: usize) {
    /// Most rows. Blocks of the same size and line that strand the same bytes share a row.
    const FEW: usize = 4;
    if listed.is_empty() {
        return;
    }
    let row = |b: &BlockerEntry| {
        let returns = match &b.block.whose {
            Some(whose) => format!("{whose}: freeing it returns {} to the device", Bytes(b.returns_bytes)),
            None => String::new(),
        };
        let wastes = format!("wastes {} beside it", Bytes(b.strands_bytes));
        let [size, role, place, age] = block(&b.block);
        ([size.trim().to_owned(), wastes, role, place, returns], age)
    };
    let mut kinds: Vec<([String; 5], Vec<String>)> = Vec::new();
    for b in listed {
        let (cells, age) = row(b);
        match kinds.iter_mut().find(|kind| kind.0 == cells) {
            Some(kind) => kind.1.push(age),
            None => kinds.push((cells, vec![age])),
        }
    }
    kinds.truncate(FEW);
    let shown: usize = kinds.iter().map(|kind| kind.1.len()).sum();
    let _ = writeln!(
        out,
        "  live blocks between the holes, {shown} of {} (--json has their addresses and stacks)",
        counted(total as u64, "block", "blocks")
    );
    let mut table = Table::new("rrrllll");
    for ([size, wastes, role, place, returns], ages) in kinds {
        let times = format!("    {} \u{d7}", count(ages.len() as u64));
        let age = if let [age] = &ages[..] { age.clone() } else { String::new() };
        table.row([times, size, wastes, role, place, age, returns]);
    }
    let _ = write!(out, "{table}");
}

/// The blocks to free. Blocks of the same line, role and size share a row, most bytes first.
fn to_free(out: &mut String, blocks: &[BlockEntry]) {
    const FEW: usize = 4;
    let mut kinds: Vec<(Vec<&BlockEntry>, u64)> = Vec::new();
    let kind = |b: &BlockEntry| (b.bytes, b.role, b.role_is_probable, b.place.clone(), b.whose.clone(), b.pending_free);
    for b in blocks {
        match kinds.iter_mut().find(|(same, _)| same.first().is_some_and(|first| kind(first) == kind(b))) {
            Some((same, bytes)) => {
                same.push(b);
                *bytes += b.bytes;
            }
            None => kinds.push((vec![b], b.bytes)),
        }
    }
    kinds.sort_by_key(|k| std::cmp::Reverse(k.1));
    let mut table = Table::new("rrllll");
    for (same, _) in kinds.iter().take(FEW) {
        let Some(first) = same.first() else { continue };
        let mut more = first.whose.clone().unwrap_or_default();
        if first.pending_free {
            more += if more.is_empty() { "" } else { "; " };
            more += "freed, another stream still uses it";
        }
        let [size, role, place, age] = block(first);
        let age = if same.len() > 1 { String::new() } else { age };
        table.row([format!("    {} ×", count(same.len() as u64)), size.trim().to_owned(), role, place, age, more]);
    }
    let _ = write!(out, "{table}");
    if let Some(rest) = kinds.get(FEW..).filter(|rest| !rest.is_empty()) {
        let bytes = Bytes(rest.iter().map(|k| k.1).sum());
        let number: usize = rest.iter().map(|k| k.0.len()).sum();
        let _ = writeln!(out, "    and {} more ({bytes}); --json lists them all", count(number as u64));
    }
}

/// Size, role, the line that made it and age of a block. Its address is in the JSON.
fn block(b: &BlockEntry) -> [String; 4] {
    let role = Role::from_name(b.role).filter(|&r| r != Role::Unknown).map(|r| r.words(b.role_is_probable));
    [
        format!("    {}", Bytes(b.bytes)),
        role.unwrap_or_default(),
        b.place.clone(),
        if b.age_us.is_none() && b.age_events.is_none() { String::new() } else { format!("age {}", b.age) },
    ]
}

/// What was held, by role, and the lines that held most.
fn held(out: &mut String, held: &Composition) {
    const FEW: usize = 8;
    let blocks = counted(held.count, "block", "blocks");
    let _ = match held.beyond.words().as_str() {
        "" => writeln!(out, "  held at that moment, {} in {blocks}", Bytes(held.bytes)),
        beyond => writeln!(out, "  held at that moment, {}: {beyond}, the rest in {blocks}", Bytes(held.bytes)),
    };
    // For memory that a trace's total counts beyond its events, no blocks are known.
    let times = |n: u64| if n > 0 { format!("{} \u{d7}", count(n)) } else { String::new() };
    let mut table = Table::new("rrll");
    let size = SizeColumn::of(held.roles.iter().map(|r| r.bytes));
    for r in &held.roles {
        let beyond = if r.role == Role::Unknown { held.beyond } else { Beyond::default() };
        for (name, bytes) in beyond.named() {
            table.row([format!("    {}", size.sized(bytes)), String::new(), name.to_owned()]);
        }
        let bytes = r.bytes - beyond.all();
        if bytes > 0 {
            table.row([format!("    {}", size.sized(bytes)), times(r.count), r.words()]);
        }
    }
    let lines = &held.lines[..held.lines.len().min(FEW)];
    // A single line that holds everything says no more than the roles, and neither do unknown lines.
    if held.lines.len() > 1 && held.lines.iter().any(|l| l.frame.is_some()) {
        let _ = write!(out, "{table}");
        let _ = writeln!(out, "  of these by line, {} of {}", lines.len(), counted(held.lines.len() as u64, "line", "lines"));
        table = Table::new("rrll");
        let size = SizeColumn::of(lines.iter().map(|l| l.bytes));
        for l in lines {
            table.row([format!("    {}", size.sized(l.bytes)), times(l.count), l.place.clone(), role_beside(l)]);
        }
    }
    let _ = write!(out, "{table}");
}

/// The simulated settings. `is_said` is true for texts that are already shown above.
fn tried(out: &mut String, w: &WhatIfEntry, name_device: bool, in_full: bool, is_said: impl Fn(&str) -> bool) {
    /// Most rows of settings that serve all requests, and of those that do not.
    const MOST: [usize; 2] = [5, 3];
    let device = if name_device { format!(" on {}", named(w.device)) } else { String::new() };
    let limit = match w.limit_bytes {
        None => "under no cap".to_owned(),
        Some(bytes) if w.is_of_device => {
            format!("in the {} that the full device had for this process (no cap is known)", Bytes(bytes))
        }
        Some(bytes) => format!("under a cap of {}", Bytes(bytes)),
    };
    let _ = writeln!(out, "The {} requests replayed{device} by the allocator model, {limit}:", count(w.own_requests));
    if let Some([least, most]) = w.limit_span_bytes.filter(|[low, high]| low < high && !w.is_of_device) {
        let range = CapRange { least, ..CapRange::exact(most) };
        let _ = match is_said("estimated from the failed requests") {
            true => writeln!(out, "  The cap is not in the file: --limit sets it."),
            false => {
                writeln!(out, "  The cap is not in the file. Estimated from the failed requests: {range}. Set it with --limit.")
            }
        };
    }
    if !w.fails_as_recorded {
        let _ = writeln!(out, "  {NOT_REPRODUCED}");
        return;
    }
    if !w.agrees_with_recording {
        let _ = writeln!(out, "  The model does not reproduce this recording; take the figures as estimates.");
    }
    if let Some(end) = w.ends_at_failure {
        let all = if end.is_caught {
            "The program caught the failure, so \"all\" means all requests that it made."
        } else {
            "The recording ends at or soon after its failure, so \"all\" means all requests up to there."
        };
        let warning = if is_said(w.warning.trim()) { "" } else { &w.warning };
        let _ = writeln!(out, "  {all}{warning}");
    }
    let mut table = Table::new("lrrl");
    table.row(["settings", "peak reserved", "to spare", "outcome"]);
    let (mut rows, mut left_out, mut shown) = (Vec::new(), 0, [0; 2]);
    let size = SizeColumn::of(w.tried.iter().map(|r| r.peak_reserved_bytes));
    for r in &w.tried {
        // When a request fails there was no margin, however low the peak before it.
        let spare = match r.margin_bytes.filter(|_| r.oom_request.is_none() || r.oom_varies) {
            Some(m) if m < 0 => format!("-{}", Bytes(m.unsigned_abs())),
            Some(m) => Bytes(m.unsigned_abs()).to_string(),
            None => String::new(),
        };
        let outcome = match r.oom_request {
            Some(request) if r.oom_varies => {
                format!("fails after {}, or passes, depending on where the driver puts segments", count(request))
            }
            Some(request) => format!("fails after {}", count(request)),
            None if r.certain => "all served".to_owned(),
            None if r.oom_varies => match r.passes_from_bytes {
                Some(from) => format!("may serve all: from a cap of {} on", Bytes(from).at_least()),
                None => "may serve all, depending on where the driver puts segments".to_owned(),
            },
            None => "may serve all: an estimate".to_owned(),
        };
        let name = if r.conf.is_empty() { "(defaults)" } else { &r.conf };
        let row = [name.to_owned(), size.sized(r.peak_reserved_bytes), spare, outcome];
        // Settings with an equal result share a row.
        let is_like_another = rows.iter().any(|other: &[String; 4]| other[1..] == row[1..]);
        let kind = usize::from(r.oom_request.is_some());
        if in_full || is_like_another || shown[kind] < MOST[kind] {
            shown[kind] += usize::from(!is_like_another);
            rows.push(row);
        } else {
            left_out += 1;
        }
    }
    table.rows_folded(&rows, ["other setting", "other settings"]);
    let _ = write!(out, "{table}");
    if left_out > 0 {
        let _ = writeln!(out, "  {}: --all", counted(left_out, "setting more", "settings more"));
    }
    if w.tried.iter().any(|r| r.margin_bytes.is_some_and(|m| m < 0)) {
        let _ = writeln!(
            out,
            "  A peak may exceed the cap: PyTorch compares only the request with the cap, and expandable segments then map whole pages of 20 MiB."
        );
    }
    // A full device has no cap to set.
    let what = if w.is_of_device { "Least memory" } else { "Smallest cap" };
    if let Some(n) = w.needed {
        let _ = writeln!(
            out,
            "  {what} that serves all recorded requests with their own settings: {}.",
            Bytes(n.smallest_limit_bytes).least_beside()
        );
    }
    if let Some(n) = w.needed_with_best {
        let _ = writeln!(out, "  With the first setting above: {}.", Bytes(n.smallest_limit_bytes).least_beside());
    }
}
