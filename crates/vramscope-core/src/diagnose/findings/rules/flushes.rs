//! Why segments are released: a request that found no room, `empty_cache`, the capture of a graph, or cuDNN's search.

use crate::anatomy::Phase;
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::conf::SMALL_SEGMENT;
use crate::model::{Action, FrameId, StackId};
use crate::tables::{Quantity, is_framework};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Reports that the cache is repeatedly emptied and filled again.
pub(super) fn cache_flushes(p: &RuleInput<'_>) -> Option<Finding> {
    let events = &p.device.events;
    let mut bursts = Vec::<(usize, u64)>::new();
    let mut last = None::<usize>;
    for i in (0..events.len()).filter(|&i| events.action[i].shrinks_reserved()) {
        match bursts.last_mut().filter(|_| last.is_some_and(|l| i - l <= 8)) {
            Some(burst) => burst.1 += events.size[i],
            None => bursts.push((i, events.size[i])),
        }
        last = Some(i);
    }
    let most_reserved = p.tables.curves.peak(Quantity::Reserved).0;
    let causes: Vec<Flush> = bursts.iter().map(|burst| flush(p, burst.0, most_reserved)).collect();
    // Name a cause only if it explains most of the releases.
    let mut times: rustc_hash::FxHashMap<Flush, usize> = rustc_hash::FxHashMap::default();
    for &cause in &causes {
        *times.entry(cause).or_default() += 1;
    }
    let cause = times.into_iter().find(|(_, n)| n * 2 > causes.len()).map_or(Flush::Unknown, |c| c.0);
    // Releases that neither stacks nor events explain may have the same cause.
    let is_of_cause = |of: Flush| cause == Flush::Unknown || of == cause || of == Flush::Unknown;
    let bursts: Vec<(usize, u64)> = bursts.into_iter().zip(causes).filter(|b| is_of_cause(b.1)).map(|b| b.0).collect();
    let (bytes, bursts) = (bursts.iter().map(|b| b.1).sum::<u64>(), bursts.iter().map(|b| b.0).collect::<Vec<_>>());
    let (number, steps) = (bursts.len() as u64, p.steps.len() as u64);
    let &first = bursts.first()?;
    // A request that found no room matters regardless of the number of steps: memory is nearly used up.
    let is_many = number >= 5 && (cause == Flush::Retry || steps <= number * 2);
    let is_short_of_memory = cause == Flush::Retry && bytes >= 256 * MEBIBYTE;
    if !is_many && !is_short_of_memory {
        return None;
    }
    let (times, all) = (counted(number, "time", "times"), Bytes(bytes));
    let again = format!("{all} in all went back to the device and were taken again");
    let (title, sentence, advice) = match cause {
        Flush::Capture => (
            "CUDA graph capture empties the cache",
            format!("{} empties the cache as each capture begins, {times}: {again}.", p.words.say("torch.cuda.graph")),
            "That is by design and costs time only while graphs are captured. Capture fewer of them, or capture once before the loop.",
        ),
        Flush::Called(line) => (
            "The program empties the cache again and again",
            format!(
                "{} calls {} {times}{}: {again}. Each call waits for the GPU.",
                p.recording.stacks.frame(line).map_or_else(String::new, |f| {
                    format!("{} ({})", p.recording.stacks.location(f), p.recording.stacks.text(f.name))
                }),
                p.words.say("torch.cuda.empty_cache()"),
                if number == steps { ", once a step" } else { "" },
            ),
            "Remove the call from the loop: PyTorch uses its cache again by itself. It is of use only where another process needs the memory.",
        ),
        Flush::Retry => (
            "Requests find room only after the cache is emptied",
            format!(
                "{} a request found no room, and PyTorch gave its free segments back to the device to serve it: {all} in all. Each time stops the GPU.{}",
                match number {
                    1 => "Once".to_owned(),
                    2 => "Twice".to_owned(),
                    _ => times,
                },
                match of_other_streams(p, &bursts) * 2 > bytes {
                    true => " Most of it was free memory of other CUDA streams: a stream reuses only its own.",
                    false => "",
                }
            ),
            advice_for_retries(p, &bursts, of_other_streams(p, &bursts) * 2 > bytes),
        ),
        Flush::Search => (
            "cuDNN's search for algorithms empties the cache",
            format!(
                "cuDNN probably tries algorithms for convolutions, and the cache is emptied after each trial, {times}: {again}."
            ),
            "torch.backends.cudnn.benchmark = True does that for every new shape. With shapes that stay it is over after the first step. Where sizes vary, or the trials make the peak, set it to False.",
        ),
        Flush::Unknown => (
            "The cache is emptied again and again",
            format!("Segments went back to the device {times}, {all} in all, and were taken again. Each time stops the GPU."),
            "Either requests found no room, or the program calls torch.cuda.empty_cache(): this recording does not tell which. Leave about a tenth of the device free, and keep that call out of the loop.",
        ),
    };
    let stack = p.device.events.stack.get(first).copied().filter(|s| s.is_some());
    // Emptying the cache costs time. Memory is short only if a request found no room.
    let class =
        if matches!(cause, Flush::Capture | Flush::Called(_) | Flush::Search) { Class::Hygiene } else { Class::Structure };
    Finding::new("cache_flushes", class, title, bytes / number)
        .says(sentence)
        .shows("times", count(number))
        .bytes_of("given back each time, on average", bytes / number)
        .bytes_of("given back in all", bytes)
        .at(Place { event: Some(first as u32), stack, ..Place::default() })
        .advice(p.words.say(advice))
        .check("No segment_free after warm-up; steps are faster.")
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Flush {
    /// The capture of a CUDA graph begins.
    Capture,
    /// This line calls `empty_cache`.
    Called(FrameId),
    /// cuDNN has tried an algorithm and no longer needs its workspace.
    Search,
    /// A request found no room.
    Retry,
    /// Neither stacks nor events show the cause.
    Unknown,
}

/// The cause of the releases after an event. `most` is the highest reserved bytes of the recording.
fn flush(p: &RuleInput<'_>, event: usize, most: u64) -> Flush {
    let (events, stacks) = (&p.device.events, &p.recording.stacks);
    if super::kept::is_capture(p, event as u32) {
        return Flush::Capture;
    }
    let frames = events.stack.get(event).map_or(&[][..], |&s| stacks.frames(s));
    let is_named = |f: &FrameId| stacks.frame(*f).is_some_and(|f| stacks.text(f.name) == "empty_cache");
    if let Some(at) = frames.iter().rposition(is_named) {
        let is_line = |f: &&FrameId| stacks.frame(**f).is_some_and(|f| f.line > 0 && stacks.text(f.file).ends_with(".py"));
        let own =
            frames[at..].iter().find(|&&f| stacks.frame(f).is_some_and(|frame| is_line(&&f) && !is_framework(stacks, frame)));
        return own.or(frames[at..].iter().find(is_line)).map_or(Flush::Unknown, |&f| Flush::Called(f));
    }
    // After such releases, PyTorch allocates the segment that did not fit, and reserved memory rises above its previous maximum.
    // The segment is larger than every released one of its stream and pool: an equally large one would have served the request.
    let next = (event..events.len()).find(|&i| !events.action[i].shrinks_reserved());
    let before = match event.checked_sub(1) {
        Some(before) => p.tables.curves.at(p.device, &p.tables.lifetimes, Quantity::Reserved, before as u32),
        None => return Flush::Unknown,
    };
    let is_retry = next.is_some_and(|i| {
        let (takes, size) = (events.action[i] == Action::SegmentAlloc, events.size[i]);
        let is_small = |size: u64| size <= SMALL_SEGMENT;
        let would_serve = |went: usize| {
            events.stream[went] == events.stream[i] && is_small(events.size[went]) == is_small(size) && events.size[went] >= size
        };
        takes && before.saturating_add(size) > most && !(event..i).any(would_serve)
    });
    match is_retry {
        true => Flush::Retry,
        false if is_search(p, event) => Flush::Search,
        false => Flush::Unknown,
    }
}

/// True if the cache is emptied after cuDNN tried an algorithm (`torch.backends.cudnn.benchmark`). The block freed just before
/// was also made just before, by the same operation: a convolution or, without a Python stack, an operation of the backward pass.
fn is_search(p: &RuleInput<'_>, event: usize) -> bool {
    let (events, stacks) = (&p.device.events, &p.recording.stacks);
    let stack_of = |event: usize| events.stack.get(event).copied().unwrap_or(StackId::NONE);
    let stack = stack_of(event);
    let is_convolution = match stacks.frames(stack).first() {
        Some(&frame) => stacks.frame(frame).is_some_and(|f| stacks.text(f.file).ends_with("torch/nn/modules/conv.py")),
        None => p.roles.anatomy.phases.has_stacks() && p.roles.anatomy.phases.at(event as u32) == Some(Phase::Backward),
    };
    let Some(freed) = event.checked_sub(1).filter(|_| is_convolution) else { return false };
    let made = (freed.saturating_sub(2)..freed).rfind(|&i| events.action[i] == Action::Alloc);
    let is_same = |made: usize| events.address[made] == events.address[freed] && stack_of(made) == stack;
    events.action[freed] == Action::FreeCompleted && made.is_some_and(is_same)
}

/// Bytes that these releases freed from streams other than that of the following request.
fn of_other_streams(p: &RuleInput<'_>, bursts: &[usize]) -> u64 {
    let events = &p.device.events;
    let of_burst = |&burst: &usize| {
        let Some(next) = (burst..events.len()).find(|&i| !events.action[i].shrinks_reserved()) else { return 0 };
        (burst..next).filter(|&i| events.stream[i] != events.stream[next]).map(|i| events.size[i]).sum()
    };
    bursts.iter().map(of_burst).sum()
}

/// Advice if requests find room only after the cache is emptied; it depends on what filled the cache.
fn advice_for_retries(p: &RuleInput<'_>, bursts: &[usize], is_of_streams: bool) -> &'static str {
    let before = |quantity| {
        let at = bursts.iter().filter_map(|burst| burst.checked_sub(1));
        at.map(|event| p.tables.curves.at(p.device, &p.tables.lifetimes, quantity, event as u32)).sum::<u64>()
    };
    let is_in_use = before(Quantity::Active).saturating_mul(4) >= before(Quantity::Reserved).saturating_mul(3);
    match (is_of_streams, is_in_use) {
        (true, _) => {
            "Each stream has a cache of its own. Run this work on fewer streams, or call torch.cuda.empty_cache() once when the work moves to another stream; or raise the cap, if there is one."
        }
        (false, true) => {
            "The memory that this process may take is nearly used up. Use a smaller batch, so that about a tenth stays free."
        }
        (false, false) => {
            "Much of what is reserved is free then, but in pieces that do not fit. What-if tries a dozen settings on these requests and shows which one helps."
        }
    }
}
