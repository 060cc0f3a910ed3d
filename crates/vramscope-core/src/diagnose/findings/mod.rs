//! The diagnosis rules: each reports a problem of a recording with its figures, its place, its remedy and how to check it.
//!
//! A rule decides by figures alone. Failures come first, then leaks; the rest is ordered by how far the remedy lowers the peak.

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
use self::rules::Run;
pub use self::rules::{RULES, Rule, as_table};

/// The result of the rules, and data computed for them.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The findings, most important first.
    pub findings: Vec<Finding>,
    /// One per examined out-of-memory event, in order; only the last ones if there are very many.
    pub ooms: Vec<Arc<Autopsy>>,
    /// Number of out-of-memory events that were not examined: those before [`examined`]'s, or without the device's free bytes.
    pub ooms_left_out: usize,
    /// How many of these lack the device's free bytes.
    pub ooms_without_figures: usize,
    /// The steps that the rules used.
    pub steps: Steps,
    /// Allocations whose role the user's own rules changed.
    pub changed_by_rules: Tally,
    /// Bytes at the peak with unknown role, and all bytes at the peak.
    pub untold: (u64, u64),
    /// True if the program ran on a GPU but the trace contains only CPU memory.
    pub lacks_gpu_memory: bool,
    /// Bytes at the peak of weights, of gradients, and of optimizer state.
    pub of_model: [u64; 3],
    /// For a file without allocations, which only shows what was live when it was written: the bytes reserved then.
    pub reserved_then: Option<u64>,
    /// True if only the building or loading of a model was recorded.
    pub only_loads: bool,
}

/// Most failures to examine; a program that fails more often fails for the same reasons.
pub const EXAMINED: usize = 256;
/// Most blocks and segments to inspect, for all examined failures together.
const LOOKED_AT: usize = 1_000_000;

/// The failures to examine: the last ones; fewer if each takes long because very much is live.
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
    // `ooms` lists every failure, including those that cannot be examined.
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
    for rule in RULES.iter() {
        progress.check()?;
        match rule.run {
            Run::One(find) => findings.extend(find(&input)),
            Run::Several(find) => findings.extend(find(&input)),
        }
    }
    // If a more specific rule covers these blocks, do not report them again as short-lived.
    for general in [self::rules::SPIKE, self::rules::TEMPORARIES] {
        let is_general = |f: &Finding| [general, self::rules::TEMPORARIES, self::rules::BATCH].contains(&f.rule);
        let particular = findings.iter().filter(|f| f.class == Class::Peak && !is_general(f));
        let told: Vec<LifetimeId> = particular.flat_map(|f| f.place.lifetimes.iter().copied()).collect();
        let is_told = |f: &Finding| f.place.lifetimes.first().is_some_and(|id| told.contains(id));
        findings.retain(|f| f.rule != general || !is_told(f));
    }
    // Memory that a leak or a needless graph keeps should not be checkpointed.
    let is_needless = |f: &&Finding| f.class == Class::Leak || f.rule == self::rules::UNTRAINED;
    let needless: u64 = findings.iter().filter(is_needless).map(|f| f.bytes).sum();
    findings.retain(|f| f.rule != "activations" || needless.saturating_mul(2) < f.bytes);
    // Memory that was never in use at once cannot be called idle.
    let is_never_used = |f: &Finding| ["unfilled_gaps", "variable_sizes"].contains(&f.rule);
    let never_used = findings.iter().find(|f| is_never_used(f)).map(|f| f.bytes);
    findings.retain(|f| {
        f.rule != "idle_cache" || never_used.is_none_or(|bytes| f.bytes.saturating_mul(10) > bytes.saturating_mul(11))
    });
    // Blocks reported as held results are not freed soon after.
    leave_out(&mut findings, self::rules::TEMPORARIES, "kept_results");
    // The optimizer's zero_grad() does not free gradients of weights that it does not update.
    leave_out(&mut findings, "gradients_kept", self::rules::UNTRAINED);
    // Memory that each step makes again and nothing frees is reported as a leak.
    let has_leak = findings.iter().any(|f| f.class == Class::Leak);
    findings
        .retain(|f| !["earlier_optimizer", "kept_copies", "kept_results", "untrained_gradients"].contains(&f.rule) || !has_leak);
    let is_about_peak = |f: &Finding| !matches!(f.class, Class::Structure | Class::Hygiene) && f.rule != self::rules::BATCH;
    if findings.iter().any(is_about_peak) {
        findings.retain(|f| f.rule != self::rules::BATCH);
    }
    together::add_pairs(&mut findings, &input);
    // The failure that ended the program comes first, preceded only by its cause: an earlier attempt that was still held.
    let causes = |f: &Finding| f.rule == self::rules::HELD && f.place.event < failures.last().copied();
    let is_last = |f: &Finding| f.rule == "out_of_memory" && f.place.event.is_some() && f.place.event == failures.last().copied();
    let peak = tables.curves.peak(Quantity::Active).0;
    findings.sort_by_key(|f| {
        let saved = std::cmp::Reverse((f.at_stake(), f.bytes));
        let is_limit = [self::rules::TRUNCATED, self::rules::FIRST_STEP, self::rules::ZERO_BEFORE_STEP].contains(&f.rule);
        // A short-lived block with a line to paste is cuDNN's search, which one line turns off.
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

/// Removes a rule's finding if most of its blocks belong to another rule's finding.
fn leave_out(findings: &mut Vec<Finding>, rule: &str, other: &str) {
    let others = findings.iter().filter(|f| f.rule == other);
    let told: FxHashSet<LifetimeId> = others.flat_map(|f| f.place.lifetimes.iter().copied()).collect();
    let is_new = |f: &Finding| f.place.lifetimes.iter().filter(|id| told.contains(id)).count() * 2 <= f.place.lifetimes.len();
    findings.retain(|f| f.rule != rule || is_new(f));
}

/// If the recording ends in a failure, the failed request comes on top of the recorded peak, so the promised peak must include it.
fn with_failed_request(findings: &mut [Finding], request: u64, is_same_line: impl Fn(LifetimeId) -> bool) {
    let mut is_first = true;
    for finding in findings {
        let Some(saving) = finding.saving.filter(|s| !s.is_nothing()) else { continue };
        // Without the held attempt, the failed request has far more room.
        if finding.rule == self::rules::HELD {
            continue;
        }
        // The remedy moves what the library gathers to the CPU. The failed request, from the same line, is then not made.
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

/// Bytes at the peak with unknown role, including what a trace reports from before profiling; and all bytes at the peak.
fn untold(p: &RuleInput<'_>) -> (u64, u64) {
    let live = || p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let all: u64 = live().map(|b| b.size).sum();
    let unknown: u64 = live().filter(|b| p.roles.of(b.lifetime) == Role::Unknown).map(|b| b.size).sum();
    let before = p.device.source_totals.beyond(p.peak_event, all);
    (unknown.saturating_add(before), all.saturating_add(before))
}

/// Bytes at the peak of weights, gradients and optimizer state.
fn of_model(p: &RuleInput<'_>) -> [u64; 3] {
    let live = || p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let of = |role: Role| live().filter(|b| p.roles.of(b.lifetime) == role).map(|b| b.size).sum();
    [Role::Weights, Role::Gradients, Role::OptimizerState].map(of)
}

/// The class by which a finding is ranked. Structure, peak, and a survived failure that is not the last rank together.
fn rank(finding: &Finding, input: &RuleInput<'_>) -> Class {
    let last = input.ooms.last().map(|a| a.event);
    let is_survived = || input.ooms.iter().any(|a| a.survived && Some(a.event) == finding.place.event && Some(a.event) != last);
    match finding.class {
        Class::Peak => Class::Structure,
        Class::OutOfMemory if is_survived() => Class::Structure,
        // Wrong results are more important than a lower peak.
        _ if finding.rule == self::rules::STALE_COPIES => Class::Leak,
        class => class,
    }
}

impl Findings {
    /// Why some failures were not examined, one sentence per cause; empty if all were.
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

    /// Shown if no rule found a problem but the role of most of the peak is unknown, because most rules need roles.
    pub fn untold_sentence(&self) -> Option<String> {
        /// Fewer bytes are not worth a sentence.
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

    /// Shown if no rule found a problem and the model itself, not what a step makes, is at least three quarters of the peak.
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
        // Gradients larger than the weights were misclassified: the categories of other profilers are often wrong.
        let is_most = share(bytes) >= 75.0 && bytes >= 64 * MEBIBYTE && gradients <= weights + weights / 10;
        is_most.then(|| match self.reserved_then {
            _ if self.only_loads => format!(
                "{what} {} % of the peak. Nothing but loading was recorded: record the first steps too, to see what they need.",
                share(bytes)
            ),
            None => format!(
                "{what} {} % of the peak: {lowers}, a smaller batch {}.",
                share(bytes),
                if share(bytes) >= 95.0 { "does not" } else { "hardly does" }
            ),
            Some(reserved) if reserved > all + all / 5 => format!(
                "{what} {} % of what was live when the file was written. {} is reserved, so more was in use before.",
                share(bytes),
                Bytes(reserved)
            ),
            Some(_) => format!("{what} {} % of what was live when the file was written: {lowers}.", share(bytes)),
        })
    }

    /// A sentence about what the user's own rules changed; `None` if they changed nothing.
    pub fn rules_sentence(&self) -> Option<String> {
        self.changed_by_rules.rules_sentence()
    }

    /// True if the remedy of some finding is chosen by trying settings on the recorded requests.
    pub fn depend_on_settings(&self) -> bool {
        self.findings.iter().any(|f| f.class == Class::OutOfMemory || f.depends_on_settings())
    }

    /// Adds the tried settings: to failures those that pass, to findings on reserved memory those that reserve less.
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
    /// True if other settings may help and only a replay can show which.
    pub fn depends_on_settings(&self) -> bool {
        rules::in_code(self.rule).is_some()
    }

    /// The advice from replaying the recorded requests under other settings, and the line to copy. `None` if settings are
    /// irrelevant, or if the finding already names settings that serve a failed request.
    pub fn by_settings(&self, helped: &Helped) -> Option<(String, Option<String>)> {
        rules::by_settings(self, helped)
    }
}
