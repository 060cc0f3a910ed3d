//! The explanation of a message agrees with the autopsy of the snapshot of the same failure.

use crate::shared::{corpus, tables};
use vramscope_core::diagnose::explain::{Verdict, explain};
use vramscope_core::diagnose::oom::examine;
use vramscope_core::formats::{self, oom_message::parse};
use vramscope_core::inference::Caps;
use vramscope_core::model::Progress;

/// Failures on an H200 under a limit, with the verdict of each autopsy.
#[test]
fn quoted_messages_are_judged_as_their_snapshots() {
    let text = |asked: &str, free: &str, limit: &str, live: &str, holes: &str| {
        format!(
            "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 139.80 GiB of which {free} is free. {limit} allowed; \
             Of the allocated memory {live} is allocated by PyTorch, and {holes} is reserved by PyTorch but unallocated."
        )
    };
    for (message, verdict) in [
        // gpt_train with default settings: 15 holes of at most 8 MiB.
        (text("128.00 MiB", "131.92 GiB", "1.71 GiB", "1.53 GiB", "62.40 MiB"), Verdict::Cap),
        // split_fragment with expandable segments: room and holes together are enough, holes alone are not.
        (text("76.00 MiB", "133.00 GiB", "238.00 MiB", "145.20 MiB", "74.80 MiB"), Verdict::Cap),
        // fragment_oom: holes alone are enough.
        (text("500.00 MiB", "133.79 GiB", "1.61 GiB", "990.02 MiB", "609.98 MiB"), Verdict::Fragmentation),
    ] {
        let e = explain(&parse(&message).unwrap());
        assert_eq!(e.verdict, verdict, "{}", e.sentence);
        let first = e.remedies[0].sentence.as_str();
        let advises_joining = e.remedies.iter().any(|r| r.sentence.contains("expandable_segments:True"));
        assert_eq!(first.starts_with("Raise the limit"), verdict == Verdict::Cap, "{first}");
        assert_eq!(advises_joining, verdict == Verdict::Fragmentation, "{:?}", e.remedies);
    }
}

#[test]
fn every_message_of_the_corpus_is_judged_as_its_snapshot() {
    let Some(dir) = corpus() else { return };
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("whatif_truth.json")).unwrap()).unwrap();
    let (mut pairs, mut certain) = (0, 0);
    for row in rows.as_array().unwrap() {
        let Some(text) = row["oom_message"].as_str() else { continue };
        let part = |key: &str| row[key].as_str().unwrap().to_owned();
        let name = format!("whatif/{}.{}.{}.at_oom.pickle", part("workload"), part("conf_label"), part("limit_label"));
        let Ok(recording) = formats::open(&dir.join(&name), &Progress::new()) else { continue };
        let device = &recording.devices[0];
        let tables = tables(device);
        let caps = Caps::of(device, None, &Progress::new()).unwrap();
        let event = device.events.len() as u32 - 1;
        let state = tables.states.at(device, &tables.lifetimes, event);
        let autopsy = examine(device, &tables, event, &state, &caps).unwrap();
        let e = explain(&parse(text).unwrap());
        assert_eq!(e.verdict, autopsy.verdict, "{name}: {}", e.sentence);
        pairs += 1;
        certain += usize::from(e.certain);
    }
    assert!(pairs >= 60 && certain * 2 > pairs, "{pairs} pairs, {certain} certain");
}
