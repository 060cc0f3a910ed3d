//! What would have helped: settings under which the model serves the whole recording, and consequences of the failure's figures.

use serde::Serialize;

use super::autopsy::Autopsy;
use super::verdict::Verdict;
use crate::diagnose::vendor::Words;
use crate::inference::whatif::{Row, WhatIf};
use crate::inference::{CapFrom, CapRange, Remedies, Remedy};
use crate::model::{Action, Cancelled, DeviceKind, DeviceRecording, Progress};
use crate::units::{Bytes, count};

/// The results of running the recording again: as it was, and under other settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Helped {
    /// The run under the recording's own settings and limit. It ends at the first failed request.
    pub own: Row,
    /// Number of requests in the whole recording, including survived failures; a setting that passes serves all of them.
    pub requests: u64,
    /// Other settings, those that pass first, and the smallest limits.
    pub remedies: Remedies,
    /// What is known about the recording's limit; `None` if nothing failed.
    pub limit: Option<CapRange>,
    /// Vendor-specific names for the device.
    pub words: &'static Words,
}

/// True if the allocator model applies to a device: a GPU with a trace of requests.
pub fn can_be_served_again(device: &DeviceRecording) -> bool {
    !matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) && WhatIf::has_requests(device)
}

/// Settings are tried automatically, in the window and on the command line, for recordings with at most this many events. This
/// takes two to three seconds on two cores: up to 80 runs at 5 million requests per second. Long recordings get fewer placements.
pub const AUTOMATIC_TRIALS_MOST_EVENTS: usize = 2_000_000;

/// Runs the recording under the suggested settings. About 12 to 60 runs of at most 0.3 µs per request.
pub fn what_would_have_helped(whatif: &WhatIf<'_>, progress: &Progress) -> Result<Helped, Cancelled> {
    let remedies = whatif.remedies_that_pass(None, progress)?;
    let limit = whatif.own().limit_range();
    let mut question = whatif.own_question();
    question.limit = remedies.limit_bytes;
    let own = whatif.ask(&question, 0, progress)?.row;
    let actions = &whatif.requests().device.events.action;
    let requests = actions.iter().filter(|a| matches!(a, Action::Alloc | Action::Oom)).count() as u64;
    Ok(Helped { own, requests, remedies, limit, words: Words::of(whatif.requests().device()) })
}

/// Shown instead of settings if [`Helped::fails_as_recorded`] is false.
pub const NOT_REPRODUCED: &str = "Replayed with its own settings, the recording does not fail as it did: the replay does not reproduce this \
                                  failure, so it cannot tell which settings would help.";

/// What a piece of advice is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// Under it, the allocator model served the recorded requests.
    Simulation,
    /// It follows from the figures of the failure.
    Formula,
}

/// One piece of advice, with the reason why it helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What to do, with its figures.
    pub sentence: String,
    /// The line to copy, if there is one.
    pub setting: Option<String>,
    /// What the claim is based on.
    pub support: Support,
}

/// A setting as a line to put before a command; for PyTorch's defaults the line that removes all settings.
fn setting_line(words: &Words, conf: &str) -> String {
    if conf.is_empty() { format!("unset {}", words.conf) } else { format!("{}={conf}", words.conf) }
}

impl Helped {
    /// The line to copy for a setting. Switching from expandable segments back to PyTorch's defaults needs an explicit line,
    /// because it must override the environment of a job.
    pub fn line(&self, remedy: &Remedy) -> String {
        let is_expandable = self.own.conf.contains("expandable_segments:True");
        setting_line(self.words, if remedy.conf.is_empty() && is_expandable { "expandable_segments:False" } else { &remedy.conf })
    }

    /// The effect of a setting, as a sentence; for PyTorch's defaults, which settings they leave out.
    pub fn about(&self, remedy: &Remedy) -> String {
        if remedy.conf.is_empty() && !self.own.conf.is_empty() {
            return format!("These are PyTorch's defaults, without {}.", self.own.conf);
        }
        let mut letters = remedy.about.chars();
        letters.next().map_or(String::new(), |c| format!("{}{}.", c.to_uppercase(), letters.as_str()))
    }

    /// For a recording that ends at its failure: a sentence on what is unknown, with a space in front. Empty otherwise.
    pub fn warning(&self) -> String {
        let capital = |text: &str| text[..1].to_uppercase() + &text[1..];
        self.remedies.ends_at_failure.map_or(String::new(), |h| format!(" {}.", capital(h.warning())))
    }

    /// False if a request failed but the replay serves it; then results under other settings mean nothing.
    pub fn fails_as_recorded(&self) -> bool {
        self.own.oom || self.limit.is_none()
    }

    /// How far below the limit a setting stays: `2 MiB to spare under the cap`. `None` without a limit, or if it is a range.
    pub fn margin(&self, remedy: &Remedy) -> Option<String> {
        let margin = remedy.margin_bytes.filter(|_| self.limit.is_none_or(|limit| limit.is_known()))?;
        let bytes = Bytes(margin.unsigned_abs());
        let cap = if self.is_of_device() { "what the device has for it" } else { "the cap" };
        Some(if margin < 0 {
            format!("{bytes} over {cap}: expandable segments map whole pages of 20 MiB once a request fits")
        } else if self.is_of_device() {
            format!("{bytes} to spare on the device")
        } else {
            format!("{bytes} to spare under the cap")
        })
    }

    /// True if no cap is known, and the settings were tried under what the device had for this process when it was full.
    pub fn is_of_device(&self) -> bool {
        self.limit.is_some_and(|limit| limit.from == CapFrom::Device)
    }

    /// Why a result is uncertain, in a few words; empty if it is certain.
    pub fn doubt(&self, remedy: &Remedy) -> String {
        if remedy.certain || remedy.oom {
            return String::new();
        }
        match self.limit {
            _ if !self.remedies.agrees_with_recording => "the model does not reproduce this recording".to_owned(),
            Some(limit) if !limit.is_known() && remedy.oom_varies => match self.passes_from(remedy) {
                Some(from) => format!("the cap is {limit}, and this needs {}", Bytes(from).at_least()),
                None => format!("the cap is {limit}, and it may not be enough"),
            },
            _ if !remedy.oom_varies => "the recording lacks something that it depends on".to_owned(),
            _ => "it depends on where the driver puts segments".to_owned(),
        }
    }

    /// The smallest cap in the known range with which a setting serves all requests; `None` if any does, or something else decides.
    pub fn passes_from(&self, remedy: &Remedy) -> Option<u64> {
        let least = self.limit.filter(|limit| !limit.is_known())?.least;
        remedy.passes_from_bytes.filter(|&from| remedy.oom_varies && from > least)
    }
}

/// What to do about a failed request, best supported first. Without `helped`, only what follows from its own figures.
pub fn advice(a: &Autopsy, helped: Option<&Helped>) -> Vec<Advice> {
    // A request larger than all possible memory fits under no setting and no cap. If the next request like this one would fail
    // too, a setting that serves this one does not help.
    let tried = helped.filter(|_| a.verdict != Verdict::TooLarge && !a.is_used_up());
    let helped = tried.filter(|h| h.fails_as_recorded());
    // Add the warning only once, to the first advice that is based on a replay.
    let mut warning = helped.map_or(String::new(), Helped::warning);
    let mut all: Vec<Advice> = Vec::new();
    let is_full = a.is_full_in_pieces();
    let served = |all: &mut Vec<Advice>, certain: bool, warning: &mut String| {
        all.extend(helped.map_or_else(Vec::new, |h| simulated(h, certain, warning)));
    };
    if !is_full {
        served(&mut all, true, &mut warning);
    }
    let formula = |sentence: String, setting: Option<&str>| Advice {
        sentence,
        setting: setting.map(str::to_owned),
        support: Support::Formula,
    };
    let segment = Bytes(a.segment);
    let cap = a.limit.filter(|_| a.verdict != Verdict::TooLarge && a.device_free >= a.segment);
    // If the cap was the only obstacle, raising it certainly serves this request. Advice that only may help comes after it.
    let is_first = a.verdict == Verdict::Cap || a.is_full_in_pieces();
    let raise = |cap: CapRange, warning: &mut String| {
        // Nobody set this cap: the user asked a plan whether the run fits under it.
        if let Some(needs) = a.needs {
            let needs = Bytes(needs.max(a.reserved.saturating_add(a.segment))).at_least();
            return formula(format!("Take a card, or a cap, of {needs} or more: this predicted run reserves that much."), None);
        }
        let least = a.reserved.saturating_add(a.segment);
        let needed = helped.and_then(|h| h.remedies.needed).filter(|n| n.smallest_limit_bytes > cap.least);
        // If a higher cap applies from the start, memory is laid out differently at this request, and less may be enough.
        let is_less = needed.is_some_and(|n| n.smallest_limit_bytes < least);
        let whole = needed.map_or(String::new(), |n| {
            let (whole, warning) = (Bytes(n.smallest_limit_bytes).at_least(), std::mem::take(warning));
            if is_less {
                return format!(" Set before the first allocation, {whole} is enough for all recorded requests.{warning}");
            }
            if n.smallest_limit_bytes == least {
                return format!(" All recorded requests then succeed.{warning}");
            }
            format!(" With the recorded settings all recorded requests need a cap of {whole}.{warning}")
        });
        let premise = if is_less { " (with memory as it was at the failure)" } else { "" };
        let fits = a.device_free_known().map_or(String::new(), |free| {
            format!(": {} is free on the device, and a segment of {segment} fits into it", Bytes(free))
        });
        let raised =
            cap.ends.map_or(String::new(), |event| format!(" The program changed its cap at event {}.", count(u64::from(event))));
        let wanted = needed.map_or(least, |n| n.smallest_limit_bytes.max(least));
        // If the card's total is unknown: it is at least its free memory plus what this process had.
        let at_least = a.device_free_known().map(|free| free.saturating_add(a.reserved));
        let (fraction, share) = match (fraction_for(wanted, a.capacity), fraction_for(wanted, at_least)) {
            (Some((fraction, total)), _) => {
                let share = format!(" The fraction in the line is for this card of {}.", Bytes(total));
                (fraction, share)
            }
            (None, Some((fraction, total))) => {
                let share = format!(" The fraction in the line is for a card of {} or more.", Bytes(total));
                (fraction, share)
            }
            (None, None) => {
                let share = " The file does not record the size of the card: 1.0 is all of it.".to_owned();
                ("1.0".to_owned(), share)
            }
        };
        // A program whose memory still grew needs more than this request; with the smallest cap it would fail a moment later.
        let free = a.device_free_known().map_or(String::new(), |free| format!(" {} is free on the device.", Bytes(free)));
        if is_first && helped.and_then(|h| h.remedies.ends_at_failure).is_some_and(|h| h.is_growing) {
            return formula(
                format!(
                    "Raise the limit (cap) of this process well above {}: this request alone needs that, and memory was still growing when it \
                     failed.{free} Record a whole step without the cap to see how much it takes.{raised}",
                    Bytes(least).at_least(),
                ),
                Some(&format!("torch.{}.set_per_process_memory_fraction(1.0)", a.words.module)),
            );
        }
        formula(
            format!(
                "Raise the limit (cap) of this process to at least {} for this request{premise}{fits}.{whole}{share}{raised}",
                Bytes(least).at_least(),
            ),
            Some(&format!("torch.{}.set_per_process_memory_fraction({fraction})", a.words.module)),
        )
    };
    all.extend(cap.filter(|_| is_first).map(|cap| raise(cap, &mut warning)));
    if is_full {
        served(&mut all, true, &mut warning);
    }
    served(&mut all, false, &mut warning);
    all.extend(cap.filter(|_| !is_first).map(|cap| raise(cap, &mut warning)));
    match a.verdict {
        Verdict::TooLarge => all.push(formula(
            format!(
                "Request {} or less at once: split the batch, or the operation along one dimension. {} is more than this process could get, \
                 so no setting was tried.{}",
                Bytes(a.most_free()),
                Bytes(a.requested),
                if a.capacity.is_none() && !a.is_host {
                    a.words.say(" nvidia-smi shows whether other processes hold part of the device.")
                } else {
                    "".into()
                }
            ),
            None,
        )),
        Verdict::Contention => all.push(formula(
            format!(
                "Free {} on the device: other processes hold more than that.",
                Bytes(a.segment.saturating_sub(a.device_free))
            ),
            Some(a.words.list),
        )),
        Verdict::NonPytorch => all.push(formula(
            format!(
                "Free {} of what this process holds outside PyTorch: fewer {} communicators, fewer captured graphs, no library that keeps its own buffers.",
                Bytes(a.segment.saturating_sub(a.device_free)),
                a.words.collectives
            ),
            None,
        )),
        _ => {}
    }
    if let Some(plan) = a.room_plan.as_ref().filter(|_| !a.is_simply_full()) {
        let one = a.one_instead().map(|one| format!("Hold less at that instant: {}{}", one[..1].to_lowercase(), &one[1..]));
        all.push(formula(one.unwrap_or_else(|| plan.advice(a.words)), None));
    }
    if tried.is_some() && helped.is_none() {
        all.push(Advice { sentence: NOT_REPRODUCED.to_owned(), setting: None, support: Support::Simulation });
    }
    all
}

/// The fraction of a card's total, to four places, that lets a process reserve `wanted` bytes, and that total. PyTorch's cap is
/// the fraction times the total, rounded down. `None` if the total is unknown or too small.
fn fraction_for(wanted: u64, capacity: Option<u64>) -> Option<(String, u64)> {
    let total = capacity.filter(|&total| total >= wanted && wanted > 0)?;
    let parts = (u128::from(wanted) * 10_000).div_ceil(u128::from(total));
    let text = format!("{}.{:04}", parts / 10_000, parts % 10_000);
    Some((text, total))
}

/// The advice to show if there is room for only one: the first with a line to copy, else the first that says what to do. [`advice`]
/// puts certain advice first. "No setting helps" comes only without other advice. If all memory is used up, no setting helps.
pub fn best_advice<'a>(a: &Autopsy, all: &'a [Advice]) -> Option<&'a Advice> {
    let does = || all.iter().find(|x| x.support == Support::Formula);
    if a.is_full_in_pieces() {
        return does().or(all.first());
    }
    all.iter().find(|x| x.setting.is_some()).or_else(does).or(all.first())
}

/// The best three settings that certainly pass (or, if not `certain`, that may pass), each with its margin; the first with the
/// warning. If none certainly passes, a sentence says so.
fn simulated(h: &Helped, certain: bool, warning: &mut String) -> Vec<Advice> {
    let requests = count(h.requests.max(1));
    let passing: Vec<&Remedy> = h.remedies.passing().collect();
    let mut told: Vec<&Remedy> = Vec::new();
    for remedy in passing.iter().filter(|r| r.certain == certain) {
        // Settings with the same result are the same advice; show only the first, which has the fewest settings.
        let is_same =
            |t: &&Remedy| (t.peak_reserved_bytes, h.passes_from(t)) == (remedy.peak_reserved_bytes, h.passes_from(remedy));
        if told.len() < 3 && !told.iter().any(is_same) {
            told.push(remedy);
        }
    }
    let mut all: Vec<Advice> = told
        .into_iter()
        .map(|r| {
            let (about, peak, warning) = (h.about(r), Bytes(r.peak_reserved_bytes), std::mem::take(warning));
            let sentence = match (certain, limit_of(h), h.passes_from(r)) {
                (true, ..) => {
                    let margin = h.margin(r).map_or(String::new(), |m| format!(", {m}"));
                    format!(
                        "{about} In a replay all {requests} recorded requests then succeed, with {peak} reserved at the peak{margin}.{warning}"
                    )
                }
                (false, Some(limit), Some(from)) => format!(
                    "May help. {about} In a replay all {requests} recorded requests then succeed if the cap is {} or more; it is {limit}.{warning}",
                    Bytes(from).at_least()
                ),
                (false, ..) => format!(
                    "May help. {about} In a replay all {requests} recorded requests then succeed, with {peak} reserved at the peak; but {}.{warning}",
                    h.doubt(r)
                ),
            };
            // A line that removes every setting is shown only if it certainly helps.
            let line = h.line(r);
            Advice { sentence, setting: Some(line).filter(|line| certain || !line.starts_with("unset")), support: Support::Simulation }
        })
        .collect();
    if certain && passing.is_empty() && !h.remedies.tried.is_empty() {
        let under = if h.is_of_device() { "in what the device has for this process" } else { "under the same cap" };
        all.push(Advice {
            sentence: format!(
                "No allocator setting avoids this: with each of {} others a request still fails {}.",
                h.remedies.tried.len(),
                limit_of(h).map_or(under.to_owned(), |cap| format!("even if the cap is {}", Bytes(cap.most))),
            ),
            setting: None,
            support: Support::Simulation,
        });
    }
    all
}

/// The recording's limit if it is known only as a range.
fn limit_of(h: &Helped) -> Option<CapRange> {
    h.limit.filter(|limit| !limit.is_known())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fraction_lets_as_much_through_as_is_wanted_and_little_more() {
        let (mib, total) = (1u64 << 20, 150_000_000_000u64);
        for wanted in [mib, 2_244 * mib, 100_000 * mib, total] {
            let (text, of) = fraction_for(wanted, Some(total)).unwrap_or_default();
            let cap = (text.parse::<f64>().unwrap_or(0.0) * of as f64) as u64;
            assert!(cap >= wanted && cap - wanted <= total / 10_000 + 1, "{text} of {of} for {wanted}");
        }
        assert_eq!(fraction_for(total + 1, Some(total)), None);
        assert_eq!(fraction_for(mib, None), None);
    }
}
