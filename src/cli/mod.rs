//! The commands: text for people, JSON for scripts.
//!
//! A subcommand is a file here, a variant of [`args::Command`] and a line in [`run`]. It writes its answer to the given writer.
//! When it fails it returns one sentence, which `main` prints on standard error before it exits with 1, or with 2 when the
//! command line does not fit. Both outputs go through [`terminal`], so that nothing in a file can control a terminal.

pub mod allocations;
pub mod args;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod findings;
pub mod flame;
pub mod guide;
pub mod helper;
mod kept;
pub mod leaks;
mod machine;
pub mod manual;
mod markdown;
pub mod mcp;
pub mod oom;
mod opening;
pub mod plan;
mod printing;
pub mod probe;
pub mod ranks;
pub mod record;
pub mod report;
pub mod rules;
pub mod state;
pub mod summary;
mod supervise;
mod table;
pub mod terminal;
mod watched;
pub mod whatif;

use std::io::{self, Write};

use opening::{Opened, place_of, quoted, without_blocks};
pub use opening::{choose_device, open, open_any, open_blocks, open_stats, open_with};
pub use printing::{About, print, print_json, print_of};
use printing::{DOUBTFUL, cut_note, not_written};
pub use table::Table;

use args::Command;
use vramscope_core::diagnose::vendor::{HIP, Words};
use vramscope_core::formats::export::WriteError;
use vramscope_core::model::Recording;

/// The error of a build without a window when a window is needed.
pub const NO_WINDOW: &str =
    "this build has no window (it was built without the feature gui); the text commands work, see vramscope --help";

/// Names the AMD devices, because PyTorch calls them `cuda` as well. Empty when there are none.
fn amd_note(recording: &Recording) -> String {
    let amd = recording.devices.iter().filter(|device| *Words::of(device) == HIP);
    amd.map(|device| format!("{} is an AMD GPU.", device.id)).collect::<Vec<_>>().join(" ")
}

/// Why a command failed, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The file or the machine does not allow it. Exit code 1.
    NotPossible(String),
    /// The command line does not fit the file. Exit code 2.
    Usage(String),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Failure::NotPossible(error.to_string())
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure::NotPossible(sentence)
    }
}

impl Failure {
    /// The exit code and the sentence.
    pub fn into_parts(self) -> (u8, String) {
        match self {
            Failure::NotPossible(sentence) => (1, sentence),
            Failure::Usage(sentence) => (2, sentence),
        }
    }
}

/// Runs a subcommand on standard output. A reader that closes the output (`| head`) is no error.
pub fn run(command: Command) -> Result<(), Failure> {
    if let Command::Probe(args) = &command
        && args.speaks_to_a_program()
    {
        // A probe's process sends its parent binary messages, not text.
        return probe::run(args, &mut terminal::wire());
    }
    if let Command::Mcp(args) = &command {
        // Two threads write to standard output, one message at a time.
        return mcp::run(args);
    }
    let mut out = Output { inner: terminal::stdout(), is_closed: false };
    let result = run_on(command, &mut out);
    let flushed = out.flush();
    if out.is_closed {
        return Ok(());
    }
    result?;
    flushed.map_err(|e| Failure::NotPossible(not_written(&e)))
}

fn run_on(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    let answered = match command {
        Command::Summary(a) => return summary::run(&a, out),
        Command::State(a) => state::run(&a, out),
        Command::Oom(a) => print(out, &oom::run(&a)?),
        Command::Whatif(a) => whatif::run(&a, out),
        Command::Plan(a) => return plan::run(&a, out),
        Command::Explain(a) => explain::run(a.file.as_deref(), a.json, out),
        Command::Findings(a) => print(out, &findings::run(&a)?),
        Command::Allocations(a) => allocations::run(&a, out),
        Command::Leaks(a) => return leaks::run(&a, out),
        Command::Flame(a) => flame::run(&a, out),
        Command::Diff(a) => diff::run(&a, out),
        Command::Ranks(a) => ranks::run(&a, out),
        Command::Check(a) => check::run(&a, out),
        Command::Export(a) => return export::run(&a, out),
        Command::Report(a) => return report::run(&a, out),
        Command::Mcp(a) => return mcp::run(&a),
        Command::Guide => guide::run(out),
        Command::Run(a) => return helper::run(&a),
        Command::Snap(a) => helper::snap(&a, out),
        Command::Agent => helper::print_agent(out),
        Command::Record(a) => return record::run(&a, out),
        Command::Probe(a) => return probe::run(&a, out),
        Command::Doctor(a) => doctor::run(&a, out),
        Command::Completions(a) => manual::completions(a.shell, out),
        Command::Man(a) => manual::pages(&a.dir),
        Command::Screenshot(_) => Err(NO_WINDOW.to_owned()),
    };
    answered.map_err(Failure::from)
}

/// A writer that remembers whether its reader closed it.
struct Output<W: Write> {
    inner: W,
    is_closed: bool,
}

impl<W: Write> Output<W> {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.is_closed |= matches!(&result, Err(e) if e.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.watch(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.watch(result)
    }
}
