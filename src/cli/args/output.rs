//! Arguments of commands that write files for other tools, and pictures: `export`, `screenshot`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{parse_range, parse_size};

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated tables
    Csv,
    /// Parquet tables, for DuckDB, Polars and Spark
    Parquet,
    /// Tables of one JSON object a line
    Jsonl,
    /// Flame graphs for speedscope.app
    Speedscope,
    /// Counters and slices for ui.perfetto.dev
    Perfetto,
    /// A PyTorch snapshot, whole or trimmed
    Snapshot,
    /// A view as lines and text that scale
    Svg,
    /// A view as pixels
    Png,
}

impl ExportFormat {
    /// The ending of a file of this format, where the format is of tables.
    pub fn of_tables(self) -> Option<&'static str> {
        match self {
            ExportFormat::Csv => Some("csv"),
            ExportFormat::Parquet => Some("parquet"),
            ExportFormat::Jsonl => Some("jsonl"),
            _ => None,
        }
    }
}

/// A table of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportTableName {
    /// The allocator's trace
    Events,
    /// One row for each allocation
    Lifetimes,
    /// The blocks at the end
    Blocks,
    /// Reserved, active, allocated and requested after every event
    Curves,
    /// Samples of the whole card: live sessions, traces
    Samples,
    /// Live bytes by category over time: memory timelines
    Categories,
    /// The frames that the other tables' stack column points to
    Stacks,
}

/// Arguments of `export`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// The recording; for tables a folder of recordings too, one for each rank
    pub file: PathBuf,
    /// What to write
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub to: ExportFormat,
    /// The file to write; for tables a file ending in .csv, .parquet or .jsonl, or a folder for all of them
    pub out: PathBuf,
    /// The table to write; into one file lifetimes when absent, into a folder all of them
    #[arg(long, value_enum)]
    pub table: Option<ExportTableName>,
    /// Overwrite files that exist
    #[arg(long)]
    pub force: bool,
    /// Only this device, by its number in the process (cuda:N)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Only the events from FROM up to, but not including, TO, with the state after them (snapshots)
    #[arg(long, value_name = "FROM..TO", value_parser = parse_range)]
    pub events: Option<(u32, u32)>,
    /// Shorten every file path to the part that does not identify the machine or its user
    #[arg(long)]
    pub redact: bool,
    /// The rank that a folder of tables is partitioned by; from the trace or the file's name when absent
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// The job that a folder of tables is partitioned by; from the file's name when absent
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// The view or workspace to draw (svg, png); an unknown name lists them
    #[arg(long)]
    pub view: Option<String>,
    /// Width and height of the picture (svg, png), 1600x1000 when absent
    #[arg(long, value_name = "WxH", value_parser = parse_size)]
    pub size: Option<(u32, u32)>,
    /// Colours of the picture (svg, png), light when absent
    #[arg(long, value_enum)]
    pub theme: Option<Theme>,
    /// The event to put the cursor on (svg, png)
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
}

impl ExportArgs {
    /// True when OUT is one file of the table format, and not a folder for all tables.
    pub fn is_table_file(&self) -> bool {
        let ending = self.to.of_tables();
        self.out.extension().is_some_and(|e| ending.is_some_and(|own| e.eq_ignore_ascii_case(own))) && !self.out.is_dir()
    }

    /// One sentence about an option that has no effect for this format, because the user would not notice.
    pub fn option_without_effect(&self) -> Option<String> {
        let is_table = self.to.of_tables().is_some();
        let is_picture = matches!(self.to, ExportFormat::Svg | ExportFormat::Png);
        let is_folder = is_table && !self.is_table_file();
        let given = [
            (
                "--events",
                self.events.is_some(),
                self.to == ExportFormat::Snapshot,
                "only --to snapshot is cut to a range of events",
            ),
            ("--table", self.table.is_some(), is_table, "only --to csv, parquet and jsonl write tables"),
            ("--rank", self.rank.is_some(), is_folder, "only a folder of tables is partitioned by rank"),
            ("--job", self.job.is_some(), is_folder, "only a folder of tables is partitioned by job"),
            ("--view", self.view.is_some(), is_picture, "only --to svg and --to png draw a view"),
            ("--size", self.size.is_some(), is_picture, "only --to svg and --to png have a width and a height"),
            ("--theme", self.theme.is_some(), is_picture, "only --to svg and --to png have colours"),
            ("--event", self.event.is_some(), is_picture, "only --to svg and --to png have a cursor"),
        ];
        let (name, _, _, why) = given.into_iter().find(|(_, is_given, has_effect, _)| *is_given && !has_effect)?;
        Some(format!("{name} has no effect here: {why}; leave it out"))
    }
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
    /// A trace, a timeline, counters or a session of the same run to add to the recording
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
    /// The event to put the cursor on
    #[arg(long, value_name = "N")]
    pub event: Option<u32>,
    /// Only this device, by its number in the process (cuda:N)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Write lines and text instead of pixels
    #[arg(long = "svg")]
    pub is_svg: bool,
    /// Overwrite a picture that exists
    #[arg(long)]
    pub force: bool,
    /// Shorten every file path to the part that does not identify the machine or its user
    #[arg(long)]
    pub redact: bool,
}
