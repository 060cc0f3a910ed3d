//! A frame of the window: what eframe calls.

use egui::{Context, Ui};

use super::documents::document::Document;
use super::shell;
use super::window::App;

impl App {
    /// What the window's title bar says: the recording in front and the instant it is at.
    fn title(&self) -> String {
        match self.active_document() {
            None => "vramscope".to_owned(),
            Some(d) => match d.view() {
                Some(v) if !v.data.device().events.is_empty() => {
                    format!("{}, event {} - vramscope", d.title, vramscope_core::units::count(u64::from(v.link.cursor)))
                }
                _ => format!("{} - vramscope", d.title),
            },
        }
    }

    /// Draws the window.
    pub fn draw(&mut self, ui: &mut Ui) {
        let title = self.title();
        if title != self.shown_title {
            ui.ctx().send_viewport_cmd(egui::ViewportCommand::Title(title.clone()));
            self.shown_title = title;
        }
        self.take_picture(ui);
        shell::draw(self, ui);
        self.copying.note(ui.ctx());
    }
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

    /// Settings are written by [`App::ui`], after their file was read off this thread, and when the window closes.
    fn auto_save_interval(&self) -> std::time::Duration {
        std::time::Duration::MAX
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        if let Some(document) = self.active_document() {
            self.settings.layouts = document.layouts.clone();
            if let Some(view) = self.active_document().and_then(Document::view) {
                self.settings.axis = view.link.axis;
            }
        }
        eframe::set_value(storage, eframe::APP_KEY, &self.kept.to_write(&mut self.settings));
        if self.written_rules != self.settings.category_rules {
            self.written_rules = self.settings.category_rules.clone();
            self.settings.write_rules();
        }
    }
}
