//! What is advised, by program, platform and release.

use super::*;

#[test]
fn advice_is_in_the_words_of_the_platform() {
    let own = this("22.50 GiB");
    for (live, holes, others) in [
        ("18.00 GiB", "4.00 GiB", ""),
        ("21.90 GiB", "100.00 MiB", ""),
        ("15.00 GiB", "100.00 MiB", ""),
        ("9.90 GiB", "100.00 MiB", "x"),
    ] {
        let processes = if others.is_empty() {
            own.clone()
        } else {
            format!("Process 77 has 12.00 GiB memory in use. {}", this("10.50 GiB"))
        };
        let text = modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &processes, "", live, holes);
        for (platform, foreign) in
            [("HIP", ["nvidia", "CUDA_", "xpu", "PYTORCH_CUDA"]), ("XPU", ["nvidia", "CUDA_", "torch.cuda", "autocast(\"cuda\""])]
        {
            let named = text.replace("PYTORCH_CUDA", &format!("PYTORCH_{platform}"));
            let e = verdict_of(&named.replace("CUDA out", &format!("{platform} out")));
            assert_eq!(e.platform, platform.to_lowercase());
            let all: Vec<&str> =
                e.remedies.iter().map(|r| r.sentence.as_str()).chain(e.known.iter().map(String::as_str)).collect();
            for word in foreign {
                assert!(!all.iter().any(|line| line.contains(word)), "{platform}, {word}: {all:?}");
            }
        }
    }
}

#[test]
fn the_variable_is_the_one_the_message_names() {
    let text = modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "18.00 GiB", "4.00 GiB");
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"] {
        let e = verdict_of(&text.replace("PYTORCH_CUDA_ALLOC_CONF", name));
        assert_eq!(e.remedies[0].setting, Some(format!("{name}=expandable_segments:True")));
    }
}

#[test]
fn few_holes_are_not_the_first_advice() {
    let other = format!("Process 3044 has 18.40 GiB memory in use. {}", this("5.26 GiB"));
    let e = verdict_of(&modern("14.00 MiB", "23.69 GiB", "12.19 MiB", &other, "", "4.80 GiB", "53.12 MiB"));
    assert_eq!(e.verdict, Verdict::Contention);
    assert!(e.sentence.contains("Process 3044 holds 18.40 GiB of the card's 23.69 GiB"), "{}", e.sentence);
    assert!(e.remedies[0].sentence.contains("pid 3044"), "{:?}", e.remedies[0]);
    let e = verdict_of(&modern("14.00 MiB", "23.69 GiB", "12.19 MiB", "", "", "22.80 GiB", "53.12 MiB"));
    assert!(e.remedies[0].sentence.contains("micro-batch"), "{:?}", e.remedies[0]);
    // Where they hardly exceed the request and much of the card is held outside PyTorch, that is what fills it.
    let e = verdict_of(&modern("130.00 MiB", "7.80 GiB", "33.56 MiB", "", "", "5.91 GiB", "184.00 MiB"));
    assert_eq!(e.verdict, Verdict::Capacity);
    assert!(e.sentence.contains("1.68 GiB of the card is held outside PyTorch"), "{}", e.sentence);
}

/// A smaller request may pass whoever or whatever takes the rest of the card.
#[test]
fn one_large_request_can_be_split_whatever_the_reason() {
    let other = format!("Process 77 has 10.00 GiB memory in use. {}", this("10.29 GiB"));
    let contention = modern("9.00 GiB", "23.68 GiB", "3.38 GiB", &other, "", "9.16 GiB", "544.12 MiB");
    let fragmentation = modern("9.00 GiB", "23.68 GiB", "1.38 GiB", &this("22.29 GiB"), "", "11.86 GiB", "10.00 GiB");
    let decode = "File \"/app/ComfyUI/comfy/sd.py\", line 300, in decode\n    vae.decode(samples)\n";
    for (text, verdict) in [(contention, Verdict::Contention), (fragmentation, Verdict::Fragmentation)] {
        for (around, words) in [
            ("", "Or split the request, which is 38 % of the card"),
            ("vllm/v1/worker/gpu_worker.py\n", "a lower --max-num-batched-tokens"),
            ("sglang/srt/model_runner.py\n", "a lower --chunked-prefill-size"),
            ("/app/ComfyUI/execution.py\n", "Or use smaller images"),
            (decode, "Decode in tiles"),
        ] {
            let advice = |text: &str| verdict_of(text).remedies.iter().filter(|r| r.sentence.contains(words)).count();
            let text = format!("{around}{text}");
            assert_eq!((verdict_of(&text).verdict, advice(&text)), (verdict, 1), "{words}: {:?}", verdict_of(&text).remedies);
            if !words.contains("tiles") {
                assert_eq!(advice(&text.replace("allocate 9.00 GiB", "allocate 4.00 GiB")), 0, "{words}");
            }
        }
    }
}

#[test]
fn other_programs_get_advice_of_their_own() {
    for (text, verdict, words) in [
        (
            "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization (0.95, 45.01 GiB). ",
            Verdict::Contention,
            "--gpu-memory-utilization 0.63",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
            Verdict::Capacity,
            "--max-model-len",
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 18.25G of 15.48G hbm. Exceeded hbm capacity by 2.77G.",
            Verdict::TooLarge,
            "jax.profiler.save_device_memory_profile",
        ),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes (allocated so far: 12,884,901,888 bytes, limit set \
             to: 15,000,000,000 bytes).",
            Verdict::Cap,
            "CUPY_GPU_MEMORY_LIMIT",
        ),
        (
            "Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 6.85 GiB (GPU  0; 15.56 GiB total \
             capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
            Verdict::TooLarge,
            "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1",
        ),
        (
            "NPU out of memory. Tried to allocate 5.03 GiB (NPU 3; 60.96 GiB total capacity; 49.47 GiB already allocated; 49.47 GiB current \
             active; 1.32 GiB free; 57.55 GiB reserved in total by PyTorch)",
            Verdict::Fragmentation,
            "PYTORCH_NPU_ALLOC_CONF",
        ),
        (
            "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.95G of 15.48G \
             hbm. Exceeded hbm capacity by 6.47G.",
            Verdict::TooLarge,
            "more chips",
        ),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller indicates that this is not a \
             failure, but this may mean that there could be performance gains if more memory were available.",
            Verdict::Unknown,
            "Nothing has to be done",
        ),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0.",
            Verdict::Unknown,
            "set_memory_growth",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8148.38 MiB on device 0: cudaMalloc failed: out of memory",
            Verdict::Unknown,
            "--n-gpu-layers",
        ),
        (
            "Error Code 1: Cuda Runtime (out of memory)\nRequested amount of GPU memory (34359738368 bytes) could not be allocated.",
            Verdict::Unknown,
            "--memPoolSize",
        ),
        (
            "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV \
             cache memory (11.64 GiB).",
            Verdict::Capacity,
            "a lower --max-model-len, roughly 95,000 if each token takes the same",
        ),
    ] {
        let e = verdict_of(text);
        assert_eq!(e.verdict, verdict, "{}", e.sentence);
        let all: Vec<&str> = e.remedies.iter().map(|r| r.sentence.as_str()).chain(e.known.iter().map(String::as_str)).collect();
        assert!(all.iter().any(|r| r.contains(words)), "{all:?}");
        // Nothing of PyTorch on NVIDIA for anybody else.
        let is_pytorch = e.dialect.starts_with("pytorch");
        assert!(e.dialect.starts_with("xla") || !all.iter().any(|r| r.contains("jax")), "{all:?}");
        assert!(e.platform != "tpu" || !all.iter().any(|r| r.contains("XLA_PYTHON_CLIENT")), "{all:?}");
        let foreign = ["CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "torch.cuda._", "_record_memory_history"];
        let said = [all.join(" "), e.record.join(" ")].join(" ");
        for name in foreign.iter().filter(|f| !is_pytorch || !f.starts_with('_')) {
            assert!(!said.contains(name), "{name}: {said}");
        }
        assert!(is_pytorch || e.record.is_empty());
    }
}

/// What the sentence says, and advice that is there and that is not: the program around an error decides, and its age.
#[test]
fn the_program_its_age_and_its_limits_decide() {
    for (text, says, has, lacks) in [
        (
            "[ERROR] ggml_extend.hpp:1083 - vae: failed to allocate the compute buffer\nggml_gallocr_reserve_n: failed to allocate ROCm0 buffer of size 6979321856",
            "The compute buffer of 6.50 GiB did not fit",
            "--vae-tiling",
            "--ubatch-size",
        ),
        (
            "[DEBUG] ggml_extend.hpp:61   - ROCm pool[0]: alloc of 1209.60 MiB failed, flushing 935.90 MiB of cached buffers\n[ERROR] ggml_extend.hpp:70   - ROCm error: out of memory",
            "stable-diffusion.cpp could not get 1.18 GiB",
            "--vae-tiling",
            "--n-gpu-layers",
        ),
        (
            "Out of GPU memory trying to allocate 8.016 MiB\nEffective GPU memory usage: 91.54% (14.446 GiB/15.782 GiB)\nCUDA allocator usage: 13.984 GiB (capped at 14.000 GiB)",
            "the limit refused",
            "JULIA_CUDA_HARD_MEMORY_LIMIT",
            "nvidia-smi",
        ),
        (
            "Out of GPU memory trying to allocate 1.500 GiB\nEffective GPU memory usage: 35.10% (8.300 GiB/23.650 GiB)\nMemory pool usage: 7.100 GiB (7.500 GiB reserved)\nMemory limit: soft = 8.000 GiB, hard = 8.000 GiB",
            "holds 7.10 GiB of the 8.00 GiB that it may take",
            "JULIA_CUDA_HARD_MEMORY_LIMIT",
            "nvidia-smi",
        ),
        (
            "HIP out of memory. Tried to allocate 2.11 GiB. GPU 0 has a total capacity of 11.98 GiB of which 1.48 GiB is free. Of the allocated memory 9.97 GiB is allocated by PyTorch, and 176.02 MiB is reserved by PyTorch but unallocated.\n\nGot an OOM, unloading all loaded models.",
            "Live tensors fill the card",
            "--novram",
            "AdamW",
        ),
        (
            "E:onnxruntime:Default, tensorrt_execution_provider.h:50 log] ERROR] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)",
            "TensorRT ran out of memory",
            "trt_max_workspace_size",
            "trtexec",
        ),
        (
            "CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc((void**) &deviceBufferPtr, sizeof(AllocatedElemType) * numElements)",
            "CNTK ran out of memory",
            "Use a smaller batch",
            "arena",
        ),
        (
            "Error out of memory at line 88 in file D:\\a\\bitsandbytes-windows-webui\\csrc\\ops.cu",
            "bitsandbytes ran out of memory",
            "load_in_4bit",
            "WSL",
        ),
        (
            "Error out of memory at line 380 in file /git/bitsandbytes/csrc/pythonInterface.c",
            "bitsandbytes ran out of memory",
            "adamw_bnb_8bit",
            "load_in_4bit",
        ),
        (
            "Mem: 2960.07M, Peak:2960.07M | CUDA error: Out of memory in cuMemAlloc(&device_pointer, size).",
            "it held 2.89 GiB",
            "Texture Limit",
            "PyTorch's cache",
        ),
        (
            "[mindspore/ccsrc/minddata/dataset/util/arena.cc:250] Init] cudaHostAlloc failed, ret[2], out of memory",
            "MindSpore's data pipeline",
            "set_prefetch_size",
            "pin_memory",
        ),
        (
            "Unable to allocate 58.0 GiB for an array with shape (176351, 176460) and data type uint16",
            "58.0 GiB",
            "numpy.memmap",
            "float32",
        ),
        (
            "Unable to allocate 58.0 GiB for an array with shape (88175, 88230) and data type float64",
            "58.0 GiB",
            "numpy.float32",
            "xyz",
        ),
        (
            "2019-06-14 11:50:17.382457: E tensorflow/stream_executor/cuda/cuda_dnn.cc:334] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
            "TensorFlow ran out of memory",
            "tf.ConfigProto",
            "mixed_float16",
        ),
        (
            "I tensorflow/stream_executor/cuda/cuda_driver.cc:733] failed to allocate 8.41G (9029127168 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            "asks for less and goes on",
            "Use a smaller batch",
            "Nothing has to be done",
        ),
        (
            "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory\nggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 8753520640",
            "8.15 GiB was requested in one buffer, more than the Vulkan driver allows",
            "--n-gpu-layers",
            "xyz",
        ),
        (
            "CUDA out of memory. Tried to allocate 1.63 GiB (GPU 0; 44.56 GiB total capacity; 27.91 GiB already allocated; 565.31 MiB free; 27.93 GiB reserved in total by PyTorch)",
            "very likely by other processes",
            "fuser",
            "AdamW",
        ),
    ] {
        let e = verdict_of(text);
        assert!(e.sentence.contains(says), "{}", e.sentence);
        let all: Vec<&str> = e.remedies.iter().map(|r| r.sentence.as_str()).chain(e.record.iter().map(String::as_str)).collect();
        assert!(all.iter().any(|r| r.contains(has)) && !all.iter().any(|r| r.contains(lacks)), "{has}, {lacks}: {all:#?}");
    }
}

#[test]
fn settings_that_change_nothing_are_not_advised() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 17.00 GiB is reserved by PyTorch but unallocated. expandable_segments is enabled. If instead the process",
    );
    assert_eq!(e.verdict, Verdict::Fragmentation);
    assert!(e.remedies.iter().all(|r| !r.sentence.contains("max_split_size_mb")), "{:?}", e.remedies);
    let pool = verdict_of(
        "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 14.95 GiB\nRequested               : 1.00 GiB\nDevice limit            : 15.77 GiB\nFree (according to CUDA): 12.94 MiB\n",
    );
    assert!(pool.record[0].contains("keeps no history") && !pool.sentence.contains("counting the holes"), "{}", pool.sentence);
}

#[test]
fn comfy_ui_and_warnings_are_told_as_what_they_are() {
    let e = verdict_of("torch.OutOfMemoryError: Allocation on device \nGot an OOM, unloading all loaded models.");
    assert!(e.sentence.contains("first words") && e.remedies.iter().any(|r| r.sentence.contains("--lowvram")), "{}", e.sentence);
    assert!(e.record[0].contains("--disable-cuda-malloc"));
    let warning = |asked: &str| {
        format!(
            "[W903 13:41:51.709566905 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate {asked} bytes (free: 3136967680, total: 33668857856)."
        )
    };
    let e = verdict_of(&warning("20971520000"));
    assert_eq!(e.verdict, Verdict::Unknown);
    assert!(e.sentence.contains("no failure") && e.remedies[0].sentence.contains("Nothing has to be done"), "{}", e.sentence);
    assert!(e.rounding.is_empty() && e.contradictions.is_empty(), "exact bytes");
    assert_eq!(verdict_of(&warning("42949672960")).verdict, Verdict::TooLarge);
}

#[test]
fn the_program_and_the_system_around_a_text_decide_the_advice() {
    let holes = modern("1.70 GiB", "6.00 GiB", "0 bytes", "", "", "2.93 GiB", "2.30 GiB");
    let all = |text: &str| verdict_of(text).remedies.iter().map(|r| r.sentence.clone()).collect::<Vec<_>>().join("\n");
    assert!(all(&holes).contains("expandable_segments:True"));
    assert!(
        verdict_of(&holes)
            .sentence
            .starts_with("PyTorch has 2.30 GiB free inside its own memory, but scattered; no single gap fits 1.70 GiB")
    );
    let windows = all(&format!("  File \"C:\\Users\\a\\train.py\", line 3\n{holes}"));
    assert!(!windows.contains("expandable") && windows.contains("max_split_size_mb"), "{windows}");
    let old = "CUDA out of memory. Tried to allocate 300.00 MiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; 10.00 MiB free; 7.00 GiB reserved in total by PyTorch)";
    assert!(!all(old).contains("max_split_size_mb"), "1.4 to 1.9 has none: {}", all(old));
    let full = modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "21.90 GiB", "100.00 MiB");
    assert!(all(&format!("File \"/app/vllm/worker.py\"\n{full}")).contains("--gpu-memory-utilization"));
    for (text, dialect) in [
        (
            "cuda_blas.cc:372] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED at tensorflow/stream_executor",
            "tensorflow-bfc",
        ),
        ("cupy.cuda.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory", "cupy"),
        ("llama runner process has terminated: CUDA error: out of memory\n  in function alloc at ggml-cuda.cu:341", "llama.cpp"),
        ("Killed", "killed"),
    ] {
        let e = verdict_of(text);
        assert_eq!(e.writer.contains("Ollama"), text.contains("llama runner"), "{}", e.writer);
        let said = [e.sentence.clone(), all(text), e.record.join("\n")].join("\n");
        assert_eq!(e.dialect, dialect, "{said}");
        for foreign in ["torch.", "PYTORCH_", "expandable"] {
            assert!(!said.contains(foreign), "{foreign}: {said}");
        }
    }
}

#[test]
fn a_server_is_told_its_own_settings_first() {
    let others =
        "Process 2101 has 390.00 MiB memory in use. Including non-PyTorch memory, this process has 23.18 GiB memory in use. ";
    let text = modern("350.00 MiB", "23.68 GiB", "112.81 MiB", others, "", "22.74 GiB", "11.01 MiB");
    assert_eq!(verdict_of(&text).verdict, Verdict::Contention);
    let e = verdict_of(&format!("  File \"vllm/v1/worker/gpu_model_runner.py\", in _dummy_run\n{text}"));
    assert_eq!(e.verdict, Verdict::Capacity, "{}", e.sentence);
    assert!(e.remedies[0].sentence.contains("--gpu-memory-utilization"), "{:?}", e.remedies);
    let e = verdict_of(&format!("  File \"vllm/model_executor/layers/linear.py\", line 187, in create_weights\n{text}"));
    assert!(e.remedies[0].sentence.contains("--tensor-parallel-size"), "{:?}", e.remedies);
}

#[test]
fn a_request_that_the_card_had_room_for_is_the_machines_matter_first() {
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 1.20 GiB already allocated; 3.03 GiB free; 1.30 GiB reserved in total by PyTorch)";
    let advice = |text: &str| verdict_of(text).remedies.iter().map(|r| r.sentence.clone()).collect::<Vec<_>>();
    let small = advice(old);
    assert!(small[0].contains("memory and swap") && small[0].contains("paging file"), "{small:?}");
    assert!(small.iter().any(|line| line.contains("MPS")) && !small.iter().any(|line| line.contains("MIG")), "{small:?}");
    assert!(advice(&old.replace("6.00 GiB", "23.65 GiB")).iter().any(|line| line.contains("MIG")));
    let windows = advice(&format!("  File \"C:\\Users\\a\\train.py\", line 3\n{old}"));
    assert!(windows[0].starts_with("Give Windows a larger paging file"), "{windows:?}");
}

#[test]
fn what_lies_beyond_the_card_is_in_the_machines_memory_whatever_is_said() {
    let e = verdict_of(
        "RuntimeError: CUDA out of memory. Tried to allocate 17.20 GiB (GPU 0; 8.00 GiB total capacity; 18.10 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.verdict, Verdict::TooLarge);
    assert!(e.sentence.contains("PyTorch holds 19.15 GiB, more than the card's 8.00 GiB: Windows' driver"), "{}", e.sentence);
    let e = verdict_of(
        "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU 0; 8.00 GiB total capacity; 18.10 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.sentence.matches("Windows' driver").count(), 1, "{}", e.sentence);
}

#[test]
fn the_share_of_this_run_is_named_and_a_small_one_is_raised_first() {
    let error = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
    let of = |setting: &str| {
        verdict_of(&format!("INFO engine args: {setting}, seed=0\n{}{error}", "INFO loads\n".repeat(900))).remedies
    };
    for setting in ["gpu_memory_utilization=0.70", "'gpu_memory_utilization': 0.70", "--gpu-memory-utilization 0.70"] {
        assert!(of(setting)[0].sentence.contains("this run's is 0.70"), "{:?}", of(setting));
    }
    let large = of("gpu_memory_utilization=0.95");
    assert!(large.iter().all(|r| !r.sentence.contains("share")), "there is little above 0.95: {large:?}");
    assert!(of("x=1").iter().any(|r| r.sentence.contains("(the default is 0.9")));
}

#[test]
fn tensorflow_1_gets_nothing_of_2_and_one_image_no_smaller_batch() {
    let error = "OP_REQUIRES failed at conv_ops.cc:698 : Resource exhausted: OOM when allocating tensor with shape[1,5095,3729,3] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
    let all = |text: &str| verdict_of(text).remedies.iter().map(|r| r.sentence.clone()).collect::<Vec<_>>().join("\n");
    let new = all(error);
    assert!(new.starts_with("Use a smaller image") && !new.contains("smaller batch"), "{new}");
    assert!(all(&error.replace("[1,", "[8,")).starts_with("Use a smaller batch"));
    assert!(new.contains("cuda_malloc_async") && new.contains("set_global_policy"), "{new}");
    let old = all(&format!("{error}\n{}  File \"/usr/lib/python3.5/site-packages/x.py\", line 3", "Chunk at 0x7f\n".repeat(900)));
    assert!(!old.contains("cuda_malloc_async") && !old.contains("set_global_policy") && old.contains("tf.ConfigProto"), "{old}");
}

#[test]
fn a_context_is_not_searched_for_first() {
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 100.00 MiB (GPU 0; 11.17 GiB total capacity; 10.80 GiB already allocated; 44.31 MiB free; 10.84 GiB reserved in total by PyTorch)";
    let e = verdict_of(old);
    let at = |words: &str| e.remedies.iter().position(|r| r.sentence.contains(words));
    assert!(at("micro-batch") == Some(0) && at("Find what takes").is_none(), "{:?}", e.remedies);
    assert!(at("own context, which stays") > at("micro-batch"), "{:?}", e.remedies);
}

#[test]
fn a_request_of_most_of_the_card_is_split_and_a_vae_decodes_in_tiles() {
    let text = modern("22.78 GiB", "31.47 GiB", "6.05 GiB", &this("25.00 GiB"), "", "24.10 GiB", "100.00 MiB");
    let e = verdict_of(&text);
    assert_eq!(e.verdict, Verdict::Capacity);
    assert!(e.remedies[0].sentence.starts_with("Split the request"), "{:?}", e.remedies);
    let frame = "  File \"/app/ComfyUI/nodes.py\", line 295, in decode\n    images = vae.decode(latent)\n";
    for text in [format!("{frame}{text}"), format!("{frame}torch.OutOfMemoryError: Allocation on device \nGot an OOM")] {
        let all = verdict_of(&text).remedies;
        assert!(all[0].sentence.contains("VAE Decode (Tiled)") && !all[1].sentence.contains("Tiled"), "{all:?}");
    }
}

/// What the text around shows decides the words: the vendor's tools, Python, training, the share that is set.
#[test]
fn advice_fits_the_text_around() {
    let all = |text: &str| verdict_of(text).remedies.iter().map(|r| r.sentence.clone()).collect::<Vec<_>>().join("\n");
    let start = "is less than desired GPU memory utilization (0.95, 22.79 GiB).";
    let free = format!("ValueError: Free memory on device cuda:0 (1.33/23.98 GiB) on startup {start}");
    let xpu = free.replace("cuda:0", "xpu:0");
    for (text, tool) in [(format!("On ROCm/HIP it fails:\n{free}"), "rocm-smi"), (xpu, "xpu-smi"), (free, "nvidia-smi")] {
        assert!(all(&text).contains(tool), "{text}: {}", all(&text));
    }
    assert!(!all("Killed").contains("DataLoader") && all("$ python train.py\nKilled").contains("DataLoader"));
    let full = modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "21.90 GiB", "100.00 MiB");
    assert!(!all(&format!("img = pipe(prompt)  # diffusion\n{full}")).contains("gradients"));
    assert!(all(&format!("python train.py --model diffusion\n{full}")).contains("gradients"));
    assert!(all("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED").contains("smaller batch"));
    let tokens = "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (81536).";
    assert!(!all(&format!("vllm serve x --gpu_memory_utilization=0.98\n{tokens}")).contains("larger share"));
    assert!(all("./darknet detector train\nCUDA Error: out of memory").contains("subdivisions"));
}
