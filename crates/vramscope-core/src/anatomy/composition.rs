//! [`Composition`]: the memory held at an instant, by role, by line and by module.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Role;
use super::places::{Call, PlaceKey, Places, Which, made_in};
use super::repeats::{Repeats, of_call};
use crate::anatomy::roles::Roles;
use crate::model::{Beyond, DeviceRecording, FrameId, Recording, StackId};
use crate::tables::{DeviceTables, LifetimeId, StackNames};

/// Memory held by one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleHeld {
    /// The role.
    pub role: Role,
    /// Bytes of whole blocks.
    pub bytes: u64,
    /// Number of blocks, including those that wait for another stream.
    pub count: u64,
    /// The part of [`bytes`](Self::bytes) whose role is inferred only from sizes, counts and lifetimes.
    pub probable: u64,
}

/// Memory allocated at one place in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineHeld {
    /// `model.py:41`, or a description if no line is known.
    pub place: String,
    /// One of its stacks; `None` if no line is known.
    pub stack: Option<StackId>,
    /// The frame of the line; `None` if no line is known.
    pub frame: Option<FrameId>,
    /// Set if no stacks were recorded; the row then stands for all blocks of this size.
    pub size: Option<u64>,
    /// The role of most of its bytes.
    pub role: Role,
    /// Other roles with at least a tenth of its bytes, largest first.
    pub other_roles: Vec<Role>,
    /// Its bytes by role, indexed by [`Role::index`]; all zero for bytes outside any block.
    pub by_role: [u64; Role::ALL.len()],
    /// The part of [`bytes`](Self::bytes) whose role is inferred only from sizes, counts and lifetimes.
    pub probable: u64,
    /// Bytes of whole blocks.
    pub bytes: u64,
    /// Number of blocks, including those that wait for another stream.
    pub count: u64,
    /// Its largest blocks, largest first, at most a hundred.
    pub lifetimes: Vec<LifetimeId>,
}

/// Memory allocated inside one module, including the modules inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleHeld {
    /// `GPT2Block` if the recording names modules; otherwise the line that calls it (`modeling_gpt2.py:608`), or the name of a
    /// group (`weights`, `backward, no stack`).
    pub name: String,
    /// The names of the enclosing modules, outermost first, ending with its own.
    pub path: Vec<String>,
    /// The line that calls it; `None` for a group.
    pub line: Option<FrameId>,
    /// True for the extra row beside a module's parts: memory that belongs to none of them.
    pub is_rest: bool,
    /// Number of instances: layers that one line of a loop calls.
    pub repeats: u64,
    /// Bytes of whole blocks, including those of its parts.
    pub bytes: u64,
    /// Number of blocks, including those of its parts.
    pub count: u64,
    /// The modules inside it, and its own lines, that hold memory; largest first.
    pub parts: Vec<ModuleHeld>,
    /// Its largest blocks, largest first, at most a hundred.
    pub lifetimes: Vec<LifetimeId>,
    /// True for a module, false for a group.
    pub is_module: bool,
    /// The role, if this is the group of a role.
    pub role: Option<Role>,
    /// The part of [`bytes`](Self::bytes) whose role is inferred only from sizes, counts and lifetimes.
    pub probable: u64,
    /// True for a container that calls its modules one after the other.
    loops: bool,
    /// The distinct modules of its class, if the recording names them.
    instances: FxHashSet<FrameId>,
}

/// The memory held after an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Composition {
    /// The event.
    pub event: u32,
    /// Bytes of whole blocks, including those that wait for another stream.
    pub bytes: u64,
    /// The part of these bytes that the source reports beyond its blocks; its role is unknown.
    pub beyond: Beyond,
    /// Number of blocks, including those that wait for another stream; [`beyond`](Self::beyond) has no blocks.
    pub count: u64,
    /// Roles that hold memory, most bytes first.
    pub roles: Vec<RoleHeld>,
    /// Places, most bytes first.
    pub lines: Vec<LineHeld>,
    /// Modules and groups, most bytes first.
    pub modules: Vec<ModuleHeld>,
}

/// Most blocks listed per place.
const LISTED: usize = 100;

impl Composition {
    /// Memory held after an event by the blocks for which `asked` is true. `Err` selects a part of [`Beyond`] by its name, which
    /// has no blocks. O(live blocks × depth of their stacks).
    pub fn at(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        names: &StackNames,
        roles: &Roles,
        event: u32,
        asked: impl Fn(Result<LifetimeId, &'static str>) -> bool,
    ) -> Self {
        let mut ids = tables.states.live_at(&tables.lifetimes, event);
        ids.sort_by_key(|&id| (std::cmp::Reverse(tables.lifetimes.block_size(id)), id));
        let mut by_role = Role::ALL.map(|role| RoleHeld { role, ..RoleHeld::default() });
        let mut lines: FxHashMap<&str, LineHeld> = FxHashMap::default();
        let mut tree = ModuleHeld::default();
        let places = Places::of(recording, device, names, roles);
        let kinds: Vec<(LifetimeId, PlaceKey)> =
            ids.into_iter().map(|id| (id, PlaceKey::of(device, tables, roles, id))).collect();
        let mut of_kind: FxHashMap<PlaceKey, (String, Vec<Call>)> = FxHashMap::default();
        let counted: Vec<(PlaceKey, u64)> = Repeats::of_pass(device, tables, &roles.anatomy, event)
            .iter()
            .map(|(stack, calls)| (PlaceKey::in_pass(stack), calls))
            .collect();
        for &kind in kinds.iter().map(|(_, kind)| kind).chain(counted.iter().map(|(kind, _)| kind)) {
            of_kind.entry(kind).or_insert_with(|| (places.line(kind), places.modules(kind)));
        }
        for &(id, kind) in &kinds {
            let Some((place, path)) = of_kind.get(&kind) else { continue };
            if !asked(Ok(id)) {
                continue;
            }
            let (role, bytes) = (kind.role, tables.lifetimes.block_size(id));
            let held = &mut by_role[role.index()];
            held.bytes += bytes;
            held.count += 1;
            let probable = if roles.is_probable(device, tables, id) { bytes } else { 0 };
            held.probable += probable;
            let line = lines.entry(place).or_default();
            if line.stack.is_none() && kind.stack.is_some() {
                line.stack = Some(kind.stack);
                line.frame = made_in(&recording.stacks, names, kind.stack, role);
            }
            line.bytes += bytes;
            line.probable += probable;
            line.count += 1;
            line.by_role[role.index()] += bytes;
            if line.lifetimes.len() < LISTED {
                line.lifetimes.push(id);
            }
            tree.add(path, id, bytes, probable);
        }
        let modules = counted.iter().filter_map(|(kind, calls)| {
            let path = &of_kind.get(kind)?.1;
            Some((&path[..path.iter().take_while(|call| call.is_module).count()], *calls))
        });
        let counts: Vec<(&[Call], u64)> = modules.filter(|(path, _)| !path.is_empty()).collect();
        tree.settle(&counts);
        tree.enter();
        let mut lines: Vec<LineHeld> = lines
            .into_iter()
            .map(|(place, line)| {
                let of_line = line.by_role;
                let mut roles: Vec<Role> = Role::ALL.to_vec();
                roles.sort_by_key(|role| std::cmp::Reverse(of_line[role.index()]));
                let role = roles.remove(0);
                roles.retain(|role| of_line[role.index()] > 0 && of_line[role.index()] * 10 >= line.bytes);
                LineHeld { place: place.to_owned(), role, other_roles: roles, ..line }
            })
            .collect();
        let known = kinds.iter().fold(0u64, |sum, &(id, _)| sum.saturating_add(tables.lifetimes.block_size(id)));
        let mut beyond = device.source_totals.beyond_parts(event, known);
        beyond.before *= u64::from(asked(Err(Beyond::BEFORE)));
        beyond.grew *= u64::from(asked(Err(Beyond::GREW)));
        for (name, bytes) in beyond.named() {
            let name = name.to_owned();
            by_role[Role::Unknown.index()].bytes += bytes;
            lines.push(LineHeld { place: name.clone(), bytes, ..LineHeld::default() });
            tree.parts.push(ModuleHeld { path: vec![name.clone()], name, bytes, repeats: 1, ..ModuleHeld::default() });
            tree.sort();
        }
        lines.sort_by(|a, b| (b.bytes, &a.place).cmp(&(a.bytes, &b.place)));
        let mut roles: Vec<RoleHeld> = by_role.into_iter().filter(|r| r.count > 0 || r.bytes > 0).collect();
        roles.sort_by_key(|r| (std::cmp::Reverse(r.bytes), r.role));
        Composition { event, bytes: tree.bytes + beyond.all(), beyond, count: tree.count, roles, lines, modules: tree.parts }
    }

    /// The memory of a role; zeros if it holds none.
    pub fn role(&self, role: Role) -> RoleHeld {
        self.roles.iter().copied().find(|r| r.role == role).unwrap_or(RoleHeld { role, ..RoleHeld::default() })
    }

    /// A sentence with the largest share: `Half of it is activations.`; empty if nothing is known.
    pub fn sentence(&self) -> String {
        let Some(first) = self.roles.first().filter(|r| self.bytes > 0 && r.role != Role::Unknown) else { return String::new() };
        let share = first.bytes as f64 / self.bytes as f64;
        let much = match share {
            s if s > 0.97 => "Nearly all".to_owned(),
            s if (0.47..0.53).contains(&s) => "Half".to_owned(),
            s => format!("{:.0} %", s * 100.0),
        };
        format!("{much} of it is {}.", first.words())
    }
}

impl RoleHeld {
    /// True if the role of more than half of its bytes is inferred.
    pub fn is_probable(&self) -> bool {
        self.probable * 2 > self.bytes
    }

    /// The role, with "probably" if it is mostly inferred.
    pub fn words(&self) -> String {
        self.role.words(self.is_probable())
    }
}

impl LineHeld {
    /// The role of most of its bytes, with "probably" if it is mostly inferred.
    pub fn role_text(&self) -> String {
        self.role.words(self.probable * 2 > self.bytes)
    }

    /// Selects its blocks: those of a line, or of a size.
    pub fn which(&self) -> Which {
        self.size.map_or_else(|| Which::Line(self.place.clone()), Which::Size)
    }
}

impl ModuleHeld {
    fn add(&mut self, calls: &[Call], id: LifetimeId, bytes: u64, probable: u64) {
        self.bytes += bytes;
        self.probable += probable;
        self.count += 1;
        if self.lifetimes.len() < LISTED {
            self.lifetimes.push(id);
        }
        let Some((call, inside)) = calls.split_first() else { return };
        let at = self.parts.iter().position(|p| p.name == call.name).unwrap_or_else(|| {
            let path = self.path.iter().chain([&call.name]).cloned().collect();
            let Call { line, is_module, loops, role, .. } = *call;
            let name = call.name.clone();
            self.parts.push(ModuleHeld { name, path, line, is_module, loops, role, repeats: 1, ..ModuleHeld::default() });
            self.parts.len() - 1
        });
        self.parts[at].instances.extend(call.instance);
        // A line may call both a module and an operator.
        self.parts[at].is_module |= call.is_module;
        self.parts[at].add(inside, id, bytes, probable);
    }

    /// Sorts parts by size, replaces a module by its only part if that part holds all its bytes, and counts instances. `counts`
    /// says how often each inner stack runs in one pass: a line in eight layers runs eight times, or a multiple of eight.
    fn settle(&mut self, counts: &[(&[Call], u64)]) {
        for part in &mut self.parts {
            let inside = counts.iter().filter_map(|&(path, count)| Some((path.split_first()?, count)));
            let inside: Vec<(&[Call], u64)> =
                inside.filter(|((call, _), _)| call.name == part.name).map(|((_, inner), count)| (inner, count)).collect();
            part.settle(&inside);
            let made: Vec<u64> = inside.iter().map(|&(_, count)| count).collect();
            let outer = match part.instances.len() as u64 {
                0 => of_call(&made, part.loops),
                named => named,
            };
            // Memory that a layer holds only while it runs is not held by all instances.
            let outer = if part.count < outer { 1 } else { outer };
            part.repeats = outer;
            // Inside a loop over layers, its own parts are counted per iteration of that loop.
            part.parts.iter_mut().for_each(|inner| inner.repeats = (inner.repeats / outer.max(1)).max(1));
            while part.parts.len() == 1 && part.parts[0].bytes == part.bytes {
                let only = part.parts.remove(0);
                if only.is_module {
                    *part = ModuleHeld { repeats: part.repeats * only.repeats, ..only };
                }
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.parts.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    }

    /// If the whole model is one call, replaces it by its parts, beside its own memory.
    fn enter(&mut self) {
        let mut models = self.parts.iter().enumerate().filter(|(_, p)| p.parts.iter().any(|inner| inner.is_module));
        let Some((at, model)) = models.next().filter(|(_, m)| m.repeats == 1) else { return };
        if models.next().is_some() {
            return;
        }
        let mut rest = ModuleHeld { parts: Vec::new(), is_rest: true, ..model.clone() };
        for part in &model.parts {
            rest.bytes -= part.bytes;
            rest.probable -= part.probable;
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

    /// The selection for [`OwnBlocks`](super::OwnBlocks). For a [rest row](Self::is_rest), omits the blocks of other parts.
    pub fn which(&self) -> Which {
        if self.is_rest { Which::Directly(self.path.clone()) } else { Which::Module(self.path.clone()) }
    }

    /// True if the recording names the module; otherwise its name is the line that calls it.
    pub fn is_named(&self) -> bool {
        !self.instances.is_empty()
    }

    /// True if the recording names it or a module inside it.
    pub fn has_names(&self) -> bool {
        self.is_named() || self.parts.iter().any(ModuleHeld::has_names)
    }

    /// `8 × modeling_gpt2.py:608`. For a role's group: the role, with "probably" if it is mostly inferred.
    pub fn title(&self) -> String {
        if let Some(role) = self.role {
            return role.words(self.probable * 2 > self.bytes);
        }
        if self.repeats > 1 { format!("{} \u{d7} {}", self.repeats, self.name) } else { self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, instance: Option<u32>) -> Call {
        Call { name: name.to_owned(), instance: instance.map(FrameId), line: None, is_module: true, loops: false, role: None }
    }

    #[test]
    fn layers_repeat_and_what_stands_beside_them_does_not() {
        let path = |lines: &[&str]| -> Vec<Call> { lines.iter().map(|&l| call(l, None)).collect() };
        // Eight layers; the second line of their feed-forward part keeps two blocks each, and there is one embedding.
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
                tree.add(path, LifetimeId(id), 512, 0);
                id += 1;
            }
        }
        let weights = Call { is_module: false, role: Some(Role::Weights), ..call("weights", None) };
        tree.add(&[weights], LifetimeId(id), 4096, 4096);
        // A line of the layer itself, and the only line of a module.
        let own = |path: &[&str]| -> Vec<Call> {
            let mut path: Vec<Call> = path.iter().map(|&l| call(l, None)).collect();
            path.last_mut().unwrap().is_module = false;
            path
        };
        tree.add(&own(&["model.py:9", "model.py:20", "model.py:25"]), LifetimeId(id + 1), 1024, 0);
        tree.add(&own(&["model.py:9", "model.py:12", "model.py:3"]), LifetimeId(id + 2), 512, 0);
        let counts: Vec<(&[Call], u64)> = stacks.iter().map(|(path, count)| (path.as_slice(), *count)).collect();
        tree.settle(&counts);
        tree.enter();
        let titles: Vec<String> = tree.parts.iter().map(ModuleHeld::title).collect();
        assert_eq!(titles, ["8 \u{d7} model.py:20", "probably weights", "model.py:12"]);
        let inside: Vec<String> = tree.parts[0].parts.iter().map(ModuleHeld::title).collect();
        assert_eq!(inside, ["model.py:31", "model.py:30", "model.py:25"]);
        let beside = tree.parts.iter().find(|p| p.name == "model.py:12").unwrap();
        assert_eq!((beside.count, beside.parts.len()), (2, 1), "one of its blocks has a line of its own");
        assert_eq!(tree.parts.iter().map(|p| p.bytes).sum::<u64>(), tree.bytes, "nothing is lost");
    }

    #[test]
    fn layers_that_have_names_are_counted_by_them() {
        let call = |name: &str, instance| call(name, Some(instance));
        let mut tree = ModuleHeld::default();
        for layer in 0..3 {
            // Two projections of each layer keep a block; the feed-forward part two.
            let inside = |name, instance| [call("GPT_0", 0), call("Block", 10 + layer), call(name, instance)];
            for (id, path) in
                [inside("Linear", 20 + 2 * layer), inside("Linear", 21 + 2 * layer), inside("MLP", 40 + layer)].iter().enumerate()
            {
                tree.add(path, LifetimeId(layer * 10 + id as u32), 512, 0);
            }
        }
        tree.add(&[call("GPT_0", 0), call("Embedding", 1)], LifetimeId(90), 512, 0);
        tree.settle(&[]);
        tree.enter();
        let titles = |parts: &[ModuleHeld]| -> Vec<String> { parts.iter().map(ModuleHeld::title).collect() };
        assert_eq!(titles(&tree.parts), ["3 \u{d7} Block", "Embedding"]);
        assert_eq!(titles(&tree.parts[0].parts), ["2 \u{d7} Linear", "MLP"]);
        assert_eq!(tree.parts[0].which(), Which::Module(vec!["GPT_0".to_owned(), "Block".to_owned()]));
    }
}
