//! egui shapes as SVG: lines, fills and text that scale in a paper or a web page.
//!
//! Text stays text: it is searchable and, when our fonts are missing, is drawn in the reader's fonts at the same width. Images
//! (strata, occupancy) are embedded as PNG with one pixel per cell and scaled without smoothing, as on screen.

use std::fmt::Write as _;

use base64::Engine as _;
use egui::epaint::{BandShape, ColorMode, Mesh, PathShape, RectShape, TextShape};
use egui::{Color32, ColorImage, FontFamily, Pos2, Rect, Shape, Stroke, StrokeKind, TextureId, Vec2, pos2};

use crate::app::picture::raster::Textures;
use crate::app::theme::fonts;
use vramscope_core::units::is_steering;

/// A whole SVG document of shapes and their clip rectangles, in paint order.
///
/// Runs in one pass. A view of 1,600 columns gives some hundred kilobytes.
pub fn document(shapes: &[(Rect, Shape)], size: Vec2, background: Color32, images: &Textures) -> String {
    let mut out = Writer { text: String::new(), images, gradients: 0 };
    let (w, h) = (number(size.x), number(size.y));
    let _ = write!(
        out.text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n<rect width=\"{w}\" height=\"{h}\"{}/>\n",
        fill(background)
    );
    let whole = Rect::from_min_size(Pos2::ZERO, size);
    let mut clips: Vec<Rect> = Vec::new();
    let mut open: Option<usize> = None;
    for (clip, shape) in shapes {
        let clip = clip.intersect(whole);
        if !clip.is_positive() || matches!(shape, Shape::Noop) {
            continue;
        }
        let id = clips.iter().position(|c| *c == clip).unwrap_or_else(|| {
            clips.push(clip);
            let c = rect_attributes(clip);
            let _ = writeln!(out.text_outside(&mut open), "<clipPath id=\"c{}\"><rect{c}/></clipPath>", clips.len() - 1);
            clips.len() - 1
        });
        if open != Some(id) {
            let _ = writeln!(out.text_outside(&mut open), "<g clip-path=\"url(#c{id})\">");
            open = Some(id);
        }
        out.shape(shape);
    }
    out.text_outside(&mut open).push_str("</svg>\n");
    out.text
}

struct Writer<'a> {
    text: String,
    images: &'a Textures,
    /// Number of gradients written, for unique names.
    gradients: usize,
}

impl Writer<'_> {
    /// The output, after closing an open group.
    fn text_outside(&mut self, open: &mut Option<usize>) -> &mut String {
        if open.take().is_some() {
            self.text.push_str("</g>\n");
        }
        &mut self.text
    }

    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Noop | Shape::Callback(_) => {}
            Shape::Vec(shapes) => shapes.iter().for_each(|s| self.shape(s)),
            Shape::Circle(c) => {
                let (x, y, r) = (number(c.center.x), number(c.center.y), number(c.radius));
                let _ = writeln!(self.text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"{}{}/>", fill(c.fill), stroke(c.stroke));
            }
            Shape::Ellipse(e) => {
                let (x, y, a, b) = (number(e.center.x), number(e.center.y), number(e.radius.x), number(e.radius.y));
                let turn = if e.angle == 0.0 {
                    String::new()
                } else {
                    format!(" transform=\"rotate({} {x} {y})\"", number(e.angle.to_degrees()))
                };
                let _ = writeln!(
                    self.text,
                    "<ellipse cx=\"{x}\" cy=\"{y}\" rx=\"{a}\" ry=\"{b}\"{turn}{}{}/>",
                    fill(e.fill),
                    stroke(e.stroke)
                );
            }
            Shape::LineSegment { points: [a, b], stroke: s } => {
                let _ = writeln!(
                    self.text,
                    "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}/>",
                    number(a.x),
                    number(a.y),
                    number(b.x),
                    number(b.y),
                    stroke(*s)
                );
            }
            Shape::Path(path) => self.path(path),
            Shape::Band(band) => self.band(band),
            Shape::Rect(rect) => self.rect(rect),
            Shape::Text(text) => self.galley(text),
            Shape::Mesh(mesh) => self.mesh(mesh),
            Shape::QuadraticBezier(curve) => self.path(&PathShape {
                points: curve.flatten(None),
                closed: curve.closed,
                fill: curve.fill,
                stroke: curve.stroke.clone(),
            }),
            Shape::CubicBezier(curve) => self.path(&PathShape {
                points: curve.flatten(None),
                closed: curve.closed,
                fill: curve.fill,
                stroke: curve.stroke.clone(),
            }),
        }
    }

    fn path(&mut self, path: &PathShape) {
        let colour = match path.stroke.color {
            ColorMode::Solid(colour) => colour,
            // SVG has no colour that depends on the position, and no view uses one.
            ColorMode::UV(_) => Color32::TRANSPARENT,
        };
        let line = stroke(Stroke::new(path.stroke.width, colour));
        self.polygon(&path.points, path.closed, &format!("{}{line}", fill(path.fill)));
    }

    fn polygon(&mut self, points: &[Pos2], closed: bool, attributes: &str) {
        if points.len() < 2 {
            return;
        }
        let name = if closed { "polygon" } else { "polyline" };
        let _ = write!(self.text, "<{name} points=\"");
        for p in points {
            let _ = write!(self.text, "{},{} ", number(p.x), number(p.y));
        }
        let _ = writeln!(self.text, "\"{attributes}/>");
    }

    fn band(&mut self, band: &BandShape) {
        let upper = band.points.iter().map(|p| pos2(p.x, p.y.min));
        let lower = band.points.iter().rev().map(|p| pos2(p.x, p.y.max));
        let points: Vec<Pos2> = upper.chain(lower).collect();
        self.polygon(&points, true, &format!("{}{}", fill(band.fill), stroke(band.stroke)));
    }

    fn rect(&mut self, shape: &RectShape) {
        // SVG centres a stroke on the edge; egui may put it inside or outside.
        let by = match shape.stroke_kind {
            StrokeKind::Inside => -shape.stroke.width / 2.0,
            StrokeKind::Middle => 0.0,
            StrokeKind::Outside => shape.stroke.width / 2.0,
        };
        let rect = if shape.stroke.is_empty() { shape.rect } else { shape.rect.expand(by) };
        if rect.width() < 0.0 || rect.height() < 0.0 || (shape.fill == Color32::TRANSPARENT && shape.stroke.is_empty()) {
            return;
        }
        // Without a blur filter, half the strength comes close to a shadow or glow.
        let paint = if shape.blur_width > 0.0 { shape.fill.gamma_multiply(0.5) } else { shape.fill };
        let corner = shape.corner_radius.average();
        let round = if corner > 0.0 { format!(" rx=\"{}\"", number(corner)) } else { String::new() };
        let _ = writeln!(self.text, "<rect{}{round}{}{}/>", rect_attributes(rect), fill(paint), stroke(shape.stroke));
    }

    /// Each run of glyphs in one row and format becomes one text element with its width on screen, whatever font the reader has.
    fn galley(&mut self, shape: &TextShape) {
        let job = &shape.galley.job;
        let chars: Vec<(usize, char)> = job.text.char_indices().collect();
        let turn = if shape.angle == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({} {} {})\"", number(shape.angle.to_degrees()), number(shape.pos.x), number(shape.pos.y))
        };
        let mut at = 0;
        for row in &shape.galley.rows {
            let glyphs = &row.row.glyphs;
            let section_of = |i: usize| {
                let byte = chars.get(at + i).map_or(job.text.len(), |c| c.0);
                let found = job.sections.iter().position(|s| s.byte_range.contains(&byte.into()));
                found.unwrap_or(job.sections.len().saturating_sub(1))
            };
            let mut from = 0;
            while from < glyphs.len() {
                let section = section_of(from);
                let to = (from + 1..glyphs.len()).find(|&i| section_of(i) != section).unwrap_or(glyphs.len());
                let run = &glyphs[from..to];
                from = to;
                let (Some(format), Some(first), Some(last)) = (job.sections.get(section), run.first(), run.last()) else {
                    continue;
                };
                let words: String = run.iter().map(|g| g.chr).collect();
                if words.trim().is_empty() {
                    continue;
                }
                let inherited = |c: Color32| if c == Color32::PLACEHOLDER { shape.fallback_color } else { c };
                let colour = shape.override_text_color.unwrap_or(inherited(format.format.color));
                let colour = if shape.opacity_factor < 1.0 { colour.gamma_multiply(shape.opacity_factor) } else { colour };
                let origin = shape.pos + row.pos.to_vec2();
                let width = last.pos.x + last.advance_width - first.pos.x;
                let _ = writeln!(
                    self.text,
                    "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{}{}{turn} textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\">{}</text>",
                    number(origin.x + first.pos.x),
                    number(origin.y + first.pos.y),
                    number(format.format.font_id.size),
                    family(&format.format.font_id.family),
                    fill(colour),
                    number(width),
                    escape(&words)
                );
            }
            at += glyphs.len() + usize::from(row.ends_with_newline);
        }
    }

    fn mesh(&mut self, mesh: &Mesh) {
        if let Some(image) = self.images.image(mesh.texture_id).filter(|_| mesh.texture_id != TextureId::default()) {
            self.image(mesh, image);
            return;
        }
        // Adjacent triangles of one colour become one path, so that thousands of columns make one element.
        let mut path = String::new();
        let mut ink = Color32::TRANSPARENT;
        let mut triangles = mesh.indices.chunks_exact(3).peekable();
        while let Some(a) = triangles.next() {
            let corner = |i: u32| mesh.vertices.get(i as usize).map(|v| (v.pos, v.color));
            let (Some(p), Some(q), Some(r)) = (corner(a[0]), corner(a[1]), corner(a[2])) else { continue };
            // A fade, such as at the edge of a list that scrolls on.
            if p.1 != q.1 || q.1 != r.1 {
                self.flush(&mut path, ink);
                let other = triangles.peek().and_then(|b| b.iter().find(|i| !a.contains(i))).and_then(|&i| corner(i));
                let is_whole = other.is_some_and(|s| self.gradient([p, q, r, s]));
                if is_whole {
                    triangles.next();
                }
                ink = Color32::TRANSPARENT;
                // A triangle with three colours that is not a vertical fade cannot be drawn in SVG; no view paints one.
                continue;
            }
            if p.1 != ink {
                self.flush(&mut path, ink);
                ink = p.1;
            }
            // Two triangles that form an upright rectangle, as `add_colored_rect` makes them.
            let fourth = triangles.peek().filter(|b| b[0] == a[2] && b[1] == a[1]).and_then(|b| corner(b[2]));
            if let Some(s) = fourth
                && [p.1, q.1, r.1, s.1].iter().all(|c| *c == ink)
                && p.0.y == q.0.y
                && p.0.x == r.0.x
                && s.0 == pos2(q.0.x, r.0.y)
            {
                triangles.next();
                let (w, h) = (number(s.0.x - p.0.x), number(s.0.y - p.0.y));
                let _ = write!(path, "M{} {}h{w}v{h}H{}z", number(p.0.x), number(p.0.y), number(p.0.x));
            } else {
                let _ = write!(
                    path,
                    "M{} {}L{} {}L{} {}z",
                    number(p.0.x),
                    number(p.0.y),
                    number(q.0.x),
                    number(q.0.y),
                    number(r.0.x),
                    number(r.0.y)
                );
            }
        }
        self.flush(&mut path, ink);
    }

    /// Writes an upright rectangle with a horizontal or vertical gradient. For any other figure it writes nothing and returns
    /// false.
    fn gradient(&mut self, corners: [(Pos2, Color32); 4]) -> bool {
        let rect = Rect::from_points(&corners.map(|c| c.0));
        let at = |place: Pos2| corners.iter().find(|c| c.0 == place).map(|c| c.1);
        let all = [rect.left_top(), rect.right_top(), rect.left_bottom(), rect.right_bottom()].map(at);
        let [Some(a), Some(b), Some(c), Some(d)] = all else { return false };
        let (from, to, end) = match (a == b && c == d, a == c && b == d) {
            (true, _) => (a, c, rect.left_bottom()),
            (_, true) => (a, b, rect.right_top()),
            _ => return false,
        };
        // A transparent egui colour is black, which SVG would blend in, so the stop takes the other end's colour with opacity 0.
        let stop = |colour: Color32, other: Color32| {
            let [r, g, b, _] = if colour.a() == 0 { other } else { colour }.to_srgba_unmultiplied();
            format!("stop-color=\"#{r:02x}{g:02x}{b:02x}\" stop-opacity=\"{}\"", number(f32::from(colour.a()) / 255.0))
        };
        let (id, start) = (self.gradients, rect.left_top());
        self.gradients += 1;
        let _ = writeln!(
            self.text,
            "<linearGradient id=\"f{id}\" gradientUnits=\"userSpaceOnUse\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"><stop {}/><stop \
             offset=\"1\" {}/></linearGradient><rect{} fill=\"url(#f{id})\"/>",
            number(start.x),
            number(start.y),
            number(end.x),
            number(end.y),
            stop(from, to),
            stop(to, from),
            rect_attributes(rect)
        );
        true
    }

    fn flush(&mut self, path: &mut String, ink: Color32) {
        if !path.is_empty() && ink.a() > 0 {
            let _ = writeln!(self.text, "<path d=\"{path}\"{}/>", fill(ink));
        }
        path.clear();
    }

    /// Writes a textured rectangle with the part of the image that its corners name.
    fn image(&mut self, mesh: &Mesh, image: &ColorImage) {
        for corners in mesh.vertices.chunks_exact(4) {
            let place = Rect::from_points(&[corners[0].pos, corners[3].pos]);
            let part = Rect::from_points(&[corners[0].uv, corners[3].uv]);
            let [w, h] = image.size;
            let texels = |share: f32, of: usize| ((share * of as f32).round() as usize).min(of);
            let (x0, x1) = (texels(part.left(), w), texels(part.right(), w));
            let (y0, y1) = (texels(part.top(), h), texels(part.bottom(), h));
            let pixels: Vec<u8> = (y0..y1)
                .flat_map(|y| image.pixels.get(y * w + x0..y * w + x1).unwrap_or(&[]))
                .flat_map(|p| p.to_srgba_unmultiplied())
                .collect();
            let Some(png) = encode(&pixels, x1 - x0, y1 - y0) else { continue };
            let _ = writeln!(
                self.text,
                "<image{} preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{png}\"/>",
                rect_attributes(place)
            );
        }
    }
}

fn encode(pixels: &[u8], width: usize, height: usize) -> Option<String> {
    if width == 0 || height == 0 || pixels.len() != width * height * 4 {
        return None;
    }
    let mut png = std::io::Cursor::new(Vec::new());
    image::write_buffer_with_format(
        &mut png,
        pixels,
        width as u32,
        height as u32,
        image::ColorType::Rgba8,
        image::ImageFormat::Png,
    )
    .ok()?;
    Some(base64::engine::general_purpose::STANDARD.encode(png.into_inner()))
}

/// A coordinate rounded to a hundredth of a point, without trailing zeros.
fn number(v: f32) -> String {
    let text = format!("{:.2}", if v.is_finite() { v } else { 0.0 });
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn rect_attributes(rect: Rect) -> String {
    format!(
        " x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"",
        number(rect.left()),
        number(rect.top()),
        number(rect.width()),
        number(rect.height())
    )
}

fn paint(attribute: &str, colour: Color32) -> String {
    if colour.a() == 0 {
        return format!(" {attribute}=\"none\"");
    }
    let [r, g, b, a] = colour.to_srgba_unmultiplied();
    let opacity = if a == 255 { String::new() } else { format!(" {attribute}-opacity=\"{}\"", number(f32::from(a) / 255.0)) };
    format!(" {attribute}=\"#{r:02x}{g:02x}{b:02x}\"{opacity}")
}

fn fill(colour: Color32) -> String {
    paint("fill", colour)
}

fn stroke(stroke: Stroke) -> String {
    if stroke.is_empty() {
        return String::new();
    }
    format!("{} stroke-width=\"{}\"", paint("stroke", stroke.color), number(stroke.width))
}

fn family(family: &FontFamily) -> String {
    if *family == fonts::mono() {
        return " font-family=\"'JetBrains Mono',ui-monospace,monospace\"".to_owned();
    }
    let weight = if *family == fonts::semibold() {
        " font-weight=\"600\""
    } else if *family == fonts::medium() {
        " font-weight=\"500\""
    } else {
        ""
    };
    format!(" font-family=\"Inter,system-ui,sans-serif\"{weight}")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            // Control characters that XML forbids or that would change how a viewer shows the text.
            c if is_steering(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(shapes: Vec<Shape>) -> String {
        let clip = Rect::from_min_size(Pos2::ZERO, egui::vec2(100.0, 50.0));
        let shapes: Vec<(Rect, Shape)> = shapes.into_iter().map(|s| (clip, s)).collect();
        document(&shapes, egui::vec2(100.0, 50.0), Color32::BLACK, &Textures::default())
    }

    #[test]
    fn rectangles_of_a_mesh_of_one_colour_are_one_path() {
        let mut mesh = Mesh::default();
        mesh.add_colored_rect(Rect::from_min_max(pos2(1.0, 2.0), pos2(3.0, 6.0)), Color32::RED);
        mesh.add_colored_rect(Rect::from_min_max(pos2(4.0, 2.0), pos2(5.5, 6.0)), Color32::RED);
        mesh.add_colored_rect(Rect::from_min_max(pos2(6.0, 2.0), pos2(7.0, 6.0)), Color32::GREEN);
        let svg = draw(vec![mesh.into()]);
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        assert!(svg.contains("M1 2h2v4H1zM4 2h1.5v4H4z\" fill=\"#ff0000\""), "{svg}");
    }

    #[test]
    fn a_fade_is_a_gradient_and_no_wedge() {
        let rect = Rect::from_min_max(pos2(1.0, 2.0), pos2(9.0, 6.0));
        // As egui fades the edge of a list: two triangles with the corners in row order.
        let mut mesh = Mesh::default();
        for (place, ink) in [
            (rect.left_top(), Color32::RED),
            (rect.right_top(), Color32::RED),
            (rect.left_bottom(), Color32::TRANSPARENT),
            (rect.right_bottom(), Color32::TRANSPARENT),
        ] {
            mesh.colored_vertex(place, ink);
        }
        mesh.add_triangle(0, 1, 2);
        mesh.add_triangle(2, 1, 3);
        let svg = draw(vec![mesh.into()]);
        assert_eq!((svg.matches("<path").count(), svg.matches("<linearGradient").count()), (0, 1), "{svg}");
        assert!(svg.contains("x1=\"1\" y1=\"2\" x2=\"1\" y2=\"6\"><stop stop-color=\"#ff0000\" stop-opacity=\"1\"/>"), "{svg}");
        assert!(svg.contains("<stop offset=\"1\" stop-color=\"#ff0000\" stop-opacity=\"0\"/>"), "{svg}");
        assert!(svg.contains("<rect x=\"1\" y=\"2\" width=\"8\" height=\"4\" fill=\"url(#f0)\"/>"), "{svg}");
    }

    #[test]
    fn strokes_lie_where_they_are_on_screen_and_clips_are_grouped() {
        let rect = Rect::from_min_max(pos2(10.0, 10.0), pos2(20.0, 20.0));
        let outline = Shape::rect_stroke(rect, 0.0, Stroke::new(2.0, Color32::WHITE), StrokeKind::Inside);
        let svg = draw(vec![outline.clone(), outline]);
        assert!(svg.contains("<rect x=\"11\" y=\"11\" width=\"8\" height=\"8\" fill=\"none\" stroke=\"#ffffff\""), "{svg}");
        assert_eq!((svg.matches("<g ").count(), svg.matches("</g>").count(), svg.matches("<clipPath").count()), (1, 1, 1));
    }

    #[test]
    fn text_is_escaped_and_figures_are_short() {
        assert_eq!(escape("a<b & \u{1}\u{202e}"), "a&lt;b &amp; \u{fffd}\u{fffd}");
        assert_eq!(
            (number(1.0), number(-0.001), number(2.345), number(f32::NAN)),
            ("1".into(), "0".into(), "2.35".into(), "0".into())
        );
        assert_eq!(fill(Color32::TRANSPARENT), " fill=\"none\"");
    }
}
