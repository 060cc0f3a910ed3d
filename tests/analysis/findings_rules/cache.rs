//! Reserved memory without live blocks: sizes, slivers, pools, streams, emptied and idle caches, rounding.

use super::{findings, said, silent};
use crate::tape::{GIB, MIB, Tape};
use vramscope_core::model::{AllocConf, StackId};

#[test]
fn requests_of_ever_new_sizes() {
    let run = |grows: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for step in 0..90u64 {
            let size = if grows { 10 + 2 * step } else { 10 + 2 * (step % 4) };
            t.brief(size * MIB, work);
            t.step();
        }
        t.finish()
    };
    said(&run(true), "variable_sizes");
    silent(&run(false), "variable_sizes");
}

/// A few sizes are enough when each tensor is replaced by a larger one before it is freed. Memory reserved before the recording
/// may have been in use.
#[test]
fn gaps_that_nothing_fits_into() {
    let run = |keeps_free: u64, is_older: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/resize.py", "extend")]);
        let old: Vec<_> = (0..8).map(|_| t.alloc(GIB, work)).collect();
        for h in old {
            t.free(h);
            t.alloc(GIB + keeps_free, work);
        }
        if is_older {
            t.forget();
        }
        t.brief(20 * MIB, work);
        t.finish()
    };
    let found = said(&run(20 * MIB, false), "unfilled_gaps");
    let sentence = found.sentence.replace('\u{a0}', " ");
    assert!(sentence.starts_with("At most ") && found.bytes >= 6 * GIB, "{sentence}");
    silent(&run(0, false), "unfilled_gaps");
    silent(&run(20 * MIB, true), "unfilled_gaps");
    silent(&run(20 * MIB, true), "variable_sizes");
}

#[test]
fn a_sliver_in_every_segment() {
    let run = |sliver: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..20 {
            let segment = t.segment(40 * MIB);
            t.place(segment, 0, sliver, work);
        }
        t.finish()
    };
    assert_eq!(said(&run(2 * MIB), "pinned_segments").bytes, 20 * 38 * MIB);
    silent(&run(30 * MIB), "pinned_segments");
}

#[test]
fn a_pool_that_only_a_graph_can_use() {
    let run = |key| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.alloc(200 * MIB, work);
        t.in_pool(key);
        let blocks: Vec<_> = (0..4).map(|_| t.alloc(128 * MIB, work)).collect();
        t.free_all(blocks);
        t.finish()
    };
    assert_eq!(said(&run((0, 1)), "private_pools").bytes, 512 * MIB);
    silent(&run((0, 0)), "private_pools");
}

/// Graphs captured one after the other, each with its own pool, are not a leak and are reported as graphs.
#[test]
fn many_captured_graphs_are_no_leak() {
    let run = |graphs: u64, shares: bool| {
        let mut t = Tape::new();
        let weights = t.stack(&[("/home/me/serve.py", "build")]);
        let outputs = t.stack(&[("/home/me/serve.py", "capture"), ("/home/me/serve.py", "main")]);
        let inner = t.stack(&[("/home/me/model.py", "forward"), ("/home/me/serve.py", "capture")]);
        t.alloc(200 * MIB, weights);
        for graph in 0..graphs {
            t.in_pool((if shares { 1 } else { graph + 1 }, 0));
            t.alloc(40 * MIB, outputs);
            for _ in 0..4 {
                t.brief(12 * MIB, inner);
            }
        }
        t.finish()
    };
    for graphs in [20, 24, 100] {
        let recording = run(graphs, false);
        let all = findings(&recording);
        assert_eq!(all[0].rule, "private_pools", "{all:?}");
        let held = format!("{graphs}\u{a0}private pools hold");
        assert!(all[0].sentence.starts_with(&held), "{}", all[0].sentence);
        silent(&recording, "leak");
    }
    // Memory kept by graphs is theirs. Neither empty_cache nor other lengths would help.
    let mut t = Tape::new();
    let inner = t.stack(&[("/home/me/model.py", "forward")]);
    for graph in 0..100 {
        t.in_pool((graph + 1, 0));
        t.brief((100 + 2 * graph) * MIB, inner);
    }
    let recording = t.finish();
    assert_eq!(said(&recording, "private_pools").bytes, (0..100).map(|graph| (100 + 2 * graph) * MIB).sum::<u64>());
    silent(&recording, "idle_cache");
    silent(&recording, "variable_sizes");
    // A few graphs, or all in one pool: no finding and no leak.
    for recording in [run(3, false), run(24, true)] {
        silent(&recording, "private_pools");
        silent(&recording, "leak");
    }
    // The same memory outside a capture grows.
    let mut t = Tape::new();
    let keep = t.stack(&[("/home/me/serve.py", "keep")]);
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    for _ in 0..24 {
        t.alloc(40 * MIB, keep);
        for _ in 0..4 {
            t.brief(12 * MIB, work);
        }
    }
    said(&t.finish(), "leak");
}

#[test]
fn frees_that_wait_for_another_stream() {
    let run = |waits: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let guarded: Vec<_> = (0..4).map(|_| t.alloc(40 * MIB, work)).collect();
        for &h in &guarded {
            t.ask_to_free(h);
            if !waits {
                t.complete(h);
            }
        }
        for _ in 0..10 {
            t.brief(12 * MIB, work);
        }
        if waits {
            guarded.into_iter().for_each(|h| t.complete(h));
        }
        t.finish()
    };
    assert_eq!(said(&run(true), "pending_free").bytes, 160 * MIB);
    silent(&run(false), "pending_free");
}

#[test]
fn a_cache_emptied_in_every_step() {
    let run = |empties: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for _ in 0..10 {
            for size in [20, 24, 28, 32, 36] {
                t.brief(size * MIB, work);
            }
            if empties {
                t.empty_cache();
            }
            t.step();
        }
        t.finish()
    };
    let said_of = said(&run(true), "cache_flushes");
    assert!(
        said_of.sentence.replace('\u{a0}', " ").contains("10 times") && said_of.advice.contains("does not tell which"),
        "{said_of:?}"
    );
    silent(&run(false), "cache_flushes");
}

#[test]
fn the_line_that_empties_the_cache_is_named() {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let empties = t.stack(&[("site-packages/torch/cuda/memory.py", "empty_cache"), ("/home/me/compress.py", "compress")]);
    for _ in 0..10 {
        for size in [20, 24, 28] {
            t.brief(size * MIB, work);
        }
        t.empty_cache_at(empties);
        t.step();
    }
    let found = said(&t.finish(), "cache_flushes");
    let sentence = found.sentence.replace('\u{a0}', " ");
    let begins = "compress.py:11 (compress) calls torch.cuda.empty_cache() 10 times, once a step: 720 MiB";
    assert!(sentence.starts_with(begins), "{sentence}");
    assert!(found.advice.starts_with("Remove the call") && !found.advice.contains("tenth"), "{}", found.advice);
}

/// A single request that found no room is reported, with what was released for it. Memory that the program itself released does
/// not count.
#[test]
fn a_single_request_that_finds_no_room_is_told() {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let empties = t.stack(&[("site-packages/torch/cuda/memory.py", "empty_cache"), ("/home/me/model.py", "main")]);
    t.brief(100 * MIB, work);
    t.empty_cache_at(empties);
    t.alloc(400 * MIB, work);
    let free: Vec<_> = (0..3).map(|_| t.alloc(100 * MIB, work)).collect();
    t.free_all(free);
    t.empty_cache();
    t.alloc(350 * MIB, work);
    let recording = t.finish();
    let found = findings(&recording);
    assert!(found.iter().all(|f| f.rule != "cache_flushes"), "one cause of two is not most of them: {found:?}");
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    t.alloc(400 * MIB, work);
    let free: Vec<_> = (0..3).map(|_| t.alloc(100 * MIB, work)).collect();
    t.free_all(free);
    t.empty_cache();
    t.alloc(350 * MIB, work);
    let sentence = said(&t.finish(), "cache_flushes").sentence.replace('\u{a0}', " ");
    assert!(sentence.starts_with("Once a request found no room") && sentence.contains("300 MiB"), "{sentence}");
}

#[test]
fn a_cache_that_is_emptied_for_a_request_is_not_the_programs_doing() {
    let mut t = Tape::new();
    let work = t.stack(&[("/home/me/model.py", "forward")]);
    let held = t.alloc(400 * MIB, work);
    // Under a cap of about 510 MiB, each size finds no room until the previous free segment is released.
    let other = t.segment(20 * MIB);
    t.place(other, 0, MIB, work);
    for i in 0..10 {
        // Each is larger than the free segment of the previous one.
        let h = t.alloc((70 + 2 * i) * MIB, work);
        for _ in 0..3 {
            let small = t.place(other, 4 * MIB, MIB, work);
            t.free(small);
        }
        t.free(h);
        t.empty_cache();
    }
    t.free(held);
    let found = said(&t.finish(), "cache_flushes");
    assert!(found.sentence.contains("a request found no room"), "{}", found.sentence);
    assert!(found.advice.contains("smaller batch") && !found.advice.contains("empty_cache"), "{}", found.advice);
}

#[test]
fn memory_held_and_not_used_any_more() {
    let run = |goes_on: bool| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let large: Vec<_> = (0..4).map(|_| t.alloc(512 * MIB, work)).collect();
        t.free_all(large);
        for _ in 0..60 {
            let h = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            let i = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            let j = t.alloc(if goes_on { 512 } else { 12 } * MIB, work);
            t.free_all([h, i, j]);
        }
        t.finish()
    };
    said(&run(false), "idle_cache");
    silent(&run(true), "idle_cache");
}

#[test]
fn a_cache_of_keys_and_values_taken_at_the_start() {
    let run = |blocks: u64| {
        let mut t = Tape::new();
        let cache = t.stack(&[("/srv/engine.py", "allocate_kv_cache")]);
        let work = t.stack(&[("/srv/model.py", "forward")]);
        for _ in 0..blocks {
            t.alloc(128 * MIB, cache);
        }
        for _ in 0..300 {
            t.brief(64 * MIB, work);
        }
        t.finish()
    };
    assert_eq!(said(&run(32), "preallocated_cache").bytes, 4 * GIB);
    silent(&run(4), "preallocated_cache");
}

#[test]
fn blocks_larger_than_what_was_asked_for() {
    let run = |asked: u64| {
        let mut t = Tape::new();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        // Remainders up to 1 MiB are not split off: 11 MiB live in segments of 12 MiB.
        for _ in 0..1200 {
            let segment = t.segment(12 * MIB);
            t.place(segment, 0, asked, work);
        }
        let mut r = t.finish();
        // The block is the whole segment, as in PyTorch.
        let device = &mut r.devices[0];
        let holes: Vec<u64> = device.blocks.iter().map(|b| b.size).collect();
        if holes.contains(&(12 * MIB - asked)) {
            device.blocks.retain(|b| b.size == asked);
            for (i, (block, segment)) in device.blocks.iter_mut().zip(&mut device.segments).enumerate() {
                block.size = 12 * MIB;
                segment.blocks = i as u32..i as u32 + 1;
            }
        }
        r
    };
    let found = said(&run(11 * MIB - 512 * 1024), "rounding");
    assert_eq!(found.bytes, 1200 * (MIB + 512 * 1024));
    silent(&run(12 * MIB), "rounding");
}

#[test]
fn a_workspace_for_every_stream() {
    let run = |streams: u64| {
        let mut t = Tape::new();
        for stream in 0..streams {
            t.on_stream(stream);
            t.alloc(32 * MIB, StackId::NONE);
        }
        t.on_stream(0);
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        t.brief(100 * MIB, work);
        t.finish()
    };
    assert_eq!(said(&run(4), "workspaces").bytes, 128 * MIB);
    silent(&run(2), "workspaces");
}

#[test]
fn a_threshold_that_nothing_acts_on() {
    let run = |conf: &str, limit| {
        let mut t = Tape::new();
        t.device.settings.conf = AllocConf::parse(conf).unwrap();
        t.device.limit = limit;
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        for size in [40, 60, 80] {
            t.brief(size * MIB, work);
        }
        t.finish()
    };
    assert_eq!(said(&run("garbage_collection_threshold:0.8", None), "idle_threshold").bytes, 100 * MIB);
    silent(&run("", None), "idle_threshold");
    silent(&run("garbage_collection_threshold:0.8", Some(10 * GIB)), "idle_threshold");
}
