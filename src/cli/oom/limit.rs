//! Compares a cap that the user gives with `--limit` with what the recording shows.

use super::{OomReport, PeakEntry, text};
use vramscope_core::model::{Recording, SizeClass};
use vramscope_core::tables::NO_EVENT;
use vramscope_core::units::Bytes;

/// Refuses a cap that cannot be right: below what was reserved when a request failed, high enough for the refused segment, or
/// above the device's memory.
pub(super) fn check(limit: u64, recording: &Recording, report: &OomReport) -> Result<(), String> {
    // PyTorch compares the rounded request with the cap. Expandable segments then map whole pages.
    let expandable = recording.devices.iter().map(|d| &d.settings.conf).filter(|conf| conf.expandable_segments);
    let most = limit.saturating_add(expandable.map(|conf| conf.page_size(SizeClass::Large)).max().unwrap_or(0));
    let failed = report.ooms.iter().find(|o| o.reserved_bytes > most);
    let refuse = |reserved: u64, device: i32, when: String| {
        Err(format!(
            "--limit {}: that is below the {} that were reserved on {} {when}, so it was not the cap; name {} or more.",
            Bytes(limit).limit(),
            Bytes(reserved).limit(),
            text::named(device),
            Bytes(reserved).limit()
        ))
    };
    if let Some(o) = failed {
        return refuse(o.reserved_bytes, o.device, format!("when the request of event {} failed", o.event));
    }
    let above = recording.devices.iter().find_map(|d| Some((d, d.capacity.filter(|&all| all < limit && d.id.index >= 0)?)));
    if let Some((device, all)) = above {
        return Err(format!(
            "--limit {}: {} has {} in all, so its cap was not above that; leave --limit out where none was set.",
            Bytes(limit).limit(),
            device.id,
            Bytes(all).limit()
        ));
    }
    let failures = report.ooms.iter().filter_map(|o| Some((o, o.cap_below.filter(|&below| below <= limit)?)));
    if let Some((o, below)) = failures.min_by_key(|(_, below)| *below) {
        return Err(format!(
            "--limit {}: the request of event {} failed on {} with {} reserved and room for a segment of {} on the device, so the cap is below {}.",
            Bytes(limit).limit(),
            o.event,
            text::named(o.device),
            Bytes(o.reserved_bytes).limit(),
            Bytes(o.segment_bytes).limit(),
            Bytes(below).limit()
        ));
    }
    match report.peaks.iter().find(|p| p.most_reserved.0 > most) {
        None => Ok(()),
        Some(PeakEntry { device, most_reserved: (reserved, NO_EVENT), .. }) => {
            refuse(*reserved, *device, "before the first event".to_owned())
        }
        Some(PeakEntry { device, most_reserved: (reserved, event), .. }) => {
            refuse(*reserved, *device, format!("at event {event}"))
        }
    }
}
