//! The effect of each key of `PYTORCH_CUDA_ALLOC_CONF` on a replay: the model obeys it, it does not concern device memory, or the
//! answer says that it was not applied. No key is silently ignored.

use super::assume::Assumption;
use super::requests::Requests;
use crate::model::{AllocConf, TorchVersion};

/// The effect of a key on a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The model obeys it.
    Obeyed,
    /// It does not change device memory; the reason in a few words.
    Elsewhere(&'static str),
    /// Its effect depends on something no trace records, so the answer has an [`Assumption`].
    Assumed,
}

/// Why settings for pinned memory have no effect.
const PINNED: &str = "host memory only";
/// Why the size of an address reservation has no effect.
const RESERVED: &str = "addresses only, not memory";

/// The effect of a key; `None` for one that PyTorch does not know.
pub fn effect_of(key: &str) -> Option<Effect> {
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
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => Effect::Elsewhere("the order of threads only"),
        "pinned_use_cuda_host_register"
        | "pinned_use_hip_host_register"
        | "pinned_num_register_threads"
        | "pinned_use_background_threads"
        | "pinned_free_catch_all"
        | "pinned_reserve_segment_size_mb"
        | "pinned_max_round_threshold_mb"
        | "pinned_max_cached_size_mb" => Effect::Elsewhere(PINNED),
        "expandable_segments_reserve" | "expandable_segments_reserve_by_class" => Effect::Elsewhere(RESERVED),
        _ => return None,
    })
}

/// The limit that the settings give as a share of the device, if the device's size is known.
pub(crate) fn share(conf: &AllocConf, capacity: Option<u64>) -> Option<u64> {
    let fraction = conf.per_process_memory_fraction;
    capacity.filter(|_| fraction < 1.0).map(|total| (fraction * total as f64) as u64)
}

/// The assumptions that these settings require, each with whether it makes the figures uncertain.
pub(crate) fn assumed(conf: &AllocConf, version: TorchVersion, requests: &Requests<'_>) -> Vec<(Assumption, bool)> {
    let mut all = Vec::new();
    let is_on = |name| conf.other(name) == Some("True");
    if conf.other("backend").is_some_and(|b| b != "native") {
        all.push((Assumption::OtherBackend, true));
    }
    if conf.per_process_memory_fraction < 1.0 && requests.device.capacity.is_none() {
        all.push((Assumption::ShareOfUnknown, true));
    }
    let throws = "throw_on_cudamalloc_oom";
    if is_on(throws) && !version.is_at_least(12) {
        all.push((Assumption::LaterSetting { name: throws, since: TorchVersion::new(2, 12) }, false));
    }
    let reuses = "graph_capture_record_stream_reuse";
    if is_on(reuses) && requests.assumptions.iter().any(|a| matches!(a, Assumption::PrivatePools { .. })) {
        let because = "what a captured graph may use again depends on the graph, which the trace does not record";
        all.push((Assumption::NotModelled { name: reuses, because }, true));
    }
    all
}
