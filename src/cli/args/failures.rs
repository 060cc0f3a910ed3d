//! What the commands take that answer why memory ran out and what would have helped: `oom`, `whatif`, `explain`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::values::{parse_conf, parse_limit};
use crate::cli::rules::RulesArgs;

/// What `oom` takes.
#[derive(Debug, ClapArgs)]
pub struct OomArgs {
    /// The recording
    pub file: PathBuf,
    /// Try other settings however long the recording is; without this only up to 100,000 events (about half a second)
    #[arg(long)]
    pub whatif: bool,
    /// Tell every failure in full; without this the last, and one line for each kind before it (--json always has all)
    #[arg(long)]
    pub all: bool,
    /// The device, by the number the process knew it by; all of them when absent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// What the process could reserve at most, where you know it: PyTorch does not record it
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// What roles mean
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
    /// Settings to try, as in PYTORCH_CUDA_ALLOC_CONF, "default" for the defaults; a designed list when absent
    #[arg(long, value_name = "CONF", num_args = 1.., value_parser = parse_conf)]
    pub conf: Vec<String>,
    /// The most bytes that may be reserved, as in 60GiB; the recording's own limit when absent
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Also write the run of the first --conf, with every event, as a PyTorch snapshot
    #[arg(long, value_name = "OUT", requires = "conf")]
    pub save: Option<PathBuf>,
    /// Replace the file of --save when it exists
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
