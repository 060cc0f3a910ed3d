//! `vramscope leaks FILE`: memory that survives its step, by call stack. With `--from` and `--to`: memory allocated after one
//! event that is still live at another.

use std::io::Write;

use serde_json::json;

use super::args::LeaksArgs;
use super::oom::frames;
use super::opening::{of_device, others};
use super::{Failure, Opened, Table, print_json, print_of};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::diagnose::leaks::{Growth, between, cannot_tell, floors, growth, leaking, no_leak, saw_tooth};
use vramscope_core::tables::{StackNames, named_by, tell_apart};
use vramscope_core::units::{Bytes, SizeColumn, count};

const LISTED: usize = 15;

/// Runs the subcommand.
pub fn run(args: &LeaksArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && to < from
    {
        return Err(Failure::Usage(format!("--to {to} comes before --from {from}; give the earlier event first")));
    }
    let opened = Opened::blocks(&args.of.file, args.of.device)?;
    Ok(match args.from {
        Some(from) => survivors(args, &opened, from, out),
        None => over_steps(args, &opened, out),
    }?)
}

fn over_steps(args: &LeaksArgs, opened: &Opened, out: &mut dyn Write) -> Result<(), String> {
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let steps = Steps::find(recording, device, tables);
    let grown = growth(device, tables, &steps);
    let names = StackNames::of(&recording.stacks);
    let source = steps.how();
    let saw = saw_tooth(device, tables, &steps);
    if args.of.json {
        let leaks: Vec<_> = grown
            .iter()
            .map(|g| {
                json!({
                    "bytes": g.bytes, "count": g.count(), "bytes_per_step": g.bytes_per_step.max(0.0).round() as u64, "confidence": g.confidence,
                    "steps_adding": g.steps_adding, "steps": g.steps, "is_leak": g.is_leak(), "stack": frames(recording, g.stack),
                    "first_step": 0, "since_step": g.since, "bytes_by_step": g.by_step, "freed_at_event": g.freed,
                })
            })
            .collect();
        let teeth: Vec<_> = saw
            .iter()
            .flat_map(|s| &s.teeth)
            .map(|&(from, drop, bytes)| json!({"from_step": from, "drops_in_step": drop, "drop_bytes": bytes}))
            .collect();
        let report = json!({
            "file": recording.source.name, "device": device.id.index,
            "steps": {"count": steps.len(), "source": source, "inferred": steps.is_inferred(), "confidence": f64::from(steps.confidence) / 100.0, "annotated": steps.marked.len(), "note": steps.caveat(&names, device.events.len())},
            "can_tell": cannot_tell(device, &steps).is_none(), "leaks": leaks, "saw_tooth": teeth, "truncated": opened.is_truncated(), "contradiction": tables.disagreement,
        });
        return print_json(out, &report);
    }
    let leaks: Vec<&Growth> = grown.iter().filter(|g| g.is_leak()).collect();
    let cannot_tell = cannot_tell(device, &steps);
    let whose = of_device(recording, device);
    let mut text = whose
        + &match (&cannot_tell, leaks.first()) {
            (Some(why), _) => format!("{why}\n"),
            (None, None) => {
                let (title, sentence) = no_leak(&floors(device, tables, &steps.bounds));
                format!("{title}. {sentence}\n")
            }
            (None, Some(_)) => leaking(&leaks) + "\n",
        };
    if cannot_tell.is_none() {
        let caveat = steps.caveat(&names, device.events.len()).map_or_else(String::new, |c| format!("{c}\n"));
        text += &format!("{}: {source}.\n{caveat}", vramscope_core::units::counted(steps.len() as u64, "step", "steps"));
    }
    if let Some(saw) = &saw {
        text += &format!(
            "Saw-tooth: memory climbs over several steps and drops at once, {} times by {} on average: objects in reference cycles wait for Python's garbage collector.\n",
            saw.teeth.len(),
            Bytes(saw.mean())
        );
    }
    text += "\n";
    let mut table = Table::new("lrrrrl");
    let rows: Vec<_> = grown.iter().take(LISTED).map(|g| (g.stack, names.of_stack(g.stack))).collect();
    let apart = tell_apart(&recording.stacks, &rows);
    table.row(["", "kept", "blocks", "per step", "fit", "allocated at"]);
    let size = SizeColumn::of(grown.iter().take(LISTED).map(|g| g.bytes));
    for (g, by) in grown.iter().zip(apart) {
        let (bytes, blocks) = (size.sized(g.bytes), count(g.count()));
        let place = named_by(&recording.stacks, names.of_stack(g.stack), by);
        let kind = match g.freed {
            Some(_) => "leak, freed at the end",
            None if g.is_leak() => "leak",
            None => "",
        };
        let (slope, fit) = (Bytes(g.bytes_per_step.max(0.0).round() as u64).to_string(), format!("{:.2}", g.confidence));
        table.row([kind.to_owned(), bytes, blocks, slope, fit, place]);
    }
    if !grown.is_empty() {
        text += &table.to_string();
    }
    if grown.len() > LISTED {
        text += &format!("{} of {} stacks shown\n", LISTED, grown.len());
    }
    text += &others(recording, device);
    print_of(out, &[opened.about()], &text)
}

/// Memory allocated after `from` that is still live at `--to`.
fn survivors(args: &LeaksArgs, opened: &Opened, from: u32, out: &mut dyn Write) -> Result<(), String> {
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let (from, to) = (opened.event(from)?, opened.event(args.to.unwrap_or(opened.last_event()))?);
    let found = between(device, tables, from, to);
    let (bytes, blocks) = found.iter().fold((0, 0), |(b, n), s| (b + s.bytes, n + s.count));
    if args.of.json {
        let list: Vec<_> = found
            .iter()
            .map(|s| json!({"bytes": s.bytes, "count": s.count, "oldest_event": s.oldest, "stack": frames(recording, s.stack)}))
            .collect();
        let report = json!({
            "file": recording.source.name, "device": device.id.index, "from": from, "to": to,
            "bytes": bytes, "count": blocks, "survivors": list, "truncated": opened.is_truncated(), "contradiction": tables.disagreement,
        });
        return print_json(out, &report);
    }
    let names = StackNames::of(&recording.stacks);
    let mut text = format!(
        "{}{} in {} allocated after event {} and still live at event {}.\n\n",
        of_device(recording, device),
        Bytes(bytes),
        vramscope_core::units::counted(blocks, "block", "blocks"),
        count(u64::from(from)),
        count(u64::from(to)),
    );
    let mut table = Table::new("rrrl");
    table.row(["still live", "blocks", "oldest event", "allocated at"]);
    let rows: Vec<_> = found.iter().take(LISTED).map(|s| (s.stack, names.of_stack(s.stack))).collect();
    let size = SizeColumn::of(found.iter().take(LISTED).map(|s| s.bytes));
    for (s, by) in found.iter().zip(tell_apart(&recording.stacks, &rows)) {
        let place = named_by(&recording.stacks, names.of_stack(s.stack), by);
        table.row([size.sized(s.bytes), count(s.count), count(u64::from(s.oldest)), place]);
    }
    if !found.is_empty() {
        text += &table.to_string();
    }
    if found.len() > LISTED {
        text += &format!("{LISTED} of {} stacks shown\n", found.len());
    }
    print_of(out, &[opened.about()], &text)
}
