//! Cross-validation of several recordings: predicts the largest from the others.

use std::sync::Arc;

use super::fit::Model;
use super::program::Program;
use super::{Peaks, Setting};
use crate::units::Bytes;

/// A sentence on how near the other recordings come to the peak of the largest one. `None` if they are too few to determine the
/// effect of each quantity, or if the largest failed or is no whole run.
pub(super) fn sentence(programs: &[Arc<Program>], largest: usize, names: &[String]) -> Option<String> {
    let own = programs.get(largest).filter(|own| own.is_whole() && own.failed_under.is_none() && own.horizon.is_none())?;
    let others: Vec<Arc<Program>> = programs.iter().filter(|p| !Arc::ptr_eq(p, own)).cloned().collect();
    let varies = |name: &String| others.iter().any(|p| p.at.get(name) != others[0].at.get(name));
    if others.len() <= names.len() || !names.iter().all(varies) {
        return None;
    }
    let base = (0..others.len()).max_by_key(|&i| others[i].weight())?;
    let model = Model::of(&others, base, names).ok()?;
    let setting = Setting { conf: own.conf.clone(), text: String::new(), limit: None };
    let Peaks { peak_reserved_bytes, peak_allocated_bytes, .. } = model.predict(&own.at, &setting).peaks;
    let [reserved, allocated] = own.peaks;
    let told = match (peak_reserved_bytes, peak_allocated_bytes) == (reserved, allocated) {
        true => format!("{} reserved and {} allocated, to the byte", Bytes(reserved), Bytes(allocated)),
        false => format!(
            "{} reserved and {} allocated, where it had {} and {}",
            Bytes(peak_reserved_bytes),
            Bytes(peak_allocated_bytes),
            Bytes(reserved),
            Bytes(allocated)
        ),
    };
    let others = if others.len() == 2 { "The other two recordings predict" } else { "The other recordings predict" };
    Some(format!("{others} the peak of {}: {told}.", own.at))
}
