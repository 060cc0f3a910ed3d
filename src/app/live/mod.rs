//! A live watch behind a tab: a thread collects samples and publishes whole recordings; the window sends it commands.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::app::data::device::DeviceData;
use crate::app::data::device::prepare;
use crate::app::jobs::caught;
use crate::app::state::{LiveAction, LiveStatus};
use vramscope_core::compare::join::SnapshotProcess;
use vramscope_core::formats::export::WriteError;
use vramscope_core::formats::export::new_file::NewFile;
use vramscope_core::formats::session::{History, Next, SessionReader};
use vramscope_core::model::{MarkKind, Progress, Recording};
use vramscope_live::live::agent::{News, Request};
use vramscope_live::live::alarm::{AlarmRules, Alarms};
use vramscope_live::live::attach::survey;
use vramscope_live::live::{LiveSession, Rates, SessionOptions};

mod cache;
#[cfg(test)]
mod tests;

pub(in crate::app) use cache::{LeftWatch, left_watches, take_over};
use cache::{delete_cache_file, tempfile};

/// Shortest time between two published recordings of a watch in front.
const PUBLISH: Duration = Duration::from_millis(100);
/// The same for a watch behind another tab, because publishing copies every sample. Sampling continues at full rate.
const PUBLISH_HIDDEN: Duration = Duration::from_secs(1);
/// Most records from a pipe that may be queued.
const WAITING: usize = 4096;

/// Messages from the window to the thread.
enum FeedCommand {
    Act(LiveAction),
    SaveTo(PathBuf),
    Device(usize),
    InFront(bool),
}

/// Messages from the thread to the window.
pub enum Update {
    Notice(String),
    /// The user's alarm limit was passed.
    Alarm(String),
    /// A snapshot to open together with the samples of the watch, and its process.
    Snapshot(PathBuf, SnapshotProcess),
    Status(Box<LiveStatus>),
}

/// The recording so far, and the device in front.
pub type Picture = (Arc<Recording>, Arc<DeviceData>);

/// The window's end of a watch. Dropping it ends the watch.
pub struct LiveFeed {
    commands: Sender<FeedCommand>,
    updates: Receiver<Update>,
    pictures: Receiver<Picture>,
    pub status: Arc<LiveStatus>,
    /// Device and whether the tab is in front, as last sent to the thread.
    told: Option<(usize, bool)>,
    kept: Kept,
}

/// The temporary file of a watch. Window and thread both know it, and whichever ends last removes it.
type Kept = Arc<OnceLock<PathBuf>>;

impl LiveFeed {
    pub fn machine(ctx: &egui::Context) -> Self {
        Self::start(ctx, watch)
    }

    /// Shows a session that arrives through a pipe.
    pub fn stream(ctx: &egui::Context, input: impl Read + Send + 'static) -> Self {
        Self::start(ctx, |inside| follow(input, inside))
    }

    fn start(ctx: &egui::Context, work: impl FnOnce(Inside) + Send + 'static) -> Self {
        let (commands, inbox) = channel();
        let (outbox, updates) = channel();
        let (sender, pictures) = sync_channel(1);
        let kept = Kept::default();
        let inside = Inside {
            ctx: ctx.clone(),
            kept: Arc::clone(&kept),
            inbox,
            outbox,
            pictures: sender,
            attaching: None,
            device: 0,
            is_in_front: true,
            published: None,
            revision: 0,
            status: LiveStatus { rate: Rates::default().memory, ..LiveStatus::default() },
        };
        let (teller, window) = (inside.outbox.clone(), ctx.clone());
        let end = move |sentence: String| {
            let _ = teller.send(Update::Notice(sentence));
            let _ = teller.send(Update::Status(Box::new(LiveStatus { is_over: true, ..LiveStatus::default() })));
            window.request_repaint();
        };
        let told = end.clone();
        let work = move || {
            if let Err(said) = caught(|| work(inside)) {
                end(format!("The watch ended by an error of vramscope ({said}); what it showed stays."));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("live-feed".to_owned()).spawn(work) {
            told(format!("The watch cannot begin: the system cannot start a thread: {error}."));
        }
        LiveFeed { commands, updates, pictures, status: Arc::default(), told: None, kept }
    }

    /// The newest recording if one arrived since the last call.
    pub fn picture(&mut self) -> Option<Picture> {
        self.pictures.try_recv().ok()
    }

    /// Other messages that arrived. A status is stored in `status` instead.
    pub fn updates(&mut self) -> Vec<Update> {
        let mut out = Vec::new();
        while let Ok(update) = self.updates.try_recv() {
            match update {
                Update::Status(status) => self.status = Arc::new(*status),
                other => out.push(other),
            }
        }
        out
    }

    pub fn act(&self, action: LiveAction) {
        self.send(FeedCommand::Act(action));
    }

    /// Saves everything recorded so far and what follows.
    pub fn save_to(&self, path: PathBuf) {
        self.send(FeedCommand::SaveTo(path));
    }

    /// Sends which device is shown and whether the tab is in front. Behind other tabs recordings are published less often.
    pub fn show(&mut self, device: usize, is_in_front: bool) {
        let before = self.told.replace((device, is_in_front));
        if before.is_none_or(|b| b.0 != device) {
            self.send(FeedCommand::Device(device));
        }
        if before.is_none_or(|b| b.1 != is_in_front) {
            self.send(FeedCommand::InFront(is_in_front));
        }
    }

    fn send(&self, command: FeedCommand) {
        // The thread ends by itself only when the watch is over; then nothing needs the command.
        let _ = self.commands.send(command);
    }
}

impl Drop for LiveFeed {
    fn drop(&mut self) {
        // The thread notices soon that this end is gone, but the program may exit before that.
        delete_cache_file(&self.kept);
    }
}

/// The thread's end of a watch.
struct Inside {
    ctx: egui::Context,
    kept: Kept,
    inbox: Receiver<FeedCommand>,
    outbox: Sender<Update>,
    pictures: SyncSender<Picture>,
    /// The process in which a helper is being started.
    attaching: Option<u32>,
    device: usize,
    is_in_front: bool,
    published: Option<Instant>,
    revision: u64,
    status: LiveStatus,
}

impl Inside {
    fn tell(&self, update: Update) {
        let _ = self.outbox.send(update);
        self.ctx.request_repaint();
    }

    fn update_status(&mut self, change: impl FnOnce(&mut LiveStatus)) {
        let before = self.status.clone();
        change(&mut self.status);
        if before != self.status {
            self.tell(Update::Status(Box::new(self.status.clone())));
        }
    }

    fn keep(&self) -> Option<std::fs::File> {
        let (path, file) = tempfile()?;
        self.kept.set(path).ok()?;
        Some(file)
    }

    /// Switches to another device and publishes at once.
    fn show_device(&mut self, index: usize) {
        (self.device, self.revision, self.published) = (index, 0, None);
    }

    /// Publishes at once when the tab comes to the front, so that it does not show old data.
    fn come_to_front(&mut self, is_in_front: bool) {
        if is_in_front && !self.is_in_front {
            self.published = None;
        }
        self.is_in_front = is_in_front;
    }

    /// Publishes a recording when there is something new and the window took the last one. False when the window's end is gone.
    fn publish(&mut self, history: &History, name: &str) -> bool {
        let wait = if self.is_in_front { PUBLISH } else { PUBLISH_HIDDEN };
        let is_due = self.published.is_none_or(|at| at.elapsed() >= wait);
        if !is_due || self.revision == history.revision() {
            return true;
        }
        let recording = Arc::new(history.recording(name));
        let index = self.device.min(recording.devices.len().saturating_sub(1));
        let Ok(data) = prepare(&recording, index, &Progress::new()) else { return true };
        match self.pictures.try_send((recording, data)) {
            Ok(()) => {
                self.revision = history.revision();
                self.published = Some(Instant::now());
                self.ctx.request_repaint();
                true
            }
            Err(TrySendError::Full(_)) => {
                // The window is hidden or slow and will take the queued recording later; a newer one follows.
                self.published = Some(Instant::now());
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Watches this machine until the window's end is gone.
fn watch(mut inside: Inside) {
    let options = SessionOptions::default();
    let mut session = match LiveSession::start(Box::new(vramscope_live::live::open), &options) {
        Ok(session) => session,
        Err(error) => return inside.tell(Update::Notice(format!("The watch cannot be started: {error}."))),
    };
    // Everything is written to a file from the start, so that neither saving later nor a crash loses samples.
    if let Some(file) = inside.keep()
        && let Err(error) = session.write_to(Box::new(file))
    {
        inside.tell(Update::Notice(format!("The session cannot be written ({error}); the watch is not kept.")));
    }
    let mut alarms: HashMap<u32, Alarms> = HashMap::new();
    let mut rules = AlarmRules::default();
    let mut checked = Instant::now();
    inside.update_status(|_| {});
    inside.tell(Update::Status(Box::new(inside.status.clone())));
    loop {
        loop {
            match inside.inbox.try_recv() {
                Ok(command) => {
                    if !handle_command(&mut inside, &mut session, command) {
                        // The watch is over. Its data stays on screen until the tab is closed.
                        inside.published = None;
                        inside.publish(session.history(), "live");
                        finish(&mut inside, session);
                        return;
                    }
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return delete_cache_file(&inside.kept),
            }
        }
        if let Err(error) = session.pump(Duration::from_millis(50)) {
            session.stop_writing();
            inside.tell(Update::Notice(format!("The session cannot be written any more ({error}); the watch goes on.")));
        }
        for news in session.news() {
            handle_news(&mut inside, news);
        }
        let helpers: Vec<(u32, bool)> = session.helpers().collect();
        inside.update_status(|s| s.helpers = helpers);
        if checked.elapsed() > Duration::from_secs(1) {
            checked = Instant::now();
            if rules != inside.status.rules {
                (rules, alarms) = (inside.status.rules, HashMap::new());
            }
            check_alarms(&inside, &mut session, &mut alarms);
        }
        if !inside.publish(session.history(), "live") {
            return delete_cache_file(&inside.kept);
        }
    }
}

/// Reports limits that were passed on any device and sets a mark there.
fn check_alarms(inside: &Inside, session: &mut LiveSession, alarms: &mut HashMap<u32, Alarms>) {
    let numbers: Vec<u32> = session.history().devices().map(|(number, _)| number).collect();
    for &number in &numbers {
        let Some((_, capacity)) = session.history().latest(number) else { continue };
        let passed = alarms.entry(number).or_default().check(&inside.status.rules, capacity, session.history().samples(number));
        for alarm in passed {
            // The next pump reports a write error.
            let _ = session.mark_on(Some(number), &alarm.mark, MarkKind::Alarm);
            let sentence = if numbers.len() > 1 { format!("GPU {number}: {}", alarm.sentence) } else { alarm.sentence };
            crate::app::platform::notify::desktop("GPU memory", &sentence);
            inside.tell(Update::Alarm(sentence));
        }
    }
}

/// Closes the session but keeps serving the window, because a stopped watch can still be saved.
fn finish(inside: &mut Inside, session: LiveSession) {
    let history_end = session.finish();
    if let Err(error) = history_end {
        inside.tell(Update::Notice(format!("The end of the session cannot be written: {error}.")));
    }
    inside.update_status(|s| (s.is_over, s.busy) = (true, None));
    while let Ok(command) = inside.inbox.recv() {
        if let FeedCommand::SaveTo(to) = command {
            save(inside, &to);
        }
    }
    delete_cache_file(&inside.kept);
}

/// Handles a command; false when the watch is to end.
fn handle_command(inside: &mut Inside, session: &mut LiveSession, command: FeedCommand) -> bool {
    match command {
        FeedCommand::Act(LiveAction::Stop) => return false,
        FeedCommand::Act(LiveAction::Pause(is_paused)) => {
            session.sampler().set_paused(is_paused);
            inside.update_status(|s| s.is_paused = is_paused);
        }
        FeedCommand::Act(LiveAction::Mark(text)) => {
            let _ = session.mark(&text, MarkKind::User);
        }
        FeedCommand::Act(LiveAction::Look(pid)) => {
            inside.update_status(|s| s.surveying = Some(pid));
            let survey = survey(pid);
            inside.update_status(|s| s.survey = Some(survey));
        }
        FeedCommand::Act(LiveAction::Attach(pid)) => attach(inside, session, pid),
        FeedCommand::Act(LiveAction::Ask(pid, request)) => {
            if !session.request(pid, request) {
                inside.tell(Update::Notice(format!("No helper answers in process {pid}.")));
            } else if request == Request::SnapshotAtOom(true) {
                inside
                    .tell(Update::Notice(format!("Process {pid} writes a snapshot the next time it runs out of memory, once.")));
            }
        }
        FeedCommand::Act(LiveAction::Rate(hz)) => {
            match session.set_rates(Box::new(vramscope_live::live::open), Rates::with_memory(hz)) {
                Ok(()) => inside.update_status(|s| s.rate = hz),
                Err(error) => inside.tell(Update::Notice(format!("The rate cannot be changed: {error}."))),
            }
        }
        FeedCommand::Act(LiveAction::Alarms(rules)) => inside.update_status(|s| s.rules = rules),
        FeedCommand::Act(LiveAction::Save) => {}
        FeedCommand::SaveTo(to) => save(inside, &to),
        FeedCommand::Device(index) => inside.show_device(index),
        FeedCommand::InFront(yes) => inside.come_to_front(yes),
    }
    true
}

/// Attaches to a process: connects at once to a helper that listens, otherwise starts one, which may take ten seconds. The
/// outcome arrives as news.
fn attach(inside: &mut Inside, session: &mut LiveSession, pid: u32) {
    let known = survey(pid);
    let is_listening = known.socket.is_some();
    let (obstacle, is_python) = (known.obstacle.clone(), known.is_python());
    inside.update_status(|s| (s.survey, s.surveying) = (Some(known), Some(pid)));
    if let Some(why) = obstacle.filter(|_| !is_listening) {
        let lines = if is_python { " The panel at the right has the lines to add." } else { "" };
        inside.tell(Update::Notice(format!("{why}{lines}")));
        return;
    }
    if !is_listening {
        inside.update_status(|s| s.busy = Some(format!("Waiting until process {pid} runs Python code…")));
        inside.attaching = Some(pid);
    }
    session.attach(pid);
}

fn handle_news(inside: &mut Inside, news: News) {
    if let News::Answers { pid } | News::Failed { pid, .. } = &news
        && inside.attaching.take_if(|waited| waited == pid).is_some()
    {
        inside.update_status(|s| s.busy = None);
    }
    match news {
        News::Snapshot { path, is_oom, pid, devices } => {
            if is_oom {
                inside.tell(Update::Notice(format!("Process {pid} ran out of memory; its snapshot is opened.")));
            }
            inside.tell(Update::Snapshot(path, SnapshotProcess { pid: Some(pid), devices }));
        }
        News::History { pid, on } => {
            let state = if on { "records its allocation history" } else { "records no history any more" };
            inside.tell(Update::Notice(format!("Process {pid} {state}.")));
        }
        News::Failed { sentence, .. } => inside.tell(Update::Notice(sentence)),
        News::Answers { .. } | News::Gone { .. } => {}
    }
}

/// Copies the temporary file. It holds whole records at any moment.
fn save(inside: &Inside, to: &Path) {
    let copied = || -> Result<u64, String> {
        let from = inside.kept.get().ok_or("The watch was not kept: no file could be made for it")?;
        let mut file = std::fs::File::open(from).map_err(|e| format!("{}: cannot be read: {e}", from.display()))?;
        // The dialog asked already whether to replace a file.
        let mut new = NewFile::create(to, &[from], true).map_err(|e| e.to_string())?;
        let bytes = std::io::copy(&mut file, &mut new).map_err(|e| WriteError::io(to, e).to_string())?;
        new.finish().map(|()| bytes).map_err(|e| e.to_string())
    };
    let text = match copied() {
        Ok(bytes) => format!("Saved {} to {}.", vramscope_core::units::Bytes(bytes), to.display()),
        Err(sentence) => format!("{sentence}."),
    };
    inside.tell(Update::Notice(text));
}

/// Shows a session that arrives through a pipe, and keeps it after the pipe ends.
fn follow(input: impl Read + Send + 'static, mut inside: Inside) {
    inside.update_status(|s| s.is_remote = true);
    let (sender, records) = sync_channel(WAITING);
    // A thread reads, because reading blocks while the window wants updates.
    let reader = move || {
        let mut reader = match SessionReader::new(input) {
            Ok(Some(reader)) => reader,
            Ok(None) => return drop(sender.send(Err("What arrives on standard input is not a vramscope session.".to_owned()))),
            Err(e) => return drop(sender.send(Err(format!("Standard input cannot be read: {e}.")))),
        };
        loop {
            let next = match reader.next_record() {
                Ok(Next::Record(record)) => Ok(*record),
                Ok(Next::Unknown { .. }) => continue,
                Ok(Next::End) => return,
                Ok(Next::Broken { what, .. }) => Err(format!("The session broke off: {what}.")),
                Err(e) => Err(format!("Standard input cannot be read any more: {e}.")),
            };
            let is_last = next.is_err();
            if sender.send(next).is_err() || is_last {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("stdin".to_owned()).spawn(reader) {
        return inside.tell(Update::Notice(format!("No thread could be started: {error}.")));
    }
    let mut history = History::new();
    let mut writer = inside.keep().and_then(|f| vramscope_core::formats::session::SessionWriter::new(f).ok());
    let mut is_open = true;
    loop {
        let wait = if is_open { Duration::from_millis(50) } else { Duration::from_secs(1) };
        if is_open {
            match records.recv_timeout(wait) {
                Ok(first) => {
                    // Takes at most the records that are queued, so that a fast writer does not keep the window from updating.
                    for next in std::iter::once(first).chain(records.try_iter().take(WAITING)) {
                        match next {
                            Ok(record) => {
                                if let Some(w) = &mut writer {
                                    let _ = w.write(&record);
                                }
                                history.add(record);
                            }
                            Err(sentence) => inside.tell(Update::Notice(sentence)),
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    is_open = false;
                    inside.published = None;
                    inside.update_status(|s| s.is_over = true);
                }
            }
        }
        let command = if is_open {
            inside
                .inbox
                .try_recv()
                .map_err(|e| if e == TryRecvError::Empty { RecvTimeoutError::Timeout } else { RecvTimeoutError::Disconnected })
        } else {
            inside.inbox.recv_timeout(wait)
        };
        match command {
            Ok(FeedCommand::SaveTo(to)) => save(&inside, &to),
            Ok(FeedCommand::Device(index)) => inside.show_device(index),
            Ok(FeedCommand::InFront(yes)) => inside.come_to_front(yes),
            Ok(FeedCommand::Act(LiveAction::Stop)) => {
                is_open = false;
                inside.update_status(|s| s.is_over = true);
            }
            Err(RecvTimeoutError::Disconnected) => return delete_cache_file(&inside.kept),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        let name = if history.host().is_empty() { "live".to_owned() } else { history.host().to_owned() };
        if !inside.publish(&history, &name) {
            return delete_cache_file(&inside.kept);
        }
    }
}

/// True for `-`, a session on standard input.
pub(in crate::app) fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}
