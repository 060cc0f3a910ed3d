//! Answers many questions at once, on all cores. Passes each answer on at once. An answer that follows from another needs no run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Instant;

use super::effects;
use super::whatif::{Answer, Question, WhatIf};
use crate::allocator::Reach;
use crate::model::{Cancelled, Progress};

/// Receives answers, each with the index of its question.
pub trait AnswerSink: Sync {
    /// Called before a question is run. Returns a separate [`Progress`] for this question, if one is wanted.
    fn started(&self, _at: usize) -> Option<Arc<Progress>> {
        None
    }

    /// Called once for each answered question, from any thread.
    fn answered(&self, at: usize, answer: Answer);
}

impl WhatIf<'_> {
    /// Answers many questions on all cores. Questions that need no run come first, then one of each group that may share an
    /// answer, in the given order. Progress counts questions. If cancelled, the answers found so far have already been passed on.
    pub fn ask_each(
        &self,
        questions: &[Question],
        points: usize,
        sink: &impl AnswerSink,
        progress: &Progress,
    ) -> Result<(), Cancelled> {
        progress.set_total(questions.len() as u64);
        progress.set_done(0);
        // If the model agrees with the recording, the answer for its own settings is already known.
        let own = if self.knows_own_run() { vec![self.ask(&self.own_question(), points, progress)?] } else { Vec::new() };
        let state = State { left: (0..questions.len()).collect(), busy: Vec::new(), known: own };
        let work = Work { whatif: self, questions, points, sink, progress, state: Mutex::new(state) };
        work.answer_derived();
        std::thread::scope(|scope| work.go_on(scope));
        progress.check()
    }

    /// Like [`ask_each`](Self::ask_each), but returns all answers at the end.
    pub fn ask_all(&self, questions: &[Question], points: usize, progress: &Progress) -> Result<Vec<Answer>, Cancelled> {
        struct All(Mutex<Vec<Option<Answer>>>);
        impl AnswerSink for All {
            fn answered(&self, at: usize, answer: Answer) {
                locked(&self.0)[at] = Some(answer);
            }
        }
        let all = All(Mutex::new(vec![None; questions.len()]));
        self.ask_each(questions, points, &all, progress)?;
        let answers = all.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        answers.into_iter().map(|answer| answer.ok_or(Cancelled)).collect()
    }

    /// The answer to a question that is served exactly like an answered one; `None` if it does not follow.
    fn follows(&self, known: &Answer, question: &Question) -> Option<Answer> {
        let started = Instant::now();
        let own = &self.own().replay;
        let (conf, other) = (&known.question.conf, &question.conf);
        let (limit, other_limit) = (self.limit_of(&known.question), self.limit_of(question));
        // Some statements of an answer hold only for the recording's own settings or limit.
        let of_own_conf = known.follows_in_part || !effects::assumed(conf, own.version, self.requests()).is_empty();
        let of_own_limit = self.own().limit_range().is_some();
        let is_moved = (of_own_conf && (*conf == own.conf) != (*other == own.conf)) || (of_own_limit && limit != other_limit);
        if is_moved || !known.reach?.is_same((conf, limit), (other, other_limit), own.version) {
            return None;
        }
        let mut answer = Answer { question: question.clone(), ..known.clone() };
        answer.row.conf.clone_from(&question.text);
        answer.row.limit_bytes = other_limit;
        answer.row.seconds = started.elapsed().as_secs_f64();
        Some(answer)
    }
}

/// Indices of unanswered questions, of those being run, and the known answers.
struct State {
    left: Vec<usize>,
    busy: Vec<usize>,
    known: Vec<Answer>,
}

struct Work<'a, A> {
    whatif: &'a WhatIf<'a>,
    questions: &'a [Question],
    points: usize,
    sink: &'a A,
    progress: &'a Progress,
    state: Mutex<State>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A: AnswerSink> Work<'_, A> {
    /// Runs questions until none is left to start, and starts more threads while there are more.
    fn go_on<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        while let Some(at) = self.take() {
            // If no thread can be started, the questions only take longer. rayon's threads are left to the runs inside a question.
            let _ = self.has_more().then(|| Builder::new().name("what-if".to_owned()).spawn_scoped(scope, || self.go_on(scope)));
            let part = self.sink.started(at);
            let answer = self.whatif.ask(&self.questions[at], self.points, part.as_deref().unwrap_or(self.progress));
            let mut state = locked(&self.state);
            state.busy.retain(|&other| other != at);
            let Ok(answer) = answer else { return };
            state.known.push(answer.clone());
            drop(state);
            self.deliver(at, answer);
            self.answer_derived();
        }
    }

    fn deliver(&self, at: usize, answer: Answer) {
        self.sink.answered(at, answer);
        self.progress.advance(1);
    }

    /// Answers questions whose answer follows from known ones.
    fn answer_derived(&self) {
        let mut follow = Vec::new();
        {
            let State { left, known, .. } = &mut *locked(&self.state);
            left.retain(|&at| {
                let answer = known.iter().find_map(|k| self.whatif.follows(k, &self.questions[at]));
                let stays = answer.is_none();
                follow.extend(answer.map(|answer| (at, answer)));
                stays
            });
        }
        follow.into_iter().for_each(|(at, answer)| self.deliver(at, answer));
    }

    /// Takes the first question that need not wait for the answer to another one.
    fn take(&self) -> Option<usize> {
        let mut state = locked(&self.state);
        let next = self.next(&state)?;
        let at = state.left.remove(next);
        state.busy.push(at);
        Some(at)
    }

    fn has_more(&self) -> bool {
        let state = locked(&self.state);
        state.busy.len() < rayon::current_num_threads() && self.next(&state).is_some()
    }

    fn next(&self, state: &State) -> Option<usize> {
        let is_like = |a: &Question, b: &Question| Reach::may_be_same(&a.conf, &b.conf);
        let waits_for = |question: &Question, busy: &Question| {
            let known = || state.known.iter().map(|k| &k.question).filter(|k| is_like(k, question));
            // A similar question under another limit may have the same answer. If it does not, one under the same limit may.
            is_like(question, busy)
                && (known().next().is_none() || (busy.limit == question.limit && known().all(|k| k.limit != question.limit)))
        };
        let is_free = |&at: &usize| !state.busy.iter().any(|&busy| waits_for(&self.questions[at], &self.questions[busy]));
        state.left.iter().position(is_free)
    }
}
