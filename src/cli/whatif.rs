//! `vramscope whatif FILE --conf CONF …`: the same requests under other settings and limits.

use std::io::Write;

use serde::Serialize;

use super::args::WhatifArgs;
use super::{Table, choose_device, open, print, print_json};
use crate::allocator::whatif::{Question, Row, SUGGESTED, WhatIf};
use crate::model::{DeviceKind, DeviceRecording, Progress, Recording};
use crate::units::{Bytes, count};

/// The JSON object of the command-line contract.
#[derive(Debug, Serialize)]
pub struct WhatIfReport {
    /// One entry a setting, in the order asked.
    pub runs: Vec<RunEntry>,
    /// The device's ordinal.
    pub device: i32,
    /// Whether the model reproduces the recording; if not, where it departs first.
    pub agreement: AgreementEntry,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct RunEntry {
    /// The figures.
    #[serde(flatten)]
    pub row: Row,
    /// What the trace does not tell and was assumed.
    pub assumptions: Vec<String>,
}

/// The recording under its own settings.
#[derive(Debug, Serialize)]
pub struct AgreementEntry {
    agrees: bool,
    first_difference: Option<String>,
    conf: String,
    limit_span_bytes: Option<[u64; 2]>,
    torch_rules: String,
}

/// Answers for a file.
///
/// # Errors
/// One sentence: the file can not be read, has no such device, or has no trace.
pub fn run(args: &WhatifArgs, out: &mut dyn Write) -> Result<(), String> {
    let recording = open(&args.file)?;
    let report = report(&recording, &args.conf, args.limit, args.device, &Progress::new())?;
    if args.json { print_json(out, &report) } else { print(out, &text(&report)) }
}

/// Answers for a recording. Without a limit the recording's own applies, as far as it is known; without settings the
/// suggested ones are tried.
///
/// # Errors
/// One sentence: there is no such device, it has no trace, or a setting is wrong.
pub fn report(
    recording: &Recording,
    confs: &[String],
    limit: Option<u64>,
    device: Option<i32>,
    progress: &Progress,
) -> Result<WhatIfReport, String> {
    let chosen = choose(recording, device)?;
    let whatif = WhatIf::new(chosen, None, progress).map_err(|e| e.to_string())?;
    let limit = limit.or(whatif.own_limit());
    let suggested: Vec<String> = SUGGESTED.iter().map(|(conf, _)| (*conf).to_owned()).collect();
    let confs = if confs.is_empty() { &suggested } else { confs };
    let questions = confs
        .iter()
        .map(|conf| Question::parse(conf, limit).map_err(|e| format!("--conf \"{conf}\": {e}")))
        .collect::<Result<Vec<_>, String>>()?;
    let answers = whatif.ask_all(&questions, 0, progress).map_err(|e| e.to_string())?;
    let own = whatif.own();
    let first_difference = match &own.agreement {
        crate::allocator::Agreement::Agrees => None,
        crate::allocator::Agreement::Differs(difference) => Some(difference.to_string()),
    };
    let runs = answers
        .iter()
        .map(|a| RunEntry { row: a.row.clone(), assumptions: a.assumptions.iter().map(ToString::to_string).collect() })
        .collect();
    let agreement = AgreementEntry {
        agrees: own.agreement.agrees(),
        first_difference,
        conf: own.replay.conf.to_string(),
        limit_span_bytes: own.limit_span.map(|(least, most)| [least, most]),
        torch_rules: own.replay.version.to_string(),
    };
    Ok(WhatIfReport { runs, device: chosen.id.index, agreement })
}

/// The device asked for, or the busiest one; it must be a GPU with a trace.
fn choose(recording: &Recording, index: Option<i32>) -> Result<&DeviceRecording, String> {
    let name = &recording.source.name;
    let device = &recording.devices[choose_device(recording, index)?];
    if matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
        return Err(format!("{name}: {} is not managed by the CUDA caching allocator, so its settings do not apply", device.id));
    }
    if device.events.is_empty() {
        return Err(format!(
            "{name}: there is no trace of {}, only its state, so nothing can be run again; record one with torch.cuda.memory._record_memory_history()",
            device.id
        ));
    }
    Ok(device)
}

fn text(report: &WhatIfReport) -> String {
    let mut out = match &report.agreement.first_difference {
        None => "The model agrees with this recording, event by event.\n".to_owned(),
        Some(difference) => {
            format!("The model does not reproduce this recording: {difference}. Take the figures as estimates.\n")
        }
    };
    if let Some(limit) = report.runs.first().and_then(|r| r.row.limit_bytes) {
        out += &format!("Limit: {}\n", Bytes(limit));
    }
    let mut table = Table::new("lrrrl");
    table.row(["settings", "peak reserved", "waste at peak", "retries", "outcome"]);
    for run in &report.runs {
        let row = &run.row;
        let waste = row.peak_reserved_bytes.saturating_sub(row.peak_allocated_bytes);
        table.row([
            shown(&row.conf).to_owned(),
            Bytes(row.peak_reserved_bytes).to_string(),
            Bytes(waste).to_string(),
            count(row.num_alloc_retries),
            outcome(row),
        ]);
    }
    out += &format!("\n{table}");
    let mut told: Vec<&String> = report.runs.iter().flat_map(|r| &r.assumptions).collect();
    told.sort();
    told.dedup();
    if !told.is_empty() {
        out += "\nAssumed:\n";
        for sentence in told {
            out += &format!("  {sentence}.\n");
        }
    }
    out
}

fn outcome(row: &Row) -> String {
    let mut text = match row.oom_request {
        Some(request) => format!("out of memory at request {}", count(request)),
        None => "passes".to_owned(),
    };
    let [low, high] = row.peak_reserved_span;
    if low != high {
        text += &format!("; peak {} to {}", Bytes(low), Bytes(high));
    }
    text += match row.uncertain_because {
        Some("placement") => ", depending on where the driver puts segments",
        Some("limit") => "; not certain, because the exact limit is not known",
        Some("timing") => ", depending on when other streams finish",
        Some(_) => "; an estimate, see below",
        None => "",
    };
    text
}

fn shown(conf: &str) -> &str {
    if conf.is_empty() { "(defaults)" } else { conf }
}
