//! The flame graph: pictures, tree, search and zoom.
use crate::alone::{alone, sample};
use crate::hand::{click, press, press_key, press_role, second_click};
use crate::pictures::Pictures;
use crate::whole::only;
use egui::accesskit::Role;
use egui::{Key, Modifiers, Pos2, Theme, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::App;
use vramscope::app::state::{Item, SharedViewState, ViewKind};
use vramscope_core::compare::flame::{Flame, Measure, Shape, Size, weigh};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, count};

const SIZE: [f32; 2] = [900.0, 260.0];

#[test]
fn pictures_in_both_themes() {
    let mut pictures = Pictures::new();
    let between = |link: &mut SharedViewState| link.markers = [Some(400), Some(900)];
    for (theme, name) in [(Theme::Dark, "flame_compare_dark"), (Theme::Light, "flame_compare_light")] {
        pictures.compare(name, alone(&sample("leak.pickle"), ViewKind::Flame, theme, SIZE, between));
    }
}

#[test]
fn the_graph_of_the_cursor_holds_what_is_live_there() {
    let data = sample("gpt_train.pickle");
    let h = alone(&data, ViewKind::Flame, Theme::Dark, SIZE, |link| link.cursor = 1500);
    let live = data.tables.curves.at(data.device(), &data.tables.lifetimes, Quantity::Active, 1500);
    let entries = vramscope_core::compare::flame::weigh(
        data.device(),
        &data.tables,
        None,
        vramscope_core::compare::flame::Measure::LiveAt(1500),
        vramscope_core::compare::flame::Size::Block,
    );
    assert_eq!(entries.iter().map(|e| e.weight).sum::<u64>(), live);
    assert!(h.query_by_label("Flame graph").is_some());
}

/// For every bundled sample, the root of every measure agrees with the curves: at the cursor, at the peak, at the end, and over
/// ranges.
#[test]
fn roots_hold_what_the_curves_say_and_folded_frames_are_counted() {
    use vramscope_core::compare::flame::{By, Flame, Measure, Root, Shape, Size, weigh};
    use vramscope_core::tables::{LifetimeId, NO_EVENT};
    for name in ["leak.pickle", "gpt_train.pickle", "fragment_oom.pickle", "cuda_graph.pickle", "multi_stream.pickle"] {
        let data = sample(name);
        let (device, tables) = (data.device(), &data.tables);
        let lifetimes = &tables.lifetimes;
        let stacks = &data.recording.stacks;
        let last = device.events.len() as u32 - 1;
        let total = |measure, size, shape| {
            let entries = weigh(device, tables, None, measure, size);
            let flame = Flame::build(stacks, &entries, shape);
            let frames: u64 = entries.iter().map(|e| stacks.frames(e.stack).len() as u64).sum();
            (flame.nodes[0].total, flame.folded_frames, frames)
        };
        let shapes: Vec<Shape> = [Root::Outermost, Root::Innermost]
            .into_iter()
            .flat_map(|root| By::ALL.map(|by| Shape { root, by, folds_framework: root == Root::Innermost }))
            .collect();
        let peak = tables.curves.peak(Quantity::Active).1;
        for event in [0, last / 3, peak, last] {
            for &shape in &shapes {
                let active = tables.curves.at(device, lifetimes, Quantity::Active, event);
                let requested = tables.curves.at(device, lifetimes, Quantity::Requested, event);
                assert_eq!(total(Measure::LiveAt(event), Size::Block, shape).0, active, "{name} {event} {shape:?}");
                assert_eq!(total(Measure::LiveAt(event), Size::Requested, shape).0, requested, "{name} {event}");
            }
        }
        let all = || lifetimes.ids();
        let born = |id| lifetimes.born(id) != NO_EVENT;
        let range = (last / 4, last / 2);
        let within = |event: u32| (range.0..=range.1).contains(&event);
        let sum =
            |passes: &dyn Fn(LifetimeId) -> bool| all().filter(|&id| passes(id)).map(|id| lifetimes.block_size(id)).sum::<u64>();
        let plain = Shape::default();
        let of = |measure| total(measure, Size::Block, plain).0;
        let allocated = sum(&|id| born(id) && within(lifetimes.born(id)));
        assert_eq!(of(Measure::Allocated(range.0, range.1)), allocated, "{name}");
        let churned = sum(&|id| born(id) && within(lifetimes.born(id)) && within(lifetimes.gone(id)));
        assert_eq!(of(Measure::Churn(range.0, range.1)), churned, "{name}");
        assert!(churned <= allocated && allocated <= of(Measure::Allocated(0, last)));
        // Bytes × events within a range is the area under the curve.
        let short = (last / 3, (last / 3 + 200).min(last));
        let area: u64 = (short.0..short.1).map(|event| tables.curves.at(device, lifetimes, Quantity::Active, event)).sum();
        assert_eq!(of(Measure::BytesTimesLife(short.0, short.1)), area, "{name}");
        // Folded and remaining frames together are all frames.
        let folds = Shape { folds_framework: true, ..plain };
        let (_, folded, frames) = total(Measure::LiveAt(peak), Size::Block, folds);
        let entries = weigh(device, tables, None, Measure::LiveAt(peak), Size::Block);
        let kept: u64 = entries
            .iter()
            .map(|e| {
                let own = Flame::build(stacks, std::slice::from_ref(e), folds);
                own.nodes.iter().filter(|n| matches!(n.what, vramscope_core::compare::flame::What::Frame(_))).count() as u64
            })
            .sum();
        assert_eq!(folded + kept, frames, "{name}");
    }
}

/// A point in row `row` of the frames, at a share of the graph's width.
fn at(h: &Harness<'_, Option<App>>, row: f32, share: f32) -> Pos2 {
    let graph = h.get_by_role_and_label(Role::Canvas, "Flame graph").rect();
    graph.min + vec2(12.0 + (graph.width() - 24.0) * share, 8.0 + 27.0 * row + 13.0)
}

fn is_there(h: &Harness<'_, Option<App>>, label: &str) -> bool {
    h.query_all_by_label_contains(label).next().is_some()
}

fn pick(h: &mut Harness<'_, Option<App>>, name: &str, choice: &str) {
    press_role(h, Role::ComboBox, name);
    press_role(h, Role::MenuItem, choice);
}

#[test]
fn a_click_zooms_and_names_escape_and_a_second_click_go_back() {
    let mut h = only(&sample("gpt_train.pickle"), ViewKind::Flame, [1400.0, 600.0]);
    let way_back = |h: &Harness<'_, Option<App>>| h.query_by_role_and_label(Role::Link, "all").is_some();
    assert!(!way_back(&h), "nothing is zoomed yet");
    let frame = at(&h, 2.0, 0.1);
    click(&mut h, frame);
    assert!(way_back(&h), "a click zooms");
    let selected = h.state().as_ref().and_then(|a| a.active_document()?.view()?.shared.selected());
    assert!(matches!(selected, Some(Item::Stack(_))), "and selects the frame's heaviest stack: {selected:?}");
    press_role(&mut h, Role::Link, "all");
    assert!(!way_back(&h), "a name in the way down goes back to it");
    click(&mut h, frame);
    press_key(&mut h, Key::Escape);
    assert!(!way_back(&h), "Escape goes back");
    click(&mut h, frame);
    let zoomed = at(&h, 0.0, 0.1);
    click(&mut h, zoomed);
    let parent = at(&h, 0.0, 0.1);
    click(&mut h, parent);
    assert!(!way_back(&h), "a click on the zoomed frame goes to its parent");
}

#[test]
fn a_search_says_how_much_matches_and_a_hidden_frame_what_is_gone() {
    let mut h = only(&sample("gpt_train.pickle"), ViewKind::Flame, [1400.0, 600.0]);
    press(&mut h, "Filter frames");
    h.get_by_label("Filter frames").type_text("forward");
    h.run_steps(6);
    assert!(is_there(&h, "match, together"), "hits are counted");
    h.get_by_label("Filter frames").type_text(" of nothing");
    h.run_steps(6);
    assert!(is_there(&h, "0\u{a0}frames match"), "none is said too");
    h.key_press_modifiers(Modifiers::COMMAND, Key::A);
    press_key(&mut h, Key::Backspace);
    assert!(!is_there(&h, "match, together"));
    let frame = at(&h, 2.0, 0.1);
    second_click(&mut h, frame);
    let item = h.get_by_role_and_label(Role::MenuItem, "Hide this frame").rect();
    assert!(item.width() < 260.0, "a menu as wide as its words: {item:?}");
    press_role(&mut h, Role::MenuItem, "Hide this frame");
    assert!(is_there(&h, "1 hidden with"));
    second_click(&mut h, frame);
    press_role(&mut h, Role::MenuItem, "Show everything again");
    assert!(!is_there(&h, "hidden with"));
}

/// For every measure, from either end, by stack, file, module and role: the root equals the measure's total.
#[test]
fn each_measure_from_either_end_by_everything_counts_the_same_bytes() {
    let data = sample("gpt_train.pickle");
    let mut h = only(&data, ViewKind::Flame, [1400.0, 600.0]);
    press_role(&mut h, Role::CheckBox, "tree");
    let (device, tables) = (data.device(), &data.tables);
    let last = device.events.len() as u32 - 1;
    let peak = tables.curves.peak(Quantity::Active).1;
    let cursor = h.state().as_ref().and_then(|a| a.active_document()?.view()).map(|v| v.shared.cursor).expect("a cursor");
    for (name, measure) in [
        ("live at the cursor", Measure::LiveAt(cursor)),
        ("live at the peak", Measure::LiveAt(peak)),
        ("allocated", Measure::Allocated(0, last)),
        ("churn: freed again", Measure::Churn(0, last)),
        ("bytes × lifetime", Measure::BytesTimesLife(0, last)),
    ] {
        pick(&mut h, "width", name);
        let entries = weigh(device, tables, None, measure, Size::Block);
        let total = Flame::build(&data.recording.stacks, &entries, Shape::default()).nodes[0].total;
        let unit = if name.starts_with("bytes") { " × events" } else { "" };
        let row = format!("all: {}{unit}", Bytes(total));
        for by in ["file", "module", "role", "stack"] {
            pick(&mut h, "by", by);
            for root in ["leaf", "top"] {
                pick(&mut h, "root", root);
                assert!(is_there(&h, &row), "{name} by {by} from the {root}: no row {row}, {} events", count(u64::from(last)));
            }
        }
    }
    // Framework frames can be folded or shown.
    assert!(is_there(&h, "of torch folded"));
    press_role(&mut h, Role::CheckBox, "hide torch internals");
    assert!(!is_there(&h, "of torch folded"));
}
