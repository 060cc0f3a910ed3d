//! The flame graph as a table: one row per frame, which can be opened, closed and sorted.

use std::sync::Arc;

use egui::Ui;

use super::graph::Canvas;
use super::layout::{Order, TreeRow, tree_rows};
use super::{Built, FlameView, Found};
use crate::app::jobs::identity::Identity;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::table::{Column, Table, Width, places};
use vramscope_core::compare::flame::{node_name, node_text};
use vramscope_core::units::{SizeColumn, count};

const INDENT: f32 = 14.0;

/// A column of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Col {
    Frame,
    Total,
    Own,
    Before,
    Change,
    Count,
    Share,
    ShareBefore,
    Bar,
}

impl Col {
    const ALL: [Col; 9] =
        [Col::Frame, Col::Total, Col::Own, Col::Before, Col::Change, Col::Count, Col::Share, Col::ShareBefore, Col::Bar];

    fn order(self, compares: bool) -> Option<Order> {
        match self {
            Col::Total if compares => Some(Order::After),
            Col::Total => Some(Order::Total),
            Col::Own => Some(Order::Own),
            Col::Change => Some(Order::Change),
            Col::Count => Some(Order::Count),
            _ => None,
        }
    }

    /// Whether the column fits and applies. `wide` is the width that is left for byte columns.
    fn fits(self, wide: f32, compares: bool) -> bool {
        match self {
            Col::Frame | Col::Total => true,
            // A comparison would need two of these.
            Col::Own => !compares && wide >= 460.0,
            Col::Before => compares && wide >= 660.0,
            Col::Change => compares && wide >= 480.0,
            Col::Count => wide >= 560.0,
            Col::Share => wide >= 380.0,
            // Each side's share of its own total, because two recordings hold different amounts.
            Col::ShareBefore => compares && wide >= 740.0,
            Col::Bar => wide >= if compares { 820.0 } else { 640.0 },
        }
    }

    /// The header. `size` is the unit of the byte column; `None` for byte × events.
    fn title(self, compares: bool, size: Option<SizeColumn>) -> String {
        let head = |name: &str| size.map_or_else(|| name.to_owned(), |size| size.head(name));
        let title = match (self, compares, size.is_some()) {
            (Col::Total, true, _) => return head("at B"),
            (Col::Total, false, true) => return head("total"),
            (Col::Own, ..) => return head("self"),
            (Col::Before, ..) => return head("at A"),
            (Col::Change, ..) => return head("change"),
            (Col::Frame, ..) => "frame",
            (Col::Total, false, false) => "byte events",
            (Col::Count, true, _) => "blocks at B",
            (Col::Count, false, _) => "blocks",
            (Col::Share, true, _) => "of all at B",
            (Col::Share, false, _) => "of all",
            (Col::ShareBefore, ..) => "of all at A",
            (Col::Bar, ..) => "",
        };
        title.to_owned()
    }

    fn column(self, title: &str, compares: bool, is_bytes: bool) -> Column<'_> {
        let column = match self {
            Col::Frame => Column::text(title, Width::Share(2.0, 160.0)),
            Col::Bar => Column::text(title, Width::Share(1.0, 60.0)),
            Col::Share | Col::ShareBefore => Column::figure(title, if compares { 72.0 } else { 56.0 }),
            Col::Count => Column::figure(title, if compares { 76.0 } else { 64.0 }),
            // Byte × events have many digits.
            _ => Column::figure(title, if is_bytes { 84.0 } else { 150.0 }),
        };
        if self.order(compares).is_some() { column.sorts() } else { column }
    }
}

impl FlameView {
    pub(super) fn tree(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, built: &Arc<Built>, found: Option<&Found>) {
        let t = cx.tokens;
        let flame = &built.flame;
        let zoom = self.zoom.and_then(|k| built.node_of(k)).unwrap_or(0);
        let compares = built.compared.is_some();
        // In a comparison the first figure is B's, so that is the default sort key.
        let order = match self.order {
            Order::Total | Order::After if compares => Order::After,
            Order::After => Order::Total,
            other => other,
        };
        let key = (Identity::of(built), zoom, order, self.descending, self.toggles);
        // Rows are cached because a frame with very many children takes a while to sort.
        let rows = match self.rows.take() {
            Some((known, rows)) if known == key => rows,
            _ => tree_rows(flame, zoom, &built.keys, &self.toggled, order, self.descending),
        };
        let is_bytes = self.measure != Some(5);
        let wide = ui.available_width();
        // Two columns of byte × events are wider than two of bytes.
        let room = if is_bytes { wide } else { wide - 132.0 };
        // The first 2,000 rows decide the unit of the columns.
        let sizes = rows.iter().take(2_000).flat_map(|r| {
            let node = &flame.nodes[r.node as usize];
            [node.total, node.own, node.before, node.after]
        });
        let size = is_bytes.then(|| SizeColumn::of(sizes));
        let kinds: Vec<Col> = Col::ALL.into_iter().filter(|c| c.fits(room, compares)).collect();
        let titles: Vec<String> = kinds.iter().map(|c| c.title(compares, size)).collect();
        let columns: Vec<Column<'_>> = kinds.iter().zip(&titles).map(|(c, title)| c.column(title, compares, is_bytes)).collect();
        let canvas = Canvas {
            t,
            stacks: built.stacks(cx),
            built,
            origin: ui.max_rect().min,
            width: wide,
            seen: ui.max_rect().y_range(),
            by_role: self.colour == 0,
        };
        let chosen = self.chosen(cx, &canvas);
        let selected = rows.iter().position(|r| Some(r.node) == chosen);
        let sorted = kinds.iter().position(|c| c.order(compares) == Some(order)).unwrap_or(1);
        let whole = flame.nodes[0].total.max(1);
        let first = places(&columns, wide).first().copied().unwrap_or((0.0, 0.0)).0;
        let left = ui.max_rect().left() + first;
        let weight = |n: u64| size.map_or_else(|| count(n), |size| size.figure(n));
        let out = Table::new("tree", &columns).row_height(22.0).selected(selected).sorted(sorted, self.descending).show(
            ui,
            rows.len(),
            |row| {
                let node = &flame.nodes[rows[row].node as usize];
                format!("{}: {}", node_name(canvas.stacks, node), self.figure(node.total))
            },
            |p, row, cells| {
                let TreeRow { node: at, depth, is_open } = rows[row];
                let node = &flame.nodes[at as usize];
                let hit = found.is_none_or(|f| f.hits.get(at as usize).copied().unwrap_or(false));
                let ink = if hit { t.text1 } else { t.text3 };
                for &(column, cell) in cells {
                    let kind = kinds[column];
                    let figure = |text: &str, ink| label::figure(p, cell, text, ink);
                    match kind {
                        Col::Frame => {
                            let x = cell.left() + indent(depth, cell.width());
                            if !node.children.is_empty() {
                                let icon = if is_open { Icon::ChevronDown } else { Icon::ChevronRight };
                                icon.paint(p, cell.middle(x + 6.0), 14.0, t.text3);
                            }
                            let swatch = Swatch::Fill(Tokens::over(canvas.colour(node), t.s1, if hit { 0.8 } else { 0.3 }));
                            let swatch = swatch.paint(p, t, cell.middle(x + 16.0));
                            let (name, place) = node_text(canvas.stacks, node);
                            let room = cell.with_min_x(swatch.right() + 6.0);
                            let named = label::text_in(p, room, &name, Type::Strong, ink);
                            let room = cell.with_min_x(named.right() + 8.0);
                            if room.width() > 30.0 {
                                label::text_in(p, room, &place, Type::Mono, t.text3);
                            }
                        }
                        Col::Total => {
                            figure(&weight(if compares { node.after } else { node.total }), ink);
                        }
                        Col::Own => {
                            figure(&weight(node.own), if node.own == 0 { t.text3 } else { ink });
                        }
                        Col::Change => {
                            let change = node.after as i64 - node.before as i64;
                            let sign = if change > 0 { "+" } else { "−" };
                            let text =
                                if change == 0 { "same".to_owned() } else { format!("{sign}{}", weight(change.unsigned_abs())) };
                            figure(&text, if change == 0 { t.text3 } else { ink });
                        }
                        Col::Count => figure(&count(node.count), t.text2),
                        Col::Share | Col::ShareBefore => {
                            let all = &flame.nodes[0];
                            let (part, of) = match (kind, compares) {
                                (Col::ShareBefore, _) => (node.before, all.before),
                                (_, true) => (node.after, all.after),
                                _ => (node.total, all.total),
                            };
                            let share = part as f64 / of.max(1) as f64 * 100.0;
                            figure(&format!("{share:.1} %"), t.text2);
                        }
                        Col::Bar => {
                            Bar::new(whole as f64)
                                .part(node.total as f64, Tokens::over(canvas.colour(node), t.s1, 0.8))
                                .paint(p, t, cell);
                        }
                        Col::Before => figure(&weight(node.before), t.text2),
                    }
                }
            },
        );
        if let Some(row) = out.hovered {
            self.hovered = built.keys.get(rows[row].node as usize).copied();
        }
        if let Some(chosen) = out.sort.and_then(|c| kinds[c].order(compares)) {
            self.descending = if order == chosen { !self.descending } else { true };
            self.order = chosen;
        }
        let toggles = out.clicked.filter(|&row| {
            let at = ui.input(|i| i.pointer.interact_pos());
            let start = left + indent(rows[row].depth, f32::INFINITY);
            at.is_some_and(|p| (start - 4.0..start + 16.0).contains(&p.x))
        });
        match (toggles.or(out.double_clicked), out.clicked) {
            (Some(row), _) => {
                let key = built.keys.get(rows[row].node as usize).copied();
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
