//! [`History`]: combines records into a [`Recording`], live or from a file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::tracks::{bound_gauges, bound_hosts, bound_points, bound_samples};
use super::{DeviceFacts, HostMemory, Lost, MarkPoint, MemoryPoint, ProcessFacts, ProcessList, Record, TorchPoint, Trouble};
use crate::formats::snapshot::MAX_DEVICES;
use crate::model::{
    DeviceId, DeviceKind, DeviceRecording, Format, Gap, HostPoint, LiveMark, LiveTrack, MarkKind, ProcessPoint, ProcessTrack,
    Progress, Recording, Sample, Source, TorchFigures,
};

/// Samples kept in memory per device of a live session: an hour at 10 per second, about 5 MiB.
const MOST_SAMPLES: usize = 40_000;
/// Points kept per process.
const MOST_POINTS: usize = 20_000;
/// Marks kept; more would be drawn as a solid block.
const MOST_MARKS: usize = 10_000;
/// Limit for processes of one list, and for processes with PyTorch figures. A real device has some tens.
const MOST_PROCESSES: usize = 4_096;
/// PyTorch's figures are ignored when older than this.
const TORCH_LIFE_US: i64 = 5_000_000;
/// A longer interval without samples is drawn as a gap.
const GAP_US: i64 = 5_000_000;

/// A process that is on the device now.
#[derive(Clone, Copy, Debug)]
struct Present {
    pid: u32,
    track: usize,
    used: Option<u64>,
    /// PyTorch's reserved bytes at the time of the driver's figure.
    reserved_then: Option<u64>,
}

/// A device at the newest record.
#[derive(Clone, Copy, Debug)]
pub struct DeviceNow<'a> {
    /// Its number in the session.
    pub number: u32,
    /// Name, UUID, capacity and other facts.
    pub facts: &'a DeviceFacts,
    /// The newest sample; `None` before the first.
    pub sample: Option<Sample>,
    /// Processes, gauges, marks, gaps and losses so far.
    pub track: &'a LiveTrack,
}

#[derive(Debug, Default)]
struct Device {
    number: u32,
    facts: DeviceFacts,
    samples: Vec<Sample>,
    track: LiveTrack,
    present: Vec<Present>,
    /// The smallest unattributed figure since the last list of processes, in bytes.
    nobodys: Option<u64>,
    torch: HashMap<u32, (TorchFigures, i64)>,
    /// The last segments and blocks that were requested.
    state: Option<DeviceRecording>,
    /// Indices of a process's tracks, by PID and start.
    tracks: HashMap<(u32, u64), Vec<usize>>,
}

/// The state of a session so far.
#[derive(Debug, Default)]
pub struct History {
    devices: Vec<Device>,
    processes: HashMap<u32, ProcessFacts>,
    /// Facts reported by helpers, by PID.
    helpers: HashMap<u32, Arc<Vec<(String, String)>>>,
    trouble: Option<String>,
    host: String,
    focus: Option<u32>,
    is_unbounded: bool,
    /// Number of records about devices beyond the limit.
    left_out: u64,
    /// Counts records, so that a viewer knows when to update.
    revision: u64,
}

impl History {
    /// Limits memory: when a series is full its older half is thinned; peaks stay.
    pub fn new() -> Self {
        History::default()
    }

    /// Keeps everything, for a file that is read whole.
    pub fn unbounded() -> Self {
        History { is_unbounded: true, ..History::default() }
    }

    /// Watches this process even if no helper answers for it: its bytes are not counted as those of others.
    pub fn set_focus(&mut self, pid: Option<u32>) {
        self.focus = pid;
    }

    /// Increases with every record.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Why nothing can be sampled; `None` when sampling works.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Number of records about devices beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Number and UUID of each device.
    pub fn devices(&self) -> impl Iterator<Item = (u32, &str)> {
        self.devices.iter().map(|d| (d.number, d.facts.uuid.as_str()))
    }

    /// PIDs of the processes that are on any device now.
    pub fn present(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.devices.iter().flat_map(|d| &d.present).map(|p| p.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Number of each device that cannot be read, with the reason.
    pub fn unreadable(&self) -> impl Iterator<Item = (u32, &str)> {
        self.devices.iter().filter_map(|d| Some((d.number, d.track.trouble.as_deref()?)))
    }

    /// True when every device has a sample, or a reason why it has none. Devices are announced before their samples.
    pub fn is_complete(&self) -> bool {
        !self.devices.is_empty() && self.devices.iter().all(|d| !d.samples.is_empty() || d.track.trouble.is_some())
    }

    /// The newest sample of a device and its capacity.
    pub fn latest(&self, device: u32) -> Option<(Sample, u64)> {
        let d = self.devices.iter().find(|d| d.number == device)?;
        Some((*d.samples.last()?, d.facts.total))
    }

    /// The present state of each device, without copying its history.
    pub fn now(&self) -> impl Iterator<Item = DeviceNow<'_>> {
        self.devices.iter().map(|d| DeviceNow {
            number: d.number,
            facts: &d.facts,
            sample: d.samples.last().copied(),
            track: &d.track,
        })
    }

    /// The samples of a device; empty if it is unknown.
    pub fn samples(&self, device: u32) -> &[Sample] {
        self.devices.iter().find(|d| d.number == device).map_or(&[], |d| &d.samples)
    }

    /// Adds one record. Cost: a pass over one or two process lists, and now and then over the samples.
    pub fn add(&mut self, record: Record) {
        self.revision += 1;
        match record {
            Record::Start(start) => {
                self.host = start.host;
                self.trouble = start.trouble;
            }
            Record::Device(facts) => self.set_device(facts),
            Record::Memory(point) => self.add_memory(point),
            Record::Processes(list) => self.add_processes(list),
            Record::Unlisted(lost) => self.set_unlisted(&lost),
            Record::Peaks(peaks) => {
                let Some(d) = self.device(peaks.d) else { return };
                for (pid, started, bytes) in peaks.p {
                    let track = d.track.processes.iter_mut().rfind(|t| t.pid == pid && t.started == started);
                    if let Some(track) = track {
                        track.lifetime_peak = track.lifetime_peak.max(Some(bytes));
                    }
                }
            }
            Record::Process(facts) => {
                for d in &mut self.devices {
                    for &i in d.tracks.get(&(facts.pid, facts.started)).into_iter().flatten() {
                        describe(&mut d.track.processes[i], &facts);
                    }
                }
                self.processes.insert(facts.pid, facts);
            }
            Record::Gauge(reading) => {
                let most = self.most(MOST_SAMPLES);
                if let Some(d) = self.device(reading.d) {
                    d.track.gauges.push(reading.g);
                    bound_gauges(&mut d.track.gauges, most);
                }
            }
            Record::Torch(point) => self.add_torch(point),
            Record::Host(host) => self.add_host(&host),
            Record::Attached(a) => {
                let facts = Arc::new(a.facts);
                for track in self.tracks_of(a.pid) {
                    track.has_helper = true;
                    track.facts = Arc::clone(&facts);
                }
                self.helpers.insert(a.pid, facts);
            }
            Record::Detached(gone) => {
                self.helpers.remove(&gone.pid);
                for d in &mut self.devices {
                    d.torch.remove(&gone.pid);
                }
                for track in self.tracks_of(gone.pid) {
                    track.has_helper = false;
                    // Its pinned memory is unknown from here on.
                    if let Some(last) = track.host.last().copied().filter(|p| p.pinned.is_some()) {
                        track.host.push(HostPoint {
                            time_us: gone.t.max(last.time_us),
                            resident: last.resident,
                            ..HostPoint::default()
                        });
                    }
                }
            }
            Record::Mark(mark) => self.add_mark(&mark),
            Record::Trouble(trouble) => self.set_trouble(&trouble),
            Record::Costs(costs) => {
                for d in &mut self.devices {
                    d.track.costs.clone_from(&costs.calls);
                    d.track.sampler_cpu = costs.cpu;
                }
            }
            Record::Lost(lost) => self.add_lost(lost),
            Record::Blocks(blocks) => self.set_blocks(&blocks),
            Record::End(_) => {
                for track in self.devices.iter_mut().flat_map(|d| &mut d.track.processes) {
                    track.has_helper = false;
                }
            }
        }
    }

    fn most(&self, most: usize) -> usize {
        if self.is_unbounded { usize::MAX } else { most }
    }

    fn device(&mut self, number: u32) -> Option<&mut Device> {
        self.devices.iter_mut().find(|d| d.number == number)
    }

    fn tracks_of(&mut self, pid: u32) -> impl Iterator<Item = &mut ProcessTrack> {
        self.devices.iter_mut().flat_map(|d| &mut d.track.processes).filter(move |p| p.pid == pid && p.ended_us.is_none())
    }

    fn set_device(&mut self, facts: DeviceFacts) {
        let number = facts.device;
        if self.device(number).is_none() {
            if self.devices.len() >= MAX_DEVICES as usize {
                self.left_out += 1;
                return;
            }
            self.devices.push(Device { number, ..Device::default() });
            self.devices.sort_by_key(|d| d.number);
        }
        if let Some(d) = self.device(number) {
            d.track.uuid.clone_from(&facts.uuid);
            d.track.facts.clone_from(&facts.facts);
            d.track.limits.clone_from(&facts.limits);
            d.facts = facts;
        }
    }

    fn add_memory(&mut self, point: MemoryPoint) {
        let (most, focus) = (self.most(MOST_SAMPLES), self.focus);
        let Some(d) = self.device(point.d) else { return };
        d.facts.total = if point.total > 0 { point.total } else { d.facts.total };
        let mut sample =
            Sample { time_us: point.t, used: Some(point.used), driver: point.driver, others: Some(0), ..Sample::default() };
        d.torch.retain(|_, (_, t)| point.t.saturating_sub(*t) < TORCH_LIFE_US);
        let add = |sum: &mut Option<u64>, bytes: u64| *sum = Some(sum.unwrap_or(0).saturating_add(bytes));
        // The driver's figures for the watched processes, summed.
        let mut listed = 0_u64;
        for p in &d.present {
            let torch = d.torch.get(&p.pid).map(|(m, _)| *m);
            match (p.used, torch) {
                (Some(used), Some(m)) => {
                    // Between two process lists the process changes by what PyTorch reserves and frees.
                    let then = p.reserved_then.unwrap_or(m.reserved);
                    add(&mut sample.process, used.saturating_add(m.reserved).saturating_sub(then));
                    listed = listed.saturating_add(used);
                }
                (Some(used), None) if focus == Some(p.pid) => {
                    add(&mut sample.process, used);
                    listed = listed.saturating_add(used);
                }
                (Some(used), None) => add(&mut sample.others, used),
                (None, _) => {}
            }
        }
        // A list may already include what the helper reports a moment later; the device's own figure limits the sum.
        if let Some(process) = &mut sample.process {
            let room = point.used.saturating_sub(point.driver.unwrap_or(0)).saturating_sub(sample.others.unwrap_or(0));
            let nobodys = d.nobodys.unwrap_or(0);
            *process = if *process > listed {
                (*process).min(room.max(listed))
            } else {
                (*process).max(room.saturating_sub(nobodys).min(listed))
            };
        }
        for (m, _) in d.torch.values() {
            add(&mut sample.reserved, m.reserved);
            add(&mut sample.active, m.active);
            add(&mut sample.allocated, m.allocated);
            add(&mut sample.requested, m.requested);
        }
        if let Some(last) = d.samples.last() {
            if point.t <= last.time_us {
                // Two readings in one microsecond, or a clock that stood still: keep both, in order.
                sample.time_us = last.time_us.saturating_add(1);
            } else if point.t.saturating_sub(last.time_us) > GAP_US && d.track.gaps.last().is_none_or(|g| g.to_us <= last.time_us)
            {
                d.track.gaps.push(Gap { from_us: last.time_us, to_us: point.t });
            }
        }
        if d.track.peak.is_none_or(|(bytes, _)| point.used > bytes) {
            d.track.peak = Some((point.used, point.t));
        }
        if let Some(bands) = sample.bands(d.facts.total) {
            d.track.skewed += u64::from(bands.skew > 0);
            d.nobodys = Some(d.nobodys.map_or(bands.unattributed, |least| least.min(bands.unattributed)));
        }
        d.samples.push(sample);
        d.track.skewed += u64::from(catch_up(&mut d.samples));
        d.track.thinned += bound_samples(&mut d.samples, most);
    }

    fn add_processes(&mut self, list: ProcessList) {
        let most = self.most(MOST_POINTS);
        let facts = std::mem::take(&mut self.processes);
        let helpers = std::mem::take(&mut self.helpers);
        if let Some(d) = self.device(list.d) {
            let mut present = Vec::with_capacity(list.p.len());
            for &(pid, started, used) in list.p.iter().take(MOST_PROCESSES) {
                let of_it = d.tracks.entry((pid, started)).or_default();
                let found = of_it.last().copied().filter(|&t| d.track.processes[t].ended_us.is_none());
                let track = found.unwrap_or_else(|| {
                    let mut track = ProcessTrack { pid, started, name: format!("PID {pid}"), ..ProcessTrack::default() };
                    if let Some(f) = facts.get(&pid).filter(|f| f.started == started) {
                        describe(&mut track, f);
                    }
                    if let Some(h) = helpers.get(&pid) {
                        (track.has_helper, track.facts) = (true, Arc::clone(h));
                    }
                    of_it.push(d.track.processes.len());
                    d.track.processes.push(track);
                    // Processes that were running when the session began did not start then.
                    if !d.samples.is_empty() {
                        push_mark(&mut d.track, list.t, MarkKind::Process, format!("process {pid} starts"));
                    }
                    d.track.processes.len() - 1
                });
                let torch = d.torch.get(&pid).map(|(m, _)| *m);
                push_point(&mut d.track.processes[track], ProcessPoint { time_us: list.t, used, torch }, most);
                present.push(Present { pid, track, used, reserved_then: torch.map(|m| m.reserved) });
            }
            let here: HashSet<usize> = present.iter().map(|p| p.track).collect();
            let gone: Vec<usize> = d.present.iter().map(|p| p.track).filter(|t| !here.contains(t)).collect();
            for track in gone {
                let process = &mut d.track.processes[track];
                process.ended_us = Some(list.t);
                process.has_helper = false;
                let text = format!("process {} ends", process.pid);
                d.torch.remove(&process.pid);
                push_mark(&mut d.track, list.t, MarkKind::Process, text);
            }
            d.present = present;
            d.nobodys = None;
            d.track.unlisted_us = None;
        }
        self.processes = facts;
        self.helpers = helpers;
    }

    fn add_torch(&mut self, point: TorchPoint) {
        let most = self.most(MOST_POINTS);
        let Some(d) = self.device(point.d) else { return };
        if d.torch.len() >= MOST_PROCESSES && !d.torch.contains_key(&point.pid) {
            return;
        }
        let before = d.torch.insert(point.pid, (point.m, point.t));
        for p in d.present.iter_mut().filter(|p| p.pid == point.pid) {
            p.reserved_then = p.reserved_then.or(Some(point.m.reserved));
            let used = p.used;
            if let Some(track) = d.track.processes.get_mut(p.track) {
                push_point(track, ProcessPoint { time_us: point.t, used, torch: Some(point.m) }, most);
            }
        }
        if before.is_some_and(|(m, _)| point.m.ooms > m.ooms) {
            push_mark(&mut d.track, point.t, MarkKind::OutOfMemory, format!("out of memory in {}", point.pid));
        }
        if before.is_some_and(|(m, _)| point.m.retries > m.retries) {
            push_mark(&mut d.track, point.t, MarkKind::Program, format!("cache emptied and retried in {}", point.pid));
        }
    }

    fn add_host(&mut self, host: &HostMemory) {
        let most = self.most(MOST_POINTS);
        for track in self.tracks_of(host.pid) {
            let before = track.host.last().copied().unwrap_or_default();
            let point = HostPoint {
                time_us: host.t.max(before.time_us),
                resident: host.resident.or(before.resident),
                pinned: host.pinned.or(before.pinned),
                pinned_used: host.pinned_used.or(before.pinned_used),
            };
            if (HostPoint { time_us: before.time_us, ..point }) != before {
                track.host.push(point);
                bound_hosts(&mut track.host, most);
            }
        }
    }

    fn add_mark(&mut self, mark: &MarkPoint) {
        // A mark without a device applies to all devices.
        let text: Arc<str> = mark.text.as_str().into();
        for d in self.devices.iter_mut().filter(|d| mark.d.is_none_or(|n| n == d.number)) {
            push_mark(&mut d.track, mark.t, mark.kind, Arc::clone(&text));
        }
    }

    fn set_trouble(&mut self, trouble: &Trouble) {
        if trouble.d.is_none() {
            self.trouble.clone_from(&trouble.sentence);
        }
        for d in self.devices.iter_mut().filter(|d| trouble.d.is_none_or(|n| n == d.number)) {
            if d.track.trouble.is_none() != trouble.sentence.is_none() {
                let text = if trouble.sentence.is_some() { "device not readable" } else { "device readable again" };
                push_mark(&mut d.track, trouble.t, MarkKind::Device, text);
            }
            d.track.trouble.clone_from(&trouble.sentence);
        }
    }

    /// Bytes listed before are no longer valid: they become unknown from here on. Processes neither start nor end.
    fn set_unlisted(&mut self, lost: &Trouble) {
        let most = self.most(MOST_POINTS);
        for d in self.devices.iter_mut().filter(|d| lost.d.is_none_or(|n| n == d.number)) {
            let is_lost = lost.sentence.is_some();
            if is_lost == d.track.unlisted_us.is_some() {
                continue;
            }
            d.track.unlisted_us = is_lost.then_some(lost.t);
            let text = if is_lost { "processes no longer listed" } else { "processes listed again" };
            push_mark(&mut d.track, lost.t, MarkKind::Device, text);
            if !is_lost {
                continue;
            }
            d.nobodys = None;
            for p in &mut d.present {
                (p.used, p.reserved_then) = (None, None);
                let torch = d.torch.get(&p.pid).map(|(m, _)| *m);
                push_point(&mut d.track.processes[p.track], ProcessPoint { time_us: lost.t, used: None, torch }, most);
            }
        }
    }

    fn add_lost(&mut self, lost: Lost) {
        for d in self.devices.iter_mut().filter(|d| lost.d.is_none_or(|n| n == d.number)) {
            d.track.lost = d.track.lost.saturating_add(lost.n);
            if lost.to > lost.from && lost.from > 0 {
                d.track.gaps.push(Gap { from_us: lost.from, to_us: lost.to });
            }
        }
    }

    fn set_blocks(&mut self, blocks: &super::Blocks) {
        let Ok(text) = serde_json::to_vec(&blocks.snapshot) else { return };
        let Ok(state) = super::super::snapshot::read_json(&text, "blocks", &Progress::new()) else { return };
        for part in state.devices {
            let number = blocks.devices.iter().find(|(ordinal, _)| *ordinal == part.id.index).map(|(_, d)| *d);
            if let Some(d) = number.and_then(|n| self.device(n)) {
                d.state = Some(part);
            }
        }
    }

    /// The session so far as a recording. Cost: a copy of the samples.
    pub fn recording(&self, name: &str) -> Recording {
        let devices = self.devices.iter().map(|d| {
            let mut out = d.state.clone().unwrap_or_default();
            out.id = DeviceId { kind: DeviceKind::Cuda, index: i32::try_from(d.number).unwrap_or(i32::MAX) };
            out.name = (!d.facts.name.is_empty()).then(|| d.facts.name.clone());
            out.capacity = (d.facts.total > 0).then_some(d.facts.total);
            out.samples.clone_from(&d.samples);
            out.live = Some(Box::new(d.track.clone()));
            out
        });
        let mut devices: Vec<DeviceRecording> = devices.collect();
        if devices.is_empty() {
            // A session that has found no device yet still reports why.
            let track = LiveTrack { trouble: self.trouble.clone(), ..LiveTrack::default() };
            devices.push(DeviceRecording { live: Some(Box::new(track)), ..DeviceRecording::default() });
        }
        Recording {
            source: Source { name: name.to_owned(), format: Format::Session, ..Source::default() },
            devices,
            ..Recording::default()
        }
    }

    /// Name of the watched machine; empty when unknown.
    pub fn host(&self) -> &str {
        &self.host
    }
}

fn describe(track: &mut ProcessTrack, facts: &ProcessFacts) {
    track.name.clone_from(&facts.name);
    track.command.clone_from(&facts.command);
    track.user.clone_from(&facts.user);
    track.container.clone_from(&facts.container);
    track.note.clone_from(&facts.note);
}

/// Corrects the sample before the last one. The driver reports new bytes a moment before PyTorch does, which looks like a short
/// spike outside PyTorch; such a spike is added to `reserved`. True if a correction was made.
fn catch_up(samples: &mut [Sample]) -> bool {
    /// Smaller differences are normal: a library may really hold this much for a moment.
    const LEAST: u64 = 32 << 20;
    let [.., before, at, after] = samples else { return false };
    let outside = |s: &Sample| Some(s.process?.saturating_sub(s.reserved?));
    let (Some(before), Some(now), Some(after)) = (outside(before), outside(at), outside(after)) else { return false };
    let excess = now.saturating_sub(before.max(after));
    if excess >= LEAST {
        at.reserved = at.reserved.map(|reserved| reserved + excess);
    }
    excess >= LEAST
}

fn push_mark(track: &mut LiveTrack, time_us: i64, kind: MarkKind, text: impl Into<Arc<str>>) {
    if track.marks.len() < MOST_MARKS {
        // Helpers use channels of their own, so a mark may arrive after later ones.
        let at = track.marks.partition_point(|m| m.time_us <= time_us);
        track.marks.insert(at, LiveMark { time_us, kind, text: text.into() });
    }
}

fn push_point(track: &mut ProcessTrack, point: ProcessPoint, most: usize) {
    if let Some(bytes) = point.used
        && track.peak.is_none_or(|(peak, _)| bytes > peak)
    {
        track.peak = Some((bytes, point.time_us));
    }
    if let Some(t) = point.torch {
        // PyTorch's peaks fall when the program resets them; keep the highest.
        let (allocated, reserved) = track.torch_peak.unwrap_or_default();
        let peaks = (allocated.max(t.allocated_peak).max(t.allocated), reserved.max(t.reserved_peak).max(t.reserved));
        track.torch_peak = Some(peaks);
    }
    match track.points.last_mut() {
        Some(last) if (last.used, last.torch) == (point.used, point.torch) => {}
        Some(last) if point.time_us <= last.time_us => (last.used, last.torch) = (point.used, point.torch),
        _ => track.points.push(point),
    }
    bound_points(&mut track.points, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_tells_a_moment_later_is_its_own() {
        let of = |process: u64, reserved: u64| Sample {
            process: Some(process << 20),
            reserved: Some(reserved << 20),
            ..Sample::default()
        };
        let mut late = [of(900, 500), of(2900, 500), of(2900, 2500)];
        assert!(catch_up(&mut late));
        assert_eq!(late[1].reserved, Some(2500 << 20), "none of it was outside PyTorch");
        assert!(!catch_up(&mut [of(900, 500), of(2900, 500), of(2900, 500)]), "what stays is of another library");
    }
}
