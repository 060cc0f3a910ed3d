//! The largest size that fits under a limit.

use rayon::prelude::*;
use serde::Serialize;

use super::predict::{Pick, Predicted};
use super::{Plan, Setting, Size};
use crate::allocator::Reach;

/// The largest size under one setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Largest {
    /// The settings, as written.
    pub conf: String,
    /// The largest value that fits in every run tried; 0 if none does. `null` in JSON if there is no upper bound.
    #[serde(serialize_with = "bounded")]
    pub size: u64,
    /// [`size`](Self::size), and the largest value that fits in at least one run.
    #[serde(serialize_with = "both_bounded")]
    pub span: [u64; 2],
    /// True if both are equal and the deciding runs are certain.
    pub certain: bool,
    /// The prediction at that size; `None` if nothing fits.
    pub at: Option<Predicted>,
}

/// With one recording, the answer may be off by 1/n of the limit, like the range of its peak.
pub(super) const ONE_RECORDING: u64 = 20;
/// Largest value to try.
const MOST: u64 = 1 << 24;
/// Number of values to try above a failure, because a request may fit into a hole at one value but not at a lower one.
const BEYOND: u64 = 4;

fn bound(value: u64) -> Option<u64> {
    Some(value).filter(|v| *v < MOST / 2)
}

fn bounded<S: serde::Serializer>(value: &u64, s: S) -> Result<S::Ok, S::Error> {
    bound(*value).serialize(s)
}

fn both_bounded<S: serde::Serializer>(values: &[u64; 2], s: S) -> Result<S::Ok, S::Error> {
    values.map(bound).serialize(s)
}

impl Largest {
    /// True if nothing in the recordings limits the size: the unknown part may not grow at all.
    pub fn has_no_end(&self) -> bool {
        self.span[1] >= MOST
    }
}

impl Plan {
    /// The largest value of `name` that fits, with the other quantities as in `size`.
    pub fn largest(&self, name: &str, size: &Size, setting: &Setting) -> Largest {
        // 0: fails. 1: may pass. 2: passes whatever the unknown sizes are.
        let more = self.with_more(setting);
        let ask = |value: u64| -> (u8, Predicted) {
            let size = size.with(name, value);
            // With one recording, a few runs decide most values. A value fails if it fails with the likely sizes, and with the
            // smallest sizes and more room. It does not pass for certain if it fails with the largest sizes and less room.
            if self.is_single() && !self.is_recorded(&size) {
                if !self.passes_once(&size, setting) && !self.passes_with(&size, &more, Pick::Least) {
                    return (0, Predicted::nothing(&size));
                }
                if !self.passes_with(&size, &self.with_margin(&size, setting), Pick::Most) {
                    return (1, Predicted::nothing(&size));
                }
            }
            let answer = self.under(&size, setting);
            let verdict = match (answer.oom, answer.oom_varies || self.turns_within_margin(&size, setting, &answer)) {
                (true, false) => 0,
                (false, false) => 2,
                _ => 1,
            };
            (verdict, answer)
        };
        let verdict = |answer: &(u8, Predicted)| answer.0;
        let may_pass = |value: u64| self.passes_once(&size.with(name, value), setting) || verdict(&ask(value)) > 0;
        // A size may fail although a larger one fits, so the start influences the result. Do not start at the requested size.
        let from = self.most_recorded(name).unwrap_or(1);
        // With one recording, temporaries may not grow at all. Then no size fails for certain, and the likely run sets the end.
        let is_endless = self.is_single() && may_pass(MOST / 2);
        let low = if is_endless {
            last_passing(|value| self.passes_once(&size.with(name, value), &more), from)
        } else {
            last_passing(may_pass, from)
        };
        let around: Vec<u64> = (low.saturating_sub(BEYOND).max(1)..=low + BEYOND).collect();
        let asked: Vec<(u64, (u8, Predicted))> = around.par_iter().map(|&v| (v, ask(v))).collect();
        let top = asked.iter().rev().find(|(_, p)| verdict(p) > 0).map_or(0, |(v, _)| *v);
        let top = if is_endless { low } else { top };
        let mut sure = asked.into_iter().rev().find(|(_, p)| verdict(p) == 2);
        if sure.is_none() && top > 0 {
            // Over many values, the unknown sizes decide: search the largest value that fits whatever they are.
            let (mut low, mut high) = (0, top);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if verdict(&ask(middle)) == 2 { low = middle } else { high = middle }
            }
            sure = (low > 0).then(|| (low, ask(low)));
        }
        let certain = !self.is_single()
            && !self.has_uneven_steps()
            && top <= sure.as_ref().map_or(0, |(v, _)| *v)
            && sure.as_ref().is_none_or(|(v, _)| !self.is_open(&size.with(name, *v)));
        if self.has_no_step() {
            // Later work may need more, so nothing is certain to fit.
            return Largest { conf: setting.text.clone(), size: 0, span: [0, top], certain: false, at: None };
        }
        let size = sure.as_ref().map_or(0, |(v, _)| *v);
        Largest { conf: setting.text.clone(), size, span: [size, top.max(size)], certain, at: sure.map(|(_, (_, p))| p) }
    }

    /// The values below the largest one that are not certain to fit, ascending; tries at most `most` values.
    pub fn holes(&self, name: &str, largest: &Largest, size: &Size, setting: &Setting, most: u64) -> Vec<u64> {
        if largest.has_no_end() {
            return Vec::new();
        }
        let step = (largest.size / most.max(1)).max(1) as usize;
        let asked: Vec<u64> = (1..largest.size).rev().step_by(step).collect();
        let is_hole = |value: &u64| {
            let at = self.at(&size.with(name, *value), setting);
            at.oom || at.oom_varies
        };
        let mut holes: Vec<u64> = asked.into_par_iter().filter(is_hole).collect();
        holes.sort_unstable();
        holes
    }

    /// True if the verdict changes with slightly more or less room, because sizes without a law may differ slightly.
    pub(super) fn turns_within_margin(&self, size: &Size, setting: &Setting, answer: &Predicted) -> bool {
        let is_open = !self.is_recorded(size) && !self.is_known_to_fail(size, setting);
        let Some(limit) = setting.limit.filter(|_| is_open) else { return false };
        let other = match (self.is_single(), answer.oom) {
            // What grows is likely but not known.
            (true, true) => limit + limit / ONE_RECORDING,
            (true, false) => limit - limit / ONE_RECORDING,
            (false, true) => return false,
            // At most half a percent of the limit, less than one step of any batch; all of the open bytes if much follows no law.
            (false, false) => match self.open(size) {
                open if open < 1 << 20 => return false,
                open if open > limit / 10 => limit - open.min(limit / 2),
                open => limit - open.min(limit / 200),
            },
        };
        let other = self.under(size, &Setting { limit: Some(other), ..setting.clone() });
        other.oom != answer.oom || other.oom_varies
    }

    /// The setting with less room, as in [`Self::largest`]: what passes under it certainly passes.
    pub(super) fn with_margin(&self, size: &Size, setting: &Setting) -> Setting {
        if self.is_recorded(size) {
            return setting.clone();
        }
        let less = |limit: u64| {
            let margin = if self.is_single() { limit / ONE_RECORDING } else { self.open(size).min(limit / 200) };
            limit - if margin < 1 << 20 { 0 } else { margin }
        };
        Setting { limit: setting.limit.map(less), ..setting.clone() }
    }

    /// The setting with more room, by the possible error of a single recording: what fails under it certainly fails.
    pub(super) fn with_more(&self, setting: &Setting) -> Setting {
        let more = |limit: u64| if self.is_single() { limit + limit / ONE_RECORDING } else { limit };
        Setting { limit: setting.limit.map(more), ..setting.clone() }
    }

    /// True if this size was recorded, so that its requests are known.
    fn is_recorded(&self, size: &Size) -> bool {
        self.programs().iter().any(|program| program.at == *size)
    }

    /// True if requests without a law take more than 1 MiB.
    fn is_open(&self, size: &Size) -> bool {
        self.open(size) > 1 << 20
    }

    fn open(&self, size: &Size) -> u64 {
        let Some(model) = self.model() else { return 0 };
        size.values(&self.names).map_or(0, |at| model.open(&at))
    }

    /// The largest value under each setting, in order. Settings with possibly equal answers run in turn, others in parallel.
    pub fn largest_by_setting(&self, name: &str, size: &Size, settings: &[Setting]) -> Vec<Largest> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (i, setting) in settings.iter().enumerate() {
            match groups.iter_mut().find(|group| Reach::may_be_same(&settings[group[0]].conf, &setting.conf)) {
                Some(group) => group.push(i),
                None => groups.push(vec![i]),
            }
        }
        let of_group =
            |group: &Vec<usize>| group.iter().map(|&i| (i, self.largest(name, size, &settings[i]))).collect::<Vec<_>>();
        let mut all: Vec<(usize, Largest)> = groups.par_iter().flat_map(of_group).collect();
        all.sort_by_key(|(i, _)| *i);
        all.into_iter().map(|(_, largest)| largest).collect()
    }
}

/// The largest value that passes, assuming that all smaller ones pass: doubles from a start value until it fails, then bisects.
pub(super) fn last_passing(passes: impl Fn(u64) -> bool, from: u64) -> u64 {
    let (mut low, mut high) = (0, from.max(1));
    while high < MOST && passes(high) {
        low = high;
        high *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if passes(middle) { low = middle } else { high = middle }
    }
    low
}
