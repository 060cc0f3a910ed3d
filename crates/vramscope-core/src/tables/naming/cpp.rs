//! C++ function names as `torch.cuda.memory._record_memory_history(stacks="all")` prints them: demangled, with all arguments.

/// Frames of recorder, allocator, and the creation of empty tensors: innermost in every C++ stack, and without information.
pub(super) fn is_plumbing(name: &str) -> bool {
    const PARTS: [&str; 13] = [
        "torch::unwind::",
        "CapturedTraceback::",
        "gather_with_cpp",
        "CachingAllocator",
        "at::detail::empty_",
        "at::native::empty",
        "at::_ops::empty",
        "at::empty",
        "at::meta::",
        "::wrapper_",
        "wrap_kernel_functor",
        "::set_output_",
        "::create_out(",
    ];
    // Python names contain no colons. Only the part before the arguments is searched, because arguments name types.
    name.contains("::") && PARTS.iter().any(|part| function_with_brace(name).contains(part))
}

/// The index of the frame that best names a stack without Python lines: the node of the backward pass that allocates, otherwise
/// the outermost operator, otherwise the autograd engine. `names` are the stack's frames, innermost first.
pub(super) fn telling<'a>(names: impl Iterator<Item = &'a str>) -> Option<usize> {
    let (mut operator, mut engine) = (None, None);
    for (i, name) in names.enumerate() {
        let function = function(name);
        if function.starts_with(NODES) && function.ends_with(APPLY) {
            return Some(i);
        }
        if function.starts_with(OPERATORS) && function.ends_with(CALL) {
            operator = Some(i);
        }
        if function.starts_with(ENGINE) {
            engine = Some(i);
        }
    }
    operator.or(engine)
}

const NODES: &str = "torch::autograd::generated::";
const APPLY: &str = "::apply";
const ENGINE: &str = "torch::autograd::Engine::";
const OPERATORS: &str = "at::_ops::";
const CALL: &str = "::call";

/// Short form of a C++ function: `AddmmBackward0` for a node of the backward pass, `backward (autograd thread)` for the engine,
/// `mm` for an operator, `DeviceCachingAllocator::malloc` for a method. Others lose namespaces and arguments; Python names stay.
pub fn function_label(name: &str) -> &str {
    let function = function(name);
    if let Some(node) = function.strip_prefix(NODES).and_then(|rest| rest.strip_suffix(APPLY)) {
        return node;
    }
    if let Some((operator, _)) = function.strip_prefix(OPERATORS).and_then(|rest| rest.rsplit_once("::")) {
        return operator;
    }
    if function.starts_with(ENGINE) {
        return "backward (autograd thread)";
    }
    let Some(at) = last_colons(function) else { return function };
    let (before, last) = (&function[..at], at + 2);
    // Class names begin with a capital, namespaces do not. Methods of templates read better without their class.
    let class = last_colons(before).map_or(0, |at| at + 2);
    let is_class = before[class..].starts_with(|c: char| c.is_ascii_uppercase()) && !before[class..].contains(['<', '(']);
    &function[if is_class { class } else { last }..]
}

/// The name up to and including the parenthesis that opens its arguments.
fn function_with_brace(name: &str) -> &str {
    name.get(..function(name).len() + 1).unwrap_or(name)
}

/// A demangled name without its arguments.
fn function(name: &str) -> &str {
    if !name.contains("::") {
        return name;
    }
    let mut depth = 0u32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !name[..at].ends_with('-') => depth = depth.saturating_sub(1),
            // `(anonymous namespace)` starts a part of the name, and `operator()` is a name.
            '(' if depth == 0 && at > 0 && !name[..at].ends_with("::") && !name[..at].ends_with("operator") => {
                return &name[..at];
            }
            _ => {}
        }
    }
    name
}

/// The last `::` outside template arguments.
fn last_colons(name: &str) -> Option<usize> {
    let mut depth = 0u32;
    let bytes = name.as_bytes();
    for at in (1..bytes.len()).rev() {
        match bytes[at] {
            b'>' if bytes[at - 1] != b'-' => depth += 1,
            b'<' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes[at - 1] == b':' => return Some(at - 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_what_they_do() {
        for (name, label) in [
            (
                "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
                "AddmmBackward0",
            ),
            ("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "mm"),
            (
                "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
                "backward (autograd thread)",
            ),
            ("at::_ops::_to_copy::redispatch(c10::DispatchKeySet)", "_to_copy"),
            (
                "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)",
                "DeviceCachingAllocator::malloc",
            ),
            ("at::cuda::getCurrentCUDABlasHandle()", "getCurrentCUDABlasHandle"),
            ("torch::cuda::(anonymous namespace)::gather_with_cpp()", "gather_with_cpp"),
            ("torch::autograd::Node::operator()(std::vector<at::Tensor>&&)", "Node::operator()"),
            ("c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::Wrap<a (*)(b)>, c>::call(c10::OperatorKernel*)", "call"),
            ("forward", "forward"),
            ("<lambda>", "<lambda>"),
            ("__call__ (deprecated)", "__call__ (deprecated)"),
            ("::", ""),
            ("", ""),
        ] {
            assert_eq!(function_label(name), label, "{name}");
        }
    }

    #[test]
    fn a_stack_is_known_by_its_node_or_else_by_the_operator_called_first() {
        let node = "torch::autograd::generated::MmBackward0::apply(int)";
        let stack = ["torch::unwind::unwind()", "at::_ops::empty::call(int)", "at::_ops::mm::call(int)", node, "_start"];
        assert_eq!(telling(stack.into_iter()), Some(3));
        assert_eq!(telling(stack[..3].iter().copied()), Some(2));
        assert_eq!(telling(["c10::alloc(int)", "torch::autograd::Engine::thread_main(int)"].into_iter()), Some(1));
        assert_eq!(telling(["forward", "main"].into_iter()), None);
        assert!(is_plumbing(stack[0]) && !is_plumbing(stack[2]) && !is_plumbing("CachingAllocatorTest"));
    }
}
