//! Searches logs for out-of-memory errors: the new lines of those in a watched folder, or all of one that is opened.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::folder_watch::{News, Stamp};
use crate::app::state::Excerpt;
use vramscope_core::formats::{Log, oom_message, open_regular, utf16};

/// Most bytes read per listing. A log that grows faster has more than a user can read.
const MOST_READ: u64 = 16 << 20;
/// Most bytes read from the end of a log that is opened; the same as in the format reader.
const MOST_READ_OPENED: u64 = 64 << 20;
/// Most bytes passed on, enough for the messages of some dozens of ranks.
const MOST_TOLD: usize = 64 << 10;
/// A message that begins this close to the end may be incomplete.
const LONGEST_MESSAGE: u64 = 4 << 10;
/// Lines after the first line of a message that may belong to it.
const LINES_AFTER: usize = 12;

/// Logs, and how far each was searched.
pub(in crate::app) struct Logs {
    /// Bytes searched, and the stamp at the last listing.
    files: HashMap<PathBuf, (u64, Stamp)>,
}

impl Logs {
    /// Everything written so far counts as old.
    pub(in crate::app) fn new(files: HashMap<PathBuf, Stamp>) -> Self {
        Logs { files: files.into_iter().map(|(path, stamp)| (path, (stamp.0, stamp))).collect() }
    }

    /// The logs that gained a message since the last listing.
    pub(in crate::app) fn compare(&mut self, now: HashMap<PathBuf, Stamp>) -> Vec<News> {
        let mut news = Vec::new();
        let mut files = HashMap::new();
        for (path, stamp) in now {
            let (searched, before) = self.files.get(&path).copied().unwrap_or((0, (0, None)));
            // A log that became shorter was restarted.
            let searched = if stamp.0 < searched { 0 } else { searched };
            let is_still = before == stamp;
            let searched = if searched == stamp.0 {
                searched
            } else {
                // A file that vanished or is not readable has no news.
                let (until, found) = search(&path, searched, stamp.0, MOST_READ, is_still).unwrap_or((stamp.0, None));
                // Only failures are news: a job may print thousands of warnings and continue.
                let failed = |log: &Excerpt| oom_message::find_all(&log.text).iter().any(|m| m.is_failure());
                news.extend(found.filter(failed).map(|log| News::Message { path: path.clone(), log }));
                until
            };
            files.insert(path, (searched, stamp));
        }
        self.files = files;
        news
    }
}

/// Searches bytes `from..to` of a file, at most the last `most`. Returns how far it searched and the part with messages. While
/// the file may still grow (not `is_still`), a message near the end is left for the next time.
fn search(path: &Path, from: u64, to: u64, most: u64, is_still: bool) -> io::Result<(u64, Option<Excerpt>)> {
    let from = from.max(to.saturating_sub(most));
    let mut file = open_regular(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(to - from).read_to_end(&mut bytes)?;
    let mut skipped = 0;
    if is_still && from == 0 {
        // The log may be compressed.
        (bytes, skipped) = Log::read(bytes.as_slice()).map_err(io::Error::other)?.into_end();
    }
    if utf16::is_utf16(&bytes) {
        // Decoding UTF-16 changes byte offsets, so the log is searched only when it stopped growing.
        if !is_still {
            return Ok((from, None));
        }
        bytes = utf16::decoded(&bytes).into_owned().into_bytes();
    }
    let starts: Vec<usize> =
        std::iter::once(0).chain(bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1)).collect();
    let lines: Vec<usize> =
        oom_message::find_all(&String::from_utf8_lossy(&bytes)).iter().map(|m| m.line.saturating_sub(1) as usize).collect();
    let end = bytes.len() as u64;
    let is_done = |line: &usize| is_still || starts.get(*line).is_none_or(|&s| s as u64 + LONGEST_MESSAGE <= end);
    let (done, open): (Vec<usize>, Vec<usize>) = lines.into_iter().partition(is_done);
    let resume = open.iter().min().and_then(|&l| starts.get(l)).map_or_else(
        // An incomplete last line may be the beginning of a message.
        || if is_still { bytes.len() } else { starts.last().copied().unwrap_or(0) },
        |&s| s,
    );
    let found = done.iter().min().zip(done.iter().max()).map(|(first, last)| {
        let start = starts.get(*first).copied().unwrap_or(0);
        let stop = starts.get(last + LINES_AFTER).copied().unwrap_or(bytes.len()).min(resume.max(start)).min(start + MOST_TOLD);
        let text = String::from_utf8_lossy(&bytes[start..stop]).into_owned();
        Excerpt {
            text,
            first_line: (lines_before(path, from) + u64::from(skipped) + *first as u64 + 1).try_into().unwrap_or(u32::MAX),
        }
    });
    // A log that stopped growing is searched to its end.
    Ok((if is_still { to } else { from + resume as u64 }, found))
}

/// The number of lines that end before a place in a file, up to where it can be read.
fn lines_before(path: &Path, place: u64) -> u64 {
    let Ok(file) = open_regular(path) else { return 0 };
    let mut rest = io::BufReader::with_capacity(1 << 16, file.take(place));
    let mut lines = 0;
    while let Ok(bytes) = rest.fill_buf()
        && !bytes.is_empty()
    {
        lines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        let length = bytes.len();
        rest.consume(length);
    }
    lines
}

/// The part of a text that holds out-of-memory errors; `None` when there is none or the file cannot be read.
pub(in crate::app) fn messages_of(path: &Path) -> Option<Excerpt> {
    let length = std::fs::metadata(path).ok()?.len();
    let tail = search(path, 0, length, MOST_READ_OPENED, true).ok()?.1;
    // A restarted job may write far beyond the error, so the beginning is searched too.
    tail.or_else(|| search(path, 0, length.min(MOST_READ), MOST_READ, true).ok()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str =
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated)\n";

    fn stamp(path: &Path) -> HashMap<PathBuf, Stamp> {
        let meta = std::fs::metadata(path).unwrap();
        HashMap::from([(path.to_path_buf(), (meta.len(), None))])
    }

    #[test]
    fn a_message_is_told_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        std::fs::write(&path, MESSAGE).unwrap();
        let mut logs = Logs::new(stamp(&path));
        assert!(logs.compare(stamp(&path)).is_empty(), "that was there before");
        let whole = format!("{MESSAGE}step 2\n{MESSAGE}");
        // The folder is listed when half of the message is written.
        std::fs::write(&path, &whole[..whole.len() - 60]).unwrap();
        assert!(logs.compare(stamp(&path)).is_empty());
        std::fs::write(&path, &whole).unwrap();
        assert!(logs.compare(stamp(&path)).is_empty(), "still growing");
        assert_eq!(
            logs.compare(stamp(&path)),
            [News::Message { path: path.clone(), log: Excerpt { text: MESSAGE.to_owned(), first_line: 3 } }]
        );
        assert!(logs.compare(stamp(&path)).is_empty(), "once");
        // A warning after which the program continues is not reported.
        let warning = "W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of memory trying to allocate \
                       3.37GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there \
                       could be performance gains if more memory were available.\n";
        std::fs::write(&path, format!("{whole}{warning}")).unwrap();
        assert!(logs.compare(stamp(&path)).is_empty() && logs.compare(stamp(&path)).is_empty(), "a warning");
        // The log is restarted.
        std::fs::write(&path, format!("{}{MESSAGE}", "x\n".repeat(9))).unwrap();
        assert_eq!(logs.compare(stamp(&path)).len() + logs.compare(stamp(&path)).len(), 1);
        std::fs::remove_file(&path).unwrap();
        assert!(logs.compare(HashMap::new()).is_empty());
    }

    #[test]
    fn a_message_is_told_with_its_line_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.log");
        std::fs::write(&path, format!("{}[rank3]: {MESSAGE}", "step\n".repeat(100))).unwrap();
        assert_eq!(messages_of(&path).map(|log| log.first_line), Some(101), "the line of the log, not of the part");
        let (_, end) = search(&path, 0, std::fs::metadata(&path).unwrap().len(), 200, true).unwrap();
        assert_eq!(end.map(|log| log.first_line), Some(101), "also where only the end is searched");
    }
}
