//! `vramscope probe SCENARIO [OUT]`: provokes a memory problem on this card or on simulated memory, and records it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::args::ProbeArgs;
use super::{Failure, Table, choose_device, open, print, print_json};
use vramscope_core::diagnose::export;
use vramscope_core::formats::export::new_file::refusal;
use vramscope_core::model::Progress;
use vramscope_core::units::{Bytes, SizeColumn, count, told_apart};
use vramscope_live::probe::{
    ALL, Compared, Conditions, Ending, Job, Report, Run, Scenario, Target, Values, child, handed_over, neighbour, replay_report,
    run_to_end,
};

/// The JSON object of a run.
#[derive(Debug, Serialize)]
struct ProbeReport {
    #[serde(flatten)]
    report: Report,
    /// For a replay: its figures beside those of the model and of the recording.
    #[serde(flatten)]
    compared: Option<Compared>,
    /// The file that was written.
    out: Option<PathBuf>,
}

/// Lists the scenarios, runs one, or replays a recording. An unknown scenario or parameter is an error of usage. A missing card
/// or a failed run is not.
pub fn run(args: &ProbeArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(bytes) = args.neighbour {
        return Ok(neighbour(args.device, bytes, out)?);
    }
    let Some(name) = &args.scenario else {
        return Ok(if args.json { print_json(out, &listing()) } else { print(out, &list()) }?);
    };
    let (job, file) = job(name, args)?;
    let target = if args.simulated {
        Target::Simulated
    } else {
        Target::Card { index: args.device, is_shared: args.shared, fills: args.fill }
    };
    let conditions =
        Conditions { conf: args.conf.clone(), limit: args.limit, pace: Duration::from_millis(args.pace.unwrap_or(0)) };
    if args.child {
        return Ok(child(&job, target, &conditions, out)?);
    }
    if let Some(file) = file
        && file.extension().is_none_or(|e| e != "pickle")
    {
        return Err(Failure::Usage(format!(
            "{}: a probe's recording is written as a PyTorch snapshot, so its name must end in .pickle",
            file.display()
        )));
    }
    let sources: Vec<&Path> = args.paths.first().filter(|_| name == "replay").map(PathBuf::as_path).into_iter().collect();
    // A run takes minutes on a card, so the output path is checked before it.
    if let Some(error) = file.and_then(|file| refusal(file, &sources, args.force)) {
        return Err(error.into());
    }
    let run = Run::start(&job, target, &conditions)?;
    let (report, recording) = Report::of(run_to_end(&run, &job, &mut |_| {}))?;
    if let Some(file) = file {
        export::save(&recording, file, &sources, args.force)?;
    }
    let compared = match &job {
        Job::Replay { recording, device, .. } => {
            let device = &recording.devices[*device];
            Some(replay_report(device, &report.conf, report.limit_bytes, &report.end, &Progress::new())?)
        }
        Job::Scenario { .. } | Job::Handed(_) => None,
    };
    let whole = ProbeReport { report, compared, out: file.map(Path::to_owned) };
    Ok(if args.json { print_json(out, &whole) } else { print(out, &text(&whole, &job)) }?)
}

/// The job of the command line, and the file to write.
fn job<'a>(name: &str, args: &'a ProbeArgs) -> Result<(Job, Option<&'a Path>), Failure> {
    let misused = |sentence: &str| Failure::Usage(sentence.to_owned());
    let [first, second] = [0, 1].map(|i| args.paths.get(i).map(PathBuf::as_path));
    if name == "replay" {
        if args.child {
            return Ok((handed_over(&mut std::io::stdin().lock())?, None));
        }
        let path = first.ok_or_else(|| misused("probe replay needs the recording whose requests are to run again"))?;
        if !args.param.is_empty() {
            return Err(misused("a replay has no parameters; --conf and --limit change its conditions"));
        }
        let recording = Arc::new(open(path)?);
        let device = choose_device(&recording, args.from_device)?;
        return Ok((Job::Replay { recording, device }, second));
    }
    let scenario = Scenario::find(name).map_err(Failure::Usage)?;
    if args.from_device.is_some() {
        return Err(misused("--from-device chooses a device of the recording that probe replay runs again; a scenario has none"));
    }
    if second.is_some() {
        return Err(misused("a scenario takes one file, the recording to write"));
    }
    let mut values = Values::of(scenario);
    for text in &args.param {
        values.set(text).map_err(Failure::Usage)?;
    }
    Ok((Job::Scenario { scenario, values }, first))
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    title: &'static str,
    watch: &'static str,
    shows: &'static str,
    conf: &'static str,
    parameters: Vec<ListedParam>,
}

#[derive(Serialize)]
struct ListedParam {
    name: &'static str,
    about: &'static str,
    default: u64,
    least: u64,
    most: u64,
}

fn listing() -> Vec<Listed> {
    ALL.iter()
        .map(|s| Listed {
            name: s.name,
            title: s.title,
            watch: s.watch,
            shows: s.shows,
            conf: s.conf,
            parameters: s
                .params
                .iter()
                .map(|p| ListedParam { name: p.name, about: p.about, default: p.default, least: p.range.0, most: p.range.1 })
                .collect(),
        })
        .collect()
}

fn list() -> String {
    let mut out = format!("{} scenarios. Each is named after the finding that its recording shows.\n", ALL.len());
    for s in ALL {
        out += &format!("\n{}: {}\n  {}\n", s.name, s.title, s.watch);
        for p in s.params {
            let (least, most) = p.range;
            let range = if p.unit == vramscope_live::probe::Unit::Seed {
                String::new()
            } else {
                format!(" ({} to {})", p.show(least), p.show(most))
            };
            out += &format!("  --param {}={}{range}: {}\n", p.name, p.show(p.default), p.about);
        }
        if !s.conf.is_empty() {
            out += &format!("  --conf {}\n", s.conf);
        }
    }
    out += "\nvramscope probe SCENARIO [--simulated] OUT.pickle runs one; vramscope probe replay FILE [OUT.pickle] runs a recording's requests.\n";
    out
}

fn text(whole: &ProbeReport, job: &Job) -> String {
    let r = &whole.report;
    let mut out = match (&r.end.ending, r.as_expected) {
        (Ending::Stopped, _) => format!("{} was stopped.\n", r.scenario),
        (_, true) if matches!(job, Job::Replay { .. }) => "The recording's requests ran again.\n".to_owned(),
        (_, true) => format!("{}: the findings of this run show it, as expected.\n", r.scenario),
        (_, false) => format!("{}: the findings of this run show something else: {}.\n", r.scenario, r.diagnosis),
    };
    out += &format!("Card: {}{}\n", r.card, if r.simulated { "" } else { " (real)" });
    if !r.conf.is_empty() {
        out += &format!("Settings: {}\n", r.conf);
    }
    if let Some(limit) = r.limit_bytes {
        out += &format!("Limit: {}\n", Bytes(limit).limit());
    }
    if !r.parameters.is_empty() {
        out += &format!("Parameters: {}\n", r.parameters);
    }
    let ending = match &r.end.ending {
        Ending::OutOfMemory(text) => text.clone(),
        Ending::Finished => "all steps ran".to_owned(),
        Ending::Stopped => "stopped".to_owned(),
        Ending::Failed(sentence) => sentence.clone(),
    };
    out += &format!("End: {ending}\n\n");
    match &whole.compared {
        None => {
            let mut table = Table::new("lr");
            let peaks = [r.end.peak_reserved_bytes, r.end.peak_active_bytes, r.end.peak_requested_bytes];
            let size = SizeColumn::of(peaks);
            for (name, peak) in ["peak reserved", "peak active", "peak requested"].into_iter().zip(peaks) {
                table.row([name.to_owned(), size.sized(peak)]);
            }
            table.row(["retries".to_owned(), count(r.end.num_alloc_retries)]);
            table.row(["events".to_owned(), count(r.events)]);
            out += &table.to_string();
        }
        Some(compared) => out += &comparison(compared, r.end.depends_on_placement),
    }
    if let Some(difference) = r.end.driver_difference_bytes {
        let samples = count(r.end.driver_samples);
        out +=
            &format!("Over {samples} samples, reserved memory and the driver's count differ by at most {}.\n", Bytes(difference));
    }
    if let Some(difference) = r.end.nvml_difference_bytes {
        out += &format!("NVML and the driver differ by at most {} in what is used on the card.\n", Bytes(difference));
    }
    if let Some(file) = &whole.out {
        out += &format!("Written: {}\n", file.display());
    }
    out
}

fn comparison(compared: &Compared, depends_on_placement: bool) -> String {
    let mut table = Table::new("lrrr");
    table.row(["", "this run", "model", "recording"]);
    let is_bytes = |c: &&vramscope_live::probe::Comparison| c.what.ends_with("_bytes");
    let sizes = compared.comparison.iter().filter(is_bytes).flat_map(|c| [c.card, c.model, c.recorded.unwrap_or(0)]);
    let size = SizeColumn::of(sizes);
    for c in &compared.comparison {
        let is_bytes = is_bytes(&c);
        let show = |v: u64| if is_bytes { size.sized(v) } else { count(v) };
        let what = c.what.trim_end_matches("_bytes").replace('_', " ");
        let missing = if is_bytes { "not recorded" } else { "" };
        table.row([what, show(c.card), show(c.model), c.recorded.map_or(missing.to_owned(), show)]);
    }
    let [low, high] = told_apart(compared.model_span_bytes);
    let verdict = match (compared.agrees_with_model, compared.model_is_certain) {
        (true, true) => "This run and the model agree to the byte.".to_owned(),
        (true, false) => format!(
            "This run is as the model says, which depends on where the driver puts segments: peak {low} to {high}."
        ),
        (false, _) if depends_on_placement => {
            "This run and the model differ, as they may: equal free blocks were chosen by address, and addresses are the driver's."
                .to_owned()
        }
        (false, _) => "This run and the model differ.".to_owned(),
    };
    format!("{table}\n{verdict}\n")
}
