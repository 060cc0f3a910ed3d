//! Predicts a program at another size: runs its requests with other sizes on the allocator model.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::fit::Model;
use super::largest::ONE_RECORDING;
use super::law::QUANTITIES;
use super::{Setting, Size, unseen};
use crate::allocator::{Placement, Reach};
use crate::anatomy::Role;
use crate::inference::scripted::{Ask, Asked, Script, Scripted, Terms};
use crate::units::MEBIBYTE;

/// Compiled code for another size is assumed to need up to 1/n more or less; measured runs were off by as much (`docs/PLAN.md`).
const OTHER_CODE: u64 = 10;

/// The prediction for one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The size.
    pub size: Size,
    /// Its figures.
    #[serde(flatten)]
    pub peaks: Peaks,
    /// True if no unknown affects these figures.
    pub certain: bool,
    /// Why it is not certain: `sizes` (some sizes follow no law), `placement` (where the driver puts segments), `steps` (one
    /// recording has only its first step, another more), `failure` (a step was cut short).
    pub uncertain_because: Option<&'static str>,
}

impl Deref for Predicted {
    type Target = Peaks;

    fn deref(&self) -> &Peaks {
        &self.peaks
    }
}

impl DerefMut for Predicted {
    fn deref_mut(&mut self) -> &mut Peaks {
        &mut self.peaks
    }
}

/// The figures of a predicted run, with changes or without.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Peaks {
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Lowest and highest possible [`peak_reserved_bytes`](Self::peak_reserved_bytes).
    pub span: [u64; 2],
    /// Lowest and highest possible [`peak_allocated_bytes`](Self::peak_allocated_bytes).
    pub allocated_span: [u64; 2],
    /// True if a request fails under the limit.
    pub oom: bool,
    /// True if some of the runs tried end differently, or, with changes, if slightly more or less room would.
    pub oom_varies: bool,
    /// True if the recording ends before its first step does, so that more memory may be needed than any run shows.
    pub is_open: bool,
    /// How often PyTorch releases cached memory and tries again (`num_alloc_retries`).
    pub retries: u64,
    /// Live bytes at the peak of allocated bytes, by the stable names of roles. Whole blocks, as in the Overview; the sum is
    /// [`peak_allocated_bytes`](Self::peak_allocated_bytes).
    pub by_role: std::collections::BTreeMap<&'static str, u64>,
}

/// Answers for a size, each with its runs' highest values: an answer also holds for every setting that acts only above them.
#[derive(Clone, Debug, Default)]
pub(super) struct Answered(Arc<Mutex<FxHashMap<Vec<u64>, Vec<(Setting, Reach, Predicted)>>>>);

#[derive(Clone, Copy, Debug)]
struct Outcome {
    reach: Reach,
    reserved: u64,
    allocated: u64,
    retries: u64,
    failed: bool,
}

impl From<&Scripted> for Outcome {
    fn from(run: &Scripted) -> Self {
        Outcome {
            reach: run.reach,
            reserved: run.stats.reserved_bytes.all.peak,
            allocated: run.stats.allocated_bytes.all.peak,
            retries: run.stats.num_alloc_retries,
            failed: run.failed.is_some(),
        }
    }
}

/// Requests to run: those of a recording at other sizes, or of a changed program.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The requests and frees in order; each names a row by its index in [`rows`](Self::rows).
    pub asks: Vec<Ask>,
    /// The request of each row.
    pub rows: Vec<Asked>,
    /// The role of each row.
    pub roles: Vec<Role>,
    /// The state at the start, if not empty.
    pub start: Option<crate::inference::scripted::Start>,
}

impl Stream {
    /// Runs the requests once, up to the first failure. About 0.3 µs per request.
    pub fn run(&self, terms: &Terms) -> Scripted {
        Script { asks: &self.asks, rows: &self.rows, start: self.start.as_ref() }.run(terms)
    }

    /// Live block bytes by role at the peak of allocated bytes of a run.
    fn by_role(&self, run: &Scripted) -> std::collections::BTreeMap<&'static str, u64> {
        let block = |row: u32| run.blocks[row as usize];
        let mut live = [0u64; Role::ALL.len()];
        let older = self.older();
        for &row in &older {
            live[self.roles[row as usize].index()] += block(row);
        }
        let (mut sum, mut most, mut at_most) = (live.iter().sum::<u64>(), 0, live);
        for ask in &self.asks[..run.failed.unwrap_or(self.asks.len())] {
            match *ask {
                Ask::Alloc(row) => {
                    live[self.roles[row as usize].index()] += block(row);
                    sum += block(row);
                    if sum > most {
                        (most, at_most) = (sum, live);
                    }
                }
                Ask::Free(row) | Ask::FreeLater(row) if (row as usize) < self.rows.len() => {
                    let held = &mut live[self.roles[row as usize].index()];
                    *held = held.saturating_sub(block(row));
                    sum = sum.saturating_sub(block(row));
                }
                _ => {}
            }
        }
        Role::ALL.iter().zip(at_most).filter(|(_, bytes)| *bytes > 0).map(|(r, bytes)| (r.name(), bytes)).collect()
    }

    /// Rows that exist before the first step.
    fn older(&self) -> Vec<u32> {
        if self.start.is_none() {
            return Vec::new();
        }
        let made: FxHashSet<u32> = self.asks.iter().filter_map(|a| if let Ask::Alloc(r) = a { Some(*r) } else { None }).collect();
        (0..self.rows.len() as u32).filter(|r| !made.contains(r)).collect()
    }
}

/// Which of the possible sizes to use for rows whose size is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// The size given by the row's law.
    Likely,
    /// The smallest size that the recordings allow.
    Least,
    /// The largest size that the recordings allow.
    Most,
    /// Smallest or largest, chosen for each law by a hash with this seed.
    Mixed(u32),
}

impl Model {
    /// Bytes of every row at these values.
    pub(super) fn sizes_by(&self, at: &[u64], pick: Pick) -> Vec<u64> {
        let mut by_fit: Vec<u64> = self.fits.iter().map(|f| f.law.bytes(at)).collect();
        if pick != Pick::Likely {
            for (i, span) in self.spans(at).into_iter().enumerate() {
                if let Some([low, high]) = span {
                    by_fit[i] = match pick {
                        Pick::Likely => by_fit[i],
                        Pick::Least => low,
                        Pick::Most => high,
                        Pick::Mixed(seed) => {
                            let hash = (i as u32 ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
                            if hash >> 31 == 0 { low } else { high }
                        }
                    };
                }
            }
        }
        self.of.iter().map(|&id| by_fit[id as usize]).collect()
    }

    /// Each row's role. Weights and autocast's copies do not grow with the batch, so a row of such a role that does is chance.
    fn roles(&self) -> Vec<Role> {
        let is_chance = |row: usize, role| !self.is_single && role == Role::AutocastCopies && !self.fit(row).law.is_constant();
        let roles = self.program.rows.iter().map(|r| r.role).enumerate();
        roles.map(|(row, role)| if is_chance(row, role) { Role::Activations } else { role }).collect()
    }

    pub(super) fn stream(&self, at: &[u64], pick: Pick) -> Stream {
        let program = &self.program;
        let sizes = self.sizes_by(at, pick);
        let rows: Vec<Asked> =
            program.rows.iter().zip(sizes).map(|(r, size)| Asked { size, stream: r.stream, pool: r.pool }).collect();
        let older = program.older;
        // Segments from before the start are valid only for the recorded sizes.
        let same = rows[..older].iter().zip(&program.rows).all(|(asked, row)| asked.size == row.size);
        let start = (older > 0 && same).then(|| program.start.clone());
        let mut asks = Vec::with_capacity(program.asks.len() + older);
        if start.is_none() {
            asks.extend((0..older as u32).map(Ask::Alloc));
        }
        asks.extend_from_slice(&program.asks);
        let mut stream = Stream { asks, rows, roles: self.roles(), start };
        unseen::put(&self.unseen, &mut stream, at, pick, Some);
        stream
    }

    /// True if some size at these values is not known exactly.
    pub(super) fn has_guess(&self, at: &[u64]) -> bool {
        self.spans(at).iter().any(Option::is_some) || self.unseen.iter().any(|u| u.is_open(at))
    }

    /// The most bytes at once, at these values, of requests that follow no law.
    pub(super) fn open(&self, at: &[u64]) -> u64 {
        self.program.most_live(&self.sizes_by(at, Pick::Likely), |row| self.fit(row).sure == super::Sure::Guessed)
    }

    /// The most bytes at once of requests whose size is the same at all values.
    fn fixed(&self) -> u64 {
        let sizes: Vec<u64> = self.program.rows.iter().map(|r| r.size).collect();
        let is_fixed = |row: usize| {
            let fit = self.fit(row);
            fit.others.is_empty() && fit.law == super::Law::constant(sizes[row])
        };
        self.program.most_live(&sizes, is_fixed)
    }

    /// Bytes of one segment: a block of unknown size may need one segment more or less than in any run tried.
    fn segment(&self, at: &[u64], setting: &Setting) -> u64 {
        let largest = self.spans(at).into_iter().flatten().map(|[_, high]| high).max();
        // Requests above 2 MiB have segments of their own size, which the open bytes include.
        largest.map_or(0, |high| setting.conf.segment_size(high.min(2 * MEBIBYTE)))
    }

    fn values(&self, size: &Size) -> Vec<u64> {
        size.values(&self.names).unwrap_or_else(|| vec![1; QUANTITIES])
    }

    /// A known answer for these values, under a setting with the same effect.
    fn answered(&self, at: &[u64], setting: &Setting) -> Option<Predicted> {
        let answered = self.answered.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Setting, reach: &Reach| {
            reach.is_same((&known.conf, known.limit), (&setting.conf, setting.limit), self.program.version)
        };
        Some(answered.get(at)?.iter().find(|(known, reach, _)| is_same(known, reach))?.2.clone())
    }

    /// True if the most likely requests pass with the driver's placement.
    pub(super) fn passes_once(&self, size: &Size, setting: &Setting) -> bool {
        let at = self.values(size);
        self.answered(&at, setting).map_or_else(
            || self.stream(&at, Pick::Likely).run(&self.terms(setting, Placement::Driver)).failed.is_none(),
            |known| !known.oom,
        )
    }

    /// True if the requests with this choice of unknown sizes pass with the driver's placement.
    pub(super) fn passes_with(&self, size: &Size, setting: &Setting, pick: Pick) -> bool {
        let at = self.values(size);
        self.stream(&at, pick).run(&self.terms(setting, Placement::Driver)).failed.is_none()
    }

    fn terms(&self, setting: &Setting, placement: Placement) -> Terms {
        Terms { conf: setting.conf.clone(), version: self.program.version, limit: setting.limit, placement }
    }

    pub(super) fn predict(&self, size: &Size, setting: &Setting) -> Predicted {
        let at = self.values(size);
        if let Some(out) = self.answered(&at, setting) {
            return Predicted { size: size.clone(), ..out };
        }
        let (reach, out) = self.predict_anew(&at, size, setting);
        let mut answered = self.answered.0.lock().unwrap_or_else(PoisonError::into_inner);
        answered.entry(at).or_default().push((setting.clone(), reach, out.clone()));
        out
    }

    fn predict_anew(&self, at: &[u64], size: &Size, setting: &Setting) -> (Reach, Predicted) {
        let stream = self.stream(at, Pick::Likely);
        let mut others = Vec::new();
        if self.has_guess(at) {
            others.extend([Pick::Least, Pick::Most, Pick::Mixed(1), Pick::Mixed(2)].map(|pick| self.stream(at, pick)));
        }
        let (reach, mut out) = self.answer(size, setting, &stream, others);
        // A size that follows no law may differ from those in all of these runs.
        let is_other_code = self.program.is_compiled && *size != self.program.at;
        let open = self.open(at) + if is_other_code { out.peak_reserved_bytes / OTHER_CODE } else { 0 };
        if self.is_single && *size != self.program.at {
            // What grows is only likely, and whether a hole fits changes the peak by a few percent.
            let less = |bytes: u64| bytes - bytes / ONE_RECORDING;
            let slack = out.peak_reserved_bytes / ONE_RECORDING;
            out.span = [less(out.span[0]), out.span[1] + slack];
            out.allocated_span = [less(out.allocated_span[0]), out.allocated_span[1] + slack];
            // The lower bound: blocks of constant size, and for a larger run the recorded peak.
            let fixed = self.fixed();
            let is_larger = self.program.at.iter().all(|(name, v)| size.get(name).is_some_and(|w| w >= v));
            let [reserved, allocated] = if is_larger { self.program.peaks } else { [fixed, fixed] };
            if setting.conf == self.program.conf && setting.limit.is_none() {
                // The holes of the recorded run may grow in proportion to its memory.
                let [held, used] = self.program.peaks;
                let holes = (held.saturating_sub(used) as f64 * self.growth(size).max(1.0)) as u64;
                out.span[1] = out.span[1].max(out.peak_allocated_bytes.saturating_add(holes));
            }
            if !out.oom {
                let at_least = |[low, high]: [u64; 2], least: u64, point: u64| [low.max(least).min(point), high.max(point)];
                let least = if setting.conf == self.program.conf { reserved } else { allocated };
                out.span = at_least(out.span, least, out.peak_reserved_bytes);
                out.allocated_span = at_least(out.allocated_span, allocated, out.peak_allocated_bytes);
            }
            out.certain = false;
            out.uncertain_because = Some("sizes");
        }
        // A run of another size would have left another cache before its recording began. Which cached blocks are reused also
        // affects how much of them is left over: half a percent of all allocated bytes was measured, and one percent is assumed.
        let cached = self.program.cached_before;
        if cached > 0 && *size != self.program.at && !self.is_single && !out.oom {
            let growth = self.growth(size);
            let left_over = cached.min(out.peak_allocated_bytes / 100);
            out.allocated_span[0] = out.allocated_span[0].saturating_sub(left_over);
            out.allocated_span[1] = out.allocated_span[1].saturating_add(left_over);
            out.span[0] = out.span[0].saturating_sub(cached).max(out.allocated_span[0]);
            out.span[1] = out.span[1].saturating_add((cached as f64 * (growth - 1.0).max(0.0)) as u64);
            if cached.saturating_mul(1000) >= out.peak_reserved_bytes {
                out.certain = false;
                out.uncertain_because.get_or_insert("placement");
            }
        }
        if open > 0 && !self.is_single {
            let matters = open * 1000 >= out.peak_reserved_bytes;
            let around = open + if matters { self.segment(at, setting) } else { 0 };
            let widened = [out.span[0].saturating_sub(around), out.span[1] + around];
            let [low, high] = out.allocated_span;
            (out.span, out.allocated_span) =
                if out.oom { (out.span, out.allocated_span) } else { (widened, [low.saturating_sub(open), high + open]) };
            out.certain &= !matters;
            if !out.certain {
                out.uncertain_because.get_or_insert("sizes");
            }
        }
        (reach, out)
    }

    /// The factor by which a size exceeds the recorded run, over all quantities.
    fn growth(&self, size: &Size) -> f64 {
        self.program.at.iter().filter_map(|(name, v)| Some(size.get(name)? as f64 / v as f64)).product()
    }

    /// Runs requests under a setting, and equally possible other ones; returns the highest values of the runs and the prediction.
    pub(super) fn answer(&self, size: &Size, setting: &Setting, stream: &Stream, others: Vec<Stream>) -> (Reach, Predicted) {
        let terms = |placement: Placement| self.terms(setting, placement);
        let first = stream.run(&terms(Placement::Driver));
        let placed: &[Placement] = if first.has_tie {
            &[Placement::Ascending, Placement::Descending, Placement::Random(1), Placement::Random(2)]
        } else {
            &[]
        };
        let mut runs: Vec<(&Stream, Placement, &'static str)> = placed.iter().map(|&p| (stream, p, "placement")).collect();
        runs.extend(others.iter().map(|other| (other, Placement::Driver, "sizes")));
        let outcomes: Vec<(Outcome, &'static str)> = runs
            .par_iter()
            .map(|(stream, placement, because)| (Outcome::from(&stream.run(&terms(*placement))), *because))
            .collect();
        let reach = outcomes.iter().fold(first.reach, |reach, (outcome, _)| reach.or(outcome.reach));
        (reach, answer(size, stream, &first, &outcomes))
    }
}

impl Predicted {
    /// The prediction without a program: zeros.
    pub(super) fn nothing(size: &Size) -> Self {
        Predicted { size: size.clone(), peaks: Peaks::default(), certain: false, uncertain_because: Some("sizes") }
    }
}

fn answer(size: &Size, stream: &Stream, run: &Scripted, others: &[(Outcome, &'static str)]) -> Predicted {
    let point = Outcome::from(run);
    let peaks = Peaks {
        peak_reserved_bytes: point.reserved,
        peak_allocated_bytes: point.allocated,
        span: [point.reserved; 2],
        allocated_span: [point.allocated; 2],
        oom: point.failed,
        retries: point.retries,
        by_role: stream.by_role(run),
        ..Peaks::default()
    };
    let mut out = Predicted { size: size.clone(), peaks, certain: true, uncertain_because: None };
    for (other, because) in others {
        out.oom_varies |= other.failed != point.failed;
        out.span = [out.span[0].min(other.reserved), out.span[1].max(other.reserved)];
        out.allocated_span = [out.allocated_span[0].min(other.allocated), out.allocated_span[1].max(other.allocated)];
        if other.reserved != point.reserved || other.allocated != point.allocated || other.failed != point.failed {
            out.certain = false;
            out.uncertain_because.get_or_insert(because);
        }
    }
    out
}
