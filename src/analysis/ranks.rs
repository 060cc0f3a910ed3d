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

use super::oom::has_segments;
use super::{DeviceTables, Quantity};
use crate::model::{Cancelled, DeviceKind, Progress, Recording, WarningKind};

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
}

fn setting(recording: &Recording, name: &str) -> Option<u32> {
    let (_, value) = recording.devices.iter().flat_map(|d| &d.settings.raw).find(|(key, _)| key == name)?;
    value.trim_matches('"').parse().ok()
}

/// The rank that a recording tells itself: a trace's metadata.
#[must_use]
pub fn told(recording: &Recording) -> Option<u32> {
    setting(recording, "distributedInfo.rank")
}

/// The rows of one recording, one for each device that holds anything.
///
/// # Errors
/// [`Cancelled`].
pub fn rows(recording: &Recording, path: &Path, progress: &Progress) -> Result<Vec<RankRow>, Cancelled> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (told_rank, world_size) = (told(recording), setting(recording, "distributedInfo.world_size"));
    let mut rows = Vec::new();
    for (device_index, device) in recording.devices.iter().enumerate() {
        let is_accelerator = !matches!(device.id.kind, DeviceKind::Cpu | DeviceKind::Host);
        if !is_accelerator || (device.events.is_empty() && device.segments.is_empty()) {
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
            is_reserved_unknown: !has_segments(&tables),
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
        });
    }
    Ok(rows)
}

/// The rows of one recording without figures or curves: what [`by_job`] groups by. O(devices).
#[must_use]
pub fn identities(recording: &Recording, path: &Path) -> Vec<RankRow> {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (told_rank, world_size) = (told(recording), setting(recording, "distributedInfo.world_size"));
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
