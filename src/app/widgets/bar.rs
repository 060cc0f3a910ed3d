//! Small horizontal bars on one scale: solid parts, a hatched part for reserved but unused memory, ticks for limits.

use super::cut::Cut;
use super::mesh::Batch;
use crate::app::theme::Tokens;
use egui::{Color32, Painter, Pos2, Rangef, Rect, pos2};

#[derive(Clone, Debug, Default)]
pub struct Bar {
    greatest: f64,
    parts: Vec<(f64, Color32)>,
    hatched: f64,
    ticks: Vec<(f64, Color32)>,
    thickness: f32,
}

impl Bar {
    /// An empty bar on a scale from 0 to `greatest`. Use the same scale for all rows.
    pub fn new(greatest: f64) -> Self {
        Self { greatest, thickness: 9.0, ..Self::default() }
    }

    pub fn part(mut self, amount: f64, colour: Color32) -> Self {
        self.parts.push((amount, colour));
        self
    }

    /// Appends a hatched part: reserved but free memory.
    pub fn hatched(mut self, amount: f64) -> Self {
        self.hatched = amount;
        self
    }

    /// Adds a dashed tick at `value`: the cap (red) or the recorded value (`text1`).
    pub fn tick(mut self, value: f64, colour: Color32) -> Self {
        self.ticks.push((value, colour));
        self
    }

    /// Height of the bar, 9 by default.
    pub fn thickness(mut self, points: f32) -> Self {
        self.thickness = points;
        self
    }

    /// Paints the bar over the width of `rect`, vertically centred. Parts greater than zero are at least one pixel wide.
    pub fn paint(&self, painter: &Painter, tokens: &Tokens, rect: Rect) {
        let mut batch = Batch::new(painter).hatch_origin(rect.min);
        let half = self.thickness / 2.0;
        let y = Rangef::new(rect.center().y - half, rect.center().y + half);
        let x = |amount: f64| position(rect, self.greatest, amount);
        let mut sum = 0.0;
        for &(amount, colour) in &self.parts {
            if amount > 0.0 {
                let part = Rect::from_min_max(pos2(x(sum), y.min), pos2(x(sum + amount), y.max));
                batch.rect_at_least_a_pixel(part, colour);
            }
            sum += amount.max(0.0);
        }
        if self.hatched > 0.0 {
            let part = Rect::from_min_max(pos2(x(sum), y.min), pos2(x(sum + self.hatched), y.max));
            batch.hole(part, Color32::TRANSPARENT, tokens.hatch, tokens.line2);
        }
        for &(value, colour) in &self.ticks {
            batch.dashed_vline(x(value), y.expand(3.0), 1.0, (2.0, 1.0), colour);
        }
        batch.paint(painter);
    }

    /// Where `amount` ends on a bar painted over `rect`.
    pub fn end(&self, rect: Rect, amount: f64) -> Pos2 {
        rect.middle(position(rect, self.greatest, amount))
    }
}

fn position(rect: Rect, greatest: f64, amount: f64) -> f32 {
    if greatest <= 0.0 || !amount.is_finite() {
        return rect.left();
    }
    rect.left() + (amount / greatest).clamp(0.0, 1.0) as f32 * rect.width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_past_the_scale_end_at_its_end() {
        let rect = Rect::from_min_max(pos2(10.0, 0.0), pos2(110.0, 20.0));
        let bar = Bar::new(200.0).part(50.0, Color32::RED);
        assert_eq!(bar.end(rect, 50.0), pos2(35.0, 10.0));
        assert_eq!(bar.end(rect, 900.0).x, 110.0);
        assert_eq!(bar.end(rect, f64::NAN).x, 10.0);
        assert_eq!(Bar::new(0.0).end(rect, 5.0).x, 10.0);
    }
}
