//! Roles and steps of small hand-written programs. Each tests a rule that no recording of `tests/recordings` tests alone.

use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::model::{Progress, Recording, StackId};
use vramscope_core::tables::{DeviceTables, NO_EVENT};

use crate::tape::{Handle, MIB, Tape};

struct Read {
    tables: DeviceTables,
    roles: Roles,
}

impl Read {
    fn of(recording: &Recording) -> Self {
        let (device, progress) = (&recording.devices[0], Progress::new());
        let tables = DeviceTables::build(device, &progress).unwrap();
        let roles = Roles::build(recording, device, &tables, &Rules::default(), &progress).unwrap();
        Read { tables, roles }
    }

    /// MiB of a role after an event.
    fn held(&self, event: u32, role: Role) -> u64 {
        let live = self.tables.states.live_at(&self.tables.lifetimes, event);
        live.into_iter().filter(|&id| self.roles.of(id) == role).map(|id| self.tables.lifetimes.block_size(id) / MIB).sum()
    }
}

/// Sizes of four weights in MiB.
const WEIGHTS: [u64; 4] = [12, 14, 16, 18];

#[test]
fn older_moments_that_the_optimizer_replaces_are_its_state() {
    let mut t = Tape::new();
    let build = t.stack(&[("/home/me/model.py", "make")]);
    let backward = t.stack(&[("torch/_tensor.py", "backward"), ("/home/me/train.py", "main")]);
    let step = t.stack(&[("/home/me/adamw.py", "step"), ("/home/me/train.py", "main")]);
    let place = |t: &mut Tape| -> Vec<Handle> { WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, build)).collect() };
    let _weights = place(&mut t);
    let moments = [place(&mut t), place(&mut t)];
    let gradients: Vec<Handle> = WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, build)).collect();
    // The history begins in the middle of a step and has only the last block of its backward pass.
    t.forget();
    t.brief(10 * MIB, backward);
    for (i, mib) in WEIGHTS.iter().enumerate() {
        for old in moments.iter().map(|moment| moment[i]) {
            let product = t.alloc(mib * MIB, step);
            t.alloc(mib * MIB, step);
            t.free(product);
            t.free(old);
        }
    }
    t.brief(10 * MIB, step);
    t.free_all(gradients);
    let read = Read::of(&t.finish());
    let all: u64 = WEIGHTS.iter().sum();
    assert_eq!(read.held(NO_EVENT, Role::Activations), 0, "a moment is no activation");
    assert_eq!(read.held(0, Role::OptimizerState), 2 * all, "both moments, before they were replaced");
}

#[test]
fn the_state_that_an_optimizers_constructor_makes_stays_state_when_it_is_replaced() {
    let mut t = Tape::new();
    let load = t.stack(&[
        ("torch/nn/modules/module.py", "convert"),
        ("torch/nn/modules/module.py", "_apply"),
        ("/home/me/train.py", "main"),
    ]);
    let constructor = t.stack(&[("/home/me/adam_forward.py", "<listcomp>"), ("/home/me/adam_forward.py", "__init__")]);
    let update = t.stack(&[("/home/me/adam_forward.py", "update_paramwise"), ("/home/me/train.py", "main")]);
    let call = |line: &str, t: &mut Tape| {
        let module = ("torch/nn/modules/module.py", "_call_impl");
        t.stack(&[
            ("torch/nn/modules/linear.py", "forward"),
            module,
            ("/home/me/helper.py", "evaluate"),
            ("/home/me/train.py", line),
        ])
    };
    let calls = [call("plus", &mut t), call("minus", &mut t), call("loss", &mut t)];
    for mib in WEIGHTS {
        t.alloc(mib * MIB, load);
    }
    let mut state: Vec<Handle> = WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, constructor)).collect();
    for _ in 0..3 {
        for stack in calls {
            for size in [20, 22, 24] {
                t.brief(size * MIB, stack);
            }
            // Other allocations between the calls, none as large as a weight.
            for _ in 0..4 {
                t.brief(30 * MIB, update);
            }
        }
        for (slot, mib) in state.iter_mut().zip(WEIGHTS) {
            let scaled = t.alloc(mib * MIB, update);
            let new = t.alloc(mib * MIB, update);
            t.free(scaled);
            t.free(std::mem::replace(slot, new));
        }
    }
    let last = t.last();
    let read = Read::of(&t.finish());
    let all: u64 = WEIGHTS.iter().sum();
    assert_eq!((read.held(last, Role::Weights), read.held(last, Role::OptimizerState)), (all, all));
    // Three calls of the model from three lines form one step.
    let steps = &read.roles.anatomy.steps;
    assert_eq!((steps.len(), steps.how().as_str()), (3, "each is 3 calls of the model (helper.py:12)"));
}

/// `p.data = p.data * decay` and then `p.data = p.data - update`: each gives the parameter new memory. The optimizer created its
/// state in its constructor, beside a model of hand-written layers.
#[test]
fn weights_that_the_optimizer_gives_new_memory_stay_weights() {
    let mut t = Tape::new();
    let layer = t.stack(&[("/home/me/linear.py", "__init__"), ("/home/me/model.py", "__init__"), ("/home/me/train.py", "main")]);
    let constructor = t.stack(&[("/home/me/optimizer.py", "__init__"), ("/home/me/train.py", "main")]);
    let module = ("torch/nn/modules/module.py", "_call_impl");
    let forward = t.stack(&[("/home/me/linear.py", "forward"), module, ("/home/me/train.py", "main")]);
    let backward = t.stack(&[("torch/_tensor.py", "backward"), ("/home/me/train.py", "main")]);
    let step = t.stack(&[("/home/me/optimizer.py", "step"), ("/home/me/train.py", "main")]);
    let mut place = |stack: StackId| -> Vec<Handle> { WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, stack)).collect() };
    let (mut weights, mut state) = (place(layer), place(constructor));
    for _ in 0..3 {
        let activations: Vec<Handle> = [40, 42].iter().map(|mib| t.alloc(mib * MIB, forward)).collect();
        let gradients: Vec<Handle> = WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, backward)).collect();
        t.free_all(activations);
        for (i, mib) in WEIGHTS.iter().enumerate() {
            let momentum = t.alloc(mib * MIB, step);
            let decayed = t.alloc(mib * MIB, step);
            t.free(std::mem::replace(&mut weights[i], decayed));
            let stepped = t.alloc(mib * MIB, step);
            t.free(std::mem::replace(&mut weights[i], stepped));
            t.free(std::mem::replace(&mut state[i], momentum));
        }
        t.free_all(gradients);
    }
    let last = t.last();
    let read = Read::of(&t.finish());
    let all: u64 = WEIGHTS.iter().sum();
    assert_eq!((read.held(last, Role::Weights), read.held(last, Role::OptimizerState)), (all, all));
}

/// An inner loop calls the model from one line. The allocation that begins a round of the outer loop happens once per several
/// calls.
#[test]
fn rounds_of_a_loop_around_the_calls_are_steps() {
    let run = |is_even: bool| {
        let mut t = Tape::new();
        let noise = t.stack(&[("/home/me/sampler.py", "main")]);
        let update = t.stack(&[("/home/me/sampler.py", "sample")]);
        let module = ("torch/nn/modules/module.py", "_call_impl");
        let call = |name: &str, t: &mut Tape| {
            t.stack(&[("/home/me/unet.py", name), ("/home/me/unet.py", "forward"), module, ("/home/me/sampler.py", "sample")])
        };
        let lines = [call("down", &mut t), call("middle", &mut t), call("up", &mut t)];
        for round in 0..4 {
            let x = t.alloc(20 * MIB, noise);
            for _ in 0..if is_even { 3 } else { 3 + round } {
                for stack in lines {
                    t.brief(24 * MIB, stack);
                }
                t.brief(30 * MIB, update);
            }
            t.free(x);
        }
        let steps = Read::of(&t.finish()).roles.anatomy.steps;
        (steps.len(), steps.how())
    };
    assert_eq!(run(true), (4, "each is 3 calls of the model (sampler.py:13)".to_owned()));
    assert_eq!(run(false).0, 3 + 4 + 5 + 6);
}

/// Without stacks, annotations of the optimizer's step identify its state. Other blocks of the same sizes are weights.
#[test]
fn what_is_made_within_the_optimizers_annotation_is_its_state() {
    let mut t = Tape::new();
    let place = |t: &mut Tape| -> Vec<Handle> { WEIGHTS.iter().map(|mib| t.alloc(mib * MIB, StackId::NONE)).collect() };
    let (_weights, _average) = (place(&mut t), place(&mut t));
    let _replay = t.alloc(900 * MIB, StackId::NONE);
    let (mut gradients, mut state): (Vec<Handle>, Vec<Handle>) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        gradients.drain(..).for_each(|h| t.free(h));
        let activations: Vec<Handle> = [20, 22, 24, 26].map(|mib| t.alloc(mib * MIB, StackId::NONE)).into();
        gradients = place(&mut t);
        t.free_all(activations);
        t.optimizer(|t| {
            if state.is_empty() {
                state = place(t);
                state.extend(place(t));
            }
            place(t).into_iter().for_each(|h| t.free(h));
        });
    }
    let last = t.last();
    let read = Read::of(&t.finish());
    let all: u64 = WEIGHTS.iter().sum();
    let roles = [Role::Weights, Role::OptimizerState, Role::Gradients, Role::Unknown];
    let held = roles.map(|role| read.held(last, role));
    assert_eq!(
        held,
        [2 * all, 2 * all, all, 900],
        "a replay buffer is no weight: it has no gradient, and the weights have one each"
    );
}

#[test]
fn gradients_that_move_with_the_model_are_no_weights() {
    let run = |moves: bool| {
        let mut t = Tape::new();
        // `_apply` moves a weight from one line and its gradient from a later line.
        let module = "torch/nn/modules/module.py";
        let weight = t.stack(&[(module, "convert"), (module, "_apply"), (module, "to")]);
        let gradient = t.stack(&[(module, "<lambda>"), ("torch/utils/fill.py", "fill"), (module, "_apply"), (module, "to")]);
        for mib in WEIGHTS {
            t.alloc(mib * MIB, weight);
            // Buffers are fewer or small.
            if moves || mib == WEIGHTS[0] {
                t.alloc(mib * MIB, gradient);
            }
        }
        t.forget();
        let read = Read::of(&t.finish());
        (read.held(NO_EVENT, Role::Weights), read.held(NO_EVENT, Role::Gradients))
    };
    let all: u64 = WEIGHTS.iter().sum();
    assert_eq!(run(true), (all, all));
    assert_eq!(run(false), (all + WEIGHTS[0], 0));
}

/// A reference model is called twice without gradients. Then the trained model is called, keeps its activations, and fails.
#[test]
fn calls_of_frozen_models_are_no_steps() {
    let mut t = Tape::new();
    let module = ("torch/nn/modules/module.py", "_call_impl");
    let frozen = t.stack(&[("/home/me/embedder.py", "forward"), module, ("/home/me/train.py", "embed")]);
    let trained =
        t.stack(&[("/home/me/gpt.py", "forward"), module, ("/home/me/trainer.py", "loss"), ("/home/me/train.py", "main")]);
    let between = t.stack(&[("/home/me/train.py", "main")]);
    for _ in 0..2 {
        for _ in 0..20 {
            t.brief(20 * MIB, frozen);
        }
        (0..4).for_each(|_| _ = t.alloc(20 * MIB, between));
    }
    (0..12).for_each(|_| _ = t.alloc(24 * MIB, trained));
    let steps = Read::of(&t.finish()).roles.anatomy.steps;
    assert_eq!((steps.len(), steps.how().as_str()), (1, "each is one call of the model (trainer.py:12)"));
}
