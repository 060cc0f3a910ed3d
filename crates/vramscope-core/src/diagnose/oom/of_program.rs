//! What to change in the program itself after a failure, other than settings and sizes.

use super::{Advice, Autopsy};
use crate::anatomy::roles::Roles;
use crate::model::{DeviceRecording, Recording};
use crate::tables::DeviceTables;

/// A failure, and what is known about the program.
pub struct Failure<'a> {
    /// The whole recording, for its stacks.
    pub recording: &'a Recording,
    /// The device that ran out of memory.
    pub device: &'a DeviceRecording,
    /// The device's tables.
    pub tables: &'a DeviceTables,
    /// The role of each of its blocks.
    pub roles: &'a Roles,
    /// The examined failure.
    pub autopsy: &'a Autopsy,
}

impl Failure<'_> {
    /// Lines to change in the program, most important first: an earlier attempt to release, a pass to run without a graph.
    pub fn advice(&self) -> Vec<Advice> {
        self.let_go_of_attempts().into_iter().chain(self.without_backward()).collect()
    }
}
