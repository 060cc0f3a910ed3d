//! A scanner for trace JSON that reads one event at a time, builds no tree, and survives Kineto's errors: unescaped quotes and
//! raw newlines in names, Windows paths, truncated files.

/// A longer string must have lost its closing quote.
const MAX_STRING: usize = 1 << 20;

pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of quotes inside strings that were not escaped.
    pub(super) unescaped_quotes: u64,
    /// Offset of the first of them.
    pub(super) first_unescaped: Option<usize>,
}

/// The position of a string; determines what may follow its closing quote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Value,
    Either,
}

/// Why an object could not be scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The bytes end inside the object.
    End,
    /// It is not JSON, even leniently.
    Syntax,
}

/// A value as raw bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// The bytes between the quotes, with escapes.
    Text(&'a [u8]),
    /// An object or array, brackets included.
    Nested(&'a [u8]),
    /// A number, `true`, `false` or `null`.
    Scalar(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Text(b) | Value::Nested(b) | Value::Scalar(b) => b,
        }
    }
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Scanner { bytes, at: 0, unescaped_quotes: 0, first_unescaped: None }
    }

    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, without consuming it.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(&b) = self.bytes.get(self.at) {
            if !matches!(b, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(b);
            }
            self.at += 1;
        }
        None
    }

    /// Skips white space and consumes `wanted` if it follows.
    #[inline]
    pub(super) fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// A key and its colon.
    #[inline]
    pub(super) fn key(&mut self) -> Result<&'a [u8], Broken> {
        let text = self.string(Place::Key)?;
        match self.peek() {
            Some(b':') => {
                self.at += 1;
                Ok(text)
            }
            Some(_) => Err(Broken::Syntax),
            None => Err(Broken::End),
        }
    }

    #[inline]
    pub(super) fn value(&mut self) -> Result<Value<'a>, Broken> {
        match self.peek() {
            None => Err(Broken::End),
            Some(b'"') => self.string(Place::Value).map(Value::Text),
            Some(b'{' | b'[') => self.nested().map(Value::Nested),
            Some(_) => {
                let from = self.at;
                while let Some(&b) = self.bytes.get(self.at) {
                    if matches!(b, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b'"' | b'{' | b'[' | b':') {
                        break;
                    }
                    self.at += 1;
                }
                if self.at == self.bytes.len() {
                    return Err(Broken::End);
                }
                if self.at == from { Err(Broken::Syntax) } else { Ok(Value::Scalar(&self.bytes[from..self.at])) }
            }
        }
    }

    /// Reads a string. A quote closes it only if a valid character follows; otherwise the quote was not escaped.
    #[inline]
    fn string(&mut self, place: Place) -> Result<&'a [u8], Broken> {
        if self.peek() != Some(b'"') {
            return Err(if self.at >= self.bytes.len() { Broken::End } else { Broken::Syntax });
        }
        let from = self.at + 1;
        let mut at = from;
        while let Some(&b) = self.bytes.get(at) {
            match b {
                b'\\' => at += 2,
                b'"' => {
                    let after = self.bytes[at + 1..].iter().find(|b| !b.is_ascii_whitespace());
                    let closes = match after {
                        Some(b':') => place != Place::Value,
                        Some(b',' | b'}' | b']') => place != Place::Key,
                        None => true,
                        Some(_) => false,
                    };
                    if closes {
                        self.at = at + 1;
                        return Ok(&self.bytes[from..at]);
                    }
                    self.unescaped_quotes += 1;
                    self.first_unescaped.get_or_insert(at);
                    at += 1;
                }
                _ => at += 1,
            }
            if at - from > MAX_STRING {
                return Err(Broken::Syntax);
            }
        }
        Err(Broken::End)
    }

    /// Skips an object or array by matching brackets outside strings. A mismatched bracket is an error, so that a lost bracket
    /// costs one event and not the rest of the file.
    fn nested(&mut self) -> Result<&'a [u8], Broken> {
        let from = self.at;
        let (mut depth, mut deepest) = (0usize, 0usize);
        // Kinds of the innermost 64 open brackets, 1 for a square one.
        let mut kinds = 0u64;
        loop {
            match self.bytes.get(self.at) {
                None => return Err(Broken::End),
                Some(b'"') => {
                    self.string(Place::Either)?;
                    continue;
                }
                Some(&open @ (b'{' | b'[')) => {
                    depth += 1;
                    deepest = deepest.max(depth);
                    kinds = kinds << 1 | u64::from(open == b'[');
                }
                Some(&close @ (b'}' | b']')) => {
                    if deepest <= 64 && kinds & 1 != u64::from(close == b']') {
                        return Err(Broken::Syntax);
                    }
                    kinds >>= 1;
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(&self.bytes[from..self.at]);
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Calls `each` for every key of the object at the current position.
    pub(super) fn object(&mut self, mut each: impl FnMut(&'a [u8], Value<'a>)) -> Result<(), Broken> {
        if !self.eat(b'{') {
            return Err(if self.peek().is_none() { Broken::End } else { Broken::Syntax });
        }
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            let value = self.value()?;
            each(key, value);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => return Err(Broken::Syntax),
                None => return Err(Broken::End),
            }
            // A trailing comma.
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(());
            }
        }
    }

    /// Moves to the next position after `from` that looks like an event's start: `{` after `},` before a quote. False without one.
    pub(super) fn resync(&mut self, from: usize) -> bool {
        let mut at = from.min(self.bytes.len());
        while let Some(found) = self.bytes[at..].iter().position(|&b| b == b'{').map(|p| p + at) {
            let before: Vec<u8> =
                self.bytes[from..found].iter().rev().filter(|b| !b.is_ascii_whitespace()).take(2).copied().collect();
            let after = self.bytes[found + 1..].iter().find(|b| !b.is_ascii_whitespace());
            if before == [b',', b'}'] && after == Some(&b'"') {
                self.at = found;
                return true;
            }
            at = found + 1;
        }
        self.at = self.bytes.len();
        false
    }
}

/// Decodes the text of a JSON string. Escapes that JSON does not know (Windows paths) stay as they are.
pub(super) fn unescape(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    if !text.contains('\\') {
        return text.into_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.clone().next() {
            Some(e @ ('"' | '\\' | '/')) => out.push(e),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let hex: String = chars.clone().skip(1).take(4).collect();
                match u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == 4) {
                    Some(code) => {
                        // Surrogate pairs are not combined; each half becomes U+FFFD.
                        out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
                        chars.nth(3);
                    }
                    None => out.push_str("\\u"),
                }
            }
            Some(other) => {
                out.push('\\');
                out.push(other);
            }
            None => out.push('\\'),
        }
        chars.next();
    }
    out
}

/// Converts a decimal number of microseconds into nanoseconds, exactly; digits after the third decimal are dropped.
pub(super) fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    let mut decimals: Option<u32> = None;
    for &b in digits {
        match b {
            b'0'..=b'9' if decimals.is_none_or(|d| d < 3) => {
                value = value.checked_mul(10)?.checked_add(i64::from(b - b'0'))?;
                decimals = decimals.map(|d| d + 1);
            }
            b'0'..=b'9' => {}
            b'.' if decimals.is_none() => decimals = Some(0),
            b'e' | b'E' => {
                let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                return (value.abs() < 9.0e15).then_some((value * 1000.0).round() as i64);
            }
            _ => return None,
        }
    }
    if digits.is_empty() {
        return None;
    }
    let value = value.checked_mul(10i64.pow(3 - decimals.unwrap_or(0)))?;
    Some(if negative { -value } else { value })
}

/// An integer, also in quotes, in hexadecimal or with a zero fraction.
pub(super) fn integer(value: Value<'_>) -> Option<i128> {
    let text = std::str::from_utf8(value.bytes()).ok()?.trim();
    let text = text.strip_suffix(".0").unwrap_or(text);
    if let Some(hex) = text.strip_prefix("0x") {
        return i128::from_str_radix(hex, 16).ok();
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Result<Vec<(String, String)>, Broken> {
        let mut out = Vec::new();
        Scanner::new(text.as_bytes()).object(|k, v| out.push((unescape(k), unescape(v.bytes()))))?;
        Ok(out)
    }

    fn owned(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    #[test]
    fn objects_scan() {
        assert_eq!(
            pairs(r#"{"a": 1, "b": "x\"y", "c": {"d": [1, "}"]}, "e":null}"#).unwrap(),
            owned(&[("a", "1"), ("b", "x\"y"), ("c", r#"{"d": [1, "}"]}"#), ("e", "null")])
        );
        assert_eq!(pairs("{ }").unwrap(), vec![]);
        assert_eq!(pairs("{\"a\": 1,\n}").unwrap(), owned(&[("a", "1")]));
    }

    #[test]
    fn quotes_that_were_not_escaped_stay_inside() {
        assert_eq!(pairs(r#"{"name": "f(x="a b")", "pid": 7}"#).unwrap(), owned(&[("name", "f(x=\"a b\")"), ("pid", "7")]));
        assert_eq!(
            pairs("{\"name\": \"two\nlines\", \"p\": \"C:\\Users\\x\"}").unwrap(),
            owned(&[("name", "two\nlines"), ("p", "C:\\Users\\x")])
        );
    }

    #[test]
    fn ends_and_errors_are_told_apart() {
        assert_eq!(pairs(r#"{"a": "b"#), Err(Broken::End));
        assert_eq!(pairs(r#"{"a": 12"#), Err(Broken::End));
        assert_eq!(pairs(r#"{"a": {"b""#), Err(Broken::End));
        assert_eq!(pairs(r#"{a: 1}"#), Err(Broken::Syntax));
        assert_eq!(pairs(r#"{"a": [1, 2}, "b": 1}"#), Err(Broken::Syntax));
        assert_eq!(pairs(r#"{"a": ,}"#), Err(Broken::Syntax));
    }

    #[test]
    fn resync_finds_the_next_event() {
        let text = r#"[{"a": }}, {"b": {"c": 1}}, {"d": 2}]"#;
        let mut s = Scanner::new(text.as_bytes());
        assert!(s.resync(2));
        assert_eq!(&text[s.offset()..s.offset() + 4], "{\"b\"");
        assert!(s.resync(s.offset() + 1));
        assert_eq!(&text[s.offset()..s.offset() + 4], "{\"d\"");
        assert!(!s.resync(s.offset() + 1));
    }

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(nanoseconds(b"4369144808724.972"), Some(4_369_144_808_724_972));
        assert_eq!(nanoseconds(b"4369142876026.62"), Some(4_369_142_876_026_620));
        assert_eq!(nanoseconds(b"1795226629869433"), Some(1_795_226_629_869_433_000));
        assert_eq!(nanoseconds(b"1.5e3"), Some(1_500_000));
        assert_eq!(nanoseconds(b"-2.5"), Some(-2_500));
        assert_eq!(nanoseconds(b""), None);
        assert_eq!(nanoseconds(b"x"), None);
        assert_eq!(nanoseconds(b"99999999999999999999"), None);
    }
}
