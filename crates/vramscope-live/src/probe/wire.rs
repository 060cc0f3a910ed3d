//! The framed format in which a child process reports its run.
//!
//! ```text
//! frame   length: u32, kind: u8, payload: length - 1 bytes     (integers are little-endian)
//! H       Hello as JSON, first of all
//! E       events, 56 bytes each: time i64, address, size, stream, pool, pool u64, site u32, action u8, host u8, two zero bytes
//! S       a sample as a JSON array: time, used, driver, process, others, reserved, active, allocated, requested (null: unknown)
//! R       a range as a JSON array: name, start, end or null, depth
//! T       the state at the end: host u8, segments u32, then per segment address, size, stream, pool, pool u64, class u8,
//!         expandable u8, blocks u32, then per block address, size, requested u64, state u8
//! Z       End as JSON, last of all
//! ```
//!
//! `Hello` has the version. A pipe that ends without `Z` means that the run was killed.

use std::io::{self, Read, Write};

use super::message::{End, Hello, Message, RawEvent};
use vramscope_core::allocator::{HeldBlock, HeldSegment};
use vramscope_core::model::{Action, BlockState, Sample, SizeClass};

/// The version of this format.
pub(super) const VERSION: u32 = 1;
/// Largest frame in bytes.
const LONGEST: u32 = 64 << 20;
const EVENT: usize = 56;

/// Writes one message.
///
/// # Errors
/// The writer's error.
pub fn write_message(out: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut frame = vec![0u8; 4];
    match message {
        Message::Hello(hello) => {
            frame.push(b'H');
            serde_json::to_writer(&mut frame, hello)?;
        }
        Message::Events(events) => {
            frame.push(b'E');
            for e in events {
                for word in [e.time_us as u64, e.address, e.size, e.stream, e.pool.0, e.pool.1] {
                    frame.extend(word.to_le_bytes());
                }
                frame.extend(e.site.to_le_bytes());
                let action = Action::NAMED.iter().position(|&a| a == e.action).unwrap_or(usize::from(u8::MAX));
                frame.extend([action as u8, u8::from(e.is_host), 0, 0]);
            }
        }
        Message::Sample(s) => {
            frame.push(b'S');
            let row = (s.time_us, [s.used, s.driver, s.process, s.others, s.reserved, s.active, s.allocated, s.requested]);
            serde_json::to_writer(&mut frame, &row)?;
        }
        Message::Range { name, start_us, end_us, depth } => {
            frame.push(b'R');
            serde_json::to_writer(&mut frame, &(name, start_us, end_us, depth))?;
        }
        Message::State { is_host, segments } => {
            frame.extend([b'T', u8::from(*is_host)]);
            frame.extend((segments.len() as u32).to_le_bytes());
            for s in segments {
                for word in [s.address, s.size, s.stream, s.pool.0, s.pool.1] {
                    frame.extend(word.to_le_bytes());
                }
                frame.extend([u8::from(s.class == SizeClass::Small), u8::from(s.is_expandable)]);
                frame.extend((s.blocks.len() as u32).to_le_bytes());
                for b in &s.blocks {
                    for word in [b.address, b.size, b.requested] {
                        frame.extend(word.to_le_bytes());
                    }
                    frame.push(match b.state {
                        BlockState::Active => 0,
                        BlockState::PendingFree => 1,
                        BlockState::Inactive => 2,
                    });
                }
            }
        }
        Message::End(end) => {
            frame.push(b'Z');
            serde_json::to_writer(&mut frame, end)?;
        }
    }
    let length = u32::try_from(frame.len() - 4).ok().filter(|&l| l <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("a message of more than 64 MiB"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    out.write_all(&frame)
}

/// Reads one message; `None` at the end of the pipe.
///
/// # Errors
/// A frame that is cut short, too long or of another format.
pub fn read_message(input: &mut impl Read) -> io::Result<Option<Message>> {
    let mut length = [0u8; 4];
    match input.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length == 0 || length > LONGEST {
        return Err(odd());
    }
    let mut frame = vec![0u8; length as usize];
    input.read_exact(&mut frame)?;
    decode(frame[0], &frame[1..]).map(Some)
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the run does not speak this version's format")
}

type SampleRow = (i64, [Option<u64>; 8]);
type RangeRow = (String, i64, Option<i64>, u16);

fn decode(kind: u8, payload: &[u8]) -> io::Result<Message> {
    match kind {
        b'H' => {
            let hello: Hello = serde_json::from_slice(payload)?;
            if hello.version == VERSION { Ok(Message::Hello(Box::new(hello))) } else { Err(odd()) }
        }
        b'E' => {
            if !payload.len().is_multiple_of(EVENT) {
                return Err(odd());
            }
            payload.chunks_exact(EVENT).map(event).collect::<io::Result<Vec<RawEvent>>>().map(Message::Events)
        }
        b'S' => {
            let (time_us, [used, driver, process, others, reserved, active, allocated, requested]): SampleRow =
                serde_json::from_slice(payload)?;
            Ok(Message::Sample(Sample { time_us, used, driver, process, others, reserved, active, allocated, requested }))
        }
        b'R' => {
            let (name, start_us, end_us, depth): RangeRow = serde_json::from_slice(payload)?;
            Ok(Message::Range { name, start_us, end_us, depth })
        }
        b'T' => state(payload),
        b'Z' => {
            let end: End = serde_json::from_slice(payload)?;
            Ok(Message::End(Box::new(end)))
        }
        _ => Err(odd()),
    }
}

/// Reads integers from the front of a payload.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or_else(odd)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u8(&mut self) -> io::Result<u8> {
        self.bytes::<1>().map(|b| b[0])
    }
}

fn event(row: &[u8]) -> io::Result<RawEvent> {
    let mut w = Words(row);
    let time_us = w.u64()? as i64;
    let (address, size, stream) = (w.u64()?, w.u64()?, w.u64()?);
    let pool = (w.u64()?, w.u64()?);
    let site = w.u32()?;
    let action = Action::NAMED.get(usize::from(w.u8()?)).copied().unwrap_or(Action::Unknown);
    Ok(RawEvent { time_us, action, is_host: w.u8()? != 0, site, address, size, stream, pool })
}

fn state(payload: &[u8]) -> io::Result<Message> {
    let mut w = Words(payload);
    let is_host = w.u8()? != 0;
    let count = w.u32()?;
    let mut segments = Vec::new();
    for _ in 0..count {
        let (address, size, stream) = (w.u64()?, w.u64()?, w.u64()?);
        let pool = (w.u64()?, w.u64()?);
        let class = if w.u8()? == 1 { SizeClass::Small } else { SizeClass::Large };
        let is_expandable = w.u8()? != 0;
        let mut blocks = Vec::new();
        for _ in 0..w.u32()? {
            let (address, size, requested) = (w.u64()?, w.u64()?, w.u64()?);
            let state = match w.u8()? {
                0 => BlockState::Active,
                1 => BlockState::PendingFree,
                _ => BlockState::Inactive,
            };
            blocks.push(HeldBlock { address, size, requested, state });
        }
        segments.push(HeldSegment { address, size, stream, pool, class, is_expandable, blocks });
    }
    Ok(Message::State { is_host, segments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{CardInfo, Ending, Site};

    fn messages() -> Vec<Message> {
        let hello = Hello {
            version: VERSION,
            scenario: "leak".to_owned(),
            card: CardInfo { name: "NVIDIA H200".to_owned(), total: 1 << 37, ..CardInfo::default() },
            sites: vec![Site { what: "losses".to_owned(), phase: "step".to_owned() }],
            ..Hello::default()
        };
        let event = RawEvent {
            time_us: -5,
            action: Action::SegmentMap,
            is_host: true,
            site: 7,
            address: u64::MAX,
            size: 1,
            stream: 2,
            pool: (0, 3),
        };
        let block = HeldBlock { address: 512, size: 1024, requested: 700, state: BlockState::PendingFree };
        let segment = HeldSegment {
            address: 512,
            size: 1024,
            stream: 9,
            pool: (1, 0),
            class: SizeClass::Small,
            is_expandable: true,
            blocks: vec![block],
        };
        vec![
            Message::Hello(Box::new(hello)),
            Message::Events(vec![event; 3]),
            Message::Sample(Sample { time_us: 4, used: Some(1), requested: Some(2), ..Sample::default() }),
            Message::Range { name: "ProfilerStep#1".to_owned(), start_us: 1, end_us: None, depth: 2 },
            Message::State { is_host: false, segments: vec![segment] },
            Message::End(Box::new(End {
                ending: Ending::OutOfMemory("full".to_owned()),
                oom_request: Some(3),
                ..End::default()
            })),
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut pipe = Vec::new();
        for message in messages() {
            write_message(&mut pipe, &message).unwrap();
        }
        let mut input = pipe.as_slice();
        let mut read = Vec::new();
        while let Some(message) = read_message(&mut input).unwrap() {
            read.push(message);
        }
        assert_eq!(read, messages());
    }

    #[test]
    fn a_pipe_cut_anywhere_gives_an_end_or_an_error_and_never_a_panic() {
        for message in messages() {
            let mut pipe = Vec::new();
            write_message(&mut pipe, &message).unwrap();
            for cut in 1..pipe.len() {
                let read = read_message(&mut &pipe[..cut]);
                assert!(matches!(read, Ok(None) | Err(_)), "{message:?} cut at {cut}");
            }
            pipe[4] = b'?';
            assert!(read_message(&mut pipe.as_slice()).is_err());
        }
    }
}
