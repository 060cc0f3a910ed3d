//! Memory: who holds it at the peak, at a failure or at the cursor, by role, module and line. Below that the findings.

use std::collections::HashSet;
use std::sync::Arc;

use egui::{Rect, ScrollArea, Sense, Ui, vec2};

mod found;
mod layout;
mod notes;
mod roles;
mod tables;

use super::findings::{FindingsView, of_all};
use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::role_paint;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, ColourBy, ViewKind};
use crate::app::theme::Type;
use crate::app::theme::visuals::{PAD_PANE, PAD_ROW};
use crate::app::widgets::pane::inside;
use crate::app::widgets::{PaneHeader, label, link_with, padded, pane, recorded_by, rule, segmented, select};
use found::{Found, Whole};
use layout::{Folds, LINKS, Row};
use tables::{Columns, square};
use vramscope_core::anatomy::{OwnBlocks, Role, Which};
use vramscope_core::diagnose::source_limits::records_stacks;
use vramscope_core::tables::{NO_EVENT, Quantity};
use vramscope_core::units::count;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Memory,
    legend: &[
        ("bar", "all live bytes by role, in the colours of the table"),
        ("probably", "most of the role is inferred from sizes, counts and lives; the inspector says why for each block"),
        (
            "modules",
            "outermost first; where the recording does not name them, the lines that call them; 8 \u{d7} is a line that eight layers share",
        ),
        ("pointer on a row", "its blocks stay bright in the timeline and the segment map, the others are dimmed"),
        ("click a role", "keeps that, and modules and lines count this role alone; again, or Esc, brings the others back"),
        ("click a row", "keeps that too, and the inspector tells of its blocks; again, or Esc, lets go"),
        ("click a line", "also opens its source in your editor"),
    ],
    create: || Box::new(Memory::default()),
};

/// Height of a finding that must be visible: its title and the first lines of its text.
const HEAD_OF_A_FINDING: f32 = 64.0;

#[derive(Default)]
struct Memory {
    /// The chosen instant; until then, the one that suits the recording.
    at: Option<At>,
    /// Modules (0) or lines (1); until chosen, the more useful one.
    by: Option<usize>,
    open: HashSet<String>,
    /// Keyed by the roles.
    whole: Derived<Identity, Whole>,
    /// Keyed by the event and the roles.
    found: Derived<(u32, Identity), Found>,
    /// The same for the roles that were clicked.
    of_roles: Derived<(u32, Identity, Vec<Role>), Found>,
    /// The blocks of the row under the pointer, and those of the clicked row.
    hovered: Derived<(Which, Identity), OwnBlocks>,
    kept: Derived<(Which, Identity), OwnBlocks>,
    /// The clicked row, until its blocks are known.
    wanted: Option<Which>,
    findings: FindingsView,
    /// The initially open finding was already decided.
    has_looked: bool,
    /// The findings start below the visible part of the pane.
    hides_findings: bool,
    /// The link to the findings was clicked.
    shows_findings: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Oom,
    Peak,
    Cursor,
    /// The peak within the chosen range.
    Range,
    /// The only instant of the recording.
    End,
}

impl At {
    fn text(self) -> &'static str {
        match self {
            At::Oom => "OOM",
            At::Peak => "peak",
            At::Cursor => "cursor",
            At::Range => "range",
            At::End => "end",
        }
    }

    /// The instants of this recording, with the default first. A chosen range comes before the others, because the user wants to
    /// see it.
    fn choices(cx: &ViewContext<'_>) -> Vec<At> {
        if !cx.data.tables.lifetimes.has_allocations() {
            return vec![At::End];
        }
        let range = cx.shared.range.map(|_| At::Range);
        let oom = cx.data.last_oom().map(|_| At::Oom);
        range.into_iter().chain(oom).chain([At::Peak, At::Cursor]).collect()
    }
}

impl View for Memory {
    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let choices = At::choices(cx);
        if choices.len() > 1 {
            self.at = select(ui, "at", &self.instant(cx), &choices, |at| at.text()).or(self.at);
            // The figures stay at their instant while the cursor moves. This link makes them follow the cursor.
            let is_elsewhere = choices.contains(&At::Cursor) && self.event(cx).0 != cx.shared.cursor;
            let words = "follow the cursor";
            if is_elsewhere && ui.available_width() > label::width(ui.painter(), words, Type::Caption) + 60.0 {
                ui.add_space(6.0);
                if link_with(ui, words, Type::Caption, None).clicked() {
                    self.at = Some(At::Cursor);
                }
            }
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let area = ui.available_rect_before_wrap();
        let rows = notes::links(ui, area.width());
        let foot = area.with_min_y(area.bottom() - LINKS * rows.len() as f32);
        let body = area.with_max_y(foot.top());
        inside(ui, body, "memory", |ui| {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| self.column(ui, cx));
        });
        notes::draw_links(ui, cx, foot, &rows);
        ui.advance_cursor_after_rect(area);
    }
}

impl Memory {
    fn column(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.look_once(cx);
        let top = ui.cursor().top();
        self.findings.first(ui, cx);
        let has_blocks = !cx.data.tables.lifetimes.is_empty();
        let found = if has_blocks { self.find(ui, cx) } else { None };
        if let Some((found, whole, when)) = &found {
            self.held(ui, cx, found, whole, (when, top));
        }
        // When the only finding is the failure or leak shown above, there is nothing left to list.
        let others = self.findings.number_of_others(cx);
        if others != Some(0) || cx.findings.is_none_or(|f| f.findings.is_empty()) {
            let more = if others < cx.findings.map(|f| f.findings.len()) { " more" } else { "" };
            let caption = others.map(|n| format!("{n}{more}{}", of_all(cx))).unwrap_or_default();
            let link = if self.hides_findings { notes::FINDINGS_LINK } else { 0.0 };
            // For a watch there is nothing above to separate from.
            if has_blocks || others.is_some_and(|n| n > 0) {
                let head = PaneHeader::new("Findings").caption(&caption).show(ui, |ui| self.findings.header_ui(ui, cx));
                self.hides_findings = head.rect.bottom() - top - link > ui.clip_rect().height() - HEAD_OF_A_FINDING;
                if std::mem::take(&mut self.shows_findings) {
                    ui.scroll_to_rect(head.rect, Some(egui::Align::Min));
                }
            }
            self.findings.others(ui, cx);
        }
        if let Some((found, whole, _)) = &found {
            notes::health(ui, cx, whole);
            notes::recording(ui, cx, found, whole);
        }
        ui.add_space(12.0);
    }

    /// Opens no finding at first. The failure or leak is summarised above, and the space belongs to the memory tables.
    fn look_once(&mut self, cx: &ViewContext<'_>) {
        if !self.has_looked && cx.findings.is_some() {
            self.has_looked = true;
            self.findings.folds = true;
            self.findings.open = usize::MAX;
        }
    }

    /// The instant to show: the chosen one, if the recording has it.
    fn instant(&self, cx: &ViewContext<'_>) -> At {
        let choices = At::choices(cx);
        self.at.filter(|at| choices.contains(at)).or(choices.first().copied()).unwrap_or(At::Peak)
    }

    /// The event of that instant, and its description.
    fn event(&self, cx: &ViewContext<'_>) -> (u32, String) {
        let (device, curves) = (cx.data.device(), &cx.data.tables.curves);
        let peak = curves.peak_event();
        match (self.instant(cx), cx.shared.range) {
            (At::Cursor, _) => (cx.shared.cursor, format!("at event {}", count(u64::from(cx.shared.cursor)))),
            (At::Oom, _) => (cx.data.last_oom().unwrap_or(peak), "at the OOM".to_owned()),
            (At::Range, Some((from, to))) => {
                let within = curves.peak_in(device, &cx.data.tables.lifetimes, Quantity::Active, from, to.saturating_add(1));
                (within.map_or(from, |(_, event)| event), "at the peak of the range".to_owned())
            }
            (At::End, _) => (NO_EVENT, "live, no history".to_owned()),
            _ if cx.data.recording.is_relative(device) => (peak, "at the peak of what the trace shows".to_owned()),
            _ => (peak, "at the peak".to_owned()),
        }
    }

    /// Computes what is held. Says so while that takes time.
    fn find(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) -> Option<(Arc<Found>, Arc<Whole>, String)> {
        let (event, when) = self.event(cx);
        let found = cx.roles.and_then(|roles| {
            let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
            let key = (event, Identity::of(roles));
            let found = self.found.get(cx.jobs, "memory by role", &key, move |_| Some(Found::at(&data, &held, event, &[]))).value;
            let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
            let whole = self.whole.get(cx.jobs, "the recording", &key.1, move |_| Some(Whole::of(&data, &held))).value;
            Some((found?, whole?, when))
        });
        if found.is_none() {
            ui.add_space(12.0);
            pane::note(ui, "Finding what each block is for\u{2026}", Type::Body, cx.tokens.text3);
            ui.add_space(12.0);
        }
        found
    }

    fn held(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, whole: &Whole, (when, top): (&str, f32)) {
        ui.add_space(10.0);
        let below = self.findings.first_of_others(cx).filter(|_| self.hides_findings);
        self.shows_findings |= notes::sentence(ui, cx, found, when, top, below);
        let rows = layout::role_rows(&found.held, &whole.elsewhere);
        let role = roles::roles(ui, cx, &found.held, &rows);
        let by_role = cx.shared.colour_by == ColourBy::Role;
        let class = role.filter(|_| by_role).map(|role| role.index() as u8);
        if by_role && cx.shared.hover_class != class {
            cx.actions.send(Action::HoverClass(class));
        }
        ui.add_space(8.0);
        rule(ui);
        ui.add_space(6.0);
        let part = self.part(cx, found.held.event);
        let by = self.by.unwrap_or(usize::from(!found.is_by_modules(!cx.data.device().events.is_empty())));
        let of_row = self.table(ui, cx, part.as_deref().unwrap_or(found), by);
        self.say_own(cx, role.filter(|_| !by_role).map(Which::Role).or(of_row));
        ui.add_space(8.0);
    }

    /// The memory of the clicked roles; `None` when none is clicked.
    fn part(&mut self, cx: &ViewContext<'_>, event: u32) -> Option<Arc<Found>> {
        let only = chosen_roles(cx);
        let roles = cx.roles.filter(|_| !only.is_empty())?;
        let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
        let key = (event, Identity::of(roles), only.clone());
        self.of_roles.get(cx.jobs, "memory of a role", &key, move |_| Some(Found::at(&data, &held, event, &only))).value
    }

    /// The table of modules, lines or sizes. Returns the row under the pointer.
    fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, found: &Found, mut by: usize) -> Option<Which> {
        let t = cx.tokens;
        let names: &[&str] = match (found.has_stacks, found.has_modules) {
            (true, true) if found.names_modules => &["Modules", "Lines"],
            // Python stacks contain the lines that call modules, but not the names of modules.
            (true, true) => &["Calls", "Lines"],
            (true, false) => &["Lines"],
            (false, _) => &["Sizes"],
        };
        if !found.has_modules {
            by = 1;
        }
        let head = Rect::from_min_size(ui.cursor().min, vec2(ui.available_width(), 22.0));
        ui.horizontal(|ui| {
            ui.add_space(PAD_PANE);
            if names.len() == 1 {
                ui.allocate_exact_size(vec2(1.0, 22.0), Sense::hover());
            } else if segmented(ui, "Memory by", &mut by, names) {
                self.by = Some(by);
            }
        });
        if names.len() == 1 {
            label::text_in(ui.painter(), head.shrink2(vec2(PAD_PANE, 0.0)), names[0], Type::Column, t.text3);
        }
        let columns = Columns::of(head);
        columns.captions(ui, &[layout::unit(found.held.bytes), "blocks", "share, %"][..columns.shown()]);
        ui.add_space(2.0);
        only_some(ui, cx);
        let folds = Folds { open: &self.open, most: layout::most(ui.clip_rect().height()) };
        let rows = match !found.has_stacks || by == 1 {
            true => layout::line_rows(&found.lines, found.held.bytes, folds),
            false => layout::module_rows(&found.held, folds),
        };
        let mut over = None;
        for row in &rows {
            let (response, is_clicked) = tables::row(ui, cx, row, found.held.bytes);
            if response.contains_pointer() {
                over = over.or(row.which.clone());
            }
            if is_clicked {
                self.click(cx, row, found.held.event);
            }
        }
        if rows.is_empty() {
            pane::note(ui, "Nothing is held here.", Type::Body, t.text3);
        }
        // For a snapshot the limit above already says this.
        if !found.has_stacks && found.limit.is_none() {
            ui.add_space(6.0);
            padded(ui, |ui| {
                let text = "Recorded without stacks, so no module and no line can be named. This records them:";
                label::paragraph(ui, text, Type::Caption, t.text3);
                ui.add_space(4.0);
                recorded_by(ui, &cx.words().say(records_stacks(&cx.data.recording)));
            });
        }
        over
    }

    /// Opens a row and keeps its blocks bright. The inspector shows them at the instant of the table. A second click undoes this.
    fn click(&mut self, cx: &ViewContext<'_>, row: &Row, event: u32) {
        if row.is_open.is_some() && !self.open.remove(&row.key) {
            self.open.insert(row.key.clone());
        }
        if row.which.is_none() {
            return;
        }
        let is_kept = tables::is_kept(cx, row);
        cx.actions.send(Action::Select(None));
        if !is_kept && event != NO_EVENT {
            cx.actions.send(Action::SetCursor(event));
        }
        self.wanted = row.which.clone().filter(|_| !is_kept);
    }

    /// Tells the other views which blocks stay bright: those of the row under the pointer and of the clicked row.
    fn say_own(&mut self, cx: &ViewContext<'_>, over: Option<Which>) {
        let Some(roles) = cx.roles else { return };
        let blocks = |derived: &mut Derived<(Which, Identity), OwnBlocks>, which: Which| {
            let (data, held) = (Arc::clone(cx.data), Arc::clone(roles));
            let key = (which.clone(), Identity::of(roles));
            let work = move |_: &_| Some(OwnBlocks::of(&data.recording, data.device(), &data.tables, &data.names, &held, which));
            let shown = derived.get(cx.jobs, "blocks of a row", &key, work);
            shown.fresh()
        };
        let over = over.and_then(|which| blocks(&mut self.hovered, which));
        if cx.shared.hover_own != over {
            cx.actions.send(Action::HoverOwn(over));
        }
        // A live recording may have new roles by now.
        let stale = cx.shared.own.as_ref().filter(|own| !own.is_by(roles)).map(|own| own.which.clone());
        if let Some(kept) = self.wanted.clone().or(stale).and_then(|which| blocks(&mut self.kept, which)) {
            self.wanted = None;
            cx.actions.send(Action::KeepOwn(Some(kept)));
        }
    }
}

/// The roles that were clicked, here or in a legend; empty for all.
pub(super) fn chosen_roles(cx: &ViewContext<'_>) -> Vec<Role> {
    if cx.shared.colour_by != ColourBy::Role {
        return Vec::new();
    }
    let mut roles: Vec<Role> = cx.shared.focus_classes.iter().filter_map(|&c| Role::ALL.get(usize::from(c)).copied()).collect();
    roles.sort_unstable();
    roles
}

/// Says that the table counts only some roles, with a link back to all.
fn only_some(ui: &mut Ui, cx: &ViewContext<'_>) {
    let roles = chosen_roles(cx);
    let [first, ..] = roles[..] else { return };
    let t = cx.tokens;
    let names: Vec<&str> = roles.iter().map(|role| role.text()).collect();
    let said = format!("Only {}", names.join(", "));
    ui.horizontal(|ui| {
        ui.spacing_mut().interact_size.y = 20.0;
        ui.add_space(PAD_PANE);
        let (rect, _) = ui.allocate_exact_size(vec2(16.0, 20.0), Sense::hover());
        square(ui.painter(), rect.left_center() + vec2(5.0, 0.0), role_paint(first).colour(t));
        let back = label::width(ui.painter(), "Show all", Type::Caption);
        let room = (ui.available_width() - back - PAD_ROW - 8.0).max(0.0);
        let (rect, response) = ui.allocate_exact_size(vec2(room, 20.0), Sense::hover());
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &said));
        label::text_in(ui.painter(), rect, &said, Type::Body, t.text2);
        if link_with(ui, "Show all", Type::Caption, None).clicked() {
            cx.actions.send(Action::SetFocusClasses(Vec::new()));
        }
    });
}
