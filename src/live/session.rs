//! [`LiveSession`]: everything that arrives, in one place, as a history and as a file.

use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::engine::Opener;
use super::process::host_name;
use super::rates::Rates;
use super::sampler::Sampler;
use super::wall_clock_us;
use crate::formats::session::{End, History, MarkPoint, Record, SessionWriter, Start};
use crate::model::MarkKind;

/// Records that may wait to be taken: three seconds of eight devices at the highest rate.
const WAITING: usize = 4096;

/// How to watch.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// How often.
    pub rates: Rates,
    /// Places in the driver's list of devices; empty for all.
    pub devices: Vec<usize>,
    /// The process that matters; its bytes are kept apart from the others'.
    pub focus: Option<u32>,
}

/// A watch that is going on.
pub struct LiveSession {
    sampler: Sampler,
    sender: SyncSender<Record>,
    receiver: Receiver<Record>,
    history: History,
    writer: Option<SessionWriter<Box<dyn Write + Send>>>,
    start: Record,
}

impl LiveSession {
    /// Begins to watch the devices of `opener`'s driver.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(opener: Opener, options: &SessionOptions) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let sampler = Sampler::start(opener, options.rates, options.devices.clone(), sender.clone())?;
        let start = Record::Start(Start {
            time_us: wall_clock_us(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            trouble: None,
        });
        let mut history = History::new();
        history.set_focus(options.focus);
        history.add(start.clone());
        Ok(LiveSession { sampler, sender, receiver, history, writer: None, start })
    }

    /// Writes everything from here on. Call it before the first [`pump`](Self::pump) to lose nothing.
    ///
    /// # Errors
    /// When the beginning can not be written.
    pub fn write_to(&mut self, out: Box<dyn Write + Send>) -> std::io::Result<()> {
        let mut writer = SessionWriter::new(out)?;
        writer.write(&self.start)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Takes in what arrived; waits for the first record up to `wait`. Returns how many there were.
    ///
    /// # Errors
    /// When the session can not be written; watching may go on without a file after [`stop_writing`](Self::stop_writing).
    pub fn pump(&mut self, wait: Duration) -> std::io::Result<usize> {
        let mut taken = 0;
        match self.receiver.recv_timeout(wait) {
            Ok(record) => {
                self.take(record)?;
                taken += 1;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(0),
        }
        // No more than what waited when we came: a fast source must not keep us.
        while taken < WAITING
            && let Ok(record) = self.receiver.try_recv()
        {
            self.take(record)?;
            taken += 1;
        }
        Ok(taken)
    }

    fn take(&mut self, record: Record) -> std::io::Result<()> {
        let written = match &mut self.writer {
            Some(writer) => writer.write(&record),
            None => Ok(()),
        };
        self.history.add(record);
        written
    }

    /// Waits until a device answered or the driver said why not, at most `wait`.
    ///
    /// # Errors
    /// The driver's sentence, or the file's.
    pub fn wait_for_device(&mut self, wait: Duration) -> Result<(), String> {
        let since = Instant::now();
        loop {
            self.pump(Duration::from_millis(50)).map_err(|e| format!("the session can not be written: {e}"))?;
            if let Some(sentence) = self.history.trouble() {
                return Err(sentence.to_owned());
            }
            if self.history.devices().next().is_some() {
                return Ok(());
            }
            if since.elapsed() > wait {
                return Err("The NVIDIA driver does not answer.".to_owned());
            }
        }
    }

    /// Marks this instant on every device.
    ///
    /// # Errors
    /// When the session can not be written.
    pub fn mark(&mut self, text: &str, kind: MarkKind) -> std::io::Result<()> {
        self.take(Record::Mark(MarkPoint { d: None, t: wall_clock_us(), kind, text: text.to_owned() }))
    }

    /// Where records may be sent from other threads.
    #[must_use]
    pub fn sender(&self) -> SyncSender<Record> {
        self.sender.clone()
    }

    /// What was seen so far.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The sampling thread.
    #[must_use]
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Bytes written to the session, when one is written.
    #[must_use]
    pub fn bytes_written(&self) -> Option<u64> {
        self.writer.as_ref().map(SessionWriter::bytes)
    }

    /// Goes on without a file.
    pub fn stop_writing(&mut self) {
        self.writer = None;
    }

    /// Ends the session properly.
    ///
    /// # Errors
    /// When the end can not be written.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.pump(Duration::ZERO)?;
        if let Some(writer) = &mut self.writer {
            writer.write(&Record::End(End { t: wall_clock_us() }))?;
            writer.flush()?;
        }
        Ok(())
    }
}
