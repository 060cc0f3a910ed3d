//! What only PyTorch's messages have: wordings that identify the release, and advice at the end.

use super::text::{Window, clamped};
use super::{Cause, OomMessage, Platform, Release};

/// Words of a message and the releases that use them; the first row of which all words occur applies.
const WORDINGS: [(&str, Release, Option<Release>); 14] = [
    ("cached)", (1, 0), Some((1, 3))),
    ("bypytorch)+ifreservedmemoryis", (1, 10), Some((2, 0))),
    ("totalcapacity;", (1, 4), Some((1, 9))),
    ("totalcapacty", (2, 1), Some((2, 1))),
    ("expandable_segmentsisenabled", (2, 15), None),
    ("thecustomallocatorbacking", (2, 15), None),
    ("expandable-segmentreserve", (2, 15), None),
    ("pytorch_alloc_conf", (2, 10), Some((2, 10))),
    ("docs.pytorch.org", (2, 11), None),
    ("privatepools+pytorch.org", (2, 4), Some((2, 9))),
    ("torch.outofmemoryerror:+pytorch.org", (2, 4), Some((2, 9))),
    ("torch.cuda.outofmemoryerror:+pytorch.org", (2, 2), Some((2, 3))),
    ("pytorch.org", (2, 2), Some((2, 9))),
    ("privatepools", (2, 4), None),
];

/// The settings variables that the end of a message may recommend.
const VARIABLES: [&str; 5] = [
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_XPU_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
];

/// Bytes after the last figure that belong to a message: its advice.
const TAIL: usize = 900;

/// Dates a message of PyTorch by its wording, and reads its advice. `used` is the end of its last figure.
pub(super) fn finish(window: &Window<'_>, used: usize, message: &mut OomMessage) {
    let low = window.own().low;
    if message.dialect.since.is_some() || message.dialect.until.is_some() || !clamped(low, 60).contains(".triedtoallocate") {
        message.cause = low.starts_with("cudaoutofmemory.allocationwaspreempt").then_some(Cause::Rejected);
        message.expandable_segments = window.before(60).low.ends_with("expandable_segments:").then_some(true);
        return;
    }
    let whole = [window.before(40).low, clamped(low, used + TAIL)].concat();
    let tail = clamped(low.get(used..).unwrap_or(""), TAIL);
    let fits = |words: &str| words.split('+').all(|word| whole.contains(word));
    // On other platforms the wording did not change together with CUDA's.
    if !matches!(message.dialect.platform, Platform::Xpu | Platform::Npu) {
        let found = WORDINGS.iter().find(|(words, ..)| fits(words)).map(|&(_, since, until)| (since, until));
        let since_2_2 = whole.contains("hasatotalcapacityof").then_some(((2, 2), None));
        if let Some((since, until)) = found.or(since_2_2) {
            (message.dialect.since, message.dialect.until) = (Some(since), until);
        }
    }
    let named = |name: &&str| tail.find(&name.to_ascii_lowercase());
    message.settings_variable = VARIABLES.iter().filter_map(|name| Some((named(name)?, *name))).min().map(|(_, name)| name);
    message.expandable_segments = tail.contains("expandable_segmentsisenabled").then_some(true);
    if tail.contains("thecustomallocatorbackingthismempool") {
        message.cause = Some(Cause::PoolAllocator);
    } else if tail.contains("exceedstheexpandable-segmentreserve") {
        message.cause = Some(Cause::SegmentReserve);
        message.expandable_segments = Some(true);
    }
}
