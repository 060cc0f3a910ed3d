//! Pairs the requests of one recording with those of another: step by step, by call stack, order, size and lifetime.
//!
//! Requests of the backward pass have no stack in most recordings, so order and stack alone would pair a layer's weight gradient
//! with the next layer's. Sizes distinguish them: a request has equal sizes in both recordings, or sizes in the ratio of the runs.

use std::ops::Range;

use super::Size;
use super::program::{NEVER, Program, Row};

/// For each row of `a`, the corresponding row of `b`; [`u32::MAX`] if there is none.
pub(super) fn align(a: &Program, b: &Program) -> Vec<u32> {
    let mut of = vec![NEVER; a.rows.len()];
    pair_older(a, b, &mut of);
    let ratios = Ratios::between(&a.at, &b.at);
    for (mine, theirs) in stretches(a, b) {
        align_stretch(a, b, mine, theirs, &ratios, &mut of);
    }
    of
}

/// For each row of an earlier step, the corresponding row of a later step of the same program; [`u32::MAX`] if there is none.
pub(super) fn align_steps(program: &Program, earlier: Range<u32>, later: Range<u32>) -> Vec<u32> {
    let mut of = vec![NEVER; program.rows.len()];
    align_stretch(program, program, earlier.clone(), later, &Ratios::between(&program.at, &program.at), &mut of);
    of[earlier.start as usize..earlier.end as usize].to_vec()
}

/// Pairs of corresponding stretches. A program with fewer steps repeats its last one.
fn stretches(a: &Program, b: &Program) -> Vec<(Range<u32>, Range<u32>)> {
    if a.steps == 0 || b.steps == 0 {
        let whole = |p: &Program| p.older as u32..p.rows.len() as u32;
        return vec![(whole(a), whole(b))];
    }
    let last = a.stretches.len() - 1;
    let mut pairs = Vec::with_capacity(a.stretches.len());
    for (i, mine) in a.stretches.iter().enumerate() {
        let theirs = match i {
            0 => b.stretches.first(),
            _ if i == last => b.stretches.last(),
            _ => b.stretches.get(i.min(b.steps)),
        };
        pairs.extend(theirs.map(|theirs| (mine.clone(), theirs.clone())));
    }
    pairs
}

/// Blocks older than the recordings have no order; blocks of equal size are paired.
fn pair_older(a: &Program, b: &Program, of: &mut [u32]) {
    let sorted = |p: &Program| {
        let mut rows: Vec<(u64, u32)> = p.rows[..p.older].iter().enumerate().map(|(i, r)| (r.size, i as u32)).collect();
        rows.sort_unstable();
        rows
    };
    let (mine, theirs) = (sorted(a), sorted(b));
    let (mut i, mut j) = (0, 0);
    while let (Some(&(x, row)), Some(&(y, other))) = (mine.get(i), theirs.get(j)) {
        if x == y {
            of[row as usize] = other;
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
}

/// Factors by which sizes may differ between the recordings: products of powers of the quantities' ratios.
struct Ratios {
    exact: Vec<(u128, u128)>,
    /// The smallest and the largest factor.
    range: (f64, f64),
}

impl Ratios {
    fn between(a: &Size, b: &Size) -> Self {
        let mut exact = vec![(1u128, 1u128)];
        let mut range = (1.0f64, 1.0f64);
        for (name, from) in a.iter() {
            let Some(to) = b.get(name).filter(|&to| to != from) else { continue };
            let (from, to) = (u128::from(from), u128::from(to));
            let before = exact.clone();
            for (n, d) in before {
                exact.push((n * to, d * from));
                exact.push((n * to * to, d * from * from));
            }
            let factor = to as f64 / from as f64;
            range = (range.0.min(range.0 * factor * factor), range.1.max(range.1 * factor * factor));
        }
        Ratios { exact, range }
    }

    fn is_exact(&self, x: u64, y: u64) -> bool {
        self.exact.iter().any(|&(n, d)| u128::from(x) * n == u128::from(y) * d)
    }

    fn is_possible(&self, x: u64, y: u64) -> bool {
        // Small sizes belong to tables and counters, which follow no law.
        let slack = 65_536.0;
        (y as f64) <= x as f64 * self.range.1 * 1.02 + slack && (y as f64) >= x as f64 * self.range.0 * 0.98 - slack
    }
}

const GAP: i32 = -3;
const NO_MATCH: i32 = i32::MIN / 4;

fn score(a: &Row, b: &Row, ratios: &Ratios) -> i32 {
    if a.loose != b.loose {
        return NO_MATCH;
    }
    let has_stack = a.loose != 0;
    let by_size = if a.size == b.size || ratios.is_exact(a.size, b.size) {
        6
    } else if ratios.is_possible(a.size, b.size) {
        if has_stack { 0 } else { -2 }
    } else if has_stack {
        -4
    } else {
        return NO_MATCH;
    };
    let class = |row: &Row| match row.life() {
        NEVER => 32,
        life => (life + 1).ilog2() as i32,
    };
    let by_life = match (class(a) - class(b)).abs() {
        0 => 3,
        1 => 2,
        2 => 0,
        _ => -3,
    };
    let by_stack = match (has_stack, a.key == b.key) {
        (false, _) => 0,
        (true, false) => 5,
        (true, true) => 7,
    };
    by_size + by_life + by_stack
}

/// Aligns two stretches by dynamic programming in a band around the diagonal.
fn align_stretch(a: &Program, b: &Program, mine: Range<u32>, theirs: Range<u32>, ratios: &Ratios, of: &mut [u32]) {
    let (x, y) = (&a.rows[mine.start as usize..mine.end as usize], &b.rows[theirs.start as usize..theirs.end as usize]);
    let (n, m) = (x.len(), y.len());
    if n == 0 || m == 0 {
        return;
    }
    // Each cell takes a byte; long recordings without steps get a narrower band.
    const MOST_CELLS: usize = 400_000_000;
    let slack = (160 + n / 8).min(2_000).min((MOST_CELLS / n / 2).max(32));
    let center = |i: usize| (i as u64 * m as u64 / n as u64) as usize;
    let half = slack + n.abs_diff(m).min(4_000);
    let width = 2 * half + 1;
    // Column j of row i is stored at j - (center(i) - half).
    let first = |i: usize| center(i) as isize - half as isize;
    let mut from = vec![0u8; (n + 1) * width];
    let mut before = vec![NO_MATCH; width];
    for (k, cell) in before.iter_mut().enumerate() {
        let j = first(0) + k as isize;
        if (0..=m as isize).contains(&j) {
            *cell = GAP * j as i32;
            from[k] = 2;
        }
    }
    let mut now = vec![NO_MATCH; width];
    for i in 1..=n {
        let shift = (first(i) - first(i - 1)) as usize;
        for k in 0..width {
            let j = first(i) + k as isize;
            let (mut best, mut way) = (NO_MATCH, 0u8);
            if (0..=m as isize).contains(&j) {
                // Up: a row only in the first list; it has the same column in the previous row.
                if let Some(&up) = before.get(k + shift) {
                    (best, way) = (up + GAP, 1);
                }
                if k > 0 && now[k - 1] + GAP > best {
                    (best, way) = (now[k - 1] + GAP, 2);
                }
                if j > 0
                    && let Some(&diagonal) = (k + shift).checked_sub(1).and_then(|d| before.get(d))
                    && diagonal > NO_MATCH / 2
                {
                    let matched = diagonal + score(&x[i - 1], &y[j as usize - 1], ratios);
                    if matched >= best {
                        (best, way) = (matched, 3);
                    }
                }
            }
            now[k] = best.max(NO_MATCH);
            from[i * width + k] = way;
        }
        std::mem::swap(&mut before, &mut now);
    }
    let (mut i, mut j) = (n, m);
    while i > 0 || j > 0 {
        let k = j as isize - first(i);
        let way = if (0..width as isize).contains(&k) { from[i * width + k as usize] } else { 0 };
        match way {
            3 if i > 0 && j > 0 => {
                of[mine.start as usize + i - 1] = theirs.start + j as u32 - 1;
                (i, j) = (i - 1, j - 1);
            }
            1 if i > 0 => i -= 1,
            2 if j > 0 => j -= 1,
            _ if i > 0 => i -= 1,
            _ => j -= 1,
        }
    }
}
