//! Talks to the helper inside a process: a thread for each process looks for it, greets it and listens. Nothing that the other end does,
//! or leaves undone, holds up the caller.

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

/// The helper: one file, to be printed, put on a path, or brought into a running interpreter.
pub const HELPER: &str = include_str!("../../assets/python/vramscope/_agent.py");

macro_rules! files {
    ($($name:literal: $place:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../assets/", $place, $name)))),*] };
}

/// The Python package, which has the helper in it, and what starts it in every Python of a job whose path has its folder first: each
/// file by its place in that folder.
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

/// All of connecting and greeting takes microseconds; a process that does not manage it in this time cannot be asked now.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to look for a helper in a process that has none.
const LOOK: Duration = Duration::from_secs(1);
/// A line of figures has a few hundred bytes for each device.
const LONGEST_LINE: usize = 1 << 16;
/// The blocks of a process, which are only taken when they were asked for: 300,000 of them.
const LONGEST_BLOCKS: usize = 32 << 20;
/// Devices of one process; a machine has no more.
const MOST_DEVICES: usize = 32;
/// Marks that a helper may set: at once, and a second after that. A session of days stays small.
const MARKS: (f64, f64) = (100.0, 10.0);
/// Lines of figures; a helper is asked for ten a second.
const FIGURES: (f64, f64) = (60.0, 20.0);
/// Dropped marks are told this often.
const TELL_DROPPED: Duration = Duration::from_secs(10);

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
    /// Write a snapshot at the next out-of-memory error, once; or no more.
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
    /// Its helper answers: figures come from now on.
    Answers {
        /// The process.
        pid: u32,
    },
    /// A snapshot was written; whether an out-of-memory error was the reason.
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

/// Pinned host memory, as a helper tells it.
#[derive(Clone, Copy, Debug, Deserialize)]
struct HostFigures {
    pinned: u64,
    used: Option<u64>,
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

/// Where the thread of a helper sends what it hears.
#[derive(Clone)]
pub(super) struct Outlets {
    pub numbers: DeviceNumbers,
    pub records: SyncSender<Record>,
    pub news: Sender<News>,
}

/// How to talk to helpers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Statistics so many times a second.
    pub rate: f64,
    /// Also helpers in programs of other users.
    pub other_users: bool,
}

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    /// Nobody wants it any more.
    is_over: AtomicBool,
    /// The thread has ended: the helper cannot be had.
    has_ended: AtomicBool,
    /// Start a helper where there is none.
    enter: AtomicBool,
    is_recording: AtomicBool,
    talk: Mutex<Talk>,
}

/// What goes on with a helper that answers.
#[derive(Debug, Default)]
struct Talk {
    stream: Option<UnixStream>,
    requests: u64,
    /// Requests without an answer yet, each with whether it was for blocks.
    asked: Vec<(u64, bool)>,
    /// It may tell of one snapshot at an out-of-memory error.
    at_oom: bool,
}

impl Shared {
    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Sends a request; a helper that takes nothing in is let go.
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

/// The thread that deals with the helper of one process.
#[derive(Debug)]
pub struct Agent {
    pid: u32,
    shared: Arc<Shared>,
    thread: Thread,
}

impl Agent {
    /// Looks for the helper in a process, now and then until it is there, and listens to it. What happens arrives as records and news.
    ///
    /// # Errors
    /// When the system gives no thread.
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

    /// The process.
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

    /// True while a helper is to be started in the process.
    pub(super) fn is_entering(&self) -> bool {
        !self.has_ended() && self.shared.enter.load(Ordering::Acquire)
    }

    /// True while the process records its allocation history for us.
    #[must_use]
    pub fn is_recording(&self) -> bool {
        self.shared.is_recording.load(Ordering::Relaxed)
    }

    /// Starts a helper in the process where there is none; what comes of it is told as news.
    pub(super) fn enter(&self) {
        self.shared.enter.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Asks for something; the answer comes as a record or as news. False when no helper answers.
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

/// The thread's end.
struct Follower {
    pid: u32,
    manner: Manner,
    outlets: Outlets,
    shared: Arc<Shared>,
    /// The UUID of each ordinal of the process, as told once. Looked up each time: the driver's list may come later than the helper.
    devices: HashMap<String, String>,
    told_other_user: bool,
    /// What is left of each budget. A helper that goes and comes again gets no new one.
    marks: Budget,
    figures: Budget,
    /// Marks dropped since that was told.
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
                    // It is not asked again: what fails once, fails every second.
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

    /// The socket of the helper and the user that it must belong to; starts a helper where that was asked for.
    fn find(&mut self) -> Result<Option<(PathBuf, u32)>, String> {
        let pid = self.pid;
        let enter = self.shared.enter.load(Ordering::Acquire);
        let me = rustix::process::geteuid().as_raw();
        let Some(uid) = owner(pid) else {
            return if enter { inject(pid).map(|socket| Some((socket, me))) } else { Ok(None) };
        };
        let is_allowed = uid == me || self.manner.other_users;
        if !is_allowed {
            // Only the administrator reaches other users' sockets; anybody else has nothing to choose.
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

    /// Connects and takes the greeting. The other end must be that very process of that very user, so that a socket left or laid out
    /// by another one is not taken for it.
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
        // From outside a container the peer is named by its PID here: the one NVML uses. It is 0 when the process lives in a
        // namespace that we cannot see into; the socket's owner is then all there is to go by.
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
        // Its owner may have gone meanwhile, without a stream to close.
        if self.shared.is_over() {
            return Err(String::new());
        }
        Ok((lines, hello))
    }

    /// Listens until the helper goes; `None` when nobody listens to us any more.
    fn converse(&mut self, mut lines: Lines, hello: &Message, uid: u32) -> Option<()> {
        let pid = self.pid;
        self.outlets.records.send(Record::Attached(Attached { t: wall_clock_us(), pid, facts: facts(hello) })).ok()?;
        let _ = self.outlets.news.send(News::Answers { pid });
        self.shared.request(Request::Rate(self.manner.rate));
        let mut session = Session {
            inner_pid: hello.pid,
            uid,
            since_us: wall_clock_us(),
            // Both clocks are the machine's own unless the helper runs in another one's time namespace or far away.
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
                    self.tell_dropped(false)?;
                }
                Err(e) => break e.to_string(),
            }
        };
        self.tell_dropped(true)?;
        *self.shared.talk() = Talk::default();
        self.shared.is_recording.store(false, Ordering::Relaxed);
        self.outlets.records.send(Record::Detached(Detached { t: wall_clock_us(), pid, why })).ok()?;
        self.outlets.news.send(News::Gone { pid }).ok()
    }

    fn mark(&self, t: i64, kind: MarkKind, text: String) -> Option<()> {
        self.outlets.records.send(Record::Mark(MarkPoint { d: None, t, kind, text })).ok()
    }

    /// Says how many marks were dropped, now and then, and when the helper goes.
    fn tell_dropped(&mut self, at_once: bool) -> Option<()> {
        if self.dropped == 0 || (!at_once && self.told_dropped.elapsed() < TELL_DROPPED) {
            return Some(());
        }
        self.told_dropped = Instant::now();
        let n = std::mem::take(&mut self.dropped);
        let verb = if n == 1 { "was" } else { "were" };
        self.mark(wall_clock_us(), MarkKind::Process, format!("{} {verb} dropped", counted(n, "mark", "marks")))
    }

    /// Handles one line; `None` when nobody listens any more.
    fn take(&mut self, session: &mut Session, message: Message) -> Option<()> {
        let pid = self.pid;
        let now = wall_clock_us();
        // What a helper tells happened since it was greeted, whatever it says.
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
                    // Figures that nobody takes in time are old: better none than a queue.
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
            // It is told of once for each time it was asked for.
            let is_asked = if is_oom { std::mem::take(&mut self.shared.talk().at_oom) } else { answered.is_some() };
            if let (true, Some(path)) = (is_asked, session.outside(pid, &path)) {
                let text = if is_oom { "snapshot at out of memory" } else { "snapshot" }.to_owned();
                self.mark(t, if is_oom { MarkKind::OutOfMemory } else { MarkKind::Process }, text)?;
                let _ = self.outlets.news.send(News::Snapshot { pid, path, is_oom, devices: self.ordinals() });
            }
        }
        if let Some(error) = message.error {
            // What fails at every reading is said once.
            let error = clean(&error);
            if answered.is_some() || (error != session.last_error && self.marks.take()) {
                session.last_error.clone_from(&error);
                let _ = self.outlets.news.send(News::Failed { pid, sentence: format!("Process {pid}: {error}.") });
            }
        }
        Some(())
    }

    /// The device of the session that each ordinal of the process is.
    fn ordinals(&self) -> Vec<(i32, u32)> {
        self.devices.iter().filter_map(|(o, uuid)| Some((o.parse().ok()?, self.number(uuid)?))).collect()
    }

    /// The number of a device by its UUID. A process too old to tell one, on a machine with one device, means that one.
    fn number(&self, uuid: &str) -> Option<u32> {
        let numbers = self.outlets.numbers.lock().ok()?;
        let only = || if numbers.len() == 1 { numbers.values().next() } else { None };
        numbers.get(uuid).or_else(|| if uuid.len() <= "GPU-".len() { only() } else { None }).copied()
    }
}

/// The difference that must be added to the helper's times, 0 when it is within what a greeting takes.
fn skew(helper_us: i64) -> i64 {
    let ahead = wall_clock_us().saturating_sub(helper_us);
    if helper_us == 0 || ahead.saturating_abs() < 2_000_000 { 0 } else { ahead }
}

/// Words of a helper as they may be shown, also in a terminal: short, and without characters that control it.
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

/// One time that a helper answers, from greeting to end.
struct Session {
    /// Its own PID as it sees it: in a container another one.
    inner_pid: u32,
    /// The user it runs as.
    uid: u32,
    since_us: i64,
    skew_us: i64,
    last_error: String,
}

impl Session {
    /// A snapshot of the process as this machine sees it; `None` for what is no file of its user's, which the helper would not have
    /// written.
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
