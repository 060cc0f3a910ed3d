//! The thread that queries the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::engine::{Clock, Engine, Opener};
use super::process::ProcessLookup;
use super::rates::Rates;
use super::wall_clock_us;
use vramscope_core::formats::session::{Lost, Record};

/// Longest sleep, after which a stop or pause is noticed.
const NAP: Duration = Duration::from_millis(200);

struct RealClock {
    start: Instant,
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_us(&self) -> i64 {
        wall_clock_us()
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    is_paused: AtomicBool,
}

/// The sampling thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Samples with the driver of `opener`. When `records` is full, records are dropped and counted; the thread never waits.
    pub fn start(opener: Opener, rates: Rates, devices: Vec<usize>, records: SyncSender<Record>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        let work = move || run(&mine, Engine::new(opener, rates, devices, ProcessLookup::default()), &records);
        let thread = std::thread::Builder::new().name("vramscope-nvml".to_owned()).spawn(work)?;
        Ok(Sampler { shared, thread: Some(thread) })
    }

    /// Pauses or resumes sampling.
    pub fn set_paused(&self, is_paused: bool) {
        self.shared.is_paused.store(is_paused, Ordering::Relaxed);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A call into the driver may hang. Then the thread is abandoned, so that this one does not hang too.
            let since = Instant::now();
            while !thread.is_finished() && since.elapsed() < Duration::from_secs(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

fn run(shared: &Shared, mut engine: Engine, records: &SyncSender<Record>) {
    let clock = RealClock { start: Instant::now() };
    let mut left_out = 0u64;
    let mut was_paused = false;
    while !shared.stop.load(Ordering::Acquire) {
        if shared.is_paused.load(Ordering::Relaxed) {
            was_paused = true;
            std::thread::park_timeout(NAP);
            continue;
        }
        if std::mem::take(&mut was_paused) {
            engine.resume(&clock);
        }
        for mut record in engine.run_due(&clock) {
            if let Record::Costs(costs) = &mut record {
                costs.cpu = cpu_share(clock.now());
            }
            let is_sample = matches!(record, Record::Memory(_));
            if left_out > 0 && records.try_send(Record::Lost(Lost { d: None, n: left_out, from: 0, to: 0 })).is_ok() {
                left_out = 0;
            }
            match records.try_send(record) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => left_out += u64::from(is_sample),
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
        let wait = engine.next_due().saturating_sub(clock.now());
        if !wait.is_zero() {
            std::thread::park_timeout(wait.min(NAP));
        }
    }
}

/// Share of one core that this thread has used since it started.
fn cpu_share(elapsed: Duration) -> Option<f64> {
    #[cfg(target_os = "linux")]
    {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let used = t.tv_sec as f64 + t.tv_nsec as f64 / 1e9;
        (elapsed > Duration::from_secs(1)).then(|| used / elapsed.as_secs_f64())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = elapsed;
        None
    }
}
