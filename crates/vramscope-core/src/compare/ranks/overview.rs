//! Summary of the ranks of one job: the median, outliers, and which rank ran out of memory first.

use super::RankRow;
use crate::units::{Bytes, counted};

/// A peak is an outlier if it differs from the median by more than this share of the median.
pub const OUTLIER_SHARE: f64 = 0.10;

/// Number of outliers that a sentence names; of more it gives the count.
const NAMED: usize = 3;

/// Number of failed ranks that a sentence names.
const FAILED_NAMED: usize = 8;

/// A rank stands apart if fewer than this share of the ranks, itself included, have a peak like its own or like one of its group.
const CROWD_SHARE: f64 = 1.0 / 8.0;

/// Maximum share of ranks that may stand apart; with more, nothing is usual.
const APART_SHARE: f64 = 1.0 / 4.0;

/// Maximum number of groups that are listed.
const GROUPS: usize = 4;

/// The distribution of peaks, if the median is not typical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// Groups, each within [`OUTLIER_SHARE`] of its own median, lowest first, as row indices. Rows in no group are outliers.
    Groups(Vec<Vec<usize>>),
    /// Anywhere between these lowest and highest bytes, outliers excluded.
    Spread(u64, u64),
}

/// Summary of the rows. Cheap: recomputed whenever a row arrives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Median of the reserved peaks of complete files.
    pub median_peak: u64,
    /// Rows whose peak differs from the median by more than [`OUTLIER_SHARE`]; with a `division`, those far from all others.
    pub outliers: Vec<usize>,
    /// The distribution, if more than half of the peaks are far from the median, or if they form groups.
    pub division: Option<Division>,
    /// The row that ran out of memory first: by time if all failed rows have times, otherwise the lowest failed rank.
    pub first_oom: Option<usize>,
    /// True when `first_oom` is decided by time.
    pub is_first_by_time: bool,
    /// Number of rows that ran out of memory.
    pub failed: usize,
    /// The row with the highest peak, among complete files.
    pub highest: Option<usize>,
    /// Number of truncated files. Their peaks may have come later, so they are excluded from the median and the outliers.
    pub cut_short: usize,
    /// The summary in one sentence.
    pub sentence: String,
}

/// Summary of sorted rows; pending rows are ignored. O(rows · log rows).
pub fn overview(rows: &[RankRow]) -> Overview {
    if rows.iter().all(|r| r.is_pending) {
        return Overview::default();
    }
    let tells = |r: &RankRow| !r.is_pending && !r.is_reserved_unknown && !r.is_cut_short;
    let mut whole: Vec<usize> = (0..rows.len()).filter(|&i| tells(&rows[i])).collect();
    let median = median(rows, &mut whole);
    let away = |peak: u64| peak.abs_diff(median) as f64 / median.max(1) as f64;
    let mut outliers: Vec<usize> = whole.iter().copied().filter(|&i| away(rows[i].peak_reserved) > OUTLIER_SHARE).collect();
    outliers.sort_unstable();
    let is_nobodys = outliers.len() * 2 > whole.len();
    let (divided, apart) = divide(rows, &whole);
    // Two large groups count also if the median lies near one of them: otherwise the other one would hide true outliers.
    let are_crowds = |division: &Division| match division {
        Division::Groups(groups) => {
            groups.len() > 1 && groups.iter().all(|group| group.len() > 1 && group.len() * 4 > whole.len())
        }
        Division::Spread(..) => false,
    };
    let division = (is_nobodys || (!outliers.is_empty() && are_crowds(&divided))).then_some(divided);
    if division.is_some() {
        outliers = apart;
    }
    let failed: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].ooms > 0).collect();
    let is_first_by_time = !failed.is_empty() && failed.iter().all(|&i| rows[i].first_oom_us.is_some());
    let first_oom =
        if is_first_by_time { failed.iter().copied().min_by_key(|&i| rows[i].first_oom_us) } else { failed.first().copied() };
    let highest = whole.iter().copied().max_by_key(|&i| (rows[i].peak_reserved, std::cmp::Reverse(i)));
    let mut overview = Overview {
        median_peak: median,
        outliers,
        division,
        first_oom,
        is_first_by_time,
        failed: failed.len(),
        highest,
        cut_short: rows.iter().filter(|r| r.is_cut_short).count(),
        sentence: String::new(),
    };
    overview.sentence = sentence(rows, &overview, failed);
    overview
}

/// The median peak of some rows (of an even number, the mean of the middle two; 0 without rows). Sorts the rows by peak.
fn median(rows: &[RankRow], which: &mut [usize]) -> u64 {
    which.sort_by_key(|&i| (rows[i].peak_reserved, i));
    let at = |i: usize| which.get(i).map_or(0, |&i| rows[i].peak_reserved);
    at(which.len().saturating_sub(1) / 2).midpoint(at(which.len() / 2))
}

/// The distribution of sorted peaks, and the rows (in order of rank) that are far from all others. O(rows · log rows).
fn divide(rows: &[RankRow], sorted: &[usize]) -> (Division, Vec<usize>) {
    let peak = |i: usize| rows[i].peak_reserved;
    let crowd = (sorted.len() as f64 * CROWD_SHARE).ceil().max(2.0) as usize;
    // With two or three ranks, each may be a group of its own.
    if let Some(two) = halves(rows, sorted, crowd.min(sorted.len() / 2)) {
        return (Division::Groups(two), Vec::new());
    }
    let is_like = |a: usize, b: usize| peak(a).abs_diff(peak(b)) as f64 <= OUTLIER_SHARE * peak(a).min(peak(b)) as f64;
    // Rows with similar peaks are consecutive in this order.
    let usual: Vec<usize> = (0..sorted.len())
        .filter(|&at| {
            let from = sorted[..at].partition_point(|&i| !is_like(i, sorted[at]));
            let to = at + sorted[at..].partition_point(|&i| is_like(i, sorted[at]));
            to - from >= crowd
        })
        .map(|at| sorted[at])
        .collect();
    let is_usual = |i: usize| {
        let at = usual.partition_point(|&u| (peak(u), u) < (peak(i), i));
        [at.checked_sub(1), Some(at)].into_iter().flatten().filter_map(|n| usual.get(n)).any(|&u| is_like(u, i))
    };
    let (near, mut apart): (Vec<usize>, Vec<usize>) = sorted.iter().partition(|&&i| is_usual(i));
    let (near, apart) = match apart.len() as f64 > APART_SHARE * sorted.len() as f64 {
        true => (sorted.to_vec(), Vec::new()),
        false => {
            apart.sort_unstable();
            (near, apart)
        }
    };
    let groups: Vec<Vec<usize>> = near.chunk_by(|&a, &b| is_like(a, b)).map(<[usize]>::to_vec).collect();
    let of_one_kind: Option<Vec<Vec<usize>>> = groups.into_iter().map(|group| close(rows, group, 2)).collect();
    let division = match of_one_kind.filter(|groups| (1..=GROUPS).contains(&groups.len())) {
        Some(groups) => Division::Groups(groups),
        None => Division::Spread(near.first().map_or(0, |&i| peak(i)), near.last().map_or(0, |&i| peak(i))),
    };
    (division, apart)
}

/// Splits sorted peaks at the widest gap, if both halves are groups of similar peaks with at least `least` rows.
fn halves(rows: &[RankRow], sorted: &[usize], least: usize) -> Option<Vec<Vec<usize>>> {
    let gap = |at: &usize| (rows[sorted[*at]].peak_reserved - rows[sorted[at - 1]].peak_reserved, std::cmp::Reverse(*at));
    let (low, high) = sorted.split_at((1..sorted.len()).max_by_key(gap)?);
    [low, high].into_iter().map(|group| close(rows, group.to_vec(), least)).collect()
}

/// A group in order of rank, if it has at least `least` rows and all are within [`OUTLIER_SHARE`] of its median.
fn close(rows: &[RankRow], mut group: Vec<usize>, least: usize) -> Option<Vec<usize>> {
    let middle = median(rows, &mut group);
    let is_near = |i: &usize| rows[*i].peak_reserved.abs_diff(middle) as f64 <= OUTLIER_SHARE * middle as f64;
    let is_close = group.len() >= least && group.iter().all(is_near);
    group.sort_unstable();
    is_close.then_some(group)
}

/// The name of a row: `rank 3`, or the file's name if it has no rank or several rows have the same (two runs in one folder).
pub fn name_among(rows: &[RankRow], at: usize) -> String {
    let row = &rows[at];
    match row.rank {
        Some(rank) if rows.iter().filter(|r| r.rank == row.rank).count() == 1 => format!("rank {rank}"),
        _ => row.file.clone(),
    }
}

fn sentence(rows: &[RankRow], o: &Overview, failed: Vec<usize>) -> String {
    let mut text = failures(rows, o, failed);
    if o.highest.is_none() {
        text += match rows.iter().any(|r| !r.is_pending && !r.is_cut_short) {
            true => ". What was reserved is not in these files.",
            false if o.cut_short == 1 => ". Its file breaks off, so its peak may have come later.",
            false => ". Every file breaks off, so the peaks may have come later and are not compared.",
        };
        return text;
    }
    match &o.division {
        None => text += &format!(". The median peak is {} reserved{}", Bytes(o.median_peak), outliers(rows, o)),
        Some(Division::Groups(groups)) => {
            let told: Vec<String> = groups.iter().map(|which| group(rows, which)).collect();
            text += ". The peaks of reserved memory are ";
            text += &match told.as_slice() {
                [one] => format!("alike in {one}"),
                [low, high] => format!("in two groups: {low} and {high}"),
                [first @ .., last] => format!("in {} groups: {} and {last}", told.len(), first.join(", ")),
                [] => String::new(),
            };
            text += &apart(rows, o);
        }
        Some(Division::Spread(low, high)) => {
            text += &format!(". The peaks of reserved memory lie apart, from {} to {}", Bytes(*low), Bytes(*high));
            text += &apart(rows, o);
        }
    }
    if o.cut_short > 0 {
        let cut: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].is_cut_short).collect();
        let seen = if o.division.is_some() { "compared" } else { "in the median" };
        let which = listed(rows, &cut, NAMED);
        text += &match cut.len() {
            1 => format!(". The file of {which} breaks off and is not {seen}: its peak may have come later"),
            _ => format!(". The files of {which} break off and are not {seen}: their peaks may have come later"),
        };
    }
    text.push('.');
    text
}

/// Which ranks ran out of memory, the first one first.
fn failures(rows: &[RankRow], o: &Overview, mut failed: Vec<usize>) -> String {
    let many = counted(rows.iter().filter(|r| !r.is_pending).count() as u64, "rank", "ranks");
    let Some(first) = o.first_oom else { return format!("None of {many} ran out of memory") };
    let asked = match rows[first].first_oom_bytes {
        0 => String::new(),
        bytes => format!(", asking for {}", Bytes(bytes)),
    };
    let out = format!("{} of {many} ran out of memory", o.failed);
    if o.failed == 1 {
        return format!("{out}: {}{asked}", name_among(rows, first));
    }
    if !o.is_first_by_time {
        return format!("{out}: {}; without times, which was first is not known", listed(rows, &failed, FAILED_NAMED));
    }
    failed.retain(|&i| i != first);
    failed.sort_by_key(|&i| (rows[i].first_oom_us, i));
    format!("{out}: {} first{asked}, then {}", name_among(rows, first), listed(rows, &failed, FAILED_NAMED - 1))
}

/// The part of the sentence about outliers relative to the median.
fn outliers(rows: &[RankRow], o: &Overview) -> String {
    let share = format!("{:.0}\u{a0}%", OUTLIER_SHARE * 100.0);
    if o.outliers.is_empty() {
        return format!("; all are within {share} of it");
    }
    let (mut above, below): (Vec<usize>, Vec<usize>) = o.outliers.iter().partition(|&&i| rows[i].peak_reserved > o.median_peak);
    let mut text = String::new();
    if let Some(i) = o.highest.filter(|i| above.contains(i)) {
        above.retain(|&other| other != i);
        let more = (rows[i].peak_reserved as f64 / o.median_peak.max(1) as f64 - 1.0) * 100.0;
        let (name, peak) = (name_among(rows, i), Bytes(rows[i].peak_reserved));
        text += &format!("; {name} reserved the most, {peak} or {more:.0}\u{a0}% above it");
    }
    for (which, where_) in [(above, "above"), (below, "below")] {
        let is = if which.len() == 1 { "is" } else { "are" };
        let who = if which.len() > NAMED { counted(which.len() as u64, "rank", "ranks") } else { listed(rows, &which, NAMED) };
        if !which.is_empty() {
            text += &format!("; {who} {is} more than {share} {where_} it");
        }
    }
    text
}

/// The part of the sentence about rows far from all others: the lowest peak first.
fn apart(rows: &[RankRow], o: &Overview) -> String {
    let mut which = o.outliers.clone();
    which.sort_by_key(|&i| (rows[i].peak_reserved, i));
    let mut told: Vec<String> =
        which.iter().take(NAMED).map(|&i| format!("{} at {}", name_among(rows, i), Bytes(rows[i].peak_reserved))).collect();
    if which.len() > NAMED {
        told.push(counted((which.len() - NAMED) as u64, "more", "more"));
    }
    match told.split_last() {
        Some((last, [])) => format!("; {last} is like none of them"),
        Some((last, others)) => format!("; {} and {last} are like none of them", others.join(", ")),
        None => String::new(),
    }
}

/// `rank 3 at 100 MiB`, `ranks 0 and 1 about 120 MiB`, `256 ranks about 3.1 GiB`.
fn group(rows: &[RankRow], which: &[usize]) -> String {
    let middle = Bytes(median(rows, &mut which.to_vec()));
    match which.len() {
        1 => format!("{} at {middle}", listed(rows, which, 1)),
        n if n <= NAMED => format!("{} about {middle}", listed(rows, which, NAMED)),
        n => format!("{} about {middle}", counted(n as u64, "rank", "ranks")),
    }
}

/// `rank 3`, `ranks 3 and 5`, `ranks 3, 5, 8 and 2 more`; file names if ranks do not distinguish the rows.
fn listed(rows: &[RankRow], which: &[usize], most: usize) -> String {
    let names: Vec<String> = which.iter().take(most).map(|&i| name_among(rows, i)).collect();
    let are_ranks = which.len() > 1 && names.iter().all(|name| name.starts_with("rank "));
    let mut words: Vec<String> =
        names.into_iter().map(|name| if are_ranks { name.trim_start_matches("rank ").to_owned() } else { name }).collect();
    if which.len() > most {
        words.push(counted((which.len() - most) as u64, "more", "more"));
    }
    let text = match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    };
    if are_ranks { format!("ranks {text}") } else { text }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{by_job, pending, sort};
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

    fn said(rows: &[RankRow]) -> String {
        overview(rows).sentence.replace(NBSP, " ")
    }

    /// Ranks from 0 with these peaks in MiB.
    fn peaks(peaks: &[u64]) -> Vec<RankRow> {
        peaks.iter().enumerate().map(|(i, &p)| row(i as u32, p << 20, None)).collect()
    }

    #[test]
    fn the_first_to_fail_is_the_earliest_and_all_are_named() {
        let mut rows =
            vec![row(2, 100 << 20, Some(50)), row(0, 100 << 20, None), row(1, 130 << 20, Some(40)), row(3, 99 << 20, None)];
        sort(&mut rows);
        let o = overview(&rows);
        assert_eq!((o.first_oom, o.failed, o.is_first_by_time), (Some(1), 2, true));
        assert_eq!((o.median_peak, o.outliers.as_slice()), (100 << 20, [1].as_slice()));
        assert_eq!(
            said(&rows),
            "2 of 4 ranks ran out of memory: rank 1 first, asking for 1 MiB, then rank 2. The median peak is 100 MiB reserved; rank 1 \
             reserved the most, 130 MiB or 30 % above it."
        );
        let two = [row(0, 3504 << 20, None), row(1, 3182 << 20, None)];
        assert_eq!(overview(&two).median_peak, 3343 << 20);
        assert_eq!(overview(&peaks(&[1, 7, 5, 9])).median_peak, 6 << 20);
        rows[1].first_oom_us = None;
        assert!(!overview(&rows).is_first_by_time);
        assert!(
            said(&rows)
                .starts_with("2 of 4 ranks ran out of memory: ranks 1 and 2; without times, which was first is not known.")
        );
        assert_eq!(overview(&[]), Overview::default());
        let crowd: Vec<RankRow> = (0..20).map(|rank| row(rank, 1, Some(i64::from(rank)))).collect();
        assert!(said(&crowd).contains("rank 0 first, asking for 1 MiB, then ranks 1, 2, 3, 4, 5, 6, 7 and 12 more."));
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
        assert!(said(&jobs[0].rows).starts_with("1 of 1 rank ran out of memory: rank 2, asking for 1 MiB."), "{}", o.sentence);
    }

    #[test]
    fn a_few_outliers_are_named_and_many_counted() {
        assert!(said(&peaks(&[100, 100, 100, 120, 130, 80, 70, 100])).ends_with(
            "rank 4 reserved the most, 130 MiB or 30 % above it; rank 3 is more than 10 % above it; ranks 5 and 6 are more than 10 % \
             below it."
        ));
        assert!(said(&peaks(&[100, 100, 100, 100, 100, 80, 70, 60, 50])).ends_with("; 4 ranks are more than 10 % below it."));
    }

    #[test]
    fn where_most_are_away_from_the_median_nobody_is_an_outlier() {
        let halves = peaks(&[100, 200, 102, 201, 99, 199]);
        let o = overview(&halves);
        assert_eq!(o.division, Some(Division::Groups(vec![vec![0, 2, 4], vec![1, 3, 5]])));
        assert!(o.outliers.is_empty());
        assert!(
            said(&halves)
                .ends_with("memory are in two groups: ranks 0, 2 and 4 about 100 MiB and ranks 1, 3 and 5 about 200 MiB."),
            "{}",
            said(&halves)
        );
        assert!(said(&peaks(&[100, 300])).ends_with("in two groups: rank 0 at 100 MiB and rank 1 at 300 MiB."));
        let ramp = peaks(&[100, 150, 200, 250, 300]);
        assert_eq!(overview(&ramp).division, Some(Division::Spread(100 << 20, 300 << 20)));
        assert!(said(&ramp).ends_with("lie apart, from 100 MiB to 300 MiB."));
        assert_eq!(overview(&peaks(&[100, 100, 100, 300])).division, None);
    }

    #[test]
    fn who_is_like_no_group_is_named() {
        // 31 and 31 healthy ranks in groups 10.1 % apart, one that stalled, one that failed early.
        let mut of: Vec<u64> = (0..64).map(|i| if i % 2 == 0 { 3504 } else { 3182 }).collect();
        (of[40], of[17]) = (250, 1664);
        let o = overview(&peaks(&of));
        assert_eq!(o.outliers, [17, 40]);
        assert!(matches!(&o.division, Some(Division::Groups(groups)) if groups.iter().map(Vec::len).eq([31, 31])), "{o:?}");
        assert!(
            said(&peaks(&of)).ends_with(
                "in two groups: 31 ranks about 3.11 GiB and 31 ranks about 3.42 GiB; rank 40 at 250 MiB and rank 17 at 1.63 GiB are like \
                 none of them."
            ),
            "{}",
            said(&peaks(&of))
        );
        // A single rank among many is no group.
        assert_eq!(overview(&peaks(&[3182, 3504, 3182, 3504, 3182, 3504, 3182, 3504, 250])).outliers, [8]);
        // The median is in the larger group; the smaller one must not hide outliers.
        let mut of: Vec<u64> = (0..64).map(|i| if i < 40 { 3504 } else { 2500 }).collect();
        of[63] = 250;
        assert_eq!(overview(&peaks(&of)).outliers, [63]);
        // On a ramp every rank is like its neighbours, except the last.
        let mut of: Vec<u64> = (0..40).map(|i| 1000 + 40 * i).collect();
        of[39] = 9000;
        let o = overview(&peaks(&of));
        assert_eq!((o.division, o.outliers), (Some(Division::Spread(1000 << 20, 2520 << 20)), vec![39]));
        let four = overview(&peaks(&[100, 100, 200, 200, 300, 300, 400, 400, 900]));
        assert!(matches!(&four.division, Some(Division::Groups(groups)) if groups.len() == 4), "{four:?}");
        assert_eq!(four.outliers, [8]);
    }

    #[test]
    fn a_file_that_breaks_off_is_no_measure() {
        let mut rows = peaks(&[100, 20, 101, 99]);
        rows[1].is_cut_short = true;
        let o = overview(&rows);
        assert_eq!((o.median_peak, o.outliers.len(), o.cut_short), (100 << 20, 0, 1));
        assert!(
            said(&rows).ends_with(
                "all are within 10 % of it. The file of rank 1 breaks off and is not in the median: its peak may have come later."
            ),
            "{}",
            said(&rows)
        );
        rows.iter_mut().for_each(|r| r.is_cut_short = true);
        assert!(said(&rows).ends_with("Every file breaks off, so the peaks may have come later and are not compared."));
        assert_eq!(overview(&rows).highest, None);
    }
}
