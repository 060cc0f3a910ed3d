//! Scans and decodes a pickled snapshot at once: one thread finds entries, all others decode them into columns.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::super::pickle::{self, Budget, MemoIndex, NodeId, Part, PickleError, Scanner, Streamed, Tree};
use super::columns::{self, Columns};
use super::decode::{self, Decoded, Shared, Worker};
use super::trace;
use crate::model::{DeviceRecording, LoadReport, Note, PoolKey, PreviewPoint, Progress, StackTableBuilder};

/// The lists of a snapshot that contain events.
const STREAMED: Streamed = Streamed { nested: &[b"device_traces", b"traces"], flat: &[b"host_traces"] };

/// Files below this size are copied for the decoders, which takes less than a millisecond.
const SMALL: usize = 4 << 20;

/// The events of one list.
pub(super) struct Trace {
    /// The list's node in the tree; it still holds what could not be streamed.
    pub(super) list: NodeId,
    /// Events with their streams and pools; other fields are not set.
    pub(super) device: DeviceRecording,
}

/// A snapshot whose events are decoded and whose other values are a tree.
pub(super) struct Read<'a> {
    pub(super) bytes: usize,
    pub(super) tree: Tree<'a>,
    pub(super) ended: Option<pickle::Ended>,
    pub(super) traces: Vec<Trace>,
    pub(super) stacks: StackTableBuilder,
    pub(super) report: LoadReport,
}

struct Piece {
    sequence: usize,
    list: NodeId,
    slots: usize,
    decoded: Decoded,
}

pub(super) fn read<'a>(bytes: &'a [u8], progress: &Progress) -> Result<Read<'a>, PickleError> {
    let mut columns = Columns::for_file(bytes.len())
        .ok_or_else(|| PickleError::Limit { offset: 0, what: "there is not enough address space for its events".to_owned() })?;
    // The fast decoder reads ahead by a margin. In a small file the last entries are a large share, so it gets a padded copy.
    let padded = if bytes.len() < SMALL { [bytes, &[0; decode::MARGIN]].concat() } else { Vec::new() };
    let shared = Shared {
        bytes: if padded.is_empty() { bytes } else { &padded },
        memo: MemoIndex::default(),
        budget: Budget::for_file(bytes.len()),
        stacks: Mutex::new(StackTableBuilder::new()),
        streams: Mutex::default(),
        pools: Mutex::default(),
    };
    let workers: Mutex<Vec<Worker<'_>>> = Mutex::default();
    let pieces: Mutex<Vec<Piece>> = Mutex::default();
    let preview = Mutex::new(Preview::default());
    let mut slots = columns.slots();
    let parsed = rayon::scope_fifo(|scope| {
        let (shared, workers, pieces, preview) = (&shared, &workers, &pieces, &preview);
        let mut sequence = 0;
        let hand_out = |part: Part| {
            let slots = slots.take(part.items);
            let place = sequence;
            sequence += 1;
            scope.spawn_fifo(move |_| {
                if progress.check().is_err() {
                    return;
                }
                let mut worker = lock(workers).pop().unwrap_or_else(Worker::new);
                let room = slots.len();
                let mut decoded = decode::part(shared, &mut worker, &part, slots);
                lock(workers).push(worker);
                progress.advance(part.ranges.iter().map(|range| (range.end - range.start) as u64).sum());
                let points = std::mem::take(&mut decoded.preview);
                lock(preview).add(place, &part, points, &decoded, progress);
                lock(pieces).push(Piece { sequence: place, list: part.list, slots: room, decoded });
            });
        };
        Scanner::new(bytes, &shared.memo, STREAMED, hand_out).run(progress)
    })?;
    progress.check().map_err(|_| PickleError::Cancelled)?;
    drop(workers);

    let mut report = LoadReport::default();
    let mut pieces = pieces.into_inner().unwrap_or_else(PoisonError::into_inner);
    pieces.sort_by_key(|piece| piece.sequence);
    let written: Vec<(usize, usize)> = pieces.iter().map(|piece| (piece.slots, piece.decoded.written)).collect();
    let events = columns.finish(&written);
    let streams = shared.streams.into_inner().unwrap_or_else(PoisonError::into_inner).values;
    let pools = shared.pools.into_inner().unwrap_or_else(PoisonError::into_inner).values;
    let traces = cut(events, pieces, &streams, &pools, &mut report);

    let mut tree = parsed.tree;
    pickle::resolve_outside(bytes, &shared.memo, &mut tree, parsed.outside, &shared.budget)?;
    let stacks = shared.stacks.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Read { bytes: bytes.len(), tree, ended: parsed.ended, traces, stacks, report })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits the events of a file by list (they are consecutive) and gives each list its notes, streams and pools.
fn cut(
    mut events: crate::model::EventTable,
    pieces: Vec<Piece>,
    streams: &[u64],
    pools: &[PoolKey],
    report: &mut LoadReport,
) -> Vec<Trace> {
    let mut lists: Vec<(NodeId, usize, DeviceRecording, bool)> = Vec::new();
    let mut at = 0;
    for piece in pieces {
        if lists.last().is_none_or(|(list, ..)| *list != piece.list) {
            lists.push((piece.list, at, DeviceRecording::default(), false));
        }
        let Some((_, first, device, has_untimed)) = lists.last_mut() else { continue };
        let base = (at - *first) as u32;
        let decoded = piece.decoded;
        device.events.notes.extend(decoded.notes.into_iter().map(|note| Note { event: note.event + base, ..note }));
        device.events.has_time |= decoded.has_time;
        *has_untimed |= decoded.has_untimed;
        at += decoded.written;
        for warning in decoded.report.warnings {
            report.warn_many(warning.kind, warning.count, warning.first_offset, || warning.text);
        }
    }
    let mut traces = Vec::with_capacity(lists.len());
    while let Some((list, first, mut device, has_untimed)) = lists.pop() {
        let mut own = if first == 0 { std::mem::take(&mut events) } else { columns::split_off(&mut events, first) };
        own.notes = std::mem::take(&mut device.events.notes);
        own.has_time = device.events.has_time;
        if has_untimed {
            trace::fill_times(&mut own);
        }
        device.events = own;
        if let [only] = streams {
            device.streams = vec![*only];
        } else {
            renumber(device.events.stream.iter_mut().map(|s| &mut s.0), streams, &mut device.streams);
        }
        renumber(device.events.pool.iter_mut().map(|p| &mut p.0), pools, &mut device.pools);
        traces.push(Trace { list, device });
    }
    traces
}

/// Numbers the streams or pools of one device in order of first use.
fn renumber<'a, K: Copy>(ids: impl Iterator<Item = &'a mut u16>, keys: &[K], used: &mut Vec<K>) {
    let mut named = vec![None; keys.len()];
    for id in ids {
        let Some(name) = named.get_mut(usize::from(*id)) else { continue };
        *id = *name.get_or_insert_with(|| {
            used.push(keys[usize::from(*id)]);
            (used.len() - 1) as u16
        });
    }
}

/// Puts the preview curves of parts in order, because parts finish in any order.
#[derive(Default)]
struct Preview {
    next: usize,
    waiting: BTreeMap<usize, Ready>,
    list: Option<NodeId>,
    events: u32,
    reserved: i64,
    requested: i64,
}

struct Ready {
    list: NodeId,
    index: Option<usize>,
    points: Vec<PreviewPoint>,
    written: u32,
    net: (i64, i64),
}

impl Preview {
    fn add(&mut self, place: usize, part: &Part, points: Vec<PreviewPoint>, decoded: &Decoded, progress: &Progress) {
        let ready = Ready { list: part.list, index: part.index, points, written: decoded.written as u32, net: decoded.net };
        self.waiting.insert(place, ready);
        while let Some(mut ready) = self.waiting.remove(&self.next) {
            self.next += 1;
            if self.list != Some(ready.list) {
                self.list = Some(ready.list);
                (self.events, self.reserved, self.requested) = (0, 0, 0);
            }
            // The preview has no device for host memory.
            if let Some(device) = ready.index.and_then(|index| u16::try_from(index).ok()) {
                for point in &mut ready.points {
                    point.device = device;
                    point.event = point.event.saturating_add(self.events);
                    point.reserved = point.reserved.wrapping_add(self.reserved);
                    point.requested = point.requested.wrapping_add(self.requested);
                }
                progress.publish(&ready.points);
            }
            self.events = self.events.saturating_add(ready.written);
            self.reserved = self.reserved.wrapping_add(ready.net.0);
            self.requested = self.requested.wrapping_add(ready.net.1);
        }
    }
}
