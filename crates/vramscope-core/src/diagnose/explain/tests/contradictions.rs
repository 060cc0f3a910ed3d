//! Figures that cannot all be true.

use super::super::judge::contradictions;
use super::*;

fn of(text: &str) -> Vec<String> {
    contradictions(&parse(text).unwrap())
}

fn old(capacity: &str, allocated: &str, free: &str, reserved: &str) -> String {
    format!(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; {capacity} total capacity; {allocated} already allocated; {free} free; \
         {reserved} reserved in total by PyTorch)"
    )
}

#[test]
fn each_impossible_pair_is_named() {
    for (text, words) in [
        (old("16.00 GiB", "9.00 GiB", "1.00 GiB", "7.00 GiB"), "9.00 GiB allocated by PyTorch, but 7.00 GiB reserved in all"),
        (old("16.00 GiB", "9.00 GiB", "17.00 GiB", "10.00 GiB"), "17.00 GiB free, but 16.00 GiB on the whole card"),
        (old("16.00 GiB", "19.00 GiB", "1.00 GiB", "20.00 GiB"), "20.00 GiB held by PyTorch, but 16.00 GiB on the whole card"),
        (old("16.00 GiB", "9.00 GiB", "9.00 GiB", "10.00 GiB"), "19.00 GiB free and held by PyTorch together"),
        (old("16.00 GiB", "-9.00 GiB", "1.00 GiB", "10.00 GiB"), "-9.00GiB is below zero"),
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Including \
             non-PyTorch memory, this process has 5.00 GiB memory in use. 20.00 GiB allowed; Of the allocated memory 9.00 GiB is allocated \
             by PyTorch, with 9.50 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated."
                .to_owned(),
            "20.00 GiB allowed",
        ),
    ] {
        let found = of(&text);
        assert!(found.iter().any(|c| c.contains(words)), "{words}: {found:?}");
        let told = explain(&parse(&text).unwrap());
        assert_eq!((told.verdict, told.certain), (Verdict::Unknown, false), "{}", told.sentence);
        assert!(told.sentence.contains("contradict"), "{}", told.sentence);
    }
}

#[test]
fn rounding_and_other_processes_contradict_nothing() {
    for text in [
        old("16.00 GiB", "10.00 GiB", "1.00 GiB", "10.00 GiB"),
        old("15.90 GiB", "14.00 GiB", "0 bytes", "15.90 GiB"),
        old("15.78 GiB", "10.00 GiB", "1.00 GiB", "15.00 GiB"),
        // WSL and some containers list processes whose memory the driver does not know: 2^64 bytes.
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Process 36 has \
         17179869184.00 GiB memory in use. Of the allocated memory 13.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch \
         but unallocated."
            .to_owned(),
    ] {
        assert_eq!(of(&text), Vec::<String>::new(), "{text}");
    }
}
