//! `vramscope record`: a live watch without a window, into a session file or a pipe.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::args::RecordArgs;
use super::{Failure, terminal};
use crate::live::agent::News;
use crate::live::{LiveSession, Rates, SessionOptions};

/// Watches until the time is up, the pipe is closed or the user stops it. Every record is written by itself, so a kill at any
/// moment leaves a session that opens.
///
/// # Errors
/// [`Failure`]: a name that no session can have is one of usage; no driver, no such device, or a file that can not be written is not.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    let is_pipe = args.out.as_os_str() == "-";
    if is_pipe && std::io::stdout().is_terminal() {
        let sentence = "a session is no text for a terminal: send it on, as in vramscope record - | vramscope -";
        return Err(Failure::Usage(sentence.to_owned()));
    }
    if !is_pipe && args.out.extension().is_none_or(|e| !e.eq_ignore_ascii_case("vramscope")) {
        let out = args.out.display();
        return Err(Failure::Usage(format!("{out}: what is watched is kept as a session, so its name must end in .vramscope")));
    }
    if !is_pipe && !args.force && args.out.is_file() {
        return Err(format!("{} exists already; name another file, or add --force to replace it", args.out.display()).into());
    }
    let options = SessionOptions {
        rates: Rates::with_memory(args.rate),
        devices: args.device.clone(),
        focus: args.pid,
        without_helpers: args.no_helper,
    };
    let mut session = LiveSession::start(Box::new(crate::live::open), &options)
        .map_err(|e| format!("the sampling thread can not be started: {e}"))?;
    let name = if is_pipe { "the pipe".to_owned() } else { args.out.display().to_string() };
    // The file is made before the driver is asked: a recording that could not be kept should fail before an hour of training.
    session.write_to(open(&args.out, is_pipe)?).map_err(|e| format!("{name}: can not be written: {e}"))?;
    let ready = session
        .wait_for_device(Duration::from_secs(20))
        .and_then(|()| check_devices(&session, args))
        .and_then(|()| check_process(&mut session, args));
    if let Err(sentence) = ready {
        if !is_pipe {
            // Nothing was recorded: an empty session would only puzzle.
            let _ = std::fs::remove_file(&args.out);
        }
        return Err(sentence.into());
    }
    say(&session, &name, args);
    if let (true, Some(pid)) = (args.attach, args.pid) {
        attach(&mut session, pid);
    }
    let until = args.seconds.map(|s| Instant::now() + Duration::from_secs_f64(s));
    loop {
        let wait = until.map_or(Duration::from_millis(500), |u| u.saturating_duration_since(Instant::now()));
        if wait.is_zero() {
            break;
        }
        match session.pump(wait.min(Duration::from_millis(500))) {
            Ok(_) => {}
            // The other end of the pipe has seen enough.
            Err(e) if is_pipe && e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(format!("{name}: can not be written any more: {e}; what was written opens").into()),
        }
        session.news().iter().for_each(tell);
    }
    Ok(session.finish().map_err(|e| format!("{name}: the end of the session can not be written: {e}"))?)
}

fn open(out: &Path, is_pipe: bool) -> Result<Box<dyn Write + Send>, String> {
    if is_pipe {
        return Ok(Box::new(std::io::stdout()));
    }
    let file = File::create(out).map_err(|e| format!("{}: can not be created: {e}", out.display()))?;
    Ok(Box::new(file))
}

/// A device that was asked for and is not there is a mistake in the command, not something to wait for.
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

/// A process that runs nowhere can not matter. In a container the driver names processes by numbers that are not ours, so one
/// that a GPU lists counts too.
fn check_process(session: &mut LiveSession, args: &RecordArgs) -> Result<(), String> {
    let Some(pid) = args.pid.filter(|pid| cfg!(target_os = "linux") && !Path::new("/proc").join(pid.to_string()).exists()) else {
        return Ok(());
    };
    let until = Instant::now() + Duration::from_millis(300);
    while !session.history().present().contains(&pid) {
        if Instant::now() > until {
            return Err(format!("there is no process {pid}, and no GPU lists one"));
        }
        session.pump(Duration::from_millis(50)).map_err(|e| format!("the session can not be written: {e}"))?;
    }
    Ok(())
}

/// A program that can not be entered is still watched from outside.
fn attach(session: &mut LiveSession, pid: u32) {
    match session.attach(pid) {
        Ok(()) => terminal::say(&format!("the helper in process {pid} answers")),
        Err(sentence) => terminal::say(&format!("{sentence} Watching process {pid} from outside only.")),
    }
}

/// Says what helpers told, on standard error.
fn tell(news: &News) {
    match news {
        News::Snapshot { path, .. } => terminal::say(&format!("a snapshot was written to {}", path.display())),
        News::Failed { sentence, .. } => terminal::say(sentence),
        News::Gone { pid } => terminal::say(&format!("the helper in process {pid} is gone")),
        News::History { .. } => {}
    }
}

/// Says what happens, on standard error: standard output may be the session.
fn say(session: &LiveSession, name: &str, args: &RecordArgs) {
    let n = session.history().devices().count() as u64;
    let how_long = args.seconds.map_or_else(|| "until Ctrl+C".to_owned(), |s| format!("for {s} s"));
    terminal::say(&format!("watching {} at {} Hz into {name}, {how_long}", crate::units::counted(n, "GPU", "GPUs"), args.rate));
    for (device, why) in session.history().unreadable() {
        terminal::say(&format!("the memory of GPU {device} is not readable: {why}"));
    }
}
