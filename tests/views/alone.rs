//! A single view in a pane, for pictures that do not depend on other views.

use std::path::Path;
use std::sync::Arc;

use crate::pictures::builder;
use egui::{Pos2, Rect, Theme};
use egui_kittest::{Harness, SnapshotOptions};
use vramscope::app::data::colours::Colours;
use vramscope::app::data::compare::Comparing;
use vramscope::app::data::device;
use vramscope::app::data::device::DeviceData;
use vramscope::app::jobs::Jobs;
use vramscope::app::state::{Action, Actions, Item, SharedViewState, ViewKind};
use vramscope::app::theme::{self, Tokens};
use vramscope::app::views::{View, ViewContext};
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::diagnose::findings::diagnose;
use vramscope_core::formats;
use vramscope_core::model::{Progress, StackId};

/// The busiest device of a bundled sample.
pub fn sample(name: &str) -> Arc<DeviceData> {
    recorded(&format!("sample_snapshots/{name}"))
}

/// A recording of this repository by its path, on its busiest device.
pub fn recorded(path: &str) -> Arc<DeviceData> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let progress = Progress::new();
    let recording = Arc::new(formats::open(&path, &progress).expect("a bundled recording"));
    let index = recording.busiest_device().expect("a device");
    device::prepare(&recording, index, &progress).expect("not cancelled")
}

/// A view and the actions it sent.
pub struct Alone {
    pub view: Box<dyn View>,
    pub asked: Vec<Action>,
}

/// A view of a device over a whole window. Everything is computed synchronously.
pub fn alone(
    data: &Arc<DeviceData>,
    kind: ViewKind,
    theme: Theme,
    size: [f32; 2],
    change: impl FnOnce(&mut SharedViewState),
) -> Harness<'static, Alone> {
    scaled(data, kind, theme, (size, 1.0), change)
}

/// The same with a size in points and a number of pixels per point.
pub fn scaled(
    data: &Arc<DeviceData>,
    kind: ViewKind,
    theme: Theme,
    (size, scale): ([f32; 2], f32),
    change: impl FnOnce(&mut SharedViewState),
) -> Harness<'static, Alone> {
    let data = Arc::clone(data);
    let mut link = SharedViewState::new(data.device());
    change(&mut link);
    let colours = Arc::new(Colours::build(&data, link.colour_by));
    let state = Arc::new(data.tables.states.at(data.device(), &data.tables.lifetimes, link.cursor));
    let findings = matches!(kind, ViewKind::Findings | ViewKind::Memory).then(|| {
        let found = diagnose(&data.recording, data.device(), &data.tables, &data.names, &Rules::default(), &Progress::new());
        Arc::new(found.expect("not cancelled"))
    });
    let (actions, inbox) = Actions::channel();
    let jobs = Jobs::synchronous();
    let comparing = Comparing::default();
    // How other views show roles has its own pictures.
    let roles = matches!(kind, ViewKind::Compare | ViewKind::Flame | ViewKind::Autopsy | ViewKind::Memory).then(|| {
        let (rules, progress) = (Rules::default(), Progress::new());
        Arc::new(Roles::build(&data.recording, data.device(), &data.tables, &rules, &progress).expect("not cancelled"))
    });
    let draw = move |ui: &mut egui::Ui, alone: &mut Alone| {
        let tokens = Tokens::of_theme(theme);
        let cx = ViewContext {
            data: &data,
            shared: &link,
            state: Some(&state),
            findings: findings.as_ref(),
            roles: roles.as_ref(),
            matching: None,
            colours: &colours,
            comparing: &comparing,
            tokens,
            actions: &actions,
            jobs: &jobs,
            source_folders: &[],
        };
        let area = Rect::from_min_size(Pos2::ZERO, size.into());
        ui.painter().rect_filled(area, 0, tokens.s1);
        let mut pane = ui.new_child(egui::UiBuilder::new().max_rect(area));
        alone.view.ui(&mut pane, &cx);
        alone.asked.extend(inbox.try_iter());
    };
    // A changed digit differs in about a dozen pixels.
    let options = SnapshotOptions::new().threshold(0.6).max_failed_pixels(10);
    let builder = builder()
        .with_size(size)
        .with_pixels_per_point(scale)
        .with_theme(theme)
        .with_options(options)
        .with_step_dt(0.05)
        .with_render_cursor(false)
        .with_context_setup(theme::install);
    let mut h = builder.build_ui_state(draw, Alone { view: (kind.info().create)(), asked: Vec::new() });
    h.run_steps(4);
    h
}

/// The first stack that the view asked to select.
pub fn selected_stack(h: &Harness<'_, Alone>) -> Option<StackId> {
    h.state().asked.iter().find_map(|a| match a {
        Action::Select(Some(Item::Stack(stack))) => Some(*stack),
        _ => None,
    })
}
