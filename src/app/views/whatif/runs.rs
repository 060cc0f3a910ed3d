//! The simulations behind What-if. Each is computed once off the UI thread and shown when it is ready.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};

use crate::app::data::device::DeviceData;
use crate::app::jobs::Jobs;
use crate::app::jobs::locked;
use vramscope_core::inference::whatif::{Answer, POINTS, Question, WhatIf};
use vramscope_core::inference::{Agreement, AnswerSink, CapRange, Difference};
use vramscope_core::model::{AllocConf, Progress};
use vramscope_core::tables::Quantity;

/// How the model reproduces the recording under its own settings.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// The first difference; `None` when the model reproduces every event.
    pub differs: Option<Difference>,
    /// Every event agrees, but the file is cut short, so nothing is known about the rest.
    pub breaks_off: bool,
    pub limit: u64,
    pub limit_from: LimitFrom,
    /// The PyTorch release whose rules the model used.
    pub rules: String,
    pub requests: u64,
    /// How often the recording took memory from the device.
    pub device_calls: u64,
}

/// Where the initial limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitFrom {
    /// The recording contains it, or its failed requests imply it.
    Known(CapRange),
    /// Nothing failed, so it is the peak of reserved memory.
    Peak,
}

/// A setting and a limit; `None` for no limit.
pub(super) type Key = (String, Option<u64>);

#[derive(Default)]
struct Shared {
    own: Mutex<Option<Arc<Own>>>,
    answers: Mutex<HashMap<Key, Arc<Answer>>>,
    working: Mutex<HashMap<Key, Arc<Progress>>>,
}

/// The state of a question without an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Awaited {
    /// Other simulations run first.
    Waiting,
    /// It is running, with its progress, 0 to 1.
    Running(f32),
    Stopped,
}

type Asked = (Vec<String>, Option<u64>);

/// All answers so far, and the job that computes more.
#[derive(Default)]
pub(super) struct Runs {
    shared: Arc<Shared>,
    running: Option<(Receiver<()>, Arc<Progress>)>,
    is_stopped: bool,
    /// What the last job was asked, and whether it panicked. It would panic again.
    asked: Asked,
    has_failed: bool,
}

impl Runs {
    /// Facts about the recording itself.
    pub fn own(&self) -> Option<Arc<Own>> {
        locked(&self.shared.own).clone()
    }

    pub fn answer(&self, text: &str, limit: Option<u64>) -> Option<Arc<Answer>> {
        locked(&self.shared.answers).get(&(text.to_owned(), limit)).cloned()
    }

    /// The progress of the running job; `Some(None)` before the first setting runs, `None` without a job.
    pub fn progress(&self) -> Option<Option<f32>> {
        let (_, whole) = self.running.as_ref()?;
        let questions = whole.total();
        if questions == 0 {
            return Some(None);
        }
        let parts: f32 = locked(&self.shared.working).values().filter_map(|part| part.stage().1).sum();
        let done = whole.fraction().unwrap_or(0.0);
        Some(Some((done + parts / questions as f32).min(1.0)))
    }

    /// The progress of checking the recording's own settings, which happens before any other setting runs.
    pub fn checking(&self) -> Option<f32> {
        let (_, whole) = self.running.as_ref().filter(|(_, whole)| whole.total() == 0)?;
        Some(whole.stage().1.unwrap_or(0.0))
    }

    /// The state of a question without an answer; `None` when nobody asked it.
    pub fn awaited(&self, text: &str, limit: Option<u64>) -> Option<Awaited> {
        if self.is_stopped {
            return Some(Awaited::Stopped);
        }
        self.running.as_ref()?;
        let working = locked(&self.shared.working);
        let part = working.get(&(text.to_owned(), limit));
        Some(part.map_or(Awaited::Waiting, |part| Awaited::Running(part.stage().1.unwrap_or(0.0))))
    }

    /// Stops the running job. The next question starts another.
    pub fn cancel(&mut self) {
        if let Some((_, progress)) = self.running.take() {
            progress.cancel();
        }
    }

    /// Stops the job and starts none until [`resume`](Self::resume).
    pub fn stop(&mut self) {
        self.cancel();
        self.is_stopped = true;
    }

    pub fn resume(&mut self) {
        self.is_stopped = false;
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Makes sure that each setting is simulated without a limit and with `limit` (the recording's own until one is chosen).
    pub fn want(&mut self, jobs: &Jobs, data: &Arc<DeviceData>, confs: &[(String, AllocConf)], limit: Option<u64>) {
        let asked = || (confs.iter().map(|(text, _)| text.clone()).collect(), limit);
        match self.running.as_ref().map(|(done, _)| done.try_recv()) {
            None | Some(Err(TryRecvError::Empty)) => {}
            Some(answer) => {
                self.running = None;
                self.has_failed = answer.is_err();
            }
        }
        if self.has_failed && self.asked == asked() {
            jobs.ask_in_vain("what-if");
            return;
        }
        if self.running.is_some() || self.is_stopped {
            return;
        }
        let limit = limit.or(self.own().map(|o| o.limit));
        let is_complete = limit.is_some_and(|limit| {
            let answers = locked(&self.shared.answers);
            confs.iter().all(|(t, _)| [None, Some(limit)].iter().all(|l| answers.contains_key(&(t.clone(), *l))))
        });
        if is_complete {
            return;
        }
        self.asked = asked();
        let progress = Arc::new(Progress::new());
        let (shared, data, confs, shared_progress) =
            (Arc::clone(&self.shared), Arc::clone(data), confs.to_vec(), Arc::clone(&progress));
        let done = jobs.spawn("what-if", move || {
            // Cancelled runs keep the answers they already have.
            let _ = run(&shared, &data, &confs, limit, &shared_progress);
        });
        self.running = Some((done, progress));
        if jobs.is_synchronous {
            self.running = None;
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn run(
    shared: &Shared,
    data: &DeviceData,
    confs: &[(String, AllocConf)],
    limit: Option<u64>,
    progress: &Arc<Progress>,
) -> Result<(), vramscope_core::model::Cancelled> {
    let whatif = data.what_if(progress)?;
    let limit = {
        let own = describe(&whatif, data);
        let limit = limit.unwrap_or(own.limit);
        *locked(&shared.own) = Some(Arc::new(own));
        limit
    };
    // A job that was stopped leaves its unfinished question here.
    locked(&shared.working).clear();
    let mut questions = Vec::new();
    for (text, conf) in confs {
        for limit in [None, Some(limit)] {
            if !locked(&shared.answers).contains_key(&(text.clone(), limit)) {
                questions.push(Question { conf: conf.clone(), text: text.clone(), limit });
            }
        }
    }
    whatif.ask_each(&questions, POINTS, &Working { shared, whole: progress, questions: &questions }, progress)
}

/// Shows what is running, and each answer as it arrives.
struct Working<'a> {
    shared: &'a Shared,
    whole: &'a Arc<Progress>,
    questions: &'a [Question],
}

impl Working<'_> {
    fn key(&self, at: usize) -> Key {
        (self.questions[at].text.clone(), self.questions[at].limit)
    }
}

impl AnswerSink for Working<'_> {
    fn started(&self, at: usize) -> Option<Arc<Progress>> {
        let part = Arc::new(Progress::part_of(self.whole));
        locked(&self.shared.working).insert(self.key(at), Arc::clone(&part));
        Some(part)
    }

    fn answered(&self, at: usize, answer: Answer) {
        locked(&self.shared.working).remove(&self.key(at));
        locked(&self.shared.answers).insert(self.key(at), Arc::new(answer));
    }
}

fn describe(whatif: &WhatIf<'_>, data: &DeviceData) -> Own {
    let own = whatif.own();
    let differs = match &own.agreement {
        Agreement::Agrees => None,
        Agreement::Differs(difference) => Some(difference.clone()),
    };
    let (limit, limit_from) = match (whatif.own_limit(), own.limit_range()) {
        (Some(limit), Some(range)) => (limit, LimitFrom::Known(range)),
        (Some(limit), None) => (limit, LimitFrom::Known(CapRange::exact(limit))),
        (None, _) => (data.tables.curves.peak(Quantity::Reserved).0, LimitFrom::Peak),
    };
    let device_calls = data.device().events.action.iter().filter(|a| a.grows_reserved()).count() as u64;
    let requests = whatif.requests().count();
    let breaks_off = !own.reproduces() || data.recording.report.truncated().is_some();
    Own { differs, breaks_off, limit, limit_from, rules: own.replay.version.to_string(), requests, device_calls }
}
