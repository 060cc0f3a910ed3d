//! Compares a run of the model with its recording: every action, address and size, and the state at the end.

use super::curve::{Curve, POINTS, Sampler};
use super::replay::{Ended, Replay, Replayed, Watcher};
use super::requests::Requests;
use crate::allocator::{CachingAllocator, EventSink, SimulatedMemory};
use crate::model::{Action, Cancelled, DeviceRecording, EventId, PoolKey, Progress};
use crate::units::{Address, Bytes};

/// Result of running a recording again under its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every event and the end state are equal.
    Agrees,
    /// An event or the end state differs; the first difference.
    Differs(Difference),
}

impl Agreement {
    /// True when nothing differs.
    pub fn agrees(&self) -> bool {
        matches!(self, Agreement::Agrees)
    }
}

/// The first place where a run differs from its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The recorded event; the number of events if the end states differ.
    pub event: EventId,
    /// The recording's action there; `None` after its last event.
    pub recorded: Option<Happening>,
    /// The model's action; `None` if it does nothing more, or if the end states differ.
    pub modelled: Option<Happening>,
}

/// An action with its address and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// What the allocator did.
    pub action: Action,
    /// Address of the block or segment; for [`Action::Oom`] the device's free bytes.
    pub address: u64,
    /// Size in bytes, as in the event.
    pub size: u64,
}

impl std::fmt::Display for Happening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} at {}", self.action.name(), Bytes(self.size), Address(self.address))
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |h: Option<Happening>| h.map_or("nothing more".to_owned(), |h| h.to_string());
        match (self.recorded, self.modelled) {
            (None, None) => write!(f, "every event agrees, but the segments at the end do not"),
            (recorded, modelled) => {
                write!(
                    f,
                    "the first difference is at event {}: the recording has {}, the model {}",
                    self.event,
                    text(recorded),
                    text(modelled)
                )
            }
        }
    }
}

/// Compares each action with the next one of the recording.
#[derive(Debug)]
pub(crate) struct Comparer<'a> {
    device: &'a DeviceRecording,
    next: usize,
    pub(crate) difference: Option<Difference>,
}

impl<'a> Comparer<'a> {
    pub(crate) fn new(device: &'a DeviceRecording) -> Self {
        let mut comparer = Comparer { device, next: 0, difference: None };
        comparer.skip_notes();
        comparer
    }

    fn skip_notes(&mut self) {
        let actions = &self.device.events.action;
        while matches!(actions.get(self.next), Some(Action::Snapshot | Action::Annotate | Action::Unknown)) {
            self.next += 1;
        }
    }

    fn recorded(&self, at: usize) -> Option<Happening> {
        let events = &self.device.events;
        let action = *events.action.get(at)?;
        Some(Happening { action, address: events.address[at], size: events.size[at] })
    }
}

impl EventSink for Comparer<'_> {
    fn event(&mut self, action: Action, address: u64, size: u64, _stream: u64, _pool: PoolKey) {
        if self.difference.is_some() {
            return;
        }
        let modelled = Happening { action, address, size };
        let recorded = self.recorded(self.next);
        // The free memory at an out-of-memory event also depends on other programs, so it is not compared.
        let same = match recorded {
            Some(r) if action == Action::Oom => r.action == action && r.size == size,
            Some(r) => r == modelled,
            None => false,
        };
        if same {
            self.next += 1;
            self.skip_notes();
        } else {
            self.difference = Some(Difference { event: self.next as u32, recorded, modelled: Some(modelled) });
        }
    }
}

/// Runs the requests under `replay`, stops at the first difference, and compares the state at the end.
pub fn agreement(replay: &Replay, requests: &Requests<'_>, progress: &Progress) -> Result<Agreement, Cancelled> {
    Ok(agreement_and_end(replay, requests, progress)?.0)
}

/// Like [`agreement`]; also returns how the run ended, and its curve.
pub(super) fn agreement_and_end(
    replay: &Replay,
    requests: &Requests<'_>,
    progress: &Progress,
) -> Result<(Agreement, Ended, Curve), Cancelled> {
    let device = requests.device;
    let mut watcher = StopAtDifference(Sampler::new(device.events.len(), POINTS));
    let run = replay.run_watched(requests, Comparer::new(device), &mut watcher, progress)?;
    Ok((judge(requests, &run), run.ended(), watcher.0.finish()))
}

struct StopAtDifference(Sampler);

impl Watcher<Comparer<'_>> for StopAtDifference {
    #[inline]
    fn after(&mut self, event: usize, allocator: &mut CachingAllocator<SimulatedMemory, Comparer<'_>>) -> bool {
        self.0.after(event, allocator) && allocator.sink.difference.is_none()
    }
}

fn judge(requests: &Requests<'_>, run: &Replayed<Comparer<'_>>) -> Agreement {
    let device = requests.device;
    let comparer = &run.allocator.sink;
    if let Some(difference) = comparer.difference.clone() {
        return Agreement::Differs(difference);
    }
    // A file that is cut short may contain actions that its last request caused, but not the request itself.
    let is_request = |a: &Action| matches!(a, Action::Alloc | Action::Oom | Action::FreeRequested);
    let breaks_off = requests.ignores_end && !device.events.action[comparer.next..].iter().any(is_request);
    if comparer.next < device.events.len() && !breaks_off {
        let difference = Difference { event: comparer.next as u32, recorded: comparer.recorded(comparer.next), modelled: None };
        return Agreement::Differs(difference);
    }
    if device.has_final_state && !requests.ignores_end && !same_end(device, run) {
        return Agreement::Differs(Difference { event: device.events.len() as u32, recorded: None, modelled: None });
    }
    Agreement::Agrees
}

fn same_end(device: &DeviceRecording, run: &Replayed<Comparer<'_>>) -> bool {
    let held = run.allocator.segments();
    held.len() == device.segments.len()
        && held.iter().zip(&device.segments).all(|(h, s)| {
            let blocks = device.blocks_of(s);
            h.address == s.address
                && h.size == s.size
                && h.blocks.len() == blocks.len()
                && h.blocks.iter().zip(blocks).all(|(a, b)| a.address == b.address && a.size == b.size && a.state == b.state)
        })
}
