//! What stands around a text where it was stored: tags of HTML, objects of JSON, logfmt, a string with escaped ends of lines, numbers of lines.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::find;
use regex_lite::{Captures, Regex};
use serde_json::Value;

use super::text::captured;

/// Tags that a page has around what a program printed; `<module>` and its like are the program's own.
const TAGS: &str = " span pre code p div br b i u strong em font a ul ol li table tr td th tt samp details summary blockquote ";
static TAG: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("</*([A-Za-z0-9]+)[^>]*>").ok());
/// A size in bold letters of Markdown.
static BOLD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\*\*(\d[\d.]* ?(?:[KMG]i?B|bytes)[^*]{0,16})\*\*").ok());
/// Keys of JSON whose value a logger wrote, not the program.
const OF_LOGGERS: &str = " ts time timestamp @timestamp level severity stream logger caller source ";

/// A text without that, and the line where each of its lines was; `None` for a text that has nothing of it.
pub(super) fn plain(text: &str) -> Option<(String, Vec<u32>)> {
    let is_bold = find(text.as_bytes(), b"B**").or_else(|| find(text.as_bytes(), b"e**")).is_some();
    let may_have = |line: &str| {
        let bytes = line.as_bytes();
        memchr2(b'<', b'\\', bytes).is_some() || is_bold || find(bytes, b"msg=\"").is_some() || line.trim_start().starts_with('{')
    };
    let changed = |line| may_have(line).then(|| without_syntax(line)).filter(|new| new != line);
    let is_counted = is_counted(text);
    if !is_counted {
        text.lines().find_map(changed)?;
    }
    let (mut out, mut origins) = (String::with_capacity(text.len()), Vec::new());
    for (line, number) in text.lines().zip(1..) {
        let line = counter(line).filter(|_| is_counted).map_or(line, |(_, rest)| rest);
        let new = changed(line).unwrap_or(Cow::Borrowed(line));
        for part in new.split('\n') {
            out.extend([part, "\n"]);
            origins.push(number);
        }
    }
    Some((out, origins))
}

/// True if all lines are numbered one after the other. Ranks of a job count from 0.
fn is_counted(text: &str) -> bool {
    let mut numbers = text.lines().map(|line| counter(line).map(|(number, _)| number));
    let first = numbers.next().flatten().filter(|first| *first > 0);
    first.is_some_and(|first| (first + 1..).zip(numbers).all(|(at, number)| number == Some(at))) && text.lines().count() > 2
}

/// The number before a line, and the line behind it.
fn counter(line: &str) -> Option<(u32, &str)> {
    let [number, rest] = captured!(r"^\s*([0-9]+)[.:|)]?([ \t].*|)$", line)?;
    Some((number.parse().ok()?, rest))
}

fn without_syntax(line: &str) -> Cow<'_, str> {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(line.trim()) {
        let mut told = String::new();
        strings(&object, &mut told);
        return Cow::Owned(told);
    }
    // The string after `msg=`, as Go's loggers write it.
    if let Some((before, _)) = line.split_once("msg=\"") {
        let quoted = &line[before.len() + "msg=".len()..];
        let mut values = serde_json::Deserializer::from_str(quoted).into_iter::<String>();
        if let Some(Ok(told)) = values.next() {
            return Cow::Owned([&before.replace('"', ""), "msg: ", &told, &quoted[values.byte_offset()..]].concat());
        }
    }
    // A path of Windows has no such part but by chance.
    let is_end = |&(at, _): &(usize, &str)| line[at + 2..].starts_with(|c: char| c == ' ' || c.is_uppercase());
    if line.match_indices("\\n").filter(is_end).count() > 2 {
        return Cow::Owned(line.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"").replace("\\'", "'"));
    }
    let without = |tag: &Captures<'_>| match tag[1].to_ascii_lowercase() {
        name if !TAGS.contains(&format!(" {name} ")) => tag[0].to_owned(),
        name => if name == "br" { "\n" } else { "" }.to_owned(),
    };
    let bold = BOLD.as_ref().filter(|_| line.contains("**"));
    let line = bold.map_or(Cow::Borrowed(line), |bold| bold.replace_all(line, "$1"));
    match TAG.as_ref().filter(|_| line.contains('<')).map(|tag| tag.replace_all(&line, without)) {
        Some(Cow::Owned(line)) => Cow::Owned(line),
        _ => line,
    }
}

/// The strings of an object, one below the other.
fn strings(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => out.extend([text, "\n"]),
        Value::Array(values) => values.iter().for_each(|value| strings(value, out)),
        Value::Object(values) => {
            let told = values.iter().filter(|(key, _)| !OF_LOGGERS.contains(&format!(" {key} ")));
            told.for_each(|(_, value)| strings(value, out));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn syntax_around_a_text_goes_and_lines_are_found_again() {
        for (text, told) in [
            ("x\n{\"ts\": \"12:00\", \"log\": \"a \\\"b\\\"\\nc\", \"n\": 1}", "x\na \"b\"\nc\n\n"),
            ("time=\"12:00\" source=server.go:1 msg=\"say \\\"x\\\"\" n=2", "time=12:00 source=server.go:1 msg: say \"x\" n=2\n"),
            ("Error: 'a:\\n  File \"x\"\\n  y\\nE: z\\n'", "Error: 'a:\n  File \"x\"\n  y\nE: z\n'\n"),
            ("<pre><span style=\"color: red\">OutOfMemoryError</span>: x<br>y</pre>", "OutOfMemoryError: x\ny\n"),
        ] {
            assert_eq!(plain(text).unwrap().0, told);
        }
        assert_eq!(plain("**20.00 MiB** and **7.57 GiB free**, **OOM**").unwrap().0, "20.00 MiB and 7.57 GiB free, **OOM**\n");
        assert_eq!(plain(" 9  a\n10  1.\n11\n").unwrap().0, "  a\n  1.\n\n");
        assert_eq!(plain("a\n{\"e\": \"b\\nc\"}\nd").unwrap().1, [1, 2, 2, 2, 3]);
        for text in ["File \"<string>\", line 1, in <module>", "{x: 1}", "a < b > c", "0: x\n1: x\n2: x", "msg=\"cut"] {
            assert_eq!(plain(text), None, "{text}");
        }
    }
}
