//! Draws triangles as pixels without a graphics driver, for pictures made by scripts and tests.
//!
//! Follows egui's GPU renderers: premultiplied colours, blending of the stored (gamma) values, no multisampling because egui
//! antialiases edges itself. A triangle covers the pixels whose centres are inside; on a shared edge, only the triangle below or
//! right of it.

use std::collections::HashMap;
use std::sync::Arc;

use egui::epaint::{ClippedPrimitive, Mesh, Primitive, Vertex};
use egui::{Color32, ColorImage, Rect, TextureFilter, TextureId, TextureOptions, TexturesDelta};

/// egui's textures, as a window's renderer keeps them. Every wrap mode is treated as clamping.
#[derive(Default)]
pub struct Textures {
    held: HashMap<TextureId, (Arc<ColorImage>, TextureOptions)>,
    /// Freed once the last frame was painted.
    freed: Vec<TextureId>,
}

impl Textures {
    /// Applies the texture changes of a frame.
    pub fn update(&mut self, changes: &mut TexturesDelta) {
        for id in self.freed.drain(..) {
            self.held.remove(&id);
        }
        for (id, deltas) in changes.set.drain() {
            for delta in deltas {
                let egui::ImageData::Color(part) = delta.image;
                let Some([left, top]) = delta.pos else {
                    self.held.insert(id, (part, delta.options));
                    continue;
                };
                let Some((whole, _)) = self.held.get_mut(&id) else { continue };
                let whole = Arc::make_mut(whole);
                for (y, row) in part.pixels.chunks_exact(part.width().max(1)).enumerate() {
                    let start = (top + y) * whole.width() + left;
                    if let Some(target) = whole.pixels.get_mut(start..start + row.len()) {
                        target.copy_from_slice(row);
                    }
                }
            }
        }
        self.freed.extend(changes.free.drain());
    }

    pub fn image(&self, id: TextureId) -> Option<&ColorImage> {
        self.held.get(&id).map(|(image, _)| image.as_ref())
    }
}

/// Draws the triangles of a frame over a colour. `scale` is pixels per point.
///
/// Costs a few nanoseconds per pixel of a plain colour, and ten times that for textures and gradients.
pub fn paint(
    primitives: &[ClippedPrimitive],
    textures: &Textures,
    size: [usize; 2],
    scale: f32,
    background: Color32,
) -> ColorImage {
    let mut image = ColorImage::filled(size, background);
    for ClippedPrimitive { clip_rect, primitive } in primitives {
        let Primitive::Mesh(mesh) = primitive else { continue };
        let Some((texture, options)) = textures.held.get(&mesh.texture_id) else { continue };
        let mut target =
            Target { image: &mut image, clip: pixels_of(*clip_rect, scale, size), texture, nearest: is_nearest(*options) };
        target.mesh(mesh, scale);
    }
    image
}

fn is_nearest(options: TextureOptions) -> bool {
    options.magnification == TextureFilter::Nearest
}

/// A clip rectangle in whole pixels: left, top, right, bottom.
fn pixels_of(rect: Rect, scale: f32, [width, height]: [usize; 2]) -> [i64; 4] {
    let pixel = |v: f32, most: usize| ((v * scale).round() as i64).clamp(0, most as i64);
    [pixel(rect.min.x, width), pixel(rect.min.y, height), pixel(rect.max.x, width), pixel(rect.max.y, height)]
}

/// Positions are integers in this fraction of a pixel, so that two triangles agree on the pixels of a shared edge.
const PART: i64 = 256;

/// Beyond any picture, but small enough that the product of two positions fits 64 bits.
const FAR: f32 = 1e6;

type Point = [i64; 2];

fn snap(vertex: &Vertex, scale: f32) -> Point {
    let part = |v: f32| ((v * scale).clamp(-FAR, FAR) * PART as f32).round() as i64;
    [part(vertex.pos.x), part(vertex.pos.y)]
}

/// An edge of a triangle as a linear function that is not negative for pixels inside.
struct Side {
    /// The value at the centre of the first pixel of the picture.
    first: i64,
    /// The change from one pixel to the next.
    right: i64,
    down: i64,
    /// Excludes pixels exactly on the edge, unless it is a top or left edge.
    bias: i64,
}

impl Side {
    fn new([x0, y0]: Point, [x1, y1]: Point) -> Self {
        let (dx, dy) = (x1 - x0, y1 - y0);
        let is_top_left = dy < 0 || (dy == 0 && dx > 0);
        let centre = PART / 2;
        Side {
            first: dx * (centre - y0) - dy * (centre - x0),
            right: -dy * PART,
            down: dx * PART,
            bias: if is_top_left { 0 } else { -1 },
        }
    }

    fn at(&self, x: i64, y: i64) -> i64 {
        self.first + self.right * x + self.down * y
    }

    /// The part of `from..to` in a row that is inside the edge.
    fn cut(&self, y: i64, (from, to): (i64, i64)) -> (i64, i64) {
        let start = self.at(0, y) + self.bias;
        match self.right {
            0 if start < 0 => (from, from),
            0 => (from, to),
            // The first pixel with start + right * x >= 0.
            right if right > 0 => (from.max(-start.div_euclid(right)), to),
            // The last such pixel.
            right => (from, to.min(start.div_euclid(-right) + 1)),
        }
    }
}

/// The values interpolated between corners: red, green, blue, alpha (0 to 255), and the texture position in texels.
type Mixed = [f32; 6];

struct Target<'a> {
    image: &'a mut ColorImage,
    clip: [i64; 4],
    texture: &'a ColorImage,
    nearest: bool,
}

impl Target<'_> {
    fn mesh(&mut self, mesh: &Mesh, scale: f32) {
        for corner in mesh.indices.chunks_exact(3) {
            let [Some(a), Some(b), Some(c)] = [0, 1, 2].map(|i| mesh.vertices.get(corner[i] as usize)) else { continue };
            self.triangle([a, b, c], scale);
        }
    }

    fn triangle(&mut self, [a, mut b, mut c]: [&Vertex; 3], scale: f32) {
        let [p, mut q, mut r] = [snap(a, scale), snap(b, scale), snap(c, scale)];
        let mut area = (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]);
        if area == 0 {
            return;
        }
        if area < 0 {
            (b, c, q, r, area) = (c, b, r, q, -area);
        }
        let sides = [Side::new(p, q), Side::new(q, r), Side::new(r, p)];
        let [left, top, right, bottom] = self.clip;
        let (low, high) = (p[1].min(q[1]).min(r[1]), p[1].max(q[1]).max(r[1]));
        let rows = top.max(low.div_euclid(PART))..bottom.min(high.div_euclid(PART) + 1);
        let constant = self.constant([a, b, c]);
        let [start, to_b, to_c] = self.corners([a, b, c]);
        for y in rows {
            let (from, to) = sides.iter().fold((left, right), |span, side| side.cut(y, span));
            if from >= to {
                continue;
            }
            let first = y as usize * self.image.width();
            let row = first + from as usize..first + to as usize;
            if let Some(colour) = constant {
                let pixels = &mut self.image.pixels[row];
                match colour.a() {
                    255 => pixels.fill(colour),
                    _ => pixels.iter_mut().for_each(|pixel| *pixel = over(colour.to_array().map(f32::from), *pixel)),
                }
                continue;
            }
            // The weights of the second and third corner at the first pixel, and their change per pixel to the right.
            let whole = area as f32;
            let share = |side: &Side| (side.at(from, y) as f32 / whole, side.right as f32 / whole);
            let ((of_b, b_step), (of_c, c_step)) = (share(&sides[2]), share(&sides[0]));
            for (i, at) in row.enumerate() {
                let (of_b, of_c) = (of_b + b_step * i as f32, of_c + c_step * i as f32);
                let mixed: Mixed = std::array::from_fn(|k| start[k] + to_b[k] * of_b + to_c[k] * of_c);
                let colour = self.shade(mixed);
                self.image.pixels[at] = over(colour, self.image.pixels[at]);
            }
        }
    }

    /// The colour of a triangle whose corners all have the same colour and texel.
    fn constant(&self, [a, b, c]: [&Vertex; 3]) -> Option<Color32> {
        let is_same = |v: &Vertex| v.color == a.color && v.uv == a.uv;
        (is_same(b) && is_same(c)).then(|| {
            let [r, g, b, a] = self.shade(self.values(a)).map(|v| v.round() as u8);
            Color32::from_rgba_premultiplied(r, g, b, a)
        })
    }

    fn values(&self, vertex: &Vertex) -> Mixed {
        let [r, g, b, a] = vertex.color.to_array().map(f32::from);
        let [width, height] = self.texture.size.map(|n| n as f32);
        [r, g, b, a, vertex.uv.x * width, vertex.uv.y * height]
    }

    /// The values of the first corner, and their differences to the other two.
    fn corners(&self, corners: [&Vertex; 3]) -> [Mixed; 3] {
        let [a, b, c] = corners.map(|v| self.values(v));
        [a, std::array::from_fn(|k| b[k] - a[k]), std::array::from_fn(|k| c[k] - a[k])]
    }

    /// An interpolated colour times the texture, 0 to 255.
    fn shade(&self, [r, g, b, a, u, v]: Mixed) -> [f32; 4] {
        let texel = if self.nearest { self.texel(u.floor() as i64, v.floor() as i64) } else { self.smooth(u - 0.5, v - 0.5) };
        std::array::from_fn(|k| [r, g, b, a][k] * texel[k] / 255.0)
    }

    /// Bilinear interpolation of the four texels around a position.
    fn smooth(&self, u: f32, v: f32) -> [f32; 4] {
        let (x, y) = (u.floor(), v.floor());
        let (right, down) = (u - x, v - y);
        let (x, y) = (x as i64, y as i64);
        let mix = |a: [f32; 4], b: [f32; 4], t: f32| -> [f32; 4] { std::array::from_fn(|k| a[k] + (b[k] - a[k]) * t) };
        let upper = mix(self.texel(x, y), self.texel(x + 1, y), right);
        let lower = mix(self.texel(x, y + 1), self.texel(x + 1, y + 1), right);
        mix(upper, lower, down)
    }

    fn texel(&self, x: i64, y: i64) -> [f32; 4] {
        let [width, height] = self.texture.size;
        let at = |v: i64, size: usize| v.clamp(0, size.saturating_sub(1) as i64) as usize;
        let pixel = self.texture.pixels.get(at(y, height) * width + at(x, width)).copied().unwrap_or_default();
        pixel.to_array().map(f32::from)
    }
}

/// A premultiplied colour over another.
fn over(colour: [f32; 4], under: Color32) -> Color32 {
    let rest = 1.0 - colour[3] / 255.0;
    let under = under.to_array();
    let [r, g, b, a] = std::array::from_fn(|k| (colour[k] + f32::from(under[k]) * rest).round() as u8);
    Color32::from_rgba_premultiplied(r, g, b, a)
}

#[cfg(test)]
mod tests {
    use egui::{Pos2, pos2};

    use super::*;

    const SIZE: [usize; 2] = [16, 16];

    fn white() -> Textures {
        let mut textures = Textures::default();
        let white = ColorImage::filled([1, 1], Color32::WHITE);
        textures.held.insert(TextureId::default(), (Arc::new(white), TextureOptions::LINEAR));
        textures
    }

    fn drawn(meshes: Vec<Mesh>) -> ColorImage {
        let clip_rect = Rect::from_min_max(Pos2::ZERO, pos2(16.0, 16.0));
        let primitives: Vec<_> =
            meshes.into_iter().map(|mesh| ClippedPrimitive { clip_rect, primitive: Primitive::Mesh(mesh) }).collect();
        paint(&primitives, &white(), SIZE, 1.0, Color32::BLACK)
    }

    fn triangle(corners: [(Pos2, Color32); 3]) -> Mesh {
        let mut mesh = Mesh::default();
        corners.iter().for_each(|(pos, color)| mesh.colored_vertex(*pos, *color));
        mesh.add_triangle(0, 1, 2);
        mesh
    }

    /// Half-transparent triangles around a point cover each pixel exactly once, whatever their orientation.
    #[test]
    fn shared_edges_are_drawn_once() {
        let half = Color32::from_rgba_premultiplied(100, 0, 0, 100);
        let around = [pos2(0.0, 0.0), pos2(16.0, 0.0), pos2(16.0, 16.0), pos2(0.0, 16.0)];
        for centre in [pos2(8.0, 8.0), pos2(8.5, 7.5), pos2(3.3, 11.7)] {
            let meshes = (0..4)
                .map(|i| {
                    let (a, b) = (around[i], around[(i + 1) % 4]);
                    if i % 2 == 0 { [a, b, centre] } else { [b, a, centre] }
                })
                .map(|corners| triangle(corners.map(|p| (p, half))))
                .collect();
            let image = drawn(meshes);
            assert!(image.pixels.iter().all(|&p| p == Color32::from_rgb(100, 0, 0)), "{centre:?}");
        }
    }

    #[test]
    fn a_pixel_belongs_to_the_shape_over_its_centre() {
        let mut mesh = Mesh::default();
        mesh.add_colored_rect(Rect::from_min_max(pos2(1.6, 2.4), pos2(4.4, 5.6)), Color32::RED);
        let image = drawn(vec![mesh]);
        let inside = |x: usize, y: usize| (2..4).contains(&x) && (2..6).contains(&y);
        for (i, &pixel) in image.pixels.iter().enumerate() {
            assert_eq!(pixel == Color32::RED, inside(i % 16, i / 16), "{} {}", i % 16, i / 16);
        }
    }

    #[test]
    fn colours_are_mixed_between_the_corners() {
        let mesh =
            triangle([(pos2(0.0, 0.0), Color32::BLACK), (pos2(16.0, 0.0), Color32::WHITE), (pos2(0.0, 16.0), Color32::BLACK)]);
        let image = drawn(vec![mesh]);
        for x in 0..15 {
            let expected = (x as f32 + 0.5) / 16.0 * 255.0;
            assert!((f32::from(image.pixels[x].r()) - expected).abs() <= 1.0, "{x}");
        }
    }

    #[test]
    fn textures_are_sampled_and_their_parts_replaced() {
        let mut textures = Textures::default();
        let mut change = TexturesDelta::default();
        let id = TextureId::Managed(7);
        let image = ColorImage::filled([2, 2], Color32::BLUE);
        change.push(id, egui::epaint::ImageDelta::full(image, TextureOptions::NEAREST));
        let part = ColorImage::filled([1, 1], Color32::GREEN);
        change.push(id, egui::epaint::ImageDelta::partial([1, 0], part, TextureOptions::NEAREST));
        textures.update(&mut change);
        let mut mesh = Mesh::with_texture(id);
        let whole = Rect::from_min_max(Pos2::ZERO, pos2(16.0, 16.0));
        mesh.add_rect_with_uv(whole, Rect::from_min_max(Pos2::ZERO, pos2(1.0, 1.0)), Color32::WHITE);
        let primitive = ClippedPrimitive { clip_rect: whole, primitive: Primitive::Mesh(mesh) };
        let image = paint(&[primitive], &textures, SIZE, 1.0, Color32::BLACK);
        assert_eq!([image.pixels[7], image.pixels[8], image.pixels[8 * 16 + 8]], [Color32::BLUE, Color32::GREEN, Color32::BLUE]);
    }

    #[test]
    fn positions_without_sense_do_no_harm() {
        for odd in [f32::NAN, f32::INFINITY, -1e30] {
            let corners = [pos2(odd, odd), pos2(odd, -odd), pos2(-odd, odd)];
            drawn(vec![triangle(corners.map(|p| (p, Color32::RED)))]);
        }
    }
}
