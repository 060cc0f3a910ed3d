//! What the samples of a watch show: when the card was fullest, which process grew, PyTorch's own peaks, which alarms went off.
//! Used for recordings without allocator events.

use crate::model::{DeviceRecording, LiveMark, MarkKind, ProcessTrack, Sample};

/// A process during a watch. Bytes are the driver's count, if it reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grower {
    /// PID as the driver reports it: the host's, also for a container.
    pub pid: u32,
    /// Its command line, or its name.
    pub command: String,
    /// Bytes when it was first seen; 0 if it appeared during the watch.
    pub first: u64,
    /// Bytes when it was last seen.
    pub last: u64,
    /// The most bytes seen.
    pub peak: u64,
    /// The time of the peak, in microseconds since the epoch.
    pub peak_us: i64,
    /// PyTorch's own peaks (allocated, reserved) since the program began or last reset them; `None` without a helper.
    pub torch_peak: Option<(u64, u64)>,
    /// The most bytes since the process began, from the driver's accounting; `None` unless the administrator enabled it.
    pub lifetime_peak: Option<u64>,
}

impl Grower {
    /// Bytes by which it grew from the beginning to the end; 0 if it shrank.
    pub fn grown(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

/// The whole watch of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// First and last sample, microseconds since the epoch.
    pub times_us: (i64, i64),
    /// The sample with the most memory in use.
    pub fullest: Sample,
    /// The sample with the least memory in use.
    pub emptiest: Sample,
    /// The last sample, at the end of `times_us`.
    pub last: Sample,
    /// Every process with a known figure, the one that grew most first.
    pub processes: Vec<Grower>,
    /// Marks of exceeded limits and of PyTorch's failed requests, by time.
    pub alarms: Vec<LiveMark>,
}

/// Summarises a watch; `None` without samples. One pass over samples and points.
pub fn watched(device: &DeviceRecording) -> Option<Watched> {
    let (first, last) = (device.samples.first()?, device.samples.last()?);
    // The earliest of equal maxima, when the level was first reached.
    let fullest = device.samples.iter().rev().max_by_key(|s| s.used)?;
    let emptiest = device.samples.iter().filter(|s| s.used.is_some()).min_by_key(|s| s.used).unwrap_or(first);
    let track = device.live.as_deref();
    let mut processes: Vec<Grower> =
        track.into_iter().flat_map(|t| &t.processes).filter_map(|p| grower(p, first.time_us)).collect();
    processes.sort_by_key(|p| std::cmp::Reverse((p.grown(), p.peak)));
    let is_alarm = |m: &&LiveMark| matches!(m.kind, MarkKind::Alarm | MarkKind::OutOfMemory);
    Some(Watched {
        times_us: (first.time_us, last.time_us),
        fullest: *fullest,
        emptiest: *emptiest,
        last: *last,
        processes,
        alarms: track.into_iter().flat_map(|t| &t.marks).filter(is_alarm).cloned().collect(),
    })
}

fn grower(process: &ProcessTrack, watch_began_us: i64) -> Option<Grower> {
    /// A process in a list this soon after the start existed before the watch: lists are read once per second.
    const THERE_BEFORE_US: i64 = 2_000_000;
    let begun = process.points.first()?.time_us;
    let told = || process.points.iter().filter_map(|p| p.used);
    let (peak, peak_us) = process.peak?;
    Some(Grower {
        pid: process.pid,
        command: if process.command.is_empty() { process.name.clone() } else { process.command.clone() },
        first: if begun > watch_began_us.saturating_add(THERE_BEFORE_US) { 0 } else { told().next()? },
        last: told().next_back()?,
        peak,
        peak_us,
        torch_peak: process.torch_peak,
        lifetime_peak: process.lifetime_peak,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LiveTrack, ProcessPoint};

    #[test]
    fn the_watch_names_its_fullest_instant_and_who_grew() {
        let second = 1_000_000;
        let point = |t: i64, used| ProcessPoint { time_us: t * second, used: Some(used), torch: None };
        let track = |pid, points: Vec<ProcessPoint>| ProcessTrack {
            pid,
            peak: points.iter().map(|p| (p.used.unwrap(), p.time_us)).max_by_key(|p| p.0),
            points,
            ..ProcessTrack::default()
        };
        let marks = [MarkKind::Alarm, MarkKind::Process].map(|kind| LiveMark { time_us: 4, kind, text: "x".into() }).to_vec();
        let processes =
            vec![track(1, vec![point(0, 100), point(5, 160), point(9, 130)]), track(2, vec![point(6, 80), point(9, 90)])];
        let device = DeviceRecording {
            samples: (0..10)
                .map(|t| Sample {
                    time_us: t * second,
                    used: Some([5, 9, 9, 2, 3, 3, 3, 3, 3, 4][t as usize]),
                    ..Sample::default()
                })
                .collect(),
            live: Some(Box::new(LiveTrack { processes, marks, ..LiveTrack::default() })),
            ..DeviceRecording::default()
        };
        let w = watched(&device).unwrap();
        assert_eq!((w.fullest.time_us, w.emptiest.used, w.last.used, w.alarms.len()), (second, Some(2), Some(4), 1));
        // The second process appeared later, so all its memory counts as growth.
        assert_eq!(w.processes.iter().map(|p| (p.pid, p.first, p.grown())).collect::<Vec<_>>(), [(2, 0, 90), (1, 100, 30)]);
        assert_eq!((w.processes[1].peak, w.processes[1].peak_us), (160, 5 * second));
        assert!(watched(&DeviceRecording::default()).is_none());
    }
}
