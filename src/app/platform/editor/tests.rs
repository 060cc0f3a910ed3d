use super::*;

/// A machine with these programs.
struct Has(&'static [&'static str], bool);

impl Machine for Has {
    fn has(&self, program: &str) -> bool {
        self.0.contains(&program)
    }

    fn is_in_terminal(&self) -> bool {
        self.1
    }
}

fn started(settings: &str, file: &str) -> Result<(String, Vec<String>), String> {
    let (start, source) = start(settings, "gedit", file, 7, &Has(&[], true))?.unwrap();
    assert_eq!(source, Source::Settings);
    Ok((start.program, start.args))
}

fn args(settings: &str, file: &str) -> Vec<String> {
    started(settings, file).unwrap().1
}

#[test]
fn paths_with_spaces_stay_in_one_argument() {
    assert_eq!(started("code -g {file}:{line}", "/a b/c.py").unwrap(), ("code".into(), vec!["-g".into(), "/a b/c.py:7".into()]));
    assert_eq!(started("\"/opt/my editor/e\" {file}", "/x.py").unwrap(), ("/opt/my editor/e".into(), vec!["/x.py".into()]));
    assert_eq!(args("e --at={line} --file={file}", "/a {line}.py"), ["--at=7", "--file=/a {line}.py"]);
}

#[test]
fn an_editor_without_places_gets_file_and_line_in_its_way() {
    assert_eq!(args("kate", "/x.py"), ["--line", "7", "/x.py"]);
    assert_eq!(args("/usr/bin/code", "/x.py"), ["-g", "/x.py:7"]);
    assert_eq!(args("zed", "/x.py"), ["/x.py:7"]);
    assert_eq!(args("my-editor --new", "/x.py"), ["--new", "+7", "/x.py"]);
    assert_eq!(args("e --at {line}", "/x.py"), ["--at", "7", "/x.py"]);
}

#[test]
fn the_environment_is_asked_when_the_settings_are_empty() {
    let nothing = Has(&[], false);
    let (started, source) = start("  ", "gedit", "/x.py", 7, &nothing).unwrap().unwrap();
    assert_eq!(
        (started.program.as_str(), started.args, source),
        ("gedit", vec!["+7".into(), "/x.py".into()], Source::Environment)
    );
    assert_eq!(start("", " ", "/x.py", 7, &nothing), Ok(None));
}

#[test]
fn an_editor_of_the_terminal_gets_a_terminal() {
    let line = |settings: &str, file: &str, machine: &Has| {
        let (start, _) = start(settings, "", file, 7, machine)?.unwrap();
        Ok::<_, String>(format!("{} {}", start.program, start.args.join(" ")))
    };
    for editor in ["vim", "emacs -nw"] {
        assert_eq!(line(editor, "/x.py", &Has(&["xterm"], false)).unwrap(), format!("xterm -e {editor} +7 /x.py"));
    }
    assert_eq!(line("vim", "/x.py", &Has(&[], true)).unwrap(), "vim +7 /x.py");
    assert!(line("vim", "/x.py", &Has(&[], false)).unwrap_err().contains("vim needs a terminal"));
    assert_eq!(line("gedit", "/x.py", &Has(&["xterm"], false)).unwrap(), "gedit +7 /x.py");
    // The system's terminal may pass its words to a shell.
    let both = Has(&["x-terminal-emulator", "xterm"], false);
    assert_eq!(line("vim", "/x.py", &both).unwrap(), "x-terminal-emulator -e vim +7 /x.py");
    assert_eq!(line("vim", "/a;b.py", &both).unwrap(), "xterm -e vim +7 /a;b.py");
    assert!(line("vim", "/a;b.py", &Has(&["x-terminal-emulator"], true)).unwrap_err().contains("could take \";\""));
}

/// Whatever the file name, the editor's argument begins with the `/` of its path, or the command is refused.
#[test]
fn a_name_is_never_read_as_a_command() {
    let names = [
        "/a/$(touch OWNED).py",
        "/a/`x`.py",
        "/a/b;c.py",
        "/a/|c.py",
        "/a/\"q.py",
        "/a/'q.py",
        "/a/b c.py",
        "/a/%s.py",
        "/a/\\n.py",
    ];
    let read_as_language = [
        "sh -c \"vim {file}\"",
        "sh -c 'vim \"{file}\"'",
        "bash -lc {file}",
        "ssh host vim {file}",
        "tmux new-window \"vim {file}\"",
        "emacsclient --eval \"(find-file \\\"{file}\\\")\"",
        "vim -c \"e {file}\"",
        "vim +{file}",
        "vim -c{file}",
        "/usr/bin/env sh -c {file}",
        "su -c vim",
    ];
    for name in names {
        for command in read_as_language {
            let said = started(command, name).expect_err(&format!("{command} {name}"));
            assert!(said.contains("is not opened") && said.contains("could take"), "{said}");
        }
        for command in ["vim", "emacs", "kak", "nano", "kate", "code", "gvim", "my-editor", "nvim --server /x --remote {file}"] {
            let given = args(command, name);
            assert_eq!(given.iter().filter(|a| a.contains(&name[3..])).count(), 1, "{command} {given:?}");
            assert!(given.iter().any(|a| a.starts_with(name)), "{command} {given:?}");
        }
    }
    for command in read_as_language {
        let given = started(command, "/home/me/c++/train-1.py").unwrap();
        assert!(given.1.iter().any(|a| a.contains("/home/me/c++/train-1.py")), "{command}: a plain name is opened");
    }
    assert!(started("{file} --new", "/x.py").unwrap_err().contains("begin with the name of a program"));
}

#[test]
fn a_colon_in_a_name_is_not_taken_for_a_line() {
    for command in ["code", "subl", "hx", "micro", "e {file}:{line}", "vscode://file{file}:{line}"] {
        assert!(started(command, "/a/b:12.py").unwrap_err().contains("the colon in its name"), "{command}");
    }
    assert_eq!(args("vim", "/a/b:12.py"), ["+7", "/a/b:12.py"]);
    assert_eq!(args("code", "C:\\a\\b.py"), ["-g", "C:\\a\\b.py:7"]);
}

#[test]
fn a_link_holds_the_path_in_percent_signs() {
    let link = |file: &str| started(CODE_LINK, file).unwrap();
    assert_eq!(link("/a b/é&?#%.py"), (OPENER.into(), vec!["vscode://file/a%20b/%C3%A9%26%3F%23%25.py:7".into()]));
    assert_eq!(args("idea://open?file={file}&line={line}", "/a&line=1.py"), ["idea://open?file=/a%26line%3D1.py&line=7"]);
    assert!(started("{file}://x", "/a.py").is_err());
}

#[test]
fn editors_of_the_machine_are_offered_and_those_of_a_terminal_only_with_one() {
    let names = |machine: &Has| found(machine).iter().map(|(command, _)| *command).collect::<Vec<_>>();
    assert_eq!(names(&Has(&["vim", "kate"], false)), ["kate"]);
    assert_eq!(names(&Has(&["vim", "kate", "foot"], false)), ["kate", "vim"]);
    assert_eq!(names(&Has(&["xdg-open"], false)), [CODE_LINK]);
    assert_eq!(names(&Has(&["xdg-open", "code"], false)), ["code"]);
    let commands: std::collections::HashSet<_> = KNOWN.iter().map(|(command, _)| command).collect();
    assert_eq!(commands.len(), KNOWN.len());
}

/// Runs real Vim, where installed, in a terminal: a file whose name looks like a Vim command is only opened.
#[cfg(target_os = "linux")]
#[test]
fn real_vim_opens_a_file_named_like_a_command() {
    let (vim, script) = ("vim", "script");
    if !ThisMachine.has(vim) || !ThisMachine.has(script) {
        println!("skipped: vim or script is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in [
        "+call writefile([], \"OWNED\")|q.py",
        "`touch OWNED`.py",
        "-c q!.py",
        "`=writefile([], 'OWNED')`.py",
        "a|!touch OWNED.py",
    ] {
        let file = root.join(name);
        std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
        let path = place::locate(file.to_str().unwrap(), &[]).unwrap();
        let (start, _) = start("", vim, &path, 2, &Has(&[], true)).unwrap().unwrap();
        // Vim types into the buffer and writes it, so the file that changes, and its line, show what was opened.
        let quoted = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
        // Without the user's own Vim settings. The keys follow vramscope's arguments.
        let keys = ["-c", "normal! Ahere", "-c", "wq"].map(str::to_owned);
        let quiet = ["-u", "NONE"].map(str::to_owned);
        let words = std::iter::once(&start.program).chain(&quiet).chain(&start.args).chain(&keys);
        let command: Vec<String> = words.map(quoted).collect();
        let done = std::process::Command::new("timeout")
            .args(["20", script, "-qec", &command.join(" "), "/dev/null"])
            .current_dir(&root)
            .env("TERM", "xterm")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\ntwohere\nthree\n", "{name} {command:?} {done:?}");
        assert!(!root.join("OWNED").exists(), "{name} was run");
    }
}
