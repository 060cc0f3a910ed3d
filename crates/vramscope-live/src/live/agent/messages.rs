//! What is sent to a helper, what it answers, and what is told of it.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;

use vramscope_core::model::TorchFigures;

/// The only requests that can be sent to a helper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// Send statistics this many times per second.
    Rate(f64),
    /// Send segments and blocks, without traces.
    Blocks,
    /// Record the newest `max_entries` events of the allocation history, or stop recording.
    History {
        /// True starts, false stops.
        on: bool,
        /// Maximum number of events kept; unused when stopping.
        max_entries: u32,
    },
    /// Write a snapshot now.
    Snapshot,
    /// Write a snapshot at the next out-of-memory error, once; or cancel that.
    SnapshotAtOom(bool),
}

impl Request {
    pub(super) fn line(self, id: u64) -> String {
        let mut value = match self {
            Request::Rate(hz) => json!({"cmd": "hz", "hz": hz}),
            Request::Blocks => json!({"cmd": "blocks"}),
            Request::History { on, max_entries } => json!({"cmd": "history", "on": on, "max_entries": max_entries}),
            Request::Snapshot => json!({"cmd": "dump"}),
            Request::SnapshotAtOom(on) => json!({"cmd": "at_oom", "on": on}),
        };
        value["id"] = json!(id);
        format!("{value}\n")
    }
}

/// What a helper reports besides its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The helper answers; figures arrive from now on.
    Answers {
        /// PID of the process, as the driver reports it.
        pid: u32,
    },
    /// A snapshot was written.
    Snapshot {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// Its path as this machine sees it (through `/proc/PID/root` for a container).
        path: std::path::PathBuf,
        /// Written because of an out-of-memory error.
        is_oom: bool,
        /// The session's device number for each device index of the process, which `CUDA_VISIBLE_DEVICES` may renumber.
        devices: Vec<(i32, u32)>,
    },
    /// The process began or stopped recording its history.
    History {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// True since it records, false since it stopped.
        on: bool,
    },
    /// The helper could not be reached, or could not do what a [`Request`] asked.
    Failed {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// One sentence about the reason.
        sentence: String,
    },
    /// The helper no longer answers.
    Gone {
        /// PID of the process, as the driver reports it.
        pid: u32,
    },
}

/// Pinned host memory as reported by a helper.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct HostFigures {
    pub pinned: u64,
    pub used: Option<u64>,
}

/// A line from a helper. Every field may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub hello: Option<u32>,
    pub pid: u32,
    pub t: i64,
    pub python: String,
    pub torch: String,
    pub cuda: String,
    pub backend: String,
    pub env: HashMap<String, String>,
    pub devices: Option<HashMap<String, String>>,
    pub stats: Option<HashMap<String, TorchFigures>>,
    pub host: Option<HostFigures>,
    pub event: Option<String>,
    pub text: String,
    pub path: Option<String>,
    pub re: Option<u64>,
    pub dropped: u64,
    pub blocks: Option<serde_json::Value>,
    pub history: Option<bool>,
    pub error: Option<String>,
}

/// A helper's text made safe to show, also in a terminal: shortened, control characters replaced.
pub(super) fn clean(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What the greeting tells of the program.
pub(super) fn facts(hello: &Message) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for (key, value) in
        [("Python", &hello.python), ("PyTorch", &hello.torch), ("CUDA of PyTorch", &hello.cuda), ("allocator", &hello.backend)]
    {
        if !value.is_empty() {
            facts.push((key.to_owned(), clean(value)));
        }
    }
    let mut env: Vec<_> = hello.env.iter().map(|(k, v)| (clean(k), clean(v))).collect();
    env.sort();
    facts.extend(env);
    facts
}
