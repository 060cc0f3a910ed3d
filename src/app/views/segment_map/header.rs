//! The header of the segment map's pane: how rows are arranged, and the field that finds an address.

use egui::Ui;

use super::layout::{Order, Span};
use super::{HEIGHTS, SegmentMap};
use crate::app::state::{Action, Item};
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::widgets::pane::open_below;
use crate::app::widgets::{Field, Icon, icon_button, menu_item, selector_button};
use vramscope_core::units::Address;

const HEIGHT_NAMES: [&str; HEIGHTS.len()] = ["fit", "3 px", "6 px", "10 px", "16 px", "28 px"];

impl SegmentMap {
    /// Shows the menu and the address field, or in a narrow header a button that opens the field.
    pub(super) fn header(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let width = ui.available_width();
        if width > 260.0 {
            self.arrangement(ui);
        }
        if width > 560.0 {
            self.address_field(ui, cx);
        } else if width > 200.0 {
            let button = icon_button(ui, Icon::Search, "Find an address");
            egui::Popup::from_toggle_button_response(&button).close_behavior(egui::PopupCloseBehavior::CloseOnClickOutside).show(
                |ui| {
                    let (field, is_found) = self.address_field(ui, cx);
                    // The user opened the field to type.
                    if button.clicked() {
                        field.request_focus();
                    }
                    if is_found {
                        ui.close();
                    }
                },
            );
        }
    }

    /// The menu for order, scale and height of the rows.
    fn arrangement(&mut self, ui: &mut Ui) {
        let order = Order::ALL.iter().position(|o| *o == self.order).unwrap_or(0);
        let span = self.span();
        let scale = Span::ALL.iter().position(|s| *s == span).unwrap_or(0);
        let button = selector_button(ui, "order", Order::NAMES[order]);
        open_below(&button, |ui| {
            ui.set_width(150.0);
            if let Some(i) = choose(ui, "Order of rows", &Order::NAMES, order) {
                self.order = Order::ALL[i];
            }
            if let Some(i) = choose(ui, "Scale", &Span::NAMES, scale) {
                self.span = Some(Span::ALL[i]);
                self.zoom.fit();
            }
            if let Some(i) = choose(ui, "Height of a row", &HEIGHT_NAMES, self.height) {
                self.height = i;
                self.wants_scroll = true;
            }
        });
    }

    /// The address field; true once it led to a block.
    fn address_field(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) -> (egui::Response, bool) {
        let field = Field::new("Address").hint("0x… find a block").icon(Icon::Search).small().mono().width(148.0);
        let response = field.invalid(self.search_failed.is_some()).show(ui, &mut self.search);
        if response.changed() {
            self.search_failed = None;
        }
        let is_entered = response.lost_focus() && ui.input(|i| i.key_pressed(egui::Key::Enter));
        let is_found = is_entered && self.find(cx);
        if is_entered && !is_found {
            // So that the user can correct the input.
            response.request_focus();
        }
        if let Some(sentence) = &self.search_failed {
            // The message stays beside the field until the user types or clicks.
            if ui.input(|i| i.pointer.any_click()) && !response.hovered() {
                self.search_failed = None;
            } else {
                response.show_tooltip_text(sentence.as_str());
            }
        }
        (response, is_found)
    }

    fn span(&self) -> Span {
        self.span.or(self.picture.latest().map(|p| p.span)).unwrap_or_default()
    }

    /// Selects the block at the typed address. Returns false, and sets the message, when there is none.
    fn find(&mut self, cx: &ViewContext<'_>) -> bool {
        let Some(Address(address)) = Address::parse(&self.search) else {
            self.search_failed = Some(format!("\"{}\" is not an address: write it as 0x7f1dca2b7000", self.search.trim()));
            return false;
        };
        let Some(state) = cx.state else { return false };
        match state.block_at(address).map(|i| state.blocks[i]) {
            Some(block) => {
                let item = if block.lifetime.is_some() { Item::Lifetime(block.lifetime) } else { Item::Hole(block.address) };
                cx.actions.send(Action::Select(Some(item)));
                self.wants_scroll = true;
                true
            }
            None => {
                self.search_failed = Some(format!("No segment holds {} at the cursor.", Address(address)));
                false
            }
        }
    }
}

/// A menu section of choices. Returns the one that was clicked.
fn choose(ui: &mut Ui, title: &str, names: &[&str], chosen: usize) -> Option<usize> {
    let t = Tokens::of(ui);
    ui.add_space(6.0);
    ui.horizontal(|ui| {
        ui.add_space(10.0);
        ui.label(Type::Caption.text(title).color(t.text3));
    });
    let mut clicked = None;
    for (i, name) in names.iter().enumerate() {
        if menu_item(ui, name, Some(i == chosen), None, true).clicked() {
            clicked = Some(i);
        }
    }
    clicked
}
