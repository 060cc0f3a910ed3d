//! The segment map, the inspector and the events table: pictures and pointer actions.

use std::sync::Arc;

use crate::alone::{alone, sample};
use crate::hand::{begin_box, click, move_to, press, press_key, second_button, wheel};
use crate::pictures::Pictures;
use crate::whole::{Whole, link, only, send};
use egui::accesskit::Role;
use egui::{Rect, Theme, pos2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::data::device::DeviceData;
use vramscope::app::state::{Action, ColourBy, Command, Item, SharedViewState, ViewKind};
use vramscope_core::diagnose::fragmentation::blockers;
use vramscope_core::model::{Action as EventAction, BlockState};
use vramscope_core::tables::{LifetimeId, State};

fn state_at(data: &DeviceData, event: u32) -> State {
    data.tables.states.at(data.device(), &data.tables.lifetimes, event)
}

/// Event numbers of the visible rows, from the top.
fn rows(h: &Whole) -> Vec<(u32, Rect)> {
    let mut rows: Vec<(u32, Rect)> = h
        .get_all_by_role(Role::Row)
        .map(|n| {
            let label = n.accesskit_node().label().unwrap_or_default();
            let number = label.trim_start_matches("Event ").split(':').next().and_then(|s| s.parse().ok());
            (number.unwrap_or_else(|| panic!("a row called {label}")), n.rect())
        })
        .collect();
    rows.sort_by(|a, b| a.1.top().total_cmp(&b.1.top()));
    rows
}

/// Selects the block that strands most free memory at the cursor.
fn select_worst_blocker(data: &DeviceData, link: &mut SharedViewState) {
    link.colour_by = ColourBy::SizeClass;
    let state = state_at(data, link.cursor);
    let worst = blockers(&state, None).first().map(|b| state.blocks[b.block].lifetime).expect("a blocker");
    link.selection.select(Some(Item::Lifetime(worst)));
}

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    let (train, kv) = (sample("gpt_train.pickle"), sample("kv_decode_oom.pickle.gz"));
    let (expandable, graph) = (sample("expandable_oom.pickle"), sample("cuda_graph.pickle"));
    let mut picture = |name: &str, data: &Arc<DeviceData>, kind, size, change: fn(&DeviceData, &mut SharedViewState)| {
        let theme = if name.ends_with("_dark") { Theme::Dark } else { Theme::Light };
        pictures.compare(name, alone(data, kind, theme, size, |link| change(data, link)));
    };
    let map = ViewKind::SegmentMap;
    picture("segment_map_oom_dark", &kv, map, [566.0, 413.0], select_worst_blocker);
    picture("segment_map_train_light", &train, map, [566.0, 413.0], |_, link| link.cursor = 2000);
    picture("segment_map_expandable_dark", &expandable, map, [566.0, 413.0], |_, _| {});
    picture("segment_map_pools_light", &graph, map, [420.0, 300.0], |_, _| {});
    picture("segment_map_small_dark", &train, map, [150.0, 120.0], |_, link| link.cursor = 2000);
    let inspector = ViewKind::Inspector;
    picture("inspector_block_dark", &kv, inspector, [320.0, 860.0], select_worst_blocker);
    picture("inspector_stack_light", &train, inspector, [320.0, 860.0], |data, link| {
        link.cursor = 2000;
        select_worst_blocker(data, link);
    });
    picture("inspector_nothing_light", &kv, inspector, [320.0, 720.0], |_, _| {});
    picture("inspector_oom_light", &kv, inspector, [320.0, 420.0], |_, link| {
        link.selection.select(Some(Item::Event(link.cursor)));
    });
    picture("inspector_hole_dark", &kv, inspector, [320.0, 420.0], |data, link| {
        let hole = state_at(data, link.cursor).holes().map(|h| h.address).next().expect("a hole");
        link.selection.select(Some(Item::Hole(hole)));
    });
    picture("events_dark", &train, ViewKind::Events, [720.0, 300.0], |_, link| link.cursor = 2000);
    picture("events_narrow_light", &kv, ViewKind::Events, [300.0, 240.0], |_, _| {});
}

#[test]
fn what_a_box_shows_of_the_map_is_all_again_with_the_whole_recording() {
    let mut h = only(&sample("fragment_oom.pickle"), ViewKind::SegmentMap, [900.0, 700.0]);
    let canvas = h.get_by_label_contains("Segment map, at the OOM").rect();
    let there = pos2(canvas.left() + 60.0, canvas.top() + 30.0);
    let block = |h: &mut Whole| {
        click(h, there);
        link(h).selected()
    };
    let whole = block(&mut h);
    let (from, to) = (pos2(canvas.left() + 300.0, there.y), pos2(canvas.left() + 400.0, there.y + 40.0));
    begin_box(&mut h, from, to);
    second_button(&mut h, to, false);
    h.run_steps(3);
    assert_ne!(block(&mut h), whole, "other addresses are there");
    send(&mut h, Action::Run(Command::ZoomFit));
    assert_eq!(block(&mut h), whole);
}

#[test]
fn a_click_in_the_map_selects_what_is_there() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = only(&data, ViewKind::SegmentMap, [900.0, 700.0]);
    let state = state_at(&data, link(&h).cursor);
    let canvas = h.get_by_label_contains("Segment map, at the OOM").rect();
    let mut lifetimes = 0;
    let mut holes = 0;
    for i in 0..12 {
        click(&mut h, pos2(canvas.left() + 60.0 + 47.0 * i as f32, canvas.top() + 30.0 + 37.0 * i as f32));
        match link(&h).selected() {
            Some(Item::Lifetime(id)) => {
                assert!(state.blocks.iter().any(|b| b.lifetime == id), "a block of this instant");
                lifetimes += 1;
            }
            Some(Item::Hole(address)) => {
                let at = state.block_at(address).expect("a block");
                assert_eq!(state.blocks[at].state, BlockState::Inactive);
                holes += 1;
            }
            other => panic!("row {i}: {other:?}"),
        }
        assert_eq!(link(&h).hovered, link(&h).selected(), "other views light it up");
    }
    assert!(lifetimes > 0 && holes + lifetimes == 12);
    // The gutter selects the segment.
    click(&mut h, pos2(canvas.left() + 10.0, canvas.top() + 30.0));
    assert_eq!(link(&h).selected(), Some(Item::Segment(state.segments[0].address)));
}

#[test]
fn each_row_of_an_expandable_segment_names_what_is_in_it() {
    let mut h = only(&sample("expandable_oom.pickle"), ViewKind::SegmentMap, [900.0, 700.0]);
    let canvas = h.get_by_label_contains("Segment map, at the OOM").rect();
    // Rows of 64 MiB and 18 points, below the axis and the group header.
    let at = |row: usize, x: f32| pos2(x, canvas.top() + 40.0 + 18.0 * row as f32 + 8.0);
    let (gutter, bar) = (canvas.left() + 10.0, canvas.right() - 100.0);
    let mib = |mib: f32| canvas.left() + 36.0 + (canvas.width() - 186.0) * mib / 64.0;
    let cases = [
        // The first run fills 18 rows and part of the next, in which the second run begins, with the larger hole.
        (at(0, gutter), Item::Segment(0x3_0200_0000)),
        (at(17, gutter), Item::Segment(0x3_0200_0000)),
        (at(17, bar), Item::Segment(0x3_0200_0000)),
        (at(18, gutter), Item::Segment(0x3_4d00_0000)),
        (at(18, bar), Item::Segment(0x3_4d00_0000)),
        (at(25, gutter), Item::Segment(0x3_6600_0000)),
        (at(25, bar), Item::Segment(0x3_6600_0000)),
        // From 1,180 to 1,200 MiB after its start nothing is mapped.
        (at(18, mib(40.0)), Item::Unmapped(0x3_4bc0_0000)),
    ];
    for (place, item) in cases {
        click(&mut h, place);
        assert_eq!(link(&h).selected(), Some(item), "at {place}");
        assert_eq!(link(&h).hovered, Some(item), "at {place}");
    }
    let mut inspector = only(&sample("expandable_oom.pickle"), ViewKind::Inspector, [340.0, 700.0]);
    send(&mut inspector, Action::Select(Some(Item::Unmapped(0x3_4bc0_0000))));
    assert!(inspector.query_by_label_contains(", segment 2 of 8").is_some());
}

#[test]
fn any_address_inside_a_block_finds_it_in_the_map() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = only(&data, ViewKind::SegmentMap, [900.0, 700.0]);
    let state = state_at(&data, link(&h).cursor);
    let block = state.blocks.iter().filter(|b| b.lifetime.is_some()).nth(77).expect("many blocks");
    let field = h.get_by_role_and_label(Role::TextInput, "Address");
    field.focus();
    h.run_steps(2);
    h.get_by_role_and_label(Role::TextInput, "Address").type_text(&format!("{:#x}", block.address + block.size / 2));
    h.run_steps(2);
    press_key(&mut h, egui::Key::Enter);
    assert_eq!(link(&h).selected(), Some(Item::Lifetime(block.lifetime)));
}

#[test]
fn a_row_of_the_trace_moves_the_cursor_and_the_cursor_brings_its_row() {
    let data = sample("gpt_train.pickle");
    let mut h = only(&data, ViewKind::Events, [800.0, 500.0]);
    send(&mut h, Action::GoTo(1000));
    let seen = rows(&h);
    assert!(seen.iter().any(|r| r.0 == 1000), "{:?}", seen.first());
    assert!(seen.windows(2).all(|w| w[1].0 == w[0].0 + 1), "no row is skipped");
    let (event, rect) = seen[5];
    click(&mut h, rect.center());
    assert_eq!(link(&h).cursor, event);
    let expected = match data.tables.lifetimes.of_event(event) {
        LifetimeId::NONE => Item::Event(event),
        id => Item::Lifetime(id),
    };
    assert_eq!(link(&h).selected(), Some(expected));
    // Scrolling does not move the cursor, and the cursor does not scroll the rows back.
    let top = rows(&h)[0].0;
    move_to(&mut h, rect.center());
    wheel(&mut h, -400.0);
    assert!(rows(&h)[0].0 >= top + 15, "{} {top}", rows(&h)[0].0);
    assert_eq!(link(&h).cursor, event);
    send(&mut h, Action::GoTo(event + 1));
    assert!(rows(&h).iter().any(|r| r.0 == event + 1), "it follows when the cursor moves");
}

#[test]
fn a_filter_leaves_what_it_names_and_says_how_many() {
    let data = sample("gpt_train.pickle");
    let mut h = only(&data, ViewKind::Events, [800.0, 500.0]);
    h.get_by_role_and_label(Role::TextInput, "Filter events").focus();
    h.run_steps(2);
    h.get_by_role_and_label(Role::TextInput, "Filter events").type_text("alloc size>1MiB");
    h.run_steps(4);
    let events = &data.device().events;
    let passes = |i: usize| events.action[i] == EventAction::Alloc && events.size[i] > 1 << 20;
    let expected = (0..events.len()).filter(|&i| passes(i)).count();
    assert!(expected > 20, "the sample has some");
    let shown = rows(&h);
    assert!(!shown.is_empty() && shown.iter().all(|r| passes(r.0 as usize)));
    let table = h.get_by_label_contains("Events, ").accesskit_node().label().unwrap_or_default();
    assert_eq!(table.replace(',', ""), format!("Events {expected}"));
    press(&mut h, "Clear the filter");
    assert!(rows(&h).windows(2).all(|w| w[1].0 == w[0].0 + 1));
}

#[test]
fn the_inspector_leads_from_one_thing_to_the_next_and_back() {
    let data = sample("kv_decode_oom.pickle.gz");
    let mut h = only(&data, ViewKind::Inspector, [340.0, 900.0]);
    let state = state_at(&data, link(&h).cursor);
    let worst = &blockers(&state, None)[0];
    let id = state.blocks[worst.block].lifetime;
    send(&mut h, Action::Select(Some(Item::Lifetime(id))));
    let block = data.tables.lifetimes.get(data.device(), id).expect("a lifetime");
    assert!(h.query_by_label_contains(&format!("event {}", vramscope_core::units::count(u64::from(block.born)))).is_some());
    assert!(h.query_by_label_contains("live: ").is_none(), "no stacks were recorded, so none is the same");
    h.get_by_label_contains("segment: ").click();
    h.run_steps(4);
    let segment = state.segments[worst.segment].address;
    assert_eq!(link(&h).selected(), Some(Item::Segment(segment)));
    press(&mut h, "Selection before this one");
    assert_eq!(link(&h).selected(), Some(Item::Lifetime(id)));
}

#[test]
fn the_inspector_goes_through_the_allocations_of_a_stack() {
    let mut h = only(&sample("leak.pickle"), ViewKind::Inspector, [340.0, 900.0]);
    let id = LifetimeId(40);
    send(&mut h, Action::Select(Some(Item::Lifetime(id))));
    assert!(h.query_by_label_contains("live: ").is_some(), "same stack");
    assert!(h.query_by_label_contains("in step: ").is_some(), "steps are known here");
    press(&mut h, "Next");
    assert_ne!(link(&h).selected(), Some(Item::Lifetime(id)));
}

#[test]
fn every_sample_draws_at_every_size() {
    for name in ["cuda_graph.pickle", "expandable_oom.pickle", "leak.pickle", "multi_stream.pickle", "two_gpus.pickle"] {
        let data = sample(name);
        let items: Vec<Option<Item>> = [None]
            .into_iter()
            .chain((0..6).map(|i| Some(Item::Lifetime(LifetimeId(i * 7)))))
            .chain([Some(Item::Event(3)), Some(Item::Annotation(0)), Some(Item::Hole(1)), Some(Item::Segment(1))])
            .chain(data.device().events.stack.first().map(|&s| Some(Item::Stack(s))))
            .collect();
        for view in [ViewKind::SegmentMap, ViewKind::Inspector, ViewKind::Events] {
            for size in [[1200.0, 700.0], [300.0, 200.0], [90.0, 60.0]] {
                let mut h = only(&data, view, size);
                for item in &items {
                    send(&mut h, Action::Select(*item));
                    send(&mut h, Action::SetCursor(9));
                }
                move_to(&mut h, pos2(size[0] / 2.0, size[1] / 2.0));
                h.run_steps(3);
            }
        }
    }
}
