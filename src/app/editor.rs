//! Opening a source line in the user's editor: the command of the settings, else `$VISUAL` or `$EDITOR`, else a `vscode://` link.

use std::path::Path;

/// How a program is to be started: its name and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// As the system finds it: a name on the path, or a path.
    pub program: String,
    /// One argument each.
    pub args: Vec<String>,
}

/// Where the editor's name came from, which decides what is said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The settings.
    Settings,
    /// `$VISUAL` or `$EDITOR`.
    Environment,
    /// Neither names one: the desktop is asked to open a `vscode://` link.
    Link,
}

/// Editors that live in a terminal.
const IN_A_TERMINAL: &[&str] = &["vi", "vim", "nvim", "nano", "micro", "hx", "helix", "kak", "joe", "ne", "mcedit", "pico", "ed"];

/// Terminals that take a command after `-e` (and the one that wants `--`), the user's choice of the system first.
const TERMINALS: &[(&str, &str)] = &[
    ("x-terminal-emulator", "-e"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("kitty", "-e"),
    ("alacritty", "-e"),
    ("foot", "-e"),
    ("xterm", "-e"),
];

/// What opens a line: from the settings' command, else from the environment's. `None` when neither names a program.
///
/// `{file}` and `{line}` are filled in where the command has them. Where it has no `{file}`, the file is added, at the line, in
/// the way of that editor.
#[must_use]
pub fn start(settings: &str, environment: &str, file: &str, line: u32) -> Option<(Start, Source)> {
    if let Some(start) = from_command(settings, file, line) {
        return Some((start, Source::Settings));
    }
    Some((in_terminal(from_command(environment, file, line)?, on_path), Source::Environment))
}

/// `$VISUAL`, else `$EDITOR`, else nothing.
#[must_use]
pub fn of_environment() -> String {
    let named = |variable| std::env::var(variable).ok().filter(|v: &String| !v.trim().is_empty());
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_default()
}

fn from_command(command: &str, file: &str, line: u32) -> Option<Start> {
    let mut words = words(command).into_iter().map(|w| w.replace("{file}", file).replace("{line}", &line.to_string()));
    let program = words.next()?;
    let mut args: Vec<String> = words.collect();
    if !command.contains("{file}") {
        args.extend(at_line(name_of(&program), file, line, command.contains("{line}")));
    }
    Some(Start { program, args })
}

/// The last part of a program's path, without what Windows adds.
fn name_of(program: &str) -> &str {
    let name = Path::new(program).file_name().and_then(|n| n.to_str()).unwrap_or(program);
    name.strip_suffix(".exe").unwrap_or(name)
}

/// The arguments by which an editor opens a file at a line. `+LINE FILE` is what POSIX asks of `vi` and most understand.
fn at_line(editor: &str, file: &str, line: u32, has_line: bool) -> Vec<String> {
    if has_line {
        return vec![file.to_owned()];
    }
    match editor {
        "code" | "code-insiders" | "codium" | "cursor" | "windsurf" => vec!["-g".to_owned(), format!("{file}:{line}")],
        "subl" | "zed" | "zeditor" | "hx" | "helix" | "micro" => vec![format!("{file}:{line}")],
        "kate" | "kwrite" | "idea" | "pycharm" | "charm" => vec!["--line".to_owned(), line.to_string(), file.to_owned()],
        _ => vec![format!("+{line}"), file.to_owned()],
    }
}

/// The words of a command, as a shell would part them: blanks part, quotes keep together.
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

/// Puts an editor that lives in a terminal into one; without any it is started as it is.
fn in_terminal(start: Start, is_there: impl Fn(&str) -> bool) -> Start {
    if !IN_A_TERMINAL.contains(&name_of(&start.program)) {
        return start;
    }
    let Some((terminal, flag)) = TERMINALS.iter().find(|(name, _)| is_there(name)) else { return start };
    let args = [(*flag).to_owned(), start.program].into_iter().chain(start.args).collect();
    Start { program: (*terminal).to_owned(), args }
}

fn on_path(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(settings: &str, file: &str) -> (String, Vec<String>) {
        let (start, source) = start(settings, "vim", file, 7).unwrap();
        assert_eq!(source, Source::Settings);
        (start.program, start.args)
    }

    #[test]
    fn paths_with_spaces_stay_in_one_argument() {
        assert_eq!(args("code -g {file}:{line}", "/a b/c.py"), ("code".into(), vec!["-g".into(), "/a b/c.py:7".into()]));
        assert_eq!(args("\"/opt/my editor/e\" {file}", "x.py"), ("/opt/my editor/e".into(), vec!["x.py".into()]));
    }

    #[test]
    fn an_editor_without_places_gets_file_and_line_in_its_way() {
        assert_eq!(args("kate", "x.py").1, ["--line", "7", "x.py"]);
        assert_eq!(args("/usr/bin/code", "x.py").1, ["-g", "x.py:7"]);
        assert_eq!(args("my-editor --new", "x.py").1, ["--new", "+7", "x.py"]);
        assert_eq!(args("e --at {line}", "x.py").1, ["--at", "7", "x.py"]);
    }

    #[test]
    fn the_environment_is_asked_when_the_settings_are_empty() {
        let (started, source) = start("  ", "gedit", "x.py", 7).unwrap();
        assert_eq!(
            (started.program.as_str(), started.args, source),
            ("gedit", vec!["+7".into(), "x.py".into()], Source::Environment)
        );
        assert_eq!(start("", " ", "x.py", 7), None);
    }

    #[test]
    fn an_editor_of_the_terminal_gets_a_terminal() {
        let vim = || Start { program: "vim".into(), args: vec!["+7".into(), "x.py".into()] };
        let inside = in_terminal(vim(), |name| name == "xterm");
        assert_eq!((inside.program.as_str(), inside.args.join(" ").as_str()), ("xterm", "-e vim +7 x.py"));
        assert_eq!(in_terminal(vim(), |_| false), vim());
        let gui = Start { program: "gedit".into(), args: Vec::new() };
        assert_eq!(in_terminal(gui.clone(), |_| true), gui);
    }
}
