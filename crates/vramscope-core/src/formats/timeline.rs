//! `prof.export_memory_timeline`: bytes by category over time, as plotted (`.json`) or event by event (`.raw.json.gz`).
//!
//! Neither form names its device. The plot has only sums. The raw form has sizes and categories but no addresses: a free ends the
//! youngest allocation of the same size and category, which is a guess, and addresses are invented to keep allocations apart.
//! Sums and categories are exact.

use rustc_hash::FxHashMap;

use super::FormatError;
use crate::model::{
    Action, CATEGORIES, Capabilities, CategoryBands, DeviceId, DeviceKind, DeviceRecording, EventTable, Format, Known,
    LoadReport, Note, NoteKind, PoolId, Progress, Recording, Sample, Source, StackId, StackTableBuilder, StrId, StreamId,
    WarningKind,
};

const CAN_SHOW: Capabilities = Capabilities {
    requested: Known::Yes,
    addresses: super::FREES_ARE_GUESSED,
    segments: Known::No("A memory timeline has no segments. A memory snapshot has them."),
};

/// Epoch times from here on are nanoseconds (2.1 and the raw form), smaller ones microseconds (2.2 and later).
const NANOSECONDS_FROM: i64 = 100_000_000_000_000_000;

/// True for the beginning of a memory timeline: a list of lists of numbers.
pub(super) fn is_timeline(head: &[u8]) -> bool {
    let mut tokens = Tokens { bytes: head, at: 0 };
    matches!((tokens.next(), tokens.next(), tokens.next()), (Some(Token::Open), Some(Token::Open), Some(Token::Number(_))))
}

/// Reads a memory timeline of either form. Fails with [`FormatError::Empty`] when it has no rows, [`FormatError::Malformed`] when
/// it is not a list of lists of numbers.
pub fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    let malformed =
        |at: usize, what: &str| FormatError::Malformed { name: name.to_owned(), offset: at as u64, what: what.to_owned() };
    progress.set_total(bytes.len() as u64);
    let mut tokens = Tokens { bytes, at: 0 };
    if tokens.next() != Some(Token::Open) || tokens.next() != Some(Token::Open) {
        return Err(malformed(tokens.at, "a memory timeline begins with [["));
    }
    let mut report = LoadReport::default();
    let first = tokens.numbers();
    let (comma, bracket, third) = (Some(Token::Open), tokens.next(), tokens.next());
    let is_plot = bracket == comma && third == Some(Token::Open);
    let mut table = StackTableBuilder::new();
    let id = DeviceId { kind: DeviceKind::Other, index: 0 };
    let mut device = DeviceRecording { id, can_show: CAN_SHOW, ..DeviceRecording::default() };
    if is_plot {
        plot(&first.values, &mut tokens, &mut device, &mut report, progress)?;
    } else {
        let mut tokens = Tokens { bytes, at: 0 };
        tokens.next();
        raw(&mut tokens, &mut device, &mut report, &mut table, progress)?;
    }
    if device.bands.is_empty() && (!first.is_closed || report.truncated().is_some()) {
        return Err(malformed(bytes.len(), "the memory timeline is cut short before its first figure"));
    }
    if device.bands.is_empty() {
        return Err(FormatError::Elsewhere {
            name: name.to_owned(),
            what: "this memory timeline has no rows; profile at least one step before export_memory_timeline()".to_owned(),
        });
    }
    let bands = &mut device.bands;
    if !bands.time_us.is_sorted() {
        out_of_order(&mut report);
        let mut rows: Vec<_> = std::mem::take(&mut bands.time_us).into_iter().zip(std::mem::take(&mut bands.bytes)).collect();
        rows.sort_by_key(|r| r.0);
        (bands.time_us, bands.bytes) = rows.into_iter().unzip();
    }
    device.samples = samples(&device.bands);
    progress.set_done(bytes.len() as u64);
    Ok(Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::MemoryTimeline, bytes: bytes.len() as u64 },
        devices: vec![device],
        stacks: table.finish(),
        report,
        ..Recording::default()
    })
}

fn truncated(report: &mut LoadReport, at: usize) {
    report.warn(WarningKind::Truncated, Some(at as u64), || {
        "the timeline ends in the middle; what came before was read".to_owned()
    });
}

fn out_of_order(report: &mut LoadReport) {
    report.warn(WarningKind::OutOfOrder, None, || "times go back; the rows were sorted".to_owned());
}

fn microseconds(time: i64) -> i64 {
    if time.unsigned_abs() >= NANOSECONDS_FROM as u64 { time.div_euclid(1_000) } else { time }
}

/// Reads `[times, rows]`, from inside the first row. Column 0 of a row is a baseline that is always 0.
fn plot(
    times: &[i64],
    tokens: &mut Tokens<'_>,
    device: &mut DeviceRecording,
    report: &mut LoadReport,
    progress: &Progress,
) -> Result<(), FormatError> {
    let bands = &mut device.bands;
    for (i, &time) in times.iter().enumerate() {
        if i & 0xfff == 0 {
            progress.check()?;
            progress.set_done(tokens.at as u64);
        }
        let row = tokens.numbers();
        if !row.is_closed {
            truncated(report, tokens.at);
            return Ok(());
        }
        if row.values.len() != CATEGORIES.len() + 1 {
            report.warn(WarningKind::WrongType, Some(tokens.at as u64), || {
                format!("rows of {} columns instead of {} were filled up or cut", row.values.len(), CATEGORIES.len() + 1)
            });
        }
        let mut out = [0u64; CATEGORIES.len()];
        for (slot, &value) in out.iter_mut().zip(row.values.iter().skip(1)) {
            *slot = (value.max(0) as u64).min(super::MAX_BYTES);
        }
        bands.time_us.push(microseconds(time));
        bands.bytes.push(out);
        if tokens.next() != Some(Token::Open) {
            let missing = times.len() - i - 1;
            if missing > 0 {
                truncated(report, tokens.at);
            }
            return Ok(());
        }
    }
    Ok(())
}

mod raw_action {
    pub(super) const PREEXISTING: i64 = 1;
    pub(super) const CREATE: i64 = 2;
    pub(super) const INCREMENT_VERSION: i64 = 3;
    pub(super) const DESTROY: i64 = 4;
}

/// Live allocations by size and category.
#[derive(Default)]
pub(super) struct Live {
    by_kind: FxHashMap<(u64, usize), Vec<u64>>,
    next: u64,
}

impl Live {
    pub(super) fn add(&mut self, size: u64, category: usize) -> u64 {
        let address = self.unused(size);
        self.by_kind.entry((size, category)).or_default().push(address);
        address
    }

    /// An address above every address given so far. The file has none.
    pub(super) fn unused(&mut self, size: u64) -> u64 {
        // Far enough apart that no two blocks overlap; the first is not 0.
        let address = self.next.saturating_add(512);
        self.next = address.saturating_add(size.checked_next_multiple_of(512).unwrap_or(size));
        address
    }

    /// Removes the youngest allocation of this size and category, otherwise of this size.
    pub(super) fn take(&mut self, size: u64, category: usize) -> Option<u64> {
        let exact = self.by_kind.get_mut(&(size, category)).and_then(Vec::pop);
        exact.or_else(|| (0..CATEGORIES.len()).find_map(|c| self.by_kind.get_mut(&(size, c)).and_then(Vec::pop)))
    }
}

/// Reads `[[time, action, bytes, category], …]`, from before the first row.
fn raw(
    tokens: &mut Tokens<'_>,
    device: &mut DeviceRecording,
    report: &mut LoadReport,
    table: &mut StackTableBuilder,
    progress: &Progress,
) -> Result<(), FormatError> {
    let mut rows: Vec<(i64, i64, i64, usize)> = Vec::new();
    loop {
        match tokens.next() {
            Some(Token::Open) => {}
            Some(Token::Close) => break,
            _ => {
                truncated(report, tokens.at);
                break;
            }
        }
        let row = tokens.numbers();
        if !row.is_closed {
            truncated(report, tokens.at);
            break;
        }
        if let [time, action, bytes, category] = row.values[..] {
            if bytes.unsigned_abs() > super::MAX_BYTES {
                report.warn(WarningKind::WrongType, Some(tokens.at as u64), || {
                    format!("rows of {} bytes, which no device has, were left out", crate::units::count(bytes.unsigned_abs()))
                });
                continue;
            }
            let category = usize::try_from(category).unwrap_or(usize::MAX).min(CATEGORIES.len() - 1);
            rows.push((time, action, bytes, category));
        } else {
            report.warn(WarningKind::WrongType, Some(tokens.at as u64), || {
                "rows that are not [time, action, bytes, category] were left out".to_owned()
            });
        }
        if rows.len() & 0xfff == 0 {
            progress.check()?;
            progress.set_done(tokens.at as u64);
        }
    }
    let begin = rows.iter().map(|r| r.0).filter(|&t| t >= 0).min().unwrap_or(0);
    for row in &mut rows {
        row.0 = if row.0 < 0 { begin } else { row.0 };
    }
    if !rows.is_sorted_by_key(|r| r.0) {
        out_of_order(report);
        rows.sort_by_key(|r| r.0);
    }
    let mut builder = RawBuilder {
        live: Live::default(),
        sums: [0; CATEGORIES.len()],
        names: CATEGORIES.map(|c| table.string(c)),
        stream: device.intern_stream(0),
        pending: None,
        instant: None,
        unmatched: 0,
        unknown: 0,
    };
    device.pools.push((0, 0));
    device.events = EventTable { has_time: true, sizes_are_blocks: true, ..EventTable::default() };
    device.can_show.requested = super::WHOLE_BLOCKS;
    for &(time, action, bytes, category) in &rows {
        builder.row(time, action, bytes, category, device);
    }
    report.warn_many(WarningKind::NoAddresses, u64::from(!device.events.is_empty()), None, || {
        "this file has no addresses; which of several equal allocations a free ends is a guess (the youngest), sums and categories \
         are exact"
            .to_owned()
    });
    report.warn_many(WarningKind::UnmatchedFree, builder.unmatched, None, || {
        "frees or category changes of sizes of which nothing is live; sums by category stay exact".to_owned()
    });
    report.warn_many(WarningKind::UnknownAction, builder.unknown, None, || {
        "rows with an action this version does not know".to_owned()
    });
    Ok(())
}

struct RawBuilder {
    live: Live,
    sums: [i64; CATEGORIES.len()],
    names: [StrId; CATEGORIES.len()],
    stream: StreamId,
    /// The first half of a category change: size and old category.
    pending: Option<(u64, usize)>,
    /// Time of the last row, as in the file.
    instant: Option<i64>,
    unmatched: u64,
    unknown: u64,
}

impl RawBuilder {
    fn row(&mut self, instant: i64, action: i64, bytes: i64, category: usize, device: &mut DeviceRecording) {
        let size = bytes.unsigned_abs();
        let time = microseconds(instant);
        let stream = self.stream;
        let events = &mut device.events;
        let mut push = |action, address| events.push(time, action, address, size, stream, PoolId::UNKNOWN, StackId::NONE);
        let mut noted = true;
        match action {
            raw_action::PREEXISTING | raw_action::CREATE => push(Action::Alloc, self.live.add(size, category)),
            raw_action::INCREMENT_VERSION if bytes < 0 => {
                self.pending = Some((size, category));
                noted = false;
            }
            raw_action::INCREMENT_VERSION => {
                let from = self.pending.take().filter(|&(s, _)| s == size).map(|(_, c)| c);
                noted = from.is_some_and(|from| from != category);
                if noted {
                    match self.live.take(size, from.unwrap_or(category)) {
                        Some(address) => {
                            self.live.by_kind.entry((size, category)).or_default().push(address);
                            push(Action::Annotate, address);
                        }
                        None => {
                            self.unmatched += 1;
                            noted = false;
                        }
                    }
                }
            }
            raw_action::DESTROY => {
                noted = false;
                match self.live.take(size, category) {
                    Some(address) => {
                        push(Action::FreeRequested, address);
                        push(Action::FreeCompleted, address);
                    }
                    None => self.unmatched += 1,
                }
            }
            _ => {
                self.unknown += 1;
                return;
            }
        }
        if noted {
            let event = events.len() as u32 - 1;
            events.notes.push(Note { event, kind: NoteKind::Category, text: self.names[category] });
        }
        self.sums[category] = self.sums[category].saturating_add(bytes);
        let row = self.sums.map(|sum| sum.max(0) as u64);
        let bands = &mut device.bands;
        // Rows with the same time form one state, because a category change has two rows. Different times may share a microsecond.
        if self.instant.replace(instant) == Some(instant) {
            if let Some(last) = bands.bytes.last_mut() {
                *last = row;
            }
        } else {
            bands.time_us.push(time);
            bands.bytes.push(row);
        }
    }
}

/// The sum of all categories after each row, without repetitions.
fn samples(bands: &CategoryBands) -> Vec<Sample> {
    let mut out: Vec<Sample> = Vec::new();
    for (&time_us, row) in bands.time_us.iter().zip(&bands.bytes) {
        let allocated = Some(row.iter().fold(0u64, |sum, &b| sum.saturating_add(b)));
        if out.last().is_none_or(|s| s.allocated != allocated) {
            out.push(Sample { time_us, allocated, ..Sample::default() });
        }
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Number(i64),
}

/// Reads brackets and numbers; skips white space and commas.
struct Tokens<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Numbers {
    values: Vec<i64>,
    is_closed: bool,
}

impl Tokens<'_> {
    fn next(&mut self) -> Option<Token> {
        loop {
            let &b = self.bytes.get(self.at)?;
            match b {
                b'[' => {
                    self.at += 1;
                    return Some(Token::Open);
                }
                b']' => {
                    self.at += 1;
                    return Some(Token::Close);
                }
                b'-' | b'0'..=b'9' => return Some(Token::Number(self.number())),
                b' ' | b',' | b'\n' | b'\r' | b'\t' => self.at += 1,
                _ => return None,
            }
        }
    }

    /// An integer; a fraction is cut off, and a value out of range saturates.
    fn number(&mut self) -> i64 {
        let from = self.at;
        self.at += 1;
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-')).count();
        let text = std::str::from_utf8(&self.bytes[from..self.at]).unwrap_or("");
        text.parse().unwrap_or_else(|_| text.parse::<f64>().map_or(0, |f| f as i64))
    }

    /// The numbers up to the bracket that closes this list.
    fn numbers(&mut self) -> Numbers {
        let mut values = Vec::new();
        loop {
            match self.next() {
                Some(Token::Number(n)) => values.push(n),
                Some(Token::Close) => return Numbers { values, is_closed: true },
                _ => return Numbers { values, is_closed: false },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Recording {
        read(text.as_bytes(), "t", &Progress::new()).unwrap()
    }

    #[test]
    fn plots_of_both_units() {
        let rows = "[[0,4096,0,0,0,0,0,0,0],[0,4096,0,512,0,0,0,0,0],[0,4096,0,512,0,256,0,0,0]]";
        for times in [
            "[1795226169585753,1795226169589077,1795226169589789]",
            "[1795226169585753000,1795226169589077000,1795226169589789000]",
        ] {
            let r = load(&format!("[{times}, {rows}]"));
            let d = &r.devices[0];
            assert_eq!(d.bands.time_us, [1_795_226_169_585_753, 1_795_226_169_589_077, 1_795_226_169_589_789]);
            assert_eq!(d.bands.bytes[2], [4096, 0, 512, 0, 256, 0, 0, 0]);
            assert_eq!(d.bands.peak(), Some((2, 4864)));
            assert_eq!(d.bands.at(1_795_226_169_589_078), Some(&[4096, 0, 512, 0, 0, 0, 0, 0]));
            assert_eq!(d.samples.last().unwrap().allocated, Some(4864));
            assert!(r.report.warnings.is_empty());
        }
    }

    #[test]
    fn raw_rows_become_allocations_by_category() {
        let t = 1_795_226_169_000_000_000i64;
        let r = load(&format!(
            "[[-1,1,4096,0],[{},2,512,7],[{},3,-512,7],[{},3,512,4],[{},2,256,5],[{},3,-256,5],[{},3,256,5],[{},4,-512,4],[{},4,-64,2]]",
            t,
            t + 1000,
            t + 1000,
            t + 2000,
            t + 3000,
            t + 3000,
            t + 4000,
            t + 5000
        ));
        let d = &r.devices[0];
        use Action::{Alloc, Annotate, FreeCompleted, FreeRequested};
        assert_eq!(d.events.action, [Alloc, Alloc, Annotate, Alloc, FreeRequested, FreeCompleted]);
        assert_eq!(d.events.address[1], d.events.address[5]);
        let notes: Vec<_> = d.events.notes.iter().map(|n| (n.event, r.stacks.text(n.text))).collect();
        assert_eq!(notes, [(0, "parameter"), (1, "unknown"), (2, "activation"), (3, "gradient")]);
        assert_eq!(d.bands.time_us[0], t / 1000);
        assert_eq!(d.bands.bytes[1], [4096, 0, 0, 0, 512, 0, 0, 0]);
        let kinds: Vec<_> = r.report.warnings.iter().map(|w| w.kind).collect();
        assert_eq!(kinds, [WarningKind::NoAddresses, WarningKind::UnmatchedFree]);
    }

    #[test]
    fn broken_timelines_give_what_they_have() {
        let whole = "[[1000,1000,1005],[[0,4096,0,0,0,0,0,0,0],[0,4096,0,512,0,0,0,0,0],[0,4096,0,512,0,256,0,0,0]]]";
        for end in 0..whole.len() {
            if let Ok(r) = read(&whole.as_bytes()[..end], "t", &Progress::new()) {
                assert!(r.devices[0].bands.len() <= 3);
            }
        }
        for (text, words) in [
            (&b"[[],[]]"[..], "has no rows; profile"),
            (b"[[1000,1000,10", "cut short"),
            (b"[[1000,1000,1005],[[0,40", "cut short"),
        ] {
            let error = read(text, "t", &Progress::new()).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("or;"), "{error}");
        }
        assert!(read(b"{}", "t", &Progress::new()).is_err());
        let huge = "[[1,2,9223372036854775807,0],[2,2,9223372036854775807,0],[3,2,9223372036854775807,1],[4,4,-9223372036854775808,0],[5,2,512,0]]";
        let r = load(huge);
        let left_out = r.report.warnings.iter().find(|w| w.kind == WarningKind::WrongType).map(|w| w.count);
        assert_eq!((r.devices[0].bands.len(), left_out), (1, Some(4)));
        assert!(is_timeline(b" [ [ 1, 2"));
        assert!(!is_timeline(b"[{\"a\": 1"));
    }
}
