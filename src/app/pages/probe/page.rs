//! Draws the probe page: scenarios and parameters at the left, the run at the right.

use egui::{Align, Layout, Popup, Rect, Role, ScrollArea, Sense, Stroke, Ui, UiBuilder, WidgetInfo, vec2};

use super::layout::lay_out;
use super::paint;
use super::paint::{PITCH, ROW};
use super::{PACES, ProbePage, Replayable};
use crate::app::jobs::Jobs;
use crate::app::state::{Action, Actions, Command};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::check;
use crate::app::widgets::chip::chip;
use crate::app::widgets::row::definition;
use crate::app::widgets::{
    Cut, Field, Icon, LegendEntry, ListRow, Push, Swatch, explanation, label, legend_row, menu_item, progress_line, row, rule,
    section, segmented, selector, selector_button,
};
use vramscope_core::model::BlockState;
use vramscope_core::units::{Bytes, count, counted};
use vramscope_live::probe::{ALL, Ending};

const LEFT: f32 = 320.0;
const HEAD: f32 = 78.0;

pub fn page_ui(page: &mut ProbePage, ui: &mut Ui, t: &Tokens, jobs: &Jobs, actions: &Actions) {
    let rect = ui.max_rect();
    ui.painter().rect_filled(rect, 0.0, t.s1);
    let head = rect.lines(0.0, HEAD);
    header(page, ui, t, head, jobs, actions);
    if page.is_running() {
        progress_line(ui, rect.with_min_y(head.bottom()), None);
    }
    let body = rect.with_min_y(head.bottom() + 2.0);
    let split = body.left() + LEFT.min(body.width() * 0.45);
    ui.painter().vline(split, body.y_range(), Stroke::new(1.0, t.line));
    let left = body.with_max_x(split);
    let right = body.with_min_x(split + 1.0);
    for (area, name) in [(left, "choices"), (right, "pictures")] {
        ui.scope_builder(UiBuilder::new().max_rect(area).layout(Layout::top_down(Align::Min)).id_salt(name), |ui| {
            ui.set_clip_rect(area.intersect(ui.clip_rect()));
            if name == "choices" { choices(page, ui, t) } else { pictures(page, ui, t) }
        });
    }
}

fn title(page: &ProbePage) -> String {
    match (page.scenario(), &page.replay) {
        (Some(s), _) => s.title.to_owned(),
        (None, Some(r)) => format!("The requests of {} again", r.title),
        (None, None) => "Probe".to_owned(),
    }
}

/// The main sentence: the outcome, what is running, or what would run.
fn sentence(page: &ProbePage) -> String {
    if page.is_running() {
        let p = &page.moment.picture;
        return format!("{}: {} reserved, {} live.", title(page), Bytes(p.reserved), Bytes(p.live));
    }
    let Some(Ok(done)) = &page.outcome else { return format!("{}.", title(page)) };
    let end = &done.report.end;
    let how = match &end.ending {
        Ending::OutOfMemory(_) => "A request failed",
        _ => "Every step was done",
    };
    let peak = Bytes(end.peak_reserved_bytes);
    if end.ending == Ending::Stopped {
        return format!("Stopped, and everything given back: peak {peak} reserved.");
    }
    if let Some(c) = &done.compared {
        let verdict = match (c.agrees_with_model, c.model_is_certain) {
            (false, _) if end.depends_on_placement => "it differs from the model where the driver's addresses decide",
            (true, true) => "this run and the model agree to the byte",
            (true, false) => "this run did what the model thinks possible",
            (false, _) => "this run and the model differ",
        };
        return format!("{how}: peak {peak} reserved; {verdict}.");
    }
    let finding = done.report.finding.as_deref().unwrap_or("nothing stands out");
    format!("{how}: peak {peak} reserved. Findings says: {finding}.")
}

fn header(page: &mut ProbePage, ui: &mut Ui, t: &Tokens, rect: Rect, jobs: &Jobs, actions: &Actions) {
    ui.painter().rect_filled(rect, 0.0, t.s2);
    let inner = rect.shrink2(vec2(16.0, 0.0));
    ui.scope_builder(UiBuilder::new().max_rect(inner).layout(Layout::top_down(Align::Min)).id_salt("head"), |ui| {
        ui.add_space(12.0);
        label::paragraph(ui, &sentence(page), Type::Lead, t.text1);
        ui.add_space(8.0);
        ui.horizontal(|ui| {
            let opened = match &page.outcome {
                Some(Ok(done)) => done.document,
                _ => None,
            };
            if page.is_running() {
                if Push::outlined("Stop and free").icon(Icon::Stop).show(ui).clicked() {
                    page.stop();
                }
            } else {
                let start = match opened {
                    Some(_) => Push::outlined("Run again"),
                    None => Push::primary("Start"),
                };
                if let Some(id) = opened
                    && Push::primary("Open the recording").show(ui).clicked()
                {
                    actions.send(Action::Activate(id));
                }
                if start.icon(Icon::Play).show(ui).clicked() {
                    page.start(jobs);
                }
                if matches!(page.outcome, Some(Ok(_))) && Push::outlined("Save as snapshot…").show(ui).clicked() {
                    actions.run(Command::SaveRecording);
                }
            }
            let card = &page.moment.picture.hello.card;
            let known = !card.name.is_empty();
            let is_simulated = if known { card.is_simulated } else { page.target == 0 };
            let words = match (known, is_simulated) {
                (true, true) => card.name.clone(),
                (false, true) if page.chosen.is_none() => "simulated card".to_owned(),
                (false, true) => "simulated card, 24 GiB".to_owned(),
                (true, false) => format!("real card: {}, {}", card.name, Bytes(card.total)),
                (false, false) => "real card".to_owned(),
            };
            chip(ui, &words);
            let p = &page.moment.picture;
            if p.events > 0 {
                ui.label(Type::Mono.text(format!("{} events", count(p.events))).color(t.text3));
            }
            explanation(ui, "the probe", 360.0, |ui| legend(ui, t));
            if let Some(complaint) = &page.complaint {
                ui.add(egui::Label::new(Type::Body.text(complaint).color(t.amber)).truncate()).on_hover_text(complaint);
            }
        });
    });
}

fn legend(ui: &mut Ui, t: &Tokens) {
    let words =
        "A scenario makes a known problem happen on PyTorch's allocator: on a card that is only counted, or on the real one.";
    label::paragraph(ui, words, Type::Body, t.text1);
    ui.add_space(6.0);
    for (what, meaning) in LEGEND {
        definition(ui, what, meaning, 96.0);
    }
}

const LEGEND: [(&str, &str); 6] = [
    ("curve", "reserved and live memory over the allocator's events, drawn as they arrive"),
    ("map", "reserved memory by address, wrapped into rows; each frame is a segment"),
    ("colours", "blocks by what allocated them, named above the map"),
    ("hatched", "free inside a segment"),
    ("pale", "freed by the program, still waiting for another stream"),
    ("afterwards", "the recording opens in a tab, and Findings calls it by the scenario's name"),
];

fn choices(page: &mut ProbePage, ui: &mut Ui, t: &Tokens) {
    ScrollArea::vertical().id_salt("choices").auto_shrink(false).show(ui, |ui| {
        let is_free = !page.is_running();
        let mut chosen = None;
        let _ = section(ui, "A recording's requests", "", true);
        if let Some(replay) = &page.replay {
            let row = ListRow::new("replay").selected(page.chosen.is_none()).show(ui, |ui| {
                let ink = if is_free { t.text1 } else { t.text3 };
                ui.add(egui::Label::new(Type::Strong.text(&replay.title).color(ink)).truncate().selectable(false));
            });
            if row.on_hover_text(format!("{}, {}", replay.title, counted(replay.events(), "event", "events"))).clicked() {
                chosen = Some(None);
            }
        }
        let picked = ui.add_enabled_ui(is_free, |ui| recordings(page, ui, t)).inner;
        let _ = section(ui, "Scenarios", "", false);
        for (i, scenario) in ALL.iter().enumerate() {
            let row = ListRow::new(scenario.name).selected(page.chosen == Some(i)).show(ui, |ui| {
                let ink = if is_free || page.chosen == Some(i) { t.text1 } else { t.text3 };
                ui.add(egui::Label::new(Type::Body.text(scenario.title).color(ink)).truncate().selectable(false));
            });
            if row.on_hover_text(scenario.watch).clicked() {
                chosen = Some(Some(i));
            }
        }
        match (picked, chosen) {
            (Some(picked), _) => page.choose_recording(picked),
            (None, Some(chosen)) => page.choose(chosen),
            (None, None) => {}
        }
        ui.add_enabled_ui(is_free, |ui| parameters(page, ui, t));
        ui.add_space(12.0);
    });
}

/// A list of the recordings in other tabs, to choose one.
fn recordings(page: &ProbePage, ui: &mut Ui, t: &Tokens) -> Option<Replayable> {
    if page.open.is_empty() {
        if page.replay.is_none() {
            ui.horizontal(|ui| {
                ui.add_space(12.0);
                let hint = "Open a recording with a trace, and it can be picked here.";
                ui.add(egui::Label::new(Type::Caption.text(hint).color(t.text3)).truncate().selectable(false));
            });
            ui.add_space(6.0);
        }
        return None;
    }
    let is_chosen = |r: &Replayable| {
        page.replay.as_ref().is_some_and(|c| std::sync::Arc::ptr_eq(&c.recording, &r.recording) && c.device == r.device)
    };
    let mut picked = None;
    line(ui, t, "from an open tab", "A recording, a simulation or a run of the probe that is open in another tab.", |ui| {
        let button = selector_button(ui, "", "choose");
        Popup::menu(&button).gap(4.0).show(|ui| {
            ui.set_width(360.0);
            ScrollArea::vertical().max_height(320.0).show(ui, |ui| {
                for recording in &page.open {
                    let events = counted(recording.events(), "event", "events");
                    let is_current = page.chosen.is_none() && is_chosen(recording);
                    if menu_item(ui, &recording.title, Some(is_current), Some(&events), true).clicked() {
                        picked = Some(recording.clone());
                        ui.close();
                    }
                }
            });
        });
    });
    picked
}

/// A row with a label at the left and a control at the right.
fn line(ui: &mut Ui, t: &Tokens, name: &str, about: &str, control: impl FnOnce(&mut Ui)) {
    ui.allocate_ui_with_layout(vec2(ui.available_width(), 28.0), Layout::left_to_right(Align::Center), |ui| {
        ui.add_space(12.0);
        let response = ui.label(Type::Body.text(name).color(t.text2));
        if !about.is_empty() {
            response.on_hover_text(about);
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.add_space(12.0);
            control(ui);
        });
    });
}

fn parameters(page: &mut ProbePage, ui: &mut Ui, t: &Tokens) {
    if let Some(scenario) = page.scenario()
        && !scenario.params.is_empty()
    {
        let _ = section(ui, "Parameters", "", false);
        for (param, value) in scenario.params.iter().zip(&mut page.parameters) {
            let is_wrong = param.read(value).is_err();
            line(ui, t, param.name, param.about, |ui| {
                Field::new(param.name).width(150.0).mono().invalid(is_wrong).show(ui, value).on_hover_text(param.about);
            });
        }
    }
    let _ = section(ui, "Conditions", "", false);
    line(ui, t, "run on", "A real card is touched in a process of its own, which gives everything back when it ends.", |ui| {
        segmented(ui, "run on", &mut page.target, &["simulated card", "this card"]);
    });
    if page.target == 1 {
        line(ui, t, "beside others", "Run although others hold more than a twentieth of the card.", |ui| {
            check(ui, "allowed", &mut page.is_shared);
        });
    }
    let is_wrong = vramscope_core::model::AllocConf::parse(&page.conf).is_err();
    line(ui, t, "settings", "As in PYTORCH_CUDA_ALLOC_CONF.", |ui| {
        Field::new("settings").hint("PyTorch's defaults").width(200.0).mono().invalid(is_wrong).show(ui, &mut page.conf);
    });
    let is_wrong = !page.limit.trim().is_empty() && Bytes::parse(page.limit.trim()).is_err();
    line(ui, t, "limit", "The most bytes the allocator may reserve, as in 4GiB.", |ui| {
        Field::new("limit").hint("none").width(150.0).mono().invalid(is_wrong).show(ui, &mut page.limit);
    });
    line(ui, t, "speed", "", |ui| {
        selector(ui, "", &mut page.pace, &PACES.map(|p| p.0));
    });
}

fn pictures(page: &ProbePage, ui: &mut Ui, t: &Tokens) {
    let (watch, shows) = match page.scenario() {
        Some(s) => (s.watch, s.shows),
        None => (
            "The same requests in the same order, on this card and under these settings.",
            "The recording opens in a tab: compare it with the first, or with What-if's answer.",
        ),
    };
    ui.add_space(12.0);
    let inner = |ui: &mut Ui, words: &str, kind, ink| {
        ui.horizontal(|ui| {
            ui.add_space(16.0);
            ui.vertical(|ui| {
                ui.set_max_width((ui.available_width() - 16.0).min(880.0));
                label::paragraph(ui, words, kind, ink);
            });
        });
    };
    inner(ui, watch, Type::Lead, t.text1);
    inner(ui, shows, Type::Body, t.text2);
    ui.add_space(10.0);
    rule(ui);
    let p = &page.moment.picture;
    let entries = [
        LegendEntry::new(Swatch::Line(t.text1), "reserved").value(shown(p.reserved, p.events)),
        LegendEntry::new(Swatch::Fill(Tokens::over(t.slot(0), t.s1, 0.55)), "live").value(shown(p.live, p.events)),
        LegendEntry::new(Swatch::Free, "reserved, not in use").value(shown(p.reserved.saturating_sub(p.live), p.events)),
    ];
    let card = p.sample.and_then(|s| s.used).map_or_else(String::new, |used| format!("card: {} used", Bytes(used)));
    let _ = legend_row(ui, "Memory over events", 0.0, &entries, &card);
    let height = (ui.available_height() * 0.36).clamp(120.0, 300.0);
    let (area, _) = row::told(ui, height, Role::Canvas, || "Memory over events");
    let plot = area.inset(78.0, 10.0, 16.0, 12.0);
    if p.points.is_empty() {
        let words =
            if page.is_running() { "Waiting for the first request." } else { "Press Start: the curve is drawn as it happens." };
        label::text(ui.painter(), area.center(), egui::Align2::CENTER_CENTER, words, Type::Body, t.text3);
    } else {
        paint::curve(ui.painter(), t, plot, &page.moment);
    }
    rule(ui);
    map(page, ui, t);
}

/// The figure, or nothing before the first event.
fn shown(bytes: u64, events: u64) -> String {
    if events == 0 { String::new() } else { Bytes(bytes).to_string() }
}

fn map(page: &ProbePage, ui: &mut Ui, t: &Tokens) {
    let moment = &page.moment;
    let sites = &moment.picture.hello.sites;
    let mut entries: Vec<LegendEntry> = sites
        .iter()
        .enumerate()
        .map(|(i, site)| LegendEntry::new(Swatch::Fill(paint::colour(t, i as u32, sites.len())), site.what.clone()))
        .collect();
    entries.push(LegendEntry::new(Swatch::Free, "free"));
    if moment.segments.iter().flat_map(|s| &s.blocks).any(|b| b.state == BlockState::PendingFree) {
        entries.push(LegendEntry::new(Swatch::Outline(t.text2), "freed, waiting for a stream"));
    }
    if moment.picture.pinned > 0 {
        entries.push(
            LegendEntry::new(Swatch::Outline(t.text2), "pinned on the host, not drawn")
                .value(Bytes(moment.picture.pinned).to_string()),
        );
    }
    let segments = match moment.segments.len() as u64 {
        0 => String::new(),
        n => counted(n, "segment", "segments"),
    };
    let _ = legend_row(ui, "The allocator's map", 0.0, &entries, &segments);
    let (area, response) = ui.allocate_exact_size(ui.available_size(), Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Canvas, true, "The allocator's map"));
    let inside = area.inset(16.0, 8.0, 16.0, 8.0);
    if moment.segments.is_empty() {
        let words = if moment.picture.events > 0 {
            "The allocator holds nothing."
        } else {
            "Segments appear here as they are taken, blocks in the colour of who asked."
        };
        label::text(ui.painter(), area.center(), egui::Align2::CENTER_CENTER, words, Type::Body, t.text3);
        return;
    }
    let sizes: Vec<u64> = moment.segments.iter().map(|s| s.size).collect();
    let rows = ((inside.height() + PITCH - ROW) / PITCH).floor().max(1.0) as usize;
    let tape = lay_out(&sizes, inside.width(), rows);
    let pointed = response.hover_pos().filter(|p| inside.contains(*p)).and_then(|p| {
        let row = ((p.y - inside.top()) / PITCH).floor() as usize;
        tape.hit(row, p.x - inside.left(), &sizes)
    });
    paint::map(ui.painter(), t, inside.min, &tape, moment, pointed);
    if let Some((segment, offset)) = pointed {
        response.on_hover_ui_at_pointer(|ui| tip(page, ui, t, segment, offset));
    }
}

/// The tooltip of the block or hole under the pointer.
fn tip(page: &ProbePage, ui: &mut Ui, t: &Tokens, segment: usize, offset: u64) {
    let moment = &page.moment;
    let Some(s) = moment.segments.get(segment) else { return };
    let at = s.address + offset;
    let block = s.blocks.iter().rev().find(|b| b.address <= at && at < b.address + b.size);
    let words = match block {
        None => "free".to_owned(),
        Some(b) => {
            let name = match moment.picture.hello.sites.get(b.site as usize) {
                Some(site) => site.what.clone(),
                None => page.replay.as_ref().filter(|_| b.site != u32::MAX).map_or_else(
                    || "block".to_owned(),
                    |r| {
                        let stacks = &r.recording.stacks;
                        let frame = vramscope_core::tables::own_frame(stacks, vramscope_core::model::StackId(b.site));
                        frame.and_then(|f| stacks.frame(f)).map_or_else(|| "block".to_owned(), |f| stacks.location(f))
                    },
                ),
            };
            format!("{name}: {}", Bytes(b.size))
        }
    };
    ui.label(Type::Title.text(words).color(t.text1));
    let used: u64 = s.blocks.iter().map(|b| b.size).sum();
    ui.label(Type::Body.text(format!("in a segment of {}, {} of it live", Bytes(s.size), Bytes(used))).color(t.text2));
    if s.pool != (0, 0) {
        ui.label(Type::Body.text(format!("of the private pool ({}, {})", s.pool.0, s.pool.1)).color(t.text2));
    }
}
