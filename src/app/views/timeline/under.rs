//! What is under the pointer, its name and its tooltip.

use egui::{Pos2, Rect};

use super::flags::{Pennant, Pennants};
use super::lanes::{Hit, Lanes};
use super::layout::Track;
use super::marks::{Cap, Why};
use super::paint::Canvas;
use super::picture::StrataPicture;
use crate::app::data::colours::Colours;
use crate::app::state::{Axis, Item};
use crate::app::views::block_legend::NO_BLOCKS;
use crate::app::views::block_name::{place_name, role_words};
use crate::app::widgets::{Figures, Scale, Term, Tip};
use vramscope_core::anatomy::Roles;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::tables::{NO_EVENT, Quantity, State, StrataRun, without_stack};
use vramscope_core::units::{Address, Bytes, Micros, count, counted};

/// A thing in the timeline that can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Under {
    /// A run of the strata at the event of its column, and how many allocations share the pixel.
    Run {
        run: StrataRun,
        event: u32,
        sharing: u32,
    },
    Lane(Hit),
    Pennant(Pennant),
    Oom(u32),
    Curves,
    /// The name of a curve or of the limit.
    Name(Term),
}

impl Under {
    /// The item that a click selects.
    pub fn item(&self) -> Option<Item> {
        match self {
            Under::Run { run, .. } => run.lifetime.is_some().then_some(Item::Lifetime(run.lifetime)),
            Under::Lane(hit) => hit.item,
            Under::Pennant(Pennant::Burst(b)) => Some(Item::Event(b.first)),
            Under::Pennant(Pennant::Snapshot(e)) | Under::Oom(e) => Some(Item::Event(*e)),
            Under::Curves | Under::Name(_) => None,
        }
    }

    /// A click does more here than set the cursor.
    pub fn is_clickable(&self) -> bool {
        self.item().is_some() || matches!(self, Under::Lane(hit) if hit.chooses.is_some())
    }

    /// The event to which a click sets the cursor, when it differs from the event at the pointer.
    pub fn event(&self) -> Option<u32> {
        match self {
            Under::Run { event, .. } => (*event != NO_EVENT).then_some(*event),
            Under::Lane(hit) => hit.event,
            Under::Pennant(Pennant::Burst(b)) => Some(b.last),
            Under::Pennant(Pennant::Snapshot(e)) | Under::Oom(e) => Some(*e),
            Under::Curves | Under::Name(_) => None,
        }
    }
}

/// Everything that can be pointed at.
pub(super) struct Scene<'a> {
    pub canvas: &'a Canvas<'a>,
    pub strata: Option<&'a StrataPicture>,
    pub strata_y: Scale,
    pub pennants: &'a Pennants,
    pub lanes: &'a Lanes,
    pub names: &'a [(Rect, Term)],
    /// Segments and blocks at the cursor, for the figures in a name's tooltip.
    pub state: Option<&'a State>,
    pub cap: Option<Cap>,
}

/// The time at a place on the axis, given the last event before it. On the time axis it is the time of the place itself.
fn time_at(axis: Axis, place: f64, first_us: i64, event_us: i64) -> i64 {
    match axis {
        Axis::Time => first_us.saturating_add(place.round() as i64).max(event_us),
        Axis::Event => event_us,
    }
}

impl Scene<'_> {
    /// What is at a point. Uses binary search, except for single marks.
    pub fn at(&self, p: Pos2) -> Option<Under> {
        let c = self.canvas;
        let inside = |rect: Option<Rect>| rect.is_some_and(|r| r.contains(p));
        let on_axis = c.tracks.axis.is_some_and(|a| a.expand2(egui::vec2(40.0, 0.0)).contains(p));
        if on_axis {
            let away = |e: u32| (c.at(e) - p.x).abs();
            let near = c.data.ooms.iter().copied().filter(|&e| away(e) < 18.0);
            return near.min_by(|a, b| away(*a).total_cmp(&away(*b))).map(Under::Oom);
        }
        if let Some((_, term)) = self.names.iter().find(|(rect, _)| rect.contains(p)) {
            return Some(Under::Name(*term));
        }
        if inside(c.tracks.open(Track::Curves)) {
            let head = self.pennants.top - 2.0..self.pennants.top + 12.0;
            if head.contains(&p.y)
                && let Some((_, pennant)) = self.pennants.marks.iter().rev().find(|(x, _)| (*x - 2.0..*x + 10.0).contains(&p.x))
            {
                return Some(Under::Pennant(*pennant));
            }
            return Some(Under::Curves);
        }
        if c.tracks.strata.contains(p) {
            let picture = self.strata.filter(|s| s.window.axis == c.window.axis)?;
            let column = picture.column_at(c.x.value(p.x))?;
            let half = self.strata_y.per_point().abs() / 2.0;
            let middle = self.strata_y.value(p.y);
            let (run, sharing) = picture.hit(column, middle - half, middle + half)?;
            return Some(Under::Run { run, event: picture.strata.columns.get(column)?.event, sharing });
        }
        self.lanes.hit(c, p).map(Under::Lane)
    }

    /// The tooltip. `event` is the event at the pointer, `at` the pointer.
    pub fn tip(&self, under: &Under, event: u32, at: Pos2, colours: &Colours, roles: Option<&Roles>) -> Tip {
        let c = self.canvas;
        let data = c.data;
        let device = data.device();
        match under {
            Under::Run { run, event, sharing } if run.lifetime.is_some() => {
                self.block_tip(run, *event, *sharing, at, (colours, roles))
            }
            Under::Run { run, event, .. } => match run.part() {
                Some(part) => Tip::new(without_stack(part))
                    .swatch(c.tokens.beyond(part))
                    .row("bytes", Bytes(run.top - run.bottom))
                    .row("at event", count(u64::from(*event)))
                    .note(NO_BLOCKS),
                None => {
                    Tip::new(format!("{}, {}", counted(u64::from(run.folded), "block", "blocks"), Bytes(run.top - run.bottom)))
                        .row("at event", count(u64::from(*event)))
                        .note("Each is far thinner than a pixel. Ctrl + wheel zooms into the bytes.")
                }
            },
            Under::Lane(_) => self.lanes.tooltip(c, at).unwrap_or_default(),
            Under::Pennant(Pennant::Burst(b)) => {
                let tip = Tip::new(format!("{} given back", counted(u64::from(b.count), "segment", "segments")))
                    .row("bytes", Bytes(b.bytes))
                    .row("events", format!("{} to {}", count(u64::from(b.first)), count(u64::from(b.last))));
                tip.row_if("time", data.since_start(b.last)).note(Words::of(device).say(match b.why {
                    Why::Retry => {
                        "A new segment did not fit, so the allocator emptied its cache and tried again. Each retry stalls the device."
                    }
                    Why::Collection => {
                        "Garbage collection by the allocator (garbage_collection_threshold), or a retry: a new segment came next."
                    }
                    Why::Emptied => "The cache was emptied, as by torch.cuda.empty_cache().",
                }))
            }
            Under::Pennant(Pennant::Snapshot(e)) => {
                Tip::new("Snapshot").row("event", count(u64::from(*e))).row_if("time", data.since_start(*e))
            }
            Under::Oom(e) => Tip::new("Out of memory")
                .red_row("request", Bytes(device.events.size.get(*e as usize).copied().unwrap_or(0)))
                .row("event", count(u64::from(*e)))
                .row_if("free on the device", device.events.device_free_known(*e).map(Bytes))
                .row_if("time", data.since_start(*e)),
            Under::Name(term) => {
                let mut figures = self.state.map(|s| Figures::of(data, s)).unwrap_or_default();
                if let Some(cap) = self.cap {
                    figures.limit = Some(cap.bytes);
                    figures.limit_least = cap.least;
                }
                term.tip(&figures, Words::of(device))
            }
            Under::Curves => {
                let curves = &data.tables.curves;
                let value = |q| Bytes(curves.at(device, &data.tables.lifetimes, q, event));
                let mark = |q, name: &str| if curves.is_exact(q) { name.to_owned() } else { format!("{name}, estimated") };
                let reserved = (curves.peak(Quantity::Reserved).0 > 0).then(|| value(Quantity::Reserved));
                let requested = device.can_show.requested.is_known().then(|| value(Quantity::Requested));
                Tip::new(format!("After event {}", count(u64::from(event))))
                    .row_if(mark(Quantity::Reserved, "reserved"), reserved)
                    .row(mark(Quantity::Active, "active"), value(Quantity::Active))
                    .row_if("requested", requested)
                    .row_if("its time", data.since_start(event))
            }
        }
    }

    fn block_tip(
        &self,
        run: &StrataRun,
        event: u32,
        sharing: u32,
        at: Pos2,
        (colours, roles): (&Colours, Option<&Roles>),
    ) -> Tip {
        let c = self.canvas;
        let (data, device) = (c.data, c.data.device());
        let Some(life) = data.tables.lifetimes.get(device, run.lifetime) else { return Tip::new("block") };
        // The program frees first; the block can be reused when other streams are done with it.
        let freed = if life.free_requested == NO_EVENT { life.gone } else { life.free_requested };
        let is_held_up = life.gone != NO_EVENT && freed != NO_EVENT && life.gone > freed + 1;
        let when = |event: u32, never: &str| match (event, data.since_start(event)) {
            (NO_EVENT, _) => never.to_owned(),
            (event, Some(time)) => format!("event {}, {time}", count(u64::from(event))),
            (event, None) => format!("event {}", count(u64::from(event))),
        };
        let time = |e: u32| device.events.time_us.get(e as usize).copied();
        let is_born = life.born != NO_EVENT && event != NO_EVENT && event >= life.born;
        let age = is_born.then(|| match (device.events.has_time, time(life.born), time(event)) {
            (true, Some(a), Some(b)) => {
                let here = time_at(c.window.axis, c.x.value(at.x), device.events.time_us.first().copied().unwrap_or(0), b);
                Micros(here.saturating_sub(a)).to_string()
            }
            _ => counted(u64::from(event - life.born), "event", "events"),
        });
        let tip = Tip::new(Bytes(life.block).to_string())
            .swatch(colours.of(data, life.id, if event == NO_EVENT { 0 } else { event }, c.tokens))
            .place(place_name(data, roles, life.id))
            .width(280.0)
            .row_if("role", role_words(data, roles, life.id))
            .row_if("address", data.recording.addresses().is_known().then_some(Address(life.address)))
            .row_if("requested", (life.requested != life.block).then_some(Bytes(life.requested)))
            .row("allocated", when(life.born, "before the trace"))
            .row("freed", when(freed, "not in the trace"))
            .row_if("reusable", is_held_up.then(|| when(life.gone, "")))
            .row_if("age here", age);
        let blocks = counted(u64::from(sharing), "block", "blocks");
        if sharing > 1 { tip.note(format!("{blocks} reach into this pixel; this one covers most of it.")) } else { tip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ages_between_two_events_too() {
        // Born at 1,000; the last event before the pointer is at 1,018; the pointer is 3,450 after the first event, which is at
        // 1,000.
        assert_eq!(time_at(Axis::Time, 3_450.0, 1_000, 1_018) - 1_000, 3_450);
        assert_eq!(time_at(Axis::Event, 3.5, 1_000, 1_018) - 1_000, 18);
        assert_eq!(time_at(Axis::Time, 17.0, 1_000, 1_018), 1_018, "an event of the same pixel");
    }
}
