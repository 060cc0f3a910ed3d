//! Answers as text and JSON, with what puts a recording's figures in doubt before them.

use std::io::Write;

use vramscope_core::diagnose::source_limits::RELATIVE;
use vramscope_core::model::Recording;
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::capital;

/// Writes text and ends its last line.
pub fn print(out: &mut dyn Write, text: &str) -> Result<(), String> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}").map_err(|e| not_written(&e))
}

pub(super) fn not_written(e: &std::io::Error) -> String {
    format!("the answer cannot be written: {}", vramscope_core::formats::why_not_written(e))
}

/// Writes text as [`print()`] does, with its caveats.
pub fn print_of(out: &mut dyn Write, about: &[About<'_>], text: &str) -> Result<(), String> {
    print(out, &with_caveats(about, text))
}

/// Said before the figures of a recording whose trace does not lead to its end.
pub(super) const DOUBTFUL: &str = "the trace contradicts the file's own end, so figures are doubtful";

/// A recording that an answer is about.
#[derive(Clone, Copy)]
pub struct About<'a> {
    pub(super) recording: &'a Recording,
    /// What the tables found against the file's own end.
    pub(super) contradiction: Option<&'a str>,
}

impl<'a> About<'a> {
    /// With what the tables of its device tell of it.
    pub fn by(recording: &'a Recording, tables: &'a DeviceTables) -> Self {
        About { recording, contradiction: tables.disagreement.as_deref() }
    }
}

impl<'a> From<&'a Recording> for About<'a> {
    fn from(recording: &'a Recording) -> Self {
        About { recording, contradiction: None }
    }
}

/// The text, with a caveat in its first line, which is the answer: that the file is cut short, has values that make no sense, or
/// contradicts itself. The lines after it have the details.
pub(super) fn with_caveats(about: &[About<'_>], text: &str) -> String {
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
            1 => format!("{}: ", capital(&caveat)),
            _ => format!("{}: {caveat}: ", recording.source.name),
        };
    }
    let of = |a: &About<'_>| {
        let is_relative = a.recording.devices.iter().any(|d| a.recording.is_relative(d));
        let contradiction = a.contradiction.map(|c| format!("{}: {c}.", a.recording.source.name));
        cut_note(a.recording)
            .into_iter()
            .chain(contradiction)
            .chain(is_relative.then(|| format!("{}: {RELATIVE}", a.recording.source.name)))
    };
    let mut notes: Vec<String> = about.iter().flat_map(of).map(|note| format!("{note}\n")).collect();
    notes.dedup();
    let notes = notes.concat();
    format!("{first}{answer}\n{notes}{rest}")
}

/// One sentence when the file breaks off.
pub(super) fn cut_note(recording: &Recording) -> Option<String> {
    let cut = recording.report.truncated()?;
    let text = cut.text.trim_end_matches('.');
    let again = if text.contains("copy the file again") { "" } else { "; copy the file again" };
    Some(format!("{} is not whole: {text}. This holds for what could be read{again}.", recording.source.name))
}

/// Writes a value as indented JSON and a line end.
pub fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("the answer cannot be written: {e}");
    serde_json::to_writer_pretty(&mut *out, value).map_err(|e| failed(&e))?;
    writeln!(out).map_err(|e| failed(&e))
}
