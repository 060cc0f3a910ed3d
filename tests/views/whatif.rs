//! What-if: pictures, and figures compared with the command's.
use crate::alone::{alone, sample};
use crate::hand::{enter, press};
use crate::pictures::Pictures;
use egui::Theme;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::state::ViewKind;
use vramscope_core::inference::whatif::{Question, WhatIf};
use vramscope_core::model::Progress;
use vramscope_core::units::SizeColumn;

#[test]
fn pictures_in_both_themes() {
    let mut pictures = Pictures::new();
    for (theme, size, name) in [(Theme::Dark, [1280.0, 704.0], "whatif_dark"), (Theme::Light, [1024.0, 540.0], "whatif_light")] {
        pictures.compare(name, alone(&sample("fragment_oom.pickle"), ViewKind::WhatIf, theme, size, |_| {}));
    }
}

#[test]
fn a_new_setting_is_run_and_shows_the_figures_of_the_model() {
    let data = sample("fragment_oom.pickle");
    let mut h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], |_| {});
    let text = "max_split_size_mb:200";
    press(&mut h, "PYTORCH_CUDA_ALLOC_CONF");
    h.get_by_label("PYTORCH_CUDA_ALLOC_CONF").type_text(text);
    h.run_steps(2);
    press(&mut h, "Add setting");
    assert!(h.query_all_by_label(text).next().is_some(), "the setting has a row");
    let progress = Progress::new();
    let whatif = WhatIf::new(data.device(), None, &progress).expect("not cancelled");
    let question = Question::parse(text, None).expect("a setting");
    let answer = whatif.ask(&question, 0, &progress).expect("not cancelled");
    let peak = SizeColumn::default().figure(answer.row.peak_reserved_bytes);
    assert!(
        h.query_all_by_label_contains("peak reserved: ").any(|n| format!("{n:?}").contains(&peak)),
        "the selected setting shows {peak}"
    );
}

#[test]
fn settings_that_another_view_asks_for_are_run_and_selected() {
    let ask = |link: &mut vramscope::app::state::shared::SharedViewState| {
        link.to_try = vec!["max_split_size_mb:96".to_owned(), "max_split_size_mb:64".to_owned()];
    };
    let h = alone(&sample("fragment_oom.pickle"), ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], ask);
    assert!(h.query_all_by_label_contains("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64").next().is_some(), "selected");
    assert_eq!(h.query_all_by_label("Plot max_split_size_mb:64").count(), 1, "one row, not two");
}

#[test]
fn a_run_opens_as_a_recording_and_an_added_setting_can_be_taken_away() {
    let ask = |link: &mut vramscope::app::state::shared::SharedViewState| link.to_try = vec!["max_split_size_mb:96".to_owned()];
    let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], ask);
    press(&mut h, "Open as recording");
    let opened = h.state().asked.iter().find_map(|a| match a {
        vramscope::app::state::action::Action::OpenSimulation { conf, limit } => Some((conf.clone(), *limit)),
        _ => None,
    });
    let (conf, limit) = opened.expect("it asks for the run");
    assert_eq!(conf, "max_split_size_mb:96");
    assert!(limit.is_some(), "under the limit in force");
    press(&mut h, "Remove max_split_size_mb:96");
    assert!(h.query_all_by_label("Plot max_split_size_mb:96").next().is_none(), "its row is gone");
}

#[test]
fn what_is_said_of_a_limit_chosen_by_hand_is_true_of_it() {
    let ask = |link: &mut vramscope::app::state::shared::SharedViewState| link.to_try = vec!["max_split_size_mb:64".to_owned()];
    let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::WhatIf, Theme::Dark, [1600.0, 1600.0], ask);
    assert!(h.query_all_by_label_contains("1.56 to 2.05").next().is_some(), "the recording's own limit");
    enter(&mut h, "Limit", "1412 MiB");
    let has = |part: &str| h.query_all_by_label_contains(part).next().is_some();
    assert!(has("Fails after 3") && has("You chose a limit of 1,412"), "the limit in force");
    assert!(!has("1.56 to 2.05"), "nothing of the recording's own limit");
    // Statements about the run without a limit name that run.
    assert!(has("Served without a limit:") && has("The request of event 176") && !has("Served under"));
}

#[test]
fn the_best_setting_is_shown_first_and_is_the_one_that_findings_recommend() {
    for name in ["fragment_oom.pickle", "expandable_oom.pickle"] {
        let data = sample(name);
        let h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], |_| {});
        let helped = data.helped(&Progress::new()).expect("not cancelled");
        let first = helped.remedies.passing().next().expect("one that passes");
        let line = if first.conf.is_empty() {
            "Leave PYTORCH_CUDA_ALLOC_CONF unset".to_owned()
        } else {
            format!("PYTORCH_CUDA_ALLOC_CONF={}", first.conf)
        };
        assert!(h.query_all_by_label_contains(&line).next().is_some(), "{name}: {line}");
    }
}

#[test]
fn an_error_is_told_and_moves_nothing() {
    let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], |_| {});
    let row = "Plot expandable_segments:True";
    let before = h.get_by_label(row).rect();
    enter(&mut h, "Limit", "60");
    assert!(h.query_all_by_label_contains("60 without a unit is 60 bytes").next().is_some());
    assert_eq!(h.get_by_label(row).rect(), before);
    enter(&mut h, "PYTORCH_CUDA_ALLOC_CONF", "banana:True");
    assert!(h.query_all_by_label_contains("PyTorch would refuse this").next().is_some());
    assert_eq!(h.get_by_label(row).rect(), before);
    // Decimal units are parsed as such.
    enter(&mut h, "Limit", "60GB");
    assert!(h.query_all_by_label_contains("Limit 55.88").next().is_some(), "in binary units");
}

#[test]
fn the_recording_itself_is_what_settings_are_held_against() {
    let data = sample("fragment_oom.pickle");
    let h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], |_| {});
    let peak = data.tables.curves.peak(vramscope_core::tables::Quantity::Reserved).0;
    let shown = format!("peak reserved: {}", SizeColumn::default().figure(peak));
    assert!(h.query_all_by_label_contains(&shown).next().is_some(), "{shown}");
}

#[test]
fn no_setting_is_best_where_none_helps() {
    let data = sample("cuda_graph.pickle");
    let h = alone(&data, ViewKind::WhatIf, Theme::Dark, [1600.0, 880.0], |_| {});
    assert!(h.query_all_by_label_contains("No setting helps here").next().is_some());
    assert!(h.query_all_by_label_contains("PYTORCH_CUDA_ALLOC_CONF=").next().is_none(), "and no line is offered");
}
