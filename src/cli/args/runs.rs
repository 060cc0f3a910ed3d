//! Arguments of commands that watch or start programs: `record`, `run`, `probe`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use vramscope_live::live::metrics::Outlet;

use super::values::{parse_conf, parse_limit, parse_rate, parse_seconds};

/// Arguments of `record`.
#[derive(Clone, Debug, ClapArgs)]
pub struct RecordArgs {
    /// The session to write, ending in .vramscope; - writes to standard output: ssh HOST vramscope record - | vramscope -
    #[arg(required_unless_present_any = ["prometheus", "grafana"])]
    pub out: Option<PathBuf>,
    /// Only this GPU, by the number nvidia-smi gives it; may be repeated
    #[arg(long, value_name = "N")]
    pub device: Vec<usize>,
    /// The process to watch: its memory is shown separately from that of the others
    #[arg(long, value_name = "P")]
    pub pid: Option<u32>,
    /// Start the helper in the process of --pid, a running Python 3.14 or newer, for PyTorch's own figures
    #[arg(long, requires = "pid", conflicts_with = "no_helper")]
    pub attach: bool,
    /// Stop after this many seconds; Ctrl+C stops at any time, and the recording up to then is kept
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Memory readings per second, 0.1 to 50
    #[arg(long, value_name = "HZ", default_value = "10", value_parser = parse_rate)]
    pub rate: f64,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Use only the driver's figures: do not connect to the helper in programs that have it
    #[arg(long)]
    pub no_helper: bool,
    /// As root, also connect to the helper in programs of other users; those programs then decide what is shown of them
    #[arg(long, conflicts_with = "no_helper")]
    pub other_users: bool,
    /// Offer the newest figures to Prometheus: on a port that only this machine can reach (0 picks a free one), or in a file that
    /// ends in .prom, for node_exporter's textfile collector. Without OUT no session is written
    #[arg(long, value_name = "PORT|FILE")]
    pub prometheus: Option<Outlet>,
    /// Print a Grafana dashboard for these figures, ready to import, and exit
    #[arg(long, exclusive = true)]
    pub grafana: bool,
}

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// The Python that runs a script
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: String,
    /// Record from the first allocation on, and write a snapshot into this folder when memory runs out, at an uncaught error, at
    /// SIGTERM or Ctrl+C, and for vramscope snap
    #[arg(long, value_name = "DIR")]
    pub at_oom: Option<PathBuf>,
    /// The call stacks to record: Python's, those of C++ too (snapshots then take long), or none
    #[arg(long, value_name = "WHICH", default_value = "python", requires = "at_oom")]
    pub stacks: CatchStacks,
    /// How many of the newest events to keep; a training step has a few thousand
    #[arg(long, value_name = "N", default_value = "100000", requires = "at_oom", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_entries: u32,
    /// The most snapshots that one process writes
    #[arg(long, value_name = "N", default_value = "8", requires = "at_oom", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_snapshots: u32,
    /// The most disk space that all snapshots in the folder may take, as in 20GiB
    #[arg(long, value_name = "BYTES", default_value = "20GiB", requires = "at_oom", value_parser = parse_limit)]
    pub max_disk: u64,
    /// A script with its arguments, -m MODULE, or any command that starts Python: torchrun --nproc-per-node 8 train.py
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Which call stacks `run --at-oom` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CatchStacks {
    /// Those of Python.
    Python,
    /// Those of C++ too.
    All,
    /// None.
    None,
}

impl CatchStacks {
    /// As the Python package names it.
    pub fn name(self) -> &'static str {
        match self {
            CatchStacks::Python => "python",
            CatchStacks::All => "all",
            CatchStacks::None => "none",
        }
    }
}

/// Arguments of `snap`.
#[derive(Debug, ClapArgs)]
pub struct SnapArgs {
    /// The process ID, as vramscope run or ps prints it; for torchrun and other launchers every rank writes a snapshot
    pub pid: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `probe`.
#[derive(Debug, ClapArgs)]
pub struct ProbeArgs {
    /// The scenario, or "replay" to run a recording's requests; without it the scenarios are listed
    #[arg(value_name = "SCENARIO")]
    pub scenario: Option<String>,
    /// The snapshot to write; for replay the recording, then the snapshot
    #[arg(value_name = "FILE", num_args = 0..=2)]
    pub paths: Vec<PathBuf>,
    /// Run on a simulated card instead of a real one: 24 GiB, or as large as a replay needs
    #[arg(long)]
    pub simulated: bool,
    /// A parameter of the scenario; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF
    #[arg(long, value_name = "CONF", value_parser = parse_conf)]
    pub conf: Option<String>,
    /// The most bytes that may be reserved, as in 60GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_limit, allow_hyphen_values = true)]
    pub limit: Option<u64>,
    /// The card, counted from 0
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(i32).range(0..), conflicts_with = "simulated")]
    pub device: i32,
    /// Wait this many milliseconds after each step, so that you can watch
    #[arg(long, value_name = "MS")]
    pub pace: Option<u64>,
    /// Run even if other programs use more than 5 % of the card
    #[arg(long, conflicts_with = "simulated")]
    pub shared: bool,
    /// Use the last 512 MiB (or 2 %) of the card too
    #[arg(long, conflicts_with = "simulated")]
    pub fill: bool,
    /// Which device of the recording to replay; the busiest when absent
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub from_device: Option<i32>,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Tell the run on standard output in the framed format (for the program itself)
    #[arg(long, hide = true)]
    pub child: bool,
    /// Take so many bytes of the card and hold them until standard input ends (for the program itself)
    #[arg(long, value_name = "BYTES", hide = true)]
    pub neighbour: Option<u64>,
}

impl ProbeArgs {
    /// True when standard output is for another vramscope process and not text.
    pub fn speaks_to_a_program(&self) -> bool {
        self.child || self.neighbour.is_some()
    }
}
