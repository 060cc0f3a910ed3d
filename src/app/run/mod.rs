//! Starting the window.

mod screenshot;

use std::path::PathBuf;

use crate::app::jobs::Jobs;
use crate::app::live::is_standard_input;
use crate::app::settings::Settings;
use crate::app::settings::merging::Kept;
use crate::app::state::Action;
use crate::app::window::App;

pub use screenshot::{Screenshot, draw_picture, unknown_view};

#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub files: Vec<PathBuf>,
    pub watch: Option<PathBuf>,
}

const NO_DISPLAY: &str = "there is no display: neither WAYLAND_DISPLAY nor DISPLAY is set";

/// What works without a display.
const WITHOUT: &str = "Over ssh connect with ssh -X. Or take what needs no display: vramscope summary FILE (text), vramscope report FILE -o OUT.html \
(a page), vramscope screenshot FILE OUT.png (a picture), or another command (vramscope --help)";

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

/// True when the library that OpenGL needs under Wayland is installed. Checked first, because winit panics without it.
#[cfg(unix)]
fn has_wayland_egl() -> bool {
    [c"libwayland-egl.so.1", c"libwayland-egl.so"].iter().any(|name| {
        // SAFETY: the name is NUL-terminated, and loading this library runs no code that could break an invariant here.
        let library = unsafe { libc::dlopen(std::ptr::from_ref::<std::ffi::CStr>(name).cast(), libc::RTLD_LAZY) };
        !library.is_null()
    })
}

#[cfg(not(unix))]
fn has_wayland_egl() -> bool {
    true
}

/// An error when no compositor answers on the socket in WAYLAND_DISPLAY. Checked first, because winit's own error would name a
/// line of winit's source.
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

/// The same for X11: a sentence when DISPLAY names a local server, as `:0`, whose socket is missing.
#[cfg(unix)]
fn no_x_server() -> Option<String> {
    let shown = std::env::var("DISPLAY").ok().filter(|_| !is_wayland())?;
    let number = shown.strip_prefix(':')?.split('.').next().filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))?;
    let error = std::os::unix::net::UnixStream::connect(format!("/tmp/.X11-unix/X{number}")).err()?;
    // A server without a socket file may have an abstract socket.
    let is_gone = matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused);
    (is_gone && !has_abstract_socket(number))
        .then(|| format!("there is no display: DISPLAY is {shown}, but no X server answers there. {WITHOUT}"))
}

#[cfg(unix)]
fn has_abstract_socket(number: &str) -> bool {
    let name = format!("@/tmp/.X11-unix/X{number}");
    std::fs::read_to_string("/proc/net/unix").is_ok_and(|sockets| sockets.lines().any(|line| line.ends_with(&name)))
}

#[cfg(not(unix))]
fn no_compositor() -> Option<String> {
    None
}

#[cfg(not(unix))]
fn no_x_server() -> Option<String> {
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
    if let Ok(icon) = eframe::icon_data::from_png_bytes(include_bytes!("../../../assets/icon.png")) {
        viewport = viewport.with_icon(icon);
    }
    eframe::NativeOptions { viewport, renderer: eframe::Renderer::Glow, persist_window: true, ..Default::default() }
}

/// Tries each compiled renderer until one starts.
fn start(
    mut options: eframe::NativeOptions,
    make: impl Fn(&eframe::CreationContext<'_>) -> Box<dyn eframe::App> + Clone + 'static,
) -> Result<(), String> {
    if !has_display() {
        return Err(format!("{NO_DISPLAY}. {WITHOUT}"));
    }
    if is_wayland() && !has_wayland_egl() {
        return Err(NO_WAYLAND_EGL.to_owned());
    }
    if let Some(error) = no_compositor().or_else(no_x_server) {
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
            Err(eframe::Error::WinitEventLoop(_)) => {
                let name = if is_wayland() { "WAYLAND_DISPLAY" } else { "DISPLAY" };
                let shown = std::env::var(name).unwrap_or_default();
                return Err(format!("there is no display: {name} is {shown}, which can not be reached. {WITHOUT}"));
            }
            Err(error) => failures.push(format!("{renderer}: {error}")),
        }
    }
    Err(format!(
        "the window cannot be opened ({}). vramscope needs OpenGL 2.1; over ssh try LIBGL_ALWAYS_SOFTWARE=1, or use the text commands (vramscope --help)",
        failures.join("; ")
    ))
}

/// `NativeOptions` is not `Clone` because its hooks are not. These options have no hooks.
fn clone_options(options: &eframe::NativeOptions) -> eframe::NativeOptions {
    eframe::NativeOptions {
        viewport: options.viewport.clone(),
        renderer: options.renderer,
        persist_window: options.persist_window,
        persistence_path: options.persistence_path.clone(),
        ..Default::default()
    }
}

/// Opens the window and returns when it is closed. Fails when there is no display or no renderer starts.
pub fn run(options: RunOptions) -> Result<(), String> {
    start(native_options([1600.0, 1000.0]), move |cc| {
        let mut settings = cc.storage.and_then(|s| eframe::get_value::<Settings>(s, eframe::APP_KEY)).unwrap_or_default();
        settings.read_rules();
        let mut app = App::new(&cc.egui_ctx, settings, Jobs::new(cc.egui_ctx.clone()));
        app.kept = Kept::by_eframe(app.settings.clone());
        app.copying.is_real = true;
        let (streams, files): (Vec<_>, Vec<_>) = options.files.iter().cloned().partition(|f| is_standard_input(f));
        if !streams.is_empty() {
            app.watch_standard_input(&cc.egui_ctx);
        }
        if options.files.is_empty() && options.watch.is_none() {
            app.begin_bare();
        }
        app.offer_left_watches();
        app.open_paths(files);
        if let Some(folder) = &options.watch {
            app.actions.send(Action::WatchFolder(Some(folder.clone())));
        }
        Box::new(app)
    })
}
