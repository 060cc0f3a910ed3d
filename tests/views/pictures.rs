//! Compares drawings with the pictures in `tests/snapshots`.
//!
//! Views whose code depends on the theme have a picture in both themes (Flame, Heatmap, What-if). All others take their colours
//! from the tokens, which the gallery shows in both themes, and have a picture in one theme. `tests/architecture.rs` limits the
//! total size.

use egui::{Color32, Context, FullOutput, TexturesDelta};
use egui_kittest::{Harness, HarnessBuilder, SnapshotResults, TestRenderer};
use image::RgbaImage;
use vramscope::app::picture::raster::{Textures, paint};

/// Draws like `vramscope screenshot`, with equal results on every machine.
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

pub fn builder<State>() -> HarnessBuilder<State> {
    Harness::builder().renderer(Renderer::default())
}

/// The pictures of one test, which fails at its end for each picture that differs.
pub struct Pictures(SnapshotResults);

impl Pictures {
    pub fn new() -> Self {
        Self(SnapshotResults::new())
    }

    /// Compares the window as it is now with the picture of this name.
    pub fn compare<S>(&mut self, name: &str, mut h: Harness<'_, S>) {
        h.snapshot(name);
        self.0.extend_harness(&mut h);
    }
}
