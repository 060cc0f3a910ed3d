//! The command palette (Ctrl+K): one field that finds commands, frames of call stacks, segments and blocks by address.

mod frames;
mod words;

use std::sync::Arc;

use egui::{Key, Sense, Ui, WidgetInfo, vec2};

use crate::app::dialogs::Outcome;
use crate::app::documents::document::{DeviceView, Document};
use crate::app::documents::samples::Sample;
use crate::app::jobs::Jobs;
use crate::app::settings::Recent;
use crate::app::state::{Action, Command, DocumentId, Item, Workspace};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Icon, icon_button};
use frames::FrameSearch;
use vramscope_core::tables::LifetimeId;
use vramscope_core::units::{Address, Bytes, count};

/// State of the palette while it is open.
#[derive(Default)]
pub struct Palette {
    query: String,
    chosen: usize,
    /// The last search and its results. Kept because searching all commands and events each frame would be too slow.
    found: Option<(Asked, Vec<Hit>, usize)>,
    frames: FrameSearch,
}

/// The inputs of a search: the query, the document, its device, the cursor, the event of the state, and whether the search of
/// frames is done.
#[derive(Clone, PartialEq)]
struct Asked(String, Option<(DocumentId, usize, u32, Option<u32>)>, bool);

#[derive(Clone)]
struct Hit {
    title: String,
    detail: String,
    shortcut: String,
    actions: Vec<Action>,
    score: i32,
}

/// Most results shown; the rest is counted.
const SHOWN: usize = 14;

/// Files rank this much lower, so that commands and views with an equally good match come first whatever the lengths of their
/// names.
const FILE_LATER: i32 = 60;

pub(super) struct Asking<'a> {
    pub front: Option<&'a Document>,
    pub recents: &'a [Recent],
    pub samples: &'a [Sample],
    pub is_enabled: &'a dyn Fn(Command) -> bool,
    pub jobs: &'a Jobs,
}

/// Draws the palette. Returns the actions of the chosen result.
pub(super) fn draw(palette: &mut Palette, asking: &Asking<'_>, ui: &mut Ui, tokens: &Tokens) -> Outcome<Vec<Action>> {
    let query = palette.query.trim().to_owned();
    let in_front = asking.front.and_then(|d| Some((d.id, Arc::clone(&d.view()?.data))));
    let frames =
        in_front.filter(|_| query.len() >= 2).and_then(|(id, data)| palette.frames.get(asking.jobs, id, &data, &query, SHOWN));
    let asked = Asked(
        palette.query.clone(),
        asking.front.and_then(|d| {
            let view = d.view()?;
            Some((d.id, view.data.index, view.shared.cursor, view.state.latest().map(|s| s.event)))
        }),
        frames.is_some(),
    );
    let (mut hits, total) = match palette.found.take() {
        Some((before, hits, total)) if before == asked => (hits, total),
        _ => {
            let mut hits = find(asking, &query);
            let mut total = hits.len();
            if let Some(frames) = &frames {
                total += frames.total;
                hits.extend(frames.hits.iter().cloned());
                hits.sort_by_key(|h| std::cmp::Reverse(h.score));
            }
            hits.truncate(SHOWN);
            (hits, total)
        }
    };
    let mut run = None;
    let frame = egui::Frame::new()
        .fill(tokens.s3)
        .stroke(egui::Stroke::new(1.0, tokens.line2))
        .corner_radius(6)
        .shadow(egui::Shadow { offset: [0, 4], blur: 16, spread: 0, color: tokens.shadow });
    let modal = egui::Modal::new(egui::Id::unique("palette"))
        .area(egui::Modal::default_area(egui::Id::unique("palette")).anchor(egui::Align2::CENTER_TOP, vec2(0.0, 64.0)))
        .backdrop_color(Tokens::at(tokens.s0, 0.45))
        .frame(frame)
        .show(ui, |ui| {
            ui.set_width((ui.ctx().content_rect().width() - 96.0).clamp(480.0, 860.0));
            let (up, down, enter) = ui.input_mut(|i| {
                (
                    i.consume_key(egui::Modifiers::NONE, Key::ArrowUp),
                    i.consume_key(egui::Modifiers::NONE, Key::ArrowDown),
                    i.consume_key(egui::Modifiers::NONE, Key::Enter),
                )
            });
            let head = egui::Frame::new().inner_margin(egui::Margin::symmetric(12, 10)).show(ui, |ui| {
                ui.horizontal(|ui| {
                    let field = ui.add(
                        egui::TextEdit::singleline(&mut palette.query)
                            .hint_text("a command, a file:line, an address such as 0x7f1dca2b7000, \"segment 3\", \"event 1200\"")
                            .font(Type::Lead.font())
                            .frame(egui::Frame::NONE)
                            .desired_width(ui.available_width() - 32.0),
                    );
                    (field, icon_button(ui, Icon::Close, "Close (Esc)").clicked())
                })
                .inner
            });
            let (field, is_closed) = head.inner;
            field.widget_info(|| WidgetInfo::labeled(egui::Role::TextInput, true, "Find"));
            field.request_focus();
            if field.changed() {
                palette.chosen = 0;
            }
            if down {
                palette.chosen = (palette.chosen + 1).min(hits.len().saturating_sub(1));
            }
            if up {
                palette.chosen = palette.chosen.saturating_sub(1);
            }
            let line = ui.max_rect();
            ui.painter().hline(line.x_range(), ui.cursor().top(), egui::Stroke::new(1.0, tokens.line));
            ui.add_space(4.0);
            for (i, hit) in hits.iter().enumerate() {
                if row(ui, tokens, hit, i == palette.chosen) || (enter && i == palette.chosen) {
                    run = Some(i);
                }
            }
            if hits.is_empty() {
                ui.horizontal(|ui| {
                    ui.add_space(12.0);
                    ui.label(Type::Body.text("Nothing has this name.").color(tokens.text2));
                });
            } else if total > hits.len() {
                ui.horizontal(|ui| {
                    ui.add_space(12.0);
                    ui.label(Type::Caption.text(format!("{} of {} shown", hits.len(), count(total as u64))).color(tokens.text3));
                });
            }
            ui.add_space(6.0);
            is_closed
        });
    match run {
        Some(i) => Outcome::Done(hits.swap_remove(i).actions),
        None if modal.inner || modal.should_close() => Outcome::Closed,
        None => {
            palette.found = Some((asked, hits, total));
            Outcome::Stays
        }
    }
}

fn row(ui: &mut Ui, tokens: &Tokens, hit: &Hit, chosen: bool) -> bool {
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 28.0), Sense::click());
    response.widget_info(|| WidgetInfo::selected(egui::Role::Button, true, chosen, &hit.title));
    if chosen || response.hovered() {
        ui.painter().rect_filled(rect, 0.0, if chosen { tokens.accentbg } else { tokens.s4 });
    }
    let y = rect.center().y;
    let title = ui.painter().text(
        egui::pos2(rect.left() + 12.0, y),
        egui::Align2::LEFT_CENTER,
        &hit.title,
        Type::Strong.font(),
        tokens.text1,
    );
    let right = ui.painter().text(
        egui::pos2(rect.right() - 12.0, y),
        egui::Align2::RIGHT_CENTER,
        &hit.shortcut,
        Type::Key.font(),
        tokens.text2,
    );
    let mut job = egui::text::LayoutJob::simple_singleline(hit.detail.clone(), Type::Mono.font(), tokens.text3);
    job.wrap = egui::text::TextWrapping::truncate_at_width((right.left() - title.right() - 28.0).max(0.0));
    let galley = ui.painter().layout_job(job);
    let is_cut = galley.elided;
    ui.painter().galley(egui::pos2(title.right() + 12.0, y - galley.size().y / 2.0), galley, tokens.text3);
    let is_clicked = response.clicked();
    if is_cut {
        response.on_hover_text(&hit.detail);
    }
    is_clicked
}

/// Everything that matches the query, best first.
fn find(asking: &Asking<'_>, query: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    if let Some(view) = asking.front.and_then(Document::view) {
        find_places(view, query, &mut hits);
    }
    if let Some(document) = asking.front {
        find_devices(document, query, &mut hits);
    }
    for command in Command::all() {
        // A view that is a workspace of its own is found as that: shown here it would hide the views of the one in front.
        let is_workspace = |view| Workspace::ALL.iter().any(|w| w.is_alone(view));
        let is_twice = matches!(command, Command::Show(view) if is_workspace(view));
        if !(asking.is_enabled)(command) || command == Command::Palette || is_twice {
            continue;
        }
        let title = command.text();
        let Some(score) = score(&title, query).or_else(|| words::asked(command, &title, query)) else { continue };
        let shortcut = command.keys();
        hits.push(Hit { detail: command.tooltip().to_owned(), shortcut, actions: vec![Action::Run(command)], score, title });
    }
    // The file in front is already open.
    let in_front = asking.front.and_then(|d| d.path.as_deref());
    let recents = asking.recents.iter().filter(|r| !query.is_empty() && in_front != Some(r.path.as_path()));
    for recent in recents {
        let title = recent.path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(score) = score(&title, query).map(|score| score - FILE_LATER) {
            let actions = vec![Action::Open(vec![recent.path.clone()])];
            hits.push(Hit {
                title: format!("Open {title}"),
                detail: recent.path.display().to_string(),
                shortcut: String::new(),
                actions,
                score,
            });
        }
    }
    for (i, sample) in asking.samples.iter().enumerate().filter(|_| !query.is_empty()) {
        let title = format!("Open a sample: {}", sample.name);
        if let Some(score) = score(&title, query).map(|score| score - FILE_LATER) {
            let (detail, actions) = (sample.sentence.to_owned(), vec![Action::OpenSample(i)]);
            hits.push(Hit { title, detail, shortcut: String::new(), actions, score });
        }
    }
    hits.sort_by_key(|h| std::cmp::Reverse(h.score));
    hits
}

fn find_devices(document: &Document, query: &str, hits: &mut Vec<Hit>) {
    let (Some(recording), Some(view)) = (&document.recording, document.view()) else { return };
    for (i, device) in recording.devices.iter().enumerate().filter(|(i, _)| *i != view.data.index) {
        let title = format!("Device: {}", device.id);
        if let Some(score) = score(&title, query) {
            hits.push(Hit {
                title,
                detail: vramscope_core::units::counted(device.events.len() as u64, "event", "events"),
                shortcut: String::new(),
                actions: vec![Action::SetDevice(i)],
                score,
            });
        }
    }
}

/// Addresses, events and segments. Exact matches come first.
fn find_places(view: &DeviceView, query: &str, hits: &mut Vec<Hit>) {
    let device = view.data.device();
    let lower = query.to_lowercase();
    if let Some(address) = Address::parse(query)
        && let Some(state) = view.state.latest()
    {
        match state.block_at(address.0) {
            Some(at) => {
                let block = &state.blocks[at];
                let item =
                    if block.lifetime == LifetimeId::NONE { Item::Hole(block.address) } else { Item::Lifetime(block.lifetime) };
                let what = if block.lifetime == LifetimeId::NONE { "hole" } else { "block" };
                hits.push(Hit {
                    title: format!("{what} of {}", Bytes(block.size)),
                    detail: format!("{} holds {address} at this instant", Address(block.address)),
                    shortcut: String::new(),
                    actions: vec![Action::Select(Some(item))],
                    score: 10_000,
                });
            }
            None => hits.push(Hit {
                title: format!("{address} is in no segment at this instant"),
                detail: "scrub to an instant at which it was reserved".to_owned(),
                shortcut: String::new(),
                actions: vec![],
                score: 10_000,
            }),
        }
        // The address may have been in use at another time, so offer the last allocation there.
        let n = device.events.len();
        let born = (0..n)
            .rev()
            .find(|&i| device.events.action[i] == vramscope_core::model::Action::Alloc && device.events.address[i] == address.0);
        if let Some(i) = born {
            let id = view.data.tables.lifetimes.of_event(i as u32);
            hits.push(Hit {
                title: format!("last allocation at {address}"),
                detail: format!("event {}, {}", count(i as u64), Bytes(device.events.size[i])),
                shortcut: String::new(),
                actions: vec![Action::Select(Some(Item::Lifetime(id))), Action::GoTo(i as u32)],
                score: 9_000,
            });
        }
    }
    let number = lower.split_whitespace().last().and_then(|w| w.replace(',', "").parse::<u32>().ok());
    if let Some(n) = number {
        if (lower.starts_with("event") || lower.chars().all(|c| c.is_ascii_digit() || c == ','))
            && (n as usize) < device.events.len()
        {
            hits.push(Hit {
                title: format!("Go to event {}", count(u64::from(n))),
                detail: device.events.action[n as usize].name().to_owned(),
                shortcut: String::new(),
                actions: vec![Action::GoTo(n), Action::Select(Some(Item::Event(n)))],
                score: 8_000,
            });
        }
        if lower.starts_with("seg")
            && let Some(segment) = view.state.latest().and_then(|s| s.segments.get((n as usize).checked_sub(1)?))
        {
            hits.push(Hit {
                title: format!("Segment {n}"),
                detail: format!("{} at {}", Bytes(segment.size), Address(segment.address)),
                shortcut: String::new(),
                actions: vec![Action::Select(Some(Item::Segment(segment.address)))],
                score: 8_000,
            });
        }
    }
}

/// How well a title matches a query. All letters must occur in order, and each must begin a word or follow the previous match.
/// Unbroken runs score higher. `None` when it does not match.
fn score(title: &str, query: &str) -> Option<i32> {
    if query.is_empty() {
        return Some(0);
    }
    let title: Vec<char> = title.to_lowercase().chars().collect();
    let query: Vec<char> = query.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let is_start = |i: usize| i == 0 || !title[i - 1].is_alphanumeric() || !title[i].is_alphanumeric();
    // A later word may be a better start: "tour" in "Take the tour".
    let begun = |begin: usize| {
        let (mut at, mut total, mut run) = (begin, 0, 0);
        for (n, &wanted) in query.iter().enumerate() {
            let found = (at..title.len()).find(|&i| title[i] == wanted && (is_start(i) || (i == at && n > 0)))?;
            run = if found == at && n > 0 { run + 1 } else { 0 };
            total += 1 + 4 * run + if is_start(found) { 6 } else { 0 } - ((found - at) as i32 / 4);
            at = found + 1;
        }
        Some(total - begin as i32 / 4)
    };
    let total = (0..title.len()).filter(|&i| is_start(i)).filter_map(begun).max()?;
    // Scattered single letters do not count as a match for a longer query.
    (total > query.len() as i32).then(|| 100 + total * 10 - title.len() as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_prefers_words_that_begin_with_it() {
        let good = score("Go to the peak", "peak");
        let worse = score("Copy stack back", "peak");
        assert!(good.is_some());
        assert!(worse.is_none() || worse < good);
        assert!(score("Zoom in", "zi").is_some() && score("Take the tour", "tour").is_some());
        assert_eq!(score("Workspace: OOM autopsy", "copy"), None, "letters inside of words are no match");
        let plan = Command::Show(crate::app::state::ViewKind::Plan);
        let plan = words::asked(plan, &plan.text(), "checkpoint");
        assert!(plan.is_some() && plan < score("Checkpoint", "checkpoint"));
        assert!(score("Zoom in", "q").is_none());
        assert_eq!(score("anything", ""), Some(0));
    }
}
