//! How memory is held: fragmentation, the cache, pools, memory outside PyTorch.

use super::super::Run::One;
use super::super::{Rule, rule};
use super::super::{beside, flushes, samples, structure};
use crate::diagnose::findings::Class;

pub(super) const RULES: &[Rule] = &[
    rule("variable_sizes", Class::Structure, One(structure::variable_sizes))
        .finds("Reserved and never used, through ever new sizes")
        .when("peak reserved ≥ 256 MiB and ≥ 20 % above peak active (15 % from 8 GiB on), without what is free in private pools; ≥ 60 sizes over 1 MiB, ≥ 10 of them new in the second half; ≥ 3 segments after the first third")
        .source("row 7")
        .measured("9 of 9 programs")
        .shown_by("corpus: `demo/gpt_varlen.default.pickle`; generated: growing sizes"),
    rule("unfilled_gaps", Class::Structure, One(structure::unfilled_gaps))
        .finds("Reserved and never used, in gaps that no request fits")
        .when("as `variable_sizes` without its sizes: ≥ 2 GiB of what was taken while recording was never in use")
        .source("row 3")
        .measured("10 of 10 programs")
        .shown_by("generated: tensors replaced by larger ones"),
    rule("pinned_segments", Class::Structure, One(structure::slivers))
        .finds("Slivers that pin large segments")
        .when("segments ≥ 20 MiB at most 1/5 full hold ≥ 128 MiB of holes and ≥ 30 % of the peak reserved, at that peak or at the end; not where the peak of use fills three quarters of them and nothing failed")
        .source("rows 3, 7")
        .measured("3 of 4 programs")
        .shown_by("corpus: `demo/split_fragment.default.pickle`; generated: a sliver in every segment"),
    rule("private_pools", Class::Structure, One(structure::private_pools))
        .finds("Private pools of CUDA graphs hold memory")
        .when("holes in private pools at the end ≥ 256 MiB and ≥ 20 % of reserved; or ≥ 8 such pools hold ≥ 256 MiB and ≥ 5 % of the device, or ≥ 20 % of reserved where its size is not told")
        .source("row 13")
        .shown_by("generated: an empty pool of a graph, 24 captured graphs"),
    rule("pending_free", Class::Structure, One(structure::pending))
        .finds("Freed, and waiting for another stream")
        .when("blocks whose free completes > 8 events after the program's free: ≥ 64 MiB at once and ≥ 5 % of the peak active")
        .source("row 18")
        .shown_by("generated: frees guarded by another stream"),
    rule("cache_flushes", Class::Structure, One(flushes::cache_flushes))
        .finds("The cache is emptied and filled again and again")
        .when("≥ 5 bursts of segments given back, and at least one every second step unless requests found no room, or any number of these with ≥ 256 MiB; who does it: a frame `empty_cache`, a graph's capture, cuDNN's search for algorithms (a convolution or a backward pass frees what it just made), or a request, where the segment taken next is larger than those of its stream and pool that were given back, and does not fit into what was ever reserved")
        .source("row 19")
        .measured("2 of 2")
        .shown_by("corpus: `whatif/split_fragment.default.x103.pickle`; generated: `empty_cache` in every step, and for a request"),
    rule("idle_cache", Class::Structure, One(structure::idle_cache))
        .finds("Reserved and not used any more")
        .when("over the last half of the events, in training from where a step begins: least reserved − most active − free in private pools ≥ 1 GiB and ≥ half of it; no failure. Of a state alone: segments wholly free")
        .source("row 1")
        .measured("0 of 1")
        .shown_by("generated: a large start and a small rest"),
    rule("idle_cache_live", Class::Structure, One(samples::idle))
        .finds("The same (live data)")
        .when("reserved − active > 1 GiB and > half of reserved for the last 30 s")
        .source("row 1")
        .shown_by("generated samples"),
    rule("preallocated_cache", Class::Structure, One(structure::preallocated))
        .finds("A KV cache taken at the start, by design")
        .when("2 to 200 equal blocks ≥ 64 MiB of code of a cache, taken within 5 s, never freed, live ≥ 80 % of the recording: ≥ 2 GiB and ≥ 60 % of the peak")
        .source("row 26")
        .measured("1 of 1")
        .shown_by("generated: 32 equal blocks"),
    rule("pinned_rounding", Class::Structure, One(structure::pinned_host))
        .finds("Pinned host memory rounded far up")
        .when("host memory: held ≥ 1.3 times what was requested, and ≥ 256 MiB more")
        .source("row 27")
        .shown_by("generated: host blocks of powers of two"),
    rule("pinned_host", Class::Structure, One(beside::pinned_host))
        .finds("More pinned host memory than the card holds")
        .when("host segments ≥ 1 GiB and ≥ the peak reserved on the card")
        .source("row 27")
        .shown_by("generated: 2 GiB pinned beside a small card"),
    rule("pool_retention", Class::Structure, One(beside::pool_retention))
        .finds("The driver's pool keeps what was freed")
        .when("`backend:cudaMallocAsync`; free at the end ≥ 256 MiB and ≥ half of the pool")
        .source("row 1")
        .shown_by("generated: a pool of the driver, mostly free"),
    rule("outside_jump", Class::Structure, One(samples::outside_jump))
        .finds("A jump outside PyTorch (live data)")
        .when("process − reserved rises ≥ 256 MiB within 2 s from ≥ 250 MiB, reserved changes ≤ 1/10 of that")
        .source("row 11")
        .shown_by("generated samples; corpus: `live.json`, 2 GiB by raw cudaMalloc"),
    rule("stray_context", Class::Structure, One(samples::stray_context))
        .finds("A context on a GPU that is not used (live data)")
        .when("the watched process holds 200 to 1,200 MiB for the last 5 s with nothing reserved, and ≥ 1 GiB is reserved on another device; or a listed process holds as little here and at least twice that on another device")
        .source("row 9")
        .shown_by("generated samples of two devices"),
    rule("many_contexts", Class::Structure, One(samples::many_contexts))
        .finds("Many processes, each with a context (live data)")
        .when("≥ 3 processes of 200 MiB to 1.5 GiB, < 64 MiB of it reserved by PyTorch where that is told: ≥ 10 % of the device")
        .source("row 10")
        .shown_by("generated: twelve workers on a small card"),
    rule("unattributed", Class::Structure, One(samples::unattributed))
        .finds("Memory that no process owns (live data)")
        .when("used − driver − listed processes > 300 MiB for > 10 s")
        .source("rows 24, 34")
        .shown_by("generated samples"),
    rule("other_processes", Class::Structure, One(samples::other_processes))
        .finds("Others hold part of the device (live data)")
        .when("other processes ≥ 10 % of the device for ≥ 5 s")
        .source("row 25")
        .shown_by("generated samples"),
    rule("nearly_full", Class::Structure, One(samples::nearly_full))
        .finds("The device is full to the brim (live data)")
        .when("used ≥ 97 % of the device for > 5 s")
        .source("row 28")
        .shown_by("generated samples"),
];
