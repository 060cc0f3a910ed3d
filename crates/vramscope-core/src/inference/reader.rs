//! Reconstructs the requests of a program from its trace, event by event: which releases were calls of `empty_cache`, which
//! belonged to a request that was retried, and which segments belong to private pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::assume::Assumption;
use super::cap_range::Bounds;
use super::requests::{EMPTY_CACHE, Known, LATER, Requests, Retry, SKIP, Step, step_of};
use super::start;
use crate::allocator::Growth;
use crate::model::{Action, Cancelled, DeviceRecording, EventTable, PoolKey, Progress, StackId};

/// Page size of an expandable segment in the large pool.
const PAGE: u64 = 20 << 20;

impl<'a> Requests<'a> {
    /// Reads the requests of a device. One pass with a map of live addresses, about 60 ns per event.
    pub fn read(device: &'a DeviceRecording, progress: &Progress) -> Result<Self, Cancelled> {
        let known = read(device, false, progress)?;
        Ok(Requests::again(device, Arc::new(known)))
    }

    /// Like [`read`](Self::read), for a trace that starts at the first allocation but whose segments are later than its last
    /// event, as in a file that was cut short.
    pub(crate) fn read_from_nothing(device: &'a DeviceRecording, progress: &Progress) -> Result<Self, Cancelled> {
        let known = read(device, true, progress)?;
        Ok(Requests::again(device, Arc::new(known)))
    }
}

fn read(device: &DeviceRecording, from_nothing: bool, progress: &Progress) -> Result<Known, Cancelled> {
    let mut reader = Reader::new(device, from_nothing);
    reader.run(progress)?;
    Ok(reader.finish())
}

/// Events since the last request: completions and releases that belong to the next request, or to `empty_cache`.
#[derive(Default)]
struct Stretch {
    first_release: Option<usize>,
    first_release_stack: Option<StackId>,
    reserved_before: u64,
    /// True if only whole segments of the large pool were released, as garbage collection does.
    only_large_segments: bool,
    completions: Vec<(usize, u32)>,
}

struct Reader<'a> {
    device: &'a DeviceRecording,
    out: Known,
    /// Slot of each live address.
    live: FxHashMap<u64, u32>,
    /// Slots of blocks whose free was requested but has not completed, by address.
    pending: FxHashMap<u64, u32>,
    vacant: Vec<u32>,
    /// Slots that become vacant after the current request.
    vacant_later: Vec<u32>,
    stretch: Stretch,
    reserved: u64,
    /// Bytes by which reserved memory grew since the last request.
    grown: u64,
    /// The most bytes that were reserved, or that a successful request needed.
    peak_needed: u64,
    /// Releases that may belong to a retry; decided when the peak is known.
    undecided: Vec<Undecided>,
    /// Private segments by address: their first event, size and key.
    private_segments: BTreeMap<u64, (u64, PoolKey)>,
    private_begins: FxHashMap<usize, (u64, PoolKey)>,
    /// The last two requests, older first.
    last_allocs: [usize; 2],
    unmatched: u64,
}

struct Undecided {
    release: Option<usize>,
    request: usize,
    needed: u64,
    same_stack: Option<bool>,
    only_large_segments: bool,
    completions: Vec<(usize, u32)>,
}

impl<'a> Reader<'a> {
    fn new(device: &'a DeviceRecording, from_nothing: bool) -> Self {
        let start = if from_nothing { Vec::new() } else { start::segments_before(device) };
        let reserved = start.iter().map(|s| s.size).sum();
        let mut reader = Reader {
            device,
            out: Known {
                plan: vec![SKIP; device.events.len()],
                start,
                ignores_end: from_nothing,
                least_limit: reserved,
                bounds: Bounds::new(reserved),
                ..Known::default()
            },
            live: FxHashMap::default(),
            pending: FxHashMap::default(),
            vacant: Vec::new(),
            vacant_later: Vec::new(),
            stretch: Stretch::default(),
            reserved,
            grown: 0,
            peak_needed: reserved,
            undecided: Vec::new(),
            private_segments: BTreeMap::new(),
            private_begins: FxHashMap::default(),
            last_allocs: [usize::MAX; 2],
            unmatched: 0,
        };
        reader.find_private_segments();
        let events = &device.events;
        reader.out.trials = events.refused_trials().into_iter().chain(events.granted_trials()).collect();
        for segment in &mut reader.out.start {
            for block in segment.blocks.iter_mut().filter(|b| b.is_in_use()) {
                block.slot = reader.out.slots;
                reader.out.slots += 1;
                if block.is_pending {
                    reader.pending.insert(block.address, block.slot);
                } else {
                    reader.live.insert(block.address, block.slot);
                }
            }
        }
        reader
    }

    /// Before 2.12 only the segments in the end state name their pool. Traces each of them back to its first event.
    fn find_private_segments(&mut self) {
        let device = self.device;
        let private: Vec<_> = device
            .segments
            .iter()
            .filter_map(|s| device.pool_key(s.pool).filter(|&k| k != (0, 0)).map(|k| (s.address, s.size, k)))
            .collect();
        if private.is_empty() {
            return;
        }
        for (address, size, key) in private {
            let began = (0..device.events.len()).rev().find(|&i| {
                matches!(device.events.action[i], Action::SegmentAlloc | Action::SegmentMap)
                    && device.events.address[i] == address
            });
            match began {
                Some(event) => {
                    self.private_begins.insert(event, (size, key));
                }
                None => {
                    self.private_segments.insert(address, (size, key));
                }
            }
        }
    }

    fn private_pool_at(&self, address: u64) -> Option<PoolKey> {
        let (base, (size, key)) = self.private_segments.range(..=address).next_back()?;
        (address < base + size).then_some(*key)
    }

    fn new_slot(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.out.slots += 1;
            self.out.slots - 1
        })
    }

    fn run(&mut self, progress: &Progress) -> Result<(), Cancelled> {
        let events = &self.device.events;
        for i in 0..events.len() {
            if i % 65_536 == 0 {
                progress.check()?;
                progress.advance_stage(65_536);
            }
            let (address, size) = (events.address[i], events.size[i]);
            match events.action[i] {
                Action::Alloc => self.alloc(i, address, size),
                Action::Oom => self.oom(i, address, size),
                Action::FreeRequested => self.free(i, address),
                Action::FreeCompleted => self.complete(i, address),
                Action::SegmentAlloc | Action::SegmentMap => self.grow(i, address, size),
                Action::SegmentFree | Action::SegmentUnmap => self.shrink(i, address, size),
                Action::Snapshot | Action::Annotate | Action::Unknown => {}
            }
        }
        self.end_stretch_as_empty_cache();
        self.settle();
        Ok(())
    }

    fn alloc(&mut self, i: usize, address: u64, size: u64) {
        let events = &self.device.events;
        self.out.count += 1;
        let grown = std::mem::take(&mut self.grown);
        if grown > 0 {
            let conf = &self.device.settings.conf;
            // PyTorch compares the limit with a whole segment, even if fewer pages are missing.
            let needed = self.reserved.saturating_sub(grown) + conf.segment_size(conf.round_size(size));
            self.peak_needed = self.peak_needed.max(needed);
            // Expandable segments map whole pages, beyond what PyTorch compared with the cap.
            let beyond = if conf.expandable_segments { PAGE } else { 0 };
            self.out.bounds.held(i as u32, needed.max(self.reserved.saturating_sub(beyond)));
        }
        self.end_stretch(i, grown > 0);
        let recorded = self.device.pool_key(events.pool[i]);
        if let Some(key) =
            recorded.or_else(|| if self.private_segments.is_empty() { None } else { self.private_pool_at(address) })
            && key != (0, 0)
        {
            self.note_capture(i);
            self.out.private.insert(i as u32, key);
        }
        self.last_allocs = [self.last_allocs[1], i];
        let slot = self.new_slot();
        self.vacant.append(&mut self.vacant_later);
        if self.live.insert(address, slot).is_some() {
            self.unmatched += 1;
        }
        self.out.plan[i] = slot;
    }

    /// `torch.cuda.graph` empties the cache, allocates the random generator's seed and offset (8 bytes each) in the default pool,
    /// and then captures into its own pool. The call that empties the cache leaves no event if there was nothing to release.
    fn note_capture(&mut self, request: usize) {
        let events = &self.device.events;
        let is_register = |i: usize| {
            events.size.get(i) == Some(&8)
                && events.stream[i] == events.stream[request]
                && !self.out.private.contains_key(&(i as u32))
        };
        if self.last_allocs.iter().all(|&i| is_register(i)) {
            self.out.captures.insert(self.last_allocs[0] as u32);
        }
    }

    fn oom(&mut self, i: usize, available: u64, rounded: u64) {
        self.out.count += 1;
        let segment = self.device.settings.conf.segment_size(rounded);
        let refused = self.reserved.saturating_add(segment);
        self.out.refused = Some(self.out.refused.map_or(refused, |r| r.min(refused)));
        if !EventTable::has_room(available, segment) {
            let room = (self.reserved + available).min(refused.saturating_sub(1));
            self.out.device_room = Some(self.out.device_room.map_or(room, |r| r.min(room)));
        } else if let Some(whole) = self.device.capacity.filter(|&whole| refused > whole) {
            // Profiler traces do not record free memory. A request beyond the whole device's memory fails without any cap.
            self.out.device_room = Some(self.out.device_room.map_or(whole, |r| r.min(whole)));
        } else {
            self.out.bounds.refused(i as u32, self.reserved, refused);
        }
        self.grown = 0;
        self.end_stretch(i, true);
        self.vacant.append(&mut self.vacant_later);
    }

    fn free(&mut self, i: usize, address: u64) {
        self.end_stretch_as_empty_cache();
        let Some(slot) = self.live.remove(&address) else {
            self.unmatched += 1;
            return;
        };
        let events = &self.device.events;
        let at_once = events.action.get(i + 1) == Some(&Action::FreeCompleted) && events.address[i + 1] == address;
        if at_once {
            self.out.plan[i] = slot;
            self.vacant.push(slot);
        } else {
            self.out.plan[i] = slot | LATER;
            self.pending.insert(address, slot);
        }
    }

    fn complete(&mut self, i: usize, address: u64) {
        // A completion right after its own free was handled together with it; then nothing is pending here.
        if let Some(slot) = self.pending.remove(&address) {
            self.stretch.completions.push((i, slot));
            self.vacant_later.push(slot);
        }
    }

    fn grow(&mut self, i: usize, address: u64, size: u64) {
        let events = &self.device.events;
        let is_map = events.action[i] == Action::SegmentMap;
        let stream = self.device.stream_handle(self.device.events.stream[i]);
        self.out.growths.push(Growth { event: i as u32, is_map, address, size, stream });
        self.reserved += size;
        let recorded = self.device.pool_key(events.pool[i]).filter(|&k| k != (0, 0));
        if let Some(&(size, key)) = self.private_begins.get(&i) {
            self.private_segments.insert(address, (size, key));
        } else if let Some(key) = recorded {
            self.private_segments.insert(address, (size, key));
        }
        self.grown += size;
    }

    fn shrink(&mut self, i: usize, address: u64, size: u64) {
        if self.stretch.first_release.is_none() {
            self.stretch.first_release = Some(i);
            self.stretch.only_large_segments = true;
            self.stretch.reserved_before = self.reserved;
            let stack = self.device.events.stack[i];
            self.stretch.first_release_stack = stack.is_some().then_some(stack);
        }
        let is_small = size == crate::model::conf::SMALL_SEGMENT;
        self.stretch.only_large_segments &= self.device.events.action[i] == Action::SegmentFree && !is_small;
        self.reserved = self.reserved.saturating_sub(size);
        if !self.private_segments.is_empty() {
            self.private_segments.remove(&address);
        }
    }

    /// A request ends the stretch. Its releases were part of the request, or of an `empty_cache` before it.
    fn end_stretch(&mut self, request: usize, grew: bool) {
        let stretch = std::mem::take(&mut self.stretch);
        let device = self.device;
        let is_failure = device.events.action[request] == Action::Oom;
        let waited_for_nothing = stretch.first_release.is_none() && !(is_failure && !stretch.completions.is_empty());
        if !grew || waited_for_nothing {
            if let Some(release) = stretch.first_release {
                self.out.plan[release] = EMPTY_CACHE;
            }
            self.record_completions(&stretch.completions);
            return;
        }
        let rounded = match device.events.action[request] {
            Action::Oom => device.events.size[request],
            _ => device.settings.conf.round_size(device.events.size[request]),
        };
        let before = stretch.first_release.map_or(self.reserved, |_| stretch.reserved_before);
        let needed = before + device.settings.conf.segment_size(rounded);
        let stack = device.events.stack[request];
        let same_stack = stretch.first_release_stack.filter(|_| stack.is_some()).map(|s| s == stack);
        self.undecided.push(Undecided {
            release: stretch.first_release,
            request,
            needed,
            same_stack,
            only_large_segments: stretch.only_large_segments,
            completions: stretch.completions,
        });
    }

    fn end_stretch_as_empty_cache(&mut self) {
        let stretch = std::mem::take(&mut self.stretch);
        if let Some(release) = stretch.first_release {
            self.out.plan[release] = EMPTY_CACHE;
        }
        self.record_completions(&stretch.completions);
        self.vacant.append(&mut self.vacant_later);
    }

    fn record_completions(&mut self, completions: &[(usize, u32)]) {
        self.out.record_completions(completions);
    }

    /// Decides the undecided releases, now that the peak is known. A request was not refused if its stack differs from that of the
    /// releases, or, without stacks, if it would have fitted below the peak. The releases before it then came from `empty_cache`,
    /// unless garbage collection explains them.
    fn settle(&mut self) {
        let collects_garbage = self.device.settings.conf.garbage_collection_threshold > 0.0;
        for u in std::mem::take(&mut self.undecided) {
            self.out.most_needed = self.out.most_needed.max(u.needed);
            let is_failure = self.device.events.action[u.request] == Action::Oom;
            let is_refused = is_failure || u.same_stack.unwrap_or(u.needed > self.peak_needed);
            let is_garbage = collects_garbage && u.only_large_segments;
            if !is_refused && !is_garbage {
                if let Some(release) = u.release {
                    self.out.plan[release] = EMPTY_CACHE;
                }
                self.out.record_completions(&u.completions);
                continue;
            }
            // If the device itself had no room, the failure says nothing about a cap.
            let events = &self.device.events;
            let segment = || self.device.settings.conf.segment_size(events.size[u.request]);
            let was_full =
                is_failure && events.device_free(u.request as u32).is_some_and(|free| !EventTable::has_room(free, segment()));
            if is_refused && !was_full && !collects_garbage && u.needed > self.peak_needed {
                self.out.refused = Some(self.out.refused.map_or(u.needed, |r| r.min(u.needed)));
                // A refusal by a full device does not bound the cap, and the failure has already shown how much room there was.
                let events = &self.device.events;
                let segment = self.device.settings.conf.segment_size(events.size[u.request]);
                let fits_device = self.device.capacity.is_none_or(|whole| u.needed <= whole);
                // Once the device itself was full, that also explains the retries, so they do not show a cap.
                let may_be_cap = if is_failure {
                    EventTable::has_room(events.address[u.request], segment)
                } else {
                    self.out.device_room.is_none()
                };
                if fits_device && may_be_cap {
                    self.out.bounds.refused_before(u.request as u32, u.needed);
                }
            }
            let split = u.release.map_or(u.completions.len(), |release| u.completions.partition_point(|c| c.0 < release));
            let (polled, waited) = u.completions.split_at(split);
            self.out.record_completions(polled);
            if !waited.is_empty() {
                self.out.after.insert(u.request as u32, waited.iter().map(|&(_, slot)| slot).collect());
            }
            let first = u.completions.first().map(|c| c.0).into_iter().chain(u.release).min();
            self.out.retries.push(Retry {
                from: first.unwrap_or(u.request),
                release: u.release,
                request: u.request,
                completions_waited: polled.is_empty(),
                completions: u.completions,
            });
        }
    }

    fn finish(mut self) -> Known {
        self.out.least_limit = self.peak_needed;
        let uncertain: u64 = self.out.start.iter().flat_map(|s| &s.blocks).filter(|b| b.size_is_a_guess).count() as u64;
        if !self.out.start.is_empty() {
            let blocks = self.out.start.iter().flat_map(|s| &s.blocks).filter(|b| b.is_in_use()).count() as u64;
            self.out.assumptions.push(Assumption::StartedEarlier { blocks, uncertain });
        }
        let known = self.out.start.iter().flat_map(|s| &s.blocks).filter(|b| b.is_in_use());
        let bytes = self.device.source_totals.beyond(u32::MAX, known.map(|b| b.size).sum());
        if bytes > 0 {
            self.out.assumptions.push(Assumption::BeforeProfiling { bytes });
        }
        if self.out.growths.is_empty() && self.out.start.is_empty() && self.out.count > 0 {
            self.out.assumptions.push(Assumption::NoSegmentEvents);
        }
        if self.unmatched > 0 {
            self.out.assumptions.push(Assumption::UnmatchedEvents { count: self.unmatched });
        }
        if !self.out.private.is_empty() {
            self.out.assumptions.push(Assumption::PrivatePools { count: self.out.private.len() as u64 });
        }
        let later = |i: &usize| step_of(self.device.events.action[*i], self.out.plan[*i]);
        let pending = (0..self.out.plan.len()).filter(|i| matches!(later(i), Step::FreeLater { .. })).count() as u64;
        if pending > 0 {
            self.out.assumptions.push(Assumption::GuardedFrees { count: pending });
        }
        self.out
    }
}
