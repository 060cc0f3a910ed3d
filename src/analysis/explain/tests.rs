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
    assert_eq!(e.verdict, Verdict::Fragmentation);
    assert!(e.sentence.contains("nearly full"), "{}", e.sentence);
    assert!(e.known[0].contains("under 10 MiB"));
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
