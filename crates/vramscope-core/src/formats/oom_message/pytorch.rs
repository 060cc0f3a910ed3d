//! What only PyTorch's messages have: wordings that identify the release (`signs.txt`), and advice at the end.

use super::signs;
use super::text::{Window, clamped, contains};
use super::{OomMessage, Platform, release};

/// Bytes after the last figure that belong to a message: its advice.
const TAIL: usize = 900;

/// The settings variables that it may recommend.
const VARIABLES: [&str; 5] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_XPU_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
];

/// Dates a message of PyTorch by its wording, and reads its advice. `used` is the end of its last figure.
pub(super) fn finish(window: &Window<'_>, used: usize, message: &mut OomMessage) {
    let low = window.own().low;
    if message.dialect.since.is_some() || message.dialect.until.is_some() || !clamped(low, 60).contains(".triedtoallocate") {
        message.seen.extend(low.starts_with("cudaoutofmemory.allocationwaspreempt").then_some("rejected"));
        message.seen.extend(window.before(60).low.ends_with("expandable_segments:").then_some("expands"));
        return;
    }
    let whole = [window.before(40).low, clamped(low, used + TAIL)].concat();
    let tail = clamped(low.get(used..).unwrap_or(""), TAIL);
    let fits = |words: &str| words.split('+').all(|word| contains(&whole, word));
    // On other platforms the wording did not change together with CUDA's.
    if !matches!(message.dialect.platform, Platform::Xpu | Platform::Npu)
        && let Some((since, until)) =
            signs::of_kind("release").find(|(_, words)| fits(words)).and_then(|(r, _)| r.split_once('-'))
    {
        (message.dialect.since, message.dialect.until) = (release(since), release(until));
    }
    let variables = VARIABLES.iter().filter_map(|name| Some((tail.find(&name.to_ascii_lowercase())?, *name)));
    message.settings_variable = variables.min().map(|(_, name)| name);
    message.seen.extend(signs::of_kind("told").filter(|(_, words)| contains(tail, words)).map(|(what, _)| what));
}
