//! Removes what surrounds the lines of a log: names of launchers and containers, dates, bars of frames, colours.

use super::OomMessage;

/// A line without the prefixes of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stripped<'a> {
    pub(super) rest: &'a str,
    /// The rank in a prefix.
    pub(super) rank: Option<u32>,
    /// Identifies the writer: equal for lines with the same rank, worker, container and host; 0 without any.
    pub(super) stream: u64,
}

/// Removes prefixes of launchers, test runners and mail: `[rank0]:`, `[1,3]<stderr>:`, `(Worker pid=12)`, `E   `, `> `, `* `,
/// `trainer-1  | `, a date, the bar of a frame, a colour. Also reads the rank.
pub(super) fn stripped(line: &str) -> Stripped<'_> {
    let mut out = Stripped { rest: line, rank: None, stream: 0 };
    // Each iteration removes one prefix; a line has only a few.
    for _ in 0..10 {
        let trimmed = out.rest.trim_start_matches(|c: char| c.is_whitespace() || c == '>' || c == '|' || is_frame(c));
        let colour = markup(trimmed);
        let named = || PREFIXES.iter().find_map(|pattern| prefix(trimmed, pattern));
        if let Some((rest, rank)) = named().or_else(|| worker(trimmed).map(|rest| (rest, None))) {
            out.rank = out.rank.or(rank);
            out.stream = identity(out.stream, &trimmed[..trimmed.len() - rest.len()]);
            out.rest = rest;
        } else if colour > 0 {
            out.rest = &trimmed[colour..];
        } else if let Some(rest) = timestamp(trimmed) {
            out.rest = rest;
        } else if let Some(rest) = ["* ", "# ", "• ", "E  "].iter().find_map(|mark| trimmed.strip_prefix(mark)) {
            out.rest = rest;
        } else {
            out.rest = trimmed;
            break;
        }
    }
    out
}

/// Marks the messages that end a traceback: `torch.OutOfMemoryError: …` below an indented line of code.
pub(super) fn ends_traceback(text: &str, messages: &mut [OomMessage]) {
    let mut above = "";
    let mut messages = messages.iter_mut().peekable();
    for (number, line) in (1u32..).zip(text.lines()) {
        while let Some(message) = messages.next_if(|m| m.line == number) {
            let error = stripped(line).rest.split_once(": ").map_or("", |(error, _)| error);
            let is_raised = ["Error", "Exception"].iter().any(|end| error.ends_with(end)) && !error.contains(' ');
            if is_raised && above.trim_end().contains("  ") && !above.trim().is_empty() {
                message.seen.insert(super::RAISED);
            }
        }
        if messages.peek().is_none() {
            break;
        }
        if !line.trim().is_empty() {
            above = line;
        }
    }
}

/// Marks the messages that came up while the program handled the one before: Python prints both tracebacks with one of these sentences
/// between them.
pub(super) fn continues_traceback(text: &str, messages: &mut [OomMessage]) {
    const LINKS: [&str; 2] =
        ["During handling of the above exception, another exception occurred", "The above exception was the direct cause"];
    if !LINKS.iter().any(|link| super::text::contains(text, link)) {
        return;
    }
    let is_link = |line: &str| LINKS.iter().any(|link| super::text::contains(line, link));
    let links = (1u32..).zip(text.lines()).filter(|(_, line)| is_link(line));
    for (number, line) in links {
        let rank = stripped(line).rank;
        let is_above = |m: &OomMessage| m.line < number && m.line + LINK.0 >= number && m.rank == rank;
        let below = messages.partition_point(|m| m.line < number);
        if messages[..below].iter().any(is_above)
            && let Some(next) = messages[below..].iter_mut().find(|m| m.rank == rank).filter(|m| m.line <= number + LINK.1)
        {
            next.seen.insert(super::CHAINED);
        }
    }
}

/// Lines above a link in which its first error is printed, and below it its second one, under a traceback.
const LINK: (u32, u32) = (12, 300);

/// FNV-1a hash over the letters and digits of a prefix, continuing from the prefix before.
fn identity(before: u64, prefix: &str) -> u64 {
    let start = if before == 0 { 0xcbf2_9ce4_8422_2325 } else { before };
    prefix.bytes().filter(u8::is_ascii_alphanumeric).fold(start, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Line prefixes: `#` is the rank, `@` another number, `%` a name and `+` spaces. Used by launchers of PyTorch, MPI and Horovod, `srun
/// --label`, docker compose, pdsh and DeepSpeed.
#[rustfmt::skip]
const PREFIXES: [&str; 12] = [
    "[rank#]:", "[rank#]", "[Rank#]:", "[Rank#]", "[default#]:", "[@,#]<stderr>:", "[#]<stderr>:", "[#]<stdout>:",
    "[@,#]<stdout>:", "#: ", "%+|", "@.@.@.@: ",
];

/// The rest after a prefix, and the rank in it.
fn prefix<'a>(line: &'a str, pattern: &str) -> Option<(&'a str, Option<u32>)> {
    let (mut rest, mut rank) = (line, None);
    for c in pattern.chars() {
        let is_part = |b: &u8| match c {
            '#' | '@' => b.is_ascii_digit(),
            '%' => b.is_ascii_alphanumeric() || b"-_.".contains(b),
            '+' => *b == b' ',
            _ => *b == c as u8,
        };
        let length = rest.bytes().take_while(is_part).count();
        let (length, most) = match c {
            '#' | '@' => (length, 5),
            '%' | '+' => (length, 63),
            _ => (length.min(1), 1),
        };
        if length == 0 || length > most {
            return None;
        }
        let (part, after) = rest.split_at(length);
        if c == '#' {
            rank = part.parse().ok();
        }
        rest = after;
    }
    Some((rest, rank))
}

/// Skips `(RayWorkerWrapper pid=1234, ip=…)` or `(EngineCore_0 pid=7)`.
fn worker(line: &str) -> Option<&str> {
    let (inner, rest) = line.strip_prefix('(')?.split_once(')')?;
    inner.contains("pid=").then_some(rest)
}

/// Skips `2024-05-01T12:00:00.123Z ` and similar dates.
fn timestamp(line: &str) -> Option<&str> {
    let b = line.as_bytes();
    let is_date = b.len() > 19 && b[4] == b'-' && b[7] == b'-' && b[13] == b':' && b[..4].iter().all(u8::is_ascii_digit);
    if !is_date {
        return None;
    }
    let end = b.iter().skip(11).position(|c| !(c.is_ascii_digit() || b":.,Z+-".contains(c)))?;
    line.get(11 + end..)
}

/// Box-drawing characters, with which rich and other printers frame an error. No message contains them itself.
pub(super) fn is_frame(c: char) -> bool {
    ('\u{2500}'..='\u{257f}').contains(&c)
}

/// Length of the colour code at the start of a text, or 0. Also colour codes as logs store them: `^[[31m`,
/// `\x1b[31m`, `\u001b[31m`, and `[1;31m` without the escape character.
pub(super) fn markup(text: &str) -> usize {
    if !text.starts_with(['\u{1b}', '\u{241b}', '[', '^', '\\']) {
        return 0;
    }
    const ESCAPES: [&str; 9] = ["\u{1b}", "\u{241b}", "^[", "\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033", "\\e"];
    for escape in ESCAPES {
        if let Some(rest) = text.strip_prefix(escape) {
            match control(rest) {
                0 if escape == "\u{1b}" => return escape.len(),
                0 => {}
                length => return escape.len() + length,
            }
        }
    }
    let length = control(text);
    if length > 2 && text[..length].ends_with('m') { length } else { 0 }
}

/// Length of a control sequence such as `[1;31m` at the start of a text, or 0.
fn control(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('[') else { return 0 };
    let numbers = rest.bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b';' | b'?')).count();
    if rest.as_bytes().get(numbers).is_some_and(u8::is_ascii_alphabetic) { numbers + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_go_and_ranks_stay() {
        for (line, rest, rank) in [
            ("[rank3]: RuntimeError: x", "RuntimeError: x", Some(3)),
            ("[rank12]:     y", "y", Some(12)),
            ("[1,5]<stderr>:z", "z", Some(5)),
            ("4: [rank4]: w", "w", Some(4)),
            ("E   RuntimeError", "RuntimeError", None),
            ("> > quoted", "quoted", None),
            ("(RayWorkerWrapper pid=31, ip=10.0.0.1) v", "v", None),
            ("2024-05-01T12:00:00.123Z u", "u", None),
            ("2024-05-01 12:00:00,123 - ERROR t", "- ERROR t", None),
            ("10.0.0.1: [rank3]: s", "s", Some(3)),
            ("[W 2024] kept", "[W 2024] kept", None),
        ] {
            let found = stripped(line);
            assert_eq!((found.rest.trim_start(), found.rank), (rest, rank), "{line}");
        }
    }

    #[test]
    fn lines_of_one_writer_are_known_by_their_prefix() {
        let stream = |line: &str| stripped(line).stream;
        for (a, b) in [
            ("[rank0]: x", "[rank1]: x"),
            ("0: x", "1: x"),
            ("trainer-0  | x", "trainer-1  | x"),
            ("(Worker pid=1) x", "(Worker pid=2) x"),
            ("10.0.0.1: x", "10.0.0.2: x"),
        ] {
            assert_ne!(stream(a), stream(b), "{a}");
            assert_eq!(stream(a), stream(&format!("2024-05-01T12:00:00.123Z {a}")));
            assert_eq!(stream(a), stream(&a.replace('x', "another line")));
        }
        assert_eq!(stream("x"), 0);
    }
}
