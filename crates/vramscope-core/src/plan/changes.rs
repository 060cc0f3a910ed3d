//! The effect of a change, predicted from a recording without it: the requests are transformed and run on the allocator model.

use std::ops::Deref;

use serde::Serialize;

use super::largest::last_passing;
use super::law::QUANTITIES;
use super::predict::{Peaks, Pick, Predicted, Stream};
use super::{Change, Code, Model, Plan, Setting, Size, Trust, unseen};
use crate::changes::{Edited, FREE, edit, edit_late, scaled, unknown_name};
use crate::inference::scripted::{Ask, Asked};

/// The effect of one or several changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The changes, as written after `--change`; empty for a setting alone. `accumulate:N` stands for N passes.
    pub change: String,
    /// The changes in plain words, without a full stop.
    pub title: String,
    /// The allocator's settings, as written; empty for the defaults.
    pub conf: String,
    /// Why the change does nothing here; `null` if it applies.
    pub reason: Option<String>,
    /// True if it lowers a peak or makes the size fit, without raising any peak or lowering any largest size.
    pub helps: bool,
    /// Its figures. The spans are widened by the error measured for this change.
    #[serde(flatten)]
    pub peaks: Peaks,
    /// The reduction of the peak of allocated bytes; negative if it rises.
    pub saves_bytes: i64,
    /// The largest size that fits under the limit; `null` without a limit.
    pub largest: Option<u64>,
    /// [`largest`](Self::largest), and the largest size that may fit.
    pub largest_span: Option<[u64; 2]>,
    /// Number of requests repeated in each step.
    pub recomputed_requests: u64,
    /// Bytes of the repeated requests.
    pub recomputed_bytes: u64,
    /// Bytes moved to the host and back in each step.
    pub moved_bytes: u64,
    /// The cost in words; with several changes, of each.
    pub cost: String,
    /// How reliable the figures are.
    pub trust: Trust,
    /// Python lines that implement the changes.
    pub code: Code,
}

impl Edited {
    /// The changed requests at given values.
    fn stream(&self, model: &Model, at: &[u64], pick: Pick, is_low: bool) -> Stream {
        let sizes = model.sizes_by(at, pick);
        let program = &model.program;
        let rows = self
            .rows
            .iter()
            .zip(0u32..)
            .map(|(draw, row)| {
                let r = &program.rows[draw.of as usize];
                let low = self.low.get(&row).filter(|_| is_low).copied().unwrap_or((1, 1));
                let size = scaled(scaled(sizes[draw.of as usize], draw.part), low);
                Asked { size, stream: r.stream, pool: r.pool }
            })
            .collect();
        let older = program.older as u32;
        let asks = (0..older).map(Ask::Alloc).chain(self.asks.iter().copied()).collect();
        let mut stream = Stream { asks, rows, roles: self.rows.iter().map(|d| d.role).collect(), start: None };
        unseen::put(&model.unseen, &mut stream, at, pick, |row| self.rows.get(row as usize).map(|draw| draw.of));
        stream
    }
}

impl Deref for Changed {
    type Target = Peaks;

    fn deref(&self) -> &Peaks {
        &self.peaks
    }
}

impl Changed {
    /// Sort key for lists: first what fits and helps, then what fits, what may fit, what fails, and what does not apply.
    pub fn rank(&self) -> u8 {
        match (&self.reason, self.oom_varies, self.oom, self.helps) {
            (Some(_), ..) => 6,
            (None, false, false, helps) => u8::from(!helps),
            (None, true, _, helps) => 2 + u8::from(!helps),
            (None, false, true, helps) => 4 + u8::from(!helps),
        }
    }
}

impl Plan {
    /// If a change names something that is not in the recording: a sentence with the names that exist.
    pub fn unknown_name(&self, change: &Change) -> Option<String> {
        unknown_name(self.model()?.program.requests(), change)
    }

    /// The changed requests at a size, and the program's row for each step.
    pub(super) fn stream_of(&self, size: &Size, changes: &[Change]) -> Option<(Stream, Vec<u32>)> {
        let model = self.model()?;
        let at = size.values(&self.names)?;
        let edited = edit(model.program.requests(), changes);
        // Without changes, the program starts as its recording did.
        let stream =
            if changes.is_empty() { model.stream(&at, Pick::Likely) } else { edited.stream(model, &at, Pick::Likely, false) };
        let row = |ask: &Ask| match *ask {
            Ask::Alloc(row) | Ask::Free(row) | Ask::FreeLater(row) | Ask::Complete(row) => {
                edited.rows.get(row as usize).map_or(u32::MAX, |draw| draw.of)
            }
            Ask::EmptyCache => u32::MAX,
        };
        let of = stream.asks.iter().map(row).collect();
        Some((stream, of))
    }

    /// The effect of these changes together at a size. If there is a limit, also the largest value of `name` that fits.
    pub fn change(&self, changes: &[Change], size: &Size, setting: &Setting, name: Option<&str>) -> Option<Changed> {
        let model = self.model()?;
        let edited = edit(model.program.requests(), changes);
        let unlimited = Setting { limit: None, ..setting.clone() };
        let now = self.modelled(size, &unlimited);
        let late = edit_late(model.program.requests(), changes);
        let under = predict_both(model, &edited, late.as_ref(), size, setting);
        let then = if under.oom { predict_both(model, &edited, late.as_ref(), size, &unlimited) } else { under.clone() };
        let passes = |size: &Size| {
            let answer = predict(model, &edited, size, &self.with_margin(size, setting));
            !answer.oom && !answer.oom_varies
        };
        let may_pass = |size: &Size| {
            let answer = predict(model, &edited, size, &self.with_more(setting));
            !answer.oom || answer.oom_varies
        };
        let peaks = |p: &Predicted| (p.peak_reserved_bytes, p.peak_allocated_bytes);
        let without = || name.filter(|_| setting.limit.is_some()).map(|name| self.largest(name, size, setting).span);
        let largest_span = match (name, setting.limit) {
            // If the changes save nothing, the largest size stays the same.
            (Some(_), Some(_)) if edited.reason.is_some() || peaks(&then) == peaks(&now) => without(),
            (Some(name), Some(_)) => {
                let sure = last_passing(|value| passes(&size.with(name, value)), size.get(name).unwrap_or(1));
                let may = last_passing(|value| may_pass(&size.with(name, value)), sure.max(1));
                // What follows the end of the recording may need more.
                Some([if self.has_no_step() { 0 } else { sure }, may.max(sure)])
            }
            _ => None,
        };
        let is_lower = peaks(&then) < peaks(&now);
        let makes_it_fit = || !under.oom && peaks(&then).0 <= peaks(&now).0 && self.under(size, setting).oom;
        let helps = edited.reason.is_none()
            && (is_lower || makes_it_fit())
            && largest_span.zip(without()).is_none_or(|(with, without)| with[0] >= without[0]);
        // The search's cost grows with the program.
        let at = size.values(&self.names).unwrap_or_else(|| vec![1; QUANTITIES]);
        let recorded: u64 = model.program.rows.iter().map(|r| r.size).sum();
        let wanted: u64 = model.sizes(&at).iter().sum();
        let grown = |bytes: u64| (u128::from(bytes) * u128::from(wanted) / u128::from(recorded.max(1))) as u64;
        let mut trust = changes.iter().map(Change::trust).max().unwrap_or(Trust::Exact);
        // Sizes that are unknown for the program are unknown with the change too.
        let as_now = |[low, high]: [u64; 2], point: u64, now: u64, [least, most]: [u64; 2]| {
            let part = |of: u64| (u128::from(point) * u128::from(of) / u128::from(now.max(1))) as u64;
            [low.min(part(least)), high.max(part(most))]
        };
        let mut span = as_now(then.span, then.peak_reserved_bytes, now.peak_reserved_bytes, now.span);
        let mut allocated_span =
            as_now(then.allocated_span, then.peak_allocated_bytes, now.peak_allocated_bytes, now.allocated_span);
        trust = trust.max(self.trust_of(&now));
        if edited.reason.is_none() {
            let [reserved, allocated] = changes.iter().map(Change::off).fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
            let part = |bytes: u64, thousandths: u64| (u128::from(bytes) * u128::from(thousandths) / 1000) as u64;
            let hole = part(then.peak_reserved_bytes, reserved).max(grown(edited.open));
            span = [span[0].saturating_sub(hole), span[1] + hole];
            let off = part(then.peak_allocated_bytes, allocated);
            allocated_span = [allocated_span[0].saturating_sub(off), allocated_span[1] + off];
            // A wide range is not "close".
            if (span[1] - span[0]) / 10 > then.peak_reserved_bytes / 100 * 2 {
                trust = trust.max(Trust::Estimate);
            }
        }
        let place = edited.place.as_ref().map(|(line, times)| format!("{line}, called {times} times"));
        let titles: Vec<String> = changes.iter().map(|c| c.title(place.as_deref())).collect();
        let names: Vec<String> = changes.iter().map(Change::name).collect();
        let mut costs: Vec<&str> = Vec::new();
        for cost in changes.iter().map(Change::cost) {
            // That a change costs nothing is not mentioned next to another change's cost.
            if !costs.contains(&cost) && (changes.len() == 1 || cost != FREE) {
                costs.push(cost);
            }
        }
        Some(Changed {
            change: names.join("+"),
            title: titles.join("; "),
            conf: setting.text.clone(),
            reason: edited.reason.clone(),
            helps,
            peaks: Peaks {
                span,
                allocated_span,
                oom: under.oom,
                oom_varies: under.oom_varies || (!under.oom && setting.limit.is_some() && !passes(size)),
                is_open: self.has_no_step(),
                retries: under.retries,
                ..then.peaks.clone()
            },
            saves_bytes: now.peak_allocated_bytes as i64 - then.peak_allocated_bytes as i64,
            largest: largest_span.map(|l| l[0]),
            largest_span,
            recomputed_requests: edited.again,
            recomputed_bytes: grown(edited.recomputed),
            moved_bytes: grown(edited.moved),
            cost: costs.join("; "),
            trust,
            code: Code::of(changes),
        })
    }
}

pub(super) fn predict(model: &Model, edited: &Edited, size: &Size, setting: &Setting) -> Predicted {
    predict_both(model, edited, None, size, setting)
}

/// Predicts with a second order of requests that is equally possible.
fn predict_both(model: &Model, edited: &Edited, late: Option<&Edited>, size: &Size, setting: &Setting) -> Predicted {
    let at = size.values(&model.names).unwrap_or_else(|| vec![1; QUANTITIES]);
    let point = edited.stream(model, &at, Pick::Likely, false);
    let mut others: Vec<Stream> = late.map(|late| late.stream(model, &at, Pick::Likely, false)).into_iter().collect();
    if !edited.low.is_empty() {
        others.push(edited.stream(model, &at, Pick::Likely, true));
    }
    if model.has_guess(&at) {
        others.push(edited.stream(model, &at, Pick::Least, false));
        others.push(edited.stream(model, &at, Pick::Most, false));
    }
    model.answer(size, setting, &point, others).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_passes_is_found() {
        for most in [0, 1, 2, 7, 8, 9, 1000] {
            assert_eq!(last_passing(|n| n <= most, 8), most);
        }
    }
}
