//! Adds the samples of a live session to a snapshot of one of its processes. Both have wall-clock times, which are checked.

use super::{NotJoined, is_same_device, refuse};
use crate::model::{Clock, DeviceRecording, Format, LiveTrack, ProcessTrack, Recording, Sample};
use crate::units::{Micros, counted, time_of_day};

/// Which process of a live session a snapshot belongs to, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotProcess {
    /// PID as the session has it; `None` if not known.
    pub pid: Option<u32>,
    /// Pairs of the process's ordinal and the session's device number; empty if they are assumed equal.
    pub devices: Vec<(i32, u32)>,
}

/// The result of adding a live session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// Number of samples added.
    pub samples: u64,
    /// Time of the first and of the last sample, microseconds since the epoch.
    pub times_us: (i64, i64),
    /// The process whose view the samples show; `None` if processes could not be distinguished.
    pub pid: Option<u32>,
}

impl Laid {
    /// One sentence for the list of what was added.
    pub fn sentence(&self, name: &str) -> String {
        let of = self.pid.map_or_else(|| "the watched programs".to_owned(), |pid| format!("process {pid}"));
        format!(
            "{name}: {} of the whole card from {} to {} UTC, seen from {of}, on the same clock.",
            counted(self.samples, "sample", "samples"),
            time_of_day(self.times_us.0),
            time_of_day(self.times_us.1)
        )
    }
}

/// True for a live session, which can be added to a recording of one process's events.
pub(super) fn is_watch(r: &Recording) -> bool {
    r.source.format == Format::Session
}

/// Adds the samples of `watch` to the devices of `base`. Cost: the samples of each device, times the logarithm of its points if
/// several processes with a helper share it. Fails with one sentence: no common device, or another time.
pub fn lay_under(base: &mut Recording, watch: &Recording, process: &SnapshotProcess) -> Result<Laid, NotJoined> {
    let (name, base_name) = (watch.source.name.clone(), base.source.name.clone());
    let only = if watch.devices.len() == 1 { watch.devices.first() } else { None };
    let mut laid = Laid { times_us: (i64::MAX, i64::MIN), ..Laid::default() };
    let mut other_time = None;
    let mut devices = Vec::new();
    for (at, device) in base.devices.iter().enumerate() {
        let by_map = process.devices.iter().find(|(ordinal, _)| *ordinal == device.id.index).map(|(_, number)| *number);
        let found = match by_map {
            Some(number) => watch.devices.iter().find(|d| u32::try_from(d.id.index) == Ok(number)),
            None => watch.devices.iter().find(|d| is_same_device(d.id, device.id)).or(only),
        };
        let Some(from) = found.filter(|d| !d.samples.is_empty()) else { continue };
        let (first, last) = (from.samples[0].time_us, from.samples[from.samples.len() - 1].time_us);
        if let Some((begin, end)) = device.events.time_range()
            && (end < first || begin > last)
        {
            // A live session has absolute times; a trace may count from its start.
            if Clock::OUR_DAYS.contains(&first) && base.clock() != Clock::Epoch {
                return refuse(format!(
                    "{name} cannot be laid under {base_name}, which names no clock time: where the two belong together is not known"
                ));
            }
            other_time = Some((begin, end, first, last));
            continue;
        }
        devices.push((at, from));
    }
    if devices.is_empty() {
        return match other_time {
            Some((begin, end, first, last)) => {
                let (apart, when) = if end < first { (first - end, "before") } else { (begin - last, "after") };
                refuse(format!(
                    "{name} cannot be laid under {base_name}: the events are {} {when} the watch, so it did not see them",
                    Micros(apart)
                ))
            }
            None => refuse(format!("{name} has no samples of a device of {base_name}")),
        };
    }
    let pid = process.pid.or_else(|| only_helper(&devices));
    for (at, from) in devices {
        let device = &mut base.devices[at];
        device.samples = pid.and_then(|pid| seen_from(from, pid)).unwrap_or_else(|| from.samples.clone());
        device.live.clone_from(&from.live);
        device.capacity = device.capacity.or(from.capacity);
        device.name = device.name.take().or_else(|| from.name.clone());
        laid.samples += from.samples.len() as u64;
        laid.times_us.0 = laid.times_us.0.min(from.samples[0].time_us);
        laid.times_us.1 = laid.times_us.1.max(from.samples[from.samples.len() - 1].time_us);
    }
    laid.pid = pid;
    Ok(laid)
}

/// The process with a helper, if there is only one on these devices: the snapshot is most likely its.
fn only_helper(devices: &[(usize, &DeviceRecording)]) -> Option<u32> {
    let tracks = devices.iter().filter_map(|(_, d)| d.live.as_deref()).flat_map(|l| &l.processes);
    let mut pids: Vec<u32> = tracks.filter(|t| t.points.iter().any(|p| p.torch.is_some())).map(|t| t.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    if let [pid] = pids[..] { Some(pid) } else { None }
}

/// The samples from the view of one process: its bytes as `process`, all others' as `others`. `None` if it was never on the device.
fn seen_from(device: &DeviceRecording, pid: u32) -> Option<Vec<Sample>> {
    let track: &LiveTrack = device.live.as_deref()?;
    let own: Vec<&ProcessTrack> = track.processes.iter().filter(|t| t.pid == pid).collect();
    if own.is_empty() {
        return None;
    }
    let is_split = |t: &&ProcessTrack| t.points.iter().any(|p| p.torch.is_some());
    // The only process with a helper: the session's sum is already this process, and current between two lists of the driver.
    if own.iter().any(&is_split) && track.processes.iter().filter(is_split).all(|t| t.pid == pid) {
        return Some(device.samples.clone());
    }
    let seen = |sample: &Sample| {
        let point = own.iter().find_map(|t| t.at(sample.time_us)).copied().unwrap_or_default();
        let listed = sample.process.unwrap_or(0).saturating_add(sample.others.unwrap_or(0));
        let used = point.used.unwrap_or(0);
        Sample {
            process: point.used,
            others: Some(listed.saturating_sub(used)),
            reserved: point.torch.map(|t| t.reserved),
            active: point.torch.map(|t| t.active),
            allocated: point.torch.map(|t| t.allocated),
            requested: point.torch.map(|t| t.requested),
            ..*sample
        }
    };
    Some(device.samples.iter().map(seen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, DeviceId, PoolId, ProcessPoint, Source, StackId, StreamId, TorchFigures};

    fn point(time_us: i64, used: u64, reserved: Option<u64>) -> ProcessPoint {
        let torch = reserved.map(|r| TorchFigures { reserved: r, allocated: r / 2, ..TorchFigures::default() });
        ProcessPoint { time_us, used: Some(used), torch }
    }

    fn watch(helpers: usize) -> Recording {
        let sample = |t| Sample {
            time_us: t,
            used: Some(900),
            driver: Some(50),
            process: Some(500),
            others: Some(300),
            ..Sample::default()
        };
        let track = |pid, used, reserved| ProcessTrack { pid, points: vec![point(0, used, reserved)], ..ProcessTrack::default() };
        let processes = vec![track(1, 200, Some(150)), track(2, 300, (helpers > 1).then_some(100)), track(3, 300, None)];
        let live = LiveTrack { processes, ..LiveTrack::default() };
        let device = DeviceRecording {
            id: DeviceId { index: 5, ..DeviceId::default() },
            capacity: Some(1000),
            samples: (0..10).map(|i| sample(1_000 + i * 100)).collect(),
            live: Some(Box::new(live)),
            ..DeviceRecording::default()
        };
        let source = Source { name: "s.vramscope".into(), format: Format::Session, ..Source::default() };
        Recording { source, devices: vec![device], ..Recording::default() }
    }

    fn snapshot(at_us: i64) -> Recording {
        let mut device = DeviceRecording::default();
        device.events.has_time = true;
        device.events.push(at_us, Action::Alloc, 0, 512, StreamId(0), PoolId(0), StackId::NONE);
        let source = Source { name: "a.pickle".into(), format: Format::SnapshotPickle, ..Source::default() };
        Recording { source, devices: vec![device], ..Recording::default() }
    }

    #[test]
    fn the_samples_are_those_of_the_process_the_snapshot_is_of() {
        let mut base = snapshot(1_500);
        let process = SnapshotProcess { pid: Some(2), devices: vec![(0, 5)] };
        let laid = lay_under(&mut base, &watch(2), &process).unwrap();
        assert_eq!((laid.samples, laid.times_us, laid.pid), (10, (1_000, 1_900), Some(2)));
        let s = base.devices[0].samples[3];
        assert_eq!((s.process, s.others, s.reserved, s.allocated), (Some(300), Some(500), Some(100), Some(50)));
        assert_eq!((s.used, base.devices[0].capacity), (Some(900), Some(1000)));
        // Only one process has a helper: it is assumed to be the one, and the session's own sum stays.
        let mut base = snapshot(1_500);
        assert_eq!(lay_under(&mut base, &watch(1), &SnapshotProcess::default()).unwrap().pid, Some(1));
        assert_eq!(base.devices[0].samples[3].process, Some(500));
    }

    #[test]
    fn another_time_is_refused_with_how_far_it_is() {
        let mut base = snapshot(5_000_000);
        let error = lay_under(&mut base, &watch(1), &SnapshotProcess::default()).unwrap_err().to_string();
        assert!(error.contains("after the watch") && error.contains("a.pickle"), "{error}");
        assert!(base.devices[0].samples.is_empty());
    }
}
