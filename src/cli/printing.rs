//! Writes answers as text and JSON. Doubts about the figures of a recording come first.

use std::io::Write;

use vramscope_core::diagnose::source_limits::RELATIVE;
use vramscope_core::model::Recording;
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::capital;

/// Writes text with a line end.
pub fn print(out: &mut dyn Write, text: &str) -> Result<(), String> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}").map_err(|e| not_written(&e))
}

pub(super) fn not_written(e: &std::io::Error) -> String {
    format!("the answer cannot be written: {}", vramscope_core::formats::why_not_written(e))
}

/// Writes text like [`print()`], with caveats about the recordings.
pub fn print_of(out: &mut dyn Write, about: &[About<'_>], text: &str) -> Result<(), String> {
    print(out, &with_caveats(about, text))
}

/// The caveat of a recording whose trace contradicts its final state.
pub(super) const DOUBTFUL: &str = "the trace contradicts the file's own end, so figures are doubtful";

/// A recording that an answer is about.
#[derive(Clone, Copy)]
pub struct About<'a> {
    pub(super) recording: &'a Recording,
    /// How the trace contradicts the final state, as the tables found.
    pub(super) contradiction: Option<&'a str>,
}

impl<'a> About<'a> {
    /// With the contradiction that the device's tables found.
    pub fn by(recording: &'a Recording, tables: &'a DeviceTables) -> Self {
        About { recording, contradiction: tables.disagreement.as_deref() }
    }
}

impl<'a> From<&'a Recording> for About<'a> {
    fn from(recording: &'a Recording) -> Self {
        About { recording, contradiction: None }
    }
}

/// Adds caveats to the first line, which is the answer: that the file is cut short, has nonsensical values, or contradicts
/// itself. Later lines have the details.
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
        // With several recordings, the caveat names the one it is about.
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

/// One sentence when the file is cut short.
pub(super) fn cut_note(recording: &Recording) -> Option<String> {
    let cut = recording.report.truncated()?;
    let text = cut.text.trim_end_matches('.');
    let again = if text.contains("copy the file again") { "" } else { "; copy the file again" };
    Some(format!("{} is not whole: {text}. This holds for what could be read{again}.", recording.source.name))
}

/// Writes a value as indented JSON with a line end.
pub fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("the answer cannot be written: {e}");
    serde_json::to_writer_pretty(&mut *out, value).map_err(|e| failed(&e))?;
    writeln!(out).map_err(|e| failed(&e))
}
