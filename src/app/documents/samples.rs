//! The bundled recordings, and the line that the welcome page shows for a recording.

use std::path::PathBuf;

use crate::app::data::device::DeviceData;
use crate::app::settings::Recent;
use vramscope_core::model::{self, DeviceRecording, LiveTrack, Progress};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, counted};

/// A recording bundled with the program. It opens without a GPU, Python or a file.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub name: &'static str,
    pub sentence: &'static str,
    pub bytes: &'static [u8],
}

impl Sample {
    /// A GPU watched over time.
    pub fn is_watch(&self) -> bool {
        self.name.ends_with(".vramscope")
    }
}

pub fn all() -> Vec<Sample> {
    macro_rules! sample {
        ($name:literal, $sentence:literal) => {
            Sample { name: $name, sentence: $sentence, bytes: include_bytes!(concat!("../../../sample_snapshots/", $name)) }
        };
    }
    vec![
        sample!("fragment_oom.pickle", "500 MiB did not fit into 610 MiB of holes"),
        sample!("serve_oom.pickle.gz", "3.46 MiB did not fit into 36 MiB of holes"),
        sample!("kv_decode_oom.pickle.gz", "A cache that grows by copying, until nothing fits"),
        sample!("expandable_oom.pickle", "Expandable segments, and a request beyond the cap"),
        sample!("leak.pickle", "Losses kept with their graph: grows with every step"),
        sample!("gpt_train.pickle", "Four steps of a small GPT, healthy"),
        sample!("cuda_graph.pickle", "A CUDA graph and its private pool"),
        sample!("multi_stream.pickle", "Freed, but waiting for another stream"),
        sample!("two_gpus.pickle", "One process on two devices"),
        sample!("live.vramscope", "A GPU watched while two programs ran on it"),
    ]
}

/// Reads every bundled recording for the welcome page. Those that cannot be read get no line.
pub fn describe_all(samples: &[Sample], progress: &Progress) -> Vec<Recent> {
    samples
        .iter()
        .map(|s| {
            let read = || -> Option<Recent> {
                let recording = std::sync::Arc::new(vramscope_core::formats::read(s.bytes, s.name, progress).ok()?);
                let data = crate::app::data::device::prepare(&recording, recording.busiest_device()?, progress).ok()?;
                Some(describe(PathBuf::new(), &data))
            };
            read().unwrap_or_default()
        })
        .collect()
}

const POINTS: usize = 96;

/// The welcome page's line for a recording.
pub fn describe(path: PathBuf, data: &DeviceData) -> Recent {
    let device = data.device();
    if let Some(live) = device.live.as_deref().filter(|_| device.events.is_empty() && !device.samples.is_empty()) {
        return describe_watch(path, device, live);
    }
    let tables = &data.tables;
    let n = device.events.len() as u64;
    let bounds: Vec<u32> = (0..=POINTS as u64).map(|i| (n * i / POINTS as u64) as u32).collect();
    let column = |q| tables.curves.columns(device, &tables.lifetimes, q, &bounds).iter().map(|c| c.max).collect();
    let counters = data.recording.stats.get(data.index).filter(|_| data.recording.has_only_counters());
    let counter = |key: &str| counters.and_then(|(_, stats)| stats.get(key)).map_or(0, |c| c.value);
    let peak_reserved = tables.curves.peak(Quantity::Reserved).0.max(counter("reserved_bytes.all.peak"));
    let sentence = match data.last_oom() {
        _ if counters.is_some() => {
            format!("PyTorch's counters: {} of tensors at the peak", Bytes(counter("allocated_bytes.all.peak")))
        }
        Some(e) => format!("A request for {} failed", Bytes(device.events.size[e as usize])),
        None => {
            let allocations = counted(tables.lifetimes.len() as u64, "allocation", "allocations");
            format!("{} in use at the peak, {allocations}", Bytes(tables.curves.peak(Quantity::Active).0))
        }
    };
    Recent {
        path,
        peak_reserved,
        events: n,
        is_watch: false,
        has_oom: !data.ooms.is_empty(),
        sentence,
        finding: String::new(),
        reserved: column(Quantity::Reserved),
        requested: column(Quantity::Requested),
    }
}

/// The line for a live recording without events: its curves are the card's used bytes and PyTorch's allocated bytes.
fn describe_watch(path: PathBuf, device: &DeviceRecording, live: &LiveTrack) -> Recent {
    let samples = &device.samples;
    let part =
        |i: usize| &samples[samples.len() * i / POINTS..(samples.len() * (i + 1) / POINTS).max(samples.len() * i / POINTS + 1)];
    let column = |bytes: fn(&model::Sample) -> Option<u64>| {
        (0..POINTS).map(|i| part(i).iter().filter_map(bytes).max().unwrap_or(0)).collect()
    };
    let peak = samples.iter().filter_map(|s| s.used).max().unwrap_or(0);
    let of = device.capacity.map_or_else(String::new, |capacity| format!(" of {}", Bytes(capacity)));
    Recent {
        path,
        peak_reserved: peak,
        is_watch: true,
        sentence: format!("{}{of} in use at most, {}", Bytes(peak), counted(live.processes.len() as u64, "program", "programs")),
        reserved: column(|s| s.used),
        requested: column(|s| s.allocated),
        ..Recent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_opens_and_has_a_line() {
        let samples = all();
        let lines = describe_all(&samples, &Progress::new());
        for (sample, line) in samples.iter().zip(lines) {
            assert!((line.events > 0 || sample.is_watch()) && line.peak_reserved > 0, "{}", sample.name);
            assert_eq!(line.is_watch, sample.is_watch(), "{}", sample.name);
            assert_eq!(line.reserved.len(), POINTS, "{}", sample.name);
            assert_eq!(line.has_oom, sample.name.contains("oom"), "{}", sample.name);
        }
    }
}
