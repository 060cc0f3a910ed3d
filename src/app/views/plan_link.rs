//! The way from a failure, and from the peak, to the plan.

use egui::Ui;

use super::ViewContext;
use crate::app::state::command::Command;
use crate::app::state::workspace::Workspace;
use crate::app::theme::Type;
use crate::app::widgets::button::link_with;
use vramscope_core::inference::whatif::WhatIf;
use vramscope_core::model::{DeviceKind, Format};

/// A link to the plan of the recording in front, where one can be made.
pub(super) fn plan_link(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    let is_planned = cx.data.recording.source.format == Format::Plan;
    if is_planned || matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) || !WhatIf::has_requests(device) {
        return;
    }
    ui.add_space(6.0);
    let about = "Plan: the largest size that fits, and changes to the program that make more fit.";
    if link_with(ui, "What would make it fit?", Type::Body, None).on_hover_text(about).clicked() {
        cx.actions.run(Command::Workspace(Workspace::Plan));
    }
}
