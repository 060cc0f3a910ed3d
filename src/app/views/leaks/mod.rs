//! Leaks: memory that survives its step, by call stack, with slope and confidence; and memory allocated after A that is live at
//! B.

mod between;
mod layout;

use std::sync::Arc;

use egui::{Rect, Role, Ui, vec2};

use super::stack_cells::StackCells;
use super::{View, ViewContext, ViewInfo};
use crate::app::jobs::Derived;
use crate::app::state::{Action, Item, ViewKind};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, Cell, Column, Cut, Sort, Swatch, Table, TableOutput, Tip, Width, label, pane, row, selector};
use between::Between;
use vramscope_core::anatomy::steps::number;
use vramscope_core::diagnose::leaks::{
    Growth, SawTooth, adding, cannot_tell, floors, growth, how_often, looked_at, no_leak, pace, saw_tooth,
};
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::model::StackId;
use vramscope_core::tables::LifetimeId;
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Leaks,
    legend: &[
        ("bars", "the least in use within each step: what every step comes back to"),
        (
            "red",
            "a leak: it is added to in four steps of five or at even distances, or makes up with others what the bars climb by, and a line explains nine tenths of it",
        ),
        (
            "survives",
            "bytes of the stack that are alive at the end; \u{201c}freed\u{201d}: or were, until all were freed at once",
        ),
        ("a step", "what a step adds on average, the first and last steps left aside"),
        (
            "steady",
            "how well a line through what has survived fits: 1.00 is as much in each step; \u{2013}: no trend, below 0.50",
        ),
        ("A, B", "Shift A and Shift B set them at the cursor; the list shows what was allocated after A and lives at B"),
        ("click", "select the stack in all views"),
    ],
    create: || Box::new(LeaksView { survivors: Sort::new("bytes", true), ..LeaksView::default() }),
};

/// What grows, and the steps that were examined.
struct Found {
    bounds: Vec<u32>,
    /// A description of the range that was examined.
    looked_at: String,
    /// Why the recording cannot tell whether memory grows.
    cannot_tell: Option<String>,
    floors: Vec<u64>,
    saw: Option<SawTooth>,
    grown: Vec<(Growth, StackCells)>,
}

#[derive(Default)]
struct LeaksView {
    /// 0: growth over steps. 1: from A to B.
    show: usize,
    /// Keyed by the number of events, because a live recording grows.
    found: Derived<usize, Found>,
    between: Derived<(u32, u32), Between>,
    growth: Sort<&'static str>,
    survivors: Sort<&'static str>,
}

const SHOWS: [&str; 2] = ["growth over steps", "allocated after A, alive at B"];

impl View for LeaksView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        if self.show == 1 {
            return match cx.shared.flags() {
                [Some(a), Some(b)] => format!("event {} to {}", count(u64::from(a.min(b))), count(u64::from(a.max(b)))),
                _ => String::new(),
            };
        }
        match self.found.latest() {
            Some(f) if f.cannot_tell.is_none() && f.bounds.len() > 1 => {
                format!("over {}", f.looked_at)
            }
            _ => String::new(),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, _: &ViewContext<'_>) {
        selector(ui, "show", &mut self.show, &SHOWS);
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if cx.data.device().events.is_empty() {
            return cx.without_history(
                ui,
                "This recording has no events, so what was allocated when is not known. Record the history:",
            );
        }
        let data = Arc::clone(cx.data);
        let shown = self.found.get(cx.jobs, "leaks", &cx.data.device().events.len(), move |_| {
            let (device, tables) = (data.device(), &data.tables);
            let steps = data.steps();
            let bounds = steps.bounds.clone();
            let floors = floors(device, tables, &bounds);
            let saw = saw_tooth(device, tables, steps);
            let stacks = &data.recording.stacks;
            let grown = growth(device, tables, steps);
            let cells = StackCells::of_rows(stacks, &grown.iter().map(|g| g.stack).collect::<Vec<_>>());
            let grown = grown.into_iter().zip(cells).collect();
            Some(Found { looked_at: looked_at(steps), cannot_tell: cannot_tell(device, steps), bounds, floors, saw, grown })
        });
        if self.show == 1 {
            self.between_ui(ui, cx);
            return;
        }
        let Some(found) = pane::newest(ui, shown) else { return };
        if let Some(why) = &found.cannot_tell {
            let healthy =
                no_growth(cx.data.device(), &cx.data.tables, cx.data.steps()).map_or(String::new(), |said| format!("{said}. "));
            let sentence = format!("{healthy}{why} Or choose \u{201c}allocated after A, alive at B\u{201d} above.");
            return pane::empty_state(ui, &sentence, None);
        }
        self.verdict(ui, cx, &found);
        self.floors_ui(ui, cx, &found);
        self.growth_table(ui, cx, &found);
    }
}

impl LeaksView {
    /// The result in two lines.
    fn verdict(&self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Found) {
        let t = cx.tokens;
        let leaks: Vec<&Growth> = found.grown.iter().map(|g| &g.0).filter(|g| g.is_leak()).collect();
        let (step, steps) = ("step", "steps");
        let (title, ink, sentence) = if let Some(first) = leaks.first() {
            let bytes: u64 = leaks.iter().map(|g| g.bytes).sum();
            let title = format!("+{}", pace(&leaks, step));
            let (add, all) = adding(&leaks);
            let verb = if leaks.len() == 1 { "leaves" } else { "leave" };
            let sentence = if first.stack.is_some() {
                let often = how_often(&leaks, step);
                let freed: u64 = leaks.iter().filter(|g| g.freed.is_some()).map(|g| g.bytes).sum();
                let fate = match first.freed {
                    Some(event) if freed == bytes => {
                        format!("until all of it is freed from event {} on", count(u64::from(event)))
                    }
                    _ if freed > 0 => format!("of which {} is freed in the end", Bytes(freed)),
                    _ => "by the end".to_owned(),
                };
                format!(
                    "{} {verb} something alive in {often}, *{}* {fate}. The largest is *{}*, in {} of {} {steps}.",
                    counted(leaks.len() as u64, "call stack", "call stacks"),
                    Bytes(bytes),
                    cx.data.names.of_stack(first.stack),
                    first.steps_adding,
                    first.steps,
                )
            } else {
                format!(
                    "Allocations without a recorded call stack grow in {} of {} {steps}, *{}* by the end. Record stacks to see whose they are: `{}`.",
                    add,
                    all,
                    Bytes(bytes),
                    vramscope_core::diagnose::source_limits::records_stacks(&cx.data.recording),
                )
            };
            (title, t.red, sentence)
        } else if let Some(saw) = &found.saw {
            (
                "Saw-tooth".to_owned(),
                t.text1,
                format!(
                    "Memory climbs over several steps and drops at once, {} times, by *{}* on average: objects in reference cycles wait for Python's garbage collector. Break the cycles; `gc.collect()` every few steps is a stopgap.",
                    saw.teeth.len(),
                    Bytes(saw.mean())
                ),
            )
        } else {
            let rest = match found.grown.first() {
                Some((_, cells)) => {
                    // Several stacks may end in the same line.
                    let line = cells.allocated_in.line();
                    let of_it = found.grown.iter().filter(|(_, cells)| cells.allocated_in.line() == line);
                    let bytes = of_it.map(|(g, _)| g.bytes).sum();
                    format!(" What survives at all is listed; most of it, *{}*, was allocated at {line}.", Bytes(bytes))
                }
                None => String::new(),
            };
            let (title, sentence) = no_leak(&found.floors);
            (title.to_owned(), t.text1, sentence + &rest)
        };
        ui.add_space(10.0);
        pane::headline(ui, "verdict", |ui| {
            label::paragraph(ui, &title, Type::Display, ink);
            ui.add_space(2.0);
            label::rich_paragraph(ui, &sentence, Type::Lead, t.text2, t.text1);
        });
    }

    /// The lowest memory of every step, as bars. A click goes to the step.
    fn floors_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Found) {
        // In a low pane the list has priority.
        if ui.available_height() < 200.0 {
            return;
        }
        let t = cx.tokens;
        let height = if ui.available_height() > 320.0 { 92.0 } else { 48.0 };
        let (area, response) = row::clicked(ui, height + 42.0, Role::Canvas, || "Least in use in each step");
        let p = ui.painter().clone();
        let plot = area.inset(84.0, 4.0, 16.0, 0.0).lines(0.0, height);
        let (low, high) = layout::range(&found.floors);
        let y = |v: u64| plot.bottom() - ((v as f64 - low) / (high - low)) as f32 * plot.height();
        let n = found.floors.len().max(1);
        let columns = layout::columns(&found.floors, n.min(plot.width().max(1.0) as usize));
        let width = plot.width() / columns.len().max(1) as f32;
        let gap = if width >= 4.0 { 1.0 } else { 0.0 };
        let leaks = found.grown.iter().any(|g| g.0.is_leak());
        let colour = if leaks { t.red } else { t.slot(0) };
        let current = found.bounds.partition_point(|&b| b <= cx.shared.cursor).checked_sub(1).map(|s| s * columns.len() / n);
        let mut batch = Batch::new(&p);
        for (i, &floor) in columns.iter().enumerate() {
            let x = i as f32 * width;
            let bar = plot.cell(x, x + width - gap).with_min_y(y(floor));
            batch.rect_at_least_a_pixel(bar, Tokens::over(colour, t.s1, if current == Some(i) { 0.95 } else { 0.55 }));
        }
        batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line);
        batch.paint(&p);
        let axis = |v: f64, at: f32| {
            let place = area.across(area.left() + 4.0, plot.left() - 8.0).down(at - 8.0, at + 8.0);
            label::figure(&p, place, &Bytes(v.max(0.0) as u64).to_string(), t.text3);
        };
        let most = found.floors.iter().copied().max().unwrap_or(0);
        axis(most as f64, y(most) + 4.0);
        axis(low, plot.bottom() - 4.0);
        let under = plot.down(plot.bottom() + 2.0, plot.bottom() + 20.0);
        let what = "least in use in each step";
        label::text(&p, under.right_bottom(), egui::Align2::RIGHT_TOP, what, Type::Caption, t.text3);
        // As many bar numbers as fit; their unit is below.
        let widest = label::width(&p, &number(n - 1), Type::Mono) + 16.0;
        let every = layout::every(n, plot.width(), widest);
        for step in (0..n).step_by(every) {
            let x = plot.left() + (step as f32 + 0.5) * plot.width() / n as f32;
            label::text(&p, under.middle(x), egui::Align2::CENTER_CENTER, &number(step), Type::Mono, t.text3);
        }
        if let Some(at) = response.hover_pos().filter(|at| plot.contains(*at)) {
            let step = (((at.x - plot.left()) / plot.width() * n as f32) as usize).min(n - 1);
            let least = Bytes(found.floors.get(step).copied().unwrap_or(0));
            let tip = Tip::new(format!("Step {}", number(step))).row("least in use", least);
            tip.show_at(&response, at);
            if response.clicked()
                && let (Some(&first), Some(&end)) = (found.bounds.get(step), found.bounds.get(step + 1))
            {
                cx.actions.send(Action::SetRange(Some((first, end.saturating_sub(1)))));
                cx.actions.send(Action::GoTo(first));
            }
        }
        pane::rule(ui);
    }

    fn growth_table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Arc<Found>) {
        let t = cx.tokens;
        if found.grown.is_empty() {
            let (step, steps) = ("step", "steps");
            // Placed right below the picture that it explains.
            ui.add_space(10.0);
            let text = if found.saw.is_some() {
                "What waits for the collector is freed in the end: nothing of it lives on.".to_owned()
            } else {
                format!("Past the first {steps} nothing that a {step} allocates lives at the end.")
            };
            pane::note(ui, &text, Type::Body, t.text2);
            return;
        }
        let g = &found.grown;
        let size = SizeColumn::of(g.iter().take(2_000).map(|g| g.0.bytes));
        // Without a good fit, growth per step means nothing.
        let has_trend = |g: &Growth| g.is_leak() || g.confidence >= 0.5;
        let trend = |g: &Growth, figure: String| if has_trend(g) { figure } else { "\u{2013}".to_owned() };
        let a_step = |g: &Growth| trend(g, size.figure(g.bytes_per_step.max(0.0).round() as u64));
        let red = |g: &Growth, other| if g.is_leak() { t.red } else { other };
        let columns: Vec<Column<'_, Grown<'_>, &str>> = vec![
            Column::text("allocated in", Width::Share(1.0, 120.0), |c, (g, names): &Grown<'_>| {
                names.paint_first(&c.swatch(Swatch::Fill(red(g, t.other))));
            }),
            Column::text("called from", Width::Share(1.0, 120.0), |c, (_, names): &Grown<'_>| names.paint_caller(c)).from(900.0),
            Column::figure(size.head("survives"), 96.0, |c, (g, _): &Grown<'_>| {
                let wide = c.right(size.figure(g.bytes), Type::Mono, t.text1).width();
                if g.freed.is_some() {
                    label::text_in_right(c.p, c.rect.with_max_x(c.rect.right() - wide - 6.0), "freed", Type::Caption, t.text3);
                }
            })
            .by("survives", |i| g[i].0.bytes as f64),
            Column::figure(size.head("a step"), 80.0, |c, (g, _): &Grown<'_>| c.figure(a_step(g), red(g, t.text1)))
                .by("a step", |i| if has_trend(&g[i].0) { g[i].0.bytes_per_step } else { f64::MIN })
                .from(360.0),
            Column::figure("steady", 48.0, |c, (g, _): &Grown<'_>| c.figure(trend(g, format!("{:.2}", g.confidence)), t.text2))
                .by("steady", |i| g[i].0.confidence)
                .from(440.0),
            Column::figure("blocks", 56.0, |c, (g, _): &Grown<'_>| c.figure(count(g.count()), t.text2))
                .by("blocks", |i| g[i].0.count() as f64)
                .from(540.0),
            Column::figure("in steps", 72.0, |c, (g, _): &Grown<'_>| {
                c.figure(format!("{} of {}", g.steps_adding, g.steps), t.text2)
            })
            .by("in steps", |i| g[i].0.steps_adding as f64)
            .from(640.0),
            Column::text("as it grew", Width::Exact(96.0), |c, (g, _): &Grown<'_>| climb(c, &g.by_step, red(g, t.slot(0))))
                .from(760.0),
        ];
        let selected = cx.selected_stack().and_then(|s| g.iter().position(|g| g.0.stack == s));
        let out = Table::sorted("growth", columns, &mut self.growth).of(found).selected(selected).show(
            ui,
            g.len(),
            |i| g.get(i),
            |_, (g, cells)| {
                let leak = if g.is_leak() { "Leak, " } else { "" };
                let fate = if g.freed.is_some() { "freed at the end" } else { "survive" };
                format!("{leak}{}: {} {fate}", cells.line(), Bytes(g.bytes))
            },
        );
        select(cx, &out, |i| (g[i].0.stack, g[i].0.survivors.first().copied()));
    }
}

/// A row: its growth and its names.
type Grown<'a> = &'a (Growth, StackCells);

/// A click selects the stack of a row, a double click its oldest block.
fn select(cx: &ViewContext<'_>, out: &TableOutput, of: impl Fn(usize) -> (StackId, Option<LifetimeId>)) {
    if let Some(row) = out.chosen() {
        cx.actions.send(Action::Select(Some(Item::Stack(of(row).0))));
    }
    if let Some(oldest) = out.opened().and_then(|row| of(row).1) {
        cx.actions.send(Action::Select(Some(Item::Lifetime(oldest))));
    }
}

/// The memory that survived, step by step, as a small area plot.
fn climb(c: &Cell<'_>, by_step: &[u64], colour: egui::Color32) {
    let area = Rect::from_center_size(c.rect.center(), vec2(c.rect.width(), 14.0));
    let heights = layout::climb(by_step);
    let mut batch = Batch::new(c.p);
    let width = area.width() / heights.len().max(1) as f32;
    for (i, h) in heights.iter().enumerate() {
        let x = i as f32 * width;
        batch.rect(area.cell(x, x + width).with_min_y(area.bottom() - h * area.height()), Tokens::over(colour, c.t.s1, 0.6));
    }
    batch.hline(area.x_range(), area.bottom(), 1.0, c.t.line2);
    batch.paint(c.p);
}
