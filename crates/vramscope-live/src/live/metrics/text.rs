//! The figures in Prometheus' text format: base units (bytes, seconds, ratios), `_total` for counters, stable names.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use vramscope_core::formats::session::{DeviceNow, History};
use vramscope_core::model::{Bands, HostPoint, ProcessTrack, TorchFigures};

/// Most processes of a device with their own series, most bytes first. One per process ever seen would fill a database.
const MOST_PROCESSES: usize = 32;
/// Most characters of a name.
const MOST_NAME: usize = 64;

/// PyTorch's figures of a process on a device.
const TORCH: [(&str, &str, fn(&TorchFigures) -> u64); 6] = [
    ("vramscope_torch_reserved_bytes", "Memory that PyTorch has reserved, as memory_stats tells.", |t| t.reserved),
    ("vramscope_torch_active_bytes", "Blocks until their memory can be used again.", |t| t.active),
    ("vramscope_torch_allocated_bytes", "Blocks until the program frees them.", |t| t.allocated),
    ("vramscope_torch_requested_bytes", "What the program asked for, of active blocks.", |t| t.requested),
    ("vramscope_torch_reserved_peak_bytes", "The most that was reserved since the program began or reset it.", |t| {
        t.reserved_peak
    }),
    ("vramscope_torch_allocated_peak_bytes", "The most that was allocated since the program began or reset it.", |t| {
        t.allocated_peak
    }),
];

/// Host memory of a process.
const HOST: [(&str, &str, fn(&HostPoint) -> Option<u64>); 3] = [
    (
        "vramscope_process_resident_bytes",
        "Host memory of the process by the kernel's count, pinned memory included, its workers not.",
        |h| h.resident,
    ),
    ("vramscope_process_pinned_bytes", "Host memory that PyTorch has pinned, in use or kept.", |h| h.pinned),
    ("vramscope_process_pinned_used_bytes", "The part of pinned memory that tensors use.", |h| h.pinned_used),
];

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Metrics in the order of their first use. The format requires that all series of a metric are together.
#[derive(Default)]
struct Page {
    order: Vec<&'static str>,
    metrics: BTreeMap<&'static str, String>,
}

impl Page {
    fn add(&mut self, name: &'static str, help: &str, labels: &[(&'static str, &str)], value: impl std::fmt::Display) {
        let text = self.metrics.entry(name).or_insert_with(|| {
            self.order.push(name);
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            format!("# HELP {name} {}\n# TYPE {name} {kind}\n", help.replace('\\', "\\\\").replace('\n', "\\n"))
        });
        text.push_str(name);
        let mut before = '{';
        for (key, value) in labels {
            let _ = write!(text, "{before}{key}=\"{}\"", escaped(value));
            before = ',';
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// Escapes a label value. Other control characters are allowed there.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn short(name: &str) -> String {
    name.chars().take(MOST_NAME).collect()
}

/// The text of all present figures. The cost depends on the present processes only.
pub fn write(history: &History) -> String {
    let mut page = Page::default();
    page.add("vramscope_build_info", "The version of vramscope that watches.", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    let mut told = HashSet::new();
    for device in history.now() {
        let number = device.number.to_string();
        let gpu: Labels<'_> = vec![("gpu", &number), ("uuid", &device.facts.uuid)];
        write_device(&mut page, &device, &gpu);
        write_processes(&mut page, &device, &gpu, &mut told);
    }
    page.order.iter().filter_map(|name| page.metrics.get(name).map(String::as_str)).collect()
}

fn write_device(page: &mut Page, device: &DeviceNow<'_>, gpu: &[(&'static str, &str)]) {
    let (facts, track) = (device.facts, device.track);
    let fact = |key: &str| facts.facts.iter().find(|(k, _)| k == key).map_or("", |(_, v)| v.as_str());
    let name = short(&facts.name);
    let info = [gpu, &[("name", name.as_str()), ("driver", fact("driver")), ("pci", fact("PCI"))]].concat();
    page.add("vramscope_gpu_info", "What the GPU is; always 1.", &info, 1);
    page.add("vramscope_gpu_up", "1 while the GPU can be read, else 0.", gpu, u8::from(track.trouble.is_none()));
    page.add("vramscope_gpu_lost_samples_total", "Readings of memory that were due and not taken or not kept.", gpu, track.lost);
    // Old figures are not valid while the GPU is unreachable.
    if track.trouble.is_some() {
        return;
    }
    if let Some(sample) = device.sample {
        let capacity = facts.total;
        page.add("vramscope_gpu_memory_capacity_bytes", "All memory of the card.", gpu, capacity);
        if let Some(bands) = sample.bands(capacity) {
            for (part, _, bytes) in Bands::PARTS {
                let labels = [gpu, &[("part", part)]].concat();
                page.add(
                    "vramscope_gpu_memory_bytes",
                    "The card, divided as on the Live page; the parts add up to its capacity.",
                    &labels,
                    bytes(&bands),
                );
            }
        }
        if let Some(used) = sample.used {
            page.add("vramscope_gpu_memory_used_bytes", "In use by everyone, the driver included.", gpu, used);
        }
        page.add(
            "vramscope_gpu_memory_spilled_bytes",
            "Reserved by PyTorch beyond what the card has: in host memory, at least this much.",
            gpu,
            sample.spilled(capacity),
        );
        page.add(
            "vramscope_gpu_sample_timestamp_seconds",
            "When memory was read last, in seconds since 1970.",
            gpu,
            sample.time_us as f64 / 1e6,
        );
    }
    if let Some((bytes, _)) = track.peak {
        page.add("vramscope_gpu_memory_peak_bytes", "The most in use since vramscope watches.", gpu, bytes);
    }
    let Some(now) = track.gauges.last() else { return };
    let ratio = |percent: u32| f64::from(percent) / 100.0;
    let mut gauge = |name, help, value: Option<f64>| value.map(|v| page.add(name, help, gpu, v));
    gauge("vramscope_gpu_busy_ratio", "Share of time in which some kernel ran.", now.busy.map(ratio));
    gauge(
        "vramscope_gpu_memory_busy_ratio",
        "Share of time in which memory was read or written: bandwidth, not occupancy.",
        now.bandwidth.map(ratio),
    );
    gauge("vramscope_gpu_temperature_celsius", "Temperature of the GPU.", now.temperature.map(f64::from));
    gauge("vramscope_gpu_power_watts", "Power.", now.power_mw.map(|p| f64::from(p) / 1000.0));
    gauge("vramscope_gpu_power_limit_watts", "The limit of power in force.", now.power_limit_mw.map(|p| f64::from(p) / 1000.0));
    gauge("vramscope_gpu_clock_hertz", "Clock of the multiprocessors.", now.clock_mhz.map(|c| f64::from(c) * 1e6));
    gauge(
        "vramscope_gpu_throttle_reasons",
        "Why the clocks are held back, as NVML's bits; 0 for nothing.",
        now.throttle.map(|t| t as f64),
    );
}

fn write_processes(page: &mut Page, device: &DeviceNow<'_>, gpu: &[(&'static str, &str)], told: &mut HashSet<u32>) {
    let last = |p: &ProcessTrack| p.points.last().copied().unwrap_or_default();
    let mut present: Vec<&ProcessTrack> = device.track.processes.iter().filter(|p| p.ended_us.is_none()).collect();
    // Processes with PyTorch figures come first, because they are the ones being watched.
    present.sort_by_key(|p| std::cmp::Reverse((p.has_helper, last(p).used, p.pid)));
    let count = present.len();
    page.add("vramscope_gpu_processes", "Processes on the GPU.", gpu, count);
    page.add(
        "vramscope_gpu_processes_untold",
        "Processes that are not told one by one, because only the largest are.",
        gpu,
        count.saturating_sub(MOST_PROCESSES),
    );
    let is_up = device.track.trouble.is_none();
    for process in present.iter().take(MOST_PROCESSES).filter(|_| is_up) {
        let (pid, name, now) = (process.pid.to_string(), short(&process.name), last(process));
        let rank = process.facts.iter().find(|(key, _)| key == "RANK").map(|(_, rank)| short(rank));
        let mut who: Labels<'_> = vec![("pid", &pid), ("name", &name)];
        if let Some(rank) = &rank {
            who.push(("rank", rank));
        }
        let labels = [gpu, &who].concat();
        if let Some(used) = now.used.filter(|_| device.track.unlisted_us.is_none()) {
            page.add(
                "vramscope_process_memory_bytes",
                "GPU memory of the process by the driver's count, its context included.",
                &labels,
                used,
            );
        }
        if let Some(torch) = now.torch.filter(|_| process.has_helper) {
            for (name, help, bytes) in TORCH {
                page.add(name, help, &labels, bytes(&torch));
            }
            page.add(
                "vramscope_torch_alloc_retries_total",
                "Requests that failed first and were tried again with an empty cache.",
                &labels,
                torch.retries,
            );
            page.add("vramscope_torch_ooms_total", "Out-of-memory errors.", &labels, torch.ooms);
        }
        // Host memory belongs to the process, on however many GPUs it is.
        if let (Some(host), true) = (process.host.last(), told.insert(process.pid)) {
            for (name, help, bytes) in HOST {
                if let Some(b) = bytes(host) {
                    page.add(name, help, &who, b);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::formats::session::{
        DeviceFacts, HostMemory, MemoryPoint, ProcessFacts, ProcessList, Record, TorchPoint, Trouble,
    };

    fn session(processes: u32) -> History {
        let mut h = History::new();
        h.add(Record::Device(DeviceFacts {
            uuid: "GPU-1".into(),
            name: "A \"card\"\\\n".into(),
            total: 1000,
            ..DeviceFacts::default()
        }));
        h.add(Record::Processes(ProcessList { d: 0, t: 1, p: (1..=processes).map(|p| (p, 1, Some(u64::from(p)))).collect() }));
        h.add(Record::Process(ProcessFacts { pid: 1, started: 1, name: "py\"thon\n".into(), ..ProcessFacts::default() }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 1_500_000, total: 1000, used: 600, driver: Some(100) }));
        h
    }

    #[test]
    fn labels_are_escaped_and_every_line_is_a_sample_or_a_comment() {
        let mut h = session(2);
        h.add(Record::Attached(vramscope_core::formats::session::Attached {
            t: 2,
            pid: 1,
            facts: vec![("RANK".into(), "3".into())],
        }));
        h.add(Record::Torch(TorchPoint {
            d: 0,
            t: 2,
            pid: 1,
            m: TorchFigures { reserved: 1200, allocated: 40, ooms: 2, ..TorchFigures::default() },
        }));
        h.add(Record::Host(HostMemory { t: 3, pid: 1, resident: Some(77), ..HostMemory::default() }));
        h.add(Record::Host(HostMemory { t: 3, pid: 1, pinned: Some(33), pinned_used: Some(11), ..HostMemory::default() }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 1_600_000, total: 1000, used: 600, driver: Some(100) }));
        let text = write(&h);
        assert!(text.contains(r#"name="A \"card\"\\\n""#), "{text}");
        let who = r#"pid="1",name="py\"thon\n",rank="3""#;
        for line in [
            &format!("vramscope_process_resident_bytes{{{who}}} 77"),
            &format!("vramscope_process_pinned_bytes{{{who}}} 33"),
            &format!("vramscope_torch_ooms_total{{gpu=\"0\",uuid=\"GPU-1\",{who}}} 2"),
            "vramscope_gpu_memory_spilled_bytes{gpu=\"0\",uuid=\"GPU-1\"} 300",
            "vramscope_gpu_sample_timestamp_seconds{gpu=\"0\",uuid=\"GPU-1\"} 1.6",
            "vramscope_gpu_memory_bytes{gpu=\"0\",uuid=\"GPU-1\",part=\"free\"} 400",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.lines().all(|l| l.starts_with("# ") || l.starts_with("vramscope_")), "{text}");
        let names: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(names.len(), names.iter().collect::<HashSet<_>>().len(), "a metric stands once");
    }

    #[test]
    fn processes_are_bounded_in_number_and_a_lost_gpu_tells_no_memory() {
        let mut h = session(100);
        let text = write(&h);
        assert_eq!(text.matches("\nvramscope_process_memory_bytes{").count(), MOST_PROCESSES);
        assert!(
            text.contains("vramscope_gpu_processes{gpu=\"0\",uuid=\"GPU-1\"} 100")
                && text.contains("untold{gpu=\"0\",uuid=\"GPU-1\"} 68"),
            "{text}"
        );
        assert!(text.contains("pid=\"100\"") && !text.contains("pid=\"5\""));
        h.add(Record::Trouble(Trouble { d: Some(0), t: 9, sentence: Some("gone".into()) }));
        let text = write(&h);
        assert!(text.contains("vramscope_gpu_up{gpu=\"0\",uuid=\"GPU-1\"} 0") && !text.contains("_bytes"), "{text}");
        assert!(write(&History::new()).contains("vramscope_build_info"));
    }
}
