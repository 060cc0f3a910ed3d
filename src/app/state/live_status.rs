//! The state of a live watch as views see it, and the actions they can ask for.

use vramscope_core::model::LiveTrack;
use vramscope_live::live::agent::Request;
use vramscope_live::live::alarm::AlarmRules;
use vramscope_live::live::attach::Survey;

/// What views know about a watch besides the recording itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStatus {
    /// The watch ended: no more samples arrive.
    pub is_over: bool,
    pub is_paused: bool,
    /// The samples come through a pipe from another machine, so nothing can be asked of it.
    pub is_remote: bool,
    /// Requested memory samples per second.
    pub rate: f64,
    /// Processes with a running helper, and whether each of them records its history.
    pub helpers: Vec<(u32, bool)>,
    /// What is known about the process that was last surveyed.
    pub survey: Option<Survey>,
    pub surveying: Option<u32>,
    /// Description of the long operation that is running.
    pub busy: Option<String>,
    pub rules: AlarmRules,
}

impl LiveStatus {
    /// True when processes of this machine can be attached to.
    pub fn can_attach(&self) -> bool {
        !self.is_over && !self.is_remote
    }
}

/// A note that the newest sample is stale because the device is out of reach or the driver does not answer. It gives the age,
/// except where that says nothing: when nothing is watched any more, or on another machine.
pub fn last_known(live: Option<&LiveStatus>, track: &LiveTrack, last_us: i64) -> Option<String> {
    let Some(live) = live.filter(|l| !l.is_over && !l.is_remote) else {
        return track.trouble.is_some().then(|| "last known".to_owned());
    };
    let age = vramscope_live::live::wall_clock_us().saturating_sub(last_us).max(0);
    let is_late = !live.is_paused && age > LATE_US;
    (track.trouble.is_some() || is_late).then(|| format!("last known, {} s ago", age / 1_000_000))
}

/// Age from which the newest sample is stale. It is four periods of the slowest rate, one sample a second.
const LATE_US: i64 = 4_000_000;

#[derive(Clone, Debug, PartialEq)]
pub enum LiveAction {
    Pause(bool),
    /// End the watch; its samples stay.
    Stop,
    Save,
    /// Add a named mark at the present instant.
    Mark(String),
    /// Attach to a process: try each way in turn.
    Attach(u32),
    /// Find out in which ways a process can be attached to.
    Look(u32),
    /// Send a request to the helper in a process.
    Ask(u32, Request),
    Rate(f64),
    Alarms(AlarmRules),
}
