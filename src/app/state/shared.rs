//! What all views of a document share: the axis, the visible window, the cursor, the range, the selection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::colour_by::ColourBy;
use super::compared::Source;
use super::live_status::LiveStatus;
use super::selection::{Item, Selection};
use super::tracks::TrackLayout;
use vramscope_core::anatomy::OwnBlocks;
use vramscope_core::model::DeviceRecording;
use vramscope_core::query::Query;

/// What the horizontal axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Axis {
    /// Events, evenly spaced. This is the default because a training step takes milliseconds after seconds of set-up, too narrow
    /// to see on a time axis.
    #[default]
    Event,
    Time,
}

#[derive(Clone, Debug)]
pub struct SharedViewState {
    pub axis: Axis,
    /// Left edge of the visible window in axis units: events, or microseconds since the first event.
    pub from: f64,
    pub to: f64,
    /// All views show the state after this event.
    pub cursor: u32,
    pub hover_event: Option<u32>,
    pub hovered: Option<Item>,
    pub selection: Selection,
    /// The chosen range of events, first and last.
    pub range: Option<(u32, u32)>,
    pub colour_by: ColourBy,
    /// Classes that stay bright; empty means all.
    pub focus_classes: Vec<u8>,
    /// The class under the pointer in some view. Only this class is bright meanwhile.
    pub hover_class: Option<u8>,
    /// The blocks of the memory row that was clicked. Only these are bright.
    pub own: Option<Arc<OwnBlocks>>,
    /// The blocks of the memory row under the pointer. Only these are bright meanwhile.
    pub hover_own: Option<Arc<OwnBlocks>>,
    pub markers: [Option<u32>; 2],
    /// Sides A and B of the comparison; by default this device at its markers.
    pub compared: [Source; 2],
    /// True while Compare or its flame graph is visible. The timeline then shows flags for both sides.
    pub shows_comparison: bool,
    /// Settings that other views asked What-if to try, oldest first.
    pub to_try: Vec<String>,
    /// Further recordings that the user chose for the plan.
    pub to_plan_with: Vec<PathBuf>,
    pub tracks: TrackLayout,
    /// State of the watch, when the recording is live.
    pub live: Option<Arc<LiveStatus>>,
    /// The sample instant that views show, microseconds since the epoch; the newest when `None`.
    pub instant_us: Option<i64>,
    /// Earlier visible windows, for going back.
    pub zooms: Zooms,
    /// How often Escape was pressed. Bumped to make views reset their own zoom.
    pub cleared: u32,
    /// Bumped when the user zooms out to the whole recording, and when Escape has nothing else to clear. It ends a zoom into bytes.
    pub fitted: u32,
    /// The active query. Every view dims allocations that do not match.
    pub query: Option<Arc<AskedQuery>>,
}

/// The history of visible windows.
#[derive(Clone, Debug, Default)]
pub struct Zooms {
    left: Vec<(Axis, f64, f64)>,
    changed: Option<Instant>,
    /// The window changed after the selection did, so "back" undoes the window.
    is_last: bool,
    /// The window was just restored, so the change is not to be recorded as a new one.
    is_back: bool,
}

const MOST_ZOOMS: usize = 50;
/// Changes of the window that follow each other faster than this are one gesture.
const ONE_GESTURE: Duration = Duration::from_millis(600);

/// The query that is applied, as typed and as parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedQuery {
    pub text: String,
    /// The parsed query; never empty.
    pub query: Query,
}

impl SharedViewState {
    /// Shows the whole recording, with the cursor at the last out-of-memory event, or at the last event when there was none.
    pub fn new(device: &DeviceRecording) -> Self {
        let axis = Axis::Event;
        let (from, to) = domain(device, axis);
        let last = device.events.len().saturating_sub(1) as u32;
        let cursor = device.events.last_oom().unwrap_or(last);
        SharedViewState {
            axis,
            from,
            to,
            cursor,
            hover_event: None,
            hovered: None,
            selection: Selection::default(),
            range: None,
            colour_by: ColourBy::default(),
            focus_classes: Vec::new(),
            hover_class: None,
            own: None,
            hover_own: None,
            markers: [None, None],
            compared: Default::default(),
            shows_comparison: false,
            to_try: Vec::new(),
            to_plan_with: Vec::new(),
            live: None,
            tracks: TrackLayout::default(),
            zooms: Zooms::default(),
            cleared: 0,
            fitted: 0,
            query: None,
            instant_us: None,
        }
    }

    /// Records the window that was shown before a change, so that the user can go back to it. Changes of one gesture, such as the
    /// many steps of the wheel, are recorded once.
    pub(in crate::app) fn remember(&mut self, (axis, from, to, selected): (Axis, f64, f64, Option<Item>)) {
        let now = Instant::now();
        if std::mem::take(&mut self.zooms.is_back) {
            self.zooms.changed = None;
            return;
        }
        if selected != self.selected() {
            self.zooms.is_last = false;
        }
        if (axis, from, to) == (self.axis, self.from, self.to) {
            return;
        }
        let goes_on = self.zooms.changed.is_some_and(|at| now.duration_since(at) < ONE_GESTURE);
        self.zooms.changed = Some(now);
        if selected == self.selected() {
            self.zooms.is_last = true;
        }
        if !goes_on {
            if self.zooms.left.len() == MOST_ZOOMS {
                self.zooms.left.remove(0);
            }
            self.zooms.left.push((axis, from, to));
        }
    }

    /// Restores the previous window when the window changed last. False when there is nothing to go back to.
    pub(in crate::app) fn zoom_back(&mut self, device: &DeviceRecording) -> bool {
        let Some((axis, from, to)) = self.zooms.left.pop_if(|_| self.zooms.is_last) else { return false };
        if axis == Axis::Time && !device.events.has_time {
            return false;
        }
        (self.axis, self.from, self.to) = (axis, from, to);
        self.zooms.is_back = true;
        true
    }

    pub fn selected(&self) -> Option<Item> {
        self.selection.current()
    }

    /// Events of flags A and B: the markers, or the events that the comparison was given without markers.
    pub fn flags(&self) -> [Option<u32>; 2] {
        [0, 1].map(|i: usize| match self.compared[i] {
            Source::At(event) => Some(event),
            _ => self.markers[i],
        })
    }

    /// The flags that the timeline draws. A pair that Compare proposed is left out while nothing is compared, since the user set
    /// no marker.
    pub fn flags_shown(&self) -> [Option<u32>; 2] {
        if self.shows_comparison { self.flags() } else { self.markers }
    }

    /// True when the visible window is the whole axis, so that there is nothing to pan.
    pub fn shows_all(&self, device: &DeviceRecording) -> bool {
        let (first, last) = domain(device, self.axis);
        self.from <= first && self.to >= last
    }

    /// True when the visible window is the chosen range, to the nearest event.
    pub fn shows_range(&self, device: &DeviceRecording) -> bool {
        let Some((first, last)) = self.range else { return false };
        let near = |a: f64, event| (a - self.position(device, event)).abs() < 0.5;
        near(self.from, first) && near(self.to, last)
    }

    /// How many events are visible. When the window is the chosen range, the range is counted: events of one microsecond share
    /// one place on the time axis, and only some of them may be in the range.
    pub fn events_shown(&self, device: &DeviceRecording) -> u64 {
        match self.range.filter(|_| self.shows_range(device)) {
            Some(range) => events_of_range(range),
            None => events_within(device, self.axis, self.from, self.to),
        }
    }

    /// Place of an event on the axis.
    pub fn position(&self, device: &DeviceRecording, event: u32) -> f64 {
        position(device, self.axis, event)
    }

    /// The event at or before a place on the axis.
    pub fn event_at(&self, device: &DeviceRecording, x: f64) -> u32 {
        event_at(device, self.axis, x)
    }
}

/// First and last place on the axis; never an empty range.
pub fn domain(device: &DeviceRecording, axis: Axis) -> (f64, f64) {
    match (axis, device.events.time_range()) {
        (Axis::Time, Some((first, last))) => (0.0, ((last - first) as f64).max(1.0)),
        _ => (0.0, (device.events.len() as f64).max(1.0)),
    }
}

/// Place of an event: the middle of its unit cell on the event axis, its time on the time axis.
pub fn position(device: &DeviceRecording, axis: Axis, event: u32) -> f64 {
    match (axis, device.events.time_range()) {
        (Axis::Time, Some((first, _))) => device.events.time_us.get(event as usize).map_or(0.0, |&t| (t - first) as f64),
        _ => f64::from(event) + 0.5,
    }
}

/// The last event at or before a place on the axis; the first event when there is none.
pub fn event_at(device: &DeviceRecording, axis: Axis, x: f64) -> u32 {
    let last = device.events.len().saturating_sub(1) as u32;
    match (axis, device.events.time_range()) {
        (Axis::Time, Some((first, _))) => {
            let t = first.saturating_add(x.floor() as i64);
            (device.events.time_us.partition_point(|&v| v <= t).saturating_sub(1) as u32).min(last)
        }
        _ => (x.max(0.0) as u32).min(last),
    }
}

/// How many events a range holds, both ends included.
pub fn events_of_range((first, last): (u32, u32)) -> u64 {
    u64::from(last.saturating_sub(first)) + 1
}

/// How many events lie between two places on the axis, both included.
pub fn events_within(device: &DeviceRecording, axis: Axis, from: f64, to: f64) -> u64 {
    let n = device.events.len() as f64;
    match (axis, device.events.time_range()) {
        (Axis::Time, Some((first, _))) => {
            let times = &device.events.time_us;
            let start = times.partition_point(|&v| v < first.saturating_add(from.ceil() as i64));
            let end = times.partition_point(|&v| v <= first.saturating_add(to.floor() as i64));
            end.saturating_sub(start) as u64
        }
        _ => ((to - 0.5).floor().min(n - 1.0) + 1.0 - (from - 0.5).ceil().max(0.0)).max(0.0) as u64,
    }
}

/// Event boundaries of equal pixel columns between two places on the axis.
pub fn bounds(device: &DeviceRecording, axis: Axis, from: f64, to: f64, columns: usize) -> Vec<u32> {
    let n = device.events.len() as u32;
    let step = (to - from) / columns.max(1) as f64;
    let place = |i: usize| from + step * i as f64;
    match (axis, device.events.time_range()) {
        (Axis::Time, Some((first, _))) => {
            let times = &device.events.time_us;
            let mut at = 0usize;
            (0..=columns)
                .map(|i| {
                    let t = first.saturating_add(place(i).ceil() as i64);
                    // Columns ascend, so each search starts where the last one ended.
                    at += times[at..].partition_point(|&v| v < t);
                    at as u32
                })
                .collect()
        }
        _ => (0..=columns).map(|i| (place(i).max(0.0).ceil() as u32).min(n)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::toys::{device_at, device_with};
    use vramscope_core::model::Action;

    #[test]
    fn columns_cover_every_event_once_on_both_axes() {
        let d = device_at(&[100, 100, 101, 150, 150, 199, 200]);
        for axis in [Axis::Event, Axis::Time] {
            let (from, to) = domain(&d, axis);
            let b = bounds(&d, axis, from, to + 1.0, 13);
            assert_eq!((b[0], b[13]), (0, 7), "{axis:?}");
            assert!(b.windows(2).all(|w| w[0] <= w[1]));
        }
    }

    #[test]
    fn a_window_between_two_events_holds_none() {
        let d = device_at(&[100, 120, 150]);
        assert_eq!(events_within(&d, Axis::Time, 0.0, 50.0), 3);
        assert_eq!(events_within(&d, Axis::Time, 21.0, 49.0), 0);
        assert_eq!(events_within(&d, Axis::Time, 20.0, 49.0), 1);
        assert_eq!(events_within(&d, Axis::Event, 0.0, 3.0), 3);
        assert_eq!(events_within(&d, Axis::Event, 1.0, 2.0), 1);
        assert_eq!(events_within(&d, Axis::Event, 1.6, 2.4), 0);
    }

    #[test]
    fn a_range_that_is_the_window_is_counted_once_on_both_axes() {
        let d = device_at(&[100, 110, 110, 110, 120, 130]);
        let mut shared = SharedViewState::new(&d);
        shared.range = Some((1, 2));
        assert!(!shared.shows_range(&d));
        for axis in [Axis::Event, Axis::Time] {
            shared.axis = axis;
            (shared.from, shared.to) = (shared.position(&d, 1), shared.position(&d, 2));
            assert!(shared.shows_range(&d), "{axis:?}");
            assert_eq!(shared.events_shown(&d), 2, "{axis:?}");
        }
        assert_eq!(events_within(&d, Axis::Time, shared.from, shared.to), 3, "all three of that microsecond are in view");
        shared.to += 15.0;
        assert_eq!(shared.events_shown(&d), 4);
    }

    #[test]
    fn a_recording_opens_at_its_last_failure() {
        use Action::{Alloc, FreeRequested, Oom};
        assert_eq!(SharedViewState::new(&device_at(&[100, 120])).cursor, 1);
        let d = device_with([(100, Alloc), (120, Alloc), (130, Oom), (140, Alloc), (150, Oom), (160, FreeRequested)]);
        assert_eq!(SharedViewState::new(&d).cursor, 4);
        assert!(d.events.allocates_after(2) && !d.events.allocates_after(4));
    }

    #[test]
    fn an_event_is_found_where_it_stands() {
        let d = device_at(&[100, 120, 150]);
        for axis in [Axis::Event, Axis::Time] {
            for e in 0..3 {
                assert_eq!(event_at(&d, axis, position(&d, axis, e)), e, "{axis:?}");
            }
        }
    }

    #[test]
    fn one_goes_back_through_the_windows_that_were_shown() {
        let d = device_at(&[100, 120, 150, 160, 170, 180, 190, 200, 210, 220, 230, 240]);
        let mut shared = SharedViewState::new(&d);
        let whole = (shared.from, shared.to);
        let change = |shared: &mut SharedViewState, from: f64, to: f64| {
            let before = (shared.axis, shared.from, shared.to, shared.selected());
            (shared.from, shared.to) = (from, to);
            shared.remember(before);
        };
        assert!(!shared.zoom_back(&d), "nothing was shown before");
        change(&mut shared, 2.0, 10.0);
        // The next step of the wheel follows at once, so it is part of the same gesture.
        change(&mut shared, 3.0, 9.0);
        // A selection made afterwards is undone first.
        let before = (shared.axis, shared.from, shared.to, shared.selected());
        shared.selection.select(Some(Item::Event(3)));
        shared.remember(before);
        assert!(!shared.zoom_back(&d), "the selection changed last");
        shared.zooms.changed = None;
        change(&mut shared, 4.0, 8.0);
        let back = |shared: &mut SharedViewState| {
            let before = (shared.axis, shared.from, shared.to, shared.selected());
            let went = shared.zoom_back(&d);
            shared.remember(before);
            went
        };
        assert!(back(&mut shared));
        assert_eq!((shared.from, shared.to), (3.0, 9.0));
        assert!(back(&mut shared));
        assert_eq!((shared.from, shared.to), whole);
        assert!(!back(&mut shared));
    }

    #[test]
    fn an_empty_trace_has_a_domain() {
        let d = DeviceRecording::default();
        assert_eq!(domain(&d, Axis::Time), (0.0, 1.0));
        assert_eq!(event_at(&d, Axis::Event, 5.0), 0);
        assert_eq!(bounds(&d, Axis::Event, 0.0, 1.0, 4), vec![0; 5]);
    }

    #[test]
    fn a_pair_that_compare_proposed_has_flags_only_where_something_is_compared() {
        let mut shared = SharedViewState::new(&DeviceRecording::default());
        shared.compared = [Source::At(3), Source::At(9)];
        assert_eq!(shared.flags_shown(), [None, None]);
        shared.markers[0] = Some(5);
        assert_eq!(shared.flags_shown(), [Some(5), None], "the user's own stay");
        shared.shows_comparison = true;
        assert_eq!(shared.flags_shown(), [Some(3), Some(9)]);
    }
}
