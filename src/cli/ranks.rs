//! `vramscope ranks DIR`: one recording a rank, side by side.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::args::RanksArgs;
use super::{Table, open, print, print_json};
use crate::analysis::ranks::{self, Overview, RankRow};
use crate::formats::folder;
use crate::model::Progress;
use crate::units::{Bytes, count};

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the folder has no recordings or none can be opened, or the answer can not be written.
pub fn run(args: &RanksArgs, out: &mut dyn Write) -> Result<(), String> {
    let files: Vec<(PathBuf, u64)> = folder::recordings_in(&args.paths)?
        .into_iter()
        .map(|path| {
            let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
            (path, bytes)
        })
        .collect();
    let found = Mutex::new((Vec::new(), Vec::new()));
    ranks::read_all(&files, ranks::READ_BUDGET, &Progress::new(), open, |at, result| {
        // A poisoned lock means that another thread panicked; the scope ends with that panic.
        if let Ok(mut found) = found.lock() {
            match result {
                Ok(rows) => found.0.extend(rows),
                Err(sentence) => found.1.push((at, sentence)),
            }
        }
    });
    let (mut rows, mut errors) = found.into_inner().unwrap_or_default();
    errors.sort();
    let errors: Vec<String> = errors.into_iter().map(|(_, sentence)| sentence).collect();
    if rows.is_empty() {
        return Err(errors.into_iter().next().unwrap_or_else(|| "no file holds a device's memory".to_owned()));
    }
    ranks::sort(&mut rows);
    let overview = ranks::overview(&rows);
    if args.json {
        return print_json(out, &report(&rows, &overview, &errors));
    }
    let mut text = format!("{}\n\n", overview.sentence);
    let mut table = Table::new("rlrrrrrrl");
    table.row(["rank", "file", "device", "events", "peak reserved", "peak active", "end reserved", "end active", ""]);
    for (i, r) in rows.iter().enumerate() {
        table.row([
            r.rank.map_or_else(|| "?".to_owned(), |n| n.to_string()),
            r.file.clone(),
            r.device.to_string(),
            count(r.events as u64),
            Bytes(r.peak_reserved).to_string(),
            Bytes(r.peak_active).to_string(),
            Bytes(r.end_reserved).to_string(),
            Bytes(r.end_active).to_string(),
            remarks(r, i, &overview).join(", "),
        ]);
    }
    text += &table.to_string();
    for error in errors {
        text += &format!("not read: {error}\n");
    }
    print(out, &text)
}

/// What is odd about a rank, in words.
fn remarks(row: &RankRow, at: usize, overview: &Overview) -> Vec<String> {
    let mut remarks = Vec::new();
    if row.ooms > 0 {
        remarks.push(match (overview.failed > 1 && overview.first_oom == Some(at), row.ooms) {
            (true, _) if overview.is_first_by_time => "first out of memory".to_owned(),
            (_, 1) => "out of memory".to_owned(),
            (_, n) => format!("out of memory {n} times"),
        });
    }
    if overview.outliers.contains(&at) {
        remarks.push("outlier".to_owned());
    }
    if row.is_cut_short {
        remarks.push("the file breaks off".to_owned());
    }
    remarks
}

fn report(rows: &[RankRow], overview: &Overview, errors: &[String]) -> Value {
    let ranks: Vec<Value> = rows
        .iter()
        .enumerate()
        .map(|(i, r)| {
            json!({
                "file": r.file, "path": r.path, "rank": r.rank, "device": r.device, "events": r.events,
                "peak_reserved_bytes": r.peak_reserved, "peak_active_bytes": r.peak_active,
                "end_reserved_bytes": r.end_reserved, "end_active_bytes": r.end_active,
                "capacity_bytes": r.capacity, "ooms": r.ooms, "first_oom_us": r.first_oom_us,
                "is_outlier": overview.outliers.contains(&i), "truncated": r.is_cut_short,
            })
        })
        .collect();
    json!({
        "sentence": overview.sentence, "ranks": ranks, "median_peak_reserved_bytes": overview.median_peak,
        "first_oom": overview.first_oom.map(|i| &rows[i].file), "first_oom_by_time": overview.is_first_by_time,
        "outliers": overview.outliers.iter().map(|&i| &rows[i].file).collect::<Vec<_>>(), "errors": errors,
    })
}
