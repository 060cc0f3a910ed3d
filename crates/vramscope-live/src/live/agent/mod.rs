//! Talks to the helper inside a process. Each process has a thread that looks for the helper, greets it and listens, so that a
//! slow or broken helper never blocks the caller.

mod follower;
mod messages;

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use self::follower::Follower;
pub use self::messages::{News, Request};
use super::peer::send;
use vramscope_core::formats::session::Record;

/// The helper: a single file that can be printed, put on a path, or loaded into a running interpreter.
pub const HELPER: &str = include_str!("../../../assets/python/vramscope/_agent.py");

macro_rules! files {
    ($($name:literal: $place:literal),* $(,)?) => { &[$(($name, include_str!(concat!("../../../assets/", $place, $name)))),*] };
}

/// The Python package with the helper, and the file that starts it in every Python whose path begins with its folder; by place.
pub const PACKAGE: &[(&str, &str)] = files![
    "sitecustomize.py": "",
    "vramscope/__init__.py": "python/",
    "vramscope/_agent.py": "python/",
    "vramscope/_callbacks.py": "python/",
    "vramscope/_catch.py": "python/",
    "vramscope/_keep.py": "python/",
    "vramscope/_open.py": "python/",
    "vramscope/_record.py": "python/",
    "vramscope/_secrets.py": "python/",
    "vramscope/pytest_plugin.py": "python/",
];

/// The session's device number of each UUID; shared with the threads.
type DeviceNumbers = Arc<Mutex<HashMap<String, u32>>>;

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
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// True while the helper answers.
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
