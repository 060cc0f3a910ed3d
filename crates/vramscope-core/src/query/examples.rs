//! Example queries built from the recording itself: its own sizes, places, steps and streams.

use super::reference::{GRAMMAR, about};
use super::{Query, Scope};
use crate::anatomy::roles::Role;
use crate::model::{Cancelled, Progress};
use crate::tables::{Lifetime, LifetimeId, NO_EVENT, StackNames, innermost};
use crate::units::Address;

/// An example query for this recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The query as typed.
    pub query: String,
    /// What it matches, one line from the table of the language.
    pub about: &'static str,
    /// Number of matching allocations; `None` where counting would take too long.
    pub holds: Option<usize>,
}

/// Above this many allocations nothing is counted, because some two dozen queries would run.
const COUNTED: usize = 2_000_000;

/// At least one example per kind of term, with words of this recording. O(examples × allocations) up to two million allocations.
pub fn examples(scope: &Scope<'_>, names: &StackNames, progress: &Progress) -> Result<Vec<Example>, Cancelled> {
    let mut out: Vec<Example> = Vec::new();
    let (device, tables, stacks) = (scope.device, scope.tables, &scope.recording.stacks);
    let lifetimes = &tables.lifetimes;
    let mut add = |query: String, about: &'static str| out.push(Example { query, about, holds: None });
    let peak = tables.curves.peak_event();
    let mut live: Vec<Lifetime> =
        tables.states.live_at(lifetimes, peak).into_iter().filter_map(|id| lifetimes.get(device, id)).collect();
    live.sort_by_key(|l| (std::cmp::Reverse(l.requested), l.id));
    let largest = live.first().cloned().or_else(|| lifetimes.get(device, LifetimeId(0)));
    let Some(largest) = largest else { return Ok(out) };
    // An allocation that is live at the peak and was made in the trace with a stack gives the best examples.
    let told = live.iter().find(|l| l.stack.is_some() && l.born != NO_EVENT).unwrap_or(&largest);
    add(format!("size>{}", binary(largest.requested / 2)), about("size"));
    add(format!("size={}..{}", binary(largest.requested / 4), binary(largest.requested.saturating_mul(2))), "between two sizes");
    add(format!("block>={}", binary(largest.block / 2)), about("block"));
    if told.stack.is_some() {
        let quoted = |text: &str| {
            let text = text.replace('"', "");
            if text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text }
        };
        let place = names.of_stack(told.stack);
        add(format!("stack~{}", quoted(place)), about("stack"));
        add(quoted(place), about("train.py:71"));
        if let Some(frame) = innermost(stacks, told.stack).and_then(|f| stacks.frame(f)) {
            let (file, function) = (stacks.text(frame.file), stacks.text(frame.name));
            add(format!("file~{}", quoted(file.rsplit(['/', '\\']).next().unwrap_or(file))), about("file"));
            add(format!("function~{}", quoted(function)), about("function"));
            if !function.is_empty() && function.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                add(format!("function~/^{function}$/"), about("stack~/attn|mlp/"));
            }
        }
        let module = live.iter().flat_map(|l| stacks.frames(l.stack)).filter_map(|&f| stacks.frame(f)).find_map(|f| {
            let name = stacks.text(f.name);
            let file = stacks.text(f.file).rsplit(['/', '\\']).next().unwrap_or("");
            let named = name.strip_prefix("nn.Module: ").or_else(|| (name == "forward").then_some(file))?;
            Some(named.trim_end_matches(".py").to_owned())
        });
        if let Some(module) = module.filter(|m| !m.is_empty()) {
            add(format!("module~{}", quoted(&module)), about("module"));
        }
    }
    if let Some(roles) = scope.roles {
        let role = roles.of(told.id);
        add(format!("role={}", role.name()), about("role"));
        if role != Role::Unknown {
            add(format!("role!={}", role.name()), "everything but; -term and not do the same");
        }
    }
    add("live@peak".to_owned(), "held where memory peaks");
    if !device.events.ooms().is_empty() {
        add("live@oom".to_owned(), "held when memory ran out");
    }
    add("live@cursor".to_owned(), about("live@cursor"));
    add(format!("pool={}", largest.class.name()), "small or large requests");
    if device.pools.iter().any(|&key| key != (0, 0)) {
        add("pool=graph".to_owned(), "private pools: of CUDA graphs, or the program's own");
    }
    add(format!("stream={}", told.stream.0), about("stream"));
    if let Some(steps) = scope.steps.filter(|s| !s.is_empty()) {
        add(format!("step={}", steps.of(told.born).unwrap_or(steps.len() / 2) + 1), about("step"));
    }
    if let Some(a) = device.annotations.first() {
        let name = crate::anatomy::steps::kind(stacks.text(a.name)).replace('"', "");
        let shown = if name.contains(char::is_whitespace) { format!("during~\"{name}\"") } else { format!("during~{name}") };
        add(shown, about("during"));
    }
    let middle = device.events.len() / 2;
    add(format!("born<{middle}"), "allocated before an event; also a time (2ms) or an instant (peak)");
    add(format!("gone>{middle}"), "freed after an event");
    add("gone=never".to_owned(), "never freed in the trace; kept says the same");
    if lifetimes.initial_count() > 0 {
        add("born=before".to_owned(), "there before the trace began");
    }
    let age = told.gone.min(device.events.len() as u32).saturating_sub(if told.born == NO_EVENT { 0 } else { told.born });
    add(format!("age>{}", age / 2), about("age"));
    if device.events.has_time {
        add("age<1s".to_owned(), "lived shorter than this; us, ms, s, min");
    }
    if told.born != NO_EVENT {
        add(format!("event={}..{}", told.born, told.born.saturating_add(99)), about("event"));
        add("alloc".to_owned(), about("action"));
    }
    add(format!("addr={}", Address(told.address)), about("addr"));
    add(format!("id={}", told.id.0), about("id"));
    add(format!("size>{} or gone=never", binary(largest.requested / 2)), GRAMMAR[0].1);
    out.dedup_by(|a, b| a.query == b.query);
    if lifetimes.len() <= COUNTED {
        for example in &mut out {
            progress.check()?;
            if let Ok(query) = Query::parse(&example.query) {
                example.holds = Some(query.allocations(scope, progress)?.len());
            }
        }
    }
    Ok(out)
}

/// The greatest power of two up to `bytes`, with its unit and without a space: `512MiB`.
fn binary(bytes: u64) -> String {
    let power = bytes.checked_ilog2().unwrap_or(0);
    let (shift, unit) = match power {
        30.. => (30, "GiB"),
        20.. => (20, "MiB"),
        10.. => (10, "KiB"),
        _ => (0, ""),
    };
    format!("{}{unit}", 1u64 << (power - shift))
}
