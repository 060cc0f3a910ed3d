//! Which segments can serve a request.

use crate::model::{Action, AllocConf, DeviceRecording, PoolId, SizeClass, StreamId};
use crate::tables::SegmentAt;

/// Which segments can serve a request: the allocator never mixes pools, size classes or streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Small or large requests.
    pub class: SizeClass,
    /// The stream; `None` takes all.
    pub stream: Option<StreamId>,
    /// The pool; `None` takes all.
    pub pool: Option<PoolId>,
}

impl Servers {
    /// Which segments could have served the request that failed at an out-of-memory event, and its bytes; `None` for other
    /// events.
    pub fn of_oom(device: &DeviceRecording, event: u32) -> Option<(Self, u64)> {
        let i = event as usize;
        (device.events.action.get(i) == Some(&Action::Oom)).then_some(())?;
        let requested = device.events.size[i];
        // Before PyTorch 2.12 the event does not tell its pool; a request outside a capture goes to the default one.
        let pool = match device.events.pool[i] {
            PoolId::UNKNOWN => device.pools.iter().position(|&p| p == (0, 0)).and_then(|p| u16::try_from(p).ok()).map(PoolId),
            known => Some(known),
        };
        Some((Servers { class: AllocConf::size_class(requested), stream: Some(device.events.stream[i]), pool }, requested))
    }

    /// True when the segment can serve the request.
    pub fn take(&self, segment: &SegmentAt) -> bool {
        segment.class == self.class
            && self.stream.is_none_or(|s| s == segment.stream)
            // A segment that was gone by the end may not tell its pool.
            && self.pool.is_none_or(|p| p == segment.pool || segment.pool == PoolId::UNKNOWN)
    }

    /// Whose a segment is that cannot serve the request, in words: `of stream 1 (0x5555)`, `of the small pool`. `None` for one
    /// that can.
    pub fn whose(&self, device: &DeviceRecording, segment: &SegmentAt) -> Option<String> {
        if self.take(segment) {
            return None;
        }
        Some(match self.stream {
            Some(stream) if stream != segment.stream => format!("of {}", device.stream_name(segment.stream)),
            _ if self.class != segment.class => format!("of the {} pool", segment.class.name()),
            _ => "of another pool".to_owned(),
        })
    }
}

/// Segments of private pools stay with their graphs; the rest is released before a request fails.
pub(super) fn can_go(device: &DeviceRecording, segment: &SegmentAt) -> bool {
    segment.pool == PoolId::UNKNOWN || device.pool_key(segment.pool).is_none_or(|key| key == (0, 0))
}
