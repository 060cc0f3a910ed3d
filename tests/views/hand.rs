//! Pointer and key input for tests, in any window.

use egui::accesskit::Role;
use egui::{Event, Key, Modifiers, PointerButton, Pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;

pub fn move_to<S>(h: &mut Harness<'_, S>, p: Pos2) {
    h.event(Event::PointerMoved(p));
    h.run_steps(2);
}

pub fn button<S>(h: &mut Harness<'_, S>, pos: Pos2, pressed: bool, modifiers: Modifiers) {
    h.event(Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers });
    h.run_steps(1);
}

pub fn second_button<S>(h: &mut Harness<'_, S>, pos: Pos2, pressed: bool) {
    h.event(Event::PointerButton { pos, button: PointerButton::Secondary, pressed, modifiers: Modifiers::NONE });
    h.run_steps(1);
}

/// Presses the secondary button at one point and moves to another, without releasing it.
pub fn begin_box<S>(h: &mut Harness<'_, S>, from: Pos2, to: Pos2) {
    move_to(h, from);
    second_button(h, from, true);
    for i in 1..=4 {
        move_to(h, from + (to - from) * (i as f32 / 4.0));
    }
}

/// Clicks once and waits longer than a double click takes.
pub fn click<S>(h: &mut Harness<'_, S>, p: Pos2) {
    move_to(h, p);
    button(h, p, true, Modifiers::NONE);
    button(h, p, false, Modifiers::NONE);
    h.run_steps(12);
}

pub fn drag<S>(h: &mut Harness<'_, S>, from: Pos2, to: Pos2, modifiers: Modifiers) {
    h.event(Event::ModifiersChanged(modifiers));
    move_to(h, from);
    button(h, from, true, modifiers);
    for i in 1..=4 {
        move_to(h, from + (to - from) * (i as f32 / 4.0));
    }
    button(h, to, false, modifiers);
    h.event(Event::ModifiersChanged(Modifiers::NONE));
    h.run_steps(3);
}

pub fn second_click<S>(h: &mut Harness<'_, S>, p: Pos2) {
    move_to(h, p);
    second_button(h, p, true);
    second_button(h, p, false);
    h.run_steps(12);
}

pub fn wheel<S>(h: &mut Harness<'_, S>, delta: f32) {
    h.event(Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: vec2(0.0, delta),
        modifiers: Modifiers::NONE,
        phase: egui::TouchPhase::Move,
        source: egui::MouseWheelSource::Wheel,
    });
    h.run_steps(6);
}

/// Clicks what has this label, as a screen reader does.
pub fn press<S>(h: &mut Harness<'_, S>, label: &str) {
    h.get_by_label(label).click();
    h.run_steps(6);
}

/// Like [`press`], where several things have the label.
pub fn press_role<S>(h: &mut Harness<'_, S>, role: Role, label: &str) {
    h.get_by_role_and_label(role, label).click();
    h.run_steps(6);
}

pub fn press_key<S>(h: &mut Harness<'_, S>, key: Key) {
    h.key_press(key);
    h.run_steps(6);
}

/// Replaces the text in the field of this name and presses Enter.
pub fn enter<S>(h: &mut Harness<'_, S>, field: &str, text: &str) {
    h.get_by_label(field).focus();
    h.run_steps(2);
    h.key_press_modifiers(Modifiers::COMMAND, Key::A);
    h.get_by_label(field).type_text(text);
    h.run_steps(2);
    h.key_press(Key::Enter);
    h.run_steps(6);
}
