//! Ranks: the recordings of one job side by side, read a few at a time, kept as a row and a small curve each.

mod jobs;
mod names;
mod partitions;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

pub use jobs::{ALONE, Job, by_job, headline};
pub use names::{rank_of_name, ranks_of_names};
pub use partitions::{Partition, job_of_file, partitions};

use super::oom::has_segments;
use super::{DeviceTables, Quantity};
use crate::model::{Cancelled, DeviceKind, Progress, Recording, WarningKind};
use crate::units::{Bytes, counted};

/// Points of a rank's curve.
pub const COLUMNS: usize = 96;

/// A rank's peak is an outlier when it is further than this share of the median from the median.
pub const OUTLIER_SHARE: f64 = 0.10;

/// One device of one file: what stays in memory of a rank. About 2 KB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRow {
    /// The file.
    pub path: PathBuf,
    /// Its name.
    pub file: String,
    /// Its rank: from the trace's own metadata, else from the file's name, else from the device.
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
    let (rank, world_size) = (told(recording), setting(recording, "distributedInfo.world_size"));
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
            rank: rank.or_else(|| rank_of_name(&file)),
            world_size: rank.and(world_size),
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
    let (rank, world_size) = (told(recording), setting(recording, "distributedInfo.world_size"));
    let is_accelerator = |kind| !matches!(kind, DeviceKind::Cpu | DeviceKind::Host);
    let devices = recording.devices.iter().enumerate().filter(|(_, d)| is_accelerator(d.id.kind));
    devices
        .map(|(device_index, device)| RankRow {
            path: path.to_path_buf(),
            rank: rank.or_else(|| rank_of_name(&file)),
            world_size: rank.and(world_size),
            file: file.clone(),
            device: device.id.index,
            device_index,
            ..RankRow::default()
        })
        .collect()
}

/// The place of a file that was not read yet, at the rank that its name tells.
#[must_use]
pub fn pending(path: &Path) -> RankRow {
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    RankRow { path: path.to_path_buf(), rank: rank_of_name(&file), file, is_pending: true, ..RankRow::default() }
}

/// What the rows say together. Cheap: recomputed whenever a row arrives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Median of the peaks of reserved memory.
    pub median_peak: u64,
    /// Rows whose peak is further than [`OUTLIER_SHARE`] from the median.
    pub outliers: Vec<usize>,
    /// The row that ran out of memory first: by time where all that failed have times, else the lowest rank that failed.
    pub first_oom: Option<usize>,
    /// True when `first_oom` follows from times.
    pub is_first_by_time: bool,
    /// Rows that ran out of memory.
    pub failed: usize,
    /// The row with the highest peak.
    pub highest: Option<usize>,
    /// The answer in one sentence.
    pub sentence: String,
}

/// Puts rows in order: by rank (unknown last), then file, then device. Where no file name tells a rank and no two rows are of the
/// same device, the device's number is the rank: a snapshot of each local rank.
pub fn sort(rows: &mut [RankRow]) {
    let mut devices: Vec<i32> = rows.iter().map(|r| r.device).collect();
    devices.sort_unstable();
    devices.dedup();
    if rows.iter().all(|r| r.rank.is_none()) && devices.len() == rows.len() {
        for row in rows.iter_mut() {
            row.rank = u32::try_from(row.device).ok();
        }
    }
    rows.sort_by(|a, b| (a.rank.is_none(), a.rank, &a.file, a.device).cmp(&(b.rank.is_none(), b.rank, &b.file, b.device)));
}

/// What sorted rows say together. Rows that are pending say nothing.
#[must_use]
pub fn overview(rows: &[RankRow]) -> Overview {
    let tells = |r: &RankRow| !r.is_pending && !r.is_reserved_unknown;
    let mut peaks: Vec<u64> = rows.iter().filter(|r| tells(r)).map(|r| r.peak_reserved).collect();
    peaks.sort_unstable();
    if rows.iter().all(|r| r.is_pending) {
        return Overview::default();
    }
    // Without any peak there is no median, and nothing is away from it.
    let at = |i: usize| peaks.get(i).copied().unwrap_or(0);
    let (low, high) = (at(peaks.len().saturating_sub(1) / 2), at(peaks.len() / 2));
    // Of an even count the mean of the middle two.
    let median = low.midpoint(high);
    let away = |peak: u64| peak.abs_diff(median) as f64 / median.max(1) as f64;
    let is_outlier = |r: &RankRow| tells(r) && away(r.peak_reserved) > OUTLIER_SHARE;
    let outliers: Vec<usize> = (0..rows.len()).filter(|&i| is_outlier(&rows[i])).collect();
    let failed: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].ooms > 0).collect();
    let is_first_by_time = !failed.is_empty() && failed.iter().all(|&i| rows[i].first_oom_us.is_some());
    let first_oom =
        if is_first_by_time { failed.iter().copied().min_by_key(|&i| rows[i].first_oom_us) } else { failed.first().copied() };
    let highest = (0..rows.len()).filter(|&i| tells(&rows[i])).max_by_key(|&i| (rows[i].peak_reserved, std::cmp::Reverse(i)));
    let mut overview = Overview {
        median_peak: median,
        outliers,
        first_oom,
        is_first_by_time,
        failed: failed.len(),
        highest,
        sentence: String::new(),
    };
    overview.sentence = sentence(rows, &overview);
    overview
}

/// How a row is called: `rank 3`, with its device where the file holds several, or the file's name.
#[must_use]
pub fn name(row: &RankRow) -> String {
    match row.rank {
        Some(rank) => format!("rank {rank}"),
        None => row.file.clone(),
    }
}

/// As [`name`], and by its file where several rows have the same rank: two runs in one folder.
#[must_use]
pub fn name_among(rows: &[RankRow], at: usize) -> String {
    let row = &rows[at];
    if row.rank.is_some() && rows.iter().filter(|r| r.rank == row.rank).count() > 1 {
        return row.file.clone();
    }
    name(row)
}

/// As many outliers as a sentence names; of more it says how many.
const NAMED: usize = 3;

fn sentence(rows: &[RankRow], o: &Overview) -> String {
    let many = counted(rows.iter().filter(|r| !r.is_pending).count() as u64, "rank", "ranks");
    let mut text = match o.first_oom {
        Some(i) => {
            let row = &rows[i];
            let asked =
                if row.first_oom_bytes > 0 { format!(", asking for {}", Bytes(row.first_oom_bytes)) } else { String::new() };
            let who = name_among(rows, i);
            match (o.failed, o.is_first_by_time) {
                (1, _) => format!("{who} of {many} ran out of memory{asked}"),
                (n, true) => format!("{n} of {many} ran out of memory, {who} first{asked}"),
                (n, false) => format!("{n} of {many} ran out of memory; without times, which was first is not known"),
            }
        }
        None => format!("None of {many} ran out of memory"),
    };
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if o.highest.is_none() {
        return text + ". What was reserved is not in these files.";
    }
    text += &format!(". The median peak is {} reserved", Bytes(o.median_peak));
    if o.outliers.is_empty() {
        text += &format!("; all are within {:.0}\u{a0}% of it", OUTLIER_SHARE * 100.0);
    }
    let mut above: Vec<usize> = o.outliers.iter().copied().filter(|&i| rows[i].peak_reserved > o.median_peak).collect();
    let below: Vec<usize> = o.outliers.iter().copied().filter(|&i| rows[i].peak_reserved < o.median_peak).collect();
    if let Some(i) = o.highest.filter(|i| above.contains(i)) {
        above.retain(|&other| other != i);
        let more = (rows[i].peak_reserved as f64 / o.median_peak.max(1) as f64 - 1.0) * 100.0;
        text += &format!(
            "; {} reserved the most, {} or {more:.0}\u{a0}% above it",
            name_among(rows, i),
            Bytes(rows[i].peak_reserved)
        );
    }
    for (which, where_) in [(above, "above"), (below, "below")] {
        if !which.is_empty() {
            text += &format!("; {} more than {:.0}\u{a0}% {where_} it", enumerated(rows, &which), OUTLIER_SHARE * 100.0);
        }
    }
    text.push('.');
    text
}

/// `rank 3 is`, `rank 3, rank 5 and rank 8 are`, `17 ranks are`.
fn enumerated(rows: &[RankRow], which: &[usize]) -> String {
    let names: Vec<String> = which.iter().take(NAMED).map(|&i| name_among(rows, i)).collect();
    match names.split_last() {
        Some((last, [])) => format!("{last} is"),
        Some((last, others)) if which.len() <= NAMED => format!("{} and {last} are", others.join(", ")),
        _ => counted(which.len() as u64, "rank is", "ranks are"),
    }
}

/// Reads many files (each with its size in bytes) with as many threads as there are cores, and hands each file's rows to `each` as they come, in any order. At any
/// time the files being read are at most `budget` bytes together (a single larger one is read alone), so that memory is bounded by the
/// budget and not by the number of ranks. Stops between files when cancelled.
pub fn read_all<E: Send>(
    files: &[(PathBuf, u64)],
    budget: u64,
    progress: &Progress,
    open: impl Fn(&Path) -> Result<Recording, E> + Sync,
    each: impl Fn(usize, Result<Vec<RankRow>, E>) + Sync,
) {
    progress.set_total(files.len() as u64);
    let next = AtomicUsize::new(0);
    let gate = Gate { in_use: Mutex::new(0), freed: Condvar::new(), budget };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while progress.check().is_ok() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((path, bytes)) = files.get(at) else { break };
                    gate.enter(*bytes);
                    // A file's tables report to a progress of their own: the shared one counts files.
                    let result = open(path).map(|recording| rows(&recording, path, &Progress::new()));
                    gate.leave(*bytes);
                    match result {
                        Ok(Ok(rows)) => each(at, Ok(rows)),
                        Ok(Err(Cancelled)) => break,
                        Err(error) => each(at, Err(error)),
                    }
                    progress.advance(1);
                }
            });
        }
    });
}

/// Lets files in while they fit the budget together.
struct Gate {
    in_use: Mutex<u64>,
    freed: Condvar,
    budget: u64,
}

impl Gate {
    fn enter(&self, bytes: u64) {
        let Ok(mut in_use) = self.in_use.lock() else { return };
        while *in_use > 0 && *in_use + bytes > self.budget {
            match self.freed.wait(in_use) {
                Ok(guard) => in_use = guard,
                Err(_) => return,
            }
        }
        *in_use += bytes;
    }

    fn leave(&self, bytes: u64) {
        if let Ok(mut in_use) = self.in_use.lock() {
            *in_use = in_use.saturating_sub(bytes);
        }
        self.freed.notify_all();
    }
}

/// The budget of [`read_all`]: files of this many bytes may be open at once. A recording takes about half its file in memory.
pub const READ_BUDGET: u64 = 4 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::NBSP;

    fn row(rank: u32, peak: u64, oom: Option<i64>) -> RankRow {
        RankRow {
            rank: Some(rank),
            file: format!("r{rank}"),
            peak_reserved: peak,
            ooms: usize::from(oom.is_some()),
            first_oom_us: oom,
            first_oom_bytes: 1 << 20,
            ..RankRow::default()
        }
    }

    #[test]
    fn the_first_to_fail_is_the_earliest_and_outliers_are_named() {
        let mut rows =
            vec![row(2, 100 << 20, Some(50)), row(0, 100 << 20, None), row(1, 130 << 20, Some(40)), row(3, 99 << 20, None)];
        sort(&mut rows);
        let o = overview(&rows);
        assert_eq!((o.first_oom, o.failed, o.is_first_by_time), (Some(1), 2, true));
        assert_eq!((o.median_peak, o.outliers.as_slice()), (100 << 20, [1].as_slice()));
        assert_eq!(
            o.sentence.replace(NBSP, " "),
            "2 of 4 ranks ran out of memory, rank 1 first, asking for 1 MiB. The median peak is 100 MiB reserved; rank 1 reserved \
             the most, 130 MiB or 30 % above it."
        );
        let two = [row(0, 3504 << 20, None), row(1, 3182 << 20, None)];
        assert_eq!(overview(&two).median_peak, 3343 << 20);
        assert_eq!(overview(&[row(0, 1, None), row(1, 7, None), row(2, 5, None), row(3, 9, None)]).median_peak, 6);
        rows[1].first_oom_us = None;
        assert!(!overview(&rows).is_first_by_time);
        assert!(overview(&rows).sentence.contains("which was first is not known"));
        assert_eq!(overview(&[]), Overview::default());
    }

    #[test]
    fn a_row_that_is_not_read_yet_keeps_its_place_and_says_nothing() {
        let mut rows: Vec<RankRow> = (0..4).map(|i| pending(Path::new(&format!("run/mem_rank{i}.pickle")))).collect();
        rows[2] = RankRow { file: "mem_rank2.pickle".into(), path: "run/mem_rank2.pickle".into(), ..row(2, 10 << 20, Some(4)) };
        let jobs = by_job(rows);
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].rows.iter().map(|r| r.rank).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
        let o = &jobs[0].overview;
        assert_eq!((o.median_peak, o.first_oom, o.highest, o.outliers.len()), (10 << 20, Some(2), Some(2), 0));
        assert!(o.sentence.contains("Rank 2 of 1\u{a0}rank ran out of memory"), "{}", o.sentence);
    }

    #[test]
    fn a_few_outliers_are_named_and_many_counted() {
        let sentence = |peaks: &[u64]| {
            let rows: Vec<RankRow> = peaks.iter().enumerate().map(|(i, &p)| row(i as u32, p << 20, None)).collect();
            overview(&rows).sentence.replace(NBSP, " ")
        };
        assert!(
            sentence(&[100, 100, 100, 120, 130, 80, 70, 100])
                .ends_with("rank 4 reserved the most, 130 MiB or 30 % above it; rank 3 is more than 10 % above it; rank 5 and rank 6 are more than 10 % below it.")
        );
        assert!(sentence(&[100, 100, 100, 100, 100, 80, 70, 60, 50]).ends_with("; 4 ranks are more than 10 % below it."));
    }

    #[test]
    fn devices_are_ranks_where_names_tell_none() {
        let mut rows: Vec<RankRow> =
            [3, 1, 2].iter().map(|&d| RankRow { device: d, file: "s.pickle".into(), ..RankRow::default() }).collect();
        sort(&mut rows);
        assert_eq!(rows.iter().map(|r| r.rank).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    }

    #[test]
    fn every_file_is_answered_once_and_cancelling_stops() {
        let files: Vec<(PathBuf, u64)> = (0..40).map(|i| (PathBuf::from(format!("f_rank{i}")), i)).collect();
        let seen = Mutex::new(vec![0; files.len()]);
        let progress = Progress::new();
        let open = |p: &Path| if p.ends_with("f_rank7") { Err("odd") } else { Ok(Recording::default()) };
        read_all(&files, 10, &progress, open, |i, result| {
            assert_eq!(result.is_err(), i == 7);
            seen.lock().unwrap()[i] += 1;
        });
        assert!(seen.lock().unwrap().iter().all(|&n| n == 1));
        assert_eq!(progress.fraction(), Some(1.0));
        progress.cancel();
        read_all(&files, 10, &progress, open, |_, _| panic!("cancelled before it began"));
    }
}
