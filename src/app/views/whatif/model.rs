//! The state of the view: settings, choices, typed text. And outcomes as text.

use super::needs::Needs;
use super::runs::Runs;
use crate::app::jobs::Derived;
use vramscope_core::inference::whatif::Answer;
use vramscope_core::model::AllocConf;
use vramscope_core::units::{Bytes, count};

pub(super) struct Setting {
    pub text: String,
    pub conf: AllocConf,
    pub title: String,
    pub about: &'static str,
    pub is_plotted: bool,
    /// The user added it and can remove it.
    pub is_added: bool,
    /// Its palette slot. The recorded setting is drawn in the text colour instead.
    pub slot: usize,
}

/// What the answers say together.
pub(super) enum Advice {
    /// Some settings were not simulated yet.
    Waiting,
    /// The best setting, and why.
    Best(usize, String),
    /// No setting serves more or has a lower peak than the recorded one.
    NoneHelps,
}

#[derive(Default)]
pub(super) struct WhatIfView {
    pub settings: Vec<Setting>,
    pub selected: usize,
    /// The user or another view chose the selected setting. Until then the best one is selected.
    pub is_chosen: bool,
    pub runs: Runs,
    /// The pane had no room for the charts in the last frame.
    pub lacks_charts: bool,
    /// The user's limit; `None` uses the recording's.
    pub limit: Option<u64>,
    pub limit_text: String,
    pub limit_error: Option<String>,
    /// The limit at the slider's handle during a drag.
    pub sliding: Option<u64>,
    pub needs: Derived<String, Needs>,
    /// Settings for which the user asked for the smallest limit, in a long recording.
    pub asked_needs: Vec<String>,
    pub new_text: String,
    pub new_error: Option<String>,
    /// How many of [`SharedViewState::to_try`](crate::app::state::shared::SharedViewState::to_try) were added.
    pub tried: usize,
}

/// `all 18,064 served`, or why not; and whether it failed.
pub(super) fn outcome(answer: &Answer) -> (String, bool) {
    let row = &answer.row;
    match row.oom_request {
        Some(request) if !row.is_verdict_certain() => (format!("may fail after {}", count(request)), true),
        Some(request) => (format!("fails after {}", count(request)), true),
        None if !row.is_verdict_certain() => (format!("may serve all {}", count(row.requests)), false),
        None => (format!("all {} served", count(row.requests)), false),
    }
}

/// Why the outcome is uncertain, and what else it could be.
pub(super) fn outcome_span(answer: &Answer) -> Option<String> {
    let row = &answer.row;
    if row.is_outcome_certain() {
        return None;
    }
    let why = match row.uncertain_because {
        Some("limit") => "at another limit",
        Some("timing") => "at other timing",
        Some("trace") => "see what is assumed",
        _ => "at other addresses",
    };
    match row.oom_request_span {
        _ if row.oom_varies && row.passes_from_bytes.is_some() => {
            row.passes_from_bytes.map(|from| format!("from a limit of {} on", Bytes(from).limit()))
        }
        _ if row.oom_varies && row.oom => Some(format!("or serves all {why}")),
        Some([low, high]) if low != high => {
            Some(format!("or {} {why}", count(if row.oom_request == Some(low) { high } else { low })))
        }
        // An uncertain peak alone is shown in its own column.
        _ if why == "at another limit" => Some("depends on the exact limit".to_owned()),
        _ => (why != "at other addresses").then(|| why.to_owned()),
    }
}
