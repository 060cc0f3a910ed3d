//! The strata as pixels: the class of each pixel, with seams and tones that separate neighbours, and the legend's counts.

use std::sync::Arc;

use egui::Color32;
use rayon::prelude::*;

use super::picture::StrataPicture;
use crate::app::data::colours::{Colours, Focus};
use crate::app::data::device::DeviceData;
use crate::app::state::ColourBy;
use crate::app::theme::Tokens;
use vramscope_core::model::StackId;
use vramscope_core::tables::{LifetimeId, NO_EVENT};

pub(super) struct StrataImage {
    /// The picture it was made from. Kept for its window and heights, and because its address is a cache key that must not be
    /// reused.
    pub picture: Arc<StrataPicture>,
    /// The colours it was made with. Kept because their address is a cache key too.
    _colours: Arc<Colours>,
    pub pixels: Vec<Color32>,
    pub size: [usize; 2],
}

/// Before colouring, a pixel is a class with flags, or this value for nothing.
const EMPTY: u16 = 0;
/// Flag of the lowest pixel of a block that is at least three pixels high.
const SEAM: u16 = 0x80;
/// Flag of pixels outside the focus.
const DIM: u16 = 0x40;
/// Mask of the class, counted from 1.
const CLASS: u16 = 0x3f;
/// Memory that a trace counts in its total without naming its blocks. These two values are free, because at most
/// sixteen other classes exist.
const GREW: u16 = CLASS;
const BEFORE: u16 = CLASS - 1;
/// Mask of the tone: the lightness of a block, which separates neighbours of one class that are too thin for a seam.
const TONE: u16 = 0x300;
/// How much more of the surface colour each tone mixes in.
const TONE_STEP: f32 = 0.08;

/// The tone of an allocation, the same in every column. Consecutive allocations never have the same tone.
fn tone(id: LifetimeId) -> u16 {
    ((id.0.wrapping_mul(0x9e37_79b9) >> 30) as u16) << 8
}

impl StrataImage {
    pub fn compute(
        data: &DeviceData,
        picture: Arc<StrataPicture>,
        colours: Arc<Colours>,
        tokens: &Tokens,
        focus: &Focus,
        rows: usize,
    ) -> Self {
        const STRIPE: usize = 64;
        let width = picture.column.len();
        let columns = picture.strata.columns.len();
        let mut classes = vec![EMPTY; columns * rows];
        if rows > 0 {
            classes.par_chunks_mut(rows * STRIPE).enumerate().for_each(|(stripe, pixels)| {
                let mut painter = ColumnPainter::default();
                for (i, pixels) in pixels.chunks_mut(rows).enumerate() {
                    painter.paint(data, &picture, &colours, focus, stripe * STRIPE + i, pixels);
                }
            });
        }
        let palette: Vec<Color32> = (0..=TONE | SEAM | DIM | CLASS)
            .map(|code| {
                let class = code & CLASS;
                if class == EMPTY {
                    return Color32::TRANSPARENT;
                }
                let colour = match class {
                    BEFORE => tokens.beyond(StackId::BEFORE),
                    GREW => tokens.beyond(StackId::GREW),
                    _ => colours.colour((class - 1) as u8, tokens),
                };
                let colour = Tokens::over(tokens.s1, colour, f32::from(code >> 8) * TONE_STEP);
                let is_dim = code & DIM != 0 || focus.dims_class((class - 1) as u8);
                let colour = if is_dim { Tokens::over(colour, tokens.s1, 0.25) } else { colour };
                if code & SEAM != 0 { Tokens::over(tokens.s1, colour, 0.6) } else { colour }
            })
            .collect();
        let mut pixels = vec![Color32::TRANSPARENT; width * rows];
        pixels.par_chunks_mut(width.max(1)).enumerate().for_each(|(y, row)| {
            for (pixel, &column) in row.iter_mut().zip(&picture.column) {
                *pixel = palette[usize::from(classes[column as usize * rows + (rows - 1 - y)])];
            }
        });
        StrataImage { picture, _colours: colours, pixels, size: [width, rows] }
    }
}

/// Turns columns into classes per pixel, bottom up. Caches the classes of the previous column, which mostly holds the same
/// allocations.
#[derive(Default)]
struct ColumnPainter {
    before: Vec<(LifetimeId, u16)>,
    now: Vec<(LifetimeId, u16)>,
    /// Class, how much of the pixel it covers, and the largest part covered by one of its blocks.
    cover: Vec<(u16, f64, f64)>,
}

impl ColumnPainter {
    fn paint(
        &mut self,
        data: &DeviceData,
        picture: &StrataPicture,
        colours: &Colours,
        focus: &Focus,
        column: usize,
        pixels: &mut [u16],
    ) {
        let event = picture.strata.columns[column].event;
        let by_age = colours.by() == ColourBy::Age;
        // With a ramp, lightness already has a meaning, so tones are left out.
        let has_tones = !matches!(colours.by(), ColourBy::Age | ColourBy::SizeClass);
        let scale = pixels.len() as f64 / (picture.high - picture.low);
        let rows = pixels.len();
        let mut known = 0;
        // The pixel being filled, and what covers it so far.
        let mut open = 0;
        self.now.clear();
        self.cover.clear();
        for run in picture.strata.runs_of(column) {
            // Folded allocations are far thinner than a pixel, so the largest one decides.
            let shown = run.largest;
            let part = run.part();
            while part.is_none() && self.before.get(known).is_some_and(|b| b.0 < shown) {
                known += 1;
            }
            let class = match self.before.get(known) {
                _ if part == Some(StackId::BEFORE) => BEFORE,
                _ if part.is_some() => GREW,
                Some(&(id, class)) if id == shown && !by_age => class,
                _ => {
                    let at = if event == NO_EVENT { 0 } else { event };
                    let class = (u16::from(colours.class_of(data, shown, at)) + 1).min(CLASS);
                    let class = if has_tones { class | tone(shown) } else { class };
                    if focus.dims(data, shown) { class | DIM } else { class }
                }
            };
            if part.is_none() {
                self.now.push((shown, class));
            }
            let bottom = ((run.bottom as f64 - picture.low) * scale).max(0.0);
            let top = ((run.top as f64 - picture.low) * scale).min(rows as f64);
            if top <= bottom {
                continue;
            }
            let (first, last) = (bottom as usize, (top.ceil() as usize - 1).min(rows - 1));
            if first != open {
                self.close(&mut pixels[open]);
                open = first;
            }
            if first == last {
                self.add(class, top - bottom);
                continue;
            }
            self.add(class, (first + 1) as f64 - bottom);
            self.close(&mut pixels[first]);
            pixels[first + 1..last].fill(class);
            open = last;
            self.add(class, top - last as f64);
            if last - first >= 3 {
                // The seam goes to the first pixel that this block covers mostly or alone.
                let seam = if pixels[first] == class { first } else { first + 1 };
                pixels[seam] |= SEAM;
            }
        }
        if open < rows {
            self.close(&mut pixels[open]);
        }
        std::mem::swap(&mut self.before, &mut self.now);
    }

    /// Adds up blocks of one class, whatever their tones. The largest of them decides the tone.
    fn add(&mut self, class: u16, share: f64) {
        match self.cover.iter_mut().find(|c| c.0 & !TONE == class & !TONE) {
            Some(c) => {
                c.1 += share;
                if share > c.2 {
                    (c.0, c.2) = (class, share);
                }
            }
            None => self.cover.push((class, share, share)),
        }
    }

    /// Gives a pixel to the class that covers most of it. A pixel less than half covered stays empty.
    fn close(&mut self, pixel: &mut u16) {
        let sum: f64 = self.cover.iter().map(|c| c.1).sum();
        if sum >= 0.5
            && let Some(most) = self.cover.iter().max_by(|a, b| a.1.total_cmp(&b.1))
        {
            *pixel = most.0;
        }
        self.cover.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;
    use crate::app::state::shared::Axis;
    use crate::app::views::timeline::picture::Window;
    use vramscope_core::model::Progress;
    use vramscope_core::tables::Quantity;

    #[test]
    fn a_pixel_takes_the_class_that_covers_most_of_it() {
        let mut p = ColumnPainter::default();
        let mut pixel = EMPTY;
        p.add(3, 0.3);
        p.add(4, 0.2);
        p.add(3, 0.2);
        p.close(&mut pixel);
        assert_eq!(pixel, 3);
        let mut pixel = EMPTY;
        p.add(5, 0.4);
        p.close(&mut pixel);
        assert_eq!(pixel, EMPTY, "less than half a pixel is not drawn");
    }

    #[test]
    fn neighbours_of_one_stack_differ_in_lightness() {
        for id in 0..10_000 {
            assert_ne!(tone(LifetimeId(id)), tone(LifetimeId(id + 1)), "{id}");
        }
        let data = samples::device("gpt_train.pickle");
        let window = Window { axis: Axis::Event, from: 0.0, to: data.device().events.len() as f64, columns: 60 };
        let colours = Arc::new(Colours::build(&data, ColourBy::Stack));
        let high = data.tables.curves.peak(Quantity::Active).0 as f64;
        let picture = Arc::new(StrataPicture::compute(&data, window, 0.0, high, 80, &Progress::new()).unwrap());
        let tokens = Tokens::of_theme(egui::Theme::Dark);
        let image = StrataImage::compute(&data, picture, Arc::clone(&colours), tokens, &Focus::default(), 80);
        for of_class in 0..3 {
            let base = colours.colour(of_class, tokens);
            let tones = (0..4).map(|n| Tokens::over(tokens.s1, base, n as f32 * TONE_STEP));
            let seen = tones.filter(|t| image.pixels.contains(t)).count();
            assert!(seen >= 2, "class {of_class} is one mass");
        }
    }

    #[test]
    fn blocks_far_thinner_than_a_pixel_keep_their_colour_in_a_low_pane() {
        let data = samples::device("gpt_train.pickle");
        let window = Window { axis: Axis::Event, from: 0.0, to: data.device().events.len() as f64, columns: 60 };
        // In a size ramp no class is grey.
        let colours = Arc::new(Colours::build(&data, ColourBy::SizeClass));
        let high = data.tables.curves.peak(Quantity::Active).0 as f64;
        let picture = Arc::new(StrataPicture::compute(&data, window, 0.0, high, 6, &Progress::new()).unwrap());
        let folded = picture.strata.runs.iter().filter(|r| r.folded > 0).count();
        assert!(folded > 0, "nothing is folded, so this tries nothing");
        let tokens = Tokens::of_theme(egui::Theme::Dark);
        let image = StrataImage::compute(&data, picture, colours, tokens, &Focus::default(), 6);
        assert!(!image.pixels.contains(&tokens.other), "live blocks are grey");
    }
}
