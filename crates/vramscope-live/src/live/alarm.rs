//! Alarms: reports once that a limit set by the user was passed.

use vramscope_core::model::Sample;
use vramscope_core::units::Bytes;

/// What to watch for. A rule that is `None` is off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AlarmRules {
    /// Alarm when fewer bytes than this are free on the device.
    pub free_below: Option<u64>,
    /// Alarm when use grew by more than this many bytes within [`growth_minutes`](Self::growth_minutes) without falling back.
    pub growth: Option<u64>,
    /// Minutes over which [`growth`](Self::growth) is measured.
    pub growth_minutes: u32,
}

/// A limit that was passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The message to the user.
    pub sentence: String,
    /// A short form for the mark on the picture.
    pub mark: String,
}

/// The alarms of one device. Each is reported when it begins, not at every sample.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    is_low: bool,
    grew_at: Option<i64>,
}

impl Alarms {
    /// The alarms that begin with the newest sample. Reads the samples of the growth period.
    pub fn check(&mut self, rules: &AlarmRules, capacity: u64, samples: &[Sample]) -> Vec<Alarm> {
        let mut out = Vec::new();
        let Some(last) = samples.last() else { return out };
        let Some(used) = last.used else { return out };
        let free = capacity.saturating_sub(used);
        match rules.free_below {
            Some(limit) if free < limit => {
                if !self.is_low {
                    out.push(Alarm {
                        sentence: format!("Only {} free on the device, less than {}.", Bytes(free), Bytes(limit)),
                        mark: format!("alarm: less than {} free", Bytes(limit)),
                    });
                }
                self.is_low = true;
            }
            // Resets only when a tenth more than the limit is free, so that use around the limit does not raise it again and again.
            Some(limit) if free >= limit.saturating_add(limit / 10) => self.is_low = false,
            Some(_) => {}
            None => self.is_low = false,
        }
        let Some(limit) = rules.growth else { return out };
        let span_us = i64::from(rules.growth_minutes.max(1)) * 60_000_000;
        let waits = self.grew_at.is_some_and(|at| last.time_us - at < span_us);
        if !waits && let Some(grown) = growth(samples, span_us).filter(|g| *g > limit) {
            self.grew_at = Some(last.time_us);
            let minutes = vramscope_core::units::counted(u64::from(rules.growth_minutes.max(1)), "minute", "minutes");
            let sentence =
                format!("Memory in use grew by {} in {minutes} without falling back: a leak looks like this.", Bytes(grown));
            out.push(Alarm { sentence, mark: format!("alarm: +{} in {} min", Bytes(grown), rules.growth_minutes.max(1)) });
        }
        out
    }
}

/// How much the minimum of use rose over the last `span_us`. Use rises and falls with each training step, but without a leak its
/// minimum stays. `None` when the samples do not reach back that far, or when the minimum fell between any two quarters.
pub fn growth(samples: &[Sample], span_us: i64) -> Option<u64> {
    let end = samples.last()?.time_us;
    let start = end - span_us;
    if samples.first()?.time_us > start + span_us / 50 {
        return None;
    }
    let inside = &samples[samples.partition_point(|s| s.time_us < start)..];
    let mut floors = [u64::MAX; 4];
    for s in inside {
        let quarter = usize::try_from((s.time_us - start) * 4 / span_us.max(1)).unwrap_or(0).min(3);
        floors[quarter] = floors[quarter].min(s.used?);
    }
    let rises = floors.windows(2).all(|w| w[0] < w[1]) && floors[3] != u64::MAX;
    rises.then(|| floors[3] - floors[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(n: i64, used: impl Fn(i64) -> u64) -> Vec<Sample> {
        (0..n).map(|i| Sample { time_us: i * 1_000_000, used: Some(used(i)), ..Sample::default() }).collect()
    }

    #[test]
    fn low_memory_is_said_once_until_it_recovers() {
        let rules = AlarmRules { free_below: Some(100), ..AlarmRules::default() };
        let mut alarms = Alarms::default();
        let mut at = |used: u64| alarms.check(&rules, 1000, &series(1, |_| used)).len();
        assert_eq!([at(500), at(950), at(960), at(895), at(950), at(800), at(950)], [0, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn a_rising_floor_is_growth_and_a_sawtooth_is_not() {
        let saw = |i: i64| (i % 10) as u64 * 100;
        assert_eq!(growth(&series(601, saw), 600_000_000), None);
        assert_eq!(growth(&series(601, |i| saw(i) + i as u64), 600_000_000), Some(450));
        assert_eq!(growth(&series(100, |i| i as u64), 600_000_000), None);
    }

    #[test]
    fn growth_is_said_once_in_its_span() {
        let rules = AlarmRules { growth: Some(50), growth_minutes: 1, ..AlarmRules::default() };
        let mut alarms = Alarms::default();
        let all = series(200, |i| i as u64 * 10);
        let said: usize = (61..200).map(|n| alarms.check(&rules, 1_000_000, &all[..n]).len()).sum();
        assert_eq!(said, 3);
    }
}
