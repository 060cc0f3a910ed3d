//! `vramscope plan A B --at batch=8 --at batch=16 …`: what a program would need at sizes that were not run.

use std::io::Write;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Serialize;

use super::args::PlanArgs;
use super::{Failure, Table, choose_device, open_blocks, print, print_json};
use vramscope_core::anatomy::Role;
use vramscope_core::inference::whatif::SUGGESTED;
use vramscope_core::model::{Format, Progress, Recording, StrId};
use vramscope_core::plan::cards::{CONTEXT, Card};
use vramscope_core::plan::{
    Change, Changed, Input, Largest, NoPlan, Plan, Predicted, Server, Setting, Side, Size, Trust, Unexplained, holes_sentence,
    is_no_answer,
};
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

/// The JSON object of the command-line contract.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    /// How well the recordings explain the program.
    pub fits: FitsEntry,
    /// One entry a wanted size, in the order asked.
    pub at: Vec<Predicted>,
    /// One entry a setting, in the order asked.
    pub largest: Vec<Largest>,
    /// One entry a change.
    pub changes: Vec<Changed>,
    /// The most bytes that may be reserved; `null` is as much as wanted.
    pub cap_bytes: Option<u64>,
    /// The quantity that `largest` is of.
    pub largest_of: Option<String>,
    /// Of the sizes that were tried below the largest under the first setting those that are not sure to fit.
    pub holes: Vec<u64>,
    /// The memory of a server by use, if the quantity is that of a KV cache; otherwise `null`.
    pub server: Option<Server>,
    /// How many steps the plan has; 0 where none were found.
    pub steps: usize,
    /// What the recordings leave open, in sentences.
    pub notes: Vec<String>,
    /// What a failure in a recording leaves open: requests that were never made. `null` without one.
    pub left_open: Option<String>,
}

/// How well the recordings explain the program.
#[derive(Debug, Default, Serialize)]
pub struct FitsEntry {
    /// Bytes at the peak of the largest recording of requests whose sizes follow a law.
    pub explained_bytes: u64,
    /// The most bytes at once of the others, at whatever moment; they widen the spans.
    pub unexplained_bytes: u64,
    /// Why there is no plan; `null` if there is one.
    pub reason: Option<String>,
    /// The others, most bytes first.
    pub unexplained: Vec<Unexplained>,
    /// What each of two recordings asks for where they stop being one program; empty if they are one.
    pub parts_at: Vec<Side>,
}

/// Answers for recordings. Fails when a file cannot be read, or the recordings are of different programs; one of usage where sizes
/// are missing or a card, a change or a quantity is unknown.
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
    Ok(print(out, &text(&plan, &report, &setting, card, args.held))?)
}

/// Sizes below the largest that are tried too.
const HOLES_TRIED: u64 = 48;

/// One `--change`.
enum Asked {
    Changes(Vec<Change>),
    /// The batch in this many passes.
    Passes(u64),
}

/// The changes that were asked for, each line one.
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

/// A wanted size with what it does not name taken from the largest recording.
fn completed(want: &Size, largest: &Size) -> Size {
    largest.iter().fold(largest.clone(), |size, (name, value)| size.with(name, want.get(name).unwrap_or(value)))
}

/// Those asked for; else the recordings' own, and those that are worth trying where a limit is to be met.
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

/// ` (2.31 GiB to 2.65 GiB)`; nothing for a point.
fn span_text([low, high]: [u64; 2]) -> String {
    let [low, high] = [low, high].map(|bytes| Bytes(bytes).to_string());
    if low == high { String::new() } else { format!(" ({low} to {high})") }
}

/// The change whose code is shown: where the size fails, the first that makes it fit; else the one that saves most.
fn worth_pasting<'a>(rows: &[&'a Changed], fails: bool) -> Option<&'a Changed> {
    /// Less is not worth a line of code.
    const LEAST: u64 = 16 << 20;
    let saves = |c: &Changed| c.saves_bytes.max(0).unsigned_abs();
    let mut helping = rows.iter().copied().filter(|c| c.helps);
    if fails && let Some(fits) = helping.clone().find(|c| !c.oom && !c.oom_varies) {
        return Some(fits);
    }
    // Of what saves as much, the cheaper one, which comes first.
    let first = helping.next()?;
    let best = helping.fold(first, |best, c| if saves(c) > saves(best) { c } else { best });
    Some(best).filter(|best| saves(best) >= LEAST)
}

/// True if the program's model is one of Hugging Face's transformers.
fn is_of_transformers(plan: &Plan) -> bool {
    let stacks = &plan.programs()[plan.largest_at()].recording.stacks;
    (0..stacks.text_count() as u32).any(|id| stacks.text(StrId(id)).contains("/transformers/models/"))
}

/// A role by its name, as every text writes it: `KV cache`.
fn role_text(plan: &Plan, name: &str) -> String {
    Role::from_name(name).map_or_else(|| name.replace('_', " "), |role| role.words(plan.is_probable(role)))
}

/// The answer for people, section by section.
fn text(plan: &Plan, report: &PlanReport, setting: &Setting, card: Option<Card>, held: Option<u64>) -> String {
    let mut out: String = plan.doubts().iter().map(|doubt| format!("{doubt}\n")).collect();
    let place = match (card, report.cap_bytes) {
        (Some(card), Some(cap)) => format!("the {} ({} for PyTorch)", card.name, Bytes(cap).limit()),
        (_, Some(cap)) => Bytes(cap).limit(),
        _ => String::new(),
    };
    out += &largest_text(plan, report, &place);
    out += &sizes_text(plan, report, &place);
    if let Some(open) = &report.left_open {
        out += &format!("{open}\n");
    }
    if report.largest.len() > 1 {
        out += &format!("\n{}", settings_table(report));
    }
    let mut is_ranged = report.at.iter().any(|p| p.span[0] != p.span[1] || p.allocated_span[0] != p.allocated_span[1]);
    if !report.changes.is_empty() {
        let (changes, has_ranges) = changes_text(plan, report, setting);
        out += &changes;
        is_ranged |= has_ranges;
    }
    if let Some(p) = report.at.first() {
        let mut roles: Vec<(&&str, &u64)> = p.by_role.iter().collect();
        roles.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let parts: Vec<String> =
            roles.iter().map(|(role, bytes)| format!("{} {}", role_text(plan, role), Bytes(**bytes))).collect();
        out += &format!("\nAt the peak of {}: {}.\n", p.size, parts.join(", "));
    }
    let notes = notes_text(plan, report, card, held, is_ranged);
    if !notes.is_empty() {
        out += &format!("\n{notes}");
    }
    out
}

/// The largest size that fits, in a sentence.
fn largest_text(plan: &Plan, report: &PlanReport, place: &str) -> String {
    let (Some(name), Some(best)) = (&report.largest_of, report.largest.first()) else { return String::new() };
    // What else was given, and stays as it is.
    let size = report.at.first().map_or(&plan.programs()[plan.largest_at()].at, |p| &p.size);
    let others: Vec<String> = size.iter().filter(|(n, _)| n != name).map(|(n, value)| format!("{n} {value}")).collect();
    let with = if others.is_empty() { String::new() } else { format!("At {}: ", others.join(", ")) };
    let holes = holes_sentence(best.size, &report.holes).map_or(String::new(), |said| format!(" {said}"));
    format!("{with}{}{holes}\n", best.sentence(name, place, report.cap_bytes.unwrap_or(u64::MAX), plan.horizon()))
}

/// A line for each wanted size.
fn sizes_text(plan: &Plan, report: &PlanReport, place: &str) -> String {
    let mut out = String::new();
    for p in &report.at {
        let (span, allocated_span) = (span_text(p.span), span_text(p.allocated_span));
        let verdict = report.cap_bytes.map_or_else(String::new, |cap| format!("; it {}", p.verdict(place, cap, plan.horizon())));
        let retries = match p.retries {
            0 => String::new(),
            _ if p.oom => String::new(),
            1 => ", after PyTorch has emptied its cache once".to_owned(),
            n => format!(", after PyTorch has emptied its cache {} times", count(n)),
        };
        // A run that fails has no peak: these are the figures that it would have.
        let without = if p.oom && !verdict.is_empty() { " without the cap" } else { "" };
        out += &format!(
            "{}: {} reserved{span}, {} allocated{allocated_span}{without}{verdict}{retries}.\n",
            p.size,
            Bytes(p.peak_reserved_bytes),
            Bytes(p.peak_allocated_bytes)
        );
    }
    out
}

/// The largest size under each of several settings.
fn settings_table(report: &PlanReport) -> Table {
    let mut table = Table::new("lrl");
    table.row(["settings", "largest", ""]);
    for l in &report.largest {
        let conf = if l.conf.is_empty() { "(defaults)" } else { &l.conf };
        let may = match l.span[1] {
            _ if l.has_no_end() => "nothing shows an end".to_owned(),
            top if is_no_answer(l.size, top) => "cannot be told".to_owned(),
            top if top > l.size => format!("up to {} may fit", count(top)),
            _ if l.certain || l.size == 0 => String::new(),
            _ => "most likely".to_owned(),
        };
        let largest = match l.size {
            n if l.has_no_end() || is_no_answer(n, l.span[1]) => "\u{2013}".to_owned(),
            0 => "none".to_owned(),
            n => count(n),
        };
        table.row([conf.to_owned(), largest, may]);
    }
    table
}

/// The most of a quantity that fits: sure, and possible.
fn fitting_text(largest: Option<[u64; 2]>) -> String {
    match largest {
        None => String::new(),
        Some([0, 0]) => "none".to_owned(),
        Some([0, may]) => format!("up to {} may fit", count(may)),
        Some([sure, may]) if may > sure => format!("{}; up to {} may fit", count(sure), count(may)),
        Some([sure, _]) => count(sure),
    }
}

/// The table of changes, and the code of the one that is worth most. True where a figure is a range.
fn changes_text(plan: &Plan, report: &PlanReport, setting: &Setting) -> (String, bool) {
    let (cap, mut is_ranged) = (report.cap_bytes, false);
    let mut rows: Vec<&Changed> = report.changes.iter().collect();
    rows.sort_by_key(|c| c.rank());
    let size = report.at.first().map_or(&plan.programs()[plan.largest_at()].at, |p| &p.size);
    let now = plan.at(size, setting);
    let told = rows.iter().filter(|c| c.reason.is_none());
    let sizes = told.flat_map(|c| [c.peak_reserved_bytes, c.saves_bytes.unsigned_abs()]);
    let unit = SizeColumn::of(sizes.chain([now.peak_reserved_bytes]));
    let mut table = Table::new("lrlrrl");
    table.row([
        "change",
        &unit.head(&format!("peak reserved at {size}")),
        "",
        &unit.head("saves, allocated"),
        "largest",
        "costs",
    ]);
    let ends_text = |words: &'static str| if words == "does not fit" { "fails" } else { words };
    let title = if *setting == plan.own_setting(cap) { "as recorded" } else { "no change" };
    let ends = cap.map_or("", |cap| ends_text(now.ends(cap)));
    let most = report.largest.first().filter(|l| !l.has_no_end() && !is_no_answer(l.size, l.span[1])).map(|l| l.span);
    let peak = unit.figure(now.peak_reserved_bytes);
    table.row([title, &peak, ends, "", &fitting_text(most), ""]);
    for c in &rows {
        if let Some(why) = &c.reason {
            let empty = String::new;
            table.row([c.title.clone(), empty(), empty(), empty(), empty(), format!("does not apply: {why}")]);
            continue;
        }
        let saves = match c.saves_bytes {
            0 => "nothing".to_owned(),
            n if n < 0 => format!("\u{2212}{}", unit.figure(n.unsigned_abs())),
            n => unit.figure(n.unsigned_abs()),
        };
        let about = if c.trust == Trust::Exact { "" } else { "about " };
        let ends = cap.map_or("", |cap| ends_text(c.ends(cap)));
        let [low, high] = c.span.map(|bytes| unit.figure(bytes));
        let peak = unit.figure(c.peak_reserved_bytes);
        is_ranged |= low != high;
        let peak = if low == high { format!("{about}{peak}") } else { format!("{about}{peak} ({low} to {high})") };
        table.row([c.title.clone(), peak, ends.to_owned(), saves, fitting_text(c.largest_span), c.cost.clone()]);
    }
    let mut out = format!("\n{table}");
    if let Some(c) = worth_pasting(&rows, cap.is_some_and(|_| now.oom)) {
        out += &format!("\nFor {}:\n{}\n", c.title, c.code.pytorch);
        if is_of_transformers(plan) && c.code.hf_trainer != c.code.pytorch {
            if c.change.split('+').any(|change| change.starts_with("checkpoint")) {
                out += "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})  # instead, for a model of transformers\n";
            }
            out += &format!("With the Trainer of transformers:\n{}\n", c.code.hf_trainer);
        }
    }
    (out, is_ranged)
}

/// What the recordings leave open, how well they explain the program, and what the figures rest on.
fn notes_text(plan: &Plan, report: &PlanReport, card: Option<Card>, held: Option<u64>, is_ranged: bool) -> String {
    let left = report.notes.iter().filter(|note| !plan.doubts().contains(note));
    let mut notes: String = left.map(|note| format!("{note}\n")).collect();
    let fits = &report.fits;
    if plan.programs().len() > 1 {
        notes += &match fits.unexplained_bytes {
            0 if is_ranged => {
                "The size of every request could be predicted exactly; ranges are of where the driver puts segments.\n".to_owned()
            }
            0 => "The size of every request could be predicted exactly.\n".to_owned(),
            bytes => {
                let first = fits.unexplained.first().map_or(String::new(), |u| format!(", mostly at {}", u.place));
                let cover = if is_ranged { "; the ranges above cover them" } else { "" };
                format!(
                    "The sizes of requests that hold up to {} at once could not be predicted exactly{first}{cover}. Of the peak {} could.\n",
                    Bytes(bytes),
                    Bytes(fits.explained_bytes)
                )
            }
        };
    }
    if let Some(server) = &report.server {
        notes += &format!(
            "A server: weights {}, KV cache {}, pools of CUDA graphs {}, and at most {} of temporary memory under this load. Only the cache is \
             assumed to grow; another load may need more temporary memory.\n",
            Bytes(server.weights_bytes),
            Bytes(server.kv_cache_bytes),
            Bytes(server.graph_pools_bytes),
            Bytes(server.transient_bytes)
        );
    }
    if let [only] = plan.programs()
        && plan.is_single()
    {
        let line = |f: &dyn Fn(u64) -> u64| only.at.iter().map(|(n, v)| format!("{n}={}", f(v))).collect::<Vec<_>>().join(",");
        let (is, half) = (line(&|v| v), line(&|v| if v > 1 { v / 2 } else { 2 }));
        notes += &format!(
            "With one recording, what grows is a guess, so the answer is a range. A second recording, of three steps at {half}, narrows it:\n  \
             vramscope plan {} second.pickle --at {is} --at {half}\n",
            only.recording.source.name
        );
    }
    if let Some(card) = card {
        let others = held.map_or(String::new(), |held| format!(" and {} that other programs hold", Bytes(held)));
        let (all, context) = (Bytes(card.bytes), Bytes(CONTEXT));
        notes += &format!("PyTorch gets {all} minus {context} for the CUDA context of the {}{others}.\n", card.name);
    }
    notes
}
