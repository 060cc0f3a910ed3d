//! A first look at a file: what it seems to be and whether it is complete, without reading it.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::{FileKind, oom_message, open_regular, sniff, stats, trim_start, utf16};

/// What a file seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Begins like a file that [`read`](super::read) accepts; whether the rest is readable is not checked.
    Recording {
        /// False if its last bytes are not those that every writer ends with.
        is_whole: bool,
    },
    /// `memory_stats` or similar: a recording of totals only, which belongs to another recording.
    Counters,
    /// A text with an out-of-memory error.
    Message,
    /// Neither; most often a text or a binary of another program.
    Other,
}

/// Bytes at the beginning that identify a file.
const HEAD: u64 = 4 << 20;
/// A zip's directory ends within this many bytes, including its comment.
const TAIL: u64 = (1 << 16) + 22;

/// Bytes at the end of a log that are searched.
const LOG_TAIL: u64 = super::log::END as u64;

/// Looks at the first 4 MiB and the last 64 KiB of a file. If it is a text and its first 4 MiB are not enough, also at the last
/// 64 MiB, which takes a fraction of a second: do not call this on the window's thread.
pub fn look(path: &Path) -> io::Result<Seen> {
    let mut file = open_regular(path)?;
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.by_ref().take(HEAD).read_to_end(&mut head)?;
    let kind = sniff(&head);
    if kind == FileKind::Unknown {
        // A file that does not begin like a recording is a text or nothing for us.
        if head.contains(&0) && !utf16::is_utf16(&head) {
            return Ok(Seen::Other);
        }
        let text = utf16::decoded(&head);
        return Ok(match () {
            () if oom_message::parse(&text).is_some() => Seen::Message,
            () if stats::parse(&text).is_some() => Seen::Counters,
            () if length > HEAD => {
                let mut tail = Vec::new();
                file.seek(SeekFrom::Start(HEAD.max(length.saturating_sub(LOG_TAIL))))?;
                file.take(LOG_TAIL).read_to_end(&mut tail)?;
                if oom_message::parse(&utf16::decoded(&tail)).is_some() { Seen::Message } else { Seen::Other }
            }
            () => Seen::Other,
        });
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    file.take(TAIL).read_to_end(&mut tail)?;
    Ok(Seen::Recording { is_whole: ends_well(kind, &tail) })
}

/// True if the last bytes are those of a complete file of its kind. Kinds without such bytes count as complete.
fn ends_well(kind: FileKind, tail: &[u8]) -> bool {
    let last = |skip: &dyn Fn(u8) -> bool| tail.iter().rev().copied().find(|&b| !skip(b));
    let text_ends_in = |wanted: &[u8]| last(&|b| b.is_ascii_whitespace()).is_some_and(|b| wanted.contains(&b));
    match kind {
        // STOP; the writer of pages adds zeros after it.
        FileKind::Pickle => last(&|b| b == 0) == Some(b'.'),
        FileKind::Zip => tail.windows(4).any(|w| w == b"PK\x05\x06"),
        FileKind::Html => text_ends_in(b">"),
        FileKind::Trace | FileKind::Timeline | FileKind::SnapshotJson => text_ends_in(b"}]"),
        FileKind::Rmm => tail.ends_with(b"\n"),
        FileKind::Gzip | FileKind::Zstd | FileKind::Pprof | FileKind::Session | FileKind::Unknown => !trim_start(tail).is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn seen(name: &str, bytes: &[u8]) -> Seen {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        look(&path).unwrap()
    }

    #[test]
    fn a_file_is_known_by_its_ends() {
        let sample = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../sample_snapshots").join("leak.pickle");
        assert_eq!(look(&sample).unwrap(), Seen::Recording { is_whole: true });
        let bytes = std::fs::read(&sample).unwrap();
        // A part may happen to end with the byte of STOP; one in 256 does, and then counts as complete.
        let cut = (1..64).map(|n| &bytes[..bytes.len() - n]).find(|b| !b.ends_with(b".")).unwrap();
        assert_eq!(seen("x.pickle", cut), Seen::Recording { is_whole: false });
        let trace = b"{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\"";
        assert_eq!(seen("x.json", trace), Seen::Recording { is_whole: false });
        assert_eq!(seen("x.json", &[trace.as_slice(), b"}]}\n"].concat()), Seen::Recording { is_whole: true });
        assert_eq!(
            seen("s.json", b"{\"reserved_bytes.all.current\": 2097152, \"reserved_bytes.all.peak\": 2097152}"),
            Seen::Counters
        );
        assert_eq!(seen("a.log", b"step 1\nCUDA out of memory. Tried to allocate 2.00 GiB (GPU 0;"), Seen::Message);
        assert_eq!(seen("a.log", b"step 1\n"), Seen::Other);
        assert_eq!(seen("empty", b""), Seen::Other);
    }

    #[test]
    fn an_error_at_the_end_of_a_long_log_is_found() {
        let lines = "step 1: loss 2.5, 512 tokens in 3.1 s\n".repeat(150_000);
        assert!(lines.len() as u64 > HEAD);
        let log = [lines.as_bytes(), b"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0;\nbye\n"].concat();
        assert_eq!(seen("a.log", &log), Seen::Message);
        assert_eq!(seen("a.log", lines.as_bytes()), Seen::Other);
        let read = |bytes: &[u8]| crate::formats::read(bytes, "a.log", &crate::model::Progress::new()).unwrap_err();
        assert!(matches!(read(&log), crate::formats::FormatError::Elsewhere { .. }));
        assert!(matches!(read(lines.as_bytes()), crate::formats::FormatError::NotRecognised { .. }));
    }
}
