//! Memory that grows: a leak, and reference cycles that the collector frees now and then.

use super::{Param, Program, Scenario, Unit};
use vramscope_core::units::{GIBIBYTE, MEBIBYTE};

pub(super) const LEAK: Scenario = Scenario {
    name: "leak",
    title: "A leak: losses kept with their graph",
    watch: "Live memory climbs by the same amount with every step and never comes down.",
    shows: "Timeline: a straight climb under the teeth of the steps. Findings: memory grows with every step, at one stack.",
    conf: "",
    params: &[
        Param::new("size", Unit::Bytes, 64 * MEBIBYTE, (MEBIBYTE, 8 * GIBIBYTE), "what each step keeps"),
        Param::new("steps", Unit::Count, 24, (9, 10_000), "training steps"),
    ],
    build: |v, _| {
        let (size, steps) = (v.get("size"), v.get("steps"));
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let activations = p.site("activations", "forward");
        let gradients = p.site("gradients", "backward");
        let losses = p.site("losses", "kept graph");
        p.within("set-up", |p| p.alloc(4 * size, weights));
        for step in 0..steps {
            p.begin(format!("ProfilerStep#{step}"));
            let held: Vec<u32> = (0..6).map(|_| p.alloc(size / 2, activations)).collect();
            p.alloc(size, losses);
            for slot in held.into_iter().rev() {
                let gradient = p.alloc(size / 4, gradients);
                p.free(slot, activations);
                p.free(gradient, gradients);
            }
            p.end();
        }
        Ok(p)
    },
};

pub(super) const SAW_TOOTH: Scenario = Scenario {
    name: "saw_tooth",
    title: "A saw-tooth: cycles until the collector runs",
    watch: "Live memory climbs over several steps and falls at once, again and again; reserved memory stays at the top.",
    shows: "Timeline: teeth of several steps each, under a flat reserved line. Findings: memory grows for steps and falls at once.",
    conf: "",
    params: &[
        Param::new("size", Unit::Bytes, 2 * GIBIBYTE, (64 * MEBIBYTE, 64 * GIBIBYTE), "the height of a tooth"),
        Param::new("teeth", Unit::Count, 5, (4, 200), "how often the collector runs"),
        Param::new("steps", Unit::Count, 8, (4, 500), "steps a tooth"),
    ],
    build: |v, _| {
        let steps = v.get("steps");
        let piece = v.get("size") / steps / 4;
        let mut p = Program::new();
        let weights = p.site("weights", "set-up");
        let cycles = p.site("outputs in cycles", "forward");
        let scratch = p.site("scratch", "forward");
        p.within("set-up", |p| p.alloc(v.get("size") / 8, weights));
        let mut number = 0;
        for _ in 0..v.get("teeth") {
            let mut held = Vec::new();
            for step in 0..steps {
                p.begin(format!("ProfilerStep#{number}"));
                number += 1;
                for _ in 0..4 {
                    held.push(p.alloc(piece, cycles));
                    p.use_once(piece / 2, scratch);
                }
                if step + 1 == steps {
                    p.begin("gc.collect");
                    p.free_all(held.drain(..), cycles);
                    p.end();
                }
                p.end();
            }
        }
        Ok(p)
    },
};
