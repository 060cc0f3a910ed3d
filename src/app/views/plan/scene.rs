//! [`Scene`]: what the view shows of a plan, with everything that is known so far.

use std::sync::Arc;

use super::runs::{Failure, Point};
use vramscope_core::plan::{Code, Cost, Trust};
use vramscope_core::plan::{Largest, Plan, Predicted, Size};
use vramscope_core::units::count;

/// The kind of a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The recorded settings without changes.
    Own,
    Setting(String),
    /// Changes to the program, and settings.
    Changes(String, String),
    /// Gradient accumulation: the number of passes, and the size of each.
    Passes(u64, u64),
}

impl Kind {
    /// The changes and the setting of a row that has a run of its own, unlike the recorded program and several passes.
    pub(super) fn run(&self) -> Option<(&str, &str)> {
        match self {
            Kind::Setting(conf) => Some(("", conf)),
            Kind::Changes(changes, conf) => Some((changes, conf)),
            Kind::Own | Kind::Passes(..) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fits,
    May,
    Fails,
    /// Why the change has no effect here.
    Useless(String),
}

/// What the table of changes answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// What makes the wanted size fit.
    Fit,
    /// What lowers its peak: it fits already, or nothing makes it fit.
    Save,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figures {
    /// Peak of reserved bytes without a limit.
    pub peak: u64,
    pub span: [u64; 2],
    pub outcome: Outcome,
    /// The outcome in the command line's words.
    pub ends: &'static str,
    /// How often cached memory is released and a request retried.
    pub retries: u64,
    /// The largest size that certainly fits and the largest that may fit; `None` until known.
    pub largest: Option<[u64; 2]>,
    /// The largest size is an estimate from a single recording.
    pub is_about: bool,
    /// Bytes recomputed or moved in each step, and the verb; 0 for none.
    pub extra: (u64, &'static str),
    pub cost: String,
    pub trust: Trust,
}

impl Figures {
    /// Figures of the unchanged program under a setting and a limit.
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

    /// True for a row that does what the table's heading asks for.
    pub(super) fn answers(&self, question: Question, own: &Figures) -> bool {
        match (question, &self.outcome) {
            (_, Outcome::Useless(_)) => false,
            (Question::Fit, outcome) => matches!(outcome, Outcome::Fits | Outcome::May) && *outcome != own.outcome,
            (Question::Save, _) => self.peak < own.peak,
        }
    }

    /// The cost, including the bytes that are recomputed or moved.
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
    /// The row is part of the chosen combination.
    pub is_part: bool,
    pub figures: Option<Figures>,
    pub code: Code,
    pub(super) price: (Cost, u32),
}

impl Row {
    pub(super) fn new(kind: Kind, title: String, price: (Cost, u32)) -> Self {
        Row { kind, title, is_best: false, is_part: false, figures: None, code: Code::default(), price }
    }

    pub(super) fn is_setting(&self) -> bool {
        matches!(self.kind, Kind::Setting(_))
    }

    pub(super) fn fits(&self) -> bool {
        self.figures.as_ref().is_some_and(|f| f.outcome == Outcome::Fits)
    }

    /// Why the change has no effect here.
    pub(super) fn useless(&self) -> Option<&str> {
        match &self.figures.as_ref()?.outcome {
            Outcome::Useless(why) => Some(why),
            _ => None,
        }
    }

    /// The figures of a change that was simulated and has an effect.
    pub(super) fn known(&self) -> Option<&Figures> {
        self.figures.as_ref().filter(|_| self.useless().is_none())
    }
}

pub(super) struct Scene {
    pub plan: Arc<Plan>,
    /// The quantity on the axis.
    pub name: String,
    pub base: Size,
    /// False when the recorded size is unknown.
    pub knows: bool,
    pub limit: u64,
    /// `in 4 GiB`, `on the H100`.
    pub place: String,
    /// The limit is a card's memory without the CUDA context.
    pub is_card: bool,
    /// The recorded allocator settings, as text.
    pub own: String,
    pub recorded: Vec<u64>,
    pub wanted: u64,
    pub step: u64,
    /// Sizes that fit are rounded to multiples of this.
    pub unit: u64,
    pub low: u64,
    pub high: u64,
    pub largest: Option<Arc<Largest>>,
    /// The largest size that certainly fits and the largest that may fit, in steps; 0 for none.
    pub fits: Option<(u64, u64)>,
    pub chosen: u64,
    /// The simulated sizes of the curve, ascending.
    pub points: Vec<(u64, Arc<Point>)>,
    /// How many there will be.
    pub all: usize,
    /// The prediction at the chosen size, once known.
    pub at: Option<Arc<Point>>,
    /// The prediction at the chosen size with the chosen row's changes, once known.
    pub at_row: Option<Arc<Point>>,
    /// The first size that fails, and its failure.
    pub failure: Option<(u64, Failure)>,
    /// The events of the failures in the only recording.
    pub recorded_failures: Vec<u32>,
    pub rows: Vec<Row>,
    pub question: Question,
    /// How many rows answer the question.
    pub helping: usize,
    /// How many rows do not. They are shown only on request.
    pub idle: usize,
    pub shows_idle: bool,
    pub selected: usize,
    /// The curve of the selected row: peaks without a limit, by size.
    pub plotted: Vec<(f64, f64)>,
    /// Everything was tried and nothing makes the wanted size fit.
    pub is_hopeless: bool,
}

impl Scene {
    pub(super) fn size(&self, value: u64) -> Size {
        self.base.with(&self.name, value)
    }

    /// `batch 44`, or "this run" when the size is unknown.
    pub(super) fn named(&self, value: u64) -> String {
        if self.knows { format!("{} {}", self.name, count(value)) } else { "this run".to_owned() }
    }

    /// The simulated sizes with a figure of each, as a curve.
    pub(super) fn curve(&self, of: impl Fn(&Point) -> u64) -> Vec<(f64, f64)> {
        self.points.iter().map(|(size, point)| (*size as f64, of(point) as f64)).collect()
    }

    /// True when an answer relies on a single recording.
    pub(super) fn is_single(&self) -> bool {
        self.plan.is_single()
    }

    /// The first step at which every simulated run fails.
    pub(super) fn fails(&self) -> Option<u64> {
        self.fits.map(|(_, may)| may + self.unit)
    }

    /// The prediction at the wanted size, once known.
    pub(super) fn at_wanted(&self) -> Option<&Arc<Point>> {
        self.points.iter().find(|p| p.0 == self.wanted).map(|p| &p.1)
    }

    /// The wanted size already fits. The largest saving then matters more than the cheapest change.
    pub(super) fn fits_already(&self) -> bool {
        self.at_wanted().is_some_and(|p| outcome(&p.capped) == Outcome::Fits)
    }

    /// The cheapest row that makes the wanted size fit.
    pub(super) fn best(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.is_best)
    }
}

pub(super) fn outcome(p: &Predicted) -> Outcome {
    match (p.oom, p.oom_varies || (p.is_open && !p.oom)) {
        (_, true) => Outcome::May,
        (true, false) => Outcome::Fails,
        (false, false) => Outcome::Fits,
    }
}
