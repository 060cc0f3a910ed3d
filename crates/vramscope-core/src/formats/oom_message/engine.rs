//! Reads messages by the table of dialects: one engine for every program.
//!
//! A row is found by its `anchor`. Its `fields` are clauses between bars: words as the program prints them with a `{name}` for each
//! number. `{free#}` may stand without a unit, and is bytes then; `{free#G}` is GiB then, `{free#K}` KiB. `{_}` is any number. `<` before a clause
//! looks before the anchor. Letters' case and white space are ignored. A clause that is not found leaves its fields unread, and none is looked
//! for far behind the one before it, so that no other line's number is taken.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::dialects::{ROWS, Trust};
use super::text::{Window, clamped};
use super::{Context, Dialect, Figure, OomMessage, Platform, ProcessUse, Release, Writer};

/// One wording of one program.
pub(super) struct Row {
    pub(super) writer: Writer,
    pub(super) platform: Platform,
    pub(super) since: Option<Release>,
    pub(super) until: Option<Release>,
    /// The words it is found by.
    pub(super) anchor: &'static str,
    /// One of these stands near it; empty where the anchor is enough.
    pub(super) near: &'static str,
    /// What each number is.
    pub(super) fields: &'static str,
    pub(super) trust: Trust,
    /// The program goes on.
    pub(super) is_warning: bool,
    /// May hold words that other messages start with.
    pub(super) is_whole: bool,
    /// What it means where its figures do not decide that.
    pub(super) says: &'static str,
    /// What to do where its program's usual advice does not fit.
    pub(super) tips: &'static [&'static str],
    /// A line as the program prints it, and what is read from it: both are tested.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) example: &'static str,
    #[cfg_attr(not(test), allow(dead_code))]
    pub(super) reads: &'static str,
}

impl Row {
    /// True for messages of several lines and many figures, which other lines may stand between.
    pub(super) fn may_stand_apart(&self) -> bool {
        matches!(self.writer, Writer::PyTorch | Writer::CudaMallocAsync) && self.trust == Trust::Figures && !self.is_warning
    }
}

macro_rules! fields {
    ($($field:ident $name:literal),*) => {
        /// What a captured number is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field { $($field,)* }

        const FIELDS: &[(&str, Field)] = &[$(($name, Field::$field),)*];
    };
}

// `more` adds to the request, `exact` is it in full where it was also printed rounded, `whole` is it cut off to whole GiB, `total` is what is
// allocated with the request in it, and `used` is all of the card that is not free, whoever holds it: it follows `free` or `capacity`.
fields!(
    Requested "requested", More "more", Exact "exact", Whole "whole", Capacity "capacity", Free "free", Limit "limit", Allocated "allocated",
    Total "total", Used "used", Pools "pools", Unallocated "unallocated", Reserved "reserved", Other "other", Largest "largest", Gpu "gpu",
    Wanted "wanted", Fits "fits", Tensor "tensor", Processes "processes", Skipped "_"
);

impl Field {
    /// No size: an index, or tokens.
    fn is_count(self) -> bool {
        matches!(self, Field::Gpu | Field::Wanted | Field::Fits)
    }
}

enum Part {
    Words(String),
    /// The unit it has where none is printed, as a power of two; `None` where one must be.
    Number(Field, Option<u32>),
}

struct Clause {
    is_before: bool,
    parts: Vec<Part>,
}

/// A row as the engine uses it.
pub(super) struct Pattern {
    pub(super) row: &'static Row,
    anchor: String,
    near: Vec<String>,
    clauses: Vec<Clause>,
}

/// The rows, and where to look for each by its first four letters.
struct Table {
    patterns: Vec<Pattern>,
    by_key: FxHashMap<u32, Vec<usize>>,
    mask: [bool; 4096],
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let patterns: Vec<Pattern> = ROWS.iter().flat_map(|rows| rows.iter()).map(Pattern::of).collect();
    let mut table = Table { by_key: FxHashMap::default(), mask: [false; 4096], patterns };
    for (i, pattern) in table.patterns.iter().enumerate() {
        if let Some(key) = key_of(pattern.anchor.as_bytes()) {
            table.by_key.entry(key).or_default().push(i);
            table.mask[slot(key)] = true;
        }
    }
    table
});

fn key_of(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_le_bytes(*four))
}

fn slot(key: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b1) >> 20) as usize
}

fn squeezed(words: &str) -> String {
    words.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect()
}

/// Every place where a message may start, with its row; of one place the longest anchor first.
pub(super) fn starts(low: &str) -> Vec<(usize, usize)> {
    let table = &*TABLE;
    let bytes = low.as_bytes();
    let mut out = Vec::new();
    for (at, four) in bytes.windows(4).enumerate() {
        let key = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        if !table.mask[slot(key)] {
            continue;
        }
        let Some(rows) = table.by_key.get(&key) else { continue };
        let here = out.len();
        out.extend(rows.iter().filter(|&&i| bytes[at..].starts_with(table.patterns[i].anchor.as_bytes())).map(|&i| (at, i)));
        out[here..].sort_by_key(|&(_, i)| std::cmp::Reverse(table.patterns[i].anchor.len()));
    }
    out
}

/// Where the next message starts that ends others, for each start.
pub(super) fn ends(starts: &[(usize, usize)], length: usize) -> Vec<usize> {
    // The first at each place or behind it.
    let mut from = vec![length; starts.len() + 1];
    for (i, &(at, index)) in starts.iter().enumerate().rev() {
        let is_end = matches!(pattern(index).row.trust, Trust::Sure | Trust::Figures);
        from[i] = if is_end { at } else { from[i + 1] };
    }
    let behind = |(i, &(at, index)): (usize, &(usize, usize))| {
        let end = at + pattern(index).anchor.len();
        let inside = starts[i..].iter().take_while(|start| start.0 < end).count();
        from[i + inside]
    };
    starts.iter().enumerate().map(behind).collect()
}

pub(super) fn pattern(index: usize) -> &'static Pattern {
    &TABLE.patterns[index]
}

/// Figures of PyTorch's allocator in a text that has lost the beginning of its message.
pub(super) fn fragment(window: &Window<'_>) -> Option<OomMessage> {
    let row = TABLE.patterns.iter().find(|p| p.row.fields == super::dialects::NATIVE)?;
    let mut message = OomMessage::new(Dialect { platform: Platform::Unknown, ..row.dialect() });
    for clause in &row.clauses {
        clause.read(window.low(), window.text(), 0, usize::MAX, &mut message);
    }
    let f = &message.figures;
    let is_pytorchs = f.allocated.is_some() || f.unallocated.is_some() || window.low().contains("reservedintotalbypytorch");
    message.line = 1;
    (is_pytorchs && message.has_figures()).then_some(message)
}

/// How far behind the last figure read another may stand.
const GAP: usize = 260;
/// The same in reports of many lines, which a log's prefixes make longer.
const REPORT_GAP: usize = 600;
/// How far before the anchor a clause looks.
const BEFORE: usize = 600;
/// Where the words stand that a row needs beside its anchor.
const NEAR: (usize, usize) = (200, 400);

impl Pattern {
    fn of(row: &'static Row) -> Self {
        let clauses = row.fields.split('|').map(str::trim).filter(|c| !c.is_empty()).map(Clause::of).collect();
        let near = row.near.split('|').map(squeezed).filter(|n| !n.is_empty()).collect();
        Pattern { row, anchor: squeezed(row.anchor), near, clauses }
    }

    fn dialect(&self) -> Dialect {
        let Row { writer, platform, since, until, .. } = *self.row;
        Dialect { writer, platform, since, until }
    }

    /// The message that starts with the window, and how much of it that takes.
    pub(super) fn read(&self, window: &Window<'_>) -> Option<(OomMessage, usize)> {
        let (before, behind) = (window.low_before(NEAR.0), clamped(window.low_after(), NEAR.1));
        if !self.near.is_empty() && !self.near.iter().any(|word| before.contains(word.as_str()) || behind.contains(word.as_str()))
        {
            return None;
        }
        let mut message = OomMessage::new(self.dialect());
        message.is_warning = self.row.is_warning;
        message.says = self.row.says;
        message.tips = self.row.tips;
        let (low, text) = if self.row.is_whole {
            let (low, text) = (window.low_after(), window.text_after());
            let again = low.get(self.anchor.len()..).and_then(|rest| rest.find(self.anchor.as_str()));
            let end = again.map_or(low.len(), |at| at + self.anchor.len());
            (clamped(low, end), clamped(text, end))
        } else {
            (window.low(), window.text())
        };
        let gap = if self.row.is_whole { REPORT_GAP } else { GAP };
        let mut used = self.anchor.len();
        for clause in &self.clauses {
            if clause.is_before {
                clause.read(window.low_before(BEFORE), window.before(BEFORE), 0, usize::MAX, &mut message);
            } else if let [Part::Number(Field::Processes, _)] = clause.parts.as_slice() {
                used = processes(low, text, used, &mut message);
            } else if let Some(end) = clause.read(low, text, 0, used + gap, &mut message) {
                used = used.max(end);
            }
        }
        if clamped(low, self.anchor.len() + 40).contains("morethan1eb") {
            message.is_absurd_request = true;
        }
        if self.row.writer == Writer::PyTorch {
            super::pytorch::finish(window, used, &mut message);
        }
        // A text in quotes of a program's source has a size at most.
        let f = &message.figures;
        let has_a_card = f.capacity.or(f.free).or(f.limit).or(f.allocated).or(f.reserved).is_some() || message.context.is_some();
        let is_literal = !has_a_card && super::evidence::is_literal(window, self.row.anchor);
        let is_told = !is_literal
            && match self.row.trust {
                Trust::Sure => true,
                Trust::Figures if message.has_figures() || message.is_absurd_request || message.context.is_some() => true,
                trust => super::evidence::is_reported(window, self.row.anchor, trust),
            };
        is_told.then_some((message, used))
    }
}

impl Clause {
    fn of(text: &str) -> Self {
        let (is_before, text) = text.strip_prefix('<').map_or((false, text), |rest| (true, rest));
        let mut parts = Vec::new();
        for (i, piece) in text.split(['{', '}']).enumerate() {
            let (name, unit) = piece.split_once('#').unwrap_or((piece, "-"));
            let unit = match unit {
                "-" => None,
                "G" => Some(30),
                "K" => Some(10),
                _ => Some(0),
            };
            let field = FIELDS.iter().find(|(known, _)| i % 2 == 1 && *known == name);
            match field {
                Some(&(_, field)) => parts.push(Part::Number(field, if field.is_count() { Some(0) } else { unit })),
                None if piece.trim().is_empty() => {}
                None => parts.push(Part::Words(squeezed(piece))),
            }
        }
        Clause { is_before, parts }
    }

    /// Reads the clause where it stands first (before an anchor: last) in so much of the text; gives where it ends.
    fn read(&self, low: &str, text: &str, from: usize, most: usize, message: &mut OomMessage) -> Option<usize> {
        let low = clamped(low, most);
        let text = text.get(..low.len())?;
        let area = low.get(from..)?;
        match self.parts.as_slice() {
            [Part::Number(field, unit)] => {
                set(message, *field, Figure::at_end(text, *unit)?);
                Some(low.len())
            }
            [Part::Number(field, unit), Part::Words(words), rest @ ..] => {
                let (figure, end, found) = area.match_indices(words.as_str()).find_map(|(at, _)| {
                    let figure = Figure::at_end(&text[..from + at], *unit)?;
                    let (end, found) = sequence(rest, text, low, from + at + words.len())?;
                    Some((figure, end, found))
                })?;
                set(message, *field, figure);
                found.into_iter().for_each(|(field, figure)| set(message, field, figure));
                Some(end)
            }
            [Part::Words(words), rest @ ..] => {
                let place = |(at, _): (usize, &str)| sequence(rest, text, low, from + at + words.len());
                let (end, found) = if self.is_before {
                    area.rmatch_indices(words.as_str()).find_map(place)?
                } else {
                    area.match_indices(words.as_str()).find_map(place)?
                };
                found.into_iter().for_each(|(field, figure)| set(message, field, figure));
                Some(end)
            }
            _ => None,
        }
    }
}

/// Reads parts one right behind the other.
fn sequence(parts: &[Part], text: &str, low: &str, mut at: usize) -> Option<(usize, Vec<(Field, Figure)>)> {
    let mut found = Vec::new();
    for part in parts {
        at += match part {
            Part::Words(words) => {
                low.get(at..)?.strip_prefix(words.as_str())?;
                words.len()
            }
            Part::Number(Field::Tensor, _) => {
                let (bytes, length) = tensor_bytes(low.get(at..)?)?;
                found.push((Field::Requested, Figure::exact(bytes)));
                length
            }
            Part::Number(Field::Skipped, _) => Figure::skip(text.get(at..)?)?,
            // "0" before a line that begins with a year is no 02024.
            Part::Number(field, _) if field.is_count() && text.get(at..)?.starts_with('0') => {
                found.push((*field, Figure::exact(0)));
                1
            }
            Part::Number(field, unit) => {
                let text = text.get(at..)?;
                let bare = || Figure::bare(text, (*unit)?);
                let (figure, length) = if field.is_count() { bare()? } else { Figure::at_start(text).or_else(bare)? };
                found.push((*field, figure));
                length
            }
        };
    }
    Some((at, found))
}

/// The first reading of a figure stays.
fn set(message: &mut OomMessage, field: Field, figure: Figure) {
    let f = &mut message.figures;
    let first = |slot: &mut Option<Figure>| *slot = slot.or(Some(figure));
    match field {
        Field::Requested => first(&mut f.requested),
        Field::More => f.requested = Some(f.requested.map_or(figure, |q| q.plus(figure))),
        Field::Exact => {
            if f.requested.is_none_or(|q| q.low() <= figure.bytes && figure.bytes <= q.high()) {
                f.requested = Some(figure);
            }
        }
        Field::Whole => f.requested = f.requested.or((figure.bytes > 0).then_some(Figure { slack: 1 << 30, ..figure })),
        Field::Capacity => first(&mut f.capacity),
        Field::Free => first(&mut f.free),
        Field::Limit => f.limit = f.limit.or(Some(figure).filter(|l| !l.is_unlimited() && l.bytes > 0)),
        Field::Allocated => first(&mut f.allocated),
        Field::Total => f.allocated = f.allocated.or(f.requested.map(|q| figure.minus(q))),
        Field::Used => {
            f.free = f.free.or(f.capacity.map(|capacity| capacity.minus(figure)));
            f.capacity = f.capacity.or(f.free.map(|free| figure.plus(free)));
        }
        Field::Pools => first(&mut f.private_pools),
        Field::Unallocated => first(&mut f.unallocated),
        Field::Reserved => first(&mut f.reserved),
        Field::Other => first(&mut f.other_allocations),
        Field::Largest => first(&mut f.largest_block),
        // No machine has so many: the next line begins with digits too.
        Field::Gpu => message.gpu = message.gpu.or(u32::try_from(figure.bytes).ok().filter(|n| *n < 1000)),
        Field::Wanted => message.context.get_or_insert_with(Context::default).wanted = Some(figure.bytes),
        Field::Fits => message.context.get_or_insert_with(Context::default).fits = Some(figure.bytes).filter(|&n| n > 0),
        Field::Tensor | Field::Processes | Field::Skipped => {}
    }
}

/// `Process 77 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 10.50 GiB memory in use.`
fn processes(low: &str, text: &str, mut used: usize, message: &mut OomMessage) -> usize {
    const IN_USE: &str = "memoryinuse";
    let mut from = 0;
    for (at, _) in low.match_indices(IN_USE) {
        let (Some(piece), Some(words)) = (text.get(from..at), low.get(from..at)) else { break };
        if at > used + GAP {
            break;
        }
        from = at + IN_USE.len();
        let (this, other) = (words.rfind("thisprocesshas"), words.rfind("process"));
        let (Some(bytes), Some(other)) = (Figure::at_end(piece, None), other) else { continue };
        let is_this = this.is_some_and(|this| other == this + "this".len());
        let digits = words.get(other + "process".len()..).unwrap_or("");
        let digits = digits.get(..digits.bytes().take_while(u8::is_ascii_digit).count()).unwrap_or("");
        message.processes.push(ProcessUse { pid: digits.parse().ok().filter(|_| !is_this), bytes, is_this });
        used = used.max(from);
    }
    used
}

/// `[8,512] and type float`: the product, when the type's width is known.
fn tensor_bytes(low: &str) -> Option<(u64, usize)> {
    const WIDTHS: [(&str, u64); 5] = [
        ("complex128", 16),
        ("double|int64|complex64", 8),
        ("float|int32", 4),
        ("half|bfloat16|int16", 2),
        ("int8|uint8|bool", 1),
    ];
    let (shape, rest) = clamped(low, 300).strip_prefix('[')?.split_once(']')?;
    let name = rest.strip_prefix("andtype")?;
    let of_width = |&(names, width): &(&'static str, u64)| Some((names.split('|').find(|n| name.starts_with(n))?, width));
    let (name, width) = WIDTHS.iter().find_map(of_width)?;
    let bytes = shape.split(',').try_fold(width, |product: u64, d| product.checked_mul(d.parse().ok()?))?;
    Some((bytes, shape.len() + 2 + "andtype".len() + name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a message reads as, in one line: `requested 20.00 MiB, free 1.20 MiB, gpu 0`.
    fn told(m: &OomMessage) -> String {
        let f = &m.figures;
        let mut out: Vec<String> = [
            ("requested", f.requested),
            ("capacity", f.capacity),
            ("free", f.free),
            ("limit", f.limit),
            ("allocated", f.allocated),
            ("pools", f.private_pools),
            ("unallocated", f.unallocated),
            ("reserved", f.reserved),
            ("other", f.other_allocations),
            ("largest", f.largest_block),
        ]
        .into_iter()
        .filter_map(|(name, figure)| Some(format!("{name} {}", figure?.printed())))
        .collect();
        out.extend(
            m.context
                .into_iter()
                .flat_map(|c| [c.wanted.map(|n| format!("wanted {n}")), c.fits.map(|n| format!("fits {n}"))])
                .flatten(),
        );
        out.extend(m.gpu.map(|gpu| format!("gpu {gpu}")));
        out.extend(
            m.processes
                .iter()
                .map(|p| format!("{} {}", p.pid.map_or("this".to_owned(), |pid| format!("pid {pid}")), p.bytes.printed())),
        );
        out.extend(m.is_absurd_request.then(|| "absurd".to_owned()));
        out.join(", ")
    }

    /// Every row reads its own example, alone, wrapped, in capitals and behind a rank's prefix.
    #[test]
    fn every_row_reads_its_example() {
        let mut wrong = Vec::new();
        for row in ROWS.iter().flat_map(|rows| rows.iter()) {
            let name = Dialect { writer: row.writer, platform: row.platform, since: None, until: None }.name();
            let lines: String = row
                .example
                .split_inclusive(' ')
                .enumerate()
                .map(|(i, w)| if i % 8 == 7 { format!("{w}\n") } else { w.to_owned() })
                .collect();
            let ranked: String = row.example.lines().map(|l| format!("[rank3]: {l}\n")).collect();
            let texts = [row.example.to_owned(), format!("step 1\n{}\nstep 2\n", row.example), ranked, lines];
            for (i, text) in texts.iter().enumerate() {
                // Words of a whole line, or beside an error, may not be told when the line is broken.
                if i == 3 && !matches!(row.trust, Trust::Sure | Trust::Figures) {
                    continue;
                }
                let found = super::super::find_all(text);
                let [m] = found.as_slice() else {
                    wrong.push(format!(
                        "{name}: {} messages in {text:?}: {:?}",
                        found.len(),
                        found.iter().map(|m| m.dialect.name()).collect::<Vec<_>>()
                    ));
                    continue;
                };
                if !m.dialect.name().starts_with(&name) || told(m) != row.reads || m.is_warning != row.is_warning {
                    wrong.push(format!("{name}: {} reads {:?}, not {:?}: {text:?}", m.dialect.name(), told(m), row.reads));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A clause whose name is mistyped would never be read.
    #[test]
    fn every_clause_names_known_fields() {
        for row in ROWS.iter().flat_map(|rows| rows.iter()) {
            for name in row.fields.split(['{', '}']).skip(1).step_by(2) {
                let name = name.split('#').next().unwrap();
                assert!(FIELDS.iter().any(|(known, _)| *known == name), "{name} of {}", row.anchor);
            }
            assert!(row.anchor.len() > 5 && row.example.len() > 5, "{}", row.anchor);
        }
    }
}
