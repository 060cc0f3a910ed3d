//! Ranks: the recordings of one job side by side. They are read a few at a time and kept as a row and a small curve each.

mod assign;
mod jobs;
mod names;
mod overview;
mod partitions;
mod reading;

use std::path::{Path, PathBuf};

pub use jobs::{ALONE, Job, beside, by_job, headline, likely, sort};
pub use names::{rank_of_name, ranks_of_names};
pub use overview::{Division, OUTLIER_SHARE, Overview, name_among, overview};
pub use partitions::{Partition, is_job_name, job_of_file, partitions};
pub use reading::{READ_BUDGET, read_all};

use crate::diagnose::oom::knows_reserved;
use crate::formats::about::AboutPage;
use crate::model::{Cancelled, DeviceKind, DeviceRecording, Progress, Recording, StatsKind};
use crate::tables::{DeviceTables, Quantity};
use crate::units::Bytes;

/// Points per curve of a rank.
pub const COLUMNS: usize = 96;

/// What stays in memory of one device of one file. About 2 KB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRow {
    /// Path of the recording.
    pub path: PathBuf,
    /// Name of the file without its folder.
    pub file: String,
    /// The rank in the recording itself (a trace's metadata).
    pub told_rank: Option<u32>,
    /// Its rank, set by [`by_job`]; `None` before that or if unknown.
    pub rank: Option<u32>,
    /// Number of processes of its job, if a trace's metadata contain it.
    pub world_size: Option<u32>,
    /// The run that wrote it, as the page of `vramscope run --at-oom` beside it tells. Two runs may share a folder.
    pub run: Option<String>,
    /// Device ordinal in the process.
    pub device: i32,
    /// Index of the device in the recording.
    pub device_index: usize,
    /// Number of events of the device.
    pub events: usize,
    /// Highest reserved bytes; 0 if [`is_reserved_unknown`](Self::is_reserved_unknown).
    pub peak_reserved: u64,
    /// True if the file has no segments: reserved bytes are unknown, and their fields are 0.
    pub is_reserved_unknown: bool,
    /// Highest active bytes over all events.
    pub peak_active: u64,
    /// Reserved bytes after the last event.
    pub end_reserved: u64,
    /// Active bytes after the last event.
    pub end_active: u64,
    /// Bytes of the device, if the file contains them.
    pub capacity: Option<u64>,
    /// Number of out-of-memory events.
    pub ooms: usize,
    /// Time of the first one, in microseconds since the epoch; `None` without times.
    pub first_oom_us: Option<i64>,
    /// The bytes that the first one requested.
    pub first_oom_bytes: u64,
    /// The file is truncated: the figures are those of the part that was read.
    pub is_cut_short: bool,
    /// The file has not been read yet: the row reserves its place, without figures.
    pub is_pending: bool,
    /// Highest reserved bytes in each of [`COLUMNS`] equal ranges of events; empty without events.
    pub reserved: Vec<u64>,
    /// Highest active bytes in the same ranges.
    pub active: Vec<u64>,
    /// The file contains only PyTorch's counters, which give the figures.
    pub is_counters: bool,
    /// PyTorch's counters of this rank, if a file of them is beside the recording.
    pub counted: Option<Counted>,
}

/// PyTorch's own counters of a rank: `memory_stats()` as JSON, in a file beside its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Name of the file of counters.
    pub file: String,
    /// `reserved_bytes.all.peak`, bytes.
    pub peak_reserved: u64,
    /// `active_bytes.all.peak`, bytes.
    pub peak_active: u64,
    /// `num_ooms`: requests that failed.
    pub ooms: usize,
}

impl RankRow {
    fn of_file(path: &Path) -> Self {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        RankRow { path: path.to_path_buf(), file, ..RankRow::default() }
    }

    /// Adds the run that the page beside the recording tells. Reads that page.
    fn of_its_run(self) -> Self {
        let page = AboutPage::beside(&self.path);
        let run = page.and_then(|page| page.0["run"].as_str().filter(|run| !run.is_empty()).map(str::to_owned));
        RankRow { run, ..self }
    }

    /// Short text about the counters beside the recording; `None` without any.
    pub fn counters_text(&self) -> Option<String> {
        let counted = self.counted.as_ref()?;
        Some(match counted.peak_reserved > self.peak_reserved {
            true => format!("counters: {} reserved at the peak", Bytes(counted.peak_reserved)),
            false => "counters beside it".to_owned(),
        })
    }
}

fn counter_rows(recording: &Recording, path: &Path) -> Vec<RankRow> {
    let sets = recording.devices.iter().zip(&recording.stats).enumerate();
    let of_device = sets.filter(|(_, (_, (_, stats)))| stats.kind != StatsKind::Host);
    of_device
        .map(|(device_index, (device, (_, stats)))| {
            let get = |key: &str| stats.get(key).map_or(0, |c| c.value);
            RankRow {
                device: device.id.index,
                device_index,
                peak_reserved: get("reserved_bytes.all.peak").max(get("reserved_bytes.all.current")),
                peak_active: get("active_bytes.all.peak").max(get("active_bytes.all.current")),
                end_reserved: get("reserved_bytes.all.current"),
                end_active: get("active_bytes.all.current"),
                ooms: get("num_ooms") as usize,
                is_counters: true,
                ..RankRow::of_file(path)
            }
        })
        .collect()
}

/// Attaches counters to the recording with the same folder and rank. Counters without a recording stay separate rows.
fn lay_counters_beside(rows: &mut Vec<RankRow>) {
    let (counters, mut others): (Vec<RankRow>, Vec<RankRow>) = std::mem::take(rows).into_iter().partition(|r| r.is_counters);
    for row in counters {
        // With a single recording, counters without a rank can only belong to it.
        let is_only = others.len() == 1;
        let of_rank = |r: &&mut RankRow| {
            r.path.parent() == row.path.parent() && r.counted.is_none() && (is_only || (row.rank.is_some() && r.rank == row.rank))
        };
        match others.iter_mut().find(of_rank) {
            Some(beside) => {
                let (peak_reserved, peak_active) = (row.peak_reserved, row.peak_active);
                beside.counted = Some(Counted { file: row.file, peak_reserved, peak_active, ooms: row.ooms });
            }
            None => rows.push(row),
        }
    }
    rows.append(&mut others);
}

fn setting(recording: &Recording, name: &str) -> Option<u32> {
    let (_, value) = recording.devices.iter().flat_map(|d| &d.settings.raw).find(|(key, _)| key == name)?;
    value.trim_matches('"').parse().ok()
}

/// The rank that a recording's file contains, as traces do in their metadata.
pub fn rank_in_file(recording: &Recording) -> Option<u32> {
    setting(recording, "distributedInfo.rank")
}

/// The rows of one recording, one for each accelerator with events or blocks.
pub fn rows(recording: &Recording, path: &Path, progress: &Progress) -> Result<Vec<RankRow>, Cancelled> {
    if recording.has_only_counters() {
        return Ok(counter_rows(recording, path));
    }
    let mut rows = Vec::new();
    for row in identities(recording, path) {
        let device = &recording.devices[row.device_index];
        if !device.has_blocks() {
            continue;
        }
        let tables = DeviceTables::build(device, progress)?;
        let n = device.events.len() as u64;
        let bounds: Vec<u32> = (0..=COLUMNS as u64).map(|i| (n * i / COLUMNS as u64) as u32).collect();
        let curve = |q| -> Vec<u64> {
            let cells = if n == 0 { Vec::new() } else { tables.curves.columns(device, &tables.lifetimes, q, &bounds) };
            cells.iter().map(|c| c.max).collect()
        };
        let ooms = device.events.ooms();
        let first = ooms.first().map(|&e| e as usize);
        rows.push(RankRow {
            events: device.events.len(),
            peak_reserved: tables.curves.peak(Quantity::Reserved).0,
            is_reserved_unknown: !knows_reserved(&tables),
            peak_active: tables.curves.peak(Quantity::Active).0,
            end_reserved: tables.curves.end(Quantity::Reserved),
            end_active: tables.curves.end(Quantity::Active),
            capacity: device.capacity,
            ooms: ooms.len(),
            first_oom_us: first.filter(|_| device.events.has_time).map(|e| device.events.time_us[e]),
            first_oom_bytes: first.map_or(0, |e| device.events.size[e]),
            is_cut_short: recording.report.truncated().is_some(),
            reserved: curve(Quantity::Reserved),
            active: curve(Quantity::Active),
            ..row
        });
    }
    Ok(rows)
}

/// The rows of one recording without figures or curves, as far as [`by_job`] needs them. O(devices).
pub fn identities(recording: &Recording, path: &Path) -> Vec<RankRow> {
    let (told_rank, world_size) = (rank_in_file(recording), setting(recording, "distributedInfo.world_size"));
    let of_file = RankRow::of_file(path).of_its_run();
    let is_accelerator = |kind| !matches!(kind, DeviceKind::Cpu | DeviceKind::Host);
    let devices = recording.devices.iter().enumerate().filter(|(_, d)| is_accelerator(d.id.kind));
    let row = |(device_index, device): (usize, &DeviceRecording)| RankRow {
        told_rank,
        world_size: told_rank.and(world_size),
        device: device.id.index,
        device_index,
        ..of_file.clone()
    };
    devices.map(row).collect()
}

/// The row of a file that has not been read yet.
pub fn pending(path: &Path) -> RankRow {
    RankRow { is_pending: true, ..RankRow::of_file(path) }
}
