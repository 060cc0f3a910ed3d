//! Reads bytes into a [`Recording`]: one reader per kind of file, chosen by the first bytes.
//!
//! A reader returns a recording with a report of problems, or one [`FormatError`]. It never panics, runs nothing that the file
//! contains, and uses memory in proportion to the file.

pub mod about;
mod aside;
mod contents;
mod error;
pub mod export;
pub mod folder;
mod html;
pub mod jax;
pub mod kineto;
mod log;
mod look;
pub mod oom_message;
mod pickle;
mod plot_page;
pub mod rmm;
pub mod session;
mod snapshot;
pub mod stats;
pub mod timeline;
mod unwrap;
pub mod utf16;

use std::path::{Path, PathBuf};
use std::time::Instant;

use contents::Contents;
pub use contents::open_regular;
pub use error::{FormatError, PageSnapshot};
pub use log::{Log, LogError};
pub use look::{Seen, look};
use unwrap::Layers;
pub use unwrap::unpacked_bytes;

use crate::model::{Format, Known, Progress, Recording, WarningKind};

/// More bytes than any device or host has. Sums of sizes up to this are far from overflowing.
pub(crate) const MAX_BYTES: u64 = 1 << 50;

/// For sources written by PyTorch's profiler.
const WHOLE_BLOCKS: Known = Known::No("PyTorch's profiler writes whole blocks. A memory snapshot has both sizes.");

/// For events without addresses, where the reader chooses which allocation a free ends.
const FREES_ARE_GUESSED: Known =
    Known::No("This file tells no addresses; which of several equal allocations a free ends is a guess (the youngest).");

/// True if a block of this size can be at this address: its end, rounded up to a segment's size, must be an address. Addresses
/// reach to the very top (Intel's are sign-extended), so only damage fails this test.
#[inline]
pub(crate) fn has_room(address: u64, size: u64) -> bool {
    size <= MAX_BYTES && address.checked_add(size).and_then(|end| end.checked_add(1 << 30)).is_some()
}

/// Opens a file of any kind. The whole file stays in memory until the recording is built; `contents` says why it is not mapped.
pub fn open(path: &Path, progress: &Progress) -> Result<Recording, FormatError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let since = Instant::now();
    let (path, choice) = chosen(path);
    let path = path.as_path();
    let contents = Contents::read(path, &name, progress)?;
    let outcome = read_chosen(&contents.bytes, &name, choice, progress);
    let changed = contents.changed(path);
    let mut recording = match outcome {
        Ok(recording) => recording,
        Err(FormatError::Cancelled) => return Err(FormatError::Cancelled),
        Err(_) if changed => {
            let what =
                "the file changed while it was read, and what was read is not a whole one; open it again when its writer is done";
            return Err(FormatError::Elsewhere { name, what: what.to_owned() });
        }
        Err(error) => return Err(error),
    };
    // A session only grows, and what was read of it stays valid.
    if changed && !(recording.source.format == Format::Session && contents.grew(path)) {
        recording.report.warn(WarningKind::Changed, None, || {
            "the file changed while it was read, so this may be a part of the old one and a part of the new; open it again"
                .to_owned()
        });
    }
    recording.report.seconds = since.elapsed().as_secs_f64();
    tracing::info!(file = %path.display(), bytes = contents.bytes.len(), seconds = recording.report.seconds, "read");
    recording.source.path = Some(path.to_owned());
    if recording.source.format == Format::SnapshotPickle
        && let Some(page) = about::AboutPage::beside(path)
    {
        page.tell(&mut recording);
    }
    Ok(recording)
}

/// The path of one snapshot in a page: `page.html::rank1.pickle`.
pub fn one_of_page(page: &Path, choice: &str) -> PathBuf {
    let mut path = page.as_os_str().to_owned();
    path.push(html::CHOICE);
    path.push(choice);
    PathBuf::from(path)
}

/// Splits `page.html::rank1.pickle` into the file and the chosen snapshot. If a file of the whole name exists, it is that file.
pub fn chosen(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_string_lossy();
    match text.rsplit_once(html::CHOICE) {
        Some((file, choice)) if !path.exists() && Path::new(file).is_file() => (PathBuf::from(file), Some(choice.to_owned())),
        _ => (path.to_owned(), None),
    }
}

/// Opens a recording for a comparison or for ranks. Also fails if the file contains only PyTorch's counters.
pub fn open_more_than_counters(path: &Path, progress: &Progress) -> Result<Recording, FormatError> {
    let recording = open(path, progress)?;
    if recording.has_only_counters() {
        let what = "these are PyTorch's counters, totals without events or blocks; open them alone, or add them to a snapshot"
            .to_owned();
        return Err(FormatError::Elsewhere { name: recording.source.name, what });
    }
    Ok(recording)
}

/// Why a file was not read: in our words for common errors, otherwise the system's text without its number.
pub fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => without_number(error),
    }
}

/// Why a file was not written; like [`why`] for reading.
pub fn why_not_written(error: &std::io::Error) -> String {
    match error.kind() {
        // Linux reports `NotFound` also for a new file in a system folder such as /proc.
        std::io::ErrorKind::NotFound => "there is no such folder, or no file can be made in it".to_owned(),
        std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => "a file is where a folder is needed".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not write there".to_owned(),
        _ => without_number(error),
    }
}

fn without_number(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Reads bytes of any kind. `name` is used in errors and as the recording's name.
pub fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    read_chosen(bytes, name, None, progress)
}

/// Like [`read`]; `choice` selects a snapshot of a page with several.
fn read_chosen(bytes: &[u8], name: &str, choice: Option<String>, progress: &Progress) -> Result<Recording, FormatError> {
    let started = Instant::now();
    let mut layers = Layers::around(bytes.len());
    layers.choice = choice;
    let mut recording = unwrap_and_read(bytes, name, progress, &mut layers)?;
    recording.source.bytes = bytes.len() as u64;
    recording.report.seconds = started.elapsed().as_secs_f64();
    Ok(recording)
}

/// The kind of a file according to its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Gzip,
    Zstd,
    Zip,
    Html,
    Pickle,
    Trace,
    Timeline,
    Rmm,
    Pprof,
    SnapshotJson,
    Session,
    Unknown,
}

/// Detects the kind of a file by its first bytes, and for JSON by the first keys.
fn sniff(bytes: &[u8]) -> FileKind {
    let text = trim_start(bytes);
    let head = &text[..text.len().min(4096)];
    match bytes {
        [0x1f, 0x8b, ..] => FileKind::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => FileKind::Zstd,
        [b'P', b'K', 3, 4, ..] => FileKind::Zip,
        // Any version: the reader refuses unknown ones.
        [b'V', b'R', b'A', b'M', b'S', b'E', b'S', ..] => FileKind::Session,
        [0x80, 0..=5, ..] => FileKind::Pickle,
        // Protocols 0 and 1 begin with a container: `(l`, `(d`, `](`, `}(`, `]q`, `}q`, `(c`.
        [b'(', b'l' | b'd' | b'c', ..] | [b']' | b'}', b'(' | b'q' | b'.' | b'r', ..] => FileKind::Pickle,
        _ if jax::is_pprof(bytes) => FileKind::Pprof,
        _ if starts_with_tag(head) => FileKind::Html,
        _ if kineto::is_trace(&text[..text.len().min(1 << 16)]) => FileKind::Trace,
        _ if timeline::is_timeline(head) => FileKind::Timeline,
        _ if rmm::is_rmm(head) => FileKind::Rmm,
        _ if matches!(head.first(), Some(b'{' | b'[')) && is_snapshot_json(text) => FileKind::SnapshotJson,
        _ => FileKind::Unknown,
    }
}

/// The one place that lists every reader.
fn unwrap_and_read(bytes: &[u8], name: &str, progress: &Progress, layers: &mut Layers) -> Result<Recording, FormatError> {
    if bytes.is_empty() {
        return Err(FormatError::Empty { name: name.to_owned(), what: "this file is empty".to_owned() });
    }
    // Windows' editors put a byte order mark before a text; readers need not know it.
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let kind = sniff(bytes);
    if kind == FileKind::Html
        && let Some(at) = plot_page::data_at(bytes)
    {
        return plot_page::read(bytes, at, name, progress);
    }
    let unwrapped = match kind {
        FileKind::Gzip => unwrap::gzip(bytes, name, layers, progress)?,
        FileKind::Zstd => unwrap::zstd(bytes, name, layers, progress)?,
        FileKind::Zip => unwrap::zip(bytes, name, layers, progress)?,
        FileKind::Html => unwrap::Unwrapped { bytes: html::embedded(bytes, name, layers.choice.as_deref())?, truncated: false },
        _ => return read_bare(kind, bytes, name, progress),
    };
    let mut recording = unwrap_and_read(&unwrapped.bytes, name, progress, layers).map_err(|error| match error {
        // The missing part was after the cut, so report the cut.
        FormatError::Empty { name, .. } | FormatError::Elsewhere { name, .. } | FormatError::Malformed { name, .. }
            if unwrapped.truncated =>
        {
            let what = "the compressed data is cut short or damaged before anything usable; copy the file again, it is not whole"
                .to_owned();
            FormatError::Elsewhere { name, what }
        }
        other => other,
    })?;
    if unwrapped.truncated {
        recording.report.warn(WarningKind::Truncated, None, || {
            "the compressed data ends early or is damaged; what could be unpacked was read".to_owned()
        });
    }
    if kind == FileKind::Html && matches!(recording.source.format, Format::SnapshotPickle | Format::SnapshotJson) {
        recording.source.format = Format::SnapshotHtml;
    }
    Ok(recording)
}

/// Reads a file that is in no container.
fn read_bare(kind: FileKind, bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    match kind {
        FileKind::Pickle => snapshot::read_pickle(bytes, name, progress),
        FileKind::Trace => kineto::read(bytes, name, progress),
        FileKind::Timeline => timeline::read(bytes, name, progress),
        FileKind::Rmm => rmm::read(trim_start(bytes), name, progress),
        FileKind::Pprof => jax::read(bytes, name, progress),
        FileKind::Session => session::read(bytes, name, progress),
        FileKind::SnapshotJson => snapshot::read_json(bytes, name, progress),
        FileKind::Gzip | FileKind::Zstd | FileKind::Zip | FileKind::Html | FileKind::Unknown => read_text(bytes, name),
    }
}

/// Reads a text that is no recording by its first bytes: PyTorch's counters, or a log with an error.
fn read_text(bytes: &[u8], name: &str) -> Result<Recording, FormatError> {
    let unknown = || FormatError::NotRecognised { name: name.to_owned(), found: describe_start(bytes) };
    let head = bytes.get(..stats::MOST_BYTES).unwrap_or(bytes);
    if let Some(what) = other_json(head) {
        return Err(FormatError::Elsewhere { name: name.to_owned(), what: what.to_owned() });
    }
    if let Some(page) = about::AboutPage::read(bytes) {
        return Err(FormatError::Elsewhere { name: name.to_owned(), what: page.sentence() });
    }
    if let Some(what) = lfs_pointer(head) {
        return Err(FormatError::Elsewhere { name: name.to_owned(), what });
    }
    // Only UTF-16 text contains zeros. Invalid UTF-8 is accepted, because many processes write into one log.
    if head.contains(&0) && !utf16::is_utf16(head) {
        return Err(unknown());
    }
    // A trainer that fails prints both counters and the error; the error is what matters. It is at the end of a possibly long log.
    let tail = bytes.get(head.len()..).unwrap_or(&[]);
    let tail = tail.get(tail.len().saturating_sub(log::END)..).unwrap_or(tail);
    let has_message = |part: &[u8]| !part.is_empty() && oom_message::parse(&utf16::decoded(part)).is_some();
    if has_message(head) || has_message(tail) {
        let what = "this text holds an out-of-memory error; read what it means (vramscope explain FILE, or Ctrl+E in the window)"
            .to_owned();
        return Err(FormatError::Elsewhere { name: name.to_owned(), what });
    }
    stats::read(&String::from_utf8_lossy(head), name).ok_or_else(unknown)
}

/// What to do with a Git LFS pointer: the few lines that stand in for a file that was not fetched.
fn lfs_pointer(head: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(head.strip_prefix(b"version https://git-lfs.github.com/spec/v1\n")?).ok()?;
    let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
    let size = size.map_or(String::new(), |bytes| format!(" ({})", crate::units::Bytes(bytes)));
    Some(format!(
        "this is a Git LFS pointer, not the recording itself{size}; run `git lfs pull` in its repository and open it again"
    ))
}

/// Describes JSON in a form that cannot be read: another encoding, or one object per line.
fn other_json(head: &[u8]) -> Option<&'static str> {
    let head = &head[..head.len().min(1 << 16)];
    let text = utf16::decoded(head);
    let is_json = |text: &str| {
        let text = text.as_bytes();
        kineto::is_trace(text) || is_snapshot_json(text) || timeline::is_timeline(text)
    };
    let text = text.trim_start();
    if utf16::is_utf16(head) && is_json(text) {
        return Some("this is JSON in UTF-16, which no JSON may be in; write it in UTF-8 (iconv -f UTF-16 -t UTF-8)");
    }
    let first = text.lines().next().unwrap_or("").trim_end();
    let is_line = first.starts_with('{') && first.ends_with('}') && text.lines().nth(1).is_some_and(|l| l.starts_with('{'));
    let is_event = first.contains("\"ph\"") && first.contains("\"name\"");
    (is_line && is_event).then_some(
        "these are the events of a trace, one JSON object a line; put them into one list, [ first, second, … ], to open them",
    )
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn trim_start(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    &bytes[bytes.iter().take_while(|b| b.is_ascii_whitespace()).count()..]
}

fn starts_with_tag(head: &[u8]) -> bool {
    let lower: Vec<u8> = head.iter().take(15).map(u8::to_ascii_lowercase).collect();
    lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") || lower.starts_with(b"<!--")
}

/// True for JSON with the outermost keys of a snapshot, or for a list of segments.
fn is_snapshot_json(text: &[u8]) -> bool {
    // The keys may come after megabytes of others, so the whole text is searched if the beginning lacks them.
    let head = &text[..text.len().min(1 << 16)];
    let has = |hay: &[u8], key: &[u8]| memchr::memmem::find(hay, key).is_some();
    if has(head, b"\"traceEvents\"") {
        return false;
    }
    if text.starts_with(b"[") {
        return has(head, b"\"total_size\"") && has(head, b"\"blocks\"");
    }
    // The segments in what `state --json` prints have no total size.
    has(head, b"\"segments\"") && has(text, b"\"total_size\"") || has(text, b"\"device_traces\"")
}

fn describe_start(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(16)];
    if head.starts_with(b"SQLite format 3\0") {
        "an SQLite database".to_owned()
    } else if head.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        format!("it begins with the text {:?}", String::from_utf8_lossy(head))
    } else {
        let hex: Vec<String> = head.iter().take(8).map(|b| format!("{b:02x}")).collect();
        format!("it begins with the bytes {}", hex.join(" "))
    }
}

#[cfg(test)]
mod form_tests {
    use super::*;

    #[test]
    fn json_in_another_form_is_one_sentence_that_says_so() {
        let event = r#"{"ph":"i","name":"[memory]","ts":1,"args":{}}"#;
        let refused = |bytes: &[u8]| read(bytes, "x.json", &Progress::new()).unwrap_err().to_string();
        assert!(refused(format!("{event}\n{event}\n").as_bytes()).contains("one JSON object a line"));
        let trace = format!("\u{feff}{{\"traceEvents\": [{event}]}}");
        let wide: Vec<u8> = trace.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(refused(&wide).contains("JSON in UTF-16"), "{}", refused(&wide));
    }

    #[test]
    fn what_the_command_state_prints_is_no_recording() {
        let text = r#"{"file": "a.pickle", "segments": [{"address": 1, "bytes": 2097152, "blocks": []}]}"#;
        let sentence = read(text.as_bytes(), "state.json", &Progress::new()).unwrap_err().to_string();
        assert!(sentence.starts_with("state.json: not a file vramscope reads"), "{sentence}");
    }

    #[test]
    fn a_pointer_of_git_lfs_says_what_to_do() {
        let text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 130023424\n";
        let sentence = read(text.as_bytes(), "snapshot.pickle", &Progress::new()).unwrap_err().to_string();
        let wanted = "snapshot.pickle: this is a Git LFS pointer, not the recording itself (124 MiB); run `git lfs pull`";
        assert!(sentence.replace('\u{a0}', " ").starts_with(wanted), "{sentence}");
    }
}
