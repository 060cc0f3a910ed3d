//! [`replay`](Replay::run): runs the requests of a recording again on the model.

use super::requests::{Requests, Step};
use crate::allocator::BlockIx;
use crate::allocator::adopt;
use crate::allocator::{AllocError, CachingAllocator, EventSink, MemoryStats, Reach};
use crate::allocator::{Placement, SimulatedMemory};
use crate::model::{AllocConf, Cancelled, Progress, TorchVersion};

/// Memory of a simulated device if the real capacity is unknown; more than any GPU has.
pub(crate) const UNKNOWN_CAPACITY: u64 = 2 * crate::model::EventTable::FREE_UNBOUNDED;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The settings; their `per_process_memory_fraction` is ignored, see [`limit`](Self::limit).
    pub conf: AllocConf,
    /// The release whose rules the allocator follows.
    pub version: TorchVersion,
    /// The most bytes that may be reserved.
    pub limit: Option<u64>,
    /// Where segments are placed once the recording's own addresses no longer apply.
    pub placement: Placement,
    /// If true, uses the recorded addresses for as long as the same segments are requested in the same order.
    pub follows_recording: bool,
    /// If true, frees that waited for another stream complete at once, not at the recorded event.
    pub completes_at_once: bool,
    /// If true, stops at the first failed request; otherwise continues, as the recorded program did.
    pub stops_at_oom: bool,
}

/// Result of a run.
#[derive(Debug)]
pub struct Replayed<S> {
    /// The allocator at the end, with its counters and its sink.
    pub allocator: CachingAllocator<SimulatedMemory, S>,
    /// The first request that failed, counted from 0.
    pub oom_request: Option<u64>,
    /// The event of that request.
    pub oom_event: Option<u32>,
    /// Number of requests, including failed ones.
    pub requests: u64,
    /// The event of the first request that failed in the recording and succeeded here.
    pub rescued_event: Option<u32>,
    /// The error other than out of memory that ended the run, if any.
    pub broken: Option<AllocError>,
}

/// Result of a run, without the allocator.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) stats: MemoryStats,
    pub(crate) reach: Reach,
    /// True if the allocator chose between equal blocks, a choice that depends on addresses.
    pub(crate) has_tie: bool,
    /// True if every growth matched the recording.
    pub(crate) is_following: bool,
    /// Number of growths that matched the recording.
    pub(crate) followed: usize,
    pub(crate) oom_request: Option<u64>,
    pub(crate) requests: u64,
    pub(crate) rescued_event: Option<u32>,
}

impl<S: EventSink> Replayed<S> {
    pub(crate) fn ended(&self) -> Ended {
        let a = &self.allocator;
        Ended {
            stats: a.stats().clone(),
            reach: a.reach(),
            has_tie: a.has_tie(),
            is_following: a.memory.is_following(),
            followed: a.memory.followed(),
            oom_request: self.oom_request,
            requests: self.requests,
            rescued_event: self.rescued_event,
        }
    }
}

/// Observes an allocator after each step of a run.
pub(crate) trait Watcher<S> {
    /// Called after each event of the recording; `false` ends the run.
    fn after(&mut self, event: usize, allocator: &mut CachingAllocator<SimulatedMemory, S>) -> bool;
}

impl<S> Watcher<S> for () {
    #[inline]
    fn after(&mut self, _: usize, _: &mut CachingAllocator<SimulatedMemory, S>) -> bool {
        true
    }
}

impl Replay {
    /// The recording's own settings, without a limit.
    pub fn of(requests: &Requests<'_>) -> Self {
        Replay {
            conf: requests.device.settings.conf.clone(),
            version: TorchVersion::REFERENCE,
            limit: requests.device.limit,
            placement: Placement::Descending,
            follows_recording: true,
            completes_at_once: false,
            stops_at_oom: false,
        }
    }

    /// Runs all requests. About 0.3 µs per request.
    pub fn run<S: EventSink>(&self, requests: &Requests<'_>, sink: S, progress: &Progress) -> Result<Replayed<S>, Cancelled> {
        self.run_watched(requests, sink, &mut (), progress)
    }

    /// Like [`run`](Self::run), but returns only the result without the allocator.
    pub(crate) fn end(&self, requests: &Requests<'_>, progress: &Progress) -> Result<Ended, Cancelled> {
        Ok(self.run(requests, (), progress)?.ended())
    }

    /// Like [`run`](Self::run), with a watcher that is called after each event.
    pub(crate) fn run_watched<S: EventSink, W: Watcher<S>>(
        &self,
        requests: &Requests<'_>,
        sink: S,
        watcher: &mut W,
        progress: &Progress,
    ) -> Result<Replayed<S>, Cancelled> {
        let device = requests.device;
        let mut memory = SimulatedMemory::new(device.capacity.unwrap_or(UNKNOWN_CAPACITY), self.placement);
        if self.follows_recording {
            memory.follow(&requests.growths);
        }
        let mut conf = self.conf.clone();
        // The limit is given separately; the fraction would set another one.
        conf.per_process_memory_fraction = 1.0;
        let mut allocator = CachingAllocator::new(memory, sink, conf, self.version);
        allocator.set_limit(self.limit);
        // Apply this setting whichever release's rules are used, because its effect is the question.
        allocator.throws_early |= self.conf.other("throw_on_cudamalloc_oom") == Some("True");
        let mut slots = vec![BlockIx::NONE; requests.slots as usize];
        adopt(&mut allocator, &requests.start, &mut slots);
        let mut end = Replayed { allocator, oom_request: None, oom_event: None, requests: 0, rescued_event: None, broken: None };
        let a = &mut end.allocator;
        let sizes = &device.events.size;
        let has_untraced = !requests.untraced.is_empty();
        for i in 0..device.events.len() {
            if i % 65_536 == 0 {
                progress.check()?;
                progress.advance_stage(65_536);
            }
            if has_untraced {
                let_go_untraced(a, requests, i, &mut slots);
            }
            let step = requests.step(i);
            if step == Step::Skip {
                continue;
            }
            a.sink.at(i);
            if !requests.captures.is_empty()
                && requests.captures.contains(&(i as u32))
                && let Err(error) = a.empty_cache()
            {
                end.broken = Some(error);
                break;
            }
            match step {
                Step::Skip => {}
                Step::Alloc { .. } | Step::Failing => {
                    end.requests += 1;
                    let served = match a.malloc_in(sizes[i].max(1), requests.stream(i), requests.pool(i)) {
                        Ok(block) => block,
                        Err(AllocError::OutOfMemory(_) | AllocError::Rejected { .. }) => BlockIx::NONE,
                        Err(other) => {
                            end.broken = Some(other);
                            break;
                        }
                    };
                    match (step, served.get()) {
                        (Step::Alloc { slot }, _) => slots[slot as usize] = served,
                        // The recorded program went on without this block.
                        (_, Some(block)) => {
                            if !requests.trials.contains(&(i as u32)) {
                                end.rescued_event.get_or_insert(i as u32);
                            }
                            a.free(block);
                        }
                        _ => {}
                    }
                    if served.get().is_none() && !requests.trials.contains(&(i as u32)) {
                        if end.oom_request.is_none() {
                            end.oom_request = Some(end.requests - 1);
                            end.oom_event = Some(i as u32);
                        }
                        if self.stops_at_oom {
                            break;
                        }
                    }
                }
                Step::FreeLater { slot } if !self.completes_at_once => {
                    if let Some(block) = slots[slot as usize].get() {
                        a.free_later(block);
                    }
                }
                Step::Free { slot } | Step::FreeLater { slot } => {
                    if let Some(block) = take(&mut slots, slot) {
                        a.free(block);
                    }
                }
                Step::Complete { slot } => complete(a, &mut slots, slot),
                Step::EmptyCache => {
                    if let Err(error) = a.empty_cache() {
                        end.broken = Some(error);
                        break;
                    }
                }
            }
            if !requests.after.is_empty()
                && let Some(completed) = requests.after.get(&(i as u32))
            {
                for &slot in completed {
                    complete(a, &mut slots, slot);
                }
            }
            if !watcher.after(i, a) {
                break;
            }
        }
        if has_untraced && (end.oom_request.is_none() || !self.stops_at_oom) {
            let_go_untraced(&mut end.allocator, requests, device.events.len(), &mut slots);
        }
        Ok(end)
    }
}

fn let_go_untraced<S: EventSink>(
    allocator: &mut CachingAllocator<SimulatedMemory, S>,
    requests: &Requests<'_>,
    before: usize,
    slots: &mut [BlockIx],
) {
    for &slot in requests.untraced.get(&(before as u32)).into_iter().flatten() {
        if let Some(block) = take(slots, slot) {
            allocator.free_untraced(block);
        }
    }
}

fn complete<S: EventSink>(allocator: &mut CachingAllocator<SimulatedMemory, S>, slots: &mut [BlockIx], slot: u32) {
    if let Some(block) = take(slots, slot) {
        allocator.complete_free(block);
    }
}

fn take(slots: &mut [BlockIx], slot: u32) -> Option<BlockIx> {
    std::mem::replace(&mut slots[slot as usize], BlockIx::NONE).get()
}
