//! What a pass keeps that it need not.

use super::{said, silent};
use crate::tape::{MIB, Tape};
use vramscope::model::{Recording, StackId};

const MODULE: &str = "/site-packages/torch/nn/modules/module.py";

/// A stack inside a module that `eval.py` calls.
fn inside(t: &mut Tape, frames: &[(&str, &str)]) -> StackId {
    let outside = [("/home/me/model.py", "forward"), (MODULE, "_call_impl"), ("/home/me/eval.py", "main")];
    t.stack(&[frames, &outside].concat())
}

/// A forward pass of twelve layers, each of six lines of 12 MiB; `keeps` holds all of it to the end, as a graph does.
fn layers(keeps: bool) -> Recording {
    let mut t = Tape::new();
    let lines: Vec<StackId> = (0..6).map(|i| inside(&mut t, &[("/home/me/layers.py", &format!("line{i}"))])).collect();
    let mut held = Vec::new();
    for _ in 0..12 {
        let layer: Vec<_> = lines.iter().map(|&line| t.alloc(12 * MIB, line)).collect();
        match keeps {
            true => held.extend(layer),
            false => layer.into_iter().for_each(|h| t.free(h)),
        }
    }
    held.into_iter().for_each(|h| t.free(h));
    t.finish()
}

#[test]
fn a_graph_that_nothing_uses() {
    let found = said(&layers(true), "unused_graph");
    assert!(found.bytes >= 500 * MIB && found.sentence.contains("freed without one"), "{found:?}");
    silent(&layers(false), "unused_graph");
}

/// Eight weights of 32 MiB, and a pass that makes of each a copy of `copy` MiB beside its result.
fn linear(copy: u64) -> Recording {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/eval.py", "main")]);
    let linear = inside(&mut t, &[("/site-packages/torch/nn/modules/linear.py", "forward"), (MODULE, "_call_impl")]);
    for _ in 0..8 {
        t.alloc(32 * MIB, weight);
    }
    let (mut copies, mut result) = (Vec::new(), None);
    for _ in 0..8 {
        copies.push(t.alloc(copy * MIB, linear));
        if let Some(old) = result.replace(t.alloc(10 * MIB, linear)) {
            t.free(old);
        }
    }
    copies.into_iter().for_each(|h| t.free(h));
    t.finish()
}

#[test]
fn copies_that_autocast_keeps() {
    assert_eq!(said(&linear(16), "autocast_copies").bytes, 8 * 16 * MIB);
    silent(&linear(12), "autocast_copies");
}

#[test]
fn attention_written_out() {
    let run = |function: &str| {
        let mut t = Tape::new();
        let lines =
            ["scores", "mask", "softmax"].map(|f| inside(&mut t, &[("/home/me/ops.py", f), ("/home/me/ops.py", function)]));
        for _ in 0..4 {
            let held = lines.map(|line| t.alloc(64 * MIB, line));
            held.into_iter().for_each(|h| t.free(h));
        }
        t.finish()
    };
    assert_eq!(said(&run("attention"), "attention_scores").bytes, 3 * 64 * MIB);
    silent(&run("convolution"), "attention_scores");
}

/// Equal blocks that stay are weights, whatever server's cache they look like.
#[test]
fn weights_are_no_cache() {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/eval.py", "main")]);
    let work = inside(&mut t, &[("/home/me/layers.py", "line")]);
    for _ in 0..32 {
        t.alloc(128 * MIB, weight);
    }
    for _ in 0..300 {
        let h = t.alloc(10 * MIB, work);
        t.free(h);
    }
    silent(&t.finish(), "preallocated_cache");
}
