//! The definition of the command line.

mod check;
mod doctor;
mod failures;
mod mistakes;
mod output;
mod plan;
mod report;
mod reports;
mod runs;
pub(super) mod values;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::allocations::AllocationsArgs;

pub use check::{CheckArgs, CheckFormat, RoleLimit, Tolerance};
pub use doctor::{CompletionsArgs, DoctorArgs, ManArgs};
pub use failures::{ExplainArgs, OomArgs, WhatifArgs};
pub use mistakes::{is_no_command, misused, not_files, one_sentence, read, refused};
pub use output::{ExportArgs, ExportFormat, ExportTableName, ScreenshotArgs, Theme};
pub use plan::{Library, PlanArgs};
pub use report::{McpArgs, ReportArgs, ReportFormat};
pub use reports::{
    DeviceFileArgs, DiffArgs, FindingsArgs, FlameArgs, InstantArgs, LeaksArgs, LiveBy, RanksArgs, StateArgs, SummaryArgs,
};
pub use runs::{CatchStacks, ProbeArgs, RecordArgs, RunArgs, SnapArgs};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "vramscope",
    bin_name = "vramscope",
    version,
    about = "Shows where a PyTorch program's GPU memory went and why it ran out.",
    long_about = "Shows where a PyTorch program's GPU memory went and why it ran out.\n\n\
        vramscope FILE… opens the window on memory snapshots, profiler traces, memory timelines and JAX memory profiles. The \
        subcommands below print the same answers as text, or as one JSON object with --json; they need no display and no GPU.",
    after_help = "Record a snapshot in your program:\n  \
        torch.cuda.memory._record_memory_history(context=\"alloc\")\n  \
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
    /// Which size fits, and what would make it fit, from short recordings at known sizes
    Plan(PlanArgs),
    /// What the text of an out-of-memory error says, and what to do
    Explain(ExplainArgs),
    /// What is wrong with a recording, most serious first, with remedies
    Findings(FindingsArgs),
    /// Single allocations, filtered by a query, as a sorted table
    Allocations(AllocationsArgs),
    /// What survives its training step and so may leak, by call stack
    Leaks(LeaksArgs),
    /// Bytes by call stack, as collapsed stacks for flame graphs
    Flame(FlameArgs),
    /// What is live in one recording or instant and not in another
    Diff(DiffArgs),
    /// The ranks of one job side by side: peaks, outliers, the first to fail
    Ranks(RanksArgs),
    /// Limits for continuous integration; exit code 1 when one is exceeded
    Check(CheckArgs),
    /// Tables, flame graphs, traces or a snapshot for other tools
    Export(ExportArgs),
    /// One page with all findings, to send to others: HTML that works offline, or Markdown for an issue
    Report(ReportArgs),
    /// Answer an agent's questions about the recordings of some folders (Model Context Protocol, on standard input and output)
    Mcp(McpArgs),
    /// Print a guide for agents: which command answers which question
    Guide,
    /// Watch GPUs and running programs, without a window, into a session file or a pipe
    Record(RecordArgs),
    /// Start a Python program so that vramscope can see its memory from inside
    Run(RunArgs),
    /// Write a snapshot of a running program that was started with vramscope run, and of the programs it started
    Snap(SnapArgs),
    /// Print the Python helper, one file, to put beside a program
    Agent,
    /// Make a classic memory problem happen, on this card or on simulated memory
    Probe(ProbeArgs),
    /// Draw one view of the window as a picture, PNG or SVG
    Screenshot(ScreenshotArgs),
    /// What a recording lacks and how to record it next time; without a file, whether this machine is ready
    Doctor(DoctorArgs),
    /// Print the completions of a shell: bash, zsh, fish, elvish or powershell
    #[command(after_help = "The manual pages of all commands: vramscope man FOLDER writes them.")]
    Completions(CompletionsArgs),
    /// Write the manual pages into a folder
    Man(ManArgs),
}

impl Command {
    /// What has to be drawn by the window's code, or the command itself when nothing has. `cli::run` can run that.
    pub fn into_picture(self) -> Result<ScreenshotArgs, Box<Command>> {
        match self {
            Command::Screenshot(shot) => Ok(shot),
            Command::Export(export) if matches!(export.to, ExportFormat::Svg | ExportFormat::Png) => Ok(ScreenshotArgs {
                paths: vec![export.file, export.out],
                with: Vec::new(),
                view: export.view.unwrap_or_else(|| "overview".to_owned()),
                size: export.size.unwrap_or((1600, 1000)),
                theme: export.theme.unwrap_or(Theme::Light),
                event: export.event,
                device: export.device,
                is_svg: export.to == ExportFormat::Svg,
                force: export.force,
                redact: export.redact,
            }),
            other => Err(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use vramscope_core::tables::Quantity;

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
    fn an_instant_is_named_at_most_once() {
        assert!(parse("vramscope state f.pickle").is_ok());
        assert!(parse("vramscope state f.pickle --peak --oom").is_err());
        for (line, want) in [("--peak", Quantity::Active), ("--peak=reserved", Quantity::Reserved)] {
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
    fn a_file_behind_settings_is_the_recording() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for words in [
            vec!["vramscope", "whatif", "--conf", "expandable_segments:True", file],
            vec!["vramscope", "whatif", "--conf", "expandable_segments:True", file, "--limit", "2GiB"],
            vec!["vramscope", "whatif", file, "--conf", "expandable_segments:True"],
        ] {
            let Some(Command::Whatif(w)) = read(words.into_iter().map(Into::into)).unwrap().command else { panic!() };
            assert_eq!(
                (w.file.as_path(), w.conf.as_slice()),
                (std::path::Path::new(file), ["expandable_segments:True".to_owned()].as_slice())
            );
        }
        let gone: Vec<std::ffi::OsString> =
            ["vramscope", "whatif", "--conf", "expandable_segments:True", "gone.pickle"].map(Into::into).to_vec();
        let error = read(gone.clone()).unwrap_err();
        let sentence = refused(&error, &gone);
        assert!(sentence.contains("gone.pickle") && sentence.contains("no file"), "{sentence}");
    }

    #[test]
    fn a_word_that_is_no_command_is_named_before_its_options() {
        let words: Vec<std::ffi::OsString> = ["vramscope", "allocation", "f.pickle", "--limit", "3"].map(Into::into).to_vec();
        let error = read(words.clone()).unwrap_err();
        let sentence = refused(&error, &words);
        assert!(sentence.contains("allocations"), "{sentence}");
        let words: Vec<std::ffi::OsString> = ["vramscope", "allocations", "f.pickle", "--limit", "2GB"].map(Into::into).to_vec();
        let sentence = refused(&read(words.clone()).unwrap_err(), &words);
        assert!(sentence.contains("rows") && !sentence.contains('\n'), "{sentence}");
    }

    #[test]
    fn queries_and_numbers_that_are_none_are_answered_in_our_words() {
        let say = |words: &[&str]| {
            let words: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
            refused(&read(words.clone()).unwrap_err(), &words)
        };
        let query = say(&["vramscope", "allocations", "f.pickle", "size>1MiB"]);
        assert!(query.contains("--where \"size>1MiB\""), "{query}");
        let number = say(&["vramscope", "leaks", "f.pickle", "--device", "x"]);
        assert!(number.contains("whole number") && !number.contains("digit"), "{number}");
    }

    #[test]
    fn sizes_are_read_and_checked() {
        assert_eq!(values::parse_size("1600x1000"), Ok((1600, 1000)));
        for wrong in ["1600", "0x10", "axb", "1600x100000", ""] {
            assert!(values::parse_size(wrong).is_err(), "{wrong}");
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
