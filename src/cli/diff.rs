//! `vramscope diff A B`: what is live in one and not in the other, by call stack.

use std::io::Write;

use serde_json::json;

use super::args::DiffArgs;
use super::{Table, choose_device, open, print, print_json};
use crate::analysis::diff::{Side, compare};
use crate::analysis::{DeviceTables, Quantity};
use crate::model::{Progress, Recording};
use crate::units::{Bytes, count};

/// Rows listed as text.
const LISTED: usize = 25;

/// Runs the subcommand.
///
/// # Errors
/// One sentence when a file can not be opened, an instant does not exist, or the answer can not be written.
pub fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<(), String> {
    let (a, a_event) = side(&args.a, args.a_event, args)?;
    let (b, b_event) = side(&args.b, args.b_event, args)?;
    let rows = compare(&a.1, &b.1);
    let only_a: u64 = rows.iter().map(|r| r.a_bytes.saturating_sub(r.b_bytes)).sum();
    let only_b: u64 = rows.iter().map(|r| r.b_bytes.saturating_sub(r.a_bytes)).sum();
    let common: u64 = rows.iter().map(|r| r.common()).sum();
    if args.json {
        let list: Vec<_> = rows
            .iter()
            .map(|r| {
                json!({
                    "stack": r.stack.lines().collect::<Vec<_>>(), "a_bytes": r.a_bytes, "b_bytes": r.b_bytes,
                    "a_count": r.a_count, "b_count": r.b_count, "change_bytes": r.change(),
                })
            })
            .collect();
        let report = json!({
            "a": {"file": a.0.source.name, "event": a_event, "bytes": a.1.bytes, "count": a.1.count},
            "b": {"file": b.0.source.name, "event": b_event, "bytes": b.1.bytes, "count": b.1.count},
            "only_a_bytes": only_a, "common_bytes": common, "only_b_bytes": only_b, "change_bytes": b.1.bytes as i64 - a.1.bytes as i64,
            "rows": list,
        });
        return print_json(out, &report);
    }
    let sign = if b.1.bytes >= a.1.bytes { "+" } else { "-" };
    let mut text = format!(
        "{sign}{}: {} live in A ({}, event {}), {} in B ({}, event {}).\nOnly in A {}, in both {}, only in B {}.\n\n",
        Bytes(b.1.bytes.abs_diff(a.1.bytes)),
        Bytes(a.1.bytes),
        a.0.source.name,
        count(u64::from(a_event)),
        Bytes(b.1.bytes),
        b.0.source.name,
        count(u64::from(b_event)),
        Bytes(only_a),
        Bytes(common),
        Bytes(only_b),
    );
    let mut table = Table::new("rrrrrl");
    table.row(["change", "A", "B", "blocks A", "blocks B", "allocated at"]);
    for r in rows.iter().take(LISTED) {
        let sign = if r.change() >= 0 { "+" } else { "-" };
        table.row([
            format!("{sign}{}", Bytes(r.change().unsigned_abs())),
            Bytes(r.a_bytes).to_string(),
            Bytes(r.b_bytes).to_string(),
            count(r.a_count),
            count(r.b_count),
            r.stack.lines().next().unwrap_or(crate::analysis::NO_STACK).to_owned(),
        ]);
    }
    text += &table.to_string();
    if rows.len() > LISTED {
        text += &format!("{} of {} stacks shown\n", LISTED, rows.len());
    }
    print(out, &text)
}

fn side(path: &std::path::Path, event: Option<u32>, args: &DiffArgs) -> Result<((Recording, Side), u32), String> {
    let recording = open(path)?;
    let index = choose_device(&recording, args.device)?;
    let device = &recording.devices[index];
    let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
    let last = device.events.len().saturating_sub(1) as u32;
    let at = match event {
        Some(e) if e > last => return Err(format!("{}: there is no event {e}; the last is {last}", recording.source.name)),
        Some(e) => e,
        None if args.end => last,
        None => tables.curves.peak(Quantity::Requested).1,
    };
    let side = Side::live_at(&recording.stacks, device, &tables, at);
    Ok(((recording, side), at))
}
