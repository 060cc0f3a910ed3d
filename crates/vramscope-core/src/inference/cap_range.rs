//! The range that bounds the cap of a process, narrowed event by event.

use std::fmt;

use crate::units::{Bytes, GIBIBYTE, KIBIBYTE, SizeColumn, told_apart};

/// How the cap is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CapFrom {
    /// Stated by the file or the user.
    Stated,
    /// From settings that name a share of a device whose size is known.
    Fraction,
    /// From requests that were refused although the device had room for them.
    Refusals,
    /// From the device being full: its free bytes plus what this process held. There may be no cap.
    Device,
}

/// A range for the most bytes that a process may reserve. Both bounds are equal if it is known exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapRange {
    /// Lower bound, inclusive: this many bytes were reserved, or may be.
    pub least: u64,
    /// Upper bound, inclusive: one byte more was refused, or would be.
    pub most: u64,
    /// How it is known.
    pub from: CapFrom,
    /// The event that contradicts this cap, because the program had changed it by then. `None` if it holds to the end.
    pub ends: Option<u32>,
}

impl CapRange {
    /// A cap that is known exactly.
    pub fn exact(bytes: u64) -> Self {
        CapRange { least: bytes, most: bytes, from: CapFrom::Stated, ends: None }
    }

    /// The range with the note that it is an estimate: `1.56 to 2.05 GiB (estimated from the failed requests)`.
    pub fn estimate(&self) -> String {
        format!("{self} (estimated from the failed requests)")
    }

    /// True if both bounds are equal.
    pub fn is_known(&self) -> bool {
        self.least == self.most
    }
}

impl fmt::Display for CapRange {
    /// `1.72 GiB`, or a range: `1.56 to 2.05 GiB`. The upper end of a range was refused, so it is exclusive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A range too narrow to show as two figures is written as one.
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
            // Use one unit for both ends if it suits both.
            _ if self.most < 10 * GIBIBYTE => {
                let mib = SizeColumn::default();
                f.pad(&format!("{} to {}", mib.figure(self.least), mib.sized(self.most)))
            }
            _ => f.pad(&format!("{least} to {most}")),
        }
    }
}

/// Bounds of the cap over a period in which it stayed the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The first event of the period; 0 for the beginning.
    pub(crate) from: u32,
    /// The most that was reserved, including what had to fit in addition.
    pub(crate) least: u64,
    /// The least that was refused although the device had room; `None` if nothing was refused.
    pub(crate) refused: Option<u64>,
}

/// Bounds of the cap, gathered event by event. A contradiction means that the program changed its cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds(Vec<Epoch>);

impl Default for Bounds {
    fn default() -> Self {
        Bounds::new(0)
    }
}

impl Bounds {
    /// `reserved` is the number of bytes reserved before the first event.
    pub(crate) fn new(reserved: u64) -> Self {
        Bounds(vec![Epoch { from: 0, least: reserved, refused: None }])
    }

    /// At `event`, `bytes` were reserved or would have fitted.
    pub(crate) fn held(&mut self, event: u32, bytes: u64) {
        let Some(now) = self.0.last_mut() else { return };
        if now.refused.is_some_and(|refused| bytes >= refused) {
            self.0.push(Epoch { from: event, least: bytes, refused: None });
        } else {
            now.least = now.least.max(bytes);
        }
    }

    /// At `event`, `bytes` were refused while `reserved` bytes were held.
    pub(crate) fn refused(&mut self, event: u32, reserved: u64, bytes: u64) {
        let Some(now) = self.0.last_mut() else { return };
        if bytes <= now.least {
            self.0.push(Epoch { from: event, least: reserved, refused: Some(bytes) });
        } else {
            now.refused = Some(now.refused.map_or(bytes, |r| r.min(bytes)));
        }
    }

    /// Like [`refused`](Self::refused), for a refusal found out later; it only narrows the bounds.
    pub(crate) fn refused_before(&mut self, event: u32, bytes: u64) {
        let at = self.0.partition_point(|e| e.from <= event).saturating_sub(1);
        if let Some(then) = self.0.get_mut(at).filter(|e| bytes > e.least) {
            then.refused = Some(then.refused.map_or(bytes, |r| r.min(bytes)));
        }
    }

    /// The first range that a refusal bounds.
    pub(crate) fn first(&self) -> Option<CapRange> {
        (0..self.0.len()).find_map(|at| self.range(at))
    }

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
