//! A predicted run as a recording: all actions of the allocator, with the stacks of the requests.

use super::predict::Stream;
use super::program::NEVER;
use super::{Change, Plan, Program, Setting, Size};
use crate::allocator::{EventSink, Placement, enter_held};
use crate::inference::scripted::{Script, Terms};
use crate::model::{
    Action, Annotation, DeviceRecording, EventTable, Format, PoolKey, Recording, Settings, Source, StackId, StackTableBuilder,
};

/// Writes actions into an event table.
struct Writer<'a> {
    program: &'a Program,
    /// For each step, the program's row that it requests or frees.
    of: Vec<u32>,
    at: usize,
    /// The lap and event of the last action.
    last: (u32, usize),
    /// The first event of each step, and of what follows the last. Steps are annotated, so they need not be detected again.
    steps: Vec<usize>,
    out: DeviceRecording,
}

impl EventSink for Writer<'_> {
    fn at(&mut self, step: usize) {
        self.at = step;
    }

    fn event(&mut self, action: Action, address: u64, size: u64, stream: u64, pool: PoolKey) {
        let stream = self.out.intern_stream(stream);
        let pool = self.out.intern_pool(pool);
        let asked = self.of.get(self.at).copied().unwrap_or(NEVER);
        let row = self.program.rows.get(asked as usize);
        let recorded = &self.program.recording.devices[self.program.device].events;
        let event = row.map(|r| (r.lap, r.event as usize)).filter(|(_, e)| *e < recorded.len());
        // A block that is allocated again or freed elsewhere gets the event of the request before it.
        self.last = event.unwrap_or(self.last).max(self.last);
        let stack = match action {
            Action::FreeRequested | Action::FreeCompleted => StackId::NONE,
            _ => row.map_or(StackId::NONE, |r| r.stack),
        };
        let start = recorded.time_us.first().copied().unwrap_or(0);
        let time = recorded.time_us.get(self.last.1).map_or(0, |t| t - start + i64::from(self.last.0) * self.program.lap_us);
        // A step begins with its own first request, later than everything before it, because annotations identify steps by time.
        let begun = self.program.stretches.partition_point(|s| s.end <= asked);
        let begins = row.is_some() && self.program.steps > 0 && self.steps.len() < begun;
        if begins {
            self.steps.resize(begun, self.out.events.len());
        }
        let before = self.out.events.time_us.last().map_or(i64::MIN, |t| t + i64::from(begins));
        let time = time.max(before);
        self.out.events.push(time, action, address, size, stream, pool, stack);
    }
}

impl Plan {
    /// The run at a size, a setting and changes, up to the first failed request. Its source says that it is predicted.
    pub fn recording(&self, size: &Size, setting: &Setting, changes: &[Change]) -> Option<Recording> {
        let model = self.model()?;
        let (stream, of) = self.stream_of(size, changes)?;
        let program = &*model.program;
        Some(record(program, &stream, of, size, setting, changes))
    }
}

fn record(program: &Program, stream: &Stream, of: Vec<u32>, size: &Size, setting: &Setting, changes: &[Change]) -> Recording {
    let device = &program.recording.devices[program.device];
    let out = DeviceRecording {
        id: device.id,
        name: device.name.clone(),
        limit: setting.limit,
        has_final_state: true,
        settings: Settings {
            recorded: true,
            conf: setting.conf.clone(),
            raw: vec![("PYTORCH_CUDA_ALLOC_CONF".to_owned(), setting.text.clone())],
        },
        events: EventTable { has_time: device.events.has_time, ..EventTable::default() },
        ..DeviceRecording::default()
    };
    let terms =
        Terms { conf: setting.conf.clone(), version: program.version, limit: setting.limit, placement: Placement::Driver };
    let script = Script { asks: &stream.asks, rows: &stream.rows, start: stream.start.as_ref() };
    let (run, writer, held) = script.run_into(&terms, Writer { program, of, at: 0, last: (0, 0), steps: Vec::new(), out });
    let Writer { mut out, mut steps, .. } = writer;
    enter_held(&mut out, &held);
    if run.failed.is_some() {
        out.needs = Some(script.run(&Terms { limit: None, ..terms }).stats.reserved_bytes.all.peak);
    }
    let mut stacks = StackTableBuilder::from(program.recording.stacks.clone());
    if steps.len() <= program.steps {
        steps.push(out.events.len());
    }
    for (i, ends) in steps.windows(2).enumerate() {
        let time = |event: usize| out.events.time_us.get(event).copied();
        if let (Some(start_us), Some(end_us)) = (time(ends[0]), ends[1].checked_sub(1).and_then(time)) {
            let name = stacks.string(&format!("ProfilerStep#{}", i + 1));
            out.annotations.push(Annotation { name, start_us, end_us: Some(end_us), depth: 0 });
        }
    }
    let with: Vec<String> = changes.iter().map(|c| format!(", {}", c.name())).collect();
    Recording {
        source: Source { name: format!("plan: {size}{}", with.concat()), path: None, format: Format::Plan, bytes: 0 },
        devices: vec![out],
        stacks: stacks.finish(),
        ..Recording::default()
    }
}
