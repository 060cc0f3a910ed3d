//! Frames: the layout of records in the file, which keeps everything readable that was written before a kill.

use std::io::{self, Read, Write};

use super::{MarkPoint, Record};
use crate::model::MarkKind;

/// First bytes of every session. The last byte is the version of the framing.
pub const MAGIC: &[u8; 8] = b"VRAMSES\x01";
/// A longer frame is damage: the largest genuine one holds the blocks of one process.
pub(super) const LONGEST: u32 = 256 << 20;

/// Appends records to a file, a pipe or a socket.
pub struct SessionWriter<W: Write> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> SessionWriter<W> {
    /// Begins a session.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        Ok(SessionWriter { out, buffer: Vec::new() })
    }

    /// Writes one record with one write call, so that a kill can only truncate the last one. A record that is too long for readers
    /// is replaced by a mark that says so. Fails when it cannot be written, or not be converted to JSON.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        self.encode(record)?;
        if self.buffer.len() - 8 > LONGEST as usize {
            let text = format!("a record of {} was too large for a session", crate::units::Bytes(self.buffer.len() as u64));
            self.buffer = Vec::new();
            let t = if let Record::Blocks(blocks) = record { blocks.t } else { 0 };
            self.encode(&Record::Mark(MarkPoint { d: None, t, kind: MarkKind::Process, text }))?;
        }
        let payload = &self.buffer[8..];
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let sum = checksum(payload);
        self.buffer[..4].copy_from_slice(&length.to_le_bytes());
        self.buffer[4..8].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&self.buffer)
    }

    fn encode(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 8]);
        Ok(serde_json::to_writer(&mut self.buffer, record)?)
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn checksum(payload: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(payload);
    crc.sum()
}

/// Result of reading the next frame.
#[derive(Debug)]
pub enum Next {
    /// An intact record of a known kind.
    Record(Box<Record>),
    /// An intact frame of a kind that this version does not know.
    Unknown {
        /// Offset of the frame, in bytes from the start.
        offset: u64,
    },
    /// The end, after the last complete frame.
    End,
    /// The stream ends inside a frame, or a frame is damaged. Nothing after it can be trusted.
    Broken {
        /// Offset of the frame, in bytes from the start.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Reads records one by one; on a pipe each is returned as soon as it has arrived.
pub struct SessionReader<R: Read> {
    input: R,
    offset: u64,
}

impl<R: Read> SessionReader<R> {
    /// Checks the first bytes. `Ok(None)` when they do not begin a session.
    pub fn new(mut input: R) -> io::Result<Option<Self>> {
        let mut magic = [0; 8];
        let n = fill(&mut input, &mut magic)?;
        let is_session = n == magic.len() && magic == *MAGIC;
        Ok(is_session.then_some(SessionReader { input, offset: magic.len() as u64 }))
    }

    /// The next record; blocks on a pipe. Fails when the system cannot read. A truncated or damaged stream is [`Next::Broken`].
    pub fn next_record(&mut self) -> io::Result<Next> {
        let offset = self.offset;
        let mut head = [0; 8];
        match fill(&mut self.input, &mut head)? {
            0 => return Ok(Next::End),
            8 => {}
            _ => return Ok(Next::Broken { offset, what: "it ends inside the head of a record" }),
        }
        let [a, b, c, d, e, f, g, h] = head;
        let (length, sum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if length == 0 {
            // The checksum of zeros is zero. After a crash of the machine, data that was not yet on disk reads as zeros.
            return Ok(Next::Broken { offset, what: "zeros stand where a record should begin" });
        }
        if length > LONGEST {
            return Ok(Next::Broken { offset, what: "a record claims to be longer than any can be" });
        }
        // The buffer grows with the data: a damaged length must not allocate memory for bytes that do not exist.
        let mut payload = Vec::new();
        let got = self.input.by_ref().take(u64::from(length)).read_to_end(&mut payload)?;
        if got < length as usize {
            return Ok(Next::Broken { offset, what: "it ends inside a record" });
        }
        if checksum(&payload) != sum {
            return Ok(Next::Broken { offset, what: "the checksum of a record is wrong" });
        }
        self.offset += 8 + u64::from(length);
        Ok(match serde_json::from_slice(&payload) {
            Ok(record) => Next::Record(Box::new(record)),
            Err(_) => Next::Unknown { offset },
        })
    }
}

/// Reads until the buffer is full or the input ends; returns how much was read.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match input.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(read) => n += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
