//! What failed and what grows.

use super::super::Run::{One, Several};
use super::super::{Rule, rule};
use super::super::{failed, growth, oom, samples};
use crate::diagnose::findings::Class;

pub(super) const RULES: &[Rule] = &[
    rule("out_of_memory", Class::OutOfMemory, Several(oom::out_of_memory))
        .finds("A request failed: fragmentation, cap, capacity, contention, outside PyTorch, too large")
        .when("an `oom` event; holes ≥ request > largest hole: fragmentation, unless the device is ≥ 90 % tensors, ≥ 8 blocks of that size are live and the next such request would not fit; device free ≥ segment: cap; request > device free + reserved: too large; else who holds the rest")
        .source("rows 3, 4, 25; classifier E1")
        .measured("24 of 29 programs")
        .shown_by("`fragment_oom.pickle`, `kv_decode_oom.pickle.gz`"),
    rule("leak", Class::Leak, One(growth::leak))
        .finds("Memory that survives its step, step after step")
        .when("a stack leaves bytes in ≥ 4/5 of ≥ 5 steps (all of ≥ 4 that the optimizer ends), or ≥ 64 KiB in ≥ 5 at even distances, R² > 0.9, ≥ 512 B a step, alive at the end or, after ≥ 20 steps (≥ 6 that the optimizer ends, ≥ 10 of several calls of the model each), freed at once; or over ≥ 20 steps to the last, in ≥ 8 of them, several stacks or one leave bytes with R² > 0.9 together and the floor of all memory rises by at least half of that; all such ≥ 1 MiB and ≥ 2 % of the peak; nothing with fewer than 7 steps of the program's own loop, 6 where the optimizer ends them")
        .source("row 5")
        .measured("22 of 24 programs")
        .shown_by("`leak.pickle`"),
    rule("evaluation_growth", Class::Leak, One(growth::evaluation))
        .finds("The same, where only evaluation allocates")
        .when("as `leak`, and a frame of the stack evaluates")
        .source("row 22")
        .measured("0 of 1 program")
        .shown_by("generated: predictions kept in `evaluate`"),
    rule("held_after_failure", Class::Leak, One(failed::after_failure))
        .finds("What a failed attempt made is kept after the failure was caught")
        .when("≥ 0.9 of what the attempt made live when its first allocations come again, ≥ 64 MiB and ≥ 1/10; or allocated ≥ 0.9 of its value at an `oom` event for 5 s")
        .source("row 23")
        .measured("3 of 3")
        .shown_by("`kinds/kept_error` of the tests' recordings; generated: a failure, and six seconds of small requests"),
    rule("live_growth", Class::Leak, One(growth::live_growth))
        .finds("Allocated memory grows (live data)")
        .when("floor of allocated in 12 stretches: ≥ 10 of 11 rise, R² > 0.9, ≥ 256 MiB over ≥ 60 s")
        .source("row 5")
        .shown_by("generated samples"),
    rule("outside_growth", Class::Leak, One(samples::outside_growth))
        .finds("Memory outside PyTorch grows (live data)")
        .when("floor of process − reserved grows ≥ 256 MiB over ≥ 60 s, R² ≥ 0.8, ≥ 30 % of it in the last half, reserved < 1/4 of it")
        .source("row 8")
        .shown_by("generated samples"),
];
