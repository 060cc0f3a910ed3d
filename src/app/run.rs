//! Starting the window, and drawing it once for a picture.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use egui::{Context, Ui, ViewportCommand};
use image::ImageEncoder as _;

use crate::app::documents::document::Content;
use crate::app::jobs::Jobs;
use crate::app::settings::Settings;
use crate::app::settings::merging::Kept;
use crate::app::state::command::Command;
use crate::app::views::ViewKind;
use crate::app::window::App;
use vramscope_core::formats::export::new_file::{NewFile, not_written};
use vramscope_core::model::Progress;

/// How to start the window.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Files to open.
    pub files: Vec<PathBuf>,
    /// A folder to watch for new recordings.
    pub watch: Option<PathBuf>,
}

/// A picture of the real window.
#[derive(Clone, Debug)]
pub struct Screenshot {
    /// The recording; `None` draws the welcome page.
    pub file: Option<PathBuf>,
    /// Artefacts of the same run, opened together with it.
    pub with: Vec<PathBuf>,
    /// A view's name, `overview` or another workspace's name for the whole window.
    pub view: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Dark or light.
    pub dark: bool,
    /// Where the cursor stands; `None` leaves it at the out-of-memory event or the end.
    pub event: Option<u32>,
    /// The device, by the number the process knew it by; `None` is the busiest.
    pub device: Option<i32>,
    /// Lines and text instead of pixels; needs no display.
    pub is_svg: bool,
    /// Draws no path of the machine the recording is from.
    pub redact: bool,
    /// The file to write.
    pub out: PathBuf,
}

/// Opens what a picture is of. Without its paths the recording is read here: nobody waits for this window.
///
/// # Errors
/// One sentence when the recording cannot be opened, or is to be redacted together with others.
pub(super) fn open_subject(app: &mut App, shot: &Screenshot) -> Result<(), String> {
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
    let data = crate::app::documents::loader::prepare(&std::sync::Arc::new(recording), index, &progress)?;
    let title = data.recording.source.name.clone();
    app.open_recording(&title, data);
    Ok(())
}

/// Samples that a picture of a watch waits for: three seconds at the usual rate.
const WATCHED_SAMPLES: usize = 30;

const NO_DISPLAY: &str = "there is no display: neither WAYLAND_DISPLAY nor DISPLAY is set. On a machine without one use the text commands \
(vramscope summary FILE, vramscope state FILE, vramscope --help), or start a virtual display: xvfb-run -a vramscope FILE";

const NO_WAYLAND_EGL: &str = "the window cannot be opened: OpenGL under Wayland needs libwayland-egl.so.1, which is not installed (Debian and Ubuntu: \
libwayland-egl1; Fedora: libwayland-egl). To use X11 instead start vramscope with WAYLAND_DISPLAY= in front";

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| !v.is_empty())
}

fn is_wayland() -> bool {
    cfg!(all(unix, not(target_os = "macos"))) && (is_set("WAYLAND_DISPLAY") || is_set("WAYLAND_SOCKET"))
}

fn has_display() -> bool {
    !cfg!(all(unix, not(target_os = "macos"))) || is_set("DISPLAY") || is_wayland()
}

/// The library that OpenGL needs under Wayland is there. Asked first: the window's own library panics without it.
#[cfg(unix)]
fn has_wayland_egl() -> bool {
    [c"libwayland-egl.so.1", c"libwayland-egl.so"].iter().any(|name| {
        // SAFETY: the name ends in a zero byte, and loading this library runs nothing that could matter here.
        let library = unsafe { libc::dlopen(std::ptr::from_ref::<std::ffi::CStr>(name).cast(), libc::RTLD_LAZY) };
        !library.is_null()
    })
}

#[cfg(not(unix))]
fn has_wayland_egl() -> bool {
    true
}

/// What to say when WAYLAND_DISPLAY names a socket where no compositor answers. Asked first: the window's own library
/// would answer with a line of its source.
#[cfg(unix)]
fn no_compositor() -> Option<String> {
    let name = std::env::var_os("WAYLAND_DISPLAY").filter(|name| !name.is_empty() && !is_set("WAYLAND_SOCKET"))?;
    let shown = name.to_string_lossy().into_owned();
    let path = if std::path::Path::new(&name).is_absolute() {
        PathBuf::from(name)
    } else {
        let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR") else {
            return Some(format!(
                "WAYLAND_DISPLAY is {shown}, but XDG_RUNTIME_DIR, the folder of its socket, is not set. {USE_X11}"
            ));
        };
        PathBuf::from(folder).join(name)
    };
    let error = std::os::unix::net::UnixStream::connect(path).err()?;
    Some(format!("WAYLAND_DISPLAY is {shown}, but no compositor answers there ({error}). {USE_X11}"))
}

#[cfg(not(unix))]
fn no_compositor() -> Option<String> {
    None
}

const USE_X11: &str =
    "To use X11 start vramscope with WAYLAND_DISPLAY= in front; without any display use the text commands (vramscope --help)";

fn native_options(size: [f32; 2]) -> eframe::NativeOptions {
    let mut viewport = egui::ViewportBuilder::default()
        .with_title("vramscope")
        .with_app_id("vramscope")
        .with_inner_size(size)
        .with_min_inner_size([720.0, 480.0])
        .with_drag_and_drop(true);
    if let Ok(icon) = eframe::icon_data::from_png_bytes(include_bytes!("../../assets/icon.png")) {
        viewport = viewport.with_icon(icon);
    }
    eframe::NativeOptions { viewport, renderer: eframe::Renderer::Glow, persist_window: true, ..Default::default() }
}

/// Tries each renderer that was compiled in, until one starts.
fn start(
    mut options: eframe::NativeOptions,
    make: impl Fn(&eframe::CreationContext<'_>) -> Box<dyn eframe::App> + Clone + 'static,
) -> Result<(), String> {
    if !has_display() {
        return Err(NO_DISPLAY.to_owned());
    }
    if is_wayland() && !has_wayland_egl() {
        return Err(NO_WAYLAND_EGL.to_owned());
    }
    if let Some(error) = no_compositor() {
        return Err(error);
    }
    let renderers: &[eframe::Renderer] = &[
        eframe::Renderer::Glow,
        #[cfg(feature = "wgpu")]
        eframe::Renderer::Wgpu,
    ];
    let mut failures = Vec::new();
    for &renderer in renderers {
        options.renderer = renderer;
        let make = make.clone();
        match eframe::run_native("vramscope", clone_options(&options), Box::new(move |cc| Ok(make(cc)))) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push(format!("{renderer}: {error}")),
        }
    }
    Err(format!(
        "the window cannot be opened ({}). vramscope needs OpenGL 2.1; over ssh try LIBGL_ALWAYS_SOFTWARE=1, or use the text commands (vramscope --help)",
        failures.join("; ")
    ))
}

/// `NativeOptions` is not `Clone`: its hooks are not. These have none.
fn clone_options(options: &eframe::NativeOptions) -> eframe::NativeOptions {
    eframe::NativeOptions {
        viewport: options.viewport.clone(),
        renderer: options.renderer,
        persist_window: options.persist_window,
        persistence_path: options.persistence_path.clone(),
        ..Default::default()
    }
}

/// Opens the window and returns when it is closed.
///
/// # Errors
/// One sentence when there is no display or no renderer starts.
pub fn run(options: RunOptions) -> Result<(), String> {
    start(native_options([1600.0, 1000.0]), move |cc| {
        let mut settings = cc.storage.and_then(|s| eframe::get_value::<Settings>(s, eframe::APP_KEY)).unwrap_or_default();
        settings.read_rules();
        let mut app = App::new(&cc.egui_ctx, settings, Jobs::new(cc.egui_ctx.clone()));
        app.kept = Kept::by_eframe(app.settings.clone());
        app.copying.is_real = true;
        let (streams, files): (Vec<_>, Vec<_>) =
            options.files.iter().cloned().partition(|f| crate::app::live::watching::is_standard_input(f));
        if !streams.is_empty() {
            app.watch_standard_input(&cc.egui_ctx);
        }
        app.open_paths(files);
        if let Some(folder) = &options.watch {
            app.actions.send(crate::app::state::action::Action::Watch(Some(folder.clone())));
        }
        Box::new(app)
    })
}

/// One sentence that lists the views when none, and no workspace, has this name.
#[must_use]
pub fn unknown_view(name: &str) -> Option<String> {
    let mut known: Vec<&str> = crate::app::state::workspace::Workspace::ALL.iter().map(|w| w.name()).collect();
    for view in crate::app::views::REGISTRY.iter().map(|i| i.name).chain(["welcome", "ranks", "probe"]) {
        // A workspace of one view has its name.
        if !known.contains(&view) {
            known.push(view);
        }
    }
    // The probe's page may name the scenario to run: `probe:leak`.
    let is_scenario = name.strip_prefix("probe:").is_some_and(|s| vramscope_live::probe::Scenario::find(s).is_ok());
    let is_known = is_scenario || known.contains(&name) || ViewKind::from_name(name).is_some();
    (!is_known).then(|| format!("there is no view called \"{name}\"; the views are {}", known.join(", ")))
}

/// Opens the window, draws the recording once, writes a PNG, and closes.
///
/// # Errors
/// One sentence when the view is unknown, the recording cannot be opened, there is no display, or the file cannot be written.
pub fn screenshot(shot: Screenshot) -> Result<(), String> {
    if let Some(sentence) = unknown_view(&shot.view) {
        return Err(sentence);
    }
    let (sender, receiver) = channel();
    let mut options = native_options([shot.size.0 as f32, shot.size.1 as f32]);
    options.persist_window = false;
    options.viewport = options.viewport.with_min_inner_size([64.0, 64.0]).with_decorations(false);
    // A folder that nobody else knows, gone afterwards: a picture must not depend on what the user did before.
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder can be made: {e}"))?;
    options.persistence_path = Some(folder.path().join("settings"));
    start(options, move |cc| {
        let mut settings = Settings::default();
        settings.theme =
            if shot.dark { crate::app::settings::ThemeChoice::Dark } else { crate::app::settings::ThemeChoice::Light };
        cc.egui_ctx.set_pixels_per_point(1.0);
        let mut app = App::new(&cc.egui_ctx, settings, Jobs::new(cc.egui_ctx.clone()));
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

/// The app, watched until it has nothing left to compute, then photographed.
struct Photographer {
    app: App,
    /// Why there is nothing to draw.
    failure: Option<String>,
    shot: Screenshot,
    /// Frames drawn since everything was computed.
    calm_frames: u32,
    is_placed: bool,
    is_asked: bool,
    patience: Patience,
    done: std::sync::mpsc::Sender<Result<(), String>>,
    taken: Option<Receiver<std::sync::Arc<egui::ColorImage>>>,
}

impl Photographer {
    fn finish(&mut self, ctx: &Context, result: Result<(), String>) {
        let _ = self.done.send(result);
        ctx.send_viewport_cmd(ViewportCommand::Close);
    }
}

/// Puts device, workspace and cursor where a picture wants them; true when that is done, which `is_placed` remembers.
///
/// # Errors
/// One sentence when the recording has no such device or event.
pub(super) fn place(app: &mut App, shot: &Screenshot, is_placed: &mut bool) -> Result<bool, String> {
    if *is_placed {
        return Ok(true);
    }
    if shot.view == "probe" || shot.view.starts_with("probe:") {
        *is_placed = app.place_probe(shot);
        return Ok(*is_placed);
    }
    let Some(document) = app.active_document() else {
        // A text with an out-of-memory error leaves no tab: the dialog that explains it is the picture.
        *is_placed = shot.file.is_none() || app.explains().transpose()?.is_some();
        return Ok(*is_placed);
    };
    // A watch that has just begun has nothing to show yet.
    if document.feed.is_some()
        && let Some(track) = document.view().and_then(|v| v.data.device().live.as_deref())
        && track.trouble.is_none()
        && document.view().is_some_and(|v| v.data.device().samples.len() < WATCHED_SAMPLES)
    {
        return Ok(false);
    }
    if let (Some(view), Some(number)) = (document.view(), shot.device) {
        let device = view.data.recording.device_numbered(number)?;
        if view.data.index != device {
            app.actions.send(crate::app::state::action::Action::SetDevice(device));
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
    if let Some(workspace) = crate::app::state::workspace::Workspace::ALL.iter().find(|w| w.name() == shot.view) {
        app.actions.run(Command::Workspace(*workspace));
    }
    if let Some(event) = shot.event {
        app.actions.send(crate::app::state::action::Action::GoTo(event));
    }
    *is_placed = true;
    Ok(true)
}

/// How long a picture may stand still, unfinished, before it is given up.
const STUCK: Duration = Duration::from_secs(120);

/// Notices when nothing moves any more: what never comes to an end must not keep a script waiting.
#[derive(Debug)]
pub(super) struct Patience {
    seen: Option<u64>,
    since: Instant,
    limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { seen: None, since: Instant::now(), limit: STUCK }
    }
}

impl Patience {
    /// Looks how far the app is.
    ///
    /// # Errors
    /// One sentence when that has not changed for two minutes.
    pub(super) fn check(&mut self, app: &App, view: &str) -> Result<(), String> {
        self.look(app.pace(), view)
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

impl eframe::App for Photographer {
    /// A pointer that happens to rest over the window must not show in the picture.
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
                let result = save_png(&image, &self.shot.out);
                self.finish(ctx, result);
            }
            ctx.request_repaint();
            return;
        }
        if let Some(sentence) = self.failure.take() {
            self.finish(ctx, Err(sentence));
            return;
        }
        // A tab that cannot be read may still make room for one that was opened beside it.
        if let (true, Some(Content::Failed(sentence))) = (self.app.is_idle(), self.app.active_document().map(|d| &d.content)) {
            let sentence = sentence.clone();
            self.finish(ctx, Err(sentence));
            return;
        }
        let is_ready = if self.app.is_idle() { place(&mut self.app, &self.shot, &mut self.is_placed) } else { Ok(false) };
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
        // Counted here, not in `logic`: a covered window runs its logic without being drawn.
        self.calm_frames += 1;
        // Views start their computations while drawing, so a few quiet frames in a row mean that nothing is left.
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

/// Writes a picture; an older one of that name goes, once this one is complete.
pub(super) fn save_png(image: &egui::ColorImage, out: &std::path::Path) -> Result<(), String> {
    let [width, height] = image.size;
    let pixels: Vec<u8> = image.pixels.iter().flat_map(|p| [p.r(), p.g(), p.b()]).collect();
    let mut file = NewFile::create(out, &[], true)?;
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder.write_image(&pixels, width as u32, height as u32, image::ExtendedColorType::Rgb8).map_err(|e| match e {
        image::ImageError::IoError(e) => not_written(out, &e),
        other => format!("cannot write {}: {other}", out.display()),
    })?;
    file.finish()
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
