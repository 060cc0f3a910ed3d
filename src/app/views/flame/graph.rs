//! The flame graph: frames, labels, breadcrumb, legend and gestures.

use std::sync::Arc;

use egui::{Color32, Rect, ScrollArea, Sense, Ui, pos2, vec2};

use super::layout;
use super::layout::{Cell, Layout};
use super::{Built, FlameView, Found};
use crate::app::data::colours::role_paint;
use crate::app::state::{Action, Item};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::{Batch, Cut, Swatch, Tip, label, link_with, menu_entry, row, told_at};
use vramscope_core::anatomy::roles::Role;
use vramscope_core::compare::flame::{Node, Share, What, node_name, node_text};
use vramscope_core::model::{StackId, StackTable};
use vramscope_core::tables::{is_framework, stack_text};
use vramscope_core::units::{Bytes, count, counted};

const ROW: f32 = 26.0;
const PITCH: f32 = 27.0;
/// Narrower frames have no room for a name.
const LEAST_NAMED: f32 = 34.0;
/// Below this width the notes and the legend under the graph take two lines.
const TWO_LINES: f32 = 1000.0;

impl FlameView {
    pub(super) fn graph(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, built: &Arc<Built>, found: Option<&Found>) {
        let zoom = self.zoom.and_then(|k| built.node_of(k)).unwrap_or(0);
        if zoom == 0 {
            // The zoomed frame no longer exists.
            self.zoom = None;
        } else {
            self.breadcrumb(ui, cx, built, zoom);
        }
        let hidden: Vec<u32> = self.hidden.iter().filter_map(|&k| built.node_of(k)).collect();
        let away = layout::taken_away(&built.flame, &hidden);
        // Notes and legend are side by side, or on two lines in a narrow pane.
        let low = if ui.available_width() < TWO_LINES && ui.available_height() > 160.0 { 40.0 } else { 22.0 };
        let footer = ui.max_rect().with_min_y(ui.max_rect().bottom() - low);
        let width = ui.available_width() - 24.0;
        let is_opened = |node: u32| built.key(node).is_some_and(|key| self.opened.contains(&key));
        let laid = layout::lay_out(&built.flame, zoom, 1.0 / f64::from(width.max(1.0)), &away, is_opened);
        let shown = self.match_in(built, &laid, width);
        if self.shows_match {
            ui.ctx().request_repaint();
        }
        let body = Rect::from_min_max(ui.cursor().min, pos2(ui.max_rect().right(), footer.top()));
        crate::app::widgets::pane::inside(ui, body, "frames", |ui| {
            ScrollArea::vertical().auto_shrink(false).show_viewport(ui, |ui, view| {
                let height = laid.rows as f32 * PITCH + 12.0;
                let (rect, response) = row::clicked(ui, height.max(view.height()), egui::Role::Canvas, || "Flame graph");
                let canvas = Canvas {
                    origin: rect.min + vec2(12.0, 8.0),
                    width,
                    seen: egui::Rangef::new(rect.top() + view.top(), rect.top() + view.bottom()),
                    ..self.canvas(ui, cx, built)
                };
                self.frames(ui, cx, &canvas, &laid, found);
                if let Some(cell) = shown {
                    ui.scroll_to_rect(canvas.place(&cell).expand(PITCH), None);
                }
                self.pointer(ui, cx, &canvas, &laid, &response);
            });
        });
        let gone = (hidden.len(), away.get(&0).copied().unwrap_or(0));
        self.footer(ui, cx, built, footer, &laid, found, gone);
    }

    /// The colours of frames, over all of the pane.
    pub(super) fn canvas<'a>(&self, ui: &Ui, cx: &'a ViewContext<'_>, built: &'a Built) -> Canvas<'a> {
        let (area, by_role) = (ui.max_rect(), self.colour == 0);
        let stacks = built.stacks(cx);
        Canvas { t: cx.tokens, stacks, built, origin: area.min, width: area.width(), seen: area.y_range(), by_role }
    }

    /// The path to the zoomed frame. A click on a name zooms to that frame.
    fn breadcrumb(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, built: &Built, zoom: u32) {
        let stacks = built.stacks(cx);
        let mut goes_to = None;
        ui.add_space(4.0);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            ui.add_space(12.0);
            let path = built.flame.ancestors(zoom);
            // The nearest ancestors matter most; an ellipsis replaces the others.
            let skipped = path.len().saturating_sub(7);
            for (i, &node) in path.iter().enumerate() {
                if i > 0 && i <= skipped {
                    if i == 1 {
                        ui.label(Type::Caption.text(format!("… {skipped} …")).color(cx.tokens.text3));
                    }
                    continue;
                }
                let (name, _) = node_text(stacks, &built.flame.nodes[node as usize]);
                if i + 1 == path.len() {
                    ui.label(Type::Strong.text(name).color(cx.tokens.text1));
                } else {
                    if link_with(ui, &name, Type::Body, None).clicked() {
                        goes_to = Some(node);
                    }
                    ui.label(Type::Body.text("›").color(cx.tokens.text3));
                }
            }
        });
        ui.add_space(2.0);
        if let Some(node) = goes_to {
            self.zoom_to(built, node);
        }
    }

    fn zoom_to(&mut self, built: &Built, node: u32) {
        self.zoom = built.key(node).filter(|_| node != 0);
    }

    /// Shows every frame of a folded chain.
    fn open_chain(&mut self, built: &Built, cell: Cell) {
        self.opened.extend(layout::frames_of(&built.flame, cell).filter_map(|node| built.key(node)));
    }

    /// The cell of a match that "next" or "previous" led to, once. Opens its folded chain, and zooms when the match is outside
    /// the zoom or too narrow.
    fn match_in(&mut self, built: &Built, laid: &Layout, width: f32) -> Option<Cell> {
        let node = self.at_match.filter(|_| self.shows_match).and_then(|key| built.node_of(key))?;
        let cell = laid.cells.iter().copied().find(|&cell| layout::frames_of(&built.flame, cell).any(|inside| inside == node));
        match cell {
            Some(cell) if cell.frames > 1 => self.open_chain(built, cell),
            Some(cell) if (cell.to - cell.from) * f64::from(width) >= f64::from(LEAST_NAMED) => {
                self.shows_match = false;
                return Some(cell);
            }
            _ if self
                .zoom
                .and_then(|key| built.node_of(key))
                .is_some_and(|zoom| !built.flame.ancestors(node).contains(&zoom)) =>
            {
                self.zoom = None;
            }
            _ => self.zoom_to(built, node),
        }
        None
    }

    fn frames(&self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>, laid: &Layout, found: Option<&Found>) {
        let t = cx.tokens;
        let flame = &canvas.built.flame;
        let painter = ui.painter().clone();
        let mut batch = Batch::new(&painter);
        let mut labels = Vec::new();
        let chosen = self.chosen(cx, canvas);
        for cell in &laid.cells {
            let r = canvas.place(cell);
            if r.bottom() < canvas.seen.min || r.top() > canvas.seen.max {
                continue;
            }
            let node = &flame.nodes[cell.node as usize];
            let is_hit = |f: &Found| layout::frames_of(flame, *cell).any(|n| f.hits.get(n as usize).copied().unwrap_or(false));
            let hit = found.is_none_or(is_hit);
            let base = canvas.colour(node);
            // Search hits must stand out clearly.
            let (solid, pale) = match (found.is_some() && hit, t.dark) {
                (true, _) => (0.8, 0.4),
                (false, true) => (0.56, 0.26),
                (false, false) => (0.55, 0.22),
            };
            let dim = if hit { 1.0 } else { 0.25 };
            let mut told = r;
            let part = |weight: u64| r.width() * (weight as f64 / node.total.max(1) as f64) as f32;
            if canvas.built.compared.is_some() {
                let x1 = r.left() + part(node.common);
                let x2 = r.left() + part(node.after);
                batch.rect(r.with_max_x(x1), Tokens::over(base, t.s1, solid * dim));
                batch.rect(r.across(x1, x2), Tokens::over(base, t.s1, pale * dim));
                if r.right() - x2 >= 2.0 {
                    let gone = r.with_min_x(x2);
                    // The figure ends before the outline, when most of its room remains.
                    told = if x2 > r.center().x { r.with_max_x(x2) } else { r };
                    batch.outline(gone, 1.0, Tokens::over(base, t.s1, solid * dim));
                }
            } else {
                batch.rect(r, Tokens::over(base, t.s1, solid * dim));
            }
            canvas.mix(&mut batch, node, r, dim);
            if cell.frames > 1 {
                // Dashed lines near the edges show that more frames are folded into this one.
                for y in [r.top() + 3.5, r.bottom() - 3.5] {
                    batch.dashed_hline(r.x_range(), y, 1.0, (3.0, 2.0), Tokens::at(t.text2, if hit { 1.0 } else { 0.25 }));
                }
            }
            if found.is_some() && hit {
                batch.outline(r, 1.0, t.text2);
            }
            if found.is_some() && hit && canvas.built.key(cell.node) == self.at_match {
                batch.selection(r, t.text1, t.s1);
            } else if chosen == Some(cell.node) {
                batch.outline(r.expand(0.5), 1.5, t.text1);
            } else if self.hovered.is_some() && canvas.built.key(cell.node) == self.hovered {
                batch.outline(r, 1.0, Tokens::at(t.text1, 0.6));
            }
            if r.width() > LEAST_NAMED {
                labels.push((told, node, hit, cell.frames));
            }
        }
        batch.paint(&painter);
        for (r, node, hit, frames) in labels {
            let inner = r.shrink2(vec2(6.0, 0.0));
            let ink = if hit { t.text1 } else { t.text3 };
            let (name, place) = match frames {
                1 => node_text(canvas.stacks, node),
                _ => (format!("{} folded", chain_text(frames)), String::new()),
            };
            let mut right = inner.right();
            if inner.width() > 150.0 {
                let text = match (&canvas.built.compared, node.after) {
                    (Some(_), 0) => format!("{} at A", self.figure(node.before)),
                    (Some(_), after) => self.figure(after),
                    (None, _) => self.figure(node.total),
                };
                right = label::text_in_right(&painter, inner, &text, Type::Mono, ink).left() - 8.0;
            }
            let room = inner.with_max_x(right);
            let covered = label::text_in(&painter, room, &name, Type::Strong, ink);
            if !place.is_empty() && right - covered.right() > 60.0 {
                let room = inner.across(covered.right() + 8.0, right);
                // One text colour that is readable on the solid and on the pale part.
                label::name_in(&painter, room, &place, Type::Mono, if hit { Tokens::at(t.text1, 0.72) } else { t.text3 });
            }
        }
    }

    /// The frame in which the selected stack ends.
    pub(super) fn chosen(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>) -> Option<u32> {
        let stack = match cx.shared.selected()? {
            Item::Stack(s) => s,
            Item::Lifetime(id) => cx.data.tables.lifetimes.stack(cx.data.device(), id),
            _ => return None,
        };
        canvas.leaf_of(stack)
    }

    fn pointer(&mut self, ui: &Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>, laid: &Layout, response: &egui::Response) {
        let built = canvas.built;
        let under = response.hover_pos().and_then(|p| {
            let row = ((p.y - canvas.origin.y) / PITCH).floor();
            (row >= 0.0).then(|| layout::hit(laid, row as u32, f64::from((p.x - canvas.origin.x) / canvas.width)))?
        });
        if let Some(cell) = under {
            let mut batch = Batch::new(ui.painter());
            batch.outline(canvas.place(&cell), 1.0, Tokens::at(cx.tokens.text1, 0.6));
            batch.paint(ui.painter());
            let node = &built.flame.nodes[cell.node as usize];
            self.hovered = built.key(cell.node);
            // The first click of a double click has zoomed already, so the second one would hit another frame.
            if response.clicked() && !response.double_clicked() {
                if cell.frames > 1 {
                    self.open_chain(built, cell);
                }
                let is_zoomed = self.zoom == built.key(cell.node);
                self.zoom_to(built, if is_zoomed { node.parent } else { cell.node });
                self.select(cx, built, node);
            }
            if response.secondary_clicked() {
                self.menu = Some(cell.node);
            }
            if !response.context_menu_opened() {
                let tip = canvas.tip(node, |w| self.figure(w));
                let chain = chain_text(cell.frames);
                let note = format!("The outermost of {chain}. Each calls only the next; a click zooms to them and shows all.");
                if cell.frames == 1 { tip } else { tip.note(note) }.show(response);
            }
        }
        egui::Popup::context_menu(response).show(|ui| {
            ui.set_width(220.0);
            let target = self.menu.filter(|&n| (n as usize) < built.flame.nodes.len());
            if let Some(node) = target {
                let of = &built.flame.nodes[node as usize];
                if menu_entry(ui, "Only this frame", node != 0) {
                    self.zoom_to(built, node);
                }
                if menu_entry(ui, "Hide this frame", node != 0) {
                    self.hidden.extend(built.key(node));
                }
                if menu_entry(ui, "Select its heaviest stack", of.stack.is_some()) {
                    self.select(cx, built, of);
                }
                if menu_entry(ui, "Copy its name", true) {
                    cx.actions.send(Action::Copy(node_name(canvas.stacks, of)));
                }
                if menu_entry(ui, "Copy its heaviest stack", of.stack.is_some()) {
                    cx.actions.send(Action::Copy(stack_text(canvas.stacks, of.stack)));
                }
            }
            if menu_entry(ui, "Show everything again", !self.hidden.is_empty() || self.zoom.is_some()) {
                self.hidden.clear();
                self.zoom = None;
            }
        });
    }

    /// Selects the heaviest stack through a frame, in all views.
    pub(super) fn select(&self, cx: &ViewContext<'_>, built: &Built, node: &Node) {
        let own = match &built.compared {
            Some(c) => c.own_of_flame(node.stack),
            None => Some(node.stack),
        };
        if let Some(stack) = own.filter(|s| s.is_some()) {
            cx.actions.send(Action::Select(Some(Item::Stack(stack))));
        }
    }

    /// Draws the notes on what is left out and what was found, and the legend.
    fn footer(
        &self,
        ui: &Ui,
        cx: &ViewContext<'_>,
        built: &Built,
        rect: Rect,
        laid: &Layout,
        found: Option<&Found>,
        (hidden, hidden_weight): (usize, u64),
    ) {
        let t = cx.tokens;
        let painter = ui.painter();
        let inner = rect.shrink2(vec2(12.0, 0.0));
        let mut notes = Vec::new();
        if let Some(f) = found {
            let all = &built.flame.nodes[0];
            let share = label::share;
            let [through, before, after] = f.weights;
            let who = if f.is_query {
                "the query holds".to_owned()
            } else {
                let verb = if f.frames == 1 { "matches" } else { "match" };
                format!("{} {verb}, together", counted(f.frames, "frame", "frames"))
            };
            notes.push(if built.compared.is_some() {
                format!(
                    "{who} {} at A, {} of A, and {} at B, {} of B",
                    self.figure(before),
                    share(before, all.before),
                    self.figure(after),
                    share(after, all.after)
                )
            } else {
                format!("{who} {}, {} of all", self.figure(through), share(through, all.total))
            });
        }
        if found.is_some_and(|f| !f.is_query && f.frames > 1) {
            notes.push("Enter goes to the next".to_owned());
        }
        let room = f64::from(rect.width() - 24.0);
        if laid.rows > 1 && laid.cells.iter().skip(1).all(|c| (c.to - c.from) * room <= f64::from(LEAST_NAMED)) {
            notes.push("too narrow for names: click a frame, or choose tree".to_owned());
        }
        if laid.folded > 0 {
            notes.push(format!("{} thinner than a pixel not drawn", counted(laid.folded, "frame", "frames")));
        }
        if hidden > 0 {
            let weight = self.figure(hidden_weight);
            notes.push(format!("{hidden} hidden with {weight}, right click shows all again"));
        }
        if built.flame.folded_frames > 0 && found.is_none() {
            notes.push(format!("{} of torch folded", counted(built.flame.folded_frames, "frame", "frames")));
        }
        let notes = notes.join(" · ");
        told_at(ui, rect, "notes", Sense::hover(), egui::Role::Label, || &notes).on_hover_text(&notes);
        let is_two = rect.height() > 30.0;
        let (first, inner) = if is_two { inner.split_top_bottom_at_fraction(0.5) } else { (inner, inner) };
        // The legend has priority over the notes, which are cut. It is filled from right to left as far as there is room.
        let least = inner.left();
        let mut right = inner.right();
        let mut put = |swatch: Swatch, name: &str| {
            let width = swatch.size().x + 6.0 + label::width(painter, name, Type::Caption);
            if right - width < least {
                return;
            }
            let at = inner.middle(right - width);
            let covered = swatch.paint(painter, t, at);
            let room = inner.across(covered.right() + 6.0, right + 1.0);
            label::text_in(painter, room, name, Type::Caption, t.text2);
            right -= width + 18.0;
        };
        if built.compared.is_some() {
            put(Swatch::Grown(t.slot(2)), "solid: as much as at A, pale: grown since");
        }
        if self.colour == 0 {
            put(Swatch::Fill(t.other), "mixed, or no stack");
            let mut seen: Vec<Role> = Vec::new();
            for cell in &laid.cells {
                let node = &built.flame.nodes[cell.node as usize];
                // Allocations that end in a frame of mixed roles have no frame of their own to show their colour.
                let ends_here = if node.own > 0 { node.mix.as_slice() } else { &[] };
                for c in node.role.into_iter().chain(ends_here.iter().map(|m| m.role)) {
                    if c != Role::Unknown && !seen.contains(&c) {
                        seen.push(c);
                    }
                }
            }
            seen.sort_by_key(|c| std::cmp::Reverse(c.index()));
            for role in seen {
                put(Swatch::Fill(role_paint(role).colour(t)), role.text());
            }
        }
        let room = if is_two { first } else { first.with_max_x(right - 2.0) };
        label::text_in(painter, room, &notes, Type::Caption, t.text3);
    }
}

fn chain_text(frames: u32) -> String {
    counted(u64::from(frames), "frame", "frames")
}

/// Where frames are drawn and how they are coloured.
pub(super) struct Canvas<'a> {
    pub t: &'a Tokens,
    pub stacks: &'a StackTable,
    pub built: &'a Built,
    pub origin: egui::Pos2,
    pub width: f32,
    /// The visible vertical range.
    pub seen: egui::Rangef,
    pub by_role: bool,
}

impl Canvas<'_> {
    fn place(&self, cell: &Cell) -> Rect {
        let x = |share: f64| self.origin.x + (share * f64::from(self.width)) as f32;
        let top = self.origin.y + cell.row as f32 * PITCH;
        Rect::from_min_max(pos2(x(cell.from), top), pos2((x(cell.to) - 1.0).max(x(cell.from) + 0.5), top + ROW))
    }

    /// The full colour of a frame.
    pub fn colour(&self, node: &Node) -> Color32 {
        if layout::is_neutral(node.what) {
            return self.t.other;
        }
        if self.by_role {
            let most = || node.mix.iter().max_by_key(|m| m.weight).filter(|_| node.own == node.total).map(|m| m.role);
            return node.role.or_else(most).map_or(self.t.other, |c| role_paint(c).colour(self.t));
        }
        match node.what {
            What::Frame(f) => match self.stacks.frame(f) {
                Some(frame) if !is_framework(self.stacks, frame) => self.t.slot(slot(self.stacks.text(frame.name))),
                _ => self.t.other,
            },
            What::File(file) => self.t.slot(slot(self.stacks.text(file))),
            What::Role(c) => role_paint(c).colour(self.t),
            _ => self.t.other,
        }
    }

    /// Draws the roles of a frame that ends in several of them along its lower edge, largest first. The frame itself has the
    /// colour of the largest.
    fn mix(&self, batch: &mut Batch, node: &Node, rect: Rect, strength: f32) {
        if !self.by_role || node.role.is_some() || node.own != node.total || node.total == 0 || rect.width() < 8.0 {
            return;
        }
        let mut left = rect.left();
        for Share { role, weight, .. } in heaviest_first(node) {
            let right = (left + (weight as f64 / node.total as f64) as f32 * rect.width()).min(rect.right());
            let part = rect.across(left, right).with_min_y(rect.bottom() - 4.0);
            batch.rect(part, Tokens::over(role_paint(role).colour(self.t), self.t.s1, strength));
            left = right;
        }
    }

    /// The frame in which a stack of the recording in front ends.
    fn leaf_of(&self, stack: StackId) -> Option<u32> {
        let stack = match &self.built.compared {
            Some(c) => c.flame_stack_of(stack)?,
            None => stack,
        };
        self.built.flame.leaf_of(self.stacks, stack, self.built.shape)
    }

    pub fn tip(&self, node: &Node, figure: impl Fn(u64) -> String) -> Tip {
        let (name, place) = node_text(self.stacks, node);
        let all = &self.built.flame.nodes[0];
        let mut tip = Tip::new(name).place(place).width(300.0).swatch(self.colour(node));
        let blocks = counted(node.count, "block", "blocks");
        tip = if self.built.compared.is_some() {
            let share = label::share;
            tip.row(format!("at B, {blocks}"), Bytes(node.after))
                .row("at A", Bytes(node.before))
                .row("share of all at B", share(node.after, all.after))
                .row("share of all at A", share(node.before, all.before))
        } else {
            tip.row("through here", figure(node.total))
                .row("share", label::share(node.total, all.total))
                .row("ends here", figure(node.own))
                .row("allocations", count(node.count))
        };
        if let ([share], Some(_)) = (node.mix.as_slice(), node.role.filter(|c| *c != Role::Unknown)) {
            tip = tip.row("for", share.words());
        } else if node.role.is_none() {
            let mix = heaviest_first(node);
            for share in mix.iter().take(4) {
                tip = tip.row(format!("of it {}", share.words()), figure(share.weight));
            }
            if mix.len() > 4 {
                let rest = mix[4..].iter().fold(0u64, |sum, m| sum.saturating_add(m.weight));
                tip = tip.row(format!("of it {} other roles", mix.len() - 4), figure(rest));
            }
        }
        if node.what == What::NoStack(StackId::NONE) {
            tip = tip.note(
                "Backward runs in the autograd thread, which has no Python stack. Recording with stacks=\"all\" adds C++ frames.",
            );
        } else if let What::NoStack(_) = node.what {
            tip = tip.note(crate::app::views::block_legend::NO_BLOCKS);
        }
        tip
    }
}

fn heaviest_first(node: &Node) -> Vec<Share> {
    let mut mix = node.mix.clone();
    mix.sort_by_key(|m| std::cmp::Reverse(m.weight));
    mix
}

/// A colour derived from a name, so that it is the same in every recording.
fn slot(name: &str) -> usize {
    name.bytes().fold(7usize, |h, b| h.wrapping_mul(31).wrapping_add(usize::from(b))) % 8
}
