//! Reads messages by the table of dialects: one engine for all programs.
//!
//! A row (`row`) is found by its words. Its `fields` are clauses separated by bars: words as the program prints them, with a `{name}`
//! for each number. A number needs a unit, except `{free#}` (bytes without one), `{free#G}` (GiB), `{free#M}` and `{free#K}` (KiB). `{_}`
//! matches any number. `<` before a clause searches before the anchor. Case and white space are ignored. Fields of a clause that
//! is not found stay unread. A clause must be near the one before it, so that no number of another line is taken; after `<<` it may
//! be far above the anchor, beyond a traceback, and after `>>` far below.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::entries::entries;
use super::row::{DIALECTS, Row, Trust};
use super::text::{Span, Window, clamped, has};
use super::{Dialect, Figure, OomMessage, Platform, ProcessUse, Writer};
use crate::units::MEBIBYTE;

/// True for fields that are not sizes: an index, or tokens.
fn is_count(name: &str) -> bool {
    matches!(name, "gpu" | "wanted" | "fits")
}

enum Part {
    Words(String),
    /// Name of a number, and the unit it has if none is printed, as a power of two; `None` if a unit must be printed.
    Number(&'static str, Option<u32>),
}

struct Clause {
    /// How far before the anchor it is searched; `None` after it.
    before: Option<usize>,
    /// It may be anywhere up to the next message.
    is_far: bool,
    parts: Vec<Part>,
}

/// A row prepared for matching.
pub(super) struct Pattern {
    pub(super) row: Row,
    anchor: String,
    near: Vec<String>,
    clauses: Vec<Clause>,
}

/// The rows, and which of them may begin with four letters.
struct Table {
    patterns: Vec<Pattern>,
    by_slot: Vec<Vec<usize>>,
    /// Sentences that several rows share.
    sentences: FxHashMap<&'static str, &'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let all = entries(&DIALECTS);
    let patterns: Vec<Pattern> = all.iter().flat_map(Row::of).map(Pattern::of).collect();
    let sentences = all.iter().filter_map(|entry| Some((entry.head, entry.lines.first()?.1))).collect();
    let mut by_slot = vec![Vec::new(); 4096];
    for (i, four) in patterns.iter().enumerate().filter_map(|(i, p)| Some((i, p.anchor.as_bytes().first_chunk()?))) {
        by_slot[slot(*four)].push(i);
    }
    Table { patterns, by_slot, sentences }
});

/// A hash below 4096.
fn slot(four: [u8; 4]) -> usize {
    (u32::from_le_bytes(four).wrapping_mul(0x9e37_79b1) >> 20) as usize
}

fn squeezed(words: &str) -> String {
    words.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect()
}

/// Every position where a message may start, with the index of its row: of those for any program (`last`), or of all others. At the same
/// position longer anchors come first.
pub(super) fn starts(low: &str, is_last: bool) -> Vec<(usize, usize)> {
    let table = &*TABLE;
    let bytes = low.as_bytes();
    let mut out = Vec::new();
    for (at, four) in bytes.windows(4).enumerate() {
        let rows = &table.by_slot[slot([four[0], four[1], four[2], four[3]])];
        if rows.is_empty() {
            continue;
        }
        let here = out.len();
        let is_here = |p: &Pattern| p.row.is("last") == is_last && bytes[at..].starts_with(p.anchor.as_bytes());
        out.extend(rows.iter().filter(|&&i| is_here(&table.patterns[i])).map(|&i| (at, i)));
        out[here..].sort_by_key(|&(_, i)| std::cmp::Reverse(table.patterns[i].anchor.len()));
    }
    out
}

/// For each start, the position of the next start that ends its message.
pub(super) fn ends(starts: &[(usize, usize)], length: usize) -> Vec<usize> {
    // For each start: the first ending start at or after it.
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

/// The sentence of an entry such as `$KILLED`.
pub(super) fn sentence(name: &str) -> &'static str {
    TABLE.sentences.get(name).copied().unwrap_or("")
}

/// Reads figures of PyTorch's allocator from a text without the beginning of the message.
pub(super) fn fragment(window: &Window<'_>) -> Option<OomMessage> {
    let row = TABLE.patterns.iter().find(|p| p.row.anchor == "CUDA out of memory")?;
    let dialect = Dialect { platform: Platform::Unknown, ..row.row.dialect };
    let mut message = OomMessage { dialect, ..OomMessage::default() };
    let ends = row.clauses.iter().filter_map(|clause| clause.read(window.own(), usize::MAX, &mut message));
    let first = ends.min().unwrap_or(0);
    let f = &message.figures;
    let is_pytorchs = f.allocated.is_some() || f.unallocated.is_some() || window.own().low.contains("reservedintotalbypytorch");
    message.line = window.squeezed.line_at(first.saturating_sub(1));
    (is_pytorchs && message.has_figures()).then_some(message)
}

/// Maximum distance between two figures.
const GAP: usize = 260;
/// The same in reports of many lines, which log prefixes make longer.
const REPORT_GAP: usize = 600;
/// How far before the anchor a clause is searched, and how far with `<<`.
const BEFORE: (usize, usize) = (600, 16_000);
/// Range before and after the anchor in which the row's `near` words must be.
const NEAR: (usize, usize) = (200, 400);
/// How much of a line may have a row's words of its own line.
const LINE: usize = 2_000;

impl Pattern {
    fn of(row: Row) -> Self {
        let clauses = row.fields.iter().copied().map(Clause::of).collect();
        let near = row.near.iter().copied().map(squeezed).collect();
        Pattern { anchor: squeezed(row.anchor), near, clauses, row }
    }

    /// True if one of the words that must be near the start of the window is there.
    pub(super) fn is_near(&self, window: &Window<'_>) -> bool {
        let (before, behind) = (window.before(NEAR.0).low, clamped(window.after().low, NEAR.1));
        let is_there = |word: &String| before.contains(word.as_str()) || behind.contains(word.as_str());
        let line = clamped(window.raw_line(), if self.row.line.is_empty() { 0 } else { LINE }).to_ascii_lowercase();
        let is_in_line = |words: &&str| words.strip_prefix('!').map_or_else(|| has(&line, words), |not| !has(&line, not));
        (self.near.is_empty() || self.near.iter().any(is_there)) && self.row.line.iter().all(is_in_line)
    }

    /// Reads the message at the start of the window; returns it with its length.
    pub(super) fn read(&'static self, window: &Window<'_>) -> Option<(OomMessage, usize)> {
        if !self.is_near(window) {
            return None;
        }
        let Row { dialect, says, ref tips, .. } = self.row;
        let mut message = OomMessage { dialect, is_warning: self.row.is("warning"), says, tips, ..OomMessage::default() };
        message.seen.extend(self.row.is("attempt").then_some("attempt"));
        let mut span = window.own();
        let is_whole = self.row.is("whole");
        if is_whole {
            span = window.after();
            let again = span.low.get(self.anchor.len()..).and_then(|rest| rest.find(self.anchor.as_str()));
            span = span.clamped(again.map_or(usize::MAX, |at| at + self.anchor.len()));
        }
        let gap = if is_whole { REPORT_GAP } else { GAP };
        let mut used = self.anchor.len();
        for clause in &self.clauses {
            if let Some(most) = clause.before {
                clause.read(window.before(most), usize::MAX, &mut message);
            } else if clause.is_far {
                clause.read(window.own(), usize::MAX, &mut message);
            } else if let [Part::Number("processes", _)] = clause.parts.as_slice() {
                used = processes(span, used, &mut message);
            } else if let Some(end) = clause.read(span, used + gap, &mut message) {
                used = used.max(end);
            }
        }
        if self.row.is("decimal") {
            message.figures.all_mut().into_iter().filter_map(|(_, slot)| slot.as_mut()).for_each(|f| *f = f.decimal());
        }
        if clamped(span.low, self.anchor.len() + 40).contains("morethan1eb") {
            message.is_absurd_request = true;
        }
        if self.row.dialect.writer == Writer::PYTORCH {
            super::pytorch::finish(window, used, &mut message);
        }
        message.line = window.squeezed.line_at(window.from);
        message.rank = window.squeezed.rank_at(window.from);
        // What a server says is missing is below zero by nature.
        if message.figures.short.is_none() {
            let own = window.own().text;
            message.negative = super::figure::negative_sizes(own.get(..used).unwrap_or(own));
        }
        // A quoted text in source code has at most a size.
        let f = &message.figures;
        let has_a_card = f.capacity.or(f.free).or(f.limit).or(f.allocated).or(f.reserved).is_some() || message.counts_tokens();
        let is_mentioned = || super::evidence::is_mentioned(window, self.row.anchor, message.has_figures());
        let is_literal = super::evidence::is_guide(window)
            || super::evidence::is_in_code(window)
            || super::evidence::is_shown(window, self.row.anchor, has_a_card)
            || !has_a_card && (is_mentioned() || super::evidence::is_source(window));
        let is_told = !is_literal
            && match self.row.trust {
                Trust::Sure => true,
                Trust::Figures if message.has_figures() || message.is_absurd_request || message.counts_tokens() => true,
                trust => super::evidence::is_reported(window, self.row.anchor, trust),
            };
        is_told.then_some((message, used))
    }
}

impl Clause {
    fn of(text: &'static str) -> Self {
        let (is_far, text) = text.strip_prefix(">>").map_or((false, text), |rest| (true, rest));
        let (before, text) = match (text.strip_prefix("<<"), text.strip_prefix('<')) {
            (Some(rest), _) => (Some(BEFORE.1), rest),
            (None, Some(rest)) => (Some(BEFORE.0), rest),
            (None, None) => (None, text),
        };
        let mut parts = Vec::new();
        for (i, piece) in text.split(['{', '}']).enumerate() {
            let (name, unit) = piece.split_once('#').map_or((piece, None), |(name, unit)| (name, Some(unit)));
            let shift = unit.map(|unit| match unit {
                "G" => 30,
                "M" => 20,
                "K" => 10,
                _ => 0,
            });
            if i % 2 == 1 {
                parts.push(Part::Number(name, if is_count(name) { Some(0) } else { shift }));
            } else if !piece.trim().is_empty() {
                parts.push(Part::Words(squeezed(piece)));
            }
        }
        Clause { before, is_far, parts }
    }

    /// Reads the first match of the clause (before an anchor: the last) within `most` bytes; returns its end.
    fn read(&self, span: Span<'_>, most: usize, message: &mut OomMessage) -> Option<usize> {
        let span = span.clamped(most);
        let (first, words, rest) = match self.parts.as_slice() {
            [Part::Number(name, unit)] => {
                set(message, name, Figure::at_end(span.text, *unit)?);
                return Some(span.low.len());
            }
            [Part::Number(name, unit), Part::Words(words), rest @ ..] => (Some((*name, *unit)), words, rest),
            [Part::Words(words), rest @ ..] => (None, words, rest),
            _ => return None,
        };
        let place = |(at, _): (usize, &str)| {
            let mut found = Vec::new();
            if let Some((name, unit)) = first {
                found.push((name, Figure::at_end(&span.text[..at], unit)?));
            }
            Some((sequence(rest, span, at + words.len(), &mut found)?, found))
        };
        let (end, found) = if self.before.is_some() && first.is_none() {
            span.low.rmatch_indices(words.as_str()).find_map(place)?
        } else {
            span.low.match_indices(words.as_str()).find_map(place)?
        };
        for (name, figure) in found {
            set(message, name, figure);
        }
        Some(end)
    }
}

/// Matches parts directly after each other; returns the end of the last one.
fn sequence(parts: &[Part], span: Span<'_>, mut at: usize, found: &mut Vec<(&'static str, Figure)>) -> Option<usize> {
    for part in parts {
        let (text, low) = (span.text.get(at..)?, span.low.get(at..)?);
        at += match part {
            Part::Words(words) => {
                low.strip_prefix(words.as_str())?;
                words.len()
            }
            Part::Number("tensor", _) => {
                let (name, number, length) = tensor(low)?;
                found.push((name, Figure::exact(number)));
                length
            }
            Part::Number("_", _) => Figure::at_start(text, Some(ANY)).map(|(_, length)| length)?,
            // "0" before a line that begins with a year is not 02024.
            Part::Number(name, _) if is_count(name) && text.starts_with('0') => {
                found.push((name, Figure::exact(0)));
                1
            }
            Part::Number(name, unit) => {
                let unitless = &text[..text.bytes().take_while(|b| b.is_ascii_digit() || *b == b',').count()];
                let (mut figure, length) = Figure::at_start(if is_count(name) { unitless } else { text }, *unit)?;
                if *name == "whole" {
                    figure.slack = 1 << 30;
                }
                found.push((name, figure));
                length
            }
        };
    }
    Some(at)
}

/// Unit assumed for a skipped number without one.
const ANY: u32 = 10;

/// Sets a figure unless it was already read. Returns false for an unknown name.
fn set(message: &mut OomMessage, name: &str, figure: Figure) -> bool {
    let f = &mut message.figures;
    match name {
        // Added to the request.
        "more" => f.requested = Some(f.requested.map_or(figure, |q| q.plus(figure))),
        // The exact request, if it was also printed rounded.
        "exact" if f.requested.is_none_or(|q| q.low() <= figure.bytes && figure.bytes <= q.high()) => f.requested = Some(figure),
        // TensorRT's number for a tactic: bytes, or MiB without a unit.
        "tactic" if figure.bytes < MEBIBYTE => {
            f.requested = f.requested.or(Some(Figure { bytes: figure.bytes << 20, slack: MEBIBYTE / 2 }));
        }
        "tactic" => f.requested = f.requested.or(Some(figure)),
        // The request truncated to whole GiB.
        "whole" if figure.bytes > 0 => f.requested = f.requested.or(Some(figure)),
        // Allocated bytes including the request.
        "total" => f.allocated = f.allocated.or(f.requested.map(|q| figure.minus(q))),
        // Bytes of the device in use by anyone: gives `free` from `capacity`, or `capacity` from `free`.
        "used" => {
            f.free = f.free.or(f.capacity.map(|capacity| capacity.minus(figure)));
            f.capacity = f.capacity.or(f.free.map(|free| figure.plus(free)));
        }
        // No machine has this many GPUs: the digits of the next line were read too.
        "gpu" => message.gpu = message.gpu.or(u32::try_from(figure.bytes).ok().filter(|n| *n < 1000)),
        "elements" => message.elements = message.elements.or(Some(figure.bytes)),
        "wanted" => message.wanted = Some(figure.bytes),
        "fits" => message.fits = Some(figure.bytes).filter(|&n| n > 0),
        "limit" if figure.is_unlimited() || figure.bytes == 0 => {}
        // Printed as 0.0 GB: how much it was is not told.
        "requested" if figure.bytes == 0 && figure.slack > 0 => {}
        "exact" | "whole" | "_" | "tensor" | "processes" => {}
        _ => match f.all_mut().into_iter().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = slot.or(Some(figure)),
            None => return false,
        },
    }
    true
}

/// `Process 77 has 12.00 GiB memory in use. Including non-PyTorch memory, this process has 10.50 GiB memory in use.`
fn processes(Span { text, low }: Span<'_>, mut used: usize, message: &mut OomMessage) -> usize {
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

/// `[8,512] and type float`: the size in bytes; without a type the number of elements. With what it is, and the length.
fn tensor(low: &str) -> Option<(&'static str, u64, usize)> {
    const WIDTHS: [(&str, u64); 5] = [
        ("complex128", 16),
        ("double|int64|complex64", 8),
        ("float|int32", 4),
        ("half|bfloat16|int16", 2),
        ("int8|uint8|bool", 1),
    ];
    let (shape, rest) = clamped(low, 300).strip_prefix('[')?.split_once(']')?;
    let elements = |width| shape.split(',').try_fold(width, |product: u64, d| product.checked_mul(d.parse().ok()?));
    let length = shape.len() + 2;
    let Some(name) = rest.strip_prefix("andtype") else { return Some(("elements", elements(1)?, length)) };
    let of_width = |&(names, width): &(&'static str, u64)| Some((names.split('|').find(|n| name.starts_with(n))?, width));
    let (name, width) = WIDTHS.iter().find_map(of_width)?;
    Some(("requested", elements(width)?, length + "andtype".len() + name.len()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::*;

    /// Every row must read its own example: alone, wrapped, in capitals and after a rank prefix.
    #[test]
    fn every_row_reads_its_example() {
        let mut wrong = Vec::new();
        for entry in entries(&DIALECTS).iter().filter(|entry| !entry.head.starts_with('$')) {
            let rows = Row::of(entry);
            let row = rows.last().unwrap_or_else(|| panic!("no row: {}", entry.head));
            let example = entry.all(">").collect::<Vec<_>>().join("\n");
            let reads = entry.all("=").collect::<String>();
            assert!(row.anchor.len() > 4 && example.len() > 5, "{}", row.anchor);
            let name = Dialect { since: None, until: None, ..row.dialect }.name();
            let words = example.split_inclusive(' ').enumerate();
            let lines: String = words.map(|(i, w)| if i % 8 == 7 { format!("{w}\n") } else { w.to_owned() }).collect();
            let ranked: String = example.lines().map(|l| format!("[rank3]: {l}\n")).collect();
            let mut texts = vec![example.clone(), format!("step 1\n{example}\nstep 2\n"), ranked, lines];
            texts.extend(rows.iter().map(|other| example.replacen(row.anchor, other.anchor, 1)));
            for (i, text) in texts.iter().enumerate() {
                // A row that needs a whole line, or an error word in the same line, may fail when the line is broken.
                if i == 3 && !matches!(row.trust, Trust::Sure | Trust::Figures) {
                    continue;
                }
                let found = super::super::find_all(text);
                let is_named = |m: &OomMessage| row.is("last") || m.dialect.name().starts_with(&name);
                if !matches!(found.as_slice(), [m] if is_named(m) && told(m) == reads && m.is_warning == row.is("warning")) {
                    let read: Vec<_> = found.iter().map(|m| (m.dialect.name(), told(m))).collect();
                    wrong.push(format!("{name} reads {read:?}, not {reads:?}: {text:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A clause with a mistyped name would never be read.
    #[test]
    fn every_clause_names_known_fields() {
        for pattern in &TABLE.patterns {
            let names = pattern.row.fields.iter().flat_map(|fields| fields.split(['{', '}']).skip(1).step_by(2));
            for name in names.map(|name| name.split('#').next().unwrap()) {
                assert!(set(&mut OomMessage::default(), name, Figure::exact(1)), "{name} of {}", pattern.row.anchor);
            }
        }
    }

    /// A mark with a mistyped name would be left out.
    #[test]
    fn every_line_has_a_known_mark() {
        for entry in entries(&DIALECTS) {
            for (mark, text) in &entry.lines {
                let marks = if entry.head.starts_with('$') { "- near fields tip" } else { "or near line fields says tip > =" };
                let is_known = marks.split(' ').any(|known| known == *mark);
                assert!(
                    is_known && (*mark == ">" || !text.is_empty() && !text.starts_with('$')),
                    "{mark} {text} of {}",
                    entry.head
                );
            }
        }
        assert!(["$KILLED", "$LOST", "$RAY_LOST"].iter().all(|name| !sentence(name).is_empty()));
    }
}
