//! `vramscope flame FILE`: live bytes by call stack, as collapsed stacks or a JSON tree.

use std::io::Write;

use serde_json::{Value, json};

use super::args::FlameArgs;
use super::{choose_device, open, print, print_json};
use crate::analysis::flame::{Flame, Measure, Root, node_name, weigh};
use crate::analysis::{DeviceTables, Quantity};
use crate::model::{Progress, StackTable};

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the file can not be opened, an instant does not exist, or the answer can not be written.
pub fn run(args: &FlameArgs, out: &mut dyn Write) -> Result<(), String> {
    let recording = open(&args.file)?;
    let device = &recording.devices[choose_device(&recording, args.device)?];
    let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
    let last = device.events.len().saturating_sub(1) as u32;
    let (measure, name) = if let Some(event) = args.event {
        if event > last {
            return Err(format!("{}: there is no event {event}; the last is {last}", recording.source.name));
        }
        (Measure::LiveAt(event), "live_at_event")
    } else if args.end {
        (Measure::LiveAt(last), "live_at_end")
    } else if args.allocated {
        (Measure::Allocated(0, last), "allocated")
    } else if args.churn {
        (Measure::Churn(0, last), "churn")
    } else {
        (Measure::LiveAt(tables.curves.peak(Quantity::Requested).1), "live_at_peak")
    };
    let weights = weigh(device, &tables, measure);
    let root = if args.inverted { Root::Innermost } else { Root::Outermost };
    let flame = Flame::build(&recording.stacks, &weights, root, args.fold_framework);
    if !args.json {
        return print(out, &flame.collapsed(&recording.stacks));
    }
    let event = match measure {
        Measure::LiveAt(e) => Some(e),
        _ => None,
    };
    let report = json!({
        "file": recording.source.name, "device": device.id.index, "measure": name, "event": event,
        "total_bytes": flame.nodes[0].total, "folded_frames": flame.folded_frames, "tree": tree(&recording.stacks, &flame),
    });
    print_json(out, &report)
}

/// The tree as nested objects, built from the leaves up so that deep stacks need no recursion.
fn tree(stacks: &StackTable, flame: &Flame) -> Value {
    let mut built: Vec<Value> = vec![Value::Null; flame.nodes.len()];
    // A parent stands before its children, so going backwards every child is ready when its parent is.
    for i in (0..flame.nodes.len()).rev() {
        let node = &flame.nodes[i];
        let children: Vec<Value> = node.children.iter().map(|&c| built[c as usize].take()).collect();
        built[i] = json!({
            "name": node_name(stacks, node), "bytes": node.total, "self_bytes": node.own, "count": node.count, "children": children,
        });
    }
    built.swap_remove(0)
}
