//! The `vramscope` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.peek().is_some_and(|a| a == "screenshot") {
        let _ = args.next();
        let rest: Vec<_> = args.collect();
        let shot = vramscope::app::Screenshot {
            file: rest.first().map(Into::into),
            view: rest.get(2).map(|v| v.to_string_lossy().into_owned()).unwrap_or_default(),
            size: (1600, 1000),
            dark: true,
            event: None,
            device: None,
            out: rest.last().map(Into::into).unwrap_or_default(),
        };
        return report(vramscope::app::screenshot(shot));
    }
    report(vramscope::app::run(vramscope::app::RunOptions { files: args.map(Into::into).collect() }))
}

fn report(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}
