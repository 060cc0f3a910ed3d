//! The timeline: pictures and pointer actions.

use std::sync::Arc;

use crate::alone::{Alone, sample, scaled};
use crate::hand::{begin_box, button, click, drag, move_to, press, press_key, second_button, wheel};
use crate::pictures::Pictures;
use crate::whole::{Whole, app, link, opened, send};
use egui::accesskit::Role;
use egui::{Event, Modifiers, Rect, Theme, pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::data::device::DeviceData;
use vramscope::app::state::{Action, Axis, ColourBy, Item, SharedViewState, ViewKind, Workspace};
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};

/// The rectangle of the canvas: from the axis down to the last lane.
fn canvas(h: &Whole) -> Rect {
    h.get_by_label_contains("Timeline,").rect()
}

/// The view alone, in a pane of its size in the Overview workspace, because other views may move.
fn timeline(
    data: &Arc<DeviceData>,
    theme: Theme,
    at: ([f32; 2], f32),
    change: fn(&mut SharedViewState),
) -> Harness<'static, Alone> {
    scaled(data, ViewKind::Timeline, theme, at, |link| {
        link.colour_by = ColourBy::SizeClass;
        change(link);
    })
}

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    let (train, kv) = (sample("gpt_train.pickle"), sample("kv_decode_oom.pickle.gz"));
    let pane = ([998.0, 442.0], 1.0);
    pictures.compare("timeline_oom_dark", timeline(&kv, Theme::Dark, pane, |_| {}));
    pictures.compare("timeline_steps_light", timeline(&train, Theme::Light, pane, |link| link.cursor = 2000));
    let few_events = timeline(&train, Theme::Dark, pane, |link| {
        (link.from, link.to, link.cursor) = (1950.0, 1990.0, 1970);
        link.selection.select(Some(Item::Lifetime(LifetimeId(700))));
        link.markers = [Some(1955), Some(1985)];
    });
    pictures.compare("timeline_few_events_dark", few_events);
    let marks = timeline(&kv, Theme::Light, pane, |link| {
        link.range = Some((9_000, 12_500));
        link.focus_classes = vec![1, 4];
        link.selection.select(Some(Item::Lifetime(LifetimeId(3_300))));
    });
    pictures.compare("timeline_marks_light", marks);
    pictures.compare("timeline_small_dark", timeline(&train, Theme::Dark, ([420.0, 190.0], 1.0), |_| {}));
    let close = timeline(&train, Theme::Dark, ([700.0, 360.0], 1.5), |link| (link.from, link.to) = (1700.0, 1720.0));
    pictures.compare("timeline_at_150_percent", close);
}

#[test]
fn a_click_selects_the_block_under_the_pointer_and_goes_to_an_instant_at_which_it_lives() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    let area = canvas(&h);
    // The strata take most of the canvas. Their lower part is always covered in this file.
    let p = pos2(area.center().x, area.bottom() - 90.0);
    click(&mut h, p);
    let Some(Item::Lifetime(id)) = link(&h).selected() else { panic!("no block selected: {:?}", link(&h).selected()) };
    let cursor = link(&h).cursor;
    assert!(data.tables.lifetimes.is_live_at(id, cursor));
    let at = (p.x - area.left()) / area.width() * data.device().events.len() as f32;
    assert!((cursor as f32 - at).abs() < 12.0, "cursor {cursor}, pointer at event {at}");
    assert_eq!(link(&h).hovered, Some(Item::Lifetime(id)), "other views light it up");
    // A second block, by the same click further up.
    click(&mut h, p - vec2(0.0, 60.0));
    assert_ne!(link(&h).selected(), Some(Item::Lifetime(id)));
}

#[test]
fn the_wheel_zooms_about_the_pointer_and_a_drag_pans() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    let area = canvas(&h);
    let p = pos2(area.left() + area.width() * 0.3, area.center().y);
    let under = |h: &Whole| {
        let l = link(h);
        l.from + (l.to - l.from) * f64::from((p.x - area.left()) / area.width())
    };
    let before = under(&h);
    move_to(&mut h, p);
    for _ in 0..6 {
        wheel(&mut h, 60.0);
    }
    let span = link(&h).to - link(&h).from;
    assert!(span < 0.5 * data.device().events.len() as f64, "{span}");
    assert!((under(&h) - before).abs() < span * 0.01, "{} {before}", under(&h));
    let from = link(&h).from;
    drag(&mut h, p, p + vec2(100.0, 0.0), Modifiers::NONE);
    let moved = (from - link(&h).from) / span * f64::from(area.width());
    assert!((moved - 100.0).abs() < 12.0, "moved by {moved} points");
    // A double click on empty space shows everything.
    let empty = pos2(p.x, canvas(&h).top() + 60.0);
    // After a pause, because a double click must not follow a drag directly.
    h.run_steps(20);
    for _ in 0..2 {
        button(&mut h, empty, true, Modifiers::NONE);
        button(&mut h, empty, false, Modifiers::NONE);
    }
    h.run_steps(4);
    assert_eq!((link(&h).from, link(&h).to), (0.0, data.device().events.len() as f64));
}

#[test]
fn shift_and_drag_choose_a_range_that_can_be_zoomed_to() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    let area = canvas(&h);
    let y = area.center().y;
    drag(&mut h, pos2(area.left() + 200.0, y), pos2(area.left() + 400.0, y), Modifiers::SHIFT);
    let (first, last) = link(&h).range.expect("a range");
    let events = data.device().events.len() as f32;
    let expected = |x: f32| x / area.width() * events;
    assert!((first as f32 - expected(200.0)).abs() < 12.0 && (last as f32 - expected(400.0)).abs() < 12.0, "{first} {last}");
    assert_eq!((link(&h).from, link(&h).to), (0.0, f64::from(events)), "choosing does not zoom");
    // Escape while a new range is being drawn drops the new one and keeps the old one.
    button(&mut h, pos2(area.left() + 500.0, y), true, Modifiers::SHIFT);
    h.event(Event::ModifiersChanged(Modifiers::SHIFT));
    move_to(&mut h, pos2(area.left() + 560.0, y));
    h.event(Event::ModifiersChanged(Modifiers::NONE));
    press_key(&mut h, egui::Key::Escape);
    button(&mut h, pos2(area.left() + 560.0, y), false, Modifiers::NONE);
    assert_eq!(link(&h).range, Some((first, last)));
    press(&mut h, "Zoom to range");
    let l = link(&h);
    assert!((l.from - f64::from(first)).abs() < 2.0 && (l.to - f64::from(last)).abs() < 2.0, "{} {}", l.from, l.to);
    press_key(&mut h, egui::Key::Escape);
    assert_eq!(link(&h).range, None);
}

/// The tooltip says which bytes and time a point stands for. A box shows those between its corners.
#[test]
fn a_box_drawn_with_the_second_button_zooms_time_and_bytes() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    let area = canvas(&h);
    let events = data.device().events.len() as f64;
    let whole = (link(&h).from, link(&h).to);
    send(&mut h, Action::SetRange(Some((100, 200))));
    // Above the lanes of steps, phases and device calls. Nothing moves while the box is drawn, and Escape cancels the box before
    // it clears anything else.
    let (from, to) = (pos2(area.left() + 200.0, area.bottom() - 150.0), pos2(area.left() + 300.0, area.bottom() - 100.0));
    begin_box(&mut h, from, to);
    assert_eq!((link(&h).from, link(&h).to), whole);
    press_key(&mut h, egui::Key::Escape);
    second_button(&mut h, to, false);
    h.run_steps(2);
    assert_eq!((link(&h).from, link(&h).to), whole, "taken back");
    assert!(h.query_by_label("Show all bytes").is_none() && link(&h).range.is_some());
    send(&mut h, Action::SetRange(None));
    // The same box, drawn from right to left and upwards.
    begin_box(&mut h, to, from);
    second_button(&mut h, from, false);
    h.run_steps(3);
    let place = |x: f32| f64::from((x - area.left()) / area.width()) * events;
    let (left, right) = (place(from.x), place(to.x));
    assert!((link(&h).from - left).abs() < 3.0 && (link(&h).to - right).abs() < 3.0, "{:?}", (link(&h).from, link(&h).to));
    assert!(h.query_by_label("Show all bytes").is_some(), "bytes are zoomed too");
    assert!(h.query_by_label("Copy stack").is_none(), "a drag opens no menu");
    h.key_press_modifiers(Modifiers::ALT, egui::Key::ArrowLeft);
    h.run_steps(3);
    assert_eq!((link(&h).from, link(&h).to), whole, "back");
    assert!(h.query_by_label("Show all bytes").is_none(), "back in bytes too");
    begin_box(&mut h, to, from);
    second_button(&mut h, from, false);
    h.run_steps(3);
    assert!(h.query_by_label("Show all bytes").is_some());
    press_key(&mut h, egui::Key::A);
    assert_eq!((link(&h).from, link(&h).to), whole);
    assert!(h.query_by_label("Show all bytes").is_none(), "A shows all of time and of bytes");
    // A flat box zooms time, a narrow one bytes. On the curves there is only time.
    begin_box(&mut h, from, pos2(to.x, from.y + 4.0));
    second_button(&mut h, pos2(to.x, from.y + 4.0), false);
    h.run_steps(3);
    assert!((link(&h).to - right).abs() < 3.0 && h.query_by_label("Show all bytes").is_none());
    press_key(&mut h, egui::Key::A);
    begin_box(&mut h, from, pos2(from.x + 4.0, to.y));
    second_button(&mut h, pos2(from.x + 4.0, to.y), false);
    h.run_steps(3);
    assert_eq!((link(&h).from, link(&h).to), whole);
    press(&mut h, "Show all bytes");
    let curves = pos2(from.x, area.top() + 60.0);
    begin_box(&mut h, curves, to);
    second_button(&mut h, to, false);
    h.run_steps(3);
    assert!((link(&h).from - left).abs() < 3.0 && h.query_by_label("Show all bytes").is_none());
    // Without moving, the button opens the menu as usual.
    move_to(&mut h, to);
    second_button(&mut h, to, true);
    second_button(&mut h, to, false);
    h.run_steps(3);
    assert!(h.query_by_label_contains("Copy stack").is_some());
}

#[test]
fn a_range_has_one_count_wherever_it_is_told() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    let times = &data.device().events.time_us;
    // It ends among several events of one microsecond.
    let last = (1_500..2_500).find(|&e| times[e] == times[e + 1]).expect("two events at once") as u32;
    send(&mut h, Action::SetRange(Some((1_000, last))));
    press(&mut h, "Zoom to range");
    for axis in [Axis::Time, Axis::Event, Axis::Time] {
        send(&mut h, Action::SetAxis(axis));
        assert_eq!(link(&h).events_shown(data.device()), u64::from(last) - 999, "{axis:?}");
        assert!(link(&h).shows_range(data.device()), "{axis:?}");
    }
    assert_eq!(link(&h).range, Some((1_000, last)));
}

#[test]
fn the_cursor_is_dragged_on_the_axis_and_stepped_with_keys() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1400.0, 900.0]);
    let area = canvas(&h);
    let y = area.top() + 10.0;
    let window = (link(&h).from, link(&h).to);
    drag(&mut h, pos2(area.left() + 100.0, y), pos2(area.left() + 300.0, y), Modifiers::NONE);
    let at = 300.0 / area.width() * data.device().events.len() as f32;
    assert!((link(&h).cursor as f32 - at).abs() < 12.0, "{} {at}", link(&h).cursor);
    assert_eq!((link(&h).from, link(&h).to), window, "the window stays");
    let before = link(&h).cursor;
    press_key(&mut h, egui::Key::Period);
    assert_eq!(link(&h).cursor, before + 1);
    press_key(&mut h, egui::Key::P);
    assert_eq!(link(&h).cursor, data.tables.curves.peak(Quantity::Active).1);
}

#[test]
fn the_legend_dims_the_other_classes_and_the_axis_switches_to_time() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    send(&mut h, Action::SetColourBy(ColourBy::SizeClass));
    let first = h
        .get_all_by_role(Role::Button)
        .find(|n| n.accesskit_node().label().is_some_and(|l| l.contains("< ")))
        .map(|n| n.rect())
        .expect("a class of small blocks");
    click(&mut h, first.center());
    assert_eq!(link(&h).focus_classes, vec![0]);
    let place = link(&h).event_at(data.device(), (link(&h).from + link(&h).to) / 2.0);
    send(&mut h, Action::SetAxis(Axis::Time));
    assert_eq!(link(&h).axis, Axis::Time);
    assert!(place != NO_EVENT && h.query_by_label_contains("Timeline,").is_some());
}

#[test]
fn tracks_fold_to_their_names_and_bytes_zoom() {
    let data = sample("gpt_train.pickle");
    let mut h = opened(&data, Theme::Dark, [1600.0, 1000.0]);
    let before = canvas(&h);
    press(&mut h, "Fold Overview");
    assert!(canvas(&h).height() > before.height(), "the strata take the room");
    press(&mut h, "Open Overview");
    assert_eq!(canvas(&h), before);
    let p = pos2(before.center().x, before.bottom() - 100.0);
    move_to(&mut h, p);
    h.event(Event::ModifiersChanged(Modifiers::CTRL));
    h.event(Event::Zoom(3.0));
    h.run_steps(2);
    h.event(Event::ModifiersChanged(Modifiers::NONE));
    h.run_steps(3);
    assert_eq!((link(&h).from, link(&h).to), (0.0, data.device().events.len() as f64), "time stays");
    press(&mut h, "Show all bytes");
    assert!(h.query_by_label("Show all bytes").is_none());
}

#[test]
fn every_sample_draws_at_every_size_on_both_axes() {
    for name in [
        "cuda_graph.pickle",
        "expandable_oom.pickle",
        "fragment_oom.pickle",
        "leak.pickle",
        "multi_stream.pickle",
        "two_gpus.pickle",
    ] {
        for size in [[1600.0, 1000.0], [800.0, 500.0], [720.0, 300.0]] {
            let mut h = opened(&sample(name), Theme::Light, size);
            assert_eq!(app(&h).active_document().map(|d| d.workspace), Some(Workspace::Overview));
            send(&mut h, Action::SetAxis(Axis::Time));
            send(&mut h, Action::SetWindow(0.0, 20.0));
            send(&mut h, Action::SetAxis(Axis::Event));
            send(&mut h, Action::SetWindow(3.0, 11.0));
            let c = canvas(&h).center();
            move_to(&mut h, c);
            h.run_steps(3);
        }
    }
}
