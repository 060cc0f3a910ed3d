//! What to change, by verdict, in the words of the card's vendor and with what the release that wrote the message has.

use super::advice::{self, Advice};
use super::condition::is;
use super::words::fill;
use super::{Remedy, Verdict};
use crate::formats::oom_message::{Cause, OomMessage, Platform, Writer};

/// A line of advice in the message's words; `None` where it does not apply.
fn tip(m: &OomMessage, line: &str) -> Option<Remedy> {
    let text = fill(m, line)?;
    let setting = text.split('`').nth(1).map(str::to_owned);
    let is_relative = ["lower `", "higher `", "leave out `", "fewer `"].iter().any(|words| text.contains(words));
    // What is set already does not help.
    if !is_relative && setting.as_deref().is_some_and(|setting| m.is_given(setting)) {
        return None;
    }
    Some(Remedy { sentence: text.trim_start().replace('`', ""), setting })
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
        _ if m.asks_for_the_impossible() => Some(advice::BROKEN_SIZE),
        _ if !m.tips.is_empty() => Some(m.tips),
        _ if m.is_pinned => Some(advice::PIN_MEMORY),
        Writer::Vllm if is_share_too_small => Some(advice::VLLM_LARGER),
        Writer::Vllm if m.figures.requested.is_none() => Some(advice::VLLM_NOTHING_LEFT),
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
        Verdict::Capacity if m.is_loading && m.around.is_none() => &[advice::LOADING],
        Verdict::Capacity | Verdict::Unknown if m.is_loading && m.around == Some(Writer::Vllm) => &[advice::LOADING_VLLM],
        Verdict::Capacity if m.around.is_some() => &[full, advice::OUTSIDE, advice::FEW_HOLES],
        Verdict::Capacity => &[advice::OTHERS, advice::OUTSIDE, full, advice::FEW_HOLES],
        Verdict::Contention => &[advice::SHARE],
        // A server takes the share that it is told to, and its graphs and communicators come on top.
        Verdict::NonPytorch if m.around.is_some() => &[full, advice::NON_PYTORCH],
        Verdict::NonPytorch => &[advice::NON_PYTORCH],
        Verdict::TooLarge if platform == Platform::Xpu && is_below_the_card => &[advice::BLOCK],
        Verdict::TooLarge if m.figures.allocated.is_some_and(|held| held.bytes == 0) => &[advice::SPLIT, advice::ONE_TENSOR],
        Verdict::TooLarge => &[advice::SPLIT, &full[1..]],
        Verdict::Unknown if is(m, "fits") => &[advice::REFUSED, if m.around == Some(Writer::ComfyUi) { full } else { &[] }],
        Verdict::Unknown if m.around.is_some() => &[advice::CUT, advice::CAPTURING, &full[..2], advice::UNKNOWN],
        Verdict::Unknown => &[advice::CUT, advice::CAPTURING, advice::UNKNOWN],
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
        Some(Writer::SdWebUi) => advice::IN_SD_WEBUI,
        Some(Writer::TrtLlm) => advice::of_program(Writer::TrtLlm, m.dialect.platform).unwrap_or(advice::FULL),
        _ => advice::FULL,
    }
}
