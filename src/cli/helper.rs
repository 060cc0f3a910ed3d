//! `vramscope agent` prints the Python helper, `vramscope run` starts a program with it, and `vramscope snap` requests a snapshot
//! from it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::args::{RunArgs, SnapArgs};
use super::{Failure, supervise};
use vramscope_live::live::agent::HELPER;
use vramscope_live::live::attach::install_helper;
use vramscope_live::live::snap::snapshots;

/// Prints the helper's source.
pub fn print_agent(out: &mut dyn Write) -> Result<(), String> {
    super::print(out, HELPER)
}

/// Starts the program with the helper's folder first on Python's path. Without `--at-oom` the program replaces this process, so
/// `__main__`, arguments, signals and exit code are the program's own. With `--at-oom` this process waits for the program and exits
/// as it did. Returns only when the program cannot be started. An option instead of a program's name is a usage error.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let words = &args.command;
    let first = words.first().map_or("", String::as_str);
    if first.starts_with('-') && first != "-m" {
        let sentence = format!("run has no option {first}; what follows it is a Python script, -m and a module, or a program");
        return Err(Failure::Usage(sentence));
    }
    let helper = install_helper()?;
    let is_script = first == "-m" || Path::new(first).extension().is_some_and(|e| e == "py");
    let mut command = if is_script {
        let mut command = Command::new(&args.python);
        command.args(words);
        command
    } else {
        let mut command = Command::new(first);
        command.args(&words[1..]);
        command
    };
    let mut path = helper.into_os_string();
    if let Some(old) = std::env::var_os("PYTHONPATH").filter(|p| !p.is_empty()) {
        path.push(":");
        path.push(old);
    }
    command.env("PYTHONPATH", path);
    if let Ok(program) = std::env::current_exe() {
        // For vramscope.open inside the program.
        command.env("VRAMSCOPE_PROGRAM", program);
    }
    let name = if is_script { &args.python } else { first };
    let error = match &args.at_oom {
        None => command.exec(),
        Some(folder) => {
            let folder = supervise::prepare(folder)?;
            let run = supervise::name_of_run();
            let mark = supervise::mark(&run);
            let settings = json!({
                "folder": folder, "mark": mark, "stacks": args.stacks.name(), "max_entries": args.max_entries,
                "max_snapshots": args.max_snapshots, "max_bytes": args.max_disk, "run": run,
            });
            command.env("VRAMSCOPE_CATCH", settings.to_string());
            supervise::run(command, &folder, &run)
        }
    };
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such program".to_owned(),
        _ => vramscope_core::formats::why(&error),
    };
    Err(format!("{name} cannot be started: {why}").into())
}

/// Makes a running program write snapshots, and prints where they are. Fails when no process wrote one.
pub fn snap(args: &SnapArgs, out: &mut dyn Write) -> Result<(), String> {
    let all = snapshots(args.pid)?;
    if args.json {
        let told = all.iter().map(|(pid, done)| match done {
            Ok(path) => json!({"pid": pid, "path": path}),
            Err(sentence) => json!({"pid": pid, "error": sentence}),
        });
        super::print_json(out, &json!({ "snapshots": told.collect::<Vec<_>>() }))?;
    } else {
        for path in all.iter().filter_map(|(_, done)| done.as_ref().ok()) {
            super::print(out, &path.display().to_string())?;
        }
    }
    let failed: Vec<&str> = all.iter().filter_map(|(_, done)| done.as_ref().err().map(String::as_str)).collect();
    if failed.len() == all.len() {
        return Err(failed.join(" "));
    }
    failed.iter().for_each(|sentence| super::terminal::say(sentence));
    Ok(())
}
