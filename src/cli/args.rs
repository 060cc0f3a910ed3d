//! What can be typed after `vramscope`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};

use super::allocations::AllocationsArgs;
use crate::analysis::Quantity;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "vramscope",
    version,
    about = "Shows where a PyTorch program's GPU memory went and why it ran out.",
    long_about = "Shows where a PyTorch program's GPU memory went and why it ran out.\n\n\
        vramscope FILE… opens the window on memory snapshots, profiler traces and memory timelines. The subcommands below print \
        the same answers as text, or as one JSON object with --json; they need no display and no GPU.",
    after_help = "Record a snapshot in your program:\n  \
        torch.cuda.memory._record_memory_history()\n  \
        ...                                  # what you want to see\n  \
        torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")\n\n\
        Exit codes: 0 done, 1 the file or the machine does not allow it, 2 wrong usage.",
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    /// Recordings to open in the window; a folder opens as the ranks of one job
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Watch a folder; new recordings in it are opened or offered
    #[arg(long, value_name = "DIR")]
    pub watch: Option<PathBuf>,
    /// What to do instead of opening the window
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// One subcommand each; the text of their help is what `vramscope help` prints.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Peaks, totals, out-of-memory events and oddities of one or many files
    Summary(SummaryArgs),
    /// Segments, blocks and live memory by call stack at one instant
    State(StateArgs),
    /// Why each out-of-memory error happened, and what stood in the way
    Oom(OomArgs),
    /// The same requests under other allocator settings and limits
    Whatif(WhatifArgs),
    /// What the text of an out-of-memory error says, and what to do
    Explain(ExplainArgs),
    /// What is wrong with a recording, most serious first, with remedies
    Findings(FileArgs),
    /// Allocations one by one: those a query holds for, as a sorted table
    Allocations(AllocationsArgs),
    /// What survives its training step, by call stack
    Leaks(LeaksArgs),
    /// Bytes by call stack, as collapsed stacks for flame graphs
    Flame(FlameArgs),
    /// What is live in one recording or instant and not in another
    Diff(DiffArgs),
    /// One snapshot a rank, side by side: peaks, outliers, the first to fail
    Ranks(RanksArgs),
    /// Limits for continuous integration; exit code 1 when one is passed
    Check(CheckArgs),
    /// Tables, flame graphs, traces or a snapshot for other tools
    Export(ExportArgs),
    /// Watch GPUs and running programs, without a window, into a session file or a pipe
    Record(RecordArgs),
    /// Start a Python program so that vramscope can see its memory from inside
    Run(RunArgs),
    /// Print the Python helper, one file, to put beside a program
    Agent,
    /// Make a classic memory problem happen, on this card or on simulated memory
    Probe(ProbeArgs),
    /// Draw one view of the window into a PNG
    Screenshot(ScreenshotArgs),
}

impl Command {
    /// What has to be drawn by the window's code, or the command itself when nothing has.
    ///
    /// # Errors
    /// The command, which `cli::run` can run.
    pub fn into_picture(self) -> Result<ScreenshotArgs, Box<Command>> {
        match self {
            Command::Screenshot(shot) => Ok(shot),
            Command::Export(export) if matches!(export.to, ExportFormat::Svg | ExportFormat::Png) => Ok(ScreenshotArgs {
                paths: vec![export.file, export.out],
                with: Vec::new(),
                view: export.view,
                size: export.size,
                theme: export.theme,
                event: export.event,
                device: export.device.and_then(|d| usize::try_from(d).ok()),
                is_svg: export.to == ExportFormat::Svg,
            }),
            other => Err(Box::new(other)),
        }
    }
}

/// A file, as text or JSON.
#[derive(Debug, ClapArgs)]
pub struct FileArgs {
    /// The recording
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `oom` takes.
#[derive(Debug, ClapArgs)]
pub struct OomArgs {
    /// The recording
    pub file: PathBuf,
    /// Try other settings however long the recording is; without this only up to 100,000 events (about half a second)
    #[arg(long)]
    pub whatif: bool,
    /// The device, by the number the process knew it by; all of them when absent
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
    /// What the process could reserve at most, where you know it: files do not tell
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A file and one of its devices.
#[derive(Debug, ClapArgs)]
pub struct DeviceFileArgs {
    /// The recording
    pub file: PathBuf,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `leaks`.
#[derive(Debug, ClapArgs)]
pub struct LeaksArgs {
    /// Which recording, which device, text or JSON
    #[command(flatten)]
    pub of: DeviceFileArgs,
    /// List what was born after event N and is alive at --to, instead of growth over the steps
    #[arg(long, value_name = "EVENT")]
    pub from: Option<u32>,
    /// Until this event; the last one when absent
    #[arg(long, value_name = "EVENT", requires = "from")]
    pub to: Option<u32>,
}

/// Arguments of `flame`.
#[derive(Debug, ClapArgs)]
pub struct FlameArgs {
    /// The recording
    pub file: PathBuf,
    /// What is live after event N instead of at the peak of requested memory
    #[arg(long, value_name = "N", group = "measure")]
    pub event: Option<u32>,
    /// What is live at the end
    #[arg(long, group = "measure")]
    pub end: bool,
    /// Everything allocated, live or not
    #[arg(long, groups = ["measure", "over_time"])]
    pub allocated: bool,
    /// What was allocated and freed again
    #[arg(long, groups = ["measure", "over_time"])]
    pub churn: bool,
    /// Bytes times the events they lived for
    #[arg(long, groups = ["measure", "over_time"])]
    pub lifetime: bool,
    /// Count --allocated, --churn and --lifetime only within these events, FROM first and TO not included
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range, requires = "over_time")]
    pub events: Option<(u32, u32)>,
    /// What the frames are
    #[arg(long, value_enum, default_value_t = FlameBy::Stack)]
    pub by: FlameBy,
    /// Count what programs asked for instead of whole blocks
    #[arg(long)]
    pub requested: bool,
    /// Root the graph at the innermost frame
    #[arg(long)]
    pub inverted: bool,
    /// Leave out frames of PyTorch, Python and installed packages, but for the one that allocates
    #[arg(long)]
    pub fold_framework: bool,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What the frames of `flame` are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FlameBy {
    /// Functions with their lines
    #[default]
    Stack,
    /// Source files
    File,
    /// Modules: forward functions
    Module,
    /// What the memory is for, then functions
    Category,
}

/// Arguments of `diff`.
#[derive(Debug, ClapArgs)]
pub struct DiffArgs {
    /// The first recording
    pub a: PathBuf,
    /// The second recording; the same file compares two instants
    pub b: PathBuf,
    /// The instant in A; the peak of requested memory when absent
    #[arg(long, value_name = "N")]
    pub a_event: Option<u32>,
    /// The instant in B
    #[arg(long, value_name = "N")]
    pub b_event: Option<u32>,
    /// Compare the ends instead of the peaks
    #[arg(long)]
    pub end: bool,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N")]
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

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("limits").args(["max_peak", "max_fragmentation", "no_leaks", "no_oom", "stats"]).required(true).multiple(true)))]
pub struct CheckArgs {
    /// The recording
    pub file: PathBuf,
    /// The most that may be reserved, as in 60GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub max_peak: Option<u64>,
    /// The largest share of the peak of reserved memory that may be free, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub max_fragmentation: Option<f64>,
    /// Nothing may grow from step to step
    #[arg(long)]
    pub no_leaks: bool,
    /// No request may fail
    #[arg(long)]
    pub no_oom: bool,
    /// What memory_stats(), memory_summary() or host_memory_stats() gave must agree with the snapshot
    #[arg(long, value_name = "FILE")]
    pub stats: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What is wrong with the command line in one sentence: the parser's first paragraph, without its tips and usage.
#[must_use]
pub fn one_sentence(message: &str) -> String {
    let first: Vec<&str> = message.lines().take_while(|l| !l.trim().is_empty()).map(str::trim).collect();
    let text = first.join(" ");
    format!("{} (vramscope --help tells what can be typed)", text.strip_prefix("error: ").unwrap_or(&text))
}

/// What is wrong with words that were taken for files: one that is no file, and looks more like a command than like a path.
#[must_use]
pub fn not_files(files: &[PathBuf]) -> Option<String> {
    // "-" is a session on standard input.
    let word = files.iter().filter(|f| !f.exists() && f.as_os_str() != "-").find_map(|f| {
        let text = f.to_str()?;
        (!text.contains(['/', '\\'])).then_some(text)
    })?;
    let commands: Vec<String> = Args::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let nearest = commands.iter().map(|c| (edits(word, c), c)).min().filter(|(n, c)| *n <= c.len().div_ceil(3));
    Some(match nearest {
        Some((_, command)) => format!("there is no command and no file called \"{word}\"; did you mean \"vramscope {command}\"?"),
        None => format!("\"{word}\" is neither a file nor a command; vramscope --help lists the commands"),
    })
}

/// How many letters have to be added, left out, changed or swapped with their neighbour to make one word of the other.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Reads a share from 0 to 1.
fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("\"{text}\" is not a share from 0 to 1")),
    }
}

/// Arguments of `summary`.
#[derive(Debug, ClapArgs)]
pub struct SummaryArgs {
    /// The recordings
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// A profiler trace or memory timeline of the same run, laid over the snapshot: its operators, modules and categories
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// What memory_stats(), memory_summary() or host_memory_stats() gave, to be held against the snapshot
    #[arg(long, value_name = "FILE")]
    pub stats: Vec<PathBuf>,
    /// Print one JSON object; with several files {"files": […], "errors": […]}
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
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
    /// Also write the run of the first --conf, with every event, as a PyTorch snapshot
    #[arg(long, value_name = "OUT", requires = "conf")]
    pub save: Option<PathBuf>,
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

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated tables
    Csv,
    /// Parquet tables, for DuckDB, Polars and Spark
    Parquet,
    /// Flame graphs for speedscope.app
    Speedscope,
    /// Counters and slices for ui.perfetto.dev
    Perfetto,
    /// A PyTorch snapshot, whole or trimmed
    Snapshot,
    /// A view as lines and text that scale; needs no display
    Svg,
    /// A view as pixels; needs a display, as screenshot does
    Png,
}

/// A table of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTableName {
    /// The allocator's trace
    Events,
    /// One row an allocation
    Lifetimes,
    /// The blocks at the end
    Blocks,
    /// Reserved, active, allocated and requested after every event
    Curves,
    /// The frames that the other tables' stack column points to
    Stacks,
}

/// Arguments of `export`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// The recording
    pub file: PathBuf,
    /// What to write
    #[arg(long, value_enum)]
    pub to: ExportFormat,
    /// The file to write; for tables a file ending in .csv or .parquet, or a folder for all of them
    pub out: PathBuf,
    /// The table to write; into one file lifetimes when absent, into a folder all of them
    #[arg(long, value_enum)]
    pub table: Option<ExportTableName>,
    /// Only this device, by the number the process knew it by
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
    /// Only events FROM up to before TO, with the state they leave (snapshots)
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    pub events: Option<(u32, u32)>,
    /// Cut file paths to what tells nothing of the machine (snapshots)
    #[arg(long)]
    pub redact: bool,
    /// The rank that a folder of tables is partitioned by; from the file's name when absent
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// The view or workspace to draw (svg, png); an unknown name lists them
    #[arg(long, default_value = "overview")]
    pub view: String,
    /// Width and height of the picture (svg, png)
    #[arg(long, value_name = "WxH", default_value = "1600x1000", value_parser = parse_size)]
    pub size: (u32, u32),
    /// Colours of the picture (svg, png)
    #[arg(long, value_enum, default_value = "light")]
    pub theme: Theme,
    /// Where the cursor stands in the picture (svg, png)
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
}

/// Arguments of `state`.
#[derive(Debug, ClapArgs)]
pub struct StateArgs {
    /// The recording
    pub file: PathBuf,
    /// Which instant
    #[command(flatten)]
    pub instant: InstantArgs,
    /// The device, by the number the process knew it by; the busiest when absent
    #[arg(long, value_name = "N")]
    pub device: Option<i32>,
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
    /// By what they are for: parameters, gradients, activations, …
    Category,
}

/// Exactly one instant.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub struct InstantArgs {
    /// After event N, counted from 0
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
    /// Where a curve first reached its peak
    #[arg(long, value_name = "CURVE", num_args = 0..=1, require_equals = true, default_missing_value = "requested")]
    pub peak: Option<Curve>,
    /// At an out-of-memory event, the first unless --oom=2, --oom=3, …
    #[arg(long, value_name = "K", num_args = 0..=1, require_equals = true, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub oom: Option<u32>,
    /// After the last event
    #[arg(long)]
    pub end: bool,
}

/// A curve, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Curve {
    /// Segments taken from the device
    Reserved,
    /// Blocks until their memory is reusable
    Active,
    /// Blocks until the program frees them
    Allocated,
    /// Bytes the program asked for
    Requested,
}

impl Curve {
    /// The quantity it names.
    #[must_use]
    pub fn quantity(self) -> Quantity {
        match self {
            Curve::Reserved => Quantity::Reserved,
            Curve::Active => Quantity::Active,
            Curve::Allocated => Quantity::Allocated,
            Curve::Requested => Quantity::Requested,
        }
    }
}

/// Arguments of `record`.
#[derive(Debug, ClapArgs)]
pub struct RecordArgs {
    /// The session to write, ending in .vramscope; - writes to standard output: ssh HOST vramscope record - | vramscope -
    pub out: PathBuf,
    /// Only this GPU, by the number nvidia-smi gives it; may be repeated
    #[arg(long, value_name = "N")]
    pub device: Vec<usize>,
    /// The process that matters: its memory is kept apart from the others'
    #[arg(long, value_name = "P")]
    pub pid: Option<u32>,
    /// Stop after so many seconds; Ctrl+C stops at any time and loses nothing
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Memory readings a second, 0.1 to 50
    #[arg(long, value_name = "HZ", default_value = "10", value_parser = parse_rate)]
    pub rate: f64,
    /// Replace the file when it exists
    #[arg(long)]
    pub force: bool,
    /// Only what the driver tells: do not talk to the helper in programs that have it
    #[arg(long)]
    pub no_helper: bool,
}

/// Arguments of `run`.
#[derive(Debug, ClapArgs)]
pub struct RunArgs {
    /// The Python that runs a script
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    pub python: String,
    /// A script with its arguments, -m MODULE, or any command that starts Python: torchrun --nproc-per-node 8 train.py
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Theme {
    /// Light text on dark
    Dark,
    /// Dark text on light
    Light,
}

/// Arguments of `screenshot`.
#[derive(Debug, ClapArgs)]
pub struct ScreenshotArgs {
    /// The recording, then the picture to write; the picture alone draws the welcome page
    #[arg(required = true, num_args = 1..=2, value_names = ["FILE", "OUT.png"])]
    pub paths: Vec<PathBuf>,
    /// A trace, a timeline or counters of the same run, added to the recording
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// A view or a workspace; an unknown name lists them
    #[arg(long, default_value = "overview")]
    pub view: String,
    /// Width and height in pixels
    #[arg(long, value_name = "WxH", default_value = "1600x1000", value_parser = parse_size)]
    pub size: (u32, u32),
    /// Colours
    #[arg(long, value_enum, default_value = "dark")]
    pub theme: Theme,
    /// Where the cursor stands
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
    /// Which device of the file, counted from 0
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// Write lines and text instead of pixels; needs no display
    #[arg(long = "svg")]
    pub is_svg: bool,
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
    /// Run on a simulated card of 24 GiB instead of a real one
    #[arg(long)]
    pub simulated: bool,
    /// A parameter of the scenario; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub param: Vec<String>,
    /// Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF
    #[arg(long, value_name = "CONF", value_parser = parse_conf)]
    pub conf: Option<String>,
    /// The most bytes that may be reserved, as in 60GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub limit: Option<u64>,
    /// The card, counted from 0
    #[arg(long, value_name = "N", default_value = "0")]
    pub device: i32,
    /// Rest so many milliseconds after each step, so that one can watch
    #[arg(long, value_name = "MS")]
    pub pace: Option<u64>,
    /// Run although others hold more than a twentieth of the card
    #[arg(long)]
    pub shared: bool,
    /// Take the last 512 MiB (or 2 %) of the card too
    #[arg(long)]
    pub fill: bool,
    /// Which device of the recording to replay; the busiest when absent
    #[arg(long, value_name = "N")]
    pub from_device: Option<i32>,
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

/// Lets a settings string through when PyTorch would read it.
fn parse_conf(text: &str) -> Result<String, String> {
    // The word that the answer itself uses.
    if ["default", "defaults", "(defaults)"].contains(&text.trim()) {
        return Ok(String::new());
    }
    let text = crate::allocator::whatif::settings_of(text);
    crate::model::AllocConf::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Reads `60GiB`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    crate::units::Bytes::parse(text).map(|b| b.0)
}

/// Reads a number of seconds above zero.
fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s.is_finite() && s > 0.0 && s <= 1e9 => Ok(s),
        _ => Err(format!("\"{text}\" is not a number of seconds above 0")),
    }
}

/// Reads a rate from 0.1 to 50 a second.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hz) if (0.1..=crate::live::Rates::HIGHEST_MEMORY).contains(&hz) => Ok(hz),
        _ => Err(format!("\"{text}\" is not a rate from 0.1 to 50 a second")),
    }
}

/// Reads `1000..2000`.
fn parse_range(text: &str) -> Result<(u32, u32), String> {
    text.split_once("..")
        .and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)))
        .filter(|(from, to)| from < to)
        .ok_or_else(|| "write the first event and the one after the last, as in 1000..2000".to_owned())
}

/// Reads `1600x1000`. A side is 64 to 16384 pixels: below nothing can be read, above no driver draws it.
fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let side = |s: &str| s.trim().parse::<u32>().ok().filter(|n| (64..=16384).contains(n));
    text.split_once(['x', 'X'])
        .and_then(|(w, h)| Some((side(w)?, side(h)?)))
        .ok_or_else(|| "write width x height in pixels, each from 64 to 16384, as in 1600x1000".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_dash_is_a_session_on_standard_input() {
        assert_eq!(not_files(&parse("vramscope -").unwrap().files), None);
    }

    #[test]
    fn files_alone_open_the_window() {
        let args = parse("vramscope a.pickle b.pickle").unwrap();
        assert_eq!(args.files.len(), 2);
        assert!(args.command.is_none());
    }

    #[test]
    fn an_instant_is_named_exactly_once() {
        assert!(parse("vramscope state f.pickle").is_err());
        assert!(parse("vramscope state f.pickle --peak --oom").is_err());
        for (line, want) in [("--peak", Curve::Requested), ("--peak=reserved", Curve::Reserved)] {
            let Some(Command::State(s)) = parse(&format!("vramscope state {line} f.pickle")).unwrap().command else { panic!() };
            assert_eq!(s.instant.peak, Some(want));
        }
        assert!(parse("vramscope state --oom=0 f.pickle").is_err());
    }

    #[test]
    fn settings_are_checked_by_pytorchs_rules() {
        let args =
            Args::try_parse_from(["vramscope", "whatif", "f.pickle", "--conf", "", "max_split_size_mb:64", "--limit", "2GiB"])
                .unwrap();
        let Some(Command::Whatif(w)) = args.command else { panic!() };
        assert_eq!((w.conf.as_slice(), w.limit), (["".to_owned(), "max_split_size_mb:64".to_owned()].as_slice(), Some(2 << 30)));
        let wrong = Args::try_parse_from(["vramscope", "whatif", "f.pickle", "--conf", "max_split_size_mb:1"]).unwrap_err();
        assert!(wrong.to_string().contains("character 19"), "{wrong}");
    }

    #[test]
    fn sizes_are_read_and_checked() {
        assert_eq!(parse_size("1600x1000"), Ok((1600, 1000)));
        for wrong in ["1600", "0x10", "axb", "1600x100000", ""] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_picture_of_the_welcome_page_needs_no_recording() {
        let Some(Command::Screenshot(s)) = parse("vramscope screenshot --view welcome out.png").unwrap().command else {
            panic!()
        };
        assert_eq!(s.paths, [PathBuf::from("out.png")]);
        assert!(parse("vramscope screenshot a b c").is_err());
    }
}
