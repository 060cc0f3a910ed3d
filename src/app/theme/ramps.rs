//! Colour ramps for amounts, interpolated linearly in sRGB between stops.

use super::Tokens;
use egui::Color32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// Ordered attributes: size, age, lifetime. Eight stops.
    Size,
    /// Occupancy. Six stops; the first is the surface colour.
    Heat,
}

impl Ramp {
    pub fn stops(self, tokens: &Tokens) -> &[Color32] {
        match self {
            Self::Size => &tokens.size,
            Self::Heat => &tokens.heat,
        }
    }

    /// The colour at `share` (0 little, 1 much), clamped; NaN gives the low end.
    pub fn at(self, tokens: &Tokens, share: f32) -> Color32 {
        interpolate(self.stops(tokens), share)
    }

    /// `levels` evenly spaced colours, so that pictures can index instead of interpolating per pixel.
    pub fn table(self, tokens: &Tokens, levels: usize) -> Vec<Color32> {
        let last = levels.saturating_sub(1).max(1) as f32;
        (0..levels).map(|i| self.at(tokens, i as f32 / last)).collect()
    }
}

fn interpolate(stops: &[Color32], share: f32) -> Color32 {
    let Some(last) = stops.len().checked_sub(1) else { return Color32::TRANSPARENT };
    let place = share.clamp(0.0, 1.0) * last as f32;
    if place.is_nan() {
        return stops[0];
    }
    let low = (place as usize).min(last);
    mix(stops[low], stops[(low + 1).min(last)], place - low as f32)
}

/// Mixes two opaque colours linearly in sRGB: `a` at 0, `b` at 1.
pub fn mix(a: Color32, b: Color32, share: f32) -> Color32 {
    let channel = |a: u8, b: u8| (f32::from(a) + (f32::from(b) - f32::from(a)) * share.clamp(0.0, 1.0)).round() as u8;
    Color32::from_rgb(channel(a.r(), b.r()), channel(a.g(), b.g()), channel(a.b(), b.b()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::theme::tokens::{DARK, LIGHT};

    #[test]
    fn stops_are_met_and_midpoints_lie_between() {
        for t in [&DARK, &LIGHT] {
            assert_eq!(Ramp::Heat.at(t, 0.0), t.s1);
            assert_eq!(Ramp::Heat.at(t, 1.0), t.heat[5]);
            assert_eq!(Ramp::Heat.at(t, 7.0), t.heat[5]);
            assert_eq!(Ramp::Heat.at(t, f32::NAN), t.heat[0]);
            assert_eq!(Ramp::Heat.at(t, 0.1), mix(t.heat[0], t.heat[1], 0.5));
            assert_eq!(Ramp::Heat.table(t, 256).len(), 256);
        }
    }
}
