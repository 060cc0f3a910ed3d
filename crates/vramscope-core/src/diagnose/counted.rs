//! Findings from PyTorch's counters alone: `memory_stats()`, `memory_summary()` or `host_memory_stats()` without a snapshot.
//!
//! The counters are sums over the allocator's blocks (`DeviceStats` in PyTorch's CUDACachingAllocator): reserved = segments;
//! active = blocks in use or waiting for a stream; allocated = blocks in use; inactive split = free blocks in partly used
//! segments. So reserved - active - inactive split is the memory of wholly free segments.

use super::accounting::{Part, Row, Waterfall};
use crate::model::{MemoryStats, StatsKind};
use crate::units::{Bytes, counted};

/// Groups of the counters, in the order of `memory_summary()`.
pub const GROUPS: [(&str, &str); 9] = [
    ("allocated_bytes", "allocated"),
    ("active_bytes", "active"),
    ("requested_bytes", "requested"),
    ("reserved_bytes", "reserved"),
    ("inactive_split_bytes", "free in split segments"),
    ("allocation", "allocations"),
    ("active", "active blocks"),
    ("segment", "segments"),
    ("inactive_split", "free blocks in split segments"),
];
/// The groups for pinned host memory, which has no pools.
pub const HOST_GROUPS: [(&str, &str); 4] = [
    ("allocated_bytes", "held"),
    ("active_bytes", "in use"),
    ("allocations", "blocks held"),
    ("active_requests", "blocks in use"),
];
/// Counters that are single numbers.
pub const SCALARS: [(&str, &str); 12] = [
    ("num_alloc_retries", "retries after emptying the cache"),
    ("num_ooms", "out-of-memory errors"),
    ("num_oom_rejections", "requests rejected beforehand"),
    ("num_sync_all_streams", "waits for all streams"),
    ("num_device_alloc", "cudaMalloc calls"),
    ("num_device_free", "cudaFree calls"),
    ("num_host_alloc", "cudaHostAlloc calls"),
    ("num_host_free", "cudaFreeHost calls"),
    ("host_alloc_time.total", "time in cudaHostAlloc"),
    ("host_free_time.total", "time in cudaFreeHost"),
    ("oversize_allocations.current", "blocks above max_split_size"),
    ("oversize_segments.current", "segments above max_split_size"),
];

/// The current value of a group, over all pools.
fn now(stats: &MemoryStats, group: &str) -> Option<u64> {
    stats.get(&format!("{group}.all.current")).map(|c| c.value)
}

/// The peak of a group, over all pools.
fn peak(stats: &MemoryStats, group: &str) -> Option<u64> {
    stats.get(&format!("{group}.all.peak")).map(|c| c.value)
}

/// True if PyTorch counted split blocks. It does not for expandable segments; without those, any process has split a block.
pub fn counts_splits(stats: &MemoryStats) -> bool {
    stats.gauge("inactive_split_bytes", "all").is_some_and(|g| g.allocated.value > 0 || g.peak.value > 0)
}

/// The waterfall at the time of the counters. Its known parts add up to `reserved`, except for rounding in a summary.
pub fn account_counters(stats: &MemoryStats) -> Waterfall {
    let row = |part, bytes| Row { part, bytes };
    let mut rows = vec![
        row(Part::DeviceFree, None),
        row(Part::Driver, None),
        row(Part::OtherProcesses, None),
        row(Part::OutsidePytorch, None),
    ];
    let reserved = now(stats, "reserved_bytes");
    let allocated = now(stats, "allocated_bytes");
    let active = now(stats, "active_bytes").or(allocated);
    let free = reserved.zip(active).map(|(r, a)| r.saturating_sub(a));
    let split = now(stats, "inactive_split_bytes").filter(|_| counts_splits(stats));
    match split {
        Some(split) => {
            rows.push(row(Part::CachedWhole, free.map(|f| f.saturating_sub(split))));
            rows.push(row(Part::CachedPinned, Some(split)));
        }
        None => rows.extend(free.map(|bytes| row(Part::Cached, Some(bytes)))),
    }
    let pending = active.zip(allocated).map(|(active, allocated)| active.saturating_sub(allocated));
    rows.extend(pending.map(|bytes| row(Part::PendingFree, Some(bytes))));
    // Requested bytes are counted until memory is reusable, so they equal those of live blocks only while no block is waiting.
    let requested = now(stats, "requested_bytes").filter(|_| pending.unwrap_or(0) == 0);
    if let (Some(requested), Some(allocated)) = (requested, allocated) {
        rows.push(row(Part::Rounding, Some(allocated.saturating_sub(requested))));
    }
    rows.extend(requested.or(allocated).map(|bytes| row(Part::Requested, Some(bytes))));
    Waterfall { total: None, reserved, rows }
}

/// A summary of the counters in two or three sentences: what is held, the peak, and what went wrong.
pub fn counted_sentence(stats: &MemoryStats) -> String {
    if stats.kind == StatsKind::Host {
        let get = |key: &str| stats.get(key).map(|c| Bytes(c.value));
        return match (get("allocated_bytes.current"), get("active_bytes.current"), get("allocated_bytes.peak")) {
            (Some(held), Some(used), Some(most)) => {
                format!("Pinned host memory: PyTorch holds {held} and has {used} of it in use; it held {most} at most.")
            }
            (Some(held), None, _) => format!("Pinned host memory: PyTorch holds {held}."),
            _ => "Pinned host memory: how often it was taken and given back.".to_owned(),
        };
    }
    let mut out = match (now(stats, "reserved_bytes"), now(stats, "allocated_bytes")) {
        (Some(reserved), Some(allocated)) => {
            format!("PyTorch reserves {} and has {} of it in tensors.", Bytes(reserved), Bytes(allocated))
        }
        (Some(reserved), None) => format!("PyTorch reserves {}.", Bytes(reserved)),
        (None, Some(allocated)) => format!("Tensors take {}.", Bytes(allocated)),
        (None, None) => "The counters tell neither what is reserved nor what is allocated.".to_owned(),
    };
    match (peak(stats, "reserved_bytes"), peak(stats, "allocated_bytes")) {
        (Some(reserved), Some(allocated)) => {
            out += &format!(" At most it reserved {}, and tensors took {}.", Bytes(reserved), Bytes(allocated));
        }
        (Some(reserved), None) => out += &format!(" At most it reserved {}.", Bytes(reserved)),
        _ => {}
    }
    let whole = account_counters(stats).rows.iter().find(|r| r.part == Part::CachedWhole).and_then(|r| r.bytes).unwrap_or(0);
    if whole > 0 {
        out += &format!(" torch.cuda.empty_cache() would have given {} back.", Bytes(whole));
    }
    let get = |key: &str| stats.get(key).map_or(0, |c| c.value);
    let failed = get("num_ooms");
    let retried = get("num_alloc_retries");
    if failed > 0 {
        let rejected = match get("num_oom_rejections") {
            0 => String::new(),
            n => format!(", {} of them beforehand by the memory fraction", crate::units::count(n)),
        };
        out += &format!(" {} for lack of memory{rejected}.", counted(failed, "request failed", "requests failed"));
    }
    if retried > 0 {
        out +=
            &format!(" {} only after the cache was given back.", counted(retried, "request was served", "requests were served"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::stats::parse;

    fn rows(text: &str) -> Vec<(Part, u64)> {
        account_counters(&parse(text).unwrap()).rows.iter().filter_map(|r| Some((r.part, r.bytes?))).collect()
    }

    #[test]
    fn the_parts_add_up_to_what_is_reserved() {
        let text = "{'reserved_bytes.all.current': 1000, 'active_bytes.all.current': 600, 'allocated_bytes.all.current': 600, \
            'requested_bytes.all.current': 550, 'inactive_split_bytes.all.current': 300, 'inactive_split_bytes.all.peak': 300, \
            'inactive_split_bytes.all.allocated': 300, 'inactive_split_bytes.all.freed': 0}";
        let parts = rows(text);
        assert_eq!(
            parts,
            [
                (Part::CachedWhole, 100),
                (Part::CachedPinned, 300),
                (Part::PendingFree, 0),
                (Part::Rounding, 50),
                (Part::Requested, 550)
            ]
        );
        assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), 1000);
    }

    #[test]
    fn what_counters_do_not_tell_stays_open() {
        // Expandable segments, so no split blocks are counted; some blocks wait for a stream.
        let text = "{'reserved_bytes.all.current': 1000, 'active_bytes.all.current': 600, 'allocated_bytes.all.current': 500, \
            'requested_bytes.all.current': 550, 'inactive_split_bytes.all.current': 0, 'inactive_split_bytes.all.peak': 0, \
            'inactive_split_bytes.all.allocated': 0, 'inactive_split_bytes.all.freed': 0, 'num_ooms': 2, 'num_alloc_retries': 1}";
        assert_eq!(rows(text), [(Part::Cached, 400), (Part::PendingFree, 100), (Part::Requested, 500)]);
        let plain = counted_sentence(&parse(text).unwrap()).replace(crate::units::NBSP, " ");
        assert!(plain.contains("2 requests failed for lack of memory. 1 request was served only after"), "{plain}");
        // PyTorch 1.x has no requested bytes.
        assert_eq!(
            rows("{'reserved_bytes.all.current': 10, 'allocated_bytes.all.current': 4}").last(),
            Some(&(Part::Requested, 4))
        );
    }
}
