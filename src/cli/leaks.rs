//! `vramscope leaks FILE`: what survives its step, by call stack.

use std::io::Write;

use serde_json::json;

use super::args::DeviceFileArgs;
use super::oom::frames;
use super::{Table, choose_device, open, print, print_json};
use crate::analysis::leaks::growth;
use crate::analysis::steps::{StepSource, Steps};
use crate::analysis::{DeviceTables, StackNames};
use crate::model::Progress;
use crate::units::{Bytes, count};

/// Stacks listed as text.
const LISTED: usize = 15;

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the file can not be opened or the answer not written.
pub fn run(args: &DeviceFileArgs, out: &mut dyn Write) -> Result<(), String> {
    let recording = open(&args.file)?;
    let device = &recording.devices[choose_device(&recording, args.device)?];
    let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
    let steps = Steps::find(&recording, device, &tables);
    let grown = growth(device, &tables, &steps);
    let source = match &steps.source {
        StepSource::None => "none".to_owned(),
        StepSource::Annotation(name) => format!("annotation {name}"),
        StepSource::Stack(stack) => format!("inferred from {}", StackNames::of(&recording.stacks).of_stack(*stack)),
    };
    if args.json {
        let leaks: Vec<_> = grown
            .iter()
            .map(|g| {
                json!({
                    "bytes": g.bytes, "count": g.count, "bytes_per_step": g.bytes_per_step.max(0.0).round() as u64, "confidence": g.confidence,
                    "steps_adding": g.steps_adding, "steps": g.steps, "is_leak": g.is_leak(), "stack": frames(&recording, g.stack),
                })
            })
            .collect();
        let report = json!({
            "file": recording.source.name, "device": device.id.index,
            "steps": {"count": steps.len(), "source": source, "inferred": steps.is_inferred()}, "leaks": leaks,
        });
        return print_json(out, &report);
    }
    let names = StackNames::of(&recording.stacks);
    let certain = grown.iter().filter(|g| g.is_leak()).count();
    let mut text = if certain == 0 {
        "No leak: nothing grows steadily from step to step.\n".to_owned()
    } else {
        let bytes: u64 = grown.iter().filter(|g| g.is_leak()).map(|g| g.bytes).sum();
        format!(
            "{} grow{} with every step, {} in all.\n",
            crate::units::counted(certain as u64, "call stack", "call stacks"),
            if certain == 1 { "s" } else { "" },
            Bytes(bytes)
        )
    };
    text += &format!("Steps: {}, {source}.\n\n", count(steps.len() as u64));
    let mut table = Table::new("lrrrrl");
    table.row(["", "survives", "blocks", "a step", "fit", "allocated at"]);
    for g in grown.iter().take(LISTED) {
        table.row([
            if g.is_leak() { "leak".to_owned() } else { String::new() },
            Bytes(g.bytes).to_string(),
            count(g.count),
            Bytes(g.bytes_per_step.max(0.0) as u64).to_string(),
            format!("{:.2}", g.confidence),
            names.of_stack(g.stack).to_owned(),
        ]);
    }
    text += &table.to_string();
    if grown.len() > LISTED {
        text += &format!("{} of {} stacks shown\n", LISTED, grown.len());
    }
    print(out, &text)
}
