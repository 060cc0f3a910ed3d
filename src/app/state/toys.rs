//! Small traces for tests.

use vramscope_core::model::{Action, DeviceRecording, PoolId, StackId, StreamId};

/// A trace of events of 512 bytes each.
pub(crate) fn device_with(events: impl IntoIterator<Item = (i64, Action)>) -> DeviceRecording {
    let mut device = DeviceRecording::default();
    device.events.has_time = true;
    for (time_us, action) in events {
        device.events.push(time_us, action, 0, 512, StreamId(0), PoolId(0), StackId::NONE);
    }
    device
}

/// A trace of one allocation at each of `times_us`.
pub(crate) fn device_at(times_us: &[i64]) -> DeviceRecording {
    device_with(times_us.iter().map(|&time_us| (time_us, Action::Alloc)))
}
