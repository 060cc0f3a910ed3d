//! How often each call is made, and how long it takes. Slow calls are made less often.

use std::collections::VecDeque;
use std::time::Duration;

use vramscope_core::model::CallCost;

/// Calls per second. NVML's calls take the driver's global lock, so frequent calls slow down the programs being watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Memory in use: 10 by default, at most 50.
    pub memory: f64,
    /// List of compute processes, in addition to readings after memory changed.
    pub processes: f64,
    /// Lists of graphics and MPS processes.
    pub other_processes: f64,
    /// Utilisation. The driver's own period is a sixth of a second or more.
    pub busy: f64,
    /// Temperature, power, clocks and the reasons for reduced clocks.
    pub climate: f64,
    /// Memory errors, remapped rows and BAR1.
    pub health: f64,
    /// Events that the driver reports.
    pub events: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Rates { memory: 10.0, processes: 1.0, other_processes: 0.2, busy: 5.0, climate: 1.0, health: 1.0 / 30.0, events: 1.0 }
    }
}

impl Rates {
    /// Highest rate that can be requested.
    pub const HIGHEST_MEMORY: f64 = 50.0;

    /// The default rates with memory read `hz` times per second, limited to between 0.1 and 50.
    pub fn with_memory(hz: f64) -> Self {
        let memory = if hz.is_finite() { hz.clamp(0.1, Self::HIGHEST_MEMORY) } else { 10.0 };
        Rates { memory, busy: Rates::default().busy.min(memory), ..Rates::default() }
    }
}

/// The kinds of calls, for scheduling and for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Call {
    Memory,
    Processes,
    OtherProcesses,
    Peaks,
    Busy,
    Climate,
    Health,
    Events,
}

impl Call {
    /// The calls made for each device. Lists come before the memory that they explain.
    pub(super) const DEVICE: [Call; 7] =
        [Call::Processes, Call::OtherProcesses, Call::Memory, Call::Peaks, Call::Busy, Call::Climate, Call::Health];

    pub(super) fn name(self) -> &'static str {
        match self {
            Call::Memory => "memory",
            Call::Processes => "compute processes",
            Call::OtherProcesses => "graphics and MPS processes",
            Call::Peaks => "peaks of processes",
            Call::Busy => "utilisation",
            Call::Climate => "power and clocks",
            Call::Health => "memory chips",
            Call::Events => "events",
        }
    }

    fn rate(self, rates: &Rates) -> f64 {
        match self {
            Call::Memory => rates.memory,
            Call::Processes => rates.processes,
            // As rarely as the lists that change least.
            Call::OtherProcesses | Call::Peaks => rates.other_processes,
            Call::Busy => rates.busy,
            Call::Climate => rates.climate,
            Call::Health => rates.health,
            Call::Events => rates.events,
        }
    }
}

/// A call slower than this (95th percentile) is made half as often.
const SLOW: Duration = Duration::from_millis(5);
/// Number of recent calls behind the statistics.
const WINDOW: usize = 20;
/// Even a very slow call is made this often.
const LONGEST: Duration = Duration::from_secs(60);

/// Schedule and durations of one kind of call.
#[derive(Clone, Debug)]
pub(super) struct Paced {
    pub(super) call: Call,
    wanted: Duration,
    /// The present period, after slowing down.
    period: Duration,
    /// Next call, on the monotonic clock.
    pub(super) due: Duration,
    recent: VecDeque<Duration>,
    count: u64,
    /// Calls since the period last changed, because a new judgement needs its own window.
    since_change: usize,
}

impl Paced {
    pub(super) fn new(call: Call, rates: &Rates, now: Duration) -> Self {
        let wanted = Duration::from_secs_f64(1.0 / call.rate(rates).max(1e-3));
        Paced { call, wanted, period: wanted, due: now, recent: VecDeque::new(), count: 0, since_change: 0 }
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Records the duration of a call. Halves the rate of a slow call, and restores it in steps.
    pub(super) fn took(&mut self, cost: Duration) {
        self.count += 1;
        self.since_change += 1;
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back(cost);
        // A single slow first call, when the driver wakes up, must not lower the rate: require a full window, or four slow calls.
        let enough =
            self.since_change >= WINDOW || (self.since_change >= 4 && self.recent.iter().rev().take(4).all(|c| *c > SLOW));
        if !enough {
            return;
        }
        let p95 = self.p95();
        if p95 > SLOW && self.period < LONGEST {
            self.period = (self.period * 2).min(LONGEST);
            (self.since_change, self.recent) = (0, VecDeque::new());
        } else if p95 < SLOW / 2 && self.period > self.wanted {
            self.period = (self.period / 2).max(self.wanted);
            self.since_change = 0;
        }
    }

    fn p95(&self) -> Duration {
        let mut sorted: Vec<Duration> = self.recent.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get((sorted.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
    }

    pub(super) fn cost(&self) -> CallCost {
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        let mean = self.recent.iter().map(|d| us(*d)).sum::<f64>() / self.recent.len().max(1) as f64;
        CallCost {
            call: self.call.name().to_owned(),
            count: self.count,
            mean_us: mean,
            p95_us: us(self.p95()),
            hz: 1.0 / self.period().as_secs_f64(),
            is_slowed: self.period > self.wanted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_call_lowers_its_own_rate_and_gets_it_back() {
        let mut p = Paced::new(Call::Memory, &Rates::default(), Duration::ZERO);
        assert_eq!(p.period(), Duration::from_millis(100));
        for _ in 0..4 {
            p.took(Duration::from_millis(9));
        }
        assert_eq!(p.period(), Duration::from_millis(200));
        assert!(p.cost().is_slowed);
        for _ in 0..60 {
            p.took(Duration::from_micros(10));
        }
        assert_eq!(p.period(), Duration::from_millis(100));
        assert!(!p.cost().is_slowed);
    }

    #[test]
    fn one_slow_call_among_fast_ones_changes_nothing() {
        let mut p = Paced::new(Call::Memory, &Rates::default(), Duration::ZERO);
        p.took(Duration::from_millis(40));
        for _ in 0..200 {
            p.took(Duration::from_micros(10));
        }
        assert_eq!(p.period(), Duration::from_millis(100));
        assert_eq!(p.cost().count, 201);
    }

    #[test]
    fn nobody_can_ask_for_more_than_fifty_a_second() {
        assert_eq!(Rates::with_memory(1e9).memory, 50.0);
        assert_eq!(Rates::with_memory(f64::NAN).memory, 10.0);
        assert_eq!(Rates::with_memory(0.5).busy, 0.5);
    }
}
