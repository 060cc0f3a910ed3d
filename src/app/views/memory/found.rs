//! What the memory view computes for an instant, off the window's thread.

use rustc_hash::FxHashMap;

use crate::app::data::device::DeviceData;
use vramscope_core::anatomy::Roles;
use vramscope_core::anatomy::{Composition, LineHeld, ModuleHeld, Role};
use vramscope_core::diagnose::limits::Limit;
use vramscope_core::diagnose::source_limits::RELATIVE;
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::model::Beyond;
use vramscope_core::tables::{LifetimeId, NO_EVENT, Quantity};
use vramscope_core::units::{Bytes, count, counted};

/// Facts about the recording that do not depend on the instant.
pub struct Whole {
    /// Roles that hold memory at some time.
    pub elsewhere: Vec<Role>,
    /// A sentence that memory does not grow; `None` when it does.
    pub health: Option<String>,
    /// True for a trace without totals: all figures then cover only blocks in the trace.
    is_relative: bool,
    /// True for a file whose end is missing.
    is_cut: bool,
    /// Number of allocations, and how many of them have no stack.
    made: (u64, u64),
}

impl Whole {
    /// O(lifetimes).
    pub fn of(data: &DeviceData, roles: &Roles) -> Self {
        let (device, tables) = (data.device(), &data.tables);
        let lifetimes = &tables.lifetimes;
        let first = lifetimes.initial_count();
        let rows = (first as u32..lifetimes.len() as u32).map(LifetimeId);
        let bare = rows.filter(|&id| !lifetimes.stack(device, id).is_some()).count() as u64;
        Whole {
            elsewhere: Role::ALL.into_iter().filter(|role| roles.handed_out[role.index()].count > 0).collect(),
            health: no_growth(device, tables, &roles.anatomy.steps),
            is_relative: data.recording.is_relative(device),
            is_cut: data.recording.report.truncated().is_some(),
            made: ((lifetimes.len() - first) as u64, bare),
        }
    }

    /// How many allocations have no stack; `None` when all or none have one.
    pub fn without_stacks(&self, found: &Found) -> Option<String> {
        let (made, bare) = self.made;
        (found.has_stacks && bare > 0).then(|| {
            format!(
                "{} of {} allocations have no Python stack, as those of the backward pass. stacks=\"all\" records their C++ stacks.",
                count(bare),
                count(made)
            )
        })
    }

    /// Whether the recording has all live blocks.
    pub fn complete(&self, found: &Found) -> Option<String> {
        match found.older {
            // It is already shown above.
            _ if found.limit.is_some() => None,
            _ if self.is_relative => Some(RELATIVE.to_owned()),
            _ if self.made.0 == 0 => Some("It tells what was live, and no allocation or free before that.".to_owned()),
            (0, _) if found.held.beyond.all() > 0 => {
                Some(format!("Not all that is in use has an event in the trace: {}.", found.held.beyond.words()))
            }
            (0, _) if self.is_cut => Some("Not complete: the end of the file is missing.".to_owned()),
            (0, _) => Some("Complete: nothing that is live here is older than its first event.".to_owned()),
            (blocks, bytes) => {
                let are = if blocks == 1 { "is" } else { "are" };
                let blocks = counted(blocks, "block", "blocks");
                Some(format!("{blocks} ({}) of what is live here {are} older than the history.", Bytes(bytes)))
            }
        }
    }
}

/// The memory held at an instant.
pub struct Found {
    pub held: Composition,
    /// Lines, or sizes when no stacks were recorded.
    pub lines: Vec<LineHeld>,
    /// At least one block has a stack.
    pub has_stacks: bool,
    /// Modules hold some of it. Otherwise a table of modules would only repeat roles and lines.
    pub has_modules: bool,
    /// At least one module has a name. Otherwise modules are shown by the lines that call them.
    pub names_modules: bool,
    /// What the program was doing, as words after "at the peak, ".
    pub doing: String,
    /// Reserved bytes at that instant, if the file records them.
    pub reserved: Option<u64>,
    /// What the recording lacks, when that limits the answer.
    pub limit: Option<Limit>,
    /// Live blocks from before the recording, and their bytes.
    older: (u64, u64),
}

impl Found {
    /// Memory at an event, of `only` some roles or of all when empty. O(live blocks).
    pub fn at(data: &DeviceData, roles: &Roles, event: u32, only: &[Role]) -> Self {
        let (device, tables) = (data.device(), &data.tables);
        let is_role = |role: Role| only.is_empty() || only.contains(&role);
        let is_of = |id: LifetimeId| is_role(roles.of(id));
        let held = Composition::at(&data.recording, device, tables, &data.names, roles, event, |asked| {
            asked.map_or(is_role(Role::Unknown), is_of)
        });
        let has_stacks = !data.names.is_empty();
        let lifetimes = &tables.lifetimes;
        let live = tables.states.live_at(lifetimes, event);
        let older = live.iter().filter(|id| (id.0 as usize) < lifetimes.initial_count());
        let older = older.fold((0, 0), |(blocks, bytes), &id| (blocks + 1, bytes + lifetimes.block_size(id)));
        let reserved = tables.curves.at(device, lifetimes, Quantity::Reserved, event);
        Found {
            reserved: (reserved > 0 && reserved >= tables.curves.at(device, lifetimes, Quantity::Active, event))
                .then_some(reserved),
            lines: if has_stacks {
                held.lines.clone()
            } else {
                sizes(data, live.into_iter().filter(|&id| is_of(id)), held.beyond)
            },
            has_stacks,
            has_modules: held.modules.iter().any(|m| m.is_module),
            names_modules: held.modules.iter().any(ModuleHeld::has_names),
            doing: if event == NO_EVENT { String::new() } else { roles.anatomy.words_at(event) },
            limit: Limit::of(&data.recording, device, tables, event),
            older,
            held,
        }
    }

    /// A sentence on what most of it is.
    pub fn lead(&self) -> String {
        let said = self.held.sentence();
        if !said.is_empty() {
            return said;
        }
        let unknown = self.held.role(Role::Unknown).bytes;
        let much = match unknown.saturating_mul(2) < self.held.bytes {
            true => format!("{:.0} %", unknown as f64 / self.held.bytes as f64 * 100.0),
            false => "most".to_owned(),
        };
        format!("The recording does not show what {much} of it is for.")
    }

    /// True when modules are the most useful table.
    pub fn is_by_modules(&self, has_history: bool) -> bool {
        let is_known = has_history || self.held.role(Role::Unknown).bytes * 2 < self.held.bytes;
        is_known && self.has_modules
    }
}

/// Blocks by size, most bytes first, and what a trace's total holds `beyond` them.
fn sizes(data: &DeviceData, live: impl Iterator<Item = LifetimeId>, beyond: Beyond) -> Vec<LineHeld> {
    let mut of_size: FxHashMap<u64, LineHeld> = FxHashMap::default();
    for id in live {
        let size = data.tables.lifetimes.block_size(id);
        let line = of_size.entry(size).or_default();
        (line.bytes, line.count) = (line.bytes + size, line.count + 1);
        if line.lifetimes.is_empty() {
            line.lifetimes.push(id);
        }
    }
    // Different sizes with the same rounded text are written exactly, to the byte.
    let mut alike: FxHashMap<String, u32> = FxHashMap::default();
    of_size.keys().for_each(|&size| *alike.entry(Bytes(size).to_string()).or_default() += 1);
    let of = |(size, line)| {
        let text = Bytes(size).to_string();
        let is_alone = alike.get(&text).is_none_or(|&n| n == 1);
        let text = if is_alone { text } else { format!("{} B", count(size)) };
        LineHeld { place: format!("blocks of {text}"), size: Some(size), ..line }
    };
    let beyond = beyond.named().map(|(name, bytes)| LineHeld { place: name.to_owned(), bytes, ..LineHeld::default() });
    let mut all: Vec<LineHeld> = of_size.into_iter().map(of).chain(beyond).collect();
    all.sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.lifetimes.first().copied()));
    all
}
