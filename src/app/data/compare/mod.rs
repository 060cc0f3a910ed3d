//! The comparison of A and B that Compare and the flame graph share: where each side comes from, and the result.

mod suggest;

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::device::DeviceData;
use super::device::prepare;
use crate::app::jobs::identity::Identity;
use crate::app::jobs::{Derived, Jobs};
use crate::app::state::{DocumentId, Moment, Other, SharedViewState, Source};
use vramscope_core::anatomy::roles::{Roles, Rule, Rules};
use vramscope_core::anatomy::steps::{StepFigures, Steps, figures, number};
use vramscope_core::compare::diff::{Comparison, Group, Instant, Parts, Places, Row, compare};
use vramscope_core::compare::flame::{Entry, held_by_stack, of_row};
use vramscope_core::inference::Question;
use vramscope_core::model::{Progress, StackId, StackTable};
use vramscope_core::query::matching::Matching;

use vramscope_core::query::Query;

use vramscope_core::tables::{LifetimeId, NO_EVENT};

use vramscope_core::units::count;

pub use suggest::{Suggestion, suggest};

impl Moment {
    /// The event in a device: for `OutOfMemory` the last failure, or the peak when none failed.
    pub fn event(self, data: &DeviceData) -> u32 {
        let peak = data.tables.curves.peak_event();
        match self {
            Moment::Peak => peak,
            Moment::OutOfMemory => data.last_oom().unwrap_or(peak),
            Moment::End => (data.device().events.len() as u32).checked_sub(1).unwrap_or(NO_EVENT),
        }
    }
}

/// What a side becomes when the other side gets another source at `moment`: the same recording at the same moment, because the
/// peak of one run says little beside an arbitrary instant of another. Timeline flags stay where they are.
pub fn held_against(side: &Source, moment: Moment, here: &DeviceData) -> Source {
    match side {
        Source::Other(other, _) => Source::Other(other.clone(), moment),
        Source::Marker | Source::At(_) => Source::At(moment.event(here)),
    }
}

/// The device in front, with what a comparison needs from it.
pub struct Here<'a> {
    pub data: &'a Arc<DeviceData>,
    /// Holds the sources of A and B and the active query.
    pub shared: &'a SharedViewState,
    /// The role of each allocation; `None` until known.
    pub roles: Option<&'a Arc<Roles>>,
    /// The allocations that match the query.
    pub matching: Option<&'a Arc<Matching>>,
    pub jobs: &'a Jobs,
}

/// A recording that is open in another tab.
#[derive(Clone)]
pub struct Open {
    pub id: DocumentId,
    pub title: String,
    pub data: Arc<DeviceData>,
}

/// One side of the comparison, loaded.
#[derive(Clone)]
pub struct Side {
    pub data: Arc<DeviceData>,
    /// The state after this event.
    pub event: u32,
    pub is_here: bool,
    /// The name of the side: `event 30,729`, `rank_1.pickle at its peak`.
    pub title: String,
}

/// Splits a title into recording and instant: `rank_1.pickle` and `at its peak`. `None` when a recording is compared with itself.
pub fn split_title(title: &str) -> Option<(&str, String)> {
    let of_moment = |m: &Moment| Some((title.strip_suffix(m.text())?.trim_end(), m.text().to_owned()));
    let of_event = || title.rsplit_once(", event ").map(|(whole, event)| (whole, format!("at event {event}")));
    Moment::ALL.iter().find_map(of_moment).or_else(of_event)
}

pub struct Compared {
    pub sides: [Side; 2],
    pub diff: Comparison,
    /// Differences by place in the code, largest change first.
    pub groups: Vec<Group>,
    /// Bytes by place that are on one side or on both.
    pub parts: Parts,
    /// Places in the code, when the two programs have few call stacks in common.
    pub places: Option<Places>,
    /// Roles of the allocations of each side. Kept alive because their addresses are part of the cache key and must not be
    /// reused.
    roles: [Option<Arc<Roles>>; 2],
}

impl Compared {
    /// The stack table of rows and groups.
    pub fn stacks(&self) -> &StackTable {
        self.diff.stacks(&self.sides[1].data.recording.stacks)
    }

    pub fn flame_stacks(&self) -> &StackTable {
        self.places.as_ref().map_or_else(|| self.stacks(), Places::stacks)
    }

    /// Entries of the flame graph: by call stack, or by place when the programs have few call stacks in common.
    pub fn flame_entries(&self, entries: Vec<Entry>) -> Vec<Entry> {
        match &self.places {
            Some(places) => places.gather(entries),
            None => entries,
        }
    }

    fn flame_stack(&self, row: &Row) -> StackId {
        self.places.as_ref().and_then(|p| p.stack_of(row.stack)).unwrap_or(row.stack)
    }

    /// The flame graph's stack for a stack of the recording in front.
    pub fn flame_stack_of(&self, own: StackId) -> Option<StackId> {
        self.diff.rows.iter().find(|r| self.own_stack(r) == Some(own)).map(|r| self.flame_stack(r))
    }

    /// The stack of the recording in front that holds most of a flame graph's stack.
    pub fn own_of_flame(&self, stack: StackId) -> Option<StackId> {
        let of = self.diff.rows.iter().filter(|r| self.flame_stack(r) == stack && self.own_stack(r).is_some());
        of.max_by_key(|r| r.a.bytes.max(r.b.bytes)).and_then(|r| self.own_stack(r))
    }

    fn instant(&self, which: usize) -> Instant<'_> {
        let Side { data, event, .. } = &self.sides[which];
        Instant {
            recording: &data.recording,
            device: data.device(),
            tables: &data.tables,
            roles: self.roles[which].as_deref(),
            event: *event,
        }
    }

    /// The row's stack in the recording in front, when it is live there.
    pub fn own_stack(&self, row: &Row) -> Option<StackId> {
        let b = row.in_b.filter(|_| self.sides[1].is_here);
        b.or_else(|| row.in_a.filter(|_| self.sides[0].is_here))
    }
}

/// The allocations on both sides that match the query. The other recording is searched with its own data.
pub struct Asked {
    by_stack: [FxHashMap<StackId, u64>; 2],
    pub bytes: [u64; 2],
    /// Kept alive because their addresses are part of the cache key and must not be reused.
    _of: (Arc<Compared>, Arc<Matching>),
}

impl Asked {
    fn find(compared: &Arc<Compared>, matching: &Arc<Matching>, query: &Query) -> Self {
        let by_stack = [0, 1].map(|which| {
            let (side, at) = (&compared.sides[which], compared.instant(which));
            if side.is_here {
                return held_by_stack(&at, |id| matching.contains(id));
            }
            let scope = side.data.scope(query, at.roles);
            let live = at.tables.states.live_at(&at.tables.lifetimes, at.event);
            let passing: FxHashSet<LifetimeId> = query.among(&scope, &live).into_iter().collect();
            held_by_stack(&at, |id| passing.contains(&id))
        });
        let bytes = [0, 1].map(|which: usize| by_stack[which].values().sum());
        Asked { by_stack, bytes, _of: (Arc::clone(compared), Arc::clone(matching)) }
    }

    /// Bytes by stack on each side, with the stack ids of that side.
    pub fn by_stack(&self) -> [&FxHashMap<StackId, u64>; 2] {
        [&self.by_stack[0], &self.by_stack[1]]
    }

    /// True when a part of the row matches.
    pub fn is_of(&self, row: &Row) -> bool {
        of_row(row, self.by_stack()) != [0, 0]
    }
}

/// The steps of the device in front with their figures.
pub struct StepTable {
    pub steps: Steps,
    pub figures: Vec<StepFigures>,
}

pub enum Outcome {
    NotChosen,
    Loading(Option<f32>),
    /// A side could not be loaded; one sentence says why.
    Failed(String),
    /// The result. The flag is false while a newer one is computed.
    Ready(Arc<Compared>, bool),
}

/// A device loaded for comparison, with the roles of its allocations.
struct Loaded {
    data: Arc<DeviceData>,
    roles: Arc<Roles>,
    name: String,
}

/// A side with what the comparison needs, and its cache key.
struct Part {
    side: Side,
    roles: Option<Arc<Roles>>,
    other: Option<Other>,
}

impl Part {
    fn instant(&self) -> Instant<'_> {
        let data = &self.side.data;
        Instant {
            recording: &data.recording,
            device: data.device(),
            tables: &data.tables,
            roles: self.roles.as_deref(),
            event: self.side.event,
        }
    }
}

/// The device index is part of the key because another tab can switch devices.
type Loading = Derived<(Other, usize, Vec<Rule>), Result<Loaded, String>>;

/// Cache key of a side: source, device, instant, roles.
type Which = (Option<Other>, usize, u32, Option<Identity>);

#[derive(Default)]
struct Inner {
    open: Vec<Open>,
    rules: Vec<Rule>,
    others: [Loading; 2],
    result: Derived<[Which; 2], Compared>,
    /// Keyed by the comparison and the query result.
    asked: Derived<(Identity, Identity), Asked>,
    /// Keyed by the number of events, because a live recording grows.
    steps: Derived<usize, StepTable>,
}

/// The comparison of a device. Shared by its views, so that nothing is computed twice.
#[derive(Default)]
pub struct Comparing {
    inner: RefCell<Inner>,
}

impl Comparing {
    pub fn set_open(&self, open: Vec<Open>) {
        self.inner.borrow_mut().open = open;
    }

    pub fn set_rules(&self, rules: &[Rule]) {
        let mut inner = self.inner.borrow_mut();
        if inner.rules != rules {
            inner.rules = rules.to_vec();
        }
    }

    pub fn open(&self) -> Vec<Open> {
        self.inner.borrow().open.clone()
    }

    pub fn get(&self, cx: &Here<'_>) -> Outcome {
        let inner = &mut *self.inner.borrow_mut();
        let mut parts = Vec::with_capacity(2);
        for which in 0..2 {
            match inner.part(cx, which) {
                Ok(part) => parts.push(part),
                Err(outcome) => return outcome,
            }
        }
        let Ok([a, b]) = <[Part; 2]>::try_from(parts) else { return Outcome::NotChosen };
        let roles = |p: &Part| p.roles.as_ref().map(Identity::of);
        let key = [&a, &b].map(|p| (p.other.clone(), p.side.data.index, p.side.event, roles(p)));
        let shown = inner.result.get(cx.jobs, "compare", &key, move |_| {
            let diff = compare(&a.instant(), &b.instant());
            let own = &b.side.data.recording.stacks;
            let groups = diff.by_place(own);
            let (parts, places) = (diff.parts(&groups), Places::of(&diff, own, &groups));
            Some(Compared { sides: [a.side, b.side], diff, groups, parts, places, roles: [a.roles, b.roles] })
        });
        match shown.value {
            Some(compared) => Outcome::Ready(compared, shown.is_fresh),
            None => Outcome::Loading(shown.fraction),
        }
    }

    /// The allocations that match the query on both sides, once computed; `None` without a query.
    pub fn asked(&self, cx: &Here<'_>, compared: &Arc<Compared>) -> Option<Arc<Asked>> {
        let (query, matching) = (Arc::clone(cx.shared.query.as_ref()?), Arc::clone(cx.matching?));
        let key = (Identity::of(compared), Identity::of(&matching));
        let compared = Arc::clone(compared);
        let work = move |_: &Progress| Some(Asked::find(&compared, &matching, &query.query));
        let shown = self.inner.borrow_mut().asked.get(cx.jobs, "the query on both sides", &key, work);
        shown.fresh()
    }

    /// The steps of the device in front, once computed.
    pub fn steps(&self, cx: &Here<'_>) -> Option<Arc<StepTable>> {
        let data = Arc::clone(cx.data);
        let work = move |progress: &Progress| {
            let steps = data.steps().clone();
            let figures = figures(data.device(), &data.tables, &steps, progress).ok()?;
            Some(StepTable { steps, figures })
        };
        self.inner.borrow_mut().steps.get(cx.jobs, "steps", &cx.data.device().events.len(), work).value
    }
}

impl Inner {
    /// One side, or the reason why it is not there yet.
    fn part(&mut self, cx: &Here<'_>, which: usize) -> Result<Part, Outcome> {
        match &cx.shared.compared[which] {
            Source::Marker | Source::At(_) => {
                let event = match cx.shared.compared[which] {
                    Source::At(event) => event,
                    _ => cx.shared.markers[which].ok_or(Outcome::NotChosen)?,
                };
                let title = title_beside(&cx.shared.compared[1 - which], cx.data, event)
                    .unwrap_or_else(|| format!("event {}", count(u64::from(event))));
                let side = Side { data: Arc::clone(cx.data), event, is_here: true, title };
                Ok(Part { side, roles: cx.roles.cloned(), other: None })
            }
            Source::Other(other, moment) => {
                let open = match other {
                    Other::Document(id) => {
                        let open = self.open.iter().find(|o| o.id == *id).cloned();
                        let closed = "The recording that was compared is no longer open. Choose another one above.";
                        Some(open.ok_or_else(|| Outcome::Failed(closed.to_owned()))?)
                    }
                    _ => None,
                };
                let index = open.as_ref().map_or(cx.data.index, |o| o.data.index);
                let (data, wanted, rules) = (Arc::clone(cx.data), other.clone(), self.rules.clone());
                let key = (other.clone(), index, rules.clone());
                let work = move |p: &Progress| load(&data, &wanted, open, &rules, p);
                let shown = self.others[which].get(cx.jobs, "the other side of Compare", &key, work);
                // A result for an older key belongs to another recording, so it is not shown.
                let loaded = shown.fresh().ok_or(Outcome::Loading(shown.fraction))?;
                let l = loaded.as_ref().as_ref().map_err(|sentence| Outcome::Failed(sentence.clone()))?;
                let title = format!("{} {}", l.name, moment.text());
                let side = Side { data: Arc::clone(&l.data), event: moment.event(&l.data), is_here: false, title };
                Ok(Part { side, roles: Some(Arc::clone(&l.roles)), other: Some(other.clone()) })
            }
        }
    }
}

fn roles_of(data: &DeviceData, rules: &[Rule], progress: &Progress) -> Option<Arc<Roles>> {
    Roles::build(&data.recording, data.device(), &data.tables, &Rules::new(rules).0, progress).ok().map(Arc::new)
}

/// Loads or simulates the other side; `None` when cancelled.
fn load(
    here: &Arc<DeviceData>,
    other: &Other,
    open: Option<Open>,
    rules: &[Rule],
    progress: &Progress,
) -> Option<Result<Loaded, String>> {
    let data: Result<(Arc<DeviceData>, String), String> = match other {
        Other::Document(_) => open.map(|o| (o.data, o.title)).ok_or_else(|| "The recording is no longer open.".to_owned()),
        Other::Device(index) => prepare(&here.recording, *index, progress).map(|d| {
            let name = d.device().id.to_string();
            (d, name)
        }),
        Other::File(path) => {
            vramscope_core::formats::open_more_than_counters(path, progress).map_err(|e| e.to_string()).and_then(|recording| {
                let name = recording.source.name.clone();
                let recording = Arc::new(recording);
                let index = recording
                    .busiest_device()
                    .ok_or_else(|| format!("{name} holds no events and no segments, so there is nothing to compare with."))?;
                Ok((prepare(&recording, index, progress)?, name))
            })
        }
        Other::Simulation(conf) => simulate(here, conf, progress).map(|d| {
            let name = if conf.is_empty() { "PyTorch's defaults" } else { conf };
            (d, name.to_owned())
        }),
    };
    progress.check().ok()?;
    match data {
        Err(sentence) => Some(Err(sentence)),
        Ok((data, name)) => {
            let roles = roles_of(&data, rules, progress)?;
            Some(Ok(Loaded { data, roles, name }))
        }
    }
}

/// Simulates the requests of this device under other settings.
fn simulate(here: &Arc<DeviceData>, conf: &str, progress: &Progress) -> Result<Arc<DeviceData>, String> {
    let question = Question::parse(conf, None).map_err(|e| format!("PyTorch would refuse these settings at {e}"))?;
    let whatif = here.what_if(progress).map_err(|e| e.to_string())?;
    let recording = whatif.simulate(&here.recording, &question, progress).map_err(|e| e.to_string())?;
    prepare(&Arc::new(recording), 0, progress)
}

/// The name of an instant of the device in front, in the style of the other side: `rank_0.pickle at its peak`. `None` when both
/// sides are the same device.
pub fn title_beside(other: &Source, here: &DeviceData, event: u32) -> Option<String> {
    let name = match other {
        Source::Marker | Source::At(_) => return None,
        Source::Other(Other::Device(_), _) => here.device().id.to_string(),
        Source::Other(..) => here.recording.source.name.clone(),
    };
    let moment = Moment::ALL.into_iter().find(|m| m.event(here) == event && (*m != Moment::OutOfMemory || !here.ooms.is_empty()));
    Some(match moment {
        Some(moment) => format!("{name} {}", moment.text()),
        None => format!("{name}, event {}", count(u64::from(event))),
    })
}

/// The name of an instant of the device in front: the peak or end of a step, or its event.
pub fn name_of(steps: Option<&StepTable>, event: u32) -> String {
    let step = steps.and_then(|t| Some((t.steps.of(event)?, t)));
    let figures = step.and_then(|(step, t)| Some((step, t.figures.get(step)?)));
    match figures {
        // When memory grows until the end of a step, its peak is its end; "end" is then the better name, since suggested pairs
        // are often step ends.
        Some((step, f)) if f.end == event + 1 => format!("step {} end", number(step)),
        Some((step, f)) if f.peak_event == event => format!("step {} peak", number(step)),
        Some((step, _)) => format!("event {}, step {}", count(u64::from(event)), number(step)),
        None => format!("event {}", count(u64::from(event))),
    }
}
