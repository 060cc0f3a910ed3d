//! `vramscope export FILE --to FORMAT OUT`: exports a recording for other tools.

use clap::ValueEnum as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::args::{ExportArgs, ExportFormat, ExportTableName};
use super::{Failure, choose_device, open};
use vramscope_core::compare::flame::{Measure, Size, weigh};
use vramscope_core::compare::ranks;
use vramscope_core::compare::ranks::Partition;
use vramscope_core::diagnose::export::{counters, curves, lifetimes, places, trimmed, whole};
use vramscope_core::formats::export::WriteError;
use vramscope_core::formats::export::new_file::{NewFile, refusal};
use vramscope_core::formats::export::{
    ExportTable, Joined, Names, OfFile, blocks, categories, csv, events, jsonl, parquet, perfetto, redact, samples, snapshot,
    speedscope, stacks,
};
use vramscope_core::formats::folder;
use vramscope_core::model::{DeviceKind, Progress, Recording, StackId};
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::{Bytes, count, counted};

/// Writes the export and reports on `out` what was written. Fails when the recording cannot be read, when it lacks the device or
/// range, or when a file cannot be written.
pub fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<(), Failure> {
    check_out(args)?;
    if args.file.is_dir() {
        return fleet(args, out);
    }
    let mut recording = open(&args.file)?;
    check_range(args, &recording)?;
    let file = file_name(&args.file);
    let rank = args.rank.or_else(|| ranks::rank_in_file(&recording)).or_else(|| ranks::rank_of_name(&file));
    let named = || ranks::partitions(Path::new(""), &[PathBuf::from(&file)], |_| Vec::new()).pop().unwrap_or_default();
    let job = args.job.clone().unwrap_or_else(|| ranks::job_of_file(&file, rank.is_some()));
    let partition = Partition { job, rank, step: named().step };
    let source = Source { path: &args.file, partition, stem: stem_of(&file), file, places: prepare(args, &mut recording) };
    Ok(export(args, &source, &recording, out)?)
}

/// The input of the tables: a recording, its partition in the data set, and names for its files.
struct Source<'a> {
    path: &'a Path,
    partition: Partition,
    stem: String,
    /// The part of a file name that distinguishes this recording from others of the data set.
    file: String,
    /// The short name of each stack; empty when no table is written.
    places: Vec<String>,
}

/// Names the stacks while full paths still show whose code they are, and then shortens the paths if requested.
fn prepare(args: &ExportArgs, recording: &mut Recording) -> Vec<String> {
    let is_table = args.to.of_tables().is_some();
    let mut places = if is_table { places(recording) } else { Vec::new() };
    if args.redact {
        redact::redact(recording);
        places.iter_mut().for_each(|place| *place = redact::text_without_paths(place));
    }
    places
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Exports every recording of a folder into the partition of its rank. A recording that cannot be read does not stop the others.
fn fleet(args: &ExportArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let usage = |why: &str| Err(Failure::Usage(why.to_owned()));
    if args.rank.is_some() {
        return usage("--rank is of one recording; in a folder each has its own, by its trace or its name");
    }
    if args.job.is_some() {
        return usage("--job is of one recording; in a folder files are of one job by their folders and names");
    }
    if args.is_table_file() {
        let out = args.out.display();
        return usage(&format!("{out}: the tables of a folder of recordings are written into a folder; name one"));
    }
    let files = folder::recordings_in(std::slice::from_ref(&args.file)).map_err(|e| e.to_string())?;
    let told = |path: &Path| open(path).map(|recording| ranks::identities(&recording, path)).unwrap_or_default();
    let partitions = ranks::partitions(&args.file, &files, told);
    let mut failed = Vec::new();
    for (path, partition) in files.iter().zip(partitions) {
        // One at a time, because a recording takes about half the size of its file in memory.
        let done = open(path).and_then(|mut recording| {
            let below = path.strip_prefix(&args.file).unwrap_or(path);
            let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
            let partition = Partition { rank: ranks::rank_in_file(&recording).or(partition.rank), ..partition };
            let (stem, file) = (stem_of(&parts.join("-")), parts.join("/"));
            let source = Source { path, partition, stem, file, places: prepare(args, &mut recording) };
            export(args, &source, &recording, out)
        });
        if let Err(sentence) = done {
            super::print(out, &format!("not exported: {sentence}"))?;
            failed.push(sentence);
        }
    }
    let many = counted(files.len() as u64, "recording", "recordings");
    failed.first().map_or(Ok(()), |first| Err(Failure::NotPossible(format!("{} of {many} not exported: {first}", failed.len()))))
}

/// Checks the output path. A folder for tables is created, but not its parents. A folder named like a file of another format is
/// most likely a mistake.
fn check_out(args: &ExportArgs) -> Result<(), Failure> {
    if args.out.as_os_str() == "-" {
        return Err(Failure::Usage(
            "-: export writes files, not to standard output; name a file, or ./- if that is its name".to_owned(),
        ));
    }
    if let Some(job) = args.job.as_ref().filter(|job| !ranks::is_job_name(job)) {
        return Err(Failure::Usage(format!(
            "--job {job}: a job's name is part of a folder's name; write it with letters, digits, \"-\", \"_\" and \".\""
        )));
    }
    let is_tables = args.to.of_tables().is_some();
    if !is_tables || args.is_table_file() {
        return Ok(refusal(&args.out, &[&args.file], args.force).map_or(Ok(()), Err)?);
    }
    let out = args.out.display();
    if args.out.is_dir() {
        return Ok(());
    }
    if args.out.exists() {
        return Err(Failure::NotPossible(format!("{out} is a file and not a folder; name a folder for the tables")));
    }
    const OTHERS: [&str; 11] = ["csv", "parquet", "jsonl", "json", "pickle", "pkl", "gz", "zst", "svg", "png", "txt"];
    let ending = args.out.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    if OTHERS.contains(&ending.as_str()) {
        let format = args.to.of_tables().unwrap_or_default();
        let sentence =
            format!("{out}: --to {format} writes a file ending in .{format}, or a folder of all tables; name one of these");
        return Err(Failure::Usage(sentence));
    }
    match args.out.parent().filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        Some(parent) => Err(Failure::NotPossible(format!("{out}: there is no folder {}", parent.display()))),
        None => Ok(()),
    }
}

/// Checks that the range of events is in the recording. A larger range is most likely a mistake.
fn check_range(args: &ExportArgs, recording: &Recording) -> Result<(), Failure> {
    let Some((from, to)) = args.events else { return Ok(()) };
    let refuse = |why: String| Err(Failure::Usage(format!("--events {from}..{to}: {why}")));
    let counts: Vec<(String, usize)> =
        devices(args, recording)?.iter().map(|&i| &recording.devices[i]).map(|d| (d.id.to_string(), d.events.len())).collect();
    let most = counts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    if to as usize > most {
        let known: Vec<String> = counts.iter().map(|(device, n)| format!("{device} has {}", count(*n as u64))).collect();
        return refuse(format!("events are numbered from 0, and {}", known.join(", ")));
    }
    Ok(())
}

fn export(args: &ExportArgs, source: &Source<'_>, recording: &Recording, out: &mut dyn Write) -> Result<(), String> {
    let has_events = recording.has_blocks();
    let has_samples = recording.devices.iter().any(|d| !d.samples.is_empty() || !d.bands.is_empty());
    // A file without events and samples has a single instant.
    let over_time = has_samples || recording.devices.iter().any(|d| !d.events.is_empty());
    if args.to == ExportFormat::Snapshot && has_events && !recording.addresses().is_known() {
        return Err(format!(
            "{}: a snapshot is made of blocks at addresses, and this file has no addresses; export it as csv, parquet{} speedscope{}",
            source.path.display(),
            if over_time { "," } else { " or" },
            if over_time { " or perfetto" } else { "" }
        ));
    }
    if args.to == ExportFormat::Perfetto && has_events && !over_time {
        return Err(format!(
            "{}: a Perfetto trace is over time, and this file is of one instant; export it as csv, parquet or speedscope",
            source.path.display()
        ));
    }
    let takes_samples = args.to.of_tables().is_some() || args.to == ExportFormat::Perfetto;
    if !has_events && !(has_samples && takes_samples) {
        let name = args.to.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let rest = if has_samples {
            "its samples can be written as csv, parquet or perfetto"
        } else {
            "vramscope summary --json prints what it holds"
        };
        return Err(format!(
            "{}: there is nothing to export as {name}: it holds no allocator events and no segments; {rest}",
            source.path.display()
        ));
    }
    let written = match args.to {
        ExportFormat::Csv | ExportFormat::Parquet | ExportFormat::Jsonl => tables(args, source, recording)?,
        ExportFormat::Speedscope => vec![to_speedscope(args, recording)?],
        ExportFormat::Perfetto => vec![to_perfetto(args, recording)?],
        ExportFormat::Snapshot => vec![to_snapshot(args, recording)?],
        ExportFormat::Svg | ExportFormat::Png => return Err(super::NO_WINDOW.to_owned()),
    };
    let lines = written.into_iter().map(|(path, what)| {
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        format!("{}: {what}, {}", path.display(), Bytes(size))
    });
    super::print_of(out, &[recording.into()], &lines.collect::<Vec<_>>().join("\n"))
}

type Written = (PathBuf, String);

fn new_file<T>(args: &ExportArgs, path: &Path, write: impl FnOnce(&mut NewFile) -> io::Result<T>) -> Result<T, String> {
    let written = NewFile::create(path, &[&args.file], args.force).and_then(|mut file| {
        let written = write(&mut file).map_err(|e| WriteError::io(path, e))?;
        file.finish().map(|()| written)
    });
    written.map_err(|e| e.to_string())
}

fn build(recording: &Recording, device: usize) -> Result<DeviceTables, String> {
    DeviceTables::build(&recording.devices[device], &Progress::new()).map_err(|e| e.to_string())
}

/// Indices of the devices to write: the requested one, or all.
fn devices(args: &ExportArgs, recording: &Recording) -> Result<Vec<usize>, String> {
    match args.device {
        Some(_) => choose_device(recording, args.device).map(|d| vec![d]),
        None => Ok((0..recording.devices.len()).collect()),
    }
}

/// The partition of recordings whose rank is unknown. It is a number like the others: if all ranks of a data set were unknown,
/// Hive's name for null would leave readers without a type (pyarrow refuses such a data set, and Spark cannot write the type).
const NO_RANK: &str = "-1";

/// A file name for tables. It has no colon, which Spark takes for the end of a URL scheme, and does not begin with `_` or `.`,
/// which would hide it from Spark and pyarrow. The table's column `recording` has the real name.
fn stem_of(file: &str) -> String {
    let unsafe_in_names = |c: char| c.is_control() || matches!(c, ':' | '/' | '\\' | '*' | '?' | '"' | '<' | '>' | '|');
    let plain = file.replace(unsafe_in_names, "_");
    let shown = plain.trim_start_matches(['_', '.']);
    if shown.is_empty() { "recording".to_owned() } else { shown.to_owned() }
}

/// Writes one table of all devices into OUT, or all tables into the folder OUT as `OUT/events/job=ddp/rank=0/NAME.cuda-0.parquet`.
/// Exports of many recordings into one folder then form one partitioned data set.
fn tables(args: &ExportArgs, source: &Source<'_>, recording: &Recording) -> Result<Vec<Written>, String> {
    let chosen = devices(args, recording)?;
    // A live session has only samples, and a plotted memory timeline only sums by category.
    let has_events = chosen.iter().any(|&i| recording.devices[i].has_blocks());
    let has_bands = chosen.iter().any(|&i| !recording.devices[i].bands.is_empty());
    let usual = match (has_events, has_bands) {
        (true, _) => ExportTableName::Lifetimes,
        (false, true) => ExportTableName::Categories,
        (false, false) => ExportTableName::Samples,
    };
    if args.is_table_file() {
        return one_table(args, source, recording, &chosen, args.table.unwrap_or(usual));
    }
    let mut written = Vec::new();
    for &index in &chosen {
        let device = &recording.devices[index];
        let ordinal = if device.id.index < 0 { String::new() } else { format!("-{}", device.id.index) };
        let part = format!(".{}{ordinal}", device.id.kind.name());
        let names = Names::new(device, &source.places);
        let wanted: Vec<ExportTableName> = ExportTableName::value_variants()
            .iter()
            .copied()
            .filter(|&name| match (args.table, name) {
                (_, ExportTableName::Stacks) => false,
                (Some(table), _) => table == name,
                (None, ExportTableName::Samples) => !device.samples.is_empty(),
                (None, ExportTableName::Categories) => !device.bands.is_empty(),
                (None, _) => has_events,
            })
            .collect();
        let derived = wanted.iter().any(|name| is_derived(*name)).then(|| build(recording, index)).transpose()?;
        for name in wanted {
            let Some(table) = table(name, recording, &names, derived.as_ref()) else { continue };
            written.push(to_folder(args, source, table.as_ref(), &part)?);
        }
    }
    if args.table == Some(ExportTableName::Stacks) || (args.table.is_none() && has_events) {
        written.push(to_folder(args, source, &stacks(recording), "")?);
    }
    Ok(written)
}

/// True for tables that are made of a device's tables.
fn is_derived(name: ExportTableName) -> bool {
    matches!(name, ExportTableName::Lifetimes | ExportTableName::Curves)
}

/// A table of one device; `None` for the table of stacks, which is of the recording.
fn table<'a>(
    name: ExportTableName,
    recording: &Recording,
    names: &'a Names<'_>,
    tables: Option<&'a DeviceTables>,
) -> Option<Box<dyn ExportTable + 'a>> {
    Some(match name {
        ExportTableName::Events => Box::new(events(recording, names)),
        ExportTableName::Lifetimes => Box::new(lifetimes(recording, names, tables?)),
        ExportTableName::Blocks => Box::new(blocks(names)),
        ExportTableName::Curves => Box::new(curves(names, tables?)),
        ExportTableName::Samples => Box::new(samples(names)),
        ExportTableName::Categories => Box::new(categories(names)),
        ExportTableName::Stacks => return None,
    })
}

/// Writes the rows of all chosen devices into the file OUT.
fn one_table(
    args: &ExportArgs,
    source: &Source<'_>,
    recording: &Recording,
    chosen: &[usize],
    name: ExportTableName,
) -> Result<Vec<Written>, String> {
    let names: Vec<Names<'_>> = chosen.iter().map(|&i| Names::new(&recording.devices[i], &source.places)).collect();
    let derived: Vec<Option<DeviceTables>> =
        chosen.iter().map(|&i| is_derived(name).then(|| build(recording, i)).transpose()).collect::<Result<_, _>>()?;
    let of_devices = names.iter().zip(&derived).filter_map(|(names, derived)| table(name, recording, names, derived.as_ref()));
    let joined = Joined::new(of_devices.collect());
    let of_recording = stacks(recording);
    let table: &dyn ExportTable = joined.as_ref().map_or(&of_recording, |joined| joined);
    if table.is_empty() {
        return Err(format!("{}: it has no {}, so no table was written", source.path.display(), table.name()));
    }
    let mut written = write_table(args, source, table, args.out.clone())?;
    if chosen.len() > 1 && joined.is_some() {
        let devices: Vec<String> = chosen.iter().map(|&i| recording.devices[i].id.to_string()).collect();
        written.1 += &format!(" of {}", devices.join(", "));
    }
    Ok(vec![written])
}

/// Writes a table into its place below the folder OUT.
fn to_folder(args: &ExportArgs, source: &Source<'_>, table: &dyn ExportTable, part: &str) -> Result<Written, String> {
    let Partition { job, rank, .. } = &source.partition;
    let rank = rank.map_or_else(|| NO_RANK.to_owned(), |rank| rank.to_string());
    let folder = args.out.join(table.name()).join(format!("job={job}")).join(format!("rank={rank}"));
    std::fs::create_dir_all(&folder).map_err(|e| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: this folder cannot be made: {why}; name another one", folder.display())
    })?;
    let path = folder.join(format!("{}{part}.{}", source.stem, args.to.of_tables().unwrap_or_default()));
    write_table(args, source, table, path)
}

fn write_table(args: &ExportArgs, source: &Source<'_>, table: &dyn ExportTable, path: PathBuf) -> Result<Written, String> {
    let table: &dyn ExportTable = &OfFile::new(table, &source.file, source.partition.step);
    new_file(args, &path, |file| match args.to {
        ExportFormat::Parquet => parquet::write(table, file),
        ExportFormat::Jsonl => jsonl::write(table, file),
        _ => csv::write(table, file),
    })?;
    Ok((path, format!("{} rows of {}", count(table.len() as u64), table.name())))
}

fn to_speedscope(args: &ExportArgs, recording: &Recording) -> Result<Written, String> {
    let mut names = Vec::new();
    let mut weights: Vec<Vec<(StackId, u64)>> = Vec::new();
    for index in devices(args, recording)? {
        let device = &recording.devices[index];
        if !device.has_blocks() {
            continue;
        }
        let tables = build(recording, index)?;
        let peak = tables.curves.peak_event();
        let last = (device.events.len() as u32).saturating_sub(1);
        let measures = [
            ("live at the peak", Measure::LiveAt(peak)),
            ("live at the end", Measure::LiveAt(last)),
            ("allocated over the recording", Measure::Allocated(0, last)),
        ];
        // Without events only the end is known.
        let known = if device.events.is_empty() { &measures[1..2] } else { &measures[..] };
        for &(what, measure) in known {
            let mut by_stack: Vec<(StackId, u64)> =
                weigh(device, &tables, None, measure, Size::Requested).into_iter().map(|e| (e.stack, e.weight)).collect();
            by_stack.sort_by_key(|&(stack, bytes)| (std::cmp::Reverse(bytes), stack));
            names.push(format!("{}, {what}", device.id));
            weights.push(by_stack);
        }
    }
    let flames: Vec<_> = names.iter().zip(&weights).map(|(name, weights)| speedscope::Flame { name, weights }).collect();
    new_file(args, &args.out, |file| speedscope::write(&recording.source.name, &recording.stacks, &flames, file))?;
    Ok((args.out.clone(), counted(flames.len() as u64, "flame graph", "flame graphs")))
}

fn to_perfetto(args: &ExportArgs, recording: &Recording) -> Result<Written, String> {
    let mut rows = vec![Vec::new(); recording.devices.len()];
    for index in devices(args, recording)? {
        rows[index] = counters(&recording.devices[index], &build(recording, index)?);
    }
    let mut counters = |device: usize| std::mem::take(&mut rows[device]);
    let written = new_file(args, &args.out, |file| perfetto::write(recording, &mut counters, file))?;
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
            None => whole(recording, index, &Progress::new()).map_err(|e| e.to_string())?,
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
    new_file(args, &args.out, |file| snapshot::write(recording, &parts, args.redact, file))?;
    let stand_in = parts.iter().filter_map(|p| recording.devices.get(p.device)).any(|d| !d.can_show.requested.is_known());
    let sizes = if stand_in { "; whole blocks stand in for requested sizes, which the recording does not have" } else { "" };
    let rest =
        if left_out.is_empty() { String::new() } else { format!(" (a snapshot has no place for {})", left_out.join(", ")) };
    Ok((args.out.clone(), format!("{}{rest}{sizes}", counted(events, "event", "events"))))
}
