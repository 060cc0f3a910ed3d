//! The memory in use on both sides, laid over each other by step, from the start, or by time.

use std::sync::Arc;

use egui::{Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use crate::analysis::steps::Steps;
use crate::analysis::{Cell, Quantity};
use crate::app::compare::{Compared, Side};
use crate::app::document::DeviceData;
use crate::app::jobs::Derived;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::axis::{self, UnitAt};
use crate::app::widgets::chip::{Swatch, paint_marker_label};
use crate::app::widgets::label;
use crate::app::widgets::mesh::{Batch, DASH_MARKER, PixelColumn};
use crate::app::widgets::pane;
use crate::app::widgets::tooltip::Tip;
use crate::app::widgets::viewport::Scale;
use crate::units::{Bytes, count};

/// How the two curves are laid over each other, in menu order.
pub(super) const ALIGNS: [&str; 4] = ["this step", "all steps", "from the start", "by time"];

/// What the curves depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    compared: usize,
    align: usize,
    columns: usize,
}

/// Two curves on one axis.
pub(super) struct Lines {
    /// The comparison they are of: keeps the address in the key from being used again.
    _of: Arc<Compared>,
    /// Length of the axis, in its units.
    length: f64,
    /// For A and B: a cell a column; `None` past the end.
    cells: [Vec<Option<Cell>>; 2],
    /// Where A and B stand.
    marks: [f64; 2],
    unit: Unit,
    /// Why the wanted alignment could not be had.
    note: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Events,
    Steps,
    Time,
}

/// One side's axis: where each place lies among its events.
struct Course<'a> {
    data: &'a DeviceData,
    steps: &'a Steps,
    /// The step that holds the side's instant.
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

    /// Length of its axis.
    fn length(&self, align: usize) -> f64 {
        match align {
            0 => f64::from(self.step.1 - self.step.0),
            1 => self.steps.len() as f64,
            2 => f64::from(self.events()),
            _ => self.time(u32::MAX),
        }
    }

    /// The first event at or after a place; past the end the number of events of its part.
    fn event_at(&self, align: usize, x: f64) -> u32 {
        match align {
            0 => self.step.0.saturating_add(x.ceil() as u32).min(self.step.1),
            1 => {
                let step = (x as usize).min(self.steps.len().saturating_sub(1));
                let (Some(&from), Some(&to)) = (self.steps.bounds.get(step), self.steps.bounds.get(step + 1)) else { return 0 };
                let share = (x - step as f64).clamp(0.0, 1.0);
                from + (f64::from(to - from) * share).ceil() as u32
            }
            2 => (x.ceil() as u32).min(self.events()),
            _ => {
                let times = &self.data.device().events.time_us;
                let first = times.first().copied().unwrap_or(0);
                times.partition_point(|&t| ((t - first) as f64) < x) as u32
            }
        }
    }

    /// Where its instant stands.
    fn mark(&self, align: usize) -> f64 {
        match align {
            0 => f64::from(self.event.saturating_sub(self.step.0)) + 0.5,
            1 => match self.steps.of(self.event) {
                Some(step) => {
                    let (from, to) = (self.steps.bounds[step], self.steps.bounds[step + 1]);
                    step as f64 + f64::from(self.event - from) / f64::from((to - from).max(1))
                }
                None => 0.0,
            },
            2 => f64::from(self.event) + 0.5,
            _ => self.time(self.event),
        }
    }

    /// A cell for each of `columns` columns over `length`.
    fn cells(&self, align: usize, length: f64, columns: usize) -> Vec<Option<Cell>> {
        let place = |i: usize| length * i as f64 / columns as f64;
        let bounds: Vec<u32> = (0..=columns).map(|i| self.event_at(align, place(i))).collect();
        let own = self.length(align);
        let cells = self.data.tables.curves.columns(self.data.device(), &self.data.tables.lifetimes, Quantity::Active, &bounds);
        cells.into_iter().enumerate().map(|(i, c)| (place(i) < own).then_some(c)).collect()
    }
}

fn compute(compared: &Arc<Compared>, wanted: usize, columns: usize) -> Lines {
    let find = |s: &Side| Steps::find(&s.data.recording, s.data.device(), &s.data.tables);
    let steps = [find(&compared.sides[0]), find(&compared.sides[1])];
    let step_of = |i: usize| {
        let step = steps[i].of(compared.sides[i].event)?;
        Some((steps[i].bounds[step], steps[i].bounds[step + 1]))
    };
    let found = [step_of(0), step_of(1)];
    let has_time = compared.sides.iter().all(|s| s.data.device().events.has_time);
    let (align, note) = match wanted {
        0 if found.contains(&None) => (2, Some("one side is in no step: laid over each other from the start")),
        1 if steps.iter().any(Steps::is_empty) => (2, Some("one side has no steps: laid over each other from the start")),
        3 if !has_time => (2, Some("one side has no times: laid over each other by event")),
        other => (other, None),
    };
    let course = |i: usize| Course {
        data: &compared.sides[i].data,
        steps: &steps[i],
        step: found[i].unwrap_or((0, 0)),
        event: compared.sides[i].event.min((compared.sides[i].data.device().events.len() as u32).saturating_sub(1)),
    };
    let courses = [course(0), course(1)];
    let length = courses.iter().map(|c| c.length(align)).fold(1.0, f64::max);
    Lines {
        _of: Arc::clone(compared),
        length,
        cells: [courses[0].cells(align, length, columns), courses[1].cells(align, length, columns)],
        marks: [courses[0].mark(align), courses[1].mark(align)],
        unit: match align {
            1 => Unit::Steps,
            3 => Unit::Time,
            _ => Unit::Events,
        },
        note,
    }
}

pub(super) fn show(ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>, align: usize, derived: &mut Derived<Key, Lines>) {
    let t = cx.tokens;
    let area = ui.max_rect();
    let plot = Rect::from_min_max(area.min + vec2(84.0, 40.0), area.max - vec2(18.0, 12.0));
    if plot.width() < 40.0 || plot.height() < 40.0 {
        return;
    }
    let columns = ((plot.width() * ui.ctx().pixels_per_point()).round() as usize).max(1);
    let key = Key { compared: Arc::as_ptr(compared) as usize, align, columns };
    let of = Arc::clone(compared);
    let shown = derived.get(cx.jobs, "curves of Compare", &key, move |_| Some(compute(&of, align, columns)));
    if !shown.is_fresh {
        pane::progress_line(ui, area, shown.fraction);
    }
    let Some(lines) = shown.value else { return };
    let response = ui.interact(plot, ui.scope_id().with("curves"), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "Memory in use on both sides"));
    let painter = ui.painter().clone();
    let top = lines.cells.iter().flatten().flatten().map(|c| c.max).max().unwrap_or(1).max(1) as f64 * 1.08;
    let (x, y) = (Scale::horizontal(0.0, lines.length, plot.x_range()), Scale::vertical(0.0, top, plot.y_range()));
    let mut batch = Batch::new(&painter);
    let up = axis::byte_ticks(0.0, top, axis::most_down(plot.height()));
    let across = match lines.unit {
        Unit::Time => axis::time_ticks(0.0, lines.length, axis::most_across(plot.width())),
        _ => axis::event_ticks(0.0, lines.length, axis::most_across(plot.width())),
    };
    up.grid_down(&mut batch, t, &y, plot);
    let inks = [t.text2, t.slot(0)];
    let profile = |cells: &[Option<Cell>]| -> Vec<Option<PixelColumn>> {
        let of = |c: &Cell| PixelColumn::from_values((c.min as f64, c.max as f64, c.last as f64), |v| y.at(v));
        cells.iter().map(|c| c.as_ref().map(of)).collect()
    };
    batch.fill_under(&profile(&lines.cells[1]), plot.left(), plot.bottom(), Tokens::at(inks[1], 0.18));
    for which in 0..2 {
        batch.curve(&profile(&lines.cells[which]), plot.left(), 1.25, inks[which]);
    }
    batch.dashed_vline(x.at(lines.marks[0]), plot.y_range(), 1.0, DASH_MARKER, t.text1);
    batch.vline(x.at(lines.marks[1]), plot.y_range(), 1.0, t.text1);
    batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
    batch.paint(&painter);
    for (mark, name) in lines.marks.iter().zip(["A", "B"]) {
        paint_marker_label(&painter, t, pos2(x.at(*mark), plot.top()), name);
    }
    up.paint_down(&painter, t, &y, plot.left() - 8.0, plot.y_range(), UnitAt::First);
    let strip = Rect::from_min_max(pos2(plot.left(), area.top()), pos2(plot.right(), plot.top() - 16.0));
    across.paint_across(&painter, t, &x, strip, UnitAt::First);
    legend(&painter, t, compared, &lines, pos2(plot.left() + 10.0, plot.top() + 14.0), inks);
    if let Some(at) = response.hover_pos() {
        let column = ((x.value(at.x) / lines.length * columns as f64) as usize).min(columns - 1);
        let place = x.value(at.x);
        let mut tip = Tip::new(match lines.unit {
            Unit::Steps => format!("Step {}", place as u64),
            Unit::Events if align == 0 => format!("Event {} of the step", count(place as u64)),
            Unit::Events => format!("Event {}", count(place as u64)),
            Unit::Time => crate::units::Micros(place as i64).to_string(),
        });
        for (which, name) in ["A", "B"].into_iter().enumerate() {
            let value = lines.cells[which].get(column).copied().flatten();
            tip = tip.row(name, value.map_or_else(|| "past its end".to_owned(), |c| Bytes(c.last).to_string()));
        }
        tip.show_at(&response, response.id.with("tip"), at);
    }
}

fn legend(painter: &egui::Painter, t: &Tokens, compared: &Compared, lines: &Lines, at: egui::Pos2, inks: [egui::Color32; 2]) {
    let mut y = at.y;
    for (which, name) in ["A", "B"].into_iter().enumerate() {
        let swatch = Swatch::Line(inks[which]).paint(painter, t, pos2(at.x, y));
        let text = format!("in use, {name}: {}", compared.sides[which].title);
        let place = Rect::from_min_size(pos2(swatch.right() + 6.0, y - 8.0), vec2(360.0, 16.0));
        label::text_in(painter, place, &text, Type::Caption, t.text2);
        y += 18.0;
    }
    if let Some(note) = lines.note {
        let place = Rect::from_min_size(pos2(at.x, y - 8.0), vec2(420.0, 16.0));
        label::text_in(painter, place, note, Type::Caption, t.text3);
    }
}
