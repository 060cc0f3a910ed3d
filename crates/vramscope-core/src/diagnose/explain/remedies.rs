//! What to change, by verdict, in the words of the card's vendor and with what the release that wrote the message has.

use super::advice::{self, Advice};
use super::words::{fill, has, own};
use super::{Remedy, Verdict};
use crate::formats::oom_message::{Cause, OomMessage, Platform, Release, Writer};

/// A line of advice in the message's words; `None` where one of its conditions is not met, or where it names what is not told.
fn tip(m: &OomMessage, line: &str) -> Option<Remedy> {
    let (conditions, line) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap_or(("", line));
    if !conditions.split(", ").all(|condition| is_met(m, condition)) {
        return None;
    }
    let text = fill(m, line)?;
    let setting = text.split('`').nth(1).map(str::to_owned);
    Some(Remedy { sentence: text.replace('`', ""), setting })
}

/// What a condition in brackets before a line says of the message.
fn is_met(m: &OomMessage, condition: &str) -> bool {
    if let Some(condition) = condition.strip_prefix("not ") {
        return !is_met(m, condition);
    }
    let release = |text: &str| -> Option<Release> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    match condition {
        "" => true,
        "expands" => m.expandable_segments == Some(true),
        // Windows' PyTorch has no expandable segments.
        "windows" => m.on_windows,
        "own" => m.this_process().is_some(),
        "cut" => !m.unread().is_empty(),
        // The holes would have been enough.
        "joined" => {
            m.figures.requested.zip(m.figures.free).is_some_and(|(q, free)| own(m, free).is_some_and(|own| q.bytes <= own.bytes))
        }
        "foreign" => m.is_foreign,
        "nvidia" => !matches!(m.dialect.platform, Platform::Hip | Platform::Xpu | Platform::Npu),
        // The card had what was requested.
        "free" => m.figures.requested.zip(m.figures.free).is_some_and(|(q, free)| q.bytes <= free.bytes),
        // PyTorch's own allocator has handed its cache back before it gives up; others fail beside a full cache.
        "pytorch" => m.dialect.writer == Writer::PyTorch,
        "cublas" => m.dialect.writer == Writer::Cublas,
        "nccl" => m.dialect.writer == Writer::Nccl,
        _ if condition == m.dialect.platform.name() => true,
        _ => match condition.strip_prefix('-').and_then(release) {
            Some(last) => m.dialect.until.is_some_and(|until| until <= last),
            None => release(condition).is_some_and(|first| has(m, first)),
        },
    }
}

pub(super) fn remedies(m: &OomMessage, verdict: Verdict) -> Vec<Remedy> {
    let mut out: Vec<Remedy> = lines(m, verdict).into_iter().filter_map(|line| tip(m, line)).collect();
    // Where others hold the device they come first.
    if verdict == Verdict::Contention
        && let Some(who) = tip(m, advice::WHO)
    {
        out.sort_by_key(|remedy| *remedy != who);
    }
    out
}

fn lines(m: &OomMessage, verdict: Verdict) -> Vec<&'static str> {
    let (writer, platform) = (m.dialect.writer, m.dialect.platform);
    let is_share_too_small = m.context.is_some() || m.figures.requested.is_some() && m.figures.free.is_none();
    let fixed: Option<Advice> = match writer {
        _ if m.is_absurd_request => Some(advice::BROKEN_SIZE),
        _ if !m.tips.is_empty() => Some(m.tips),
        _ if m.is_pinned => Some(advice::PIN_MEMORY),
        Writer::Vllm if is_share_too_small => Some(advice::VLLM_LARGER),
        Writer::Vllm if !m.has_figures() => Some(advice::VLLM_NOTHING_LEFT),
        Writer::Vllm => Some(advice::VLLM_START),
        _ if m.is_warning && writer.neighbour().is_some() => Some(advice::GOES_ON),
        _ if m.is_warning && verdict == Verdict::Unknown => Some(advice::RETRIED),
        Writer::LlamaCpp if m.around == Some(Writer::Ollama) && platform != Platform::Cpu => Some(advice::OLLAMA_RUNNER),
        _ => advice::of_program(writer, platform).or(match m.cause {
            Some(Cause::PoolAllocator) => Some(advice::POOL_ALLOCATOR),
            Some(Cause::SegmentReserve) => Some(advice::SEGMENT_RESERVE),
            _ => None,
        }),
    };
    if let Some(lines) = fixed {
        return lines.to_vec();
    }
    let full = full(m);
    let is_sliced = m.mig_slice.is_some() && matches!(verdict, Verdict::Capacity | Verdict::TooLarge | Verdict::Fragmentation);
    let is_below_the_card = m.figures.requested.zip(m.figures.capacity).is_some_and(|(q, capacity)| q.bytes <= capacity.bytes);
    let lists: &[Advice] = match verdict {
        Verdict::Fragmentation if super::device::pools_hold_it(m) => &[advice::PRIVATE_POOLS],
        Verdict::Fragmentation => &[advice::HOLES],
        Verdict::Cap => &[advice::CAP, &full[..2]],
        Verdict::Capacity => &[advice::OUTSIDE, full, advice::FEW_HOLES],
        Verdict::Contention => &[advice::SHARE],
        Verdict::NonPytorch => &[advice::NON_PYTORCH],
        Verdict::TooLarge if platform == Platform::Xpu && is_below_the_card => &[advice::BLOCK],
        Verdict::TooLarge => &[advice::SPLIT, &full[1..]],
        Verdict::Unknown if is_met(m, "free") => &[advice::REFUSED],
        Verdict::Unknown if m.around.is_some() => &[advice::CUT, &full[..2], advice::UNKNOWN],
        Verdict::Unknown => &[advice::CUT, advice::UNKNOWN],
    };
    lists.iter().copied().chain(is_sliced.then_some(advice::LARGER_SLICE)).flatten().copied().collect()
}

/// What makes a full card hold less: in a server its own settings, which training's would not be.
fn full(m: &OomMessage) -> Advice {
    match m.around {
        Some(Writer::Sglang) => advice::IN_SGLANG,
        Some(Writer::Vllm) => advice::IN_VLLM,
        Some(Writer::Tgi) => advice::IN_TGI,
        Some(Writer::ComfyUi) => &advice::COMFY_UI[..4],
        _ => advice::FULL,
    }
}
