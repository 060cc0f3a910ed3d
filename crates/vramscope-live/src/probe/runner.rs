//! [`Run`]: a running scenario or replay, in a thread on simulated memory or in a child process on a card.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[cfg(feature = "probe")]
use super::card::Outside;
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

/// The program to run.
#[derive(Clone, Debug)]
pub enum Job {
    /// A built-in scenario, which provokes one problem.
    Scenario {
        /// One of [`ALL`](super::scenarios::ALL).
        scenario: &'static Scenario,
        /// Values of its parameters.
        values: Values,
    },
    /// The requests of a recording.
    Replay {
        /// The recording that has the requests.
        recording: Arc<Recording>,
        /// Index of the device in the recording.
        device: usize,
    },
    /// The requests of a recording that another process read and sent.
    Handed(Arc<ReplayPlan>),
}

impl Job {
    /// `replay`, or the scenario's name.
    pub fn name(&self) -> &'static str {
        match self {
            Job::Scenario { scenario, .. } => scenario.name,
            Job::Replay { .. } | Job::Handed(_) => "replay",
        }
    }

    /// The recording whose requests run here, and the index of its device.
    pub fn recording(&self) -> Option<(&Arc<Recording>, usize)> {
        if let Job::Replay { recording, device } = self { Some((recording, *device)) } else { None }
    }

    /// The settings to use when none are given.
    fn default_conf(&self) -> String {
        match self {
            Job::Scenario { scenario, .. } => scenario.conf.to_owned(),
            Job::Replay { .. } | Job::Handed(_) => String::new(),
        }
    }
}

/// The memory to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Simulated memory, in a thread of this process.
    Simulated,
    /// A real card, in a child process.
    Card {
        /// Device index as CUDA counts them in this process.
        index: i32,
        /// Run although other processes hold more than a twentieth of it.
        is_shared: bool,
        /// Use the last free bytes too.
        fills: bool,
    },
}

/// Settings and limit of a run.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The allocator's settings; `None` uses the scenario's own.
    pub conf: Option<String>,
    /// Most bytes that the allocator may reserve.
    pub limit: Option<u64>,
    /// Pause at each sample.
    pub pace: Duration,
}

/// Asks a run to stop in whichever phase it is.
#[derive(Debug, Default)]
struct Stop {
    /// Checked between the steps of a program.
    steps: AtomicBool,
    /// Checked while a recording's requests are read.
    reading: Progress,
}

impl Stop {
    fn set(&self) {
        self.steps.store(true, Ordering::Relaxed);
        self.reading.cancel();
    }
}

/// A run in progress. Dropping it stops it: everything is freed, and a child process that does not end is killed.
#[derive(Debug)]
pub struct Run {
    messages: Receiver<Message>,
    stop: Arc<Stop>,
    child: Option<Arc<Mutex<Child>>>,
    /// Dropping it closes the child's standard input, which tells the child to stop.
    control: Option<SyncSender<()>>,
}

/// Most queued messages before the run waits for the reader.
const QUEUE: usize = 64;
/// Time for a child to free everything.
const GRACE: Duration = Duration::from_secs(10);

impl Run {
    /// Starts a run.
    ///
    /// # Errors
    /// One sentence when the thread or child process cannot start, or the program cannot be built.
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
                    // The run was dropped.
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
            // The requests are sent on its standard input.
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

    /// Runs a command that writes the framed format and stops when its standard input ends.
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
                // On failure the child receives the sentence and reports it. If the child is gone, it has reported why.
                let _ = hand_over(&recording, device, &stopped.reading, &mut input);
                drop(recording);
            }
            // Ends when the sender is dropped, which closes the child's input.
            let _ = until.recv();
        };
        thread("probe control", Box::new(feed))?;
        Ok(Run { messages, stop, child: Some(child), control: Some(control) })
    }

    /// Waits for the next message; `None` when the run is over.
    pub fn next(&self) -> Option<Message> {
        self.messages.recv().ok()
    }

    /// Waits for the next message, up to `time`.
    ///
    /// # Errors
    /// As [`Receiver::recv_timeout`].
    pub fn next_within(&self, time: Duration) -> Result<Message, RecvTimeoutError> {
        self.messages.recv_timeout(time)
    }

    /// Asks the run to free everything and end. Kills a child that has not ended after ten seconds.
    pub fn stop(&mut self) {
        self.stop.set();
        drop(self.control.take());
        if let Some(child) = self.child.take() {
            let watchdog = std::thread::Builder::new().name("probe watchdog".to_owned());
            // When no thread can start, the child is killed at once.
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

/// Waits for a child to end, and kills it after [`GRACE`].
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
        // Fails when the child has just ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Reads a child's pipe to the end.
fn listen(
    output: Option<std::process::ChildStdout>,
    complaints: Option<std::process::ChildStderr>,
    child: &Mutex<Child>,
    sender: &SyncSender<Message>,
) {
    let Some(output) = output else { return };
    // Standard error is read in parallel, so that the child never blocks on it.
    let complaints = complaints.and_then(|mut pipe| {
        let read = move || {
            let mut text = String::new();
            // A partial text is better than none.
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
    // The receiver may be gone as well.
    let _ = sender.send(failed(sentence));
}

/// Waits for a child that closed its pipe. It holds the lock only briefly, so that the child can still be killed.
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

/// Reads a recording's requests and sends them to the process that runs them. When they cannot be read, it sends the reason.
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

/// Receives a replay's requests in the process that runs them.
///
/// # Errors
/// One sentence: why the requests cannot be run, or that they did not arrive.
pub fn handed_over(input: &mut impl BufRead) -> Result<Job, String> {
    let mut kind = [0];
    // If the pipe ends here, the next read reports it.
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

/// Records all messages of a run. `seen` is called with each.
///
/// # Errors
/// None. The recorder knows how the run ended.
pub fn run_to_end(run: &Run, job: &Job, seen: &mut dyn FnMut(&Message)) -> Recorder {
    let mut recorder = Recorder::new(job.recording().map(|(recording, _)| recording.stacks.clone()));
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
    let recorded = job.recording().and_then(|(recording, device)| recording.devices.get(device));
    let total = recorded.map_or(SIMULATED_TOTAL, room_for);
    let card = SimulatedCard::open_with(total, &mut |stage, sample| opening.push((stage.to_owned(), sample)));
    on_card(card, &opening, job, conditions, stop, out)
}

fn on_card<C: Card>(
    mut card: C,
    opening: &[(String, Sample)],
    job: &Job,
    conditions: &Conditions,
    stop: &Stop,
    out: &mut dyn FnMut(Message),
) -> Result<(), String> {
    // Settings that do not parse are reported by the run.
    let conf = AllocConf::parse(conditions.conf.as_deref().unwrap_or_default()).unwrap_or_default();
    if job.name() != "pool_retention" && conf.other("backend").is_some_and(|b| b != "native") {
        return Err("backend:cudaMallocAsync hands every request to the driver's own pool, where PyTorch's allocator and its settings do \
                    nothing; leave it out, or run pool_retention, which is about that pool"
            .to_owned());
    }
    if conditions.limit == Some(0) {
        return Err("a limit of 0 serves nothing; give a size such as 4GiB".to_owned());
    }
    let info = card.outside().info();
    if let Some(limit) = conditions.limit.filter(|&limit| limit > info.total) {
        // The name of the simulated card includes its size.
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

/// The child's side: runs a job and writes the framed format to `out`. Ends early when standard input ends.
///
/// # Errors
/// One sentence when the pipe is gone; other errors are written to it.
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

/// A neighbour process: takes `size` bytes, writes `ready` to `out`, and holds them until standard input ends.
///
/// # Errors
/// One sentence, which is also written to `out`.
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
    // If nobody reads, standard input has ended too.
    let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
    while card.is_ok() && !stop.steps.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    card.map(drop)
}

/// A neighbour process.
///
/// # Errors
/// Always, in a build without the feature.
#[cfg(not(feature = "probe"))]
pub fn neighbour(_index: i32, _size: u64, _out: &mut dyn Write) -> Result<(), String> {
    Err(NO_PROBE.to_owned())
}

/// Sets `stop` when standard input ends, because the parent is gone or closed it.
fn watch_input(stop: &Arc<Stop>) {
    let stop = Arc::clone(stop);
    let watch = move || {
        let mut byte = [0u8; 1];
        while matches!(std::io::stdin().read(&mut byte), Ok(n) if n > 0) {}
        stop.set();
    };
    // If the thread cannot start, the parent kills this process instead.
    let _ = std::thread::Builder::new().name("probe control".to_owned()).spawn(watch);
}

/// Makes the kernel kill this process when its parent ends, however that happens.
fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        // If the kernel refuses, the end of standard input still stops the run.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
}
