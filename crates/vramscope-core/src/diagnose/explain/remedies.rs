//! What to change, by verdict, in the words of the card's vendor and with what the release that wrote the message has.

use super::advice::{self, Advice};
use super::{Remedy, Verdict};
use crate::diagnose::vendor::Words;
use crate::formats::oom_message::{Cause, Figure, OomMessage, Platform, Release, Writer};
use crate::units::pytorch_size;

fn words(m: &OomMessage) -> &'static Words {
    Words::of_platform(m.dialect.platform)
}

/// The variable that hides cards from a process, without a value.
pub(super) fn visible(m: &OomMessage) -> &'static str {
    words(m).visible_name()
}

/// The variable that holds the allocator's settings: the one that the message names, else that of its release and platform (one name
/// for all from 2.10 on).
fn variable(m: &OomMessage) -> &'static str {
    match m.settings_variable {
        Some(named) => named,
        None if m.dialect.since >= Some((2, 10)) => "PYTORCH_ALLOC_CONF",
        None => words(m).conf,
    }
}

/// False where every release that writes the message is older.
fn has(m: &OomMessage, release: Release) -> bool {
    m.dialect.until.is_none_or(|until| until >= release)
}

/// A line of advice in the message's words; `None` where its release lacks the setting, or its platform the tool.
fn tip(m: &OomMessage, line: &str) -> Option<Remedy> {
    let (release, line) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).unwrap_or(("", line));
    let number = |release: &str| -> Option<Release> {
        let (a, b) = release.split_once('.')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let is_of_release = match release.strip_prefix('-') {
        Some(last) => number(last).zip(m.dialect.until).is_some_and(|(last, until)| until <= last),
        None => number(release).is_none_or(|first| has(m, first)),
    };
    let w = words(m);
    let has_tools = !matches!(
        m.dialect.platform,
        Platform::DirectMl | Platform::Vulkan | Platform::Metal | Platform::Mps | Platform::Cpu | Platform::Tpu
    );
    let names_tool = ["{tool}", "{holders}", "{watch}"].iter().any(|name| line.contains(name));
    if !is_of_release || (names_tool && !has_tools) {
        return None;
    }
    let text = [
        ("{tool}", w.tool_that_lists()),
        ("{holders}", w.holders),
        ("{watch}", w.watch),
        ("{module}", w.module),
        ("{conf}", variable(m)),
        ("{visible}", w.visible),
        ("{blocking}", w.blocking),
    ]
    .iter()
    .fold(line.to_owned(), |text, (name, word)| text.replace(name, word));
    let setting = text.split('`').nth(1).map(str::to_owned);
    Some(Remedy { sentence: text.replace('`', ""), setting })
}

fn tips(m: &OomMessage, lines: Advice) -> Vec<Remedy> {
    lines.iter().filter_map(|line| tip(m, line)).collect()
}

pub(super) fn remedies(m: &OomMessage, verdict: Verdict) -> Vec<Remedy> {
    let (writer, platform) = (m.dialect.writer, m.dialect.platform);
    if m.is_absurd_request {
        return tips(m, advice::BROKEN_SIZE);
    }
    let fixed = match writer {
        _ if !m.tips.is_empty() => Some(m.tips),
        _ if m.is_pinned => Some(advice::PIN_MEMORY),
        Writer::Vllm => return vllm(m),
        _ if m.is_warning && writer.neighbour().is_some() => Some(advice::GOES_ON),
        _ if m.is_warning && verdict == Verdict::Unknown => return retried(m),
        Writer::LlamaCpp if m.around == Some(Writer::Ollama) && platform != Platform::Cpu => Some(advice::OLLAMA_RUNNER),
        _ => advice::of_program(writer, platform).or(m.cause.and_then(|cause| match cause {
            Cause::PoolAllocator => Some(advice::POOL_ALLOCATOR),
            Cause::SegmentReserve => Some(advice::SEGMENT_RESERVE),
            Cause::Rejected => None,
        })),
    };
    if let Some(lines) = fixed {
        let mut out = tips(m, lines);
        // Where others hold the device they come first.
        if verdict == Verdict::Contention {
            let who: Vec<String> = tip(m, advice::WHO).into_iter().map(|r| r.sentence).collect();
            out.sort_by_key(|r| !who.contains(&r.sentence));
        }
        return out;
    }
    let slice =
        m.mig_slice.as_ref().filter(|_| matches!(verdict, Verdict::Capacity | Verdict::TooLarge | Verdict::Fragmentation));
    let larger = slice
        .and_then(|_| tip(m, "Take a larger slice of the card: `nvidia-smi mig -lgip` lists the profiles it can be cut into."));
    by_verdict(m, verdict).into_iter().chain(larger).collect()
}

fn by_verdict(m: &OomMessage, verdict: Verdict) -> Vec<Remedy> {
    match verdict {
        Verdict::Fragmentation if super::device::pools_hold_it(m) => tips(m, advice::PRIVATE_POOLS),
        Verdict::Fragmentation => fragmentation(m),
        Verdict::Cap => cap(m),
        Verdict::Capacity => outside(m).into_iter().chain(full(m)).collect(),
        Verdict::Contention => contention(m),
        Verdict::NonPytorch => non_pytorch(m),
        Verdict::TooLarge if m.figures.largest_block.is_some() || is_below_the_card(m) => tips(m, advice::BLOCK),
        Verdict::TooLarge => tips(m, advice::SPLIT).into_iter().chain(full(m).into_iter().skip(1)).collect(),
        Verdict::Unknown => unknown(m),
    }
}

/// True where the card is large enough, and the request too large for one block of Intel's driver.
fn is_below_the_card(m: &OomMessage) -> bool {
    let f = &m.figures;
    m.dialect.platform == Platform::Xpu && f.requested.zip(f.capacity).is_some_and(|(q, capacity)| q.bytes <= capacity.bytes)
}

/// What makes a full card hold less: in a server its own settings, which training's would not be.
fn full(m: &OomMessage) -> Vec<Remedy> {
    tips(
        m,
        match m.around {
            Some(Writer::Sglang) => advice::IN_SGLANG,
            Some(Writer::Vllm) => advice::IN_VLLM,
            Some(Writer::Tgi) => advice::IN_TGI,
            Some(Writer::ComfyUi) => &advice::COMFY_UI[..4],
            _ => advice::FULL,
        },
    )
}

fn retried(m: &OomMessage) -> Vec<Remedy> {
    let mut out = tips(m, advice::RETRIED);
    if m.expandable_segments.is_none() && may_expand(m) {
        out.extend(tip(m, "Where memory lies in holes, let segments grow in place: `{conf}=expandable_segments:True`."));
    }
    out
}

/// Windows' PyTorch has no expandable segments, nor had releases before 2.1.
fn may_expand(m: &OomMessage) -> bool {
    !m.on_windows && has(m, (2, 1))
}

/// Stop the others, or ask for what is free less a little; where the share itself is too small, a larger one or a smaller model.
fn vllm(m: &OomMessage) -> Vec<Remedy> {
    let f = &m.figures;
    let context = m.context.or((f.requested.is_some() && f.free.is_none()).then(Default::default));
    if let Some(context) = context {
        // What a token takes is the same for each.
        let by_bytes = || {
            let (wanted, q, left) = (context.wanted?, f.requested?, f.limit?);
            Some((wanted as f64 * left.low() as f64 / q.high().max(1) as f64) as u64)
        };
        let length = match context.fits.or_else(by_bytes).filter(|&n| n > 0) {
            Some(fits) => tip(m, &format!("Bound the longest input: `--max-model-len {fits}`.")),
            None => tip(m, "Bound the longest input: a lower `--max-model-len`."),
        };
        return length.into_iter().chain(tips(m, &advice::VLLM_LARGER[..4])).collect();
    }
    if !m.has_figures() {
        let length =
            tip(m, "Bound the longest input: a lower `--max-model-len` (the activations of one such input are set aside first).");
        return length.into_iter().chain(tips(m, &advice::VLLM_LARGER[1..])).collect();
    }
    let mut out = tips(m, advice::VLLM_START);
    if let (Some(free), Some(capacity)) = (f.free, f.capacity) {
        let share = (free.low() as f64 / capacity.high().max(1) as f64 * 100.0).floor() / 100.0 - 0.03;
        if share >= 0.1 {
            out.extend(tip(m, &format!(
                "Or take no more than is free: `--gpu-memory-utilization {share:.2}` (the weights must fit, and what is left of it is the KV cache)."
            )));
        }
    }
    out
}

fn fragmentation(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    // Holes that any program has are little to win: what fills the card comes first.
    if holes_are_few(m) {
        match m.other_processes() {
            Some(others) if would_do(m, others) => out.extend(contention(m).into_iter().take(1)),
            _ => out.extend(full(m).into_iter().take(2)),
        }
    }
    let is_on = m.expandable_segments == Some(true);
    out.extend(if is_on {
        tip(m, "Expandable segments are on already; what is left between live blocks are pages that a small tensor keeps mapped. Allocate long-lived tensors before short-lived ones.")
    } else if m.on_windows {
        None
    } else if may_expand(m) {
        tip(m, "Set `{conf}=expandable_segments:True` before the process starts: segments then grow in place and holes can be joined.")
    } else {
        tip(m, "Use PyTorch 2.1 or later, which has expandable segments: they remove most of this.")
    });
    // With expandable segments on, PyTorch does not look at it (`should_split`).
    if !is_on {
        let or = if m.on_windows { "Set" } else { "Or set" };
        out.extend(tip(m, &format!("[1.10] {or} `{{conf}}=max_split_size_mb:128`: larger blocks are no longer cut up by small tensors (try 128 to 512).")));
    }
    out.extend(tips(m, advice::HOLES));
    out
}

/// True where so much more would be free on the card that the request fits.
fn would_do(m: &OomMessage, more: Figure) -> bool {
    m.figures.requested.zip(m.figures.free).is_some_and(|(q, free)| q.bytes <= free.plus(more).bytes)
}

/// True where even all holes are a small share of what PyTorch holds.
fn holes_are_few(m: &OomMessage) -> bool {
    let (Some(holes), Some(reserved)) = (m.unallocated(), m.reserved()) else { return false };
    (holes.bytes as f64) < reserved.bytes as f64 * super::device::FEW_HOLES
}

fn cap(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    let f = &m.figures;
    if let (Some(reserved), Some(q), Some(capacity)) = (m.reserved().or(f.allocated), f.requested, f.capacity)
        && capacity.bytes > 0
    {
        let needed = reserved.high().saturating_add(q.high()) as f64 / capacity.low().max(1) as f64;
        let fraction = (needed * 100.0).ceil() / 100.0;
        if fraction <= 1.0 {
            let sum = pytorch_size(reserved.bytes.saturating_add(q.bytes));
            out.extend(tip(m, &format!("Raise the limit: `torch.{{module}}.set_per_process_memory_fraction({fraction:.2})` would have let this request through ({sum} of {}).", capacity.printed())));
        }
    }
    if out.is_empty() {
        out.extend(tip(m, "Raise or remove the limit: `torch.{module}.set_per_process_memory_fraction(1.0)`."));
    }
    out.extend(tip(m, "Look for who set it: set_per_process_memory_fraction in the code, or per_process_memory_fraction in the allocator's settings."));
    out.extend(full(m).into_iter().take(2));
    out
}

/// Where the request would have fitted without what is outside PyTorch, that is the first thing to look at.
fn outside(m: &OomMessage) -> Option<Remedy> {
    let bytes = super::device::outside_that_decides(m)?.printed();
    if m.this_process().is_some() {
        return tip(
            m,
            &format!(
                "Find what takes the {bytes} outside PyTorch in this process: some hundred MiB are its context, which stays; the rest is NCCL, CUDA graphs, workspaces or another library on the same card."
            ),
        );
    }
    tip(
        m,
        &format!(
            "Find what takes the {bytes} outside PyTorch (another program, the desktop, a second context of this one): `{{tool}}` lists the processes; stop them, or run on a card without a display."
        ),
    )
}

fn contention(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    let mut others: Vec<_> = m.processes.iter().filter(|p| !p.is_this).collect();
    others.sort_by_key(|p| std::cmp::Reverse(p.bytes.bytes));
    if let Some(largest) = others.first() {
        let list: Vec<String> = others
            .iter()
            .take(5)
            .map(|p| format!("{} with {}", p.pid.map_or("one".to_owned(), |pid| format!("pid {pid}")), p.bytes.printed()))
            .collect();
        let command =
            largest.pid.map_or(words(m).tool_that_lists().to_owned(), |pid| format!("ps -o pid,user,etime,cmd -p {pid}"));
        out.extend(tip(
            m,
            &format!("Stop what should not run beside this ({}); see what the largest is with `{command}`.", list.join(", ")),
        ));
    }
    out.extend(tips(m, advice::SHARE));
    out
}

fn non_pytorch(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    if !matches!(m.dialect.platform, Platform::Hip | Platform::Xpu | Platform::Npu) {
        out.extend(tip(m, "Load kernels only when used: `CUDA_MODULE_LOADING=LAZY` (the default since PyTorch 1.13; libraries may turn it off)."));
    }
    let w = words(m);
    let buffers = match m.dialect.platform {
        Platform::Xpu => "",
        Platform::Npu => " HCCL_BUFFSIZE makes them smaller.",
        _ => " NCCL_BUFFSIZE makes them smaller.",
    };
    let library = w.collectives;
    out.extend(tip(
        m,
        &format!("Use fewer process groups and communicators: each {library} communicator holds its own buffers.{buffers}"),
    ));
    out.extend(tip(m, &format!("Capture fewer graphs, and check extensions that call {} themselves.", w.malloc)));
    out
}

fn unknown(m: &OomMessage) -> Vec<Remedy> {
    let mut out = Vec::new();
    if !m.unread().is_empty() {
        out.extend(tip(m, "Paste the whole message as it was printed, up to \"reserved by PyTorch but unallocated\": what it lacks here decides."));
    }
    let f = &m.figures;
    if let (Some(q), Some(free)) = (f.requested, f.free)
        && q.bytes <= free.bytes
    {
        if m.expandable_segments == Some(true) {
            out.extend(tip(
                m,
                "Each expandable segment reserves address space for the whole card: look for a limit with `ulimit -v`.",
            ));
        }
        out.extend(tip(m, "Watch the card while it happens, for a process that comes and goes: `{watch}`."));
        out.extend(tip(m, match m.dialect.platform {
            Platform::Hip => "Check for a limit outside PyTorch: a partition of the card (CPX, NPS), a container's quota, or Windows' own budget.",
            Platform::Npu => "Check for a limit outside PyTorch: a virtual part of the card, or a container's quota.",
            Platform::Xpu => "Check for a limit outside PyTorch: one tile or a virtual function of the card, the driver's largest single allocation, a container's quota.",
            _ if m.on_windows => "Give Windows a larger paging file: it promises as much memory of its own as a program takes on the card, and refuses where it cannot.",
            _ => "Check for a limit outside PyTorch: a vGPU or MIG profile, MPS (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), a container's quota, or Windows' own budget.",
        }));
        return out;
    }
    match m.dialect.writer {
        Writer::Cublas => out.extend(tips(m, advice::CUBLAS)),
        Writer::Nccl => out.extend(tips(m, advice::NCCL)),
        _ => {}
    }
    // PyTorch's own allocator has handed its cache back before it gives up; others fail beside a full cache.
    if m.dialect.writer != Writer::PyTorch {
        out.extend(tips(m, if m.is_foreign { advice::BARE_FOREIGN } else { advice::BARE }));
    }
    if m.around.is_some() {
        out.splice(0..0, full(m).into_iter().take(2));
    }
    out.extend(tips(m, advice::HOLDS));
    if !m.is_foreign {
        out.extend(tips(m, advice::RECORD));
    }
    out
}
