//! The `vramscope` program: reads the command line, opens the window or prints a report, and says how it went.

use std::path::PathBuf;
use std::process::ExitCode;

use vramscope::cli;
use vramscope::cli::args::ScreenshotArgs;

/// An exit code and a sentence: 1, the file or the machine does not allow it; 2, the command line cannot be understood.
type Failure = (u8, String);

fn main() -> ExitCode {
    say_what_happens();
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, sentence)) => {
            cli::terminal::say(&sentence);
            ExitCode::from(code)
        }
    }
}

fn answer() -> Result<(), Failure> {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let args = match cli::args::read(words.iter().cloned()) {
        Ok(args) => args,
        Err(answer) if answer.use_stderr() => return Err((2, cli::args::refused(&answer, &words))),
        // `--help` after an unknown command is refused, because help would not answer it.
        Err(answer) if cli::args::is_no_command(&words) => return Err((2, cli::args::refused(&answer, &words))),
        Err(answer) => {
            // Help and version are printed to standard output. A closed pipe there is no error.
            let _ = answer.print();
            return Ok(());
        }
    };
    match args.command {
        None => {
            cli::args::not_files(&args.files).map_or_else(|| open_window(args.files, args.watch), |sentence| Err((2, sentence)))
        }
        Some(command) => {
            if let Some(sentence) = cli::args::misused(&command) {
                return Err((2, sentence));
            }
            command.into_picture().map_or_else(|command| cli::run(*command).map_err(cli::Failure::into_parts), draw_picture)
        }
    }
}

/// Writes log messages to standard error: warnings, or as much as `RUST_LOG` asks for (`RUST_LOG=vramscope=info` says how long
/// each file took).
fn say_what_happens() {
    use tracing_subscriber::EnvFilter;
    let asked = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("vramscope=warn"));
    tracing_subscriber::fmt().with_env_filter(asked).with_writer(cli::terminal::stderr).with_target(false).init();
}

#[cfg(feature = "gui")]
fn open_window(files: Vec<PathBuf>, watch: Option<PathBuf>) -> Result<(), Failure> {
    if let Some(folder) = watch.as_ref().filter(|folder| !folder.is_dir()) {
        return Err((2, format!("--watch {}: there is no such folder", folder.display())));
    }
    vramscope::app::run(vramscope::app::RunOptions { files, watch }).map_err(|sentence| (1, sentence))
}

#[cfg(feature = "gui")]
fn draw_picture(mut shot: ScreenshotArgs) -> Result<(), Failure> {
    if let Some(sentence) = vramscope::app::unknown_view(&shot.view) {
        return Err((2, sentence));
    }
    let out = shot.paths.pop().unwrap_or_default();
    let (file, dark) = (shot.paths.pop(), shot.theme == cli::args::Theme::Dark);
    let ScreenshotArgs { with, view, size, event, device, is_svg, redact, force, .. } = shot;
    // Checked before anything is read, so that the user does not wait in vain.
    let sources: Vec<&std::path::Path> = file.iter().chain(&with).map(PathBuf::as_path).collect();
    if let Some(refusal) = vramscope_core::formats::export::new_file::refusal(&out, &sources, force) {
        return Err((1, refusal.to_string()));
    }
    let shot = vramscope::app::Screenshot { file, with, view, size, dark, event, device, is_svg, redact, out };
    let note = vramscope::app::draw_picture(&shot).map_err(|sentence| (1, sentence))?;
    if let Some(note) = note {
        cli::terminal::say(&note);
    }
    Ok(())
}

#[cfg(not(feature = "gui"))]
fn open_window(_files: Vec<PathBuf>, _watch: Option<PathBuf>) -> Result<(), Failure> {
    Err((1, cli::NO_WINDOW.to_owned()))
}

#[cfg(not(feature = "gui"))]
fn draw_picture(_shot: ScreenshotArgs) -> Result<(), Failure> {
    Err((1, cli::NO_WINDOW.to_owned()))
}
