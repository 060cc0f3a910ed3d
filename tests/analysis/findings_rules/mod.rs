//! For every rule of the findings: a recording that triggers it, and a similar one that must not.

mod beside;
mod cache;
mod growth;
mod kept;
mod loading;
mod peaks;
mod recording;
mod remedies;
mod samples;
mod strangers;

use std::collections::BTreeSet;
use std::path::Path;

use crate::shared::open;
use crate::tape::{MIB, Tape};
use vramscope_core::diagnose::findings::{Finding, RULES, as_table};
use vramscope_core::model::{DeviceRecording, Recording};

fn of_tests(name: &str) -> Recording {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    open(&folder.join(format!("{name}.pickle.zst")))
}

fn findings(recording: &Recording) -> Vec<Finding> {
    crate::findings::diagnoses(recording).into_iter().flat_map(|found| found.findings).collect()
}

fn rules(recording: &Recording) -> BTreeSet<&'static str> {
    findings(recording).iter().map(|f| f.rule).collect()
}

/// The finding of a rule, which must exist and be complete.
#[track_caller]
fn said(recording: &Recording, rule: &str) -> Finding {
    let all = findings(recording);
    let found = all.iter().find(|f| f.rule == rule).unwrap_or_else(|| panic!("{rule} is silent: {all:?}")).clone();
    assert!(found.bytes > 0 && !found.evidence.is_empty() && !found.verify.is_empty() && !found.advice.is_empty(), "{found:?}");
    assert!(found.sentence.chars().any(|c| c.is_ascii_digit()) && found.sentence.ends_with('.'), "{}", found.sentence);
    found
}

#[track_caller]
fn silent(recording: &Recording, rule: &str) {
    let all = findings(recording);
    assert!(all.iter().all(|f| f.rule != rule), "{rule} speaks: {all:?}");
}

fn of(device: DeviceRecording) -> Recording {
    Recording { devices: vec![device], ..Recording::default() }
}

/// Some training steps with nothing wrong: forward, backward, everything freed.
fn healthy_steps(t: &mut Tape, steps: usize) {
    let forward = t.stack(&[("/home/me/model.py", "forward"), ("/home/me/train.py", "main")]);
    let held = t.alloc(40 * MIB, forward);
    for _ in 0..steps {
        let activations: Vec<_> = (0..6).map(|i| t.alloc((12 + 2 * i) * MIB, forward)).collect();
        t.free_all(activations.into_iter().rev());
        t.step();
    }
    t.free(held);
}

#[test]
fn a_healthy_run_says_nothing() {
    let mut t = Tape::new();
    healthy_steps(&mut t, 12);
    let recording = t.finish();
    assert!(rules(&recording).is_empty());
    silent(&recording, "out_of_memory");
}

#[test]
fn the_documentation_lists_every_rule_as_it_is() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join("FINDINGS.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let table = as_table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let start = text.find("| rule |").unwrap_or(text.len());
        let end = text[start..].find("\n\n").map_or(text.len(), |i| start + i + 1);
        std::fs::write(&path, format!("{}{table}{}", &text[..start], &text[end..])).unwrap();
        return;
    }
    assert!(text.contains(&table), "docs/FINDINGS.md is not the table of rules; UPDATE_SNAPSHOTS=1 writes it");
}

/// The rules named by calls of a test function: the last quoted word of its arguments.
fn named_by(source: &str, function: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices(&format!("{function}(")) {
        let mut depth = 0;
        let call = source[at + function.len()..].split_inclusive(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        let arguments = call.take(1).collect::<String>();
        if let Some(word) = arguments.split('"').collect::<Vec<_>>().chunks_exact(2).map(|pair| pair[1]).next_back() {
            found.insert(word.to_owned());
        }
    }
    found
}

/// Each rule needs a recording that triggers it and one that does not. Otherwise it may never apply, or always.
#[test]
fn every_rule_has_a_recording_that_triggers_it_and_one_that_must_not() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/analysis/findings_rules");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let here = files.collect::<String>();
    let (triggered, kept_silent) = (named_by(&here, "said"), named_by(&here, "silent"));
    let lacking = |names: &BTreeSet<String>| RULES.iter().map(|r| r.name).filter(|n| !names.contains(*n)).collect::<Vec<_>>();
    assert_eq!(lacking(&triggered), [""; 0], "no recording triggers these");
    assert_eq!(lacking(&kept_silent), [""; 0], "no recording must leave these silent");
    let is_rule = |name: &String| RULES.iter().any(|r| r.name == name);
    assert!(triggered.iter().chain(&kept_silent).all(is_rule), "{triggered:?} {kept_silent:?}");
}

/// Each rule whose example is a generated recording is tested with one here, and each whose example is a file with that file.
#[test]
fn every_rule_is_shown() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/analysis/findings_rules");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let here = files.collect::<String>();
    for rule in RULES.iter() {
        let columns = [rule.finds, rule.when, rule.source, rule.shown_by];
        assert!(columns.iter().all(|column| !column.is_empty()), "{} has an empty column", rule.name);
        if rule.shown_by.contains("generated") {
            assert!(here.contains(&format!("\"{}\"", rule.name)), "{} has no test", rule.name);
        }
        for name in rule.shown_by.split('`').filter(|s| s.contains(".pickle") && !s.contains('/')) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name);
            let recording = open(&path);
            said(&recording, rule.name);
        }
    }
}
