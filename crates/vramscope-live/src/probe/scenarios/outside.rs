//! Memory outside the caching allocator: the context, libraries, other processes, the host, the driver's pool.

use super::{Param, Program, Scenario, Unit};
use crate::probe::program::Step;
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE};

pub(super) const CONTEXT: Scenario = Scenario {
    name: "context",
    title: "What a CUDA context costs, step by step",
    watch: "Hundreds of MiB are gone before the first tensor: cuInit, the primary context, the first byte.",
    shows: "Accounting: nearly everything is outside PyTorch. Timeline: ranges for each stage. Findings: memory outside PyTorch.",
    conf: "",
    params: &[Param::new("tensor", Unit::Bytes, 2 * MEBIBYTE, (512, 64 * MEBIBYTE), "the first tensor")],
    build: |v, _| {
        let mut p = Program::new();
        let first = p.site("first tensor", "start");
        p.within("first tensor", |p| p.alloc(v.get("tensor"), first));
        Ok(p)
    },
};

pub(super) const NON_PYTORCH: Scenario = Scenario {
    name: "non_pytorch",
    title: "A library takes memory beside the allocator",
    watch: "What the card uses climbs while reserved memory stays flat, until a request of PyTorch finds no room.",
    shows: "Accounting: outside PyTorch grows. OOM autopsy: memory outside PyTorch.",
    conf: "",
    params: &[
        Param::new("reserved", Unit::Bytes, GIBIBYTE, (64 * MEBIBYTE, 64 * GIBIBYTE), "what PyTorch holds"),
        Param::new("pieces", Unit::Count, 12, (1, 500), "in how many pieces the library takes the rest"),
    ],
    build: |v, room| {
        let held = v.get("reserved");
        if held > room.free / 4 {
            return Err(format!(
                "reserved is at most a quarter of what may be taken of the card, {} here, and not {}",
                Bytes(room.free / 4),
                Bytes(held)
            ));
        }
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let batch = p.site("next batch", "training step");
        p.begin("set-up");
        for part in [held / 4, held / 4, held / 4, held - held / 4 * 3] {
            p.alloc(part, weights);
        }
        p.end();
        let pieces = v.get("pieces");
        // The library takes so much that only a quarter of the next request fits.
        let piece = room.free.saturating_sub(held + held / 4) / pieces / (2 * MEBIBYTE) * (2 * MEBIBYTE);
        for i in 0..pieces {
            p.within(format!("communicator {}", i + 1), |p| p.push(Step::Outside { size: piece }));
        }
        p.within("training step", |p| p.alloc(held.max(512 * MEBIBYTE), batch));
        Ok(p)
    },
};

pub(super) const CONTENTION: Scenario = Scenario {
    name: "contention",
    title: "Several processes on one card",
    watch: "Other processes take their shares one after another; then this one finds no room for what it needs.",
    shows: "Accounting: other processes hold most of the card. OOM autopsy: others hold the device.",
    conf: "",
    params: &[
        Param::new("processes", Unit::Count, 3, (1, 8), "other processes"),
        Param::new("percent", Unit::Percent, 27, (1, 90), "of the free memory, for each"),
        Param::new(
            "block",
            Unit::Bytes,
            512 * MEBIBYTE,
            (64 * MEBIBYTE, 16 * GIBIBYTE),
            "how much this process asks for at a time",
        ),
    ],
    build: |v, room| {
        let mut p = Program::new();
        let weights = p.site("weights", "load the model");
        let (processes, percent) = (v.get("processes"), v.get("percent"));
        if percent * processes > 96 {
            return Err(format!(
                "{processes} processes with {percent} % each are more than 96 % of what is free; percent is at most {} for so many",
                96 / processes
            ));
        }
        let share = room.free / 100 * percent / (2 * MEBIBYTE) * (2 * MEBIBYTE);
        for i in 0..v.get("processes") {
            p.within(format!("process {}", i + 2), |p| p.push(Step::Neighbour { size: share }));
        }
        let block = v.get("block");
        for i in 0..room.free / block + 4 {
            p.within(format!("block {}", i + 1), |p| p.alloc(block, weights));
        }
        Ok(p)
    },
};

pub(super) const PINNED_HOST: Scenario = Scenario {
    name: "pinned_host",
    title: "Pinned host memory of data loaders",
    watch: "Host memory is pinned in powers of two and kept; the card stays flat.",
    shows: "Contents: a device of pinned host memory. Findings: pinned host memory, and how much of it is rounding.",
    conf: "",
    params: &[
        Param::new(
            "batch",
            Unit::Bytes,
            150 * MEBIBYTE,
            (MEBIBYTE, 2 * GIBIBYTE),
            "a batch in host memory; a power of two loses nothing to rounding",
        ),
        Param::new("prefetched", Unit::Count, 6, (1, 64), "batches held at once"),
        Param::new("steps", Unit::Count, 12, (2, 1_000), "steps"),
    ],
    build: |v, _| {
        let mut p = Program::new();
        let pinned = p.site("prefetched batches", "data loader");
        let staged = p.site("batch on the card", "training step");
        let mut queue = std::collections::VecDeque::new();
        p.begin("start of the loader");
        for _ in 0..v.get("prefetched") {
            let slot = p.new_slot();
            p.push(Step::Pin { slot, size: v.get("batch"), site: pinned });
            queue.push_back(slot);
        }
        p.end();
        for step in 0..v.get("steps") {
            p.begin(format!("ProfilerStep#{step}"));
            let slot = p.alloc(32 * MEBIBYTE, staged);
            if let Some(used) = queue.pop_front() {
                p.push(Step::Unpin { slot: used, site: pinned });
            }
            let next = p.new_slot();
            p.push(Step::Pin { slot: next, size: v.get("batch"), site: pinned });
            queue.push_back(next);
            p.free(slot, staged);
            p.end();
        }
        Ok(p)
    },
};

pub(super) const POOL_RETENTION: Scenario = Scenario {
    name: "pool_retention",
    title: "The driver's own pool keeps what is freed",
    watch: "After every synchronisation nothing is live, and the card's used memory does not fall. With keep=0 it does.",
    shows: "Timeline: live falls to nothing under a flat reserved line. Findings: the driver's pool keeps what was freed.",
    conf: "backend:cudaMallocAsync",
    params: &[
        Param::new("size", Unit::Bytes, 256 * MEBIBYTE, (64 * MEBIBYTE, 16 * GIBIBYTE), "a buffer"),
        Param::new("buffers", Unit::Count, 6, (1, 200), "buffers a step"),
        Param::new("steps", Unit::Count, 6, (2, 1_000), "steps"),
        Param::new("keep", Unit::Count, 1, (0, 1), "1: the pool keeps everything, as PyTorch sets it; 0: CUDA's default"),
    ],
    build: |v, _| {
        let size = v.get("size");
        if !size.is_multiple_of(32 * MEBIBYTE) {
            return Err(format!("size is a multiple of 32 MiB, by which the driver's pool grows, and not {}", Bytes(size)));
        }
        let mut p = Program::new();
        let buffers = p.site("buffers", "training step");
        p.push(Step::PoolKeeps(v.get("keep") == 1));
        for step in 0..v.get("steps") {
            p.begin(format!("ProfilerStep#{step}"));
            let held: Vec<u32> = (0..v.get("buffers"))
                .map(|_| {
                    let slot = p.new_slot();
                    p.push(Step::PoolAlloc { slot, size, site: buffers });
                    slot
                })
                .collect();
            p.push(Step::Sample);
            for slot in held {
                p.push(Step::PoolFree { slot, site: buffers });
            }
            p.push(Step::Synchronise);
            p.end();
        }
        Ok(p)
    },
};
