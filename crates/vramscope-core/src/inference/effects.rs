//! What the allocator's settings do to a replay beyond what the model obeys: a limit, and what the answer must say it assumed. A test
//! holds every key of `PYTORCH_CUDA_ALLOC_CONF` to one of these, or to docs/WHATIF.md.

use super::assume::Assumption;
use super::requests::Requests;
use crate::model::{AllocConf, TorchVersion};

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
