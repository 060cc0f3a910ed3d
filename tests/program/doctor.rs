//! `vramscope doctor`, the completions and the manual pages.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::cli::{json as answer, program, refused, run, sample, stderr, stdout};

/// What a file lacks: the sentence, and its line of code.
fn lacks(file: &str) -> Vec<(String, Option<String>)> {
    let found = answer(&["doctor", file, "--json"]);
    let list = found["files"][0]["lacks"].as_array().unwrap();
    list.iter().map(|l| (l["what"].as_str().unwrap().to_owned(), l["line"].as_str().map(str::to_owned))).collect()
}

#[test]
fn each_recording_lacks_what_it_lacks_and_the_line_is_told() {
    let watch = ("the rest of the card", Some("vramscope record session.vramscope"));
    let steps = ("steps", Some("with torch.profiler.record_function(\"step\"): train_step(batch)"));
    let stacks = ("stacks", Some("torch.cuda.memory._record_memory_history(context=\"alloc\", stacks=\"python\")"));
    let run_it = ("allocations", Some("vramscope run --at-oom snapshots train.py"));
    let jax = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/jax_train.prof").display().to_string();
    let peak = "jax.local_devices()[0].memory_stats()[\"peak_bytes_in_use\"]";
    for (file, want) in [
        (sample("gpt_train.pickle"), vec![watch]),
        (sample("fragment_oom.pickle"), vec![stacks, steps, watch]),
        (sample("serve_oom.pickle.gz"), vec![watch]),
        (sample("live.vramscope"), vec![run_it]),
        (jax, vec![("history", Some(peak)), ("segments", None), ("addresses", None)]),
    ] {
        let want: Vec<_> = want.into_iter().map(|(what, line)| (what.to_owned(), line.map(str::to_owned))).collect();
        assert_eq!(lacks(&file), want, "{file}");
        let text = stdout(&run(&["doctor", &file]));
        for (what, line) in want {
            assert!(
                text.contains(&format!("\n  {what}")) && line.is_none_or(|l| text.contains(&format!("\n      {l}\n"))),
                "{text}"
            );
        }
    }
}

/// No line can record segments of CPU memory, because PyTorch has none.
#[test]
fn no_line_is_told_for_segments_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let event = r#"{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":1,"args":{"Total Reserved":0,"Total Allocated":1048576,"Bytes":1048576,"Addr":140000000000000,"Device Id":-1,"Device Type":0}}"#;
    let file = folder.path().join("cpu.json");
    std::fs::write(&file, format!(r#"{{"traceEvents":[{event}]}}"#)).unwrap();
    let lacks = lacks(file.to_str().unwrap());
    assert!(lacks.contains(&("segments".to_owned(), None)), "{lacks:?}");
}

/// Lines must work as they are: our own commands in a shell, everything else in a program.
#[test]
fn lines_of_python_compile() {
    super::live_helper::needs_python!();
    let mut compiled = 0;
    for name in ["fragment_oom.pickle", "expandable_oom.pickle", "multi_stream.pickle", "leak.pickle", "live.vramscope"] {
        for (what, line) in lacks(&sample(name)) {
            let Some(line) = line.filter(|line| !line.starts_with("vramscope ")) else { continue };
            let program = "import sys; compile(sys.argv[1], 'pasted', 'exec')";
            let done = Command::new("python3").args(["-c", program, &line]).output().unwrap();
            assert!(done.status.success(), "{name}, {what}: {line}: {}", String::from_utf8_lossy(&done.stderr));
            compiled += 1;
        }
    }
    assert!(compiled >= 2, "{compiled}");
}

#[test]
fn any_file_gets_an_answer_or_one_sentence() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut answered = 0;
    for folder in std::fs::read_dir(seeds).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap().take(12) {
            let file = file.unwrap().path();
            let output = run(&["doctor", file.to_str().unwrap(), "--json"]);
            match output.status.code() {
                Some(0) => {
                    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
                    for lack in found["files"][0]["lacks"].as_array().unwrap() {
                        let sentence = lack["sentence"].as_str().unwrap();
                        let end = if lack["line"].is_null() { '.' } else { ':' };
                        assert!(sentence.len() > 20 && sentence.ends_with(end), "{}: {sentence}", file.display());
                    }
                    answered += 1;
                }
                code => {
                    assert_eq!((code, stderr(&output).lines().count()), (Some(1), 1), "{}: {}", file.display(), stderr(&output))
                }
            }
        }
    }
    assert!(answered > 10, "{answered}");
}

#[test]
fn without_a_file_this_machine_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python");
    std::fs::write(&python, "#!/bin/sh\nprintf '3.14.1\\n2.11.0\\n\\n'\n").unwrap();
    Command::new("chmod").arg("+x").arg(&python).status().unwrap();
    let ask = |python: &str| {
        let mut doctor = program(&["doctor", "--json", "--python", python]);
        let output = doctor
            .env("VRAMSCOPE_NVML", "/nonexistent/libnvidia-ml.so.1")
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY")
            .output();
        let found: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        found["machine"].as_array().unwrap().clone()
    };
    let looks = ask(python.to_str().unwrap());
    let of = |what: &str| looks.iter().find(|l| l["what"] == what).unwrap_or_else(|| panic!("{looks:?}"));
    assert_eq!(of("PyTorch")["sentence"], "2.11.0.");
    assert!(of("Python")["sentence"].as_str().unwrap().contains("3.14.1; a running program can be entered"), "{looks:?}");
    assert_eq!(
        (&of("import vramscope")["ok"], &of("window")["ok"], &of("driver")["ok"]),
        (&false.into(), &false.into(), &false.into())
    );
    for look in &looks {
        assert!(look["sentence"].as_str().unwrap().ends_with('.') && (look["ok"] == false || look["todo"].is_null()), "{look}");
    }
    let looks = ask("no-such-python");
    assert!(looks.iter().any(|l| l["sentence"] == "no-such-python: there is no such program."), "{looks:?}");
}

/// Runs a tool with a text on its standard input; `None` when it is not installed.
fn accepts(tool: &[&str], text: &str) -> Option<String> {
    let child =
        Command::new(tool[0]).args(&tool[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        crate::shared::not_run(&format!("{} is not installed, so it did not check what is made for it", tool[0]));
        return None;
    };
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn completions_are_read_by_their_shells() {
    for (shell, check) in [("bash", &["bash", "-n"][..]), ("zsh", &["zsh", "-n"]), ("fish", &["fish", "--no-execute"])] {
        let text = stdout(&run(&["completions", shell]));
        assert!(text.contains("at-oom") && text.contains("whatif"), "{shell}");
        accepts(check, &text);
    }
    // Real completion in Bash: commands, options, and values of an option.
    let ask = |words: &str| {
        let list: Vec<&str> = words.split(' ').collect();
        let script = format!(
            "{}\nCOMP_WORDS=({words}); COMP_CWORD={}; _vramscope vramscope \"{}\" \"{}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            stdout(&run(&["completions", "bash"])),
            list.len() - 1,
            list[list.len() - 1],
            list[list.len() - 2]
        );
        accepts(&["bash"], &script)
    };
    let Some(said) = ask("vramscope find") else { return };
    assert_eq!(said.trim(), "findings");
    assert_eq!(ask("vramscope check --max-al").unwrap().trim(), "--max-allocated");
    assert_eq!(ask("vramscope run --stacks py").unwrap().trim(), "python");
    assert!(stdout(&run(&["--help"])).contains("manual pages"), "every command is listed");
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("man1");
    for _ in 0..2 {
        assert!(run(&["man", dir.to_str().unwrap()]).status.success(), "into a folder that is not there yet, and again");
    }
    // Files of others are kept, and then no page is written.
    let (first, own) = (dir.join("vramscope.1"), dir.join("vramscope-summary.1"));
    std::fs::write(&own, "my own notes").unwrap();
    std::fs::write(&first, "\n.TH vramscope 1\nof an older version").unwrap();
    let told = refused(&["man", dir.to_str().unwrap()], 1);
    assert!(told.contains(&own.display().to_string()) && told.contains("name another folder"), "{told}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "my own notes");
    assert!(std::fs::read_to_string(&first).unwrap().contains("of an older version"));
    std::fs::remove_file(&own).unwrap();
    assert!(run(&["man", dir.to_str().unwrap()]).status.success(), "a page of an older version is replaced");
    let help = stdout(&run(&["--help"]));
    // Continued text has a deeper indent.
    let list = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names = list.filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|n| !n.is_empty()));
    let commands: Vec<&str> = names.collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands.iter().filter(|c| **c != "help") {
        let page =
            std::fs::read_to_string(dir.join(format!("vramscope-{command}.1"))).unwrap_or_else(|e| panic!("{command}: {e}"));
        let synopsis = page.split(".SH SYNOPSIS").nth(1).and_then(|rest| rest.lines().nth(1)).unwrap().replace('\\', "");
        let parts: &[&str] = match *command {
            "run" => &["[--at-oom <DIR>]", "<COMMAND>..."],
            "summary" => &["[--with <FILE>]...", "[--json]", "<FILE>..."],
            "mcp" => &["<DIR>..."],
            "plan" => &["--at <NAME=N>... ", "<FILE>..."],
            "check" => &["--max-peak <BYTES> | ", "--no-leaks | ", "}... <FILE>"],
            _ => &["vramscope"],
        };
        assert!(parts.iter().all(|part| synopsis.contains(part)), "{command}: {synopsis}");
        // Markup errors only. clap's pages have no date, which is fine.
        accepts(&["mandoc", "-T", "lint", "-W", "error"], &page);
    }
}
