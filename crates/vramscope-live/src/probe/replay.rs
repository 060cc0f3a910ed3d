//! Turns a recording's requests into a [`Program`], and compares a replay with the recording.

use serde::Serialize;

use super::card::SIMULATED_TOTAL;
use super::message::End;
use super::program::{Program, Step};
use vramscope_core::allocator::{Growth, Placement, SimulatedMemory};
use vramscope_core::inference::{Question, ReplayStep, WhatIf};
use vramscope_core::model::{Action, BlockState, DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, Quantity};
use vramscope_core::units::GIBIBYTE;

/// Room for addresses without limit, because the card decides whether memory fits.
const PLAN_ROOM: u64 = 1 << 46;

/// A recording's requests as a program, and the places of its segments.
#[derive(Debug)]
pub struct ReplayPlan {
    /// The requests in order. Sites are the recording's stacks.
    pub(super) program: Program,
    /// The recorded segments in the order in which they were requested.
    pub(super) growths: Vec<Growth>,
    pub(super) name: String,
}

impl ReplayPlan {
    /// A device's requests, after those for what existed before the recording. Costs some runs of the model, as [`WhatIf::new`].
    ///
    /// # Errors
    /// One sentence: there is no such device, there is no trace, or reading was cancelled.
    pub fn of(recording: &Recording, device: usize, progress: &Progress) -> Result<Self, String> {
        let device = recording.devices.get(device).ok_or("the recording has no such device")?;
        let (program, growths) = requests(device, progress)?;
        Ok(ReplayPlan { program, growths, name: recording.source.name.clone() })
    }

    /// Places segments where the recording had them, as long as the same ones are requested.
    pub(super) fn places(&self) -> SimulatedMemory {
        let mut places = SimulatedMemory::new(PLAN_ROOM, Placement::Driver);
        places.follow(&self.growths);
        places
    }
}

/// Bytes of the simulated card for a replay: the recorded card's when known, else the usual size doubled until all fits. O(events).
pub(super) fn room_for(device: &DeviceRecording) -> u64 {
    if let Some(capacity) = device.capacity {
        return capacity;
    }
    let (mut now, mut least, mut most) = (0i128, 0, 0);
    for (action, &size) in device.events.action.iter().zip(&device.events.size) {
        match action {
            Action::SegmentAlloc | Action::SegmentMap => now += i128::from(size),
            Action::SegmentFree | Action::SegmentUnmap => now -= i128::from(size),
            _ => continue,
        }
        (least, most) = (least.min(now), most.max(now));
    }
    // Bytes from before the trace: from its final state, or at least what the trace released.
    let before = (i128::from(device.final_reserved()) - now).max(-least);
    let peak = u64::try_from(most + before).unwrap_or(u64::MAX);
    let enough = peak.saturating_add(peak / 4).saturating_add(GIBIBYTE);
    std::iter::successors(Some(SIMULATED_TOTAL), |total| total.checked_mul(2)).find(|&total| total >= enough).unwrap_or(u64::MAX)
}

fn requests(device: &DeviceRecording, progress: &Progress) -> Result<(Program, Vec<Growth>), String> {
    if device.events.is_empty() {
        return Err("there is no trace in this recording, only its state, so nothing can be run again".to_owned());
    }
    // The model decides what the trace leaves open.
    let whatif = WhatIf::new(device, None, progress).map_err(|e| e.to_string())?;
    let requests = whatif.requests();
    let mut program = Program { slots: requests.slots(), ..Program::default() };
    for (slot, size, stream) in requests.blocks_before() {
        program.push(Step::Alloc { slot, size, stream, pool: (0, 0), site: u32::MAX });
    }
    let rests = (device.events.len() / 500).max(1);
    for i in 0..device.events.len() {
        if i % 65_536 == 0 {
            progress.check().map_err(|e| e.to_string())?;
        }
        let site = device.events.stack[i].0;
        let size = device.events.size[i].max(1);
        if requests.begins_capture(i) {
            program.push(Step::EmptyCache);
        }
        match requests.step(i) {
            ReplayStep::Alloc { slot } => {
                program.push(Step::Alloc { slot, size, stream: requests.stream(i), pool: requests.pool(i), site });
            }
            ReplayStep::Failing => {
                program.push(Step::TryAlloc { size, stream: requests.stream(i), pool: requests.pool(i), site });
            }
            ReplayStep::Free { slot } => program.push(Step::Free { slot, site }),
            ReplayStep::FreeLater { slot } => program.push(Step::FreeLater { slot, site }),
            ReplayStep::Complete { slot } => program.push(Step::Complete { slot }),
            ReplayStep::EmptyCache => program.push(Step::EmptyCache),
            ReplayStep::Skip => {}
        }
        for slot in requests.completed_after(i) {
            program.push(Step::Complete { slot });
        }
        if i % rests == rests - 1 {
            program.push(Step::Sample);
        }
    }
    Ok((program, requests.growths.clone()))
}

/// A figure of the card, of the model and of the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// `peak_reserved_bytes` and so on.
    pub what: &'static str,
    /// Value on the card.
    pub card: u64,
    /// Value of the model under the same settings and limit.
    pub model: u64,
    /// Value in the recording under its own settings.
    pub recorded: Option<u64>,
}

/// Comparison of a replay with the model and the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The figures one by one.
    pub comparison: Vec<Comparison>,
    /// Whether the card agrees with the model: exactly where the model is certain, otherwise within its range.
    pub agrees_with_model: bool,
    /// True when the model's figures depend only on the requests.
    pub model_is_certain: bool,
    /// The model's lowest and highest peak of reserved bytes, over the addresses that the driver may choose.
    pub model_span_bytes: [u64; 2],
}

/// Compares a replay with the model and the recording. Costs a dozen runs of the model.
///
/// # Errors
/// One sentence when the settings do not parse.
pub fn replay_report(
    device: &DeviceRecording,
    conf: &str,
    limit: Option<u64>,
    end: &End,
    progress: &Progress,
) -> Result<Compared, String> {
    let whatif = WhatIf::new(device, None, progress).map_err(|e| e.to_string())?;
    let question = Question::parse(conf, limit).map_err(|e| e.to_string())?;
    let row = whatif.ask(&question, 0, progress).map_err(|e| e.to_string())?.row;
    let tables = DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
    let peak = |q| Some(tables.curves.peak(q).0);
    let live: u64 = device.blocks.iter().filter(|b| b.state == BlockState::Active).map(|b| b.size).sum();
    let of = |what, card, model, recorded| Comparison { what, card, model, recorded };
    let ooms = device.events.ooms().len() as u64;
    // Without a final state, the totals at the end follow from the events.
    let (final_reserved, live) = if device.has_final_state {
        (device.final_reserved(), live)
    } else {
        (tables.curves.end(Quantity::Reserved), tables.curves.end(Quantity::Allocated))
    };
    // The file records block sizes only, and the replay requested those, so requested bytes cannot be compared.
    let requested = peak(Quantity::Requested).filter(|_| !device.events.sizes_are_blocks);
    let comparison = vec![
        of("peak_reserved_bytes", end.peak_reserved_bytes, row.peak_reserved_bytes, peak(Quantity::Reserved)),
        of("peak_active_bytes", end.peak_active_bytes, row.peak_active_bytes, peak(Quantity::Active)),
        of("peak_allocated_bytes", end.peak_allocated_bytes, row.peak_allocated_bytes, peak(Quantity::Allocated)),
        of("peak_requested_bytes", end.peak_requested_bytes, row.peak_requested_bytes, requested),
        of("num_alloc_retries", end.num_alloc_retries, row.num_alloc_retries, None),
        of("num_ooms", end.num_ooms, row.num_ooms, Some(ooms)),
        of("final_reserved_bytes", end.final_reserved_bytes, row.final_reserved_bytes, Some(final_reserved)),
        of("final_allocated_bytes", end.final_allocated_bytes, row.final_allocated_bytes, Some(live)),
    ];
    let [low, high] = row.peak_reserved_span;
    let is_equal = comparison.iter().all(|c| c.card == c.model);
    let is_within = !row.certain && (low..=high).contains(&end.peak_reserved_bytes);
    Ok(Compared {
        comparison,
        agrees_with_model: is_equal || is_within,
        model_is_certain: row.certain,
        model_span_bytes: row.peak_reserved_span,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::{PoolId, StackId, StreamId};

    fn recorded(growths: &[(Action, u64)]) -> DeviceRecording {
        let mut device = DeviceRecording::default();
        for (at, &(action, gib)) in growths.iter().enumerate() {
            device.events.push(at as i64, action, 0, gib * GIBIBYTE, StreamId(0), PoolId(0), StackId::NONE);
        }
        device
    }

    #[test]
    fn the_simulated_card_of_a_replay_is_not_what_fails() {
        use Action::{SegmentAlloc, SegmentFree};
        assert_eq!(room_for(&recorded(&[])), 24 * GIBIBYTE);
        assert_eq!(room_for(&recorded(&[(SegmentAlloc, 18)])), 24 * GIBIBYTE);
        assert_eq!(room_for(&recorded(&[(SegmentAlloc, 20), (SegmentFree, 20)])), 48 * GIBIBYTE);
        // 30 GiB existed before the trace began.
        assert_eq!(room_for(&recorded(&[(SegmentFree, 30), (SegmentAlloc, 10)])), 48 * GIBIBYTE);
        assert_eq!(room_for(&recorded(&[(SegmentAlloc, 70)])), 96 * GIBIBYTE);
        let known = DeviceRecording { capacity: Some(80 * GIBIBYTE), ..recorded(&[(SegmentAlloc, 70)]) };
        assert_eq!(room_for(&known), 80 * GIBIBYTE);
    }
}
