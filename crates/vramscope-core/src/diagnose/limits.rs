//! [`Limit`]: what a recording lacks, if that limits what can be said about its memory.

use super::source_limits::records_stacks;
use crate::model::{DeviceKind, DeviceRecording, Format, Recording};
use crate::tables::DeviceTables;
use crate::units::{Bytes, counted};

/// The line that records all later events.
pub const RECORD: &str = "torch.cuda.memory._record_memory_history(context=\"alloc\")";

/// The same for PyTorch 2.0, which keeps only one event unless told otherwise. Later releases accept it too.
const RECORD_2_0: &str =
    "torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100000, trace_alloc_record_context=True)";

/// The most bytes that JAX held on a device, including running programs.
const JAX_PEAK: &str = "jax.local_devices()[0].memory_stats()[\"peak_bytes_in_use\"]";

/// What the recording lacks about the blocks that were live at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// A description in one or two sentences, ending with a colon if there is a line to copy.
    pub sentence: String,
    /// The line of code that records it.
    pub line: Option<&'static str>,
}

/// A history with a multiple of this many events was probably cut to the newest, because `max_entries` is usually a round number.
const ROUND: usize = 1_000;

/// The sentence for a trace that [`lacks_gpu_memory`]. It comes before all figures, because none of them is about GPU memory.
pub const NO_GPU_MEMORY: &str =
    "The program ran on a GPU, and the trace has no memory of it: all figures are of the CPU's memory. This records both:";

/// Memory older than the history is mentioned if it exceeds 1/n of the live memory.
const PART: u64 = 10;

impl Limit {
    /// The limit that matters after an event: no history, or over a tenth of live memory is older and has no stack. O(live blocks).
    pub fn of(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, event: u32) -> Option<Self> {
        let lifetimes = &tables.lifetimes;
        let (mut all, mut bare) = (0u64, 0u64);
        for id in tables.states.live_at(lifetimes, event) {
            let bytes = lifetimes.block_size(id);
            all += bytes;
            let is_bare = (id.0 as usize) < lifetimes.initial_count() && !lifetimes.stack(device, id).is_some();
            bare += if is_bare { bytes } else { 0 };
        }
        let before = device.source_totals.beyond(event, all);
        (all, bare) = (all + before, bare + before);
        if all == 0 {
            return None;
        }
        let is_snapshot = matches!(recording.source.format, Format::SnapshotPickle | Format::SnapshotJson | Format::SnapshotHtml);
        let line = is_snapshot.then_some(RECORD);
        if recording.source.format == Format::JaxMemoryProfile {
            let what = "A JAX memory profile has the arrays that were alive when it was written, and the lines that made them. What a \
                        compiled program needs while it runs is not in it, nor is the peak";
            // JAX keeps no counters for the CPU.
            let line = (device.id.kind != DeviceKind::Cpu).then_some(JAX_PEAK);
            let end = if line.is_some() { ". This line tells the peak:" } else { "." };
            return Some(Limit { sentence: format!("{what}{end}"), line });
        }
        if device.events.is_empty() && recording.report.truncated().is_some() {
            let sentence = "The file ends before its history, which tells how this came about: copy the file again.".to_owned();
            return Some(Limit { sentence, line: None });
        }
        if !lifetimes.has_allocations() {
            let (has, it) = match device.events.len() as u64 {
                0 => ("The file has no history".to_owned(), "it"),
                events => (format!("The history has {} and no allocation", counted(events, "event", "events")), "the file"),
            };
            let what = match bare {
                0 => format!(": {it} says what was live when it was written, and which lines made it."),
                _ if bare == all => {
                    format!(", and the blocks have no stacks: {it} says only the sizes of what was live when it was written.")
                }
                _ => format!(": {it} says what was live when it was written, and which lines made {} of it.", Bytes(all - bare)),
            };
            let (line, how) = match device.events.len() {
                1 if line.is_some() => (
                    Some(RECORD_2_0),
                    "PyTorch 2.0, and later releases when called with True, keep one event unless asked for more. Record like this from the start",
                ),
                _ => (line, "Record from the start to see the rest"),
            };
            let sentence = format!("{has}{what}{}", record(line, how));
            return Some(Limit { sentence, line });
        }
        if recording.stacks.is_empty() && is_snapshot {
            let sentence = "Recorded without stacks, so no module and no line can be named. This records them:".to_owned();
            return Some(Limit { sentence, line: Some(records_stacks(recording)) });
        }
        if lacks_gpu_memory(recording) {
            return Some(Limit { sentence: NO_GPU_MEMORY.to_owned(), line: Some(records_stacks(recording)) });
        }
        let has_python = || {
            let stacks = &recording.stacks;
            let mut frames = (0..stacks.frame_count()).filter_map(|i| stacks.frame(crate::model::FrameId(i as u32)));
            frames.any(|f| f.line > 0 && stacks.text(f.file).ends_with(".py"))
        };
        if recording.source.format == Format::KinetoTrace && !has_python() {
            let sentence = "The trace has no Python stacks, so no module and no line can be named. This records them:".to_owned();
            return Some(Limit { sentence, line: Some(records_stacks(recording)) });
        }
        let kept = device.events.len();
        let is_round = kept > 0 && kept.is_multiple_of(ROUND);
        let is_full = is_round && is_snapshot && lifetimes.initial_count() > 0;
        let keeps = || format!("The history is full and keeps only the last {}.", counted(kept as u64, "event", "events"));
        let all_of_them = record(line, "Without max_entries PyTorch keeps every event");
        // Reserved but free memory is a cache. If it is much larger than all later use, more memory was in use before.
        let earlier = match tables.before_earlier_peak() {
            Some(before) => {
                // Fragmentation may leave as much behind if only the step before is missing.
                let was = if is_full { "was probably" } else { "may have been" };
                format!(" {} was reserved before its first event: the peak of the run {was} earlier.", Bytes(before))
            }
            None => String::new(),
        };
        if bare.saturating_mul(PART) <= all {
            if is_full {
                return Some(Limit { sentence: format!("{}{earlier}{all_of_them}", keeps()), line });
            }
            let said = "A trace names the line where a function begins, not the line in it that allocates.";
            return (recording.source.format == Format::KinetoTrace).then(|| Limit { sentence: said.to_owned(), line: None });
        }
        let older = Bytes(bare).to_string();
        if recording.source.format == Format::KinetoTrace {
            let grew = device.source_totals.beyond_parts(event, all - before).grew;
            let sentence = if grew.saturating_mul(PART) > all {
                format!("{} more were in use than when profiling began, and the trace does not say for what.", Bytes(grew))
            } else {
                format!("{older} were allocated before profiling began and have no stack. Profile from the start to see them.")
            };
            return Some(Limit { sentence, line });
        }
        let sentence = match is_round {
            true => format!("{} {older} have no stack: they are older.{earlier}{all_of_them}", keeps()),
            false => format!(
                "{older} have no stack: they are older than the history.{earlier}{}",
                record(line, "Record from the start to see them")
            ),
        };
        Some(Limit { sentence, line })
    }
}

/// The advice that introduces the line; empty without a line.
fn record(line: Option<&str>, what: &str) -> String {
    if line.is_some() { format!(" {what}:") } else { String::new() }
}

/// True for a trace of a program that ran on a GPU but contains only CPU memory. O(devices + lanes).
pub fn lacks_gpu_memory(recording: &Recording) -> bool {
    recording.devices.iter().all(|d| d.id.kind == DeviceKind::Cpu) && recording.ops.lanes.iter().any(|lane| lane.is_device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Block, BlockState, PoolId, Progress, Segment, SizeClass, StackId, StreamId};
    use crate::units::MEBIBYTE;

    /// The limit for a history with `older` blocks from before the first event and `made` blocks allocated in it by one stack.
    fn limit(older: u64, made: u64, events: usize, has_stacks: bool) -> Option<Limit> {
        use crate::model::Action;
        let mut device = DeviceRecording { has_final_state: true, ..DeviceRecording::default() };
        let mut at = 0x7f00_0000_0000u64;
        for i in 0..older + made {
            let (stack, state) = (StackId::NONE, BlockState::Active);
            device.blocks.push(Block { address: at, size: MEBIBYTE, requested: MEBIBYTE, state, stack });
            if i >= older {
                device.events.push(i as i64, Action::Alloc, at, MEBIBYTE, StreamId(0), PoolId(0), StackId(0));
            }
            at += MEBIBYTE;
        }
        while device.events.len() < events {
            device.events.push(0, Action::Snapshot, 0, 0, StreamId(0), PoolId(0), StackId::NONE);
        }
        let size = (older + made) * MEBIBYTE;
        device.segments.push(Segment {
            address: 0x7f00_0000_0000,
            size,
            stream: StreamId(0),
            pool: PoolId(0),
            class: SizeClass::Large,
            is_expandable: false,
            stack: StackId::NONE,
            blocks: 0..(older + made) as u32,
        });
        let mut recording = Recording::default();
        recording.source.format = Format::SnapshotPickle;
        if has_stacks {
            let mut stacks = crate::model::StackTableBuilder::new();
            let name = stacks.string("train.py");
            let frame = stacks.frame(crate::model::Frame { name, file: name, line: 1 });
            stacks.stack(&[frame]);
            recording.stacks = stacks.finish();
        }
        let tables = DeviceTables::build(&device, &Progress::new()).unwrap();
        Limit::of(&recording, &device, &tables, tables.curves.peak_event())
    }

    #[test]
    fn what_is_older_is_told_first_where_it_is_more_than_a_tenth() {
        let said = |limit: Option<Limit>| limit.map(|l| (l.sentence.replace('\u{a0}', " "), l.line));
        assert_eq!(
            said(limit(4, 6, 0, true)),
            Some((
                "4 MiB have no stack: they are older than the history. Record from the start to see them:".to_owned(),
                Some(RECORD)
            ))
        );
        assert_eq!(said(limit(1, 9, 0, true)), None);
        let (full, _) = said(limit(9, 1, 20_000, true)).unwrap();
        assert!(
            full.starts_with("The history is full and keeps only the last 20,000 events. 9 MiB have no stack: they are older."),
            "{full}"
        );
        let (state, line) = said(limit(5, 0, 0, true)).unwrap();
        assert!(state.starts_with("The file has no history, and the blocks have no stacks:") && line.is_some(), "{state}");
        assert_eq!(said(limit(0, 0, 0, true)), None);
        let (bare, line) = said(limit(1, 9, 0, false)).unwrap();
        assert!(bare.starts_with("Recorded without stacks") && line.is_some_and(|l| l.contains("stacks=")), "{bare}");
    }
}
