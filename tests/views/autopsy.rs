//! The OOM autopsy and Findings: pictures, and pointer actions.
use std::sync::Arc;

use crate::alone::{Alone, alone, sample};
use crate::hand::{enter, press, wheel};
use crate::pictures::Pictures;
use crate::shared::tables;
use egui::Theme;
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use vramscope::app::data::device::DeviceData;
use vramscope::app::state::{Action, Command, Item, ViewKind, Workspace};
use vramscope_core::model::{DeviceRecording, Recording, StackId};
use vramscope_core::tables::StackNames;
use vramscope_core::units::{Address, NBSP};

#[test]
fn pictures() {
    let mut pictures = Pictures::new();
    let mut picture = |name, file, view, theme, size| pictures.compare(name, alone(&sample(file), view, theme, size, |_| {}));
    picture("autopsy_dark", "fragment_oom.pickle", ViewKind::Autopsy, Theme::Dark, [1120.0, 640.0]);
    picture("autopsy_peak_light", "gpt_train.pickle", ViewKind::Autopsy, Theme::Light, [1120.0, 640.0]);
    picture("findings_light", "kv_decode_oom.pickle.gz", ViewKind::Findings, Theme::Light, [300.0, 620.0]);
}

#[test]
fn settings_are_copied_and_opened_in_what_if() {
    let mut h = alone(&sample("kv_decode_oom.pickle.gz"), ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], |_| {});
    press(&mut h, "Copy PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    press(&mut h, "expandable_segments:True,roundup_power2_divisions:8");
    press(&mut h, "Open in What-if");
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::Copy("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned())), "{asked:?}");
    let chosen = "expandable_segments:True,roundup_power2_divisions:8".to_owned();
    assert!(asked.contains(&Action::TrySettings(chosen)), "{asked:?}");
}

#[test]
fn a_cap_that_the_user_knows_changes_the_way_out() {
    let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], |_| {});
    let way_out = |h: &egui_kittest::Harness<'_, crate::alone::Alone>, blocks: &str| {
        let text = format!("{:?}", h.get_by_label_contains("What to free"));
        // Figures and units are joined by a no-break space.
        text.replace("\\u{a0}", " ").replace(vramscope_core::units::NBSP, " ").contains(&format!("Freeing these {blocks} blocks"))
    };
    assert!(way_out(&h, "18"));
    enter(&mut h, "Cap of this process", "1760 MiB");
    // The figures of the run that was recorded; its cap was 1,760 MiB.
    assert!(way_out(&h, "8"), "the way out follows the cap");
    press(&mut h, "By stack");
    press(&mut h, "By role");
    assert!(h.query_all_by_label("unknown").next().is_some(), "no stacks: everything is unknown");
}

/// Under a cap of 2,100 MiB the failed request would have succeeded, so that was not the cap.
#[test]
fn a_cap_that_the_recording_rules_out_is_not_taken() {
    let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], |_| {});
    enter(&mut h, "Cap of this process", "2100 MiB");
    h.get_by_label_contains("the request of event 176 would not have failed");
}

/// The same recording with a failed request of 1 TiB.
fn too_large(data: &DeviceData) -> Arc<DeviceData> {
    let mut recording = Recording::clone(&data.recording);
    recording.devices[data.index].events.size[data.ooms[0] as usize] = 1 << 40;
    let tables = tables(&recording.devices[data.index]);
    let (names, ooms) = (Arc::clone(&data.names), data.ooms.clone());
    Arc::new(DeviceData { recording: Arc::new(recording), index: data.index, tables, names, ooms, found: Default::default() })
}

/// The label of the row of a block of this size that is named by its address.
fn by_address(h: &Harness<'_, Alone>, mebibytes: u64) -> Option<String> {
    let size = format!(", {mebibytes}{NBSP}MiB");
    let rows: Vec<_> = h.query_all_by_label_contains(&size).collect();
    rows.iter().filter_map(|row| row.accesskit_node().label()).find(|label| label.starts_with("0x") && label.ends_with(&size))
}

/// A request larger than the device: no block is in the way and no setting helps, but no pane is empty.
#[test]
fn a_request_that_is_too_large_shows_what_was_live_twice() {
    let whole = sample("fragment_oom.pickle");
    let data = too_large(&whole);
    let h = alone(&data, ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], |_| {});
    assert!(h.query_all_by_label("unknown").next().is_some(), "live memory by role");
    assert!(h.query_all_by_label_contains("no setting serves it").next().is_some(), "and why no setting is told of");
    assert!(h.query_by_label("Copy PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True").is_none());
    // 1 TiB on a card with 137.72 GiB free besides 1,600 MiB of this process: sevenths do not fit, eighths do.
    h.get_by_label(&format!("4 parts of 256{NBSP}GiB: does not fit"));
    h.get_by_label(&format!("8 parts of 128{NBSP}GiB: fits as memory was"));
    // Also block by block, the largest first.
    assert!(by_address(&h, 33).is_some(), "by its address, and its size");
}

/// A small block of another stream pins the segment that would be enough. It is drawn and listed first, and a click leads to it.
#[test]
fn what_pins_another_streams_segment_is_listed_and_leads_to_its_block() {
    let data = pinned_elsewhere();
    let mut h = alone(&data, ViewKind::Autopsy, Theme::Dark, [1600.0, 900.0], |_| {});
    let address = |event: u32| Address(data.tables.lifetimes.address(data.device(), data.tables.lifetimes.of_event(event)));
    let [sliver, other] = [4, 90].map(|mebibytes| by_address(&h, mebibytes).unwrap());
    assert!(sliver.starts_with(&address(1).to_string()), "without a stack and a role it is named by its address: {sliver}");
    let row = h.get_by_label(&sliver).rect();
    assert!(row.top() < h.get_by_label(&other).rect().top(), "by what they strand");
    press(&mut h, &sliver);
    let lifetime = data.tables.lifetimes.of_event(1);
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::Select(Some(Item::Lifetime(lifetime)))), "{asked:?}");
}

/// 4 MiB of a 600 MiB segment on one stream, and 90 of 200 MiB on the other, which then requests 500 MiB with 100 MiB free on the
/// device.
fn pinned_elsewhere() -> Arc<DeviceData> {
    use vramscope_core::model::Action as Event;
    const MIB: u64 = 1 << 20;
    let mut recording = Recording { source: sample("fragment_oom.pickle").recording.source.clone(), ..Recording::default() };
    let mut device = DeviceRecording::default();
    let [main, side] = [device.intern_stream(0), device.intern_stream(0x5555)];
    let pool = device.intern_pool((0, 0));
    for (action, address, size, stream) in [
        (Event::SegmentAlloc, 0x7000_0000_0000, 600 * MIB, side),
        (Event::Alloc, 0x7000_0000_0000, 4 * MIB, side),
        (Event::SegmentAlloc, 0x7001_0000_0000, 200 * MIB, main),
        (Event::Alloc, 0x7001_0000_0000, 90 * MIB, main),
        (Event::Oom, 100 * MIB, 500 * MIB, main),
    ] {
        device.events.push(0, action, address, size, stream, pool, StackId::NONE);
    }
    let tables = tables(&device);
    recording.devices.push(device);
    let (names, ooms) = (Arc::new(StackNames::of(&recording.stacks)), vec![4]);
    Arc::new(DeviceData { recording: Arc::new(recording), index: 0, tables, names, ooms, found: Default::default() })
}

/// A small window has one scrolling column. What to free is below its picture, as wide as the window.
#[test]
fn a_small_window_has_one_column() {
    for (width, height) in [(800.0, 384.0), (1024.0, 584.0)] {
        let mut h = alone(&sample("fragment_oom.pickle"), ViewKind::Autopsy, Theme::Dark, [width, height], |_| {});
        let way_out = |h: &egui_kittest::Harness<'_, crate::alone::Alone>| {
            let words = h.get_by_label_contains("What to free").rect();
            let segments = h.get_by_label("Segments with their holes").rect();
            let table = h.get_by_role_and_label(egui::accesskit::Role::Label, "Blockers").rect();
            assert!(words.left() >= 0.0 && words.right() <= width, "{words:?}");
            assert!(table.top() >= words.bottom() - 1.0, "the table stands under the words: {table:?} {words:?}");
            assert!(segments.top() < words.top());
            words
        };
        let before = way_out(&h);
        h.hover_at(egui::pos2(width - 60.0, height / 2.0));
        for _ in 0..6 {
            wheel(&mut h, -60.0);
        }
        assert!(way_out(&h).top() < before.top(), "it scrolls");
    }
}

/// The evidence that explains a finding is never cut. It takes as many lines as it needs.
#[test]
fn evidence_without_room_takes_more_lines() {
    let height = |width: f32| {
        let h = alone(&sample("kv_decode_oom.pickle.gz"), ViewKind::Findings, Theme::Dark, [width, 800.0], |_| {});
        h.get_by_label(&format!("cap of this process: 1.05 to 1.07{NBSP}GiB")).rect().height()
    };
    let [one, two, three] = [400.0, 240.0, 120.0].map(height);
    assert!(one < 21.0 && two > 30.0 && three > two + 10.0, "{one} {two} {three}");
}

#[test]
fn a_failure_offers_autopsy_and_what_if() {
    let mut h = alone(&sample("kv_decode_oom.pickle.gz"), ViewKind::Findings, Theme::Dark, [320.0, 800.0], |_| {});
    press(&mut h, "What-if");
    press(&mut h, "Open autopsy");
    let asked = &h.state().asked;
    assert!(asked.contains(&Action::TrySettings("expandable_segments:True".to_owned())), "{asked:?}");
    assert!(asked.contains(&Action::Run(Command::Workspace(Workspace::Autopsy))), "{asked:?}");
    assert!(asked.contains(&Action::GoTo(27_908)), "{asked:?}");
}
