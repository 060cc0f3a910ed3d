//! The only way to standard output and standard error. Names from files, settings and errors may contain anything, and a terminal
//! obeys escape codes, carriage returns and direction marks in them. Here these characters are shown as `\u001b` instead of
//! passed on.
//!
//! JSON writes them in the same way: inside a string of `--json`, `\u009b` is the same data as the character itself.

use std::io::{self, Write};

use vramscope_core::units::{NBSP, shown};

/// A writer that shows control characters instead of passing them on. Each call must contain whole characters, as `write!` and
/// serde write them.
#[derive(Debug)]
pub struct Shown<W: Write>(W);

impl<W: Write> Shown<W> {
    /// Wraps the writer that receives the text.
    pub fn new(inner: W) -> Self {
        Shown(inner)
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // A plain space before the unit, because users who search for `3 MiB` type one.
        self.0.write_all(shown(&text).replace(NBSP, " ").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Standard output, for text.
pub fn stdout() -> Shown<io::BufWriter<io::StdoutLock<'static>>> {
    Shown::new(io::BufWriter::new(io::stdout().lock()))
}

/// Standard output without changes, for another vramscope process to read.
pub fn wire() -> impl Write {
    io::BufWriter::new(io::stdout().lock())
}

/// Standard error, for text.
pub fn stderr() -> Shown<io::Stderr> {
    Shown::new(io::stderr())
}

/// Writes to standard error, with the program's name before each line.
pub fn say(text: &str) {
    let lines: String = text.lines().map(|line| format!("vramscope: {line}\n")).collect();
    // A closed standard error is ignored.
    let _ = stderr().write_all(lines.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::units::is_steering;

    fn through(text: &str) -> String {
        let mut out = Vec::new();
        write!(Shown::new(&mut out), "{text}").unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        assert_eq!(
            through("\x1b]0;owned\x07\x1b[2Jevil\r\u{202e}\u{9b}31m.py\n"),
            "\\u001b]0;owned\\u0007\\u001b[2Jevil\\u000d\\u202e\\u009b31m.py\n"
        );
        assert_eq!(through("\u{7f}\u{8}\u{2066}\u{e0041}"), "\\u007f\\u0008\\u2066\\udb40\\udc41");
        // Normal text is not changed.
        let plain = "a\tb 3 MiB é 模型 ‹…› שלום 👩\u{200d}🚀\n";
        assert_eq!(through(plain), plain);
        assert_eq!(through("3\u{a0}MiB"), "3 MiB", "what is searched for with a plain space is found");
        // A terminal without UTF-8 would take bytes that are not UTF-8 for C1 controls.
        let mut out = Vec::new();
        Shown::new(&mut out).write_all(b"a\x9b31m").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\u{fffd}31m");
    }

    #[test]
    fn json_stays_the_same_data() {
        let data = serde_json::json!({ "\u{202e}name": "\x1b[2J\u{9b}\u{85}\u{2028}\u{e0041} \" \\ é" });
        let mut out = Vec::new();
        serde_json::to_writer_pretty(Shown::new(&mut out), &data).unwrap();
        assert!(!String::from_utf8(out.clone()).unwrap().contains(is_steering));
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&out).unwrap(), data);
    }
}
