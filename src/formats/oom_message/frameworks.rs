//! Messages of neighbours: XLA (as JAX uses it) and TensorFlow's BFC allocator.

use super::pytorch::{after, number_after, number_of};
use super::text::Window;
use super::{Context, Dialect, Figure, OomMessage, Platform, Writer};

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
    // The compiler names itself before what it says.
    let body = body.strip_prefix("XLA:TPUcompilepermanenterror.").unwrap_or(body);
    let near = head_of(body, 300);
    let request = if body.starts_with("OutofmemoryerroronGPU") {
        return None;
    } else if body.starts_with("Outofmemory") {
        ["tryingtoallocate", "Attemptingtoallocate", "Outofmemoryallocating"].iter().find_map(|mark| after(near, mark))
    } else if body.starts_with("Ranoutofmemoryinmemoryspace") {
        // What the whole program needs, of what the device has. Only TPUs have memory spaces of this name.
        if body.starts_with("Ranoutofmemoryinmemoryspacehbm") {
            message.dialect.platform = Platform::Tpu;
        }
        message.figures.capacity = after(near, "Used").and_then(|_| {
            let used = near.split_once("Used")?.1;
            after(used, "of")
        });
        after(near, "Used")
    } else if near.contains("Thatwasnotpossible") {
        message.figures.free = after(near, "Thereare");
        if near.contains("_HBM") || near.contains("atthebottomofmemory") {
            message.dialect.platform = Platform::Tpu;
        }
        after(near, "Attemptingtoallocate").or_else(|| after(near, "Attemptingtoreserve"))
    } else if body.starts_with("failedtoallocatememory") {
        message.dialect.writer = Writer::TensorFlow;
        None
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

/// At most so many bytes of a text.
fn head_of(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

/// What XLA and TensorFlow say of the driver: `failed to allocate 3.91G (4194304000 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY`,
/// `failed to alloc 782758144 bytes on host: …`, `cuMemAllocAsync failed to allocate N bytes: … Free memory/Total memory: F/T`.
pub(super) fn driver(window: &Window<'_>) -> Read {
    let text = window.text();
    let mut message = OomMessage::new(Dialect::of(Writer::TensorFlow, Platform::Cuda));
    let error = text.find("CUDA_ERROR_OUT_OF_MEMORY").or_else(|| text.find("hipError")).filter(|&at| at < 160)?;
    let before = text.get(..error)?;
    if before.contains("bytesonhost:") {
        message.dialect.platform = Platform::Cpu;
        message.figures.requested = after(before, "failedtoalloc");
    } else if let Some((_, rest)) = before.split_once('(').filter(|_| before.contains(")fromdevice:")) {
        message.figures.requested = Figure::at_start(rest).map(|(figure, _)| figure);
    } else if window.before(20).ends_with("cuMemAllocAsync") {
        message.dialect.writer = Writer::Xla;
        message.figures.requested = after(before, "failedtoallocate");
        if let Some((free, total)) = text.split_once("Freememory/Totalmemory:").and_then(|(_, rest)| rest.split_once('/')) {
            message.figures.free = free.parse().ok().map(Figure::exact);
            let digits = total.bytes().take_while(u8::is_ascii_digit).count();
            message.figures.capacity = total.get(..digits).and_then(|n| n.parse().ok()).map(Figure::exact);
        }
    } else {
        return None;
    }
    if before.contains("hipError") || text.get(error..)?.starts_with("hipError") {
        message.dialect.platform = Platform::Hip;
    }
    Some((message, error + "CUDA_ERROR_OUT_OF_MEMORY".len()))
}

/// `Free memory on device cuda:0 (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB)`.
pub(super) fn vllm(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 300);
    let wanted = text.split_once("desiredGPUmemoryutilization(")?.1.split_once(',')?.1;
    let (free, rest) = text.split_once('(')?.1.split_once('/')?;
    let (capacity, length) = Figure::at_start(rest)?;
    let unit = rest.get(..length)?.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let mut message = OomMessage::new(Dialect::of(Writer::Vllm, Platform::Cuda));
    message.gpu = number_after(text, "cuda:");
    let f = &mut message.figures;
    f.requested = Some(Figure::at_start(wanted)?.0);
    f.free = Figure::at_start(&format!("{free}{unit}")).map(|(figure, _)| figure);
    f.capacity = Some(capacity);
    Some((message, 60))
}

/// `To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available
/// KV cache memory (11.64 GiB). Based on the available memory, the estimated maximum model length is 95360.`, and before 0.8 `The model's
/// max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (7344).`
pub(super) fn vllm_cache(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 300);
    let before = window.before(120);
    let mut message = OomMessage::new(Dialect::of(Writer::Vllm, Platform::Cuda));
    let wanted = before.rfind("seqlen(").and_then(|at| number_of(&before[at..], "seqlen("));
    message.context = Some(Context {
        wanted,
        fits: number_of(text, "maximummodellengthis").or_else(|| number_of(text, "storedinKVcache(")).filter(|&n| n > 0),
    });
    message.figures.requested = Figure::at_end(before);
    message.figures.limit = after(text, "KVcachememory(").or_else(|| after(text, "KVCachememory("));
    Some((message, 40))
}

/// `ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory`, on AMD's cards too.
/// The next line has the bytes in full: `failed to allocate ROCm1 buffer of size 10345253120`.
pub(super) fn ggml(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 300);
    let before = window.before(60);
    let mut message = OomMessage::new(Dialect::of(Writer::LlamaCpp, Platform::Cuda));
    let printed = before.rfind("allocating").map(|at| &before[at..]);
    message.gpu = printed.and_then(|p| number_after(p, "ondevice"));
    let printed = printed.and_then(|p| after(p, "allocating"));
    let next = text.split_once("failedtoallocate").map_or("", |(_, rest)| head_of(rest, 60));
    if next.starts_with("ROCm") {
        message.dialect.platform = Platform::Hip;
    }
    message.gpu = message.gpu.or_else(|| number_after(next, "CUDA")).or_else(|| number_after(next, "ROCm"));
    let exact = number_of(next, "bufferofsize").map(Figure::exact);
    let is_it = |e: &Figure| printed.is_none_or(|p| p.low() <= e.bytes && e.bytes <= p.high());
    message.figures.requested = exact.filter(is_it).or(printed);
    message.is_warning = text.contains("retryingwithout");
    Some((message, 28))
}

/// `Error Code 1: Cuda Runtime (out of memory)` and, on the next line, `Requested amount of GPU memory (1180463648 bytes) could not be
/// allocated.`
pub(super) fn tensor_rt(window: &Window<'_>) -> Read {
    let mut message = OomMessage::new(Dialect::of(Writer::TensorRt, Platform::Cuda));
    message.figures.requested = number_of(head_of(window.text(), 200), "amountofGPUmemory(").map(Figure::exact);
    Some((message, 24))
}

/// `Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes, limit set to: 9,000,000,000 bytes).`, and up to
/// CuPy 6 `out of memory to allocate N bytes (total T bytes)`, where the total has the request in it.
pub(super) fn cupy(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 300).replace(',', "");
    let mut message = OomMessage::new(Dialect::of(Writer::CuPy, Platform::Cuda));
    let f = &mut message.figures;
    f.limit = after(&text, "limitsetto:").or_else(|| after(&text, "limitsetto")).filter(|l| l.bytes > 0);
    if text.contains("(allocatedsofar:") {
        f.requested = after(&text, "Outofmemoryallocating");
        f.allocated = after(&text, "(allocatedsofar:");
    } else {
        let total = after(&text, "(total")?;
        let requested = after(&text, "outofmemorytoallocate")?;
        (f.requested, f.allocated) = (Some(requested), Some(total.minus(requested)));
    }
    f.requested?;
    Some((message, 40))
}

/// `Failed to allocate memory for requested buffer of size N`.
pub(super) fn onnx_runtime(window: &Window<'_>) -> Read {
    let mut message = OomMessage::new(Dialect::of(Writer::OnnxRuntime, Platform::Unknown));
    message.figures.requested = number_of(window.text(), "bufferofsize").map(Figure::exact);
    Some((message, 40))
}

/// `Out of memory error on GPU 0. Cannot allocate 19.0MB memory on GPU 0, 9.5GB memory has been allocated and available memory is only
/// 10.0MB.`
pub(super) fn paddle(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 400);
    let mut message = OomMessage::new(Dialect::of(Writer::Paddle, Platform::Cuda));
    message.gpu = number_after(text, "erroronGPU");
    let f = &mut message.figures;
    f.requested = after(text, "Cannotallocate");
    f.allocated = text.split_once("memoryhasbeenallocated").and_then(|(before, _)| Figure::at_end(before));
    f.free = after(text, "availablememoryisonly");
    Some((message, 60))
}

/// NumPy on the host: `Unable to allocate 2.98 GiB for an array with shape (400000000,) and data type float64`.
pub(super) fn array(window: &Window<'_>) -> Read {
    let text = head_of(window.text(), 200);
    let mut message = OomMessage::new(Dialect::of(Writer::Cpu, Platform::Cpu));
    message.figures.requested = Some(after(text, "Unabletoallocate")?);
    Some((message, 30))
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
    message.is_warning = head_of(text, 300).contains("isnotafailure");
    let before = window.before(40);
    message.gpu = before.rfind("GPU_").and_then(|at| {
        let rest = before.get(at + 4..)?;
        rest.get(..rest.bytes().take_while(u8::is_ascii_digit).count())?.parse().ok()
    });
    Some((message, 30))
}
