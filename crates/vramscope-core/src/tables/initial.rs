//! Finds the blocks that were live before the trace began (a ring buffer that wrapped, or a recording started mid-run).

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::instant::NO_EVENT;
use super::runs::{RunTimeline, known_pool};
use crate::model::{Action, AllocConf, BlockState, Cancelled, DeviceRecording, PoolId, Progress, SizeClass, StackId, StreamId};

/// A block that was live before the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Initial {
    pub(crate) address: u64,
    pub(crate) requested: u64,
    /// The block's size if the end state contains it, else 0.
    pub(crate) block: u64,
    pub(crate) stack: StackId,
    pub(crate) stream: StreamId,
    pub(crate) pool: PoolId,
    pub(crate) class: SizeClass,
    pub(crate) pending: bool,
}

/// The blocks live before the trace: those freed without an allocation, and those in the end state that the trace never touches.
/// Order: blocks that outlive the trace first, then by descending time of their free, a guess at oldest first.
pub(crate) fn find_initial(
    dev: &DeviceRecording,
    timeline: &RunTimeline,
    progress: &Progress,
) -> Result<Vec<Initial>, Cancelled> {
    const CHUNK: usize = 1 << 20;
    let events = &dev.events;
    // The first event at each address decides: if it is a free, a block was live there.
    let chunks: Vec<FxHashMap<u64, u32>> = events
        .action
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(n, actions)| {
            progress.check()?;
            let mut first: FxHashMap<u64, u32> = FxHashMap::default();
            for (i, action) in actions.iter().enumerate() {
                if matches!(action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted) {
                    let event = n * CHUNK + i;
                    first.entry(events.address[event]).or_insert(event as u32);
                }
            }
            Ok(first)
        })
        .collect::<Result<_, Cancelled>>()?;
    let mut first: FxHashMap<u64, u32> = FxHashMap::default();
    for chunk in chunks {
        if first.is_empty() {
            first = chunk;
            continue;
        }
        for (address, event) in chunk {
            first.entry(address).or_insert(event);
        }
    }
    let has_requests = records_requests(dev);
    let class_of = |address: u64, size: u64| {
        let at = timeline.initial.partition_point(|r| r.address <= address).checked_sub(1);
        match at.map(|at| &timeline.initial[at]).filter(|r| address < r.address + r.size) {
            Some(run) => (run.class, run.pool),
            None => (AllocConf::size_class(size), PoolId::UNKNOWN),
        }
    };
    let mut found: Vec<(u32, Initial)> = Vec::new();
    if dev.has_final_state {
        for segment in &dev.segments {
            for block in dev.blocks_of(segment) {
                if block.state != BlockState::Inactive && !first.contains_key(&block.address) {
                    let initial = Initial {
                        address: block.address,
                        requested: block.requested,
                        block: block.size,
                        stack: block.stack,
                        stream: segment.stream,
                        pool: known_pool(dev, segment.pool),
                        class: segment.class,
                        pending: block.state == BlockState::PendingFree,
                    };
                    found.push((NO_EVENT, initial));
                }
            }
        }
    }
    // A source without segments can still list live blocks (JAX).
    if dev.segments.is_empty() {
        for block in dev.blocks.iter().filter(|b| b.state != BlockState::Inactive && !first.contains_key(&b.address)) {
            let initial = Initial {
                address: block.address,
                requested: block.requested,
                block: block.size,
                stack: block.stack,
                stream: StreamId(0),
                pool: PoolId::UNKNOWN,
                class: AllocConf::size_class(block.size),
                pending: block.state == BlockState::PendingFree,
            };
            found.push((NO_EVENT, initial));
        }
    }
    for (&address, &event) in &first {
        let i = event as usize;
        if events.action[i] == Action::Alloc {
            continue;
        }
        let (class, run_pool) = class_of(address, events.size[i]);
        let pool = match known_pool(dev, events.pool[i]) {
            PoolId::UNKNOWN => run_pool,
            known => known,
        };
        let pending = has_requests && events.action[i] == Action::FreeCompleted;
        let requested = events.size[i];
        let stream = events.stream[i];
        found.push((event, Initial { address, requested, block: 0, stack: StackId::NONE, stream, pool, class, pending }));
    }
    found.sort_unstable_by_key(|(event, b)| (std::cmp::Reverse(*event), b.address));
    Ok(found.into_iter().map(|(_, b)| b).collect())
}

/// False when the recording omits free requests (`skip_actions`): a block allocated in the trace completes its free without one.
fn records_requests(dev: &DeviceRecording) -> bool {
    let events = &dev.events;
    if events.action.contains(&Action::FreeRequested) {
        return true;
    }
    let mut born = FxHashSet::default();
    events.action.iter().zip(&events.address).all(|(action, address)| {
        if *action == Action::Alloc {
            born.insert(*address);
        }
        *action != Action::FreeCompleted || !born.contains(address)
    })
}
