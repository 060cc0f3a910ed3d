//! [`Composition`]: what is held at an instant, by role, by line and by module.

use rustc_hash::FxHashMap;

use super::frame::{CALL, PYTHON};
use super::sense::Part;
use super::{Anatomy, Role};
use crate::analysis::categories::Categories;
use crate::analysis::{DeviceTables, LifetimeId, StackNames};
use crate::model::{DeviceRecording, FrameId, Recording, StackId, StackTable};

/// What one role holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleHeld {
    /// The role.
    pub role: Role,
    /// Bytes of whole blocks.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// Of those bytes, the ones whose role is inferred from sizes, numbers and lives alone.
    pub probable: u64,
}

/// What one place holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineHeld {
    /// `model.py:41`, or in words where no line is known.
    pub place: String,
    /// One of its stacks; none where no line is known.
    pub stack: Option<StackId>,
    /// The role of most of its bytes.
    pub role: Role,
    /// Bytes of whole blocks.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// Its largest blocks, largest first, at most a hundred.
    pub lifetimes: Vec<LifetimeId>,
}

/// What one module holds, with the modules inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleHeld {
    /// The line that calls it, `modeling_gpt2.py:608`, or a group in words: `weights`, `backward, no Python stack`.
    pub name: String,
    /// How often it is there: the layers that one line of a loop calls.
    pub repeats: u64,
    /// Bytes of whole blocks, those of its parts included.
    pub bytes: u64,
    /// Blocks, likewise.
    pub count: u64,
    /// The modules inside, largest first.
    pub parts: Vec<ModuleHeld>,
    /// Its largest blocks, largest first, at most a hundred.
    pub lifetimes: Vec<LifetimeId>,
}

/// What is held after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// The event.
    pub event: u32,
    /// Bytes of whole blocks, those that wait for another stream included.
    pub bytes: u64,
    /// Blocks.
    pub count: u64,
    /// Every role that holds something, most bytes first.
    pub roles: Vec<RoleHeld>,
    /// Places, most bytes first.
    pub lines: Vec<LineHeld>,
    /// Modules and groups, most bytes first.
    pub modules: Vec<ModuleHeld>,
}

/// Blocks listed of a place.
const LISTED: usize = 100;

impl Composition {
    /// What is held after an event. O(live blocks times the depth of their stacks).
    #[must_use]
    pub fn at(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        names: &StackNames,
        categories: &Categories,
        event: u32,
    ) -> Self {
        let mut ids = tables.states.live_at(&tables.lifetimes, event);
        ids.sort_by_key(|&id| (std::cmp::Reverse(tables.lifetimes.block_size(id)), id));
        let mut roles = Role::ALL.map(|role| RoleHeld { role, ..RoleHeld::default() });
        let mut lines: FxHashMap<String, (LineHeld, [u64; Role::ALL.len()])> = FxHashMap::default();
        let mut tree = ModuleHeld::default();
        let mut within: FxHashMap<(Vec<String>, StackId), u64> = FxHashMap::default();
        let mut chains: FxHashMap<StackId, Vec<String>> = FxHashMap::default();
        for &id in &ids {
            let (bytes, stack) = (tables.lifetimes.block_size(id), tables.lifetimes.stack(device, id));
            let role = categories.of(id);
            let held = &mut roles[role.index()];
            held.bytes += bytes;
            held.count += 1;
            held.probable += if categories.is_probable(device, tables, id) { bytes } else { 0 };
            let is_older = (id.0 as usize) < tables.lifetimes.initial_count();
            let place = place(names, stack, role, is_older);
            let (line, by_role) = lines.entry(place).or_default();
            line.stack = line.stack.or(Some(stack).filter(|s| s.is_some()));
            line.bytes += bytes;
            line.count += 1;
            by_role[role.index()] += bytes;
            if line.lifetimes.len() < LISTED {
                line.lifetimes.push(id);
            }
            let modules = chains.entry(stack).or_insert_with(|| chain(&recording.stacks, &categories.anatomy, stack));
            let path = match role {
                Role::Activations | Role::Temporaries | Role::AutocastCopies | Role::KvCache | Role::Unknown
                    if !modules.is_empty() =>
                {
                    modules.clone()
                }
                _ => vec![group(role, stack)],
            };
            tree.add(&path, id, bytes);
            *within.entry((path, stack)).or_default() += 1;
        }
        for ((path, _), count) in within {
            tree.repeat(&path, count);
        }
        tree.settle();
        let mut lines: Vec<LineHeld> = lines
            .into_iter()
            .map(|(place, (line, by_role))| {
                let most = (0..by_role.len()).max_by_key(|&i| by_role[i]).unwrap_or(0);
                LineHeld { place, role: Role::ALL[most], ..line }
            })
            .collect();
        lines.sort_by(|a, b| (b.bytes, &a.place).cmp(&(a.bytes, &b.place)));
        let mut roles: Vec<RoleHeld> = roles.into_iter().filter(|r| r.count > 0).collect();
        roles.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.role));
        let bytes = ids.iter().map(|&id| tables.lifetimes.block_size(id)).sum();
        Composition { event, bytes, count: ids.len() as u64, roles, lines, modules: tree.parts }
    }

    /// What a role holds; nothing where it holds nothing.
    #[must_use]
    pub fn role(&self, role: Role) -> RoleHeld {
        self.roles.iter().copied().find(|r| r.role == role).unwrap_or(RoleHeld { role, ..RoleHeld::default() })
    }

    /// The largest share in a sentence: `Half of it is activations.`; empty where nothing is known.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Some(first) = self.roles.first().filter(|r| self.bytes > 0 && r.role != Role::Unknown) else { return String::new() };
        let share = first.bytes as f64 / self.bytes as f64;
        let probably = if first.probable * 2 > first.bytes { "probably " } else { "" };
        let much = match share {
            s if s > 0.97 => "Nearly all".to_owned(),
            s if (0.47..0.53).contains(&s) => "Half".to_owned(),
            s => format!("{:.0} %", s * 100.0),
        };
        format!("{much} of it is {probably}{}.", first.role.text())
    }
}

impl ModuleHeld {
    fn add(&mut self, path: &[String], id: LifetimeId, bytes: u64) {
        self.bytes += bytes;
        self.count += 1;
        if self.lifetimes.len() < LISTED {
            self.lifetimes.push(id);
        }
        let Some((name, rest)) = path.split_first() else { return };
        let at = self.parts.iter().position(|p| p.name == *name).unwrap_or_else(|| {
            self.parts.push(ModuleHeld { name: name.clone(), repeats: 1, ..ModuleHeld::default() });
            self.parts.len() - 1
        });
        self.parts[at].add(rest, id, bytes);
    }

    /// A stack of which several blocks live at once was gone through as often.
    fn repeat(&mut self, path: &[String], count: u64) {
        let Some((name, rest)) = path.split_first() else { return };
        if let Some(part) = self.parts.iter_mut().find(|p| p.name == *name) {
            part.repeats = part.repeats.max(count);
            part.repeat(rest, count);
        }
    }

    /// Largest first; a module with one part that holds all of it gives way to that part, and what repeats does so once.
    fn settle(&mut self) {
        for part in &mut self.parts {
            while part.parts.len() == 1 && part.parts[0].bytes == part.bytes {
                part.parts = std::mem::take(&mut part.parts[0].parts);
            }
            // Inside a loop over layers its own parts come as often as the loop.
            let outer = part.repeats;
            part.parts.iter_mut().for_each(|inner| inner.repeats = (inner.repeats / outer.max(1)).max(1));
            part.settle();
        }
        self.parts.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    }

    /// `8 × modeling_gpt2.py:608`.
    #[must_use]
    pub fn title(&self) -> String {
        if self.repeats > 1 { format!("{} \u{d7} {}", self.repeats, self.name) } else { self.name.clone() }
    }
}

/// Where a block was made, in a table of places.
fn place(names: &StackNames, stack: StackId, role: Role, is_older: bool) -> String {
    match stack.is_some() {
        true => names.of_stack(stack).to_owned(),
        false if is_older => format!("{}, older than the recording", role.text()),
        false if role == Role::Gradients => "gradients (backward, no Python stack)".to_owned(),
        false => "backward (no Python stack)".to_owned(),
    }
}

/// What a block without a module is listed under.
fn group(role: Role, stack: StackId) -> String {
    match role {
        Role::Temporaries if !stack.is_some() => "backward, no Python stack".to_owned(),
        other => other.text().to_owned(),
    }
}

/// The lines of the modules that a forward stack goes through, outermost first.
fn chain(stacks: &StackTable, anatomy: &Anatomy, stack: StackId) -> Vec<String> {
    let sense = anatomy.phases.sense(stack);
    if !matches!(sense.part, Part::Forward | Part::Backward) {
        return Vec::new();
    }
    let frames = stacks.frames(stack);
    let bits = |f: FrameId| anatomy.phases.bits.get(f.0 as usize).copied().unwrap_or(0);
    let (mut lines, mut enters) = (Vec::new(), true);
    for &f in frames[..(sense.inside as usize).min(frames.len())].iter().rev() {
        if bits(f) & CALL != 0 {
            enters = true;
        } else if bits(f) & PYTHON != 0 && enters {
            lines.extend(stacks.frame(f).map(|f| stacks.location(f)));
            enters = false;
        }
    }
    // The innermost line is the operator's: it belongs to the module, and is told by the table of lines.
    lines.pop();
    lines
}
