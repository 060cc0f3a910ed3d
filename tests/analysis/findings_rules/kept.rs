//! Memory that a pass keeps without need.

use super::{findings, said, silent};
use crate::shared::tables;
use crate::tape::{MIB, Tape};
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::model::{Progress, Recording, StackId};
use vramscope_core::units::compared;

const MODULE: &str = "/site-packages/torch/nn/modules/module.py";

/// A stack inside a module that `eval.py` calls.
fn inside(t: &mut Tape, frames: &[(&str, &str)]) -> StackId {
    let outside = [("/home/me/model.py", "forward"), (MODULE, "_call_impl"), ("/home/me/eval.py", "main")];
    t.stack(&[frames, &outside].concat())
}

/// A forward pass of twelve layers with six lines of 12 MiB each. `keeps` holds everything to the end, as a graph does.
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
    t.free_all(held);
    t.finish()
}

#[test]
fn a_graph_that_nothing_uses() {
    let found = said(&layers(true), "unused_graph");
    assert!(found.bytes >= 500 * MIB && found.sentence.contains("freed without one"), "{found:?}");
    silent(&layers(false), "unused_graph");
}

/// The same pass in a training program, where the recording ends before the backward pass. Its reserved memory will be needed
/// then.
#[test]
fn a_recording_that_ends_before_the_backward_pass() {
    let run = |trains: bool| {
        let mut t = Tape::new();
        let optimizer = t.stack(&[
            ("/x/torch/optim/adamw.py", "_init_group"),
            ("/x/torch/optim/adamw.py", "step"),
            ("/home/me/train.py", "main"),
        ]);
        if trains {
            (0..16).for_each(|_| _ = t.alloc(20 * MIB, optimizer));
        }
        let lines: Vec<StackId> = (0..6).map(|i| inside(&mut t, &[("/home/me/layers.py", &format!("line{i}"))])).collect();
        for _ in 0..12 {
            lines.iter().for_each(|&line| _ = t.alloc(12 * MIB, line));
        }
        t.finish()
    };
    let found = said(&run(true), "unused_graph");
    assert_eq!((found.title.as_str(), found.saving, found.remedy), ("The recording ends before the backward pass", None, None));
    let found = said(&run(false), "unused_graph");
    assert!(found.remedy.is_some(), "{found:?}");
}

/// Modules whose weights have gradients, and a block that a constructor keeps beside them.
fn training_beside(buffer: u64) -> (Recording, u64) {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/train.py", "main")]);
    let keeps = t.stack(&[("/home/me/train.py", "__init__"), ("/home/me/train.py", "main")]);
    let line = inside(&mut t, &[("/home/me/layers.py", "line")]);
    let backward = t.stack(&[("/site-packages/torch/_tensor.py", "backward"), ("/home/me/train.py", "main")]);
    for _ in 0..8 {
        t.alloc(20 * MIB, weight);
    }
    t.alloc(buffer, keeps);
    for _ in 0..4 {
        let held: Vec<_> = (0..8).map(|_| t.alloc(12 * MIB, line)).collect();
        let gradients: Vec<_> = (0..8).map(|_| t.alloc(20 * MIB, backward)).collect();
        t.free_all(held);
        let next = t.alloc(10 * MIB, line);
        t.free_all(gradients);
        t.free(next);
    }
    (t.finish(), buffer)
}

#[test]
fn a_replay_buffer_is_no_weight() {
    let of = |(recording, size): (Recording, u64)| {
        let device = &recording.devices[0];
        let tables = tables(device);
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &Progress::new()).unwrap();
        let ids = tables.lifetimes.ids();
        ids.filter(|&id| tables.lifetimes.requested(device, id) == size).map(|id| roles.of(id)).next().unwrap()
    };
    assert_eq!(of(training_beside(64 * MIB)), Role::Inputs);
    assert_eq!(of(training_beside(14 * MIB)), Role::Weights, "a buffer of the model is no larger than its weights");
}

/// Eight weights of 32 MiB, and a pass that makes a copy of `copy` MiB of each beside its result, inside C++ `operators`.
fn linear(copy: u64, operators: &[(&str, &str)]) -> Recording {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/eval.py", "main")]);
    let linear = [("/site-packages/torch/nn/modules/linear.py", "forward"), (MODULE, "_call_impl")];
    let linear = inside(&mut t, &[operators, &linear].concat());
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
    t.free_all(copies);
    t.finish()
}

#[test]
fn copies_that_autocast_keeps() {
    assert_eq!(said(&linear(16, &[]), "autocast_copies").bytes, 8 * 16 * MIB);
    silent(&linear(12, &[]), "autocast_copies");
    // Stacks that contain operators also contain casts.
    let [operator, cast] = [("??", "at::_ops::empty::call(...)"), ("??", "at::autocast::cached_cast(...)")];
    silent(&linear(16, &[operator]), "autocast_copies");
    assert_eq!(said(&linear(16, &[operator, cast]), "autocast_copies").bytes, 8 * 16 * MIB);
}

#[test]
fn attention_written_out() {
    let run = |lines: [&str; 3], function: &str| {
        let mut t = Tape::new();
        let lines = lines.map(|f| inside(&mut t, &[("/home/me/ops.py", f), ("/home/me/ops.py", function)]));
        for _ in 0..4 {
            let held = lines.map(|line| t.alloc(64 * MIB, line));
            t.free_all(held);
        }
        t.finish()
    };
    assert_eq!(said(&run(["scores", "mask", "scale"], "attention"), "attention_scores").bytes, 3 * 64 * MIB);
    silent(&run(["pad", "convolve", "scale"], "convolution"), "attention_scores");
    // Only attention uses softmax outside the loss.
    assert_eq!(said(&run(["scores", "mask", "softmax"], "mix"), "attention_scores").bytes, 64 * MIB);
}

/// When the backward pass reaches its peak of gradients, it has freed the scores of two of three lines.
#[test]
fn attention_whose_peak_is_in_its_backward_pass() {
    let mut t = Tape::new();
    let lines = ["scores", "mask", "scale"].map(|f| inside(&mut t, &[("/home/me/ops.py", f), ("/home/me/ops.py", "attention")]));
    let backward = t.stack(&[("/site-packages/torch/autograd/graph.py", "_engine_run_backward")]);
    let steps = t.stack(&[("/site-packages/torch/optim/adamw.py", "step"), ("/home/me/train.py", "main")]);
    for _ in 0..4 {
        let [scores, mask, scale] = lines.map(|line| t.alloc(64 * MIB, line));
        t.free(scale);
        t.free(mask);
        let gradient = |_| {
            let h = t.alloc(64 * MIB, backward);
            t.role("temporary");
            h
        };
        let gradients: Vec<_> = (0..4).map(gradient).collect();
        t.free_all(gradients);
        t.free(scores);
        t.brief(10 * MIB, steps);
    }
    let found = said(&t.finish(), "attention_scores");
    assert!(found.sentence.contains("The backward pass holds 4\u{a0}blocks of that size."), "{}", found.sentence);
    assert!(found.saving.unwrap().after <= 3 * 64 * MIB, "{:?}", found.saving);
}

/// Twelve layers. Each keeps blocks of four lines, and `tensors` blocks of 24 MiB from another line; all are marked as
/// activations.
fn formula(tensors: usize) -> Recording {
    let mut t = Tape::new();
    let lines: Vec<StackId> = (0..4).map(|i| t.stack(&[("/home/me/layers.py", &format!("line{i}"))])).collect();
    let gelu = t.stack(&[("/home/me/gelu.py", "gelu")]);
    let mut held = Vec::new();
    for _ in 0..12 {
        for &line in lines.iter().chain(std::iter::repeat_n(&gelu, tensors)) {
            held.push(t.alloc(if line == gelu { 24 } else { 12 } * MIB, line));
            t.role("activation");
        }
    }
    held.into_iter().rev().for_each(|h| t.free(h));
    t.finish()
}

#[test]
fn a_formula_that_is_written_out() {
    let found = said(&formula(4), "written_out");
    assert_eq!(found.bytes, 12 * 4 * 24 * MIB);
    assert_eq!(found.saving.unwrap().bytes(), 12 * 3 * 24 * MIB, "one of the four stays");
    assert!(found.title.contains("4 tensors") && found.sentence.contains("12 layers"), "{found:?}");
    silent(&formula(2), "written_out");
}

#[test]
fn what_saves_most_stands_first() {
    let found = findings(&formula(4));
    assert_eq!(found.iter().map(|f| f.rule).collect::<Vec<_>>(), ["activations", "written_out"]);
    let falls = |at: usize| found[at].saving.unwrap().bytes();
    assert!(falls(0) > falls(1), "{found:?}");
    for f in &found {
        let [before, after] = compared([f.saving.unwrap().before, f.saving.unwrap().after]);
        let falls = format!("the peak falls from {before} to about {after}.");
        assert!(f.sentence.ends_with(&falls), "{}", f.sentence);
    }
}

/// What checkpointing keeps: the blocks of one layer, and the input of each layer.
#[test]
fn layers_that_could_be_checkpointed() {
    let saving = said(&formula(4), "activations").saving.unwrap();
    assert_eq!(saving.before, 12 * (4 * 12 + 4 * 24) * MIB);
    assert_eq!(saving.after, (12 * 12 + 3 * 12 + 4 * 24) * MIB);
}

/// A weight, and three short-lived tensors of one line.
#[test]
fn temporaries_of_one_line() {
    let run = |size: u64, function: &str| {
        let mut t = Tape::new();
        let weight = t.stack(&[("/home/me/model.py", "build")]);
        let work = t.stack(&[("/home/me/ops.py", function)]);
        t.alloc(300 * MIB, weight);
        t.role("parameter");
        let held: Vec<_> = (0..3)
            .map(|_| {
                let h = t.alloc(size, work);
                t.role("temporary");
                h
            })
            .collect();
        t.free_all(held);
        t.finish()
    };
    let found = said(&run(40 * MIB, "update"), "temporaries");
    assert_eq!(found.bytes, 120 * MIB);
    assert!(found.sentence.contains("tensors of ops.py"), "{}", found.sentence);
    silent(&run(30 * MIB, "update"), "temporaries");
    silent(&run(400 * MIB, "cross_entropy"), "temporaries");
}

/// Each step makes tensors of some layers and a result. The result is freed before the next step, or when that step has made its
/// own.
#[test]
fn a_result_that_is_held_over() {
    let run = |is_held: bool| {
        let mut t = Tape::new();
        let weight = t.stack(&[("/home/me/model.py", "build")]);
        let (layer, head) = (t.stack(&[("/home/me/model.py", "forward")]), t.stack(&[("/home/me/model.py", "head")]));
        t.alloc(500 * MIB, weight);
        t.role("parameter");
        let mut last = None;
        for _ in 0..6 {
            t.step();
            for size in [10, 16, 24] {
                let h = t.alloc(size * MIB, layer);
                t.role("temporary");
                t.free(h);
            }
            let made = t.alloc(200 * MIB, head);
            t.role("temporary");
            if is_held {
                if let Some(last) = last.replace(made) {
                    t.free(last);
                }
            } else {
                t.free(made);
            }
        }
        t.finish()
    };
    let found = said(&run(true), "last_result");
    assert_eq!(found.bytes, 200 * MIB);
    assert_eq!(found.saving.unwrap().bytes(), 200 * MIB);
    silent(&run(false), "last_result");
}

/// Equal blocks that stay are weights, even if they look like a server's cache.
#[test]
fn weights_are_no_cache() {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/eval.py", "main")]);
    let work = inside(&mut t, &[("/home/me/layers.py", "line")]);
    for _ in 0..32 {
        t.alloc(128 * MIB, weight);
    }
    for _ in 0..300 {
        t.brief(10 * MIB, work);
    }
    silent(&t.finish(), "preallocated_cache");
}

/// The Trainer concatenates the predictions of all batches on the GPU. A program's own list of predictions is not affected by its
/// settings.
#[test]
fn predictions_that_a_trainer_gathers() {
    let run = |file: &str| {
        let mut t = Tape::new();
        let joins = t.stack(&[(file, "torch_pad_and_concatenate"), (file, "nested_concat"), ("/home/me/train.py", "main")]);
        let mut gathered = t.alloc(40 * MIB, joins);
        for batch in 2..8 {
            let joined = t.alloc(batch * 40 * MIB, joins);
            t.free(gathered);
            gathered = joined;
        }
        t.free(gathered);
        t.finish()
    };
    let found = said(&run("/site-packages/transformers/trainer_pt_utils.py"), "gathered");
    assert_eq!((found.bytes, found.saving.unwrap().after), ((6 + 7) * 40 * MIB, 0));
    silent(&run("/home/me/gather.py"), "gathered");
}

/// `model.to()` moves a weight and then its gradient, from two lines. Weights without gradients must not be taken for gradients.
#[test]
fn gradients_that_move_with_the_model() {
    let run = |has_gradients: bool| {
        let mut t = Tape::new();
        let outside = [(MODULE, "_apply"), (MODULE, "to"), ("/home/me/eval.py", "load")];
        // A frame further inside gives `_apply` another line.
        let weight = t.stack(&outside);
        let gradient = t.stack(&[&[(MODULE, "convert")][..], &outside].concat());
        for _ in 0..8 {
            t.alloc(64 * MIB, weight);
            if has_gradients {
                t.alloc(64 * MIB, gradient);
            }
        }
        t.finish()
    };
    let found = said(&run(true), "moved_gradients");
    assert_eq!(found.saving.unwrap().bytes(), 8 * 64 * MIB);
    silent(&run(false), "moved_gradients");
}

/// A teacher and a student of four layers each train in three steps. With a graph, the teacher has gradients that stay, and its
/// backward pass comes last.
fn distilled(has_graph: bool) -> Recording {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/train.py", "main")]);
    let teaches = inside(&mut t, &[("/home/me/teacher.py", "layer")]);
    let learns = inside(&mut t, &[("/home/me/student.py", "layer")]);
    let backward = t.stack(&[("/site-packages/torch/_tensor.py", "backward"), ("/home/me/train.py", "main")]);
    let steps = t.stack(&[("/site-packages/torch/optim/adam.py", "step"), ("/home/me/train.py", "main")]);
    let (of_teacher, of_student) = (|i: u64| (10 + 2 * i) * MIB, |i: u64| (20 + 2 * i) * MIB);
    for i in 0..4 {
        t.alloc(of_teacher(i), weight);
        t.alloc(of_student(i), weight);
    }
    for step in 0..3 {
        let taught: Vec<_> = (0..4)
            .filter_map(|_| {
                let h = t.alloc(50 * MIB, teaches);
                has_graph.then_some(h).or_else(|| {
                    t.free(h);
                    None
                })
            })
            .collect();
        let learned: Vec<_> = (0..4).map(|_| t.alloc(12 * MIB, learns)).collect();
        let passes_back = |t: &mut Tape, (i, kept)| {
            t.free(kept);
            t.alloc(of_student(i), backward)
        };
        let gradients: Vec<_> = (0..4).zip(learned).map(|pass| passes_back(&mut t, pass)).collect();
        if has_graph && step == 0 {
            for i in 0..4 {
                t.alloc(of_teacher(i), backward);
            }
        }
        t.free_all(taught);
        // Between the end of the backward pass and the optimizer.
        t.brief(30 * MIB, backward);
        t.optimizer(|t| {
            if step == 0 {
                for i in 0..8 {
                    t.alloc(of_student(i / 2), steps);
                }
            }
            t.brief(30 * MIB, steps);
        });
        t.free_all(gradients);
    }
    t.finish()
}

#[test]
fn gradients_that_nothing_uses() {
    let found = said(&distilled(true), "untrained_gradients");
    assert!(
        found.sentence.contains("4\u{a0}blocks")
            && found.sentence.contains("200\u{a0}MiB of activations")
            && found.remedy.unwrap().contains("requires_grad_(False)")
            && found.advice.contains("no_grad"),
        "{}",
        found.sentence
    );
    // The peak is then in the optimizer, without the teacher's gradients of 52 MiB.
    let saving = found.saving.unwrap();
    assert!(saving.bytes() > 52 * MIB && saving.after > 0, "{saving:?}");
    silent(&distilled(false), "untrained_gradients");
}

/// Three steps that train eight weights under autocast, which is entered around the loop or in each step.
fn under_autocast(around_loop: bool) -> Recording {
    let mut t = Tape::new();
    let weight = t.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("/home/me/train.py", "main")]);
    let linear = inside(&mut t, &[("/site-packages/torch/nn/modules/linear.py", "forward"), (MODULE, "_call_impl")]);
    let backward = t.stack(&[("/site-packages/torch/autograd/graph.py", "_engine_run_backward")]);
    let steps = t.stack(&[("/site-packages/torch/optim/adamw.py", "step"), ("/home/me/train.py", "main")]);
    for _ in 0..8 {
        t.alloc(32 * MIB, weight);
    }
    for step in 0..3 {
        let mut copies = Vec::new();
        let kept: Vec<_> = (0..8)
            .map(|_| {
                if step == 0 || !around_loop {
                    copies.push(t.alloc(16 * MIB, linear));
                    t.role("autocast_copies");
                }
                t.alloc(10 * MIB, linear)
            })
            .collect();
        if !around_loop {
            t.free_all(copies);
        }
        let gradients: Vec<_> = kept
            .into_iter()
            .map(|h| {
                t.free(h);
                t.alloc(32 * MIB, backward)
            })
            .collect();
        t.optimizer(|t| {
            t.brief(32 * MIB, steps);
        });
        t.free_all(gradients);
    }
    t.finish()
}

#[test]
fn autocast_around_the_loop() {
    assert_eq!(said(&under_autocast(true), "stale_copies").bytes, 8 * 16 * MIB);
    silent(&under_autocast(false), "stale_copies");
}
