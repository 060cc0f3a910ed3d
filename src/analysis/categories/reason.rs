//! [`Reason`]: why an allocation is in its category, in a sentence.

use super::Category;
use super::facts::{Because, Decided, Facts, Fate};
use super::frames::what_it_is;
use crate::analysis::frame_text;
use crate::model::{FrameId, Recording};

/// What a category rests on, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// A rule of the user's.
    UserRule,
    /// PyTorch's profiler.
    Profiler,
    /// The user's metadata.
    Metadata,
    /// An annotation.
    Annotation,
    /// A frame of the stack, and perhaps the lifetime.
    Stack,
    /// The lifetime alone.
    Lifetime,
    /// Nothing.
    Nothing,
}

impl Trust {
    /// A stable name, used in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Trust::UserRule => "rule",
            Trust::Profiler => "profiler",
            Trust::Metadata => "metadata",
            Trust::Annotation => "annotation",
            Trust::Stack => "stack",
            Trust::Lifetime => "lifetime",
            Trust::Nothing => "nothing",
        }
    }
}

/// Why an allocation is in its category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The category.
    pub category: Category,
    /// What it rests on.
    pub trust: Trust,
    /// The frame that decided, when one did.
    pub frame: Option<FrameId>,
    /// Without the name of the category: "adam.py:143 _init_group is part of an optimizer, and it was kept after the step".
    pub sentence: String,
}

impl Facts {
    pub(super) fn reason(&self, recording: &Recording, decided: Decided) -> Reason {
        let stacks = &recording.stacks;
        let place = |frame: FrameId| stacks.frame(frame).map_or_else(String::new, |frame| frame_text(stacks, frame));
        let (trust, frame, sentence) = match decided.because {
            Because::User(rule, frame) => {
                let pattern = self.rules.pattern(usize::from(rule));
                let text = format!("Your rule {} (\"{pattern}\") matches {}.", rule + 1, place(frame));
                (Trust::UserRule, Some(frame), text)
            }
            Because::Profiler(text) => {
                (Trust::Profiler, None, format!("PyTorch's profiler recorded the category \"{}\".", stacks.text(text)))
            }
            Because::Metadata(text) => (Trust::Metadata, None, format!("Your metadata say \"{}\".", stacks.text(text))),
            Because::Annotation(name) => {
                (Trust::Annotation, None, format!("It was allocated inside the range \"{}\".", stacks.text(name)))
            }
            Because::Frame(frame, rule, fate) => {
                let mut text = format!("{} is {}", place(frame), what_it_is(rule));
                if let Some(fate) = fate {
                    text.push_str(", and it ");
                    text.push_str(after_frame(fate));
                }
                text.push('.');
                (Trust::Stack, Some(frame), text)
            }
            Because::Fate(fate) => (Trust::Lifetime, None, alone(fate).to_owned()),
            Because::Nothing => (Trust::Nothing, None, "No rule applies to its stack or its lifetime.".to_owned()),
        };
        Reason { category: decided.category, trust, frame, sentence }
    }
}

fn after_frame(fate: Fate) -> &'static str {
    match fate {
        Fate::OutlivesOptimizer => "was kept after the optimizer's step",
        Fate::DiesInOptimizer => "was gone when the optimizer's step ended",
        Fate::AliveAtStep | Fate::AutogradAliveAtStep => "was still held when the optimizer stepped",
        Fate::GoneBeforeStep | Fate::AutogradGoneBeforeStep => "was not held when the optimizer stepped",
        Fate::AutogradSizeOfParameter => "is as large as a parameter",
        Fate::LibrarySize => "has the size of a cuBLAS workspace and was never freed",
        Fate::OutlivesAll => "outlives every optimizer step",
        Fate::WithinStep => "was made and gone within one step",
        Fate::GrowsByCopy => "grows by copies: nearly each time a smaller block is freed right after",
        Fate::CopiedIntoCache => "was copied into a block of a cache",
        Fate::MadeAtStart => {
            "was made at the start, like all that is made there, and never freed, in a recording without an optimizer: weights or \
             buffers of a model that is served"
        }
    }
}

fn alone(fate: Fate) -> &'static str {
    match fate {
        Fate::OutlivesOptimizer => "It was made during an optimizer's step and kept after it.",
        Fate::DiesInOptimizer => "It was made during an optimizer's step and gone at its end.",
        Fate::AutogradAliveAtStep => {
            "It has no Python stack, so autograd's own thread made it, and it was still held when the optimizer stepped."
        }
        Fate::AutogradSizeOfParameter => {
            "It has no Python stack, so autograd's own thread made it, and it is as large as a parameter."
        }
        Fate::AutogradGoneBeforeStep => {
            "It has no Python stack, so autograd's own thread made it, and it was not held when the optimizer stepped."
        }
        Fate::AliveAtStep => "It was held when the optimizer stepped, and is as large as a parameter.",
        Fate::GoneBeforeStep => "It was not held when the optimizer stepped.",
        Fate::LibrarySize => "It has the size of a cuBLAS workspace, was never freed, and there are only a few of it.",
        Fate::OutlivesAll => {
            "It is older than the first optimizer step recorded and outlives the last: parameters, buffers, or state the \
             optimizer made before the recording began."
        }
        Fate::GrowsByCopy => "It is part of a cache that grows by copies.",
        Fate::CopiedIntoCache => {
            "It was freed right after a larger block was made by code named after a cache that grows by copies: its contents went \
             there."
        }
        Fate::MadeAtStart => "It was made at the start and never freed, and the recording has no optimizer.",
        Fate::WithinStep => {
            "It was made and gone between two optimizer steps; without stacks, activations and temporaries of the backward \
             pass look alike."
        }
    }
}
