//! Decides the rank of each row; no other place does.
//!
//! In this order: what a trace says about itself; what the file's name says, alone or among its neighbours ([`ranks_of_names`]);
//! and within a job whose names contain no rank, the device, if no two rows have the same one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{RankRow, ranks_of_names};

/// Sets every row's rank from its recording or its file's name, or to `None`; returns what the names say.
pub(super) fn by_recording_and_name(rows: &mut [RankRow]) -> BTreeMap<PathBuf, Option<u32>> {
    let files: Vec<PathBuf> = rows.iter().map(|r| r.path.clone()).collect::<BTreeSet<_>>().into_iter().collect();
    let named: BTreeMap<PathBuf, Option<u32>> = files.iter().cloned().zip(ranks_of_names(&files)).collect();
    for row in rows {
        row.rank = row.told_rank.or_else(|| named.get(&row.path).copied().flatten());
    }
    named
}

/// Uses device numbers as ranks within one job, if no rank is known and each row has another device: a snapshot per local rank.
/// The device of a file is unknown until it is read.
pub(super) fn by_device(rows: &mut [RankRow]) {
    let devices: BTreeSet<i32> = rows.iter().map(|r| r.device).collect();
    if devices.len() == rows.len() && rows.iter().all(|r| r.rank.is_none() && !r.is_pending) {
        for row in rows {
            row.rank = u32::try_from(row.device).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_ranks_where_nothing_else_tells_one() {
        let of = |device| RankRow { device, file: "s.pickle".into(), ..RankRow::default() };
        let mut rows = [of(3), of(1), of(2)];
        by_device(&mut rows);
        assert_eq!(rows.each_ref().map(|r| r.rank), [Some(3), Some(1), Some(2)]);
        let mut same = [of(1), of(1)];
        by_device(&mut same);
        assert_eq!(same.each_ref().map(|r| r.rank), [None, None]);
        let mut unread = [RankRow { is_pending: true, ..of(0) }];
        by_device(&mut unread);
        assert_eq!(unread[0].rank, None, "its device is not known yet");
    }

    #[test]
    fn a_trace_knows_better_than_its_name() {
        let named = |file: &str, told_rank| RankRow { path: file.into(), file: file.into(), told_rank, ..RankRow::default() };
        let mut rows = [named("a_rank0.json", Some(4)), named("a_rank1.json", None), named("b.json", None)];
        by_recording_and_name(&mut rows);
        assert_eq!(rows.each_ref().map(|r| r.rank), [Some(4), Some(1), None]);
    }
}
