//! What the sampling thread does, without the thread: which call is due, what came of it. Time is given from outside, so that
//! lost devices, slow calls and clocks that jump can be rehearsed in a test.

use std::time::Duration;

use super::process::{ProcessLookup, is_wsl};
use super::rates::{Call, Paced, Rates};
use super::source::{GpuError, GpuEvent, GpuProcess, GpuSource, ProcessKind, xid_text};
use crate::formats::session::{
    Costs, DeviceFacts, DeviceGauge, DevicePeaks, Lost, MarkPoint, MemoryPoint, ProcessList, Record, Trouble,
};
use crate::model::{MarkKind, Reading};

/// The two clocks.
pub(super) trait Clock {
    /// Since some start, never backward.
    fn now(&self) -> Duration;
    /// Microseconds since the epoch; may jump.
    fn wall_us(&self) -> i64;
}

/// Opens the driver.
pub(super) type Opener = Box<dyn FnMut() -> Result<Box<dyn GpuSource>, GpuError> + Send>;

/// How long to wait before asking a lost device again.
const RETRY: Duration = Duration::from_secs(5);
/// Samples missing while a device is out of reach are counted this often.
const COUNT_LOST: Duration = Duration::from_secs(1);
/// The wall clock differs from the counted one by more than this: it was set, or the machine slept.
const JUMP_US: i64 = 1_000_000;
/// Memory that changed by this much asks for the list of processes at once.
const CHANGE: u64 = 1 << 20;
/// How the sentence begins that says that the list of processes failed after it was read.
const UNLISTED: &str = "The driver stopped telling which processes use it";
/// Costs are told this often.
const TELL_COSTS: Duration = Duration::from_secs(5);

/// A device and its schedule.
struct Watched {
    /// Its place in the source now; `None` while the source does not have it.
    place: Option<usize>,
    number: u32,
    uuid: String,
    calls: Vec<Paced>,
    trouble: Option<GpuError>,
    retry_at: Duration,
    limits: Vec<String>,
    facts: DeviceFacts,
    gauge: Reading,
    /// In use when the list of processes was last read.
    used_at_list: u64,
    /// The list was read after the last memory figure.
    is_list_new: bool,
    /// It is divided into instances, which are watched as devices of their own.
    has_mig: bool,
    /// The list was read before and now fails: what was listed is not told as of now.
    is_unlisted: bool,
    compute: Vec<GpuProcess>,
    others: Vec<GpuProcess>,
    /// The processes told last, by PID and start, and their peaks as told last.
    listed: Vec<(u32, u64)>,
    peaks: Vec<(u32, u64, u64)>,
    last_sample_us: i64,
    /// Up to when samples that were not taken are counted as lost.
    counted_to: Duration,
}

/// The state of the sampler.
pub(super) struct Engine {
    opener: Opener,
    source: Option<Box<dyn GpuSource>>,
    rates: Rates,
    /// Only these places of the driver's list; empty for all.
    wanted: Vec<usize>,
    devices: Vec<Watched>,
    trouble: Option<GpuError>,
    retry_at: Duration,
    anchor: Option<(Duration, i64)>,
    /// How far the wall clock is behind the counted one, since it was set back; 0 or less.
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

    /// Does what is due; returns what was seen.
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
        self.tell_events(clock);
        if !self.devices.is_empty() && self.devices.iter().all(|d| d.trouble.as_ref().is_some_and(GpuError::is_loss)) {
            self.reopen(clock);
        }
        if self.source.is_some() && clock.now() >= self.costs_at + TELL_COSTS {
            self.costs_at = clock.now();
            self.tell_costs();
        }
        std::mem::take(&mut self.out)
    }

    /// When something is due next, on the monotonic clock.
    pub(super) fn next_due(&self) -> Duration {
        if self.source.is_none() {
            return self.retry_at;
        }
        let due = |d: &Watched| match d.trouble {
            // A second at most: what is missing is counted while it is missing.
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
            // Set forward, or the machine slept: go along, the time between is a gap.
            self.anchor = Some((clock.now(), wall));
            self.lag_us = 0;
            if let Some(from) = self.devices.iter().map(|d| d.last_sample_us).max().filter(|t| *t > 0) {
                self.out.push(Record::Lost(Lost { d: None, n: 0, from, to: wall }));
            }
            (wall, format!("clock went on by {} s: set, or the machine slept", jump / 1_000_000))
        } else {
            // A picture whose time runs backward can not be drawn, so count on. Said once: the lag is expected from now on.
            self.lag_us = wall - counted;
            (counted, format!("clock was set by {} s; times here count on", jump / 1_000_000))
        };
        self.out.push(Record::Mark(MarkPoint { d: None, t, kind: MarkKind::Clock, text }));
    }

    fn open(&mut self, clock: &impl Clock) {
        match (self.opener)() {
            Ok(source) => {
                self.source = Some(source);
                self.find_devices(clock);
            }
            Err(error) => self.set_trouble(error, clock),
        }
    }

    fn reopen(&mut self, clock: &impl Clock) {
        if clock.now() < self.retry_at {
            return;
        }
        self.retry_at = clock.now() + RETRY;
        let Some(source) = &mut self.source else { return };
        if source.reopen().is_ok() {
            self.find_devices(clock);
        }
    }

    fn set_trouble(&mut self, error: GpuError, clock: &impl Clock) {
        self.retry_at = clock.now() + RETRY;
        if self.trouble.as_ref() != Some(&error) {
            let sentence = Some(error.to_string());
            self.out.push(Record::Trouble(Trouble { d: None, t: self.time_us(clock), sentence }));
            self.trouble = Some(error);
        }
    }

    /// Reads who is there; devices seen before keep their number by their UUID.
    fn find_devices(&mut self, clock: &impl Clock) {
        let Some(source) = &mut self.source else { return };
        let driver = source.driver();
        let list = match source.devices() {
            Ok(list) if !list.is_empty() => list,
            Ok(_) => return self.give_up(GpuError::NoDevices, clock),
            Err(error) => return self.give_up(error, clock),
        };
        if self.trouble.take().is_some() {
            self.out.push(Record::Trouble(Trouble { d: None, t: self.time_us(clock), sentence: None }));
        }
        let now = clock.now();
        for d in &mut self.devices {
            d.place = None;
        }
        let mut first_error = None;
        let count = list.len() as u64;
        for (place, gpu) in list.into_iter().enumerate() {
            if !self.wanted.is_empty() && !self.wanted.contains(&place) {
                continue;
            }
            let gpu = match gpu {
                Ok(gpu) => gpu,
                Err(error) => {
                    first_error = first_error.or(Some(error));
                    continue;
                }
            };
            let mut facts = vec![("UUID".to_owned(), gpu.uuid.clone())];
            let mut add = |key: &str, value: Option<String>| facts.extend(value.map(|v| (key.to_owned(), v)));
            add("PCI", gpu.pci);
            add("driver", driver.driver.clone());
            add("newest CUDA", driver.cuda.clone());
            add("part of", gpu.parent.clone());
            add("ECC", gpu.ecc.map(|on| if on { "on" } else { "off" }.to_owned()));
            let mut limits = Vec::new();
            if gpu.has_mig {
                limits
                    .push("This GPU is divided (MIG): watch its instances, which are listed as devices of their own.".to_owned());
            }
            if is_wsl() {
                limits.push("Windows manages the memory under WSL: the bytes of single processes are not told.".to_owned());
            }
            let number = match self.devices.iter().position(|d| d.uuid == gpu.uuid) {
                Some(at) => {
                    let d = &mut self.devices[at];
                    d.place = Some(place);
                    d.retry_at = now;
                    d.number
                }
                None => {
                    // The driver's order while nothing was lost; a number of its own for what came later.
                    let place_number = u32::try_from(place).unwrap_or(u32::MAX);
                    let taken = self.devices.iter().any(|d| d.number == place_number);
                    let next = self.devices.iter().map(|d| d.number + 1).max().unwrap_or(0);
                    let number = if taken { next } else { place_number };
                    self.devices.push(Watched {
                        place: Some(place),
                        number,
                        uuid: gpu.uuid.clone(),
                        calls: Call::DEVICE.iter().map(|&c| Paced::new(c, &self.rates, now)).collect(),
                        trouble: None,
                        retry_at: now,
                        limits: Vec::new(),
                        facts: DeviceFacts::default(),
                        gauge: Reading::default(),
                        used_at_list: 0,
                        is_list_new: false,
                        has_mig: gpu.has_mig,
                        is_unlisted: false,
                        compute: Vec::new(),
                        others: Vec::new(),
                        listed: Vec::new(),
                        peaks: Vec::new(),
                        last_sample_us: 0,
                        counted_to: now,
                    });
                    number
                }
            };
            if let Some(d) = self.devices.iter_mut().find(|d| d.number == number) {
                d.limits.clone_from(&limits);
                d.facts = DeviceFacts { device: number, uuid: gpu.uuid, name: gpu.name, total: d.facts.total, facts, limits };
                self.out.push(Record::Device(d.facts.clone()));
            }
        }
        if self.devices.is_empty() {
            let wanted: Vec<String> = self.wanted.iter().map(ToString::to_string).collect();
            let listed = crate::units::counted(count, "GPU", "GPUs");
            let none = || if wanted.is_empty() { GpuError::NoDevices } else { GpuError::NoSuchDevice(wanted.join(", "), listed) };
            self.give_up(first_error.unwrap_or_else(none), clock);
        }
    }

    fn give_up(&mut self, error: GpuError, clock: &impl Clock) {
        self.source = None;
        self.set_trouble(error, clock);
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
            // Late by whole periods: those samples were not taken.
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

    /// Makes one kind of call and tells what it saw.
    fn ask(&mut self, d: &mut Watched, place: usize, call: Call, clock: &impl Clock) -> Result<(), GpuError> {
        let time_us = self.time_us(clock);
        let Some(source) = &mut self.source else { return Ok(()) };
        match call {
            Call::Memory => {
                let mut m = source.memory(place)?;
                let changed = m.used.abs_diff(d.used_at_list) > CHANGE;
                let listing = d.calls.iter().find(|c| c.call == Call::Processes);
                let is_cheap = listing.is_some_and(|c| !c.cost().is_slowed && c.cost().mean_us < 2000.0);
                if changed && is_cheap && !d.is_list_new {
                    // Who it was is known only if the list is read now, and the figure again, so that both are of one instant.
                    if let Ok(list) = source.processes(place, ProcessKind::Compute) {
                        d.compute = list;
                        m = source.memory(place)?;
                        self.tell_processes(d, time_us);
                    }
                }
                if std::mem::take(&mut d.is_list_new) {
                    d.used_at_list = m.used;
                }
                d.facts.total = m.total;
                d.last_sample_us = time_us;
                self.out.push(Record::Memory(MemoryPoint {
                    d: d.number,
                    t: time_us,
                    total: m.total,
                    used: m.used,
                    driver: m.driver,
                }));
            }
            Call::Processes => {
                let list = source.processes(place, ProcessKind::Compute)?;
                if list.is_empty() && !d.compute.is_empty() {
                    // A device that is lost may answer with an empty list first: its processes have not ended.
                    source.memory(place)?;
                }
                d.compute = list;
                self.tell_processes(d, time_us);
            }
            Call::OtherProcesses => {
                let mut all = source.processes(place, ProcessKind::Graphics)?;
                if let Ok(more) = source.processes(place, ProcessKind::Mps) {
                    all.extend(more);
                }
                if d.others != all {
                    d.others = all;
                    if !d.is_unlisted {
                        self.tell_processes(d, time_us);
                    }
                }
            }
            Call::Peaks => {
                let told = d.listed.iter().filter_map(|&(pid, started)| Some((pid, started, source.lifetime_peak(place, pid)?)));
                let p: Vec<_> = told.collect();
                if !p.is_empty() && p != d.peaks {
                    d.peaks.clone_from(&p);
                    self.out.push(Record::Peaks(DevicePeaks { d: d.number, t: time_us, p }));
                }
            }
            Call::Busy => {
                let busy = source.busy(place)?;
                (d.gauge.busy, d.gauge.bandwidth, d.gauge.time_us) = (Some(busy.busy), Some(busy.bandwidth), time_us);
                self.out.push(Record::Gauge(DeviceGauge { d: d.number, g: d.gauge }));
            }
            Call::Climate => {
                let c = source.climate(place)?;
                let busy = (d.gauge.busy, d.gauge.bandwidth);
                d.gauge = Reading {
                    time_us,
                    busy: busy.0,
                    bandwidth: busy.1,
                    temperature: c.temperature,
                    power_mw: c.power_mw,
                    power_limit_mw: c.power_limit_mw,
                    clock_mhz: c.clock_mhz,
                    throttle: c.throttle,
                };
                if busy.0.is_none() {
                    self.out.push(Record::Gauge(DeviceGauge { d: d.number, g: d.gauge }));
                }
            }
            Call::Health => {
                let h = source.health(place)?;
                let mut facts = d.facts.clone();
                let mut set = |key: &str, value: Option<String>| {
                    facts.facts.retain(|(k, _)| k != key);
                    facts.facts.extend(value.map(|v| (key.to_owned(), v)));
                };
                set("uncorrected errors", h.uncorrected.map(|n| n.to_string()));
                set("replaced rows", h.remapped.map(|n| n.to_string()));
                set("rows wait for a reset", h.remap_pending.filter(|p| *p).map(|_| "yes".to_owned()));
                set("BAR1 window", h.bar1.map(|(total, _)| crate::units::Bytes(total).to_string()));
                if facts != d.facts {
                    d.facts = facts;
                    self.out.push(Record::Device(d.facts.clone()));
                }
            }
            // One set for all devices: asked once a round, not here.
            Call::Events => {}
        }
        Ok(())
    }

    /// What the driver reported by itself, for all devices.
    fn tell_events(&mut self, clock: &impl Clock) {
        let now = clock.now();
        if now < self.events.due {
            return;
        }
        self.events.due = now + self.events.period();
        let t = self.time_us(clock);
        let Some(source) = &mut self.source else { return };
        let events = source.events();
        self.events.took(clock.now().saturating_sub(now));
        for (place, event) in events {
            let text = match event {
                GpuEvent::Xid(xid) => format!("XID {xid}: {}", xid_text(xid)),
                GpuEvent::DoubleBitError => "memory error that could not be corrected".to_owned(),
                GpuEvent::MigChanged => "MIG instances changed".to_owned(),
            };
            let d = place.and_then(|p| self.devices.iter().find(|d| d.place == Some(p))).map(|d| d.number);
            self.out.push(Record::Mark(MarkPoint { d, t, kind: MarkKind::Device, text }));
            if event == GpuEvent::MigChanged {
                // The handles of the old instances are void: ask for all again.
                self.retry_at = now;
                self.reopen(clock);
                return;
            }
        }
    }

    /// Merges the lists by PID (a process in two lists is one process), looks new ones up, and tells the result.
    fn tell_processes(&mut self, d: &mut Watched, time_us: i64) {
        d.is_list_new = true;
        if std::mem::take(&mut d.is_unlisted) {
            self.out.push(Record::Unlisted(Trouble { d: Some(d.number), t: time_us, sentence: None }));
            d.limits.retain(|l| !l.starts_with(UNLISTED));
            d.facts.limits.clone_from(&d.limits);
            self.out.push(Record::Device(d.facts.clone()));
        }
        let mut merged: Vec<GpuProcess> = Vec::new();
        for p in d.compute.iter().chain(&d.others) {
            match merged.iter_mut().find(|m| m.pid == p.pid) {
                Some(m) => m.used = m.used.max(p.used),
                None => merged.push(*p),
            }
        }
        let mut list = Vec::with_capacity(merged.len());
        for p in &merged {
            let (started, facts) = self.lookup.look(p.pid);
            if let Some(facts) = facts {
                self.out.push(Record::Process(facts));
            }
            list.push((p.pid, started, p.used));
        }
        if merged.iter().any(|p| p.used.is_none()) {
            self.limit(
                d,
                "The driver does not tell the bytes of some processes here (MIG without permission, WSL or a virtual GPU).",
            );
        }
        d.listed = list.iter().map(|&(pid, started, _)| (pid, started)).collect();
        self.out.push(Record::Processes(ProcessList { d: d.number, t: time_us, p: list }));
    }

    fn limit(&mut self, d: &mut Watched, sentence: &str) {
        if !d.limits.iter().any(|l| l == sentence) {
            d.limits.push(sentence.to_owned());
            d.facts.limits.clone_from(&d.limits);
            self.out.push(Record::Device(d.facts.clone()));
        }
    }

    /// What a failed call means; true when the device is out of reach.
    fn failed(&mut self, d: &mut Watched, call: Call, error: GpuError, clock: &impl Clock) -> bool {
        if error == GpuError::NoData {
            return false;
        }
        if error.is_loss() || call == Call::Memory {
            // Without its memory there is nothing to draw: the device waits, whatever the reason.
            self.out.push(Record::Trouble(Trouble {
                d: Some(d.number),
                t: self.time_us(clock),
                sentence: Some(error.to_string()),
            }));
            d.retry_at = clock.now() + RETRY;
            d.counted_to = clock.now();
            d.trouble = Some(error);
            return true;
        }
        if call == Call::Processes && (!d.listed.is_empty() || d.is_unlisted) && !d.has_mig {
            // It could be read before: what is wrong came since, and what was listed no longer holds.
            let why = match &error {
                GpuError::NoPermission => "it answers that this user has no permission (error 4)".to_owned(),
                other => other.to_string().trim_end_matches('.').to_owned(),
            };
            let sentence = format!("{UNLISTED}: {why}.");
            if !std::mem::replace(&mut d.is_unlisted, true) {
                let t = self.time_us(clock);
                self.out.push(Record::Unlisted(Trouble { d: Some(d.number), t, sentence: Some(sentence.clone()) }));
            }
            self.limit(d, &sentence);
            if error.is_lasting() {
                d.calls.retain(|c| c.call != call);
                return true;
            }
            return false;
        }
        if call == Call::OtherProcesses && error == GpuError::NoPermission && !d.listed.is_empty() {
            // The list that matters was read: when it fails too, that says so.
            return false;
        }
        // The same code means that this user may not use the driver at all; here it gave everything but the list.
        let is_list = matches!(call, Call::Processes | Call::OtherProcesses);
        let sentence = match (is_list && error == GpuError::NoPermission, d.has_mig) {
            (true, true) => {
                "Its processes are listed with its MIG instances; for the whole GPU this user may not see them.".to_owned()
            }
            (true, false) => "This user may not see which processes use it.".to_owned(),
            (false, _) => error.to_string(),
        };
        self.limit(d, &sentence);
        if error.is_lasting() {
            d.calls.retain(|c| c.call != call);
            // The walk over the calls goes on by index: this one is gone, the next is asked in the next round.
            return true;
        }
        false
    }

    /// Counts the samples that a device out of reach owes, once a second, and at its return.
    fn count_lost(&mut self, d: &mut Watched, clock: &impl Clock, is_over: bool) {
        let since = clock.now().saturating_sub(d.counted_to);
        if d.last_sample_us == 0 || (since < COUNT_LOST && !is_over) {
            return;
        }
        let period = d.calls.iter().find(|c| c.call == Call::Memory).map_or(COUNT_LOST, Paced::period);
        let n = u32::try_from(since.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX);
        if n > 0 {
            d.counted_to += period * n;
            self.out.push(Record::Lost(Lost { d: Some(d.number), n: u64::from(n), from: 0, to: 0 }));
        }
    }

    fn try_again(&mut self, d: &mut Watched, place: usize, clock: &impl Clock) {
        d.retry_at = clock.now() + RETRY;
        let Some(source) = &mut self.source else { return };
        match source.memory(place) {
            Ok(_) => {
                self.count_lost(d, clock, true);
                d.trouble = None;
                for call in &mut d.calls {
                    call.due = clock.now();
                }
                let t = self.time_us(clock);
                if d.last_sample_us > 0 {
                    self.out.push(Record::Lost(Lost { d: Some(d.number), n: 0, from: d.last_sample_us, to: t }));
                }
                self.out.push(Record::Trouble(Trouble { d: Some(d.number), t, sentence: None }));
            }
            Err(error) if d.trouble.as_ref() != Some(&error) => {
                let t = self.time_us(clock);
                self.out.push(Record::Trouble(Trouble { d: Some(d.number), t, sentence: Some(error.to_string()) }));
                d.trouble = Some(error);
            }
            Err(_) => {}
        }
    }

    fn tell_costs(&mut self) {
        let Some(d) = self.devices.first() else { return };
        let calls = d.calls.iter().chain([&self.events]).map(|c| c.cost()).filter(|c| c.count > 0).collect();
        self.out.push(Record::Costs(Costs { calls, cpu: None }));
    }
}
