//! [`LiveSession`]: collects all live data as a history and as a file.

use std::collections::HashMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::agent::{Agent, Manner, News, Outlets, Request};
use super::engine::Opener;
use super::process::host_name;
use super::rates::Rates;
use super::sampler::Sampler;
use super::wall_clock_us;
use vramscope_core::formats::session::{End, History, MarkPoint, Record, SessionWriter, Start};
use vramscope_core::model::MarkKind;

/// Most queued records: three seconds of eight devices at the highest rate.
const WAITING: usize = 4096;

/// How often to look for helpers in new processes.
const LOOK: Duration = Duration::from_secs(1);

/// Options of a watch.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// How often to sample.
    pub rates: Rates,
    /// Indices in the driver's list of devices; empty for all.
    pub devices: Vec<usize>,
    /// The process of interest. Its bytes are kept apart from those of others.
    pub focus: Option<u32>,
    /// Uses only the driver and talks to no helper.
    pub without_helpers: bool,
    /// Also talks to helpers in programs of other users.
    pub other_users: bool,
}

/// A watch in progress.
pub struct LiveSession {
    sampler: Sampler,
    receiver: Receiver<Record>,
    history: History,
    writer: Option<SessionWriter<Box<dyn Write + Send>>>,
    start: Record,
    options: SessionOptions,
    /// One per process of interest, whether its helper answers or not.
    agents: Vec<Agent>,
    outlets: Outlets,
    news: Receiver<News>,
    looked: Instant,
}

impl LiveSession {
    /// Starts to watch the devices of the driver of `opener`.
    pub fn start(opener: Opener, options: &SessionOptions) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let sampler = Sampler::start(opener, options.rates, options.devices.clone(), sender.clone())?;
        let start = Record::Start(Start {
            time_us: wall_clock_us(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            trouble: None,
            pid: std::process::id(),
        });
        let mut history = History::new();
        history.set_focus(options.focus);
        history.add(start.clone());
        let (news_sender, news) = channel();
        let numbers = Arc::new(Mutex::new(HashMap::new()));
        let outlets = Outlets { numbers, records: sender, news: news_sender };
        Ok(LiveSession {
            sampler,
            receiver,
            history,
            writer: None,
            start,
            options: options.clone(),
            agents: Vec::new(),
            outlets,
            news,
            looked: Instant::now(),
        })
    }

    /// Writes all further records to `out`. Call it before the first [`pump`](Self::pump) to lose none.
    pub fn write_to(&mut self, out: Box<dyn Write + Send>) -> std::io::Result<()> {
        let mut writer = SessionWriter::new(out)?;
        writer.write(&self.start)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Handles the records that arrived, and waits up to `wait` for the first. Returns their number.
    ///
    /// # Errors
    /// When the session file cannot be written. The watch can continue after [`stop_writing`](Self::stop_writing).
    pub fn pump(&mut self, wait: Duration) -> std::io::Result<usize> {
        self.look_for_helpers();
        let mut taken = 0;
        match self.receiver.recv_timeout(wait) {
            Ok(record) => {
                self.take(record)?;
                taken += 1;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(0),
        }
        // At most a full queue per call, so that a fast source does not keep the caller.
        while taken < WAITING
            && let Ok(record) = self.receiver.try_recv()
        {
            self.take(record)?;
            taken += 1;
        }
        Ok(taken)
    }

    /// Starts an agent for each process on the watched devices. The agent's thread looks for a helper and talks to it.
    fn look_for_helpers(&mut self) {
        if self.options.without_helpers || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let present = self.history.present();
        self.agents.retain(|a| present.contains(&a.pid()) || a.answers() || a.is_entering());
        for pid in present {
            let is_known = self.agents.iter().any(|a| a.pid() == pid);
            if !is_known && self.options.focus.is_none_or(|f| f == pid) {
                // If no thread can start, the driver's figures remain; the next look tries again.
                let _ = self.follow(pid);
            }
        }
    }

    fn follow(&mut self, pid: u32) -> std::io::Result<&Agent> {
        self.agents.retain(|a| a.pid() != pid);
        let manner = Manner { rate: self.options.rates.memory.clamp(1.0, 10.0), other_users: self.options.other_users };
        self.agents.push(Agent::follow(pid, manner, self.outlets.clone())?);
        self.agents.last().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// Attaches to a process: uses a helper that listens, or starts one in a Python that allows it. That takes seconds, so the
    /// outcome arrives as [`News::Answers`] or [`News::Failed`].
    pub fn attach(&mut self, pid: u32) {
        let known = self.agents.iter().find(|a| a.pid() == pid && !a.has_ended());
        let news = self.outlets.news.clone();
        match known {
            Some(agent) if agent.answers() => drop(news.send(News::Answers { pid })),
            Some(agent) => agent.enter(),
            None => match self.follow(pid) {
                Ok(agent) => agent.enter(),
                Err(e) => drop(news.send(News::Failed { pid, sentence: format!("No thread could be started: {e}.") })),
            },
        }
    }

    /// Sends a request to the helper of a process; false when there is none.
    pub fn request(&self, pid: u32, request: Request) -> bool {
        self.agents.iter().any(|a| a.pid() == pid && a.request(request))
    }

    /// The processes with a helper that answers, and whether each records its history.
    pub fn helpers(&self) -> impl Iterator<Item = (u32, bool)> {
        self.agents.iter().filter(|a| a.answers()).map(|a| (a.pid(), a.is_recording()))
    }

    /// News from helpers since the last call.
    pub fn news(&self) -> Vec<News> {
        self.news.try_iter().collect()
    }

    fn take(&mut self, record: Record) -> std::io::Result<()> {
        if let Record::Device(facts) = &record
            && let Ok(mut numbers) = self.outlets.numbers.lock()
        {
            numbers.insert(facts.uuid.clone(), facts.device);
        }
        let written = match &mut self.writer {
            Some(writer) => writer.write(&record),
            None => Ok(()),
        };
        self.history.add(record);
        written
    }

    /// Waits up to `wait` for a first answer about every device. After two seconds it is enough that a device is listed.
    pub fn wait_for_device(&mut self, wait: Duration) -> Result<(), String> {
        let since = Instant::now();
        loop {
            self.pump(Duration::from_millis(50)).map_err(|e| format!("the session cannot be written: {e}"))?;
            if let Some(sentence) = self.history.trouble() {
                return Err(sentence.to_owned());
            }
            if self.history.is_complete() {
                return Ok(());
            }
            let is_known = self.history.devices().next().is_some();
            if is_known && since.elapsed() > wait.min(Duration::from_secs(2)) {
                // The device is listed but has no figures yet; they may follow.
                return Ok(());
            }
            if since.elapsed() > wait {
                return Err(format!("The NVIDIA driver does not answer within {} s.", wait.as_secs_f64()));
            }
        }
    }

    /// Sets a mark at this instant on every device.
    pub fn mark(&mut self, text: &str, kind: MarkKind) -> std::io::Result<()> {
        self.mark_on(None, text, kind)
    }

    /// Sets a mark at this instant on one device of the session, or on all.
    pub fn mark_on(&mut self, d: Option<u32>, text: &str, kind: MarkKind) -> std::io::Result<()> {
        self.take(Record::Mark(MarkPoint { d, t: wall_clock_us(), kind, text: text.to_owned() }))
    }

    /// A sender of records for other threads.
    pub fn sender(&self) -> SyncSender<Record> {
        self.outlets.records.clone()
    }

    /// Everything seen so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The sampling thread, to pause it or to ask how many samples it lost.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Continues at other rates. The helpers stay.
    pub fn set_rates(&mut self, opener: Opener, rates: Rates) -> std::io::Result<()> {
        self.options.rates = rates;
        // The old thread ends when it is replaced. Records that it sent meanwhile are still handled.
        self.sampler = Sampler::start(opener, rates, self.options.devices.clone(), self.sender())?;
        Ok(())
    }

    /// Continues without a session file.
    pub fn stop_writing(&mut self) {
        self.writer = None;
    }

    /// Writes the end of the session file.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.pump(Duration::ZERO)?;
        if let Some(writer) = &mut self.writer {
            writer.write(&Record::End(End { t: wall_clock_us() }))?;
            writer.flush()?;
        }
        Ok(())
    }
}
