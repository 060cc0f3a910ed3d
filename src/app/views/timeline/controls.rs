//! What can be pressed in the timeline: the legend, the menu of a right click, the offer to zoom to a range.

use std::sync::Arc;

use egui::{Rect, Response, Ui, UiBuilder, pos2, vec2};

use super::image::ClassCounts;
use super::layout::{NAMES, Track};
use super::paint::Canvas;
use super::{Counted, MenuTarget, Timeline};
use crate::analysis::{Quantity, stack_text};
use crate::app::action::Action;
use crate::app::colours::{Class, ColourBy, Paint};
use crate::app::command::Command;
use crate::app::cursor;
use crate::app::selection::Item;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::button::{self, Push};
use crate::app::widgets::chip::Swatch;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::legend::{LegendEntry, legend_row};
use crate::app::widgets::term::{Figures, Term};
use crate::app::widgets::tooltip::Tip;
use crate::units::{Address, Bytes, NBSP, count, counted};

/// Says which lanes a low pane has no room for, where lanes have their names. The strata's lowest label stands below it.
pub(super) fn hidden_ui(ui: &mut Ui, canvas: &Canvas<'_>, hidden: &[Track]) {
    let strata = canvas.tracks.strata;
    if hidden.is_empty() || strata.height() < 52.0 {
        return;
    }
    let words = counted(hidden.len() as u64, "lane hidden", "lanes hidden");
    let left = canvas.pane.left() + 12.0;
    let words = if label::width(canvas.painter, &words, Type::Caption) > canvas.tracks.x.min - 8.0 - left {
        format!("{} hidden", hidden.len())
    } else {
        words
    };
    let place = Rect::from_min_max(pos2(left, strata.bottom() - 24.0), pos2(canvas.tracks.x.min - 6.0, strata.bottom() - 8.0));
    label::text_in(canvas.painter, place, &words, Type::Caption, canvas.tokens.text3);
    let name = |track: &Track| if *track == Track::Device { canvas.calls_name() } else { track.name() };
    let names: Vec<&str> = hidden.iter().map(name).collect();
    let tip = format!(
        "No room for {}. Drag the pane's lower edge, or double click its header to fill the window with it.",
        names.join(", ")
    );
    let response = ui.interact(place, ui.scope_id().with("hidden lanes"), egui::Sense::hover());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, format!("{words}: {}", names.join(", "))));
    response.on_hover_text(tip);
}

impl Timeline {
    /// A chosen range offers to be zoomed to.
    pub(super) fn range_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        let Some((first, last)) = cx.link.range else { return };
        let device = cx.data.device();
        let at = |e| cursor::position(device, cx.link.axis, e);
        let (from, to) = (at(first), at(last));
        let (left, right) = (canvas.x.at(from), canvas.x.at(to));
        let is_filling = right - left > canvas.tracks.x.span() * 0.85;
        if is_filling || right < canvas.tracks.x.min || left > canvas.tracks.x.max {
            return;
        }
        let middle = f32::midpoint(left.max(canvas.tracks.x.min), right.min(canvas.tracks.x.max));
        let top = canvas.tracks.strata.top() + 6.0;
        let area = Rect::from_center_size(pos2(middle, top + 10.0), vec2(180.0, 22.0));
        let x = area.left().clamp(canvas.pane.left(), (canvas.pane.right() - area.width()).max(canvas.pane.left()));
        let area = Rect::from_min_size(pos2(x, area.top()), area.size());
        let layout = egui::Layout::left_to_right(egui::Align::Center).with_main_align(egui::Align::Center);
        ui.scope_builder(UiBuilder::new().max_rect(area).layout(layout).id_salt("range"), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            if Push::primary("Zoom to range").small().show(ui).clicked() {
                cx.actions.send(Action::SetWindow(from, to));
            }
            if Push::plain("Clear").small().show(ui).clicked() {
                cx.actions.send(Action::SetRange(None));
            }
        });
    }

    /// While the strata are zoomed in bytes, one click shows all of them again.
    pub(super) fn bytes_ui(&mut self, ui: &mut Ui, canvas: &Canvas<'_>) {
        if self.bytes.is_none() {
            return;
        }
        let strata = canvas.tracks.strata;
        let area = Rect::from_min_size(pos2(strata.right() - 126.0, strata.top() + 6.0), vec2(120.0, 20.0));
        let layout = egui::Layout::right_to_left(egui::Align::Center);
        ui.scope_builder(UiBuilder::new().max_rect(area).layout(layout).id_salt("bytes"), |ui| {
            if Push::plain("Show all bytes").small().show(ui).clicked() {
                self.bytes = None;
            }
        });
    }

    /// The name of a track folds and opens it.
    pub(super) fn fold_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        for track in Track::ALL {
            let i = track as usize;
            let (rect, is_open) = match (canvas.tracks.open(track), canvas.tracks.folded[i]) {
                (Some(rect), _) => (rect, true),
                (None, Some(rect)) => (rect, false),
                (None, None) => continue,
            };
            let top = match track {
                Track::Overview => rect.center().y - 8.0,
                // Their own legend stands above them.
                Track::Bands | Track::Card if is_open => rect.top() + NAMES,
                _ => rect.top(),
            };
            let place = Rect::from_min_max(
                pos2(canvas.pane.left(), top),
                pos2(canvas.tracks.x.min - if is_open { 44.0 } else { 4.0 }, top + 16.0),
            );
            let id = ui.scope_id().with(("fold", track.name()));
            let response = ui.interact(place, id, egui::Sense::click()).on_hover_cursor(egui::CursorIcon::PointingHand);
            let verb = if is_open { "Fold" } else { "Open" };
            let name = if track == Track::Device { canvas.calls_name() } else { track.name() };
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("{verb} {name}")));
            if !is_open {
                label::text_in(canvas.painter, place.with_min_x(place.left() + 12.0), name, Type::Caption, cx.tokens.text3);
            }
            if response.hovered() || !is_open {
                let icon = if is_open { Icon::ChevronDown } else { Icon::ChevronRight };
                icon.paint(canvas.painter, pos2(place.left() + 6.0, place.center().y), 10.0, cx.tokens.text3);
            }
            if response.clicked() {
                let mut tracks = cx.link.tracks;
                match track {
                    Track::Ops => tracks.fold_ops = is_open,
                    Track::Bands => tracks.fold_bands = Some(is_open),
                    Track::Card => tracks.fold_card = is_open,
                    _ => tracks.folded[i] = is_open,
                }
                cx.actions.send(Action::SetTracks(tracks));
            }
        }
    }

    pub(super) fn legend_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rect: Rect, start: f32) {
        let counts = cx.state.and_then(|state| {
            let (data, state, colours) = (Arc::clone(cx.data), Arc::clone(state), Arc::clone(cx.colours));
            let key = (Arc::as_ptr(&state) as usize, Arc::as_ptr(&colours) as usize);
            let job = move |_: &_| {
                let figures = Figures::of(&data, &state);
                Some(Counted { counts: ClassCounts::of(&data, &state, &colours), figures, _of: (state, colours) })
            };
            self.counts.get(cx.jobs, "class counts", &key, job).value
        });
        let figures = counts.as_ref().map(|c| c.figures);
        let counts = counts.as_ref().map(|c| &c.counts).filter(|c| c.blocks.len() == cx.colours.classes.len());
        let focus = &cx.link.focus_classes;
        let names: Vec<&str> = cx.colours.classes.iter().map(|c| c.name.as_str()).collect();
        let (unit, names) = without_unit(&names, cx.link.colour_by);
        let order = legend_order(&cx.colours.classes, counts.map(|c| c.bytes.as_slice()), cx.link.colour_by);
        let mut entries: Vec<LegendEntry> = order
            .iter()
            .filter_map(|&i| Some((i, cx.colours.classes.get(i)?)))
            .map(|(i, class)| {
                let is_dim = !focus.is_empty() && !focus.contains(&(i as u8));
                let blocks = counts.map(|c| count(c.blocks[i])).unwrap_or_default();
                let bytes = counts.map(|c| Bytes(c.bytes[i]).to_string()).unwrap_or_default();
                // There are few categories, and how much each holds is what is asked of them.
                let value = if cx.link.colour_by == ColourBy::Category { bytes.clone() } else { blocks.clone() };
                let name = middle_cut(&names[i]);
                let entry = LegendEntry::new(Swatch::Fill(class.paint.colour(cx.tokens)), name).dimmed(is_dim);
                let entry = if class.paint == Paint::Other { entry } else { entry.mono() };
                let tip = Tip::new(class.name.as_str())
                    .swatch(class.paint.colour(cx.tokens))
                    .row("live blocks at the cursor", blocks.as_str())
                    .row("their bytes", bytes.as_str())
                    .note("Click dims the others, again brings them back; Ctrl + click chooses several.");
                entry.value(value).tip(tip)
            })
            .collect();
        let mut classes = order;
        let is_there = |class: &usize| counts.is_none_or(|c| c.blocks.get(*class).is_some_and(|&n| n > 0));
        let is_ramp = matches!(cx.link.colour_by, ColourBy::SizeClass | ColourBy::Age);
        let shown = if is_ramp { classes.len() } else { classes.iter().take_while(|c| is_there(c)).count() };
        let has_segments = cx.data.tables.curves.peak(Quantity::Reserved).0 > 0;
        let free = counts.map(|c| Bytes(c.free).to_string()).unwrap_or_default();
        if has_segments {
            let tip = figures.map(|figures| Term::Inactive.tip(&figures, cx.words()));
            let entry = LegendEntry::new(Swatch::Free, "free").value(free);
            let entry = match tip {
                Some(tip) => entry.tip(tip),
                None => entry,
            };
            // Before what is not there at the cursor.
            entries.insert(shown, entry);
            classes.insert(shown, usize::MAX);
        }
        let name = match cx.link.colour_by {
            ColourBy::Stack => "Stack",
            ColourBy::Category => "Category",
            ColourBy::SizeClass if !unit.is_empty() => "Size",
            ColourBy::SizeClass => "Block size",
            ColourBy::Age => "Age",
            ColourBy::Stream => "Stream",
            ColourBy::Pool => "Pool",
            ColourBy::Segment => "Segment",
        };
        let name = if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") };
        let mut row = ui.new_child(UiBuilder::new().max_rect(rect).id_salt("legend"));
        let trailing = match cx.link.colour_by {
            _ if rect.width() <= 620.0 => "",
            ColourBy::Category => "bytes at the cursor",
            _ => "counts at the cursor",
        };
        if let Some(click) = legend_row(&mut row, &name, start, &entries, trailing)
            && let Some(&class) = classes.get(click.entry).filter(|&&c| c != usize::MAX)
        {
            cx.actions.send(Action::SetFocusClasses(toggled(focus, class as u8, click.several)));
        }
    }

    pub(super) fn menu_ui(&mut self, cx: &ViewContext<'_>, response: &Response) {
        let MenuTarget { item, event } = self.menu;
        egui::Popup::context_menu(response).show(|ui| {
            ui.set_width(170.0);
            let device = cx.data.device();
            let life = match item {
                Some(Item::Lifetime(id)) => cx.data.tables.lifetimes.get(device, id),
                _ => None,
            };
            let stack = life.map(|l| l.stack).filter(|s| s.is_some());
            let mut entry = |text: &str, enabled: bool, actions: &dyn Fn()| {
                if button::menu_item(ui, text, None, None, enabled).clicked() && enabled {
                    actions();
                    ui.close();
                }
            };
            entry("Copy address", life.is_some() && cx.data.recording.tells_addresses(), &|| {
                if let Some(l) = life {
                    cx.actions.send(Action::Copy(Address(l.address).to_string()));
                }
            });
            entry("Copy stack", stack.is_some(), &|| {
                if let Some(s) = stack {
                    cx.actions.send(Action::Copy(stack_text(&cx.data.recording.stacks, s)));
                }
            });
            entry("Open source", stack.is_some(), &|| {
                let stacks = &cx.data.recording.stacks;
                let frame = stack.and_then(|s| cx.data.names.index(s)).and_then(|i| cx.data.names.frame(i));
                if let Some(f) = frame.and_then(|f| stacks.frame(f)) {
                    cx.actions.send(Action::OpenSource { file: stacks.text(f.file).to_owned(), line: f.line });
                }
            });
            entry("Zoom to life", item.is_some(), &|| {
                cx.actions.send(Action::Select(item));
                cx.actions.run(Command::FitSelection);
            });
            entry("Select same stack", stack.is_some(), &|| {
                cx.actions.send(Action::Select(stack.map(Item::Stack)));
            });
            entry("List same stack", stack.is_some(), &|| {
                cx.actions.send(Action::Select(item));
                cx.actions.run(Command::QueryStack);
            });
            entry("Set A here", true, &|| cx.actions.send(Action::SetMarker(0, Some(event))));
            entry("Set B here", true, &|| cx.actions.send(Action::SetMarker(1, Some(event))));
            let has_markers = cx.link.flags().iter().any(Option::is_some);
            entry("Clear A and B", has_markers, &|| {
                cx.actions.send(Action::SetMarker(0, None));
                cx.actions.send(Action::SetMarker(1, None));
            });
            entry("Show everything", true, &|| cx.actions.run(Command::ZoomFit));
        });
    }
}

/// The classes of the legend, those that hold most bytes at the cursor first, what has no colour of its own after them, and what
/// holds nothing there last. Steps of a ramp keep their order.
fn legend_order(classes: &[Class], bytes: Option<&[u64]>, by: ColourBy) -> Vec<usize> {
    let mut order: Vec<usize> = (0..classes.len()).collect();
    if let Some(bytes) = bytes.filter(|_| !matches!(by, ColourBy::SizeClass | ColourBy::Age)) {
        let of = |i: usize| bytes.get(i).copied().unwrap_or(0);
        order.sort_by_key(|&i| (of(i) == 0, classes[i].paint == Paint::Other, std::cmp::Reverse(of(i)), i));
    }
    order
}

/// Size classes that share a unit name it once: the unit, and the names without it.
fn without_unit(names: &[&str], by: ColourBy) -> (&'static str, Vec<String>) {
    let whole = || names.iter().map(|&n| n.to_owned()).collect();
    if by != ColourBy::SizeClass {
        return ("", whole());
    }
    let unit = ["KiB", "MiB", "GiB"].into_iter().find(|u| names.iter().all(|n| n.ends_with(u)));
    match unit {
        Some(unit) => {
            let suffix = format!("{NBSP}{unit}");
            // "3 MiB – 4 MiB" becomes "3–4"; one that mixes units ("512 KiB – 1 MiB") keeps what it needs.
            (unit, names.iter().map(|n| n.replace(&suffix, "").replace(" – ", "–")).collect())
        }
        None => ("", whole()),
    }
}

/// A name of a legend: one that would take the room of several keeps its start and its end; the tip has it whole.
fn middle_cut(name: &str) -> String {
    const MOST: usize = 32;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= MOST {
        return name.to_owned();
    }
    let (start, end) = (&letters[..MOST / 3], &letters[letters.len() - (MOST - MOST / 3 - 1)..]);
    start.iter().chain(['…'].iter()).chain(end).collect()
}

/// The classes in focus after a click on one: it alone, or all again; with several, it more or it less.
fn toggled(focus: &[u8], class: u8, several: bool) -> Vec<u8> {
    if several {
        let mut next: Vec<u8> = focus.iter().copied().filter(|&c| c != class).collect();
        if next.len() == focus.len() {
            next.push(class);
        }
        return next;
    }
    if focus == [class] { Vec::new() } else { vec![class] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_leads_with_what_is_there() {
        let class = |paint| Class { name: "a".to_owned(), paint };
        let classes = [class(Paint::Slot(0)), class(Paint::Slot(1)), class(Paint::Slot(2)), class(Paint::Other)];
        assert_eq!(legend_order(&classes, Some(&[0, 5, 9, 7]), ColourBy::Stack), [2, 1, 3, 0]);
        assert_eq!(legend_order(&classes, Some(&[0, 5, 9, 7]), ColourBy::Age), [0, 1, 2, 3]);
        assert_eq!(legend_order(&classes, None, ColourBy::Stack), [0, 1, 2, 3]);
    }

    #[test]
    fn size_classes_name_their_unit_once() {
        let names = ["<\u{20}3.25\u{a0}MiB", "3.25\u{a0}MiB – 4\u{a0}MiB", "≥ 4\u{a0}MiB"];
        let (unit, short) = without_unit(&names, ColourBy::SizeClass);
        assert_eq!((unit, short), ("MiB", vec!["< 3.25".to_owned(), "3.25–4".to_owned(), "≥ 4".to_owned()]));
        assert_eq!(without_unit(&["< 3\u{a0}KiB", "≥ 3\u{a0}MiB"], ColourBy::SizeClass).0, "");
        assert_eq!(without_unit(&["a MiB"], ColourBy::Stack).0, "");
    }

    #[test]
    fn clicks_on_the_legend_choose_one_or_several_classes() {
        assert_eq!(toggled(&[], 2, false), vec![2]);
        assert_eq!(toggled(&[2], 2, false), Vec::<u8>::new());
        assert_eq!(toggled(&[2], 3, false), vec![3]);
        assert_eq!(toggled(&[2], 3, true), vec![2, 3]);
        assert_eq!(toggled(&[2, 3], 2, true), vec![3]);
    }

    #[test]
    fn long_names_keep_their_place() {
        assert_eq!(middle_cut("workloads.py:21"), "workloads.py:21");
        let cut = middle_cut("cj3mlx6kifza5zozfocwmlvrwitgh53x53x77jiv6vmqoqlteoin.py:1271");
        assert!(cut.ends_with("teoin.py:1271") && cut.starts_with("cj3ml") && cut.chars().count() == 32, "{cut}");
    }
}
