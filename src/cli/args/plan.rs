//! Arguments of `plan`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{parse_cap, parse_conf, parse_limit, parse_size_of_run};
use vramscope_core::plan::Size;

/// Arguments of `plan`.
#[derive(Debug, Default, ClapArgs)]
pub struct PlanArgs {
    /// Recordings of one program, best two or three at different sizes, a few steps each
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The size of each recording, once per FILE and in their order: batch=8 or batch=8,seq=512
    #[arg(long, value_name = "NAME=N", required = true, value_parser = parse_size_of_run)]
    pub at: Vec<Size>,
    /// A size to plan for; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = parse_size_of_run)]
    pub want: Vec<Size>,
    /// The most bytes that PyTorch may reserve, as in 24GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_cap, allow_hyphen_values = true)]
    pub cap: Option<u64>,
    /// The card by name, as in "RTX 4090"; the cap is then its memory minus a CUDA context
    #[arg(long, value_name = "NAME", conflicts_with = "cap")]
    pub card: Option<String>,
    /// How much of the card other programs use, as in 2GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_held, requires = "card", conflicts_with = "cap")]
    pub held: Option<u64>,
    /// Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; may be repeated; those of the recording when absent
    #[arg(long, value_name = "CONF", value_parser = parse_conf)]
    pub conf: Vec<String>,
    /// A change to the program; may be repeated; "all" tries each: checkpoint or checkpoint:NAME, no_foreach, fused, 8bit, sgd, set_to_none,
    /// in_backward, bf16, cache_off, chunks:N, offload, del:FILE:LINE, lora:RANK, no_grad, fused_attention,
    /// release, or several with a plus between; or accumulate:N, the batch in N passes
    #[arg(long, value_name = "CHANGE")]
    pub change: Vec<String>,
    /// Print the lines to paste of every change that helps, for this library
    #[arg(long, value_name = "LIBRARY", requires = "change", conflicts_with = "json")]
    pub code: Option<Library>,
    /// Find the largest value of this quantity (batch, seq, ...) that fits the cap
    #[arg(long, value_name = "NAME")]
    pub largest: Option<String>,
    /// The least number of steps to predict, 3 when absent; the last recorded step is repeated to fill them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub steps: Option<u16>,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Whose code is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Library {
    /// A training loop in plain PyTorch
    Pytorch,
    /// The Trainer of Hugging Face's transformers
    Trainer,
    /// The Trainer of Lightning
    Lightning,
}

/// Bytes used by other programs; may be 0.
fn parse_held(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { parse_limit(text) }
}
