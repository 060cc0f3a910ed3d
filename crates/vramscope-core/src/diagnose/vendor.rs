//! Vendor-specific names: what each vendor's software calls the variables, tools and libraries that advice mentions. Sentences
//! use the names of their device. [`Words::say`] translates fixed text written with CUDA's names. Do not use it on text that
//! contains names from a recording, which are data.

use std::borrow::Cow;

use crate::formats::oom_message::Platform;
use crate::model::{DeviceKind, DeviceRecording};

/// One vendor's names for the things that advice mentions.
#[derive(Debug, PartialEq, Eq)]
pub struct Words {
    /// The variable that hides cards from a process, with an example value.
    pub visible: &'static str,
    /// The module of `torch`, which is also the device's name for `autocast`.
    pub module: &'static str,
    /// The variable that holds the allocator's settings.
    pub conf: &'static str,
    /// The command that lists processes on the card.
    pub list: &'static str,
    /// The same command, repeated while the program runs.
    pub watch: &'static str,
    /// The tool that shows the card's state.
    pub tool: &'static str,
    /// The command that finds processes that have the card open, including those in other containers.
    pub holders: &'static str,
    /// The setting that runs kernels one after the other, so that an error names the right one.
    pub blocking: &'static str,
    /// The driver's call that allocates memory.
    pub malloc: &'static str,
    /// The driver's call that frees memory.
    pub free: &'static str,
    /// The library for communication between cards.
    pub collectives: &'static str,
    /// The driver's memory in a process before it allocates anything.
    pub context: &'static str,
    /// Where the allocator's segments come from.
    pub source: &'static str,
    /// A call that allocates or frees a segment.
    pub call: &'static str,
}

/// NVIDIA, and any device without its own names.
pub static CUDA: Words = Words {
    visible: "CUDA_VISIBLE_DEVICES=1",
    module: "cuda",
    conf: "PYTORCH_CUDA_ALLOC_CONF",
    list: "nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
    watch: "nvidia-smi --query-compute-apps=pid,used_memory --format=csv -lms 200",
    tool: "nvidia-smi",
    holders: "fuser -v /dev/nvidia*",
    blocking: "CUDA_LAUNCH_BLOCKING=1",
    malloc: "cudaMalloc",
    free: "cudaFree",
    collectives: "NCCL",
    context: "CUDA context",
    source: "from the device",
    call: "device call",
};
/// AMD, whose module in `torch` is also called `cuda`.
pub static HIP: Words = Words {
    visible: "HIP_VISIBLE_DEVICES=1",
    module: "cuda",
    conf: "PYTORCH_HIP_ALLOC_CONF",
    list: "rocm-smi --showpids",
    watch: "watch -n 0.2 rocm-smi --showpids --showmeminfo vram",
    tool: "rocm-smi",
    holders: "fuser -v /dev/kfd /dev/dri/render*",
    blocking: "AMD_SERIALIZE_KERNEL=3",
    malloc: "hipMalloc",
    free: "hipFree",
    collectives: "RCCL",
    context: "HIP context",
    source: "from the device",
    call: "device call",
};
/// Intel GPUs, through Level Zero.
pub static XPU: Words = Words {
    visible: "ZE_AFFINITY_MASK=1",
    module: "xpu",
    conf: "PYTORCH_ALLOC_CONF",
    list: "xpu-smi ps",
    watch: "watch -n 0.2 xpu-smi ps",
    tool: "xpu-smi",
    holders: "fuser -v /dev/dri/render*",
    blocking: "CUDA_LAUNCH_BLOCKING=1",
    malloc: "sycl::malloc_device",
    free: "sycl::free",
    collectives: "oneCCL",
    context: "Level Zero context",
    source: "from the device",
    call: "device call",
};
/// Huawei's Ascend, through torch_npu.
pub static NPU: Words = Words {
    visible: "ASCEND_RT_VISIBLE_DEVICES=1",
    module: "npu",
    conf: "PYTORCH_NPU_ALLOC_CONF",
    list: "npu-smi info",
    watch: "watch -n 0.2 npu-smi info",
    tool: "npu-smi",
    holders: "fuser -v /dev/davinci*",
    blocking: "ASCEND_LAUNCH_BLOCKING=1",
    malloc: "aclrtMalloc",
    free: "aclrtFree",
    collectives: "HCCL",
    context: "ACL context",
    source: "from the device",
    call: "device call",
};
/// Pinned host memory of a process that uses NVIDIA's cards; PyTorch has a separate allocator for it.
pub static HOST: Words = Words {
    malloc: "cudaHostAlloc",
    free: "cudaFreeHost",
    source: "from the host",
    call: "host call",
    visible: CUDA.visible,
    module: CUDA.module,
    conf: CUDA.conf,
    list: CUDA.list,
    watch: CUDA.watch,
    tool: CUDA.tool,
    holders: CUDA.holders,
    blocking: CUDA.blocking,
    collectives: CUDA.collectives,
    context: CUDA.context,
};

impl Words {
    /// The names for a message's platform; NVIDIA's if it does not say.
    pub fn of_platform(platform: Platform) -> &'static Words {
        match platform {
            Platform::Hip => &HIP,
            Platform::Xpu => &XPU,
            Platform::Npu => &NPU,
            _ => &CUDA,
        }
    }

    /// The vendor's name, if these names belong to a single vendor.
    pub fn vendor(&self) -> Option<&'static str> {
        [(&HIP, "amd"), (&XPU, "intel"), (&NPU, "huawei")].into_iter().find(|(words, _)| *words == self).map(|(_, name)| name)
    }

    /// The names for a device. AMD's recordings say `cuda` too; the names of their settings, or of the card, distinguish them.
    pub fn of(device: &DeviceRecording) -> &'static Words {
        let is_amd = |name: &String| ["AMD", "Radeon", "Instinct"].iter().any(|v| name.contains(v));
        match device.id.kind {
            DeviceKind::Xpu => &XPU,
            DeviceKind::Host => &HOST,
            DeviceKind::Cuda if device.name.as_ref().is_some_and(is_amd) => &HIP,
            DeviceKind::Cuda if device.name.as_ref().is_some_and(|name| name.contains("Ascend")) => &NPU,
            DeviceKind::Cuda if device.settings.raw.iter().any(|(key, _)| key.to_ascii_lowercase().contains("hip")) => &HIP,
            _ => &CUDA,
        }
    }

    /// A user-friendly tool that lists processes on the card.
    pub fn tool_that_lists(&self) -> &'static str {
        if *self == CUDA || *self == HOST { self.tool } else { self.list }
    }

    /// The variable that hides cards from a process, without a value.
    pub fn visible_name(&self) -> &'static str {
        self.visible.split('=').next().unwrap_or(self.visible)
    }

    /// Translates a fixed sentence or line of advice from CUDA's names to these. Cost: O(length); nothing for CUDA.
    pub fn say(&self, text: &'static str) -> Cow<'static, str> {
        if *self == CUDA {
            return Cow::Borrowed(text);
        }
        let module = self.module;
        // Ascend's module is part of a package of its own.
        let torch = if module == "npu" { "torch_npu.npu.".to_owned() } else { format!("torch.{module}.") };
        let (from, observer) = (format!("from {} import", torch.trim_end_matches('.')), format!("torch._C._{module}_"));
        // A text that contains another one must come before it.
        let pairs = [
            ("nvidia-smi --gpu-reset is the last resort", "a restart of the machine is the last resort"),
            (CUDA.watch, self.watch),
            (CUDA.list, self.list),
            (CUDA.tool, self.tool),
            (CUDA.holders, self.holders),
            ("CUDA_VISIBLE_DEVICES", self.visible_name()),
            ("PYTORCH_CUDA_ALLOC_CONF", self.conf),
            (CUDA.malloc, self.malloc),
            (CUDA.free, self.free),
            (CUDA.context, self.context),
            (CUDA.source, self.source),
            (CUDA.call, self.call),
            ("the NVIDIA driver", "the driver"),
            ("cuBLAS, cuDNN and NCCL", "math libraries and NCCL"),
            (CUDA.collectives, self.collectives),
            ("torch._C._cuda_", observer.as_str()),
            ("from torch.cuda import", from.as_str()),
            ("torch.cuda.", torch.as_str()),
            ("the CUDA caching allocator", "PyTorch's caching allocator"),
        ];
        let mut out = Cow::Borrowed(text);
        for (from, to) in pairs {
            if from != to && out.contains(from) {
                out = Cow::Owned(out.replace(from, to));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DeviceId;

    #[test]
    fn advice_is_put_into_each_vendors_words() {
        let text = "Call torch.cuda.empty_cache() and look at nvidia-smi; CUDA_VISIBLE_DEVICES hides cards, and PYTORCH_CUDA_ALLOC_CONF=\
            expandable_segments:True is a setting. Fewer NCCL communicators; who calls cudaMalloc?";
        assert_eq!(CUDA.say(text), text);
        for (words, wanted) in [
            (
                &XPU,
                [
                    "torch.xpu.empty_cache()",
                    "xpu-smi",
                    "ZE_AFFINITY_MASK",
                    "PYTORCH_ALLOC_CONF=",
                    "oneCCL",
                    "sycl::malloc_device",
                ],
            ),
            (
                &HIP,
                ["torch.cuda.empty_cache()", "rocm-smi", "HIP_VISIBLE_DEVICES", "PYTORCH_HIP_ALLOC_CONF=", "RCCL", "hipMalloc"],
            ),
            (&NPU, ["torch_npu.npu.", "npu-smi", "ASCEND_RT_VISIBLE_DEVICES", "PYTORCH_NPU_ALLOC_CONF=", "HCCL", "aclrtMalloc"]),
        ] {
            let said = words.say(text);
            for word in wanted {
                assert!(said.contains(word), "{word}: {said}");
            }
            assert!(!said.contains("nvidia") && !said.contains("PYTORCH_CUDA"), "{said}");
        }
        assert_eq!(XPU.say(CUDA.list), "xpu-smi ps");
    }

    #[test]
    fn a_device_tells_its_vendor() {
        let mut device = DeviceRecording { id: DeviceId { kind: DeviceKind::Xpu, index: 0 }, ..DeviceRecording::default() };
        assert_eq!(Words::of(&device).module, "xpu");
        device.id.kind = DeviceKind::Host;
        let pinned = Words::of(&device);
        assert_eq!(pinned.say("no cudaMalloc or cudaFree"), "no cudaHostAlloc or cudaFreeHost");
        assert_eq!(pinned.say("3 device calls, taken from the device"), "3 host calls, taken from the host");
        assert_eq!(pinned.tool_that_lists(), "nvidia-smi");
        device.id.kind = DeviceKind::Cuda;
        assert_eq!(Words::of(&device), &CUDA);
        device.name = Some("AMD Instinct MI300X".to_owned());
        assert_eq!(Words::of(&device).tool, "rocm-smi");
        device.name = Some("Ascend NPU".to_owned());
        assert_eq!(Words::of(&device).say("torch.cuda.memory._snapshot()"), "torch_npu.npu.memory._snapshot()");
    }
}
