//! The lane of phases: what the program did, derived from call stacks.

use std::sync::Arc;

use egui::{Align2, Pos2, Rect, vec2};

use super::lane::{Hit, Lane, Shared};
use super::ranges::{comb, lane_names};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{Contents, Track};
use crate::app::views::timeline::marks::{Marks, Named};
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::{StepBox, Window, WindowPicture};
use crate::app::widgets::{Batch, Tip, label};
use vramscope_core::anatomy::Phase;

#[derive(Default)]
pub(super) struct Phases {
    marks: Option<Arc<Marks>>,
    picture: Option<Arc<WindowPicture>>,
}

impl Phases {
    fn at(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<StepBox> {
        let picture = self.picture.as_ref()?;
        canvas.box_at(rect, &picture.phases, &picture.window, at)
    }
}

impl Lane for Phases {
    fn track(&self) -> Track {
        Track::Phases
    }

    fn height(&mut self, _cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents) {
        contents.phases = marks.is_some_and(|m| !m.phases.is_empty());
    }

    fn prepare(&mut self, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, shared: &Shared) {
        (self.marks, self.picture) = (shared.marks.clone(), shared.picture.clone());
    }

    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        let Some(picture) = &self.picture else { return };
        canvas.phases(rect, &picture.phases, &picture.window, cx.shared.cursor);
    }

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit> {
        Some(canvas.box_hit(self.track(), &self.at(canvas, rect, at)?))
    }

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip> {
        Some(canvas.range_tip(&self.at(canvas, rect, at)?, self.marks.as_deref()))
    }
}

impl Canvas<'_> {
    /// Draws phases as quiet boxes with names where they fit. The phase at the cursor stands out.
    fn phases(&self, rect: Rect, boxes: &[StepBox], have: &Window, at: u32) {
        let t = self.tokens;
        self.name(rect, "Phases", "");
        if have.axis != self.window.axis {
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
