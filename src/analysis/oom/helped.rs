//! What would have helped: settings the allocator model serves the whole recording under, and what the figures of the failure
//! force by themselves. Nothing else is claimed.

use serde::Serialize;

use super::{Autopsy, Verdict};
use crate::allocator::whatif::{Row, WhatIf};
use crate::allocator::{Remedies, Remedy};
use crate::model::{Cancelled, DeviceKind, DeviceRecording, Progress};
use crate::units::{Bytes, count};

/// The recording served again: as it was, and under other settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Helped {
    /// The recording's own settings and limit.
    pub own: Row,
    /// The other settings, those that pass first, and the smallest limits.
    pub remedies: Remedies,
    /// The limits that explain the recording, least and most; equal when it is known, `None` when nothing failed.
    pub limit_span: Option<(u64, u64)>,
}

/// True when the allocator model applies to a device: a GPU with a trace.
#[must_use]
pub fn can_be_served_again(device: &DeviceRecording) -> bool {
    !matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) && !device.events.is_empty()
}

/// Events up to which settings are tried unasked where somebody waits for a picture: some seconds on two cores.
pub const TRIED_UNASKED: usize = 2_000_000;

/// Serves the recording again under the suggested settings. About 12 to 60 runs of at most 0.3 µs a request.
///
/// # Errors
/// [`Cancelled`] when asked to stop.
pub fn what_would_have_helped(whatif: &WhatIf<'_>, progress: &Progress) -> Result<Helped, Cancelled> {
    let remedies = whatif.remedies_that_pass(None, progress)?;
    let limit_span = whatif.own().limit_span;
    let mut question = whatif.own_question();
    question.limit = remedies.limit_bytes;
    let own = whatif.ask(&question, 0, progress)?.row;
    Ok(Helped { own, remedies, limit_span })
}

/// What a piece of advice rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Support {
    /// The allocator model served the recorded requests under it.
    Simulation,
    /// The figures at the failure force it.
    Formula,
}

/// One thing to do, and why it is known to help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it does, with its numbers.
    pub sentence: String,
    /// The line to copy, when there is one.
    pub setting: Option<String>,
    /// What the claim rests on.
    pub support: Support,
}

/// A setting as the line one puts before a command; for PyTorch's defaults the one that takes all settings away.
#[must_use]
pub fn setting_line(conf: &str) -> String {
    if conf.is_empty() { "unset PYTORCH_CUDA_ALLOC_CONF".to_owned() } else { format!("PYTORCH_CUDA_ALLOC_CONF={conf}") }
}

impl Helped {
    /// How far below the limit a setting stays, as a few words: `2 MiB to spare under the cap`. `None` without a limit, and where
    /// it is only known to lie between two figures.
    #[must_use]
    pub fn margin(&self, remedy: &Remedy) -> Option<String> {
        let margin = remedy.margin_bytes.filter(|_| self.limit_span.is_none_or(|(low, high)| low == high))?;
        let bytes = Bytes(margin.unsigned_abs());
        Some(if margin < 0 { format!("{bytes} over the cap") } else { format!("{bytes} to spare under the cap") })
    }

    /// Why a result is not certain, in a few words; empty when it is.
    #[must_use]
    pub fn doubt(&self, remedy: &Remedy) -> String {
        if remedy.certain || remedy.oom {
            return String::new();
        }
        match self.limit_span {
            _ if !self.remedies.agrees_with_recording => "an estimate: the model does not reproduce this recording".to_owned(),
            Some((low, high)) if low < high && remedy.oom_varies => {
                let from = remedy.passes_from_bytes.filter(|&from| from > low);
                let from = from.map_or("it may not be enough".to_owned(), |from| format!("this takes {}", Bytes(from)));
                format!("the cap is between {} and {}, and {from}", Bytes(low), Bytes(high))
            }
            _ if !remedy.oom_varies => "an estimate: the recording does not tell all that this depends on".to_owned(),
            _ => "it depends on where the driver puts segments".to_owned(),
        }
    }
}

/// What to do about a failed request, best supported first. Without `helped` only what its own figures force.
#[must_use]
pub fn advice(a: &Autopsy, helped: Option<&Helped>) -> Vec<Advice> {
    let mut all: Vec<Advice> = helped.map_or_else(Vec::new, simulated);
    let formula = |sentence: String, setting: Option<&str>| Advice {
        sentence,
        setting: setting.map(str::to_owned),
        support: Support::Formula,
    };
    let segment = Bytes(a.segment);
    if let Some((low, high)) = a.limit
        && a.device_free >= a.segment
    {
        let cap = if low == high { Bytes(low).to_string() } else { format!("between {} and {}", Bytes(low), Bytes(high)) };
        let needed = helped.and_then(|h| h.remedies.needed).filter(|n| n.smallest_limit_bytes > low);
        let whole = needed.map_or(String::new(), |n| {
            format!(" The whole recording needs a cap of {} with its own settings.", Bytes(n.smallest_limit_bytes))
        });
        let fits = a.device_free_told().map_or(String::new(), |free| {
            format!(": {} is free on the device, and a segment of {segment} fits into it", Bytes(free))
        });
        all.push(formula(
            format!(
                "Raise the cap of this process ({cap}) to at least {} for this request{fits}.{whole}",
                Bytes(a.reserved.saturating_add(a.segment)),
            ),
            Some("torch.cuda.set_per_process_memory_fraction(1.0)"),
        ));
    }
    match a.verdict {
        Verdict::TooLarge => all.push(formula(
            format!(
                "Ask for {} or less at once: split the batch, or the operation along one dimension. No setting makes {} fit.",
                Bytes(a.device_free.saturating_add(a.reserved)),
                Bytes(a.requested)
            ),
            None,
        )),
        Verdict::Contention => all.push(formula(
            format!(
                "Free {} on the device: other processes hold more than that.",
                Bytes(a.segment.saturating_sub(a.device_free))
            ),
            Some("nvidia-smi --query-compute-apps=pid,used_memory --format=csv"),
        )),
        Verdict::NonPytorch => all.push(formula(
            format!(
                "Free {} of what this process holds outside PyTorch: fewer NCCL communicators, fewer captured graphs, no library that keeps its own buffers.",
                Bytes(a.segment.saturating_sub(a.device_free))
            ),
            None,
        )),
        _ => {}
    }
    if let Some(way) = &a.way_out {
        all.push(formula(format!("Hold less at that instant. {}", way.sentence()), None));
    }
    all
}

/// Settings that pass, the best three, each with what it leaves.
fn simulated(h: &Helped) -> Vec<Advice> {
    let passing: Vec<&Remedy> = h.remedies.passing().collect();
    let mut all: Vec<Advice> = passing
        .iter()
        .take(3)
        .map(|r| {
            let margin = h.margin(r).map_or(String::new(), |m| format!(", {m}"));
            let doubt = h.doubt(r);
            let doubt = if doubt.is_empty() { String::new() } else { format!(" Not certain: {doubt}.") };
            let mut about = r.about.chars();
            let about = about.next().map_or(String::new(), |c| c.to_uppercase().collect::<String>() + about.as_str());
            Advice {
                sentence: format!(
                    "Served again with this setting, all {} requests of the recording {}succeed, with {} reserved at the peak{margin}.{doubt} {about}.",
                    count(h.own.requests.max(1)),
                    if r.certain { "" } else { "may " },
                    Bytes(r.peak_reserved_bytes),
                ),
                setting: Some(setting_line(&r.conf)),
                support: Support::Simulation,
            }
        })
        .collect();
    if passing.is_empty() && !h.remedies.tried.is_empty() {
        all.push(Advice {
            sentence: format!(
                "None of {} other settings serves all requests under the same cap: settings alone do not help here.",
                h.remedies.tried.len()
            ),
            setting: None,
            support: Support::Simulation,
        });
    }
    all
}
