//! Figures of one message that cannot all be true: pasted together from two messages, of two devices, or damaged on the way.
//!
//! Every comparison leaves the room that printed decimals need, and 2 % (or 64 MiB) of the card beside it: a message reads its figures one after
//! the other while other processes go on.

use crate::formats::oom_message::{Figure, OomMessage, Platform, Writer};
use crate::units::{MEBIBYTE, pytorch_size};

/// What contradicts what, a sentence each; empty for a message whose figures can stand together.
pub(super) fn contradictions(m: &OomMessage) -> Vec<String> {
    let mut out: Vec<String> = m
        .negative
        .iter()
        .map(|printed| format!("{printed} is below zero: a counter ran over, or the text was changed on its way here"))
        .collect();
    // Other programs' figures are not of one card.
    if m.dialect.writer.neighbour().is_some() || m.dialect.writer == Writer::Cpu {
        return out;
    }
    let f = &m.figures;
    let capacity = f.capacity;
    let room = capacity.map_or(0, |c| c.bytes / 50).max(64 * MEBIBYTE);
    let mut above = |a: Option<Figure>, what: &str, b: Option<Figure>, whole: &str, room: u64, why: &str| {
        let (Some(a), Some(b)) = (a, b) else { return };
        if a.low() > b.high().saturating_add(room) {
            out.push(format!("{} {what}, but {} {whole}: {why}", pytorch_size(a.bytes), pytorch_size(b.bytes)));
        }
    };
    const OTHER_DEVICE: &str = "the two are of different devices, or of two messages";
    let reserved = m.reserved();
    above(
        f.allocated,
        "allocated by PyTorch",
        f.reserved,
        "reserved in all",
        0,
        "what is allocated is part of what is reserved, so one of the two is of another device or message",
    );
    above(
        f.private_pools,
        "in private pools",
        f.allocated,
        "allocated",
        0,
        "the pools are counted in what is allocated, so one of the two is of another message",
    );
    let shared = if m.dialect.platform == Platform::Hip {
        "on an AMD chip that shares the machine's memory (APU) what is free counts all of that and the capacity only the part set aside for the GPU, in the BIOS; else the two are of different devices"
    } else {
        OTHER_DEVICE
    };
    above(f.free, "free", capacity, "on the whole card", 0, shared);
    above(
        f.limit,
        "allowed",
        capacity,
        "on the whole card",
        0,
        "a limit is a share of its card, so the two are of different devices",
    );
    above(
        // Windows' driver moves memory to the host where the card is full.
        reserved.or(f.allocated).filter(|_| !m.on_windows && f.free.is_none_or(|free| free.bytes > 0)),
        "held by PyTorch",
        capacity,
        "on the whole card",
        0,
        "unless the driver moves memory to the host (managed memory, WSL), the two are of different devices",
    );
    above(m.this_process(), "in use by this process", capacity, "on the whole card", 0, OTHER_DEVICE);
    above(
        reserved,
        "held by PyTorch",
        m.this_process(),
        "in use by this process in all",
        room,
        "PyTorch's part is larger than the whole, so one of the two is of another process or message",
    );
    // Each alone fits; together they do not.
    let each_fits = |a: Figure, b: Figure| capacity.is_some_and(|c| a.low() <= c.high() && b.low() <= c.high());
    if let (Some(free), Some(held)) = (f.free, reserved.or(f.allocated))
        && each_fits(free, held)
    {
        above(
            Some(free.plus(held)),
            "free and held by PyTorch together",
            capacity,
            "on the whole card",
            room,
            "what is free is of another card or another moment than what is held",
        );
    }
    if let (Some(free), Some(listed)) = (f.free, m.listed_processes())
        && each_fits(free, listed)
    {
        above(
            Some(free.plus(listed)),
            "free and in use by the listed processes together",
            capacity,
            "on the whole card",
            room,
            "the list is of another card or another moment",
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, explain};
    use super::*;
    use crate::formats::oom_message::parse;

    fn of(text: &str) -> Vec<String> {
        contradictions(&parse(text).unwrap())
    }

    fn old(capacity: &str, allocated: &str, free: &str, reserved: &str) -> String {
        format!(
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; {capacity} total capacity; {allocated} already allocated; {free} free; \
             {reserved} reserved in total by PyTorch)"
        )
    }

    #[test]
    fn each_impossible_pair_is_named() {
        for (text, words) in [
            (old("16.00 GiB", "9.00 GiB", "1.00 GiB", "7.00 GiB"), "9.00 GiB allocated by PyTorch, but 7.00 GiB reserved in all"),
            (old("16.00 GiB", "9.00 GiB", "17.00 GiB", "10.00 GiB"), "17.00 GiB free, but 16.00 GiB on the whole card"),
            (old("16.00 GiB", "19.00 GiB", "1.00 GiB", "20.00 GiB"), "20.00 GiB held by PyTorch, but 16.00 GiB on the whole card"),
            (old("16.00 GiB", "9.00 GiB", "9.00 GiB", "10.00 GiB"), "19.00 GiB free and held by PyTorch together"),
            (old("16.00 GiB", "-9.00 GiB", "1.00 GiB", "10.00 GiB"), "-9.00GiB is below zero"),
            (
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including \
                 non-PyTorch memory, this process has 5.00 GiB memory in use. 20.00 GiB allowed; Of the allocated memory 9.00 GiB is allocated \
                 by PyTorch, with 9.50 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated."
                    .to_owned(),
                "20.00 GiB allowed",
            ),
        ] {
            let found = of(&text);
            assert!(found.iter().any(|c| c.contains(words)), "{words}: {found:?}");
            let told = explain(&parse(&text).unwrap());
            assert_eq!((told.verdict, told.certain), (Verdict::Unknown, false), "{}", told.sentence);
            assert!(told.sentence.contains("contradict"), "{}", told.sentence);
        }
    }

    #[test]
    fn rounding_and_other_processes_contradict_nothing() {
        for text in [
            old("16.00 GiB", "10.00 GiB", "1.00 GiB", "10.00 GiB"),
            old("15.90 GiB", "14.00 GiB", "0 bytes", "15.90 GiB"),
            old("15.78 GiB", "10.00 GiB", "1.00 GiB", "15.00 GiB"),
            // WSL and some containers list processes whose memory the driver does not know: 2^64 bytes.
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Process 36 has \
             17179869184.00 GiB memory in use. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch \
             but unallocated."
                .to_owned(),
        ] {
            assert_eq!(of(&text), Vec::<String>::new(), "{text}");
        }
    }
}
