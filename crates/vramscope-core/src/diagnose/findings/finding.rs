//! A finding: what is wrong, with its figures, its place, its remedy and how to check it.

use crate::diagnose::counterfactual::Saving;
use crate::model::StackId;
use crate::tables::LifetimeId;
use crate::units::Bytes;

/// The kind of problem that a finding reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Class {
    /// An allocation request failed.
    OutOfMemory,
    /// Memory grows with every step.
    Leak,
    /// How memory is held: fragmentation, cache, pools.
    Structure,
    /// What makes up the peak.
    Peak,
    /// Small losses, and notes about the recording.
    Hygiene,
}

impl Class {
    /// A stable name, used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a finding is about; clicking the finding shows it in every view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The event whose state to show; `None` if no single instant is meant.
    pub event: Option<u32>,
    /// The events to show, first and last inclusive; `None` if no range is meant.
    pub range: Option<(u32, u32)>,
    /// The call stack to select.
    pub stack: Option<StackId>,
    /// The allocations to select; empty if no single ones are meant.
    pub lifetimes: Vec<LifetimeId>,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Name of the figure, at the beginning of a line.
    pub label: String,
    /// Its figure, with unit.
    pub value: String,
    /// True for the figure that shows the problem.
    pub is_red: bool,
}

/// One diagnosis: the output of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// Kind of problem; findings of [`Class::OutOfMemory`] rank first.
    pub class: Class,
    /// Title of a few words, without a full stop.
    pub title: String,
    /// The bytes that the sentence names.
    pub bytes: u64,
    /// The effect of its remedy on the peak of active bytes; `None` if the recorded events do not show it.
    pub saving: Option<Saving>,
    /// One or two sentences with figures.
    pub sentence: String,
    /// The figures that the finding is based on.
    pub evidence: Vec<Evidence>,
    /// What the window shows when the finding is clicked.
    pub place: Place,
    /// A setting or a line of code to copy; `None` if there is none.
    pub remedy: Option<String>,
    /// How to apply the remedy, in words.
    pub advice: String,
    /// How to check that the remedy helped.
    pub verify: String,
}

impl Finding {
    /// True if memory outlives the run or copy it was made for, so that memory grows with each.
    pub fn is_left_over(&self) -> bool {
        super::rules::LEFT_OVER.contains(&self.rule)
    }

    /// True for a failure, or for memory that a failure left behind.
    pub fn is_of_failure(&self) -> bool {
        self.class == Class::OutOfMemory || self.rule == super::rules::HELD
    }

    /// Bytes by which its remedy lowers the active peak in a replay of the events; without a replay, [`bytes`](Self::bytes).
    pub fn at_stake(&self) -> u64 {
        self.saving.map_or(self.bytes, |s| if s.is_nothing() { 0 } else { s.bytes() })
    }
}

/// Builder methods, with which rules compose their findings.
impl Finding {
    pub(super) fn new(rule: &'static str, class: Class, title: &str, bytes: u64) -> Self {
        Finding {
            rule,
            class,
            title: title.to_owned(),
            bytes,
            saving: None,
            sentence: String::new(),
            evidence: Vec::new(),
            place: Place::default(),
            remedy: None,
            advice: String::new(),
            verify: String::new(),
        }
    }

    pub(super) fn says(mut self, sentence: String) -> Self {
        self.sentence = sentence;
        self
    }

    /// Adds the effect of a change on the peak. `change` names it in a few words ("In 8 chunks").
    pub(super) fn saves(mut self, change: &str, saving: Saving) -> Self {
        self.sentence.push(' ');
        self.sentence.push_str(&if saving.is_nothing() {
            format!("{change} the peak stays at {}: another moment is as high.", Bytes(saving.before))
        } else {
            let [before, after, _] = saving.texts();
            format!("{change} the peak falls from {before} to about {after}.")
        });
        self.saving = Some(saving);
        self
    }

    pub(super) fn bytes_of(mut self, label: &str, bytes: u64) -> Self {
        self.evidence.push(Evidence::bytes(label, bytes));
        self
    }

    pub(super) fn red(mut self, label: &str, bytes: u64) -> Self {
        self.evidence.push(Evidence::bytes(label, bytes).red());
        self
    }

    pub(super) fn shows(mut self, label: &str, value: String) -> Self {
        self.evidence.push(Evidence::text(label, value));
        self
    }

    pub(super) fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    pub(super) fn remedy(mut self, line: impl Into<String>) -> Self {
        self.remedy = Some(line.into());
        self
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// How to check that the remedy helped. This completes a finding, so it returns what a rule returns.
    pub(super) fn check(mut self, verify: impl Into<String>) -> Option<Self> {
        self.verify = verify.into();
        Some(self)
    }
}

impl Evidence {
    pub(super) fn bytes(label: &str, bytes: u64) -> Self {
        Evidence { label: label.to_owned(), value: Bytes(bytes).to_string(), is_red: false }
    }

    pub(super) fn text(label: &str, value: impl Into<String>) -> Self {
        Evidence { label: label.to_owned(), value: value.into(), is_red: false }
    }

    pub(super) fn red(mut self) -> Self {
        self.is_red = true;
        self
    }
}
