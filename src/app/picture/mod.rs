//! Pictures for papers and reports: a view or the window as SVG, drawn without a display; the window as PNG.

mod svg;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use egui::{ColorImage, Context, RawInput, Rect, TextureId, Vec2, vec2};

use crate::app::documents::document::Document;
use crate::app::documents::document::{Content, DeviceData};
use crate::app::jobs::Jobs;
use crate::app::run::{Patience, Screenshot, place, save_png, unknown_view};
use crate::app::settings::{Settings, ThemeChoice};
use crate::app::state::cursor::Link;
use crate::app::state::workspace::{Layouts, Workspace};
use crate::app::theme::tokens;
use crate::app::views::ViewKind;
use crate::app::window::App;
use vramscope_core::formats::export::new_file::{NewFile, not_written, refusal};

/// Draws a recording once into a file: as SVG without a display, as PNG by the real window.
///
/// # Errors
/// One sentence when the view is unknown, the recording cannot be opened, there is no display for a PNG, or the file cannot be written.
pub fn draw_picture(shot: &Screenshot) -> Result<(), String> {
    let folder = shot.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("cannot write {}: there is no folder {}", shot.out.display(), folder.display()));
    }
    // An older picture may go: it is made again from its recording, which may not.
    let sources: Vec<&Path> = shot.file.iter().chain(&shot.with).map(PathBuf::as_path).collect();
    if let Some(sentence) = refusal(&shot.out, &sources, true) {
        return Err(sentence);
    }
    if shot.is_svg { export_svg(shot) } else { crate::app::run::screenshot(shot.clone()) }
}

/// Draws a recording's view or workspace as SVG into `shot.out`. Needs no display and no graphics driver.
///
/// # Errors
/// One sentence when the view is unknown, the recording cannot be opened, or the file cannot be written.
fn export_svg(shot: &Screenshot) -> Result<(), String> {
    if let Some(sentence) = unknown_view(&shot.view) {
        return Err(sentence);
    }
    let ctx = Context::default();
    let mut app = App::new(&ctx, settings(shot.dark), Jobs::new(ctx.clone()));
    app.only = ViewKind::from_name(&shot.view);
    app.pictures.hold_notices_back();
    crate::app::run::open_subject(&mut app, shot)?;
    let mut is_placed = false;
    let size = vec2(shot.size.0 as f32, shot.size.1 as f32);
    let mut patience = Patience::default();
    let text = draw(&ctx, &mut app, size, |app| {
        patience.check(app, &shot.view)?;
        // A tab that cannot be read may still make room for one that was opened beside it.
        if let (true, Some(Content::Failed(sentence))) = (app.is_idle(), app.active_document().map(|d| &d.content)) {
            return Err(sentence.clone());
        }
        if app.is_idle() { place(app, shot, &mut is_placed) } else { Ok(false) }
    })?;
    write(&shot.out, &text)
}

fn settings(dark: bool) -> Settings {
    Settings { theme: if dark { ThemeChoice::Dark } else { ThemeChoice::Light }, ..Settings::default() }
}

fn write(out: &Path, text: &str) -> Result<(), String> {
    let mut file = NewFile::create(out, &[], true)?;
    file.write_all(text.as_bytes()).map_err(|e| not_written(out, &e))?;
    file.finish()
}

/// How long nothing may have happened before the last frame is the picture.
const QUIET: Duration = Duration::from_millis(150);

/// Draws frames until nothing is computed any more, and gives the last one as SVG. `is_ready` says when the app shows what it should.
fn draw(
    ctx: &Context,
    app: &mut App,
    size: Vec2,
    mut is_ready: impl FnMut(&mut App) -> Result<bool, String>,
) -> Result<String, String> {
    let mut images: HashMap<TextureId, Arc<ColorImage>> = HashMap::new();
    let (mut calm, mut since) = (0, Instant::now());
    loop {
        let input = RawInput { screen_rect: Some(Rect::from_min_size(egui::Pos2::ZERO, size)), ..RawInput::default() };
        let mut output = ctx.run_ui(input, |ui| {
            app.logic(ui.ctx());
            app.draw(ui);
        });
        for (id, deltas) in std::mem::take(&mut output.textures_delta.set) {
            for delta in deltas {
                let egui::ImageData::Color(image) = delta.image;
                // Only the font atlas is changed in parts, and glyphs are written as text.
                if delta.pos.is_none() {
                    images.insert(id, image);
                }
            }
        }
        // Views start their computations while drawing, some a moment after the last change, so a few quiet frames over a moment mean
        // that nothing is left.
        if is_ready(app)? {
            calm += 1;
        } else {
            (calm, since) = (0, Instant::now());
        }
        if calm >= 6 && since.elapsed() >= QUIET {
            let shapes: Vec<(Rect, egui::Shape)> = output.shapes.into_iter().map(|s| (s.clip_rect, s.shape)).collect();
            let background = if ctx.global_style().visuals.dark_mode { tokens::DARK.s0 } else { tokens::LIGHT.s0 };
            return Ok(svg::document(&shapes, size, background, &images));
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// What is on screen, for a thread that draws it again as SVG.
struct Scene {
    title: String,
    data: Arc<DeviceData>,
    link: Link,
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
                view.link = self.link;
            }
        }
        let mut patience = Patience::default();
        draw(&ctx, &mut app, self.size, |app| {
            patience.check(app, "this window")?;
            Ok(app.is_idle())
        })
    }
}

/// A picture the user asked for.
pub(super) struct Wanted {
    /// The file to write, `.png` or `.svg`.
    pub path: PathBuf,
    /// The pane to cut out, and which view it holds; `None` is the whole window.
    pub part: Option<(ViewKind, Rect)>,
}

/// Pictures on their way.
#[derive(Default)]
pub(super) struct Pictures {
    /// The pane whose picture is wanted, while its path is chosen.
    pub part: Option<(ViewKind, Rect)>,
    wanted: Option<Wanted>,
    /// The app is drawn for a picture alone.
    is_picture: bool,
    /// When the renderer was last asked for a picture, and whether it has answered.
    asked: Option<(Instant, Arc<AtomicBool>)>,
    answers: Vec<(PathBuf, Receiver<Result<(), String>>)>,
}

impl Pictures {
    /// Draws no notices at all: the app is there for a picture alone.
    pub fn hold_notices_back(&mut self) {
        self.is_picture = true;
    }

    /// True while the renderer takes a picture, a frame or two: what comes and goes over the window is not drawn meanwhile. A renderer
    /// that gives no answer holds it back for a second.
    pub fn is_taking(&self) -> bool {
        self.is_picture
            || self
                .asked
                .as_ref()
                .is_some_and(|(since, taken)| !taken.load(Ordering::Acquire) && since.elapsed() < Duration::from_secs(1))
    }
}

impl App {
    /// Writes a picture of the window, or of the pane chosen before, as the path's ending says.
    pub(super) fn save_picture(&mut self, path: PathBuf, ctx: &Context) {
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
            // The renderer answers a frame later, when the dialog is gone from the picture.
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
            link: view.link.clone(),
            workspace: document.workspace,
            layouts: document.layouts.clone(),
            only: part.map(|(kind, _)| kind),
            size: size.max(vec2(64.0, 64.0)),
            dark: ctx.global_style().visuals.dark_mode,
        })
    }

    /// Asks the renderer for the picture that is wanted; called while the window is drawn.
    pub(super) fn take_picture(&mut self, ui: &egui::Ui) {
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
            // Compressing a window takes longer than a frame may.
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

    /// Says how pictures went.
    pub(super) fn poll_pictures(&mut self) {
        let mut said = Vec::new();
        self.pictures.answers.retain(|(path, answer)| match answer.try_recv() {
            Ok(Ok(())) => {
                said.push(format!("Saved {}.", path.display()));
                false
            }
            Ok(Err(sentence)) => {
                said.push(sentence);
                false
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => true,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                said.push(format!("{}: the picture was not taken.", path.display()));
                false
            }
        });
        for sentence in said {
            self.notices.say(sentence);
        }
    }
}

/// The part of a picture under a rectangle in points; the window may have become smaller since.
fn cut(image: &ColorImage, rect: Rect, scale: f32) -> ColorImage {
    let [width, height] = image.size;
    let pixel = |v: f32, most: usize| ((v * scale).round().max(0.0) as usize).min(most);
    let (x0, x1) = (pixel(rect.left(), width), pixel(rect.right(), width));
    let (y0, y1) = (pixel(rect.top(), height), pixel(rect.bottom(), height));
    if x0 >= x1 || y0 >= y1 {
        return image.clone();
    }
    let pixels = (y0..y1).flat_map(|y| image.pixels[y * width + x0..y * width + x1].iter().copied()).collect();
    ColorImage::new([x1 - x0, y1 - y0], pixels)
}

/// A name for the picture of a document: its title without endings.
pub(super) fn suggested_name(document: Option<&Document>, part: Option<ViewKind>) -> String {
    let title = document.map_or("vramscope", |d| d.title.split('.').next().unwrap_or("vramscope"));
    match part {
        Some(kind) => format!("{title}_{}.png", kind.info().name),
        None => format!("{title}.png"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(file: PathBuf, out: PathBuf) -> Screenshot {
        Screenshot {
            file: Some(file),
            with: Vec::new(),
            view: "overview".to_owned(),
            size: (1000, 640),
            dark: false,
            event: None,
            device: None,
            is_svg: true,
            redact: false,
            out,
        }
    }

    #[test]
    fn a_view_is_drawn_without_a_display() {
        let folder = tempfile::tempdir().unwrap();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots/fragment_oom.pickle");
        let shot = overview(sample, folder.path().join("x.svg"));
        draw_picture(&shot).unwrap();
        let text = std::fs::read_to_string(&shot.out).unwrap();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
        assert_eq!(text.matches("<g ").count(), text.matches("</g>").count());
        assert!(text.contains("Out of memory"), "the finding is in the picture");
        assert!(text.contains("data:image/png;base64,"), "so are the strata");
        let wrong = Screenshot { view: "nonsense".to_owned(), ..shot.clone() };
        assert!(draw_picture(&wrong).unwrap_err().contains("there is no view called \"nonsense\""));
        let beyond = Screenshot { device: Some(5), ..shot.clone() };
        assert!(draw_picture(&beyond).unwrap_err().contains("there is no device 5; the recording has 0 (GPU 0)"));
        let late = Screenshot { event: Some(177), ..shot.clone() };
        assert!(draw_picture(&late).unwrap_err().contains("there is no event 177; GPU 0 has events 0 to 176"));
        let missing = Screenshot { file: Some(folder.path().join("none.pickle")), ..shot };
        assert!(draw_picture(&missing).is_err());
    }

    #[test]
    fn a_text_with_an_error_is_drawn_as_its_explanation() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.txt");
        let message =
            "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated)\n";
        std::fs::write(&file, message).unwrap();
        let shot = overview(file.clone(), folder.path().join("x.svg"));
        draw_picture(&shot).unwrap();
        let text = std::fs::read_to_string(&shot.out).unwrap();
        assert!(text.contains("2.00 GiB") || text.contains("2 GiB"), "the figures of the message are in the picture");
        std::fs::write(&file, "nothing went wrong here\n").unwrap();
        assert!(draw_picture(&shot).is_err(), "and a text without one is refused");
    }

    #[test]
    fn a_pane_is_cut_out_and_never_beyond_the_picture() {
        let image = ColorImage::filled([40, 20], egui::Color32::RED);
        let part = Rect::from_min_max(egui::pos2(5.0, 5.0), egui::pos2(15.0, 100.0));
        assert_eq!(cut(&image, part, 2.0).size, [20, 10]);
        assert_eq!(cut(&image, Rect::from_min_max(egui::pos2(50.0, 0.0), egui::pos2(60.0, 9.0)), 1.0).size, [40, 20]);
    }
}
