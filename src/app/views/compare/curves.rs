//! The memory in use on both sides in one plot, aligned by step, by an annotation's ranges, from the start, or by time.

use std::sync::Arc;

use egui::{Rect, Role, Sense, Ui, pos2, vec2};
use rustc_hash::FxHashMap;

use crate::app::data::compare::{Compared, Side, split_title};
use crate::app::data::device::DeviceData;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{
    Batch, Cut, DASH_MARKER, PixelColumn, Scale, Swatch, Tip, UnitAt, axis, label, paint_marker_label, pane, told_at,
};
use vramscope_core::anatomy::steps::{kind, number};
use vramscope_core::tables::{Cell, Quantity};
use vramscope_core::units::{Bytes, count};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// The step that contains each side's instant.
    Step,
    Steps,
    /// From the first event.
    Start,
    /// By time since the first event.
    Time,
    /// By the ranges of an annotation. Within one recording: from the range before each side's instant to the next range. Between
    /// two recordings: all ranges, one after the other.
    Annotation(String),
}

impl Align {
    /// Alignments that need no annotation, in menu order.
    const PLAIN: [Align; 4] = [Align::Step, Align::Steps, Align::Start, Align::Time];

    /// The useful alignments, in menu order. Within one recording most would draw the same curve twice.
    pub fn choices(is_one: bool, kinds: &[String]) -> Vec<Align> {
        let plain = if is_one { &Self::PLAIN[..1] } else { &Self::PLAIN[..] };
        plain.iter().cloned().chain(kinds.iter().cloned().map(Align::Annotation)).collect()
    }

    pub fn name(&self) -> String {
        match self {
            Align::Step => "this step".to_owned(),
            Align::Steps => "all steps".to_owned(),
            Align::Start => "from the start".to_owned(),
            Align::Time => "by time".to_owned(),
            Align::Annotation(name) => format!("by {name}"),
        }
    }
}

/// Most names of annotations offered.
const KINDS: usize = 24;

/// Names of annotations that both sides have, without their numbers. The rarest come first, because a step is rarer than the
/// ranges inside it.
pub(super) fn kinds(compared: &Compared) -> Vec<String> {
    let count = |side: &Side| {
        let mut found: FxHashMap<String, usize> = FxHashMap::default();
        let device = side.data.device();
        for a in device.annotations.iter().filter(|_| device.events.has_time) {
            *found.entry(kind(side.data.recording.stacks.text(a.name)).to_owned()).or_default() += 1;
        }
        found
    };
    let [a, b] = [count(&compared.sides[0]), count(&compared.sides[1])];
    let mut both: Vec<(usize, String)> = a
        .into_iter()
        .filter_map(|(name, n)| Some(((*b.get(&name)?).max(n), name)))
        .filter(|(_, name)| !name.is_empty())
        .collect();
    both.sort();
    both.into_iter().take(KINDS).map(|(_, name)| name).collect()
}

/// The starts of all ranges of a name, and the end of the last one. A range inside another of the same name is not counted.
fn places(data: &DeviceData, name: &str) -> Vec<u32> {
    let device = data.device();
    let times = &device.events.time_us;
    let mut ranges: Vec<(u32, u32)> = device
        .annotations
        .iter()
        .filter(|a| kind(data.recording.stacks.text(a.name)) == name)
        .map(|a| {
            let from = times.partition_point(|&t| t < a.start_us) as u32;
            (from, a.end_us.map_or(from, |end| times.partition_point(|&t| t <= end) as u32).max(from))
        })
        .collect();
    ranges.sort_unstable();
    let mut bounds = Vec::with_capacity(ranges.len() + 1);
    let mut end = 0;
    for (from, to) in ranges {
        if bounds.is_empty() || (from >= end && bounds.last() != Some(&from)) {
            bounds.push(from);
        }
        end = end.max(to);
    }
    if bounds.last().is_some_and(|&b| end > b) {
        bounds.push(end);
    }
    bounds
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    compared: Identity,
    align: Align,
    columns: usize,
}

/// Two curves on one axis.
pub(super) struct Lines {
    /// Length of the axis, in its units.
    length: f64,
    /// For A and B: one cell per column; `None` past the end.
    cells: [Vec<Option<Cell>>; 2],
    /// Positions of A and B on the axis.
    marks: [f64; 2],
    unit: Unit,
    /// Why the wanted alignment is not possible, or what it leaves out.
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Events,
    /// Steps, or ranges of an annotation.
    Steps,
    Time,
}

/// One side's axis: which event belongs to each position.
struct Course<'a> {
    data: &'a DeviceData,
    /// The starts of its steps or ranges, and the end of the last one.
    bounds: &'a [u32],
    /// The step that contains the side's instant.
    step: (u32, u32),
    event: u32,
}

impl Course<'_> {
    fn events(&self) -> u32 {
        self.data.device().events.len() as u32
    }

    fn time(&self, event: u32) -> f64 {
        let times = &self.data.device().events.time_us;
        let first = times.first().copied().unwrap_or(0);
        times.get((event as usize).min(times.len().saturating_sub(1))).map_or(0.0, |&t| (t - first) as f64)
    }

    fn length(&self, align: &Align) -> f64 {
        match align {
            Align::Step => f64::from(self.step.1 - self.step.0),
            Align::Steps | Align::Annotation(_) => self.bounds.len().saturating_sub(1) as f64,
            Align::Start => f64::from(self.events()),
            Align::Time => self.time(u32::MAX),
        }
    }

    /// The first event at or after a position. Past the end it is the end of the side's events.
    fn event_at(&self, align: &Align, x: f64) -> u32 {
        match align {
            Align::Step => self.step.0.saturating_add(x.ceil() as u32).min(self.step.1),
            Align::Steps | Align::Annotation(_) => {
                let step = (x as usize).min(self.bounds.len().saturating_sub(2));
                let (Some(&from), Some(&to)) = (self.bounds.get(step), self.bounds.get(step + 1)) else { return 0 };
                let share = (x - step as f64).clamp(0.0, 1.0);
                from + (f64::from(to - from) * share).ceil() as u32
            }
            Align::Start => (x.ceil() as u32).min(self.events()),
            Align::Time => {
                let times = &self.data.device().events.time_us;
                let first = times.first().copied().unwrap_or(0);
                times.partition_point(|&t| ((t - first) as f64) < x) as u32
            }
        }
    }

    /// Position of the side's instant on the axis.
    fn mark(&self, align: &Align) -> f64 {
        match align {
            Align::Step => f64::from(self.event.saturating_sub(self.step.0)) + 0.5,
            Align::Steps | Align::Annotation(_) => {
                let after = self.bounds.partition_point(|&b| b <= self.event);
                match (after.checked_sub(1).and_then(|at| self.bounds.get(at)), self.bounds.get(after)) {
                    (Some(&from), Some(&to)) => (after - 1) as f64 + f64::from(self.event - from) / f64::from((to - from).max(1)),
                    // The instant is outside all ranges, so its mark is at the edge.
                    (Some(_), None) => self.length(align),
                    (None, _) => 0.0,
                }
            }
            Align::Start => f64::from(self.event) + 0.5,
            Align::Time => self.time(self.event),
        }
    }

    /// One cell for each of `columns` columns over `length`.
    fn cells(&self, align: &Align, length: f64, columns: usize) -> Vec<Option<Cell>> {
        let place = |i: usize| length * i as f64 / columns as f64;
        let bounds: Vec<u32> = (0..=columns).map(|i| self.event_at(align, place(i))).collect();
        let own = self.length(align);
        let cells = self.data.tables.curves.columns(self.data.device(), &self.data.tables.lifetimes, Quantity::Active, &bounds);
        cells.into_iter().enumerate().map(|(i, c)| (place(i) < own).then_some(c)).collect()
    }
}

/// Both sides are instants of one device of one recording.
pub(super) fn is_one(compared: &Compared) -> bool {
    Arc::ptr_eq(&compared.sides[0].data, &compared.sides[1].data)
}

fn compute(compared: &Arc<Compared>, wanted: Align, columns: usize) -> Lines {
    let steps = [0, 1].map(|i: usize| compared.sides[i].data.steps());
    let step_of = |i: usize| {
        let step = steps[i].of(compared.sides[i].event)?;
        Some((steps[i].bounds[step], steps[i].bounds[step + 1]))
    };
    let mut found = [step_of(0), step_of(1)];
    let is_one = is_one(compared);
    let has_time = compared.sides.iter().all(|s| s.data.device().events.has_time);
    let instead = |sentence: &str| Some(sentence.to_owned());
    let mut bounds = steps.map(|s| s.bounds.clone());
    let (align, note) = match wanted {
        Align::Step if found.contains(&None) => {
            (Align::Start, instead("one side is in no step: laid over each other from the start"))
        }
        Align::Steps if steps.iter().any(|s| s.is_empty()) => {
            (Align::Start, instead("one side has no steps: laid over each other from the start"))
        }
        Align::Time if !has_time => (Align::Start, instead("one side has no times: laid over each other by event")),
        Align::Annotation(name) => {
            bounds = [0, 1].map(|i: usize| places(&compared.sides[i].data, &name));
            let [a, b] = [0, 1].map(|i: usize| bounds[i].len().saturating_sub(1));
            if is_one {
                found = [0, 1].map(|i: usize| {
                    let after = bounds[i].partition_point(|&b| b <= compared.sides[i].event);
                    Some((*bounds[i].get(after.checked_sub(1)?)?, *bounds[i].get(after)?))
                });
            }
            if is_one && found.contains(&None) {
                let sentence = format!("A or B lies in or after no range called {name}: laid over each other from the start");
                (Align::Start, Some(sentence))
            } else if is_one {
                (Align::Step, Some(format!("from the last {name} before A and B to the next one")))
            } else if a == 0 || b == 0 {
                let sentence = format!("one side has no range called {name}: laid over each other from the start");
                (Align::Start, Some(sentence))
            } else {
                let outside = |i: usize| {
                    let inside = bounds[i][bounds[i].len() - 1] - bounds[i][0];
                    count(u64::from((compared.sides[i].data.device().events.len() as u32).saturating_sub(inside)))
                };
                let note = format!(
                    "{name}: {} in A, {} in B; {} and {} events before the first and after the last are left out",
                    count(a as u64),
                    count(b as u64),
                    outside(0),
                    outside(1)
                );
                (Align::Annotation(name), Some(note))
            }
        }
        other => (other, None),
    };
    let course = |i: usize| Course {
        data: &compared.sides[i].data,
        bounds: &bounds[i],
        step: found[i].unwrap_or((0, 0)),
        event: compared.sides[i].event.min((compared.sides[i].data.device().events.len() as u32).saturating_sub(1)),
    };
    let courses = [course(0), course(1)];
    let length = courses.iter().map(|c| c.length(&align)).fold(1.0, f64::max);
    Lines {
        length,
        cells: [courses[0].cells(&align, length, columns), courses[1].cells(&align, length, columns)],
        marks: [courses[0].mark(&align), courses[1].mark(&align)],
        unit: match align {
            Align::Steps | Align::Annotation(_) => Unit::Steps,
            Align::Time => Unit::Time,
            Align::Step | Align::Start => Unit::Events,
        },
        note,
    }
}

pub(super) fn show(
    ui: &mut Ui,
    cx: &ViewContext<'_>,
    compared: &Arc<Compared>,
    align: &Align,
    derived: &mut Derived<Key, Lines>,
) {
    let t = cx.tokens;
    let area = ui.max_rect();
    let plot = area.inset(84.0, 40.0, 18.0, 12.0);
    if plot.width() < 40.0 || plot.height() < 40.0 {
        return;
    }
    let columns = ((plot.width() * ui.ctx().pixels_per_point()).round() as usize).max(1);
    let key = Key { compared: Identity::of(compared), align: align.clone(), columns };
    let (of, wanted) = (Arc::clone(compared), align.clone());
    let shown = derived.get(cx.jobs, "curves of Compare", &key, move |_| Some(compute(&of, wanted, columns)));
    let Some(lines) = pane::newest(ui, shown) else { return };
    let response = told_at(ui, plot, "curves", Sense::hover(), Role::Canvas, || "Memory in use on both sides");
    let painter = ui.painter().clone();
    let top = lines.cells.iter().flatten().flatten().map(|c| c.max).max().unwrap_or(1).max(1) as f64 * 1.08;
    let (x, y) = (Scale::horizontal(0.0, lines.length, plot.x_range()), Scale::vertical(0.0, top, plot.y_range()));
    // Step numbers start at 1.
    let first = if lines.unit == Unit::Steps { 1.0 } else { 0.0 };
    let numbered = Scale::horizontal(first, lines.length + first, plot.x_range());
    let mut batch = Batch::new(&painter);
    let up = axis::byte_ticks(0.0, top, axis::most_down(plot.height()));
    let across = match lines.unit {
        Unit::Time => axis::time_ticks(0.0, lines.length, axis::most_across(plot.width())),
        _ => axis::event_ticks(first, lines.length + first, axis::most_across(plot.width())),
    };
    up.grid_down(&mut batch, t, &y, plot);
    let inks = [t.text2, t.slot(0)];
    let profile =
        |cells: &[Option<Cell>]| -> Vec<_> { cells.iter().map(|c| c.as_ref().map(|c| PixelColumn::of(c, &y))).collect() };
    batch.fill_under(&profile(&lines.cells[1]), plot.left(), plot.bottom(), Tokens::at(inks[1], 0.18));
    for which in 0..2 {
        batch.curve(&profile(&lines.cells[which]), plot.left(), 1.25, inks[which]);
    }
    batch.dashed_vline(x.at(lines.marks[0]), plot.y_range(), 1.0, DASH_MARKER, t.text1);
    batch.vline(x.at(lines.marks[1]), plot.y_range(), 1.0, t.text1);
    batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
    batch.paint(&painter);
    // Labels that would overlap move apart.
    let feet = [x.at(lines.marks[0]), x.at(lines.marks[1])];
    let (gap, middle) = ((feet[1] - feet[0]).abs(), f32::midpoint(feet[0], feet[1]));
    let side = if feet[0] <= feet[1] { 9.0 } else { -9.0 };
    let feet = if gap < 18.0 { [middle - side, middle + side] } else { feet };
    for (foot, name) in feet.into_iter().zip(["A", "B"]) {
        paint_marker_label(&painter, t, pos2(foot, plot.top()), name);
    }
    up.paint_down(&painter, t, &y, plot.left() - 8.0, plot.y_range(), UnitAt::First);
    let strip = plot.down(area.top(), plot.top() - 16.0);
    across.paint_across(&painter, t, &numbered, strip, UnitAt::First);
    legend(&painter, t, compared, &lines, pos2(plot.left() + 10.0, plot.top() + 14.0), inks);
    if let Some(at) = response.hover_pos() {
        let column = ((x.value(at.x) / lines.length * columns as f64) as usize).min(columns - 1);
        let place = x.value(at.x);
        let mut tip = Tip::new(match lines.unit {
            Unit::Steps => match align {
                Align::Annotation(name) => format!("{name} {}", number(place as usize)),
                _ => format!("Step {}", number(place as usize)),
            },
            Unit::Events if *align == Align::Step => format!("Event {} of the step", count(place as u64)),
            Unit::Events if *align != Align::Start => format!("Event {} of the range", count(place as u64)),
            Unit::Events => format!("Event {}", count(place as u64)),
            Unit::Time => vramscope_core::units::Micros(place as i64).to_string(),
        });
        for (which, name) in ["A", "B"].into_iter().enumerate() {
            let value = lines.cells[which].get(column).copied().flatten();
            tip = tip.row(name, value.map_or_else(|| "past its end".to_owned(), |c| Bytes(c.last).to_string()));
        }
        tip.show_within(&response, at, area);
    }
}

/// The name of a curve, which shows more than the instant of its flag.
fn of_curve(title: &str, name: &str, is_one: bool) -> String {
    match split_title(title) {
        Some((whole, instant)) => format!("in use, {whole}; {name} stands {instant}"),
        None if is_one => format!("in use in the step of {name}, {title}"),
        None => format!("in use, {name}: {title}"),
    }
}

fn legend(painter: &egui::Painter, t: &Tokens, compared: &Compared, lines: &Lines, at: egui::Pos2, inks: [egui::Color32; 2]) {
    let mut y = at.y;
    // The text gets a background, so that the curves do not run through it.
    let ground = |left: f32, y: f32, text: &str, most: f32| {
        let width = label::width(painter, text, Type::Caption).min(most);
        let rect = Rect::from_min_max(pos2(at.x - 6.0, y - 9.0), pos2(left + width + 6.0, y + 9.0));
        painter.rect_filled(rect, 0, Tokens::at(t.s1, 0.88));
        Rect::from_min_size(pos2(left, y - 8.0), vec2(most, 16.0))
    };
    for (which, name) in ["A", "B"].into_iter().enumerate() {
        let text = of_curve(&compared.sides[which].title, name, is_one(compared));
        let swatch = Swatch::Line(inks[which]);
        let place = ground(at.x + swatch.size().x + 6.0, y, &text, 360.0);
        swatch.paint(painter, t, pos2(at.x, y));
        label::text_in(painter, place, &text, Type::Caption, t.text2);
        y += 18.0;
    }
    if let Some(note) = &lines.note {
        label::text_in(painter, ground(at.x, y, note, 640.0), note, Type::Caption, t.text2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_not_called_after_its_flag() {
        assert_eq!(of_curve("a.pickle at its peak", "A", false), "in use, a.pickle; A stands at its peak");
        assert_eq!(of_curve("a.pickle, event 12", "B", false), "in use, a.pickle; B stands at event 12");
        assert_eq!(of_curve("step 1 end", "A", true), "in use in the step of A, step 1 end");
    }
}
