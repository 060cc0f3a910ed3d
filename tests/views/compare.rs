//! Compare: pictures, and figures on real recordings.
use std::sync::Arc;

use crate::alone::{alone, sample, selected_stack};
use crate::hand::press_role;
use crate::pictures::Pictures;
use crate::shared::{open, tables};
use crate::whole::only;
use egui::Theme;
use egui::accesskit::Role;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::App;
use vramscope::app::data::compare::held_against;
use vramscope::app::state::{Action, Moment, Other, SharedViewState, Source, ViewKind};
use vramscope_core::compare::diff::{Comparison, Instant, compare};
use vramscope_core::compare::flame::{Flame, Shape, entries_of};
use vramscope_core::inference::whatif::{Question, WhatIf};
use vramscope_core::model::{Progress, Recording};
use vramscope_core::tables::{DeviceTables, Quantity};

const SIZE: [f32; 2] = [1000.0, 420.0];

/// Two events of the leaking recording, twenty steps apart.
fn markers(link: &mut SharedViewState) {
    link.markers = [Some(400), Some(900)];
}

#[test]
fn picture() {
    let mut pictures = Pictures::new();
    pictures.compare("compare_light", alone(&sample("leak.pickle"), ViewKind::Compare, Theme::Light, SIZE, markers));
}

#[test]
fn a_pair_is_proposed_once_and_a_click_selects_the_stack() {
    let data = sample("leak.pickle");
    let h = alone(&data, ViewKind::Compare, Theme::Dark, SIZE, |_| {});
    let set = |which| h.state().asked.iter().any(|a| matches!(a, Action::Compare(w, Source::At(_)) if *w == which));
    assert!(set(0) && set(1), "{:?}", h.state().asked);
    assert!(!h.state().asked.iter().any(|a| matches!(a, Action::SetMarker(..))), "flags in the timeline are the user's");
    let mut h = alone(&data, ViewKind::Compare, Theme::Dark, SIZE, markers);
    h.get_all_by_label_contains("leak workloads.py:99: +").next().expect("the place that leaks").click();
    h.run_steps(2);
    assert_eq!(selected_stack(&h).map(|s| data.names.of_stack(s)), Some("workloads.py:99"));
}

#[test]
fn a_simulation_is_held_against_the_recording() {
    let h = alone(&sample("leak.pickle"), ViewKind::Compare, Theme::Dark, SIZE, |link| {
        link.markers = [None, Some(1_000_000)];
        link.compared[0] = Source::Other(Other::Simulation("expandable_segments:True".to_owned()), Moment::End);
        link.markers[1] = Some(900);
    });
    // Both make the same requests, so requested bytes are equal. Reserved bytes differ.
    let row = |name: &str| h.get_all_by_label_contains(name).next().map(|n| format!("{n:?}")).expect("a row");
    assert!(row("reserved: A ").contains("MiB") || !row("reserved: A ").contains("same"), "{}", row("reserved: A "));
    assert!(h.query_all_by_label_contains("expandable_segments:True at its end").next().is_some());
}

fn pick(h: &mut Harness<'_, Option<App>>, name: &str, choice: &str) {
    press_role(h, Role::ComboBox, name);
    h.get_by_role_and_label(Role::MenuItem, choice).click();
    h.run_steps(8);
}

fn link<'a>(h: &'a Harness<'_, Option<App>>) -> &'a SharedViewState {
    &h.state().as_ref().and_then(|a| a.active_document()?.view()).expect("a device in front").shared
}

#[test]
fn instants_simulations_and_devices_are_reached_by_clicks() {
    let data = sample("leak.pickle");
    let last = data.device().events.len() as u32 - 1;
    let peak = data.tables.curves.peak(Quantity::Active).1;
    let mut h = only(&data, ViewKind::Compare, [1400.0, 700.0]);
    assert!(matches!(link(&h).compared, [Source::At(_), Source::At(_)]), "a pair is proposed");
    // A side that the user did not choose is replaced: a simulation at its peak is compared with the recording at its peak.
    pick(&mut h, "B", "expandable_segments:True");
    let simulation = Source::Other(Other::Simulation("expandable_segments:True".to_owned()), Moment::Peak);
    assert_eq!(link(&h).compared, [Source::At(peak), simulation]);
    let says = |h: &Harness<'_, Option<App>>, text: &str| h.query_all_by_label_contains(text).next().is_some();
    assert!(says(&h, "B: expandable_segments:True at its peak"));
    pick(&mut h, "A", "At the start");
    pick(&mut h, "B", "At the end");
    assert_eq!(link(&h).compared, [Source::Marker, Source::Marker]);
    assert_eq!(link(&h).markers, [Some(0), Some(last)]);
    assert!(says(&h, "Change from A to B: +"), "more at the end than at the start");
    pick(&mut h, "B", "max_split_size_mb:512");
    assert_eq!(link(&h).compared[0], Source::At(peak), "another source brings the other side to the same phase");
    pick(&mut h, "show", "curves");
    for align in ["all steps", "from the start", "by time", "this step"] {
        pick(&mut h, "align", align);
        assert!(h.query_by_role_and_label(Role::Canvas, "Memory in use on both sides").is_some(), "{align}");
    }
    let data = sample("two_gpus.pickle");
    let other = if data.index == 0 { 1 } else { 0 };
    let name = data.recording.devices[other].id.to_string();
    let mut h = only(&data, ViewKind::Compare, [1400.0, 700.0]);
    pick(&mut h, "A", &name);
    assert_eq!(link(&h).compared[0], Source::Other(Other::Device(other), Moment::Peak));
    assert!(says(&h, "Change from A to B"));
}

#[test]
fn another_source_is_held_against_the_same_phase() {
    let data = sample("leak.pickle");
    let peak = data.tables.curves.peak(Quantity::Active).1;
    let end = data.device().events.len() as u32 - 1;
    for side in [Source::Marker, Source::At(7)] {
        assert_eq!(
            held_against(&side, Moment::Peak, &data),
            Source::At(peak),
            "peak with peak, also where a flag stood elsewhere"
        );
        assert_eq!(held_against(&side, Moment::End, &data), Source::At(end));
    }
    let simulated = || Other::Simulation(String::new());
    let other = Source::Other(simulated(), Moment::End);
    assert_eq!(held_against(&other, Moment::Peak, &data), Source::Other(simulated(), Moment::Peak), "a simulation too");
}

fn at<'a>(recording: &'a Recording, tables: &'a DeviceTables, event: u32) -> Instant<'a> {
    Instant { recording, device: &recording.devices[0], tables, roles: None, event }
}

/// Properties of every comparison.
fn adds_up(c: &Comparison, own: &Recording) {
    let sum = |of: fn(&vramscope_core::compare::diff::Row) -> u64| c.rows.iter().map(of).sum::<u64>();
    assert_eq!((sum(|r| r.a.bytes), sum(|r| r.b.bytes)), (c.a.bytes, c.b.bytes));
    let groups = c.by_place(&own.stacks);
    assert_eq!(groups.iter().map(|g| g.change()).sum::<i64>(), c.change());
    let flame = Flame::build(c.stacks(&own.stacks), &entries_of(c), Shape::default());
    assert_eq!((flame.nodes[0].before, flame.nodes[0].after), (c.a.bytes, c.b.bytes));
    let [only_a, common, only_b] = c.parts_by_stack();
    let parts = c.parts(&groups);
    assert_eq!(parts.only_a + parts.both + parts.without_stack[0].bytes, c.a.bytes);
    assert_eq!(parts.only_b + parts.both + parts.without_stack[1].bytes, c.b.bytes);
    assert!(parts.both >= common, "a place has all of its stacks");
    assert_eq!((flame.nodes[0].common, flame.nodes[0].total), (common, only_a + common + only_b));
}

#[test]
fn comparisons_add_up_and_a_simulation_asks_for_the_same() {
    let data = sample("gpt_train.pickle");
    let (recording, device, tables) = (&data.recording, data.device(), &data.tables);
    let peak = tables.curves.peak(Quantity::Active).1;
    let c = compare(&at(recording, tables, peak / 2), &at(recording, tables, peak));
    adds_up(&c, recording);
    assert_eq!(c.a.bytes, tables.curves.at(device, &tables.lifetimes, Quantity::Active, peak / 2));
    assert_eq!(c.b.requested, tables.curves.at(device, &tables.lifetimes, Quantity::Requested, peak));
    let blocks = c.blocks.expect("one recording");
    assert_eq!(blocks.only_a.count + blocks.both.count, c.a.count);
    assert_eq!(blocks.both.bytes + blocks.only_b.bytes, c.b.bytes);
    let progress = Progress::new();
    let question = Question::parse("expandable_segments:True", None).expect("a setting");
    let whatif = WhatIf::new(device, None, &progress).expect("not cancelled");
    let simulated = Arc::new(whatif.simulate(recording, &question, &progress).expect("not cancelled"));
    let other = DeviceTables::build(&simulated.devices[0], &progress).expect("not cancelled");
    let end = |r: &Recording| r.devices[0].events.len() as u32 - 1;
    let c = compare(&at(recording, tables, end(recording)), &at(&simulated, &other, end(&simulated)));
    adds_up(&c, &simulated);
    assert_eq!((c.a.requested, c.a.count), (c.b.requested, c.b.count));
    assert!(c.rows.iter().all(|r| r.a.requested == r.b.requested), "the stacks are the recording's own");
}

/// The figures of the design's picture, from the file it was drawn from.
#[test]
fn the_designs_figures_are_found_again() {
    let Some(corpus) = crate::shared::corpus() else { return };
    let path = std::path::Path::new(&corpus).join("demo/gpt_varlen.default.pickle");
    let recording = open(&path);
    let tables = tables(&recording.devices[0]);
    let c = compare(&at(&recording, &tables, 30_729), &at(&recording, &tables, 32_107));
    adds_up(&c, &recording);
    let mib = |bytes: u64| vramscope_core::units::SizeColumn::default().figure(bytes);
    assert_eq!(
        (mib(c.a.bytes), mib(c.b.bytes), mib(c.change() as u64)),
        ("1,285.93".into(), "3,431.76".into(), "2,145.83".into())
    );
    let blocks = c.blocks.expect("one recording");
    let part = |h: vramscope_core::compare::diff::Held| (h.count, mib(h.bytes));
    assert_eq!(part(blocks.only_a), (101, "891.41".into()));
    assert_eq!(part(blocks.both), (234, "394.51".into()));
    assert_eq!(part(blocks.only_b), (101, "3,037.24".into()));
    let groups = c.by_place(&recording.stacks);
    let shown: Vec<(String, String)> = groups.iter().take(4).map(|g| (mib(g.a.bytes), mib(g.b.bytes))).collect();
    let want = [("319.18", "1,320.50"), ("174.75", "461"), ("133.83", "402.19"), ("107.06", "321.75")];
    assert_eq!(shown, want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert_eq!(groups.len(), 16);
}
