//! The requests of a recording as a [`Program`], and how its run compares with the recording.

use serde::Serialize;

use super::message::End;
use super::program::{Program, Step};
use crate::allocator::{Replay, ReplayStep, WhatIf};
use crate::model::{AllocConf, BlockState, DeviceRecording, Progress};

/// The requests of one device, in order. Sites are the recording's stacks. What was there before the recording began is
/// asked for first.
///
/// # Errors
/// One sentence: there is no trace, or reading it was cancelled.
pub fn replay_program(device: &DeviceRecording, progress: &Progress) -> Result<Program, String> {
    if device.events.is_empty() {
        return Err("there is no trace in this recording, only its state, so nothing can be run again".to_owned());
    }
    // What the trace leaves open is read as the model explains it.
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
    Ok(program)
}

/// A figure three times: on the card, by the model, and in the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// `peak_reserved_bytes` and so on.
    pub what: &'static str,
    /// On the card.
    pub card: u64,
    /// By the model under the same settings and limit.
    pub model: u64,
    /// In the recording, under its own settings.
    pub recorded: Option<u64>,
}

/// What a replay's figures are beside the model's and the recording's.
///
/// # Errors
/// One sentence when the settings can not be read.
pub fn replay_report(
    device: &DeviceRecording,
    conf: &str,
    limit: Option<u64>,
    end: &End,
    progress: &Progress,
) -> Result<Vec<Comparison>, String> {
    let whatif = WhatIf::new(device, None, progress).map_err(|e| e.to_string())?;
    let requests = whatif.requests();
    let replay =
        Replay { conf: AllocConf::parse(conf).map_err(|e| e.to_string())?, limit, stops_at_oom: true, ..Replay::of(requests) };
    let run = replay.run(requests, (), progress).map_err(|e| e.to_string())?;
    let stats = run.allocator.stats();
    let tables = crate::analysis::DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
    let peak = |q| Some(tables.curves.peak(q).0);
    use crate::analysis::Quantity as Q;
    let live: u64 = device.blocks.iter().filter(|b| b.state == BlockState::Active).map(|b| b.size).sum();
    let row = |what, card, model, recorded| Comparison { what, card, model, recorded };
    Ok(vec![
        row("peak_reserved_bytes", end.peak_reserved_bytes, stats.reserved_bytes.all.peak, peak(Q::Reserved)),
        row("peak_active_bytes", end.peak_active_bytes, stats.active_bytes.all.peak, peak(Q::Active)),
        row("peak_allocated_bytes", end.peak_allocated_bytes, stats.allocated_bytes.all.peak, peak(Q::Allocated)),
        row("peak_requested_bytes", end.peak_requested_bytes, stats.requested_bytes.all.peak, peak(Q::Requested)),
        row("num_alloc_retries", end.num_alloc_retries, stats.num_alloc_retries, None),
        row("num_ooms", end.num_ooms, stats.num_ooms, Some(device.events.ooms().len() as u64)),
        row("final_reserved_bytes", end.final_reserved_bytes, stats.reserved_bytes.all.current, Some(device.final_reserved())),
        row("final_allocated_bytes", end.final_allocated_bytes, stats.allocated_bytes.all.current, Some(live)),
    ])
}
