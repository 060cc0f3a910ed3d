//! Figures of one message that cannot all be true: pasted together from two messages, of two devices, or damaged.
//!
//! Every comparison leaves the room that printed decimals need, and 2 % (or 64 MiB) of the card beside it where a message reads its
//! figures one after the other while other processes go on.

use crate::formats::oom_message::{Figure, OomMessage, Platform, Writer};
use crate::units::{MEBIBYTE, pytorch_size};

const OTHER_DEVICE: &str = "the two are of different devices, or of two messages";
const ON_CARD: &str = "on the whole card";

/// A figure, what it is, the whole that it cannot exceed, what that is, whether other processes may have gone on in between, and why it cannot.
type Pair =
    (fn(&OomMessage) -> Option<Figure>, &'static str, fn(&OomMessage) -> Option<Figure>, &'static str, bool, &'static str);

#[rustfmt::skip]
const PAIRS: [Pair; 10] = [
    (|m| m.figures.allocated, "allocated by PyTorch", |m| m.figures.reserved, "reserved in all", false,
        "what is allocated is part of what is reserved, so one of the two is of another device or message"),
    (|m| m.figures.private_pools, "in private pools", |m| m.figures.allocated, "allocated", false,
        "the pools are counted in what is allocated, so one of the two is of another message"),
    (|m| m.figures.free.filter(|_| m.dialect.platform != Platform::Hip), "free", capacity, ON_CARD, false, OTHER_DEVICE),
    (|m| m.figures.free.filter(|_| m.dialect.platform == Platform::Hip), "free", capacity, ON_CARD, false,
        "on an AMD chip that shares the machine's memory (APU) what is free counts all of that and the capacity only the part set aside for the \
        GPU, in the BIOS; else the two are of different devices"),
    (|m| m.figures.limit, "allowed", capacity, ON_CARD, false, "a limit is a share of its card, so the two are of different devices"),
    // Windows' driver moves memory to the host where the card is full.
    (|m| held(m).filter(|_| !m.on_windows && m.figures.free.is_none_or(|free| free.bytes > 0)), "held by PyTorch", capacity, ON_CARD, false,
        "a pool that was put to sleep (vLLM's sleep mode, torch_memory_saver) is still counted, and a driver may move memory to the host (managed memory, \
        WSL); else the two are of different devices"),
    (OomMessage::this_process, "in use by this process", capacity, ON_CARD, false, OTHER_DEVICE),
    (OomMessage::reserved, "held by PyTorch", OomMessage::this_process, "in use by this process in all", true,
        "PyTorch's part is larger than the whole, so one of the two is of another process or message"),
    (|m| beside_free(m, held(m)), "free and held by PyTorch together", capacity, ON_CARD, true,
        "what is free is of another card or another moment than what is held"),
    (|m| beside_free(m, m.listed_processes()), "free and in use by the listed processes together", capacity, ON_CARD, true,
        "the list is of another card or another moment"),
];

fn capacity(m: &OomMessage) -> Option<Figure> {
    m.figures.capacity
}

fn held(m: &OomMessage) -> Option<Figure> {
    m.reserved().or(m.figures.allocated)
}

/// The sum of used and free bytes, if each alone fits on the card.
fn beside_free(m: &OomMessage, used: Option<Figure>) -> Option<Figure> {
    let (free, used, capacity) = (m.figures.free?, used?, m.figures.capacity?);
    (free.low().max(used.low()) <= capacity.high()).then(|| free.plus(used))
}

/// Figures that contradict each other, one sentence each; empty if all figures can be true.
pub(super) fn contradictions(m: &OomMessage) -> Vec<String> {
    let below_zero =
        |printed: &String| format!("{printed} is below zero: a counter ran over, or the text was changed on its way here");
    let mut out: Vec<String> = m.negative.iter().map(below_zero).collect();
    // Other programs' figures are not of one card.
    if m.dialect.writer.neighbour().is_some() || m.dialect.writer == Writer::Cpu {
        return out;
    }
    let room = m.figures.capacity.map_or(0, |c| c.bytes / 50).max(64 * MEBIBYTE);
    for (part, what, whole, of, goes_on, why) in PAIRS {
        let (Some(a), Some(b)) = (part(m), whole(m)) else { continue };
        if a.low() > b.high().saturating_add(if goes_on { room } else { 0 }) {
            out.push(format!("{} {what}, but {} {of}: {why}", pytorch_size(a.bytes), pytorch_size(b.bytes)));
        }
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
