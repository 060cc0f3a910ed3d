//! Groups the recordings of a folder into jobs, so that ranks of two jobs are never compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::names::{last_span, rank_span, unpacked_name, without, without_cause, without_pid};
use super::{Overview, RankRow, assign, lay_counters_beside, overview};
use crate::units::counted;

/// Recordings that belong together, with their summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The common part of its files' names, with `*` for what differs: `ddp_rank*.pickle`. Includes the folder if there are
    /// several, as `node*/rank*.pickle` for a job with a folder per node.
    pub name: String,
    /// Its ranks, as [`sort`] orders them.
    pub rows: Vec<RankRow>,
    /// Summary of these rows.
    pub overview: Overview,
    /// False for recordings that belong to no job: they are listed side by side, and none is an outlier.
    pub is_one: bool,
}

impl Job {
    /// Recomputes the summary after rows were filled in.
    pub fn sum_up(&mut self) {
        self.overview = if self.is_one { overview(&self.rows) } else { side_by_side(&self.rows) };
    }
}

/// The name for recordings that belong to no job.
pub const ALONE: &str = "on their own";

/// Orders rows by rank (unknown last), then file, then device.
pub fn sort(rows: &mut [RankRow]) {
    rows.sort_by(|a, b| {
        (a.rank.is_none(), a.rank, &a.file, a.device, &a.path).cmp(&(b.rank.is_none(), b.rank, &b.file, b.device, &b.path))
    });
}

/// Groups rows into jobs by folder and name, ordered by name; recordings that belong to no job come last, in one group. Each call
/// decides all ranks anew (`assign`).
///
/// What two runs of `vramscope run --at-oom` wrote is apart, by the page beside each file; of a rank with several snapshots of one
/// run the job has the one of the first failure. Files belong to one job if they are in one folder, their names differ only in numbers (or in the cause that `run --at-oom`
/// writes), and no two have the same rank. If two have, only files that differ in nothing but the rank belong together. Folders
/// that differ in one part of their path, with files of the same names and no rank twice, form one job: a folder per node.
/// Folders named after a step stay separate. Traces that contain the number of processes (`distributedInfo`) need no matching
/// names. Files without any number belong to one job if each has another device. Compression endings are ignored.
pub fn by_job(mut rows: Vec<RankRow>) -> Vec<Job> {
    let named = assign::by_recording_and_name(&mut rows);
    lay_counters_beside(&mut rows);
    let (of_runs, rows): (Vec<RankRow>, Vec<RankRow>) = rows.into_iter().partition(|row| row.run.is_some() && row.rank.is_some());
    let mut loose: BTreeMap<(PathBuf, String), Vec<RankRow>> = BTreeMap::new();
    for row in rows {
        let folder = row.path.parent().unwrap_or(Path::new("")).to_path_buf();
        loose.entry((folder, likeness(&row, named.get(&row.path).copied().flatten().is_some()))).or_default().push(row);
    }
    let mut groups: Vec<Vec<RankRow>> = by_run(of_runs);
    for ((_, like), rows) in across_folders(loose) {
        if like.is_empty() {
            let mut devices: Vec<i32> = rows.iter().map(|r| r.device).collect();
            devices.sort_unstable();
            devices.dedup();
            if devices.len() == rows.len() {
                groups.push(rows);
            } else {
                groups.extend(split(rows, &[|r| r.file.clone()]));
            }
        } else if each_rank_once(&rows) {
            groups.push(rows);
        } else {
            groups.extend(split(rows, &[|r| without_pid(&without_rank(&r.file)), |r| without_rank(&r.file)]));
        }
    }
    let are_folders_many = groups.iter().flatten().any(|r| r.path.parent() != groups[0][0].path.parent());
    let is_only = groups.len() == 1;
    let (alone, together): (Vec<_>, Vec<_>) = groups.into_iter().partition(|g| !is_only && g.iter().all(|r| r.path == g[0].path));
    let mut jobs: Vec<Job> = together
        .into_iter()
        .map(|mut rows| {
            assign::by_device(&mut rows);
            sort(&mut rows);
            Job { name: name(&rows, are_folders_many), overview: overview(&rows), rows, is_one: true }
        })
        .collect();
    let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
    for job in &mut jobs {
        let is_shared = names.iter().filter(|name| **name == job.name).count() > 1;
        if let Some(begins) = job.rows.first().filter(|_| is_shared).and_then(begins) {
            job.name += &begins;
        }
    }
    jobs.sort_by_cached_key(|job| natural(&job.name));
    let mut rows: Vec<RankRow> = alone.into_iter().flatten().collect();
    if !rows.is_empty() {
        rows.sort_by_cached_key(|r| (natural(&r.path.to_string_lossy()), r.device));
        jobs.push(Job { name: ALONE.to_owned(), overview: side_by_side(&rows), rows, is_one: false });
    }
    jobs
}

/// The recordings of each run. Of each rank the first failure is part of the run's job, where memory ran out that one; what else
/// a run wrote stands alone.
fn by_run(mut rows: Vec<RankRow>) -> Vec<Vec<RankRow>> {
    let time = |row: &RankRow| without_cause(&row.file).to_owned();
    rows.sort_by_cached_key(|row| (row.run.clone(), row.rank, !row.file.starts_with("oom_"), time(row), row.path.clone()));
    let mut groups = Vec::new();
    for run in rows.chunk_by(|a, b| a.run == b.run) {
        let (mut first, mut later): (Vec<RankRow>, Vec<RankRow>) = (Vec::new(), Vec::new());
        for rank in run.chunk_by(|a, b| a.rank == b.rank) {
            let (own, other) = rank.iter().cloned().partition(|row| rank.first().is_some_and(|f| f.path == row.path));
            first.extend::<Vec<_>>(own);
            later.extend::<Vec<_>>(other);
        }
        groups.push(first);
        groups.extend(one_by_one(later));
    }
    groups
}

/// What tells a run's job from that of another run of the same names: when its first file was written.
pub(super) fn begins(row: &RankRow) -> Option<String> {
    row.run.as_ref()?;
    let (_, rest) = without_cause(&row.file).split_once('_')?;
    Some(format!(" of {}", rest.split('_').next()?))
}

/// Rows by folder and by the common part of their names.
type Loose = BTreeMap<(PathBuf, String), Vec<RankRow>>;

/// Merges the folders of a job that has a folder per node. The part of the path in which the folders differ is the last or the
/// second last (`node*/`, `node*/memory/`). If all such folders together contain a rank twice, only folders whose names differ in
/// numbers alone are merged.
fn across_folders(mut loose: Loose) -> Loose {
    for from_end in [0, 1] {
        let namings: [fn(&str) -> String; 2] = [|_| "*".to_owned(), without_numbers];
        for of_name in namings {
            let mut alike: BTreeMap<(PathBuf, String), Vec<(PathBuf, String)>> = BTreeMap::new();
            for key in loose.keys().filter(|(_, like)| !like.is_empty()) {
                if let Some(folder) = with_part(&key.0, from_end, of_name) {
                    alike.entry((folder, key.1.clone())).or_default().push(key.clone());
                }
            }
            for keys in alike.into_values().filter(|keys| keys.len() > 1) {
                let ranks: Vec<Option<u32>> =
                    keys.iter().filter_map(|key| loose.get(key)).flatten().map(|row| row.rank).collect();
                let known: BTreeSet<u32> = ranks.iter().copied().flatten().collect();
                if known.len() == ranks.len() {
                    let rows: Vec<RankRow> = keys.iter().filter_map(|key| loose.remove(key)).flatten().collect();
                    loose.extend(keys.into_iter().next().map(|key| (key, rows)));
                }
            }
        }
    }
    loose
}

/// A folder with one part of its path replaced; `None` if it lacks this part, or if the part counts steps, which are separate jobs.
fn with_part(folder: &Path, from_end: usize, of_name: impl Fn(&str) -> String) -> Option<PathBuf> {
    let mut parts: Vec<String> = folder.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let at = parts.len().checked_sub(1 + from_end)?;
    let part = parts.get_mut(at).filter(|part| part.as_str() != "/")?;
    if part.contains(|c: char| c.is_ascii_digit()) && last_span(part).is_none() {
        return None;
    }
    *part = of_name(part);
    Some(parts.iter().collect())
}

/// The job to show first: one that ran out of memory, then one with several ranks, then the largest, then the first.
pub fn likely(jobs: &[Job]) -> usize {
    let weight = |i: &usize| {
        let job = &jobs[*i];
        (job.overview.failed > 0, job.is_one, job.rows.len(), std::cmp::Reverse(*i))
    };
    (0..jobs.len()).max_by_key(weight).unwrap_or(0)
}

/// One sentence about several jobs: how many there are, and which ran out of memory.
pub fn headline(jobs: &[Job]) -> String {
    let many = jobs.iter().filter(|j| j.is_one).count() as u64;
    let alone = jobs.iter().find(|j| !j.is_one).map_or(0, |j| files(&j.rows));
    let mut text = match (many, alone) {
        (0, n) => counted(n, "recording on its own", "recordings, each on its own"),
        (n, 0) => counted(n, "job", "jobs"),
        (n, alone) => {
            format!("{} and {}", counted(n, "job", "jobs"), counted(alone, "recording on its own", "recordings on their own"))
        }
    };
    let failed: Vec<String> = jobs
        .iter()
        .filter(|j| j.overview.failed > 0)
        .map(|j| format!("{} of {} {}", j.overview.failed, j.rows.len(), j.name))
        .collect();
    text += &match failed.as_slice() {
        [] => "; none ran out of memory".to_owned(),
        some => format!("; out of memory: {}", some.join(", ")),
    };
    text.push('.');
    text
}

/// Number of other jobs that [`beside`] names.
const OTHERS_NAMED: usize = 3;

/// The state of the other jobs, for a view of one: those that ran out of memory by name, the rest as a count. Empty without others.
pub fn beside(jobs: &[Job], shown: usize) -> String {
    let others = || jobs.iter().enumerate().filter(|(i, _)| *i != shown).map(|(_, job)| job);
    let called = |job: &Job| if job.is_one { job.name.clone() } else { "recordings on their own".to_owned() };
    let failed: Vec<&Job> = others().filter(|job| job.overview.failed > 0).collect();
    let well: Vec<&Job> = others().filter(|job| job.overview.failed == 0).collect();
    let mut parts: Vec<String> = failed
        .iter()
        .take(OTHERS_NAMED)
        .map(|job| format!("{} of {} {} ran out of memory", job.overview.failed, job.rows.len(), called(job)))
        .collect();
    let did = if failed.is_empty() { "ran out of memory" } else { "did" };
    if failed.len() > OTHERS_NAMED {
        parts.push(format!("so did ranks of {}", counted((failed.len() - OTHERS_NAMED) as u64, "more job", "more jobs")));
    }
    if well.len() > OTHERS_NAMED {
        parts.push(format!("none of {} other jobs {did}", well.len()));
    } else {
        parts.extend(well.iter().map(|job| format!("none of {} {} {did}", job.rows.len(), called(job))));
    }
    if parts.is_empty() { String::new() } else { format!("Also in this folder: {}.", parts.join("; ")) }
}

/// Number of files in sorted rows: a file with two devices has two rows.
fn files(rows: &[RankRow]) -> u64 {
    rows.chunk_by(|a, b| a.path == b.path).count() as u64
}

/// The summary of recordings that are not compared.
fn side_by_side(rows: &[RankRow]) -> Overview {
    let whole = overview(rows);
    let failed = match whole.failed {
        0 => "none ran out of memory".to_owned(),
        n => format!("{n} ran out of memory"),
    };
    let sentence = format!("{} of no common job; {failed}.", counted(files(rows), "recording", "recordings"));
    Overview { outliers: Vec::new(), first_oom: None, is_first_by_time: false, median_peak: 0, sentence, ..whole }
}

/// The common part of the names of files that may be one job; empty if the name contains no rank.
fn likeness(row: &RankRow, is_named: bool) -> String {
    if let Some(processes) = row.world_size {
        return format!("world of {processes}");
    }
    match rank_span(&row.file) {
        Some(_) => without_numbers(without_cause(unpacked_name(&row.file))),
        None if is_named => without_pid(&without_rank(unpacked_name(&row.file))),
        None => String::new(),
    }
}

/// True when no rank occurs in two files.
fn each_rank_once(rows: &[RankRow]) -> bool {
    let mut ranks: Vec<(Option<u32>, &Path)> = rows.iter().map(|r| (r.rank, r.path.as_path())).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.windows(2).all(|w| w[0].0 != w[1].0)
}

/// Groups by the first key, and those in which a rank occurs twice by the next.
fn split(rows: Vec<RankRow>, keys: &[fn(&RankRow) -> String]) -> Vec<Vec<RankRow>> {
    // Two runs that wrote the same ranks, with names that differ only in other numbers, cannot be separated.
    let Some((key, others)) = keys.split_first() else { return one_by_one(rows) };
    let mut groups: BTreeMap<String, Vec<RankRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(key(&row)).or_default().push(row);
    }
    groups.into_values().flat_map(|g| if each_rank_once(&g) { vec![g] } else { split(g, others) }).collect()
}

fn one_by_one(rows: Vec<RankRow>) -> Vec<Vec<RankRow>> {
    let mut groups: BTreeMap<PathBuf, Vec<RankRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(row.path.clone()).or_default().push(row);
    }
    groups.into_values().collect()
}

/// The name with `*` for its rank.
fn without_rank(file: &str) -> String {
    match rank_span(file).or_else(|| last_span(file)) {
        Some(span) => without(file, span),
        None => file.to_owned(),
    }
}

/// The name with `*` for every number.
fn without_numbers(file: &str) -> String {
    let mut out = String::with_capacity(file.len());
    for c in file.chars() {
        match c {
            '0'..='9' if out.ends_with('*') => {}
            '0'..='9' => out.push('*'),
            _ => out.push(c),
        }
    }
    out
}

/// The name of a job: the common part of its files' names.
fn name(rows: &[RankRow], with_folder: bool) -> String {
    let whole: Vec<&str> = rows.iter().map(|r| r.file.as_str()).collect();
    let unpacked: Vec<&str> = whole.iter().map(|file| unpacked_name(file)).collect();
    // If only some are compressed, compare the names without the compression ending.
    let pattern = pattern(&whole).or_else(|| pattern(&unpacked)).unwrap_or_else(|| shared(&whole));
    if !with_folder {
        return pattern;
    }
    let mut folders: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|r| r.path.parent())
        .map(|folder| folder.iter().map(|part| part.to_string_lossy().into_owned()).collect())
        .collect();
    folders.dedup();
    let Some(first) = folders.first() else { return pattern };
    // From the first part in which the folders differ; the last part if they do not.
    let differs = |at: &usize| folders.iter().any(|f| f.get(*at) != first.get(*at));
    let from = (0..first.len()).find(differs).unwrap_or(first.len().saturating_sub(1));
    let mut parts: Vec<String> = (from..first.len())
        .map(|at| {
            let names: Vec<&str> = folders.iter().filter_map(|f| f.get(at)).map(String::as_str).collect();
            self::pattern(&names).unwrap_or_else(|| shared(&names))
        })
        .collect();
    parts.push(pattern);
    parts.join("/")
}

/// The common pattern of names that differ only in a rank, or only in numbers.
fn pattern(names: &[&str]) -> Option<String> {
    let same = |f: &dyn Fn(&str) -> String| -> Option<String> {
        let first = f(names.first()?);
        names.iter().all(|name| f(name) == first).then_some(first)
    };
    same(&|name: &str| name.to_owned())
        .or_else(|| same(&without_rank))
        .or_else(|| same(&|name| without_pid(&without_rank(name))))
        .or_else(|| same(&without_numbers))
        .or_else(|| {
            let any_cause = |name: &str| format!("*_{}", without_numbers(without_cause(name)));
            same(&any_cause)
        })
}

/// The common beginning and the common end of names.
fn shared(names: &[&str]) -> String {
    let beginning = common(names, false, 0);
    let end = common(names, true, beginning.chars().count());
    format!("{beginning}*{end}")
}

/// The common beginning or end, without the `taken` letters of the other.
fn common(files: &[&str], from_end: bool, taken: usize) -> String {
    let turned = |s: &str| -> Vec<char> { if from_end { s.chars().rev().collect() } else { s.chars().collect() } };
    let mut shared = files.first().map(|f| turned(f)).unwrap_or_default();
    for file in files {
        let file = turned(file);
        let alike = shared.iter().zip(&file).take_while(|(a, b)| a == b).count();
        shared.truncate(alike.min(file.len().saturating_sub(taken)));
    }
    if from_end {
        shared.reverse();
    }
    shared.into_iter().collect()
}

/// A sort key that puts `step_9` before `step_10`.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts: Vec<(u64, String)> = vec![(0, String::new())];
    let mut in_number = false;
    for c in name.chars() {
        if let Some(digit) = c.to_digit(10) {
            if !in_number {
                parts.push((0, String::new()));
            }
            in_number = true;
            if let Some(part) = parts.last_mut() {
                part.0 = part.0.saturating_mul(10).saturating_add(u64::from(digit));
            }
        } else {
            in_number = false;
            if let Some(part) = parts.last_mut() {
                part.1.push(c);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(path: &str, peak: u64) -> RankRow {
        let path = PathBuf::from(path);
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        RankRow { path, file, peak_reserved: peak, ..RankRow::default() }
    }

    /// Files as torchtitan, verl and Megatron-LM write them: a folder or a name per step.
    #[test]
    fn what_trainers_write_is_told_apart_by_step_and_rank() {
        let jobs = |paths: &[&str]| -> Vec<Vec<Option<u32>>> {
            let jobs = by_job(paths.iter().map(|path| row(path, 1)).collect());
            jobs.iter().filter(|job| job.is_one).map(|job| job.rows.iter().map(|r| r.rank).collect()).collect()
        };
        let both = vec![Some(0), Some(1)];
        let torchtitan = [
            "o/memory_snapshot/iteration_10/rank0_memory_snapshot.pickle",
            "o/memory_snapshot/iteration_10/rank1_memory_snapshot.pickle",
            "o/memory_snapshot/iteration_20_exit/rank0_memory_snapshot.pickle",
            "o/memory_snapshot/iteration_20_exit/rank1_memory_snapshot.pickle",
        ];
        assert_eq!(jobs(&torchtitan), [both.clone(), both.clone()]);
        let verl = ["p/step3/torch_memory_rank0_pid4242.pickle", "p/step3/torch_memory_rank1_pid4911.pickle"];
        assert_eq!(jobs(&verl), std::slice::from_ref(&both));
        let megatron =
            ["d/snapshot_0.pickle", "d/snapshot_1.pickle", "d/snapshot_oom_rank_0.pickle", "d/snapshot_oom_rank_1.pickle"];
        assert_eq!(jobs(&megatron), [both.clone(), both.clone()]);
        let caught = ["c/oom_rank1_20261124-152256_pid3157.pickle", "c/sigterm_rank0_20261124-152257_pid3156.pickle"];
        assert_eq!(jobs(&caught), std::slice::from_ref(&both));
        let names = [(1, 0), (1, 1), (2, 0), (2, 1)];
        let in_one_name = names.map(|(step, rank)| format!("d/memory_snapshot_step{step}_rank{rank}_pid{}.pickle", 1000 + rank));
        assert_eq!(jobs(&in_one_name.each_ref().map(String::as_str)), [both.clone(), both.clone()]);
        let named: Vec<String> =
            by_job(in_one_name.iter().map(|path| row(path, 1)).collect()).into_iter().map(|job| job.name).collect();
        assert_eq!(named, [1, 2].map(|step| format!("memory_snapshot_step{step}_rank*_pid*.pickle")));
        let in_folders = names.map(|(step, rank)| format!("d/rank{rank}/step{step}/pid{}.pickle", 400 + rank));
        assert_eq!(jobs(&in_folders.each_ref().map(String::as_str)), [both.clone(), both.clone()]);
        let of_two_runs = ["d/a_rank0_pid7.pickle", "d/a_rank1_pid7.pickle", "d/a_rank0_pid9.pickle", "d/a_rank1_pid9.pickle"];
        assert_eq!(jobs(&of_two_runs), [both.clone(), both]);
        assert_eq!(by_job(caught.iter().map(|path| row(path, 1)).collect())[0].name, "*_rank*_*-*_pid*.pickle");
        let apart = ["c/a_rank0_1.pickle", "c/b_rank1_2.pickle"];
        assert!(jobs(&apart).is_empty(), "any other word tells jobs apart");
    }

    #[test]
    fn counters_join_the_recording_of_their_rank() {
        let counters = |path: &str, peak| RankRow { is_counters: true, peak_active: peak / 2, ..row(path, peak) };
        let jobs = by_job(vec![
            row("d/rank0_snapshot.pickle", 100),
            row("d/rank1_snapshot.pickle", 100),
            counters("d/rank1_memory_stats.json", 4 << 20),
            counters("d/rank0_memory_stats.json", 50),
            counters("d/rank7_memory_stats.json", 60),
        ]);
        let ranks = &jobs[0].rows;
        let told: Vec<_> = ranks.iter().map(|r| (r.rank, r.counters_text().map(|t| t.replace('\u{a0}', " ")))).collect();
        let counted = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [(Some(0), counted("counters beside it")), (Some(1), counted("counters: 4 MiB reserved at the peak"))],
            "{jobs:?}"
        );
        let folders = by_job(vec![
            row("d/rank_0/snapshot.pickle", 100),
            row("d/rank_1/snapshot.pickle", 100),
            counters("d/rank_1/stats.json", 100),
            counters("d/rank_0/stats.json", 100),
        ]);
        assert_eq!((folders.len(), folders[0].rows.len()), (1, 2), "{folders:?}");
        assert!(folders[0].rows.iter().all(|r| r.counted.is_some()));
        // For a rank without a recording the counters are all there is.
        assert!(jobs.iter().flat_map(|j| &j.rows).any(|r| r.is_counters && r.peak_reserved == 60));
    }

    #[test]
    fn two_runs_in_one_folder_are_two_jobs_with_the_first_failure_of_each_rank() {
        let of = |run: &str, file: &str| RankRow { run: Some(run.to_owned()), ..row(&format!("caught/{file}"), 8) };
        let rows = vec![
            of("1-1", "oom_rank0_20261124-105513_pid11.pickle"),
            of("1-1", "exception_rank0_20261124-105515_pid11.pickle"),
            of("1-1", "sigterm_rank1_20261124-105514_pid12.pickle"),
            of("2-2", "oom_rank0_20261124-110000_pid21.pickle"),
            of("2-2", "oom_rank1_20261124-110001_pid22.pickle"),
        ];
        let jobs = by_job(rows);
        let told: Vec<(String, Vec<(Option<u32>, &str)>)> = jobs
            .iter()
            .map(|j| (j.name.clone(), j.rows.iter().map(|r| (r.rank, r.file.split('_').next().unwrap())).collect()))
            .collect();
        let [of_two, of_one, alone] = &told[..] else { panic!("{told:?}") };
        assert_eq!(of_two.1, [(Some(0), "oom"), (Some(1), "sigterm")]);
        assert_eq!(of_one.1, [(Some(0), "oom"), (Some(1), "oom")]);
        assert_eq!(*alone, (ALONE.to_owned(), vec![(Some(0), "exception")]));
        assert_ne!(of_two.0, of_one.0);
    }

    fn jobs_of(files: &[&str]) -> Vec<(String, usize, bool)> {
        by_job(files.iter().map(|f| row(f, 1)).collect()).into_iter().map(|j| (j.name, j.rows.len(), j.is_one)).collect()
    }

    fn job(name: &str, rows: usize) -> (String, usize, bool) {
        (name.to_owned(), rows, name != ALONE)
    }

    #[test]
    fn jobs_in_one_folder_are_told_apart_by_name() {
        assert_eq!(
            jobs_of(&[
                "d/ddp_rank0.pickle",
                "d/fsdp_rank0.pickle",
                "d/ddp_rank1.pickle",
                "d/fsdp_rank1.pickle",
                "d/two_gpus.pickle"
            ]),
            [job("ddp_rank*.pickle", 2), job("fsdp_rank*.pickle", 2), job(ALONE, 1)]
        );
        // The dump of each step is a job of its own, in the order of steps.
        assert_eq!(
            jobs_of(&["d/rank0_step10.pkl", "d/rank1_step10.pkl", "d/rank0_step9.pkl", "d/rank1_step9.pkl"]),
            [job("rank*_step9.pkl", 2), job("rank*_step10.pkl", 2)]
        );
        assert_eq!(jobs_of(&["d/only_rank3.pickle"]), [job("only_rank3.pickle", 1)]);
    }

    #[test]
    fn folders_are_jobs_of_their_own() {
        assert_eq!(
            jobs_of(&[
                "m/iteration_10/rank0.pickle",
                "m/iteration_10/rank1.pickle",
                "m/iteration_9/rank0.pickle",
                "m/iteration_9/rank1.pickle"
            ]),
            [job("iteration_9/rank*.pickle", 2), job("iteration_10/rank*.pickle", 2)]
        );
    }

    #[test]
    fn a_folder_a_node_is_one_job_unless_two_hold_the_same_rank() {
        assert_eq!(jobs_of(&["j/n0/rank0.pickle", "j/n1/rank1.pickle"]), [job("n*/rank*.pickle", 2)]);
        let nodes = ["j/gpu-a/rank0.p", "j/gpu-a/rank1.p", "j/gpu-b/rank2.p", "j/gpu-b/rank3.p.gz"];
        assert_eq!(jobs_of(&nodes), [job("gpu-*/rank*.p", 4)]);
        assert_eq!(jobs_of(&["j/n0/mem/rank0.p", "j/n1/mem/rank1.p"]), [job("n*/mem/rank*.p", 2)]);
        let two = ["j/n0/rank0.p", "j/n0/rank1.p", "j/n1/rank0.p", "j/n1/rank1.p"];
        assert_eq!(jobs_of(&two), [job("n0/rank*.p", 2), job("n1/rank*.p", 2)]);
        let beside = ["j/n0/rank0.p", "j/n1/rank1.p", "j/old/rank0.p", "j/old/rank1.p"];
        assert_eq!(jobs_of(&beside), [job("n*/rank*.p", 2), job("old/rank*.p", 2)]);
        let steps = ["j/step10/rank0.p", "j/step10/rank1.p", "j/step20/rank2.p", "j/step20/rank3.p"];
        assert_eq!(jobs_of(&steps), [job("step10/rank*.p", 2), job("step20/rank*.p", 2)]);
        assert_eq!(jobs_of(&["j/rank_0/s.p", "j/rank_1/s.p"]), [job("rank_*/s.p", 2)]);
        assert_eq!(jobs_of(&["j/0/s", "j/1/s"]), [job("*/s", 2)]);
        assert_eq!(jobs_of(&["a/x.p", "b/y.p"]), [job(ALONE, 2)], "no ranks, no job");
    }

    #[test]
    fn what_packs_a_file_is_no_part_of_its_name() {
        assert_eq!(jobs_of(&["d/oom_rank0.pickle", "d/oom_rank3.pickle.gz"]), [job("oom_rank*.pickle", 2)]);
        assert_eq!(jobs_of(&["d/oom_rank0.pickle.gz", "d/oom_rank3.pickle.gz"]), [job("oom_rank*.pickle.gz", 2)]);
        assert_eq!(jobs_of(&["d/mem_0.pickle", "d/mem_1.pickle.zst"]), [job("mem_*.pickle", 2)]);
        let both = ["d/a_rank0.p", "d/a_rank1.p", "d/a_rank0.p.gz", "d/a_rank1.p.gz"];
        assert_eq!(jobs_of(&both), [job("a_rank*.p", 2), job("a_rank*.p.gz", 2)], "the same ranks twice");
    }

    #[test]
    fn process_numbers_do_not_part_the_ranks_of_one_job() {
        assert_eq!(jobs_of(&["d/oom_rank0_pid4711.pickle", "d/oom_rank1_pid4712.pickle"]), [job("oom_rank*_pid*.pickle", 2)]);
        // Two runs: which pid belongs to which is unknown, so nothing is compared.
        let two = ["d/oom_rank0_pid1.pickle", "d/oom_rank1_pid2.pickle", "d/oom_rank0_pid3.pickle", "d/oom_rank1_pid4.pickle"];
        assert_eq!(jobs_of(&two), [job(ALONE, 4)]);
    }

    #[test]
    fn names_without_a_rank_are_a_job_only_by_device() {
        assert_eq!(jobs_of(&["d/base.pickle", "d/big.pickle"]), [job(ALONE, 2)]);
        let mut rows = vec![row("d/left.pickle", 1), row("d/right.pickle", 1)];
        rows[1].device = 1;
        let jobs = by_job(rows);
        assert_eq!((jobs.len(), jobs[0].is_one, jobs[0].rows[1].rank), (1, true, Some(1)));
        // Version numbers are not ranks.
        assert_eq!(jobs_of(&["v/torch2.0.1_s.pickle", "v/torch2.5.1_s.pickle", "v/torch2.15.0_s.pickle"]), [job(ALONE, 3)]);
    }

    #[test]
    fn traces_that_tell_their_world_need_no_names() {
        let mut rows = vec![row("d/alpha_11.17.pt.trace.json", 1), row("d/beta_12.18.pt.trace.json", 1)];
        for (rank, row) in (0..).zip(&mut rows) {
            (row.told_rank, row.world_size) = (Some(rank), Some(2));
        }
        let jobs = by_job(rows);
        assert_eq!((jobs.len(), jobs[0].rows.len(), jobs[0].name.as_str()), (1, 2, "*.pt.trace.json"));
    }

    #[test]
    fn a_folder_opens_on_what_failed() {
        let files = ["d/a_rank0.p", "d/a_rank1.p", "d/b_rank0.p", "d/b_rank1.p", "d/b_rank2.p", "d/x.p", "d/y.p"];
        let fails = |failed: &str| {
            let mut rows = files.map(|f| row(f, 100));
            rows.iter_mut().filter(|r| r.file == failed).for_each(|r| r.ooms = 1);
            let jobs = by_job(rows.into());
            jobs[likely(&jobs)].name.clone()
        };
        assert_eq!(fails("none"), "b_rank*.p", "the largest");
        assert_eq!(fails("a_rank1.p"), "a_rank*.p");
        assert_eq!(fails("y.p"), ALONE, "also where it is of no job");
        assert_eq!(likely(&[]), 0);
    }

    #[test]
    fn outliers_are_of_their_job_and_recordings_on_their_own_have_none() {
        let small = ["d/a_rank0.p", "d/a_rank1.p", "d/a_rank2.p"].map(|f| row(f, 100));
        let large = ["d/b_rank0.p", "d/b_rank1.p", "d/b_rank2.p"].map(|f| row(f, if f.contains('2') { 1500 } else { 1000 }));
        let jobs = by_job(small.into_iter().chain(large).collect());
        assert_eq!(jobs.iter().map(|j| j.overview.outliers.clone()).collect::<Vec<_>>(), [vec![], vec![2]]);
        assert_eq!(headline(&jobs).replace(crate::units::NBSP, " "), "2 jobs; none ran out of memory.");
        assert_eq!(beside(&jobs, 0), "Also in this folder: none of 3 b_rank*.p ran out of memory.");
        assert_eq!(beside(&jobs[..1], 0), "");
        let mut many: Vec<Job> = (0..9).map(|i| Job { name: format!("step{i}"), ..jobs[0].clone() }).collect();
        assert_eq!(beside(&many, 4), "Also in this folder: none of 8 other jobs ran out of memory.");
        many.iter_mut().take(5).for_each(|job| job.overview.failed = 1);
        assert_eq!(
            beside(&many, 1),
            "Also in this folder: 1 of 3 step0 ran out of memory; 1 of 3 step2 ran out of memory; 1 of 3 step3 ran out of memory; so did ranks of \
             1\u{a0}more job; none of 4 other jobs did."
        );
        let alone = by_job(vec![row("d/x.p", 1), row("d/y.p", 1000)]);
        assert!(alone[0].overview.outliers.is_empty() && !alone[0].is_one);
        assert!(by_job(Vec::new()).is_empty());
    }
}
