//! The `vramscope` program: reads the command line, opens the window or prints a report, and says how it went.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use vramscope::cli;
use vramscope::cli::args::{Args, Command, ScreenshotArgs};

/// Exit codes: the file or the machine does not allow it; the command line can not be understood.
const NOT_POSSIBLE: u8 = 1;
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(answer) => {
            if !answer.use_stderr() {
                // Help and version are answers too; a closed pipe is no reason to complain.
                let _ = answer.print();
                return ExitCode::SUCCESS;
            }
            complain(&cli::args::one_sentence(&answer.to_string()));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let result = match args.command {
        None => open_window(args.files, args.watch),
        Some(Command::Screenshot(shot)) => draw_picture(shot),
        Some(command) => cli::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            complain(&sentence);
            ExitCode::from(NOT_POSSIBLE)
        }
    }
}

/// The one place that writes to standard error.
#[allow(clippy::print_stderr)]
fn complain(sentence: &str) {
    for line in sentence.lines() {
        eprintln!("vramscope: {line}");
    }
}

#[cfg(feature = "gui")]
fn open_window(files: Vec<PathBuf>, watch: Option<PathBuf>) -> Result<(), String> {
    vramscope::app::run(vramscope::app::RunOptions { files, watch })
}

#[cfg(feature = "gui")]
fn draw_picture(mut shot: ScreenshotArgs) -> Result<(), String> {
    let out = shot.paths.pop().unwrap_or_default();
    vramscope::app::screenshot(vramscope::app::Screenshot {
        file: shot.paths.pop(),
        with: shot.with,
        view: shot.view,
        size: shot.size,
        dark: shot.theme == cli::args::Theme::Dark,
        event: shot.event,
        device: shot.device,
        out,
    })
}

#[cfg(not(feature = "gui"))]
const NO_WINDOW: &str =
    "this build has no window (it was built without the feature gui); the text commands work, see vramscope --help";

#[cfg(not(feature = "gui"))]
fn open_window(_files: Vec<PathBuf>, _watch: Option<PathBuf>) -> Result<(), String> {
    Err(NO_WINDOW.to_owned())
}

#[cfg(not(feature = "gui"))]
fn draw_picture(_shot: ScreenshotArgs) -> Result<(), String> {
    Err(NO_WINDOW.to_owned())
}
