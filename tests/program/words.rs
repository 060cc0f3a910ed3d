//! The exact text of the commands on the samples. Review a changed sentence before accepting it: `INSTA_UPDATE=always cargo test
//! --test program words`, then read the diff.

use std::path::Path;
use std::process::Command;

use vramscope_core::plan::Trust;

/// The output of a command on samples. It runs in their folder, so that no path of the machine appears. Times differ between runs
/// and are left out.
fn said(args: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let output = Command::new(env!("CARGO_BIN_EXE_vramscope"))
        .args(args)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        // Ignores the role rules of the user who runs the tests.
        .env("XDG_CONFIG_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-settings"))
        .output()
        .expect("the program starts");
    assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8").replace('\u{a0}', " ");
    text.lines().map(untimed).collect::<Vec<_>>().join("\n")
}

/// A line without durations.
fn untimed(line: &str) -> &str {
    let line = line.split_once(", read in ").map_or(line, |(before, _)| before);
    line.trim_end()
}

fn snapshot(name: &str, args: &[&str]) {
    insta::with_settings!({ prepend_module_to_snapshot => false, description => args.join(" "), omit_expression => true }, {
        insta::assert_snapshot!(name, said(args));
    });
}

#[test]
fn why_it_ran_out() {
    for file in ["fragment_oom.pickle", "serve_oom.pickle.gz", "kv_decode_oom.pickle.gz", "expandable_oom.pickle"] {
        let name = file.split('.').next().unwrap_or(file);
        snapshot(&format!("oom_{name}"), &["oom", file]);
        snapshot(&format!("summary_{name}"), &["summary", file]);
        snapshot(&format!("findings_{name}"), &["findings", file]);
    }
}

#[test]
fn how_close_it_was() {
    snapshot("oom_gpt_train", &["oom", "gpt_train.pickle"]);
    snapshot("findings_gpt_train", &["findings", "gpt_train.pickle"]);
}

#[test]
fn what_stays() {
    snapshot("leaks_leak", &["leaks", "leak.pickle"]);
    snapshot("findings_leak", &["findings", "leak.pickle"]);
}

#[test]
fn what_was_there() {
    snapshot("state_two_gpus", &["state", "two_gpus.pickle", "--peak"]);
    snapshot("state_multi_stream", &["state", "multi_stream.pickle", "--peak"]);
    snapshot("state_cuda_graph", &["state", "cuda_graph.pickle", "--end"]);
    snapshot("diff_expandable", &["diff", "expandable_oom.pickle", "fragment_oom.pickle"]);
}

#[test]
fn what_would_have_helped() {
    snapshot("whatif_fragment", &["whatif", "fragment_oom.pickle"]);
    snapshot("whatif_serve", &["whatif", "serve_oom.pickle.gz"]);
}

/// Sizes of one table have the same unit, which its header names.
#[test]
fn a_table_of_changes_has_one_unit() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan/gpt.b8.pickle.zst");
    let file = file.to_str().expect("UTF-8");
    let text = said(&["plan", file, "--at", "batch=8", "--want", "batch=16", "--cap", "4GiB", "--change", "all"]);
    let table: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("change ")).take_while(|l| !l.is_empty()).collect();
    assert!(table[0].contains("peak reserved at batch 16, MiB") && table[0].contains("saves, allocated, MiB"), "{}", table[0]);
    assert!(table.len() > 10 && table[1..].iter().all(|l| !l.contains("MiB") && !l.contains("GiB")), "{table:#?}");
    assert!(table[1].starts_with("as recorded "), "what each change is held against: {}", table[1]);
}

/// The outcome of each row and its certainty are given in terms that the text explains. Ranges have their own column.
#[test]
fn the_words_of_a_plan_are_explained() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan/gpt.b8.pickle.zst");
    let file = file.to_str().expect("UTF-8");
    let asked =
        ["plan", file, "--at", "batch=8", "--want", "batch=32", "--cap", "4GiB", "--change", "all", "--change", "accumulate:8"];
    let text = said(&asked);
    let table: Vec<&str> =
        text.lines().skip_while(|l| !l.starts_with("change ")).take_while(|l| !l.starts_with("Ends: ")).collect();
    let head = table[0];
    assert!(["range", "ends", "largest", "how sure", "costs"].iter().all(|column| head.contains(column)), "{head}");
    let at = |column: &str| head[..head.find(column).expect("a column")].chars().count();
    let word = |row: &str, column: &str| {
        let cell: String = row.chars().skip(at(column)).collect();
        cell.split("  ").next().unwrap_or_default().trim().to_owned()
    };
    let note = |begins: &str| text.lines().find(|l| l.starts_with(begins)).expect("a line that explains").to_owned();
    let (ends, sure) = (note("Ends: "), note("How sure: "));
    let told: Vec<&str> = table[1..].iter().copied().filter(|row| !row.contains("does not apply")).collect();
    assert!(told.len() > 5, "{text}");
    for row in told {
        assert!(ends.contains(&format!("{} (", word(row, "ends"))), "{row}: {ends}");
        assert!(sure.contains(&format!("{} (", word(row, "how sure"))), "{row}: {sure}");
    }
    assert!(!text.contains("most likely") && !text.contains("  fails"), "{text}");
    let passes = table.iter().find(|row| row.contains("accumulation")).unwrap_or_else(|| panic!("{text}"));
    assert!(word(passes, "ends").ends_with("fits") && word(passes, "largest").starts_with("any"), "{passes}");
    // docs/PLAN.md explains the same terms.
    let page = include_str!("../../docs/PLAN.md");
    for (word, about) in vramscope_core::plan::ENDS {
        assert!(page.contains(&format!("| {word} | {about} |")), "{word}");
    }
    for trust in [Trust::Exact, Trust::Close, Trust::Estimate] {
        assert!(page.contains(&format!("| {} | {} |", trust.word(), trust.about())), "{trust:?}");
    }
}

/// With several GPUs, the text says which one it is about.
#[test]
fn a_plan_says_which_gpu_it_is_of() {
    for device in ["0", "1"] {
        let text = said(&["plan", "two_gpus.pickle", "--at", "batch=8", "--device", device]);
        let first = format!("Of GPU {device}: two_gpus.pickle has 2 GPUs, and --device N plans another.");
        assert_eq!(text.lines().next(), Some(first.as_str()), "{text}");
    }
}

/// The command for a second recording repeats the question and can be pasted.
#[test]
fn the_line_for_a_second_recording_can_be_pasted() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("my runs");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("gpt.pickle.zst");
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan/gpt.b8.pickle.zst"), &file).expect("copied");
    let line = |more: &[&str]| {
        let text = said(&[&["plan", file.to_str().expect("UTF-8"), "--at", "batch=8"], more].concat());
        text.lines().find(|l| l.contains("second.pickle")).map(|l| l.trim().to_owned()).unwrap_or_else(|| panic!("{text}"))
    };
    let begins = format!("vramscope plan '{0}/gpt.pickle.zst' '{0}/second.pickle' --at batch=8 --at batch=4", dir.display());
    assert_eq!(line(&["--cap", "4GiB"]), format!("{begins} --cap 4GiB"));
    assert_eq!(
        line(&["--want", "batch=16", "--card", "RTX 4090", "--held", "512MiB", "--change", "fused"]),
        format!("{begins} --want batch=16 --card 'RTX 4090' --held 512MiB --change fused")
    );
}

/// Lines to paste are for the requested library, for every change that helps.
#[test]
fn lines_to_paste_are_shown_for_the_library_that_is_used() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan/gpt.b8.pickle.zst");
    let file = file.to_str().expect("UTF-8");
    let asked = |library| said(&["plan", file, "--at", "batch=8", "--want", "batch=16", "--change", "all", "--code", library]);
    let (plain, trainer, lightning) = (asked("pytorch"), asked("trainer"), asked("lightning"));
    assert!(plain.contains("optimizer = bitsandbytes.optim.AdamW8bit(") && plain.contains("save_on_cpu"), "{plain}");
    assert!(trainer.contains("adamw_bnb_8bit") && !trainer.contains("optimizer = bitsandbytes"), "{trainer}");
    assert!(lightning.contains("configure_optimizers") && lightning.contains("bf16-true"), "{lightning}");
    let refused = super::cli::run(&["plan", file, "--at", "batch=8", "--code", "lightning"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && told.contains("plan needs --change CHANGE as well"), "{told}");
}

/// What two programs request where they start to differ, with their own lines.
#[test]
fn two_programs_part_at_a_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let files = ["plan/gpt.b4.pickle.zst", "gan.start.python.pickle.zst"].map(|f| root.join(f).display().to_string());
    let output = super::cli::run(&["plan", &files[0], &files[1], "--at", "batch=4", "--at", "batch=8", "--json"]);
    assert_eq!(output.status.code(), Some(1), "a refusal, with its answer on standard output");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let sides = report["fits"]["parts_at"].as_array().expect("a list");
    assert_eq!(sides.len(), 2);
    assert!(sides.iter().all(|s| s["bytes"].is_u64() && s["lines"][0].is_string()), "{sides:?}");
}

/// JSON also says when nothing grows.
#[test]
fn a_healthy_recording_says_so_in_json() {
    let report: serde_json::Value = serde_json::from_str(&said(&["findings", "gpt_train.pickle", "--json"])).expect("JSON");
    let said = report["no_growth"][0]["sentence"].as_str().unwrap_or_default();
    assert!(said.starts_with("No growth so far: ") && said.ends_with('.'), "{report}");
}
