//! RMM's `logging_resource_adaptor`: a CSV of allocations and frees written by RAPIDS programs.
//!
//! Times are times of day: they count from midnight of the first day (1970-01-01 in the recording) and continue past midnight.

use super::FormatError;
use crate::model::{
    Action, Capabilities, DeviceId, DeviceKind, DeviceRecording, EventTable, Format, Known, LoadReport, PoolId, Progress,
    Recording, Source, StackId, WarningKind,
};

const HEADER: &[u8] = b"Thread,Time,Action,Pointer,Size,Stream";
const EMPTY: &str = "this RMM log has no rows yet; RMM writes them when its buffer is full or the program ends, so let it run on, or call \
    rmm.disable_logging() before you copy the file";
const NO_SEGMENTS: Known = Known::No("RMM's log has allocations and frees only: what RMM's pools reserved is not in it.");
const DAY_US: i64 = 86_400_000_000;

/// True for the beginning of an RMM log.
pub(super) fn is_rmm(head: &[u8]) -> bool {
    head.starts_with(b"Thread,Time,Action")
}

/// Reads a log. Fails with [`FormatError::Malformed`] without RMM's header, [`FormatError::Elsewhere`] without a readable row.
pub fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    if !is_rmm(bytes) {
        let what = format!("an RMM log begins with {}", String::from_utf8_lossy(HEADER));
        return Err(FormatError::Malformed { name: name.to_owned(), offset: 0, what });
    }
    progress.set_total(bytes.len() as u64);
    let mut report = LoadReport::default();
    // RMM writes the device only into the file's name: `log.dev0.csv`.
    let index = name.split('.').find_map(|part| part.strip_prefix("dev")?.parse().ok()).unwrap_or(0);
    let id = DeviceId { kind: DeviceKind::Cuda, index };
    let can_show = Capabilities { segments: NO_SEGMENTS, ..Capabilities::default() };
    let mut device = DeviceRecording { id, can_show, ..DeviceRecording::default() };
    device.events = EventTable { has_time: true, sizes_are_blocks: true, ..EventTable::default() };
    device.pools.push((0, 0));
    device.intern_stream(0);
    let (mut day, mut last) = (0i64, i64::MIN);
    let mut offset = 0;
    for (number, line) in bytes.split(|&b| b == b'\n').enumerate() {
        let at = offset as u64;
        offset += line.len() + 1;
        if number & 0xfff == 0 {
            progress.check()?;
            progress.set_done(at);
        }
        let line = line.trim_ascii();
        if number == 0 || line.is_empty() {
            continue;
        }
        let Some(row) = Row::parse(line).filter(|row| super::has_room(row.pointer, row.size)) else {
            if offset > bytes.len() {
                report.warn(WarningKind::Truncated, Some(at), || "the last row is cut off".to_owned());
            } else {
                report.warn(WarningKind::WrongType, Some(at), || {
                    format!("rows that cannot be read were left out, the first is row {number}")
                });
            }
            continue;
        };
        let mut time = row.time + day;
        if time < last {
            if last - time > DAY_US / 2 {
                day += DAY_US;
                time += DAY_US;
            } else {
                // Threads write their rows without waiting for each other.
                report.warn(WarningKind::OutOfOrder, Some(at), || {
                    "times go back between threads; the order of the rows was kept".to_owned()
                });
                time = last;
            }
        }
        last = time;
        let stream = device.intern_stream(row.stream);
        let mut push =
            |action, address| device.events.push(time, action, address, row.size, stream, PoolId::UNKNOWN, StackId::NONE);
        match row.action {
            RowAction::Allocate => push(Action::Alloc, row.pointer),
            RowAction::Failure => push(Action::Oom, EventTable::FREE_UNKNOWN),
            RowAction::Free => {
                push(Action::FreeRequested, row.pointer);
                push(Action::FreeCompleted, row.pointer);
            }
        }
    }
    if device.events.is_empty() {
        return Err(FormatError::Elsewhere { name: name.to_owned(), what: EMPTY.to_owned() });
    }
    progress.set_done(bytes.len() as u64);
    Ok(Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::RmmLog, bytes: bytes.len() as u64 },
        devices: vec![device],
        report,
        ..Recording::default()
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowAction {
    Allocate,
    Failure,
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    time: i64,
    action: RowAction,
    pointer: u64,
    size: u64,
    stream: u64,
}

impl Row {
    fn parse(line: &[u8]) -> Option<Row> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split(',').map(str::trim);
        let (_thread, time, action, pointer, size, stream) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let action = match action {
            "allocate" => RowAction::Allocate,
            "allocate failure" => RowAction::Failure,
            "free" | "deallocate" => RowAction::Free,
            _ => return None,
        };
        Some(Row {
            time: time_of_day(time)?,
            action,
            pointer: pointer_of(pointer)?,
            size: size.parse().ok()?,
            stream: pointer_of(stream)?,
        })
    }
}

/// `HH:MM:SS.ffffff`, or `HH:MM:SS:ffffff` from older builds.
fn time_of_day(text: &str) -> Option<i64> {
    let mut parts = text.split([':', '.']);
    let mut next = || parts.next()?.parse::<i64>().ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    let fraction = parts.next().unwrap_or("0");
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) || parts.next().is_some() {
        return None;
    }
    // After a point there are decimals (`.5` is half a second), after a colon a number of microseconds.
    let is_decimal = text.contains('.');
    let micros = if is_decimal { format!("{:0<6.6}", fraction) } else { fraction.to_owned() }.parse::<i64>().ok()?;
    let in_range =
        (0..24).contains(&hours) && (0..60).contains(&minutes) && (0..61).contains(&seconds) && (0..1_000_000).contains(&micros);
    in_range.then(|| ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

/// `0x7f…`, `(nil)`, or a decimal number.
fn pointer_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text == "(nil)" || text == "nullptr" => Some(0),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
        1234,23:59:59.900000,allocate,0x7f0000000000,1024,0x0\n\
        1234,23:59:59:950000,allocate,0x7f0000000400,2048,0x55d0\n\
        99,00:00:00.000010,free,0x7f0000000000,1024,0x0\n\
        99,00:00:00.000005,free,0x7f0000000400,2048,0x55d0\n\
        99,00:00:01.000000,allocate failure,(nil),1000000,0x0\n";

    #[test]
    fn a_log_over_midnight() {
        let r = read(LOG.as_bytes(), "rmm_log.dev3.csv", &Progress::new()).unwrap();
        let d = &r.devices[0];
        assert_eq!(d.id.index, 3);
        assert_eq!(d.events.len(), 7);
        assert_eq!(d.events.time_us[2], DAY_US + 10);
        assert_eq!(d.events.time_us[4], DAY_US + 10);
        assert_eq!(d.streams, [0, 0x55d0]);
        assert_eq!((d.events.action[6], d.events.size[6], d.events.device_free(6)), (Action::Oom, 1_000_000, None));
        assert_eq!(r.report.warnings.len(), 1);
        assert_eq!(r.report.warnings[0].kind, WarningKind::OutOfOrder);
    }

    #[test]
    fn fractions_of_a_second_are_decimals() {
        let at = |fraction: i64| Some(36_000_000_000 + fraction);
        for (text, micros) in [
            ("10:00:00.5", at(500_000)),
            ("10:00:00.000005", at(5)),
            ("10:00:00.1234567", at(123_456)),
            ("10:00:00:000005", at(5)),
            ("10:00:00", at(0)),
            ("10:00:00.", None),
            ("10:00:00.5x", None),
            ("24:00:00.0", None),
        ] {
            assert_eq!(time_of_day(text), micros, "{text}");
        }
    }

    #[test]
    fn odd_rows_are_counted() {
        let r = read(format!("{LOG}1,x,free,0x0,1,0\n1,00:00:02.0,allo").as_bytes(), "t", &Progress::new()).unwrap();
        let kinds: Vec<_> = r.report.warnings.iter().map(|w| w.kind).collect();
        assert_eq!(kinds, [WarningKind::OutOfOrder, WarningKind::WrongType, WarningKind::Truncated]);
        let empty = read(b"Thread,Time,Action,Pointer,Size,Stream\n", "t", &Progress::new()).unwrap_err().to_string();
        assert!(empty.contains("rmm.disable_logging()") && !empty.contains("torch"), "{empty}");
        assert!(read(b"a,b", "t", &Progress::new()).is_err());
    }
}
