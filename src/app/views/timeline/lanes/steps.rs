//! Draws the lane of annotations and steps, one level below the other.

use egui::{Align2, Rect, pos2, vec2};

use super::ranges::comb;
use crate::app::theme::{Tokens, Type};
use crate::app::views::timeline::layout;
use crate::app::views::timeline::marks::{Marks, Named};
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::{StepBox, Window};
use crate::app::widgets::{Batch, label};
use vramscope_core::anatomy::steps::number;
use vramscope_core::units::{Bytes, NBSP, count};

impl Canvas<'_> {
    /// Draws annotations and steps by level. Inferred steps are pale. `lit` is the annotation to emphasise.
    pub(super) fn steps(&self, rect: Rect, boxes: &[StepBox], have: &Window, lit: Option<u32>, marks: Option<&Marks>) {
        let t = self.tokens;
        let is_continued = |b: &StepBox| match b.first.named {
            Named::Step(n) => marks.is_some_and(|m| m.is_continued(n)),
            Named::Annotation(..) | Named::Phase(_) => false,
        };
        self.name(rect, "Steps", if boxes.iter().any(is_continued) { "partly inferred" } else { "" });
        if marks.is_some_and(|m| m.is_inferred) && rect.left() - self.pane.left() >= 100.0 {
            let at = pos2(self.pane.left() + 46.0, rect.top() + 8.0);
            label::text(self.painter, at, Align2::LEFT_CENTER, "inferred", Type::Caption, t.text3);
        }
        if have.axis != self.window.axis {
            return;
        }
        let are_steps = boxes.iter().all(|b| matches!(b.first.named, Named::Step(_)));
        if self.crowd(rect, boxes, have, if are_steps { "steps" } else { "ranges" }) {
            return;
        }
        let painter = self.within(rect);
        let mut batch = Batch::new(&painter);
        let mut names = Vec::new();
        for b in boxes {
            let Some(area) = self.step_rect(rect, b, have) else { continue };
            let is_lit = matches!(b.first.named, Named::Annotation(i, _) if lit == Some(i)) && b.count == 1;
            let is_step = matches!(b.first.named, Named::Step(_));
            let fill = if b.count > 1 { t.other } else { t.s4 };
            let pale = is_continued(b);
            batch.rect_at_least_a_pixel(area, if pale { Tokens::at(fill, 0.45) } else { fill });
            if is_lit {
                batch.outline(area, 1.0, t.text1);
            }
            if b.count > 1 {
                comb(&mut batch, area, b.count, if pale { Tokens::at(t.s1, 0.6) } else { t.s1 });
            }
            // A name starts at the visible part of its box.
            let seen = area.intersect(rect).shrink2(vec2(4.0, 0.0));
            let said = if b.count == 1 { vec![self.range_name(&b.first)] } else { self.names_of_many(b) };
            if seen.width() >= 6.0 {
                let peak = b.peak.filter(|_| b.count == 1).map(|(bytes, _)| format!("peak {}", Bytes(bytes)));
                names.push((seen, said, b.count > 1 || is_step, peak, if pale { t.text2 } else { t.text1 }));
            }
        }
        batch.paint(&painter);
        self.continued(rect, boxes, have, is_continued);
        for (area, said, is_number, peak, ink) in names {
            // A number must be shown whole; a name may be cut.
            let wide = |text: &str| label::width(&painter, text, Type::Mono);
            if is_number {
                let Some(text) = said.iter().find(|text| wide(text) <= area.width()) else { continue };
                label::text(&painter, area.left_center(), Align2::LEFT_CENTER, text, Type::Mono, ink);
                if let Some(peak) = peak.filter(|peak| wide(text) + wide(peak) + 16.0 <= area.width()) {
                    label::figure(&painter, area, &peak, t.text3);
                }
            } else if let Some(text) = said.first() {
                label::text_in(&painter, area, text, Type::Caption, ink);
            }
        }
    }

    /// Possible names of a box of several annotations, most telling first: `0–10`, `from 0` or `11 steps` for steps, `optimizer, 11 ranges` for
    /// ranges of one name, `11 ranges`.
    fn names_of_many(&self, b: &StepBox) -> Vec<String> {
        let what = if matches!(b.first.named, Named::Step(_)) { "steps" } else { "ranges" };
        let many = format!("{}{NBSP}{what}", count(u64::from(b.count)));
        match (b.first.named, b.last.named) {
            (Named::Step(first), Named::Step(last)) => {
                let first = number(first as usize);
                vec![format!("{first}–{}", number(last as usize)), format!("from {first}"), many]
            }
            (Named::Annotation(_, first), Named::Annotation(_, last)) if first == last => {
                vec![format!("{}, {many}", self.range_name(&b.first)), many]
            }
            _ => vec![many],
        }
    }

    /// Labels steps beyond the annotated ones as inferred, in the free level below them.
    fn continued(&self, rect: Rect, boxes: &[StepBox], have: &Window, is_continued: impl Fn(&StepBox) -> bool) {
        const WORDS: &str = "continued from the annotations, inferred";
        let line = rect.with_min_y(rect.top() + layout::STEP);
        if line.height() < layout::STEP - 1.0 {
            return;
        }
        let painter = self.within(rect);
        let needs = label::width(&painter, WORDS, Type::Caption) + 8.0;
        let seen = |b: &StepBox| self.step_rect(rect, b, have).map(|area| area.intersect(rect).x_range());
        let below: Vec<_> = boxes.iter().filter(|b| b.depth == 1).filter_map(seen).collect();
        // Stretches of inferred steps: before the annotated ones, after them, or both.
        let mut stretches: Vec<egui::Rangef> = Vec::new();
        let mut goes_on = false;
        for b in boxes.iter().filter(|b| b.depth == 0) {
            let inferred = is_continued(b);
            if let (true, Some(x)) = (inferred, seen(b)) {
                match stretches.last_mut() {
                    Some(last) if goes_on => last.max = last.max.max(x.max),
                    _ => stretches.push(x),
                }
            }
            goes_on = inferred;
        }
        for stretch in stretches {
            // Other annotations may be there, so the label takes the first free place.
            let mut at = stretch.min;
            for taken in below.iter().filter(|x| x.max > stretch.min && x.min < stretch.max) {
                if taken.min - at >= needs {
                    break;
                }
                at = at.max(taken.max);
            }
            if stretch.max - at >= needs {
                let at = pos2(at + 4.0, line.top() + layout::STEP / 2.0);
                label::text(&painter, at, Align2::LEFT_CENTER, WORDS, Type::Caption, self.tokens.text3);
            }
        }
    }
}
