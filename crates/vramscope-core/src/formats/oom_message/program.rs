//! The programs that print messages, and detection of the program behind an error without figures.

use super::row::{Row, Trust};
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

/// Words that occur only in texts of one program; the nearest one to an error without figures decides whose it is.
#[rustfmt::skip]
const CUES: [(&str, W); 24] = [
    ("torch|c10::", W::PyTorch), ("tensorflow|stream_executor", W::TensorFlow), ("cupy|chainer", W::CuPy), ("numba", W::Numba),
    ("rmm/|rmm::|cudf|cuml", W::Rmm), ("jaxlib|jax/|jax.|/xla/", W::Xla), ("ollama|llama runner process", W::Ollama), ("ggml|llama.cpp|llama_", W::LlamaCpp),
    ("onnxruntime", W::OnnxRuntime), ("paddle", W::Paddle), ("bitsandbytes", W::BitsAndBytes), ("tensorrt|[trt]", W::TensorRt),
    ("spconv|tensorview", W::Spconv), ("xgboost", W::XgBoost), ("mxnet", W::Mxnet), ("luarocks|.lua:|/share/lua/", W::LuaTorch),
    ("ctranslate2|faster_whisper|faster-whisper", W::CTranslate2), ("turbomind|lmdeploy", W::LmDeploy), ("cntk", W::Cntk),
    ("accelerator fatal|openacc", W::OpenAcc), ("faiss", W::Faiss), ("loaderror|julia", W::CudaJl), ("kokkos", W::Kokkos),
    // Programs with CUDA and no Python: burn, candle, OpenMM, SPECFEM, Darknet.
    ("burn-|burn_|candle-|candle_|cubecl|openmm|specfem|dark_cuda|./darknet", W::CudaProgram),
];

/// Programs around PyTorch that have settings of their own for its memory.
const AROUND: [(&str, W); 6] = [
    ("stable-diffusion-webui|sd.webui|gb, sys: |stable diffusion model failed to load|modules\\sd_|modules/sd_", W::SdWebUi),
    ("tensorrt_llm|trtllm|kv_cache_free_gpu_mem", W::TrtLlm),
    ("sglang|mem-fraction-static", W::Sglang),
    ("vllm|enginecore|rayworkerwrapper|worker_base.py", W::Vllm),
    ("comfyui", W::ComfyUi),
    ("text_generation_", W::Tgi),
];
/// Ollama runs llama.cpp, so these cues are searched only around messages of llama.cpp.
const OLLAMA: [(&str, W); 1] = [("ollama|source=server.go|source=sched.go|source=runner.go|llama runner process", W::Ollama)];
/// Words that only TensorFlow 1 prints or has.
const TENSORFLOW_1: &str = "(see above for traceback)|client/session.py|tf.session|tf.contrib|tensorflow/contrib|tf.configproto\
    |memoryclockrate|totalmemory:|total memory:|tensorflow==1|tensorflow-gpu==1|tf_jenkins";

/// What occurs only in texts of machines with cards that are not NVIDIA's; a server's own messages do not name them.
const CARDS: [(&str, Platform); 3] = [
    ("torch_npu|910b|/cann|:cann", Platform::Npu),
    ("/rocm/|vllm-rocm|rocm_aiter|amd instinct|gfx942|gfx950|gfx1100|gfx1151", Platform::Hip),
    ("xpu_worker|vllm-xpu|intel arc|oneccl", Platform::Xpu),
];
/// Who compiled a program with XLA: its errors do not tell. The first that occurs decides, and JAX where none does. Logs of JAX have the
/// paths of TensorFlow's sources.
const COMPILED_BY: [(&str, W); 3] = [
    ("jax|flax|pjit", W::Xla),
    ("torch_xla|torchxla|xla_client|xrtexecute|pytorch|bad statusor access|/job:tpu_worker", W::TorchXla),
    ("tensorflow|keras|tpustrategy|tpu_estimator|function_node|resourceexhaustederror", W::TensorFlow),
];
const SOURCES: [&str; 2] = ["org_tensorflow/tensorflow", "tensorflow/compiler/xla/python"];

/// Number of lines before and after a message that are searched for cues.
const LINES: (usize, usize) = (30, 12);

/// What lines around a message tell beside its program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    WindowsPath,
    WindowsName,
    Pins,
    Loads,
    Captures,
}

/// Per sign: lines above and below in which it is searched, and its words in small letters. Between loading and the failure vLLM has many
/// frames; a progress bar is printed after the error where it breaks off.
#[rustfmt::skip]
const SIGNS: [(Sign, usize, usize, &str); 7] = [
    (Sign::WindowsPath, LINES.0, LINES.1, ":\\|winerror"),
    (Sign::WindowsName, LINES.0, LINES.1,
        "windows_portable|windows 10|windows 11|windows-1|system: windows|os: windows|platform: windows|**os:** nt|win_amd64"),
    (Sign::Pins, 3, 0, "pin_memory"),
    (Sign::Loads, 10, 0, "pipe.to(|pipeline.to(|model.to(|model.cuda()|from_pretrained(|load_state_dict(|load_model(|load_pretrained_model|\
        set_module_tensor_to_device"),
    (Sign::Loads, 60, 0, "in create_weights|initialize_model(|in make_layers|in load_weights"),
    (Sign::Loads, 10, 2, "loading checkpoint shards:"),
    (Sign::Captures, 16, 0, "in capture_end|torch.cuda.graph(|in capture_model|in capture_begin|in _capture_graphs"),
];

fn sees(window: &Window<'_>, sign: Sign) -> bool {
    let is_around = |above, below, words| has(&window.around(above, below).to_ascii_lowercase(), words);
    SIGNS.iter().any(|&(known, above, below, words)| known == sign && is_around(above, below, words))
}

/// Detects from the text around a message which program wrote it, and whether it ran on Windows.
pub(super) fn look_around(window: &Window<'_>, row: &Row, message: &mut OomMessage) {
    if matches!(row.dialect.writer, W::Vllm | W::Sglang | W::Tgi) {
        let around = window.around(LINES.0, LINES.1).to_ascii_lowercase();
        message.dialect.platform = first(&CARDS, &around).unwrap_or(row.dialect.platform);
    }
    if row.dialect.writer == W::Xla && row.dialect.platform != Platform::Cuda {
        let around =
            SOURCES.iter().fold(window.around(LINES.0, LINES.1).to_ascii_lowercase(), |text, path| text.replace(path, ""));
        message.dialect.writer = first(&COMPILED_BY, &around).unwrap_or(W::Xla);
    }
    let is_bare = matches!(row.dialect.writer, W::Runtime | W::Cublas | W::Cudnn | W::Nccl);
    if !is_bare && !matches!(row.dialect.writer, W::PyTorch | W::CudaMallocAsync | W::ComfyUi | W::LlamaCpp | W::TensorFlow) {
        return;
    }
    let around = window.around(LINES.0, LINES.1).to_ascii_lowercase();
    // Under WSL the program itself runs on Linux.
    message.on_windows = sees(window, Sign::WindowsPath) || !around.contains("wsl") && sees(window, Sign::WindowsName);
    message.is_capturing = sees(window, Sign::Captures);
    message.is_loading = row.dialect.writer == W::PyTorch && sees(window, Sign::Loads);
    // A failed call that pins memory needs host memory, but the error has the words of a device error.
    message.is_pinned = is_bare && (row.dialect.platform == Platform::Cpu || sees(window, Sign::Pins));
    if row.dialect.writer == W::TensorFlow && has(&around, TENSORFLOW_1) {
        message.dialect.until = Some((1, 15));
    }
    // JAX has the allocator of TensorFlow, with other paths before its lines.
    if row.dialect.writer == W::TensorFlow
        && has(&around, "tsl/framework|local_tsl|xla/tsl|local_xla")
        && !has(&around, "tensorflow|keras")
    {
        message.dialect.writer = W::Xla;
        message.tips = &[];
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
    let servers: &[(&str, W)] = match message.dialect.writer {
        W::LlamaCpp => &OLLAMA,
        W::TensorFlow => &[],
        _ if is_bare || matches!(row.dialect.writer, W::PyTorch | W::CudaMallocAsync) => &AROUND,
        _ => &[],
    };
    message.around = first(servers, &around);
    // llama.cpp for AMD prints CUDA's names.
    if message.dialect.writer == W::LlamaCpp && message.dialect.platform == Platform::Cuda && has(&around, "rocm") {
        message.dialect.platform = Platform::Hip;
    }
}

/// What the first cue stands for that occurs in a text of small letters.
fn first<T: Copy>(of: &[(&str, T)], text: &str) -> Option<T> {
    of.iter().find(|(cues, _)| has(text, cues)).map(|&(_, what)| what)
}

/// The program whose words are nearest to the message's line. Distances after the line count double, because text before an error
/// is more often its cause.
fn nearest(around: &str, place: usize, line: usize) -> Option<W> {
    let distance = |cue: &str| {
        let behind = around.get(place..).and_then(|t| t.find(cue)).map(|at| at.saturating_sub(line) * 2);
        let before = around.get(..place).and_then(|t| t.rfind(cue)).map(|at| place - at);
        behind.into_iter().chain(before).min()
    };
    let cues = CUES.iter().flat_map(|&(cues, writer)| cues.split('|').map(move |cue| (cue, writer)));
    cues.filter_map(|(cue, writer)| Some((distance(cue)?, writer)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, writer)| writer)
}
