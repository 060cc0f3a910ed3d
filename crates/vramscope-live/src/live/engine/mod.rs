//! The work of the sampling thread without the thread: which call is due, and its results. Time comes from outside, so that tests
//! can simulate lost devices, slow calls and clocks that jump.

use std::time::Duration;

use super::process::ProcessLookup;
use super::rates::{Call, Paced, Rates};
use super::source::{GpuError, GpuProcess, GpuSource};
use vramscope_core::formats::session::{Costs, DeviceFacts, Lost, MarkPoint, Record};
use vramscope_core::model::{MarkKind, Reading};

mod calls;
mod devices;
mod loss;

/// The monotonic and the wall clock, which tests replace.
pub(super) trait Clock {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Microseconds since the epoch; may jump.
    fn wall_us(&self) -> i64;
}

/// Opens the driver; called again after it was lost.
pub(super) type Opener = Box<dyn FnMut() -> Result<Box<dyn GpuSource>, GpuError> + Send>;

/// How long to wait before a lost device is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Interval at which missing samples of an unreachable device are counted.
const COUNT_LOST: Duration = Duration::from_secs(1);
/// When the wall clock and the counted time differ by more than this, the clock was set or the machine slept.
const JUMP_US: i64 = 1_000_000;
/// A memory change of this many bytes causes an immediate reading of the process list.
const CHANGE: u64 = 1 << 20;
/// Beginning of the sentence that says that the process list became unreadable.
const UNLISTED: &str = "The driver stopped telling which processes use it";
/// Interval at which the durations of calls are recorded.
const TELL_COSTS: Duration = Duration::from_secs(5);

/// A device and its schedule.
struct Watched {
    /// Its present index in the source; `None` while the source lacks it.
    place: Option<usize>,
    number: u32,
    uuid: String,
    calls: Vec<Paced>,
    trouble: Option<GpuError>,
    retry_at: Duration,
    limits: Vec<String>,
    facts: DeviceFacts,
    gauge: Reading,
    /// Bytes in use when the process list was last read.
    used_at_list: u64,
    /// The list was read after the last memory reading.
    is_list_new: bool,
    /// It is divided into MIG instances, which are watched as devices of their own.
    has_mig: bool,
    /// The list was readable before but now fails, so the old list is outdated.
    is_unlisted: bool,
    compute: Vec<GpuProcess>,
    others: Vec<GpuProcess>,
    /// The processes last recorded, by PID and start time, and their last recorded peaks.
    listed: Vec<(u32, u64)>,
    peaks: Vec<(u32, u64, u64)>,
    last_sample_us: i64,
    /// Time up to which missing samples were counted.
    counted_to: Duration,
}

pub(super) struct Engine {
    opener: Opener,
    source: Option<Box<dyn GpuSource>>,
    rates: Rates,
    /// Indices in the driver's list to watch; empty for all.
    wanted: Vec<usize>,
    devices: Vec<Watched>,
    trouble: Option<GpuError>,
    retry_at: Duration,
    anchor: Option<(Duration, i64)>,
    /// Difference of the wall clock to the counted time since the clock was set back; 0 or less.
    lag_us: i64,
    events: Paced,
    lookup: ProcessLookup,
    costs_at: Duration,
    out: Vec<Record>,
}

impl Engine {
    pub(super) fn new(opener: Opener, rates: Rates, wanted: Vec<usize>, lookup: ProcessLookup) -> Self {
        Engine {
            opener,
            source: None,
            rates,
            wanted,
            devices: Vec::new(),
            trouble: None,
            retry_at: Duration::ZERO,
            anchor: None,
            lag_us: 0,
            events: Paced::new(Call::Events, &rates, Duration::ZERO),
            lookup,
            costs_at: Duration::ZERO,
            out: Vec::new(),
        }
    }

    /// Makes the calls that are due. Returns the records.
    pub(super) fn run_due(&mut self, clock: &impl Clock) -> Vec<Record> {
        self.follow_clock(clock);
        if self.source.is_none() && clock.now() >= self.retry_at {
            self.open(clock);
        }
        let mut devices = std::mem::take(&mut self.devices);
        for device in &mut devices {
            self.sample(device, clock);
        }
        self.devices = devices;
        self.report_events(clock);
        if !self.devices.is_empty() && self.devices.iter().all(|d| d.trouble.as_ref().is_some_and(GpuError::is_loss)) {
            self.reopen(clock);
        }
        if self.source.is_some() && clock.now() >= self.costs_at + TELL_COSTS {
            self.costs_at = clock.now();
            self.report_costs();
        }
        std::mem::take(&mut self.out)
    }

    /// When the next call is due, on the monotonic clock.
    pub(super) fn next_due(&self) -> Duration {
        if self.source.is_none() {
            return self.retry_at;
        }
        let due = |d: &Watched| match d.trouble {
            // At most a second, because missing samples are counted while the device is unreachable.
            Some(_) => d.retry_at.min(d.counted_to + COUNT_LOST),
            None => d.calls.iter().map(|c| c.due).min().unwrap_or(d.retry_at),
        };
        self.devices.iter().map(due).min().unwrap_or(self.retry_at)
    }

    /// Microseconds since the epoch, counted from the anchor so that they never go back.
    fn time_us(&self, clock: &impl Clock) -> i64 {
        let (then, wall) = self.anchor.unwrap_or_default();
        wall + i64::try_from(clock.now().saturating_sub(then).as_micros()).unwrap_or(i64::MAX)
    }

    /// Goes on after a pause. The time of the pause is a gap, in which no sample was due.
    pub fn resume(&mut self, clock: &impl Clock) {
        let (now, to) = (clock.now(), self.time_us(clock));
        for d in &mut self.devices {
            for call in &mut d.calls {
                call.due = call.due.max(now);
            }
            if d.last_sample_us > 0 {
                self.out.push(Record::Lost(Lost { d: Some(d.number), n: 0, from: d.last_sample_us, to }));
            }
        }
    }

    fn follow_clock(&mut self, clock: &impl Clock) {
        if self.anchor.is_none() {
            self.anchor = Some((clock.now(), clock.wall_us()));
        }
        let (counted, wall) = (self.time_us(clock), clock.wall_us());
        let jump = wall - counted - self.lag_us;
        if jump.abs() <= JUMP_US {
            return;
        }
        let (t, text) = if wall > counted {
            // The clock was set forward or the machine slept. Follow it; the time between is a gap.
            self.anchor = Some((clock.now(), wall));
            self.lag_us = 0;
            if let Some(from) = self.devices.iter().map(|d| d.last_sample_us).max().filter(|t| *t > 0) {
                self.out.push(Record::Lost(Lost { d: None, n: 0, from, to: wall }));
            }
            (wall, format!("clock went on by {} s: set, or the machine slept", jump / 1_000_000))
        } else {
            // Time that goes back cannot be drawn, so keep counting. Reported once, because the difference is expected from now on.
            self.lag_us = wall - counted;
            (counted, format!("clock was set by {} s; times here count on", jump / 1_000_000))
        };
        self.out.push(Record::Mark(MarkPoint { d: None, t, kind: MarkKind::Clock, text }));
    }
    fn sample(&mut self, d: &mut Watched, clock: &impl Clock) {
        if d.trouble.is_some() || d.place.is_none() || self.source.is_none() {
            self.count_lost(d, clock, false);
        }
        let Some(place) = d.place else { return };
        if d.trouble.is_some() {
            if clock.now() >= d.retry_at {
                self.try_again(d, place, clock);
            }
            return;
        }
        for i in 0..d.calls.len() {
            let now = clock.now();
            let (call, due) = (d.calls[i].call, d.calls[i].due);
            if now < due {
                continue;
            }
            let period = d.calls[i].period();
            // Whole periods that passed are samples that were not taken.
            let missed = (now - due).as_nanos() / period.as_nanos().max(1);
            if call == Call::Memory && missed > 0 && d.last_sample_us > 0 {
                self.out.push(Record::Lost(Lost { d: Some(d.number), n: missed as u64, from: 0, to: 0 }));
            }
            d.calls[i].due = due + period * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1);
            let result = self.ask(d, place, call, clock);
            d.calls[i].took(clock.now().saturating_sub(now));
            if let Err(error) = result
                && self.failed(d, call, error, clock)
            {
                return;
            }
        }
    }
    fn report_costs(&mut self) {
        let Some(d) = self.devices.first() else { return };
        let calls = d.calls.iter().chain([&self.events]).map(|c| c.cost()).filter(|c| c.count > 0).collect();
        self.out.push(Record::Costs(Costs { calls, cpu: None }));
    }
}
