//! Layout of the timeline's tracks and ranges of their values. Only arithmetic.

use egui::{Rangef, Rect};

pub(super) use crate::app::state::Track;
use crate::app::state::TrackLayout;
use vramscope_core::tables::Cell;

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
const LANE_GAP: f32 = 6.0;
/// Height of the lane of device calls.
const DEVICE: f32 = 14.0;
pub(super) const OP_LINE: f32 = 13.0;
/// Height of the text under the operators that counts folded ones.
pub(super) const OP_WORDS: f32 = 14.0;
const OP_LINES_LEAST: usize = 2;
/// Operator lines that come before additional height of the strata: two threads' first levels, launches, a stream.
const OP_LINES_WANTED: usize = 6;
pub(super) const LEGEND: f32 = 24.0;
/// Levels of annotations that are drawn; deeper ones are counted.
pub(super) const STEP_LEVELS: usize = 3;

pub(super) const TRACKS: usize = <Track as strum::EnumCount>::COUNT;
/// The lanes from the pane's bottom up.
const LANES: [Track; TRACKS - 2] = [Track::Ops, Track::Device, Track::Phases, Track::Steps, Track::Bands, Track::Card];

pub(super) fn folded_of(layout: &TrackLayout) -> [bool; TRACKS] {
    let mut folded = [false; TRACKS];
    for &track in <Track as strum::VariantArray>::VARIANTS {
        folded[track as usize] = layout.is_folded(track) == Some(true);
    }
    folded
}

/// Least height of the categories when the user opened them: their names and a low plot.
const BANDS_LEAST: f32 = 56.0;
/// Least height of the curves in a low pane.
const CURVES_LEAST: f32 = 48.0;
const LEGEND_PART: usize = TRACKS;
const AXIS_PART: usize = TRACKS + 1;
/// Parts of a pane, tracks by their number, in the order in which a low pane drops them.
const DROPPED: [usize; TRACKS + 2] = [
    Track::Bands as usize,
    Track::Card as usize,
    Track::Ops as usize,
    Track::Device as usize,
    Track::Phases as usize,
    Track::Steps as usize,
    CURVES_PART,
    OVERVIEW_PART,
    LEGEND_PART,
    AXIS_PART,
];
const BANDS_PART: usize = Track::Bands as usize;
const STEPS_PART: usize = Track::Steps as usize;
const PHASES_PART: usize = Track::Phases as usize;
const CURVES_PART: usize = Track::Curves as usize;
const OVERVIEW_PART: usize = Track::Overview as usize;
/// After this many parts, the curves shrink before more is dropped.
const LOWER_CURVES_AFTER: usize = 2;

/// Height of the legend line above the bands of categories and of the card.
pub(super) const NAMES: f32 = 18.0;
pub(super) const FOLDED: f32 = 16.0;

/// What the recording has to show, and what the user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Contents {
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tracks {
    /// The horizontal extent of every plot.
    pub x: Rangef,
    pub axis: Option<Rect>,
    pub strata: Rect,
    pub legend: Option<Rect>,
    /// By [`Track`]; `None` when the track is folded or has no room.
    open: [Option<Rect>; TRACKS],
    /// The rectangles of the names of folded tracks, by [`Track`].
    pub folded: [Option<Rect>; TRACKS],
}

impl Tracks {
    pub fn open(&self, track: Track) -> Option<Rect> {
        self.open[track as usize]
    }

    /// Tracks that have contents but no room, not even for their names.
    pub fn hidden(&self, contents: &Contents) -> Vec<Track> {
        let is_hidden = |t: &Track| contents.has(*t) && self.open(*t).is_none() && self.folded[*t as usize].is_none();
        <Track as strum::VariantArray>::VARIANTS.iter().copied().filter(is_hidden).collect()
    }

    /// A single plot without any other track.
    pub fn of_one(x: Rangef, plot: Rect) -> Self {
        Tracks { x, axis: None, strata: plot, legend: None, open: [None; TRACKS], folded: [None; TRACKS] }
    }

    pub fn op_lines(&self) -> usize {
        self.open(Track::Ops).map_or(0, |rect| ((rect.height() - OP_WORDS) / OP_LINE + 0.01).max(0.0) as usize)
    }

    /// From the axis to the last lane: where a horizontal position means a time.
    pub fn canvas(&self) -> Rect {
        let top = self.axis.or(self.open(Track::Curves)).unwrap_or(self.strata).top();
        let bottom = LANES.into_iter().find_map(|track| self.open(track)).unwrap_or(self.strata).bottom();
        Rect::from_x_y_ranges(self.x, top..=bottom)
    }
}

#[derive(Clone, Copy, Default)]
struct Part {
    is_there: bool,
    height: f32,
    /// Space before the next part.
    space: f32,
}

impl Part {
    fn needs(&self) -> f32 {
        self.height + self.space
    }
}

/// A pane being divided: the height of each part, and what is left for everything but the strata.
struct Division {
    parts: [Part; TRACKS + 2],
    folded: [bool; TRACKS],
    room: f32,
    is_two_lines: bool,
    has_phases: bool,
    /// The height of the curves when there is room.
    wanted_curves: f32,
}

impl Division {
    /// All parts that have contents, at their usual heights.
    fn of(pane: Rect, contents: &Contents) -> Self {
        let height = pane.height();
        // Users open such a trace for its operators, so the other tracks make room for them.
        let has_ops = contents.op_lines > 0 && !contents.folded[Track::Ops as usize];
        let has_low_ops = has_ops && height < LOW_PANE;
        let levels = contents.step_levels.min(if has_low_ops { STEP_LEVELS - 1 } else { STEP_LEVELS });
        let usual = if has_ops {
            (height * 0.16).clamp(CURVES_BESIDE_OPS, CURVES)
        } else if contents.bands && contents.bands_lead {
            // There is only one curve, the upper edge of the bands.
            (height * 0.12).clamp(CURVES_LEAST, CURVES)
        } else {
            (height * 0.18).clamp(CURVES, 1.75 * CURVES)
        };
        let curves = contents.curves_height.unwrap_or(usual).clamp(32.0, (height * 0.6).max(32.0));
        let bands = if contents.bands_lead { (height * 0.32).clamp(72.0, 280.0) } else { (height * 0.16).clamp(64.0, 120.0) };
        let ops = OP_LINE * contents.op_lines.min(OP_LINES_LEAST) as f32 + OP_WORDS;
        let is_two_lines = contents.two_line_axis && height >= TWO_LINES_LEAST;
        // Operators say more than phases about what the program did.
        let has_phases = contents.phases && !has_low_ops;
        let mut parts = [Part::default(); TRACKS + 2];
        for &track in <Track as strum::VariantArray>::VARIANTS {
            let (height, space) = match track {
                Track::Overview => (OVERVIEW, 2.0 * OVERVIEW_MARGIN),
                Track::Curves => (curves, 10.0),
                Track::Steps => (STEP * levels as f32, 8.0),
                Track::Device => (DEVICE, 6.0),
                Track::Ops => (ops, 6.0),
                Track::Bands => (bands, 8.0),
                Track::Card => ((height * 0.13).clamp(48.0, 150.0), 8.0),
                Track::Phases => (STEP, LANE_GAP),
            };
            let is_there = contents.has(track) && (track != Track::Phases || has_phases);
            let height = if contents.folded[track as usize] { FOLDED } else { height };
            parts[track as usize] = Part { is_there, height, space };
        }
        parts[LEGEND_PART] = Part { is_there: true, height: LEGEND, space: 6.0 };
        parts[AXIS_PART] = Part { is_there: true, height: AXIS + if is_two_lines { AXIS_SECOND } else { 0.0 }, space: 1.0 };
        // With other lanes the strata may be low; without them they are the main picture.
        let has_more = has_ops || contents.bands || contents.card;
        // Steps and phases explain the strata and are worth some of their height.
        let comfort = if has_phases { STRATA_BESIDE_PHASES } else { STRATA_COMFORT };
        let least = if has_more { STRATA_LEAST } else { (height * 0.42).clamp(STRATA_LEAST, comfort) };
        // Keeps six points under the last lane when the legend is dropped.
        let room = height - least - 6.0;
        Division { parts, folded: contents.folded, room, is_two_lines, has_phases, wanted_curves: parts[CURVES_PART].height }
    }

    fn used(&self) -> f32 {
        DROPPED.iter().map(|&i| &self.parts[i]).filter(|p| p.is_there).map(Part::needs).sum()
    }

    /// Lowers the overview to what is enough to see and drag the window.
    fn lower_overview(&mut self) {
        let overview = &mut self.parts[OVERVIEW_PART];
        (overview.height, overview.space) = (overview.height.min(OVERVIEW_LOW), 2.0 * OVERVIEW_MARGIN_LOW);
    }

    /// Drops parts, or lowers them, until the rest fits.
    fn drop_parts(&mut self, contents: &Contents) {
        let are_bands_asked = (contents.bands_opened || contents.bands_lead) && !self.folded[BANDS_PART];
        for (n, part) in DROPPED.into_iter().enumerate() {
            let mut used = self.used();
            if n >= LOWER_CURVES_AFTER && self.parts[CURVES_PART].is_there && used > self.room {
                let curves = &mut self.parts[CURVES_PART];
                let lower = (curves.height - (used - self.room)).max(CURVES_LEAST.min(curves.height));
                used -= curves.height - lower;
                curves.height = lower;
            }
            if part == CURVES_PART && used > self.room {
                used -= self.parts[OVERVIEW_PART].needs();
                self.lower_overview();
                used += self.parts[OVERVIEW_PART].needs();
            }
            if part == CURVES_PART && used > self.room && self.is_two_lines {
                // Drop the line of times and keep the events.
                self.parts[AXIS_PART].height = AXIS;
                used -= AXIS_SECOND;
            }
            // Categories and the card add detail to the strata, so they must not take the height that the strata want.
            let missing = used - (self.room - if n < 2 { STRATA_WANTED - STRATA_LEAST } else { 0.0 });
            if missing <= 0.0 {
                break;
            }
            let bands = &mut self.parts[BANDS_PART];
            if part == BANDS_PART && are_bands_asked {
                bands.height = (bands.height - missing).max(BANDS_LEAST);
                continue;
            }
            if part == BANDS_PART && bands.is_there && bands.height - FOLDED >= missing {
                // A click on the name opens it again.
                bands.height = FOLDED;
                self.folded[BANDS_PART] = true;
                break;
            }
            if matches!(part, OVERVIEW_PART | LEGEND_PART | AXIS_PART) && bands.is_there {
                bands.is_there = false;
                if missing <= bands.needs() {
                    break;
                }
            }
            self.parts[part].is_there = false;
        }
    }

    /// Restores parts that fit after others were dropped or shrunk.
    fn return_parts(&mut self, contents: &Contents) {
        let has_steps = contents.step_levels > 0;
        let steps_low = self.parts[STEPS_PART].height.min(STEP);
        // Strata without steps and phases are hard to read, so overview, axis and curves shrink to make room for them.
        if self.has_phases && !self.parts[PHASES_PART].is_there && self.parts[OVERVIEW_PART].is_there {
            let before = self.parts;
            self.lower_overview();
            self.parts[AXIS_PART].height = AXIS;
            self.parts[CURVES_PART].height = self.parts[CURVES_PART].height.min(CURVES_LEAST);
            self.parts[STEPS_PART].height = steps_low;
            for part in [OVERVIEW_PART, AXIS_PART, CURVES_PART, PHASES_PART] {
                self.parts[part].is_there = true;
            }
            self.parts[STEPS_PART].is_there = has_steps;
            if self.used() > self.room {
                self.parts = before;
            }
        }
        // Other parts that were dropped may leave room for the steps, or for their first level.
        let (used, steps) = (self.used(), self.parts[STEPS_PART]);
        let fitting = [steps.height, steps_low].into_iter().find(|height| used + height + steps.space <= self.room);
        if let Some(height) = fitting.filter(|_| has_steps && !steps.is_there && self.parts[OVERVIEW_PART].is_there) {
            self.parts[STEPS_PART] = Part { is_there: true, height, ..steps };
        }
        // They may also leave room for the second axis line and for higher curves.
        let (used, axis) = (self.used(), &mut self.parts[AXIS_PART]);
        if self.is_two_lines && axis.height <= AXIS && axis.is_there && used + AXIS_SECOND <= self.room {
            axis.height += AXIS_SECOND;
        }
        if self.parts[CURVES_PART].is_there {
            let (left, curves) = (self.room - self.used(), &mut self.parts[CURVES_PART]);
            curves.height += left.clamp(0.0, (self.wanted_curves - curves.height).max(0.0));
        }
    }

    /// Gives remaining height to the operators until the wanted lines fit, then half of what remains. A height that the user
    /// chose wins.
    fn grow_ops(&mut self, contents: &Contents) {
        let left_over = self.room - self.used();
        let least_lines = contents.op_lines.min(OP_LINES_LEAST);
        let spare = (left_over - (STRATA_WANTED - STRATA_LEAST)).max(0.0);
        let wanted = OP_LINES_WANTED - OP_LINES_LEAST;
        let lines_of = |height: f32| (height / OP_LINE).max(0.0) as usize;
        let more_lines = match contents.ops_height {
            Some(height) => lines_of(height - OP_WORDS + OP_LINE / 2.0).saturating_sub(least_lines).min(lines_of(left_over)),
            None => lines_of(spare).min(wanted.max(lines_of(left_over * 0.5))),
        };
        if !self.folded[Track::Ops as usize] {
            self.parts[Track::Ops as usize].height += OP_LINE * more_lines.min(contents.op_lines - least_lines) as f32;
        }
    }

    fn tracks(&self, pane: Rect, x: Rangef) -> Tracks {
        let mut rects = [None; TRACKS];
        let mut top = pane.top();
        let mut take = |part: &Part, before: f32, after: f32| {
            part.is_there.then(|| {
                let rect = Rect::from_x_y_ranges(x, top + before..=top + before + part.height);
                top = rect.bottom() + after;
                rect
            })
        };
        let overview = &self.parts[OVERVIEW_PART];
        rects[OVERVIEW_PART] = take(overview, overview.space / 2.0, overview.space / 2.0);
        let axis = take(&self.parts[AXIS_PART], 0.0, self.parts[AXIS_PART].space);
        rects[CURVES_PART] = take(&self.parts[CURVES_PART], 0.0, self.parts[CURVES_PART].space);
        // Without a legend the last lane keeps a distance from the edge.
        let mut bottom = pane.bottom() - if self.parts[LEGEND_PART].is_there { 0.0 } else { 6.0 };
        let mut above = |part: &Part, x: Rangef| {
            part.is_there.then(|| {
                bottom -= part.height;
                let rect = Rect::from_x_y_ranges(x, bottom..=bottom + part.height);
                bottom -= part.space;
                rect
            })
        };
        let legend = above(&self.parts[LEGEND_PART], pane.x_range());
        for lane in LANES {
            rects[lane as usize] = above(&self.parts[lane as usize], x);
        }
        let strata = Rect::from_x_y_ranges(x, top..=bottom.max(top + 8.0));
        let pick = |wants_folded: bool| std::array::from_fn(|i| rects[i].filter(|_| self.folded[i] == wants_folded));
        Tracks { x, axis, strata, legend, open: pick(false), folded: pick(true) }
    }
}

/// Divides a pane into tracks. A low pane drops parts in the order of [`DROPPED`]. Before the curves are dropped, the overview and
/// the axis shrink. The legend is dropped late, because colours mean nothing without it. Phases and annotations return when other
/// drops made room. Categories that the user opened, or for which the file was written, shrink first and are dropped after the
/// curves. Other categories are folded to their name when that makes enough room.
pub(super) fn tracks(pane: Rect, contents: Contents) -> Tracks {
    let gutter = if pane.width() >= 560.0 { 100.0 } else { 76.0 };
    let x = Rangef::new(pane.left() + gutter, (pane.right() - 18.0).max(pane.left() + gutter + 1.0));
    let mut division = Division::of(pane, &contents);
    division.drop_parts(&contents);
    division.return_parts(&contents);
    division.grow_ops(&contents);
    division.tracks(pane, x)
}

/// Position of a limit relative to the visible values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapAt {
    /// In the range: drawn as a line.
    Inside,
    /// Far above the range: only named.
    Above,
}

/// The top of a range, extended for a limit that is near it.
fn with_cap(top: u64, cap: Option<u64>) -> u64 {
    cap.filter(|&cap| cap_at(cap, top) == CapAt::Inside).map_or(top, |cap| cap.max(top))
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
    let (low, high) = (low as f64, (with_cap(top, cap) as f64).max(512.0));
    let pad = (high - low) * 0.06;
    let low = if low < high * 0.35 { 0.0 } else { (low - pad).max(0.0) };
    (low, high + pad.max(high * 0.004))
}

/// Bytes at the top of the strata: the most reserved in the window (and a limit near it), rounded up so that panning does not
/// rescale the picture at every step.
pub(super) fn strata_top(reserved: &[Cell], active: &[Cell], cap: Option<u64>) -> f64 {
    let top = with_cap(reserved.iter().chain(active).map(|c| c.max).max().unwrap_or(0).max(512), cap);
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
