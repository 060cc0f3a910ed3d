//! Pictures made of pixels (strata, occupancy): a texture that is uploaded only when it changed, drawn without smoothing.

use egui::{Color32, ColorImage, Context, Painter, Rect, TextureHandle, TextureOptions, pos2};

/// The largest side a texture may have on every renderer we ship.
pub const LARGEST_SIDE: usize = 8192;

/// A texture and the key of what it shows.
#[derive(Clone, Default)]
pub struct PixelTexture {
    handle: Option<TextureHandle>,
    key: Option<u64>,
    size: [usize; 2],
}

impl PixelTexture {
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it shows `key` already.
    pub fn shows(&self, key: u64) -> bool {
        self.key == Some(key) && self.handle.is_some()
    }

    /// Uploads `pixels` (row by row, `size[0]` a row) unless it shows `key` already. `pixels` is called only then; what
    /// it gives beside `size[0] * size[1]` pixels is filled up transparent or cut. Sides over [`LARGEST_SIDE`] are refused
    /// and leave the texture empty.
    pub fn update(&mut self, ctx: &Context, name: &str, key: u64, size: [usize; 2], pixels: impl FnOnce() -> Vec<Color32>) {
        if self.shows(key) {
            return;
        }
        self.key = Some(key);
        self.size = size;
        if size[0] == 0 || size[1] == 0 || size[0] > LARGEST_SIDE || size[1] > LARGEST_SIDE {
            self.handle = None;
            return;
        }
        let mut pixels = pixels();
        pixels.resize(size[0] * size[1], Color32::TRANSPARENT);
        let image = ColorImage::new(size, pixels);
        match &mut self.handle {
            Some(handle) => handle.set(image, TextureOptions::NEAREST),
            none => *none = Some(ctx.load_texture(name, image, TextureOptions::NEAREST)),
        }
    }

    /// Its size in pixels.
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Paints it over `rect`, snapped to physical pixels. Nothing when nothing is uploaded.
    pub fn paint(&self, painter: &Painter, rect: Rect) {
        self.paint_tinted(painter, rect, Color32::WHITE);
    }

    /// Paints it multiplied by `tint`: dimmed while newer pixels are made.
    pub fn paint_tinted(&self, painter: &Painter, rect: Rect, tint: Color32) {
        if let Some(handle) = &self.handle {
            let ppp = painter.pixels_per_point();
            let snap = |v: f32| (v * ppp).round() / ppp;
            let rect =
                Rect::from_min_max(pos2(snap(rect.left()), snap(rect.top())), pos2(snap(rect.right()), snap(rect.bottom())));
            painter.image(handle.id(), rect, Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0)), tint);
        }
    }

    /// The number of physical pixels a rectangle covers: the size to make the picture in.
    pub fn size_for(ctx: &Context, rect: Rect) -> [usize; 2] {
        let ppp = ctx.pixels_per_point();
        [(rect.width() * ppp).round().max(0.0) as usize, (rect.height() * ppp).round().max(0.0) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_made_only_when_the_key_changes() {
        let ctx = Context::default();
        let mut texture = PixelTexture::new();
        let mut made = 0;
        for key in [1, 1, 1, 2] {
            texture.update(&ctx, "test", key, [4, 2], || {
                made += 1;
                vec![Color32::RED; 3]
            });
        }
        assert_eq!((made, texture.size(), texture.shows(2), texture.shows(1)), (2, [4, 2], true, false));
        texture.update(&ctx, "test", 3, [LARGEST_SIDE + 1, 1], || panic!("too large to ask for"));
        assert!(!texture.shows(3));
    }
}
