//! What is worked out for an instant off the window's thread.

use rustc_hash::FxHashMap;

use super::layout;
use crate::analysis::anatomy::{Composition, LineHeld, Role};
use crate::analysis::{NO_EVENT, Quantity, Roles};
use crate::app::document::DeviceData;
use crate::model::WarningKind;
use crate::units::{Bytes, count, counted};

/// What is held at an instant, and what the recording says of itself.
pub struct Found {
    /// By role, line and module.
    pub held: Composition,
    /// Lines, or sizes where no stacks were recorded.
    pub lines: Vec<LineHeld>,
    /// Some block has a stack.
    pub has_stacks: bool,
    /// What the program did, after "at the peak, ".
    pub doing: String,
    /// The roles that hold something at some time.
    pub elsewhere: Vec<Role>,
    /// That memory does not grow, where it does not.
    pub health: Option<String>,
    /// That the beginning is missing.
    pub lost: Option<String>,
    /// Live blocks that are older than the recording, and their bytes.
    older: (u64, u64),
    /// Allocations of the recording, and those without a stack.
    made: (u64, u64),
}

impl Found {
    /// At an event. O(lifetimes): who counts those without stacks looks at all.
    pub fn at(data: &DeviceData, roles: &Roles, event: u32) -> Self {
        let (device, tables) = (data.device(), &data.tables);
        let held = Composition::at(&data.recording, device, tables, &data.names, roles, event);
        let has_stacks = !data.names.is_empty();
        let lifetimes = &tables.lifetimes;
        let first = lifetimes.initial_count();
        let mut older = (0, 0);
        for id in tables.states.live_at(lifetimes, event).into_iter().filter(|id| (id.0 as usize) < first) {
            older = (older.0 + 1, older.1 + lifetimes.block_size(id));
        }
        let rows = (first as u32..lifetimes.len() as u32).map(crate::analysis::LifetimeId);
        let bare = rows.filter(|&id| !lifetimes.stack(device, id).is_some()).count() as u64;
        let steps = &roles.anatomy.steps;
        let ends: Vec<u64> = match steps.is_empty() {
            true => Vec::new(),
            false => tables.curves.columns(device, lifetimes, Quantity::Active, &steps.bounds).iter().map(|c| c.last).collect(),
        };
        let is_lost = data.recording.report.warnings.iter().any(|w| w.kind == WarningKind::StartMissing);
        Found {
            lines: if has_stacks { held.lines.clone() } else { sizes(data, event) },
            has_stacks,
            doing: if event == NO_EVENT { String::new() } else { roles.anatomy.words_at(event) },
            elsewhere: Role::ALL.into_iter().filter(|role| roles.handed_out[role.index()].count > 0).collect(),
            health: layout::no_growth(&ends),
            lost: (is_lost && older.0 > 0)
                .then(|| format!("The beginning is missing: {} of it is older than the recording.", Bytes(older.1))),
            older,
            made: ((lifetimes.len() - first) as u64, bare),
            held,
        }
    }

    /// What most of it is.
    pub fn lead(&self) -> String {
        let said = self.held.sentence();
        if said.is_empty() { "Nothing in the recording tells what most of it is for.".to_owned() } else { said }
    }

    /// Whether the recording has all that was live.
    pub fn complete(&self, is_lost: bool) -> String {
        match self.older {
            _ if self.made.0 == 0 => "It tells what was live, and no allocation or free before that.".to_owned(),
            (0, _) if !is_lost => "Complete from the first allocation.".to_owned(),
            (0, _) => "Its beginning is missing; nothing that is live here is older.".to_owned(),
            (blocks, bytes) => {
                format!(
                    "{} ({}) of what is live here {} older than the recording.",
                    counted(blocks, "block", "blocks"),
                    Bytes(bytes),
                    if blocks == 1 { "is" } else { "are" }
                )
            }
        }
    }

    /// How many allocations have no stack, where that is some and not all.
    pub fn without_stacks(&self) -> Option<String> {
        let (made, bare) = self.made;
        (self.has_stacks && bare > 0).then(|| {
            format!(
                "{} of {} allocations have no Python stack, as those of the backward pass. stacks=\"all\" records their C++ stacks.",
                count(bare),
                count(made)
            )
        })
    }
}

/// Live blocks by their size, most bytes first.
fn sizes(data: &DeviceData, event: u32) -> Vec<LineHeld> {
    let lifetimes = &data.tables.lifetimes;
    let mut of_size: FxHashMap<u64, LineHeld> = FxHashMap::default();
    for id in data.tables.states.live_at(lifetimes, event) {
        let size = lifetimes.block_size(id);
        let line = of_size.entry(size).or_default();
        (line.bytes, line.count) = (line.bytes + size, line.count + 1);
        if line.lifetimes.is_empty() {
            line.lifetimes.push(id);
        }
    }
    let of = |(size, line)| LineHeld { place: format!("blocks of {}", Bytes(size)), ..line };
    let mut all: Vec<LineHeld> = of_size.into_iter().map(of).collect();
    all.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.lifetimes.first().copied()));
    all
}
