//! Pictures made of pixels (strata, occupancy). The texture is uploaded only when it changed and is drawn without smoothing.

use egui::{Color32, ColorImage, Context, Painter, Rect, TextureHandle, TextureOptions, pos2};

/// The largest side that a texture may have on all supported renderers.
pub const LARGEST_SIDE: usize = 8192;

/// A texture and the key of its contents.
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

    pub fn shows(&self, key: u64) -> bool {
        self.key == Some(key) && self.handle.is_some()
    }

    /// Uploads `pixels` (row by row, `size[0]` per row) unless the texture already shows `key`; only then is `pixels` called. A
    /// result that is not `size[0] * size[1]` long is padded with transparent pixels or cut. A side over [`LARGEST_SIDE`] is
    /// refused and leaves the texture empty.
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

    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Paints it over `rect`, snapped to physical pixels. Paints nothing before the first upload.
    pub fn paint(&self, painter: &Painter, rect: Rect) {
        self.paint_tinted(painter, rect, Color32::WHITE);
    }

    /// Paints it multiplied by `tint`, to dim it while newer pixels are computed.
    pub fn paint_tinted(&self, painter: &Painter, rect: Rect, tint: Color32) {
        if let Some(handle) = &self.handle {
            let ppp = painter.pixels_per_point();
            let snap = |v: f32| (v * ppp).round() / ppp;
            let rect =
                Rect::from_min_max(pos2(snap(rect.left()), snap(rect.top())), pos2(snap(rect.right()), snap(rect.bottom())));
            painter.image(handle.id(), rect, Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0)), tint);
        }
    }

    /// The number of physical pixels that a rectangle covers, which is the size to make the picture in.
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
