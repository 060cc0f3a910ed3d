//! The settings, limit and release under which the model reproduces a recording.

use super::agree::{Agreement, Difference, agreement, agreement_and_end};
use super::assume::Assumption;
use super::cap::Caps;
use super::cap_range::CapRange;
use super::curve::Curve;
use super::horizon::Horizon;
use super::replay::{Ended, Replay};
use super::requests::Requests;
use super::untraced;
use crate::model::{Action, Cancelled, PoolId, Progress, TorchVersion};

/// A recording run on the model under its own settings, up to the first difference if there is one.
#[derive(Clone, Debug)]
pub struct OwnRun {
    /// The run that reproduces the recording best.
    pub replay: Replay,
    /// Whether the run reproduced the recording.
    pub agreement: Agreement,
    /// What is known about the limit. The run's limit is within it.
    pub caps: Caps,
    /// What the recording leaves open, if it has a failed request.
    pub horizon: Option<Horizon>,
    /// The assumptions that were needed.
    pub assumptions: Vec<Assumption>,
    /// How the run ended and its curve, if it matched the recording to the end and served every request.
    pub(super) ended: Option<(Ended, Curve)>,
}

/// Finds the limit and the release under which the model reproduces a recording.
///
/// `known_limit` comes from the user or the file. Costs one run if the model agrees at once, otherwise a few.
pub fn explain(requests: &mut Requests<'_>, known_limit: Option<u64>, progress: &Progress) -> Result<OwnRun, Cancelled> {
    let FirstReading { mut replay, mut outcome, ended, caps, mut assumptions } = first_reading(requests, known_limit, progress)?;
    let ended = ended.filter(|(run, _)| outcome.agrees() && run.is_following && run.oom_request.is_none());
    // Under these settings the allocator releases memory before it reaches the limit, so the time of the releases shows the limit.
    let releases_early = replay.conf.garbage_collection_threshold > 0.0 || replay.conf.max_split_size.is_some();
    if !outcome.agrees() && !requests.captures.is_empty() {
        // The captures were only inferred. Drop them if the model agrees without them.
        let inferred = std::mem::take(&mut requests.captures);
        let without = agreement(&replay, requests, progress)?;
        if without.agrees() {
            outcome = without;
        } else {
            requests.captures = inferred;
        }
    }
    // A block from before the trace is larger than shown if the model would use the space after it, but the recording did not.
    while let Agreement::Differs(Difference { modelled: Some(h), .. }) = &outcome {
        if h.action != Action::Alloc || !super::start::widen_guess_before(&mut requests.start, h.address) {
            break;
        }
        outcome = agreement(&replay, requests, progress)?;
    }
    let plain = requests.known();
    explain_untraced(requests, &replay, &mut outcome, progress)?;
    if let Agreement::Differs(first) = &outcome {
        // PyTorch releases choose differently between equal blocks, which shows as one allocation at two addresses.
        let is_tie = [first.recorded, first.modelled].iter().all(|h| h.is_some_and(|h| h.action == Action::Alloc));
        let names_pools = requests.device.events.pool.first().is_some_and(|&p| p != PoolId::UNKNOWN);
        if is_tie || names_pools {
            for version in [TorchVersion::new(2, 13), TorchVersion::new(2, 12), TorchVersion::new(2, 9), TorchVersion::new(2, 3)]
            {
                let other = Replay { version, ..replay.clone() };
                let tried = agreement(&other, requests, progress)?;
                if tried.agrees() {
                    replay = other;
                    outcome = tried;
                    assumptions.push(Assumption::InferredVersion { version });
                    break;
                }
            }
        }
    }
    let may_search = releases_early && known_limit.is_none();
    if !outcome.agrees() && may_search {
        search_limit(requests, &mut replay, &mut outcome, progress)?;
    }
    // If no limit explains the difference, the events around it may have another meaning.
    while let Agreement::Differs(difference) = &outcome {
        if !requests.read_differently(difference.event) {
            break;
        }
        outcome = agreement(&replay, requests, progress)?;
    }
    if !outcome.agrees() && may_search {
        search_limit(requests, &mut replay, &mut outcome, progress)?;
    }
    if !outcome.agrees() && !requests.untraced_blocks.is_empty() {
        // These blocks do not explain the recording, so do not assume them.
        *requests = Requests::again(requests.device, plain);
        outcome = agreement(&replay, requests, progress)?;
    }
    if !requests.untraced_blocks.is_empty() {
        let blocks = &requests.untraced_blocks;
        let untraced = Assumption::Untraced { blocks: blocks.len() as u64, bytes: blocks.iter().map(|b| b.size).sum() };
        requests.assumptions.push(untraced.clone());
        assumptions.push(untraced);
    }
    let is_inferred = known_limit.is_none() && requests.device.limit.is_none();
    if let (Some(bytes), Some(range), true) = (replay.limit, caps.first(), is_inferred) {
        assumptions.push(Assumption::InferredLimit { bytes, range });
    }
    Ok(OwnRun { replay, agreement: outcome, caps, horizon: Horizon::of(requests.device), assumptions, ended })
}

impl OwnRun {
    /// True if the model reproduces the whole recording: every event, and the state at the end. If that state is later than the
    /// last event, as in a file that was cut short, equal events are not enough.
    pub fn reproduces(&self) -> bool {
        self.agreement.agrees() && !self.assumptions.contains(&Assumption::EndIsLater)
    }

    /// The range of the limit that requests failed under, as autopsy and findings show it.
    pub fn limit_range(&self) -> Option<CapRange> {
        self.caps.first()
    }
}

/// The interpretation of the requests that explains the recording best before any search.
pub(crate) struct FirstReading {
    replay: Replay,
    outcome: Agreement,
    ended: Option<(Ended, Curve)>,
    pub(crate) caps: Caps,
    assumptions: Vec<Assumption>,
}

/// Runs the requests once under the cap they show. If the file may be cut short, tries the other interpretation too.
pub(crate) fn first_reading(
    requests: &mut Requests<'_>,
    known_limit: Option<u64>,
    progress: &Progress,
) -> Result<FirstReading, Cancelled> {
    let limit = |caps: &Caps| caps.first().map(|c| c.most);
    let caps = Caps::of_requests(requests, known_limit);
    let replay = Replay { limit: limit(&caps), ..Replay::of(requests) };
    let (outcome, ended, curve) = agreement_and_end(&replay, requests, progress)?;
    if !outcome.agrees() && !requests.start.is_empty() && begins_with_growth(requests) {
        // The segments of a file that was cut short may be later than its last event; then the trace alone is more reliable.
        let alone = Requests::read_from_nothing(requests.device, progress)?;
        let caps = Caps::of_requests(&alone, known_limit);
        let replay = Replay { limit: limit(&caps), ..replay.clone() };
        let outcome = agreement(&replay, &alone, progress)?;
        if outcome.agrees() {
            *requests = alone;
            requests.assumptions.push(Assumption::EndIsLater);
            return Ok(FirstReading { replay, outcome, ended: None, caps, assumptions: requests.assumptions.clone() });
        }
    }
    Ok(FirstReading { replay, outcome, ended: Some((ended, curve)), caps, assumptions: requests.assumptions.clone() })
}

/// A program that starts without any memory first takes some from the device.
fn begins_with_growth(requests: &Requests<'_>) -> bool {
    let actions = &requests.device.events.action;
    let is_note = |a: &Action| matches!(a, Action::Snapshot | Action::Annotate | Action::Unknown);
    actions.iter().find(|a| !is_note(a)).is_some_and(|a| a.grows_reserved())
}

/// Adds blocks that no event names, one at a time, as long as each moves the first difference to a later event.
fn explain_untraced(
    requests: &mut Requests<'_>,
    replay: &Replay,
    outcome: &mut Agreement,
    progress: &Progress,
) -> Result<(), Cancelled> {
    // Each attempt costs a run up to the difference, so long recordings get few attempts and short ones many.
    let mut budget = 20_000_000u64;
    while let Agreement::Differs(difference) = &*outcome {
        let cost = u64::from(difference.event) + 10_000;
        if cost > budget || !untraced::explain(requests, difference) {
            break;
        }
        budget -= cost;
        *outcome = agreement(replay, requests, progress)?;
    }
    Ok(())
}

/// Narrows the limit by the first difference: if the model releases memory too early, the limit is too low, and vice versa.
fn search_limit(
    requests: &Requests<'_>,
    replay: &mut Replay,
    outcome: &mut Agreement,
    progress: &Progress,
) -> Result<(), Cancelled> {
    let threshold = replay.conf.garbage_collection_threshold;
    let mut low = requests.least_limit;
    // Above this limit nothing is released for lack of room, and garbage collection does not start.
    let mut high = requests.most_needed.max(low);
    if threshold > 0.0 {
        high = high.max((low as f64 / threshold) as u64 + 1);
    }
    if let Some(refused) = requests.refused {
        high = high.min(refused);
    }
    while low <= high {
        let limit = low + (high - low) / 2;
        let tried = Replay { limit: Some(limit), ..replay.clone() };
        let result = agreement(&tried, requests, progress)?;
        let Agreement::Differs(difference) = &result else {
            *replay = tried;
            *outcome = result;
            return Ok(());
        };
        let is_release = |h: Option<super::Happening>| h.is_some_and(|h| h.action.shrinks_reserved());
        if is_release(difference.modelled) && !is_release(difference.recorded) {
            low = limit + 1;
        } else {
            let Some(below) = limit.checked_sub(1) else { break };
            high = below;
        }
    }
    Ok(())
}
