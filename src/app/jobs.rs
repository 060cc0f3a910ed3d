//! Work off the UI thread: [`Derived`] values are computed by named threads and polled each frame.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use crate::model::Progress;

/// Starts threads, counts them, and wakes the window when one is done. Cheap to clone.
#[derive(Clone, Default)]
pub struct Jobs {
    ctx: Option<egui::Context>,
    running: Arc<AtomicUsize>,
    /// Compute on the calling thread: for tests and benches, where a picture must not depend on timing.
    pub is_synchronous: bool,
}

impl Jobs {
    /// Jobs that wake this window.
    #[must_use]
    pub fn new(ctx: egui::Context) -> Self {
        Jobs { ctx: Some(ctx), ..Jobs::default() }
    }

    /// Jobs that run at once, on the calling thread.
    #[must_use]
    pub fn synchronous() -> Self {
        Jobs { is_synchronous: true, ..Jobs::default() }
    }

    /// Threads at work.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Asks the window for a frame: something arrived on a channel that it polls.
    pub fn wake(&self) {
        if let Some(ctx) = &self.ctx {
            ctx.request_repaint();
        }
    }

    /// Runs `work` on a thread called `name`; its answer arrives on the returned channel.
    pub fn spawn<T: Send + 'static>(&self, name: &str, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (sender, receiver) = sync_channel(1);
        if self.is_synchronous {
            let _ = sender.send(work());
            return receiver;
        }
        let running = Arc::clone(&self.running);
        let ctx = self.ctx.clone();
        running.fetch_add(1, Ordering::AcqRel);
        let counted = Arc::clone(&running);
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // The receiver may be gone: the answer is no longer wanted.
            let _ = sender.send(work());
            running.fetch_sub(1, Ordering::AcqRel);
            if let Some(ctx) = ctx {
                ctx.request_repaint();
            }
        });
        if let Err(error) = spawned {
            counted.fetch_sub(1, Ordering::AcqRel);
            tracing::error!("can not start the thread {name}: {error}");
        }
        receiver
    }
}

struct Running<K, T> {
    key: K,
    since: Instant,
    progress: Arc<Progress>,
    answer: Receiver<Option<T>>,
}

/// How long a computation for an outdated key may go on before it is stopped in favour of the new one. Long enough that
/// continuous panning still shows intermediate pictures.
const PATIENCE: Duration = Duration::from_millis(400);

/// A value computed from a key off the UI thread. The old value stays until the new one is there.
pub struct Derived<K, T> {
    have: Option<(K, Arc<T>)>,
    running: Option<Running<K, T>>,
}

impl<K, T> Default for Derived<K, T> {
    fn default() -> Self {
        Derived { have: None, running: None }
    }
}

/// A derived value as it is right now.
pub struct Shown<T> {
    /// The newest value there is; `None` before the first.
    pub value: Option<Arc<T>>,
    /// False while a newer one is being computed.
    pub is_fresh: bool,
    /// How far the computation is, when it says so.
    pub fraction: Option<f32>,
}

impl<K: PartialEq + Clone, T: Send + 'static> Derived<K, T> {
    /// The value for `key`, or the newest older one while `work` runs. `work` returns `None` when it was cancelled.
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
            if self.running.is_none() {
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

    /// The newest value, whatever its key.
    #[must_use]
    pub fn latest(&self) -> Option<&Arc<T>> {
        self.have.as_ref().map(|(_, v)| v)
    }

    /// The newest value, when it is the one of a key.
    #[must_use]
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
            Ok(None) | Err(TryRecvError::Disconnected) => self.running = None,
            Err(TryRecvError::Empty) => {}
        }
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
