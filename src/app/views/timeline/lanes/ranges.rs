//! The lanes of steps and of phases: boxes of ranges, their rectangles, their tooltips.

use egui::{Pos2, Rangef, Rect, pos2, vec2};

use super::lane::{Choice, Hit, Lane, Shared};
use crate::app::state::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{self, Contents, Track};
use crate::app::views::timeline::marks::{Marks, Named, Range};
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::{StepBox, Window, extent};
use crate::app::widgets::{Batch, Tip, label};
use vramscope_core::anatomy::Phase;
use vramscope_core::anatomy::steps::number;
use vramscope_core::units::{Bytes, Micros, count, counted};

pub(super) struct Ranges {
    /// [`Track::Steps`] or [`Track::Phases`].
    track: Track,
    shared: Shared,
}

impl Ranges {
    pub fn of(track: Track) -> Self {
        Self { track, shared: Shared::default() }
    }

    fn boxes(&self) -> Option<(&[StepBox], &Window)> {
        let picture = self.shared.picture.as_ref()?;
        Some((if self.track == Track::Steps { &picture.steps } else { &picture.phases }, &picture.window))
    }

    fn at(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<StepBox> {
        let (boxes, window) = self.boxes()?;
        // The gap to the next box belongs to this box.
        let is_at = |b: &&StepBox| canvas.step_rect(rect, b, window).is_some_and(|r| r.with_max_x(r.right() + 1.0).contains(at));
        boxes.iter().filter(|_| window.axis == canvas.window.axis).find(is_at).copied()
    }
}

impl Lane for Ranges {
    fn track(&self) -> Track {
        self.track
    }

    fn height(&mut self, cx: &ViewContext<'_>, marks: Option<&Marks>, contents: &mut Contents) {
        if self.track == Track::Steps {
            let has_annotations = !cx.data.device().annotations.is_empty();
            contents.step_levels = marks.map_or(usize::from(has_annotations), |m| m.levels);
        } else {
            contents.phases = marks.is_some_and(|m| !m.phases.is_empty());
        }
    }

    fn prepare(&mut self, _cx: &ViewContext<'_>, _canvas: &Canvas<'_>, shared: &Shared) {
        self.shared = shared.clone();
    }

    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        let Some((boxes, window)) = self.boxes() else { return };
        if self.track == Track::Phases {
            canvas.phases(rect, boxes, window, cx.shared.cursor);
            return;
        }
        let lit = match cx.shared.selected() {
            Some(Item::Annotation(i)) => Some(i),
            _ => None,
        };
        canvas.steps(rect, boxes, window, lit, self.shared.marks.as_deref());
    }

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit> {
        Some(canvas.box_hit(self.track, &self.at(canvas, rect, at)?))
    }

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip> {
        Some(canvas.range_tip(&self.at(canvas, rect, at)?, self.shared.marks.as_deref()))
    }
}

/// The name of a phase in its box: in full, and abbreviated.
pub(super) fn lane_names(phase: Phase) -> [&'static str; 3] {
    match phase {
        Phase::Forward => ["forward", "fwd", "fwd"],
        Phase::Backward => ["backward", "bwd", "bwd"],
        Phase::Optimizer => ["optimizer", "optim", "opt"],
        Phase::Evaluation => ["evaluation", "eval", "eval"],
        Phase::Capture => ["graph capture", "capture", "capture"],
        other => [other.name(); 3],
    }
}

impl Canvas<'_> {
    pub(super) fn range_name(&self, range: &Range) -> String {
        match range.named {
            Named::Annotation(_, name) => self.data.recording.stacks.text(name).to_owned(),
            Named::Step(n) => number(n as usize),
            Named::Phase(phase) => lane_names(phase)[0].to_owned(),
        }
    }

    /// The rectangle of an annotation; `None` when it is too deep or outside the window.
    pub(super) fn step_rect(&self, lane: Rect, b: &StepBox, have: &Window) -> Option<Rect> {
        // A low pane shows fewer levels.
        if usize::from(b.depth) >= layout::STEP_LEVELS || f32::from(b.depth) * layout::STEP + 1.0 > lane.height() {
            return None;
        }
        let at = |column: f32| self.x.at(have.at(column.into()));
        let top = lane.top() + f32::from(b.depth) * layout::STEP;
        let (left, right) = (at(b.left), at(b.right));
        let gap = if right - left > 3.0 { 1.0 } else { 0.0 };
        let area = Rect::from_min_max(pos2(left, top), pos2(right - gap, top + layout::STEP - 1.0));
        (right >= lane.left() && left <= lane.right()).then_some(area)
    }

    /// What a click on a box does: selects an annotation, or chooses a step or phase as the range and moves the cursor to its
    /// peak.
    fn box_hit(&self, lane: Track, b: &StepBox) -> Hit {
        let item = match b.first.named {
            Named::Annotation(i, _) if b.count == 1 => Some(Item::Annotation(i)),
            _ => None,
        };
        let choice = |range: (u32, u32)| Choice { cursor: b.peak.map_or(range.0, |(_, event)| event), range: Some(range) };
        Hit { item, chooses: b.events().map(choice), extent: Some(extent(&b.first, self.window.axis)), ..Hit::told(lane) }
    }

    /// The tooltip of an annotation, a step, a phase or several of them.
    fn range_tip(&self, b: &StepBox, marks: Option<&Marks>) -> Tip {
        let data = self.data;
        let has_time = data.device().events.has_time;
        let name = match b.first.named {
            Named::Step(n) => format!("Step {}", number(n as usize)),
            Named::Phase(phase) => self.phase_name(phase, b.first.first),
            Named::Annotation(..) => self.range_name(&b.first),
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
        match (b.first.named, marks) {
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
        let [name, ..] = lane_names(phase);
        let name = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        let steps = self.data.known_steps();
        match steps.filter(|steps| steps.len() > 1).and_then(|steps| steps.of(event)) {
            Some(step) => format!("{name}, step {}", number(step)),
            None => name,
        }
    }
}

impl Canvas<'_> {
    /// When most ranges are too narrow for a name, draws one band with their number. Returns false when it did not.
    pub(super) fn crowd(&self, rect: Rect, boxes: &[StepBox], have: &Window, what: &str) -> bool {
        /// With this many ranges, most of them narrower than a number, boxes would be noise.
        const MANY: u64 = 40;
        const NARROW: f32 = 16.0;
        // Nested annotations say more than their number.
        if boxes.iter().any(|b| b.depth > 0) {
            return false;
        }
        let areas: Vec<Rect> = boxes.iter().filter_map(|b| self.step_rect(rect, b, have)).collect();
        // Several phases in one box have no name.
        let is_nameless = |b: &StepBox| b.count > 1 && matches!(b.first.named, Named::Phase(_));
        let narrow = areas.iter().zip(boxes).filter(|(area, b)| area.width() < NARROW || is_nameless(b)).count();
        let many: u64 = boxes.iter().map(|b| u64::from(b.count)).sum();
        if many < MANY || narrow * 4 < areas.len() * 3 {
            return false;
        }
        let (t, painter) = (self.tokens, self.within(rect));
        let all = areas.iter().fold(Rect::NOTHING, |all, area| all.union(*area)).intersect(rect);
        painter.rect_filled(all, 0, t.s3);
        let words = format!("{} {what}; zoom in to tell them apart", vramscope_core::units::count(many));
        label::text_in(&painter, all.shrink2(vec2(6.0, 0.0)), &words, Type::Caption, t.text2);
        true
    }
}

/// The lower edge of a box with many ranges: one tooth per range, as far as teeth can be told apart.
pub(super) fn comb(batch: &mut Batch, area: Rect, count: u32, ink: egui::Color32) {
    let step = (area.width() / count.max(1) as f32).max(4.0);
    let teeth = (area.width() / step) as u32;
    for i in 1..=teeth {
        let x = area.left() + step * i as f32 - 1.0;
        if x < area.right() - 1.0 {
            batch.vline(x, Rangef::new(area.bottom() - 4.0, area.bottom()), 1.0, ink);
        }
    }
}
