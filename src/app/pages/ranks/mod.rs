//! The ranks page: a folder with one recording per rank. Rows fill in as files are read.
//!
//! As soon as the folder is listed, every file has a row in order of rank, and it keeps its place while the others are read.
//!
//! A page replaces the views of a tab. This one has no cursor and no device, only rows and small curves ([`RankRow`]). Opening a
//! rank opens its recording in another tab.

mod layout;
mod overlay;
mod page;
mod pictures;
mod rows;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel, sync_channel};

use crate::app::widgets::Sort;
pub use layout::{Column, Listed};
pub(in crate::app) use page::page_ui;

use crate::app::jobs::{Jobs, answered};
use vramscope_core::compare::ranks::{self, Job, Overview, RankRow};
use vramscope_core::formats;
use vramscope_core::model::Progress;

/// The index of a file and its rows, or one sentence of error.
type Answer = (usize, Result<Vec<RankRow>, String>);

pub struct Ranks {
    /// Progress in files read; cancelled when this is dropped.
    pub progress: Arc<Progress>,
    /// The recordings read so far, grouped by job, because ranks are only compared within one job.
    pub jobs: Vec<Job>,
    /// The name of the job that the user chose.
    pub wanted: Option<String>,
    shown: usize,
    /// Name of the job on screen, to find it again when rows arrive.
    on_screen: Option<String>,
    /// An empty overview for when no job was read yet.
    nothing: Overview,
    /// One sentence for each file that was not read.
    pub errors: Vec<String>,
    /// Files to read; empty until the folder is listed.
    pub files: Vec<PathBuf>,
    pub answered: usize,
    /// The rows chosen as A and B, by file and device index, which stay valid while rows arrive.
    pub chosen: [Option<(PathBuf, usize)>; 2],
    pub sort: Sort<Column>,
    pub listed: Listed,
    /// The row whose curve is scrolled into view in the next frame.
    reveal: Option<usize>,
    /// Indices into the shown job's rows, in display order.
    order: Vec<usize>,
    folder: Option<Receiver<Result<Vec<PathBuf>, String>>>,
    answers: Receiver<Answer>,
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.progress.cancel();
    }
}

impl Ranks {
    /// Reads the recordings of folders, patterns and files on threads.
    pub fn open(jobs: &Jobs, paths: Vec<PathBuf>) -> Self {
        let progress = Arc::new(Progress::new());
        // Holds at most one answer per file.
        let (sender, answers) = channel::<Answer>();
        let (tell, listed) = sync_channel(1);
        let shared = Arc::clone(&progress);
        let wake = jobs.clone();
        // The thread answers through the channels, so its own result is not needed.
        drop(jobs.spawn("ranks", move || {
            let mut paths = match formats::folder::recordings_in(&paths) {
                Ok(paths) => paths,
                Err(error) => {
                    let _ = tell.send(Err(error.to_string()));
                    return;
                }
            };
            // Files are read in display order: rank 2 before rank 10.
            let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            paths.sort_by_cached_key(|path| (ranks::rank_of_name(&name(path)).unwrap_or(u32::MAX), path.clone()));
            let _ = tell.send(Ok(paths.clone()));
            // Each file has its own progress, because the shared one counts files.
            let open = |path: &Path| formats::open(path, &Progress::new()).map_err(|e| e.to_string());
            let each = |at: usize, answer| {
                let _ = sender.send((at, answer));
                wake.wake();
            };
            ranks::read_all(&paths, ranks::READ_BUDGET, &shared, formats::unpacked_bytes, open, each);
        }));
        Ranks {
            progress,
            jobs: Vec::new(),
            wanted: None,
            shown: 0,
            on_screen: None,
            nothing: Overview::default(),
            errors: Vec::new(),
            files: Vec::new(),
            answered: 0,
            chosen: [None, None],
            sort: Sort::new(Column::Rank, false),
            listed: Listed::All,
            reveal: None,
            order: Vec::new(),
            folder: Some(listed),
            answers,
        }
    }

    /// Takes in what arrived. Fails when the folder cannot be listed or no file holds a device's memory.
    pub fn poll(&mut self) -> Result<(), String> {
        if let Some(folder) = &self.folder {
            let lost = || Err("the folder could not be read; please report this".to_owned());
            let Some(files) = answered(folder, lost) else { return Ok(()) };
            self.files = files?;
            self.folder = None;
            self.jobs = ranks::by_job(self.files.iter().map(|path| ranks::pending(path)).collect());
            self.choose_job();
        }
        // Limited per frame. A row costs microseconds, and the rest waits for the next frame.
        let (mut answers, mut is_over): (Vec<Answer>, bool) = (Vec::new(), false);
        while answers.len() < 512 && !is_over {
            match self.answers.try_recv() {
                Ok(answer) => answers.push(answer),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => is_over = true,
            }
        }
        let mut has_news = !answers.is_empty();
        let mut read: HashSet<PathBuf> = HashSet::new();
        let mut new = Vec::new();
        for (at, answer) in answers {
            self.answered += 1;
            match answer {
                Ok(rows) => {
                    if let Some(rows) = self.fill_in(rows) {
                        read.extend(self.files.get(at).cloned());
                        new.extend(rows);
                    }
                }
                Err(sentence) => {
                    read.extend(self.files.get(at).cloned());
                    self.errors.push(sentence);
                }
            }
        }
        if is_over && !self.is_done() {
            // A thread panicked over a file, so its other files will not be read.
            for row in self.jobs.iter().flat_map(|job| &job.rows).filter(|row| row.is_pending && !read.contains(&row.path)) {
                self.errors
                    .push(format!("{} was not read: an error in vramscope; please report it with the file", row.path.display()));
            }
            read.extend(self.files.iter().cloned());
            self.answered = self.files.len();
            has_news = true;
        }
        if !read.is_empty() {
            let old = std::mem::take(&mut self.jobs).into_iter().flat_map(|job| job.rows);
            let mut rows: Vec<RankRow> = old.filter(|r| !(r.is_pending && read.contains(&r.path))).chain(new).collect();
            // Traces record the number of processes. Pending files are taken for ranks of the same job until they are read.
            let processes = rows.iter().find(|r| !r.is_pending).and_then(|r| r.world_size);
            rows.iter_mut().filter(|r| r.is_pending).for_each(|r| r.world_size = processes);
            self.jobs = ranks::by_job(rows);
        } else if has_news {
            self.jobs.iter_mut().for_each(ranks::Job::sum_up);
        }
        if has_news {
            self.choose_job();
        }
        if self.is_done() && self.jobs.is_empty() {
            let sentence = self.errors.first().cloned();
            return Err(sentence.unwrap_or_else(|| "no file holds a device's memory".to_owned()));
        }
        Ok(())
    }

    /// Puts a file's only row into its reserved place, if it is the rank that the file name says. Then nothing moves and jobs
    /// need no regrouping. Otherwise returns the rows.
    fn fill_in(&mut self, mut rows: Vec<RankRow>) -> Option<Vec<RankRow>> {
        let [row] = rows.as_mut_slice() else { return Some(rows) };
        // Counters are added to the recording of their rank.
        if row.is_counters {
            return Some(rows);
        }
        let fits = |kept: &&mut RankRow| {
            let is_its_rank = kept.rank.is_some() && (row.told_rank.is_none() || row.told_rank == kept.rank);
            kept.is_pending && is_its_rank && row.world_size.is_none() && kept.path == row.path
        };
        let Some(kept) = self.jobs.iter_mut().flat_map(|job| &mut job.rows).find(fits) else { return Some(rows) };
        *kept = RankRow { rank: kept.rank, counted: kept.counted.take(), ..std::mem::take(row) };
        None
    }

    /// Shows the job that the user chose, or the [likely](ranks::likely) one. While files are being read the job on screen stays.
    fn choose_job(&mut self) {
        let by_name = |name: &String| self.jobs.iter().position(|job| job.name == *name);
        let on_screen = self.on_screen.take().filter(|_| !self.is_done());
        self.shown = self.wanted.as_ref().or(on_screen.as_ref()).and_then(by_name).unwrap_or_else(|| ranks::likely(&self.jobs));
        self.on_screen = self.jobs.get(self.shown).map(|job| job.name.clone());
        self.arrange();
    }

    pub fn show_job(&mut self, at: usize) {
        self.wanted = self.jobs.get(at).map(|job| job.name.clone());
        self.choose_job();
    }

    /// Index of the job on screen in [`jobs`](Self::jobs).
    pub fn shown_job(&self) -> usize {
        self.shown
    }

    /// The rows of the job on screen, in order of rank.
    pub fn rows(&self) -> &[RankRow] {
        self.jobs.get(self.shown).map_or(&[], |job| &job.rows)
    }

    pub fn overview(&self) -> &Overview {
        self.jobs.get(self.shown).map_or(&self.nothing, |job| &job.overview)
    }

    /// The median peak for pictures. `None` for single recordings, and when the peaks form groups so far apart that no rank is
    /// near the median.
    pub fn median_shown(&self) -> Option<u64> {
        let o = self.overview();
        Some(o.median_peak).filter(|&median| median > 0 && o.division.is_none() && self.are_ranks() && self.rows().len() > 1)
    }

    /// True when every file was read or failed.
    pub fn is_done(&self) -> bool {
        self.folder.is_none() && self.answered >= self.files.len()
    }

    pub fn sort(&mut self, sort: Sort<Column>) {
        self.sort = sort;
        self.arrange();
    }

    pub fn list(&mut self, listed: Listed) {
        self.listed = listed;
        self.arrange();
    }

    fn arrange(&mut self) {
        // Another job may lack the rows of the present choice.
        if Listed::choices(self.rows().len(), self.overview()).iter().all(|(choice, _)| *choice != self.listed) {
            self.listed = Listed::All;
        }
        self.order = layout::order(self.rows(), self.overview(), self.listed, (self.sort.by, self.sort.descending));
    }

    /// Chooses a row: the first becomes A, the second B, and further ones replace B. Choosing a chosen row unchooses it.
    pub fn choose(&mut self, at: usize) {
        let Some(row) = self.rows().get(at).filter(|r| !r.is_pending) else { return };
        if let Some(slot) = self.chosen_as(row) {
            self.chosen[slot] = None;
            return;
        }
        let slot = usize::from(self.chosen[0].is_some());
        self.chosen[slot] = Some((row.path.clone(), row.device_index));
    }

    /// Unchooses A and B; false when neither was chosen.
    pub fn let_go(&mut self) -> bool {
        std::mem::take(&mut self.chosen).iter().any(Option::is_some)
    }

    /// Whether a row is A (0) or B (1).
    pub fn chosen_as(&self, row: &RankRow) -> Option<usize> {
        self.chosen.iter().position(|c| c.as_ref().is_some_and(|(path, device)| *path == row.path && *device == row.device_index))
    }

    /// The name of a row: its rank, or its file when several rows have that rank or when it belongs to another job.
    pub fn name_of(&self, row: &RankRow) -> String {
        match self.rows().iter().position(|r| std::ptr::eq(r, row)) {
            Some(at) => self.name_at(at),
            None => row.file.clone(),
        }
    }

    /// The name of a row of the job on screen.
    pub fn name_at(&self, at: usize) -> String {
        match self.rows().get(at) {
            Some(row) if !self.are_ranks() => {
                let has_several = self.rows().iter().filter(|r| r.path == row.path).count() > 1;
                if has_several { format!("{}, device {}", row.file, row.device) } else { row.file.clone() }
            }
            _ => ranks::name_among(self.rows(), at),
        }
    }

    /// False when the recordings on screen are not of one job. Numbers in their names are then no ranks, and there is no median.
    pub fn are_ranks(&self) -> bool {
        self.jobs.get(self.shown).is_none_or(|job| job.is_one)
    }

    /// The row chosen as A (0) or B (1), of any job.
    pub fn chosen_row(&self, slot: usize) -> Option<&RankRow> {
        let (path, device) = self.chosen.get(slot)?.as_ref()?;
        self.jobs.iter().flat_map(|job| &job.rows).find(|r| r.path == *path && r.device_index == *device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;

    #[test]
    fn a_folder_fills_in_and_rows_can_be_chosen() {
        let mut page = Ranks::open(&Jobs::synchronous(), vec![samples::path("")]);
        page.poll().unwrap();
        assert!(page.is_done() && page.errors.is_empty(), "{:?}", page.errors);
        let of_two = page.rows().iter().filter(|row| row.file == "two_gpus.pickle").count();
        assert_eq!(of_two, 2, "the recording of two devices has two rows");
        page.choose(0);
        page.choose(1);
        assert_eq!((page.chosen_as(&page.rows()[0]), page.chosen_as(&page.rows()[1])), (Some(0), Some(1)));
        page.choose(2);
        assert_eq!(
            (page.chosen_as(&page.rows()[1]), page.chosen_as(&page.rows()[2])),
            (None, Some(1)),
            "a third takes B's place"
        );
        page.choose(0);
        page.choose(3);
        let chosen = [2, 3].map(|at| page.chosen_as(&page.rows()[at]));
        assert_eq!(chosen, [Some(1), Some(0)], "one that was let go leaves its letter");
        page.sort(Sort::new(Column::Peak, true));
        let peaks: Vec<u64> = page.order.iter().map(|&i| page.rows()[i].peak_reserved).collect();
        assert!(peaks.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn jobs_of_one_folder_are_shown_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        for (from, to) in [("gpt_train", "a_rank0"), ("gpt_train", "a_rank1"), ("leak", "b_rank0"), ("fragment_oom", "b_rank1")] {
            std::fs::copy(samples::path(&format!("{from}.pickle")), folder.path().join(format!("{to}.pickle"))).unwrap();
        }
        let mut page = Ranks::open(&Jobs::synchronous(), vec![folder.path().to_path_buf()]);
        page.poll().unwrap();
        let names: Vec<&str> = page.jobs.iter().map(|j| j.name.as_str()).collect();
        assert_eq!(
            (names.as_slice(), page.shown_job()),
            (["a_rank*.pickle", "b_rank*.pickle"].as_slice(), 1),
            "the one that failed"
        );
        let rows = page.jobs.iter().flat_map(|job| job.rows.iter().cloned().map(|row| RankRow { rank: None, ..row }));
        assert_eq!(ranks::by_job(rows.collect()), page.jobs, "rows filled in one by one say what they say together");
        page.choose(0);
        page.show_job(0);
        assert!(page.overview().outliers.is_empty(), "the same recording twice");
        assert_eq!(page.rows().iter().map(|r| r.file.as_str()).collect::<Vec<_>>(), ["a_rank0.pickle", "a_rank1.pickle"]);
        page.choose(0);
        let chosen = [page.chosen_row(0), page.chosen_row(1)].map(|r| r.map(|r| page.name_of(r)));
        assert_eq!(chosen, [Some("b_rank0.pickle".to_owned()), Some("rank 0".to_owned())], "ranks of two jobs can be compared");
    }

    #[test]
    fn an_empty_folder_is_one_sentence() {
        let empty = tempfile::tempdir().unwrap();
        let mut page = Ranks::open(&Jobs::synchronous(), vec![empty.path().to_path_buf()]);
        assert!(page.poll().unwrap_err().contains("no recordings here"));
    }
}
