//! What a recording lacks: each place that mentions it links to the line of code that records it.

use std::sync::Arc;

use egui::Theme;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::data::device::{DeviceData, prepare};
use vramscope::app::state::{Action, Command, ViewKind};
use vramscope_core::model::{Progress, StackId};

use crate::alone::sample;
use crate::hand::click;
use crate::shared::wrapped;
use crate::whole::{Whole, opened, send};

const SIZE: [f32; 2] = [1400.0, 900.0];
const LINK: &str = "How to record it";

/// A sample without some of its contents.
fn without(name: &str, take: impl Fn(&mut vramscope_core::model::Recording)) -> Arc<DeviceData> {
    let mut recording = vramscope_core::model::Recording::clone(&sample(name).recording);
    take(&mut recording);
    let index = recording.busiest_device().expect("a device");
    prepare(&Arc::new(recording), index, &Progress::new()).expect("tables")
}

fn read(text: &str, name: &str) -> Arc<DeviceData> {
    let recording = vramscope_core::formats::read(text.as_bytes(), name, &Progress::new()).expect("a trace");
    prepare(&Arc::new(recording), 0, &Progress::new()).expect("tables")
}

/// Clicks the first visible link to the guide. The guide then shows this line to copy.
fn follow(h: &mut Whole, line: &str) {
    let at = h.query_all_by_label(LINK).next().expect("a link").rect().center();
    click(h, at);
    assert!(h.query_by_label("Guide").is_some(), "the guide is open");
    let guide = h.get_by_label("Guide").rect();
    let wells: Vec<egui::Rect> = h.query_all_by_label_contains(line).map(|n| n.rect()).collect();
    let is_seen = |well: &egui::Rect| well.left() > guide.left() + 100.0 && h.ctx.content_rect().contains_rect(*well);
    assert!(wells.iter().any(is_seen), "{line}: {wells:?}");
}

#[test]
fn a_recording_without_stacks_leads_to_the_line_that_records_them() {
    let bare = without("gpt_train.pickle", |r| {
        r.stacks = Default::default();
        for device in &mut r.devices {
            device.events.stack.fill(StackId::NONE);
            device.blocks.iter_mut().for_each(|block| block.stack = StackId::NONE);
            device.segments.iter_mut().for_each(|segment| segment.stack = StackId::NONE);
        }
    });
    let mut h = opened(&bare, Theme::Dark, SIZE);
    h.run_steps(12);
    follow(&mut h, "_record_memory_history(context=\"alloc\", stacks=\"python\")");
    assert!(h.query_by_label("This line records what is missing here:").is_some());
    // The recipe for the line is scrolled into view.
    let place = h.get_by_label("Plain PyTorch").rect();
    assert!(h.ctx.content_rect().contains_rect(place), "{place:?}");
}

#[test]
fn a_recording_without_events_leads_there_from_every_view_that_needs_them() {
    let state = without("leak.pickle", |r| r.devices[0].events = Default::default());
    for view in [ViewKind::Timeline, ViewKind::Heatmap, ViewKind::Events, ViewKind::WhatIf, ViewKind::Plan, ViewKind::Steps] {
        let mut h = crate::whole::only(&state, view, SIZE);
        h.run_steps(8);
        assert!(h.query_all_by_label(LINK).next().is_some(), "{view:?}");
    }
}

#[test]
fn a_trace_without_addresses_and_segments_leads_to_a_snapshot() {
    let events: Vec<String> = (0..40)
        .map(|i| {
            let total = 4096 * (i + 1);
            format!(
                r#"{{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{},"args":{{"Bytes":4096,"Device Id":0,"Device Type":1,"Total Allocated":{total},"Total Reserved":2097152}}}}"#,
                10 + i
            )
        })
        .collect();
    let data = read(&format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, events.join(",")), "bare.pt.trace.json");
    let mut h = crate::whole::only(&data, ViewKind::SegmentMap, SIZE);
    h.run_steps(8);
    if h.query_all_by_label(LINK).next().is_none() {
        panic!("the map of a trace says nothing of a snapshot");
    }
    let mut h = opened(&data, Theme::Light, SIZE);
    h.run_steps(8);
    follow(&mut h, "torch.");
}

#[test]
fn a_history_that_is_full_and_one_begun_late_lead_there_too() {
    // Memory that was live before the first event has no stack.
    let late = without("gpt_train.pickle", |r| {
        let device = &mut r.devices[0];
        *device = wrapped(device, device.events.len() - 400);
        device.events.notes.clear();
        device.blocks.iter_mut().for_each(|block| block.stack = StackId::NONE);
    });
    let mut h = opened(&late, Theme::Dark, SIZE);
    h.run_steps(12);
    follow(&mut h, "_record_memory_history(context=\"alloc\")");
}

#[test]
fn a_complete_recording_has_no_such_link_in_its_overview() {
    let mut h = opened(&sample("gpt_train.pickle"), Theme::Dark, SIZE);
    send(&mut h, Action::Run(Command::Show(ViewKind::Memory)));
    assert!(h.query_all_by_label(LINK).next().is_none());
}
