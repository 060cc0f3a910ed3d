//! The page of a file that holds several snapshots, to choose which to open.

use std::path::{Path, PathBuf};

use egui::{Rect, Ui, pos2, vec2};

use crate::app::state::{Action, Actions};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{ListRow, label};
use vramscope_core::formats::{PageSnapshot, one_of_page};

/// Most snapshots opened at once, because each needs memory.
const AT_ONCE: usize = 8;

/// Lists the snapshots. A click opens one in its own tab.
pub(in crate::app) fn page(
    ui: &mut Ui,
    tokens: &Tokens,
    title: &str,
    path: Option<&Path>,
    snapshots: &[PageSnapshot],
    actions: &Actions,
) {
    let rect = ui.max_rect();
    let width = 480.0f32.min(rect.width() - 48.0);
    let top = rect.top() + rect.height() * 0.12;
    let column = Rect::from_min_max(pos2(rect.center().x - width / 2.0, top), pos2(rect.center().x + width / 2.0, rect.bottom()));
    let of = |snapshot: &PageSnapshot| path.map_or_else(PathBuf::new, |path| one_of_page(path, &snapshot.choice));
    ui.scope_builder(egui::UiBuilder::new().max_rect(column), |ui| {
        let heading = format!("{title} holds {} snapshots", snapshots.len());
        ui.add(egui::Label::new(Type::Display.text(heading).color(tokens.text1)).wrap());
        ui.add_space(8.0);
        ui.add(egui::Label::new(Type::Lead.text("Choose one; it opens in a tab of its own.").color(tokens.text2)).wrap());
        ui.add_space(12.0);
        if snapshots.len() <= AT_ONCE && ui.button("Open all").clicked() {
            // One by one, because files opened together would be merged.
            for snapshot in snapshots {
                actions.send(Action::Open(vec![of(snapshot)]));
            }
        }
        ui.add_space(8.0);
        egui::ScrollArea::vertical().auto_shrink([false, false]).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            for (i, snapshot) in snapshots.iter().enumerate() {
                let bytes = snapshot.bytes.to_string();
                let name = format!("{}, {bytes}", snapshot.choice);
                let response = ui.push_id(i, |ui| ListRow::new(&name).height(28.0).show_painted(ui)).inner;
                let inner = response.rect.shrink2(vec2(12.0, 0.0));
                let size = label::text_in_right(ui.painter(), inner, &bytes, Type::Mono, tokens.text2);
                let room = inner.with_max_x(size.left() - 12.0);
                let short = label::without_middle(ui.painter(), &snapshot.choice, Type::Body, room.width());
                label::text_in(ui.painter(), room, &short, Type::Body, tokens.text1);
                if response.clicked() {
                    actions.send(Action::Open(vec![of(snapshot)]));
                }
            }
        });
    });
}
