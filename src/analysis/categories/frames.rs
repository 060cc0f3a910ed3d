//! What a frame says of the allocations made below it: file and function names of PyTorch and the usual libraries.

use crate::analysis::is_framework;
use crate::model::{Frame, FrameId, StackId, StackTable};

/// What kind of code a stack stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Code {
    /// Nothing known.
    #[default]
    Unknown,
    /// Builds or loads a model.
    Parameters,
    /// An optimizer.
    Optimizer,
    /// The backward pass.
    Backward,
    /// The forward pass.
    Forward,
    /// A library's scratch memory.
    Workspace,
    /// A collective.
    Communication,
    /// A collective that reduces gradients: its result may be one.
    Reduction,
    /// A key-value cache.
    KvCache,
    /// Tuning and benchmarking.
    Tuning,
    /// Code torch.compile wrote: forward unless a frame around it says backward.
    Compiled,
    /// The user's own function, named after a cache: a key-value cache where its blocks grow by copies.
    NamedCache,
    /// The user's own constructor or loader: of a model, where nothing else says what it is and what it made stays.
    Builder,
}

/// How a rule looks at a name.
enum Is {
    Any,
    /// One of these, whole.
    One(&'static [&'static str]),
    /// Contains one of these.
    With(&'static [&'static str]),
    /// Begins with one of these.
    From(&'static [&'static str]),
    /// Everything but these.
    Not(&'static [&'static str]),
}

impl Is {
    fn holds(&self, text: &str) -> bool {
        match self {
            Is::Any => true,
            Is::One(all) => all.contains(&text),
            Is::With(all) => all.iter().any(|part| text.contains(part)),
            Is::From(all) => all.iter().any(|part| text.starts_with(part)),
            Is::Not(all) => !all.contains(&text),
        }
    }
}

/// One built-in rule: a file, a function, what it means.
struct FrameRule {
    file: Is,
    name: Is,
    /// Only frames that are the user's own code.
    own_only: bool,
    code: Code,
    /// What the frame is, for the reason: "frame X is …".
    is: &'static str,
}

const fn rule(file: Is, name: Is, code: Code, is: &'static str) -> FrameRule {
    FrameRule { file, name, own_only: false, code, is }
}

/// The first that holds for a frame decides; a stack is read from its innermost frame outwards.
const RULES: &[FrameRule] = &[
    rule(
        Is::With(&["cache_utils.py", "kv_cache", "kvcache", "KVCache", "cache_engine.py", "mem_cache/memory_pool.py"]),
        Is::Any,
        Code::KvCache,
        "part of a key-value cache",
    ),
    rule(
        Is::Any,
        Is::With(&["kv_cache", "kvcache", "KVCache", "kv_buffer", "past_key_value"]),
        Code::KvCache,
        "part of a key-value cache",
    ),
    FrameRule {
        file: Is::Any,
        name: Is::From(&["kv_"]),
        own_only: true,
        code: Code::KvCache,
        is: "your own code, and its name begins with kv_",
    },
    rule(
        Is::With(&["_fsdp_param.py"]),
        Is::One(&["_init_sharded_param", "to_sharded_param", "reset_sharded_param", "__init__"]),
        Code::Parameters,
        "where FSDP keeps its shard of a parameter",
    ),
    rule(
        Is::With(&["_fsdp_collectives.py", "_fsdp_param.py", "fsdp/_flat_param.py", "fsdp/_runtime_utils.py"]),
        Is::Any,
        Code::Communication,
        "part of FSDP's gathering and scattering",
    ),
    rule(
        Is::With(&["nn/parallel/distributed.py"]),
        Is::Not(&["forward", "_run_ddp_forward"]),
        Code::Communication,
        "where DDP makes its buckets",
    ),
    rule(
        Is::With(&[
            "distributed/distributed_c10d",
            "distributed/_functional_collectives",
            "distributed/utils.py",
            "nn/parallel/comm.py",
            "deepspeed/comm",
            "ProcessGroup",
            "reducer.cpp",
        ]),
        Is::Any,
        Code::Communication,
        "part of a collective",
    ),
    rule(Is::Any, Is::With(&["c10d::", "ncclComm", "ProcessGroupNCCL"]), Code::Communication, "part of a collective"),
    rule(
        Is::With(&["triton_heuristics.py", "runtime/benchmarking.py", "autotune_process.py", "triton/testing.py"]),
        Is::Any,
        Code::Tuning,
        "part of the tuning of kernels",
    ),
    rule(Is::Any, Is::One(&["do_bench", "autotune", "benchmark"]), Code::Tuning, "part of the tuning of kernels"),
    rule(
        Is::Any,
        Is::With(&["CUDABlasHandle", "CUDABlasLtWorkspace", "cublasLt", "raw_cudnn_", "Workspace::Workspace", "workspace"]),
        Code::Workspace,
        "a library's workspace",
    ),
    rule(
        Is::With(&["torch/optim/", "/optimizers/", "bitsandbytes/optim", "deepspeed/ops/adam", "/optim/", "torchao/optim"]),
        Is::Any,
        Code::Optimizer,
        "part of an optimizer",
    ),
    rule(Is::Any, Is::From(&["Optimizer.step"]), Code::Optimizer, "part of an optimizer"),
    rule(
        Is::Any,
        Is::With(&["ngine::evaluate_function", "Engine::thread_main", "autograd::AccumulateGrad", "autograd::Node::operator()"]),
        Code::Backward,
        "part of the backward pass",
    ),
    rule(
        Is::Any,
        Is::One(&["backward", "_make_grads", "_engine_run_backward", "_post_backward_hook", "_pre_backward_hook"]),
        Code::Backward,
        "part of the backward pass",
    ),
    rule(
        Is::With(&["nn/modules/module.py"]),
        Is::One(&["<lambda>", "_apply", "cuda", "to", "half", "float", "double", "bfloat16", "type", "to_empty", "convert"]),
        Code::Parameters,
        "where a module moves its parameters",
    ),
    rule(
        Is::Any,
        Is::One(&[
            "reset_parameters",
            "load_state_dict",
            "_load_from_state_dict",
            "from_pretrained",
            "_load_state_dict_into_meta_model",
            "set_module_tensor_to_device",
            "load_weights",
            "create_weights",
            "load_checkpoint",
            "init_weights",
            "_init_weights",
        ]),
        Code::Parameters,
        "where weights are made or loaded",
    ),
    rule(Is::With(&["torch/nn/parameter.py", "torch/nn/init.py"]), Is::Any, Code::Parameters, "where weights are made"),
    rule(Is::With(&["nn/modules/"]), Is::One(&["__init__", "<lambda>"]), Code::Parameters, "where a module is built"),
    rule(Is::With(&["torch/nn/functional.py", "nn/modules/"]), Is::Any, Code::Forward, "part of the forward pass"),
    rule(Is::Any, Is::From(&["nn.Module: "]), Code::Forward, "part of a module's forward pass"),
    rule(Is::Any, Is::One(&["forward", "_conv_forward", "_call_impl"]), Code::Forward, "part of the forward pass"),
    rule(Is::With(&["torchinductor", "torch/_inductor/", "torch/_functorch/"]), Is::Any, Code::Compiled, "compiled code"),
    FrameRule {
        file: Is::Any,
        name: Is::With(&["cache", "Cache"]),
        own_only: true,
        code: Code::NamedCache,
        is: "your own code, named after a cache",
    },
    FrameRule {
        file: Is::Any,
        name: Is::One(&["__init__", "load", "load_model", "build_model", "make_model", "init_model", "create_model"]),
        own_only: true,
        code: Code::Builder,
        is: "your own code that builds or loads",
    },
];

/// The built-in rule that a frame answers to.
fn rule_of(stacks: &StackTable, frame: Frame) -> Option<usize> {
    let (file, name) = (stacks.text(frame.file), stacks.text(frame.name));
    RULES.iter().position(|r| r.file.holds(file) && r.name.holds(name) && !(r.own_only && is_framework(stacks, frame)))
}

/// What a rule says its frames are.
pub(super) fn what_it_is(rule: u8) -> &'static str {
    RULES.get(usize::from(rule)).map_or("", |r| r.is)
}

/// What a stack says, and the frame that says it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StackCode {
    pub(super) code: Code,
    pub(super) frame: FrameId,
    /// The built-in rule; meaningless when [`code`](Self::code) is unknown.
    pub(super) rule: u8,
    /// A function of the user's named after a cache, where no frame further in says what the stack is; and its rule.
    pub(super) cache: Option<(FrameId, u8)>,
    /// A constructor or loader of the user's, and its rule.
    pub(super) builder: Option<(FrameId, u8)>,
}

/// What every stack of a table says. O(frames of all stacks).
pub(super) fn read_stacks(stacks: &StackTable) -> Vec<StackCode> {
    let rules: Vec<Option<u8>> = (0..stacks.frame_count())
        .map(|i| stacks.frame(FrameId(i as u32)).and_then(|f| rule_of(stacks, f)).map(|r| r as u8))
        .collect();
    (0..stacks.len()).map(|i| read_stack(stacks, &rules, StackId(i as u32))).collect()
}

fn read_stack(stacks: &StackTable, rules: &[Option<u8>], stack: StackId) -> StackCode {
    let frames = stacks.frames(stack);
    let mut weak = None;
    let (mut cache, mut builder) = (None, None);
    for &frame in frames {
        let Some(rule) = rules.get(frame.0 as usize).copied().flatten() else { continue };
        let found = StackCode { code: RULES[usize::from(rule)].code, frame, rule, cache, builder };
        match found.code {
            // What these are is seen by what becomes of their blocks; a frame further out may say more.
            Code::NamedCache => cache = cache.or(Some((frame, rule))),
            Code::Builder => builder = builder.or(Some((frame, rule))),
            Code::Compiled => weak = weak.or(Some(found)),
            Code::Communication if has_reduction(stacks, frames) => return StackCode { code: Code::Reduction, ..found },
            // Around compiled code only the backward pass says more.
            code if weak.is_some() && code != Code::Backward => {}
            _ => return found,
        }
    }
    if let Some(weak) = weak {
        return StackCode { code: Code::Forward, ..weak };
    }
    // Autograd's threads begin where Python is called back, not at a script.
    match frames.last().and_then(|&f| Some((f, stacks.frame(f)?))) {
        Some((frame, root)) if is_autograd_root(stacks, root) => {
            StackCode { code: Code::Backward, frame, rule: BACKWARD_RULE, cache, builder }
        }
        _ => StackCode { cache, builder, ..StackCode::default() },
    }
}

/// The rule whose words describe the backward pass.
const BACKWARD_RULE: u8 = {
    let mut i = 0;
    while !matches!(RULES[i].code, Code::Backward) {
        i += 1;
    }
    i as u8
};

fn is_autograd_root(stacks: &StackTable, root: Frame) -> bool {
    let (file, name) = (stacks.text(root.file), stacks.text(root.name));
    name.contains("backward") || (name == "apply" && file.ends_with("autograd/function.py"))
}

fn has_reduction(stacks: &StackTable, frames: &[FrameId]) -> bool {
    frames.iter().filter_map(|&f| stacks.frame(f)).any(|f| {
        let name = stacks.text(f.name);
        name == "foreach_reduce" || name == "_reduce_grad" || name.contains("reduce_scatter")
    })
}
