//! Questions to a plan, answered on threads. Questions about the size in view come first.
//!
//! In each frame the view lists what it wants to know, most urgent first. Known answers are drawn, and open questions go to two
//! threads. One computes peaks at single sizes, which take milliseconds; the other does everything slower. Answers are kept as
//! long as the plan.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};

use crate::app::jobs::Jobs;
use crate::app::jobs::locked;
use vramscope_core::anatomy::Anatomy;
use vramscope_core::model::Progress;
use vramscope_core::plan::{Change, Changed, Largest, Passes, Peaks, Plan, Predicted, Setting, Size};
use vramscope_core::tables::DeviceTables;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    /// The peak at a size with changes (none when empty) under a setting, with and without the limit.
    Point { changes: String, size: Size, conf: String, limit: u64 },
    /// The largest value of a quantity that fits.
    Largest { name: String, others: Size, conf: String, limit: u64 },
    /// The first request that fails at a size.
    Failure { size: Size, limit: u64 },
    /// The effect of changes at a size, and the largest value of quantity `name` with them.
    Change { changes: String, size: Size, conf: String, limit: u64, name: Option<String> },
    /// The cheapest changes under which a size fits, and the settings they need.
    Cheapest { size: Size, limit: u64 },
    /// The size in several passes that each fit.
    Passes { size: Size, name: String, limit: u64 },
}

impl Ask {
    /// The priority; 0 is the most urgent. Answers for large pictures come before answers for tables.
    pub fn urgency(&self, own: &str, own_limit: u64) -> u8 {
        match self {
            Ask::Point { changes, .. } if changes.is_empty() => 0,
            Ask::Largest { conf, limit, .. } if conf == own && *limit == own_limit => 0,
            Ask::Failure { .. } => 1,
            Ask::Cheapest { .. } | Ask::Passes { .. } => 2,
            Ask::Point { .. } | Ask::Change { name: None, .. } => 3,
            Ask::Change { .. } => 4,
            Ask::Largest { .. } => 5,
        }
    }

    /// True when the answer takes milliseconds. Slow questions have their own thread.
    fn is_quick(&self) -> bool {
        matches!(self, Ask::Point { changes, .. } if changes.is_empty())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The prediction without a limit.
    pub free: Predicted,
    /// The prediction under the limit. When it fails, its figures are those without a limit.
    pub capped: Predicted,
}

impl Point {
    /// The prediction of a changed program, which has a single peak: under the limit, or without it when it fails.
    fn of_change(size: &Size, c: &Changed) -> Self {
        let capped = Predicted {
            size: size.clone(),
            peaks: Peaks { allocated_span: [c.peak_allocated_bytes; 2], ..c.peaks.clone() },
            certain: true,
            uncertain_because: None,
        };
        Point { free: capped.clone(), capped }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// Its event in the planned run.
    pub event: u32,
    pub bytes: u64,
    /// What the program was doing, as `in the backward pass of step 1`; empty when unknown.
    pub doing: String,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// `None`: the change is not possible.
    Point(Option<Arc<Point>>),
    Largest(Arc<Largest>),
    /// `None`: it does not fail.
    Failure(Option<Failure>),
    /// `None`: the change is not possible.
    Change(Option<Arc<Changed>>),
    /// Changes in the syntax of `--change`, and settings; `None` when nothing helps.
    Cheapest(Option<(String, String)>),
    /// `None`: no number of passes fits.
    Passes(Option<Arc<Passes>>),
}

impl Answer {
    pub fn point(self) -> Option<Arc<Point>> {
        if let Answer::Point(point) = self { point } else { None }
    }

    pub fn largest(self) -> Option<Arc<Largest>> {
        if let Answer::Largest(largest) = self { Some(largest) } else { None }
    }

    pub fn change(self) -> Option<Arc<Changed>> {
        if let Answer::Change(changed) = self { changed } else { None }
    }
}

#[derive(Default)]
struct Lane {
    /// Most urgent first.
    wanted: Vec<Ask>,
    /// The question being answered.
    now: Option<Ask>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<HashMap<Ask, Answer>>,
    lanes: [Mutex<Lane>; 2],
}

/// All answers so far, and the threads that compute more.
#[derive(Default)]
pub(super) struct Runs {
    shared: Arc<Shared>,
    running: [Option<Receiver<()>>; 2],
    /// Numbers of answered and of wanted questions in the last frame.
    done: (usize, usize),
    is_stopped: bool,
    has_failed: bool,
}

impl Runs {
    pub fn get(&self, ask: &Ask) -> Option<Answer> {
        locked(&self.shared.answers).get(ask).cloned()
    }

    /// Numbers of answered and of wanted questions; `None` when all are answered.
    pub fn progress(&self) -> Option<(usize, usize)> {
        (self.done.0 < self.done.1 && !self.is_stopped).then_some(self.done)
    }

    /// Starts no more questions until [`resume`](Self::resume).
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.shared.lanes.iter().for_each(|lane| locked(lane).wanted.clear());
    }

    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// True when the user stopped it and questions are open.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped && self.done.0 < self.done.1
    }

    /// Makes sure that these questions are answered, in this order.
    pub fn want(&mut self, jobs: &Jobs, plan: &Arc<Plan>, asks: &[Ask]) {
        let missing: Vec<Ask> = {
            let answers = locked(&self.shared.answers);
            asks.iter().filter(|ask| !answers.contains_key(ask)).cloned().collect()
        };
        self.done = (asks.len() - missing.len(), asks.len());
        for running in &mut self.running {
            match running.as_ref().map(Receiver::try_recv) {
                None | Some(Err(TryRecvError::Empty)) => {}
                Some(answer) => {
                    *running = None;
                    self.has_failed |= answer.is_err();
                }
            }
        }
        if self.has_failed {
            jobs.ask_in_vain("plan");
            return;
        }
        if self.is_stopped {
            return;
        }
        let (quick, slow): (Vec<Ask>, Vec<Ask>) = missing.into_iter().partition(Ask::is_quick);
        for (lane, mut wanted) in [quick, slow].into_iter().enumerate() {
            let is_idle = {
                let mut lane = locked(&self.shared.lanes[lane]);
                wanted.retain(|ask| lane.now.as_ref() != Some(ask));
                lane.wanted = wanted;
                lane.wanted.is_empty()
            };
            if is_idle || self.running[lane].is_some() {
                continue;
            }
            let (shared, plan, wake) = (Arc::clone(&self.shared), Arc::clone(plan), jobs.clone());
            let done = jobs.spawn("plan", move || {
                loop {
                    let next = {
                        let mut lane = locked(&shared.lanes[lane]);
                        lane.now = if lane.wanted.is_empty() { None } else { Some(lane.wanted.remove(0)) };
                        lane.now.clone()
                    };
                    let Some(ask) = next else { return };
                    let answer = answer(&plan, &ask);
                    locked(&shared.answers).insert(ask, answer);
                    wake.wake();
                }
            });
            self.running[lane] = (!jobs.is_synchronous).then_some(done);
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Parses a setting. One that PyTorch would refuse becomes the default.
pub(super) fn setting(plan: &Plan, conf: &str, limit: Option<u64>) -> Setting {
    let own = plan.own_setting(limit);
    if own.text == conf { own } else { Setting::parse(conf, limit).unwrap_or(own) }
}

fn answer(plan: &Plan, ask: &Ask) -> Answer {
    match ask {
        Ask::Point { changes, size, conf, limit } if changes.is_empty() => {
            let free = plan.at(size, &setting(plan, conf, None));
            // Far below the limit, the limit changes nothing.
            let is_far = free.span[1] < limit - limit / 8;
            let capped = if is_far { free.clone() } else { plan.at(size, &setting(plan, conf, Some(*limit))) };
            Answer::Point(Some(Arc::new(Point { free, capped })))
        }
        Ask::Point { changes, size, conf, limit } => {
            let changed = change(plan, changes, size, &setting(plan, conf, Some(*limit)), None);
            Answer::Point(changed.map(|c| Arc::new(Point::of_change(size, &c))))
        }
        Ask::Largest { name, others, conf, limit } => {
            Answer::Largest(Arc::new(plan.largest(name, others, &setting(plan, conf, Some(*limit)))))
        }
        Ask::Failure { size, limit } => Answer::Failure(failure(plan, size, *limit)),
        Ask::Change { changes, size, conf, limit, name } => {
            let setting = setting(plan, conf, Some(*limit));
            Answer::Change(change(plan, changes, size, &setting, name.as_deref()).map(Arc::new))
        }
        Ask::Cheapest { size, limit } => {
            let way = plan.cheapest(size, &plan.own_setting(Some(*limit)));
            let names = |changes: &[Change]| changes.iter().map(Change::name).collect::<Vec<_>>().join("+");
            Answer::Cheapest(way.map(|way| (names(&way.changes), way.setting.text)))
        }
        Ask::Passes { size, name, limit } => {
            Answer::Passes(plan.passes(size, name, &plan.own_setting(Some(*limit))).map(Arc::new))
        }
    }
}

fn change(plan: &Plan, changes: &str, size: &Size, setting: &Setting, name: Option<&str>) -> Option<Changed> {
    plan.change(&Change::parse(changes).ok()?, size, setting, name)
}

/// The first request that fails, and what the program was doing then.
fn failure(plan: &Plan, size: &Size, limit: u64) -> Option<Failure> {
    let recording = plan.recording(size, &plan.own_setting(Some(limit)), &[])?;
    let device = recording.devices.first()?;
    let event = device.events.last_oom()?;
    let bytes = *device.events.size.get(event as usize)?;
    let doing = DeviceTables::build(device, &Progress::new())
        .map_or_else(|_| String::new(), |tables| Anatomy::read(&recording, device, &tables).words_at(event));
    Some(Failure { event, bytes, doing })
}
