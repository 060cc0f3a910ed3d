//! The programs that print messages, and detection of the program behind an error without figures.

use super::row::{Row, Trust};
use super::signs::{self, sees};
use super::text::{Window, has};
use super::{OomMessage, Platform, Writer as W};

/// Whose memory a message is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemoryOwner {
    /// Memory of a process that runs PyTorch.
    PyTorch,
    /// The program's own memory: nothing of PyTorch applies.
    Own,
    Host,
}

macro_rules! programs {
    ($($variant:ident $key:literal $name:literal $owner:ident),* $(,)?) => {
        /// The program that wrote the message.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Writer {
            #[default]
            $(#[doc = $name] $variant,)*
        }

        impl Writer {
            /// Its name in [`Dialect::name`](super::Dialect::name).
            pub(crate) fn key(self) -> &'static str {
                match self { $(Writer::$variant => $key,)* }
            }

            /// Its name in sentences.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Writer::$variant => $name,)* }
            }

            pub(crate) fn of_key(key: &str) -> Option<Self> {
                match key { $($key => Some(Writer::$variant),)* _ => None }
            }

            fn owner(self) -> MemoryOwner {
                match self { $(Writer::$variant => MemoryOwner::$owner,)* }
            }
        }
    };
}

programs! {
    PyTorch "pytorch" "PyTorch" PyTorch,
    CudaMallocAsync "cuda-malloc-async" "PyTorch over cudaMallocAsync" PyTorch,
    Mps "mps" "PyTorch's allocator for Apple's GPUs" PyTorch,
    Runtime "cuda-error" "the runtime of CUDA, HIP or SYCL" PyTorch,
    Cublas "cublas" "cuBLAS" PyTorch,
    Cudnn "cudnn" "cuDNN" PyTorch,
    Nccl "nccl" "NCCL" PyTorch,
    Vllm "vllm" "vLLM" PyTorch,
    Sglang "sglang" "SGLang" PyTorch,
    ComfyUi "comfyui" "ComfyUI" PyTorch,
    Tgi "text-generation-inference" "text-generation-inference" PyTorch,
    SdWebUi "stable-diffusion-webui" "stable-diffusion-webui" PyTorch,
    ExLlama "exllama" "ExLlama" PyTorch,
    Transformers "transformers" "transformers" PyTorch,
    Triton "triton" "Triton" PyTorch,
    Hami "hami" "HAMi (virtual GPUs)" PyTorch,
    Xla "xla" "XLA (JAX)" Own,
    TorchXla "torch-xla" "PyTorch/XLA" Own,
    TensorFlow "tensorflow-bfc" "TensorFlow" Own,
    CuPy "cupy" "CuPy" Own,
    OnnxRuntime "onnxruntime" "ONNX Runtime" Own,
    Paddle "paddle" "PaddlePaddle" Own,
    LlamaCpp "llama.cpp" "llama.cpp" Own,
    Ollama "ollama" "Ollama" Own,
    TensorRt "tensorrt" "TensorRT" Own,
    Rmm "rmm" "RMM (RAPIDS)" Own,
    Numba "numba" "Numba" Own,
    PyCuda "pycuda" "PyCUDA" Own,
    BitsAndBytes "bitsandbytes" "bitsandbytes" Own,
    OpenAcc "openacc" "OpenACC" Own,
    Spconv "spconv" "spconv" Own,
    XgBoost "xgboost" "XGBoost" Own,
    Faiss "faiss" "Faiss" Own,
    Mxnet "mxnet" "MXNet" Own,
    LuaTorch "torch7" "Torch 7" Own,
    CTranslate2 "ctranslate2" "CTranslate2 (faster-whisper)" Own,
    LmDeploy "lmdeploy" "LMDeploy (TurboMind)" Own,
    Cntk "cntk" "CNTK" Own,
    Blender "blender" "Blender (Cycles)" Own,
    Mlx "mlx" "MLX" Own,
    Metal "metal" "Metal" Own,
    Mlc "mlc-llm" "MLC LLM" Own,
    TrtLlm "tensorrt-llm" "TensorRT-LLM" Own,
    CudaJl "cuda.jl" "CUDA.jl" Own,
    Theano "theano" "Theano" Own,
    Kokkos "kokkos" "Kokkos" Own,
    MindSpore "mindspore" "MindSpore" Own,
    OpenCl "opencl" "OpenCL" Own,
    DirectMl "directml" "DirectML" Own,
    LevelZero "level-zero" "Level Zero" Own,
    Vulkan "vulkan" "Vulkan" Own,
    WebGpu "webgpu" "WebGPU" Own,
    Habana "habana" "Intel Gaudi's bridge to PyTorch" Own,
    SparkRapids "spark-rapids" "RAPIDS for Spark" Own,
    Ascend "ascend" "Ascend's driver (CANN)" Own,
    CudaProgram "cuda-program" "a CUDA program" Own,
    Cpu "cpu" "the system" Host,
    Killer "killed" "the system" Host,
    Slurm "slurm" "Slurm" Host,
    Ray "ray" "Ray" Host,
    Shm "shm" "the system" Host,
}

impl Writer {
    /// The program's name if memory other than PyTorch's ran out: PyTorch's settings and recordings do not apply then.
    #[must_use]
    pub fn neighbour(self) -> Option<&'static str> {
        (self.owner() == MemoryOwner::Own).then(|| self.title())
    }

    /// True if host memory ran out, not a device's.
    #[must_use]
    pub fn is_host(self) -> bool {
        self.owner() == MemoryOwner::Host
    }
}

/// Paths of TensorFlow's sources in logs of JAX.
const SOURCES: [&str; 2] = ["org_tensorflow/tensorflow", "tensorflow/compiler/xla/python"];

/// Number of lines before and after a message that are searched for cues.
const LINES: (usize, usize) = (30, 12);

/// Detects from the text around a message which program wrote it, and whether it ran on Windows.
pub(super) fn look_around(window: &Window<'_>, row: &Row, message: &mut OomMessage) {
    if matches!(row.dialect.writer, W::Vllm | W::Sglang | W::Tgi) {
        let around = window.around(LINES.0, LINES.1).to_ascii_lowercase();
        message.dialect.platform = signs::first("card", &around).and_then(Platform::of_name).unwrap_or(row.dialect.platform);
    }
    if row.dialect.writer == W::Xla && row.dialect.platform != Platform::Cuda {
        let around = window.around(LINES.0, LINES.1).to_ascii_lowercase();
        let around = SOURCES.iter().fold(around, |text, path| text.replace(path, ""));
        message.dialect.writer = signs::first("compiler", &around).and_then(W::of_key).unwrap_or(W::Xla);
    }
    let is_bare = matches!(row.dialect.writer, W::Runtime | W::Cublas | W::Cudnn | W::Nccl);
    if !is_bare && !matches!(row.dialect.writer, W::PyTorch | W::CudaMallocAsync | W::ComfyUi | W::LlamaCpp | W::TensorFlow) {
        return;
    }
    let around = window.around(LINES.0, LINES.1).to_ascii_lowercase();
    // Under WSL the program itself runs on Linux.
    message.on_windows = sees(window, "windows path") || !around.contains("wsl") && sees(window, "windows name");
    message.is_capturing = sees(window, "captures");
    message.is_loading = row.dialect.writer == W::PyTorch && sees(window, "loads");
    message.is_decoding = sees(window, "decodes") && !sees(window, "decodes in tiles");
    // A failed call that pins memory needs host memory, but the error has the words of a device error.
    message.is_pinned = is_bare && (row.dialect.platform == Platform::Cpu || sees(window, "pins"));
    // JAX has the allocator of TensorFlow, with other paths before its lines.
    if row.dialect.writer == W::TensorFlow
        && has(&around, "tsl/framework|local_tsl|xla/tsl|local_xla")
        && !has(&around, "tensorflow|keras")
    {
        message.dialect.writer = W::Xla;
        message.tips = &[];
    }
    if message.dialect.writer == W::TensorFlow {
        if signs::tells("tensorflow 1", &around) {
            message.dialect.until = Some((1, 15));
        }
        // A filter of 1 by 1 is no batch of one.
        let line = window.raw_line().replace(", ", ",");
        message.is_one_at_once = line.split("shape").any(|rest| {
            let rest = rest.trim_start_matches([' ', '=', ':']);
            let rest = rest.strip_prefix("of ").unwrap_or(rest).strip_prefix("[1,");
            rest.is_some_and(|rest| !rest.starts_with("1,") && rest.split(']').next().is_some_and(|dims| dims.contains(',')))
        });
    }
    if is_bare {
        let place = around.find(&super::text::clamped(window.raw_line(), 200).to_ascii_lowercase()).unwrap_or(0);
        match nearest(&around, place, window.raw_line().len()) {
            Some(W::PyTorch) => {}
            // In Ollama, the process that runs out is llama.cpp.
            Some(W::Ollama) => message.dialect.writer = W::LlamaCpp,
            Some(writer) => message.dialect.writer = writer,
            None => message.is_foreign = row.trust == Trust::Name && row.dialect.writer == W::Runtime,
        }
    }
    let kind = match message.dialect.writer {
        W::LlamaCpp => "runner",
        W::TensorFlow => "",
        _ if is_bare || matches!(row.dialect.writer, W::PyTorch | W::CudaMallocAsync) => "server",
        _ => "",
    };
    message.around = signs::first(kind, &around).and_then(W::of_key);
    // llama.cpp for AMD prints CUDA's names.
    if message.dialect.writer == W::LlamaCpp && message.dialect.platform == Platform::Cuda && has(&around, "rocm") {
        message.dialect.platform = Platform::Hip;
    }
}

/// What the whole log tells: TensorFlow's release, and the share of the card that vLLM takes.
pub(super) fn look_far(window: &Window<'_>, message: &mut OomMessage) {
    match message.dialect.writer {
        W::TensorFlow if message.dialect.until.is_none() => {
            let (above, below) = window.log();
            let log = [above, below].concat().to_ascii_lowercase();
            let is_old = signs::tells("old release", &log) && !signs::tells("tensorflow 2", &log);
            message.dialect.until = is_old.then_some((1, 15));
        }
        W::Vllm => message.server_share = super::beside::vllm_share(window),
        _ => {}
    }
}

/// The program whose words are nearest to the message's line. Distances after the line count double, because text before an error
/// is more often its cause.
fn nearest(around: &str, place: usize, line: usize) -> Option<W> {
    let distance = |cue: &str| {
        let behind = around.get(place..).and_then(|t| t.find(cue)).map(|at| at.saturating_sub(line) * 2);
        let before = around.get(..place).and_then(|t| t.rfind(cue)).map(|at| place - at);
        behind.into_iter().chain(before).min()
    };
    let found = signs::of_kind("program").filter_map(|(program, word)| Some((distance(word)?, program)));
    found.min_by_key(|(distance, _)| *distance).and_then(|(_, program)| W::of_key(program))
}
