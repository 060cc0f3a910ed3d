//! The rules. Each examines one subject, and reports nothing if its figures are small.
//!
//! The rules were collected from public issues, documentation and PyTorch's source, which `docs/FINDINGS.md` lists. Formulas and
//! thresholds were tested on real recordings.

mod at_peak;
mod autocast;
mod backward;
mod beside;
mod broadcast;
mod copies;
mod evaluation;
mod failed;
mod flushes;
mod gathered;
mod growth;
mod hygiene;
mod kept;
mod library;
mod list;
mod loss;
mod oom;
mod optimizer;
mod peak;
mod rebuilt;
mod results;
mod samples;
mod settings;
mod shared;
mod structure;
mod table;
mod untrained;

pub use self::list::RULES;
pub(super) use self::oom::prescribe;
pub(super) use self::settings::{by_settings, in_code};
pub(super) use self::shared::marks;
pub(super) use self::table::Run;
use self::table::rule;
pub use self::table::{Rule, as_table};

/// The rule whose finding comes first, because it puts all others in doubt.
pub(super) const TRUNCATED: &str = "truncated";
/// The rule for a recording whose later steps will need more; it comes first too.
pub(super) const FIRST_STEP: &str = "first_step";
/// The rule for failed attempts that are still held and cause the next failures.
pub(super) const HELD: &str = "held_after_failure";
pub(super) const GATHERED: &str = "gathered";
/// The rule that ignores blocks which another finding covers.
pub(super) const TEMPORARIES: &str = "temporaries";
/// The rule for gradients that nothing uses. What their graph keeps should not be checkpointed.
pub(super) const UNTRAINED: &str = "untrained_gradients";
/// The rule for a program that trains nothing, which matters more than its memory.
pub(super) const ZERO_BEFORE_STEP: &str = "zero_before_step";
/// The rules for what an earlier model or optimizer of the same program left on the GPU.
pub(super) const LEFT_OVER: [&str; 3] = ["earlier_model", "earlier_optimizer", "kept_copies"];
/// The rule for large short-lived blocks; more specific rules take precedence.
pub(super) const SPIKE: &str = "spike";
/// The rule for what a pass makes; all other rules about the peak take precedence.
pub(super) const BATCH: &str = "batch";
pub(super) const STALE_COPIES: &str = "stale_copies";
/// Mistakes whose remedy costs nothing. They come before changes that cost time or accuracy, such as checkpointing.
pub(super) const MISTAKES: [&str; 17] = [
    "all_pairs",
    "backward_graph",
    "broadcast",
    "earlier_model",
    "earlier_optimizer",
    "grows_by_copy",
    "kept_copies",
    "kept_results",
    "larger_evaluation",
    "last_result",
    "loaded_copy",
    "loss_by_hand",
    "moved_gradients",
    "unread_scores",
    UNTRAINED,
    "unused_graph",
    "waiting_batches",
];
