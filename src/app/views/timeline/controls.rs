//! Controls of the timeline: the legend, the context menu, the button that zooms to the range.

use egui::{Rect, Response, Ui, UiBuilder, pos2, vec2};

use super::lanes::Lanes;
use super::layout::{NAMES, Track};
use super::paint::Canvas;
use super::{MenuTarget, Timeline};
use crate::app::state::{Action, Command, Item};
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Cut, Icon, Push, label, menu_entry, push_over, told_at};
use vramscope_core::model::Frame;
use vramscope_core::tables::stack_text;
use vramscope_core::units::{Address, counted};

/// Names the lanes that a low pane has no room for, in the gutter above the lowest label of the strata.
pub(super) fn hidden_ui(ui: &mut Ui, canvas: &Canvas<'_>, lanes: &Lanes, hidden: &[Track]) {
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
    let names: Vec<&str> = hidden.iter().map(|&track| lanes.name(canvas, track)).collect();
    let tip = format!(
        "No room for {}. Drag the pane's lower edge, or double click its header to fill the window with it.",
        names.join(", ")
    );
    let response =
        told_at(ui, place, "hidden lanes", egui::Sense::hover(), egui::Role::Label, || format!("{words}: {}", names.join(", ")));
    response.on_hover_text(tip);
}

impl Timeline {
    /// A button that zooms to the chosen range.
    pub(super) fn range_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        let Some((first, last)) = cx.shared.range else { return };
        let (from, to) = (canvas.position(first), canvas.position(last));
        let (left, right) = (canvas.x.at(from), canvas.x.at(to));
        let is_filling = right - left > canvas.tracks.x.span() * 0.85;
        if is_filling || right < canvas.tracks.x.min || left > canvas.tracks.x.max {
            return;
        }
        let middle = f32::midpoint(left.max(canvas.tracks.x.min), right.min(canvas.tracks.x.max));
        let (pane, width) = (canvas.pane, 180.0);
        let x = (middle - width / 2.0).clamp(pane.left(), (pane.right() - width).max(pane.left()));
        let area = Rect::from_min_size(pos2(x, canvas.tracks.strata.top() + 5.0), vec2(width, 22.0));
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

    /// While the strata are zoomed in bytes, a button that shows all of them again.
    pub(super) fn bytes_ui(&mut self, ui: &mut Ui, canvas: &Canvas<'_>) {
        if self.bytes.is_some() && push_over(ui, canvas.tracks.strata, "Show all bytes") {
            self.bytes = None;
        }
    }

    /// A click on the name of a track folds or opens it.
    pub(super) fn fold_ui(&self, ui: &mut Ui, cx: &ViewContext<'_>, canvas: &Canvas<'_>) {
        for &track in <Track as strum::VariantArray>::VARIANTS {
            let (rect, is_open) = match (canvas.tracks.open(track), canvas.tracks.folded[track as usize]) {
                (Some(rect), _) => (rect, true),
                (None, Some(rect)) => (rect, false),
                (None, None) => continue,
            };
            let top = match track {
                Track::Overview => rect.center().y - 8.0,
                // These lanes have their legend at the top.
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
            let name = self.lanes.name(canvas, track);
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, format!("{verb} {name}")));
            if !is_open {
                label::text_in(canvas.painter, place.with_min_x(place.left() + 12.0), name, Type::Caption, cx.tokens.text3);
            }
            if response.hovered() || !is_open {
                let icon = if is_open { Icon::ChevronDown } else { Icon::ChevronRight };
                icon.paint(canvas.painter, place.middle(place.left() + 6.0), 10.0, cx.tokens.text3);
            }
            if response.clicked() {
                cx.actions.send(Action::SetTracks(cx.shared.tracks.with_folded(track, is_open)));
            }
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
            let mut entry = |text: &str, actions: Option<Vec<Action>>| {
                if menu_entry(ui, text, actions.is_some()) {
                    actions.into_iter().flatten().for_each(|action| cx.actions.send(action));
                }
            };
            let (stacks, names) = (&cx.data.recording.stacks, &cx.data.names);
            let copied = life.filter(|_| cx.data.recording.addresses().is_known()).map(|l| Address(l.address).to_string());
            entry("Copy address", copied.map(|address| vec![Action::Copy(address)]));
            entry("Copy stack", stack.map(|s| vec![Action::Copy(stack_text(stacks, s))]));
            let frame = |s| names.index(s).and_then(|i| names.frame(i)).and_then(|f| stacks.frame(f));
            let source = |f: Frame| Action::OpenSource { file: stacks.text(f.file).to_owned(), line: f.line };
            entry("Open source", stack.map(|s| frame(s).map(source).into_iter().collect()));
            let select_and = |command| vec![Action::Select(item), Action::Run(command)];
            entry("Zoom to life", item.map(|_| select_and(Command::FitSelection)));
            entry("Select same stack", stack.map(|s| vec![Action::Select(Some(Item::Stack(s)))]));
            entry("List same stack", stack.map(|_| select_and(Command::QueryStack)));
            entry("Set A here", Some(vec![Action::SetMarker(0, Some(event))]));
            entry("Set B here", Some(vec![Action::SetMarker(1, Some(event))]));
            let has_markers = cx.shared.flags_shown().iter().any(Option::is_some);
            entry("Clear A and B", has_markers.then(|| vec![Action::SetMarker(0, None), Action::SetMarker(1, None)]));
            entry("Show everything", Some(vec![Action::Run(Command::ZoomFit)]));
        });
    }
}
