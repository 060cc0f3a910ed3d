//! [`Law`]: the size of a request as a function of the run's sizes, and how to find it from a few recordings.

use std::sync::Arc;

use super::names::is_batch;
use super::reduce::Reduce;

/// Most quantities in one plan.
pub(super) const QUANTITIES: usize = 4;
type Powers = [u8; QUANTITIES];

/// The size of a request as a function of the quantities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// A sum of products, divided by a divisor; each value is first padded to a multiple.
    Sum {
        /// For each product, its factor and the power of each quantity.
        terms: Vec<(i128, Powers)>,
        /// Divisor of the sum; the result is rounded up. At least 1.
        divisor: i128,
        /// Multiple to which each value is padded.
        padded: [u64; QUANTITIES],
    },
    /// Scratch memory of PyTorch's reductions.
    Reduce(Arc<Reduce>),
    /// The counters next to a reduction's scratch memory.
    BesideReduce(Arc<Reduce>, u64),
}

/// How well a law is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sure {
    /// At least two recordings agree, and the law has fewer free numbers than there are recordings.
    Verified,
    /// The recordings allow no other simple law, but none verifies it.
    Determined,
    /// No simple law gives the recorded sizes, or there is only one size.
    Guessed,
}

/// A law, how well it is known, and the alternatives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fit {
    /// The law that predictions use.
    pub law: Law,
    /// How well it is known.
    pub sure: Sure,
    /// Other laws that the recordings allow; they give the answer's range.
    pub others: Vec<Law>,
}

impl Law {
    pub(super) fn constant(size: u64) -> Self {
        Law::monomial(size, 1, [0; QUANTITIES])
    }

    fn monomial(factor: u64, divisor: u128, powers: Powers) -> Self {
        let divisor = i128::try_from(divisor).unwrap_or(i128::MAX);
        Law::Sum { terms: vec![(i128::from(factor), powers)], divisor, padded: [1; QUANTITIES] }
    }

    /// Bytes at these values.
    pub fn bytes(&self, at: &[u64]) -> u64 {
        match self {
            Law::Sum { terms, divisor, padded } => {
                let sum = terms.iter().fold(0i128, |sum, &(factor, powers)| {
                    let product = product(at, &powers, padded);
                    sum.saturating_add(factor.saturating_mul(i128::try_from(product).unwrap_or(i128::MAX)))
                });
                let divisor = (*divisor).max(1);
                u64::try_from(sum.saturating_add(divisor - 1).div_euclid(divisor).max(0)).unwrap_or(u64::MAX)
            }
            Law::Reduce(reduce) => reduce.bytes(at),
            Law::BesideReduce(reduce, bytes) => {
                if reduce.bytes(at) > 0 {
                    *bytes
                } else {
                    0
                }
            }
        }
    }

    /// True if it is the same at every size.
    pub fn is_constant(&self) -> bool {
        matches!(self, Law::Sum { terms, .. } if terms.iter().all(|(_, p)| *p == [0; QUANTITIES]))
    }
}

fn product(at: &[u64], powers: &Powers, padded: &[u64; QUANTITIES]) -> u128 {
    at.iter().zip(powers).zip(padded).fold(1u128, |all, ((&value, &power), &pad)| {
        let value = if pad > 1 { value.next_multiple_of(pad) } else { value };
        (0..power).fold(all, |all, _| all.saturating_mul(u128::from(value)))
    })
}

/// True for the bytes of a square matrix with this side and a usual element size.
pub(super) fn is_square(side: u64, bytes: u64) -> bool {
    [1, 2, 4, 8].iter().any(|&width| u128::from(side).pow(2) * width == u128::from(bytes))
}

/// The quantities that a law may depend on: their values, and whether each is the side of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct Quantities {
    /// Each quantity's power in a size that grows with all of them: 2 for the side of an image, otherwise 1.
    once: Powers,
    /// The same for attention scores, which grow with the square of a length; all zero if no quantity is a length.
    scores: Powers,
    /// Indices of the quantities that differ between the recordings.
    pub(super) varying: Vec<usize>,
    /// Combinations of powers to try, simplest first.
    products: Vec<Powers>,
}

/// Words for the side of an image.
const SIDES: [&str; 11] = ["side", "res", "resolution", "image", "img", "size", "image_size", "height", "width", "h", "w"];

impl Quantities {
    pub(super) fn of(names: &[String], samples: &[Vec<u64>]) -> Self {
        let names = &names[..names.len().min(QUANTITIES)];
        let differs = |q: &usize| samples.windows(2).any(|w| w[0].get(*q) != w[1].get(*q));
        let varying: Vec<usize> = (0..names.len()).filter(differs).collect();
        let is_side = |q: usize| names.get(q).is_some_and(|n| SIDES.contains(&n.to_ascii_lowercase().as_str()));
        let mut once = [0; QUANTITIES];
        let growing: Vec<usize> = if samples.len() > 1 { varying.clone() } else { (0..names.len()).collect() };
        growing.iter().for_each(|&q| once[q] = if is_side(q) { 2 } else { 1 });
        let is_length = |q: usize| !is_side(q) && names.get(q).is_some_and(|n| !is_batch(n));
        let mut scores = [0; QUANTITIES];
        if growing.iter().any(|&q| is_length(q)) {
            growing.iter().for_each(|&q| scores[q] = if is_length(q) { 2 } else { once[q] });
        }
        let mut products: Vec<Powers> = vec![[0; QUANTITIES]];
        for &q in &varying {
            for i in 0..products.len() {
                // Attention over the pixels of an image grows with the fourth power of its side.
                let powers: &[u8] = if is_side(q) { &[2, 1, 4] } else { &[1, 2] };
                for &power in powers {
                    let mut more = products[i];
                    more[q] = power;
                    products.push(more);
                }
            }
        }
        // The square of an image's side weighs as much as another quantity's first power.
        let weight = |p: &Powers| -> u32 {
            let of = |(q, &n): (usize, &u8)| match (is_side(q), n) {
                (true, 2) => 1,
                (true, 1) => 2,
                (true, 4) => 3,
                _ => u32::from(n),
            };
            p.iter().enumerate().map(of).sum()
        };
        products.sort_by_key(|p| (weight(p), std::cmp::Reverse(*p)));
        products.retain(|p| p.iter().map(|&n| u32::from(n)).sum::<u32>() <= 5);
        Quantities { once, scores, varying, products }
    }

    /// The product of all varying quantities, with an image's side squared.
    fn all_once(&self) -> Powers {
        self.once
    }

    /// Finds the law of the sizes recorded at some values. `is_short`: the block lives only briefly.
    pub(super) fn fit(&self, samples: &[(&[u64], u64)], is_short: bool) -> Fit {
        let Some(&(at, size)) = samples.first() else {
            return Fit { law: Law::constant(0), sure: Sure::Guessed, others: Vec::new() };
        };
        let mut distinct: Vec<(&[u64], u64)> = Vec::with_capacity(samples.len());
        for &(at, size) in samples {
            match distinct.iter().find(|(a, _)| *a == at) {
                // If the same run has two sizes, no law applies.
                Some(&(_, other)) if other != size => return self.guess(samples),
                Some(_) => {}
                None => distinct.push((at, size)),
            }
        }
        if distinct.len() < 2 {
            return self.alone(at, size);
        }
        const NONE: [u64; QUANTITIES] = [1; QUANTITIES];
        let of = |law: Law, sure: Sure| Fit { law, sure, others: Vec::new() };
        let single = self.one_term(&distinct, &NONE);
        if let Some(first) = single.first() {
            // If two quantities grew in the same proportion, their effects cannot be separated.
            let sure = if single.len() == 1 { Sure::Verified } else { Sure::Guessed };
            return Fit { law: first.clone(), sure, others: single[1..].to_vec() };
        }
        for count in 2..=distinct.len().min(4) {
            let sure = if count < distinct.len() { Sure::Verified } else { Sure::Determined };
            if count == distinct.len() && count > 2 && !self.is_worth(count) {
                break;
            }
            if count == 2
                && distinct.len() == 2
                && let Some(padded) = self.padded(&distinct)
            {
                return of(padded, Sure::Determined);
            }
            let is_plainest = count == distinct.len() && count > 2;
            if let Some(law) = self.sum(&distinct, count, is_plainest) {
                if sure == Sure::Verified || is_plain(&law, &distinct, is_short) {
                    return of(law, sure);
                }
                let mut fit = self.guess(&distinct);
                fit.law = law;
                return fit;
            }
        }
        match self.padded(&distinct) {
            Some(law) => of(law, Sure::Determined),
            None => self.guess(&distinct),
        }
    }

    /// A sum of as many products as recordings is not reliable.
    fn is_worth(&self, count: usize) -> bool {
        count <= self.varying.len() + 1
    }

    /// The law of a row with only one recorded size: anything from constant to proportional to all quantities.
    pub(super) fn alone(&self, at: &[u64], size: u64) -> Fit {
        let all = self.all_once();
        let proportional = Law::monomial(size, product(at, &all, &[1; QUANTITIES]), all);
        Fit { law: Law::constant(size), sure: Sure::Guessed, others: vec![proportional] }
    }

    /// The law of attention scores with one recorded size; `None` if no quantity is a length whose square divides it.
    pub(super) fn scores(&self, at: &[u64], size: u64) -> Option<Law> {
        let of_lengths = self.scores.map(|power| if power == 2 { 2 } else { 0 });
        let square = product(at, &of_lengths, &[1; QUANTITIES]);
        let divides = square > 1 && u128::from(size).is_multiple_of(square);
        divides.then(|| Law::monomial(size, product(at, &self.scores, &[1; QUANTITIES]), self.scores))
    }

    /// Laws of a matrix that compares all samples with each other: the square of one quantity only. Not for the side of an image.
    pub(super) fn squares(&self, at: &[u64], size: u64) -> Vec<Law> {
        let is_square = |q: &usize| self.once.get(*q) == Some(&1) && is_square(at[*q], size);
        let law = |q: usize| {
            let mut powers = [0; QUANTITIES];
            powers[q] = 2;
            Law::monomial(size, u128::from(at[q]).pow(2), powers)
        };
        (0..at.len().min(QUANTITIES)).filter(is_square).map(law).collect()
    }

    fn one_term(&self, samples: &[(&[u64], u64)], padded: &[u64; QUANTITIES]) -> Vec<Law> {
        let Some(&(at, size)) = samples.first() else { return Vec::new() };
        let fits = |powers: &&Powers| {
            let here = product(at, powers, padded);
            samples[1..]
                .iter()
                .all(|(a, s)| u128::from(size).checked_mul(product(a, powers, padded)) == u128::from(*s).checked_mul(here))
        };
        let law = |powers: &Powers| {
            let divisor = i128::try_from(product(at, powers, padded)).unwrap_or(i128::MAX);
            Law::Sum { terms: vec![(i128::from(size), *powers)], divisor, padded: *padded }
        };
        self.products.iter().filter(fits).map(law).collect()
    }

    fn padded(&self, samples: &[(&[u64], u64)]) -> Option<Law> {
        for &q in &self.varying {
            for pad in [8, 16, 32, 64, 128, 256] {
                let mut padded = [1; QUANTITIES];
                padded[q] = pad;
                let grows = |law: &Law| !law.is_constant();
                if let Some(law) = self.one_term(samples, &padded).into_iter().find(grows) {
                    return Some(law);
                }
            }
        }
        None
    }

    /// A sum of this many products with integer factors that matches every sample. If no recording is left for verification, each
    /// quantity may occur only with its basic power.
    fn sum(&self, samples: &[(&[u64], u64)], count: usize, is_plainest: bool) -> Option<Law> {
        let is_plain = |p: &&Powers| !is_plainest || p.iter().zip(&self.once).all(|(n, once)| *n == 0 || n == once);
        let products: Vec<Powers> = self.products.iter().filter(is_plain).copied().collect();
        let mut chosen: Vec<usize> = (0..count).collect();
        let total = products.len();
        if total < count {
            return None;
        }
        let mut tried = 0;
        loop {
            if let Some(law) = solve(samples, &chosen.iter().map(|&t| products[t]).collect::<Vec<_>>()) {
                return Some(law);
            }
            tried += 1;
            // The next combination, in order.
            let mut at = count;
            loop {
                at = at.checked_sub(1)?;
                if chosen[at] < total - (count - at) {
                    break;
                }
            }
            chosen[at] += 1;
            for k in at + 1..count {
                chosen[k] = chosen[k - 1] + 1;
            }
            if tried > 400 {
                return None;
            }
        }
    }

    /// Without a simple law: something between the size in the nearest recording and proportional to all quantities.
    fn guess(&self, samples: &[(&[u64], u64)]) -> Fit {
        let all = self.all_once();
        let weight = |at: &[u64]| product(at, &all, &[1; QUANTITIES]);
        let Some(&(at, size)) = samples.iter().max_by_key(|(at, _)| weight(at)) else { return self.alone(&[], 0) };
        let here = weight(at);
        let proportional = Law::monomial(size, here, all);
        let constant = Law::constant(size);
        // A line through the largest sample and the largest one that is clearly smaller.
        let below = samples.iter().filter(|(a, _)| weight(a).saturating_mul(5) <= here.saturating_mul(4));
        let before = below.max_by_key(|(a, _)| weight(a));
        let line = before.and_then(|&(a, s)| {
            let there = weight(a);
            let run = i128::try_from(here).ok()? - i128::try_from(there).ok()?;
            let rise = i128::from(size) - i128::from(s);
            let (run, rise) = if run < 0 { (-run, -rise) } else { (run, rise) };
            let base = i128::from(size).checked_mul(run)?.checked_sub(rise.checked_mul(i128::try_from(here).ok()?)?)?;
            let terms = vec![(rise, all), (base, [0; QUANTITIES])];
            (rise >= 0 && base >= 0).then_some(Law::Sum { terms, divisor: run, padded: [1; QUANTITIES] })
        });
        // Without such a line: a size that grew is assumed to grow with everything, any other to stay.
        let grew = before.is_some_and(|&(_, s)| size > s);
        let law = line.unwrap_or_else(|| if grew { proportional.clone() } else { constant.clone() });
        Fit { law, sure: Sure::Guessed, others: vec![constant, proportional] }
    }
}

/// Integer factors for these products that match every sample.
fn solve(samples: &[(&[u64], u64)], products: &[Powers]) -> Option<Law> {
    const NONE: [u64; QUANTITIES] = [1; QUANTITIES];
    let n = products.len();
    let value = |s: usize, t: usize| product(samples[s].0, &products[t], &NONE) as f64;
    // Gaussian elimination with the largest pivot; the integer factors are verified exactly below.
    let mut rows: Vec<Vec<f64>> =
        (0..samples.len()).map(|s| (0..n).map(|t| value(s, t)).chain([samples[s].1 as f64]).collect()).collect();
    for t in 0..n {
        let pivot = (t..rows.len()).max_by(|&i, &j| rows[i][t].abs().total_cmp(&rows[j][t].abs()))?;
        if rows[pivot][t].abs() < 1e-9 {
            return None;
        }
        rows.swap(t, pivot);
        for i in 0..rows.len() {
            if i != t {
                let factor = rows[i][t] / rows[t][t];
                for k in t..=n {
                    rows[i][k] -= factor * rows[t][k];
                }
            }
        }
    }
    let mut terms = Vec::with_capacity(n);
    for t in 0..n {
        let factor = (rows[t][n] / rows[t][t]).round();
        let powers = products[t];
        if !factor.is_finite() || factor == 0.0 || (factor < 0.0 && powers != [0; QUANTITIES] && n < 3) {
            return None;
        }
        terms.push((factor as i128, powers));
    }
    let law = Law::Sum { terms, divisor: 1, padded: NONE };
    samples.iter().all(|(at, size)| law.bytes(at) == *size).then_some(law)
}

/// A sum determined by only two sizes is accepted if its constant part is plausible: a few more elements, or next to nothing.
fn is_plain(law: &Law, samples: &[(&[u64], u64)], is_short: bool) -> bool {
    let Law::Sum { terms, .. } = law else { return true };
    let Some(constant) = terms.iter().find(|(_, p)| *p == [0; QUANTITIES]).map(|t| t.0.abs()) else { return true };
    let Some(slope) = terms.iter().find(|(_, p)| *p != [0; QUANTITIES]).map(|t| t.0) else { return true };
    let least = samples.iter().map(|s| s.1).min().unwrap_or(0);
    let is_tiny = constant.saturating_mul(1000) <= i128::from(least);
    let is_elements = slope > 0 && constant % slope == 0 && constant / slope <= 8;
    is_tiny || is_elements || !is_short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantities(names: &[&str], samples: &[(&[u64], u64)]) -> Quantities {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let at: Vec<Vec<u64>> = samples.iter().map(|s| s.0.to_vec()).collect();
        Quantities::of(&names, &at)
    }

    fn fitted(names: &[&str], samples: &[(&[u64], u64)], at: &[u64]) -> (u64, Sure) {
        let fit = quantities(names, samples).fit(samples, false);
        (fit.law.bytes(at), fit.sure)
    }

    #[test]
    fn plain_laws_are_found_and_verified() {
        let is = |names: &[&str], samples: &[(&[u64], u64)], at: &[u64], bytes: u64, sure: Sure| {
            assert_eq!(fitted(names, samples, at), (bytes, sure), "{names:?} {samples:?}");
        };
        is(&["batch"], &[(&[8], 4096), (&[16], 4096)], &[64], 4096, Sure::Verified);
        is(&["batch"], &[(&[8], 4096), (&[12], 6144)], &[64], 32768, Sure::Verified);
        is(&["seq"], &[(&[256], 65536), (&[512], 262_144)], &[1024], 1_048_576, Sure::Verified);
        // Tokens of an image's patches plus one.
        is(&["seq"], &[(&[8], 9 * 768), (&[16], 17 * 768)], &[32], 33 * 768, Sure::Determined);
        is(&["seq"], &[(&[8], 9 * 768), (&[16], 17 * 768), (&[24], 25 * 768)], &[32], 33 * 768, Sure::Verified);
        // Padded to 8.
        is(&["seq"], &[(&[9], 16 * 512), (&[20], 24 * 512)], &[30], 32 * 512, Sure::Determined);
        let both: [(&[u64], u64); 3] = [(&[2, 8], 4 * 2 * 64), (&[4, 8], 4 * 4 * 64), (&[2, 16], 4 * 2 * 256)];
        is(&["batch", "seq"], &both, &[8, 32], 4 * 8 * 1024, Sure::Verified);
        let sum: [(&[u64], u64); 4] = [(&[2, 8], 16 + 80), (&[4, 8], 32 + 80), (&[2, 16], 32 + 160), (&[4, 16], 64 + 160)];
        is(&["batch", "seq"], &sum, &[8, 32], 256 + 320, Sure::Verified);
    }

    #[test]
    fn what_follows_no_law_is_a_guess_with_a_span() {
        let samples: [(&[u64], u64); 3] = [(&[8], 83_455), (&[12], 117_247), (&[16], 150_015)];
        let fit = quantities(&["batch"], &samples).fit(&samples, true);
        assert_eq!(fit.sure, Sure::Guessed);
        let span: Vec<u64> = fit.others.iter().map(|l| l.bytes(&[32])).collect();
        assert!(span.contains(&150_015) && span.contains(&300_030), "{span:?}");
        // Batch and length doubled together.
        let together: [(&[u64], u64); 2] = [(&[2, 8], 64), (&[4, 16], 128)];
        let fit = quantities(&["batch", "seq"], &together).fit(&together, false);
        assert_eq!(fit.sure, Sure::Guessed);
        assert!(!fit.others.is_empty());
    }
}
