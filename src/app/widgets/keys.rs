//! Controls that take keys without modifiers, such as a slider moved by arrows. Elsewhere these keys move the cursor of all
//! views.

use egui::{Context, Id, Response};

fn taker() -> Id {
    Id::unique("takes bare keys")
}

/// Gives a focused control all keys without modifiers: arrows, Home, End and letters then run no commands.
pub fn take_bare_keys(response: &Response) {
    if response.has_focus() {
        response.ctx.data_mut(|d| d.insert_temp(taker(), response.id));
        let filter = egui::EventFilter { horizontal_arrows: true, vertical_arrows: false, ..egui::EventFilter::default() };
        response.ctx.memory_mut(|m| m.set_focus_lock_filter(response.id, filter));
    }
}

/// True while a control that takes these keys has the focus.
pub fn are_taken(ctx: &Context) -> bool {
    let taken: Option<Id> = ctx.data(|d| d.get_temp(taker()));
    taken.is_some() && ctx.memory(egui::Memory::focused) == taken
}
