//! Completions for shells and manual pages, made from the one definition of the command line.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory as _;

use super::args::Args;

/// Prints the completions of a shell.
///
/// # Errors
/// One sentence when the output cannot be written.
pub fn completions(shell: clap_complete::Shell, out: &mut dyn Write) -> Result<(), String> {
    // Into memory first: clap_complete panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "vramscope", &mut text);
    super::print(out, &String::from_utf8_lossy(&text))
}

/// Writes `vramscope.1` and a page for each subcommand.
///
/// # Errors
/// One sentence when a page cannot be written.
pub fn pages(dir: &Path) -> Result<(), String> {
    clap_mangen::generate_to(Args::command(), dir).map_err(|e| {
        let why = vramscope_core::formats::why_not_written(&e);
        format!("{}: the pages cannot be written: {why}; name a folder that is there", dir.display())
    })
}
