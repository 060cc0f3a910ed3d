//! [`Run`]: a scenario or a replay under way, in a thread on simulated memory or in a child process on a card.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::card::{Card, SIMULATED_TOTAL, SimulatedCard};
use super::following::FollowingCard;
use super::message::{End, Ending, Message};
use super::perform::{Options, now_us, perform};
use super::record::Recorder;
use super::replay::{ReplayPlan, room_for};
use super::scenarios::{Room, Scenario, Values};
use super::wire::{read_message, write_message};
use vramscope_core::model::{AllocConf, Progress, Recording, Sample};
use vramscope_core::units::Bytes;

/// What to run.
#[derive(Clone, Debug)]
pub enum Job {
    /// A scenario.
    Scenario {
        /// Which.
        scenario: &'static Scenario,
        /// Its parameters.
        values: Values,
    },
    /// The requests of a recording.
    Replay {
        /// The recording.
        recording: Arc<Recording>,
        /// Index of its device.
        device: usize,
    },
    /// The requests of a recording, as another process read them.
    Handed(Arc<ReplayPlan>),
}

impl Job {
    /// `replay`, or the scenario's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Job::Scenario { scenario, .. } => scenario.name,
            Job::Replay { .. } | Job::Handed(_) => "replay",
        }
    }

    /// The settings where none are given.
    #[must_use]
    pub fn default_conf(&self) -> String {
        match self {
            Job::Scenario { scenario, .. } => scenario.conf.to_owned(),
            Job::Replay { .. } | Job::Handed(_) => String::new(),
        }
    }
}

/// Where to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Simulated memory.
    Simulated,
    /// A real card.
    Card {
        /// Its ordinal.
        index: i32,
        /// Run although others hold more than a twentieth of it.
        is_shared: bool,
        /// Take the last bytes too.
        fills: bool,
    },
}

/// The settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The allocator's settings; the scenario's own when `None`.
    pub conf: Option<String>,
    /// The most bytes the allocator may reserve.
    pub limit: Option<u64>,
    /// How long to rest at each sample.
    pub pace: Duration,
}

/// Asks a run to end, whichever part of it is at work.
#[derive(Debug, Default)]
struct Stop {
    /// Looked at between the steps of a program.
    steps: AtomicBool,
    /// Looked at while a recording's requests are read.
    reading: Progress,
}

impl Stop {
    fn set(&self) {
        self.steps.store(true, Ordering::Relaxed);
        self.reading.cancel();
    }
}

/// A run under way. Dropping it stops it: everything is given back, and a child that does not end is killed.
#[derive(Debug)]
pub struct Run {
    messages: Receiver<Message>,
    stop: Arc<Stop>,
    child: Option<Arc<Mutex<Child>>>,
    /// Dropping it closes the child's standard input, which tells it to stop.
    control: Option<SyncSender<()>>,
}

/// Messages that may wait to be looked at before the run waits too.
const QUEUE: usize = 64;
/// How long a child has to give everything back.
const GRACE: Duration = Duration::from_secs(10);

impl Run {
    /// Starts a run.
    ///
    /// # Errors
    /// One sentence when the thread or the child process cannot be started, or the program not be made.
    pub fn start(job: &Job, target: Target, conditions: &Conditions) -> Result<Self, String> {
        match target {
            Target::Simulated => Run::in_thread(job.clone(), conditions.clone()),
            Target::Card { index, is_shared, fills } => Run::in_child(job, index, is_shared, fills, conditions),
        }
    }

    fn in_thread(job: Job, conditions: Conditions) -> Result<Self, String> {
        let (sender, messages) = sync_channel(QUEUE);
        let stop = Arc::new(Stop::default());
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new()
            .name("probe".to_owned())
            .spawn(move || {
                let mut out = |message| {
                    // Nobody listens any more: the run was dropped.
                    if sender.send(message).is_err() {
                        stopped.set();
                    }
                };
                let run = |out: &mut dyn FnMut(Message)| simulate(&job, &conditions, &stopped, out);
                if let Err(sentence) = run(&mut out) {
                    out(failed(sentence));
                }
            })
            .map_err(|e| format!("the probe's thread cannot be started: {e}"))?;
        Ok(Run { messages, stop, child: None, control: None })
    }

    fn in_child(job: &Job, index: i32, is_shared: bool, fills: bool, conditions: &Conditions) -> Result<Self, String> {
        let failed_to = |e: std::io::Error| format!("the probe's process cannot be started: {e}");
        let mut command = Command::new(std::env::current_exe().map_err(failed_to)?);
        command.args(["probe", job.name()]);
        match job {
            Job::Scenario { values, .. } => {
                for (param, value) in values.iter() {
                    command.arg("--param").arg(format!("{}={value}", param.name));
                }
            }
            // The requests follow on its standard input.
            Job::Replay { .. } | Job::Handed(_) => {}
        }
        command.arg("--child").arg(format!("--device={index}"));
        command.args(["--pace", &conditions.pace.as_millis().to_string()]);
        if let Some(conf) = &conditions.conf {
            command.args(["--conf", conf]);
        }
        if let Some(limit) = conditions.limit {
            command.args(["--limit", &limit.to_string()]);
        }
        for (flag, is_set) in [("--shared", is_shared), ("--fill", fills)] {
            if is_set {
                command.arg(flag);
            }
        }
        Run::of_command(command, job)
    }

    /// Runs a command that speaks the framed format on its standard output, and stops when its standard input ends.
    fn of_command(mut command: Command, job: &Job) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("the probe's process cannot be started: {e}"))?;
        let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let (sender, messages) = sync_channel(QUEUE);
        let watched = Arc::clone(&child);
        let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            spawned.map(drop).map_err(|e| format!("the probe's thread cannot be started: {e}"))
        };
        thread("probe pipe", Box::new(move || listen(output, complaints, &watched, &sender)))?;
        let stop = Arc::new(Stop::default());
        let (control, until) = sync_channel(0);
        let (job, stopped) = (job.clone(), Arc::clone(&stop));
        let feed = move || {
            let Some(mut input) = input else { return };
            if let Job::Replay { recording, device } = job {
                // The child hears the sentence and says it again on its way out; when it is gone it has said its own.
                let _ = hand_over(&recording, device, &stopped.reading, &mut input);
                drop(recording);
            }
            // Ends when the sender is dropped, and with it the child's input.
            let _ = until.recv();
        };
        thread("probe control", Box::new(feed))?;
        Ok(Run { messages, stop, child: Some(child), control: Some(control) })
    }

    /// Waits for the next message; `None` when the run is over.
    pub fn next(&self) -> Option<Message> {
        self.messages.recv().ok()
    }

    /// Waits a while for the next message.
    ///
    /// # Errors
    /// As [`Receiver::recv_timeout`].
    pub fn next_within(&self, time: Duration) -> Result<Message, RecvTimeoutError> {
        self.messages.recv_timeout(time)
    }

    /// Asks the run to give everything back and end. A child that has not ended after ten seconds is killed.
    pub fn stop(&mut self) {
        self.stop.set();
        drop(self.control.take());
        if let Some(child) = self.child.take() {
            let watchdog = std::thread::Builder::new().name("probe watchdog".to_owned());
            // Without a thread to spare the child is killed at once.
            let for_thread = Arc::clone(&child);
            if watchdog.spawn(move || end_child(&for_thread)).is_err()
                && let Ok(mut child) = child.lock()
            {
                let _ = child.kill();
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a child to end by itself, then kills it.
fn end_child(child: &Mutex<Child>) {
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if let Ok(mut child) = child.lock()
            && !matches!(child.try_wait(), Ok(None))
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Ok(mut child) = child.lock() {
        // It may have ended just now.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Reads a child's pipe to its end.
fn listen(
    output: Option<std::process::ChildStdout>,
    complaints: Option<std::process::ChildStderr>,
    child: &Mutex<Child>,
    sender: &SyncSender<Message>,
) {
    let Some(output) = output else { return };
    // What it complains of is read beside, so that it cannot block on it.
    let complaints = complaints.and_then(|mut pipe| {
        let read = move || {
            let mut text = String::new();
            // Half a complaint is better than none.
            let _ = pipe.read_to_string(&mut text);
            text
        };
        std::thread::Builder::new().name("probe complaints".to_owned()).spawn(read).ok()
    });
    let mut input = BufReader::new(output);
    let mut has_ended = false;
    let broken = loop {
        match read_message(&mut input) {
            Ok(Some(message)) => {
                has_ended |= matches!(message, Message::End(_));
                if sender.send(message).is_err() {
                    break None;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    drop(input);
    if has_ended {
        reap(child);
        return;
    }
    let status = reap(child);
    let said = complaints.and_then(|t| t.join().ok()).unwrap_or_default();
    let said = said.trim().lines().last().unwrap_or_default().trim_start_matches("vramscope: ").to_owned();
    let sentence = match (said.is_empty(), broken) {
        (false, _) => said,
        (true, Some(broken)) => format!("the probe's process broke off: {broken}"),
        (true, None) => format!("the probe's process ended before its run did ({status})"),
    };
    // The listener may be gone as well.
    let _ = sender.send(failed(sentence));
}

/// Waits for a child that closed its pipe, without keeping others from killing it.
fn reap(child: &Mutex<Child>) -> String {
    loop {
        let Ok(mut locked) = child.lock() else { return "unknown".to_owned() };
        match locked.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) => {}
            Err(error) => return error.to_string(),
        }
        drop(locked);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a recording's requests and sends them to the process that is to run them; when they cannot be read, the sentence that
/// says why.
fn hand_over(recording: &Recording, device: usize, progress: &Progress, input: &mut impl Write) -> std::io::Result<()> {
    match ReplayPlan::of(recording, device, progress) {
        Ok(plan) => {
            input.write_all(b"R")?;
            plan.write(input, progress)
        }
        Err(sentence) => {
            input.write_all(b"!")?;
            input.write_all(sentence.as_bytes())?;
            input.write_all(b"\n")?;
            input.flush()
        }
    }
}

/// The other end of a replay's way to its process: its requests.
///
/// # Errors
/// One sentence: why the recording's requests cannot be run, or that they did not arrive.
pub fn handed_over(input: &mut impl BufRead) -> Result<Job, String> {
    let mut kind = [0];
    // A pipe that ends here is told by the reading below.
    let _ = input.read_exact(&mut kind);
    if kind == *b"!" {
        let mut sentence = String::new();
        let _ = input.read_line(&mut sentence);
        return Err(sentence.trim().to_owned());
    }
    ReplayPlan::read(input).map(|plan| Job::Handed(Arc::new(plan)))
}

fn failed(sentence: String) -> Message {
    Message::End(Box::new(End { ending: Ending::Failed(sentence), ..End::default() }))
}

/// A run's messages to the last, recorded. `seen` hears each.
///
/// # Errors
/// None of its own: how the run ended stands in the recorder.
pub fn run_to_end(run: &Run, job: &Job, seen: &mut dyn FnMut(&Message)) -> Recorder {
    let base = match job {
        Job::Replay { recording, .. } => Some(recording.stacks.clone()),
        Job::Scenario { .. } | Job::Handed(_) => None,
    };
    let mut recorder = Recorder::new(base);
    while let Some(message) = run.next() {
        seen(&message);
        recorder.take(&message);
    }
    recorder
}

fn options(job: &Job, parameters: String, conditions: &Conditions) -> Options {
    Options {
        scenario: job.name().to_owned(),
        parameters,
        conf: conditions.conf.clone().unwrap_or_else(|| job.default_conf()),
        limit: conditions.limit,
        pace: conditions.pace,
        start_us: now_us(),
    }
}

fn simulate(job: &Job, conditions: &Conditions, stop: &Stop, out: &mut dyn FnMut(Message)) -> Result<(), String> {
    let mut opening = Vec::new();
    let total = match job {
        Job::Replay { recording, device } => recording.devices.get(*device).map_or(SIMULATED_TOTAL, room_for),
        Job::Scenario { .. } | Job::Handed(_) => SIMULATED_TOTAL,
    };
    let card = SimulatedCard::open_with(total, &mut |stage, sample| opening.push((stage.to_owned(), sample)));
    on_card(card, &opening, job, conditions, stop, out)
}

fn on_card<C: Card>(
    card: C,
    opening: &[(String, Sample)],
    job: &Job,
    conditions: &Conditions,
    stop: &Stop,
    out: &mut dyn FnMut(Message),
) -> Result<(), String> {
    // What cannot be parsed is told by the run itself.
    let conf = AllocConf::parse(conditions.conf.as_deref().unwrap_or_default()).unwrap_or_default();
    if job.name() != "pool_retention" && conf.other("backend").is_some_and(|b| b != "native") {
        return Err("backend:cudaMallocAsync hands every request to the driver's own pool, where PyTorch's allocator and its settings do \
                    nothing; leave it out, or run pool_retention, which is about that pool"
            .to_owned());
    }
    if conditions.limit == Some(0) {
        return Err("a limit of 0 serves nothing; give a size such as 4GiB".to_owned());
    }
    let info = card.info();
    if let Some(limit) = conditions.limit.filter(|&limit| limit > info.total) {
        // The simulated card's name says how much it has.
        let card = if info.is_simulated { info.name } else { format!("{}, {}", info.name, Bytes(info.total)) };
        let limit = Bytes(limit);
        return Err(format!(
            "the limit of {limit} is more than the card has ({card}), so it would limit nothing; leave it out or give less"
        ));
    }
    let plan = match job {
        Job::Scenario { scenario, values } => {
            let program = (scenario.build)(values, &Room { total: info.total, free: info.free })?;
            perform(card, opening, &program, &options(job, values.text(), conditions), &stop.steps, out);
            return Ok(());
        }
        Job::Replay { recording, device } => {
            let read = ReplayPlan::of(recording, *device, &stop.reading);
            if read.is_err() && stop.steps.load(Ordering::Relaxed) {
                return Err("stopped before the first request".to_owned());
            }
            Arc::new(read?)
        }
        Job::Handed(plan) => Arc::clone(plan),
    };
    let card = FollowingCard::new(card, plan.places());
    perform(card, opening, &plan.program, &options(job, plan.name.clone(), conditions), &stop.steps, out);
    Ok(())
}

/// The child's side: runs a job and tells it on `out` in the framed format. Ends early when standard input ends.
///
/// # Errors
/// One sentence when the pipe is gone; everything else is told on it.
pub fn child(job: &Job, target: Target, conditions: &Conditions, out: &mut dyn Write) -> Result<(), String> {
    die_with_parent();
    let stop = Arc::new(Stop::default());
    watch_input(&stop);
    let mut out = BufWriter::new(out);
    let mut broken = None;
    let mut tell = |message: Message| {
        if broken.is_none()
            && let Err(error) = write_message(&mut out, &message).and_then(|()| out.flush())
        {
            stop.set();
            broken = Some(format!("nobody listens to this run: {error}"));
        }
    };
    let result = match target {
        Target::Simulated => simulate(job, conditions, &stop, &mut tell),
        Target::Card { index, is_shared, fills } => on_real_card(job, index, is_shared, fills, conditions, &stop, &mut tell),
    };
    if let Err(sentence) = result {
        tell(failed(sentence));
    }
    broken.map_or(Ok(()), Err)
}

#[cfg(feature = "probe")]
fn on_real_card(
    job: &Job,
    index: i32,
    is_shared: bool,
    fills: bool,
    conditions: &Conditions,
    stop: &Stop,
    out: &mut dyn FnMut(Message),
) -> Result<(), String> {
    use super::cuda::{CudaCard, Permission};
    let mut opening = Vec::new();
    let card =
        CudaCard::open(index, Permission { is_shared, fills }, &mut |stage, sample| opening.push((stage.to_owned(), sample)))?;
    on_card(card, &opening, job, conditions, stop, out)
}

#[cfg(not(feature = "probe"))]
fn on_real_card(
    _job: &Job,
    _index: i32,
    _is_shared: bool,
    _fills: bool,
    _conditions: &Conditions,
    _stop: &Stop,
    _out: &mut dyn FnMut(Message),
) -> Result<(), String> {
    Err(NO_PROBE.to_owned())
}

#[cfg(not(feature = "probe"))]
const NO_PROBE: &str = "this build cannot reach a card (it was built without the feature probe); --simulated works";

/// Another process on the card: takes `size` bytes, says `ready` on `out`, and holds them until standard input ends.
///
/// # Errors
/// One sentence, which is told on `out` too.
#[cfg(feature = "probe")]
pub fn neighbour(index: i32, size: u64, out: &mut dyn Write) -> Result<(), String> {
    use super::cuda::{CudaCard, Permission};
    die_with_parent();
    let stop = Arc::new(Stop::default());
    watch_input(&stop);
    let take = || -> Result<CudaCard, String> {
        let mut card = CudaCard::open(index, Permission { is_shared: true, fills: false }, &mut |_, _| {})?;
        let mut left = size;
        while left > 0 {
            let piece = left.min(1 << 30);
            card.take_outside(piece).map_err(|e| format!("another process did not get its share of the card: {e}"))?;
            left -= piece;
        }
        Ok(card)
    };
    let card = take();
    let answer = card.as_ref().map_or_else(String::as_str, |_| "ready");
    // When nobody listens the input has ended as well.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
    while card.is_ok() && !stop.steps.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    card.map(drop)
}

/// Another process on the card.
///
/// # Errors
/// Always, in a build without the feature.
#[cfg(not(feature = "probe"))]
pub fn neighbour(_index: i32, _size: u64, _out: &mut dyn Write) -> Result<(), String> {
    Err(NO_PROBE.to_owned())
}

/// Sets `stop` when standard input ends: the parent is gone, or wants it so.
fn watch_input(stop: &Arc<Stop>) {
    let stop = Arc::clone(stop);
    let watch = move || {
        let mut byte = [0u8; 1];
        while matches!(std::io::stdin().read(&mut byte), Ok(n) if n > 0) {}
        stop.set();
    };
    // Without this thread the parent kills instead of asking.
    let _ = std::thread::Builder::new().name("probe control".to_owned()).spawn(watch);
}

/// The kernel kills this process when its parent ends, however that happens.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        // Where the kernel refuses, the end of standard input still stops the run.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
}
