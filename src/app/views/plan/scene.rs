//! [`Scene`]: what the view shows of a plan, worked out by now.

use std::sync::Arc;

use super::runs::{Failure, Point};
use vramscope_core::plan::{Code, Cost, Trust};
use vramscope_core::plan::{Largest, Plan, Predicted, Size};
use vramscope_core::units::count;

/// What a row of the table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The recorded settings, nothing changed.
    Own,
    /// Other settings of the allocator.
    Setting(String),
    /// Changes to the program, and settings.
    Changes(String, String),
    /// This many passes, each of a part of the size.
    Passes(u64, u64),
}

/// How a row ends under the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fits,
    May,
    Fails,
    /// Why it does nothing here.
    Useless(String),
}

/// What a row says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// Reserved, without a limit.
    pub peak: u64,
    pub span: [u64; 2],
    pub outcome: Outcome,
    /// The same in the words that the command line has too.
    pub ends: &'static str,
    /// How often cached memory is given back on the way.
    pub retries: u64,
    /// The largest size that fits for certain, and the largest that may; `None` until they are known.
    pub largest: Option<[u64; 2]>,
    /// The largest size is the likely one of one recording.
    pub is_about: bool,
    /// Bytes made again or moved in each step; 0 for none.
    pub extra: (u64, &'static str),
    /// In words.
    pub cost: String,
    pub trust: Trust,
}

impl Figures {
    /// Of the program as it is under a setting and a limit.
    pub(super) fn of_point(p: &Point, cost: &str, plan: &Plan, limit: u64) -> Self {
        Figures {
            peak: p.free.peak_reserved_bytes,
            span: p.free.span,
            outcome: outcome(&p.capped),
            ends: p.capped.ends(limit),
            retries: p.capped.retries,
            largest: None,
            is_about: false,
            extra: (0, ""),
            cost: cost.to_owned(),
            trust: plan.trust_of(&p.free),
        }
    }

    /// True for a row that is worth a look beside the program as it is: its peak is lower, it fits better, or more of the size fits.
    pub(super) fn improves(&self, own: &Figures) -> bool {
        let rank = |figures: &Figures| match figures.outcome {
            Outcome::Fits => 0,
            Outcome::May => 1,
            Outcome::Fails | Outcome::Useless(_) => 2,
        };
        let is_useless = matches!(self.outcome, Outcome::Useless(_));
        !is_useless && (self.peak < own.peak || rank(self) < rank(own) || self.largest > own.largest)
    }

    /// What it costs, with the bytes that are made again or moved.
    pub(super) fn costs(&self, size: impl Fn(u64) -> String) -> String {
        match self.extra {
            (0, _) => self.cost.clone(),
            (bytes, how) => format!("{} {how} in each step: {}", size(bytes), self.cost),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub kind: Kind,
    pub title: String,
    pub is_best: bool,
    /// It is part of the chosen combination.
    pub is_part: bool,
    pub figures: Option<Figures>,
    pub code: Code,
    /// What it costs, for the order of the rows.
    pub(super) price: (Cost, u32),
}

/// Everything that is known by now.
pub(super) struct Scene {
    pub plan: Arc<Plan>,
    /// The quantity on the axis.
    pub name: String,
    /// The size that others are at.
    pub base: Size,
    /// False if the recording's size is unknown.
    pub knows: bool,
    pub limit: u64,
    /// `in 4 GiB`, `on the H100`.
    pub place: String,
    /// The limit is what a card has beside the context.
    pub is_card: bool,
    /// The recording's own allocator settings, as text.
    pub own: String,
    pub recorded: Vec<u64>,
    pub wanted: u64,
    pub step: u64,
    /// Sizes that fit are told in multiples of it.
    pub unit: u64,
    pub low: u64,
    pub high: u64,
    pub largest: Option<Arc<Largest>>,
    /// The largest size of the steps that is sure to fit, and the largest that may; 0 for none.
    pub fits: Option<(u64, u64)>,
    pub chosen: u64,
    /// The sizes of the curve that are known, ascending.
    pub points: Vec<(u64, Arc<Point>)>,
    /// How many it will have.
    pub all: usize,
    /// The chosen size, once it is known.
    pub at: Option<Arc<Point>>,
    /// The chosen size with the chosen row's changes, once it is known.
    pub at_row: Option<Arc<Point>>,
    /// The first failure, at that size.
    pub failure: Option<(u64, Failure)>,
    /// The failure in the only recording.
    pub recorded_failure: Option<u32>,
    pub rows: Vec<Row>,
    /// Rows that lower no peak and let nothing fit; among the others only where they are asked for.
    pub idle: usize,
    pub shows_idle: bool,
    pub selected: usize,
    /// The curve of the selected row: peaks without a limit.
    pub plotted: Vec<(u64, u64)>,
    /// Nothing makes the wanted size fit, and everything was tried.
    pub is_hopeless: bool,
}

impl Scene {
    pub(super) fn size(&self, value: u64) -> Size {
        self.base.with(&self.name, value)
    }

    /// `batch 44`, or the run's name if its size is unknown.
    pub(super) fn named(&self, value: u64) -> String {
        if self.knows { format!("{} {}", self.name, count(value)) } else { "this run".to_owned() }
    }

    /// Something of the answers rests on one recording.
    pub(super) fn is_single(&self) -> bool {
        self.plan.is_single()
    }

    /// The first size of the steps that fails in every run tried.
    pub(super) fn fails(&self) -> Option<u64> {
        self.fits.map(|(_, may)| may + self.unit)
    }

    /// The wanted size, once it is known.
    pub(super) fn at_wanted(&self) -> Option<&Arc<Point>> {
        self.points.iter().find(|p| p.0 == self.wanted).map(|p| &p.1)
    }

    /// The wanted size fits as it is: then what saves most is of interest, not what is cheapest.
    pub(super) fn fits_already(&self) -> bool {
        self.at_wanted().is_some_and(|p| outcome(&p.capped) == Outcome::Fits)
    }

    /// The row that makes the wanted size fit with the least cost.
    pub(super) fn best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.is_best)
    }
}

/// How a size ends.
pub(super) fn outcome(p: &Predicted) -> Outcome {
    match (p.oom, p.oom_varies || (p.is_open && !p.oom)) {
        (_, true) => Outcome::May,
        (true, false) => Outcome::Fails,
        (false, false) => Outcome::Fits,
    }
}
