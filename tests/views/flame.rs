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
