//! Plans against runs that were really made: other sizes, caps, changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::diagnose;
use vramscope_core::formats;
use vramscope_core::model::Progress;
use vramscope_core::plan::{Change, Changed, Input, NoPlan, Plan, Setting, Size, Trust, is_no_answer};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames};

use crate::shared::corpus;

const MIB: f64 = 1_048_576.0;

pub(crate) fn plan_of(files: &[(PathBuf, String)]) -> Result<Plan, NoPlan> {
    let progress = Progress::new();
    let opened: Vec<_> = files
        .iter()
        .map(|(file, at)| {
            let recording = Arc::new(formats::open(file, &progress).unwrap());
            let device = recording.busiest_device().unwrap();
            let tables = DeviceTables::build(&recording.devices[device], &progress).unwrap();
            (recording, device, tables, Size::parse(at).unwrap())
        })
        .collect();
    let inputs = opened
        .iter()
        .map(|(recording, device, tables, at)| Input {
            recording: Arc::clone(recording),
            device: *device,
            tables,
            at: at.clone(),
        })
        .collect();
    Plan::of(inputs, &progress)
}

pub(crate) fn gpt(batches: &[u64]) -> Plan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan");
    let files: Vec<_> = batches.iter().map(|b| (folder.join(format!("gpt.b{b}.pickle.zst")), format!("batch={b}"))).collect();
    plan_of(&files).unwrap()
}

pub(crate) fn recorded(name: &str, at: &str) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan");
    (folder.join(format!("{name}.pickle.zst")), at.to_owned())
}

pub(crate) fn setting(conf: &str, limit: Option<u64>) -> Setting {
    Setting::parse(conf, limit).unwrap()
}

/// A longer run of a program that leaks needs more than its plan.
#[test]
fn a_plan_says_that_memory_grows_where_it_does() {
    let leak = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/leak.pickle");
    let says = |plan: &Plan| plan.notes().iter().any(|note| note.starts_with("Memory grows by "));
    assert!(says(&plan_of(&[(leak, "batch=4".to_owned())]).unwrap()));
    assert!(!says(&gpt(&[8])));
}

#[test]
fn passes_that_do_not_divide_a_batch_evenly_say_so() {
    let plan = gpt(&[4, 8]);
    let row = |n| plan.accumulated(n, &Size::of("batch", 16), &setting("", None)).unwrap();
    let uneven = row(3);
    assert_eq!(uneven.title, "gradient accumulation, 3 passes of at most 6");
    assert_eq!(uneven.cost, "3 passes in place of one", "GPT has no BatchNorm");
    assert_eq!(row(2).title, "gradient accumulation, 2 \u{d7} 8");
}

#[test]
fn a_range_wider_than_a_factor_of_four_is_no_answer() {
    assert!(is_no_answer(14_964, 1_356_224));
    assert!(!is_no_answer(416, 480) && !is_no_answer(10, 40) && !is_no_answer(0, 7));
}

#[test]
fn two_recordings_give_the_peaks_of_other_batches_to_the_byte() {
    let plan = gpt(&[4, 8]);
    let (_, unexplained) = plan.model().unwrap().explained();
    assert_eq!(unexplained, 0);
    // Reserved and allocated MiB of real runs.
    for (batch, reserved, allocated) in [(13, 3636.0, 3_399.732_421_875), (16, 4300.0, 3_847.395_507_812_5), (32, 6916.0, 0.0)] {
        let p = plan.at(&Size::of("batch", batch), &setting("", None));
        assert_eq!(p.peak_reserved_bytes as f64 / MIB, reserved, "batch {batch}");
        if allocated > 0.0 {
            assert_eq!(p.peak_allocated_bytes as f64 / MIB, allocated, "batch {batch}");
        }
    }
}

/// Gradients of biases over 128 and 256 rows need no scratch memory; over 1,024 they do, and no recording shows it. H100.
#[test]
fn buffers_of_reductions_that_no_recording_shows_are_there_at_larger_sizes() {
    let plan = plan_of(&[recorded("func.b4", "batch=4"), recorded("func.b8", "batch=8")]).unwrap();
    for (batch, reserved, allocated) in [
        (4, 117_440_512, 105_945_088),
        (8, 115_343_360, 108_045_312),
        (16, 117_440_512, 114_336_768),
        (32, 165_675_008, 143_697_408),
        (64, 224_395_264, 185_640_448),
    ] {
        let p = plan.at(&Size::of("batch", batch), &setting("", None));
        assert_eq!((p.peak_reserved_bytes, p.peak_allocated_bytes), (reserved, allocated), "batch {batch}");
    }
    // They are requests of the run that is saved, and their counters go before them.
    let saved = plan.recording(&Size::of("batch", 64), &setting("", None), &[]).unwrap();
    let sizes = &saved.devices[0].events.size;
    let pairs = |a: u64, b: u64| sizes.windows(2).filter(|w| *w == [a, b]).count();
    assert_eq!((pairs(8_388_608, 16), pairs(33_554_432, 64)), (3, 3));
    // From one recording the span holds them.
    let one = plan_of(&[recorded("func.b8", "batch=8")]).unwrap();
    for (batch, reserved) in [(16, 117_440_512), (32, 165_675_008)] {
        let p = one.at(&Size::of("batch", batch), &setting("", None));
        assert!((p.span[0]..=p.span[1]).contains(&reserved) && !p.certain, "batch {batch}: {:?}", p.span);
    }
}

#[test]
fn the_largest_batch_under_a_cap_is_the_one_that_fitted() {
    let plan = gpt(&[4, 8]);
    let size = Size::of("batch", 8);
    for (conf, most) in [("", 14), ("expandable_segments:True", 17)] {
        let found = plan.largest("batch", &size, &setting(conf, Some(4 << 30)));
        assert_eq!((found.size, found.span, found.certain), (most, [most, most], true), "{conf}");
    }
    assert!(plan.at(&Size::of("batch", 15), &setting("", Some(4 << 30))).oom);
}

#[test]
fn one_recording_gives_a_span_that_holds_the_truth() {
    let plan = gpt(&[8]);
    let p = plan.at(&Size::of("batch", 16), &setting("", None));
    assert!(!p.certain);
    assert!(p.span[0] <= 4300 << 20 && 4300 << 20 <= p.span[1], "{:?}", p.span);
}

#[test]
fn changes_come_out_as_runs_with_them_did() {
    let plan = gpt(&[16]);
    // Reserved and allocated MiB of real runs with the change, and by how many percent the answer may be off.
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

/// The told spans hold a run that was really made, in MiB.
fn is_inside(c: &Changed, reserved: f64, allocated: f64) {
    for ([low, high], real) in [(c.span, reserved), (c.allocated_span, allocated)] {
        // Real figures are rounded to a tenth.
        let is_inside = low as f64 / MIB <= real + 0.1 && real - 0.1 <= high as f64 / MIB;
        assert!(is_inside, "{}: {:.1} to {:.1} MiB, in truth {real}", c.title, low as f64 / MIB, high as f64 / MIB);
    }
}

/// Recorded without and with `torch.utils.checkpoint` around every block; reserved and allocated MiB of the runs with it. The
/// first has a head that keeps nothing, the second layers between its stages, and the blocks of the third keep their own results.
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
        // A fifth wide at most, and what is wider than a tenth either way is an estimate.
        let width = (c.span[1] - c.span[0]) as f64 / c.peak_reserved_bytes as f64;
        assert!(width < 0.25 && (width <= 0.21 || c.trust > Trust::Close), "{name}: {:?} {:?}", c.span, c.trust);
    }
}

/// The true reason, where a change cannot be made.
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

/// At a recorded size and its settings the answer is what was recorded, whatever the model makes of it.
#[test]
fn a_recorded_size_is_answered_with_what_was_recorded() {
    let mut plans = vec![(gpt(&[4, 8, 16]), vec!["gpt.b4", "gpt.b8", "gpt.b16"], vec![4, 8, 16])];
    plans.push((plan_of(&[recorded("ck_resnet", "batch=48")]).unwrap(), vec!["ck_resnet"], vec![48]));
    for (plan, names, batches) in plans {
        for (name, batch) in names.iter().zip(batches) {
            let progress = Progress::new();
            let recording = formats::open(&recorded(name, "").0, &progress).unwrap();
            let tables = DeviceTables::build(&recording.devices[recording.busiest_device().unwrap()], &progress).unwrap();
            let [reserved, allocated] = [Quantity::Reserved, Quantity::Allocated].map(|q| tables.curves.peak(q).0);
            let p = plan.at(&Size::of("batch", batch), &plan.own_setting(None));
            assert_eq!((p.span, p.allocated_span), ([reserved; 2], [allocated; 2]), "{name}");
            assert!(p.certain && p.by_role.values().sum::<u64>() == allocated, "{name}: {:?}", p.by_role);
        }
    }
}

/// From one recording: a smaller run needs no more than the recorded one, and a larger one no less; what cannot shrink stays in the span.
#[test]
fn one_recording_bounds_its_span_by_what_was_recorded() {
    let plan = gpt(&[16]);
    let at = |batch: u64| plan.at(&Size::of("batch", batch), &setting("", None));
    let recorded = at(16);
    let one = at(1);
    assert!(one.span[1] < recorded.peak_reserved_bytes / 10 * 9, "{:?} of {}", one.span, recorded.peak_reserved_bytes);
    assert!(one.span[0] > 256 << 20, "weights and state stay: {:?}", one.span);
    let more = at(64);
    assert!(more.span[0] >= recorded.peak_reserved_bytes && more.allocated_span[0] >= recorded.peak_allocated_bytes);
    // Of inference nothing is sure to grow; the largest size has an end all the same.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/eval_inference.start.python.pickle.zst");
    let plan = plan_of(&[(file, "batch=4".to_owned())]).unwrap();
    let found = plan.largest("batch", &Size::of("batch", 4), &setting("", Some(8 << 30)));
    assert!(!found.has_no_end() && !found.certain, "{:?}", found.span);
}

#[test]
fn a_file_that_is_cut_is_said_to_be() {
    let bytes = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/gpt_train.pickle")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.pickle");
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let plan = plan_of(&[(file, "batch=8".to_owned())]).unwrap();
    assert!(plan.doubts()[0].starts_with("cut.pickle: the file is cut short"), "{:?}", plan.doubts());
    assert_eq!(plan.notes()[0], plan.doubts()[0]);
}

/// A name that nothing in the recording has is no reason to answer for another module.
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
    // What is listed can be named, and the first is the one that keeps most.
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
    // It is one of those that are tried one by one, or a sum of them; none stands twice.
    let mut titles: Vec<&str> = rows.iter().map(|row| row.title.as_str()).collect();
    titles.sort_unstable();
    titles.dedup();
    assert!(rows.len() >= Change::all().len() && titles.len() == rows.len(), "{titles:?}");
}

#[test]
fn one_step_is_enough_for_the_peak_of_six() {
    let plan = plan_of(&[recorded("gpt.b4.one_step", "batch=4"), recorded("gpt.b8.one_step", "batch=8")]).unwrap();
    assert!(plan.notes().iter().any(|note| note.contains("1\u{a0}step;")), "{:?}", plan.notes());
    // MiB of real runs of six steps.
    for (batch, reserved, allocated) in [(4, 2602.0, 2_129.732), (8, 2958.0, 2_655.003), (16, 4300.0, 3_847.395)] {
        let p = plan.at(&Size::of("batch", batch), &setting("", None));
        assert_eq!(p.peak_reserved_bytes as f64 / MIB, reserved, "batch {batch}");
        assert!(
            (p.peak_allocated_bytes as f64 / MIB - allocated).abs() < 1.0,
            "batch {batch}: {}",
            p.peak_allocated_bytes as f64 / MIB
        );
    }
    let recording = plan.recording(&Size::of("batch", 8), &setting("", None), &[]).unwrap();
    let times = &recording.devices[0].events.time_us;
    assert!(times.is_sorted() && times.last() > times.first(), "the clock goes on through repeated steps");
}

#[test]
fn a_plan_from_one_step_and_from_three_is_not_certain() {
    let plan = plan_of(&[recorded("gpt.b4.one_step", "batch=4"), recorded("gpt_steady.b8", "batch=8")]).unwrap();
    let p = plan.at(&Size::of("batch", 16), &setting("", None));
    // A real run reserves 4,300 MiB.
    assert!((p.peak_reserved_bytes as f64 / MIB / 4300.0 - 1.0).abs() < 0.005, "{}", p.peak_reserved_bytes as f64 / MIB);
    for conf in ["", "expandable_segments:True"] {
        assert!(!plan.at(&p.size, &setting(conf, None)).certain, "{conf}");
        assert!(!plan.largest("batch", &p.size, &setting(conf, Some(5 << 30))).certain, "{conf}");
    }
}

#[test]
fn more_steps_can_be_asked_for_and_change_nothing_where_a_program_is_steady() {
    let three = gpt(&[4, 8]);
    let progress = Progress::new();
    let (file, at) = recorded("gpt.b8", "batch=8");
    let recording = Arc::new(formats::open(&file, &progress).unwrap());
    let tables = DeviceTables::build(&recording.devices[0], &progress).unwrap();
    let input = Input { recording, device: 0, tables: &tables, at: Size::parse(&at).unwrap() };
    let ten = Plan::of_steps(vec![input], Some(10), &progress).unwrap();
    assert_eq!(ten.programs()[0].steps, 10);
    let eight = Size::of("batch", 8);
    let peak = |plan: &Plan| plan.at(&eight, &setting("", None)).peak_allocated_bytes;
    assert_eq!(peak(&ten), peak(&three));
}

#[test]
fn the_longest_batch_comes_again_when_the_optimizers_state_is_there() {
    let plan = plan_of(&[recorded("gpt_varying.b4", "batch=4"), recorded("gpt_varying.b8", "batch=8")]).unwrap();
    // Lengths of 256, 128 and 192, and again: a real run of six steps.
    let p = plan.at(&Size::of("batch", 16), &setting("", None));
    assert_eq!(p.peak_reserved_bytes as f64 / MIB, 4174.0);
    assert!((p.peak_allocated_bytes as f64 / MIB - 3_847.395).abs() < 1.0, "{}", p.peak_allocated_bytes as f64 / MIB);
    assert!(plan.notes().iter().any(|note| note.contains("differ in size")), "{:?}", plan.notes());
}

#[test]
fn batches_of_other_lengths_are_not_laid_over_each_other() {
    match plan_of(&[recorded("gpt_varying.b4", "batch=4"), recorded("gpt_steady.b8", "batch=8")]) {
        Err(NoPlan::Steps(sentence)) => assert!(sentence.contains("differ in size, and not as those of"), "{sentence}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_tells_its_largest_cache_from_one_recording() {
    let plan = plan_of(&[recorded("server.kv1024", "kv=1024")]).unwrap();
    let server = plan.server().unwrap();
    // In whole tokens, a little less than 1,024 MiB.
    assert_eq!(server.kv_cache_bytes.div_ceil(1 << 20), 1024);
    assert_eq!(server.weights_bytes >> 20, 413);
    assert!(server.graph_pools_bytes > 0 && server.transient_bytes > 0, "{server:?}");
    // The largest that served in MiB and the next that was tried and failed.
    for (cap, served, failed) in [(2048u64, 1176, 1184), (3072, 2208, 2214), (6144, 5280, 5286)] {
        let found = plan.largest("kv", &Size::of("kv", 1024), &setting("", Some(cap << 20)));
        assert!((served..failed).contains(&found.size), "cap {cap}: {} {:?}", found.size, found.span);
    }
}

#[test]
fn a_run_that_failed_as_it_was_recorded_does_not_fit_as_it_was_recorded() {
    let (size, cap) = (Size::of("batch", 16), 4u64 << 30);
    let recording = Arc::new(gpt(&[4, 8]).recording(&size, &setting("", Some(cap)), &[]).unwrap());
    assert!(recording.devices[0].events.last_oom().is_some());
    let progress = Progress::new();
    let tables = DeviceTables::build(&recording.devices[0], &progress).unwrap();
    let input = Input { recording: Arc::clone(&recording), device: 0, tables: &tables, at: size.clone() };
    let plan = Plan::of(vec![input], &progress).unwrap();
    let own = plan.own_setting(None);
    // Its cap is estimated; at the top of the range a replay may pass in some places of segments.
    let cap = plan.programs()[0].failed_under.unwrap();
    let p = plan.at(&size, &Setting { limit: Some(cap), ..own.clone() });
    assert!(p.oom && !p.oom_varies, "{p:?}");
    let span = plan.largest("batch", &size, &Setting { limit: Some(cap), ..own.clone() }).span;
    assert!(span[1] < 16, "{span:?}");
    let more = plan.at(&size, &Setting { limit: Some(2 * cap), ..own });
    assert!(!more.oom, "with more memory it does");
}

#[test]
fn the_same_size_twice_beside_another_is_a_check() {
    let once = gpt(&[4, 8]);
    let twice = gpt(&[4, 8, 4]);
    let (_, unexplained) = twice.model().unwrap().explained();
    assert_eq!(unexplained, 0);
    let size = Size::of("batch", 16);
    assert_eq!(twice.at(&size, &setting("", None)), once.at(&size, &setting("", None)));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan");
    let same = [0, 1].map(|_| (folder.join("gpt.b4.pickle.zst"), "batch=4".to_owned()));
    assert!(matches!(plan_of(&same), Err(NoPlan::Sizes(_))), "nothing shows what grows");
}

#[test]
fn retries_are_counted_where_cached_memory_is_given_back() {
    let plan = gpt(&[4, 8]);
    let under = |cap: u64| plan.at(&Size::of("batch", 4), &setting("", Some(cap << 20)));
    assert_eq!((under(40 << 10).retries, under(40 << 10).oom), (0, false));
    // Without a limit it reserves 2,602 MiB.
    let close = under(2500);
    assert_eq!((close.retries, close.oom), (1, false), "{close:?}");
}

#[test]
fn two_programs_are_refused_with_the_place_where_they_part() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let files = [
        (recordings.join("plan/gpt.b4.pickle.zst"), "batch=4".to_owned()),
        (recordings.join("gan.start.python.pickle.zst"), "batch=8".to_owned()),
    ];
    match plan_of(&files) {
        Err(NoPlan::Parts(parting)) => {
            assert!(parting.sentence.contains("part where"), "{}", parting.sentence);
            // What each asks for there, and the program's own lines down to it.
            for side in &parting.sides {
                assert!(
                    side.bytes.is_some() && !side.lines.is_empty() && side.lines.iter().all(|l| l.contains(".py:")),
                    "{side:?}"
                );
                assert!(parting.sentence.contains(&side.told()), "{}", parting.sentence);
            }
            assert_ne!(parting.sides[0].lines, parting.sides[1].lines);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn swapped_sizes_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan");
    let files = [(4, 8), (8, 4)].map(|(run, said)| (folder.join(format!("gpt.b{run}.pickle.zst")), format!("batch={said}")));
    match plan_of(&files) {
        Err(NoPlan::Sizes(sentence)) => assert!(sentence.ends_with("swapped or wrong"), "{sentence}"),
        other => panic!("{other:?}"),
    }
}

/// Ratios of the sizes in the recordings show that one that was told is wrong; at right sizes nothing is doubted.
#[test]
fn sizes_that_do_not_fit_are_doubted() {
    let told = |runs: &[(u64, u64)]| {
        let files: Vec<_> = runs.iter().map(|(run, said)| recorded(&format!("gpt.b{run}"), &format!("batch={said}"))).collect();
        plan_of(&files).unwrap().notes().to_vec()
    };
    for right in [&[(4, 4), (8, 8)][..], &[(8, 8), (16, 16)], &[(4, 4), (16, 16)], &[(4, 4), (8, 8), (16, 16)]] {
        assert!(told(right).is_empty(), "{right:?}: {:?}", told(right));
    }
    let notes = told(&[(8, 8), (16, 12)]);
    assert!(notes.len() == 1 && notes[0].contains("which is 1.5 times; but"), "{notes:?}");
    assert!(notes[0].contains("are 2 times, as if it had run at batch 16"), "{notes:?}");
    for wrong in [[(4, 4), (8, 6)], [(4, 3), (8, 8)], [(4, 4), (16, 8)], [(8, 4), (16, 12)]] {
        assert_eq!(told(&wrong).len(), 1, "{wrong:?}");
    }
}

/// What two quantities do cannot be told apart where they change together, and a third recording tells them apart.
#[test]
fn quantities_that_change_together_are_named() {
    let runs = |sizes: &[&str]| {
        let files: Vec<_> = [4, 8, 16].iter().zip(sizes).map(|(run, said)| recorded(&format!("gpt.b{run}"), said)).collect();
        plan_of(&files).unwrap().doubts().join(" ")
    };
    let together = runs(&["batch=4,width=32", "batch=8,width=64"]);
    assert!(together.starts_with("Batch and width change together"), "{together}");
    assert!(together.contains("One more recording, at batch 8, width 32, tells them apart."), "{together}");
    assert_eq!(runs(&["batch=4,width=32", "batch=8,width=32"]), "");
}

/// Where all recordings are at one batch, another batch is no question that they answer.
#[test]
fn what_did_not_vary_is_not_answered() {
    let files = [recorded("gpt.b4", "batch=8,width=32"), recorded("gpt.b8", "batch=8,width=64")];
    let plan = plan_of(&files).unwrap();
    assert_eq!((plan.held_at("batch"), plan.held_at("width")), (Some(8), None));
    let why = plan.is_unknown_at(&Size::parse("batch=16,width=32").unwrap()).unwrap();
    assert!(why.starts_with("batch is 8 in all recordings") && why.ends_with("such as --at batch=4,width=32"), "{why}");
    assert_eq!(plan.is_unknown_at(&Size::parse("batch=8,width=96").unwrap()), None);
    assert_eq!(gpt(&[8]).held_at("batch"), None, "of one recording the anatomy tells what grows");
}

#[test]
fn one_file_given_at_two_sizes_is_refused() {
    let why = plan_of(&[recorded("gpt.b8", "batch=4"), recorded("gpt.b8", "batch=8")]).unwrap_err().to_string();
    assert!(why.contains("given as batch does not change what it allocates; is it the same file?"), "{why}");
}

#[test]
fn changes_give_the_same_in_whichever_order_they_are_written() {
    let plan = gpt(&[8, 16]);
    let peak = |changes: &str| {
        let c = plan.change(&Change::parse(changes).unwrap(), &Size::of("batch", 16), &setting("", None), None).unwrap();
        (c.reason, c.peak_reserved_bytes, c.peak_allocated_bytes)
    };
    assert_eq!(peak("checkpoint+chunks:8"), peak("chunks:8+checkpoint"));
    assert_eq!(peak("checkpoint+chunks:8").0, None, "the logits are found");
}

#[test]
fn names_that_are_not_there_are_told_with_those_that_are() {
    let plan = gpt(&[8]);
    let unknown = |text: &str| plan.unknown_name(&Change::parse(text).unwrap()[0]);
    assert!(unknown("checkpoint:Nope").unwrap().contains("these can be named: "));
    assert!(unknown("del:nowhere.py:1").unwrap().starts_with("no allocation was made at a line 'nowhere.py:1'"));
    assert_eq!((unknown("checkpoint"), unknown("fused")), (None, None));
}

/// One truth: where a program fails and nothing repeats, the autopsy and What-if answer, and no batch is made up.
#[test]
fn a_program_that_failed_without_steps_has_no_plan() {
    for name in ["serve_oom.pickle.gz", "kv_decode_oom.pickle.gz", "fragment_oom.pickle", "expandable_oom.pickle"] {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
        match plan_of(&[(sample, "batch=1".to_owned())]) {
            Err(why @ NoPlan::NoSteps(_)) => {
                let why = why.to_string();
                assert!(
                    why.starts_with(&format!("the program in {name} fails without a training step"))
                        && why.contains("vramscope whatif"),
                    "{why}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// What costs nothing is tried before what costs time, and that before what rounds.
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
    // Segments that grow are enough for 17, and bf16 weights alone would do for 18 as well.
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
    assert!(both.cost.contains("run forward twice; rounding"), "what each costs: {}", both.cost);
    assert!(both.reason.is_some_and(|why| why.starts_with("checkpoint:Nope: ")), "which of them does nothing");
    let useless: Vec<bool> = rows.iter().map(|r| r.reason.is_some()).collect();
    assert!(useless.is_sorted(), "what does nothing comes last");
}

/// Every pair of runs of one program and length, told as they were: nothing is doubted.
#[test]
fn right_sizes_of_the_corpus_are_not_doubted() {
    let Some(corpus) = corpus() else { return };
    let Ok(files) = std::fs::read_dir(corpus.join("plan_open")) else {
        crate::shared::not_run("no plan_open in VRAMSCOPE_CORPUS");
        return;
    };
    let mut runs: Vec<(PathBuf, String, u64, u64)> = files
        .filter_map(|f| {
            let path = f.ok()?.path();
            let stem = path.file_stem()?.to_str()?.to_owned();
            let mut parts = stem.splitn(3, '_');
            let (name, batch, rest) = (parts.next()?, parts.next()?.strip_prefix('b')?, parts.next()?.strip_prefix('s')?);
            let (length, suffix) = rest.split_once('_').unwrap_or((rest, ""));
            Some((path.clone(), format!("{name}{suffix}"), batch.parse().ok()?, length.parse().ok()?))
        })
        .collect();
    runs.sort();
    let mut checked = 0;
    for (i, a) in runs.iter().enumerate() {
        for b in &runs[i + 1..] {
            let said = match (a.1 == b.1, a.2 == b.2, a.3 == b.3) {
                (true, false, true) => [format!("batch={}", a.2), format!("batch={}", b.2)],
                (true, true, false) => [format!("seq={}", a.3), format!("seq={}", b.3)],
                _ => continue,
            };
            let [of_a, of_b] = said;
            // Sides of images are no lengths, and runs that choose other kernels are refused.
            if let Ok(plan) = plan_of(&[(a.0.clone(), of_a), (b.0.clone(), of_b)]) {
                assert_eq!(plan.doubts(), &[] as &[String], "{:?} {:?}", a.0, b.0);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
    // A length told as four times another where it is twice: the squares of attention are no sign that it is right.
    let wrong = [("gpt2_b4_s512.pickle", "seq=256"), ("gpt2_b4_s1024.pickle", "seq=1024")];
    let wrong = wrong.map(|(file, said)| (corpus.join("plan_open").join(file), said.to_owned()));
    assert_eq!(plan_of(&wrong).unwrap().doubts().len(), 1);
}

/// Every run of `plan_truth.json` without a cap, predicted from the two smallest of its program.
#[test]
fn every_run_of_the_corpus_is_predicted_from_the_two_smallest() {
    let Some(corpus) = corpus() else { return };
    let Ok(text) = std::fs::read_to_string(corpus.join("plan_truth.json")) else {
        crate::shared::not_run("no plan_truth.json in VRAMSCOPE_CORPUS");
        return;
    };
    let runs: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut groups: std::collections::BTreeMap<(String, u64), Vec<(u64, PathBuf, u64, u64)>> = std::collections::BTreeMap::new();
    for r in runs.iter().filter(|r| r["cap"] == 0 && r["ckpt"] == false) {
        let (name, seq) = (r["name"].as_str().unwrap().to_owned(), r["seq"].as_u64().unwrap());
        let file = corpus.join("plan_open").join(format!("{}.pickle", r["file"].as_str().unwrap()));
        let peaks = (r["reserved_bytes.all.peak"].as_u64().unwrap(), r["allocated_bytes.all.peak"].as_u64().unwrap());
        groups.entry((name, seq)).or_default().push((r["batch"].as_u64().unwrap(), file, peaks.0, peaks.1));
    }
    let mut checked = 0;
    for ((name, seq), mut runs) in groups {
        runs.sort();
        if runs.len() < 3 {
            continue;
        }
        let files: Vec<_> = runs[..2].iter().map(|r| (r.1.clone(), format!("batch={}", r.0))).collect();
        let plan = plan_of(&files).unwrap();
        let (_, unexplained) = plan.model().unwrap().explained();
        for (batch, _, reserved, allocated) in &runs[2..] {
            let p = plan.at(&Size::of("batch", *batch), &setting("", None));
            let off = |found: u64, real: u64| (found as f64 / real as f64 - 1.0).abs() * 100.0;
            let most = if unexplained == 0 { 0.1 } else { 1.0 };
            assert!(off(p.peak_allocated_bytes, *allocated) <= most, "{name} {seq}, batch {batch}");
            let is_inside = (p.span[0]..=p.span[1]).contains(reserved);
            assert!(is_inside || off(p.peak_reserved_bytes, *reserved) <= 3.0, "{name} {seq}, batch {batch}");
            checked += 1;
        }
    }
    assert!(checked > 15, "{checked}");
}

/// The span from one recording holds every run of the corpus at another size.
#[test]
fn one_recording_holds_every_run_of_the_corpus() {
    let Some(corpus) = corpus() else { return };
    let Ok(text) = std::fs::read_to_string(corpus.join("plan_truth.json")) else {
        crate::shared::not_run("no plan_truth.json in VRAMSCOPE_CORPUS");
        return;
    };
    let runs: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for (name, seq, from) in [("gpt2", 512, 8), ("gpt2", 512, 40), ("resnet", 224, 16), ("vit", 224, 16)] {
        let file = corpus.join(format!("plan_open/{name}_b{from}_s{seq}.pickle"));
        let plan = plan_of(&[(file, format!("batch={from}"))]).unwrap();
        for r in runs.iter().filter(|r| r["cap"] == 0 && r["ckpt"] == false && r["name"] == name && r["seq"] == seq) {
            let batch = r["batch"].as_u64().unwrap();
            let p = plan.at(&Size::of("batch", batch), &setting("", None));
            for (span, real) in [(p.span, "reserved_bytes.all.peak"), (p.allocated_span, "allocated_bytes.all.peak")] {
                let bytes = r[real].as_u64().unwrap();
                assert!((span[0]..=span[1]).contains(&bytes), "{name} from {from} to {batch}, {real}: {bytes} in {span:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

/// A finding that names a change and a plan of the same recording give one number: they make the same change to the same requests. Blocks are
/// rounded up, and a plan's requests are rounded by the allocator's model.
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
        let progress = Progress::new();
        let recording = formats::open(&file, &progress).unwrap();
        let device = &recording.devices[recording.busiest_device().unwrap()];
        let tables = DeviceTables::build(device, &progress).unwrap();
        let names = StackNames::of(&recording.stacks);
        let found = diagnose(&recording, device, &tables, &names, &Rules::default(), &progress).unwrap().findings;
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
