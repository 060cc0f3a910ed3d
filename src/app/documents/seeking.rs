//! Finds the next peak or the next allocation of a stack on a thread, because a long recording takes longer than a frame.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use super::moving::{Place, neighbour_peak, next_of_stack};
use crate::app::data::device::DeviceData;
use crate::app::state::{Command, DocumentId, SharedViewState};

/// A running search and the commands queued behind it. Each search begins where the previous one ended.
pub(in crate::app) struct Seeking {
    pub(in crate::app) of: DocumentId,
    pub(in crate::app) answer: Receiver<Option<Place>>,
    pub(in crate::app) next: VecDeque<Command>,
}

pub(in crate::app) fn find(command: Command, shared: &SharedViewState, data: &DeviceData) -> Option<Place> {
    match command {
        Command::PreviousPeak => Some((neighbour_peak(data, shared.cursor, false)?, None)),
        Command::NextPeak => Some((neighbour_peak(data, shared.cursor, true)?, None)),
        Command::PreviousSameStack => next_of_stack(shared, data, false),
        Command::NextSameStack => next_of_stack(shared, data, true),
        _ => None,
    }
}
