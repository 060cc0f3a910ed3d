//! Any bytes: the registry, the pickle machine and the snapshot reader give a recording that holds together, or an error.
//!
//! `cargo +nightly fuzz run snapshot` from the repository's root; the seeds are in `fuzz/corpus/snapshot`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vramscope::formats;
use vramscope::model::Progress;

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = formats::read(bytes, "fuzz", &Progress::new()) else { return };
    for device in &recording.devices {
        let n = device.events.len();
        assert!(device.events.time_us.len() == n && device.events.stack.len() == n && device.events.pool.len() == n);
        assert!(device.events.notes.iter().all(|note| (note.event as usize) < n));
        assert!(device.events.stack.iter().all(|s| !s.is_some() || (s.0 as usize) < recording.stacks.len()));
        assert!(device.segments.iter().all(|s| s.blocks.end as usize <= device.blocks.len()));
    }
});
