//! Plans compared with real runs at other sizes and caps, and inputs that are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramscope_core::changes::Change;
use vramscope_core::formats;
use vramscope_core::model::Progress;
use vramscope_core::plan::{Input, NoPlan, Plan, Setting, Size, is_no_answer};
use vramscope_core::tables::{DeviceTables, Quantity};

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

/// A longer run of a leaking program needs more than its plan.
#[test]
fn a_plan_says_that_memory_grows_where_it_does() {
    let leak = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/leak.pickle");
    let says = |plan: &Plan| plan.notes().iter().any(|note| note.starts_with("Memory grows by "));
    assert!(says(&plan_of(&[(leak, "batch=4".to_owned())]).unwrap()));
    assert!(!says(&gpt(&[8])));
}

/// The search for the largest size agrees with the prediction at single sizes, under any cap.
#[test]
fn what_is_said_to_fail_at_the_largest_size_fails_when_it_is_asked_for() {
    let plan = gpt(&[4]);
    let mut last = 0;
    for gibibytes in [6, 12, 24, 48, 90, 140] {
        let setting = setting("", Some(gibibytes << 30));
        let [sure, may] = plan.largest("batch", &Size::of("batch", 4), &setting).span;
        assert!(sure > last && may >= sure, "{gibibytes} GiB: {sure} to {may}, after {last}");
        let next = plan.at(&Size::of("batch", may + 1), &setting);
        assert!(next.oom || next.oom_varies, "{gibibytes} GiB: batch {} fits, and {may} was the largest", may + 1);
        last = sure;
    }
}

/// A program and its fixed version at the same size do not show what grows with the size.
#[test]
fn recordings_of_equal_sizes_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let of = |name: &str, at: &str| (folder.join(format!("leak_hook.{name}.none.pickle.zst")), at.to_owned());
    let Err(NoPlan::Sizes(said)) = plan_of(&[of("healthy", "batch=8"), of("leak", "batch=16")]) else { panic!("a plan") };
    assert!(said.contains("have the same sizes, so what was given as batch does not change what it allocates"), "{said}");
}

/// A figure lies inside its range, and unknown memory of a program stays unknown with a change.
#[test]
fn ranges_hold_their_points_and_those_of_changes_are_as_wide() {
    let plan = gpt(&[8]);
    let own = plan.own_setting(None);
    for batch in [4, 9, 10, 12, 24] {
        let size = Size::of("batch", batch);
        let p = plan.at(&size, &own);
        assert!((p.span[0]..=p.span[1]).contains(&p.peak_reserved_bytes), "{p:?}");
        let sgd = plan.change(&[Change::Fused], &size, &own, None).unwrap();
        let width = |[low, high]: [u64; 2], point: u64| (high - low) as f64 / point as f64;
        let [with, without] = [width(sgd.span, sgd.peak_reserved_bytes), width(p.span, p.peak_reserved_bytes)];
        assert!(with >= without * 0.99, "batch {batch}: {with} with the change, {without} without");
    }
}

/// One program optimizes only the head and the other also freezes the rest of the model, so their forward passes agree.
#[test]
fn programs_that_train_other_parts_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/promised");
    let of = |name: &str, at: &str| (folder.join(format!("{name}.pickle.zst")), at.to_owned());
    let Err(NoPlan::Parts(parting)) = plan_of(&[of("frozen", "batch=8"), of("unfrozen", "batch=16")]) else { panic!("a plan") };
    let says = parting.sentence.replace('\u{a0}', " ");
    assert!(says.contains("unfrozen.pickle.zst has 329.84 MiB of gradients, and frozen.pickle.zst 300.39 KiB,"), "{says}");
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

/// A third recording is predicted from the other two, and the answer says how close that was.
#[test]
fn a_third_recording_says_whether_the_others_agree_with_it() {
    let notes = gpt(&[4, 8, 16]).notes().join(" ");
    assert!(notes.starts_with("The other two recordings predict the peak of batch 16:"), "{notes}");
    assert!(notes.contains("reserved and") && notes.contains("to the byte"), "{notes}");
    assert!(!gpt(&[4, 8]).notes().join(" ").contains("predict the peak"));
}

/// Both recordings begin after two warm-up steps and contain the cache of those. Runs at other sizes have another cache. H200.
#[test]
fn a_cache_from_before_the_recordings_widens_the_answer() {
    let plan = plan_of(&[recorded("gpt_warm.b6", "batch=6"), recorded("gpt_warm.b12", "batch=12")]).unwrap();
    assert!(plan.notes().iter().any(|note| note.contains("PyTorch had cached before")), "{:?}", plan.notes());
    for (batch, reserved, allocated) in [(18, 2_292_187_136, 1_826_022_912), (24, 2_952_790_016, 2_244_927_488u64)] {
        let p = plan.at(&Size::of("batch", batch), &setting("", None));
        assert!(!p.certain, "{p:?}");
        assert!((p.span[0]..=p.span[1]).contains(&reserved), "{p:?}");
        assert!((p.allocated_span[0]..=p.allocated_span[1]).contains(&allocated), "{p:?}");
    }
}

/// Bias gradients over 128 and 256 rows need no scratch memory, but over 1,024 rows they do. No recording shows that. H100.
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
    // The saved run contains these requests, after those of their counters.
    let saved = plan.recording(&Size::of("batch", 64), &setting("", None), &[]).unwrap();
    let sizes = &saved.devices[0].events.size;
    let pairs = |a: u64, b: u64| sizes.windows(2).filter(|w| *w == [a, b]).count();
    assert_eq!((pairs(8_388_608, 16), pairs(33_554_432, 64)), (3, 3));
    // With a single recording, the range includes them.
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

/// At a recorded size with its settings, the answer is the recorded figure, whatever the model says.
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

/// With one recording: a smaller run needs no more than the recorded one and a larger run no less. Memory that cannot shrink
/// stays in the range.
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
    // For inference it is not certain that anything grows, but the largest size is limited all the same.
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
    // Lengths of 256, 128 and 192, repeated: a real run of six steps.
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
    // In whole tokens, slightly less than 1,024 MiB.
    assert_eq!(server.kv_cache_bytes.div_ceil(1 << 20), 1024);
    assert_eq!(server.weights_bytes >> 20, 413);
    assert!(server.graph_pools_bytes > 0 && server.transient_bytes > 0, "{server:?}");
    // The largest KV cache that worked, in MiB, and the next larger one, which failed.
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
    // Its cap is estimated. At the upper end of its range, a simulation may pass with some segment addresses.
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
            // What each program requests there, and the user's lines of its stack.
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

/// Ratios in the recordings reveal a wrong size. Right sizes are not doubted.
#[test]
fn sizes_that_do_not_fit_are_doubted() {
    let told = |runs: &[(u64, u64)]| {
        let files: Vec<_> = runs.iter().map(|(run, said)| recorded(&format!("gpt.b{run}"), &format!("batch={said}"))).collect();
        plan_of(&files).unwrap().doubts().to_vec()
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

/// Two quantities that change together cannot be separated. A third recording separates them.
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

/// When all recordings have the same batch, other batches cannot be predicted.
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

/// For a program that failed before any step, the autopsy and What-if answer, and no batch is invented.
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

/// All pairs of runs of one program and length, with their true sizes: nothing is doubted.
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
            // Image sizes are not lengths, and runs that choose other kernels are refused.
            if let Ok(plan) = plan_of(&[(a.0.clone(), of_a), (b.0.clone(), of_b)]) {
                assert_eq!(plan.doubts(), &[] as &[String], "{:?} {:?}", a.0, b.0);
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked}");
    // A length given as four times another when it is twice. Attention grows with the square, which must not hide the mistake.
    let wrong = [("gpt2_b4_s512.pickle", "seq=256"), ("gpt2_b4_s1024.pickle", "seq=1024")];
    let wrong = wrong.map(|(file, said)| (corpus.join("plan_open").join(file), said.to_owned()));
    assert_eq!(plan_of(&wrong).unwrap().doubts().len(), 1);
}

/// Twice the batch and twice the length, each from one base: two of the three recordings have equal sizes, as batch × length is the
/// same in both, and the third shows what each quantity does.
#[test]
fn a_base_and_twice_each_quantity_are_one_program() {
    let Some(corpus) = corpus() else { return };
    let file = |name: &str, at: &str| (corpus.join("plan_open").join(name), at.to_owned());
    let base = file("gpt2_b4_s256.pickle", "batch=4,seq=256");
    let twice = [file("gpt2_b8_s256.pickle", "batch=8,seq=256"), file("gpt2_b4_s512.pickle", "batch=4,seq=512")];
    let plan = plan_of(&[base, twice[0].clone(), twice[1].clone()]).unwrap();
    assert_eq!(plan.doubts(), &[] as &[String]);
    assert!(plan_of(&twice).is_err(), "without the base nothing tells batch and length apart");
}

/// The folder of the corpus, and its real runs without cap and checkpointing.
fn runs_of_corpus() -> Option<(PathBuf, Vec<serde_json::Value>)> {
    let corpus = corpus()?;
    let Ok(text) = std::fs::read_to_string(corpus.join("plan_truth.json")) else {
        crate::shared::not_run("no plan_truth.json in VRAMSCOPE_CORPUS");
        return None;
    };
    let mut runs: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    runs.retain(|r| r["cap"] == 0 && r["ckpt"] == false);
    Some((corpus, runs))
}

/// Every run of `plan_truth.json` without a cap, predicted from the two smallest runs of its program.
#[test]
fn every_run_of_the_corpus_is_predicted_from_the_two_smallest() {
    let Some((corpus, runs)) = runs_of_corpus() else { return };
    let mut groups: std::collections::BTreeMap<(String, u64), Vec<(u64, PathBuf, u64, u64)>> = std::collections::BTreeMap::new();
    for r in &runs {
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

/// The range from a single recording contains every run of the corpus at another size.
#[test]
fn one_recording_holds_every_run_of_the_corpus() {
    let Some((corpus, runs)) = runs_of_corpus() else { return };
    let mut checked = 0;
    for (name, seq, from) in [("gpt2", 512, 8), ("gpt2", 512, 40), ("resnet", 224, 16), ("vit", 224, 16)] {
        let file = corpus.join(format!("plan_open/{name}_b{from}_s{seq}.pickle"));
        let plan = plan_of(&[(file, format!("batch={from}"))]).unwrap();
        for r in runs.iter().filter(|r| r["name"] == name && r["seq"] == seq) {
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
