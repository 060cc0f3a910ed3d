//! Whose code made the blocks at the peak: optimizers and models of known libraries, or the program itself.

use super::at_peak::made_at;
use crate::anatomy::Phase;
use crate::anatomy::roles::Role;
use crate::diagnose::findings::RuleInput;
use crate::tables::naming::is_made_by_own_code;
use crate::tables::{BlockAt, LifetimeId};

/// The PyTorch optimizer that made the first of these blocks with a known one; `AdamW` if there is none.
pub(super) fn of_pytorch(p: &RuleInput<'_>, blocks: impl Iterator<Item = LifetimeId>) -> &'static str {
    optimizer(p, blocks).unwrap_or("AdamW")
}

/// How to keep the optimizer's state in eight bits; `part` names the share that remains.
pub(super) fn in_eight_bits(optimizer: Option<&str>, part: &str) -> String {
    match optimizer {
        Some("AdamW") => format!("An 8-bit Adam keeps {part} and makes no temporaries"),
        Some(name @ ("SGD" | "Adagrad" | "RMSprop" | "Lion")) => {
            format!("An 8-bit {name} (bitsandbytes) keeps {part} and makes no temporaries")
        }
        Some(name) => {
            format!("{name} has no 8-bit version in common use; an 8-bit AdamW, Lion or SGD (bitsandbytes) keeps {part}")
        }
        None => format!("An optimizer with 8-bit state (bitsandbytes has AdamW, Lion, SGD and others) keeps {part}"),
    }
}

/// The optimizer whose code made these blocks; `None` if no stack contains a known one.
pub(super) fn optimizer(p: &RuleInput<'_>, mut blocks: impl Iterator<Item = LifetimeId>) -> Option<&'static str> {
    const OF_PYTORCH: [(&str, &str); 14] = [
        // Newer versions of AdamW run in Adam's code, so the two cannot be distinguished.
        ("adam.py", "AdamW"),
        ("adamw.py", "AdamW"),
        ("sgd.py", "SGD"),
        ("adagrad.py", "Adagrad"),
        ("rmsprop.py", "RMSprop"),
        ("adadelta.py", "Adadelta"),
        ("adamax.py", "Adamax"),
        ("nadam.py", "NAdam"),
        ("radam.py", "RAdam"),
        ("asgd.py", "ASGD"),
        ("sparse_adam.py", "SparseAdam"),
        ("rprop.py", "Rprop"),
        ("_adafactor.py", "Adafactor"),
        ("lbfgs.py", "LBFGS"),
    ];
    let stacks = &p.recording.stacks;
    let of_frame = |frame| {
        let file = stacks.text(stacks.frame(frame)?.file).replace('\\', "/");
        match file.rsplit_once("torch/optim/") {
            Some((_, name)) => OF_PYTORCH.iter().find(|(file, _)| *file == name).map(|(_, class)| *class),
            None => {
                let name = file.rsplit_once('/').map_or(file.as_str(), |f| f.1);
                let is_lion = ["lion.py", "lion_pytorch.py", "foreach_lion.py"].contains(&name);
                (is_lion || name == "adafactor.py").then_some(if is_lion { "Lion" } else { "Adafactor" })
            }
        }
    };
    let frames = |id| p.stack_of(id).map(|stack| stacks.frames(stack)).unwrap_or_default();
    blocks.find_map(|id| frames(id).iter().find_map(|&f| of_frame(f)))
}

/// The program's own line that makes most of the optimizer state, if no library's optimizer makes it.
pub(super) fn of_own_code(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> Option<String> {
    let size = |id: LifetimeId| p.tables.lifetimes.block_size(id);
    let is_own = |id: LifetimeId| p.stack_of(id).is_some_and(|stack| is_made_by_own_code(&p.recording.stacks, stack));
    let mut made: Vec<LifetimeId> = blocks.iter().map(|b| b.lifetime).filter(|&id| p.stack_of(id).is_some()).collect();
    if made.is_empty() {
        // State from before the recording has no stack; allocations in the optimizer's steps show whose code it is.
        made = in_optimizer(p).filter(|&id| p.stack_of(id).is_some()).collect();
    }
    let bytes = |ids: &mut dyn Iterator<Item = LifetimeId>| ids.map(size).sum::<u64>();
    let of_own = bytes(&mut made.iter().copied().filter(|&id| is_own(id)));
    let is_known = optimizer(p, made.iter().copied()).is_some();
    let largest = made.iter().copied().filter(|&id| is_own(id)).max_by_key(|&id| (size(id), std::cmp::Reverse(id)));
    largest.filter(|_| !is_known && of_own.saturating_mul(2) > bytes(&mut made.iter().copied())).map(|id| made_at(p, id))
}

/// Blocks allocated in the optimizer's steps.
fn in_optimizer(p: &RuleInput<'_>) -> impl Iterator<Item = LifetimeId> {
    let phases = &p.roles.anatomy.phases;
    p.tables.lifetimes.ids().filter(|&id| phases.of(id) == Some(Phase::Optimizer))
}

/// True if an optimizer step makes its state anew, so that old and new state exist at once.
pub(super) fn replaces_its_state(p: &RuleInput<'_>) -> bool {
    let is_replaced = |id: LifetimeId| {
        let freed = p.roles.anatomy.phases.at(p.tables.lifetimes.gone(id));
        p.roles.of(id) == Role::OptimizerState && freed == Some(Phase::Optimizer)
    };
    p.tables.lifetimes.ids().any(is_replaced)
}

/// How to checkpoint the layers of the model that made most of these activations: with the library's own switch if it has one.
pub(super) fn checkpointing_of(p: &RuleInput<'_>, blocks: &[&BlockAt]) -> (&'static str, &'static str) {
    let stacks = &p.recording.stacks;
    let is_of = |b: &BlockAt, library: &str, method: &str| {
        let frames = p.stack_of(b.lifetime).map(|stack| stacks.frames(stack)).unwrap_or_default();
        frames.iter().filter_map(|&f| stacks.frame(f)).any(|f| {
            stacks.text(f.file).replace('\\', "/").contains(library) && (method.is_empty() || stacks.text(f.name) == method)
        })
    };
    let all: u64 = blocks.iter().map(|b| b.size).sum();
    let is_most_in = |library, method| {
        blocks.iter().filter(|b| is_of(b, library, method)).map(|b| b.size).sum::<u64>().saturating_mul(2) > all
    };
    let is_most = |library| is_most_in(library, "");
    if is_most("transformers/models/") {
        let advice = match is_most("/peft/") {
            true => {
                "Transformers then checkpoints each layer. With frozen weights also call model.enable_input_require_grads(), unless prepare_model_for_kbit_training did. Or use a smaller micro-batch with accumulation."
            }
            false => {
                "Transformers then checkpoints each layer; set model.config.use_cache = False too. Or use a smaller micro-batch with accumulation."
            }
        };
        return ("model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={\"use_reentrant\": False})", advice);
    }
    // Every complete timm model has this method. A user's own model made of timm's blocks has no such switch.
    if is_most_in("timm/models/", "forward_features") {
        return (
            "model.set_grad_checkpointing()",
            "timm then checkpoints each block. Or use a smaller micro-batch with accumulation.",
        );
    }
    if is_most("torchvision/models/densenet.py") {
        return (
            "torchvision.models.densenet121(memory_efficient=True)",
            "Add it to the call that you have: torchvision then checkpoints the first half of each layer. Or use a smaller micro-batch with accumulation; BatchNorm then sees fewer samples at once.",
        );
    }
    // The loop over the layers is in torchvision, so the user has no line to change.
    if is_most("torchvision/models/") {
        return (
            "apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, Block))",
            "It is in torch.distributed.algorithms._checkpoint.checkpoint_wrapper; Block is the class of the layers, such as Bottleneck or BasicBlock of a ResNet. Or use a smaller micro-batch with accumulation; BatchNorm then sees fewer samples at once.",
        );
    }
    if is_most("diffusers/models/") {
        return (
            "unet.enable_gradient_checkpointing()",
            "Diffusers then checkpoints each block. Or use a smaller micro-batch with accumulation.",
        );
    }
    (
        "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        "Checkpoint the layers that hold most, or use a smaller micro-batch with accumulation.",
    )
}
