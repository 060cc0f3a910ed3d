//! What is said of a message: its cause, its figures and their limits.

mod advice;
mod contradictions;

use super::*;
use crate::formats::oom_message::parse;

fn verdict_of(text: &str) -> Explanation {
    explain(&parse(text).unwrap())
}

fn modern(asked: &str, total: &str, free: &str, processes: &str, limit: &str, live: &str, holes: &str) -> String {
    format!(
        "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of {total} of which {free} is free. {processes}{limit}Of the allocated memory {live} is allocated by PyTorch, and {holes} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#x)"
    )
}

fn this(size: &str) -> String {
    format!("Including non-PyTorch memory, this process has {size} memory in use. ")
}

fn process(pid: u32, size: &str) -> String {
    format!("Process {pid} has {size} memory in use. ")
}

#[test]
fn each_verdict_has_a_message_that_forces_it() {
    let own = this("22.50 GiB");
    for (text, verdict) in [
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &own, "", "18.00 GiB", "4.00 GiB"), Verdict::Fragmentation),
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &own, "", "21.90 GiB", "100.00 MiB"), Verdict::Capacity),
        (
            modern("2.00 GiB", "23.65 GiB", "12.00 GiB", &this("10.50 GiB"), "10.50 GiB allowed; ", "9.90 GiB", "100.00 MiB"),
            Verdict::Cap,
        ),
        (
            modern(
                "2.00 GiB",
                "23.65 GiB",
                "1.05 GiB",
                &format!("Process 77 has 12.00 GiB memory in use. {}", this("10.50 GiB")),
                "",
                "9.90 GiB",
                "100.00 MiB",
            ),
            Verdict::Contention,
        ),
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &own, "", "15.00 GiB", "100.00 MiB"), Verdict::NonPytorch),
        (modern("40.00 GiB", "23.65 GiB", "1.05 GiB", &own, "", "15.00 GiB", "100.00 MiB"), Verdict::TooLarge),
        (modern("2.00 GiB", "23.65 GiB", "9.05 GiB", &this("14.50 GiB"), "", "12.00 GiB", "100.00 MiB"), Verdict::Unknown),
    ] {
        let e = verdict_of(&text);
        assert_eq!(e.verdict, verdict, "{}", e.sentence);
        assert!(e.certain, "{}", e.sentence);
        assert!(!e.remedies.is_empty());
    }
}

#[test]
fn rounding_that_could_turn_the_verdict_is_said() {
    let e = verdict_of(&modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "18.00 GiB", "972.80 MiB"));
    assert_eq!(e.verdict, Verdict::Fragmentation);
    assert!(!e.certain);
}

#[test]
fn a_cap_that_holes_would_have_met_is_fragmentation() {
    let text = "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 133.79 GiB is free. 1.61 GiB allowed; Of the allocated memory 990.02 MiB is allocated by PyTorch, and 609.98 MiB is reserved by PyTorch but unallocated.";
    let e = verdict_of(text);
    assert_eq!(e.verdict, Verdict::Fragmentation);
    assert!(e.sentence.contains("609.98 MiB"), "{}", e.sentence);
    assert!(e.remedies[0].setting.as_deref().is_some_and(|s| s.ends_with("expandable_segments:True")));
}

#[test]
fn what_users_quote() {
    let e = verdict_of(
        "RuntimeError: CUDA out of memory. Tried to allocate 1.40 GiB (GPU 0; 8.00 GiB total capacity; 4.21 GiB already allocated; 0 bytes free; 5.50 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.verdict, Verdict::Unknown);
    assert_eq!(e.figures["reserved_bytes"], 5_905_580_032);
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 886.00 MiB (GPU 0; 4.00 GiB total capacity; 1.94 GiB already allocated; 267.70 MiB free; 2.10 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.verdict, Verdict::Capacity);
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 3.95 GiB total capacity; 3.10 GiB already allocated; 15.69 MiB free; 3.19 GiB reserved in total by PyTorch)",
    );
    assert_eq!((e.verdict, e.certain), (Verdict::Capacity, false));
    assert!(e.sentence.contains("nearly full") && e.sentence.contains("92.16 MiB lies scattered"), "{}", e.sentence);
    assert!(e.known[0].contains("between 1 and 10 MiB"));
}

#[test]
fn parts_sum_to_the_card() {
    let e = verdict_of(&modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "18.00 GiB", "4.00 GiB"));
    let sum: u64 = e.parts.iter().map(|p| p.bytes).sum();
    assert_eq!(sum, e.figures["capacity_bytes"]);
    let json = serde_json::to_value(&e).unwrap();
    assert_eq!(json["verdict"], "fragmentation");
    assert!(json["remedies"][0].is_string());
    assert_eq!(json["figures"]["requested_bytes"], 2_147_483_648u64);
}

#[test]
fn messages_without_figures_say_so() {
    for text in
        ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", "CUDA out of memory."]
    {
        let e = verdict_of(text);
        assert_eq!(e.verdict, Verdict::Unknown);
        assert!(e.sentence.contains("no figures"));
    }
    let e = verdict_of("DefaultCPUAllocator: can't allocate memory: you tried to allocate 94489280512 bytes.");
    assert!(e.sentence.contains("Host memory"));
    let e = verdict_of(
        "MPS backend out of memory (MPS allocated: 16.50 GB, other allocations: 1.38 GB, max allowed: 18.13 GB). Tried to allocate 512.00 MB on private pool.",
    );
    assert_eq!(e.verdict, Verdict::Cap);
}

#[test]
fn a_process_in_a_container_is_recognised_under_its_number_outside() {
    let text = modern(
        "896.00 MiB",
        "79.15 GiB",
        "19.25 MiB",
        "Process 213456 has 79.12 GiB memory in use. ",
        "",
        "76.30 GiB",
        "2.15 GiB",
    );
    let e = verdict_of(&text);
    assert_eq!((e.verdict, e.certain), (Verdict::Capacity, false), "2.7 % of holes are no fragmentation: {}", e.sentence);
    assert!(e.contradictions.is_empty(), "{:?}", e.contradictions);
    assert_eq!((e.processes[0].pid, e.processes[0].is_this), (Some(213_456), true));
    assert!(!e.figures.contains_key("other_processes_bytes"));
    let outside = e.figures["outside_pytorch_bytes"];
    assert!(outside.abs_diff(GIB * 67 / 100) < GIB / 50, "79.12 - 78.45 GiB, not {outside}");
    assert_eq!(e.parts.iter().map(|p| p.bytes).sum::<u64>(), e.figures["capacity_bytes"]);
    // Beside what the card has room for, the listed one is another.
    let text =
        modern("2.00 GiB", "23.65 GiB", "1.05 GiB", "Process 77 has 12.00 GiB memory in use. ", "", "9.90 GiB", "100.00 MiB");
    let e = verdict_of(&text);
    assert_eq!((e.verdict, e.processes[0].is_this), (Verdict::Contention, false));
}

const GIB: u64 = 1 << 30;

/// Whatever a message says, its bar is the card: no part, nor all together, exceed it.
#[test]
fn parts_never_exceed_the_card() {
    let sizes = ["0 bytes", "19.25 MiB", "1.00 GiB", "12.00 GiB", "23.60 GiB", "60.00 GiB"];
    for free in sizes {
        for live in sizes {
            for holes in sizes {
                for listed in sizes {
                    let own = this(listed);
                    let other = format!("Process 7 has {listed} memory in use. ");
                    for processes in
                        [String::new(), own.clone(), other.clone(), format!("{other}{other}"), format!("{other}{own}")]
                    {
                        let e = verdict_of(&modern("2.00 GiB", "23.65 GiB", free, &processes, "", live, holes));
                        let sum: u64 = e.parts.iter().map(|p| p.bytes).sum();
                        assert!(sum == 0 || sum == e.figures["capacity_bytes"], "{sum}: {:?}", e.parts);
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_outside_pytorch_is_named_where_it_decides() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity; 5.25 GiB already allocated; 1.00 GiB free; 5.50 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.verdict, Verdict::Capacity);
    assert!(e.sentence.contains("1.29 GiB is outside PyTorch"), "{}", e.sentence);
    assert!(e.sentence.contains("would fit without that"), "{}", e.sentence);
    assert!(e.figures["unattributed_bytes"].abs_diff(GIB * 129 / 100) < GIB / 100);
    assert!(e.remedies[0].sentence.contains("1.29 GiB outside PyTorch"), "{}", e.remedies[0].sentence);
    assert_eq!(e.remedies[0].setting.as_deref(), Some("nvidia-smi"));
}

#[test]
fn figures_keep_the_unit_of_the_message() {
    let e = verdict_of(&modern("1.00 GiB", "23.65 GiB", "1024.00 MiB", &this("22.50 GiB"), "", "0.50 GiB", "21.00 GiB"));
    assert!(e.sentence.contains("1.00 GiB was requested and 1024.00 MiB"), "{}", e.sentence);
    assert_eq!(e.printed("live_bytes").as_deref(), Some("0.50 GiB"));
}

/// What is cached in the driver's pool is in none of its figures.
#[test]
fn the_driver_s_pool_is_not_taken_for_others() {
    let text = |allocated: &str, requested: &str, free: &str, limit: &str| {
        format!(
            "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : {allocated}\nRequested               : \
             {requested}\nDevice limit            : 23.69 GiB\nFree (according to CUDA): {free}\nPyTorch limit (set by user-supplied memory \
             fraction)\n                        : {limit}"
        )
    };
    let e = verdict_of(&text("20.41 GiB", "1.50 GiB", "14.25 MiB", "17179869184.00 GiB"));
    assert_eq!(e.verdict, Verdict::Unknown);
    assert!(e.sentence.contains("pool keeps") && !e.sentence.contains("held outside PyTorch"), "{}", e.sentence);
    assert!(e.not_known[0].contains("pool keeps"), "{:?}", e.not_known);
    assert!(!e.remedies.iter().any(|r| r.sentence.contains("expandable_segments")), "{:?}", e.remedies);
    let e = verdict_of(&text("3.10 GiB", "2.00 GiB", "18.25 GiB", "4.00 GiB"));
    assert_eq!((e.verdict, e.certain), (Verdict::Cap, true), "{}", e.sentence);
}

/// The limit is named where the card refused too, and is what the figures are drawn to where it alone did.
#[test]
fn the_limit_is_named_and_drawn() {
    let e = verdict_of(
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.91 GiB of which 100.00 MiB is \
         free. 10.00 GiB allowed; Of the allocated memory 9.10 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated. \
         Please use `empty_cache` to release all unoccupied cached memory.",
    );
    assert!(e.sentence.contains("Its limit of 10.00 GiB leaves 621.60 MiB"), "{}", e.sentence);
    assert!(e.limit_parts.is_empty() && !e.parts.is_empty());
    let e = verdict_of(&modern(
        "128.00 MiB",
        "139.80 GiB",
        "131.92 GiB",
        &this("2.25 GiB"),
        "1.71 GiB allowed; ",
        "1.53 GiB",
        "62.40 MiB",
    ));
    assert_eq!((e.verdict, e.certain), (Verdict::Cap, true));
    assert_eq!(e.limit_parts.iter().map(|p| p.bytes).sum::<u64>(), e.figures["limit_bytes"]);
    assert!(e.limit_parts.iter().any(|p| p.name == "room_under_limit"));
    // 20 MiB are asked of the device for any tensor over 1 MiB, which holes of 12 MiB may have had room for in sum.
    let e = verdict_of(&modern("20.00 MiB", "139.80 GiB", "131.92 GiB", "", "1.71 GiB allowed; ", "1.69 GiB", "12.00 MiB"));
    assert_eq!((e.verdict, e.certain), (Verdict::Cap, false), "{}", e.sentence);
    assert!(e.doubt.is_some_and(|d| d.contains("smaller than the segment")));
}

/// Holes of any program are little to win: what fills the card is advised first.
#[test]
fn a_message_that_breaks_off_tells_nothing_of_who_holds_the_card() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.02 GiB is free.",
    );
    assert_eq!(e.verdict, Verdict::Unknown);
    assert!(e.sentence.contains("78.13 GiB of the card is in use, owner unknown"), "{}", e.sentence);
    assert!(!e.sentence.contains("outside PyTorch") && e.known.iter().any(|k| k.contains("breaks off")), "{:?}", e.known);
}

#[test]
fn what_the_message_names_itself_is_the_cause() {
    const HEAD: &str = "CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 71.02 GiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 17.00 MiB is reserved by PyTorch but unallocated.";
    let reserve = verdict_of(&format!(
        "{HEAD} This allocation exceeds the expandable-segment reserve of 20.00 GiB for this stream, and a single allocation cannot span expandable segments."
    ));
    assert_eq!(reserve.verdict, Verdict::Cap);
    assert!(reserve.remedies[0].sentence.contains("expandable_segments_reserve"), "{:?}", reserve.remedies);
    let pool = verdict_of(&format!("{HEAD} The custom allocator backing this MemPool returned nullptr."));
    assert!(pool.sentence.contains("MemPool") && pool.remedies[0].sentence.contains("torch.cuda.MemPool"), "{}", pool.sentence);
}

/// What a text does not tell is not 0: a message that was cut anywhere is never given the verdict of another.
#[test]
fn a_figure_that_was_not_read_is_no_zero() {
    let own = this("22.27 GiB");
    let other = format!("Process 77 has 12.00 GiB memory in use. {}", this("10.50 GiB"));
    for (whole, verdict) in [
        (modern("1.99 GiB", "23.56 GiB", "1.23 GiB", &own, "", "14.73 GiB", "6.39 GiB"), Verdict::Fragmentation),
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "21.90 GiB", "100.00 MiB"), Verdict::Capacity),
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &other, "", "9.90 GiB", "100.00 MiB"), Verdict::Contention),
        (modern("2.00 GiB", "23.65 GiB", "1.05 GiB", &this("22.50 GiB"), "", "15.00 GiB", "100.00 MiB"), Verdict::NonPytorch),
        (
            modern("2.00 GiB", "23.65 GiB", "12.00 GiB", &this("10.50 GiB"), "10.50 GiB allowed; ", "9.90 GiB", "100.00 MiB"),
            Verdict::Cap,
        ),
        (
            "CUDA out of memory. Tried to allocate 1.40 GiB (GPU 0; 8.00 GiB total capacity; 4.21 GiB already allocated; 10.00 MiB free; 7.50 GiB reserved in total by PyTorch)"
                .to_owned(),
            Verdict::Fragmentation,
        ),
    ] {
        assert_eq!(verdict_of(&whole).verdict, verdict);
        for end in 40..whole.len() {
            let e = verdict_of(&whole[..end]);
            assert!([verdict, Verdict::Unknown].contains(&e.verdict), "{end}: {}: {}", whole[..end].to_owned(), e.sentence);
            let sum: u64 = e.parts.iter().map(|p| p.bytes).sum();
            assert!(sum == 0 || sum == e.figures["capacity_bytes"]);
        }
    }
    let cut = "CUDA out of memory. Tried to allocate 4.50 GiB.\nGPU 0 has a total capacity of 119.61 GiB of which 2.79 GiB is free.\nIncluding non-PyTorch memory, this process has 112.40 GiB memory in use.";
    let e = verdict_of(cut);
    assert_eq!((e.verdict, e.certain), (Verdict::Unknown, true));
    assert!(e.sentence.contains("this process has 112.40 GiB"), "{}", e.sentence);
    assert!(e.sentence.contains("PyTorch's share of it unknown"), "{}", e.sentence);
    assert!(e.parts.iter().any(|p| p.name == "this_process"), "{:?}", e.parts);
    assert!(e.remedies[0].sentence.contains("Paste the whole message"), "{:?}", e.remedies);
    // The only process listed may be the one that failed, under its number outside the container.
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 978.00 MiB. GPU 0 has a total capacity of 23.62 GiB of which 534.19 MiB is free. Process 1 has 22.25 GiB memory in use.",
    );
    assert_eq!(e.verdict, Verdict::Unknown, "{}", e.sentence);
    // A middle line that is missing: holes that would do decide without it.
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 1.99 GiB. of which 1.23 GiB is free. Of the allocated memory 14.73 GiB is allocated by PyTorch, and 6.39 GiB is reserved by PyTorch but unallocated.",
    );
    assert_eq!((e.verdict, e.certain), (Verdict::Fragmentation, false), "{}", e.sentence);
}

#[test]
fn sentences_do_not_contradict_their_figures() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate ?.?? GiB. GPU 0 has a total capacity of 23.56 GiB of which 1.23 GiB is free.",
    );
    assert!(e.sentence.contains("1.23 GiB of 23.56 GiB was free") && !e.sentence.contains("no figures"), "{}", e.sentence);
    let e = verdict_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 26.62 GiB.");
    assert_eq!(e.dialect, "pytorch");
    assert!(e.sentence.contains("no other figure of the message"), "{}", e.sentence);
}

/// Who holds the card outweighs holes that would be just enough in sum, and is named.
#[test]
fn others_that_fill_the_card_are_the_point() {
    let many = [process(31, "33.69 GiB"), process(32, "0 bytes"), process(33, "8.20 GiB"), this("816.00 MiB")].concat();
    for (text, words) in [
        (
            modern("50.00 MiB", "44.42 GiB", "24.69 MiB", &many, "", "447.00 MiB", "137.61 MiB"),
            "41.89 GiB of the card's 44.42 GiB (pid 31",
        ),
        (
            modern("768.00 MiB", "83.05 GiB", "140.38 MiB", &this("23.33 GiB"), "", "21.92 GiB", "797.79 MiB"),
            "belongs to no listed process",
        ),
        (
            modern(
                "24.00 MiB",
                "7.60 GiB",
                "15.38 MiB",
                &[process(39, "5.38 GiB"), this("2.19 GiB")].concat(),
                "",
                "217.80 MiB",
                "50.20 MiB",
            ),
            "Process 39 holds 5.38 GiB of the card's 7.60 GiB; this process has 2.19 GiB, 1.93 GiB of that outside PyTorch",
        ),
    ] {
        let e = verdict_of(&text);
        assert_eq!(e.verdict, Verdict::Contention, "{}", e.sentence);
        assert!(e.sentence.contains(words), "{}", e.sentence);
    }
    // Without a listed process nobody is blamed, but what is outside PyTorch is told.
    let e = verdict_of(&modern("124.00 MiB", "19.94 GiB", "554.47 MiB", "", "", "15.87 GiB", "165.29 MiB"));
    assert_eq!(e.verdict, Verdict::Unknown);
    assert!(e.sentence.contains("3.37 GiB of the card is held outside PyTorch"), "{}", e.sentence);
}

#[test]
fn a_limit_and_private_pools_are_used_where_the_text_breaks_off() {
    let cut = "CUDA out of memory. Tried to allocate 130.00 MiB. GPU 0 has a total capacity of 15.72 GiB of which 3.67 GiB is free. 12.00 GiB allowed; Of the allocated memory 11.74 GiB is al... | 7.587 | -80.97GiB |";
    let e = verdict_of(&format!("| qwen | 1024 | {cut}"));
    assert_eq!((e.verdict, e.contradictions.len()), (Verdict::Cap, 0), "{}", e.sentence);
    assert!(e.sentence.contains("may hold 12.00 GiB, has 11.74 GiB in tensors"), "{}", e.sentence);
    let pools = modern("2.00 MiB", "47.53 GiB", "896.00 KiB", "", "", "47.00 GiB", "149.10 MiB")
        .replace("by PyTorch, and", "by PyTorch, with 46.22 GiB allocated in private pools (e.g., CUDA Graphs), and");
    let e = verdict_of(&pools);
    assert!(e.sentence.contains("46.22 GiB lies free in private pools"), "{}", e.sentence);
    assert!(e.remedies[0].sentence.contains("fewer CUDA graphs"), "{:?}", e.remedies);
    let e = verdict_of(
        "MPS backend out of memory (MPS allocated: 8.89 GB, other allocations: 172.98 MB, max allowed: 9.07 GB). Tried to allocate 6.25 MB on private pool.",
    );
    assert_eq!((e.verdict, e.certain), (Verdict::Cap, false), "{}", e.sentence);
}

/// The text around a message decides whose settings are advised.
/// Each rule that was found wanting on published texts, on a text of its own.
#[test]
fn what_ran_out_and_who_holds_it() {
    let npu = "NPU out of memory. Tried to allocate 24.00 MiB (NPU 0; 60.96 GiB total capacity; 9.10 GiB already allocated; 9.10 GiB current active; \
               18.00 MiB free; 9.50 GiB reserved in total by PyTorch)";
    let xpu = "XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 15.11 GiB of which 15.00 GiB is free. Of the allocated \
               memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
    let moved = modern("20.00 MiB", "6.00 GiB", "0 bytes", "", "", "8.00 GiB", "200.00 MiB");
    let xla = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.\nBufferAssignment stats:\n             parameter \
               allocation:  372.76MiB\n     preallocated temp allocation:    4.44GiB\n                 total allocation:    4.80GiB\n";
    let tf = "Total memory: 10.92GiB\nFree memory: 300.00MiB\ncuda_driver.cc:1002] failed to allocate 300.00M (314572800 bytes) from device: \
              CUDA_ERROR_OUT_OF_MEMORY";
    let paddle = "Out of memory error on GPU 0. Cannot allocate 64.000000MB memory on GPU 0, 7.000000GB memory has been allocated and available \
                  memory is only 12.000000MB.";
    let pinned = "  buffer = torch.empty(n, pin_memory=True)\nRuntimeError: CUDA error: out of memory";
    for (text, cause, words) in [
        (npu, "contention", "51.44 GiB of the card's 60.96 GiB is held outside PyTorch"),
        (xpu, "too_large", "no single block of 4 GiB"),
        (moved.as_str(), "capacity", "Windows' driver has moved the rest"),
        (xla, "capacity", "4.80 GiB in all: 4.44 GiB for temporaries (intermediate results) and 372.76 MiB for its arguments"),
        (tf, "contention", "only 300.00 MiB of the card's 10.92 GiB"),
        (paddle, "capacity", "only 12.00 MiB of the device's 7.01 GiB"),
        (pinned, "host_memory", "pins memory of the machine"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
            "host_memory",
            "Slurm",
        ),
        ("data. DefaultCPUAllocator: not enough memory: you tried to allocate 6553600 bytes.", "host_memory", "paging file"),
        ("RuntimeError: Not enough memory to handle 4096 prefill tokens.", "capacity", "text-generation-inference"),
        // Cut off before its figures.
        ("Error in memory profiling. Initial free memory", "contention", "more was free after it than before. Its"),
        (
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\nThe actor is dead because its worker process \
             has died. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray \
             stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.",
            "unknown",
            "does not know why",
        ),
        (
            "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node\nThere are \
             some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.",
            "host_memory",
            "Ray killed workers",
        ),
        // Signal 9 alone is no proof, a failed health check another reason, and what the kubelet says of memory a proof.
        (
            "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
            "killed",
            "may have been the system's out-of-memory killer",
        ),
        (
            "Normal  Killing  kubelet  Container app failed liveness probe, will be restarted\n  Last State: Terminated\n    Reason: Error\n    Exit Code: 137",
            "killed",
            "because its liveness probe failed",
        ),
        ("  Last State: Terminated\n    Reason: OOMKilled\n    Exit Code: 137", "host_memory", "reached its limit"),
        ("RuntimeError: Executor creation failed due to insufficient GPU mem", "capacity", "a part of TensorRT-LLM's executor."),
        (
            "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of mem",
            "unknown",
            "TensorRT-LLM",
        ),
    ] {
        let e = verdict_of(text);
        assert_eq!(e.cause, cause, "{}", e.sentence);
        assert!(e.sentence.contains(words), "{}", e.sentence);
        assert!(!e.remedies.is_empty());
    }
    let e = verdict_of(&format!(
        "device: NVIDIA A100 MIG 1g.10gb\n{}",
        modern("1.00 GiB", "9.50 GiB", "300.19 MiB", "", "", "8.70 GiB", "1.00 MiB")
    ));
    assert!(e.sentence.contains("MIG slice (1g.10gb)"), "{}", e.sentence);
    assert!(e.remedies.iter().any(|r| r.sentence.contains("larger slice")), "{:?}", e.remedies);
}

/// What stands beside the message: a server's log, a table of `nvidia-smi`, Ray's list, the lines of the kernel and of Slurm.
#[test]
fn what_is_pasted_beside_a_message_is_read() {
    let traceback: String =
        (0..30).map(|i| format!("  File \"llm_engine.py\", line {i}, in step\n    self.run(config)\n")).collect();
    let e = verdict_of(&format!(
        "worker.py:267] the current vLLM instance can use total_gpu_memory (8.00GiB) x gpu_memory_utilization (0.70) = 5.60GiB\nworker.py:267] \
         model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the memory \
         reserved for KV Cache is -1.05GiB.\n{traceback}ValueError: No available memory for the cache blocks. Try increasing"
    ));
    assert_eq!((e.figures["weights_bytes"], e.figures["short_bytes"]), (5_583_457_485, 1_127_428_915));
    assert!(e.sentence.contains("the weights take 5.20 GiB") && e.sentence.ends_with("1.05 GiB is missing."), "{}", e.sentence);
    assert!(e.remedies[0].sentence.starts_with("Make the weights smaller"), "{:?}", e.remedies);

    let row = "|   0  NVIDIA GeForce RTX 4090        Off |   00000000:4E:00.0 Off |                  Off |\n| 30%   29C    P8     \
               22W /  450W |   21907MiB /  24564MiB |      0%      Default |\n|    0   N/A  N/A     26010      C   /opt/conda/bin/python  \
               21400MiB |\n|    0   N/A  N/A      4242      G   /usr/lib/xorg/Xorg      49MiB |";
    let smi = format!("| NVIDIA-SMI 550.163.01   Driver Version: 550.163.01     CUDA Version: 12.4     |\n{row}\n");
    let e = verdict_of(&format!("{}\n{smi}", modern("256.00 MiB", "23.64 GiB", "101.00 MiB", "", "", "1.20 GiB", "30.00 MiB")));
    assert_eq!((e.verdict, e.processes.len(), e.processes[0].pid), (Verdict::Contention, 1, Some(26010)), "{}", e.sentence);
    assert!(
        e.known.iter().any(|k| k.contains("21.39 GiB of 23.99 GiB in use on GPU 0: pid 26010 (/opt/conda/bin/python)")),
        "{:?}",
        e.known
    );
    // Without figures the table alone tells who holds the card.
    let e = verdict_of(&format!("RuntimeError: CUDA error: out of memory\n  File \"torch/cuda/__init__.py\"\n{smi}"));
    assert!(e.sentence.starts_with("Process 26010 holds 20.90 GiB of the card's 23.99 GiB"), "{}", e.sentence);
    // A table of the same program while it ran: its process and what it counts do not fit on the card together.
    let e = verdict_of(&format!("{}\n{smi}", modern("256.00 MiB", "23.64 GiB", "101.00 MiB", "", "", "20.20 GiB", "30.00 MiB")));
    assert_eq!((e.verdict, e.processes.len()), (Verdict::Unknown, 0), "{}", e.sentence);

    let e = verdict_of(
        "Killed\n\nOut of memory: Killed process 7899 (python) total-vm:26184840kB, anon-rss:15370088kB, file-rss:0kB",
    );
    assert!(e.sentence.contains("killed process 7899 (python), which held 14.66 GiB"), "{}", e.sentence);
    assert!(!e.remedies.iter().any(|r| r.sentence.contains("dmesg")), "{:?}", e.remedies);
    let e = verdict_of(
        "slurmstepd: error: Detected 1 oom_kill event in StepId=647.7. Some of the step tasks have been OOM Killed.\nsrun: error: n012: \
                task 3: Out Of Memory",
    );
    assert_eq!(e.known, ["Slurm names step 647.7, task 3 on node n012."]);
    let e = verdict_of(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 172.17.0.2) \
                where the task was running was 21.91GB / 33.28GB (0.65), which\nTop 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n548\t12.18\tray::f\n422\t7.90\tray::IDLE\nRefer to",
    );
    assert_eq!(
        e.known,
        ["Ray lists who held the machine's memory: pid 548 (ray::f) with 12.18 GiB, pid 422 (ray::IDLE) with 7.90 GiB."]
    );
}

/// A server takes its share of the card, whatever little others hold; and while it loads no batch ran yet.
/// Ranks of one job that share a card are listed, also where the message breaks off behind them.
#[test]
fn a_message_that_breaks_off_behind_its_processes_names_them() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 22.07 GiB of which 40.62 MiB is free. Process 157 has \
         270.00 MiB memory in use. Process 450 has 7.69 GiB memory in use. Process 456 has 1.08 GiB memory in use.",
    );
    assert!(
        e.sentence.contains("22.03 GiB of the card is in use, by pid 450 with 7.69 GiB, pid 456 with 1.08 GiB"),
        "{}",
        e.sentence
    );
}

/// No pool of this size would ever hold it, whatever else is in the pool.
#[test]
fn a_tensor_larger_than_tensorflow_s_pool_is_told() {
    let stats = "Limit: 4294967296\nInUse: 2147483648\nMaxInUse: 3221225472\n";
    let tensor = |shape: &str, kind: &str| {
        verdict_of(&format!(
            "tensorflow/core/common_runtime/bfc_allocator.cc:1] Stats:\n{stats}tensorflow.ResourceExhaustedError: OOM when allocating tensor with \
             shape[{shape}]{kind}"
        ))
    };
    let typed = " and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc";
    for (kind, certain) in [(typed, true), ("", false)] {
        let large = tensor("1048576,2048", kind);
        assert_eq!((large.verdict, large.certain), (Verdict::TooLarge, certain), "{}", large.sentence);
        assert!(large.sentence.contains("this one tensor is larger than the whole pool"), "{}", large.sentence);
        assert!(!tensor("1024,1024", kind).sentence.contains("larger than"), "{kind}");
    }
}

/// Much that is held outside PyTorch, a limit with a small segment, a request of bytes, and a count that fell below zero.
#[test]
fn the_cause_is_not_looked_for_in_holes_or_sizes_that_are_none() {
    let e = verdict_of(
        "CUDA out of memory. Tried to allocate 72.00 MiB (GPU 0; 4.00 GiB total capacity; 1.60 GiB already allocated; 40.11 MiB free; 1.72 GiB reserved in total by PyTorch)",
    );
    assert_eq!(e.verdict, Verdict::Contention, "{}", e.sentence);
    let e = verdict_of(&modern("2.00 MiB", "255.98 GiB", "244.65 GiB", "", "1.05 GiB allowed; ", "1017.01 MiB", "54.99 MiB"));
    assert_eq!(e.verdict, Verdict::Cap, "{}", e.sentence);
    let e = verdict_of(&modern("20.00 MiB", "4.00 GiB", "0 bytes", "", "", "3.27 GiB", "257.08 MiB"));
    assert_eq!(e.verdict, Verdict::Capacity, "{}", e.sentence);
    let e = verdict_of("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 24 bytes.");
    assert!(e.sentence.contains("No device runs out for so little"), "{}", e.sentence);
    let e = verdict_of("[HAMI-core ERROR (pid:1 thread=1 allocator.c:53)]: Device 0 OOM 18446744073707737660 / 24146608128");
    assert!(e.sentence.contains("count of this container's memory is wrong") && !e.figures.contains_key("peak_bytes"));
}
