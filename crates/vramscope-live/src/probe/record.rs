//! [`Recorder`]: makes a [`Recording`] from the messages of a run.

use super::message::{End, Hello, Message, RawEvent};
use vramscope_core::allocator::enter_held;
use vramscope_core::model::{
    AllocConf, Annotation, DeviceId, DeviceKind, DeviceRecording, EventTable, Format, Frame, LoadReport, Recording, Settings,
    Source, StackId, StackTableBuilder, StrId,
};

/// Builds a recording while a run reports. Messages are cheap; [`finish`](Self::finish) makes one pass over the events.
#[derive(Debug)]
pub struct Recorder {
    hello: Hello,
    card: DeviceRecording,
    host: DeviceRecording,
    strings: StackTableBuilder,
    /// The stack of each site. A replay's sites are the stacks of the recording.
    stacks: Vec<StackId>,
    base: Option<vramscope_core::model::StackTable>,
    /// Ranges of a replay. Their names are interned at the end.
    ranges: Vec<(String, i64, Option<i64>, u16)>,
    end: Option<End>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder::new(None)
    }
}

impl Recorder {
    /// An empty recorder. `base` is the stack table of the replayed recording, which the sites index.
    pub fn new(base: Option<vramscope_core::model::StackTable>) -> Self {
        let device = |kind, index| DeviceRecording {
            id: DeviceId { kind, index },
            has_final_state: true,
            events: EventTable { has_time: true, ..EventTable::default() },
            ..DeviceRecording::default()
        };
        Recorder {
            hello: Hello::default(),
            card: device(DeviceKind::Cuda, 0),
            host: device(DeviceKind::Host, -1),
            strings: StackTableBuilder::new(),
            stacks: Vec::new(),
            base,
            ranges: Vec::new(),
            end: None,
        }
    }

    /// The first message of the run; empty before it arrived.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The last message; `None` while the run is in progress, or when it was killed.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Adds what a message reports to the recording.
    pub fn take(&mut self, message: &Message) {
        match message {
            Message::Hello(hello) => self.begin(hello),
            Message::Events(events) => events.iter().for_each(|e| self.event(e)),
            Message::Sample(sample) => self.card.samples.push(*sample),
            Message::Range { name, start_us, end_us, depth } => self.ranges.push((name.clone(), *start_us, *end_us, *depth)),
            Message::State { is_host, segments } => {
                let device = if *is_host { &mut self.host } else { &mut self.card };
                enter_held(device, segments);
            }
            Message::End(end) => self.end = Some((**end).clone()),
        }
    }

    fn begin(&mut self, hello: &Hello) {
        self.card.id.index = hello.card.index;
        self.card.name = Some(hello.card.name.clone());
        self.card.capacity = Some(hello.card.total);
        self.card.limit = hello.limit;
        // The settings were parsed before the run began, so parsing them again succeeds.
        let conf = AllocConf::parse(&hello.conf).unwrap_or_default();
        let mut raw = vec![("PYTORCH_CUDA_ALLOC_CONF".to_owned(), hello.conf.clone())];
        if hello.card.kept_free > 0 {
            raw.push(("probe_keeps_free".to_owned(), hello.card.kept_free.to_string()));
        }
        self.card.settings = Settings { recorded: true, conf, raw };
        for site in &hello.sites {
            let file = |parts: &[&str]| format!("probe/{}", parts.join("/"));
            let scenario = hello.scenario.as_str();
            let frames = [
                (site.what.as_str(), file(&[scenario, &site.phase, &site.what])),
                (site.phase.as_str(), file(&[scenario, &site.phase])),
                (scenario, file(&[scenario])),
            ]
            .map(|(name, file)| {
                let (name, file) = (self.strings.string(name), self.strings.string(&file));
                self.strings.frame(Frame { name, file, line: 0 })
            });
            let stack = self.strings.stack(&frames);
            self.stacks.push(stack);
        }
        self.hello = hello.clone();
    }

    fn event(&mut self, e: &RawEvent) {
        let stack = match (&self.base, e.site) {
            (_, u32::MAX) => StackId::NONE,
            (Some(_), site) => StackId(site),
            (None, site) => self.stacks.get(site as usize).copied().unwrap_or(StackId::NONE),
        };
        let device = if e.is_host { &mut self.host } else { &mut self.card };
        let stream = device.intern_stream(e.stream);
        let pool = device.intern_pool(e.pool);
        device.events.push(e.time_us, e.action, e.address, e.size, stream, pool, stack);
    }

    /// The recording of all messages so far.
    pub fn finish(mut self) -> Recording {
        let mut ranges = std::mem::take(&mut self.ranges);
        ranges.sort_by_key(|r| (r.1, r.3));
        let stacks = match self.base.take() {
            Some(base) => base,
            None => {
                for (name, start_us, end_us, depth) in ranges {
                    let name: StrId = self.strings.string(&name);
                    self.card.annotations.push(Annotation { name, start_us, end_us, depth });
                }
                self.strings.finish()
            }
        };
        let where_run = if self.hello.card.is_simulated { "simulated" } else { "on the card" };
        let name = format!("probe: {}, {where_run}", self.hello.scenario.replace('_', " "));
        let mut devices = vec![self.card];
        if !self.host.events.is_empty() {
            devices.push(self.host);
        }
        Recording {
            source: Source { name, path: None, format: Format::Probe, bytes: 0 },
            devices,
            stacks,
            report: LoadReport::default(),
            ..Recording::default()
        }
    }
}
