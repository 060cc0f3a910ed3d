//! Draws the lane of phases: what the program did, derived from call stacks.

use egui::{Align2, Rect, vec2};

use super::ranges::{comb, lane_names};
use crate::app::theme::Type;
use crate::app::views::timeline::marks::Named;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::{StepBox, Window};
use crate::app::widgets::{Batch, label};
use vramscope_core::anatomy::Phase;

impl Canvas<'_> {
    /// Draws phases as quiet boxes with names where they fit. The phase at the cursor stands out.
    pub(super) fn phases(&self, rect: Rect, boxes: &[StepBox], have: &Window, at: u32) {
        let t = self.tokens;
        self.name(rect, "Phases", "");
        if have.axis != self.window.axis {
            return;
        }
        if self.crowd(rect, boxes, have, "phases") {
            return;
        }
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        let mut names = Vec::new();
        for b in boxes {
            let Some(area) = self.step_rect(rect, b, have) else { continue };
            let Named::Phase(phase) = b.first.named else { continue };
            let fill = match phase {
                _ if b.count > 1 => t.s3,
                Phase::Backward => t.s4,
                Phase::Optimizer | Phase::Capture => t.line2,
                Phase::Load | Phase::Forward | Phase::Evaluation | Phase::Generation | Phase::Between => t.s3,
            };
            batch.rect_at_least_a_pixel(area, fill);
            // A narrow box has room for a short name alone.
            let margin = if area.width() < 40.0 { 2.0 } else { 6.0 };
            let seen = area.intersect(rect).shrink2(vec2(margin, 0.0));
            if b.count > 1 {
                comb(&mut batch, area, b.count, t.s1);
            } else if seen.width() >= 6.0 {
                names.push((seen, phase, (b.first.first..b.first.end).contains(&at)));
            }
        }
        batch.paint(&painter);
        for (area, phase, is_here) in names {
            let (kind, ink) = if is_here { (Type::Strong, t.text1) } else { (Type::Caption, t.text2) };
            if let Some(text) = lane_names(phase).iter().find(|text| label::width(&painter, text, kind) <= area.width()) {
                label::text(&painter, area.left_center(), Align2::LEFT_CENTER, text, kind, ink);
            }
        }
    }
}
