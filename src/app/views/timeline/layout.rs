//! Layout of the timeline's tracks and ranges of their values. Only arithmetic.

use egui::{Rangef, Rect};

use crate::app::state::TrackLayout;
use vramscope_core::tables::Cell;

/// Height of the overview.
const OVERVIEW: f32 = 34.0;
/// Height of the overview in a low pane, enough to see and drag the window.
const OVERVIEW_LOW: f32 = 18.0;
/// Space above and below the overview; the second value is for a low pane.
const OVERVIEW_MARGIN: f32 = 6.0;
const OVERVIEW_MARGIN_LOW: f32 = 4.0;
const AXIS: f32 = 20.0;
/// Additional height for a second line of axis labels.
const AXIS_SECOND: f32 = 14.0;
/// Usual height of the curves.
const CURVES: f32 = 96.0;
/// Least usual height of the curves when there are operators.
const CURVES_BESIDE_OPS: f32 = 60.0;
/// Below this height a pane with operators shows one level of annotations less, and no phases.
const LOW_PANE: f32 = 400.0;
/// Least height of the strata.
const STRATA_LEAST: f32 = 56.0;
/// Height that the strata keep before other lanes, where the pane allows it. Single blocks can then be told apart.
const STRATA_COMFORT: f32 = 120.0;
/// The same when there are steps and phases.
const STRATA_BESIDE_PHASES: f32 = 100.0;
/// Height that the strata keep before categories and additional operator lines.
const STRATA_WANTED: f32 = 72.0;
/// Least pane height for a second line of axis labels.
const TWO_LINES_LEAST: f32 = 160.0;
/// Height of one level of annotations.
pub(super) const STEP: f32 = 16.0;
/// Space between lanes of boxes.
const LANE_GAP: f32 = 6.0;
/// Height of the lane of device calls.
const DEVICE: f32 = 14.0;
/// Height of a line of operators.
pub(super) const OP_LINE: f32 = 13.0;
/// Height of the text under the operators that counts folded ones.
pub(super) const OP_WORDS: f32 = 14.0;
/// Least number of operator lines.
const OP_LINES_LEAST: usize = 2;
/// Operator lines that come before additional height of the strata: two threads' first levels, launches, a stream.
const OP_LINES_WANTED: usize = 6;
/// Height of the legend.
pub(super) const LEGEND: f32 = 24.0;
/// Levels of annotations that are drawn; deeper ones are counted.
pub(super) const STEP_LEVELS: usize = 3;

pub(super) const TRACKS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Track {
    Overview,
    Curves,
    Steps,
    Device,
    Ops,
    Bands,
    Card,
    Phases,
}

impl Track {
    pub const ALL: [Track; TRACKS] =
        [Track::Overview, Track::Curves, Track::Steps, Track::Device, Track::Ops, Track::Bands, Track::Card, Track::Phases];

    pub fn name(self) -> &'static str {
        match self {
            Track::Overview => "Overview",
            Track::Curves => "Curves",
            Track::Steps => "Steps",
            Track::Device => "Device",
            Track::Ops => "Operators",
            Track::Bands => "Categories",
            Track::Card => "Whole card",
            Track::Phases => "Phases",
        }
    }
}

/// Which tracks the user folded, in the order of [`Track::ALL`].
pub(super) fn folded_of(layout: &TrackLayout) -> [bool; TRACKS] {
    let [overview, curves, steps, device] = layout.folded;
    [overview, curves, steps, device, layout.fold_ops, layout.fold_bands == Some(true), layout.fold_card, layout.fold_phases]
}

pub(super) fn set_folded(layout: &mut TrackLayout, track: Track, is_folded: bool) {
    match track {
        Track::Overview | Track::Curves | Track::Steps | Track::Device => layout.folded[track as usize] = is_folded,
        Track::Ops => layout.fold_ops = is_folded,
        Track::Bands => layout.fold_bands = Some(is_folded),
        Track::Card => layout.fold_card = is_folded,
        Track::Phases => layout.fold_phases = is_folded,
    }
}

/// Least height of the categories when the user opened them: their names and a low plot.
const BANDS_LEAST: f32 = 56.0;
/// Least height of the curves in a low pane.
const CURVES_LEAST: f32 = 48.0;
/// Index of the curves among the parts that a low pane drops in order. From [`LOWER_CURVES_FROM`] on, the curves shrink before
/// more is dropped.
const CURVES_PART: usize = 6;
/// Indices of steps, phases, overview and axis in the same order.
const STEPS_PART: usize = CURVES_PART - 1;
const PHASES_PART: usize = CURVES_PART - 2;
const OVERVIEW_PART: usize = CURVES_PART + 1;
const AXIS_PART: usize = CURVES_PART + 3;
const LOWER_CURVES_FROM: usize = 2;
/// Index of the categories.
const BANDS_PART: usize = 0;

/// Height of the legend line above the bands of categories and of the card.
pub(super) const NAMES: f32 = 18.0;
pub(super) const FOLDED: f32 = 16.0;

/// What the recording has to show, and what the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// Which tracks are folded, in the order of [`Track::ALL`].
    pub folded: [bool; TRACKS],
    /// The axis has two lines of labels: event and time.
    pub two_line_axis: bool,
    /// Levels of annotations; 0 means no lane.
    pub step_levels: usize,
    /// Phases could be derived from call stacks.
    pub phases: bool,
    pub device_calls: bool,
    /// Height that the user gave the curves.
    pub curves_height: Option<f32>,
    /// Number of operator lines; 0 means no lane.
    pub op_lines: usize,
    /// Height that the user gave the operators.
    pub ops_height: Option<f32>,
    pub bands: bool,
    /// The file is a memory timeline: it was written for its categories and has no segments.
    pub bands_lead: bool,
    /// The user opened the categories.
    pub bands_opened: bool,
    pub card: bool,
}

impl Contents {
    fn has(&self, track: Track) -> bool {
        match track {
            Track::Overview | Track::Curves => true,
            Track::Steps => self.step_levels > 0,
            Track::Device => self.device_calls,
            Track::Ops => self.op_lines > 0,
            Track::Bands => self.bands,
            Track::Card => self.card,
            Track::Phases => self.phases,
        }
    }
}

/// The rectangles of the tracks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tracks {
    /// The horizontal extent of every plot.
    pub x: Rangef,
    pub axis: Option<Rect>,
    pub strata: Rect,
    pub legend: Option<Rect>,
    /// In the order of [`Track::ALL`]; a track without room, or folded, has none.
    open: [Option<Rect>; TRACKS],
    /// The names of folded tracks, in the same order.
    pub folded: [Option<Rect>; TRACKS],
}

impl Tracks {
    pub fn open(&self, track: Track) -> Option<Rect> {
        self.open[track as usize]
    }

    /// Tracks that have contents but no room, not even for their names.
    pub fn hidden(&self, contents: &Contents) -> Vec<Track> {
        let is_hidden = |t: &Track| contents.has(*t) && self.open(*t).is_none() && self.folded[*t as usize].is_none();
        Track::ALL.into_iter().filter(is_hidden).collect()
    }

    /// A single plot without any other track.
    pub fn of_one(x: Rangef, plot: Rect) -> Self {
        Tracks { x, axis: None, strata: plot, legend: None, open: [None; TRACKS], folded: [None; TRACKS] }
    }

    /// Number of operator lines that fit.
    pub fn op_lines(&self) -> usize {
        self.open(Track::Ops).map_or(0, |rect| ((rect.height() - OP_WORDS) / OP_LINE + 0.01).max(0.0) as usize)
    }

    /// From the axis to the last lane: where a horizontal position means a time.
    pub fn canvas(&self) -> Rect {
        let top = self.axis.or(self.open(Track::Curves)).unwrap_or(self.strata).top();
        let lanes = [Track::Ops, Track::Device, Track::Phases, Track::Steps, Track::Bands, Track::Card];
        let bottom = lanes.into_iter().find_map(|track| self.open(track)).unwrap_or(self.strata).bottom();
        Rect::from_x_y_ranges(self.x, top..=bottom)
    }
}

/// Divides a pane into tracks. A low pane drops parts in this order: categories, the whole card, operators (which get as many
/// lines as fit), device calls, phases, annotations, curves (after the overview and the axis shrank), overview, legend (late,
/// because colours mean nothing without it), axis. Phases and annotations return when shrinking the curves made room. Categories
/// that the user opened, or that the file was written for, shrink and are dropped only before the legend; otherwise their name
/// stays.
pub(super) fn tracks(pane: Rect, contents: Contents) -> Tracks {
    let gutter = if pane.width() >= 560.0 { 100.0 } else { 76.0 };
    let x = Rangef::new(pane.left() + gutter, (pane.right() - 18.0).max(pane.left() + gutter + 1.0));
    let is_two_lines = contents.two_line_axis && pane.height() >= TWO_LINES_LEAST;
    let mut axis_height = AXIS + if is_two_lines { AXIS_SECOND } else { 0.0 };
    // Users open such a trace for its operators, so the other tracks make room for them.
    let has_ops = contents.op_lines > 0 && !contents.folded[Track::Ops as usize];
    let levels = if has_ops && pane.height() < LOW_PANE { STEP_LEVELS - 1 } else { STEP_LEVELS };
    let steps_height = STEP * contents.step_levels.min(levels) as f32;
    // Operators say more than phases about what the program did.
    let has_phases = contents.phases && !(has_ops && pane.height() < LOW_PANE);
    let usual = if has_ops {
        (pane.height() * 0.16).clamp(CURVES_BESIDE_OPS, CURVES)
    } else if contents.bands && contents.bands_lead {
        // There is only one curve, the upper edge of the bands.
        (pane.height() * 0.12).clamp(CURVES_LEAST, CURVES)
    } else {
        (pane.height() * 0.18).clamp(CURVES, 1.75 * CURVES)
    };
    let curves_height = contents.curves_height.unwrap_or(usual).clamp(32.0, (pane.height() * 0.6).max(32.0));
    let or_folded = |track: Track, height: f32| if contents.folded[track as usize] { FOLDED } else { height };
    let (mut overview_height, mut overview_margin) = (or_folded(Track::Overview, OVERVIEW), OVERVIEW_MARGIN);
    let wanted_curves = or_folded(Track::Curves, curves_height);
    let mut curves_height = wanted_curves;
    let mut steps_height = or_folded(Track::Steps, steps_height);
    let phases_height = or_folded(Track::Phases, STEP);
    let device_height = or_folded(Track::Device, DEVICE);
    let bands_wanted =
        if contents.bands_lead { (pane.height() * 0.32).clamp(72.0, 280.0) } else { (pane.height() * 0.16).clamp(64.0, 120.0) };
    let mut bands_height = or_folded(Track::Bands, bands_wanted);
    let mut folded = contents.folded;
    let are_bands_asked = (contents.bands_opened || contents.bands_lead) && !folded[Track::Bands as usize];
    let card_height = or_folded(Track::Card, (pane.height() * 0.13).clamp(48.0, 150.0));
    let least_lines = contents.op_lines.min(OP_LINES_LEAST);
    let least_ops = or_folded(Track::Ops, OP_LINE * least_lines as f32 + OP_WORDS);
    let mut parts = [
        (contents.bands, bands_height + 8.0),
        (contents.card, card_height + 8.0),
        (contents.op_lines > 0, least_ops + 6.0),
        (contents.device_calls, device_height + 6.0),
        (has_phases, phases_height + LANE_GAP),
        (contents.step_levels > 0, steps_height + 8.0),
        (true, curves_height + 10.0),
        (true, overview_height + 2.0 * overview_margin),
        (true, LEGEND + 6.0),
        (true, axis_height + 1.0),
    ];
    // With other lanes the strata may be low; without them they are the main picture.
    let has_more = has_ops || contents.bands || contents.card;
    // Steps and phases explain the strata and are worth some of their height.
    let comfort = if has_phases { STRATA_BESIDE_PHASES } else { STRATA_COMFORT };
    let least = if has_more { STRATA_LEAST } else { (pane.height() * 0.42).clamp(STRATA_LEAST, comfort) };
    // Keeps six points under the last lane when the legend is dropped.
    let room = pane.height() - least - 6.0;
    for i in 0..parts.len() {
        let mut used: f32 = parts.iter().filter(|p| p.0).map(|p| p.1).sum();
        if i >= LOWER_CURVES_FROM && parts[CURVES_PART].0 && used > room {
            let lower = (curves_height - (used - room)).max(CURVES_LEAST.min(curves_height));
            used -= curves_height - lower;
            parts[CURVES_PART].1 = lower + 10.0;
            curves_height = lower;
        }
        if i == CURVES_PART && used > room {
            overview_height = overview_height.min(OVERVIEW_LOW);
            overview_margin = OVERVIEW_MARGIN_LOW;
            used -= parts[OVERVIEW_PART].1;
            parts[OVERVIEW_PART].1 = overview_height + 2.0 * overview_margin;
            used += parts[OVERVIEW_PART].1;
        }
        if i == CURVES_PART && used > room && is_two_lines {
            // Drop the line of times and keep the events.
            axis_height = AXIS;
            used -= AXIS_SECOND;
            parts[AXIS_PART].1 = axis_height + 1.0;
        }
        // Categories and the card add detail to the strata, so they must not take the height that the strata want.
        let missing = used - (room - if i < 2 { STRATA_WANTED - STRATA_LEAST } else { 0.0 });
        if missing <= 0.0 {
            break;
        }
        if i == BANDS_PART && are_bands_asked {
            bands_height = (bands_height - missing).max(BANDS_LEAST);
            parts[BANDS_PART].1 = bands_height + 8.0;
            continue;
        }
        if i == BANDS_PART && parts[BANDS_PART].0 && bands_height - FOLDED >= missing {
            // A click on the name opens it again.
            bands_height = FOLDED;
            folded[Track::Bands as usize] = true;
            parts[BANDS_PART].1 = bands_height + 8.0;
            break;
        }
        if i > CURVES_PART && parts[BANDS_PART].0 {
            parts[BANDS_PART].0 = false;
            if missing <= parts[BANDS_PART].1 {
                break;
            }
        }
        parts[i].0 = false;
    }
    // Strata without steps and phases are hard to read, so overview, axis and curves shrink to make room for them.
    if has_phases && !parts[PHASES_PART].0 && parts[OVERVIEW_PART].0 {
        let steps_low = if contents.step_levels > 0 { steps_height.min(STEP) } else { 0.0 };
        let low = [
            (OVERVIEW_PART, overview_height.min(OVERVIEW_LOW) + 2.0 * OVERVIEW_MARGIN_LOW),
            (AXIS_PART, AXIS + 1.0),
            (CURVES_PART, curves_height.min(CURVES_LEAST) + 10.0),
            (STEPS_PART, if contents.step_levels > 0 { steps_low + 8.0 } else { 0.0 }),
            (PHASES_PART, parts[PHASES_PART].1),
        ];
        let is_low = |i: usize| low.iter().any(|(part, _)| *part == i);
        let others: f32 = (0..parts.len()).filter(|&i| parts[i].0 && !is_low(i)).map(|i| parts[i].1).sum();
        if others + low.iter().map(|l| l.1).sum::<f32>() <= room {
            (overview_height, overview_margin) = (overview_height.min(OVERVIEW_LOW), OVERVIEW_MARGIN_LOW);
            axis_height = AXIS;
            curves_height = curves_height.min(CURVES_LEAST);
            steps_height = steps_low;
            low.iter().for_each(|&(part, height)| parts[part] = (height > 0.0, height));
        }
    }
    // Other parts that were dropped may leave room for the steps, or for their first level.
    let used: f32 = parts.iter().filter(|p| p.0).map(|p| p.1).sum();
    let fitting = [steps_height, steps_height.min(STEP)].into_iter().find(|height| used + height + 8.0 <= room);
    if !parts[STEPS_PART].0
        && parts[OVERVIEW_PART].0
        && contents.step_levels > 0
        && let Some(height) = fitting
    {
        steps_height = height;
        parts[STEPS_PART] = (true, height + 8.0);
    }
    // They may also leave room for the second axis line and for higher curves.
    let used: f32 = parts.iter().filter(|p| p.0).map(|p| p.1).sum();
    if is_two_lines && axis_height <= AXIS && parts[AXIS_PART].0 && used + AXIS_SECOND <= room {
        axis_height += AXIS_SECOND;
        parts[AXIS_PART].1 += AXIS_SECOND;
    }
    if parts[CURVES_PART].0 {
        let used: f32 = parts.iter().filter(|p| p.0).map(|p| p.1).sum();
        curves_height += (room - used).clamp(0.0, (wanted_curves - curves_height).max(0.0));
        parts[CURVES_PART].1 = curves_height + 10.0;
    }
    let left_over = room - parts.iter().filter(|p| p.0).map(|p| p.1).sum::<f32>();
    let [bands, card, ops, device, phases, steps, curves, overview, legend, axis] = parts.map(|(is_there, _)| is_there);
    // Remaining height goes to the operators until the wanted lines fit, then half of it; or as much as the user chose.
    let spare = (left_over - (STRATA_WANTED - STRATA_LEAST)).max(0.0);
    let wanted = OP_LINES_WANTED - OP_LINES_LEAST;
    let lines_of = |height: f32| (height / OP_LINE).max(0.0) as usize;
    let more_lines = match contents.ops_height {
        Some(height) => lines_of(height - OP_WORDS + OP_LINE / 2.0).saturating_sub(least_lines).min(lines_of(left_over)),
        None => lines_of(spare).min(wanted.max(lines_of(left_over * 0.5))),
    };
    let more_lines = more_lines.min(contents.op_lines - least_lines);
    let ops_height = or_folded(Track::Ops, least_ops + OP_LINE * more_lines as f32);
    let mut top = pane.top();
    let take = |top: &mut f32, before: f32, height: f32, after: f32| {
        let rect = Rect::from_x_y_ranges(x, *top + before..=*top + before + height);
        *top = rect.bottom() + after;
        rect
    };
    let overview = overview.then(|| take(&mut top, overview_margin, overview_height, overview_margin));
    let axis = axis.then(|| take(&mut top, 0.0, axis_height, 1.0));
    let curves = curves.then(|| take(&mut top, 0.0, curves_height, 10.0));
    // Without a legend the last lane keeps a distance from the edge.
    let mut bottom = pane.bottom() - if legend { 0.0 } else { 6.0 };
    let mut above = |is_there: bool, x: Rangef, height: f32, after: f32| {
        is_there.then(|| {
            bottom -= height;
            let rect = Rect::from_x_y_ranges(x, bottom..=bottom + height);
            bottom -= after;
            rect
        })
    };
    let legend = above(legend, pane.x_range(), LEGEND, 6.0);
    let ops = above(ops, x, ops_height, 6.0);
    let device = above(device, x, device_height, 6.0);
    let phases = above(phases, x, phases_height, LANE_GAP);
    let steps = above(steps, x, steps_height, 8.0);
    let bands = above(bands, x, bands_height, 8.0);
    let card = above(card, x, card_height, 8.0);
    let strata = Rect::from_x_y_ranges(x, top..=bottom.max(top + 8.0));
    // In the order of `Track::ALL`.
    let rects = [overview, curves, steps, device, ops, bands, card, phases];
    let pick = |wants_folded: bool| std::array::from_fn(|i| rects[i].filter(|_| folded[i] == wants_folded));
    Tracks { x, axis, strata, legend, open: pick(false), folded: pick(true) }
}

/// Position of a limit relative to the visible values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapAt {
    /// In the range: drawn as a line.
    Inside,
    /// Far above the range: only named.
    Above,
}

/// Whether a limit is close enough to `top` to extend the range for it.
pub(super) fn cap_at(cap: u64, top: u64) -> CapAt {
    if cap as f64 <= top as f64 * 1.3 { CapAt::Inside } else { CapAt::Above }
}

/// The range of the curves' axis in bytes, fitted to the window. It starts at zero only when the curves come near it.
pub(super) fn curves_range(reserved: &[Cell], active: &[Cell], requested: &[Cell], cap: Option<u64>) -> (f64, f64) {
    let all = || reserved.iter().chain(active).chain(requested);
    let top = all().map(|c| c.max).max().unwrap_or(0);
    let low = all().map(|c| c.min).min().unwrap_or(0);
    let high = match cap {
        Some(cap) if cap_at(cap, top) == CapAt::Inside => top.max(cap),
        _ => top,
    };
    let (low, high) = (low as f64, (high as f64).max(512.0));
    let pad = (high - low) * 0.06;
    let low = if low < high * 0.35 { 0.0 } else { (low - pad).max(0.0) };
    (low, high + pad.max(high * 0.004))
}

/// Bytes at the top of the strata: the most reserved in the window (and a limit near it), rounded up so that panning does not
/// rescale the picture at every step.
pub(super) fn strata_top(reserved: &[Cell], active: &[Cell], cap: Option<u64>) -> f64 {
    let top = reserved.iter().chain(active).map(|c| c.max).max().unwrap_or(0).max(512);
    let top = match cap {
        Some(cap) if cap_at(cap, top) == CapAt::Inside => top.max(cap),
        _ => top,
    };
    let grain = (1u64 << (63 - top.leading_zeros())) / 32;
    (top + top / 50).div_ceil(grain.max(1)) as f64 * grain.max(1) as f64
}

/// Finds a place for a label `width` columns wide and `height` high between two profiles (screen y, one entry per column).
/// Returns the left column of the first stretch from `from` on that is large enough, and the y of its middle.
pub(super) fn label_place(tops: &[f32], bottoms: &[f32], from: usize, width: usize, height: f32) -> Option<(usize, f32)> {
    let n = tops.len().min(bottoms.len());
    if width == 0 {
        return None;
    }
    // Tests every eighth column, because a label need not be at the first possible pixel.
    (from..n.saturating_sub(width)).step_by(8).find_map(|i| {
        let top = tops[i..i + width].iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let bottom = bottoms[i..i + width].iter().copied().fold(f32::INFINITY, f32::min);
        (bottom - top >= height).then_some((i, f32::midpoint(top, bottom)))
    })
}

#[cfg(test)]
mod tests;
