//! [`Figure`]: a printed size with its rounding error.

use crate::units::{GIBIBYTE, pytorch_size};

/// A size as printed: the nearest byte count and the maximum difference from the exact value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Nearest bytes. `u64::MAX` stands for 2^64 bytes or more, which PyTorch prints for "no limit".
    pub bytes: u64,
    /// The exact value lies in `bytes - slack ..= bytes + slack`; 0 when printed exactly.
    pub slack: u64,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.told())
    }
}

impl Figure {
    /// A figure printed in bytes.
    pub fn exact(bytes: u64) -> Self {
        Figure { bytes, slack: 0 }
    }

    /// As its bytes alone, in JSON.
    pub(super) fn serialize_bytes<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.bytes)
    }

    /// Smallest possible exact value.
    pub fn low(self) -> u64 {
        self.bytes.saturating_sub(self.slack)
    }

    /// Largest possible exact value.
    pub fn high(self) -> u64 {
        self.bytes.saturating_add(self.slack)
    }

    /// The sum; the errors add up.
    pub fn plus(self, other: Figure) -> Figure {
        Figure { bytes: self.bytes.saturating_add(other.bytes), slack: self.slack.saturating_add(other.slack) }
    }

    /// The difference, at least 0; the errors add up.
    pub fn minus(self, other: Figure) -> Figure {
        Figure { bytes: self.bytes.saturating_sub(other.bytes), slack: self.slack.saturating_add(other.slack) }
    }

    /// The figure with the unit and decimals it was printed with: 1.00 GiB does not become 1024.00 MiB. Sums have no unit of
    /// their own and are formatted as PyTorch does.
    pub fn printed(self) -> String {
        let named = [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(shift, _)| Some(*shift) == self.unit());
        let decimals = named.and_then(|(shift, _)| (0..3).find(|&decimals| self.slack == half_of_last(shift, decimals)));
        match named.zip(decimals).filter(|_| !self.is_unlimited()) {
            Some(((shift, unit), decimals)) => format!("{:.decimals$} {unit}", self.bytes as f64 / (1u64 << shift) as f64),
            None => pytorch_size(self.bytes),
        }
    }

    /// The figure in a sentence: as it was printed, but from 1 GiB on in GiB, and never in the kernel's KiB.
    pub fn told(self) -> String {
        let is_small_unit = self.unit().is_some_and(|unit| unit == 10 || unit == 20 && self.bytes > GIBIBYTE);
        if is_small_unit { pytorch_size(self.bytes) } else { self.printed() }
    }

    /// True if PyTorch printed 2^64 for "no limit".
    pub fn is_unlimited(self) -> bool {
        self.bytes == u64::MAX
    }

    /// The figure where the unit that it was printed with is a power of 1000.
    pub(super) fn decimal(self) -> Self {
        let thousands = self.unit().unwrap_or(0) / 10;
        let real = |bytes: u64| ((u128::from(bytes) * 1000u128.pow(thousands)) >> (10 * thousands)) as u64;
        Figure { bytes: real(self.bytes), slack: real(self.slack) }
    }

    /// The unit it was printed in, as a power of two; `None` for sums and for bytes.
    pub(super) fn unit(self) -> Option<u32> {
        let is_in = |shift: &u32| (0..7).any(|decimals| self.slack == half_of_last(*shift, decimals));
        [40, 30, 20, 10].into_iter().find(|shift| self.slack > 0 && is_in(shift))
    }

    /// Reads the figure at the start of a text without white space; also returns its length. Without a unit, `bare` is the unit,
    /// and bytes may have no decimals. All units are powers of 1024, whatever their name, because the allocators' formatters
    /// divide by 1024 (formats reference, 5.1).
    pub(super) fn at_start(text: &str, bare: Option<u32>) -> Option<(Figure, usize)> {
        let (number, length) = leading(text);
        let is_decimal = number.contains('.');
        let rest = text.get(length..)?;
        // NumPy prints a bare point: "184. MiB".
        // A letter behind it begins a word.
        let named = |text| unit(text, true).filter(|(_, length)| *length > 1);
        let behind_point = || named(rest.strip_prefix('.')?).map(|(shift, length)| (shift, length + 1));
        let without = || Some((bare.filter(|shift| *shift > 0 || !is_decimal)?, 0));
        let (shift, unit_length) = unit(rest, is_decimal).or_else(behind_point).or_else(without)?;
        Some((from_decimal(&number, shift)?, length + unit_length))
    }

    /// Reads the figure at the end of a text without white space; without a unit, `bare` is the unit.
    pub(super) fn at_end(text: &str, bare: Option<u32>) -> Option<Figure> {
        let is_number = |b: &u8| b.is_ascii_digit() || *b == b'.';
        let unit = text.bytes().rev().take_while(u8::is_ascii_alphabetic).count();
        let digits = text.bytes().rev().skip(unit).take_while(is_number).count();
        let (before, printed) = text.split_at_checked(text.len() - unit - digits)?;
        // "-9 GiB" is below zero, "16-20 MiB" a range, and "1e999" is not 999.
        let is_in_number = |mark: char| before.strip_suffix(mark).map(|b| b.ends_with(|c: char| c.is_ascii_digit()));
        if is_in_number('-') == Some(false) || is_in_number('e').or(is_in_number('E')) == Some(true) {
            return None;
        }
        // A sentence may end right before: "in use. 1024.00 MiB" becomes "use.1024.00MiB".
        let mut printed = printed.trim_start_matches('.');
        while let Some((_, rest)) = printed.split_once('.').filter(|(_, rest)| rest.contains('.')) {
            printed = rest;
        }
        Figure::at_start(printed, bare).filter(|(_, length)| *length == printed.len()).map(|(figure, _)| figure)
    }
}

/// The number at the start of a text without thousands separators, and its length with them.
fn leading(text: &str) -> (String, usize) {
    let bytes = text.as_bytes();
    let (mut length, mut has_point) = (0, false);
    while let Some(b) = bytes.get(length) {
        // "0.9, 125.75 GiB" becomes "0.9,125.75": a comma after decimals is no thousands separator.
        has_point |= *b == b'.';
        let is_thousands = *b == b',' && !has_point && length > 0 && length <= 26 && {
            let group = bytes.get(length + 1..length + 5).unwrap_or_else(|| bytes.get(length + 1..).unwrap_or(&[]));
            group.len() >= 3 && group[..3].iter().all(u8::is_ascii_digit) && group.get(3).is_none_or(|b| !b.is_ascii_digit())
        };
        if !(b.is_ascii_digit() || *b == b'.' || is_thousands) {
            break;
        }
        length += 1;
    }
    let number = text.get(..length).unwrap_or("").trim_end_matches('.');
    (number.replace(',', ""), number.len())
}

/// A longer unit comes before those that it starts or ends with.
#[rustfmt::skip]
const UNITS: [(&str, u32); 18] = [
    ("megabytes", 20), ("bytes", 0), ("byte", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("PiB", 50), ("KB", 10), ("MB", 20),
    // Kubernetes omits the B.
    ("GB", 30), ("TB", 40), ("PB", 50), ("Ki", 10), ("Mi", 20), ("Gi", 30), ("B", 0), ("b", 0),
];

/// XLA's units on a TPU, always after decimals. Without white space a word may follow the first four directly.
const LETTERS: [(&str, u32); 6] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50), ("E", 60)];

/// The unit at the start of a text: power of two, and length. Case is ignored.
fn unit(text: &str, is_decimal: bool) -> Option<(u32, usize)> {
    let is_word = text.get(1..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    let named = UNITS.iter().find(|(name, _)| text.get(..name.len()).is_some_and(|t| t.eq_ignore_ascii_case(name)));
    let found = named.or_else(|| LETTERS.iter().find(|(name, _)| text.starts_with(name)));
    let found = found.map(|&(name, shift)| (shift, name.len()));
    found.filter(|&(shift, length)| length > 1 || shift == 0 || is_decimal && (shift < 50 || !is_word))
}

/// `12.34` times 2^shift, with half a unit of the last decimal as error. Integer arithmetic keeps figures exact.
fn from_decimal(number: &str, shift: u32) -> Option<Figure> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(1u128 << shift)?;
    let bytes = u64::try_from((scaled + scale / 2) / scale).unwrap_or(u64::MAX);
    let slack = if shift == 0 { 0 } else { half_of_last(shift, fraction.len()) };
    Some(Figure { bytes, slack })
}

/// Half a unit of the last decimal: the rounding error of a printed figure.
fn half_of_last(shift: u32, decimals: usize) -> u64 {
    (1u128 << shift).div_ceil(2 * 10u128.pow(decimals as u32)) as u64
}

/// Sizes with a minus sign in a text without white space: `-9.00GiB`.
pub(super) fn negative_sizes(text: &str) -> Vec<String> {
    let size_after = |(at, _): (usize, &str)| -> Option<String> {
        let (figure, length) = Figure::at_start(text.get(at + 1..)?, None)?;
        let printed = text.get(at..at + 1 + length)?;
        // "16-20MiB" is a range, "GPU-8b3c" a name.
        let is_size =
            !text[..at].ends_with(|c: char| c.is_ascii_digit() || c == '-') && printed.ends_with(['B', 's']) && length > 2;
        (is_size && figure.bytes > 0).then(|| printed.to_owned())
    };
    text.match_indices('-').filter_map(size_after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MEBIBYTE;

    #[test]
    fn figures_know_how_exact_they_are() {
        let (five, used) = Figure::at_start("5.50GiBreserved", None).unwrap();
        assert_eq!((five.bytes, used), (5 * GIBIBYTE + GIBIBYTE / 2, 7));
        assert_eq!(five.slack, 5_368_710);
        assert_eq!(Figure::at_start("4770354232bytes.", None), Some((Figure::exact(4_770_354_232), 15)));
        assert_eq!(Figure::at_end("inuse.1024.00MiB", None).unwrap().bytes, 1024 * MEBIBYTE);
        assert_eq!(Figure::at_end("(GPU0;0bytes", None), Some(Figure::exact(0)));
        assert!(Figure::at_start("17179869184.00GiB", None).unwrap().0.is_unlimited());
        assert_eq!(negative_sizes("ofwhich-9.00GiBfree;-512bytes;16-20MiB,GPU-8b3c"), ["-9.00GiB", "-512bytes"]);
        assert_eq!(Figure::at_end("ofwhich-9.00GiB", None), None);
        assert_eq!((Figure::at_end("which1e999GiB", None), Figure::at_start("1e999GiB", None)), (None, None));
        assert_eq!(Figure::at_start("3.00apples", None), None);
        for text in ["1.00GiB", "1024.00MiB", "0.35GiB", "512.00KiB", "19.0MB", "4096bytes"] {
            let (figure, _) = Figure::at_start(text, None).unwrap();
            let echoed = figure.printed().replace(' ', "").replace("19.0MiB", "19.0MB").replace("4.00KiB", "4096bytes");
            assert_eq!(echoed, text);
        }
        let told = |text: &str| Figure::at_start(text, None).unwrap().0.told();
        assert_eq!(
            ["12288.00MB", "62914560KiB", "1024.00MiB", "512.00MiB"].map(told),
            ["12.00 GiB", "60.00 GiB", "1024.00 MiB", "512.00 MiB"]
        );
        assert_eq!(Figure::exact(3 << 30).plus(five).printed(), "8.50 GiB");
        assert_eq!(five.plus(five).printed(), "11.00 GiB");
        assert_eq!(Figure::at_start("184.MiBforanarray", None).map(|(f, used)| (f.bytes, used)), Some((184 * MEBIBYTE, 7)));
        assert_eq!(Figure::at_end("GiB", None), None);
        assert_eq!(Figure::at_start("999999999999999999999999999999999999999999GiB", None), None);
    }
}
