//! PyTorch's own counters as people save them: `memory_stats()` and `host_memory_stats()` as JSON or as a printed Python
//! dictionary, and the table of `memory_summary()`.
//!
//! All become the same flat keys (`allocated_bytes.all.peak`). The summary's figures are rounded down to its unit, so each
//! value keeps the most it can be off.

use std::collections::BTreeMap;
use std::path::Path;

pub use crate::model::{Counter, Gauge, MemoryStats, StatsKind};

/// No file of counters is longer; a longer one is something else.
const MOST_BYTES: u64 = 4 << 20;

/// Reads a file of counters.
///
/// # Errors
/// What is wrong with it, without its name.
pub fn open(path: &Path) -> Result<MemoryStats, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("can not be read: {}", super::why(&e)))?;
    if !meta.is_file() {
        return Err("is a folder, a pipe or a device and not a file".to_owned());
    }
    let size = meta.len();
    if size > MOST_BYTES {
        return Err("is too large to be the counters of torch.cuda.memory_stats()".to_owned());
    }
    let bytes = std::fs::read(path).map_err(|e| format!("can not be read: {e}"))?;
    parse(&String::from_utf8_lossy(&bytes)).ok_or_else(|| {
        "holds no counters of torch.cuda.memory_stats(), memory_summary() or host_memory_stats(); write them with \
         json.dump(torch.cuda.memory_stats(), file)"
            .to_owned()
    })
}

/// Reads counters from text of any of the forms; `None` when it holds none.
#[must_use]
pub fn parse(text: &str) -> Option<MemoryStats> {
    summary(text).or_else(|| dictionary(text))
}

/// JSON or a printed Python dictionary, flat or nested, also `OrderedDict([('key', 1), …])`: keys are quoted, the number after
/// one is its value, and a brace after one opens a group of that name.
fn dictionary(text: &str) -> Option<MemoryStats> {
    let bytes = text.as_bytes();
    let mut values = BTreeMap::new();
    let mut groups: Vec<String> = Vec::new();
    let mut key: Option<String> = None;
    let mut at = 0;
    while let Some(&b) = bytes.get(at) {
        at += 1;
        match b {
            b'"' | b'\'' => {
                let end = bytes[at..].iter().position(|&c| c == b)? + at;
                key = text.get(at..end).map(str::to_owned);
                at = end + 1;
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
                    values.insert(path.join("."), Counter { value, slack: 0 });
                }
                // A fraction or exponent is no counter of ours; pass it over.
                at += bytes[at..].iter().take_while(|c| matches!(c, b'.' | b'e' | b'E') || c.is_ascii_digit()).count();
            }
            // A value that is not a number.
            b'N' | b'n' | b't' | b'f' | b'T' | b'F' => key = None,
            _ => {}
        }
    }
    let is_device = values.contains_key("reserved_bytes.all.current") || values.contains_key("allocated_bytes.all.current");
    let is_host = values.contains_key("num_host_alloc") || values.contains_key("host_alloc_time.count");
    let kind = match (is_device, is_host) {
        (true, _) => StatsKind::Device,
        (false, true) => StatsKind::Host,
        (false, false) => return None,
    };
    Some(MemoryStats { kind, device: None, values })
}

/// Rows of the summary and the group each one shows. "from large pool" rows belong to the row above them.
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

/// The table of `memory_summary()`, wherever in a log it stands.
fn summary(text: &str) -> Option<MemoryStats> {
    let mut values = BTreeMap::new();
    let mut device = None;
    let mut group: Option<&str> = None;
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("memory summary, device ID") {
            device = rest.trim().trim_end_matches('|').trim().parse().ok();
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        // The text before the first bar may be a log's prefix.
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
                let base = if group.starts_with("oversize") { group.to_owned() } else { format!("{group}.{pool}") };
                for (figure, cell) in ["current", "peak", "allocated", "freed"].iter().zip(figures) {
                    if let Some(counter) = summary_figure(cell, group.ends_with("_bytes")) {
                        values.insert(format!("{base}.{figure}"), counter);
                    }
                }
            }
            [left, right] => {
                let number = |cell: &str, label: &str| cell.strip_prefix(label)?.trim().parse().ok();
                for (cell, label, key) in [(left, "CUDA OOMs:", "num_ooms"), (right, "cudaMalloc retries:", "num_alloc_retries")]
                {
                    if let Some(value) = number(cell, label) {
                        values.insert(key.to_owned(), Counter { value, slack: 0 });
                    }
                }
            }
            _ => {}
        }
    }
    (!values.is_empty()).then_some(MemoryStats { kind: StatsKind::Summary, device, values })
}

/// `12297 KiB`, `12297 KB` (up to 1.13, also 1024), `5`, `7 K` (counts, 1000): rounded down.
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
}
