//! [`perform`]: runs a program on PyTorch's allocator over a card and reports what happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::card::{Card, Outside};
use super::host_pool::{WholePool, host_size};
use super::message::{End, Ending, Hello, Message, RawEvent};
use super::program::{Program, Step};
use super::wire::VERSION;
use vramscope_core::allocator::{AllocError, BlockIx, CachingAllocator, DeviceError, EventSink};
use vramscope_core::model::{Action, AllocConf, PoolKey, Sample, TorchVersion};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scenario's name for the recording.
    pub scenario: String,
    /// Parameters as text: `seed 1, steps 24`.
    pub parameters: String,
    /// The allocator's settings string.
    pub conf: String,
    /// Most bytes that the allocator may reserve; `None` uses the program's own limit.
    pub limit: Option<u64>,
    /// Pause at each sample, so that users can watch.
    pub pace: Duration,
    /// Start time of a simulated run in microseconds since the epoch.
    pub start_us: i64,
}

/// Microseconds since the epoch.
pub(super) fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

/// Collects the allocator's events.
struct Tap {
    events: Vec<RawEvent>,
    site: u32,
    now_us: i64,
}

impl EventSink for Tap {
    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey) {
        self.events.push(RawEvent { time_us: self.now_us, action, is_host: false, site: self.site, address, size, stream, pool });
    }
}

/// The contents of a slot.
#[derive(Clone, Copy, Default)]
enum Held {
    #[default]
    Nothing,
    Block(BlockIx),
    /// Freed by the program, but pending on a stream.
    Freed(BlockIx),
    Pinned(u64),
    Pooled(u64),
}

enum Halt {
    OutOfMemory(String),
    Failed(String),
}

struct Performance<'o, C: Card> {
    allocator: CachingAllocator<C, Tap>,
    out: &'o mut dyn FnMut(Message),
    slots: Vec<Held>,
    host: WholePool,
    pool: WholePool,
    /// Bytes taken outside the allocator.
    outside: u64,
    /// Highest bytes held by the driver's own pool, and highest live bytes in it.
    pool_peak: (u64, u64),
    has_neighbours: bool,
    free_at_start: u64,
    is_simulated: bool,
    clock_us: i64,
    ranges: Vec<(String, i64)>,
    end: End,
    goes_on: bool,
    /// Bytes held at the last sample.
    sampled: u64,
}

/// Number of events per message.
const BATCH: usize = 1024;

/// Runs `program` on `card`. `opening` are the samples of the card's start with the names of the stages. Reports the final
/// segments and blocks, and then frees everything that the run took before it returns.
///
/// Ends early with [`Ending::Stopped`] when `stop` is set.
pub fn perform<C: Card>(
    mut card: C,
    opening: &[(String, Sample)],
    program: &Program,
    options: &Options,
    stop: &AtomicBool,
    out: &mut dyn FnMut(Message),
) {
    let started = Instant::now();
    let info = card.outside().info();
    let limit = options.limit.or(program.limit);
    out(Message::Hello(Box::new(Hello {
        version: VERSION,
        scenario: options.scenario.clone(),
        card: info.clone(),
        conf: options.conf.clone(),
        limit,
        parameters: options.parameters.clone(),
        sites: program.sites.clone(),
        process: std::process::id(),
    })));
    let conf = match AllocConf::parse(&options.conf) {
        Ok(conf) => conf,
        Err(e) => {
            out(Message::End(Box::new(End { ending: Ending::Failed(e.to_string()), ..End::default() })));
            return;
        }
    };
    let sink = Tap { events: Vec::with_capacity(BATCH), site: u32::MAX, now_us: options.start_us };
    let fraction = conf.per_process_memory_fraction;
    let mut allocator = CachingAllocator::new(card, sink, conf, TorchVersion::REFERENCE);
    if limit.is_some() || fraction >= 1.0 {
        allocator.set_limit(limit);
    }
    let mut run = Performance {
        allocator,
        out,
        slots: vec![Held::Nothing; program.slots as usize],
        host: WholePool::new(true),
        pool: WholePool::new(false),
        outside: 0,
        pool_peak: (0, 0),
        has_neighbours: false,
        free_at_start: info.free,
        is_simulated: info.is_simulated,
        clock_us: options.start_us,
        ranges: Vec::new(),
        end: End::default(),
        goes_on: program.goes_on_after_oom,
        sampled: 0,
    };
    // A replay makes too many requests to sample each change.
    let samples_changes = options.scenario != "replay";
    run.report_opening(opening);
    let mut ending = Ending::Finished;
    for step in &program.steps {
        if stop.load(Ordering::Relaxed) {
            ending = Ending::Stopped;
            break;
        }
        let mut rests = matches!(step, Step::Sample);
        match run.step(step) {
            Ok(()) => {}
            Err(Halt::OutOfMemory(text)) => {
                ending = Ending::OutOfMemory(text);
                break;
            }
            Err(Halt::Failed(text)) => {
                ending = Ending::Failed(text);
                break;
            }
        }
        if samples_changes && !rests && run.held() != run.sampled {
            // The window draws the whole card from samples, so each change gets one.
            run.sample();
            rests = true;
        }
        if let Some(failure) = run.outside().failure() {
            ending = Ending::Failed(failure);
            break;
        }
        if rests && !options.pace.is_zero() && !rest(options.pace, stop) {
            ending = Ending::Stopped;
            break;
        }
    }
    run.finish(ending, started.elapsed());
}

/// Sleeps in short intervals; false when asked to stop.
fn rest(pace: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + pace;
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

impl<C: Card> Performance<'_, C> {
    /// The card outside the allocator.
    fn outside(&mut self) -> &mut dyn Outside {
        self.allocator.memory.outside()
    }

    /// Advances the clock. On a simulated card it adds the time that the calls take on a real one.
    fn tick(&mut self, cost_us: i64) -> i64 {
        self.clock_us = if self.is_simulated { self.clock_us + cost_us } else { now_us() };
        self.allocator.sink.now_us = self.clock_us;
        self.clock_us
    }

    fn report_opening(&mut self, opening: &[(String, Sample)]) {
        let mut before = None;
        for (stage, sample) in opening {
            let at = if self.is_simulated { self.tick(200_000) } else { sample.time_us };
            (self.out)(Message::Sample(Sample {
                time_us: at,
                reserved: Some(0),
                active: Some(0),
                allocated: Some(0),
                requested: Some(0),
                ..*sample
            }));
            if let Some(start_us) = before {
                (self.out)(Message::Range { name: stage.clone(), start_us, end_us: Some(at), depth: 0 });
            }
            before = Some(at);
        }
    }

    fn flush(&mut self) {
        if !self.allocator.sink.events.is_empty() {
            let events = std::mem::replace(&mut self.allocator.sink.events, Vec::with_capacity(BATCH));
            (self.out)(Message::Events(events));
        }
    }

    /// Bytes taken on the card: reserved, in the driver's own pool, and outside the allocator.
    fn held(&self) -> u64 {
        self.allocator.stats().reserved_bytes.all.current + self.pool.reserved() + self.outside
    }

    fn sample(&mut self) {
        self.flush();
        self.sampled = self.held();
        let at = self.tick(10_000);
        let stats = self.allocator.stats();
        let pool = (self.pool.reserved(), self.pool.live());
        let (reserved, active) = (stats.reserved_bytes.all.current + pool.0, stats.active_bytes.all.current + pool.1);
        let (allocated, requested) = (stats.allocated_bytes.all.current + pool.1, stats.requested_bytes.all.current + pool.1);
        let driver = self.outside().sample();
        if !self.has_neighbours {
            let taken = self.free_at_start.saturating_sub(self.allocator.memory.available());
            let difference = taken.abs_diff(reserved + self.outside);
            self.end.driver_difference_bytes = Some(self.end.driver_difference_bytes.unwrap_or(0).max(difference));
            self.end.driver_samples += 1;
        }
        if let Some((nvml, used)) = self.outside().two_counts() {
            let difference = nvml.abs_diff(used);
            self.end.nvml_difference_bytes = Some(self.end.nvml_difference_bytes.unwrap_or(0).max(difference));
        }
        (self.out)(Message::Sample(Sample {
            time_us: at,
            reserved: Some(reserved),
            active: Some(active),
            allocated: Some(allocated),
            requested: Some(requested),
            ..driver
        }));
    }

    /// Adds time stamps to the events of a pool of whole segments and queues them.
    fn take_over(&mut self, mut events: Vec<RawEvent>) {
        for e in &mut events {
            e.time_us = self.clock_us;
        }
        self.allocator.sink.events.append(&mut events);
    }

    fn step(&mut self, step: &Step) -> Result<(), Halt> {
        self.tick(5);
        match *step {
            Step::Alloc { slot, size, stream, pool, site } => {
                let block = self.alloc(size, stream, pool, site)?;
                self.slots[slot as usize] = block.map_or(Held::Nothing, Held::Block);
            }
            Step::TryAlloc { size, stream, pool, site } => {
                if let Some(block) = self.alloc(size, stream, pool, site)? {
                    self.allocator.free(block);
                }
            }
            Step::Free { slot, site } => {
                self.allocator.sink.site = site;
                if let Held::Block(block) = self.take(slot) {
                    self.allocator.free(block);
                }
            }
            Step::FreeLater { slot, site } => {
                self.allocator.sink.site = site;
                if let Held::Block(block) = self.slots[slot as usize] {
                    self.allocator.free_later(block);
                    self.slots[slot as usize] = Held::Freed(block);
                }
            }
            Step::Complete { slot } => {
                if let Held::Freed(block) = self.take(slot) {
                    self.allocator.complete_free(block);
                }
            }
            Step::RecordStream { slot, stream } => {
                if let Held::Block(block) = self.slots[slot as usize] {
                    self.allocator.record_stream(block, stream);
                }
            }
            Step::Hold { stream } => self.outside().hold_stream(stream).map_err(|e| halt(&e))?,
            Step::Release { stream } => self.outside().release_stream(stream),
            Step::EmptyCache => self.allocator.empty_cache().map_err(|e| Halt::Failed(e.to_string()))?,
            Step::BeginPool(key) => self.allocator.begin_pool(key, None).map_err(|e| Halt::Failed(e.to_string()))?,
            Step::EndPool(key) => self.allocator.end_pool(key).map_err(|e| Halt::Failed(e.to_string()))?,
            Step::Outside { size } => {
                self.outside().take_outside(size).map_err(|e| halt(&e))?;
                self.outside += size;
            }
            Step::OutsideGone => {
                self.outside().give_outside_back();
                self.outside = 0;
            }
            Step::Pin { slot, size, site } => self.pin(slot, size, site)?,
            Step::Unpin { slot, site } => {
                if let Held::Pinned(address) = self.take(slot) {
                    let mut events = Vec::new();
                    self.host.free(address, site, &mut events);
                    self.take_over(events);
                }
            }
            Step::PoolKeeps(keeps) => self.outside().set_pool_keeps(keeps).map_err(|e| halt(&e))?,
            Step::PoolAlloc { slot, size, site } => self.pool_alloc(slot, size, site)?,
            Step::PoolFree { slot, site } => {
                if let Held::Pooled(address) = self.take(slot) {
                    let mut events = Vec::new();
                    let size = self.pool.free(address, site, &mut events);
                    self.outside().pool_free(address, size);
                    self.take_over(events);
                }
            }
            Step::Synchronise => {
                self.outside().synchronise();
                let left = self.outside().pool_reserved();
                let mut events = Vec::new();
                self.pool.shrink(left, &mut events);
                self.take_over(events);
            }
            Step::Neighbour { size } => {
                self.outside().add_neighbour(size).map_err(|e| halt(&e))?;
                self.has_neighbours = true;
            }
            Step::Begin(ref name) => self.ranges.push((name.clone(), self.clock_us)),
            Step::End => {
                let end_us = Some(self.tick(1));
                if let Some((name, start_us)) = self.ranges.pop() {
                    (self.out)(Message::Range { name, start_us, end_us, depth: self.ranges.len() as u16 });
                }
            }
            Step::Sample => self.sample(),
        }
        if self.allocator.sink.events.len() >= BATCH {
            self.flush();
        }
        Ok(())
    }

    fn take(&mut self, slot: u32) -> Held {
        std::mem::take(&mut self.slots[slot as usize])
    }

    /// Makes a request. `None` when it failed and the program goes on.
    fn alloc(&mut self, size: u64, stream: u64, pool: PoolKey, site: u32) -> Result<Option<BlockIx>, Halt> {
        self.allocator.sink.site = site;
        self.end.requests += 1;
        match self.allocator.malloc_in(size.max(1), stream, pool) {
            Ok(block) => {
                let (address, whole) = (self.allocator.address(block), self.allocator.block_size(block));
                self.allocator.memory.touch(address, whole, stream);
                Ok(Some(block))
            }
            Err(error @ (AllocError::OutOfMemory(_) | AllocError::Rejected { .. })) => {
                self.end.oom_request.get_or_insert(self.end.requests - 1);
                if self.goes_on { Ok(None) } else { Err(Halt::OutOfMemory(error.to_string())) }
            }
            Err(AllocError::Device(text)) => Err(Halt::Failed(text)),
            Err(AllocError::Pool(text)) => Err(Halt::Failed(text.to_owned())),
        }
    }

    fn pin(&mut self, slot: u32, size: u64, site: u32) -> Result<(), Halt> {
        let whole = host_size(size);
        let mut events = Vec::new();
        let address = match self.host.reuse(whole, size, site, &mut events) {
            Some(address) => address,
            None => {
                let address = self.outside().pin(whole).map_err(|e| match e {
                    DeviceError::OutOfMemory => Halt::Failed("the system has no more memory that can be pinned".to_owned()),
                    DeviceError::Failed(text) => Halt::Failed(text),
                })?;
                self.host.add(address, whole, size, site, &mut events);
                address
            }
        };
        self.slots[slot as usize] = Held::Pinned(address);
        self.take_over(events);
        Ok(())
    }

    fn pool_alloc(&mut self, slot: u32, size: u64, site: u32) -> Result<(), Halt> {
        let before = self.outside().pool_reserved();
        let address = self.outside().pool_alloc(size).map_err(|e| halt(&e))?;
        let grown = self.outside().pool_reserved().saturating_sub(before);
        let mut events = Vec::new();
        if !self.pool.was_reused(address, size, site, &mut events) {
            self.pool.add(address, grown.max(size), size, site, &mut events);
        }
        let (held, live) = self.pool_peak;
        self.pool_peak = (held.max(self.pool.reserved()), live.max(self.pool.live()));
        self.allocator.memory.touch(address, size, 0);
        self.slots[slot as usize] = Held::Pooled(address);
        self.take_over(events);
        Ok(())
    }

    fn finish(mut self, ending: Ending, elapsed: Duration) {
        self.sample();
        while let Some((name, start_us)) = self.ranges.pop() {
            let depth = self.ranges.len() as u16;
            (self.out)(Message::Range { name, start_us, end_us: Some(self.clock_us), depth });
        }
        let mut segments = self.allocator.segments();
        segments.extend(self.pool.segments());
        segments.sort_by_key(|s| s.address);
        (self.out)(Message::State { is_host: false, segments });
        let pinned = self.host.segments();
        if !pinned.is_empty() {
            (self.out)(Message::State { is_host: true, segments: pinned });
        }
        // A scenario uses only one of the two pools, so their figures can be added.
        let stats = self.allocator.stats();
        let mut end = std::mem::take(&mut self.end);
        end.ending = ending;
        end.depends_on_placement = self.allocator.has_tie();
        end.peak_reserved_bytes = stats.reserved_bytes.all.peak + self.pool_peak.0;
        end.peak_allocated_bytes = stats.allocated_bytes.all.peak + self.pool_peak.1;
        end.peak_active_bytes = stats.active_bytes.all.peak + self.pool_peak.1;
        end.peak_requested_bytes = stats.requested_bytes.all.peak + self.pool_peak.1;
        end.peak_inactive_split_bytes = stats.inactive_split_bytes.all.peak;
        end.num_alloc_retries = stats.num_alloc_retries;
        end.num_ooms = stats.num_ooms;
        end.num_device_alloc = stats.num_device_alloc;
        end.num_device_free = stats.num_device_free;
        end.final_reserved_bytes = stats.reserved_bytes.all.current + self.pool.reserved();
        end.final_allocated_bytes = stats.allocated_bytes.all.current;
        end.duration_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        // Frees everything before the end of the run is reported.
        for held in std::mem::take(&mut self.slots) {
            match held {
                Held::Block(block) => self.allocator.free(block),
                Held::Pooled(address) => {
                    let size = self.pool.free(address, u32::MAX, &mut Vec::new());
                    self.outside().pool_free(address, size);
                }
                Held::Freed(_) | Held::Pinned(_) | Held::Nothing => {}
            }
        }
        // A failure here is the card's, and the final message reports it.
        let _ = self.allocator.empty_cache();
        for (address, size) in self.host.all() {
            self.outside().unpin(address, size);
        }
        self.outside().clean_up();
        (self.out)(Message::End(Box::new(end)));
    }
}

/// Converts a failure outside the allocator into the reason to stop.
fn halt(error: &DeviceError) -> Halt {
    match error {
        DeviceError::OutOfMemory => {
            Halt::Failed("the card has no room for what the scenario takes beside the allocator".to_owned())
        }
        DeviceError::Failed(text) => Halt::Failed(text.clone()),
    }
}
