//! The text of an out-of-memory error, in every dialect that reaches a user's terminal.
//!
//! A message is found wherever it stands: in a pasted traceback, in a log whose lines are wrapped and carry a rank's prefix,
//! or inside a JSON string. Matching runs over the text with all white space removed (`text`), so that no wrapping can
//! hide a message or split a figure. What launchers and loggers put before lines is left out (`prefix`), and where several
//! write at once their lines are told apart (`streams`).
//!
//! * [`parse`] reads the first message that carries figures, [`find_all`] every one with its line.
//! * [`OomMessage`] holds the figures, each with the error its printed decimals leave ([`Figure::slack`]).
//!
//! What the figures mean is decided by `analysis::explain`.

use std::collections::BTreeSet;

mod figure;
mod frameworks;
mod prefix;
mod pytorch;
mod streams;
mod text;

pub use figure::Figure;
pub use frameworks::PeakBuffer;
pub use text::{decoded, is_utf16};

/// Which program wrote the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// PyTorch's own caching allocator.
    PyTorch,
    /// PyTorch over `cudaMallocAsync` (`backend:cudaMallocAsync`).
    CudaMallocAsync,
    /// PyTorch's allocator for Apple GPUs.
    Mps,
    /// PyTorch's CPU allocator: host memory ran out, not the GPU's.
    Cpu,
    /// A bare error of the CUDA, HIP or SYCL runtime, without figures.
    Runtime,
    /// cuBLAS could not make its handle or workspace.
    Cublas,
    /// cuDNN could not allocate.
    Cudnn,
    /// NCCL could not allocate its buffers.
    Nccl,
    /// XLA, as JAX uses it.
    Xla,
    /// TensorFlow's BFC allocator, and the driver below it.
    TensorFlow,
    /// vLLM, which looks for room before it reserves its share of the card.
    Vllm,
    /// CuPy's memory pool.
    CuPy,
    /// ONNX Runtime's arena.
    OnnxRuntime,
    /// PaddlePaddle's allocator.
    Paddle,
    /// ComfyUI, which prints only the first words of PyTorch's message.
    ComfyUi,
    /// llama.cpp's ggml, also inside Ollama and LM Studio.
    LlamaCpp,
    /// NVIDIA's TensorRT.
    TensorRt,
}

impl Writer {
    /// The program's own name where it is not PyTorch's memory that ran out: PyTorch's settings and recordings do not apply there.
    #[must_use]
    pub fn neighbour(self) -> Option<&'static str> {
        match self {
            Writer::Xla => Some("XLA (JAX)"),
            Writer::TensorFlow => Some("TensorFlow"),
            Writer::CuPy => Some("CuPy"),
            Writer::OnnxRuntime => Some("ONNX Runtime"),
            Writer::Paddle => Some("PaddlePaddle"),
            Writer::LlamaCpp => Some("llama.cpp"),
            Writer::TensorRt => Some("TensorRT"),
            _ => None,
        }
    }
}

/// A cause that the message names itself, whatever its figures (PyTorch 2.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The allocator that the user put behind a `MemPool` returned nothing.
    PoolAllocator,
    /// The request is larger than the addresses that one expandable segment reserves.
    SegmentReserve,
}

/// The memory a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Host memory.
    Cpu,
    /// The message does not tell.
    Unknown,
}

impl Platform {
    /// `cuda`, `hip`, `xpu`, `mps`, `npu`, `tpu`, `cpu`, `unknown`: stable, used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Platform::Cuda => "cuda",
            Platform::Hip => "hip",
            Platform::Xpu => "xpu",
            Platform::Mps => "mps",
            Platform::Npu => "npu",
            Platform::Tpu => "tpu",
            Platform::Cpu => "cpu",
            Platform::Unknown => "unknown",
        }
    }
}

/// A release of PyTorch: major, minor.
pub type Release = (u8, u8);

/// Who wrote a message, and the releases whose wording it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    fn of(writer: Writer, platform: Platform) -> Self {
        Dialect { writer, platform, since: None, until: None }
    }

    /// A short stable name: `pytorch-2.4-2.9`, `pytorch-hip-2.10`, `cuda-malloc-async`, `xla`.
    #[must_use]
    pub fn name(&self) -> String {
        let base = match (self.writer, self.platform) {
            (Writer::PyTorch, Platform::Hip) => "pytorch-hip",
            (Writer::PyTorch, Platform::Xpu) => "pytorch-xpu",
            (Writer::PyTorch, Platform::Npu) => "pytorch-npu",
            (Writer::PyTorch, _) => "pytorch",
            (Writer::CudaMallocAsync, _) => "cuda-malloc-async",
            (Writer::Mps, _) => "mps",
            (Writer::Cpu, _) => "cpu",
            (Writer::Runtime, Platform::Hip) => "hip-error",
            (Writer::Runtime, Platform::Xpu) => "xpu-error",
            (Writer::Runtime, _) => "cuda-error",
            (Writer::Cublas, _) => "cublas",
            (Writer::Cudnn, _) => "cudnn",
            (Writer::Nccl, _) => "nccl",
            (Writer::Xla, _) => "xla",
            (Writer::TensorFlow, _) => "tensorflow-bfc",
            (Writer::Vllm, _) => "vllm",
            (Writer::CuPy, _) => "cupy",
            (Writer::OnnxRuntime, _) => "onnxruntime",
            (Writer::Paddle, _) => "paddle",
            (Writer::ComfyUi, _) => "comfyui",
            (Writer::LlamaCpp, _) => "llama.cpp",
            (Writer::TensorRt, _) => "tensorrt",
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Refused beforehand because of the memory fraction (2.12 and later).
    pub is_rejection: bool,
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
    /// What PyTorch itself, or XLA, says beyond the figures: its advice, as printed.
    pub advice: Option<String>,
    /// What refused, where the message names it.
    pub cause: Option<Cause>,
    /// Largest buffers of the failed XLA program.
    pub peak_buffers: Vec<PeakBuffer>,
    /// Further figures by the name they are printed under (XLA's buffer statistics).
    pub extra: Vec<(String, Figure)>,
}

impl OomMessage {
    fn new(dialect: Dialect) -> Self {
        OomMessage {
            dialect,
            line: 0,
            gpu: None,
            rank: None,
            figures: Figures::default(),
            processes: Vec::new(),
            negative: Vec::new(),
            is_absurd_request: false,
            is_rejection: false,
            is_warning: false,
            warnings: 0,
            context: None,
            settings_variable: None,
            expandable_segments: None,
            advice: None,
            cause: None,
            peak_buffers: Vec::new(),
            extra: Vec::new(),
        }
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
            && !(self.is_rejection || self.is_warning);
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
        self.processes.iter().find(|p| p.is_this).map(|p| p.bytes).filter(|b| !b.is_unlimited())
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
    let body = squeezed.body();
    let mut starts: Vec<(usize, text::Anchor)> = text::anchors(body);
    starts.sort_unstable_by_key(|&(at, _)| at);
    // "CUDA error: out of memory" is followed by a hint that names the error once more: one message.
    starts.retain(|&(at, _)| !body[..at].ends_with("Searchfor`"));
    // The figures of a cudaMallocAsync message belong to the head before them, when it is there.
    starts.dedup_by(|later, first| (later.1, first.1) == (text::Anchor::Async, text::Anchor::Async) && later.0 - first.0 < 100);
    // Where the next message starts that is no part of another, for each start.
    let mut nexts = vec![body.len(); starts.len()];
    for i in (1..starts.len()).rev() {
        nexts[i - 1] = if starts[i].1.is_part_of_others() { nexts[i] } else { starts[i].0 };
    }
    let mut out: Vec<OomMessage> = Vec::new();
    let mut covered = 0;
    let mut left = streams::Budget::for_text(text.len());
    // Lines of messages that were put together from several places.
    let mut taken = BTreeSet::new();
    for (i, &(at, anchor)) in starts.iter().enumerate() {
        if at < covered || (!taken.is_empty() && taken.contains(&squeezed.line_index(at))) {
            continue;
        }
        let next = nexts[i];
        let reach = at + anchor.reach();
        let window =
            text::Window { squeezed: &squeezed, from: at, to: if anchor.holds_others() { reach } else { next.min(reach) } };
        if let Some((mut message, used)) = read(anchor, &window) {
            message.line = squeezed.line_at(at);
            message.negative = figure::negative_sizes(window.text().get(..used).unwrap_or(window.text()));
            message.rank = squeezed.rank_at(at);
            covered = at + used;
            let (first, last) = (squeezed.line_index(at), squeezed.line_index((at + used).saturating_sub(1)));
            let regrouped =
                anchor.may_stand_apart().then(|| streams::regroup(&squeezed, at, anchor, &message, used, &mut left)).flatten();
            if let Some(found) = regrouped {
                message = OomMessage { line: message.line, rank: found.message.rank.or(message.rank), ..found.message };
                covered = at + 1;
                taken.extend(found.lines);
            } else if last > first && squeezed.are_counted(first, last) {
                message.rank = None;
            }
            out.push(message);
        }
    }
    if out.is_empty() {
        out.extend(pytorch::fragment(body));
    }
    let mut out = pytorch::with_warnings(out);
    for message in &mut out {
        message.recognise_own();
        // The size is broken whoever printed it; PyTorch itself stops at this one.
        if message.figures.requested.is_some_and(|q| q.low() >= EXBIBYTE) {
            message.is_absurd_request = true;
            message.figures.requested = None;
        }
    }
    out
}

fn read(anchor: text::Anchor, window: &text::Window<'_>) -> Option<(OomMessage, usize)> {
    use text::Anchor;
    match anchor {
        Anchor::Native(platform) => pytorch::native(window, platform),
        Anchor::Thc => pytorch::thc(window),
        Anchor::Async => pytorch::malloc_async(window),
        Anchor::Mps => pytorch::mps(window),
        Anchor::Cpu => pytorch::cpu(window),
        Anchor::Bare(writer, platform) => Some((OomMessage::new(Dialect::of(writer, platform)), 1)),
        Anchor::Xla => frameworks::xla(window),
        Anchor::Bfc => frameworks::bfc(window),
        Anchor::Block => pytorch::single_block(window),
        Anchor::Driver => frameworks::driver(window),
        Anchor::Vllm => frameworks::vllm(window),
        Anchor::CuPy => frameworks::cupy(window),
        Anchor::OnnxRuntime => frameworks::onnx_runtime(window),
        Anchor::Paddle => frameworks::paddle(window),
        Anchor::Array => frameworks::array(window),
        Anchor::Recased => pytorch::recased(window),
        Anchor::Retry => pytorch::retry(window),
        Anchor::VllmCache => frameworks::vllm_cache(window),
        Anchor::Ggml => frameworks::ggml(window),
        Anchor::TensorRt => frameworks::tensor_rt(window),
    }
}

#[cfg(test)]
mod tests;
