//! Plan: predicts the memory of a program at other sizes, on other cards and with changes, from recordings at known sizes.

use std::sync::Arc;

use egui::{Rect, Stroke, Ui};

use super::plan_link::plan_link;
use super::{View, ViewContext, ViewInfo};
use crate::app::state::ViewKind;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cut, PaneHeader, Push, label, pane, segmented, selector};
use inputs::{Origin, State};
use model::PlanView;
use room::{Room, room_for};
use runs::Runs;
use scene::{Question, Scene};
use vramscope_core::inference::whatif::WhatIf;
use vramscope_core::model::{DeviceKind, Format};
use vramscope_core::plan::cards::Card;
use vramscope_core::plan::{ENDS, Side, Trust};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, capital, count, counted};

mod at;
mod chart;
mod inputs;
mod layout;
mod left;
mod marks;
mod model;
mod room;
mod runs;
mod scene;
mod sizes;
mod table;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Plan,
    legend: &[
        ("rings, dots", "recorded sizes, and sizes that were run on the model of the allocator"),
        ("band", "the span in which the peak lies: what one recording, or what follows no law, leaves open"),
        ("limit", "what PyTorch may reserve: a cap, or a card less its CUDA context and other programs"),
        ("OOM", "the first size that fails in every run that was tried"),
        ("hatched", "free inside reserved memory; in the row of outcomes a size that may fit"),
        ("slider", "arrows move one step, with Shift eight; Home and End; L the largest that fits, W the wanted size"),
        ("click a row", "plots the change and shows the lines to paste; a double click opens the run as a recording"),
        (
            "box of a row",
            "adds the row's change or setting to the chosen ones, or takes it away; also Ctrl + click, Ctrl + Enter",
        ),
        ("retries", "PyTorch gives cached memory back and asks again: it fits, and waits for the device each time"),
        ENDS[0],
        ENDS[1],
        ENDS[2],
        ENDS[3],
        ENDS[4],
        (Trust::Exact.word(), Trust::Exact.about()),
        (Trust::Close.word(), Trust::Close.about()),
        (Trust::Estimate.word(), Trust::Estimate.about()),
    ],
    create: || Box::new(PlanView::default()),
};

impl View for PlanView {
    fn subtitle(&self, _cx: &ViewContext<'_>) -> String {
        match &self.asked {
            Some(plan) => {
                let from = counted(plan.programs().len() as u64, "recording", "recordings");
                format!("from {from}; each size is run on the model of the allocator")
            }
            None => String::new(),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if let Some((done, all)) = self.runs.progress() {
            if Push::plain("Stop").small().show(ui).clicked() {
                self.runs.stop();
            }
            ui.label(Type::Caption.text(format!("{done} of {all} runs made")).color(cx.tokens.text2));
        } else if self.runs.is_stopped() {
            if Push::primary("Go on").small().show(ui).clicked() {
                self.runs.resume();
            }
            ui.label(Type::Caption.text("stopped").color(cx.tokens.text2));
        }
    }

    fn status(&self) -> Option<Vec<(String, String)>> {
        Some(self.told.clone()).filter(|told| !told.is_empty())
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.told.clear();
        let device = cx.data.device();
        if matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
            let sentence = format!("{} is not managed by the CUDA caching allocator, so there is nothing to plan.", device.id);
            return pane::empty_state(ui, &sentence, None);
        }
        if cx.data.recording.source.format == Format::Plan {
            let sentence =
                "This run is predicted already: it was never made. Plan from the recordings that it follows from, in their tabs.";
            return pane::empty_with(ui, sentence, 40.0, |ui| plan_link(ui, cx));
        }
        if !WhatIf::has_requests(device) {
            return cx.without_history(
                ui,
                "A plan is made of the requests for memory of some training steps, and this recording has none. Record them:",
            );
        }
        self.inputs.begin(cx);
        for path in cx.shared.to_plan_with.iter().skip(self.planned_with) {
            self.inputs.add(Origin::File(path.clone()), inputs::name_of(path));
        }
        self.planned_with = cx.shared.to_plan_with.len();
        let room = self.room(cx);
        let state = self.inputs.plan(cx);
        let area = ui.max_rect();
        let built = match (&state, room) {
            (State::Ready(built), Some(room)) => Some((Arc::clone(built), room)),
            _ => None,
        };
        let planned = built.as_ref().and_then(|(built, room)| Some((built.plan.as_ref().ok()?, *room)));
        if let Some((plan, room)) = planned {
            if self.asked.as_ref().is_none_or(|asked| !Arc::ptr_eq(asked, plan)) {
                (self.asked, self.runs) = (Some(Arc::clone(plan)), Runs::default());
            }
            let (scene, mut asks) = self.scene(plan, room, &cx.data.ooms);
            if scene.knows {
                let cards = room::LISTED.iter().copied().chain(self.more_card).filter_map(room::card);
                asks.extend(cards.map(|card| left::largest_ask(&scene, &scene.own, Room::Card(card).limit(self.held))));
            }
            asks.sort_by_key(|ask| ask.urgency(&scene.own, scene.limit));
            self.runs.want(cx.jobs, plan, &asks);
            self.told = told(&scene, self.chosen_row(&scene).map(|row| row.title.as_str()));
            self.planned(ui, cx, area, &scene);
            if let Some((done, all)) = self.runs.progress() {
                pane::progress_line(ui, area, Some(done as f32 / all.max(1) as f32));
            }
            return;
        }
        if self.asked.take().is_some() {
            self.runs = Runs::default();
        }
        let areas = layout::areas(area, 0, true);
        let refusal = built.as_ref().and_then(|(built, _)| built.plan.as_ref().err());
        let said = match (&state, refusal) {
            (State::Incomplete(sentence), _) => Some(sentence.clone()),
            (_, Some(refusal)) if !refusal.sides.is_empty() => Some("These are not the same program.".to_owned()),
            // The reason is shown beside it.
            (_, Some(_)) => Some("There is no plan for this recording.".to_owned()),
            _ => None,
        };
        self.column(ui, cx, areas.left, None, said.as_deref());
        let rest = area.with_min_x(areas.left.right() + 1.0);
        let mut only_first = false;
        pane::inside(ui, rest, "no plan", |ui| match (refusal, &state) {
            (Some(refusal), _) => {
                let end = if refusal.sides.is_empty() { "." } else { ":" };
                let needed = if refusal.asks_whatif { NEEDED } else { "" };
                let sentence = format!("{}{end}{needed}", capital(&refusal.sentence));
                pane::empty_with(ui, &sentence, 20.0, |ui| {
                    parting(ui, &refusal.sides);
                    if refusal.asks_whatif || !cx.data.ooms.is_empty() {
                        ui.add_space(12.0);
                        ui.horizontal(|ui| left::ways_on(ui, cx));
                    }
                });
                if self.inputs.chosen.len() > 1 {
                    ui.add_space(10.0);
                    let first = self.inputs.chosen.first().map_or("", |chosen| chosen.name.as_str());
                    let words = format!("Use only {}", label::without_middle_letters(first, 20, 20));
                    ui.vertical_centered(|ui| only_first = Push::outlined(&words).show(ui).clicked());
                }
            }
            (None, State::Incomplete(_)) => {
                pane::empty_state(ui, "The curve appears here when the size of each recording is known.", None);
            }
            (None, _) => pane::empty_state(ui, &waiting(cx), None),
        });
        if only_first {
            self.inputs.only_first();
        }
        if let State::Making(share) = state {
            pane::progress_line(ui, area, share);
            ui.request_repaint_after(std::time::Duration::from_millis(100));
        }
    }
}

/// What a plan needs when the program failed before a whole step, and which view helps meanwhile.
const NEEDED: &str = " It takes a recording of a few whole steps, at a size that fits. For the requests that were made What-if tells which \
settings and which limit serve them.";

/// What is known before the plan is ready, and what is being computed.
fn waiting(cx: &ViewContext<'_>) -> String {
    let (curves, events) = (&cx.data.tables.curves, cx.data.device().events.len() as u64);
    let [reserved, allocated] = [Quantity::Reserved, Quantity::Allocated].map(|quantity| Bytes(curves.peak(quantity).0));
    format!(
        "As recorded: {reserved} reserved, {allocated} allocated. What each of {} is for is being worked out; then other sizes are run \
         on the model of the allocator, and the curve appears here.",
        counted(events, "event", "events")
    )
}

/// Two requests at which two programs start to differ, side by side: what each requests, and its stack, innermost first.
/// Differing lines stand out.
fn parting(ui: &mut Ui, sides: &[Side]) {
    let t = Tokens::of(ui);
    let [a, b] = sides else { return };
    ui.add_space(14.0);
    ui.columns_const(|columns: &mut [Ui; 2]| {
        for (ui, (side, other)) in columns.iter_mut().zip([(a, b), (b, a)]) {
            ui.spacing_mut().item_spacing.y = 2.0;
            label::paragraph(ui, &side.name, Type::Strong, t.text1);
            let asks =
                side.bytes.map_or_else(|| "asks for nothing more".to_owned(), |bytes| format!("asks for {}", Bytes(bytes)));
            label::paragraph(ui, &asks, Type::Body, t.text2);
            ui.add_space(4.0);
            for line in &side.lines {
                let ink = if other.lines.contains(line) { t.text3 } else { t.text1 };
                label::paragraph(ui, line, Type::Mono, ink);
            }
        }
    });
}

/// The status bar: the chosen size, its figures, and the chosen row.
fn told(scene: &Scene, row: Option<&str>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    if scene.knows {
        out.push((format!("{} ", scene.name), count(scene.chosen)));
    }
    out.extend(row.map(|title| ("with ".to_owned(), title.to_owned())));
    if let Some(point) = &scene.at_row {
        let p = &point.capped;
        let (peak, limit) = (Bytes(p.peak_reserved_bytes), Bytes(scene.limit));
        out.push(match p.oom {
            true => ("needs ".to_owned(), format!("{peak}, limit {limit}")),
            false => ("reserved ".to_owned(), format!("{peak} of {limit}")),
        });
        out.push(("allocated ".to_owned(), Bytes(p.peak_allocated_bytes).to_string()));
        if p.retries > 0 && !p.oom {
            out.push(("retries ".to_owned(), count(p.retries)));
        }
    }
    let sizes = counted(scene.points.len() as u64, "size", "sizes");
    out.push((String::new(), format!("{sizes}, {} tried", counted(tried(scene).0, "change", "changes"))));
    out
}

/// How many changes and settings were tried, and how many there are.
fn tried(scene: &Scene) -> (u64, u64) {
    let others = || scene.rows.iter().filter(|row| row.kind != scene::Kind::Own);
    let hidden = if scene.shows_idle { 0 } else { scene.idle };
    let done = others().filter(|row| row.figures.is_some()).count() + hidden;
    (done as u64, (others().count() + hidden) as u64)
}

impl PlanView {
    /// The memory to fit in: the user's choice, or what the recording shows, or a card that is large enough.
    fn room(&mut self, cx: &ViewContext<'_>) -> Option<Room> {
        if let Some(room) = self.room {
            return Some(room);
        }
        let data = Arc::clone(cx.data);
        let found = self.own_room.get(cx.jobs, "plan", &(), move |progress| {
            let what_if = data.what_if(progress).ok()?;
            let limit = what_if.own_limit();
            // When the cap is only known as a range, its low end is certain.
            let estimate = what_if.own().limit_range().filter(|cap| !cap.is_known() && cap.least > 0);
            let device = data.device();
            let peak = data.tables.curves.peak(Quantity::Reserved).0;
            let own_card = device.name.as_deref().and_then(|name| Card::find(name).ok()).filter(|card| card.usable() >= peak);
            let room = match (limit, own_card) {
                (Some(limit), _) => Room::Cap(estimate.map_or(limit, |cap| cap.least)),
                (None, Some(card)) => Room::Card(card),
                (None, None) => room_for(peak),
            };
            Some((room, estimate))
        });
        let (room, estimate) = *found.value?;
        self.estimate = estimate;
        self.choose_room(room);
        Some(room)
    }

    fn column(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rect: Rect, scene: Option<&Scene>, said: Option<&str>) {
        ui.painter().vline(rect.right() + 0.5, rect.y_range(), Stroke::new(1.0, cx.tokens.line));
        pane::inside(ui, rect, "plan left", |ui| self.left(ui, cx, scene, said));
    }

    fn planned(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, area: Rect, scene: &Scene) {
        let t = cx.tokens;
        let areas = layout::areas(area, scene.rows.len(), scene.knows);
        self.column(ui, cx, areas.left, Some(scene), None);
        if let Some(rect) = areas.right {
            ui.painter().vline(rect.left() - 0.5, rect.y_range(), Stroke::new(1.0, t.line));
            pane::inside(ui, rect, "plan right", |ui| self.right(ui, cx, scene));
        }
        pane::inside(ui, areas.charts, "plan charts", |ui| {
            self.chart_head(ui, cx, scene, areas.right.is_none());
            if scene.knows {
                let below = ui.available_rect_before_wrap();
                pane::inside(ui, below, "plan plots", |ui| self.charts(ui, cx, scene));
            } else {
                self.ask_size(ui, cx, scene);
            }
        });
        let line = areas.below.down(areas.below.top() - 1.0, areas.below.top());
        ui.painter().rect_filled(line, 0, t.line);
        let has_right = areas.right.is_some();
        pane::inside(ui, areas.below, "plan below", |ui| self.below(ui, cx, scene, has_right));
    }

    fn chart_head(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, has_button: bool) {
        let title = if scene.knows { format!("Peak against {}", scene.name) } else { "Peak against size".to_owned() };
        let names = scene.plan.names().to_vec();
        let mut axis = self.axis.min(names.len().saturating_sub(1));
        PaneHeader::new(&title).show(ui, |ui| {
            if has_button {
                self.open_button(ui, cx, scene);
            }
            if names.len() > 1 && selector(ui, "x", &mut axis, &names) {
                (self.axis, self.chosen, self.wanted, self.step) = (axis, None, None, None);
            }
            if scene.knows {
                let title = label::width(ui.painter(), &title, Type::Strong) + 24.0;
                marks::marks(ui, cx.tokens, title);
            }
        });
    }

    /// Asks for the size of the recorded run, because no file records it and other sizes are relative to it.
    fn ask_size(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        ui.add_space(14.0);
        pane::line(ui, |ui| {
            ui.label(Type::LeadStrong.text(format!("Which {} was this run at?", scene.name)).color(cx.tokens.text1));
            if let Some(value) = self.number_field(ui, &format!("The {} of this run", scene.name), 0, 64.0) {
                self.inputs.set(0, &scene.name, value);
            }
        });
        ui.add_space(4.0);
        let sentence =
            "The file's name does not tell. With the number the curve of all sizes appears here, and the largest that fits.";
        pane::note(ui, sentence, Type::Body, cx.tokens.text2);
    }

    /// Draws the table, and also the contents of the right column when there is no room for that column.
    fn below(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, has_right: bool) {
        let fits = scene.question == Question::Fit;
        let named = scene.named(scene.wanted);
        let is_narrow = !has_right && ui.ctx().content_rect().width() < 1200.0;
        let wanted = if scene.knows && !is_narrow { format!("the wanted {named}") } else { named };
        let title = if fits { format!("What would let {wanted} fit") } else { format!("What would save memory at {wanted}") };
        let (tried, all) = tried(scene);
        let of = counted(all, "change or setting", "changes and settings");
        let caption = match scene.helping {
            // Progress is shown in the header, which counts the runs.
            _ if tried < all => format!("{of}, being tried"),
            helping if fits => format!("{helping} of {of} would"),
            1 => format!("1 of {of} lowers its peak"),
            helping => format!("{helping} of {of} lower its peak"),
        };
        let mut page = if has_right { 0 } else { self.page };
        PaneHeader::new(&title).caption(&caption).show(ui, |ui| {
            if !has_right {
                segmented(ui, "Below", &mut page, &["Changes", "Roles and code"]);
            }
            if page == 0 {
                self.order_menu(ui, scene);
                if scene.idle > 0 {
                    let words = if self.shows_idle { "Hide" } else { "Show" };
                    let about = match scene.question {
                        Question::Fit => "Changes and settings that do not apply here, or that alone are not enough.",
                        Question::Save => "Changes and settings that do not apply here or do not lower the peak, and why.",
                    };
                    // The title has priority.
                    let words = if is_narrow {
                        format!("{words} {} more", scene.idle)
                    } else {
                        format!("{words} {} that {}", scene.idle, if fits { "alone would not" } else { "would not help" })
                    };
                    if Push::plain(&words).small().show(ui).on_hover_text(about).clicked() {
                        self.shows_idle ^= true;
                    }
                }
            }
            // The rows are for the wanted size. This button makes the size in view the wanted one.
            if scene.knows && scene.chosen != scene.wanted {
                let words = format!("Try at {}", scene.named(scene.chosen));
                if Push::plain(&words).small().show(ui).on_hover_text("Makes the size in sight the wanted one.").clicked() {
                    self.wanted = Some(scene.chosen);
                }
            }
        });
        if !has_right {
            self.page = page;
        }
        if page == 0 {
            self.table(ui, cx, scene);
        } else {
            self.right_across(ui, cx, scene);
        }
    }
}
