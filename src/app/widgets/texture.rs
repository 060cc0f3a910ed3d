//! Pictures made of pixels (strata, occupancy). The texture is uploaded only when it changed and is drawn without smoothing.

use std::any::Any;
use std::sync::Arc;

use egui::{Color32, ColorImage, Context, Painter, Rect, TextureHandle, TextureOptions, pos2};

use crate::app::jobs::identity::Identity;

/// The largest side that a texture may have on all supported renderers.
pub const LARGEST_SIDE: usize = 8192;

/// A texture, and which picture it holds.
#[derive(Clone, Default)]
pub struct PixelTexture {
    handle: Option<TextureHandle>,
    shown: Option<Identity>,
}

impl PixelTexture {
    /// Uploads the pixels of `picture` (row by row, `size[0]` per row) unless the texture holds them; only then is `pixels` called.
    /// Pixels that are not `size[0] * size[1]` are padded with transparent ones or cut. A side over [`LARGEST_SIDE`] is refused and
    /// leaves the texture empty.
    pub fn update<T: Any + Send + Sync>(
        &mut self,
        ctx: &Context,
        name: &str,
        picture: &Arc<T>,
        size: [usize; 2],
        pixels: impl FnOnce(&T) -> Vec<Color32>,
    ) {
        let wanted = Identity::of(picture);
        if self.shown.replace(wanted.clone()) == Some(wanted) {
            return;
        }
        if size[0] == 0 || size[1] == 0 || size[0] > LARGEST_SIDE || size[1] > LARGEST_SIDE {
            self.handle = None;
            return;
        }
        let mut pixels = pixels(picture);
        pixels.resize(size[0] * size[1], Color32::TRANSPARENT);
        let image = ColorImage::new(size, pixels);
        match &mut self.handle {
            Some(handle) => handle.set(image, TextureOptions::NEAREST),
            none => *none = Some(ctx.load_texture(name, image, TextureOptions::NEAREST)),
        }
    }

    /// Paints it over `rect`, snapped to physical pixels. Paints nothing before the first upload.
    pub fn paint(&self, painter: &Painter, rect: Rect) {
        if let Some(handle) = &self.handle {
            let ppp = painter.pixels_per_point();
            let snap = |v: f32| (v * ppp).round() / ppp;
            let rect =
                Rect::from_min_max(pos2(snap(rect.left()), snap(rect.top())), pos2(snap(rect.right()), snap(rect.bottom())));
            painter.image(handle.id(), rect, Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0)), Color32::WHITE);
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
    fn pixels_are_made_only_for_another_picture() {
        let ctx = Context::default();
        let mut texture = PixelTexture::default();
        let (first, second) = (Arc::new(1), Arc::new(2));
        let mut made = Vec::new();
        for picture in [&first, &first, &second, &second, &first] {
            texture.update(&ctx, "test", picture, [4, 2], |&number| {
                made.push(number);
                vec![Color32::RED; 3]
            });
        }
        assert_eq!(made, [1, 2, 1]);
        assert_eq!(texture.handle.as_ref().map(TextureHandle::size), Some([4, 2]));
        texture.update(&ctx, "test", &second, [LARGEST_SIDE + 1, 1], |_| panic!("too large to ask for"));
        assert!(texture.handle.is_none());
    }
}
