//! Bytes, times and addresses: the one place that turns them into text and reads them back.
//!
//! Sizes are shown in binary units (1 KiB = 1024 bytes), as in PyTorch's messages. Decimal units (60 GB) are accepted as input
//! but shown in binary. A no-break space separates number and unit, so a line never breaks between them.

use std::fmt;

/// The no-break space between a number and its unit.
pub const NBSP: char = '\u{a0}';

const KIB: f64 = 1024.0;

/// True for a character that changes how a terminal or viewer behaves instead of being shown: control characters (escape,
/// carriage return, C1) other than line ends and tabs, direction marks, line separators, and invisible tags.
pub fn is_steering(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}' => {
            true
        }
        c => c.is_control(),
    }
}

/// Replaces each [steering character](is_steering) with `\u` and four hexadecimal digits per UTF-16 unit. Line ends and tabs stay.
pub fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(is_steering) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_steering(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = fmt::Write::write_fmt(&mut out, format_args!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out.into()
}

/// The candidate that a mistyped `word` most likely means: the one with the fewest letters added, left out, changed or swapped.
/// `None` when even that one differs too much.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let a: Vec<char> = word.to_lowercase().chars().collect();
    let edits = |other: &str| -> usize {
        let b: Vec<char> = other.to_lowercase().chars().collect();
        let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
        for i in 1..=a.len() {
            let mut row = vec![i];
            for j in 1..=b.len() {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = changed.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                row.push(least);
            }
            rows.push(row);
        }
        rows[a.len()][b.len()]
    };
    let most = a.len().div_ceil(3).min(3);
    let best = candidates.into_iter().filter(|c| !c.is_empty()).map(|c| (edits(c), c)).min_by_key(|c| c.0)?;
    (best.0 <= most).then_some(best.1)
}

/// The text with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |c| format!("{}{}", c.to_uppercase(), letters.as_str()))
}

/// One kibibyte, in bytes.
pub const KIBIBYTE: u64 = 1 << 10;
/// One mebibyte, in bytes.
pub const MEBIBYTE: u64 = 1 << 20;
/// One gibibyte, in bytes.
pub const GIBIBYTE: u64 = 1 << 30;

/// A number of bytes, in the unit PyTorch prints: `512 B`, `1.50 KiB`, `133.65 MiB`, `4.87 GiB`; GiB from 1 GiB on.
///
/// Up to two decimals, thousands grouped. Zero decimals are dropped below 1 GiB (`1,016 MiB`). From 1 GiB on they are dropped
/// only when nothing was rounded: `24 GiB` is exact, `24.00 GiB` is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A unit that sizes are shown in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    B,
    Kib,
    #[default]
    Mib,
    Gib,
    Tib,
}

impl Unit {
    /// The unit for a size shown on its own. A size that would round up to one of the next larger unit is shown in that unit.
    fn of(bytes: u64) -> Self {
        let rounds_to = |unit: Unit| bytes + unit.bytes() / 1024 / 200 >= unit.bytes();
        if bytes >= 10 * Unit::Tib.bytes() {
            return Unit::Tib;
        }
        [Unit::Gib, Unit::Mib, Unit::Kib].into_iter().find(|&unit| rounds_to(unit)).unwrap_or(Unit::B)
    }

    fn bytes(self) -> u64 {
        1 << (10 * self as u32)
    }

    fn name(self) -> &'static str {
        ["B", "KiB", "MiB", "GiB", "TiB"][self as usize]
    }

    fn smaller(self) -> Self {
        match self {
            Unit::B | Unit::Kib => Unit::B,
            Unit::Mib => Unit::Kib,
            Unit::Gib => Unit::Mib,
            Unit::Tib => Unit::Gib,
        }
    }

    /// The figure alone, as [`Bytes`] shows it.
    fn figure(self, bytes: u64) -> String {
        if self == Unit::B {
            return count(bytes);
        }
        let text = decimal(bytes as f64 / self.bytes() as f64, 2);
        let is_rounded = self >= Unit::Gib && !bytes.is_multiple_of(self.bytes());
        if is_rounded { two_decimals(text) } else { text }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = Unit::of(self.0);
        f.pad(&format!("{}{NBSP}{}", unit.figure(self.0), unit.name()))
    }
}

/// Texts for the sizes in one sentence. If two different sizes would read the same, both use a smaller unit: `2.05 GiB of 2.10
/// GiB`, but `2,100 MiB of 2,102 MiB`.
pub fn told_apart<const N: usize>(sizes: [u64; N]) -> [String; N] {
    let at = |unit: Unit| sizes.map(|n| (n, format!("{}{NBSP}{}", unit.figure(n), unit.name())));
    let is_clear =
        |texts: &[(u64, String); N]| texts.iter().enumerate().all(|(i, a)| texts[..i].iter().all(|b| a.0 == b.0 || a.1 != b.1));
    let mut texts = sizes.map(|n| (n, Bytes(n).to_string()));
    let mut unit = Unit::of(sizes.into_iter().max().unwrap_or(0));
    while !is_clear(&texts) && unit != Unit::B {
        unit = unit.smaller();
        texts = at(unit);
    }
    texts.map(|(_, text)| text)
}

/// Texts for sizes that a sentence compares, all in one unit (`1.90 GiB to about 0.82 GiB`): the unit of the largest, or a
/// smaller one if otherwise some size would show as 0 or two sizes would look equal.
pub fn compared<const N: usize>(sizes: [u64; N]) -> [String; N] {
    let mut unit = Unit::of(sizes.into_iter().max().unwrap_or(0));
    let is_lost = |unit: Unit| sizes.iter().any(|&n| n > 0 && n < unit.bytes().div_ceil(100));
    let is_alike = |unit: Unit| {
        let texts = sizes.map(|n| unit.figure(n));
        (0..N).any(|i| (0..i).any(|j| sizes[i] != sizes[j] && texts[i] == texts[j]))
    };
    while unit != Unit::B && (is_lost(unit) || is_alike(unit)) {
        unit = unit.smaller();
    }
    sizes.map(|n| format!("{}{NBSP}{}", unit.figure(n), unit.name()))
}

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No number, or a unit that is not known, or more bytes than a `u64` holds.
    #[error("\"{0}\" is not a size: write bytes (1536) or a number with a unit (60GiB, 512MiB, 4KiB)")]
    NotASize(String),
    /// A number with a minus.
    #[error("\"{0}\" is negative: write a size such as 24GiB")]
    Negative(String),
    /// A limit of 0.
    #[error("0 serves nothing: write a size such as 24GiB")]
    ZeroLimit,
    /// A limit below 1 MiB without a unit.
    #[error("{0} without a unit is {0} byte{s}: write the unit, as in {0}GiB or {0}MiB", s = if .0 == "1" { "" } else { "s" })]
    LimitWithoutUnit(String),
}

impl Bytes {
    /// The text of a limit as a user would set it. Between 1 and 10 GiB it is in MiB if two decimals of GiB would change the
    /// value. [`parse_limit`](Self::parse_limit) reads it back.
    pub fn limit(self) -> String {
        let text = self.to_string();
        let is_rounded = || Self::parse(&text).is_ok_and(|read| read != self);
        if (GIBIBYTE..10 * GIBIBYTE).contains(&self.0) && is_rounded() {
            return format!("{}{NBSP}{}", Unit::Mib.figure(self.0), Unit::Mib.name());
        }
        text
    }

    /// A smallest sufficient size, for a table that also shows the exact size. Returns the same text as the table if that text is
    /// itself sufficient, else MiB, rounded up: next to `4.94 GiB`, a rounded-up `4.95 GiB` would look like a different size.
    pub fn least_beside(self) -> String {
        let shown = self.to_string();
        if self.0 < GIBIBYTE || Self::parse(&shown).is_ok_and(|read| read >= self) {
            return self.at_least();
        }
        format!("{}{NBSP}{}", Unit::Mib.figure(self.0.next_multiple_of(MEBIBYTE)), Unit::Mib.name())
    }

    /// A smallest sufficient size, rounded up to two decimals, so that the size in the text is also sufficient.
    pub fn at_least(self) -> String {
        let unit = u128::from(Unit::of(self.0).bytes());
        let hundredths = (u128::from(self.0) * 100).div_ceil(unit);
        Bytes(u64::try_from(hundredths * unit / 100).unwrap_or(u64::MAX)).to_string()
    }

    /// Like `Display`, but always with two decimals, for columns in which other values have decimals: `461.00 MiB`.
    pub fn with_decimals(self) -> String {
        match Unit::of(self.0) {
            Unit::B => self.to_string(),
            unit => format!("{}{NBSP}{}", two_decimals(unit.figure(self.0)), unit.name()),
        }
    }

    /// Reads `1536`, `60GiB`, `1.5 MiB`, `8g`, `512 MB`. Units with an i and single letters are binary (1 GiB = 1024³ bytes), as
    /// in PyTorch's messages. KB, MB, GB and TB are decimal (1 GB = 1000³ bytes), as in data sheets.
    ///
    /// # Errors
    /// [`ParseError`] names the text and the accepted form.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::read(text).map(|(bytes, _)| bytes)
    }

    /// Like [`parse`](Self::parse), for a limit on memory. A number without a unit counts as bytes only from 1 MiB on: a user who
    /// writes `60` means another unit, and no allocation succeeds under a smaller limit.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), and for a small number without a unit or a limit of 0.
    pub fn parse_limit(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        match Self::read(text)? {
            (Bytes(0), _) => Err(ParseError::ZeroLimit),
            (Bytes(n), false) if n < MEBIBYTE => Err(ParseError::LimitWithoutUnit(text.to_owned())),
            (bytes, _) => Ok(bytes),
        }
    }

    /// The size in the decimal unit of data sheets, if it is a round number there but not in binary: `60 GB`, `1.5 GB`.
    pub fn round_decimal(self) -> Option<String> {
        const STEP: u64 = 10_000_000;
        let is_round = self.0 >= 10 * STEP && self.0.is_multiple_of(STEP) && !self.0.is_multiple_of(MEBIBYTE);
        let (scale, unit) = if self.0 < 1_000_000_000 { (1e6, "MB") } else { (1e9, "GB") };
        is_round.then(|| format!("{}{NBSP}{unit}", decimal(self.0 as f64 / scale, 2)))
    }

    /// The number of bytes, and whether the text had a unit.
    fn read(text: &str) -> Result<(Self, bool), ParseError> {
        let wrong = || ParseError::NotASize(text.to_owned());
        let cleaned: String = text.chars().filter(|c| !c.is_whitespace() && *c != '_' && *c != ',' && *c != NBSP).collect();
        if cleaned.strip_prefix(['-', '\u{2212}']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        {
            return Err(ParseError::Negative(text.to_owned()));
        }
        let split = cleaned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(cleaned.len());
        let (number, unit) = cleaned.split_at(split);
        let power = |base: u64, exponent: u32| base.pow(exponent);
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" | "b" | "byte" | "bytes" => 1,
            "k" | "kib" => power(1024, 1),
            "m" | "mib" => power(1024, 2),
            "g" | "gib" => power(1024, 3),
            "t" | "tib" => power(1024, 4),
            "kb" => power(1000, 1),
            "mb" => power(1000, 2),
            "gb" => power(1000, 3),
            "tb" => power(1000, 4),
            _ => return Err(wrong()),
        };
        let has_unit = !unit.is_empty();
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(|n| (Bytes(n), has_unit)).ok_or_else(wrong);
        }
        let value: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = value * scale as f64;
        let fits = bytes.is_finite() && (0.0..=9.0e18).contains(&bytes);
        if fits { Ok((Bytes(bytes.round() as u64), has_unit)) } else { Err(wrong()) }
    }
}

/// How one column writes its sizes, all in one unit: MiB by default, a larger unit if the largest size is 10 GiB or more, KiB if
/// all are below 1 MiB. If one size has decimals, all get two, so that the decimal points line up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeColumn {
    unit: Unit,
    has_decimals: bool,
}

impl SizeColumn {
    /// Chooses the format for these sizes in bytes.
    pub fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        // The bitwise or of all sizes shows whether all of them are whole numbers in a unit.
        let (largest, bits) = sizes.into_iter().fold((0, 0), |(largest, bits), n| (n.max(largest), bits | n));
        let unit = match largest {
            0 | MEBIBYTE.. if largest < 10 * GIBIBYTE => Unit::Mib,
            0..MEBIBYTE => Unit::Kib,
            _ => Unit::of(largest),
        };
        Self { unit, has_decimals: bits & (unit.bytes() - 1) != 0 }
    }

    /// Like [`of`](Self::of), for a narrow column: GiB as soon as a figure in MiB would need four digits.
    pub fn narrow(sizes: impl IntoIterator<Item = u64> + Clone) -> Self {
        let is_wide = sizes.clone().into_iter().max().is_some_and(|most| most >= 1000 * MEBIBYTE);
        match Self::of(sizes) {
            column if is_wide && column.unit < Unit::Gib => Self { unit: Unit::Gib, has_decimals: true },
            column => column,
        }
    }

    /// The unit, for the column header.
    pub fn unit(self) -> &'static str {
        self.unit.name()
    }

    /// The column header: `peak, MiB`.
    pub fn head(self, name: &str) -> String {
        format!("{name}, {}", self.unit())
    }

    /// A size without its unit. A size that is not 0 but would round to 0 is `<0.01`.
    pub fn figure(self, bytes: u64) -> String {
        // 0.005 of the unit rounds up.
        if bytes > 0 && bytes < self.unit.bytes().div_ceil(200) {
            return "<0.01".to_owned();
        }
        let text = decimal(bytes as f64 / self.unit.bytes() as f64, 2);
        if self.has_decimals { two_decimals(text) } else { text }
    }

    /// A size with the unit of the column.
    pub fn sized(self, bytes: u64) -> String {
        format!("{}{NBSP}{}", self.figure(bytes), self.unit())
    }
}

/// A device address, as PyTorch's tools print it: `0x7f1dca2b7000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Address(pub u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#x}", self.0))
    }
}

impl Address {
    /// Reads `0x7f1d…`, the bare hexadecimal digits, or a decimal number of more than ten digits.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return u64::from_str_radix(hex, 16).ok().map(Address);
        }
        if text.len() > 10 && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().ok().map(Address);
        }
        if text.len() >= 6 { u64::from_str_radix(text, 16).ok().map(Address) } else { None }
    }
}

/// A span of time in microseconds: `13 µs`, `2.958 ms`, `1.250 s`, `2 min 05 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub i64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let us = self.0.unsigned_abs();
        let text = if us < 1_000 {
            format!("{sign}{us}{NBSP}µs")
        } else if us < 1_000_000 {
            format!("{sign}{}.{:03}{NBSP}ms", us / 1_000, us % 1_000)
        } else if us < 120_000_000 {
            format!("{sign}{}.{:03}{NBSP}s", us / 1_000_000, us / 1_000 % 1_000)
        } else if us < 7_200_000_000 {
            format!("{sign}{}{NBSP}min{NBSP}{:02}{NBSP}s", us / 60_000_000, us / 1_000_000 % 60)
        } else {
            format!("{sign}{}{NBSP}h{NBSP}{:02}{NBSP}min", us / 3_600_000_000, us / 60_000_000 % 60)
        };
        f.pad(&text)
    }
}

/// Formats microseconds since the epoch as the time of day in UTC: `01:47:02.576`.
pub fn time_of_day(epoch_us: i64) -> String {
    let ms = epoch_us.div_euclid(1_000).rem_euclid(86_400_000);
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000)
}

/// A size in the format of PyTorch's messages (`205.00 MiB`, `1024 bytes`), for text shown beside such a message.
pub fn pytorch_size(bytes: u64) -> String {
    let value = bytes as f64;
    if bytes <= KIBIBYTE {
        format!("{bytes} bytes")
    } else if bytes <= MEBIBYTE {
        format!("{:.2} KiB", value / KIB)
    } else if bytes <= GIBIBYTE {
        format!("{:.2} MiB", value / (KIB * KIB))
    } else {
        format!("{:.2} GiB", value / (KIB * KIB * KIB))
    }
}

/// A count with its thousands separated by commas: `27,909`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `1 block`, `2 blocks`: a count with its noun.
pub fn counted(n: u64, singular: &str, plural: &str) -> String {
    format!("{}{NBSP}{}", count(n), if n == 1 { singular } else { plural })
}

/// Adds two zero decimals to a figure that has none.
fn two_decimals(text: String) -> String {
    if text.contains('.') { text } else { format!("{text}.00") }
}

/// A value with up to `places` decimals, ties away from zero, zero decimals dropped, thousands separated.
fn decimal(value: f64, places: u32) -> String {
    let scale = 10u64.pow(places);
    let scaled = (value * scale as f64).round() as u64;
    let whole = count(scaled / scale);
    match scaled % scale {
        0 => whole,
        fraction => format!("{whole}.{fraction:0width$}", width = places as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: impl fmt::Display) -> String {
        text.to_string().replace(NBSP, " ")
    }

    #[test]
    fn bytes_read_like_a_person_writes_them() {
        assert_eq!(plain(Bytes(0)), "0 B");
        assert_eq!(plain(Bytes(1023)), "1,023 B");
        assert_eq!(plain(Bytes(167_936)), "164 KiB");
        assert_eq!(plain(Bytes(5_853_184)), "5.58 MiB");
        assert_eq!(plain(Bytes(1016 * MEBIBYTE)), "1,016 MiB");
        assert_eq!(plain(Bytes(146_550_620_160)), "136.49 GiB");
    }

    #[test]
    fn the_least_that_is_enough_is_rounded_up() {
        let least = |bytes: u64| plain(Bytes(bytes).at_least());
        assert_eq!([least(2100 * MEBIBYTE), least(2 * GIBIBYTE), least(GIBIBYTE + 1)], ["2.06 GiB", "2 GiB", "1.01 GiB"]);
        assert_eq!([least(500 * MEBIBYTE), least(0)], ["500 MiB", "0 B"]);
        let beside = |bytes: u64| plain(Bytes(bytes).least_beside());
        assert_eq!([2100 * MEBIBYTE, 2 * GIBIBYTE, GIBIBYTE + 1, 700].map(beside), ["2,100 MiB", "2 GiB", "1,025 MiB", "700 B"]);
    }

    #[test]
    fn from_one_gibibyte_on_sizes_are_in_gibibytes() {
        assert_eq!(plain(Bytes(GIBIBYTE - 6000)), "1,023.99 MiB");
        assert_eq!(plain(Bytes(GIBIBYTE - 512)), "1.00 GiB", "never 1,024 MiB");
        assert_eq!(plain(Bytes(GIBIBYTE)), "1 GiB", "exactly");
        assert_eq!(plain(Bytes(GIBIBYTE + 512)), "1.00 GiB");
        assert_eq!(plain(Bytes(5_223_743_160)), "4.86 GiB");
        assert_eq!(plain(Bytes(2000 * GIBIBYTE)), "2,000 GiB");
        assert_eq!(plain(Bytes(20 << 40)), "20 TiB");
    }

    #[test]
    fn a_limit_keeps_its_digits() {
        let limit = |n: u64| plain(Bytes(n).limit());
        assert_eq!([24 * GIBIBYTE, 3 * GIBIBYTE / 2, 2100 * MEBIBYTE].map(limit), ["24 GiB", "1.50 GiB", "2,100 MiB"]);
        assert_eq!(Bytes::parse_limit(&Bytes(2100 * MEBIBYTE).limit()), Ok(Bytes(2100 * MEBIBYTE)));
    }

    #[test]
    fn what_is_compared_has_one_unit() {
        let said = |sizes: [u64; 2]| compared(sizes).map(plain);
        let mib = |n: f64| (n * MEBIBYTE as f64) as u64;
        assert_eq!(said([mib(1945.6), mib(836.54)]), ["1.90 GiB", "0.82 GiB"]);
        assert_eq!(said([mib(5817.75), mib(0.5)]), ["5,817.75 MiB", "0.50 MiB"], "0.00 GiB would say nothing");
        assert_eq!(said([mib(2100.0), mib(2101.0)]), ["2,100 MiB", "2,101 MiB"], "2.05 GiB would be said twice");
        assert_eq!(said([mib(374.0), 0]), ["374 MiB", "0 MiB"]);
    }

    #[test]
    fn sizes_in_one_sentence_are_told_apart() {
        let apart = |sizes: [u64; 2]| told_apart(sizes).map(plain);
        assert_eq!(apart([2100 * MEBIBYTE, 3 * GIBIBYTE]), ["2.05 GiB", "3 GiB"]);
        assert_eq!(apart([2100 * MEBIBYTE, 2102 * MEBIBYTE]), ["2,100 MiB", "2,102 MiB"]);
        assert_eq!(apart([2 * GIBIBYTE + 512, 2 * GIBIBYTE + 1024]), ["2,097,152.50 KiB", "2,097,153 KiB"]);
        assert_eq!(apart([GIBIBYTE + 512, GIBIBYTE + 512]), ["1.00 GiB", "1.00 GiB"], "the same is the same");
        assert_eq!(apart([GIBIBYTE + 1, GIBIBYTE + 2]), ["1,073,741,825 B", "1,073,741,826 B"]);
    }

    #[test]
    fn bytes_parse_what_they_print_and_what_people_type() {
        assert_eq!(Bytes::parse("60GiB"), Ok(Bytes(60 * GIBIBYTE)));
        assert_eq!(Bytes::parse("1.5 MiB"), Ok(Bytes(3 * MEBIBYTE / 2)));
        assert_eq!(Bytes::parse("1_048_576"), Ok(Bytes(MEBIBYTE)));
        assert!(Bytes::parse("lots").is_err());
        assert!(Bytes::parse("99999999999999999999").is_err());
        assert!(Bytes::parse("-1").is_err());
    }

    #[test]
    fn decimal_units_are_decimal_and_shown_back_in_binary() {
        assert_eq!(Bytes::parse("60GB"), Ok(Bytes(60_000_000_000)));
        assert_eq!(Bytes::parse("512 MB"), Ok(Bytes(512_000_000)));
        assert_eq!(Bytes::parse("8g"), Ok(Bytes(8 * GIBIBYTE)));
        assert_eq!(plain(Bytes(60_000_000_000)), "55.88 GiB");
        let round = |n| Bytes(n).round_decimal().map(plain);
        assert_eq!(round(60_000_000_000).as_deref(), Some("60 GB"));
        assert_eq!(round(1_500_000_000).as_deref(), Some("1.50 GB"));
        assert_eq!((round(60 * GIBIBYTE), round(2_202_009_599), round(0)), (None, None, None));
    }

    #[test]
    fn a_limit_has_a_unit_and_is_above_zero() {
        assert_eq!(Bytes::parse_limit("60GiB"), Ok(Bytes(60 * GIBIBYTE)));
        assert_eq!(Bytes::parse_limit("2202009600"), Ok(Bytes(2_202_009_600)), "bytes, as scripts write them");
        assert_eq!(Bytes::parse_limit("512 B"), Ok(Bytes(512)));
        let refused = |text: &str| Bytes::parse_limit(text).expect_err(text).to_string();
        assert_eq!(refused("1"), "1 without a unit is 1 byte: write the unit, as in 1GiB or 1MiB");
        assert_eq!(refused("60"), "60 without a unit is 60 bytes: write the unit, as in 60GiB or 60MiB");
        assert!(refused("0").contains("serves nothing"));
        assert_eq!(refused("-5GiB"), "\"-5GiB\" is negative: write a size such as 24GiB");
    }

    #[test]
    fn the_points_of_a_column_line_up() {
        let half = (1 << 20) + (1 << 19);
        let (whole, mixed) = (SizeColumn::of([461 << 20, 1 << 30]), SizeColumn::of([461 << 20, half]));
        assert_eq!([461 << 20, 1 << 30].map(|n| whole.figure(n)), ["461", "1,024"]);
        assert_eq!([461 << 20, half, 0, 1].map(|n| mixed.figure(n)), ["461.00", "1.50", "0.00", "<0.01"]);
        assert_eq!([461 << 20, 512].map(|n| plain(mixed.sized(n))), ["461.00 MiB", "<0.01 MiB"]);
    }

    #[test]
    fn a_column_has_one_unit() {
        let small = SizeColumn::of([9 << 30, 100 << 20]);
        assert_eq!((small.head("peak"), small.figure(9 << 30)), ("peak, MiB".to_owned(), "9,216".to_owned()));
        let large = SizeColumn::of([10 << 30, 100 << 20, 1]);
        assert_eq!(large.head("peak"), "peak, GiB");
        assert_eq!([10 << 30, 100 << 20, 1].map(|n| large.figure(n)), ["10.00", "0.10", "<0.01"]);
        assert_eq!(SizeColumn::of([80 << 30, 0]).figure(80 << 30), "80");
        let huge = SizeColumn::of([128 << 40, 512]);
        assert_eq!([128 << 40, 512].map(|n| plain(huge.sized(n))), ["128.00 TiB", "<0.01 TiB"], "as it is written elsewhere");
        let little = SizeColumn::of([512, 3072]);
        assert_eq!((little.head("peak"), little.figure(512)), ("peak, KiB".to_owned(), "0.50".to_owned()));
        assert_eq!(SizeColumn::of([0, 0]).sized(0).replace(NBSP, " "), "0 MiB");
    }

    #[test]
    fn a_little_is_not_nothing_in_a_column() {
        assert_eq!([0, 1, 5242, 5243, 1 << 20].map(|b| SizeColumn::default().figure(b)), ["0", "<0.01", "<0.01", "0.01", "1"]);
    }

    #[test]
    fn addresses_and_times() {
        assert_eq!(Address(0x7f1d_ca2b_7000).to_string(), "0x7f1dca2b7000");
        assert_eq!(Address::parse("0x7f1dca2b7000"), Some(Address(0x7f1d_ca2b_7000)));
        assert_eq!(Address::parse("139765089304576"), Some(Address(139_765_089_304_576)));
        assert_eq!(Address::parse("cat"), None);
        assert_eq!(plain(Micros(2_958)), "2.958 ms");
        assert_eq!(plain(Micros(-5)), "-5 µs");
        assert_eq!(time_of_day(1_795_225_622_576_159), "01:47:02.576");
        assert_eq!(count(27_909), "27,909");
    }
}
