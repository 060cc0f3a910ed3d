//! `vramscope diff A B`: what is live in one recording or instant and not in the other, by call stack.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::args::DiffArgs;
use super::opening::of_device;
use super::{Opened, Table, print_json, print_of};
use vramscope_core::anatomy::roles::Roles;
use vramscope_core::compare::diff::{Comparison, Group, Held, Instant, Reserve, Row, compare, purposes_text};
use vramscope_core::diagnose::oom::knows_reserved;
use vramscope_core::model::{StackId, StackTable};
use vramscope_core::tables::{NO_EVENT, frame_text, innermost, stack_text, without_stack};
use vramscope_core::units::{Bytes, SizeColumn, count, counted, told_apart};

const LISTED: usize = 25;

/// Runs the subcommand.
pub fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<(), String> {
    let a = Side::open(&args.a, args)?;
    let is_a = |b: &PathBuf| std::fs::canonicalize(&args.a).ok().is_some_and(|p| std::fs::canonicalize(b).is_ok_and(|q| p == q));
    // The same file on both sides is opened once. Single blocks can then be matched.
    let b = args.b.as_ref().filter(|b| !is_a(b)).map(|b| Side::open(b, args)).transpose()?;
    let b = b.as_ref().unwrap_or(&a);
    let (a_event, b_event) = (a.instant(args.a_event, args.end)?, b.instant(args.b_event, args.end)?);
    let c = compare(&a.at(a_event), &b.at(b_event));
    let groups = c.by_place(&b.recording.stacks);
    let sides = [(&a, a_event), (b, b_event)];
    if args.json {
        return print_json(out, &as_json(&c, &groups, sides));
    }
    let devices = if a.device().id == b.device().id { of_device(&b.recording, b.device()) } else { String::new() };
    let devices = if devices.is_empty() { of_device(&a.recording, a.device()) } else { devices };
    let text = devices + &as_text(&c, &groups, sides) + &table(&groups, c.stacks(&b.recording.stacks));
    print_of(out, &[a.about(), b.about()], &text)
}

/// The JSON object. A side is a recording and an event.
fn as_json(c: &Comparison, groups: &[Group], [a, b]: [(&Side, u32); 2]) -> Value {
    let stacks = c.stacks(&b.0.recording.stacks);
    let [only_a, common, only_b] = c.parts_by_stack();
    let parts = c.parts(groups);
    let text_of = |r: &Row| stack_text(stacks, r.stack);
    let list: Vec<_> = c
        .rows
        .iter()
        .map(|r| {
            json!({
                "stack": text_of(r).lines().collect::<Vec<_>>(), "category": r.role.name(),
                "a_bytes": r.a.bytes, "b_bytes": r.b.bytes, "a_requested_bytes": r.a.requested, "b_requested_bytes": r.b.requested,
                "a_count": r.a.count, "b_count": r.b.count, "change_bytes": r.change(),
                "by_category": r.purposes.iter().map(|(c, a, b)| json!({"category": c.name(), "a_bytes": a.bytes, "b_bytes": b.bytes})).collect::<Vec<_>>(),
            })
        })
        .collect();
    let by_category: Vec<_> = c
        .roles
        .iter()
        .map(|(role, a, b)| json!({"category": role.name(), "a_bytes": a.bytes, "b_bytes": b.bytes, "a_count": a.count, "b_count": b.count}))
        .collect();
    let held = |h: Held| json!({"bytes": h.bytes, "count": h.count});
    let blocks = c.blocks.map(|x| json!({"only_a": held(x.only_a), "both": held(x.both), "only_b": held(x.only_b)}));
    let side = |(s, event): (&Side, u32), h: Held, r: Reserve| {
        json!({
            "file": s.recording.source.name, "device": s.device().id.index, "event": (event != NO_EVENT).then_some(event), "bytes": h.bytes, "requested_bytes": h.requested, "count": h.count,
            "reserved_bytes": r.totals[0], "free_inside_bytes": r.free, "segments": r.segments, "largest_hole_bytes": r.largest_hole,
            "truncated": s.is_truncated(), "contradiction": s.tables.disagreement,
        })
    };
    let places: Vec<_> = groups
        .iter()
        .map(|g| {
            json!({
                "place": place(stacks, g.stack), "category": g.role.name(), "a_bytes": g.a.bytes, "b_bytes": g.b.bytes,
                "a_count": g.a.count, "b_count": g.b.count, "change_bytes": g.change(), "common_bytes": c.alike_in(g),
            })
        })
        .collect();
    json!({
        "a": side(a, c.a, c.reserve_a), "b": side(b, c.b, c.reserve_b),
        "only_a_bytes": only_a, "common_bytes": common, "only_b_bytes": only_b, "change_bytes": c.change(),
        "by_place": {"only_a_bytes": parts.only_a, "common_bytes": parts.both, "only_b_bytes": parts.only_b},
        "without_stack": {"a": held(parts.without_stack[0]), "b": held(parts.without_stack[1])},
        "categories": by_category, "blocks": blocks, "rows": list, "places": places,
    })
}

/// The text without the table of places.
fn as_text(c: &Comparison, groups: &[Group], [a, b]: [(&Side, u32); 2]) -> String {
    let parts = c.parts(groups);
    let [live_a, live_b] = told_apart([c.a.bytes, c.b.bytes]);
    let mut text = format!(
        "{}: {live_a} live in A ({}, {}), {live_b} in B ({}, {}).\nBy your line and the line it calls to allocate: only in A {}, in both {}, only in B {}.\n",
        signed(c.change()),
        a.0.recording.source.name,
        super::place_of(a.0.device(), a.1),
        b.0.recording.source.name,
        super::place_of(b.0.device(), b.1),
        Bytes(parts.only_a),
        Bytes(parts.both),
        Bytes(parts.only_b),
    );
    let part = |h: Held| match h.count {
        // For memory that a trace's total held before profiling, no blocks are known.
        0 if h.bytes > 0 => Bytes(h.bytes).to_string(),
        n => format!("{} in {}", Bytes(h.bytes), counted(n, "block", "blocks")),
    };
    if parts.without_stack.iter().any(|h| h.bytes > 0) {
        let [a, b] = parts.without_stack.map(part);
        text += &format!("Without a stack, and so not matched: {a} in A, {b} in B.\n");
    }
    if let Some(x) = c.blocks {
        text += &format!(
            "By block: only in A, freed since {}; in both {}; only in B, new {}.\n",
            part(x.only_a),
            part(x.both),
            part(x.only_b)
        );
    }
    let [reserved_a, reserved_b] = told_apart([c.reserve_a.totals[0], c.reserve_b.totals[0]]);
    text += &match [knows_reserved(&a.0.tables), knows_reserved(&b.0.tables)] {
        [true, true] => format!(
            "Reserved {reserved_a} in A, {reserved_b} in B; free inside {} and {}.\n\n",
            Bytes(c.reserve_a.free),
            Bytes(c.reserve_b.free)
        ),
        [true, false] => format!("Reserved {reserved_a} in A, and not recorded in B.\n\n"),
        [false, true] => format!("Reserved {reserved_b} in B, and not recorded in A.\n\n"),
        [false, false] => "What was reserved is in neither file.\n\n".to_owned(),
    };
    text
}

fn table(groups: &[Group], stacks: &StackTable) -> String {
    let mut table = Table::new("rrrrrll");
    table.row(["change", "A", "B", "blocks A", "blocks B", "role", "allocated at"]);
    let shown = || groups.iter().take(LISTED);
    let size = SizeColumn::of(shown().flat_map(|r| [r.a.bytes, r.b.bytes]));
    let changed = SizeColumn::of(shown().map(|r| r.change().unsigned_abs()));
    for r in shown() {
        table.row([
            format!("{}{}", sign(r.change()), changed.sized(r.change().unsigned_abs())),
            size.sized(r.a.bytes),
            size.sized(r.b.bytes),
            count(r.a.count),
            count(r.b.count),
            purposes_text(&r.purposes),
            place(stacks, r.stack),
        ]);
    }
    let mut text = table.to_string();
    if groups.len() > LISTED {
        text += &format!("{LISTED} of {} places shown\n", groups.len());
    }
    text
}

/// The user's line as in all tables, and the innermost frame when that is another one.
fn place(stacks: &StackTable, stack: StackId) -> String {
    let name = |f| stacks.frame(f).map(|f| frame_text(stacks, f)).unwrap_or_default();
    let Some(first) = innermost(stacks, stack) else { return without_stack(stack).to_owned() };
    match vramscope_core::tables::own_frame(stacks, stack).filter(|&f| f != first) {
        Some(own) => format!("{}, in {}", name(own), name(first)),
        None => name(first),
    }
}

/// Bytes with a sign, also for zero: `+0 B`.
fn signed(bytes: i64) -> String {
    format!("{}{}", sign(bytes), Bytes(bytes.unsigned_abs()))
}

fn sign(bytes: i64) -> char {
    if bytes < 0 { '-' } else { '+' }
}

/// A recording with the roles of its allocations.
struct Side {
    opened: Opened,
    roles: Roles,
}

impl std::ops::Deref for Side {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.opened
    }
}

impl Side {
    fn open(path: &std::path::Path, args: &DiffArgs) -> Result<Self, String> {
        let opened = Opened::blocks(path, args.device)?;
        let roles = opened.roles(&args.rules)?;
        Ok(Side { opened, roles })
    }

    fn at(&self, event: u32) -> Instant<'_> {
        Instant { recording: &self.recording, device: self.device(), tables: &self.tables, roles: Some(&self.roles), event }
    }

    /// The event that the user named, or the end, or the peak.
    fn instant(&self, wanted: Option<u32>, end: bool) -> Result<u32, String> {
        match wanted {
            Some(event) => self.event(event),
            None if end => Ok(self.last_event()),
            None => Ok(self.tables.curves.peak_event()),
        }
    }
}
