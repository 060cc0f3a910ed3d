//! Shell completions and manual pages, generated from the definition of the command line.

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use super::args::Args;

/// Prints the completions of a shell.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<(), String> {
    // Generated into memory first, because clap_complete panics when it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "vramscope", &mut text);
    super::print(out, &String::from_utf8_lossy(&text))
}

/// Writes `vramscope.1` and a page for each subcommand into a folder, which is created if necessary. Replaces only vramscope's
/// own pages.
pub fn pages(dir: &Path) -> Result<(), String> {
    let mut command = Args::command();
    command.build();
    let pages = command.clone().mut_subcommands(|sub| {
        let usage = synopsis(&sub);
        sub.override_usage(usage)
    });
    let subcommands =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(|sub| format!("vramscope-{}.1", sub.get_name()));
    let mut names = std::iter::once("vramscope.1".to_owned()).chain(subcommands);
    if let Some(other) = names.find(|name| is_of_another(&dir.join(name))) {
        return Err(format!(
            "{}: this is no page of vramscope, and would be overwritten; name another folder, or remove the file",
            dir.join(other).display()
        ));
    }
    std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(pages, dir)).map_err(|e| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: the pages cannot be written: {why}", dir.display())
    })
}

/// True for a file that exists and is not a page of vramscope, judged by the title in its first lines.
fn is_of_another(path: &Path) -> bool {
    const TITLE: &[u8] = b"\n.TH vramscope";
    if path.symlink_metadata().is_err() {
        return false;
    }
    let mut head = Vec::new();
    // Only regular files, because reading a pipe would never end.
    let is_read = path.is_file() && File::open(path).and_then(|file| file.take(1024).read_to_end(&mut head)).is_ok();
    !is_read || !head.windows(TITLE.len()).any(|part| part == TITLE)
}

/// A command with its arguments: `vramscope run [--at-oom <DIR>] <COMMAND>...`.
fn synopsis(command: &Command) -> String {
    let of = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let group = command.get_groups().find(|g| g.is_required_set());
    let is_of_group = |arg: &Arg| group.is_some_and(|g| g.get_args().any(|id| id == arg.get_id()));
    let shown = |arg: &Arg| {
        // clap marks repeated values but not repeatable options.
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
