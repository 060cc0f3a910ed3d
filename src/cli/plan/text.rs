//! The text output of `plan`.

use std::collections::BTreeSet;
use std::path::Path;

use super::PlanReport;
use crate::cli::args::{Library, PlanArgs};
use crate::cli::{Table, quoted};
use vramscope_core::anatomy::Role;
use vramscope_core::model::{DeviceKind, StrId};
use vramscope_core::plan::cards::{CONTEXT, Card};
use vramscope_core::plan::{Changed, ENDS, Plan, Setting, Size, Trust, holes_sentence, is_no_answer};
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE, SizeColumn, count};

/// ` (from 2.31 GiB to 2.65 GiB)`; empty when both ends are equal.
fn span_text(unit: SizeColumn, [low, high]: [u64; 2]) -> String {
    let [from, to] = [low, high].map(|bytes| unit.sized(bytes));
    if from == to { String::new() } else { format!(" (from {from} to {to})") }
}

/// The change whose code is shown: when the size does not fit, the first that makes it fit; otherwise the one that saves most.
fn worth_pasting<'a>(rows: &[&'a Changed], fails: bool) -> Option<&'a Changed> {
    /// Smaller savings are not worth a line of code.
    const LEAST: u64 = 16 << 20;
    let saves = |c: &Changed| c.saves_bytes.max(0).unsigned_abs();
    let mut helping = rows.iter().copied().filter(|c| c.helps);
    if fails && let Some(fits) = helping.clone().find(|c| !c.oom && !c.oom_varies) {
        return Some(fits);
    }
    // When two save the same, the cheaper one, which comes first.
    let first = helping.next()?;
    let best = helping.fold(first, |best, c| if saves(c) > saves(best) { c } else { best });
    Some(best).filter(|best| saves(best) >= LEAST)
}

/// True when the program uses a model of Hugging Face's transformers.
fn is_of_transformers(plan: &Plan) -> bool {
    let stacks = &plan.programs()[plan.largest_at()].recording.stacks;
    (0..stacks.text_count() as u32).any(|id| stacks.text(StrId(id)).contains("/transformers/models/"))
}

fn role_text(plan: &Plan, name: &str) -> String {
    Role::from_name(name).map_or_else(|| name.replace('_', " "), |role| role.words(plan.is_probable(role)))
}

/// A plan's answer with the inputs of the question.
pub(super) struct Told<'a> {
    pub(super) plan: &'a Plan,
    pub(super) report: &'a PlanReport,
    pub(super) setting: &'a Setting,
    pub(super) card: Option<Card>,
    pub(super) args: &'a PlanArgs,
}

impl Told<'_> {
    pub(super) fn text(&self) -> String {
        let Told { plan, report, .. } = self;
        let mut out: String = plan.doubts().iter().map(|doubt| format!("{doubt}\n")).collect();
        out += &self.device();
        let place = match (self.card, report.cap_bytes) {
            (Some(card), Some(cap)) => format!("the {} ({} for PyTorch)", card.name, Bytes(cap).limit()),
            (_, Some(cap)) => Bytes(cap).limit(),
            _ => String::new(),
        };
        out += &self.largest(&place);
        out += &self.sizes(&place);
        if let Some(open) = &report.left_open {
            out += &format!("{open}\n");
        }
        if report.largest.len() > 1 {
            out += &format!("\n{}", settings_table(report));
        }
        let mut is_ranged = report.at.iter().any(|p| p.span[0] != p.span[1] || p.allocated_span[0] != p.allocated_span[1]);
        if report.changes.is_empty() {
            let ends = report.cap_bytes.into_iter().flat_map(|cap| report.at.iter().map(move |p| p.ends(cap)));
            let words: BTreeSet<&str> = ends.filter(|words| !["fits", "does not fit"].contains(words)).collect();
            out += &ends_note(&words);
            if report.cap_bytes.is_some_and(|cap| report.at.iter().any(|p| p.ends(cap) == "does not fit")) {
                out += "Add --change all to try what would make it fit.\n";
            }
        } else {
            let (changes, has_ranges) = self.changes();
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
        let notes = self.notes(is_ranged);
        if !notes.is_empty() {
            out += &format!("\n{notes}");
        }
        out
    }

    /// Which GPU the plan is for, when the recording has several.
    fn device(&self) -> String {
        let Some(program) = self.plan.programs().get(self.plan.largest_at()) else { return String::new() };
        let is_other = |kind| matches!(kind, DeviceKind::Host | DeviceKind::Cpu);
        let devices = &program.recording.devices;
        let gpus = devices.iter().filter(|d| d.has_blocks() && !is_other(d.id.kind)).count();
        match devices.get(program.device).filter(|_| gpus > 1) {
            Some(device) => {
                format!("Of {}: {} has {gpus} GPUs, and --device N plans another.\n", device.id, program.recording.source.name)
            }
            None => String::new(),
        }
    }

    fn largest(&self, place: &str) -> String {
        let Told { plan, report, .. } = self;
        let (Some(name), Some(best)) = (&report.largest_of, report.largest.first()) else { return String::new() };
        // The other quantities, which stay as they are.
        let size = self.size();
        let others: Vec<String> = size.iter().filter(|(n, _)| n != name).map(|(n, value)| format!("{n} {value}")).collect();
        let with = if others.is_empty() { String::new() } else { format!("At {}: ", others.join(", ")) };
        let holes = holes_sentence(best.size, &report.holes).map_or(String::new(), |said| format!(" {said}"));
        format!("{with}{}{holes}\n", best.sentence(name, place, report.cap_bytes.unwrap_or(u64::MAX), plan.horizon()))
    }

    /// The size that the changes apply to.
    fn size(&self) -> &Size {
        self.report.at.first().map_or(&self.plan.programs()[self.plan.largest_at()].at, |p| &p.size)
    }

    /// One line per wanted size, all in one unit.
    fn sizes(&self, place: &str) -> String {
        let Told { plan, report, .. } = self;
        let unit = SizeColumn::narrow(
            report.at.iter().flat_map(|p| p.span.into_iter().chain([p.peak_allocated_bytes, p.peak_reserved_bytes])),
        );
        let mut out = String::new();
        for p in &report.at {
            let (span, allocated_span) = (span_text(unit, p.span), span_text(unit, p.allocated_span));
            let verdict =
                report.cap_bytes.map_or_else(String::new, |cap| format!("; it {}", p.verdict(place, cap, plan.horizon())));
            let retries = match p.retries {
                0 => String::new(),
                _ if p.oom => String::new(),
                1 => ", after PyTorch has emptied its cache once".to_owned(),
                n => format!(", after PyTorch has emptied its cache {} times", count(n)),
            };
            // A run that fails has no peak, so these are its figures without the cap.
            let without = if p.oom && !verdict.is_empty() { " without the cap" } else { "" };
            out += &format!(
                "{}: {} reserved{span}, {} allocated{allocated_span}{without}{verdict}{retries}.\n",
                p.size,
                unit.sized(p.peak_reserved_bytes),
                unit.sized(p.peak_allocated_bytes)
            );
        }
        out
    }

    /// The table of changes, an explanation of its terms, and the lines to paste. True when a figure is a range.
    fn changes(&self) -> (String, bool) {
        let Told { plan, report, setting, .. } = self;
        let cap = report.cap_bytes;
        let mut rows: Vec<&Changed> = report.changes.iter().collect();
        rows.sort_by_key(|c| c.rank());
        let size = self.size();
        let now = plan.at(size, setting);
        let told = || rows.iter().filter(|c| c.reason.is_none());
        let figures = told().flat_map(|c| c.span.into_iter().chain([c.peak_reserved_bytes, c.saves_bytes.unsigned_abs()]));
        let unit = SizeColumn::of(figures.chain(now.span).chain([now.peak_reserved_bytes]));
        let range = |[low, high]: [u64; 2]| match [low, high].map(|bytes| unit.figure(bytes)) {
            [low, high] if low == high => String::new(),
            [low, high] => format!("{low} to {high}"),
        };
        let is_ranged = told().map(|c| c.span).chain([now.span]).any(|span| !range(span).is_empty());
        let most = report.largest.first().filter(|l| !l.has_no_end() && !is_no_answer(l.size, l.span[1])).map(|l| l.span);
        // Columns that are empty in every row are left out.
        let has_largest = most.is_some() || told().any(|c| c.largest_span.is_some());
        let columns = [true, true, is_ranged, cap.is_some(), true, has_largest, true, true];
        let shown = |cells: [String; 8]| cells.into_iter().zip(columns).filter_map(|(cell, is_shown)| is_shown.then_some(cell));
        let flush: String = "lrrlrlll".chars().zip(columns).filter_map(|(side, is_shown)| is_shown.then_some(side)).collect();
        let mut table = Table::new(&flush);
        let saves = unit.head("saves, allocated");
        let head =
            ["change", &unit.head(&format!("peak reserved at {size}")), "range", "ends", &saves, "largest", "how sure", "costs"];
        table.row(shown(head.map(str::to_owned)));
        let title = if **setting == plan.own_setting(cap) { "as recorded" } else { "no change" };
        let ends = cap.map_or("", |cap| now.ends(cap));
        let mut words: BTreeSet<&str> = [ends].into();
        let mut trusts: BTreeSet<Trust> = [plan.trust_of(&now)].into();
        let peak = unit.figure(now.peak_reserved_bytes);
        let own = [title, &peak, &range(now.span), ends, "", &fitting_text(most), plan.trust_of(&now).word(), ""];
        table.row(shown(own.map(str::to_owned)));
        for c in &rows {
            if let Some(why) = &c.reason {
                let empty = String::new;
                let cells =
                    [c.title.clone(), empty(), empty(), empty(), empty(), empty(), empty(), format!("does not apply: {why}")];
                table.row(shown(cells));
                continue;
            }
            let saves = match c.saves_bytes {
                0 => "nothing".to_owned(),
                n if n < 0 => format!("\u{2212}{}", unit.figure(n.unsigned_abs())),
                n => unit.figure(n.unsigned_abs()),
            };
            let ends = cap.map_or("", |cap| c.ends(cap));
            words.insert(ends);
            trusts.insert(c.trust);
            let largest = match c.largest_span {
                // When one pass fits, any batch fits in more passes.
                None if c.change.starts_with("accumulate") && ["fits", "probably fits"].contains(&ends) => {
                    "any, in more passes".to_owned()
                }
                largest => fitting_text(largest),
            };
            let peak = unit.figure(c.peak_reserved_bytes);
            let cells = [
                c.title.clone(),
                peak,
                range(c.span),
                ends.to_owned(),
                saves,
                largest,
                c.trust.word().to_owned(),
                c.cost.clone(),
            ];
            table.row(shown(cells));
        }
        let sure: Vec<String> = trusts.iter().map(|trust| format!("{} ({})", trust.word(), trust.about())).collect();
        let mut out = format!("\n{table}{}How sure: {}.\n", ends_note(&words), sure.join(", "));
        out += &self.code(&rows, cap.is_some_and(|_| now.oom));
        (out, is_ranged)
    }

    /// The lines to paste: for the requested library those of each change that helps; otherwise those of the most useful change.
    fn code(&self, rows: &[&Changed], fails: bool) -> String {
        let helping = || rows.iter().filter(|c| c.helps);
        if let Some(library) = self.args.code {
            let of = |c: &Changed| match library {
                Library::Pytorch => c.code.pytorch.clone(),
                Library::Trainer => c.code.hf_trainer.clone(),
                Library::Lightning => c.code.lightning.clone(),
            };
            return helping().map(|c| format!("\nFor {}:\n{}\n", c.title, of(c))).collect();
        }
        let Some(c) = worth_pasting(rows, fails) else { return String::new() };
        let mut out = format!("\nFor {}:\n{}\n", c.title, c.code.pytorch);
        if is_of_transformers(self.plan) && c.code.hf_trainer != c.code.pytorch {
            if c.change.split('+').any(|change| change.starts_with("checkpoint")) {
                out += "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})  # instead, for a model of transformers\n";
            }
            out += &format!("With the Trainer of transformers:\n{}\n", c.code.hf_trainer);
        }
        if helping().count() > 1 {
            out += "The lines of each change that helps: --code pytorch, trainer or lightning.\n";
        }
        out
    }

    /// What the recordings leave unknown, how well they explain the program, and what the figures depend on.
    fn notes(&self, is_ranged: bool) -> String {
        let Told { plan, report, .. } = self;
        let (card, held) = (self.card, self.args.held);
        let left = report.notes.iter().filter(|note| !plan.doubts().contains(note));
        let mut notes: String = left.map(|note| format!("{note}\n")).collect();
        let fits = &report.fits;
        if plan.programs().len() > 1 {
            notes += &match fits.unexplained_bytes {
                0 if is_ranged => {
                    "The size of every request could be predicted exactly; ranges are of where the driver puts segments.\n"
                        .to_owned()
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
        notes += &self.second();
        if let Some(card) = card {
            let others = held.map_or(String::new(), |held| format!(" and {} that other programs hold", Bytes(held)));
            let (all, context) = (Bytes(card.bytes), Bytes(CONTEXT));
            notes += &format!("PyTorch gets {all} minus {context} for the CUDA context of the {}{others}.\n", card.name);
        }
        notes
    }

    /// With a single recording: the command to plan with a second one, with the same questions.
    fn second(&self) -> String {
        let ([only], [file]) = (self.plan.programs(), &self.args.files[..]) else { return String::new() };
        if !self.plan.is_single() {
            return String::new();
        }
        // One quantity changes, the wanted one: two that change together cannot be told apart.
        let wants = |n: &str, v: u64| self.args.want.iter().any(|want| want.get(n).is_some_and(|w| w != v));
        let first = only.at.iter().find(|&(n, v)| wants(n, v)).or_else(|| only.at.iter().next());
        let changed = first.map(|(n, v)| only.at.with(n, if v > 1 { v / 2 } else { 2 })).unwrap_or_default();
        let written = |size: &Size| size.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(",");
        let (is, half) = (written(&only.at), written(&changed));
        let second = file.with_file_name("second.pickle");
        let mut words = vec![shell(file), shell(&second), format!("--at {is} --at {half}")];
        let args = self.args;
        words.extend(args.want.iter().map(|want| format!("--want {}", written(want))));
        words.extend(args.cap.map(|cap| format!("--cap {}", typed(cap))));
        words.extend(args.card.as_ref().map(|card| format!("--card {}", quoted(card))));
        words.extend(args.held.map(|held| format!("--held {}", typed(held))));
        words.extend(args.conf.iter().map(|conf| format!("--conf {}", quoted(if conf.is_empty() { "default" } else { conf }))));
        words.extend(args.change.iter().map(|change| format!("--change {}", quoted(change))));
        words.extend(args.largest.as_ref().map(|name| format!("--largest {}", quoted(name))));
        words.extend(args.steps.map(|steps| format!("--steps {steps}")));
        words.extend(args.device.map(|device| format!("--device {device}")));
        format!(
            "With one recording, what grows is a guess, so the answer is a range. A second recording, of three steps at {half}, narrows it:\n  \
             vramscope plan {}\n",
            words.join(" ")
        )
    }
}

fn shell(path: &Path) -> String {
    quoted(&path.display().to_string())
}

fn typed(bytes: u64) -> String {
    match bytes {
        n if n > 0 && n.is_multiple_of(GIBIBYTE) => format!("{}GiB", n / GIBIBYTE),
        n if n > 0 && n.is_multiple_of(MEBIBYTE) => format!("{}MiB", n / MEBIBYTE),
        n => n.to_string(),
    }
}

/// One line that explains the outcomes in use.
fn ends_note(words: &BTreeSet<&str>) -> String {
    let told: Vec<String> =
        ENDS.iter().filter(|(word, _)| words.contains(word)).map(|(word, about)| format!("{word} ({about})")).collect();
    if told.is_empty() { String::new() } else { format!("Ends: {}.\n", told.join(", ")) }
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
            _ => "probably".to_owned(),
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

/// The largest value of a quantity that certainly fits, and the largest that may fit.
fn fitting_text(largest: Option<[u64; 2]>) -> String {
    match largest {
        None => String::new(),
        Some([0, 0]) => "none".to_owned(),
        Some([0, may]) => format!("up to {} may fit", count(may)),
        Some([sure, may]) if may > sure => format!("{}; up to {} may fit", count(sure), count(may)),
        Some([sure, _]) => count(sure),
    }
}
