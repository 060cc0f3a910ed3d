//! Checks whether the sizes given for two recordings can be right.
//!
//! Two runs that differ only in the batch differ in request sizes by one exact ratio: that of the batches. If most of the
//! differing bytes have one exact ratio, and next to none have the given one, a given size is wrong. Only batches and lengths are
//! checked; sides of images, caches and hidden sizes grow by other rules.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::align::align;
use super::program::Program;
use crate::units::{MEBIBYTE, capital, count};

/// Names for a sequence length, whose tensors may have a few tokens more or less, or be padded.
const LENGTHS: [&str; 8] = ["seq", "seqlen", "seq_len", "length", "len", "tokens", "context", "max_length"];
/// Smaller requests are tables and counters.
const SMALL: u64 = 4096;
/// At least this share of the differing bytes must have one ratio, and at most this share the given one.
const MOST_ALIKE: f64 = 0.5;
const LEAST_RIGHT: f64 = 0.05;

/// Whether a size ratio [a, b] can come from a given quantity [p, q].
fn explains([a, b]: [u64; 2], [p, q]: [u64; 2], is_length: bool) -> bool {
    let [a, b, p, q] = [a, b, p, q].map(u128::from);
    let is_in_ratio = |p: u128, q: u128| a * q == b * p;
    if is_in_ratio(p, q) {
        return true;
    }
    // Attention grows with the square. There may be a few tokens more or less, and lengths may be padded to a multiple.
    is_length
        && (is_in_ratio(p * p, q * q)
            || (1..=8).any(|more| is_in_ratio(p + more, q + more) || (p > more && q > more && is_in_ratio(p - more, q - more)))
            || [8, 16, 32, 64, 128, 256].iter().any(|&m| is_in_ratio(p.next_multiple_of(m), q.next_multiple_of(m))))
}

/// Why the given sizes are likely wrong, in sentences; each recording is compared with the one at `base`.
pub(super) fn doubts(programs: &[Arc<Program>], names: &[String], base: usize) -> Vec<String> {
    let Some(large) = programs.get(base) else { return Vec::new() };
    let others = programs.iter().filter(|other| !Arc::ptr_eq(other, large));
    tied(programs, names).into_iter().chain(others.filter_map(|other| doubt(large, other, names))).collect()
}

/// Quantities that vary together in all recordings, and a run that would separate them.
fn tied(programs: &[Arc<Program>], names: &[String]) -> Option<String> {
    let at: Vec<Vec<u64>> = programs.iter().filter_map(|p| p.at.values(names)).collect();
    let varied: Vec<usize> = (0..names.len()).filter(|&i| at.iter().any(|values| values[i] != at[0][i])).collect();
    let is_alone = |i: usize| {
        let differ = |a: &[u64], b: &[u64]| (0..names.len()).all(|k| (a[k] != b[k]) == (k == i));
        at.iter().any(|a| at.iter().any(|b| differ(a, b)))
    };
    let alone = varied.iter().filter(|&&i| is_alone(i)).count();
    if varied.len() < 2 || alone + 1 >= varied.len() {
        return None;
    }
    let (least, most) = (at.iter().min()?, at.iter().max()?);
    let words: Vec<&str> = varied.iter().map(|&i| names[i].as_str()).collect();
    // The smallest run, with the first quantity of the largest.
    let apart = names.iter().enumerate().map(|(k, name)| (name, if k == varied[0] { most[k] } else { least[k] }));
    let apart: Vec<String> = apart.map(|(name, value)| format!("{name} {}", count(value))).collect();
    Some(format!(
        "{} change together in these recordings, so nothing shows which of them makes memory grow. One more recording, at {}, tells them apart.",
        capital(&words.join(" and ")),
        apart.join(", ")
    ))
}

fn doubt(large: &Program, small: &Program, names: &[String]) -> Option<String> {
    let mut differ = names.iter().filter(|name| large.at.get(name) != small.at.get(name));
    let (name, None) = (differ.next()?, differ.next()) else { return None };
    let lower = name.to_ascii_lowercase();
    let is_length = LENGTHS.contains(&lower.as_str());
    if !is_length && !super::names::is_batch(&lower) {
        return None;
    }
    let told = [large.at.get(name)?, small.at.get(name)?];
    let mut all = 0u64;
    let mut by_ratio: FxHashMap<[u64; 2], u64> = FxHashMap::default();
    for (row, other) in large.rows.iter().zip(align(large, small)) {
        let Some(other) = small.rows.get(other as usize) else { continue };
        let (a, b) = (row.size, other.size);
        if a == b || a.min(b) < SMALL {
            continue;
        }
        all += a;
        let common = gcd(a, b);
        *by_ratio.entry([a / common, b / common]).or_default() += a;
    }
    let (&[a, b], &bytes) = by_ratio.iter().max_by_key(|(ratio, bytes)| (**bytes, **ratio))?;
    // If most blocks doubled, a block that quadrupled grew with the square and does not confirm a given ratio of four.
    let is_square = |[p, q]: [u64; 2]| is_length && u128::from(p) * u128::from(b).pow(2) == u128::from(q) * u128::from(a).pow(2);
    let is_right = |ratio: &[u64; 2]| explains(*ratio, told, is_length) && (*ratio == [a, b] || !is_square(*ratio));
    let right = by_ratio.iter().filter(|(ratio, _)| is_right(ratio)).map(|(_, bytes)| bytes).sum();
    let share = |bytes: u64| bytes as f64 / all.max(1) as f64;
    if all < MEBIBYTE || share(bytes) < MOST_ALIKE || share(right) > LEAST_RIGHT {
        return None;
    }
    let [p, q] = told;
    let would = (q * a).is_multiple_of(b).then(|| format!(", as if it had run at {name} {}", count(q * a / b)));
    Some(format!(
        "{} is said to be at {name} {} and {} at {name} {}, which is {} times; but {:.0} % of the bytes that differ are {} times{}. \
         One of the sizes is likely wrong, or something else differs too, and then so is the plan.",
        large.recording.source.name,
        count(p),
        small.recording.source.name,
        count(q),
        times(p, q),
        share(bytes) * 100.0,
        times(a, b),
        would.unwrap_or_default(),
    ))
}

/// A ratio as text: `2`, `1.5`, `0.67`.
pub(super) fn times(a: u64, b: u64) -> String {
    let text = format!("{:.2}", a as f64 / b.max(1) as f64);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_told_size_explains_what_grows_with_it() {
        assert!(explains([16 * 77, 8 * 77], [16, 8], false) && explains([400, 100], [512, 256], true));
        assert!(!explains([400, 100], [16, 8], false), "nothing grows with the square of a batch");
        assert!(!explains([16 * 77, 8 * 77], [12, 8], false));
        // Labels are shifted by one, and lengths padded to eight.
        assert!(explains([511 * 64, 255 * 64], [512, 256], true) && explains([24 * 512, 16 * 512], [20, 9], true));
        assert!(!explains([512 * 64, 256 * 64], [600, 200], true));
        assert_eq!([times(16, 8), times(3, 2), times(2, 3)], ["2", "1.5", "0.67"]);
    }
}
