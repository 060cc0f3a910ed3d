//! `allocator_settings`: every key as text, and those that affect placement as an [`AllocConf`].

use super::super::pickle::{Node, NodeId, Tree};
use super::stacks::wrong_type;
use crate::model::{AllocConf, LoadReport, Settings};
use crate::units::MEBIBYTE;

pub(crate) fn read(tree: &Tree, id: NodeId, report: &mut LoadReport) -> Settings {
    let Node::Dict(pairs) = tree.node(id) else {
        wrong_type(tree, id, "allocator_settings", "a dict", report);
        return Settings::default();
    };
    let mut settings = Settings { recorded: true, ..Settings::default() };
    let conf = &mut settings.conf;
    let mut raw_conf = String::new();
    for &(key, value) in pairs {
        let name = tree.text_of(key);
        match name.as_str() {
            // -1 is "unlimited" read as a signed number.
            "max_split_size" => conf.max_split_size = tree.as_i64(value).and_then(|v| u64::try_from(v).ok()),
            "garbage_collection_threshold" => conf.garbage_collection_threshold = tree.as_f64(value).unwrap_or(0.0),
            "expandable_segments" => conf.expandable_segments = tree.as_bool(value).unwrap_or(false),
            "roundup_power2_divisions" => read_divisions(tree, value, conf, report),
            "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" => {
                if !tree.text_of(value).is_empty() {
                    raw_conf = tree.text_of(value);
                }
            }
            _ => {}
        }
        settings.raw.push((name, tree.text_of(value)));
    }
    read_conf_text(&raw_conf, &mut settings.conf);
    settings
}

/// `{'1': 4, '2': 4, … '32768': 4}`: one entry per power of two, in MiB.
fn read_divisions(tree: &Tree, id: NodeId, conf: &mut AllocConf, report: &mut LoadReport) {
    for &(key, value) in tree.pairs(id) {
        let mebibytes = tree.text_of(key).parse::<u64>().ok().filter(|v| v.is_power_of_two());
        let divisions = tree.as_u64(value).and_then(|v| u32::try_from(v).ok());
        match (mebibytes.and_then(|v| conf.roundup_power2_divisions.get_mut(v.trailing_zeros() as usize)), divisions) {
            (Some(slot), Some(divisions)) => *slot = divisions,
            _ => wrong_type(tree, value, "roundup_power2_divisions", "divisions by a power of two", report),
        }
    }
}

/// Reads settings that the dict lacks from the text of the environment variable.
fn read_conf_text(text: &str, conf: &mut AllocConf) {
    for (key, value) in text.split(',').filter_map(|item| item.split_once(':')) {
        let mebibytes = value.trim().parse::<u64>().ok().and_then(|v| v.checked_mul(MEBIBYTE));
        match key.trim() {
            "max_non_split_rounding_mb" => conf.max_non_split_rounding = mebibytes.or(conf.max_non_split_rounding),
            "large_segment_size_mb" => conf.large_segment_size = mebibytes.unwrap_or(conf.large_segment_size),
            "per_process_memory_fraction" => {
                conf.per_process_memory_fraction = value.trim().parse().unwrap_or(conf.per_process_memory_fraction);
            }
            // Another backend is another allocator, so the diagnosis depends on it.
            "backend" => {
                conf.other.retain(|(name, _)| name != "backend");
                conf.other.push(("backend".to_owned(), value.trim().to_owned()));
            }
            _ => {}
        }
    }
}

/// True for the settings of an Intel GPU: they have the generic key but not CUDA's.
pub(crate) fn is_xpu(settings: &Settings) -> bool {
    let has = |name: &str| settings.raw.iter().any(|(key, _)| key == name);
    has("PYTORCH_ALLOC_CONF") && !has("PYTORCH_CUDA_ALLOC_CONF") && !has("PYTORCH_HIP_ALLOC_CONF")
}
