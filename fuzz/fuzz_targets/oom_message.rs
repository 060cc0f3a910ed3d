//! Fuzzes error messages and their explanation. The result must be consistent or an error.
//!
//! `cargo +nightly fuzz run oom_message` from the repository's root; the seeds are in `fuzz/corpus/oom_message`.
#![no_main]

#[allow(dead_code)] // Each target feeds one format.
#[path = "../../tests/formats/harness.rs"]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    harness::feed(harness::Target::OomMessage, bytes);
});
