//! Flame graph: bytes by call stack, from either end, zoomable.

mod layout;

use std::sync::Arc;

use egui::{Rect, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::flame::{Flame, Measure, Root, Shape, Size, What, node_name, weigh};
use crate::analysis::{Quantity, is_framework};
use crate::app::action::Action;
use crate::app::jobs::Derived;
use crate::app::selection::Item;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::{check, icon_button, selector};
use crate::app::widgets::field::Field;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::pane;
use crate::app::widgets::tooltip::Tip;
use crate::units::{Bytes, count};

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Flame,
    title: "Flame graph",
    name: "flame",
    about: "Which code holds the bytes: each frame is as wide as what was allocated through it.",
    legend: &[
        ("width", "bytes through this frame"),
        ("grey", "frames of PyTorch, Python and installed packages"),
        ("click", "zoom to a frame; click an ancestor, or Back, to zoom out"),
        ("find", "frames whose name or file matches stay bright"),
    ],
    create: || Box::new(FlameView::default()),
};

/// What the width means, as the selector lists it.
const MEASURES: [&str; 5] = ["live at the cursor", "live at the peak", "allocated", "churn", "bytes × lifetime"];
const ROW: f32 = 26.0;
const PITCH: f32 = 27.0;

#[derive(Clone, Copy, PartialEq)]
struct Key {
    measure: Measure,
    root: Root,
    fold: bool,
}

#[derive(Default)]
struct FlameView {
    measure: usize,
    inverted: bool,
    fold: bool,
    zoom: u32,
    find: String,
    shown_for: Option<Key>,
    flame: Derived<Key, Flame>,
}

impl FlameView {
    fn key(&self, cx: &ViewContext<'_>) -> Key {
        let last = cx.data.device().events.len().saturating_sub(1) as u32;
        // A chosen range narrows what is counted over time.
        let (from, to) = cx.link.range.unwrap_or((0, last));
        let measure = match self.measure {
            0 => Measure::LiveAt(cx.link.cursor),
            1 => Measure::LiveAt(cx.data.tables.curves.peak(Quantity::Requested).1),
            2 => Measure::Allocated(from, to),
            3 => Measure::Churn(from, to),
            _ => Measure::BytesTimesLife(from, to),
        };
        Key { measure, root: if self.inverted { Root::Innermost } else { Root::Outermost }, fold: self.fold }
    }
}

impl View for FlameView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let Some(flame) = self.flame.latest() else { return String::new() };
        let total = flame.nodes.first().map_or(0, |n| n.total);
        let range = if self.measure >= 2 && cx.link.range.is_some() { " in the chosen range" } else { "" };
        if self.measure == 4 { format!("{} byte events{range}", count(total)) } else { format!("{}{range}", Bytes(total)) }
    }

    fn header_ui(&mut self, ui: &mut Ui, _cx: &ViewContext<'_>) {
        Field::new("Find a frame").hint("find a frame").icon(Icon::Search).width(130.0).small().show(ui, &mut self.find);
        check(ui, "fold frameworks", &mut self.fold);
        check(ui, "inverted", &mut self.inverted);
        selector(ui, "width", &mut self.measure, &MEASURES);
        if self.zoom != 0 && icon_button(ui, Icon::ChevronLeft, "Back to the whole graph").clicked() {
            self.zoom = 0;
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let key = self.key(cx);
        let data = Arc::clone(cx.data);
        let shown = self.flame.get(cx.jobs, "flame", &key, move |_| {
            let weights = weigh(data.device(), &data.tables, None, key.measure, Size::Block);
            let shape = Shape { root: key.root, folds_framework: key.fold, ..Shape::default() };
            Some(Flame::build(&data.recording.stacks, &weights, shape))
        });
        if !shown.is_fresh {
            pane::progress_line(ui, ui.max_rect(), None);
        }
        let Some(flame) = shown.value else { return };
        // Scrubbing rebuilds the tree, and node numbers with it; a zoom survives only while the question is the same.
        let question = |k: Key| (std::mem::discriminant(&k.measure), k.root, k.fold);
        if self.shown_for.map(question) != Some(question(key)) || flame.nodes.len() <= self.zoom as usize {
            self.zoom = 0;
        }
        self.shown_for = Some(key);
        if flame.nodes[0].total == 0 {
            pane::empty_state(ui, "Nothing is live here. Move the cursor, or choose another measure above.", None);
            return;
        }
        if flame.nodes.len() == 2 && flame.nodes[1].what == What::NoStack {
            pane::empty_state(
                ui,
                "No call stacks were recorded, so there is nothing to tell apart. They are recorded with:",
                Some("torch.cuda.memory._record_memory_history(stacks=\"python\")"),
            );
            return;
        }
        self.graph(ui, cx, &flame);
    }
}

impl FlameView {
    fn graph(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, flame: &Flame) {
        let t = cx.tokens;
        let stacks = &cx.data.recording.stacks;
        ScrollArea::vertical().auto_shrink(false).show_viewport(ui, |ui, view| {
            let width = ui.available_width() - 24.0;
            let layout = layout::lay_out(flame, self.zoom, 1.0 / f64::from(width.max(1.0)));
            let height = layout.rows as f32 * PITCH + 40.0;
            let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), height.max(view.height())), Sense::click());
            response.widget_info(|| WidgetInfo::labeled(egui::Role::Canvas, true, "Flame graph"));
            let origin = rect.min + vec2(12.0, 8.0);
            let place = |c: &layout::Cell| {
                let x = |share: f64| origin.x + (share * f64::from(width)) as f32;
                Rect::from_min_max(
                    pos2(x(c.from), origin.y + c.row as f32 * PITCH),
                    pos2(x(c.to) - 1.0, origin.y + c.row as f32 * PITCH + ROW),
                )
            };
            let needle = self.find.to_lowercase();
            let painter = ui.painter().clone();
            let mut batch = Batch::new(&painter);
            let mut labels = Vec::new();
            let mut matched = 0u64;
            for cell in &layout.cells {
                let r = place(cell);
                if r.bottom() < rect.top() + view.top() || r.top() > rect.top() + view.bottom() {
                    continue;
                }
                let node = &flame.nodes[cell.node as usize];
                let frame = match node.what {
                    What::Frame(f) => stacks.frame(f),
                    _ => None,
                };
                let own = frame.is_some_and(|f| !is_framework(stacks, f));
                let name = frame.map_or_else(|| node_name(stacks, node), |f| stacks.text(f.name).to_owned());
                let hit = needle.is_empty()
                    || name.to_lowercase().contains(&needle)
                    || frame.is_some_and(|f| stacks.text(f.file).to_lowercase().contains(&needle));
                if hit && !needle.is_empty() {
                    matched += 1;
                }
                let base = if own { t.slot(slot(&name)) } else { t.other };
                let fill = Tokens::over(
                    base,
                    t.s1,
                    if !hit {
                        0.12
                    } else if own {
                        0.5
                    } else {
                        0.3
                    },
                );
                batch.rect(r, fill);
                if cx.link.selected() == Some(Item::Stack(node.stack)) && node.own > 0 {
                    batch.outline(r, 1.5, t.text1);
                }
                if r.width() > 34.0 {
                    labels.push((r, name, frame, node.total, hit));
                }
            }
            let pointer = response.hover_pos();
            let under = pointer.and_then(|p| {
                let row = ((p.y - origin.y) / PITCH).floor();
                (row >= 0.0).then(|| layout::hit(&layout, row as u32, f64::from((p.x - origin.x) / width)))?
            });
            if let Some(cell) = &under {
                batch.outline(place(cell), 1.0, Tokens::at(t.text1, 0.6));
            }
            batch.paint(&painter);
            for (r, name, frame, total, hit) in labels {
                let inner = r.shrink2(vec2(6.0, 0.0));
                let ink = if hit { t.text1 } else { t.text3 };
                let mut right = inner.right();
                if inner.width() > 150.0 {
                    let figure = if self.measure == 4 { count(total) } else { Bytes(total).to_string() };
                    right = label::text_in_right(&painter, inner, &figure, Type::Mono, ink).left() - 8.0;
                }
                let covered = label::text_in(
                    &painter,
                    Rect::from_min_max(inner.min, pos2(right, inner.bottom())),
                    &name,
                    Type::Strong,
                    ink,
                );
                if let Some(frame) = frame
                    && right - covered.right() > 60.0
                {
                    let room = Rect::from_min_max(pos2(covered.right() + 8.0, inner.top()), pos2(right, inner.bottom()));
                    label::text_in(&painter, room, &stacks.location(frame), Type::Mono, t.text2);
                }
            }
            let note = match (layout.folded, matched) {
                (0, 0) => String::new(),
                (folded, 0) => format!("{} frames thinner than a pixel are not drawn", count(folded)),
                (0, hits) => format!("{} frames match", count(hits)),
                (folded, hits) => format!("{} frames match, {} thinner than a pixel are not drawn", count(hits), count(folded)),
            };
            if !note.is_empty() {
                let at = pos2(origin.x, origin.y + layout.rows as f32 * PITCH + 12.0);
                label::text(&painter, at, egui::Align2::LEFT_CENTER, &note, Type::Caption, t.text3);
            }
            if let Some(cell) = under {
                let node = &flame.nodes[cell.node as usize];
                if response.clicked() {
                    self.zoom = if cell.node == self.zoom { node.parent } else { cell.node };
                    if node.stack.is_some() {
                        cx.actions.send(Action::Select(Some(Item::Stack(node.stack))));
                    }
                }
                let share = node.total as f64 / flame.nodes[0].total.max(1) as f64 * 100.0;
                let figure = |n: u64| if self.measure == 4 { count(n) } else { Bytes(n).to_string() };
                let name = node_name(stacks, node);
                let mut tip = Tip::new(&name).row("through here", figure(node.total)).row("share", format!("{share:.1} %"));
                tip = tip.row("ends here", figure(node.own)).row("allocations", count(node.count));
                tip.show(&response);
            }
        });
    }
}

/// A colour by name, the same in every recording.
fn slot(name: &str) -> usize {
    name.bytes().fold(7usize, |h, b| h.wrapping_mul(31).wrapping_add(usize::from(b))) % 8
}
