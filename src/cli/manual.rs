//! Completions for shells and manual pages, made from the one definition of the command line.

use std::io::Write;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::args::Args;

/// Prints the completions of a shell.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<(), String> {
    // Into memory first: clap_complete panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "vramscope", &mut text);
    super::print(out, &String::from_utf8_lossy(&text))
}

/// Writes `vramscope.1` and a page for each subcommand, into a folder that is made where it is missing.
pub fn pages(dir: &Path) -> Result<(), String> {
    let mut command = Args::command();
    command.build();
    let pages = command.clone().mut_subcommands(|sub| {
        let usage = synopsis(&sub);
        sub.override_usage(usage)
    });
    std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(pages, dir)).map_err(|e| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: the pages cannot be written: {why}", dir.display())
    })
}

/// A command with all that it takes: `vramscope run [--at-oom <DIR>] <COMMAND>...`.
fn synopsis(command: &Command) -> String {
    let of = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let group = command.get_groups().find(|g| g.is_required_set());
    let is_of_group = |arg: &Arg| group.is_some_and(|g| g.get_args().any(|id| id == arg.get_id()));
    let shown = |arg: &Arg| {
        // clap tells of values that follow each other, and not of an option that may be written again.
        let again = if matches!(arg.get_action(), ArgAction::Append) && !arg.is_positional() { "..." } else { "" };
        if arg.is_positional() || arg.is_required_set() || is_of_group(arg) {
            format!("{arg}{again}")
        } else {
            format!("[{arg}]{again}")
        }
    };
    let options = command.get_arguments().filter(|arg| !arg.is_positional()).filter(of);
    let (limits, options): (Vec<&Arg>, Vec<&Arg>) = options.partition(|arg| is_of_group(arg));
    let mut words = vec![command.get_bin_name().unwrap_or(command.get_name()).to_owned()];
    words.extend(options.into_iter().map(shown));
    if !limits.is_empty() {
        words.push(format!("{{{}}}...", limits.into_iter().map(shown).collect::<Vec<_>>().join(" | ")));
    }
    words.extend(command.get_positionals().filter(of).map(shown));
    words.join(" ")
}
