//! [`Curve`]: reserved and allocated memory over a run, reduced to a number of points.

use serde::Serialize;

use super::replay::Watcher;
use crate::allocator::{CachingAllocator, EventSink, SimulatedMemory};

/// Memory over the events of a run, reduced to a number of points; each point holds the highest value of its interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Curve {
    /// The last event of each interval.
    pub event: Vec<u32>,
    /// Highest reserved bytes of each interval.
    pub reserved: Vec<u64>,
    /// Highest allocated bytes of each interval.
    pub allocated: Vec<u64>,
}

/// Number of points for a picture: about one per pixel. The recording's own run is stored with this many.
pub const POINTS: usize = 1200;

pub(super) struct Sampler {
    events: usize,
    points: usize,
    /// The first event of the next interval.
    until: usize,
    curve: Curve,
}

impl Sampler {
    /// A curve of at most `points` points (0: no curve) over `events` events.
    pub(super) fn new(events: usize, points: usize) -> Self {
        Sampler { events: events.max(1), points, until: 0, curve: Curve::default() }
    }

    pub(super) fn finish(self) -> Curve {
        self.curve
    }
}

impl<S: EventSink> Watcher<S> for Sampler {
    #[inline]
    fn after(&mut self, event: usize, allocator: &mut CachingAllocator<SimulatedMemory, S>) -> bool {
        if self.points > 0 {
            let (reserved, allocated) = allocator.levels();
            let c = &mut self.curve;
            if event >= self.until {
                let point = event * self.points / self.events;
                self.until = ((point + 1) * self.events).div_ceil(self.points);
                c.event.push(event as u32);
                c.reserved.push(reserved);
                c.allocated.push(allocated);
            } else if let (Some(e), Some(r), Some(a)) = (c.event.last_mut(), c.reserved.last_mut(), c.allocated.last_mut()) {
                *e = event as u32;
                *r = reserved.max(*r);
                *a = allocated.max(*a);
            }
        }
        true
    }
}
