//! Moving in a recording: cursor, window, markers, next peak, next allocation of the same stack.

use crate::app::data::device::DeviceData;
use crate::app::state::shared::{domain, position};
use crate::app::state::{Axis, Item, SharedViewState, Source};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};

/// Event to go to, and what to select there.
pub(in crate::app) type Place = (u32, Option<Item>);

pub(in crate::app) fn selected_stack(shared: &SharedViewState, data: &DeviceData) -> Option<vramscope_core::model::StackId> {
    match shared.selected()? {
        Item::Lifetime(id) => Some(data.tables.lifetimes.stack(data.device(), id)),
        Item::Event(e) => data.device().events.stack.get(e as usize).copied(),
        Item::Stack(s) => Some(s),
        Item::Segment(_) | Item::Hole(_) | Item::Unmapped(_) | Item::Annotation(_) => None,
    }
}

/// Sets a marker at an event. That side of the comparison then is this recording at this event.
pub(in crate::app) fn set_marker(shared: &mut SharedViewState, which: usize, event: Option<u32>) {
    if let (Some(marker), Some(side)) = (shared.markers.get_mut(which), shared.compared.get_mut(which)) {
        *marker = event;
        if event.is_some() || matches!(side, Source::At(_)) {
            *side = Source::Marker;
        }
    }
}

pub(in crate::app) fn clamp_event(data: &DeviceData, event: u32) -> u32 {
    event.min(data.device().events.len().saturating_sub(1) as u32)
}

/// Moves the cursor. When it leaves the window, the window follows by as little as leaves a tenth of its width beyond the cursor.
pub(in crate::app) fn go_to(shared: &mut SharedViewState, data: &DeviceData, event: u32) {
    let event = clamp_event(data, event);
    shared.cursor = event;
    let x = position(data.device(), shared.axis, event);
    let span = shared.to - shared.from;
    if x < shared.from {
        set_window(shared, data, x - span * 0.1, x + span * 0.9);
    } else if x > shared.to {
        set_window(shared, data, x - span * 0.9, x + span * 0.1);
    }
}

/// Shows a part of the axis, at least a few units wide and not far beyond the ends.
pub(in crate::app) fn set_window(shared: &mut SharedViewState, data: &DeviceData, from: f64, to: f64) {
    let (first, last) = domain(data.device(), shared.axis);
    if !(from.is_finite() && to.is_finite()) {
        return;
    }
    let smallest: f64 = match shared.axis {
        Axis::Event => 8.0,
        Axis::Time => 20.0,
    };
    let span = (to - from).clamp(smallest.min(last - first), last - first);
    let middle = f64::midpoint(from, to);
    let from = (middle - span / 2.0).clamp(first, last - span);
    shared.from = from;
    shared.to = from + span;
}

pub(in crate::app) fn set_axis(shared: &mut SharedViewState, data: &DeviceData, axis: Axis) {
    if shared.axis == axis {
        return;
    }
    let device = data.device();
    if axis == Axis::Time && !device.events.has_time {
        return;
    }
    // When the window is the range, it stays the range after the change of axis. Several events may share one microsecond, so the
    // time axis alone cannot tell which one ended it.
    let seen = (shared.event_at(device, shared.from), shared.event_at(device, shared.to));
    let (a, b) = shared.range.filter(|_| shared.shows_range(device)).unwrap_or(seen);
    let whole = (shared.from, shared.to) == domain(device, shared.axis);
    shared.axis = axis;
    let (from, to) = if whole { domain(device, axis) } else { (position(device, axis, a), position(device, axis, b)) };
    set_window(shared, data, from, to);
}

pub(in crate::app) fn zoom(shared: &mut SharedViewState, data: &DeviceData, factor: f64) {
    let x = position(data.device(), shared.axis, shared.cursor);
    let about = if (shared.from..=shared.to).contains(&x) { x } else { f64::midpoint(shared.from, shared.to) };
    set_window(shared, data, about - (about - shared.from) * factor, about + (shared.to - about) * factor);
}

pub(in crate::app) fn pan(shared: &mut SharedViewState, data: &DeviceData, share: f64) {
    let by = (shared.to - shared.from) * share;
    set_window(shared, data, shared.from + by, shared.to + by);
}

/// The next event, in a direction, at which the active curve is highest within a hundredth of the recording around it. Reads the
/// events around it one by one.
pub(in crate::app) fn neighbour_peak(data: &DeviceData, cursor: u32, forward: bool) -> Option<u32> {
    let n = data.device().events.len() as u32;
    let columns = 400.min(n.max(1)) as usize;
    let bounds: Vec<u32> = (0..=columns).map(|i| (u64::from(n) * i as u64 / columns as u64) as u32).collect();
    let cells = data.tables.curves.columns(data.device(), &data.tables.lifetimes, Quantity::Active, &bounds);
    let is_peak = |i: usize| {
        let near = i.saturating_sub(3)..(i + 4).min(cells.len());
        let before = cells[near.start..i].iter().all(|c| c.max < cells[i].max);
        before && cells[near].iter().all(|c| c.max <= cells[i].max) && cells[i].max > 0
    };
    let event_in = |i: usize| {
        let (mut best, mut at) = (0, bounds[i]);
        for e in bounds[i]..bounds[i + 1] {
            let v = data.tables.curves.at(data.device(), &data.tables.lifetimes, Quantity::Active, e);
            if v > best {
                (best, at) = (v, e);
            }
            if v == cells[i].max {
                break;
            }
        }
        at
    };
    let mut order: Box<dyn Iterator<Item = usize>> =
        if forward { Box::new(0..cells.len()) } else { Box::new((0..cells.len()).rev()) };
    order.find_map(|i| {
        if !is_peak(i) || (forward && bounds[i + 1] <= cursor) || (!forward && bounds[i] >= cursor) {
            return None;
        }
        let e = event_in(i);
        ((forward && e > cursor) || (!forward && e < cursor)).then_some(e)
    })
}

/// The next allocation, in a direction, with the stack of the selection. Reads allocations one by one.
pub(in crate::app) fn next_of_stack(shared: &SharedViewState, data: &DeviceData, forward: bool) -> Option<Place> {
    let stack = selected_stack(shared, data)?;
    let lifetimes = &data.tables.lifetimes;
    let device = data.device();
    let n = lifetimes.len() as u32;
    let start = match shared.selected() {
        Some(Item::Lifetime(id)) => id.0,
        Some(Item::Event(e)) => lifetimes.of_event(e).0.min(n),
        _ => return None,
    };
    let is_same = |&i: &u32| lifetimes.stack(device, LifetimeId(i)) == stack;
    let found = if forward { (start.saturating_add(1)..n).find(is_same) } else { (0..start.min(n)).rev().find(is_same) };
    let id = LifetimeId(found?);
    let born = lifetimes.born(id);
    Some((if born == NO_EVENT { 0 } else { born }, Some(Item::Lifetime(id))))
}

pub(in crate::app) fn fit_selection(shared: &mut SharedViewState, data: &DeviceData) {
    let device = data.device();
    let (first, last) = match shared.selected() {
        Some(Item::Lifetime(id)) => {
            let born = data.tables.lifetimes.born(id);
            let gone = data.tables.lifetimes.gone(id);
            (if born == NO_EVENT { 0 } else { born }, clamp_event(data, gone))
        }
        Some(Item::Annotation(i)) => match (device.annotations.get(i as usize), device.events.has_time) {
            (Some(a), true) => {
                let times = &device.events.time_us;
                let from = times.partition_point(|&t| t < a.start_us) as u32;
                let to = a.end_us.map_or(from, |end| times.partition_point(|&t| t <= end) as u32);
                (from, to)
            }
            _ => return,
        },
        Some(Item::Segment(address)) => match data.tables.states.segment_life(device, address, shared.cursor) {
            Some(life) => (if life.born == NO_EVENT { 0 } else { life.born }, clamp_event(data, life.gone)),
            None => return,
        },
        Some(Item::Event(e)) => (e.saturating_sub(50), e.saturating_add(50)),
        _ => return,
    };
    let a = position(device, shared.axis, first);
    let b = position(device, shared.axis, clamp_event(data, last));
    let margin = ((b - a) * 0.1).max(2.0);
    set_window(shared, data, a - margin, b + margin);
}
