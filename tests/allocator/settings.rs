//! Every key of `PYTORCH_CUDA_ALLOC_CONF` changes a simulation, or is reported as not applied, or is documented as having no
//! effect on device memory.

use crate::shared::open_sample;
use vramscope_core::inference::{Answer, Assumption, Question, WhatIf};
use vramscope_core::model::{AllocConf, DeviceRecording, Progress};

fn ask(device: &DeviceRecording, conf: &str, limit: Option<u64>) -> Answer {
    let whatif = WhatIf::new(device, None, &Progress::new()).unwrap();
    whatif.ask(&Question::parse(conf, limit).unwrap(), 0, &Progress::new()).unwrap()
}

/// What a key must do in a replay.
enum Effect {
    /// The model obeys it: the figures change.
    Obeyed,
    /// It depends on something no trace records, so the answer has an [`Assumption`].
    Assumed,
    /// It changes host memory, addresses or the order of threads, and docs/WHATIF.md says so.
    Elsewhere,
}

fn effect_of(key: &str) -> Option<Effect> {
    Some(match key {
        "expandable_segments"
        | "max_split_size_mb"
        | "roundup_power2_divisions"
        | "garbage_collection_threshold"
        | "max_non_split_rounding_mb"
        | "large_segment_size_mb"
        | "per_process_memory_fraction"
        | "throw_on_cudamalloc_oom" => Effect::Obeyed,
        "backend" | "graph_capture_record_stream_reuse" => Effect::Assumed,
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => Effect::Elsewhere,
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => Effect::Elsewhere,
        pinned if pinned.starts_with("pinned_") => Effect::Elsewhere,
        _ => return None,
    })
}

/// A value of a key, other settings that it needs, and the limit at which its effect shows.
fn example(key: &str) -> (String, Option<u64>) {
    let value = match key {
        "max_split_size_mb" => "64",
        "max_non_split_rounding_mb" => return (format!("max_split_size_mb:64,{key}:2000"), None),
        "large_segment_size_mb" => "128",
        "garbage_collection_threshold" => return (format!("{key}:0.1"), Some(2080 << 20)),
        "per_process_memory_fraction" => "0.01",
        "roundup_power2_divisions" => "2",
        "backend" => "cudaMallocAsync",
        "pinned_num_register_threads" => "8",
        "pinned_reserve_segment_size_mb" | "pinned_max_round_threshold_mb" | "pinned_max_cached_size_mb" => "64",
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => "[small:1,large:2]",
        _ => "True",
    };
    (format!("{key}:{value}"), None)
}

#[test]
fn every_key_changes_a_replay_or_yields_an_assumption_or_is_documented_as_without_effect() {
    let mut train = open_sample("gpt_train.pickle");
    let graph = open_sample("cuda_graph.pickle");
    let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/WHATIF.md")).unwrap();
    train.devices[0].capacity = Some(80 << 30);
    let mut wrong = Vec::new();
    for key in AllocConf::keys() {
        let (conf, limit) = example(key);
        match effect_of(key) {
            Some(Effect::Obeyed) => {
                let mut device = train.devices[0].clone();
                if key == "throw_on_cudamalloc_oom" {
                    // With this key a request is refused that would otherwise empty the cache first. The card is too small for
                    // the peak.
                    device.capacity = Some(2052 << 20);
                }
                let other = conf.rsplit_once(',').map_or("", |(before, _)| before);
                let (with, without) = (ask(&device, &conf, limit).row, ask(&device, other, limit).row);
                let figures = |r: &vramscope_core::inference::Row| {
                    (r.oom, r.oom_request, r.peak_reserved_bytes, r.peak_allocated_bytes, r.num_device_alloc, r.num_alloc_retries)
                };
                if figures(&with) == figures(&without) {
                    wrong.push(format!("{key} changes nothing: {:?}", figures(&with)));
                }
            }
            Some(Effect::Assumed) => {
                let told = ask(&graph.devices[0], &conf, limit);
                let is_told = told.assumptions.iter().any(|a| a.to_string().contains(key));
                if !is_told || told.row.certain {
                    wrong.push(format!("{key} is neither applied nor told: {:?}", told.assumptions));
                }
            }
            Some(Effect::Elsewhere) => {
                if !documented.contains(&format!("`{key}`")) {
                    wrong.push(format!("{key} is not in docs/WHATIF.md as one without effect"));
                }
            }
            None => wrong.push(format!("{key} is read, and nobody says what it does")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_share_of_the_device_is_a_limit() {
    let mut recording = open_sample("gpt_train.pickle");
    let device = &mut recording.devices[0];
    device.capacity = Some(80 << 30);
    let half = ask(device, "per_process_memory_fraction:0.02", None);
    let same = ask(device, "", Some((0.02 * (80u64 << 30) as f64) as u64));
    assert!(half.row.oom && half.row.oom_request == same.row.oom_request, "{:?}", half.row);
    assert_eq!(half.row.limit_bytes, same.row.limit_bytes);
    // The lower of the two limits applies.
    assert_eq!(ask(device, "per_process_memory_fraction:0.02", Some(1 << 30)).row.limit_bytes, Some(1 << 30));
    device.capacity = None;
    let unknown = ask(device, "per_process_memory_fraction:0.02", None);
    assert!(!unknown.row.certain && unknown.assumptions.contains(&Assumption::ShareOfUnknown), "{unknown:?}");
    // The limit that the settings set does not change what they need.
    let whatif = WhatIf::new(device, None, &Progress::new()).unwrap();
    let needed =
        |conf| whatif.needed(&AllocConf::parse(conf).unwrap(), &Progress::new()).unwrap().map(|n| n.smallest_limit_bytes);
    assert_eq!(needed("per_process_memory_fraction:0.02"), needed(""));
}

#[test]
fn a_later_setting_is_applied_and_told() {
    let mut recording = open_sample("gpt_train.pickle");
    recording.devices[0].capacity = Some(80 << 30);
    let answer = ask(&recording.devices[0], "throw_on_cudamalloc_oom:True", None);
    assert!(answer.assumptions.iter().any(|a| a.to_string().contains("exists from PyTorch 2.12 on")), "{:?}", answer.assumptions);
    assert!(!answer.row.oom, "80 GiB are enough");
}
