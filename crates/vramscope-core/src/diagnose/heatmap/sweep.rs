//! Carries the live set from instant to instant. Blocks that live only between two instants are never placed.

use crate::model::DeviceRecording;
use crate::tables::runs::Runs;
use crate::tables::{DeviceTables, LifetimeId, Lifetimes, NO_EVENT, SegmentAt};

#[derive(Clone, Copy)]
struct Held {
    address: u64,
    size: u64,
    id: u32,
    gone: u32,
}

/// The live set by address, and the segments, at an instant that can only move forward.
pub(super) struct Sweep<'a> {
    dev: &'a DeviceRecording,
    pub(super) tables: &'a DeviceTables,
    pub(super) event: Option<u32>,
    born: u32,
    changes: usize,
    held: Vec<Held>,
    fresh: Vec<Held>,
    pub(super) runs: Runs,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(dev: &'a DeviceRecording, tables: &'a DeviceTables) -> Self {
        Sweep { dev, tables, event: None, born: 0, changes: 0, held: Vec::new(), fresh: Vec::new(), runs: Runs::default() }
    }

    fn block(&self, lifetimes: &Lifetimes, id: u32) -> Held {
        let row = LifetimeId(id);
        Held { address: lifetimes.address(self.dev, row), size: lifetimes.block_size(row), id, gone: lifetimes.gone(row) }
    }

    pub(super) fn seek(&mut self, event: u32) {
        let lifetimes = &self.tables.lifetimes;
        let born = lifetimes.born_by(event);
        match self.event {
            Some(at) if at != NO_EVENT && event != NO_EVENT && at <= event => {
                if at == event {
                    return;
                }
                self.held.retain(|h| h.gone > event);
                let new = (self.born..born).filter(|&id| lifetimes.gone(LifetimeId(id)) > event);
                let mut fresh = std::mem::take(&mut self.fresh);
                fresh.extend(new.map(|id| self.block(lifetimes, id)));
                fresh.sort_unstable_by_key(|h| h.address);
                merge_sorted(&mut self.held, &fresh);
                fresh.clear();
                self.fresh = fresh;
                let until = self.tables.states.runs.changes_until(event);
                for change in self.changes..until {
                    self.tables.states.runs.apply(self.dev, change, &mut self.runs);
                }
                self.changes = until;
            }
            _ => {
                let live = self.tables.states.live_ids(lifetimes, event);
                self.held = live.into_iter().map(|id| self.block(lifetimes, id)).collect();
                self.held.sort_unstable_by_key(|h| h.address);
                self.runs = self.tables.states.runs.at(self.dev, event).into();
                self.changes = self.tables.states.runs.changes_until(event);
            }
        }
        self.born = born;
        self.event = Some(event);
    }

    /// Visits the blocks and holes of a segment in address order: address, size, and the block's allocation. Blocks that do not
    /// fit into the segment are left out, as in [`State::uncovered`](crate::tables::State::uncovered).
    pub(super) fn pieces(&self, run: &SegmentAt, mut each: impl FnMut(u64, u64, Option<LifetimeId>)) {
        let end = run.address + run.size;
        let mut cursor = run.address;
        let first = self.held.partition_point(|h| h.address < run.address);
        for held in &self.held[first..] {
            if held.address >= end {
                break;
            }
            if held.address < cursor || held.size > end - held.address {
                continue;
            }
            if held.address > cursor {
                each(cursor, held.address - cursor, None);
            }
            each(held.address, held.size, Some(LifetimeId(held.id)));
            cursor = held.address + held.size;
        }
        if cursor < end {
            each(cursor, end - cursor, None);
        }
    }
}

/// Merges sorted `new` into sorted `all`, from the back, in place.
fn merge_sorted(all: &mut Vec<Held>, new: &[Held]) {
    let (mut from, mut fresh) = (all.len(), new.len());
    all.extend_from_slice(new);
    let mut to = all.len();
    while fresh > 0 {
        to -= 1;
        if from > 0 && all[from - 1].address > new[fresh - 1].address {
            from -= 1;
            all[to] = all[from];
        } else {
            fresh -= 1;
            all[to] = new[fresh];
        }
    }
}
