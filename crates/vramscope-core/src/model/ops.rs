//! [`OpTable`]: what the program was doing according to a profiler trace: operators, runtime calls, kernels.

use super::StrId;

/// The kind of work in a row of an [`OpTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OpKind {
    /// A PyTorch operator on a CPU thread (`aten::addmm`), or a node of the backward pass.
    Operator,
    /// A call into the CUDA, HIP or SYCL runtime or driver (`cudaLaunchKernel`, `cudaMalloc`).
    Runtime,
    /// A kernel on the device.
    Kernel,
    /// A copy or fill on the device.
    Copy,
}

/// A CPU thread, or a stream of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpLane {
    /// The thread's name, or `GPU 0 stream 7`.
    pub name: String,
    /// True for a stream of a device.
    pub is_device: bool,
}

/// Operators, runtime calls and kernels in columns, ordered by start time. Rows of one lane nest.
#[derive(Clone, Debug, Default)]
pub struct OpTable {
    /// Start, nanoseconds since the epoch.
    pub start_ns: Vec<i64>,
    /// Duration in nanoseconds; start plus duration is the exclusive end.
    pub duration_ns: Vec<u64>,
    /// Nesting depth among the rows of its lane, 0 outermost.
    pub depth: Vec<u16>,
    /// Name, in the recording's string table.
    pub name: Vec<StrId>,
    /// Thread or stream, as an index into [`lanes`](Self::lanes).
    pub lane: Vec<u16>,
    /// Whether the row is an operator, a runtime call, a kernel or a copy.
    pub kind: Vec<OpKind>,
    /// Input shapes as the trace prints them (`[[32, 1000], []]`); [`OpTable::NO_TEXT`] when not recorded.
    pub shapes: Vec<StrId>,
    /// For an operator of the backward pass: the row of its forward operator; otherwise [`OpTable::NO_OP`].
    pub forward: Vec<u32>,
    /// Threads and streams, of all devices.
    pub lanes: Vec<OpLane>,
}

impl OpTable {
    /// Marks a row without recorded text.
    pub const NO_TEXT: StrId = StrId(u32::MAX);
    /// Marks the absence of a row.
    pub const NO_OP: u32 = u32::MAX;

    /// Number of rows, which is the length of every column.
    pub fn len(&self) -> usize {
        self.start_ns.len()
    }

    /// True when the source recorded no operators.
    pub fn is_empty(&self) -> bool {
        self.start_ns.is_empty()
    }

    /// When a row ends, nanoseconds since the epoch; `None` past the end of the table.
    pub fn end_ns(&self, row: usize) -> Option<i64> {
        Some(self.start_ns.get(row)?.saturating_add_unsigned(*self.duration_ns.get(row)?))
    }
}
