//! Changes that lower the peak only together: if two moments are about equally high, one change alone leaves the other.

use super::finding::Finding;
use super::input::RuleInput;
use crate::changes::Change;
use crate::diagnose::counterfactual::Saving;

/// A rule, the change that its finding advises, and the change's name in a sentence.
const CHANGES: [(&str, Change, &str); 6] = [
    ("activations", Change::Checkpoint(None), "checkpointing"),
    ("foreach_optimizer", Change::Fused, "fused=True"),
    ("attention_scores", Change::FusedAttention, "fused attention"),
    ("logits", Change::Chunks(8), "logits in 8 chunks"),
    ("gradients_kept", Change::SetToNone, "zero_grad(set_to_none=True)"),
    ("autocast_copies", Change::CacheOff, "cache_enabled=False"),
];

/// The same for rules whose change gains nothing from another one.
const ALONE: [(&str, Change); 3] =
    [("unused_graph", Change::NoGrad), ("leak", Change::Release), ("optimizer_state", Change::EightBit)];

impl Finding {
    /// The change that the finding advises, in the form that a plan uses; `None` if plans do not have it.
    pub fn change(&self) -> Option<Change> {
        let paired = CHANGES.iter().find(|(rule, ..)| *rule == self.rule).map(|(_, change, _)| change);
        let change = paired.or_else(|| ALONE.iter().find(|(rule, _)| *rule == self.rule).map(|(_, change)| change))?;
        // Findings about activations may advise something else.
        let is_other = matches!(change, Change::Checkpoint(_)) && !self.sentence.contains("checkpointed");
        (!is_other).then(|| change.clone())
    }
}

/// For findings whose change alone does little: adds its effect together with the best of the other changes. O(requests) per pair.
pub(super) fn add_pairs(findings: &mut [Finding], p: &RuleInput<'_>) {
    let change_of = |rule: &str| CHANGES.iter().find(|c| c.0 == rule);
    let advised: Vec<&str> = findings.iter().map(|f| f.rule).collect();
    // Checkpointing has a finding only if it lowers the peak on its own.
    let partners = || CHANGES.iter().filter(|c| advised.contains(&c.0) || (c.0 == "activations" && p.trains()));
    let saved = |changes: &[Change]| p.with_changes(changes).map(|(saving, _)| saving);
    for finding in findings {
        let Some((own, alone)) = change_of(finding.rule).zip(finding.saving) else { continue };
        let is_held_back = alone.bytes().saturating_mul(2) < finding.bytes && finding.bytes.saturating_mul(20) >= alone.before;
        if !is_held_back {
            continue;
        }
        let pairs = partners().filter(|partner| partner.0 != own.0).filter_map(|partner| {
            let both = saved(&[own.1.clone(), partner.1.clone()])?;
            let most = saved(std::slice::from_ref(&partner.1)).map_or(0, |s| s.bytes()).max(alone.bytes());
            let more = both.bytes().saturating_sub(most);
            (more.saturating_mul(20) >= both.before && more.saturating_mul(4) >= most).then_some((both.after, partner.2))
        });
        if let Some((after, partner)) = pairs.min() {
            let [_, after, _] = Saving { after, ..alone }.texts();
            finding.sentence += &format!(" Together with {partner} it falls to about {after}.");
        }
    }
}
