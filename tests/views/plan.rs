//! Plan: pictures, and pointer and key input: adding recordings, choosing sizes and changes, refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::alone::{Alone, alone, recorded, sample};
use crate::hand::{click, enter, press, press_key};
use crate::pictures::Pictures;
use egui::accesskit::Role;
use egui::{Key, Theme};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::data::device::DeviceData;
use vramscope::app::state::{Action, Command, PlannedRun, ViewKind, Workspace};
use vramscope_core::model::Format;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan").join(name)
}

/// A small GPT at one batch, opened from its file.
fn gpt(name: &str) -> Arc<DeviceData> {
    recorded(&file(name).display().to_string())
}

fn view(data: &Arc<DeviceData>, theme: Theme, size: [f32; 2]) -> Harness<'static, Alone> {
    alone(data, ViewKind::Plan, theme, size, |_| {})
}

fn says(h: &Harness<'_, Alone>, part: &str) -> bool {
    h.query_all_by_label_contains(part).next().is_some()
}

/// The plan of two recordings under a cap.
fn two(theme: Theme, size: [f32; 2]) -> Harness<'static, Alone> {
    let mut h = view(&gpt("gpt.b4.pickle.zst"), theme, size);
    press(&mut h, "gpt.b8.pickle.zst");
    enter(&mut h, "Cap", "4 GiB");
    h
}

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    pictures.compare("plan_dark", two(Theme::Dark, [1280.0, 760.0]));
    pictures.compare("plan_narrow_light", two(Theme::Light, [1024.0, 590.0]));
}

/// docs/PLAN.md has the measurements for this program under this cap: 14 fits.
#[test]
fn two_recordings_tell_what_fits_and_what_would_let_more_fit() {
    let mut h = two(Theme::Dark, [1600.0, 1400.0]);
    assert!(says(&h, "Batch 14 fits in 4"), "the answer");
    assert!(says(&h, "15 first fails at event"), "and why no more");
    // Its changes in the chosen order. Those that alone would not let it fit are shown on request.
    assert!(!says(&h, "max_split_size_mb:512: peak"), "it lowers nothing here");
    h.get_by_label_contains("that alone would not").click();
    h.run_steps(4);
    let height = |h: &Harness<'_, Alone>, row: &str| h.query_by_label_contains(row).map_or(f32::MAX, |row| row.rect().top());
    let (setting, lora) = ("max_split_size_mb:512: peak", "LoRA of rank 16: peak");
    assert!(height(&h, lora) < height(&h, setting), "LoRA saves more");
    press(&mut h, "order");
    press(&mut h, "price");
    assert!(height(&h, setting) < height(&h, lora), "and costs more");
    // The slider moves by keys and snaps to sizes.
    let at = |h: &Harness<'_, Alone>| h.get_by_role(Role::Slider).accesskit_node().numeric_value().map(|v| v as u64);
    assert_eq!(at(&h), Some(14), "the largest that fits is shown first");
    h.get_by_role(Role::Slider).focus();
    h.run_steps(2);
    for (key, modifiers, to) in [
        (Key::ArrowLeft, egui::Modifiers::NONE, 13),
        (Key::ArrowLeft, egui::Modifiers::SHIFT, 5),
        (Key::ArrowRight, egui::Modifiers::NONE, 6),
        (Key::W, egui::Modifiers::NONE, 16),
        (Key::L, egui::Modifiers::NONE, 14),
        (Key::Home, egui::Modifiers::NONE, 1),
    ] {
        h.key_press_modifiers(modifiers, key);
        h.run_steps(4);
        assert_eq!(at(&h), Some(to), "{key:?}");
        assert!(says(&h, &format!("At batch {to}")), "the figures follow");
    }
    // A size that does not fit.
    enter(&mut h, "Wanted", "24");
    assert!(says(&h, "24 would fit"), "what makes the wanted size fit");
    let best = h.query_all_by_label_contains(", fits").count();
    assert!(best > 0, "rows that fit");
}

/// The arrow keys move the size without a click.
#[test]
fn the_arrows_move_the_size_as_soon_as_the_view_is_there() {
    let mut h = view(&gpt("gpt.b4.pickle.zst"), Theme::Dark, [1600.0, 880.0]);
    let at = |h: &Harness<'_, Alone>| h.get_by_role(Role::Slider).accesskit_node().numeric_value().map(|v| v as u64);
    let before = at(&h).expect("a size");
    press_key(&mut h, Key::ArrowLeft);
    assert_eq!(at(&h), Some(before - 1));
    // A focused text field keeps its keys.
    h.get_by_label("Wanted").focus();
    h.run_steps(2);
    press_key(&mut h, Key::ArrowLeft);
    assert_eq!(at(&h), Some(before - 1));
}

#[test]
fn a_program_that_failed_without_steps_is_sent_to_what_if() {
    let mut h = view(&sample("serve_oom.pickle.gz"), Theme::Dark, [1600.0, 880.0]);
    assert!(says(&h, "fails without a training step that repeats"), "why there is no plan");
    press(&mut h, "Open What-if");
    let runs = |a: &Action| matches!(a, Action::Run(Command::Workspace(Workspace::WhatIf)));
    assert!(h.state().asked.iter().any(runs), "{:?}", h.state().asked);
}

#[test]
fn a_row_shows_its_code_for_each_library_and_the_run_opens_as_a_recording() {
    let mut h = two(Theme::Dark, [1600.0, 1400.0]);
    h.get_by_label_contains("optimizer state in 8 bits").click();
    h.run_steps(4);
    assert!(says(&h, "optim.AdamW8bit("), "PyTorch");
    press(&mut h, "HF Trainer");
    assert!(says(&h, "adamw_bnb_8bit"), "HF Trainer");
    press(&mut h, "Open as recording");
    let run: Option<PlannedRun> = h.state().asked.iter().find_map(|a| match a {
        Action::OpenPlanned(run) => Some(PlannedRun::clone(run)),
        _ => None,
    });
    let run = run.expect("it asks for the run");
    assert_eq!((run.title.as_str(), run.changes.as_str()), ("Plan: batch 14, 8bit", "8bit"));
    let recording = run.plan.recording(&run.size, &run.setting, &[]).expect("a run");
    assert_eq!(recording.source.format, Format::Plan, "marked as planned");
    assert!(recording.devices[0].events.last_oom().is_none(), "14 fits");
}

#[test]
fn rows_are_put_together_with_ctrl() {
    let mut h = two(Theme::Dark, [1600.0, 2000.0]);
    enter(&mut h, "Wanted", "24");
    h.get_by_label_contains("that alone would not").click();
    h.run_steps(4);
    h.get_by_label_contains("optimizer state in 8 bits").click();
    h.run_steps(4);
    let add = |h: &mut Harness<'static, Alone>, row: &str| {
        h.get_by_label_contains(row).click_modifiers(egui::Modifiers::COMMAND);
        h.run_steps(6);
    };
    add(&mut h, "logits and loss in 8 chunks: peak");
    assert!(says(&h, "logits and loss in 8 chunks; optimizer state in 8 bits: peak"), "a row of both");
    assert!(says(&h, "optim.AdamW8bit(") && says(&h, "h.chunk(8)"), "and the lines of both");
    assert!(says(&h, "optimizer state in 8 bits: peak") && says(&h, "part of the combination"), "their rows are marked");
    add(&mut h, "SGD without momentum: peak");
    assert!(says(&h, "logits and loss in 8 chunks; SGD without momentum: peak"), "one optimizer takes the other's place");
    press(&mut h, "Open as recording");
    let changes = h.state().asked.iter().find_map(|a| match a {
        Action::OpenPlanned(run) => Some(run.changes.clone()),
        _ => None,
    });
    assert_eq!(changes.as_deref(), Some("chunks:8+sgd"));
}

/// A click on a row's check box does the same as Ctrl + click on the row.
#[test]
fn rows_are_put_together_by_their_boxes() {
    let mut h = two(Theme::Dark, [1600.0, 2000.0]);
    enter(&mut h, "Wanted", "24");
    h.get_by_label_contains("that alone would not").click();
    h.run_steps(4);
    for row in ["optimizer state in 8 bits: peak", "logits and loss in 8 chunks: peak"] {
        let rect = h.get_by_label_contains(row).rect();
        let pos = egui::pos2(rect.left() + 20.0, rect.center().y);
        click(&mut h, pos);
    }
    assert!(says(&h, "logits and loss in 8 chunks; optimizer state in 8 bits: peak"), "a row of both");
}

#[test]
fn one_recording_answers_with_a_span_and_says_how_to_make_it_exact() {
    let mut h = view(&gpt("gpt.b8.pickle.zst"), Theme::Dark, [1600.0, 1400.0]);
    enter(&mut h, "Cap", "4 GiB");
    assert!(says(&h, " to "), "a span");
    assert!(says(&h, ", up to "), "and no bare number");
    assert!(says(&h, "as recorded: peak") && says(&h, ", largest "), "the table has the span too");
    assert!(says(&h, "One recording gives a range") && says(&h, "three steps at batch=4"), "and the way out");
}

#[test]
fn recordings_of_two_programs_are_refused_with_the_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let (first, second) = (dir.path().join("run_b4.pickle.zst"), dir.path().join("run_b8.pickle"));
    std::fs::copy(file("gpt.b4.pickle.zst"), &first).expect("copied");
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/leak.pickle");
    std::fs::copy(other, &second).expect("copied");
    let mut h = view(&recorded(&first.display().to_string()), Theme::Dark, [1600.0, 880.0]);
    press(&mut h, "run_b8.pickle");
    assert!(says(&h, "These are not the same program."));
    assert!(says(&h, "they part where"), "with the place");
    assert!(h.query_all_by_label_contains("asks for").count() >= 2, "what each asks for there");
    press(&mut h, "Use only run_b4.pickle.zst");
    assert!(says(&h, "One recording gives a range"), "and goes on with one");
}

#[test]
fn a_run_of_unknown_size_is_planned_as_it_is_until_the_size_is_typed() {
    let mut h = view(&sample("gpt_train.pickle"), Theme::Dark, [1600.0, 880.0]);
    assert!(says(&h, "This run fits"), "as it is");
    assert!(says(&h, "Which batch was this run at?"), "and what to type");
    enter(&mut h, "The batch of this run", "4");
    assert!(!says(&h, "Which batch was this run at?") && says(&h, "At batch"), "then sizes");
}

/// In the smallest window nothing overlaps, and no important text is cut.
#[test]
fn the_smallest_window_has_the_answer_the_slider_and_the_table() {
    let mut h = two(Theme::Dark, [1024.0, 590.0]);
    for label in ["Batch 14 fits in 4", "Outcome of each size", "as recorded"] {
        let node = h.get_by_label_contains(label);
        let rect = node.rect();
        assert!(rect.left() >= 0.0 && rect.right() <= 1024.0 && rect.bottom() <= 590.0, "{label}: {rect:?}");
    }
    press(&mut h, "Roles and code");
    assert!(says(&h, "per sample") || says(&h, "Memory by role"), "what stands at the right in a wide window");
}

/// From the overview by its link, the slider by keys, and a planned run in its own tab, marked as predicted.
#[test]
fn a_walk_from_the_peak_to_a_planned_run() {
    let mut h = crate::whole::opened(&gpt("gpt.b8.pickle.zst"), Theme::Dark, [1600.0, 1000.0]);
    let front = |h: &crate::whole::Whole| crate::whole::app(h).active_document().map(|d| (d.title.clone(), d.workspace));
    press(&mut h, "What would make it fit?");
    assert_eq!(front(&h).map(|f| f.1), Some(Workspace::Plan));
    let cursor = crate::whole::link(&h).cursor;
    let slider = |h: &crate::whole::Whole| h.get_by_role(Role::Slider).accesskit_node().numeric_value();
    let before = slider(&h).expect("a size");
    h.get_by_role(Role::Slider).focus();
    h.run_steps(3);
    press_key(&mut h, Key::ArrowLeft);
    assert_eq!(slider(&h), Some(before - 1.0));
    assert_eq!(crate::whole::link(&h).cursor, cursor, "the arrow is the slider's while it has the keyboard");
    h.get_by_label("Open as recording").click();
    h.run_steps(8);
    let (title, workspace) = front(&h).expect("a tab");
    assert!(title.starts_with("Plan: batch ") && workspace == Workspace::Overview, "{title}");
    assert!(h.query_all_by_label_contains("predicted, never ran").next().is_some(), "the status bar says so");
    assert!(h.query_all_by_label("What would make it fit?").next().is_none(), "a plan is not planned from");
}

/// The program of this recording caught two failures. Where its size is unknown, the question is what the failed step needs.
#[test]
fn a_caught_failure_is_what_the_plan_is_about() {
    let data = recorded("tests/recordings/kinds/fallback_train.python.pickle.zst");
    let mut h = view(&data, Theme::Dark, [1600.0, 1000.0]);
    assert!(says(&h, "This run does not fit in") && says(&h, "It fails at event 800"), "the failed step leads");
    assert!(says(&h, "What would let this run fit"));
    assert!(!says(&h, "does not fit: peak") && !says(&h, ", does not fit, "), "no row that fails");
    enter(&mut h, "The batch of this run", "8");
    assert!(says(&h, "Step 3 failed: it needed"), "with a size the attempt at another size is left out, and that is said");
}

/// Under a heading that asks for less memory stand rows that need less.
#[test]
fn rows_are_what_the_heading_asks_for() {
    let h = view(&gpt("gpt.b4.pickle.zst"), Theme::Dark, [1600.0, 2000.0]);
    assert!(says(&h, "What would save memory at"));
    let labels: Vec<String> =
        h.query_all_by_label_contains(": peak ").map(|n| n.accesskit_node().label().unwrap_or_default()).collect();
    let peak = |label: &String| {
        let text = label.split(": peak ").nth(1)?.split(',').next()?.replace('\u{a0}', " ");
        vramscope_core::units::Bytes::parse_limit(&text).ok().map(|bytes| bytes.0)
    };
    let own = labels.iter().find(|label| label.starts_with("as recorded")).and_then(peak).expect("the recorded run");
    let others: Vec<&String> = labels.iter().filter(|label| !label.starts_with("as recorded")).collect();
    assert!(!others.is_empty());
    for label in &others {
        assert!(peak(label).is_some_and(|peak| peak < own), "{label}, and as recorded {own}");
    }
}
