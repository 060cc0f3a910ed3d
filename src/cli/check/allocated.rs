//! Limits on allocated memory: of a device, of a role, and compared with an earlier recording of the same work.

use std::path::Path;

use serde_json::{Value, json};

use super::growth::{AtPeak, Growth};
use super::{Check, is_beside};
use crate::cli::args::{CheckArgs, RoleLimit, Tolerance};
use crate::cli::open_blocks;
use vramscope_core::anatomy::Role;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::model::{DeviceId, Progress, Recording, WarningKind};
use vramscope_core::tables::DeviceTables;
use vramscope_core::units::{Bytes, compared, told_apart};

/// Adds the checks of every device. Returns what grew on devices that do not pass.
pub(super) fn check(
    args: &CheckArgs,
    peaks: &[(DeviceId, AtPeak)],
    baseline: Option<&Baseline<'_>>,
    checks: &mut Vec<Check>,
) -> Vec<Growth> {
    let mut grown = Vec::new();
    let used: Vec<DeviceId> = peaks.iter().filter(|(_, peak)| peak.bytes > 0).map(|(id, _)| *id).collect();
    for (device, peak) in peaks {
        let first = checks.len();
        checks.extend(args.max_allocated.map(|most| check_peak(*device, peak, most)));
        checks.extend(args.max_role.iter().map(|&limit| check_role(*device, peak, limit)));
        let compared = baseline.and_then(|b| b.check(*device, peak, &used));
        if let Some((check, growth)) = compared {
            checks.push(check);
            let has_failed = checks.iter().skip(first).any(|c| !c.has_passed());
            grown.extend(growth.filter(|g| has_failed && !g.is_empty()));
        }
    }
    checks.extend(baseline.into_iter().flat_map(|b| b.missing(peaks, &used)));
    grown
}

fn check_peak(device: DeviceId, peak: &AtPeak, most: u64) -> Check {
    let [allocated, limit] = told_apart([peak.bytes, most]);
    let (passed, sentence) = match peak.caveat {
        _ if peak.bytes > most => {
            (Some(false), format!("{allocated} was allocated {}, more than {limit}{}", peak.when(), peak.holders(None)))
        }
        Some(why) => (None, format!("whether more than {limit} was allocated is unknown: {why}")),
        None if peak.before > most => {
            let before = Bytes(peak.before);
            (None, format!("whether more than {limit} was allocated is unknown: {before} was reserved before the first event"))
        }
        None => (Some(true), String::new()),
    };
    Check::of(device, "max_allocated", passed, json!(peak.bytes), json!(most), sentence)
}

/// Checks the memory of a role at a device's peak against a limit.
fn check_role(device: DeviceId, peak: &AtPeak, limit: RoleLimit) -> Check {
    let RoleLimit { role, most } = limit;
    let bytes = peak.role(role);
    let unknown = if role == Role::Unknown { 0 } else { peak.role(Role::Unknown) };
    let [held, allowed] = told_apart([bytes, most]);
    // "probably weights" does not fit after "of" and "whether" in a sentence.
    let (name, is_probable) = if role == Role::Unknown { ("unknown role", false) } else { (role.text(), peak.is_probable(role)) };
    let of_role = if is_probable { format!("what is probably {name}") } else { name.to_owned() };
    let (passed, sentence) = if bytes > most {
        let (when, who) = (peak.when(), peak.holders(Some(role)));
        let sentence = format!("{held} of {of_role} at the peak of allocated memory, {when}, more than {allowed}{who}");
        (Some(false), sentence)
    } else if let Some(why) = peak.caveat {
        (None, format!("what {} held at the peak is unknown: {why}", name))
    } else if bytes.saturating_add(unknown) > most {
        let unknown = Bytes(unknown);
        let sentence = format!(
            "whether {} held more than {allowed} is unknown: they held {held} at the peak of allocated memory, {}, but the recording does \
             not show what another {unknown} was for",
            name,
            peak.when()
        );
        (None, sentence)
    } else {
        (Some(true), String::new())
    };
    Check { role: Some(role), ..Check::of(device, "max_role", passed, json!(bytes), json!(most), sentence) }
}

/// An earlier recording of the same work.
#[derive(Debug)]
pub(super) struct Baseline<'a> {
    recording: Recording,
    /// Devices with allocations.
    peaks: Vec<(DeviceId, AtPeak)>,
    tolerance: &'a Tolerance,
}

impl<'a> Baseline<'a> {
    pub(super) fn open(path: &Path, tolerance: &'a Tolerance, rules: &Rules) -> Result<Self, String> {
        let recording = open_blocks(path)?;
        let mut peaks = Vec::new();
        for device in recording.devices.iter().filter(|d| !is_beside(&recording, d)) {
            let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
            let peak = AtPeak::of(&recording, device, &tables, rules)?;
            if peak.bytes > 0 {
                peaks.push((device.id, peak));
            }
        }
        Ok(Baseline { recording, peaks, tolerance })
    }

    /// Why the whole baseline is unreliable; `None` when it is fine.
    fn doubt(&self) -> Option<String> {
        let report = &self.recording.report;
        let changed = report.warnings.iter().find(|w| w.kind == WarningKind::Changed);
        let why = report.truncated().or(changed)?.text.trim_end_matches('.');
        Some(format!("the baseline cannot be relied on: {why}"))
    }

    pub(super) fn name(&self) -> &str {
        &self.recording.source.name
    }

    /// The peak of a device. When each side used a single device, these are compared whatever their numbers are.
    fn peak(&self, device: DeviceId, used: &[DeviceId]) -> Option<&AtPeak> {
        let same = self.peaks.iter().find(|(id, _)| *id == device);
        let only = self.peaks.first().filter(|_| used == [device] && self.peaks.len() == 1);
        same.or(only).map(|(_, peak)| peak)
    }

    /// Failed checks for devices that are in the baseline but not in the recording.
    fn missing(&self, peaks: &[(DeviceId, AtPeak)], used: &[DeviceId]) -> Vec<Check> {
        let is_there = |id: DeviceId| peaks.iter().any(|(there, _)| *there == id) || (self.peaks.len() == 1 && used.len() == 1);
        let missing = self.peaks.iter().filter(|(id, _)| !is_there(*id));
        let check = |&(id, ref old): &(DeviceId, AtPeak)| {
            let why = format!("the baseline has {} allocated on this device, which is not in the recording", Bytes(old.bytes));
            Check::of(id, "baseline", None, Value::Null, json!(self.tolerance.limit(old.bytes)), why)
        };
        missing.map(check).collect()
    }

    /// Checks a device's peak against the baseline's, and finds what grew. `None` for a device that neither side used.
    fn check(&self, device: DeviceId, new: &AtPeak, used: &[DeviceId]) -> Option<(Check, Option<Growth>)> {
        let unknown = |why: String| Some((Check::of(device, "baseline", None, json!(new.bytes), Value::Null, why), None));
        if let Some(doubt) = self.doubt() {
            return unknown(doubt);
        }
        let Some(old) = self.peak(device, used) else {
            if new.bytes == 0 {
                return None;
            }
            return unknown("the baseline has nothing that was allocated on this device".to_owned());
        };
        // Two files of one instant each are comparable.
        if !(old.is_instant() && new.is_instant())
            && let Some((whose, why)) =
                old.caveat.map(|why| ("the baseline", why)).or(new.caveat.map(|why| ("the recording", why)))
        {
            return unknown(format!("the peak of {whose} is unknown: {why}"));
        }
        let most = self.tolerance.limit(old.bytes);
        // Two recordings that both begin within a run are comparable, as two files of one instant are.
        let before = match (old.earlier, new.earlier) {
            (Some(before), None) => Some(("the baseline", before)),
            (None, Some(before)) if before > most => Some(("the recording", before)),
            _ => None,
        };
        if let Some((whose, before)) = before.filter(|_| new.bytes <= most) {
            return unknown(format!("the peak of {whose} is unknown: {} was reserved before its first event", Bytes(before)));
        }
        if let Some(why) = new.is_of_another_program(old) {
            return unknown(format!("{why}, so they are of two programs; give --baseline a recording of this one"));
        }
        let growth = Growth::between(device, old, new);
        let [now, before, allowed] = compared([new.bytes, old.bytes, most]);
        let grown = Bytes(new.bytes.saturating_sub(old.bytes));
        let sentence = format!(
            "{now} was allocated {}, {grown} more than in the baseline ({before}), and a tolerance of {} allows {allowed}",
            new.when(),
            self.tolerance.text()
        );
        let mut more = growth.json();
        more["baseline"] = json!(old.bytes);
        more["growth_bytes"] = json!(i128::from(new.bytes) - i128::from(old.bytes));
        let check = Check::of(device, "baseline", Some(new.bytes <= most), json!(new.bytes), json!(most), sentence);
        Some((Check { more: Some(more), ..check }, Some(growth)))
    }
}
