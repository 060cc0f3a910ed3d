//! The format in which a run and the process that started it talk over pipes: frames of `postcard`.
//!
//! A frame is its length as a little-endian `u32`, then one value of serde in postcard's encoding. A run first sends
//! [`Hello`](Message::Hello), which has the version, and last [`End`](Message::End). Without it, the run was killed.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::Message;

/// The version of this format.
pub(super) const VERSION: u32 = 2;
/// Largest frame in bytes.
const LONGEST: u32 = 64 << 20;

/// Writes one message.
pub fn write_message(out: &mut impl Write, message: &Message) -> io::Result<()> {
    write_frame(out, message)
}

/// Reads one message; `None` at the end of the pipe.
///
/// # Errors
/// A frame that is cut short, too long or of another version.
pub fn read_message(input: &mut impl Read) -> io::Result<Option<Message>> {
    match read_frame(input)? {
        Some(Message::Hello(hello)) if hello.version != VERSION => Err(other_version()),
        message => Ok(message),
    }
}

pub(super) fn write_frame<T: Serialize + ?Sized>(out: &mut impl Write, value: &T) -> io::Result<()> {
    let mut frame = postcard::to_extend(value, vec![0u8; 4]).map_err(io::Error::other)?;
    let length = u32::try_from(frame.len() - 4).ok().filter(|&l| l <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("a message of more than 64 MiB"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    out.write_all(&frame)
}

/// Reads one frame; `None` at the end of the pipe.
pub(super) fn read_frame<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0u8; 4];
    match input.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(other_version());
    }
    let mut frame = vec![0u8; length as usize];
    input.read_exact(&mut frame)?;
    match postcard::take_from_bytes(&frame) {
        Ok((value, [])) => Ok(Some(value)),
        _ => Err(other_version()),
    }
}

fn other_version() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the run does not speak this version's format")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::card::CardInfo;
    use crate::probe::message::{End, Ending, Hello, RawEvent};
    use crate::probe::program::Site;
    use vramscope_core::allocator::{HeldBlock, HeldSegment};
    use vramscope_core::model::{Action, BlockState, Sample, SizeClass};

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
