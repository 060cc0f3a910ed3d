//! The programs that print messages, and detection of the program behind an error without figures.

use std::sync::LazyLock;

use super::entries::{Entry, entries};
use super::row::{Row, Trust};
use super::signs::{self, Around, Found};
use super::text::{Window, captured, has, looks_like};
use super::{OomMessage, Platform};

/// The program that wrote a message: a row of `programs.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Writer(&'static str);

struct Program {
    key: &'static str,
    /// Whose memory its messages are about, and what else its row says.
    marks: &'static str,
    title: &'static str,
}

static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
    let of = |entry: Entry| {
        let (head, title) = entry.head.split_once(": ")?;
        let (key, marks) = head.split_once(' ')?;
        Some(Program { key, marks, title })
    };
    entries(&[include_str!("programs.txt")]).into_iter().filter_map(of).collect()
});

/// Programs that the code itself knows.
macro_rules! known {
    ($($name:ident $key:literal,)*) => {
        impl Writer {
            $(pub(crate) const $name: Writer = Writer($key);)*

            #[cfg(test)]
            const KNOWN: &[Writer] = &[$(Writer::$name),*];
        }
    };
}

known! {
    PYTORCH "pytorch",
    CUDA_MALLOC_ASYNC "cuda-malloc-async",
    RUNTIME "cuda-error",
    VLLM "vllm",
    SGLANG "sglang",
    XLA "xla",
    TENSORFLOW "tensorflow-bfc",
    LLAMA_CPP "llama.cpp",
    OLLAMA "ollama",
    TENSOR_RT "tensorrt",
    VULKAN "vulkan",
    METAL "metal",
    LEVEL_ZERO "level-zero",
    OPENCL "opencl",
    KILLER "killed",
    SLURM "slurm",
    RAY "ray",
    SHM "shm",
    CUDA_PROGRAM "cuda-program",
    PROGRAM "program",
}

impl Default for Writer {
    fn default() -> Self {
        Writer::PYTORCH
    }
}

impl Writer {
    /// Its key in the tables and in [`Dialect::name`](super::Dialect::name).
    pub(crate) fn key(self) -> &'static str {
        self.0
    }

    pub(crate) fn of_key(key: &str) -> Option<Self> {
        PROGRAMS.iter().find(|program| program.key == key).map(|program| Writer(program.key))
    }

    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        self.row().map_or(self.0, |program| program.title)
    }

    /// The program's name if memory other than PyTorch's ran out: PyTorch's settings and recordings do not apply then.
    pub fn neighbour(self) -> Option<&'static str> {
        self.has("own").then(|| self.title())
    }

    /// True if host memory ran out, not a device's.
    pub fn is_host(self) -> bool {
        self.has("host")
    }

    /// True for a server of models, which takes the share of the card that it is told to.
    pub(crate) fn is_server(self) -> bool {
        self.has("server")
    }

    pub(super) fn has(self, mark: &str) -> bool {
        self.row().is_some_and(|program| program.marks.split(' ').any(|known| known == mark))
    }

    fn row(self) -> Option<&'static Program> {
        PROGRAMS.iter().find(|program| program.key == self.0)
    }
}

/// Number of lines before and after a message that are searched for cues.
const LINES: (usize, usize) = (30, 12);

/// Detects from the text around a message which program wrote it, and whether it ran on Windows.
pub(super) fn look_around(window: &Window<'_>, row: &Row, message: &mut OomMessage) {
    let (writer, platform) = (row.dialect.writer, row.dialect.platform);
    let lines = Around::of(window);
    let (around, found) = lines.lines(window, LINES);
    let told_platform = platform == Platform::Cuda && (writer.is_server() || writer == Writer::TENSORFLOW);
    if let Some(card) = signs::first("card", &found).filter(|_| told_platform).and_then(|card| card.parse().ok()) {
        message.dialect.platform = card;
    }
    if writer == Writer::XLA && platform != Platform::Cuda {
        let compiler = signs::first("compiler", &Found::of(&without_sources(around))).and_then(Writer::of_key);
        message.dialect.writer = compiler.unwrap_or(Writer::XLA);
    }
    let is_bare = writer.has("bare");
    let is_searched = is_bare || writer.has("searched");
    if is_searched || writer.is_host() {
        message.seen.extend(lines.shown(window));
    }
    if !is_searched {
        return;
    }
    message.seen.extend(is_bare.then_some("bare"));
    // JAX has the allocator of TensorFlow, with other paths before its lines.
    if writer == Writer::TENSORFLOW
        && signs::tells("allocator of jax", around)
        && !has(&without_sources(around), "tensorflow|keras|local_xla|local_tsl")
    {
        message.dialect.writer = Writer::XLA;
        message.tips = &[];
    }
    if message.dialect.writer == Writer::TENSORFLOW {
        if signs::tells("tensorflow 1", around) {
            message.dialect.until = Some((1, 15));
        }
        // A filter of 1 by 1 is no batch of one.
        let second = captured!(r"shape[ =:]*(?:of )?\[1, *(\d+) *,[^]]*\]", window.raw_line());
        let is_one_at_once = second.is_some_and(|[second]| second != "1");
        message.seen.extend(is_one_at_once.then_some("one at once"));
    }
    if is_bare {
        let place = around.find(&super::text::clamped(window.raw_line(), 200).to_ascii_lowercase()).unwrap_or(0);
        match nearest(around, &found, place, window.raw_line().len()) {
            Some(Writer::PYTORCH) => {}
            // In Ollama, the process that runs out is llama.cpp.
            Some(Writer::OLLAMA) => message.dialect.writer = Writer::LLAMA_CPP,
            Some(writer) => message.dialect.writer = writer,
            None if row.is("last") => {
                message.dialect.writer = if platform == Platform::Cuda { Writer::CUDA_PROGRAM } else { Writer::PROGRAM }
            }
            // The words are any program's, not those of PyTorch.
            None if writer == Writer::RUNTIME && matches!(row.trust, Trust::Name | Trust::Figures) => {
                message.seen.insert("foreign");
            }
            None => {}
        }
    }
    let kind = match message.dialect.writer {
        Writer::LLAMA_CPP => "runner",
        Writer::TENSOR_RT => "provider",
        own if own != Writer::TENSORFLOW && (is_bare || writer.has("inside")) => "server",
        _ => "",
    };
    message.around = signs::first(kind, &found).and_then(Writer::of_key);
    if message.around.is_some_and(|around| around.has("pytorch")) {
        message.seen.remove("foreign");
    }
    // llama.cpp for AMD prints CUDA's names.
    if message.dialect.writer == Writer::LLAMA_CPP && message.dialect.platform == Platform::Cuda && has(around, "rocm|hipmalloc")
    {
        message.dialect.platform = Platform::Hip;
    }
    // Another program with ggml inside.
    let inside = signs::first("ggml", &found).filter(|_| message.dialect.writer == Writer::LLAMA_CPP);
    if let Some(writer) = inside.and_then(Writer::of_key) {
        (message.dialect.writer, message.tips) = (writer, &[]);
    }
}

/// Paths of TensorFlow's sources say nothing of who runs: XLA's were among them.
fn without_sources(text: &str) -> String {
    signs::words("sources of tensorflow").fold(text.to_owned(), |text, path| text.replace(path, ""))
}

/// What the whole log tells: TensorFlow's release, and the share of the card that a server takes.
pub(super) fn look_far(window: &Window<'_>, message: &mut OomMessage) {
    match message.dialect.writer {
        Writer::TENSORFLOW if message.dialect.until.is_none() => {
            let (above, below) = window.log();
            let log = [above, below].concat().to_ascii_lowercase();
            let is_old = signs::tells("old release", &log) && !signs::tells("tensorflow 2", &log);
            message.dialect.until = is_old.then_some((1, 15));
        }
        Writer::VLLM => message.server_share = share_of(window, "gpu_memory_utilization"),
        Writer::SGLANG => message.server_share = share_of(window, "mem_fraction_static"),
        _ => {}
    }
}

/// The number of a server's setting: `name=0.70`, `'name': 0.7`, `--name 0.7`, the nearest one above, else below.
fn share_of(window: &Window<'_>, name: &str) -> Option<String> {
    let word = name.rsplit('_').next().unwrap_or(name);
    let of_line = |line: &str| {
        // Most lines do not have it.
        let line = line.contains(word).then(|| line.to_ascii_lowercase().replace('-', "_"))?;
        line.split(name).skip(1).find_map(|rest| {
            let [number] = captured!("^[ =:'\"`]*([0-9][0-9.]*)", rest)?;
            let number = number.trim_end_matches('.');
            number.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0).map(|_| number.to_owned())
        })
    };
    let (above, below) = window.log();
    above.lines().rev().find_map(of_line).or_else(|| below.lines().take(LINES.1).find_map(of_line))
}

/// The program whose words are nearest to the message's line. Distances after the line count double, because text before an error
/// is more often its cause; a list of what is installed, `torch==2.8.0`, counts where nothing else tells.
fn nearest(around: &str, found: &Found, place: usize, line: usize) -> Option<Writer> {
    let is_version = |at: usize| {
        let rest = super::text::clamped(&around[at..], 40);
        looks_like!(r"^[a-z_-]+(?: version)?[*\x60:=|\s]+v?\d+\.\d", rest)
    };
    let distance = |cue: &'static str| {
        let behind = found.places(cue).find(|at| *at >= place).map(|at| (at, (at - place).saturating_sub(line) * 2));
        let before = found.places(cue).rev().find(|at| at + cue.len() <= place).map(|at| (at, place - at));
        let nearest = behind.into_iter().chain(before).min_by_key(|(_, far)| *far);
        nearest.map(|(at, far)| if is_version(at) { around.len() * 2 + far } else { far })
    };
    let found = signs::of_kind("program").filter_map(|(program, word)| Some((distance(word)?, program)));
    found.min_by_key(|(distance, _)| *distance).and_then(|(_, program)| Writer::of_key(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row with a mistyped mark would be taken for another kind of program.
    #[test]
    fn every_program_is_a_row() {
        for program in &*PROGRAMS {
            let owners = ["pytorch", "own", "host"].iter().filter(|owner| Writer(program.key).has(owner)).count();
            let marks = ["pytorch", "own", "host", "bare", "server", "inside", "searched", "layered"];
            let is_known = program.marks.split(' ').all(|mark| marks.contains(&mark));
            assert!(owners == 1 && is_known && !program.title.is_empty(), "{}: {}", program.key, program.marks);
            assert_eq!(PROGRAMS.iter().filter(|other| other.key == program.key).count(), 1, "{}", program.key);
        }
        assert!(Writer::KNOWN.iter().all(|writer| writer.row().is_some()), "{:?}", Writer::KNOWN);
    }
}
