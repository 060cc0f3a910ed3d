//! Compares the state at the end of the replayed trace with the end state that the file contains.

use super::curves::{Curves, Quantity};
use crate::model::{BlockState, DeviceRecording};
use crate::units::Bytes;

/// One sentence with both figures, without a full stop, when the replayed trace contradicts the file: segments or blocks at the end
/// differ, or more was requested than reserved. `None` when they agree or there is no end state. One pass over the final blocks.
pub(super) fn disagreement(dev: &DeviceRecording, curves: &Curves) -> Option<String> {
    if !dev.has_final_state || dev.events.is_empty() {
        return None;
    }
    let mut said = Vec::new();
    let mut differ = |what: &str, replayed: u64, of_file: u64| {
        if replayed != of_file {
            said.push(format!(
                "{what} at the end {} by the trace and {} by the file's own list",
                Bytes(replayed),
                Bytes(of_file)
            ));
        }
    };
    let reserved = dev.segments.iter().map(|s| s.size).fold(0, u64::saturating_add);
    let held = dev.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let (active, requested) = held.fold((0u64, 0u64), |(a, r), b| (a.saturating_add(b.size), r.saturating_add(b.requested)));
    differ("reserved", curves.end(Quantity::Reserved), reserved);
    differ("active", curves.end(Quantity::Active), active);
    // For blocks older than the trace, the requested size may be unknown.
    if dev.blocks.iter().any(|b| b.requested != b.size) && curves.end(Quantity::Requested) > active {
        differ("requested", curves.end(Quantity::Requested), requested);
    }
    let (most, room) = (curves.peak(Quantity::Requested).0, curves.peak(Quantity::Reserved).0);
    if most > room {
        said.push(format!("{} requested at the peak with at most {} reserved", Bytes(most), Bytes(room)));
    }
    (!said.is_empty()).then(|| format!("the trace of {} contradicts its file: {}", dev.id, said.join(", ")))
}
