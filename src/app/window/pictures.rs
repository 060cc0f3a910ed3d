//! Takes the pictures of the window that the user requested.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use egui::epaint::ClippedShape;
use egui::{Color32, ColorImage, Context, RawInput, Rect, Vec2, vec2};

use super::App;
use crate::app::data::device::DeviceData;
use crate::app::jobs::{Jobs, answered};
use crate::app::picture::raster::{self, Textures};
use crate::app::picture::{Wanted, cut, save_png, svg, write};
use crate::app::settings::{Settings, ThemeChoice};
use crate::app::state::{Layouts, SharedViewState, ViewKind, Workspace};
use crate::app::theme::tokens;

pub(in crate::app) fn settings(dark: bool) -> Settings {
    Settings { theme: if dark { ThemeChoice::Dark } else { ThemeChoice::Light }, ..Settings::default() }
}

/// A picture is finished when nothing changed for this long.
const QUIET: Duration = Duration::from_millis(150);

/// A finished frame: nothing is left to compute.
pub(in crate::app) struct Still {
    shapes: Vec<ClippedShape>,
    textures: Textures,
    size: Vec2,
    background: Color32,
}

impl Still {
    pub fn svg(self) -> String {
        let shapes: Vec<(Rect, egui::Shape)> = self.shapes.into_iter().map(|s| (s.clip_rect, s.shape)).collect();
        svg::document(&shapes, self.size, self.background, &self.textures)
    }

    /// Draws it with one pixel per point.
    pub fn pixels(self, ctx: &Context) -> ColorImage {
        let primitives = ctx.tessellate(self.shapes, 1.0);
        raster::paint(&primitives, &self.textures, [self.size.x as usize, self.size.y as usize], 1.0, self.background)
    }
}

/// Draws frames until nothing is computed any more. Returns the last one. `is_ready` says whether the app shows what it should.
pub(in crate::app) fn draw(
    ctx: &Context,
    app: &mut App,
    size: Vec2,
    mut is_ready: impl FnMut(&mut App) -> Result<bool, String>,
) -> Result<Still, String> {
    let mut textures = Textures::default();
    let (mut calm, mut since) = (0, Instant::now());
    loop {
        // Without a graphics driver, textures may have any size.
        let max_texture_side = Some(1 << 14);
        let screen_rect = Some(Rect::from_min_size(egui::Pos2::ZERO, size));
        let input = RawInput { screen_rect, max_texture_side, ..RawInput::default() };
        let mut output = ctx.run_ui(input, |ui| {
            app.logic(ui.ctx());
            app.draw(ui);
        });
        textures.update(&mut output.textures_delta);
        // Views start computations while drawing, some of them a moment after the last change. Only several quiet frames mean
        // that nothing is left.
        if is_ready(app)? {
            calm += 1;
        } else {
            (calm, since) = (0, Instant::now());
        }
        if calm >= 6 && since.elapsed() >= QUIET {
            let background = if ctx.global_style().visuals.dark_mode { tokens::DARK.s0 } else { tokens::LIGHT.s0 };
            return Ok(Still { shapes: output.shapes, textures, size, background });
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// What is on screen, for a thread that draws it as SVG.
struct Scene {
    title: String,
    data: Arc<DeviceData>,
    shared: SharedViewState,
    workspace: Workspace,
    layouts: Layouts,
    only: Option<ViewKind>,
    size: Vec2,
    dark: bool,
}

impl Scene {
    fn svg(self) -> Result<String, String> {
        let ctx = Context::default();
        let mut app = App::new(&ctx, settings(self.dark), Jobs::new(ctx.clone()));
        app.only = self.only;
        app.pictures.hold_notices_back();
        app.open_recording(&self.title, self.data);
        if let Some(document) = app.active_document_mut() {
            document.workspace = self.workspace;
            document.layouts = self.layouts;
            if let Some(view) = document.view_mut() {
                view.shared = self.shared;
            }
        }
        let mut patience = Patience::default();
        let still = draw(&ctx, &mut app, self.size, |app| {
            patience.check(app, "this window")?;
            Ok(app.is_idle())
        })?;
        Ok(still.svg())
    }
}

impl App {
    /// Writes a picture of the window or of the chosen pane, in the format of the path's ending.
    pub(in crate::app) fn save_picture(&mut self, path: PathBuf, ctx: &Context) {
        let part = self.pictures.part.take();
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("svg")) {
            let Some(scene) = self.scene(part, ctx) else {
                self.notices.say("Open a recording first; a picture of other pages can be saved as PNG.");
                return;
            };
            let out = path.clone();
            let answer = self.jobs.spawn("picture", move || scene.svg().and_then(|text| write(&out, &text)));
            self.pictures.answers.push((path, answer));
        } else {
            // Taken a frame later, when the dialog is gone.
            self.pictures.wanted = Some(Wanted { path, part });
        }
    }

    fn scene(&self, part: Option<(ViewKind, Rect)>, ctx: &Context) -> Option<Scene> {
        let document = self.active_document()?;
        let view = document.view()?;
        let size = part.map_or_else(|| ctx.content_rect().size(), |(_, rect)| rect.size());
        Some(Scene {
            title: document.title.clone(),
            data: Arc::clone(&view.data),
            shared: view.shared.clone(),
            workspace: document.workspace,
            layouts: document.layouts.clone(),
            only: part.map(|(kind, _)| kind),
            size: size.max(vec2(64.0, 64.0)),
            dark: ctx.global_style().visuals.dark_mode,
        })
    }

    /// Asks the renderer for the requested picture. Call it while the window is drawn.
    pub(in crate::app) fn take_picture(&mut self, ui: &egui::Ui) {
        let Some(wanted) = self.pictures.wanted.take() else { return };
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        let (ctx, path) = (ui.ctx().clone(), wanted.path.clone());
        let scale = ctx.pixels_per_point();
        let is_taken = Arc::new(AtomicBool::new(false));
        self.pictures.asked = Some((Instant::now(), Arc::clone(&is_taken)));
        ui.request_screenshot(move |image| {
            is_taken.store(true, Ordering::Release);
            let image = match wanted.part {
                Some((_, rect)) => cut(&image, rect, scale),
                None => ColorImage::clone(&image),
            };
            // Compression takes longer than a frame.
            let spawned = std::thread::Builder::new().name("picture".to_owned()).spawn(move || {
                let _ = sender.send(save_png(&image, &wanted.path));
                ctx.request_repaint();
            });
            if let Err(error) = spawned {
                tracing::error!("cannot start the thread picture: {error}");
            }
        });
        self.pictures.answers.push((path, answer));
    }

    pub(in crate::app) fn poll_pictures(&mut self) {
        let mut said = Vec::new();
        self.pictures.answers.retain(|(path, answer)| {
            let outcome = answered(answer, || Err(format!("{}: the picture was not taken.", path.display())));
            let is_waiting = outcome.is_none();
            said.extend(outcome.map(|saved| saved.map_or_else(|why| why, |()| format!("Saved {}.", path.display()))));
            is_waiting
        });
        for sentence in said {
            self.notices.say(sentence);
        }
    }
}

/// After this long without progress, an unfinished picture fails.
const STUCK: Duration = Duration::from_secs(120);

/// How long a picture waits for a view that keeps computing more answers.
const LONG_ENOUGH: Duration = Duration::from_secs(60);

/// The note on a picture that did not wait for all answers.
pub(in crate::app) const UNFINISHED: &str = "the picture shows what was worked out in a minute; the window goes on to the end";

/// Detects when nothing makes progress, so that a script does not wait for ever.
#[derive(Debug)]
pub(in crate::app) struct Patience {
    seen: Option<u64>,
    since: Instant,
    limit: Duration,
    /// When the view first appeared.
    ready: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { seen: None, since: Instant::now(), limit: STUCK, ready: None }
    }
}

impl Patience {
    /// Fails when nothing has changed for two minutes.
    pub(in crate::app) fn check(&mut self, app: &App, view: &str) -> Result<(), String> {
        self.look(app.pace(), view)
    }

    /// True when a view that computes many answers had a minute. The picture then shows the answers so far.
    pub(in crate::app) fn is_over(&mut self, app: &App, view: &str) -> bool {
        if self.ready.is_none() && app.active_document().is_some_and(|d| d.view().is_some()) {
            self.ready = Some(Instant::now());
        }
        matches!(view, "plan" | "what-if" | "whatif") && self.ready.is_some_and(|ready| ready.elapsed() > LONG_ENOUGH)
    }

    fn look(&mut self, pace: u64, view: &str) -> Result<(), String> {
        if self.seen != Some(pace) {
            (self.seen, self.since) = (Some(pace), Instant::now());
        }
        if self.since.elapsed() < self.limit {
            return Ok(());
        }
        let seconds = self.limit.as_secs();
        Err(format!(
            "the picture of {view} was given up: nothing has moved for {seconds} s; try another --view, or the text commands"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_waited_for_and_what_stands_still_is_given_up() {
        let mut patience = Patience { limit: Duration::from_millis(20), ..Patience::default() };
        for pace in 0..4 {
            patience.look(pace, "timeline").unwrap();
            std::thread::sleep(Duration::from_millis(8));
        }
        std::thread::sleep(Duration::from_millis(20));
        let sentence = patience.look(3, "timeline").unwrap_err();
        assert!(sentence.contains("the picture of timeline was given up"), "{sentence}");
    }
}
