//! Predicts the memory of other runs (at other sizes, on other cards, with changes) from recordings at known sizes.
//!
//! ```text
//! recordings ──program──▶ rows and steps ──align, fit──▶ a law for each row ──predict──▶ requests at a size ──allocator──▶ peaks
//! ```
//!
//! [`Plan::of`] aligns the recordings request by request, and finds how the size of each request depends on the sizes of the runs.
//! [`Plan::at`] builds the requests of another size and runs them on the allocator model. So reserved memory, retries and the
//! largest size under a limit follow PyTorch, not a rule of thumb. Requests that follow no law widen the answer's range.

mod agreement;
mod align;
pub mod cards;
pub mod changes;
mod cheapest;
mod elsewhere;
mod evenness;
pub mod fit;
mod largest;
pub mod law;
mod longer;
pub mod names;
mod one_recording;
mod open;
mod predict;
pub mod program;
mod recorded;
mod reduce;
mod refuse;
mod server;
mod size;
mod told;
mod unseen;
mod verdict;

use std::sync::{Arc, OnceLock};

use crate::anatomy::Role;
use crate::inference::Horizon;
use crate::model::{AllocConf, Cancelled, ConfError, Progress, Recording};
use crate::tables::DeviceTables;

pub use crate::changes::{Change, Code, Cost, Row, Trust, titled};
pub use changes::Changed;
pub use cheapest::{Passes, Way};
pub use fit::{Model, Unexplained};
pub use largest::Largest;
pub use law::{Fit, Law, Sure};
pub use predict::{Peaks, Predicted, Stream};
pub use program::Program;
pub use refuse::{Parting, Side, may_be_planned};
pub use server::Server;
pub use size::Size;
pub use verdict::{ENDS, holes_sentence, is_no_answer, surety};

/// One recording of the program.
#[derive(Debug)]
pub struct Input<'a> {
    /// The recording that contains the device.
    pub recording: Arc<Recording>,
    /// Index of the device in the recording.
    pub device: usize,
    /// Lifetimes and states of the device.
    pub tables: &'a DeviceTables,
    /// The sizes of the run.
    pub at: Size,
}

/// Allocator settings and a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The settings to run with.
    pub conf: AllocConf,
    /// The settings as written; empty for the defaults.
    pub text: String,
    /// The most bytes that may be reserved; `None` for no limit.
    pub limit: Option<u64>,
}

impl Setting {
    /// Reads a settings string.
    ///
    /// # Errors
    /// PyTorch's rule for the first wrong key or value.
    pub fn parse(text: &str, limit: Option<u64>) -> Result<Self, ConfError> {
        let text = crate::inference::whatif::settings_of(text);
        Ok(Setting { conf: AllocConf::parse(text)?, text: text.to_owned(), limit })
    }
}

/// The optimizer's state exists from the second step on, and reserved memory may still grow in the third.
const LEAST_STEPS: usize = 3;
/// Recordings with fewer steps than another are extended to its number of steps, but at most to this many.
const MOST_STEPS: usize = 8;

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum NoPlan {
    /// The recordings are not of one program.
    #[error("{}", .0.sentence)]
    Parts(Box<Parting>),
    /// Steps differ in size, in each recording differently.
    #[error("{0}")]
    Steps(String),
    /// The program failed and has no repeating steps.
    #[error("{0}; What-if tells which settings and which limit serve the requests that it made (vramscope whatif)")]
    NoSteps(String),
    /// The sizes given for the recordings are inconsistent.
    #[error("{0}")]
    Sizes(String),
    /// The caller cancelled through its [`Progress`].
    #[error("{0}")]
    Cancelled(#[from] Cancelled),
}

/// A program's requests as functions of its sizes.
#[derive(Debug)]
pub struct Plan {
    programs: Vec<Arc<Program>>,
    names: Vec<String>,
    /// The laws with each recording as the base, made on first use; those of the largest recording are made at once.
    models: Vec<OnceLock<Option<Model>>>,
    largest: usize,
    doubts: Vec<String>,
    notes: Vec<String>,
}

impl Plan {
    /// Compares recordings of one program request by request.
    ///
    /// # Errors
    /// [`NoPlan`], for example if they are of different programs, or if their sizes are equal.
    pub fn of(inputs: Vec<Input<'_>>, progress: &Progress) -> Result<Self, NoPlan> {
        Self::of_steps(inputs, None, progress)
    }

    /// Like [`of`](Self::of), for a run of at least `steps` steps (three by default). The last recorded step is repeated.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_steps(inputs: Vec<Input<'_>>, steps: Option<usize>, progress: &Progress) -> Result<Self, NoPlan> {
        Self::make(inputs, steps, true, progress)
    }

    /// A plan of one recording whose size is unknown, so that it is about all that the recording shows. [`of`](Self::of) leaves
    /// out a failed attempt that must have had another size than the stated one.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn as_recorded(input: Input<'_>, progress: &Progress) -> Result<Self, NoPlan> {
        Self::make(vec![input], None, false, progress)
    }

    fn make(inputs: Vec<Input<'_>>, steps: Option<usize>, leaves_out_odd: bool, progress: &Progress) -> Result<Self, NoPlan> {
        let Some(first) = inputs.first() else { return Err(NoPlan::Sizes("there is no recording".to_owned())) };
        let names: Vec<String> = first.at.names().map(str::to_owned).collect();
        if names.len() > law::QUANTITIES {
            return Err(NoPlan::Sizes(format!(
                "{} quantities are more than the {} that can be told apart",
                names.len(),
                law::QUANTITIES
            )));
        }
        for input in &inputs {
            if input.at.names().count() != names.len() || input.at.values(&names).is_none() {
                return Err(NoPlan::Sizes(format!(
                    "each recording needs the same quantities: one is at {}, another at {}",
                    first.at, input.at
                )));
            }
        }
        if inputs.len() > 1 && inputs.iter().all(|i| i.at == first.at) {
            return Err(NoPlan::Sizes(format!("all recordings are at {}: nothing shows what changes with it", first.at)));
        }
        let mut programs = Vec::with_capacity(inputs.len());
        for input in inputs {
            let tables = input.tables;
            let program = Program::read(input.recording, input.device, tables, input.at, leaves_out_odd, progress)?;
            if let Some(sentence) = refuse::lacks_its_peak(&program, tables) {
                return Err(NoPlan::NoSteps(sentence));
            }
            programs.push(program);
        }
        if let Some(sentence) = refuse::has_no_steps(&programs, &names) {
            return Err(NoPlan::NoSteps(sentence));
        }
        let most = programs.iter().map(|p| p.steps).max().unwrap_or(0).min(MOST_STEPS);
        let steps = steps.unwrap_or(LEAST_STEPS).max(most);
        let programs: Vec<Arc<Program>> = programs.into_iter().map(|p| Arc::new(longer::lengthened(p, steps))).collect();
        let largest = (0..programs.len()).max_by_key(|&i| programs[i].weight()).unwrap_or(0);
        let models: Vec<OnceLock<Option<Model>>> = programs.iter().map(|_| OnceLock::new()).collect();
        let model = Model::of(&programs, largest, &names).map_err(NoPlan::Parts)?;
        if let Some(sentence) = evenness::differ(&programs) {
            return Err(NoPlan::Steps(sentence));
        }
        if let Some(sentence) = refuse::are_the_same(&programs, &names) {
            return Err(NoPlan::Sizes(sentence));
        }
        if let Some(sentence) = refuse::falls(&programs, &names) {
            return Err(NoPlan::Sizes(sentence));
        }
        let open = open::notes(&model);
        if models[largest].set(Some(model)).is_err() {
            return Err(NoPlan::Sizes("the recordings changed while they were read".to_owned()));
        }
        let cut = programs.iter().filter_map(|p| {
            let caveat = p.recording.report.caveat()?;
            Some(format!("{}: {caveat}.", p.recording.source.name))
        });
        let doubts: Vec<String> = cut.chain(told::doubts(&programs, &names, largest)).collect();
        let agree = agreement::sentence(&programs, largest, &names);
        let odd = programs.iter().filter_map(|p| p.odd).map(|odd| odd.note());
        let notes = doubts.iter().cloned().chain(odd).chain(agree).chain(open).chain(evenness::notes(&programs)).collect();
        Ok(Plan { programs, names, models, largest, doubts, notes })
    }

    /// What the steps of the recordings leave open, in sentences, beginning with reasons to doubt the given sizes.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why the whole answer may be wrong, to be shown first: a truncated file, or likely wrong sizes. Empty without signs.
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// Failed attempts that the plan leaves out, each in a sentence. They are among the [notes](Self::notes).
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        self.programs.iter().filter_map(|program| program.odd).map(|odd| odd.note())
    }

    /// The recorded programs in the order of the inputs, with their last steps repeated if they have too few.
    pub fn programs(&self) -> &[Arc<Program>] {
        &self.programs
    }

    /// Names of the quantities (`batch`, `seq`), in the order used for all lists of values.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The value of a quantity if it is the same in all of several recordings, so that its effect is unknown. `None` if it
    /// differs, or with one recording, for which the anatomy decides.
    pub fn held_at(&self, name: &str) -> Option<u64> {
        let first = self.programs.first()?.at.get(name)?;
        (self.programs.len() > 1 && self.programs.iter().all(|p| p.at.get(name) == Some(first))).then_some(first)
    }

    /// Why a size cannot be predicted: it has another value for a quantity that is the same in all recordings. Suggests the size
    /// of another recording that would help.
    pub fn is_unknown_at(&self, size: &Size) -> Option<String> {
        let differs = |name: &&String| self.held_at(name).is_some_and(|v| size.get(name).is_some_and(|w| w != v));
        self.names.iter().find(differs).and_then(|name| self.not_varied(name))
    }

    /// Why nothing can be said about other values of a quantity; `None` if something can.
    pub fn not_varied(&self, name: &str) -> Option<String> {
        let value = self.held_at(name)?;
        let least = self.programs.iter().min_by_key(|p| p.weight())?;
        let other = least.at.with(name, if value > 1 { value / 2 } else { 2 });
        let other: Vec<String> = other.iter().map(|(n, v)| format!("{n}={v}")).collect();
        Some(format!(
            "{name} is {value} in all recordings, so nothing shows what grows with it; add a recording at another {name}, such as --at {}",
            other.join(",")
        ))
    }

    /// What a failed request in a recording leaves open: requests that would have come after it are missing.
    pub fn horizon(&self) -> Option<Horizon> {
        self.programs.iter().filter_map(|p| p.horizon).min_by_key(|horizon| horizon.is_caught)
    }

    /// True if a request failed before the end of the first step, so that the recording does not show what a whole step needs.
    pub fn has_no_step(&self) -> bool {
        self.programs.iter().any(|p| p.horizon.is_some() && p.largest_complete.is_none())
    }

    /// The laws for the largest recording's requests.
    pub fn model(&self) -> Option<&Model> {
        self.model_of(self.largest)
    }

    /// The settings of the largest recording, with a limit.
    pub fn own_setting(&self, limit: Option<u64>) -> Setting {
        let conf = self.programs[self.largest].conf.clone();
        Setting { text: conf.to_string(), conf, limit }
    }

    /// True if there is only one recording, so that what grows is only likely.
    pub fn is_single(&self) -> bool {
        self.programs.len() == 1 && self.model().is_none_or(|model| model.is_single)
    }

    /// Index of the largest recording.
    pub fn largest_at(&self) -> usize {
        self.largest
    }

    /// True if most bytes of this role at the peak of the largest recording have it by inference.
    pub fn is_probable(&self, role: Role) -> bool {
        self.programs.get(self.largest).is_some_and(|program| program.probable.contains(&role))
    }

    fn model_of(&self, base: usize) -> Option<&Model> {
        self.models.get(base)?.get_or_init(|| Model::of(&self.programs, base, &self.names).ok()).as_ref()
    }

    /// The largest recorded value of a quantity.
    pub fn most_recorded(&self, name: &str) -> Option<u64> {
        self.programs.iter().filter_map(|p| p.at.get(name)).max()
    }

    /// The peak at a size under a setting; if it fails, the peak without a limit. Several replays of 0.3 µs per request.
    pub fn at(&self, size: &Size, setting: &Setting) -> Predicted {
        let mut under = self.under(size, setting);
        if self.turns_within_margin(size, setting, &under) {
            (under.oom_varies, under.certain) = (true, false);
            under.uncertain_because.get_or_insert("sizes");
        }
        if !under.oom {
            return under;
        }
        let without = self.under(size, &Setting { limit: None, ..setting.clone() });
        let certain = without.certain && under.certain;
        let peaks = Peaks { oom: true, oom_varies: under.oom_varies, retries: under.retries, ..without.peaks };
        Predicted { peaks, certain, ..without }
    }

    /// True if a run of this size exceeds the 16 TiB of addresses in the model, so that its figures mean nothing.
    pub fn is_beyond(&self, size: &Size) -> bool {
        self.under(size, &self.own_setting(None)).oom
    }

    /// True if a recorded run failed under these settings with at least as much room; a larger one then fails too.
    pub(crate) fn is_known_to_fail(&self, size: &Size, setting: &Setting) -> bool {
        let is_as_large = |p: &Program| p.at.iter().all(|(name, v)| size.get(name).is_some_and(|w| w >= v));
        let failed = |p: &&Arc<Program>| is_as_large(p) && p.conf == setting.conf;
        let failed_under = self.programs.iter().filter(failed).filter_map(|p| p.failed_under).max();
        setting.limit.zip(failed_under).is_some_and(|(limit, under)| limit <= under)
    }

    /// The laws with the requests of the recording nearest to a size.
    fn nearest(&self, size: &Size) -> Option<&Model> {
        let distance = |p: &Program| -> f64 {
            let apart = |(name, v): (&str, u64)| size.get(name).map_or(0.0, |w| (w as f64 / v as f64).ln().abs());
            p.at.iter().map(apart).sum()
        };
        let weight = |i: usize| self.programs[i].at.iter().map(|(_, v)| v as f64).product::<f64>();
        let mut order: Vec<usize> = (0..self.programs.len()).collect();
        order.sort_by(|&i, &j| {
            let near = distance(&self.programs[i]).total_cmp(&distance(&self.programs[j]));
            near.then(weight(j).total_cmp(&weight(i)))
        });
        order.iter().find_map(|&i| self.model_of(i)).or_else(|| self.model())
    }

    /// True if the most likely run passes; other possible runs are not tried.
    fn passes_once(&self, size: &Size, setting: &Setting) -> bool {
        !self.is_known_to_fail(size, setting) && self.nearest(size).is_some_and(|model| model.passes_once(size, setting))
    }

    /// True if one run passes with this choice of the open sizes.
    fn passes_with(&self, size: &Size, setting: &Setting, pick: predict::Pick) -> bool {
        !self.is_known_to_fail(size, setting) && self.nearest(size).is_some_and(|model| model.passes_with(size, setting, pick))
    }

    /// The figures of a run under a limit, up to a failed request. A size recorded under these settings gets the recorded figures.
    pub(crate) fn under(&self, size: &Size, setting: &Setting) -> Predicted {
        let mut out = self.modelled(size, setting);
        let is_this = |p: &&Arc<Program>| p.at == *size && p.conf == setting.conf && p.is_whole();
        let run = self.programs.iter().find(is_this).filter(|_| !out.oom && out.retries == 0);
        if let Some([reserved, allocated]) = run.map(|p| p.peaks).filter(|p| setting.limit.is_none_or(|limit| p[0] <= limit)) {
            let name = crate::anatomy::Role::Temporaries.name();
            let held = out.by_role.remove(name).unwrap_or(0);
            let others: u64 = out.by_role.values().sum();
            let left = if out.peak_allocated_bytes == allocated { held } else { allocated.saturating_sub(others) };
            if left > 0 {
                out.by_role.insert(name, left);
            }
            // The modelled peak may exceed the recorded one. The largest role loses the difference, so that parts add up.
            let over = (others + left).saturating_sub(allocated);
            if let Some(most) = out.by_role.values_mut().max() {
                *most = most.saturating_sub(over);
            }
            (out.peak_reserved_bytes, out.peak_allocated_bytes) = (reserved, allocated);
            (out.span, out.allocated_span) = ([reserved; 2], [allocated; 2]);
            (out.oom_varies, out.certain, out.uncertain_because) = (false, true, None);
        }
        out
    }

    /// The same using only the laws, even for a recorded size.
    pub(crate) fn modelled(&self, size: &Size, setting: &Setting) -> Predicted {
        let Some(model) = self.nearest(size) else { return Predicted::nothing(size) };
        let mut out = model.predict(size, setting);
        // A larger run needs at least as much as a smaller recorded one, except for small choices of cuDNN.
        let is_within =
            |p: &&Arc<Program>| p.conf == setting.conf && p.is_whole() && p.at.iter().all(|(n, v)| size.get(n) >= Some(v));
        let recorded = self.programs.iter().filter(is_within).map(|p| p.peaks[1] - p.peaks[1] / 20).max().filter(|_| !out.oom);
        let least = recorded.unwrap_or(0);
        out.span[0] = out.span[0].max(least.min(out.peak_reserved_bytes));
        out.allocated_span[0] = out.allocated_span[0].max(least.min(out.peak_allocated_bytes));
        // A replay may pass although the recorded run failed, because addresses of segments matter and are not recorded.
        if self.is_known_to_fail(size, setting) {
            (out.oom, out.oom_varies) = (true, false);
        }
        out.is_open = self.has_no_step();
        // The failed step might have requested more afterwards.
        if self.horizon().is_some() {
            out.certain = false;
            out.uncertain_because.get_or_insert("failure");
        }
        if self.has_uneven_steps() {
            out.certain = false;
            out.uncertain_because.get_or_insert("steps");
        }
        out
    }

    /// True if one recording has only its first step (repeated as it is) while another has steady steps.
    fn has_uneven_steps(&self) -> bool {
        let has = |steps: fn(&usize) -> bool| self.programs.iter().any(|p| steps(&p.recorded_steps));
        has(|steps| *steps == 1) && has(|steps| *steps > 1)
    }
}
