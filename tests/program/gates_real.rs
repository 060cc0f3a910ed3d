//! The gate on recordings of real programs: every planted growth of 1 MiB is found and attributed to its line. Also the GitHub
//! action.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::shared::{open, tables};
use serde_json::json;

use super::cli::{json as answer, run, sample};
use vramscope_core::diagnose::export;
use vramscope_core::model::{Action, Block, BlockState, PoolId, Recording, Segment, SizeClass, StackId, StreamId};
use vramscope_core::tables::Quantity;

const MIB: u64 = 1 << 20;

/// Programs of many kinds, recorded from their first allocation on.
const PROGRAMS: [&str; 10] = [
    "compiled_gpt",
    "ddp",
    "eval_inference",
    "fsdp2",
    "gan",
    "gpt2_accum",
    "gpt2_ckpt",
    "hf_trainer",
    "lightning_cnn",
    "resnet50",
];

fn recording_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.start.python.pickle.zst"))
}

/// The recording with an additional allocation of 1 MiB in its own segment, made at event `at` by a line that allocates near it,
/// and kept until `until` or to the end. Also returns its stack.
fn plant(recording: &Recording, device: usize, at: usize, until: Option<usize>) -> (Recording, StackId) {
    let mut grown = recording.clone();
    let d = &mut grown.devices[device];
    let stack = (0..at)
        .rev()
        .chain(at..d.events.len())
        .find(|&e| d.events.action[e] == Action::Alloc && d.events.stack[e].is_some())
        .map(|e| d.events.stack[e])
        .unwrap();
    let address = 0x7000_0000_0000;
    assert!(d.segments.iter().all(|s| s.address + s.size <= address || s.address >= address + 2 * MIB));
    let mut insert = |at: usize, action, size, stack| {
        let e = &mut d.events;
        e.time_us.insert(at, e.time_us[at.saturating_sub(1)]);
        e.action.insert(at, action);
        e.address.insert(at, address);
        e.size.insert(at, size);
        e.stream.insert(at, StreamId(0));
        e.pool.insert(at, PoolId(0));
        e.stack.insert(at, stack);
        e.notes.iter_mut().filter(|n| n.event as usize >= at).for_each(|n| n.event += 1);
    };
    if let Some(until) = until {
        insert(until, Action::FreeCompleted, MIB, StackId::NONE);
        insert(until, Action::FreeRequested, MIB, StackId::NONE);
    }
    insert(at, Action::Alloc, MIB, stack);
    insert(at, Action::SegmentAlloc, 2 * MIB, stack);
    let first = d.blocks.len() as u32;
    let state = if until.is_some() { BlockState::Inactive } else { BlockState::Active };
    let requested = if until.is_some() { 0 } else { MIB };
    d.blocks.push(Block { address, size: MIB, requested, state, stack });
    d.blocks.push(Block { address: address + MIB, size: MIB, state: BlockState::Inactive, ..Block::default() });
    let (size, pool, class, blocks) = (2 * MIB, PoolId(0), SizeClass::Small, first..first + 2);
    d.segments.push(Segment { address, size, pool, class, stack, blocks, ..Segment::default() });
    (grown, stack)
}

#[test]
fn every_mebibyte_planted_into_a_real_program_is_found_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = 0;
    for name in PROGRAMS {
        let old = recording_of(name);
        let recording = open(&old);
        let device = recording.busiest_device().unwrap();
        let tables = tables(&recording.devices[device]);
        let (_, peak) = tables.curves.peak(Quantity::Allocated);
        let (peak, all) = (peak as usize, recording.devices[device].events.len());
        let file = folder.path().join(format!("{name}.pickle"));
        let check = |at: usize, until: Option<usize>, tolerance: &str| {
            let (grown, stack) = plant(&recording, device, at, until);
            export::save(&grown, &file, &[&old], true).unwrap();
            let words =
                ["check", file.to_str().unwrap(), "--baseline", old.to_str().unwrap(), "--tolerance", tolerance, "--json"];
            let output = run(&words);
            let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let check = answer["checks"].as_array().unwrap().iter().find(|c| c["growth_bytes"] != json!(0)).cloned();
            (output.status.code(), check, stack)
        };
        // Kept from the start, from before the peak, and only around the peak.
        for (at, until) in [(0, None), (peak / 3, None), (peak * 2 / 3, None), (peak, None), (peak, Some((peak + 1).min(all)))] {
            for tolerance in ["0", "1023KiB"] {
                let (code, check, _) = check(at, until, tolerance);
                let check = check.unwrap_or_else(|| panic!("{name}, {at} to {until:?}: nothing grew"));
                assert_eq!((code, &check["growth_bytes"]), (Some(1), &json!(MIB)), "{name}, {at} to {until:?}");
                // Only the line that allocates it.
                let lines = check["by_line"].as_array().unwrap();
                assert_eq!((lines.len(), &lines[0]["growth_bytes"]), (1, &json!(MIB)), "{name}, {at} to {until:?}: {lines:?}");
                found += 1;
            }
            assert_eq!(check(at, until, "1MiB").0, Some(0), "{name}, {at}: what is within the tolerance is no alarm");
        }
        // Memory that is freed before the peak, or that comes later without reaching it, is no growth of the peak.
        if peak > 8 {
            let (code, check, _) = check(peak / 2, Some(peak / 2 + 1), "0");
            assert!(code == Some(0) && check.is_none(), "{name}: {check:?}");
        }
    }
    assert_eq!(found, PROGRAMS.len() * 10);
}

/// Runs the action's step as GitHub does.
fn step(folder: &Path, inputs: &[(&str, &str)]) -> (Output, String, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (summary, output) = (folder.join("summary.md"), folder.join("output.txt"));
    let _ = (std::fs::remove_file(&summary), std::fs::remove_file(&output));
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let link = bin.join("vramscope");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vramscope"), &link).unwrap();
        // Logs its arguments, and knows one older comment.
        let gh = "#!/bin/sh\nprintf '%s\\n' \"$*\" >> \"$0.log\"\n[ -z \"$GH_FAILS\" ] || exit 1\n\
            case \"$*\" in *--paginate*) cat \"$0.id\" 2>/dev/null || true;; *body=@*) cat \"${*##*body=@}\" > \"$0.body\";; esac\n";
        std::fs::write(bin.join("gh"), gh).unwrap();
        let mut mode = std::fs::metadata(bin.join("gh")).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(bin.join("gh"), mode).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let done = Command::new("bash")
        .arg(root.join(".github/actions/check/check.sh"))
        .current_dir(folder)
        .env("PATH", path)
        .env("GITHUB_STEP_SUMMARY", &summary)
        .env("GITHUB_OUTPUT", &output)
        .env("GITHUB_REPOSITORY", "somebody/something")
        .env("RUNNER_TEMP", folder)
        .envs(inputs.iter().copied())
        .output()
        .unwrap();
    let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default().replace('\u{a0}', " ");
    (done, text(&summary), text(&output))
}

#[test]
fn the_action_tells_what_check_said_and_ends_as_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let train = sample("gpt_train.pickle");
    let peak = answer(&["summary", &train, "--json"])["devices"][0]["allocated_bytes"]["peak"].as_u64().unwrap();
    let log = || std::fs::read_to_string(folder.join("bin/gh.log")).unwrap_or_default();

    let (done, summary, output) =
        step(folder, &[("FILE", &train), ("BASELINE", &train), ("TOLERANCE", "0"), ("LIMITS", "--no-oom\n")]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(
        summary.starts_with("**vramscope: 2 checks passed**") && output.starts_with("passed=true\nreport="),
        "{summary} {output}"
    );
    assert_eq!(log(), "", "without a token nobody is asked");
    // Line ends of Windows, and a file whose name looks like an option.
    let (done, summary, _) = step(folder, &[("FILE", &train), ("LIMITS", "--no-oom\r\n--max-peak\r\n1TiB\r\n")]);
    assert!(done.status.success() && summary.starts_with("**vramscope: 2 checks passed**"), "{done:?}");
    let (done, summary, _) = step(folder, &[("FILE", "--help"), ("LIMITS", "--no-oom")]);
    assert!(done.status.code() == Some(1) && summary.contains("--help: there is no such file"), "{done:?} {summary}");

    // A limit that is exceeded. The comment is new first and then updated. A word with spaces and shell characters stays one
    // word.
    let limits = format!("--max-allocated\n{}\n", peak - 1);
    let failing = [("FILE", train.as_str()), ("LIMITS", &limits), ("GH_TOKEN", "t"), ("PULL_REQUEST", "7")];
    let (done, summary, output) = step(folder, &failing);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(summary.contains("1 of 1") && output.starts_with("passed=false\n"), "{summary} {output}");
    assert!(
        log().ends_with(".comment\n") && log().contains("--method POST repos/somebody/something/issues/7/comments"),
        "{}",
        log()
    );
    let body = std::fs::read_to_string(folder.join("bin/gh.body")).unwrap().replace('\u{a0}', " ");
    assert_eq!(body, format!("<!-- vramscope check -->\n{summary}"));
    std::fs::write(folder.join("bin/gh.id"), "41\n42\n").unwrap();
    step(folder, &failing);
    assert!(log().contains("--method PATCH repos/somebody/something/issues/comments/41 "), "{}", log());

    // A token without permission to comment, as from a fork, causes a warning and does not change the result.
    let mut refused = failing.to_vec();
    refused.push(("GH_FAILS", "1"));
    let (done, ..) = step(folder, &refused);
    assert!(done.status.code() == Some(1) && String::from_utf8_lossy(&done.stdout).contains("::warning::"), "{done:?}");

    for (file, limits, code) in [("gone $(touch x).pickle", "--no-oom", 1), (train.as_str(), "--no-such-option", 2)] {
        let (done, summary, output) = step(folder, &[("FILE", file), ("LIMITS", limits)]);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        assert!(
            summary.starts_with("**vramscope: no answer**\n\n    vramscope: ") && output.starts_with("passed=false\n"),
            "{summary}"
        );
    }
    assert!(!folder.join("x").exists());
}
