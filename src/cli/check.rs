//! `vramscope check FILE`: limits for continuous integration. Exit code 1 when a limit is exceeded or the recording cannot tell.

mod allocated;
mod growth;
mod report;

use std::io::Write;

use serde_json::{Value, json};

use self::allocated::Baseline;
use self::growth::{AtPeak, Growth};
use super::args::{CheckArgs, CheckFormat};
use super::{open_blocks, open_stats, print, print_json};
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::{Finding, diagnose};
use vramscope_core::diagnose::leaks::{cannot_tell, growth};
use vramscope_core::diagnose::oom::knows_reserved;
use vramscope_core::diagnose::stats_check::judge_stats;
use vramscope_core::model::{DeviceId, DeviceKind, DeviceRecording, Progress, Recording, WarningKind};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity, StackNames};
use vramscope_core::units::{Bytes, count, counted, told_apart};

/// The check that the file did not change while it was read. In JSON it only affects `passed`.
const UNCHANGED: &str = "unchanged";

/// One limit, checked against one device.
#[derive(Debug)]
struct Check {
    /// `None` when the check is about the file.
    device: Option<DeviceId>,
    name: &'static str,
    /// `None` when the recording cannot tell.
    passed: Option<bool>,
    value: Value,
    limit: Value,
    reason: Option<String>,
    /// The role, for `max_role`.
    role: Option<Role>,
    /// Additional keys in JSON.
    more: Option<Value>,
}

impl Check {
    fn of(device: DeviceId, name: &'static str, passed: Option<bool>, value: Value, limit: Value, sentence: String) -> Self {
        let reason = (passed != Some(true)).then_some(sentence);
        Check { device: Some(device), name, passed, value, limit, reason, role: None, more: None }
    }

    /// An undecided check because the file itself is not reliable.
    fn of_file(name: &'static str, why: &str) -> Self {
        let reason = Some(why.to_owned());
        Check { device: None, name, passed: None, value: json!(false), limit: json!(true), reason, role: None, more: None }
    }

    fn has_passed(&self) -> bool {
        self.passed == Some(true)
    }

    /// `GPU 0: max_role activations`.
    fn title(&self) -> String {
        let device = self.device.map(|d| format!("{d}: ")).unwrap_or_default();
        let role = self.role.map(|r| format!(" {}", r.name())).unwrap_or_default();
        format!("{device}{}{role}", self.name)
    }

    /// True for a limit on allocated memory: a baseline shows what grew.
    fn shows_growth(&self) -> bool {
        ["max_allocated", "max_role", "baseline"].contains(&self.name)
    }

    /// The text of this check in the error message; `None` when it passed.
    fn failure(&self) -> Option<String> {
        let reason = self.reason.as_deref()?;
        Some(match (self.name, self.device) {
            ("complete", _) => format!("the file is not whole: {reason}"),
            ("stats", _) => reason.to_owned(),
            (_, Some(device)) => format!("{device}: {reason}"),
            (_, None) => reason.trim_end_matches('.').to_owned(),
        })
    }

    fn json(&self) -> Value {
        let device = self.device;
        let mut value = json!({"device": device.map(|d| d.index), "kind": device.map(|d| d.kind.name()), "check": self.name, "passed": self.passed, "value": self.value, "limit": self.limit, "reason": self.reason});
        if let Some(role) = self.role {
            value["role"] = json!(role.name());
        }
        if let (Some(Value::Object(more)), Some(value)) = (&self.more, value.as_object_mut()) {
            value.extend(more.clone());
        }
        value
    }
}

#[derive(Debug)]
struct Verdict {
    file: String,
    /// Name of the baseline's file; `None` without a baseline.
    baseline: Option<String>,
    checks: Vec<Check>,
    /// What grew, for devices that exceed a limit on allocated memory.
    grown: Vec<Growth>,
}

impl Verdict {
    /// The verdict when the recording or the baseline cannot be read.
    fn of_nothing(args: &CheckArgs, why: &str) -> Self {
        let file = args.file.file_name().unwrap_or(args.file.as_os_str()).to_string_lossy().into_owned();
        let check = Check { value: Value::Null, ..Check::of_file("could be checked", why) };
        Verdict { file, baseline: None, checks: vec![check], grown: Vec::new() }
    }
}

/// Runs the subcommand. Fails when a check did not pass, with a sentence that names it, or when the file cannot be opened.
pub fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<(), String> {
    match judge(args) {
        Ok(verdict) => say(args, &verdict, out),
        Err(sentence) => {
            // A CI step that reads the JUnit file must see that nothing was checked.
            if args.format == CheckFormat::Junit && !args.json {
                print(out, &report::junit(&Verdict::of_nothing(args, &sentence)))?;
            }
            Err(sentence)
        }
    }
}

fn judge(args: &CheckArgs) -> Result<Verdict, String> {
    let recording = open_blocks(&args.file)?;
    let mut checks = Vec::new();
    if let Some(cut) = recording.report.truncated() {
        // The missing part of the file cannot be checked.
        checks.push(Check::of_file("complete", &cut.text));
    }
    if let Some(changed) = recording.report.warnings.iter().find(|w| w.kind == WarningKind::Changed) {
        // A mix of an old and a new file proves nothing.
        checks.push(Check::of_file(UNCHANGED, &changed.text));
    }
    args.rules.check_named()?;
    let rules = if args.max_role.is_empty() && args.baseline.is_none() { Rules::default() } else { args.rules.read()? };
    let baseline = args.baseline.as_deref().map(|old| Baseline::open(old, &args.tolerance, &rules)).transpose()?;
    let limits_allocated = args.max_allocated.is_some() || !args.max_role.is_empty() || baseline.is_some();
    let mut peaks = Vec::new();
    let is_instant = recording.devices.iter().all(|d| d.events.is_empty());
    for device in &recording.devices {
        let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
        reserved(args, &recording, device, &tables, &rules, &mut checks)?;
        if limits_allocated && !is_beside(&recording, device) {
            peaks.push((device.id, AtPeak::of(&recording, device, &tables, &rules)?));
        }
        if args.no_leaks {
            checks.push(no_leaks(&recording, device, &tables)?);
        }
        if args.no_oom {
            checks.push(no_oom(device, is_instant));
        }
    }
    let grown = allocated::check(args, &peaks, baseline.as_ref(), &mut checks);
    for path in &args.stats {
        let verdict = judge_stats(&recording, &path.display().to_string(), &open_stats(path)?);
        let passed = verdict.device.is_some() && verdict.failed == 0;
        let device = verdict.device.and_then(|i| recording.devices.get(i)).map(|d| d.id);
        let reason = (!passed).then_some(verdict.sentence);
        let (value, limit) = (json!(verdict.failed), json!(0));
        checks.push(Check { device, passed: Some(passed), value, limit, reason, ..Check::of_file("stats", "") });
    }
    let file = recording.source.name.clone();
    Ok(Verdict { file, baseline: baseline.map(|b| b.name().to_owned()), checks, grown })
}

/// Checks `--max-peak` and `--max-fragmentation`.
fn reserved(
    args: &CheckArgs,
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    rules: &Rules,
    checks: &mut Vec<Check>,
) -> Result<(), String> {
    // `passed` is `None` when the recording cannot tell.
    let mut check = |name: &'static str, passed: Option<bool>, value: Value, limit: Value, sentence: String| {
        checks.push(Check::of(device.id, name, passed, value, limit, sentence));
    };
    let (peak, at) = tables.curves.settled_peak(device, Quantity::Reserved);
    let is_told = knows_reserved(tables) || !device.has_blocks() || is_beside(recording, device);
    if !is_told && (args.max_peak.is_some() || args.max_fragmentation.is_some()) {
        // Without segments in the file, limits on reserved memory cannot be checked.
        let limits = args.max_peak.map(|most| ("max_peak", json!(most)));
        let limits = limits.into_iter().chain(args.max_fragmentation.map(|most| ("max_fragmentation", json!(most))));
        for (name, most) in limits {
            let option = name.replace('_', "-");
            let sentence = format!("what was reserved is not in this file, so --{option} cannot be checked");
            check(name, Some(false), Value::Null, most, sentence);
        }
    }
    if let Some(most) = args.max_peak.filter(|_| is_told) {
        let [reserved, limit] = told_apart([peak, most]);
        let mut sentence = format!("{reserved} was reserved {}, more than {limit}", when(at));
        if peak > most && device.has_blocks() && !is_beside(recording, device) {
            let held = AtPeak::of(recording, device, tables, rules)?;
            let who = held.holders(None);
            if !who.is_empty() {
                sentence += &format!("; {} was allocated {}{who}", Bytes(held.bytes), held.when());
            }
        }
        let cut_off = cut_off(device).filter(|_| peak <= most);
        let sentence = cut_off.map_or(sentence, |why| format!("whether more than {limit} would be reserved is unknown: {why}"));
        check("max_peak", cut_off.is_none().then_some(peak <= most), json!(peak), json!(most), sentence);
    }
    if let Some(most) = args.max_fragmentation.filter(|_| is_told) {
        // The share of reserved memory that no tensor used, at the peak of reserved memory. The block for which the peak was
        // reserved is already counted.
        let active = tables.curves.at(device, &tables.lifetimes, Quantity::Active, at);
        let share = if peak == 0 { 0.0 } else { peak.saturating_sub(active) as f64 / peak as f64 };
        let sentence = format!(
            "{:.1} % of the {} reserved at the peak, {}, was free, more than {:.1} %",
            share * 100.0,
            Bytes(peak),
            when(at),
            most * 100.0
        );
        check("max_fragmentation", Some(share <= most), json!(share), json!(most), sentence);
    }
    Ok(())
}

/// Whether memory leaks on a device, from step to step or from one run of a model to the next.
fn no_leaks(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Result<Check, String> {
    let names = StackNames::of(&recording.stacks);
    let found = diagnose(recording, device, tables, &names, &Rules::default(), &Progress::new()).map_err(|e| e.to_string())?;
    let grown = growth(device, tables, &found.steps);
    let piled: u64 = grown.iter().filter(|g| g.is_leak()).map(|g| g.bytes).sum();
    let left_over: Vec<&Finding> = found.findings.iter().filter(|f| f.is_left_over()).collect();
    let bytes = left_over.iter().fold(piled, |sum, f| sum.saturating_add(f.bytes));
    let freed = if grown.iter().any(|g| g.is_leak() && g.freed.is_some()) { ", freed only at the end" } else { "" };
    // A device without any allocation has no leak, even if it has no history.
    let was_used = tables.curves.peak(Quantity::Active).0 > 0;
    if let Some(why) = cannot_tell(device, &found.steps).filter(|_| was_used && bytes == 0) {
        let sentence = format!("whether anything leaks is unknown: {}", why.trim_end_matches('.'));
        return Ok(Check::of(device.id, "no_leaks", None, Value::Null, json!(0), sentence));
    }
    let mut said: Vec<String> = left_over
        .iter()
        .map(|f| format!("{}{}: {} (vramscope findings says where)", f.title[..1].to_lowercase(), &f.title[1..], Bytes(f.bytes)))
        .collect();
    if piled > 0 || said.is_empty() {
        said.insert(0, format!("{} survive their step and pile up{freed} (vramscope leaks lists them)", Bytes(piled)));
    }
    Ok(Check::of(device.id, "no_leaks", Some(bytes == 0), json!(bytes), json!(0), said.join("; ")))
}

/// Whether a request failed on a device. `is_instant` means that the file has no history.
fn no_oom(device: &DeviceRecording, is_instant: bool) -> Check {
    if is_instant && device.has_blocks() {
        let sentence = "whether a request failed is unknown: the file has no history".to_owned();
        return Check::of(device.id, "no_oom", None, Value::Null, json!(0), sentence);
    }
    let ooms = device.events.ooms();
    let failed = counted(ooms.len() as u64, "request failed", "requests failed");
    let at = match (&ooms[..], ooms.last()) {
        (_, None) => String::new(),
        ([only], _) => format!(" at event {}", count(u64::from(*only))),
        (_, Some(&last)) => format!(", the last at event {}", count(u64::from(last))),
    };
    let sentence = format!("{failed}{at} (vramscope oom says why)");
    Check::of(device.id, "no_oom", Some(ooms.is_empty()), json!(ooms.len()), json!(0), sentence)
}

/// Why the peak of a run that ran out of memory proves nothing.
fn cut_off(device: &DeviceRecording) -> Option<&'static str> {
    let why = "a request failed for lack of memory, so the peak is where the program was stopped and not what it needs";
    (!device.events.ooms().is_empty()).then_some(why)
}

/// Writes the answer. The error names the checks that did not pass.
fn say(args: &CheckArgs, verdict: &Verdict, out: &mut dyn Write) -> Result<(), String> {
    let Verdict { file, baseline, checks, grown } = verdict;
    let failures: Vec<String> = checks.iter().filter_map(Check::failure).collect();
    match args.format {
        _ if args.json => {
            let checks: Vec<Value> = checks.iter().filter(|c| c.name != UNCHANGED).map(Check::json).collect();
            let mut report = json!({"file": file, "passed": failures.is_empty(), "checks": checks});
            if let Some(baseline) = baseline {
                report["baseline"] = json!({"file": baseline, "tolerance": args.tolerance.text()});
            }
            print_json(out, &report)?;
        }
        CheckFormat::Md => print(out, &report::markdown(verdict))?,
        CheckFormat::Junit => print(out, &report::junit(verdict))?,
        CheckFormat::Text if failures.is_empty() => {
            print(out, &format!("{file}: {} passed.", counted(checks.len() as u64, "check", "checks")))?;
        }
        CheckFormat::Text => grown.iter().try_for_each(|growth| print(out, &growth.text()))?,
    }
    match &failures[..] {
        [] => Ok(()),
        [only] => Err(format!("{file}: {only}")),
        // One line would have several hundred characters.
        _ => Err(format!("{file}: {} of {} checks did not pass:\n  {}", failures.len(), checks.len(), failures.join("\n  "))),
    }
}

/// The instant of a peak, as part of a sentence.
fn when(event: u32) -> String {
    match event {
        NO_EVENT => "before the first event".to_owned(),
        event => format!("at event {}", count(u64::from(event))),
    }
}

/// The CPU memory that a profiler trace has beside a GPU's is not from the caching allocator, so limits do not apply to it.
fn is_beside(recording: &Recording, device: &DeviceRecording) -> bool {
    device.id.kind == DeviceKind::Cpu && recording.devices.len() > 1
}
