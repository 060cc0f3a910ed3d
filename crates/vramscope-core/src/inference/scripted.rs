//! Runs a list of requests that is not from a recording: a program's steps with other sizes, or in another order.

use rustc_hash::FxHashMap;

use crate::allocator::BlockIx;
use crate::allocator::HeldSegment;
use crate::allocator::MemoryStats;
use crate::allocator::Reach;
use crate::allocator::adopt;
use crate::allocator::{CachingAllocator, EventSink};
use crate::allocator::{Placement, SimulatedMemory};
use crate::inference::replay::UNKNOWN_CAPACITY;
use crate::inference::requests::Known;
use crate::inference::whatif::Prepared;
use crate::model::{AllocConf, PoolKey, TorchVersion};

/// One step of a script. The script's author chooses the row numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Request the memory of this row.
    Alloc(u32),
    /// Free this row's block, which is reusable at once.
    Free(u32),
    /// Free this row's block, which is reusable only after its `Complete`.
    FreeLater(u32),
    /// Complete the free of this row's block.
    Complete(u32),
    /// Release free segments to the device, as `empty_cache` does.
    EmptyCache,
}

/// The request of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Bytes; a row of 0 bytes is not requested at all.
    pub size: u64,
    /// Raw stream handle; 0 is the default stream.
    pub stream: u64,
    /// Key of the pool; `(0, 0)` is the default pool.
    pub pool: PoolKey,
}

/// A list of requests and the state that it starts from.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// The steps in order. Each names a row by its index in [`rows`](Self::rows).
    pub asks: &'a [Ask],
    /// The request of each row.
    pub rows: &'a [Asked],
    /// The state before the first step; `None` starts with an empty allocator.
    pub start: Option<&'a Start>,
}

/// The state in which a recording began.
#[derive(Clone, Debug)]
pub struct Start {
    known: std::sync::Arc<Known>,
    /// The row of each block, by the block's slot.
    rows: FxHashMap<u32, u32>,
}

impl Start {
    /// The state in which a recording began. `rows` maps the slots of its blocks to rows.
    pub fn of(prepared: &Prepared, rows: FxHashMap<u32, u32>) -> Self {
        Start { known: prepared.known(), rows }
    }
}

/// Options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The settings; their `per_process_memory_fraction` is ignored, see [`limit`](Self::limit).
    pub conf: AllocConf,
    /// The release whose rules the allocator follows.
    pub version: TorchVersion,
    /// The most bytes that may be reserved.
    pub limit: Option<u64>,
    /// Where the simulated driver puts segments.
    pub placement: Placement,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Scripted {
    /// The counters at the end, or at the failed request.
    pub stats: MemoryStats,
    /// Index of the step that failed; `None` if all succeeded.
    pub failed: Option<usize>,
    /// True if the allocator chose between equal blocks, a choice that depends on addresses.
    pub has_tie: bool,
    /// The highest values reached.
    pub reach: Reach,
    /// Block size that each row got, in bytes; 0 for none. A rest too small to split off stays with its block.
    pub blocks: Vec<u64>,
}

impl Script<'_> {
    /// Runs the steps up to the first failure. About 0.3 µs per request.
    pub fn run(&self, terms: &Terms) -> Scripted {
        self.run_into(terms, ()).0
    }

    /// Like [`run`](Self::run), with a sink that gets each step's index before its actions. Also returns it and the final segments.
    pub fn run_into<S: EventSink>(&self, terms: &Terms, sink: S) -> (Scripted, S, Vec<HeldSegment>) {
        let memory = SimulatedMemory::new(UNKNOWN_CAPACITY, terms.placement);
        let mut conf = terms.conf.clone();
        conf.per_process_memory_fraction = 1.0;
        let mut a = CachingAllocator::new(memory, sink, conf, terms.version);
        a.set_limit(terms.limit);
        let (mut held, mut blocks) = (vec![BlockIx::NONE; self.rows.len()], vec![0; self.rows.len()]);
        if let Some(start) = self.start {
            let mut slots = vec![BlockIx::NONE; start.known.slots as usize];
            adopt(&mut a, &start.known.start, &mut slots);
            for (&slot, &row) in &start.rows {
                if let (Some(&block), Some(held)) = (slots.get(slot as usize), held.get_mut(row as usize)) {
                    *held = block;
                    blocks[row as usize] = block.get().map_or(0, |block| a.block_size(block));
                }
            }
        }
        let take = |held: &mut [BlockIx], row: u32| {
            held.get_mut(row as usize).and_then(|held| std::mem::replace(held, BlockIx::NONE).get())
        };
        let mut failed = None;
        for (i, ask) in self.asks.iter().enumerate() {
            a.sink.at(i);
            let is_done = match *ask {
                Ask::Alloc(row) => {
                    let asked = self.rows.get(row as usize).copied().unwrap_or_default();
                    if asked.size == 0 {
                        continue;
                    }
                    match (a.malloc_in(asked.size, asked.stream, asked.pool), held.get_mut(row as usize)) {
                        (Ok(block), Some(held)) => {
                            *held = block;
                            blocks[row as usize] = a.block_size(block);
                            true
                        }
                        _ => false,
                    }
                }
                Ask::Free(row) => {
                    if let Some(block) = take(&mut held, row) {
                        a.free(block);
                    }
                    true
                }
                Ask::FreeLater(row) => {
                    if let Some(block) = held.get(row as usize).and_then(|h| h.get()) {
                        a.free_later(block);
                    }
                    true
                }
                Ask::Complete(row) => {
                    if let Some(block) = take(&mut held, row) {
                        a.complete_free(block);
                    }
                    true
                }
                Ask::EmptyCache => a.empty_cache().is_ok(),
            };
            if !is_done {
                failed = Some(i);
                break;
            }
        }
        let segments = a.segments();
        (Scripted { has_tie: a.has_tie(), reach: a.reach(), stats: a.stats, failed, blocks }, a.sink, segments)
    }
}
