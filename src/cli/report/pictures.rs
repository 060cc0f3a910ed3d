//! The data of a report's pictures: the timeline and the segment map of a device, in a limited number of cells.

use rustc_hash::FxHashMap;
use serde::Serialize;

use vramscope_core::anatomy::{Phase, Role, Roles, made_at};
use vramscope_core::diagnose::source_limits::clock_time;
use vramscope_core::model::{BlockState, CATEGORIES, DeviceRecording, Recording};
use vramscope_core::tables::{DeviceTables, NO_EVENT, Quantity, SegmentAt, StackNames, State};
use vramscope_core::units::{Address, count};

/// Most steps, phases and marks drawn; the rest is counted.
const LANE: usize = 1_500;

/// Bytes over events or time, one value per column. A column shows its highest instant, so no peak is lost.
#[derive(Debug, Default, Serialize)]
pub(super) struct Timeline {
    /// `event` or `time`.
    pub(super) axis: &'static str,
    /// The first position on the axis, and the one after the last.
    pub(super) range: [i64; 2],
    /// The instant of each column: an event, or microseconds since the first one.
    pub(super) at: Vec<i64>,
    /// Its time as text, when the recording has times.
    pub(super) when: Vec<String>,
    /// The layers from the bottom up.
    pub(super) stack: Vec<Series>,
    pub(super) lines: Vec<Series>,
    pub(super) marks: Vec<Mark>,
    /// Positions where steps begin, and where the last one ends.
    pub(super) steps: Vec<u32>,
    /// First event, the one after the last, and the index into `phase_names`.
    pub(super) phases: Vec<(u32, u32, usize)>,
    pub(super) phase_names: Vec<&'static str>,
    /// Sentences on what is not drawn.
    pub(super) left_out: Vec<String>,
}

/// A layer of the stack or a line.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    /// Its colour in the page's palette: `r0` to `r7`, a grey, `cached` or `text`.
    pub(super) colour: &'static str,
    pub(super) values: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Mark {
    pub(super) at: i64,
    /// `oom` or `peak`.
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// The colour of each role, in the order of [`Role::ALL`]. These are the slots of the window's palette.
pub(super) const ROLE_COLOURS: [&str; Role::ALL.len()] = ["r0", "r1", "r3", "r2", "r6", "r4", "r5", "r7", "r7", "r6", "other"];

/// The colour of each PyTorch category, in the order of [`CATEGORIES`].
const CATEGORY_COLOURS: [&str; CATEGORIES.len()] = ["r0", "r3", "r4", "r5", "r2", "r1", "r6", "other"];

impl Timeline {
    /// The timeline of a device in at most `columns` columns; `None` when nothing is known over time.
    pub(super) fn of(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        roles: &Roles,
        columns: usize,
    ) -> Option<Self> {
        match (device.events.len(), device.samples.len(), device.bands.len()) {
            (2.., ..) => Some(of_events(recording, device, tables, roles, columns)),
            (_, _, 2..) => Some(of_bands(recording, device, columns)),
            (_, 2.., _) => Some(of_samples(recording, device, columns)),
            _ => None,
        }
    }
}

/// `columns + 1` positions that divide `len` evenly.
fn bounds(len: usize, columns: usize) -> Vec<u32> {
    let columns = columns.min(len).max(1);
    (0..=columns).map(|c| (len as u64 * c as u64 / columns as u64) as u32).collect()
}

fn of_events(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables, roles: &Roles, columns: usize) -> Timeline {
    let events = &device.events;
    let bounds = bounds(events.len(), columns);
    let held = roles.columns(device, tables, &bounds);
    let clock = recording.clock();
    let stack = Role::ALL.iter().filter(|r| held.iter().any(|c| c.bytes[r.index()] > 0)).map(|role| Series {
        name: role.text().to_owned(),
        colour: ROLE_COLOURS[role.index()],
        values: held.iter().map(|c| c.bytes[role.index()]).collect(),
    });
    let reserved = tables.curves.columns(device, &tables.lifetimes, Quantity::Reserved, &bounds);
    let mut lines = Vec::new();
    if reserved.iter().any(|c| c.max > 0) {
        lines.push(Series { name: "reserved".to_owned(), colour: "text", values: reserved.iter().map(|c| c.max).collect() });
    }
    let when = |event: u32| events.time_us.get(event as usize).map_or_else(String::new, |&us| clock_time(clock, us).0);
    let mut left_out = Vec::new();
    let ooms = events.ooms();
    let (peak, peak_event) = tables.curves.peak(Quantity::Active);
    let mut marks: Vec<Mark> = ooms
        .iter()
        .rev()
        .take(LANE)
        .map(|&event| Mark {
            at: i64::from(event),
            kind: "oom",
            text: format!("out of memory at event {}", count(u64::from(event))),
        })
        .collect();
    if ooms.len() > LANE {
        left_out.push(format!("{} earlier failures are not marked.", count((ooms.len() - LANE) as u64)));
    }
    if peak > 0 && peak_event != NO_EVENT {
        let text = format!("peak, event {}", count(u64::from(peak_event)));
        marks.push(Mark { at: i64::from(peak_event), kind: "peak", text });
    }
    let mut steps = roles.anatomy.steps.bounds.clone();
    if steps.len() > LANE {
        left_out.push(format!("{} steps are too many to draw.", count(steps.len() as u64 - 1)));
        steps.clear();
    }
    let mut phase_names: Vec<&'static str> = Vec::new();
    let mut phases: Vec<(u32, u32, usize)> = Vec::new();
    // Events between phases are not drawn.
    for run in roles.anatomy.phases.runs.iter().filter(|run| run.phase != Phase::Between) {
        let name = run.phase.name();
        let index = phase_names.iter().position(|n| *n == name).unwrap_or_else(|| {
            phase_names.push(name);
            phase_names.len() - 1
        });
        match phases.last_mut() {
            Some(last) if last.2 == index && last.1 >= run.events.0 => last.1 = last.1.max(run.events.1),
            _ => phases.push((run.events.0, run.events.1, index)),
        }
    }
    // A few allocations in phases among very many outside them are not worth a lane.
    let covered: u64 = phases.iter().map(|(from, to, _)| u64::from(to - from)).sum();
    if covered * 50 < events.len() as u64 {
        phases.clear();
    }
    if phases.len() > LANE {
        left_out.push(format!("{} runs of phases are too many to draw.", count(phases.len() as u64)));
        phases.clear();
    }
    Timeline {
        axis: "event",
        range: [0, events.len() as i64],
        at: held.iter().map(|c| i64::from(c.event)).collect(),
        when: if events.has_time { held.iter().map(|c| when(c.event)).collect() } else { Vec::new() },
        stack: stack.collect(),
        lines,
        marks,
        steps,
        phases,
        phase_names,
        left_out,
    }
}

/// For each column, the row that is highest by `height`. Rows have ascending times.
fn highest_rows(len: usize, columns: usize, height: impl Fn(usize) -> u64) -> Vec<usize> {
    let bounds = bounds(len, columns);
    let of = |w: &[u32]| (w[0] as usize..w[1] as usize).max_by_key(|&i| (height(i), std::cmp::Reverse(i)));
    bounds.windows(2).filter_map(of).collect()
}

/// A timeline of rows with times. Columns have equal numbers of rows, and each is placed at the time of its row.
fn over_time(recording: &Recording, times: &dyn Fn(usize) -> i64, last: i64, rows: &[usize]) -> Timeline {
    let first = rows.first().map_or(0, |&row| times(row)).min(times(0));
    let clock = recording.clock();
    Timeline {
        axis: "time",
        range: [0, (last - first).max(1)],
        at: rows.iter().map(|&row| times(row) - first).collect(),
        when: rows.iter().map(|&row| clock_time(clock, times(row)).0).collect(),
        ..Timeline::default()
    }
}

fn of_bands(recording: &Recording, device: &DeviceRecording, columns: usize) -> Timeline {
    let bands = &device.bands;
    let sum = |i: usize| bands.bytes[i].iter().fold(0u64, |sum, &b| sum.saturating_add(b));
    let rows = highest_rows(bands.len(), columns, sum);
    let stack = CATEGORIES.iter().enumerate().filter(|&(c, _)| rows.iter().any(|&r| bands.bytes[r][c] > 0)).map(|(c, name)| {
        let values = rows.iter().map(|&r| bands.bytes[r][c]).collect();
        Series { name: name.replace('_', " "), colour: CATEGORY_COLOURS[c], values }
    });
    let last = bands.time_us.last().copied().unwrap_or(0);
    Timeline { stack: stack.collect(), ..over_time(recording, &|i| bands.time_us[i], last, &rows) }
}

fn of_samples(recording: &Recording, device: &DeviceRecording, columns: usize) -> Timeline {
    let samples = &device.samples;
    let total = device.capacity.unwrap_or(0);
    let rows = highest_rows(samples.len(), columns, |i| samples[i].used.or(samples[i].reserved).unwrap_or(0));
    let parts: Vec<_> = rows.iter().map(|&i| samples[i].bands(total).unwrap_or_default()).collect();
    let series = |name: &str, colour: &'static str, values: Vec<u64>| {
        values.iter().any(|&v| v > 0).then(|| Series { name: name.to_owned(), colour, values })
    };
    let layers = [
        series("driver", "grey0", parts.iter().map(|b| b.driver).collect()),
        series("other processes", "grey1", parts.iter().map(|b| b.others).collect()),
        series("unattributed", "grey2", parts.iter().map(|b| b.unattributed).collect()),
        series("the process", "r6", parts.iter().map(|b| b.unsplit).collect()),
        series("outside PyTorch", "r1", parts.iter().map(|b| b.outside).collect()),
        series("allocated", "r0", parts.iter().map(|b| b.allocated).collect()),
        series("cached", "cached", parts.iter().map(|b| b.cached).collect()),
    ];
    let last = samples.last().map_or(0, |s| s.time_us);
    Timeline { stack: layers.into_iter().flatten().collect(), ..over_time(recording, &|i| samples[i].time_us, last, &rows) }
}

/// Segments and their blocks at one instant.
#[derive(Debug, Serialize)]
pub(super) struct Map {
    /// The state after this event; null when the file has no events.
    pub(super) event: Option<u32>,
    pub(super) segments: Vec<MapSegment>,
    pub(super) roles: Vec<&'static str>,
    pub(super) colours: Vec<&'static str>,
    /// Allocating lines, which cells refer to by index.
    pub(super) places: Vec<String>,
    /// Sentences on what is not drawn.
    pub(super) left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct MapSegment {
    /// As text; empty when the file has no addresses.
    pub(super) address: String,
    pub(super) bytes: u64,
    pub(super) cells: Vec<Cell>,
}

/// Bytes; index of the role (-1 for a hole, -2 for memory that waits for another stream); index of the place or -1; number of
/// folded blocks (1 for a single one); allocating event or -1; free bytes among folded blocks.
pub(super) type Cell = (u64, i32, i64, u32, i64, u64);

/// Most distinct lines named in a map.
const PLACES: usize = 3_000;

impl Map {
    /// The segments of a state in about `most` cells. Small neighbours are folded, except for a segment's largest hole. `None`
    /// when the recording has no segments.
    pub(super) fn of(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        names: &StackNames,
        roles: &Roles,
        state: &State,
        most: usize,
    ) -> Option<Self> {
        if state.segments.is_empty() || !device.can_show.segments.is_known() {
            return None;
        }
        let most = most.max(16);
        let mut drawn: Vec<&SegmentAt> = state.segments.iter().collect();
        let mut left_out = Vec::new();
        if drawn.len() > most / 2 {
            drawn.sort_by_key(|s| (std::cmp::Reverse(s.size), s.address));
            let small = drawn.split_off(most / 2);
            let bytes = vramscope_core::units::Bytes(small.iter().map(|s| s.size).sum());
            left_out.push(format!("{} smaller segments ({bytes}) are not drawn.", count(small.len() as u64)));
            drawn.sort_by_key(|s| s.address);
        }
        let mut thin = 0u64;
        let cells_at = |thin: u64| -> usize { drawn.iter().map(|s| fold(state, s, thin).len()).sum() };
        while cells_at(thin) > most {
            thin = (thin * 2).max(512);
            // Everything is folded already.
            if thin > 1 << 50 {
                break;
            }
        }
        let mut places: Vec<String> = Vec::new();
        let mut index: FxHashMap<String, i64> = FxHashMap::default();
        let mut folded = 0u64;
        let mut place_of = |id| {
            let stack = tables.lifetimes.stack(device, id);
            if names.index(stack).is_none() {
                return -1;
            }
            let name = super::short(&made_at(&recording.stacks, names, stack, roles.of(id))).into_owned();
            if let Some(&at) = index.get(&name) {
                return at;
            }
            if places.len() >= PLACES {
                return -1;
            }
            places.push(name.clone());
            index.insert(name, places.len() as i64 - 1);
            places.len() as i64 - 1
        };
        let segments = drawn
            .iter()
            .map(|s| MapSegment {
                address: if recording.addresses().is_known() { Address(s.address).to_string() } else { String::new() },
                bytes: s.size,
                cells: fold(state, s, thin)
                    .into_iter()
                    .map(|part| {
                        let blocks = &state.blocks_of(s)[part];
                        folded += if blocks.len() > 1 { blocks.len() as u64 } else { 0 };
                        cell(blocks, tables, roles, &mut place_of)
                    })
                    .collect(),
            })
            .collect();
        if folded > 0 {
            left_out.push(format!(
                "{} of {} small blocks and holes are drawn together with their neighbours.",
                count(folded),
                count(state.blocks.len() as u64)
            ));
        }
        Some(Map {
            event: (state.event != NO_EVENT).then_some(state.event),
            segments,
            roles: Role::ALL.iter().map(|r| r.text()).collect(),
            colours: ROLE_COLOURS.to_vec(),
            places,
            left_out,
        })
    }
}

/// Divides the blocks of a segment into ranges. Neighbours smaller than `thin` share a range.
fn fold(state: &State, segment: &SegmentAt, thin: u64) -> Vec<std::ops::Range<usize>> {
    let blocks = state.blocks_of(segment);
    let largest = blocks.iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).max();
    let is_thin = |at: usize| {
        let block = &blocks[at];
        block.size < thin && !(block.state == BlockState::Inactive && Some(block.size) == largest)
    };
    let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
    for at in 0..blocks.len() {
        match parts.last_mut() {
            Some(last) if is_thin(at) && is_thin(last.start) && at > 0 => last.end = at + 1,
            _ => parts.push(at..at + 1),
        }
    }
    parts
}

fn cell(
    blocks: &[vramscope_core::tables::BlockAt],
    tables: &DeviceTables,
    roles: &Roles,
    place_of: &mut dyn FnMut(vramscope_core::tables::LifetimeId) -> i64,
) -> Cell {
    let bytes = blocks.iter().map(|b| b.size).sum();
    let free: u64 = blocks.iter().filter(|b| b.state == BlockState::Inactive).map(|b| b.size).sum();
    let kind = |b: &vramscope_core::tables::BlockAt| match b.state {
        BlockState::Inactive => -1,
        BlockState::PendingFree => -2,
        BlockState::Active => roles.of(b.lifetime).index() as i32,
    };
    if let [one] = blocks {
        let born = tables.lifetimes.born(one.lifetime);
        let is_known = one.lifetime.is_some();
        let event = if is_known && born != NO_EVENT { i64::from(born) } else { -1 };
        return (bytes, kind(one), if is_known { place_of(one.lifetime) } else { -1 }, 1, event, free);
    }
    // The colour of most of its bytes.
    let mut sums: FxHashMap<i32, u64> = FxHashMap::default();
    for block in blocks {
        *sums.entry(kind(block)).or_default() += block.size;
    }
    let most = sums.into_iter().max_by_key(|&(kind, bytes)| (bytes, kind)).map_or(-1, |(kind, _)| kind);
    (bytes, most, -1, blocks.len() as u32, -1, free)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use vramscope_core::anatomy::roles::Rules;
    use vramscope_core::model::Progress;

    #[test]
    fn a_map_keeps_every_byte_and_the_largest_holes_however_few_cells_it_has() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample_snapshots/serve_oom.pickle.gz");
        let recording = vramscope_core::formats::open(Path::new(sample), &Progress::new()).unwrap();
        let device = &recording.devices[0];
        let tables = DeviceTables::build(device, &Progress::new()).unwrap();
        let roles = Roles::build(&recording, device, &tables, &Rules::default(), &Progress::new()).unwrap();
        let names = StackNames::of(&recording.stacks);
        let event = device.events.last_oom().unwrap();
        let state = tables.states.at(device, &tables.lifetimes, event);
        let reserved: u64 = state.segments.iter().map(|s| s.size).sum();
        let largest = |cells: &[Cell]| cells.iter().filter(|c| c.1 == -1 && c.3 == 1).map(|c| c.0).max();
        for most in [100_000, 400, 60] {
            let map = Map::of(&recording, device, &tables, &names, &roles, &state, most).unwrap();
            let cells: Vec<Cell> = map.segments.iter().flat_map(|s| s.cells.iter().copied()).collect();
            if map.segments.len() == state.segments.len() {
                assert_eq!(cells.iter().map(|c| c.0).sum::<u64>(), reserved);
                let all = state.holes().map(|h| h.size).max();
                assert_eq!(largest(&cells), all, "{most}");
            } else {
                assert!(map.left_out.iter().any(|s| s.contains("are not drawn")));
            }
            assert!(cells.len() <= most.max(map.segments.len() * 4), "{most}: {}", cells.len());
        }
    }
}
