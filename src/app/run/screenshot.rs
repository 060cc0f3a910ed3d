//! Draws one picture of a recording without user interaction: PNG from the real window, or SVG without a display.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use egui::{Context, Ui, ViewportCommand, vec2};

use super::{native_options, start};
use crate::app::data::device::prepare;
use crate::app::documents::document::Content;
use crate::app::jobs::Jobs;
use crate::app::picture::{save_png, write};
use crate::app::state::{Action, Command, ViewKind, Workspace};
use crate::app::window::App;
use crate::app::window::pictures::{Patience, UNFINISHED, draw, settings};
use vramscope_core::formats::export::new_file::refusal;
use vramscope_core::model::Progress;
use vramscope_core::units::nearest;

/// A picture to draw.
#[derive(Clone, Debug)]
pub struct Screenshot {
    /// The recording; `None` for the welcome page.
    pub file: Option<PathBuf>,
    /// Other files of the same run, opened together with it.
    pub with: Vec<PathBuf>,
    /// The name of a view, or of a workspace (such as `overview`) for the whole window.
    pub view: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    pub dark: bool,
    /// The cursor's event. By default the cursor is where the view opens.
    pub event: Option<u32>,
    /// The device by the index that the process used; `None` for the busiest.
    pub device: Option<i32>,
    /// Writes SVG instead of PNG, which needs no display.
    pub is_svg: bool,
    /// Leaves out paths of the machine that made the recording.
    pub redact: bool,
    pub out: PathBuf,
}

/// Draws a recording into a file: SVG without a display, PNG with the real window. Gives a sentence where the picture is not as large
/// as it was asked for. Fails when the view is unknown, the recording cannot be opened, there is no display for a PNG, or the
/// file cannot be written.
pub fn draw_picture(shot: &Screenshot) -> Result<Option<String>, String> {
    let folder = shot.out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(format!("cannot write {}: there is no folder {}", shot.out.display(), folder.display()));
    }
    // The output may replace an older picture but not the recordings that it is made from.
    let sources: Vec<&Path> = shot.file.iter().chain(&shot.with).map(PathBuf::as_path).collect();
    if let Some(error) = refusal(&shot.out, &sources, true) {
        return Err(error.to_string());
    }
    if shot.is_svg { export_svg(shot) } else { screenshot(shot.clone()) }
}

/// One sentence that lists the views, when neither a view nor a workspace has this name.
pub fn unknown_view(name: &str) -> Option<String> {
    let mut known: Vec<&str> = Workspace::ALL.iter().map(|w| w.name()).collect();
    for view in ViewKind::all().map(ViewKind::name).chain(["welcome", "ranks", "probe"]) {
        // A workspace with a single view has the same name.
        if !known.contains(&view) {
            known.push(view);
        }
    }
    // The probe page may name the scenario to run: `probe:leak`.
    let is_scenario = name.strip_prefix("probe:").is_some_and(|s| vramscope_live::probe::Scenario::find(s).is_ok());
    let is_known = is_scenario || known.contains(&name) || ViewKind::from_name(name).is_some();
    (!is_known).then(|| {
        let meant = nearest(name, known.iter().copied()).map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
        format!("there is no view called \"{name}\"; {meant}the views are {}", known.join(", "))
    })
}

/// Draws a recording's view or workspace as SVG into `shot.out`. Needs no display and no graphics driver. Fails when the view is
/// unknown, the recording cannot be opened, or the file cannot be written.
fn export_svg(shot: &Screenshot) -> Result<Option<String>, String> {
    if let Some(sentence) = unknown_view(&shot.view) {
        return Err(sentence);
    }
    let ctx = Context::default();
    let mut app = App::new(&ctx, settings(shot.dark), Jobs::new(ctx.clone()));
    app.only = ViewKind::from_name(&shot.view);
    app.pictures.hold_notices_back();
    open_subject(&mut app, shot)?;
    let mut is_placed = false;
    let size = vec2(shot.size.0 as f32, shot.size.1 as f32);
    let mut patience = Patience::default();
    let text = draw(&ctx, &mut app, size, |app| {
        patience.check(app, &shot.view)?;
        // A tab that failed may still be replaced by one that was opened with it.
        if let (true, Some(Content::Failed(sentence))) = (app.is_idle(), app.active_document().map(|d| &d.content)) {
            return Err(sentence.clone());
        }
        let is_over = patience.is_over(app, &shot.view);
        if app.is_idle() || is_over { place(app, shot, &mut is_placed) } else { Ok(false) }
    })?;
    write(&shot.out, &text).map(|()| (!app.is_idle()).then(|| UNFINISHED.to_owned()))
}

/// Opens the files of a picture. To redact paths it reads the recording right here, since no user is waiting. Fails when the
/// recording cannot be opened, or when it is to be redacted together with other files.
fn open_subject(app: &mut App, shot: &Screenshot) -> Result<(), String> {
    let Some(file) = shot.file.as_ref().filter(|_| shot.redact) else {
        app.open_paths(shot.file.iter().chain(&shot.with).cloned());
        return Ok(());
    };
    if !shot.with.is_empty() {
        return Err("--redact draws one recording; leave --with out".to_owned());
    }
    let progress = Progress::new();
    let mut recording = vramscope_core::formats::open(file, &progress).map_err(|e| e.to_string())?;
    vramscope_core::formats::export::redact::redact(&mut recording);
    let index = recording
        .busiest_device()
        .ok_or_else(|| format!("{}: there is nothing to draw: it holds no device's memory", file.display()))?;
    let data = prepare(&std::sync::Arc::new(recording), index, &progress)?;
    let title = data.recording.source.name.clone();
    app.open_recording(&title, data);
    Ok(())
}

/// Samples to wait for before a live watch is pictured: three seconds at the usual rate.
const WATCHED_SAMPLES: usize = 30;

/// Opens the window, draws the recording once, writes a PNG, and closes. Fails when the view is unknown, the recording cannot be
/// opened, there is no display, or the file cannot be written.
fn screenshot(mut shot: Screenshot) -> Result<Option<String>, String> {
    // The welcome page is what is there without a recording.
    if shot.view == "welcome" {
        (shot.file, shot.with) = (None, Vec::new());
    }
    if let Some(sentence) = unknown_view(&shot.view) {
        return Err(sentence);
    }
    let (sender, receiver) = channel();
    let mut options = native_options([shot.size.0 as f32, shot.size.1 as f32]);
    options.persist_window = false;
    options.viewport = options.viewport.with_min_inner_size([64.0, 64.0]).with_decorations(false);
    // A fresh settings folder, so that pictures do not depend on what the user did before.
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder can be made: {e}"))?;
    options.persistence_path = Some(folder.path().join("settings"));
    start(options, move |cc| {
        cc.egui_ctx.set_pixels_per_point(1.0);
        let mut app = App::new(&cc.egui_ctx, settings(shot.dark), Jobs::new(cc.egui_ctx.clone()));
        app.pictures.hold_notices_back();
        app.only = ViewKind::from_name(&shot.view);
        let failure = open_subject(&mut app, &shot).err();
        if shot.file.is_none() && shot.view == "live" {
            app.watch_machine(&cc.egui_ctx);
        }
        Box::new(Photographer {
            app,
            failure,
            shot: shot.clone(),
            calm_frames: 0,
            is_placed: false,
            is_asked: false,
            patience: Patience::default(),
            done: sender.clone(),
            taken: None,
        })
    })?;
    receiver.try_recv().unwrap_or_else(|_| Err("the window closed before the picture was taken".to_owned()))
}

/// Draws the app until nothing is left to compute, then takes the picture.
struct Photographer {
    app: App,
    failure: Option<String>,
    shot: Screenshot,
    /// Frames since everything was computed.
    calm_frames: u32,
    is_placed: bool,
    is_asked: bool,
    patience: Patience,
    done: std::sync::mpsc::Sender<Result<Option<String>, String>>,
    taken: Option<Receiver<std::sync::Arc<egui::ColorImage>>>,
}

impl Photographer {
    fn finish(&mut self, ctx: &Context, result: Result<Option<String>, String>) {
        let _ = self.done.send(result);
        ctx.send_viewport_cmd(ViewportCommand::Close);
    }
}

/// Said where the display was too small for the window.
fn smaller(wanted: (u32, u32), got: [usize; 2]) -> Option<String> {
    let [width, height] = got;
    (got != [wanted.0 as usize, wanted.1 as usize]).then(|| {
        format!(
            "the picture is {width}x{height}, not {}x{}: the display has no more room (xvfb-run -s \"-screen 0 {}x{}x24\" makes one that has)",
            wanted.0, wanted.1, wanted.0, wanted.1
        )
    })
}

/// Sets device, workspace and cursor. Returns true when done, and remembers it in `is_placed`. Fails when the recording has no
/// such device or event.
fn place(app: &mut App, shot: &Screenshot, is_placed: &mut bool) -> Result<bool, String> {
    if *is_placed {
        return Ok(true);
    }
    if shot.view == "probe" || shot.view.starts_with("probe:") {
        *is_placed = app.place_probe(shot.file.is_some(), &shot.view);
        return Ok(*is_placed);
    }
    let Some(document) = app.active_document() else {
        // A text with an out-of-memory error opens no tab; the dialog that explains it is the picture.
        *is_placed = shot.file.is_none() || app.explains().transpose()?.is_some();
        return Ok(*is_placed);
    };
    // A live watch needs a few samples before it shows anything.
    if document.feed.is_some()
        && let Some(track) = document.view().and_then(|v| v.data.device().live.as_deref())
        && track.trouble.is_none()
        && document.view().is_some_and(|v| v.data.device().samples.len() < WATCHED_SAMPLES)
    {
        return Ok(false);
    }
    if let (Some(view), Some(number)) = (document.view(), shot.device) {
        let device = view.data.recording.device_numbered(number).map_err(|e| e.to_string())?;
        if view.data.index != device {
            app.actions.send(Action::SetDevice(device));
            return Ok(false);
        }
    }
    if let Content::Ranks(page) = &document.content {
        *is_placed = page.is_done();
        return Ok(*is_placed);
    }
    let Some(view) = document.view() else { return Ok(false) };
    let (device, events) = (view.data.device(), view.data.device().events.len());
    if let Some(event) = shot.event.filter(|&event| event as usize >= events) {
        let name = &view.data.recording.source.name;
        return Err(match events.checked_sub(1) {
            Some(last) => format!("{name}: there is no event {event}; {} has events 0 to {last}", device.id),
            None => format!("{name}: there is no event {event}; {} has none", device.id),
        });
    }
    if let Some(workspace) = Workspace::ALL.iter().find(|w| w.name() == shot.view) {
        app.actions.run(Command::Workspace(*workspace));
    }
    if let Some(event) = shot.event {
        app.actions.send(Action::GoTo(event));
    }
    *is_placed = true;
    Ok(true)
}

impl eframe::App for Photographer {
    /// Drops pointer events, because a pointer that rests over the window must not show in the picture.
    fn raw_input_hook(&mut self, _ctx: &Context, input: &mut egui::RawInput) {
        input.events.retain(|e| {
            !matches!(e, egui::Event::PointerMoved(_) | egui::Event::PointerButton { .. } | egui::Event::MouseMoved(_))
        });
    }

    fn logic(&mut self, ctx: &Context, _frame: &mut eframe::Frame) {
        self.app.logic(ctx);
        if let Err(sentence) = self.patience.check(&self.app, &self.shot.view) {
            self.finish(ctx, Err(sentence));
            return;
        }
        if let Some(taken) = &self.taken {
            if let Ok(image) = taken.try_recv() {
                let result = save_png(&image, &self.shot.out).map(|()| {
                    let unfinished = || (!self.app.is_idle()).then(|| UNFINISHED.to_owned());
                    smaller(self.shot.size, image.size).or_else(unfinished)
                });
                self.finish(ctx, result);
            }
            ctx.request_repaint();
            return;
        }
        if let Some(sentence) = self.failure.take() {
            self.finish(ctx, Err(sentence));
            return;
        }
        // A tab that failed may still be replaced by one that was opened with it.
        if let (true, Some(Content::Failed(sentence))) = (self.app.is_idle(), self.app.active_document().map(|d| &d.content)) {
            let sentence = sentence.clone();
            self.finish(ctx, Err(sentence));
            return;
        }
        let is_over = self.patience.is_over(&self.app, &self.shot.view);
        let is_ready =
            if self.app.is_idle() || is_over { place(&mut self.app, &self.shot, &mut self.is_placed) } else { Ok(false) };
        match is_ready {
            Ok(true) => {}
            Ok(false) => self.calm_frames = 0,
            Err(sentence) => {
                self.finish(ctx, Err(sentence));
                return;
            }
        }
        ctx.request_repaint_after(Duration::from_millis(10));
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.app.draw(ui);
        // Counted here and not in `logic`, because a covered window runs `logic` without being drawn.
        self.calm_frames += 1;
        // Views start computations while they draw, so only several idle frames in a row mean that nothing is left.
        if self.calm_frames >= 7 && !self.is_asked {
            self.is_asked = true;
            let (sender, receiver) = channel();
            self.taken = Some(receiver);
            let ctx = ui.ctx().clone();
            ui.request_screenshot(move |image| {
                let _ = sender.send(image);
                ctx.request_repaint();
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;

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
        let shot = overview(samples::path("fragment_oom.pickle"), folder.path().join("x.svg"));
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
}
