//! What is drawn, held against the pictures in `tests/snapshots`.
//!
//! A view whose code asks for the theme has a picture in both (Flame, Heatmap, What-if). The others take their colours from the tokens,
//! which the gallery shows in both themes, so each of their pictures is in one. `tests/architecture.rs` bounds the bytes of all.

use egui::{Color32, Context, FullOutput, TexturesDelta};
use egui_kittest::{Harness, HarnessBuilder, SnapshotResults, TestRenderer};
use image::RgbaImage;
use vramscope::app::picture::raster::{Textures, paint};

/// Draws as `vramscope screenshot` does, the same on every machine.
#[derive(Default)]
struct Renderer(Textures);

impl TestRenderer for Renderer {
    fn handle_delta(&mut self, delta: &mut TexturesDelta) {
        self.0.update(delta);
    }

    fn render(&mut self, ctx: &Context, output: &FullOutput) -> Result<RgbaImage, String> {
        let scale = ctx.pixels_per_point();
        let size = (ctx.content_rect().size() * scale).round();
        let primitives = ctx.tessellate(output.shapes.clone(), scale);
        let image = paint(&primitives, &self.0, [size.x as usize, size.y as usize], scale, Color32::TRANSPARENT);
        let bytes = image.pixels.iter().flat_map(|p| p.to_array()).collect();
        RgbaImage::from_raw(size.x as u32, size.y as u32, bytes).ok_or_else(|| "the picture has another size".to_owned())
    }
}

/// A harness whose pictures the program draws itself.
pub fn builder<State>() -> HarnessBuilder<State> {
    Harness::builder().renderer(Renderer::default())
}

/// The pictures of one test, which fails at its end with each of them that differs.
pub struct Pictures(SnapshotResults);

impl Pictures {
    pub fn new() -> Self {
        Self(SnapshotResults::new())
    }

    /// Holds a window as it is now against the picture of this name.
    pub fn compare<S>(&mut self, name: &str, mut h: Harness<'_, S>) {
        h.snapshot(name);
        self.0.extend_harness(&mut h);
    }
}
