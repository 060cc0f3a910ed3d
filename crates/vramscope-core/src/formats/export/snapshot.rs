//! Writes a PyTorch snapshot: the dictionary of `_dump_snapshot` as a pickle that `memory_viz`, CPython and vramscope open.
//!
//! Values that PyTorch has no place for (samples, the device's capacity) go under a key of our own: see `formats::aside`.
//!
//! Protocol 4 with explicit memo ids and no frames: opcodes that every reader of snapshots knows. Frames and stacks are written
//! once and then fetched, as PyTorch does.

use std::io::{self, Write};
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::formats::aside;
use crate::model::{
    Action, Block, BlockState, DeviceKind, DeviceRecording, EventId, FrameId, NoteKind, Recording, Segment, StackId,
};

/// The part of a device to write: a range of its events, and the segments after the last of them. Readers derive the state before
/// the first event from both, as for any snapshot whose ring buffer wrapped.
#[derive(Clone, Debug)]
pub struct DevicePart {
    /// Index in [`Recording::devices`].
    pub device: usize,
    /// Events to write; the end is exclusive.
    pub events: Range<EventId>,
    /// Segments after the last of these events.
    pub segments: Vec<Segment>,
    /// Blocks of these segments; [`Segment::blocks`] is a range in here.
    pub blocks: Vec<Block>,
}

impl DevicePart {
    /// The whole device; `None` if the recording has no such device.
    pub fn whole(recording: &Recording, device: usize) -> Option<Self> {
        let d = recording.devices.get(device)?;
        Some(DevicePart { device, events: 0..d.events.len() as u32, segments: d.segments.clone(), blocks: d.blocks.clone() })
    }
}

/// List elements per append, as in CPython. memory_viz passes them as arguments, of which browsers accept about a hundred thousand.
const AT_ONCE: usize = 1000;

/// Writes parts of a recording. With `redact`, the values under our own key contain no names of programs and people; paths in
/// texts must be removed before, with [`super::redact::redact`].
pub fn write(recording: &Recording, parts: &[DevicePart], redact: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut w = Writer {
        out,
        recording,
        redact,
        memo: 0,
        strings: FxHashMap::default(),
        frames: FxHashMap::default(),
        stacks: FxHashMap::default(),
    };
    w.out.write_all(&[0x80, 4])?;
    w.snapshot(parts)?;
    w.out.write_all(b".")?;
    w.out.flush()
}

struct Writer<'w, 'r> {
    out: &'w mut dyn Write,
    recording: &'r Recording,
    redact: bool,
    memo: u32,
    strings: FxHashMap<String, u32>,
    frames: FxHashMap<FrameId, u32>,
    stacks: FxHashMap<StackId, u32>,
}

impl Writer<'_, '_> {
    fn put(&mut self) -> io::Result<u32> {
        let id = self.memo;
        self.memo += 1;
        match u8::try_from(id) {
            Ok(short) => self.out.write_all(&[b'q', short])?,
            Err(_) => {
                self.out.write_all(b"r")?;
                self.out.write_all(&id.to_le_bytes())?;
            }
        }
        Ok(id)
    }

    fn get(&mut self, id: u32) -> io::Result<()> {
        match u8::try_from(id) {
            Ok(short) => self.out.write_all(&[b'h', short]),
            Err(_) => {
                self.out.write_all(b"j")?;
                self.out.write_all(&id.to_le_bytes())
            }
        }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&id) = self.strings.get(text) {
            return self.get(id);
        }
        // No file that is read whole can contain a string of 4 GiB.
        let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a text of more than 4 GiB"))?;
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        let id = self.put()?;
        self.strings.insert(text.to_owned(), id);
        Ok(())
    }

    fn integer(&mut self, value: i128) -> io::Result<()> {
        if let Ok(v) = u8::try_from(value) {
            return self.out.write_all(&[b'K', v]);
        }
        if let Ok(v) = u16::try_from(value) {
            self.out.write_all(b"M")?;
            return self.out.write_all(&v.to_le_bytes());
        }
        if let Ok(v) = i32::try_from(value) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&v.to_le_bytes());
        }
        // LONG1: two's complement in as few bytes as possible.
        let bytes = value.to_le_bytes();
        let mut length = bytes.len();
        while length > 1 && bytes[length - 1] == if bytes[length - 2] & 0x80 == 0 { 0 } else { 0xff } {
            length -= 1;
        }
        self.out.write_all(&[0x8a, length as u8])?;
        self.out.write_all(&bytes[..length])
    }

    fn unsigned(&mut self, value: u64) -> io::Result<()> {
        self.integer(i128::from(value))
    }

    fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(if value { &[0x88] } else { &[0x89] })
    }

    fn pair(&mut self, a: u64, b: u64) -> io::Result<()> {
        self.unsigned(a)?;
        self.unsigned(b)?;
        self.out.write_all(&[0x86])
    }

    fn open(&mut self, bracket: u8) -> io::Result<()> {
        self.out.write_all(&[bracket, b'('])
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Self, T) -> io::Result<()>) -> io::Result<()> {
        self.open(b']')?;
        for item in items {
            write(self, item)?;
        }
        self.out.write_all(b"e")
    }

    /// Starts the element `at` of an open list.
    fn element(&mut self, at: usize) -> io::Result<()> {
        if at > 0 && at.is_multiple_of(AT_ONCE) { self.out.write_all(b"e(") } else { Ok(()) }
    }

    fn number_field(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.text(key)?;
        self.unsigned(value)
    }

    fn text_field(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.text(key)?;
        self.text(value)
    }

    fn snapshot(&mut self, parts: &[DevicePart]) -> io::Result<()> {
        let recording = self.recording;
        let device = |p: &DevicePart| recording.devices.get(p.device);
        let is_gpu =
            |d: &DeviceRecording| matches!(d.id.kind, DeviceKind::Cuda | DeviceKind::Xpu | DeviceKind::Other) && d.id.index >= 0;
        let gpus: Vec<&DevicePart> = parts.iter().filter(|p| device(p).is_some_and(is_gpu)).collect();
        let hosts: Vec<&DevicePart> = parts.iter().filter(|p| device(p).is_some_and(|d| d.id.kind == DeviceKind::Host)).collect();
        self.open(b'}')?;
        self.text("segments")?;
        self.list(&gpus, |w, part| w.segments(part))?;

        // One list per ordinal; empty for devices that are not written but that the source lists.
        self.text("device_traces")?;
        let last = gpus.iter().filter_map(|&p| device(p)).map(|d| d.id.index).max();
        let listed = i32::try_from(recording.lists.device_traces).unwrap_or(0);
        self.list(0..last.map_or(0, |last| last + 1).max(listed), |w, index| {
            w.list(gpus.iter().filter(|p| device(p).is_some_and(|d| d.id.index == index)), |w, part| w.trace(part))
        })?;

        if let Some(first) = gpus.first().and_then(|&p| device(p)).filter(|d| d.settings.recorded) {
            self.settings(first)?;
        }
        self.text("external_annotations")?;
        self.annotations(&gpus)?;
        if let Some(text) = aside::text(recording, parts, self.redact) {
            self.text_field(aside::KEY, &text)?;
        }
        if !hosts.is_empty() || recording.lists.host_segments {
            self.text("host_segments")?;
            self.list(&hosts, |w, part| w.segments(part))?;
        }
        if !hosts.is_empty() || recording.lists.host_traces {
            self.text("host_traces")?;
            self.list(&hosts, |w, part| w.trace(part))?;
        }
        self.out.write_all(b"u")
    }

    fn segments(&mut self, part: &DevicePart) -> io::Result<()> {
        let Some(device) = self.recording.devices.get(part.device) else { return Ok(()) };
        for (at, segment) in part.segments.iter().enumerate() {
            self.element(at)?;
            let blocks = part.blocks.get(segment.blocks.start as usize..segment.blocks.end as usize).unwrap_or(&[]);
            let sum = |f: &dyn Fn(&Block) -> u64| blocks.iter().map(f).sum::<u64>();
            let of = |b: &Block, wanted: bool, value: u64| if wanted && b.state != BlockState::Inactive { value } else { 0 };
            self.open(b'}')?;
            self.text("device")?;
            self.integer(i128::from(device.id.index))?;
            self.number_field("address", segment.address)?;
            self.number_field("total_size", segment.size)?;
            self.number_field("allocated_size", sum(&|b| of(b, b.state == BlockState::Active, b.size)))?;
            self.number_field("active_size", sum(&|b| of(b, true, b.size)))?;
            self.number_field("requested_size", sum(&|b| of(b, true, b.requested)))?;
            self.number_field("stream", device.stream_handle(segment.stream))?;
            self.text_field("segment_type", segment.class.name())?;
            self.text("segment_pool_id")?;
            let (a, b) = device.pool_key(segment.pool).unwrap_or((0, 0));
            self.pair(a, b)?;
            self.text("is_expandable")?;
            self.boolean(segment.is_expandable)?;
            self.text("frames")?;
            self.stack(segment.stack)?;
            self.text("blocks")?;
            self.list(blocks.iter().enumerate(), |w, (at, block)| {
                w.element(at)?;
                w.open(b'}')?;
                w.number_field("address", block.address)?;
                w.number_field("size", block.size)?;
                w.number_field("requested_size", block.requested)?;
                w.text_field("state", block.state.name())?;
                w.text("frames")?;
                w.stack(block.stack)?;
                w.out.write_all(b"u")
            })?;
            self.out.write_all(b"u")?;
        }
        Ok(())
    }

    fn trace(&mut self, part: &DevicePart) -> io::Result<()> {
        let Some(device) = self.recording.devices.get(part.device) else { return Ok(()) };
        let recording = self.recording;
        let events = &device.events;
        for event in part.events.start..part.events.end.min(events.len() as u32) {
            let i = event as usize;
            let notes = events.notes_of(event);
            let note = |kind: NoteKind| notes.iter().find(|n| n.kind == kind).map(|n| recording.stacks.text(n.text));
            let action = events.action[i];
            self.element(i - part.events.start as usize)?;
            self.open(b'}')?;
            self.text_field("action", note(NoteKind::Action).unwrap_or(action.name()))?;
            if action == Action::Oom {
                self.number_field("device_free", events.device_free(event).unwrap_or(0))?;
            } else {
                self.number_field("addr", events.address[i])?;
            }
            self.number_field("size", events.size[i])?;
            self.number_field("stream", device.stream_handle(events.stream[i]))?;
            if events.has_time {
                self.text("time_us")?;
                self.integer(i128::from(events.time_us[i]))?;
            }
            if let Some(text) = note(NoteKind::CompileContext) {
                self.text_field("compile_context", text)?;
            }
            if let Some(text) = note(NoteKind::UserMetadata) {
                self.text_field("user_metadata", text)?;
            }
            if let Some((a, b)) = device.pool_key(events.pool[i]) {
                self.text("pool_id")?;
                self.pair(a, b)?;
            }
            if events.stack[i].is_some() {
                self.text("frames")?;
                self.stack(events.stack[i])?;
            }
            self.out.write_all(b"u")?;
        }
        Ok(())
    }

    fn stack(&mut self, stack: StackId) -> io::Result<()> {
        if let Some(&id) = self.stacks.get(&stack) {
            return self.get(id);
        }
        let recording = self.recording;
        self.list(recording.stacks.frames(stack), |w, &frame| w.frame(frame))?;
        let id = self.put()?;
        self.stacks.insert(stack, id);
        Ok(())
    }

    fn frame(&mut self, id: FrameId) -> io::Result<()> {
        if let Some(&known) = self.frames.get(&id) {
            return self.get(known);
        }
        let Some(frame) = self.recording.stacks.frame(id) else { return Ok(()) };
        let recording = self.recording;
        let file = recording.stacks.text(frame.file);
        self.open(b'}')?;
        self.text_field("name", recording.stacks.text(frame.name))?;
        self.text_field("filename", file)?;
        self.number_field("line", u64::from(frame.line))?;
        self.out.write_all(b"u")?;
        let known = self.put()?;
        self.frames.insert(id, known);
        Ok(())
    }

    /// Settings as in the source: numbers and booleans as such, the divisions as PyTorch's dictionary.
    fn settings(&mut self, device: &DeviceRecording) -> io::Result<()> {
        self.text("allocator_settings")?;
        self.open(b'}')?;
        for (key, value) in &device.settings.raw {
            self.text(key)?;
            if key == "roundup_power2_divisions" {
                self.open(b'}')?;
                for (i, &divisions) in device.settings.conf.roundup_power2_divisions.iter().enumerate() {
                    self.number_field(&(1u64 << i).to_string(), u64::from(divisions))?;
                }
                self.out.write_all(b"u")?;
            } else if let "True" | "true" | "False" | "false" = value.as_str() {
                self.boolean(value.starts_with(['T', 't']))?;
            } else if let Ok(number) = value.parse::<i64>() {
                self.integer(i128::from(number))?;
            } else if let (Ok(number), false) = (value.parse::<f64>(), value.is_empty()) {
                self.out.write_all(b"G")?;
                self.out.write_all(&number.to_be_bytes())?;
            } else {
                self.text(value)?;
            }
        }
        self.out.write_all(b"u")
    }

    /// START and END marks by time, for the ranges that overlap the written events.
    fn annotations(&mut self, parts: &[&DevicePart]) -> io::Result<()> {
        let recording = self.recording;
        let mut marks: Vec<(i64, bool, i32, &str)> = Vec::new();
        for part in parts {
            let Some(device) = recording.devices.get(part.device) else { continue };
            let time = |event: u32| device.events.time_us.get(event as usize).copied();
            let is_whole = part.events.start == 0 && part.events.end as usize >= device.events.len();
            let first = if is_whole { None } else { time(part.events.start) };
            let last = if is_whole { None } else { part.events.end.checked_sub(1).and_then(time) };
            for a in &device.annotations {
                let ends_before = a.end_us.zip(first).is_some_and(|(end, first)| end < first);
                if ends_before || last.is_some_and(|last| a.start_us > last) {
                    continue;
                }
                let name = recording.stacks.text(a.name);
                marks.push((a.start_us, false, device.id.index, name));
                if let Some(end) = a.end_us {
                    marks.push((end, true, device.id.index, name));
                }
            }
        }
        marks.sort_by_key(|m| m.0);
        self.list(marks.into_iter().enumerate(), |w, (at, (time, is_end, device, name))| {
            w.element(at)?;
            w.open(b'}')?;
            w.text_field("stage", if is_end { "END" } else { "START" })?;
            w.text_field("name", name)?;
            w.text("device")?;
            w.integer(i128::from(device))?;
            w.text("time_us")?;
            w.integer(i128::from(time))?;
            w.out.write_all(b"u")
        })
    }
}
