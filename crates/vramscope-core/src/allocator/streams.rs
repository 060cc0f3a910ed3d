//! Frees that wait for other streams: `record_stream`, events, and synchronisation.

use std::collections::VecDeque;

use super::block::BlockIx;
use super::caching::{CachingAllocator, EventSink};
use super::error::AllocError;
use super::memory::DeviceMemory;
use crate::model::PoolKey;

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// Like `record_stream`: another stream uses the block, so its free waits for that stream's work.
    pub fn record_stream(&mut self, block: BlockIx, stream: u64) {
        if self.blocks[block].stream == stream {
            return;
        }
        self.blocks[block].recorded = true;
        let streams = self.recorded.entry(block).or_default();
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        if self.is_capturing() {
            let streams = self.recorded_in_capture.entry(block).or_default();
            if !streams.contains(&stream) {
                streams.push(stream);
            }
        }
    }

    /// Records one event on each stream that used the block.
    pub(crate) fn insert_events(&mut self, block: BlockIx) {
        self.blocks[block].recorded = false;
        for stream in self.recorded.remove(&block).unwrap_or_default() {
            let event = self.memory.record_event(stream);
            self.blocks[block].events += 1;
            match self.pending.iter_mut().find(|(s, _)| *s == stream) {
                Some((_, queue)) => queue.push_back((event, block)),
                None => self.pending.push((stream, VecDeque::from([(event, block)]))),
            }
        }
    }

    /// Handles frees that were deferred during a capture. Uses that the capture itself recorded need no event any more.
    fn flush_deferred(&mut self) {
        for block in std::mem::take(&mut self.deferred) {
            if let Some(in_capture) = self.recorded_in_capture.remove(&block)
                && let Some(streams) = self.recorded.get_mut(&block)
            {
                streams.retain(|s| !in_capture.contains(s));
            }
            self.insert_events(block);
            if self.blocks[block].events == 0 {
                self.free_block(block);
            }
        }
    }

    /// Polls the events of each stream, oldest first. An unfinished event blocks the later events of its stream.
    pub(crate) fn process_events(&mut self) -> Result<(), AllocError> {
        if self.deferred.is_empty() && self.pending.is_empty() {
            return Ok(());
        }
        self.flush_deferred();
        let mut at = 0;
        while at < self.pending.len() {
            let stream = self.pending[at].0;
            while let Some(&(event, block)) = self.pending[at].1.front() {
                if !self.memory.is_event_done(stream, event) {
                    break;
                }
                self.pending[at].1.pop_front();
                self.event_over(block);
            }
            if self.pending[at].1.is_empty() {
                self.pending.remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Waits for all events, or only for those of one private pool's blocks, and frees the blocks that waited for them.
    pub(crate) fn synchronise_all(&mut self, only: Option<PoolKey>) -> Result<(), AllocError> {
        self.stats.num_sync_all_streams += 1;
        self.flush_deferred();
        for (stream, queue) in std::mem::take(&mut self.pending) {
            let mut kept = VecDeque::new();
            for (event, block) in queue {
                let owner = self.pools[usize::from(self.blocks[block].pool)].owner;
                if only.is_some() && owner != only {
                    kept.push_back((event, block));
                    continue;
                }
                self.memory.wait_event(stream, event);
                self.event_over(block);
            }
            if !kept.is_empty() {
                self.pending.push((stream, kept));
            }
        }
        for block in self.pending_outside.take() {
            let owner = self.pools[usize::from(self.blocks[block].pool)].owner;
            if only.is_some() && owner != only {
                self.pending_outside.push(block);
            } else {
                self.event_over(block);
            }
        }
        Ok(())
    }

    fn event_over(&mut self, block: BlockIx) {
        self.blocks[block].events -= 1;
        if self.blocks[block].events == 0 {
            self.free_block(block);
        }
    }
}
