//! The buffers that XLA lists after its error: `Peak buffers:` on a GPU, `Largest program allocations in hbm:` on a TPU.

use super::text::{Window, captured};
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
                buffer.operator = captured!("op_name=\"([^\"]*)\"", value).map(|[name]| name.to_owned());
                let source = captured!("source_file=\"([^\"]*)\"(?:.*source_line=)?([0-9]*)", value);
                buffer.source = source.map(|[file, line]| format!("{file}:{line}"));
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
    let [key, value] = captured!("^(reserved|program|arguments|output|HLO temp)  (.*)$", line)
        .or_else(|| captured!("^((?:total|preallocated)[^:]{0,28}|[^:]{0,28}allocation) *:(.*)$", line))?;
    Some((key.to_owned(), size(value)?))
}

fn size(text: &str) -> Option<Figure> {
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).take(60).collect();
    Figure::at_start(&squeezed, None).map(|(figure, _)| figure)
}
