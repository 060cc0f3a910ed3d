//! A fake driver, to test what real ones rarely do.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::engine::{Clock, Engine};
use super::process::ProcessLookup;
use super::rates::Rates;
use super::source::{
    DriverFacts, GpuBusy, GpuError, GpuEvent, GpuFacts, GpuHealth, GpuMemory, GpuProcess, GpuSource, ProcessKind,
};
use vramscope_core::formats::session::Record;
use vramscope_core::model::Reading;

/// What the fake driver answers. Tests change it while the engine runs.
#[derive(Clone, Debug)]
pub(super) struct FakeState {
    pub gpus: usize,
    pub total: u64,
    pub used: u64,
    pub reserved: Option<u64>,
    pub compute: Vec<GpuProcess>,
    pub graphics: Vec<GpuProcess>,
    pub open_error: Option<GpuError>,
    pub memory_error: Option<GpuError>,
    pub process_error: Option<GpuError>,
    pub busy_error: Option<GpuError>,
    pub climate_error: Option<GpuError>,
    pub device_error: Option<GpuError>,
    pub events: Vec<(Option<usize>, GpuEvent)>,
    pub has_mig: bool,
    /// How long a memory call takes on the fake clock.
    pub memory_cost: Duration,
    pub memory_calls: usize,
    pub list_calls: usize,
    pub reopened: usize,
}

impl Default for FakeState {
    fn default() -> Self {
        FakeState {
            gpus: 1,
            total: 1000 << 20,
            used: 100 << 20,
            reserved: Some(60 << 20),
            compute: Vec::new(),
            graphics: Vec::new(),
            open_error: None,
            memory_error: None,
            process_error: None,
            busy_error: None,
            climate_error: None,
            device_error: None,
            events: Vec::new(),
            has_mig: false,
            memory_cost: Duration::from_micros(7),
            memory_calls: 0,
            list_calls: 0,
            reopened: 0,
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct FakeDriver(pub Arc<Mutex<FakeState>>, Arc<Mutex<Duration>>);

impl FakeDriver {
    pub fn set(&self, change: impl FnOnce(&mut FakeState)) {
        change(&mut self.0.lock().unwrap());
    }

    pub fn get<T>(&self, read: impl FnOnce(&FakeState) -> T) -> T {
        read(&self.0.lock().unwrap())
    }
}

fn unless<T>(error: Option<GpuError>, value: T) -> Result<T, GpuError> {
    error.map_or(Ok(value), Err)
}

impl GpuSource for FakeDriver {
    fn driver(&mut self) -> DriverFacts {
        DriverFacts { driver: Some("580.1".into()), cuda: Some("13.0".into()) }
    }

    fn devices(&mut self) -> Result<Vec<Result<GpuFacts, GpuError>>, GpuError> {
        let s = self.0.lock().unwrap();
        let facts =
            |i: usize| GpuFacts { uuid: format!("GPU-{i:08x}"), name: "Fake".into(), has_mig: s.has_mig, ..GpuFacts::default() };
        unless(s.open_error.clone(), (0..s.gpus).map(|i| unless(s.device_error.clone(), facts(i))).collect())
    }

    fn memory(&mut self, _device: usize) -> Result<GpuMemory, GpuError> {
        let mut s = self.0.lock().unwrap();
        s.memory_calls += 1;
        *self.1.lock().unwrap() += s.memory_cost;
        let m = GpuMemory { total: s.total, used: s.used, free: s.total - s.used, driver: s.reserved };
        unless(s.memory_error.clone(), m)
    }

    fn processes(&mut self, _device: usize, kind: ProcessKind) -> Result<Vec<GpuProcess>, GpuError> {
        let mut s = self.0.lock().unwrap();
        s.list_calls += usize::from(kind == ProcessKind::Compute);
        let list = match kind {
            ProcessKind::Compute => s.compute.clone(),
            ProcessKind::Graphics => s.graphics.clone(),
            ProcessKind::Mps => Vec::new(),
        };
        unless(s.process_error.clone(), list)
    }

    fn lifetime_peak(&mut self, _device: usize, _pid: u32) -> Option<u64> {
        None
    }

    fn busy(&mut self, _device: usize) -> Result<GpuBusy, GpuError> {
        unless(self.get(|s| s.busy_error.clone()), GpuBusy { busy: 97, bandwidth: 41 })
    }

    fn climate(&mut self, _device: usize) -> Result<Reading, GpuError> {
        unless(self.get(|s| s.climate_error.clone()), Reading { temperature: Some(61), ..Reading::default() })
    }

    fn health(&mut self, _device: usize) -> Result<GpuHealth, GpuError> {
        Ok(GpuHealth { uncorrected: Some(0), ..GpuHealth::default() })
    }

    fn events(&mut self) -> Vec<(Option<usize>, GpuEvent)> {
        std::mem::take(&mut self.0.lock().unwrap().events)
    }

    fn reopen(&mut self) -> Result<(), GpuError> {
        let mut s = self.0.lock().unwrap();
        s.reopened += 1;
        unless(s.open_error.clone(), ())
    }
}

/// A clock set by the test. Slow calls of the fake driver advance it too.
#[derive(Default)]
pub(super) struct FakeClock {
    pub now: Cell<Duration>,
    pub wall_us: Cell<i64>,
    calls: Arc<Mutex<Duration>>,
}

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        self.now.get() + *self.calls.lock().unwrap()
    }

    fn wall_us(&self) -> i64 {
        self.wall_us.get() + self.now().as_micros() as i64
    }
}

/// A fake driver and clock, and an engine that uses them.
pub(super) struct Rehearsal {
    pub driver: FakeDriver,
    pub clock: FakeClock,
    pub engine: Engine,
    pub records: Vec<Record>,
}

impl Rehearsal {
    pub fn new(rates: Rates) -> Self {
        let driver = FakeDriver::default();
        let clock = FakeClock { calls: Arc::clone(&driver.1), ..FakeClock::default() };
        clock.wall_us.set(1_700_000_000_000_000);
        let mine = driver.clone();
        let opener = Box::new(move || match mine.get(|s| s.open_error.clone()) {
            Some(e) => Err(e),
            None => Ok(Box::new(mine.clone()) as Box<dyn GpuSource>),
        });
        // An empty folder, so that the test does not depend on the processes of the machine.
        let lookup = ProcessLookup::new(std::path::Path::new("/nonexistent"), std::path::Path::new("/nonexistent"));
        Rehearsal { driver, clock, engine: Engine::new(opener, rates, Vec::new(), lookup), records: Vec::new() }
    }

    /// Advances time in the steps of the sampling thread. Returns the records of that time.
    pub fn pass(&mut self, time: Duration) -> Vec<Record> {
        let end = self.clock.now.get() + time;
        let mut seen = Vec::new();
        loop {
            seen.extend(self.engine.run_due(&self.clock));
            let calls = *self.clock.calls.lock().unwrap();
            let next = self.engine.next_due().saturating_sub(calls).max(self.clock.now.get() + Duration::from_micros(100));
            if next >= end {
                self.clock.now.set(end);
                break;
            }
            self.clock.now.set(next);
        }
        self.records.extend(seen.iter().cloned());
        seen
    }
}
