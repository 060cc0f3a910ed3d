//! The whole app in its own window.

use std::sync::Arc;

use crate::pictures::builder;
use egui::Theme;
use egui_kittest::Harness;
use vramscope::app::App;
use vramscope::app::data::device::DeviceData;
use vramscope::app::jobs::Jobs;
use vramscope::app::settings::{Settings, ThemeChoice};
use vramscope::app::state::{Action, SharedViewState, ViewKind};

/// The app in its window, created in the first frame.
pub type Whole = Harness<'static, Option<App>>;

/// The app after `begin` ran. Everything is computed synchronously, so that nothing depends on timing.
pub fn whole(theme: Theme, size: [f32; 2], begin: impl Fn(&mut App) + 'static) -> Whole {
    with_settings(Settings::default(), theme, size, begin)
}

/// Like [`whole`], with settings of an earlier window.
pub fn with_settings(settings: Settings, theme: Theme, size: [f32; 2], begin: impl Fn(&mut App) + 'static) -> Whole {
    let draw = move |ui: &mut egui::Ui, app: &mut Option<App>| {
        let app = app.get_or_insert_with(|| {
            let theme = if theme == Theme::Dark { ThemeChoice::Dark } else { ThemeChoice::Light };
            let mut app = App::new(ui.ctx(), Settings { theme, ..settings.clone() }, Jobs::synchronous());
            begin(&mut app);
            app
        });
        app.logic(ui.ctx());
        app.draw(ui);
    };
    let mut h = builder().with_size(size).with_theme(theme).with_step_dt(0.05).build_ui_state(draw, None);
    h.run_steps(6);
    h
}

/// The app with one recording in front.
pub fn opened(data: &Arc<DeviceData>, theme: Theme, size: [f32; 2]) -> Whole {
    let data = Arc::clone(data);
    whole(theme, size, move |app| app.open_recording("sample", Arc::clone(&data)))
}

/// The app with one recording and one view, with its header, over the whole window.
pub fn only(data: &Arc<DeviceData>, view: ViewKind, size: [f32; 2]) -> Whole {
    let data = Arc::clone(data);
    whole(Theme::Dark, size, move |app| {
        app.open_recording("sample", Arc::clone(&data));
        app.show_only(view);
    })
}

pub fn app(h: &Whole) -> &App {
    h.state().as_ref().expect("an app")
}

/// Cursor, window and selection of the recording in front.
pub fn link(h: &Whole) -> &SharedViewState {
    &app(h).active_document().and_then(|d| d.view()).expect("a device in front").shared
}

pub fn send(h: &mut Whole, action: Action) {
    app(h).actions().send(action);
    h.run_steps(3);
}
