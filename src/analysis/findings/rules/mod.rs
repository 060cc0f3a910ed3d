//! The rules. Each looks at one thing, and says nothing when its numbers are small.
//!
//! Sources are rows of the diagnoses this project collected from public issues, documentation and PyTorch's source; formulas and
//! thresholds are as tested on real recordings.

mod at_peak;
mod beside;
mod growth;
mod hygiene;
mod kept;
mod oom;
mod peak;
mod samples;
mod settings;
mod shared;
mod structure;

pub(super) use self::oom::prescribe;
pub(super) use self::settings::{by_settings, in_code};
pub(super) use self::shared::marks;
use super::{Class, Finding, Patient};

/// One rule, as the code applies it and as the table of rules tells it.
pub struct Rule {
    /// Stable name.
    pub name: &'static str,
    /// Where its findings rank.
    pub class: Class,
    /// What it finds, in a few words.
    pub finds: &'static str,
    /// When it speaks.
    pub when: &'static str,
    /// Where that comes from.
    pub source: &'static str,
    /// Which recording makes it speak in the tests.
    pub shown_by: &'static str,
    pub(super) run: fn(&Patient<'_>) -> Vec<Finding>,
}

/// The rule whose finding stands before all others: it puts them in doubt.
pub(super) const TRUNCATED: &str = "truncated";

/// Every rule, by class.
pub const RULES: &[Rule] = &[
    Rule {
        name: "out_of_memory",
        class: Class::OutOfMemory,
        finds: "A request failed: fragmentation, cap, capacity, contention, outside PyTorch, too large",
        when: "an `oom` event; holes ≥ request > largest hole: fragmentation; device free ≥ segment: cap; request > device free + reserved: too large; else who holds the rest",
        source: "rows 3, 4, 25; classifier E1",
        shown_by: "`fragment_oom.pickle`, `kv_decode_oom.pickle.gz`",
        run: oom::out_of_memory,
    },
    Rule {
        name: "leak",
        class: Class::Leak,
        finds: "Memory that survives its step, step after step",
        when: "a stack leaves bytes in ≥ 4/5 of ≥ 5 steps, or ≥ 64 KiB in ≥ 5 at even distances, R² > 0.9, ≥ 512 B a step, alive at the end or, after ≥ 20 steps, freed at once; or over ≥ 20 steps to the last, in ≥ 8 of them, several stacks or one leave bytes with R² > 0.9 together and the floor of all memory rises by at least half of that; all such ≥ 1 MiB and ≥ 2 % of the peak; nothing with fewer than 7 steps of the program's own loop",
        source: "row 5",
        shown_by: "`leak.pickle`",
        run: growth::leak,
    },
    Rule {
        name: "evaluation_growth",
        class: Class::Leak,
        finds: "The same, where only evaluation allocates",
        when: "as `leak`, and a frame of the stack evaluates",
        source: "row 22",
        shown_by: "generated: predictions kept in `evaluate`",
        run: growth::evaluation,
    },
    Rule {
        name: "held_after_failure",
        class: Class::Leak,
        finds: "Nothing is freed after a caught failure",
        when: "allocated ≥ 0.9 of its value at an `oom` event for 5 s, ≥ 64 MiB",
        source: "row 23",
        shown_by: "generated: a failure, and six seconds of small requests",
        run: growth::after_failure,
    },
    Rule {
        name: "live_growth",
        class: Class::Leak,
        finds: "Allocated memory grows (live data)",
        when: "floor of allocated in 12 stretches: ≥ 10 of 11 rise, R² > 0.9, ≥ 256 MiB over ≥ 60 s",
        source: "row 5",
        shown_by: "generated samples",
        run: growth::live_growth,
    },
    Rule {
        name: "outside_growth",
        class: Class::Leak,
        finds: "Memory outside PyTorch grows (live data)",
        when: "floor of process − reserved grows ≥ 256 MiB over ≥ 60 s, R² ≥ 0.8, ≥ 30 % of it in the last half, reserved < 1/4 of it",
        source: "row 8",
        shown_by: "generated samples",
        run: samples::outside_growth,
    },
    Rule {
        name: "variable_sizes",
        class: Class::Structure,
        finds: "Reserved and never used, through ever new sizes",
        when: "peak reserved ≥ 256 MiB and ≥ 20 % above peak active, without what is free in private pools; ≥ 60 sizes over 1 MiB, ≥ 10 of them new in the second half; ≥ 3 segments after the first third",
        source: "row 7",
        shown_by: "corpus: `demo/gpt_varlen.default.pickle`; generated: growing sizes",
        run: structure::variable_sizes,
    },
    Rule {
        name: "pinned_segments",
        class: Class::Structure,
        finds: "Slivers that pin large segments",
        when: "segments ≥ 20 MiB at most 1/5 full hold ≥ 128 MiB of holes and ≥ 30 % of the peak reserved, at that peak or at the end",
        source: "rows 3, 7",
        shown_by: "corpus: `demo/split_fragment.default.pickle`; generated: a sliver in every segment",
        run: structure::slivers,
    },
    Rule {
        name: "private_pools",
        class: Class::Structure,
        finds: "Private pools of CUDA graphs hold memory",
        when: "holes in private pools at the end ≥ 256 MiB and ≥ 20 % of reserved; or ≥ 8 such pools hold ≥ 256 MiB and ≥ 5 % of the device, or ≥ 20 % of reserved where its size is not told",
        source: "row 13",
        shown_by: "generated: an empty pool of a graph, 24 captured graphs",
        run: structure::private_pools,
    },
    Rule {
        name: "pending_free",
        class: Class::Structure,
        finds: "Freed, and waiting for another stream",
        when: "blocks whose free completes > 8 events after it was asked for: ≥ 64 MiB at once and ≥ 5 % of the peak active",
        source: "row 18",
        shown_by: "generated: frees guarded by another stream",
        run: structure::pending,
    },
    Rule {
        name: "cache_flushes",
        class: Class::Structure,
        finds: "The cache is emptied and filled again and again",
        when: "≥ 5 bursts of segments given back, and at least one every second step",
        source: "row 19",
        shown_by: "generated: `empty_cache` in every step",
        run: structure::retries,
    },
    Rule {
        name: "idle_cache",
        class: Class::Structure,
        finds: "Reserved and not used any more",
        when: "over the last half of the events: least reserved − most active − free in private pools ≥ 1 GiB and ≥ half of it; no failure",
        source: "row 1",
        shown_by: "generated: a large start and a small rest",
        run: structure::idle_cache,
    },
    Rule {
        name: "idle_cache_live",
        class: Class::Structure,
        finds: "The same (live data)",
        when: "reserved − active > 1 GiB and > half of reserved for the last 30 s",
        source: "row 1",
        shown_by: "generated samples",
        run: samples::idle,
    },
    Rule {
        name: "preallocated_cache",
        class: Class::Structure,
        finds: "A KV cache taken at the start, by design",
        when: "2 to 200 equal blocks ≥ 64 MiB of code of a cache, taken within 5 s, never freed, live ≥ 80 % of the recording: ≥ 2 GiB and ≥ 60 % of the peak",
        source: "row 26",
        shown_by: "generated: 32 equal blocks",
        run: structure::preallocated,
    },
    Rule {
        name: "pinned_rounding",
        class: Class::Structure,
        finds: "Pinned host memory rounded far up",
        when: "host memory: held ≥ 1.3 times what was asked for, and ≥ 256 MiB more",
        source: "row 27",
        shown_by: "generated: host blocks of powers of two",
        run: structure::pinned_host,
    },
    Rule {
        name: "pinned_host",
        class: Class::Structure,
        finds: "More pinned host memory than the card holds",
        when: "host segments ≥ 1 GiB and ≥ the peak reserved on the card",
        source: "row 27",
        shown_by: "generated: 2 GiB pinned beside a small card",
        run: beside::pinned_host,
    },
    Rule {
        name: "pool_retention",
        class: Class::Structure,
        finds: "The driver's pool keeps what was freed",
        when: "`backend:cudaMallocAsync`; free at the end ≥ 256 MiB and ≥ half of the pool",
        source: "row 1",
        shown_by: "generated: a pool of the driver, mostly free",
        run: beside::pool_retention,
    },
    Rule {
        name: "outside_jump",
        class: Class::Structure,
        finds: "A jump outside PyTorch (live data)",
        when: "process − reserved rises ≥ 256 MiB within 2 s from ≥ 250 MiB, reserved changes ≤ 1/10 of that",
        source: "row 11",
        shown_by: "generated samples; corpus: `live.json`, 2 GiB by raw cudaMalloc",
        run: samples::outside_jump,
    },
    Rule {
        name: "stray_context",
        class: Class::Structure,
        finds: "A context on a GPU that is not used (live data)",
        when: "the watched process holds 200 to 1,200 MiB for the last 5 s with nothing reserved, and ≥ 1 GiB is reserved on another device; or a listed process holds as little here and at least twice that on another device",
        source: "row 9",
        shown_by: "generated samples of two devices",
        run: samples::stray_context,
    },
    Rule {
        name: "many_contexts",
        class: Class::Structure,
        finds: "Many processes, each with a context (live data)",
        when: "≥ 3 processes of 200 MiB to 1.5 GiB, < 64 MiB of it reserved by PyTorch where that is told: ≥ 10 % of the device",
        source: "row 10",
        shown_by: "generated: twelve workers on a small card",
        run: samples::many_contexts,
    },
    Rule {
        name: "unattributed",
        class: Class::Structure,
        finds: "Memory that no process owns (live data)",
        when: "used − driver − listed processes > 300 MiB for > 10 s",
        source: "rows 24, 34",
        shown_by: "generated samples",
        run: samples::unattributed,
    },
    Rule {
        name: "other_processes",
        class: Class::Structure,
        finds: "Others hold part of the device (live data)",
        when: "other processes ≥ 10 % of the device for ≥ 5 s",
        source: "row 25",
        shown_by: "generated samples",
        run: samples::other_processes,
    },
    Rule {
        name: "nearly_full",
        class: Class::Structure,
        finds: "The device is full to the brim (live data)",
        when: "used ≥ 97 % of the device for > 5 s",
        source: "row 28",
        shown_by: "generated samples",
        run: samples::nearly_full,
    },
    Rule {
        name: "grows_by_copy",
        class: Class::Peak,
        finds: "A buffer that is copied to grow",
        when: "one place makes ≥ 50 % of the bytes of ≥ 500 allocations, in ≥ 50 sizes, ≥ 8 times the peak in all; for ≥ 80 % of its allocations a somewhat smaller one from there was live and went first",
        source: "rows 7, 21",
        shown_by: "`serve_oom.pickle.gz`; corpus: `demo/kv_decode.default.pickle`; generated: a cache that is appended to",
        run: peak::copies,
    },
    Rule {
        name: "saw_tooth",
        class: Class::Peak,
        finds: "Memory that climbs over steps and falls at once",
        when: "≥ 7 steps; ≥ 3 teeth in their floors, each rising ≥ 3 steps and falling > 1/5 of the range; the highest ≥ 1/4 of the peak, peak ≥ 64 MiB",
        source: "row 6",
        shown_by: "generated: blocks kept for five steps, freed together; the scenario of cycles",
        run: beside::saw_tooth,
    },
    Rule {
        name: "spike",
        class: Class::Peak,
        finds: "One short-lived block makes the peak",
        when: "the largest block at the peak ≥ 256 MiB and ≥ 1/3 of it, live for < 1/10 of a step",
        source: "row 17",
        shown_by: "generated: one large block for two events",
        run: peak::spike,
    },
    Rule {
        name: "logits",
        class: Class::Peak,
        finds: "The loss over a large vocabulary makes the peak",
        when: "blocks at the peak with a frame that computes the loss (`cross_entropy`, `log_softmax`, `nll_loss`, `lm_head`): ≥ 512 MiB and ≥ 20 % of it",
        source: "row 17",
        shown_by: "generated: 1 GiB under `cross_entropy`",
        run: peak::logits,
    },
    Rule {
        name: "image_decoder",
        class: Class::Peak,
        finds: "Decoding the image makes the peak",
        when: "a block ≥ 1 GiB at the peak with a frame `decode` in a file of a VAE or autoencoder",
        source: "row 29",
        shown_by: "generated: 2 GiB under `autoencoder_kl.py decode`",
        run: peak::image_decoder,
    },
    Rule {
        name: "foreach_optimizer",
        class: Class::Peak,
        finds: "Temporaries of optimizer.step(), at the peak or not",
        when: "blocks with a frame `_multi_tensor_*` or `_foreach_*`, live for less than a step: at once ≥ 256 MiB and ≥ 5 % of the peak",
        source: "row 15",
        shown_by: "generated: 1 GiB under `_multi_tensor_adam`",
        run: peak::foreach_optimizer,
    },
    Rule {
        name: "gradient_buckets",
        class: Class::Peak,
        finds: "Gradients held twice, in DDP's buckets too",
        when: "blocks at the peak made in DDP's set-up or first forward: ≥ 256 MiB, ≥ 5 % of it, and gradients ≥ half as much",
        source: "row 16",
        shown_by: "generated: buckets beside gradients",
        run: peak::gradient_buckets,
    },
    Rule {
        name: "unused_graph",
        class: Class::Peak,
        finds: "A graph that autograd keeps and no backward pass uses",
        when: "a forward pass without a backward pass keeps blocks of ≥ 5 stacks, ≥ 1/5 of what it makes: ≥ 64 MiB and ≥ 10 % of the peak; nothing failed",
        source: "measured: 42 of 210 published recordings",
        shown_by: "generated: layers under `forward` that stay",
        run: kept::unused_graph,
    },
    Rule {
        name: "autocast_copies",
        class: Class::Peak,
        finds: "Half-precision copies of the weights",
        when: "blocks half as large as weights, made beside the result they serve, kept to the end of forward: ≥ 1/8 of the weights' bytes, ≥ 64 MiB and ≥ 10 % of the peak",
        source: "measured: 32 of 210 published recordings",
        shown_by: "generated: a cast beside the result of each layer",
        run: kept::autocast_copies,
    },
    Rule {
        name: "attention_scores",
        class: Class::Peak,
        finds: "Attention scores that fused attention would not keep",
        when: "blocks at the peak from a function named after attention, ≥ 2 lines of one size ≥ 1 MiB: ≥ 64 MiB and ≥ 10 % of the peak",
        source: "measured on published recordings",
        shown_by: "generated: three blocks of one size in `attention`",
        run: kept::attention_scores,
    },
    Rule {
        name: "written_out",
        class: Class::Peak,
        finds: "A formula in Python that keeps several tensors a layer",
        when: "one line outside attention and the loss has ≥ 3 activations of one size in each of ≥ 2 like layers: ≥ 64 MiB and ≥ 10 % of the peak",
        source: "measured on published recordings; a GELU written out in Transformers",
        shown_by: "generated: four blocks a layer from one line",
        run: kept::written_out,
    },
    Rule {
        name: "optimizer_state",
        class: Class::Peak,
        finds: "What the optimizer keeps, and what a smaller state would save",
        when: "optimizer state ≥ 25 % of the peak active and ≥ 64 MiB; and a quarter of it lowers the peak by ≥ 10 %, a request failed, or < 10 % of cap or device was left",
        source: "row 14",
        shown_by: "generated: a failure beside Adam's state",
        run: peak::optimizer_state,
    },
    Rule {
        name: "activations",
        class: Class::Peak,
        finds: "Activations kept for the backward pass, and what checkpointing would save",
        when: "activations ≥ 50 % of the peak active and ≥ 64 MiB; and checkpointing lowers the peak by ≥ 20 %, a request failed, or < 10 % of cap or device was left",
        source: "row 21",
        shown_by: "generated: a failure beside activations",
        run: peak::activations,
    },
    Rule {
        name: "rounding",
        class: Class::Hygiene,
        finds: "Blocks larger than what was asked for",
        when: "on a device, at the peak > 512 MiB and > 10 %; beside a failure > 16 MiB and > 2 %",
        source: "row 20",
        shown_by: "`kv_decode_oom.pickle.gz`",
        run: hygiene::rounding,
    },
    Rule {
        name: "workspaces",
        class: Class::Hygiene,
        finds: "Many cuBLAS workspaces",
        when: "workspaces of 8,519,680, 4,194,304 or 33,554,432 B at the peak: ≥ 128 MiB and ≥ 5 % of it",
        source: "row 12",
        shown_by: "generated: a workspace on each of four streams",
        run: hygiene::workspaces,
    },
    Rule {
        name: "context",
        class: Class::Hygiene,
        finds: "The cost of a CUDA context (live data)",
        when: "process − reserved in the last sample 128 MiB to 2 GiB and ≥ twice what PyTorch ever reserved",
        source: "row 2",
        shown_by: "generated samples; the scenario of contexts",
        run: beside::context,
    },
    Rule {
        name: "cap_without_context",
        class: Class::Hygiene,
        finds: "The cap leaves the context out (live data)",
        when: "reserved ≤ cap < process for ≥ 5 s",
        source: "row 32",
        shown_by: "generated samples",
        run: samples::cap_without_context,
    },
    Rule {
        name: "kept_numbers",
        class: Class::Hygiene,
        finds: "Numbers kept as tensors, where nothing larger grows",
        when: "≥ 20 steps; a stack leaves < 512 B in ≥ 4/5 of them, R² > 0.9; beside a `leak` that one gives the advice instead",
        source: "row 5",
        shown_by: "generated: a list of losses of 4 B",
        run: growth::numbers,
    },
    Rule {
        name: "idle_threshold",
        class: Class::Hygiene,
        finds: "`garbage_collection_threshold` that nothing acts on",
        when: "it is set, no cap is known, nothing failed, no segment was ever given back, peak reserved ≥ 64 MiB above peak active",
        source: "row 31",
        shown_by: "generated: a threshold and no fraction",
        run: hygiene::idle_threshold,
    },
    Rule {
        name: TRUNCATED,
        class: Class::Hygiene,
        finds: "A file that ends early; told before anything else",
        when: "the file breaks off",
        source: "the reader",
        shown_by: "generated: a snapshot cut before its end",
        run: hygiene::truncated,
    },
    Rule {
        name: "heavy_recording",
        class: Class::Hygiene,
        finds: "C++ frames make the recording heavy",
        when: "> 200,000 events or > 500 MiB, and C++ frames in half of the stacks or more",
        source: "row 35",
        shown_by: "generated: 200,002 events with C++ frames",
        run: hygiene::heavy_recording,
    },
    Rule {
        name: "no_history",
        class: Class::Hygiene,
        finds: "A snapshot without its history",
        when: "segments and no event on any device",
        source: "row 36",
        shown_by: "generated: segments alone",
        run: hygiene::no_history,
    },
];

/// The table of rules as Markdown: what the documentation holds.
#[must_use]
pub fn as_table() -> String {
    let mut out = String::from("| rule | class | finds | when | source | shown in tests by |\n|---|---|---|---|---|---|\n");
    for r in RULES {
        out += &format!("| `{}` | {} | {} | {} | {} | {} |\n", r.name, r.class.name(), r.finds, r.when, r.source, r.shown_by);
    }
    out
}
