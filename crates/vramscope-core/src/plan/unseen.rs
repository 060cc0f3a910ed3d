//! [`Unseen`]: reductions that need scratch memory only in larger runs than the recorded ones.
//!
//! A recording shows the shape of a layer's bias gradient. The gradients of the input (rows × inputs), of the weight (inputs ×
//! outputs) and of the bias (outputs) are made one after the other, while the gradient of the output (rows × outputs) is live.
//! For the scale of a normalization, the product and its sum are made and freed together. [`Reduce`] has the sizes.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::law::Law;
use super::predict::{Pick, Stream};
use super::program::Program;
use super::reduce::Reduce;
use crate::anatomy::{Phase, Role};
use crate::inference::scripted::{Ask, Asked};

/// A sum over rows that needs a buffer and counters at larger sizes than the recorded ones.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// The row that receives the sum; the buffer is requested right after it.
    pub output: u32,
    /// Possible laws, the most likely first. There are several if it is unknown which block is summed, or on which card.
    pub laws: Vec<Arc<Reduce>>,
    /// False if it may be something other than a sum over rows.
    pub is_sure: bool,
}

impl Unseen {
    fn likely(&self, at: &[u64]) -> u64 {
        if self.is_sure { self.laws.first().map_or(0, |law| law.bytes(at)) } else { 0 }
    }

    /// Lowest and highest bytes of its buffer.
    fn span(&self, at: &[u64]) -> [u64; 2] {
        let likely = self.likely(at);
        self.laws.iter().map(|law| law.bytes(at)).fold([likely; 2], |[low, high], b| [low.min(b), high.max(b)])
    }

    /// True if the recordings do not determine the buffer at this size.
    pub(super) fn is_open(&self, at: &[u64]) -> bool {
        let [low, high] = self.span(at);
        low != high
    }

    fn bytes(&self, at: &[u64], pick: Pick) -> u64 {
        match pick {
            Pick::Likely => self.likely(at),
            Pick::Least => self.span(at)[0],
            Pick::Most => self.span(at)[1],
            Pick::Mixed(seed) => self.span(at)[usize::from((self.output ^ seed).wrapping_mul(0x9e37_79b9) >> 31 != 0)],
        }
    }
}

/// A gradient's copy in another type follows within this many requests and frees.
const SOON: usize = 12;

/// Inserts the buffers at a size into a stream; `of` maps the stream's rows to those of the program.
pub(super) fn put(unseen: &[Unseen], stream: &mut Stream, at: &[u64], pick: Pick, of: impl Fn(u32) -> Option<u32>) {
    let sizes: FxHashMap<u32, (u64, u64)> = unseen
        .iter()
        .filter_map(|u| {
            let bytes = u.bytes(at, pick);
            let law = u.laws.iter().find(|law| law.bytes(at) == bytes)?;
            (bytes > 0).then_some((u.output, (bytes, 4 * law.block.grid)))
        })
        .collect();
    if sizes.is_empty() {
        return;
    }
    let mut asks = Vec::with_capacity(stream.asks.len() + 4 * sizes.len());
    for &ask in &stream.asks {
        asks.push(ask);
        let Ask::Alloc(row) = ask else { continue };
        let Some(&(bytes, counters)) = of(row).and_then(|row| sizes.get(&row)) else { continue };
        let Some(&output) = stream.rows.get(row as usize) else { continue };
        let buffer = stream.rows.len() as u32;
        stream.rows.extend([bytes, counters].map(|size| Asked { size, ..output }));
        stream.roles.extend([Role::Temporaries; 2]);
        asks.extend([Ask::Alloc(buffer), Ask::Alloc(buffer + 1), Ask::Free(buffer + 1), Ask::Free(buffer)]);
    }
    stream.asks = asks;
}

/// The summed block, and its bytes per element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Input {
    row: u32,
    element: u64,
}

/// A sum over rows in a program.
pub(super) struct Sum {
    pub(super) output: u32,
    /// The most likely input first.
    inputs: Vec<Input>,
    /// Number of rows of the input, if its whole shape was found.
    rows: Option<u64>,
    is_product: bool,
}

/// Live blocks that grow with the run.
#[derive(Default)]
struct Live {
    rows: Vec<u32>,
    by_size: FxHashMap<u64, u32>,
}

impl Live {
    fn add(&mut self, row: u32, size: u64) {
        self.rows.push(row);
        *self.by_size.entry(size).or_default() += 1;
    }

    fn remove(&mut self, row: u32, size: u64) {
        if let Some(at) = self.rows.iter().rposition(|&r| r == row) {
            self.rows.remove(at);
            if let Some(n) = self.by_size.get_mut(&size) {
                *n = n.saturating_sub(1);
            }
        }
    }

    fn count(&self, size: u64) -> u32 {
        self.by_size.get(&size).copied().unwrap_or(0)
    }
}

/// Whether a row grows with the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Growth {
    /// It has a constant size.
    None,
    /// It likely has a constant size, but may grow.
    Maybe,
    /// It likely grows.
    Likely,
}

/// Finds every sum over rows in a program's backward passes.
pub(super) fn sums(program: &Program, growth: impl Fn(u32) -> Growth) -> Vec<Sum> {
    let (grows, may_grow) = (|row: u32| growth(row) == Growth::Likely, |row: u32| growth(row) != Growth::None);
    let rows = &program.rows;
    let mut live = Live::default();
    for row in 0..program.older as u32 {
        if may_grow(row) {
            live.add(row, rows[row as usize].size);
        }
    }
    let asked = |at: Option<usize>| match program.asks.get(at?) {
        Some(Ask::Alloc(row)) => Some(*row),
        _ => None,
    };
    let mut found = Vec::new();
    for (at, ask) in program.asks.iter().enumerate() {
        match *ask {
            Ask::Alloc(row) => {
                if may_grow(row) {
                    live.add(row, rows[row as usize].size);
                }
                if grows(row) {
                    continue;
                }
                let is_backward = match rows[row as usize].phase {
                    Phase::Backward => true,
                    Phase::Load | Phase::Optimizer => false,
                    // `torch.func.grad` runs inside what looks like a forward pass.
                    _ => rows[row as usize].loose == 0,
                };
                let Some(before) = asked(at.checked_sub(1)).filter(|_| is_backward) else { continue };
                if grows(before) {
                    let is_freed = matches!(program.asks.get(at + 1), Some(Ask::Free(r) | Ask::FreeLater(r)) if *r == before);
                    found.extend(product(program, row, before).filter(|_| is_freed));
                } else {
                    let beside = asked(at.checked_sub(2)).filter(|&r| may_grow(r));
                    let copied = 2 * rows[before as usize].size;
                    // Under autocast, 16-bit gradients are copied to 32 bits right afterwards.
                    let is_copied = |ask: &Ask| matches!(ask, Ask::Alloc(r) if rows[*r as usize].size == copied && !may_grow(*r));
                    let is_half = program.asks[at..].iter().take(SOON).any(is_copied);
                    let elements = if is_half { [2, 4] } else { [4, 2] };
                    found.extend(bias(program, [row, before], beside, elements, &live));
                }
            }
            Ask::Free(row) | Ask::FreeLater(row) => {
                if let Some(r) = rows.get(row as usize) {
                    live.remove(row, r.size);
                }
            }
            _ => {}
        }
    }
    found
}

/// The sum of a product that is made only for it, as for the scale of an RMSNorm.
fn product(program: &Program, output: u32, product: u32) -> Option<Sum> {
    let (s, p) = (program.rows[output as usize].size, program.rows[product as usize].size);
    let is_sum = s > 0 && p.is_multiple_of(s) && p / s > 1;
    let inputs = [4, 2].map(|element| Input { row: product, element }).to_vec();
    is_sum.then(|| Sum { output, inputs, rows: Some(p / s), is_product: true })
}

/// The gradient of a bias, made after that of its weight. `beside` is the block made before those: the gradient of the input, if
/// there is one. `elements` are possible bytes per element, the more likely first.
fn bias(program: &Program, [output, weight]: [u32; 2], beside: Option<u32>, elements: [u64; 2], live: &Live) -> Option<Sum> {
    let rows = &program.rows;
    let (s, w) = (rows[output as usize].size, rows[weight as usize].size);
    if s == 0 || w == s || !w.is_multiple_of(s) {
        return None;
    }
    let inputs = w / s;
    // Then the rows times the layer's inputs are live as well.
    let is_output = |row: u32, element: u64, n: u64| {
        let (size, other) = (rows[row as usize].size, n * inputs * element);
        size == n * s && live.count(other) > u32::from(size == other)
    };
    let latest = |element: u64, n: u64| live.rows.iter().rev().copied().find(|&row| is_output(row, element, n));
    if let Some(beside) = beside {
        let mut known: Vec<(Input, u64)> = elements
            .into_iter()
            .filter(|element| s.is_multiple_of(*element))
            .filter_map(|element| {
                let (size, row) = (rows[beside as usize].size, inputs * element);
                let n = size.is_multiple_of(row).then_some(size / row).filter(|n| *n > 1)?;
                Some((Input { row: latest(element, n)?, element }, n))
            })
            .collect();
        // The gradient of the output was made last.
        known.sort_by_key(|(input, _)| std::cmp::Reverse(input.row));
        if let Some(&(_, n)) = known.first() {
            let inputs = known.iter().map(|k| k.0).collect();
            return Some(Sum { output, inputs, rows: Some(n).filter(|_| known.len() == 1), is_product: false });
        }
    }
    let mut seen = FxHashSet::default();
    let mut open = Vec::new();
    for &row in live.rows.iter().rev() {
        let size = rows[row as usize].size;
        if !size.is_multiple_of(s) || size == s || !seen.insert(size) {
            continue;
        }
        let of = |element: &u64| s.is_multiple_of(*element) && is_output(row, *element, size / s);
        open.extend(elements.into_iter().filter(of).map(|element| Input { row, element }));
    }
    (!open.is_empty()).then_some(Sum { output, inputs: open, rows: None, is_product: false })
}

/// The sums as laws for these cards. `law_of` returns the law by which a row grows and whether it likely does; `is_wrong` detects
/// a reduction that a recording contradicts.
pub(super) fn laws(
    program: &Program,
    sums: &[Sum],
    cards: &[u64],
    law_of: impl Fn(u32) -> Option<(Law, bool)>,
    is_wrong: impl Fn(u32, &Reduce) -> bool,
) -> Vec<Unseen> {
    // A product may also be summed over the pixels of an image. It is certainly summed over rows if layers sum as many.
    let by_rows: FxHashSet<u64> = sums.iter().filter(|s| !s.is_product).filter_map(|s| s.rows).collect();
    let mut out = Vec::new();
    for sum in sums {
        let size = program.rows[sum.output as usize].size;
        let mut laws: Vec<Arc<Reduce>> = Vec::new();
        let mut is_sure = !sum.is_product || sum.rows.is_some_and(|n| by_rows.contains(&n));
        for input in &sum.inputs {
            let Some((law, is_likely)) = law_of(input.row) else { continue };
            for &card in cards {
                let Some(reduce) = Reduce::of(law.clone(), size, input.element, card) else { continue };
                if !is_wrong(sum.output, &reduce) && !laws.iter().any(|l| **l == reduce) {
                    is_sure &= is_likely || !laws.is_empty();
                    laws.push(Arc::new(reduce));
                }
            }
        }
        if !laws.is_empty() {
            out.push(Unseen { output: sum.output, laws, is_sure });
        }
    }
    out
}
