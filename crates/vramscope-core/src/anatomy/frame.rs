//! Classifies single frames by file and function names of PyTorch and common libraries: one bit set per frame.
//!
//! Names are compared with forward slashes, because recordings from Windows use backslashes.

use crate::formats::kineto::{FORWARD_MARK, MODULE_FILE, OPERATOR_FILE};
use crate::model::{Frame, StackTable};
use crate::tables::is_framework;

/// What a frame means, a bit each.
pub(super) type Bits = u64;

/// `Module.__call__`, which calls every module's `forward`.
pub(super) const CALL: Bits = 1;
/// A function called `forward`.
pub(super) const FORWARD: Bits = 1 << 1;
/// Autograd's backward pass, or what it calls.
pub(super) const BACKWARD: Bits = 1 << 2;
/// An optimizer of PyTorch or a library.
pub(super) const OPTIMIZER: Bits = 1 << 3;
/// Makes, moves or loads weights.
pub(super) const LOADS: Bits = 1 << 4;
/// The user's own constructor or loader.
pub(super) const BUILDS: Bits = 1 << 5;
/// A file of `torch.nn.functional`, or an operator of a layer.
pub(super) const FUNCTIONAL: Bits = 1 << 6;
/// A container of modules, whose one line calls them all.
pub(super) const CONTAINER: Bits = 1 << 7;
/// A frame of Python code, not of C++.
pub(super) const PYTHON: Bits = 1 << 8;
/// A function or file named after a key-value cache.
pub(super) const CACHE: Bits = 1 << 9;
/// A collective, or the buffers of one.
pub(super) const COLLECTIVE: Bits = 1 << 10;
/// Scratch memory of a library.
pub(super) const WORKSPACE: Bits = 1 << 11;
/// The tuning of kernels.
pub(super) const TUNING: Bits = 1 << 12;
/// A loop that makes tokens or images step by step.
pub(super) const GENERATES: Bits = 1 << 13;
/// The capture of a CUDA graph.
pub(super) const CAPTURES: Bits = 1 << 14;
/// Clips or unscales gradients.
pub(super) const CLIPS: Bits = 1 << 15;
/// Autocast's cast of a weight, which only frames of C++ name.
pub(super) const CASTS: Bits = 1 << 16;
/// A training loop, or one step of it.
pub(super) const TRAINS: Bits = 1 << 17;
/// A collective that reduces gradients.
pub(super) const REDUCES: Bits = 1 << 18;
/// `step` in a file that is named after an optimizer.
pub(super) const STEP: Bits = 1 << 19;
/// A test or validation loop.
pub(super) const EVALUATES: Bits = 1 << 20;
/// A closure, as optimizers call.
pub(super) const CLOSURE: Bits = 1 << 21;
/// An optimizer that keeps two tensors per weight.
pub(super) const ADAM: Bits = 1 << 22;
/// The user's own function, named after a cache.
pub(super) const NAMED_CACHE: Bits = 1 << 23;
/// Attention written out in Python, outside PyTorch's own fused function.
pub(super) const ATTENDS: Bits = 1 << 24;
/// The constructor of an optimizer, which may make its state ahead.
pub(super) const BUILDS_STATE: Bits = 1 << 25;
/// `Module._apply`, which moves weights, their gradients and buffers, each from a line of its own.
pub(super) const APPLIES: Bits = 1 << 26;
/// Computes on activations alone, without weights that autocast would copy.
pub(super) const WEIGHTLESS: Bits = 1 << 27;

/// A function that processes a prompt, or continues it token by token. Without a key-value cache `decode` is half of an
/// autoencoder.
pub(super) const PREFILLS: Bits = 1 << 28;
pub(super) const DECODES: Bits = 1 << 29;
/// The constructor of Megatron's buffers: one for the weights of all modules, where the optimizer is distributed, and one for their
/// gradients.
pub(super) const BUILDS_BUFFERS: Bits = 1 << 30;
/// An operator of PyTorch, which only frames of C++ name.
pub(super) const OPERATOR: Bits = 1 << 31;
/// PyTorch's SGD.
pub(super) const SGD: Bits = 1 << 32;

/// Functions that make or load weights.
const LOADERS: &[&str] = &[
    "reset_parameters",
    "load_state_dict",
    "_load_from_state_dict",
    "from_pretrained",
    "_load_pretrained_model",
    "_load_state_dict_into_meta_model",
    "convert_and_load_state_dict_in_model",
    "set_module_tensor_to_device",
    "load_weights",
    "create_weights",
    "load_checkpoint",
    "init_weights",
    "_init_weights",
    "initialize_weights",
    "_initialize_weights",
];
/// Functions of `nn/modules/module.py` that move or cast a module's weights.
const MOVERS: &[&str] =
    &["<lambda>", "_apply", "cuda", "to", "half", "float", "double", "bfloat16", "type", "to_empty", "convert", "fn"];
/// The user's own functions that often build or load a model.
const BUILDERS: &[&str] =
    &["__init__", "load", "load_model", "build_model", "make_model", "init_model", "create_model", "build", "get_model"];
/// Folders of libraries whose constructors make weights.
const MODELS: &[&str] = &[
    "nn/modules/",
    "transformers/models/",
    "timm/layers",
    "timm/models",
    "torchvision/models",
    "diffusers/models",
    "torch/ao/nn",
];
/// Parts of paths that contain optimizers.
const OPTIMIZERS: &[&str] = &[
    "torch/optim/",
    "/optimizers/",
    "bitsandbytes/optim",
    "deepspeed/ops/adam",
    "deepspeed/runtime/zero/stage",
    "torchao/optim",
    "apex/optimizers",
    "megatron/core/optimizer/",
    "transformers/optimization.py",
];
/// Parts of FSDP and DDP, and the collectives that they use.
const FSDP: &[&str] =
    &["_fsdp_collectives.py", "_fsdp_param.py", "_fsdp_param_group.py", "fsdp/_flat_param.py", "fsdp/_runtime_utils.py"];
const COLLECTIVES: &[&str] =
    &["distributed/distributed_c10d", "distributed/_functional_collectives", "nn/parallel/comm.py", "deepspeed/comm"];

/// Operators that are called by network layers and losses, and by hardly anything else.
const LAYERS: &[&str] = &[
    "aten::linear",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::conv_transpose1d",
    "aten::conv_transpose2d",
    "aten::conv_transpose3d",
    "aten::batch_norm",
    "aten::layer_norm",
    "aten::group_norm",
    "aten::instance_norm",
    "aten::rms_norm",
    "aten::embedding",
    "aten::dropout",
    "aten::relu",
    "aten::gelu",
    "aten::silu",
    "aten::softmax",
    "aten::log_softmax",
    "aten::max_pool2d",
    "aten::avg_pool2d",
    "aten::adaptive_avg_pool2d",
    "aten::lstm",
    "aten::gru",
    "aten::scaled_dot_product_attention",
    "aten::cross_entropy_loss",
    "aten::nll_loss",
    "aten::mse_loss",
    // The forward pass of code from torch.compile.
    "CompiledFunction",
];

/// Parts of paths of inference servers.
const SERVERS: [&str; 3] = ["vllm/", "sglang/", "text_generation_server/"];

/// True for a file that shares tensors with another process, as a `DataLoader` with workers does.
pub(super) fn is_sharing(file: &str) -> bool {
    file.ends_with("reductions.py") && file.contains("multiprocessing")
}

/// The bits of a frame.
pub(super) fn bits(stacks: &StackTable, frame: Frame) -> Bits {
    let (file, name) = (stacks.text(frame.file), stacks.text(frame.name));
    let slashes;
    let file = if file.contains('\\') {
        slashes = file.replace('\\', "/");
        slashes.as_str()
    } else {
        file
    };
    match file {
        MODULE_FILE if name.contains("Attention") => CALL | FORWARD | PYTHON | ATTENDS,
        MODULE_FILE => CALL | FORWARD | PYTHON,
        OPERATOR_FILE if name == FORWARD_MARK || name.starts_with("autograd::engine::") => BACKWARD | PYTHON,
        OPERATOR_FILE if LAYERS.contains(&name) => FUNCTIONAL,
        OPERATOR_FILE => 0,
        _ if file.ends_with(".py") || file.starts_with('<') || file.contains("ipykernel") || name == "<module>" => {
            PYTHON | of_python(file, name, is_framework(stacks, frame))
        }
        _ => of_native(name),
    }
}

fn of_native(name: &str) -> Bits {
    let has = |parts: &[&str]| parts.iter().any(|p| name.contains(p));
    let mut b = 0;
    let set = |b: &mut Bits, bit: Bits, holds: bool| *b |= if holds { bit } else { 0 };
    let is_node = name.contains("Backward") && name.contains("::apply(");
    let engine = ["ngine::evaluate_function", "Engine::thread_main", "autograd::AccumulateGrad", "autograd::Node::operator()"];
    set(&mut b, BACKWARD, is_node || has(&engine));
    set(&mut b, CASTS, has(&["autocast::cached_cast"]));
    set(&mut b, OPERATOR, name.starts_with("at::_ops::"));
    let libraries = ["CUDABlasHandle", "CUDABlasLtWorkspace", "cublasLt", "raw_cudnn_", "Workspace::Workspace", "getWorkspace"];
    set(&mut b, WORKSPACE, has(&libraries));
    set(&mut b, COLLECTIVE, has(&["ncclComm", "ProcessGroupNCCL", "c10d::"]));
    set(&mut b, OPTIMIZER, name.starts_with("Optimizer.step"));
    b
}

fn of_python(file: &str, name: &str, is_library: bool) -> Bits {
    let has = |parts: &[&str]| parts.iter().any(|p| file.contains(p));
    let named = |names: &[&str]| names.contains(&name);
    let mut b = 0;
    let mut set = |bit: Bits, holds: bool| b |= if holds { bit } else { 0 };
    let in_module = file.ends_with("nn/modules/module.py");
    set(CALL, in_module && named(&["_call_impl", "_wrapped_call_impl", "_slow_forward", "inner", "__call__"]));
    set(FORWARD, named(&["forward", "_conv_forward"]));
    let backward = [
        "backward",
        "_make_grads",
        "_engine_run_backward",
        "_post_backward_hook",
        "_pre_backward_hook",
        "unpack_hook",
        "recompute_fn",
    ];
    // Hooks of the backward pass run in autograd's threads.
    let is_hook = file.ends_with("torch/utils/hooks.py") && named(&["hook", "fn"]);
    set(BACKWARD, named(&backward) || is_hook);
    let is_optimizer = has(OPTIMIZERS)
        && !has(&["lr_scheduler", "swa_utils"])
        && !named(&["zero_grad", "__init__", "load_state_dict", "add_param_group"]);
    set(OPTIMIZER, is_optimizer);
    set(ADAM, is_optimizer && has(&["/adam", "/nadam", "/radam"]));
    set(SGD, is_optimizer && file.ends_with("torch/optim/sgd.py"));
    let short = file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase();
    let is_own = ["optim", "adam", "sgd", "lion", "muon", "shampoo"].iter().any(|word| short.contains(word));
    set(STEP, name == "step" && is_own && !is_library);
    // Megatron makes its fp32 copies of the weights where it constructs the optimizer.
    let constructs = named(&["__init__", "add_param_group", "_build_model_and_main_param_groups"]);
    set(BUILDS_STATE, constructs && (has(OPTIMIZERS) || (is_own && !is_library)));
    set(BUILDS_BUFFERS, name == "__init__" && file.ends_with("param_and_grad_buffer.py"));
    set(APPLIES, in_module && name == "_apply");
    set(CLOSURE, name.contains("closure") && !has(&["torch/optim/"]));
    let unscales = ["unscale_", "_unscale_grads_", "step", "update", "_maybe_opt_step"];
    let clips = has(&["nn/utils/clip_grad.py"]) || named(&["clip_grad_norm_", "clip_gradients"]);
    set(CLIPS, clips || (has(&["amp/grad_scaler.py"]) && named(&unscales)));
    let is_shard = has(FSDP) && named(&["_init_sharded_param", "to_sharded_param", "reset_sharded_param", "__init__"]);
    // DataParallel copies the weights to every device in each pass.
    let replicates = has(&["nn/parallel/comm.py"]) && named(&["broadcast_coalesced"]);
    let makes = replicates || has(&["torch/nn/parameter.py", "torch/nn/init.py", "safetensors/", "core_model_loading.py"]);
    let low = name.to_ascii_lowercase();
    let of_weights = ["weight", "shard", "state_dict", "checkpoint"].iter().any(|what| low.contains(what));
    let takes = ["load", "append", "receive", "sync", "transfer"].iter().any(|verb| low.contains(verb));
    let says_loads = of_weights && takes && !low.contains("offload");
    set(
        LOADS,
        makes || is_shard || named(LOADERS) || says_loads || (in_module && named(MOVERS)) || (has(MODELS) && name == "__init__"),
    );
    let prepares = ["initialize_kv_cache", "_allocate_kv_cache_tensors", "init_memory_pool", "initialize_cache"];
    set(BUILDS, (!is_library && named(BUILDERS)) || (has(&SERVERS) && named(&prepares)));
    // A program without modules has its own functions with these names.
    let computes =
        !is_library && named(&["softmax", "log_softmax", "cross_entropy", "scaled_dot_product_attention", "attention"]);
    set(FUNCTIONAL, computes || has(&["torch/nn/functional.py", "torch/functional.py"]));
    set(CONTAINER, file.ends_with("nn/modules/container.py"));
    let caches = ["cache_utils.py", "kv_cache", "kvcache", "KVCache", "cache_engine.py", "mem_cache/memory_pool.py"];
    let cache_names = ["kv_cache", "kvcache", "KVCache", "kv_buffer", "past_key_value"];
    let is_kv = name.starts_with("kv_") && !is_library;
    // A function that attends to a cache makes a result, such as `flash_attn_with_kvcache`.
    let is_named = cache_names.iter().any(|word| name.contains(word)) && !name.contains("attn");
    set(CACHE, is_kv || has(&caches) || is_named);
    set(NAMED_CACHE, !is_library && (name.contains("cache") || name.contains("Cache")));
    let in_ddp = has(&["nn/parallel/distributed.py"]) && !named(&["forward", "_run_ddp_forward"]);
    set(COLLECTIVE, has(COLLECTIVES) || has(FSDP) || in_ddp);
    set(
        REDUCES,
        named(&["foreach_reduce", "_reduce_grad", "post_backward", "_ddp_init_helper"]) || name.contains("reduce_scatter"),
    );
    set(WORKSPACE, name.contains("workspace"));
    let activates = ["sdpa_attention_forward", "scaled_dot_product_attention", "gelu", "relu", "silu", "softmax", "log_softmax"];
    // Autocast casts no weights for these.
    let norms_and_pools = name.contains("_pool") || ["batch_norm", "instance_norm", "group_norm"].contains(&name);
    set(
        WEIGHTLESS,
        named(&activates) || norms_and_pools || name.contains("dropout") || has(&["modules/dropout.py", "modules/sparse.py"]),
    );
    let tuners = ["triton_heuristics.py", "runtime/benchmarking.py", "autotune_process.py", "triton/testing.py"];
    set(TUNING, has(&tuners) || named(&["do_bench", "autotune"]));
    set(GENERATES, has(&["transformers/generation/"]) || named(&["generate", "_sample", "p_sample_loop", "ddim_sample"]));
    let says = |words: &[&str]| low.split('_').any(|word| words.contains(&word));
    let captures = (file.contains("cuda_graph") || file.contains("cudagraph") || has(&SERVERS)) && says(&["capture"]);
    set(CAPTURES, captures || has(&["torch/cuda/graphs.py", "cudagraph_trees.py"]));
    let serves = has(&SERVERS) && named(&["execute_model", "forward_batch_generation", "run_batch", "generate_token"]);
    set(GENERATES, serves);
    set(PREFILLS, says(&["prefill"]) || (has(&SERVERS) && name == "forward_extend"));
    set(DECODES, says(&["decode", "decoding"]) && !says(&["encode"]));
    // A function that measures attention does other work too.
    let measures = ["bench", "profile", "measure", "time", "test", "run"].iter().any(|word| low.starts_with(word));
    let attends = low.contains("attention") || low.contains("attn") || (name == "forward" && short.contains("attention"));
    set(ATTENDS, attends && !measures && !file.contains("torch/nn/functional.py"));
    let tests = low.starts_with("eval")
        || low.starts_with("valid")
        || low == "test"
        || low.ends_with("_eval")
        || low.contains("validation")
        // From nanoGPT and its many descendants.
        || low == "estimate_loss";
    let loops = has(&["loops/evaluation_loop.py"]) || named(&["validation_step", "evaluation_loop", "test_step", "predict_step"]);
    set(EVALUATES, (tests && !is_library) || loops);
    let in_training = named(&["training_step", "_inner_training_loop"]) || has(&["loops/training_epoch_loop.py"]);
    set(TRAINS, (low.starts_with("train") && !is_library) || in_training);
    b
}
