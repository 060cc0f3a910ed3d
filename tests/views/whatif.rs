//! What-if in pictures, and its figures against the command's.
use crate::alone::{alone, has_adapter, sample};
use egui::Theme;
use egui_kittest::SnapshotResults;
use egui_kittest::kittest::Queryable as _;
use vramscope::allocator::whatif::{Question, WhatIf};
use vramscope::app::views::ViewKind;
use vramscope::model::Progress;
use vramscope::units::Bytes;

#[test]
fn pictures_in_both_themes() {
    if !has_adapter() {
        return;
    }
    let data = sample("fragment_oom.pickle");
    let mut results = SnapshotResults::new();
    for (theme, name) in [(Theme::Dark, "dark"), (Theme::Light, "light")] {
        let mut h = alone(&data, ViewKind::WhatIf, theme, [1600.0, 880.0], true, |_| {});
        h.snapshot(format!("whatif_{name}"));
        results.extend_harness(&mut h);
    }
}

#[test]
fn a_new_setting_is_run_and_shows_the_figures_of_the_model() {
    let data = sample("fragment_oom.pickle");
    let mut h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], false, |_| {});
    let text = "max_split_size_mb:200";
    h.get_by_label("PYTORCH_CUDA_ALLOC_CONF").click();
    h.run_steps(2);
    h.get_by_label("PYTORCH_CUDA_ALLOC_CONF").type_text(text);
    h.run_steps(2);
    h.get_by_label("Add setting").click();
    h.run_steps(4);
    assert!(h.query_all_by_label(text).next().is_some(), "the setting has a row");
    let progress = Progress::new();
    let whatif = WhatIf::new(data.device(), None, &progress).expect("not cancelled");
    let question = Question::parse(text, None).expect("a setting");
    let answer = whatif.ask(&question, 0, &progress).expect("not cancelled");
    let peak = Bytes(answer.row.peak_reserved_bytes).mebibytes();
    assert!(
        h.query_all_by_label_contains("peak reserved: ").any(|n| format!("{n:?}").contains(&peak)),
        "the selected setting shows {peak}"
    );
}

#[test]
fn settings_that_another_view_asks_for_are_run_and_selected() {
    let data = sample("fragment_oom.pickle");
    let ask = |link: &mut vramscope::app::cursor::Link| {
        link.to_try = vec!["max_split_size_mb:96".to_owned(), "max_split_size_mb:64".to_owned()];
    };
    let h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], false, ask);
    assert!(h.query_all_by_label_contains("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64").next().is_some(), "selected");
    assert_eq!(h.query_all_by_label("Plot max_split_size_mb:64").count(), 1, "one row, not two");
}

#[test]
fn a_run_opens_as_a_recording_and_an_added_setting_can_be_taken_away() {
    let data = sample("fragment_oom.pickle");
    let ask = |link: &mut vramscope::app::cursor::Link| link.to_try = vec!["max_split_size_mb:96".to_owned()];
    let mut h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], false, ask);
    h.get_by_label("Open as recording").click();
    h.run_steps(3);
    let opened = h.state().asked.iter().find_map(|a| match a {
        vramscope::app::action::Action::OpenSimulation { conf, limit } => Some((conf.clone(), *limit)),
        _ => None,
    });
    let (conf, limit) = opened.expect("it asks for the run");
    assert_eq!(conf, "max_split_size_mb:96");
    assert!(limit.is_some(), "under the limit in force");
    h.get_by_label("Remove max_split_size_mb:96").click();
    h.run_steps(3);
    assert!(h.query_all_by_label("Plot max_split_size_mb:96").next().is_none(), "its row is gone");
}

#[test]
fn the_recording_itself_is_what_settings_are_held_against() {
    let data = sample("fragment_oom.pickle");
    let h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], false, |_| {});
    let peak = data.tables.curves.peak(vramscope::analysis::Quantity::Reserved).0;
    let shown = format!("peak reserved: {}", Bytes(peak).mebibytes());
    assert!(h.query_all_by_label_contains(&shown).next().is_some(), "{shown}");
}
