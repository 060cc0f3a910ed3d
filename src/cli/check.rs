//! `vramscope check FILE`: limits for continuous integration; exit code 1 when one is exceeded, or
//! when the recording cannot tell.

use std::io::Write;

use serde_json::json;

use super::args::CheckArgs;
use super::{open_blocks, open_stats, print, print_json};
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::diagnose::leaks::{cannot_tell, growth};
use vramscope_core::diagnose::oom::knows_reserved;
use vramscope_core::diagnose::stats_check::judge_stats;
use vramscope_core::model::{DeviceKind, DeviceRecording, Progress, WarningKind};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity};
use vramscope_core::units::{Bytes, count, counted, told_apart};

/// Runs the subcommand.
///
/// # Errors
/// One sentence naming what was passed, when anything was; or why the file cannot be opened.
pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<(), String> {
    let recording = open_blocks(&args.file)?;
    let mut checks = Vec::new();
    let mut failures = Vec::new();
    if let Some(cut) = recording.report.truncated() {
        // What is not in the file cannot be vouched for.
        checks.push(json!({"device": null, "kind": null, "check": "complete", "passed": false, "value": false, "limit": true, "reason": cut.text}));
        failures.push(format!("the file is not whole: {}", cut.text));
    }
    let event = |at: u32| match at {
        NO_EVENT => "before the first event".to_owned(),
        at => format!("at event {}", count(u64::from(at))),
    };
    if let Some(changed) = recording.report.warnings.iter().find(|w| w.kind == WarningKind::Changed) {
        // Half of an old file and half of a new one vouch for nothing.
        failures.push(changed.text.trim_end_matches('.').to_owned());
    }
    // The CPU's memory beside a GPU's in a profiler trace is not of the caching allocator: no limit is meant for it.
    let is_beside = |d: &DeviceRecording| d.id.kind == DeviceKind::Cpu && recording.devices.len() > 1;
    let is_instant = recording.devices.iter().all(|d| d.events.is_empty());
    for device in &recording.devices {
        let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
        // Passed, not passed, or (`None`) what the recording does not tell.
        let mut check = |name: &str,
                         passed: Option<bool>,
                         value: serde_json::Value,
                         limit: serde_json::Value,
                         sentence: String| {
            let reason = (passed != Some(true)).then_some(&sentence);
            checks.push(json!({"device": device.id.index, "kind": device.id.kind.name(), "check": name, "passed": passed, "value": value, "limit": limit, "reason": reason}));
            if passed != Some(true) {
                failures.push(format!("{}: {sentence}", device.id));
            }
        };
        let (peak, at) = tables.curves.settled_peak(device, Quantity::Reserved);
        let is_told = knows_reserved(&tables) || !device.has_blocks() || is_beside(device);
        if !is_told && (args.max_peak.is_some() || args.max_fragmentation.is_some()) {
            // What is not in the file cannot be vouched for.
            let limits = args.max_peak.map(|most| ("max_peak", json!(most)));
            let limits = limits.into_iter().chain(args.max_fragmentation.map(|most| ("max_fragmentation", json!(most))));
            for (name, most) in limits {
                let option = name.replace('_', "-");
                let sentence = format!("what was reserved is not in this file, so --{option} cannot be checked");
                check(name, Some(false), serde_json::Value::Null, most, sentence);
            }
        }
        if let Some(most) = args.max_peak.filter(|_| is_told) {
            let [reserved, limit] = told_apart([peak, most]);
            let sentence = format!("{reserved} was reserved {}, more than {limit}", event(at));
            check("max_peak", Some(peak <= most), json!(peak), json!(most), sentence);
        }
        if let Some(most) = args.max_fragmentation.filter(|_| is_told) {
            // At the peak of reserved memory, where room is scarce, with the block in place that it was reserved for: the share
            // that no tensor used.
            let active = tables.curves.at(device, &tables.lifetimes, Quantity::Active, at);
            let share = if peak == 0 { 0.0 } else { peak.saturating_sub(active) as f64 / peak as f64 };
            let sentence = format!(
                "{:.1} % of the {} reserved at the peak, {}, was free, more than {:.1} %",
                share * 100.0,
                Bytes(peak),
                event(at),
                most * 100.0
            );
            check("max_fragmentation", Some(share <= most), json!(share), json!(most), sentence);
        }
        if args.no_leaks {
            let steps = Steps::find(&recording, device, &tables);
            let grown = growth(device, &tables, &steps);
            let bytes: u64 = grown.iter().filter(|g| g.is_leak()).map(|g| g.bytes).sum();
            let freed = if grown.iter().any(|g| g.is_leak() && g.freed.is_some()) { ", freed only at the end" } else { "" };
            // A device that nothing was ever allocated on has no leak, whatever its history.
            let was_used = tables.curves.peak(Quantity::Active).0 > 0;
            match cannot_tell(device, &steps).filter(|_| was_used && bytes == 0) {
                Some(why) => {
                    let sentence = format!("whether anything leaks is unknown: {}", why.trim_end_matches('.'));
                    check("no_leaks", None, serde_json::Value::Null, json!(0), sentence);
                }
                None => {
                    let sentence = format!("{} survive their step and pile up{freed} (vramscope leaks lists them)", Bytes(bytes));
                    check("no_leaks", Some(bytes == 0), json!(bytes), json!(0), sentence);
                }
            }
        }
        if args.no_oom && is_instant && device.has_blocks() {
            let sentence = "whether a request failed is unknown: the file has no history".to_owned();
            check("no_oom", None, serde_json::Value::Null, json!(0), sentence);
        } else if args.no_oom {
            let ooms = device.events.ooms();
            let failed = counted(ooms.len() as u64, "request failed", "requests failed");
            let at = match (&ooms[..], ooms.last()) {
                (_, None) => String::new(),
                ([only], _) => format!(" at event {}", count(u64::from(*only))),
                (_, Some(&last)) => format!(", the last at event {}", count(u64::from(last))),
            };
            check("no_oom", Some(ooms.is_empty()), json!(ooms.len()), json!(0), format!("{failed}{at} (vramscope oom says why)"));
        }
    }
    for path in &args.stats {
        let verdict = judge_stats(&recording, &path.display().to_string(), &open_stats(path)?);
        let passed = verdict.device.is_some() && verdict.failed == 0;
        let id = verdict.device.and_then(|i| recording.devices.get(i)).map(|d| d.id);
        checks.push(json!({"device": id.map(|d| d.index), "kind": id.map(|d| d.kind.name()), "check": "stats", "passed": passed, "value": verdict.failed, "limit": 0, "reason": (!passed).then_some(&verdict.sentence)}));
        if !passed {
            failures.push(verdict.sentence);
        }
    }
    if args.json {
        print_json(out, &json!({"file": recording.source.name, "passed": failures.is_empty(), "checks": checks}))?;
    } else if failures.is_empty() {
        print(out, &format!("{}: {} passed.", recording.source.name, counted(checks.len() as u64, "check", "checks")))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("{}: {}", recording.source.name, failures.join("; "))) }
}
