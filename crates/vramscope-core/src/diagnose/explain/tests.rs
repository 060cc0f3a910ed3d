//! What is said of a message: its cause, its figures and their limits, and what to do. Most cases are rows of tables in `tests`.

use super::*;
use crate::formats::oom_message::entries::entries;
use crate::formats::oom_message::parse;

const GIB: u64 = 1 << 30;

fn told(text: &str) -> Explanation {
    explain(&parse(text).unwrap_or_else(|| panic!("no message: {text}")))
}

/// PyTorch's message: request, capacity, free, processes (`77 12.00 GiB, this 10.50 GiB`), limit, live tensors, holes.
fn modern(figures: [&str; 7]) -> String {
    let [asked, total, free, processes, limit, live, holes] = figures;
    let of_process = |process: &str| match process.split_once(' ') {
        Some(("this", size)) => format!("Including non-PyTorch memory, this process has {size} memory in use. "),
        Some((pid, size)) => format!("Process {pid} has {size} memory in use. "),
        None => String::new(),
    };
    let processes: String = processes.split(", ").map(of_process).collect();
    let limit = if limit.is_empty() { String::new() } else { format!("{limit} allowed; ") };
    format!(
        "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of {total} of which {free} is free. {processes}{limit}Of the allocated memory {live} is allocated by PyTorch, and {holes} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#x)"
    )
}

/// The same of PyTorch 1.4 to 1.9, with what is reserved in the place of the holes.
fn old([asked, total, free, _, _, live, reserved]: [&str; 7]) -> String {
    format!(
        "RuntimeError: CUDA out of memory. Tried to allocate {asked} (GPU 0; {total} total capacity; {live} already allocated; {free} free; {reserved} reserved in total by PyTorch)"
    )
}

/// Every line of an answer but its sentence.
fn lines(e: &Explanation) -> String {
    let remedies = e.remedies.iter().map(|r| r.sentence.as_str());
    let rest = [&e.known, &e.not_known, &e.record, &e.contradictions].into_iter().flatten().map(String::as_str);
    remedies.chain(rest).chain(e.doubt).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_case_is_told_as_expected() {
    let mut wrong = Vec::new();
    let tables = [include_str!("tests/cases.txt"), include_str!("tests/programs.txt")];
    for case in entries(&tables).iter().filter(|case| !case.head.starts_with('$')) {
        let figures = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>().try_into().unwrap();
        let of_line = |&(mark, line): &(&'static str, &'static str)| match mark {
            ">" => Some(line.to_owned()),
            "modern" => Some(modern(figures(line))),
            "old" => Some(old(figures(line))),
            _ => None,
        };
        let text = case.lines.iter().filter_map(of_line).collect::<Vec<_>>().join("\n");
        let (cause, dialect) = case.head.split_once(" by ").unwrap_or((case.head, ""));
        let e = told(&text);
        let (all, first) = (lines(&e), e.remedies.first().map_or("", |r| r.sentence.as_str()));
        let is_right = |&(mark, words): &(&str, &str)| match mark {
            "says" => e.sentence.contains(words),
            "unsaid" => !e.sentence.contains(words),
            "first" => first.contains(words),
            "has" => all.contains(words),
            "lacks" => !all.contains(words),
            _ => [">", "modern", "old"].contains(&mark),
        };
        let is_cause = ["*", e.cause].contains(&cause.trim_end_matches(['!', '?'])) && e.dialect.starts_with(dialect);
        let is_sure = if e.certain { !cause.ends_with('?') } else { !cause.ends_with('!') };
        let failed: Vec<_> = case.lines.iter().filter(|line| !is_right(line)).collect();
        // Nothing of PyTorch on NVIDIA for anybody else.
        let is_pytorch = parse(&text).unwrap().dialect.writer.neighbour().is_none();
        let foreign: &[&str] = match e.platform {
            _ if !is_pytorch => &["PYTORCH_CUDA_ALLOC_CONF", "torch.cuda._", "_record_memory_history"],
            "xpu" | "npu" => &["CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "torch.cuda._", "nvidia-smi"],
            "tpu" => &["XLA_PYTHON_CLIENT"],
            _ => &[],
        };
        let foreign: Vec<_> = foreign.iter().filter(|words| all.contains(**words)).collect();
        if !is_cause || !is_sure || !failed.is_empty() || !foreign.is_empty() || e.remedies.is_empty() {
            wrong.push(format!(
                "{text}\n{} is {} {}, {}, {failed:?} {foreign:?}\n{}\n{all}\n",
                case.head, e.dialect, e.cause, e.certain, e.sentence
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn parts_sum_to_the_card_or_the_limit() {
    let sum = |parts: &[Part]| parts.iter().map(|p| p.bytes).sum::<u64>();
    let e = told(&modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", "this 22.50 GiB", "", "18.00 GiB", "4.00 GiB"]));
    assert_eq!(sum(&e.parts), e.figures["capacity_bytes"]);
    let json = serde_json::to_value(&e).unwrap();
    assert_eq!((&json["verdict"], &json["figures"]["requested_bytes"]), (&"fragmentation".into(), &(2 * GIB).into()));
    assert!(json["remedies"][0].is_string());
    let e = told(&modern(["128.00 MiB", "139.80 GiB", "131.92 GiB", "this 2.25 GiB", "1.71 GiB", "1.53 GiB", "62.40 MiB"]));
    assert_eq!((e.verdict, e.certain, sum(&e.limit_parts)), (Verdict::Cap, true, e.figures["limit_bytes"]));
    assert!(e.limit_parts.iter().any(|p| p.name == "room_under_limit"));
    let e = told(&modern(["1.00 GiB", "15.91 GiB", "100.00 MiB", "", "10.00 GiB", "9.10 GiB", "300.00 MiB"]));
    assert!(e.limit_parts.is_empty() && !e.parts.is_empty(), "the card refused too");
    let e = told(&modern(["1.00 GiB", "23.65 GiB", "1024.00 MiB", "this 22.50 GiB", "", "0.50 GiB", "21.00 GiB"]));
    assert_eq!(e.printed("live_bytes").as_deref(), Some("0.50 GiB"));
    let cut = "CUDA out of memory. Tried to allocate 4.50 GiB. GPU 0 has a total capacity of 119.61 GiB of which 2.79 GiB is free. this process has 112.40 GiB memory in use.";
    assert!(told(cut).parts.iter().any(|p| p.name == "this_process"));
    // Whatever a message says, its bar is the card: no part, nor all together, exceed it.
    let sizes = ["0 bytes", "19.25 MiB", "1.00 GiB", "12.00 GiB", "23.60 GiB", "60.00 GiB"];
    for [free, live, holes, listed] in sizes
        .into_iter()
        .flat_map(|a| sizes.into_iter().flat_map(move |b| sizes.into_iter().flat_map(move |c| sizes.map(|d| [a, b, c, d]))))
    {
        for processes in ["", "this {}", "7 {}", "7 {}, 8 {}", "7 {}, this {}"] {
            let processes = processes.replace("{}", listed);
            let e = told(&modern(["2.00 GiB", "23.65 GiB", free, &processes, "", live, holes]));
            assert!([0, e.figures["capacity_bytes"]].contains(&sum(&e.parts)), "{:?}", e.parts);
        }
    }
}

/// What a text does not tell is not 0: a message that was cut anywhere is never given the verdict of another.
#[test]
fn a_figure_that_was_not_read_is_no_zero() {
    for (whole, verdict) in [
        (modern(["1.99 GiB", "23.56 GiB", "1.23 GiB", "this 22.27 GiB", "", "14.73 GiB", "6.39 GiB"]), Verdict::Fragmentation),
        (modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", "this 22.50 GiB", "", "21.90 GiB", "100.00 MiB"]), Verdict::Capacity),
        (
            modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", "77 12.00 GiB, this 10.50 GiB", "", "9.90 GiB", "100.00 MiB"]),
            Verdict::Contention,
        ),
        (modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", "this 22.50 GiB", "", "15.00 GiB", "100.00 MiB"]), Verdict::NonPytorch),
        (modern(["2.00 GiB", "23.65 GiB", "12.00 GiB", "this 10.50 GiB", "10.50 GiB", "9.90 GiB", "100.00 MiB"]), Verdict::Cap),
        (old(["1.40 GiB", "8.00 GiB", "10.00 MiB", "", "", "4.21 GiB", "7.50 GiB"]), Verdict::Fragmentation),
    ] {
        assert_eq!(told(&whole).verdict, verdict);
        for end in 60..whole.len() {
            let e = told(&whole[..end]);
            assert!([verdict, Verdict::Unknown].contains(&e.verdict), "{end}: {}: {}", whole[..end].to_owned(), e.sentence);
            let sum: u64 = e.parts.iter().map(|p| p.bytes).sum();
            assert!(sum == 0 || sum == e.figures["capacity_bytes"]);
        }
    }
}

/// The vendor's words, and the variable that the message names.
#[test]
fn advice_is_in_the_words_of_the_platform() {
    for (processes, live, holes) in [
        ("this 22.50 GiB", "18.00 GiB", "4.00 GiB"),
        ("this 22.50 GiB", "21.90 GiB", "100.00 MiB"),
        ("this 22.50 GiB", "15.00 GiB", "100.00 MiB"),
        ("77 12.00 GiB, this 10.50 GiB", "9.90 GiB", "100.00 MiB"),
    ] {
        let text = modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", processes, "", live, holes]);
        for (platform, foreign) in
            [("HIP", ["nvidia", "CUDA_", "xpu", "PYTORCH_CUDA"]), ("XPU", ["nvidia", "CUDA_", "torch.cuda", "autocast(\"cuda\""])]
        {
            let named = text.replace("PYTORCH_CUDA", &format!("PYTORCH_{platform}"));
            let mut e = told(&named.replace("CUDA out", &format!("{platform} out")));
            assert_eq!(e.platform, platform.to_lowercase());
            e.record.clear();
            assert!(!foreign.iter().any(|word| lines(&e).contains(word)), "{platform}: {}", lines(&e));
        }
    }
    let text = modern(["2.00 GiB", "23.65 GiB", "1.05 GiB", "this 22.50 GiB", "", "18.00 GiB", "4.00 GiB"]);
    for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"] {
        let e = told(&text.replace("PYTORCH_CUDA_ALLOC_CONF", name));
        assert_eq!(e.remedies[0].setting, Some(format!("{name}=expandable_segments:True")));
    }
}

/// A smaller request may pass whoever or whatever takes the rest of the card.
#[test]
fn one_large_request_can_be_split_whatever_the_reason() {
    let other = "77 10.00 GiB, this 10.29 GiB";
    let contention = modern(["9.00 GiB", "23.68 GiB", "3.38 GiB", other, "", "9.16 GiB", "544.12 MiB"]);
    let fragmentation = modern(["9.00 GiB", "23.68 GiB", "1.38 GiB", "this 22.29 GiB", "", "11.86 GiB", "10.00 GiB"]);
    let decode = "File \"/app/ComfyUI/comfy/sd.py\", line 300, in decode\n    vae.decode(samples)\n";
    for (text, verdict) in [(contention, Verdict::Contention), (fragmentation, Verdict::Fragmentation)] {
        for (around, words) in [
            ("", "Or split the request, which is 38 % of the card"),
            ("vllm/v1/worker/gpu_worker.py\n", "a lower --max-num-batched-tokens"),
            ("sglang/srt/model_runner.py\n", "a lower --chunked-prefill-size"),
            ("/app/ComfyUI/execution.py\n", "Or use smaller images"),
            (decode, "Decode in tiles"),
        ] {
            let advice = |text: &str| told(text).remedies.iter().filter(|r| r.sentence.contains(words)).count();
            let text = format!("{around}{text}");
            assert_eq!((told(&text).verdict, advice(&text)), (verdict, 1), "{words}: {:?}", told(&text).remedies);
            let small = text.replace("allocate 9.00 GiB", "allocate 4.00 GiB");
            assert!(words.contains("tiles") || advice(&small) == 0, "{words}");
        }
    }
}

/// A server's log, far above its error.
#[test]
fn what_a_log_tells_far_away_is_read() {
    let error = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
    let traceback = "  File \"llm_engine.py\", line 7, in step\n    self.run(config)\n".repeat(30);
    let e = told(&format!(
        "worker.py:267] the current vLLM instance can use total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) = 5.60GiB\nworker.py:267] \
         model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the memory \
         reserved for KV Cache is -1.05GiB.\n{traceback}{error}"
    ));
    assert_eq!((e.figures["weights_bytes"], e.figures["short_bytes"]), (5_583_457_485, 1_127_428_915));
    assert!(e.sentence.contains("the weights take 5.20 GiB") && e.sentence.ends_with("1.05 GiB is missing."), "{}", e.sentence);
    let of =
        |setting: &str| told(&format!("INFO engine args: {setting}, seed=0\n{}{error}", "INFO loads\n".repeat(900))).remedies;
    for setting in ["gpu_memory_utilization=0.70", "'gpu_memory_utilization': 0.70", "--gpu-memory-utilization 0.70"] {
        assert!(of(setting)[0].sentence.contains("this run's is 0.70"), "{:?}", of(setting));
    }
    let large = of("gpu_memory_utilization=0.95");
    assert!(large.iter().all(|r| !r.sentence.contains("share")), "there is little above 0.95: {large:?}");
    assert!(of("x=1").iter().any(|r| r.sentence.contains("(the default is 0.9")));
}

/// No pool of its size would ever hold it, TensorFlow 1 gets nothing of 2, and one image no smaller batch.
#[test]
fn tensors_of_tensorflow_are_told_by_their_shapes() {
    let stats = "Limit: 4294967296\nInUse: 2147483648\nMaxInUse: 3221225472\n";
    let typed = " and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
    for (kind, certain) in [(typed, true), ("", false)] {
        let tensor = |shape: &str| {
            let error = format!("tensorflow.ResourceExhaustedError: OOM when allocating tensor with shape[{shape}]{kind}");
            told(&format!("tensorflow/core/common_runtime/bfc_allocator.cc:1] Stats:\n{stats}{error}"))
        };
        let large = tensor("1048576,2048");
        assert_eq!((large.verdict, large.certain), (Verdict::TooLarge, certain), "{}", large.sentence);
        assert!(large.sentence.contains("this one tensor is larger than the whole pool"), "{}", large.sentence);
        assert!(!tensor("1024,1024").sentence.contains("larger than"), "{kind}");
    }
    let error = format!("Resource exhausted: OOM when allocating tensor with shape[1,5095,3729,3]{typed}");
    let all = |text: &str| lines(&told(text));
    let new = all(&error);
    assert!(new.starts_with("Use a smaller image") && !new.contains("smaller batch"), "{new}");
    assert!(all(&error.replace("[1,", "[8,")).starts_with("Use a smaller batch"));
    assert!(new.contains("cuda_malloc_async") && new.contains("set_global_policy"), "{new}");
    let old = all(&format!("{error}\n{}  File \"/usr/lib/python3.5/site-packages/x.py\", line 3", "Chunk at 0x7f\n".repeat(900)));
    assert!(!old.contains("cuda_malloc_async") && !old.contains("set_global_policy") && old.contains("tf.ConfigProto"), "{old}");
}
