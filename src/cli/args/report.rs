//! Arguments of `report`, `mcp` and `guide`.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{parse_cap, parse_size_of_run};
use crate::cli::rules::RulesArgs;
use vramscope_core::plan::Size;

/// What `report` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// One page that works offline, with pictures to hover over and zoom
    Html,
    /// Markdown without pictures, at most 60,000 characters: for an issue or a pull request
    Md,
}

/// Arguments of `report`.
#[derive(Debug, ClapArgs)]
pub struct ReportArgs {
    /// The recording, or a log that holds an out-of-memory error
    pub file: PathBuf,
    /// The file to write; "-" is standard output. With --format md it may be left out: then Markdown goes there
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// What to write; when absent, the ending of the name tells: .md or .html
    #[arg(long, value_enum)]
    pub format: Option<ReportFormat>,
    /// Only this device, by its number in the process (cuda:N)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub device: Option<i32>,
    /// Leave out what identifies the machine and its users: folders, the recording's name, host, users, containers, commands and the
    /// environment. Functions, the names of source files and line numbers stay
    #[arg(long)]
    pub redact: bool,
    /// The size of this run, as in batch=8; the report then says which size fits
    #[arg(long, value_name = "NAME=N", value_parser = parse_size_of_run)]
    pub at: Option<Size>,
    /// The most bytes that PyTorch may reserve, as in 24GiB, for the sizes that fit; the limit of the recording when absent
    #[arg(long, value_name = "BYTES", value_parser = parse_cap, allow_hyphen_values = true)]
    pub cap: Option<u64>,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub force: bool,
}

impl ReportArgs {
    /// The output path. Fails when none is given and HTML would fill the terminal.
    pub fn target(&self) -> Result<&Path, String> {
        match (&self.out, self.format) {
            (Some(out), _) => Ok(out),
            (None, Some(ReportFormat::Md)) => Ok(Path::new("-")),
            (None, _) => {
                Err("name the file to write, as in -o report.html; --format md alone writes to standard output".to_owned())
            }
        }
    }

    /// The requested format, or the one that the file's ending means. Fails when the ending is of another kind of file.
    pub fn format(&self) -> Result<ReportFormat, String> {
        let out = self.target()?;
        let ending = out.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match (self.format, ending.as_str()) {
            (Some(format), _) => Ok(format),
            (None, "md" | "markdown") => Ok(ReportFormat::Md),
            (None, "" | "html" | "htm") => Ok(ReportFormat::Html),
            (None, _) => Err(format!(
                "{}: a report is HTML or Markdown: name a file that ends in .html or .md, or say which with --format",
                out.display()
            )),
        }
    }
}

/// Arguments of `mcp`.
#[derive(Debug, ClapArgs)]
pub struct McpArgs {
    /// Folders whose files may be read; nothing outside them is read
    #[arg(required = true, value_name = "DIR")]
    pub folders: Vec<PathBuf>,
    /// The most characters in one answer; "pointer" and "offset" ask for the rest
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(2_000..=400_000))]
    pub limit: u32,
}
