//! Messages whose lines are separated in a log: each line has a prefix that is specific to the log (a logger's, a line number,
//! the syntax around a JSON string), or lines of another rank lie in between.
//!
//! Nothing is known about such a prefix: whatever the message's lines have in common is tried as one, and the reading with the
//! fewest missing figures wins.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::OomMessage;
use super::engine::{self, Pattern};
use super::prefix::stripped;
use super::text::{Squeezed, Window};

/// Maximum extent of a message in lines, including lines of other writers in between.
const MOST_LINES: usize = 240;
/// Maximum extent in bytes.
const MOST_BYTES: usize = 48 << 10;
/// The writer's next line must be among this many following lines.
const NEAR: usize = 16;
/// Penalty for a missing request: without it other figures are worth little.
const NO_REQUEST: usize = 100;
/// Most messages begin with this.
const HEAD: &str = "out of memory";
/// Number of prefix lengths to try: the longest may include a word of the message.
const MOST_LENGTHS: usize = 4;

/// Budget in bytes for repeated readings over a whole text. Without it a log of thousands of truncated messages would take
/// minutes. When it is used up, messages are read as they stand.
pub(super) fn budget(bytes: usize) -> usize {
    (16 << 20) + bytes.saturating_mul(8)
}

/// A message assembled from lines that have a prefix or are not adjacent.
pub(super) struct Regrouped {
    pub(super) message: OomMessage,
    /// The lines of the text that it uses.
    pub(super) lines: BTreeSet<usize>,
}

/// A line without known prefixes.
#[derive(Clone, Copy)]
struct Line<'a> {
    index: usize,
    stream: u64,
    rest: &'a str,
}

/// Reads the message at `at` again from the lines that belong to it. `None` if the plain reading, which uses `used` bytes, is as
/// good.
pub(super) fn regroup(
    squeezed: &Squeezed<'_>,
    at: usize,
    pattern: &'static Pattern,
    plain: &OomMessage,
    used: usize,
    left: &mut usize,
) -> Option<Regrouped> {
    let first = squeezed.line_index(at);
    let last = squeezed.line_index((at + used).saturating_sub(1));
    if last == first && lacking(plain) == 0 || *left == 0 {
        return None;
    }
    let lines = lines_from(squeezed, first);
    let bytes: usize = lines.iter().map(|l| l.rest.len()).sum();
    // A log that contains only the first words has nothing more to find.
    if plain.figures.requested.is_none()
        && !lines.iter().take(NEAR).any(|l| ["Tried", "Requested"].iter().any(|word| l.rest.contains(word)))
    {
        return None;
    }
    let own = lines.first()?.stream;
    let of_writer: Vec<Line<'_>> = lines.iter().copied().filter(|l| l.stream == own).collect();
    let is_mixed = of_writer.len() < lines.len();
    *left = left.saturating_sub(bytes);
    // Per reading: the figures missing, and the bytes left out. Of equal readings the one that leaves out more wins, because
    // `train.py:12` before a line is no part of a figure. The plain reading comes first.
    let mut readings = vec![(lacking(plain), Reverse(0), None)];
    let mut read = |base: &[Line<'_>], length: usize, is_blind: bool| {
        *left = left.saturating_sub(bytes);
        let Some(found) = read_group(&under_prefix(base, length, is_blind), pattern) else { return };
        // With other writers' lines in between, the plain reading may have used their figures.
        let is_apart = length == 0 && found.lines.last().is_some_and(|l| l - first >= found.lines.len());
        let left_out = if found.lines.len() > 1 { 2 * length } else { 0 }.max(usize::from(is_apart));
        readings.push((lacking(&found.message), Reverse(left_out), Some(found)));
    };
    if is_mixed {
        read(&of_writer, 0, false);
    }
    for is_blind in [false, true] {
        for base in if is_mixed { vec![&of_writer, &lines] } else { vec![&lines] } {
            for length in shared_prefixes(base, is_blind) {
                read(base, length, is_blind);
            }
        }
    }
    readings.into_iter().min_by_key(|(lacking, left_out, _)| (*lacking, *left_out)).and_then(|(.., found)| found)
}

/// The lines within reach of a message, up to the next line of the same writer that starts a message in the same way.
fn lines_from<'a>(squeezed: &Squeezed<'a>, first: usize) -> Vec<Line<'a>> {
    let mut out: Vec<Line<'a>> = Vec::new();
    let mut bytes = 0;
    let mut head = "";
    for index in first..first + MOST_LINES {
        let Some(raw) = squeezed.raw_line(index) else { break };
        let (rest, stream) = (stripped(raw).rest.trim_end(), squeezed.stream(index));
        let start = rest.find(HEAD).and_then(|at| rest.get(..at)).unwrap_or("");
        bytes += raw.len();
        let is_next = !head.is_empty() && start == head && out.first().is_some_and(|l| l.stream == stream);
        if !out.is_empty() && (bytes > MOST_BYTES || is_next) {
            break;
        }
        if out.is_empty() {
            head = start;
        }
        out.push(Line { index, stream, rest });
    }
    out
}

/// How much of a message is missing: figures that its form always has, or the request.
fn lacking(message: &OomMessage) -> usize {
    let f = &message.figures;
    let is_empty = f.requested.is_none() && !message.is_absurd_request;
    message.unread().len() + if is_empty { NO_REQUEST } else { 0 }
}

/// Reads the message that starts in the first line of a group.
fn read_group(group: &[(usize, &str)], pattern: &'static Pattern) -> Option<Regrouped> {
    let joined = group.iter().map(|(_, rest)| *rest).collect::<Vec<_>>().join("\n");
    let squeezed = Squeezed::new(&joined);
    let starts = engine::starts(&squeezed.low, false);
    let i = starts.iter().position(|&(_, index)| std::ptr::eq(engine::pattern(index), pattern))?;
    let at = starts[i].0;
    if squeezed.line_index(at) > 0 {
        return None;
    }
    let to = engine::ends(&starts, squeezed.body.len())[i];
    let window = Window { squeezed: &squeezed, from: at, to };
    let (message, used) = pattern.read(&window)?;
    let last = squeezed.line_index((at + used).saturating_sub(1));
    let lines = group.get(..=last)?.iter().map(|&(index, _)| index).collect();
    Some(Regrouped { message, lines })
}

/// Lengths of prefixes that the first line shares with one of the following lines, before its message begins; longest first. With
/// `is_blind` all numbers count as equal, such as dates and line numbers.
fn shared_prefixes(lines: &[Line<'_>], is_blind: bool) -> Vec<usize> {
    let Some(first) = lines.first().map(|l| l.rest) else { return Vec::new() };
    let head = [HEAD, "Allocation on device"].iter().filter_map(|mark| first.find(mark)).min();
    let most = head.unwrap_or(first.len());
    let lengths: BTreeSet<usize> = lines
        .iter()
        .skip(1)
        .take(NEAR)
        .map(|line| {
            let mut length = shared(first.as_bytes(), line.rest.as_bytes(), is_blind).0.min(most);
            // Two lines that begin with the same word of the message share no prefix.
            while length > 0 && (!first.is_char_boundary(length) || first[..length].ends_with(|c: char| c.is_alphanumeric())) {
                length -= 1;
            }
            length
        })
        .filter(|&length| length > 0)
        .collect();
    lengths.into_iter().rev().take(MOST_LENGTHS).collect()
}

/// The lines with the same prefix as the first one, without it and what ends a text in a list.
fn under_prefix<'a>(lines: &[Line<'a>], length: usize, is_blind: bool) -> Vec<(usize, &'a str)> {
    let Some(prefix) = lines.first().and_then(|l| l.rest.get(..length)) else { return Vec::new() };
    let is_quoted = prefix.ends_with(['"', '\'']);
    let of_group = |line: &Line<'a>| {
        let (whole, taken) = shared(prefix.as_bytes(), line.rest.as_bytes(), is_blind);
        let rest = line.rest.get(taken..).filter(|_| whole == length)?;
        Some((line.index, if is_quoted { rest.trim_end_matches(['"', '\'', ',']) } else { rest }))
    };
    lines.iter().filter_map(of_group).collect()
}

/// Length of the common beginning of two texts, in bytes of each; with `is_blind` all numbers count as equal.
fn shared(a: &[u8], b: &[u8], is_blind: bool) -> (usize, usize) {
    let digits = |of: &[u8], from: usize| of[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (in_a, in_b) = if is_blind { (digits(a, i), digits(b, j)) } else { (0, 0) };
        if in_a > 0 && in_b > 0 {
            (i, j) = (i + in_a, j + in_b);
        } else if a[i] == b[j] {
            (i, j) = (i + 1, j + 1);
        } else {
            break;
        }
    }
    (i, j)
}

#[cfg(test)]
mod tests {
    use super::super::tests::told;
    use super::super::{find_all, parse};

    const NEW: &str = "CUDA out of memory. Tried to allocate 1.99 GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.23 GiB is free. Including non-PyTorch memory, this process has 22.27 GiB memory in use. Of the allocated memory 14.73 GiB is allocated by PyTorch, and 6.39 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.";
    const OLD: &str = "CUDA out of memory. Tried to allocate 3.00 GiB (GPU 1; 79.35 GiB total capacity; 33.66 GiB already allocated; 735.69 MiB free; 34.89 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory";

    /// A text in lines of so many words.
    fn wrapped(text: &str, words: usize) -> Vec<String> {
        text.split(' ').collect::<Vec<_>>().chunks(words).map(|line| line.join(" ")).collect()
    }

    type Decorate = fn(usize, &str) -> String;

    const DECORATIONS: [(&str, Decorate); 13] = [
        ("rich panel", |_, l| format!("│ {l:<119} │")),
        ("the same in ASCII", |_, l| format!("| {l:<119} |")),
        ("docker compose", |_, l| format!("trainer-1  | {l}")),
        ("list", |_, l| format!("* {l}")),
        ("logging", |i, l| format!("2025-01-01 00:00:{i:02},123 ERROR train.py:12 {l}")),
        ("vLLM", |i, l| format!("(VllmWorker rank=0 pid=77) ERROR 01-12 08:36:{i:02} [worker.py:{}] {l}", 98 + i)),
        ("docker JSON", |_, l| format!("{{\"log\": \"{l}\\n\", \"stream\": \"stderr\"}}")),
        ("docker JSON with times", |i, l| {
            format!("{{\"log\":\"{l}\\n\",\"stream\":\"stderr\",\"time\":\"2025-03-01T03:12:11.{:03}Z\"}}", 7 * i)
        }),
        ("line numbers", |i, l| format!("{}: {l}", 97 + i)),
        ("line numbers without a colon", |i, l| format!("  {}  {l}", 100 + i)),
        ("pdsh", |_, l| format!("10.0.0.1: [rank3]: {l}")),
        ("unknown prefix", |_, l| format!("node-17/gpu0 :: {l}")),
        ("quoted list of strings", |_, l| format!("    \"{l}\",")),
    ];

    #[test]
    fn lines_under_any_prefix_are_one_message() {
        for text in [NEW, OLD] {
            let plain = parse(text).unwrap();
            for (name, decorate) in DECORATIONS {
                for width in [9, 10, 12, 20] {
                    for class in ["", "torch.OutOfMemoryError: "] {
                        let lines = wrapped(&format!("{class}{text}"), width);
                        let log: Vec<String> = lines.iter().enumerate().map(|(i, l)| decorate(i, l)).collect();
                        let log = format!("step 1\nstep 2\n{}\nstep 3 of 14.73 GiB\n", log.join("\n"));
                        let all = find_all(&log);
                        assert_eq!(all.len(), 1, "{name}, {width}:\n{log}");
                        let m = &all[0];
                        assert_eq!(told(m), told(&plain), "{name}, {width}:\n{log}");
                        assert_eq!((m.line, m.rank), (3, (name == "pdsh").then_some(3)), "{name}, {width}:\n{log}");
                        assert!(m.unread().is_empty() && m.negative.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn lines_of_several_ranks_are_told_apart() {
        let texts: Vec<String> =
            (0..4).map(|r| NEW.replace("1.99 GiB", &format!("{}.50 GiB", r + 2)).replace("GPU 0", &format!("GPU {r}"))).collect();
        let decorations: [(Decorate, bool); 7] = [
            (|r, l| format!("[rank{r}]: {l}"), true),
            (|r, l| format!("{r}: {l}"), true),
            (|r, l| format!("[default{r}]: {l}"), true),
            (|r, l| format!("[1,{r}]<stderr>:{l}"), true),
            (|r, l| format!("worker-{r} {l}"), false),
            (|r, l| format!("trainer-{r}  | {l}"), false),
            (|r, l| format!("2025-01-01T00:00:07Z (Worker pid={}) {l}", 310 + r), false),
        ];
        for (decorate, has_rank) in decorations {
            for (ranks, width) in [(2, 12), (4, 9), (3, 19)] {
                let lines: Vec<Vec<String>> = texts[..ranks].iter().map(|t| wrapped(t, width)).collect();
                let most = lines.iter().map(Vec::len).max().unwrap();
                let line = |i: usize, r: usize| Some(decorate(r, lines[r].get(i)?) + "\n");
                let log: String = (0..most).flat_map(|i| (0..ranks).filter_map(move |r| line(i, r))).collect();
                let all = find_all(&log);
                assert_eq!(all.len(), ranks, "{log}");
                for (r, m) in all.iter().enumerate() {
                    assert_eq!(told(m), told(&parse(&texts[r]).unwrap()), "rank {r}:\n{log}");
                    assert_eq!((m.line as usize, m.rank), (r + 1, has_rank.then_some(r as u32)), "{log}");
                }
            }
        }
    }

    /// Lines that only look similar belong to no message: what was truncated stays unread.
    #[test]
    fn other_lines_are_not_taken_for_a_message_s() {
        let cut = &NEW[..NEW.find("Of the allocated").unwrap()];
        let log = format!(
            "ERROR a.py:1 {cut}\nERROR a.py:1 retrying\nERROR b.py:7 8.00 GiB is allocated by others, and 1.00 GiB is kept\nERROR a.py:1 done\n"
        );
        let all = find_all(&log);
        assert_eq!((all.len(), all[0].figures.allocated, all[0].unread().len()), (1, None, 2));
    }

    /// Thousands of messages that all end early, each with its own prefix: there are no lines to find, but searching takes time. Then
    /// names of errors and whole messages in one endless line, of which each must be examined with its surroundings only.
    #[test]
    fn many_messages_take_seconds() {
        let since = std::time::Instant::now();
        let cut = |i: usize| {
            format!("w{} {i}x ERROR CUDA out of memory. Tried to allocate {}.00 GiB. GPU 0 has\n", i * 7919 % 1000, 1 + i % 9)
        };
        assert_eq!(find_all(&(0..20_000).map(cut).collect::<String>()).len(), 20_000);
        let parts = "failed to alloc ".repeat(100_000);
        assert!(find_all(&parts).len() <= parts.len());
        for words in ["RuntimeError: CUDA error: out of memory | ", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "]
        {
            assert!(!find_all(&words.repeat(8_000)).is_empty());
        }
        assert!(since.elapsed().as_secs() < 60, "{:?}", since.elapsed());
    }
}
