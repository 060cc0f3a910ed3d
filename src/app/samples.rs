//! The bundled recordings, and the line the welcome page says of any recording.

use std::path::PathBuf;

use super::document::DeviceData;
use super::settings::Recent;
use crate::analysis::Quantity;
use crate::units::{Bytes, count};

/// A recording inside the program: it opens with no GPU, no Python and no file.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// File name.
    pub name: &'static str,
    /// What it shows.
    pub sentence: &'static str,
    /// The file.
    pub bytes: &'static [u8],
}

/// Every bundled recording.
#[must_use]
pub fn all() -> Vec<Sample> {
    Vec::new()
}

/// Points of a sparkline.
const POINTS: usize = 96;

/// What the welcome page says of a recording.
#[must_use]
pub fn describe(path: PathBuf, data: &DeviceData) -> Recent {
    let device = data.device();
    let tables = &data.tables;
    let n = device.events.len() as u64;
    let bounds: Vec<u32> = (0..=POINTS as u64).map(|i| (n * i / POINTS as u64) as u32).collect();
    let column = |q| tables.curves.columns(device, &tables.lifetimes, q, &bounds).iter().map(|c| c.max).collect();
    let peak_reserved = tables.curves.peak(Quantity::Reserved).0;
    let sentence = match data.ooms.first() {
        Some(&e) => format!("A request for {} failed", Bytes(device.events.size[e as usize])),
        None => {
            let (requested, _) = tables.curves.peak(Quantity::Requested);
            format!("{} of tensors at the peak, {} allocations", Bytes(requested), count(tables.lifetimes.len() as u64))
        }
    };
    Recent {
        path,
        peak_reserved,
        events: n,
        has_oom: !data.ooms.is_empty(),
        sentence,
        reserved: column(Quantity::Reserved),
        requested: column(Quantity::Requested),
    }
}
