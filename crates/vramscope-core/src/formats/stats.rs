//! PyTorch's own counters as people save them: `memory_stats()` and `host_memory_stats()` as JSON or as a printed Python
//! dictionary, and the table of `memory_summary()`.
//!
//! All forms become the same flat keys (`allocated_bytes.all.peak`). The summary rounds its figures down to a unit, so each value
//! keeps its maximum error.

use std::collections::BTreeMap;
use std::path::Path;

pub use crate::model::{Counter, Gauge, MemoryStats, StatsKind};
use crate::model::{DeviceId, DeviceKind, DeviceRecording, Format, LoadReport, Recording, Source, WarningKind};

/// No file of counters is longer than this.
pub(super) const MOST_BYTES: usize = 4 << 20;

/// Why a file gave no counters. The sentence continues the file's name.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// It does not exist, or may not be read.
    #[error("cannot be read: {}", super::why(.0))]
    NotOpened(#[source] std::io::Error),
    /// It was opened, and reading its bytes failed.
    #[error("cannot be read: {0}")]
    NotRead(#[source] std::io::Error),
    /// A folder, a pipe or a device.
    #[error("is a folder, a pipe or a device and not a file")]
    NotAFile,
    /// Too long for counters.
    #[error("is too large to be the counters of torch.cuda.memory_stats()")]
    TooLarge,
    /// Its text is not counters.
    #[error(
        "holds no counters of torch.cuda.memory_stats(), memory_summary() or host_memory_stats(); write them with \
         json.dump(torch.cuda.memory_stats(), file)"
    )]
    NoCounters,
}

/// Reads a file of counters. [`StatsError`] says what is wrong with it, without its name.
pub fn open(path: &Path) -> Result<MemoryStats, StatsError> {
    let meta = std::fs::metadata(path).map_err(StatsError::NotOpened)?;
    if !meta.is_file() {
        return Err(StatsError::NotAFile);
    }
    let size = meta.len();
    if size > MOST_BYTES as u64 {
        return Err(StatsError::TooLarge);
    }
    let bytes = std::fs::read(path).map_err(StatsError::NotRead)?;
    parse(&String::from_utf8_lossy(&bytes)).ok_or(StatsError::NoCounters)
}

/// Reads counters in any of the forms; `None` when there are none. Of several sets it returns the last one of the first device.
pub fn parse(text: &str) -> Option<MemoryStats> {
    let sets = parse_all(text);
    let first = sets.first()?.device;
    sets.into_iter().rev().find(|s| s.device == first)
}

/// Every set of counters in a text, in order: logs contain a summary per device, or several over the run.
fn parse_all(text: &str) -> Vec<MemoryStats> {
    let text = text.trim_start_matches('\u{feff}');
    let tables = summaries(text);
    if tables.is_empty() { dictionary(text) } else { tables }
}

/// The counters of a text as a recording: one entry per device with its last counters. `None` without any. One pass over the text.
pub fn read(text: &str, name: &str) -> Option<Recording> {
    let mut report = LoadReport::default();
    let mut sets: Vec<(DeviceId, MemoryStats)> = Vec::new();
    let mut older = 0;
    for set in parse_all(text) {
        let kind = match set.kind {
            StatsKind::Host => DeviceKind::Host,
            _ if title_of(text).is_some_and(|t| t.contains("XPU")) => DeviceKind::Xpu,
            _ => DeviceKind::Cuda,
        };
        let index = if kind == DeviceKind::Host { -1 } else { set.device.unwrap_or(0) };
        let id = DeviceId { kind, index };
        match sets.iter_mut().find(|(known, _)| *known == id) {
            Some(slot) => {
                slot.1 = set;
                older += 1;
            }
            None => sets.push((id, set)),
        }
    }
    report.warn_many(WarningKind::Skipped, older, None, || {
        "earlier counters of the same device in this text were passed over; the last ones are shown".to_owned()
    });
    let ends_open = text.trim_start().starts_with(['{', '(']) && !text.trim_end().ends_with(['}', ')', ']']);
    if ends_open {
        report.warn(WarningKind::Truncated, Some(text.len() as u64), || {
            "the counters end in the middle; what came before was read".to_owned()
        });
    }
    sets.sort_by_key(|(id, _)| *id);
    if sets.is_empty() {
        return None;
    }
    Some(Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::Counters, bytes: text.len() as u64 },
        devices: sets.iter().map(|&(id, _)| DeviceRecording { id, ..DeviceRecording::default() }).collect(),
        stats: sets.into_iter().map(|(_, set)| (name.to_owned(), set)).collect(),
        report,
        ..Recording::default()
    })
}

/// The title line above a summary's table.
fn title_of(text: &str) -> Option<&str> {
    text.lines().find(|line| line.contains(SUMMARY_TITLE))
}

/// Reads JSON or a printed Python dictionary, flat or nested, also `OrderedDict([('key', 1), …])`: keys are quoted, a number after
/// a key is its value, and a brace after a key opens a group with that name. A group may be the counters of one of several devices.
fn dictionary(text: &str) -> Vec<MemoryStats> {
    // Skip quotes and numbers of a log before the dictionary.
    let begin = [text.find('{'), text.find("([")].into_iter().flatten().min().unwrap_or(0);
    let text = text.get(begin..).unwrap_or(text);
    let bytes = text.as_bytes();
    let mut values = BTreeMap::new();
    let mut groups: Vec<String> = Vec::new();
    let mut found: Vec<(String, StatsKind)> = Vec::new();
    let mut key: Option<String> = None;
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        match b {
            b'"' | b'\'' => {
                let Some(length) = bytes[at..].iter().position(|&c| c == b) else { break };
                key = text.get(at..at + length).map(str::to_owned);
                at += length + 1;
            }
            b'{' => groups.push(key.take().unwrap_or_default()),
            b'}' => {
                groups.pop();
                key = None;
            }
            b'0'..=b'9' => {
                let from = at - 1;
                at = from + bytes[from..].iter().take_while(|c| c.is_ascii_digit()).count();
                let value: Option<u64> = text.get(from..at).and_then(|t| t.parse().ok());
                if let (Some(name), Some(value)) = (key.take(), value) {
                    let mut path: Vec<&str> = groups.iter().map(String::as_str).filter(|g| !g.is_empty()).collect();
                    path.push(&name);
                    let path = path.join(".");
                    found.extend(TELLING.iter().filter_map(|&(telling, kind)| {
                        let prefix = path.strip_suffix(telling)?;
                        (prefix.is_empty() || prefix.ends_with('.')).then(|| (prefix.to_owned(), kind))
                    }));
                    values.insert(path, Counter { value, slack: 0 });
                }
                // A fraction or exponent is none of the counters.
                at += bytes[at..].iter().take_while(|c| matches!(c, b'.' | b'e' | b'E') || c.is_ascii_digit()).count();
            }
            // A value that is no number.
            b'N' | b'n' | b't' | b'f' | b'T' | b'F' => key = None,
            _ => {}
        }
    }
    // Most dictionaries contain two of the telling counters.
    let mut prefixes: Vec<(String, StatsKind)> = Vec::new();
    for (prefix, kind) in found {
        if !prefixes.iter().any(|(known, _)| *known == prefix) {
            prefixes.push((prefix, kind));
        }
    }
    let is_one = prefixes.len() == 1;
    let set = |(prefix, kind): (String, StatsKind)| {
        let name = prefix.trim_end_matches('.');
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let number = name.get(name.len() - digits..).and_then(|n| n.parse().ok());
        let own = values.iter().filter_map(|(k, &v)| Some((k.strip_prefix(&prefix)?.to_owned(), v)));
        MemoryStats { kind, device: number.filter(|_| !is_one), values: own.collect() }
    };
    prefixes.into_iter().map(set).collect()
}

/// Counters that every dictionary of their kind contains.
const TELLING: [(&str, StatsKind); 4] = [
    ("reserved_bytes.all.current", StatsKind::Device),
    ("allocated_bytes.all.current", StatsKind::Device),
    ("num_host_alloc", StatsKind::Host),
    ("host_alloc_time.count", StatsKind::Host),
];

/// Rows of the summary, and the group of each. "from large pool" rows belong to the row above them.
const METRICS: [(&str, &str); 11] = [
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Requested memory", "requested_bytes"),
    ("GPU reserved memory", "reserved_bytes"),
    ("Non-releasable memory", "inactive_split_bytes"),
    ("Allocations", "allocation"),
    ("Active allocs", "active"),
    ("GPU reserved segments", "segment"),
    ("Non-releasable allocs", "inactive_split"),
    ("Oversize allocations", "oversize_allocations"),
    ("Oversize GPU segments", "oversize_segments"),
];

/// The text above every table, after the platform's name.
const SUMMARY_TITLE: &str = "memory summary, device ID";

/// Reads the tables of `memory_summary()` anywhere in a log.
fn summaries(text: &str) -> Vec<MemoryStats> {
    let mut out: Vec<MemoryStats> = Vec::new();
    let empty = |device| MemoryStats { kind: StatsKind::Summary, device, values: BTreeMap::new() };
    let mut group: Option<&str> = None;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once(SUMMARY_TITLE) {
            let device = rest.trim().trim_end_matches('|').trim().parse().ok();
            // Figures above the table's own title belong to it.
            match out.last_mut().filter(|t| t.device.is_none() && t.values.len() <= 2) {
                Some(last) => last.device = device,
                None => out.push(empty(device)),
            }
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // The text before the first bar may be a log prefix.
        let cells = cells.get(1..cells.len().saturating_sub(1)).unwrap_or(&[]);
        match cells {
            [name, figures @ ..] if figures.len() == 4 => {
                let pool = match *name {
                    "from large pool" => "large_pool",
                    "from small pool" => "small_pool",
                    _ => {
                        group = METRICS.iter().find(|(label, _)| label == name).map(|&(_, group)| group);
                        "all"
                    }
                };
                let Some(group) = group else { continue };
                if out.is_empty() {
                    out.push(empty(None));
                }
                let Some(values) = out.last_mut().map(|t| &mut t.values) else { continue };
                let base = if group.starts_with("oversize") { group.to_owned() } else { format!("{group}.{pool}") };
                for (figure, cell) in ["current", "peak", "allocated", "freed"].iter().zip(figures) {
                    if let Some(counter) = summary_figure(cell, group.ends_with("_bytes")) {
                        values.insert(format!("{base}.{figure}"), counter);
                    }
                }
            }
            [left, right] => {
                // `CUDA OOMs: 1`, `cudaMalloc retries: 3`; other platforms use their own names in front.
                let number = |cell: &str, label: &str| cell.split_once(label)?.1.trim().parse().ok();
                for (cell, label, key) in [(left, "OOMs:", "num_ooms"), (right, "retries:", "num_alloc_retries")] {
                    let Some(value) = number(cell, label) else { continue };
                    if out.is_empty() {
                        out.push(empty(None));
                    }
                    if let Some(table) = out.last_mut() {
                        table.values.insert(key.to_owned(), Counter { value, slack: 0 });
                    }
                }
            }
            _ => {}
        }
    }
    out.retain(|t| !t.values.is_empty());
    out
}

/// Parses `12297 KiB`, `12297 KB` (up to 1.13, also 1024), `5`, `7 K` (counts, 1000); figures are rounded down.
fn summary_figure(cell: &str, is_bytes: bool) -> Option<Counter> {
    let (number, unit) = cell.split_once(' ').map_or((cell, ""), |(n, u)| (n, u.trim()));
    let number: u64 = number.parse().ok()?;
    let power = match unit.chars().next() {
        None | Some('B') => 0,
        Some('K') => 1,
        Some('M') => 2,
        Some('G') => 3,
        Some('T') => 4,
        Some('P') => 5,
        Some(_) => return None,
    };
    let unit = if is_bytes { 1024u64 } else { 1000 }.pow(power);
    Some(Counter { value: number.checked_mul(unit)?, slack: unit - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_dictionary() {
        let flat = r#"{"reserved_bytes.all.current": 2097152, "reserved_bytes.all.peak": 4194304, "reserved_bytes.all.allocated": 4194304, "reserved_bytes.all.freed": 2097152, "num_ooms": 0}"#;
        let nested = r#"{"reserved_bytes": {"all": {"current": 2097152, "peak": 4194304, "allocated": 4194304, "freed": 2097152}}, "num_ooms": 0}"#;
        let ordered = "OrderedDict([('reserved_bytes.all.current', 2097152), ('reserved_bytes.all.peak', 4194304), ('reserved_bytes.all.allocated', 4194304), ('reserved_bytes.all.freed', 2097152), ('num_ooms', 0)])";
        let expected = parse(flat).unwrap();
        assert_eq!(expected.kind, StatsKind::Device);
        assert_eq!(expected.gauge("reserved_bytes", "all").unwrap().peak.value, 4_194_304);
        assert_eq!(parse(nested).unwrap(), expected);
        assert_eq!(parse(ordered).unwrap(), expected);
        assert_eq!(parse(&flat.replace('"', "'")).unwrap(), expected);
        assert_eq!(parse("{\"a\": 1}"), None);
        assert_eq!(parse("{'unclosed"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn summaries_are_rounded_down() {
        let text = "[rank0]: |            CUDA OOMs: 1            |        cudaMalloc retries: 3         |\n\
            |                  PyTorch CUDA memory summary, device ID 2                 |\n\
            | Allocated memory      |  12297 KiB |  23554 KiB |  46089 KiB |  33792 KiB |\n\
            |       from large pool |  12288 KiB |  23552 KiB |  46080 KiB |  33792 KiB |\n\
            | Allocations           |       5    |       6    |       9    |    7 K     |\n\
            | Oversize allocations  |       0    |       0    |       0    |       0    |\n";
        let s = parse(text).unwrap();
        assert_eq!((s.kind, s.device), (StatsKind::Summary, Some(2)));
        let allocated = s.get("allocated_bytes.all.current").unwrap();
        assert!(allocated.admits(12297 * 1024 + 1023) && !allocated.admits(12298 * 1024) && !allocated.admits(12297 * 1024 - 1));
        assert_eq!(s.get("allocated_bytes.large_pool.peak").unwrap().value, 23552 * 1024);
        assert_eq!(s.get("allocation.all.freed").unwrap(), Counter { value: 7000, slack: 999 });
        assert_eq!(s.get("oversize_allocations.peak").unwrap().value, 0);
        assert_eq!(s.get("num_ooms").unwrap().value, 1);
        assert_eq!(s.get("num_alloc_retries").unwrap().value, 3);
    }

    #[test]
    fn host_counters_are_told_apart() {
        let s = parse("{\"active_bytes.current\": 131072, \"num_host_alloc\": 2, \"host_alloc_time.avg\": 1}").unwrap();
        assert_eq!(s.kind, StatsKind::Host);
    }

    #[test]
    fn several_sets_are_told_apart() {
        let set = |n: u64| format!("{{'reserved_bytes.all.current': {n}, 'allocated_bytes.all.current': {n}}}");
        let of = |text: &str| -> Vec<(Option<i32>, u64)> {
            let sets = parse_all(text);
            sets.iter().map(|s| (s.device, s.get("reserved_bytes.all.current").unwrap().value)).collect()
        };
        // By device, by a rank's name, in a group of another name, and two instants of one device.
        assert_eq!(of(&format!("{{0: {}}}", set(1))), [(None, 1)]);
        assert_eq!(of(&format!("{{'0': {}, 'cuda:1': {}}}", set(1), set(2))), [(Some(0), 1), (Some(1), 2)]);
        assert_eq!(of(&format!("{{'step': 7, 'memory': {}}}", set(3))), [(None, 3)]);
        assert_eq!(of(&format!("{{'before': {}, 'after': {}}}", set(1), set(2))), [(None, 1), (None, 2)]);
        let r = read(&format!("{{'before': {}, 'after': {}}}", set(1), set(2)), "s").unwrap();
        assert_eq!(r.stats[0].1.get("reserved_bytes.all.current").unwrap().value, 2);
        assert_eq!((r.devices.len(), r.report.warnings[0].kind, r.report.warnings[0].count), (1, WarningKind::Skipped, 1));
        // Text of a log before it.
        assert_eq!(of(&format!("it's step 3, memory: {}", set(4))), [(None, 4)]);
    }

    #[test]
    fn a_log_of_summaries_gives_the_last_of_each_device() {
        let table = |device: u32, kib: u64| {
            format!(
                "|===========================================================================|\n\
                 |                  PyTorch CUDA memory summary, device ID {device}                 |\n\
                 |            CUDA OOMs: 0            |        cudaMalloc retries: 2         |\n\
                 | GPU reserved memory   | {kib} KiB | {kib} KiB | 0 KiB | 0 KiB |\n"
            )
        };
        let text = format!("step 1\n{}step 2\n{}{}", table(0, 2048), table(0, 4096), table(1, 8192));
        let r = read(&text, "log").unwrap();
        let reserved: Vec<_> = r.stats.iter().map(|(_, s)| s.get("reserved_bytes.all.current").unwrap().value >> 10).collect();
        assert_eq!((r.devices[1].id.index, reserved), (1, vec![4096, 8192]));
        assert_eq!(r.stats[0].1.get("num_alloc_retries").unwrap().value, 2);
        assert_eq!(r.report.warnings.iter().map(|w| w.count).sum::<u64>(), 1);
        // Truncated: the part before is read.
        let whole = "{\"allocated_bytes.all.current\": 512, \"reserved_bytes.all.current\": 2097152, \"num_ooms\": 0}";
        for end in 0..whole.len() {
            if let Some(r) = read(&whole[..end], "s") {
                assert!(r.report.truncated().is_some(), "{end}");
            }
        }
        assert!(read(whole, "s").unwrap().report.warnings.is_empty());
    }
}
