//! The text of an out-of-memory error, in every dialect that reaches a user's terminal.
//!
//! A message is found wherever it stands: in a pasted traceback, in a log whose lines are wrapped and carry a rank's prefix,
//! or inside a JSON string. Matching runs over the text with all white space removed (`text`), so that no wrapping can
//! hide a message or split a figure. What launchers and loggers put before lines is left out (`prefix`), and where several
//! write at once their lines are told apart (`streams`).
//!
//! What each program prints is a table (`dialects`): a row has the words, what each number is, and an example. One engine reads them
//! all (`engine`). Words that also stand in code and in advice need an error beside them (`evidence`).
//!
//! * [`parse`] reads the first message that carries figures, [`find_all`] every one with its line.
//! * [`OomMessage`] holds the figures, each with the error its printed decimals leave ([`Figure::slack`]).
//!
//! What the figures mean is decided by `diagnose::explain`.

use std::collections::BTreeSet;

mod dialects;
mod engine;
mod evidence;
mod figure;
mod merge;
mod mig;
mod prefix;
mod program;
mod pytorch;
mod row;
mod streams;
mod text;
mod xla;

pub use figure::Figure;
pub use program::Writer;
pub use text::{decoded, is_utf16};
pub use xla::PeakBuffer;

/// A cause that the message names itself, whatever its figures (PyTorch 2.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The allocator that the user put behind a `MemPool` returned nothing.
    PoolAllocator,
    /// Refused beforehand because of the memory fraction (2.12 and later).
    Rejected,
    /// The request is larger than the addresses that one expandable segment reserves.
    SegmentReserve,
}

/// The memory a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Platform {
    /// NVIDIA.
    Cuda,
    /// AMD.
    Hip,
    /// Intel.
    Xpu,
    /// Apple.
    Mps,
    /// Huawei's Ascend, through torch_npu.
    Npu,
    /// Google's TPU, through XLA.
    Tpu,
    /// Any card, through Microsoft's DirectML.
    DirectMl,
    /// Any card, through Vulkan.
    Vulkan,
    /// Apple's, used without PyTorch.
    Metal,
    /// Host memory.
    Cpu,
    /// The message does not tell.
    #[default]
    Unknown,
}

impl Platform {
    /// `cuda`, `hip`, `xpu`, `mps`, `npu`, `tpu`, `directml`, `vulkan`, `metal`, `cpu`, `unknown`: stable, used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Xpu => "xpu",
            Platform::Mps => "mps",
            Platform::Npu => "npu",
            Platform::Tpu => "tpu",
            Platform::DirectMl => "directml",
            Platform::Vulkan => "vulkan",
            Platform::Metal => "metal",
            Platform::Cpu => "cpu",
            Platform::Unknown => "unknown",
        }
    }
}

/// A release of PyTorch: major, minor.
pub type Release = (u8, u8);

/// Who wrote a message, and the releases whose wording it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// The program.
    pub writer: Writer,
    /// The kind of memory.
    pub platform: Platform,
    /// First release that writes this wording; `None` when the wording does not tell.
    pub since: Option<Release>,
    /// Last release that writes it; `None` when the wording does not tell or is still in use.
    pub until: Option<Release>,
}

impl Dialect {
    /// A short stable name: `pytorch-2.4-2.9`, `pytorch-hip-2.10`, `cuda-malloc-async`, `xla`.
    #[must_use]
    pub fn name(&self) -> String {
        let base = match (self.writer, self.platform) {
            (Writer::PyTorch, Platform::Hip) => "pytorch-hip",
            (Writer::PyTorch, Platform::Xpu) => "pytorch-xpu",
            (Writer::PyTorch, Platform::Npu) => "pytorch-npu",
            (Writer::Runtime, Platform::Hip) => "hip-error",
            (Writer::Runtime, Platform::Xpu) => "xpu-error",
            (writer, _) => writer.key(),
        };
        match (self.since, self.until) {
            (Some(a), Some(b)) if a == b => format!("{base}-{}.{}", a.0, a.1),
            (Some(a), Some(b)) => format!("{base}-{}.{}-{}.{}", a.0, a.1, b.0, b.1),
            (Some(a), None) => format!("{base}-{}.{}+", a.0, a.1),
            (None, Some(b)) => format!("{base}-up-to-{}.{}", b.0, b.1),
            (None, None) => base.to_owned(),
        }
    }
}

/// Memory of one process on the GPU, as the driver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Its id, when the message names it (the failing process itself is "this process", or in a container has the id that the
    /// host gave it).
    pub pid: Option<u32>,
    /// Bytes, context and libraries included.
    pub bytes: Figure,
    /// True for the process that ran out.
    pub is_this: bool,
}

/// The figures of a message, as printed. `None` where the message has no such figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What could not be had. For PyTorch on a GPU: rounded up to a segment, not the tensor's size.
    pub requested: Option<Figure>,
    /// Total memory of the GPU.
    pub capacity: Option<Figure>,
    /// Free on the device, whoever could use it.
    pub free: Option<Figure>,
    /// The most this process may hold ("allowed").
    pub limit: Option<Figure>,
    /// "already allocated", "allocated by PyTorch". From 2.4 on this includes [`private_pools`](Self::private_pools).
    pub allocated: Option<Figure>,
    /// Free blocks cached in private pools (2.4 and later; the wording says "allocated in private pools").
    pub private_pools: Option<Figure>,
    /// Reserved by PyTorch and not allocated: holes.
    pub unallocated: Option<Figure>,
    /// "reserved in total by PyTorch" (1.4 to 2.0).
    pub reserved: Option<Figure>,
    /// Memory that the same process took outside the allocator (MPS: "other allocations").
    pub other_allocations: Option<Figure>,
    /// The largest single block that the platform hands out, where that is what refused (Intel's 4 GB).
    pub largest_block: Option<Figure>,
}

/// What vLLM says in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The longest input the model is to take.
    pub wanted: Option<u64>,
    /// The longest that the cache has room for.
    pub fits: Option<u64>,
}

/// One decoded out-of-memory message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OomMessage {
    /// Who wrote it.
    pub dialect: Dialect,
    /// Line of the text it starts in, from 1.
    pub line: u32,
    /// The GPU's index as the process counts them.
    pub gpu: Option<u32>,
    /// The rank whose log line it is (`[rank3]:`).
    pub rank: Option<u32>,
    /// Its figures.
    pub figures: Figures,
    /// Every process on the GPU that the message lists, in its order.
    pub processes: Vec<ProcessUse>,
    /// Sizes printed with a minus sign, as they stand in the text; none of the figures is one of them.
    pub negative: Vec<String>,
    /// "Tried to allocate more than 1EB", or a size of that order: the size itself is broken, and is not among the figures.
    pub is_absurd_request: bool,
    /// The writer says itself that nothing failed, or tries again: it goes on another way (TensorFlow's "this is not a failure",
    /// PyTorch's own warning from 2.13 on).
    pub is_warning: bool,
    /// How many of PyTorch's own warnings of the same request are told with this message.
    pub warnings: u32,
    /// vLLM's cache is too small for one input of the longest length.
    pub context: Option<Context>,
    /// The variable of the allocator's settings that the message names: releases and platforms differ in it.
    pub settings_variable: Option<&'static str>,
    /// The message says that expandable segments are on; `None` when it does not tell.
    pub expandable_segments: Option<bool>,
    /// What it means where its figures do not decide that: a sentence with `{requested}` and the like; else empty.
    pub says: &'static str,
    /// What to do about it where its program's usual advice does not fit; else empty.
    pub tips: &'static [&'static str],
    /// The program that the text around it is of, where that has settings of its own: a server, ComfyUI.
    pub around: Option<Writer>,
    /// A bare error of a runtime beside which nothing tells of PyTorch.
    pub is_foreign: bool,
    /// Printed on Windows.
    pub on_windows: bool,
    /// A bare error of a call that pins the machine's memory.
    pub is_pinned: bool,
    /// The card is a slice of one (MIG), as the text around tells: its profile, `1g.10gb`, or empty where that is not told.
    pub mig_slice: Option<String>,
    /// What refused, where the message names it.
    pub cause: Option<Cause>,
    /// Largest buffers of the failed XLA program.
    pub peak_buffers: Vec<PeakBuffer>,
    /// Further figures by the name they are printed under (XLA's buffer statistics).
    pub extra: Vec<(String, Figure)>,
}

impl OomMessage {
    fn new(dialect: Dialect) -> Self {
        OomMessage { dialect, ..OomMessage::default() }
    }

    /// What every message of PyTorch's allocator tells and this text does not, in words: it was cut where it was copied, or a line could
    /// not be read. Empty for other writers, and for forms that never have more.
    #[must_use]
    pub fn unread(&self) -> Vec<&'static str> {
        let f = &self.figures;
        let is_async = self.dialect.writer == Writer::CudaMallocAsync;
        let is_whole_form = (is_async || self.dialect.writer == Writer::PyTorch)
            && f.requested.is_some()
            && f.largest_block.is_none()
            && self.cause != Some(Cause::Rejected)
            && !self.is_warning;
        if !is_whole_form {
            return Vec::new();
        }
        // Intel's driver did not always tell what is free.
        let tells_free = f.free.is_some() || self.dialect.platform == Platform::Xpu;
        [
            (f.capacity.is_some(), "the capacity of the card"),
            (tells_free, "how much is free"),
            (f.allocated.is_some(), "what PyTorch allocated"),
            (is_async || self.unallocated().is_some(), "what PyTorch reserves beyond that"),
        ]
        .into_iter()
        .filter_map(|(is_read, what)| (!is_read).then_some(what))
        .collect()
    }

    /// Marks the failing process where the message lists it by a number: the driver tells ids of the host, so inside a container
    /// PyTorch does not know its own. Certain that it is in the list when the list, PyTorch's memory and what is free exceed the
    /// card; of those that are large enough to hold PyTorch's memory it is the smallest.
    fn recognise_own(&mut self) {
        let (Some(capacity), Some(free), Some(reserved)) = (self.figures.capacity, self.figures.free, self.reserved()) else {
            return;
        };
        let Some(listed) = self.listed_processes() else { return };
        if self.this_process().is_some() || listed.plus(reserved).plus(free).low() <= capacity.high() {
            return;
        }
        let holds = |p: &&mut ProcessUse| !p.bytes.is_unlimited() && p.bytes.high() >= reserved.low();
        if let Some(own) = self.processes.iter_mut().filter(holds).min_by_key(|p| p.bytes.bytes) {
            own.is_this = true;
        }
    }

    /// Everything PyTorch holds from the device: printed by 1.4 to 2.0, allocated + unallocated otherwise.
    #[must_use]
    pub fn reserved(&self) -> Option<Figure> {
        let f = &self.figures;
        f.reserved.or_else(|| Some(f.allocated?.plus(f.unallocated?)))
    }

    /// Holes: reserved and not allocated. Printed from 2.1 on (and as "cached" before 1.4), reserved - allocated in between.
    #[must_use]
    pub fn unallocated(&self) -> Option<Figure> {
        let f = &self.figures;
        f.unallocated.or_else(|| Some(f.reserved?.minus(f.allocated?)))
    }

    /// Bytes that live tensors take: allocated, less the free blocks of private pools that 2.4 and later count in.
    #[must_use]
    pub fn live(&self) -> Option<Figure> {
        let f = &self.figures;
        let allocated = f.allocated?;
        Some(f.private_pools.map_or(allocated, |p| allocated.minus(p)))
    }

    /// What the driver counts for this process, context and libraries included.
    #[must_use]
    pub fn this_process(&self) -> Option<Figure> {
        // Where the driver tells nothing of the process (some containers), PyTorch prints 0 bytes.
        self.processes.iter().find(|p| p.is_this).map(|p| p.bytes).filter(|b| !b.is_unlimited() && b.bytes > 0)
    }

    /// Sum of every process the message lists with a figure.
    #[must_use]
    pub fn listed_processes(&self) -> Option<Figure> {
        self.processes.iter().map(|p| p.bytes).filter(|b| !b.is_unlimited()).reduce(Figure::plus)
    }

    /// Sum of the other processes the message lists; `None` when it lists none (which does not prove that there are none).
    #[must_use]
    pub fn other_processes(&self) -> Option<Figure> {
        self.processes.iter().filter(|p| !p.is_this).map(|p| p.bytes).filter(|b| !b.is_unlimited()).reduce(Figure::plus)
    }

    /// This process outside PyTorch's allocator: context, modules, libraries, graphs.
    #[must_use]
    pub fn outside_pytorch(&self) -> Option<Figure> {
        Some(self.this_process()?.minus(self.reserved()?))
    }

    /// True when the message carries at least the size of the request.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        self.figures != Figures::default()
    }
}

/// The first message of a text that carries figures, else the first one; `None` when there is none.
#[must_use]
pub fn parse(text: &str) -> Option<OomMessage> {
    let all = find_all(text);
    let at = first_told(&all);
    all.into_iter().nth(at)
}

/// Which of several messages to tell of first: the first that carries figures, a failure before a warning; else the first.
#[must_use]
pub fn first_told(found: &[OomMessage]) -> usize {
    let tells = |m: &OomMessage| m.has_figures() || m.is_absurd_request;
    let failure = found.iter().position(|m| tells(m) && !m.is_warning);
    failure.or_else(|| found.iter().position(tells)).unwrap_or(0)
}

/// From here on PyTorch prints "more than 1EB" in place of a request's size.
const EXBIBYTE: u64 = 1 << 60;

/// Every message of a text, in order. Takes a fraction of a second for 100 MB of log.
#[must_use]
pub fn find_all(text: &str) -> Vec<OomMessage> {
    let squeezed = text::Squeezed::new(text);
    let low = squeezed.low();
    let mut starts = engine::starts(low);
    // "CUDA error: out of memory" is followed by a hint that names the error once more: one message.
    starts.retain(|&(at, _)| !low[..at].ends_with("searchfor`"));
    let mut out: Vec<OomMessage> = Vec::new();
    let mut covered = 0;
    let mut left = streams::budget(text.len());
    // Lines of messages that were put together from several places.
    let mut taken = BTreeSet::new();
    let may_be_sliced = text.contains("MIG") || text.contains("mig-");
    // Where the next message starts that ends others, for each start.
    let nexts = engine::ends(&starts, low.len());
    for (i, &(at, index)) in starts.iter().enumerate() {
        if at < covered || (!taken.is_empty() && taken.contains(&squeezed.line_index(at))) {
            continue;
        }
        let pattern = engine::pattern(index);
        let cell = squeezed.cell_end(at);
        let to = nexts[i].min(cell.unwrap_or(usize::MAX));
        let window = text::Window { squeezed: &squeezed, from: at, to };
        let Some((mut message, used)) = pattern.read(&window) else { continue };
        message.line = squeezed.line_at(at);
        message.negative = figure::negative_sizes(window.own().text.get(..used).unwrap_or(window.own().text));
        message.rank = squeezed.rank_at(at);
        if message.dialect.writer == Writer::Xla {
            // Words of a report begin other programs' messages; only XLA's next one ends it.
            let near = starts.get(i + 1..).unwrap_or(&[]).iter().take_while(|next| next.0 < at + text::REPORT);
            let next = near.clone().find(|next| next.0 > at && engine::pattern(next.1).row.writer == Writer::Xla);
            let to = next.map_or(low.len(), |next| next.0).min(cell.unwrap_or(usize::MAX));
            xla::buffers(&text::Window { to, ..window }, &mut message);
        }
        program::look_around(&window, pattern.row, &mut message);
        if let Some(capacity) = message.figures.capacity.filter(|_| may_be_sliced) {
            message.mig_slice = mig::slice(window.vicinity(), capacity);
        }
        covered = at + used;
        let (first, last) = (squeezed.line_index(at), squeezed.line_index((at + used).saturating_sub(1)));
        let may_stand_apart = pattern.row.may_stand_apart() && cell.is_none();
        let regrouped = may_stand_apart.then(|| streams::regroup(&squeezed, at, pattern, &message, used, &mut left)).flatten();
        if let Some(found) = regrouped {
            let OomMessage { line, around, on_windows, mig_slice, .. } = message;
            message =
                OomMessage { line, around, on_windows, mig_slice, rank: found.message.rank.or(message.rank), ..found.message };
            covered = at + 1;
            taken.extend(found.lines);
        } else if last > first && squeezed.are_counted(first, last) {
            message.rank = None;
        }
        out.push(message);
    }
    if out.is_empty() {
        let window = text::Window { squeezed: &squeezed, from: 0, to: low.len() };
        out.extend(engine::fragment(&window));
    }
    let mut out = merge::merged(out);
    for message in &mut out {
        message.recognise_own();
        // Only Windows' driver moves memory to the host where a card is full.
        let (held, f) = (message.reserved(), &message.figures);
        message.on_windows |=
            f.free.is_some_and(|free| free.bytes == 0) && held.zip(f.capacity).is_some_and(|(h, c)| h.low() > c.high());
        // The size is broken whoever printed it; PyTorch itself stops at this one.
        if message.figures.requested.is_some_and(|q| q.low() >= EXBIBYTE) {
            message.is_absurd_request = true;
            message.figures.requested = None;
        }
    }
    out
}

#[cfg(test)]
mod tests;
