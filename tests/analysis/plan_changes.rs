//! Changes to a program, planned from its recording: savings, the order in which they are tried, and why a change is impossible.

use std::path::Path;

use crate::findings::diagnoses;
use crate::shared::open;
use vramscope_core::plan::{Change, Changed, Size, Trust};

use crate::plan::{gpt, plan_of, recorded, setting};

const MIB: f64 = 1_048_576.0;

#[test]
fn changes_come_out_as_runs_with_them_did() {
    let plan = gpt(&[16]);
    // Reserved and allocated MiB of real runs with the change, and the accepted error in percent.
    for (change, reserved, allocated, off) in [
        ("fused", 4300.0, 3847.444, 0.1),
        ("no_foreach", 4300.0, 3847.396, 0.1),
        ("sgd", 3800.0, 3014.774, 0.1),
        ("in_backward", 4300.0, 3849.896, 0.2),
        ("cache_off", 4300.0, 3847.396, 0.1),
        ("checkpoint", 3578.0, 2956.888, 4.0),
        ("bf16", 3332.0, 2968.055, 4.0),
        ("offload", 3480.0, 2794.104, 4.0),
        ("lora:8", 3792.0, 3006.979, 1.0),
        ("8bit", 3812.0, 3235.022, 0.2),
        ("chunks:8", 2892.0, 2604.377, 2.0),
        ("8bit+chunks:8", 2214.0, 1996.0, 4.0),
        ("chunks:8+checkpoint", 2330.0, 2133.1, 4.0),
    ] {
        let changes = Change::parse(change).unwrap();
        let c = plan.change(&changes, &Size::of("batch", 16), &setting("", None), None).unwrap();
        for (found, real) in [(c.peak_reserved_bytes, reserved), (c.peak_allocated_bytes, allocated)] {
            let error = (found as f64 / MIB / real - 1.0) * 100.0;
            assert!(error.abs() <= off, "{change}: {:.1} MiB, in truth {real}: {error:+.2} %", found as f64 / MIB);
        }
        is_inside(&c, reserved, allocated);
    }
}

/// The predicted ranges contain the real run, in MiB.
fn is_inside(c: &Changed, reserved: f64, allocated: f64) {
    for ([low, high], real) in [(c.span, reserved), (c.allocated_span, allocated)] {
        // Real figures are rounded to a tenth.
        let is_inside = low as f64 / MIB <= real + 0.1 && real - 0.1 <= high as f64 / MIB;
        assert!(is_inside, "{}: {:.1} to {:.1} MiB, in truth {real}", c.title, low as f64 / MIB, high as f64 / MIB);
    }
}

/// Changes that findings recommend can be planned too. Allocated bytes as PyTorch counted them in runs with the change.
#[test]
fn what_a_program_holds_without_need_can_be_taken_from_its_plan() {
    for (name, change, counted, least, most) in [
        ("attention", "fused_attention", 1_879_473_664u64, 1000, 1005),
        ("validate", "no_grad", 1_166_630_400, 995, 1000),
        ("kept_outputs", "release", 912_372_736, 1000, 1001),
    ] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/promised/{name}.pickle.zst"));
        let plan = plan_of(&[(file, "batch=8".to_owned())]).unwrap();
        let size = Size::of("batch", 8);
        let planned = |change: &str| plan.change(&Change::parse(change).unwrap(), &size, &setting("", None), None).unwrap();
        let c = planned(change);
        let thousandths = c.peak_allocated_bytes * 1000 / counted;
        assert!((least..=most).contains(&thousandths), "{name}: {} planned, {counted} counted", c.peak_allocated_bytes);
        assert!(c.helps && c.reason.is_none() && c.allocated_span[0] <= counted && counted <= c.allocated_span[1], "{c:?}");
        for other in ["fused_attention", "no_grad", "release"].into_iter().filter(|&other| other != change) {
            assert!(planned(other).reason.is_some(), "{name}: {other}");
        }
    }
}

/// Recorded with and without `torch.utils.checkpoint` around every block. The figures are reserved and allocated MiB of the runs
/// with it. The first model has a head that keeps nothing, the second has layers between its stages, and the blocks of the third
/// keep their own results.
#[test]
fn checkpointed_models_come_out_as_they_ran() {
    for (name, reserved, allocated, off) in
        [("ck_wide", 2790.0, 2275.8, 0.1), ("ck_convnext", 2478.0, 1536.0, 2.0), ("ck_resnet", 2710.0, 2024.5, 0.1)]
    {
        let plan = plan_of(&[recorded(name, "batch=64")]).unwrap();
        let changes = Change::parse("checkpoint").unwrap();
        let c = plan.change(&changes, &Size::of("batch", 64), &setting("", None), None).unwrap();
        assert_eq!(c.peak_reserved_bytes as f64 / MIB, reserved, "{name}");
        assert!(
            (c.peak_allocated_bytes as f64 / MIB / allocated - 1.0).abs() * 100.0 <= off,
            "{name}: {}",
            c.peak_allocated_bytes
        );
        is_inside(&c, reserved, allocated);
        // At most a fifth wide. A range wider than a tenth in either direction is an estimate.
        let width = (c.span[1] - c.span[0]) as f64 / c.peak_reserved_bytes as f64;
        assert!(width < 0.25 && (width <= 0.21 || c.trust > Trust::Close), "{name}: {:?} {:?}", c.span, c.trust);
    }
}

/// nanoGPT makes four passes per step and measures its loss between some steps without a graph. Each training pass is changed
/// separately. With checkpointed blocks it reserved 12,914 MiB and allocated 10,065,669,632 bytes.
#[test]
fn each_of_several_passes_of_a_step_is_changed() {
    let plan = plan_of(&[recorded("nanogpt", "batch=12")]).unwrap();
    let planned = |change: &str| {
        let changes = Change::parse(change).unwrap();
        plan.change(&changes, &Size::of("batch", 12), &setting("", None), None).unwrap()
    };
    let (c, real) = (planned("checkpoint"), 10_065_669_632.0 / MIB);
    assert!((c.peak_allocated_bytes as f64 / MIB / real - 1.0).abs() < 0.005, "{}", c.peak_allocated_bytes);
    is_inside(&c, 12_914.0, real);
    let c = planned("chunks:8");
    assert!(c.reason.is_none() && c.saves_bytes > 5 << 30, "{c:?}");
    assert_eq!(
        planned("no_grad").saves_bytes,
        0,
        "the passes that measure have no graph already, and those of training need theirs"
    );
}

/// The true reason why a change is impossible.
#[test]
fn a_change_that_cannot_be_made_says_why() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    for (file, change, why) in [
        ("gpt2_ckpt.start.python.pickle.zst", "checkpoint", "the program checkpoints already"),
        ("leak_batches.leak.none.pickle.zst", "checkpoint", "the recording has no stacks"),
        ("leak_batches.leak.none.pickle.zst", "chunks:8", "the recording has no stacks"),
        ("eval_inference.start.python.pickle.zst", "set_to_none", "no backward pass is in the recording"),
    ] {
        let plan = plan_of(&[(recordings.join(file), "batch=8".to_owned())]).unwrap();
        let c = plan.change(&Change::parse(change).unwrap(), &Size::of("batch", 8), &setting("", None), None).unwrap();
        assert!(c.reason.as_deref().is_some_and(|told| told.starts_with(why)), "{file}, {change}: {:?}", c.reason);
    }
}

/// A module name that is not in the recording must not be answered for another module.
#[test]
fn a_module_that_no_stack_names_is_not_answered_for_another() {
    let plan = gpt(&[8]);
    let told = |name: &str| {
        let changes = Change::parse(&format!("checkpoint:{name}")).unwrap();
        plan.change(&changes, &Size::of("batch", 8), &setting("", None), None).unwrap()
    };
    let most = told("");
    assert_eq!(most.reason, None);
    let none = told("Frobnicator");
    let why = none.reason.unwrap();
    assert!(why.starts_with("no stack names a module 'Frobnicator', because"), "{why}");
    assert_eq!((none.saves_bytes, none.title.as_str()), (0, "checkpoint Frobnicator"));
    // Listed modules can be named, and the first one keeps the most.
    let names: Vec<&str> = why.split_once("these can be named: ").unwrap().1.split(", ").collect();
    assert!(most.title.contains(&format!("at {},", names[0])), "{} {names:?}", most.title);
    for name in names {
        assert_eq!(told(name).reason, None, "{name}");
    }
}

#[test]
fn weights_of_16_bits_are_known_by_their_logits() {
    let plan = plan_of(&[recorded("llama.b8", "batch=8")]).unwrap();
    let (size, under) = (Size::of("batch", 8), setting("", None));
    let told = |change: &str| plan.change(&Change::parse(change).unwrap(), &size, &under, None).unwrap();
    let c = told("8bit");
    assert!((c.peak_allocated_bytes as f64 / MIB / 3_581.7 - 1.0).abs() < 0.003, "{}", c.peak_allocated_bytes as f64 / MIB);
    assert_eq!(told("bf16").reason.as_deref(), Some("the weights have 16 bits already"));
}

#[test]
fn the_cheapest_change_that_makes_a_size_fit_comes_first() {
    let plan = gpt(&[4, 8]);
    let under = setting("", Some(4 << 30));
    let size = Size::of("batch", 18);
    assert!(plan.at(&size, &under).oom);
    let rows = plan.all_changes(&size, &under, Some("batch"));
    assert!(!rows[0].oom, "{}", rows[0].change);
    assert!(rows[0].largest >= Some(18));
    // It is one of the changes that are tried one by one, or a combination of them. None is listed twice.
    let mut titles: Vec<&str> = rows.iter().map(|row| row.title.as_str()).collect();
    titles.sort_unstable();
    titles.dedup();
    assert!(rows.len() >= Change::all().len() && titles.len() == rows.len(), "{titles:?}");
}

#[test]
fn changes_give_the_same_in_whichever_order_they_are_written() {
    let plan = gpt(&[8, 16]);
    let peak = |changes: &str| {
        let c = plan.change(&Change::parse(changes).unwrap(), &Size::of("batch", 16), &setting("", None), None).unwrap();
        (c.peak_reserved_bytes, c.peak_allocated_bytes, c.reason)
    };
    assert_eq!(peak("checkpoint+chunks:8"), peak("chunks:8+checkpoint"));
    assert_eq!(peak("checkpoint+chunks:8").2, None, "the logits are found");
}

#[test]
fn names_that_are_not_there_are_told_with_those_that_are() {
    let plan = gpt(&[8]);
    let unknown = |text: &str| plan.unknown_name(&Change::parse(text).unwrap()[0]);
    assert!(unknown("checkpoint:Nope").unwrap().contains("these can be named: "));
    assert!(unknown("del:nowhere.py:1").unwrap().starts_with("no allocation was made at a line 'nowhere.py:1'"));
    assert_eq!((unknown("checkpoint"), unknown("fused")), (None, None));
}

/// Free changes are tried before changes that cost time, and these before changes that affect precision.
#[test]
fn changes_are_searched_by_what_they_cost() {
    use vramscope_core::plan::{Cost, Passes};
    let plan = gpt(&[4, 8]);
    let under = setting("", Some(4 << 30));
    let way = |batch: u64| plan.cheapest(&Size::of("batch", batch), &under).unwrap();
    assert!(way(16).changes.is_empty() && way(16).setting.text == "expandable_segments:True", "{:?}", way(16));
    let fits = |batch: u64, changes: &str, conf: &str| {
        let (c, s) = (Change::parse(changes).unwrap(), setting(conf, Some(4 << 30)));
        plan.change(&c, &Size::of("batch", batch), &s, None).is_some_and(|c| !c.oom && !c.oom_varies)
    };
    // Expandable segments are enough for 17. For 18, bf16 weights alone would be enough too.
    assert!(Change::price_of(&way(18).changes).0 <= Cost::Time, "{:?}", way(18));
    assert!(fits(18, "bf16", ""));
    let rows = plan.all_changes(&Size::of("batch", 18), &under, Some("batch"));
    let at = |name: &str| rows.iter().position(|row| row.change.starts_with(name)).unwrap();
    assert!(
        at("accumulate:") < at("bf16") && at("accumulate:") < at("offload"),
        "{:?}",
        rows.iter().map(|r| &r.change).collect::<Vec<_>>()
    );
    assert!(Passes::price() < Change::Bf16.price());
    let priced = |row: &Changed| Some((row.rank(), Change::price_of(&Change::parse(&row.change).ok()?)));
    let singles: Vec<_> = rows[1..].iter().filter_map(priced).collect();
    assert!(singles.is_sorted(), "what fits first, each cheapest first: {singles:?}");
    let passes = plan.accumulated(2, &Size::of("batch", 18), &under).unwrap();
    assert!((passes.span[0]..=passes.span[1]).contains(&passes.peak_reserved_bytes), "{passes:?}");
    assert!(plan.accumulated(64, &Size::of("batch", 18), &under).is_none());
    let both = plan.change(&Change::parse("checkpoint:Nope+bf16").unwrap(), &Size::of("batch", 18), &under, None).unwrap();
    assert!(both.cost.contains("run forward twice; weights, gradients"), "what each costs: {}", both.cost);
    assert!(both.reason.is_some_and(|why| why.starts_with("checkpoint:Nope: ")), "which of them does nothing");
    let useless: Vec<bool> = rows.iter().map(|r| r.reason.is_some()).collect();
    assert!(useless.is_sorted(), "what does nothing comes last");
}

/// A finding that names a change and a plan of the same recording give the same figure, because they apply the same change to the
/// same requests. Blocks are rounded up, and a plan's requests are rounded by the allocator model.
#[test]
fn a_change_saves_as_much_by_a_plan_as_by_a_finding() {
    let sample = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
    let mut compared = 0;
    for (file, rule, change) in [
        (sample("gpt_train.pickle"), "activations", Change::Checkpoint(None)),
        (sample("two_gpus.pickle"), "optimizer_state", Change::EightBit),
        (recorded("gpt.b8", "").0, "logits", Change::Chunks(8)),
        (recorded("gpt.b8", "").0, "activations", Change::Checkpoint(None)),
        (recorded("gpt.b8", "").0, "optimizer_state", Change::EightBit),
    ] {
        let recording = open(&file);
        let found = diagnoses(&recording).swap_remove(recording.busiest_device().unwrap()).findings;
        let Some(saving) = found.iter().find(|f| f.rule == rule).and_then(|f| f.saving) else { continue };
        let size = Size::of("batch", 8);
        let plan = plan_of(&[(file.clone(), "batch=8".to_owned())]).unwrap();
        let planned = plan.change(&[change], &size, &setting("", None), None).unwrap();
        assert_eq!(planned.reason, None, "{rule} of {file:?}");
        let differs = (saving.bytes() as f64 / planned.saves_bytes as f64 - 1.0).abs();
        assert!(differs < 0.02, "{rule} of {file:?}: {saving:?}, and by the plan {}", planned.saves_bytes);
        compared += 1;
    }
    assert!(compared >= 3, "{compared}");
}
