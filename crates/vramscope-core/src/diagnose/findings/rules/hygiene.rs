//! Small losses, and notes about the recording.

use super::shared::CPP;
use crate::diagnose::findings::{Class, Finding, Place, RuleInput};
use crate::model::{AllocConf, BlockState, DeviceKind};
use crate::tables::{LifetimeId, Quantity};
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// Reports blocks that are larger than requested.
pub(super) fn rounding(p: &RuleInput<'_>) -> Option<Finding> {
    let (mut block, mut asked, mut number) = (0u64, 0u64, 0u64);
    let conf = &p.device.settings.conf;
    let plain = AllocConf { roundup_power2_divisions: [0; 16], ..conf.clone() };
    // Bytes lost to roundup_power2_divisions, and to remainders that were not split off.
    let (mut by_roundup, mut by_remainder) = (0u64, 0u64);
    for b in p.at_peak.blocks.iter().filter(|b| b.state == BlockState::Active) {
        block += b.size;
        asked += b.requested.min(b.size);
        number += 1;
        let (size, rounded) = (plain.round_size(b.requested), conf.round_size(b.requested).min(b.size));
        by_roundup += rounded.saturating_sub(size);
        by_remainder += b.size - rounded;
    }
    let lost = block - asked;
    let share = lost as f64 / block.max(1) as f64;
    let failed = !p.ooms.is_empty();
    let matters = if failed { lost > 16 * MEBIBYTE && share > 0.02 } else { lost > 512 * MEBIBYTE && share > 0.1 };
    // Host memory is rounded by its own rules, which the card's settings do not affect.
    let is_host = matches!(p.device.id.kind, DeviceKind::Host | DeviceKind::Cpu);
    if !matters || p.device.events.sizes_are_blocks || is_host {
        return None;
    }
    let roundup = format!("{} is how far roundup_power2_divisions rounds sizes up", Bytes(by_roundup));
    let remainder = format!("{} are the ends of blocks, too small for the allocator to split off", Bytes(by_remainder));
    // Name the smaller cause too if it is at least a tenth of the larger one.
    let cause = match (by_roundup, by_remainder) {
        (a, b) if a * 10 < b => remainder,
        (a, b) if b * 10 < a => roundup,
        (a, b) if a > b => format!("{roundup}, and {remainder}"),
        _ => format!("{remainder}, and {roundup}"),
    };
    Finding::new("rounding", Class::Hygiene, "Rounded up, never used", lost)
        .says(format!(
            "{:.1} % of the {} in {} at the peak was never requested: {cause}.",
            share * 100.0,
            Bytes(block),
            counted(number, "live block", "live blocks"),
        ))
        .bytes_of("in blocks", block)
        .bytes_of("requested", asked)
        .bytes_of("by roundup_power2_divisions", by_roundup)
        .bytes_of("ends of blocks", by_remainder)
        .at(Place { event: Some(p.peak_event), ..Place::default() })
        .advice(super::settings::untried("rounding"))
        .check("Allocated memory comes down to requested memory.")
}

pub(super) fn no_history(p: &RuleInput<'_>) -> Option<Finding> {
    if !p.device.events.is_empty() || p.device.segments.is_empty() || p.recording.devices.iter().any(|d| !d.events.is_empty()) {
        return None;
    }
    // Blocks keep their stacks after the history is switched off.
    let has_frames = |i: &u32| p.stack_of(LifetimeId(*i)).is_some_and(|stack| !p.recording.stacks.frames(stack).is_empty());
    let blocks = p.tables.lifetimes.len() as u32;
    let has_stacks = (0..blocks).filter(has_frames).count() * 2 > blocks as usize;
    let whole = crate::diagnose::oom::closest(p.device, p.tables).map_or(0, |c| c.releasable);
    let idle = match whole.saturating_mul(5) >= p.device.final_reserved() && whole >= 256 * MEBIBYTE {
        true => format!(
            " {} of that is in segments without a live block; {} returns them.",
            Bytes(whole),
            p.words.say("torch.cuda.empty_cache()")
        ),
        false => String::new(),
    };
    Finding::new("no_history", Class::Hygiene, "No history was recorded", p.device.final_reserved())
        .says(format!(
            "The file holds {} in {} and no events, so it does not tell how that came about.{idle}",
            Bytes(p.device.final_reserved()),
            counted(p.device.segments.len() as u64, "segment", "segments")
        ))
        .bytes_of("reserved at the end", p.device.final_reserved())
        .remedy(p.words.say(crate::diagnose::limits::RECORD))
        .advice(match has_stacks {
            true => "Call it before the model is built, and dump before recording is switched off.",
            false => {
                "Dump the snapshot before recording is switched off (enabled=None), and call this line before the model is built."
            }
        })
        .check("The number of events is not zero.")
}

/// Requested bytes of cuBLAS workspaces: `:4096:2:16:8`, 4 MiB, and Hopper's 32 MiB.
const WORKSPACES: [u64; 3] = [8_519_680, 4_194_304, 33_554_432];

/// Reports cuBLAS workspaces of many threads and streams.
pub(super) fn workspaces(p: &RuleInput<'_>) -> Option<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let mut ids: Vec<LifetimeId> = Vec::new();
    let mut bytes = 0;
    for b in p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && WORKSPACES.contains(&b.requested)) {
        if p.roles.of(b.lifetime) == crate::anatomy::roles::Role::Workspaces {
            bytes += b.size;
            ids.push(b.lifetime);
        }
    }
    if bytes < 128 * MEBIBYTE || bytes.saturating_mul(20) < peak {
        return None;
    }
    Finding::new("workspaces", Class::Hygiene, "Many cuBLAS workspaces", bytes)
        .says(format!(
            "{} of cuBLAS hold {}: one for every thread and stream that multiplied matrices. They are kept on purpose and are no leak.",
            counted(ids.len() as u64, "workspace", "workspaces"),
            Bytes(bytes)
        ))
        .shows("workspaces", count(ids.len() as u64))
        .bytes_of("in them", bytes)
        .at(Place { event: Some(p.peak_event), stack: p.stack_of(ids[0]), lifetimes: ids, ..Place::default() })
        .remedy("CUBLAS_WORKSPACE_CONFIG=:4096:2")
        .advice(p.words.say("Use fewer streams, or let go of them with torch._C._cuda_clearCublasWorkspaces()."))
        .check("The blocks are gone.")
}

/// Reports a garbage collection threshold without effect.
pub(super) fn idle_threshold(p: &RuleInput<'_>) -> Option<Finding> {
    let threshold = p.device.settings.conf.garbage_collection_threshold;
    let is_capped = p.device.limit.is_some() || p.device.settings.conf.per_process_memory_fraction < 1.0;
    let is_collected = p.device.events.action.iter().any(|a| a.shrinks_reserved());
    let (reserved, at) = p.tables.curves.settled_peak(p.device, Quantity::Reserved);
    let unused = reserved.saturating_sub(p.tables.curves.peak(Quantity::Active).0);
    if threshold <= 0.0 || is_capped || is_collected || !p.ooms.is_empty() || unused < 64 * MEBIBYTE {
        return None;
    }
    Finding::new("idle_threshold", Class::Hygiene, "The collection threshold did nothing", unused)
        .says(format!(
            "garbage_collection_threshold is {threshold}, and no segment was ever given back while up to {} lay unused: it acts only below a memory fraction, and there is no sign of one.",
            Bytes(unused)
        ))
        .shows("threshold", format!("{threshold}"))
        .shows("segments given back", count(0))
        .bytes_of("reserved beyond the highest use", unused)
        .at(Place { event: Some(at), ..Place::default() })
        .remedy(p.words.say("torch.cuda.set_per_process_memory_fraction(0.95)"))
        .advice("Call it at the start, or drop the setting.")
        .check("Unused segments go back below the threshold.")
}

/// Reports a file that is cut short: all statements hold only up to the cut.
pub(super) fn truncated(p: &RuleInput<'_>) -> Option<Finding> {
    let warning = p.recording.report.truncated()?;
    let events = p.device.events.len() as u64;
    let at = warning.first_offset.map_or(String::new(), |at| format!(", at byte {}", count(at)));
    Finding::new(super::TRUNCATED, Class::Hygiene, "The file ends early", p.recording.source.bytes)
        .says(format!(
            "The file ends early{at}: what came before was read, {} of this device, and the rest is not known; copy it again.",
            counted(events, "event", "events")
        ))
        .shows("events read", count(events))
        .bytes_of("file", p.recording.source.bytes)
        .advice("Copy the file again, or dump it again and wait until it is written.")
        .check("It opens without this line.")
}

/// Reports a recording made large by C++ frames.
pub(super) fn heavy_recording(p: &RuleInput<'_>) -> Option<Finding> {
    let events = p.device.events.len() as u64;
    let bytes = p.recording.source.bytes;
    if events <= 200_000 && bytes <= 500 * MEBIBYTE {
        return None;
    }
    let stacks = p.recording.stacks.len() as u64;
    let with_cpp = (0..stacks as u32).filter(|&s| p.flags(crate::model::StackId(s)) & CPP != 0).count() as u64;
    if with_cpp * 2 < stacks || with_cpp == 0 {
        return None;
    }
    Finding::new("heavy_recording", Class::Hygiene, "C++ frames make the recording heavy", bytes.max(1))
        .says(format!(
            "{} with C++ frames in {} of {} stacks: such a snapshot takes minutes to write and browsers cannot open it.",
            counted(events, "event", "events"),
            count(with_cpp),
            count(stacks)
        ))
        .shows("events", count(events))
        .shows("stacks with C++ frames", count(with_cpp))
        .bytes_of("file", bytes)
        .at(Place { event: Some(0), ..Place::default() })
        .remedy(
            p.words.say("torch.cuda.memory._record_memory_history(context=\"alloc\", stacks=\"python\", max_entries=100_000)"),
        )
        .advice("Python's frames are enough to name the line.")
        .check("The snapshot is written in seconds.")
}
