//! Memory that grows, waits for the garbage collector, or is kept by an exception.

use std::path::Path;

use super::{findings, said, silent};
use crate::shared::open;
use crate::tape::{GIB, MIB, Tape};
use vramscope_core::model::Recording;

#[test]
fn evaluation_that_keeps_its_predictions() {
    let run = |function: &str| {
        let mut t = Tape::new();
        let keep = t.stack(&[("/home/me/train.py", function), ("/home/me/train.py", "main")]);
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..14 {
            for _ in 0..4 {
                t.brief(16 * MIB, work);
            }
            t.alloc(20 * MIB, keep);
            t.step();
        }
        t.finish()
    };
    let evaluates = run("evaluate");
    let found = said(&evaluates, "evaluation_growth");
    assert!(found.remedy.unwrap().contains("inference_mode"));
    silent(&evaluates, "leak");
    // The same in training is a leak, not growth in an evaluation.
    said(&run("train_step"), "leak");
    silent(&run("train_step"), "evaluation_growth");
}

/// A small tensor from every step in a segment of its own, beside temporary work.
fn losses(steps: u64, keeps: bool, graph: bool) -> Recording {
    let mut t = Tape::new();
    let keep =
        t.stack(&[("/usr/lib/python3/site-packages/torch/nn/functional.py", "cross_entropy"), ("/home/me/train.py", "main")]);
    let saved = t.stack(&[("/home/me/model.py", "forward"), ("/home/me/train.py", "main")]);
    let work = t.stack(&[("/home/me/model.py", "backward"), ("/home/me/train.py", "main")]);
    let small = t.segment(2 * MIB);
    let mut last = None;
    for step in 0..steps {
        for _ in 0..4 {
            t.brief(16 * MIB, work);
        }
        let loss = t.place(small, step * 512, 4, keep);
        if !keeps && let Some(before) = last.replace(loss) {
            t.free(before);
        }
        if graph {
            t.alloc(20 * MIB, saved);
        }
        t.step();
    }
    t.finish()
}

#[test]
fn a_list_of_losses_that_was_not_detached() {
    // With their graphs, the activations grow. The four-byte tensors beside them show what keeps them.
    let found = said(&losses(40, true, true), "leak");
    assert!(found.remedy.as_deref().is_some_and(|r| r.contains("loss.item()")), "{found:?}");
    assert!(found.advice.contains("loss.detach()") && found.sentence.contains("list of losses"), "{found:?}");
    silent(&losses(40, true, true), "kept_numbers");
    // When activations grow although the losses are freed, something else keeps them.
    let found = said(&losses(40, false, true), "leak");
    assert!(found.remedy.is_none() && !found.advice.contains("loss.item()"), "{found:?}");
}

#[test]
fn numbers_of_every_step_that_stay() {
    let found = said(&losses(40, true, false), "kept_numbers");
    assert!(found.sentence.contains("train.py") && found.sentence.contains("160"), "{}", found.sentence);
    assert!(found.remedy.is_some_and(|r| r.contains("loss.item()")));
    silent(&losses(40, true, false), "leak");
    // A healthy run frees each before the next, and a few steps are not enough to tell.
    silent(&losses(40, false, false), "kept_numbers");
    silent(&losses(12, true, false), "kept_numbers");
}

/// Blocks that accumulate for `period` steps and are freed together. With 1, each step frees its own.
fn cycles(period: usize) -> Recording {
    let mut t = Tape::new();
    let node = t.stack(&[("/home/me/graph.py", "make_node")]);
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let mut waiting = Vec::new();
    for step in 0..30 {
        for _ in 0..4 {
            t.brief(12 * MIB, work);
        }
        waiting.push(t.alloc(32 * MIB, node));
        if step % period == period - 1 {
            waiting.drain(..).for_each(|h| t.free(h));
        }
        t.step();
    }
    t.finish()
}

#[test]
fn garbage_that_waits_for_the_collector() {
    let found = said(&cycles(5), "saw_tooth");
    // Five blocks of 32 MiB accumulate. The floors of the steps show three of them.
    assert!((64 * MIB..=160 * MIB).contains(&found.bytes), "{}", found.bytes);
    silent(&cycles(1), "saw_tooth");
}

#[test]
fn a_failure_whose_exception_is_kept() {
    let run = |lets_go: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let held: Vec<_> = (0..8).map(|_| t.alloc(40 * MIB, work)).collect();
        t.oom(4 * GIB, GIB, work);
        if lets_go {
            t.free_all(held);
        }
        for _ in 0..7 {
            t.wait(1_000_000);
            t.brief(10 * MIB, work);
        }
        t.finish()
    };
    assert_eq!(said(&run(false), "held_after_failure").bytes, 320 * MIB);
    silent(&run(true), "held_after_failure");
}

/// A small model trains. Its third step fails, is caught, and is retried with less memory from another line.
fn tries_again(holds: bool, falls_back: bool) -> Recording {
    let mut t = Tape::new();
    let at = |file: &str, line: &str| [(file.to_owned(), line.to_owned())];
    let mut stack = |inner: &str, outer: &str| {
        let [a, b] = [at("/home/me/model.py", inner), at("/home/me/train.py", outer)];
        t.stack(&[(&a[0].0, &a[0].1), (&b[0].0, &b[0].1)])
    };
    let [embed, again] = ["train", "train_smaller"].map(|outer| stack("embed", outer));
    let [layer, failing] = [stack("layer", "train"), stack("head", "train")];
    let attempt = |t: &mut Tape, begin, size: u64, fails: bool| {
        let first = t.alloc(10 * MIB, begin);
        let rest: Vec<_> = (0..6).map(|_| t.alloc(size, layer)).collect();
        if fails {
            t.oom(4 * GIB, GIB, failing);
        }
        [vec![first], rest].concat()
    };
    for step in 0..6 {
        let made = attempt(&mut t, embed, 32 * MIB, step == 3);
        if step == 3 && falls_back {
            // The call continues in parts, followed by the next layers.
            (0..6).map(|_| t.alloc(10 * MIB, layer)).collect::<Vec<_>>().into_iter().for_each(|h| t.free(h));
        }
        if step == 3 && holds {
            let smaller = attempt(&mut t, again, 16 * MIB, false);
            t.free_all(smaller);
        }
        t.free_all(made);
        t.step();
    }
    t.finish()
}

#[test]
fn a_failed_attempt_that_is_held_while_the_next_one_runs() {
    let found = said(&tries_again(true, false), "held_after_failure");
    assert_eq!(found.bytes, 202 * MIB);
    silent(&tries_again(false, false), "held_after_failure");
    silent(&tries_again(false, true), "held_after_failure");
}

/// Programs of `caught.py`, on an H200 under a cap.
#[test]
fn what_real_programs_keep_of_a_caught_failure() {
    let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/kinds");
    let open = |name: &str| open(&kinds.join(format!("{name}.python.pickle.zst")));
    // Retried inside the except block, kept in a list of exceptions, and kept by the interpreter as a notebook's last traceback.
    for (name, gib) in [("retry_in_except", 5.2), ("kept_error", 5.1), ("notebook", 5.1)] {
        let recording = open(name);
        let found = said(&recording, "held_after_failure");
        assert!((found.bytes as f64 / GIB as f64 - gib).abs() < 0.2, "{name}: {}", found.bytes);
        // It is listed before the failures it caused.
        assert_eq!(findings(&recording)[0].rule, "held_after_failure", "{name}");
    }
    // A layer that falls back to parts needs earlier activations.
    silent(&open("fallback_train"), "held_after_failure");
}

/// Forty steps of temporary work. `keeps` says how many MiB of which line each step leaves behind.
fn grows(keeps: impl Fn(usize) -> Option<(u64, usize)>) -> Recording {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let lines: Vec<_> = (0..10).map(|i| t.stack(&[(&format!("/home/me/part{i}.py"), "keep")])).collect();
    for step in 0..40 {
        for _ in 0..4 {
            t.brief(12 * MIB, work);
        }
        if let Some((mebibytes, line)) = keeps(step) {
            t.alloc(mebibytes * MIB, lines[line]);
        }
        t.step();
    }
    t.finish()
}

#[test]
fn several_lines_by_turns() {
    let found = said(&grows(|step| Some((20, step % 10))), "leak");
    assert_eq!((found.bytes, found.title.as_str()), (800 * MIB, "Memory grows with every step"), "{found:?}");
    assert!(found.sentence.contains("40\u{a0}blocks") && found.sentence.contains("7\u{a0}lines more"), "{}", found.sentence);
    assert!(found.evidence.iter().any(|e| e.label == "steps that add" && e.value == "40 of 40"), "{:?}", found.evidence);
}

#[test]
fn from_half_way_on_and_every_fifth_step() {
    let found = said(&grows(|step| (step >= 20).then_some((20, 0))), "leak");
    assert_eq!(found.title, "Memory grows with every step from step 21 on");
    let found = said(&grows(|step| (step % 5 == 0).then_some((20, 0))), "leak");
    assert!(found.sentence.contains("20\u{a0}MiB every 5 steps"), "{}", found.sentence);
    silent(&grows(|step| (step < 20).then_some((20, 0))), "leak");
}
