//! PyTorch's counters in the corpus, compared with snapshots taken at the same time.

use crate::shared::{corpus, open};
use vramscope_core::diagnose::stats_check::check_stats;
use vramscope_core::formats::stats;

#[test]
fn snapshots_agree_with_the_counters_beside_them() {
    let Some(dir) = corpus() else { return };
    for (snapshot, counters) in [
        ("profiler/gpt_train.with_trace.pickle", "profiler/gpt_train.memory_stats.json"),
        ("profiler/resnet.with_trace.pickle", "profiler/resnet.memory_stats.json"),
        ("profiler/gpt_train.with_trace.pickle", "profiler/gpt_train.memory_summary.txt"),
        ("profiler/resnet.with_trace.pickle", "profiler/resnet.memory_summary.txt"),
    ] {
        let recording = open(&dir.join(snapshot));
        let text = std::fs::read_to_string(dir.join(counters)).unwrap();
        let stats = stats::parse(&text).unwrap();
        let checks = check_stats(&recording.devices[0], &stats);
        let wrong: Vec<_> = checks.iter().filter(|c| !c.agrees).collect();
        println!("{counters}: {} counters compared, wrong {wrong:?}", checks.len());
        assert!(checks.len() >= 20 && wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
fn summary_and_stats_of_one_moment_agree() {
    let Some(dir) = corpus() else { return };
    for name in ["profiler/gpt_train.", "profiler/resnet.", "versions/torch2.15.0_"] {
        let read = |suffix: &str| stats::parse(&std::fs::read_to_string(dir.join(format!("{name}{suffix}"))).unwrap()).unwrap();
        let (exact, summary) = (read("memory_stats.json"), read("memory_summary.txt"));
        assert_eq!(summary.device, Some(0));
        let mut compared = 0;
        for (key, rounded) in &summary.values {
            let Some(counter) = exact.get(key) else { continue };
            assert!(rounded.admits(counter.value), "{name} {key}: {rounded:?} {counter:?}");
            compared += 1;
        }
        assert!(compared >= 100, "{compared}");
    }
    let host = stats::parse(&std::fs::read_to_string(dir.join("versions/torch2.15.0_host_memory_stats.json")).unwrap()).unwrap();
    assert_eq!(host.kind, stats::StatsKind::Host);
}
