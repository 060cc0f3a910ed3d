//! Reads PyTorch's GPU memory recordings and tells where the memory went and why it ran out.
//!
//! The crate needs no screen and no GPU, and starts no thread that outlives a call. Everything is a [`Recording`]: a snapshot
//! file, a profiler trace, a probe run and a what-if simulation all become the same immutable value, and every analysis takes
//! one. [`open`] reads it from a file.
//!
//! Functions that can fail return a typed error whose text is one sentence for the user: [`FormatError`] from [`open`],
//! [`WriteError`](formats::export::WriteError) for writing a file, [`ParseError`](units::ParseError) for a size,
//! [`QueryError`](query::QueryError) for a query.
//!
//! The modules. Each uses only modules to its left (`tests/architecture.rs` of the program checks this):
//!
//! ```text
//! units < model < { formats, allocator } < tables < inference < anatomy < changes < { query, diagnose } < { compare, plan }
//! ```
//!
//! * [`units`]: bytes, times and addresses as text, and back.
//! * [`model`]: the data of a recording. No IO, no threads.
//! * [`formats`]: one reader per file format, and exports.
//! * [`allocator`]: PyTorch's caching allocator as an executable model.
//! * [`tables`]: lifetimes, states and curves, on which all later modules build.
//! * [`inference`]: reconstructs from a trace the requests, settings and memory limit behind it, and simulates what-if changes.
//! * [`anatomy`]: what the program was doing: steps, phases, modules, and the role of each block.
//! * [`changes`]: the effect of a change to the program (checkpointing, a fused optimizer) on its requests.
//! * [`query`]: finds the allocations and events that match a query text.
//! * [`diagnose`]: findings, failed requests, leaks, fragmentation, and error messages.
//! * [`plan`]: predicts the peak of the next run at other sizes and with changes, and the largest size that fits.
//! * [`compare`]: differences, flame graphs, ranks, and joining two sources of one run.
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

// Tests and their helpers fail by panicking.
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
