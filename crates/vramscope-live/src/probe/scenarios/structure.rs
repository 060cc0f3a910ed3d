//! Structure of memory: varying lengths, pools of captured graphs, frees that wait for a stream.

use super::{Param, Program, Random, SEED, Scenario, Unit};
use crate::probe::program::Step;
use vramscope_core::units::{GIBIBYTE, KIBIBYTE, MEBIBYTE};

pub(super) const VARIABLE_SIZES: Scenario = Scenario {
    name: "variable_sizes",
    title: "Training with lengths that vary",
    watch: "Reserved memory goes on climbing while live memory does not: each new longest batch takes new segments.",
    shows: "Timeline: reserved drifts away from active. Findings: reserved and never used. What-if: expandable segments take it back.",
    conf: "",
    params: &[
        Param::new("steps", Unit::Count, 80, (40, 5_000), "training steps, each of another length"),
        Param::new("layers", Unit::Count, 8, (2, 200), "layers of the model"),
        Param::new("longest", Unit::Count, 2048, (512, 1 << 20), "the longest sequence"),
        SEED,
    ],
    build: |v, _| {
        let (steps, layers, longest) = (v.get("steps"), v.get("layers"), v.get("longest"));
        let mut random = Random::new(v.get("seed"));
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let hidden = p.site("hidden states", "forward");
        let wide = p.site("feed-forward", "forward");
        let scores = p.site("attention scores", "forward");
        let logits = p.site("logits", "loss");
        p.begin("set-up");
        for _ in 0..layers {
            p.alloc(12 * MEBIBYTE, weights);
        }
        p.end();
        for step in 0..steps {
            // Lengths grow over time, as with sorted or curriculum batches, so that there are always new largest sizes.
            let reach = longest / 8 + (longest - longest / 8) * step / steps;
            let length = random.between((reach / 2).max(64), reach.max(65));
            p.begin(format!("ProfilerStep#{step}"));
            let mut held = Vec::new();
            for _ in 0..layers {
                held.push((p.alloc(length * 8 * KIBIBYTE, hidden), hidden));
                held.push((p.alloc(length * 28 * KIBIBYTE + 512, wide), wide));
                p.use_once(length * length * 4, scores);
            }
            let slot = p.alloc(length * 96 * KIBIBYTE, logits);
            for (slot, site) in held.into_iter().rev() {
                p.free(slot, site);
            }
            p.free(slot, logits);
            p.end();
        }
        Ok(p)
    },
};

pub(super) const PRIVATE_POOLS: Scenario = Scenario {
    name: "private_pools",
    title: "Private pools of captured graphs",
    watch: "Each captured graph keeps its own memory; what is free in one pool cannot serve another, nor the program.",
    shows: "Segment map: segments by pool, most of them hatched. Findings: private pools hold free memory.",
    conf: "",
    params: &[
        Param::new("graphs", Unit::Count, 5, (1, 200), "captured batch sizes"),
        Param::new("size", Unit::Bytes, 320 * MEBIBYTE, (80 * MEBIBYTE, 16 * GIBIBYTE), "what the largest needs"),
    ],
    build: |v, _| {
        let graphs = v.get("graphs");
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let outputs = p.site("graph outputs", "capture");
        let inner = p.site("graph temporaries", "capture");
        p.within("set-up", |p| p.alloc(v.get("size"), weights));
        for graph in 0..graphs {
            let size = v.get("size") * (graphs - graph) / graphs;
            p.begin(format!("capture batch size {}", graphs - graph));
            p.push(Step::EmptyCache);
            p.push(Step::BeginPool((0, graph + 1)));
            p.alloc(size / 16, outputs);
            let held: Vec<u32> = (0..4).map(|_| p.alloc(size / 4, inner)).collect();
            p.free_all(held, inner);
            p.push(Step::EndPool((0, graph + 1)));
            p.end();
        }
        Ok(p)
    },
};

pub(super) const PENDING_FREE: Scenario = Scenario {
    name: "pending_free",
    title: "Frees that wait for another stream",
    watch: "Freed memory stays active while the copy stream is busy, so that new segments are taken beside it.",
    shows: "Timeline: active stands above allocated. Segment map: blocks pending free. Findings: freed, but waiting for a stream.",
    conf: "",
    params: &[
        Param::new(
            "size",
            Unit::Bytes,
            96 * MEBIBYTE,
            (16 * MEBIBYTE, 4 * GIBIBYTE),
            "a buffer that is sent on the other stream",
        ),
        Param::new("steps", Unit::Count, 16, (4, 2_000), "steps"),
        Param::new("wait", Unit::Count, 4, (1, 100), "steps until the other stream is done"),
    ],
    build: |v, _| {
        let (size, wait) = (v.get("size"), v.get("wait"));
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let buckets = p.site("gradient buckets", "all-reduce");
        let scratch = p.site("scratch", "backward");
        p.within("set-up", |p| p.alloc(2 * size, weights));
        for step in 0..v.get("steps") {
            p.begin(format!("ProfilerStep#{step}"));
            if step % wait == 0 {
                p.push(Step::Release { stream: 7 });
                p.push(Step::Hold { stream: 7 });
            }
            let bucket = p.alloc(size, buckets);
            p.push(Step::RecordStream { slot: bucket, stream: 7 });
            for _ in 0..6 {
                p.use_once(size / 8, scratch);
            }
            p.free(bucket, buckets);
            p.end();
        }
        p.push(Step::Release { stream: 7 });
        p.push(Step::Sample);
        Ok(p)
    },
};
