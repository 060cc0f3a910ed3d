//! Which settings would have prevented a failure, and by what margin; used by findings and the autopsy.

use std::cmp::Reverse;

use serde::Serialize;

use super::horizon::Horizon;
use super::whatif::{Question, Row, SUGGESTED, WhatIf};
use crate::allocator::Placement;
use crate::model::{AllocConf, Cancelled, Progress};

/// Result of trying one setting on the recorded requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// The settings, as a `PYTORCH_CUDA_ALLOC_CONF` string; empty for PyTorch's defaults.
    pub conf: String,
    /// The effect of the settings, in a few words without a capital letter or full stop.
    pub about: &'static str,
    /// True if a request fails.
    pub oom: bool,
    /// Index of the request that fails, from 0; `None` if none fails.
    pub oom_request: Option<u64>,
    /// Highest reserved bytes; if a request fails, up to that failure.
    pub peak_reserved_bytes: u64,
    /// The limit minus that peak. Negative if expandable segments map more, see [`Row::over_limit`]. `None` without a limit.
    pub margin_bytes: Option<i64>,
    /// How often the cache had to be emptied. Each time synchronises the device.
    pub num_alloc_retries: u64,
    /// True if the verdict does not depend on anything missing from the trace.
    pub certain: bool,
    /// True if the verdict changes with other addresses of segments, or with other limits of the range.
    pub oom_varies: bool,
    /// The smallest limit of the range under which it passes, see [`Row::passes_from_bytes`].
    pub passes_from_bytes: Option<u64>,
}

/// The settings that were tried, and the limit that each needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Remedies {
    /// The limit that applied; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// Every setting tried, best first; those that pass come before those that fail.
    pub tried: Vec<Remedy>,
    /// What the run needs under its own settings; `None` if it fails under any limit.
    pub needed: Option<Needed>,
    /// What it needs under the best setting that passes.
    pub needed_with_best: Option<Needed>,
    /// True if the model reproduces the recording; if not, all figures are estimates.
    pub agrees_with_recording: bool,
    /// Set if the recording ends at its failure or the program caught it. "Passes" then only covers the recorded requests.
    pub ends_at_failure: Option<Horizon>,
}

/// What a run needs under given settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Needed {
    /// The smallest limit on reserved memory (to 2 MiB) that serves all requests. A card needs more, for memory outside PyTorch.
    pub smallest_limit_bytes: u64,
    /// Highest active bytes of the whole run.
    pub peak_active_bytes: u64,
}

impl Needed {
    /// The factor by which memory above `fixed_bytes` may grow within `limit`: the headroom of a batch. Below 1 if it must shrink.
    ///
    /// `fixed_bytes` does not grow with the batch: parameters, gradients, optimizer state. This is a first estimate: it assumes
    /// that reserved memory stays in proportion to active memory. 0 if the fixed part alone does not fit; `None` if nothing grows.
    pub fn batch_headroom(&self, fixed_bytes: u64, limit: u64) -> Option<f64> {
        let growing = self.peak_active_bytes.checked_sub(fixed_bytes).filter(|&g| g > 0)? as f64;
        let reserved_per_active = self.smallest_limit_bytes.max(1) as f64 / self.peak_active_bytes as f64;
        Some(((limit as f64 / reserved_per_active - fixed_bytes as f64) / growing).max(0.0))
    }
}

impl Remedies {
    /// The settings that pass, best first.
    pub fn passing(&self) -> impl Iterator<Item = &Remedy> {
        self.tried.iter().filter(|r| !r.oom)
    }
}

/// The cache may be emptied this often in a whole run before it counts against a setting.
const FEW_RETRIES: u64 = 2;

/// The order of rows under one limit, best first: passes; passes for certain; passes under most limits of the range; fails
/// latest; fewest retries; lowest peak; fewest settings.
fn rank(r: &Row) -> impl Ord + use<> {
    // If a row may fail after all, late is better than early.
    let earliest = Reverse(r.oom_request_span.map_or(u64::MAX, |s| s[0]));
    let settings = r.conf.split(',').filter(|c| !c.is_empty()).count();
    let from = r.passes_from_bytes.unwrap_or(u64::MAX);
    // A setting that releases segments early trades retries for releases. It is no improvement if the plain settings pass with
    // the same peak. One or two retries cost nothing noticeable.
    let retries = if r.num_alloc_retries <= FEW_RETRIES { 0 } else { r.num_alloc_retries };
    (r.oom, !r.is_verdict_certain(), from, earliest, retries, r.peak_reserved_bytes, settings, r.num_alloc_retries)
}

/// The best of several rows under one limit, and why. Order: passes; passes for certain; passes from the smallest limit of the
/// range on; fewest retries; lowest peak; fewest settings. `None` if none passes.
pub fn best(rows: &[&Row]) -> Option<(usize, String)> {
    let passing = || rows.iter().enumerate().filter(|(_, r)| !r.oom);
    let (at, best) = passing().min_by_key(|(_, r)| rank(r))?;
    let others: Vec<&Row> = passing().filter(|(i, _)| *i != at).map(|(_, r)| *r).collect();
    let fails = rows.len() - others.len() - 1;
    let is_alone_in = |of: fn(&Row) -> u64| others.iter().all(|r| of(r) > of(best));
    let why = if others.is_empty() {
        let may = if best.oom_varies { "may pass" } else { "passes" };
        if fails == 0 { "the only one that was tried".to_owned() } else { format!("the only one that {may}") }
    } else if best.is_verdict_certain() && !others.iter().any(|r| r.is_verdict_certain()) {
        "the only one that surely passes".to_owned()
    } else if let Some(from) = best.passes_from_bytes.filter(|_| best.oom_varies) {
        let least = others.iter().all(|r| r.passes_from_bytes.is_none_or(|f| f > from));
        let why = if least { "the others need more" } else { "no other needs less" };
        format!("passes with a limit of {} or more; {why}", crate::units::Bytes(from).limit())
    } else if best.oom_varies {
        "may pass, and would fail last if it fails after all".to_owned()
    } else if others.iter().any(|r| r.num_alloc_retries > best.num_alloc_retries) {
        let retries = crate::units::counted(best.num_alloc_retries, "retry", "retries");
        format!("passes with {}", if best.num_alloc_retries == 0 { "no retry".to_owned() } else { format!("only {retries}") })
            + if is_alone_in(|r| r.peak_reserved_bytes) { " and the lowest peak" } else { "" }
    } else if is_alone_in(|r| r.peak_reserved_bytes) {
        let is_estimate = rows.iter().any(|r| !r.oom && r.is_estimate());
        format!("passes with the lowest peak{}", if is_estimate { ", as far as that can be estimated" } else { "" })
    } else if others.iter().any(|r| r.peak_reserved_bytes < best.peak_reserved_bytes) {
        "surely passes, where those with a lower peak only may".to_owned()
    } else {
        "passes, and no other has a lower peak".to_owned()
    };
    let end = best.ends_at_failure.map_or(String::new(), |h| format!(". {}: {}", h.happened(), h.warning()));
    Some((at, why + &end))
}

/// Turns a row into a remedy. If the model does not reproduce the recording, nothing is certain.
fn remedy(row: &Row, about: &'static str, agrees: bool) -> Remedy {
    Remedy {
        conf: row.conf.clone(),
        about,
        oom: row.oom,
        oom_request: row.oom_request,
        peak_reserved_bytes: row.peak_reserved_bytes,
        margin_bytes: row.limit_bytes.map(|limit| (i128::from(limit) - i128::from(row.peak_reserved_bytes)) as i64),
        num_alloc_retries: row.num_alloc_retries,
        certain: row.certain || (agrees && row.is_verdict_certain()),
        oom_varies: row.oom_varies,
        passes_from_bytes: row.passes_from_bytes,
    }
}

impl WhatIf<'_> {
    /// Tries the [suggested](SUGGESTED) settings under `limit`, else under the recording's limit, else under the capacity.
    ///
    /// Each setting is run once, and again with other segment addresses if they may matter; then the smallest limits are searched
    /// for. About 12 to 60 runs of at most 0.3 µs per request, on all cores: 0.1 s for 20,000 requests.
    pub fn remedies_that_pass(&self, limit: Option<u64>, progress: &Progress) -> Result<Remedies, Cancelled> {
        let limit = limit.or(self.own_limit()).or(self.requests().device.capacity);
        let own = &self.own().replay.conf;
        let questions: Vec<(Question, &'static str)> = SUGGESTED
            .iter()
            .filter_map(|&(text, about)| Some((Question::parse(text, limit).ok()?, about)))
            .filter(|(question, _)| question.conf != *own)
            .collect();
        let asked: Vec<Question> = questions.iter().map(|(question, _)| question.clone()).collect();
        let answers = self.ask_all(&asked, 0, progress)?;
        progress.set_total(questions.len() as u64 + 2);
        let mut rows: Vec<(Row, &'static str)> = answers.into_iter().map(|a| a.row).zip(questions.iter().map(|q| q.1)).collect();
        rows.sort_by_cached_key(|(row, _)| rank(row));
        let agrees = self.own().agreement.agrees();
        let tried: Vec<Remedy> = rows.iter().map(|(row, about)| remedy(row, about, agrees)).collect();
        let needed = self.needed(own, progress)?;
        progress.advance(1);
        let best = tried.first().filter(|r| !r.oom).and_then(|r| questions.iter().find(|(q, _)| q.text == r.conf));
        let needed_with_best = match best {
            Some((question, _)) => self.needed(&question.conf, progress)?,
            None => None,
        };
        progress.advance(1);
        Ok(Remedies {
            limit_bytes: limit,
            tried,
            needed,
            needed_with_best,
            agrees_with_recording: agrees,
            ends_at_failure: self.own().horizon,
        })
    }

    /// The smallest limit on reserved memory, to 2 MiB, under which no request fails with these settings. `None` if a request
    /// fails even without a limit. About 16 runs.
    ///
    /// Whether a run passes is not strictly monotonic in the limit, because garbage collection depends on the limit. The
    /// bisection ends at a limit that passes while 2 MiB less fails.
    pub fn needed(&self, conf: &AllocConf, progress: &Progress) -> Result<Option<Needed>, Cancelled> {
        const STEP: u64 = 2 << 20;
        // This searches for the limit, so the limit in the settings is left out.
        let conf = AllocConf { per_process_memory_fraction: 1.0, ..conf.clone() };
        let passes = |limit: Option<u64>| -> Result<Option<(u64, u64)>, Cancelled> {
            let question = Question { conf: conf.clone(), text: String::new(), limit };
            let run = self.replay(&question, Placement::Driver, true).run(self.requests(), (), progress)?;
            let stats = run.allocator.stats();
            let peaks = (stats.reserved_bytes.all.peak, stats.active_bytes.all.peak);
            Ok(run.oom_request.is_none().then_some(peaks))
        };
        let Some((peak_reserved, mut peak_active_bytes)) = passes(None)? else { return Ok(None) };
        // No limit below the active peak can pass, except when the peak includes trials of workspaces, which a limit may refuse.
        let has_trials = !self.requests().trials.is_empty();
        let mut fails = if has_trials { 0 } else { (peak_active_bytes / STEP).saturating_sub(1) };
        // The reserved peak passes for certain, because the limit check uses whole segments.
        let mut works = peak_reserved.div_ceil(STEP);
        while passes(Some(works * STEP))?.is_none() {
            fails = works;
            works += works / 8 + 16;
        }
        while works - fails > 1 {
            let middle = fails + (works - fails) / 2;
            match passes(Some(middle * STEP))? {
                Some((_, active)) => {
                    works = middle;
                    peak_active_bytes = active;
                }
                None => fails = middle,
            }
        }
        Ok(Some(Needed { smallest_limit_bytes: works * STEP, peak_active_bytes }))
    }
}
