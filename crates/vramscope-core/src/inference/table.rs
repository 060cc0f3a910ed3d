//! A simulation as a [`Recording`]: the model's actions, with the times and stacks of the requests that caused them.

use super::replay::Replayed;
use super::whatif::{Question, WhatIf};
use crate::allocator::EventSink;
use crate::allocator::enter_held;
use crate::model::{
    Action, Cancelled, DeviceRecording, EventTable, Format, PoolKey, Progress, Recording, Settings, Source, StackId,
};

struct Writer<'a> {
    recorded: &'a EventTable,
    at: usize,
    out: DeviceRecording,
}

impl EventSink for Writer<'_> {
    fn at(&mut self, event: usize) {
        self.at = event;
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey) {
        let stream = self.out.intern_stream(stream);
        let pool = self.out.intern_pool(pool);
        let stack = self.recorded.stack.get(self.at).copied().unwrap_or(StackId::NONE);
        let time = self.recorded.time_us.get(self.at).copied().unwrap_or(0);
        self.out.events.push(time, action, address, size, stream, pool, stack);
    }
}

impl WhatIf<'_> {
    /// Runs a question with the driver's placement and returns everything the allocator did as a new recording with the stacks of
    /// `recording`, which this device must belong to. Stops at the first failed request.
    pub fn simulate(&self, recording: &Recording, question: &Question, progress: &Progress) -> Result<Recording, Cancelled> {
        let device = self.requests().device;
        let conf = question.conf.clone();
        // In PyTorch's snapshot format, so that an exported snapshot reads back as the same settings.
        let raw = [
            ("PYTORCH_CUDA_ALLOC_CONF", question.text.clone()),
            ("max_split_size", conf.max_split_size.map_or("-1".to_owned(), |bytes| bytes.to_string())),
            ("garbage_collection_threshold", format!("{:?}", conf.garbage_collection_threshold)),
            ("expandable_segments", if conf.expandable_segments { "True" } else { "False" }.to_owned()),
            ("roundup_power2_divisions", String::new()),
        ];
        let raw = raw.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let out = DeviceRecording {
            id: device.id,
            name: device.name.clone(),
            capacity: device.capacity,
            limit: self.limit_of(question),
            has_final_state: true,
            annotations: device.annotations.clone(),
            settings: Settings { recorded: true, conf, raw },
            events: EventTable { has_time: device.events.has_time, ..EventTable::default() },
            ..DeviceRecording::default()
        };
        let run = self.replay_of(question).run(self.requests(), Writer { recorded: &device.events, at: 0, out }, progress)?;
        let shown = if question.text.is_empty() { "default settings" } else { &question.text };
        Ok(Recording {
            source: Source { name: format!("what-if: {shown}"), path: None, format: Format::WhatIf, bytes: 0 },
            devices: vec![close(run)],
            stacks: recording.stacks.clone(),
            ..Recording::default()
        })
    }
}

/// Adds the segments and blocks at the end.
fn close(run: Replayed<Writer<'_>>) -> DeviceRecording {
    let held = run.allocator.segments();
    let mut out = run.allocator.sink.out;
    enter_held(&mut out, &held);
    out
}
