//! Converts between places on the axis and times. Needed for things that happen between two events, such as samples.

use super::picture::Window;
use crate::app::state::Axis;
use vramscope_core::model::DeviceRecording;

impl Window {
    /// Times of the column borders in nanoseconds since the epoch. On the event axis, time is interpolated between events.
    pub fn times_ns(&self, device: &DeviceRecording) -> Vec<i64> {
        (0..=self.columns).map(|i| time_ns(device, self.axis, self.at(i as f64))).collect()
    }
}

/// The time at a place on the axis, in nanoseconds since the epoch.
pub(super) fn time_ns(device: &DeviceRecording, axis: Axis, x: f64) -> i64 {
    let times = &device.events.time_us;
    let first = times.first().copied().unwrap_or(0);
    match axis {
        Axis::Time => first.saturating_mul(1_000).saturating_add((x * 1_000.0).round() as i64),
        Axis::Event => {
            let at = x.max(0.0).floor();
            let i = (at as usize).min(times.len().saturating_sub(1));
            let here = times.get(i).copied().unwrap_or(0);
            let next = times.get(i + 1).copied().unwrap_or(here);
            let part = (x - at).clamp(0.0, 1.0) * (next - here) as f64;
            here.saturating_mul(1_000).saturating_add((part * 1_000.0).round() as i64)
        }
    }
}

pub(super) fn place_of_ns(device: &DeviceRecording, axis: Axis, ns: i64) -> f64 {
    let times = &device.events.time_us;
    let first = times.first().copied().unwrap_or(0);
    match axis {
        Axis::Time => (ns - first.saturating_mul(1_000)) as f64 / 1_000.0,
        Axis::Event => {
            let after = times.partition_point(|&t| t.saturating_mul(1_000) <= ns);
            let Some(i) = after.checked_sub(1) else { return 0.0 };
            let (here, next) = (times[i], times.get(after).copied().unwrap_or(times[i]));
            let part = if next > here { (ns - here * 1_000) as f64 / ((next - here) as f64 * 1_000.0) } else { 0.0 };
            i as f64 + part.clamp(0.0, 1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::toys::device_at;

    #[test]
    fn places_and_times_are_each_other_s_inverse() {
        let d = device_at(&[100, 100, 110, 300]);
        for axis in [Axis::Event, Axis::Time] {
            for ns in [100_000, 104_000, 110_000, 205_000, 300_000] {
                assert_eq!(time_ns(&d, axis, place_of_ns(&d, axis, ns)), ns, "{axis:?}");
            }
        }
        assert_eq!(place_of_ns(&d, Axis::Event, 105_000), 1.5);
        assert_eq!(place_of_ns(&d, Axis::Event, 0), 0.0);
        assert_eq!(place_of_ns(&d, Axis::Time, 90_000), -10.0);
        let w = Window { axis: Axis::Event, from: 0.0, to: 4.0, columns: 8 };
        assert!(w.times_ns(&d).windows(2).all(|w| w[0] <= w[1]));
    }
}
