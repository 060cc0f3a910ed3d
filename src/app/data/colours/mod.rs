//! What block colours mean: classes by stack, role, size, age, stream, pool or segment, and their legend.

use std::sync::Arc;

use egui::Color32;

use super::device::DeviceData;
use crate::app::state::ColourBy;
use crate::app::theme::Tokens;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::model::SizeClass;
use vramscope_core::tables::{Lifetime, LifetimeId, NO_EVENT};
use vramscope_core::units::{Bytes, count};

mod bounds;
mod focus;

use bounds::{age_bounds, size_bounds};
pub use focus::Focus;

/// How a class is painted. The theme turns it into a colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paint {
    /// A slot of the categorical palette.
    Slot(u8),
    /// A position on the size ramp, 0 to 1.
    Ramp(f32),
    /// The colour of everything without a slot.
    Other,
}

impl Paint {
    pub fn colour(self, tokens: &Tokens) -> Color32 {
        match self {
            Paint::Slot(slot) => tokens.slot(usize::from(slot)),
            Paint::Ramp(t) => crate::app::theme::Ramp::Size.at(tokens, t),
            Paint::Other => tokens.other,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// For example `workloads.py:71`, `2–4 MiB` or `stream 1`.
    pub name: String,
    pub paint: Paint,
}

/// The class of each allocation. Built once per recording and choice, so that colours do not change while the cursor moves.
#[derive(Clone, Debug, Default)]
pub struct Colours {
    by: ColourBy,
    pub classes: Vec<Class>,
    /// By stack: the class of each name, followed by that of allocations without a stack.
    class_of_name: Vec<u8>,
    class_of_no_stack: u8,
    /// By size: lower bounds of class 1 and up.
    size_bounds: Vec<u64>,
    /// By age: lower bounds of class 1 and up, in events.
    age_bounds: Vec<u64>,
    /// By segment: address ranges and their class, in address order.
    ranges: Vec<(u64, u64, u8)>,
    class_of_stream: Vec<u8>,
    class_of_pool: Vec<[u8; 2]>,
    roles: Option<Arc<Roles>>,
}

/// Names with their own colour; the rest is "other".
const SLOTS: usize = 8;
/// How many instants, evenly spread over the recording, are weighed besides the peak and the failures.
const INSTANTS: u32 = 64;
/// How many failures are weighed. Failures that follow each other look alike, so a few are enough.
const FAILURES: usize = 8;

/// How much a name deserves a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weight {
    /// 0 for a name that never holds memory.
    score: f64,
    at_peak: u64,
}

/// The weight of each name is the largest of four shares: of the bytes at the peak, of the bytes at a failure, of bytes times
/// events held, and half of its largest share at any of [`INSTANTS`]. Names that are large overall get a colour, names that are
/// large for a while usually do, and colours do not depend on the cursor. `live` are the allocations at the peak. Costs one pass
/// over all allocations, and one over the live set per instant.
fn weigh(data: &DeviceData, live: &[LifetimeId], names: usize, name_of: impl Fn(LifetimeId) -> usize) -> Vec<Weight> {
    let (device, tables) = (data.device(), &data.tables);
    let lifetimes = &tables.lifetimes;
    let mut weights = vec![Weight::default(); names];
    let mut raise = |bytes: &[u128], part: f64| {
        let total = bytes.iter().sum::<u128>().max(1) as f64;
        for (weight, &bytes) in weights.iter_mut().zip(bytes) {
            weight.score = weight.score.max(bytes as f64 / total * part);
        }
    };
    let held = |live: &[LifetimeId]| {
        let mut bytes = vec![0u128; names];
        for &id in live {
            bytes[name_of(id)] += u128::from(lifetimes.block_size(id));
        }
        bytes
    };
    let at_peak = held(live);
    raise(&at_peak, 1.0);
    for &failed in data.ooms.iter().rev().take(FAILURES) {
        raise(&held(&tables.states.live_at(lifetimes, failed)), 1.0);
    }
    let events = device.events.len() as u32;
    for i in 0..INSTANTS.min(events) {
        let event = (u64::from(i) * u64::from(events) / u64::from(INSTANTS.min(events))) as u32;
        raise(&held(&tables.states.live_at(lifetimes, event)), 0.5);
    }
    let mut over_time = vec![0u128; names];
    for id in lifetimes.ids() {
        let (born, gone) = (lifetimes.born(id), lifetimes.gone(id));
        let born = if born == NO_EVENT { 0 } else { born };
        let life = gone.min(events).saturating_sub(born).max(1);
        over_time[name_of(id)] += u128::from(lifetimes.block_size(id)) * u128::from(life);
    }
    raise(&over_time, 1.0);
    for (weight, bytes) in weights.iter_mut().zip(at_peak) {
        weight.at_peak = u64::try_from(bytes).unwrap_or(u64::MAX);
    }
    weights
}

impl Colours {
    /// One class per role, always with the same colour.
    pub fn of_roles(roles: Arc<Roles>) -> Self {
        let classes = Role::ALL.iter().map(|role| Class { name: role.text().to_owned(), paint: role_paint(*role) }).collect();
        Colours { by: ColourBy::Role, classes, roles: Some(roles), ..Colours::default() }
    }

    /// The classes of a device. The names that weigh most over the whole recording get slots; the first slot goes to the one with
    /// most bytes at the peak. For [`ColourBy::Role`] use [`of_roles`](Self::of_roles); here it makes a single class.
    pub fn build(data: &DeviceData, by: ColourBy) -> Self {
        let mut colours = Colours { by, ..Colours::default() };
        let device = data.device();
        let tables = &data.tables;
        let peak = tables.curves.peak_event();
        let live = tables.states.live_at(&tables.lifetimes, peak);
        match by {
            ColourBy::Role => {}
            ColourBy::Stack => {
                let names = &data.names;
                let weights = weigh(data, &live, names.len() + 1, |id| {
                    names.index(tables.lifetimes.stack(device, id)).unwrap_or(names.len())
                });
                let texts: Vec<String> = (0..names.len())
                    .map(|i| names.text(i).to_owned())
                    .chain([vramscope_core::tables::NO_STACK.to_owned()])
                    .collect();
                let assigned = colours.assign(&weights, &texts, "stacks");
                colours.class_of_no_stack = assigned.last().copied().unwrap_or(0);
                colours.class_of_name = assigned;
            }
            ColourBy::SizeClass => {
                // The peak may hold blocks of one size only. The last failure, which users look at most, is therefore counted
                // too.
                let failed = data.last_oom().map(|e| tables.states.live_at(&tables.lifetimes, e)).unwrap_or_default();
                let mut sizes: Vec<u64> = live.iter().chain(&failed).map(|&id| tables.lifetimes.block_size(id)).collect();
                sizes.sort_unstable();
                let all = (0..tables.lifetimes.len() as u32).map(|i| tables.lifetimes.block_size(LifetimeId(i)));
                colours.size_bounds = size_bounds(&sizes, all);
                let n = colours.size_bounds.len() + 1;
                for i in 0..n {
                    let low = i.checked_sub(1).map(|j| colours.size_bounds[j]);
                    let high = colours.size_bounds.get(i).copied();
                    let name = match (low, high) {
                        (None, Some(h)) => format!("< {}", Bytes(h)),
                        (Some(l), Some(h)) => format!("{} – {}", Bytes(l), Bytes(h)),
                        (Some(l), None) => format!("≥ {}", Bytes(l)),
                        (None, None) => sizes.first().map_or_else(|| "all sizes".to_owned(), |&only| Bytes(only).to_string()),
                    };
                    colours.classes.push(Class { name, paint: Paint::Ramp(i as f32 / (n - 1).max(1) as f32) });
                }
            }
            ColourBy::Age => {
                colours.age_bounds = age_bounds(device.events.len());
                let bounds = &colours.age_bounds;
                for i in 0..=bounds.len() {
                    let name = match (bounds.get(i), i.checked_sub(1).and_then(|i| bounds.get(i))) {
                        (Some(&below), None) => format!("< {} events", count(below)),
                        (Some(&below), Some(_)) => format!("< {}", count(below)),
                        (None, Some(&from)) => format!("≥ {} events", count(from)),
                        (None, None) => "all ages".to_owned(),
                    };
                    colours.classes.push(Class { name, paint: Paint::Ramp(i as f32 / bounds.len().max(1) as f32) });
                }
            }
            ColourBy::Stream => {
                let streams = device.streams.len().max(1);
                let weights = weigh(data, &live, streams, |id| {
                    tables.lifetimes.get(device, id).map_or(0, |l| usize::from(l.stream.0).min(streams - 1))
                });
                let texts: Vec<String> =
                    (0..streams).map(|i| stream_name(device.streams.get(i).copied().unwrap_or(0), i)).collect();
                colours.class_of_stream = colours.assign(&weights, &texts, "streams");
            }
            ColourBy::Pool => {
                let pools = device.pools.len().max(1);
                let weights = weigh(data, &live, pools * 2, |id| {
                    let place = |l: Lifetime| usize::from(l.pool.0).min(pools - 1) * 2 + usize::from(l.class == SizeClass::Large);
                    tables.lifetimes.get(device, id).map_or(0, place)
                });
                let texts: Vec<String> = (0..pools * 2)
                    .map(|i| {
                        let class = if i % 2 == 0 { "small" } else { "large" };
                        match device.pools.get(i / 2) {
                            Some((0, 0)) | None => format!("{class} pool"),
                            Some((a, b)) => format!("private pool ({a}, {b}), {class}"),
                        }
                    })
                    .collect();
                let assigned = colours.assign(&weights, &texts, "pools");
                colours.class_of_pool = assigned.chunks(2).map(|c| [c[0], c[c.len() - 1]]).collect();
            }
            ColourBy::Segment => {
                let state = tables.states.at(device, &tables.lifetimes, peak);
                let weights: Vec<Weight> =
                    state.segments.iter().map(|s| Weight { score: s.size as f64, at_peak: s.size }).collect();
                let texts: Vec<String> = state.segments.iter().enumerate().map(|(i, _)| format!("segment {}", i + 1)).collect();
                let assigned = colours.assign(&weights, &texts, "segments");
                colours.ranges =
                    state.segments.iter().zip(assigned).map(|(s, class)| (s.address, s.address + s.size, class)).collect();
                if colours.classes.last().is_none_or(|c| c.paint != Paint::Other) {
                    colours.classes.push(Class { name: "other segments".to_owned(), paint: Paint::Other });
                }
            }
        }
        if colours.classes.is_empty() {
            colours.classes.push(Class { name: "allocated".to_owned(), paint: Paint::Slot(0) });
        }
        colours
    }

    /// Gives slots to the heaviest names and folds the rest into "other". Returns the class of each name.
    fn assign(&mut self, weights: &[Weight], texts: &[String], plural: &str) -> Vec<u8> {
        let mut order: Vec<usize> = (0..weights.len()).filter(|&i| weights[i].score > 0.0).collect();
        order.sort_by(|&a, &b| weights[b].score.total_cmp(&weights[a].score).then(a.cmp(&b)));
        let used = order.len();
        let own = if used <= SLOTS { used } else { SLOTS - 1 };
        order.truncate(own);
        // The weights decided who gets a slot. Slots are then assigned by bytes at the peak, heaviest first.
        order.sort_by(|&a, &b| {
            let (a_weight, b_weight) = (weights[a], weights[b]);
            b_weight.at_peak.cmp(&a_weight.at_peak).then(b_weight.score.total_cmp(&a_weight.score)).then(a.cmp(&b))
        });
        // A name that never holds memory needs no class.
        let mut class = vec![if used > own { own as u8 } else { 0 }; weights.len()];
        for (slot, &i) in order.iter().enumerate() {
            class[i] = slot as u8;
            self.classes.push(Class { name: texts[i].clone(), paint: Paint::Slot(slot as u8) });
        }
        if used > own {
            self.classes.push(Class { name: format!("{} other {plural}", count((used - own) as u64)), paint: Paint::Other });
        }
        class
    }

    pub fn by(&self) -> ColourBy {
        self.by
    }

    /// The class of an allocation. Only [`ColourBy::Age`] depends on `at_event`.
    pub fn class_of(&self, data: &DeviceData, id: LifetimeId, at_event: u32) -> u8 {
        let device = data.device();
        let lifetimes = &data.tables.lifetimes;
        match self.by {
            ColourBy::Role => self.roles.as_ref().map_or(0, |c| c.of(id).index() as u8),
            ColourBy::Stack => match data.names.index(lifetimes.stack(device, id)) {
                Some(name) => self.class_of_name.get(name).copied().unwrap_or(0),
                None => self.class_of_no_stack,
            },
            ColourBy::SizeClass => {
                let size = lifetimes.block_size(id);
                self.size_bounds.partition_point(|&b| b <= size) as u8
            }
            ColourBy::Age => {
                let born = lifetimes.born(id);
                let age = if born == vramscope_core::tables::NO_EVENT {
                    u64::from(at_event)
                } else {
                    u64::from(at_event.saturating_sub(born))
                };
                self.age_bounds.partition_point(|&bound| bound <= age) as u8
            }
            ColourBy::Stream => {
                lifetimes.get(device, id).and_then(|l| self.class_of_stream.get(usize::from(l.stream.0)).copied()).unwrap_or(0)
            }
            ColourBy::Pool => lifetimes
                .get(device, id)
                .and_then(|l| {
                    let pool = usize::from(l.pool.0).min(self.class_of_pool.len().saturating_sub(1));
                    self.class_of_pool.get(pool).map(|c| c[usize::from(l.class == SizeClass::Large)])
                })
                .unwrap_or(0),
            ColourBy::Segment => {
                let address = lifetimes.get(device, id).map_or(0, |l| l.address);
                let at = self.ranges.partition_point(|r| r.0 <= address);
                match at.checked_sub(1).map(|i| self.ranges[i]) {
                    Some((_, end, class)) if address < end => class,
                    _ => (self.classes.len() - 1) as u8,
                }
            }
        }
    }

    pub fn colour(&self, class: u8, tokens: &Tokens) -> Color32 {
        self.classes.get(usize::from(class)).map_or(tokens.other, |c| c.paint.colour(tokens))
    }

    pub fn of(&self, data: &DeviceData, id: LifetimeId, at_event: u32, tokens: &Tokens) -> Color32 {
        self.colour(self.class_of(data, id, at_event), tokens)
    }
}

/// How a role is painted: a fixed slot of the palette in all views.
pub fn role_paint(role: Role) -> Paint {
    match role {
        Role::Weights => Paint::Slot(0),
        Role::Gradients => Paint::Slot(1),
        Role::Activations => Paint::Slot(2),
        Role::OptimizerState => Paint::Slot(3),
        Role::Inputs => Paint::Slot(4),
        Role::Temporaries => Paint::Slot(5),
        // Ten roles share eight colours. These three share one because few programs have two of them: autocast copies come from
        // training on one GPU, the KV cache from serving, buckets from FSDP and DDP.
        Role::AutocastCopies | Role::KvCache | Role::Buckets => Paint::Slot(6),
        Role::Workspaces => Paint::Slot(7),
        Role::Unknown => Paint::Other,
    }
}
/// `default stream`, `stream 1 (0x7f…)`.
pub fn stream_name(handle: u64, index: usize) -> String {
    if handle == 0 { "default stream".to_owned() } else { format!("stream {index} ({handle:#x})") }
}
#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes live at the peak, by legend class.
    fn told(data: &DeviceData, by: ColourBy) -> Vec<(String, u64)> {
        let colours = Colours::build(data, by);
        let lifetimes = &data.tables.lifetimes;
        let peak = data.tables.curves.peak_event();
        let mut bytes: Vec<(String, u64)> = colours.classes.iter().map(|c| (c.name.clone(), 0)).collect();
        for id in data.tables.states.live_at(lifetimes, peak) {
            bytes[usize::from(colours.class_of(data, id, peak))].1 += lifetimes.block_size(id);
        }
        bytes
    }

    #[test]
    fn what_is_large_at_a_failure_has_a_colour_and_no_slot_is_left() {
        let weight = |score, at_peak| Weight { score, at_peak };
        let mut weights = vec![weight(0.6, 10), weight(0.32, 0), weight(0.2, 9)];
        weights.extend((1..10).map(|i| weight(0.001 * f64::from(i), u64::from(i == 1))));
        weights.push(weight(0.0, 0));
        let texts: Vec<String> = (0..weights.len()).map(|i| i.to_string()).collect();
        let mut colours = Colours::default();
        let class = colours.assign(&weights, &texts, "stacks");
        let names: Vec<&str> = colours.classes.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["0", "2", "1", "11", "10", "9", "8", "5 other stacks"]);
        assert_eq!((class[1], class[3], class[12]), (2, 7, 7));
        // With fewer names than slots each gets a slot and there is no "other".
        let mut colours = Colours::default();
        assert_eq!(colours.assign(&[weight(0.1, 0), weight(0.0, 0), weight(0.9, 4)], &texts, "stacks"), [1, 0, 0]);
        assert_eq!(colours.classes.len(), 2);
    }

    #[test]
    fn every_colouring_of_a_real_recording_names_all_it_paints() {
        use vramscope_core::model::Progress;
        let mut files: Vec<std::path::PathBuf> =
            ["leak.pickle", "gpt_train.pickle", "multi_stream.pickle", "expandable_oom.pickle", "kv_decode_oom.pickle.gz"]
                .map(crate::app::data::samples::path)
                .to_vec();
        files.extend(std::env::var("VRAMSCOPE_COLOURS").iter().flat_map(|all| all.split(':')).map(std::path::PathBuf::from));
        for file in files {
            let recording = Arc::new(vramscope_core::formats::open(&file, &Progress::new()).unwrap());
            let index = recording.busiest_device().unwrap();
            let data = crate::app::data::device::prepare(&recording, index, &Progress::new()).unwrap();
            let mut sizes: Vec<u64> = {
                let peak = data.tables.curves.peak_event();
                let live = data.tables.states.live_at(&data.tables.lifetimes, peak);
                live.into_iter().map(|id| data.tables.lifetimes.block_size(id)).collect()
            };
            sizes.sort_unstable();
            sizes.dedup();
            for by in ColourBy::ALL.iter().copied().filter(|by| *by != ColourBy::Role) {
                let told = told(&data, by);
                println!("{} {}: {told:?}", file.display(), by.text());
                assert!(told.len() <= 16 && told.iter().all(|(name, _)| !name.is_empty()), "{told:?}");
                let used = told.iter().filter(|(_, bytes)| *bytes > 0).count();
                assert!(by != ColourBy::SizeClass || used >= 2.min(sizes.len()), "{}: {told:?}", file.display());
            }
        }
    }
}
