//! Messages of neighbours: XLA (as JAX uses it) and TensorFlow's BFC allocator.

use super::pytorch::after;
use super::text::Window;
use super::{Dialect, Figure, OomMessage, Platform, Writer};

type Read = Option<(OomMessage, usize)>;

/// One of the largest buffers of an XLA program that did not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeakBuffer {
    /// Its size.
    pub bytes: u64,
    /// The operation that makes it, when printed.
    pub operator: Option<String>,
    /// Source file and line, when printed.
    pub source: Option<String>,
    /// Element type and shape, when printed.
    pub shape: Option<String>,
}

/// `RESOURCE_EXHAUSTED: Out of memory while trying to allocate N bytes.`, with XLA's statistics when it prints them.
pub(super) fn xla(window: &Window<'_>) -> Read {
    let text = window.text();
    let (_, body) = text.split_once(':')?;
    let mut message = OomMessage::new(Dialect::of(Writer::Xla, Platform::Unknown));
    let request = if body.starts_with("Outofmemory") {
        after(body, "tryingtoallocate").or_else(|| after(body, "Attemptingtoallocate"))
    } else if body.starts_with("Failedtoallocaterequestfor") {
        // The bytes in full follow in brackets.
        let rounded = after(body, "Failedtoallocaterequestfor");
        body.find('(').filter(|&at| at < 60).and_then(|at| Figure::at_start(body.get(at + 1..)?)).map(|(f, _)| f).or(rounded)
    } else if body.starts_with("OOMwhenallocatingtensor") {
        message.dialect.writer = Writer::TensorFlow;
        if let Some(device) = body.split_once("device:GPU:").map(|(_, rest)| rest) {
            message.dialect.platform = Platform::Cuda;
            message.gpu = device.get(..device.bytes().take_while(u8::is_ascii_digit).count()).and_then(|n| n.parse().ok());
        }
        tensor_bytes(body).map(Figure::exact)
    } else {
        return None;
    };
    message.figures.requested = request;
    let line = text.get(..window.first_line_length()).unwrap_or(text);
    message.gpu = message.gpu.or(line.find("deviceordinal").and_then(|at| {
        let rest = line.get(at + "deviceordinal".len()..)?;
        rest.get(..rest.bytes().take_while(u8::is_ascii_digit).count())?.parse().ok()
    }));
    statistics(window, &mut message);
    Some((message, 20))
}

/// `OOM when allocating tensor with shape[8,512] and type float`: the product, when the type's width is known.
fn tensor_bytes(body: &str) -> Option<u64> {
    let shape = body.split_once("shape[")?.1.split_once(']')?;
    let name = shape.1.strip_prefix("andtype")?;
    let width = [
        ("float", 4),
        ("half", 2),
        ("bfloat16", 2),
        ("double", 8),
        ("int64", 8),
        ("int32", 4),
        ("int16", 2),
        ("int8", 1),
        ("uint8", 1),
        ("complex64", 8),
        ("complex128", 16),
        ("bool", 1),
    ]
    .iter()
    .find(|(n, _)| name.starts_with(n))?
    .1;
    shape.0.split(',').try_fold(width, |product: u64, d| product.checked_mul(d.parse().ok()?))
}

/// `BufferAssignment stats:` lines and `Peak buffers:`, from the raw lines.
fn statistics(window: &Window<'_>, message: &mut OomMessage) {
    let mut in_peak = false;
    for line in window.raw_lines() {
        let line = line.trim();
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "Peak buffers" {
            in_peak = true;
        } else if !in_peak {
            let is_statistic = key.ends_with("allocation") || key.starts_with("total") || key.starts_with("preallocated");
            let squeezed: String = value.chars().filter(|c| !c.is_whitespace()).collect();
            if let (true, Some((figure, _))) = (is_statistic && key.len() < 40, Figure::at_start(&squeezed)) {
                message.extra.push((key.to_owned(), figure));
            }
        } else if key.strip_prefix("Buffer ").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit())) {
            message.peak_buffers.push(PeakBuffer::default());
        } else if let Some(buffer) = message.peak_buffers.last_mut() {
            match key {
                "Size" => {
                    let squeezed: String = value.chars().filter(|c| !c.is_whitespace()).collect();
                    buffer.bytes = Figure::at_start(&squeezed).map_or(0, |(f, _)| f.bytes);
                }
                "Operator" => {
                    buffer.operator = quoted(value, "op_name=").map(str::to_owned);
                    buffer.source = quoted(value, "source_file=").map(|file| {
                        let number = value.split_once("source_line=").map_or("", |(_, n)| n);
                        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
                        format!("{file}:{}", &number[..digits])
                    });
                }
                "Shape" => buffer.shape = Some(value.to_owned()),
                _ => {}
            }
        }
    }
}

fn quoted<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_once(key)?.1.strip_prefix('"')?.split_once('"').map(|(inner, _)| inner)
}

/// `Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB`.
pub(super) fn bfc(window: &Window<'_>) -> Read {
    let text = window.text();
    let mut message = OomMessage::new(Dialect::of(Writer::TensorFlow, Platform::Cuda));
    message.figures.requested = after(text, "tryingtoallocate");
    let before = window.before(40);
    message.gpu = before.rfind("GPU_").and_then(|at| {
        let rest = before.get(at + 4..)?;
        rest.get(..rest.bytes().take_while(u8::is_ascii_digit).count())?.parse().ok()
    });
    Some((message, 30))
}
