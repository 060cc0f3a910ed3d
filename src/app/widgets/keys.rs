//! Controls that take bare keys: a slider moved by arrows, where the same keys move the cursor of all views otherwise.

use egui::{Context, Id, Response};

fn taker() -> Id {
    Id::unique("takes bare keys")
}

/// The control has the keyboard to itself while it is focused: arrows, Home, End and letters are no commands then.
pub fn take_bare_keys(response: &Response) {
    if response.has_focus() {
        response.ctx.data_mut(|d| d.insert_temp(taker(), response.id));
        let filter = egui::EventFilter { horizontal_arrows: true, vertical_arrows: false, ..egui::EventFilter::default() };
        response.ctx.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    }
}

/// True while such a control has the keyboard.
pub fn are_taken(ctx: &Context) -> bool {
    let taken: Option<Id> = ctx.data(|d| d.get_temp(taker()));
    taken.is_some() && ctx.memory(egui::Memory::focused) == taken
}
