//! PyTorch's own messages: the caching allocator from 0.4 to 2.15 on CUDA, HIP and XPU, cudaMallocAsync, MPS and the CPU.

use super::text::{Squeezed, Window};
use super::{Cause, Dialect, Figure, OomMessage, Platform, ProcessUse, Release, Writer};

type Read = Option<(OomMessage, usize)>;

/// The figure right before `mark`.
fn before(text: &str, mark: &str) -> Option<Figure> {
    Figure::at_end(text.get(..text.find(mark)?)?)
}

/// The figure right after `mark`.
pub(super) fn after(text: &str, mark: &str) -> Option<Figure> {
    Figure::at_start(text.get(text.find(mark)? + mark.len()..)?).map(|(figure, _)| figure)
}

/// The number right after `mark`.
pub(super) fn number_after(text: &str, mark: &str) -> Option<u32> {
    let rest = text.get(text.find(mark)? + mark.len()..)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..digits)?.parse().ok()
}

/// The whole number right after `mark`.
pub(super) fn number_of(text: &str, mark: &str) -> Option<u64> {
    let rest = text.split_once(mark)?.1;
    rest.get(..rest.bytes().take_while(u8::is_ascii_digit).count())?.parse().ok()
}

/// `CUDA out of memory. Tried to allocate …`, and the same for HIP and XPU, in every wording.
pub(super) fn native(window: &Window<'_>, platform: Platform) -> Read {
    let text = window.text();
    let head = text.find("outofmemory")? + "outofmemory".len();
    let body = text.get(head..)?;
    let mut message = OomMessage::new(Dialect::of(Writer::PyTorch, platform));
    if let Some(rest) = body.strip_prefix(".Triedtoallocate") {
        if rest.starts_with("morethan1EB") {
            message.is_absurd_request = true;
            return Some((message, head + 20));
        }
        let is_negative = rest.starts_with('-');
        // A size that cannot be read leaves the other figures as they are.
        let (requested, length) = Figure::at_start(rest.strip_prefix('-').unwrap_or(rest)).unzip();
        message.figures.requested = requested.filter(|_| !is_negative);
        let rest = rest.get(length.map_or(0, |l| l + usize::from(is_negative))..)?;
        let end = if in_brackets(rest) { parenthesised(rest, &mut message) } else { sentences(rest, &mut message) };
        let used = text.len() - rest.len() + end;
        date(&mut message, rest, window.before(40));
        message.settings_variable = settings_variable(rest.get(end..).unwrap_or(""));
        return Some((message, used));
    }
    if body.starts_with(".Allocationwaspreemptivelyrejected") {
        message.is_rejection = true;
        message.dialect.since = Some((2, 12));
        sentences(body, &mut message);
        let f = &mut message.figures;
        f.requested = after(body, "Requestedsize:");
        f.limit = f.limit.or_else(|| after(body, "(allowed:"));
        f.allocated = f.allocated.or_else(|| after(body, ",allocated:"));
        return Some((message, head + 40));
    }
    // A log that kept only the first words.
    (body.is_empty() || body.starts_with('.') || window.first_line_length() <= head + 1).then_some((message, head))
}

/// The variable that the end of a message advises to set.
fn settings_variable(tail: &str) -> Option<&'static str> {
    const NAMES: [&str; 5] = [
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_NPU_ALLOC_CONF",
        "PYTORCH_XPU_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
    ];
    NAMES.into_iter().filter_map(|name| Some((tail.find(name)?, name))).min().map(|(_, name)| name)
}

/// True for the wording up to 2.0, which has its figures in brackets (and torch_npu's still does).
fn in_brackets(rest: &str) -> bool {
    let rest = rest.trim_start_matches('.');
    rest.starts_with("(GPU") || rest.starts_with("(NPU")
}

/// `Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU 0; …)`: Intel's
/// extension for PyTorch, before it asks the driver.
pub(super) fn single_block(window: &Window<'_>) -> Read {
    let text = window.text();
    let mut message = OomMessage::new(Dialect::of(Writer::PyTorch, Platform::Xpu));
    let body = text.get(text.find("Triedtoallocate").filter(|&at| at < 80)?..)?;
    parenthesised(body.get(body.find("(GPU")?..)?, &mut message);
    message.figures.largest_block = after(text, "largerthan");
    message.figures.requested = after(body, "Triedtoallocate");
    Some((message, 60))
}

/// The part of a message that people quote without its beginning: `5.50 GiB reserved in total by PyTorch`, `1.94 GiB already
/// allocated; 267.70 MiB free; 2.10 GiB reserved`. Only where a figure stands before words that nothing but PyTorch writes.
pub(super) fn fragment(body: &str) -> Option<OomMessage> {
    let mut message = OomMessage::new(Dialect::of(Writer::PyTorch, Platform::Unknown));
    if body.contains("isallocatedbyPyTorch") || body.contains("isreservedbyPyTorchbutunallocated") {
        sentences(body, &mut message);
    } else {
        parenthesised(body, &mut message);
    }
    message.figures.requested = after(body, "Triedtoallocate");
    let f = &message.figures;
    let is_pytorchs = f.allocated.is_some() || f.unallocated.is_some() || body.contains("reservedintotalbyPyTorch");
    message.line = 1;
    (is_pytorchs && message.has_figures()).then_some(message)
}

/// 1.0 to 2.0: `(GPU 0; T total capacity; U already allocated; F free; R reserved in total by PyTorch)`. Returns its length.
fn parenthesised(rest: &str, message: &mut OomMessage) -> usize {
    let end = rest.find(')').map_or(rest.len(), |at| at + 1);
    let part = &rest[..end];
    message.gpu = number_after(part, "(GPU").or_else(|| number_after(part, "(NPU"));
    let f = &mut message.figures;
    f.capacity = before(part, "totalcapacity");
    f.allocated = before(part, "alreadyallocated");
    f.free = before(part, "free;").or_else(|| before(part, "free)"));
    f.limit = before(part, "allowed;");
    f.reserved = before(part, "reservedintotalbyPyTorch").or_else(|| before(part, "reserved"));
    // Up to 1.3 "cached" is the part of the cache that holds no tensor.
    f.unallocated = before(part, "cached");
    end
}

/// 2.1 and later: `GPU 0 has a total capacity of T of which F is free. …`. Returns the length up to the last figure.
fn sentences(rest: &str, message: &mut OomMessage) -> usize {
    let close = "isreservedbyPyTorchbutunallocated";
    let end = rest.find(close).map_or(rest.len(), |at| at + close.len());
    let part = &rest[..end];
    message.gpu = number_after(part, ".GPU").or_else(|| number_after(part, "GPU"));
    let f = &mut message.figures;
    f.capacity = after(part, "hasatotalcapacityof").or_else(|| after(part, "hasatotalcapactyof"));
    f.free = before(part, "isfree.");
    f.limit = before(part, "allowed;").filter(|l| !l.is_unlimited());
    f.allocated = after(part, "Oftheallocatedmemory");
    f.private_pools = before(part, "allocatedinprivatepools");
    f.unallocated = before(part, close);
    let in_use = "memoryinuse";
    for (at, _) in part.match_indices(in_use) {
        let Some(head) = part.get(..at) else { continue };
        let Some(bytes) = Figure::at_end(head) else { continue };
        let this = head.rfind("thisprocesshas");
        let other = head.rfind("Process");
        match (this, other) {
            (Some(t), o) if o.is_none_or(|o| o < t) => message.processes.push(ProcessUse { pid: None, bytes, is_this: true }),
            (_, Some(o)) => {
                let pid = number_after(&head[o..], "Process");
                message.processes.push(ProcessUse { pid, bytes, is_this: false });
            }
            _ => {}
        }
    }
    end
}

/// Dates a native message by its wording; `before` is what stands before it (the exception's class).
fn date(message: &mut OomMessage, rest: &str, before: &str) {
    let tail_at = ["unallocated.", "byPyTorch)", "cached)"].iter().find_map(|m| rest.find(m).map(|at| at + m.len())).unwrap_or(0);
    let tail = rest.get(tail_at..).unwrap_or("");
    let d = &mut message.dialect;
    let mut set = |since: Release, until: Option<Release>| {
        d.since = Some(since);
        d.until = until;
    };
    let is_old = in_brackets(rest);
    if is_old {
        if rest.contains("cached)") {
            set((1, 0), Some((1, 3)));
        } else if tail.starts_with("Ifreservedmemoryis") {
            set((1, 10), Some((2, 0)));
        } else {
            set((1, 4), Some((1, 9)));
        }
    } else if rest.contains("totalcapacty") {
        set((2, 1), Some((2, 1)));
    } else if tail.starts_with("expandable_segmentsisenabled")
        || tail.contains("Thecustomallocatorbacking")
        || tail.contains("expandable-segmentreserve")
    {
        set((2, 15), None);
    } else if tail.contains("PYTORCH_ALLOC_CONF") {
        set((2, 10), Some((2, 10)));
    } else if tail.contains("docs.pytorch.org") {
        set((2, 11), None);
    } else if tail.contains("pytorch.org") {
        set((2, 2), Some((2, 9)));
        if message.figures.private_pools.is_some() || before.ends_with("torch.OutOfMemoryError:") {
            set((2, 4), Some((2, 9)));
        } else if before.ends_with("torch.cuda.OutOfMemoryError:") {
            set((2, 2), Some((2, 3)));
        }
    } else if message.figures.private_pools.is_some() {
        set((2, 4), None);
    } else if rest.contains("hasatotalcapacityof") {
        set((2, 2), None);
    }
    if matches!(message.dialect.platform, Platform::Xpu | Platform::Npu) {
        // Their wording never changed with CUDA's.
        (message.dialect.since, message.dialect.until) = (None, None);
    }
    message.expandable_segments = tail.starts_with("expandable_segmentsisenabled").then_some(true);
    if tail.contains("ThecustomallocatorbackingthisMemPool") {
        message.cause = Some(Cause::PoolAllocator);
    } else if tail.contains("exceedstheexpandable-segmentreserve") {
        message.cause = Some(Cause::SegmentReserve);
        message.expandable_segments = Some(true);
    }
}

/// 0.x: `cuda runtime error (2) : out of memory at …/THCStorage.cu:58`. No figures.
pub(super) fn thc(window: &Window<'_>) -> Read {
    let mut message = OomMessage::new(Dialect::of(Writer::PyTorch, Platform::Cuda));
    message.dialect.until = Some((0, 4));
    if window.text().get(..120.min(window.text().len())).is_some_and(|t| !t.contains("/THC")) {
        // The runtime's own text in later releases.
        message.dialect.writer = Writer::Runtime;
        message.dialect.until = None;
    }
    Some((message, 30))
}

/// `Allocation on device 0 would exceed allowed memory. (out of memory)` and five lines of figures, or those lines alone.
pub(super) fn malloc_async(window: &Window<'_>) -> Read {
    let text = window.text();
    let head = text.find("Free(accordingtoCUDA):").unwrap_or(0);
    let names_device = text.find("wouldexceedallowedmemory").is_some_and(|at| at < 40);
    if !names_device && head == 0 {
        return comfy_ui(window);
    }
    let head = head.max(40);
    let mut message = OomMessage::new(Dialect::of(Writer::CudaMallocAsync, Platform::Cuda));
    message.gpu = number_after(text, "Allocationondevice");
    let f = &mut message.figures;
    f.allocated = after(text, "Currentlyallocated:");
    f.requested = after(text, "Requested:");
    f.capacity = after(text, "Devicelimit:");
    f.free = after(text, "Free(accordingtoCUDA):");
    f.limit = after(text, "user-suppliedmemoryfraction):").filter(|l| !l.is_unlimited());
    Some((message, head))
}

/// `torch.OutOfMemoryError: Allocation on device`, all that ComfyUI prints of it. It does so twice, before the traceback and below it.
fn comfy_ui(window: &Window<'_>) -> Read {
    let before = window.before(40);
    let is_announced = before.ends_with("Exceptionduringprocessing!!!");
    if !is_announced && !before.ends_with("OutOfMemoryError:") {
        return None;
    }
    let after = window.after(40_000);
    let again = after.find("OutOfMemoryError:Allocationondevice");
    if is_announced && again.is_some_and(|at| !after[..at].contains("Exceptionduringprocessing!!!")) {
        return None;
    }
    let mut message = OomMessage::new(Dialect::of(Writer::ComfyUi, Platform::Unknown));
    message.gpu = number_after(window.text(), "Allocationondevice");
    Some((message, 18))
}

/// PyTorch's own warning, from 2.13 on: `memory allocation failed with OOM on device 0 while trying to allocate 42949672960 bytes (free:
/// 33136967680, total: 33668857856)`, and `expandable_segments: memory mapping failed with OOM on device 0 while trying to map … bytes`.
/// It hands back its cache and asks again after that, so this alone is no failure.
pub(super) fn retry(window: &Window<'_>) -> Read {
    let text = window.text();
    let before = window.before(40);
    let is_mapping = before.ends_with("memorymapping");
    if !is_mapping && !before.ends_with("memoryallocation") {
        return None;
    }
    let mut message = OomMessage::new(Dialect::of(Writer::PyTorch, Platform::Cuda));
    message.dialect.since = Some((2, 13));
    message.is_warning = true;
    message.expandable_segments = is_mapping.then_some(true);
    message.gpu = number_after(text, "OOMondevice");
    let bytes = |mark: &str| number_of(text, mark).map(Figure::exact);
    let f = &mut message.figures;
    f.requested = bytes("whiletryingtoallocate").or_else(|| bytes("whiletryingtomap"));
    f.free = bytes("(free:");
    f.capacity = bytes(",total:");
    let used = text.find(",total:").map_or(40, |at| at + 7);
    Some((message, used))
}

/// How many messages back a failure's warning may stand: other ranks write in between.
const WARNED_BEFORE: usize = 64;

/// Joins PyTorch's warnings with the failure that follows them, which then has their exact bytes, and those of one request with each
/// other.
pub(super) fn with_warnings(found: Vec<OomMessage>) -> Vec<OomMessage> {
    let is_retry = |m: &OomMessage| m.is_warning && m.dialect.writer == Writer::PyTorch;
    let holds = |printed: Option<Figure>, exact: Option<Figure>| {
        printed.zip(exact).is_some_and(|(p, e)| p.low() <= e.bytes && e.bytes <= p.high())
    };
    let mut out: Vec<OomMessage> = Vec::with_capacity(found.len());
    for mut message in found {
        let from = out.len().saturating_sub(WARNED_BEFORE);
        let is_same_place =
            |o: &OomMessage, m: &OomMessage| is_retry(o) && o.rank == m.rank && (o.gpu == m.gpu || m.gpu.is_none());
        if is_retry(&message) {
            let same = out[from..].iter_mut().rev().find(|o| {
                is_same_place(o, &message)
                    && (o.figures.requested, o.figures.capacity) == (message.figures.requested, message.figures.capacity)
            });
            if let Some(same) = same {
                same.warnings += 1;
                same.figures.free = message.figures.free;
                continue;
            }
            message.warnings = 1;
        } else if message.dialect.writer == Writer::PyTorch {
            let at = out[from..]
                .iter()
                .rposition(|o| is_same_place(o, &message) && holds(message.figures.requested, o.figures.requested));
            if let Some(at) = at {
                let warning = out.remove(from + at);
                message.warnings = warning.warnings;
                if message.dialect.until.is_none() {
                    message.dialect.since = message.dialect.since.max(warning.dialect.since);
                }
                let (f, exact) = (&mut message.figures, &warning.figures);
                f.requested = exact.requested;
                if holds(f.capacity, exact.capacity) {
                    f.capacity = exact.capacity;
                }
                if holds(f.free, exact.free) {
                    f.free = exact.free;
                }
            }
        }
        out.push(message);
    }
    out
}

/// A message whose letters a log made all large or all small: the words are set back as PyTorch writes them.
pub(super) fn recased(window: &Window<'_>) -> Read {
    const WORDS: [&str; 21] = [
        ".Triedtoallocate",
        "(GPU",
        ".GPU",
        "Including",
        "PyTorch",
        ".Process",
        "Oftheallocatedmemory",
        "reservedintotalbyPyTorch",
        "isreservedbyPyTorchbutunallocated",
        "Ifreserved",
        "KiB",
        "MiB",
        "GiB",
        "TiB",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "CUDA",
        "HIP",
        "XPU",
        "Seedocumentation",
    ];
    let platform = match window.before(4).to_ascii_uppercase() {
        name if name.ends_with("CUDA") => Platform::Cuda,
        name if name.ends_with("HIP") => Platform::Hip,
        name if name.ends_with("XPU") => Platform::Xpu,
        _ => return None,
    };
    let lower = window.text().to_ascii_lowercase();
    let text = WORDS.iter().fold(lower, |text, word| text.replace(&word.to_ascii_lowercase(), word));
    let squeezed = Squeezed::new(&text);
    native(&Window { squeezed: &squeezed, from: 0, to: squeezed.body().len() }, platform)
}

/// `MPS backend out of memory (MPS allocated: X, other allocations: Y, max allowed: Z). Tried to allocate W on private pool.`
pub(super) fn mps(window: &Window<'_>) -> Read {
    let text = window.text();
    let mut message = OomMessage::new(Dialect::of(Writer::Mps, Platform::Mps));
    let f = &mut message.figures;
    f.allocated = after(text, "MPSallocated:");
    f.other_allocations = after(text, "otherallocations:");
    f.limit = after(text, "maxallowed:").filter(|l| !l.is_unlimited());
    f.requested = after(text, "Triedtoallocate");
    Some((message, 30))
}

/// `DefaultCPUAllocator: can't allocate memory: you tried to allocate N bytes.` (`not enough memory` on Windows), and of the oldest
/// releases `$ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM!`, which cuts off what is less than a whole GiB.
pub(super) fn cpu(window: &Window<'_>) -> Read {
    let text = window.text();
    let (mark, at) = ["youtriedtoallocate", "youtriedtoreallocate"]
        .iter()
        .find_map(|mark| text.find(mark).filter(|&at| at < 100).map(|at| (*mark, at)))?;
    let mut message = OomMessage::new(Dialect::of(Writer::Cpu, Platform::Cpu));
    let f = &mut message.figures;
    f.requested = after(text, mark);
    if text.starts_with("Torch:") {
        f.requested = f.requested.filter(|q| q.bytes > 0).map(|q| Figure { slack: 1 << 30, ..q });
    }
    Some((message, at + mark.len()))
}
