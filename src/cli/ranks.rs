//! `vramscope ranks DIR`: one snapshot a rank, side by side.

use std::io::Write;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use super::args::RanksArgs;
use super::{Table, open, print, print_json};
use crate::analysis::{DeviceTables, Quantity};
use crate::model::Progress;
use crate::units::{Bytes, count};

/// One rank.
#[derive(Debug, Serialize)]
struct Rank {
    file: String,
    rank: Option<u32>,
    device: i32,
    events: usize,
    peak_reserved_bytes: u64,
    peak_active_bytes: u64,
    end_reserved_bytes: u64,
    ooms: usize,
    first_oom_us: Option<i64>,
    /// Differs from the median peak by more than a tenth.
    is_outlier: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the folder has no snapshots or none can be opened, or the answer can not be written.
pub fn run(args: &RanksArgs, out: &mut dyn Write) -> Result<(), String> {
    let files = snapshots(&args.paths)?;
    // One file a core at a time: what was read of it is dropped before the next.
    let read: Vec<Result<Vec<Rank>, String>> = files.par_iter().map(|path| rank(path)).collect();
    let mut ranks = Vec::new();
    let mut errors = Vec::new();
    for result in read {
        match result {
            Ok(found) => ranks.extend(found),
            Err(sentence) => errors.push(sentence),
        }
    }
    if ranks.is_empty() {
        return Err(errors.into_iter().next().unwrap_or_else(|| "no file holds a device's memory".to_owned()));
    }
    ranks.sort_by(|a, b| (a.rank, &a.file, a.device).cmp(&(b.rank, &b.file, b.device)));
    let mut peaks: Vec<u64> = ranks.iter().map(|r| r.peak_reserved_bytes).collect();
    peaks.sort_unstable();
    let median = peaks[peaks.len() / 2];
    for rank in &mut ranks {
        rank.is_outlier = rank.peak_reserved_bytes.abs_diff(median) * 10 > median;
    }
    let first_oom =
        ranks.iter().filter(|r| r.ooms > 0).min_by_key(|r| r.first_oom_us.unwrap_or(i64::MAX)).map(|r| r.file.clone());
    if args.json {
        let report = serde_json::json!({
            "ranks": ranks, "median_peak_reserved_bytes": median, "first_oom": first_oom, "errors": errors,
            "outliers": ranks.iter().filter(|r| r.is_outlier).map(|r| r.file.clone()).collect::<Vec<_>>(),
        });
        return print_json(out, &report);
    }
    let outliers = ranks.iter().filter(|r| r.is_outlier).count();
    let mut text = format!(
        "{}, median peak {} reserved, {}",
        crate::units::counted(ranks.len() as u64, "rank", "ranks"),
        Bytes(median),
        crate::units::counted(outliers as u64, "outlier", "outliers")
    );
    text += &match &first_oom {
        Some(file) => format!("; first out of memory: {file}.\n\n"),
        None => "; none ran out of memory.\n\n".to_owned(),
    };
    let mut table = Table::new("rlrrrrrl");
    table.row(["rank", "file", "device", "events", "peak reserved", "peak active", "end", ""]);
    for r in &ranks {
        table.row([
            r.rank.map_or_else(|| "?".to_owned(), |n| n.to_string()),
            r.file.clone(),
            r.device.to_string(),
            count(r.events as u64),
            Bytes(r.peak_reserved_bytes).to_string(),
            Bytes(r.peak_active_bytes).to_string(),
            Bytes(r.end_reserved_bytes).to_string(),
            match (r.ooms, r.is_outlier) {
                (0, true) => "outlier".to_owned(),
                (0, false) => String::new(),
                (n, _) => format!("{n} out of memory"),
            },
        ]);
    }
    text += &table.to_string();
    for error in errors {
        text += &format!("not read: {error}\n");
    }
    print(out, &text)
}

fn rank(path: &Path) -> Result<Vec<Rank>, String> {
    let recording = open(path)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found = Vec::new();
    for device in recording.devices.iter().filter(|d| !d.events.is_empty() || !d.segments.is_empty()) {
        let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
        let ooms = device.events.ooms();
        found.push(Rank {
            rank: rank_of(&file),
            device: device.id.index,
            events: device.events.len(),
            peak_reserved_bytes: tables.curves.peak(Quantity::Reserved).0,
            peak_active_bytes: tables.curves.peak(Quantity::Active).0,
            end_reserved_bytes: tables.curves.end(Quantity::Reserved),
            first_oom_us: ooms.first().filter(|_| device.events.has_time).map(|&e| device.events.time_us[e as usize]),
            ooms: ooms.len(),
            file: file.clone(),
            is_outlier: false,
        });
    }
    Ok(found)
}

/// The rank a file name tells: the number after "rank", else its last number.
fn rank_of(file: &str) -> Option<u32> {
    let lower = file.to_lowercase();
    let digits = |from: &str| -> Option<u32> {
        let rest = from.trim_start_matches(['_', '-', '.', '=']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    if let Some(at) = lower.find("rank")
        && let Some(n) = digits(&lower[at + 4..])
    {
        return Some(n);
    }
    lower.split(|c: char| !c.is_ascii_digit()).rev().find(|s| !s.is_empty()).and_then(|s| s.parse().ok())
}

/// The snapshot files of folders, and files named one by one, by name.
fn snapshots(paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    const ENDINGS: [&str; 9] = [".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".pickle.zst", ".json", ".json.gz", ".pt", ".csv"];
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).map_err(|e| format!("{}: {e}", path.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().to_lowercase();
            if ENDINGS.iter().any(|e| name.ends_with(e)) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    if files.is_empty() {
        let named: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(format!("{}: no snapshots here; they end in {}", named.join(", "), ENDINGS.join(", ")));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_read_from_names() {
        assert_eq!(rank_of("ddp_rank3.pickle"), Some(3));
        assert_eq!(rank_of("snapshot_Rank-12_step40.pkl"), Some(12));
        assert_eq!(rank_of("mem.2026.7.pickle"), Some(7));
        assert_eq!(rank_of("snapshot.pickle"), None);
    }
}
