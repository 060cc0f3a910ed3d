//! For a full device: who holds its memory, and which memory of this program would have to become smaller.

use super::autopsy::{Autopsy, is_nearly_full};
use super::helped::{Advice, Support};
use super::verdict::Verdict;
use crate::anatomy::{Composition, LineHeld, Role};
use crate::model::{StackId, StackTable};
use crate::tables::naming::{place_or_function, user_frame};
use crate::units::{Bytes, capital, count, told_apart};

/// The name of the row for tensors in [`Autopsy::holders`].
pub const TENSORS: &str = "tensors";
/// The name of the row for memory that PyTorch reserved but no tensor uses.
pub const INSIDE: &str = "free inside PyTorch's segments";
/// The name of the row for free memory on the device.
pub const FREE: &str = "free";
/// The name of the row for the rest: neither PyTorch's nor free.
const REST: &str = "other processes, or outside PyTorch";

impl Autopsy {
    /// True if the device was full and no small number of blocks was in the way; then the largest users of memory are the answer.
    pub fn is_simply_full(&self) -> bool {
        /// Up to this many blocks can be inspected one by one.
        const FEW: usize = 20;
        let is_few = self.room_plan.as_ref().is_some_and(|plan| plan.blocks.len() <= FEW);
        !self.holders().is_empty() && (!is_few || self.is_used_up())
    }

    /// True if the program fills the card: all free memory would serve this request but not another, and many like it are live.
    pub fn is_used_up(&self) -> bool {
        let free = self.holes.bytes.saturating_add(self.device_free);
        let is_one = self.holes.bytes > 0 && self.holes.largest < self.requested;
        self.verdict == Verdict::Capacity && self.has_segments && is_one && free >= self.segment
    }

    /// True if the tensors of this process exceed what it can have, so that something must become smaller.
    pub fn is_short_of_memory(&self) -> bool {
        let is_full = match self.verdict {
            Verdict::Capacity | Verdict::Contention | Verdict::NonPytorch => true,
            Verdict::Fragmentation => self.is_nearly_full(),
            Verdict::Cap => {
                let most = self.limit.map_or(u64::MAX, |cap| cap.most);
                is_nearly_full(self.allocated.saturating_add(self.requested), most)
            }
            Verdict::TooLarge | Verdict::Unknown => false,
        };
        is_full && !self.is_host
    }

    /// The users of a full device, as rows. Empty if the device was not full, for pinned host memory, and without segments. The
    /// bytes of others are `None` if the size of the device is not recorded.
    pub fn holders(&self) -> Vec<(&'static str, Option<u64>)> {
        let is_full = matches!(self.verdict, Verdict::Capacity | Verdict::Contention | Verdict::NonPytorch);
        if !is_full || self.is_host || !self.has_segments {
            return Vec::new();
        }
        let cached = self.reserved.saturating_sub(self.allocated).saturating_sub(self.pending);
        let free = self.device_free_known();
        // A part of the rest may be known, or all of it if the size of the device is.
        let known = self.others.unwrap_or(0).saturating_add(self.outside.unwrap_or(0));
        let rest = self.capacity.zip(free).map(|(all, free)| all.saturating_sub(self.reserved).saturating_sub(free));
        let rest = rest.map(|rest| rest.saturating_sub(known));
        let rows = [
            (TENSORS, Some(self.allocated)),
            ("freed, another stream still uses it", Some(self.pending)),
            (INSIDE, Some(cached)),
            ("this process, outside PyTorch", self.outside),
            ("other processes", self.others),
            (REST, rest),
            (FREE, free),
        ];
        let is_unknown = rest.is_none() && known == 0;
        let is_told = |name: &str, bytes: &Option<u64>| bytes.map_or(is_unknown && name == REST, |bytes| bytes > 0);
        rows.into_iter().filter(|(name, bytes)| is_told(name, bytes)).collect()
    }
}

/// Why a device had no room for another segment.
pub(super) fn sentence(a: &Autopsy, request: &str, place: &str) -> String {
    // Free memory smaller than a segment is useless, even if it is larger than the request.
    let segment = if a.device_free >= a.requested {
        format!(", less than the {} of a new segment", Bytes(a.segment))
    } else {
        String::new()
    };
    let [reserved, held] = told_apart([a.reserved, a.allocated]);
    let waits = match a.pending {
        0 => String::new(),
        bytes => format!(", {} is freed but still used by another stream", Bytes(bytes)),
    };
    let elsewhere = match a.all_holes.bytes.saturating_sub(a.holes.bytes) {
        0 => String::new(),
        more => format!(" ({} more is free for requests of other sizes, streams or pools)", Bytes(more)),
    };
    let outside = a.capacity.map(|c| c.saturating_sub(a.reserved).saturating_sub(a.device_free)).filter(|&bytes| bytes > 0);
    let outside = match (outside, a.capacity) {
        (Some(bytes), Some(all)) => {
            format!(" {} of the {place}'s {} is held by other processes, or outside PyTorch.", Bytes(bytes), Bytes(all))
        }
        (None, None) if !a.is_host => format!(
            " Reserved and free are {} together. If the card is larger, other processes or libraries hold the rest.",
            Bytes(a.most_free())
        ),
        _ => String::new(),
    };
    if a.is_used_up() {
        let free = a.holes.bytes.saturating_add(a.device_free);
        return format!(
            "{request} failed because the {place} is full: tensors hold {held} of the {} that this process could have. The {} that is free, in pieces, is less than two such requests, and {} blocks of this size are live.",
            Bytes(a.most_free()),
            Bytes(free),
            count(a.alike as u64),
        );
    }
    let inside = match a.holes.bytes {
        0 => format!(", and nothing is free for this request{elsewhere}"),
        bytes => format!(", and {} is free in pieces that are too small{elsewhere}", Bytes(bytes)),
    };
    format!(
        "{request} failed because the {place} is full: {} is free on it{segment}. PyTorch reserved {reserved}: tensors hold {held}{waits}{inside}.{outside}",
        Bytes(a.device_free),
    )
}

/// Why a request failed if this process's possible memory is used up except for fragments.
pub(super) fn in_pieces(a: &Autopsy, request: &str, place: &str) -> String {
    let pieces = match a.holes.count {
        1 => "is one piece, smaller than the request".to_owned(),
        n => format!("is in {} pieces, the largest {}", count(n), Bytes(a.holes.largest)),
    };
    let because = match a.limit.filter(|_| a.is_under_cap()) {
        Some(cap) if cap.is_known() => format!("this process may reserve at most {cap}, and that is used up"),
        Some(cap) => format!("this process has used up its cap of {}", cap.estimate()),
        None => format!("the {place} is nearly full"),
    };
    let [held, of] = told_apart([a.allocated, if a.is_under_cap() { a.reserved } else { a.most_free() }]);
    let of = if a.is_under_cap() { format!("{of} it reserved") } else { format!("{of} it could have") };
    format!(
        "{request} failed because {because}: tensors hold {held} of the {of}, and with this request it would be more than at any time before. The {} that is free {pieces}.",
        Bytes(a.holes.bytes)
    )
}

/// Number of roles that get advice.
const TOLD: usize = 3;
const LEAST_SHARE: f64 = 0.05;

/// What to make smaller if the device or the cap is full or nearly full: the largest roles, each with its largest line.
pub fn what_to_make_smaller(a: &Autopsy, held: &Composition, stacks: &StackTable) -> Vec<Advice> {
    if !a.is_short_of_memory() || held.bytes == 0 {
        return Vec::new();
    }
    let of = |role: Role| held.roles.iter().filter(|r| r.role == role).map(|r| r.bytes).sum::<u64>();
    let trains = of(Role::Activations) >= of(Role::KvCache);
    let least = (held.bytes as f64 * LEAST_SHARE) as u64;
    let told = held.roles.iter().filter(|r| r.bytes >= least && r.role != Role::Unknown).take(TOLD);
    told.filter_map(|r| {
        let line = held.lines.iter().find(|line| line.role == r.role);
        let what = match r.role {
            Role::KvCache if trains => "Training needs no cache: call the model with use_cache=False.",
            role => how(role, line.is_some_and(|line| computes_loss(stacks, line)))?,
        };
        let most = match line.and_then(|line| Some((line, line.stack?))) {
            // If one line has all the bytes, do not repeat them.
            Some((line, stack)) if line.bytes >= r.bytes => format!(", all from {}", with_caller(stacks, &line.place, stack)),
            Some((line, stack)) => format!(", most from {} ({})", with_caller(stacks, &line.place, stack), Bytes(line.bytes)),
            None => String::new(),
        };
        let hold = if r.role.text().ends_with('s') { "hold" } else { "holds" };
        let sentence = capital(&format!("{} {hold} {}{most}. {what}", r.words(), Bytes(r.bytes)));
        Some(Advice { sentence, setting: None, support: Support::Formula })
    })
    .collect()
}

/// A line; for a library's line also the program's line that calls it: `attention.py:93, called from train.py:125`.
fn with_caller(stacks: &StackTable, place: &str, stack: StackId) -> String {
    let own = user_frame(stacks, stack).map(|frame| place_or_function(stacks, frame));
    match own.filter(|own| own != place) {
        Some(own) => format!("{place}, called from {own}"),
        None => place.to_owned(),
    }
}

/// All advice on a failure. What to make smaller comes after advice that a simulation supports and after a higher cap.
pub fn with_what_to_make_smaller(a: &Autopsy, advice: Vec<Advice>, smaller: Vec<Advice>) -> Vec<Advice> {
    let mut all = advice;
    let supported = all.iter().take_while(|x| x.support == Support::Simulation).count();
    let at = match a.is_full_in_pieces() {
        true => usize::from(a.is_under_cap()),
        false => supported + usize::from(a.verdict == Verdict::Cap),
    };
    let at = at.min(all.len());
    all.splice(at..at, smaller);
    all
}

/// How to make a role smaller.
fn how(role: Role, is_loss: bool) -> Option<&'static str> {
    Some(match role {
        Role::Activations | Role::Temporaries if is_loss => {
            "Compute the loss in chunks of the sequence, so that not all logits exist at once."
        }
        Role::Activations => "Checkpoint these layers (torch.utils.checkpoint), or use a smaller batch or smaller inputs.",
        Role::OptimizerState => "An 8-bit optimizer needs about a quarter of fp32 state; FSDP or ZeRO spread it over GPUs.",
        Role::Gradients => "Free them before the next forward pass (zero_grad), or spread them over GPUs with FSDP or ZeRO.",
        Role::Weights => "bf16 halves fp32 weights; quantization or FSDP makes them smaller still.",
        Role::AutocastCopies => "Keep the weights in bf16, or use torch.autocast(…, cache_enabled=False).",
        Role::Inputs => "Use a smaller batch, or move to the GPU only what the step needs.",
        Role::Temporaries => "Work in chunks there, or use a smaller batch.",
        Role::KvCache => "Limit the context or the number of sequences, or quantize the cache.",
        Role::Buckets => "With DDP, gradient_as_bucket_view=True stores gradients once; smaller buckets help too.",
        Role::Workspaces => "CUBLAS_WORKSPACE_CONFIG sets the size of cuBLAS's workspaces.",
        Role::Unknown => return None,
    })
}

/// True for a line whose stack passes through a loss function, so that its bytes are logits.
fn computes_loss(stacks: &StackTable, line: &LineHeld) -> bool {
    const LOSS: [&str; 5] = ["cross_entropy", "log_softmax", "nll_loss", "fixed_cross_entropy", "ForCausalLMLoss"];
    let frames = line.stack.map_or(&[][..], |stack| stacks.frames(stack));
    frames.iter().filter_map(|&f| stacks.frame(f)).any(|f| LOSS.contains(&stacks.text(f.name)))
}
