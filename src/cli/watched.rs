//! A live session as text and figures, for `summary`.

use serde::Serialize;

use super::Table;
use vramscope_core::model::{Bands, DeviceRecording, LiveTrack, Sample};
use vramscope_core::units::{Bytes, SizeColumn, count, counted, time_of_day};

#[derive(Debug, Serialize)]
pub struct Watched {
    /// From the first sample to the last.
    pub seconds: f64,
    /// Total bytes of the device.
    pub total_bytes: u64,
    /// The most bytes in use by everyone.
    pub peak_used_bytes: u64,
    /// Time of that peak, in microseconds since the epoch.
    pub peak_time_us: i64,
    /// Who held the bytes at that peak.
    pub at_peak: Bands,
    /// Who held the bytes at the end.
    pub at_end: Bands,
    /// Every process seen, the largest first.
    pub processes: Vec<Process>,
    /// Exceeded limits that the user set, and failed requests of PyTorch.
    pub alarms: Vec<Alarm>,
    /// Samples that were not taken or not stored.
    pub lost: u64,
    /// Number of periods without samples.
    pub gaps: u64,
    /// Why the device could not be read at the end; `None` when it could.
    pub trouble: Option<String>,
    /// False when no figure was read; the figures above are then meaningless.
    pub is_readable: bool,
    /// What the driver cannot report.
    pub limits: Vec<String>,
}

/// A limit that was passed, or a failure.
#[derive(Debug, Serialize)]
pub struct Alarm {
    time_us: i64,
    text: String,
}

#[derive(Debug, Serialize)]
pub struct Process {
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) user: String,
    pub(super) container: Option<String>,
    pub(super) peak_bytes: Option<u64>,
    /// Growth from the first list of processes to the last. A process that appeared later has grown by all of its bytes.
    pub(super) grown_bytes: u64,
    /// PyTorch's peaks are its own. The driver's peak is since the process started.
    pub(super) peak_allocated_bytes: Option<u64>,
    pub(super) peak_reserved_bytes: Option<u64>,
    pub(super) lifetime_peak_bytes: Option<u64>,
    pub(super) has_pytorch_figures: bool,
}

/// The session of a device; `None` when the recording is no session.
pub fn watched(device: &DeviceRecording) -> Option<Watched> {
    let track: &LiveTrack = device.live.as_deref()?;
    let total = device.capacity.unwrap_or(0);
    let none = Sample::default();
    let (first, last) = (device.samples.first().unwrap_or(&none), device.samples.last().unwrap_or(&none));
    let peak = device.samples.iter().max_by_key(|s| (s.used, std::cmp::Reverse(s.time_us))).unwrap_or(&none);
    let told = vramscope_core::diagnose::watched::watched(device).unwrap_or_default();
    let grown =
        |pid: u32| told.processes.iter().find(|p| p.pid == pid).map_or(0, vramscope_core::diagnose::watched::Grower::grown);
    let mut processes: Vec<Process> = track
        .processes
        .iter()
        .map(|p| Process {
            pid: p.pid,
            command: p.command.clone(),
            user: p.user.clone(),
            container: p.container.clone(),
            peak_bytes: p.peak.map(|(bytes, _)| bytes),
            grown_bytes: grown(p.pid),
            peak_allocated_bytes: p.torch_peak.map(|t| t.0),
            peak_reserved_bytes: p.torch_peak.map(|t| t.1),
            lifetime_peak_bytes: p.lifetime_peak,
            has_pytorch_figures: p.points.iter().any(|point| point.torch.is_some()),
        })
        .collect();
    processes.sort_by_key(|p| std::cmp::Reverse(p.peak_bytes));
    Some(Watched {
        seconds: (last.time_us - first.time_us) as f64 / 1e6,
        total_bytes: total,
        peak_used_bytes: peak.used.unwrap_or(0),
        peak_time_us: peak.time_us,
        at_peak: peak.bands(total).unwrap_or_default(),
        at_end: last.bands(total).unwrap_or_default(),
        processes,
        alarms: told.alarms.into_iter().map(|m| Alarm { time_us: m.time_us, text: m.text.to_string() }).collect(),
        lost: track.lost,
        gaps: track.gaps.len() as u64,
        trouble: track.trouble.clone(),
        is_readable: !device.samples.is_empty(),
        limits: track.limits.clone(),
    })
}

impl Watched {
    /// The main sentence without the device's name: "used at most 8.95 GiB of 140.40 GiB in 19.3 s".
    pub fn sentence(&self) -> String {
        if !self.is_readable {
            return "memory not readable".to_owned();
        }
        format!("used at most {} of {} in {:.1} s", Bytes(self.peak_used_bytes), Bytes(self.total_bytes), self.seconds)
    }

    pub fn text(&self) -> String {
        let mut table = Table::new("lrr");
        table.row(["", &format!("at the peak, {} UTC", time_of_day(self.peak_time_us)), "at the end"]);
        let size = SizeColumn::of(Bands::PARTS.iter().flat_map(|(_, _, of)| [of(&self.at_peak), of(&self.at_end)]));
        for (_, name, of) in Bands::PARTS {
            let name = if name == "driver" { "driver and firmware" } else { name };
            let (peak, end) = (of(&self.at_peak), of(&self.at_end));
            if peak > 0 || end > 0 {
                table.row([format!("  {name}"), size.sized(peak), size.sized(end)]);
            }
        }
        let mut out = if self.is_readable { table.to_string() } else { String::new() };
        if let Some(sentence) = &self.trouble {
            out += &format!("  not readable at the end: {sentence}\n");
        }
        let mut processes = Table::new("rrrl");
        if !self.processes.is_empty() {
            processes.row(["  PID", "peak", "grew by", "command"]);
        }
        let size = SizeColumn::of(self.processes.iter().take(20).filter_map(|p| p.peak_bytes));
        for p in self.processes.iter().take(20) {
            let peak = p.peak_bytes.map_or_else(|| "not recorded".to_owned(), |b| size.sized(b));
            let helper = match (p.peak_allocated_bytes, p.peak_reserved_bytes) {
                (Some(a), Some(r)) => format!(" (PyTorch: at most {} allocated, {} reserved)", Bytes(a), Bytes(r)),
                _ => String::new(),
            };
            let grown = if p.peak_bytes.is_some() { size.sized(p.grown_bytes) } else { String::new() };
            processes.row([format!("  {}", p.pid), peak, grown, format!("{}{helper}", p.command)]);
        }
        out += &processes.to_string();
        if self.processes.len() > 20 {
            out += &format!("  and {} more\n", count(self.processes.len() as u64 - 20));
        }
        for alarm in &self.alarms {
            out += &format!("  {} UTC: {}\n", time_of_day(alarm.time_us), alarm.text);
        }
        if self.lost > 0 || self.gaps > 0 {
            out += &format!("  {} lost, {}\n", counted(self.lost, "sample", "samples"), counted(self.gaps, "gap", "gaps"));
        }
        for sentence in &self.limits {
            out += &format!("  note: {sentence}\n");
        }
        out
    }
}
