//! A frame of the window: what eframe calls.

use egui::{Context, Ui};

use super::documents::document::Document;
use super::shell;
use super::theme::Tokens;
use super::window::App;

impl App {
    /// The title of the window: the recording in front and the instant at its cursor.
    fn title(&self) -> String {
        match self.active_document() {
            None => "vramscope".to_owned(),
            Some(d) => match d.view() {
                Some(v) if !v.data.device().events.is_empty() => {
                    format!("{}, event {} - vramscope", d.title, vramscope_core::units::count(u64::from(v.shared.cursor)))
                }
                _ => format!("{} - vramscope", d.title),
            },
        }
    }

    fn open_files(&self) -> Vec<String> {
        self.documents().iter().filter_map(|d| d.path.as_ref()?.to_str().map(str::to_owned)).collect()
    }

    pub fn draw(&mut self, ui: &mut Ui) {
        let title = self.title();
        if title != self.shown_title {
            ui.ctx().send_viewport_cmd(egui::ViewportCommand::Title(title.clone()));
            self.shown_title = title;
        }
        self.take_picture(ui);
        shell::draw(self, ui);
        self.copying.note(ui.ctx());
        ring_around_focus(ui.ctx());
    }
}

/// Draws a ring around the focused widget, so that the user can follow the Tab key. Text fields have their own border.
fn ring_around_focus(ctx: &Context) {
    if ctx.text_edit_focused() {
        return;
    }
    // Reads only the rectangle. Asking for the response would also handle the widget's keys.
    let place = |id| ctx.viewport(|v| v.this_pass.widgets.get(id).copied());
    let Some(focused) = ctx.memory(|m| m.focused()).and_then(place) else { return };
    // A widget as wide as a pane gets its ring inside, because the edge of the pane would hide it.
    const WIDEST: f32 = 480.0;
    let seen = focused.interact_rect;
    let ring = if seen.width() > WIDEST { seen.shrink(1.0) } else { focused.rect.expand(2.0) };
    let painter = ctx.layer_painter(focused.layer_id).with_clip_rect(seen.expand(3.0));
    painter.rect_stroke(ring, 4.0, egui::Stroke::new(1.0, Tokens::of(ctx).accent), egui::StrokeKind::Inside);
}

impl eframe::App for App {
    fn logic(&mut self, ctx: &Context, _frame: &mut eframe::Frame) {
        App::logic(self, ctx);
    }

    fn ui(&mut self, ui: &mut Ui, frame: &mut eframe::Frame) {
        self.draw(ui);
        self.show_dialog(frame);
        if std::mem::take(&mut self.wants_save) || self.kept.is_due() {
            self.kept.ask(&self.jobs);
        }
        if self.kept.is_read()
            && let Some(storage) = frame.storage_mut()
        {
            eframe::App::save(self, storage);
            storage.flush();
        }
    }

    /// Settings are written by `App::ui`, after their file was read off this thread, and when the window closes.
    fn auto_save_interval(&self) -> std::time::Duration {
        std::time::Duration::MAX
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        if let Some(document) = self.active_document() {
            self.settings.layouts = document.lasting_layouts();
            if let Some(view) = self.active_document().and_then(Document::view) {
                self.settings.axis = view.shared.axis;
            }
        }
        self.settings.left_open = self.open_files();
        eframe::set_value(storage, eframe::APP_KEY, &self.kept.to_write(&mut self.settings));
        if self.written_rules != self.settings.category_rules {
            self.written_rules = self.settings.category_rules.clone();
            self.settings.write_rules();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::app::data::device::prepare;
    use crate::app::state::action::Action;
    use crate::app::state::command::Command;
    use crate::app::state::workspace::Workspace;
    use vramscope_core::model::Progress;

    #[test]
    fn a_trace_without_requests_says_so_instead_of_equal_rows() {
        let free = |i: u64| {
            format!(
                r#"{{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{},"args":{{"Bytes":-4096,"Addr":{},"Device Id":0,"Device Type":1}}}}"#,
                10 + i,
                0x7f00_0000_0000 + i * 4096
            )
        };
        let trace = format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, (0..20).map(free).collect::<Vec<_>>().join(","));
        let recording = vramscope_core::formats::read(trace.as_bytes(), "frees.pt.trace.json", &Progress::new()).unwrap();
        let data = prepare(&Arc::new(recording), 0, &Progress::new()).unwrap();
        let ctx = egui::Context::default();
        let mut app = App::synchronous(&ctx);
        app.open_recording("frees", data);
        app.actions().send(Action::Run(Command::Workspace(Workspace::WhatIf)));
        let mut texts = String::new();
        for _ in 0..4 {
            texts = crate::app::shell::texts_of_a_frame(&mut app, &ctx).join("\n");
        }
        assert!(texts.contains("nothing to replay") && !texts.contains("all 0 served"), "{texts}");
    }
}
