//! Sparklines of a recording: reserved as a line, allocated as a fill, a red end for an out-of-memory error.

use super::mesh::{Batch, PixelColumn};
use crate::app::theme::Tokens;
use egui::{Painter, Rect, Vec2, vec2};

/// A recording in 96 x 32 points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sparkline {
    /// Reserved bytes over time, evenly spaced; 48 to 192 values are enough.
    pub reserved: Vec<f32>,
    /// Allocated bytes at the same times.
    pub allocated: Vec<f32>,
    /// The recording ends with an out-of-memory error.
    pub oom: bool,
}

impl Sparkline {
    /// Size in lists, in points.
    pub const SIZE: Vec2 = vec2(96.0, 32.0);

    /// Paints it over `rect`. Without values only the background is painted.
    pub fn paint(&self, painter: &Painter, tokens: &Tokens, rect: Rect) {
        let mut batch = Batch::new(painter);
        batch.rect(rect, tokens.s2);
        let columns = (rect.width() / batch.pixel()).round() as usize;
        let greatest = self.reserved.iter().chain(&self.allocated).copied().fold(0.0f32, f32::max) * 1.1;
        let curve = |values: &[f32]| -> Vec<Option<PixelColumn>> {
            resample(values, columns)
                .into_iter()
                .map(|v| {
                    let y = rect.bottom() - v / greatest * rect.height();
                    greatest.is_normal().then_some(PixelColumn::level(y))
                })
                .collect()
        };
        let fill = Tokens::over(tokens.categorical[0], tokens.s2, 0.75);
        batch.fill_under(&curve(&self.allocated), rect.left(), rect.bottom(), fill);
        batch.curve(&curve(&self.reserved), rect.left(), 1.0, tokens.text1);
        if self.oom {
            batch.rect(rect.with_min_x(rect.right() - 2.0), tokens.red);
        }
        batch.paint(painter);
    }
}

/// Resamples `values` to `columns`. Each column takes the greatest of its values, so that peaks stay.
fn resample(values: &[f32], columns: usize) -> Vec<f32> {
    if values.is_empty() {
        return Vec::new();
    }
    (0..columns)
        .map(|i| {
            let from = i * values.len() / columns;
            let to = ((i + 1) * values.len()).div_ceil(columns).clamp(from + 1, values.len());
            values[from..to].iter().copied().fold(f32::MIN, f32::max)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resampling_keeps_peaks_and_length() {
        let values: Vec<f32> = (0..1000).map(|i| if i == 777 { 9.0 } else { 1.0 }).collect();
        let columns = resample(&values, 96);
        assert_eq!(columns.len(), 96);
        assert_eq!(columns.iter().filter(|v| **v == 9.0).count(), 1);
        assert_eq!(resample(&[1.0, 2.0], 4), [1.0, 1.0, 2.0, 2.0]);
        assert!(resample(&[], 4).is_empty());
    }
}
