//! Small losses, and what a recording lacks.

use super::super::Run::One;
use super::super::{Rule, STALE_COPIES, TRUNCATED, rule};
use super::super::{autocast, beside, growth, hygiene, oom, samples};
use crate::diagnose::findings::Class;

pub(super) const RULES: &[Rule] = &[
    rule("refused_trial", Class::Hygiene, One(oom::refused_trial))
        .finds("Requests that were refused and whose calls went on with less: no failures")
        .when("after an `oom` event, with nothing but segments between: a smaller allocation of the same stack and stream, freed at once")
        .source("PyTorch's `Conv_v8.cpp`: `try_plans` and the benchmark catch what does not fit")
        .measured("10 of 10 programs")
        .shown_by("`tests/recordings/kinds/dcgan_benchmark.python.cap70`"),
    rule("rounding", Class::Hygiene, One(hygiene::rounding))
        .finds("Blocks larger than requested")
        .when("on a device, at the peak > 512 MiB and > 10 %; beside a failure > 16 MiB and > 2 %")
        .source("row 20")
        .measured("5 of 6 programs")
        .shown_by("`kv_decode_oom.pickle.gz`"),
    rule("workspaces", Class::Hygiene, One(hygiene::workspaces))
        .finds("Many cuBLAS workspaces")
        .when("workspaces of 8,519,680, 4,194,304 or 33,554,432 B at the peak: ≥ 128 MiB and ≥ 5 % of it")
        .source("row 12")
        .measured("1 of 1 program")
        .shown_by("generated: a workspace on each of four streams"),
    rule("context", Class::Hygiene, One(beside::context))
        .finds("The cost of a CUDA context (live data)")
        .when("process − reserved in the last sample 128 MiB to 2 GiB and ≥ twice what PyTorch ever reserved")
        .source("row 2")
        .shown_by("generated samples; the scenario of contexts"),
    rule("cap_without_context", Class::Hygiene, One(samples::cap_without_context))
        .finds("The cap leaves the context out (live data)")
        .when("reserved ≤ cap < process for ≥ 5 s")
        .source("row 32")
        .shown_by("generated samples"),
    rule(STALE_COPIES, Class::Hygiene, One(autocast::stale_copies))
        .finds("Autocast opened around the loop, so that later steps compute with old weights")
        .when("≥ 8 autocast copies from before the first optimizer step live to the end of the forward pass behind it, and later steps make fewer than a quarter as many")
        .source("a published recording whose program opens autocast around its loop")
        .measured("1 of 1 program")
        .shown_by("generated: autocast opened around the loop; recorded: `promised/stale_autocast`"),
    rule("kept_numbers", Class::Hygiene, One(growth::numbers))
        .finds("Numbers kept as tensors, where nothing larger grows")
        .when("≥ 20 steps; a stack leaves < 512 B in ≥ 4/5 of them, R² > 0.9; beside a `leak` that one gives the advice instead")
        .source("row 5")
        .shown_by("generated: a list of losses of 4 B"),
    rule("idle_threshold", Class::Hygiene, One(hygiene::idle_threshold))
        .finds("`garbage_collection_threshold` that nothing acts on")
        .when("it is set, no cap is known, nothing failed, no segment was ever given back, peak reserved ≥ 64 MiB above peak active")
        .source("row 31")
        .measured("4 of 4 programs")
        .shown_by("generated: a threshold and no fraction"),
    rule(TRUNCATED, Class::Hygiene, One(hygiene::truncated))
        .finds("A file that ends early; told before anything else")
        .when("the file breaks off")
        .source("the reader")
        .shown_by("generated: a snapshot cut before its end"),
    rule("heavy_recording", Class::Hygiene, One(hygiene::heavy_recording))
        .finds("C++ frames make the recording heavy")
        .when("> 200,000 events or > 500 MiB, and C++ frames in half of the stacks or more")
        .source("row 35")
        .shown_by("generated: 200,002 events with C++ frames"),
    rule("no_history", Class::Hygiene, One(hygiene::no_history))
        .finds("A snapshot without its history")
        .when("segments and no event on any device")
        .source("row 36")
        .measured("8 of 8")
        .shown_by("generated: segments alone"),
];
