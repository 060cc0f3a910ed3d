//! Loading a model, by layer or in shards, is neither training nor a leak.

use super::{findings, said, silent};
use crate::shared::tables;
use crate::tape::{Handle, MIB, Tape};
use vramscope_core::anatomy::steps::{StepSource, Steps};
use vramscope_core::model::{Recording, StackId};

/// How a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Each parameter is read in four bytes and cast to two.
    Cast,
    /// Each parameter is read as it is and copied.
    Copy,
    /// Each parameter is read in full and kept in a quarter of the size.
    Quantise,
    /// Files of eight layers, each read at once, split and freed.
    Shards,
}

struct Names {
    read: StackId,
    keep: StackId,
    scale: StackId,
}

/// Loads `layers` layers of three parameters each. Returns what stays.
fn load(t: &mut Tape, way: Way, layers: u64, names: &Names) -> Vec<Handle> {
    let mut model = Vec::new();
    let mut shard = None;
    for layer in 0..layers {
        if way == Way::Shards && layer % 8 == 0 {
            if let Some(h) = shard.take() {
                t.free(h);
            }
            shard = Some(t.alloc(8 * 60 * MIB, names.read));
        }
        for size in [12, 16, 32] {
            let read = match way {
                Way::Cast => Some(2 * size),
                Way::Copy => Some(size),
                Way::Quantise => Some(4 * size),
                Way::Shards => None,
            };
            let temporary = read.map(|mib| t.alloc(mib * MIB, names.read));
            model.push(t.alloc(size * MIB, names.keep));
            if way == Way::Quantise {
                model.push(t.alloc(10 * MIB, names.scale));
            }
            t.free_all(temporary);
        }
    }
    t.free_all(shard);
    model
}

fn names(t: &mut Tape, has_stacks: bool) -> Names {
    let mut of =
        |name| if has_stacks { t.stack(&[("/home/me/run.py", name), ("/home/me/run.py", "main")]) } else { StackId::NONE };
    Names { read: of("read"), keep: of("build"), scale: of("scales") }
}

/// Training without annotations: forward and backward, everything freed. With `keeps`, an output of every step stays.
fn train(t: &mut Tape, steps: u64, keeps: bool) {
    let forward = t.stack(&[("/home/me/model.py", "block"), ("/home/me/run.py", "main")]);
    let grad = t.stack(&[("/home/me/run.py", "backward"), ("/home/me/run.py", "main")]);
    let batch = t.stack(&[("/home/me/run.py", "next_batch"), ("/home/me/run.py", "main")]);
    let output = t.stack(&[("/home/me/model.py", "head"), ("/home/me/run.py", "main")]);
    for _ in 0..steps {
        let input = t.alloc(10 * MIB, batch);
        let activations: Vec<_> = (0..6).map(|i| t.alloc((12 + 2 * i) * MIB, forward)).collect();
        for h in activations.into_iter().rev() {
            t.brief(20 * MIB, grad);
            t.free(h);
        }
        if keeps {
            t.alloc(14 * MIB, output);
        }
        t.free(input);
    }
}

fn steps(recording: &Recording) -> Steps {
    let device = &recording.devices[0];
    Steps::find(recording, device, &tables(device))
}

const WAYS: [Way; 4] = [Way::Cast, Way::Copy, Way::Quantise, Way::Shards];

#[test]
fn loading_alone_has_no_steps_and_no_leak() {
    for way in WAYS {
        for layers in [8, 24, 32, 48, 80] {
            for has_stacks in [true, false] {
                let mut t = Tape::new();
                let names = names(&mut t, has_stacks);
                load(&mut t, way, layers, &names);
                let recording = t.finish();
                let found = steps(&recording);
                assert_eq!((found.len(), &found.source), (0, &StepSource::None), "{way:?} {layers}: {found:?}");
                silent(&recording, "leak");
                silent(&recording, "kept_numbers");
            }
        }
    }
}

#[test]
fn steps_are_those_of_the_training_that_follows() {
    for way in WAYS {
        for (layers, count) in [(24, 10), (48, 5), (32, 60), (80, 8)] {
            let mut t = Tape::new();
            let names = names(&mut t, true);
            load(&mut t, way, layers, &names);
            let begin = t.last() + 1;
            train(&mut t, count, false);
            let recording = t.finish();
            let found = steps(&recording);
            assert_eq!(found.len(), count as usize, "{way:?} {layers} layers, {count} steps: {found:?}");
            assert!(found.bounds[0] >= begin, "{way:?}: {} is before {begin}", found.bounds[0]);
            let all = findings(&recording);
            assert!(all.iter().all(|f| f.rule != "leak"), "{way:?} {layers} layers, {count} steps: {all:?}");
        }
    }
}

#[test]
fn a_leak_after_loading_is_still_found() {
    for way in WAYS {
        let mut t = Tape::new();
        let names = names(&mut t, true);
        load(&mut t, way, 24, &names);
        train(&mut t, 30, true);
        let recording = t.finish();
        let found = said(&recording, "leak");
        assert!(found.sentence.contains("model.py"), "{}", found.sentence);
        assert_eq!(found.bytes, 30 * 14 * MIB, "{way:?}: the model is no part of it");
    }
}

#[test]
fn a_model_that_is_dropped_before_the_end_was_loaded_too() {
    let mut t = Tape::new();
    let names = names(&mut t, true);
    let model = load(&mut t, Way::Cast, 24, &names);
    train(&mut t, 20, false);
    t.free_all(model);
    let recording = t.finish();
    assert_eq!(steps(&recording).len(), 20);
    silent(&recording, "leak");
}
