//! A watch as views see it, and what they ask of it.

use vramscope_core::model::LiveTrack;
use vramscope_live::live::agent::Request;
use vramscope_live::live::alarm::AlarmRules;
use vramscope_live::live::attach::Survey;

/// What the views know of a watch beside the recording itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStatus {
    /// It has ended: nothing more arrives.
    pub is_over: bool,
    /// The driver is not asked for now.
    pub is_paused: bool,
    /// It arrives through a pipe from another machine: nothing can be asked of it.
    pub is_remote: bool,
    /// Memory readings a second asked for.
    pub rate: f64,
    /// Processes whose helper answers, and whether each records its history.
    pub helpers: Vec<(u32, bool)>,
    /// What is known of the process that was looked at last.
    pub survey: Option<Survey>,
    /// The process being looked at.
    pub surveying: Option<u32>,
    /// What takes a while now.
    pub busy: Option<String>,
    /// Alarms in force.
    pub rules: AlarmRules,
}

impl LiveStatus {
    /// True when processes of this machine can be reached.
    pub fn can_attach(&self) -> bool {
        !self.is_over && !self.is_remote
    }
}

/// How old the newest sample is, when it is not of now: the device is out of reach, or the driver does not answer. `live` is
/// `None` for a recording that is over, whose age says nothing.
pub fn last_known(live: Option<&LiveStatus>, track: &LiveTrack, last_us: i64) -> Option<String> {
    let Some(live) = live.filter(|l| !l.is_over && !l.is_remote) else {
        return track.trouble.is_some().then(|| "last known".to_owned());
    };
    let age = vramscope_live::live::wall_clock_us().saturating_sub(last_us).max(0);
    let is_late = !live.is_paused && age > LATE_US;
    (track.trouble.is_some() || is_late).then(|| format!("last known, {} s ago", age / 1_000_000))
}

/// Older than this at the slowest rate, a sample a second, the newest one no longer stands for now.
const LATE_US: i64 = 4_000_000;

/// What can be asked of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum LiveAction {
    /// Ask the driver nothing for a while, or go on.
    Pause(bool),
    /// End it; what was seen stays.
    Stop,
    /// Keep it as a file.
    Save,
    /// Draw a line at this instant.
    Mark(String),
    /// Go up the ladder for a process.
    Attach(u32),
    /// Find out which ways lead into a process.
    Look(u32),
    /// Ask the helper of a process.
    Ask(u32, Request),
    /// Readings of memory a second.
    Rate(f64),
    /// What to tell about.
    Alarms(AlarmRules),
}
