//! Talks to the helper inside a process: one thread a process, one line of JSON each way.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::wall_clock_us;
use crate::formats::session::{Attached, Blocks, Detached, MarkPoint, Record, TorchPoint};
use crate::model::{MarkKind, TorchFigures};

/// The helper: one file, to be printed, put on a path, or brought into a running interpreter.
pub const HELPER: &str = include_str!("../../assets/vramscope_agent.py");
/// Starts the helper in every Python of a job whose path has its folder first.
pub const SITECUSTOMIZE: &str = include_str!("../../assets/sitecustomize.py");

/// A greeting takes microseconds; a process that stands still in C for longer than this can not be asked now.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which device of the session has which UUID; shared with the threads.
pub type DeviceNumbers = Arc<Mutex<HashMap<String, u32>>>;

/// What may be asked of a helper. Nothing else can be said to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// Statistics so many times a second.
    Rate(f64),
    /// Segments and blocks, without traces.
    Blocks,
    /// Record the allocation history, the newest `max_entries` events of it, or stop.
    History {
        /// On or off.
        on: bool,
        /// Length of the ring.
        max_entries: u32,
    },
    /// Write a snapshot now.
    Snapshot,
    /// Write a snapshot at the next out-of-memory error.
    SnapshotAtOom(bool),
}

impl Request {
    fn line(self, id: u64) -> String {
        let mut value = match self {
            Request::Rate(hz) => json!({"cmd": "hz", "hz": hz}),
            Request::Blocks => json!({"cmd": "blocks"}),
            Request::History { on, max_entries } => json!({"cmd": "history", "on": on, "max_entries": max_entries}),
            Request::Snapshot => json!({"cmd": "dump"}),
            Request::SnapshotAtOom(on) => json!({"cmd": "at_oom", "on": on}),
        };
        value["id"] = json!(id);
        format!("{value}\n")
    }
}

/// What a helper tells beside its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A snapshot was written; the path as the process sees it, and whether an out-of-memory error was the reason.
    Snapshot {
        /// The process.
        pid: u32,
        /// Where, as this machine sees it (through `/proc/PID/root` for a container).
        path: std::path::PathBuf,
        /// Written because memory ran out.
        is_oom: bool,
        /// The device of the session that each ordinal of the process is: `CUDA_VISIBLE_DEVICES` gives them other numbers.
        devices: Vec<(i32, u32)>,
    },
    /// History is recorded, or not any more.
    History {
        /// The process.
        pid: u32,
        /// On or off.
        on: bool,
    },
    /// The request failed; one sentence.
    Failed {
        /// The process.
        pid: u32,
        /// Why.
        sentence: String,
    },
    /// The helper is gone.
    Gone {
        /// The process.
        pid: u32,
    },
}

/// One line from a helper; every field may be missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message {
    hello: Option<u32>,
    pid: u32,
    t: i64,
    python: String,
    torch: String,
    cuda: String,
    backend: String,
    env: HashMap<String, String>,
    devices: Option<HashMap<String, String>>,
    stats: Option<HashMap<String, TorchFigures>>,
    event: Option<String>,
    text: String,
    path: Option<String>,
    blocks: Option<serde_json::Value>,
    history: Option<bool>,
    error: Option<String>,
}

/// A helper that answered.
#[derive(Debug)]
pub struct Agent {
    pid: u32,
    lines: Sender<Request>,
    stream: UnixStream,
    is_recording: Arc<Mutex<bool>>,
}

impl Agent {
    /// Connects to the helper of a process. `pid` is the process as this machine names it; the other end must be that very
    /// process, so that a socket left by another one is not taken for it.
    ///
    /// # Errors
    /// One sentence.
    pub fn connect(
        socket: &Path,
        pid: u32,
        numbers: DeviceNumbers,
        records: SyncSender<Record>,
        news: Sender<News>,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("the helper in process {pid} does not answer: {e}");
        let stream = UnixStream::connect(socket).map_err(failed)?;
        check_peer(&stream, pid)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
        let mut line = String::new();
        reader.read_line(&mut line).map_err(failed)?;
        let hello: Message = serde_json::from_str(&line).unwrap_or_default();
        if hello.hello.is_none() {
            return Err(format!("what listens in process {pid} is not the vramscope helper"));
        }
        stream.set_read_timeout(None).map_err(failed)?;
        let attached = Record::Attached(Attached { t: wall_clock_us(), pid, facts: facts(&hello) });
        // The caller is often the one who empties the channel: waiting for room would wait for itself.
        records.try_send(attached).map_err(|_| "the session takes nothing in now; try again".to_owned())?;
        let (lines, requests) = channel();
        let is_recording = Arc::new(Mutex::new(false));
        let writer = stream.try_clone().map_err(failed)?;
        let session = Session {
            pid,
            inner_pid: hello.pid,
            // Both clocks are the machine's own unless the helper runs in another one's time namespace or far away.
            skew_us: skew(hello.t),
            numbers,
            records,
            news,
            is_recording: Arc::clone(&is_recording),
            devices: HashMap::new(),
        };
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name).spawn(work).map(drop).map_err(failed)
        };
        spawn(format!("helper-{pid}"), Box::new(move || session.listen(reader)))?;
        spawn(format!("ask-{pid}"), Box::new(move || ask(writer, &requests)))?;
        Ok(Agent { pid, lines, stream, is_recording })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True while the process records its allocation history for us.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.is_recording.lock().is_ok_and(|on| *on)
    }

    /// Asks for something; the answer comes as a record or as news.
    pub fn request(&self, request: Request) {
        // A helper that is gone has said so already.
        let _ = self.lines.send(request);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Wakes the listening thread, which then ends.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

fn ask(mut stream: UnixStream, requests: &Receiver<Request>) {
    for (id, request) in requests.iter().enumerate() {
        if stream.write_all(request.line(id as u64).as_bytes()).is_err() {
            return;
        }
    }
}

/// The difference that must be added to the helper's times, 0 when it is within what a greeting takes.
fn skew(helper_us: i64) -> i64 {
    let ahead = wall_clock_us() - helper_us;
    if helper_us == 0 || ahead.abs() < 2_000_000 { 0 } else { ahead }
}

#[cfg(target_os = "linux")]
fn check_peer(stream: &UnixStream, pid: u32) -> Result<(), String> {
    let peer = rustix::net::sockopt::socket_peercred(stream).map_err(|e| format!("the helper of process {pid}: {e}"))?;
    // From outside a container the peer is named by its PID here: the one NVML uses. It is 0 when the process lives in a
    // namespace that we can not see into; the socket's owner is then all there is to go by.
    let peer = peer.pid.as_raw_nonzero().get();
    if peer != 0 && u32::try_from(peer) != Ok(pid) {
        return Err(format!("the socket of process {pid} belongs to process {peer}"));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn check_peer(_stream: &UnixStream, _pid: u32) -> Result<(), String> {
    Ok(())
}

fn facts(hello: &Message) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for (key, value) in
        [("Python", &hello.python), ("PyTorch", &hello.torch), ("CUDA of PyTorch", &hello.cuda), ("allocator", &hello.backend)]
    {
        if !value.is_empty() {
            facts.push((key.to_owned(), value.clone()));
        }
    }
    let mut env: Vec<_> = hello.env.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    env.sort();
    facts.extend(env);
    facts
}

struct Session {
    pid: u32,
    /// Its own PID as it sees it: in a container another one.
    inner_pid: u32,
    skew_us: i64,
    numbers: DeviceNumbers,
    records: SyncSender<Record>,
    news: Sender<News>,
    is_recording: Arc<Mutex<bool>>,
    /// The UUID of each ordinal of the process, as told once. Looked up each time: the driver's list may come later than the helper.
    devices: HashMap<String, String>,
}

impl Session {
    fn listen(mut self, mut reader: BufReader<UnixStream>) {
        let mut line = String::new();
        let why = loop {
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) => break "the process ended or let go of the helper".to_owned(),
                Ok(_) => {}
                Err(e) => break e.to_string(),
            }
            let Ok(message) = serde_json::from_str::<Message>(&line) else { continue };
            if self.take(message).is_none() {
                return;
            }
        };
        let pid = self.pid;
        let _ = self.records.send(Record::Detached(Detached { t: wall_clock_us(), pid, why }));
        let _ = self.news.send(News::Gone { pid });
    }

    /// Handles one line; `None` when nobody listens any more.
    fn take(&mut self, message: Message) -> Option<()> {
        let (pid, t) = (self.pid, message.t + self.skew_us);
        if let Some(devices) = message.devices {
            self.devices = devices;
        }
        for (ordinal, m) in message.stats.into_iter().flatten() {
            if let Some(d) = self.devices.get(&ordinal).and_then(|uuid| self.number(uuid)) {
                // Figures that nobody takes in time are old: better none than a queue.
                let _ = self.records.try_send(Record::Torch(TorchPoint { d, t, pid, m }));
            }
        }
        if let Some(snapshot) = message.blocks {
            let devices = self.ordinals();
            self.records.send(Record::Blocks(Blocks { t, pid, devices, snapshot: Box::new(snapshot) })).ok()?;
        }
        if let Some(on) = message.history {
            if let Ok(mut recording) = self.is_recording.lock() {
                *recording = on;
            }
            let _ = self.news.send(News::History { pid, on });
        }
        if message.event.as_deref() == Some("mark") {
            let mark = MarkPoint { d: None, t, kind: MarkKind::Program, text: message.text };
            self.records.send(Record::Mark(mark)).ok()?;
        }
        if let Some(path) = message.path {
            let is_oom = message.event.as_deref() == Some("oom");
            let text = if is_oom { "snapshot at out of memory" } else { "snapshot" }.to_owned();
            let kind = if is_oom { MarkKind::OutOfMemory } else { MarkKind::Process };
            self.records.send(Record::Mark(MarkPoint { d: None, t, kind, text })).ok()?;
            let _ = self.news.send(News::Snapshot { pid, path: self.outside(&path), is_oom, devices: self.ordinals() });
        }
        if let Some(error) = message.error {
            let _ = self.news.send(News::Failed { pid, sentence: format!("Process {pid}: {error}.") });
        }
        Some(())
    }

    /// The device of the session that each ordinal of the process is.
    fn ordinals(&self) -> Vec<(i32, u32)> {
        self.devices.iter().filter_map(|(o, uuid)| Some((o.parse().ok()?, self.number(uuid)?))).collect()
    }

    /// The number of a device by its UUID. A process too old to tell one, on a machine with one device, means that one.
    fn number(&self, uuid: &str) -> Option<u32> {
        let numbers = self.numbers.lock().ok()?;
        let only = || if numbers.len() == 1 { numbers.values().next() } else { None };
        numbers.get(uuid).or_else(|| if uuid.len() <= "GPU-".len() { only() } else { None }).copied()
    }

    /// A path of the process as this machine sees it.
    fn outside(&self, path: &str) -> std::path::PathBuf {
        if self.inner_pid == self.pid {
            path.into()
        } else {
            Path::new("/proc").join(self.pid.to_string()).join("root").join(path.trim_start_matches('/'))
        }
    }
}
