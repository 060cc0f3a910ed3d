//! Opens the files that commands get: a recording, counters, or several recordings of one run. Chooses the device.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::printing::About;
use super::rules::RulesArgs;
use vramscope_core::anatomy::roles::Roles;
use vramscope_core::compare::join::{Join, join};
use vramscope_core::formats;
use vramscope_core::model::{DeviceRecording, MemoryStats, Progress, Recording, WarningKind};
use vramscope_core::tables::{DeviceTables, NO_EVENT};
use vramscope_core::units::count;

/// Opens a recording that has events or blocks; `-` means standard input. Fails with one sentence that names the file as it was
/// typed, because files of the same name in different folders are common. Also fails when the file holds only PyTorch's counters,
/// which only `summary` shows.
pub fn open(path: &Path) -> Result<Recording, String> {
    let recording = open_any(path)?;
    // On standard error, so that it also appears beside JSON output.
    if let Some(changed) = recording.report.warnings.iter().find(|w| w.kind == WarningKind::Changed) {
        super::terminal::say(&format!("{}: {}", path.display(), changed.text));
    }
    if recording.has_only_counters() {
        return Err(format!(
            "{}: these are PyTorch's counters, totals without events or blocks, which this command needs; vramscope summary prints them, and \
             summary or check with --stats compares them with a snapshot",
            path.display()
        ));
    }
    Ok(recording)
}

/// Opens a recording that has single allocations, as events or as the blocks of one instant. Fails with one sentence that names
/// the file as it was typed. For other recordings it says what they have and which command reads them.
pub fn open_blocks(path: &Path) -> Result<Recording, String> {
    let recording = open(path)?;
    if recording.has_blocks() { Ok(recording) } else { Err(without_blocks(path, &recording)) }
}

/// A sentence on what a file without events and blocks has instead.
pub(super) fn without_blocks(path: &Path, recording: &Recording) -> String {
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

/// A file name quoted for a shell.
pub(super) fn quoted(file: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_./,:=@%+-".contains(c);
    if !file.is_empty() && file.chars().all(is_plain) { file.to_owned() } else { format!("'{}'", file.replace('\'', "'\\''")) }
}

/// An event as text. Without an event number it is described in words.
pub(super) fn place_of(device: &DeviceRecording, event: u32) -> String {
    match event {
        _ if device.events.is_empty() => "as it was dumped".to_owned(),
        NO_EVENT => "before any event".to_owned(),
        event => format!("event {}", count(u64::from(event))),
    }
}

/// Opens any file, including counters. Fails with one sentence that names the file as it was typed.
pub fn open_any(path: &Path) -> Result<Recording, String> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map_err(|e| format!("standard input cannot be read: {}", formats::why(&e)))?;
        return formats::read(&bytes, "standard input", &Progress::new()).map_err(|e| e.to_string());
    }
    if !formats::chosen(path).0.exists() {
        let is_address = ["http://", "https://", "s3://", "gs://"].iter().any(|start| path.to_string_lossy().starts_with(start));
        let why = if is_address { "an address on the network; download the file and open that" } else { "there is no such file" };
        return Err(format!("{}: {why}", path.display()));
    }
    if path.is_dir() {
        return Err(is_a_folder(path));
    }
    match super::kept::shelf() {
        Some(shelf) => shelf.open(path, || read_file(path)),
        None => read_file(path),
    }
}

pub(super) fn is_recording(path: &Path) -> bool {
    path.is_file() && open_any(path).is_ok()
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

/// Reads PyTorch's counters from a file of `memory_stats()`, `memory_summary()` or `host_memory_stats()`. Fails when the file
/// cannot be read or holds no counters.
pub fn open_stats(path: &Path) -> Result<MemoryStats, String> {
    formats::stats::open(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Opens a recording and adds traces and timelines of the same run to it, in that order. Fails when a file cannot be read or is
/// of another run.
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

/// The index of the device that the user named, or of the busiest one. Fails with one sentence that lists the recording's
/// devices.
pub fn choose_device(recording: &Recording, wanted: Option<i32>) -> Result<usize, String> {
    let name = &recording.source.name;
    let Some(wanted) = wanted else {
        return recording.busiest_device().ok_or_else(|| format!("{name}: no device of this recording has events or segments"));
    };
    recording.device_numbered(wanted).map_err(|e| e.to_string())
}

/// How to see the other devices; empty when no other has events.
pub(super) fn others(recording: &Recording, shown: &DeviceRecording) -> String {
    let others = recording.devices.iter().filter(|d| d.id != shown.id && !d.events.is_empty());
    let named: Vec<String> = others.map(|d| format!("--device {}", d.id.index)).take(8).collect();
    if named.is_empty() { String::new() } else { format!("Other devices of this recording: {}\n", named.join(", ")) }
}

/// `GPU 1: ` when the recording has several devices, otherwise empty.
pub(super) fn of_device(recording: &Recording, device: &DeviceRecording) -> String {
    if recording.devices.len() == 1 { String::new() } else { format!("{}: ", device.id) }
}

/// A recording, the chosen device, and that device's tables.
pub(super) struct Opened {
    pub(super) recording: Recording,
    index: usize,
    pub(super) tables: DeviceTables,
}

impl Opened {
    /// Opens a recording that has single allocations, for a device that the user named. Fails like [`open_blocks`] and
    /// [`choose_device`].
    pub(super) fn blocks(path: &Path, device: Option<i32>) -> Result<Self, String> {
        let recording = open_blocks(path)?;
        let index = choose_device(&recording, device)?;
        Self::of(recording, index)
    }

    pub(super) fn of(recording: Recording, index: usize) -> Result<Self, String> {
        let tables = DeviceTables::build(&recording.devices[index], &Progress::new()).map_err(|e| e.to_string())?;
        Ok(Opened { recording, index, tables })
    }

    pub(super) fn device(&self) -> &DeviceRecording {
        &self.recording.devices[self.index]
    }

    pub(super) fn about(&self) -> About<'_> {
        About::by(&self.recording, &self.tables)
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.recording.report.truncated().is_some()
    }

    pub(super) fn roles(&self, rules: &RulesArgs) -> Result<Roles, String> {
        Roles::build(&self.recording, self.device(), &self.tables, &rules.read()?, &Progress::new()).map_err(|e| e.to_string())
    }

    /// The number of the last event; 0 without events.
    pub(super) fn last_event(&self) -> u32 {
        self.device().events.len().saturating_sub(1) as u32
    }

    /// Checks the number of an event that the user named.
    pub(super) fn event(&self, event: u32) -> Result<u32, String> {
        match self.last_event() {
            last if event > last => Err(format!("{}: there is no event {event}; the last is {last}", self.recording.source.name)),
            _ => Ok(event),
        }
    }
}

/// The error when a path is a folder instead of a file.
pub(super) fn is_a_folder(path: &Path) -> String {
    let path = path.display();
    format!("{path}: this is a folder; \"vramscope ranks {path}\" compares the recordings in it, or name one of its files")
}
