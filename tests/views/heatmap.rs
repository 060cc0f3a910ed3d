//! The fragmentation view: pictures and pointer actions.
use crate::alone::{alone, sample};
use crate::hand::{begin_box, click, move_to, press, press_key, second_button, second_click, wheel};
use crate::pictures::Pictures;
use crate::whole::{link, only};
use egui::{Event, Modifiers, Theme};
use egui_kittest::kittest::Queryable as _;
use vramscope::app::state::{Action, Item, ViewKind};

const OOM: &str = "kv_decode_oom.pickle.gz";

#[test]
fn pictures_in_both_themes() {
    let mut pictures = Pictures::new();
    for (theme, name) in [(Theme::Dark, "heatmap_dark"), (Theme::Light, "heatmap_light")] {
        pictures.compare(name, alone(&sample(OOM), ViewKind::Heatmap, theme, [496.0, 441.0], |_| {}));
    }
}

#[test]
fn a_click_sets_the_cursor_and_selects_what_is_there() {
    let data = sample(OOM);
    let mut h = alone(&data, ViewKind::Heatmap, Theme::Dark, [496.0, 441.0], |_| {});
    let rect = h.get_by_label_contains("Fragmentation,").rect();
    let device = data.device();
    let mut kinds = std::collections::HashSet::new();
    for i in 1..12 {
        let p = rect.lerp_inside(egui::vec2(0.95, 0.3 + 0.055 * i as f32));
        click(&mut h, p);
        let asked = std::mem::take(&mut h.state_mut().asked);
        let event = asked.iter().find_map(|a| if let Action::SetCursor(e) = a { Some(*e) } else { None }).expect("a cursor");
        assert!(event as usize > device.events.len() / 2, "near the right end: {event}");
        let item = asked.iter().find_map(|a| if let Action::Select(i) = a { Some(*i) } else { None }).expect("a selection");
        let state = data.tables.states.at(device, &data.tables.lifetimes, event);
        match item {
            Some(Item::Lifetime(id)) => {
                assert!(state.blocks.iter().any(|b| b.lifetime == id), "{id:?} is not there at {event}");
                kinds.insert("block");
            }
            Some(Item::Hole(address)) => {
                assert!(state.holes().any(|b| b.address == address), "{address:#x} is no hole at {event}");
                kinds.insert("hole");
            }
            other => assert_eq!(other, None),
        }
    }
    assert!(kinds.contains("block"), "{kinds:?}");
}

#[test]
fn a_wheel_zooms_the_shared_window_about_the_pointer() {
    let data = sample(OOM);
    let mut h = alone(&data, ViewKind::Heatmap, Theme::Dark, [496.0, 441.0], |_| {});
    let rect = h.get_by_label_contains("Fragmentation,").rect();
    move_to(&mut h, rect.center());
    wheel(&mut h, 200.0);
    let whole = data.device().events.len() as f64;
    let window = h.state().asked.iter().find_map(|a| if let Action::SetWindow(a, b) = a { Some((*a, *b)) } else { None });
    let (from, to) = window.expect("a window");
    assert!(from > 0.0 && to < whole, "{from} {to}");
    assert!((f64::midpoint(from, to) / whole - 0.5).abs() < 0.05, "{from} {to}");
    let hovered = h.state().asked.iter().any(|a| matches!(a, Action::HoverEvent(Some(_))));
    assert!(hovered, "other views draw a ghost line");
}

#[test]
fn ctrl_and_the_wheel_zoom_addresses_and_a_button_shows_all_again() {
    let mut h = alone(&sample(OOM), ViewKind::Heatmap, Theme::Dark, [496.0, 441.0], |_| {});
    let rect = h.get_by_label_contains("Fragmentation,").rect();
    assert!(h.query_by_label("Show all addresses").is_none());
    h.event(Event::PointerMoved(rect.lerp_inside(egui::vec2(0.8, 0.7))));
    h.run_steps(2);
    h.event(Event::ModifiersChanged(Modifiers::COMMAND | Modifiers::CTRL));
    h.event(Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: egui::vec2(0.0, 300.0),
        modifiers: Modifiers::COMMAND | Modifiers::CTRL,
        phase: egui::TouchPhase::Move,
        source: egui::MouseWheelSource::Wheel,
    });
    h.run_steps(8);
    let zoomed_time = h.state().asked.iter().any(|a| matches!(a, Action::SetWindow(..)));
    assert!(!zoomed_time, "Ctrl + wheel leaves the time alone");
    h.event(Event::ModifiersChanged(Modifiers::NONE));
    press(&mut h, "Show all addresses");
    assert!(h.query_by_label("Show all addresses").is_none());
}

#[test]
fn the_menu_leads_to_the_block_s_places() {
    let data = sample(OOM);
    let mut h = alone(&data, ViewKind::Heatmap, Theme::Dark, [496.0, 441.0], |_| {});
    let rect = h.get_by_label_contains("Fragmentation,").rect();
    let p = rect.lerp_inside(egui::vec2(0.95, 0.6));
    second_click(&mut h, p);
    press(&mut h, "Copy address");
    let copied = h.state().asked.iter().find_map(|a| if let Action::Copy(text) = a { Some(text.clone()) } else { None });
    assert!(copied.is_some_and(|text| text.starts_with("0x7f")));
    second_click(&mut h, p);
    press(&mut h, "Zoom to the segment's life");
    let asked = std::mem::take(&mut h.state_mut().asked);
    let segment = asked.iter().find_map(|a| if let Action::Select(Some(Item::Segment(s))) = a { Some(*s) } else { None });
    let event = asked.iter().find_map(|a| if let Action::SetCursor(e) = a { Some(*e) } else { None }).expect("a cursor");
    let (device, tables) = (data.device(), &data.tables);
    let life = tables.states.segment_life(device, segment.expect("a segment"), event).expect("it is there");
    assert_eq!(Some(life.address), segment);
    assert!(life.born <= event && life.gone > event);
    second_click(&mut h, p);
    press(&mut h, "Zoom to the segment's addresses");
    assert!(h.query_by_label("Show all addresses").is_some());
}

#[test]
fn a_box_zooms_time_and_addresses_and_the_whole_recording_is_all_of_both() {
    let mut h = only(&sample(OOM), ViewKind::Heatmap, [900.0, 700.0]);
    let rect = h.get_by_label_contains("Fragmentation,").rect();
    let whole = (link(&h).from, link(&h).to);
    let (from, to) = (rect.lerp_inside(egui::vec2(0.3, 0.5)), rect.lerp_inside(egui::vec2(0.5, 0.7)));
    begin_box(&mut h, from, to);
    assert_eq!((link(&h).from, link(&h).to), whole, "not before the button is let go");
    second_button(&mut h, to, false);
    h.run_steps(4);
    let (left, right) = (link(&h).from / whole.1, link(&h).to / whole.1);
    assert!((left - 0.3).abs() < 0.02 && (right - 0.5).abs() < 0.02, "{left} {right}");
    assert!(h.query_by_label("Show all addresses").is_some());
    press_key(&mut h, egui::Key::A);
    assert_eq!((link(&h).from, link(&h).to), whole);
    assert!(h.query_by_label("Show all addresses").is_none());
}
