//! Each source of a role, on recordings made by hand.

use super::*;
use crate::model::{Action, Annotation, Frame, Note, NoteKind, PoolId, StackId, StackTableBuilder, StreamId};
use crate::tables::NO_EVENT;

/// Builds a recording event by event, one microsecond apart.
#[derive(Default)]
struct Script {
    stacks: StackTableBuilder,
    device: DeviceRecording,
}

impl Script {
    fn stack(&mut self, frames: &[(&str, &str)]) -> StackId {
        let frames: Vec<_> = frames
            .iter()
            .map(|(file, name)| {
                let (file, name) = (self.stacks.string(file), self.stacks.string(name));
                self.stacks.frame(Frame { name, file, line: 1 })
            })
            .collect();
        self.stacks.stack(&frames)
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stack: StackId) -> u32 {
        let event = self.device.events.len() as u32;
        self.device.events.has_time = true;
        self.device.events.push(i64::from(event), action, address, size, StreamId(0), PoolId(0), stack);
        event
    }

    fn alloc(&mut self, address: u64, size: u64, stack: StackId) -> u32 {
        self.event(Action::Alloc, address, size, stack)
    }

    fn free(&mut self, address: u64, size: u64) {
        self.event(Action::FreeRequested, address, size, StackId::NONE);
        self.event(Action::FreeCompleted, address, size, StackId::NONE);
    }

    fn note(&mut self, event: u32, kind: NoteKind, text: &str) {
        let text = self.stacks.string(text);
        self.device.events.notes.push(Note { event, kind, text });
    }

    fn range(&mut self, name: &str, from: u32, to: u32) {
        let name = self.stacks.string(name);
        let depth = self.device.annotations.len() as u16;
        self.device.annotations.push(Annotation { name, start_us: i64::from(from), end_us: Some(i64::from(to)), depth });
    }

    /// Role and evidence of each allocation, in order of allocation.
    fn read(self) -> Vec<(Role, Trust)> {
        let recording = Recording { devices: vec![self.device], stacks: self.stacks.finish(), ..Recording::default() };
        let device = &recording.devices[0];
        let progress = Progress::new();
        let tables = DeviceTables::build(device, &progress).unwrap();
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
        let end = roles.live_by_role(device, &tables, device.events.len() as u32 - 1);
        let live = (0..tables.lifetimes.len() as u32).filter(|&i| tables.lifetimes.gone(LifetimeId(i)) == NO_EVENT).count();
        assert_eq!(end.iter().map(|t| t.count).sum::<u64>(), live as u64);
        (0..tables.lifetimes.len() as u32)
            .map(|i| {
                let why = roles.why(&recording, device, &tables, LifetimeId(i));
                (why.role, why.trust)
            })
            .collect()
    }
}

const MODULE: &str = "/site-packages/torch/nn/modules/module.py";
const LINEAR: &str = "/site-packages/torch/nn/modules/linear.py";
const ADAM: &str = "/site-packages/torch/optim/adam.py";

#[test]
fn what_is_recorded_stands_above_what_is_guessed() {
    let mut s = Script::default();
    let forward = s.stack(&[(LINEAR, "forward"), ("train.py", "step")]);
    let script = s.stack(&[("train.py", "step")]);
    let a = s.alloc(0x1000, 512, forward);
    let b = s.alloc(0x2000, 512, forward);
    let c = s.alloc(0x3000, 512, script);
    s.alloc(0x4000, 512, forward);
    s.alloc(0x5000, 512, script);
    s.note(a, NoteKind::UserMetadata, "my kv_cache");
    s.note(a, NoteKind::Category, "gradient");
    s.note(b, NoteKind::UserMetadata, "{\"what\": \"kv_cache\"}");
    s.range("load weights", c, c);
    assert_eq!(
        s.read(),
        [
            (Role::Gradients, Trust::Profiler),
            (Role::KvCache, Trust::Metadata),
            (Role::Weights, Trust::Annotation),
            (Role::Temporaries, Trust::Stack),
            (Role::Unknown, Trust::Nothing),
        ]
    );
}

#[test]
fn the_innermost_telling_frame_decides() {
    let mut s = Script::default();
    let stacks = [
        vec![(MODULE, "<lambda>"), (MODULE, "_apply"), (MODULE, "cuda"), ("train.py", "main")],
        vec![("/x/transformers/cache_utils.py", "update"), ("/x/model.py", "forward"), (MODULE, "_call_impl")],
        vec![("/x/torch/distributed/distributed_c10d.py", "all_reduce"), ("/x/model.py", "forward")],
        vec![("/x/torch/_inductor/runtime/triton_heuristics.py", "prepare_arg"), ("t.py", "call")],
        vec![("/tmp/torchinductor_me/a.py", "call"), ("/x/torch/_functorch/wrappers.py", "backward"), ("t.py", "main")],
        vec![("/tmp/torchinductor_me/a.py", "call"), ("t.py", "main")],
        vec![("flashinfer/prefill.py", "_get_workspace_buffer"), ("t.py", "forward")],
        // A custom Function runs forward from the script and backward in autograd's thread.
        vec![("my.py", "gelu"), ("/x/torch/autograd/function.py", "apply"), ("t.py", "forward")],
        vec![("my.py", "gelu_back"), ("/x/torch/autograd/function.py", "apply")],
        vec![("t.py", "kv_append"), ("t.py", "main")],
        vec![("/site-packages/x.py", "kv_proj"), ("t.py", "forward")],
    ];
    for (i, frames) in stacks.iter().enumerate() {
        let stack = s.stack(frames);
        let address = 0x1000 * (i as u64 + 1);
        s.alloc(address, 512, stack);
    }
    let found: Vec<Role> = s.read().into_iter().map(|(c, _)| c).collect();
    use Role as C;
    assert_eq!(
        found,
        [
            C::Weights,
            // When training, a cache class may hold activations for the backward pass.
            C::Activations,
            C::Buckets,
            C::Temporaries,
            C::Gradients,
            C::Inputs,
            C::Workspaces,
            C::Activations,
            C::Gradients,
            C::KvCache,
            C::Temporaries,
        ]
    );
}

/// Two training steps; with `stacks`, as PyTorch records them, and without.
fn training(with_stacks: bool, with_ranges: bool) -> Vec<Role> {
    let mut s = Script::default();
    let mut stack = |frames: &[(&str, &str)]| {
        let id = s.stack(frames);
        if with_stacks { id } else { StackId::NONE }
    };
    let model = stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("train.py", "main")]);
    let forward = stack(&[(LINEAR, "forward"), ("train.py", "main")]);
    let adam = stack(&[(ADAM, "step"), ("train.py", "main")]);
    if !with_stacks {
        s.stacks = StackTableBuilder::new();
    }
    s.alloc(0x10000, 4096, model); // parameter
    for step in 0..2 {
        s.alloc(0x20000, 9000, forward); // activation
        s.alloc(0x30000, 4096, StackId::NONE); // gradient
        s.alloc(0x40000, 9000, StackId::NONE); // on the way to it
        s.free(0x40000, 9000);
        s.free(0x20000, 9000);
        let from = s.device.events.len() as u32;
        if step == 0 {
            s.alloc(0x50000, 4096, adam); // state
        }
        s.alloc(0x60000, 4096, adam); // scratch
        s.free(0x60000, 4096);
        let to = s.device.events.len() as u32 - 1;
        if with_ranges {
            s.range("Optimizer.step#Adam.step", from, to);
        }
        s.free(0x30000, 4096);
    }
    s.read().into_iter().map(|(c, _)| c).collect()
}

#[test]
fn lifetimes_beside_the_optimizers_steps_tell_the_rest() {
    use Role as C;
    let first = [C::Weights, C::Activations, C::Gradients, C::Temporaries, C::OptimizerState, C::Temporaries];
    let second = [C::Activations, C::Gradients, C::Temporaries, C::Temporaries];
    let expected = [first.as_slice(), second.as_slice()].concat();
    assert_eq!(training(true, true), expected);
    assert_eq!(training(true, false), expected, "steps are found from the optimizer's own allocations");
    let mut without = training(false, true);
    // Without stacks, temporaries cannot be distinguished from activations within a step.
    without.iter_mut().zip(&expected).filter(|(f, e)| **f == C::Activations && **e == C::Temporaries).for_each(|(f, e)| *f = *e);
    assert_eq!(without, expected);
    assert_eq!(training(false, false), vec![C::Unknown; expected.len()], "nothing is known, and nothing is made up");
}

/// Layers built at the start, then requests, each of which keeps a block that grows by copies. No optimizer, no library.
fn serving(name: &str, replaces: bool) -> Vec<(Role, Trust)> {
    let mut s = Script::default();
    let layer = s.stack(&[("serve.py", "__init__"), ("serve.py", "main")]);
    let request = s.stack(&[("serve.py", "admit"), ("serve.py", "main")]);
    let grow = s.stack(&[("serve.py", name), ("serve.py", "decode"), ("serve.py", "main")]);
    s.alloc(0x1000, 4096, layer); // kept
    s.alloc(0x3000, 4096, layer); // scratch of the same line
    s.free(0x3000, 4096);
    let mut size = 8192;
    let mut at = 0x1_0000;
    s.alloc(at, size, request);
    for step in 0..40 {
        let next = 0x1_0000 * (step + 2);
        s.alloc(next, size + 512, grow);
        if replaces {
            s.free(at, size);
        }
        (at, size) = (next, size + 512);
    }
    s.read()
}

#[test]
fn a_cache_of_ones_own_that_grows_by_copies_is_a_cache_and_what_is_built_and_kept_is_parameters() {
    use Role as C;
    let found = serving("grow_cache", true);
    assert_eq!(found[..3], [(C::Weights, Trust::Lifetime), (C::Temporaries, Trust::Stack), (C::KvCache, Trust::Lifetime)]);
    assert!(found[3..].iter().all(|&f| f == (C::KvCache, Trust::Lifetime)), "{found:?}");
    // Neither a name alone nor copies alone are sufficient.
    for (name, replaces) in [("grow_cache", false), ("grow_buffer", true)] {
        let found = serving(name, replaces);
        assert!(found[2..].iter().all(|f| f.0 != C::KvCache), "{name}: {found:?}");
    }
    // A constructor that goes on allocating builds no model.
    let mut s = Script::default();
    let request = s.stack(&[("serve.py", "__init__"), ("serve.py", "main")]);
    for i in 1..40 {
        s.alloc(0x1000 * i, 512, request);
    }
    assert!(s.read().iter().all(|&f| f == (C::Unknown, Trust::Nothing)));
}

/// A constructor that makes a table of positions with `einsum` is not a forward pass, so its weights are not inputs of one.
#[test]
fn an_operator_that_a_constructor_calls_builds_the_model() {
    let read = |function: &str| {
        let mut s = Script::default();
        let weight = s.stack(&[("model.py", "__init__"), ("train.py", "main")]);
        let table = s.stack(&[("/x/torch/functional.py", "einsum"), ("model.py", function), ("train.py", "main")]);
        let forward = s.stack(&[(LINEAR, "forward"), (MODULE, "_call_impl"), ("train.py", "main")]);
        for layer in 0..3u64 {
            s.alloc(0x10_0000 + 0x4000 * layer, 4096, weight);
            s.alloc(0x20_0000 + 0x4000 * layer, 512, table);
        }
        for _ in 0..4 {
            s.alloc(0x30_0000, 8192, forward);
            s.free(0x30_0000, 8192);
        }
        // The weight of the last layer is made after the table of the first.
        s.read()[4].0
    };
    assert_eq!(read("__init__"), Role::Weights);
    assert_ne!(read("step"), Role::Weights, "a function that is not a constructor computes");
}

/// Keys and values that a script concatenates with the next token's: two lines whose blocks grow alike. One line may be tokens.
#[test]
fn two_lines_that_grow_alike_are_keys_and_values() {
    const MIB: u64 = 1 << 20;
    let read = |lines: &[&str]| {
        let mut s = Script::default();
        let stacks: Vec<StackId> = lines.iter().map(|line| s.stack(&[(line, "<module>")])).collect();
        for token in 0..20u64 {
            for (at, &stack) in stacks.iter().enumerate() {
                let place = |token: u64| 0x1000_0000 * (token % 2 + 1) + 0x1_0000_0000 * at as u64;
                s.alloc(place(token), (8 + token) * MIB, stack);
                if token > 0 {
                    s.free(place(token - 1), (7 + token) * MIB);
                }
            }
        }
        s.read().into_iter().filter(|found| found.0 == Role::KvCache).count()
    };
    assert_eq!(read(&["keys.py", "values.py"]), 40);
    assert_eq!(read(&["tokens.py"]), 0);
}

/// Models that wait in host memory for their turn are weights, however short their stay. A replaced weight is not.
#[test]
fn weights_that_are_moved_away_are_weights() {
    let read = |is_converted: bool| {
        let mut s = Script::default();
        let moves = s.stack(&[(MODULE, "_apply"), (MODULE, "to"), ("train.py", "main")]);
        let places: Vec<u64> = (0..6).map(|layer| 0x10_0000 + 0x4000 * layer).collect();
        for &place in &places {
            s.alloc(place, 8192, moves);
        }
        for &place in &places {
            if is_converted {
                s.alloc(place + 0x10_0000, 4096, moves);
            }
            s.free(place, 8192);
        }
        s.read().into_iter().take(6).map(|found| found.0).collect::<Vec<_>>()
    };
    assert_eq!(read(false)[1..], [Role::Weights; 5]);
    assert_eq!(read(true), [Role::Temporaries; 6]);
}

/// A server that takes new weights in place of old ones, some from before the recording. Its functions say what they do.
#[test]
fn code_that_says_that_it_loads_weights_makes_and_frees_weights() {
    let read = |function: &str| {
        let mut s = Script::default();
        let load = s.stack(&[("shards.py", function), ("server.py", "step"), ("server.py", "generate")]);
        for shard in 0..6u64 {
            s.alloc(0x10_0000 + 0x4000 * shard, 8192, load);
            s.event(Action::FreeRequested, 0x40_0000 + 0x4000 * shard, 4096, load);
            s.event(Action::FreeCompleted, 0x40_0000 + 0x4000 * shard, 4096, load);
        }
        s.read().into_iter().map(|found| found.0).collect::<Vec<_>>()
    };
    assert_eq!(read("extend_and_load_shard"), [Role::Weights; 12], "six from before and six new ones");
    assert!(read("offload_weights").iter().all(|&role| role != Role::Weights));
}

#[test]
fn words_name_roles_only_when_whole() {
    assert_eq!(role_named("KV cache of layer 3"), Some(Role::KvCache));
    assert_eq!(role_named("optimizer_state"), Some(Role::OptimizerState));
    assert_eq!(role_named("grads: bucket 2"), Some(Role::Gradients));
    assert_eq!(role_named("no_grad"), None);
    assert_eq!(role_named("forward"), None);
    for c in Role::ALL {
        assert!(c == Role::Unknown || role_named(c.name()) == Some(c), "{c:?}");
        assert_eq!(Role::ALL[c.index()], c);
    }
}

/// A model made by a module, a list of the program's own with one block per weight, and one step.
fn beside_weights(times: u64, library: bool) -> Vec<Role> {
    let mut s = Script::default();
    let model = s.stack(&[(MODULE, "_apply"), (MODULE, "cuda"), ("train.py", "main")]);
    let list = s.stack(&[("train.py", "main")]);
    let forward = s.stack(&[(LINEAR, "forward"), ("train.py", "main")]);
    let adam = s.stack(&[(ADAM, "step"), ("train.py", "main")]);
    let sizes = [8192, 12288, 16384, 20480];
    for (i, size) in (0..).zip(sizes) {
        s.alloc(0x1_0000 + i * 0x1_0000, size, model);
    }
    for (i, size) in (0..).zip(sizes) {
        s.alloc(0x10_0000 + i * 0x1_0000, size * times, list);
    }
    s.alloc(0x20_0000, 9000, forward);
    for (i, size) in (0..).zip(sizes) {
        s.alloc(0x30_0000 + i * 0x1_0000, size, StackId::NONE);
    }
    s.free(0x20_0000, 9000);
    if library {
        s.alloc(0x40_0000, 8192, adam);
    }
    s.read().into_iter().skip(4).take(4).map(|(role, _)| role).collect()
}

#[test]
fn what_a_program_keeps_for_each_weight_is_its_optimizers() {
    assert_eq!(beside_weights(2, true), [Role::OptimizerState; 4], "fp32 copies of half-precision weights");
    assert_eq!(beside_weights(1, false), [Role::OptimizerState; 4], "momentum of an optimizer that is written by hand");
    assert_eq!(beside_weights(1, true), [Role::Weights; 4], "a copy of the weights beside a library's optimizer");
    assert_ne!(beside_weights(3, true), [Role::OptimizerState; 4]);
}

/// Rounds of a forward pass in a trace that names only operators. Each round keeps its blocks to its end, or the trace's.
fn forward_only(rounds: usize, is_freed: bool) -> (usize, Option<crate::anatomy::Phase>, Vec<Role>) {
    let mut s = Script::default();
    s.device.events.sizes_are_blocks = true;
    let names = ["conv2d", "batch_norm", "add", "relu_", "max_pool2d", "linear"].map(|name| format!("aten::{name}"));
    let layers: Vec<StackId> = names.iter().map(|name| s.stack(&[(crate::formats::kineto::OPERATOR_FILE, name)])).collect();
    for round in 0..rounds as u64 {
        let place = |i: u64| 0x100_0000 * (round + 1) + i * 0x1_0000;
        let size = |i: u64| 1024 * (i + 1);
        (0..45).for_each(|i| _ = s.alloc(place(i), size(i), layers[i as usize % layers.len()]));
        if is_freed {
            (0..45).for_each(|i| s.free(place(i), size(i)));
        }
    }
    let recording = Recording { devices: vec![s.device], stacks: s.stacks.finish(), ..Recording::default() };
    let (device, progress) = (&recording.devices[0], Progress::new());
    let tables = DeviceTables::build(device, &progress).unwrap();
    let roles = Roles::build(&recording, device, &tables, &Rules::default(), &progress).unwrap();
    let first = (0..45).map(|i| roles.of(LifetimeId(i))).collect();
    (roles.anatomy.steps.len(), roles.anatomy.phases.at(0), first)
}

#[test]
fn operators_of_layers_show_a_forward_pass_without_python() {
    let (steps, phase, roles) = forward_only(5, true);
    assert_eq!((steps, phase), (5, Some(crate::anatomy::Phase::Forward)));
    assert!(roles.iter().filter(|role| **role == Role::Activations).count() >= 43, "{roles:?}");
    // Blocks that repeat and stay are the layers of one pass.
    let (steps, _, roles) = forward_only(5, false);
    assert_eq!((steps, roles), (0, vec![Role::Activations; 45]));
}
