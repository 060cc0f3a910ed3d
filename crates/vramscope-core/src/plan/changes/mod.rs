//! What a change to the program would do, from a recording without it: its requests are transformed, and run on the model.
//!
//! Each change is a transformation of the request stream by roles and phases. `docs/PLAN.md` has how reliable each is and what
//! was measured.

mod code;
mod draft;
mod optimizer;
mod passes;
mod repeats;
mod weights;

use rayon::prelude::*;
use serde::Serialize;

use super::law::QUANTITIES;
use super::predict::{Pick, Predicted, Stream};
use super::{Model, Plan, Setting, Size};
use crate::anatomy::{Phase, Role};
use crate::inference::scripted::{Ask, Asked};
use draft::{Draft, scaled};

pub use code::Code;

/// A change to a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Checkpoint a module that repeats; of a name, or the one that keeps most.
    Checkpoint(Option<String>),
    /// An optimizer with `foreach=False`.
    NoForeach,
    /// An optimizer with `fused=True`.
    Fused,
    /// An optimizer with state in eight bits.
    EightBit,
    /// SGD without momentum: no optimizer state.
    Sgd,
    /// `zero_grad(set_to_none=True)` behind each optimizer step.
    SetToNone,
    /// The optimizer steps inside the backward pass.
    InBackward,
    /// Weights, their gradients and state in bf16.
    Bf16,
    /// Autocast with `cache_enabled=False`: no copies of weights are kept.
    CacheOff,
    /// Logits and loss in this many chunks.
    Chunks(u32),
    /// Saved tensors on the host.
    Offload,
    /// `del` of the tensors that a line (`train.py:71`) makes.
    Del(String),
    /// LoRA of a rank.
    Lora(u64),
}

/// How far an answer about a change can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Requests only go away or move to places that the recording shows.
    Exact,
    /// What is made again, and when, is taken from the recorded forward pass.
    Close,
    /// Sizes or places rest on assumptions; the truth may be some percent off.
    Estimate,
}

/// What a change gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The changes, as they are written after `--change`.
    pub change: String,
    /// The changes in plain words, without a full stop.
    pub title: String,
    /// Why it does nothing here; `null` where it applies.
    pub reason: Option<String>,
    /// The most reserved bytes.
    pub peak_reserved_bytes: u64,
    /// The most allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Least and most reserved bytes.
    pub span: [u64; 2],
    /// A request fails under the limit.
    pub oom: bool,
    /// It passes in some of the runs tried, or with a little more or less room.
    pub oom_varies: bool,
    /// How often cached memory is given back and asked for again.
    pub retries: u64,
    /// By how much the peak of allocated bytes falls; negative where it rises.
    pub saves_bytes: i64,
    /// The largest size that fits the limit; `null` without one.
    pub largest: Option<u64>,
    /// Requests made a second time in each step.
    pub recomputed_requests: u64,
    /// Bytes of these requests.
    pub recomputed_bytes: u64,
    /// Bytes moved to the host and back in each step.
    pub moved_bytes: u64,
    /// What it costs, in words.
    pub cost: &'static str,
    /// How far it can be trusted.
    pub trust: Trust,
    /// Python lines that make the changes.
    pub code: Code,
}

/// Requests that a change was made to, with sizes still to be filled in.
struct Edited {
    asks: Vec<Ask>,
    rows: Vec<draft::Draw>,
    low: rustc_hash::FxHashMap<u32, (u32, u32)>,
    reason: Option<String>,
    recomputed: u64,
    again: u64,
    moved: u64,
    place: Option<String>,
}

impl Change {
    /// Every change that needs no name, mildest first.
    #[must_use]
    pub fn all() -> Vec<Change> {
        use Change as C;
        vec![
            C::SetToNone,
            C::Fused,
            C::NoForeach,
            C::CacheOff,
            C::Chunks(8),
            C::InBackward,
            C::EightBit,
            C::Checkpoint(None),
            C::Bf16,
            C::Offload,
            C::Sgd,
            C::Lora(16),
        ]
    }

    /// Reads `checkpoint:Block`, `fused`, `chunks:8`; sums are written with a plus.
    ///
    /// # Errors
    /// One sentence that lists the changes.
    pub fn parse(text: &str) -> Result<Vec<Change>, String> {
        text.split('+').map(|part| Self::parse_one(part.trim())).collect()
    }

    fn parse_one(text: &str) -> Result<Change, String> {
        let (name, rest) =
            text.split_once([':', '=']).map_or((text, None), |(n, r)| (n, Some(r.trim()).filter(|r| !r.is_empty())));
        let number = |default: u64| match rest {
            None => Ok(default),
            Some(r) => r
                .parse::<u64>()
                .ok()
                .filter(|n| (1..1 << 20).contains(n))
                .ok_or(format!("\"{r}\" in \"{text}\" is no number above 0")),
        };
        Ok(match name.trim().to_ascii_lowercase().replace(['-', ' '], "_").as_str() {
            "checkpoint" | "checkpointing" => Change::Checkpoint(rest.map(str::to_owned)),
            "no_foreach" | "foreach" | "foreach_false" => Change::NoForeach,
            "fused" => Change::Fused,
            "8bit" | "8_bit" | "eight_bit" => Change::EightBit,
            "sgd" => Change::Sgd,
            "set_to_none" | "zero_grad" => Change::SetToNone,
            "in_backward" | "step_in_backward" => Change::InBackward,
            "bf16" | "bf16_weights" => Change::Bf16,
            "cache_off" | "autocast_cache_off" | "no_cache" => Change::CacheOff,
            "chunks" | "logits" | "logits_in_chunks" => Change::Chunks(u32::try_from(number(8)?).unwrap_or(8)),
            "offload" => Change::Offload,
            "del" => match rest {
                Some(line) => Change::Del(line.to_owned()),
                None => return Err("del needs a line, as in del:train.py:71".to_owned()),
            },
            "lora" => Change::Lora(number(16)?),
            _ => {
                return Err(format!(
                    "\"{text}\" is no change: write checkpoint or checkpoint:NAME, no_foreach, fused, 8bit, sgd, set_to_none, in_backward, \
                     bf16, cache_off, chunks:N, offload, del:FILE:LINE, lora:RANK, or several with a plus between"
                ));
            }
        })
    }

    /// As it is written after `--change`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Change::Checkpoint(None) => "checkpoint".to_owned(),
            Change::Checkpoint(Some(name)) => format!("checkpoint:{name}"),
            Change::NoForeach => "no_foreach".to_owned(),
            Change::Fused => "fused".to_owned(),
            Change::EightBit => "8bit".to_owned(),
            Change::Sgd => "sgd".to_owned(),
            Change::SetToNone => "set_to_none".to_owned(),
            Change::InBackward => "in_backward".to_owned(),
            Change::Bf16 => "bf16".to_owned(),
            Change::CacheOff => "cache_off".to_owned(),
            Change::Chunks(n) => format!("chunks:{n}"),
            Change::Offload => "offload".to_owned(),
            Change::Del(line) => format!("del:{line}"),
            Change::Lora(rank) => format!("lora:{rank}"),
        }
    }

    /// How much it asks of a user and a run, for the search of the cheapest: time, results, work.
    #[must_use]
    pub fn price(&self) -> u32 {
        match self {
            Change::SetToNone | Change::Fused | Change::CacheOff | Change::Del(_) => 1,
            Change::NoForeach => 2,
            Change::InBackward => 6,
            Change::Checkpoint(_) => 12,
            // What is only estimated comes after what is known.
            Change::Chunks(_) => 14,
            Change::EightBit => 16,
            Change::Bf16 => 20,
            Change::Offload => 30,
            Change::Sgd => 60,
            Change::Lora(_) => 80,
        }
    }

    /// Two that say other things of the same.
    #[must_use]
    pub fn excludes(&self, other: &Change) -> bool {
        let kind = |c: &Change| match c {
            Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward => 1,
            Change::Checkpoint(_) | Change::Offload => 2,
            Change::Bf16 | Change::Lora(_) => 3,
            _ => 0,
        };
        self == other || (kind(self) != 0 && kind(self) == kind(other))
    }

    fn trust(&self) -> Trust {
        match self {
            Change::Sgd | Change::Fused | Change::CacheOff => Trust::Exact,
            Change::NoForeach | Change::SetToNone | Change::InBackward | Change::Checkpoint(_) | Change::Del(_) => Trust::Close,
            Change::EightBit | Change::Bf16 | Change::Chunks(_) | Change::Offload | Change::Lora(_) => Trust::Estimate,
        }
    }

    /// What the recording lacks that this changes.
    fn lacks(&self, draft: &Draft<'_>) -> Option<&'static str> {
        let has = |role: Role| draft.rows.iter().any(|row| row.role == role);
        match self {
            Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward | Change::Lora(_) => {
                let has_step = has(Role::OptimizerState) || draft.rows.iter().any(|row| row.phase == Phase::Optimizer);
                (!has_step).then_some("no optimizer is in the recording")
            }
            Change::Bf16 if !has(Role::Weights) => Some("the recording does not tell which blocks are weights"),
            Change::Bf16 => (draft.bytes_of_element() == 2).then_some("the weights have 16 bits already"),
            Change::Offload => {
                (!has(Role::Activations)).then_some("the recording shows no tensors that are kept for a backward pass")
            }
            _ => None,
        }
    }

    fn apply(&self, draft: &mut Draft<'_>, edited: &mut Edited) {
        if let Some(why) = self.lacks(draft) {
            edited.reason.get_or_insert(why.to_owned());
            return;
        }
        let mut nothing = |applies: bool, why: &str| {
            if !applies {
                edited.reason.get_or_insert(why.to_owned());
            }
        };
        match self {
            Change::Checkpoint(name) => match passes::checkpoint(draft, name.as_deref()) {
                Some((place, times)) => edited.place = Some(format!("{place}, called {times} times")),
                None => nothing(false, "no module of the forward pass repeats"),
            },
            Change::NoForeach => optimizer::without_foreach(draft),
            Change::Fused => optimizer::fused(draft),
            Change::EightBit => optimizer::eight_bit(draft),
            Change::Sgd => optimizer::sgd(draft),
            Change::SetToNone => {
                nothing(optimizer::set_to_none(draft), "gradients are freed before the next forward pass already")
            }
            Change::InBackward => optimizer::in_backward(draft),
            Change::Bf16 => weights::bf16(draft),
            Change::CacheOff => {
                nothing(passes::cache_off(draft), "the backward pass needs autocast's copies, with or without the cache")
            }
            Change::Chunks(n) => nothing(passes::chunks(draft, *n), "no logits stand out at the end of the forward pass"),
            Change::Offload => passes::offload(draft),
            Change::Del(line) => nothing(passes::del(draft, line), "nothing that this line makes outlives its phase"),
            Change::Lora(rank) => weights::lora(draft, *rank),
        }
    }
}

/// Makes changes to the requests of a model.
fn edit(model: &Model, changes: &[Change]) -> Edited {
    let mut draft = Draft::of(&model.program);
    let mut edited = Edited {
        asks: Vec::new(),
        rows: Vec::new(),
        low: rustc_hash::FxHashMap::default(),
        reason: None,
        recomputed: 0,
        again: 0,
        moved: 0,
        place: None,
    };
    for change in changes {
        change.apply(&mut draft, &mut edited);
    }
    Edited {
        asks: draft.asks,
        rows: draft.rows,
        low: draft.low,
        recomputed: draft.recomputed,
        again: draft.again,
        moved: draft.moved,
        ..edited
    }
}

impl Edited {
    /// The requests at some values.
    fn stream(&self, model: &Model, at: &[u64], pick: Pick, is_low: bool) -> Stream {
        let sizes = model.sizes_by(at, pick);
        let program = &model.program;
        let rows = self
            .rows
            .iter()
            .zip(0u32..)
            .map(|(draw, row)| {
                let r = &program.rows[draw.of as usize];
                let low = self.low.get(&row).filter(|_| is_low).copied().unwrap_or((1, 1));
                let size = scaled(scaled(sizes[draw.of as usize], draw.part), low);
                Asked { size, stream: r.stream, pool: r.pool }
            })
            .collect();
        let older = program.older as u32;
        let asks = (0..older).map(Ask::Alloc).chain(self.asks.iter().copied()).collect();
        Stream { asks, rows, roles: self.rows.iter().map(|d| d.role).collect(), start: None }
    }
}

impl Plan {
    /// The requests at a size with changes, and the program's row behind each step.
    pub(super) fn stream_of(&self, size: &Size, changes: &[Change]) -> Option<(Stream, Vec<u32>)> {
        let model = self.model()?;
        let at = size.values(&self.names)?;
        let edited = edit(model, changes);
        // Without a change the program begins as its recording did.
        let stream =
            if changes.is_empty() { model.stream(&at, Pick::Likely) } else { edited.stream(model, &at, Pick::Likely, false) };
        let row = |ask: &Ask| match *ask {
            Ask::Alloc(row) | Ask::Free(row) | Ask::FreeLater(row) | Ask::Complete(row) => {
                edited.rows.get(row as usize).map_or(u32::MAX, |draw| draw.of)
            }
            Ask::EmptyCache => u32::MAX,
        };
        let of = stream.asks.iter().map(row).collect();
        Some((stream, of))
    }

    /// What changes together do at a size; the largest value of `name` that fits where there is a limit.
    #[must_use]
    pub fn change(&self, changes: &[Change], size: &Size, setting: &Setting, name: Option<&str>) -> Option<Changed> {
        let model = self.model()?;
        let edited = edit(model, changes);
        let unlimited = Setting { limit: None, ..setting.clone() };
        let now = self.under(size, &unlimited);
        let under = predict(model, &edited, size, setting);
        let then = if under.oom { predict(model, &edited, size, &unlimited) } else { under.clone() };
        let passes = |size: &Size| {
            let answer = predict(model, &edited, size, &self.with_margin(size, setting));
            !answer.oom && !answer.oom_varies
        };
        let largest = match (name, setting.limit) {
            (Some(name), Some(_)) => Some(largest(|value| passes(&size.with(name, value)), size.get(name).unwrap_or(1))),
            _ => None,
        };
        // What it costs grows with the program.
        let at = size.values(&self.names).unwrap_or_else(|| vec![1; QUANTITIES]);
        let recorded: u64 = model.program.rows.iter().map(|r| r.size).sum();
        let wanted: u64 = model.sizes(&at).iter().sum();
        let grown = |bytes: u64| (u128::from(bytes) * u128::from(wanted) / u128::from(recorded.max(1))) as u64;
        let trust = changes.iter().map(Change::trust).max().unwrap_or(Trust::Exact);
        let titles: Vec<String> = changes.iter().map(|c| c.title(edited.place.as_deref())).collect();
        let names: Vec<String> = changes.iter().map(Change::name).collect();
        Some(Changed {
            change: names.join("+"),
            title: titles.join("; "),
            reason: edited.reason.clone(),
            peak_reserved_bytes: then.peak_reserved_bytes,
            peak_allocated_bytes: then.peak_allocated_bytes,
            span: then.span,
            oom: under.oom,
            oom_varies: under.oom_varies || (!under.oom && setting.limit.is_some() && !passes(size)),
            retries: under.retries,
            saves_bytes: now.peak_allocated_bytes as i64 - then.peak_allocated_bytes as i64,
            largest,
            recomputed_requests: edited.again,
            recomputed_bytes: grown(edited.recomputed),
            moved_bytes: grown(edited.moved),
            cost: changes.iter().max_by_key(|c| c.price()).map_or("", Change::cost),
            trust,
            code: Code::of(changes),
        })
    }

    /// Every change alone; before them, if the size does not fit, the cheapest combination that makes it fit.
    #[must_use]
    pub fn all_changes(&self, size: &Size, setting: &Setting, name: Option<&str>) -> Vec<Changed> {
        let singles: Vec<Changed> =
            Change::all().par_iter().filter_map(|c| self.change(std::slice::from_ref(c), size, setting, name)).collect();
        let cheapest = if setting.limit.is_some() && self.under(size, setting).oom {
            self.cheapest(size, setting).and_then(|found| self.change(&found, size, setting, name))
        } else {
            None
        };
        let mut all: Vec<Changed> = cheapest.into_iter().collect();
        all.extend(singles.into_iter().filter(|single| all.iter().all(|best| best.title != single.title)).collect::<Vec<_>>());
        all
    }

    /// The cheapest changes, three at most, under which a size fits.
    #[must_use]
    pub fn cheapest(&self, size: &Size, setting: &Setting) -> Option<Vec<Change>> {
        let model = self.model()?;
        let all: Vec<Change> =
            Change::all().into_iter().filter(|c| edit(model, std::slice::from_ref(c)).reason.is_none()).collect();
        let mut sets: Vec<Vec<Change>> = all.iter().map(|c| vec![c.clone()]).collect();
        for _ in 0..2 {
            let longer = sets.iter().flat_map(|set| {
                let from = all.iter().position(|c| set.last() == Some(c)).map_or(0, |i| i + 1);
                let more = all[from..].iter().filter(|c| !set.iter().any(|s| s.excludes(c)));
                more.map(|c| set.iter().cloned().chain([c.clone()]).collect::<Vec<_>>()).collect::<Vec<_>>()
            });
            let longer: Vec<Vec<Change>> = longer.collect();
            sets.extend(longer);
        }
        let sure = self.with_margin(size, setting);
        sets.sort_by_key(|set| (set.iter().map(Change::price).sum::<u32>(), set.len()));
        sets.dedup();
        sets.into_iter().find(|set| {
            let answer = predict(model, &edit(model, set), size, &sure);
            !answer.oom && !answer.oom_varies
        })
    }
}

fn predict(model: &Model, edited: &Edited, size: &Size, setting: &Setting) -> Predicted {
    let at = size.values(&model.names).unwrap_or_else(|| vec![1; QUANTITIES]);
    let point = edited.stream(model, &at, Pick::Likely, false);
    let mut others = Vec::new();
    if !edited.low.is_empty() {
        others.push(edited.stream(model, &at, Pick::Likely, true));
    }
    if model.has_guess(&at) {
        others.push(edited.stream(model, &at, Pick::Least, false));
        others.push(edited.stream(model, &at, Pick::Most, false));
    }
    model.answer(size, setting, &point, others).1
}

/// The largest value that passes, which passes below too.
fn largest(passes: impl Fn(u64) -> bool, from: u64) -> u64 {
    let (mut low, mut high) = (0, from.max(1));
    while high < 1 << 24 && passes(high) {
        low = high;
        high *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if passes(middle) { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_read_as_they_are_written() {
        for change in Change::all() {
            assert_eq!(Change::parse(&change.name()), Ok(vec![change]));
        }
        assert_eq!(
            Change::parse("checkpoint:Block+fused"),
            Ok(vec![Change::Checkpoint(Some("Block".to_owned())), Change::Fused])
        );
        assert_eq!(Change::parse("del:train.py:71"), Ok(vec![Change::Del("train.py:71".to_owned())]));
        assert!(Change::parse("magic").is_err() && Change::parse("del").is_err() && Change::parse("chunks:0").is_err());
    }

    #[test]
    fn the_largest_that_passes_is_found() {
        for most in [0, 1, 2, 7, 8, 9, 1000] {
            assert_eq!(largest(|n| n <= most, 8), most);
        }
    }
}
