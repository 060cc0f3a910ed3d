//! `vramscope ranks DIR`: the recordings of a job's ranks side by side.

use std::io::Write;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::args::RanksArgs;
use super::{Table, open_any, print, print_json};
use vramscope_core::compare::ranks::{self, Division, Job, Overview, RankRow};
use vramscope_core::formats::{folder, unpacked_bytes};
use vramscope_core::model::Progress;
use vramscope_core::units::{SizeColumn, count};

/// Runs the subcommand. Fails when the folder has no recordings, when none can be opened, or when the answer cannot be written.
pub fn run(args: &RanksArgs, out: &mut dyn Write) -> Result<(), String> {
    let files = folder::recordings_in(&args.paths).map_err(|e| e.to_string())?;
    let found = Mutex::new((Vec::new(), Vec::new()));
    ranks::read_all(&files, ranks::READ_BUDGET, &Progress::new(), unpacked_bytes, open_any, |at, result| {
        // The lock is poisoned only when another thread panicked. The scope then ends with that panic.
        if let Ok(mut found) = found.lock() {
            match result {
                Ok(rows) => found.0.extend(rows),
                Err(sentence) => found.1.push((at, sentence)),
            }
        }
    });
    let (rows, mut errors) = found.into_inner().unwrap_or_default();
    errors.sort();
    let errors: Vec<String> = errors.into_iter().map(|(_, sentence)| sentence).collect();
    if rows.is_empty() {
        return Err(errors.into_iter().next().unwrap_or_else(|| "no file holds a device's memory".to_owned()));
    }
    let jobs = ranks::by_job(rows);
    if args.json {
        return print_json(out, &report(&jobs, &errors));
    }
    let mut text = match jobs.iter().flat_map(|job| &job.rows).filter(|r| r.is_cut_short).count() as u64 {
        0 => String::new(),
        1 => "one file is cut short, so its figures hold for the part that was read: ".to_owned(),
        n => format!("{} files are cut short, so their figures hold for the part that was read: ", count(n)),
    };
    if jobs.len() > 1 {
        text += &format!("{}\n\n", ranks::headline(&jobs));
    }
    for job in &jobs {
        if jobs.len() > 1 {
            text += &format!("{}\n", job.name);
        }
        text += &format!("{}\n\n{}\n", job.overview.sentence, table(job));
    }
    for error in errors {
        text += &format!("not read: {error}\n");
    }
    print(out, text.trim_end())
}

fn table(job: &Job) -> Table {
    let mut table = Table::new("rlrrrrrrl");
    table.row(["rank", "file", "device", "events", "peak reserved", "peak active", "end reserved", "end active", ""]);
    let size = SizeColumn::of(job.rows.iter().flat_map(|r| [r.peak_reserved, r.peak_active, r.end_reserved, r.end_active]));
    for (i, r) in job.rows.iter().enumerate() {
        // A number in the name of a single recording is hardly a rank.
        let rank = r.rank.filter(|_| job.is_one);
        let reserved = |bytes: u64| if r.is_reserved_unknown { "not recorded".to_owned() } else { size.sized(bytes) };
        table.row([
            rank.map_or_else(|| if job.is_one { "?" } else { "" }.to_owned(), |n| n.to_string()),
            r.file.clone(),
            r.device.to_string(),
            count(r.events as u64),
            reserved(r.peak_reserved),
            size.sized(r.peak_active),
            reserved(r.end_reserved),
            size.sized(r.end_active),
            remarks(r, i, &job.overview).join(", "),
        ]);
    }
    table
}

/// Remarks on what is unusual about a rank.
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
    if row.is_counters {
        remarks.push("counters alone".to_owned());
    }
    remarks.extend(row.counters_text());
    remarks
}

/// The JSON object: the ranks of all jobs in one list, for scripts that expect a single job, and each job on its own.
fn report(jobs: &[Job], errors: &[String]) -> Value {
    let file = |job: &Job, at: Option<usize>| at.map(|i| job.rows[i].file.clone());
    let outliers = |job: &Job| -> Vec<String> { job.overview.outliers.iter().map(|&i| job.rows[i].file.clone()).collect() };
    // Groups of peaks, lowest first, when the median does not describe most ranks; otherwise empty.
    let groups = |job: &Job| -> Vec<Vec<String>> {
        let named = |rows: &Vec<usize>| rows.iter().map(|&i| job.rows[i].file.clone()).collect();
        match &job.overview.division {
            Some(Division::Groups(groups)) => groups.iter().map(named).collect(),
            _ => Vec::new(),
        }
    };
    let ranks: Vec<Value> = jobs
        .iter()
        .flat_map(|job| job.rows.iter().enumerate().map(move |(i, r)| (job, i, r)))
        .map(|(job, i, r)| {
            json!({
                "file": r.file, "path": r.path, "job": job.name, "rank": r.rank, "device": r.device, "events": r.events,
                "peak_reserved_bytes": (!r.is_reserved_unknown).then_some(r.peak_reserved), "peak_active_bytes": r.peak_active,
                "end_reserved_bytes": (!r.is_reserved_unknown).then_some(r.end_reserved), "end_active_bytes": r.end_active,
                "capacity_bytes": r.capacity, "ooms": r.ooms, "first_oom_us": r.first_oom_us,
                "is_outlier": job.overview.outliers.contains(&i), "truncated": r.is_cut_short, "is_counters": r.is_counters,
                "counted": r.counted.as_ref().map(|c| json!({
                    "file": c.file, "peak_reserved_bytes": c.peak_reserved, "peak_active_bytes": c.peak_active, "ooms": c.ooms,
                })),
            })
        })
        .collect();
    let each: Vec<Value> = jobs
        .iter()
        .map(|job| {
            let o = &job.overview;
            json!({
                "job": job.name, "is_one_job": job.is_one, "sentence": o.sentence, "ranks": job.rows.len(),
                "median_peak_reserved_bytes": job.is_one.then_some(o.median_peak), "first_oom": file(job, o.first_oom),
                "first_oom_by_time": o.is_first_by_time, "outliers": outliers(job), "groups": groups(job),
                "cut_short": o.cut_short,
            })
        })
        .collect();
    // Different jobs have no common median and no first failure.
    let only = if let [job] = jobs { Some(job) } else { None };
    json!({
        "sentence": only.map_or_else(|| ranks::headline(jobs), |job| job.overview.sentence.clone()),
        "ranks": ranks, "jobs": each,
        "median_peak_reserved_bytes": only.filter(|job| job.is_one).map(|job| job.overview.median_peak),
        "first_oom": only.and_then(|job| file(job, job.overview.first_oom)),
        "first_oom_by_time": only.is_some_and(|job| job.overview.is_first_by_time),
        "outliers": jobs.iter().flat_map(outliers).collect::<Vec<_>>(), "errors": errors,
    })
}
