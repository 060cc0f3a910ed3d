//! OOM autopsy and Findings in pictures, and under the pointer.
use crate::alone::{alone, has_adapter, sample};
use egui::{Key, Theme};
use egui_kittest::SnapshotResults;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::action::Action;
use vramscope::app::command::Command;
use vramscope::app::views::ViewKind;
use vramscope::app::workspace::Workspace;

#[test]
fn pictures_in_both_themes() {
    if !has_adapter() {
        return;
    }
    let mut results = SnapshotResults::new();
    for (theme, file, name) in
        [(Theme::Dark, "fragment_oom.pickle", "autopsy_dark"), (Theme::Light, "gpt_train.pickle", "autopsy_peak_light")]
    {
        let mut h = alone(&sample(file), ViewKind::Autopsy, theme, [1120.0, 640.0], true, |_| {});
        h.snapshot(name);
        results.extend_harness(&mut h);
    }
    let data = sample("kv_decode_oom.pickle.gz");
    for (theme, name) in [(Theme::Dark, "findings_dark"), (Theme::Light, "findings_light")] {
        let mut h = alone(&data, ViewKind::Findings, theme, [300.0, 620.0], true, |_| {});
        h.snapshot(name);
        results.extend_harness(&mut h);
    }
}

#[test]
fn settings_are_copied_and_opened_in_what_if() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = alone(&data, ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], false, |_| {});
    h.get_by_label("Copy PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True").click();
    h.run_steps(2);
    h.get_by_label("expandable + power2:8").click();
    h.run_steps(2);
    h.get_by_label("Open in What-if").click();
    h.run_steps(2);
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::Copy("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned())), "{asked:?}");
    let chosen = "expandable_segments:True,roundup_power2_divisions:8".to_owned();
    assert!(asked.contains(&Action::TrySettings(chosen)), "{asked:?}");
}

#[test]
fn a_cap_that_the_user_knows_changes_the_way_out() {
    let data = sample("fragment_oom.pickle");
    let mut h = alone(&data, ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], false, |_| {});
    let way_out = |h: &egui_kittest::Harness<'_, crate::alone::Alone>, blocks: &str| {
        let text = format!("{:?}", h.get_by_label_contains("Cheapest way out"));
        // Figures and their units are kept together.
        text.replace("\\u{a0}", " ").replace(vramscope::units::NBSP, " ").contains(&format!("Without {blocks} live blocks"))
    };
    assert!(way_out(&h, "18"));
    h.get_by_label("Cap of this process").click();
    h.run_steps(2);
    h.get_by_label("Cap of this process").type_text("1760 MiB");
    h.key_press(Key::Enter);
    h.run_steps(4);
    // The figures of the run this was recorded from: its cap was 1,760 MiB.
    assert!(way_out(&h, "8"), "the way out follows the cap");
    h.get_by_label("By stack").click();
    h.run_steps(2);
    h.get_by_label("By category").click();
    h.run_steps(2);
    assert!(h.query_all_by_label("other").next().is_some(), "no stacks: everything is other");
}

#[test]
fn a_failure_offers_autopsy_and_what_if() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = alone(&data, ViewKind::Findings, Theme::Dark, [320.0, 800.0], false, |_| {});
    h.get_by_label("What-if").click();
    h.run_steps(2);
    h.get_by_label("Open autopsy").click();
    h.run_steps(2);
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::TrySettings("expandable_segments:True".to_owned())), "{asked:?}");
    assert!(asked.contains(&Action::Run(Command::Workspace(Workspace::Autopsy))), "{asked:?}");
    assert!(asked.contains(&Action::GoTo(27_908)), "{asked:?}");
}
