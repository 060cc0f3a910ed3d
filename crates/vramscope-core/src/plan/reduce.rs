//! [`Reduce`]: scratch memory of PyTorch's reductions over many rows, such as the gradient of a bias.
//!
//! A reduction with few outputs divides its input among several thread blocks, which combine their results in global memory: a
//! buffer, and next to it a counter of four bytes per block of outputs. The number of parts depends on the input and on how many
//! blocks the card runs at once. So the buffer grows in steps, stops growing, and does not exist for small inputs. Source:
//! PyTorch's `aten/src/ATen/native/cuda/Reduce.cuh`, `setReduceConfig` and `global_memory_size`.

use super::law::Law;
use super::program::Program;
use crate::inference::scripted::Ask;

/// Threads per block times outputs that a thread computes at once.
const THREADS: u64 = 512;
/// Fewest values per thread before the input is divided further, and most values before it is divided regardless of the card.
const FEWEST_VALUES: u64 = 16;
const MOST_VALUES: u64 = 256;
/// Threads that a multiprocessor of a data centre card runs at once.
const THREADS_AT_ONCE: u64 = 2048;

/// Multiprocessors of cards that train models: H100 and H200, A100, B200, H100 PCIe, V100, L40S, RTX 4090, RTX 3090, A10, T4.
pub(super) const MULTIPROCESSORS: [u64; 10] = [132, 108, 148, 114, 80, 142, 128, 82, 72, 40];

/// A reduction: its shape, and the law of its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// Bytes of the input by size.
    pub input: Law,
    /// Bytes of one row of the input.
    pub row: u64,
    /// Bytes of the buffer for each split.
    pub unit: u64,
    /// The layout of a thread block.
    pub block: Block,
    /// Multiprocessors of the card.
    pub multiprocessors: u64,
}

/// A thread block of a reduction over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Number of outputs that it computes.
    pub outputs: u64,
    /// Number of its threads.
    pub threads: u64,
    /// Threads that share an output.
    pub beside: u64,
    /// Number of blocks needed for all outputs.
    pub grid: u64,
}

impl Block {
    /// The layout for this many outputs, each a sum of enough rows.
    fn of(elements: u64) -> Option<Self> {
        let at_once = [4, 2, 1].into_iter().find(|n| elements.is_multiple_of(*n))?;
        let columns = elements / at_once;
        let threads = THREADS / at_once;
        // A power of two, at most 32.
        let wide = 1u64 << columns.checked_ilog2()?.min(5);
        Some(Block { outputs: wide * at_once, threads, beside: threads / wide, grid: columns.div_ceil(wide) })
    }
}

impl Reduce {
    /// The sum over the rows of an input into `size` bytes, with `element` bytes per element.
    pub(super) fn of(input: Law, size: u64, element: u64, multiprocessors: u64) -> Option<Self> {
        let elements = size / element;
        let block = Block::of(elements).filter(|_| size.is_multiple_of(element))?;
        let unit = 4 * elements * block.outputs;
        Some(Reduce { input, row: size, unit, block, multiprocessors })
    }

    /// Bytes of the buffer; 0 if the input is too small to be divided.
    pub fn bytes(&self, at: &[u64]) -> u64 {
        self.unit * splits(self.input.bytes(at) / self.row.max(1), self.block, self.multiprocessors)
    }
}

/// Number of parts into which an input of `rows` rows is divided; 0 if it is not divided.
fn splits(rows: u64, block: Block, multiprocessors: u64) -> u64 {
    let values = rows.div_ceil(block.beside.max(1));
    let at_once = multiprocessors * (THREADS_AT_ONCE / block.threads.max(1));
    if values < MOST_VALUES || block.grid == 0 || block.grid > at_once {
        return 0;
    }
    let by_card = at_once.div_ceil(block.grid);
    let splits = by_card.min(values.div_ceil(FEWEST_VALUES)).max(values.div_ceil(MOST_VALUES));
    if splits > 1 { splits } else { 0 }
}

/// A buffer and its counters in a recording, with all possible inputs.
pub(super) struct Found {
    /// The row of the counters.
    pub(super) counters: usize,
    /// Possible shapes of its outputs.
    shapes: Vec<Shape>,
    /// Rows of the program that may be the input.
    inputs: Vec<u32>,
    size: u64,
}

/// The outputs of a reduction.
#[derive(Clone, Copy)]
struct Shape {
    /// Number of outputs.
    elements: u64,
    block: Block,
}

impl Shape {
    /// Bytes of the buffer for each split.
    fn unit(self) -> u64 {
        4 * self.elements * self.block.outputs
    }

    /// Bytes of an input row, with two and with four bytes per element.
    fn rows(self) -> [u64; 2] {
        [2 * self.elements, 4 * self.elements]
    }
}

/// Finds every such buffer of a program, with its row.
pub(super) fn find(program: &Program) -> Vec<(usize, Found)> {
    let mut found = Vec::new();
    let mut live: Vec<u32> = Vec::new();
    let rows = &program.rows;
    for (at, ask) in program.asks.iter().enumerate() {
        match *ask {
            Ask::Alloc(row) => {
                if let Some(Ask::Alloc(next)) = program.asks.get(at + 1)
                    && let Some(shapes) = shape(program, row as usize, *next as usize)
                {
                    let is_input = |r: &&u32| {
                        let size = rows[**r as usize].size;
                        let fits = |b: u64| size.is_multiple_of(b) && size / b >= MOST_VALUES;
                        shapes.iter().flat_map(|s| s.rows()).any(fits)
                    };
                    let mut inputs: Vec<u32> = live.iter().rev().filter(is_input).copied().collect();
                    inputs.dedup_by_key(|r| rows[*r as usize].size);
                    inputs.truncate(64);
                    let size = rows[row as usize].size;
                    found.push((row as usize, Found { counters: *next as usize, shapes, inputs, size }));
                }
                live.push(row);
            }
            Ask::Free(row) | Ask::FreeLater(row) => {
                if let Some(at) = live.iter().rposition(|&r| r == row) {
                    live.remove(at);
                }
            }
            _ => {}
        }
    }
    found
}

/// The possible shapes of the outputs, if two consecutive rows are a buffer and its counters.
fn shape(program: &Program, buffer: usize, counters: usize) -> Option<Vec<Shape>> {
    let (b, c) = (program.rows.get(buffer)?, program.rows.get(counters)?);
    if c.size % 4 != 0 || c.size > 1 << 16 || b.size < 1 << 16 || b.life() > 8 || c.life() > 6 {
        return None;
    }
    let grid = c.size / 4;
    let mut shapes: Vec<Shape> = Vec::new();
    // The output was allocated just before.
    for output in program.rows[buffer.saturating_sub(3)..buffer].iter().rev() {
        for element in [2, 4] {
            let elements = output.size / element;
            let Some(block) = Block::of(elements).filter(|_| output.size.is_multiple_of(element)) else { continue };
            let shape = Shape { elements, block };
            if block.grid == grid && b.size.is_multiple_of(shape.unit()) {
                shapes.push(shape);
            }
        }
    }
    (!shapes.is_empty()).then_some(shapes)
}

impl Found {
    /// Possible inputs, each with its number of rows, that give this buffer on a card.
    fn candidates(&self, program: &Program, multiprocessors: u64) -> Vec<(u32, u64, Shape)> {
        let mut out = Vec::new();
        for &shape in &self.shapes {
            for &input in &self.inputs {
                let size = program.rows[input as usize].size;
                let gives = |row: u64| shape.unit() * splits(size / row, shape.block, multiprocessors) == self.size;
                let rows = shape.rows().into_iter().filter(|&row| size.is_multiple_of(row) && gives(row));
                out.extend(rows.map(|row| (input, row, shape)));
            }
        }
        out
    }

    /// The reduction whose input law gives the sizes of all recordings. `samples` are values and recorded sizes.
    pub(super) fn reduce(
        &self,
        program: &Program,
        multiprocessors: u64,
        samples: &[(&[u64], u64)],
        law_of: impl Fn(u32) -> Option<Law>,
    ) -> Option<Reduce> {
        self.candidates(program, multiprocessors).into_iter().find_map(|(input, row, shape)| {
            let input = law_of(input)?;
            let reduce = Reduce { input, row, unit: shape.unit(), block: shape.block, multiprocessors };
            samples.iter().all(|(at, size)| reduce.bytes(at) == *size).then_some(reduce)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers and counters requested on an H100: sums over the rows of fp32 gradients.
    #[test]
    fn buffers_are_those_that_pytorch_asked_for() {
        for (outputs, rows, buffer, counters) in [
            (256, 768, 0, 8),
            (256, 1152, 2_359_296, 8),
            (1024, 1152, 9_437_184, 32),
            (256, 3072, 6_291_456, 8),
            (512, 1024, 4_194_304, 16),
            (512, 2048, 8_388_608, 16),
            (2048, 2048, 33_554_432, 64),
        ] {
            let reduce = Reduce::of(Law::constant(rows * outputs * 4), outputs * 4, 4, 132).unwrap();
            assert_eq!((reduce.bytes(&[]), 4 * reduce.block.grid), (buffer, counters), "{rows} rows of {outputs}");
        }
        // An odd number of outputs is not read in groups of four: the logits of GPT-2 fill the card without a split.
        let logits = Reduce::of(Law::constant(65_536 * 50_257 * 4), 50_257 * 4, 4, 132).unwrap();
        assert_eq!((logits.bytes(&[]), logits.block.outputs), (0, 32));
        assert_eq!(Block::of(40).map(|b| (b.outputs, b.beside, b.grid)), Some((32, 16, 2)));
        assert_eq!(Block::of(0), None);
    }
}
