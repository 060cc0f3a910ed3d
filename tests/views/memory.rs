//! The memory view: pictures and pointer actions.

use std::collections::HashMap;

use crate::alone::{alone, recorded, sample};
use crate::hand::{click, move_to, press_role};
use crate::pictures::Pictures;
use crate::whole::{Whole, link, only, opened, send};
use egui::accesskit::Role;
use egui::{Theme, pos2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::state::{Action, ColourBy, ViewKind};
use vramscope_core::anatomy::Which;
use vramscope_core::anatomy::roles::Role as For;
use vramscope_core::model::Action as EventAction;
use vramscope_core::tables::Quantity;
use vramscope_core::units::counted;

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    let (train, serve, fragment) = (sample("gpt_train.pickle"), sample("serve_oom.pickle.gz"), sample("fragment_oom.pickle"));
    let mut picture = |name, data, theme, size| {
        pictures.compare(name, alone(data, ViewKind::Memory, theme, size, |link| link.colour_by = ColourBy::Role));
    };
    picture("memory_dark", &train, Theme::Dark, [288.0, 912.0]);
    picture("memory_oom_dark", &serve, Theme::Dark, [288.0, 1100.0]);
    picture("memory_without_stacks_light", &fragment, Theme::Light, [288.0, 1100.0]);
    picture("memory_wide_dark", &train, Theme::Dark, [480.0, 700.0]);
    picture("memory_narrow_light", &train, Theme::Light, [208.0, 420.0]);
}

/// The Overview for typical recordings: recorded after a warm-up, sharded over two GPUs, compiled, serving with a KV cache, with
/// two models, and without stacks.
#[test]
fn pictures_of_the_overview_of_six_kinds() {
    let mut pictures = Pictures::new();
    for (kind, file, theme, size) in [
        ("lora", "llama_lora.mid.python", Theme::Dark, [1024.0, 590.0]),
        ("fsdp", "fsdp2.start.python", Theme::Light, [1024.0, 590.0]),
        ("compiled", "compiled_gpt.start.python", Theme::Dark, [1024.0, 590.0]),
        ("server", "leak_server_kv.healthy.python", Theme::Light, [1024.0, 590.0]),
        ("gan", "gan.mid.python", Theme::Dark, [1024.0, 700.0]),
        ("no_stacks", "leak_batches.healthy.none", Theme::Light, [1024.0, 700.0]),
    ] {
        let data = recorded(&format!("tests/recordings/{file}.pickle.zst"));
        pictures.compare(&format!("overview_{kind}"), opened(&data, theme, size));
    }
}

/// Visible rows by name (the text before the colon).
fn rows(h: &Whole) -> HashMap<String, egui::Rect> {
    let named = h.get_all_by_role(Role::ListItem).filter_map(|n| {
        let label = n.accesskit_node().label().unwrap_or_default();
        // Rows of roles have a share. The table below has groups of the same names.
        let (name, said) = label.split_once(": ")?;
        Some((if said.ends_with('%') { format!("role {name}") } else { name.to_owned() }, n.rect()))
    });
    named.collect()
}

#[test]
fn a_recording_opens_at_its_peak_in_the_colours_of_roles() {
    let data = sample("gpt_train.pickle");
    let h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    let peak = data.tables.curves.peak(Quantity::Active).1;
    assert_eq!((link(&h).cursor, link(&h).colour_by), (peak, ColourBy::Role));
    assert!(h.query_by_label("Memory by role").is_some());
    let said = h.get_by_label_contains("at the peak,").accesskit_node().value().unwrap_or_default();
    assert!(said.contains(" at the peak,") && said.contains("in the "), "what the program did: {said}");
    // No roles are known here, so colouring by role would be all grey.
    let h = opened(&sample("fragment_oom.pickle"), Theme::Dark, [1600.0, 1000.0]);
    assert_eq!(link(&h).colour_by, ColourBy::SizeClass);
}

#[test]
fn a_click_on_a_role_dims_the_others_and_a_second_brings_them_back() {
    let mut h = opened(&sample("gpt_train.pickle"), Theme::Dark, [1600.0, 1000.0]);
    send(&mut h, Action::SetColourBy(ColourBy::Stack));
    let activations = rows(&h)["role activations"];
    click(&mut h, activations.center());
    let class = For::Activations.index() as u8;
    assert_eq!((link(&h).colour_by, link(&h).focus_classes.as_slice()), (ColourBy::Role, &[class][..]));
    click(&mut h, activations.center());
    assert!(link(&h).focus_classes.is_empty());
    // Hovering dims the others only while the pointer is there.
    assert_eq!(link(&h).hover_class, Some(class));
    move_to(&mut h, pos2(800.0, 300.0));
    h.run_steps(2);
    assert_eq!(link(&h).hover_class, None);
}

/// The topmost row whose name contains a text.
fn first_row(h: &Whole, text: &str) -> (String, egui::Rect) {
    let found = rows(h).into_iter().filter(|(name, _)| name.contains(text));
    found.min_by(|a, b| a.1.top().total_cmp(&b.1.top())).expect("such a row")
}

#[test]
fn rows_of_lines_and_modules_are_told_by_the_inspector_and_what_is_folded_opens() {
    let data = sample("gpt_train.pickle");
    let mut h = only(&data, ViewKind::Memory, [320.0, 1000.0]);
    press_role(&mut h, Role::RadioButton, "Lines");
    let (name, place) = first_row(&h, ".py:");
    click(&mut h, beside(place));
    assert_eq!(link(&h).own.as_ref().map(|own| own.which.clone()), Some(Which::Line(name)));
    assert_eq!(link(&h).cursor, data.tables.curves.peak(Quantity::Active).1, "the instant of the table");
    press_role(&mut h, Role::RadioButton, "Calls");
    let opens = |n: &egui_kittest::Node<'_>| n.accesskit_node().label().is_some_and(|l| l.starts_with("Open "));
    assert!(!h.query_all_by_role(Role::Link).any(|n| opens(&n)), "the name of a module chooses it");
    let (_, module) = first_row(&h, ".py:");
    click(&mut h, beside(module));
    // The topmost row is what the model's own lines hold outside its submodules.
    let which = link(&h).own.as_ref().map(|own| own.which.clone());
    assert!(matches!(which, Some(Which::Module(_) | Which::Directly(_))), "{which:?}");
    assert_eq!(link(&h).selected(), None, "a row is no block");
    press_role(&mut h, Role::RadioButton, "Lines");
    let before = rows(&h).len();
    let (_, folded) = rows(&h).into_iter().find(|(name, _)| name.ends_with(" more")).expect("what has no room");
    click(&mut h, folded.center());
    assert!(rows(&h).len() > before, "what was folded");
}

/// A point in a row beside its name, which is a link.
fn beside(row: egui::Rect) -> egui::Pos2 {
    pos2(row.right() - 20.0, row.center().y)
}

#[test]
fn the_pointer_on_a_row_dims_all_blocks_that_are_not_its_own_and_a_click_keeps_that() {
    let data = sample("gpt_train.pickle");
    let (device, tables) = (data.device(), &data.tables);
    let mut h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    let (name, module) = rows(&h).into_iter().find(|(name, _)| name.contains(" \u{d7} ")).expect("layers");
    move_to(&mut h, beside(module));
    h.run_steps(2);
    let own = link(&h).hover_own.clone().expect("the blocks of the row");
    let held = tables.states.live_at(&tables.lifetimes, link(&h).cursor);
    let blocks = held.iter().filter(|&&id| own.contains(device, tables, id)).count();
    assert!(h.query_by_label_contains(&format!("{name}: ")).is_some());
    assert!(h.query_all_by_label_contains(&counted(blocks as u64, "block", "blocks")).count() > 0, "{blocks} of {name}");
    assert!(blocks < held.len());
    click(&mut h, beside(module));
    assert_eq!(link(&h).own.as_ref(), Some(&own));
    // When the pointer leaves, the click still counts. Escape shows everything again.
    move_to(&mut h, pos2(800.0, 300.0));
    h.run_steps(2);
    assert_eq!((link(&h).hover_own.is_some(), link(&h).own.is_some()), (false, true));
    send(&mut h, Action::Run(vramscope::app::state::command::Command::Clear));
    assert_eq!((link(&h).own.is_some(), link(&h).selected()), (false, None));
    // Hovering a role does the same with other colourings.
    send(&mut h, Action::SetColourBy(ColourBy::Stack));
    let activations = rows(&h)["role activations"];
    move_to(&mut h, activations.center());
    h.run_steps(2);
    assert_eq!(link(&h).hover_own.as_ref().map(|own| own.which.clone()), Some(Which::Role(For::Activations)));
}

#[test]
fn modules_and_lines_count_the_role_that_was_clicked() {
    let mut h = opened(&sample("gpt_train.pickle"), Theme::Dark, [1600.0, 1000.0]);
    assert!(rows(&h).contains_key("weights"), "a group of the modules");
    let state = rows(&h)["role optimizer state"];
    click(&mut h, state.center());
    assert!(h.query_by_label("Only optimizer state").is_some());
    // Memory without a module is listed by line.
    let lines = rows(&h);
    assert!(lines.keys().any(|name| name.contains(".py:")) && !lines.contains_key("weights"), "{lines:?}");
    press_role(&mut h, Role::Link, "Show all");
    assert!(link(&h).focus_classes.is_empty() && rows(&h).contains_key("weights"));
}

#[test]
fn a_chosen_range_is_looked_at_by_its_own_peak() {
    let data = sample("gpt_train.pickle");
    let mut h = only(&data, ViewKind::Memory, [320.0, 1000.0]);
    send(&mut h, Action::SetRange(Some((0, 200))));
    h.run_steps(4);
    let (device, tables) = (data.device(), &data.tables);
    let (peak, _) = tables.curves.peak_in(device, &tables.lifetimes, Quantity::Active, 0, 201).expect("events");
    let said = format!("{} at the peak of the range", vramscope_core::units::Bytes(peak));
    assert!(h.query_by_label_contains(&said).is_some(), "with a space between the words");
    assert!(h.query_by_label_contains("These speak of the whole recording").is_some(), "findings are not of the range");
    send(&mut h, Action::SetRange(None));
    h.run_steps(4);
    assert!(h.query_by_label_contains("of the range").is_none() && h.query_by_label_contains("These speak").is_none());
}

#[test]
fn a_place_opens_its_source_and_selects_its_row() {
    let mut h = only(&sample("gpt_train.pickle"), ViewKind::Memory, [320.0, 1000.0]);
    press_role(&mut h, Role::RadioButton, "Lines");
    let first = h.get_all_by_role(Role::Link).find(|n| n.accesskit_node().label().is_some_and(|l| l.starts_with("Open ")));
    let place = first.expect("a line").rect().center();
    click(&mut h, place);
    h.run_steps(4);
    assert!(link(&h).own.is_some(), "its blocks stay bright");
    click(&mut h, place);
    h.run_steps(4);
    assert!(link(&h).own.is_some(), "another click opens the source again and keeps the row");
}

#[test]
fn the_instant_can_be_the_cursor() {
    let mut h = only(&sample("gpt_train.pickle"), ViewKind::Memory, [320.0, 1000.0]);
    send(&mut h, Action::SetCursor(1234));
    assert!(h.query_by_label_contains("at event 1,234").is_none(), "the peak stays");
    press_role(&mut h, Role::ComboBox, "at");
    press_role(&mut h, Role::MenuItem, "cursor");
    assert!(h.query_by_label_contains("at event 1,234").is_some());
}

#[test]
fn a_failure_comes_first_and_the_sentence_is_about_it() {
    let data = sample("serve_oom.pickle.gz");
    assert!(data.device().events.action.contains(&EventAction::Oom));
    let h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    let top = |label: &str| h.get_all_by_label_contains(label).map(|n| n.rect().top()).fold(f32::MAX, f32::min);
    assert!(top("Open autopsy") < top("at the OOM"), "the finding stands above");
}

#[test]
fn the_other_views_are_one_click_away() {
    for (name, kind) in [
        ("Accounting", ViewKind::Accounting),
        ("Leaks", ViewKind::Leaks),
        ("Steps", ViewKind::Steps),
        ("Allocations", ViewKind::Allocations),
        ("Events", ViewKind::Events),
    ] {
        let mut h = opened(&sample("leak.pickle"), Theme::Dark, [1600.0, 1000.0]);
        assert!(h.query_by_label(&format!("Explain {name}")).is_none());
        press_role(&mut h, Role::Link, name);
        assert!(h.query_by_label(&format!("Explain {name}")).is_some(), "{kind:?}");
        press_role(&mut h, Role::Link, name);
        assert!(h.query_by_label(&format!("Explain {name}")).is_none(), "a second click closes {kind:?}");
    }
}

#[test]
fn blocks_are_called_by_where_they_were_made() {
    let mut h = only(&sample("leak.pickle"), ViewKind::Inspector, [340.0, 900.0]);
    send(&mut h, Action::Select(None));
    assert!(h.query_all_by_label_contains("workloads.py:").count() > 3, "the largest live blocks");
    assert_eq!(h.query_all_by_label_contains("0x7").count(), 0, "addresses are in their tooltips");
}
