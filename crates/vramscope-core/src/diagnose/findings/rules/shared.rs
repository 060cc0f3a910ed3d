//! Helpers for several rules: marks on stacks, stretches and trends of samples.

use crate::diagnose::findings::RuleInput;
use crate::model::{FrameId, Sample, StackTable};

/// A frame computes a loss over classes.
pub(super) const LOSS: u16 = 1;
/// A frame decodes latents into an image.
pub(super) const VAE: u16 = 1 << 1;
/// A frame updates all parameters at once.
pub(super) const FOREACH: u16 = 1 << 2;
/// A frame sets up DDP's buckets.
pub(super) const REDUCER: u16 = 1 << 3;
/// A frame's function evaluates a model (`validate`, `predict`).
pub(super) const EVALUATION: u16 = 1 << 4;
pub(super) const CPP: u16 = 1 << 5;
/// A frame computes a softmax that is not part of a loss.
pub(super) const SOFTMAX: u16 = 1 << 6;
/// A frame calls PyTorch's own attention (the wrapper in Transformers).
pub(super) const SDPA: u16 = 1 << 7;
/// A frame belongs to an attention kernel that keeps no scores.
pub(super) const FUSED: u16 = 1 << 8;
/// A frame joins tensors into one, like `torch.cat` and `torch.stack`.
pub(super) const JOINS: u16 = 1 << 9;

/// PyTorch's own attention without a fused kernel, which keeps scores.
pub(super) const MATH: u16 = 1 << 12;
/// A frame belongs to a linear layer, whose result is not a score, even inside attention.
pub(super) const LINEAR: u16 = 1 << 13;
/// A frame belongs to a convolution.
pub(super) const CONVOLVES: u16 = 1 << 14;

/// A frame copies a tensor into another layout.
const CLONES: u16 = 1 << 10;
/// A frame multiplies matrices, in any layout.
pub(super) const MULTIPLIES: u16 = 1 << 11;
/// A matrix product copies its operand because it needs another layout.
pub(super) const OPERAND: u16 = CLONES | MULTIPLIES;

pub(in crate::diagnose::findings) fn marks(stacks: &StackTable) -> Vec<u16> {
    let of = |f| stacks.frame(f).map_or(0, |f| mark(stacks.text(f.name), stacks.text(f.file)));
    let of_frame: Vec<u16> = stacks.frame_ids().map(of).collect();
    let mark_of = |f: &FrameId| of_frame.get(f.0 as usize).copied().unwrap_or(0);
    stacks.ids().map(|stack| stacks.frames(stack).iter().fold(0, |sum, f| sum | mark_of(f))).collect()
}

fn mark(name: &str, file: &str) -> u16 {
    let mut marks = 0;
    // Other functions with such names belong to the program itself.
    if name == "sdpa_attention_forward" && file.ends_with("sdpa_attention.py") {
        marks |= SDPA;
    }
    let of_kernel = name
        .split_once("_scaled_dot_product_")
        .is_some_and(|(_, kernel)| ["flash", "efficient", "cudnn", "fused"].iter().any(|start| kernel.starts_with(start)));
    if of_kernel || file.ends_with("flash_attn_interface.py") {
        marks |= FUSED;
    }
    if name == "aten::linear" || name.contains("_ops::linear::") || file.ends_with("nn/modules/linear.py") {
        marks |= LINEAR;
    }
    if file.ends_with("nn/modules/conv.py") {
        marks |= CONVOLVES;
    }
    if name.contains("_scaled_dot_product_attention_math") {
        marks |= MATH;
    }
    if name.contains("_ops::clone::") {
        marks |= CLONES;
    }
    if ["native::sumproduct_pair", "_ops::einsum::", "_ops::matmul::"].iter().any(|product| name.contains(product))
        || ["aten::bmm", "aten::baddbmm"].contains(&name)
    {
        marks |= MULTIPLIES;
    }
    if name.contains("structured_cat") || name.contains("_ops::cat::") || name == "torch_pad_and_concatenate" {
        marks |= JOINS;
    }
    if ["cross_entropy", "log_softmax", "nll_loss", "fixed_cross_entropy", "ForCausalLMLoss"].contains(&name) || name == "lm_head"
    {
        marks |= LOSS;
    }
    let lower = file.to_ascii_lowercase();
    let file_name = lower.rsplit(['/', '\\']).next().unwrap_or("");
    if name.contains("softmax") && !name.contains("log_softmax") || file_name == "softmax.py" {
        marks |= SOFTMAX;
    }
    if name.contains("decode") && (file_name.contains("vae") || file_name.contains("autoencoder")) || name.contains("vae_decode")
    {
        marks |= VAE;
    }
    if name.starts_with("_multi_tensor_") || name.contains("_foreach_") {
        marks |= FOREACH;
    }
    if file_name == "distributed.py" && ["_pre_forward", "_ddp_init_helper", "_rebuild_buckets"].contains(&name) {
        marks |= REDUCER;
    }
    const EVALUATES: [&str; 10] = [
        "evaluate",
        "evaluation_loop",
        "evaluation_step",
        "validate",
        "validation_step",
        "validation_loop",
        "prediction_step",
        "predict",
        "test_step",
        "run_evaluation",
    ];
    if EVALUATES.contains(&name) {
        marks |= EVALUATION;
    }
    if name.contains("::") || [".cpp", ".cc", ".h", ".cu", ".so"].iter().any(|end| file_name.ends_with(end)) {
        marks |= CPP;
    }
    marks
}

/// A run of successive samples that pass a test.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// Time from its first to its last sample, in seconds.
    pub(super) seconds: f64,
    pub(super) sample: Sample,
    /// True if it includes the last sample.
    pub(super) is_last: bool,
}

/// The longest run of samples that pass a test. O(samples).
pub(super) fn lasts(p: &RuleInput<'_>, holds: impl Fn(&Sample) -> bool) -> Option<Run> {
    let samples = &p.device.samples;
    let mut best: Option<Run> = None;
    let mut since: Option<i64> = None;
    for (i, s) in samples.iter().enumerate() {
        if !holds(s) {
            since = None;
            continue;
        }
        let start = *since.get_or_insert(s.time_us);
        let seconds = (s.time_us - start) as f64 / 1e6;
        if best.is_none_or(|b| seconds >= b.seconds) {
            best = Some(Run { seconds, sample: *s, is_last: i + 1 == samples.len() });
        }
    }
    best
}

/// Number of intervals into which a series is divided.
pub(super) const STRETCHES: usize = 12;

/// A line through the minima of successive intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trend {
    /// Growth in bytes from the first to the last interval; 0 if it falls.
    pub(super) grown: u64,
    /// The part of [`grown`](Self::grown) in the second half.
    pub(super) last_half: u64,
    pub(super) seconds: f64,
    /// Number of intervals that are higher than the one before.
    pub(super) rising: usize,
    /// Coefficient of determination of the line.
    pub(super) confidence: f64,
}

/// The trend of a figure's floor: its minimum in each of [`STRETCHES`] intervals of time. `None` with too few samples. The floor
/// is the level that a program returns to, whatever its steps do in between.
pub(super) fn trend(p: &RuleInput<'_>, figure: impl Fn(&Sample) -> Option<u64>) -> Option<Trend> {
    let series: Vec<(i64, u64)> = p.device.samples.iter().filter_map(|s| Some((s.time_us, figure(s)?))).collect();
    let (first, last) = (series.first()?.0, series.last()?.0);
    let span = last.checked_sub(first).filter(|&s| s > 0)?;
    let mut floors = [u64::MAX; STRETCHES];
    for &(time, value) in &series {
        let at = ((time - first) as i128 * STRETCHES as i128 / (i128::from(span) + 1)) as usize;
        floors[at] = floors[at].min(value);
    }
    if floors.contains(&u64::MAX) {
        return None;
    }
    let n = STRETCHES as f64;
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = floors.iter().map(|&f| f as f64).sum::<f64>() / n;
    let (mut sxy, mut sxx, mut syy) = (0.0, 0.0, 0.0);
    for (i, &f) in floors.iter().enumerate() {
        let (dx, dy) = (i as f64 - mean_x, f as f64 - mean_y);
        sxy += dx * dy;
        sxx += dx * dx;
        syy += dy * dy;
    }
    let confidence = if sxx == 0.0 || syy == 0.0 { 0.0 } else { sxy * sxy / (sxx * syy) };
    Some(Trend {
        grown: floors[STRETCHES - 1].saturating_sub(floors[0]),
        last_half: floors[STRETCHES - 1].saturating_sub(floors[STRETCHES / 2 - 1]),
        seconds: span as f64 / 1e6,
        rising: floors.windows(2).filter(|w| w[1] > w[0]).count(),
        confidence,
    })
}
