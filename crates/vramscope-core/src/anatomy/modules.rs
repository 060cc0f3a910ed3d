//! The `nn.Module` and the training phase of an allocation: from a profiler trace's stacks, or from notes of a joined trace.

use crate::formats::kineto::{FORWARD_MARK, MODULE_FILE, OPERATOR_FILE};
use crate::model::{DeviceRecording, EventId, Frame, NoteKind, StackId, StackTable};

/// The profiler's prefix of a module's name.
const MODULE_PREFIX: &str = "nn.Module: ";

/// The part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Inside a module or its call.
    Forward,
    /// Inside autograd's backward pass.
    Backward,
    /// Inside an optimizer's step.
    Optimizer,
}

impl Phase {
    /// Its name, as in notes.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }
}

/// The module path of a profiler's stack, outermost first: `GPT_0.Block_3.Linear_1`. A backward operator belongs to the module of
/// its forward operator. `None` outside modules and for stacks without them. O(depth).
pub fn module_path(stacks: &StackTable, stack: StackId) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for frame in stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)) {
        let name = stacks.text(frame.name);
        match stacks.text(frame.file) {
            // A module that runs again inside backward (checkpointing) takes precedence over that of the forward operator.
            OPERATOR_FILE if name == FORWARD_MARK && !names.is_empty() => break,
            MODULE_FILE => names.push(name.strip_prefix(MODULE_PREFIX).unwrap_or(name)),
            _ => {}
        }
    }
    names.reverse();
    (!names.is_empty()).then(|| names.join("."))
}

/// The class of the module that a profiler frame names: `GPT2Block` for `nn.Module: GPT2Block_3`. `None` for other frames.
pub fn module_class(stacks: &StackTable, frame: Frame) -> Option<&str> {
    if stacks.text(frame.file) != MODULE_FILE {
        return None;
    }
    let name = stacks.text(frame.name).strip_prefix(MODULE_PREFIX)?;
    match name.rsplit_once('_') {
        Some((class, number)) if !class.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => Some(class),
        _ => Some(name),
    }
}

/// The phase of a profiler's stack; `None` if the stack does not show it. O(depth).
pub fn phase(stacks: &StackTable, stack: StackId) -> Option<Phase> {
    let mut found = None;
    for frame in stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)) {
        let name = stacks.text(frame.name);
        match stacks.text(frame.file) {
            OPERATOR_FILE if name == FORWARD_MARK || name.starts_with("autograd::engine::") => return Some(Phase::Backward),
            MODULE_FILE => found = found.or(Some(Phase::Forward)),
            file if file.contains("torch/optim/") => return Some(Phase::Optimizer),
            _ => {}
        }
    }
    found
}

/// The module path of an allocation, by its event: from a joined trace, else from the event's own stack. O(log notes + depth).
pub fn module_of(stacks: &StackTable, device: &DeviceRecording, event: EventId) -> Option<String> {
    let noted = device.events.notes_of(event).iter().find(|n| n.kind == NoteKind::Module);
    match noted {
        Some(note) => Some(stacks.text(note.text).to_owned()),
        None => module_path(stacks, device.events.stack.get(event as usize).copied().unwrap_or(StackId::NONE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, StackTableBuilder};

    fn stack(b: &mut StackTableBuilder, frames: &[(&str, &str)]) -> StackId {
        let ids: Vec<_> = frames
            .iter()
            .map(|(name, file)| {
                let (name, file) = (b.string(name), b.string(file));
                b.frame(Frame { name, file, line: 0 })
            })
            .collect();
        b.stack(&ids)
    }

    #[test]
    fn modules_and_phases_of_stacks() {
        let mut b = StackTableBuilder::new();
        let module = |name: &'static str| (name, MODULE_FILE);
        let forward = stack(
            &mut b,
            &[("aten::addmm", OPERATOR_FILE), module("nn.Module: Linear_1"), ("forward", "m.py"), module("nn.Module: GPT_0")],
        );
        let backward = stack(
            &mut b,
            &[
                ("AddmmBackward0", OPERATOR_FILE),
                (FORWARD_MARK, OPERATOR_FILE),
                ("aten::addmm", OPERATOR_FILE),
                module("nn.Module: Linear_1"),
            ],
        );
        let again = stack(
            &mut b,
            &[
                module("nn.Module: Block_2"),
                ("autograd::engine::evaluate_function: CheckpointBackward", OPERATOR_FILE),
                (FORWARD_MARK, OPERATOR_FILE),
                module("nn.Module: GPT_0"),
            ],
        );
        let optimizer = stack(&mut b, &[("aten::zeros_like", OPERATOR_FILE), ("_init_group", "torch/optim/adam.py")]);
        let other = stack(&mut b, &[("aten::randn", OPERATOR_FILE), ("main", "train.py")]);
        let table = b.finish();
        let told = |s| (module_path(&table, s), phase(&table, s));
        assert_eq!(told(forward), (Some("GPT_0.Linear_1".to_owned()), Some(Phase::Forward)));
        assert_eq!(told(backward), (Some("Linear_1".to_owned()), Some(Phase::Backward)));
        assert_eq!(told(again), (Some("Block_2".to_owned()), Some(Phase::Backward)));
        assert_eq!(told(optimizer), (None, Some(Phase::Optimizer)));
        assert_eq!(told(other), (None, None));
        assert_eq!(told(StackId::NONE), (None, None));
    }
}
