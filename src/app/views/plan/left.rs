//! The left column: the answer, the recordings with their sizes, how well they explain the program, the memory to fit in.

use egui::text::LayoutJob;
use egui::{Key, Rect, Response, ScrollArea, Ui, pos2, vec2};

use super::ViewContext;
use super::inputs::{Built, Origin, name_of};
use super::model::PlanView;
use super::room::{LISTED, Room, card, card_size};
use super::runs::{Answer, Ask};
use super::scene::Scene;
use super::sizes::{Ink, headline, lead, number};
use crate::app::state::{Action, Choosing, Command, Workspace};
use crate::app::theme::Type;
use crate::app::widgets::{
    CodeWell, Cut, Field, Icon, KeyValue, ListRow, Push, icon_button_sized, label, link_with, menu_item, padded, pane, row,
    section, selector_button,
};
use vramscope_core::plan::cards::{CARDS, CONTEXT, Card};
use vramscope_core::units::{Bytes, capital, count, counted};

/// Links for when the plan has no answer.
pub(super) fn ways_on(ui: &mut Ui, cx: &ViewContext<'_>) {
    ui.spacing_mut().item_spacing.x = 8.0;
    let mut way = |words: &str, about: &str, to: Workspace| {
        if Push::outlined(words).show(ui).on_hover_text(about).clicked() {
            cx.actions.run(Command::Workspace(to));
        }
    };
    way("Open What-if", "The same requests under other settings and limits.", Workspace::WhatIf);
    if !cx.data.ooms.is_empty() {
        way("Open OOM autopsy", "Why the request failed, and what to free for it.", Workspace::Autopsy);
    }
}

impl PlanView {
    /// The left column. Without a scene there is no plan yet, and `said` explains what is missing.
    pub(super) fn left(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: Option<&Scene>, said: Option<&str>) {
        ScrollArea::vertical().id_salt("plan left").auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            match scene {
                Some(scene) => self.answer(ui, cx, scene),
                None => {
                    ui.add_space(14.0);
                    let ink = if said.is_some() { cx.tokens.text1 } else { cx.tokens.text3 };
                    let making = if self.inputs.chosen.len() > 1 {
                        "Laying the recordings over each other\u{2026}"
                    } else {
                        "Reading what the recording asks for\u{2026}"
                    };
                    pane::note(ui, said.unwrap_or(making), Type::Lead, ink);
                }
            }
            self.recordings(ui, cx);
            if let Some(scene) = scene {
                explained(ui, cx, scene);
                self.rooms(ui, cx, scene);
            }
            ui.add_space(16.0);
        });
    }

    fn answer(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let t = cx.tokens;
        ui.add_space(12.0);
        padded(ui, |ui| {
            let top = ui.cursor().top();
            match headline(scene) {
                Some((words, is_no)) => {
                    let ink = if is_no { t.red } else { t.text1 };
                    label::paragraph(ui, &words, Type::Display, ink);
                }
                None => {
                    let words = format!("Trying {} of {} sizes\u{2026}", count(scene.points.len() as u64), scene.all);
                    label::paragraph(ui, &words, Type::Lead, t.text3);
                }
            }
            // What the answer is not about comes before its details.
            let first: Vec<String> = scene.plan.doubts().iter().cloned().chain(scene.plan.left_out()).collect();
            for sentence in &first {
                ui.add_space(4.0);
                label::paragraph(ui, sentence, Type::Body, t.amber);
            }
            ui.add_space(4.0);
            let mut job = LayoutJob::default();
            job.wrap.max_width = ui.available_width();
            for (piece, ink) in lead(scene) {
                let (kind, colour) = match ink {
                    Ink::Plain => (Type::Lead, t.text2),
                    Ink::Strong => (Type::LeadStrong, t.text1),
                    Ink::Red => (Type::Lead, t.red),
                };
                job.append(&piece, 0.0, label::format(kind, colour));
            }
            if !job.is_empty() {
                ui.add(egui::Label::new(job).wrap());
            }
            if scene.is_hopeless {
                ui.add_space(4.0);
                ui.horizontal(|ui| ways_on(ui, cx));
            }
            if let Some(open) = scene.plan.left_open() {
                ui.add_space(4.0);
                label::paragraph(ui, &open, Type::Body, t.amber);
            }
            if let Some(cap) = self.room.and_then(|room| self.estimated(room)) {
                ui.add_space(4.0);
                let [least, most] = [cap.least, cap.most].map(Bytes);
                let words = format!(
                    "The limit is {}. What needs at most {least} fits; what needs more than that, up to {most}, may fit.",
                    cap.estimate()
                );
                label::paragraph(ui, &words, Type::Body, t.amber);
            }
            for note in scene.plan.notes().iter().filter(|note| !first.contains(note)) {
                ui.add_space(4.0);
                label::paragraph(ui, note, Type::Body, t.text2);
            }
            // Keeps the parts below in place while the sentence grows.
            ui.add_space((top + 132.0 - ui.cursor().top()).max(0.0));
        });
        ui.add_space(10.0);
        if !scene.knows {
            return;
        }
        pane::line(ui, |ui| {
            ui.label(Type::Body.text("in steps of").color(t.text2));
            if let Some(step) = self.number_field(ui, "Step", scene.unit, 44.0) {
                self.step = Some(step);
            }
            ui.add_space(8.0);
            ui.label(Type::Body.text("wanted").color(t.text2));
            if let Some(wanted) = self.number_field(ui, "Wanted", scene.wanted, 60.0) {
                self.wanted = Some(wanted);
            }
        });
        if scene.plan.names().len() > 1 {
            ui.add_space(8.0);
            pane::line(ui, |ui| {
                for name in scene.plan.names().iter().filter(|n| **n != scene.name && scene.plan.held_at(n).is_none()) {
                    ui.label(Type::Body.text(name.as_str()).color(t.text2));
                    let at = scene.base.get(name).unwrap_or(1);
                    if let Some(value) = self.number_field(ui, &capital(name), at, 60.0) {
                        self.others.insert(name.clone(), value);
                    }
                }
            });
        }
    }

    /// A number field. Returns the new number on Enter or when the field loses the focus.
    pub(super) fn number_field(&mut self, ui: &mut Ui, name: &str, value: u64, width: f32) -> Option<u64> {
        let mut typed = self.typed.remove(name).unwrap_or_else(|| if value == 0 { String::new() } else { count(value) });
        let response = Field::new(name).hint("").mono().width(width).show(ui, &mut typed);
        let taken = response.lost_focus().then(|| number(&typed)).flatten();
        if response.has_focus() {
            self.typed.insert(name.to_owned(), typed);
        }
        taken.filter(|new| *new != value)
    }

    fn recordings(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let head = section(ui, "Recordings", "", false);
        let inner = head.rect.shrink2(vec2(16.0, 0.0)).expand2(vec2(0.0, 3.0));
        self.add_menu(&mut pane::child_from_right(ui, inner, "add"), cx);
        let shown = self.inputs.latest().cloned();
        let mut removed = None;
        for at in 0..self.inputs.chosen.len() {
            if self.recording(ui, cx, at, shown.as_deref()) {
                removed = Some(at);
            }
        }
        if let Some(at) = removed {
            self.inputs.remove(at);
        }
        self.offers(ui, cx);
        ui.add_space(6.0);
        pane::line(ui, |ui| {
            let words = if self.inputs.chosen.len() > 1 { "they differ in" } else { "it grows with" };
            ui.label(Type::Body.text(words).color(t.text2));
            let width = (ui.available_width() - 16.0).clamp(60.0, 140.0);
            let field = Field::new("Quantities").hint("batch, seq").width(width).show(ui, &mut self.inputs.names);
            if field.lost_focus() {
                self.inputs.take_names();
            }
            field.on_hover_text("The quantities that the recordings differ in, by names of your own, with commas between.");
        });
    }

    /// A recording: its name, its sizes, its sparkline. True when the user removes it.
    fn recording(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, at: usize, built: Option<&Built>) -> bool {
        let t = cx.tokens;
        let rect = row::line(ui, 52.0);
        let p = ui.painter().clone();
        p.hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line));
        let inner = rect.shrink2(vec2(16.0, 0.0));
        let spark = Rect::from_min_size(pos2(inner.right() - 72.0, rect.top() + 7.0), vec2(72.0, 20.0));
        let mut is_removed = false;
        let mut name_right = spark.left() - 8.0;
        if at > 0 {
            let close = Rect::from_center_size(pos2(spark.left() - 14.0, rect.top() + 16.0), egui::Vec2::splat(20.0));
            let mut place = pane::child(ui, close, ("remove", at));
            let name = format!("Leave out {}", self.inputs.chosen[at].name);
            is_removed = icon_button_sized(&mut place, Icon::Close, &name, 20.0, 12.0).clicked();
            name_right = close.left() - 4.0;
        }
        let chosen = &mut self.inputs.chosen[at];
        let place = rect.lines(8.0, 24.0).across(inner.left(), name_right);
        let shown_name = label::without_middle(&p, &chosen.name, Type::Strong, place.width());
        label::text_in(&p, place, &shown_name, Type::Strong, t.text1);
        if let Some(shown) = built.and_then(|b| b.shown.get(at)) {
            shown.sparkline.paint(&p, t, spark);
            let low = rect.lines(29.0, 45.0).across(spark.left() - 30.0, inner.right());
            label::figure(&p, low, &Bytes(shown.peak).to_string(), t.text2);
        }
        let line = rect.lines(26.0, 48.0).across(inner.left(), spark.left() - 2.0);
        let mut row = pane::child_from_left(ui, line, ("sizes", at));
        row.spacing_mut().item_spacing.x = 6.0;
        let quantities = {
            let mut names: Vec<String> = self.inputs.names.split(',').map(|n| n.trim().to_owned()).collect();
            names.resize(self.inputs.chosen[at].texts.len(), String::new());
            names
        };
        for (i, quantity) in quantities.iter().enumerate() {
            row.push_id((at, i), |ui| {
                ui.label(Type::Body.text(quantity.as_str()).color(t.text2));
                let chosen = &mut self.inputs.chosen[at];
                let field = Field::new("Size").hint("?").mono().width(46.0).height(20.0);
                let response = field.show(ui, &mut chosen.texts[i]);
                if response.changed() {
                    chosen.is_guess = false;
                }
                let about = match (chosen.is_guess, chosen.texts[i].is_empty()) {
                    (true, false) => "Read out of the file's name; type another number where it is wrong.",
                    (_, true) => "What this recording was run at.",
                    (false, false) => "As you typed it.",
                };
                response.on_hover_text(about);
            });
        }
        if let Some(shown) = built.and_then(|b| b.shown.get(at)) {
            let words = counted(shown.events, "event", "events");
            if row.available_width() >= label::width(&p, &words, Type::Mono) {
                row.label(Type::Mono.text(words).color(t.text3));
            }
        }
        is_removed
    }

    /// Matching files of the folder. A click adds one.
    fn offers(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let offered = self.inputs.offered(cx);
        if offered.is_empty() {
            return;
        }
        let t = cx.tokens;
        ui.add_space(4.0);
        padded(ui, |ui| ui.label(Type::Caption.text("In the same folder").color(t.text3)));
        for path in offered {
            let name = name_of(&path);
            let row = ListRow::new(&name).height(22.0).show_painted(ui);
            let inner = row.rect.shrink2(vec2(16.0, 0.0));
            Icon::Plus.paint(ui.painter(), inner.middle(inner.left() + 5.0), 12.0, t.accent);
            let place = inner.with_min_x(inner.left() + 16.0);
            let words = label::without_middle(ui.painter(), &name, Type::Body, place.width());
            label::text_in(ui.painter(), place, &words, Type::Body, t.text2);
            if row.clicked() {
                self.inputs.add(Origin::File(path), name);
            }
        }
    }

    /// A menu to add other tabs or a file.
    fn add_menu(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let button = link_with(ui, "+ Add one", Type::Body, None);
        pane::menu_below(&button, 280.0, |ui| {
            for open in cx.comparing.open() {
                let is_new = self.inputs.chosen.iter().all(|c| c.origin != Origin::Tab(open.id));
                if is_new && menu_item(ui, &open.title, None, None, true).clicked() {
                    self.inputs.add(Origin::Tab(open.id), open.title.clone());
                    ui.close();
                }
            }
            if menu_item(ui, "A file\u{2026}", None, None, true).clicked() {
                cx.actions.send(Action::Choose(Choosing::Plan));
                ui.close();
            }
        });
    }

    /// The cards, and a field for another limit.
    fn rooms(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let t = cx.tokens;
        let trailing = if scene.knows { format!("largest {}", scene.name) } else { String::new() };
        section(ui, "Memory to fit in", &trailing, false);
        let room = self.room.unwrap_or(Room::Cap(scene.limit));
        let own_card = match room {
            Room::Card(card) if !LISTED.contains(&card.name) => Some(card.name),
            _ => None,
        };
        self.more_card = own_card.or(self.more_card);
        let listed: Vec<Card> = LISTED.iter().copied().chain(self.more_card).filter_map(card).collect();
        for card in listed {
            let is_chosen = matches!(room, Room::Card(c) if c.name == card.name);
            let (response, inner) = radio_row(ui, cx, card.name, 24.0, is_chosen);
            let p = ui.painter();
            let figure = inner.with_min_x(inner.right() - if scene.knows { 84.0 } else { 0.0 });
            if scene.knows {
                label::figure(p, figure, &self.largest_in(scene, Room::Card(card).limit(self.held)), t.text3);
            }
            let size = inner.with_max_x(figure.left() - 8.0);
            let covered = label::text_in_right(p, size, &card_size(card), Type::Mono, t.text2);
            let name = inner.across(inner.left() + 22.0, covered.left() - 6.0);
            label::text_in(p, name, card.name, if is_chosen { Type::Strong } else { Type::Body }, t.text1);
            if response.clicked() {
                self.choose_room(Room::Card(card));
            }
        }
        let is_chosen = matches!(room, Room::Cap(_));
        let (response, inner) = radio_row(ui, cx, "a cap of your own", 28.0, is_chosen);
        let p = ui.painter().clone();
        let name = inner.with_min_x(inner.left() + 22.0);
        label::text_in(&p, name, "cap", if is_chosen { Type::Strong } else { Type::Body }, t.text1);
        if is_chosen && scene.knows {
            label::figure(&p, inner, &self.largest_in(scene, scene.limit), t.text3);
        }
        let place = Rect::from_min_size(pos2(inner.right() - 84.0 - 8.0 - 84.0, inner.top() + 3.0), vec2(84.0, 22.0));
        let mut beside = pane::child(ui, place, "cap");
        let field = Field::new("Cap").hint("24 GiB").mono().width(84.0).invalid(self.cap_error.is_some());
        let typed = field.show(&mut beside, &mut self.cap_text);
        if typed.changed() {
            self.cap_error = None;
        }
        if response.clicked() || (typed.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter))) {
            self.take_cap();
        } else if typed.lost_focus()
            && let Room::Cap(bytes) = room
        {
            // Drops text that was typed but not applied, because it would contradict the figures.
            self.cap_text = Bytes(bytes).limit();
        }
        if let Some(error) = &self.cap_error {
            pane::note(ui, error, Type::Caption, t.text2);
        }
        ui.add_space(4.0);
        padded(ui, |ui| self.more_cards(ui));
        ui.add_space(4.0);
        let words = "GiB as the driver counts them, 1.074 GB each. Vendors name a card by a round number of GB.";
        pane::note(ui, words, Type::Caption, t.text3);
        if matches!(room, Room::Card(_)) {
            section(ui, "Taken off the card first", "", false);
            KeyValue::new("CUDA context of the process", Bytes(CONTEXT)).show(ui);
            self.held_field(ui, cx);
            KeyValue::new("left for PyTorch", Bytes(scene.limit)).strong().show(ui);
        }
    }

    fn held_field(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let rect = row::line(ui, 26.0);
        let inner = rect.shrink2(vec2(16.0, 2.0));
        label::text_in(ui.painter(), inner, "other programs", Type::Body, cx.tokens.text2);
        let place = inner.with_min_x(inner.right() - 92.0);
        let mut beside = pane::child(ui, place, "held");
        let response = Field::new("Other programs").hint("0 MiB").mono().width(92.0).show(&mut beside, &mut self.held_text);
        if response.lost_focus() {
            self.held = match self.held_text.trim() {
                "" | "0" => 0,
                typed => Bytes::parse_limit(typed).map_or(self.held, |b| b.0),
            };
            self.held_text = if self.held == 0 { String::new() } else { Bytes(self.held).to_string() };
        }
    }

    fn more_cards(&mut self, ui: &mut Ui) {
        let button = selector_button(ui, "another card", self.more_card.unwrap_or("choose"));
        pane::menu_below(&button, 200.0, |ui| {
            ScrollArea::vertical().max_height(360.0).show(ui, |ui| {
                for card in CARDS.into_iter().filter(|card| !LISTED.contains(&card.name)) {
                    if menu_item(ui, card.name, None, Some(&card_size(card)), true).clicked() {
                        self.more_card = Some(card.name);
                        self.choose_room(Room::Card(card));
                        ui.close();
                    }
                }
            });
        });
    }

    /// The largest size that fits a limit, as far as it is known.
    fn largest_in(&self, scene: &Scene, limit: u64) -> String {
        let floor = |n: u64| n / scene.unit * scene.unit;
        let largest = self.runs.get(&largest_ask(scene, &scene.own, limit)).and_then(Answer::largest);
        match largest.map(|l| l.span.map(floor)) {
            None => "\u{2026}".to_owned(),
            Some([0, 0]) => "none".to_owned(),
            Some([sure, may]) if may > sure && scene.is_single() => format!("{}\u{2013}{}", count(sure), count(may)),
            Some([sure, _]) => count(sure),
        }
    }

    pub(super) fn choose_room(&mut self, room: Room) {
        self.room = Some(room);
        self.chosen = None;
        self.row = None;
        if let Room::Cap(bytes) = room {
            self.cap_text = Bytes(bytes).limit();
        }
    }

    fn take_cap(&mut self) {
        match Bytes::parse_limit(self.cap_text.trim()) {
            Ok(Bytes(cap)) if cap > 1 << 40 => self.cap_error = Some("No GPU has more than 1 TiB".to_owned()),
            Ok(Bytes(cap)) if self.room != Some(Room::Cap(cap)) => self.choose_room(Room::Cap(cap)),
            Ok(_) => {}
            Err(error) => self.cap_error = Some(capital(&error.to_string())),
        }
    }
}

/// The question for the largest size under a limit and a setting.
pub(super) fn largest_ask(scene: &Scene, conf: &str, limit: u64) -> Ask {
    let others = scene.size(scene.recorded.last().copied().unwrap_or(1));
    Ask::Largest { name: scene.name.clone(), others, conf: conf.to_owned(), limit }
}

/// A row with a radio button at its left. Returns its padded room too.
fn radio_row(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, height: f32, is_chosen: bool) -> (Response, Rect) {
    let t = cx.tokens;
    let response = ListRow::new(name).height(height).selected(is_chosen).show_painted(ui);
    let inner = response.rect.shrink2(vec2(16.0, 0.0));
    let centre = inner.middle(inner.left() + 6.0);
    ui.painter().circle_stroke(centre, 5.5, egui::Stroke::new(1.0, if is_chosen { t.accent } else { t.line2 }));
    if is_chosen {
        ui.painter().circle_filled(centre, 3.0, t.accent);
    }
    (response, inner)
}

/// How much of the program the recordings explain. With only one recording, also how to make a second.
fn explained(ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
    let t = cx.tokens;
    if scene.is_single() {
        section(ui, "One recording gives a range", "", false);
        padded(ui, |ui| {
            let words = "What grows with the size is guessed from what each block is for. A second recording, three steps long and of \
                         another size, narrows it:";
            label::paragraph(ui, words, Type::Body, t.text2);
            ui.add_space(6.0);
            let line = second_line(scene);
            CodeWell::new(&line).python().copy(true).show(ui);
        });
        return;
    }
    let Some(model) = scene.plan.model() else { return };
    section(ui, "What was explained", "", false);
    let (explained, open) = model.explained();
    let response = KeyValue::new("explained, at the peak", Bytes(explained)).show(ui);
    response.on_hover_text("Bytes at the peak of the largest recording of requests whose sizes could be predicted exactly.");
    let shown = model.unexplained();
    if let Some(first) = shown.first() {
        let requests: u64 = shown.iter().map(|u| u.requests).sum();
        let name = format!("not explained: {}", counted(requests, "request", "requests"));
        let response = KeyValue::new(&name, Bytes(open)).show(ui);
        let more = |u: &vramscope_core::plan::Unexplained| format!("{} at {}, {}", Bytes(u.bytes), u.place, u.role.text());
        let lines: Vec<String> = shown.iter().take(6).map(more).collect();
        response.on_hover_text(lines.join("\n"));
        let words = format!("Most of it at {}. The ranges cover it.", first.place);
        pane::note(ui, &words, Type::Caption, t.text3);
    } else {
        pane::note(ui, "The size of every request could be predicted exactly.", Type::Caption, t.text3);
    }
}

/// The command that plans with two recordings.
fn second_line(scene: &Scene) -> String {
    let half = |v: u64| if v > 1 { v / 2 } else { 2 };
    let at = scene.recorded.last().copied().unwrap_or(1);
    let name = if scene.knows { format!("{}={}", scene.name, half(at)) } else { format!("half the {}", scene.name) };
    format!(
        "torch.cuda.memory._record_memory_history(context=\"alloc\")\n# three steps at {name}\ntorch.cuda.memory._dump_snapshot(\"{}_{}.pickle\")",
        scene.name,
        if scene.knows { half(at).to_string() } else { "half".to_owned() }
    )
}
