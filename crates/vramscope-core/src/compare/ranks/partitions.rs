//! The place of a recording in a data set of many: job, rank, and the training step in its name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::jobs::begins;
use super::names::{last_span, rank_span, without};
use super::{Job, RankRow, by_job, pending, ranks_of_names};

/// Job, rank and step of one recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Only letters of any script, digits, `_`, `-` and `.`, which every file system and every reader of Hive partitions accepts.
    pub job: String,
    /// The rank in its job; `None` if unknown.
    pub rank: Option<u32>,
    /// The number after `step`, `iteration`, `iter` or `epoch` in the file's name, otherwise in its folder's name.
    pub step: Option<u64>,
}

/// The partitions of files below `root`, with the jobs of [`by_job`]. `told` returns the rows of a file (without curves is
/// enough); it is called only for files whose names contain no rank. A file that belongs to no job becomes a job of its own.
pub fn partitions(root: &Path, files: &[PathBuf], mut told: impl FnMut(&Path) -> Vec<RankRow>) -> Vec<Partition> {
    let named = ranks_of_names(files);
    let rows = files.iter().zip(&named).flat_map(|(path, rank)| {
        let rows = if rank.is_none() { told(path) } else { Vec::new() };
        if rows.is_empty() { vec![pending(path).of_its_run()] } else { rows }
    });
    let mut of_file: BTreeMap<PathBuf, Partition> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for Job { name, rows, is_one, .. } in by_job(rows.collect()) {
        let name = rows.first().and_then(|row| name.strip_suffix(&begins(row)?)).unwrap_or(&name).to_owned();
        let several = is_one && rows.iter().any(|r| r.path != rows[0].path);
        let pattern = several.then(|| name.rsplit('/').next().unwrap_or(&name).to_owned());
        for group in rows.chunk_by(|a, b| several || a.path == b.path) {
            let Some(first) = group.first() else { continue };
            let pattern = pattern.clone().unwrap_or_else(|| pattern_of(&first.file));
            let folder = shared_folder(group).strip_prefix(root).map(Path::to_path_buf).unwrap_or_default();
            let job = unlike(&mut taken, job_name(&folder, &pattern));
            for row in group {
                let same: Vec<_> = group.iter().filter(|r| r.path == row.path).map(|r| r.rank).collect();
                // A file with several devices has no single rank, unless it contains one.
                let rank = row.rank.filter(|_| same.iter().all(|r| *r == row.rank));
                let below = row.path.strip_prefix(root).unwrap_or(&row.path);
                of_file.insert(row.path.clone(), Partition { job: job.clone(), rank, step: step_of(below) });
            }
        }
    }
    files.iter().map(|path| of_file.get(path).cloned().unwrap_or_default()).collect()
}

/// The deepest folder that contains all rows: for a job with a folder per node, the one that holds the nodes.
fn shared_folder(rows: &[RankRow]) -> PathBuf {
    let mut folders = rows.iter().filter_map(|row| row.path.parent());
    let first = folders.next().unwrap_or(Path::new(""));
    let shared = |a: &Path, b: &Path| -> PathBuf { a.iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a).collect() };
    folders.fold(first.to_path_buf(), |so_far, other| shared(&so_far, other))
}

/// The job name of a single file. `is_rank_known`: its rank is known, so a last number is taken to be the rank.
pub fn job_of_file(file: &str, is_rank_known: bool) -> String {
    let span = rank_span(file).or_else(|| last_span(file).filter(|_| is_rank_known));
    job_name(Path::new(""), &span.map_or_else(|| file.to_owned(), |span| without(file, span)))
}

fn pattern_of(file: &str) -> String {
    rank_span(file).map_or_else(|| file.to_owned(), |span| without(file, span))
}

/// Combines `iteration_10` and `ddp_rank*.pickle` into `iteration_10-ddp`.
fn job_name(folder: &Path, pattern: &str) -> String {
    let mut name = pattern.to_owned();
    const ENDINGS: [&str; 12] =
        [".gz", ".zst", ".zip", ".pickle", ".pkl", ".json", ".csv", ".html", ".vramscope", ".trace", ".pt", ".p"];
    while let Some(end) = ENDINGS.iter().find(|end| name.to_ascii_lowercase().ends_with(**end)) {
        name.truncate(name.len() - end.len());
    }
    // The word before the star is removed with it.
    if let Some(star) = name.find('*') {
        let before = name[..star].trim_end_matches(['_', '-', '.', '=', ' ']);
        let lower = before.to_ascii_lowercase();
        let word = ["local_rank", "global_rank", "localrank", "globalrank", "rank"].into_iter().find(|w| lower.ends_with(w));
        let keep = match word {
            Some(word) => before.len() - word.len(),
            None if lower == "r" || lower.ends_with(['_', '-', '.']) => before.len(),
            None if lower.ends_with("_r") || lower.ends_with("-r") || lower.ends_with(".r") => before.len() - 1,
            None => before.len(),
        };
        name = format!("{}_{}", &before[..keep], &name[star + 1..]);
    }
    let folders = folder.iter().map(|part| part.to_string_lossy().into_owned());
    let parts: Vec<String> = folders.chain([name]).map(|part| safe(&part)).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "job".to_owned() } else { parts.join("-") }
}

/// True for a name that can stand in a partition's folder.
pub fn is_job_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let c = if c.is_alphanumeric() || matches!(c, '-' | '.') { c } else { '_' };
        if !(c == '_' && out.ends_with('_')) {
            out.push(c);
        }
    }
    out.trim_matches(['_', '-', '.']).to_owned()
}

/// The name, with a number appended if another job has it.
fn unlike(taken: &mut BTreeSet<String>, name: String) -> String {
    let mut job = name.clone();
    let mut n = 1;
    while !taken.insert(job.clone()) {
        n += 1;
        job = format!("{name}-{n}");
    }
    job
}

fn step_of(path: &Path) -> Option<u64> {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy().to_ascii_lowercase()).collect();
    parts.iter().rev().find_map(|part| {
        ["step", "iteration", "iter", "epoch"].into_iter().find_map(|word| {
            let (_, rest) = part.rsplit_once(word)?;
            let rest = rest.trim_start_matches(['s', '_', '-', '.', '=', ' ']);
            rest[..rest.bytes().take_while(u8::is_ascii_digit).count()].parse().ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Job, rank and step of each file, `-` where there is none.
    fn of(files: &[&str]) -> String {
        let files: Vec<PathBuf> = files.iter().map(|f| Path::new("d").join(f)).collect();
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let told = |p: Partition| format!("{} {} {}", p.job, number(p.rank.map(u64::from)), number(p.step));
        partitions(Path::new("d"), &files, |_| Vec::new()).into_iter().map(told).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn jobs_and_steps_stand_apart() {
        let jobs = ["ddp_rank0.pickle", "ddp_rank1.pickle", "fsdp_rank0.pickle", "fsdp_rank1.pickle", "two_gpus.pickle"];
        assert_eq!(of(&jobs), "ddp 0 -, ddp 1 -, fsdp 0 -, fsdp 1 -, two_gpus - -");
        let folders = ["iteration_10/rank0.p", "iteration_10/rank1.p", "iteration_20/rank0.p", "iteration_20/rank1.p"];
        assert_eq!(of(&folders), "iteration_10 0 10, iteration_10 1 10, iteration_20 0 20, iteration_20 1 20");
        let steps = ["rank0_step9.pkl", "rank1_step9.pkl", "rank0_step10.pkl", "rank1_step10.pkl"];
        assert_eq!(of(&steps), "step9 0 9, step9 1 9, step10 0 10, step10 1 10");
        assert_eq!(of(&["mem_0.p", "mem_1.p"]), "mem 0 -, mem 1 -");
        assert_eq!(of(&["n0/rank0.pickle", "n1/rank1.pickle"]), "job 0 -, job 1 -", "a folder a node");
        // Two files of one name in different folders, and characters that are not allowed in a partition.
        assert_eq!(of(&["a/x y.pickle", "b/x=y.pickle"]), "a-x_y - -, b-x_y - -");
    }

    #[test]
    fn a_file_on_its_own_is_of_the_job_its_name_tells() {
        for (file, is_known, job) in [
            ("ddp_rank3.pickle", false, "ddp"),
            ("mem_r12.pickle.gz", false, "mem"),
            ("mem_3.pickle", false, "mem_3"),
            ("mem_3.pickle", true, "mem"),
            ("rank0.pickle", false, "job"),
            ("snapshot.pickle", false, "snapshot"),
        ] {
            assert_eq!(job_of_file(file, is_known), job, "{file}");
        }
    }
}
