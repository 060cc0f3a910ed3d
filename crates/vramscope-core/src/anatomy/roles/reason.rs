//! [`Reason`]: why an allocation is in its role, in a sentence.

use super::Role;
use super::given::{Given, Source};
use crate::model::{FrameId, Recording};
use crate::tables::frame_text;

/// The kind of evidence for a role, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Trust {
    /// A rule that the user wrote.
    #[strum(serialize = "rule")]
    UserRule,
    /// The category that PyTorch's profiler recorded.
    Profiler,
    /// Metadata that the user's program set.
    Metadata,
    /// The name of a range that it was allocated in.
    Annotation,
    /// A frame of the stack, possibly together with the lifetime.
    Stack,
    /// The lifetime alone, without a frame of the stack.
    Lifetime,
    /// No evidence: the role is [`Role::Unknown`].
    Nothing,
}

impl Trust {
    /// A stable name, used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why an allocation has its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The role.
    pub role: Role,
    /// The kind of evidence.
    pub trust: Trust,
    /// The frame that decided, when one did.
    pub frame: Option<FrameId>,
    /// True if it is inferred only from sizes, numbers and lifetimes.
    pub is_probable: bool,
    /// The sentence, without the role's name: "adam.py:143 _init_group is part of an optimizer, and it was kept after the step".
    pub sentence: String,
}

impl Given {
    /// The reason in words. `told` is the frame of the stack that shows the part of the program.
    pub(super) fn reason(&self, recording: &Recording, role: Role, source: Source, told: Option<FrameId>) -> Reason {
        let stacks = &recording.stacks;
        let place = |frame: FrameId| stacks.frame(frame).map_or_else(String::new, |frame| frame_text(stacks, frame));
        let (trust, frame, sentence) = match source {
            Source::Rule(rule, frame) => {
                let pattern = self.rules.pattern(usize::from(rule));
                let text = format!("Your rule {} (\"{pattern}\") matches {}.", rule + 1, place(frame));
                (Trust::UserRule, Some(frame), text)
            }
            Source::Profiler(text) => {
                (Trust::Profiler, None, format!("PyTorch's profiler recorded the category \"{}\".", stacks.text(text)))
            }
            Source::Metadata(text) => (Trust::Metadata, None, format!("Your metadata say \"{}\".", stacks.text(text))),
            Source::Annotation(name) => {
                (Trust::Annotation, None, format!("It was allocated inside the range \"{}\".", stacks.text(name)))
            }
            Source::Anatomy(because) if role == Role::Unknown => (Trust::Nothing, None, because.sentence().to_owned()),
            Source::Anatomy(because) => match told.filter(|_| !because.is_probable()) {
                Some(frame) => {
                    (Trust::Stack, Some(frame), format!("{} Its stack goes through {}.", because.sentence(), place(frame)))
                }
                None => (Trust::Lifetime, None, because.sentence().to_owned()),
            },
        };
        let is_probable = matches!(source, Source::Anatomy(because) if because.is_probable());
        Reason { role, trust, frame, sentence, is_probable }
    }
}
