//! Ranks: the recordings of one job side by side, read a few at a time, kept as a row and a small curve each.

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
pub use partitions::{Partition, job_of_file, partitions};
pub use reading::{READ_BUDGET, read_all};

use crate::diagnose::oom::knows_reserved;
use crate::model::{Cancelled, DeviceKind, Progress, Recording, StatsKind, WarningKind};
use crate::tables::{DeviceTables, Quantity};
use crate::units::Bytes;

/// Points of a rank's curve.
pub const COLUMNS: usize = 96;

/// One device of one file: what stays in memory of a rank. About 2 KB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRow {
    /// The file.
    pub path: PathBuf,
    /// Its name.
    pub file: String,
    /// The rank that the recording itself tells: a trace's metadata.
    pub told_rank: Option<u32>,
    /// Its rank among the others, as [`by_job`] decides; `None` before.
    pub rank: Option<u32>,
    /// Processes of its job, where a trace's metadata tell.
    pub world_size: Option<u32>,
    /// The number the process knew the device by.
    pub device: i32,
    /// Where the device stands in the recording.
    pub device_index: usize,
    /// Events of the trace.
    pub events: usize,
    /// Highest reserved bytes.
    pub peak_reserved: u64,
    /// True where the file has no segments: nothing is known of reserved bytes, and their fields are 0.
    pub is_reserved_unknown: bool,
    /// Highest active bytes.
    pub peak_active: u64,
    /// Reserved bytes after the last event.
    pub end_reserved: u64,
    /// Active bytes after the last event.
    pub end_active: u64,
    /// Bytes of the device, where the file tells.
    pub capacity: Option<u64>,
    /// Out-of-memory events.
    pub ooms: usize,
    /// When the first of them was, in microseconds since 1970, where events have times.
    pub first_oom_us: Option<i64>,
    /// The bytes that the first of them asked for.
    pub first_oom_bytes: u64,
    /// The file ends before its end: figures are of what could be read.
    pub is_cut_short: bool,
    /// The file was not read yet: the row keeps its place, and has no figures.
    pub is_pending: bool,
    /// Highest reserved bytes in each of [`COLUMNS`] equal runs of events; empty without events.
    pub reserved: Vec<u64>,
    /// Highest active bytes, likewise.
    pub active: Vec<u64>,
    /// The file has PyTorch's counters alone: figures are what those say.
    pub is_counters: bool,
    /// What PyTorch's counters of this rank say, where a file of them stands beside the recording.
    pub counted: Option<Counted>,
}

/// PyTorch's own counters of a rank: `memory_stats()` as JSON, beside its recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The file's name.
    pub file: String,
    /// Its `reserved_bytes.all.peak`.
    pub peak_reserved: u64,
    /// Its `active_bytes.all.peak`.
    pub peak_active: u64,
    /// Its `num_ooms`.
    pub ooms: usize,
}

impl RankRow {
    /// What the counters beside the recording say, in a few words; `None` without any.
    #[must_use]
    pub fn counters_text(&self) -> Option<String> {
        let counted = self.counted.as_ref()?;
        Some(match counted.peak_reserved > self.peak_reserved {
            true => format!("counters: {} reserved at the peak", Bytes(counted.peak_reserved)),
            false => "counters beside it".to_owned(),
        })
    }
}

/// The rows of a file of counters.
fn counter_rows(recording: &Recording, path: &Path) -> Vec<RankRow> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sets = recording.devices.iter().zip(&recording.stats).enumerate();
    let of_device = sets.filter(|(_, (_, (_, stats)))| stats.kind != StatsKind::Host);
    of_device
        .map(|(device_index, (device, (_, stats)))| {
            let get = |key: &str| stats.get(key).map_or(0, |c| c.value);
            RankRow {
                path: path.to_path_buf(),
                file: file.clone(),
                device: device.id.index,
                device_index,
                peak_reserved: get("reserved_bytes.all.peak").max(get("reserved_bytes.all.current")),
                peak_active: get("active_bytes.all.peak").max(get("active_bytes.all.current")),
                end_reserved: get("reserved_bytes.all.current"),
                end_active: get("active_bytes.all.current"),
                ooms: get("num_ooms") as usize,
                is_counters: true,
                ..RankRow::default()
            }
        })
        .collect()
}

/// Lays counters beside the recordings of their rank: in the same folder, of the same rank by their names. Those of which there is no
/// recording stay rows of their own.
fn lay_counters_beside(rows: &mut Vec<RankRow>) {
    let (counters, mut others): (Vec<RankRow>, Vec<RankRow>) = std::mem::take(rows).into_iter().partition(|r| r.is_counters);
    for row in counters {
        // Of one process a file without a rank of its own beside the only recording is as clear.
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

/// The rank that a recording's own file states, as traces do in their metadata.
#[must_use]
pub fn rank_in_file(recording: &Recording) -> Option<u32> {
    setting(recording, "distributedInfo.rank")
}

/// The rows of one recording, one for each device that holds anything.
///
/// # Errors
/// [`Cancelled`].
pub fn rows(recording: &Recording, path: &Path, progress: &Progress) -> Result<Vec<RankRow>, Cancelled> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (told_rank, world_size) = (rank_in_file(recording), setting(recording, "distributedInfo.world_size"));
    if recording.has_only_counters() {
        return Ok(counter_rows(recording, path));
    }
    let mut rows = Vec::new();
    for (device_index, device) in recording.devices.iter().enumerate() {
        let is_accelerator = !matches!(device.id.kind, DeviceKind::Cpu | DeviceKind::Host);
        if !is_accelerator || !device.has_blocks() {
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
            path: path.to_path_buf(),
            told_rank,
            rank: None,
            world_size: told_rank.and(world_size),
            file: file.clone(),
            device: device.id.index,
            device_index,
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
            is_pending: false,
            is_cut_short: recording.report.warnings.iter().any(|w| w.kind == WarningKind::Truncated),
            reserved: curve(Quantity::Reserved),
            active: curve(Quantity::Active),
            is_counters: false,
            counted: None,
        });
    }
    Ok(rows)
}

/// The rows of one recording without figures or curves: what [`by_job`] groups by. O(devices).
#[must_use]
pub fn identities(recording: &Recording, path: &Path) -> Vec<RankRow> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (told_rank, world_size) = (rank_in_file(recording), setting(recording, "distributedInfo.world_size"));
    let is_accelerator = |kind| !matches!(kind, DeviceKind::Cpu | DeviceKind::Host);
    let devices = recording.devices.iter().enumerate().filter(|(_, d)| is_accelerator(d.id.kind));
    devices
        .map(|(device_index, device)| RankRow {
            path: path.to_path_buf(),
            told_rank,
            world_size: told_rank.and(world_size),
            file: file.clone(),
            device: device.id.index,
            device_index,
            ..RankRow::default()
        })
        .collect()
}

/// The place of a file that was not read yet.
#[must_use]
pub fn pending(path: &Path) -> RankRow {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    RankRow { path: path.to_path_buf(), file, is_pending: true, ..RankRow::default() }
}
