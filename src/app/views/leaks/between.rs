//! Memory allocated after A that is live at B.

use std::sync::Arc;

use egui::Ui;

use super::{LeaksView, select};
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::stack_cells::StackCells;
use crate::app::widgets::{Bar, Column, Push, Table, Width, label, pane};
use vramscope_core::diagnose::leaks::{Survivors, between};
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

pub(super) struct BetweenRow {
    pub found: Survivors,
    pub cells: StackCells,
}

/// All survivors between two instants.
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
        let Some(found) = pane::newest(ui, shown) else { return };
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
            return pane::empty_state(ui, "Everything that was allocated after A had been freed by B.", None);
        }
        self.table(ui, cx, &found);
    }

    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Arc<Between>) {
        let t = cx.tokens;
        let r = &found.rows;
        let size = SizeColumn::of(r.iter().take(2_000).map(|r| r.found.bytes));
        let greatest = r.first().map_or(1, |r| r.found.bytes) as f64;
        let columns: Vec<Column<'_, &BetweenRow, &str>> = vec![
            Column::text("allocated in", Width::Share(1.0, 120.0), |c, r: &&BetweenRow| r.cells.paint_first(c)),
            Column::text("called from", Width::Share(1.0, 120.0), |c, r: &&BetweenRow| r.cells.paint_caller(c)).from(680.0),
            Column::figure(size.head("bytes"), 72.0, |c, r: &&BetweenRow| c.figure(size.figure(r.found.bytes), t.text1))
                .by("bytes", |i| r[i].found.bytes as f64),
            Column::figure("blocks", 48.0, |c, r: &&BetweenRow| c.figure(count(r.found.count), t.text2))
                .by("blocks", |i| r[i].found.count as f64)
                .from(320.0),
            Column::figure("oldest event", 88.0, |c, r: &&BetweenRow| c.figure(count(u64::from(r.found.oldest)), t.text2))
                .by("oldest", |i| f64::from(r[i].found.oldest))
                .from(420.0),
            Column::text("share", Width::Exact(90.0), |c, r: &&BetweenRow| {
                c.bar(&Bar::new(greatest).part(r.found.bytes as f64, t.slot(0)));
            })
            .from(540.0),
        ];
        let selected = cx.selected_stack().and_then(|s| r.iter().position(|r| r.found.stack == s));
        let table = Table::sorted("allocated after A", columns, &mut self.survivors).of(found).selected(selected);
        let out = table.show(
            ui,
            r.len(),
            |i| r.get(i),
            |_, r| format!("{}: {} in {}", r.cells.line(), Bytes(r.found.bytes), counted(r.found.count, "block", "blocks")),
        );
        select(cx, &out, |i| (r[i].found.stack, r[i].found.examples.first().copied()));
    }

    /// Shows how to set A and B, and offers the most common pair.
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
                // Step 3 is past the warm-up. Without steps, so is a quarter of the recording.
                let warm = self.found.latest().filter(|f| f.cannot_tell.is_none()).and_then(|f| f.bounds.get(2).copied());
                let a = warm.unwrap_or(last / 4);
                cx.actions.send(Action::SetMarker(0, Some(a)));
                cx.actions.send(Action::SetMarker(1, Some(last)));
            }
        });
    }
}
