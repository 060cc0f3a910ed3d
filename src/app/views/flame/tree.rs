//! The flame graph as a table: one row per frame, which can be opened, closed and sorted.

use std::sync::Arc;

use egui::{Color32, Ui};

use super::layout::{Order, TreeRow, tree_rows};
use super::{Built, FlameView, Found};
use crate::app::jobs::identity::Identity;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Cell, Column, Cut, Icon, Swatch, Table, Width, label};
use vramscope_core::compare::flame::{Node, node_name, node_text};
use vramscope_core::units::{Bytes, SizeColumn, count};

const INDENT: f32 = 14.0;

/// A row, its frame, and its text colour, which is paler when it does not match.
type Line<'a> = (TreeRow, &'a Node, Color32);

impl FlameView {
    pub(super) fn tree(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, built: &Arc<Built>, found: Option<&Found>) {
        let t = cx.tokens;
        let flame = &built.flame;
        let zoom = self.zoom.and_then(|k| built.node_of(k)).unwrap_or(0);
        let compares = built.compared.is_some();
        // In a comparison the first figure is B's, so that is the default sort key.
        self.sort.by = match self.sort.by {
            Order::Total | Order::After if compares => Order::After,
            Order::After => Order::Total,
            other => other,
        };
        let key = (Identity::of(built), zoom, self.sort.by, self.sort.descending, self.toggles);
        // Rows are cached because a frame with very many children takes a while to sort.
        let rows = match self.rows.take() {
            Some((known, rows)) if known == key => rows,
            _ => tree_rows(flame, zoom, &built.keys, &self.toggled, self.sort.by, self.sort.descending),
        };
        let is_bytes = self.measure != Some(5);
        // Two columns of byte × events are wider than two of bytes.
        let (bytes, more) = if is_bytes { (84.0, 0.0) } else { (150.0, 132.0) };
        // The first 2,000 rows decide the unit of the columns.
        let sizes = rows.iter().take(2_000).flat_map(|r| {
            let node = &flame.nodes[r.node as usize];
            [node.total, node.own, node.before, node.after]
        });
        let size = is_bytes.then(|| SizeColumn::of(sizes));
        let canvas = self.canvas(ui, cx, built);
        let chosen = self.chosen(cx, &canvas);
        let selected = rows.iter().position(|r| Some(r.node) == chosen);
        let all = &flame.nodes[0];
        let (whole, of_b) = (all.total.max(1) as f64, if compares { all.after } else { all.total });
        let weight = |n: u64| size.map_or_else(|| count(n), |size| size.figure(n));
        let head = |name: &str| size.map_or_else(|| name.to_owned(), |size| size.head(name));
        let now = move |n: &Node| if compares { n.after } else { n.total };
        let shade = |n: &Node, share| Tokens::over(canvas.colour(n), t.s1, share);
        let share = label::share;
        let total = match (compares, is_bytes) {
            (true, _) => head("at B"),
            (false, true) => head("total"),
            (false, false) => "byte events".to_owned(),
        };
        let (blocks, share_head, wide) = if compares { ("blocks at B", "of all at B", 12.0) } else { ("blocks", "of all", 0.0) };
        let share_wide = if compares { 72.0 } else { 56.0 };
        let mut columns: Vec<Column<'_, Line<'_>, Order>> = vec![
            Column::text("frame", Width::Share(2.0, 160.0), |c, &(row, node, ink): &Line<'_>| {
                let x = c.rect.left() + indent(row.depth, c.rect.width());
                if !node.children.is_empty() {
                    let icon = if row.is_open { Icon::ChevronDown } else { Icon::ChevronRight };
                    icon.paint(c.p, c.rect.middle(x + 6.0), 14.0, t.text3);
                }
                let room = c.from(x + 16.0).swatch(Swatch::Fill(shade(node, if ink == t.text1 { 0.8 } else { 0.3 })));
                let (name, place) = node_text(canvas.stacks, node);
                // The name gives way to the line number, but keeps enough letters to be read.
                let line = place.rsplit_once(':').map_or(0, |(_, line)| line.chars().count() + 2);
                let kept = label::width(c.p, &place.chars().rev().take(line).collect::<String>(), Type::Mono) + 12.0;
                let most = (room.rect.width() - kept).max(room.rect.width() * 0.5);
                let named = label::text_in(c.p, room.rect.with_max_x(room.rect.left() + most), &name, Type::Strong, ink);
                label::name_in(c.p, room.from(named.right() + 8.0).rect, &place, Type::Mono, t.text3);
            }),
            Column::figure(total, bytes, |c, &(_, n, ink): &Line<'_>| c.figure(weight(now(n)), ink)).sorts(if compares {
                Order::After
            } else {
                Order::Total
            }),
        ];
        // A comparison would need two of these.
        if compares {
            columns.push(
                Column::figure(head("at A"), bytes, |c, &(_, n, _): &Line<'_>| c.figure(weight(n.before), t.text2))
                    .from(660.0 + more),
            );
            let change = |c: &Cell<'_>, &(_, n, ink): &Line<'_>| {
                let by = n.after as i64 - n.before as i64;
                c.figure(label::change(by, weight), if by == 0 { t.text3 } else { ink });
            };
            columns.push(Column::figure(head("change"), bytes, change).sorts(Order::Change).from(480.0 + more));
        } else {
            let own = |c: &Cell<'_>, &(_, n, ink): &Line<'_>| c.figure(weight(n.own), if n.own == 0 { t.text3 } else { ink });
            columns.push(Column::figure(head("self"), bytes, own).sorts(Order::Own).from(460.0 + more));
        }
        columns.extend([
            Column::figure(blocks, 64.0 + wide, |c, &(_, n, _): &Line<'_>| c.figure(count(n.count), t.text2))
                .sorts(Order::Count)
                .from(560.0 + more),
            // Each side's share of its own total, because two recordings hold different amounts.
            Column::figure(share_head, share_wide, |c, &(_, n, _): &Line<'_>| c.figure(share(now(n), of_b), t.text2))
                .from(380.0 + more),
        ]);
        if compares {
            let of_a = |c: &Cell<'_>, &(_, n, _): &Line<'_>| c.figure(share(n.before, all.before), t.text2);
            columns.push(Column::figure("of all at A", share_wide, of_a).from(740.0 + more));
        }
        columns.push(
            Column::text("", Width::Share(1.0, 60.0), |c, &(_, n, _): &Line<'_>| {
                c.bar(&Bar::new(whole).part(n.total as f64, shade(n, 0.8)));
            })
            .from(if compares { 820.0 } else { 640.0 } + more),
        );
        let row = |i: usize| {
            let hit = found.is_none_or(|f| f.hits.get(rows[i].node as usize).copied().unwrap_or(false));
            Some((rows[i], &flame.nodes[rows[i].node as usize], if hit { t.text1 } else { t.text3 }))
        };
        let spoken = |_, (_, node, _): &Line<'_>| {
            let unit = if is_bytes { "" } else { " × events" };
            format!("{}: {}{unit}", node_name(canvas.stacks, node), Bytes(node.total))
        };
        let table = Table::sorted("tree", columns, &mut self.sort).row_height(22.0).selected(selected);
        let out = table.show(ui, rows.len(), row, spoken);
        if let Some(row) = out.hovered {
            self.hovered = built.key(rows[row].node);
        }
        let toggles = out.clicked.filter(|&row| {
            let at = ui.input(|i| i.pointer.interact_pos());
            let line = out.seen.iter().find(|seen| seen.0 == row).and_then(|seen| out.cell(seen.1.rect, 0));
            at.zip(line).is_some_and(|(p, line)| {
                let start = line.left() + indent(rows[row].depth, f32::INFINITY);
                (start - 4.0..start + 16.0).contains(&p.x)
            })
        });
        match (toggles.or(out.opened()), out.chosen()) {
            (Some(row), _) => {
                let key = built.key(rows[row].node);
                if let Some(key) = key.filter(|k| !self.toggled.remove(k)) {
                    self.toggled.insert(key);
                }
                self.toggles += 1;
            }
            (None, Some(row)) => self.select(cx, built, &flame.nodes[rows[row].node as usize]),
            _ => {}
        }
        self.rows = Some((key, rows));
    }
}

/// The indent of a row, limited so that deep stacks stay inside the column.
fn indent(depth: u32, room: f32) -> f32 {
    (depth as f32 * INDENT).min((room - 120.0).max(0.0))
}
