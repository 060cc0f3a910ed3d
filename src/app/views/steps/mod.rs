//! Steps: the memory of each training step, and how the steps were found.

mod layout;

use std::sync::Arc;

use egui::Ui;

use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::state::{Action, ViewKind, shared};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Bar, Column, Sort, Table, Width, label, pane};
use vramscope_core::anatomy::steps::{StepFigures, Steps, figures, number};
use vramscope_core::diagnose::leaks::has_steps;
use vramscope_core::diagnose::source_limits::{NO_STEPS, no_history};
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Steps,
    legend: &[
        ("solid", "what was in use all through the step"),
        ("pale", "from there to the step's peak"),
        ("tick", "the most that was reserved in it"),
        ("growth", "bytes in use after the step, once zero_grad() has freed gradients, less those after the one before"),
        ("handed out", "bytes of all allocations made in the step, whenever they were freed"),
        ("kept", "bytes allocated in the step that outlive the next one"),
        ("click", "choose the step as the range and go to its peak"),
        ("double click", "show only this step"),
        ("header", "sort; click again to reverse the order"),
    ],
    create: || Box::new(StepsView { found: Derived::default(), sort: Sort::new("step", false) }),
};

struct Found {
    steps: Steps,
    how: String,
    /// What the annotations do not cover.
    caveat: Option<String>,
    figures: Vec<StepFigures>,
    /// Whether memory grows from step to step.
    growth: Option<String>,
}

struct StepsView {
    /// Keyed by the number of events, because a live recording grows.
    found: Derived<usize, Found>,
    sort: Sort<&'static str>,
}

impl View for StepsView {
    fn subtitle(&self, _: &ViewContext<'_>) -> String {
        match self.found.latest() {
            Some(f) if !f.steps.is_empty() => {
                let sure = if f.steps.confidence == 100 { String::new() } else { format!(", {} % sure", f.steps.confidence) };
                format!("{}, {}{sure}", counted(f.steps.len() as u64, "step", "steps"), f.how)
            }
            _ => String::new(),
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let data = Arc::clone(cx.data);
        let shown = self.found.get(cx.jobs, "steps", &cx.data.device().events.len(), move |progress| {
            let steps = data.steps().clone();
            let (device, tables) = (data.device(), &data.tables);
            let figures = figures(device, tables, &steps, progress).ok()?;
            let overview = no_growth(device, tables, &steps);
            let growth = layout::growth_sentence(overview.as_deref(), has_steps(&steps), &figures, device.events.len() as u32);
            let caveat = steps.caveat(&data.names, data.device().events.len());
            Some(Found { how: steps.how(), caveat, steps, figures, growth })
        });
        let Some(found) = pane::newest(ui, shown) else { return };
        if found.steps.is_empty() {
            let (sentence, line) = if cx.data.device().events.is_empty() {
                no_history(&cx.data.recording, "This recording has no events, so there are no steps in it. Record the history:")
            } else {
                NO_STEPS
            };
            return pane::empty_state(ui, sentence, Some(&cx.words().say(line)));
        }
        self.summary(ui, cx, &found);
        self.table(ui, cx, &found);
    }
}

impl StepsView {
    /// Which step has the highest peak, and whether steps leave memory behind.
    fn summary(&self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Found) {
        let t = cx.tokens;
        let Some(peaks) = layout::peaks_sentence(&found.figures) else { return };
        let growth = found.growth.as_ref().map_or_else(String::new, |said| format!(" {said}"));
        ui.add_space(12.0);
        pane::headline(ui, "summary", |ui| {
            label::rich_paragraph(ui, &format!("{peaks}{growth}"), Type::Lead, t.text2, t.text1);
            if let Some(caveat) = &found.caveat {
                ui.add_space(4.0);
                label::paragraph(ui, caveat, Type::Body, t.text2);
            }
        });
        pane::rule(ui);
    }

    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Arc<Found>) {
        let t = cx.tokens;
        let f = &found.figures;
        let first = || f.iter().take(2_000);
        let size = SizeColumn::of(first().flat_map(|s| [s.peak, s.kept.unwrap_or(0), s.growth().unsigned_abs()]));
        // Separate, because a step allocates many times the bytes that it holds at once.
        let allocated = SizeColumn::of(first().map(|s| s.allocated));
        let greatest = f.iter().map(|s| s.peak.max(s.reserved)).max().unwrap_or(1) as f64;
        let quiet = |zero: bool| if zero { t.text3 } else { t.text1 };
        let growth = |s: &StepFigures| match s.is_open {
            true => UNKNOWN.to_owned(),
            false => label::change(s.growth(), |n| size.figure(n)),
        };
        let kept = |s: &StepFigures| s.kept.map_or_else(|| UNKNOWN.to_owned(), |bytes| size.figure(bytes));
        let in_use = match ui.available_width() {
            1000.0.. => "in use: solid all through the step, pale at its peak; dotted: reserved",
            620.0.. => "in use; dotted: reserved",
            _ => "in use",
        };
        let time = if cx.data.device().events.has_time { 720.0 } else { f32::INFINITY };
        let longest = f.iter().map(|s| s.micros).max().unwrap_or(0);
        let (unit, micros) = if longest < 10_000_000 { ("ms", 1e3) } else { ("s", 1e6) };
        let columns: Vec<Column<'_, usize, &str>> = vec![
            Column::figure("step", 44.0, |c, &i: &usize| c.figure(number(i), t.text2)).by("step", |i| i as f64).descends(false),
            Column::text(in_use, Width::Share(1.0, 60.0), |c, &i: &usize| {
                let (s, blue) = (&f[i], t.slot(0));
                let bar = Bar::new(greatest).part(s.floor as f64, Tokens::over(blue, t.s1, 0.75));
                let bar = bar.part((s.peak - s.floor) as f64, Tokens::over(blue, t.s1, 0.35));
                c.bar(&bar.tick(s.reserved as f64, t.text1));
            }),
            Column::figure(size.head("peak"), 80.0, |c, &i: &usize| c.figure(size.figure(f[i].peak), t.text1))
                .by("peak", |i| f[i].peak as f64),
            Column::figure(size.head("growth"), 80.0, |c, &i: &usize| {
                c.figure(growth(&f[i]), quiet(f[i].is_open || f[i].growth() == 0));
            })
            .by("growth", |i| f[i].growth() as f64)
            .from(320.0),
            Column::figure(size.head("kept"), 76.0, |c, &i: &usize| {
                c.figure(kept(&f[i]), quiet(f[i].kept.is_none_or(|b| b == 0)))
            })
            .by("kept", |i| f[i].kept.unwrap_or(0) as f64)
            .from(420.0),
            Column::figure(allocated.head("handed out"), 104.0, |c, &i: &usize| {
                c.figure(allocated.figure(f[i].allocated), t.text2)
            })
            .by("allocated", |i| f[i].allocated as f64)
            .from(520.0),
            Column::figure("allocations", 76.0, |c, &i: &usize| c.figure(count(f[i].allocations), t.text2))
                .by("allocations", |i| f[i].allocations as f64)
                .from(620.0),
            Column::figure(format!("time, {unit}"), 72.0, |c, &i: &usize| {
                let tenths = (f[i].micros as f64 / micros * 10.0).round() as u64;
                c.figure(format!("{}.{}", count(tenths / 10), tenths % 10), t.text2);
            })
            .by("time", |i| f[i].micros as f64)
            .from(time),
        ];
        let out = Table::sorted("steps", columns, &mut self.sort)
            .of(found)
            .row_height(22.0)
            .selected(found.steps.of(cx.shared.cursor))
            .show(ui, f.len(), Some, |i, _| format!("Step {}: peak {}, growth {}", number(i), Bytes(f[i].peak), growth(&f[i])));
        if let Some(s) = out.chosen().map(|i| &f[i]) {
            cx.actions.send(Action::SetRange(Some((s.first, s.end.saturating_sub(1)))));
            cx.actions.send(Action::GoTo(s.peak_event));
        }
        if let Some(s) = out.opened().map(|i| &f[i]) {
            let at = |e| shared::position(cx.data.device(), cx.shared.axis, e);
            let (from, to) = (at(s.first), at(s.end.saturating_sub(1)));
            let margin = (to - from) * 0.05;
            cx.actions.send(Action::SetWindow(from - margin, to + margin));
        }
    }
}

/// Stands for a figure that the recording does not show, such as what the last step keeps.
const UNKNOWN: &str = "\u{2013}";
