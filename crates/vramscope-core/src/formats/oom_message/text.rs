//! Text without white space, line prefixes and colour codes, with a mapping back to lines.

use std::ops::Range;

use super::prefix::{Stripped, is_frame, markup, stripped};

/// A text without white space, colour codes and log prefixes, with the origin of each part.
pub(super) struct Squeezed<'a> {
    raw: &'a str,
    pub(super) body: String,
    /// `body` in lower case, with the same byte positions.
    pub(super) low: String,
    /// Per line of the text: start in `body`, start in the raw text, rank, and more.
    lines: Vec<Line>,
}

struct Line {
    squeezed: usize,
    raw: usize,
    rank: Option<u32>,
    stream: u64,
    /// A row of a table: its other cells are no part of a message.
    is_row: bool,
}

impl<'a> Squeezed<'a> {
    pub(super) fn new(raw: &'a str) -> Self {
        let mut body = String::with_capacity(raw.len());
        let mut lines = Vec::new();
        let mut from = 0;
        for line in raw.split_inclusive('\n') {
            let Stripped { rest, rank, stream } = stripped(line);
            let is_row = line.bytes().filter(|b| *b == b'|').count() > 2;
            lines.push(Line { squeezed: body.len(), raw: from, rank, stream, is_row });
            let rest = without_frame_end(rest);
            if body.ends_with(|c: char| c.is_ascii_digit()) && begins_anew(rest.trim_start()) {
                body.push(' ');
            }
            squeeze_into(rest, &mut body);
            from += line.len();
        }
        let low = body.to_ascii_lowercase();
        Squeezed { raw, body, low, lines }
    }

    /// The end of the table cell at a position; `None` outside tables. Other cells of a row are no part of a message.
    pub(super) fn cell_end(&self, at: usize) -> Option<usize> {
        let index = self.line_index(at);
        let is_row = self.lines.get(index).is_some_and(|l| l.is_row);
        let end = self.lines.get(index + 1).map_or(self.body.len(), |l| l.squeezed);
        is_row.then(|| self.body.get(at..end).and_then(|rest| rest.find('|')).map_or(end, |bar| at + bar))
    }

    pub(super) fn line_index(&self, at: usize) -> usize {
        self.lines.partition_point(|l| l.squeezed <= at).saturating_sub(1)
    }

    /// Line number, from 1, of a position in the body.
    pub(super) fn line_at(&self, at: usize) -> u32 {
        self.line_index(at) as u32 + 1
    }

    /// A line of the raw text including its end; `None` past the last one.
    pub(super) fn raw_line(&self, index: usize) -> Option<&'a str> {
        self.lines.get(index).and_then(|line| self.raw.get(line.raw..self.raw_start(index + 1)))
    }

    /// Where a line starts in the raw text; past the last line its end.
    fn raw_start(&self, index: usize) -> usize {
        self.lines.get(index).map_or(self.raw.len(), |l| l.raw)
    }

    /// The writer of a line according to its known prefixes: equal for lines of one writer, 0 if unknown.
    pub(super) fn stream(&self, index: usize) -> u64 {
        self.lines.get(index).map_or(0, |l| l.stream)
    }

    /// True if the numbers before the lines are line numbers, not ranks.
    pub(super) fn are_counted(&self, first: usize, last: usize) -> bool {
        let numbers = self.lines.get(first..=last).unwrap_or(&[]);
        numbers.len() > 1 && numbers.windows(2).all(|pair| pair[0].rank.is_some_and(|r| pair[1].rank == Some(r + 1)))
    }

    /// Rank in the prefix of the line at a position in the body.
    pub(super) fn rank_at(&self, at: usize) -> Option<u32> {
        self.lines.get(self.line_index(at)).and_then(|l| l.rank)
    }
}

/// One message's part of the text: from its anchor to the next one, or as far as such a message can reach.
pub(super) struct Window<'a> {
    pub(super) squeezed: &'a Squeezed<'a>,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A part of the text without white space, and the same in lower case.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) text: &'a str,
    pub(super) low: &'a str,
}

impl Span<'_> {
    /// The first `most` bytes.
    pub(super) fn clamped(self, most: usize) -> Self {
        let low = clamped(self.low, most);
        Span { text: self.text.get(..low.len()).unwrap_or(""), low }
    }
}

impl<'a> Window<'a> {
    /// The message and the text up to the next one.
    pub(super) fn own(&self) -> Span<'a> {
        self.span(self.from, self.to)
    }

    /// The last `most` bytes before the anchor.
    pub(super) fn before(&self, most: usize) -> Span<'a> {
        self.span(self.from.saturating_sub(most), self.from)
    }

    /// The text from the anchor on, past other anchors.
    pub(super) fn after(&self) -> Span<'a> {
        self.span(self.from, self.from + FAR)
    }

    /// The text around the anchor on both sides, past other anchors.
    pub(super) fn near(&self) -> Span<'a> {
        self.span(self.from.saturating_sub(VICINITY), self.from + VICINITY)
    }

    fn span(&self, from: usize, to: usize) -> Span<'a> {
        Span { text: self.part(&self.squeezed.body, from, to), low: self.part(&self.squeezed.low, from, to) }
    }

    fn part(&self, of: &'a str, from: usize, to: usize) -> &'a str {
        of.get(of.ceil_char_boundary(from)..of.floor_char_boundary(to)).unwrap_or("")
    }

    /// The anchor's line in the raw text.
    pub(super) fn raw_line(&self) -> &'a str {
        self.squeezed.raw_line(self.line()).unwrap_or("")
    }

    fn line(&self) -> usize {
        self.squeezed.line_index(self.from)
    }

    /// Raw lines around the anchor's line, at most half of [`FAR`] bytes in each direction.
    pub(super) fn around(&self, before: usize, behind: usize) -> &'a str {
        let reach = self.reach(before, behind);
        self.squeezed.raw.get(reach).unwrap_or("")
    }

    /// Where these lines are in the raw text.
    pub(super) fn reach(&self, before: usize, behind: usize) -> Range<usize> {
        let start = |index| self.squeezed.raw_start(index);
        let (line, here) = (self.line(), start(self.line()));
        let from = start(line.saturating_sub(before)).max(here.saturating_sub(FAR / 2));
        let raw = self.squeezed.raw;
        raw.ceil_char_boundary(from)..raw.floor_char_boundary(start(line + behind + 1).min(here + FAR / 2))
    }

    /// Whether the message stands in a title, a heading or a first line with a blank one below it, or in a quote.
    pub(super) fn stands_in(&self) -> Option<&'static str> {
        let line = self.raw_line();
        let is_first = || self.line() == 0 && self.squeezed.raw_line(1).is_some_and(|next| next.trim().is_empty());
        match line.as_bytes() {
            [b'>', ..] => Some(super::QUOTED),
            [b'#', b' ', ..] => Some(super::TITLE),
            _ => (line.starts_with("Title:") || line.starts_with("Subject:") || is_first()).then_some(super::TITLE),
        }
    }

    /// Raw text so close that it includes a table pasted together with the message.
    pub(super) fn vicinity(&self) -> &'a str {
        let at = self.squeezed.raw_start(self.line());
        self.part(self.squeezed.raw, at.saturating_sub(VICINITY), at + 2 * VICINITY)
    }

    /// True if this message and all that is read around it stand in the text as they do at another place.
    pub(super) fn repeats(&self, other: &Window<'_>) -> bool {
        let length = (self.to - self.from).max(FAR);
        let starts = [self, other].map(|window| self.squeezed.raw_start(window.line()));
        let raw = starts.map(|at| self.squeezed.raw.as_bytes().get(at.checked_sub(ABOVE)?..at + BELOW));
        let body = [self, other].map(|w| self.squeezed.body.as_bytes().get(w.from.checked_sub(ABOVE)?..w.from + length));
        let is_same_line = starts[0] == starts[1];
        self.to - self.from == other.to - other.from
            && length < BELOW
            && body[0].is_some()
            && body[0] == body[1]
            && (is_same_line || raw[0].is_some() && raw[0] == raw[1])
    }

    /// Raw text before and after, as far as settings and a traceback may stand from a message in one log.
    pub(super) fn log(&self) -> (&'a str, &'a str) {
        let (raw, at) = (self.squeezed.raw, self.squeezed.raw_start(self.line()));
        (self.part(raw, at.saturating_sub(LOG), at), self.part(raw, at, at + LOG / 2))
    }

    /// The raw lines from the anchor's line to the window's last, at most [`REPORT`] bytes, without prefixes.
    pub(super) fn raw_lines(&self) -> impl Iterator<Item = &'a str> {
        let last = self.squeezed.line_index(self.to.saturating_sub(1).max(self.from));
        let (from, to) = (self.squeezed.raw_start(self.line()), self.squeezed.raw_start(last + 1));
        self.part(self.squeezed.raw, from, to.min(from + REPORT)).lines().map(|l| stripped(l).rest)
    }
}

/// XLA's report lists 20 buffers of some hundred bytes each. The limit keeps thousands of truncated messages from each searching
/// the whole log.
pub(super) const REPORT: usize = 32 << 10;
/// Bytes before a message (twice as many after it) that may contain a table of `nvidia-smi`.
const VICINITY: usize = 6 << 10;
/// Bytes of a log that [`Window::log`] gives: TensorFlow's allocator prints a line of each block.
const LOG: usize = 128 << 10;
/// Bytes above and below a message beyond which nothing is read that concerns it, but for [`Window::log`].
const ABOVE: usize = 16 << 10;
const BELOW: usize = 64 << 10;
/// Maximum distance from the anchor for anything that no other message ends.
const FAR: usize = 3_000;

/// Bytes that stand for themselves.
const IS_OF_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        table[byte as usize] = !matches!(byte, b',' | b'[' | b'^' | b'\\' | b'&');
        byte += 1;
    }
    table
};

/// Appends a text without white space, colour codes, and the two-character escapes of JSON or Python strings.
fn squeeze_into(text: &str, out: &mut String) {
    let mut rest = text;
    loop {
        // Most of a log is words: copy them whole.
        let word = rest.bytes().position(|b| !IS_OF_WORD[usize::from(b)]).unwrap_or(rest.len());
        out.push_str(&rest[..word]);
        rest = &rest[word..];
        let Some(c) = rest.chars().next() else { break };
        let after = &rest[c.len_utf8()..];
        if c == '&'
            && let Some((letter, after)) = entity(rest)
        {
            if letter != ' ' {
                out.push(letter);
            }
            rest = after;
            continue;
        }
        let markup = if matches!(c, '\u{1b}' | '[' | '^' | '\\' | '\u{241b}') { markup(rest) } else { 0 };
        rest = match c {
            _ if markup > 0 => &rest[markup..],
            ' ' => after,
            ',' if out.ends_with(|c: char| c.is_ascii_digit()) && is_decimal(after.chars()) => {
                out.push('.');
                after
            }
            '\\' if let Some(after) = after.trim_start_matches('\\').strip_prefix(['n', 't', 'r']) => after,
            c if c.is_whitespace() || is_frame(c) || c == '\u{200b}' || c == '\u{feff}' => after,
            c => {
                out.push(c);
                after
            }
        };
    }
}

/// True if a line begins with digits that do not continue a number of the line before: a date, a time, a version.
fn begins_anew(line: &str) -> bool {
    let (number, rest) = line.split_at(line.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count());
    let is_dotted = number.trim_end_matches('.').matches('.').count() > 1;
    is_dotted || !number.is_empty() && rest.starts_with(['-', ':', '/'])
}

/// A line without the closing bar of its frame or table.
fn without_frame_end(line: &str) -> &str {
    line.trim_end_matches(|c: char| c.is_whitespace() || c == '|')
}

/// True if two digits and a unit follow the comma, as in `4,00 GiB` (translated messages, spreadsheets). Thousands have three
/// digits, and a list has a space after its comma.
fn is_decimal(mut after: impl Iterator<Item = char>) -> bool {
    let digits = (0..2).all(|_| after.next().is_some_and(|c| c.is_ascii_digit()));
    digits && after.find(|c| !c.is_whitespace()).is_some_and(|c| matches!(c, 'K' | 'M' | 'G' | 'T'))
}

/// Decodes an HTML entity; returns the character and the rest.
fn entity(text: &str) -> Option<(char, &str)> {
    #[rustfmt::skip]
    const ENTITIES: [(&str, char); 8] = [
        ("&gt;", '>'), ("&lt;", '<'), ("&amp;", '&'), ("&quot;", '"'), ("&#39;", '\''), ("&#x27;", '\''), ("&apos;", '\''), ("&nbsp;", ' '),
    ];
    ENTITIES.iter().find_map(|&(name, c)| Some((c, text.strip_prefix(name)?)))
}

/// The groups of the first match of a regular expression, all of which must take part. It is compiled once.
macro_rules! captured {
    ($pattern:literal, $text:expr) => {{
        static PATTERN: std::sync::LazyLock<Option<regex_lite::Regex>> =
            std::sync::LazyLock::new(|| regex_lite::Regex::new($pattern).ok());
        PATTERN.as_ref().and_then(|pattern| Some(pattern.captures($text)?.extract().1))
    }};
}
pub(super) use captured;

/// True if a text has a match of a regular expression.
macro_rules! looks_like {
    ($pattern:literal, $text:expr) => {{
        static PATTERN: std::sync::LazyLock<Option<regex_lite::Regex>> =
            std::sync::LazyLock::new(|| regex_lite::Regex::new($pattern).ok());
        PATTERN.as_ref().is_some_and(|pattern| pattern.is_match($text))
    }};
}
pub(super) use looks_like;

/// True if the text contains one of the words between the bars.
pub(super) fn has(text: &str, words: &str) -> bool {
    words.split('|').any(|word| contains(text, word))
}

/// As `str::contains`, which takes ten times as long in a build without optimisation: that of `memchr` is always compiled with it.
pub(super) fn contains(text: &str, word: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some()
}

/// The first `most` bytes of a text.
pub(super) fn clamped(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_bullets_and_launchers_are_no_part_of_a_line() {
        for line in [
            "│ CUDA out  │",
            "| CUDA out |",
            "trainer-1  | CUDA out",
            "\u{1b}[36mtrainer-1  |\u{1b}[0m CUDA out",
            "* CUDA out",
            "10.0.0.1: [rank3]: CUDA out",
            "\u{1b}[36m(RayTrainWorker pid=31)\u{1b}[0m CUDA out",
            "[1;31mCUDA[0m out",
            "^[[1;31mCUDA^[[0m out",
            "\\u001b[31mCUDA\\u001b[0m out\\\\n",
        ] {
            assert_eq!(Squeezed::new(line).body, "CUDAout", "{line}");
        }
        for line in ["[12:30]x", "[m]", "a<b", "x^[y", "[3]m"] {
            assert_eq!(Squeezed::new(line).body, line);
        }
    }

    #[test]
    fn decimal_commas_are_points_and_thousands_are_not() {
        let s = Squeezed::new("4,00 GiB total; 20,00MiB; 8,589,934,592 bytes; GPU 0, 20 MiB; [1,22,33]");
        assert_eq!(s.body, "4.00GiBtotal;20.00MiB;8,589,934,592bytes;GPU0,20MiB;[1,22,33]");
    }

    #[test]
    fn a_date_below_a_number_is_no_part_of_it() {
        for next in ["2024-Jan-05 05:13:11", "12:30:01 x", "0.01.036.280 E", "10.0.0.1:80"] {
            assert!(Squeezed::new(&format!("size 512\n{next}")).body.starts_with("size512 "), "{next}");
        }
        for next in ["40 bytes", "0.00 MiB", "0.00. GPU 0", "2", "1, 2"] {
            assert!(!Squeezed::new(&format!("size 512\n{next}")).body.contains(' '), "{next}");
        }
    }

    #[test]
    fn lines_are_found_again() {
        let s = Squeezed::new("first\n[rank1]: CUDA out\n[rank1]: of memory\n");
        assert_eq!(s.body, "firstCUDAoutofmemory");
        assert_eq!(s.line_at(0), 1);
        assert_eq!(s.line_at(5), 2);
        assert_eq!(s.line_at(12), 3);
        assert_eq!(s.rank_at(6), Some(1));
    }
}
