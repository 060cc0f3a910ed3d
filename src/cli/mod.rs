//! The same core without a window: text for people, JSON for scripts.
//!
//! A subcommand is a file here, a variant of [`args::Command`] and a line in [`run`]. It answers on the writer it is given and
//! fails with one sentence, which `main` prints on standard error before it exits with 1; with 2 where what was typed does not fit.
//! Both go through [`terminal`], so that nothing in a file can steer a terminal.

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

pub use opening::{choose_device, open, open_any, open_blocks, open_stats, open_with};
use opening::{place_of, quoted, without_blocks};
pub use printing::{About, print, print_json, print_of};
use printing::{DOUBTFUL, cut_note};
pub use table::Table;

use args::Command;
use vramscope_core::formats::export::WriteError;

/// What a build without a window answers when it is asked for one.
pub const NO_WINDOW: &str =
    "this build has no window (it was built without the feature gui); the text commands work, see vramscope --help";

/// Why a command gave no answer, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The file or the machine does not allow it.
    NotPossible(String),
    /// What was typed does not fit the file that it is about.
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
    #[must_use]
    pub fn into_parts(self) -> (u8, String) {
        match self {
            Failure::NotPossible(sentence) => (1, sentence),
            Failure::Usage(sentence) => (2, sentence),
        }
    }
}

/// Runs a subcommand on standard output. When the reader of the output goes away (`| head`), that is the end and no error.
///
/// # Errors
/// [`Failure`].
pub fn run(command: Command) -> Result<(), Failure> {
    if let Command::Probe(args) = &command
        && args.speaks_to_a_program()
    {
        // What a probe's process tells its parent is no text.
        return probe::run(args, &mut terminal::wire());
    }
    if let Command::Mcp(args) = &command {
        // Two threads of it write, each a message at a time.
        return mcp::run(args);
    }
    let mut out = Output { inner: terminal::stdout(), is_closed: false };
    let result = run_on(command, &mut out);
    let flushed = out.flush();
    if out.is_closed {
        return Ok(());
    }
    result?;
    flushed.map_err(|e| Failure::NotPossible(format!("the answer cannot be written: {e}")))
}

/// One line a subcommand.
fn run_on(command: Command, out: &mut dyn Write) -> Result<(), Failure> {
    let answered = match command {
        Command::Summary(a) => summary::run(&a, out),
        Command::State(a) => state::run(&a, out),
        Command::Oom(a) => print(out, &oom::run(&a)?),
        Command::Whatif(a) => whatif::run(&a, out),
        Command::Plan(a) => plan::run(&a, out),
        Command::Explain(a) => explain::run(a.file.as_deref(), a.json, out),
        Command::Findings(a) => print(out, &findings::run(&a)?),
        Command::Allocations(a) => allocations::run(&a, out),
        Command::Leaks(a) => leaks::run(&a, out),
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

<<<<<<< HEAD
=======
/// Opens a recording that has events or blocks; `-` is one on standard input.
///
/// # Errors
/// One sentence that names the file as it was typed: two files of one name in two folders are common. Also where the file holds
/// PyTorch's counters and nothing else, of which only `summary` tells.
pub fn open(path: &Path) -> Result<Recording, String> {
    let recording = open_any(path)?;
    // Beside what goes to another program too, as JSON.
    if let Some(changed) = recording.report.warnings.iter().find(|w| w.kind == WarningKind::Changed) {
        terminal::say(&format!("{}: {}", path.display(), changed.text));
    }
    if recording.has_only_counters() {
        return Err(format!(
            "{}: these are PyTorch's counters, totals without events or blocks, which this command needs; vramscope summary prints them, and \
             summary or check with --stats holds them against a snapshot",
            path.display()
        ));
    }
    Ok(recording)
}

/// Opens a recording of which single allocations are known, as events or as the blocks of an instant.
///
/// # Errors
/// One sentence that names the file as it was typed; where it has something else, what that is and which command reads it.
pub fn open_blocks(path: &Path) -> Result<Recording, String> {
    let recording = open(path)?;
    if recording.has_blocks() { Ok(recording) } else { Err(without_blocks(path, &recording)) }
}

/// What a file without events and blocks has instead.
fn without_blocks(path: &Path, recording: &Recording) -> String {
    let path = path.display();
    if recording.devices.iter().any(|d| !d.bands.is_empty()) {
        return format!(
            "{path}: these are sums by category over time, without events or blocks, which this command needs; vramscope summary prints \
             them, and the raw form of a memory timeline (a name that ends in .raw.json.gz) has events"
        );
    }
    if recording.devices.iter().any(|d| !d.samples.is_empty()) {
        return format!(
            "{path}: these are samples of what devices used over time, without events or blocks, which this command needs; vramscope summary \
             and vramscope findings read them"
        );
    }
    let why = recording.report.warnings.iter().find(|w| w.kind == WarningKind::Skipped);
    let why = why.map_or_else(String::new, |w| format!("; {}", w.text.trim_end_matches('.')));
    format!("{path}: it has no events and no blocks{why}")
}

/// A file's name as a shell takes it.
fn quoted(file: &str) -> String {
    if file.contains(char::is_whitespace) { format!("'{file}'") } else { file.to_owned() }
}

/// An event as a place in text; one of a device that has none, or before the first, has no number.
fn place_of(device: &DeviceRecording, event: u32) -> String {
    match event {
        _ if device.events.is_empty() => "as it was dumped".to_owned(),
        NO_EVENT => "before any event".to_owned(),
        event => format!("event {}", count(u64::from(event))),
    }
}

/// Opens whatever can be opened, also counters alone.
///
/// # Errors
/// One sentence that names the file as it was typed.
pub fn open_any(path: &Path) -> Result<Recording, String> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(|e| format!("standard input cannot be read: {}", formats::why(&e)))?;
        return formats::read(&bytes, "standard input", &Progress::new()).map_err(|e| e.to_string());
    }
    if !formats::chosen(path).0.exists() {
        return Err(format!("{}: there is no such file", path.display()));
    }
    if path.is_dir() {
        return Err(args::is_a_folder(path));
    }
    match mcp::shelf() {
        Some(shelf) => shelf.open(path, || read_file(path)),
        None => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Recording, String> {
    formats::open(path, &Progress::new()).map_err(|e| {
        let sentence = e.to_string();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match sentence.strip_prefix(&*name) {
            Some(rest) => format!("{}{rest}", path.display()),
            None => sentence,
        }
    })
}

/// Reads PyTorch's counters from a file of `memory_stats()`, `memory_summary()` or `host_memory_stats()`.
///
/// # Errors
/// One sentence when the file cannot be read or holds no counters.
pub fn open_stats(path: &Path) -> Result<MemoryStats, String> {
    formats::stats::open(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Opens a recording and adds other artefacts of the same run to it: traces and timelines, in that order.
///
/// # Errors
/// One sentence: a file cannot be read, or is not of the same run.
pub fn open_with(path: &Path, with: &[PathBuf]) -> Result<(Recording, Vec<Join>), String> {
    let mut recording = if with.is_empty() { open_any(path)? } else { open(path)? };
    let mut joins = Vec::new();
    for extra in with {
        let extra = open(extra)?;
        let (joined, found) = join(recording, &extra, &Progress::new()).map_err(|e| e.to_string())?;
        recording = joined;
        joins.push(found);
    }
    Ok((recording, joins))
}

/// The index of the device a person named, or of the busiest when none was named.
///
/// # Errors
/// One sentence that lists the devices of the recording.
pub fn choose_device(recording: &Recording, wanted: Option<i32>) -> Result<usize, String> {
    let name = &recording.source.name;
    let Some(wanted) = wanted else {
        return recording.busiest_device().ok_or_else(|| format!("{name}: no device of this recording has events or segments"));
    };
    recording.device_numbered(wanted).map_err(|e| e.to_string())
}

/// Writes text and ends its last line.
///
/// # Errors
/// One sentence when the output cannot be written.
pub fn print(out: &mut dyn Write, text: &str) -> Result<(), String> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}").map_err(|e| format!("the answer cannot be written: {e}"))
}

/// Writes text as [`print()`] does, [with its caveats](with_caveats).
///
/// # Errors
/// One sentence when the output cannot be written.
pub fn print_of(out: &mut dyn Write, about: &[About<'_>], text: &str) -> Result<(), String> {
    print(out, &with_caveats(about, text))
}

/// Said before the figures of a recording whose trace does not lead to its end.
const DOUBTFUL: &str = "the trace contradicts the file's own end, so figures are doubtful";

/// A recording that an answer is about.
#[derive(Clone, Copy)]
pub struct About<'a> {
    recording: &'a Recording,
    /// What the tables found against the file's own end.
    contradiction: Option<&'a str>,
}

impl<'a> About<'a> {
    /// With what the tables of its device tell of it.
    #[must_use]
    pub fn by(recording: &'a Recording, tables: &'a DeviceTables) -> Self {
        About { recording, contradiction: tables.disagreement.as_deref() }
    }
}

impl<'a> From<&'a Recording> for About<'a> {
    fn from(recording: &'a Recording) -> Self {
        About { recording, contradiction: None }
    }
}

/// The text with what must be said before any figure in its first line, which is the answer: that a file is cut short, holds values
/// that make no sense, or contradicts itself. Where it breaks off, and what contradicts what, is told in the lines after it.
fn with_caveats(about: &[About<'_>], text: &str) -> String {
    let (answer, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut first = String::new();
    for About { recording, contradiction } in about {
        let caveats: Vec<String> =
            recording.report.caveat().into_iter().chain(contradiction.map(|_| DOUBTFUL.to_owned())).collect();
        if caveats.is_empty() {
            continue;
        }
        let caveat = caveats.join("; ");
        // Of several recordings the one that is meant is named.
        first += &match about.len() {
            1 => {
                format!("{}: ", vramscope_core::units::capital(&caveat))
            }
            _ => format!("{}: {caveat}: ", recording.source.name),
        };
    }
    let of = |a: &About<'_>| {
        cut_note(a.recording).into_iter().chain(a.contradiction.map(|c| format!("{}: {c}.", a.recording.source.name)))
    };
    let notes: String = about.iter().flat_map(of).map(|note| format!("{note}\n")).collect();
    format!("{first}{answer}\n{notes}{rest}")
}

/// One sentence when the file breaks off.
fn cut_note(recording: &Recording) -> Option<String> {
    let cut = recording.report.truncated()?;
    let text = cut.text.trim_end_matches('.');
    let again = if text.contains("copy the file again") { "" } else { "; copy the file again" };
    Some(format!("{} is not whole: {text}. This holds for what could be read{again}.", recording.source.name))
}

/// Writes a value as indented JSON and a line end.
///
/// # Errors
/// One sentence when the output cannot be written.
pub fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("the answer cannot be written: {e}");
    serde_json::to_writer_pretty(&mut *out, value).map_err(|e| failed(&e))?;
    writeln!(out).map_err(|e| failed(&e))
}

>>>>>>> reach
/// A writer that remembers whether its reader went away.
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
