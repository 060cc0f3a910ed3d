//! Axis ticks for times, events and bytes, and how they are painted.
//!
//! Each axis has one unit, written at the first or last label or beside the lane's name. The other labels are bare numbers in the
//! monospace face.

use super::cut::Cut;
use super::label;
use super::mesh::Batch;
use super::viewport::Scale;
use crate::app::theme::{Tokens, Type};
use egui::{Align2, Painter, Rangef, Rect, pos2};
use vramscope_core::units::{GIBIBYTE, KIBIBYTE, MEBIBYTE, NBSP};

#[derive(Clone, Debug, PartialEq)]
pub struct Ticks {
    /// The unit of all labels; empty for counts.
    pub unit: &'static str,
    /// Values in the axis's unit (µs, events or bytes), ascending, each with its label without the unit.
    pub ticks: Vec<(f64, String)>,
    /// Distance between ticks in the axis's unit.
    pub step: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitAt {
    /// After the first label: `100 ms`, `110`, `120`.
    First,
    /// After the last label: `0`, `4`, `8 MiB`.
    Last,
    /// Nowhere, because the lane's name says it.
    Nowhere,
}

/// The smallest step of 1, 2 or 5 times a power of ten that makes at most `most` steps over `span`.
fn decimal_step(span: f64, most: usize) -> f64 {
    let rough = (span / most.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// The first of `steps` that makes at most `most` steps over `span`.
fn listed_step(span: f64, most: usize, steps: &[f64]) -> Option<f64> {
    let rough = span / most.max(1) as f64;
    steps.iter().copied().find(|s| *s >= rough * (1.0 - 1e-9))
}

fn places(start: f64, end: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (start / step - 1e-9).ceil() as i64;
    let last = (end / step + 1e-9).floor() as i64;
    // A step that is too small or not a number must not loop for ever.
    let last = if (0..=10_000).contains(&(last.saturating_sub(first))) { last } else { first.saturating_sub(1) };
    (first..=last).map(move |k| k as f64 * step)
}

/// A number with thousands separated and `decimals` decimals.
fn number(value: f64, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let grouped = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), vramscope_core::units::count);
    let sign = if value < 0.0 && text.bytes().any(|b| b.is_ascii_digit() && b != b'0') { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{fraction}") }
}

fn decimals_of(step: f64) -> usize {
    (0..6).find(|d| ((step * 10f64.powi(*d)).round() - step * 10f64.powi(*d)).abs() < 1e-6).unwrap_or(6) as usize
}

const SECOND: f64 = 1e6;
const MINUTE: f64 = 60.0 * SECOND;
const HOUR: f64 = 60.0 * MINUTE;

/// Ticks for a range of microseconds (relative to the start of the recording or to any other zero), at most `most`.
///
/// The unit is the largest in which the labels need at most three decimals: µs, ms, s, and from two minutes on `m:ss`
/// or `h:mm:ss`.
pub fn time_ticks(start: f64, end: f64, most: usize) -> Ticks {
    let span = (end - start).max(1.0);
    let far = start.abs().max(end.abs());
    let sexagesimal: Vec<f64> = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0].iter().map(|s| s * SECOND).collect();
    let step = if span / most.max(1) as f64 > 5.0 * SECOND || (far >= 2.0 * MINUTE && span / most.max(1) as f64 >= SECOND) {
        let mut steps = sexagesimal;
        steps.extend([1.0, 2.0, 5.0, 10.0, 15.0, 30.0].iter().map(|m| m * MINUTE));
        steps.extend([1.0, 2.0, 3.0, 6.0, 12.0, 24.0].iter().map(|h| h * HOUR));
        listed_step(span, most, &steps).unwrap_or_else(|| decimal_step(span / HOUR, most) * HOUR)
    } else {
        decimal_step(span, most).max(1.0)
    };
    let clock = far >= 2.0 * MINUTE && step >= SECOND;
    let (unit, divisor) = if clock {
        (if far >= HOUR { "h:mm:ss" } else { "m:ss" }, SECOND)
    } else if far >= SECOND && step >= 1e3 {
        ("s", SECOND)
    } else if far >= 1e3 && step >= 1.0 {
        ("ms", 1e3)
    } else {
        ("µs", 1.0)
    };
    let decimals = decimals_of(step / divisor);
    let label = |us: f64| {
        if clock {
            let seconds = (us.abs() / SECOND).round() as u64;
            let sign = if us < 0.0 { "-" } else { "" };
            let (h, m, s) = (seconds / 3600, seconds / 60, seconds % 60);
            if far >= HOUR { format!("{sign}{h}:{:02}:{s:02}", m % 60) } else { format!("{sign}{m}:{s:02}") }
        } else {
            number(us / divisor, decimals)
        }
    };
    Ticks { unit, step, ticks: places(start, end, step).map(|v| (v, label(v))).collect() }
}

/// Ticks for a range of event (or request) numbers, at most `most` of them.
pub fn event_ticks(start: f64, end: f64, most: usize) -> Ticks {
    let step = decimal_step((end - start).max(1.0), most).max(1.0);
    Ticks { unit: "", step, ticks: places(start, end, step).map(|v| (v, number(v, 0))).collect() }
}

/// Ticks for a range of bytes, at most `most`, in the unit of the greatest value. Up to 64 units the steps are powers of two,
/// above that 1, 2, 2.5 or 5 times a power of ten.
pub fn byte_ticks(start: f64, end: f64, most: usize) -> Ticks {
    let far = start.abs().max(end.abs());
    let (unit, divisor) = byte_unit(far);
    let span = ((end - start) / divisor).max(1.0 / divisor);
    let step = if span <= 64.0 {
        let rough = span / most.max(1) as f64;
        2f64.powf((rough * (1.0 - 1e-9)).log2().ceil())
    } else {
        let step = decimal_step(span, most);
        // Prefer 250, 500, 750 to 0, 500, 1000 when they fit.
        let is_five = (step / 10f64.powf((step.log10() + 1e-9).floor()) - 5.0).abs() < 1e-6;
        if is_five && step >= 50.0 && span / (step / 2.0) <= most as f64 { step / 2.0 } else { step }
    };
    let step = step.max(1.0 / divisor);
    let decimals = decimals_of(step).min(3);
    Ticks {
        unit,
        step: step * divisor,
        ticks: places(start / divisor, end / divisor, step).map(|v| (v * divisor, number(v, decimals))).collect(),
    }
}

/// The unit in which an axis up to `greatest` bytes is labelled, and how many bytes it is.
pub fn byte_unit(greatest: f64) -> (&'static str, f64) {
    let (kib, mib, gib) = (KIBIBYTE as f64, MEBIBYTE as f64, GIBIBYTE as f64);
    if greatest < kib {
        ("B", 1.0)
    } else if greatest < mib {
        ("KiB", kib)
    } else if greatest < gib {
        ("MiB", mib)
    } else if greatest < 10.0 * 1024.0 * gib {
        ("GiB", gib)
    } else {
        ("TiB", 1024.0 * gib)
    }
}

/// How many labels fit a horizontal axis: about one per 72 points.
pub fn most_across(width: f32) -> usize {
    (width / 72.0).floor().max(2.0) as usize
}

/// How many labels fit a vertical axis: about one per 32 points.
pub fn most_down(height: f32) -> usize {
    (height / 32.0).floor().max(2.0) as usize
}

impl Ticks {
    fn labels(&self, unit_at: UnitAt) -> impl Iterator<Item = (f64, String)> + '_ {
        let last = self.ticks.len().saturating_sub(1);
        self.ticks.iter().enumerate().map(move |(i, (value, label))| {
            let here = !self.unit.is_empty()
                && match unit_at {
                    UnitAt::First => i == 0,
                    UnitAt::Last => i == last,
                    UnitAt::Nowhere => false,
                };
            (*value, if here { format!("{label}{NBSP}{}", self.unit) } else { label.clone() })
        })
    }

    /// Draws a grid line at each tick of a horizontal scale over `area`.
    pub fn grid_across(&self, batch: &mut Batch, tokens: &Tokens, scale: &Scale, area: Rect) {
        for (value, _) in &self.ticks {
            batch.vline(scale.at(*value), area.y_range(), 1.0, tokens.grid);
        }
    }

    /// Draws a grid line at each tick of a vertical scale over `area`.
    pub fn grid_down(&self, batch: &mut Batch, tokens: &Tokens, scale: &Scale, area: Rect) {
        for (value, _) in &self.ticks {
            batch.hline(area.x_range(), scale.at(*value), 1.0, tokens.grid);
        }
    }

    /// Paints the labels of a horizontal axis in `strip` (20 high: labels above, 6 px tick marks at the lower edge). Labels that
    /// would leave the strip or touch the previous one are left out; their ticks stay.
    pub fn paint_across(&self, painter: &Painter, tokens: &Tokens, scale: &Scale, strip: Rect, unit_at: UnitAt) {
        self.paint_across_around(painter, tokens, scale, strip, unit_at, &[]);
    }

    /// Like [`Ticks::paint_across`], but leaves out labels that would touch one of the given ranges.
    pub fn paint_across_around(
        &self,
        painter: &Painter,
        tokens: &Tokens,
        scale: &Scale,
        strip: Rect,
        unit_at: UnitAt,
        taken: &[Rect],
    ) {
        const GAP: f32 = 8.0;
        let mut marks = Batch::new(painter);
        let mut free_from = f32::NEG_INFINITY;
        let clip = painter.clip_rect();
        // The label with the unit is longer, so it moves inwards to fit. The label before it is left out if they would touch.
        let last = self.ticks.last().filter(|_| unit_at == UnitAt::Last).map(|(value, label)| {
            let half = label::width(painter, &format!("{label}{NBSP}{}", self.unit), Type::Mono) / 2.0;
            (*value, scale.at(*value).min(clip.right() - half), half)
        });
        for (value, label) in self.labels(unit_at) {
            let mut x = scale.at(value);
            if !strip.x_range().expand(0.5).contains(x) {
                continue;
            }
            marks.vline(x, Rangef::new(strip.bottom() - 6.0, strip.bottom()), 1.0, tokens.line2);
            let galley = label::galley(painter, &label, Type::Mono, tokens.text3);
            let half = galley.size().x / 2.0;
            match last {
                Some((with_unit, place, _)) if value >= with_unit => x = place,
                Some((_, place, width)) if x + half + 2.0 * GAP > place - width => continue,
                _ => {}
            }
            if x - half < free_from || x - half < clip.left() || x + half > clip.right() {
                continue;
            }
            let across = Rangef::new(x - half - 2.0, x + half + 2.0);
            if taken.iter().any(|r| r.x_range().intersects(across) && r.intersects(strip)) {
                continue;
            }
            free_from = x + half + GAP;
            let y = strip.top() + (strip.height() - 6.0 - galley.size().y) / 2.0;
            painter.galley(pos2(snap(painter, x - half), snap(painter, y)), galley, tokens.text3);
        }
        marks.paint(painter);
    }

    /// Paints the labels of a horizontal axis in the middle of `strip`, without tick marks; the first has the unit. Labels that would
    /// leave the strip or touch the previous one are left out.
    pub fn label_across(&self, painter: &Painter, tokens: &Tokens, scale: &Scale, strip: Rect) {
        let mut free_from = strip.left();
        for (value, text) in self.labels(UnitAt::First) {
            let (x, half) = (scale.at(value), label::width(painter, &text, Type::Mono) / 2.0);
            if x - half >= free_from && x + half < strip.right() {
                label::text(painter, strip.middle(x), Align2::CENTER_CENTER, &text, Type::Mono, tokens.text3);
                free_from = x + half + 8.0;
            }
        }
    }

    /// Paints the labels of a vertical axis, right aligned at `right` and centred on their ticks, within `y`.
    pub fn paint_down(&self, painter: &Painter, tokens: &Tokens, scale: &Scale, right: f32, y: Rangef, unit_at: UnitAt) {
        let mut free_below = f32::INFINITY;
        for (value, label) in self.labels(unit_at) {
            let at = scale.at(value);
            if !y.expand(1.0).contains(at) || at > free_below {
                continue;
            }
            let rect = label::text(painter, pos2(right, at), Align2::RIGHT_CENTER, &label, Type::Mono, tokens.text3);
            free_below = at - rect.height();
        }
    }
}

/// The byte scale of a plot: grid and ground line in it, labels left of it, its name and unit at `left`. Leaves out labels that
/// would touch the name or the unit.
pub fn byte_scale(painter: &Painter, tokens: &Tokens, plot: Rect, y: &Scale, left: f32, name: &str) {
    let mut ticks = byte_ticks(y.start, y.end, most_down(plot.height()).min(8));
    let mut batch = Batch::new(painter);
    ticks.grid_down(&mut batch, tokens, y, plot);
    batch.hline(plot.x_range(), plot.bottom(), 1.0, tokens.line2);
    batch.paint(painter);
    let named = label::text(painter, pos2(left, plot.top() - 13.0), Align2::LEFT_TOP, name, Type::Body, tokens.text2);
    label::text(painter, pos2(left, plot.top() + 2.0), Align2::LEFT_TOP, ticks.unit, Type::Caption, tokens.text3);
    let room = plot.left() - 8.0 - (named.right() + 6.0);
    ticks.ticks.retain(|(value, text)| y.at(*value) >= plot.top() + 8.0 || label::width(painter, text, Type::Mono) <= room);
    ticks.paint_down(painter, tokens, y, plot.left() - 8.0, plot.y_range().expand(2.0), UnitAt::Nowhere);
}

fn snap(painter: &Painter, v: f32) -> f32 {
    let scale = painter.pixels_per_point();
    (v * scale).round() / scale
}

/// Moves labels at `wanted` (any order) apart to at least `gap`, as little as possible, inside `range`. Keeps the given order.
pub fn spread(wanted: &[f32], gap: f32, range: Rangef) -> Vec<f32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = vec![0.0; wanted.len()];
    let mut free = range.min;
    for &i in &order {
        places[i] = wanted[i].max(free);
        free = places[i] + gap;
    }
    let mut free = range.max;
    for &i in order.iter().rev() {
        places[i] = places[i].min(free);
        free = places[i] - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_apart_and_inside() {
        let at = spread(&[50.0, 52.0, 10.0, 98.0], 16.0, Rangef::new(8.0, 100.0));
        assert_eq!(at, [50.0, 66.0, 10.0, 98.0]);
        let at = spread(&[99.0, 98.0, 97.0], 16.0, Rangef::new(0.0, 100.0));
        assert_eq!(at, [100.0, 84.0, 68.0]);
    }

    fn labels(t: &Ticks) -> Vec<&str> {
        t.ticks.iter().map(|(_, l)| l.as_str()).collect()
    }

    #[test]
    fn times_take_the_unit_that_keeps_labels_short() {
        let t = time_ticks(98_000.0, 224_000.0, 14);
        assert_eq!((t.unit, t.step), ("ms", 10_000.0));
        assert_eq!(labels(&t)[..3], ["100", "110", "120"]);
        let t = time_ticks(0.0, 19_300_000.0, 10);
        assert_eq!((t.unit, labels(&t)[..3].to_vec()), ("s", vec!["0", "2", "4"]));
        let t = time_ticks(5_000_000.0, 5_000_040.0, 4);
        assert_eq!((t.unit, labels(&t)[1]), ("ms", "5,000.01"));
        let t = time_ticks(0.0, 7.0, 10);
        assert_eq!((t.unit, t.step, t.ticks.len()), ("µs", 1.0, 8));
        let t = time_ticks(5_000_000.0, 6_500_000.0, 4);
        assert_eq!((t.unit, labels(&t)), ("s", vec!["5.0", "5.5", "6.0", "6.5"]));
        let t = time_ticks(0.0, 600e6, 6);
        assert_eq!((t.unit, labels(&t)[1]), ("m:ss", "2:00"));
        let t = time_ticks(0.0, 3.0 * HOUR, 8);
        assert_eq!((t.unit, labels(&t)[1]), ("h:mm:ss", "0:30:00"));
        let t = time_ticks(-100.0, 100.0, 4);
        assert_eq!(labels(&t), ["-100", "-50", "0", "50", "100"]);
    }

    #[test]
    fn bytes_have_one_unit_and_round_steps() {
        let mib = MEBIBYTE as f64;
        let t = byte_ticks(0.0, 1010.0 * mib, 5);
        assert_eq!((t.unit, labels(&t)), ("MiB", vec!["0", "250", "500", "750", "1,000"]));
        let t = byte_ticks(0.0, 20.0 * mib, 5);
        assert_eq!(labels(&t), ["0", "4", "8", "12", "16", "20"]);
        let t = byte_ticks(380.0 * mib, 1016.0 * mib, 4);
        assert_eq!(labels(&t), ["400", "600", "800", "1,000"]);
        let t = byte_ticks(0.0, 1800.0 * mib, 8);
        assert_eq!((t.unit, labels(&t)[..3].to_vec()), ("GiB", vec!["0.00", "0.25", "0.50"]));
        let t = byte_ticks(0.0, 80.0 * GIBIBYTE as f64, 5);
        assert_eq!((t.unit, labels(&t)), ("GiB", vec!["0", "20", "40", "60", "80"]));
        let t = byte_ticks(0.0, 3.0 * KIBIBYTE as f64, 3);
        assert_eq!((t.unit, labels(&t)), ("KiB", vec!["0", "1", "2", "3"]));
        let t = byte_ticks(0.0, 0.0, 4);
        assert_eq!((t.unit, labels(&t)), ("B", vec!["0"]));
        let t = byte_ticks(1000.0 * mib, 1000.0 * mib + 2048.0, 4);
        assert!(t.ticks.len() <= 6 && t.ticks.len() >= 2, "{t:?}");
    }

    #[test]
    fn no_range_makes_more_ticks_than_asked_for_by_much() {
        for exponent in 0..15 {
            for most in [2, 5, 14] {
                let end = 10f64.powi(exponent) * 1.7;
                for t in [time_ticks(0.0, end, most), event_ticks(0.0, end, most), byte_ticks(0.0, end, most)] {
                    assert!(t.ticks.len() <= most + 1, "{most} {end} {t:?}");
                    assert!(t.ticks.windows(2).all(|w| w[0].1 != w[1].1), "{t:?}");
                }
            }
        }
        assert!(event_ticks(f64::NAN, 1.0, 5).ticks.len() < 10_001);
        assert_eq!(event_ticks(0.0, 30_000.0, 4).ticks[1].1, "10,000");
    }

    #[test]
    fn the_unit_stands_once() {
        let t = time_ticks(98_000.0, 224_000.0, 14);
        assert_eq!(t.labels(UnitAt::First).filter(|(_, l)| l.ends_with("ms")).count(), 1);
        assert_eq!(t.labels(UnitAt::Last).last().map(|(_, l)| l.ends_with("ms")), Some(true));
        assert_eq!(t.labels(UnitAt::Nowhere).filter(|(_, l)| l.ends_with("ms")).count(), 0);
    }

    #[test]
    fn the_label_with_the_unit_moves_in_where_it_would_touch_what_stands_beside_it() {
        let ctx = egui::Context::default();
        let end = 420.0;
        let mut out = ctx.run_ui(egui::RawInput::default(), |ui| {
            let strip = Rect::from_min_max(pos2(40.0, 0.0), pos2(400.0, 20.0));
            let painter = ui.painter().with_clip_rect(Rect::from_min_max(pos2(0.0, 0.0), pos2(end, 100.0)));
            let ticks = byte_ticks(0.0, 2000.0 * MEBIBYTE as f64, 4);
            let scale = Scale::horizontal(0.0, 2000.0 * MEBIBYTE as f64, strip.x_range());
            ticks.paint_across(&painter, Tokens::of_theme(egui::Theme::Dark), &scale, strip, UnitAt::Last);
        });
        out.textures_delta.clear();
        let mut texts = out.shapes.iter().filter_map(|s| match &s.shape {
            egui::Shape::Text(text) => Some((text.galley.text().replace(NBSP, " "), text.pos.x + text.galley.size().x)),
            _ => None,
        });
        let last = texts.next_back().unwrap();
        assert_eq!(last.0, "1.5 GiB");
        assert!(last.1 <= end + 1.0, "{last:?}");
    }
}
