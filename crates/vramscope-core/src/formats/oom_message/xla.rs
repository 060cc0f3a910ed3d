//! The buffers that XLA lists after its error: `Peak buffers:` on a GPU, `Largest program allocations in hbm:` on a TPU.

use super::text::Window;
use super::{Figure, OomMessage};

/// One of the largest buffers of an XLA program that did not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PeakBuffer {
    /// Size in bytes; 0 if the size is not readable.
    pub bytes: u64,
    /// The operation that creates it; `None` if not printed.
    pub operator: Option<String>,
    /// Source file and line; `None` if not printed.
    pub source: Option<String>,
    /// Element type and shape; `None` if not printed.
    pub shape: Option<String>,
}

/// Maximum number of buffers kept; XLA prints at most 20.
const MOST: usize = 64;

/// Reads statistics and buffers from the raw lines.
pub(super) fn buffers(window: &Window<'_>, message: &mut OomMessage) {
    let mut in_list = false;
    for line in window.raw_lines() {
        let line = line.trim();
        if line.starts_with("Peak buffers:") || line.starts_with("Largest program allocations in") {
            in_list = true;
            continue;
        }
        if !in_list {
            message.extra.extend(statistic(line));
            continue;
        }
        // `1. Size: 4.00G` on a TPU, `Buffer 1:` and `Size: 512.00MiB` on a GPU.
        let line = line.split_once(". ").filter(|(n, _)| n.bytes().all(|b| b.is_ascii_digit())).map_or(line, |(_, rest)| rest);
        let Some((key, value)) = line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) else { continue };
        if key == "Size" && message.peak_buffers.len() < MOST {
            let bytes = size(value).map_or(0, |f| f.bytes);
            message.peak_buffers.push(PeakBuffer { bytes, ..PeakBuffer::default() });
        }
        let Some(buffer) = message.peak_buffers.last_mut() else { continue };
        match key {
            "Operator" => {
                buffer.operator = quoted(value, "op_name=").map(str::to_owned);
                buffer.source = quoted(value, "source_file=").map(|file| {
                    let number = value.split_once("source_line=").map_or("", |(_, n)| n);
                    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
                    format!("{file}:{}", &number[..digits])
                });
            }
            "Shape" => buffer.shape = Some(value.to_owned()),
            "Entry Parameter Subshape" => {
                buffer.operator = Some("a parameter of the program".to_owned());
                buffer.shape = Some(value.to_owned());
            }
            _ => {}
        }
    }
}

/// Reads `preallocated temp allocation: 4.44GiB`, or on a TPU `program    18.90G`.
fn statistic(line: &str) -> Option<(String, Figure)> {
    const ON_TPU: [&str; 5] = ["reserved", "program", "arguments", "output", "HLO temp"];
    if let Some((key, value)) = ON_TPU.iter().find_map(|key| Some((*key, line.strip_prefix(key)?))) {
        return value.starts_with("  ").then(|| Some((key.to_owned(), size(value)?))).flatten();
    }
    let (key, value) = line.split_once(':')?;
    let key = key.trim();
    let is_statistic = key.ends_with("allocation") || key.starts_with("total") || key.starts_with("preallocated");
    (is_statistic && key.len() < 40).then(|| Some((key.to_owned(), size(value)?))).flatten()
}

fn size(text: &str) -> Option<Figure> {
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).take(60).collect();
    Figure::at_start(&squeezed, None).map(|(figure, _)| figure)
}

fn quoted<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.strip_prefix('"')?.split_once('"').map(|(inner, _)| inner)
}
