//! A link from a failure or the peak to what would make the program fit.

use egui::Ui;

use super::ViewContext;
use crate::app::state::{Action, Command, Workspace};
use crate::app::theme::Type;
use crate::app::widgets::label::paragraph;
use crate::app::widgets::link_with;
use vramscope_core::inference::whatif::WhatIf;
use vramscope_core::model::{DeviceKind, Format};
use vramscope_core::plan::may_be_planned;
use vramscope_core::units::Bytes;

/// A link to the recording's plan, or to What-if when no plan can be made.
pub(super) fn plan_link(ui: &mut Ui, cx: &ViewContext<'_>) {
    let device = cx.data.device();
    if cx.data.recording.source.format == Format::Plan {
        ui.add_space(6.0);
        if let Some(needs) = device.needs {
            let words = format!(
                "All of this predicted run needs {}. What is told here ends at the first request past the limit.",
                Bytes(needs)
            );
            paragraph(ui, &words, Type::Body, cx.tokens.amber);
        }
        let about = "What fits, and what would make this size fit.";
        if link_with(ui, "Back to the plan", Type::Body, None).on_hover_text(about).clicked() {
            cx.actions.send(Action::BackToPlan);
        }
        return;
    }
    if matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) || !WhatIf::has_requests(device) {
        return;
    }
    ui.add_space(6.0);
    // Plan needs a program with a step that repeats. What-if works for any requests.
    let is_planned = cx.roles.is_none_or(|roles| may_be_planned(device, roles));
    let (workspace, about) = match is_planned {
        true => (Workspace::Plan, "Plan: the largest size that fits, and changes to the program that make more fit."),
        false => (Workspace::WhatIf, "What-if: the settings and the cap under which these requests are served."),
    };
    if link_with(ui, "What would make it fit?", Type::Body, None).on_hover_text(about).clicked() {
        cx.actions.run(Command::Workspace(workspace));
    }
}
