//! What the program itself can change about a failure, beside settings and sizes.

use super::{Advice, Autopsy};
use crate::anatomy::roles::Roles;
use crate::model::{DeviceRecording, Recording};
use crate::tables::DeviceTables;

/// A failure, with what is known of the program that had it.
pub struct Failure<'a> {
    /// The whole recording, for its stacks.
    pub recording: &'a Recording,
    /// The device that ran out.
    pub device: &'a DeviceRecording,
    /// Lifetimes and states of the device.
    pub tables: &'a DeviceTables,
    /// What each of its blocks is for.
    pub roles: &'a Roles,
    /// The failure.
    pub autopsy: &'a Autopsy,
}

impl Failure<'_> {
    /// Lines to change in the program, most telling first: an earlier attempt to let go, a pass to run without a graph. Empty where neither
    /// shows. O(lifetimes).
    pub fn advice(&self) -> Vec<Advice> {
        self.let_go_of_attempts().into_iter().chain(self.without_backward()).collect()
    }
}
