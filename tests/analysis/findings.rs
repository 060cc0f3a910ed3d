//! Findings on real recordings: problems are reported, and healthy recordings get no findings.

use crate::shared::{open, sample, tables};
use std::path::{Path, PathBuf};

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::{Class, Finding, Findings, diagnose};
use vramscope_core::model::{Progress, Recording};
use vramscope_core::tables::{Quantity, StackNames};

/// The findings of each device.
pub(crate) fn diagnoses(recording: &Recording) -> Vec<Findings> {
    let names = StackNames::of(&recording.stacks);
    let of = |device| diagnose(recording, device, &tables(device), &names, &Rules::default(), &Progress::new()).unwrap();
    recording.devices.iter().map(of).collect()
}

fn rules(path: &Path) -> Vec<&'static str> {
    diagnoses(&open(path)).iter().flat_map(|f| f.findings.iter().map(|x| x.rule)).collect()
}

/// Rules that report something wrong. Rules that only say how to save memory are left out.
fn wrong(path: &Path) -> Vec<&'static str> {
    // `batch` describes a healthy step.
    let is_wrong = |f: &&Finding| (f.saving.is_none() && f.rule != "batch") || f.class == Class::Leak;
    diagnoses(&open(path)).iter().flat_map(|f| f.findings.iter().filter(is_wrong).map(|x| x.rule)).collect()
}

#[test]
fn what_is_wrong_is_said_first() {
    assert_eq!(rules(&sample("fragment_oom.pickle")).first(), Some(&"out_of_memory"));
    assert_eq!(rules(&sample("kv_decode_oom.pickle.gz")).first(), Some(&"out_of_memory"));
    assert_eq!(wrong(&sample("leak.pickle")), ["leak"]);
    assert_eq!(rules(&sample("leak.pickle")).first(), Some(&"leak"));
}

#[test]
fn nothing_is_wrong_with_healthy_recordings() {
    for name in ["gpt_train.pickle", "cuda_graph.pickle", "multi_stream.pickle", "two_gpus.pickle"] {
        assert!(wrong(&sample(name)).is_empty(), "{name}: {:?}", wrong(&sample(name)));
        assert!(diagnoses(&open(&sample(name))).iter().flat_map(|f| &f.findings).all(|f| f.class >= Class::Peak), "{name}");
    }
}

#[test]
fn every_finding_has_numbers_a_place_and_a_check() {
    for name in ["fragment_oom.pickle", "kv_decode_oom.pickle.gz", "expandable_oom.pickle", "leak.pickle"] {
        for f in diagnoses(&open(&sample(name))).iter().flat_map(|f| &f.findings) {
            assert!(f.bytes > 0 && !f.evidence.is_empty() && !f.verify.is_empty(), "{name}: {f:?}");
            assert!(f.sentence.chars().any(|c| c.is_ascii_digit()), "{name}: {}", f.sentence);
            assert!(f.place.event.is_some(), "{name}: {}", f.title);
        }
    }
}

#[test]
fn the_autopsy_has_the_figures_of_the_recording() {
    let found = diagnoses(&open(&sample("fragment_oom.pickle")));
    let a = &found[0].ooms[0];
    // Counted by hand in the file's blocks: 26 inactive blocks in four segments of 400 MiB, the largest 27 MiB.
    assert_eq!((a.verdict.name(), a.requested, a.holes.count), ("fragmentation", 500 << 20, 26));
    assert_eq!((a.holes.bytes, a.holes.largest), (639_612_416, 27 << 20));
    assert_eq!((a.blockers[0].strands() >> 20, a.blockers[0].hole_if_freed() >> 20, a.alone.count), (52, 85, 0));
    let plan = a.room_plan.as_ref().unwrap();
    assert!(plan.is_optimal && plan.bytes > 0);
}

/// Verdicts on a folder of What-if runs whose names give the truth.
#[test]
fn the_corpus_is_diagnosed_as_what_it_is() {
    let Some(corpus) = crate::shared::corpus() else { return };
    for (name, expected) in [
        ("demo/gpt_train.default.pickle", None),
        ("demo/resnet.default.pickle", None),
        ("demo/gpt_varlen.default.pickle", Some("variable_sizes")),
        ("demo/kv_decode.default.pickle", Some("grows_by_copy")),
        ("demo/split_fragment.default.pickle", Some("pinned_segments")),
        ("demo/leak.default.pickle", Some("leak")),
        ("multi/ddp_rank0.pickle", None),
        ("multi/fsdp_rank1.pickle", None),
    ] {
        let found = rules(&corpus.join(name));
        match expected {
            None => assert!(wrong(&corpus.join(name)).is_empty(), "{name}: {found:?}"),
            Some(rule) => assert!(found.contains(&rule), "{name}: {found:?}"),
        }
    }
}

/// Findings allowed for programs in which nothing failed. Other programs may have none.
const TOLD: [(&str, &[&str]); 9] = [
    ("leak.", &["leak"]),
    // Two thirds of its peak are activations. A trace's layers do not show what checkpointing would save.
    ("gpt_train.trace.", &["activations"]),
    // More than three quarters of its peak are activations, according to the profiler's categories.
    ("resnet.memory_timeline.", &["activations"]),
    ("resnet.trace.", &["activations"]),
    // Under a cap that is barely enough, a request finds no room once or twice, as PyTorch counted.
    ("gpt_varlen.", &["variable_sizes", "idle_threshold", "cache_flushes"]),
    ("resnet.default.x110.", &["cache_flushes"]),
    ("kv_decode.", &["variable_sizes", "grows_by_copy", "idle_threshold"]),
    // By design it keeps a small block of every step between large ones, so all of this is wrong.
    ("split_fragment.", &["leak", "variable_sizes", "pinned_segments", "idle_threshold"]),
    // Without a cap it reserves more than twice what is ever in use.
    ("fragment_oom.", &["idle_threshold", "cache_flushes", "variable_sizes"]),
];

/// Findings allowed beside a failure, including failures of another kind that the program survived.
const BESIDE: [&str; 5] = ["out_of_memory", "leak", "cache_flushes", "activations", "rounding"];

/// When requests only found room after the cache was emptied, the finding must count as many as PyTorch did.
#[test]
fn failed_requests_are_as_many_as_pytorch_counted() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let truth = std::fs::read_to_string(corpus.join("whatif_truth.json")).unwrap();
    let runs: Vec<serde_json::Value> = serde_json::from_str(&truth).unwrap();
    let mut seen = 0;
    // At a failure, PyTorch empties the cache once more.
    for run in runs.iter().filter(|run| run["oom"] == false && run["num_alloc_retries"] != 0) {
        let part = |key: &str| run[key].as_str().unwrap();
        let name = format!("{}.{}.{}", part("workload"), part("conf_label"), part("limit_label"));
        // Some runs have no recording in the corpus.
        let path = corpus.join(format!("whatif/{name}.pickle"));
        if !path.is_file() {
            continue;
        }
        let all = diagnoses(&open(&path));
        let found: Vec<&Finding> = all.iter().flat_map(|f| &f.findings).collect();
        let is_told = |f: &&&Finding| f.rule == "cache_flushes" && f.sentence.contains("a request found no room");
        let Some(finding) = found.iter().find(is_told) else { continue };
        let times = &finding.evidence.iter().find(|e| e.label == "times").unwrap().value;
        assert_eq!(*times, run["num_alloc_retries"].to_string(), "{name}: {}", finding.sentence);
        seen += 1;
    }
    assert!(seen >= 3, "{seen}");
}

#[test]
fn nothing_is_said_of_the_corpus_that_is_not_so() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let (mut healthy, mut others) = (0, 0);
    for folder in ["demo", "multi", "profiler", "versions", "whatif"] {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(corpus.join(folder)).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap().to_string_lossy();
            let is_recording = [".pickle", ".json", ".json.gz"].iter().any(|end| name.ends_with(end));
            // Counters and pages are in the same folder as the recordings.
            if !is_recording || name.ends_with("memory_stats.json") {
                continue;
            }
            let found = rules(&path);
            if found.contains(&"out_of_memory") {
                assert_eq!(found[0], "out_of_memory", "{name}");
                let strange: Vec<_> = wrong(&path)[1..].iter().copied().filter(|rule| !BESIDE.contains(rule)).collect();
                assert!(strange.is_empty(), "{name}: {strange:?}");
                others += 1;
                continue;
            }
            let found = wrong(&path);
            let told = TOLD.iter().find(|(program, _)| name.starts_with(program)).map_or(&[][..], |t| t.1);
            let strange: Vec<_> = found.iter().filter(|rule| !told.contains(rule)).collect();
            assert!(strange.is_empty(), "{name}: {strange:?}");
            healthy += usize::from(found.is_empty());
            others += usize::from(!found.is_empty());
        }
    }
    assert!(healthy > 50 && others > 100, "{healthy} healthy, {others} others");
}

fn recorded(name: &str, rule: &str) -> Finding {
    all_of(name).into_iter().find(|f| f.rule == rule).unwrap()
}

/// All findings of a recording of this repository, most serious first.
fn all_of(name: &str) -> Vec<Finding> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(format!("{name}.pickle.zst"));
    diagnoses(&open(&path)).into_iter().flat_map(|f| f.findings).collect()
}

#[test]
fn the_loss_in_chunks_is_told_of_the_first_step_too() {
    let [start, mid] = ["gpt2_fp32.start.python", "gpt2_fp32.mid.python"].map(|name| recorded(name, "logits"));
    let (saving, bytes) = (start.saving.unwrap(), start.bytes);
    assert_eq!(Some(saving), mid.saving, "the first step makes workspaces, and is like the others else");
    assert!(saving.before - saving.after <= bytes, "no more is saved than is held: {saving:?} of {bytes}");
}

#[test]
fn a_graph_that_is_older_than_the_history_counts() {
    let found = recorded("w_nograd.mid.python", "unused_graph");
    assert!(found.sentence.contains("the pass before the recording"), "{}", found.sentence);
    assert!(found.bytes > 640 << 20, "{}", found.bytes);
}

#[test]
fn copies_without_stacks_are_not_called_weights_alone() {
    let found = recorded("leak_ema.leak.none", "leak");
    assert!(found.sentence.contains("as large as weights"), "{}", found.sentence);
    let found = recorded("leak_optimizers.leak.none", "leak");
    assert!(found.sentence.contains("states of optimizers"), "{}", found.sentence);
}

/// A first forward pass that fills the card. No leak is reported, and figures of recorded memory make no promises about the rest
/// of the step.
#[test]
fn a_recording_that_ends_in_a_failure_says_what_its_figures_leave_out() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/full/gpt2.pickle.zst");
    let found = diagnoses(&open(&path));
    let rules: Vec<&str> = found.iter().flat_map(|f| f.findings.iter().map(|x| x.rule)).collect();
    assert_eq!(rules, ["out_of_memory", "activations", "written_out"], "{rules:?}");
    let sentence = &found[0].findings[1].sentence;
    let told = sentence.replace('\u{a0}', " ");
    assert!(told.ends_with("The request of 12.27 GiB that failed comes on top: up to 21.35 GiB."), "{told}");
    assert!(found[0].findings[1..].iter().all(|f| f.verify.starts_with("The run gets past the request of ")));
    // In two passes of the reference model and two of the trained one, which fails in its first step, no graph is unneeded.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/kinds/dpo.python.cap50.pickle.zst");
    assert!(diagnoses(&open(&path)).iter().flat_map(|f| &f.findings).all(|f| f.rule != "unused_graph"));
    let leak = diagnoses(&open(&sample("leak.pickle")));
    assert!(leak.iter().flat_map(|f| &f.findings).all(|f| !f.sentence.contains("comes on top")));
}

/// Memory that rises with the load is not a leak, but it is mentioned.
#[test]
fn a_rise_without_a_steady_line_is_told() {
    use vramscope_core::diagnose::leaks::no_leak;
    const M: u64 = 1 << 20;
    let plain = |floors: &[u64]| no_leak(floors).1.replace('\u{a0}', " ");
    assert_eq!(plain(&[100 * M; 8]), "Nothing grows steadily over 8 steps.");
    let rising: Vec<u64> = (1..=8).map(|i| i * 100 * M).collect();
    assert!(plain(&rising).starts_with("The least in use in a step rises from 200 MiB to 800 MiB over 8 steps"));
    assert_eq!(plain(&[]), "Nothing grows steadily over 0 steps.");
}

/// A teacher model that runs with a graph is reported, and one that runs without is not.
#[test]
fn a_teacher_needs_no_graph() {
    let (found, counted) = (all_of("promised/distill"), 1_168_755_200u64);
    let (first, after) = (&found[0], found[0].saving.unwrap().after);
    assert!(first.rule == "untrained_gradients" && after >= counted && after * 5 < counted * 6, "{first:?}");
    assert!(found.iter().all(|f| f.rule != "activations"), "its layers are not to be checkpointed");
    let mended = all_of("promised/distill_no_grad");
    assert!(mended.iter().all(|f| f.rule != first.rule), "{mended:?}");
}

/// The same with two models of the same kind, whose gradients have equal sizes.
#[test]
fn a_reference_model_of_the_same_sizes_needs_no_graph() {
    let found = recorded("promised/reference_graph", "untrained_gradients");
    let (after, counted) = (found.saving.unwrap().after, 1_553_822_208u64);
    assert!(after >= counted && after * 20 < counted * 21, "{after} promised, {counted} counted");
}

/// In the second step of the same program, the optimizer's state exists from the start.
#[test]
fn one_step_tells_what_the_next_needs() {
    let found = &all_of("plan/gpt.b8.one_step")[0];
    assert_eq!(found.rule, "first_step");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan/gpt.b8.pickle.zst");
    let two = open(&path);
    let peak = |recording: &Recording| {
        let tables = tables(&recording.devices[0]);
        tables.curves.peak(Quantity::Active).0
    };
    let one = open(&path.with_file_name("gpt.b8.one_step.pickle.zst"));
    let (told, counted) = (peak(&one) + found.bytes, peak(&two));
    assert!(told.abs_diff(counted) * 50 < counted, "{told} told, {counted} counted");
    assert!(all_of("plan/gpt.b8").iter().all(|f| f.rule != "first_step"));
}

/// State is passed from step to step with its graph. The recording ends when all of it is freed.
#[test]
fn a_graph_that_grows_from_step_to_step_is_told() {
    let leak = recorded("promised/tbptt", "leak");
    assert!(leak.sentence.contains("the backward pass did not free"), "{}", leak.sentence);
    assert!(all_of("promised/tbptt").iter().all(|f| f.rule != "activations"));
}

/// Copies made in two of three epochs, each with 107.89 MiB of weights and twice as much state.
#[test]
fn copies_of_the_best_model_are_told() {
    let found = recorded("promised/deep_copy_best", "kept_copies");
    assert_eq!(found.bytes >> 20, 647);
    assert!(all_of("promised/state_dicts").iter().all(|f| f.rule != "kept_copies"));
}

#[test]
fn autocast_around_the_loop_is_told() {
    let found = recorded("promised/stale_autocast", "stale_copies");
    assert!(found.sentence.replace('\u{a0}', " ").starts_with("49 half-precision copies of weights"), "{}", found.sentence);
    assert!(all_of("promised/train").iter().all(|f| f.rule != "stale_copies"));
}

/// A recurrent network whose losses are summed, and layers that are checkpointed already.
#[test]
fn what_makes_activations_is_told_where_checkpointing_does_not_help() {
    for (name, said) in [("summed_losses", "loss.backward()"), ("wide_checkpointed", "are checkpointed already")] {
        let found = recorded(&format!("promised/{name}"), "activations");
        let text = format!("{}{}", found.remedy.unwrap_or_default(), found.advice);
        assert!(text.contains(said) && !found.sentence.contains("checkpointed the peak"), "{name}: {text}");
    }
}

#[test]
fn a_list_of_state_dicts_holds_copies_of_the_weights() {
    let leak = recorded("promised/state_dicts", "leak");
    assert!(leak.sentence.contains("copies of weights"), "{}", leak.sentence);
}

/// Predictions grow from block to block, so that no later one fits the free segments. This is not an idle cache.
#[test]
fn what_was_never_in_use_at_once_is_no_idle_cache() {
    let found = all_of("promised/predict");
    assert!(found.iter().any(|f| f.rule == "variable_sizes") && found.iter().all(|f| f.rule != "idle_cache"), "{found:?}");
}

/// The predicted savings match PyTorch's counts after the change. `tests/recordings/README.md` has the figures.
#[test]
fn promised_savings_are_those_that_pytorch_then_had() {
    let cases = [
        ("result_kept", "last_result", 2_035_105_792u64),
        ("autocast_no_grad", "autocast_copies", 613_556_224),
        ("train", "activations", 3_630_151_680),
        ("attention", "attention_scores", 1_879_473_664),
        ("attention", "activations", 1_414_771_712),
        ("loss", "logits", 2_048_844_800),
        ("adam", "foreach_optimizer", 2_218_271_744),
        ("resnet", "activations", 1_540_276_736),
        ("validate", "unused_graph", 1_166_630_400),
        ("predict", "gathered", 1_004_381_696),
        ("accumulated", "activations", 1_819_811_328),
        ("kept_outputs", "leak", 912_372_736),
        ("old_optimizer", "earlier_optimizer", 1_446_577_664),
        ("ckpt_on_gpu", "loaded_copy", 1_211_016_704),
        ("load_peak", "loaded_copy", 938_076_160),
        ("hand_ce", "loss_by_hand", 1_102_288_384),
        ("resume_ckpt", "loaded_copy", 1_821_524_992),
        ("data_on_gpu", "waiting_batches", 322_840_064),
        ("broadcast_loss", "broadcast", 274_894_336),
        ("sublayers", "activations", 1_850_173_440),
        ("mean_teacher", "activations", 1_067_142_144),
        ("bf16", "activations", 4_864_389_120),
    ];
    for (name, rule, counted) in cases {
        let found = recorded(&format!("promised/{name}"), rule);
        let after = found.saving.unwrap().after;
        assert!(after.abs_diff(counted) * 100 < counted, "{name}: {after} promised, {counted} counted");
    }
    // Memory of passes without a graph, or for a single loss, is not fully known in advance.
    let about = [
        ("eval_graph", "unused_graph", 1_253_533_696u64, 7),
        ("teacher_grad", "unused_graph", 711_515_648, 17),
        ("unfrozen", "untrained_gradients", 664_504_320, 15),
        ("summed_micro", "activations", 1_056_097_792, 4),
        ("prefetch_deep", "waiting_batches", 929_303_552, 3),
    ];
    for (name, rule, counted, percent) in about {
        let after = recorded(&format!("promised/{name}"), rule).saving.unwrap().after;
        assert!(after.abs_diff(counted) * 100 < counted * percent, "{name}: {after} promised, {counted} counted");
    }
    let graph = recorded("promised/autocast_graph", "autocast_copies");
    assert!(graph.saving.is_none() && graph.sentence.contains("with or without autocast's cache"), "{graph:?}");
    let train = recorded("promised/train", "activations");
    assert!(train.remedy.unwrap().starts_with("model.gradient_checkpointing_enable("));
    let streams = recorded("promised/streams", "cache_flushes");
    assert!(streams.sentence.contains("other CUDA streams"), "{}", streams.sentence);
}

/// Both kinds of layers that one line calls, the half of a layer that a library's switch checkpoints, and calls with a loop in them.
#[test]
fn what_checkpointing_of_such_calls_saves_comes_near() {
    let cases = [
        ("encoder_decoder", "gradient_checkpointing_enable", 2_117_538_816u64, 2),
        ("densenet", "memory_efficient=True", 2_209_085_440, 8),
        ("chunks_of_rays", "checkpoint(", 1_230_222_336, 10),
    ];
    for (name, code, counted, percent) in cases {
        let found = recorded(&format!("promised/{name}"), "activations");
        let after = found.saving.unwrap().after;
        assert!(after.abs_diff(counted) * 100 < counted * percent, "{name}: {after} promised, {counted} counted");
        assert!(found.remedy.as_ref().is_some_and(|remedy| remedy.contains(code)), "{name}: {found:?}");
    }
}

/// AdamW keeps two tensors in bf16 for each weight in bf16, and 8 bits are only half of that: a saving too small to tell.
#[test]
fn state_in_half_precision_is_only_halved_in_eight_bits() {
    assert!(all_of("promised/bf16").iter().all(|f| f.rule != "optimizer_state"));
}
