//! `vramscope plan A B --at batch=8 --at batch=16 …`: the memory that a program would need at other sizes.

use std::io::Write;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::args::PlanArgs;
use super::{Failure, choose_device, open_blocks, print, print_json};
use vramscope_core::inference::whatif::SUGGESTED;
use vramscope_core::model::{Format, Progress, Recording};
use vramscope_core::plan::cards::Card;
use vramscope_core::plan::{Change, Changed, Input, Largest, NoPlan, Plan, Predicted, Server, Setting, Side, Size, Unexplained};
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::{Bytes, counted};

mod text;

/// The JSON object of the command.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    /// How well the recordings explain the program.
    pub fits: FitsEntry,
    /// One entry per wanted size, in the order of the command line.
    pub at: Vec<Predicted>,
    /// One entry per setting, in the order of the command line.
    pub largest: Vec<Largest>,
    /// One entry per change.
    pub changes: Vec<Changed>,
    /// The most bytes that may be reserved; `null` for no limit.
    pub cap_bytes: Option<u64>,
    /// The quantity that `largest` refers to.
    pub largest_of: Option<String>,
    /// Sizes below the largest one that were tried under the first setting and may not fit.
    pub holes: Vec<u64>,
    /// The memory of a server by use, when the quantity is the size of a KV cache; otherwise `null`.
    pub server: Option<Server>,
    /// Number of planned steps; 0 when no steps were found.
    pub steps: usize,
    /// Sentences on what the recordings leave unknown.
    pub notes: Vec<String>,
    /// What a failure in a recording leaves unknown, because the requests after it were never made. `null` without a failure.
    pub left_open: Option<String>,
}

/// How well the recordings explain the program.
#[derive(Debug, Default, Serialize)]
pub struct FitsEntry {
    /// Bytes of explained requests at the peak of the largest recording. A request is explained when its size is a function of
    /// the run's size.
    pub explained_bytes: u64,
    /// The most bytes that unexplained requests held at once, at any moment. They widen the ranges.
    pub unexplained_bytes: u64,
    /// Why there is no plan; `null` when there is one.
    pub reason: Option<String>,
    /// Unexplained requests, most bytes first.
    pub unexplained: Vec<Unexplained>,
    /// When two recordings are of different programs: what each requests where they start to differ. Otherwise empty.
    pub parts_at: Vec<Side>,
}

/// Runs the subcommand. Fails when a file cannot be read or the recordings are of different programs. Missing sizes and unknown
/// cards, changes or quantities are errors of usage.
pub fn run(args: &PlanArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let wrong = |sentence: String| Err(Failure::Usage(sentence));
    if args.files.len() != args.at.len() {
        return wrong(format!(
            "{} and {}: write one --at for each recording, in their order",
            counted(args.files.len() as u64, "recording", "recordings"),
            counted(args.at.len() as u64, "size", "sizes")
        ));
    }
    let card = args.card.as_deref().map(Card::find).transpose().map_err(Failure::Usage)?;
    if let (Some(card), Some(held)) = (card, args.held)
        && held >= card.usable()
    {
        let (held, usable) = (Bytes(held), Bytes(card.usable()));
        return wrong(format!(
            "--held: other programs hold {held}, and the {} has {usable} for all of them: nothing is left",
            card.name
        ));
    }
    let cap = args.cap.or(card.map(|c| c.usable().saturating_sub(args.held.unwrap_or(0))));
    if args.largest.is_some() && cap.is_none() {
        return wrong("the largest size that fits what? Write --cap 24GiB or --card \"RTX 4090\"".to_owned());
    }
    changes_of(args)?;
    let progress = Progress::new();
    let mut opened: Vec<(Arc<Recording>, usize, DeviceTables)> = Vec::new();
    for file in &args.files {
        let recording = open_blocks(file)?;
        let device = choose_device(&recording, args.device)?;
        if recording.source.format == Format::JaxMemoryProfile {
            return Err(format!(
                "{}: JAX's profile has no requests to plan from, only what was held at one instant; a plan is of PyTorch programs",
                file.display()
            )
            .into());
        }
        if let Some(why) = super::whatif::without_requests(&recording.devices[device]) {
            return Err(format!("{}: {why}", file.display()).into());
        }
        if recording.source.format == Format::Plan {
            return Err(format!(
                "{}: this run is predicted already and was never made; plan from the recordings that it follows from",
                file.display()
            )
            .into());
        }
        let tables = DeviceTables::build(&recording.devices[device], &progress).map_err(|e| e.to_string())?;
        opened.push((Arc::new(recording), device, tables));
    }
    let inputs = opened
        .iter()
        .zip(&args.at)
        .map(|((recording, device, tables), at)| Input {
            recording: Arc::clone(recording),
            device: *device,
            tables,
            at: at.clone(),
        })
        .collect();
    let plan = match Plan::of_steps(inputs, args.steps.map(usize::from), &progress) {
        Ok(plan) => plan,
        Err(why @ (NoPlan::Parts(_) | NoPlan::Steps(_) | NoPlan::NoSteps(_) | NoPlan::Sizes(_))) if args.json => {
            let reason = Some(why.to_string());
            let is_wrong = matches!(why, NoPlan::Sizes(_));
            let parts_at = if let NoPlan::Parts(parting) = why { parting.sides.to_vec() } else { Vec::new() };
            let fits = FitsEntry { reason, parts_at, ..FitsEntry::default() };
            let (at, largest, changes, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let report = PlanReport {
                fits,
                at,
                largest,
                changes,
                cap_bytes: cap,
                largest_of: None,
                holes: Vec::new(),
                server: None,
                steps: 0,
                notes,
                left_open: None,
            };
            print_json(out, &report)?;
            let reason = report.fits.reason.unwrap_or_default();
            return if is_wrong { wrong(reason) } else { Err(reason.into()) };
        }
        Err(why @ NoPlan::Sizes(_)) => return wrong(why.to_string()),
        Err(why) => return Err(why.to_string().into()),
    };
    let report = answer(&plan, args, cap)?;
    if args.json {
        return Ok(print_json(out, &report)?);
    }
    let settings = settings(&plan, args, cap)?;
    let setting = settings.first().cloned().unwrap_or_else(|| plan.own_setting(cap));
    Ok(print(out, &text::Told { plan: &plan, report: &report, setting: &setting, card, args }.text())?)
}

/// How many sizes below the largest one are tried as well.
const HOLES_TRIED: u64 = 48;

/// One `--change` option.
enum Asked {
    Changes(Vec<Change>),
    /// Gradient accumulation: the batch in this many passes.
    Passes(u64),
}

/// The requested changes, one row each.
fn changes_of(args: &PlanArgs) -> Result<Vec<Asked>, Failure> {
    let parse = |text: &String| match text.trim().split_once([':', '=']) {
        Some(("accumulate", n)) => match n.trim().parse() {
            Ok(n @ 2..) => Ok(Asked::Passes(n)),
            _ => Err(format!("\"{text}\" needs a number of passes from 2 on, as in accumulate:2")),
        },
        _ => Change::parse(text).map(Asked::Changes),
    };
    args.change.iter().filter(|c| *c != "all").map(|c| parse(c).map_err(Failure::Usage)).collect()
}

pub(super) fn answer(plan: &Plan, args: &PlanArgs, cap: Option<u64>) -> Result<PlanReport, Failure> {
    let unknown = |name: &str| {
        Failure::Usage(format!("{name} is no quantity of these recordings: they were run at {}", plan.names().join(" and ")))
    };
    let settings = settings(plan, args, cap)?;
    let first = settings.first().cloned().unwrap_or_else(|| plan.own_setting(cap));
    let varied = || plan.names().iter().find(|name| plan.held_at(name).is_none()).cloned();
    let name = args.largest.clone().or_else(|| cap.and_then(|_| varied()));
    if let Some(name) = name.as_ref().filter(|n| !plan.names().contains(n)) {
        return Err(unknown(name));
    }
    if let Some(why) = args.largest.as_ref().and_then(|name| plan.not_varied(name)) {
        return Err(Failure::Usage(format!("--largest: {why}")));
    }
    let mut wanted = args.want.clone();
    let largest_at = &plan.programs()[plan.largest_at()].at;
    if wanted.is_empty() && name.is_none() {
        let (quantity, value) = largest_at.iter().find(|(n, _)| plan.held_at(n).is_none()).unwrap_or(("batch", 1));
        wanted.push(largest_at.with(quantity, value * 2));
    }
    if let Some(name) = wanted.iter().flat_map(Size::names).find(|n| !plan.names().iter().any(|m| m == n)) {
        return Err(unknown(name));
    }
    if let Some(why) = wanted.iter().find_map(|want| plan.is_unknown_at(want)) {
        return Err(Failure::Usage(format!("--want: {why}")));
    }
    if let Some(size) = wanted.iter().map(|want| completed(want, largest_at)).find(|size| plan.is_beyond(size)) {
        return Err(Failure::Usage(format!("--want: {size} needs more than 16 TiB; plan for a smaller size")));
    }
    let mut sizes: Vec<Size> = Vec::new();
    for size in wanted.iter().map(|want| completed(want, largest_at)) {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    let at = sizes.par_iter().map(|size| plan.at(size, &first)).collect();
    let size = sizes.first().unwrap_or(largest_at).clone();
    let largest = match &name {
        Some(name) => plan.largest_by_setting(name, &size, &settings),
        None => Vec::new(),
    };
    let of_largest = args.largest.as_ref().zip(largest.first());
    let holes = of_largest.map_or(Vec::new(), |(name, best)| plan.holes(name, best, &size, &first, HOLES_TRIED));
    let (explained_bytes, unexplained_bytes, unexplained) = match plan.model() {
        Some(model) => {
            let (explained, unexplained) = model.explained();
            (explained, unexplained, model.unexplained())
        }
        None => (0, 0, Vec::new()),
    };
    let fits = FitsEntry { explained_bytes, unexplained_bytes, reason: None, unexplained, parts_at: Vec::new() };
    let changes = if args.change.iter().any(|c| c == "all") {
        plan.all_changes(&size, &first, name.as_deref())
    } else {
        let mut rows = Vec::new();
        for asked in changes_of(args)? {
            rows.extend(match asked {
                Asked::Changes(changes) => {
                    if let Some(why) = changes.iter().find_map(|change| plan.unknown_name(change)) {
                        return Err(Failure::Usage(format!("--change: {why}")));
                    }
                    plan.change(&changes, &size, &first, name.as_deref())
                }
                Asked::Passes(n) => match plan.accumulated(n, &size, &first) {
                    None => {
                        return Err(Failure::Usage(format!(
                            "accumulate:{n} divides a batch of {n} or more, and {size} has none"
                        )));
                    }
                    row => row,
                },
            });
        }
        rows
    };
    let steps = plan.model().map_or(0, |model| model.program.steps);
    Ok(PlanReport {
        fits,
        at,
        largest,
        changes,
        cap_bytes: cap,
        largest_of: name,
        holes,
        server: plan.server(),
        steps,
        notes: plan.notes().to_vec(),
        left_open: plan.left_open(),
    })
}

/// A wanted size. Quantities that it does not name are taken from the largest recording.
fn completed(want: &Size, largest: &Size) -> Size {
    largest.iter().fold(largest.clone(), |size, (name, value)| size.with(name, want.get(name).unwrap_or(value)))
}

/// The requested settings. By default the recorded ones and, when there is a cap, settings that may help.
fn settings(plan: &Plan, args: &PlanArgs, cap: Option<u64>) -> Result<Vec<Setting>, Failure> {
    if !args.conf.is_empty() {
        let parse = |c: &String| {
            let wrong = |why: &str| Failure::Usage(format!("--conf \"{c}\": {why}"));
            let setting = Setting::parse(c, cap).map_err(|e| wrong(&e.to_string()))?;
            match setting.conf.other("backend").filter(|b| *b != "native") {
                Some(_) => Err(wrong("CUDA's own allocator is not modelled; a plan is of PyTorch's native one")),
                None => Ok(setting),
            }
        };
        return args.conf.iter().map(parse).collect();
    }
    let own = plan.own_setting(cap);
    let mut all = vec![own.clone()];
    if cap.is_some() {
        let suggested = SUGGESTED.iter().filter_map(|(conf, _)| Setting::parse(conf, cap).ok());
        all.extend(suggested.filter(|s| s.conf != own.conf));
    }
    Ok(all)
}
