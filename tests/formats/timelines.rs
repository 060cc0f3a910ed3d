//! Memory timelines of the corpus: the plotted and the raw form of one run agree with each other, and with PyTorch's peak.

use crate::shared::{corpus, open};
use vramscope_core::model::{Action, Format, LoadWarning, WarningKind};

#[test]
fn plotted_and_raw_timelines_agree() {
    let Some(dir) = corpus() else { return };
    for (name, separator) in [("profiler/gpt_train", "."), ("profiler/resnet", "."), ("versions/torch2.15.0", "_")] {
        let open = |suffix: &str| {
            let path = dir.join(format!("{name}{separator}memory_timeline{suffix}"));
            open(&path)
        };
        let plot = open(".json");
        let raw = open(".raw.json.gz");
        assert_eq!(plot.source.format, Format::MemoryTimeline);
        // The raw form has no addresses and a warning about that. Nothing else is unusual.
        let is_expected = |w: &LoadWarning| w.kind == WarningKind::NoAddresses;
        assert!(plot.report.warnings.is_empty() && raw.report.warnings.iter().all(is_expected), "{:?}", raw.report.warnings);
        let (plot, raw) = (&plot.devices[0], &raw.devices[0]);
        // The plot has every state of the raw rows. PyTorch divides nanoseconds in floating point there, so a row may be one
        // microsecond off, and instants within one microsecond share a row.
        let mut states = raw.bands.time_us.iter().zip(&raw.bands.bytes);
        for (i, (&time, row)) in plot.bands.time_us.iter().zip(&plot.bands.bytes).enumerate() {
            if plot.bands.time_us.get(i + 1) == Some(&time) {
                continue;
            }
            let found = states.find(|&(_, state)| state == row);
            assert!(found.is_some_and(|(&t, _)| (t - time).abs() <= 1), "{name}: row {i}: {row:?} {found:?}");
        }
        // Replaying the allocations gives the sums.
        let (mut sum, mut peak) = (0i64, 0i64);
        for i in 0..raw.events.len() {
            match raw.events.action[i] {
                Action::Alloc => sum += raw.events.size[i] as i64,
                Action::FreeCompleted => sum -= raw.events.size[i] as i64,
                _ => {}
            }
            peak = peak.max(sum);
        }
        assert_eq!(sum as u64, raw.bands.bytes.last().unwrap().iter().sum::<u64>());
        assert_eq!(peak as u64, plot.bands.peak().unwrap().1);
        let stats = dir.join(format!("{name}.memory_stats.json"));
        if name.starts_with("profiler") {
            let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
            assert_eq!(stats["allocated_bytes.all.peak"].as_u64(), Some(peak as u64));
        }
        println!("{name}: {} rows, {} events, peak {peak}", plot.bands.len(), raw.events.len());
    }
}
