//! [`Sense`]: what the names in a call stack show about the program: the phase, the calling loop, and whether it makes weights.

use super::frame::{self, *};
use crate::model::{FrameId, StackId, StackTable};
use crate::tables::is_framework;
use crate::tables::naming::is_of_operators;

/// A part of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// No frame of the stack shows the part.
    #[default]
    Unknown,
    /// A model is built, moved or loaded.
    Load,
    /// The forward pass, with its loss.
    Forward,
    /// The backward pass, including recomputation by checkpointing.
    Backward,
    /// The optimizer, including clipping and unscaling of gradients before it.
    Optimizer,
}

/// The interpretation of a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sense {
    pub(super) part: Part,
    /// The bits of all its frames, see [`frame`].
    pub(super) bits: Bits,
    /// The frame nearest to the allocation that tells anything makes or loads weights.
    pub(super) makes_weights: bool,
    /// True for forward code that runs again inside backward: checkpointing.
    pub(super) is_recomputed: bool,
    /// True if it prepares gradients for the optimizer and keeps nothing.
    pub(super) clips: bool,
    /// The frame that calls the outermost module, or the outermost `generate`.
    pub(super) site: Option<FrameId>,
    /// Number of its frames inside that call, counted from the innermost.
    pub(super) inside: u32,
    /// The line of `Module._apply` that moves it, if any.
    pub(super) applies: Option<FrameId>,
    /// The frame that calls the optimizer.
    pub(super) stepper: Option<FrameId>,
    /// The frame that decided the part, for use in reasons.
    pub(super) frame: Option<FrameId>,
    /// True if the innermost Python frame computes without weights.
    pub(super) is_weightless: bool,
    /// A hash of the Python frames: equal for stacks that differ only in other frames.
    pub(super) python: u64,
}

/// The interpretation of a missing stack. If other stacks show a pass, it means the backward pass, whose threads run no Python.
pub(super) fn without_stack(others_tell: bool) -> Sense {
    Sense { part: if others_tell { Part::Backward } else { Part::Unknown }, ..Sense::default() }
}

/// What every stack says, and the bits of every frame. O(frames of all stacks).
pub(super) fn read(stacks: &StackTable) -> (Vec<Sense>, Vec<Bits>) {
    let mut bits: Vec<Bits> =
        (0..stacks.frame_count()).map(|i| stacks.frame(FrameId(i as u32)).map_or(0, |f| frame::bits(stacks, f))).collect();
    let has_cache = bits.iter().any(|b| b & (CACHE | NAMED_CACHE) != 0);
    for b in &mut bits {
        if has_cache && *b & (PREFILLS | DECODES) != 0 {
            *b |= GENERATES;
        }
    }
    ((0..stacks.len()).map(|i| sense(stacks, &bits, StackId(i as u32))).collect(), bits)
}

fn sense(stacks: &StackTable, bits: &[Bits], stack: StackId) -> Sense {
    let frames = stacks.frames(stack);
    let of = |f: FrameId| bits.get(f.0 as usize).copied().unwrap_or(0);
    let mut s = Sense::default();
    // The first frame that shows a part, from the allocation outwards.
    let (mut first, mut in_closure, mut in_python, mut trains) = (0, false, false, false);
    for &f in frames {
        let mut b = of(f);
        in_closure |= b & CLOSURE != 0;
        if in_closure {
            // A closure that an optimizer calls holds the program's own forward and backward passes.
            b &= !(OPTIMIZER | CLIPS | STEP | ADAM | SGD);
        }
        // Training that a function such as `run_eval` calls is not an evaluation.
        trains |= b & TRAINS != 0 && s.bits & EVALUATES == 0;
        if trains {
            b &= !EVALUATES;
        }
        // For blocks made inside a module, ignores cache names in its callers: they may measure a pass before they make a cache.
        if s.bits & CALL != 0 {
            b &= !(CACHE | NAMED_CACHE);
        }
        s.bits |= b;
        if first == 0 {
            first = b & (CALL | FORWARD | BACKWARD | OPTIMIZER | LOADS | CLIPS);
            s.frame = (first != 0).then_some(f);
        }
        if b & APPLIES != 0 && s.applies.is_none() {
            s.applies = Some(f);
        }
        if b & PYTHON != 0 {
            s.is_weightless |= !in_python && b & WEIGHTLESS != 0;
            in_python = true;
            s.python = (s.python.rotate_left(5) ^ u64::from(f.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    if is_scratch(stacks, frames) {
        s.bits |= WORKSPACE;
    }
    let in_module = s.bits & (CALL | FORWARD) != 0;
    s.makes_weights = first & LOADS != 0 && first & (OPTIMIZER | BACKWARD) == 0;
    s.clips = first & CLIPS != 0;
    s.part = if first & (OPTIMIZER | CLIPS) != 0 || (s.bits & STEP != 0 && !in_module && first & BACKWARD == 0) {
        Part::Optimizer
    } else if s.bits & BACKWARD != 0 || begins_in_backward(stacks, frames) {
        // A module that is called again is inside the backward frame.
        let first = |bit: Bits| frames.iter().position(|&f| of(f) & bit != 0);
        s.is_recomputed = first(CALL).is_some_and(|call| first(BACKWARD).is_some_and(|backward| call < backward));
        Part::Backward
    } else if !in_module && shares(stacks, frames) {
        s.makes_weights = false;
        Part::Unknown
    } else if !in_module && (s.makes_weights || (s.bits & BUILDS != 0 && computes_while_building(stacks, frames, of))) {
        Part::Load
    } else if in_module || s.bits & (FUNCTIONAL | GENERATES | CASTS) != 0 {
        Part::Forward
    } else if s.bits & BUILDS != 0 {
        Part::Load
    } else {
        Part::Unknown
    };
    match s.part {
        Part::Optimizer => {
            let outermost = frames.iter().rposition(|&f| of(f) & (OPTIMIZER | CLIPS | STEP) != 0);
            // Frames of the interpreter may lie between Python frames.
            let is_python = |f: &&FrameId| of(**f) & PYTHON != 0;
            let outside = outermost.and_then(|i| frames.get(i + 1..)).unwrap_or_default();
            let direct = outside.iter().find(is_python).or(outside.first()).copied();
            // Lightning steps every optimizer from one line of its own; the program's lines distinguish them.
            let own = frames.iter().skip_while(|&&f| of(f) & (OPTIMIZER | CLIPS) == 0).copied().find(|f| is_own(stacks, *f, of));
            s.stepper = direct.filter(|&f| is_own(stacks, f, of)).or(own).or(direct);
            s.frame = s.frame.or_else(|| outermost.map(|i| frames[i]));
        }
        Part::Forward => (s.site, s.inside) = site(stacks, frames, of),
        Part::Load if s.frame.is_none() => s.frame = frames.iter().copied().find(|&f| of(f) & BUILDS != 0),
        _ => {}
    }
    s
}

/// True if a tensor is shared with another process: data of a loader with workers.
fn shares(stacks: &StackTable, frames: &[FrameId]) -> bool {
    frames.iter().filter_map(|&f| stacks.frame(f)).any(|f| frame::is_sharing(stacks.text(f.file)))
}

/// True for scratch memory that a matrix product allocates before its result, as hipBLASLt does. Traces name both.
fn is_scratch(stacks: &StackTable, frames: &[FrameId]) -> bool {
    const PRODUCTS: [&str; 4] = ["aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm"];
    let name = |at: usize| frames.get(at).and_then(|&f| stacks.frame(f)).map_or("", |f| stacks.text(f.name));
    name(0) == "aten::empty" && PRODUCTS.contains(&name(1))
}

/// True where a constructor or a loader of the program calls the operator itself, as one that makes a table of positions with `einsum`.
fn computes_while_building(stacks: &StackTable, frames: &[FrameId], of: impl Fn(FrameId) -> Bits) -> bool {
    frames.iter().copied().find(|&f| is_own(stacks, f, &of)).is_some_and(|f| of(f) & BUILDS != 0)
}

/// True for a frame of Python in the program's own code.
fn is_own(stacks: &StackTable, f: FrameId, of: impl Fn(FrameId) -> Bits) -> bool {
    of(f) & PYTHON != 0 && stacks.frame(f).is_some_and(|frame| !is_framework(stacks, frame))
}

/// Where the outermost module is called, and the number of frames inside the call. A model that is tried while it is built is not
/// a loop.
fn site(stacks: &StackTable, frames: &[FrameId], of: impl Fn(FrameId) -> Bits) -> (Option<FrameId>, u32) {
    // A function of the program that is called `generate` may hold the loop around the library's.
    let is_library = |f: FrameId| stacks.frame(f).is_some_and(|frame| is_framework(stacks, frame));
    let of_library = frames.iter().rposition(|&f| of(f) & GENERATES != 0 && is_library(f));
    let any = frames.iter().rposition(|&f| of(f) & (CALL | FORWARD | GENERATES) != 0);
    let is_own_generate = |&at: &usize| of(frames[at]) & (CALL | FORWARD) == 0 && !is_library(frames[at]);
    let of_library = any.filter(is_own_generate).and(of_library);
    let Some(outermost) = of_library.or(any) else { return (None, 0) };
    let mut outside = &frames[outermost + 1..];
    // C++ frames, torch frames inside the user's own, and a library's `__call__` around the module's are no places of the program.
    let is_own = |&f: &FrameId| stacks.frame(f).is_some_and(|frame| of(f) & PYTHON != 0 && !is_framework(stacks, frame));
    let is_called = outside.iter().any(is_own);
    let is_passed = |f: FrameId| {
        let Some(frame) = stacks.frame(f) else { return true };
        let (file, name) = (stacks.text(frame.file), stacks.text(frame.name));
        let is_torch = is_called && is_of_operators(file);
        of(f) & PYTHON == 0 || is_torch || (name == "__call__" && is_framework(stacks, frame))
    };
    while let Some((&f, rest)) = outside.split_first()
        && is_passed(f)
    {
        outside = rest;
    }
    if outside.iter().any(|&f| of(f) & LOADS != 0) {
        return (None, 0);
    }
    let inside = outermost as u32 + u32::from(of(frames[outermost]) & CALL == 0);
    (outside.first().copied().or(Some(frames[outermost])), inside)
}

/// True if the outermost Python frame is one that autograd's own threads call.
fn begins_in_backward(stacks: &StackTable, frames: &[FrameId]) -> bool {
    let Some(root) = frames.last().and_then(|&f| stacks.frame(f)) else { return false };
    let (file, name) = (stacks.text(root.file), stacks.text(root.name));
    file.ends_with(".py") && (name.contains("backward") || (name == "apply" && file.ends_with("autograd/function.py")))
}
