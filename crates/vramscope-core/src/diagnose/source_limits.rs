//! Sentences about what a source lacks, in its writer's terms: users of RMM's log do not use PyTorch's snapshots.

use crate::model::{Clock, DeviceKind, DeviceRecording, Format, Known, Recording};
use crate::units::time_of_day;

/// Why a device has no segments and no reserved bytes. One or two sentences.
pub fn why_no_segments(device: &DeviceRecording) -> &'static str {
    if device.id.kind == DeviceKind::Cpu {
        return "Memory of the CPU has no segments: PyTorch takes each tensor from the operating system.";
    }
    match device.can_show.segments {
        Known::No(why) => why,
        // The format has segments, but this file does not.
        Known::Yes => "This file has no segments. A memory snapshot has them.",
    }
}

/// What a recording without any memory data lacks, and how to record it; the sentence continues the recording's name.
pub fn why_no_memory(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::KinetoTrace if recording.report.truncated().is_some() => {
            "is cut before its first memory event: copy it again, or record it again if the run was killed while it was written"
        }
        Format::KinetoTrace if recording.ops.is_empty() => {
            "has neither operators nor memory events: profile with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True, with_stack=True)"
        }
        Format::KinetoTrace => {
            "has operators and no memory events: profile with torch.profiler.profile(profile_memory=True, with_stack=True)"
        }
        _ => "holds no events and no segments: nothing was on a GPU, or recording was off when it was dumped",
    }
}

/// The line of code that records events.
pub fn records_history(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::KinetoTrace => "torch.profiler.profile(profile_memory=True, with_stack=True)",
        Format::JaxMemoryProfile => SAVE_JAX,
        _ => crate::diagnose::limits::RECORD,
    }
}

/// A sentence and a line to copy, for a recording without events. `torch` is the sentence used for PyTorch recordings.
pub fn no_history(recording: &Recording, torch: &'static str) -> (&'static str, &'static str) {
    let sentence = match recording.source.format {
        Format::JaxMemoryProfile => {
            "JAX's profile is of one instant, and nothing in it tells what happened before. Write one at each instant that matters, and \
             compare them:"
        }
        _ => torch,
    };
    (sentence, records_history(recording))
}

/// Shown if events have no times.
pub const NO_TIMES: &str = "PyTorch 2.2 and later write the time of each event.";

/// Shown if no steps are known, with the line that marks them.
pub const NO_STEPS: (&str, &str) = (
    "No steps were found: no optimizer step was recorded and no call stack comes back evenly. Mark them in your loop:",
    "with torch.profiler.record_function(\"step\"): train_step(batch)",
);

/// Shown with figures of a trace that [`is_relative`](crate::model::Recording::is_relative).
pub const RELATIVE: &str =
    "The trace has no totals: what was held before profiling is unknown, and figures are of what the trace shows.";

/// Shown for a recording without samples of the card, with the command that takes them.
pub const NOT_WATCHED: (&str, &str) = (
    "This is the memory of one program. A watch of the machine shows who else held the card; open its file with this one:",
    "vramscope record session.vramscope",
);

/// The line of code that records call stacks.
pub fn records_stacks(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::KinetoTrace => "torch.profiler.profile(profile_memory=True, with_stack=True)",
        Format::JaxMemoryProfile => SAVE_JAX,
        _ => "torch.cuda.memory._record_memory_history(context=\"alloc\", stacks=\"python\")",
    }
}

/// The program whose allocator was recorded.
pub fn allocator_name(recording: &Recording) -> &'static str {
    match recording.source.format {
        Format::RmmLog => "RMM",
        Format::JaxMemoryProfile => "JAX",
        _ => "PyTorch",
    }
}

/// Writes JAX's memory profile, including stacks.
const SAVE_JAX: &str = "jax.profiler.save_device_memory_profile(\"memory.prof\")";

/// A time and the words that follow it: `13:39:04.005` and ` UTC`; ` of an unnamed zone` if the zone is unknown; `1.130 s` and `
/// after the start` if there is no clock time.
pub fn clock_time(clock: Clock, us: i64) -> (String, &'static str) {
    match clock {
        Clock::Epoch => (time_of_day(us), " UTC"),
        Clock::Day => (time_of_day(us), ""),
        Clock::Start => (since_start(us), " after the start"),
    }
}

/// The first and last time of a recording: `13:39:04.005 to 13:39:05.135 UTC`, `0.000 s to 1.130 s after the start`.
pub fn clock_span(clock: Clock, first: i64, last: i64) -> String {
    let ((first, _), (last, of)) = (clock_time(clock, first), clock_time(clock, last));
    let missing = match clock {
        Clock::Epoch => "",
        Clock::Day => " (no zone is named)",
        Clock::Start => " of the file, which names no clock time",
    };
    format!("{first} to {last}{of}{missing}")
}

/// Seconds to the millisecond, thousands in groups.
fn since_start(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let ms = us.unsigned_abs() / 1_000;
    format!("{sign}{}.{:03}\u{a0}s", crate::units::count(ms / 1_000), ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_time_is_said_only_where_one_is_told() {
        let plain = |text: String| text.replace(crate::units::NBSP, " ");
        let at = 1_795_225_622_576_159;
        assert_eq!(clock_span(Clock::Epoch, at, at + 1_000), "01:47:02.576 to 01:47:02.577 UTC");
        assert_eq!(plain(clock_span(Clock::Day, 5_000_000, 86_400_000_000)), "00:00:05.000 to 00:00:00.000 (no zone is named)");
        let said = plain(clock_span(Clock::Start, 0, 1_130_900));
        assert_eq!(said, "0.000 s to 1.130 s after the start of the file, which names no clock time");
        assert_eq!(plain(clock_time(Clock::Start, -5_000_000_000).0), "-5,000.000 s");
    }
}
