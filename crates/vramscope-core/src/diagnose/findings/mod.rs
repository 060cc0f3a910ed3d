//! The diagnosis rules: what is wrong with a recording, each with its numbers, its place, its remedy and how to check it.
//!
//! A rule fires on numbers alone. Failures come first and leaks second; the rest is ordered by what the remedy would take off the
//! peak.

mod finding;
mod input;
mod rules;
mod together;

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashSet;

use super::leaks::growth;
use super::oom::{Autopsy, Helped, examine};
use crate::anatomy::roles::{Role, Roles, Rules, Tally};
use crate::anatomy::steps::Steps;
use crate::anatomy::{Phase, line_of};
use crate::diagnose::limits;
use crate::diagnose::vendor::Words;
use crate::inference::Caps;
use crate::model::{BlockState, Cancelled, DeviceRecording, EventId, Progress, Recording};
use crate::tables::{DeviceTables, LifetimeId, Quantity, StackNames};
use crate::units::{Bytes, MEBIBYTE, count, counted};

pub use self::finding::{Class, Evidence, Finding, Place};
pub use self::input::RuleInput;
pub use self::rules::{RULES, Rule, as_table};

/// The result of the rules, with what was computed for them.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The most important first.
    pub findings: Vec<Finding>,
    /// One per out-of-memory event, in order; only the last ones if there are very many.
    pub ooms: Vec<Arc<Autopsy>>,
    /// Number of out-of-memory events that were not examined: those before [`examined`]'s, and those without the device's free
    /// bytes.
    pub ooms_left_out: usize,
    /// Number of these events without the device's free bytes.
    pub ooms_without_figures: usize,
    /// The steps the rules used.
    pub steps: Steps,
    /// Allocations that the user's own rules put into another role.
    pub changed_by_rules: Tally,
    /// The bytes at the peak of which nothing shows what they are for, and all bytes there.
    pub untold: (u64, u64),
    /// The program ran on a GPU, and the trace has only the memory of the CPU.
    pub lacks_gpu_memory: bool,
    /// The bytes at the peak that are weights, gradients and optimizer state.
    pub of_model: [u64; 3],
    /// Of a file that has no allocations, only what was live when it was written: the bytes that were reserved then.
    pub reserved_then: Option<u64>,
    /// Nothing but the building or loading of a model was recorded.
    pub only_loads: bool,
}

/// Maximum number of failures examined; a program that fails this often fails for the same reasons.
pub const EXAMINED: usize = 256;
/// Maximum number of blocks and segments looked at for all examined failures together.
const LOOKED_AT: usize = 1_000_000;

/// The failures that are examined: the last ones; fewer if each takes long because very much is live.
pub fn examined<'a>(device: &DeviceRecording, tables: &DeviceTables, failures: &'a [EventId]) -> &'a [EventId] {
    let Some(&last) = failures.last() else { return failures };
    let state = tables.states.at(device, &tables.lifetimes, last);
    let size = (state.blocks.len() + state.segments.len()).max(1);
    let most = (LOOKED_AT / size).clamp(4, EXAMINED);
    &failures[failures.len().saturating_sub(most)..]
}

/// Runs every rule. `rules` are the user's own rules for roles. O(lifetimes).
///
/// # Errors
/// When cancelled.
pub fn diagnose(
    recording: &Recording,
    device: &DeviceRecording,
    tables: &DeviceTables,
    names: &StackNames,
    rules: &Rules,
    progress: &Progress,
) -> Result<Findings, Cancelled> {
    let peak_event = tables.curves.peak_event();
    let at_peak = tables.states.at(device, &tables.lifetimes, peak_event);
    let failures = device.events.ooms();
    let caps = Caps::of(device, None, progress)?;
    let told = examined(device, tables, &failures);
    let ooms: Vec<Autopsy> = told
        .iter()
        .filter_map(|&event| examine(device, tables, event, &tables.states.at(device, &tables.lifetimes, event), &caps))
        .collect();
    // `ooms` lists every failure, also of those that cannot be examined.
    let ooms_left_out = failures.len() - ooms.len();
    let ooms_without_figures = told.len() - ooms.len();
    progress.check()?;
    let roles = Roles::build(recording, device, tables, rules, progress)?;
    let steps = roles.anatomy.steps.clone();
    let marks = self::rules::marks(&recording.stacks);
    progress.check()?;
    let growth = growth(device, tables, &steps);
    let words = Words::of(device);
    let input = RuleInput {
        recording,
        device,
        words,
        tables,
        names,
        steps,
        at_peak,
        peak_event,
        ooms,
        roles,
        growth,
        marks,
        recorded: OnceLock::new(),
    };
    let mut findings = Vec::new();
    for rule in RULES {
        progress.check()?;
        findings.extend((rule.run)(&input));
    }
    // What a more particular rule is about is not told again as short-lived.
    for general in [self::rules::SPIKE, self::rules::TEMPORARIES] {
        let is_general = |f: &Finding| [general, self::rules::TEMPORARIES, self::rules::BATCH].contains(&f.rule);
        let particular = findings.iter().filter(|f| f.class == Class::Peak && !is_general(f));
        let told: Vec<LifetimeId> = particular.flat_map(|f| f.place.lifetimes.iter().copied()).collect();
        let is_told = |f: &Finding| f.place.lifetimes.first().is_some_and(|id| told.contains(id));
        findings.retain(|f| f.rule != general || !is_told(f));
    }
    // What a leak keeps, or a graph that nothing needs, is not to be checkpointed.
    let is_needless = |f: &&Finding| f.class == Class::Leak || f.rule == self::rules::UNTRAINED;
    let needless: u64 = findings.iter().filter(is_needless).map(|f| f.bytes).sum();
    findings.retain(|f| f.rule != "activations" || needless.saturating_mul(2) < f.bytes);
    // What was never in use at once did not stop being used.
    let is_never_used = |f: &Finding| ["unfilled_gaps", "variable_sizes"].contains(&f.rule);
    let never_used = findings.iter().find(|f| is_never_used(f)).map(|f| f.bytes);
    findings.retain(|f| {
        f.rule != "idle_cache" || never_used.is_none_or(|bytes| f.bytes.saturating_mul(10) > bytes.saturating_mul(11))
    });
    // What is told as results that are held is not freed soon after.
    leave_out(&mut findings, self::rules::TEMPORARIES, "kept_results");
    // The optimizer's zero_grad() does not reach gradients of weights that it does not update.
    leave_out(&mut findings, "gradients_kept", self::rules::UNTRAINED);
    // What each step makes again and nothing frees is told as a leak.
    let has_leak = findings.iter().any(|f| f.class == Class::Leak);
    findings
        .retain(|f| !["earlier_optimizer", "kept_copies", "kept_results", "untrained_gradients"].contains(&f.rule) || !has_leak);
    let is_about_peak = |f: &Finding| !matches!(f.class, Class::Structure | Class::Hygiene) && f.rule != self::rules::BATCH;
    if findings.iter().any(is_about_peak) {
        findings.retain(|f| f.rule != self::rules::BATCH);
    }
    together::add_pairs(&mut findings, &input);
    // The last failure comes first: it is the one that the program printed when it ended. Before it comes what caused it: an earlier
    // attempt that was held.
    let causes = |f: &Finding| f.rule == self::rules::HELD && f.place.event < failures.last().copied();
    let is_last = |f: &Finding| f.rule == "out_of_memory" && f.place.event.is_some() && f.place.event == failures.last().copied();
    let peak = tables.curves.peak(Quantity::Active).0;
    findings.sort_by_key(|f| {
        let saved = std::cmp::Reverse((f.at_stake(), f.bytes));
        let is_limit = [self::rules::TRUNCATED, self::rules::FIRST_STEP, self::rules::ZERO_BEFORE_STEP].contains(&f.rule);
        // A short-lived block with a line to paste is cuDNN's search, which one line ends.
        let is_search = f.rule == self::rules::SPIKE && f.remedy.is_some();
        let is_mistake = (self::rules::MISTAKES.contains(&f.rule) || is_search) && f.at_stake().saturating_mul(10) >= peak;
        let rank = if causes(f) { Class::OutOfMemory } else { rank(f, &input) };
        (!is_limit, rank, !causes(f), !is_last(f), !is_mistake, saved, f.rule)
    });
    if let Some(event) = device.events.failure_at_end() {
        let stack = device.events.stack[event as usize];
        with_failed_request(&mut findings, device.events.size[event as usize], |id| {
            line_of(&recording.stacks, tables.lifetimes.stack(device, id)) == line_of(&recording.stacks, stack)
        });
    }
    let untold = untold(&input);
    let of_model = of_model(&input);
    let reserved = || tables.curves.peak(Quantity::Reserved).0;
    let reserved_then = (!tables.lifetimes.has_allocations()).then(reserved);
    let runs = &input.roles.anatomy.phases.runs;
    let only_loads = runs.iter().any(|run| run.phase == Phase::Load)
        && runs.iter().all(|run| matches!(run.phase, Phase::Load | Phase::Between));
    let ooms = input.ooms.into_iter().map(Arc::new).collect();
    let changed_by_rules = input.roles.changed;
    let steps = input.steps;
    Ok(Findings {
        findings,
        ooms,
        ooms_left_out,
        ooms_without_figures,
        steps,
        changed_by_rules,
        untold,
        lacks_gpu_memory: limits::lacks_gpu_memory(recording),
        of_model,
        reserved_then,
        only_loads,
    })
}

/// Leaves out a rule's finding if most of its blocks are another rule's.
fn leave_out(findings: &mut Vec<Finding>, rule: &str, other: &str) {
    let others = findings.iter().filter(|f| f.rule == other);
    let told: FxHashSet<LifetimeId> = others.flat_map(|f| f.place.lifetimes.iter().copied()).collect();
    let is_new = |f: &Finding| f.place.lifetimes.iter().filter(|id| told.contains(id)).count() * 2 <= f.place.lifetimes.len();
    findings.retain(|f| f.rule != rule || is_new(f));
}

/// A peak of what was recorded is no promise of what was not: where the recording ends in a failure its request comes on top.
fn with_failed_request(findings: &mut [Finding], request: u64, is_same_line: impl Fn(LifetimeId) -> bool) {
    let mut is_first = true;
    for finding in findings {
        let Some(saving) = finding.saving.filter(|s| !s.is_nothing()) else { continue };
        // Without the attempt that is held the request that failed has much more room than that.
        if finding.rule == self::rules::HELD {
            continue;
        }
        // The remedy sends to the CPU what the library gathers: the request that failed, of the same line, is not made then.
        if finding.rule == self::rules::GATHERED && finding.place.lifetimes.first().is_some_and(|&id| is_same_line(id)) {
            is_first = false;
            finding.verify = format!("The run gets past the request of {}.", Bytes(request));
            continue;
        }
        if std::mem::take(&mut is_first) {
            let needed = Bytes(saving.after.saturating_add(request)).to_string();
            if needed != Bytes(saving.after).to_string() {
                finding.sentence += &format!(" The request of {} that failed comes on top: up to {needed}.", Bytes(request));
            }
        }
        finding.verify = format!("The run gets past the request of {}.", Bytes(request));
    }
}

/// Bytes at the peak of unknown role, with what a trace reports from before profiling, and all.
fn untold(p: &RuleInput<'_>) -> (u64, u64) {
    let live = || p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let all: u64 = live().map(|b| b.size).sum();
    let unknown: u64 = live().filter(|b| p.roles.of(b.lifetime) == Role::Unknown).map(|b| b.size).sum();
    let before = p.device.source_totals.beyond(p.peak_event, all);
    (unknown.saturating_add(before), all.saturating_add(before))
}

/// Bytes at the peak of weights, gradients and the optimizer's state.
fn of_model(p: &RuleInput<'_>) -> [u64; 3] {
    let live = || p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let of = |role: Role| live().filter(|b| p.roles.of(b.lifetime) == role).map(|b| b.size).sum();
    [Role::Weights, Role::Gradients, Role::OptimizerState].map(of)
}

/// The class that a finding is ranked with. Structure and peak are one list, and so is a failure that the program survived unless
/// it is the last.
fn rank(finding: &Finding, input: &RuleInput<'_>) -> Class {
    let last = input.ooms.last().map(|a| a.event);
    let is_survived = || input.ooms.iter().any(|a| a.survived && Some(a.event) == finding.place.event && Some(a.event) != last);
    match finding.class {
        Class::Peak => Class::Structure,
        Class::OutOfMemory if is_survived() => Class::Structure,
        // Wrong results matter more than a lower peak.
        _ if finding.rule == self::rules::STALE_COPIES => Class::Leak,
        class => class,
    }
}

impl Findings {
    /// Why failures were not examined, one sentence per cause; empty if all were.
    pub fn left_out(&self) -> Vec<String> {
        let beyond = self.ooms_left_out.saturating_sub(self.ooms_without_figures);
        let failures = |n: usize| counted(n as u64, "failure was", "failures were");
        let mut told = Vec::new();
        if self.ooms_without_figures > 0 {
            told.push(format!(
                "{} not examined: the file does not tell what was free on the device.",
                failures(self.ooms_without_figures)
            ));
        }
        if beyond > 0 {
            told.push(format!(
                "{} not examined: the {} after are enough to tell why.",
                failures(beyond),
                count(self.ooms.len() as u64)
            ));
        }
        told
    }

    /// Said where no rule found a problem and the recording does not show what most of the peak is for: most rules judge that alone.
    pub fn untold_sentence(&self) -> Option<String> {
        /// Less is not worth a sentence.
        const LEAST: u64 = 64 * MEBIBYTE;
        if self.lacks_gpu_memory {
            return Some("The program ran on a GPU, and the trace has no memory of it.".to_owned());
        }
        let (unknown, all) = self.untold;
        let is_most = all >= LEAST && unknown.saturating_mul(2) > all;
        is_most.then(|| {
            format!(
                "The recording does not show what {} is used for, so little can be said about it.",
                match [unknown, all].map(|bytes| Bytes(bytes).to_string()) {
                    [part, whole] if part == whole => format!("the {whole}"),
                    [part, whole] => format!("{part} of the {whole}"),
                }
            )
        })
    }

    /// Said where no rule found a problem and the model itself, not what a step makes, is three quarters of the peak or more.
    #[must_use]
    pub fn model_sentence(&self) -> Option<String> {
        let [weights, gradients, state] = self.of_model;
        let all = self.untold.1;
        let share = |bytes: u64| (bytes as f64 / all.max(1) as f64 * 100.0).floor();
        let (what, bytes, lowers) = match (share(weights) >= 75.0, state > 0) {
            (true, _) => ("Weights are", weights, "lower precision (bf16, 8 or 4 bits), sharding or a smaller model lowers it"),
            (_, true) => (
                "Weights, gradients and optimizer state are",
                weights + gradients + state,
                "sharding (FSDP), 8-bit optimizer state or lower precision lowers it",
            ),
            _ => ("Weights and gradients are", weights + gradients, "sharding (FSDP) or lower precision lowers it"),
        };
        // Gradients that are larger than the weights were taken for some: another profiler's categories are often wrong.
        let is_most = share(bytes) >= 75.0 && bytes >= 64 * MEBIBYTE && gradients <= weights + weights / 10;
        is_most.then(|| match self.reserved_then {
            _ if self.only_loads => format!(
                "{what} {} % of the peak. Nothing but loading was recorded: record the first steps too, to see what they need.",
                share(bytes)
            ),
            None => format!("{what} {} % of the peak: {lowers}, a smaller batch does not.", share(bytes)),
            Some(reserved) if reserved > all + all / 5 => format!(
                "{what} {} % of what was live when the file was written. {} is reserved, so more was in use before.",
                share(bytes),
                Bytes(reserved)
            ),
            Some(_) => format!("{what} {} % of what was live when the file was written: {lowers}.", share(bytes)),
        })
    }

    /// A sentence about what the user's own rules changed; `None` if nothing.
    pub fn rules_sentence(&self) -> Option<String> {
        self.changed_by_rules.rules_sentence()
    }

    /// Whether a remedy of some finding is chosen by trying settings on the recorded requests.
    pub fn depend_on_settings(&self) -> bool {
        self.findings.iter().any(|f| f.class == Class::OutOfMemory || f.depends_on_settings())
    }

    /// Adds the settings that were tried on the recording: to failures those that pass, to findings about reserved memory those
    /// that reserve less.
    pub fn prescribe(&mut self, helped: &Helped) {
        for finding in &mut self.findings {
            if let Some((advice, remedy)) = finding.by_settings(helped) {
                (finding.advice, finding.remedy) = (advice, remedy);
                continue;
            }
            if finding.class != Class::OutOfMemory {
                continue;
            }
            if let Some(autopsy) = self.ooms.iter().find(|a| Some(a.event) == finding.place.event) {
                rules::prescribe(finding, autopsy, Some(helped));
            }
        }
    }
}

impl Finding {
    /// True if other settings may help and only a replay shows which.
    pub fn depends_on_settings(&self) -> bool {
        rules::in_code(self.rule).is_some()
    }

    /// The advice from serving the recorded requests again under other settings, and the line to copy. `None` if settings do not
    /// matter, or if the finding already names those that serve a failed request.
    pub fn by_settings(&self, helped: &Helped) -> Option<(String, Option<String>)> {
        rules::by_settings(self, helped)
    }
}
