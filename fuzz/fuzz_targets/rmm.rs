//! Fuzzes RMM logs. The result must be consistent or an error.
//!
//! `cargo +nightly fuzz run rmm` from the repository's root; the seeds are in `fuzz/corpus/rmm`.
#![no_main]

#[allow(dead_code)] // Each target feeds one format.
#[path = "../../tests/formats/harness.rs"]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    harness::feed(harness::Target::Rmm, bytes);
});
