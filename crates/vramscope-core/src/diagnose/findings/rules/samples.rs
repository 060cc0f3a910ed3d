//! Findings from live samples: the driver's figures of the card, compared with PyTorch's.

use super::shared::{lasts, trend};
use crate::diagnose::findings::{Class, Finding, RuleInput};
use crate::model::{DeviceRecording, Frame, FrameId, ProcessTrack, Sample};
use crate::units::{Bytes, GIBIBYTE, MEBIBYTE, count, counted};

/// This process's memory outside PyTorch's allocator; `None` if either figure is missing.
fn outside(s: &Sample) -> Option<u64> {
    Some(s.process?.saturating_sub(s.reserved?))
}

/// Reports memory that is cached for long and unused.
pub(super) fn idle(p: &RuleInput<'_>) -> Option<Finding> {
    let cached = |s: &Sample| Some(s.reserved?.saturating_sub(s.active.or(s.allocated)?));
    let is_idle = |s: &Sample| cached(s).is_some_and(|k| k > GIBIBYTE && k * 2 > s.reserved.unwrap_or(u64::MAX));
    let run = lasts(p, is_idle).filter(|r| r.seconds >= 30.0 && r.is_last)?;
    let bytes = cached(&run.sample).unwrap_or(0);
    Finding::new("idle_cache_live", Class::Structure, "Reserved and not used", bytes)
        .says(format!(
            "For {:.0} s more than half of the {} that PyTorch reserves has been free. {} counts it, memory_allocated does not; nothing is leaked.",
            run.seconds,
            Bytes(run.sample.reserved.unwrap_or(0)),
            p.words.tool
        ))
        .bytes_of("free inside", bytes)
        .bytes_of("reserved", run.sample.reserved.unwrap_or(0))
        .remedy(p.words.say("torch.cuda.empty_cache()"))
        .advice("Only to hand the memory to another process: PyTorch itself uses its cache again.")
        .check(p.words.say("Memory in nvidia-smi falls by the segments that are wholly free."))
}

/// Reports memory outside PyTorch that grows while PyTorch's does not.
pub(super) fn outside_growth(p: &RuleInput<'_>) -> Option<Finding> {
    let g = trend(p, outside)?;
    let r = trend(p, |s| s.reserved)?;
    let is_steady = g.last_half * 10 >= g.grown * 3;
    if g.seconds < 60.0 || g.grown < 256 * MEBIBYTE || g.confidence < 0.8 || !is_steady || r.grown * 4 > g.grown {
        return None;
    }
    Finding::new("outside_growth", Class::Leak, "Memory outside PyTorch grows", g.grown)
        .says(format!(
            "In {:.0} s the process took {} that PyTorch's allocator knows nothing of, while what PyTorch reserves changed by {}.",
            g.seconds,
            Bytes(g.grown),
            Bytes(r.grown)
        ))
        .red("grown outside PyTorch", g.grown)
        .bytes_of("grown inside", r.grown)
        .shows("fit of a line", format!("{:.3}", g.confidence))
        .advice(p.words.say("Look for extensions that call cudaMalloc, library handles made by every thread, captured graphs and NCCL communicators that are never destroyed."))
        .check("What the process holds less what PyTorch reserves stays the same.")
}

/// Reports a jump of memory outside PyTorch: communicators, graphs, raw allocations.
pub(super) fn outside_jump(p: &RuleInput<'_>) -> Option<Finding> {
    const WITHIN_US: i64 = 2_000_000;
    let read: Vec<(&Sample, u64)> = p
        .device
        .samples
        .iter()
        .filter_map(|s| Some((s, outside(s)?)))
        .filter(|(s, _)| s.reserved.is_some_and(|r| r > 0))
        .collect();
    // The helper may answer one sample later than the driver, so a difference in a single sample is not a jump.
    let middle = |at: usize| {
        let near = &read[at.saturating_sub(1)..read.len().min(at + 2)];
        let mut bytes: Vec<u64> = near.iter().map(|n| n.1).collect();
        bytes.sort_unstable();
        if bytes.len() < 3 { read[at].1 } else { bytes[1] }
    };
    let samples: Vec<(&Sample, u64)> = read.iter().enumerate().map(|(at, &(s, _))| (s, middle(at))).collect();
    let mut best: Option<(u64, &Sample, &Sample, u64)> = None;
    let mut from = 0;
    for (to, &(late, after)) in samples.iter().enumerate() {
        while late.time_us - samples[from].0.time_us > WITHIN_US {
            from += 1;
        }
        for &(early, before) in &samples[from..to] {
            let jump = after.saturating_sub(before);
            let inside = late.reserved.unwrap_or(0).abs_diff(early.reserved.unwrap_or(0));
            // Creating the context happens before that and is not a jump.
            if before >= 250 * MEBIBYTE && jump >= 256 * MEBIBYTE && inside * 10 <= jump && best.is_none_or(|b| jump > b.0) {
                best = Some((jump, early, late, before));
            }
        }
    }
    let (jump, early, late, before) = best?;
    // Name a communicator only if the recording shows collectives.
    let stacks = &p.recording.stacks;
    let is_of_collectives =
        |f: Frame| ["nccl", "rccl", "c10d"].iter().any(|lib| stacks.text(f.name).to_ascii_lowercase().contains(lib));
    let has_collectives = (0..stacks.frame_count()).filter_map(|i| stacks.frame(FrameId(i as u32))).any(is_of_collectives);
    let source = match has_collectives {
        true => format!("{} sets up a communicator, or a library", p.words.collectives),
        false => p.words.say("modules of kernels are loaded, cuBLAS or cuDNN is set up, or a library").into_owned(),
    };
    let finding = Finding::new("outside_jump", Class::Structure, "A jump outside PyTorch", jump);
    let finding = match has_collectives {
        true => finding
            .remedy(p.words.say("NCCL_BUFFSIZE=1048576"))
            .advice(p.words.say("If it came with init_process_group or the first collective: fewer process groups, fewer channels (NCCL_MAX_CTAS). With captured graphs NCCL_CUMEM_ENABLE=0.")),
        false => finding.advice(p.words.say("Run the first step under a debugger or with prints to see which call takes it. CUDA_MODULE_LOADING=LAZY, the default since CUDA 12, loads only kernels that run.")),
    };
    finding
        .says(format!(
            "Within {:.1} s the process took {} outside PyTorch's allocator, on top of {}: {source} calls {} itself.",
            (late.time_us - early.time_us) as f64 / 1e6,
            Bytes(jump),
            Bytes(before),
            p.words.malloc
        ))
        .red("taken at once", jump)
        .bytes_of("outside before", before)
        .check("The jump is smaller.")
}

/// Reports memory that belongs to no listed process.
pub(super) fn unattributed(p: &RuleInput<'_>) -> Option<Finding> {
    let nobody = |s: &Sample| {
        // Without a list of processes, there is nothing to compare with.
        let listed = s.process?.saturating_add(s.others.unwrap_or(0));
        Some(s.used?.saturating_sub(s.driver.unwrap_or(0)).saturating_sub(listed))
    };
    let run = lasts(p, |s| nobody(s).is_some_and(|u| u > 300 * MEBIBYTE)).filter(|r| r.seconds > 10.0)?;
    let bytes = nobody(&run.sample).unwrap_or(0);
    Finding::new("unattributed", Class::Structure, "Memory that no process owns", bytes)
        .says(format!(
            "{} are used on the device and belong to no listed process, for {:.0} s: a process that died and was not cleaned up, one in another container, or managed memory.",
            Bytes(bytes),
            run.seconds
        ))
        .bytes_of("used by nobody listed", bytes)
        .bytes_of("used in all", run.sample.used.unwrap_or(0))
        .remedy(p.words.holders)
        .advice(p.words.say("End the processes it names; children of a killed launcher often stay. nvidia-smi --gpu-reset is the last resort."))
        .check("The sum over processes is what is used.")
}

/// Reports other processes that hold a share of the device.
pub(super) fn other_processes(p: &RuleInput<'_>) -> Option<Finding> {
    let total = p.device.capacity.filter(|&t| t > 0)?;
    let run = lasts(p, |s| s.others.is_some_and(|o| o.saturating_mul(10) >= total)).filter(|r| r.seconds >= 5.0)?;
    let bytes = run.sample.others.unwrap_or(0);
    Finding::new("other_processes", Class::Structure, "Others hold part of the device", bytes)
        .says(format!(
            "Other processes hold {} of the device's {}, {:.0} %, for {:.0} s.",
            Bytes(bytes),
            Bytes(total),
            bytes as f64 / total as f64 * 100.0,
            run.seconds
        ))
        .bytes_of("other processes", bytes)
        .bytes_of("the device", total)
        .remedy(p.words.list)
        .advice("Stop them, or ask for less: servers take a share of the whole device (--gpu-memory-utilization), not of what is free.")
        .check("What others hold falls.")
}

/// Reports a device that is nearly full.
pub(super) fn nearly_full(p: &RuleInput<'_>) -> Option<Finding> {
    let total = p.device.capacity.filter(|&t| t > 0)?;
    let is_full = |s: &Sample| s.used.is_some_and(|u| u as f64 >= 0.97 * total as f64);
    let run = lasts(p, is_full).filter(|r| r.seconds > 5.0)?;
    let used = run.sample.used.unwrap_or(0);
    Finding::new("nearly_full", Class::Structure, "The device is full to the brim", used)
        .says(format!(
            "For {:.0} s {} of {} were used. On Windows the driver then moves memory to the host without a word, and everything is many times slower.",
            run.seconds,
            Bytes(used),
            Bytes(total)
        ))
        .bytes_of("used", used)
        .bytes_of("the device", total)
        .advice("Leave a tenth free: a smaller batch. On Windows set CUDA - Sysmem Fallback Policy to Prefer No Sysmem Fallback, so that it fails instead of crawling.")
        .check("At least 3 % stay free.")
}

/// Reports a cap on the allocator that the whole process exceeds, because the cap does not include the context.
pub(super) fn cap_without_context(p: &RuleInput<'_>) -> Option<Finding> {
    let limit = p.device.limit?;
    let passes = |s: &Sample| s.reserved.is_some_and(|r| r <= limit) && s.process.is_some_and(|n| n > limit);
    let run = lasts(p, passes).filter(|r| r.seconds >= 5.0)?;
    let (process, reserved) = (run.sample.process.unwrap_or(0), run.sample.reserved.unwrap_or(0));
    Finding::new("cap_without_context", Class::Hygiene, "The cap leaves the context out", process - limit)
        .says(format!(
            "The process may reserve {} and holds {}: the cap covers PyTorch's {} only, not context and libraries.",
            Bytes(limit),
            Bytes(process),
            Bytes(reserved)
        ))
        .bytes_of("the cap", limit)
        .bytes_of("the process", process)
        .bytes_of("outside PyTorch", process.saturating_sub(reserved))
        .advice("Take what is outside PyTorch off the fraction: (limit - outside) / total.")
        .check("The process stays below the limit.")
}

/// The processes on a device at the end, each with its bytes, and PyTorch's reserved bytes in it if known.
fn processes(device: &DeviceRecording) -> impl Iterator<Item = (&ProcessTrack, u64, Option<u64>)> {
    let tracks = device.live.iter().flat_map(|live| &live.processes);
    tracks.filter(|t| t.ended_us.is_none()).filter_map(|t| {
        let last = t.points.last()?;
        Some((t, last.used?, last.torch.map(|torch| torch.reserved)))
    })
}

/// Reports a context on an unused device: of the watched process, or of any that the driver lists on two devices.
pub(super) fn stray_context(p: &RuleInput<'_>) -> Option<Finding> {
    let is_band = |n: u64| (200 * MEBIBYTE..=1200 * MEBIBYTE).contains(&n);
    let others = || p.recording.devices.iter().filter(|d| d.id != p.device.id);
    let is_stray = |s: &Sample| s.reserved.is_none_or(|r| r == 0) && s.process.is_some_and(is_band);
    let works_elsewhere =
        others().any(|d| d.samples.last().is_some_and(|s| s.reserved.is_some_and(|r| r >= GIBIBYTE) && s.process.is_some()));
    let watched = lasts(p, is_stray).filter(|r| r.is_last && r.seconds >= 5.0 && works_elsewhere);
    let listed: Vec<u64> = processes(p.device)
        .filter(|&(track, used, reserved)| {
            let is_same = |other: &ProcessTrack| other.pid == track.pid && other.started == track.started;
            reserved.is_none_or(|r| r == 0)
                && is_band(used)
                && others().flat_map(processes).any(|(other, there, _)| is_same(other) && there >= used.saturating_mul(2))
        })
        .map(|(_, used, _)| used)
        .collect();
    let number = listed.len().max(usize::from(watched.is_some())) as u64;
    let bytes = listed.iter().sum::<u64>().max(watched.and_then(|r| r.sample.process).unwrap_or(0));
    if number == 0 {
        return None;
    }
    Finding::new("stray_context", Class::Structure, "A context on a GPU that is not used", bytes)
        .says(format!(
            "{} on {} and {} no tensor there: they work on another GPU, and something touched this one first.",
            if number == 1 {
                format!("One process holds {}", Bytes(bytes))
            } else {
                format!("{} hold {}", counted(number, "process", "processes"), Bytes(bytes))
            },
            p.device.id,
            if number == 1 { "has" } else { "have" }
        ))
        .bytes_of("held here", bytes)
        .shows("processes", count(number))
        .remedy(p.words.say("torch.cuda.set_device(local_rank)"))
        .advice(p.words.say("Before any other CUDA call and in every thread; or CUDA_VISIBLE_DEVICES for each rank, torch.load(map_location=...), init_process_group(device_id=...)."))
        .check("They are gone from this GPU.")
}

/// Reports many processes that hold little more than a context each.
pub(super) fn many_contexts(p: &RuleInput<'_>) -> Option<Finding> {
    let total = p.device.capacity.filter(|&t| t > 0)?;
    let small: Vec<u64> = processes(p.device)
        .filter(|&(_, used, reserved)| {
            (200 * MEBIBYTE..=1536 * MEBIBYTE).contains(&used) && reserved.is_none_or(|r| r < 64 * MEBIBYTE)
        })
        .map(|(_, used, _)| used)
        .collect();
    let bytes: u64 = small.iter().sum();
    if small.len() < 3 || bytes.saturating_mul(10) < total {
        return None;
    }
    let number = small.len() as u64;
    Finding::new("many_contexts", Class::Structure, "Many processes, each with a context", bytes)
        .says(format!(
            "{} hold {} of the device's {}, {} each: little more than their {}s.",
            counted(number, "process", "processes"),
            Bytes(bytes),
            Bytes(total),
            Bytes(bytes / number),
            p.words.context
        ))
        .shows("processes", count(number))
        .bytes_of("held by them", bytes)
        .bytes_of("the device", total)
        .remedy("nvidia-cuda-mps-control -d")
        .advice("Use no CUDA in DataLoader workers and fewer processes on one GPU; under MPS they share a context.")
        .check("The sum over processes falls by a context for each that is gone.")
}
