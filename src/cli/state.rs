//! `vramscope state FILE [--event N|--peak|--oom|--end]`: segments, blocks and live memory at one event.

use std::io::Write;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::args::{InstantArgs, LiveBy, StateArgs};
use super::rules::RulesArgs;
use super::{Opened, Table, choose_device, oom, open_blocks, print_json, print_of};
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::Tally;
use vramscope_core::diagnose::oom as oom_facts;
use vramscope_core::diagnose::source_limits::clock_time;
use vramscope_core::model::{BlockState, Clock, DeviceRecording, Recording, StackId, StackTable};
use vramscope_core::tables::{BlockAt, NO_EVENT, Quantity, SegmentAt, StackNames, State, frame_text, named_by, tell_apart};
use vramscope_core::units::{Address, Bytes, SizeColumn, count, counted, told_apart};

/// Most rows in the text output. The JSON has all.
const STACKS_SHOWN: usize = 16;
const SEGMENTS_SHOWN: usize = 24;
/// Width of a segment's bar, in characters.
const BAR: u64 = 32;

/// The JSON object. Sizes are bytes, addresses integers.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    device: DeviceName,
    /// The state is the one after this event; null before the first.
    event: Option<u32>,
    events: u64,
    truncated: bool,
    contradiction: Option<String>,
    /// The action of that event; null before the first.
    action: Option<&'static str>,
    time_us: Option<i64>,
    totals: Totals,
    holes: Holes,
    /// The segments in the file are only a part of what was reserved.
    #[serde(skip)]
    is_partial: bool,
    segments: Vec<SegmentRow>,
    /// Live blocks that are in no known segment. Profiler traces have only such blocks.
    blocks_outside_segments: Vec<BlockRow>,
    live: Vec<LiveRow>,
    /// Memory that the program freed but another stream may still use: active, but not live.
    pending_free: Vec<LiveRow>,
    /// Active memory by role, including what waits for another stream. Lists all roles, also empty ones.
    by_category: Vec<RoleRow>,
    #[serde(skip)]
    shows_roles: bool,
    /// The zero point of the times.
    #[serde(skip)]
    clock: Clock,
}

#[derive(Debug, Serialize)]
struct RoleRow {
    category: &'static str,
    /// Bytes of whole blocks.
    bytes: u64,
    requested_bytes: Option<u64>,
    count: u64,
    /// The part of the bytes whose role is only inferred from sizes, counts and lifetimes.
    probably: u64,
    /// The role's name, with "probably" when most of it is inferred.
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct DeviceName {
    index: i32,
    kind: &'static str,
    #[serde(skip)]
    label: String,
}

#[derive(Debug, Serialize)]
struct Totals {
    /// Null when the file has no segments.
    reserved_bytes: Option<u64>,
    active_bytes: u64,
    allocated_bytes: u64,
    /// Null when the file has whole blocks only.
    requested_bytes: Option<u64>,
    /// False when the file lacks the sizes of some blocks.
    exact: bool,
}

/// Free space inside reserved memory.
#[derive(Debug, Default, Serialize)]
struct Holes {
    count: u64,
    bytes: u64,
    largest_bytes: u64,
}

#[derive(Debug, Serialize)]
struct SegmentRow {
    address: u64,
    bytes: u64,
    stream: u64,
    pool: Option<[u64; 2]>,
    /// `small` or `large`: which requests it serves.
    class: &'static str,
    is_expandable: bool,
    /// Event that reserved it; null when that was before the trace.
    born: Option<u32>,
    used_bytes: u64,
    largest_hole_bytes: u64,
    blocks: Vec<BlockRow>,
}

#[derive(Debug, Serialize)]
struct BlockRow {
    /// Null when the file has no addresses.
    address: Option<u64>,
    bytes: u64,
    /// What the program requested; 0 when inactive, null when unknown.
    requested_bytes: Option<u64>,
    /// PyTorch's name: `active_allocated`, `active_pending_free` or `inactive`.
    state: &'static str,
    /// Event that allocated it; null when inactive or before the trace.
    born: Option<u32>,
}

/// Live or pending allocations of one call stack.
#[derive(Debug, Serialize)]
struct LiveRow {
    /// Bytes of whole blocks.
    bytes: u64,
    requested_bytes: Option<u64>,
    /// Number of blocks; 0 for memory from before a trace began, whose blocks are unknown.
    count: u64,
    /// Innermost frame first, `file:line name`; empty without a stack.
    stack: Vec<String>,
    /// The innermost frame of the program's own code.
    #[serde(rename = "where")]
    place: String,
    /// The place and the function it called, for the text output.
    #[serde(skip)]
    text: String,
}

/// Writes the state.
pub fn run(args: &StateArgs, out: &mut dyn Write) -> Result<(), String> {
    args.rules.check_named()?;
    let recording = open_blocks(&args.file)?;
    let index = device_for(&recording, args)?;
    let opened = Opened::of(recording, index)?;
    let event = find_event(&opened, &args.instant)?;
    let state = opened.tables.states.at(opened.device(), &opened.tables.lifetimes, event);
    let mut report = report(&opened, &state, args.file.display().to_string());
    report.shows_roles = args.by == LiveBy::Role;
    if args.json || report.shows_roles {
        report.by_category = live_by_role(&opened, &state, &args.rules)?;
    }
    if args.json { print_json(out, &report) } else { print_of(out, &[opened.about()], &text(&report)) }
}

/// The requested device. For `--oom` without a device, the first that ran out of memory.
fn device_for(recording: &Recording, args: &StateArgs) -> Result<usize, String> {
    if args.instant.oom.is_some()
        && args.device.is_none()
        && let Some(at) = recording.devices.iter().position(|d| !d.events.ooms().is_empty())
    {
        return Ok(at);
    }
    choose_device(recording, args.device)
}

fn find_event(opened: &Opened, instant: &InstantArgs) -> Result<u32, String> {
    let (file, device) = (&opened.recording.source.name, opened.device());
    let events = device.events.len() as u64;
    if let Some(event) = instant.event {
        if u64::from(event) >= events {
            let known = if events == 0 { "no events".to_owned() } else { format!("events 0 to {}", events - 1) };
            return Err(format!("{file}: there is no event {event}; {} has {known}", device.id));
        }
        return Ok(event);
    }
    if instant.end {
        return Ok((events as u32).checked_sub(1).unwrap_or(NO_EVENT));
    }
    if let Some(nth) = instant.oom {
        let ooms = device.events.ooms();
        let found = match nth {
            Some(nth) => ooms.get(nth as usize - 1),
            None => ooms.last(),
        };
        return found.copied().ok_or_else(|| match (nth, ooms.len()) {
            (Some(nth), n @ 1..) => format!("{file}: there is no out-of-memory event {nth}; {} has {n}", device.id),
            _ => format!("{file}: no out-of-memory event was recorded; use --peak, --end or --event N"),
        });
    }
    Ok(opened.tables.curves.settled_peak(device, instant.peak.unwrap_or(Quantity::Active)).1)
}

fn report(opened: &Opened, state: &State, file: String) -> Report {
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let at = (state.event != NO_EVENT).then_some(state.event);
    let events = &device.events;
    let names = StackNames::of(&recording.stacks);
    let block_row = |b: &BlockAt| BlockRow {
        address: recording.addresses().is_known().then_some(b.address),
        bytes: b.size,
        requested_bytes: device.can_show.requested.is_known().then_some(b.requested),
        state: b.state.name(),
        born: Some(tables.lifetimes.born(b.lifetime)).filter(|&e| b.lifetime.is_some() && e != NO_EVENT),
    };
    let (count, bytes, largest_bytes) = state.hole_figures();
    let holes = Holes { count, bytes, largest_bytes };
    let t = state.totals;
    let knows_reserved = oom_facts::knows_reserved(tables);
    let tells_requested = device.can_show.requested.is_known();
    Report {
        file,
        device: DeviceName { index: device.id.index, kind: device.id.kind.name(), label: device.id.to_string() },
        event: at,
        events: events.len() as u64,
        truncated: opened.is_truncated(),
        contradiction: tables.disagreement.clone(),
        action: at.and_then(|e| events.action.get(e as usize)).map(|a| a.name()),
        time_us: at.filter(|_| events.has_time).and_then(|e| events.time_us.get(e as usize)).copied(),
        totals: Totals {
            reserved_bytes: knows_reserved.then_some(t.reserved),
            active_bytes: t.active,
            allocated_bytes: t.allocated,
            requested_bytes: tells_requested.then_some(t.requested),
            exact: tables.curves.is_exact(Quantity::Allocated),
        },
        holes,
        is_partial: !tables.curves.has_all_segments(),
        segments: state.segments.iter().map(|s| segment_row(device, state, s, &block_row)).collect(),
        blocks_outside_segments: state.uncovered().iter().map(block_row).collect(),
        live: with_older(opened, state, by_stack(opened, state, BlockState::Active, &names)),
        pending_free: by_stack(opened, state, BlockState::PendingFree, &names),
        by_category: Vec::new(),
        shows_roles: false,
        clock: recording.clock(),
    }
}

fn live_by_role(opened: &Opened, state: &State, rules: &RulesArgs) -> Result<Vec<RoleRow>, String> {
    let (roles, device) = (opened.roles(rules)?, opened.device());
    let mut live = [Tally::default(); Role::ALL.len()];
    for block in state.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
        let tally = &mut live[roles.of(block.lifetime).index()];
        tally.count += 1;
        tally.bytes += block.requested;
        tally.block_bytes += block.size;
        if roles.is_probable(device, &opened.tables, block.lifetime) {
            tally.probable += block.size;
        }
    }
    let row = |c: Role| {
        let tally = live[c.index()];
        RoleRow {
            category: c.name(),
            bytes: tally.block_bytes,
            requested_bytes: device.can_show.requested.is_known().then_some(tally.bytes),
            count: tally.count,
            probably: tally.probable,
            text: c.words(tally.probable * 2 > tally.block_bytes),
        }
    };
    Ok(Role::ALL.into_iter().map(row).collect())
}

fn segment_row(device: &DeviceRecording, state: &State, s: &SegmentAt, block_row: &dyn Fn(&BlockAt) -> BlockRow) -> SegmentRow {
    let blocks = state.blocks_of(s);
    let free = blocks.iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size);
    SegmentRow {
        address: s.address,
        bytes: s.size,
        stream: device.stream_handle(s.stream),
        pool: device.pool_key(s.pool).map(|(a, b)| [a, b]),
        class: s.class.name(),
        is_expandable: s.is_expandable,
        born: (s.born != NO_EVENT).then_some(s.born),
        used_bytes: s.size - free.clone().sum::<u64>().min(s.size),
        largest_hole_bytes: free.max().unwrap_or(0),
        blocks: blocks.iter().map(block_row).collect(),
    }
}

/// Adds rows for memory that the source's totals count but its blocks do not: allocated before profiling, or without an event.
fn with_older(opened: &Opened, state: &State, rows: Vec<LiveRow>) -> Vec<LiveRow> {
    let known = state.blocks.iter().filter(|b| b.lifetime.is_some()).fold(0u64, |sum, b| sum.saturating_add(b.size));
    let beyond = opened.device().source_totals.beyond_parts(state.event, known);
    let older = beyond.named().map(|(name, bytes)| LiveRow {
        bytes,
        requested_bytes: None,
        count: 0,
        stack: oom::frames(&opened.recording, StackId::NONE),
        place: name.to_owned(),
        text: name.to_owned(),
    });
    older.chain(rows).collect()
}

/// The blocks of one state by stack, most bytes first.
fn by_stack(opened: &Opened, state: &State, of: BlockState, names: &StackNames) -> Vec<LiveRow> {
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let mut groups: FxHashMap<StackId, (u64, u64, u64)> = FxHashMap::default();
    for block in state.blocks.iter().filter(|b| b.state == of) {
        let stack = if block.lifetime.is_some() { tables.lifetimes.stack(device, block.lifetime) } else { StackId::NONE };
        let group = groups.entry(stack).or_default();
        group.0 += block.size;
        group.1 += block.requested;
        group.2 += 1;
    }
    let mut rows: Vec<(StackId, (u64, u64, u64))> = groups.into_iter().collect();
    rows.sort_unstable_by_key(|&(stack, (bytes, _, count))| (std::cmp::Reverse((bytes, count)), stack));
    let named: Vec<_> = rows.iter().map(|&(stack, _)| (stack, own_text(&recording.stacks, stack, names))).collect();
    let apart = tell_apart(&recording.stacks, &named);
    rows.into_iter()
        .zip(named.iter().zip(apart))
        .map(|((stack, (bytes, requested_bytes, count)), ((_, name), by))| LiveRow {
            bytes,
            requested_bytes: device.can_show.requested.is_known().then_some(requested_bytes),
            count,
            stack: oom::frames(recording, stack),
            place: names.of_stack(stack).to_owned(),
            text: named_by(&recording.stacks, name, by),
        })
        .collect()
}

fn text(r: &Report) -> String {
    let t = &r.totals;
    let when = match (r.event, r.action) {
        (Some(event), Some(action)) => {
            let time = r.time_us.map_or(String::new(), |us| {
                let (time, of) = clock_time(r.clock, us);
                format!(", {time}{of}")
            });
            format!("after event {} of {} ({action}{time})", count(u64::from(event)), count(r.events))
        }
        _ if r.events == 0 => "when it was dumped (the file has no events)".to_owned(),
        _ => "before the first event".to_owned(),
    };
    let [held, active] = told_apart([t.reserved_bytes.unwrap_or(0), t.active_bytes]);
    let mut out = match t.reserved_bytes {
        Some(_) if r.is_partial => {
            format!("{}: {} {when} held {held}: {active} active; not all segments are in this file\n\n", r.file, r.device.label,)
        }
        Some(_) => format!(
            "{}: {} {when} held {held} in {}: {active} active, {} free in {}{}\n\n",
            r.file,
            r.device.label,
            counted(r.segments.len() as u64, "segment", "segments"),
            Bytes(r.holes.bytes),
            counted(r.holes.count, "hole", "holes"),
            if r.holes.count > 1 { format!(", the largest {}", Bytes(r.holes.largest_bytes)) } else { String::new() }
        ),
        None => format!(
            "{}: {} {when} had {} active; what was reserved is not in this file\n\n",
            r.file,
            r.device.label,
            Bytes(t.active_bytes)
        ),
    };
    let mut totals = Table::new("lrlrlrlr");
    let levels = [t.reserved_bytes, Some(t.active_bytes), Some(t.allocated_bytes), t.requested_bytes];
    let size = SizeColumn::of(levels.into_iter().flatten());
    let told = |bytes: Option<u64>| bytes.map_or_else(|| "not recorded".to_owned(), |bytes| size.sized(bytes));
    let cells = |name: &str, bytes: Option<u64>| [format!("  {name}"), told(bytes)];
    totals.row(["reserved", "active", "allocated", "requested"].into_iter().zip(levels).flat_map(|(name, of)| cells(name, of)));
    out += &totals.to_string();
    if !t.exact {
        out += "  the file does not record the size of every block: active and allocated are partly estimated\n";
    }
    if r.shows_roles {
        roles_text(r, &mut out);
    } else {
        live_text(r, &r.live, ["  live", "allocated at"], &mut out);
    }
    if r.live.is_empty() && !r.shows_roles {
        out += "\n  nothing is live\n";
    }
    live_text(r, &r.pending_free, ["  pending", "allocated at; freed, but another stream may still use it"], &mut out);
    segments_text(r, &mut out);
    out
}

fn roles_text(r: &Report, out: &mut String) {
    let mut table = Table::new("rrrrl");
    table.row(["  live", "requested", "share", "blocks", "role"]);
    let mut rows: Vec<&RoleRow> = r.by_category.iter().filter(|row| row.count > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let share = |bytes: u64| format!("{:.1}%", 100.0 * bytes as f64 / r.totals.active_bytes.max(1) as f64);
    let older = || r.live.iter().filter(|row| row.count == 0);
    let of_roles = rows.iter().flat_map(|row| [row.bytes, row.requested_bytes.unwrap_or(0)]);
    let size = SizeColumn::of(of_roles.chain(older().map(|row| row.bytes)));
    for row in older() {
        let live = format!("  {}", size.sized(row.bytes));
        table.row([live, "not recorded".to_owned(), share(row.bytes), "-".to_owned(), row.text.clone()]);
    }
    for row in &rows {
        let live = format!("  {}", size.sized(row.bytes));
        let requested = row.requested_bytes.map_or_else(|| "not recorded".to_owned(), |bytes| size.sized(bytes));
        table.row([live, requested, share(row.bytes), count(row.count), row.text.clone()]);
    }
    if rows.is_empty() {
        *out += "\n  nothing is live\n";
    } else {
        *out += &format!("\n{table}");
    }
}

/// A table of rows by stack with two headings; nothing without rows.
fn live_text(r: &Report, rows: &[LiveRow], [bytes, place]: [&str; 2], out: &mut String) {
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new("rrrl");
    table.row([bytes, "share", "blocks", place]);
    let share = |bytes: u64| format!("{:.1}%", 100.0 * bytes as f64 / r.totals.active_bytes.max(1) as f64);
    let size = SizeColumn::of(rows.iter().map(|row| row.bytes));
    for row in rows.iter().take(STACKS_SHOWN) {
        let blocks = if row.count == 0 { "-".to_owned() } else { count(row.count) };
        table.row([format!("  {}", size.sized(row.bytes)), share(row.bytes), blocks, row.text.clone()]);
    }
    if let Some(rest) = rows.get(STACKS_SHOWN..).filter(|rest| !rest.is_empty()) {
        let bytes = rest.iter().map(|l| l.bytes).sum();
        table.row([
            format!("  {}", size.sized(bytes)),
            share(bytes),
            count(rest.iter().map(|l| l.count).sum()),
            format!("{} more (--json has them)", counted(rest.len() as u64, "stack", "stacks")),
        ]);
    }
    *out += &format!("\n{table}");
}

/// `train.py:99 step`: the line of the program's own code, with its function.
fn own_text(stacks: &StackTable, stack: StackId, names: &StackNames) -> String {
    let frame = names.index(stack).and_then(|i| stacks.frame(names.frame(i)?));
    frame.map_or_else(|| names.of_stack(stack).to_owned(), |frame| frame_text(stacks, frame))
}

fn segments_text(r: &Report, out: &mut String) {
    if r.segments.is_empty() {
        if !r.blocks_outside_segments.is_empty() {
            *out += &format!(
                "\n  the file names no segments for {}\n",
                counted(r.blocks_outside_segments.len() as u64, "block", "blocks")
            );
        }
        return;
    }
    let mut order: Vec<&SegmentRow> = r.segments.iter().collect();
    order.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.address));
    let mut table = Table::new("lrrrrll");
    table.row(["  segment", "size", "used", "largest hole", "blocks", "pool", "█ used  ▒ partly  · free"]);
    let size = SizeColumn::of(order.iter().flat_map(|s| [s.bytes, s.used_bytes, s.largest_hole_bytes]));
    for s in order.iter().take(SEGMENTS_SHOWN) {
        let mut pool = s.class.to_owned();
        if s.is_expandable {
            pool += " expandable";
        }
        if let Some([a, b]) = s.pool.filter(|p| *p != [0, 0]) {
            pool += &format!(" private ({a}, {b})");
        }
        if s.stream != 0 {
            pool += &format!(" stream {:#x}", s.stream);
        }
        table.row([
            format!("  {}", Address(s.address)),
            size.sized(s.bytes),
            size.sized(s.used_bytes),
            size.sized(s.largest_hole_bytes),
            count(s.blocks.len() as u64),
            pool,
            bar(s),
        ]);
    }
    *out += &format!("\n{table}");
    if let Some(rest) = order.get(SEGMENTS_SHOWN..).filter(|rest| !rest.is_empty()) {
        *out += &format!(
            "  and {} of at most {}, {} together (--json has them)\n",
            counted(rest.len() as u64, "segment", "segments"),
            Bytes(rest[0].bytes),
            Bytes(rest.iter().map(|s| s.bytes).sum())
        );
    }
}

/// A segment from its first to its last byte as a bar of fixed width that shows which parts are used.
fn bar(s: &SegmentRow) -> String {
    let edge = |i: u64| (u128::from(s.bytes) * u128::from(i) / u128::from(BAR)) as u64;
    let mut next = 0;
    (0..BAR)
        .map(|i| {
            // A block in a segment has an address.
            let start = |b: &BlockRow| b.address.unwrap_or(s.address);
            let (from, to) = (s.address + edge(i), s.address + edge(i + 1));
            // Blocks are in address order, so the search continues where the previous cell ended.
            while s.blocks.get(next).is_some_and(|b| start(b) + b.bytes <= from) {
                next += 1;
            }
            let used: u64 = s.blocks[next.min(s.blocks.len())..]
                .iter()
                .take_while(|b| start(b) < to)
                .filter(|b| b.state != BlockState::Inactive.name())
                .map(|b| (start(b) + b.bytes).min(to).saturating_sub(start(b).max(from)))
                .sum();
            match used {
                0 => '·',
                n if n >= to - from => '█',
                _ => '▒',
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, bytes: u64, state: BlockState) -> BlockRow {
        BlockRow { address: Some(address), bytes, requested_bytes: Some(0), state: state.name(), born: None }
    }

    #[test]
    fn the_bar_shows_what_is_used() {
        let blocks = vec![
            block(1000, 16, BlockState::Active),
            block(1016, 17, BlockState::Inactive),
            block(1033, 31, BlockState::PendingFree),
        ];
        let segment = SegmentRow {
            address: 1000,
            bytes: 64,
            stream: 0,
            pool: None,
            class: "small",
            is_expandable: false,
            born: None,
            used_bytes: 47,
            largest_hole_bytes: 17,
            blocks,
        };
        assert_eq!(bar(&segment), format!("{}{}▒{}", "█".repeat(8), "·".repeat(8), "█".repeat(15)));
    }
}
