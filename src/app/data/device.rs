//! A device with its tables, from which every view draws.

use std::sync::{Arc, Mutex, OnceLock};

use crate::app::jobs::locked;
use vramscope_core::anatomy::Anatomy;
use vramscope_core::anatomy::steps::Steps;
use vramscope_core::anatomy::{Role, Roles};
use vramscope_core::diagnose::oom::{Helped, what_would_have_helped};
use vramscope_core::inference::{Caps, Prepared, WhatIf};
use vramscope_core::model::{Cancelled, DeviceRecording, Progress, Recording, Stage};
use vramscope_core::query::{Query, Scope};
use vramscope_core::tables::{DeviceTables, StackNames};
use vramscope_core::units::{Micros, counted};

/// A short description of what a device holds: its events, or its samples when it was only watched.
pub fn holds(recording: &Recording, device: &DeviceRecording) -> String {
    if recording.has_only_counters() {
        return "counters".to_owned();
    }
    if device.events.is_empty() && !device.samples.is_empty() {
        return counted(device.samples.len() as u64, "sample", "samples");
    }
    counted(device.events.len() as u64, "event", "events")
}

/// One device of a recording with its tables. Shared with the threads that compute for views.
pub struct DeviceData {
    pub recording: Arc<Recording>,
    pub index: usize,
    pub tables: DeviceTables,
    /// Short names of the recording's stacks.
    pub names: Arc<StackNames>,
    pub ooms: Vec<u32>,
    /// Results that several views share.
    pub found: FoundOnce,
}

/// Results that several views need. Each is computed once, on first use.
#[derive(Default)]
pub struct FoundOnce {
    what_if: Mutex<Option<Prepared>>,
    /// The settings that would have helped.
    helped: Mutex<Option<Arc<Helped>>>,
    /// What is known about the memory cap.
    caps: Mutex<Option<Caps>>,
    anatomy: OnceLock<Anatomy>,
    /// Indices of the recording's devices that ran out of memory.
    failed: OnceLock<Vec<usize>>,
    /// Whether the role of most of the memory is known.
    pub(crate) knows_roles: OnceLock<bool>,
}

impl DeviceData {
    pub fn device(&self) -> &DeviceRecording {
        &self.recording.devices[self.index]
    }

    /// The last failed request, which views show by default; see
    /// [`EventTable::last_oom`](vramscope_core::model::EventTable::last_oom).
    pub fn last_oom(&self) -> Option<u32> {
        self.ooms.last().copied()
    }

    /// The device's phases and steps. The first call computes them in O(lifetimes) and blocks other callers; later calls are
    /// free. Do not call it on the window's thread.
    pub fn anatomy(&self) -> &Anatomy {
        self.found.anatomy.get_or_init(|| Anatomy::read(&self.recording, self.device(), &self.tables))
    }

    /// The device's steps; costs as much as [`anatomy`](Self::anatomy).
    pub fn steps(&self) -> &Steps {
        &self.anatomy().steps
    }

    /// What a query about the device looks at; cursor and markers are for the caller to add.
    pub fn scope<'a>(&'a self, query: &Query, roles: Option<&'a Roles>) -> Scope<'a> {
        let steps = query.needs_steps().then(|| self.steps());
        Scope { roles, steps, ..Scope::new(&self.recording, self.device(), &self.tables) }
    }

    /// The device's steps if they were computed already.
    pub fn known_steps(&self) -> Option<&Steps> {
        self.found.anatomy.get().map(|anatomy| &anatomy.steps)
    }

    /// The time from the first event to an event, where times are known.
    pub fn since_start(&self, event: u32) -> Option<Micros> {
        let events = &self.device().events;
        let (first, _) = events.time_range()?;
        events.time_us.get(event as usize).map(|t| Micros(t - first))
    }

    /// Indices of the recording's devices on which a request failed. The loader makes the first call, which reads the traces;
    /// later calls are free.
    pub fn failed_devices(&self) -> &[usize] {
        self.found.failed.get_or_init(|| {
            let devices = self.recording.devices.iter().enumerate();
            devices.filter(|(_, device)| device.events.has_oom()).map(|(i, _)| i).collect()
        })
    }

    /// True when the role of at least half of the bytes is known at the last failure or at the peak; otherwise colours by role
    /// would be mostly grey. Always true for a memory timeline with sums by category. O(live blocks).
    pub(crate) fn knows_roles(&self, roles: &Roles) -> bool {
        let (device, tables) = (self.device(), &self.tables);
        let event = self.last_oom().unwrap_or_else(|| tables.curves.peak_event());
        let held = roles.live_by_role(device, tables, event);
        let all: u64 = held.iter().map(|tally| tally.block_bytes).sum();
        let unknown = held[Role::Unknown.index()].block_bytes;
        !device.bands.is_empty() || (all > 0 && unknown <= all / 2)
    }

    /// The first device other than this one on which a request failed.
    pub fn failed_elsewhere(&self) -> Option<usize> {
        self.failed_devices().iter().copied().find(|&i| i != self.index)
    }

    /// False when the file has no reserved bytes, only blocks or sums: memory timelines, traces of the CPU. A reserved value of
    /// zero then means "not recorded".
    pub fn knows_reserved(&self) -> bool {
        self.device().has_final_state || self.tables.curves.peak(vramscope_core::tables::Quantity::Reserved).0 > 0
    }

    /// True when the file has only sums by category over time: the plotted form of a memory timeline.
    pub fn has_only_sums(&self) -> bool {
        let device = self.device();
        device.events.is_empty() && device.segments.is_empty() && !device.bands.is_empty()
    }

    /// True when the file has only the final state: a snapshot without a trace.
    pub fn has_only_state(&self) -> bool {
        let device = self.device();
        device.events.is_empty() && !device.segments.is_empty() && device.samples.is_empty() && device.bands.is_empty()
    }

    /// True when the file has blocks of one instant without addresses: a JAX profile.
    pub fn has_only_blocks(&self) -> bool {
        let device = self.device();
        let has_blocks = !self.tables.lifetimes.is_empty() && device.segments.is_empty();
        has_blocks && device.events.is_empty() && device.samples.is_empty() && device.bands.is_empty()
    }

    /// Answers what-if questions about the device. The first call reads the trace (about 0.5 µs per event) and blocks other
    /// callers; later calls are free. Do not call it on the window's thread.
    pub fn what_if(&self, progress: &Progress) -> Result<WhatIf<'_>, Cancelled> {
        let mut prepared = locked(&self.found.what_if);
        if let Some(prepared) = prepared.as_ref() {
            return Ok(WhatIf::again(self.device(), prepared));
        }
        let made = WhatIf::new(self.device(), None, progress)?;
        *prepared = Some(made.prepared());
        Ok(made)
    }

    /// What is known about the memory cap of the process; shown by autopsy, findings, what-if and the timeline. The first call
    /// may read the trace and blocks other callers; later calls are free. Do not call it on the window's thread.
    pub fn caps(&self, progress: &Progress) -> Result<Caps, Cancelled> {
        let mut known = locked(&self.found.caps);
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }
        let made = Caps::of(self.device(), None, progress)?;
        *known = Some(made.clone());
        Ok(made)
    }

    /// The suggested settings, simulated on this recording. The first call runs some dozens of simulations and blocks other
    /// callers; later calls are free. Do not call it on the window's thread.
    pub fn helped(&self, progress: &Progress) -> Result<Arc<Helped>, Cancelled> {
        let mut known = locked(&self.found.helped);
        if let Some(known) = known.as_ref() {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(what_would_have_helped(&self.what_if(progress)?, progress)?);
        *known = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// Builds the tables of one device. The error is "cancelled", or a sentence that there is no such device.
pub fn prepare(recording: &Arc<Recording>, index: usize, progress: &Progress) -> Result<Arc<DeviceData>, String> {
    let device = recording.devices.get(index).ok_or_else(|| format!("the recording has no device number {index}"))?;
    let tables = DeviceTables::build(device, progress).map_err(|e| e.to_string())?;
    progress.begin(Stage::Names, 0);
    let names = Arc::new(StackNames::of(&recording.stacks));
    let ooms = device.events.ooms();
    let data = DeviceData { recording: Arc::clone(recording), index, tables, names, ooms, found: Default::default() };
    // Computed here so that no frame has to.
    let _ = data.failed_devices();
    Ok(Arc::new(data))
}
