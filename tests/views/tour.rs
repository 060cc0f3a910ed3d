//! The tour, with pointer and keys.

use egui::{Event, Key, Theme};
use egui_kittest::kittest::Queryable as _;
use vramscope::app::settings::Settings;
use vramscope::app::state::{Action, Command, Workspace};

use crate::whole::{Whole, app, link, send, whole, with_settings};

const SIZE: [f32; 2] = [1400.0, 900.0];

/// The tour, started from the Help menu.
fn begun(size: [f32; 2]) -> Whole {
    let mut h = whole(Theme::Dark, size, |_| {});
    send(&mut h, Action::Run(Command::Tour));
    h.run_steps(12);
    h
}

fn press(h: &mut Whole, key: Key) {
    h.key_press(key);
    h.run_steps(12);
}

/// The step, whether its part is visible, and the workspace in front.
fn at(h: &Whole) -> Option<(usize, bool, Workspace)> {
    let (step, is_pointing) = app(h).tour()?;
    Some((step, is_pointing, app(h).active_document()?.workspace))
}

#[test]
fn five_cards_point_at_what_they_tell_of_in_every_size_of_window() {
    use Workspace::{Autopsy, Overview, WhatIf};
    for size in [SIZE, [800.0, 560.0]] {
        let mut h = begun(size);
        for (step, workspace) in [Overview, Overview, Overview, Autopsy, WhatIf].into_iter().enumerate() {
            assert_eq!(at(&h), Some((step, true, workspace)), "{size:?}");
            let card = h.get_by_label("Close the tour (Esc)").rect();
            assert!(h.ctx.content_rect().contains_rect(card), "{size:?}, step {step}: {card:?}");
            if step < 4 {
                press(&mut h, Key::ArrowRight);
            }
        }
        press(&mut h, Key::ArrowLeft);
        assert_eq!(at(&h), Some((3, true, Autopsy)), "an arrow goes back");
        press(&mut h, Key::Escape);
        assert_eq!(at(&h), None, "Escape ends it");
        assert!(h.query_by_label("Close the tour (Esc)").is_none());
    }
}

#[test]
fn enter_goes_on() {
    let mut h = begun(SIZE);
    for step in 1..5 {
        press(&mut h, Key::Enter);
        assert_eq!(at(&h).map(|a| a.0), Some(step));
    }
    press(&mut h, Key::Enter);
    assert_eq!(at(&h), None);
}

#[test]
fn its_buttons_go_on_and_back_and_the_last_one_ends_it() {
    let mut h = begun(SIZE);
    for step in 1..5 {
        h.get_by_label("Next").click();
        h.run_steps(12);
        assert_eq!(at(&h).map(|a| a.0), Some(step));
    }
    assert!(h.query_by_label("Next").is_none(), "after the last there is no next");
    h.get_by_label("Back").click();
    h.run_steps(12);
    assert_eq!(at(&h).map(|a| a.0), Some(3));
    h.get_by_label("Next").click();
    h.run_steps(12);
    h.get_by_label("Done").click();
    h.run_steps(4);
    assert_eq!(at(&h), None);
    let mut h = begun(SIZE);
    h.get_by_label("Close").click();
    h.run_steps(4);
    assert_eq!(at(&h), None);
}

#[test]
fn the_window_works_beside_it_and_its_keys_are_its_own_only_while_it_is_there() {
    let mut h = begun(SIZE);
    let cursor = link(&h).cursor;
    press(&mut h, Key::ArrowRight);
    press(&mut h, Key::ArrowLeft);
    assert_eq!((link(&h).cursor, at(&h).map(|a| a.0)), (cursor, Some(0)));
    // The window beside the card takes keys and clicks as usual.
    press(&mut h, Key::Home);
    assert_eq!(link(&h).cursor, 0);
    h.get_by_label("Explain Timeline").click();
    h.run_steps(4);
    press(&mut h, Key::Escape);
    assert_eq!(at(&h).map(|a| a.0), Some(0), "an open popup takes Escape for itself");
    // An open dialog covers the card and gets its keys.
    press(&mut h, Key::F1);
    press(&mut h, Key::ArrowRight);
    assert!(h.query_by_label("Next").is_none());
    press(&mut h, Key::Escape);
    assert_eq!(at(&h).map(|a| a.0), Some(0));
    press(&mut h, Key::Escape);
    assert_eq!(at(&h), None);
    press(&mut h, Key::ArrowRight);
    assert_eq!(link(&h).cursor, 1, "then an arrow moves the cursor again");
}

#[test]
fn it_ends_with_its_tab_and_does_not_come_back() {
    let mut h = begun(SIZE);
    send(&mut h, Action::Run(Command::Welcome));
    assert_eq!(app(&h).tour(), None, "another page is in front");
    h.get_by_label("Take the tour").click();
    h.run_steps(12);
    assert_eq!(at(&h).map(|a| a.0), Some(0), "the welcome page begins it again");
    assert_eq!(app(&h).documents().len(), 1, "on the tab that is open");
    let id = app(&h).documents()[0].id;
    send(&mut h, Action::Close(id));
    assert_eq!(app(&h).tour(), None);
}

#[test]
fn it_is_offered_once_and_never_shown_unasked() {
    let offered = |h: &Whole| app(h).notices().filter(|n| n.contains("Five steps")).count();
    let h = with_settings(Settings::default(), Theme::Light, SIZE, |app| app.begin_bare());
    assert_eq!((offered(&h), app(&h).tour()), (1, None));
    let settings = app(&h).settings().clone();
    assert!(settings.tour_was_offered);
    let h = with_settings(settings, Theme::Light, SIZE, |app| app.begin_bare());
    assert_eq!(offered(&h), 0, "not in the next window");
    // A user who found it in the menu needs no offer.
    let h = begun(SIZE);
    assert!(app(&h).settings().tour_was_offered);
}

#[test]
fn a_click_on_the_offer_begins_it() {
    let mut h = with_settings(Settings::default(), Theme::Dark, SIZE, |app| app.begin_bare());
    let button = h.query_all_by_label("Take the tour").last().expect("the offer's button").rect().center();
    h.event(Event::PointerMoved(button));
    h.run_steps(2);
    crate::hand::click(&mut h, button);
    h.run_steps(12);
    assert_eq!(at(&h).map(|a| a.0), Some(0));
    assert_eq!(app(&h).notices().filter(|n| n.contains("Five steps")).count(), 0);
}
