//! [`Composition`]: what is held at an instant, by role, by line and by module.

use rustc_hash::FxHashMap;

use super::frame::{CALL, CONTAINER, PYTHON};
use super::sense::Part;
use super::{Anatomy, Role};
use crate::analysis::roles::Roles;
use crate::analysis::{DeviceTables, LifetimeId, StackNames};
use crate::model::{DeviceRecording, Frame, FrameId, Recording, StackId, StackTable};

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
        roles: &Roles,
        event: u32,
    ) -> Self {
        let mut ids = tables.states.live_at(&tables.lifetimes, event);
        ids.sort_by_key(|&id| (std::cmp::Reverse(tables.lifetimes.block_size(id)), id));
        let mut by_role = Role::ALL.map(|role| RoleHeld { role, ..RoleHeld::default() });
        let mut lines: FxHashMap<String, (LineHeld, [u64; Role::ALL.len()])> = FxHashMap::default();
        let mut tree = ModuleHeld::default();
        let mut within: FxHashMap<(Vec<String>, StackId), u64> = FxHashMap::default();
        let mut chains: FxHashMap<StackId, Vec<String>> = FxHashMap::default();
        for &id in &ids {
            let (bytes, stack) = (tables.lifetimes.block_size(id), tables.lifetimes.stack(device, id));
            let role = roles.of(id);
            let held = &mut by_role[role.index()];
            held.bytes += bytes;
            held.count += 1;
            held.probable += if roles.is_probable(device, tables, id) { bytes } else { 0 };
            let is_older = (id.0 as usize) < tables.lifetimes.initial_count();
            let place = place(&recording.stacks, names, stack, role, is_older);
            let (line, of_line) = lines.entry(place).or_default();
            line.stack = line.stack.or(Some(stack).filter(|s| s.is_some()));
            line.bytes += bytes;
            line.count += 1;
            of_line[role.index()] += bytes;
            if line.lifetimes.len() < LISTED {
                line.lifetimes.push(id);
            }
            let modules = chains.entry(stack).or_insert_with(|| chain(&recording.stacks, &roles.anatomy, stack));
            let path = match role {
                Role::Activations | Role::Temporaries | Role::AutocastCopies | Role::KvCache | Role::Unknown
                    if !modules.is_empty() =>
                {
                    modules.clone()
                }
                _ => {
                    tree.add(&[group(role, stack)], id, bytes);
                    continue;
                }
            };
            tree.add(&path, id, bytes);
            *within.entry((path, stack)).or_default() += 1;
        }
        let within: Vec<(&[String], u64)> = within.iter().map(|((path, _), &count)| (path.as_slice(), count)).collect();
        tree.settle(&within);
        tree.enter();
        let mut lines: Vec<LineHeld> = lines
            .into_iter()
            .map(|(place, (line, of_line))| {
                let most = (0..of_line.len()).max_by_key(|&i| of_line[i]).unwrap_or(0);
                LineHeld { place, role: Role::ALL[most], ..line }
            })
            .collect();
        lines.sort_by(|a, b| (b.bytes, &a.place).cmp(&(a.bytes, &b.place)));
        let mut roles: Vec<RoleHeld> = by_role.into_iter().filter(|r| r.count > 0).collect();
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

    /// Largest first; a module with one part that holds all of it gives way to that part, and what repeats does so once. `counts` are
    /// the live blocks of each stack inside: of a line that eight layers share eight live at once, or a multiple of that.
    fn settle(&mut self, counts: &[(&[String], u64)]) {
        for part in &mut self.parts {
            let inside = counts.iter().filter(|(path, _)| path.first() == Some(&part.name));
            let inside: Vec<(&[String], u64)> = inside.map(|&(path, count)| (&path[1..], count)).collect();
            part.settle(&inside);
            let own = most_frequent(inside.iter().filter(|(path, _)| path.is_empty()).map(|&(_, count)| count));
            // What is there once, as an embedding beside the layers, is in no loop.
            let outer = part.parts.iter().map(|p| p.repeats).chain(own).min().unwrap_or(1);
            part.repeats = outer;
            // Inside a loop over layers its own parts come as often as the loop.
            part.parts.iter_mut().for_each(|inner| inner.repeats = (inner.repeats / outer.max(1)).max(1));
            while part.parts.len() == 1 && part.parts[0].bytes == part.bytes {
                let only = part.parts.remove(0);
                *part = ModuleHeld { repeats: part.repeats * only.repeats, ..only };
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.parts.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    }

    /// The whole model is one call: its parts stand in its place, and what it holds itself beside them.
    fn enter(&mut self) {
        let mut models = self.parts.iter().enumerate().filter(|(_, p)| !p.parts.is_empty());
        let Some((at, model)) = models.next().filter(|(_, m)| m.repeats == 1) else { return };
        if models.next().is_some() {
            return;
        }
        let mut rest = ModuleHeld { parts: Vec::new(), ..model.clone() };
        for part in &model.parts {
            rest.bytes -= part.bytes;
            rest.count -= part.count;
            rest.lifetimes.retain(|id| !part.lifetimes.contains(id));
        }
        let model = self.parts.remove(at);
        self.parts.extend(model.parts);
        if rest.count > 0 {
            self.parts.push(rest);
        }
        self.sort();
    }

    /// `8 × modeling_gpt2.py:608`.
    #[must_use]
    pub fn title(&self) -> String {
        if self.repeats > 1 { format!("{} \u{d7} {}", self.repeats, self.name) } else { self.name.clone() }
    }
}

/// Where a block was made, in a table of places.
fn place(stacks: &StackTable, names: &StackNames, stack: StackId, role: Role, is_older: bool) -> String {
    match stack.is_some() {
        true => made_at(stacks, names, stack, role),
        false if is_older => format!("{}, older than the recording", role.text()),
        false if role == Role::Gradients => "gradients (backward, no Python stack)".to_owned(),
        false => "backward (no Python stack)".to_owned(),
    }
}

/// Where a block of a role was made, `modeling_gpt2.py:240`: the innermost line outside of torch, also in a library, for that is where
/// an activation is made. Of weights and what the optimizer makes of them the line of the user's own code, which says more.
#[must_use]
pub fn made_at(stacks: &StackTable, names: &StackNames, stack: StackId, role: Role) -> String {
    let is_of_model = !matches!(role, Role::Weights | Role::Gradients | Role::OptimizerState | Role::Buckets);
    match line_of(stacks, stack).filter(|_| is_of_model).and_then(|f| stacks.frame(f)) {
        Some(frame) => stacks.location(frame),
        None => names.of_stack(stack).to_owned(),
    }
}

/// The innermost Python line outside of torch; `None` where a stack has none, as in the backward pass. O(depth).
#[must_use]
pub fn line_of(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    let is_outside = |f: Frame| {
        let file = stacks.text(f.file);
        // A virtual environment may lie in a folder called torch.
        let within = file.rsplit_once("-packages").map(|(_, rest)| rest.trim_start_matches(['/', '\\']));
        let is_torch = match within {
            Some(rest) => rest.starts_with("torch/") || rest.starts_with("torch\\"),
            None => file.starts_with("torch/") || file.contains("/torch/"),
        };
        file.ends_with(".py") && !is_torch
    };
    stacks.frames(stack).iter().copied().find(|&f| stacks.frame(f).is_some_and(is_outside))
}

/// The value that occurs most; of several the smallest.
fn most_frequent(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: FxHashMap<u64, u64> = FxHashMap::default();
    values.for_each(|v| *times.entry(v).or_default() += 1);
    times.into_iter().max_by_key(|&(value, n)| (n, std::cmp::Reverse(value))).map(|(value, _)| value)
}

/// What a block without a module is listed under.
fn group(role: Role, stack: StackId) -> String {
    match role {
        Role::Temporaries if !stack.is_some() => "backward, no Python stack".to_owned(),
        other => other.text().to_owned(),
    }
}

/// The lines that call the modules which a forward stack goes through, outermost first. Lines of torch's own containers call what the
/// user put into them, and those of wrappers call the function they wrap: neither says which module it is.
fn chain(stacks: &StackTable, anatomy: &Anatomy, stack: StackId) -> Vec<String> {
    let sense = anatomy.phases.sense(stack);
    if !matches!(sense.part, Part::Forward | Part::Backward) {
        return Vec::new();
    }
    let frames = stacks.frames(stack);
    let bits = |f: FrameId| anatomy.phases.bits.get(f.0 as usize).copied().unwrap_or(0);
    // The innermost line is the operator's: it belongs to the module, and is told by the table of lines.
    let (mut lines, mut last) = (Vec::new(), None);
    for &f in frames[..(sense.inside as usize).min(frames.len())].iter().rev() {
        if bits(f) & CALL != 0 {
            lines.extend(last.take().map(|f| stacks.location(f)));
        } else if bits(f) & (PYTHON | CONTAINER) == PYTHON {
            last = stacks.frame(f);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_repeat_and_what_stands_beside_them_does_not() {
        let path = |lines: &[&str]| -> Vec<String> { lines.iter().map(|&l| l.to_owned()).collect() };
        // Eight layers; the second line of their feed-forward part keeps two blocks each. An embedding stands beside them.
        let stacks = [
            (path(&["model.py:9", "model.py:20", "model.py:30"]), 8),
            (path(&["model.py:9", "model.py:20", "model.py:30"]), 8),
            (path(&["model.py:9", "model.py:20", "model.py:31"]), 16),
            (path(&["model.py:9", "model.py:20", "model.py:31"]), 8),
            (path(&["model.py:9", "model.py:12"]), 1),
        ];
        let mut tree = ModuleHeld::default();
        let mut id = 0;
        for (path, count) in &stacks {
            for _ in 0..*count {
                tree.add(path, LifetimeId(id), 512);
                id += 1;
            }
        }
        tree.add(&[group(Role::Weights, StackId::NONE)], LifetimeId(id), 4096);
        let counts: Vec<(&[String], u64)> = stacks.iter().map(|(path, count)| (path.as_slice(), *count)).collect();
        tree.settle(&counts);
        tree.enter();
        let titles: Vec<String> = tree.parts.iter().map(ModuleHeld::title).collect();
        assert_eq!(titles, ["8 \u{d7} model.py:20", "weights", "model.py:12"]);
        let inside: Vec<String> = tree.parts[0].parts.iter().map(ModuleHeld::title).collect();
        assert_eq!(inside, ["model.py:31", "model.py:30"]);
        assert_eq!(tree.parts.iter().map(|p| p.bytes).sum::<u64>(), tree.bytes, "nothing is lost");
    }
}
