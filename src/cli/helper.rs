//! `vramscope agent` prints the helper; `vramscope run` starts a program with it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::Failure;
use super::args::RunArgs;
use vramscope_live::live::agent::HELPER;
use vramscope_live::live::attach::install_helper;

/// Prints the helper's source.
///
/// # Errors
/// One sentence when the output cannot be written.
pub fn print_agent(out: &mut dyn Write) -> Result<(), String> {
    super::print(out, HELPER)
}

/// Becomes the program, with the helper's folder first on Python's path. Nothing of us stays: `__main__`, arguments, signals and
/// the exit code are the program's own.
///
/// # Errors
/// [`Failure`] when the program cannot be started, one of usage where its name is an option; otherwise it does not return.
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
    let error = command.env("PYTHONPATH", path).exec();
    let name = if is_script { &args.python } else { first };
    Err(format!("{name} cannot be started: {error}").into())
}
