//! Arguments of commands about failures: `oom`, `whatif`, `explain`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::values::{parse_conf, parse_limit};
use crate::cli::rules::RulesArgs;

/// What `oom` takes.
#[derive(Debug, ClapArgs)]
pub struct OomArgs {
    /// The recording
    pub file: PathBuf,
    /// Try other settings on a recording of any length; without this option only up to 100,000 events (about half a second)
    #[arg(long)]
    pub whatif: bool,
    /// Explain every failure in full, with every setting tried; without this option the last failure, and one line for each kind before it (--json always has all)
    #[arg(long)]
    pub all: bool,
    /// The device, by its number in the process (cuda:N); all of them when absent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// The most this process could reserve, if you know it: PyTorch does not record it
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `whatif`.
#[derive(Debug, ClapArgs)]
pub struct WhatifArgs {
    /// The recording
    pub file: PathBuf,
    /// Settings to try, as in PYTORCH_CUDA_ALLOC_CONF, or "default"; a list of useful settings when absent
    #[arg(long, value_name = "CONF", num_args = 1.., value_parser = parse_conf)]
    pub conf: Vec<String>,
    /// The most bytes that may be reserved, as in 60GiB; the limit of the recording when absent
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Also write the simulated run of the first --conf, with every event, as a PyTorch snapshot
    #[arg(long, value_name = "OUT", requires = "conf")]
    pub save: Option<PathBuf>,
    /// Overwrite the file of --save if it exists
    #[arg(long, requires = "save")]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `explain`.
#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// A log that holds the message; standard input when absent or "-"
    pub file: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
