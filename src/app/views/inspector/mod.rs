//! The inspector: everything about the selection: figures, neighbours, lifetime, stack, and similar allocations.

use std::sync::Arc;

use egui::{AsIdSalt, Rect, Response, Role, ScrollArea, Sense, Ui, WidgetInfo, pos2, vec2};

use super::block_name::{block_name, paint_role};
use super::live::figures;
use super::memory::chosen_roles;
use super::place_link::{openable, place_link};
use super::{View, ViewContext, ViewInfo};
use crate::app::data::colours::role_paint;
use crate::app::data::device::DeviceData;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Command, Item, ViewKind};
use crate::app::theme::Type;
use crate::app::theme::visuals::PAD_PANE;
use crate::app::widgets::{
    Cut, Icon, ListRow, Push, Tip, empty_state, how_to_record, icon_button, label, padded, pane, section, term,
};
use vramscope_core::anatomy::steps::number;
use vramscope_core::anatomy::{OwnBlocks, Which};
use vramscope_core::anatomy::{Role as OfMemory, Roles};
use vramscope_core::diagnose::source_limits::allocator_name;
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE, count, counted};

mod block;
mod card;
mod neighbours;
mod overall;
mod row;
mod stacks;
mod things;

use card::{Card, Fact, Held, Lead, List, Peak, Tone, Why};

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Inspector,
    legend: &[
        ("rounding", "bytes of the block beyond the request"),
        ("waste beside it", "free memory beside a block that no larger request can use while it lives"),
        ("if freed", "the one hole there would be without this block"),
        ("same stack", "all allocations that came from the same lines of code"),
        ("accent", "opens a source file; other figures underline when they lead somewhere"),
    ],
    create: || Box::new(Inspector::default()),
};

/// Offset of values from the left edge of the pane.
const VALUES: f32 = 104.0;

#[derive(Default)]
struct Inspector {
    /// Keyed by the selection, the event, the identity of the roles, the chosen roles and the chosen memory row.
    card: Derived<(Option<Item>, u32, Option<Identity>, Vec<OfMemory>, Option<Arc<OwnBlocks>>), Card>,
    stacks: stacks::Stacks,
}

impl View for Inspector {
    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        ui.spacing_mut().item_spacing.x = 2.0;
        let selection = &cx.shared.selection;
        let mut chevron = |icon, name: &str, command, can: bool| {
            let response = ui.add_enabled_ui(can, |ui| icon_button(ui, icon, name)).inner;
            if response.clicked() {
                cx.actions.run(command);
            }
        };
        chevron(Icon::ChevronRight, "Selection after this one", Command::SelectionForward, selection.can_go_forward());
        chevron(Icon::ChevronLeft, "Selection before this one", Command::SelectionBack, selection.can_go_back());
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if cx.shared.selected().is_none() && figures::has_only_samples(cx.data.device()) {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
                figures::instant(ui, cx);
            });
            return;
        }
        if cx.data.has_only_sums() {
            let sentence = "This file holds sums by category over time and no single allocation, so there is nothing to inspect. The \
                            raw timeline (.raw.json.gz) and snapshots have them.";
            return empty_state(ui, sentence, None);
        }
        let Some(state) = cx.state else { return };
        let selected = cx.shared.selected();
        let (data, at) = (Arc::clone(cx.data), Arc::clone(state));
        let roles = cx.roles.cloned();
        let only = if selected.is_none() { chosen_roles(cx) } else { Vec::new() };
        let own = cx.shared.own.clone().filter(|_| selected.is_none());
        let key = (selected, state.event, roles.as_ref().map(Identity::of), only.clone(), own.clone());
        let shown = self.card.get(cx.jobs, "inspector", &key, move |_| {
            if let Some(roles) = &roles {
                let of_role =
                    |role| OwnBlocks::of(&data.recording, data.device(), &data.tables, &data.names, roles, Which::Role(role));
                let role = if let [role] = only[..] { Some(Arc::new(of_role(role))) } else { None };
                if let Some(own) = own.or(role) {
                    return Some(row::card(&data, &at, roles, &own));
                }
            }
            let mut card = things::card(&data, &at, selected, roles.as_deref(), &only);
            if let (Some(Item::Lifetime(id)), Some(roles)) = (selected, &roles) {
                block::say_role(&data, roles, id, &mut card);
            }
            // All blocks of a stack have the same place, so they keep their addresses as names.
            if !matches!(selected, Some(Item::Stack(_))) {
                name_blocks(&data, roles.as_deref(), &mut card);
            }
            Some(card)
        });
        let Some(card) = shown.value else { return };
        ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
            ui.add_space(12.0);
            if cx.data.recording.source.format.never_ran() {
                padded(ui, |ui| ui.label(Type::Caption.text("predicted, never ran").color(cx.tokens.amber)));
                ui.add_space(4.0);
            }
            head(ui, cx, &card);
            if !card.next.is_empty() {
                ui.add_space(8.0);
                pane::note(ui, &card.next, Type::Body, cx.tokens.text2);
            }
            if let Some(around) = &card.around {
                ui.add_space(12.0);
                neighbours::show(ui, cx.data, cx.colours, cx.tokens, around, state.event);
            }
            if !card.facts.is_empty() {
                rule(ui);
                facts(ui, cx, &card.facts);
            }
            if !card.reasons.is_empty() {
                reasons(ui, cx, &card.reasons);
            }
            if !card.stacks.is_empty() {
                rule(ui);
                self.stacks.show(ui, cx, &card.stacks);
            }
            if !card.same.is_empty() {
                section(ui, "Same stack", "", false);
                facts(ui, cx, &card.same);
                same_stack_buttons(ui, cx, &card);
            }
            if !card.peaks.is_empty() {
                peaks(ui, cx, &card.peaks);
            }
            if !card.held.is_empty() {
                held(ui, cx, &card);
            }
            for list in &card.lists {
                section(ui, &list.title, &list.trailing, false);
                lines(ui, cx, list);
            }
            ui.add_space(16.0);
        });
    }
}

/// Names the blocks in lists by where they were allocated or by their role, and moves the address to the tooltip.
fn name_blocks(data: &DeviceData, roles: Option<&Roles>, card: &mut Card) {
    for line in card.lists.iter_mut().flat_map(|list| &mut list.lines) {
        if let Item::Lifetime(id) = line.item
            && let Some(name) = block_name(data, roles, id)
        {
            line.tip = std::mem::replace(&mut line.name, name);
        }
    }
}

fn rule(ui: &mut Ui) {
    ui.add_space(10.0);
    crate::app::widgets::pane::rule(ui);
    ui.add_space(12.0);
}

/// Draws the kind, the address with a copy button, and the large figure.
fn head(ui: &mut Ui, cx: &ViewContext<'_>, card: &Card) {
    let t = cx.tokens;
    padded(ui, |ui| {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            ui.label(Type::Caption.text(&card.kind).color(t.text3));
            if let Some(subject) = &card.subject {
                // Leaves room for the copy button.
                let room = (ui.available_width() - 26.0).max(0.0);
                ui.scope(|ui| {
                    ui.set_max_width(room);
                    ui.add(egui::Label::new(Type::MonoStrong.text(subject).color(t.text1)).truncate()).on_hover_text(subject);
                });
                if icon_button(ui, Icon::Copy, &format!("Copy {subject}")).clicked() {
                    cx.actions.send(Action::Copy(subject.clone()));
                }
            }
        });
        ui.add_space(4.0);
        let ink = if card.is_red { t.red } else { t.text1 };
        let width = |text: &str, kind: Type| label::width(ui.painter(), text, kind);
        let fits = width(&card.title, Type::Display) + 10.0 + width(&card.claim, Type::Body) <= ui.available_width();
        let claim = |ui: &mut Ui| {
            if !card.claim.is_empty() {
                ui.add(egui::Label::new(Type::Body.text(&card.claim).color(t.text2)).wrap());
            }
        };
        let title = |ui: &mut Ui| ui.add(egui::Label::new(Type::Display.text(&card.title).color(ink)).truncate());
        if fits {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 10.0;
                title(ui);
                claim(ui);
            });
        } else {
            title(ui);
            claim(ui);
        }
    });
}

/// Draws rows of label and value. Values that can be clicked are underlined under the pointer.
fn facts(ui: &mut Ui, cx: &ViewContext<'_>, facts: &[Fact]) {
    let t = cx.tokens;
    for fact in facts {
        let sense = if fact.lead.is_some() { Sense::click() } else { Sense::hover() };
        let ink = match fact.tone {
            Tone::Plain => t.text1,
            Tone::Quiet => t.text3,
            Tone::Red => t.red,
        };
        let width = ui.available_width();
        let room = width - PAD_PANE - VALUES.min(width * 0.45);
        let mut galley = label::elided(ui.painter(), &fact.value, Type::Mono, ink, room);
        if galley.elided {
            // A figure that is cut would mislead, so it wraps.
            let job = egui::text::LayoutJob::simple(fact.value.clone(), Type::Mono.font(), ink, room.max(40.0));
            galley = ui.painter().layout_job(job);
        }
        let height = if galley.rows.len() > 1 { galley.size().y + 6.0 } else { 20.0 };
        let (rect, response) = ui.allocate_exact_size(vec2(width, height), sense);
        let role = if fact.lead.is_some() { Role::Link } else { Role::Label };
        response.widget_info(|| WidgetInfo::labeled(role, true, format!("{}: {}", fact.label, fact.value)));
        let inner = rect.shrink2(vec2(PAD_PANE, 0.0));
        let x = rect.left() + VALUES.min(rect.width() * 0.45);
        let names = Rect::from_min_max(inner.min, pos2(x - 8.0, inner.top() + 20.0));
        label::text_in(ui.painter(), names, fact.label, Type::Body, t.text2);
        let at = pos2(x, rect.center().y - galley.size().y / 2.0);
        let covered = Rect::from_min_size(at, galley.size());
        ui.painter().galley(at, galley, ink);
        if fact.lead.is_some() && response.hovered() {
            ui.painter().hline(covered.x_range(), covered.bottom() - 1.0, egui::Stroke::new(1.0, ink));
        }
        if response.clicked() {
            match fact.lead {
                Some(Lead::Event(event)) => cx.actions.send(Action::GoTo(event)),
                Some(Lead::Item(item)) => cx.actions.send(Action::Select(Some(item))),
                None => {}
            }
        }
        let response = match fact.lead {
            Some(_) => response.on_hover_cursor(egui::CursorIcon::PointingHand),
            None => response,
        };
        term::explain_label(&response, fact.label);
        if let Some(hint) = &fact.hint {
            let mut job =
                egui::text::LayoutJob::simple(hint.clone(), Type::Caption.font(), t.text3, (inner.right() - x).max(40.0));
            job.wrap.break_anywhere = false;
            let galley = ui.painter().layout_job(job);
            let (hint_rect, _) = crate::app::widgets::row::told(ui, galley.size().y, Role::Label, || hint);
            ui.painter().galley(pos2(x, hint_rect.top()), galley, t.text3);
            // The hint to record more does not apply to roles, nor to files of other programs, which are recorded differently.
            if fact.label != "role" && allocator_name(&cx.data.recording) == "PyTorch" {
                ui.horizontal(|ui| {
                    ui.add_space(x - rect.left());
                    how_to_record(ui, &cx.snapshot_line());
                });
            }
            ui.add_space(4.0);
        }
    }
}

/// Draws why blocks have their roles: how many bytes, and the reason as a sentence.
fn reasons(ui: &mut Ui, cx: &ViewContext<'_>, reasons: &[Why]) {
    let t = cx.tokens;
    section(ui, "How that is known", "", false);
    for (i, why) in reasons.iter().enumerate() {
        padded(ui, |ui| {
            ui.add_space(if i > 0 { 8.0 } else { 0.0 });
            // A single certain reason is that of all blocks and needs no figures.
            if reasons.len() > 1 || why.is_probable {
                let probably = if why.is_probable { "probably, " } else { "" };
                let held = format!("{probably}{} in {}", Bytes(why.bytes), counted(why.count, "block", "blocks"));
                label::paragraph(ui, &held, Type::Mono, t.text1);
            }
            label::paragraph(ui, &why.sentence, Type::Body, t.text2);
        });
    }
}

fn same_stack_buttons(ui: &mut Ui, cx: &ViewContext<'_>, card: &Card) {
    ui.add_space(6.0);
    padded(ui, |ui| {
        ui.horizontal(|ui| {
            let mut go = |name: &str, icon, about: &str, command| {
                if Push::plain(name).small().icon(icon).show(ui).on_hover_text(about).clicked() {
                    cx.actions.run(command);
                }
            };
            go("Previous", Icon::ChevronLeft, "The allocation before it", Command::PreviousSameStack);
            go("Next", Icon::ChevronRight, "The allocation after it", Command::NextSameStack);
            if let Some(&(_, stack)) = card.stacks.first()
                && stack.is_some()
                && Push::plain("All").small().show(ui).on_hover_text("Select everything by this stack").clicked()
            {
                cx.actions.send(Action::Select(Some(Item::Stack(stack))));
            }
        });
    });
}

/// Bytes in a given unit with two decimals: `1,572.00`.
fn in_hundredths(bytes: u64, unit: u64) -> String {
    let n = ((u128::from(bytes) * 100 + u128::from(unit) / 2) / u128::from(unit)) as u64;
    format!("{}.{:02}", count(n / 100), n % 100)
}

/// Draws the peak of each step as a bar on a common scale.
fn peaks(ui: &mut Ui, cx: &ViewContext<'_>, peaks: &[Peak]) {
    let t = cx.tokens;
    let of = peaks.first().map_or(0, |p| p.of);
    let most = peaks.iter().map(|p| p.bytes).max().unwrap_or(1).max(1);
    // One unit for all steps.
    let (unit, name) = if most >= GIBIBYTE { (GIBIBYTE, "GiB") } else { (MEBIBYTE, "MiB") };
    let figure = |p: &Peak| in_hundredths(p.bytes, unit);
    let most = most as f32;
    let title = match of > peaks.len() as u64 {
        true => format!("The {} highest of {} steps", peaks.len(), count(of)),
        false => "Peak of each step".to_owned(),
    };
    section(ui, &title, name, false);
    let wide = |texts: &mut dyn Iterator<Item = String>, kind| {
        texts.map(|text| label::width(ui.painter(), &text, kind)).fold(0.0, f32::max).ceil()
    };
    let numbers = wide(&mut peaks.iter().map(|p| number(p.step)), Type::Mono);
    let phases = wide(&mut peaks.iter().map(|p| p.phase.to_owned()), Type::Body);
    let figures = wide(&mut peaks.iter().map(figure), Type::Mono);
    for peak in peaks {
        let figure = figure(peak);
        let name = format!("Step {}: {} {figure} {name}", number(peak.step), peak.phase);
        let response = ui.push_id(("peak of step", peak.step), |ui| ListRow::new(&name).height(20.0).show_painted(ui)).inner;
        let p = ui.painter();
        let inner = response.rect.shrink2(vec2(PAD_PANE, 0.0));
        label::text_in(p, inner, &number(peak.step), Type::Mono, t.text3);
        label::figure(p, inner, &figure, t.text1);
        let left = inner.left() + numbers + 10.0;
        label::text_in(p, inner.with_min_x(left), peak.phase, Type::Body, t.text1);
        let bars = left + phases + if phases > 0.0 { 12.0 } else { 0.0 }..=inner.right() - figures - 12.0;
        let width = (bars.end() - bars.start()) * peak.bytes as f32 / most;
        if width > 1.0 {
            let bar = Rect::from_min_size(pos2(*bars.start(), inner.center().y - 3.0), vec2(width, 6.0));
            p.rect_filled(bar, 0, t.other);
        }
        if response.clicked() {
            cx.actions.send(Action::GoTo(peak.event));
        }
        response.on_hover_text(format!("At event {}. A click goes there.", count(u64::from(peak.event))));
    }
}

/// A row of a list for a thing: a click selects it, and the pointer lights it up in all views. Returns the row and its padded room.
fn item_row(ui: &mut Ui, cx: &ViewContext<'_>, id: impl AsIdSalt, item: Item, name: &str) -> (Response, Rect) {
    let row = ListRow::new(name).height(20.0).selected(cx.shared.selected() == Some(item));
    let response = ui.push_id(id, |ui| row.show_painted(ui)).inner;
    if response.clicked() {
        cx.actions.send(Action::Select(Some(item)));
    }
    if response.contains_pointer() && cx.shared.hovered != Some(item) {
        cx.actions.send(Action::Hover(Some(item)));
    }
    let inner = response.rect.shrink2(vec2(PAD_PANE, 0.0));
    (response, inner)
}

/// Draws the largest live blocks, one row per place, role and size.
fn held(ui: &mut Ui, cx: &ViewContext<'_>, card: &Card) {
    let t = cx.tokens;
    // When all are smaller than 1 MiB each figure has its own unit.
    let in_mebibytes = card.held.iter().any(|h| h.each >= MEBIBYTE);
    let title = "Largest live blocks";
    section(ui, title, if in_mebibytes { "MiB each" } else { "each" }, false);
    let figure = |h: &Held| match (in_mebibytes, h.each) {
        (false, each) => Bytes(each).to_string(),
        (true, each) if each < MEBIBYTE / 200 => "<0.01".to_owned(),
        (true, each) => in_hundredths(each, MEBIBYTE),
    };
    let figures = card.held.iter().map(|h| label::width(ui.painter(), &figure(h), Type::Mono)).fold(48.0, f32::max).ceil();
    let head = ui.min_rect().right() - PAD_PANE - figures - 12.0;
    let wanted = label::width(ui.painter(), title, Type::Caption) + label::width(ui.painter(), "blocks", Type::Caption) + 8.0;
    if ui.min_rect().left() + PAD_PANE + wanted <= head {
        label::text(
            ui.painter(),
            pos2(head, ui.cursor().top() - 14.0),
            egui::Align2::RIGHT_CENTER,
            "blocks",
            Type::Caption,
            t.text3,
        );
    }
    for (i, h) in card.held.iter().enumerate() {
        let name = format!("{} \u{d7} {} {} each", count(h.count), h.name, Bytes(h.each));
        let (response, inner) = item_row(ui, cx, ("held", i), h.item, &name);
        let p = ui.painter();
        let swatch = Rect::from_center_size(inner.middle(inner.left() + 5.0), vec2(10.0, 10.0));
        p.rect_filled(swatch, 0, role_paint(h.role).colour(t));
        label::figure(p, inner, &figure(h), t.text1);
        let counts = inner.with_max_x(inner.right() - figures - 12.0);
        let counts = label::text_in_right(p, counts, &count(h.count), Type::Mono, t.text3);
        let room = inner.across(inner.left() + 16.0, counts.left() - 8.0);
        match openable(cx, h.frame) {
            Some(frame) if place_link(ui, cx, frame, "", room, ("held", i)).1 => cx.actions.send(Action::Select(Some(h.item))),
            Some(_) => {}
            // A place is certain, whatever the role.
            None if h.name == h.role.text() => paint_role(p, t, h.role, h.is_probable, room, t.text1),
            None => _ = label::name_in(p, room, &h.name, Type::Body, t.text1),
        }
        Tip::new(&h.name)
            .swatch(role_paint(h.role).colour(t))
            .row("role", h.role.words(h.is_probable))
            .row("each", Bytes(h.each))
            .row("together", Bytes(h.each * h.count))
            .row_if("the first", (!h.tip.is_empty()).then_some(&h.tip))
            .note("Click selects the first of them.")
            .show(&response);
    }
    let (shown, all) = card.shown;
    if shown < all {
        ui.add_space(4.0);
        pane::note(ui, &format!("{} of {} blocks shown", count(shown), count(all)), Type::Caption, t.text3);
    }
}

/// Draws a list of other things: name, note, bar, figure.
fn lines(ui: &mut Ui, cx: &ViewContext<'_>, list: &List) {
    let t = cx.tokens;
    let most = list.lines.iter().map(|l| l.bytes).max().unwrap_or(1).max(1) as f32;
    // Wide enough for every note, so that the bars are aligned and no figure is cut.
    let notes = list.lines.iter().map(|l| label::width(ui.painter(), &l.note, Type::Mono)).fold(64.0, f32::max).ceil();
    // All bars begin after the longest name, so that they have one scale.
    let names_width = list.lines.iter().map(|l| label::width(ui.painter(), &l.name, Type::Mono)).fold(0.0, f32::max);
    for (i, line) in list.lines.iter().enumerate() {
        let figure = Bytes(line.bytes).to_string();
        let (response, inner) = item_row(ui, cx, (&list.title, i), line.item, &format!("{} {figure}", line.name));
        let painter = ui.painter();
        // A narrow pane drops first the note and then the bar. Name and figure stay.
        let figure_rect = label::text_in_right(painter, inner, &figure, Type::Mono, t.text1);
        let names = inner.with_max_x(figure_rect.left() - 8.0);
        let covered = label::name_in(painter, names, &line.name, Type::Mono, t.text2);
        let note = inner.across(covered.right() + 10.0, covered.right() + 10.0 + notes);
        if note.right() <= names.right() {
            label::figure(painter, note, &line.note, t.text3);
        }
        let bars = inner.across(inner.left() + names_width + notes + 20.0, inner.right() - 72.0);
        if bars.width() > 12.0 && bars.right() < figure_rect.left() + 1.0 {
            let width = bars.width() * line.bytes as f32 / most;
            let bar = Rect::from_min_size(pos2(bars.right() - width, bars.center().y - 3.0), vec2(width.max(1.0), 6.0));
            painter.rect_filled(bar, 0, t.text3);
        }
        let is_cut = covered.width() + 1.0 < label::width(painter, &line.name, Type::Mono);
        let tip = match (is_cut, line.tip.is_empty()) {
            (true, true) => line.name.clone(),
            (true, false) => format!("{}\n{}", line.name, line.tip),
            (false, _) => line.tip.clone(),
        };
        if !tip.is_empty() {
            response.on_hover_text(tip);
        }
    }
}
