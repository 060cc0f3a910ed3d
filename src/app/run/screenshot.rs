//! Draws one picture of a recording without user interaction and without a display.

use std::path::{Path, PathBuf};

use egui::{Context, vec2};

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

#[derive(Clone, Debug)]
pub struct Screenshot {
    /// The recording; `None` for the welcome page.
    pub file: Option<PathBuf>,
    /// Other files of the same run, opened together with it.
    pub with: Vec<PathBuf>,
    /// The name of a view, or of a workspace (such as `overview`) for the whole window.
    pub view: String,
    pub size: (u32, u32),
    pub dark: bool,
    /// The cursor's event. By default the cursor is where the view opens.
    pub event: Option<u32>,
    /// The device by the index that the process used; `None` for the busiest.
    pub device: Option<i32>,
    pub is_svg: bool,
    /// Leaves out paths of the machine that made the recording.
    pub redact: bool,
    pub out: PathBuf,
}

/// Draws a recording's view or workspace into a file, without a display or a graphics driver. Returns a sentence when the picture
/// is incomplete. Fails when the view is unknown, the recording cannot be opened, a view stops, or the file cannot be written.
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
    if let Some(sentence) = unknown_view(&shot.view) {
        return Err(sentence);
    }
    // The welcome page has no recording.
    let welcome = Screenshot { file: None, with: Vec::new(), ..shot.clone() };
    let shot = if shot.view == "welcome" { &welcome } else { shot };
    let ctx = Context::default();
    let jobs = Jobs::new(ctx.clone());
    let mut app = App::new(&ctx, settings(shot.dark), jobs.clone());
    app.only = ViewKind::from_name(&shot.view);
    app.pictures.hold_notices_back();
    open_subject(&mut app, shot)?;
    if shot.file.is_none() && shot.view == "live" {
        app.watch_machine(&ctx);
    }
    let mut is_placed = false;
    let size = vec2(shot.size.0 as f32, shot.size.1 as f32);
    let mut patience = Patience::default();
    let still = draw(&ctx, &mut app, size, |app| {
        patience.check(app, &shot.view)?;
        // Another tab opened with it may still replace a tab that failed.
        if let (true, Some(Content::Failed(sentence))) = (app.is_idle(), app.active_document().map(|d| &d.content)) {
            return Err(sentence.clone());
        }
        let is_over = patience.is_over(app, &shot.view);
        if app.is_idle() || is_over { place(app, shot, &mut is_placed) } else { Ok(false) }
    })?;
    if shot.is_svg { write(&shot.out, &still.svg()) } else { save_png(&still.pixels(&ctx), &shot.out) }?;
    if let Some(said) = jobs.first_panic() {
        let out = shot.out.display();
        return Err(format!("{out}: a view stopped, so the picture is not whole; please report this with the file: {said}"));
    }
    Ok((!app.is_idle()).then(|| UNFINISHED.to_owned()))
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
        let pixels = Screenshot { is_svg: false, out: folder.path().join("x.png"), ..shot.clone() };
        draw_picture(&pixels).unwrap();
        let image = image::open(&pixels.out).unwrap().to_rgb8();
        assert_eq!(image.dimensions(), (1000, 640));
        let mut colours: Vec<[u8; 3]> = image.pixels().map(|p| p.0).collect();
        colours.sort_unstable();
        colours.dedup();
        assert!(colours.len() > 200, "bands, text and its soft edges: {} colours", colours.len());
        // Wider than what a graphics driver may take as one texture.
        let wide = Screenshot { size: (3000, 640), view: "timeline".to_owned(), ..shot.clone() };
        assert_eq!(draw_picture(&wide), Ok(None));
        assert!(!std::fs::read_to_string(&wide.out).unwrap().contains("This view stopped"));
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
