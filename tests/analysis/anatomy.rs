//! Compares steps, roles and leaks with the truth: programs that ran on a GPU and reported which tensor is at which address.
//!
//! `tests/recordings/README.md` describes the programs and how the truth was obtained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::shared::{open, tables};
use serde_json::Value;
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::anatomy::{Phase, Role};
use vramscope_core::diagnose::leaks::{cannot_tell, growth};
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::model::{DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// The truth of all recordings whose name `accepts` accepts.
fn truth(accepts: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(folder().join("truth.json")).unwrap();
    let all: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    let chosen: Vec<_> = all.into_iter().filter(|(name, _)| accepts(name)).collect();
    assert!(!chosen.is_empty());
    chosen
}

struct Read {
    recording: Recording,
    tables: DeviceTables,
    roles: Roles,
}

impl Read {
    fn of(name: &str) -> Self {
        let recording = open(&folder().join(format!("{name}.pickle.zst")));
        let device = recording.busiest_device().unwrap();
        let tables = tables(&recording.devices[device]);
        let progress = Progress::new();
        let roles = Roles::build(&recording, &recording.devices[device], &tables, &Rules::default(), &progress).unwrap();
        Read { recording, tables, roles }
    }

    fn device(&self) -> &DeviceRecording {
        &self.recording.devices[self.recording.busiest_device().unwrap()]
    }

    /// Requested bytes by role before a trace's event.
    fn before(&self, event: u64) -> BTreeMap<&'static str, u64> {
        let at = (event as u32).checked_sub(1).unwrap_or(NO_EVENT);
        let mut sums = BTreeMap::new();
        for id in self.tables.states.live_at(&self.tables.lifetimes, at) {
            *sums.entry(self.roles.of(id).name()).or_insert(0) += self.tables.lifetimes.requested(self.device(), id);
        }
        sums
    }
}

/// A search over model widths, recorded without stacks. The optimizer's state reveals each model's weights, and these reveal its
/// gradients.
#[test]
fn weights_of_later_models_are_known_by_the_state_that_is_made_for_them() {
    let read = Read::of("promised/trials.none");
    let (_, event) = read.tables.curves.peak(Quantity::Active);
    let held = read.before(u64::from(event) + 1);
    assert_eq!(["weights", "gradients", "optimizer_state"].map(|role| held[role] >> 20), [49, 48, 96], "{held:?}");
}

/// Features of video frames that are kept for later frames. They are made after a pass and are not inputs.
#[test]
fn what_is_kept_of_a_pass_is_no_input() {
    let read = Read::of("promised/frames_memory");
    let (_, event) = read.tables.curves.peak(Quantity::Active);
    assert_eq!(read.before(u64::from(event) + 1).get("inputs").map_or(0, |bytes| bytes >> 20), 0);
}

/// Maps role names of the truth to ours, including roles that we do not distinguish.
fn our_name(role: &str) -> &str {
    match role {
        "workspace" => "workspaces",
        "ema_weights" => "weights",
        "gathered_weights" | "communication_buckets" => "buckets",
        // Tensors in the program's variables may also be kept for the backward pass.
        "outputs" | "other" | "python_held" | "latents" => "rest",
        other => other,
    }
}

/// The share of bytes with a wrong role: half the sum of the differences.
fn wrong(truth: &Value, found: &BTreeMap<&'static str, u64>) -> f64 {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (role, bytes) in truth.as_object().unwrap() {
        sums.entry(our_name(role)).or_default().0 += bytes.as_f64().unwrap();
    }
    for (role, bytes) in found {
        let role = if matches!(*role, "temporaries" | "unknown") { "rest" } else { role };
        sums.entry(role).or_default().1 += *bytes as f64;
    }
    let all: f64 = sums.values().map(|s| s.0).sum::<f64>().max(1.0);
    sums.values().map(|s| (s.0 - s.1).abs()).sum::<f64>() / 2.0 / all
}

#[test]
fn steps_are_those_of_the_programs_own_loop() {
    let mut odd = Vec::new();
    let all = truth(|name| name.ends_with("python"));
    for (name, row) in &all {
        let Some(steps) = row["steps"].as_u64() else { continue };
        let found = Read::of(name).roles.anatomy.steps;
        if found.len() as u64 != steps {
            odd.push(format!("{name}: {} and not {steps}: {}", found.len(), found.how()));
        }
    }
    // A program that fails in every second step has steps without an optimizer.
    odd.retain(|line| !line.starts_with("leak_traceback"));
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn steps_found_by_calls_begin_with_their_call() {
    let read = Read::of("eval_inference.start.python");
    let (steps, events) = (&read.roles.anatomy.steps, &read.device().events);
    // The first convolution allocates 12.5 MiB. The line that runs once per call is in the middle of the call.
    let made: Vec<u64> = steps.bounds.iter().take(steps.len()).map(|&bound| events.size[bound as usize]).collect();
    assert_eq!(made, [13_107_200; 6]);
    let peak = read.roles.anatomy.words_at(read.tables.curves.peak_event());
    assert_eq!(peak.replace('\u{a0}', " "), "in step 2, in an evaluation");
}

/// An evaluation includes the work between its passes, where predictions are joined.
#[test]
fn an_evaluation_is_one_between_its_passes_too() {
    for (name, said) in [("promised/predict", "in an evaluation"), ("promised/validate", "in step 4, in an evaluation")] {
        let read = Read::of(name);
        let peak = read.roles.anatomy.words_at(read.tables.curves.peak_event());
        assert_eq!(peak.replace('\u{a0}', " "), said, "{name}");
    }
}

/// What each program holds after `zero_grad` freed the gradients. Some call it at the end of a step, some at the start of the
/// next.
#[test]
fn steps_end_without_their_gradients() {
    let expected = [
        ("gpt2_fp32.start.python", "No growth so far: all 5 steps come back to 125.91 MiB"),
        ("gpt2_accum.start.python", "No growth so far: all 4 steps come back to 125.91 MiB"),
        ("gpt2_amp.start.python", "No growth so far: all 4 steps before the last come back to 165.94 MiB"),
        ("leak_ema.healthy.none", "No growth: all 8 steps come back to 103.39 MiB"),
    ];
    for (name, said) in expected {
        let read = Read::of(name);
        let found = no_growth(read.device(), &read.tables, &read.roles.anatomy.steps);
        assert_eq!(found.map(|said| said.replace('\u{a0}', " ")).as_deref(), Some(said), "{name}");
    }
}

#[test]
fn the_model_its_gradients_and_its_optimizer_are_told_apart_to_the_byte_where_all_was_recorded() {
    let mut odd = Vec::new();
    for (name, row) in truth(|name| name.ends_with("start.python")) {
        let read = Read::of(&name);
        for instant in row["instants"].as_array().unwrap() {
            let (event, roles) = (instant[0].as_u64().unwrap(), &instant[1]);
            let found = read.before(event);
            for role in [Role::Weights, Role::Gradients, Role::OptimizerState] {
                let truth = roles[role.name()].as_u64().unwrap_or(0);
                let ours = found.get(role.name()).copied().unwrap_or(0);
                // Step counters, a few bytes each, are part of the optimizer state, but no stack distinguishes them from
                // temporaries.
                if truth.abs_diff(ours) > truth / 1000 + 65_536 {
                    odd.push(format!("{name} at {event}: {} {ours} and not {truth}", role.text()));
                }
            }
        }
    }
    // DDP's gradients are views of its buckets; a hand-written optimizer replaces its weights; instants inside the backward pass
    // count a gradient before it is one.
    let known = ["ddp", "fsdp2", "mlp_handadam", "gpt2_ckpt"];
    odd.retain(|line| !known.iter().any(|name| line.starts_with(name)));
    assert!(odd.is_empty(), "{odd:#?}");
}

#[test]
fn the_model_its_gradients_and_its_optimizer_are_told_apart_where_all_of_them_are_older() {
    for (name, row) in truth(|name| name.ends_with("mid.python")) {
        let instant = &row["instants"][0];
        let found = Read::of(&name).before(instant[0].as_u64().unwrap());
        let roles = [Role::Weights, Role::Gradients, Role::OptimizerState].map(|r| r.name());
        let truth = roles.map(|role| instant[1][role].as_u64().unwrap_or(0));
        let room = (1 << 20) + truth.iter().sum::<u64>() / 40;
        for (role, is) in roles.into_iter().zip(truth) {
            let told = found.get(role).copied().unwrap_or(0);
            assert!(told.abs_diff(is) <= room, "{name}: {role} {told}, not {is}");
        }
    }
}

#[test]
fn little_of_a_recording_is_in_the_wrong_role() {
    let (mut shares, mut lines) = (Vec::new(), Vec::new());
    for (name, row) in truth(|name| name.ends_with("python") && !name.starts_with("leak_")) {
        let read = Read::of(&name);
        let instants = row["instants"].as_array().unwrap();
        let sum: f64 = instants.iter().map(|i| wrong(&i[1], &read.before(i[0].as_u64().unwrap()))).sum();
        let share = sum / instants.len() as f64;
        lines.push(format!("{share:.3} {name}"));
        shares.push(share);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    lines.sort();
    assert!(mean < 0.10 && shares.iter().all(|&s| s < 0.55), "{mean:.3} on average: {lines:#?}");
}

#[test]
fn every_seeded_leak_is_found_and_none_is_invented() {
    let (mut missed, mut invented) = (Vec::new(), Vec::new());
    for (name, row) in truth(|name| name.starts_with("leak_")) {
        let read = Read::of(&name);
        let steps = &read.roles.anatomy.steps;
        let grown = growth(read.device(), &read.tables, steps);
        let leaks = grown.iter().any(|g| g.is_leak());
        // Without stacks, everything that lives to the end is a single row, including the model, which did not grow.
        if let Some(g) = grown.iter().find(|g| g.is_leak() && !g.stack.is_some() && name.ends_with("none")) {
            let most = g.bytes_per_step * steps.len() as f64;
            assert!(g.bytes as f64 <= most * 1.01, "{name}: {} of {most}", g.bytes);
        }
        match (row["leaks"].as_bool().unwrap(), leaks) {
            (true, false) => missed.push((name, steps.len(), cannot_tell(read.device(), steps))),
            (false, true) => invented.push(name),
            _ => {}
        }
    }
    assert!(invented.is_empty(), "{invented:?}");
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Programs that fill the card. The first forward pass is a single call of the model, whatever wraps `forward`, and its layers
/// are not steps. A pass that is cut short keeps for its backward pass what earlier passes kept.
#[test]
fn a_pass_that_fills_the_card_is_no_loop_and_no_leak() {
    for (name, least) in [("full/gpt2", 60), ("full/residual", 40)] {
        let read = Read::of(name);
        let steps = &read.roles.anatomy.steps;
        assert_eq!(steps.len(), 1, "{name}: {}", steps.how());
        assert!(!growth(read.device(), &read.tables, steps).iter().any(|g| g.is_leak()), "{name}");
        let oom = read.device().events.last_oom().unwrap();
        let activations = read.before(oom.into()).get("activations").copied().unwrap_or(0);
        assert!(activations >> 30 >= least, "{name}: {activations}");
    }
    // Without stacks, layers and calls look alike.
    let steps = Read::of("full/qwen.none").roles.anatomy.steps;
    assert!(steps.is_empty(), "{}", steps.how());
}

/// Programs of many kinds under a cap or without stacks, as in `programs/kinds.py`: how many steps began, and whether something
/// leaks.
#[test]
fn steps_of_many_kinds_are_not_parts_of_one() {
    let expected = [
        ("bart.none.cap85", 2, false),
        ("vqgan.none", 5, false),
        ("leak_total.none", 6, true),
        ("leak_total.python", 6, true),
        ("maml.python.cap85", 0, false),
        ("lora_ckpt.none.cap50", 0, false),
        ("dpo.python.cap50", 1, false),
        ("hf_eval.python.cap50", 1, false),
        ("hessian.python", 3, false),
        ("penalty.python", 4, false),
        ("kept_models.python", 12, false),
        ("splat.python", 6, false),
        ("half_manual.python", 4, false),
        ("graphed.python", 5, false),
        ("dit_ema.python", 5, false),
        ("ddpm.python.cap70", 1, false),
        ("lucid.python.cap70", 1, false),
        ("detr.python.cap70", 3, false),
        ("dit.python.cap70", 1, false),
        ("supcon.python", 5, false),
    ];
    for (name, count, leaks) in expected {
        let read = Read::of(&format!("kinds/{name}"));
        let steps = &read.roles.anatomy.steps;
        assert_eq!(steps.len(), count, "{name}: {}", steps.how());
        assert_eq!(growth(read.device(), &read.tables, steps).iter().any(|g| g.is_leak()), leaks, "{name}");
    }
    // One optimizer step; the next step fails in its forward pass. Roles follow from sizes and lifetimes.
    let read = Read::of("kinds/bart.none.cap85");
    let held = read.before(read.device().events.last_oom().unwrap().into());
    let of = |role: &str| held.get(role).copied().unwrap_or(0) >> 20;
    assert_eq!((of("weights"), of("optimizer_state")), (188, 376), "{held:?}");
    assert!(of("activations") > 1500, "{held:?}");
    // Activations as large as older workspaces must not become weights.
    let read = Read::of("kinds/penalty.python");
    let held = read.before(524);
    assert_eq!(
        (held.get("weights").copied().unwrap_or(0) >> 20, held.get("workspaces").copied()),
        (10, Some(65 << 20)),
        "{held:?}"
    );
    // A function named `hf_eval` that trains is not an evaluation.
    let read = Read::of("kinds/hf_eval.python.cap50");
    let failure = read.device().events.last_oom().unwrap();
    assert_eq!(read.roles.anatomy.phases.at(failure), Some(Phase::Forward));
}

/// Scripts that use no PyTorch modules or optimizers. MiB at the peak, as counted by the programs in `programs/by_script.py`.
#[test]
fn weights_gradients_and_copies_made_by_scripts_are_told() {
    let expected = [
        ("splat", &[("weights", 90), ("gradients", 90), ("optimizer_state", 180)][..]),
        // The optimizer keeps fp32 copies and momentum.
        ("half_manual", &[("weights", 49), ("optimizer_state", 195), ("gradients", 122)]),
        ("dit_ema", &[("weights", 140), ("optimizer_state", 140), ("autocast_copies", 35)]),
        ("kept_models", &[("weights", 320), ("optimizer_state", 641), ("inputs", 32)]),
    ];
    for (name, roles) in expected {
        let read = Read::of(&format!("kinds/{name}.python"));
        let peak = read.tables.curves.peak_event();
        let held = read.before(u64::from(peak) + 1);
        for &(role, is) in roles {
            let told = held.get(role).copied().unwrap_or(0) >> 20;
            assert!(told.abs_diff(is) <= 1 + is / 20, "{name}: {role} {told} MiB, not {is}: {held:?}");
        }
    }
}

/// Recordings begun after a warm-up. Memory from before the history gets roles, including gradients that are never `None`. MiB as
/// counted by the programs in `programs/warm.py`.
#[test]
fn weights_gradients_and_state_older_than_the_history_are_told_apart() {
    const MIB: u64 = 1 << 20;
    let expected = [
        ("own_adam_never.python", 89, 89, 178),
        ("own_adam_none.none", 89, 0, 178),
        ("adam_inplace.python", 89, 89, 178),
        ("adam_fused_inplace.none", 89, 89, 178),
        ("sgdm_inplace.none", 89, 89, 89),
        ("mlp_never.python", 32, 32, 0),
        ("ema_inplace.python", 178, 89, 178),
        ("lora_inplace.python", 106, 1, 2),
        ("muon_adam.python", 404, 0, 591),
        ("adamw_before.none", 157, 157, 315),
        ("adagrad.none", 157, 157, 157),
        ("sgd_inplace.none", 157, 157, 0),
    ];
    for (name, weights, gradients, state) in expected {
        let read = Read::of(&format!("warm/{name}"));
        let held = read.before(read.device().events.len() as u64);
        for (role, is) in [("weights", weights), ("gradients", gradients), ("optimizer_state", state)] {
            let told = held.get(role).copied().unwrap_or(0) / MIB;
            assert!(told.abs_diff(is) <= 1 + (weights + gradients + state) / 50, "{name}: {role} {told} MiB, not {is}");
        }
        assert_eq!(read.roles.anatomy.steps.len(), 3, "{name}");
    }
    for name in ["in_backward.python", "in_backward.none"] {
        let steps = Read::of(&format!("warm/{name}")).roles.anatomy.steps;
        assert_eq!(steps.len(), 3, "{name}: {}", steps.how());
    }
}

/// What a simple count of blocks misses: an average of the weights that each step makes anew (MoCo), an embedding whose backward pass
/// makes its gradient twice, two models in turns (a GAN), a loop that makes many activations of a weight's size, and observations
/// nine times as large as the model. MiB at the end, as the programs counted by `data_ptr`.
#[test]
fn models_beside_data_and_beside_other_models_are_told() {
    let expected = [
        ("warm/moco.python", 86, 43, 43, 0),
        ("warm/sasrec.python", 98, 98, 197, 0),
        ("warm/hifigan.python", 13, 13, 27, 0),
        ("warm/kan.none", 3, 3, 5, 0),
        ("warm/ppo_cnn.none", 6, 6, 13, 55),
        ("kinds/gat.python", 0, 0, 0, 20),
    ];
    for (name, weights, gradients, state, inputs) in expected {
        let read = Read::of(name);
        let held = read.before(read.device().events.len() as u64);
        for (role, is) in [("weights", weights), ("gradients", gradients), ("optimizer_state", state), ("inputs", inputs)] {
            let told = held.get(role).copied().unwrap_or(0) >> 20;
            assert!(told.abs_diff(is) <= 1 + is / 50, "{name}: {role} {told} MiB, not {is}: {held:?}");
        }
    }
}

/// Two optimizers take turns, and their annotations have one name.
#[test]
fn steps_of_two_optimizers_are_told_without_stacks() {
    assert_eq!(Read::of("warm/two_adams.none").roles.anatomy.steps.len(), 3);
}

/// Observations that a program plays are larger than every gradient, and no weights.
#[test]
fn a_rollout_is_no_weight() {
    let read = Read::of("warm/rollout.python");
    let held = read.before(read.device().events.len() as u64);
    let told = |role: &str| held.get(role).copied().unwrap_or(0) >> 20;
    assert!((220..230).contains(&told("inputs")) && told("weights") <= 8, "{held:?}");
}

/// Weights lie before the state that is made for them, in each range of addresses that the driver fills.
#[test]
fn weights_are_told_from_state_by_where_they_lie() {
    let read = Read::of("warm/adagrad.none");
    let (lifetimes, device) = (&read.tables.lifetimes, read.device());
    let large = |&id: &LifetimeId| lifetimes.requested(device, id) > 4 << 20;
    let of = |role: Role| {
        let all = (0..lifetimes.initial_count() as u32).map(LifetimeId).filter(large);
        all.filter(|&id| read.roles.of(id) == role).map(|id| lifetimes.address(device, id)).collect::<Vec<_>>()
    };
    assert!(of(Role::Weights).into_iter().max().unwrap() < of(Role::OptimizerState).into_iter().min().unwrap());
}

/// A full history with the last 3,000 events of a run, dumped while its tensors are alive. The model is older, and some of it is
/// freed within the history. MiB as counted by the program in `programs/by_script.py`.
#[test]
fn a_full_history_tells_the_model_that_is_older() {
    let expected = [
        ("dit_ema", &[("weights", 139), ("gradients", 69), ("optimizer_state", 139)][..]),
        // Its passes are before the history. In the final state, gradients are recognised because they have no stack. A batch
        // held by a variable is still taken for weights.
        ("timm_ema", &[("gradients", 90), ("optimizer_state", 180)]),
    ];
    for (name, roles) in expected {
        let read = Read::of(&format!("kinds/{name}.wrapped"));
        let held = read.before(read.device().events.len() as u64);
        for &(role, is) in roles {
            let told = held.get(role).copied().unwrap_or(0) >> 20;
            assert!(told.abs_diff(is) <= 1 + is / 16, "{name}: {role} {told} MiB, not {is}: {held:?}");
        }
    }
    let read = Read::of("kinds/dit_ema.wrapped");
    let peak = read.before(u64::from(read.tables.curves.peak_event()) + 1);
    assert!(peak.get("gradients").copied().unwrap_or(0) >> 20 >= 69, "{peak:?}");
}

/// The same program with and without stacks. Roles agree for most bytes; earlier, a quarter differed.
#[test]
fn without_stacks_most_bytes_get_the_same_role() {
    let mut parts = Vec::new();
    for (name, _) in truth(|name| name.contains(".none")) {
        let twin = name.replace(".none", ".python");
        if !folder().join(format!("{twin}.pickle.zst")).is_file() {
            continue;
        }
        let at_peak = |read: &Read| read.before(u64::from(read.tables.curves.peak_event()) + 1);
        let [bare, told] = [&name, &twin].map(|name| at_peak(&Read::of(name)));
        let roles: std::collections::BTreeSet<&str> = bare.keys().chain(told.keys()).copied().collect();
        let of = |sums: &BTreeMap<&str, u64>, role: &str| sums.get(role).copied().unwrap_or(0);
        let apart: u64 = roles.iter().map(|role| of(&bare, role).abs_diff(of(&told, role))).sum();
        parts.push((apart as f64 / 2.0 / told.values().sum::<u64>() as f64, name));
    }
    assert!(parts.len() >= 10, "{parts:?}");
    let mean = parts.iter().map(|part| part.0).sum::<f64>() / parts.len() as f64;
    assert!(mean < 0.21, "{mean:.3}: {parts:?}");
}
