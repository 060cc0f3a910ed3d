//! Questions to a plan, answered on threads: those of the size in sight first.
//!
//! In each frame the view says what it wants to know, most urgent first. What has an answer is drawn, what has none is asked by two
//! threads: one has the peaks at single sizes, which take milliseconds, the other what takes longer. Answers are kept as long as the plan.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};

use crate::app::jobs::Jobs;
use crate::app::jobs::locked;
use vramscope_core::anatomy::Anatomy;
use vramscope_core::model::Progress;
use vramscope_core::plan::{Change, Changed, Largest, Passes, Plan, Predicted, Setting, Size};
use vramscope_core::tables::DeviceTables;

/// Something to be known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    /// The peak at a size under a setting, without a limit and under it.
    Point { size: Size, conf: String, limit: u64 },
    /// The largest value of a quantity that fits.
    Largest { name: String, others: Size, conf: String, limit: u64 },
    /// Where a size fails.
    Failure { size: Size, limit: u64 },
    /// What changes do at a size, and the largest value of a quantity with them where one is named.
    Change { changes: String, size: Size, conf: String, limit: u64, name: Option<String> },
    /// The cheapest changes under which a size fits, and the settings they need.
    Cheapest { size: Size, limit: u64 },
    /// A size in several passes that fit.
    Passes { size: Size, name: String, limit: u64 },
}

impl Ask {
    /// Answers for large pictures come before those for tables; 0 is the most urgent.
    pub fn urgency(&self, own: &str, own_limit: u64) -> u8 {
        match self {
            Ask::Point { .. } => 0,
            Ask::Largest { conf, limit, .. } if conf == own && *limit == own_limit => 0,
            Ask::Failure { .. } => 1,
            Ask::Cheapest { .. } | Ask::Passes { .. } => 2,
            Ask::Change { name: None, .. } => 3,
            Ask::Change { .. } => 4,
            Ask::Largest { .. } => 5,
        }
    }

    /// True if the answer takes milliseconds; slow ones have a thread of their own.
    fn is_quick(&self) -> bool {
        matches!(self, Ask::Point { .. })
    }
}

/// The peak at a size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The prediction without a limit.
    pub free: Predicted,
    /// Under the limit; where it fails, as without one.
    pub capped: Predicted,
}

impl Point {
    /// The figures of a changed program, which has one peak: under the limit, or without it where it fails.
    pub fn of_change(size: &Size, c: &Changed) -> Self {
        let capped = Predicted {
            size: size.clone(),
            peak_reserved_bytes: c.peak_reserved_bytes,
            peak_allocated_bytes: c.peak_allocated_bytes,
            span: c.span,
            allocated_span: [c.peak_allocated_bytes; 2],
            oom: c.oom,
            oom_varies: c.oom_varies,
            is_open: c.is_open,
            retries: c.retries,
            by_role: c.by_role.clone(),
            certain: true,
            uncertain_because: None,
        };
        Point { free: capped.clone(), capped }
    }
}

/// The request that fails first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// Its event in the planned run.
    pub event: u32,
    /// What it asks for.
    pub bytes: u64,
    /// What the program does then, `in the backward pass of step 1`; empty where nothing tells.
    pub doing: String,
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Point(Arc<Point>),
    Largest(Arc<Largest>),
    /// `None`: it does not fail.
    Failure(Option<Failure>),
    /// `None`: it cannot be made.
    Change(Option<Arc<Changed>>),
    /// Changes as they are written, and settings; `None` where nothing helps.
    Cheapest(Option<(String, String)>),
    /// `None`: no number of passes fits.
    Passes(Option<Arc<Passes>>),
}

impl Answer {
    pub fn point(self) -> Option<Arc<Point>> {
        if let Answer::Point(point) = self { Some(point) } else { None }
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
    /// What it is at.
    now: Option<Ask>,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<HashMap<Ask, Answer>>,
    lanes: [Mutex<Lane>; 2],
}

/// All answers so far, and the threads that make more.
#[derive(Default)]
pub(super) struct Runs {
    shared: Arc<Shared>,
    running: [Option<Receiver<()>>; 2],
    /// Answered and wanted in all, in the last frame.
    done: (usize, usize),
    is_stopped: bool,
    has_failed: bool,
}

impl Runs {
    /// An answer, once it is there.
    pub fn get(&self, ask: &Ask) -> Option<Answer> {
        locked(&self.shared.answers).get(ask).cloned()
    }

    /// Number of answers that are ready, and number wanted; `None` if all are ready.
    pub fn progress(&self) -> Option<(usize, usize)> {
        (self.done.0 < self.done.1 && !self.is_stopped).then_some(self.done)
    }

    /// Asks nothing more until [`resume`](Self::resume).
    pub fn stop(&mut self) {
        self.is_stopped = true;
        self.shared.lanes.iter().for_each(|lane| locked(lane).wanted.clear());
    }

    /// Continues after a stop.
    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    /// Stopped by the user, with something left to do.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped && self.done.0 < self.done.1
    }

    /// Sees to it that these are answered, in their order.
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

/// A setting as it is written; one that PyTorch would refuse is the defaults.
pub(super) fn setting(plan: &Plan, conf: &str, limit: Option<u64>) -> Setting {
    let own = plan.own_setting(limit);
    if own.text == conf { own } else { Setting::parse(conf, limit).unwrap_or(own) }
}

fn answer(plan: &Plan, ask: &Ask) -> Answer {
    match ask {
        Ask::Point { size, conf, limit } => {
            let free = plan.at(size, &setting(plan, conf, None));
            // Far below the limit nothing is different under it.
            let is_far = free.span[1] < limit - limit / 8;
            let capped = if is_far { free.clone() } else { plan.at(size, &setting(plan, conf, Some(*limit))) };
            Answer::Point(Arc::new(Point { free, capped }))
        }
        Ask::Largest { name, others, conf, limit } => {
            Answer::Largest(Arc::new(plan.largest(name, others, &setting(plan, conf, Some(*limit)))))
        }
        Ask::Failure { size, limit } => Answer::Failure(failure(plan, size, *limit)),
        Ask::Change { changes, size, conf, limit, name } => {
            let parsed = Change::parse(changes).ok();
            let setting = setting(plan, conf, Some(*limit));
            Answer::Change(parsed.and_then(|changes| plan.change(&changes, size, &setting, name.as_deref())).map(Arc::new))
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

/// The first request that fails, and what the program does then.
fn failure(plan: &Plan, size: &Size, limit: u64) -> Option<Failure> {
    let recording = plan.recording(size, &plan.own_setting(Some(limit)), &[])?;
    let device = recording.devices.first()?;
    let event = device.events.last_oom()?;
    let bytes = *device.events.size.get(event as usize)?;
    let doing = DeviceTables::build(device, &Progress::new())
        .map_or_else(|_| String::new(), |tables| Anatomy::read(&recording, device, &tables).words_at(event));
    Some(Failure { event, bytes, doing })
}
