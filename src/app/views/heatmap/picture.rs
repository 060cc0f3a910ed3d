//! The picture of a fragmentation window, computed off the UI thread down to its pixels.

use std::sync::Arc;

use egui::Color32;

use super::layout;
use crate::app::data::colours::{Colours, Focus};
use crate::app::data::device::DeviceData;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Axis, shared};
use crate::app::theme::{Ramp, Tokens};
use vramscope_core::diagnose::fragmentation::Servers;
use vramscope_core::diagnose::heatmap::{Heatmap, HeatmapColumn, HeatmapSpec, HoleSizes, Shade, heatmap, hole_sizes};
use vramscope_core::model::{Action, DeviceRecording, Progress};
use vramscope_core::tables::NO_EVENT;
use vramscope_core::units::{Bytes, Micros, count};

/// What the shades of the map mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// The share of each place that is filled by blocks.
    #[default]
    Occupancy,
    /// Age of the oldest block.
    Age,
    Block,
    Hole,
    /// Free memory by the size of the holes, without addresses.
    HoleSizes,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::Occupancy, Mode::Age, Mode::Block, Mode::Hole, Mode::HoleSizes];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Occupancy => "occupancy",
            Mode::Age => "age",
            Mode::Block => "largest block",
            Mode::Hole => "largest hole",
            Mode::HoleSizes => "holes by size",
        }
    }

    fn shade(self) -> Shade {
        match self {
            Mode::Occupancy | Mode::HoleSizes => Shade::Occupancy,
            Mode::Age => Shade::OldestBlock,
            Mode::Block => Shade::LargestBlock,
            Mode::Hole => Shade::LargestHole,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub axis: Axis,
    pub from: f64,
    pub to: f64,
    /// Physical pixels.
    pub size: [usize; 2],
    pub mode: Mode,
    pub dark: bool,
    /// The failed request that holes are compared with.
    pub oom: Option<u32>,
    /// Show only segments that serve these requests; `None` for all.
    pub only: Option<Servers>,
    /// The address range; `None` for all.
    pub addresses: Option<(u64, u64)>,
    /// The focus, and the identity of the colours that its classes refer to.
    pub focus: (Focus, Identity),
}

impl Key {
    /// The pixel column at a place on the axis, if it is inside.
    pub fn column(&self, x: f64) -> Option<usize> {
        let share = (x - self.from) / (self.to - self.from);
        (0.0..1.0).contains(&share).then(|| (share * self.size[0] as f64) as usize)
    }
}

pub(super) enum Map {
    Addresses(Heatmap),
    Sizes(HoleSizes),
}

pub(super) struct Picture {
    pub key: Key,
    /// Kept alive because their identity is part of the key.
    _colours: Arc<Colours>,
    pub map: Map,
    /// For each column, the largest hole that could have served the failed request, or of all segments.
    pub strip: Vec<HeatmapColumn>,
    pub pixels: Vec<Color32>,
    /// The labels of the two ends of the ramp.
    pub ends: (String, String),
    /// Bytes of the failed request.
    pub request: Option<u64>,
    /// Marks from left to right: column, kind, event. At most one per column.
    pub marks: Vec<(usize, Mark, u32)>,
}

/// A kind of mark, in ascending order: a column shows only the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    Freed,
    /// Segments were released, and the next event took a segment or failed, so the allocator retried.
    Retry,
    Oom,
}

/// The marks of the columns between `bounds`. Reads their events once.
fn marks(device: &DeviceRecording, bounds: &[u32]) -> Vec<(usize, Mark, u32)> {
    let mut marks: Vec<(usize, Mark, u32)> = Vec::new();
    let actions = &device.events.action;
    for (column, w) in bounds.windows(2).enumerate() {
        // A window that ends at the last event includes it, because recordings often end with the failed request.
        let end = w[1] as usize;
        let is_whole = column + 2 == bounds.len() && end + 1 == actions.len();
        let (first, end) = (w[0] as usize, if is_whole { end + 1 } else { end });
        let of_event = |event: usize| {
            let mark = match actions.get(event)? {
                Action::Oom if device.events.is_refused_trial(event as u32) => return None,
                Action::Oom => Mark::Oom,
                action if action.shrinks_reserved() => {
                    let next = actions[event..].iter().find(|a| !a.shrinks_reserved());
                    let tries_again = next.is_some_and(|a| *a == Action::Oom || a.grows_reserved());
                    if tries_again { Mark::Retry } else { Mark::Freed }
                }
                _ => return None,
            };
            Some((mark, event as u32))
        };
        // Only the last release of a burst needs to look at the next event.
        let is_last = |e: &usize| actions.get(*e + 1).is_none_or(|a| !a.shrinks_reserved());
        let inner = (first..end).filter(is_last).filter_map(of_event).max();
        let at_edge = (end > first).then(|| end - 1).and_then(of_event);
        marks.extend(inner.max(at_edge).map(|(mark, event)| (column, mark, event)));
    }
    marks
}

impl Picture {
    pub fn compute(data: &DeviceData, colours: &Arc<Colours>, key: Key, progress: &Progress) -> Option<Self> {
        let device = data.device();
        let tables = &data.tables;
        let tokens = Tokens::of_theme(if key.dark { egui::Theme::Dark } else { egui::Theme::Light });
        let bounds = shared::bounds(device, key.axis, key.from, key.to, key.size[0]);
        // A failed request is compared with the segments that could serve it, not with the user's choice of segments.
        let failed = key.oom.filter(|_| key.only.is_none()).and_then(|event| Servers::of_oom(device, event));
        let request = failed.as_ref().map(|f| f.1);
        let marks = marks(device, &bounds);
        let servers = failed.map(|f| f.0);
        let mut bright = None;
        let map = if key.mode == Mode::HoleSizes {
            Map::Sizes(hole_sizes(device, tables, &bounds, key.only.as_ref(), progress).ok()?.trimmed(request))
        } else {
            let rows = key.size[1].max(1) as u32;
            let spec = HeatmapSpec { rows, shade: key.mode.shade(), servers: key.only, addresses: key.addresses };
            let map = heatmap(device, tables, &bounds, spec, None, progress).ok()?;
            let focus = &key.focus.0;
            if !focus.is_all() && key.mode != Mode::Hole {
                let is_bright = |id, event| {
                    let at = if event == NO_EVENT { 0 } else { event };
                    !focus.dims(data, id) && !focus.dims_class(colours.class_of(data, id, at))
                };
                bright = Some(heatmap(device, tables, &bounds, spec, Some(&is_bright), progress).ok()?);
            }
            Map::Addresses(map)
        };
        let strip = match (&map, servers) {
            (_, Some(servers)) => hole_sizes(device, tables, &bounds, Some(&servers), progress).ok()?.columns,
            (Map::Sizes(sizes), None) => sizes.columns.clone(),
            (Map::Addresses(map), None) => map.columns.clone(),
        };
        let (pixels, ends) = match &map {
            Map::Sizes(sizes) => size_pixels(sizes, key.size, tokens),
            Map::Addresses(map) => address_pixels(device, map, bright.as_ref(), &strip, &key, tokens),
        };
        Some(Picture { _colours: Arc::clone(colours), key, map, strip, pixels, ends, request, marks })
    }

    /// True when nothing was reserved in the window.
    pub fn is_empty(&self) -> bool {
        match &self.map {
            Map::Addresses(map) => map.total == 0,
            Map::Sizes(sizes) => sizes.columns.iter().all(|c| c.reserved == 0),
        }
    }

    /// The largest hole within the window.
    pub fn largest(&self) -> u64 {
        self.strip.iter().map(|c| c.largest_hole).max().unwrap_or(0)
    }
}

/// Pixels between lines of the hatch.
const HATCH: usize = 5;
/// A largest hole higher than this many pixels is outlined and not filled.
const TALL: usize = 6;

/// Pixels of an address map: the shade of each cell, with the largest hole of each column on top. With `bright` the shades are
/// those of the blocks in focus, and other contents are dimmed to a quarter.
fn address_pixels(
    device: &DeviceRecording,
    map: &Heatmap,
    bright: Option<&Heatmap>,
    strip: &[HeatmapColumn],
    key: &Key,
    tokens: &Tokens,
) -> (Vec<Color32>, (String, String)) {
    let [width, height] = key.size;
    let mut pixels = vec![Color32::TRANSPARENT; width * height];
    let greatest = map.cells.iter().copied().filter(|v| v.is_finite()).fold(0.0f32, f32::max);
    let scale = Scale::of(key.mode, greatest);
    let ramp = scale.ramp.table(tokens, 256);
    let columns = map.columns.len();
    if map.rows > 0 && columns == width {
        for y in 0..height {
            let row = y * map.rows / height * columns;
            let cells = &map.cells[row..][..columns];
            let in_focus = bright.and_then(|b| b.cells.get(row..row + columns));
            for (x, (pixel, &value)) in pixels[y * width..][..width].iter_mut().zip(cells).enumerate() {
                let shade = |value: f32| ramp[(scale.share(value) * 255.0) as usize];
                // Unreserved memory stays blank and free memory is hatched, as in other views.
                match in_focus.map(|b| b[x]) {
                    Some(bright) if bright > 0.0 => *pixel = shade(bright),
                    Some(_) if value > 0.0 => *pixel = Tokens::at(shade(value), 0.25),
                    None if value > 0.0 => *pixel = shade(value),
                    _ if value.is_nan() => {}
                    _ if key.mode != Mode::Hole && (x + y).is_multiple_of(HATCH) => *pixel = tokens.hatch_large,
                    _ => *pixel = tokens.s1,
                }
            }
        }
        for (x, column) in strip.iter().enumerate().take(width).filter(|(_, c)| c.largest_hole > 0) {
            let Some(offset) = map.offset_of(column.largest_hole_address) else { continue };
            let (low, high) = map.shown;
            let (from, to) = (offset.max(low), (offset + column.largest_hole).min(high));
            if from >= to {
                continue;
            }
            let share = |offset: u64| (offset - low) as f64 / (high - low) as f64;
            let rows = layout::rows_of(share(from), share(to), height, 2);
            // A high hole gets edges and a veil; a solid fill would look like the fullest place.
            let is_tall = rows.len() > TALL;
            for y in rows.clone() {
                let is_edge = y == rows.start || y + 1 == rows.end;
                let share = if !is_tall || is_edge { 1.0 } else { 0.14 };
                let pixel = &mut pixels[y * width + x];
                *pixel = Tokens::over(tokens.text1, *pixel, share);
            }
        }
    }
    (pixels, scale.ends(device))
}

/// Shades are logarithmic over this many powers of two below the largest amount of free bytes. Any amount gets at least three
/// tenths of the ramp.
const OCTAVES: f64 = 16.0;

/// Pixels of holes by size, large holes at the top. The shade is the number of bytes in them.
fn size_pixels(sizes: &HoleSizes, [width, height]: [usize; 2], tokens: &Tokens) -> (Vec<Color32>, (String, String)) {
    let mut pixels = vec![Color32::TRANSPARENT; width * height];
    let most = sizes.bytes.iter().copied().max().unwrap_or(0);
    let ramp = Ramp::Heat.table(tokens, 256);
    let (classes, columns) = (sizes.classes.len(), sizes.columns.len());
    if classes > 0 && columns == width {
        for y in 0..height {
            let class = classes - 1 - y * classes / height;
            for x in 0..width {
                let bytes = sizes.bytes[class * columns + x];
                if bytes > 0 {
                    // Logarithmic, because free memory in small holes must be visible beside one hole of many MiB.
                    let share = 1.0 + (bytes as f64 / most as f64).log2() / OCTAVES;
                    pixels[y * width + x] = ramp[((0.3 + 0.7 * share.clamp(0.0, 1.0)) * 255.0) as usize];
                }
            }
        }
    }
    (pixels, ("nothing".to_owned(), Bytes(most).to_string()))
}

/// Maps a value to a ramp.
struct Scale {
    mode: Mode,
    ramp: Ramp,
    greatest: f32,
}

impl Scale {
    fn of(mode: Mode, greatest: f32) -> Self {
        let ramp = if matches!(mode, Mode::Occupancy | Mode::HoleSizes) { Ramp::Heat } else { Ramp::Size };
        Scale { mode, ramp, greatest: greatest.max(f32::MIN_POSITIVE) }
    }

    fn share(&self, value: f32) -> f32 {
        let share = match self.mode {
            Mode::Occupancy | Mode::HoleSizes => value,
            // Ages and sizes span orders of magnitude, so the scale is logarithmic from 1/4096 of the greatest value up.
            _ => 1.0 + (value / self.greatest).log2() / 12.0,
        };
        share.clamp(0.0, 1.0)
    }

    fn ends(&self, device: &DeviceRecording) -> (String, String) {
        let whole = self.greatest as u64;
        match self.mode {
            Mode::Occupancy | Mode::HoleSizes => ("empty".to_owned(), "full".to_owned()),
            Mode::Age if device.events.has_time => ("young".to_owned(), Micros(whole as i64).to_string()),
            Mode::Age => ("young".to_owned(), format!("{} events", count(whole))),
            Mode::Block | Mode::Hole => (Bytes(whole / 4096).to_string(), Bytes(whole).to_string()),
        }
    }
}

/// The event to show for a column; never [`NO_EVENT`].
pub(super) fn event_of(column: &HeatmapColumn) -> u32 {
    if column.event == NO_EVENT { 0 } else { column.event }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::toys::device_with;

    #[test]
    fn small_sizes_keep_a_shade_and_the_greatest_is_the_end() {
        let s = Scale::of(Mode::Hole, 4096.0);
        assert_eq!((s.share(4096.0), s.share(1.0), s.share(0.1)), (1.0, 0.0, 0.0));
        assert!((s.share(64.0) - 0.5).abs() < 1e-6);
        let s = Scale::of(Mode::Occupancy, 1.0);
        assert_eq!((s.share(0.25), s.share(2.0)), (0.25, 1.0));
    }

    #[test]
    fn a_place_is_in_the_column_that_covers_it() {
        let key = Key {
            axis: Axis::Event,
            from: 100.0,
            to: 200.0,
            size: [50, 10],
            mode: Mode::Occupancy,
            dark: true,
            oom: None,
            only: None,
            addresses: None,
            focus: (Focus::default(), Identity::of(&Arc::new(0))),
        };
        assert_eq!((key.column(100.0), key.column(199.9), key.column(200.0), key.column(99.9)), (Some(0), Some(49), None, None));
    }

    #[test]
    fn holes_by_size_begin_and_end_with_a_hole_or_the_request() {
        let sizes = || HoleSizes {
            classes: vec![512, 1024, 2048, 4096],
            columns: vec![
                HeatmapColumn {
                    event: 0,
                    reserved: 4096,
                    occupied: 0,
                    free: 1024,
                    holes: 1,
                    largest_hole: 1024,
                    largest_hole_address: 0
                };
                2
            ],
            bytes: vec![0, 0, 0, 1024, 0, 0, 0, 0],
            counts: vec![0, 0, 0, 1, 0, 0, 0, 0],
        };
        assert_eq!((sizes().trimmed(None).classes, sizes().trimmed(None).bytes), (vec![1024], vec![0, 1024]));
        let with_request = sizes().trimmed(Some(10_000));
        assert_eq!(with_request.classes, [1024, 2048, 4096, 8192]);
        assert_eq!((with_request.bytes.len(), with_request.counts.len(), with_request.counts[1]), (8, 8, 1));
        assert_eq!(sizes().trimmed(Some(600)).classes, [512, 1024]);
    }

    #[test]
    fn a_mark_knows_the_event_that_the_cursor_stands_on() {
        let device = device_with((0..21).map(|i| (i, if i == 20 { Action::Oom } else { Action::Alloc })));
        // The column in which the event begins is wide, and the line is in the middle of the event.
        assert_eq!(marks(&device, &[0, 5, 20, 20, 21]), [(3, Mark::Oom, 20)]);
    }

    #[test]
    fn holes_by_size_put_the_largest_class_on_top() {
        let column = HeatmapColumn {
            event: 0,
            reserved: 4096,
            occupied: 0,
            free: 1536,
            holes: 2,
            largest_hole: 1024,
            largest_hole_address: 0,
        };
        let sizes = HoleSizes { classes: vec![512, 1024], columns: vec![column], bytes: vec![0, 1024], counts: vec![0, 1] };
        let (pixels, ends) = size_pixels(&sizes, [1, 4], Tokens::of_theme(egui::Theme::Dark));
        let full = Tokens::of_theme(egui::Theme::Dark).heat[5];
        assert_eq!(pixels, [full, full, Color32::TRANSPARENT, Color32::TRANSPARENT]);
        assert_eq!(ends.1, Bytes(1024).to_string());
    }
}
