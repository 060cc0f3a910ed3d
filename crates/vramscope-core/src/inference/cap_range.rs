//! What bounds the cap of a process: a range, and how it is narrowed event by event.

use std::fmt;

use crate::units::{Bytes, GIBIBYTE, KIBIBYTE, SizeColumn, told_apart};

/// How a cap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapFrom {
    /// The file or the user states it.
    Stated,
    /// The settings name a share of a device whose size is known.
    Fraction,
    /// Requests were refused although the device had room for them.
    Refusals,
    /// The device itself was full: its free bytes plus what this process held. No cap is known to exist.
    Device,
}

/// The most that a process may reserve, in bytes: between two figures, or exactly if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapRange {
    /// Lower bound, inclusive: this much was reserved, or may be.
    pub least: u64,
    /// Upper bound, inclusive: one byte more was refused, or would be.
    pub most: u64,
    /// How it is known.
    pub from: CapFrom,
    /// The event that contradicts it, because the program had changed its cap by then. `None` if it holds to the end.
    pub ends: Option<u32>,
}

impl CapRange {
    /// A cap that is known exactly.
    pub fn exact(bytes: u64) -> Self {
        CapRange { least: bytes, most: bytes, from: CapFrom::Stated, ends: None }
    }

    /// A range as every text names it: `1.56 to 2.05 GiB (estimated from the failed requests)`.
    pub fn estimate(&self) -> String {
        format!("{self} (estimated from the failed requests)")
    }

    /// True if both bounds are equal.
    pub fn is_known(&self) -> bool {
        self.least == self.most
    }
}

impl fmt::Display for CapRange {
    /// `1.72 GiB`, or `1.56 to 2.05 GiB` where only that much is known. The upper end is exclusive then: so much was refused.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A range narrower than figures show is one figure.
        if self.most.saturating_sub(self.least) < 10 * KIBIBYTE {
            return f.pad(&Bytes(self.most).to_string());
        }
        let [least, most] = told_apart([self.least, self.most]);
        if self.least == 0 {
            return f.pad(&format!("under {most}"));
        }
        let unit = |text: &str| text.rsplit_once(crate::units::NBSP).map(|(n, unit)| (n.to_owned(), unit.to_owned()));
        match (unit(&least), unit(&most)) {
            (Some((low, a)), Some((_, b))) if a == b => f.pad(&format!("{low} to {most}")),
            // One unit for both ends, where it suits both.
            _ if self.most < 10 * GIBIBYTE => {
                let mib = SizeColumn::default();
                f.pad(&format!("{} to {}", mib.figure(self.least), mib.sized(self.most)))
            }
            _ => f.pad(&format!("{least} to {most}")),
        }
    }
}

/// What bounds the cap while it stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The first event it holds for; 0 from the beginning.
    pub(crate) from: u32,
    /// The most that was reserved, with what had to fit beside it.
    pub(crate) least: u64,
    /// The least that was refused although the device had room; `None` when nothing was.
    pub(crate) refused: Option<u64>,
}

/// The cap's bounds, gathered event by event; a contradiction means that the program changed its cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds(Vec<Epoch>);

impl Default for Bounds {
    fn default() -> Self {
        Bounds::new(0)
    }
}

impl Bounds {
    /// `reserved` is there before the first event.
    pub(crate) fn new(reserved: u64) -> Self {
        Bounds(vec![Epoch { from: 0, least: reserved, refused: None }])
    }

    /// `bytes` were reserved, or fitted, at an event.
    pub(crate) fn held(&mut self, event: u32, bytes: u64) {
        let Some(now) = self.0.last_mut() else { return };
        if now.refused.is_some_and(|refused| bytes >= refused) {
            self.0.push(Epoch { from: event, least: bytes, refused: None });
        } else {
            now.least = now.least.max(bytes);
        }
    }

    /// `bytes` were refused at an event, while `reserved` was held.
    pub(crate) fn refused(&mut self, event: u32, reserved: u64, bytes: u64) {
        let Some(now) = self.0.last_mut() else { return };
        if bytes <= now.least {
            self.0.push(Epoch { from: event, least: reserved, refused: Some(bytes) });
        } else {
            now.refused = Some(now.refused.map_or(bytes, |r| r.min(bytes)));
        }
    }

    /// The same, found out later: it only narrows what is known.
    pub(crate) fn refused_before(&mut self, event: u32, bytes: u64) {
        let at = self.0.partition_point(|e| e.from <= event).saturating_sub(1);
        if let Some(then) = self.0.get_mut(at).filter(|e| bytes > e.least) {
            then.refused = Some(then.refused.map_or(bytes, |r| r.min(bytes)));
        }
    }

    /// What bounded it first, if something was refused.
    pub(crate) fn first(&self) -> Option<CapRange> {
        (0..self.0.len()).find_map(|at| self.range(at))
    }

    /// What bounds it at an event.
    pub(crate) fn at(&self, event: u32) -> Option<CapRange> {
        self.range(self.0.partition_point(|e| e.from <= event).checked_sub(1)?)
    }

    fn range(&self, at: usize) -> Option<CapRange> {
        let epoch = self.0.get(at)?;
        let most = epoch.refused?.saturating_sub(1).max(epoch.least);
        let ends = self.0.get(at + 1).map(|next| next.from);
        Some(CapRange { least: epoch.least, most, from: CapFrom::Refusals, ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(least: u64, most: u64) -> CapRange {
        CapRange { least: least << 20, most: (most << 20) - 1, from: CapFrom::Refusals, ends: None }
    }

    #[test]
    fn a_range_is_written_with_one_unit() {
        assert_eq!(range(1600, 2100).to_string().replace(crate::units::NBSP, " "), "1.56 to 2.05 GiB");
        assert_eq!(range(2100, 2102).to_string().replace(crate::units::NBSP, " "), "2,100 to 2,102 MiB");
        assert_eq!(CapRange::exact(1760 << 20).to_string().replace(crate::units::NBSP, " "), "1.72 GiB");
        let wide = CapRange { least: 512 << 20, most: 64 << 30, ..CapRange::exact(0) };
        assert_eq!(range(0, 64).to_string().replace(crate::units::NBSP, " "), "under 64 MiB");
        assert_eq!(wide.to_string().replace(crate::units::NBSP, " "), "512 MiB to 64 GiB");
    }
}
