//! The lane of bytes by category, stacked, from a memory timeline.

use std::sync::Arc;

use egui::{Align2, Color32, Pos2, Rect};

use super::lane::{Hit, Lane, Shared};
use crate::app::jobs::Derived;
use crate::app::theme::{Tokens, Type};
use crate::app::views::ViewContext;
use crate::app::views::timeline::layout::{Contents, NAMES, Track};
use crate::app::views::timeline::marks::Marks;
use crate::app::views::timeline::paint::Canvas;
use crate::app::views::timeline::picture::Window;
use crate::app::widgets::{Batch, Cut, Scale, Swatch, Tip, label};
use vramscope_core::anatomy::roles::Role;
use vramscope_core::model::{CATEGORIES, CategoryBands, DeviceRecording};
use vramscope_core::units::Bytes;

#[derive(Default)]
pub(super) struct Categories {
    summing: Derived<Window, BandsPicture>,
    picture: Option<Arc<BandsPicture>>,
}

impl Lane for Categories {
    fn track(&self) -> Track {
        Track::Bands
    }

    fn height(&mut self, cx: &ViewContext<'_>, _marks: Option<&Marks>, contents: &mut Contents) {
        let device = cx.data.device();
        let chosen = cx.shared.tracks.is_folded(Track::Bands);
        contents.bands = !device.bands.is_empty() && device.events.has_time;
        contents.bands_lead = !cx.data.knows_reserved();
        contents.bands_opened = chosen == Some(false);
        // A snapshot shows its live blocks by role on request, which tells more than these sums, so the lane is folded.
        contents.folded[Track::Bands as usize] = chosen.unwrap_or(device.has_final_state);
    }

    fn prepare(&mut self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, _shared: &Shared) {
        let (data, window) = (Arc::clone(cx.data), canvas.window);
        let job = move |_: &_| Some(of_window(data.device(), window));
        self.picture = self.summing.get(cx.jobs, "timeline bands", &window, job).value;
    }

    fn paint(&self, cx: &ViewContext<'_>, canvas: &Canvas<'_>, rect: Rect) {
        if let Some(picture) = &self.picture {
            canvas.bands(rect, picture, at_event(cx.data.device(), cx.shared.cursor), 0.0);
        }
    }

    fn hit(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Hit> {
        canvas.band_at(rect, self.picture.as_ref()?, at).map(|_| Hit::told(self.track()))
    }

    fn tooltip(&self, canvas: &Canvas<'_>, rect: Rect, at: Pos2) -> Option<Tip> {
        let (category, row) = canvas.band_at(rect, self.picture.as_ref()?, at)?;
        Some(tip(canvas.tokens, category, &row, None))
    }
}

/// Bytes by category in each column of a window, at the instant with the highest sum in the column.
pub(in crate::app::views::timeline) struct BandsPicture {
    pub window: Window,
    /// `None` before the first row of the file.
    pub columns: Vec<Option<[u64; CATEGORIES.len()]>>,
    /// The highest sum within the window.
    pub top: u64,
    /// Categories that are ever non-zero in the recording, in stacking order.
    pub used: Vec<usize>,
    /// The same categories, largest first, as in the legend.
    pub by_size: Vec<usize>,
}

impl BandsPicture {
    /// `bounds_us` are the times of the column borders. O(rows of the window + columns × log rows).
    pub fn compute(bands: &CategoryBands, window: Window, bounds_us: &[i64]) -> Self {
        let sum = |row: &[u64; CATEGORIES.len()]| row.iter().fold(0u64, |s, &b| s.saturating_add(b));
        let column = |w: &[i64]| {
            // The row in force when the column begins, and every change within it.
            let from = bands.time_us.partition_point(|&t| t <= w[0]);
            let to = bands.time_us.partition_point(|&t| t < w[1]).max(from);
            let rows = from.checked_sub(1).into_iter().chain(from..to);
            rows.filter_map(|i| bands.bytes.get(i)).copied().max_by_key(sum)
        };
        let columns: Vec<_> = bounds_us.windows(2).map(column).collect();
        let top = columns.iter().flatten().map(sum).max().unwrap_or(0);
        let mut used: Vec<usize> = (0..CATEGORIES.len()).filter(|&c| bands.bytes.iter().any(|row| row[c] > 0)).collect();
        used.sort_by_key(|&c| STACKING.iter().position(|&s| s == c));
        let most = |c: usize| bands.bytes.iter().map(|row| row[c]).max().unwrap_or(0);
        let mut by_size = used.clone();
        by_size.sort_by_key(|&c| std::cmp::Reverse(most(c)));
        BandsPicture { window, columns, top, used, by_size }
    }
}

/// Categories bottom up. Long-lived ones come first, so that the others are stacked on a steady base.
const STACKING: [usize; CATEGORIES.len()] = [0, 1, 2, 5, 4, 6, 3, 7];

/// The colour of a category: the same slot as in all views.
fn colour(t: &Tokens, category: usize) -> Color32 {
    const SLOTS: [usize; 7] = [0, 3, 4, 5, 2, 1, 6];
    SLOTS.get(category).map_or(t.other, |&slot| t.slot(slot))
}

/// The name as the rest of the window writes it; PyTorch's file has the singular.
fn name(category: usize) -> String {
    match CATEGORIES.get(category) {
        Some(&"temporary") => Role::Temporaries.text().to_owned(),
        Some(&one @ ("parameter" | "input" | "activation" | "gradient")) => format!("{one}s"),
        Some(other) => other.replace('_', " "),
        None => String::new(),
    }
}

impl Canvas<'_> {
    /// Draws the track. `at` are the values to show beside the names. `reserved` points at the right of the legend stay free.
    pub fn bands(&self, rect: Rect, picture: &BandsPicture, at: Option<[u64; CATEGORIES.len()]>, reserved: f32) {
        let t = self.tokens;
        if picture.window.axis != self.window.axis {
            return;
        }
        let plot = rect.with_min_y(rect.top() + NAMES);
        let y = band_scale(picture, plot);
        self.byte_axis(plot, &y, "Categories");
        self.band_names(rect.with_max_y(plot.top()).with_max_x(rect.right() - reserved), picture, at);
        let painter = self.within(plot);
        let sources = self.sources(&picture.window);
        let mut below = vec![0u64; sources.len()];
        let mut batch = Batch::new(&painter);
        for &category in &picture.used {
            let bytes = |i: usize| Some(sources[i].and_then(|s| picture.columns.get(s)).copied().flatten()?[category]);
            let columns = self.stack(&y, &mut below, bytes);
            batch.bands(columns.into_iter(), plot.left(), colour(t, category));
        }
        batch.hline(plot.x_range(), plot.bottom(), 1.0, t.line2);
        batch.paint(&painter);
    }

    /// Draws the legend above the bands, with the values of one instant.
    fn band_names(&self, row: Rect, picture: &BandsPicture, at: Option<[u64; CATEGORIES.len()]>) {
        let t = self.tokens;
        let mut x = row.left();
        for (i, &category) in picture.by_size.iter().enumerate() {
            // A category without bytes gets no figure, but stays in the legend.
            let value = at.map(|b| b[category]).filter(|&b| b > 0).map(|b| Bytes(b).to_string()).unwrap_or_default();
            let name = name(category);
            let width = self.part_width(&name, &value);
            let left = picture.by_size.len() - i;
            let text = format!("+{left}");
            // The last one needs no space for a "+n" after it.
            let rest = if left > 1 { 16.0 + label::width(self.painter, &text, Type::Mono) } else { 0.0 };
            if x + width + rest > row.right() {
                label::text(self.painter, row.middle(x), Align2::LEFT_CENTER, &text, Type::Mono, t.text3);
                break;
            }
            self.part_name(row, x, Swatch::Fill(colour(t, category)), &name, &value);
            x += width + 16.0;
        }
    }

    /// The category at a point of the track, and the values of its column.
    pub fn band_at(&self, rect: Rect, picture: &BandsPicture, p: egui::Pos2) -> Option<(Option<usize>, [u64; CATEGORIES.len()])> {
        let plot = rect.with_min_y(rect.top() + NAMES);
        if !plot.contains(p) || picture.window.axis != self.window.axis {
            return None;
        }
        let row = picture.columns.get(picture.window.column(self.x.value(p.x))?).copied().flatten()?;
        let bytes = band_scale(picture, plot).value(p.y);
        let mut top = 0u64;
        let category = picture.used.iter().copied().find(|&c| {
            top = top.saturating_add(row[c]);
            bytes < top as f64 && row[c] > 0
        });
        Some((category, row))
    }
}

fn band_scale(picture: &BandsPicture, plot: Rect) -> Scale {
    Scale::vertical(0.0, (picture.top.max(512) as f64) * 1.04, plot.y_range())
}

/// The values of one instant, the category under the pointer first.
pub(in crate::app::views::timeline) fn tip(
    t: &Tokens,
    category: Option<usize>,
    row: &[u64; CATEGORIES.len()],
    when: Option<String>,
) -> Tip {
    let sum = row.iter().fold(0u64, |s, &b| s.saturating_add(b));
    let mut tip = match category {
        Some(c) => Tip::new(format!("{}, {}", name(c), Bytes(row[c]))).swatch(colour(t, c)),
        None => Tip::new(Bytes(sum).to_string()),
    };
    for (c, &bytes) in row.iter().enumerate().filter(|&(c, &b)| b > 0 && Some(c) != category) {
        tip = tip.row(name(c), Bytes(bytes).to_string());
    }
    tip = tip.row("together", Bytes(sum).to_string());
    if let Some(when) = when {
        tip = tip.row("time", when);
    }
    tip.note("A column shows the instant in it with most bytes.")
}

fn of_window(device: &DeviceRecording, window: Window) -> BandsPicture {
    let bounds: Vec<i64> = window.times_ns(device).into_iter().map(|ns| ns.div_euclid(1_000)).collect();
    BandsPicture::compute(&device.bands, window, &bounds)
}

/// The values in force at an event.
fn at_event(device: &DeviceRecording, event: u32) -> Option<[u64; CATEGORIES.len()]> {
    let time = *device.events.time_us.get(event as usize)?;
    device.bands.at(time).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::shared::Axis;

    #[test]
    fn a_column_shows_its_peak() {
        let mut bands = CategoryBands::default();
        for (t, parameter, gradient) in [(10, 5, 0), (20, 5, 90), (21, 5, 0), (90, 6, 1)] {
            bands.time_us.push(t);
            bands.bytes.push([parameter, 0, 0, 0, 0, gradient, 0, 0]);
        }
        let window = Window { axis: Axis::Time, from: 0.0, to: 100.0, columns: 4 };
        let p = BandsPicture::compute(&bands, window, &[0, 25, 50, 75, 100]);
        let sums: Vec<_> = p.columns.iter().map(|c| c.map(|r| r.iter().sum::<u64>())).collect();
        assert_eq!(sums, [Some(95), Some(5), Some(5), Some(7)]);
        assert_eq!((p.top, p.used, p.by_size), (95, vec![0, 5], vec![5, 0]));
        let before = BandsPicture::compute(&bands, window, &[0, 5]);
        assert_eq!(before.columns, [None]);
    }
}
