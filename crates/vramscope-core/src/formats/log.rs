//! [`Log`]: a text of any length, plain or compressed, whose beginning and end are searched for out-of-memory messages.

use std::io::{ErrorKind, Read};

use super::about::AboutPage;
use super::oom_message::{OomMessage, find_all};
use super::utf16::decoded;
use super::why;

/// Bytes searched at the end of a log: an error is there, before output of other processes.
pub(super) const END: usize = 64 << 20;
/// Bytes searched at its beginning: a restarted job appends its output after the error.
const BEGINNING: usize = 16 << 20;
/// Maximum unpacked bytes of a compressed log; unpacking more takes too long.
const MOST_UNPACKED: u64 = 4 << 30;
/// Bytes per unpacking step.
const CHUNK: usize = 1 << 18;

/// The first 16 and the last 64 MiB of a log, or all of a shorter one. Takes up to 144 MiB during reading.
#[derive(Debug, Default)]
pub struct Log {
    head: Vec<u8>,
    /// Empty if `head` is the whole log.
    tail: Vec<u8>,
    /// Number of line ends before `tail`.
    lines_before: u32,
}

/// Why a log could not be searched, as half a sentence.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// It cannot be read.
    #[error("{}", why(.0))]
    NotRead(#[from] std::io::Error),
    /// It is compressed and damaged.
    #[error("it cannot be unpacked: {}", why(.0))]
    NotUnpacked(#[source] std::io::Error),
    /// It unpacks to more than 4 GiB.
    #[error("it unpacks to more than 4 GiB; unpack it and give its end (zcat FILE | tail -c 64M | vramscope explain)")]
    TooLong,
}

impl Log {
    /// Reads a log to its end; unpacks gzip and zstd. Fails when it cannot be read, or unpacks to more than 4 GiB.
    pub fn read(mut reader: impl Read) -> Result<Self, LogError> {
        let mut start = Vec::new();
        reader.by_ref().take(4).read_to_end(&mut start)?;
        let whole = start.chain(reader);
        match start.as_slice() {
            [0x1f, 0x8b, ..] => Self::unpack(flate2::read::MultiGzDecoder::new(whole)),
            [0x28, 0xb5, 0x2f, 0xfd] => Self::unpack(zstd::stream::read::Decoder::new(whole)?),
            _ => {
                let mut log = Log::default();
                log.take(whole)?;
                Ok(log)
            }
        }
    }

    fn unpack(decoder: impl Read) -> Result<Self, LogError> {
        let mut log = Log::default();
        match log.take(decoder.take(MOST_UNPACKED)) {
            Ok(bytes) if bytes == MOST_UNPACKED => Err(LogError::TooLong),
            Ok(_) => Ok(log),
            // Truncated: the part before may contain the message.
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                log.trim();
                Ok(log)
            }
            Err(e) => Err(LogError::NotUnpacked(e)),
        }
    }

    /// Reads to the end; returns the number of bytes.
    fn take(&mut self, mut reader: impl Read) -> std::io::Result<u64> {
        let mut chunk = vec![0; CHUNK];
        let mut bytes = 0;
        loop {
            match reader.read(&mut chunk) {
                Ok(0) => {
                    self.trim();
                    return Ok(bytes);
                }
                Ok(n) => {
                    bytes += n as u64;
                    self.add(&chunk[..n]);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.tail.is_empty() && self.head.len() + bytes.len() <= BEGINNING + END {
            return self.head.extend_from_slice(bytes);
        }
        if self.tail.is_empty() {
            self.tail = self.head.split_off(BEGINNING.min(self.head.len()));
            self.lines_before = line_ends(&self.head);
        }
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 2 * END {
            self.trim();
        }
    }

    fn trim(&mut self) {
        // An even number keeps UTF-16 readable.
        let gone = self.tail.len().saturating_sub(END) & !1;
        self.lines_before = self.lines_before.saturating_add(line_ends(&self.tail[..gone]));
        self.tail.drain(..gone);
    }

    /// The end of the log, and the number of lines before it; a log of up to 80 MiB is returned whole.
    pub fn into_end(self) -> (Vec<u8>, u32) {
        if self.tail.is_empty() { (self.head, 0) } else { (self.tail, self.lines_before) }
    }

    /// The page that `vramscope run --at-oom` wrote beside a snapshot, if this is one.
    pub fn page(&self) -> Option<AboutPage> {
        AboutPage::read(&self.head).filter(|_| self.tail.is_empty())
    }

    /// The messages, each with the line of the log where it begins. For a [`page`](Self::page), those in its output lines.
    pub fn messages(&self) -> Vec<OomMessage> {
        if let Some(page) = self.page() {
            return find_all(&page.lines());
        }
        let mut found = find_all(&decoded(&self.head));
        if !self.tail.is_empty() {
            found.extend(find_all(&decoded(&self.tail)).into_iter().map(|mut message| {
                message.line = message.line.saturating_add(self.lines_before);
                message
            }));
        }
        found
    }
}

fn line_ends(bytes: &[u8]) -> u32 {
    memchr::memchr_iter(b'\n', bytes).count().try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const MESSAGE: &str =
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated)\n";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(text).unwrap();
        gz.finish().unwrap()
    }

    #[test]
    fn packed_and_plain_logs_are_the_same_and_one_cut_short_is_read_as_far_as_it_goes() {
        let text = format!("step\n{MESSAGE}{}", "more\n".repeat(1000));
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        let gz = gzip(text.as_bytes());
        for bytes in [text.as_bytes(), &zstd, &gz, &gz[..gz.len() - 9]] {
            let found = Log::read(bytes).unwrap().messages();
            assert_eq!(found.iter().map(|m| m.line).collect::<Vec<_>>(), [2]);
        }
        assert!(Log::read(&b"\x1f\x8bno gzip at all"[..]).is_err());
        assert!(Log::read(&b""[..]).unwrap().messages().is_empty());
    }

    #[test]
    fn of_a_long_log_the_beginning_and_the_end_are_kept_and_lines_are_counted() {
        let line = format!("{}\n", "x".repeat(999));
        let many = (3 * END / line.len()) as u32;
        let middle = (0..many).flat_map(|i| if i == many / 2 { MESSAGE.repeat(2) } else { line.clone() }.into_bytes());
        let text: Vec<u8> = MESSAGE.bytes().chain(middle).chain(MESSAGE.bytes()).collect();
        let log = Log::read(text.as_slice()).unwrap();
        assert!((BEGINNING, END) == (log.head.len(), log.tail.len()));
        // One line in the middle was replaced by two.
        assert_eq!(log.messages().iter().map(|m| m.line).collect::<Vec<_>>(), [1, many + 3]);
        // Compressed it is a bomb of some hundred kilobytes; memory stays the same as for the plain text.
        assert_eq!(Log::read(gzip(&text).as_slice()).unwrap().into_end().1, log.lines_before);
    }
}
