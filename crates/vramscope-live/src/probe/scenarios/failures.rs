//! Requests that fail because of fragmentation, lack of memory or a cap; and the same requests when they succeed.

use super::{Param, Program, Random, Room, SEED, Scenario, Unit, Values};
use crate::probe::program::Step;
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE};

const MEMORY: Param = Param::new(
    "memory",
    Unit::Bytes,
    4 * GIBIBYTE,
    (4 * GIBIBYTE, 512 * GIBIBYTE),
    "what the allocator may reserve, so that the card need not be filled",
);
const REQUEST: Param = Param::new(
    "request",
    Unit::Bytes,
    GIBIBYTE,
    (640 * MEBIBYTE, 128 * GIBIBYTE),
    "the request at the end; at most a quarter of memory",
);

pub(super) const FRAGMENTATION: Scenario = Scenario {
    name: "fragmentation",
    title: "Fragmentation to out of memory",
    watch: "Three quarters of reserved memory are free when the last request fails: no hole is large enough.",
    shows: "Segment map: every segment hatched but for one live block. OOM autopsy: fragmentation, with the blockers. Findings: no hole fits.",
    conf: "",
    params: &[MEMORY, REQUEST, SEED],
    build: pieces,
};

pub(super) const HEALTHY: Scenario = Scenario {
    name: "healthy",
    title: "The same requests with expandable segments",
    watch: "The last request passes: pages under the holes are unmapped and mapped again where they are needed.",
    shows: "Timeline: segment_unmap and segment_map at the last request, no out-of-memory event. Findings: nothing stands out.",
    conf: "expandable_segments:True",
    params: &[MEMORY, REQUEST, SEED],
    build: pieces,
};

/// Splits whole segments into a large part that is freed and a small part that stays.
fn pieces(v: &Values, room: &Room) -> Result<Program, String> {
    const SEGMENT: u64 = 64 * MEBIBYTE;
    let (memory, request) = (v.get("memory"), v.get("request"));
    if memory > room.free {
        return Err(too_much("memory", memory, room));
    }
    if request > memory / 4 {
        return Err(format!(
            "request is at most a quarter of memory, {} here, so that the holes together could hold it, and not {}",
            Bytes(memory / 4),
            Bytes(request)
        ));
    }
    // Under the cap there remains room for a context, so that the process stays below the cap, but not for the request.
    let left = (request * 3 / 4).max(576 * MEBIBYTE) / SEGMENT * SEGMENT;
    let mut random = Random::new(v.get("seed"));
    let mut p = Program::new();
    p.limit = Some(memory);
    let batch = p.site("largest batch", "warm-up");
    let activations = p.site("activations", "requests");
    let cache = p.site("cache entries", "requests");
    let prompt = p.site("long prompt", "last request");
    p.begin("warm-up");
    let segments = (memory - left) / SEGMENT;
    let warm: Vec<u32> = (0..segments).map(|_| p.alloc(SEGMENT, batch)).collect();
    p.push(Step::Sample);
    p.free_all(warm, batch);
    p.end();
    let mut temporary = Vec::new();
    for group in 0..8 {
        p.begin(format!("requests {}", group + 1));
        for _ in segments * group / 8..segments * (group + 1) / 8 {
            let kept = 2 * MEBIBYTE * random.between(6, 10);
            temporary.push(p.alloc(SEGMENT - kept, activations));
            p.alloc(kept, cache);
        }
        p.end();
    }
    p.begin("requests done");
    p.free_all(temporary, activations);
    p.end();
    p.begin("last request");
    let last = p.alloc(request, prompt);
    p.push(Step::Sample);
    p.free(last, prompt);
    p.end();
    Ok(p)
}

/// A sentence about a size that does not fit on the card.
fn too_much(name: &str, bytes: u64, room: &Room) -> String {
    format!("{name} is {}, and {} of the card may be taken; give at most that", Bytes(bytes), Bytes(room.free))
}

pub(super) const CAPACITY: Scenario = Scenario {
    name: "capacity",
    title: "True out of memory: the card is full",
    watch: "Reserved and live memory climb together until the driver has nothing left.",
    shows: "Timeline: a stair to the top. OOM autopsy: the device is full, with the largest stacks.",
    conf: "",
    params: &[Param::new("block", Unit::Bytes, GIBIBYTE, (64 * MEBIBYTE, 64 * GIBIBYTE), "how much is requested at a time")],
    build: |v, room| {
        let block = v.get("block");
        if block > room.free {
            return Err(too_much("block", block, room));
        }
        let mut p = Program::new();
        let weights = p.site("weights", "load the model");
        let states = p.site("optimizer states", "first step");
        for i in 0..room.free / block + 4 {
            p.within(format!("block {}", i + 1), |p| p.alloc(block, if i * 3 * block < room.free { weights } else { states }));
        }
        Ok(p)
    },
};

pub(super) const CAP: Scenario = Scenario {
    name: "cap",
    title: "A cap on this process",
    watch: "A request fails while most of the card is free: set_per_process_memory_fraction forbids more.",
    shows: "Timeline: a stair that stops far below the card's total. OOM autopsy: the process's own cap.",
    conf: "",
    params: &[
        Param::new("percent", Unit::Percent, 10, (2, 90), "how much of the card the process may reserve"),
        Param::new("block", Unit::Bytes, 256 * MEBIBYTE, (16 * MEBIBYTE, 16 * GIBIBYTE), "how much is requested at a time"),
    ],
    build: |v, room| {
        let cap = room.total / 100 * v.get("percent");
        let block = v.get("block");
        if cap > room.free {
            return Err(too_much("the cap", cap, room));
        }
        if block > cap {
            return Err(format!(
                "block is {}, and the cap is {}; at least one block must fit under it",
                Bytes(block),
                Bytes(cap)
            ));
        }
        let mut p = Program::new();
        p.limit = Some(cap);
        let batches = p.site("batches", "inference");
        for i in 0..cap / block + 4 {
            p.within(format!("batch {}", i + 1), |p| p.alloc(block, batches));
        }
        Ok(p)
    },
};
