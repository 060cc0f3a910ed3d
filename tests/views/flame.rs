//! The flame graph in pictures, and its tree, search and zoom.
use crate::alone::{alone, has_adapter, sample};
use egui::Theme;
use egui_kittest::SnapshotResults;
use egui_kittest::kittest::Queryable as _;
use vramscope::analysis::Quantity;
use vramscope::app::views::ViewKind;

const SIZE: [f32; 2] = [900.0, 260.0];

#[test]
fn pictures_in_both_themes() {
    if !has_adapter() {
        return;
    }
    let data = sample("leak.pickle");
    let mut results = SnapshotResults::new();
    for (theme, name) in [(Theme::Dark, "dark"), (Theme::Light, "light")] {
        let mut h = alone(&data, ViewKind::Flame, theme, SIZE, true, |link| link.markers = [Some(400), Some(900)]);
        h.snapshot(format!("flame_compare_{name}"));
        results.extend_harness(&mut h);
    }
}

#[test]
fn the_graph_of_the_cursor_holds_what_is_live_there() {
    let data = sample("gpt_train.pickle");
    let h = alone(&data, ViewKind::Flame, Theme::Dark, SIZE, false, |link| link.cursor = 1500);
    let live = data.tables.curves.at(data.device(), &data.tables.lifetimes, Quantity::Active, 1500);
    let entries = vramscope::analysis::flame::weigh(
        data.device(),
        &data.tables,
        None,
        vramscope::analysis::flame::Measure::LiveAt(1500),
        vramscope::analysis::flame::Size::Block,
    );
    assert_eq!(entries.iter().map(|e| e.weight).sum::<u64>(), live);
    assert!(h.query_by_label("Flame graph").is_some());
}

/// Whatever a root counts is what the curves say, on every bundled sample: at the cursor, at the peak, at the end, and over ranges.
#[test]
fn roots_hold_what_the_curves_say_and_folded_frames_are_counted() {
    use vramscope::analysis::flame::{By, Flame, Measure, Root, Shape, Size, weigh};
    use vramscope::analysis::{LifetimeId, NO_EVENT};
    for name in ["leak.pickle", "gpt_train.pickle", "fragment_oom.pickle", "cuda_graph.pickle", "multi_stream.pickle"] {
        let data = sample(name);
        let (device, tables) = (data.device(), &data.tables);
        let lifetimes = &tables.lifetimes;
        let stacks = &data.recording.stacks;
        let last = device.events.len() as u32 - 1;
        let total = |measure, size, shape| {
            let entries = weigh(device, tables, None, measure, size);
            let flame = Flame::build(stacks, &entries, shape);
            let frames: u64 = entries.iter().map(|e| stacks.frames(e.stack).len() as u64).sum();
            (flame.nodes[0].total, flame.folded_frames, frames)
        };
        let shapes: Vec<Shape> = [Root::Outermost, Root::Innermost]
            .into_iter()
            .flat_map(|root| By::ALL.map(|by| Shape { root, by, folds_framework: root == Root::Innermost }))
            .collect();
        let peak = tables.curves.peak(Quantity::Active).1;
        for event in [0, last / 3, peak, last] {
            for &shape in &shapes {
                let active = tables.curves.at(device, lifetimes, Quantity::Active, event);
                let requested = tables.curves.at(device, lifetimes, Quantity::Requested, event);
                assert_eq!(total(Measure::LiveAt(event), Size::Block, shape).0, active, "{name} {event} {shape:?}");
                assert_eq!(total(Measure::LiveAt(event), Size::Requested, shape).0, requested, "{name} {event}");
            }
        }
        let all = || (0..lifetimes.len() as u32).map(LifetimeId);
        let born = |id| lifetimes.born(id) != NO_EVENT;
        let range = (last / 4, last / 2);
        let within = |event: u32| (range.0..=range.1).contains(&event);
        let sum =
            |passes: &dyn Fn(LifetimeId) -> bool| all().filter(|&id| passes(id)).map(|id| lifetimes.block_size(id)).sum::<u64>();
        let plain = Shape::default();
        let of = |measure| total(measure, Size::Block, plain).0;
        let allocated = sum(&|id| born(id) && within(lifetimes.born(id)));
        assert_eq!(of(Measure::Allocated(range.0, range.1)), allocated, "{name}");
        let churned = sum(&|id| born(id) && within(lifetimes.born(id)) && within(lifetimes.gone(id)));
        assert_eq!(of(Measure::Churn(range.0, range.1)), churned, "{name}");
        assert!(churned <= allocated && allocated <= of(Measure::Allocated(0, last)));
        // Bytes times events within a range is the area under the curve: each instant holds what the curve says after it.
        let short = (last / 3, (last / 3 + 200).min(last));
        let area: u64 = (short.0..short.1).map(|event| tables.curves.at(device, lifetimes, Quantity::Active, event)).sum();
        assert_eq!(of(Measure::BytesTimesLife(short.0, short.1)), area, "{name}");
        // What is folded and what is left are all frames there are.
        let folds = Shape { folds_framework: true, ..plain };
        let (_, folded, frames) = total(Measure::LiveAt(peak), Size::Block, folds);
        let entries = weigh(device, tables, None, Measure::LiveAt(peak), Size::Block);
        let kept: u64 = entries
            .iter()
            .map(|e| {
                let own = Flame::build(stacks, std::slice::from_ref(e), folds);
                own.nodes.iter().filter(|n| matches!(n.what, vramscope::analysis::flame::What::Frame(_))).count() as u64
            })
            .sum();
        assert_eq!(folded + kept, frames, "{name}");
    }
}
