//! Assigns blocks to rows of the tables of lines and modules, and finds the blocks of one row.

use rustc_hash::FxHashMap;
use std::sync::Arc;

use super::frame::{CALL, CONTAINER, PYTHON};
use super::sense::Part;
use super::{Anatomy, Role};
use crate::anatomy::modules::module_class;
use crate::anatomy::roles::Roles;
use crate::model::{DeviceRecording, Frame, FrameId, Recording, StackId, StackTable, StrId};
use crate::tables::naming::{is_compiled, is_of_operators};
use crate::tables::{DeviceTables, LifetimeId, StackNames, is_framework};

/// Decides the rows of a block: blocks with equal keys belong to the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlaceKey {
    pub(super) stack: StackId,
    pub(super) role: Role,
    is_older: bool,
}

impl PlaceKey {
    pub(super) fn of(device: &DeviceRecording, tables: &DeviceTables, roles: &Roles, id: LifetimeId) -> Self {
        let is_older = (id.0 as usize) < tables.lifetimes.initial_count();
        PlaceKey { stack: tables.lifetimes.stack(device, id), role: roles.of(id), is_older }
    }

    /// The key of a stack's blocks in a forward pass, regardless of their role; used to count how often modules are called.
    pub(super) fn in_pass(stack: StackId) -> Self {
        PlaceKey { stack, role: Role::Activations, is_older: false }
    }
}

/// A module in which a block was made, or the line inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Call {
    /// `GPT2Block` if the recording names modules; otherwise the line that calls it (`modeling_gpt2.py:608`), or a group's name.
    pub(super) name: String,
    /// Which module of this class, if modules have names.
    pub(super) instance: Option<FrameId>,
    /// The line that calls it.
    pub(super) line: Option<FrameId>,
    /// True for a module, false for a group.
    pub(super) is_module: bool,
    /// True for a container that calls its contents one after the other.
    pub(super) loops: bool,
    /// The role under which it is listed if neither module nor line is known.
    pub(super) role: Option<Role>,
}

impl Call {
    fn new(name: String, line: Option<FrameId>) -> Self {
        Call { name, line, instance: None, is_module: false, loops: false, role: None }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    stacks: &'a StackTable,
    names: &'a StackNames,
    anatomy: &'a Anatomy,
    has_history: bool,
}

impl<'a> Places<'a> {
    pub(super) fn of(recording: &'a Recording, device: &DeviceRecording, names: &'a StackNames, roles: &'a Roles) -> Self {
        Places { stacks: &recording.stacks, names, anatomy: &roles.anatomy, has_history: !device.events.is_empty() }
    }

    /// True if the history has stacks, so that a missing stack indicates the backward pass.
    fn has_stacks(&self) -> bool {
        self.has_history && self.anatomy.phases.has_stacks
    }

    /// The name of its row in the table of lines.
    pub(super) fn line(&self, kind: PlaceKey) -> String {
        match (kind.stack.is_some(), kind.role) {
            (true, role) => made_at(self.stacks, self.names, kind.stack, role),
            (false, Role::Unknown) if !self.has_stacks() => "no stack".to_owned(),
            (false, role) if !self.has_stacks() => format!("{}, no stack", role.text()),
            (false, role) if kind.is_older => format!("{} from before", role.text()),
            (false, Role::Gradients) => "gradients, no stack".to_owned(),
            (false, _) => "backward, no stack".to_owned(),
        }
    }

    /// The enclosing modules, outermost first, then the line in the innermost one. Without modules (a loss): its line or its role.
    pub(super) fn modules(&self, kind: PlaceKey) -> Vec<Call> {
        let by_role = || vec![Call { role: Some(kind.role), ..Call::new(kind.role.text().to_owned(), None) }];
        let backward = || vec![Call::new("backward, no stack".to_owned(), None)];
        match kind.role {
            Role::Activations | Role::Temporaries | Role::AutocastCopies | Role::KvCache | Role::Unknown => {}
            _ => return by_role(),
        }
        if !kind.stack.is_some() {
            let is_backward = kind.role == Role::Temporaries && !kind.is_older && self.has_stacks();
            return if is_backward { backward() } else { by_role() };
        }
        let mut calls = chain(self.stacks, self.anatomy, kind.stack);
        if !calls.is_empty() {
            // If one of torch's own modules made it, use the line that calls that module.
            let own = line_of(self.stacks, kind.stack).filter(|line| calls.iter().all(|call| call.line != Some(*line)));
            calls.extend(own.map(|line| Call::new(self.line(kind), Some(line))));
            return calls;
        }
        // A compiled function, such as a node of the backward pass, is neither a module nor a line of the program.
        let is_line = |&f: &FrameId| self.stacks.frame(f).is_some_and(|f| f.line > 0 && !is_compiled(self.stacks, f));
        match made_in(self.stacks, self.names, kind.stack, kind.role).filter(is_line) {
            Some(line) => vec![Call::new(self.line(kind), Some(line))],
            None if self.anatomy.phases.sense(kind.stack).part == Part::Backward => backward(),
            None => by_role(),
        }
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All blocks of a role.
    Role(Role),
    /// All blocks made at one line.
    Line(String),
    /// The blocks made inside a module, given by its path: the names from the outermost module to its own.
    Module(Vec<String>),
    /// The blocks made inside the module with this path, but in none of the modules inside it.
    Directly(Vec<String>),
    /// All blocks of a size.
    Size(u64),
}

/// The blocks of one row at any time; used to highlight them while the rest of a picture is dimmed.
pub struct OwnBlocks {
    /// The row that the blocks belong to.
    pub which: Which,
    roles: Arc<Roles>,
    /// Cache: whether blocks with this key belong to the row.
    kinds: FxHashMap<PlaceKey, bool>,
}

impl OwnBlocks {
    /// The blocks of a row. O(lifetimes) for lines and modules.
    pub fn of(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        names: &StackNames,
        roles: &Arc<Roles>,
        which: Which,
    ) -> Self {
        let places = Places::of(recording, device, names, roles);
        let mut kinds: FxHashMap<PlaceKey, bool> = FxHashMap::default();
        if !matches!(which, Which::Role(_) | Which::Size(_)) {
            for id in (0..tables.lifetimes.len() as u32).map(LifetimeId) {
                let kind = PlaceKey::of(device, tables, roles, id);
                kinds.entry(kind).or_insert_with(|| is_within(&places, &which, kind));
            }
        }
        OwnBlocks { which, roles: Arc::clone(roles), kinds }
    }

    /// True if the block belongs to the row. O(1).
    pub fn contains(&self, device: &DeviceRecording, tables: &DeviceTables, id: LifetimeId) -> bool {
        match self.which {
            Which::Role(role) => self.roles.of(id) == role,
            Which::Size(size) => tables.lifetimes.block_size(id) == size,
            _ => self.kinds.get(&PlaceKey::of(device, tables, &self.roles, id)).copied().unwrap_or(false),
        }
    }

    /// True if this part of `Beyond` belongs to the row.
    pub fn contains_beyond(&self, part: &str) -> bool {
        match &self.which {
            Which::Role(role) => *role == Role::Unknown,
            Which::Line(name) => name == part,
            Which::Module(path) | Which::Directly(path) => matches!(&path[..], [name] if name == part),
            Which::Size(_) => false,
        }
    }

    /// True if it was built from these roles.
    pub fn is_by(&self, roles: &Arc<Roles>) -> bool {
        Arc::ptr_eq(&self.roles, roles)
    }
}

impl PartialEq for OwnBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.which == other.which && self.is_by(&other.roles)
    }
}

impl std::fmt::Debug for OwnBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.which.fmt(f)
    }
}

fn is_within(places: &Places<'_>, which: &Which, kind: PlaceKey) -> bool {
    let path = || -> Vec<String> { places.modules(kind).into_iter().map(|call| call.name).collect() };
    match which {
        Which::Line(line) => places.line(kind) == *line,
        Which::Module(of) => path().starts_with(of),
        Which::Directly(of) => path() == *of,
        Which::Role(_) | Which::Size(_) => false,
    }
}

/// Where a block was made, `modeling_gpt2.py:240`: the innermost line outside torch, possibly in a library, because that line
/// makes the activation. For weights and optimizer blocks the line of the user's own code, which is more informative.
pub fn made_at(stacks: &StackTable, names: &StackNames, stack: StackId, role: Role) -> String {
    match outside_torch(stacks, stack, role).and_then(|f| stacks.frame(f)) {
        Some(frame) => stacks.location(frame),
        None => names.of_stack(stack).to_owned(),
    }
}

/// The frame of [`made_at`]; `None` if no line is known.
pub fn made_in(stacks: &StackTable, names: &StackNames, stack: StackId, role: Role) -> Option<FrameId> {
    outside_torch(stacks, stack, role).or_else(|| names.frame(names.index(stack)?))
}

fn outside_torch(stacks: &StackTable, stack: StackId, role: Role) -> Option<FrameId> {
    let is_of_model = !matches!(role, Role::Weights | Role::Gradients | Role::OptimizerState | Role::Buckets);
    line_of(stacks, stack).filter(|_| is_of_model)
}

/// The innermost Python line outside torch and wrappers of its operators; `None` without one, as in the backward pass. O(depth).
pub fn line_of(stacks: &StackTable, stack: StackId) -> Option<FrameId> {
    let is_outside = |f: Frame| {
        let file = stacks.text(f.file);
        file.ends_with(".py") && !is_of_operators(file)
    };
    stacks.frames(stack).iter().copied().find(|&f| stacks.frame(f).is_some_and(is_outside))
}

/// File and function name of the program's line, and the line that calls it, because methods of several classes in a file are all
/// called `forward`. `None` if no line is known. O(depth).
pub fn function_of(stacks: &StackTable, stack: StackId) -> Option<(StrId, StrId, Option<FrameId>)> {
    let line = line_of(stacks, stack)?;
    let frame = stacks.frame(line)?;
    let around = stacks.frames(stack).iter().skip_while(|f| **f != line).skip(1);
    let caller = around.copied().find(|f| stacks.frame(*f).is_some_and(|f| !is_framework(stacks, f)));
    Some((frame.file, frame.name, caller))
}

/// The modules that a forward stack passes through, outermost first: their classes if the recording names them, otherwise the
/// lines that call them. Lines in torch's containers and in wrappers are skipped: they do not show which module is called.
fn chain(stacks: &StackTable, anatomy: &Anatomy, stack: StackId) -> Vec<Call> {
    let sense = anatomy.phases.sense(stack);
    if !matches!(sense.part, Part::Forward | Part::Backward) {
        return Vec::new();
    }
    let frames = stacks.frames(stack);
    let bits = |f: FrameId| anatomy.phases.bits.get(f.0 as usize).copied().unwrap_or(0);
    // The compiler's frames surround the compiled model and call it from their own lines.
    let is_compiler = |f: FrameId| stacks.frame(f).is_some_and(|f| stacks.text(f.file).contains("torch/_dynamo/"));
    // A layer's own `__call__` and checkpointing only pass on the call of the line outside them.
    let wraps = |f: FrameId| {
        stacks.frame(f).is_some_and(|f| stacks.text(f.name) == "__call__" || stacks.text(f.file).contains("torch/utils/"))
    };
    // The innermost line calls the operator, so it belongs to the module; the table of lines shows it.
    let (mut calls, mut last): (Vec<Call>, Option<FrameId>) = (Vec::new(), None);
    for &f in frames[..(sense.inside as usize).min(frames.len())].iter().rev() {
        if let Some(class) = stacks.frame(f).and_then(|f| module_class(stacks, f)) {
            calls.push(Call { instance: Some(f), is_module: true, ..Call::new(class.to_owned(), last.take()) });
        } else if bits(f) & CALL != 0 {
            if let Some((line, frame)) = last.take().and_then(|f| Some((f, stacks.frame(f)?))) {
                calls.push(Call { is_module: true, ..Call::new(stacks.location(frame), Some(line)) });
            }
        } else if bits(f) & CONTAINER != 0 {
            calls.iter_mut().rev().take(1).for_each(|call| call.loops = true);
        } else if bits(f) & PYTHON != 0 && !is_compiler(f) && (last.is_none() || !wraps(f)) {
            last = Some(f);
        }
    }
    calls
}
