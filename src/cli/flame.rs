//! `vramscope flame FILE`: bytes by call stack, file, module, role or phase, as collapsed stacks or a JSON tree.

use std::io::Write;

use serde_json::{Value, json};

use super::args::FlameArgs;
use super::opening::{of_device, others};
use super::terminal::say;
use super::{Opened, cut_note, print, print_json};
use vramscope_core::compare::flame::{By, Entry, Flame, Measure, Root, Shape, Size, What, node_name, weigh};
use vramscope_core::model::{FrameId, StackTable};
use vramscope_core::tables::NO_EVENT;

/// Runs the subcommand.
pub fn run(args: &FlameArgs, out: &mut dyn Write) -> Result<(), String> {
    args.rules.check_named()?;
    let opened = Opened::blocks(&args.file, args.device)?;
    let (recording, device, tables) = (&opened.recording, opened.device(), &opened.tables);
    let last = opened.last_event();
    let range = match args.events {
        Some((from, to)) => (opened.event(from)?, to.saturating_sub(1).min(last)),
        None => (0, last),
    };
    let (measure, name) = if let Some(event) = args.event {
        (Measure::LiveAt(opened.event(event)?), "live_at_event")
    } else if args.end {
        (Measure::LiveAt(last), "live_at_end")
    } else if args.allocated {
        (Measure::Allocated(range.0, range.1), "allocated")
    } else if args.churn {
        (Measure::Churn(range.0, range.1), "churn")
    } else if args.lifetime {
        (Measure::BytesTimesLife(range.0, range.1), "bytes_times_events")
    } else {
        (Measure::LiveAt(tables.curves.peak_event()), "live_at_peak")
    };
    let by = args.by;
    let roles = match by {
        By::Role | By::Phase => Some(opened.roles(&args.rules)?),
        _ => None,
    };
    let size = if args.requested { Size::Requested } else { Size::Block };
    let entries = weigh(device, tables, roles.as_ref(), measure, size);
    let root = if args.inverted { Root::Innermost } else { Root::Outermost };
    if entries.is_empty() && !args.json {
        let what = match measure {
            Measure::LiveAt(event) => format!("nothing was live ({})", super::place_of(device, event)),
            _ => format!("nothing was allocated from event {} to event {}", range.0, range.1),
        };
        return Err(format!("{}: {what}, so there is no flame graph", recording.source.name));
    }
    // When stacks contain C++ frames, there are dozens around each allocation. Only the innermost is kept.
    let is_native = has_native(&recording.stacks, &entries);
    let folds_framework = args.fold_framework || (is_native && by != By::Stack);
    let flame = Flame::build(&recording.stacks, &entries, Shape { root, by, folds_framework });
    if !args.json {
        // Another program reads collapsed stacks, so the note goes to standard error.
        let others = others(recording, device);
        if !others.is_empty() {
            say(&format!("{}this graph is of one device. {}", of_device(recording, device), others.trim_end()));
        }
        if let Some(note) = cut_note(recording) {
            say(&note);
        }
        if let Some(contradiction) = &tables.disagreement {
            say(&format!("{}: {contradiction}", recording.source.name));
        }
        if let Some(sentence) = roles.as_ref().and_then(|c| c.changed.rules_sentence()) {
            say(&sentence);
        }
        if !matches!(by, By::Role | By::Phase) && entries.iter().all(|e| !e.stack.is_some()) {
            say("no call stack is in this file, so no function can be told; --by role tells what it is for");
        }
        if by == By::Module
            && flame.nodes.iter().skip(1).all(|n| !matches!(n.what, What::Frame(_)))
            && entries.iter().any(has_stack)
        {
            say(match is_native {
                true => {
                    "no module can be told: the call stacks have frames of C++ alone; record with stacks=\"all\" or \"python\""
                }
                false => "no call stack goes through a module, so all is one line; --by file or role tells more",
            });
        }
        return print(out, &flame.collapsed(&recording.stacks));
    }
    let event = match measure {
        Measure::LiveAt(e) => Some(e).filter(|&e| e != NO_EVENT),
        _ => None,
    };
    let report = json!({
        "file": recording.source.name, "device": device.id.index, "measure": name, "event": event,
        "by": by.name(), "size": if args.requested { "requested" } else { "block" },
        "changed_by_rules": roles.as_ref().map(|c| c.changed.count),
        "truncated": opened.is_truncated(), "contradiction": tables.disagreement,
        "total_bytes": flame.nodes[0].total, "folded_frames": flame.folded_frames, "tree": tree(&recording.stacks, &flame),
    });
    print_json(out, &report)
}

fn has_stack(entry: &Entry) -> bool {
    entry.stack.is_some()
}

/// True when a call stack is mostly C++ frames, as `stacks="all"` records them.
fn has_native(stacks: &StackTable, entries: &[Entry]) -> bool {
    let is_python = |f: &&FrameId| stacks.frame(**f).is_some_and(|f| stacks.text(f.file).ends_with(".py"));
    let is_native = |e: &Entry| {
        let frames = stacks.frames(e.stack);
        frames.iter().filter(is_python).count() * 2 < frames.len()
    };
    entries.iter().any(is_native)
}

/// The tree as nested objects, built from the leaves up so that deep stacks need no recursion.
fn tree(stacks: &StackTable, flame: &Flame) -> Value {
    let mut built: Vec<Value> = vec![Value::Null; flame.nodes.len()];
    // Parents come before their children, so going backwards builds all children before their parent.
    for i in (0..flame.nodes.len()).rev() {
        let node = &flame.nodes[i];
        let children: Vec<Value> = node.children.iter().map(|&c| built[c as usize].take()).collect();
        built[i] = json!({
            "name": node_name(stacks, node), "bytes": node.total, "self_bytes": node.own, "count": node.count, "children": children,
        });
    }
    built.swap_remove(0)
}
