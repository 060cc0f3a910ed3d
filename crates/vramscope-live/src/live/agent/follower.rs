//! The thread of one process: finds the helper, greets it and listens.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::messages::{Message, clean, facts};
use super::{Manner, News, Outlets, Request, Shared, Talk};
use crate::live::attach::{find_socket, inject, owner};
use crate::live::budget::Budget;
use crate::live::peer::{Lines, connect, peer};
use crate::live::wall_clock_us;
use vramscope_core::formats::session::{Attached, Blocks, Detached, HostMemory, MarkPoint, Record, TorchPoint};
use vramscope_core::model::MarkKind;
use vramscope_core::units::counted;

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

pub(super) struct Follower {
    pid: u32,
    manner: Manner,
    outlets: Outlets,
    pub shared: Arc<Shared>,
    /// The UUID of each device index. Numbers are looked up each time: the driver's list may arrive after the helper's.
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
    pub fn new(pid: u32, manner: Manner, outlets: Outlets, shared: Arc<Shared>) -> Self {
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

    pub fn work(&mut self) {
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

    /// Connects and reads the greeting. The peer must be this process and user, so that a stale or faked socket is rejected.
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

    /// The session's number of a device with this UUID. A process too old to report UUIDs uses the only device, if there is one.
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
    /// The path of a snapshot as this machine sees it. `None` unless it is a regular file of the helper's user.
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
