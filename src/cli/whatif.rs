//! `vramscope whatif FILE --conf CONF …`: the same requests under other settings and limits.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::args::WhatifArgs;
use super::opening::{of_device, others};
use super::{Table, choose_device, open_blocks, print_json, print_of};
use vramscope_core::diagnose::export;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::formats::export::new_file::refusal;
use vramscope_core::inference::CapRange;
use vramscope_core::inference::remedies::best;
use vramscope_core::inference::whatif::{Question, Row, SUGGESTED, WhatIf};
use vramscope_core::model::{DeviceKind, DeviceRecording, Format, Progress, Recording};
use vramscope_core::units::{Bytes, SizeColumn, capital, count, counted, told_apart};

/// The JSON object of the command.
#[derive(Debug, Serialize)]
pub struct WhatIfReport {
    /// The limit of the command line or of the recording. A run's own limit may be lower.
    #[serde(skip)]
    limit: Option<u64>,
    /// No setting was named, so the suggested ones were tried.
    #[serde(skip)]
    is_suggested: bool,
    /// One entry per setting, in the order of the command line.
    pub runs: Vec<RunEntry>,
    /// Ordinal of the device as the process counts it.
    pub device: i32,
    /// True when the file is cut short. Only the requests before the cut were simulated.
    pub truncated: bool,
    /// Whether the model reproduces the recording, or where it first differs.
    pub agreement: AgreementEntry,
    /// The best of the runs; `null` when none passes.
    pub best: Option<BestEntry>,
}

/// The result of one setting.
#[derive(Debug, Serialize)]
pub struct RunEntry {
    /// Its figures, as fields of this object.
    #[serde(flatten)]
    pub row: Row,
    /// Bytes by which the peak exceeds the limit, as it may with expandable segments.
    pub over_limit_bytes: u64,
    /// Assumptions about what the trace does not record.
    pub assumptions: Vec<String>,
}

/// The recording under its own settings.
#[derive(Debug, Serialize)]
pub struct AgreementEntry {
    /// The model reproduces the whole recording. Never true for a file that is cut short.
    agrees: bool,
    /// The model reproduces all events that could be read.
    agrees_as_far_as_read: bool,
    first_difference: Option<String>,
    conf: String,
    limit_span_bytes: Option<[u64; 2]>,
    torch_rules: String,
}

/// The best run.
#[derive(Debug, Serialize)]
pub struct BestEntry {
    /// Its index among the runs.
    pub run: usize,
    /// The reason in a few words.
    pub why: String,
}

/// Why a peak may exceed its limit.
const OVER_LIMIT: &str = "a peak above the limit is real: PyTorch compares the limit with the request, rounded to 2 MiB, and then maps whole pages of 20 MiB";

/// Runs the subcommand. Fails when the file cannot be read, when it lacks the device or a trace, or when the simulation cannot be
/// written.
pub fn run(args: &WhatifArgs, out: &mut dyn Write) -> Result<(), String> {
    // Checked before the runs, which take a while.
    if let Some(error) = args.save.as_ref().and_then(|out| refusal(out, &[&args.file], args.force)) {
        return Err(error.to_string());
    }
    let recording = open_blocks(&args.file)?;
    let progress = Progress::new();
    let device = choose(&recording, args.device)?;
    let whatif = WhatIf::new(device, None, &progress).map_err(|e| e.to_string())?;
    let report = answer(&whatif, &recording, &args.conf, args.limit, &progress)?;
    let saved = match (&args.save, report.runs.first()) {
        (Some(path), Some(run)) => Some(save(args, &whatif, &recording, &run.row, path, &progress)?),
        _ => None,
    };
    if args.json {
        return print_json(out, &report);
    }
    let told = of_device(&recording, device) + &text(&report) + &others(&recording, device);
    print_of(out, &[(&recording).into()], &(told + &saved.map_or(String::new(), |s| format!("\n{s}\n"))))
}

fn answer(
    whatif: &WhatIf<'_>,
    recording: &Recording,
    confs: &[String],
    limit: Option<u64>,
    progress: &Progress,
) -> Result<WhatIfReport, String> {
    let before = whatif.requests().reserved_before();
    if let Some(limit) = limit.filter(|&limit| limit < before) {
        let [before, limit] = told_apart([before, limit]);
        let name = &recording.source.name;
        return Err(format!(
            "{name}: this recording begins with {before} reserved, above a limit of {limit}: ask about a higher one, or record from the start of the program"
        ));
    }
    let limit = limit.or(whatif.own_limit());
    let is_suggested = confs.is_empty();
    let suggested: Vec<String> = SUGGESTED.iter().map(|(conf, _)| (*conf).to_owned()).collect();
    let confs = if is_suggested { &suggested } else { confs };
    let questions = confs
        .iter()
        .map(|conf| Question::parse(conf, limit).map_err(|e| format!("--conf \"{conf}\": {e}")))
        .collect::<Result<Vec<_>, String>>()?;
    let answers = whatif.ask_all(&questions, 0, progress).map_err(|e| e.to_string())?;
    let own = whatif.own();
    let first_difference = match &own.agreement {
        vramscope_core::inference::Agreement::Agrees => None,
        vramscope_core::inference::Agreement::Differs(difference) => Some(difference.to_string()),
    };
    let truncated = recording.report.truncated().is_some();
    let rows: Vec<&Row> = answers.iter().map(|a| &a.row).collect();
    let best = best(&rows).map(|(run, why)| BestEntry { run, why });
    let runs = answers
        .iter()
        .map(|a| RunEntry {
            row: Row { agrees_with_recording: a.row.agrees_with_recording && !truncated, ..a.row.clone() },
            over_limit_bytes: a.row.over_limit(),
            assumptions: a.assumptions.iter().map(ToString::to_string).collect(),
        })
        .collect();
    let agreement = AgreementEntry {
        agrees: own.reproduces() && !truncated,
        agrees_as_far_as_read: own.agreement.agrees(),
        first_difference,
        conf: own.replay.conf.to_string(),
        limit_span_bytes: own.limit_range().map(|r| [r.least, r.most]),
        torch_rules: own.replay.version.to_string(),
    };
    Ok(WhatIfReport { limit, is_suggested, runs, truncated, device: whatif.requests().device().id.index, agreement, best })
}

/// Saves a run with every event as a snapshot. Returns a sentence on what was written.
fn save(
    args: &WhatifArgs,
    whatif: &WhatIf<'_>,
    recording: &Recording,
    row: &Row,
    path: &Path,
    progress: &Progress,
) -> Result<String, String> {
    let question = Question::parse(&row.conf, row.limit_bytes).map_err(|e| e.to_string())?;
    let simulated = whatif.simulate(recording, &question, progress).map_err(|e| e.to_string())?;
    export::save(&simulated, path, &[&args.file], args.force).map_err(|e| e.to_string())?;
    let events: usize = simulated.devices.iter().map(|d| d.events.len()).sum();
    Ok(format!("{}: the run with {} and its {} events, as a snapshot", path.display(), shown(&row.conf), count(events as u64)))
}

/// The requested device or the busiest one. It must be a GPU with recorded requests.
fn choose(recording: &Recording, index: Option<i32>) -> Result<&DeviceRecording, String> {
    let name = &recording.source.name;
    let device = &recording.devices[choose_device(recording, index)?];
    if matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
        return Err(format!("{name}: {} is not managed by the CUDA caching allocator, so its settings do not apply", device.id));
    }
    match recording.source.format {
        Format::RmmLog => {
            return Err(format!("{name}: RMM made these requests, and PyTorch's settings do not apply to its pools"));
        }
        Format::JaxMemoryProfile => {
            return Err(format!(
                "{name}: JAX's profile has no requests to run again, and PyTorch's settings do not apply to JAX"
            ));
        }
        _ => {}
    }
    without_requests(device).map_or(Ok(device), |sentence| Err(format!("{name}: {sentence}")))
}

/// Why there is nothing to simulate on a device; `None` when there is.
pub(super) fn without_requests(device: &DeviceRecording) -> Option<String> {
    if let Some(before) = WhatIf::mostly_before(device) {
        return Some(format!(
            "{} of {} cannot be run again: they were reserved before profiling began, and the trace has no requests for them; profile from the start",
            Bytes(before),
            device.id
        ));
    }
    let what = match WhatIf::has_requests(device) {
        true => return None,
        false if device.events.is_empty() => "there is no trace of it, only its state",
        false => "its trace holds no request for memory",
    };
    let record = Words::of(device).say(vramscope_core::diagnose::limits::RECORD);
    Some(format!("nothing of {} can be run again: {what}; record one with {record} before the model is built", device.id))
}

fn text(report: &WhatIfReport) -> String {
    let mut out = match &report.agreement.first_difference {
        None if report.agreement.agrees => "The model agrees with this recording, event by event.\n".to_owned(),
        None => {
            "The model does the same as the events that could be read; the recording breaks off there, so neither its end nor what came after can be compared.\n"
                .to_owned()
        }
        Some(difference) => {
            format!("The model does not reproduce this recording: {difference}. Take the figures as estimates.\n")
        }
    };
    if let Some(limit) = report.limit {
        // A limit typed in decimal units is also shown in decimal units.
        let typed = Bytes(limit).round_decimal().map_or(String::new(), |decimal| format!(" ({decimal})"));
        out += &match report.agreement.limit_span_bytes {
            Some([least, most]) if least < most && (least..=most).contains(&limit) => {
                let range = CapRange { least, ..CapRange::exact(most) };
                format!("Limit: {}; {} is used here; set it with --limit\n", range.estimate(), Bytes(limit).limit())
            }
            Some([least, most]) if limit < least || limit > most => {
                let range = CapRange { least, ..CapRange::exact(most) };
                let which = if limit > most { "higher" } else { "lower" };
                format!(
                    "Limit: {}{typed}; the recording's own cap was {range}, so this asks about a {which} one\n",
                    Bytes(limit).limit()
                )
            }
            _ => format!("Limit: {}{typed}\n", Bytes(limit).limit()),
        };
    }
    let device = report.runs.first().and_then(|r| r.row.device_bytes);
    if let Some((limit, all)) = report.limit.zip(device).filter(|(limit, all)| limit > all) {
        out += &format!("The device has {} in all: {} would be another card.\n", Bytes(all).limit(), Bytes(limit).limit());
    }
    match &report.best {
        Some(best) if report.runs.len() > 1 => {
            out += &format!("Best: {}: {}\n", shown(&report.runs[best.run].row.conf), best.why);
        }
        None if report.runs.len() > 1 => out += "None of these settings lets every request through.\n",
        _ => {}
    }
    let mut table = Table::new("lrrrl");
    table.row(["settings", "peak reserved", "beyond allocated", "retries", "outcome"]);
    let mut rows = Vec::new();
    let size = SizeColumn::of(report.runs.iter().map(|run| run.row.peak_reserved_bytes));
    for run in &report.runs {
        let row = &run.row;
        let beyond = row.peak_reserved_bytes.saturating_sub(row.peak_allocated_bytes);
        rows.push([
            shown(&row.conf).to_owned(),
            size.sized(row.peak_reserved_bytes),
            size.sized(beyond),
            count(row.num_alloc_retries),
            outcome(row, size),
        ]);
    }
    if report.is_suggested {
        table.rows_folded(&rows, ["other setting", "other settings"]);
    } else {
        // Settings that the user named are all listed.
        rows.into_iter().for_each(|row| table.row(row));
    }
    out += &format!("\n{table}\n");
    out += "Beyond allocated: the peak of reserved less the peak of allocated memory, what perfect packing would not have reserved.\n";
    if let Some(over) = report.runs.iter().map(|r| r.over_limit_bytes).max().filter(|&over| over > 0) {
        out += &format!("Up to {} over: {OVER_LIMIT}.\n", size.sized(over));
    }
    let mut told: Vec<&String> = report.runs.iter().flat_map(|r| &r.assumptions).collect();
    told.sort();
    told.dedup();
    if !told.is_empty() {
        out += "\nAssumed:\n";
        for sentence in told {
            out += &format!("  {}.\n", capital(sentence));
        }
    }
    out
}

/// `size` is the column format of the table.
fn outcome(row: &Row, size: SizeColumn) -> String {
    let mut text = match row.oom_request {
        Some(request) => format!("out of memory after {}", counted(request, "request", "requests")),
        None if row.oom_varies => match row.passes_from_bytes {
            Some(from) => format!("may pass: from a limit of {} on", size.sized(from)),
            None => "may pass".to_owned(),
        },
        None if !row.is_verdict_certain() => "may pass".to_owned(),
        None => "passes".to_owned(),
    };
    if let Some(horizon) = row.ends_at_failure.filter(|_| row.oom_request.is_none()) {
        text += &format!(", {}", horizon.reach());
    }
    if let Some([low, high]) = row.oom_request_span.filter(|[low, high]| low < high) {
        // A run that does not fail counts as having served every request.
        text += &match row.oom_request {
            None => format!(", or fails after {}", count(low)),
            Some(request) if row.oom_varies && low == request => ", or passes".to_owned(),
            Some(_) if row.oom_varies => format!(" (or already after {}), or passes", count(low)),
            Some(_) => format!(" (between {} and {})", count(low), count(high)),
        };
    }
    let span = row.peak_reserved_span;
    if span[0] != span[1] {
        let [low, high] = span.map(|bytes| size.sized(bytes));
        let [low, high] = if low == high { told_apart(span) } else { [low, high] };
        text += &format!("; peak {low} to {high}");
    }
    if row.over_limit() > 0 {
        text += &format!("; {} over the limit", size.sized(row.over_limit()));
    }
    if row.is_outcome_certain() {
        return text;
    }
    text += match row.uncertain_because {
        Some("placement") => ", depending on where the driver puts segments",
        Some("limit") => "; not certain, because the exact limit is not known",
        Some("timing") => ", depending on when other streams finish",
        Some(_) if row.is_verdict_certain() => "; the peak is an estimate, see below",
        Some(_) => "; an estimate, see below",
        None => "",
    };
    text
}

fn shown(conf: &str) -> &str {
    if conf.is_empty() { "(defaults)" } else { conf }
}
