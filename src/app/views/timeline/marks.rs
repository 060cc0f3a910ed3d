//! Marks: device calls, bursts of releases, snapshots, annotations. Found once per recording; a window finds its part by binary
//! search.

use crate::app::data::device::DeviceData;
use vramscope_core::anatomy::steps::{StepSource, Steps};
use vramscope_core::anatomy::{Anatomy, Phase};
use vramscope_core::inference::{CapFrom, CapRange, Caps};
use vramscope_core::model::{Action, DeviceRecording, Progress, StackTable, StrId};

/// A cudaMalloc, a cudaFree, or the corresponding map and unmap of expandable segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceCall {
    pub event: u32,
    /// True for taking memory, false for giving it back.
    pub takes: bool,
}

/// Why the allocator released segments, as far as the trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The next event takes memory or fails, so the allocator emptied its cache to retry.
    Retry,
    /// The same with garbage collection switched on, which also runs just before a segment is taken.
    Collection,
    /// Something else follows, so the program emptied the cache.
    Emptied,
}

/// Segments released one after the other without an event in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub first: u32,
    pub last: u32,
    pub count: u32,
    pub bytes: u64,
    pub why: Why,
}

/// What a box in a lane of ranges stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// An annotation: its index on the device, its name.
    Annotation(u32, StrId),
    /// A training step, by index.
    Step(u32),
    Phase(Phase),
}

/// An annotation, a training step or a phase, with its range of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub named: Named,
    pub depth: u16,
    /// The first event at or after the start.
    pub first: u32,
    /// The event after the end.
    pub end: u32,
    /// Start in microseconds since the first event.
    pub from_us: i64,
    /// End in microseconds since the first event, or the start when it never ended.
    pub to_us: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    pub calls: Vec<DeviceCall>,
    pub bursts: Vec<Burst>,
    pub snapshots: Vec<u32>,
    pub ranges: Vec<Range>,
    pub levels: usize,
    /// Phases in order of time.
    pub phases: Vec<Range>,
    /// The steps were inferred from a repeating call stack.
    pub is_inferred: bool,
    /// The steps that annotations mark, when a call stack continues them. The other steps are inferred.
    pub continued: Option<std::ops::Range<u32>>,
    pub cap: Option<Cap>,
}

/// A limit on reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    /// The bytes at which the line is drawn: the cap, the upper end of its range, or the size of the device.
    pub bytes: u64,
    /// The lower end of the range, when the cap is not known exactly.
    pub least: Option<u64>,
    /// The text before the figure.
    pub name: &'static str,
}

impl Cap {
    /// The cap of the process as far as it is known, or else the size of the device.
    fn of(data: &DeviceData, caps: &Caps) -> Option<Cap> {
        let device = data.device();
        match caps.first().filter(|cap| cap.from != CapFrom::Device) {
            Some(cap) => Some(Cap { bytes: cap.most, least: (!cap.is_known()).then_some(cap.least), name: "cap" }),
            None => device.capacity.map(|bytes| Cap { bytes, least: None, name: "capacity" }),
        }
    }

    /// `cap 1,600 to 2,100 MiB`.
    pub fn text(&self) -> String {
        let least = self.least.unwrap_or(self.bytes);
        format!("{} {}", self.name, CapRange { least, ..CapRange::exact(self.bytes) })
    }
}

impl Marks {
    /// Reads the trace once and collects all marks.
    pub fn of(data: &DeviceData) -> Self {
        let mut marks = Self::of_trace(data.device(), data.steps());
        marks.phases = phases(data.device(), data.anatomy());
        marks.number_steps(&data.recording.stacks, data.steps());
        if marks.phases.iter().any(|r| matches!(r.named, Named::Phase(Phase::Optimizer))) {
            marks.leave_out_optimizers(&data.recording.stacks);
        }
        // A cancelled computation leaves out the cap; the other marks do not depend on it.
        marks.cap = data.caps(&Progress::new()).ok().and_then(|caps| Cap::of(data, &caps));
        marks
    }

    /// Removes PyTorch's own annotations of optimizer steps, which are shown as a phase.
    fn leave_out_optimizers(&mut self, names: &StackTable) {
        let is_one = |r: &Range| matches!(r.named, Named::Annotation(_, name) if names.text(name).starts_with("Optimizer."));
        self.ranges.retain(|r| !is_one(r));
        self.levels = self.ranges.iter().map(|r| usize::from(r.depth) + 1).max().unwrap_or(0);
    }

    /// When the profiler's annotations are the steps, gives them the step numbers that all views use.
    fn number_steps(&mut self, names: &StackTable, steps: &Steps) {
        let are_steps = matches!(&steps.source, StepSource::Annotation(name) if name == "ProfilerStep");
        for range in self.ranges.iter_mut().filter(|_| are_steps && steps.continued_by.is_none()) {
            if let Named::Annotation(_, name) = range.named
                && names.text(name).starts_with("ProfilerStep#")
                && let Some(step) = steps.of(range.first)
            {
                range.named = Named::Step(step as u32);
            }
        }
    }

    /// True for a step that no annotation marks.
    pub fn is_continued(&self, step: u32) -> bool {
        self.continued.as_ref().is_some_and(|marked| !marked.contains(&step))
    }

    fn of_trace(device: &DeviceRecording, steps: &Steps) -> Self {
        let events = &device.events;
        let mut marks = Marks::default();
        let mut open: Option<Burst> = None;
        let taking = if device.settings.conf.garbage_collection_threshold > 0.0 { Why::Collection } else { Why::Retry };
        let close = |open: &mut Option<Burst>, next: Option<Action>, bursts: &mut Vec<Burst>| {
            if let Some(mut burst) = open.take() {
                burst.why = match next {
                    Some(Action::Oom) => Why::Retry,
                    Some(Action::SegmentAlloc | Action::SegmentMap) => taking,
                    _ => Why::Emptied,
                };
                // Expandable segments release single pieces all the time, so only bursts get a pennant. The device lane shows
                // all.
                if burst.count > 1 {
                    bursts.push(burst);
                }
            }
        };
        for (i, &action) in events.action.iter().enumerate() {
            let event = i as u32;
            match action {
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted if open.is_none() => continue,
                Action::SegmentFree | Action::SegmentUnmap => {
                    marks.calls.push(DeviceCall { event, takes: false });
                    let burst = open.get_or_insert(Burst { first: event, last: event, count: 0, bytes: 0, why: Why::Emptied });
                    burst.last = event;
                    burst.count += 1;
                    burst.bytes += events.size[i];
                    continue;
                }
                Action::SegmentAlloc | Action::SegmentMap => marks.calls.push(DeviceCall { event, takes: true }),
                Action::Snapshot => marks.snapshots.push(event),
                _ => {}
            }
            close(&mut open, Some(action), &mut marks.bursts);
        }
        close(&mut open, None, &mut marks.bursts);
        // Steps of a profiler and ranges of the user are annotations already.
        let is_annotated = match &steps.source {
            // Continued steps have no annotation.
            _ if steps.continued_by.is_some() => false,
            StepSource::Annotation(name) => name == "ProfilerStep",
            StepSource::Range(_) => true,
            _ => false,
        };
        let outer = u16::from(!steps.is_empty() && !is_annotated);
        marks.is_inferred = steps.is_inferred();
        marks.continued = steps.continued_by.map(|_| steps.marked.start as u32..steps.marked.end as u32);
        let first_us = events.time_range().map_or(0, |(first, _)| first);
        let time = since_first(device);
        if outer > 0 {
            for (i, w) in steps.bounds.windows(2).enumerate() {
                let named = Named::Step(i as u32);
                marks.ranges.push(Range { named, depth: 0, first: w[0], end: w[1], from_us: time(w[0]), to_us: time(w[1]) });
            }
        }
        if events.has_time {
            let times = &events.time_us;
            for (index, a) in device.annotations.iter().enumerate() {
                let end_us = a.end_us.unwrap_or(a.start_us).max(a.start_us);
                marks.ranges.push(Range {
                    named: Named::Annotation(index as u32, a.name),
                    depth: a.depth.saturating_add(outer),
                    first: times.partition_point(|&t| t < a.start_us) as u32,
                    end: times.partition_point(|&t| t <= end_us) as u32,
                    from_us: a.start_us - first_us,
                    to_us: end_us - first_us,
                });
            }
        }
        marks.levels = marks.ranges.iter().map(|r| usize::from(r.depth) + 1).max().unwrap_or(0);
        marks
    }
}

/// Converts an event to microseconds since the first one; later events than the last get the last one's time.
fn since_first(device: &DeviceRecording) -> impl Fn(u32) -> i64 {
    let times = &device.events.time_us;
    let first = device.events.time_range().map_or(0, |(first, _)| first);
    move |event| times.get((event as usize).min(times.len().saturating_sub(1))).map_or(0, |t| t - first)
}

/// Phases as ranges on one level. A phase that continues across a step boundary (as with forward passes only) becomes one range
/// per step.
fn phases(device: &DeviceRecording, anatomy: &Anatomy) -> Vec<Range> {
    let time = since_first(device);
    let bounds = &anatomy.steps.bounds;
    let mut found = Vec::new();
    for (phase, (from, to)) in anatomy.phases.stretches() {
        let inside = bounds.partition_point(|&b| b <= from)..bounds.partition_point(|&b| b < to);
        let mut first = from;
        for &end in bounds.get(inside).unwrap_or_default().iter().chain([&to]) {
            let (from_us, to_us) = (time(first), time(end));
            found.push(Range { named: Named::Phase(phase), depth: 0, first, end, from_us, to_us });
            first = end;
        }
    }
    found
}

/// Marks too close to be drawn apart: `count` of them between `left` and `right`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cluster<T> {
    pub left: f32,
    pub right: f32,
    pub count: u32,
    pub first: T,
    pub last: T,
}

/// Merges marks that are closer than `gap` columns. `marks` must be ascending.
pub(super) fn clusters<T: Copy>(marks: impl Iterator<Item = (f32, T)>, gap: f32) -> Vec<Cluster<T>> {
    let mut out: Vec<Cluster<T>> = Vec::new();
    for (x, mark) in marks {
        match out.last_mut() {
            Some(open) if x - open.right < gap => {
                open.right = x;
                open.count += 1;
                open.last = mark;
            }
            _ => out.push(Cluster { left: x, right: x, count: 1, first: mark, last: mark }),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::device::prepare;
    use crate::app::data::samples;
    use crate::app::state::toys::device_with;
    use vramscope_core::model::{Annotation, StackId};

    fn device(actions: &[Action]) -> DeviceRecording {
        device_with(actions.iter().enumerate().map(|(i, &action)| (100 + i as i64 * 10, action)))
    }

    #[test]
    fn releases_in_a_row_are_one_burst_and_the_next_event_says_why() {
        use Action::{Alloc, FreeCompleted, Oom, SegmentAlloc, SegmentFree, Snapshot};
        let m = Marks::of_trace(
            &device(&[
                Alloc,
                SegmentFree,
                SegmentFree,
                SegmentAlloc,
                FreeCompleted,
                SegmentFree,
                Alloc,
                SegmentFree,
                SegmentFree,
                SegmentFree,
                Alloc,
                Snapshot,
                SegmentFree,
                SegmentFree,
                Oom,
            ]),
            &Steps::default(),
        );
        let of = |first, last, count, why| Burst { first, last, count, bytes: 512 * u64::from(count), why };
        assert_eq!(m.bursts, vec![of(1, 2, 2, Why::Retry), of(7, 9, 3, Why::Emptied), of(12, 13, 2, Why::Retry)]);
        assert_eq!(m.snapshots, vec![11]);
        assert_eq!(m.calls.len(), 9);
        assert_eq!(m.calls.iter().filter(|c| c.takes).count(), 1);
    }

    /// Autopsy, findings, what-if and the timeline must name the same cap.
    #[test]
    fn every_view_tells_the_same_cap() {
        use vramscope_core::anatomy::roles::Rules;
        use vramscope_core::diagnose::findings::diagnose;
        let progress = Progress::new();
        let mut failed = 0;
        for entry in std::fs::read_dir(samples::path("")).unwrap() {
            let path = entry.unwrap().path();
            let Ok(recording) = vramscope_core::formats::open(&path, &progress) else { continue };
            let recording = std::sync::Arc::new(recording);
            for index in 0..recording.devices.len() {
                if !recording.devices[index].events.has_oom() {
                    continue;
                }
                let data = prepare(&recording, index, &progress).unwrap();
                let cap = Cap::of(&data, &data.caps(&progress).unwrap()).unwrap();
                let text = cap.text();
                let range = text.strip_prefix("cap ").unwrap();
                let found =
                    diagnose(&data.recording, data.device(), &data.tables, &data.names, &Rules::default(), &progress).unwrap();
                for a in &found.ooms {
                    assert_eq!(a.limit.unwrap().to_string(), range, "autopsy of {path:?}");
                }
                for f in found.findings.iter().filter(|f| f.rule == "out_of_memory") {
                    let evidence = f.evidence.iter().find(|e| e.label == "cap of this process").unwrap();
                    assert_eq!(evidence.value, range, "finding of {path:?}");
                }
                let own = data.what_if(&progress).unwrap().own().limit_range().unwrap();
                assert_eq!(own.to_string(), range, "what-if of {path:?}");
                failed += 1;
            }
        }
        assert!(failed >= 4, "{failed}");
    }

    #[test]
    fn annotations_find_their_events() {
        let mut d = device(&[Action::Alloc; 10]);
        d.annotations.push(Annotation { name: StrId(0), start_us: 115, end_us: Some(150), depth: 0 });
        d.annotations.push(Annotation { name: StrId(1), start_us: 120, end_us: None, depth: 1 });
        let m = Marks::of_trace(&d, &Steps::default());
        assert_eq!(m.levels, 2);
        assert_eq!((m.ranges[0].first, m.ranges[0].end), (2, 6));
        assert_eq!((m.ranges[0].from_us, m.ranges[0].to_us), (15, 50));
        assert_eq!((m.ranges[1].first, m.ranges[1].end), (2, 3));
        let steps = Steps {
            bounds: vec![0, 4, 10],
            source: StepSource::Annotation("Optimizer.step".to_owned()),
            confidence: 100,
            ..Steps::default()
        };
        let m = Marks::of_trace(&d, &steps);
        assert_eq!((m.levels, m.is_inferred), (3, false), "steps hold the annotations");
        assert_eq!((m.ranges[1].named, m.ranges[1].first, m.ranges[1].end), (Named::Step(1), 4, 10));
        assert_eq!((m.ranges[1].from_us, m.ranges[1].to_us), (40, 90), "the last step ends with the last event");
        assert!(!m.is_continued(1));
        let m = Marks::of_trace(&d, &Steps { marked: 0..1, continued_by: Some(StackId(3)), ..steps });
        assert_eq!((m.is_continued(0), m.is_continued(1)), (false, true));
    }

    #[test]
    fn marks_that_can_not_be_told_apart_are_counted() {
        let c = clusters([(1.0, 'a'), (2.0, 'b'), (10.0, 'c'), (12.5, 'd'), (15.0, 'e'), (40.0, 'f')].into_iter(), 3.0);
        let counts: Vec<(f32, f32, u32)> = c.iter().map(|c| (c.left, c.right, c.count)).collect();
        assert_eq!(counts, vec![(1.0, 2.0, 2), (10.0, 15.0, 3), (40.0, 40.0, 1)]);
        assert_eq!((c[1].first, c[1].last), ('c', 'e'));
    }
}
