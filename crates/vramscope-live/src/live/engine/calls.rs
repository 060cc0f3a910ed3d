//! The calls to the driver and their records.

use super::{CHANGE, Clock, Engine, UNLISTED, Watched};
use crate::live::rates::Call;
use crate::live::source::{GpuError, GpuEvent, GpuProcess, ProcessKind, xid_text};
use vramscope_core::formats::session::{
    DeviceGauge, DevicePeaks, HostMemory, MarkPoint, MemoryPoint, ProcessList, Record, Trouble,
};
use vramscope_core::model::{MarkKind, Reading};

impl Engine {
    /// Makes one kind of call and records the result.
    pub(super) fn ask(&mut self, d: &mut Watched, place: usize, call: Call, clock: &impl Clock) -> Result<(), GpuError> {
        let time_us = self.time_us(clock);
        let Some(source) = &mut self.source else { return Ok(()) };
        match call {
            Call::Memory => {
                let mut m = source.memory(place)?;
                let changed = m.used.abs_diff(d.used_at_list) > CHANGE;
                let listing = d.calls.iter().find(|c| c.call == Call::Processes);
                let is_cheap = listing.is_some_and(|c| !c.cost().is_slowed && c.cost().mean_us < 2000.0);
                if changed && is_cheap && !d.is_list_new {
                    // The process list is read now and memory again, so that both are of one instant and show who took the memory.
                    if let Ok(list) = source.processes(place, ProcessKind::Compute) {
                        d.compute = list;
                        m = source.memory(place)?;
                        self.report_processes(d, time_us);
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
                    // A lost device may first answer with an empty list, although its processes run. Reading memory detects it.
                    source.memory(place)?;
                }
                d.compute = list;
                self.report_processes(d, time_us);
            }
            Call::OtherProcesses => {
                let mut all = source.processes(place, ProcessKind::Graphics)?;
                if let Ok(more) = source.processes(place, ProcessKind::Mps) {
                    all.extend(more);
                }
                if d.others != all {
                    d.others = all;
                    if !d.is_unlisted {
                        self.report_processes(d, time_us);
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
                let Reading { busy, bandwidth, .. } = d.gauge;
                d.gauge = Reading { time_us, busy, bandwidth, ..source.climate(place)? };
                if busy.is_none() {
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
                set("BAR1 window", h.bar1.map(|(total, _)| vramscope_core::units::Bytes(total).to_string()));
                if facts != d.facts {
                    d.facts = facts;
                    self.out.push(Record::Device(d.facts.clone()));
                }
            }
            // There is one event set for all devices, which is read once per round elsewhere.
            Call::Events => {}
        }
        Ok(())
    }

    /// Records the driver's events of all devices.
    pub(super) fn report_events(&mut self, clock: &impl Clock) {
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
                // The handles of the old instances are invalid, so all devices are opened again.
                self.retry_at = now;
                self.reopen(clock);
                return;
            }
        }
    }

    /// Merges the lists by PID (a process may be in two), looks up new processes, and records the result.
    fn report_processes(&mut self, d: &mut Watched, time_us: i64) {
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
        let mut hosts = Vec::new();
        for p in &merged {
            let (started, facts) = self.lookup.look(p.pid);
            if let Some(facts) = facts {
                self.out.push(Record::Process(facts));
            }
            list.push((p.pid, started, p.used));
            hosts.extend(self.lookup.resident(p.pid).map(|resident| (p.pid, resident)));
        }
        if merged.iter().any(|p| p.used.is_none()) {
            self.limit(
                d,
                "The driver does not tell the bytes of some processes here (MIG without permission, WSL or a virtual GPU).",
            );
        }
        d.listed = list.iter().map(|&(pid, started, _)| (pid, started)).collect();
        self.out.push(Record::Processes(ProcessList { d: d.number, t: time_us, p: list }));
        // After the list, because the history only knows a new process from then on.
        for (pid, resident) in hosts {
            self.out.push(Record::Host(HostMemory { t: time_us, pid, resident: Some(resident), ..HostMemory::default() }));
        }
    }

    pub(super) fn limit(&mut self, d: &mut Watched, sentence: &str) {
        if !d.limits.iter().any(|l| l == sentence) {
            d.limits.push(sentence.to_owned());
            d.facts.limits.clone_from(&d.limits);
            self.out.push(Record::Device(d.facts.clone()));
        }
    }
}
