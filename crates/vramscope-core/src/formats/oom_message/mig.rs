//! Detects whether the GPU of a message is a MIG slice: the text around it may contain the device's name or `nvidia-smi`'s table.

use super::Figure;
use crate::units::{GIBIBYTE, MEBIBYTE};

/// The profile of the slice with the capacity of the message's GPU, such as `1g.10gb`; empty if the text contains only its size.
pub(super) fn slice(around: &str, capacity: Figure) -> Option<String> {
    let profile = around.match_indices("MIG").chain(around.match_indices("mig-")).find_map(|(at, _)| {
        let rest = around.get(at + 3..)?.trim_start_matches([' ', '-', '_', ':', '/']);
        let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+')).count();
        let name = rest.get(..length)?;
        let (compute, memory) = name.rsplit_once("g.")?;
        let gib: f64 = memory.split('+').next()?.strip_suffix("gb")?.parse().ok()?;
        // A "10gb" slice has 9.5 GiB, an "18gb" slice 16 GiB.
        let share = capacity.bytes as f64 / (gib * GIBIBYTE as f64);
        (compute.starts_with(|c: char| c.is_ascii_digit()) && (0.85..1.05).contains(&share)).then(|| name.to_owned())
    });
    profile.or_else(|| {
        let table = around.split_once("MIG devices:")?.1;
        table.lines().any(|row| total(row).is_some_and(|mib| is_near(mib, capacity))).then(String::new)
    })
}

/// The second size in `|  1 3   0   0  |  14366MiB / 19968MiB | 28   0 |`.
fn total(row: &str) -> Option<u64> {
    let (_, size) = row.split_once("MiB /").filter(|(used, _)| used.contains('|'))?;
    size.trim_start().split_once("MiB")?.0.parse().ok()
}

fn is_near(mib: u64, capacity: Figure) -> bool {
    mib.saturating_mul(MEBIBYTE).abs_diff(capacity.bytes) <= capacity.bytes / 50
}
