//! Talks to the helper inside a process. Each process has a thread that looks for the helper, greets it and listens, so that
//! nothing the helper does or fails to do blocks the caller.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::attach::{find_socket, inject, owner};
use super::budget::Budget;
use super::peer::{Lines, connect, peer, send};
use super::wall_clock_us;
use vramscope_core::formats::session::{Attached, Blocks, Detached, HostMemory, MarkPoint, Record, TorchPoint};
use vramscope_core::model::{MarkKind, TorchFigures};
use vramscope_core::units::counted;

/// The helper: a single file that can be printed, put on a path, or loaded into a running interpreter.
pub const HELPER: &str = include_str!("../../assets/python/vramscope/_agent.py");

macro_rules! files {
    ($($name:literal: $place:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../assets/", $place, $name)))),*] };
}

/// The Python package with the helper, and the file that starts it in every Python whose path begins with its folder. Each file
/// with its place in that folder.
pub const PACKAGE: &[(&str, &str)] = files![
    "sitecustomize.py": "",
    "vramscope/__init__.py": "python/",
    "vramscope/_agent.py": "python/",
    "vramscope/_callbacks.py": "python/",
    "vramscope/_catch.py": "python/",
    "vramscope/_keep.py": "python/",
    "vramscope/_open.py": "python/",
    "vramscope/_record.py": "python/",
    "vramscope/pytest_plugin.py": "python/",
];

/// Time limit for connecting and greeting, which normally takes microseconds. A process that takes longer cannot be asked now.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look for a helper in a process that has none.
const LOOK: Duration = Duration::from_secs(1);
/// Longest line of figures in bytes; usual are a few hundred per device.
const LONGEST_LINE: usize = 1 << 16;
/// Longest answer about blocks in bytes, enough for 300,000 blocks. It is only accepted after a request.
const LONGEST_BLOCKS: usize = 32 << 20;
/// Most devices of one process.
const MOST_DEVICES: usize = 32;
/// Budget of marks that a helper may set: at once, and per second. It keeps a session of days small.
const MARKS: (f64, f64) = (100.0, 10.0);
/// Budget of lines of figures; a helper is asked for ten per second.
const FIGURES: (f64, f64) = (60.0, 20.0);
/// Interval at which dropped marks are reported.
const TELL_DROPPED: Duration = Duration::from_secs(10);

/// The session's device number of each UUID; shared with the threads.
pub type DeviceNumbers = Arc<Mutex<HashMap<String, u32>>>;

/// The only requests that can be sent to a helper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Request {
    /// Send statistics this many times per second.
    Rate(f64),
    /// Send segments and blocks, without traces.
    Blocks,
    /// Record the newest `max_entries` events of the allocation history, or stop recording.
    History {
        /// True starts, false stops.
        on: bool,
        /// Maximum number of events kept; unused when stopping.
        max_entries: u32,
    },
    /// Write a snapshot now.
    Snapshot,
    /// Write a snapshot at the next out-of-memory error, once; or cancel that.
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

/// What a helper reports besides its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The helper answers; figures arrive from now on.
    Answers {
        /// PID of the process, as the driver reports it.
        pid: u32,
    },
    /// A snapshot was written.
    Snapshot {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// Its path as this machine sees it (through `/proc/PID/root` for a container).
        path: std::path::PathBuf,
        /// Written because of an out-of-memory error.
        is_oom: bool,
        /// The session's device number for each device index of the process, which `CUDA_VISIBLE_DEVICES` may renumber.
        devices: Vec<(i32, u32)>,
    },
    /// The process began or stopped recording its history.
    History {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// True since it records, false since it stopped.
        on: bool,
    },
    /// The helper could not be reached, or could not do what a [`Request`] asked.
    Failed {
        /// PID of the process, as the driver reports it.
        pid: u32,
        /// One sentence about the reason.
        sentence: String,
    },
    /// The helper no longer answers.
    Gone {
        /// PID of the process, as the driver reports it.
        pid: u32,
    },
}

/// Pinned host memory as reported by a helper.
#[derive(Clone, Copy, Debug, Deserialize)]
struct HostFigures {
    pinned: u64,
    used: Option<u64>,
}

/// A line from a helper. Every field may be missing.
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
    host: Option<HostFigures>,
    event: Option<String>,
    text: String,
    path: Option<String>,
    re: Option<u64>,
    dropped: u64,
    blocks: Option<serde_json::Value>,
    history: Option<bool>,
    error: Option<String>,
}

/// Where a helper's thread sends its results.
#[derive(Clone)]
pub(super) struct Outlets {
    pub numbers: DeviceNumbers,
    pub records: SyncSender<Record>,
    pub news: Sender<News>,
}

/// How to talk to helpers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Requested statistics per second.
    pub rate: f64,
    /// Also talk to helpers in programs of other users.
    pub other_users: bool,
}

/// State shared by the thread and its owner.
#[derive(Debug, Default)]
struct Shared {
    /// The owner was dropped.
    is_over: AtomicBool,
    /// The thread ended and gave the helper up.
    has_ended: AtomicBool,
    /// Start a helper when there is none.
    enter: AtomicBool,
    is_recording: AtomicBool,
    talk: Mutex<Talk>,
}

/// State of the conversation with a helper that answers.
#[derive(Debug, Default)]
struct Talk {
    stream: Option<UnixStream>,
    requests: u64,
    /// Requests without an answer, each with whether it asked for blocks.
    asked: Vec<(u64, bool)>,
    /// One snapshot at an out-of-memory error may be reported.
    at_oom: bool,
}

impl Shared {
    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sends a request. Disconnects a helper that does not read.
    fn request(&self, request: Request) -> bool {
        let mut talk = self.talk();
        let id = talk.requests;
        let Some(stream) = &talk.stream else { return false };
        if send(stream, request.line(id).as_bytes()).is_err() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return false;
        }
        talk.requests += 1;
        match request {
            Request::Rate(_) => return true,
            Request::SnapshotAtOom(on) => talk.at_oom = on,
            _ => {}
        }
        talk.asked.push((id, request == Request::Blocks));
        true
    }
}

/// The thread for the helper of one process.
#[derive(Debug)]
pub struct Agent {
    pid: u32,
    shared: Arc<Shared>,
    thread: Thread,
}

impl Agent {
    /// Looks for the helper of a process until it appears, and listens to it. Results arrive as records and news.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(super) fn follow(pid: u32, manner: Manner, outlets: Outlets) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut follower = Follower::new(pid, manner, outlets, Arc::clone(&shared));
        let work = move || {
            follower.work();
            follower.shared.has_ended.store(true, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name(format!("helper-{pid}")).spawn(work)?;
        Ok(Agent { pid, shared, thread: thread.thread().clone() })
    }

    /// PID of the process, as the driver reports it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True while the helper answers.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.shared.talk().stream.is_some()
    }

    /// True when the helper was given up.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    /// True while a helper is being started in the process.
    pub(super) fn is_entering(&self) -> bool {
        !self.has_ended() && self.shared.enter.load(Ordering::Acquire)
    }

    /// True while the process records its allocation history for this session.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.shared.is_recording.load(Ordering::Relaxed)
    }

    /// Starts a helper in the process when there is none. The outcome arrives as news.
    pub(super) fn enter(&self) {
        self.shared.enter.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Sends a request. The answer arrives as a record or as news. False when no helper answers.
    pub fn request(&self, request: Request) -> bool {
        self.shared.request(request)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // Wakes the thread, which then ends.
        if let Some(stream) = &self.shared.talk().stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.thread.unpark();
    }
}

/// State of an [`Agent`]'s thread.
struct Follower {
    pid: u32,
    manner: Manner,
    outlets: Outlets,
    shared: Arc<Shared>,
    /// The UUID of each device index of the process, as last reported. Numbers are looked up each time, because the driver's list
    /// may arrive after the helper's.
    devices: HashMap<String, String>,
    told_other_user: bool,
    /// Remaining budgets. A helper that reconnects gets no new ones.
    marks: Budget,
    figures: Budget,
    /// Marks dropped since the last report.
    dropped: u64,
    told_dropped: Instant,
}

impl Follower {
    fn new(pid: u32, manner: Manner, outlets: Outlets, shared: Arc<Shared>) -> Self {
        Follower {
            pid,
            manner,
            outlets,
            shared,
            devices: HashMap::new(),
            told_other_user: false,
            marks: Budget::new(MARKS),
            figures: Budget::new(FIGURES),
            dropped: 0,
            told_dropped: Instant::now(),
        }
    }

    fn work(&mut self) {
        while !self.shared.is_over() {
            let found = match self.find() {
                Ok(found) => found,
                Err(sentence) => {
                    self.fail(sentence);
                    None
                }
            };
            if let Some((socket, uid)) = found {
                match self.greet(&socket, uid) {
                    Ok((lines, hello)) => {
                        self.shared.enter.store(false, Ordering::Release);
                        if self.converse(lines, &hello, uid).is_none() {
                            return;
                        }
                    }
                    // Not retried, because it would fail again every second.
                    Err(sentence) => return self.fail(sentence),
                }
            }
            if !self.shared.is_over() && !self.shared.enter.load(Ordering::Acquire) {
                std::thread::park_timeout(LOOK);
            }
        }
    }

    fn fail(&self, sentence: String) {
        self.shared.enter.store(false, Ordering::Release);
        if !self.shared.is_over() {
            let _ = self.outlets.news.send(News::Failed { pid: self.pid, sentence });
        }
    }

    /// The helper's socket and the user that must own it. Starts a helper when that was requested.
    fn find(&mut self) -> Result<Option<(PathBuf, u32)>, String> {
        let pid = self.pid;
        let enter = self.shared.enter.load(Ordering::Acquire);
        let me = rustix::process::geteuid().as_raw();
        let Some(uid) = owner(pid) else {
            return if enter { inject(pid).map(|socket| Some((socket, me))) } else { Ok(None) };
        };
        let is_allowed = uid == me || self.manner.other_users;
        if !is_allowed {
            // Only the administrator can reach sockets of other users, so only then does the option matter.
            let is_there = me == 0 && !self.told_other_user && find_socket(pid).is_some();
            if enter || is_there {
                self.told_other_user = true;
                return Err(format!(
                    "Process {pid} belongs to another user (number {uid}), so its helper is not talked to; vramscope record \
                     --other-users does."
                ));
            }
            return Ok(None);
        }
        match find_socket(pid) {
            Some(socket) => Ok(Some((socket, uid))),
            None if enter => inject(pid).map(|socket| Some((socket, uid))),
            None => Ok(None),
        }
    }

    /// Connects and reads the greeting. The peer must be exactly this process and user, so that a socket left or faked by another
    /// one is rejected.
    fn greet(&self, socket: &Path, uid: u32) -> Result<(Lines, Message), String> {
        let pid = self.pid;
        let until = Instant::now() + PATIENCE;
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::TimedOut => {
                format!(
                    "the helper in process {pid} does not answer within {} s: the program is stopped or very busy",
                    PATIENCE.as_secs()
                )
            }
            _ => format!("the helper in process {pid} does not answer: {e}"),
        };
        let stream = connect(socket, until).map_err(failed)?;
        let other = peer(&stream).map_err(failed)?;
        // From outside a container the peer is named by its PID here, which is the one NVML uses. It is 0 when the process is in
        // a namespace that we cannot see; then only the owner of the socket can be checked.
        if other.0 != 0 && other.0 != pid {
            return Err(format!("the socket of process {pid} belongs to process {}", other.0));
        }
        if other.1 != uid {
            return Err(format!("the socket of process {pid} belongs to another user (number {})", other.1));
        }
        let mut lines = Lines::new(stream.try_clone().map_err(failed)?);
        let line = lines.next(|| LONGEST_LINE, Some(until)).map_err(failed)?;
        let hello: Message = line.and_then(|line| serde_json::from_slice(line).ok()).unwrap_or_default();
        if let (None, Some(error)) = (hello.hello, &hello.error) {
            return Err(format!("the helper in process {pid} does not let us in: {}", clean(error)));
        }
        if hello.hello.is_none() {
            return Err(format!("what listens in process {pid} is not the vramscope helper"));
        }
        *self.shared.talk() = Talk { stream: Some(stream), ..Talk::default() };
        // The owner may have been dropped before there was a stream to close.
        if self.shared.is_over() {
            return Err(String::new());
        }
        Ok((lines, hello))
    }

    /// Listens until the helper goes away. `None` when the owner no longer listens.
    fn converse(&mut self, mut lines: Lines, hello: &Message, uid: u32) -> Option<()> {
        let pid = self.pid;
        self.outlets.records.send(Record::Attached(Attached { t: wall_clock_us(), pid, facts: facts(hello) })).ok()?;
        let _ = self.outlets.news.send(News::Answers { pid });
        self.shared.request(Request::Rate(self.manner.rate));
        let mut session = Session {
            inner_pid: hello.pid,
            uid,
            since_us: wall_clock_us(),
            // Both clocks are this machine's, unless the helper is in another time namespace.
            skew_us: skew(hello.t),
            last_error: String::new(),
        };
        let shared = Arc::clone(&self.shared);
        let longest = || if shared.talk().asked.iter().any(|(_, blocks)| *blocks) { LONGEST_BLOCKS } else { LONGEST_LINE };
        let why = loop {
            match lines.next(longest, None) {
                Ok(None) => break "the process ended or let go of the helper".to_owned(),
                Ok(Some(line)) => {
                    if let Ok(message) = serde_json::from_slice::<Message>(line) {
                        self.take(&mut session, message)?;
                    }
                    self.report_dropped(false)?;
                }
                Err(e) => break e.to_string(),
            }
        };
        self.report_dropped(true)?;
        *self.shared.talk() = Talk::default();
        self.shared.is_recording.store(false, Ordering::Relaxed);
        self.outlets.records.send(Record::Detached(Detached { t: wall_clock_us(), pid, why })).ok()?;
        self.outlets.news.send(News::Gone { pid }).ok()
    }

    fn mark(&self, t: i64, kind: MarkKind, text: String) -> Option<()> {
        self.outlets.records.send(Record::Mark(MarkPoint { d: None, t, kind, text })).ok()
    }

    /// Reports how many marks were dropped, at intervals and when the helper goes away.
    fn report_dropped(&mut self, at_once: bool) -> Option<()> {
        if self.dropped == 0 || (!at_once && self.told_dropped.elapsed() < TELL_DROPPED) {
            return Some(());
        }
        self.told_dropped = Instant::now();
        let n = std::mem::take(&mut self.dropped);
        let verb = if n == 1 { "was" } else { "were" };
        self.mark(wall_clock_us(), MarkKind::Process, format!("{} {verb} dropped", counted(n, "mark", "marks")))
    }

    /// Handles a line. `None` when the owner no longer listens.
    fn take(&mut self, session: &mut Session, message: Message) -> Option<()> {
        let pid = self.pid;
        let now = wall_clock_us();
        // Clamps the helper's time to between its greeting and now.
        let t = message.t.saturating_add(session.skew_us).max(session.since_us).min(now);
        let answered = message.re.and_then(|id| {
            let mut talk = self.shared.talk();
            let at = talk.asked.iter().position(|(asked, _)| *asked == id)?;
            Some(talk.asked.swap_remove(at))
        });
        if let Some(devices) = message.devices {
            self.devices = devices.into_iter().take(MOST_DEVICES).collect();
        }
        if (message.stats.is_some() || message.host.is_some()) && self.figures.take() {
            if let Some(host) = message.host {
                let host = HostMemory { t, pid, pinned: Some(host.pinned), pinned_used: host.used, ..HostMemory::default() };
                let _ = self.outlets.records.try_send(Record::Host(host));
            }
            for (ordinal, m) in message.stats.into_iter().flatten().take(MOST_DEVICES) {
                if let Some(d) = self.devices.get(&ordinal).and_then(|uuid| self.number(uuid)) {
                    // If the channel is full the figures are dropped, because queued ones would be outdated.
                    let _ = self.outlets.records.try_send(Record::Torch(TorchPoint { d, t, pid, m }));
                }
            }
        }
        if let (Some(snapshot), Some((_, true))) = (message.blocks, answered) {
            let devices = self.ordinals();
            self.outlets.records.send(Record::Blocks(Blocks { t, pid, devices, snapshot: Box::new(snapshot) })).ok()?;
        }
        if let (Some(on), Some(_)) = (message.history, answered) {
            self.shared.is_recording.store(on, Ordering::Relaxed);
            let _ = self.outlets.news.send(News::History { pid, on });
        }
        self.dropped = self.dropped.saturating_add(message.dropped);
        if message.event.as_deref() == Some("mark") {
            if self.marks.take() {
                self.mark(t, MarkKind::Program, clean(&message.text))?;
            } else {
                self.dropped = self.dropped.saturating_add(1);
            }
        }
        if let Some(path) = message.path {
            let is_oom = message.event.as_deref() == Some("oom");
            // Only reported once per request.
            let is_asked = if is_oom { std::mem::take(&mut self.shared.talk().at_oom) } else { answered.is_some() };
            if let (true, Some(path)) = (is_asked, session.outside(pid, &path)) {
                let text = if is_oom { "snapshot at out of memory" } else { "snapshot" }.to_owned();
                self.mark(t, if is_oom { MarkKind::OutOfMemory } else { MarkKind::Process }, text)?;
                let _ = self.outlets.news.send(News::Snapshot { pid, path, is_oom, devices: self.ordinals() });
            }
        }
        if let Some(error) = message.error {
            // An error that recurs at every reading is reported once.
            let error = clean(&error);
            if answered.is_some() || (error != session.last_error && self.marks.take()) {
                session.last_error.clone_from(&error);
                let _ = self.outlets.news.send(News::Failed { pid, sentence: format!("Process {pid}: {error}.") });
            }
        }
        Some(())
    }

    /// The session's device number for each device index of the process.
    fn ordinals(&self) -> Vec<(i32, u32)> {
        self.devices.iter().filter_map(|(o, uuid)| Some((o.parse().ok()?, self.number(uuid)?))).collect()
    }

    /// The session's number of a device with this UUID. A process too old to report UUIDs, on a machine with one device, uses
    /// that device.
    fn number(&self, uuid: &str) -> Option<u32> {
        let numbers = self.outlets.numbers.lock().ok()?;
        let only = || if numbers.len() == 1 { numbers.values().next() } else { None };
        numbers.get(uuid).or_else(|| if uuid.len() <= "GPU-".len() { only() } else { None }).copied()
    }
}

/// The offset to add to the helper's times; 0 when it is within the duration of a greeting.
fn skew(helper_us: i64) -> i64 {
    let ahead = wall_clock_us().saturating_sub(helper_us);
    if helper_us == 0 || ahead.saturating_abs() < 2_000_000 { 0 } else { ahead }
}

/// A helper's text made safe to show, also in a terminal: shortened, control characters replaced.
fn clean(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn facts(hello: &Message) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for (key, value) in
        [("Python", &hello.python), ("PyTorch", &hello.torch), ("CUDA of PyTorch", &hello.cuda), ("allocator", &hello.backend)]
    {
        if !value.is_empty() {
            facts.push((key.to_owned(), clean(value)));
        }
    }
    let mut env: Vec<_> = hello.env.iter().map(|(k, v)| (clean(k), clean(v))).collect();
    env.sort();
    facts.extend(env);
    facts
}

/// A connection to a helper, from greeting to end.
struct Session {
    /// The PID as the process sees it, which differs in a container.
    inner_pid: u32,
    /// The user that it runs as.
    uid: u32,
    since_us: i64,
    skew_us: i64,
    last_error: String,
}

impl Session {
    /// The path of a snapshot as this machine sees it. `None` for anything but a file of the helper's user, since the helper
    /// would not have written it.
    fn outside(&self, pid: u32, path: &str) -> Option<PathBuf> {
        use std::os::unix::fs::MetadataExt;
        use std::path::Component;
        let inner = Path::new(path);
        if path.contains(|c: char| c.is_control())
            || !inner.is_absolute()
            || inner.components().any(|c| c == Component::ParentDir)
        {
            return None;
        }
        let outside = if self.inner_pid == pid {
            inner.to_path_buf()
        } else {
            Path::new("/proc").join(pid.to_string()).join("root").join(path.trim_start_matches('/'))
        };
        let meta = std::fs::symlink_metadata(&outside).ok()?;
        (meta.is_file() && meta.uid() == self.uid).then_some(outside)
    }
}
