//! Memory: where it is, at the peak, at a failure or at the cursor: by role, by module, by line; then what is wrong.

use std::collections::HashSet;
use std::sync::Arc;

use egui::{Color32, Rect, ScrollArea, Sense, Ui, UiBuilder, WidgetInfo, pos2, vec2};

mod found;
mod layout;

use super::findings::FindingsView;
use super::inspector::{RECORD_STACKS, RECORD_TRACE};
use super::{View, ViewContext, ViewInfo, ViewKind};
use crate::analysis::Quantity;
use crate::app::action::Action;
use crate::app::colours::{ColourBy, role_paint};
use crate::app::command::Command;
use crate::app::identity::Identity;
use crate::app::jobs::Derived;
use crate::app::selection::Item;
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW, ROW_DENSE};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::{focus_ring, link_with, segmented, selector};
use crate::app::widgets::code::CodeWell;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::mesh::Batch;
use crate::app::widgets::pane::{PaneHeader, padded, rule};
use crate::app::widgets::row::ListRow;
use crate::app::widgets::tooltip::Tip;
use crate::model::WarningKind;
use crate::units::{Bytes, count, counted};
use found::Found;
use layout::{RoleRow, Row};

/// Registry entry.
pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Memory,
    title: "Memory",
    name: "memory",
    about: "Where the memory is, at the peak or at the cursor: what it is for, which modules and lines hold it, and what is wrong.",
    legend: &[
        ("bar", "all live bytes by role, in the colours of the table"),
        ("probably", "most of the role is inferred from sizes, counts and lives; the inspector says why for each block"),
        ("modules", "the lines that call them, outermost first; 8 \u{d7} is a line that eight layers share"),
        ("click a role", "dims the others in all views; again, or Esc, brings them back"),
        ("click a row", "selects its call stack, or its largest block"),
    ],
    create: || Box::new(Memory::default()),
};

/// Height of the bar.
const BAR: f32 = 16.0;
/// Where the column of shares, or of blocks, ends: this far from the right edge.
const SECOND: f32 = 66.0;
/// From this width on modules and lines say their share too.
const WIDE: f32 = 340.0;
/// Below it they have no room for the number of blocks.
const NARROW: f32 = 250.0;
/// Height of the row of links.
const LINKS: f32 = 27.0;
/// What the row of links opens.
const LINKED: [ViewKind; 5] = [ViewKind::Accounting, ViewKind::Leaks, ViewKind::Steps, ViewKind::Allocations, ViewKind::Events];

#[derive(Default)]
struct Memory {
    /// Which instant: an index into [`instants`].
    at: usize,
    /// Modules or lines.
    by: usize,
    /// The rows that are open.
    open: HashSet<String>,
    /// The row that was clicked last.
    chosen: String,
    /// Keyed by the instant and the roles.
    found: Derived<(u32, Identity), Found>,
    findings: FindingsView,
    /// Which finding's evidence is shown was decided.
    has_looked: bool,
}

/// The instants that can be chosen.
fn instants(cx: &ViewContext<'_>) -> &'static [&'static str] {
    match (cx.data.device().events.is_empty(), cx.data.ooms.is_empty()) {
        (true, _) => &["end"],
        (false, true) => &["peak", "cursor"],
        (false, false) => &["failure", "peak", "cursor"],
    }
}

impl View for Memory {
    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let choices = instants(cx);
        self.at = self.at.min(choices.len() - 1);
        if choices.len() > 1 {
            selector(ui, "at", &mut self.at, choices);
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let area = ui.available_rect_before_wrap();
        let rows = links(ui, area.width());
        let foot = area.with_min_y(area.bottom() - LINKS * rows.len() as f32);
        let body = area.with_max_y(foot.top());
        let mut above = ui.new_child(UiBuilder::new().max_rect(body).id_salt("memory"));
        above.set_clip_rect(body.intersect(ui.clip_rect()));
        ScrollArea::vertical().auto_shrink(false).show(&mut above, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            self.column(ui, cx);
        });
        draw_links(ui, cx, foot, &rows);
        ui.advance_cursor_after_rect(area);
    }
}

impl Memory {
    fn column(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.look_once(cx);
        self.findings.failure(ui, cx);
        let has_blocks = !cx.data.tables.lifetimes.is_empty();
        let found = if has_blocks { self.find(ui, cx) } else { None };
        if let Some(found) = &found {
            self.held(ui, cx, found);
        }
        let caption = self.findings.subtitle(cx);
        PaneHeader::new("Findings").caption(&caption).show(ui, |ui| self.findings.header_ui(ui, cx));
        self.findings.others(ui, cx);
        if let Some(found) = &found {
            health(ui, cx, found);
            recording(ui, cx, found);
        }
        ui.add_space(12.0);
    }

    /// The evidence of a leak is open from the start: it is what the recording was made for. A failure leaves the room to where the
    /// memory is, and of a recording that is well nothing is open.
    fn look_once(&mut self, cx: &ViewContext<'_>) {
        use crate::analysis::findings::Class;
        if self.has_looked {
            return;
        }
        if let Some(found) = cx.findings {
            self.has_looked = true;
            self.findings.folds = true;
            self.findings.open = found.findings.iter().position(|f| f.class == Class::Leak).unwrap_or(usize::MAX);
        }
    }

    fn instant(&self, cx: &ViewContext<'_>) -> (u32, String) {
        let peak = cx.data.tables.curves.peak(Quantity::Active).1;
        match instants(cx).get(self.at).copied() {
            Some("cursor") => (cx.link.cursor, format!("at event {}", count(u64::from(cx.link.cursor)))),
            Some("failure") => (cx.data.last_oom().unwrap_or(peak), "at the failure".to_owned()),
            Some("end") => (peak, "live, without a history".to_owned()),
            _ => (peak, "at the peak".to_owned()),
        }
    }

    /// What is held; says meanwhile that it is being found.
    fn find(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) -> Option<(Arc<Found>, String)> {
        let (event, when) = self.instant(cx);
        let found = cx.roles.and_then(|roles| {
            let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
            let key = (event, Identity::of(roles));
            self.found.get(cx.jobs, "memory by role", &key, move |_| Some(Found::at(&data, &held, event))).value
        });
        if found.is_none() {
            ui.add_space(12.0);
            padded(ui, |ui| label::paragraph(ui, "Finding what each block is for\u{2026}", Type::Body, cx.tokens.text3));
            ui.add_space(12.0);
        }
        Some((found?, when))
    }

    fn held(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, (found, when): &(Arc<Found>, String)) {
        let t = cx.tokens;
        ui.add_space(10.0);
        sentence(ui, cx, found, when);
        let rows = layout::role_rows(&found.held, &found.elsewhere);
        let hovered = roles(ui, cx, found, &rows);
        if cx.link.colour_by == ColourBy::Role && cx.link.hover_class != hovered {
            cx.actions.send(Action::HoverClass(hovered));
        }
        ui.add_space(8.0);
        rule(ui);
        ui.add_space(6.0);
        let names: &[&str] = if found.has_stacks { &["Modules", "Lines"] } else { &["Sizes"] };
        let head = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), 22.0));
        ui.horizontal(|ui| {
            ui.add_space(PAD_PANE);
            if names.len() > 1 {
                segmented(ui, "Memory by", &mut self.by, names);
            } else {
                ui.allocate_exact_size(vec2(1.0, 22.0), Sense::hover());
            }
        });
        if names.len() == 1 {
            label::text_in(ui.painter(), head.shrink2(vec2(PAD_PANE, 0.0)), names[0], Type::Column, t.text3);
        }
        let columns = Columns::of(head);
        columns.captions(ui, &["MiB", "blocks", "share, %"][..columns.shown()]);
        ui.add_space(2.0);
        let by_line = !found.has_stacks || self.by == 1;
        let rows = match by_line {
            true => layout::line_rows(&found.lines, found.held.bytes, &self.open),
            false => layout::module_rows(&found.held, &self.open),
        };
        for row in &rows {
            self.row(ui, cx, row, found.held.bytes);
        }
        if !found.has_stacks {
            ui.add_space(6.0);
            padded(ui, |ui| {
                let text = "Recorded without stacks, so no module and no line can be named. This records them:";
                label::paragraph(ui, text, Type::Caption, t.text3);
                ui.add_space(4.0);
                CodeWell::new(&cx.words().say(RECORD_STACKS)).python().copy(true).show(ui);
            });
        }
        ui.add_space(8.0);
    }

    /// A module, a line or a size.
    fn row(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, row: &Row, whole: u64) {
        let t = cx.tokens;
        let is_chosen = row.item.is_some() && self.chosen == row.key && cx.link.selected() == row.item;
        let name = format!("{}: {} MiB in {}", row.name, row.mebibytes, counted(row.count, "block", "blocks"));
        let response = ListRow::new(&name).height(ROW_DENSE).selected(is_chosen).show_painted(ui);
        let columns = Columns::of(response.rect);
        let p = ui.painter();
        let left = response.rect.left() + PAD_PANE + 16.0 * row.depth as f32;
        let chevron = pos2(left + 5.0, response.rect.center().y);
        match (row.is_open, row.role) {
            (Some(is_open), _) => {
                let icon = if is_open { Icon::ChevronDown } else { Icon::ChevronRight };
                icon.paint(p, chevron, 14.0, t.text3);
            }
            (None, Some(role)) => square(p, chevron, role_paint(role).colour(t)),
            _ => {}
        }
        let ink = if row.depth > 0 { t.text2 } else { t.text1 };
        let (kind, ink) = if row.is_place { (Type::Mono, t.accent) } else { (Type::Body, ink) };
        let share = format!("{:.1}", row.bytes as f64 / whole.max(1) as f64 * 100.0);
        columns.figures(ui, [&row.mebibytes, &count(row.count), &share], [t.text1, t.text3, t.text3]);
        let room =
            Rect::from_min_max(pos2(left + 16.0, response.rect.top()), pos2(columns.names_end(ui, row), response.rect.bottom()));
        let named = label::without_middle(p, &row.name, kind, room.width());
        label::text_in(p, room, &named, kind, ink);
        let tip = Tip::new(&row.name)
            .row("bytes", Bytes(row.bytes).to_string())
            .row("share", format!("{share} %"))
            .row("blocks", count(row.count));
        let tip = match row.item {
            Some(Item::Stack(_)) => tip.note("Click selects its call stack: the others are dimmed."),
            Some(_) => tip.note("Click selects its largest block."),
            None => tip,
        };
        tip.show(&response);
        if response.hovered() && row.largest.map(Item::Lifetime) != cx.link.hovered && row.largest.is_some() {
            cx.actions.send(Action::Hover(row.largest.map(Item::Lifetime)));
        }
        if !response.clicked() {
            return;
        }
        if row.is_open.is_some() && !self.open.remove(&row.key) {
            self.open.insert(row.key.clone());
        }
        if let Some(item) = row.item {
            self.chosen.clone_from(&row.key);
            // Again lets go.
            cx.actions.send(Action::Select(if is_chosen { None } else { Some(item) }));
        }
    }
}

/// Where the columns of a row end.
struct Columns {
    inner: Rect,
    width: f32,
}

impl Columns {
    fn of(row: Rect) -> Self {
        let inner = Rect::from_min_max(pos2(row.left() + PAD_PANE, row.top()), pos2(row.right() - PAD_ROW, row.bottom()));
        Columns { inner, width: row.width() }
    }

    /// The last column, the one before it, and in a wide pane a third.
    fn at(&self, column: usize) -> Rect {
        self.inner.with_max_x(self.inner.right() - [0.0, SECOND, SECOND + 44.0][column.min(2)])
    }

    /// How many columns a row of modules or lines has.
    fn shown(&self) -> usize {
        match self.width {
            w if w < NARROW => 1,
            w if w < WIDE => 2,
            _ => 3,
        }
    }

    fn captions(&self, ui: &Ui, texts: &[&str]) {
        for (i, text) in texts.iter().enumerate() {
            label::text_in_right(ui.painter(), self.at(i), text, Type::Column, Tokens::of(ui).text3);
        }
    }

    fn figures(&self, ui: &Ui, texts: [&str; 3], inks: [Color32; 3]) {
        for i in 0..self.shown() {
            label::text_in_right(ui.painter(), self.at(i), texts[i], Type::Mono, inks[i]);
        }
    }

    /// Where a name has to end.
    fn names_end(&self, ui: &Ui, row: &Row) -> f32 {
        match self.shown() {
            1 => self.at(0).right() - label::width(ui.painter(), &row.mebibytes, Type::Mono) - 8.0,
            2 => self.at(1).right() - label::width(ui.painter(), &count(row.count), Type::Mono) - 8.0,
            _ => self.at(2).right() - 40.0,
        }
    }
}

fn square(p: &egui::Painter, centre: egui::Pos2, ink: Color32) {
    p.rect_filled(Rect::from_center_size(centre, vec2(10.0, 10.0)), 0, ink);
}

/// How much, when, while doing what; and what most of it is.
fn sentence(ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, when: &str) {
    let t = cx.tokens;
    padded(ui, |ui| {
        let mut job = egui::text::LayoutJob::default();
        job.wrap.max_width = ui.available_width();
        let said = if found.doing.is_empty() { when.to_owned() } else { format!("{when}, {}", found.doing) };
        job.append(&Bytes(found.held.bytes).headline(), 0.0, label::format(Type::Display, t.text1));
        job.append(&said, 8.0, egui::TextFormat { valign: egui::Align::Max, ..label::format(Type::Body, t.text2) });
        ui.add(egui::Label::new(job).wrap());
        if let Some(lost) = &found.lost {
            label::paragraph(ui, lost, Type::Body, t.amber);
        }
        label::paragraph(ui, &found.lead(), Type::Lead, t.text1);
    });
    ui.add_space(8.0);
}

/// The bar and the table by role; gives the class under the pointer.
fn roles(ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, rows: &[RoleRow]) -> Option<u8> {
    let t = cx.tokens;
    let width = ui.available_width();
    let (bar, response) = ui.allocate_exact_size(vec2(width, BAR), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(egui::Role::Image, true, "Memory by role"));
    let bar = Rect::from_min_max(pos2(bar.left() + PAD_PANE, bar.top()), pos2(bar.right() - PAD_ROW, bar.bottom()));
    let spans = layout::bar(&rows.iter().map(|r| r.bytes).collect::<Vec<_>>(), bar.width());
    let by_role = cx.link.colour_by == ColourBy::Role;
    let focus = if by_role { cx.link.focus_classes.as_slice() } else { &[] };
    let mut hovered = None;
    ui.add_space(8.0);
    let (head, _) = ui.allocate_exact_size(vec2(width, 18.0), Sense::hover());
    let columns = Columns::of(head);
    label::text_in(ui.painter(), columns.inner, "Role", Type::Column, t.text3);
    columns.captions(ui, &["MiB", "share, %"]);
    for (row, span) in rows.iter().zip(&spans) {
        let class = row.role.index() as u8;
        let is_chosen = focus == [class];
        let mut part = None;
        if let Some((from, to)) = *span {
            let place = Rect::from_x_y_ranges(bar.left() + from..=bar.left() + to, bar.y_range());
            let response = ui.interact(place, ui.scope_id().with(("role of the bar", class)), Sense::click());
            part = Some((place, response));
        }
        let name = format!("{}: {} MiB, {} %", row.role.text(), row.mebibytes, row.share);
        let response = ListRow::new(&name).height(ROW_DENSE).selected(is_chosen).show_painted(ui);
        let is_over = response.hovered() || part.as_ref().is_some_and(|(_, r)| r.hovered());
        if is_over {
            hovered = Some(class);
        }
        let is_dim = hovered_or(cx, by_role).map_or(!focus.is_empty() && !focus.contains(&class), |over| over != class);
        let ink = role_paint(row.role).colour(t);
        let ink = if row.count == 0 || is_dim { Tokens::at(ink, if row.count == 0 { 0.4 } else { 0.25 }) } else { ink };
        if let Some((place, _)) = &part {
            let mut batch = Batch::new(ui.painter());
            batch.rect(Rect::from_min_max(place.min, pos2(place.right() - 1.0, place.bottom())), ink);
            batch.paint(ui.painter());
        }
        role_row(ui, response.rect, row, ink);
        let tip = Tip::new(row.role.text())
            .swatch(role_paint(row.role).colour(t))
            .row("bytes", Bytes(row.bytes).to_string())
            .row("share", format!("{} %", row.share))
            .row("blocks", count(row.count))
            .note(about(row));
        tip.show(&response);
        let mut is_clicked = response.clicked();
        if let Some((_, part)) = part {
            tip.show(&part);
            is_clicked |= part.clicked();
        }
        if is_clicked {
            if !by_role {
                cx.actions.send(Action::SetColourBy(ColourBy::Role));
            }
            cx.actions.send(Action::SetFocusClasses(if is_chosen { Vec::new() } else { vec![class] }));
        }
    }
    let (last, response) = ui.allocate_exact_size(vec2(width, 22.0), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(egui::Role::Label, true, format!("{} MiB in all", layout::whole(&found.held))));
    let columns = Columns::of(last);
    ui.painter().hline(columns.inner.x_range(), last.top() + 0.5, egui::Stroke::new(1.0, t.line));
    let share = label::text_in_right(ui.painter(), columns.at(1), "100.0", Type::Mono, t.text3);
    let room = columns.inner.with_max_x(share.left() - 4.0);
    label::text_in(ui.painter(), room, &counted(found.held.count, "live block", "live blocks"), Type::Body, t.text2);
    label::text_in_right(ui.painter(), columns.at(0), &layout::whole(&found.held), Type::Mono, t.text1);
    hovered
}

/// The class that is hovered in any view, where classes are roles.
fn hovered_or(cx: &ViewContext<'_>, by_role: bool) -> Option<u8> {
    cx.link.hover_class.filter(|_| by_role)
}

/// What a role is, and how sure it is.
fn about(row: &RoleRow) -> String {
    let sure = if row.is_probable { " Most of it is inferred from sizes, counts and lives." } else { "" };
    format!("{}{sure} Click dims the others.", row.role.about())
}

fn role_row(ui: &Ui, rect: Rect, row: &RoleRow, ink: Color32) {
    let t = Tokens::of(ui);
    let columns = Columns::of(rect);
    let p = ui.painter();
    square(p, pos2(columns.inner.left() + 5.0, rect.center().y), ink);
    let is_absent = row.count == 0;
    let (name, figure) = if is_absent { (t.text3, t.text3) } else { (t.text1, t.text1) };
    let share = label::text_in_right(p, columns.at(1), &row.share, Type::Mono, t.text3);
    label::text_in_right(p, columns.at(0), &row.mebibytes, Type::Mono, figure);
    let room = Rect::from_min_max(pos2(columns.inner.left() + 16.0, rect.top()), pos2(share.left() - 4.0, rect.bottom()));
    let named = label::text_in(p, room, row.role.text(), Type::Body, name);
    if row.is_probable {
        let room = room.with_min_x(named.right() + 8.0);
        if label::width(p, "probably", Type::Caption) <= room.width() {
            label::text_in(p, room, "probably", Type::Caption, t.text3);
        }
    }
}

/// That memory does not grow, where it does not.
fn health(ui: &mut Ui, cx: &ViewContext<'_>, (found, _): &(Arc<Found>, String)) {
    use crate::analysis::findings::Class;
    let leaks = cx.findings.is_none_or(|f| f.findings.iter().any(|f| f.class == Class::Leak));
    let Some(said) = found.health.as_ref().filter(|_| !leaks) else { return };
    let t = cx.tokens;
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 12, top: 7, bottom: 8 }).show(ui, |ui| {
        ui.horizontal_top(|ui| {
            let (rect, _) = ui.allocate_exact_size(vec2(20.0, 16.0), Sense::hover());
            Icon::Check.paint(ui.painter(), rect.left_center() + vec2(6.0, 0.0), 12.0, t.text2);
            label::paragraph(ui, said, Type::Body, t.text2);
        });
    });
    rule(ui);
}

/// What the recording lacks, and the setting that records it.
fn recording(ui: &mut Ui, cx: &ViewContext<'_>, (found, _): &(Arc<Found>, String)) {
    let t = cx.tokens;
    egui::Frame::NONE.inner_margin(egui::Margin { left: 16, right: 12, top: 7, bottom: 8 }).show(ui, |ui| {
        let head = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), 16.0));
        label::text_in(ui.painter(), head, "Recording", Type::Caption, t.text3);
        ui.horizontal(|ui| {
            ui.spacing_mut().interact_size.y = 16.0;
            ui.add_space((ui.available_width() - label::width(ui.painter(), "Contents", Type::Caption)).max(0.0));
            if link_with(ui, "Contents", Type::Caption, None).clicked() {
                cx.actions.run(Command::Show(ViewKind::Contents));
            }
        });
        ui.add_space(2.0);
        let is_lost = cx.data.recording.report.warnings.iter().any(|w| w.kind == WarningKind::StartMissing);
        label::paragraph(ui, &found.complete(is_lost), Type::Caption, t.text2);
        if cx.data.device().events.is_empty() {
            ui.add_space(4.0);
            CodeWell::new(&cx.words().say(RECORD_TRACE)).broken(true).copy(true).show(ui);
        }
        if let Some(said) = found.without_stacks() {
            label::paragraph(ui, &said, Type::Caption, t.text2);
        }
    });
}

/// The links in one row, or in two where they do not fit.
fn links(ui: &Ui, width: f32) -> Vec<&'static [ViewKind]> {
    let needs: f32 = LINKED.iter().map(|kind| label::width(ui.painter(), kind.title(), Type::Caption) + 8.0).sum();
    match needs <= width - PAD_PANE - PAD_ROW + 8.0 {
        true => vec![&LINKED],
        false => vec![&LINKED[..3], &LINKED[3..]],
    }
}

fn draw_links(ui: &mut Ui, cx: &ViewContext<'_>, foot: Rect, rows: &[&[ViewKind]]) {
    let t = cx.tokens;
    ui.painter().rect_filled(foot, 0, t.s2);
    ui.painter().hline(foot.x_range(), foot.top() + 0.5, egui::Stroke::new(1.0, t.line));
    let inner = Rect::from_min_max(pos2(foot.left() + PAD_PANE, foot.top()), pos2(foot.right() - PAD_ROW, foot.bottom()));
    for (i, kinds) in rows.iter().enumerate() {
        let widths: Vec<f32> = kinds.iter().map(|kind| label::width(ui.painter(), kind.title(), Type::Caption)).collect();
        let free = inner.width() - widths.iter().sum::<f32>();
        let gap = (free / (kinds.len().saturating_sub(1).max(1)) as f32).clamp(8.0, 24.0);
        let mut x = inner.left();
        for (kind, width) in kinds.iter().zip(widths) {
            let place = Rect::from_min_size(pos2(x, foot.top() + LINKS * i as f32), vec2(width, LINKS));
            let response = ui.interact(place, ui.scope_id().with(("open", kind)), Sense::click());
            response.widget_info(|| WidgetInfo::labeled(egui::Role::Link, true, kind.title()));
            let covered = label::text_in(ui.painter(), place.expand2(vec2(1.0, 0.0)), kind.title(), Type::Caption, t.accent);
            if response.hovered() {
                ui.painter().hline(covered.x_range(), covered.bottom() - 1.0, egui::Stroke::new(1.0, t.accent));
            }
            focus_ring(ui, &response, 3);
            if response.on_hover_cursor(egui::CursorIcon::PointingHand).on_hover_text(kind.info().about).clicked() {
                cx.actions.run(Command::Show(*kind));
            }
            x += width + gap;
        }
    }
}
