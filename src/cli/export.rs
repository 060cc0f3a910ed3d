//! `vramscope export FILE --to FORMAT OUT`: a recording for other tools.

use clap::ValueEnum as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::args::{ExportArgs, ExportFormat, ExportTableName};
use super::{Failure, choose_device, open};
use crate::analysis::export::{CurvesTable, LifetimesTable, counters, places, trimmed};
use crate::analysis::flame::{Measure, Size, weigh};
use crate::analysis::{DeviceTables, Quantity};
use crate::formats::export::{
    BlocksTable, EventsTable, ExportTable, SamplesTable, StacksTable, csv, parquet, perfetto, snapshot, speedscope,
};
use crate::model::{DeviceKind, Progress, Recording, StackId};
use crate::units::{Bytes, count, counted};

/// Writes the export and says on `out` what was written.
///
/// # Errors
/// [`Failure`]: the recording can not be read, the device or range is not in it, or a file can not be written.
pub fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let recording = open(&args.file)?;
    check_range(args, &recording)?;
    Ok(export(args, &recording, out)?)
}

/// The range of events must be in the recording; a larger one is more likely a slip than a wish.
fn check_range(args: &ExportArgs, recording: &Recording) -> Result<(), Failure> {
    let Some((from, to)) = args.events else { return Ok(()) };
    let refuse = |why: String| Err(Failure::Usage(format!("--events {from}..{to}: {why}")));
    if args.to != ExportFormat::Snapshot {
        return refuse("only a snapshot is cut to a range of events; the other formats hold all of them".to_owned());
    }
    let counts: Vec<(String, usize)> =
        devices(args, recording)?.iter().map(|&i| &recording.devices[i]).map(|d| (d.id.to_string(), d.events.len())).collect();
    let most = counts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    if to as usize > most {
        let known: Vec<String> = counts.iter().map(|(device, n)| format!("{device} has {}", count(*n as u64))).collect();
        return refuse(format!("events are numbered from 0, and {}", known.join(", ")));
    }
    Ok(())
}

fn export(args: &ExportArgs, recording: &Recording, out: &mut dyn Write) -> Result<(), String> {
    let has_events = recording.devices.iter().any(|d| !d.events.is_empty() || !d.segments.is_empty());
    let has_samples = recording.devices.iter().any(|d| !d.samples.is_empty());
    let takes_samples = matches!(args.to, ExportFormat::Csv | ExportFormat::Parquet | ExportFormat::Perfetto);
    if !has_events && !(has_samples && takes_samples) {
        let name = args.to.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let rest = if has_samples {
            "its samples of the card can be written as csv, parquet or perfetto"
        } else {
            "vramscope summary --json prints what it holds"
        };
        return Err(format!(
            "{}: there is nothing to export as {name}: it holds no allocator events and no segments; {rest}",
            args.file.display()
        ));
    }
    let written = match args.to {
        ExportFormat::Csv | ExportFormat::Parquet => tables(args, recording)?,
        ExportFormat::Speedscope => vec![to_speedscope(args, recording)?],
        ExportFormat::Perfetto => vec![to_perfetto(args, recording)?],
        ExportFormat::Snapshot => vec![to_snapshot(args, recording)?],
        ExportFormat::Svg | ExportFormat::Png => return Err(super::NO_WINDOW.to_owned()),
    };
    for (path, what) in written {
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        super::print(out, &format!("{}: {what}, {}", path.display(), Bytes(size)))?;
    }
    Ok(())
}

type Written = (PathBuf, String);

fn create(path: &Path) -> Result<BufWriter<File>, String> {
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: this folder can not be made: {e}", folder.display()))?;
    }
    File::create(path).map(BufWriter::new).map_err(|e| format!("{}: can not be written: {e}", path.display()))
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: can not be written: {e}", path.display())
}

fn build(recording: &Recording, device: usize) -> Result<DeviceTables, String> {
    DeviceTables::build(&recording.devices[device], &Progress::new()).map_err(|e| e.to_string())
}

/// The devices that are written: the one asked for, else every one.
fn devices(args: &ExportArgs, recording: &Recording) -> Result<Vec<usize>, String> {
    match args.device {
        Some(_) => choose_device(recording, args.device).map(|d| vec![d]),
        None => Ok((0..recording.devices.len()).collect()),
    }
}

/// The rank of the process: as asked for, else from the file's name (`rank3`, `rank_3`, `rank-3`), else 0.
fn rank(args: &ExportArgs) -> u32 {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let from_name = || {
        let (_, rest) = name.split_once("rank")?;
        let rest = rest.trim_start_matches(['_', '-', '=']);
        rest.get(..rest.bytes().take_while(u8::is_ascii_digit).count())?.parse().ok()
    };
    args.rank.or_else(from_name).unwrap_or(0)
}

/// One table into OUT, or every table into the folder OUT: `OUT/events/rank=0/NAME.cuda-0.parquet`, so that a fleet's exports
/// into one folder are one partitioned data set.
fn tables(args: &ExportArgs, recording: &Recording) -> Result<Vec<Written>, String> {
    let is_parquet = args.to == ExportFormat::Parquet;
    let extension = if is_parquet { "parquet" } else { "csv" };
    let is_file = args.out.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension));
    let place_names = places(recording);
    let stem = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut written = Vec::new();
    let mut write = |table: &dyn ExportTable, part: &str| -> Result<(), String> {
        let path = if is_file {
            args.out.clone()
        } else {
            args.out.join(table.name()).join(format!("rank={}", rank(args))).join(format!("{stem}{part}.{extension}"))
        };
        let mut file = create(&path)?;
        let result = if is_parquet { parquet::write(table, &mut file) } else { csv::write(table, &mut file) };
        result.map_err(failed(&path))?;
        written.push((path, format!("{} rows of {}", count(table.len() as u64), table.name())));
        Ok(())
    };
    let chosen = if is_file { vec![choose_device(recording, args.device)?] } else { devices(args, recording)? };
    let has_events = |&i: &usize| !recording.devices[i].events.is_empty() || !recording.devices[i].segments.is_empty();
    // Of a live session there is nothing but its samples.
    let usual = if chosen.iter().any(has_events) { ExportTableName::Lifetimes } else { ExportTableName::Samples };
    let wanted = |name: ExportTableName| match args.table {
        Some(table) => table == name,
        None if is_file => name == usual,
        None => usual == ExportTableName::Lifetimes || name == usual,
    };
    for index in chosen {
        let device = &recording.devices[index];
        // Host memory has no ordinal.
        let ordinal = if device.id.index < 0 { String::new() } else { format!("-{}", device.id.index) };
        let part = format!(".{}{ordinal}", device.id.kind.name());
        if wanted(ExportTableName::Samples) && (args.table.is_some() || !device.samples.is_empty()) {
            write(&SamplesTable::new(device), &part)?;
        }
        if wanted(ExportTableName::Events) {
            write(&EventsTable::new(device, &place_names), &part)?;
        }
        if wanted(ExportTableName::Blocks) {
            write(&BlocksTable::new(device, &place_names), &part)?;
        }
        if wanted(ExportTableName::Lifetimes) || wanted(ExportTableName::Curves) {
            let tables = build(recording, index)?;
            if wanted(ExportTableName::Lifetimes) {
                write(&LifetimesTable::new(device, &tables, &place_names), &part)?;
            }
            if wanted(ExportTableName::Curves) {
                write(&CurvesTable::new(device, &tables), &part)?;
            }
        }
    }
    if wanted(ExportTableName::Stacks) {
        write(&StacksTable::new(recording), "")?;
    }
    Ok(written)
}

fn to_speedscope(args: &ExportArgs, recording: &Recording) -> Result<Written, String> {
    let mut names = Vec::new();
    let mut weights: Vec<Vec<(StackId, u64)>> = Vec::new();
    for index in devices(args, recording)? {
        let device = &recording.devices[index];
        if device.events.is_empty() && device.segments.is_empty() {
            continue;
        }
        let tables = build(recording, index)?;
        let (_, peak) = tables.curves.peak(Quantity::Requested);
        let last = (device.events.len() as u32).saturating_sub(1);
        for (what, measure) in [
            ("live at the peak", Measure::LiveAt(peak)),
            ("live at the end", Measure::LiveAt(last)),
            ("allocated over the recording", Measure::Allocated(0, last)),
        ] {
            let mut by_stack: Vec<(StackId, u64)> =
                weigh(device, &tables, None, measure, Size::Requested).into_iter().map(|e| (e.stack, e.weight)).collect();
            by_stack.sort_by_key(|&(stack, bytes)| (std::cmp::Reverse(bytes), stack));
            names.push(format!("{}, {what}", device.id));
            weights.push(by_stack);
        }
    }
    let flames: Vec<_> = names.iter().zip(&weights).map(|(name, weights)| speedscope::Flame { name, weights }).collect();
    let mut file = create(&args.out)?;
    speedscope::write(&recording.source.name, &recording.stacks, &flames, &mut file).map_err(failed(&args.out))?;
    Ok((args.out.clone(), format!("{} flame graphs", flames.len())))
}

fn to_perfetto(args: &ExportArgs, recording: &Recording) -> Result<Written, String> {
    let wanted = devices(args, recording)?;
    let mut rows = Vec::new();
    for index in 0..recording.devices.len() {
        rows.push(if wanted.contains(&index) {
            counters(&recording.devices[index], &build(recording, index)?)
        } else {
            Vec::new()
        });
    }
    let mut file = create(&args.out)?;
    let written =
        perfetto::write(recording, &mut |device| std::mem::take(&mut rows[device]), &mut file).map_err(failed(&args.out))?;
    Ok((args.out.clone(), format!("{} counter values", count(written))))
}

fn to_snapshot(args: &ExportArgs, recording: &Recording) -> Result<Written, String> {
    let mut parts = Vec::new();
    let mut events = 0u64;
    let mut left_out = Vec::new();
    for index in devices(args, recording)? {
        let device = &recording.devices[index];
        if device.id.kind == DeviceKind::Cpu {
            left_out.push(format!("{} of the CPU", counted(device.events.len() as u64, "event", "events")));
            continue;
        }
        let part = match args.events {
            None if device.has_final_state => snapshot::DevicePart::whole(recording, index),
            // A trace has no state at its end in it; it follows from the events.
            None => trimmed(recording, index, &build(recording, index)?, 0..device.events.len() as u32),
            Some((from, to)) => trimmed(recording, index, &build(recording, index)?, from..to),
        };
        let Some(part) = part else { continue };
        events += u64::from(part.events.end - part.events.start);
        parts.push(part);
    }
    if parts.is_empty() {
        return Err(format!("{}: a snapshot is of a device, and this device is the CPU", args.file.display()));
    }
    if !recording.ops.is_empty() {
        left_out.push(counted(recording.ops.len() as u64, "operator", "operators"));
    }
    if recording.devices.iter().any(|d| !d.bands.is_empty()) {
        left_out.push("bytes by category".to_owned());
    }
    let mut file = create(&args.out)?;
    snapshot::write(recording, &parts, args.redact, &mut file).map_err(failed(&args.out))?;
    let rest =
        if left_out.is_empty() { String::new() } else { format!(" (a snapshot has no place for {})", left_out.join(", ")) };
    Ok((args.out.clone(), format!("{}{rest}", counted(events, "event", "events"))))
}
