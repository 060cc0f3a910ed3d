//! The probe's page: by clicks from the welcome page to a recording in a tab; pictures.

use crate::hand::{press, press_role};
use crate::pictures::Pictures;
use crate::whole::{Whole, app, whole};
use egui::Theme;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::documents::document::Content;
use vramscope::app::state::Command;

fn started(theme: Theme) -> Whole {
    whole(theme, [960.0, 640.0], |_| {})
}

fn run(h: &mut Whole, scenario: &str) {
    app(h).actions().run(Command::Probe);
    h.run_steps(3);
    press(h, scenario);
    press(h, "Start");
}

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    for (theme, scenario, name) in
        [(Theme::Dark, "fragmentation", "probe_fragmentation_dark"), (Theme::Light, "pending_free", "probe_pending_light")]
    {
        let mut h = started(theme);
        run(&mut h, scenario);
        h.remove_cursor();
        h.run_steps(2);
        pictures.compare(name, h);
    }
}

#[test]
fn a_run_ends_in_a_recording_that_the_button_opens() {
    let mut h = started(Theme::Dark);
    run(&mut h, "leak");
    let names: Vec<String> = app(&h).documents().iter().map(|d| d.title.clone()).collect();
    assert_eq!(names, ["Probe", "probe: leak, simulated"]);
    press(&mut h, "Open the recording");
    let app = app(&h);
    let document = app.active_document().unwrap();
    assert_eq!(document.title, "probe: leak, simulated");
    let view = document.view().expect("it is ready to be looked at");
    assert!(view.data.device().events.len() > 500);
}

#[test]
fn a_run_in_a_tab_can_be_picked_and_run_again() {
    let mut h = started(Theme::Dark);
    run(&mut h, "leak");
    press_role(&mut h, Role::ComboBox, "choose");
    press_role(&mut h, Role::MenuItem, "probe: leak, simulated");
    press(&mut h, "Start");
    let app = app(&h);
    let Content::Probe(page) = &app.active_document().unwrap().content else { panic!("the probe's page is in front") };
    let made = page.outcome.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((made.report.scenario.as_str(), made.report.end.peak_reserved_bytes), ("replay", 2000 << 20));
    assert!(made.compared.as_ref().unwrap().agrees_with_model);
    let names: Vec<&str> = app.documents().iter().map(|d| d.title.as_str()).collect();
    assert_eq!(names, ["Probe", "probe: leak, simulated", "probe: replay, simulated"]);
}

#[test]
fn what_is_typed_wrong_is_said_and_nothing_starts() {
    let mut h = started(Theme::Dark);
    app(&h).actions().run(Command::Probe);
    h.run_steps(3);
    let field = h.get_by_role_and_label(Role::TextInput, "settings");
    field.focus();
    field.type_text("max_split_size_mb:1");
    h.run_steps(3);
    press(&mut h, "Start");
    let app = app(&h);
    let Content::Probe(page) = &app.active_document().unwrap().content else { panic!("the probe's page is in front") };
    assert!(page.complaint.as_deref().is_some_and(|c| c.contains("settings")), "{:?}", page.complaint);
    assert!(page.outcome.is_none() && !page.is_running());
    assert_eq!(app.documents().len(), 1);
}
