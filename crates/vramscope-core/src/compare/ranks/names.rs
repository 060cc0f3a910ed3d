//! Reads the rank from the name of a file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The rank in a file name: the number after the word "rank" (`ddp_rank3.pickle`, `snap.rank.4.pickle`), or after a separate `r`
/// (`mem_r12.pickle`). Any other number may be a time, a step or a version.
pub fn rank_of_name(file: &str) -> Option<u32> {
    file.get(rank_span(file)?)?.parse().ok()
}

/// The ranks of neighbouring files. For each file, the first of these sources that names a rank decides:
///
/// * the file's name by itself ([`rank_of_name`]);
/// * the folder's name, for one folder per rank, or that above it: `rank_0/snapshot.pickle`, `rank0/step5/pid401.pickle`;
/// * the last number of the name, if the files of that folder that differ in nothing else are numbered from 0 without large gaps:
///   `mem_0.pickle`, `mem_1.pickle`. At most a fifth may be missing, because a killed process writes nothing;
/// * folders whose whole name is such a number: `0/snapshot.pickle`, `1/snapshot.pickle`.
pub fn ranks_of_names(files: &[PathBuf]) -> Vec<Option<u32>> {
    let name_of = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder_of = |file: &Path| name_of(file.parent().unwrap_or(Path::new("")));
    let above = |file: &Path| folder_of(file.parent().unwrap_or(Path::new("")));
    let by_word = |file: &PathBuf| [name_of(file), folder_of(file), above(file)].iter().find_map(|name| rank_of_name(name));
    let mut ranks: Vec<Option<u32>> = files.iter().map(by_word).collect();
    number(&mut ranks, |i| {
        let name = name_of(&files[i]);
        let name = unpacked_name(&name);
        let span = last_span(name)?;
        Some((files[i].parent()?.to_path_buf(), without(name, span.clone()), name[span].parse().ok()?))
    });
    number(&mut ranks, |i| {
        let folders = files[i].parent()?.parent()?;
        Some((folders.to_path_buf(), name_of(&files[i]), folder_of(&files[i]).parse().ok()?))
    });
    ranks
}

/// Makes each file's number its rank, for groups of files numbered from 0 without large gaps. `of` gives a file's group and number.
fn number(ranks: &mut [Option<u32>], of: impl Fn(usize) -> Option<(PathBuf, String, u32)>) {
    let mut alike: BTreeMap<(PathBuf, String), Vec<(usize, u32)>> = BTreeMap::new();
    for i in (0..ranks.len()).filter(|&i| ranks[i].is_none()) {
        if let Some((folder, name, number)) = of(i) {
            alike.entry((folder, name)).or_default().push((i, number));
        }
    }
    for group in alike.into_values() {
        let mut numbers: Vec<u32> = group.iter().map(|(_, n)| *n).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let many = group.len() as u32;
        let is_dense = numbers.first() == Some(&0) && numbers.last().is_some_and(|&last| last < many + many / 4);
        if many >= 2 && numbers.len() == group.len() && is_dense {
            for (i, number) in group {
                ranks[i] = Some(number);
            }
        }
    }
}

/// The position of the rank in a name.
pub(super) fn rank_span(file: &str) -> Option<Range<usize>> {
    // Lower-casing only ASCII keeps byte positions.
    let lower = file.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    let digits = |from: usize| from..from + lower[from..].bytes().take_while(u8::is_ascii_digit).count();
    let fits = |span: &Range<usize>| lower[span.clone()].parse::<u32>().is_ok();
    let after_word = lower.match_indices("rank").find_map(|(at, word)| {
        let rest = &lower[at + word.len()..];
        let from = lower.len() - rest.trim_start_matches(['_', '-', '.', '=', ' ']).len();
        // "frank3" contains no rank; "localrank3" and "myRank3" do.
        let begins = at == 0
            || !bytes[at - 1].is_ascii_lowercase()
            || file.as_bytes()[at].is_ascii_uppercase()
            || ["local", "global"].iter().any(|w| lower[..at].ends_with(w));
        Some(digits(from)).filter(|span| begins && fits(span))
    });
    after_word.or_else(|| {
        lower.match_indices('r').find_map(|(at, _)| {
            let span = digits(at + 1);
            let is_apart = (at == 0 || !bytes[at - 1].is_ascii_alphanumeric())
                && bytes.get(span.end).is_none_or(|b| !b.is_ascii_alphanumeric());
            Some(span).filter(|span| is_apart && span.len() <= 5 && fits(span))
        })
    })
}

/// The position of the last number in a name, unless the word before it shows that it counts something else.
pub(super) fn last_span(file: &str) -> Option<Range<usize>> {
    let end = file.rfind(|c: char| c.is_ascii_digit())? + 1;
    let from =
        file[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + file[at..].chars().next().map_or(1, char::len_utf8));
    let before = file[..from].trim_end_matches(['_', '-', '.', '=', ' ']).to_ascii_lowercase();
    const OTHERS: [&str; 10] = ["step", "steps", "iter", "iteration", "epoch", "batch", "pid", "version", "run", "attempt"];
    let word = before.rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    (!OTHERS.contains(&word)).then_some(from..end)
}

pub(super) fn unpacked_name(file: &str) -> &str {
    let end = [".gz", ".zst"].into_iter().find(|end| file.to_ascii_lowercase().ends_with(end));
    end.map_or(file, |end| &file[..file.len() - end.len()])
}

/// The name without its first word if `vramscope run --at-oom` wrote it: the cause at each rank, because one rank runs out of
/// memory and the others are told to end. Other names are unchanged.
pub(super) fn without_cause(file: &str) -> &str {
    const CAUSES: [&str; 5] = ["oom", "exception", "sigterm", "sigint", "asked"];
    let rest = file.split_once('_').filter(|(word, rest)| CAUSES.contains(word) && rest.starts_with("rank"));
    rest.map_or(file, |(_, rest)| rest)
}

/// The name with `*` for the process's number: each rank has another.
pub(super) fn without_pid(file: &str) -> String {
    let at = file.find("pid").map_or(0, |at| at + file[at..].find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(0));
    let digits = file[at..].bytes().take_while(u8::is_ascii_digit).count();
    if at > 0 && digits > 0 { without(file, at..at + digits) } else { file.to_owned() }
}

/// The name with `*` for a part of it.
pub(super) fn without(file: &str, span: Range<usize>) -> String {
    format!("{}*{}", &file[..span.start], &file[span.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_say_so_tell_a_rank() {
        for (name, rank) in [
            ("ddp_rank3.pickle", Some(3)),
            ("snapshot_Rank-12_step40.pkl", Some(12)),
            ("crank_rank_7.pickle", Some(7)),
            ("snap.rank.4.pickle", Some(4)),
            ("frank_rank3.pickle", Some(3)),
            ("rank=5.json.gz", Some(5)),
            ("rank0", Some(0)),
            ("RANK_511_of_512.pickle", Some(511)),
            ("localrank2.pickle", Some(2)),
            ("memRank6.pickle", Some(6)),
            ("mem_r12.pickle", Some(12)),
            ("r3.pickle", Some(3)),
            ("oom_1700000000.pickle", None),
            ("step_100.pickle", None),
            ("x110", None),
            ("frank3.pickle", None),
            ("mem.2026.7.pickle", None),
            ("resnet50.pickle", None),
            ("torch2.15.0_s.pickle", None),
            ("snapshot.pickle", None),
            ("rank.pickle", None),
            ("rank99999999999.pickle", None),
        ] {
            assert_eq!(rank_of_name(name), rank, "{name}");
        }
    }

    #[test]
    fn a_last_number_is_a_rank_where_the_files_are_numbered_from_0() {
        let ranks = |names: &[&str]| ranks_of_names(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(ranks(&["d/mem_0.p", "d/mem_1.p", "d/mem_2.p"]), [Some(0), Some(1), Some(2)]);
        assert_eq!(ranks(&["d/mem_0.p", "d/mem_1.p", "d/mem_2.p", "d/mem_4.p"]), [Some(0), Some(1), Some(2), Some(4)]);
        assert_eq!(ranks(&["d/oom_1700000000.p", "d/oom_1700000001.p"]), [None, None]);
        assert_eq!(ranks(&["d/mem_0.p", "d/mem_9.p"]), [None, None]);
        assert_eq!(ranks(&["d/step_0.p", "d/step_1.p"]), [None, None]);
        assert_eq!(ranks(&["d/mem_0.p", "e/mem_1.p"]), [None, None], "two folders are two jobs");
        assert_eq!(ranks(&["d/mem_0.p"]), [None]);
        assert_eq!(ranks(&["d/0/s.p", "d/1/s.p", "e/7/s.p"]), [Some(0), Some(1), None], "a folder a rank");
        assert_eq!(ranks(&["d/rank_3/s.p", "d/rank_3/stats.json", "d/step_0/s.p"]), [Some(3), Some(3), None]);
        assert_eq!(ranks(&["d/rank1/step5/pid401.p", "rank1/d/step5/pid401.p"]), [Some(1), None]);
        assert_eq!(ranks(&["d/a_rank3.p", "d/mem_0.p", "d/mem_1.p"]), [Some(3), Some(0), Some(1)]);
    }
}
