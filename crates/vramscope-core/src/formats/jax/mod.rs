//! `jax.profiler.save_device_memory_profile`: a gzipped pprof profile (google/pprof's `profile.proto`) of the arrays and compiled
//! programs that are alive at one instant.
//!
//! Arrays of one size and stack share a sample, which has their number and their total bytes. The file has no addresses, times or
//! frees: each array becomes a block at an invented address, outside any segment.

use quick_protobuf::BytesReader;
use rustc_hash::FxHashMap;

use super::FormatError;
use crate::model::{
    Block, BlockState, Capabilities, DeviceId, DeviceKind, DeviceRecording, EventTable, Format, Frame, Known, LoadReport,
    Progress, Recording, Source, StackId, StackTableBuilder, StrId, WarningKind,
};
use crate::units::{count, counted};

/// Name and unit of the values in JAX's samples.
const TYPES: [(&[u8], &[u8]); 2] = [(b"allocations", b"count"), (b"space", b"bytes")];
/// More arrays than any process keeps. A sample of a few bytes can claim any number.
const MOST_BLOCKS: u64 = 1 << 21;
/// More devices than one process drives.
const MOST_DEVICES: usize = 4096;
/// The innermost frame for a compiled program, above the stack that compiled it.
const PROGRAM: (&str, &str) = ("compiled program", "<executable>");

/// The function through which a user's call enters JAX. JAX omits the frames inside it from its own tracebacks.
const BOUNDARY: &[u8] = b"reraise_with_filtered_traceback";

/// True for the beginning of a pprof profile: a value type, which is two numbers, followed by another field.
pub(super) fn is_pprof(head: &[u8]) -> bool {
    let mut fields = Fields::of(head);
    let Some(Ok((1, Value::Bytes(kind)))) = fields.next() else { return false };
    let mut numbers = Fields::of(kind);
    let mut is_number = |wanted| matches!(numbers.next(), Some(Ok((field, Value::Number(_)))) if field == wanted);
    let is_type = is_number(1) && is_number(2) && numbers.next().is_none();
    is_type && fields.next().is_none_or(|next| next.is_err() || next.is_ok_and(|(field, _)| (1..=15).contains(&field)))
}

/// Reads a device memory profile, unpacked. Fails with [`FormatError::Malformed`] if it is damaged, [`FormatError::Elsewhere`] for
/// other pprof profiles and for one without arrays, [`FormatError::TooLarge`] beyond what a process can hold.
pub fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    progress.set_total(bytes.len() as u64);
    let mut report = LoadReport::default();
    let profile = Profile::parse(bytes, name, &mut report, progress)?;
    profile.must_be_jax(name)?;
    let elsewhere = |what: &str| FormatError::Elsewhere { name: name.to_owned(), what: what.to_owned() };
    let mut builder = Builder::default();
    // JAX writes one line per location; a file that multiplies them is not a genuine profile.
    let most_frames = bytes.len().saturating_mul(4).saturating_add(1 << 16);
    for (i, sample) in profile.samples.iter().enumerate() {
        if i & 0xff == 0 {
            progress.check()?;
        }
        builder.add(&profile, sample, most_frames, &mut report).map_err(|what| FormatError::TooLarge {
            name: name.to_owned(),
            offset: sample.at,
            what,
        })?;
    }
    let [arrays, programs] = builder.left_out;
    report.warn_many(WarningKind::Skipped, arrays + programs, None, || {
        let arrays = (arrays > 0).then(|| counted(arrays, "array", "arrays"));
        let programs = (programs > 0).then(|| counted(programs, "compiled program", "compiled programs"));
        let both: Vec<String> = arrays.into_iter().chain(programs).collect();
        format!("{} were left out: the file gives them no size", both.join(" and "))
    });
    let mut devices = builder.devices;
    if devices.is_empty() {
        return Err(match report.truncated() {
            Some(_) => elsewhere("this JAX memory profile is cut short before its first array; copy the file again"),
            None => elsewhere(
                "this JAX memory profile has no array in it; call jax.profiler.save_device_memory_profile while the arrays are alive",
            ),
        });
    }
    devices.sort_by_key(|d| (rank(d.id), d.id));
    progress.set_done(bytes.len() as u64);
    Ok(Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::JaxMemoryProfile, bytes: bytes.len() as u64 },
        devices,
        stacks: builder.table.finish(),
        report,
        ..Recording::default()
    })
}

/// Sort order: accelerators first, then the host, then entries without a device.
fn rank(id: DeviceId) -> u8 {
    match id.kind {
        DeviceKind::Cpu | DeviceKind::Host => 1,
        _ if id == UNNAMED => 2,
        _ => 0,
    }
}

/// JAX reports the sizes of arrays, not of the blocks that hold them, so a size is a requested size.
const CAN_SHOW: Capabilities = Capabilities {
    requested: Known::Yes,
    addresses: Known::No("This file tells no addresses."),
    segments: Known::No("JAX's profile has arrays and compiled programs only: what JAX reserved is not in it."),
};

/// The file names no device for compiled programs.
const UNNAMED: DeviceId = DeviceId { kind: DeviceKind::Other, index: -1 };

/// Parses `cuda:0`, `gpu:1`, `rocm:0`, `TFRT_CPU_0`, `TPU_0(process=0,(0,0,0,0))`: the device, and its name if the kind lacks it.
fn device_of(label: &str) -> (DeviceId, Option<String>) {
    let label = label.trim();
    let plain = label.split('(').next().unwrap_or(label);
    let platform = plain.trim_end_matches(|c: char| c.is_ascii_digit());
    let Ok(index) = plain[platform.len()..].parse::<i32>() else {
        // JAX gives no device for compiled programs.
        return (UNNAMED, Some(if label.is_empty() { "compiled programs" } else { label }.to_owned()));
    };
    let platform = platform.trim_end_matches([':', '_']).to_ascii_lowercase();
    let of = |kind| DeviceId { kind, index };
    match platform.rsplit(['_', ':']).next().unwrap_or("") {
        "cuda" | "gpu" => (of(DeviceKind::Cuda), None),
        "rocm" => (of(DeviceKind::Cuda), Some("AMD GPU".to_owned())),
        "xpu" | "sycl" => (of(DeviceKind::Xpu), None),
        // The first CPU gets the index that other sources give the host, so that --device 0 is the accelerator.
        "cpu" => (DeviceId { kind: DeviceKind::Cpu, index: if index == 0 { -1 } else { index } }, None),
        "tpu" => (of(DeviceKind::Tpu), None),
        _ => (of(DeviceKind::Other), Some(label.to_owned())),
    }
}

/// Arrays or programs of one size and one stack.
struct Sample {
    at: u64,
    /// Range of [`Profile::ids`], innermost first.
    stack: (usize, usize),
    number: i64,
    bytes: i64,
    /// Range of [`Profile::labels`]; the end is exclusive.
    labels: (usize, usize),
}

/// The messages of the file. Texts are still numbers, because the table of texts comes last.
#[derive(Default)]
struct Profile<'a> {
    types: Vec<(u64, u64)>,
    samples: Vec<Sample>,
    ids: Vec<u64>,
    labels: Vec<(u64, u64)>,
    /// The lines of a location, as a range of `lines`.
    locations: FxHashMap<u64, (usize, usize)>,
    /// Function and line; of inlined functions the innermost first.
    lines: Vec<(u64, u64)>,
    /// Name and file, as text numbers.
    functions: FxHashMap<u64, (u64, u64)>,
    texts: Vec<&'a [u8]>,
}

impl<'a> Profile<'a> {
    /// Parses the file; an incomplete last message is dropped and reported.
    fn parse(bytes: &'a [u8], name: &str, report: &mut LoadReport, progress: &Progress) -> Result<Self, FormatError> {
        let mut profile = Profile::default();
        let mut fields = Fields::of(bytes);
        let mut number = 0u32;
        loop {
            let at = fields.at() as u64;
            number = number.wrapping_add(1);
            if number & 0xfff == 0 {
                progress.check()?;
                progress.set_done(at);
            }
            let (field, value) = match fields.next() {
                None => return Ok(profile),
                Some(Ok(field)) => field,
                Some(Err(Broken)) if profile.types.is_empty() => return Err(malformed(name, at)),
                Some(Err(Broken)) => {
                    report.warn(WarningKind::Truncated, Some(at), || {
                        "the profile ends in the middle; what came before was read".to_owned()
                    });
                    return Ok(profile);
                }
            };
            if let Value::Bytes(message) = value {
                profile.message(at, field, message, report).map_err(|Broken| malformed(name, at))?;
            }
        }
    }

    /// Reads a message of the profile by its field number.
    fn message(&mut self, at: u64, field: u32, message: &'a [u8], report: &mut LoadReport) -> Result<(), Broken> {
        match field {
            1 => self.types.push(pair(message, 1, 2)?),
            2 => self.sample(at, message, report)?,
            4 => {
                let (mut id, from) = (0, self.lines.len());
                for part in Fields::of(message) {
                    match part? {
                        (1, Value::Number(n)) => id = n,
                        (4, Value::Bytes(line)) => self.lines.push(pair(line, 1, 2)?),
                        _ => {}
                    }
                }
                self.locations.insert(id, (from, self.lines.len()));
            }
            5 => {
                let (id, name) = pair(message, 1, 2)?;
                self.functions.insert(id, (name, pair(message, 1, 4)?.1));
            }
            6 => self.texts.push(message),
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, at: u64, message: &'a [u8], report: &mut LoadReport) -> Result<(), Broken> {
        let (first_id, first_label) = (self.ids.len(), self.labels.len());
        let mut values = Vec::new();
        for part in Fields::of(message) {
            match part? {
                (1, ids) => ids.numbers(&mut self.ids)?,
                (2, these) => these.numbers(&mut values)?,
                (3, Value::Bytes(label)) => self.labels.push(pair(label, 1, 2)?),
                _ => {}
            }
        }
        match values[..] {
            // Values are signed, in two's complement.
            [number, bytes, ..] => self.samples.push(Sample {
                at,
                stack: (first_id, self.ids.len()),
                number: number.cast_signed(),
                bytes: bytes.cast_signed(),
                labels: (first_label, self.labels.len()),
            }),
            _ => report.warn(WarningKind::WrongType, Some(at), || "samples without both values were left out".to_owned()),
        }
        Ok(())
    }

    /// A text; empty if the file lacks it. Converted only once, because many samples may refer to one long text.
    fn text(&self, id: u64) -> &'a [u8] {
        usize::try_from(id).ok().and_then(|i| self.texts.get(i)).copied().unwrap_or_default()
    }

    /// The text number of a sample's label; 0 (the empty text) if it lacks the label.
    fn label(&self, sample: &Sample, key: &[u8]) -> u64 {
        let labels = self.labels.get(sample.labels.0..sample.labels.1).unwrap_or_default();
        labels.iter().find(|l| self.text(l.0) == key).map_or(0, |l| l.1)
    }

    /// Refuses profiles of other programs, or of JAX for other purposes.
    fn must_be_jax(&self, name: &str) -> Result<(), FormatError> {
        let is_wanted = |(t, wanted): (&(u64, u64), (&[u8], &[u8]))| self.text(t.0) == wanted.0 && self.text(t.1) == wanted.1;
        let has_types = self.types.len() == TYPES.len() && self.types.iter().zip(TYPES).all(is_wanted);
        let has_kinds = self.samples.is_empty() || self.samples.iter().any(|s| self.label(s, b"kind") != 0);
        if has_types && has_kinds {
            return Ok(());
        }
        let names = self.types.iter().take(4).map(|t| short(self.text(t.0))).filter(|name| !name.trim().is_empty());
        let names: Vec<String> = names.collect();
        let of = if names.is_empty() || has_types { String::new() } else { format!(" of {}", names.join(", ")) };
        let what = format!(
            "this is a pprof profile{of}, and not one of device memory; open it with pprof, or write one of device memory with \
             jax.profiler.save_device_memory_profile"
        );
        Err(FormatError::Elsewhere { name: name.to_owned(), what })
    }
}

fn malformed(name: &str, offset: u64) -> FormatError {
    FormatError::Malformed { name: name.to_owned(), offset, what: "this part of the pprof profile cannot be read".to_owned() }
}

/// The beginning of a text, on one line and short enough for a sentence.
fn short(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text.get(..64).unwrap_or(text));
    text.chars().filter(|c| !c.is_control()).collect()
}

#[derive(Default)]
struct Builder {
    devices: Vec<DeviceRecording>,
    /// Indices into `devices`, by text number and by text.
    by_text: FxHashMap<u64, usize>,
    by_label: FxHashMap<String, usize>,
    table: StackTableBuilder,
    /// Name and file of each function that occurs in a stack.
    functions: FxHashMap<u64, (StrId, StrId)>,
    blocks: u64,
    frames: usize,
    /// Number of arrays and of programs without bytes.
    left_out: [u64; 2],
}

impl Builder {
    fn add(&mut self, profile: &Profile<'_>, sample: &Sample, most_frames: usize, report: &mut LoadReport) -> Result<(), String> {
        let Some(number) = u64::try_from(sample.number).ok().filter(|&n| n > 0) else { return Ok(()) };
        let is_program = match profile.text(profile.label(sample, b"kind")) {
            b"executable" => true,
            b"buffer" => false,
            _ => {
                report.warn(WarningKind::Skipped, Some(sample.at), || {
                    "samples that are neither arrays (`buffer`) nor compiled programs (`executable`) were left out".to_owned()
                });
                return Ok(());
            }
        };
        // XLA reports -1 for a program of unknown size.
        let Some(bytes) = u64::try_from(sample.bytes).ok().filter(|&b| b > 0) else {
            let left_out = &mut self.left_out[usize::from(is_program)];
            *left_out = left_out.saturating_add(number);
            return Ok(());
        };
        if bytes > super::MAX_BYTES {
            report.warn(WarningKind::WrongType, Some(sample.at), || {
                format!("samples of {} bytes, which no device has, were left out", count(bytes))
            });
            return Ok(());
        }
        self.blocks = self.blocks.saturating_add(number);
        if self.blocks > MOST_BLOCKS {
            return Err(format!("it tells of {} arrays, more than a process keeps", count(self.blocks)));
        }
        let stack = self.stack(profile, sample, is_program, most_frames)?;
        let device = self.device(profile, profile.label(sample, b"device"))?;
        // JAX's arrays of a sample have one size. If another writer's total does not divide evenly, the first arrays get the rest.
        let (each, over) = (bytes / number, bytes % number);
        for i in 0..number {
            let size = each + u64::from(i < over);
            if size == 0 {
                break;
            }
            // At least a byte apart, so that no two blocks are adjacent; the first address is not 0.
            let address = device.blocks.last().map_or(512, |b| (b.address + b.size + 512) & !511);
            if !super::has_room(address, size) {
                return Err("its arrays are larger together than any memory".to_owned());
            }
            device.blocks.push(Block { address, size, requested: size, state: BlockState::Active, stack });
        }
        Ok(())
    }

    /// The device for a label; added if it is new.
    fn device(&mut self, profile: &Profile<'_>, text: u64) -> Result<&mut DeviceRecording, String> {
        let at = match self.by_text.get(&text) {
            Some(&at) => at,
            None => {
                let label = short(profile.text(text));
                let at = self.by_label.get(&label).copied().unwrap_or(self.devices.len());
                if at == self.devices.len() {
                    if at == MOST_DEVICES {
                        return Err(format!("it names more than {MOST_DEVICES} devices"));
                    }
                    let (id, name) = device_of(&label);
                    let mut device = DeviceRecording { id, name, can_show: CAN_SHOW, ..DeviceRecording::default() };
                    device.events = EventTable { sizes_are_blocks: true, ..EventTable::default() };
                    device.pools.push((0, 0));
                    device.intern_stream(0);
                    self.devices.push(device);
                    self.by_label.insert(label, at);
                }
                self.by_text.insert(text, at);
                at
            }
        };
        self.devices.get_mut(at).ok_or_else(String::new)
    }

    fn stack(&mut self, profile: &Profile<'_>, sample: &Sample, is_program: bool, most_frames: usize) -> Result<StackId, String> {
        let mut frames = Vec::new();
        let ids = profile.ids.get(sample.stack.0..sample.stack.1).unwrap_or_default();
        // Hides JAX's innermost frames up to the last boundary: users do not care whether a call was compiled or cached.
        let (mut is_inside, mut hidden) = (true, 0);
        for id in ids {
            let (from, to) = profile.locations.get(id).copied().unwrap_or_default();
            for &(function, line) in profile.lines.get(from..to).unwrap_or_default() {
                self.frames += 1;
                if self.frames > most_frames {
                    return Err("its stacks have more lines than a profile of its size".to_owned());
                }
                let Some(&texts) = profile.functions.get(&function) else { continue };
                let file = profile.text(texts.1);
                is_inside &= [&b"/jax/"[..], b"/jaxlib/"].iter().any(|package| memchr::memmem::find(file, package).is_some());
                let (name, file) = *self.functions.entry(function).or_insert_with(|| {
                    let mut string = |text| self.table.string(&String::from_utf8_lossy(profile.text(text)));
                    (string(texts.0), string(texts.1))
                });
                frames.push(self.table.frame(Frame { name, file, line: u32::try_from(line).unwrap_or(0) }));
                if is_inside && profile.text(texts.0) == BOUNDARY {
                    hidden = frames.len();
                }
            }
        }
        // A stack that consists only of such frames stays.
        frames.drain(..if hidden < frames.len() { hidden } else { 0 });
        if is_program {
            frames.insert(0, self.table.frame_of(PROGRAM.0, PROGRAM.1, 0));
        }
        Ok(self.table.stack(&frames))
    }
}

/// The bytes are not a valid protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken;

/// The value of a field. Groups and fixed-size numbers are skipped.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

impl Value<'_> {
    /// Appends the numbers of a repeated field, packed or single.
    fn numbers(self, out: &mut Vec<u64>) -> Result<(), Broken> {
        match self {
            Value::Number(n) => out.push(n),
            Value::Bytes(packed) => {
                let mut reader = BytesReader::from_bytes(packed);
                while !reader.is_eof() {
                    out.push(reader.read_varint64(packed).map_err(|_| Broken)?);
                }
            }
            Value::Other => {}
        }
        Ok(())
    }
}

/// The fields of a message. Each message has a reader over its own bytes only, which cannot read past its end.
struct Fields<'a> {
    bytes: &'a [u8],
    reader: BytesReader,
}

impl<'a> Fields<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Fields { bytes, reader: BytesReader::from_bytes(bytes) }
    }

    fn at(&self) -> usize {
        self.bytes.len() - self.reader.len()
    }

    fn read(&mut self) -> quick_protobuf::Result<(u32, Value<'a>)> {
        let tag = self.reader.next_tag(self.bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(self.reader.read_varint64(self.bytes)?),
            2 => Value::Bytes(self.reader.read_bytes(self.bytes)?),
            _ => {
                self.reader.read_unknown(self.bytes, tag)?;
                Value::Other
            }
        };
        Ok((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_eof() {
            return None;
        }
        let read = self.read().map_err(|_| Broken);
        if read.is_err() {
            // Nothing after the error can be decoded.
            self.reader = BytesReader::from_bytes(&[]);
            self.bytes = &[];
        }
        Some(read)
    }
}

/// Two numeric fields of a message; 0 if absent.
fn pair(message: &[u8], first: u32, second: u32) -> Result<(u64, u64), Broken> {
    let mut out = (0, 0);
    for part in Fields::of(message) {
        match part? {
            (field, Value::Number(n)) if field == first => out.0 = n,
            (field, Value::Number(n)) if field == second => out.1 = n,
            _ => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
