//! Joins two recordings of one run: a snapshot gains the operators, shapes, modules and ranges of a profiler trace, and the
//! categories of a memory timeline, on one clock.
//!
//! A snapshot has segments, streams, pools and requested sizes; a trace has what the program was doing. Both contain the same
//! allocations in the same order, so `align` finds the pairs and the offset of the clocks, or refuses.

mod align;
mod watch;

use rustc_hash::FxHashMap;

use self::align::{Fit, Misfit, Row, align};
use self::watch::is_watch;
pub use self::watch::{Laid, SnapshotProcess, lay_under};
use crate::anatomy::modules::{module_path, phase};
use crate::model::{
    Action, Added, Annotation, Clock, DeviceId, DeviceRecording, Format, Frame, FrameId, Note, NoteKind, OpTable, Progress,
    Recording, StackId, StackTable, StackTableBuilder, StrId,
};
use crate::tables::{DeviceTables, LifetimeId};
use crate::units::{Micros, count, counted};

/// The result of joining.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Join {
    /// The file that was added.
    #[serde(rename = "file")]
    pub name: String,
    /// Microseconds to add to its times to get those of the recording.
    pub offset_us: i64,
    /// Number of its memory events that match events of the recording.
    #[serde(rename = "matched_events")]
    pub matched: u64,
    /// Number of its memory events within the recording's time.
    #[serde(rename = "expected_events")]
    pub expected: u64,
    /// True if one of the two has no absolute times: the offset then says nothing about clocks.
    #[serde(skip)]
    pub is_without_clock: bool,
    /// Median time difference of matched events, after the shift.
    pub typical_us: i64,
    /// Maximum time difference of matched events, after the shift.
    pub widest_us: i64,
    /// Number of allocations that gained an operator.
    pub operators: u64,
    /// Number of allocations that gained a module.
    pub modules: u64,
    /// Number of allocations that gained a category.
    pub categories: u64,
    /// Number of allocations that had no call stack and gained one.
    pub stacks: u64,
    /// Number of operators, runtime calls and kernels added.
    pub ops: u64,
    /// Number of ranges added.
    pub annotations: u64,
    /// Device samples, if a live session was added.
    #[serde(skip)]
    pub laid: Option<Laid>,
}

impl Join {
    /// One sentence: how many events matched, and the offset of the clocks.
    pub fn sentence(&self) -> String {
        if let Some(laid) = &self.laid {
            return laid.sentence(&self.name);
        }
        let clocks = match self.offset_us {
            _ if self.is_without_clock => {
                "their times were laid over each other, since one of them names no clock, give or take".to_owned()
            }
            0 => "the clocks agree, give or take".to_owned(),
            o if o < 0 => format!("its clock is {} ahead, give or take", Micros(-o)),
            o => format!("its clock is {} behind, give or take", Micros(o)),
        };
        format!(
            "{}: {} of {} are in this recording; {clocks} {} for half of the events and {} at most.",
            self.name,
            count(self.matched),
            counted(self.expected, "memory event", "memory events"),
            Micros(self.typical_us.max(1)),
            Micros(self.widest_us.max(1))
        )
    }

    /// What the recording gained, as a list: `operators for 1,176 allocations`.
    pub fn gained(&self) -> Vec<String> {
        let of = |n: u64, what: &str| (n > 0).then(|| format!("{what} for {}", counted(n, "allocation", "allocations")));
        [
            of(self.operators, "operators"),
            of(self.modules, "modules"),
            of(self.categories, "categories"),
            of(self.stacks, "call stacks"),
            (self.ops > 0).then(|| counted(self.ops, "operator, call or kernel", "operators, calls and kernels")),
            (self.annotations > 0).then(|| counted(self.annotations, "range", "ranges")),
            self.laid.as_ref().map(|l| counted(l.samples, "sample of the whole card", "samples of the whole card")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Why two recordings were not joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotJoined(String);

fn refuse<T>(sentence: String) -> Result<T, NotJoined> {
    Err(NotJoined(sentence))
}

/// Whether `extra` can be added to `base`: a trace or a timeline to a snapshot, a timeline to a trace, a live session to any.
pub fn can_join(base: &Recording, extra: &Recording) -> bool {
    let rank = |r: &Recording| match r.source.format {
        Format::SnapshotPickle | Format::SnapshotJson | Format::SnapshotHtml => 2,
        Format::KinetoTrace => 1,
        Format::MemoryTimeline => 0,
        _ => 3,
    };
    rank(base) <= 2 && (rank(extra) < rank(base) || is_watch(extra))
}

/// Adds `extra` (a profiler trace, a memory timeline in its raw form, or a live session) to `base`. Fails with one sentence: they
/// are not of the same run, or one of them lacks what the match needs.
pub fn join(mut base: Recording, extra: &Recording, progress: &Progress) -> Result<(Recording, Join), NotJoined> {
    let (name, base_name) = (&extra.source.name, base.source.name.clone());
    if !can_join(&base, extra) {
        return refuse(format!(
            "{name} cannot be added to {base_name}: a profiler trace or a memory timeline can be added to a snapshot, \
             and a timeline to a trace"
        ));
    }
    if is_watch(extra) {
        let laid = lay_under(&mut base, extra, &SnapshotProcess::default())?;
        let join = Join { name: name.clone(), laid: Some(laid), ..Join::default() };
        base.added.push(Added { name: name.clone(), sentence: join.sentence() });
        return Ok((base, join));
    }
    let matches = match_devices(&base, extra, progress)?;
    let Some(best) = matches.first() else {
        return refuse(format!(
            "{name} has no memory events of a device of {base_name}: was it profiled with profile_memory=True?"
        ));
    };
    let mut join = Join {
        name: name.clone(),
        offset_us: best.fit.offset_us,
        is_without_clock: base.clock() != Clock::Epoch || extra.clock() != Clock::Epoch,
        matched: matches.iter().map(|m| m.fit.pairs.len() as u64).sum(),
        expected: matches.iter().map(|m| m.fit.expected).sum(),
        typical_us: best.fit.typical_us,
        widest_us: matches.iter().map(|m| m.fit.widest_us).max().unwrap_or(0),
        ..Join::default()
    };
    let mut texts = Texts::new(std::mem::take(&mut base.stacks), &extra.stacks);
    for m in &matches {
        let (Some(device), Some(other)) = (base.devices.get_mut(m.base), extra.devices.get(m.extra)) else { continue };
        attach(device, other, &m.fit, &mut texts, &mut join);
        device.name = device.name.take().or_else(|| other.name.clone());
        device.capacity = device.capacity.or(other.capacity);
        if device.bands.is_empty() {
            device.bands = other.bands.clone();
            device.bands.time_us.iter_mut().for_each(|t| *t = t.saturating_add(join.offset_us));
        }
    }
    if let Some(ranges) = matches.first().and_then(|m| extra.devices.get(m.extra)).map(|d| &d.annotations) {
        for device in &mut base.devices {
            join.annotations = join.annotations.max(add_annotations(device, ranges, join.offset_us, &mut texts));
        }
    }
    if base.ops.is_empty() && !extra.ops.is_empty() {
        base.ops = shifted_ops(&extra.ops, join.offset_us, &mut texts);
        join.ops = base.ops.len() as u64;
    }
    base.stacks = texts.builder.finish();
    base.added.push(Added { name: name.clone(), sentence: join.sentence() });
    Ok((base, join))
}

/// A device of each recording that are the same.
struct Match {
    base: usize,
    extra: usize,
    fit: Fit,
}

/// Pairs of devices with the same events, the one with most matches first; all have the same clock offset.
fn match_devices(base: &Recording, extra: &Recording, progress: &Progress) -> Result<Vec<Match>, NotJoined> {
    let (name, base_name) = (&extra.source.name, &base.source.name);
    let by_size = extra.source.format == Format::MemoryTimeline;
    let mut found: Vec<Match> = Vec::new();
    let mut misfits: Vec<Misfit> = Vec::new();
    let mut without_times = false;
    for (e, other) in extra.devices.iter().enumerate() {
        for (b, device) in base.devices.iter().enumerate() {
            // A timeline does not name its device.
            if !(by_size || is_same_device(device.id, other.id)) || device.events.is_empty() || other.events.is_empty() {
                continue;
            }
            if !device.events.has_time {
                without_times = true;
                continue;
            }
            if progress.check().is_err() {
                return refuse("cancelled".to_owned());
            }
            let (of_extra, of_base) = if by_size {
                (rows_by_size(other, progress), rows_by_size(device, progress))
            } else {
                (rows_by_address(other), rows_by_address(device))
            };
            match align(&of_extra, &of_base) {
                Ok(fit) => found.push(Match { base: b, extra: e, fit }),
                Err(misfit) => misfits.push(misfit),
            }
        }
    }
    if by_size {
        // A timeline has one device: take the best fit.
        found.sort_by_key(|m| std::cmp::Reverse(m.fit.pairs.len()));
        found.truncate(1);
    }
    found.sort_by_key(|m| std::cmp::Reverse(m.fit.pairs.len()));
    if let Some(offset) = found.first().map(|m| m.fit.offset_us) {
        // All devices share the process's clocks.
        found.retain(|m| (m.fit.offset_us - offset).abs() <= 1_000);
        return Ok(found);
    }
    let worst = misfits.iter().copied().max_by_key(|m| match m {
        Misfit::Few { matched, .. } => *matched + 1,
        Misfit::Ambiguous { .. } => u64::MAX,
        Misfit::Nothing => 0,
    });
    match worst {
        Some(Misfit::Few { matched, expected }) => refuse(format!(
            "{name} is not of the same run as {base_name}: {} of {} are in it, at the same {} in the same order",
            if matched == 0 { "none".to_owned() } else { format!("only {}", count(matched)) },
            counted(expected, "memory event", "memory events"),
            if by_size { "sizes" } else { "addresses" },
        )),
        Some(Misfit::Ambiguous { first_us, second_us }) => refuse(format!(
            "{name} fits {base_name} equally well at two places {} apart, so nobody can say which steps are which; record a \
             trace that holds something other than identical steps",
            Micros((first_us - second_us).abs())
        )),
        Some(Misfit::Nothing) => refuse(format!("{name} and {base_name} have too few memory events in common to tell")),
        None if without_times => {
            refuse(format!("{base_name} has no times (PyTorch 2.1 and older write none), so {name} cannot be laid over it"))
        }
        None if extra.devices.iter().all(|d| d.events.is_empty()) && by_size => {
            refuse(format!("{name} has only sums, no events: export the timeline as .raw.json.gz, which can be added"))
        }
        None => refuse(format!(
            "{name} has no memory events of a device of {base_name}: profile with torch.profiler.profile(profile_memory=True)"
        )),
    }
}

/// A trace has another device type for AMD than the snapshot, so accelerators with the same index are the same.
fn is_same_device(a: DeviceId, b: DeviceId) -> bool {
    use crate::model::DeviceKind::{Cpu, Host};
    let is_host = |id: DeviceId| matches!(id.kind, Cpu | Host);
    a.index == b.index && !is_host(a) && !is_host(b)
}

/// Allocations and frees by a key, whose lowest bit distinguishes the two.
fn rows(device: &DeviceRecording, key: impl Fn(usize) -> u64) -> Vec<Row> {
    let e = &device.events;
    let keyed = |(i, action): (usize, &Action)| {
        let key = match action {
            Action::Alloc => key(i) | 1,
            Action::FreeRequested => key(i),
            _ => return None,
        };
        Some(Row { time_us: e.time_us[i], key, event: i as u32 })
    };
    e.action.iter().enumerate().filter_map(keyed).collect()
}

/// Blocks are aligned to at least 64 bytes, so the lowest bit of an address is free.
fn rows_by_address(device: &DeviceRecording) -> Vec<Row> {
    rows(device, |i| device.events.address[i] & !1)
}

fn rows_by_size(device: &DeviceRecording, progress: &Progress) -> Vec<Row> {
    let e = &device.events;
    let tables = if e.sizes_are_blocks { None } else { DeviceTables::build(device, progress).ok() };
    let size = |i: usize| match &tables {
        Some(t) => match t.lifetimes.of_event(i as u32) {
            LifetimeId::NONE => e.size[i],
            id => t.lifetimes.block_size(id),
        },
        None => e.size[i],
    };
    rows(device, |i| size(i) << 1)
}

/// Strings and stacks of the added recording, mapped into the table of the other.
struct Texts<'a> {
    builder: StackTableBuilder,
    from: &'a StackTable,
    strings: FxHashMap<StrId, StrId>,
    frames: FxHashMap<FrameId, FrameId>,
    stacks: FxHashMap<StackId, StackId>,
    /// Module and phase of a stack of the added recording.
    meaning: FxHashMap<StackId, (Option<StrId>, Option<StrId>)>,
}

impl<'a> Texts<'a> {
    fn new(into: StackTable, from: &'a StackTable) -> Self {
        Texts {
            builder: into.into(),
            from,
            strings: FxHashMap::default(),
            frames: FxHashMap::default(),
            stacks: FxHashMap::default(),
            meaning: FxHashMap::default(),
        }
    }

    fn string(&mut self, id: StrId) -> StrId {
        let (builder, from) = (&mut self.builder, self.from);
        *self.strings.entry(id).or_insert_with(|| builder.string(from.text(id)))
    }

    fn stack(&mut self, id: StackId) -> StackId {
        if let Some(&known) = self.stacks.get(&id) {
            return known;
        }
        let mut frames = Vec::new();
        for &f in self.from.frames(id) {
            let Some(frame) = self.from.frame(f) else { continue };
            let known = self.frames.get(&f).copied();
            let new = known.unwrap_or_else(|| {
                let (name, file) = (self.string(frame.name), self.string(frame.file));
                self.builder.frame(Frame { name, file, line: frame.line })
            });
            self.frames.insert(f, new);
            frames.push(new);
        }
        let stack = self.builder.stack(&frames);
        self.stacks.insert(id, stack);
        stack
    }

    fn meaning(&mut self, id: StackId) -> (Option<StrId>, Option<StrId>) {
        if let Some(&known) = self.meaning.get(&id) {
            return known;
        }
        let module = module_path(self.from, id).map(|m| self.builder.string(&m));
        let phase = phase(self.from, id).map(|p| self.builder.string(p.name()));
        self.meaning.insert(id, (module, phase));
        (module, phase)
    }
}

/// Adds what `other` knows to the allocations of `device`.
fn attach(device: &mut DeviceRecording, other: &DeviceRecording, fit: &Fit, texts: &mut Texts<'_>, join: &mut Join) {
    let categories = last_categories(other, texts.from);
    let mut notes: Vec<Note> = Vec::new();
    for &(from, to) in &fit.pairs {
        if device.events.action.get(to as usize) != Some(&Action::Alloc) {
            continue;
        }
        let mut has = [false; 5];
        for known in device.events.notes_of(to) {
            if let Some(slot) = slot_of(known.kind) {
                has[slot] = true;
            }
        }
        let mut add = |kind: NoteKind, text: StrId| {
            let is_new = slot_of(kind).is_some_and(|slot| !std::mem::replace(&mut has[slot], true));
            if is_new {
                notes.push(Note { event: to, kind, text });
            }
            is_new
        };
        for note in other.events.notes_of(from) {
            if matches!(note.kind, NoteKind::Operator | NoteKind::Shapes) {
                let is_new = add(note.kind, texts.string(note.text));
                join.operators += u64::from(is_new && note.kind == NoteKind::Operator);
            }
        }
        let stack = other.events.stack.get(from as usize).copied().unwrap_or(StackId::NONE);
        let (module, phase) = texts.meaning(stack);
        if let Some(module) = module {
            join.modules += u64::from(add(NoteKind::Module, module));
        }
        if let Some(phase) = phase {
            add(NoteKind::Phase, phase);
        }
        if let Some(&category) = categories.get(&from) {
            join.categories += u64::from(add(NoteKind::Category, texts.string(category)));
        }
        if stack.is_some() && !device.events.stack[to as usize].is_some() {
            device.events.stack[to as usize] = texts.stack(stack);
            join.stacks += 1;
        }
    }
    device.events.notes.append(&mut notes);
    // A stable sort: the recording's own notes stay before the new ones.
    device.events.notes.sort_by_key(|n| n.event);
}

/// Kinds of notes that an added recording contributes.
fn slot_of(kind: NoteKind) -> Option<usize> {
    match kind {
        NoteKind::Operator => Some(0),
        NoteKind::Shapes => Some(1),
        NoteKind::Module => Some(2),
        NoteKind::Phase => Some(3),
        NoteKind::Category => Some(4),
        _ => None,
    }
}

/// Each allocation's final category, by event. The profiler changes them as it learns how a tensor is used; the last is right.
fn last_categories(device: &DeviceRecording, texts: &StackTable) -> FxHashMap<u32, StrId> {
    let e = &device.events;
    let mut live: FxHashMap<u64, u32> = FxHashMap::default();
    let mut out: FxHashMap<u32, StrId> = FxHashMap::default();
    for note in e.notes.iter().filter(|n| n.kind == NoteKind::Category) {
        let i = note.event as usize;
        match e.action.get(i) {
            Some(Action::Alloc) => {
                live.insert(e.address[i], note.event);
                out.insert(note.event, note.text);
            }
            Some(Action::Annotate) if texts.text(note.text) != "unknown" => {
                if let Some(&born) = live.get(&e.address[i]) {
                    out.insert(born, note.text);
                }
            }
            _ => {}
        }
    }
    out
}

/// Adds ranges that the device lacks (by name and time); returns their number.
fn add_annotations(device: &mut DeviceRecording, ranges: &[Annotation], offset_us: i64, texts: &mut Texts<'_>) -> u64 {
    let mut new: Vec<Annotation> = Vec::new();
    for range in ranges {
        let name = texts.string(range.name);
        let start_us = range.start_us.saturating_add(offset_us);
        let near = device.annotations.partition_point(|a| a.start_us < start_us.saturating_sub(2_000));
        let is_known = device.annotations[near..]
            .iter()
            .take_while(|a| a.start_us <= start_us.saturating_add(2_000))
            .any(|a| a.name == name);
        if !is_known {
            new.push(Annotation { name, start_us, end_us: range.end_us.map(|t| t.saturating_add(offset_us)), ..*range });
        }
    }
    let added = new.len() as u64;
    if added > 0 {
        device.annotations.append(&mut new);
        nest(&mut device.annotations);
    }
    added
}

/// Orders ranges by start, outer ones first, and sets their depth.
fn nest(annotations: &mut [Annotation]) {
    let end = |a: &Annotation| a.end_us.unwrap_or(a.start_us);
    annotations.sort_by_key(|a| (a.start_us, std::cmp::Reverse(end(a))));
    let mut open: Vec<i64> = Vec::new();
    for a in annotations {
        while open.last().is_some_and(|&e| e < end(a) || e <= a.start_us) {
            open.pop();
        }
        a.depth = open.len().min(usize::from(u16::MAX)) as u16;
        open.push(end(a));
    }
}

fn shifted_ops(ops: &OpTable, offset_us: i64, texts: &mut Texts<'_>) -> OpTable {
    let by = offset_us.saturating_mul(1_000);
    let mut ops = ops.clone();
    for start in &mut ops.start_ns {
        *start = start.saturating_add(by);
    }
    for text in ops.name.iter_mut().chain(&mut ops.shapes) {
        if *text != OpTable::NO_TEXT {
            *text = texts.string(*text);
        }
    }
    ops
}

#[cfg(test)]
mod tests;
