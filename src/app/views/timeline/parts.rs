//! The lanes of boxes: annotations and steps, and what the program did; and what their tooltips say.

use egui::{Align2, Rangef, Rect, pos2, vec2};

use super::layout;
use super::marks::{Marks, Named, Range};
use super::paint::Canvas;
use super::picture::{StepBox, Window};
use super::under::Scene;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::tooltip::Tip;
use vramscope_core::anatomy::Phase;
use vramscope_core::anatomy::steps::number;
use vramscope_core::units::{Bytes, Micros, NBSP, count, counted};

/// What a phase is called in its box: in full, and where that does not fit.
fn lane_names(phase: Phase) -> [&'static str; 2] {
    match phase {
        Phase::Forward => ["forward", "fwd"],
        Phase::Backward => ["backward", "bwd"],
        Phase::Optimizer => ["optimizer", "optim"],
        Phase::Evaluation => ["evaluation", "eval"],
        Phase::Capture => ["graph capture", "capture"],
        other => [other.name(); 2],
    }
}

impl Canvas<'_> {
    /// What a range is called.
    pub fn range_name(&self, range: &Range) -> String {
        match range.named {
            Named::Annotation(_, name) => self.data.recording.stacks.text(name).to_owned(),
            Named::Step(n) => number(n as usize),
            Named::Phase(phase) => lane_names(phase)[0].to_owned(),
        }
    }

    /// Annotations and steps, a level under the other; steps that are only inferred are pale. `lit` is the annotation to stress.
    pub fn steps(&self, rect: Rect, boxes: &[StepBox], have: &Window, lit: Option<u32>, marks: Option<&Marks>) {
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
            // A name starts where its box can be seen.
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
            // A number has to be whole; a name may be cut.
            let wide = |text: &str| label::width(&painter, text, Type::Mono);
            if is_number {
                let Some(text) = said.iter().find(|text| wide(text) <= area.width()) else { continue };
                label::text(&painter, area.left_center(), Align2::LEFT_CENTER, text, Type::Mono, ink);
                if let Some(peak) = peak.filter(|peak| wide(text) + wide(peak) + 16.0 <= area.width()) {
                    label::text_in_right(&painter, area, &peak, Type::Mono, t.text3);
                }
            } else if let Some(text) = said.first() {
                label::text_in(&painter, area, text, Type::Caption, ink);
            }
        }
    }

    /// What a box of several annotations may be called, the most telling first: `0–10` of steps, `optimizer ×11` of ranges of one
    /// name, `×11`.
    fn names_of_many(&self, b: &StepBox) -> Vec<String> {
        let many = format!("×{}", count(u64::from(b.count)));
        match (b.first.named, b.last.named) {
            (Named::Step(first), Named::Step(last)) => {
                vec![format!("{}–{}", number(first as usize), number(last as usize)), many]
            }
            (Named::Annotation(_, first), Named::Annotation(_, last)) if first == last => {
                vec![format!("{}{NBSP}{many}", self.range_name(&b.first)), many]
            }
            _ => vec![many],
        }
    }

    /// Says of steps beyond the annotated ones what they are, below them: no annotation stands there.
    fn continued(&self, rect: Rect, boxes: &[StepBox], have: &Window, is_continued: impl Fn(&StepBox) -> bool) {
        const WORDS: &str = "continued from the annotations, inferred";
        let line = Rect::from_min_max(pos2(rect.left(), rect.top() + layout::STEP), rect.max);
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
            // Other annotations may stand there: the words take the first free place.
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

    /// The rectangle of an annotation; `None` when it is too deep or not in the window.
    pub fn step_rect(&self, lane: Rect, b: &StepBox, have: &Window) -> Option<Rect> {
        // A low pane has fewer levels than there may be.
        if usize::from(b.depth) >= layout::STEP_LEVELS || f32::from(b.depth) * layout::STEP + 1.0 > lane.height() {
            return None;
        }
        let step = (have.to - have.from) / have.columns.max(1) as f64;
        let at = |column: f32| self.x.at(have.from + f64::from(column) * step);
        let top = lane.top() + f32::from(b.depth) * layout::STEP;
        let (left, right) = (at(b.left), at(b.right));
        let gap = if right - left > 3.0 { 1.0 } else { 0.0 };
        let area = Rect::from_min_max(pos2(left, top), pos2(right - gap, top + layout::STEP - 1.0));
        (right >= lane.left() && left <= lane.right()).then_some(area)
    }

    /// What the program did: quiet boxes, each with its name where that fits; the one at the cursor stands out.
    pub fn phases(&self, rect: Rect, boxes: &[StepBox], have: &Window, at: u32) {
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
            let seen = area.intersect(rect).shrink2(vec2(6.0, 0.0));
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

impl Scene<'_> {
    /// What the tooltip of an annotation, a step, a phase or several of them says.
    pub fn range_tip(&self, b: &StepBox) -> Tip {
        let c = self.canvas;
        let data = c.data;
        let has_time = data.device().events.has_time;
        let name = match b.first.named {
            Named::Step(n) => format!("Step {}", number(n as usize)),
            Named::Phase(phase) => self.phase_name(phase, b.first.first),
            Named::Annotation(..) => c.range_name(&b.first),
        };
        let tip = match (b.count, b.first.named, b.last.named) {
            (1, ..) => Tip::new(if name.is_empty() { "unnamed range".to_owned() } else { name }),
            (many, Named::Step(first), Named::Step(last)) => {
                Tip::new(format!("Steps {} to {}", number(first as usize), number(last as usize)))
                    .row("steps", count(u64::from(many)))
            }
            (many, Named::Phase(_), _) => Tip::new(counted(u64::from(many), "phase", "phases")).row("first", name),
            (many, ..) => Tip::new(counted(u64::from(many), "range", "ranges")).row("first", name),
        };
        let (first, last) = b.events().unwrap_or((b.first.first, b.last.end));
        let tip = tip.row("events", format!("{} to {}", count(u64::from(first)), count(u64::from(last))));
        let lasts = Micros(b.last.to_us - b.first.from_us).to_string();
        let tip = if has_time { tip.row(if b.count > 1 { "last together" } else { "lasts" }, lasts) } else { tip };
        let tip = match b.peak {
            Some((bytes, event)) => tip.row("peak", format!("{} at event {}", Bytes(bytes), count(u64::from(event)))),
            None => tip,
        };
        if b.count > 1 {
            return tip.note("Too narrow to be drawn one by one. Zoom in to see them.");
        }
        match (b.first.named, self.marks) {
            (Named::Step(_), Some(marks)) if marks.is_inferred => {
                tip.note("Inferred: one call stack allocates once in every step.")
            }
            (Named::Step(n), Some(marks)) if marks.is_continued(n) => {
                let stack = data.known_steps().and_then(|s| s.continued_by);
                let by = stack.map_or("one call stack", |stack| data.names.of_stack(stack));
                tip.note(format!("Continued from the annotations, inferred: {by} allocates once in every annotated step."))
            }
            _ => tip,
        }
    }

    /// `Backward, step 2`.
    fn phase_name(&self, phase: Phase, event: u32) -> String {
        let [name, _] = lane_names(phase);
        let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        let steps = self.canvas.data.known_steps();
        match steps.filter(|steps| steps.len() > 1).and_then(|steps| steps.of(event)) {
            Some(step) => format!("{name}, step {}", number(step)),
            None => name,
        }
    }
}

/// The lower edge of a box that stands for many: teeth, as many as there are things as far as they can be told apart.
fn comb(batch: &mut Batch, area: Rect, count: u32, ink: egui::Color32) {
    let step = (area.width() / count.max(1) as f32).max(4.0);
    let teeth = (area.width() / step) as u32;
    for i in 1..=teeth {
        let x = area.left() + step * i as f32 - 1.0;
        if x < area.right() - 1.0 {
            batch.vline(x, Rangef::new(area.bottom() - 4.0, area.bottom()), 1.0, ink);
        }
    }
}
