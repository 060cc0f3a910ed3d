//! Which segments can serve a request.

use crate::model::{Action, AllocConf, DeviceRecording, PoolId, SizeClass, StreamId};
use crate::tables::SegmentAt;

/// The segments that can serve a request. The allocator never mixes pools, size classes or streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// Small or large requests.
    pub class: SizeClass,
    /// The stream; `None` for any.
    pub stream: Option<StreamId>,
    /// The pool; `None` for any.
    pub pool: Option<PoolId>,
}

impl Servers {
    /// The segments that could have served the request of an out-of-memory event, and the request's bytes; `None` for other events.
    pub fn of_oom(device: &DeviceRecording, event: u32) -> Option<(Self, u64)> {
        let i = event as usize;
        (device.events.action.get(i) == Some(&Action::Oom)).then_some(())?;
        let requested = device.events.size[i];
        // Before PyTorch 2.12 the event does not name its pool. A request outside a capture goes to the default pool.
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
            // A segment that was released before the end may not have a known pool.
            && self.pool.is_none_or(|p| p == segment.pool || segment.pool == PoolId::UNKNOWN)
    }

    /// Describes a segment that cannot serve the request: `of stream 1 (0x5555)`, `of the small pool`. `None` if it can.
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

/// True unless the segment belongs to a private pool: these stay with their graphs; all others are released before a request fails.
pub(super) fn can_go(device: &DeviceRecording, segment: &SegmentAt) -> bool {
    segment.pool == PoolId::UNKNOWN || device.pool_key(segment.pool).is_none_or(|key| key == (0, 0))
}
