//! What if: runs the recorded requests under other settings and limits.
//!
//! Up to PyTorch 2.12 the allocator chooses the lower address among equal free blocks, and the driver decides addresses. So a
//! question is answered by several runs with different placements of segments. What all runs agree on is certain; for other
//! figures the answer gives a range.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::assume::Assumption;
use super::curve::Sampler;
pub use super::curve::{Curve, POINTS};
use super::effects;
use super::horizon::Horizon;
use super::own::{OwnRun, explain};
use super::replay::{Ended, Replay};
use super::requests::{Known, Requests};
use crate::allocator::{Placement, Reach};
use crate::model::{Action, AllocConf, Cancelled, DeviceRecording, Progress, Stage};

/// One setting to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The settings to run with.
    pub conf: AllocConf,
    /// The settings as the user wrote them, for display.
    pub text: String,
    /// The most bytes that may be reserved; `None` for no limit.
    pub limit: Option<u64>,
}

impl Question {
    /// Reads a settings string.
    pub fn parse(text: &str, limit: Option<u64>) -> Result<Self, crate::model::ConfError> {
        let text = settings_of(text);
        Ok(Question { conf: AllocConf::parse(text)?, text: text.to_owned(), limit })
    }
}

/// Extracts the settings from a copied line: of `export PYTORCH_CUDA_ALLOC_CONF="…"` it keeps the value.
pub fn settings_of(line: &str) -> &str {
    let trimmed = line.trim();
    let bare = trimmed.strip_prefix("export ").map_or(trimmed, str::trim_start);
    let names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];
    let value = names.iter().find_map(|name| bare.strip_prefix(name)?.trim_start().strip_prefix('='));
    value.map_or(line, |v| v.trim().trim_matches(['"', '\'']))
}

/// The figures of one answer, named as in the command-line contract. Bytes are those of whole blocks and segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The settings as asked.
    pub conf: String,
    /// The limit that applied: the one asked for, or that of the settings (`per_process_memory_fraction`) if it is lower.
    pub limit_bytes: Option<u64>,
    /// Memory of the device, if the recording has it. It bounds the run even without a limit.
    pub device_bytes: Option<u64>,
    /// True if a request failed; the run stops there.
    pub oom: bool,
    /// Index of the failed request, from 0; `None` if none failed.
    pub oom_request: Option<u64>,
    /// Highest reserved bytes; if a request failed, up to that request.
    pub peak_reserved_bytes: u64,
    /// Highest allocated bytes, up to the same point.
    pub peak_allocated_bytes: u64,
    /// Highest active bytes: allocated blocks, and freed blocks that another stream still uses.
    pub peak_active_bytes: u64,
    /// Highest requested bytes (before rounding) of active blocks.
    pub peak_requested_bytes: u64,
    /// Highest bytes of free blocks in segments that are partly in use.
    pub peak_inactive_split_bytes: u64,
    /// How often the cache was emptied for a retry.
    pub num_alloc_retries: u64,
    /// Requests that failed for lack of memory.
    pub num_ooms: u64,
    /// Number of `cudaMalloc` or mapping calls.
    pub num_device_alloc: u64,
    /// Number of `cudaFree` or unmapping calls.
    pub num_device_free: u64,
    /// Most segments at once; as in PyTorch, expandable segments are not counted.
    pub peak_segments: u64,
    /// Reserved bytes at the end.
    pub final_reserved_bytes: u64,
    /// Allocated bytes at the end.
    pub final_allocated_bytes: u64,
    /// Number of requests, served or refused.
    pub requests: u64,
    /// Time that the answer took, in seconds.
    pub seconds: f64,
    /// True if no figure depends on anything missing from the trace: every placement tried gives the same row.
    pub certain: bool,
    /// Why it is not certain: `placement` (where the driver puts segments), `limit` (known only as a range), `timing` (when
    /// deferred frees complete), `trace` (see the assumptions).
    pub uncertain_because: Option<&'static str>,
    /// Lowest and highest peak of reserved bytes over all placements tried.
    pub peak_reserved_span: [u64; 2],
    /// The range of the failed request, `[earliest, latest]`. A placement without a failure counts as the number of requests.
    pub oom_request_span: Option<[u64; 2]>,
    /// True if some of the placements give the other verdict.
    pub oom_varies: bool,
    /// If the limit is known only as a range: the smallest limit of that range under which every request succeeds, to 2 MiB.
    pub passes_from_bytes: Option<u64>,
    /// Lowest and highest value of every other figure that differs between placements, by name.
    pub spans: BTreeMap<&'static str, [u64; 2]>,
    /// True if the model reproduces the recording under its own settings.
    pub agrees_with_recording: bool,
    /// What a recording with a failure leaves open. "Every request served" then only covers the recorded requests.
    pub ends_at_failure: Option<Horizon>,
}

/// A figure's name and how to read it from a row.
type Figure = (&'static str, fn(&Row) -> u64);

/// Figures that may differ between placements, besides the reserved peak and the failed request, which have their own fields.
const FIGURES: [Figure; 12] = [
    ("peak_allocated_bytes", |r| r.peak_allocated_bytes),
    ("peak_active_bytes", |r| r.peak_active_bytes),
    ("peak_requested_bytes", |r| r.peak_requested_bytes),
    ("peak_inactive_split_bytes", |r| r.peak_inactive_split_bytes),
    ("num_alloc_retries", |r| r.num_alloc_retries),
    ("num_ooms", |r| r.num_ooms),
    ("num_device_alloc", |r| r.num_device_alloc),
    ("num_device_free", |r| r.num_device_free),
    ("peak_segments", |r| r.peak_segments),
    ("final_reserved_bytes", |r| r.final_reserved_bytes),
    ("final_allocated_bytes", |r| r.final_allocated_bytes),
    ("requests", |r| r.requests),
];

impl Row {
    /// True if the verdict, the failed request and the reserved peak are certain. Others may have [spans](Self::spans).
    pub fn is_outcome_certain(&self) -> bool {
        let only_lesser = self.uncertain_because != Some("trace");
        let is_one = |span: [u64; 2]| span[0] == span[1];
        only_lesser && is_one(self.peak_reserved_span) && self.oom_request_span.is_none_or(is_one)
    }

    /// True if a request could be refused: there is a limit, or the run fills more than half the device. At less than half, no
    /// uncertainty of the trace matters: none doubles the reserved memory.
    fn can_fail(&self) -> bool {
        let fills = |total: u64| self.peak_reserved_span[1] > total / 2;
        self.oom || self.oom_varies || self.limit_bytes.is_some() || self.device_bytes.is_some_and(fills)
    }

    /// True if it is certain whether every request succeeds, even if other figures are uncertain.
    pub fn is_verdict_certain(&self) -> bool {
        !self.can_fail() || (self.uncertain_because != Some("trace") && !self.oom_varies)
    }

    /// True if the figures depend on data missing from the trace, so they are estimates.
    pub fn is_estimate(&self) -> bool {
        self.uncertain_because == Some("trace")
    }

    /// By how many bytes the peak exceeds the limit. This is possible with expandable segments: PyTorch compares the limit with
    /// the request rounded to 2 MiB, and then maps whole pages of 20 MiB.
    pub fn over_limit(&self) -> u64 {
        self.limit_bytes.map_or(0, |limit| self.peak_reserved_bytes.saturating_sub(limit))
    }
}

/// A row with its curve and its assumptions.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The question that it answers.
    pub question: Question,
    /// The figures, also printed as JSON.
    pub row: Row,
    /// Empty unless the caller asked for points.
    pub curve: Curve,
    /// Empty if the answer is exact.
    pub assumptions: Vec<Assumption>,
    /// The highest values of its runs; `None` if other limits were tried too.
    pub(super) reach: Option<Reach>,
    /// True if the run followed the recording to its end but did not make all of its segments.
    pub(super) follows_in_part: bool,
}

/// Number of other placements to try, by the number of requests: long runs must also finish within seconds.
fn places_tried(requests: u64) -> usize {
    match requests {
        0..300_000 => 12,
        300_000..2_000_000 => 4,
        _ => 2,
    }
}

/// Settings worth trying, each with its purpose.
pub const SUGGESTED: [(&str, &str); 12] = [
    ("", "PyTorch's defaults"),
    ("expandable_segments:True", "segments grow in place, so holes between them do not arise"),
    (
        "expandable_segments:True,garbage_collection_threshold:0.8",
        "segments grow in place, and unused ones go back before the limit",
    ),
    ("max_split_size_mb:512", "blocks of 512 MiB and more are kept whole"),
    ("max_split_size_mb:128", "blocks of 128 MiB and more are kept whole"),
    ("max_split_size_mb:64", "blocks of 64 MiB and more are kept whole"),
    ("garbage_collection_threshold:0.8", "old unused segments go back at 80 % of the limit"),
    ("garbage_collection_threshold:0.6", "old unused segments go back at 60 % of the limit"),
    ("max_split_size_mb:128,garbage_collection_threshold:0.8", "large blocks are kept whole, and old unused segments go back"),
    ("roundup_power2_divisions:4", "nearly equal sizes are rounded to one size, so a freed block fits the next request"),
    ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", "coarser sizes for large requests, as in PyTorch's documentation"),
    ("expandable_segments:True,roundup_power2_divisions:8", "segments grow in place, and similar sizes share blocks"),
];

/// Answers questions about one device of a recording.
#[derive(Debug)]
pub struct WhatIf<'a> {
    requests: Requests<'a>,
    own: Arc<OwnRun>,
}

/// What [`WhatIf::new`] found out about a device. Store it with the recording: [`WhatIf::again`] then costs nothing.
#[derive(Clone, Debug)]
pub struct Prepared {
    known: Arc<Known>,
    own: Arc<OwnRun>,
}

impl Prepared {
    pub(super) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known)
    }
}

impl<'a> WhatIf<'a> {
    /// Reads the requests and checks whether the model reproduces the recording.
    pub fn new(device: &'a DeviceRecording, known_limit: Option<u64>, progress: &Progress) -> Result<Self, Cancelled> {
        // The trace is read once, and usually run once for the check.
        progress.begin(Stage::Replaying, 2 * device.events.len() as u64);
        let mut requests = Requests::read(device, progress)?;
        let own = Arc::new(explain(&mut requests, known_limit, progress)?);
        Ok(WhatIf { requests, own })
    }

    /// True if a device has requests to run again: allocations or failed requests, and most memory not reserved before the trace.
    pub fn has_requests(device: &DeviceRecording) -> bool {
        Self::mostly_before(device).is_none() && device.events.action.iter().any(|a| matches!(a, Action::Alloc | Action::Oom))
    }

    /// Bytes that were reserved before the trace began, if they are more than half of its peak. The trace does not contain the
    /// requests for them, so a replay cannot say anything about that memory.
    pub fn mostly_before(device: &DeviceRecording) -> Option<u64> {
        let reserved = &device.source_totals.reserved;
        let (before, peak) = (reserved.start, reserved.values.iter().copied().max().unwrap_or(0));
        (reserved.is_known() && before.saturating_mul(2) > peak).then_some(before)
    }

    /// The results of [`new`](Self::new), for reuse.
    pub fn prepared(&self) -> Prepared {
        Prepared { known: self.requests.known(), own: Arc::clone(&self.own) }
    }

    /// Continues with results found for the same device before.
    pub fn again(device: &'a DeviceRecording, prepared: &Prepared) -> Self {
        WhatIf { requests: Requests::again(device, Arc::clone(&prepared.known)), own: Arc::clone(&prepared.own) }
    }

    /// The run of the recording under its own settings.
    pub fn own(&self) -> &OwnRun {
        &self.own
    }

    /// The requests of the recording.
    pub fn requests(&self) -> &Requests<'a> {
        &self.requests
    }

    /// The limit for a question without one: the recording's own, if it is known or follows from the failed requests.
    pub fn own_limit(&self) -> Option<u64> {
        self.own.replay.limit
    }

    /// The question with the recording's own settings and limit.
    pub fn own_question(&self) -> Question {
        let conf = self.own.replay.conf.clone();
        Question { text: conf.to_string(), conf, limit: self.own.replay.limit }
    }

    /// The run that produces an answer's figures.
    pub(crate) fn replay_of(&self, question: &Question) -> Replay {
        self.replay(question, Placement::Driver, true)
    }

    /// The limit that applies to a question: its own, or that of the settings if it is lower.
    pub(crate) fn limit_of(&self, question: &Question) -> Option<u64> {
        let share = effects::share(&question.conf, self.requests.device.capacity);
        question.limit.into_iter().chain(share).min()
    }

    pub(crate) fn replay(&self, question: &Question, placement: Placement, follows_recording: bool) -> Replay {
        Replay {
            conf: question.conf.clone(),
            version: self.own.replay.version,
            limit: self.limit_of(question),
            placement,
            follows_recording,
            completes_at_once: false,
            stops_at_oom: true,
        }
    }

    /// Answers one question. `points` is the number of points of the curve; 0 for none.
    pub fn ask(&self, question: &Question, points: usize, progress: &Progress) -> Result<Answer, Cancelled> {
        let started = Instant::now();
        let runs = 1 + places_tried(self.requests.count) as u64;
        progress.begin(Stage::Replaying, runs * self.requests.device.events.len() as u64);
        let (first, curve) = self.first_run(question, points, progress)?;
        let mut row = self.row(question, &first);
        // If the settings changed no segment of the whole run, the recording's own figures hold, whatever the driver does.
        let follows_all = first.is_following && !row.oom && first.followed == self.requests.growths.len();
        let is_the_recording = follows_all || (first.is_following && question.conf == self.own.replay.conf);
        let mut reach = Some(first.reach);
        let mut widen_by = |row: &mut Row, question: &Question, other: &Ended, because| {
            reach = reach.map(|r| r.or(other.reach));
            widen(row, &self.row(question, other), because);
        };
        if first.has_tie && !is_the_recording {
            for other in self.vary(question, progress)? {
                widen_by(&mut row, question, &other, "placement");
            }
        }
        let is_own_limit = row.limit_bytes == self.own.replay.limit;
        let range = self.own.limit_range().filter(|r| !r.is_known());
        if let (Some(range), Some(limit)) = (range, row.limit_bytes)
            && is_own_limit
        {
            // The recording's limit is known only as a range, so try both ends too.
            for end in [range.least, range.most].into_iter().filter(|&end| end != limit) {
                let moved = Question { limit: Some(end), ..question.clone() };
                let other = self.replay(&moved, Placement::Driver, true).end(&self.requests, progress)?;
                widen_by(&mut row, &moved, &other, "limit");
                if end == range.least && !row.oom {
                    row.passes_from_bytes = match other.oom_request {
                        None => Some(end),
                        Some(_) => Some(self.passes_from(question, [end, limit], progress)?),
                    };
                }
            }
        }
        if !is_the_recording && self.requests.has_guarded_frees() {
            let early = Replay { completes_at_once: true, ..self.replay(question, Placement::Driver, true) };
            widen_by(&mut row, question, &early.end(&self.requests, progress)?, "timing");
        }
        if !is_the_recording && (self.requests.needs_assumptions() || !self.own.agreement.agrees()) {
            doubt(&mut row, "trace");
        }
        // What is known about the recording's limit does not apply to another limit.
        let concerns = |a: &&Assumption| is_own_limit || !matches!(a, Assumption::InferredLimit { .. });
        let mut assumptions: Vec<Assumption> = self.own.assumptions.iter().filter(concerns).cloned().collect();
        for (assumption, is_doubt) in effects::assumed(&question.conf, self.own.replay.version, &self.requests) {
            // The effect of the recording's own settings is already part of the recording.
            let is_shown = question.conf == self.own.replay.conf && self.own.agreement.agrees();
            if is_doubt && !is_shown {
                doubt(&mut row, "trace");
            }
            assumptions.push(assumption);
        }
        row.seconds = started.elapsed().as_secs_f64();
        if let Some(event) = first.rescued_event {
            assumptions.push(Assumption::WentOnDifferently { event });
        }
        let reach = reach.filter(|_| range.is_none());
        let follows_in_part = first.is_following && !follows_all;
        Ok(Answer { question: question.clone(), row, curve, assumptions, reach, follows_in_part })
    }

    /// The run that produces an answer's figures. For the recording's own settings it was already made for the check.
    fn first_run(&self, question: &Question, points: usize, progress: &Progress) -> Result<(Ended, Curve), Cancelled> {
        let own = &self.own.replay;
        if let Some((ended, curve)) = self.own.ended.as_ref()
            && question.conf == own.conf
            && self.limit_of(question) == own.limit
            && [0, POINTS].contains(&points)
        {
            return Ok((ended.clone(), if points == 0 { Curve::default() } else { curve.clone() }));
        }
        let mut sampler = Sampler::new(self.requests.device.events.len(), points);
        let run = self.replay(question, Placement::Driver, true).run_watched(&self.requests, (), &mut sampler, progress)?;
        Ok((run.ended(), sampler.finish()))
    }

    /// True if the recording's own settings and limit need no run.
    pub(super) fn knows_own_run(&self) -> bool {
        self.own.ended.is_some()
    }

    /// The smallest limit within a range under which the question passes, to 2 MiB. The lower end fails and the upper end passes.
    fn passes_from(&self, question: &Question, [mut fails, mut works]: [u64; 2], progress: &Progress) -> Result<u64, Cancelled> {
        const STEP: u64 = 2 << 20;
        for _ in 0..places_tried(self.requests.count) {
            let middle = (fails + (works - fails) / 2) / STEP * STEP;
            if middle <= fails || middle >= works {
                break;
            }
            let tried = Question { limit: Some(middle), ..question.clone() };
            match self.replay(&tried, Placement::Driver, true).end(&self.requests, progress)?.oom_request {
                Some(_) => fails = middle,
                None => works = middle,
            }
        }
        Ok(works)
    }

    /// Repeats the run with other placements of segments.
    fn vary(&self, question: &Question, progress: &Progress) -> Result<Vec<Ended>, Cancelled> {
        let all = [
            (Placement::Ascending, false),
            (Placement::Descending, true),
            (Placement::Random(1), false),
            (Placement::Descending, false),
            (Placement::Driver, false),
            (Placement::Ascending, true),
            (Placement::Alternating, false),
            (Placement::Random(2), true),
            (Placement::Random(3), false),
            (Placement::Random(4), true),
            (Placement::Random(5), false),
            (Placement::Random(6), false),
        ];
        all.par_iter()
            .take(places_tried(self.requests.count))
            .map(|&(placement, follows)| self.replay(question, placement, follows).end(&self.requests, progress))
            .collect()
    }

    fn row(&self, question: &Question, run: &Ended) -> Row {
        let stats = &run.stats;
        let peak = stats.reserved_bytes.all.peak;
        Row {
            conf: question.text.clone(),
            limit_bytes: self.limit_of(question),
            device_bytes: self.requests.device.capacity,
            oom: run.oom_request.is_some(),
            oom_request: run.oom_request,
            peak_reserved_bytes: peak,
            peak_allocated_bytes: stats.allocated_bytes.all.peak,
            peak_active_bytes: stats.active_bytes.all.peak,
            peak_requested_bytes: stats.requested_bytes.all.peak,
            peak_inactive_split_bytes: stats.inactive_split_bytes.all.peak,
            num_alloc_retries: stats.num_alloc_retries,
            num_ooms: stats.num_ooms,
            num_device_alloc: stats.num_device_alloc,
            num_device_free: stats.num_device_free,
            peak_segments: stats.segment.all.peak,
            final_reserved_bytes: stats.reserved_bytes.all.current,
            final_allocated_bytes: stats.allocated_bytes.all.current,
            requests: run.requests,
            certain: true,
            peak_reserved_span: [peak, peak],
            oom_request_span: run.oom_request.map(|r| [r, r]),
            agrees_with_recording: self.own.reproduces(),
            ends_at_failure: self.own.horizon,
            ..Row::default()
        }
    }
}

fn doubt(row: &mut Row, because: &'static str) {
    row.certain = false;
    row.uncertain_because.get_or_insert(because);
}

fn widen(row: &mut Row, other: &Row, because: &'static str) {
    if row.oom_request != other.oom_request || row.peak_reserved_bytes != other.peak_reserved_bytes {
        doubt(row, because);
    }
    row.oom_varies |= row.oom != other.oom;
    let span = &mut row.peak_reserved_span;
    span[0] = span[0].min(other.peak_reserved_bytes);
    span[1] = span[1].max(other.peak_reserved_bytes);
    if row.oom_request_span.is_some() || other.oom_request.is_some() {
        // A run without a failure counts as having made every request.
        let made = |r: &Row| r.oom_request.unwrap_or(r.requests);
        let [low, high] = row.oom_request_span.unwrap_or([made(row), made(row)]);
        row.oom_request_span = Some([low.min(made(other)), high.max(made(other))]);
    }
    for (name, of) in FIGURES {
        let (mine, theirs) = (of(row), of(other));
        if mine == theirs {
            continue;
        }
        let span = row.spans.entry(name).or_insert([mine, mine]);
        *span = [span[0].min(theirs), span[1].max(theirs)];
        doubt(row, because);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_line_is_taken_for_what_it_sets() {
        for line in [
            "max_split_size_mb:64",
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64",
            " PYTORCH_ALLOC_CONF='max_split_size_mb:64' ",
            "export PYTORCH_CUDA_ALLOC_CONF=\"max_split_size_mb:64\"",
        ] {
            assert_eq!(settings_of(line), "max_split_size_mb:64");
            assert_eq!(Question::parse(line, None).map(|q| q.text), Ok("max_split_size_mb:64".to_owned()));
        }
        assert_eq!(settings_of("PYTORCH_ALLOC_CONF="), "");
    }
}
