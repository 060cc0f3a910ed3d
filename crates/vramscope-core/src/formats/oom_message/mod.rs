//! Reads the text of out-of-memory errors, in every dialect that reaches a user's terminal.
//!
//! A message is found anywhere: in a pasted traceback, in a log whose lines are wrapped and have a rank prefix, or inside a JSON
//! string. Matching runs on the text without white space (`text`), so that wrapping can neither hide a message nor split a
//! figure. Prefixes of launchers and loggers are removed (`prefix`), and interleaved lines of several writers are separated
//! (`streams`).
//!
//! The messages of each program are a table of plain text (`dialects`): a row has the words, the meaning of each number, and an
//! example (`row`), and each program is a row of another (`program`). One engine reads all rows (`engine`). Words that also occur in code and advice need evidence of an error beside them (`evidence`).
//!
//! * [`parse`] reads the first message with figures, [`find_all`] all messages with their lines.
//! * [`OomMessage`] contains the figures, each with its rounding error ([`Figure::slack`]).
//!
//! `diagnose::explain` decides what the figures mean.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

mod beside;
mod engine;
pub(crate) mod entries;
mod evidence;
mod figure;
mod given;
mod merge;
mod peers;
mod plain;
mod prefix;
mod program;
mod pytorch;
mod row;
mod signs;
mod streams;
mod text;
mod xla;

pub use figure::Figure;
pub use program::Writer;
#[cfg(test)]
pub(crate) use row::DIALECTS;
#[cfg(test)]
pub(crate) use signs::shows;
pub use xla::PeakBuffer;

/// The kind of device whose memory a message is about. Its name is stable and used in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Platform {
    /// NVIDIA, through CUDA.
    Cuda,
    /// AMD, through HIP.
    Hip,
    /// Intel, through PyTorch's XPU backend or Level Zero.
    Xpu,
    /// Apple, through PyTorch's MPS backend.
    Mps,
    /// Huawei's Ascend, through torch_npu.
    Npu,
    /// Google's TPU, through XLA.
    Tpu,
    /// Any GPU through Microsoft's DirectML.
    DirectMl,
    /// Any GPU through Vulkan.
    Vulkan,
    /// Apple, through Metal without PyTorch.
    Metal,
    /// Host memory: the system's own, not a device's.
    Cpu,
    /// The message does not say.
    #[default]
    Unknown,
}

impl Platform {
    /// A short name, which is stable and used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A PyTorch release: major, minor.
pub type Release = (u8, u8);

/// Reads `2.1`.
pub(crate) fn release(text: &str) -> Option<Release> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Who wrote a message, and which releases use this wording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// The program that printed it; [`Writer::neighbour`] tells whether the memory is PyTorch's.
    pub writer: Writer,
    /// The device whose memory ran out; [`Platform::Unknown`] if the message does not say.
    pub platform: Platform,
    /// First release with this wording; `None` if the wording does not identify it.
    pub since: Option<Release>,
    /// Last release with this wording; `None` if the wording does not identify it or is still in use.
    pub until: Option<Release>,
}

impl Dialect {
    /// A short stable name: `pytorch-2.4-2.9`, `pytorch-hip-2.10`, `cuda-malloc-async`, `xla`.
    pub fn name(&self) -> String {
        let base = match (self.writer, self.platform) {
            (Writer::PYTORCH, Platform::Hip | Platform::Xpu | Platform::Npu) => format!("pytorch-{}", self.platform.name()),
            (Writer::RUNTIME, Platform::Hip | Platform::Xpu) => format!("{}-error", self.platform.name()),
            (writer, _) => writer.key().to_owned(),
        };
        base + &self.releases(["-", "-", "+", "-up-to-"])
    }

    /// The program and its releases for people: `PyTorch 2.4 to 2.9`, `PyTorch 2.2 or later`, `XLA (JAX)`.
    pub fn title(&self) -> String {
        self.writer.title().to_owned() + &self.releases([" ", " to ", " or later", " up to "])
    }

    /// The releases behind a name, with the words before the first, between the two, after an open first, and before a last alone.
    fn releases(&self, [from, to, later, until]: [&str; 4]) -> String {
        match (self.since, self.until) {
            (Some(a), Some(b)) if a == b => format!("{from}{}.{}", a.0, a.1),
            (Some(a), Some(b)) => format!("{from}{}.{}{to}{}.{}", a.0, a.1, b.0, b.1),
            (Some(a), None) => format!("{from}{}.{}{later}", a.0, a.1),
            (None, Some(b)) => format!("{until}{}.{}", b.0, b.1),
            (None, None) => String::new(),
        }
    }
}

/// GPU memory of one process as the driver counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ProcessUse {
    /// The pid, if the message contains it. The failing process is "this process", or inside a container may appear with the
    /// host's pid.
    pub pid: Option<u32>,
    /// Bytes, including context and libraries.
    #[serde(serialize_with = "Figure::serialize_bytes")]
    pub bytes: Figure,
    /// True for the process that ran out of memory.
    pub is_this: bool,
}

macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident $name:literal,)*) => {
        /// The figures of a message, as printed. `None` if the message lacks the figure.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[$doc])* pub $field: Option<Figure>,)*
        }

        impl Figures {
            /// All of them, with the names that they have in the dialects' fields.
            fn all_mut(&mut self) -> [(&'static str, &mut Option<Figure>); [$($name),*].len()] {
                [$(($name, &mut self.$field)),*]
            }
        }
    };
}

figures! {
    /// The request that failed. For PyTorch on a GPU: rounded up to a segment, not the tensor's size.
    requested "requested",
    /// Total memory of the GPU.
    capacity "capacity",
    /// Free on the device, for any process.
    free "free",
    /// The most that this process may allocate ("allowed").
    limit "limit",
    /// "already allocated", "allocated by PyTorch". From 2.4 on this includes [`private_pools`](Self::private_pools).
    allocated "allocated",
    /// Free blocks cached in private pools (2.4 and later; the wording is "allocated in private pools").
    private_pools "pools",
    /// Reserved by PyTorch but not allocated: holes.
    unallocated "unallocated",
    /// "reserved in total by PyTorch" (1.4 to 2.0).
    reserved "reserved",
    /// Memory that the same process allocated outside the allocator (MPS: "other allocations").
    other_allocations "other",
    /// The largest single block that the platform allows, if that was the reason (Intel's 4 GB).
    largest_block "largest",
    /// The weights of a model, as the server that loaded it counts them.
    weights "weights",
    /// What a server sets aside for the activations of its largest batch.
    activations "activations",
    /// How much is missing: a server counts less than nothing for its KV cache.
    short "short",
    /// The most that was in use at once.
    peak "peak",
    /// What it may still take under a limit of its own.
    room "room",
}

/// One decoded out-of-memory message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OomMessage {
    /// The program that wrote it, and the releases with this wording.
    pub dialect: Dialect,
    /// Line of the text in which it starts, from 1.
    pub line: u32,
    /// GPU index as the process counts them.
    pub gpu: Option<u32>,
    /// Rank in the prefix of its line (`[rank3]:`).
    pub rank: Option<u32>,
    /// Sizes, each `None` if the message does not print it.
    pub figures: Figures,
    /// The processes on the GPU that the message lists, in its order.
    pub processes: Vec<ProcessUse>,
    /// Sizes printed with a minus sign, as in the text; never part of the figures.
    pub negative: Vec<String>,
    /// Elements of the tensor that failed, where the message has its shape but not its type.
    pub elements: Option<u64>,
    /// Settings that the text around shows: `enforce_eager`, `torch_dtype=torch.bfloat16`, in small letters without leading dashes.
    pub given: Vec<String>,
    /// "Tried to allocate more than 1EB" or a size of that order: the size itself is wrong and is not part of the figures.
    pub is_absurd_request: bool,
    /// The writer itself says that nothing failed or that it retries (TensorFlow's "this is not a failure", PyTorch's own warning
    /// from 2.13 on).
    pub is_warning: bool,
    /// Number of PyTorch's own warnings of the same request that were merged into this message.
    pub warnings: u32,
    /// Tokens of the longest input that a server must accept, or of a batch, or requests.
    pub wanted: Option<u64>,
    /// As many of these as fit.
    pub fits: Option<u64>,
    /// The settings variable that the message names; it differs between releases and platforms.
    pub settings_variable: Option<&'static str>,
    /// The meaning, if the figures do not decide it: a sentence with placeholders such as `{requested}`; otherwise empty.
    pub says: &'static str,
    /// Advice, if the program's usual advice does not fit; otherwise empty.
    pub tips: &'static [&'static str],
    /// What the message and the text around it show beside figures, by the names that conditions have for it: `expands`, `capturing`,
    /// `peers` (the listed processes are ranks of the same job, by their ids).
    pub seen: BTreeSet<&'static str>,
    /// The program whose text surrounds the message, if it has settings of its own: a server, ComfyUI.
    pub around: Option<Writer>,
    /// The MIG profile of the GPU (`1g.10gb`) if the text around says that it is a slice; empty if the profile is not known.
    pub mig_slice: Option<String>,
    /// The share of the card that vLLM or SGLang was told to take in this run, as the log prints it.
    pub server_share: Option<String>,
    /// The process that the kernel killed, as its log names it: `4242 (python3)`.
    pub killed: Option<String>,
    /// What tables and lines pasted beside the message tell: `nvidia-smi`, Ray's list of processes, Slurm's tasks. Sentences.
    pub beside: Vec<String>,
    /// Largest buffers of the XLA program that failed.
    pub peak_buffers: Vec<PeakBuffer>,
    /// Other figures with the names they are printed under (XLA's buffer statistics).
    pub extra: Vec<(String, Figure)>,
}

impl OomMessage {
    /// The figures that every message of PyTorch's allocator has but this text lacks, in words: it was truncated when copied, or
    /// a line could not be read. Empty for other writers, and for forms that never have more.
    pub fn unread(&self) -> Vec<&'static str> {
        let f = &self.figures;
        let is_async = self.dialect.writer == Writer::CUDA_MALLOC_ASYNC;
        let is_whole_form = (is_async || self.dialect.writer == Writer::PYTORCH)
            && f.requested.is_some()
            && f.largest_block.is_none()
            && !self.seen.contains("rejected")
            && !self.is_warning;
        if !is_whole_form {
            return Vec::new();
        }
        // Intel's driver did not always report free memory.
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

    /// Marks the failing process if the message lists it by pid: the driver reports pids of the host, so inside a container
    /// PyTorch does not recognise its own. It must be in the list if the listed processes, PyTorch's memory with the context that
    /// each process has, and free memory together exceed the capacity. It is the smallest listed process that is large enough to hold PyTorch's memory.
    fn recognise_own(&mut self) {
        let (Some(capacity), Some(free), Some(reserved)) = (self.figures.capacity, self.figures.free, self.reserved()) else {
            return;
        };
        let Some(listed) = self.listed_processes() else { return };
        let least = listed.plus(reserved).plus(free).low().saturating_add(CONTEXT);
        if self.this_process().is_some() || least <= capacity.high() {
            return;
        }
        let holds = |p: &&mut ProcessUse| !p.bytes.is_unlimited() && p.bytes.high() >= reserved.low();
        if let Some(own) = self.processes.iter_mut().filter(holds).min_by_key(|p| p.bytes.bytes) {
            own.is_this = true;
        }
    }

    /// All memory that PyTorch has reserved: printed by 1.4 to 2.0, otherwise allocated + unallocated.
    pub fn reserved(&self) -> Option<Figure> {
        let f = &self.figures;
        f.reserved.or_else(|| Some(f.allocated?.plus(f.unallocated?)))
    }

    /// Holes: reserved but not allocated. Printed from 2.1 on (and as "cached" before 1.4), otherwise reserved - allocated.
    pub fn unallocated(&self) -> Option<Figure> {
        let f = &self.figures;
        f.unallocated.or_else(|| Some(f.reserved?.minus(f.allocated?)))
    }

    /// Bytes in live tensors: allocated, minus the free blocks of private pools that 2.4 and later include.
    pub fn live(&self) -> Option<Figure> {
        let f = &self.figures;
        let allocated = f.allocated?;
        Some(f.private_pools.map_or(allocated, |p| allocated.minus(p)))
    }

    /// Memory of this process as the driver counts it, including context and libraries.
    pub fn this_process(&self) -> Option<Figure> {
        // Where the driver tells nothing of the process (some containers), PyTorch prints 0 bytes.
        self.processes.iter().find(|p| p.is_this).map(|p| p.bytes).filter(|b| !b.is_unlimited() && b.bytes > 0)
    }

    /// Sum of all listed processes with a figure.
    pub fn listed_processes(&self) -> Option<Figure> {
        self.processes.iter().map(|p| p.bytes).filter(|b| !b.is_unlimited()).reduce(Figure::plus)
    }

    /// Sum of the other listed processes; `None` when none is listed (which does not prove that there are none).
    pub fn other_processes(&self) -> Option<Figure> {
        self.processes.iter().filter(|p| !p.is_this).map(|p| p.bytes).filter(|b| !b.is_unlimited()).reduce(Figure::plus)
    }

    /// Memory of this process outside PyTorch's allocator: context, modules, libraries, graphs.
    pub fn outside_pytorch(&self) -> Option<Figure> {
        Some(self.this_process()?.minus(self.reserved()?))
    }

    /// True for a request that no device has room for: more than 1 EiB, or 16 TiB and more on PyTorch's devices.
    pub fn asks_for_the_impossible(&self) -> bool {
        const NO_DEVICE: u64 = 16 << 40;
        let is_pytorch = self.dialect.writer.neighbour().is_none() && !self.dialect.writer.is_host();
        self.is_absurd_request || is_pytorch && self.figures.requested.is_some_and(|q| q.bytes >= NO_DEVICE)
    }

    /// False where the program goes on: the writer says so, or it tries again with less.
    pub fn is_failure(&self) -> bool {
        !self.is_warning && !self.seen.contains("attempt")
    }

    /// The name by which users know the program where it is not the writer's: that of what runs llama.cpp.
    pub(crate) fn known_as(&self) -> Option<Writer> {
        self.around.filter(|_| self.dialect.writer == Writer::LLAMA_CPP)
    }

    /// True if the machine's memory ran out, not a device's.
    pub(crate) fn is_of_machine(&self) -> bool {
        self.dialect.writer.is_host() || self.dialect.platform == Platform::Cpu
    }

    /// True for a failure that tells why: that a worker is gone may follow from any other, and one that was caught stopped nothing.
    fn is_cause(&self) -> bool {
        self.is_failure() && !self.seen.contains(CAUGHT) && !["$LOST", "$RAY_LOST"].map(engine::sentence).contains(&self.says)
    }

    /// True for messages that count tokens or requests.
    pub(crate) fn counts_tokens(&self) -> bool {
        self.wanted.or(self.fits).is_some()
    }

    /// True if the message has any figure.
    pub fn has_figures(&self) -> bool {
        self.figures != Figures::default()
    }
}

/// The first message with figures, otherwise the first one; `None` when there is none.
pub fn parse(text: &str) -> Option<OomMessage> {
    let all = find_all(text);
    let at = main_message(&all);
    all.into_iter().nth(at)
}

/// In [`OomMessage::seen`]: the message is the last line of a traceback.
const RAISED: &str = "raised";

/// In [`OomMessage::seen`]: the title of a report, which the text below has in full, or a line that quotes another one.
const TITLE: &str = "title";
const QUOTED: &str = "quoted";

/// In [`OomMessage::seen`]: the program caught the failure and went on, as the text says.
const CAUGHT: &str = "caught";
/// In [`OomMessage::seen`]: the message came up while the program handled the one before it, as Python's traceback says.
const CHAINED: &str = "chained";

/// Index of the message to report first: a failure before an attempt that the program repeats, and that before a message of no
/// failure; one that the program caught after one that it did not. Of failures of both kinds, a device's memory and the machine's, those of the
/// kind that came first, and of a chain of tracebacks the first; of those with figures the first that ends a traceback, else the first: a program
/// that caught a failure only mentions it.
pub fn main_message(found: &[OomMessage]) -> usize {
    let first = found.iter().find(|m| m.is_cause()).map(OomMessage::is_of_machine);
    let is_later = |m: &OomMessage| first.is_some_and(|first| m.is_of_machine() != first);
    let rank = |m: &OomMessage| {
        let has_none = !m.has_figures() && !m.is_absurd_request;
        let [caught, chained, raised] = [CAUGHT, CHAINED, RAISED].map(|what| m.seen.contains(what));
        (m.is_warning, !m.is_failure(), caught, is_later(m), chained, has_none, !raised)
    };
    (0..found.len()).min_by_key(|&at| rank(&found[at])).unwrap_or(0)
}

/// Index of the first failure of the other kind than the one to report first, if the text has both.
pub fn other_kind(found: &[OomMessage]) -> Option<usize> {
    let main = found.get(main_message(found)).filter(|m| m.is_cause())?;
    found.iter().position(|m| m.is_cause() && m.is_of_machine() != main.is_of_machine())
}

/// Places of general words that are examined at each end of a text.
const MOST_GENERAL: usize = 1_000;
/// Less than the context of any process takes on a card.
const CONTEXT: u64 = 64 << 20;
/// From this size on PyTorch prints "more than 1EB" instead of the request's size.
const EXBIBYTE: u64 = 1 << 60;

/// All messages of a text, in order. Takes a fraction of a second for 100 MB of log.
pub fn find_all(text: &str) -> Vec<OomMessage> {
    let plain = plain::plain(text);
    let text = plain.as_ref().map_or(text, |(plain, _)| plain);
    let squeezed = text::Squeezed::new(text);
    let mut out = read(&squeezed, text, false);
    let is_pytorch = |&(_, index): &(usize, usize)| engine::pattern(index).row.dialect.writer == Writer::PYTORCH;
    if out.is_empty() && !engine::starts(&squeezed.low, false).iter().any(is_pytorch) {
        let window = text::Window { squeezed: &squeezed, from: 0, to: squeezed.low.len() };
        out.extend(engine::fragment(&window));
    }
    if out.is_empty() {
        out.extend(read(&squeezed, text, true));
    }
    if out.len() > 1 {
        prefix::continues_traceback(text, &mut out);
    }
    let mut out = merge::merged(out);
    if out.len() > 1 {
        prefix::ends_traceback(text, &mut out);
    }
    let table = beside::cards(text);
    for message in &mut out {
        beside::of_table(&table, message);
        message.recognise_own();
        // The size is wrong, whoever printed it; PyTorch itself prints no larger one.
        if message.figures.requested.is_some_and(|q| q.low() >= EXBIBYTE) {
            message.is_absurd_request = true;
            message.figures.requested = None;
        }
        if message.figures.free.is_some_and(|free| free.low() >= EXBIBYTE && !free.is_unlimited()) {
            message.seen.insert("counts below zero");
            message.figures.free = Some(Figure::exact(0));
        }
        // HAMi's count after it fell below zero.
        if message.figures.peak.is_some_and(|peak| peak.low() >= EXBIBYTE) {
            message.seen.insert("miscounted");
            message.figures.peak = None;
        }
    }
    peers::recognise(&mut out);
    for message in &mut out {
        let origin = plain.as_ref().and_then(|(_, origins)| origins.get((message.line as usize).checked_sub(1)?));
        message.line = origin.copied().unwrap_or(message.line);
    }
    out
}

/// The messages that rows find: those for any program (`last`), or all others.
fn read(squeezed: &text::Squeezed<'_>, text: &str, is_last: bool) -> Vec<OomMessage> {
    let low = squeezed.low.as_str();
    let mut starts = engine::starts(low, is_last);
    // The hint after "CUDA error: out of memory" names the error again. It tells of one by itself only where the text has lost the error.
    let is_hint = |&(at, _): &(usize, usize)| low[..at].ends_with("searchfor`") || low[at..].starts_with("searchfor`");
    if !starts.iter().all(is_hint) {
        starts.retain(|start| !is_hint(start));
    }
    if is_last {
        // Where a row has found its words, and that they report nothing, general words report nothing either. A name that must be alone may
        // be a part of a longer one.
        let is_known = |&(at, index): &(usize, usize)| {
            let window = text::Window { squeezed, from: at, to: low.len() };
            let pattern = engine::pattern(index);
            (pattern.row.trust != row::Trust::Line && pattern.is_near(&window)).then(|| squeezed.line_index(at))
        };
        let known: BTreeSet<usize> = engine::starts(low, false).iter().filter_map(is_known).collect();
        starts.retain(|&(at, _)| !known.contains(&squeezed.line_index(at)));
        // Of words that healthy logs repeat in each line, the first and the last are enough.
        if starts.len() > 2 * MOST_GENERAL {
            starts.drain(MOST_GENERAL..starts.len() - MOST_GENERAL);
        }
    }
    let mut out: Vec<OomMessage> = Vec::new();
    let mut covered = 0;
    let mut left = streams::budget(text.len());
    // Messages without figures that a sentence of the writer's tells.
    let mut in_prose = Vec::new();
    // Lines of messages that were assembled from several places.
    let mut taken = BTreeSet::new();
    let may_be_passed = evidence::may_have_passed(text);
    let may_be_sliced = text.contains("MIG") || text.contains("mig-");
    // A log may repeat a failure thousands of times: where all around it is the same, so is what it tells.
    let mut nothing: FxHashMap<usize, text::Window<'_>> = FxHashMap::default();
    let mut repeated: Option<(text::Window<'_>, OomMessage, usize)> = None;
    // For each start, the position of the next start that ends its message.
    let nexts = engine::ends(&starts, low.len());
    for (i, &(at, index)) in starts.iter().enumerate() {
        if at < covered || (!taken.is_empty() && taken.contains(&squeezed.line_index(at))) {
            continue;
        }
        let pattern = engine::pattern(index);
        let cell = squeezed.cell_end(at);
        let to = nexts[i].min(cell.unwrap_or(usize::MAX));
        let window = text::Window { squeezed, from: at, to };
        if let Some((_, message, used)) = repeated.as_ref().filter(|(before, ..)| window.repeats(before)) {
            covered = at + used;
            out.push(OomMessage { line: squeezed.line_at(at), ..message.clone() });
            continue;
        }
        // The same for words that tell nothing, by row.
        if nothing.get(&index).is_some_and(|before| window.repeats(before)) {
            continue;
        }
        let Some((mut message, used)) = pattern.read(&window) else {
            nothing.insert(index, window);
            continue;
        };
        if may_be_passed && message.figures.capacity.is_none() && evidence::is_passed(&window) {
            continue;
        }
        if message.dialect.writer == Writer::XLA {
            // Lines of an XLA report may begin like messages of other programs; only XLA's next message ends it.
            let near = starts.get(i + 1..).unwrap_or(&[]).iter().take_while(|next| next.0 < at + text::REPORT);
            let next = near.clone().find(|next| next.0 > at && engine::pattern(next.1).row.dialect.writer == Writer::XLA);
            let to = next.map_or(low.len(), |next| next.0).min(cell.unwrap_or(usize::MAX));
            xla::buffers(&text::Window { to, ..window }, &mut message);
        }
        covered = at + used;
        let (first, last) = (squeezed.line_index(at), squeezed.line_index((at + used).saturating_sub(1)));
        let may_stand_apart = pattern.row.may_stand_apart() && cell.is_none();
        let regrouped = may_stand_apart.then(|| streams::regroup(squeezed, at, pattern, &message, used, &mut left)).flatten();
        let is_regrouped = regrouped.is_some();
        if let Some(found) = regrouped {
            let rank = found.message.rank.or(message.rank);
            message = OomMessage { line: message.line, rank, ..found.message };
            covered = at + 1;
            taken.extend(found.lines);
        } else if last > first && squeezed.are_counted(first, last) {
            message.rank = None;
        }
        message.seen.extend(window.stands_in());
        program::look_around(&window, &pattern.row, &mut message);
        beside::look(&window, &mut message);
        if let Some(capacity) = message.figures.capacity.filter(|_| may_be_sliced) {
            message.mig_slice = beside::slice(window.vicinity(), capacity);
        }
        if out.len() < given::MOST_MESSAGES {
            message.given = given::settings(window.vicinity());
            program::look_far(&window, &mut message);
            message.seen.extend(given::expands(window.near().low).then_some("expands"));
        }
        if !message.has_figures() && evidence::is_prose(&window, pattern.row.anchor) {
            in_prose.push(out.len());
        } else if out.len() >= given::MOST_MESSAGES && !is_regrouped {
            repeated = Some((window, message.clone(), used));
        }
        out.push(message);
    }
    // "I still get CUDA out of memory" beside the message itself is no further failure.
    if in_prose.len() < out.len() {
        for at in in_prose.into_iter().rev() {
            out.remove(at);
        }
    }
    out
}

#[cfg(test)]
mod tests;
