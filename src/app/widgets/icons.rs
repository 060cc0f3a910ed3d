//! Painted icons: sharp at every scale, in any colour, independent of fonts.

use egui::epaint::PathStroke;
use egui::{Color32, Painter, Pos2, Rect, Shape, Stroke, StrokeKind, Vec2, pos2, vec2};

/// An icon on a 16 x 16 grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    ChevronDown,
    /// A folded row, or "next".
    ChevronRight,
    ChevronLeft,
    ChevronUp,
    /// Close a tab or clear a field.
    Close,
    Plus,
    Search,
    Copy,
    Sun,
    Moon,
    Help,
    Check,
    Cross,
    External,
    /// A recording: segments with blocks.
    File,
    Pulse,
    Stop,
    Play,
    Warning,
    Folder,
    SortDown,
    SortUp,
}

impl Icon {
    /// Paints the icon centred at `centre` in one colour. `size` is its side in points; at 16 one grid unit is one point.
    pub fn paint(self, painter: &Painter, centre: Pos2, size: f32, colour: Color32) {
        let k = size / 16.0;
        let ppp = painter.pixels_per_point();
        let snapped = |v: f32| (v * ppp).round() / ppp;
        let origin = pos2(snapped(centre.x - 8.0 * k), snapped(centre.y - 8.0 * k));
        let at = |x: f32, y: f32| origin + vec2(x * k, y * k);
        let pen = Stroke::new((1.3 * k).max(1.0), colour);
        let line = |points: &[(f32, f32)]| {
            painter.add(Shape::line(points.iter().map(|&(x, y)| at(x, y)).collect(), PathStroke::new(pen.width, pen.color)));
        };
        let fill = |x0: f32, y0: f32, x1: f32, y1: f32| {
            painter.rect_filled(Rect::from_min_max(at(x0, y0), at(x1, y1)), 0, colour);
        };
        match self {
            Self::ChevronDown => line(&[(5.0, 6.6), (8.0, 9.6), (11.0, 6.6)]),
            Self::ChevronUp => line(&[(5.0, 9.4), (8.0, 6.4), (11.0, 9.4)]),
            Self::ChevronRight => line(&[(6.4, 4.4), (10.0, 8.0), (6.4, 11.6)]),
            Self::ChevronLeft => line(&[(9.6, 4.4), (6.0, 8.0), (9.6, 11.6)]),
            Self::Close | Self::Cross => {
                line(&[(4.7, 4.7), (11.3, 11.3)]);
                line(&[(11.3, 4.7), (4.7, 11.3)]);
            }
            Self::Plus => {
                line(&[(8.0, 3.6), (8.0, 12.4)]);
                line(&[(3.6, 8.0), (12.4, 8.0)]);
            }
            Self::Search => {
                painter.circle_stroke(at(7.0, 7.0), 4.2 * k, pen);
                line(&[(10.1, 10.1), (13.4, 13.4)]);
            }
            Self::Copy => {
                let back = [(10.2, 3.0), (3.0, 3.0), (3.0, 10.2)];
                line(&back);
                painter.rect_stroke(Rect::from_min_max(at(5.6, 5.6), at(13.0, 13.0)), 1.0, pen, StrokeKind::Middle);
            }
            Self::Sun => {
                painter.circle_stroke(at(8.0, 8.0), 2.8 * k, pen);
                for i in 0..8 {
                    let d = Vec2::angled(std::f32::consts::TAU * i as f32 / 8.0);
                    painter.line_segment([at(8.0, 8.0) + d * 4.8 * k, at(8.0, 8.0) + d * 6.4 * k], pen);
                }
            }
            Self::Moon => {
                // A disc of radius 5.4 minus a disc of radius 4.6 up and to the right: two arcs that meet at the horns.
                let arc = |cx: f32, cy: f32, r: f32, from: f32, to: f32| {
                    (0..=16).map(move |i| {
                        let d = Vec2::angled((from + (to - from) * i as f32 / 16.0).to_radians());
                        (cx + d.x * r, cy + d.y * r)
                    })
                };
                let (outer, inner) = (arc(7.4, 8.6, 5.4, 12.8, 257.2), arc(9.8, 6.2, 4.6, 218.5, 51.5));
                // Two open lines, because a closed one would draw spikes at the horns.
                for points in [outer.collect::<Vec<_>>(), inner.collect()] {
                    line(&points);
                }
            }
            Self::Help => {
                painter.circle_stroke(at(8.0, 8.0), 6.2 * k, pen);
                line(&[
                    (6.1, 6.6),
                    (6.4, 5.4),
                    (7.4, 4.8),
                    (8.6, 4.8),
                    (9.6, 5.5),
                    (9.8, 6.5),
                    (9.3, 7.3),
                    (8.0, 8.3),
                    (8.0, 9.3),
                ]);
                painter.circle_filled(at(8.0, 11.2), 0.8 * k, colour);
            }
            Self::Check => line(&[(3.6, 8.4), (6.6, 11.4), (12.4, 4.8)]),
            Self::External => {
                line(&[(4.4, 11.6), (11.4, 4.6)]);
                line(&[(5.8, 4.6), (11.4, 4.6), (11.4, 10.2)]);
            }
            Self::File => {
                for (x0, x1, y) in [(3.0, 13.0, 4.0), (3.0, 9.0, 7.0), (10.0, 13.0, 7.0), (3.0, 6.0, 10.0), (7.0, 13.0, 10.0)] {
                    fill(x0, y, x1, y + 2.0);
                }
            }
            Self::Pulse => line(&[(2.4, 8.6), (5.2, 8.6), (6.8, 4.2), (9.4, 12.0), (10.8, 8.6), (13.6, 8.6)]),
            Self::Stop => fill(4.0, 4.0, 12.0, 12.0),
            Self::Play => {
                let points = vec![at(5.0, 3.8), at(12.2, 8.0), at(5.0, 12.2)];
                painter.add(Shape::convex_polygon(points, colour, PathStroke::NONE));
            }
            Self::Warning => {
                let points = vec![at(8.0, 2.6), at(14.0, 13.0), at(2.0, 13.0)];
                painter.add(Shape::closed_line(points, PathStroke::new(pen.width, pen.color)));
                line(&[(8.0, 6.4), (8.0, 9.6)]);
                painter.circle_filled(at(8.0, 11.2), 0.7 * k, colour);
            }
            Self::Folder => {
                let points = [(2.6, 12.6), (2.6, 3.6), (6.6, 3.6), (8.0, 5.2), (13.4, 5.2), (13.4, 12.6)];
                let points = points.iter().map(|&(x, y)| at(x, y)).collect();
                painter.add(Shape::closed_line(points, PathStroke::new(pen.width, pen.color)));
            }
            Self::SortDown | Self::SortUp => {
                let (tip, base) = if self == Self::SortDown { (10.6, 6.2) } else { (5.4, 9.8) };
                let points = vec![at(4.8, base), at(11.2, base), at(8.0, tip)];
                painter.add(Shape::convex_polygon(points, colour, PathStroke::NONE));
            }
        }
    }
}

/// The logo: three staggered bars, a segment with a hole. `at` is its upper left corner, `width` its width in points; its height
/// is 5/7 of that.
pub fn paint_logo(painter: &Painter, at: Pos2, width: f32, accent: Color32, light: Color32, dim: Color32) {
    let k = width / 14.0;
    for (x0, x1, y0, y1, colour) in
        [(0.0, 14.0, 0.0, 2.6, accent), (0.0, 5.3, 3.7, 6.3, light), (9.6, 14.0, 3.7, 6.3, light), (0.0, 9.5, 7.4, 10.0, dim)]
    {
        painter.rect_filled(Rect::from_min_max(at + vec2(x0, y0) * k, at + vec2(x1, y1) * k), 0, colour);
    }
}
