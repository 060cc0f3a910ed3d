//! Pictures for papers and reports: a view or the window as SVG or PNG, drawn without a display, or a picture of the user's
//! window.

pub mod raster;
pub(in crate::app) mod svg;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use egui::{ColorImage, Rect};
use image::ImageEncoder as _;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};

use crate::app::documents::document::Document;
use crate::app::state::ViewKind;
use vramscope_core::formats::export::WriteError;
use vramscope_core::formats::export::new_file::NewFile;

pub(in crate::app) fn write(out: &Path, text: &str) -> Result<(), String> {
    let mut file = NewFile::create(out, &[], true).map_err(|e| e.to_string())?;
    file.write_all(text.as_bytes()).map_err(|e| WriteError::io(out, e).to_string())?;
    file.finish().map_err(|e| e.to_string())
}

pub(super) struct Wanted {
    /// The file to write, `.png` or `.svg`.
    pub path: PathBuf,
    /// The pane to cut out and its view; `None` for the whole window.
    pub part: Option<(ViewKind, Rect)>,
}

/// Pictures that are being chosen, taken or written.
#[derive(Default)]
pub(super) struct Pictures {
    /// The pane to picture, while the user chooses a path.
    pub part: Option<(ViewKind, Rect)>,
    pub wanted: Option<Wanted>,
    /// The app only draws a picture, without a window.
    is_picture: bool,
    /// When the renderer was last asked for a picture, and whether it answered.
    pub asked: Option<(Instant, Arc<AtomicBool>)>,
    pub answers: Vec<(PathBuf, Receiver<Result<(), String>>)>,
}

impl Pictures {
    /// Suppresses all notices, because the app only draws a picture.
    pub fn hold_notices_back(&mut self) {
        self.is_picture = true;
    }

    /// True while the renderer takes a picture, for a frame or two. Notices over the window are not drawn meanwhile. If the
    /// renderer does not answer, this ends after a second.
    pub fn is_taking(&self) -> bool {
        self.is_picture
            || self
                .asked
                .as_ref()
                .is_some_and(|(since, taken)| !taken.load(Ordering::Acquire) && since.elapsed() < Duration::from_secs(1))
    }
}

/// The part of a picture under a rectangle in points, clipped because the window may have shrunk.
pub(in crate::app) fn cut(image: &ColorImage, rect: Rect, scale: f32) -> ColorImage {
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

/// A file name for a picture: the document's title without endings.
pub(super) fn suggested_name(document: Option<&Document>, part: Option<ViewKind>) -> String {
    let title = document.map_or("vramscope", |d| d.title.split('.').next().unwrap_or("vramscope"));
    match part {
        Some(kind) => format!("{title}_{}.png", kind.name()),
        None => format!("{title}.png"),
    }
}

/// Writes a PNG. An older file of that name is replaced once the new one is complete.
pub(in crate::app) fn save_png(image: &egui::ColorImage, out: &std::path::Path) -> Result<(), String> {
    let [width, height] = image.size;
    let pixels: Vec<u8> = image.pixels.iter().flat_map(|p| [p.r(), p.g(), p.b()]).collect();
    let mut file = NewFile::create(out, &[], true).map_err(|e| e.to_string())?;
    let encoder = PngEncoder::new_with_quality(&mut file, CompressionType::Default, FilterType::Adaptive);
    encoder.write_image(&pixels, width as u32, height as u32, image::ExtendedColorType::Rgb8).map_err(|e| match e {
        image::ImageError::IoError(e) => WriteError::io(out, e).to_string(),
        other => format!("cannot write {}: {other}", out.display()),
    })?;
    file.finish().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pane_is_cut_out_and_never_beyond_the_picture() {
        let image = ColorImage::filled([40, 20], egui::Color32::RED);
        let part = Rect::from_min_max(egui::pos2(5.0, 5.0), egui::pos2(15.0, 100.0));
        assert_eq!(cut(&image, part, 2.0).size, [20, 10]);
        assert_eq!(cut(&image, Rect::from_min_max(egui::pos2(50.0, 0.0), egui::pos2(60.0, 9.0)), 1.0).size, [40, 20]);
    }
}
