//! Reads PyTorch's GPU memory recordings and tells where the memory went and why it ran out.
//!
//! No screen, no GPU, and no thread that outlives a call. Everything is a [`Recording`]: a snapshot file, a profiler trace, a probe
//! run and a what-if simulation all become the same immutable value, and every analysis takes one. [`open`] reads it from a file.
//!
//! Functions that can fail return an error that can be matched on and whose text is one sentence for the user: [`FormatError`] from
//! [`open`], [`WriteError`](formats::export::WriteError) where a file is written, [`ParseError`](units::ParseError) for a size,
//! [`QueryError`](query::QueryError) for a query.
//!
//! The modules, each naming only what stands to its left (`tests/architecture.rs` of the program checks it):
//!
//! ```text
//! units < model < { formats, allocator } < inference < tables < anatomy < { query, diagnose } < { compare, plan }
//! ```
//!
//! * [`units`]: bytes, times and addresses as text, and back.
//! * [`model`]: what a recording is. No IO, no threads.
//! * [`formats`]: bytes to a recording, whatever wrote them.
//! * [`allocator`]: PyTorch's caching allocator as an executable model.
//! * [`inference`]: from a trace to the requests, settings and cap behind it, and what-if.
//! * [`tables`]: lifetimes, states and curves, which everything after stands on.
//! * [`anatomy`]: what the program was doing: steps, phases, modules, and what each block is for.
//! * [`query`]: the allocations and events that a text asks for.
//! * [`diagnose`]: findings, failed requests, leaks, fragmentation, and the text of errors.
//! * [`plan`]: the next run: its peak at other sizes, the largest that fits, and what changes to the program would give.
//! * [`compare`]: differences, flame graphs, ranks, and two sources of one run laid together.
//!
//! # Open a file and ask for its peak
//!
//! ```
//! use vramscope_core::diagnose::findings::diagnose;
//! use vramscope_core::anatomy::roles::Rules;
//! use vramscope_core::tables::{DeviceTables, Quantity, StackNames};
//! use vramscope_core::units::Bytes;
//! use vramscope_core::{Progress, Recording};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sample_snapshots/fragment_oom.pickle");
//! // Cancels the work from another thread, and tells how far it is.
//! let progress = Progress::new();
//! let recording: Recording = vramscope_core::open(&path, &progress)?;
//! for warning in &recording.report.warnings {
//!     eprintln!("{}", warning.text);
//! }
//! let device = &recording.devices[recording.busiest_device().ok_or("no device")?];
//!
//! // Lifetimes, curves and states, made once; everything else is asked of them.
//! let tables = DeviceTables::build(device, &progress)?;
//! let (bytes, event) = tables.curves.peak(Quantity::Active);
//! println!("{} active at event {event} of {}", Bytes(bytes), device.events.len());
//!
//! // The blocks that were live then.
//! let at_peak = tables.states.at(device, &tables.lifetimes, event);
//! assert!(!at_peak.blocks.is_empty());
//!
//! // What is wrong, each finding with its numbers and what to do.
//! let names = StackNames::of(&recording.stacks);
//! let found = diagnose(&recording, device, &tables, &names, &Rules::default(), &progress)?;
//! for finding in &found.findings {
//!     println!("{}: {}", finding.title, finding.sentence);
//! }
//! assert_eq!(found.ooms.len(), 1);
//! # Ok(())
//! # }
//! ```

// A panic is how a test says no, also in its helpers.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod allocator;
pub mod anatomy;
pub mod changes;
pub mod compare;
pub mod diagnose;
pub mod formats;
pub mod inference;
pub mod model;
pub mod plan;
pub mod query;
pub mod tables;
#[cfg(test)]
mod toy;
pub mod units;

pub use formats::{FormatError, open};
pub use model::{Progress, Recording};
