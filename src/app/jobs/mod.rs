//! Work off the UI thread: named threads compute [`Derived`] values, which the UI polls each frame.

pub mod identity;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vramscope_core::model::Progress;

/// Locks a mutex even when a thread panicked while it held it. Every entry in it is then still whole.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts threads, counts them, and wakes the window when one finishes. Cheap to clone.
#[derive(Clone, Default)]
pub struct Jobs {
    ctx: Option<egui::Context>,
    running: Arc<AtomicUsize>,
    failures: Arc<Mutex<Failures>>,
    /// Computes on the calling thread. For tests and benches, where pictures must not depend on timing.
    pub is_synchronous: bool,
}

#[derive(Default)]
struct Failures {
    /// Panics of threads: the thread's name and the message.
    panics: Vec<(String, String)>,
    /// Names of jobs that panicked and whose values were requested again.
    asked: Vec<String>,
}

impl Jobs {
    pub fn new(ctx: egui::Context) -> Self {
        Jobs { ctx: Some(ctx), ..Jobs::default() }
    }

    pub fn synchronous() -> Self {
        Jobs { is_synchronous: true, ..Jobs::default() }
    }

    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Requests a frame, because something arrived on a channel that the window polls.
    pub fn wake(&self) {
        if let Some(ctx) = &self.ctx {
            ctx.request_repaint();
        }
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        locked(&self.failures)
    }

    /// The panics of threads since the last call: the thread's name and the message.
    pub fn take_panics(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.failures().panics)
    }

    /// Names of the jobs whose values were requested since the last call but cannot be computed.
    pub fn take_asked_in_vain(&self) -> Vec<String> {
        std::mem::take(&mut self.failures().asked)
    }

    /// Records that a requested value cannot be computed.
    pub fn ask_in_vain(&self, name: &str) {
        self.failures().asked.push(name.to_owned());
    }

    /// Runs work that may panic, so that a panic does not end the window. Synchronous jobs, as in tests, let the panic through.
    ///
    /// # Errors
    /// The panic message.
    pub fn attempt<R>(&self, work: impl FnOnce() -> R) -> Result<R, String> {
        if self.is_synchronous {
            return Ok(work());
        }
        caught(work)
    }

    /// Runs `work` on a thread called `name`. The result arrives on the returned channel; when `work` panics the channel closes
    /// without one.
    pub fn spawn<T: Send + 'static>(&self, name: &str, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        if self.is_synchronous {
            let _ = sender.send(work());
            return receiver;
        }
        self.running.fetch_add(1, Ordering::AcqRel);
        let (jobs, name_of_job) = (self.clone(), name.to_owned());
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            match jobs.attempt(work) {
                // The receiver may be gone when the result is no longer wanted.
                Ok(answer) => drop(sender.send(answer)),
                Err(said) => jobs.failures().panics.push((name_of_job, said)),
            }
            // Close the channel before the window wakes, so that it sees the result or that there is none.
            drop(sender);
            jobs.running.fetch_sub(1, Ordering::AcqRel);
            jobs.wake();
        });
        if let Err(error) = spawned {
            self.running.fetch_sub(1, Ordering::AcqRel);
            self.failures().panics.push((name.to_owned(), format!("the system cannot start a thread: {error}")));
        }
        receiver
    }
}

/// Runs work that may panic. State that it was changing may be inconsistent afterwards, so the caller must discard it.
///
/// # Errors
/// The panic message.
pub fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        text.unwrap_or("no reason was given").to_owned()
    })
}

struct Running<K, T> {
    key: K,
    since: Instant,
    progress: Arc<Progress>,
    answer: Receiver<Option<T>>,
}

/// How long a computation for an outdated key may run before it is cancelled in favour of the new key. Long enough that
/// continuous panning still shows intermediate pictures.
const PATIENCE: Duration = Duration::from_millis(400);

/// A value computed from a key off the UI thread. The old value stays until the new one is ready.
pub struct Derived<K, T> {
    have: Option<(K, Arc<T>)>,
    running: Option<Running<K, T>>,
    /// The key whose computation panicked. It is not retried.
    failed: Option<K>,
}

impl<K, T> Default for Derived<K, T> {
    fn default() -> Self {
        Derived { have: None, running: None, failed: None }
    }
}

pub struct Shown<T> {
    /// The newest value; `None` before the first.
    pub value: Option<Arc<T>>,
    /// False while a newer one is being computed.
    pub is_fresh: bool,
    /// Progress of the computation, 0 to 1, when it reports any.
    pub fraction: Option<f32>,
}

impl<T> Shown<T> {
    /// The value, unless a newer one is being computed.
    pub fn fresh(&self) -> Option<Arc<T>> {
        self.value.clone().filter(|_| self.is_fresh)
    }
}

impl<K: PartialEq + Clone, T: Send + 'static> Derived<K, T> {
    /// The value for `key`, or the newest older one while `work` runs. `work` returns `None` when it was cancelled. When it
    /// panics it is not run again for this key, and [`Jobs::take_asked_in_vain`] names it.
    pub fn get(
        &mut self,
        jobs: &Jobs,
        name: &str,
        key: &K,
        work: impl FnOnce(&Progress) -> Option<T> + Send + 'static,
    ) -> Shown<T> {
        self.poll();
        if self.have.as_ref().is_none_or(|(k, _)| k != key) {
            if let Some(r) = &self.running
                && r.key != *key
                && r.since.elapsed() > PATIENCE
            {
                r.progress.cancel();
                self.running = None;
            }
            if self.failed.as_ref() == Some(key) {
                jobs.ask_in_vain(name);
            } else if self.running.is_none() {
                let progress = Arc::new(Progress::new());
                let shared = Arc::clone(&progress);
                let answer = jobs.spawn(name, move || work(&shared));
                self.running = Some(Running { key: key.clone(), since: Instant::now(), progress, answer });
                self.poll();
            }
        }
        Shown {
            value: self.have.as_ref().map(|(_, v)| Arc::clone(v)),
            is_fresh: self.have.as_ref().is_some_and(|(k, _)| k == key),
            fraction: self.running.as_ref().and_then(|r| r.progress.fraction()),
        }
    }

    pub fn latest(&self) -> Option<&Arc<T>> {
        self.have.as_ref().map(|(_, v)| v)
    }

    /// The newest value if it belongs to `key`.
    pub fn latest_for<Q>(&self, key: &Q) -> Option<&Arc<T>>
    where
        K: std::borrow::Borrow<Q>,
        Q: PartialEq + ?Sized,
    {
        self.have.as_ref().filter(|(k, _)| k.borrow() == key).map(|(_, v)| v)
    }

    fn poll(&mut self) {
        let Some(running) = &self.running else { return };
        match running.answer.try_recv() {
            Ok(Some(value)) => {
                self.have = Some((running.key.clone(), Arc::new(value)));
                self.running = None;
            }
            Ok(None) => self.running = None,
            Err(TryRecvError::Disconnected) => self.failed = self.running.take().map(|running| running.key.clone()),
            Err(TryRecvError::Empty) => {}
        }
    }
}

/// What a thread answered: `None` while it still works, and `lost` when it ended without an answer.
pub fn answered<T>(answer: &Receiver<T>, lost: impl FnOnce() -> T) -> Option<T> {
    match answer.try_recv() {
        Ok(answer) => Some(answer),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => Some(lost()),
    }
}

impl<K, T> Drop for Derived<K, T> {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.progress.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_value_follows_its_key_and_keeps_the_old_one_meanwhile() {
        let jobs = Jobs::synchronous();
        let mut d: Derived<u32, u32> = Derived::default();
        let a = d.get(&jobs, "test", &1, |_| Some(10));
        assert_eq!((a.value.as_deref(), a.is_fresh), (Some(&10), true));
        let b = d.get(&jobs, "test", &1, |_| panic!("computed twice"));
        assert_eq!(b.value.as_deref(), Some(&10));
        let c = d.get(&jobs, "test", &2, |_| None);
        assert_eq!((c.value.as_deref(), c.is_fresh), (Some(&10), false));
    }

    #[test]
    fn what_panics_is_not_counted_as_running_and_not_tried_again_until_its_key_changes() {
        let jobs = Jobs::default();
        let tries = Arc::new(AtomicUsize::new(0));
        let mut d: Derived<u32, u32> = Derived::default();
        let mut ask = |key: u32| {
            for _ in 0..5_000 {
                let tries = Arc::clone(&tries);
                let shown = d.get(&jobs, "broken", &key, move |_| {
                    tries.fetch_add(1, Ordering::AcqRel);
                    if key < 3 { panic!("no {key}") } else { Some(key) }
                });
                if jobs.running() == 0 {
                    return shown.value;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("the count of threads at work never came down");
        };
        for _ in 0..10 {
            assert_eq!(ask(1), None);
        }
        assert_eq!(tries.load(Ordering::Acquire), 1, "a key that failed is not tried in each frame");
        assert_eq!(jobs.take_panics(), [("broken".to_owned(), "no 1".to_owned())]);
        assert!(jobs.take_asked_in_vain().contains(&"broken".to_owned()));
        ask(2);
        assert_eq!(tries.load(Ordering::Acquire), 2, "another key is tried");
        ask(3);
        assert_eq!(ask(3).as_deref(), Some(&3));
    }

    #[test]
    fn a_thread_answers() {
        let jobs = Jobs::default();
        let mut d: Derived<u32, u32> = Derived::default();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if let Some(v) = d.get(&jobs, "answer", &1, |_| Some(7)).value {
                assert_eq!(*v, 7);
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no answer");
    }
}
