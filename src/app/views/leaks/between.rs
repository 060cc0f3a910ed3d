//! What was allocated after A and is alive at B.

use std::sync::Arc;

use egui::Ui;

use super::{LeaksView, sort_rows};
use crate::app::state::action::Action;
use crate::app::state::selection::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::button::Push;
use crate::app::widgets::table::{Column, Table, Width};
use crate::app::widgets::{label, pane};
use vramscope_core::diagnose::leaks::{Survivors, between};
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

/// One call stack with its names.
pub(super) struct BetweenRow {
    pub found: Survivors,
    pub cells: StackCells,
}

/// Everything between two instants.
pub(super) struct Between {
    pub rows: Vec<BetweenRow>,
    bytes: u64,
    blocks: u64,
}

impl LeaksView {
    pub(super) fn between_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let [Some(a), Some(b)] = cx.shared.flags() else {
            self.no_markers(ui, cx);
            return;
        };
        let key = (a.min(b), a.max(b));
        let data = Arc::clone(cx.data);
        let shown = self.between.get(cx.jobs, "allocated after A", &key, move |_| {
            let stacks = &data.recording.stacks;
            let rows: Vec<BetweenRow> = between(data.device(), &data.tables, key.0, key.1)
                .into_iter()
                .map(|found| BetweenRow { cells: StackCells::of(stacks, found.stack), found })
                .collect();
            let (bytes, blocks) = rows.iter().fold((0, 0), |(x, n), r| (x + r.found.bytes, n + r.found.count));
            Some(Between { rows, bytes, blocks })
        });
        if !shown.is_fresh {
            pane::progress_line(ui, ui.max_rect(), shown.fraction);
            // Numbers of other markers are not these markers' numbers.
            self.rows.clear();
        }
        let Some(found) = shown.value else { return };
        let t = cx.tokens;
        ui.add_space(10.0);
        let sentence = format!(
            "in *{}* allocated after A (event {}) and alive at B (event {}), from {}.",
            counted(found.blocks, "block", "blocks"),
            count(u64::from(key.0)),
            count(u64::from(key.1)),
            counted(found.rows.len() as u64, "call stack", "call stacks")
        );
        pane::headline(ui, "between", |ui| {
            label::paragraph(ui, &Bytes(found.bytes).to_string(), Type::Display, t.text1);
            ui.add_space(2.0);
            label::rich_paragraph(ui, &sentence, Type::Lead, t.text2, t.text1);
        });
        pane::rule(ui);
        if found.rows.is_empty() {
            pane::empty_state(ui, "Everything that was allocated after A had been freed by B.", None);
            return;
        }
        self.table(ui, cx, &found);
    }

    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Between) {
        let t = cx.tokens;
        let sorted = self.sorted.unwrap_or((2, true));
        if self.rows.len() != found.rows.len() {
            self.rows = sort_rows(&found.rows, sorted);
        }
        let size = SizeColumn::of(found.rows.iter().take(2_000).map(|r| r.found.bytes));
        let head = size.head("bytes");
        let columns = [
            Column::text("allocated in", Width::Share(1.0, 120.0)),
            Column::text("called from", Width::Share(1.0, 120.0)).from(680.0),
            Column::figure(&head, 72.0).sorts(),
            Column::figure("blocks", 48.0).sorts().from(320.0),
            Column::figure("oldest event", 88.0).sorts().from(420.0),
            Column::text("share", Width::Exact(90.0)).from(540.0),
        ];
        let rows = &self.rows;
        let selected = match cx.shared.selected() {
            Some(Item::Stack(s)) => rows.iter().position(|&i| found.rows[i].found.stack == s),
            _ => None,
        };
        let greatest = found.rows.first().map_or(1, |r| r.found.bytes) as f64;
        let out = Table::new("allocated after A", &columns).sorted(sorted.0, sorted.1).selected(selected).show(
            ui,
            rows.len(),
            |row| {
                let r = &found.rows[rows[row]];
                format!("{}: {} in {}", r.cells.line(), Bytes(r.found.bytes), counted(r.found.count, "block", "blocks"))
            },
            |p, row, cells| {
                let r = &found.rows[rows[row]];
                for &(column, cell) in cells {
                    let figure = |text: &str, ink| label::figure(p, cell, text, ink);
                    match column {
                        0 => r.cells.paint_first(p, t, cell),
                        1 => r.cells.paint_caller(p, t, cell),
                        2 => figure(&size.figure(r.found.bytes), t.text1),
                        3 => figure(&count(r.found.count), t.text2),
                        4 => figure(&count(u64::from(r.found.oldest)), t.text2),
                        _ => Bar::new(greatest).part(r.found.bytes as f64, t.slot(0)).paint(p, t, cell),
                    }
                }
            },
        );
        if let Some(row) = out.clicked {
            cx.actions.send(Action::Select(Some(Item::Stack(found.rows[self.rows[row]].found.stack))));
        }
        if let Some(row) = out.double_clicked
            && let Some(&oldest) = found.rows[self.rows[row]].found.examples.first()
        {
            cx.actions.send(Action::Select(Some(Item::Lifetime(oldest))));
        }
        if let Some(column) = out.sort {
            self.sorted = Some((column, if sorted.0 == column { !sorted.1 } else { true }));
            self.rows = sort_rows(&found.rows, self.sorted.unwrap_or((2, true)));
        }
    }

    /// How to set A and B, and a pair that is most often asked for.
    fn no_markers(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        pane::empty_state(
            ui,
            "Set A before the work and B after it: press Shift A and Shift B at the cursor, or right click in the timeline. Listed here is what was allocated after A and is still alive at B.",
            None,
        );
        ui.add_space(12.0);
        ui.horizontal(|ui| {
            ui.add_space(((ui.available_width() - 260.0) / 2.0).max(16.0));
            if Push::plain("A after the first steps, B at the end").show(ui).clicked() {
                let last = cx.data.device().events.len().saturating_sub(1) as u32;
                // The third step is past what warms up; without steps a quarter of the recording is.
                let warm = self.found.latest().filter(|f| f.cannot_tell.is_none()).and_then(|f| f.bounds.get(2).copied());
                let a = warm.unwrap_or(last / 4);
                cx.actions.send(Action::SetMarker(0, Some(a)));
                cx.actions.send(Action::SetMarker(1, Some(last)));
            }
        });
    }
}
