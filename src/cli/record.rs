//! `vramscope record`: watches GPUs without a window, and writes a session file or to a pipe.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::args::RecordArgs;
use super::{Failure, terminal};
use vramscope_core::formats::session::SessionFile;
use vramscope_core::formats::why_not_written;
use vramscope_live::live::agent::News;
use vramscope_live::live::metrics::{self, Outlet, Publisher};
use vramscope_live::live::{LiveSession, Rates, SessionOptions};

/// A Grafana dashboard for the figures that `--prometheus` publishes.
const DASHBOARD: &str = include_str!("../../assets/grafana.json");
/// Shortest interval between published figures.
const PUBLISH: Duration = Duration::from_secs(1);
/// How long to wait for the driver.
const FOR_DRIVER: Duration = Duration::from_secs(20);
/// The longest time that the end of a watch takes. It waits one second for a sampling thread whose driver hangs.
const FOR_END: Duration = Duration::from_millis(1500);

enum Step {
    /// The first device answered.
    Begun,
    Done(Result<(), Failure>),
}

/// Watches until the time is up, the pipe is closed or the user stops it. Every record is written separately, so that a session
/// opens even after a kill. A file name that does not end in `.vramscope` is a usage error, and so is a session on a terminal.
/// A missing driver or device, or a file that cannot be written, is not.
pub fn run(args: &RecordArgs, out: &mut dyn Write) -> Result<(), Failure> {
    if args.grafana {
        return Ok(super::print(out, DASHBOARD)?);
    }
    let is_pipe = args.out.as_ref().is_some_and(|o| o.as_os_str() == "-");
    if is_pipe && std::io::stdout().is_terminal() {
        let sentence = "a session is no text for a terminal: send it on, as in vramscope record - | vramscope -";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    let session = args.out.as_ref().filter(|_| !is_pipe);
    if let Some(out) = session.filter(|o| o.extension().is_none_or(|e| !e.eq_ignore_ascii_case("vramscope"))) {
        let out = out.display();
        return Err(Failure::Usage(format!("{out}: what is watched is kept as a session, so its name must end in .vramscope")));
    }
    let name = match session {
        Some(out) => out.display().to_string(),
        None if is_pipe => "the pipe".to_owned(),
        None => "the figures".to_owned(),
    };
    // Creates the file before it asks the driver, so that a path that cannot be written fails before an hour of training.
    let file = session.map(|out| SessionFile::begin(out, args.force)).transpose()?;
    let publisher = args.prometheus.as_ref().map(Publisher::start).transpose()?;
    let (steps, seen) = channel();
    let work = {
        let (args, name) = (args.clone(), name.clone());
        move || {
            let done = watch(&args, &name, is_pipe, file, publisher, &steps);
            // The receiver is gone when the time was up first.
            let _ = steps.send(Step::Done(done));
        }
    };
    // On a separate thread, because a stalled reader or a hanging disk blocks a write for ever, and --seconds must still work.
    std::thread::Builder::new().name("record".to_owned()).spawn(work).map_err(|e| format!("no thread can be started: {e}"))?;
    let time = args.seconds.map(Duration::from_secs_f64);
    let mut until = time.map(|t| Instant::now() + t.min(FOR_DRIVER) + FOR_END);
    loop {
        let step = match until {
            Some(until) => seen.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => seen.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match step {
            Ok(Step::Begun) => until = time.map(|t| Instant::now() + t + FOR_END),
            Ok(Step::Done(done)) => return done,
            Err(RecvTimeoutError::Timeout) if is_pipe => {
                return Err("the pipe: its reader takes nothing in; the end of the session was not written".to_owned().into());
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("{name}: a write does not come back; the end of the session was not written").into());
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(format!("{name}: the watch broke off; what was written opens").into());
            }
        }
    }
}

/// Watches until it is stopped or the watched program ends.
fn watch(
    args: &RecordArgs,
    name: &str,
    is_pipe: bool,
    mut file: Option<SessionFile>,
    publisher: Option<Publisher>,
    steps: &Sender<Step>,
) -> Result<(), Failure> {
    let options = SessionOptions {
        rates: Rates::with_memory(args.rate),
        devices: args.device.clone(),
        focus: args.pid,
        without_helpers: args.no_helper,
        other_users: args.other_users,
    };
    let mut session = LiveSession::start(Box::new(vramscope_live::live::open), &options)
        .map_err(|e| format!("the sampling thread cannot be started: {e}"))?;
    let out: Option<Box<dyn Write + Send>> = match &file {
        Some(file) => Some(Box::new(file.writer()?)),
        None if is_pipe => {
            Some(Box::new(standard_output().map_err(|e| format!("{name}: cannot be written: {}", why_not_written(&e)))?))
        }
        None => None,
    };
    out.map_or(Ok(()), |out| session.write_to(out)).map_err(|e| format!("{name}: cannot be written: {}", why_not_written(&e)))?;
    let patience = args.seconds.map_or(FOR_DRIVER, |s| FOR_DRIVER.min(Duration::from_secs_f64(s)));
    session.wait_for_device(patience)?;
    check_devices(&session, args)?;
    check_process(&mut session, args)?;
    // An older session of this name is replaced only now, when there is something to write.
    if args.force && !has_figures(&session) && args.out.as_ref().is_some_and(|o| o.exists()) {
        return Err(format!("{name}: stays as it was: no GPU can be read. Try again, or record to another file").into());
    }
    file.as_mut().map_or(Ok(()), SessionFile::give_name)?;
    let _ = steps.send(Step::Begun);
    say(&session, name, args, publisher.as_ref());
    if let (true, Some(pid)) = (args.attach, args.pid) {
        session.attach(pid);
    }
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    let mut published: Option<Instant> = None;
    loop {
        if let Some(publisher) = publisher.as_ref().filter(|_| published.is_none_or(|p| p.elapsed() >= PUBLISH)) {
            publisher.publish(metrics::write(session.history()));
            published = Some(Instant::now());
        }
        let wait = until.map_or(Duration::from_millis(500), |u| u.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            break;
        }
        match session.pump(wait.min(Duration::from_millis(500))) {
            Ok(_) => {}
            // The reader of the pipe closed it.
            Err(e) if is_pipe && e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => {
                return Err(format!("{name}: cannot be written any more: {}; what was written opens", why_not_written(&e)).into());
            }
        }
        session.news().iter().for_each(|news| tell(news, args));
    }
    Ok(session.finish().map_err(|e| format!("{name}: the end of the session cannot be written: {}", why_not_written(&e)))?)
}

/// Standard output without Rust's lock and line buffer, because records are not lines.
fn standard_output() -> std::io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))
}

/// True when a GPU has delivered a sample.
fn has_figures(session: &LiveSession) -> bool {
    let history = session.history();
    history.devices().any(|(number, _)| !history.samples(number).is_empty())
}

/// A requested device that does not exist is a mistake in the command, so it is not waited for.
fn check_devices(session: &LiveSession, args: &RecordArgs) -> Result<(), String> {
    let known: Vec<u32> = session.history().devices().map(|(number, _)| number).collect();
    match args.device.iter().find(|d| !known.iter().any(|k| *k as usize == **d)) {
        None => Ok(()),
        Some(missing) => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            Err(format!("there is no GPU {missing} that this user may read; there are {}", known.join(", ")))
        }
    }
}

/// Refuses a process that does not exist. In a container the driver reports the host's PIDs, so a PID that a GPU lists is
/// accepted too.
fn check_process(session: &mut LiveSession, args: &RecordArgs) -> Result<(), String> {
    let Some(pid) = args.pid.filter(|pid| cfg!(target_os = "linux") && !Path::new("/proc").join(pid.to_string()).exists()) else {
        return Ok(());
    };
    let until = Instant::now() + Duration::from_millis(300);
    while !session.history().present().contains(&pid) {
        if Instant::now() > until {
            return Err(format!("there is no process {pid}, and no GPU lists one"));
        }
        session.pump(Duration::from_millis(50)).map_err(|e| format!("the session cannot be written: {}", why_not_written(&e)))?;
    }
    Ok(())
}

/// Reports messages of helpers on standard error. A program that cannot be attached to is still watched through the driver.
fn tell(news: &News, args: &RecordArgs) {
    match news {
        News::Answers { pid } => terminal::say(&format!("the helper in process {pid} answers")),
        News::Snapshot { path, .. } => terminal::say(&format!("a snapshot was written to {}", path.display())),
        News::Failed { pid, sentence } if args.attach && args.pid == Some(*pid) => {
            terminal::say(&format!("{sentence} Watching process {pid} from outside only."));
        }
        News::Failed { sentence, .. } => terminal::say(sentence),
        News::Gone { pid } => terminal::say(&format!("the helper in process {pid} is gone")),
        News::History { .. } => {}
    }
}

/// Reports the start of the watch on standard error, because standard output may be the session.
fn say(session: &LiveSession, name: &str, args: &RecordArgs, publisher: Option<&Publisher>) {
    let n = session.history().devices().count() as u64;
    let how_long = args.seconds.map_or_else(|| "until Ctrl+C".to_owned(), |s| format!("for {s} s"));
    let into = if args.out.is_some() { format!(" into {name}") } else { String::new() };
    terminal::say(&format!(
        "watching {} at {} Hz{into}, {how_long}",
        vramscope_core::units::counted(n, "GPU", "GPUs"),
        args.rate
    ));
    match (publisher.and_then(Publisher::address), &args.prometheus) {
        (Some(address), _) => {
            terminal::say(&format!("the newest figures are at http://{address}/metrics, on this machine alone"))
        }
        (None, Some(Outlet::File(path))) => terminal::say(&format!("the newest figures are in {}", path.display())),
        _ => {}
    }
    for (device, why) in session.history().unreadable() {
        terminal::say(&format!("the memory of GPU {device} is not readable: {why}"));
    }
}
