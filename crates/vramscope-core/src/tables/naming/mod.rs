//! Short names for call stacks: the innermost frame of the user's own code, because `train.py:71` says more than `conv.py:548`.
//! Stacks with only C++ frames are named by their operation.

mod cpp;

pub use cpp::function_label;

use rustc_hash::FxHashMap;

use crate::model::{Beyond, Frame, FrameId, StackId, StackTable};
use crate::units::counted;

/// A name per stack; stacks with the same naming frame share one.
#[derive(Clone, Debug, Default)]
pub struct StackNames {
    of_stack: Vec<u32>,
    frames: Vec<FrameId>,
    texts: Vec<String>,
}

/// The name for allocations without a stack.
pub const NO_STACK: &str = "no Python stack";

/// The name for allocations without a stack: [`NO_STACK`], or the name of a part of a trace's own total.
pub fn without_stack(stack: StackId) -> &'static str {
    match stack {
        StackId::BEFORE => Beyond::BEFORE,
        StackId::GREW => Beyond::GREW,
        _ => NO_STACK,
    }
}

impl StackNames {
    /// Names every stack of a table.
    pub fn of(stacks: &StackTable) -> Self {
        let mut names = StackNames::default();
        let mut seen: FxHashMap<FrameId, u32> = FxHashMap::default();
        // Deep stacks share frames: classify each frame once.
        let mut known: Vec<Option<bool>> = Vec::new();
        let mut is_own = |id: FrameId| {
            let at = id.0 as usize;
            if known.len() <= at {
                known.resize(at + 1, None);
            }
            let of_user = || stacks.frame(id).is_some_and(|f| !is_framework(stacks, f));
            known.get_mut(at).is_some_and(|known| *known.get_or_insert_with(of_user))
        };
        for i in 0..stacks.len() {
            let Some(frame) = own_frame_by(stacks, StackId(i as u32), &mut is_own) else {
                names.of_stack.push(u32::MAX);
                continue;
            };
            let index = *seen.entry(frame).or_insert_with(|| {
                names.frames.push(frame);
                names.texts.push(stacks.frame(frame).map(|f| place_or_function(stacks, f)).unwrap_or_default());
                names.frames.len() as u32 - 1
            });
            names.of_stack.push(index);
        }
        names
    }

    /// Number of distinct names.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// True when no stack has a name.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The index of a stack's name; `None` without a stack.
    pub fn index(&self, stack: StackId) -> Option<usize> {
        self.of_stack.get(stack.0 as usize).filter(|&&i| i != u32::MAX).map(|&i| i as usize)
    }

    /// A name by its index: `workloads.py:71`.
    pub fn text(&self, index: usize) -> &str {
        self.texts.get(index).map_or(NO_STACK, String::as_str)
    }

    /// The name of a stack.
    pub fn of_stack(&self, stack: StackId) -> &str {
        self.index(stack).map_or(without_stack(stack), |i| self.text(i))
    }

    /// The frame a name stands for.
    pub fn frame(&self, index: usize) -> Option<FrameId> {
        self.frames.get(index).copied()
    }
}

/// Packages that only dispatch to an operator: the line that calls them says what is computed.
const OPERATORS: [&str; 8] = ["torch", "jax", "jaxlib", "einops", "einx", "opt_einsum", "jaxtyping", "beartype"];
/// Other packages that profiler traces name by a path below site-packages.
const PACKAGES: [&str; 17] = [
    "accelerate",
    "apex",
    "bitsandbytes",
    "deepspeed",
    "diffusers",
    "flash_attn",
    "lightning",
    "numpy",
    "peft",
    "pytorch_lightning",
    "timm",
    "torchaudio",
    "torchvision",
    "transformers",
    "triton",
    "vllm",
    "xformers",
];

/// The package that a file is installed in, or the first folder of a relative path: `einops` for
/// `/x/site-packages/einops/einops.py`.
fn package(file: &str) -> Option<&str> {
    // A virtual environment may be in a folder of any name.
    let within = file.rsplit_once("-packages").map_or(file, |(_, rest)| rest.trim_start_matches(['/', '\\']));
    within.split_once(['/', '\\']).map(|(first, _)| first)
}

/// True for a file of a package that only dispatches to an operator.
pub fn is_of_operators(file: &str) -> bool {
    let is_installed = file.contains("-packages");
    is_generated(file)
        || package(file).is_some_and(|name| OPERATORS.contains(&name))
        || (!is_installed && file.contains("/torch/"))
}

/// True for a file that `torch.compile` generated, whose lines nobody wrote. Inductor's cache names each file after a hash of its
/// content, in a folder with the first letters of that hash: `/tmp/torchinductor_me/no/cnof55….py`.
pub fn is_generated(file: &str) -> bool {
    const SHORTEST_HASH: usize = 40;
    let mut parts = file.rsplit(['/', '\\']);
    let hash = parts.next().and_then(|name| name.strip_suffix(".py")).and_then(|stem| stem.strip_prefix('c'));
    let is_hash = |hash: &str| hash.len() >= SHORTEST_HASH && hash.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let folder = parts.next().unwrap_or_default();
    hash.is_some_and(|hash| is_hash(hash) && (folder.is_empty() || hash.starts_with(folder))) || file.contains("torchinductor_")
}

/// Name of a compiled backward pass: autograd calls it, and its stacks have no line of the user's code.
const COMPILED_BACKWARD: &str = "compiled backward pass";

/// True for the frame through which autograd enters a compiled backward pass.
fn enters_compiled_backward(stacks: &StackTable, frame: Frame) -> bool {
    stacks.text(frame.file).contains("_aot_autograd") && stacks.text(frame.name).ends_with("backward")
}

/// True if the innermost Python line is in the user's own code, not in a library.
pub(crate) fn is_made_by_own_code(stacks: &StackTable, stack: StackId) -> bool {
    let frames = stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f));
    let mut lines = frames.filter(|f| f.line > 0 && stacks.text(f.file).ends_with(".py"));
    lines.next().is_some_and(|f| !is_framework(stacks, f))
}

/// True for a frame of PyTorch, Python itself or another installed package, or without a source file.
pub fn is_framework(stacks: &StackTable, frame: Frame) -> bool {
    let file = stacks.text(frame.file);
    const PARTS: [&str; 6] = ["site-packages/", "dist-packages/", "/torch/", "site-packages\\", "/lib/python3", "torch/csrc"];
    file.starts_with('<')
        || package(file).is_some_and(|name| OPERATORS.contains(&name) || PACKAGES.contains(&name))
        || file.is_empty()
        || PARTS.iter().any(|p| file.contains(p))
        || is_generated(file)
        || is_compiled(stacks, frame)
}

/// True for a frame of compiled code: a C++ function, or a file that is not Python. Such a frame is never the user's code.
pub fn is_compiled(stacks: &StackTable, frame: Frame) -> bool {
    const FILES: [&str; 8] = [".so", ".cpp", ".h", ".cc", ".c", ".cu", ".o", ".S"];
    let file = stacks.text(frame.file);
    file == "??"
        || FILES.iter().any(|end| file.ends_with(end))
        || file.contains(".so.")
        || stacks.text(frame.name).contains("::")
        || (!file.ends_with(".py") && is_interpreter(file, stacks.text(frame.name)))
}

/// True for a C function of Python itself, recognised by its file or, if the file is unknown, by its name.
fn is_interpreter(file: &str, name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "_Py",
        "PyArg_",
        "PyEval_",
        "PyFunction_",
        "PyImport_",
        "PyNumber_",
        "PyObject_",
        "PyRun_",
        "PyVectorcall_",
        "Py_",
        "cfunction_",
        "method_vectorcall",
        "pymain_",
        "slot_tp_",
    ];
    let short = file.rsplit('/').next().unwrap_or(file);
    short == "python" || short.starts_with("python3") || NAMES.iter().any(|start| name.starts_with(start))
}

/// `train.py:71`; for a frame without a place its function: `AddmmBackward0`, `addmm`.
pub fn place_or_function(stacks: &StackTable, frame: Frame) -> String {
    if enters_compiled_backward(stacks, frame) {
        return COMPILED_BACKWARD.to_owned();
    }
    // Profiler traces use `<operator>`, `<module>` and `<built-in>` as file names.
    let file = stacks.text(frame.file);
    let is_without = frame.line == 0 && (file.is_empty() || file.starts_with('<'));
    if is_without || (is_compiled(stacks, frame) && !stacks.frame_is_unresolved(frame)) {
        return function_label(stacks.text(frame.name)).to_owned();
    }
    stacks.location(frame)
}

/// `train.py:71 step`; for a frame without a place only its function.
pub fn frame_text(stacks: &StackTable, frame: Frame) -> String {
    let (place, function) = (place_or_function(stacks, frame), function_label(stacks.text(frame.name)));
    if place == function || function.is_empty() { place } else { format!("{place} {function}") }
}

/// The lines of a stack worth showing, innermost first: `/home/me/train.py:71 step`. Compiled frames are dropped if there are
/// Python frames; a stack of compiled frames only gives the functions, without those of allocator and recorder.
pub fn shown_frames(stacks: &StackTable, stack: StackId) -> Vec<String> {
    let frames = || stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f));
    let line = |f: Frame| match f.line {
        0 => frame_text(stacks, f),
        line => format!("{}:{line} {}", stacks.text(f.file), stacks.text(f.name)),
    };
    let python: Vec<String> = frames().filter(|&f| !is_compiled(stacks, f)).map(line).collect();
    if !python.is_empty() {
        return python;
    }
    let mut functions: Vec<String> =
        frames().filter(|f| !cpp::is_plumbing(stacks.text(f.name))).map(|f| frame_text(stacks, f)).collect();
    functions.dedup();
    functions
}

/// The innermost frame of the user's own code; `None` if there is none.
pub fn user_frame(stacks: &StackTable, stack: StackId) -> Option<Frame> {
    stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)).find(|&f| !is_framework(stacks, f))
}

/// Lines of a deep stack that are worth showing: the innermost ones, and the outermost.
const ENDS: (usize, usize) = (12, 4);

/// Like [`shown_frames`], but each run of framework frames becomes one line: `7 framework frames, innermost linear`. Lists the
/// frames themselves if none is the user's. Of a deep stack the middle is one line.
pub fn folded_frames(stacks: &StackTable, stack: StackId) -> Vec<String> {
    let mut lines = folded(stacks, stack);
    let (inner, outer) = ENDS;
    if lines.len() > inner + outer + 1 {
        let middle = inner..lines.len() - outer;
        let left_out = middle.len() as u64;
        lines.splice(middle, [format!("… {} between", counted(left_out, "line", "lines"))]);
    }
    lines
}

fn folded(stacks: &StackTable, stack: StackId) -> Vec<String> {
    if user_frame(stacks, stack).is_none() {
        return shown_frames(stacks, stack);
    }
    let frames: Vec<Frame> = stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)).collect();
    let runs = frames.chunk_by(|&a, &b| is_framework(stacks, a) && is_framework(stacks, b));
    let line = |run: &[Frame]| match run {
        [own] if !is_framework(stacks, *own) => format!("{}:{} {}", stacks.text(own.file), own.line, stacks.text(own.name)),
        run => {
            let plain = |f: &&Frame| !is_compiled(stacks, **f);
            let inner = run.iter().find(plain).or(run.first()).map_or("", |f| function_label(stacks.text(f.name)));
            match run.len() {
                1 => format!("1 framework frame, {inner}"),
                n => format!("{}, innermost {inner}", counted(n as u64, "framework frame", "framework frames")),
            }
        }
    };
    runs.map(line).collect()
}

/// The innermost informative frame: of Python if the stack has any, else the first outside of recorder and allocator.
pub fn innermost(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    let frames = stacks.frames(stack);
    let find = |is: &dyn Fn(Frame) -> bool| frames.iter().copied().find(|&f| stacks.frame(f).is_some_and(is));
    find(&|f| !is_compiled(stacks, f))
        .or_else(|| find(&|f| !cpp::is_plumbing(stacks.text(f.name))))
        .or_else(|| frames.first().copied())
}

/// The innermost frame that says what is computed, including C++ operators; skips recorder and allocator. O(such frames).
pub fn innermost_operation(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    let frames = stacks.frames(stack);
    let name = |f: FrameId| stacks.frame(f).map_or("", |f| stacks.text(f.name));
    frames.iter().copied().find(|&f| !cpp::is_plumbing(name(f))).or_else(|| frames.first().copied())
}

/// The innermost frame of the user's own code. Without any, the frame that best says what allocates: a compiled backward pass, the
/// node of the backward pass, the operator, the thread, else the [`innermost`]. `None` for stacks of allocator and recorder only.
pub fn own_frame(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    own_frame_by(stacks, stack, &mut |id| stacks.frame(id).is_some_and(|f| !is_framework(stacks, f)))
}

/// Like [`own_frame`]; the caller decides which frames are the user's.
fn own_frame_by(stacks: &StackTable, stack: StackId, is_own: &mut dyn FnMut(FrameId) -> bool) -> Option<FrameId> {
    let frames = stacks.frames(stack);
    frames
        .iter()
        .copied()
        .find(|&f| is_own(f))
        .or_else(|| frames.iter().copied().find(|&f| stacks.frame(f).is_some_and(|f| enters_compiled_backward(stacks, f))))
        .or_else(|| {
            let names = frames.iter().map(|&f| stacks.frame(f).map_or("", |f| stacks.text(f.name)));
            cpp::telling(names).and_then(|at| frames.get(at).copied())
        })
        .or_else(|| innermost(stacks, stack).filter(|&f| stacks.frame(f).is_some_and(|f| !cpp::is_plumbing(stacks.text(f.name)))))
}

/// A frame that distinguishes a stack from others of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// The frame that the other stacks do not have at its place.
    pub frame: FrameId,
    /// True if the frame is the user's own or outside it; false if it is called by it.
    pub is_caller: bool,
}

/// For each stack with a name that other stacks share: the frame that distinguishes it, or `None`. Prefers callers, because who
/// called says more than what was called. `rows` are stacks with the name they are shown under. O(frames of the rows).
pub fn tell_apart<K: std::hash::Hash + Eq>(stacks: &StackTable, rows: &[(StackId, K)]) -> Vec<Option<Apart>> {
    let mut same: FxHashMap<&K, Vec<usize>> = FxHashMap::default();
    for (i, (_, name)) in rows.iter().enumerate() {
        same.entry(name).or_default().push(i);
    }
    let mut apart = vec![None; rows.len()];
    for group in same.into_values().filter(|g| g.len() > 1) {
        // From the user's own frame outwards through the user's code, then its callees, innermost first, then libraries.
        let order = |i: usize| -> Vec<Apart> {
            let frames = stacks.frames(rows[i].0);
            let own = own_frame(stacks, rows[i].0).and_then(|own| frames.iter().position(|&f| f == own)).unwrap_or(0);
            let (inner, outer) = frames.split_at(own.min(frames.len()));
            let of = |is_caller: bool| move |&frame: &FrameId| Apart { frame, is_caller };
            let is_named = |f: &&FrameId| stacks.frame(**f).is_none_or(|f| !cpp::is_plumbing(stacks.text(f.name)));
            let is_own = |f: &FrameId| stacks.frame(*f).is_some_and(|f| !is_framework(stacks, f));
            // The innermost Python frame first, as `innermost` says.
            let is_python = |f: &&FrameId| stacks.frame(**f).is_some_and(|f| !is_compiled(stacks, f));
            let (python, compiled): (Vec<&FrameId>, Vec<&FrameId>) = inner.iter().filter(is_named).partition(is_python);
            let called = python.into_iter().chain(compiled).map(of(false));
            // A module's `__call__` says less than both the user's callers and what the line called.
            let (own_callers, others): (Vec<&FrameId>, Vec<&FrameId>) = outer.iter().partition(|f| is_own(f));
            own_callers.into_iter().map(of(true)).chain(called).chain(others.into_iter().map(of(true))).collect()
        };
        let ways = group.into_iter().map(|i| (i, order(i))).collect();
        part(ways, 0, &mut apart);
    }
    apart
}

/// Separates rows at the first position from `from` on where their frames differ; recurses into those that stay together.
fn part(rows: Vec<(usize, Vec<Apart>)>, from: usize, apart: &mut [Option<Apart>]) {
    let longest = rows.iter().map(|(_, way)| way.len()).max().unwrap_or(0);
    let differ = |at: &usize| rows.iter().any(|(_, way)| way.get(*at) != rows[0].1.get(*at));
    let Some(at) = (from..longest).find(differ) else { return };
    let mut by_frame: FxHashMap<Option<FrameId>, Vec<(usize, Vec<Apart>)>> = FxHashMap::default();
    for (i, way) in rows {
        let frame = way.get(at).copied();
        apart[i] = frame.or(apart[i]);
        by_frame.entry(frame.map(|f| f.frame)).or_default().push((i, way));
    }
    for together in by_frame.into_values().filter(|rows| rows.len() > 1) {
        part(together, at + 1, apart);
    }
}

/// A name with the frame that [distinguishes it](tell_apart): `serve.py:14, by serve.py:28 decode`, or `in` for a called frame.
pub fn named_by(stacks: &StackTable, name: &str, by: Option<Apart>) -> String {
    let Some((apart, frame)) = by.and_then(|by| Some((by, stacks.frame(by.frame)?))) else { return name.to_owned() };
    let text = frame_text(stacks, frame);
    match (name, apart.is_caller) {
        ("", _) => text,
        (_, true) => format!("{name}, by {text}"),
        (_, false) => format!("{name}, in {text}"),
    }
}

/// A stack as text, innermost frame first, one line per frame: `file:line name`.
pub fn stack_text(stacks: &StackTable, stack: StackId) -> String {
    let lines: Vec<String> = stacks
        .frames(stack)
        .iter()
        .filter_map(|&f| stacks.frame(f))
        .map(|f| {
            if stacks.frame_is_unresolved(f) {
                format!("{}+{:#x} {}", stacks.text(f.file), f.line, stacks.text(f.name))
            } else {
                format!("{}:{} {}", stacks.text(f.file), f.line, stacks.text(f.name))
            }
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::StackTableBuilder;

    #[test]
    fn c_functions_of_python_are_nobody_s_own() {
        let mut b = StackTableBuilder::new();
        let mut is_framework = |name: &str, file: &str| {
            let (name, file) = (b.string(name), b.string(file));
            let frame = Frame { name, file, line: 7 };
            b.frame(frame);
            super::is_framework(&b.clone().finish(), frame)
        };
        for name in ["_PyEval_EvalFrameDefault", "_PyObject_MakeTpCall", "PyObject_Call", "cfunction_call", "method_vectorcall"] {
            assert!(is_framework(name, "/opt/job/bin/interpreter"), "{name}");
            assert!(!is_framework(name, "/home/me/train.py"), "{name} of the user's own");
        }
        assert!(is_framework("main", "/usr/bin/python") && !is_framework("main", "/home/me/python/train.py"));
    }

    #[test]
    fn stacks_of_one_name_are_told_apart_by_who_called() {
        let mut b = StackTableBuilder::new();
        let mut frame = |file: &str, line| b.frame_of("f", file, line);
        let [torch, other] =
            [("/venv/lib/python3.12/site-packages/torch/a.py", 1), ("/venv/lib/python3.12/site-packages/torch/b.py", 2)]
                .map(|(file, line)| frame(file, line));
        let [grow, keys, values, main] = [14, 28, 29, 40].map(|line| frame("/home/me/serve.py", line));
        let all = [vec![torch, grow, keys, main], vec![torch, grow, values, main], vec![other, grow, values, main], vec![main]];
        let all: Vec<StackId> = all.iter().map(|frames| b.stack(frames)).collect();
        let table = b.finish();
        let names = StackNames::of(&table);
        let rows: Vec<_> = all.iter().map(|&s| (s, names.of_stack(s))).collect();
        let told: Vec<String> =
            tell_apart(&table, &rows).into_iter().zip(&rows).map(|(by, (_, name))| named_by(&table, name, by)).collect();
        assert_eq!(
            told,
            ["serve.py:14, by serve.py:28 f", "serve.py:14, in a.py:1 f", "serve.py:14, in b.py:2 f", "serve.py:40"]
        );
        assert_eq!(tell_apart(&table, &rows[..1]), [None], "alone it is clear");
    }

    #[test]
    fn compiled_code_is_never_a_place() {
        let mut b = StackTableBuilder::new();
        let mut frame = |file: &str, line, name: &str| b.frame_of(name, file, line);
        let unwind = frame("??", 0, "torch::unwind::unwind()");
        let malloc = frame("CUDACachingAllocator.cpp", 0, "c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)");
        let engine = frame("/pytorch/torch/csrc/autograd/engine.cpp", 581, "torch::autograd::Engine::thread_main(int)");
        let thread = frame("thread48.o", 0, "execute_native_thread_routine");
        let python = frame("/usr/bin/python3.12", 0, "_PyEval_EvalFrameDefault");
        let model = frame("/home/me/model.py", 40, "forward");
        let backward = b.stack(&[unwind, malloc, engine, thread, python]);
        let forward = b.stack(&[unwind, malloc, python, model]);
        let nothing = b.stack(&[unwind, malloc]);
        let table = b.finish();
        let names = StackNames::of(&table);
        assert_eq!(names.of_stack(backward), "backward (autograd thread)");
        assert_eq!(names.of_stack(forward), "model.py:40");
        assert_eq!(names.of_stack(nothing), NO_STACK);
        assert_eq!(shown_frames(&table, forward), ["/home/me/model.py:40 forward"]);
    }

    #[test]
    fn a_stack_goes_by_its_users_frame() {
        let mut b = StackTableBuilder::new();
        let mut frame = |file: &str, line| b.frame_of("f", file, line);
        let torch = frame("/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py", 548);
        let own = frame("/home/me/train.py", 71);
        let main = frame("/home/me/train.py", 90);
        let s = b.stack(&[torch, own, main]);
        let t = b.stack(&[own, main]);
        let u = b.stack(&[torch]);
        let names = StackNames::of(b.table());
        assert_eq!(names.of_stack(s), "train.py:71");
        assert_eq!(names.index(s), names.index(t));
        assert_eq!(names.of_stack(u), "conv.py:548");
        assert_eq!(names.of_stack(StackId::NONE), NO_STACK);
    }

    #[test]
    fn operators_of_a_profiler_trace_go_by_their_names() {
        let mut b = StackTableBuilder::new();
        let mut stack_of = |name: &str, file: &str| {
            let frame = b.frame_of(name, file, 0);
            b.stack(&[frame])
        };
        let stacks = [("aten::addmm", "<operator>"), ("aten::gelu", "<operator>"), ("nn.Module: Linear_0", "<module>")]
            .map(|(name, file)| stack_of(name, file));
        let names = StackNames::of(b.table());
        assert_eq!(stacks.map(|s| names.of_stack(s)), ["addmm", "gelu", "nn.Module: Linear_0"]);
    }
}
