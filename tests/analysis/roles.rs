//! Roles compared with the truth where it is known: PyTorch's profiler, and programs with known parameters.
//!
//! The recordings are in the folder named by `VRAMSCOPE_CORPUS`. Without it only the sample is checked.

use crate::shared::{sample, tables};
use std::path::Path;

use crate::shared::corpus;
use vramscope_core::anatomy::roles::{ByRole, Role, Roles, Rule, Rules, Tally, Trust};
use vramscope_core::formats;
use vramscope_core::model::{Annotation, CATEGORIES, DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, LifetimeId, NO_EVENT, Quantity};

struct Opened {
    recording: Recording,
    device: usize,
    tables: DeviceTables,
    roles: Roles,
}

fn open(path: &Path, rules: &[Rule]) -> Opened {
    let recording = formats::open(path, &Progress::new()).unwrap();
    let device = recording.busiest_device().unwrap();
    let tables = tables(&recording.devices[device]);
    let (rules, errors) = Rules::new(rules);
    assert!(errors.is_empty(), "{errors:?}");
    let roles = Roles::build(&recording, &recording.devices[device], &tables, &rules, &Progress::new()).unwrap();
    Opened { recording, device, tables, roles }
}

impl Opened {
    fn device(&self) -> &DeviceRecording {
        &self.recording.devices[self.device]
    }

    /// Live memory after an event, by role.
    fn live(&self, event: u32) -> ByRole {
        self.roles.live_by_role(self.device(), &self.tables, event)
    }

    fn held(&self, event: u32, role: Role) -> (u64, u64) {
        let tally = self.live(event)[role.index()];
        (tally.count, tally.bytes)
    }

    /// The first event of each optimizer step after the first, according to annotations.
    fn optimizer_steps(&self) -> Vec<u32> {
        let times = &self.device().events.time_us;
        let starts = |a: &&Annotation| self.recording.stacks.text(a.name).starts_with("Optimizer.step");
        let at = |a: &Annotation| times.partition_point(|&t| t < a.start_us) as u32;
        self.device().annotations.iter().filter(starts).map(at).skip(1).collect()
    }

    /// Checks that Adam trains a model of `count` parameters and `bytes` bytes: at each step there is one gradient and two states
    /// per parameter.
    fn trains_with_adam(&self, count: u64, bytes: u64) {
        let steps = self.optimizer_steps();
        assert!(!steps.is_empty());
        for step in steps {
            assert_eq!(self.held(step, Role::Weights), (count, bytes), "parameters at {step}");
            assert_eq!(self.held(step, Role::Gradients), (count, bytes), "gradients at {step}");
            assert_eq!(self.held(step, Role::OptimizerState), (2 * count, 2 * bytes), "optimizer state at {step}");
        }
    }

    /// The share of live bytes at the peak without a role.
    fn unexplained(&self) -> f64 {
        let (_, peak) = self.tables.curves.peak(Quantity::Requested);
        let live = self.live(peak);
        let all: u64 = live.iter().map(|t| t.bytes).sum();
        live[Role::Unknown.index()].bytes as f64 / all as f64
    }
}

#[test]
fn a_model_trained_with_adam_is_told_apart_to_the_byte() {
    let o = open(&sample("gpt_train.pickle"), &[]);
    let (count, bytes) = o.held(o.optimizer_steps()[0], Role::Weights);
    assert!(count > 10);
    o.trains_with_adam(count, bytes);
    assert!(o.unexplained() < 0.001, "{}", o.unexplained());
    // Every allocation has a reason for its role.
    for i in 0..o.tables.lifetimes.len() as u32 {
        let why = o.roles.why(&o.recording, o.device(), &o.tables, LifetimeId(i));
        assert_eq!(why.role, o.roles.of(LifetimeId(i)));
        assert!(why.sentence.ends_with('.') && why.sentence.len() > 20, "{why:?}");
        assert_eq!(why.trust == Trust::Nothing, why.role == Role::Unknown, "{why:?}");
    }
    let all: u64 = o.roles.handed_out.iter().map(|t| t.count).sum();
    assert_eq!(all, o.tables.lifetimes.len() as u64);
}

/// The README's first example: a cache that grows in a few lines of Python, and layers that are not modules.
#[test]
fn a_server_without_a_library_is_told_apart() {
    let o = open(&sample("serve_oom.pickle.gz"), &[]);
    assert!(o.unexplained() < 0.001, "{}", o.unexplained());
    let event = o.device().events.ooms()[0];
    assert_eq!(o.held(event, Role::Weights), (12, 88 << 20));
    assert_eq!(o.held(event, Role::KvCache).0, 80);
}

#[test]
fn the_users_own_rules_come_first() {
    let rule = |pattern: &str, role, is_on| Rule { pattern: pattern.to_owned(), role, is_on };
    let rules = [
        rule("workloads\\.py", Role::Buckets, false),
        rule("FUNCTIONAL.py:.*layer_norm", Role::KvCache, true),
        rule("layer_norm", Role::Workspaces, true),
        rule("", Role::Unknown, true),
    ];
    let (plain, ruled) = (open(&sample("gpt_train.pickle"), &[]), open(&sample("gpt_train.pickle"), &rules));
    let [off, first, second, empty] = ruled.roles.by_rule.clone().try_into().unwrap();
    assert!(first.count > 0 && first.bytes > 0);
    assert_eq!([off, second, empty], [Tally::default(); 3], "the first rule takes what the second matches too");
    assert_eq!(ruled.roles.handed_out[Role::KvCache.index()], first);
    assert_eq!(plain.roles.handed_out[Role::KvCache.index()].count, 0);
    let is_ruled = |&i: &u32| ruled.roles.of(LifetimeId(i)) == Role::KvCache;
    let id = LifetimeId((0..ruled.tables.lifetimes.len() as u32).find(is_ruled).unwrap());
    let why = ruled.roles.why(&ruled.recording, ruled.device(), &ruled.tables, id);
    assert_eq!(why.trust, Trust::UserRule);
    assert!(why.sentence.contains("Your rule 2") && why.sentence.contains("layer_norm"), "{}", why.sentence);
}

#[test]
fn a_rule_that_can_not_be_read_says_why() {
    let bad = Rule { pattern: "attention(".to_owned(), role: Role::Activations, is_on: true };
    let (rules, errors) = Rules::new(&[Rule::default(), bad]);
    assert_eq!((rules.len(), errors.len(), errors[0].number), (2, 1, 2));
    assert!(errors[0].to_string().starts_with("Rule 2 cannot be used: \"attention(\""), "{}", errors[0]);
}

#[test]
fn known_programs_are_told_apart() {
    let Some(corpus) = corpus() else { return };
    let model = (77, 111_312_896);
    open(&corpus.join("demo/gpt_train.default.pickle"), &[]).trains_with_adam(model.0, model.1);
    open(&corpus.join("profiler/gpt_train.with_trace.pickle"), &[]).trains_with_adam(model.0, model.1);
    // Without any stack, only from the optimizer's annotated steps and lifetimes.
    let without = open(&corpus.join("whatif/gpt_train.exp.none.pickle"), &[]);
    assert!(without.recording.stacks.is_empty());
    without.trains_with_adam(model.0, model.1);
    // DDP keeps all parameters and states on each rank. FSDP2 keeps half of each on each of two ranks.
    open(&corpus.join("multi/ddp_rank0.pickle"), &[]).trains_with_adam(101, 280_295_424);
    let fsdp = open(&corpus.join("multi/fsdp_rank0.pickle"), &[]);
    for step in fsdp.optimizer_steps() {
        assert_eq!(fsdp.held(step, Role::Weights), (101, 280_295_424 / 2));
        assert_eq!(fsdp.held(step, Role::OptimizerState), (202, 280_295_424));
        assert_eq!(fsdp.held(step, Role::Gradients).1, 280_295_424 / 2);
    }
    for (name, most) in
        [("gpt_varlen.default", 0.001), ("resnet.default", 0.01), ("resnet.cppstacks", 0.01), ("compiled.default", 0.001)]
    {
        let part = open(&corpus.join(format!("demo/{name}.pickle")), &[]).unexplained();
        println!("{name}: {:.3} % of the peak is in no role", part * 100.0);
        assert!(part < most, "{name}: {part}");
    }
}

/// The profiler followed the tensors; the roles here come from stacks and lifetimes of its trace. Both describe the same run.
#[test]
fn stacks_and_lifetimes_agree_with_the_profiler() {
    let Some(corpus) = corpus() else { return };
    for (name, tolerance) in [("gpt_train", 0.02), ("resnet", 0.02)] {
        let ours = open(&corpus.join(format!("profiler/{name}.trace.json")), &[]);
        let truth = open(&corpus.join(format!("profiler/{name}.memory_timeline.raw.json.gz")), &[]);
        let times = &ours.device().events.time_us;
        let bands = &truth.device().bands;
        let mut off = [0u64; 3];
        let mut sum = [0u64; 3];
        for row in (0..bands.len()).step_by((bands.len() / 200).max(1)) {
            let at = times.partition_point(|&t| t <= bands.time_us[row]) as u32;
            let live = ours.live(at.checked_sub(1).unwrap_or(NO_EVENT));
            let pairs = [(Role::Weights, "parameter"), (Role::OptimizerState, "optimizer_state"), (Role::Gradients, "gradient")];
            for (i, (role, name)) in pairs.into_iter().enumerate() {
                let column = CATEGORIES.iter().position(|&c| c == name).unwrap();
                off[i] += live[role.index()].bytes.abs_diff(bands.bytes[row][column]);
                sum[i] += bands.bytes[row][column];
            }
        }
        for (i, what) in ["parameters", "optimizer state", "gradients"].into_iter().enumerate() {
            let part = off[i] as f64 / sum[i].max(1) as f64;
            println!("{name}: {what} differ by {:.3} % of the profiler's bytes", part * 100.0);
            assert!(part < tolerance, "{name}: {what} differ by {part}");
        }
    }
}
