//! The effect of a change to the program on its requests, derived from roles and phases. Works for recorded runs and for planned
//! ones. `docs/PLAN.md` says how reliable each change is and what was measured.
//!
//! [`Recorded::with`] computes what changes do to a recording's peak. [`Plan`](crate::plan::Plan) runs them on the allocator model.

mod code;
mod draft;
mod optimizer;
mod passes;
mod recorded;
mod repeats;
mod requests;
mod unneeded;
mod weights;

use serde::Serialize;

use crate::anatomy::{Phase, Role};
use crate::inference::scripted::Ask;
use crate::units::{count, nearest};

pub(crate) use code::FREE;
pub use code::{Code, titled};
pub(crate) use draft::{Draft, Draw, scaled};
pub use recorded::{Answer, Recorded};
pub use requests::Row;
pub(crate) use requests::{NEVER, Requests, unneeded};

/// A change to a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Checkpoint a repeated module: the one with this class, function, file or `file:line`; by default whole layers that keep nearly the
    /// most.
    Checkpoint(Option<String>),
    /// Pass `foreach=False` to the optimizer.
    NoForeach,
    /// Pass `fused=True` to the optimizer.
    Fused,
    /// An optimizer with 8-bit state.
    EightBit,
    /// SGD without momentum, which has no optimizer state.
    Sgd,
    /// `zero_grad(set_to_none=True)` after each optimizer step.
    SetToNone,
    /// Run the optimizer step inside the backward pass.
    InBackward,
    /// The whole model in bf16: weights, gradients, optimizer state and activations.
    Bf16,
    /// Autocast with `cache_enabled=False`, so that no copies of weights are kept.
    CacheOff,
    /// Compute logits and loss in this many chunks.
    Chunks(u32),
    /// Keep saved tensors in host memory.
    Offload,
    /// `del` the tensors that a line (`train.py:71`) makes.
    Del(String),
    /// LoRA with this rank.
    Lora(u64),
    /// Run forward passes without a backward pass under `no_grad`.
    NoGrad,
    /// Use a fused attention kernel, which keeps no scores.
    FusedAttention,
    /// Free what a step leaves behind, such as outputs in a list, when the step ends.
    Release,
}

/// The kind of cost of a change, cheapest first. [`Plan::cheapest`](crate::plan::Plan::cheapest) tries all changes of one kind
/// before any of the next, however much they save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cost {
    /// An allocator setting; the program stays the same.
    #[default]
    Setting,
    /// A line of code; results and time stay the same.
    Code,
    /// Same results in more time: recomputation, transfers, or more passes.
    Time,
    /// Results with different rounding.
    Rounding,
    /// Different training: another optimizer, or other trained parameters.
    Training,
}

/// How reliable an answer about a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Requests only disappear or move to positions that the recording shows.
    Exact,
    /// Recomputed blocks and their times are taken from the recorded forward pass.
    Close,
    /// Sizes or positions rest on assumptions; the figure may be off by a few percent.
    Estimate,
}

/// Why a change cannot be made without stacks.
const NO_STACKS: &str =
    "the recording has no stacks, so nothing shows which requests it would change; record with stacks=\"python\"";

/// Limit for numbers in a change: more chunks leave no rows per chunk, and a higher LoRA rank adds more weights than it saves.
const MOST: u64 = 4096;

/// Changed requests, whose sizes still have to be filled in.
pub(crate) struct Edited {
    pub(crate) asks: Vec<Ask>,
    pub(crate) rows: Vec<Draw>,
    pub(crate) low: rustc_hash::FxHashMap<u32, (u32, u32)>,
    pub(crate) reason: Option<String>,
    pub(crate) recomputed: u64,
    pub(crate) again: u64,
    pub(crate) moved: u64,
    pub(crate) open: u64,
    /// The line that calls the checkpointed module, and the number of calls.
    pub(crate) place: Option<(String, usize)>,
    /// Bytes per element of optimizer state before it became 8-bit; 0 if it did not.
    pub(crate) bytes_of_state: u64,
}

impl Change {
    /// Every change that needs no name, cheapest first.
    pub fn all() -> Vec<Change> {
        use Change as C;
        vec![
            C::Release,
            C::NoGrad,
            C::SetToNone,
            C::Fused,
            C::CacheOff,
            C::FusedAttention,
            C::NoForeach,
            C::InBackward,
            C::Chunks(8),
            C::Checkpoint(None),
            C::Offload,
            C::EightBit,
            C::Bf16,
            C::Sgd,
            C::Lora(16),
        ]
    }

    /// Parses `checkpoint:Block`, `fused`, `chunks:8`; several changes are joined by `+`.
    ///
    /// # Errors
    /// A sentence that lists the possible changes.
    pub fn parse(text: &str) -> Result<Vec<Change>, String> {
        let changes: Vec<Change> = text.split('+').map(|part| Self::parse_one(part.trim())).collect::<Result<_, _>>()?;
        let is_optimizer =
            |c: &Change| matches!(c, Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward);
        let clash = |a: &Change, b: &Change| a == b || (is_optimizer(a) && is_optimizer(b));
        for (i, change) in changes.iter().enumerate() {
            if let Some(other) = changes[..i].iter().find(|other| clash(change, other)) {
                return Err(format!("{} and {} cannot be combined: a program has one of them", other.name(), change.name()));
            }
        }
        Ok(changes)
    }

    fn parse_one(text: &str) -> Result<Change, String> {
        let (name, rest) =
            text.split_once([':', '=']).map_or((text, None), |(n, r)| (n, Some(r.trim()).filter(|r| !r.is_empty())));
        let number = |default: u64| match rest {
            None => Ok(default),
            Some(r) => r
                .parse::<u64>()
                .ok()
                .filter(|n| (1..=MOST).contains(n))
                .ok_or(format!("\"{r}\" in \"{text}\" is no number from 1 to {}", count(MOST))),
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
            "no_grad" | "inference_mode" => Change::NoGrad,
            "fused_attention" | "sdpa" | "flash_attention" => Change::FusedAttention,
            "release" => Change::Release,
            other => {
                let known = Change::all();
                let names: Vec<String> =
                    known.iter().map(|c| c.name().split(':').next().unwrap_or_default().to_owned()).collect();
                if let Some(meant) = nearest(other, names.iter().map(String::as_str)) {
                    return Err(format!("\"{text}\" is no change; did you mean {meant}?"));
                }
                return Err(format!(
                    "\"{text}\" is no change: write checkpoint or checkpoint:NAME, no_foreach, fused, 8bit, sgd, set_to_none, in_backward, \
                     bf16, cache_off, chunks:N, offload, del:FILE:LINE, lora:RANK, no_grad, fused_attention, release, or several with a plus between"
                ));
            }
        })
    }

    /// The name used after `--change`.
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
            Change::NoGrad => "no_grad".to_owned(),
            Change::FusedAttention => "fused_attention".to_owned(),
            Change::Release => "release".to_owned(),
        }
    }

    /// The price: the kind of cost, and the amount within that kind.
    pub fn price(&self) -> (Cost, u32) {
        match self {
            Change::SetToNone | Change::Fused | Change::CacheOff | Change::Del(_) | Change::NoGrad | Change::Release => {
                (Cost::Code, 1)
            }
            Change::FusedAttention => (Cost::Code, 2),
            Change::NoForeach => (Cost::Time, 2),
            Change::InBackward => (Cost::Time, 6),
            // The last layer runs twice.
            Change::Chunks(_) => (Cost::Time, 8),
            // The whole forward pass runs twice: a third more time.
            Change::Checkpoint(_) => (Cost::Time, 20),
            // Every activation crosses the bus twice in each step.
            Change::Offload => (Cost::Time, 40),
            Change::EightBit => (Cost::Rounding, 16),
            Change::Bf16 => (Cost::Rounding, 20),
            Change::Sgd => (Cost::Training, 60),
            Change::Lora(_) => (Cost::Training, 80),
        }
    }

    /// The price of several changes together: the most expensive kind, and the sum of the amounts.
    pub fn price_of(changes: &[Change]) -> (Cost, u32) {
        let sum = |(kind, sum): (Cost, u32), change: &Change| (kind.max(change.price().0), sum + change.price().1);
        changes.iter().fold((Cost::Setting, 0), sum)
    }

    /// True if the two changes contradict each other.
    pub fn excludes(&self, other: &Change) -> bool {
        let kind = |c: &Change| match c {
            Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward => 1,
            Change::Checkpoint(_) | Change::Offload => 2,
            Change::Bf16 | Change::Lora(_) => 3,
            _ => 0,
        };
        self == other || (kind(self) != 0 && kind(self) == kind(other))
    }

    /// Its position among several changes: whole logits show the dtype, and checkpointing finds its modules without the logits.
    fn turn(&self) -> u8 {
        match self {
            Change::SetToNone | Change::CacheOff | Change::Del(_) | Change::NoGrad | Change::Release => 0,
            Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward => 1,
            Change::Bf16 | Change::Lora(_) => 2,
            Change::Chunks(_) | Change::FusedAttention => 3,
            Change::Checkpoint(_) => 4,
            Change::Offload => 5,
        }
    }

    pub(crate) fn trust(&self) -> Trust {
        match self {
            Change::Sgd | Change::Fused | Change::CacheOff => Trust::Exact,
            Change::NoForeach
            | Change::SetToNone
            | Change::InBackward
            | Change::Checkpoint(_)
            | Change::Del(_)
            | Change::NoGrad
            | Change::Release => Trust::Close,
            Change::EightBit | Change::Bf16 | Change::Chunks(_) | Change::Offload | Change::Lora(_) | Change::FusedAttention => {
                Trust::Estimate
            }
        }
    }

    /// The largest error in measured runs, in thousandths of the peak, rounded up: for reserved and for allocated bytes.
    /// `docs/PLAN.md` lists the runs.
    pub(crate) fn off(&self) -> [u64; 2] {
        match self {
            Change::Sgd | Change::Fused | Change::CacheOff | Change::NoForeach | Change::SetToNone | Change::Del(_) => [0, 0],
            Change::InBackward => [55, 5],
            Change::EightBit => [10, 5],
            Change::Chunks(_) => [30, 15],
            Change::NoGrad => [35, 100],
            Change::Release => [40, 30],
            Change::FusedAttention => [120, 40],
            Change::Bf16 => [45, 90],
            Change::Offload => [65, 50],
            Change::Lora(_) => [95, 45],
            Change::Checkpoint(_) => [30, 45],
        }
    }

    /// What the change needs but the recording lacks.
    fn lacks(&self, draft: &Draft<'_>) -> Option<&'static str> {
        let has = |role: Role| draft.rows.iter().any(|row| row.role == role);
        match self {
            Change::InBackward if draft.passes(draft.steps()).iter().filter(|pass| pass.backward.is_some()).count() > 1 => {
                Some("a step accumulates the gradients of several backward passes, and each would step")
            }
            Change::NoForeach | Change::Fused if optimizer::is_of_own_code(draft) => {
                Some("the optimizer is the program's own code, which has no such argument")
            }
            Change::NoForeach | Change::Fused | Change::EightBit | Change::Sgd | Change::InBackward | Change::Lora(_) => {
                let has_step = has(Role::OptimizerState) || draft.rows.iter().any(|row| row.phase == Phase::Optimizer);
                match has_step {
                    true => None,
                    false if draft.program.steps > 0 && has(Role::Gradients) => {
                        Some("the recording shows no optimizer that keeps a state or makes temporaries, as SGD makes none")
                    }
                    false => Some("no optimizer is in the recording"),
                }
            }
            Change::Bf16 if !has(Role::Weights) => Some("the recording does not tell which blocks are weights"),
            Change::Bf16 => (draft.bytes_of_element() == 2).then_some("the weights have 16 bits already"),
            Change::CacheOff => (!has(Role::AutocastCopies)).then_some("there is no autocast in the recording"),
            Change::Offload if !draft.rows.iter().any(|row| row.phase == Phase::Backward) => {
                Some("no backward pass is in the recording, so nothing shows what is kept for it")
            }
            Change::SetToNone if !has(Role::Gradients) && !draft.rows.iter().any(|row| row.phase == Phase::Backward) => {
                Some("no backward pass is in the recording, so there are no gradients to free")
            }
            Change::Offload => {
                (!has(Role::Activations)).then_some("the recording shows no tensors that are kept for a backward pass")
            }
            _ => None,
        }
    }

    /// Applies the change. Without stacks, passes and modules are unknown; then that becomes the reason why it cannot be made.
    fn apply(&self, draft: &mut Draft<'_>, edited: &mut Edited) {
        let before = edited.reason.is_some();
        self.make(draft, edited);
        let has_stacks = || draft.program.rows.iter().any(|row| row.stack.is_some());
        if let Some(why) = edited.reason.as_mut().filter(|_| !before && !has_stacks()) {
            NO_STACKS.clone_into(why);
        }
    }

    fn make(&self, draft: &mut Draft<'_>, edited: &mut Edited) {
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
                Ok(place) => edited.place = Some(place),
                Err(why) => nothing(false, &why),
            },
            Change::NoForeach => optimizer::without_foreach(draft),
            Change::Fused => optimizer::fused(draft),
            Change::EightBit => edited.bytes_of_state = optimizer::eight_bit(draft),
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
            Change::NoGrad => nothing(unneeded::no_grad(draft), "a backward pass follows each forward pass that keeps a graph"),
            Change::FusedAttention => {
                nothing(unneeded::fused_attention(draft), "no scores of attention are kept, or no stack shows them")
            }
            Change::Release => nothing(unneeded::release(draft), "no step leaves much behind for the steps after the next"),
        }
    }
}

pub(crate) fn edit(requests: Requests<'_>, changes: &[Change]) -> Edited {
    edit_draft(Draft::of(requests), changes)
}

/// An equally possible order of the same requests: checkpointing frees the blocks of the forward pass at the end of each call.
/// `None` if the changes leave no choice of order.
pub(crate) fn edit_late(requests: Requests<'_>, changes: &[Change]) -> Option<Edited> {
    let is_open = changes.iter().any(|change| matches!(change, Change::Checkpoint(_)));
    is_open.then(|| {
        let mut draft = Draft::of(requests);
        draft.is_late = true;
        edit_draft(draft, changes)
    })
}

fn edit_draft(mut draft: Draft<'_>, changes: &[Change]) -> Edited {
    let mut edited = Edited {
        asks: Vec::new(),
        rows: Vec::new(),
        low: rustc_hash::FxHashMap::default(),
        reason: None,
        recomputed: 0,
        again: 0,
        moved: 0,
        open: 0,
        place: None,
        bytes_of_state: 0,
    };
    // Always apply the changes in the same order: element sizes before chunking divides tensors, and logits before what keeps them.
    let mut changes: Vec<&Change> = changes.iter().collect();
    changes.sort_by_key(|change| change.turn());
    for change in &changes {
        let before = edited.reason.is_some();
        change.apply(&mut draft, &mut edited);
        // With several changes, name the one that does nothing.
        if let Some(why) = edited.reason.as_mut().filter(|_| !before && changes.len() > 1) {
            *why = format!("{}: {why}", change.name());
        }
    }
    Edited {
        asks: draft.asks,
        rows: draft.rows,
        low: draft.low,
        recomputed: draft.recomputed,
        again: draft.again,
        moved: draft.moved,
        open: draft.open,
        ..edited
    }
}

/// If a change names something that is not in the requests: a sentence with the names that exist.
pub(crate) fn unknown_name(requests: Requests<'_>, change: &Change) -> Option<String> {
    match change {
        Change::Checkpoint(Some(name)) => passes::no_such_module(&Draft::of(requests), name),
        Change::Del(line) => passes::no_such_line(requests, line),
        _ => None,
    }
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
        for wrong in ["chunks:99999", "lora:100000", "lora:x", "del:"] {
            assert!(Change::parse(wrong).is_err(), "{wrong}");
        }
    }
}
