//! The language as a table: what can be written and what it means. The parser takes the names of comparisons from it, error
//! messages their examples, the window its list and legend, and the command line its help.

use std::fmt::Write as _;

/// One kind of term.
pub(super) struct Entry {
    /// The name of the comparison; empty if it is not a comparison.
    pub name: &'static str,
    /// Synonyms of the name.
    pub also: &'static [&'static str],
    /// Ways to write it; error messages use the first one as example.
    pub forms: &'static [&'static str],
    /// What it matches, for the reference and for completion.
    pub about: &'static str,
}

const fn entry(name: &'static str, also: &'static [&'static str], forms: &'static [&'static str], about: &'static str) -> Entry {
    Entry { name, also, forms, about }
}

/// All kinds of terms, in the order in which they are listed.
pub(super) const ENTRIES: [Entry; 24] = [
    entry("size", &["bytes", "requested"], &["size>1MiB", "size=1MiB..2MiB", ">1MiB"], "requested bytes, before rounding"),
    entry("block", &[], &["block>=2MiB"], "the whole block, after rounding"),
    entry(
        "stack",
        &[],
        &["stack~attention", "stack=17", "stack=none"],
        "a frame's file or function contains it; a stack by number",
    ),
    entry("file", &[], &["file~train.py"], "a frame's file contains it"),
    entry("function", &["func"], &["function~forward"], "a frame's function contains it"),
    entry("module", &[], &["module~attention"], "below such a module's forward, or an annotation so named"),
    entry("", &[], &["stack~/attn|mlp/", "file~/…/", "function~/…/"], "a regular expression between slashes finds it"),
    entry("", &[], &["train.py:71", "\"two words\""], "in the stack or a note; quotes keep spaces"),
    entry("role", &["category", "cat"], &["role=gradients"], "what it is for; the inspector says why"),
    entry("live", &[], &["live@peak", "live@oom", "live@end", "live@1200"], "held at that instant, or after that event"),
    entry("", &[], &["live@cursor", "live@a", "live@b"], "held where the window's cursor or marker stands"),
    entry("step", &[], &["step=3", "step=3..5"], "born in this step"),
    entry("during", &["annotation", "range"], &["during~forward"], "born inside an annotation so named"),
    entry(
        "born",
        &["allocated"],
        &["born>1200", "born<2s", "born>peak", "born=before"],
        "allocated after or before; before the trace",
    ),
    entry("gone", &["freed"], &["gone>1200", "gone<oom", "gone=never"], "freed after or before; never"),
    entry("", &[], &["gone", "kept"], "freed in the trace, or not"),
    entry("age", &["lifetime", "lived"], &["age>5000", "age<2ms"], "how long it lived, in events or in time"),
    entry(
        "pool",
        &[],
        &["pool=private", "pool=default", "pool=small", "pool=large", "pool=0.7"],
        "a kind of pool, or the pool with this key",
    ),
    entry("stream", &[], &["stream=1", "stream=0x55d0c8a0"], "a stream, by its index or handle"),
    entry(
        "addr",
        &["address", "segment"],
        &["addr=0x7f1dca2b7000", "0x7f1d.."],
        "the block that holds this address, or begins so",
    ),
    entry("id", &[], &["id=12"], "this row, by its number"),
    entry("event", &[], &["event=100..200", "27584"], "born within these events; the allocation of this event"),
    entry("time", &[], &["time>100ms"], "born so long after the first event"),
    entry("action", &[], &["action=alloc", "alloc", "free", "oom"], "events of this kind; born, or freed, in the trace"),
];

/// How terms are combined, and units of values: form and meaning.
pub const GRAMMAR: [(&str, &str); 5] = [
    ("A B, A and B, A or B", "both must hold; either of two choices"),
    ("-A, not A, !=, !~", "everything but"),
    ("=  !=  <  <=  >  >=  a..b", "compare numbers; 2MiB<size is size>2MiB"),
    ("B  KiB  MiB  GiB  kB  MB  GB", "units of a size; none is bytes"),
    ("us  ms  s  min", "units of a time; a number without one is an event"),
];

/// Meaning of a form or a name in [`ENTRIES`]; empty for anything else.
pub(super) fn about(written: &str) -> &'static str {
    let of_form = ENTRIES.iter().find(|e| e.forms.contains(&written));
    of_form.or_else(|| ENTRIES.iter().find(|e| e.name == written && !written.is_empty())).map_or("", |e| e.about)
}

/// The whole language as text, one line per kind of term, as printed by `allocations --help`.
pub fn reference() -> String {
    let mut out =
        String::from("Queries:\n  Terms side by side must all hold. Letters match without regard to case; ~ means contains.\n\n");
    let rows = ENTRIES.iter().map(|e| (e.forms.join(", "), e.about)).chain(GRAMMAR.iter().map(|&(w, a)| (w.to_owned(), a)));
    for (written, about) in rows {
        let _ = writeln!(out, "  {written:<60}  {about}");
    }
    let names: Vec<String> =
        ENTRIES.iter().filter(|e| !e.also.is_empty()).map(|e| format!("{} = {}", e.name, e.also.join(" = "))).collect();
    let _ = write!(
        out,
        "\n  Other words: {}, kept = leaked, private = graph.\n  Example: --where 'size>1 MiB stack~attention live@peak or gone=never'",
        names.join(", ")
    );
    out
}
