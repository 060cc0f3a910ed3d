//! Menus and keyboard: an open menu handles Escape and keys without modifiers itself.

use std::sync::Arc;

use crate::alone::sample;
use crate::hand::{press, press_key};
use crate::whole::{Whole, app, opened, whole};
use egui::accesskit::Role;
use egui::{Key, Theme};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::settings::Settings;
use vramscope::app::state::{Action, Command, Item, Track, TrackLayout, ViewKind};

/// The app at its start: no recording, the welcome page.
fn fresh() -> Whole {
    whole(Theme::Dark, [1200.0, 800.0], |_| {})
}

/// The app with a recording of two devices, with the second in front.
fn two_devices() -> Whole {
    opened(&sample("two_gpus.pickle"), Theme::Dark, [1200.0, 800.0])
}

fn is_there(h: &Whole, label: &str) -> bool {
    h.query_all_by_label(label).next().is_some()
}

fn selected(h: &Whole) -> Option<Item> {
    let app = app(h);
    app.active_document().and_then(|d| d.view()).and_then(|v| v.shared.selected())
}

#[test]
fn a_few_devices_stand_beside_each_other() {
    let mut h = two_devices();
    let shown = |h: &Whole| app(h).active_document().and_then(|d| d.view()).map(|v| v.data.index);
    assert_eq!(shown(&h), Some(1), "the one with the highest peak");
    h.get_by_label("GPU 0").click();
    h.run_steps(40);
    assert_eq!(shown(&h), Some(0));
}

#[test]
fn escape_closes_a_menu_and_nothing_else() {
    let mut h = two_devices();
    app(&h).actions().send(Action::Select(Some(Item::Event(3))));
    h.run_steps(2);
    press(&mut h, "shade");
    let is_open = |h: &Whole| h.query_all_by_role(egui::accesskit::Role::MenuItem).next().is_some();
    assert!(is_open(&h), "the menu is open");
    press_key(&mut h, Key::Escape);
    assert!(!is_open(&h), "Escape closes the menu");
    assert_eq!(selected(&h), Some(Item::Event(3)), "and leaves the selection alone");
    press_key(&mut h, Key::Escape);
    assert_eq!(selected(&h), None, "with no menu open it clears the selection");
}

#[test]
fn a_key_under_an_open_menu_or_dialog_moves_no_view() {
    let mut h = two_devices();
    let cursor = |h: &Whole| app(h).active_document().and_then(|d| d.view()).map(|v| v.shared.cursor);
    let before = cursor(&h);
    press(&mut h, "Go");
    press_key(&mut h, Key::Home);
    assert_eq!(cursor(&h), before);
    press_key(&mut h, Key::Escape);
    press_key(&mut h, Key::F1);
    assert!(is_there(&h, "Shortcuts and gestures"));
    press_key(&mut h, Key::Home);
    assert_eq!(cursor(&h), before);
    press_key(&mut h, Key::Escape);
    assert!(!is_there(&h, "Shortcuts and gestures"));
    press_key(&mut h, Key::Home);
    assert_eq!(cursor(&h), Some(0));
}

#[test]
fn folds_and_heights_of_tracks_are_saved_and_hold_for_every_document() {
    let mut h = two_devices();
    press(&mut h, "Fold Curves");
    let folded = TrackLayout::default().with_folded(Track::Curves, true);
    let app = app(&h);
    assert_eq!(app.settings().tracks, folded);
    assert_eq!(app.active_document().and_then(|d| d.view()).map(|v| v.shared.tracks), Some(folded));
    assert!(is_there(&h, "Open Curves"));
    // Settings of older versions have no tracks. Settings of this version read back unchanged.
    let saved = serde_json::to_string(app.settings()).expect("plain data");
    let read: Settings = serde_json::from_str(&saved).expect("what was written");
    assert_eq!(read.tracks, folded);
}

#[test]
fn the_palette_finds_the_other_device() {
    let mut h = two_devices();
    h.key_press_modifiers(egui::Modifiers::COMMAND, Key::K);
    h.run_steps(3);
    h.get_by_label("Find").type_text("gpu 0");
    h.run_steps(4);
    press(&mut h, "Device: GPU 0");
    let app = app(&h);
    assert_eq!(app.active_document().and_then(|d| d.view()).map(|v| v.data.index), Some(0));
}

/// Ctrl+F focuses the query of the view in front. In a view without a search field it opens the palette.
#[test]
fn the_find_key_goes_to_the_query_in_front() {
    let find = |h: &mut Whole| {
        app(h).actions().run(Command::FindInView);
        h.run_steps(6);
    };
    let mut h = two_devices();
    find(&mut h);
    assert!(is_there(&h, "Close (Esc)"), "no view has a field: the palette is open");
    press_key(&mut h, Key::Escape);
    app(&h).actions().run(Command::Show(ViewKind::Allocations));
    h.run_steps(6);
    find(&mut h);
    assert!(!is_there(&h, "Close (Esc)"), "the palette stays closed");
    let field = h.get_by_role_and_label(Role::TextInput, "Query allocations");
    assert!(field.is_focused(), "the field has the keys");
}

#[test]
fn one_escape_or_the_button_closes_every_dialog() {
    const CLOSE: &str = "Close (Esc)";
    let dialogs = [
        (Command::Explain, "Explain an out-of-memory message"),
        (Command::OpenPath, "Open a file"),
        (Command::Settings, "Settings"),
        (Command::Palette, "Find"),
        (Command::Help, "Shortcuts and gestures"),
        (Command::RoleRules, "Role rules"),
    ];
    for (start, mut h) in [("fresh", fresh()), ("with a recording", two_devices())] {
        let before = selected(&h);
        for (command, title) in dialogs {
            let open = |h: &mut Whole| {
                app(h).actions().run(command);
                h.run_steps(4);
                assert!(is_there(h, CLOSE), "{start}: {title} is open");
            };
            open(&mut h);
            press_key(&mut h, Key::Escape);
            assert!(!is_there(&h, CLOSE), "{start}: one Escape closes {title}");
            // Again from a text field with contents.
            open(&mut h);
            let field = [Role::MultilineTextInput, Role::TextInput].into_iter().find_map(|r| h.query_all_by_role(r).last());
            if let Some(field) = field.filter(|_| command != Command::RoleRules) {
                field.focus();
                field.type_text("abc");
            }
            h.run_steps(3);
            press_key(&mut h, Key::Escape);
            assert!(!is_there(&h, CLOSE), "{start}: one Escape closes {title} from its field");
            open(&mut h);
            press(&mut h, CLOSE);
            assert!(!is_there(&h, CLOSE), "{start}: the button closes {title}");
        }
        assert_eq!(selected(&h), before);
    }
}

/// Two devices, the second one busier. A request failed on the first one, at its last event.
fn failed_on_the_quiet_one() -> Arc<vramscope_core::model::Recording> {
    use vramscope_core::model::{Action, DeviceKind, PoolId, StackId, StreamId};
    let mut recording = vramscope_core::model::Recording::clone(&sample("two_gpus.pickle").recording);
    let quiet = recording.devices.iter().position(|d| d.id.kind == DeviceKind::Cuda && d.id.index == 0).expect("GPU 0");
    let events = &mut recording.devices[quiet].events;
    let last = events.time_us.last().copied().expect("an event");
    events.push(last, Action::Oom, 1 << 20, 1 << 30, StreamId(0), PoolId(0), StackId::NONE);
    Arc::new(recording)
}

#[test]
fn a_device_that_ran_out_of_memory_is_shown_first_and_named_by_the_others() {
    let recording = failed_on_the_quiet_one();
    let index_of = |n| recording.device_numbered(n).expect("a device");
    let (failed, busy) = (index_of(0), index_of(1));
    assert_eq!(recording.busiest_device(), Some(failed));
    assert_eq!(sample("two_gpus.pickle").recording.busiest_device(), Some(busy), "without a failure the busier one");
    let data =
        vramscope::app::data::device::prepare(&recording, busy, &vramscope_core::model::Progress::new()).expect("not cancelled");
    let shown = |h: &Whole| app(h).active_document().and_then(|d| d.view()).map(|v| (v.data.index, v.shared.cursor));
    let oom = recording.devices[failed].events.ooms()[0];

    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    assert!(app(&h).active_document().is_some_and(vramscope::app::documents::document::Document::has_oom), "the tab has its dot");
    press(&mut h, "GPU 0 ran out of memory: show it");
    assert_eq!(shown(&h), Some((failed, oom)));
    assert!(!is_there(&h, "GPU 0 ran out of memory: show it"), "it is in front");

    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    press_key(&mut h, Key::O);
    assert_eq!(shown(&h), Some((failed, oom)), "the key goes to the failure wherever it is");
}

#[test]
fn every_press_of_a_slow_frame_counts() {
    let mut h = two_devices();
    app(&h).actions().send(Action::GoTo(100));
    h.run_steps(3);
    let cursor = |h: &Whole| app(h).active_document().and_then(|d| d.view()).map(|v| v.shared.cursor);
    assert_eq!(cursor(&h), Some(100));
    let held = |h: &mut Whole, key: Key, times: usize| {
        for i in 0..times {
            let modifiers = egui::Modifiers::NONE;
            h.input_mut().events.push(egui::Event::Key { key, physical_key: None, pressed: true, repeat: i > 1, modifiers });
        }
        h.run_steps(3);
    };
    held(&mut h, Key::ArrowRight, 5);
    assert_eq!(cursor(&h), Some(105));
    held(&mut h, Key::ArrowLeft, 3);
    assert_eq!(cursor(&h), Some(102));
}

/// The list of shortcuts needs no scrolling while the window has room for it.
#[test]
fn the_list_of_shortcuts_takes_the_room_of_the_window() {
    let mut h = whole(Theme::Dark, [1400.0, 1000.0], |_| {});
    press_key(&mut h, Key::F1);
    let bottom = h.get_by_label("fill the window with a pane, and back").rect().bottom();
    assert!(bottom < 1000.0 - 40.0, "{bottom}");
    let last = Command::all().into_iter().rfind(|c| !c.shortcuts().is_empty()).expect("a command with keys");
    let rows: Vec<f32> = h.get_all_by_label(&last.text()).map(|n| n.rect().bottom()).collect();
    assert!(rows.iter().all(|&y| y < 1000.0 - 40.0), "{rows:?}");
}

#[test]
fn a_report_is_asked_what_it_leaves_out_before_its_file_is_chosen() {
    let mut h = two_devices();
    app(&h).actions().send(Action::Run(Command::SaveReport));
    h.run_steps(3);
    for label in ["Markdown for an issue", "Leave out names of machines and people"] {
        press(&mut h, label);
    }
    press_key(&mut h, Key::Escape);
    assert!(!is_there(&h, "Choose a file…"));
    // The choice is remembered for the next time.
    app(&h).actions().send(Action::Run(Command::SaveReport));
    h.run_steps(3);
    let toggled = |h: &Whole, label: &str| h.get_by_label(label).accesskit_node().toggled();
    assert_eq!(toggled(&h, "Leave out names of machines and people"), Some(egui::accesskit::Toggled::True));
    press(&mut h, "Choose a file…");
    assert!(!is_there(&h, "Choose a file…"), "the next dialog takes its place");
}

/// Tab must not get stuck at a widget that is registered before others but lies behind them.
#[test]
fn tab_leads_through_the_whole_window_and_round() {
    for workspace in [Key::Num1, Key::Num2, Key::Num3, Key::Num4, Key::Num5] {
        let mut h = opened(&sample("fragment_oom.pickle"), Theme::Dark, [1600.0, 1000.0]);
        h.key_press_modifiers(egui::Modifiers::COMMAND, workspace);
        h.run_steps(6);
        let mut seen = Vec::new();
        while seen.len() < 400 {
            press_key(&mut h, Key::Tab);
            let focused = h.ctx.memory(|m| m.focused());
            if seen.contains(&focused) {
                break;
            }
            seen.push(focused);
        }
        let back = h.ctx.memory(|m| m.focused());
        assert_eq!(
            seen.first(),
            Some(&back),
            "{workspace:?}: after {} widgets Tab goes round among the last of them",
            seen.len()
        );
        assert!(seen.len() > 12, "{workspace:?}: {}", seen.len());
    }
}
