//! Merges messages of one failure: a traceback prints it again, and a program reports it at every layer that it passes.

use super::{Figure, Figures, OomMessage, Platform, Writer};

/// Maximum distance in lines between messages of one failure, with figures and without.
const APART: (u32, u32) = (60, 30);
/// The same in the log of a server: each of its processes prints its own long traceback.
const APART_IN_SERVER: u32 = 400;
/// Number of earlier messages to compare with: other ranks write in between.
const BACK: usize = 64;

pub(super) fn merged(found: Vec<OomMessage>) -> Vec<OomMessage> {
    let mut out: Vec<OomMessage> = Vec::with_capacity(found.len());
    for mut message in found {
        message.warnings = u32::from(is_retry(&message));
        let from = out.len().saturating_sub(BACK);
        let recent = &mut out[from..];
        let platform = message.dialect.platform;
        let is_known = |o: &OomMessage| is_below(&message, o) || is_host_part(o, &message);
        if recent.last().is_some_and(|o| is_quoted(&message, o)) || platform != Platform::Cuda && recent.iter().any(is_known) {
            continue;
        }
        let is_told_better = |o: &OomMessage| {
            is_announced(o, &message)
                || o.figures.requested == message.figures.requested && is_cut_of(o, &message)
                || platform != Platform::Cuda && is_below(o, &message)
        };
        if let Some(told) = recent.iter_mut().rfind(|o| is_told_better(o)) {
            *told = message;
            continue;
        }
        if let Some(tried) = recent.iter_mut().rfind(|o| is_skipped_tactic(o, &message)) {
            *tried = OomMessage { line: tried.line, ..message };
            continue;
        }
        if let Some(at) = recent.iter().rposition(|o| is_warned(o, &message)) {
            take_warning(&mut recent[at], message);
            continue;
        }
        match recent.iter_mut().rfind(|o| o.rank == message.rank || o.seen.contains(super::TITLE)) {
            Some(first) if is_same(first, &message) => absorb(first, message),
            _ => out.push(message),
        }
    }
    out.sort_by_key(|m| m.line);
    out
}

/// True if vLLM logged before this error that nothing is left for its cache.
fn is_announced(line: &OomMessage, error: &OomMessage) -> bool {
    let is_short = |m: &OomMessage| m.dialect.writer == Writer::VLLM && m.figures.short.is_some();
    line.rank == error.rank && is_short(line) && is_short(error)
}

/// True if the first one is cut, as titles are, and the second says the same in full.
fn is_cut_of(cut: &OomMessage, whole: &OomMessage) -> bool {
    let (f, g) = (&cut.figures, &whole.figures);
    let agrees = |x: Option<Figure>, y: Option<Figure>| x.zip(y).is_none_or(|(x, y)| x.bytes == y.bytes);
    let pairs = [(f.capacity, g.capacity), (f.free, g.free), (f.allocated, g.allocated)];
    f.requested.is_some()
        && f.requested == g.requested
        && cut.rank == whole.rank
        && (cut.is_warning, whole.is_warning) == (false, false)
        && cut.dialect.writer == whole.dialect.writer
        && f.unallocated.or(f.reserved).is_none()
        && g.unallocated.or(g.reserved).is_some()
        && pairs.into_iter().all(|(x, y)| agrees(x, y))
}

/// True if a program reported its failure, and the first one is only the name of a library's error, which it quoted.
fn is_quoted(name: &OomMessage, told: &OomMessage) -> bool {
    let [bare, whole] = [name, told].map(|m| m.dialect.writer);
    (bare.has("bare") && !whole.has("bare") && whole.neighbour().is_some())
        && is_name_beside(name, told)
        && told.is_failure()
        && name.line.saturating_sub(told.line) <= APART.1
}

/// Their errors' names are printed again by the programs above them.
const DRIVERS: [Writer; 4] = [Writer::VULKAN, Writer::METAL, Writer::LEVEL_ZERO, Writer::OPENCL];

/// True if the first one is only the name of a driver's error, which the second one's program prints with more.
fn is_below(name: &OomMessage, told: &OomMessage) -> bool {
    let [below, above] = [name, told].map(|m| DRIVERS.contains(&m.dialect.writer));
    below && !above && is_name_beside(name, told) && name.line.abs_diff(told.line) <= APART.1
}

/// True if the first one has no figures, and both are of one kind of device and one rank.
fn is_name_beside(name: &OomMessage, told: &OomMessage) -> bool {
    name.dialect.platform == told.dialect.platform && name.rank == told.rank && !name.has_figures()
}

/// True if llama.cpp, which had no room on a card, lists what it did not get of the machine's memory for it either.
fn is_host_part(device: &OomMessage, host: &OomMessage) -> bool {
    let is_its = |m: &OomMessage| m.dialect.writer == Writer::LLAMA_CPP && !m.is_warning;
    (host.dialect.platform == Platform::Cpu && device.dialect.platform != Platform::Cpu)
        && host.line.saturating_sub(device.line) <= APART.1
        && is_its(device)
        && is_its(host)
}

/// True if TensorRT prints an error for a tactic that it then says it skips: that is no failure.
fn is_skipped_tactic(error: &OomMessage, skipped: &OomMessage) -> bool {
    let are_tensorrt = [error, skipped].iter().all(|m| m.dialect.writer == Writer::TENSOR_RT);
    are_tensorrt
        && (error.is_warning, skipped.is_warning) == (false, true)
        && skipped.line.saturating_sub(error.line) <= TACTIC
        && (!error.has_figures() || holds(error.figures.requested, skipped.figures.requested))
}

/// Maximum distance in lines between a tactic's error and the line that says it is skipped.
const TACTIC: u32 = 5;

/// True for PyTorch's warning (2.13 and later) that it retries the allocation.
fn is_retry(m: &OomMessage) -> bool {
    m.is_warning && m.dialect.writer == Writer::PYTORCH
}

/// True if PyTorch warned of this message's request before, with exact bytes.
fn is_warned(warning: &OomMessage, m: &OomMessage) -> bool {
    let (f, exact) = (&m.figures, &warning.figures);
    is_retry(warning)
        && m.dialect.writer == Writer::PYTORCH
        && warning.rank == m.rank
        && (warning.gpu == m.gpu || m.gpu.is_none())
        && if m.is_warning {
            (f.requested, f.capacity) == (exact.requested, exact.capacity)
        } else {
            holds(f.requested, exact.requested)
        }
}

/// True if a printed figure may be this exact one.
fn holds(printed: Option<Figure>, exact: Option<Figure>) -> bool {
    printed.zip(exact).is_some_and(|(p, e)| p.low() <= e.bytes && e.bytes <= p.high())
}

/// Merges a warning with the failure after it, which then gets the exact bytes, or with another warning of the same request.
fn take_warning(warning: &mut OomMessage, mut message: OomMessage) {
    if message.is_warning {
        warning.warnings += 1;
        warning.figures.free = message.figures.free;
        return;
    }
    message.warnings = warning.warnings;
    if message.dialect.until.is_none() {
        message.dialect.since = message.dialect.since.max(warning.dialect.since);
    }
    let (f, exact) = (&mut message.figures, &warning.figures);
    for (printed, exact) in [(&mut f.requested, exact.requested), (&mut f.capacity, exact.capacity), (&mut f.free, exact.free)] {
        if holds(*printed, exact) {
            *printed = exact;
        }
    }
    *warning = message;
}

fn is_same(a: &OomMessage, b: &OomMessage) -> bool {
    let (f, g) = (&a.figures, &b.figures);
    let [titled, quoted] = [super::TITLE, super::QUOTED].map(|mark| [a, b].map(|m| m.seen.contains(mark)));
    let apart = if titled[0] || quoted[0] != quoted[1] { 0 } else { b.line.saturating_sub(a.line) };
    let platforms = (a.dialect.platform, b.dialect.platform);
    let is_killer = |m: &OomMessage| matches!(m.dialect.writer, Writer::KILLER | Writer::SLURM | Writer::RAY | Writer::SHM);
    let is_of_one = (a.dialect.writer == b.dialect.writer || is_killer(a) && is_killer(b))
        && (platforms.0 == platforms.1 || platforms.0 == Platform::Unknown || platforms.1 == Platform::Unknown)
        && (a.is_warning, a.is_failure()) == (b.is_warning, b.is_failure())
        && !(a.is_absurd_request && g.requested.is_some() || b.is_absurd_request && f.requested.is_some())
        && (a.gpu == b.gpu || a.gpu.is_none() || b.gpu.is_none())
        && (a.killed == b.killed || a.killed.is_none() || b.killed.is_none());
    if !is_of_one {
        return false;
    }
    let writer = a.dialect.writer;
    let is_served = writer.is_server() || a.around.is_some_and(Writer::is_server) && a.around == b.around;
    let most = if is_served { (APART_IN_SERVER, APART_IN_SERVER) } else { APART };
    if a.has_figures() && b.has_figures() {
        // 1.00 GiB and 1.01 GiB are two figures, 1.00 GiB and 1,073,741,000 bytes may be one.
        let is_one = |x: Figure, y: Figure| {
            if x.slack == y.slack { x.bytes == y.bytes } else { x.low() <= y.high() && y.low() <= x.high() }
        };
        let agree = |x: Option<Figure>, y: Option<Figure>| x.zip(y).is_none_or(|(x, y)| is_one(x, y));
        // TensorFlow retries with a tenth less, many times.
        let is_pinned = writer == Writer::XLA && a.dialect.platform == Platform::Cpu;
        // XLA's allocator logs the request rounded up, and its error as it was.
        let smaller = if writer == Writer::TENSORFLOW || is_pinned { u64::MAX } else { 512 };
        let is_less = |first: Figure, again: Figure| first.bytes.checked_sub(again.bytes).is_some_and(|less| less < smaller);
        let is_retry = (writer == Writer::TENSORFLOW || writer == Writer::XLA)
            && [f, g].iter().all(|f| f.limit.is_none() && f.allocated.is_none())
            && f.requested.zip(g.requested).is_some_and(|(first, again)| is_less(first, again));
        // The pool's statistics stand between the allocator's line and the error, and are read for both.
        let is_of_one_pool = a.dialect.writer == Writer::TENSORFLOW
            && f.limit.is_some()
            && (f.limit, f.allocated, f.peak) == (g.limit, g.allocated, g.peak);
        if (is_retry || is_of_one_pool) && apart <= most.1 {
            return true;
        }
        // ComfyUI's report reads anew what is free.
        let free = |f: &Figures| f.free.filter(|_| writer != Writer::CUDA_MALLOC_ASYNC);
        let main = |f: &Figures| [f.requested, f.capacity, free(f), f.allocated, f.unallocated];
        return apart <= most.0
            && f.requested.is_some() == g.requested.is_some()
            && main(f).into_iter().zip(main(g)).all(|(x, y)| agree(x, y))
            && (a.wanted, a.fits) == (b.wanted, b.fits)
            && (a.processes == b.processes || a.processes.is_empty() || b.processes.is_empty());
    }
    // A traceback that begins with the other's error tells of the same failure.
    if b.seen.contains(super::CHAINED) {
        return true;
    }
    // Without figures only the layers of one program are assumed to report one failure.
    // THC prints a line of its own before it throws.
    let is_of_thc = [a, b].iter().all(|m| m.dialect.until == Some((0, 4)));
    // The name of the error, as a title or where it was logged, and the message itself.
    let is_caught = |m: &OomMessage| m.seen.contains(super::CAUGHT);
    let is_named = !writer.has("bare") && a.has_figures() != b.has_figures() && is_caught(a) == is_caught(b);
    let is_layered = writer.neighbour().is_some() || writer.is_host() || is_of_thc || is_named;
    apart == 0 || apart <= most.1 && (is_layered || is_served || writer.has("layered"))
}

/// Merges two messages of one failure, keeping the more informative values.
fn absorb(first: &mut OomMessage, later: OomMessage) {
    if !first.has_figures() && !first.counts_tokens() {
        // A list that stood beside only one of them.
        let beside = if later.beside.is_empty() { std::mem::take(&mut first.beside) } else { Vec::new() };
        let [killed, lost, ray_lost, shell] = ["$KILLED", "$LOST", "$RAY_LOST", "$SHELL"].map(super::engine::sentence);
        // "The container reached its limit" is more informative than "killed", and that than a worker that is gone.
        let tells_less =
            [killed, lost, ray_lost].contains(&later.says) || later.says == shell && ![killed, shell].contains(&first.says);
        if tells_less && !["", lost, ray_lost].contains(&first.says) {
            first.beside.extend(beside);
            return;
        }
        // Of two messages without figures keep the later one, where the program stopped; of a chain of tracebacks the first, which is the cause.
        if !later.seen.contains(super::CHAINED) {
            *first = OomMessage { rank: first.rank.or(later.rank), ..later };
        }
        first.beside.extend(beside);
        return;
    }
    if !later.has_figures() {
        return;
    }
    let exact = |a: Option<Figure>, b: Option<Figure>| a.filter(|a| b.is_none_or(|b| a.slack <= b.slack)).or(b).or(a);
    let mut later_figures = later.figures;
    for ((_, slot), (_, other)) in first.figures.all_mut().into_iter().zip(later_figures.all_mut()) {
        *slot = exact(*slot, *other);
    }
    first.gpu = first.gpu.or(later.gpu);
    if first.dialect.platform == Platform::Unknown {
        first.dialect.platform = later.dialect.platform;
    }
    if first.processes.is_empty() {
        first.processes = later.processes;
    }
    first.warnings = first.warnings.max(later.warnings);
}
