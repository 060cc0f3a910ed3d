//! HTML pages of `trace_plot` and `profile_plot` (PyTorch 2.0's `_memory_viz`), with the data after `let alloc_data =`.
//!
//! An element is one allocation with its bytes and its stack. `actions` lists elements in order: one that is not live is allocated,
//! a live one is freed. There are no addresses, times or devices. Blocks live before the trace have the stack of their free.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::FormatError;
use super::timeline::Live;
use crate::model::{
    Action, Capabilities, DeviceId, DeviceKind, DeviceRecording, Format, Known, LoadReport, PoolId, Progress, Recording, Source,
    StackId, StackTableBuilder, WarningKind,
};
use crate::units::count;

/// Deeper than Python's own limit of 1,000 calls; a deeper stack is damaged.
const MOST_DEEP: usize = 4096;
/// End of the first line of a stack, before the kind: `12.0MiB allocation (gradient)`.
const HEADLINE: &str = "B allocation";
const OF_THE_FREE: &str = "alloc not recorded, stack trace for free:";

/// The data of a plot. Early pages have lists of sizes and stacks instead of `elements`.
#[derive(Deserialize)]
struct Plot {
    actions: Vec<usize>,
    #[serde(default)]
    elements: Vec<Element>,
    #[serde(default)]
    elements_size: Vec<u64>,
    #[serde(default)]
    elements_info: Vec<Option<usize>>,
    /// A stack line, and the index of the suffix after it.
    suffix_table: Vec<(usize, Option<usize>)>,
    string_table: Vec<String>,
    #[serde(default)]
    initially_allocated: Vec<usize>,
}

#[derive(Clone, Copy, Deserialize)]
struct Element {
    size: u64,
    info: Option<usize>,
}

/// Offset of the plot's data in a page; `None` if it has none.
pub(super) fn data_at(page: &[u8]) -> Option<usize> {
    memchr::memmem::find_iter(page, b"alloc_data").find_map(|at| {
        let from = at + b"alloc_data".len();
        let rest = page.get(from..)?;
        let spaces = |bytes: &[u8]| bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
        let equals = spaces(rest);
        let value = rest.get(equals..)?.strip_prefix(b"=")?;
        let open = spaces(value);
        (value.get(open) == Some(&b'{')).then_some(from + equals + 1 + open)
    })
}

/// Reads the plot of a page whose data begins at `at`. Fails with [`FormatError::Malformed`] if the data is damaged,
/// [`FormatError::Elsewhere`] if it is empty, [`FormatError::TooLarge`] if its stacks are longer than its size allows.
pub(super) fn read(page: &[u8], at: usize, name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    progress.set_total(page.len() as u64);
    let malformed = |what: String| FormatError::Malformed { name: name.to_owned(), offset: at as u64, what };
    let mut values = serde_json::Deserializer::from_slice(page.get(at..).unwrap_or(&[])).into_iter::<Plot>();
    let plot = match values.next() {
        Some(Ok(plot)) => plot,
        Some(Err(error)) if error.is_eof() => {
            return Err(malformed("the data of this page's plot ends in the middle".to_owned()));
        }
        Some(Err(error)) => return Err(malformed(format!("the data of this page's plot cannot be read ({error})"))),
        None => return Err(malformed("this page's plot has no data".to_owned())),
    };
    let mut elements = plot.elements.clone();
    let infos = plot.elements_info.iter().copied().chain(std::iter::repeat(None));
    elements.extend(plot.elements_size.iter().zip(infos).map(|(&size, info)| Element { size, info }));
    let mut report = LoadReport::default();
    let mut device = DeviceRecording {
        id: DeviceId { kind: DeviceKind::Other, index: 0 },
        can_show: Capabilities {
            addresses: super::FREES_ARE_GUESSED,
            segments: Known::No("The page holds the plot of the allocations, and no segments. A memory snapshot has them."),
            ..Capabilities::default()
        },
        ..DeviceRecording::default()
    };
    device.pools.push((0, 0));
    let stream = device.intern_stream(0);
    let mut stacks = Stacks { plot: &plot, table: StackTableBuilder::new(), known: FxHashMap::default(), frames: 0 };
    let most_frames = page.len().saturating_mul(4).saturating_add(1 << 16);
    let mut live = Live::default();
    // The address of each element while it is live.
    let mut addresses: Vec<Option<u64>> = vec![None; elements.len()];
    // Elements that are never freed are allocated at the beginning: only a free shows that a block was live before.
    let mut times = vec![0u32; elements.len()];
    for &element in &plot.actions {
        if let Some(times) = times.get_mut(element) {
            *times = times.saturating_add(1);
        }
    }
    let (mut unknown, mut too_large) = (0, 0);
    let before = plot.initially_allocated.iter().map(|&element| (element, true));
    for (i, (element, is_before)) in before.chain(plot.actions.iter().map(|&element| (element, false))).enumerate() {
        if i & 0xfff == 0 {
            progress.check()?;
        }
        let (Some(&Element { size, info }), Some(address)) = (elements.get(element), addresses.get_mut(element)) else {
            unknown += 1;
            continue;
        };
        if size > super::MAX_BYTES || size == 0 {
            too_large += u64::from(size > 0);
            continue;
        }
        if address.is_none() {
            let taken = live.unused(size);
            if !super::has_room(taken, size) {
                too_large += 1;
                continue;
            }
            *address = Some(taken);
            if is_before && times.get(element).is_some_and(|&t| t > 0) {
                continue;
            }
            let stack = stacks.of(info, name, most_frames)?;
            device.events.push(0, Action::Alloc, taken, size, stream, PoolId::UNKNOWN, stack);
        } else if let Some(taken) = address.take().filter(|_| !is_before) {
            let stack = if plot.is_of_a_free(info) { stacks.of(info, name, most_frames)? } else { StackId::NONE };
            device.events.push(0, Action::FreeRequested, taken, size, stream, PoolId::UNKNOWN, stack);
            device.events.push(0, Action::FreeCompleted, taken, size, stream, PoolId::UNKNOWN, stack);
        }
    }
    if device.events.is_empty() {
        let what = "this page plots no allocation; record before the step you want to see, and plot that".to_owned();
        return Err(FormatError::Elsewhere { name: name.to_owned(), what });
    }
    report.warn_many(WarningKind::NoAddresses, 1, None, || {
        "this page has the plotted allocations without addresses, segments and times; whether they are tensors or segments it does not say"
            .to_owned()
    });
    report.warn_many(WarningKind::WrongType, unknown, None, || "actions of allocations that the page does not have".to_owned());
    report.warn_many(WarningKind::WrongType, too_large, None, || {
        format!("allocations of more than {} bytes, which no device has, were left out", count(super::MAX_BYTES))
    });
    progress.set_done(page.len() as u64);
    Ok(Recording {
        source: Source { name: name.to_owned(), path: None, format: Format::SnapshotHtml, bytes: page.len() as u64 },
        devices: vec![device],
        stacks: stacks.table.finish(),
        report,
        ..Recording::default()
    })
}

/// The stacks of the page, with a cache.
struct Stacks<'a> {
    plot: &'a Plot,
    table: StackTableBuilder,
    known: FxHashMap<usize, StackId>,
    frames: usize,
}

impl Plot {
    /// The lines of a stack, innermost first, without its headline.
    fn lines(&self, info: Option<usize>) -> impl Iterator<Item = &str> {
        let plot = self;
        let suffixes =
            std::iter::successors(info.and_then(|at| plot.suffix_table.get(at)), |suffix| plot.suffix_table.get(suffix.1?));
        let lines = suffixes.take(MOST_DEEP).filter_map(|suffix| plot.string_table.get(suffix.0)).map(String::as_str);
        lines.enumerate().filter(|(i, line)| *i > 0 || !line.contains(HEADLINE)).map(|(_, line)| line)
    }

    fn is_of_a_free(&self, info: Option<usize>) -> bool {
        self.lines(info).next() == Some(OF_THE_FREE)
    }
}

impl Stacks<'_> {
    fn of(&mut self, info: Option<usize>, name: &str, most: usize) -> Result<StackId, FormatError> {
        let Some(at) = info else { return Ok(StackId::NONE) };
        if let Some(&known) = self.known.get(&at) {
            return Ok(known);
        }
        let mut frames = Vec::new();
        let plot = self.plot;
        for line in plot.lines(info).filter(|line| *line != OF_THE_FREE) {
            let (file, line, function) = place(line);
            frames.push(self.table.frame_of(function, file, line));
        }
        self.frames += frames.len();
        if self.frames > most {
            let what = "its stacks have more lines than a page of its size".to_owned();
            return Err(FormatError::TooLarge { name: name.to_owned(), offset: 0, what });
        }
        let stack = if frames.is_empty() { StackId::NONE } else { self.table.stack(&frames) };
        self.known.insert(at, stack);
        Ok(stack)
    }
}

/// Splits `/home/me/train.py:31:step` (snapshot) or `/home/me/train.py(31): step` (profiler) into file, line and function.
fn place(text: &str) -> (&str, u32, &str) {
    let colons = text.match_indices(':').find_map(|(at, _)| {
        let (line, function) = text.get(at + 1..)?.split_once(':')?;
        Some((text.get(..at)?, line.parse().ok()?, function))
    });
    let brackets = || {
        let (place, function) = text.split_once("): ")?;
        let (file, line) = place.rsplit_once('(')?;
        Some((file, line.parse().ok()?, function))
    };
    colons.or_else(brackets).unwrap_or(("", 0, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(data: &str) -> Vec<u8> {
        format!("<!DOCTYPE html><script>\nlet alloc_data = {data}\n\nfunction process_alloc_data(fraction = 1) {{}}</script>")
            .into_bytes()
    }

    fn open(data: &str) -> Result<Recording, FormatError> {
        let page = page(data);
        let at = data_at(&page).unwrap();
        read(&page, at, "p.html", &Progress::new())
    }

    const DATA: &str = r#"{"actions": [1, 0, 2, 1], "elements": [{"size": 512, "info": 2}, {"size": 2048, "info": 1}, {"size": 100, "info": null}],
        "suffix_table": [[1, null], [0, 0], [2, 3], [3, 0]],
        "string_table": ["2.0KiB allocation", "/home/me/train.py:31:step", "512.0B allocation", "alloc not recorded, stack trace for free:"],
        "initially_allocated": [0]}"#;

    #[test]
    fn an_element_is_allocated_and_freed_in_turn() {
        let r = open(DATA).unwrap();
        let events = &r.devices[0].events;
        let told: Vec<(Action, u64)> = (0..events.len()).map(|i| (events.action[i], events.size[i])).collect();
        use Action::{Alloc, FreeCompleted, FreeRequested};
        let freed = |size| [(FreeRequested, size), (FreeCompleted, size)];
        assert_eq!(told, [&[(Alloc, 2048)][..], &freed(512), &[(Alloc, 100)], &freed(2048)].concat());
        let frames = |i: usize| {
            let frames = r.stacks.frames(events.stack[i]).iter().filter_map(|&f| r.stacks.frame(f));
            frames.map(|f| format!("{} {}", r.stacks.location(f), r.stacks.text(f.name))).collect::<Vec<_>>()
        };
        assert_eq!(frames(0), ["train.py:31 step"]);
        assert_eq!(frames(1), ["train.py:31 step"], "of the free");
        assert!(frames(3).is_empty());
        assert!(!r.addresses().is_known());
    }

    #[test]
    fn damaged_plots_say_so() {
        let whole = page(DATA);
        let (at, cut) = (data_at(&whole).unwrap(), &whole[..whole.len() / 2]);
        let said = read(cut, at, "p.html", &Progress::new()).unwrap_err().to_string();
        assert!(said.contains("ends in the middle"), "{said}");
        assert!(open("{\"actions\": 3}").unwrap_err().to_string().contains("cannot be read"));
        // A suffix that follows itself, and numbers that refer to nothing.
        let odd =
            r#"{"actions": [0, 7], "elements": [{"size": 512, "info": 0}], "suffix_table": [[0, 0]], "string_table": ["f"]}"#;
        assert_eq!(open(odd).unwrap().report.warnings.len(), 2);
        assert_eq!(data_at(b"<html>// before process_alloc_data runs"), None);
    }

    #[test]
    fn lines_of_a_stack_are_places() {
        assert_eq!(place("C:\\a\\train.py:31:step"), ("C:\\a\\train.py", 31, "step"));
        assert_eq!(place("??:0:at::native::add(int)"), ("??", 0, "at::native::add(int)"));
        assert_eq!(place("/a/train.py(31): step"), ("/a/train.py", 31, "step"));
        assert_eq!(place("aten::addmm"), ("", 0, "aten::addmm"));
    }
}
