//! A failure in a pass without a backward pass: sample outputs, or an evaluation between training steps.

use rustc_hash::FxHashSet;

use super::{Advice, Failure, Support};
use crate::model::{BlockState, FrameId};
use crate::tables::{LifetimeId, place_or_function};
use crate::units::{Bytes, MEBIBYTE};

impl Failure<'_> {
    /// Advice for a failure in a pass that may be an evaluation: no backward pass has followed calls of its function, while one
    /// followed calls of other functions. `None` otherwise, or if the pass holds little memory. O(lifetimes).
    pub fn without_backward(&self) -> Option<Advice> {
        let Failure { recording, device, tables, roles, autopsy: a } = *self;
        const LEAST: u64 = 64 * MEBIBYTE;
        let (stacks, lifetimes, phases) = (&recording.stacks, &tables.lifetimes, &roles.anatomy.phases);
        let function = |frame: FrameId| stacks.frame(frame).map(|f| (f.file, f.name));
        let site_of = |id: LifetimeId| phases.called_at(lifetimes.stack(device, id));
        let site = phases.called_at(a.stack)?;
        let trained = lifetimes.ids().filter(|&id| roles.lives_to_backward(id));
        let trained: FxHashSet<_> = trained.filter_map(site_of).filter_map(function).collect();
        if trained.is_empty() || function(site).is_none_or(|own| trained.contains(&own)) {
            return None;
        }
        let state = tables.states.at(device, lifetimes, a.event);
        let live = state.blocks.iter().filter(|b| b.state != BlockState::Inactive && site_of(b.lifetime) == Some(site));
        let bytes: u64 = live.map(|b| b.size).sum();
        if bytes < LEAST || bytes.saturating_mul(10) < a.allocated {
            return None;
        }
        let frame = stacks.frame(site)?;
        let sentence = format!(
            "The forward pass that failed was called at {}, in {}. So far no backward pass has followed a call from there. If none does, run it without \
         a graph: most of the {} that it holds is then not kept.",
            place_or_function(stacks, frame),
            stacks.text(frame.name),
            Bytes(bytes)
        );
        Some(Advice { sentence, setting: Some("with torch.no_grad():".to_owned()), support: Support::Formula })
    }
}
