//! The probe from outside: every scenario on simulated memory and with a fake CUDA driver, the driver's pitfalls, and
//! interruptions.

use crate::shared::wait_for;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::cli::stderr;

const GIB: u64 = 1 << 30;

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
    command.arg("probe").args(args).stdin(Stdio::null());
    command
}

fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// A folder with the fake `libcuda.so.1` and the file that its processes share. `None`, with a message, without a C compiler.
struct FakeCard {
    folder: tempfile::TempDir,
}

impl FakeCard {
    fn new(flags: &[&str]) -> Option<Self> {
        if !cfg!(target_os = "linux") || !has("cc") {
            crate::shared::not_run("there is no C compiler (cc) to build the stand-in for the CUDA driver with");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes/cuda.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wno-unused-variable"])
            .args(flags)
            .arg("-o")
            .arg(folder.path().join("libcuda.so.1"))
            .arg(source)
            .arg("-lpthread")
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        std::fs::copy(folder.path().join("libcuda.so.1"), folder.path().join("libnvidia-ml.so.1")).unwrap();
        Some(FakeCard { folder })
    }

    fn state_file(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn program(&self, args: &[&str]) -> Command {
        let mut command = program(args);
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("FAKE_CUDA_STATE", self.state_file());
        command
    }

    /// Bytes in use, and their peak.
    fn state(&self) -> [u64; 2] {
        let bytes = std::fs::read(self.state_file()).unwrap_or_default();
        let word = |i: usize| bytes.get(i * 8..i * 8 + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
        [word(0), word(1)]
    }

    fn refusal(&self, args: &[&str], environment: &[(&str, &str)]) -> String {
        let output = self.program(args).envs(environment.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.stdout.is_empty());
        let sentence = stderr(&output);
        assert_eq!(sentence.trim().lines().count(), 1, "{sentence}");
        sentence
    }
}

fn scenarios() -> Vec<String> {
    let list: Value = answer(&program(&["--json"]).output().unwrap());
    list.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_scenario_runs_on_simulated_memory_and_python_opens_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let names = scenarios();
    assert_eq!(names.len(), 14);
    for name in &names {
        let file = folder.path().join(format!("{name}.pickle"));
        let report = answer(&program(&[name, "--simulated", "--json", file.to_str().unwrap()]).output().unwrap());
        assert_eq!(report["diagnosis"], name.as_str());
        assert_eq!(report["simulated"], true);
        assert!(std::fs::metadata(&file).unwrap().len() > 100);
    }
    if !has("python3") {
        println!("python3 is not installed: the files were not opened with it");
        return;
    }
    let script = "import glob, pickle, sys
for name in glob.glob(sys.argv[1] + '/*.pickle'):
    d = pickle.load(open(name, 'rb'))
    live = {}
    for e in d['device_traces'][0]:
        if e['action'] == 'alloc': live[e['addr']] = e['size']
        if e['action'] == 'free_completed': del live[e['addr']]
    blocks = {b['address']: b['requested_size'] for s in d['segments'] for b in s['blocks'] if b['state'] != 'inactive'}
    assert live == blocks, name
    for s in d['segments']:
        assert sum(b['size'] for b in s['blocks']) == s['total_size'], name
    frames = [f for e in d['device_traces'][0] for f in e['frames']]
    assert frames and all(f['name'] and 'probe/' in f['filename'] for f in frames), name
print('opened')";
    let python = Command::new("python3").args(["-c", script, folder.path().to_str().unwrap()]).output().unwrap();
    assert!(python.status.success(), "{}", stderr(&python));
}

#[test]
fn every_scenario_runs_on_a_card_and_its_segments_agree_with_the_driver() {
    let Some(card) = FakeCard::new(&[]) else { return };
    for name in scenarios() {
        let report = answer(&card.program(&[&name, "--json"]).output().unwrap());
        assert_eq!(report["diagnosis"], name.as_str(), "{report}");
        assert_eq!(report["simulated"], false);
        assert_eq!(report["card"], "Fake GPU");
        if name != "contention" {
            assert_eq!(report["driver_difference_bytes"], 0, "{name}");
            assert_eq!(report["nvml_difference_bytes"], 0, "{name}");
        }
        let [used, most] = card.state();
        assert_eq!(used, 0, "{name} gave everything back");
        assert!(most <= 16 * GIB - 512 * (1 << 20), "{name} left the last 512 MiB alone");
    }
}

#[test]
fn only_who_says_fill_takes_the_last_bytes() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let report = answer(&card.program(&["capacity", "--fill", "--param", "block=64MiB", "--json"]).output().unwrap());
    assert_eq!(report["diagnosis"], "capacity");
    assert!(card.state()[1] > 16 * GIB - 128 * (1 << 20));
}

#[test]
fn a_recordings_requests_run_again_on_the_card_as_the_model_says() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let mut replayed = 0;
    for entry in std::fs::read_dir(samples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pickle") {
            continue;
        }
        // Memory from before the recording is requested again, which may lead to other segments.
        let mut starts_empty = true;
        for conf in ["", "expandable_segments:True", "max_split_size_mb:64"] {
            let output = card.program(&["replay", path.to_str().unwrap(), "--conf", conf, "--json"]).output().unwrap();
            let report = answer(&output);
            assert_eq!(report["driver_difference_bytes"], 0, "{} {conf}", path.display());
            if conf.is_empty() {
                starts_empty = report["comparison"][3]["model"] == report["comparison"][3]["recorded"];
            }
            if starts_empty {
                assert_eq!(report["agrees_with_model"], true, "{} {conf}: {}", path.display(), report["comparison"]);
                replayed += 1;
            }
        }
    }
    assert!(replayed >= 6, "{replayed}");
}

#[test]
fn what_can_not_be_run_again_is_told_by_the_process_that_was_to_run_it() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state_only.json");
    let segment = r#"{"device":0,"address":512,"total_size":2097152,"stream":0,"segment_type":"small","blocks":
        [{"size":2097152,"requested_size":2097152,"address":512,"state":"active_allocated","frames":[]}]}"#;
    std::fs::write(&path, format!(r#"{{"segments":[{segment}],"device_traces":[[]]}}"#)).unwrap();
    let sentence = card.refusal(&["replay", path.to_str().unwrap()], &[]);
    assert!(sentence.contains("no trace in this recording"), "{sentence}");
}

#[test]
fn a_limit_that_limits_nothing_is_refused() {
    let tell = |code: i32, output: Output| {
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0));
        stderr(&output)
    };
    let above = tell(1, program(&["leak", "--simulated", "--limit", "25GiB"]).output().unwrap());
    assert!(above.contains("limit of 25 GiB is more than the card has (simulated card, 24 GiB)"), "{above}");
    let whole = program(&["leak", "--simulated", "--limit", "24GiB", "--json"]).output().unwrap();
    assert_eq!(answer(&whole)["limit_bytes"], 24 * GIB);
    let nothing = tell(2, program(&["leak", "--simulated", "--limit", "0"]).output().unwrap());
    assert!(nothing.contains("serves nothing"), "{nothing}");
    let Some(card) = FakeCard::new(&[]) else { return };
    let above = card.refusal(&["leak", "--limit", "17GiB"], &[]);
    assert!(above.contains("limit of 17 GiB") && above.contains("Fake GPU, 16 GiB"), "{above}");
}

#[test]
fn each_trap_of_the_driver_gives_one_sentence() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let stub = card.refusal(&["leak"], &[("FAKE_CUDA_INIT", "34")]);
    assert!(stub.contains("stub") && stub.contains("LD_LIBRARY_PATH"), "{stub}");
    let none = card.refusal(&["leak"], &[("FAKE_CUDA_INIT", "100")]);
    assert!(none.contains("no NVIDIA card"), "{none}");
    let mismatch = card.refusal(&["leak"], &[("FAKE_CUDA_INIT", "803")]);
    assert!(mismatch.contains("different versions"), "{mismatch}");
    let full = card.refusal(&["leak"], &[("FAKE_CUDA_RETAIN", "2")]);
    assert!(full.contains("no room for a CUDA context"), "{full}");
    let tiny = card.refusal(&["leak"], &[("FAKE_CUDA_TOTAL", "0x10000000")]);
    assert!(tiny.contains("no room for a CUDA context"), "{tiny}");
    for after in ["2", "9", "25"] {
        let lost = card.refusal(&["leak"], &[("FAKE_CUDA_LOST_AFTER", after)]);
        assert!(lost.contains("stopped working") && lost.contains("719"), "{after}: {lost}");
    }
    let wrong = card.refusal(&["leak", "--device", "3"], &[]);
    assert!(wrong.contains("no card 3"), "{wrong}");
    let Some(old) = FakeCard::new(&["-DNO_VMM"]) else { return };
    let missing = old.refusal(&["healthy"], &[]);
    assert!(missing.contains("cuMemAddressReserve") && missing.contains("too old"), "{missing}");
    // The same driver does what it can.
    assert_eq!(answer(&old.program(&["fragmentation", "--json"]).output().unwrap())["diagnosis"], "fragmentation");
}

#[test]
fn without_a_driver_there_is_one_sentence() {
    let known = Command::new("sh").args(["-c", "ldconfig -p 2>/dev/null | grep -q libcuda.so"]).status();
    if known.is_ok_and(|s| s.success()) {
        crate::shared::not_run("this machine has a CUDA driver");
        return;
    }
    let output = program(&["leak"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no NVIDIA driver") && stderr(&output).contains("--simulated"), "{}", stderr(&output));
}

#[test]
fn a_card_that_others_use_is_left_alone_unless_told() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let others = [("FAKE_CUDA_OTHERS", "0x100000000")];
    let refused = card.refusal(&["leak"], &others);
    assert!(refused.contains("others hold") && refused.contains("--shared"), "{refused}");
    let report = answer(&card.program(&["leak", "--shared", "--json"]).envs(others).output().unwrap());
    assert_eq!(report["diagnosis"], "leak");
}

/// PIDs of the children of a process.
fn children(parent: u32) -> Vec<u32> {
    let of = |path: PathBuf| {
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        let rest = stat.rsplit_once(')')?.1;
        let mut words = rest.split_whitespace();
        let is_alive = words.next()? != "Z";
        let pid: u32 = stat.split_whitespace().next()?.parse().ok()?;
        (is_alive && words.next()? == parent.to_string()).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|e| of(e.ok()?.path())).collect()
}

#[test]
fn children_die_with_their_parent() {
    let Some(card) = FakeCard::new(&[]) else { return };
    // Long enough not to finish by itself, with its own processes.
    let mut parent = card
        .program(&["contention", "--pace", "400", "--param", "block=64MiB"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let child = wait_for("the run's process", || children(parent.id()).first().copied());
    let neighbours = wait_for("its neighbours", || Some(children(child)).filter(|n| n.len() == 3));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let is_gone = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    wait_for("every process to end", || [child].iter().chain(&neighbours).all(|&p| is_gone(p)).then_some(()));
}

#[test]
fn stopping_gives_everything_back() {
    let Some(card) = FakeCard::new(&[]) else { return };
    let mut command = card.program(&["leak", "--child", "--pace", "200"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut last = None;
    while let Some(message) = vramscope_live::probe::read_message(&mut out).unwrap() {
        if matches!(message, vramscope_live::probe::Message::Events(_)) {
            // Closing its input asks a run to stop.
            drop(child.stdin.take());
        }
        last = Some(message);
    }
    let Some(vramscope_live::probe::Message::End(end)) = last else { panic!("{last:?}") };
    assert_eq!(end.ending, vramscope_live::probe::Ending::Stopped);
    assert!(end.final_reserved_bytes > 0);
    assert!(child.wait().unwrap().success());
    assert_eq!(card.state()[0], 0);
}

#[test]
fn wrong_requests_are_told_in_one_sentence() {
    let exit = |args: &[&str], code: i32| {
        let output = program(args).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        stderr(&output)
    };
    let tell = |args: &[&str]| exit(args, 2);
    assert!(tell(&["nonsense", "--simulated"]).contains("there is no scenario"));
    assert!(tell(&["leak", "--simulated", "--param", "size=1"]).contains("size is"));
    assert!(tell(&["leak", "--simulated", "out.txt"]).contains(".pickle"));
    assert!(tell(&["replay", "--simulated"]).contains("needs the recording"));
    assert!(exit(&["replay", "no-such-file.pickle", "--simulated"], 1).contains("no such file"));
    assert!(exit(&["leak", "--simulated", "no-such-folder/out.pickle"], 1).contains("there is no folder"));
    assert_eq!(program(&["leak", "--conf", "max_split_size_mb:1"]).output().unwrap().status.code(), Some(2));
}
