//! Arguments of commands that report on a recording: `summary`, `state`, `findings`, `leaks`, `flame`, `diff`, `ranks`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{one_of, parse_range};
use crate::cli::rules::RulesArgs;
use vramscope_core::compare::flame::By;
use vramscope_core::tables::Quantity;

/// What `findings` takes: a file, as text or JSON.
#[derive(Debug, ClapArgs)]
pub struct FindingsArgs {
    /// The recording
    pub file: PathBuf,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A file and one of its devices.
#[derive(Debug, ClapArgs)]
pub struct DeviceFileArgs {
    /// The recording
    pub file: PathBuf,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `summary`.
#[derive(Debug, ClapArgs)]
pub struct SummaryArgs {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A profiler trace, memory timeline or session of the same run: adds its operators, modules and roles to the snapshot
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// The saved output of memory_stats(), memory_summary() or host_memory_stats() of the same run, to compare with the snapshot
    #[arg(long, value_name = "FILE")]
    pub stats: Vec<PathBuf>,
    /// Print one JSON object; with several files {"files": […], "errors": […]}
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `state`.
#[derive(Debug, ClapArgs)]
pub struct StateArgs {
    /// The recording
    pub file: PathBuf,
    /// Which instant; the peak when absent
    #[command(flatten)]
    pub instant: InstantArgs,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// How the text groups what is live
    #[arg(long, value_name = "WHAT", default_value = "stack")]
    pub by: LiveBy,
    /// Print one JSON object, with every segment and block
    #[arg(long)]
    pub json: bool,
}

/// How live allocations are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LiveBy {
    /// By where they were allocated
    Stack,
    /// By what they are for: weights, gradients, activations, …
    #[value(alias = "category")]
    Role,
}

/// One instant; without any the peak.
#[derive(Debug, ClapArgs)]
#[group(multiple = false)]
pub struct InstantArgs {
    /// After event N, counted from 0
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
    /// The event at which this curve first reached its peak; active when no curve is named
    #[arg(long, value_name = "CURVE", num_args = 0..=1, require_equals = true, default_missing_value = "active",
          value_parser = one_of(CURVES))]
    pub peak: Option<Quantity>,
    /// At an out-of-memory event: the last, or the K-th from the first
    #[arg(long, value_name = "K", num_args = 0..=1, require_equals = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub oom: Option<Option<u32>>,
    /// After the last event
    #[arg(long)]
    pub end: bool,
}

/// The curves, as typed.
const CURVES: [(&str, &str, Quantity); 4] = [
    ("reserved", "Segments taken from the device", Quantity::Reserved),
    ("active", "Blocks until their memory is reusable", Quantity::Active),
    ("allocated", "Blocks until the program frees them", Quantity::Allocated),
    ("requested", "Bytes the program requested", Quantity::Requested),
];

/// Arguments of `leaks`.
#[derive(Debug, ClapArgs)]
pub struct LeaksArgs {
    /// Which recording, which device, text or JSON
    #[command(flatten)]
    pub of: DeviceFileArgs,
    /// Instead of growth over the steps, list what was allocated after this event and is still live at --to
    #[arg(long, value_name = "EVENT")]
    pub from: Option<u32>,
    /// The event to look at, together with --from; the last one when absent
    #[arg(long, value_name = "EVENT", requires = "from")]
    pub to: Option<u32>,
}

/// Arguments of `flame`.
#[derive(Debug, ClapArgs)]
pub struct FlameArgs {
    /// The recording
    pub file: PathBuf,
    /// Show what is live after event N instead of at the peak
    #[arg(long, value_name = "N", group = "measure")]
    pub event: Option<u32>,
    /// Show what is live at the end
    #[arg(long, group = "measure")]
    pub end: bool,
    /// Show everything that was allocated, also what was freed again
    #[arg(long, groups = ["measure", "over_time"])]
    pub allocated: bool,
    /// Show only what was allocated and freed again
    #[arg(long, groups = ["measure", "over_time"])]
    pub churn: bool,
    /// Weigh each allocation by its bytes times the number of events it lived
    #[arg(long, groups = ["measure", "over_time"])]
    pub lifetime: bool,
    /// Limit --allocated, --churn and --lifetime to these events: from FROM up to, but not including, TO
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range, requires = "over_time")]
    pub events: Option<(u32, u32)>,
    /// What the frames are
    #[arg(long, value_name = "BY", default_value = "stack", value_parser = one_of(FRAMES))]
    pub by: By,
    /// Count the bytes the program requested instead of whole blocks
    #[arg(long)]
    pub requested: bool,
    /// Turn the graph upside down: the innermost frame becomes the root
    #[arg(long)]
    pub inverted: bool,
    /// Leave out frames of PyTorch, Python and installed packages, except the one that allocates
    #[arg(long)]
    pub fold_framework: bool,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What the frames of `flame` are.
const FRAMES: [(&str, &str, By); 5] = [
    ("stack", "Functions with their lines", By::Stack),
    ("file", "Source files", By::File),
    ("module", "Modules: forward functions", By::Module),
    ("role|category", "What the memory is for, then functions", By::Role),
    ("phase", "What the program was doing when it allocated, then functions", By::Phase),
];

/// Arguments of `diff`.
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// The first recording
    pub a: PathBuf,
    /// The second recording; A alone, or twice, compares two instants of it
    #[arg(required_unless_present_any = ["a_event", "b_event"])]
    pub b: Option<PathBuf>,
    /// The event in A to compare, counted from 0; the peak when absent
    #[arg(long, value_name = "N")]
    pub a_event: Option<u32>,
    /// The event in B to compare, counted from 0; the peak when absent
    #[arg(long, value_name = "N")]
    pub b_event: Option<u32>,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Compare the ends instead of the peaks
    #[arg(long)]
    pub end: bool,
    /// The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ranks`.
#[derive(Debug, ClapArgs)]
pub struct RanksArgs {
    /// Folders of snapshots, or the snapshots themselves
    #[arg(required = true, value_name = "DIR")]
    pub paths: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
