//! Reads many files at once in bounded memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use super::{RankRow, rows};
use crate::model::{Cancelled, Progress, Recording};

/// Budget of [`read_all`]: bytes of files, unpacked ([`crate::formats::unpacked_bytes`]), that may be read at once. Files are
/// held in memory while they are read; the recording made from one takes about half as much again.
pub const READ_BUDGET: u64 = 4 << 30;

/// Reads many files with one thread per core and passes each file's rows to `each`, in any order. `weigh` returns the bytes that
/// a file needs while it is read. Files read at the same time weigh at most `budget` together, so memory does not depend on the
/// number of ranks. A heavier file is read alone. Stops between files when cancelled.
pub fn read_all<E: Send>(
    files: &[PathBuf],
    budget: u64,
    progress: &Progress,
    weigh: impl Fn(&Path) -> u64 + Sync,
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
                    let Some(path) = files.get(at) else { break };
                    let bytes = weigh(path);
                    gate.enter(bytes);
                    // Building a file's tables reports to a progress of its own, because the shared one counts files.
                    let result = open(path).map(|recording| rows(&recording, path, &Progress::new()));
                    gate.leave(bytes);
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

/// Admits files as long as they fit into the budget together.
struct Gate {
    in_use: Mutex<u64>,
    freed: Condvar,
    budget: u64,
}

impl Gate {
    fn enter(&self, bytes: u64) {
        let Ok(mut in_use) = self.in_use.lock() else { return };
        while *in_use > 0 && in_use.saturating_add(bytes) > self.budget {
            match self.freed.wait(in_use) {
                Ok(guard) => in_use = guard,
                Err(_) => return,
            }
        }
        *in_use = in_use.saturating_add(bytes);
    }

    fn leave(&self, bytes: u64) {
        if let Ok(mut in_use) = self.in_use.lock() {
            *in_use = in_use.saturating_sub(bytes);
        }
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_answered_once_and_cancelling_stops() {
        let files: Vec<PathBuf> = (0..40).map(|i| PathBuf::from(format!("f_rank{i}"))).collect();
        let seen = Mutex::new(vec![0; files.len()]);
        let progress = Progress::new();
        let open = |p: &Path| if p.ends_with("f_rank7") { Err("odd") } else { Ok(Recording::default()) };
        read_all(
            &files,
            10,
            &progress,
            |_| 4,
            open,
            |i, result| {
                assert_eq!(result.is_err(), i == 7);
                seen.lock().unwrap()[i] += 1;
            },
        );
        assert!(seen.lock().unwrap().iter().all(|&n| n == 1));
        assert_eq!(progress.fraction(), Some(1.0));
        progress.cancel();
        read_all(&files, 10, &progress, |_| 4, open, |_, _| panic!("cancelled before it began"));
    }

    #[test]
    fn files_that_are_read_at_once_fit_the_budget() {
        let files: Vec<PathBuf> = (0..24).map(|i| PathBuf::from(i.to_string())).collect();
        let (now, most) = (Mutex::new(0u64), Mutex::new(0u64));
        let weigh = |p: &Path| 3 + p.to_string_lossy().parse::<u64>().unwrap() % 3;
        let open = |p: &Path| -> Result<Recording, ()> {
            let mut held = now.lock().unwrap();
            *held += weigh(p);
            let mut greatest = most.lock().unwrap();
            *greatest = (*greatest).max(*held);
            drop((held, greatest));
            std::thread::sleep(std::time::Duration::from_millis(1));
            *now.lock().unwrap() -= weigh(p);
            Ok(Recording::default())
        };
        read_all(&files, 7, &Progress::new(), weigh, open, |_, _| {});
        let most = *most.lock().unwrap();
        assert!((3..=7).contains(&most), "{most}");
    }
}
