//! Opens a source line in the user's editor: the command in the settings, or `$VISUAL` or `$EDITOR`.
//!
//! File names come from the recording, which anybody may have written, and editors, shells and links can read a name as a
//! command. So only the absolute path of an existing file ([`place::locate`]) gets here, and paths that could still be misread
//! are refused.

pub mod place;

use std::path::Path;

/// A program to start and its arguments. It is never started through a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// A name that is searched in `PATH`, or a path.
    pub program: String,
    pub args: Vec<String>,
}

/// Where the editor command came from; it decides the wording of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Settings,
    /// `$VISUAL` or `$EDITOR`.
    Environment,
}

/// What this module needs to know about the machine. A trait so that tests can replace it.
pub trait Machine {
    /// True when a program of this name is in `PATH`.
    fn has(&self, program: &str) -> bool;
    /// True when vramscope was started in a terminal.
    fn is_in_terminal(&self) -> bool;
}

pub struct ThisMachine;

impl Machine for ThisMachine {
    fn has(&self, program: &str) -> bool {
        let Some(path) = std::env::var_os("PATH") else { return false };
        std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
    }

    fn is_in_terminal(&self) -> bool {
        std::io::IsTerminal::is_terminal(&std::io::stdin())
    }
}

fn is_program(file: &Path) -> bool {
    let Ok(meta) = file.metadata() else { return false };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    meta.is_file() && may_run
}

const IN_A_TERMINAL: &[&str] = &["vi", "vim", "nvim", "nano", "micro", "hx", "helix", "kak", "joe", "ne", "mcedit", "pico", "ed"];

/// Terminals and the option after which each takes a command. The system's default terminal comes first.
const TERMINALS: &[(&str, &str)] = &[
    ("x-terminal-emulator", "-e"),
    ("gnome-terminal", "--"),
    ("ptyxis", "--"),
    ("konsole", "-e"),
    ("kitty", "-e"),
    ("alacritty", "-e"),
    ("foot", "-e"),
    ("xterm", "-e"),
];

/// Editors that take `FILE:LINE`.
const BY_COLON: &[&str] =
    &["code", "code-insiders", "codium", "cursor", "windsurf", "subl", "zed", "zeditor", "hx", "helix", "micro"];

/// Programs that parse their arguments as a command again.
const READ_TWICE: &str = "sh bash dash ash ksh zsh fish csh tcsh busybox su ssh mosh tmux screen script distrobox distrobox-enter \
    toolbox nix-shell cmd powershell pwsh wsl python python3 perl ruby node osascript xargs parallel watch eval";

/// Editors offered when the user named none: the program and its display name.
pub const KNOWN: &[(&str, &str)] = &[
    ("code", "Visual Studio Code"),
    ("codium", "VSCodium"),
    ("cursor", "Cursor"),
    ("windsurf", "Windsurf"),
    ("zed", "Zed"),
    ("zeditor", "Zed"),
    ("pycharm", "PyCharm"),
    ("idea", "IntelliJ IDEA"),
    ("subl", "Sublime Text"),
    ("kate", "Kate"),
    ("gnome-text-editor", "GNOME Text Editor"),
    ("gedit", "gedit"),
    ("geany", "Geany"),
    ("emacs", "Emacs"),
    ("gvim", "gVim"),
    ("nvim", "Neovim, in a terminal"),
    ("vim", "Vim, in a terminal"),
    ("hx", "Helix, in a terminal"),
    ("kak", "Kakoune, in a terminal"),
    ("micro", "micro, in a terminal"),
    ("nano", "nano, in a terminal"),
];

/// Opens a link to Visual Studio Code through the desktop, for when the program itself is not in `PATH`.
pub const CODE_LINK: &str = "vscode://file{file}:{line}";

/// The desktop's command to open a link.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// The known editors on this machine: the command for the settings and the display name.
pub fn found(machine: &impl Machine) -> Vec<(&'static str, &'static str)> {
    let has_terminal = machine.is_in_terminal() || TERMINALS.iter().any(|(name, _)| machine.has(name));
    let can_run = |program: &str| machine.has(program) && (has_terminal || !IN_A_TERMINAL.contains(&program));
    let mut found: Vec<_> = KNOWN.iter().copied().filter(|(program, _)| can_run(program)).collect();
    if !machine.has("code") && machine.has(OPENER) {
        found.push((CODE_LINK, "Visual Studio Code, by a vscode:// link"));
    }
    found
}

/// The program that opens a line of a file given by its absolute path: from the command in the settings, or from the environment.
/// `None` when neither names a program.
///
/// Replaces `{file}` and `{line}` in the command. Without `{file}`, file and line are appended in the syntax of that editor.
/// Fails when this command could read the path as more than a file name.
pub fn start(
    settings: &str,
    environment: &str,
    file: &str,
    line: u32,
    machine: &impl Machine,
) -> Result<Option<(Start, Source)>, String> {
    for (command, source) in [(settings, Source::Settings), (environment, Source::Environment)] {
        if let Some(start) = from_command(command, file, line)? {
            return Ok(Some((in_terminal(start, file, machine)?, source)));
        }
    }
    Ok(None)
}

/// `$VISUAL`, or else `$EDITOR`, or else an empty string.
pub fn of_environment() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|v: &String| !v.trim().is_empty());
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_default()
}

fn from_command(command: &str, file: &str, line: u32) -> Result<Option<Start>, String> {
    let words = words(command);
    let Some(program) = words.first() else { return Ok(None) };
    if words.len() == 1 && program.contains("://") {
        let (before, _) = program.split_once("{file}").unwrap_or((program, ""));
        // In a link, nothing marks the end of the path.
        refuse_colon(file, "a link")?;
        if !before.contains("://") {
            return Err("The link in Settings must begin with a scheme, such as vscode://file{file}:{line}.".to_owned());
        }
        return Ok(Some(Start { program: OPENER.to_owned(), args: vec![filled(program, &percent_encoded(file), line)] }));
    }
    if program.contains("{file}") || program.contains("{line}") {
        return Err("The editor's command in Settings must begin with the name of a program.".to_owned());
    }
    let reads_twice = words.iter().find(|word| READ_TWICE.split(' ').any(|reader| reader == name_of(word)));
    if let Some(program) = reads_twice {
        refuse_special(file, name_of(program))?;
    }
    let mut args = Vec::new();
    for word in &words[1..] {
        if let Some((before, after)) = word.split_once("{file}") {
            if after.starts_with(':') {
                refuse_colon(file, name_of(program))?;
            }
            let is_alone = before.is_empty() || (before.starts_with("--") && before.ends_with('='));
            let is_place = after.replace("{line}", "").chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | ','));
            if !(is_alone && is_place) {
                refuse_special(file, &format!("\"{word}\" in Settings"))?;
            }
        }
        args.push(filled(word, file, line));
    }
    if !command.contains("{file}") {
        args.extend(at_line(name_of(program), file, line, command.contains("{line}"))?);
    }
    Ok(Some(Start { program: program.clone(), args }))
}

/// Replaces `{file}` and `{line}` in one pass, because a file name may contain `{line}`.
fn filled(word: &str, file: &str, line: u32) -> String {
    let parts: Vec<String> = word.split("{file}").map(|part| part.replace("{line}", &line.to_string())).collect();
    parts.join(file)
}

/// Fails with one sentence when a path contains a colon and the reader takes a line number after a colon.
fn refuse_colon(file: &str, reader: &str) -> Result<(), String> {
    // The colon of a Windows drive is allowed.
    let is_misread = file.char_indices().any(|(i, c)| c == ':' && i != 1);
    if !is_misread {
        return Ok(());
    }
    Err(format!("{} is not opened: {reader} would take the colon in its name for a line number.", place::shown(file)))
}

/// Fails with one sentence when a path has characters that a shell or another language could interpret.
fn refuse_special(file: &str, reader: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@=,:".contains(c) || (cfg!(windows) && c == '\\');
    match file.chars().find(|&c| !is_plain(c)) {
        None => Ok(()),
        Some(c) => Err(format!(
            "{} is not opened: {reader} could take {} in its name for a command. In Settings, give {{file}} to the editor as a word of its own.",
            place::shown(file),
            if c == ' ' { "the blank".to_owned() } else { format!("\"{c}\"") },
        )),
    }
}

/// Percent-encodes a path for a link. Letters, digits and path separators stay.
fn percent_encoded(file: &str) -> String {
    let slash = if file.starts_with('/') { "" } else { "/" };
    let mut out = slash.to_owned();
    for byte in file.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The file name of a program's path, without `.exe`.
fn name_of(program: &str) -> &str {
    let name = Path::new(program).file_name().and_then(|n| n.to_str()).unwrap_or(program);
    name.strip_suffix(".exe").unwrap_or(name)
}

/// The arguments with which an editor opens a file at a line. POSIX defines `+LINE FILE` for `vi`, and most editors accept it.
fn at_line(editor: &str, file: &str, line: u32, has_line: bool) -> Result<Vec<String>, String> {
    if has_line {
        return Ok(vec![file.to_owned()]);
    }
    if BY_COLON.contains(&editor) {
        refuse_colon(file, editor)?;
    }
    let at = format!("{file}:{line}");
    Ok(match editor {
        "code" | "code-insiders" | "codium" | "cursor" | "windsurf" => vec!["-g".to_owned(), at],
        by_colon if BY_COLON.contains(&by_colon) => vec![at],
        "kate" | "kwrite" | "idea" | "pycharm" | "charm" => vec!["--line".to_owned(), line.to_string(), file.to_owned()],
        _ => vec![format!("+{line}"), file.to_owned()],
    })
}

/// Splits a command into words as a shell does: at blanks, except inside quotes.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Wraps a terminal editor in a terminal. When no terminal is found and vramscope runs in one, the editor is started directly.
fn in_terminal(start: Start, file: &str, machine: &impl Machine) -> Result<Start, String> {
    let name = name_of(&start.program);
    let is_emacs =
        matches!(name, "emacs" | "emacsclient") && start.args.iter().any(|a| matches!(a.as_str(), "-nw" | "-t" | "--tty"));
    if !is_emacs && !IN_A_TERMINAL.contains(&name) {
        return Ok(start);
    }
    // `x-terminal-emulator` may be any terminal, and some pass the words to a shell.
    let may_run = |terminal: &str| terminal != "x-terminal-emulator" || refuse_special(file, terminal).is_ok();
    match TERMINALS.iter().find(|(terminal, _)| machine.has(terminal) && may_run(terminal)) {
        Some((terminal, flag)) => {
            let args = [(*flag).to_owned(), start.program].into_iter().chain(start.args).collect();
            Ok(Start { program: (*terminal).to_owned(), args })
        }
        None if machine.has("x-terminal-emulator") => Err(refuse_special(file, "x-terminal-emulator").err().unwrap_or_default()),
        None if machine.is_in_terminal() => Ok(start),
        None => Err(format!(
            "{name} needs a terminal, and none that vramscope knows is installed. Choose another editor in Settings."
        )),
    }
}

#[cfg(test)]
mod tests;
